"""A run told while it runs, for programs that watch it: JSON lines, schema `gpudoctor.stream/1`, each written out at once.

`begin` names the checks to come, `reading` a fact whose reading may take long before it is read and `read` any that took long after it,
`result` how each check ended, and `report` all of it in full. Kinds and keys are never removed or given another meaning within `/1`.
"""

import datetime
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeVar

import msgspec
from msgspec import Struct

from gpudoctor.config import Config
from gpudoctor.details import FullReport
from gpudoctor.details_run import run_in_full
from gpudoctor.diagnosis import detail_of
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import (
    Absent,
    Answer,
    CommandOutput,
    Contents,
    Gate,
    Log,
    Raw,
    TextFile,
)
from gpudoctor.facts.relayed import Relayed
from gpudoctor.outcome import Outcome
from gpudoctor.outputs import in_utf8
from gpudoctor.registry import Registry
from gpudoctor.run import Selection
from gpudoctor.verdicts import Unread

AnswerT = TypeVar("AnswerT")
SCHEMA = "gpudoctor.stream/1"
SLOW_SECONDS = 0.01
"""A fact that took longer is told although nothing foretold it."""


class Begin(Struct, frozen=True, tag_field="kind", tag="begin"):
    """The first line. `node` is the source in words, `source` its kind."""

    schema: str
    node: str
    source: str
    checks: tuple[dict[str, str], ...]


class ReadingFact(Struct, frozen=True, tag_field="kind", tag="reading"):
    """A fact is being read, and that may take long: something is asked that may not answer. Outside of facts it is what is asked."""

    fact: str


class FactRead(Struct, frozen=True, tag_field="kind", tag="read"):
    """It was read; what it asked for in turn is in `seconds` too."""

    fact: str
    seconds: float


class CheckEnded(Struct, frozen=True, tag_field="kind", tag="result"):
    """One check ended; the report may say more of it, such as what explains it."""

    check: str
    link: str
    status: str
    detail: str


class Finished(Struct, frozen=True, tag_field="kind", tag="report"):
    """The last line."""

    report: FullReport


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a line, generated from these records."""
    schema = msgspec.json.schema(Begin | ReadingFact | FactRead | CheckEnded | Finished)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def stream(  # noqa: PLR0913 - what a run is made of
    out: TextIO,
    node: str,
    raw: Raw,
    config: Config,
    registry: Registry,
    selection: Selection,
    now: datetime.datetime,
    durations: dict[str, float] | None = None,
    *,
    active: int = 0,
) -> FullReport:
    """Run, and write each line as its time comes. BrokenPipeError where the reader has gone."""
    wanted = selection.wanted(registry)
    teller = _Teller(out)
    checks = tuple(
        {"id": check.id, "link": check.link.value, "title": check.title} for check in registry if check.id in wanted
    )
    teller.tell(Begin(SCHEMA, node, raw.kind.value, checks))
    desk = Desk(_Watched(raw, teller), config, time.monotonic)
    desk.watch = teller.fact

    def ended(outcome: Outcome) -> None:
        if outcome.check.id in wanted:
            check = outcome.check
            teller.tell(CheckEnded(check.id, check.link.value, outcome.status.value, detail_of(outcome)))

    report = run_in_full(desk.raw, config, registry, selection, now, durations, desk, active, watch=ended)
    teller.tell(Finished(report))
    return report


class _Teller:
    """Writes lines, and knows which facts are being read, the innermost last."""

    def __init__(self, out: TextIO) -> None:
        in_utf8(out)
        self._out = out
        self._reading: list[str] = []
        self._told: set[str] = set()

    def tell(self, line: Struct) -> None:
        """One line, written out at once."""
        self._out.write(msgspec.json.encode(line).decode() + "\n")
        self._out.flush()

    def fact(self, name: str, seconds: float | None) -> None:
        """What a desk tells of a fact: that it is begun, and how long it took."""
        if seconds is None:
            self._reading.append(name)
            return
        self._reading.pop()
        if name in self._told or seconds >= SLOW_SECONDS:
            self.tell(FactRead(name, round(seconds, 4)))

    def slow(self, what: str, ask: Callable[[], AnswerT]) -> AnswerT:
        """Something that may take long is asked for the fact that is being read; `what` names it where no fact is."""
        if self._reading:
            name = self._reading[-1]
            if name not in self._told:
                self._told.add(name)
                self.tell(ReadingFact(name))
            return ask()
        self.tell(ReadingFact(what))
        started = time.monotonic()
        try:
            return ask()
        finally:
            self.tell(FactRead(what, round(time.monotonic() - started, 4)))


class _Watched(Relayed):
    """A source that says before it asks for what may not answer."""

    def __init__(self, raw: Raw, teller: _Teller) -> None:
        super().__init__(raw)
        self._teller = teller

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        return self._slow(paths, lambda: self._raw.read_blocking(paths, keep=keep))

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        return self._slow(folders, lambda: self._raw.look_blocking(folders, begin=begin, names=names))

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        return self._slow(argv, lambda: self._raw.command(argv, seconds=seconds))

    def log(self, name: str) -> Log | Unread:
        return self._slow((name,), lambda: self._raw.log(name))

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        return self._slow((name,), lambda: self._raw.answer(name, gate))

    def _slow(self, asked: tuple[str, ...], ask: Callable[[], AnswerT]) -> AnswerT:
        return self._teller.slow(asked[0], ask) if asked else ask()
