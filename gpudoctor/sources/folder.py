"""A recording in a directory. Links of the file system that holds it are never followed."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.probes.files import decoded, kind_of
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import MAX_FILE_BYTES, FileTree
from gpudoctor.sources.recorded import Record


class Folder:
    """The members of a directory (`Members`)."""

    def __init__(self, directory: Path) -> None:
        self.place = str(directory)

    def kind(self, name: str) -> EntryType | None:
        """What a member is."""
        try:
            return kind_of(os.lstat(f"{self.place}/{name}"))
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> list[str]:
        """The names in a folder."""
        try:
            place = self._path(folder)
            return [decoded(name) for name in os.listdir(os.fsencode(place))] if _is_folder(place) else []
        except (OSError, ValueError):
            return []

    def text(self, name: str) -> str | None:
        """A file's text."""
        try:
            return read_text(self._path(name), MAX_FILE_BYTES)[0]
        except FileNotFoundError:
            return None

    def open(self, name: str) -> BinaryIO:
        """A file's bytes."""
        return open_regular(self._path(name))

    def tree(self, folder: str) -> "DiskTree":
        """The files below a folder."""
        return DiskTree(f"{self.place}/{folder}".rstrip("/"))

    def refuse_what_no_snapshot_holds(self) -> None:
        """A link in the place of root/ could show the machine that reads it. Raises SourceError."""
        if self.kind("root") is EntryType.LINK:
            raise SourceError(f"{self.place}/root: is a link; a snapshot holds its files itself")

    def _path(self, name: str) -> str:
        """Where a member lies. Raises NotADirectoryError where a folder above it is none of the recording's own."""
        place = self.place
        *folders, last = name.split("/")
        for folder in folders:
            place = f"{place}/{folder}"
            if os.path.lexists(place) and not _is_folder(place):
                raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a directory", name)
        return f"{place}/{last}"


class DiskTree(FileTree):
    """Recorded paths plus the files below a directory."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self._real: dict[str, bool] = {"": True}

    def kept(self, path: str, noted: Record | None) -> Record | None:
        """What lies on disk at a path."""
        if not self._is_real(path.rpartition("/")[0]):
            return None
        place = self._base + path
        try:
            status = os.lstat(place)
            entry = noted.entry if noted is not None and noted.entry is not None else entry_of(path, place, status)
            if entry.type is not EntryType.FILE or not stat.S_ISREG(status.st_mode):
                return Record(entry=entry)
            text, truncated = read_text(place, MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except ValueError:
            return Record(error="EINVAL")
        except OSError as error:
            return None if error.errno == errno.ENOTDIR else Record(error=errno.errorcode.get(error.errno or 0, "EIO"))
        return Record(entry=entry, text=text, truncated=truncated or bool(noted and noted.truncated))

    def names(self, path: str) -> set[str]:
        """Names in entries.jsonl and on disk."""
        try:
            on_disk = os.listdir(os.fsencode(self._base + path)) if self._is_real(path.rstrip("/")) else []
        except (OSError, ValueError):
            on_disk = []
        return super().names(path) | set(map(decoded, on_disk))

    def _is_real(self, folder: str) -> bool:
        """Whether a folder is one on disk all the way down: a link in its place could lead out of the recording."""
        if folder not in self._real:
            self._real[folder] = self._is_real(folder.rpartition("/")[0]) and _is_folder(self._base + folder)
        return self._real[folder]


def _is_folder(place: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except (OSError, ValueError):
        return False


def entry_of(path: str, place: str, status: os.stat_result) -> Entry:
    """The entry for what lies at `place`; modes of a checked-out file say nothing of the recorded node and are left out."""
    kind = kind_of(status)
    if kind is EntryType.LINK:
        return Entry(path, kind, to=decoded(os.readlink(os.fsencode(place))))
    if kind in (EntryType.CHAR, EntryType.BLOCK):
        return Entry(path, kind, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))
    return Entry(path, kind)


def open_regular(place: str) -> BinaryIO:
    """A regular file's bytes. Never waits and never follows a link. Raises OSError, also for anything that is not a regular file."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", place)
    return os.fdopen(descriptor, "rb")


def read_text(place: str, limit: int) -> tuple[str, bool]:
    """A regular file's text up to `limit` bytes and whether there was more; undecodable bytes as backslash escapes. Raises OSError."""
    with open_regular(place) as file:
        content = file.read(limit + 1)
    return content[:limit].decode("utf-8", "backslashreplace"), len(content) > limit
