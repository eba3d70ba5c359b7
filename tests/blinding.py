"""A node of which one recorded thing at a time cannot be seen, and runs over it that read anew only what that thing could change.

A fact is parsed from raw answers alone, so one that looked at nothing hidden is what it was; so is what a check says of such facts.
"""

import datetime
import functools
from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Answer, Log
from gpudoctor.registry import Check, Registry, built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Unread, Verdict, Why

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
FactT = TypeVar("FactT", bound=Fact)

whole_node = functools.lru_cache(maxsize=1)(node)


class Blinded(Tree):
    """A tree of which one path, and all below it, cannot be seen; remembers what was looked at, and what of it is there."""

    def __init__(self, whole: Tree, hidden: str | None, error: str) -> None:
        super().__init__()
        self.whole = whole
        self.memory: dict[str, Record | None] = whole.__dict__.setdefault("memory", {})
        self.hidden = hidden
        self.error = error
        self.looked_at: set[str] = set()
        self.looked_for: set[str] = set()

    def lookup(self, path: str) -> Record | None:
        """The error at and below the hidden path, else what the whole tree says."""
        if self.hidden is not None and (path == self.hidden or path.startswith(self.hidden + "/")):
            return Record(error=self.error)
        self.looked_for.add(path)
        record = self._remembered(path)
        if record is not None and record.error is None:
            self.looked_at.add(path)
        return record

    def names(self, path: str) -> set[str]:
        """The names of the whole tree."""
        return self.whole.names(path)

    def _remembered(self, path: str) -> Record | None:
        """Hundreds of runs look at the same files: read each once."""
        if path not in self.memory:
            self.memory[path] = self.whole.lookup(path)
        return self.memory[path]


class BlindedNode(RecordedNode):
    """A recorded node seen through a blinded tree, and perhaps without one of its logs or answers."""

    def __init__(self, name: str, hidden: str | None = None, error: str = "EACCES") -> None:
        whole = whole_node(name)
        assert whole.manifest is not None
        self.blinded = Blinded(whole.tree, hidden, error)
        super().__init__(self.blinded, complete=whole.manifest.complete, uid=whole.uid)
        self.whole = whole
        self.hidden = hidden
        self.why = Why.NO_PERMISSION if error == "EACCES" else Why.NOT_RECORDED

    def log(self, name: str) -> Log | Unread:
        """The log, unless it is hidden."""
        self.blinded.looked_for.add(name)
        return Unread(self.why, name, "hidden") if self.hidden == name else self.whole.log(name)

    def answer(self, name: str, gate: Any) -> Answer | Unread:
        """The answer, unless it is hidden."""
        self.blinded.looked_for.add(f"answers/{name}")
        return Unread(self.why, name, "hidden") if self.hidden == f"answers/{name}" else self.whole.answer(name, gate)

    def forget_links(self) -> None:
        """Resolve every path anew, so that whoever looks next is seen to look at all of it."""
        self._resolved = {"": ""}


class Watched(Desk):
    """A desk that writes down what each fact looked at, and which others it asked for."""

    def __init__(self, raw: BlindedNode, config: Config) -> None:
        super().__init__(raw, config)
        self._raw = raw
        self._asking: list[type[Fact]] = []
        self.read: dict[type[Fact], set[str]] = {}
        self.asks: dict[type[Fact], set[type[Fact]]] = {}
        self.hopes: dict[type[Fact], set[type[Fact]]] = {}
        """Which others it would have taken, had somebody asked for them before."""

    @property
    def facts(self) -> dict[type[Fact], Fact | Unread]:
        """All that was gathered."""
        return self._facts

    def get(self, kind: type[FactT]) -> FactT | Unread:
        """The fact, and who asks for it."""
        if self._asking:
            self.asks[self._asking[-1]].add(kind)
        return super().get(kind)

    def known(self, kind: type[FactT]) -> FactT | None:
        """The fact if it is there, and who would have it."""
        if self._asking:
            self.hopes[self._asking[-1]].add(kind)
        return super().known(kind)

    def _gather(self, kind: type[Fact]) -> Fact | Unread:
        outer, self._raw.blinded.looked_for = self._raw.blinded.looked_for, set()
        self._raw.forget_links()
        self._asking.append(kind)
        self.asks[kind], self.hopes[kind] = set(), set()
        fact = super()._gather(kind)
        self._asking.pop()
        self.read[kind] = self._raw.blinded.looked_for
        self._raw.blinded.looked_for = outer
        self._raw.forget_links()
        return fact

    def stands_on(self, kind: type[Fact]) -> frozenset[type[Fact]]:
        """A fact, and all that it asked for in turn."""
        return self._closure(kind, hopes=False)

    def touched(self, hidden: str) -> frozenset[type[Fact]]:
        """The facts that could be other ones were something hidden."""
        below = f"{hidden}/"
        own = {kind for kind, paths in self.read.items() if any(_within(path, hidden, below) for path in paths)}
        return frozenset(kind for kind in self.read if not own.isdisjoint(self._closure(kind, hopes=True)))

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - one for each node, and they are few at a time
    def _closure(self, kind: type[Fact], *, hopes: bool) -> frozenset[type[Fact]]:
        found: set[type[Fact]] = set()
        todo = [kind]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self.asks.get(one, ())
                todo += self.hopes.get(one, ()) if hopes else ()
        return frozenset(found)


def _within(path: str, hidden: str, below: str) -> bool:
    return path == hidden or path.startswith(below)


class Reusing(Desk):
    """A desk that takes a fact from the one before where nothing that is hidden now was looked at for it."""

    def __init__(self, raw: BlindedNode, config: Config, before: Watched) -> None:
        super().__init__(raw, config)
        self._before = before
        assert raw.hidden is not None
        self._touched = before.touched(raw.hidden)

    def _gather(self, kind: type[Fact]) -> Fact | Unread:
        if kind in self._touched or kind not in self._before.facts:
            return super()._gather(kind)
        for one in self._before.stands_on(kind):
            if one in self._before.facts:
                self._facts.setdefault(one, self._before.facts[one])
        return self._before.facts[kind]


class Ablation:
    """A node as it is, and any number of times with one thing hidden."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = BlindedNode(name)
        self._config = config_of(self.node.whole)
        self._said: dict[str, tuple[tuple[object, ...], list[Verdict]]] = {}
        self._registry = Registry(replace(check, function=self._remembering(check)) for check in built_in())
        self._desk = Watched(self.node, self._config)
        self.report = self._run(self.node, self._desk)

    @property
    def looked_at(self) -> set[str]:
        """Everything recorded that the run over the whole node looked at."""
        return self.node.blinded.looked_at

    def without(self, hidden: str, error: str) -> Report:
        """The report where something is hidden."""
        blinded = BlindedNode(self.name, hidden, error)
        return self._run(blinded, Reusing(blinded, self._config, self._desk))

    def without_reuse(self, hidden: str, error: str) -> Report:
        """The same, all of it read anew."""
        return run(BlindedNode(self.name, hidden, error), self._config, built_in(), Selection(), NOW)

    def _run(self, raw: BlindedNode, desk: Desk) -> Report:
        return run(raw, self._config, self._registry, Selection(), NOW, desk=desk)

    def _remembering(self, check: Check) -> Any:
        def function(*facts: object) -> Iterator[Verdict]:
            before = self._said.get(check.id)
            if before is not None:
                if len(before[0]) == len(facts) and all(
                    one is other for one, other in zip(*(before[0], facts), strict=True)
                ):
                    yield from before[1]
                    return
                yield from check.function(*facts)
                return
            said = []
            for verdict in check.function(*facts):
                said.append(verdict)
                yield verdict
            self._said[check.id] = (facts, said)

        return function
