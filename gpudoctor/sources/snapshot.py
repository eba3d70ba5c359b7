"""A snapshot, format 1, or a plain root directory that holds part of a node's files (docs/snapshot-format.md)."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Entry, EntryType, Gate, Log
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import Members
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Unread, Why

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
    logs: dict[str, dict[str, Any]] = {}


class Snapshot(RecordedNode):
    """A recorded node: a snapshot, or a plain root directory, of which nothing is complete."""

    def __init__(self, members: Members, manifest: Manifest | None) -> None:
        """`manifest` is None for a plain root directory."""
        tree = members.tree("root" if manifest else "")
        super().__init__(tree, complete=manifest.complete if manifest else (), uid=manifest.uid if manifest else None)
        self.manifest = manifest
        self.members = members
        if manifest is None:
            return
        for number, line in _json_lines(members, "entries.jsonl"):
            path, record = _entry_record(line, number)
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
        return Log(name, text, source=str(about.get("source") or ""), from_boot=bool(about.get("from_boot")))

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


def _json_lines(members: Members, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    place = f"{members.place}/{name}"
    try:
        content = members.text(name)
    except OSError as error:
        raise SourceError(f"{place}: {error.strerror or error}") from error
    for number, line in enumerate((content or "").split("\n"), start=1):
        if line.strip():
            where = f"{place}, line {number}"
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
    if "//" in path or "/./" in path or path.endswith(("/", "/.")):
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
