"""Workloads that have a GPU or asked for one: the verdict on each, its first broken step, and every step with what was read."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.details import Details
from gpudoctor.reports.html import causes
from gpudoctor.reports.words import OVERALL_STATUS
from gpudoctor.trace import Step, StepId, Traced
from gpudoctor.verdicts import Evidence, Remedy, Status

MOST_EVIDENCE = 12
"""Lines of evidence that a step with a fault shows; the report inside the page has them all."""
FEW_EVIDENCE = 3
"""Lines of a step that is well."""
MANY = 8
"""Of more workloads, what steps that are well were read from is left to the report inside the page."""
_WRONG = (Status.FAIL, Status.WARN)


class StepView(Struct, frozen=True):
    """A step, the evidence that is shown and how much more there is, and what to do, unless a root cause says that already."""

    step: Step
    evidence: tuple[Evidence, ...]
    more: int
    remedies: tuple[causes.Step, ...]
    cause: causes.CauseView | None

    @property
    def wrong(self) -> bool:
        """Whether it is to be seen at once."""
        return self.step.status in _WRONG

    @property
    def folds(self) -> bool:
        """Whether there is more to tell than its summary."""
        step = self.step
        return bool(self.evidence or self.remedies or self.cause or step.why or step.caused_by or step.references)


class WorkloadView(Struct, frozen=True):
    """A workload, and the id of its place; `steps` are those that were asked, `skipped` the others."""

    traced: Traced
    anchor: str
    status: Status
    facts: tuple[tuple[str, str], ...]
    steps: tuple[StepView, ...]
    skipped: tuple[Step, ...]

    @property
    def open(self) -> bool:
        """Whether it stands unfolded: something of it is broken."""
        return self.status is Status.FAIL


class WorkloadsView(Struct, frozen=True):
    """Those that are kept, and how many more there are."""

    workloads: tuple[WorkloadView, ...]
    more: int

    @property
    def count(self) -> int:
        """How many workloads there are."""
        return len(self.workloads) + self.more


def workloads_of(details: Details | None, told: Sequence[causes.CauseView]) -> WorkloadsView:
    """The workloads in the order of the details: the most telling first. `told` are the root causes, which say what to do."""
    if details is None:
        return WorkloadsView((), 0)
    ids: Counter[str] = Counter()
    views = []
    few = 0 if len(details.workloads) > MANY else FEW_EVIDENCE
    for one in details.workloads:
        ids[one.subject.id] += 1
        number = ids[one.subject.id]
        anchor = f"workload/{one.subject.id}" + (f"/{number}" if number > 1 else "")
        views.append(_view(one, anchor, few, told))
    return WorkloadsView(tuple(views), details.more_workloads)


def _view(traced: Traced, anchor: str, few: int, told: Sequence[causes.CauseView]) -> WorkloadView:
    steps = [one for one in traced.steps if one.status is not Status.SKIP]
    return WorkloadView(
        traced=traced,
        anchor=anchor,
        status=OVERALL_STATUS[traced.verdict],
        facts=tuple((name, value) for name, value in _facts(traced) if value),
        steps=tuple(_step(one, traced.first_broken, few, told) for one in steps),
        skipped=tuple(one for one in traced.steps if one.status is Status.SKIP),
    )


def _facts(traced: Traced) -> Iterator[tuple[str, str]]:
    yield "Engine", traced.engine
    yield "Process", str(traced.pid) if traced.pid else ""
    yield "Container", traced.container_id
    yield "Unit", "" if traced.unit in traced.cgroup else traced.unit
    yield "Cgroup", traced.cgroup


def _step(step: Step, first_broken: StepId | None, few: int, told: Sequence[causes.CauseView]) -> StepView:
    alone = not step.caused_by or step.id is first_broken
    cause = next((one for one in told if _says(one, step.remedies)), None) if alone else None
    most = few if step.status is Status.PASS else MOST_EVIDENCE
    return StepView(
        step=step,
        evidence=step.evidence[:most],
        more=max(0, len(step.evidence) - most),
        remedies=_remedies(step.remedies) if alone and cause is None else (),
        cause=cause,
    )


def _says(cause: causes.CauseView, remedies: Sequence[Remedy]) -> bool:
    """Whether a root cause tells these remedies."""
    return bool(remedies) and any(set(remedies) <= set(finding.remedies) for finding in cause.findings)


def _remedies(remedies: Sequence[Remedy]) -> tuple[causes.Step, ...]:
    return tuple(
        causes.Step(
            word=causes.word_for(place, one),
            who="",
            action=one.action,
            say=one.say,
            interrupts=one.interrupts,
            commands=one.run,
            confirms=(one.confirm,) if one.confirm else (),
        )
        for place, one in enumerate(remedies)
    )
