"""The chain, the root causes with the checks of a link, and what is chosen told in full."""

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import OptionList, Static

from gpudoctor.chain import Link
from gpudoctor.report import Report
from gpudoctor.reports.tui.chain import current
from gpudoctor.reports.tui.listing import chosen_row, essential_unknown, finding_rows, link_rows
from gpudoctor.reports.tui.model import Chosen, Shown
from gpudoctor.reports.tui.rows import Rows
from gpudoctor.reports.tui.sheet import Sheet
from gpudoctor.reports.tui.view import View

WIDE = 150
"""So wide that the chain, the findings and the page stand beside each other."""
TALL = 34
"""So tall that the page stands below the findings."""
HIGH = 30
"""So high that the node is told of below the chain."""
ROOMY = 96
"""So wide that the chain says more than a status."""
NARROW = 60
"""Narrower, the chain takes turns with the findings."""


class Diagnosis(View):
    """Left the chain, beside it what is wrong, and what is chosen of it in full."""

    DEFAULT_CSS = """
    Diagnosis #panes { height: 1fr; }
    Diagnosis #left { layout: vertical; width: 31; height: 1fr; border-right: vkey $foreground 20%; padding: 0 0 0 1; }
    Diagnosis.-roomy #left { width: 48; }
    Diagnosis #about { display: none; height: auto; margin: 1 0 0 0; }
    Diagnosis.-high #about { display: block; }
    Diagnosis.-high #chain { height: auto; }
    Diagnosis #main { layout: vertical; width: 1fr; height: 1fr; }
    Diagnosis #findings { padding: 0 0 0 1; }
    Diagnosis #page { display: none; }
    Diagnosis.-tall #findings { height: 2fr; }
    Diagnosis.-tall #page { display: block; height: 3fr; border-top: hkey $foreground 20%; }
    Diagnosis.-wide #main { layout: horizontal; }
    Diagnosis.-wide #page { display: block; border-top: none; border-left: vkey $foreground 20%; }
    Diagnosis.-open #page { display: block; border: none; }
    Diagnosis.-open #left, Diagnosis.-open #findings { display: none; }
    Diagnosis.-narrow #left { display: none; }
    Diagnosis.-narrow.-turned #left { display: block; width: 1fr; border: none; }
    Diagnosis.-narrow.-turned #main { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("left,h", "to('chain')", "Chain", show=False),
        Binding("right,l", "to('findings')", "Findings", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id)
        self._shown: Shown | None = None
        self._link: Link | None = None
        self._seen = -1
        self._moved = False
        self._about_told = (0, 0)
        self._paged: tuple[object, ...] = ()
        self._chain, self._findings = Rows(id="chain"), Rows(id="findings")
        self._page, self._about = Sheet(id="page"), Static(id="about", markup=False)
        self._came_from = ""

    def compose(self) -> ComposeResult:
        """Two lists and a page."""
        with Horizontal(id="panes"):
            with Container(id="left"):
                yield self._chain
                yield self._about
            with Container(id="main"):
                yield self._findings
                yield self._page

    def on_mount(self) -> None:
        """Rows are made for the width that they get."""
        self._chain.refill = self._findings.refill = self._fill

    def take_focus(self) -> None:
        """Root causes are what one came for."""
        (self._page if self.has_class("-open") else self._findings).focus()

    @property
    def chosen(self) -> Chosen | None:
        """The root cause or check of the highlighted row."""
        return chosen_row(self._findings.chosen, self._shown) if self._shown is not None else None

    def show(self, shown: Shown) -> None:
        """Show what is known now. Until the user goes elsewhere, each report begins with its first root cause."""
        self._shown = shown
        # Whoever reads on the page has gone there.
        moved = self._moved or self._page.has_focus
        begins = shown.passes != self._seen and shown.report is not None and not moved
        self._seen = shown.passes
        if begins and shown.report is not None:
            self._link = _first_link(shown.report)
        self._fill()
        if begins:
            with self._findings.prevent(OptionList.OptionHighlighted):
                self._findings.action_first()
            self._fill_page(anew=True)

    def on_resize(self) -> None:
        """Lay out for the new size."""
        self.set_class(self.size.width >= WIDE, "-wide")
        self.set_class(self.size.height >= TALL and self.size.width < WIDE, "-tall")
        self.set_class(self.size.width >= ROOMY, "-roomy")
        self.set_class(self.size.width >= ROOMY and self.size.height >= HIGH, "-high")
        self.set_class(self.size.width < NARROW, "-narrow")
        if self.has_class("-wide") or self.has_class("-tall"):
            self.remove_class("-open")

    def _fill(self) -> None:
        shown = self._shown
        if shown is None:
            return
        if shown.report is None and shown.progress is not None and not self._moved:
            self._link = current(shown.progress) or self._link
        width = self._chain.scrollable_content_region.width or 28
        self._chain.fill(link_rows(shown, time.monotonic(), width))
        if self._link is None and (row := self._chain.chosen):
            self._link = Link(row.partition(":")[2])
        self._mark_link()
        self._fill_findings()
        self._fill_about(width)

    def _fill_about(self, width: int) -> None:
        """Once for each report: it changes with nothing else."""
        report = self._shown.report if self._shown is not None else None
        if self._about.display and report is not None and (id(report), width) != self._about_told:
            from gpudoctor.reports.tui.about import LABEL_WIDTH, about_lines
            from gpudoctor.reports.tui.cause import page

            self._about_told = (id(report), width)
            self._about.update(page(about_lines(report), width, LABEL_WIDTH))

    def _mark_link(self) -> None:
        if self._link is not None and self._chain.chosen != f"link:{self._link.value}":
            ids = [option.id for option in self._chain.options]
            if (wanted := f"link:{self._link.value}") in ids:
                with self._chain.prevent(OptionList.OptionHighlighted):
                    self._chain.highlighted = ids.index(wanted)

    def _fill_findings(self) -> None:
        assert self._shown is not None
        region = self._findings.scrollable_content_region
        self._findings.fill(finding_rows(self._shown, self._link, region.width or 50, region.height))
        self._fill_page(anew=False)

    def _fill_page(self, *, anew: bool) -> None:
        """Only where it is to be seen: evidence of a check can be long."""
        shown, chosen = self._shown, self.chosen
        if shown is None or chosen is None or not self._page.display:
            return
        told = len(shown.progress.told) if shown.report is None and shown.progress is not None else 0
        key = (chosen, id(shown.report), told, shown.problem)
        if key != self._paged or anew:
            from gpudoctor.reports.tui.cause import lines_of

            self._paged = key
            self._page.put(lines_of(chosen, shown), anew=anew)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Along the chain the checks follow, along the findings the page."""
        event.stop()
        self._moved = True
        if event.option_list.id == "findings":
            self._fill_page(anew=True)
        elif event.option_id is not None and self._shown is not None:
            self._link = Link(event.option_id.partition(":")[2])
            self._fill_findings()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click: of a link to its checks, of a finding to its page."""
        event.stop()
        if event.option_list.id == "chain":
            self._to_checks()
        elif self.chosen is not None:
            self.open_page()

    def _to_checks(self) -> None:
        """The first check of the link; without any, the findings."""
        ids = [option.id or "" for option in self._findings.options]
        first = next((place for place, identity in enumerate(ids) if identity.startswith("check:")), None)
        if first is not None:
            self._findings.highlighted = first
        self.action_to("findings")

    def open_page(self) -> None:
        """Show what is chosen in full: where it has a place already, go there."""
        self._moved = True
        self.remove_class("-turned")
        if not (self.has_class("-wide") or self.has_class("-tall")):
            self.add_class("-open")
        self._page.focus()
        self.refresh_bindings()
        self.call_after_refresh(self._fill_page, anew=True)

    def open_chosen(self, chosen: Chosen, came_from: str) -> None:
        """Go to a root cause or a check, and show it in full; escape leads back to where one came from."""
        self._came_from = came_from if came_from != "1" else ""
        if chosen.id.startswith("check:") and self._shown is not None and self._shown.report is not None:
            self._link = self._shown.report.result(chosen.check).link
            self._fill()
        ids = [option.id for option in self._findings.options]
        if chosen.id not in ids and self._shown is not None and self._shown.words:
            # The filter hides it: what was asked for by name comes before words that were asked for earlier.
            self.doctor.action_show_all()
            ids = [option.id for option in self._findings.options]
        if chosen.id in ids:
            self._findings.highlighted = ids.index(chosen.id)
            self.open_page()
        else:
            self.doctor.say(f"The report that is shown now says nothing of {chosen.check} any more.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Back is offered where there is a way back."""
        return (
            action != "back"
            or self.has_class("-open")
            or self._page.has_focus
            or bool(self._shown and self._shown.words)
        )

    async def action_back(self) -> None:
        """From the page to the findings, or to the view from which one came; then to everything that was filtered away."""
        if self.has_class("-open") or self._page.has_focus:
            self.remove_class("-open")
            self._findings.focus()
            if came_from := self._came_from:
                self._came_from = ""
                await self.doctor.action_go_to(came_from)
        else:
            self.doctor.action_show_all()
        self.refresh_bindings()

    def action_to(self, pane: str) -> None:
        """To the chain, or to the findings."""
        if not self.has_class("-open"):
            self.set_class(pane == "chain", "-turned")
            (self._chain if pane == "chain" else self._findings).focus()


def _first_link(report: Report) -> Link:
    """Where one begins: at the first root cause, at what is essential and was not seen, or at the bottom."""
    causes = [cause.link for cause in report.root_causes]
    return [*causes, *(result.link for result in essential_unknown(report)), Link.PCIE][0]
