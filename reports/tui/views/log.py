"""What the runs have said beside their reports."""

from textual.app import ComposeResult
from textual.content import Content

from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.cause import Line
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.sheet import Sheet
from gpudoctor.reports.tui.view import View


class Log(View):
    """Lines of stderr, and what was noticed."""

    def compose(self) -> ComposeResult:
        """A page."""
        yield Sheet(id="log")

    def show(self, shown: Shown) -> None:
        """All lines that the filter leaves."""
        lines = [line for line in shown.log if shown.matches(line)]
        nothing = "No line has these words." if shown.log else "The runs have said nothing on stderr."
        self.query_one(Sheet).put([Line(node_text(line), None) for line in lines] or [Line(Content(nothing), None)])

    def take_focus(self) -> None:
        """To scroll in it."""
        self.query_one(Sheet).focus()
