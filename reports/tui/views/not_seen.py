"""What was not seen, by what would show it, and which checks could not tell for want of it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from textual.content import Content

from gpudoctor.report import Report
from gpudoctor.reports.html.views import WHY
from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.marks import finding_marks
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import Column, Item, TwoPanes
from gpudoctor.reports.words import counted
from gpudoctor.verdicts import Status, Why

SHOWN_BY = {
    Why.NOT_RECORDED: "a recording that holds it",
    Why.NO_PERMISSION: "more privilege",
    Why.TIMED_OUT: "another run, once it answers",
    Why.SLOW_INIT: "another run, once the driver has started",
    Why.UNREADABLE: "nothing that is known of",
    Why.NOT_ANSWERED: "nothing that is known of",
    Why.WITHHELD: "nothing that is safe",
    Why.CRASHED: "a gpudoctor that does not fail on it",
}
"""What would show it where the check does not say."""
_COLUMNS = (
    Column("Would show it", most=46),
    Column("Why it was not seen", rank=1, most=40),
    Column("Things", rank=2),
    Column("What", most=400, least=20),
)


class Unseen(Struct, frozen=True):
    """What one privilege, program or recording would show, for one reason."""

    would_need: str
    why: Why
    what: tuple[str, ...]

    @property
    def id(self) -> str:
        """Of its row: there is one for each reason and what would show it."""
        return f"{self.why.value} {self.would_need}"

    @property
    def shown_by(self) -> str:
        """The privilege or recording that would show it."""
        return self.would_need or SHOWN_BY[self.why]


def unseen(report: Report) -> tuple[Unseen, ...]:
    """By what would show it, the one that shows most first."""
    groups: dict[tuple[str, Why], list[str]] = {}
    for one in report.not_seen:
        groups.setdefault((one.would_need, one.why), []).append(one.what)
    found = [Unseen(need, why, tuple(dict.fromkeys(what))) for (need, why), what in groups.items()]
    return tuple(sorted(found, key=lambda one: (not one.would_need, -len(one.what), one.would_need)))


class NotSeen(TwoPanes):
    """The list of what would show more."""

    def columns(self, shown: Shown) -> Sequence[Column]:
        """What would show it, why it was not seen, how much."""
        return _COLUMNS

    def items(self, shown: Shown) -> Sequence[Item]:
        """Each privilege."""
        if shown.report is None:
            return ()
        return [
            Item(
                one.id,
                (
                    node_text(one.shown_by),
                    Content(WHY[one.why]),
                    Content(str(len(one.what))),
                    node_text(one.what[0] + (f" and {len(one.what) - 1} more" if len(one.what) > 1 else "")),
                ),
                one.what,
            )
            for one in unseen(shown.report)
        ]

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """How much, as whom, and how many checks are blind for it."""
        assert shown.report is not None
        blind = sum(result.status is Status.UNKNOWN for result in shown.report.results)
        uid = shown.report.node.uid
        who = "" if uid is None else ", seen as root" if uid == 0 else f", seen as user {uid}"
        count = counted(len(shown.report.not_seen), "thing")
        return f"{count} not seen{who}; {counted(blind, 'check')} could not tell"

    def why_empty(self, shown: Shown) -> str:
        """Everything was seen, or there is no report."""
        if shown.report is None:
            return shown.untold
        blind = [result.check for result in shown.report.results if result.status is Status.UNKNOWN]
        more = f" Checks that could not tell: {', '.join(blind)}." if blind else ""
        return f"Everything that the checks asked for was seen.{more}"

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """What it would show, and the checks that could not tell."""
        assert shown.report is not None
        one = next(each for each in unseen(shown.report) if each.id == item_id)
        yield lines.heading(f"Would show it: {one.shown_by}")
        yield from lines.fact("why", WHY[one.why])
        yield lines.heading(f"Not seen: {len(one.what)}")
        for what in one.what:
            yield Line(node_text(what), copies=what, indent=2)
        blind = [
            finding
            for result in shown.report.results
            for finding in result.findings
            if finding.status is Status.UNKNOWN and (finding.why, finding.would_need) == (one.why, one.would_need)
        ]
        yield lines.heading("Checks that could not tell")
        marks = finding_marks(shown.before, shown.report)
        for finding in blind:
            yield lines.finding(finding, marks, ascii=shown.ascii)
        if not blind:
            yield lines.said("None: what it would have shown was known from elsewhere, or nothing depends on it.")
