"""The desk hands each fact to whoever asks, reading it once."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar, cast

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.raw import Raw
from gpudoctor.verdicts import AboutSubject, Cited, Evidence, Unread, Why

if TYPE_CHECKING:
    import datetime

FactT = TypeVar("FactT", bound="Fact")
ValueT = TypeVar("ValueT")

Reading: TypeAlias = ValueT | Unread
"""A value, or why it is not known. As a check's parameter: the check judges the not-knowing itself."""


class Citable(Struct, frozen=True, kw_only=True):
    """A record that knows where each of its fields was read."""

    read_from: dict[str, Evidence] = {}

    def cite(self, *fields: str) -> Cited:
        """The evidence for the named fields; KeyError for a field that was never read."""
        return tuple(self.read_from[field] for field in fields)


class Fact(Citable, frozen=True, kw_only=True):
    """Something known about a node, parsed from raw answers."""

    OF: ClassVar[Link | None] = None
    """The link that must be up for it to be read: where it is not, a check of another link that needs the fact is blocked."""

    @classmethod
    def gather(cls: type[FactT], desk: "Desk") -> FactT | Unread:
        """Read and parse this fact. Pure but for the raw answers; gives `Unread` rather than guess."""
        raise NotImplementedError


class Population(Fact, frozen=True, kw_only=True):
    """A fact that lists subjects; `unlisted` says why the list may lack some, None when it is complete."""

    NOTHING: ClassVar[str] = "there is nothing of this kind on the node"
    """What an empty, completely listed population means in words."""

    unlisted: Unread | None = None

    @property
    def members(self) -> Sequence[AboutSubject]:
        """The subjects, in a stable order."""
        raise NotImplementedError


class Desk:
    """Facts by type, read at most once a run."""

    def __init__(self, raw: Raw, config: Config, clock: Callable[[], float] = float) -> None:
        """`clock` gives seconds, for `durations`; without one all of them are zero. `today` is the node's, None where it is not known.

        `active` is how thoroughly tests that load the GPUs may be run, 0 for not at all. `watch`, if there is one, is called with a fact's
        name before it is read, and with the seconds that took afterwards.
        """
        self.raw = raw
        self.config = config
        self.active = 0
        self.durations: dict[str, float] = {}
        self.today: datetime.date | None = None
        self.watch: Callable[[str, float | None], None] | None = None
        self.clock = clock
        self._facts: dict[type[Fact], Fact | Unread] = {}

    def get(self, kind: type[FactT]) -> FactT | Unread:
        """The fact, or why it is not known."""
        if kind not in self._facts:
            if self.watch is not None:
                self.watch(kind.__name__, None)
            started = self.clock()
            self._facts[kind] = self._gather(kind)
            self.durations[kind.__name__] = seconds = self.clock() - started
            if self.watch is not None:
                self.watch(kind.__name__, seconds)
        return cast("FactT | Unread", self._facts[kind])

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Why each fact that was asked for could not be read."""
        return tuple(fact for fact in self._facts.values() if isinstance(fact, Unread))

    def asked(self, kind: type[FactT]) -> FactT | Unread | None:
        """The fact, or why it is not known, if somebody asked for it; None if nobody did."""
        return cast("FactT | Unread | None", self._facts.get(kind))

    def known(self, kind: type[FactT]) -> FactT | None:
        """The fact if somebody asked for it and it could be read; asks nothing itself."""
        fact = self._facts.get(kind)
        return None if fact is None or isinstance(fact, Unread) else cast("FactT", fact)

    def _gather(self, kind: type[Fact]) -> Fact | Unread:
        try:
            return kind.gather(self)
        # A parser meets text nobody has seen yet; its bug must cost this fact, not the run.
        except Exception as error:
            return Unread(Why.CRASHED, f"reading {kind.__name__}", f"gpudoctor failed: {type(error).__name__}: {error}")
