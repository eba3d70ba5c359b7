"""Slurm on this node: its slurmd, the files that hold for it, what it logged, and what its controller says of the node.

slurmd(8), slurm.conf(5), scontrol(1). Nothing is looked for where no slurmd runs or is started at boot. `slurmd -C` may load NVML in a
process of its own (SchedMD/slurm src/plugins/gpu/nvml), which as root would make missing nodes: it is asked only where NVML has answered.
"""

from typing import TYPE_CHECKING

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.fabric_manager import WANTS, is_running
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Raw
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

if TYPE_CHECKING:
    from gpudoctor.facts.slurm_setup import Setup

UNIT = "slurmd.service"
COMM = "slurmd"
SECONDS = 3.0
"""As long scontrol and slurmd are waited for: a controller that does not answer is asked for minutes otherwise (MessageTimeout)."""
NOT_HERE = "no slurmd runs on this node, and none is started at boot"
NOT_SET_UP = "slurmd is installed, but not set up: no slurm.conf, and no --conf-server"
_CONFS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_OPTIONS = ("/etc/default/slurmd", "/etc/sysconfig/slurmd")
"""Where the packages' units take options for slurmd from (SchedMD/slurm etc/slurmd.service.in, Debian's slurmd.service)."""


class Slurm(Fact, frozen=True):
    """`setup` is None where there is no slurmd; `absent` says why then."""

    setup: "Setup | None"
    absent: str = ""

    @property
    def subject(self) -> Subject:
        """The daemon, running or not."""
        return SLURMD

    @property
    def seen(self) -> Cited:
        """What shows that it runs, or that it does not and should."""
        known = {name: said for name, said in self.read_from.items() if name != "enabled"}
        runs = self.setup is not None and self.setup.running is True
        return tuple(known.values()) if runs and known else tuple(self.read_from.values())

    @classmethod
    def gather(cls, desk: Desk) -> "Slurm | Unread":
        """One look for a unit where no process of that name is known."""
        processes = desk.get(Processes)
        process = _process(processes) if isinstance(processes, Processes) else None
        if isinstance(process, str):
            return cls(setup=None, absent=process)
        link = desk.raw.entry(f"{WANTS}/{UNIT}")
        if process is None and not isinstance(link, Entry):
            if isinstance(link, Unread) and not isinstance(processes, Processes):
                return link
            return cls(setup=None, absent=NOT_HERE)
        if process is None and not _is_set_up(desk.raw):
            # Packages enable the unit, and it is not started without a configuration (ConditionPathExists= of Debian's).
            return cls(setup=None, absent=NOT_SET_UP)
        enabled = isinstance(link, Entry)
        seen = {"enabled": Evidence(link.where, f"-> {link.to}")} if isinstance(link, Entry) else {}
        from gpudoctor.facts.slurm_setup import look_at_daemon, read_setup

        daemon = look_at_daemon(desk.raw, process) if process is not None else None
        running, group = (True, None) if daemon is not None else _runs(desk.raw, processes)
        if daemon is not None:
            seen = daemon.read_from | seen
        elif group is not None:
            seen["running"] = group
        return cls(setup=read_setup(desk, daemon, running=running, enabled=enabled), read_from=seen)


def _is_set_up(raw: Raw) -> bool:
    """Whether there is a configuration, or may be: only what is known to be absent is none."""
    if not all(isinstance(raw.entry(path), Absent) for path in _CONFS):
        return True
    options = [raw.read(path) for path in _OPTIONS]
    return any(
        not isinstance(file, Absent) and "conf-server" in getattr(file, "text", "conf-server") for file in options
    )


SLURMD = Subject(SubjectKind.SERVICE, COMM)
"""The subject of what is said of Slurm on the node."""


def _process(processes: Processes) -> Process | str | None:
    """The node's own; one in a container has its files there (SlinkyProject/slurm-operator)."""
    contained = False
    for one in processes.processes:
        if one.comm == COMM and not one.ended:
            if one.cgroup < 0 or processes.identities[one.cgroup].kind is not GroupKind.CONTAINER:
                return one
            contained = True
    return "slurmd runs in a container here, and its files are in there" if contained else None


def _runs(raw: Raw, processes: Processes | Unread) -> tuple[Reading[bool], Evidence | None]:
    """Where the processes are seen, and slurmd is not among them, it does not run."""
    if isinstance(processes, Processes) and processes.unlisted is None and any(one.comm for one in processes.processes):
        return False, Evidence("processes (/proc/*/stat)", "no slurmd runs")
    return is_running(raw, UNIT)


def command_said(raw: Raw, argv: tuple[str, ...], conf: str = "") -> CommandOutput | Unread:
    """What a program of Slurm's printed, `conf` being another slurm.conf than its own; one that failed says why in its first line."""
    output = raw.command(("env", f"SLURM_CONF={conf}", *argv) if conf else argv, seconds=SECONDS)
    where = " ".join(argv)
    if isinstance(output, Absent):
        return Unread(Why.UNREADABLE, where, "there is no such command here")
    if isinstance(output, CommandOutput) and output.exit != 0:
        said = (output.stderr.strip() or output.stdout.strip()).partition("\n")[0]
        return Unread(Why.NOT_ANSWERED, where, said or f"exit {output.exit}")
    return output
