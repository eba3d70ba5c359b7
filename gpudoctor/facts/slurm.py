"""Slurm on this node: its slurmd, the files that hold for it, what it logged, and what its controller says of the node.

slurmd(8), slurm.conf(5), scontrol(1). Nothing is looked for where no slurmd runs or is started at boot. `slurmd -C` may load NVML in a
process of its own (SchedMD/slurm src/plugins/gpu/nvml), which as root would make missing nodes: it is asked only where NVML has answered.
"""

from typing import TYPE_CHECKING

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.fabric_manager import WANTS, is_running
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Raw, SourceKind, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

if TYPE_CHECKING:
    from gpudoctor.facts.slurm_setup import Setup

UNIT = "slurmd.service"
COMM = "slurmd"
SECONDS = 3.0
"""As long scontrol and slurmd are waited for: a controller that does not answer is asked for minutes otherwise (MessageTimeout)."""
NOT_HERE = "no slurmd runs on this node, and none is started at boot"
NOT_SET_UP = "slurmd is installed, but not set up: no slurm.conf, and no --conf-server"
_CONTAINED = "slurmd runs in a container here, and its files are in there"
_CONFS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
"""Where packages look for it; builds of one's own have other places besides (slurm_files.FOLDERS)."""
_OPTIONS = ("/etc/default/slurmd", "/etc/sysconfig/slurmd")
"""Where the packages' units take options for slurmd from (SchedMD/slurm etc/slurmd.service.in, Debian's slurmd.service)."""
_USERS_OWN = "what is called slurmd here is a user's own program"
_REAL_USER = pattern(r"(?m)^Uid:[ \t]*(\d{1,10})\b")


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
        process, absent = _process(desk.raw, processes) if isinstance(processes, Processes) else (None, NOT_HERE)
        if absent == _CONTAINED:
            return cls(setup=None, absent=absent)
        link = desk.raw.entry(f"{WANTS}/{UNIT}")
        if process is None and not isinstance(link, Entry):
            if isinstance(link, Unread) and not isinstance(processes, Processes):
                return link
            return cls(setup=None, absent=absent)
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
    from gpudoctor.facts.slurm_files import FOLDERS

    if not all(isinstance(raw.entry(path), Absent) for path in _CONFS):
        return True
    if any(isinstance(raw.entry(f"{folder}/slurm.conf", follow=True), Entry) for folder in FOLDERS):
        return True
    options = [raw.read(path) for path in _OPTIONS]
    return any(
        not isinstance(file, Absent) and "conf-server" in getattr(file, "text", "conf-server") for file in options
    )


SLURMD = Subject(SubjectKind.SERVICE, COMM)
"""The subject of what is said of Slurm on the node."""


def _process(raw: Raw, processes: Processes) -> tuple[Process | None, str]:
    """The node's own, else why there is none; one in a container has its files there (SlinkyProject/slurm-operator)."""
    absent = NOT_HERE
    for one in processes.processes:
        if one.comm != COMM or one.ended:
            continue
        if one.cgroup >= 0 and processes.identities[one.cgroup].kind is GroupKind.CONTAINER:
            absent = _CONTAINED
        elif _is_the_nodes(raw, one.pid):
            return one, ""
        elif absent != _CONTAINED:
            absent = _USERS_OWN
    return None, absent


def _is_the_nodes(raw: Raw, pid: int) -> bool:
    """Whether it is the daemon, and no program that a user calls so: its files are read, and its slurm.conf, which names plugins, is given
    to Slurm's programs.

    slurmd runs as root (slurmd(8)). What a set-user-ID program has of root is no real user ID, or is another file (credentials(7)). A
    recording that was made by hand need not hold either.
    """
    status, link = raw.read(f"/proc/{pid}/status"), raw.entry(f"/proc/{pid}/exe")
    owner = _REAL_USER.search(status.text) if isinstance(status, TextFile) else None
    if isinstance(link, Entry) and link.to and not link.to.rpartition("/")[2].startswith(COMM):
        return False
    return not_recorded(raw, status) if owner is None else int(owner[1]) in (0, raw.uid)


def not_recorded(raw: Raw, found: object) -> bool:
    """Whether somebody who made a recording left something out, rather than that it was not shown: that is so when it is replayed too."""
    hidden = isinstance(found, Unread) and found.why is not Why.NOT_RECORDED
    return raw.kind not in (SourceKind.LIVE, SourceKind.ROOT) and not hidden


def _runs(raw: Raw, processes: Processes | Unread) -> tuple[Reading[bool], Evidence | None]:
    """Where the processes are seen, and slurmd is not among them, it does not run. Some other user's may be the node's (SlurmdUser)."""
    names = {one.comm for one in processes.processes if not one.ended} if isinstance(processes, Processes) else set()
    if isinstance(processes, Processes) and processes.unlisted is None and any(names) and COMM not in names:
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
