"""What pages for a terminal have in common: a console of a width, marks of status, rows, evidence and remedies."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
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

BADGE_WIDTH = 9
LABEL_WIDTH = 8
MOST_COMMANDS = 8
MOST_FRAMES = 4


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
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=BADGE_WIDTH)
        row.add_column(overflow="fold")
        row.add_row(self.badge(status), text)
        self.console.print(row)

    def badge(self, status: Status) -> Text:
        """The mark of a status, told by sign and word as well as by colour."""
        fancy, plain, style = GLYPHS[status]
        return Text(f"{plain if self.look.ascii else fancy} {STATUS_WORDS[status]:7}", style=style)

    def grid(self, indent: str, *widths: int) -> Table:
        """Columns of these widths behind an indentation, and one that takes the rest of the line."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=len(indent) - 2)
        for width in widths:
            grid.add_column(width=width)
        grid.add_column(overflow="fold")
        return grid

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
