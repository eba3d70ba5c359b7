"""The journal of one systemd unit, of this boot, through journalctl."""

from gpudoctor.facts.raw import Absent, Log
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.verdicts import Unread, Why

JOURNALS = "journal/"
SUFFIX = ".log"
SECONDS = 3.0
LINES = 50

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
    argv = ("journalctl", "-u", unit, "-b", "--no-pager", "-n", str(LINES), "-o", "short-iso")
    output = run_command(argv, deadline.sooner(SECONDS))
    if isinstance(output, Absent):
        return Unread(Why.UNREADABLE, name, "there is no journalctl here")
    if isinstance(output, Unread):
        return output
    if any(words in output.stderr for words in _REFUSED):
        return Unread(Why.NO_PERMISSION, name, "permission denied", would_need="root or group systemd-journal")
    if output.exit != 0 or _NONE in output.stderr:
        return Unread(Why.UNREADABLE, name, output.stderr.strip().partition("\n")[0] or f"exit {output.exit}")
    # What journalctl says itself, such as "-- No entries --", begins with dashes.
    lines = [line for line in output.stdout.splitlines() if not line.startswith("-- ")]
    return Log(name, "".join(f"{line}\n" for line in lines), source="journal")
