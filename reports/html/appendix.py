"""Everything that findings quote, by link and by where it was read: each distinct line once, with the checks that cite it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.report import Report
from gpudoctor.reports.html.rows import ADDRESS
from gpudoctor.reports.html.timeline import bounded
from gpudoctor.verdicts import Evidence, Status

MOST_LETTERS = 500
"""As much of a line is shown."""
MOST_IN_ALL = 28_000
"""Letters of lines in the whole appendix: what alarms cite comes first, and the rest is in the report inside the page."""
MOST_NAMED = 4

_ALARMS = (Status.FAIL, Status.UNKNOWN, Status.WARN)


class RawLine(Struct, frozen=True):
    """Words that were read. Where other devices show other words, `of` names those that show these."""

    at: str
    shows: str
    of: str


class Source(Struct, frozen=True):
    """A place that was read: with a `*` for the address of each device whose place is like it; `more` lines are not shown."""

    where: str
    devices: int
    lines: tuple[RawLine, ...]
    more: int
    checks: tuple[str, ...]


class LinkSources(Struct, frozen=True):
    """What findings of one link quote."""

    link: Link
    sources: tuple[Source, ...]
    lines: int
    more: int


def appendix_of(report: Report) -> tuple[LinkSources, ...]:
    """The sources by link, in the order of the chain."""
    found: dict[Link, dict[str, _Place]] = {}
    for result in report.results:
        places = found.setdefault(result.link, {})
        for finding in result.findings:
            for seen in finding.evidence:
                place = places.setdefault(ADDRESS.sub("*", seen.where), _Place())
                place.take(seen, result.check, alarming=finding.status in _ALARMS)
    every = [place for places in found.values() for place in places.values()]
    room = MOST_IN_ALL
    for place in sorted(every, key=lambda one: not one.alarming):
        room -= place.keep(room)
    return tuple(_of_link(link, found[link]) for link in Link if found.get(link))


def _of_link(link: Link, places: "dict[str, _Place]") -> LinkSources:
    sources = tuple(place.source(where) for where, place in places.items() if place.kept)
    left = sum(place.total for place in places.values()) - sum(len(source.lines) for source in sources)
    return LinkSources(link, sources, sum(len(source.lines) for source in sources), left)


class _Place:
    """One place, and those that are like it but for the device."""

    def __init__(self) -> None:
        self.alarming = False
        self.kept: tuple[RawLine, ...] = ()
        self.total = 0
        self._checks: dict[str, None] = {}
        self._wheres: dict[str, None] = {}
        # By what is shown, the addresses in it left aside: where it was read, the words there, and the times.
        self._shown: dict[str, list[Evidence]] = {}

    def take(self, seen: Evidence, check: str, *, alarming: bool) -> None:
        """Remember a citation."""
        self.alarming = self.alarming or alarming
        self._checks[check] = None
        self._wheres[seen.where] = None
        alike = self._shown.setdefault(f"{seen.at or ''}\0{ADDRESS.sub('*', seen.shows)}", [])
        if seen not in alike[-16:]:
            alike.append(seen)

    def keep(self, room: int) -> int:
        """Keep as many lines as there is room for, and say how much they take."""
        lines: list[RawLine] = []
        taken = 0
        self.total = len(self._shown)
        for alike in self._shown.values():
            line = self._line(alike)
            size = len(line.shows) + len(line.of) + 60
            if taken + size > room:
                break
            taken += size
            lines.append(line)
        self.kept = tuple(lines)
        return taken

    def source(self, where: str) -> Source:
        """As it is told."""
        only = next(iter(self._wheres))
        return Source(
            where=only if len(self._wheres) == 1 else where,
            devices=len(self._wheres),
            lines=self.kept,
            more=self.total - len(self.kept),
            checks=tuple(self._checks),
        )

    def _line(self, alike: Sequence[Evidence]) -> RawLine:
        wheres = list(dict.fromkeys(one.where for one in alike))
        words = {one.shows for one in alike}
        shows = alike[0].shows if len(words) == 1 else ADDRESS.sub("*", alike[0].shows)
        of = _named(wheres) if len(self._wheres) > 1 and len(wheres) < len(self._wheres) else ""
        if len(words) > 1 and len(self._wheres) == 1:
            of = _named([one.shows for one in alike])
        return RawLine(alike[0].at or "", bounded(shows, MOST_LETTERS), of)


def _named(texts: Sequence[str]) -> str:
    """The devices whose addresses stand in texts."""
    names = list(dict.fromkeys(address for text in texts for address in _addresses(text)))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _addresses(text: str) -> Iterator[str]:
    yield from (match[0] for match in ADDRESS.finditer(text))
