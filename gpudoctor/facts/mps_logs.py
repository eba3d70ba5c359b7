"""What MPS daemons and their servers wrote last: whether a server came up, died, or takes no more clients.

Lines begin with `[2026-11-30 10:00:00.123 Control  1410]`. Their words as reported: NVIDIA/k8s-device-plugin#685, #762 and #1614, and
kubernetes-sigs/dra-driver-nvidia-gpu#1153 (control.log); docs.nvidia.com/deploy/topics/topic_5_3_2.html (server.log). "User did not send
valid credentials" comes with every connection and means nothing. The states of a server are INITIALIZING, ACTIVE and FAULT
(get_server_status of nvidia-cuda-mps-control(1)); a fault is "Server is handling a fatal GPU error.", and its clients become INACTIVE: it
is over when another client is ACTIVE, or none is left (the guide, "Memory Protection and Error Containment").
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.mps import Mps
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

KEEP = (
    r"Starting control daemon|Starting new server|NEW SERVER|Server is not ready|already exists|exited with status|[Ff]atal|"
    r"Server has started|ailed to start|FAULT|[Mm]ax(?:imum)?\b.*\bclients|is only supported on|memory limit for device|"
    r"Status of client .* is ACTIVE|active client contexts is 0"
)
"""What is read of the logs: of clients only that they asked and became active."""
_LINE = pattern(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}) [\w ]{0,64}?(\d{1,10})\] (.*)")
_ANEW = pattern(r"Starting control daemon using socket")
_UP = pattern(r"NEW SERVER \d+: Ready|Server has started")
_ENDED = pattern(r"Server \d+ exited with status (\d+)")
_STARTS = pattern(r"Starting new server (\d{1,10}) for user (\d{1,10})")
_ASKED = pattern(r"NEW CLIENT (\d{1,10}) from user (\d{1,10}): Server (is not ready|already exists)")
_OVER = pattern(r"Status of client .* is ACTIVE|active client contexts is 0\b")
_DIES = pattern(r"Server encountered a fatal exception|[Ff]ailed to start|is only supported on")
_FAULT = pattern(r"[Ff]atal|\bFAULT\b")
_FULL = pattern(r"[Mm]ax(?:imum)?\b.*\bclients")
_LIMIT = pattern(r"pinned memory limit for device (\d+) set to (0x[0-9a-f]+|\d+)")
NAMES = ("control.log", "server.log")
MOST_BYTES = 1 << 24
"""As much is read of a file of which only some lines are kept (probes/file_reader.py)."""
MOST_DEATHS = 2
"""So many servers in a row that end before they are ready: it is no accident."""


class Asked(Struct, frozen=True):
    """A client that asked for a server: its PID, 0 in another PID namespace, and its user."""

    pid: int
    uid: int
    evidence: Evidence


class MpsLog(Struct):
    """What one daemon's logs say at their end; lines as evidence, None where there was none since a server was last ready.

    `deaths` are servers in a row that ended with an error, `waiting` is a client for which no server has come. `unread` says why the logs
    were not seen, `where` what was; `limited` is the default limit of memory that the last server began with. `asked` is the client that
    came last, `user` that for whom the last server was started.
    """

    where: str = ""
    deaths: int = 0
    died: Evidence | None = None
    reason: Evidence | None = None
    waiting: Asked | None = None
    asked: Asked | None = None
    user: int | None = None
    fault: Evidence | None = None
    full: Evidence | None = None
    last: Evidence | None = None
    limited: Evidence | None = None
    unread: Unread | None = None


class MpsLogs(Fact, frozen=True):
    """The logs by PID of the daemon."""

    by_daemon: dict[int, MpsLog]

    @classmethod
    def gather(cls, desk: Desk) -> "MpsLogs | Unread":
        """Two files for each daemon, only lines that matter; nothing without a daemon."""
        mps = desk.get(Mps)
        if isinstance(mps, Unread):
            return mps
        folders = {one.pid: one.inside(one.log_directory) for one in mps.daemons if isinstance(one.log_directory, str)}
        paths = {pid: tuple(f"{folder}/{name}" for name in NAMES) for pid, folder in folders.items()}
        files = (
            desk.raw.read_blocking(tuple(path for two in paths.values() for path in two), keep=KEEP) if paths else {}
        )
        logs: dict[int, MpsLog] = {}
        for daemon in mps.daemons:
            if isinstance(daemon.log_directory, Unread):
                logs[daemon.pid] = MpsLog(unread=daemon.log_directory)
                continue
            found = parse_logs([files[path] for path in paths[daemon.pid]])
            _forget_the_dead(found, desk, mps)
            large = _too_large(desk.raw, paths[daemon.pid]) if found.last is not None else None
            logs[daemon.pid] = MpsLog(unread=large) if large is not None else found
        return cls(by_daemon=logs)


def _forget_the_dead(log: MpsLog, desk: Desk, mps: Mps) -> None:
    """A client that ended while it waited waits no longer; no log tells of that. Those of another PID namespace are called 0."""
    processes = desk.get(Processes)
    if log.waiting is None or log.waiting.pid == 0 or isinstance(processes, Unread):
        return
    if not any(one.pid == log.waiting.pid and not one.ended for one in processes.processes):
        log.waiting = None
        log.unread = log.unread or mps.unlisted


def _too_large(raw: Raw, paths: Iterable[str]) -> Unread | None:
    """Why the end of a log was not read: of a file that may block only the beginning is, and what that says may be long over."""
    for path in paths:
        entry = raw.entry(path)
        if isinstance(entry, Entry) and (entry.size or 0) >= MOST_BYTES:
            return Unread(Why.UNREADABLE, path, "is so large that its end is not read")
    return None


def parse_logs(files: Iterable[TextFile | Absent | Unread]) -> MpsLog:
    """Both logs in the order of time."""
    found = list(files)
    texts = [file for file in found if isinstance(file, TextFile)]
    if not texts:
        unread = next((file for file in found if isinstance(file, Unread)), None)
        gone = next((file for file in found if isinstance(file, Absent)), None)
        missing = Unread(Why.NOT_ANSWERED, gone.where if gone is not None else "the logs of MPS", "does not exist")
        return MpsLog(unread=unread or missing)
    hidden = (file for file in found if isinstance(file, Unread) and file.why is not Why.NOT_RECORDED)
    log = MpsLog(where=texts[0].where, unread=next(hidden, None))
    for line in sorted(_lines(texts), key=_time):
        _take(log, line)
    return log


def _lines(files: Iterable[TextFile]) -> Iterator[Evidence]:
    for file in files:
        for line in file.text.splitlines():
            if (found := _LINE.match(line)) is not None:
                yield Evidence(file.where, found[3].strip()[:300], at=found[1])


def _time(line: Evidence) -> str:
    return line.at or ""


def _take(log: MpsLog, line: Evidence) -> None:
    """One line more: what a server that is ready, or a new daemon, has put behind it counts no longer."""
    said = line.shows
    log.last = line
    if (asked := _ASKED.search(said)) is not None:
        log.asked = Asked(int(asked[1]), int(asked[2]), line)
        log.waiting = log.asked if asked[3] == "is not ready" else None
    elif _ANEW.search(said) or _UP.search(said):
        log.deaths = 0
        log.died = log.reason = log.waiting = log.fault = log.full = None
    elif (starts := _STARTS.search(said)) is not None:
        log.user = int(starts[2])
    elif (ended := _ENDED.search(said)) is not None:
        failed = ended[1] != "0"
        log.deaths += failed
        log.died = line if failed else log.died
    elif _OVER.search(said):
        log.fault = None
    elif _DIES.search(said):
        # What the server itself says tells more than what its daemon says of it.
        log.reason = line if log.reason is None or "fatal exception" not in said else log.reason
    elif _FULL.search(said):
        log.full = line
    elif _FAULT.search(said):
        log.fault = line
    elif _LIMIT.search(said):
        log.limited = line
