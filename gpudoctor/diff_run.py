"""One run of `gpudoctor diff` over two sides that were looked at: compare every part, decide whether they are the same."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpudoctor.diff import SCHEMA, Area, Change, Counter, Diff, Gap, Side, Turn, Way
from gpudoctor.differing import counters, files, findings, hardware, identity, modes, versions
from gpudoctor.differing.counters import Between, between
from gpudoctor.differing.findings import Turns
from gpudoctor.differing.likeness import Likeness, likeness
from gpudoctor.differing.party import Pairs, Party, paired
from gpudoctor.report import Report, RootCause

MOST_CHANGES = 400
"""Of what changed and of what differs by identity as many are told."""
_AREAS = {area: place for place, area in enumerate(Area)}


def diff(a: Party, b: Party, wished: Way | None = None) -> Diff:
    """What differs. `wished` overrides what tells whether A and B are one node."""
    told, why = identity.told_apart(a, b)
    way = told if wished is None else wished
    pairs = paired(a, b, way)
    words = likeness(a, b, pairs)
    time = between(a, b)
    turned, unrecorded = findings.turns(a, b, words)
    changes, gaps = _parts(a, b, pairs, way, words)
    counted, more = _counted(a, b, pairs, way, time)
    own = [*identity.by_identity(a, b, pairs, way), *(one for one in changes if _is_identity(one))]
    other = _folded(one for one in changes if not _is_identity(one))
    gaps_told = tuple(_merged((*_whole_reports(a, b), *gaps, *more, *unrecorded)))
    same = not _differ(turned, other, counted)
    return Diff(
        schema=SCHEMA,
        tool=b.report.tool,
        way=way,
        why=why if wished is None or wished is told else f"--as {way.value}; it looks otherwise: {why}",
        a=_side(a),
        b=_side(b),
        hours=None if time.hours is None else round(time.hours, 3),
        same=same,
        exit_code=0 if same else 1,
        headline=_same(own, gaps_told) if same else _headline(turned, other, counted, way),
        notes=tuple(_notes(a, b, way, time)),
        broke=turned.broke,
        healed=turned.healed,
        found=turned.found,
        unseen=turned.unseen,
        seen=turned.seen,
        still=turned.still,
        changes=tuple(other[:MOST_CHANGES]),
        counters=tuple(counted),
        identity=tuple(_folded(own)[:MOST_CHANGES]),
        gaps=gaps_told,
    )


def _parts(a: Party, b: Party, pairs: Pairs, way: Way, words: Likeness) -> tuple[list[Change], list[Gap]]:
    found: list[Change | Gap] = [
        *versions.versions(a, b, pairs),
        *versions.parameters(a, b, words),
        *files.files(a, b, words),
        *hardware.gpus(a, b, pairs, way),
        *hardware.links(a, b, pairs),
        *hardware.topology(a, b, pairs, way),
        *modes.modes(a, b, pairs),
        *modes.sharing(a, b, pairs, words),
        *findings.applying(a, b),
        *findings.unasked(a, b),
    ]
    return [one for one in found if isinstance(one, Change)], [one for one in found if isinstance(one, Gap)]


def _counted(a: Party, b: Party, pairs: Pairs, way: Way, time: Between) -> tuple[list[Counter], list[Gap]]:
    parts = (counters.counters, counters.errors_of_links, counters.xids)
    found = [one for part in parts for one in part(a, b, pairs, way, time)]
    return [one for one in found if isinstance(one, Counter)], [one for one in found if isinstance(one, Gap)]


def _is_identity(change: Change) -> bool:
    """What does not count but for the names in it; links' speeds and checks that apply are told in their areas."""
    return not change.counts and change.area not in (Area.LINKS, Area.CHECKS)


def _folded(changes: Iterable[Change]) -> list[Change]:
    """In the order of areas, those that say the same of several GPUs together."""
    alike: dict[Change, list[str]] = {}
    for change in changes:
        alike.setdefault(replace(change, subjects=()), []).extend(change.subjects)
    found = [replace(change, subjects=tuple(dict.fromkeys(subjects))) for change, subjects in alike.items()]
    return sorted(found, key=lambda change: _AREAS[change.area])


def _merged(gaps: Sequence[Gap]) -> Iterator[Gap]:
    alike: dict[tuple[Area, str, str], list[str]] = {}
    for gap in gaps:
        alike.setdefault((gap.area, gap.side, gap.why), []).extend(gap.what)
    for (area, side, why), what in alike.items():
        yield Gap(area, side, tuple(dict.fromkeys(what)), why)


def _whole_reports(a: Party, b: Party) -> Iterator[Gap]:
    """A saved report holds nothing of these."""
    without = [party.letter for party in (a, b) if party.desk is None]
    if without:
        side = "both" if len(without) > 1 else without[0]
        areas = (Area.PARAMETERS, Area.FILES, Area.LINKS, Area.TOPOLOGY, Area.MODES, Area.COUNTERS)
        yield Gap(Area.NODE, side, tuple(area.value for area in areas), "a saved report does not hold them")


def _side(party: Party) -> Side:
    report = party.report
    return Side(
        given=party.given,
        kind=report.node.source if party.desk is not None else "report",
        facts=party.desk is not None,
        redacted=party.redacted,
        at=None if party.at is None else party.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        node=report.node,
        tool=report.tool,
        verdict=report.verdict,
        causes=tuple(_words(cause) for cause in report.root_causes),
    )


def _words(cause: RootCause) -> str:
    return f"{cause.check}: {cause.summary}"


def _differ(turned: Turns, changes: Sequence[Change], counted: Sequence[Counter]) -> bool:
    moved = (turned.broke, turned.healed, turned.found, turned.unseen, turned.seen)
    return (
        any(moved)
        or any(not turn.same_words for turn in turned.still)
        or any(change.counts for change in changes)
        or any(counter.counts for counter in counted)
    )


def _same(own: Sequence[Change], gaps: Sequence[Gap]) -> str:
    words = "the same but for identity" if own else "the same"
    return f"{words}, as far as both tell" if gaps else words


def _headline(turned: Turns, changes: Sequence[Change], counted: Sequence[Counter], way: Way) -> str:
    """What differs, in numbers."""
    times = way is Way.TIMES
    parts = (
        (_own(turned.broke), "broke" if times else "wrong in B only, or worse"),
        (_own(turned.healed), "healed" if times else "wrong in A only, or worse"),
        (_own(turned.found), "wrong in B and not known in A"),
        (_own(turned.unseen), "no longer known" if times else "known in A only"),
        (_own(turned.seen), "known now" if times else "known in B only"),
        (sum(1 for turn in turned.still if not turn.same_words), "wrong in another way"),
        (sum(1 for change in changes if change.counts), "changed" if times else "different"),
        (sum(1 for counter in counted if counter.counts), "counted on" if times else "counted otherwise"),
    )
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def _own(turned: Sequence[Turn]) -> int:
    """Those that follow from nothing; where all do, all."""
    return sum(1 for turn in turned if turn.root or not turn.because) or len(turned)


def _notes(a: Party, b: Party, way: Way, time: Between) -> Iterator[str]:
    """What bears on all of it."""
    if way is Way.TIMES:
        if time.hours is not None and time.hours < 0:
            yield "B was looked at before A: what broke and what healed change places"
        if time.same_load is False:
            yield f"{time.why}: counters since then start anew"
    one, two = a.report.tool, b.report.tool
    if (one.version, one.tables_date) != (two.version, two.tables_date):
        yield f"A was judged by gpudoctor {one.version} of {one.tables_date}, B by {two.version} of {two.tables_date}"
    if one.config_digest != two.config_digest:
        yield "A and B were judged under different configurations"
    if a.redacted != b.redacted:
        redacted, raw = ("A", "B") if a.redacted else ("B", "A")
        yield f"{redacted} is redacted and {raw} is not: names, serials and addresses are not compared"
    if _uids(a.report, b.report):
        yield f"A was looked at as {_user(a.report)}, B as {_user(b.report)}"


def _uids(one: Report, two: Report) -> bool:
    uids = one.node.uid, two.node.uid
    return None not in uids and uids[0] != uids[1]


def _user(report: Report) -> str:
    return "root" if report.node.uid == 0 else f"user {report.node.uid}"
