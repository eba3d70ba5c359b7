"""What changed: against a saved report, or since the pass before with all passes of this session."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec
from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.diff import Diff
from gpudoctor.report import Report
from gpudoctor.reports import diff_words as words
from gpudoctor.reports.tui.badges import badge, node_text
from gpudoctor.reports.tui.marks import Pass, clock, diff_of
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.named import is_report
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.against import AgainstError, AgainstScreen, against_report, config_of
from gpudoctor.reports.tui.views.entries import Entry, entries, in_short
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import Column, Item, TwoPanes
from gpudoctor.reports.words import OVERALL_STATUS

__all__ = ["AgainstError", "AgainstScreen", "Compare", "against_report"]

_DIFFERENCES = (
    Column("What", most=16),
    Column("Where", most=34),
    Column("Says", most=400, least=24),
)
_PASSES = (
    Column("Pass"),
    Column("Time (UTC)", most=26),
    Column("Verdict"),
    Column("Took", rank=2),
    Column("Changed since the one before", rank=0, most=46),
    Column("Headline", rank=1, most=80, least=20),
)
FIRST = "the first pass"
NO_PASS = "A saved report is shown: there are no passes of its node. Press d to compare it with another report or a recording."


class Compare(TwoPanes):
    """Differences, or passes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "turn", "Saved/passes")]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self._passes = False
        self._of: tuple[Report, Report, Diff] | None = None
        self._entries: dict[str, Entry] = {}

    def state(self) -> tuple[Any, ...]:
        """Which of the two."""
        return (self._passes, len(self._history), None if self._of is None else id(self._of[2]))

    def action_turn(self) -> None:
        """From what is compared with to the passes, and back."""
        if self.shown is None or self.shown.against is None:
            self.doctor.say("There is no saved report beside the passes: d compares with one.")
            return
        self._passes = not self._passes
        self._again()

    @property
    def _history(self) -> Sequence[Pass]:
        return self.shown.history if self.shown is not None else ()

    def _tells_passes(self, shown: Shown) -> bool:
        return self._passes or shown.against is None

    def columns(self, shown: Shown) -> Sequence[Column]:
        """Of differences or of passes."""
        return _PASSES if self._tells_passes(shown) else _DIFFERENCES

    def diff(self, shown: Shown) -> Diff | None:
        """What differs from the report that is compared with; None without one."""
        if shown.against is None or shown.report is None:
            return None
        if self._of is None or self._of[0] is not shown.against or self._of[1] is not shown.report:
            found = diff_of(shown.against, shown.report, None, (shown.against_name or "A", shown.source))
            self._of = (shown.against, shown.report, found)
            if shown.node and shown.against_name:
                self.run_worker(self._ask(shown, found), exit_on_error=True)
        return self._of[2]

    async def _ask(self, shown: Shown, found: Diff) -> None:
        """Of two recordings more is known than their reports tell, as counters: `gpudoctor diff` says it."""
        if await asyncio.to_thread(is_report, shown.against_name):
            return
        sides = (shown.against_name, shown.node)
        end = await self.doctor.outcome_of("diff", "--format", "json", *config_of(self.doctor), *sides)
        try:
            fuller = msgspec.json.decode(end.stdout, type=Diff)
        except msgspec.MsgspecError:
            return
        if self._of is not None and self._of[2] is found:
            self._of = (*self._of[:2], fuller)
            self._again()

    def _fill(self, shown: Shown) -> None:
        """Whoever looks at the newest pass goes on to the next."""
        follows = self._tells_passes(shown) and self._items.highlighted == 0
        super()._fill(shown)
        if follows and self._items.highlighted:
            self._items.action_first()
            self._about()

    def items(self, shown: Shown) -> Sequence[Item]:
        """Each difference, or each pass with the newest first."""
        if self._tells_passes(shown):
            return [_pass(one, shown) for one in reversed(self._history)]
        diff = self.diff(shown)
        found = entries(diff, ascii=shown.ascii) if diff is not None else ()
        self._entries = {entry.id: entry for entry in found}
        return [Item(one.id, (one.kind, node_text(one.whom), node_text(one.says)), one.words) for one in found]

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """What differs in numbers, and what A and B are to each other."""
        if self._tells_passes(shown):
            other = (
                "b: what differs from the saved report"
                if shown.against is not None
                else "d: compare with a saved report"
            )
            return f"{len(items)} pass{'' if len(items) == 1 else 'es'} of this session ({other})"
        diff = self.diff(shown)
        assert diff is not None
        sides = f"A {', '.join(words.side_parts(diff.a)[:3])}; B {', '.join(words.side_parts(diff.b)[:3])}"
        notes = "".join(f"\nnote: {note}" for note in diff.notes)
        return f"{diff.headline}\n{words.relation(diff)}: {sides}{notes}"

    def why_empty(self, shown: Shown) -> str:
        """Nothing to compare, or nothing that differs."""
        if self._tells_passes(shown):
            return NO_PASS if shown.report is not None else shown.untold
        if shown.report is None:
            return shown.untold
        diff = self.diff(shown)
        return f"Nothing differs: {diff.headline}." if diff is not None else "There is nothing to compare with: d."

    def stands_for(self, shown: Shown, item_id: str) -> str:
        """What B says now, where it is wrong."""
        about = self._entries[item_id].about if not self._tells_passes(shown) else ()
        return next((line.opens[0] for line in about if line.opens), "")

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """A difference in full, or what changed in a pass."""
        if not self._tells_passes(shown):
            yield from self._entries[item_id].about
            return
        one = next(each for each in self._history if str(each.number) == item_id)
        yield lines.heading(f"Pass {one.number} {clock(one.at)}")
        yield lines.marked(OVERALL_STATUS[one.verdict], node_text(one.headline), ascii=shown.ascii)
        if one.diff is None:
            yield lines.said("It is the first of this session: there is none to compare it with.")
            return
        yield lines.heading(f"Since the pass before: {one.changes or 'nothing changed'}")
        yield from in_short(one.diff, ascii=shown.ascii)


def _pass(one: Pass, shown: Shown) -> Item:
    changed = FIRST if one.diff is None else one.changes or "nothing"
    cells = (
        Content(str(one.number)),
        Content(clock(one.at)),
        badge(OVERALL_STATUS[one.verdict], ascii=shown.ascii),
        Content(f"{one.seconds:.2f} s"),
        node_text(changed, "bold" if one.changes else ""),
        node_text(one.headline),
    )
    return Item(str(one.number), cells)
