"""Raw answers, and the interface that every source gives them through."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gpudoctor.verdicts import Evidence, Unread, Why


class Found:
    """Something that was looked for by its path."""

    __slots__ = ()
    path: str
    origin: str

    @property
    def where(self) -> str:
        """What was really read: the path, or the command whose output stands for it in a bug report."""
        return self.origin or self.path


class Absent(Found, Struct, frozen=True):
    """It was looked for and is not there."""

    path: str
    origin: str = ""

    @property
    def detail(self) -> str:
        """Why there is nothing to read, as `Unread` has it."""
        return "does not exist"

    @property
    def evidence(self) -> Evidence:
        """The absence as evidence."""
        return Evidence(self.where, self.detail)


ERROR_TEXTS = {
    "EACCES": "permission denied",
    "EPERM": "operation not permitted",
    "ETIMEDOUT": "reading it did not return before the deadline",
    "ELOOP": "too many levels of symbolic links",
    "EIO": "input/output error",
}
_ERROR_NAMES = {text: name for name, text in ERROR_TEXTS.items()}
UNRECORDED = "was not recorded"
_ABSENT = ("ENOENT", "ENOTDIR")
_WHY = {"EACCES": Why.NO_PERMISSION, "EPERM": Why.NO_PERMISSION, "ETIMEDOUT": Why.TIMED_OUT}


def trouble(path: str, error_name: str, origin: str = "") -> Absent | Unread:
    """What an errno by its name means for whoever looked at a path: the same words live and in a replay."""
    if error_name in _ABSENT:
        return Absent(path, origin)
    why = _WHY.get(error_name, Why.UNREADABLE)
    return Unread(
        why, path, ERROR_TEXTS.get(error_name, error_name), would_need="root" if why is Why.NO_PERMISSION else ""
    )


def error_name(found: Absent | Unread) -> str:
    """The errno that `trouble` was made from."""
    return "ENOENT" if isinstance(found, Absent) else _ERROR_NAMES.get(found.detail, found.detail)


class TextFile(Found, Struct, frozen=True):
    """A file's content; bytes that are not UTF-8 are kept as backslash escapes."""

    path: str
    text: str
    truncated: bool = False
    origin: str = ""


def kept(text: str, keep: str) -> str:
    """Of variables between NULs (proc_pid_environ(5)), or else of lines, those in which a regular expression is found."""
    import re

    end = "\0" if "\0" in text else "\n"
    form = re.compile(keep)
    return "".join(part + end for part in text.split(end) if part and form.search(part))


_NAMESPACE_ROOT = ("root", "cwd")


def root_of(path: str) -> str:
    """The directory in which links of a path resolve: below /proc/PID/root and cwd that of the process, else "" (proc_pid_root(5))."""
    if not path.startswith("/proc/"):
        return ""
    parts = path.split("/")
    for place in (3, 5):
        if len(parts) > place and parts[place] in _NAMESPACE_ROOT and parts[place - 1].isdecimal():
            return "/".join(parts[: place + 1])
    return ""


MOST_DIGITS = 20
"""No number that the kernel prints has more: 64 bits."""


def decimal(text: str) -> int | None:
    """A decimal number as the kernel prints one, None for anything else."""
    return int(text) if len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal() else None


class EntryType(str, Enum):
    """What kind of thing a path is."""

    FILE = "file"
    DIR = "dir"
    LINK = "link"
    CHAR = "char"
    BLOCK = "block"
    FIFO = "fifo"
    SOCKET = "socket"

    @property
    def words(self) -> str:
        """What people call it."""
        return _WORDS.get(self.value, self.value)


_WORDS = {
    "file": "regular file",
    "dir": "directory",
    "link": "symbolic link",
    "char": "character device",
    "block": "block device",
}


class Entry(Found, Struct, frozen=True, omit_defaults=True):
    """What `lstat` (or `stat`, when links were followed) says of a path. `mode` holds the permission bits only."""

    path: str
    type: EntryType
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    mtime: float | None = None
    major: int | None = None
    minor: int | None = None
    to: str | None = None
    origin: str = ""


class Listing(Found, Struct, frozen=True):
    """The names in a directory, sorted; not `complete` means "at least these"."""

    path: str
    names: tuple[str, ...]
    complete: bool
    origin: str = ""


class Contents(Found, Struct, frozen=True):
    """What lies in a directory: entries by name, and which names were looked for in vain; there may be more unless `complete`."""

    path: str
    entries: Mapping[str, Entry]
    missing: frozenset[str] = frozenset()
    complete: bool = False
    origin: str = ""

    def at(self, name: str) -> Entry | Absent | Unread:
        """What is at a name."""
        path = f"{self.path}/{name}"
        if name in self.entries:
            return self.entries[name]
        return Absent(path) if self.complete or name in self.missing else Unread(Why.NOT_RECORDED, path, UNRECORDED)


class CommandOutput(Struct, frozen=True):
    """What a command printed under LC_ALL=C."""

    argv: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str = ""
    seconds: float = 0.0


class Log(Struct, frozen=True):
    """A log's text; `source` is how it was read (kmsg, journal, file, dmesg), `from_boot` says that it reaches back to the boot.

    `timezone` is that of its local times, "" where nobody told.
    """

    name: str
    text: str
    source: str = ""
    from_boot: bool = False
    timezone: str = ""

    @property
    def where(self) -> str:
        """How a citation calls it: for a unit's journal the command that shows it, live and in a replay alike."""
        if self.name.startswith(JOURNALS):
            unit = self.name.removeprefix(JOURNALS).removesuffix(".log").removesuffix(".service")
            return f"journalctl -b -u {unit}"
        if self.name == "kernel.previous.log" and self.source == "journal":
            return "kernel log (journalctl -k -b -1)"
        words = f"kernel log ({self.source})" if self.source.startswith("/") else "kernel log"
        words = _LOG_WORDS.get(self.source, words)
        return {"kernel.log": words, "kernel.previous.log": f"{words}, the boot before"}.get(self.name, self.name)


JOURNALS = "journal/"
"""How the name of a unit's journal begins: `journal/UNIT.log`."""

_LOG_WORDS = {
    "kmsg": "kernel log (/dev/kmsg)",
    "journal": "kernel log (journalctl -k -b)",
    "dmesg": "dmesg",
    "the journal, then kmsg": "kernel log (journalctl -k -b, then /dev/kmsg)",
}


class Answer(Struct, frozen=True):
    """What an API answered in a child process; `data` is kept even when the child did not finish."""

    data: dict[str, Any]
    via: str = "NVML"
    error: dict[str, Any] | None = None
    stopped_at: str | None = None
    worker: dict[str, Any] | None = None
    schema: int = 1


class SourceKind(str, Enum):
    """Where raw answers come from."""

    LIVE = "live"
    ROOT = "root"
    SNAPSHOT = "snapshot"
    BUG_REPORT = "bug-report"


class Question(Struct, frozen=True):
    """A question to an API: its name, and what the probe must know to ask it safely."""

    name: str
    arguments: dict[str, Any] = {}


Gate: TypeAlias = Callable[[], Question | Unread]
"""Decides whether an API may be asked. Only a live source calls it; a recording already holds the answer."""


@runtime_checkable
class Clocked(Protocol):
    """A source that knows when the clock began that counts from boot, in seconds since the epoch; None where nobody told."""

    booted: float | None


class Raw(Protocol):
    """The raw interface: the same questions to a live node, a snapshot or a bug report.

    Every method gives a value, `Absent` (looked, not there) or `Unread` (why not known); none raises for a sick node.
    """

    @property
    def kind(self) -> SourceKind:
        """Where the answers come from."""
        ...

    @property
    def uid(self) -> int | None:
        """The user that looked, None when that is not known."""
        ...

    def read(self, path: str) -> TextFile | Absent | Unread:
        """The text of a file, symbolic links followed."""
        ...

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """Files whose reading may never return, such as a dead device's registers, by path.

        With `keep`, only lines and variables in which that regular expression is found; of others nothing is held or recorded.
        """
        ...

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        """What lies in folders whose look-up may never return, such as /proc/PID/root/dev: nothing is opened, no link followed.

        Names that begin with some letters; of `names`, that one is missing is an answer too. Where there is none, only of the first.
        """
        ...

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """What is at a path. Never opens it."""
        ...

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """The names in a directory, of a large one those that begin with some letters; no others are recorded then."""
        ...

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """A command's output, `Absent` when there is no such command."""
        ...

    def log(self, name: str) -> Log | Unread:
        """A log by its snapshot name: `kernel.log`, `kernel.previous.log`, `journal/UNIT.log`."""
        ...

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """What an API answered, asked only behind its gate."""
        ...
