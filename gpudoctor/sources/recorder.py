"""Recording: a live source that remembers every raw answer it gave and can write them down as a snapshot."""

import datetime
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor import __version__
from gpudoctor.config import Config
from gpudoctor.facts.raw import (
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
    error_name,
)
from gpudoctor.probes.guarded import DRIVER_TREE
from gpudoctor.sources.live import Live
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.verdicts import Unread


class Recorder:
    """The raw interface over a live node; keeps exactly what the probes read."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.kind: SourceKind = live.kind
        self.uid = live.uid
        self.recorded_at = datetime.datetime.now(datetime.timezone.utc)
        self._clock = {
            "realtime": time.time(),
            "monotonic": time.monotonic(),
            "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
        }
        self._files: dict[str, str] = {}
        self._entries: dict[str, dict[str, Any]] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._commands: dict[tuple[str, ...], CommandOutput | Absent | Unread] = {}
        self._logs: dict[str, Log | Unread] = {}
        self._answers: dict[str, Answer] = {}

    def read(self, path: str) -> TextFile | Absent | Unread:
        """Read and remember a file."""
        return self._remember(path, self._live.read(path))

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """Read and remember files whose reading may not return."""
        found = self._live.read_blocking(paths, keep=keep)
        return {path: self._remember(path, file) for path, file in found.items()}

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        """Look into folders and remember what lies there, and what does not. Such a path is its own: no link in it is followed."""
        found = self._live.look_blocking(folders, begin=begin, names=names)
        for folder, contents in found.items():
            if not isinstance(contents, Contents):
                self._remember_trouble(folder, contents)
                continue
            whole = {"listed": True} if contents.complete and not begin else {}
            self._note(folder, {"type": EntryType.DIR.value, **whole})
            for name, entry in contents.entries.items():
                self._note(f"{folder}/{name}", _entry_line(entry))
            for name in contents.missing:
                self._remember_trouble(f"{folder}/{name}", Absent(name))
        return found

    def _remember(self, path: str, file: TextFile | Absent | Unread) -> TextFile | Absent | Unread:
        place = self._canonical(path, follow=True)
        if isinstance(file, TextFile):
            self._files[place] = file.text
            if file.truncated:
                self._note(place, {"type": "file", "truncated": len(file.text)})
        elif isinstance(file, Unread) and file.detail.endswith("not a file"):
            self._remember_kind(place)
        else:
            self._remember_trouble(place, file)
        return file

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """Look at and remember an entry."""
        entry = self._live.entry(path, follow=follow)
        place = self._canonical(path, follow=follow)
        if isinstance(entry, Entry):
            self._note(place, _entry_line(entry))
        else:
            self._remember_trouble(place, entry)
        return entry

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """List and remember a directory, with the kind of each thing in it."""
        listing = self._live.listing(path, begin=begin)
        place = self._canonical(path, follow=True)
        if isinstance(listing, Unread) and listing.detail.endswith("not a directory"):
            self._remember_kind(place)
        if not isinstance(listing, Listing):
            self._remember_trouble(place, listing)
            return listing
        self._note(place, {"type": EntryType.DIR.value})
        if listing.complete and not begin:
            self._listed[place] = listing.names
            self._note(place, {"listed": True})
        for name in listing.names:
            self.entry(f"{place.rstrip('/')}/{name}")
        return listing

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """Run and remember a command."""
        self._commands[argv] = self._live.command(argv, seconds=seconds)
        return self._commands[argv]

    def log(self, name: str) -> Log | Unread:
        """Read and remember a log."""
        log = self._live.log(name)
        self._logs[name] = log
        return log

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """Ask and remember an API."""
        answer = self._live.answer(name, gate)
        if isinstance(answer, Answer):
            self._answers[name] = answer
        return answer

    def members(self, config: Config) -> dict[str, bytes]:
        """The snapshot: the content of each member by its name, the manifest first."""
        self._take_driver_tree()
        members = {"snapshot.json": json.dumps(self._manifest(config), indent=1).encode() + b"\n"}
        entries = [{"path": path, **line} for path, line in sorted(self._entries.items())]
        commands = [_command_line(argv, output) for argv, output in self._commands.items()]
        for name, lines in (("entries.jsonl", entries), ("commands.jsonl", commands)):
            if lines:
                members[name] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        for name, log in self._logs.items():
            if isinstance(log, Log):
                members[name] = log.text.encode()
        for name, answer in self._answers.items():
            members[f"answers/{name}.json"] = msgspec.json.format(msgspec.json.encode(answer)) + b"\n"
        members.update((f"root{path}", text.encode()) for path, text in sorted(self._files.items()))
        return members

    def write(self, place: Path, config: Config) -> None:
        """Write the snapshot into a new directory or archive. Raises SourceError when that cannot be."""
        write_snapshot(place, self.members(config))

    def _manifest(self, config: Config) -> dict[str, Any]:
        return {
            "format": 1,
            "recorded_at": self.recorded_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "recorded_by": f"gpudoctor {__version__}",
            "hostname": socket.gethostname(),
            "uid": self.uid,
            "complete": sorted(self._complete()),
            "redacted": False,
            "config": config.to_json(),
            "plugins": [],
            "clock": self._clock,
            "logs": {name: _log_line(log) for name, log in self._logs.items()},
        }

    def _complete(self) -> list[str]:
        """Listed directories in which nothing is a directory that was not listed itself: all below is known."""
        complete = [DRIVER_TREE] if self._live.driver_tree.is_complete(DRIVER_TREE) else []
        for path, names in self._listed.items():
            kinds = {self._entries.get(f"{path}/{name}", {}).get("type") for name in names}
            if kinds <= {kind.value for kind in EntryType if kind is not EntryType.DIR}:
                complete.append(path)
        return complete

    def _take_driver_tree(self) -> None:
        for path, record in self._live.driver_tree.tree.records.items():
            if record.entry is not None:
                self._note(path, _entry_line(record.entry))
            if record.error is not None:
                self._entries[path] = {"error": record.error}
            if record.text is not None:
                self._files[path] = record.text

    def _canonical(self, path: str, *, follow: bool) -> str:
        """Where a path leads, remembering the links on the way."""
        if path.startswith(DRIVER_TREE):
            return path
        try:
            crossed, place = self._live.files.links(path, follow=follow)
        except OSError:
            # A loop, or a link that may not be read: the error stands for whatever lies behind the path.
            return path
        for link, to in crossed:
            self._note(link, {"type": "link", "to": to})
        return place

    def _note(self, path: str, line: dict[str, Any]) -> None:
        self._entries[path] = {**self._entries.get(path, {}), **line}

    def _remember_kind(self, place: str) -> None:
        entry = self._live.entry(place)
        if isinstance(entry, Entry):
            self._note(place, _entry_line(entry))
        else:
            self._remember_trouble(place, entry)

    def _remember_trouble(self, place: str, trouble: Absent | Unread | Entry) -> None:
        if isinstance(trouble, (Absent, Unread)) and "type" not in self._entries.get(place, {}):
            self._entries[place] = {"error": error_name(trouble)}


def _entry_line(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"type": entry.type.value}
    if entry.mode is not None:
        line["mode"] = f"{entry.mode:04o}"
    for name in ("uid", "gid", "size", "mtime", "major", "minor", "to"):
        if getattr(entry, name) is not None:
            line[name] = getattr(entry, name)
    return line


def _log_line(log: Log | Unread) -> dict[str, Any]:
    if isinstance(log, Unread):
        return {"where": log.where, "error": log.why.value, "detail": log.detail, "would_need": log.would_need}
    line: dict[str, Any] = {"source": log.source, "from_boot": log.from_boot}
    return {**line, "timezone": log.timezone} if log.timezone else line


def _command_line(argv: tuple[str, ...], output: CommandOutput | Absent | Unread) -> dict[str, Any]:
    match output:
        case CommandOutput():
            return msgspec.to_builtins(output)  # type: ignore[no-any-return]
        case Absent():
            return {"argv": argv, "error": "not-found"}
        case Unread():
            return {"argv": argv, "error": output.why.value, "detail": output.detail, "would_need": output.would_need}
