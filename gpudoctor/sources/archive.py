"""A recording in a tar archive: read once from front to back into memory, within limits, and never unpacked to disk."""

import errno
import io
from collections.abc import Iterable
from pathlib import Path
from tarfile import BLOCKSIZE, HeaderError, ReadError, TarError, TarFile, TarInfo
from typing import IO, BinaryIO, cast

from msgspec import Struct

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.probes.files import decoded
from gpudoctor.sources.collection import Collection, recognised
from gpudoctor.sources.compressed import CHUNK, Damaged, Unpacked, form_of
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import MAX_FILE_BYTES, FileTree
from gpudoctor.sources.recorded import MAX_PATH, Record

MAX_KEPT_BYTES = 512 * 1024 * 1024
MAX_KEPT_MEMBERS = 100_000
MAX_HEADER_BYTES = 1024 * 1024
"""What may stand between two members: a name, attributes, padding. tarfile reads it at once."""

# What tarfile raises for a header that is none: its own errors, and those of parsing numbers and extended headers.
_NO_ARCHIVE = (TarError, ValueError, LookupError, ArithmeticError, RecursionError)


class Member(Struct, frozen=True):
    """A member that is no folder; a file's content is None when it was not kept."""

    kind: EntryType
    content: bytes | None = None
    truncated: bool = False
    to: str | None = None
    major: int | None = None
    minor: int | None = None


class Archive:
    """The members of an archive (`Members`), below the one folder that everything lies in if there is one."""

    def __init__(self, place: str, members: dict[str, Member], folders: dict[str, set[str]]) -> None:
        self.place = place
        self.members = members
        self.folders = folders
        self._top = _top(members, folders)

    def kind(self, name: str) -> EntryType | None:
        """What a member is."""
        full = self._full(name)
        if full in self.folders:
            return EntryType.DIR
        member = self.members.get(full)
        return member.kind if member is not None else None

    def names(self, folder: str) -> Iterable[str]:
        """The names in a folder."""
        return self.folders.get(self._full(folder), ())

    def text(self, name: str) -> str | None:
        """A file's text."""
        return None if self.kind(name) is None else self._content(name).decode("utf-8", "backslashreplace")

    def open(self, name: str) -> BinaryIO:
        """A file's bytes."""
        return io.BytesIO(self._content(name))

    def tree(self, folder: str) -> "ArchiveTree":
        """The members below a folder."""
        return ArchiveTree(self, self._full(folder))

    def refuse_what_no_snapshot_holds(self) -> None:
        """A snapshot's devices stand in entries.jsonl; its links stay in it, and root/ is none. Raises SourceError."""
        if self.kind("root") is EntryType.LINK:
            raise SourceError(f"{self.place}: root is a link; a snapshot holds its files itself")
        for name, member in self.members.items():
            if member.kind is not EntryType.LINK and member.kind is not EntryType.FILE:
                raise SourceError(
                    f"{self.place}: {name} is a {member.kind.words}: a snapshot keeps it in entries.jsonl"
                )
            inside = name.startswith(self._full("root") + "/")
            if member.kind is EntryType.LINK and not inside and _leads_out(name, member.to or ""):
                raise SourceError(f"{self.place}: {name} is a link that leads out of the archive, to {member.to}")

    def _full(self, name: str) -> str:
        return f"{self._top}/{name}".strip("/")

    def _content(self, name: str) -> bytes:
        member = self.members.get(self._full(name))
        if member is None or member.content is None:
            raise OSError(errno.EINVAL, "is not a regular file", name)
        return member.content


class ArchiveTree(FileTree):
    """Recorded paths plus the members below a folder of an archive."""

    def __init__(self, archive: Archive, base: str) -> None:
        super().__init__()
        self._archive = archive
        self._base = base
        self._kept: dict[str, Record] = {}

    def kept(self, path: str, noted: Record | None) -> Record | None:
        """What the archive holds at a path."""
        found = self._kept.get(path)
        if found is not None:
            return found
        name = f"{self._base}{path}".strip("/")
        member = self._archive.members.get(name)
        if member is not None:
            found = _record(path, member, noted)
        elif name in self._archive.folders:
            found = Record(entry=(noted and noted.entry) or Entry(path, EntryType.DIR))
        else:
            return None
        self._kept[path] = found
        return found

    def names(self, path: str) -> set[str]:
        """Names in entries.jsonl and in the archive."""
        return super().names(path) | self._archive.folders.get(f"{self._base}{path}".strip("/"), set())


def read_archive(path: Path) -> Archive:
    """All of an archive that a recording can hold. Raises SourceError with one clear line, OSError when it cannot be read."""
    with path.open("rb") as file:
        reader = _Reader(str(path), file)
        reader.take_all()
    return Archive(str(path), reader.members, reader.folders)


class _Header(TarInfo):
    """A header that ends the archive only when it is the end mark, a block of zeros: tarfile takes any damaged one for the end."""

    @classmethod
    def frombuf(cls, buf: "bytes | bytearray", encoding: str, errors: str) -> "_Header":
        """Parse a block. Raises HeaderError for the end mark, ReadError for what is no header."""
        try:
            return super().frombuf(buf, encoding, errors)
        except HeaderError as error:
            if len(buf) == BLOCKSIZE and not any(buf):
                raise
            raise ReadError(f"{error}: it is cut off or damaged") from error


class _Meter:
    """The unpacked archive, read up to a limit for the whole and up to one for what comes next."""

    def __init__(self, place: str, content: Unpacked) -> None:
        self._place = place
        self._content = content
        self.limit = MAX_KEPT_BYTES
        self.total = 0
        self._allowed = MAX_HEADER_BYTES

    def allow(self, size: int) -> None:
        """Allow for a member's content and the header after it. Raises SourceError when that is too much."""
        if size < 0:
            raise ReadError("a member of a negative size")
        self._within(self.total + size)
        self._allowed = self.total + size + MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Read on. Raises SourceError beyond a limit."""
        data = self._content.read(size)
        self.total += len(data)
        self._within(self.total)
        if self.total > self._allowed:
            raise ReadError(f"more than {MAX_HEADER_BYTES >> 20} MiB of headers before one member")
        return data

    def drain(self) -> None:
        """Read what follows the end mark: the compressed file's own end tells whether all of it was right."""
        self._allowed = self.limit
        while self.read(CHUNK):
            pass

    def _within(self, total: int) -> None:
        if total > self.limit:
            raise SourceError(
                f"{self._place}: unpacks to more than {self.limit >> 20} MiB: that is no recording of a node"
            )


class _Reader:
    """Takes an archive's members in, in the order in which they stand."""

    def __init__(self, place: str, file: BinaryIO) -> None:
        self._place = place
        form = form_of(file.read(6))
        file.seek(0)
        self._meter = _Meter(place, Unpacked(file, form))
        self._seen = 0
        self._kept_bytes = 0
        self._collection: Collection | None = None
        self.members: dict[str, Member] = {}
        self.folders: dict[str, set[str]] = {"": set()}

    def take_all(self) -> None:
        """Read to the end."""
        try:
            with TarFile.open(
                fileobj=cast("IO[bytes]", self._meter),  # a stream is only read
                mode="r|",
                bufsize=CHUNK,
                tarinfo=_Header,
                encoding="utf-8",
                errors="surrogateescape",
            ) as tar:
                while (header := tar.next()) is not None:
                    self._meter.allow(header.size)
                    self._take(tar, header)
                    # tarfile keeps every header it met, and hands what a global one says on to each member.
                    tar.members.clear()  # type: ignore[attr-defined] # documented as TarFile's own list, not in its stubs
                    tar.pax_headers = {}
            self._meter.drain()
        except Damaged as error:
            raise SourceError(f"{self._place}: {error}") from error
        except _NO_ARCHIVE as error:
            raise SourceError(f"{self._place}: damaged tar archive: {error}") from error

    def _take(self, tar: TarFile, header: TarInfo) -> None:
        name = self._name(header.name)
        self._seen += 1
        self._recognise(name)
        most = self._collection.max_members if self._collection else MAX_KEPT_MEMBERS
        if max(self._seen - most, len(self.members) + len(self.folders) - MAX_KEPT_MEMBERS) > 0:
            raise SourceError(f"{self._place}: holds more than {most} members: that is no recording of a node")
        if self._collection is not None and not self._collection.keeps(f"{name}/" if header.isdir() else name):
            return
        if header.isdir():
            self._add_folder(name)
        else:
            self._add(name, self._member(tar, header, name))

    def _recognise(self, name: str) -> None:
        """Other tools collect far more than is asked for: of their archives, which may be larger, only a part is kept."""
        if self._collection is None:
            self._collection = recognised(name)
            if self._collection is not None:
                self._meter.limit = self._collection.max_bytes

    def _member(self, tar: TarFile, header: TarInfo, name: str) -> Member:
        if header.issparse():
            raise SourceError(f"{self._place}: {name} is stored as a sparse file: pack it again without --sparse")
        if header.isreg():
            return self._file(tar, header, name)
        if header.islnk():
            return self._hard_link(name, _decoded(header.linkname))
        if header.issym():
            return Member(EntryType.LINK, to=_decoded(header.linkname))
        if header.isfifo():
            return Member(EntryType.FIFO)
        if header.ischr() or header.isblk():
            kind = EntryType.CHAR if header.ischr() else EntryType.BLOCK
            return Member(kind, major=header.devmajor, minor=header.devminor)
        raise SourceError(
            f"{self._place}: {name} is of a kind that tar archives of files do not hold ({header.type!r})"
        )

    def _file(self, tar: TarFile, header: TarInfo, name: str) -> Member:
        too_large = header.size > MAX_FILE_BYTES
        if too_large and self._collection is None:
            raise SourceError(f"{self._place}: {name} is larger than {MAX_FILE_BYTES >> 20} MiB")
        self._kept_bytes += min(header.size, MAX_FILE_BYTES)
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise SourceError(
                f"{self._place}: more than {MAX_KEPT_BYTES >> 20} MiB of text: that is no recording of a node"
            )
        file = tar.extractfile(header)
        assert file is not None
        return Member(EntryType.FILE, content=file.read(MAX_FILE_BYTES), truncated=too_large)

    def _hard_link(self, name: str, to: str) -> Member:
        """Another name of a file that stands further to the front."""
        member = self.members.get(self._name(to))
        if member is None and self._collection is not None:
            return Member(EntryType.FILE)
        if member is None or member.kind is not EntryType.FILE:
            raise SourceError(
                f"{self._place}: {name} is a hard link to {to}, which is no file before it in the archive"
            )
        return member

    def _add(self, name: str, member: Member) -> None:
        if name in self.members or name in self.folders:
            raise SourceError(f"{self._place}: holds {name or '.'} twice")
        self._add_to_parents(name)
        self.members[name] = member

    def _add_folder(self, name: str) -> None:
        if name in self.members:
            raise SourceError(f"{self._place}: holds {name} twice")
        if name not in self.folders:
            self._add_to_parents(name)
            self.folders[name] = set()

    def _add_to_parents(self, name: str) -> None:
        """Folders need no member of their own; they count as if they had one."""
        while name:
            parent, _, last = name.rpartition("/")
            if parent in self.members:
                raise SourceError(f"{self._place}: holds {name}, though {parent} is no folder")
            if parent in self.folders:
                self.folders[parent].add(last)
                return
            self.folders[parent] = {last}
            name = parent

    def _name(self, name: str) -> str:
        """A member's name without `.`; refused when it could be meant to lie elsewhere."""
        name = _decoded(name)
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise SourceError(f"{self._place}: a member's name leads out of the archive: {name[:200]}")
        if len(name) > MAX_PATH:
            raise SourceError(f"{self._place}: a member's name is longer than {MAX_PATH} characters: {name[:200]}")
        return "/".join(part for part in parts if part not in ("", "."))


def _decoded(name: str) -> str:
    """A name as tarfile gives it, bytes that are not UTF-8 as backslash escapes."""
    return decoded(name.encode("utf-8", "surrogateescape"))


def _record(path: str, member: Member, noted: Record | None) -> Record:
    """A path's record, described by its entry where there is one; owners and modes in an archive are those of who packed it."""
    entry = noted.entry if noted is not None else None
    if entry is None:
        entry = Entry(path, member.kind, major=member.major, minor=member.minor, to=member.to)
    if entry.type is not EntryType.FILE or member.content is None:
        return Record(entry=entry)
    text = member.content.decode("utf-8", "backslashreplace")
    return Record(entry=entry, text=text, truncated=member.truncated or bool(noted and noted.truncated))


def _top(members: dict[str, Member], folders: dict[str, set[str]]) -> str:
    """The one folder that everything lies in, unless it is one of a node's root directory."""
    from gpudoctor.sources.snapshot import ROOT_MARKS

    names = folders[""]
    only = next(iter(names), "")
    if len(names) != 1 or only not in folders:
        return ""
    return "" if only in ROOT_MARKS and f"{only}/snapshot.json" not in members else only


def _leads_out(name: str, to: str) -> bool:
    if to.startswith("/"):
        return True
    depth = name.count("/")
    for part in to.split("/"):
        if part not in ("", "."):
            depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False
