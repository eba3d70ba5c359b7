"""The journal of one systemd unit, of this boot, through journalctl.

Engines and the kubelet say a great deal: of them only lines are asked for that can tell why a container did not start for its GPU.
slurmd tells of GPUs when it is started, which may be weeks and thousands of jobs ago: of it only what its starts and ends say of them.
"""

from gpudoctor.facts.raw import Absent, Log
from gpudoctor.knowledge.start_errors import ANCHOR
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.verdicts import Unread, Why

JOURNALS = "journal/"
SUFFIX = ".log"
SECONDS = 3.0
LINES = 50
ENGINES = ("docker", "containerd", "crio", "kubelet", "k3s", "rke2", "snap.docker.dockerd", "snap.microk8s", "podman")
SINCE = "-24h"
"""As far back their journals are looked through: a day of a busy kubelet's is read within a second."""

SLURMD = "slurmd"
OF_GPUS = "gres|GRES|GPU|NVML|nvml|gpu/|slurmd version|shutdown completing|fatal"

# What journalctl tells whoever may read only a part of the journal, or finds none (systemd, src/shared/journal-util.c).
_REFUSED = ("insufficient permissions", "not seeing messages from other users and the system")
_NONE = "No journal files were found"


def read_journal(name: str, root: str, deadline: Deadline) -> Log | Unread:
    """The last lines of `journal/UNIT.log`. Not below a root: there journalctl would have to be entered by chroot, as root."""
    if root != "/":
        return Unread(
            Why.NOT_RECORDED, name, "journals are not read below --root", would_need="gpudoctor on the node itself"
        )
    unit = name.removeprefix(JOURNALS).removesuffix(SUFFIX)
    engine = unit.startswith(ENGINES)
    only: tuple[str, ...] = ("--since", SINCE, "--grep", ANCHOR) if engine else ()
    if unit.startswith(SLURMD):
        engine, only = True, ("--grep", OF_GPUS)
    argv = ("journalctl", "-u", unit, "-b", "--no-pager", "-n", str(LINES), "-o", "short-iso", *only)
    output = run_command(argv, deadline.sooner(SECONDS))
    if isinstance(output, Absent):
        return Unread(Why.UNREADABLE, name, "there is no journalctl here")
    if isinstance(output, Unread):
        return output
    if any(words in output.stderr for words in _REFUSED):
        return Unread(Why.NO_PERMISSION, name, "permission denied", would_need="root or group systemd-journal")
    if engine and not output.stdout.strip() and not output.stderr.strip():
        # Where --grep finds nothing, some releases exit with 1.
        return Log(name, "", source="journal")
    if output.exit != 0 or _NONE in output.stderr:
        return Unread(Why.UNREADABLE, name, output.stderr.strip().partition("\n")[0] or f"exit {output.exit}")
    # What journalctl says itself, such as "-- No entries --", begins with dashes.
    lines = [line for line in output.stdout.splitlines() if not line.startswith("-- ")]
    return Log(name, "".join(f"{line}\n" for line in lines), source="journal")
