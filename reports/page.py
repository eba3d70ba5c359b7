"""What pages for a terminal have in common: a console of a width, marks of status, rows, evidence and remedies."""

import io
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from gpudoctor.reports.look import Look
from gpudoctor.reports.words import STATUS_WORDS, clean
from gpudoctor.verdicts import Evidence, Remedy, Status

GLYPHS = {
    Status.PASS: ("✔", "+", "green"),
    Status.FAIL: ("✘", "x", "bold red"),
    Status.WARN: ("!", "!", "bold yellow"),
    Status.UNKNOWN: ("?", "?", "bold magenta"),
    Status.BLOCKED: ("⊘", "-", "cyan"),
    Status.SKIP: ("·", ".", "dim"),
}

GAP = 2
BADGE_WIDTH = 9
LABEL_WIDTH = 8
MOST_COMMANDS = 8
MOST_FRAMES = 4


class Rows:
    """Columns of fixed widths, two spaces apart, and a last one that takes the rest of the line and goes on in the next.

    In place of rich.table: every row here is known to fit but for its last cell, and to import and lay out tables costs a quarter of what
    importing argparse, json and pathlib does.
    """

    def __init__(self, *widths: int) -> None:
        self._widths = widths
        self._rows: list[tuple[Text | str, ...]] = []

    def add_row(self, *cells: Text | str) -> None:
        """One cell for each width, and the last."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """All rows as one text that is not wrapped again."""
        rest = max(1, options.max_width - sum(self._widths) - GAP * len(self._widths))
        lines = [line for cells in self._rows for line in self._lines(cells, console, rest)]
        if lines:
            whole = Text("\n").join(lines)
            whole.no_wrap, whole.overflow = True, "ignore"
            yield whole

    def _lines(self, cells: Sequence[Text | str], console: Console, rest: int) -> Iterator[Text]:
        columns = [_wrapped(cell, console, width) for cell, width in zip(cells, (*self._widths, rest), strict=True)]
        for number in range(max(map(len, columns))):
            line = Text()
            for column, width in zip(columns, (*self._widths, 0), strict=True):
                cell = column[number] if number < len(column) else Text()
                line.append_text(cell)
                line.append(" " * (width + GAP - cell_len(cell.plain)))
            yield line


def _wrapped(cell: Text | str, console: Console, width: int) -> list[Text]:
    text = cell if isinstance(cell, Text) else Text(cell)
    fits = cell_len(text.plain) <= width and "\n" not in text.plain
    return [text] if fits else list(text.wrap(console, width, overflow="fold"))


class Page:
    """A page being laid out."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.console = Console(
            file=io.StringIO(),
            width=look.width,
            color_system="standard" if look.color else None,
            force_terminal=look.color,
            no_color=not look.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def written(self) -> str:
        """What was laid out so far."""
        output = self.console.file
        assert isinstance(output, io.StringIO)
        return "\n".join(line.rstrip() for line in output.getvalue().split("\n"))

    def heading(self, parts: Sequence[str | None]) -> None:
        """Who was looked at, by whom and when, in one line."""
        separator = " | " if self.look.ascii else " · "
        self.line(Text(separator.join(clean(part) for part in parts if part), style="dim"))
        self.line(Text())

    def line(self, text: Text) -> None:
        """A line, wrapped where it is too long."""
        self.console.print(text)

    def titled(self, status: Status, text: Text) -> None:
        """A mark and what it stands before."""
        row = Rows(BADGE_WIDTH)
        row.add_row(self.badge(status), text)
        self.console.print(row)

    def badge(self, status: Status) -> Text:
        """The mark of a status, told by sign and word as well as by colour."""
        fancy, plain, style = GLYPHS[status]
        return Text(f"{plain if self.look.ascii else fancy} {STATUS_WORDS[status]:7}", style=style)

    def grid(self, indent: str, *widths: int) -> Rows:
        """Columns of these widths behind an indentation, and one that takes the rest of the line."""
        return Rows(len(indent) - GAP, *widths)

    def shortened(self, words: str, taken: int) -> Text:
        """As much as fits behind what is taken of the line: what matters is told in full further down."""
        words, room = clean(words), self.look.width - taken
        return Text(words if len(words) <= room else f"{words[: room - 3]}...")

    def evidence(self, evidence: Evidence) -> Text:
        """Where it was read, and the raw words."""
        at = clean(f" at {evidence.at}") if evidence.at and self.look.verbose else ""
        arrow = ": " if not evidence.shows.startswith("->") else " "
        shows = evidence.shows if self.look.verbose else _inner_frames(evidence.shows)
        return Text.assemble((clean(evidence.where) + at, "cyan"), arrow, clean(shows))

    def remedies(self, remedies: Sequence[Sequence[Remedy]]) -> None:
        """The first step with its commands, for every subject of a group; the further ones in words."""
        for number, remedy in enumerate(remedies[0]):
            word = "next" if number == 0 else "then" if remedy.then else "or"
            interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {remedy.interrupts})"
            rows = self.grid("  ", LABEL_WIDTH)
            rows.add_row("", Text(word, style="bold" if number == 0 else ""), Text(clean(f"{remedy.say}{interrupts}")))
            self.console.print(rows)
            if number == 0 or self.look.verbose:
                self._commands([steps[number] for steps in remedies if len(steps) > number])
        if len(remedies[0]) > 1 and not self.look.verbose:
            self.line(Text("            (-v shows the commands of the further steps)", style="dim"))

    def _commands(self, remedies: Sequence[Remedy]) -> None:
        """Commands are never wrapped: they are there to be copied."""
        commands = list(dict.fromkeys(command for remedy in remedies for command in remedy.run))
        for command in commands[:MOST_COMMANDS]:
            self.console.print(Text(f"            $ {clean(command)}", style="green"), soft_wrap=True)
        if len(commands) > MOST_COMMANDS:
            self.line(Text(f"            and {len(commands) - MOST_COMMANDS} more, in --format json"))
        if remedies[0].confirm:
            confirm = self.grid("  ", LABEL_WIDTH)
            confirm.add_row("", Text("confirm"), Text(clean(remedies[0].confirm)))
            self.console.print(confirm)


def _inner_frames(shows: str) -> str:
    """A kernel stack's innermost frames tell where a task waits; the rest is for -v."""
    frames = shows.split("; ")
    return "; ".join([*frames[:MOST_FRAMES], "..."]) if len(frames) > MOST_FRAMES + 1 else shows
