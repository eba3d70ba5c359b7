"""A recorded node with some things changed: for the one state that a test is about and no fixture tells the story of."""

from msgspec.structs import replace

from gpudoctor.facts.raw import Answer, Entry, EntryType, Gate, Log
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Unread


class _Overlay(Tree):
    """A tree over another: what was put here hides what lies there, an ENOENT also all below it."""

    def __init__(self, below: Tree) -> None:
        super().__init__()
        self._below = below

    def lookup(self, path: str) -> Record | None:
        """The change, else the original."""
        gone = (over for over in self.records if self.records[over].error == "ENOENT" and path.startswith(over + "/"))
        if path in self.records or any(gone):
            return self.records.get(path, Record(error="ENOENT"))
        return self._below.lookup(path) or super().lookup(path)

    def names(self, path: str) -> set[str]:
        """The names in both."""
        return self._below.names(path) | self.children.get(path, set())


class Altered(RecordedNode):
    """A fixture by name with changes on top."""

    def __init__(self, name: str) -> None:
        self.whole = node(name)
        assert self.whole.manifest is not None
        self.overlay = _Overlay(self.whole.tree)
        super().__init__(self.overlay, complete=self.whole.manifest.complete, uid=self.whole.uid)
        self._log: Log | None = None
        self.commands = self.whole.commands

    def place(self, path: str) -> str:
        """A path without links."""
        resolved = self._resolve(path, follow=True)
        assert isinstance(resolved, str), resolved
        return resolved

    def text(self, path: str, text: str) -> None:
        """Another content."""
        parent, _, name = path.rpartition("/")
        place = f"{self.place(parent)}/{name}"
        self.overlay.put(place, Record(entry=Entry(place, EntryType.FILE), text=text))

    def error(self, path: str, error: str = "ENOENT") -> None:
        """Gone, or not to be seen."""
        self.overlay.records[path] = Record(error=error)

    def say(self, *lines: str) -> None:
        """More lines at the end of the kernel's log."""
        log = self.log("kernel.log")
        assert isinstance(log, Log)
        self._log = replace(log, text=log.text.rstrip("\n") + "\n" + "".join(f"{line}\n" for line in lines))

    def log(self, name: str) -> Log | Unread:
        """A log."""
        return self._log if name == "kernel.log" and self._log is not None else self.whole.log(name)

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer, perhaps another than was recorded."""
        return self.answers.get(name) or self.whole.answer(name, gate)

    def report(self) -> Report:
        """The whole report."""
        assert self.whole.manifest is not None
        return run(self, config_of(self.whole), built_in(), Selection(), self.whole.manifest.recorded_at)
