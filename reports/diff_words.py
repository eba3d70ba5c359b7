"""What the forms of a diff say alike: sections, whose states turned, values of both sides, numbers that grew."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.diagnosis import label
from gpudoctor.diff import Area, Change, Counter, Diff, Gap, Side, State, Turn, Way
from gpudoctor.facts.log_moments import in_words
from gpudoctor.reports.words import STATUS_WORDS, counted
from gpudoctor.verdicts import Status, Subject, SubjectKind

NOTHING = "none"
"""What stands for what is not there."""

STATE_WORDS = {
    State.FAIL: "fail",
    State.WARN: "warning",
    State.UNKNOWN: "not known",
    State.BLOCKED: "blocked",
    State.PASS: "well",
    State.SKIP: "not applicable",
    State.WAIVED: "waived",
    State.GONE: "not there",
    State.UNASKED: "not asked",
}

STATUS_OF = {
    State.FAIL: Status.FAIL,
    State.WARN: Status.WARN,
    State.UNKNOWN: Status.UNKNOWN,
    State.BLOCKED: Status.BLOCKED,
    State.PASS: Status.PASS,
    State.SKIP: Status.SKIP,
    State.WAIVED: Status.SKIP,
    State.GONE: Status.SKIP,
    State.UNASKED: Status.UNKNOWN,
}
"""The mark of each state."""


VERDICTS = {Status.PASS: "SAME", Status.WARN: "DIFFERS", Status.FAIL: "FAIL"}
"""The word for the whole beside its mark."""


def badge_word(state: State) -> str:
    """The word beside the mark."""
    own = state in (State.WAIVED, State.GONE, State.UNASKED)
    return state.value.upper() if own else STATUS_WORDS[STATUS_OF[state]]


AREA_WORDS = {
    Area.NODE: "node",
    Area.VERSIONS: "versions",
    Area.PARAMETERS: "parameters",
    Area.FILES: "files",
    Area.GPUS: "GPUs",
    Area.LINKS: "links",
    Area.TOPOLOGY: "topology",
    Area.MODES: "modes",
    Area.SHARING: "sharing",
    Area.COUNTERS: "counters",
    Area.CHECKS: "checks",
}


class Section(Struct, frozen=True):
    """Turns of one kind. Those that follow from others are folded: `following` has how many findings, by what they follow from."""

    key: str
    title: str
    turns: tuple[Turn, ...]
    following: tuple[tuple[str, tuple[Turn, ...]], ...]


# The key of each, its title for two times, and for two nodes where that is another.
_SECTIONS = (
    ("broke", "Broke: new or worse in B", "Wrong in B only, or worse there"),
    ("found", "Wrong in B, and not known in A", ""),
    ("healed", "Healed: well, gone or better in B", "Wrong in A only, or worse there"),
    ("unseen", "Known in A, not known in B", ""),
    ("seen", "Known in B, not known in A", ""),
    ("still", "Wrong in both", ""),
)


def sections(diff: Diff) -> Iterator[Section]:
    """The kinds of turns that there are, in their order."""
    for key, of_times, of_nodes in _SECTIONS:
        title = of_times if diff.way is Way.TIMES else of_nodes or of_times
        turns: tuple[Turn, ...] = getattr(diff, key)
        if not turns:
            continue
        own = tuple(turn for turn in turns if turn.root or not turn.because)
        folded: dict[str, list[Turn]] = {}
        for turn in turns:
            if turn not in own:
                folded.setdefault(", ".join(turn.because), []).append(turn)
        yield Section(key, title, own, tuple((because, tuple(group)) for because, group in folded.items()))


def status(diff: Diff) -> Status:
    """The mark of the whole: what broke is as bad as it is in B, what only differs deserves a look."""
    if diff.same:
        return Status.PASS
    return Status.FAIL if any(turn.b is State.FAIL for turn in (*diff.broke, *diff.found)) else Status.WARN


def relation(diff: Diff) -> str:
    """What A and B are to each other."""
    if diff.way is Way.NODES:
        return f"two nodes ({diff.why})"
    if not diff.hours:
        return f"one node at two times ({diff.why})"
    return f"one node at two times, {duration(diff.hours)} apart ({diff.why})"


def duration(hours: float) -> str:
    """`3.5 h`, `12 min`, `4 days`."""
    length = abs(hours)
    if length < 1:
        return f"{length * 60:.0f} min"
    return f"{length:.1f} h" if length < 72 else f"{length / 24:.1f} days"


def side_parts(side: Side) -> tuple[str, ...]:
    """Who and when, in a few words."""
    node = side.node
    models: dict[str, int] = {}
    for gpu in node.gpus:
        models[gpu.name or "GPU"] = models.get(gpu.name or "GPU", 0) + 1
    told = (
        node.hostname or "unnamed node",
        side.kind + (", redacted" if side.redacted else ""),
        side.at or "time not known",
        node.driver_version and f"driver {node.driver_version}",
        node.kernel and f"kernel {node.kernel}",
        ", ".join(f"{count} x {model}" for model, count in models.items()),
        side.verdict.value.upper(),
    )
    return tuple(part for part in told if part)


def who(turn: Turn) -> str:
    """Whom it is about, "" for the node."""
    subjects = turn.subjects
    return "" if not subjects or subjects[0].kind is SubjectKind.NODE else label(subjects)


def now(turn: Turn) -> str:
    """What B says, or in a word what it does not."""
    if turn.b_says and turn.b is not State.BLOCKED:
        return turn.b_says
    return f"blocked by {', '.join(turn.because)}" if turn.b is State.BLOCKED else STATE_WORDS[turn.b]


def before(turn: Turn) -> str:
    """What A said, where that is another thing; "" where it was just well, or not known for the same words."""
    if turn.a is turn.b:
        return turn.a_says if turn.a_says != turn.b_says else ""
    words = STATE_WORDS[turn.a]
    return f"{words}: {turn.a_says}" if turn.a_says else words


def since(turn: Turn) -> str:
    """The time of the log as people say it."""
    return in_words(turn.since) if turn.since else ""


def of_whom(change: Change) -> str:
    """The GPUs, pairs or checks of a change; "" for the node."""
    subjects = change.subjects
    if not subjects:
        return ""
    match change.area:
        case Area.CHECKS:
            return ""
        case Area.TOPOLOGY if "-" in subjects[0]:
            return subjects[0] if len(subjects) == 1 else counted(len(subjects), "pair")
        case _:
            return label([Subject(SubjectKind.GPU, subject) for subject in subjects])


def value(text: str | None) -> str:
    """One side's value."""
    return NOTHING if text is None else text or "empty"


def number(count: float | None, unit: str) -> str:
    """A counter's value."""
    if count is None:
        return "not known"
    return f"{count:,.1f} {unit}" if unit else f"{count:,.0f}"


def growth(counter: Counter) -> str:
    """By how much, how fast, or why that is not told."""
    if counter.growth is None:
        return counter.note
    unit = f" {counter.unit}" if counter.unit else ""
    grown = f"+{number(counter.growth, counter.unit)}"
    rate = "" if counter.per_hour is None else f", {_rate(counter.per_hour)}{unit} an hour"
    return f"{grown}{rate}{f' ({counter.note})' if counter.note else ''}"


def _rate(per_hour: float) -> str:
    """Three digits at least, never as a power of ten. Rates are rounded to a thousandth."""
    if per_hour == 0:
        return "under 0.001"
    return f"{per_hour:,.0f}" if abs(per_hour) >= 100 else f"{per_hour:.3g}"


def lacking(gap: Gap) -> str:
    """`not recorded in A: /etc/docker/daemon.json`."""
    where = "in both" if gap.side == "both" else f"in {gap.side}"
    return f"{gap.why} ({where})"


def by_area(changes: Sequence[Change]) -> Iterator[tuple[Area, tuple[Change, ...]]]:
    """Changes in their order, area by area."""
    for area in Area:
        found = tuple(change for change in changes if change.area is area)
        if found:
            yield area, found
