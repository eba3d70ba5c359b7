"""A snapshot directory, format 1, or a plain directory that holds part of a node's root (docs/snapshot-format.md)."""

import datetime
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Entry, EntryType, Gate, Log
from gpudoctor.probes.files import decoded, kind_of
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Unread, Why

FORMAT = 1
ROOT_MARKS = ("etc", "proc", "sys", "dev", "var")
MAX_FILE_BYTES = 64 * 1024 * 1024


class Manifest(msgspec.Struct, frozen=True):
    """snapshot.json."""

    format: int
    recorded_at: datetime.datetime
    recorded_by: str = ""
    hostname: str | None = None
    uid: int | None = None
    complete: tuple[str, ...] = ()
    redacted: bool = False
    config: dict[str, Any] = {}
    plugins: tuple[str, ...] = ()
    logs: dict[str, dict[str, Any]] = {}


class DiskTree(Tree):
    """Recorded paths plus the files below a directory. Never follows a link of the file system that holds it."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self._base = str(base)
        self._real: dict[str, bool] = {"": True}

    def lookup(self, path: str) -> Record | None:
        """An entry wins over the file of the same path; a file's content is the entry's, else the one on disk."""
        noted = self.records.get(path)
        if noted is not None and (
            noted.entry is None or noted.entry.type is not EntryType.FILE or noted.text is not None
        ):
            return noted
        found = self._on_disk(path, noted) if self._is_real(path.rpartition("/")[0]) else None
        return found or noted or super().lookup(path)

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

    def _on_disk(self, path: str, noted: Record | None) -> Record | None:
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


def read_text(place: str, limit: int) -> tuple[str, bool]:
    """A regular file's text up to `limit` bytes and whether there was more; undecodable bytes as backslash escapes.

    Never waits and never follows a link. Raises OSError, also for anything that is not a regular file.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", place)
        content = file.read(limit + 1)
    return content[:limit].decode("utf-8", "backslashreplace"), len(content) > limit


class Snapshot(RecordedNode):
    """A recorded node in a directory."""

    def __init__(self, directory: Path, manifest: Manifest | None) -> None:
        """`manifest` is None for a plain root directory, of which nothing is complete."""
        tree = DiskTree(directory / "root" if manifest else directory)
        super().__init__(tree, complete=manifest.complete if manifest else (), uid=manifest.uid if manifest else None)
        self.manifest = manifest
        self.directory = directory
        if manifest is None:
            return
        for number, line in _json_lines(directory / "entries.jsonl"):
            path, record = _entry_record(line, number)
            tree.put(path, record)
        for number, line in _json_lines(directory / "commands.jsonl"):
            argv, output = _command(line, number)
            self.commands[argv] = output

    def log(self, name: str) -> Log | Unread:
        """A log file of the snapshot."""
        text = self._member(name)
        about = self.manifest.logs.get(name, {}) if self.manifest is not None else {}
        if text is None:
            return _unread(about, str(about.get("where") or name)) if "error" in about else super().log(name)
        if isinstance(text, Unread):
            return text
        return Log(name, text, source=str(about.get("source") or ""), from_boot=bool(about.get("from_boot")))

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer file of the snapshot."""
        text = self._member(f"answers/{name}.json")
        if text is None:
            return super().answer(name, gate)
        if isinstance(text, Unread):
            return text
        try:
            return msgspec.json.decode(text, type=Answer)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            return Unread(Why.UNREADABLE, f"answers/{name}.json", str(error))

    def _member(self, name: str) -> str | Unread | None:
        """The text of a file beside snapshot.json; None when there is none."""
        place = self.directory / name
        if self.manifest is None or not os.path.lexists(place):
            return None
        if place.parent != self.directory and not _is_folder(str(place.parent)):
            return Unread(Why.UNREADABLE, name, f"{place.parent.name} is not a directory")
        try:
            return read_text(str(place), MAX_FILE_BYTES)[0]
        except OSError as error:
            return Unread(Why.UNREADABLE, name, error.strerror or str(error))


def open_snapshot(directory: Path) -> Snapshot:
    """Open a snapshot or plain root directory. Raises SourceError when it is neither."""
    path = directory / "snapshot.json"
    if not os.path.lexists(path):
        if not any((directory / mark).is_dir() for mark in ROOT_MARKS):
            raise SourceError(
                f"{directory}: neither a snapshot (no snapshot.json) nor a root directory (none of {', '.join(ROOT_MARKS)})"
            )
        return Snapshot(directory, None)
    try:
        said = msgspec.json.decode(read_text(str(path), MAX_FILE_BYTES)[0])
        version = said.get("format") if isinstance(said, dict) else None
        if version != FORMAT:
            raise SourceError(f"{path}: snapshot format {version!r}, this gpudoctor reads format {FORMAT}")
        manifest = msgspec.convert(said, Manifest, strict=False)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise SourceError(f"{path}: not a snapshot manifest: {error}") from error
    if (directory / "root").is_symlink():
        raise SourceError(f"{directory}/root: is a link; a snapshot holds its files itself")
    return Snapshot(directory, manifest)


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        content = read_text(str(path), MAX_FILE_BYTES)[0]
    except FileNotFoundError:
        return
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                value = msgspec.json.decode(line)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                raise SourceError(f"{where}: {error}") from error
            if not isinstance(value, dict):
                raise SourceError(f"{where}: not a JSON object")
            yield where, value


def _entry_record(line: dict[str, Any], where: str) -> tuple[str, Record]:
    path = line.get("path")
    if not isinstance(path, str) or not path.startswith("/") or "/../" in f"{path}/":
        raise SourceError(f"{where}: path must be absolute, found {path!r}")
    path = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    if "error" in line:
        return path, Record(error=str(line["error"]))
    known = ("type", "uid", "gid", "size", "mtime", "major", "minor", "to")
    fields: dict[str, Any] = {name: line[name] for name in known if name in line}
    try:
        if "mode" in line:
            fields["mode"] = int(str(line["mode"]), 8)
        entry = msgspec.convert({"path": path, **fields}, Entry)
    except (ValueError, msgspec.ValidationError) as error:
        raise SourceError(f"{where}: {error}") from error
    text = line.get("text")
    if text is not None and not isinstance(text, str):
        raise SourceError(f"{where}: text must be a string")
    return path, Record(entry=entry, text=text, truncated="truncated" in line)


def _command(line: dict[str, Any], where: str) -> tuple[tuple[str, ...], CommandOutput | Absent | Unread]:
    words = line.get("argv")
    argv = tuple(str(word) for word in words) if isinstance(words, list) else ()
    if not argv:
        raise SourceError(f"{where}: a command without argv")
    match line.get("error"):
        case None:
            try:
                return argv, msgspec.convert(line, CommandOutput)
            except msgspec.ValidationError as error:
                raise SourceError(f"{where}: {error}") from error
        case "not-found":
            return argv, Absent(argv[0])
        case "timed-out" if "detail" not in line:
            return argv, Unread(Why.TIMED_OUT, " ".join(argv), "did not end before its deadline")
        case _:
            return argv, _unread(line, " ".join(argv))


def _unread(line: dict[str, Any], where: str) -> Unread:
    """The reason that was recorded in place of an answer."""
    error = str(line["error"])
    why = Why(error) if error in {why.value for why in Why} else Why.UNREADABLE
    return Unread(why, where, str(line.get("detail") or error), would_need=str(line.get("would_need") or ""))
