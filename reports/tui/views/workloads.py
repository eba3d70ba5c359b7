"""The workloads with a GPU: how each fares, and the steps of its trace with evidence and what to do."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.report import Overall
from gpudoctor.reports.tui.badges import badge, node_text
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import Column, Item, TwoPanes, names, untold_of
from gpudoctor.reports.words import OVERALL_STATUS, STATUS_WORDS, counted
from gpudoctor.trace import Step, Traced
from gpudoctor.verdicts import Status

_COLUMNS = (
    Column("Status"),
    Column("Workload", most=44),
    Column("First broken step", rank=1),
    Column("GPUs", rank=2),
    Column("PID", rank=4),
    Column("Says", rank=3, most=80, least=20),
)
_WRONG = (Status.FAIL, Status.WARN)


class Workloads(TwoPanes):
    """The list of workloads."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self._by_id: dict[str, Traced] = {}

    def columns(self, shown: Shown) -> Sequence[Column]:
        """How it fares, who, where it breaks."""
        return _COLUMNS

    def items(self, shown: Shown) -> Sequence[Item]:
        """Each workload, the worst first as the report has them."""
        if shown.details is None:
            return ()
        self._by_id = dict(
            zip(names(one.subject.id for one in shown.details.workloads), shown.details.workloads, strict=True)
        )
        return [
            Item(
                identity,
                (
                    badge(OVERALL_STATUS[one.verdict], ascii=shown.ascii),
                    node_text(one.title),
                    Content(one.first_broken.value if one.first_broken else ""),
                    Content(str(len(one.gpus))),
                    Content(str(one.pid) if one.pid else ""),
                    node_text(one.summary),
                ),
                tuple(_words(one)),
            )
            for identity, one in self._by_id.items()
        ]

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """How many, and how many of them are broken."""
        assert shown.details is not None
        verdicts = [one.verdict for one in shown.details.workloads]
        numbers = [
            f"{verdicts.count(verdict)} {STATUS_WORDS[OVERALL_STATUS[verdict]]}"
            for verdict in (Overall.FAIL, Overall.UNKNOWN, Overall.WARN, Overall.PASS)
            if verdict in verdicts
        ]
        more = f", and {shown.details.more_workloads} more that are not told" if shown.details.more_workloads else ""
        told = f"{counted(len(items), 'workload')}: {', '.join(numbers)}{more}"
        untold = untold_of(shown, "workloads")
        return f"{told}\n{untold}" if untold else told

    def why_empty(self, shown: Shown) -> str:
        """None, or not looked for."""
        if shown.details is None:
            return shown.untold
        untold = untold_of(shown, "workloads")
        said = "No container, job or process that has a GPU or asks for one was seen on this node."
        return f"{said}\n{untold}" if untold else said

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """All about one workload: what is broken, then every step."""
        one = self._by_id[item_id]
        yield lines.heading(one.title)
        words = f"the first broken step is {one.first_broken.value}" if one.first_broken else one.summary
        yield lines.marked(OVERALL_STATUS[one.verdict], node_text(words), ascii=shown.ascii)
        yield from _facts(one)
        wrong = [step for step in one.steps if step.status in _WRONG and not step.caused_by]
        for step in sorted(wrong, key=lambda step: _WRONG.index(step.status)):
            yield from _in_full(step, one, shown)
        yield lines.heading("All steps")
        for step in one.steps:
            yield from _at_a_glance(step, shown)


def _words(one: Traced) -> Iterator[str]:
    yield from (one.engine, one.container_id, one.unit, one.cgroup, one.subject.id)
    yield from (gpu.address for gpu in one.gpus)
    yield from (f"{step.id.value} {step.summary}" for step in one.steps)


def _facts(one: Traced) -> Iterator[Line]:
    yield from lines.fact("engine", one.engine)
    yield from lines.fact("container", one.container_id)
    yield from lines.fact("PID", str(one.pid) if one.pid else None)
    yield from lines.fact("unit", one.unit)
    yield from lines.fact("cgroup", one.cgroup)
    gpus = [f"{gpu.index if gpu.index is not None else '?'} {gpu.address}" for gpu in one.gpus]
    yield from lines.fact("GPUs", ", ".join(gpus) or "none of this node's")


def _in_full(step: Step, one: Traced, shown: Shown) -> Iterator[Line]:
    """What is broken by itself, what shows it, what to do and what follows."""
    yield lines.heading(f"{step.id.value}: {step.title}")
    yield lines.marked(step.status, node_text(step.summary, "bold"), ascii=shown.ascii)
    for seen in step.evidence:
        yield lines.evidence(seen)
    follows = [other.id.value for other in one.steps if step.id in other.caused_by]
    if follows:
        yield lines.said(", ".join(follows), label="explains")
    yield from lines.remedies(step.remedies)
    for reference in step.references:
        yield from lines.fact("see", reference)


def _at_a_glance(step: Step, shown: Shown) -> Iterator[Line]:
    follows = f"follows from {', '.join(cause.value for cause in step.caused_by)}: " if step.caused_by else ""
    need = f"; would need: {step.would_need}" if step.would_need else ""
    words = node_text(f"{step.id.value}: {follows}{step.summary}{need}")
    yield lines.marked(step.status, words, ascii=shown.ascii)
    if step.status not in _WRONG or step.caused_by:
        for seen in step.evidence:
            said = f"{seen.where}: {seen.shows}"
            yield Line(node_text(said, "dim"), indent=lines.BADGE, copies=said)
