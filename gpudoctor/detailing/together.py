"""Looks at many workloads at once: what each asks of a child is asked for all of them in one.

A child costs more than what it reads. So a look that needs one is broken off, the questions of all looks are put together, and once they
are answered each look begins anew and comes further.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from gpudoctor.facts.desk import Desk, FactT
from gpudoctor.facts.raw import Absent, CommandOutput, Contents, Raw, TextFile, trouble
from gpudoctor.facts.relayed import Relayed
from gpudoctor.facts.workload import Workload
from gpudoctor.tracing.judging import look
from gpudoctor.tracing.sight import Sight
from gpudoctor.tracing.waiting import Waiting
from gpudoctor.verdicts import Unread, Why

AnswerT = TypeVar("AnswerT")
Read = TextFile | Absent | Unread
Looked = Contents | Absent | Unread


class _NotYet(BaseException):
    """Something is not answered yet. No Exception: nobody may take it for a bug of a reader."""


class Together:
    """Looks over one desk; what was answered once is known for all of them."""

    def __init__(self, desk: Desk) -> None:
        self._joined = _Joined(desk.raw)
        self._view = _View(desk, self._joined)
        self._clock = desk.clock

    def look(
        self, ones: Sequence[Workload | Waiting], seconds: float
    ) -> tuple[list[tuple[Workload | Waiting, Sight | Workload | Waiting]], list[Workload | Waiting]]:
        """What was seen of each within so many seconds, in their order, and those for which that was not enough."""
        until = self._clock() + seconds
        seen: dict[int, Sight | Workload | Waiting] = {}
        left = list(range(len(ones)))
        while left and self._clock() < until:
            left = [at for at in left if not self._came_through(ones[at], at, seen)]
            self._joined.ask()
        return [(ones[at], seen[at]) for at in sorted(seen)], [ones[at] for at in left]

    def _came_through(self, one: Workload | Waiting, at: int, seen: dict[int, Sight | Workload | Waiting]) -> bool:
        try:
            seen[at] = look(one, self._view)
        except _NotYet:
            return False
        return True


class _View(Desk):
    """The facts of a desk, over a source that joins questions."""

    def __init__(self, desk: Desk, raw: Raw) -> None:
        super().__init__(raw, desk.config, desk.clock)
        self._desk = desk

    def get(self, kind: type[FactT]) -> FactT | Unread:
        """Facts ask the desk's own source: they join their questions themselves."""
        return self._desk.get(kind)

    def asked(self, kind: type[FactT]) -> FactT | Unread | None:
        """Of the desk."""
        return self._desk.asked(kind)

    def known(self, kind: type[FactT]) -> FactT | None:
        """Of the desk."""
        return self._desk.known(kind)


class _Joined(Relayed):
    """Collects what children are asked, and remembers all that was answered.

    A process whose files once did not come back is asked no more: each would cost the same wait.
    """

    def __init__(self, raw: Raw) -> None:
        super().__init__(raw)
        self._known: dict[object, object] = {}
        self._wanted: dict[tuple[str, tuple[str, ...] | None], dict[str, None]] = {}
        self._stuck: set[str] = set()

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, Read]:
        """All that is known; else it is asked with the questions of others."""
        return cast("Mapping[str, Read]", self._all((keep, None), paths))

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Looked]:
        """All that is known; else it is asked with the questions of others."""
        return cast("Mapping[str, Looked]", self._all((begin, names), folders))

    def read(self, path: str) -> Read:
        """Once, though the look be begun anew."""
        return self._once(("file", path), lambda: self._raw.read(path))

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """Once, though the look be begun anew."""
        return self._once(argv, lambda: self._raw.command(argv, seconds=seconds))

    def ask(self) -> None:
        """Ask what is wanted, each kind in one child."""
        for kind, paths in self._wanted.items():
            first, names = kind
            asked = tuple(path for path in paths if _process(path) not in self._stuck)
            found: Mapping[str, Read] | Mapping[str, Looked]
            if names is None:
                found = self._raw.read_blocking(asked, keep=first)
            else:
                found = self._raw.look_blocking(asked, begin=first, names=names)
            for path in paths:
                answer = found.get(path) or trouble(path, "ETIMEDOUT")
                self._known[kind, path] = answer
                if isinstance(answer, Unread) and answer.why is Why.TIMED_OUT:
                    self._stuck.add(_process(path))
        self._wanted.clear()

    def _all(self, kind: tuple[str, tuple[str, ...] | None], paths: tuple[str, ...]) -> dict[str, object]:
        missing = [path for path in paths if (kind, path) not in self._known]
        if missing:
            self._wanted.setdefault(kind, {}).update(dict.fromkeys(missing))
            raise _NotYet
        return {path: self._known[kind, path] for path in paths}

    def _once(self, key: object, ask: Callable[[], AnswerT]) -> AnswerT:
        if key not in self._known:
            self._known[key] = ask()
        return cast("AnswerT", self._known[key])


def _process(path: str) -> str:
    """The directory of the process that a path leads through."""
    return "/".join(path.split("/")[:3])
