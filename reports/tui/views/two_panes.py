"""A view with a list and, for the row that is chosen, all about it: side by side where there is room, else below it, or in its place."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.layout import cut
from gpudoctor.reports.tui.model import Chosen, Shown
from gpudoctor.reports.tui.rows import Row, Rows
from gpudoctor.reports.tui.view import View
from gpudoctor.reports.tui.views.lines import Line, rows

WIDE = 110
"""From this width on list and pane stand side by side."""
LEAST_PANE = 6
"""In a narrower window the pane stands below the list where it leaves so many lines."""
GAP = 2
NARROWEST = 4
"""The last column where all that must stand takes more than there is."""


class Column(Struct, frozen=True):
    """A column: where there is no room for all, those of the highest rank are left out; the last takes what is left, at least `least`."""

    title: str
    rank: int = 0
    most: int = 40
    least: int = 12


class Item(Struct, frozen=True):
    """A row: a cell for each column, and the words that a filter looks at beside those of the cells."""

    id: str
    cells: tuple[Content, ...]
    words: tuple[str, ...] = ()

    @property
    def haystack(self) -> tuple[str, ...]:
        """All that a filter looks at."""
        return (*(cell.plain for cell in self.cells), *self.words)


class TwoPanes(View):
    """Gives what it lists, and about what is chosen; the rest is here."""

    DEFAULT_CSS = """
    TwoPanes { layout: vertical; padding: 0 1; }
    TwoPanes .told { height: auto; max-height: 4; color: $text-muted; }
    TwoPanes .head { height: 1; text-style: bold; color: $text-muted; text-wrap: nowrap; text-overflow: clip; }
    TwoPanes .halves { height: 1fr; }
    TwoPanes .left { width: 1fr; height: 1fr; }
    TwoPanes .about { width: 1fr; height: 1fr; }
    TwoPanes.-wide .about { border-left: vkey $panel; padding-left: 1; }
    TwoPanes.-stacked .halves { layout: vertical; }
    TwoPanes.-stacked .left { height: auto; }
    TwoPanes.-stacked .about { border-top: hkey $panel; }
    TwoPanes .items { max-height: 1fr; }
    TwoPanes .more { height: auto; padding-top: 1; display: none; }
    TwoPanes.-wide.-more .more { display: block; }
    TwoPanes .why { height: auto; padding: 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", show=False),
        Binding("escape,backspace,left,h", "back", "Back", show=False),
        Binding("right,l", "open", "Open", show=False),
        Binding("y,c", "copy_line", "Copy"),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self.shown: Shown | None = None
        self._seen: tuple[Any, ...] | None = None
        # As long as they are held nothing else can have their identities.
        self._held: tuple[Any, ...] = ()
        self._lines: list[Line] = []
        self._inside = False
        self._stacked = False

    # What the views give

    def columns(self, shown: Shown) -> Sequence[Column]:
        """The columns of the list."""
        raise NotImplementedError

    def items(self, shown: Shown) -> Sequence[Item]:
        """All rows of the list, unfiltered."""
        raise NotImplementedError

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """What there is, in a line above the list."""
        raise NotImplementedError

    def why_empty(self, shown: Shown) -> str:
        """Why there is nothing to list."""
        raise NotImplementedError

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """All about a row."""
        raise NotImplementedError

    def stands_for(self, shown: Shown, item_id: str) -> str:
        """The finding that a row is most about; "" for none."""
        return ""

    def more(self, shown: Shown, width: int) -> Content:
        """What stands below a list that leaves room for it, where list and pane are side by side."""
        return Content()

    def state(self) -> tuple[Any, ...]:
        """What else decides about what is listed, as a choice of columns."""
        return ()

    # Showing

    def compose(self) -> ComposeResult:
        """The list and the pane, and what stands in their place where there is nothing."""
        yield Static(classes="told", markup=False)
        with Horizontal(classes="halves"):
            with Vertical(classes="left"):
                yield Static(classes="head", markup=False)
                yield Rows(classes="items")
                yield Static(classes="more", markup=False)
            yield Rows(classes="about")
        yield Static(classes="why", markup=False)

    def on_mount(self) -> None:
        """Show what was given before there was anything to show it on."""
        self._again()

    def on_resize(self) -> None:
        """Another width, another layout."""
        self._again()

    def show(self, shown: Shown) -> None:
        """Show this, where anything differs from what is shown."""
        self.shown = shown
        self._again()

    def _again(self) -> None:
        shown = self.shown
        if shown is None or not self.is_mounted or not self.query(".items") or self.size.width == 0:
            return
        seen = (
            *(id(one) for one in (shown.report, shown.before, shown.against)),
            *(shown.progress is None, shown.problem, shown.words, shown.ascii, shown.passes, self.size, *self.state()),
        )
        if seen == self._seen:
            return
        self._seen, self._held = seen, (shown.report, shown.before, shown.against)
        self.set_class(self.wide, "-wide")
        self.query_one(".left").styles.width = self._left
        self._fill(shown)

    @property
    def wide(self) -> bool:
        """Whether list and pane stand side by side."""
        return self.size.width >= WIDE

    def _fill(self, shown: Shown) -> None:
        every = list(self.items(shown))
        items = [item for item in every if not shown.words or shown.matches(*item.haystack)]
        told = self.told(shown, every) if every else ""
        if shown.words:
            told += f"; {len(items)} of {len(every)} match {shown.words!r}"
        self.query_one(".told", Static).update(_in_lines(told))
        self.query_one(".told").display = bool(every)
        why = "" if items else self.why_empty(shown) if not every else "Nothing matches the filter."
        self.query_one(".why", Static).update(_in_lines(why))
        self.query_one(".why").display = not items
        self.query_one(".halves").display = bool(items)
        columns = self.columns(shown)
        head, listed = laid(columns, items, self._list_width, ascii=shown.ascii)
        self.query_one(".head", Static).update(head)
        self._items.fill([Row(text, item.id) for item, text in zip(items, listed, strict=True)])
        self._inside = self._inside and bool(items)
        self._arrange(shown, self._lines_of(told), len(items))
        self._about()
        # A list that was not there when the view was gone to could not be given the focus.
        if items and self.display and self.screen.focused is None:
            self.call_after_refresh(self.take_focus)

    def _arrange(self, shown: Shown, told: int, listed: int) -> None:
        """Use the room that the list leaves."""
        left = self.size.height - told - 1 - listed
        self._stacked = not self.wide and left >= LEAST_PANE
        self._items.styles.height = listed if self._stacked or self.wide else "1fr"
        more = self.more(shown, self._list_width) if self.wide else Content()
        fits = bool(more.plain) and more.plain.count("\n") + 2 <= left
        self.query_one(".more", Static).update(more if fits else Content())
        self.set_class(fits, "-more")

    @property
    def _items(self) -> Rows:
        return self.query_one(".items", Rows)

    @property
    def _pane(self) -> Rows:
        return self.query_one("Rows.about", Rows)

    @property
    def _list_width(self) -> int:
        """A column is left to the scroll bar."""
        return self._left - 1

    @property
    def _pane_width(self) -> int:
        return (self.size.width - self._left - 2 if self.wide else self.size.width) - 1

    @property
    def _left(self) -> int:
        """The width of the list's side in cells: what is laid out for it must not depend on how fractions are rounded."""
        return self.size.width * 11 // 20 if self.wide else self.size.width

    def _lines_of(self, told: str) -> int:
        """How many lines it takes, wrapped."""
        return sum(max(1, -(-len(line) // max(1, self.size.width))) for line in told.split("\n"))

    def _about(self) -> None:
        """The pane, and which of the two is to be seen."""
        self.query_one(".left").display = self.wide or not self._inside
        self._pane.display = self.wide or self._stacked or self._inside
        self.set_class(self._stacked and not self._inside, "-stacked")
        chosen = self._items.chosen
        if self.shown is None or chosen is None or not self._pane.display:
            return
        self._lines = list(self.about(self.shown, chosen))
        self._pane.fill(rows(self._lines, self._pane_width))

    # Moving

    def take_focus(self) -> None:
        """The list, or what has taken its place."""
        (self._pane if self._inside and not self.wide else self._items).focus()

    @property
    def chosen(self) -> Chosen | None:
        """The finding of the highlighted line, or the one that the row of the list stands for."""
        shown, line, row = self.shown, self._line, self._items.chosen
        if shown is None or shown.report is None:
            return None
        of_row = self.stands_for(shown, row) if line is None and row is not None else ""
        finding = line.opens[0] if line is not None and line.opens else of_row
        if not finding:
            return None
        from gpudoctor.reports.tui.listing import chosen_for

        return chosen_for(finding, shown.report)

    @property
    def _line(self) -> Line | None:
        chosen = self._pane.chosen if self._pane.has_focus else None
        return self._lines[int(chosen)] if chosen is not None else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The pane follows the list."""
        event.stop()
        if event.option_list is self._items and self._pane.display:
            self._about()

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click: from the list into the pane, from the pane to what stands behind the line."""
        event.stop()
        if event.option_list is self._items:
            self._go_in()
        elif event.option_id is not None:
            await self._follow(self._lines[int(event.option_id)])

    def _go_in(self) -> None:
        self._inside = True
        self._about()
        self._pane.focus()
        if self._pane.highlighted is None:
            self._pane.action_first()

    async def _follow(self, line: Line) -> None:
        if line.opens:
            await self.doctor.open_findings(line.opens)
        elif line.copies:
            self.doctor.copy(line.copies)
        else:
            self.doctor.say("There is nothing behind this line; y copies it.")

    def action_open(self) -> None:
        """Into the pane."""
        if self._pane.has_focus or self._items.chosen is None:
            raise SkipAction
        self._go_in()

    def action_back(self) -> None:
        """Back to the list."""
        if not (self._inside or self._pane.has_focus):
            raise SkipAction
        self._inside = False
        self._about()
        self._items.focus()

    def action_copy_line(self) -> None:
        """Copy what the highlighted line of the pane, or the row of the list, says."""
        line, row = self._line, self._items.highlighted_option
        if line is not None:
            self.doctor.copy(line.copies or line.text.plain)
        elif row is not None:
            self.doctor.copy(" ".join(str(row.prompt).split()))
        else:
            raise SkipAction


def names(whom: Iterable[str]) -> list[str]:
    """Ids of rows that stay with what they are about, whatever stands above it in the next pass; those that are alike are numbered."""
    told: dict[str, None] = {}
    for one in whom:
        name, number = one, 1
        while name in told:
            number += 1
            name = f"{one}#{number}"
        told[name] = None
    return list(told)


def untold_of(shown: Shown, part: str) -> str:
    """Why a part of the details is lacking; "" where nothing says so."""
    told = shown.details.untold if shown.details is not None else ()
    return "\n".join(words.partition(": ")[2] for words in told if words.startswith(f"{part}: "))


def _in_lines(words: str) -> Content:
    return Content("\n").join(node_text(line) for line in words.split("\n"))


def laid(
    columns: Sequence[Column],
    items: Sequence[Item],
    width: int,
    *,
    ascii: bool,  # noqa: A002 - as `Look` calls it
) -> tuple[Content, list[Content]]:
    """The heads of the columns that fit, and each item in a line as wide as these are."""
    widths = [
        min(column.most, max(len(column.title), *(item.cells[place].cell_length for item in items), 0))
        for place, column in enumerate(columns)
    ]
    # A column that says nothing of any row takes no room.
    told = [any(item.cells[place].plain.strip() for item in items) for place in range(len(columns))]
    kept = [place for place in range(len(columns)) if told[place] or columns[place].rank == 0]

    def taken(places: Sequence[int]) -> int:
        last = max(places, default=0)
        return sum((min(widths[p], columns[p].least) if p == last else widths[p]) + GAP for p in places) - GAP

    by_rank = sorted((place for place in kept if columns[place].rank), key=lambda place: columns[place].rank)
    kept = [place for place in kept if not columns[place].rank]
    for place in by_rank:
        if taken(sorted([*kept, place])) <= width:
            kept = sorted([*kept, place])
    if kept:
        last = kept[-1]
        widths[last] = max(NARROWEST, width - sum(widths[p] + GAP for p in kept[:-1]))
    gap = Content(" " * GAP)
    head = gap.join(Content(columns[place].title.ljust(widths[place])) for place in kept)
    listed = (gap.join(_cell(item.cells[p], widths[p], ascii=ascii) for p in kept) for item in items)
    return cut(head, width, ascii=ascii), [cut(line, width, ascii=ascii) for line in listed]


def _cell(text: Content, width: int, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    fitting = cut(text, width, ascii=ascii)
    return fitting.pad_right(max(0, width - fitting.cell_length))
