"""The processes of the node, each with its control groups and namespaces: one look at all of them.

The answer `processes` holds each text of /proc/PID/cgroup once, which thousands of processes share. A recording without it, made by hand,
has the files of /proc themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.cgroup_paths import GroupKind, Groups, Identity, identify_all, parse_groups
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, Answer, Entry, Question, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

ENDED = ("Z", "X")
"""States of what only waits to be collected: it has no files, no memory and no namespaces left (proc_pid_stat(5))."""

INITIAL_PID, INITIAL_USER = 0xEFFFFFFC, 0xEFFFFFFD
"""PROC_PID_INIT_INO and PROC_USER_INIT_INO (include/linux/proc_ns.h)."""

_NAMESPACE = pattern(r"\w+:\[(\d{1,20})\]")
_STARTED = 19
"""The twenty-second word of /proc/PID/stat, counted from the state: clock ticks after boot (proc_pid_stat(5))."""
MOST_CLOSER = 4
"""As many processes of a container's group are looked at closer in a recording made by hand: its first is its own or its monitor."""


class Namespaces(Struct, frozen=True, array_like=True):
    """The mount, PID and user namespace of a process by inode number (namespaces(7))."""

    mount: int
    pid: int
    user: int


class Process(Struct, frozen=True, array_like=True):
    """A process; `cgroup` and `namespaces` number those of its node, -1 where they could not be read."""

    pid: int
    parent: int = 0
    started: int = 0
    comm: str = ""
    state: str = ""
    cgroup: int = -1
    namespaces: int = -1

    @property
    def ended(self) -> bool:
        """Whether it only waits to be collected."""
        return self.state in ENDED


class _Seen(Struct):
    """The `data` of answers/processes.json."""

    processes: tuple[Process, ...] = ()
    cgroups: tuple[str, ...] = ()
    namespaces: tuple[Namespaces, ...] = ()
    whole: bool = True
    hidden: int = 0


class Processes(Fact, frozen=True):
    """All processes that are not the kernel's own; `unlisted` says why there may be more, or some whose control group is not known.

    `identities` says of each distinct text of /proc/PID/cgroup what it stands for, `groups` what it holds.
    """

    processes: tuple[Process, ...]
    groups: tuple[Groups, ...]
    identities: tuple[Identity, ...]
    namespaces: tuple[Namespaces, ...]
    unlisted: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "Processes | Unread":
        """Ask once for all processes; of a recording without an answer the files below /proc."""
        answer = desk.raw.answer("processes", lambda: Question("processes"))
        seen = _from_answer(answer) if isinstance(answer, Answer) else answer
        if isinstance(answer, Unread) and answer.why is Why.NOT_RECORDED:
            seen = _from_files(desk.raw)
        if isinstance(seen, Unread):
            return seen
        known: dict[str, Identity] = {}
        groups = tuple(parse_groups(text) for text in seen.cgroups)
        return cls(
            processes=seen.processes,
            groups=groups,
            identities=tuple(identify_all(group, known) for group in groups),
            namespaces=seen.namespaces,
            unlisted=_unlisted(seen, desk.raw.uid),
            read_from={"processes": Evidence("processes (/proc/*/cgroup)", "lists the processes by control group")},
        )

    def of(self, process: Process) -> Namespaces | None:
        """A process's namespaces, None where they could not be read."""
        return self.namespaces[process.namespaces] if process.namespaces >= 0 else None

    @property
    def host(self) -> Namespaces | None:
        """Those of the first process: what differs from them was set apart.

        It may have capabilities that the reader lacks, and then hides them (ptrace(2), access mode checking). The kernel numbers the PID
        and user namespaces that it starts with itself; the mount namespace is then the one that most of their processes share.
        """
        first = next((process for process in self.processes if process.pid == 1), None)
        found = self.of(first) if first is not None else None
        if found is not None:
            return found
        seen = [space for process in self.processes if (space := self.of(process)) is not None]
        mounts = [space.mount for space in seen if (space.pid, space.user) == (INITIAL_PID, INITIAL_USER)]
        return Namespaces(max(set(mounts), key=mounts.count), INITIAL_PID, INITIAL_USER) if mounts else None


def _from_answer(answer: Answer) -> _Seen | Unread:
    try:
        seen = msgspec.convert(answer.data, _Seen)
    except msgspec.ValidationError as error:
        return Unread(Why.UNREADABLE, "answers/processes.json", str(error))
    last, spaces = len(seen.cgroups), len(seen.namespaces)
    highest = [max(number) for number in zip(*((one.cgroup, one.namespaces) for one in seen.processes), strict=True)]
    if highest and (highest[0] >= last or highest[1] >= spaces):
        return Unread(Why.UNREADABLE, "answers/processes.json", "a process has a group that is not listed")
    return seen


def _unlisted(seen: _Seen, uid: int | None) -> Unread | None:
    where = "processes (/proc/*/cgroup)"
    if seen.hidden:
        need = "root" if uid else ""
        said = f"{seen.hidden} processes do not show their control group"
        return Unread(Why.NO_PERMISSION if uid else Why.UNREADABLE, where, said, would_need=need)
    if uid and any(one.namespaces < 0 and one.pid != 1 and not one.ended for one in seen.processes):
        said = "a container without a control group of its own shows only in namespaces, which are not shown here"
        return Unread(Why.NO_PERMISSION, "processes (/proc/*/ns)", said, would_need="root")
    if not seen.whole:
        need = "root, and the PID namespace of the host"
        return Unread(Why.NO_PERMISSION, where, "only some of the node's processes can be seen here", would_need=need)
    return None


# Recordings without an answer ---------------------------------------------------------------------------------------


def _from_files(raw: Raw) -> _Seen | Unread:
    """The control group of each process; of some also name, state and namespaces."""
    listing = raw.listing("/proc")
    if isinstance(listing, Unread):
        return listing
    pids = (
        []
        if isinstance(listing, Absent)
        else sorted(pid for name in listing.names if (pid := decimal(name)) is not None)
    )
    if not pids:
        return Unread(Why.NOT_RECORDED, "/proc", "no process was recorded")
    texts: dict[str, int] = {}
    members: dict[int, list[Process]] = {}
    hidden = 0
    for pid in pids:
        file = raw.read(f"/proc/{pid}/cgroup")
        if isinstance(file, TextFile):
            number = texts.setdefault(file.text, len(texts))
            members.setdefault(number, []).append(Process(pid, cgroup=number))
        else:
            hidden += isinstance(file, Unread)
    spaces: dict[Namespaces, int] = {}
    host = _namespaces(raw, 1) or Namespaces(0, 0, 0)
    known: dict[str, Identity] = {}
    seen: list[Process] = []
    for text, number in texts.items():
        contained = identify_all(parse_groups(text), known).kind is GroupKind.CONTAINER
        seen += _contained(raw, members[number], spaces, host) if contained else _closer(raw, members[number], spaces)
    complete = not isinstance(listing, Absent) and listing.complete
    return _Seen(tuple(sorted(seen, key=_by_pid)), tuple(texts), tuple(spaces), whole=complete, hidden=hidden)


def _by_pid(process: Process) -> int:
    return process.pid


def _closer(raw: Raw, members: Iterable[Process], spaces: dict[Namespaces, int]) -> Iterator[Process]:
    """Processes with what is recorded of each."""
    for process in members:
        found = _namespaces(raw, process.pid)
        number = -1 if found is None else spaces.setdefault(found, len(spaces))
        yield replace(_with_stat(raw, process), namespaces=number)


def _contained(
    raw: Raw, members: Sequence[Process], spaces: dict[Namespaces, int], host: Namespaces
) -> Iterator[Process]:
    """The processes of a container, up to the first that is not its monitor with what is recorded of each."""
    for at, process in enumerate(_closer(raw, members[:MOST_CLOSER], spaces), start=1):
        yield process
        if process.namespaces >= 0 and process.namespaces != spaces.get(host, -1) and not process.ended:
            yield from members[at:]
            return
    yield from members[MOST_CLOSER:]


def _with_stat(raw: Raw, process: Process) -> Process:
    """Name, state, parent and start from stat; the name stands in parentheses and may hold any character (proc_pid_stat(5))."""
    file = raw.read(f"/proc/{process.pid}/stat")
    if not isinstance(file, TextFile):
        return _with_status(raw, process)
    name, _, rest = file.text.partition("(")[2].rpartition(")")
    words = rest.split()
    if len(words) <= _STARTED:
        return process
    parent, started = decimal(words[1]) or 0, decimal(words[_STARTED]) or 0
    return replace(process, comm=name, state=words[0], parent=parent, started=started)


def _with_status(raw: Raw, process: Process) -> Process:
    """Name, state and parent from status, `Name:\\tvalue` (proc_pid_status(5))."""
    file = raw.read(f"/proc/{process.pid}/status")
    if not isinstance(file, TextFile):
        return process
    fields: Mapping[str, str] = {
        name: value.strip() for name, _, value in (line.partition(":") for line in file.text.splitlines()[:16])
    }
    parent = decimal(fields.get("PPid", "")) or 0
    return replace(process, comm=fields.get("Name", ""), state=fields.get("State", "")[:1], parent=parent)


def _namespaces(raw: Raw, pid: int) -> Namespaces | None:
    """The targets of three links, `mnt:[4026531841]`."""
    numbers = []
    for name in ("mnt", "pid", "user"):
        entry = raw.entry(f"/proc/{pid}/ns/{name}")
        found = _NAMESPACE.fullmatch(entry.to or "") if isinstance(entry, Entry) else None
        # A recording may hold only the namespaces that matter to its story: 0 stands for one like everybody's.
        numbers.append(int(found[1]) if found is not None else 0)
        if found is None and name == "mnt":
            return None
    return Namespaces(*numbers)
