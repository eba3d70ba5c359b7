"""What changed from one pass to the next, as `gpudoctor.diff` tells it: words and signs for what is new, worse, better or healed."""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpudoctor.details import FullReport
from gpudoctor.diff import WRONG, Area, Diff, Turn, Way
from gpudoctor.report import Overall, Report
from gpudoctor.reports.words import headline
from gpudoctor.verdicts import Subject

NEW, WORSE, BETTER, HEALED = "new", "worse", "better", "healed"
FOUND, UNSEEN, SEEN = "now seen", "no longer known", "known again"

GLYPHS = {
    NEW: ("▲", "^"),
    WORSE: ("▲", "^"),
    FOUND: ("▲", "^"),
    UNSEEN: ("◌", "~"),
    BETTER: ("▼", "v"),
    HEALED: ("▼", "v"),
    SEEN: ("▼", "v"),
}
"""The sign of each word, and its twin in ASCII; the words are in the order in which they matter."""
STYLES = {
    NEW: "bold $text-error",
    WORSE: "bold $text-error",
    FOUND: "bold $text-warning",
    UNSEEN: "bold $text-accent",
    BETTER: "$text-success",
    HEALED: "$text-success",
    SEEN: "$text-success",
}
MOST_PASSES = 100
_ORDER = tuple(GLYPHS)


class Pass(Struct, frozen=True):
    """A pass of this session. `diff` is what changed since the one before it, None for the first."""

    number: int
    at: str
    seconds: float
    verdict: Overall
    headline: str
    diff: Diff | None

    @property
    def changes(self) -> str:
        """What changed, in numbers; "" for the first."""
        return "" if self.diff is None else counted(self.diff)


_last: list[tuple[Report, Report, Diff]] = []


def compared(before: Report, after: Report) -> Diff:
    """The diff of two passes over one node; asked for again and again, so that the last is kept."""
    if _last and _last[0][0] is before and _last[0][1] is after:
        return _last[0][2]
    found = diff_of(before, after, Way.TIMES, ("the pass before", "this pass"))
    _last[:] = [(before, after, found)]
    return found


def diff_of(a: Report, b: Report, way: Way | None, names: tuple[str, str]) -> Diff:
    """What differs between two reports, of which nothing is known but their findings."""
    from gpudoctor.diff_run import diff
    from gpudoctor.differing.party import Party

    return diff(Party("A", names[0], a, None, _moment(a)), Party("B", names[1], b, None, _moment(b)), way)


def marks(before: Report, after: Report) -> dict[str, str]:
    """The word for each check that changed since the pass before; of several the one that matters most."""
    found: dict[str, str] = {}
    for word, turn in _turns(compared(before, after)):
        found[turn.check] = most_telling((found.get(turn.check, ""), word))
    return found


class FindingMarks(Struct, frozen=True):
    """The words for findings, by check and subject."""

    words: Mapping[tuple[str, str], str] = {}

    def of(self, finding_id: str, subject: Subject) -> str:
        """The word for a finding, "" where nothing changed. Checks say several things of a subject, so `#2` is left out of ids."""
        return self.words.get((finding_id.partition("@")[0], subject.id), "")


def finding_marks(before: Report | None, after: Report | None) -> FindingMarks:
    """The words for all findings; none without a pass before."""
    if before is None or after is None or before is after:
        return FindingMarks()
    turned = _turns(compared(before, after))
    return FindingMarks({(turn.check, subject.id): word for word, turn in turned for subject in turn.subjects})


def changes_line(before: Report, after: Report) -> str:
    """What changed since the pass before, in one line."""
    found = counted(compared(before, after))
    since = f"since {clock(before.started_at)}"
    return f"{since}: {found}" if found else f"no change {since}"


def counted(diff: Diff) -> str:
    """`1 new, 2 healed, 1 other change`; "" where nothing changed. What follows from something else is not counted beside it."""
    numbers = dict.fromkeys(_ORDER, 0)
    own = [(word, turn) for word, turn in _turns(diff) if turn.root or not turn.because]
    for word, turn in own or _turns(diff):
        numbers[word] += len(turn.subjects)
    other = sum(1 for change in diff.changes if change.counts)
    other += sum(1 for turn in diff.still if not turn.same_words)
    told = [f"{number} {word}" for word, number in numbers.items() if number]
    if other:
        told.append(f"{other} other change{'' if other == 1 else 's'}")
    return ", ".join(told)


def hot_plugged(before: Report, after: Report) -> list[str]:
    """A line for each GPU that came or went, as far as both listings of the bus are whole."""
    lines: list[str] = []
    for change in compared(before, after).changes:
        if change.area is not Area.GPUS:
            continue
        if change.b is None and change.a is not None:
            lines.append(f"{change.what} has gone: {change.a}")
        elif change.a is None and change.b is not None:
            lines.append(f"{change.what} is new: {change.b}")
        elif change.what == "slot":
            lines.append(f"GPU {change.a} is at {change.b} now ({change.note})")
    return lines


def noted(history: Sequence[Pass], before: FullReport | None, report: FullReport) -> list[Pass]:
    """The history with one more pass; the oldest are left out."""
    number = history[-1].number + 1 if history else 1
    diff = None if before is None else compared(before, report)
    this = Pass(number, report.started_at, report.seconds, report.verdict, headline(report), diff)
    return [*history, this][-MOST_PASSES:]


def most_telling(words: Iterable[str]) -> str:
    """Of several words the one that matters most; "" of none."""
    return min((word for word in words if word), key=_ORDER.index, default="")


def marked(word: str, *, ascii: bool = False) -> str:  # noqa: A002 - as `Look` calls it
    """`▲ new`; "" for no word."""
    return f"{glyph(word, ascii=ascii)} {word}" if word else ""


def glyph(word: str, *, ascii: bool = False) -> str:  # noqa: A002 - as `Look` calls it
    """The sign of a word."""
    return GLYPHS[word][ascii]


def clock(stamp: str) -> str:
    """The time of a day of `2026-11-29T12:00:00Z`."""
    day, found, time = stamp.partition("T")
    return time if found else day


def _turns(diff: Diff) -> list[tuple[str, Turn]]:
    """All that turned, each with its word."""
    return [
        *((WORSE if turn.a in WRONG else NEW, turn) for turn in diff.broke),
        *((FOUND, turn) for turn in diff.found),
        *((UNSEEN, turn) for turn in diff.unseen),
        *((BETTER if turn.b in WRONG else HEALED, turn) for turn in diff.healed),
        *((SEEN, turn) for turn in diff.seen),
    ]


def _moment(report: Report) -> datetime.datetime | None:
    try:
        found = datetime.datetime.strptime(report.started_at, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None
    return found.replace(tzinfo=datetime.timezone.utc)
