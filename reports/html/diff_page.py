"""A diff as one HTML page, A and B side by side: no request, no script to be read, everything of a node cleaned and escaped."""

from collections.abc import Callable, Iterator
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from gpudoctor.diff import Area, Change, Counter, Diff, Gap, Side, Turn, Way
from gpudoctor.reports import diff_words as words
from gpudoctor.reports.html.page import fitting, icon, moment, policy
from gpudoctor.reports.html.shown import Shown, room_for
from gpudoctor.reports.words import counted
from gpudoctor.verdicts import Status


class DiffView(Struct, frozen=True):
    """Everything on the page."""

    status: Status
    badge: str
    hosts: str
    title: str
    relation: str
    sections: tuple[words.Section, ...]
    parts: tuple[tuple[str, str, int], ...]
    changes: tuple[tuple[Area, tuple[Change, ...]], ...]
    counters: tuple[Counter, ...]
    gaps: tuple[Gap, ...]
    identity: tuple[Change, ...]
    facts: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, diff: Diff) -> "DiffView":
        """The page's content."""
        status = words.status(diff)
        hosts = " and ".join(dict.fromkeys(side.node.hostname or "unnamed node" for side in (diff.a, diff.b)))
        return cls(
            status=status,
            badge=words.VERDICTS[status],
            hosts=hosts,
            title=f"{words.VERDICTS[status]} {hosts} - gpudoctor diff",
            relation=words.relation(diff),
            sections=tuple(words.sections(diff)),
            parts=tuple(_parts(diff)),
            changes=tuple(words.by_area(diff.changes)),
            counters=diff.counters,
            gaps=diff.gaps,
            identity=diff.identity,
            facts=tuple((name, a, b) for (name, a), (_, b) in zip(_facts(diff.a), _facts(diff.b), strict=True)),
        )


def page(diff: Diff) -> str:
    """The whole page."""
    shown = Shown()
    environment = Environment(
        loader=PackageLoader("gpudoctor.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters |= _FILTERS
    style, script = _part("page.css") + _part("diff.css"), _part("diff.js")
    parts = {
        "view": DiffView.of(diff),
        "diff": diff,
        "policy": policy(style, script),
        "style": style,
        "script": script,
    }
    return fitting(environment.get_template("diff.html"), parts, shown, room_for(len(diff.b.node.gpus)))


def _parts(diff: Diff) -> Iterator[tuple[str, str, int]]:
    """The parts that tell what differs: their ids, what they are called, how many things each has."""
    for section in words.sections(diff):
        yield section.key, section.title.partition(":")[0], len(getattr(diff, section.key))
    changed = "Changed" if diff.way is Way.TIMES else "Different"
    for key, title, things in (
        ("changed", changed, diff.changes),
        ("counters", "Counters", diff.counters),
        ("gaps", "Not compared", diff.gaps),
        ("identity", "Identity", diff.identity),
    ):
        if things:
            yield key, title, len(things)


def _facts(side: Side) -> tuple[tuple[str, str], ...]:
    node = side.node
    models: dict[str, int] = {}
    for gpu in node.gpus:
        models[gpu.name or "model not known"] = models.get(gpu.name or "model not known", 0) + 1
    return (
        ("Node", node.hostname or ""),
        ("Looked at", moment(side.at) if side.at else ""),
        ("Source", side.kind + (", redacted" if side.redacted else "")),
        ("Given as", side.given),
        ("Verdict", side.verdict.value.upper()),
        ("Root causes", "; ".join(side.causes) or "none"),
        ("Operating system", node.os or ""),
        ("Kernel", node.kernel or ""),
        ("Driver", node.driver_version or ""),
        ("CUDA", node.cuda_version or ""),
        ("GPUs", "; ".join(f"{count} \u00d7 {model}" for model, count in models.items())),
    )


def _mark(turn: Turn, side: str) -> Status:
    return words.STATUS_OF[turn.a if side == "a" else turn.b]


def _word(turn: Turn, side: str) -> str:
    return words.badge_word(turn.a if side == "a" else turn.b)


def _state(turn: Turn, side: str) -> str:
    return words.STATE_WORDS[turn.a if side == "a" else turn.b]


def _line_kind(line: str) -> str:
    return {"-": "gone", "+": "new"}.get(line[:1], "kept")


_FILTERS: dict[str, Callable[..., object]] = {
    "area": lambda area: words.AREA_WORDS[area],
    "counted": counted,
    "growth": words.growth,
    "icon": icon,
    "lacking": words.lacking,
    "line_kind": _line_kind,
    "mark": _mark,
    "number": words.number,
    "of_whom": words.of_whom,
    "since": words.since,
    "state": _state,
    "told": words.value,
    "whom": words.who,
    "word": _word,
}


def _part(name: str) -> str:
    """A style sheet or the script. Its bytes are what the policy's hash is taken of."""
    return (resources.files("gpudoctor.reports.html") / "templates" / name).read_text("ascii")
