"""What comes up over the views and goes away again: an explanation, the keys, and a choice of commands to copy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.cause import LABEL_WIDTH, Command, Line
from gpudoctor.reports.tui.layout import hung
from gpudoctor.reports.tui.rows import Row, Rows
from gpudoctor.reports.tui.sheet import Sheet

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp

KEYS = (
    ("1 ... 8", "the views; a click on their names does the same"),
    (
        "arrows, j k, g G",
        "move; page keys too; left and right go between the chain and the findings, Tab to what is next",
    ),
    ("enter", "the finding in full: evidence, steps from the safest up, what follows; from the chain to its checks"),
    ("esc", "back; the filter is cleared"),
    ("y, c", "copy a command of a remedy (OSC 52: through ssh too; in tmux after `set -g set-clipboard on`)"),
    ("x", "explain the check, and the Xid it speaks of"),
    ("r", "run again; a run that hangs is left behind"),
    ("w", "watch: run again and again, and mark what has changed"),
    ("/", "filter by words, over all checks"),
    ("ctrl+f", "search in all that the report says"),
    ("d", "compare with a saved report"),
    ("t, b", "GPUs: who shares them, or how they are; Compare: the saved report, or the passes of a watch"),
    ("s", "save as HTML or JSON, or record a snapshot"),
    ("ctrl+p", "the command palette: every view, finding, check and theme by name"),
    ("q, ctrl+c", "quit, at once, whatever hangs"),
)
SIGNS = (
    ("root cause", "a finding that nothing below it explains; what it explains follows from it"),
    ("FAIL", "broken"),
    ("WARN", "deserves attention, breaks nothing now"),
    ("UNKNOWN", "could not be told, and why: no opinion about health"),
    ("BLOCKED", "a link below is down, so it was not asked"),
    ("SKIPPED", "makes no sense here, or is switched off"),
)
MOST_SHORT = 60
"""A line as long as that was broken because it had to be; a paragraph's last one mostly is not."""
PROMISE = "No key changes the node: this program looks, shows and writes only the file you name."


class Over(ModalScreen[None]):
    """A page over the views, closed by escape, enter or q."""

    DEFAULT_CSS = """
    Over { align: center middle; }
    Over > Vertical { width: 90%; max-width: 110; height: 90%; background: $surface; border: round $border; padding: 0 1; }
    Over .title { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,x,question_mark", "close", "Close")]

    def __init__(self, title: str, lines: Sequence[Line], label_width: int = LABEL_WIDTH) -> None:
        super().__init__()
        self._label_width = label_width
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """A title and a page."""
        with Vertical() as frame:
            frame.border_subtitle = "esc closes"
            yield Static(node_text(self._title), classes="title", markup=False)
            yield Sheet(id="over", label_width=self._label_width)

    def on_mount(self) -> None:
        """Put the text in, and let it be scrolled."""
        self.put(self._lines)
        self.query_one(Sheet).focus()

    def put(self, lines: Sequence[Line]) -> None:
        """Other text."""
        self.query_one(Sheet).put(lines, anew=True)

    def action_close(self) -> None:
        """Away with it."""
        self.dismiss(None)


class Explained(Over):
    """What `gpudoctor explain` says of a check or a code, once it has said it."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__("explain " + " ".join(words), [Line(Content("asking gpudoctor explain ..."), None)])
        self._words = tuple(words)

    def on_mount(self) -> None:
        """Ask."""
        super().on_mount()
        self.run_worker(self._ask(), exit_on_error=True)

    async def _ask(self) -> None:
        doctor: DoctorApp = self.app  # type: ignore[assignment]  # there is no other program
        end = await doctor.outcome_of("explain", *self._words)
        # A code that has no explanation must not cost that of the check.
        if end.status and len(self._words) > 1:
            end = await doctor.outcome_of("explain", self._words[0])
        said = end.stdout if end.status == 0 else end.stderr or "gpudoctor explain has said nothing"
        self.put([Line(node_text(line), None) for line in flowing(said.rstrip())])


def flowing(text: str) -> list[str]:
    """Lines that were broken for another width put together again; what is short, or set in, stands by itself."""
    lines: list[str] = []
    broken = False
    for line in text.split("\n"):
        if broken and line and not line[0].isspace() and line[0] not in "-*":
            lines[-1] += " " + line
        else:
            lines.append(line)
        broken = len(line) >= MOST_SHORT and not line[0].isspace()
    return lines


class Help(Over):
    """The keys, and what the words mean."""

    def __init__(self) -> None:
        lines = [Line(Content(words), keys, "bold") for keys, words in (*KEYS, ("", ""), *SIGNS)]
        super().__init__(
            "Keys and words", [*lines, Line(Content(), None), Line(Content(PROMISE), None)], label_width=18
        )


class Picker(ModalScreen[str | None]):
    """Which of several commands is meant; the safest comes first."""

    DEFAULT_CSS = """
    Picker { align: center middle; }
    Picker > Vertical {
        width: 90%; max-width: 120; height: auto; max-height: 80%; background: $surface; border: round $border; padding: 0 1;
    }
    Picker Rows { height: auto; max-height: 30; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "Close"), Binding("y,c", "take", "Copy")]

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        """A title and the commands."""
        with Vertical() as frame:
            frame.border_subtitle = "esc: none"
            yield Static(Content.styled("Which command? Enter copies it.", "bold"), markup=False)
            yield Rows(id="commands")

    def on_mount(self) -> None:
        """Fill the list."""
        self._fill()
        self.query_one(Rows).focus()

    def on_resize(self) -> None:
        """Wrap again."""
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self.query_one(Rows).scrollable_content_region.width or 60
        rows = []
        step = ""
        for number, command in enumerate(self._commands):
            if command.step != step:
                step = command.step
                rows.append(Row(hung(Content(), Content.styled(step, "$text-muted"), width, 0)))
            rows.append(Row(hung(Content("  $"), node_text(command.command, "$text-success"), width, 4), str(number)))
        self.query_one(Rows).fill(rows)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """This one."""
        event.stop()
        self.action_take()

    def action_take(self) -> None:
        """The highlighted one."""
        row = self.query_one(Rows).chosen
        self.dismiss(self._commands[int(row)].command if row is not None else None)

    def action_close(self) -> None:
        """None of them."""
        self.dismiss(None)
