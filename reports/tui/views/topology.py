"""The topology as `gpudoctor topo` draws it, at the width at hand."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.widgets import Static

from gpudoctor.reports.look import Look
from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.view import View
from gpudoctor.reports.tui.views.two_panes import untold_of
from gpudoctor.topo import Topo

NARROWEST = 40
UNBROKEN = 100
"""As wide as most trees need to have no line broken."""


class Scrolled(ScrollableContainer):
    """What can be scrolled, by the keys of the lists too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
        Binding("h", "scroll_left", "Left", show=False),
        Binding("l", "scroll_right", "Right", show=False),
        Binding("g", "scroll_home", "First", show=False),
        Binding("G", "scroll_end", "Last", show=False),
    ]


class Topology(View):
    """The drawing; a filter keeps the lines that match."""

    DEFAULT_CSS = """
    Topology { layout: vertical; }
    Topology .told { height: auto; max-height: 2; color: $text-muted; }
    Topology Scrolled { height: 1fr; scrollbar-size-vertical: 1; }
    Topology .drawing { width: auto; height: auto; text-wrap: nowrap; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self.shown: Shown | None = None
        self._seen: tuple[object, ...] | None = None
        # As long as it is held nothing else can have its identity.
        self._held: object = None

    def compose(self) -> ComposeResult:
        """A line, and the drawing."""
        yield Static(classes="told", markup=False)
        with Scrolled():
            yield Static(classes="drawing", markup=False)

    def on_mount(self) -> None:
        """Draw what was given before."""
        self._draw()

    def on_resize(self) -> None:
        """Draw at the new width."""
        self._draw()

    def show(self, shown: Shown) -> None:
        """Draw where anything differs."""
        self.shown = shown
        self._draw()

    def _draw(self) -> None:
        shown = self.shown
        if shown is None or not self.is_mounted or not self.query(".drawing") or self.size.width == 0:
            return
        seen = (id(shown.report), shown.progress is None, shown.problem, shown.words, shown.ascii, self.size.width)
        if seen == self._seen:
            return
        self._seen, self._held = seen, shown.report
        told, drawing = self._drawn(shown)
        self.query_one(".told", Static).update(node_text(told))
        self.query_one(".told").display = bool(told)
        self.query_one(".drawing", Static).update(drawing)

    def _drawn(self, shown: Shown) -> tuple[str, Content]:
        topo = shown.details.topology if shown.details is not None else None
        if topo is None:
            said = untold_of(shown, "topology") or "The details of this report do not hold the topology."
            return "", node_text(shown.untold if shown.details is None else said)
        from gpudoctor.reports.topo_terminal import in_one_line

        drawing = _readable(topo, max(NARROWEST, self.size.width - 1), ascii=shown.ascii)
        if not shown.words:
            return in_one_line(topo), drawing
        lines = drawing.split("\n", allow_blank=True)
        kept = [line for line in lines if shown.matches(line.plain)]
        told = f"{len(kept)} of {len(lines)} lines match {shown.words!r}"
        return told, Content("\n").join(kept) if kept else Content("Nothing matches the filter.")


def _readable(topo: Topo, width: int, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    """At the width at hand, unless lines of the tree would break: here one can scroll sideways."""
    fitting = drawn(topo, width, ascii=ascii)
    if width >= UNBROKEN:
        return fitting
    wide = drawn(topo, UNBROKEN, ascii=ascii)
    ends = [one.plain.find("\n\n") % (len(one.plain) + 1) for one in (fitting, wide)]
    trees = [one[:end] for one, end in zip((fitting, wide), ends, strict=True)]
    if trees[0].plain.count("\n") == trees[1].plain.count("\n"):
        return fitting
    return trees[1] + fitting[ends[0] :]


def drawn(topo: Topo, width: int, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    """The drawing of `gpudoctor topo` without its heading; its colours are kept."""
    from gpudoctor.reports.topo_terminal import render

    text = render(topo, Look(width=width, color=True, ascii=ascii, verbose=1))
    whole = Text.from_ansi(text)
    lines = whole.split("\n", allow_blank=True)
    body = Text("\n").join(lines[2:]) if len(lines) > 2 else whole
    return Content.from_rich_text(body)
