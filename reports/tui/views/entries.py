"""What a diff tells, entry by entry: what broke and healed, what else changed, counters, what was not compared, and mere identity."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from gpudoctor.diff import WRONG, Area, Change, Counter, Diff, Gap, Turn, Way
from gpudoctor.reports import diff_words as words
from gpudoctor.reports.tui.badges import STYLES, node_text
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import names
from gpudoctor.reports.words import counted
from gpudoctor.verdicts import Status

_KINDS = {
    "broke": ("▲", "^", "broke", STYLES[Status.FAIL]),
    "worse": ("▲", "^", "worse", STYLES[Status.FAIL]),
    "found": ("▲", "^", "now seen", STYLES[Status.WARN]),
    "healed": ("▼", "v", "healed", STYLES[Status.PASS]),
    "better": ("▼", "v", "better", STYLES[Status.PASS]),
    "unseen": ("◌", "~", "not known", STYLES[Status.UNKNOWN]),
    "seen": ("▼", "v", "known", STYLES[Status.PASS]),
    "still": ("■", "=", "still", "dim"),
    "change": ("≠", "/", "changed", ""),
    "counter": ("#", "#", "counter", ""),
    "gap": ("·", ".", "not compared", "dim"),
    "identity": ("≡", "%", "identity", "dim"),
}
# Between two nodes nothing broke and nothing healed.
_OF_NODES = {
    "broke": "in B only",
    "worse": "worse in B",
    "healed": "in A only",
    "better": "better in B",
    "change": "different",
}


class Entry(Struct, frozen=True):
    """One difference: of which kind, about whom, in a few words, and all of it."""

    id: str
    kind: Content
    whom: str
    says: str
    about: tuple[Line, ...]
    words: tuple[str, ...] = ()


def entries(diff: Diff, *, ascii: bool) -> tuple[Entry, ...]:  # noqa: A002 - as `Look` calls it
    """All that differs, in the order of `gpudoctor diff`; what follows from something else, and mere identity, are each one entry."""
    found = [
        *_turns(diff, ascii=ascii),
        *(_change(change, diff, ascii=ascii) for change in diff.changes),
        *(_counter(counter, diff, ascii=ascii) for counter in diff.counters),
        *(_gap(gap, diff, ascii=ascii) for gap in diff.gaps),
        *_identity(diff, ascii=ascii),
    ]
    ids = names(entry.id for entry in found)
    return tuple(replace(entry, id=identity) for identity, entry in zip(ids, found, strict=True))


def in_short(diff: Diff, *, ascii: bool) -> Iterator[Line]:  # noqa: A002 - as `Look` calls it
    """Each difference in a line, without what was not compared."""
    for entry in entries(diff, ascii=ascii):
        if not entry.id.startswith(("gap:", "identity", "still")):
            whom = f"{entry.whom}: " if entry.whom else ""
            opens = next((line.opens for line in entry.about if line.opens), ())
            yield Line(node_text(f"{whom}{entry.says}"), entry.kind, 14, opens=opens)


def _kind(name: str, diff: Diff, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    fancy, plain, word, style = _KINDS[name]
    told = _OF_NODES.get(name, word) if diff.way is Way.NODES else word
    return Content.styled(f"{plain if ascii else fancy} {told}", style)


def _turns(diff: Diff, *, ascii: bool) -> Iterator[Entry]:  # noqa: A002 - as `Look` calls it
    for section in words.sections(diff):
        for turn in section.turns:
            name = section.key
            if turn.a in WRONG and turn.b in WRONG:
                name = {"broke": "worse", "healed": "better"}.get(name, name)
            whom = words.who(turn)
            yield Entry(
                f"{section.key}:{turn.check}:{turn.subjects[0].id if turn.subjects else ''}",
                _kind(name, diff, ascii=ascii),
                turn.check,
                f"{f'{whom}: ' if whom else ''}{words.now(turn)}",
                tuple(_told(turn, section.title, ascii=ascii)),
                tuple(subject.id for subject in turn.subjects),
            )
        for because, turns in section.following:
            yield _following(section, because, turns, diff, ascii=ascii)


def _following(
    section: words.Section,
    because: str,
    turns: Sequence[Turn],
    diff: Diff,
    *,
    ascii: bool,  # noqa: A002 - as `Look` calls it
) -> Entry:
    checks = list(dict.fromkeys(turn.check for turn in turns))
    about = [lines.heading(f"{section.title}: follows from {because}")]
    for turn in turns:
        about += [lines.marked(words.STATUS_OF[turn.b], node_text(f"{turn.check}: {words.now(turn)}"), ascii=ascii)]
    return Entry(
        f"{section.key}:because:{because}",
        _kind(section.key, diff, ascii=ascii),
        counted(len(checks), "check"),
        f"{'follows' if len(checks) == 1 else 'follow'} from {because}",
        tuple(about),
        tuple(checks),
    )


def _told(turn: Turn, title: str, *, ascii: bool) -> Iterator[Line]:  # noqa: A002 - as `Look` calls it
    """A turn in full; in B stands what the report that is shown says, so that its findings can be opened."""
    yield lines.heading(f"{turn.check}: {turn.title}")
    yield lines.said(title, "dim")
    name = turn.check
    opens = tuple(f"{name}@{subject.id}" for subject in turn.subjects) if turn.b in WRONG else ()
    whom = words.who(turn)
    said = node_text(f"{f'{whom}: ' if whom else ''}{words.now(turn)}", "bold")
    yield lines.marked(words.STATUS_OF[turn.b], said, ascii=ascii, opens=opens)
    if was := words.before(turn):
        yield from lines.fact("before", was)
    if turn.since:
        yield from lines.fact("since", words.since(turn))
    for seen in turn.evidence:
        yield lines.evidence(seen)
    if turn.explains:
        yield from lines.fact("explains", counted(turn.explains, "finding"))
    if turn.because:
        yield from lines.fact("follows from", ", ".join(turn.because))
    if len(turn.subjects) > 1:
        yield lines.heading(f"About {len(turn.subjects)}")
        for subject in turn.subjects:
            yield Line(node_text(subject.id), copies=subject.key)


def _change(change: Change, diff: Diff, *, ascii: bool) -> Entry:  # noqa: A002 - as `Look` calls it
    whom = words.of_whom(change)
    return Entry(
        f"change:{change.area.value}:{whom}:{change.what}",
        _kind("change", diff, ascii=ascii),
        words.AREA_WORDS[change.area],
        f"{f'{whom}: ' if whom else ''}{change.what}: {_values(change, ascii=ascii)}",
        tuple(_change_told(change)),
        change.subjects,
    )


def _change_told(change: Change) -> Iterator[Line]:
    yield lines.heading(f"{words.AREA_WORDS[change.area]}: {change.what}")
    yield from lines.fact("A", words.value(change.a))
    yield from lines.fact("B", words.value(change.b))
    yield from lines.fact("note", change.note)
    if not change.counts:
        yield lines.said("It does not count: the two are the same for all that.", "dim")
    for line in change.diff:
        style = {"-": "$text-error", "+": "$text-success"}.get(line[:1], "dim")
        yield Line(node_text(line, style), copies=line)
    if change.omitted:
        yield lines.said(f"and {counted(change.omitted, 'more line')}", "dim")
    if change.subjects:
        yield lines.heading("Of" if change.area is not Area.CHECKS else "Checks")
        for subject in change.subjects:
            yield Line(node_text(subject), copies=subject)


def _values(change: Change, *, ascii: bool) -> str:  # noqa: A002 - as `Look` calls it
    if change.diff and change.a == change.b:
        return counted(len(change.diff) + change.omitted, "line")
    return f"{words.value(change.a)} {'->' if ascii else '→'} {words.value(change.b)}"


def _counter(counter: Counter, diff: Diff, *, ascii: bool) -> Entry:  # noqa: A002 - as `Look` calls it
    a, b = words.number(counter.a, counter.unit), words.number(counter.b, counter.unit)
    about = [lines.heading(f"{counter.what} of {counter.subject}")]
    for label, value in (("A", a), ("B", b), ("growth", words.growth(counter))):
        about += lines.fact(label, value)
    if not counter.counts:
        about.append(lines.said("It does not count: nothing follows from it.", "dim"))
    says = f"{counter.what}: {a} {'->' if ascii else '→'} {b}  {words.growth(counter)}"
    return Entry(
        f"counter:{counter.subject}:{counter.what}",
        _kind("counter", diff, ascii=ascii),
        counter.subject,
        says,
        tuple(about),
    )


def _gap(gap: Gap, diff: Diff, *, ascii: bool) -> Entry:  # noqa: A002 - as `Look` calls it
    about = [lines.heading(f"{words.AREA_WORDS[gap.area]}: {words.lacking(gap)}")]
    about += [Line(node_text(what), copies=what) for what in gap.what]
    shown = ", ".join(gap.what[:4]) + (f" and {len(gap.what) - 4} more" if len(gap.what) > 4 else "")
    kind = _kind("gap", diff, ascii=ascii)
    says = f"{words.lacking(gap)}: {shown}"
    return Entry(
        f"gap:{gap.area.value}:{words.lacking(gap)}", kind, words.AREA_WORDS[gap.area], says, tuple(about), gap.what
    )


def _identity(diff: Diff, *, ascii: bool) -> Iterator[Entry]:  # noqa: A002 - as `Look` calls it
    if not diff.identity:
        return
    about = [lines.heading("By identity only: nothing of it counts")]
    for change in diff.identity:
        whom = words.of_whom(change)
        said = f"{f'{whom}: ' if whom else ''}{change.what}: {_values(change, ascii=ascii)}"
        about.append(Line(node_text(said), copies=said))
    names = ", ".join(dict.fromkeys(change.what for change in diff.identity))
    kind = _kind("identity", diff, ascii=ascii)
    yield Entry("identity", kind, "", f"by identity only: {names}", tuple(about))
