"""A trace for a person at a terminal: the verdict, the steps at a glance, then what is broken, with evidence and the next step.

The first broken step comes first; what follows from it is named, and what could not be seen says what would show it.
"""

from collections.abc import Sequence

from rich.text import Text

from gpudoctor.report import Overall
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import BADGE_WIDTH, LABEL_WIDTH, Page
from gpudoctor.reports.words import OVERALL_STATUS, clean, counted, who_and_when
from gpudoctor.trace import Step, StepId, Trace, Traced
from gpudoctor.verdicts import Status

NARROW = 60
"""Below this width the steps at a glance show statuses only."""
STEP_WIDTH = 12
MOST_EVIDENCE = 4
WHAT_IS_WRONG = (Status.FAIL, Status.WARN)


def render(trace: Trace, look: Look) -> str:
    """The trace as text for a terminal or a pipe."""
    text = _quiet(trace) if look.quiet else _Page(trace, look).text()
    return look.written(text)


def _quiet(trace: Trace) -> str:
    """One line for each workload."""
    lines = (f"{one.verdict.value.upper()} {one.title}: {one.summary}" for one in trace.traced)
    return "".join(f"{clean(line)}\n" for line in lines)


class _Page(Page):
    """One trace being laid out."""

    def __init__(self, trace: Trace, look: Look) -> None:
        super().__init__(look)
        self.trace = trace

    def text(self) -> str:
        """The whole page."""
        self.heading(who_and_when(self.trace))
        for number, one in enumerate(self.trace.traced):
            if number:
                self.line(Text())
                self.line(Text("─" * min(self.look.width, 40) if not self.look.ascii else "-" * 40, style="dim"))
                self.line(Text())
            self._workload(one)
        if self.look.verbose > 1:
            self.line(Text())
            self.line(Text(f"took {self.trace.seconds:.3f} s"))
        return self.written()

    def _workload(self, one: Traced) -> None:
        self.titled(OVERALL_STATUS[one.verdict], Text(clean(f"{one.title}: {_headline(one)}"), style="bold"))
        self.line(Text())
        self._at_a_glance(one)
        for step in _in_order(one):
            self._wrong(step, one)
        self._unseen([step for step in one.steps if step.status is Status.UNKNOWN])
        if self.look.verbose:
            self._everything(one)

    def _at_a_glance(self, one: Traced) -> None:
        details = self.look.width >= NARROW
        taken = 2 + STEP_WIDTH + 2 + BADGE_WIDTH + 2
        rows = self.grid("  ", STEP_WIDTH, BADGE_WIDTH)
        for step in one.steps:
            glance = self.shortened(_glance(step), taken) if details else Text()
            rows.add_row("", Text(step.id.value), self.badge(step.status), glance)
        self.console.print(rows)

    def _wrong(self, step: Step, one: Traced) -> None:
        """What is broken or deserves attention, with what follows from it."""
        self.line(Text())
        self.titled(step.status, Text(clean(f"{step.id.value}: {step.summary}"), style="bold"))
        rows = self.grid("  ", LABEL_WIDTH)
        shown = step.evidence if self.look.verbose else step.evidence[:MOST_EVIDENCE]
        for number, evidence in enumerate(shown):
            rows.add_row("", Text("evidence" if number == 0 else ""), self.evidence(evidence))
        if len(step.evidence) > len(shown):
            rows.add_row("", Text(""), Text(f"and {len(step.evidence) - len(shown)} more (-v)"))
        if follows := _consequences(step.id, one.steps):
            rows.add_row("", Text("explains"), Text(", ".join(found.id.value for found in follows)))
        for number, reference in enumerate(step.references):
            rows.add_row("", Text("see" if number == 0 else ""), Text(reference))
        self.console.print(rows)
        self.remedies([step.remedies])

    def _unseen(self, steps: Sequence[Step]) -> None:
        """Each reason once: one path that cannot be read can blind several steps."""
        alike: dict[tuple[str, str], list[Step]] = {}
        for step in steps:
            alike.setdefault((step.why.value if step.why else "", step.summary), []).append(step)
        for (why, summary), blind in alike.items():
            needed = f"; would need: {blind[0].would_need}" if blind[0].would_need else ""
            names = ", ".join(step.id.value for step in blind)
            self.line(Text())
            self.titled(Status.UNKNOWN, Text(clean(f"{names}: {summary} ({why}){needed}")))

    def _everything(self, one: Traced) -> None:
        """Every step in full, with all that it was read from."""
        self.line(Text())
        for step in one.steps:
            self.line(Text.assemble(self.badge(step.status), f"  {step.id.value}: {step.title}"))
            rows = self.grid("    ", 0)
            rows.add_row("", "", Text(clean(step.summary)))
            for evidence in step.evidence:
                rows.add_row("", "", self.evidence(evidence))
            self.console.print(rows)


def _headline(one: Traced) -> str:
    """The verdict in a few words: what is wrong is told in full below the steps."""
    wrong = _in_order(one)
    fails = [step for step in wrong if step.status is Status.FAIL]
    match one.verdict:
        case Overall.FAIL:
            more = f", and {len(fails) - 1} more" if len(fails) > 1 else ""
            return f"the first broken step is {fails[0].id.value}{more}"
        case Overall.WARN:
            return f"nothing is broken; {counted(len(wrong), 'thing')} to look at"
        case _:
            return one.summary


def _in_order(one: Traced) -> Sequence[Step]:
    """What is broken by itself in the order of the chain, then warnings; what follows from something is told there."""
    alone = [step for step in one.steps if step.status in WHAT_IS_WRONG and not step.caused_by]
    return sorted(alone, key=lambda step: WHAT_IS_WRONG.index(step.status))


def _consequences(cause: StepId, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if cause in step.caused_by]


def _glance(step: Step) -> str:
    if step.caused_by:
        return f"follows from {', '.join(cause.value for cause in step.caused_by)}: {step.summary}"
    return step.summary
