"""A recorded node: the raw interface over paths, commands, logs and answers that were written down earlier."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.raw import (
    UNRECORDED,
    Absent,
    Answer,
    CommandOutput,
    Contents,
    Entry,
    EntryType,
    Gate,
    Listing,
    Log,
    SourceKind,
    TextFile,
    kept,
    root_of,
    trouble,
)
from gpudoctor.verdicts import Unread, Why

MAX_LINKS = 40
"""The kernel's own limit (MAXSYMLINKS)."""
MAX_PATH = 4096
"""The kernel's own limit (PATH_MAX)."""

_ABSENT = ("ENOENT", "ENOTDIR")


class Record(Struct, frozen=True):
    """What is recorded of one path: its entry, or the error that looking gave; the text if it was kept.

    `listed` says of a directory that its own names are all recorded, whatever is of what lies below them.
    """

    entry: Entry | None = None
    error: str | None = None
    text: str | None = None
    truncated: bool = False
    listed: bool = False
    origin: str = ""


class Tree:
    """Recorded paths. Subclasses may find more than was put in, for example files on disk."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.children: dict[str, set[str]] = {}

    def put(self, path: str, record: Record) -> None:
        """Record a path (absolute, without `.`, `..` or a slash at its end)."""
        self.records[path] = record
        if record.error in _ABSENT:
            return
        while path != "/":
            parent, _, name = path.rpartition("/")
            known = self.children.setdefault(parent or "/", set())
            if name in known:
                return
            known.add(name)
            path = parent or "/"

    def lookup(self, path: str) -> Record | None:
        """What is recorded of a path, links not followed."""
        record = self.records.get(path)
        if record is None and (path in self.children or path == "/"):
            return Record(entry=Entry(path, EntryType.DIR))
        return record

    def names(self, path: str) -> set[str]:
        """The names recorded in a directory."""
        return self.children.get(path, set())


class RecordedNode:
    """The raw interface over a recording. A path that is not there is absent only where the recording is complete."""

    kind = SourceKind.SNAPSHOT

    def __init__(self, tree: Tree, *, complete: Sequence[str] = (), uid: int | None = None) -> None:
        self.tree = tree
        self.uid = uid
        self.commands: dict[tuple[str, ...], CommandOutput | Absent | Unread] = {}
        self.logs: dict[str, Log | Unread] = {}
        self.answers: dict[str, Answer | Unread] = {}
        self.listing_origins: Mapping[str, str] = {}
        # What whoever opened it should know: that it was cut, or that one of several was taken.
        self.notes: tuple[str, ...] = ()
        self._complete = tuple(prefix.rstrip("/") for prefix in complete)
        self._resolved: dict[str, str | Absent | Unread] = {"": ""}

    def read(self, path: str) -> TextFile | Absent | Unread:
        """The recorded text of a file."""
        record = self._find(path, follow=True)
        if not isinstance(record, Record):
            return record
        if record.text is not None:
            return TextFile(path, record.text, record.truncated, record.origin)
        assert record.entry is not None
        if record.entry.type is EntryType.FILE:
            return Unread(Why.NOT_RECORDED, path, "exists, but its content was not kept")
        return Unread(Why.UNREADABLE, path, f"is a {record.entry.type.words}, not a file")

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """The recorded texts: nothing can block any more."""
        files = {path: self.read(path) for path in paths}
        if not keep:
            return files
        return {
            path: replace(file, text=kept(file.text, keep)) if isinstance(file, TextFile) else file
            for path, file in files.items()
        }

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        """The recorded entries."""
        return {folder: self._contents(folder, begin, names) for folder in folders}

    def _contents(self, folder: str, begin: str, names: tuple[str, ...]) -> Contents | Absent | Unread:
        listing = self.listing(folder, begin=begin)
        if not isinstance(listing, Listing):
            return listing
        seen = {name: self.entry(f"{folder}/{name}") for name in listing.names}
        entries = {name: found for name, found in seen.items() if isinstance(found, Entry)}
        asked = names if entries else names[:1]
        missing = frozenset(name for name in asked if isinstance(self.entry(f"{folder}/{name}"), Absent))
        whole = listing.complete and not any(isinstance(found, Unread) for found in seen.values())
        return Contents(folder, entries, missing, whole)

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """What was at a path."""
        record = self._find(path, follow=follow)
        if not isinstance(record, Record):
            return record
        assert record.entry is not None
        return replace(record.entry, path=path)

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """The recorded names of a directory."""
        record = self._find(path, follow=True)
        if not isinstance(record, Record):
            return record
        assert record.entry is not None
        if record.entry.type is not EntryType.DIR:
            return Unread(Why.UNREADABLE, path, f"is a {record.entry.type.words}, not a directory")
        place = record.entry.path
        listed = (name for name in self.tree.names(place) if name.startswith(begin))
        names = (name for name in listed if self._exists(f"{place.rstrip('/')}/{name}"))
        complete = record.listed or self.is_complete(place)
        return Listing(path, tuple(sorted(names)), complete, self.listing_origins.get(path, ""))

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """A recorded command, by its exact argv."""
        missing = Unread(Why.NOT_RECORDED, " ".join(argv), "the command was not run when this was recorded")
        return self.commands.get(argv, missing)

    def log(self, name: str) -> Log | Unread:
        """A recorded log."""
        return self.logs.get(name) or Unread(Why.NOT_RECORDED, name, "the log was not recorded")

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """A recorded answer. The gate decided when it was recorded."""
        return self.answers.get(name) or Unread(Why.NOT_RECORDED, name, f"{name} was not asked when this was recorded")

    def unrecorded(self, path: str) -> Absent | Unread:
        """What to say of a path that the recording does not speak of."""
        return Unread(Why.NOT_RECORDED, path, UNRECORDED)

    def is_complete(self, path: str) -> bool:
        """Whether everything at and below a path was recorded."""
        return any(path == prefix or path.startswith(prefix + "/") for prefix in self._complete)

    def _is_missing(self, place: str) -> bool:
        """Whether all names are recorded of the nearest directory above a path that is not: then none of them leads there."""
        above = place.rpartition("/")[0]
        while above and self.tree.lookup(above) is None:
            above = above.rpartition("/")[0]
        record = self.tree.lookup(above or "/")
        return record is not None and record.listed

    def _exists(self, path: str) -> bool:
        record = self.tree.lookup(path)
        return record is not None and record.error not in _ABSENT

    def _find(self, path: str, *, follow: bool) -> Record | Absent | Unread:
        place = self._resolve(path.rstrip("/"), follow=follow)
        if isinstance(place, Absent):
            return replace(place, path=path)
        if isinstance(place, Unread):
            return replace(place, where=path)
        record = self.tree.lookup(place or "/")
        if record is None:
            return Absent(path) if self.is_complete(place) or self._is_missing(place) else self.unrecorded(path)
        return _error(record, path) or record

    def _resolve(self, path: str, *, follow: bool, depth: int = 0) -> str | Absent | Unread:
        """The canonical path, or the error met on the way; parents are resolved once."""
        if depth > MAX_LINKS:
            return trouble(path, "ELOOP")
        if len(path) > MAX_PATH:
            return trouble(path, "ENAMETOOLONG")
        if not path:
            return ""
        parent, _, name = path.rpartition("/")
        if parent not in self._resolved:
            self._resolved[parent] = self._resolve(parent, follow=True, depth=depth)
        above = self._resolved[parent]
        if not isinstance(above, str):
            return Absent(path) if isinstance(above, Absent) else replace(above, where=path)
        if name in ("", "."):
            return above
        if name == "..":
            return above if above and above == root_of(above) else above.rpartition("/")[0]
        return self._follow(path, f"{above}/{name}", follow, depth)

    def _follow(self, path: str, place: str, follow: bool, depth: int) -> str | Absent | Unread:
        record = self.tree.lookup(place)
        if not follow or record is None or record.entry is None or record.entry.type is not EntryType.LINK:
            error = _error(record, path) if record is not None and follow else None
            return error or place
        if place == root_of(place):
            return place
        to = record.entry.to or ""
        target = f"{root_of(place)}{to}" if to.startswith("/") else f"{place.rpartition('/')[0]}/{to}"
        return self._resolve(target.rstrip("/"), follow=True, depth=depth + 1)


def _error(record: Record, path: str) -> Absent | Unread | None:
    return None if record.error is None else trouble(path, record.error, record.origin)
