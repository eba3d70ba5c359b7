"""The timeline as the page tells it: rows of like events, by day, with those who cite them; and since when each root cause is there."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gpudoctor.details import Details, Event, EventKind, Since
from gpudoctor.facts.log_moments import moment
from gpudoctor.report import Finding, Report
from gpudoctor.reports.html.rows import ADDRESS
from gpudoctor.reports.words import STATUS_ORDER
from gpudoctor.verdicts import Evidence, Status

MOST_ROWS = 120
"""As many rows stand on the page; the report inside has all events that were kept."""
MOST_LETTERS = 300
MOST_CITING = 3
MOST_PLACES = 3
MINUTE = 60.0

WORDS = {
    EventKind.XID: "Xid",
    EventKind.SXID: "SXid",
    EventKind.DRIVER: "driver",
    EventKind.PCIE: "PCIe",
    EventKind.KERNEL: "kernel",
    EventKind.BOOT: "boot",
    EventKind.MODULE: "module",
    EventKind.PACKAGE: "package",
    EventKind.CONFIGURATION: "file",
    EventKind.SERVICE: "service",
}
_GLYPHS = {
    **dict.fromkeys((EventKind.XID, EventKind.SXID, EventKind.DRIVER, EventKind.PCIE, EventKind.KERNEL), "error"),
    EventKind.BOOT: "boot",
    EventKind.MODULE: "module",
    EventKind.PACKAGE: "change",
    EventKind.CONFIGURATION: "change",
    EventKind.SERVICE: "service",
}
_ALARMS = (Status.FAIL, Status.UNKNOWN, Status.WARN)
_BEFORE, _SINCE_BOOT, _OWN_TIMES = "The boot before", "Since boot", "Times of the log's own"
"""Headings of events without a moment in UTC."""
_DATED = re.compile(r"(?:\D{0,6} )?(\d{4}-\d\d-\d\d)[T ]")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


class EventView(Struct, frozen=True):
    """Like events of one moment as one row. `places` are theirs in the report, `citing` one alarm of each check that cites them."""

    places: tuple[int, ...]
    event: Event
    day: str
    clock: str
    gpus: tuple[str, ...]
    status: Status | None
    citing: tuple[Finding, ...]
    more_citing: int

    @property
    def word(self) -> str:
        """What kind of event it is."""
        return WORDS[self.event.kind]

    @property
    def glyph(self) -> str:
        """The name of its picture: an error, or a kind of change."""
        return _GLYPHS[self.event.kind]

    @property
    def says(self) -> str:
        """What happened, as much as is read."""
        return bounded(self.event.says, MOST_LETTERS)

    @property
    def until(self) -> str:
        """When the last of several was, as short as its day allows."""
        day, clock = _split(self.event.until)
        told = self.event.at or not _SECONDS.fullmatch(self.event.stamp)
        if told and _SECONDS.fullmatch(self.event.until):
            return f"{float(self.event.until):.0f} s after a boot"
        return clock if day == self.day and day else self.event.until if not day else f"{day} {clock}"

    @property
    def stamp(self) -> str:
        """The log's own time where that is not the same."""
        return self.event.stamp if self.event.stamp != self.event.at else ""


class SinceView(Struct, frozen=True):
    """Since when a root cause is there, in words, and the rows of what changed around then."""

    at: str
    how: str
    around: tuple[EventView, ...]
    evidence: tuple[Evidence, ...]
    place: int | None


class TimelineView(Struct, frozen=True):
    """The rows by day, the oldest first; `more` events are not told. `row_of` has the row of each event that is."""

    days: tuple[tuple[str, tuple[EventView, ...]], ...] = ()
    count: int = 0
    more: int = 0
    boots: bool = False
    row_of: Mapping[int, EventView] = {}
    begun: Mapping[int, SinceView] = {}
    cited: Mapping[str, tuple[EventView, ...]] = {}

    def since(self, number: int) -> SinceView | None:
        """Of the root cause of that number, which counts from one; None where the report does not say."""
        return self.begun.get(number - 1)

    def of(self, findings: Sequence[Finding]) -> tuple[EventView, ...]:
        """The rows that findings cite, where they are alarms."""
        found = {row.places[0]: row for one in findings if one.status in _ALARMS for row in self.cited.get(one.id, ())}
        return tuple(found.values())[:MOST_PLACES]


def timeline_of(report: Report, details: Details | None) -> TimelineView:
    """The timeline of a report; nothing of one without details."""
    if details is None:
        return TimelineView()
    alarms = {
        finding.id: finding for result in report.results for finding in result.findings if finding.status in _ALARMS
    }
    rows = list(_rows(details.timeline, alarms))
    told = _told(rows)
    row_of = {place: row for row in told for place in row.places}
    begun = {one.cause: _since(one, details.timeline, row_of) for one in details.since}
    cited: dict[str, list[EventView]] = {}
    for row in told:
        for place in row.places:
            for finding in details.timeline[place].findings:
                if finding in alarms and row not in cited.setdefault(finding, []):
                    cited[finding].append(row)
    return TimelineView(
        days=tuple(_days(told)),
        count=sum(len(row.places) for row in rows) + details.more_events,
        more=details.more_events + sum(len(row.places) for row in rows) - sum(len(row.places) for row in told),
        boots=any(event.previous_boot for event in details.timeline),
        row_of=row_of,
        begun=begun,
        cited={finding: tuple(found) for finding, found in cited.items()},
    )


def bounded(text: str, most: int) -> str:
    """A text as far as it is read, and how many bytes more there are."""
    if len(text) <= most:
        return text
    more = len(text[most:].encode("utf-8", "surrogatepass"))
    return f"{text[:most]}\u2026 {more:,} more bytes"


def _rows(events: Sequence[Event], alarms: Mapping[str, Finding]) -> Iterator[EventView]:
    """Events that follow each other and say the same of several devices within a minute are one row."""
    group: list[int] = []
    for place, event in enumerate(events):
        if group and not _alike(events[group[0]], event):
            yield _row(group, events, alarms)
            group = []
        group.append(place)
    if group:
        yield _row(group, events, alarms)


def _alike(one: Event, other: Event) -> bool:
    return (
        bool(one.gpu and other.gpu)
        and (one.kind, one.count, one.previous_boot, ADDRESS.sub("*", one.says))
        == (other.kind, other.count, other.previous_boot, ADDRESS.sub("*", other.says))
        and _within_a_minute(one, other)
    )


def _within_a_minute(one: Event, other: Event) -> bool:
    """Of events without a moment by their log's own times; without any time nothing lies between them in their log."""
    if one.at or other.at or one.stamp == other.stamp:
        return one.at[:16] == other.at[:16]
    begin, end = moment(one.stamp), moment(other.stamp)
    return one.where == other.where and begin is not None and end is not None and abs(end - begin) < MINUTE


def _row(places: Sequence[int], events: Sequence[Event], alarms: Mapping[str, Finding]) -> EventView:
    first = events[places[0]]
    by_check: dict[str, Finding] = {}
    worst: Status | None = None
    for place in places:
        for one in events[place].findings:
            finding = alarms.get(one)
            if finding is not None:
                by_check.setdefault(finding.id.partition("@")[0], finding)
                worst = finding.status if worst is None else min(worst, finding.status, key=STATUS_ORDER.index)
    day, clock = _split(first.at)
    citing = tuple(by_check.values())
    return EventView(
        places=tuple(places),
        event=first,
        day=day,
        clock=clock,
        gpus=tuple(dict.fromkeys(events[place].gpu for place in places if events[place].gpu)),
        status=worst,
        citing=citing[:MOST_CITING],
        more_citing=max(0, len(citing) - MOST_CITING),
    )


def _told(rows: Sequence[EventView]) -> list[EventView]:
    """What alarms cite before anything else, then the latest."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    ranked = sorted(range(len(rows)), key=lambda place: (rows[place].status is None, -place))
    return [rows[place] for place in sorted(ranked[:MOST_ROWS])]


def _days(rows: Sequence[EventView]) -> Iterator[tuple[str, tuple[EventView, ...]]]:
    """By the day in UTC, else that of the log's own time; what has neither stands with what is before it in its log."""
    day, group = "", list[EventView]()
    for row in rows:
        own = row.day or _own_day(row.event) or ("" if day == _BEFORE and not row.event.previous_boot else day)
        if own != day and group:
            yield day, tuple(group)
            group = []
        day = own
        group.append(row)
    if group:
        yield day, tuple(group)


def _own_day(event: Event) -> str:
    """The heading under which an event without a certain moment stands; "" where its log tells no more than an order."""
    dated = _DATED.match(event.stamp)
    if dated is not None:
        return dated[1]
    if event.previous_boot:
        return _BEFORE
    if _SECONDS.fullmatch(event.stamp) is not None:
        return _SINCE_BOOT
    return _OWN_TIMES if event.stamp else ""


def _split(at: str) -> tuple[str, str]:
    """Day and time of day of a moment in UTC."""
    return (at[:10], at[11:19]) if at.endswith("Z") and at[10:11] == "T" else ("", "")


def _since(one: Since, events: Sequence[Event], row_of: Mapping[int, EventView]) -> SinceView:
    around = {row.places[0]: row for place in one.around if (row := row_of.get(place)) is not None}
    told = next((row_of[place] for place, event in enumerate(events) if place in row_of and _tells(one, event)), None)
    return SinceView(one.at, one.how, tuple(around.values()), one.evidence, None if told is None else told.places[0])


def _tells(one: Since, event: Event) -> bool:
    """Whether an event is the one by which a beginning is known."""
    return any(seen.where == event.where and seen.shows == event.says and event.at == one.at for seen in one.evidence)
