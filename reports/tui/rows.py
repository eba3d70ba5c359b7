"""A list to move in, whose rows keep their highlight when they are filled anew."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.strip import Strip
from textual.widgets import OptionList
from textual.widgets.option_list import Option

_REVERSED = Style(reverse=True)


class Row(Option):
    """A row; one without an id is a heading, which is passed over."""

    def __init__(self, prompt: Content, id: str | None = None) -> None:  # noqa: A002 - as Option calls it
        super().__init__(prompt, id, disabled=id is None)
        self.content = prompt


class Rows(OptionList):
    """Rows, moved in by arrows, j and k, page keys and the mouse."""

    DEFAULT_CSS = """
    Rows { border: none; padding: 0; height: 1fr; background: transparent; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    Rows:focus { border: none; background-tint: transparent; }
    Rows > .option-list--option-disabled { color: $foreground; }
    Rows > .option-list--option-highlighted { color: $foreground; background: $primary 18%; text-style: none; }
    Rows:focus > .option-list--option-highlighted { color: $foreground; background: $primary 45%; text-style: none; }
    Rows:light:focus > .option-list--option-highlighted { background: $primary 25%; }
    Rows:ansi > .option-list--option-highlighted { background: transparent; text-style: underline; }
    Rows:nocolor > .option-list--option-highlighted { text-style: underline; }
    Rows:focus:ansi > .option-list--option-highlighted { background: transparent; text-style: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Open"),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes, markup=False)
        self._filled: list[tuple[Content, str | None]] = []
        self.refill: Callable[[], None] | None = None
        """Called when the width has changed: rows are cut and wrapped to it."""

    def on_resize(self) -> None:
        """Have the rows made for the new width."""
        if self.refill is not None:
            self.refill()
            # What was scrolled to before the size was known may be far off.
            self.call_after_refresh(self.to_highlighted)

    def to_highlighted(self) -> None:
        """Scroll to the highlighted row; where it is the first that can be chosen, what stands above it is shown as well."""
        first = next((place for place, option in enumerate(self.options) if not option.disabled), None)
        if self.highlighted == first:
            self.scroll_home(animate=False, immediate=True)
        self.scroll_to_highlight()

    def render_line(self, y: int) -> Strip:
        """Where no background can be told from another, what is highlighted is reversed: textual's own lists leave that out of a style."""
        strip = super().render_line(y)
        plain = self.app.native_ansi_color or self.app.no_color
        if not (plain and self.has_focus and any(_of(segment, self.highlighted) for segment in strip)):
            return strip
        reversed_ = [
            Segment(text, style + _REVERSED if style else _REVERSED, control) for text, style, control in strip
        ]
        return Strip(reversed_, strip.cell_length)

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows instead; where nothing differs nothing is done, and the highlight stays with its row."""
        filled = [(row.content, row.id) for row in rows]
        if _alike(filled, self._filled):
            return
        chosen, top = self.chosen, self.scroll_offset.y
        before, self._filled = self._filled, filled
        if [identity for _, identity in filled] == [identity for _, identity in before]:
            for index, (content, _) in enumerate(filled):
                if not before[index][0].is_same(content):
                    self.replace_option_prompt_at_index(index, content)
            return
        ids = [row.id for row in rows]
        with self.prevent(OptionList.OptionHighlighted):
            self.set_options(rows)
            if chosen is not None and chosen in ids:
                self.highlighted = ids.index(chosen)
                self.scroll_to(y=top, animate=False, immediate=True)
            else:
                self.action_first()

    @property
    def chosen(self) -> str | None:
        """The id of the highlighted row."""
        row = self.highlighted_option
        return row.id if row is not None else None


def _of(segment: Segment, option: int | None) -> bool:
    return option is not None and segment.style is not None and segment.style.meta.get("option") == option


def _alike(one: Sequence[tuple[Content, str | None]], other: Sequence[tuple[Content, str | None]]) -> bool:
    """Styles count as well: what textual calls equal has the same text only."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a[1] == b[1] and a[0].is_same(b[0]) for a, b in pairs)
