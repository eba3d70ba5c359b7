"""Events while a timeline is being put together, and who cites the lines that they tell."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.details import Event, EventKind
from gpudoctor.facts.clock import LAST, in_utc
from gpudoctor.report import Finding, Report
from gpudoctor.verdicts import Evidence, Status, cut

MOST_LETTERS = 300
"""As much of a line is told."""
MOST_OF_A_STAMP = 80
MOST_FINDINGS = 256
ALARMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)


class Draft(Struct):
    """An event. `moment` is in seconds since the epoch where that is certain, `order` about then; `alike` is what like ones share.

    `last` is the stamp of the last of `count` like ones, `last_moment` its moment; `alarming` says that an alarm of the report cites it.
    """

    kind: EventKind
    says: str
    where: str
    stamp: str = ""
    moment: float | None = None
    order: float = 0.0
    gpu: str = ""
    alike: str = ""
    count: int = 1
    last: str = ""
    last_moment: float | None = None
    previous_boot: bool = False
    findings: dict[str, None] = {}
    alarming: bool = False

    def cited_by(self, findings: Iterable[Finding]) -> None:
        """Remember who cites it."""
        for finding in findings:
            self.findings[finding.id] = None
            self.alarming = self.alarming or finding.status in ALARMS

    def take(self, other: "Draft") -> None:
        """Let a later one like it be told with it."""
        self.count += other.count
        self.last, self.last_moment = other.last or other.stamp, other.last_moment or other.moment
        self.findings |= other.findings
        self.alarming = self.alarming or other.alarming

    @property
    def event(self) -> Event:
        """As it is told."""
        return Event(
            at=_told(self.moment),
            kind=self.kind,
            says=cut(self.says, MOST_LETTERS),
            where=cut(self.where, MOST_LETTERS),
            stamp=cut(self.stamp, MOST_OF_A_STAMP),
            gpu=self.gpu,
            count=self.count,
            until=_told(self.last_moment) or cut(self.last, MOST_OF_A_STAMP),
            previous_boot=self.previous_boot,
            findings=tuple(self.findings)[:MOST_FINDINGS],
        )


def _told(moment: float | None) -> str:
    """In UTC; "" of what no calendar has, as a file's time may be that somebody made up."""
    return in_utc(moment) if moment is not None and 0 < moment < LAST else ""


class Citations:
    """Evidence of a report by the place it was read at, with the findings that cite it."""

    def __init__(self, report: Report) -> None:
        self._by_place: dict[str, dict[Evidence, list[Finding]]] = {}
        for result in report.results:
            for finding in result.findings:
                for seen in finding.evidence:
                    self._by_place.setdefault(seen.where, {}).setdefault(seen, []).append(finding)

    def of(self, where: str) -> Iterator[tuple[Evidence, list[Finding]]]:
        """What was read at a place."""
        yield from self._by_place.get(where, {}).items()

    def places(self, begin: str) -> Iterator[str]:
        """The places whose name begins so."""
        return (place for place in self._by_place if place.startswith(begin))

    def findings(self, where: str) -> list[Finding]:
        """Whoever cites a place, whatever was read there."""
        return [finding for found in self._by_place.get(where, {}).values() for finding in found]
