"""A page of text to scroll in, wrapped anew when its width changes."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from gpudoctor.reports.tui.cause import LABEL_WIDTH, Line, page


class Sheet(VerticalScroll):
    """Lines of labelled text."""

    DEFAULT_CSS = """
    Sheet { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    Sheet > Static { width: 1fr; height: auto; }
    """

    class Copied(Message):
        """Words were clicked on that stand there to be copied."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
        Binding("g", "scroll_home", "Top", show=False),
        Binding("G", "scroll_end", "Bottom", show=False),
        Binding("space", "page_down", "Page", show=False),
    ]

    def __init__(self, *, id: str | None = None, label_width: int = LABEL_WIDTH) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id)
        self._label_width = label_width
        self._lines: Sequence[Line] = ()
        self._shown = Content()
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        """The text."""
        yield self._text

    def put(self, lines: Sequence[Line], *, anew: bool = False) -> None:
        """Show these lines; `anew` from the top."""
        self._lines = lines
        self._lay_out()
        if anew:
            self.scroll_home(animate=False, immediate=True)

    def on_resize(self) -> None:
        """Wrap again."""
        self._lay_out()

    def on_click(self, event: events.Click) -> None:
        """A command is copied."""
        if words := event.style.meta.get("copies"):
            self.post_message(self.Copied(words))

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width > 0:
            text = page(self._lines, width, self._label_width)
            if not text.is_same(self._shown):
                self._shown = text
                self._text.update(text)
