"""The daemons of container engines and the kubelet as they run: how they were called, by whom, and since when.

A file says what a daemon would read if it started now; these say which file it read, and whether it could have read it as it is.
"""

from collections.abc import Iterable, Iterator
from enum import Enum

from gpudoctor.facts.boot import booted_at, in_words
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

TICKS_PER_SECOND = 100
"""USER_HZ, in which /proc tells times whatever the kernel's own clock (include/asm-generic/param.h; time(7))."""


class Program(str, Enum):
    """What a daemon is, by its name as the kernel keeps it (proc_pid_comm(5)).

    k3s and RKE2 run the kubelet inside of themselves and containerd beside it (k3s pkg/daemons/executor); so does MicroK8s' kubelite.
    """

    DOCKERD = "dockerd"
    CONTAINERD = "containerd"
    CRIO = "crio"
    KUBELET = "kubelet"
    K3S_SERVER = "k3s-server"
    K3S_AGENT = "k3s-agent"
    RKE2 = "rke2"
    KUBELITE = "kubelite"


_PROGRAMS = {program.value: program for program in Program}
WITH_KUBELET = (Program.KUBELET, Program.K3S_SERVER, Program.K3S_AGENT, Program.RKE2, Program.KUBELITE)
"""Those in which a kubelet runs."""


class Daemon(Citable, frozen=True):
    """One running daemon of the node itself, not one inside a container.

    `arguments` are the words behind its name; `started_at` is in seconds since the epoch; `uid` is its owner. `own_namespace` is
    whether it has a user namespace of its own, as rootless engines have, None where that is not shown. `program_path` is the file it runs.
    """

    program: Program
    pid: int
    arguments: tuple[str, ...] | Unread
    started_at: float | None
    uid: int | None
    own_namespace: bool | None
    program_path: str | None
    unit: str

    def option(self, *names: str) -> str | None:
        """The value of an option given as `--name value`, `--name=value` or `-n value`, the last of several; None where it is not given."""
        values = self.options(*names)
        return values[-1] if values else None

    def options(self, *names: str) -> tuple[str, ...]:
        """All values of an option that may be repeated."""
        return () if isinstance(self.arguments, Unread) else tuple(_values(self.arguments, names))

    def has(self, *names: str) -> bool:
        """Whether a flag is given, with or without a value."""
        words = () if isinstance(self.arguments, Unread) else self.arguments
        return any(word.partition("=")[0] in _spelled(names) for word in words)

    def older_than(self, entry: Entry) -> bool | None:
        """Whether it runs since before a file was changed last; None where either time is not known.

        The start is known to a hundredth, the boot that it counts from to a second: within two seconds nothing is said.
        """
        if self.started_at is None or entry.mtime is None:
            return None
        return self.started_at + 2 < entry.mtime


class Daemons(Fact, frozen=True):
    """All of them; `unlisted` says why there may be more."""

    daemons: tuple[Daemon, ...]
    unlisted: Unread | None = None

    def of(self, *programs: Program) -> tuple[Daemon, ...]:
        """The daemons that are one of these programs, in the order of their process ids."""
        return tuple(daemon for daemon in self.daemons if daemon.program in programs)

    @classmethod
    def gather(cls, desk: Desk) -> "Daemons | Unread":
        """Among the processes by name; how each was called is asked of all in one child."""
        processes = desk.get(Processes)
        if isinstance(processes, Unread):
            return processes
        found = [process for process in processes.processes if _is_daemon(process, processes)]
        files = desk.raw.read_blocking(tuple(f"/proc/{process.pid}/cmdline" for process in found)) if found else {}
        booted = booted_at(desk.raw) if found else None
        return cls(
            daemons=tuple(
                _daemon(desk.raw, process, processes, files[f"/proc/{process.pid}/cmdline"], booted)
                for process in found
            ),
            unlisted=processes.unlisted,
            read_from=processes.read_from,
        )


def _is_daemon(process: Process, processes: Processes) -> bool:
    if process.comm not in _PROGRAMS or process.ended:
        return False
    return process.cgroup < 0 or processes.identities[process.cgroup].kind is not GroupKind.CONTAINER


def _daemon(
    raw: Raw, process: Process, processes: Processes, file: TextFile | Absent | Unread, booted: int | None
) -> Daemon:
    path = f"/proc/{process.pid}/cmdline"
    words: tuple[str, ...] | Unread
    if isinstance(file, TextFile):
        words = tuple(file.text.removesuffix("\0").split("\0"))
        shows = " ".join(words)
    else:
        words = Unread(Why.NOT_RECORDED, path, "the process is gone") if isinstance(file, Absent) else file
        shows = words.detail
    spaces, host = processes.of(process), processes.host
    owner, link = raw.entry(f"/proc/{process.pid}"), raw.entry(f"/proc/{process.pid}/exe")
    started = booted + process.started / TICKS_PER_SECOND if booted is not None and process.started else None
    since = "a time that is not known" if started is None else in_words(started)
    return Daemon(
        program=_PROGRAMS[process.comm],
        pid=process.pid,
        arguments=words if isinstance(words, Unread) else words[1:],
        started_at=started,
        uid=owner.uid if isinstance(owner, Entry) else None,
        own_namespace=None if spaces is None or host is None else spaces.user != host.user,
        program_path=(link.to or "").removesuffix(" (deleted)") or None if isinstance(link, Entry) else None,
        unit=processes.identities[process.cgroup].unit if process.cgroup >= 0 else "",
        read_from={
            "command": Evidence(path, shows[:300]),
            "started": Evidence("processes (/proc/*/stat)", f"{process.comm} ({process.pid}) runs since {since}"),
        },
    )


def changed(entry: Entry) -> Evidence:
    """When a file was changed last, as evidence."""
    return Evidence(entry.where, f"changed {in_words(entry.mtime)}" if entry.mtime is not None else "exists")


def _spelled(names: Iterable[str]) -> tuple[str, ...]:
    """As options: two dashes before a word, one before a letter; Go's own flag package takes one before a word too (pkg.go.dev/flag)."""
    return tuple(
        spelled for name in names for spelled in ((f"-{name}",) if len(name) == 1 else (f"--{name}", f"-{name}"))
    )


def _values(words: tuple[str, ...], names: Iterable[str]) -> Iterator[str]:
    spelled = _spelled(names)
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in spelled:
            if equals:
                yield value
            elif at + 1 < len(words):
                yield words[at + 1]
