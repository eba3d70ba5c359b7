"""A snapshot, format 1, or a plain root directory that holds part of a node's files (docs/snapshot-format.md)."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Entry, EntryType, Gate, Log
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import Members
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Unread, Why

_T = TypeVar("_T")

FORMAT = 1
ROOT_MARKS = ("etc", "proc", "sys", "dev", "var")


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
    clock: dict[str, Any] = {}
    logs: dict[str, dict[str, Any]] = {}

    @property
    def booted(self) -> float | None:
        """When the kernel's clock began that stamps its messages, which stands still while the node is suspended; None where not told."""
        moments = (self.clock.get("realtime"), self.clock.get("monotonic"))
        now, passed = (float(one) if isinstance(one, (int, float)) else None for one in moments)
        return None if now is None or passed is None else now - passed


class Snapshot(RecordedNode):
    """A recorded node: a snapshot, or a plain root directory, of which nothing is complete."""

    def __init__(self, members: Members, manifest: Manifest | None) -> None:
        """`manifest` is None for a plain root directory."""
        tree = members.tree("root" if manifest else "")
        super().__init__(tree, complete=manifest.complete if manifest else (), uid=manifest.uid if manifest else None)
        self.manifest = manifest
        self.members = members
        self.booted = manifest.booted if manifest is not None else None
        if manifest is None:
            return
        for entry in _entry_lines(members):
            path, record = _entry_record(entry)
            tree.put(path, record)
        for number, line in _json_lines(members, "commands.jsonl"):
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
        return Log(
            name,
            text,
            source=str(about.get("source") or ""),
            from_boot=bool(about.get("from_boot")),
            timezone=str(about.get("timezone") or ""),
        )

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer file of the snapshot; for NVML's, where there is none, what nvidia-smi printed."""
        text = self._member(f"answers/{name}.json")
        if text is None:
            return (self._from_nvidia_smi() if name == "nvml" else None) or super().answer(name, gate)
        if isinstance(text, Unread):
            return text
        try:
            return msgspec.json.decode(text, type=Answer)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            return Unread(Why.UNREADABLE, f"answers/{name}.json", str(error))

    def _from_nvidia_smi(self) -> Answer | Unread | None:
        if not any(argv[0].endswith(("nvidia-smi", "nvidia-smi.exe")) for argv in self.commands):
            return None
        from gpudoctor.sources.nvidia_smi_commands import nvml_answer

        return nvml_answer(self.commands)

    def _member(self, name: str) -> str | Unread | None:
        """The text of a file beside snapshot.json; None when there is none."""
        if self.manifest is None:
            return None
        try:
            return self.members.text(name)
        except OSError as error:
            return Unread(Why.UNREADABLE, name, error.strerror or str(error))


def open_snapshot(directory: Path) -> Snapshot:
    """Open a snapshot or plain root directory. Raises SourceError when it is neither."""
    from gpudoctor.sources.folder import Folder

    return read_snapshot(Folder(directory))


def holds_root(members: Members) -> bool:
    """Whether there is anything of a node's root directory."""
    return any(members.kind(mark) is EntryType.DIR for mark in ROOT_MARKS)


def read_snapshot(members: Members) -> Snapshot:
    """The node that the members of a snapshot or of a plain root directory hold. Raises SourceError when they are neither."""
    place = f"{members.place}/snapshot.json"
    if members.kind("snapshot.json") is None:
        if not holds_root(members):
            raise SourceError(
                f"{members.place}: neither a snapshot (no snapshot.json), a root directory (none of {', '.join(ROOT_MARKS)}), "
                "an sos report nor a must-gather"
            )
        return Snapshot(members, None)
    members.refuse_what_no_snapshot_holds()
    try:
        said = msgspec.json.decode(members.text("snapshot.json") or "")
        version = said.get("format") if isinstance(said, dict) else None
        if version != FORMAT:
            raise SourceError(f"{place}: snapshot format {version!r}, this gpudoctor reads format {FORMAT}")
        manifest = msgspec.convert(said, Manifest, strict=False)
    except OSError as error:
        raise SourceError(f"{place}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise SourceError(f"{place}: not a snapshot manifest: {error}") from error
    return Snapshot(members, manifest)


class _EntryLine(msgspec.Struct, gc=False):
    """A line of entries.jsonl."""

    path: str
    type: EntryType | None = None
    mode: str | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    mtime: float | None = None
    major: int | None = None
    minor: int | None = None
    to: str | None = None
    text: str | None = None
    error: str | None = None
    truncated: Any = None
    listed: Any = None

    def __post_init__(self) -> None:
        """Raises ValueError for what no entry is."""
        if self.mode is not None:
            int(self.mode, 8)
        if not self.path.startswith("/") or "/../" in f"{self.path}/":
            raise ValueError(f"path must be absolute, found {self.path!r}")
        if self.type is None and self.error is None:
            raise ValueError("neither a type nor an error")


def _entry_lines(members: Members) -> list[_EntryLine]:
    """The lines of entries.jsonl, decoded at one go: it is a twentieth of a run, and line by line twice that."""
    lines = msgspec.json.Decoder(_EntryLine)
    try:
        return lines.decode_lines(_text(members, "entries.jsonl"))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        # Which line it was is told only when they are taken one by one.
        return [_decoded(where, lines, line) for where, line in _lines(members, "entries.jsonl")]


def _json_lines(members: Members, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    objects = msgspec.json.Decoder(dict[str, Any])
    for where, line in _lines(members, name):
        yield where, _decoded(where, objects, line)


def _decoded(where: str, decoder: "msgspec.json.Decoder[_T]", line: str) -> _T:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise SourceError(f"{where}: {error}") from error


def _lines(members: Members, name: str) -> Iterator[tuple[str, str]]:
    place = f"{members.place}/{name}"
    for number, line in enumerate(_text(members, name).split("\n"), start=1):
        if line.strip():
            yield f"{place}, line {number}", line


def _text(members: Members, name: str) -> str:
    try:
        return members.text(name) or ""
    except OSError as error:
        raise SourceError(f"{members.place}/{name}: {error.strerror or error}") from error


def _entry_record(line: _EntryLine) -> tuple[str, Record]:
    path = line.path
    if "//" in path or "/./" in path or path.endswith(("/", "/.")):
        path = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    if line.error is not None or line.type is None:
        return path, Record(error=line.error)
    entry = Entry(
        path,
        line.type,
        mode=None if line.mode is None else int(line.mode, 8),
        uid=line.uid,
        gid=line.gid,
        size=line.size,
        mtime=line.mtime,
        major=line.major,
        minor=line.minor,
        to=line.to,
    )
    truncated, listed = line.truncated is not None, line.listed is True
    return path, Record(entry=entry, text=line.text, truncated=truncated, listed=listed)


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
