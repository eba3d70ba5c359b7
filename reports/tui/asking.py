"""A question for a file name, over the views: one line to type in, what is wrong with it below, and buttons for the mouse."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from gpudoctor.reports.tui.badges import node_text

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp


class Asking(ModalScreen[str | None]):
    """Asks for a file name. `take` answers with what is wrong with it, or closes the question."""

    DEFAULT_CSS = """
    Asking { align: center middle; }
    Asking > Vertical { width: 90%; max-width: 100; height: auto; background: $surface; border: round $border; padding: 0 1; }
    Asking .title { text-style: bold; height: auto; }
    Asking .says { height: auto; color: $text-muted; }
    Asking .wrong { height: auto; color: $text-error; }
    Asking .buttons { height: 1; margin-top: 1; }
    Asking Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    QUESTION = ""
    DO = "OK"

    @property
    def doctor(self) -> "DoctorApp":
        """The program."""
        return cast("DoctorApp", self.app)

    def choices(self) -> Iterator[Widget]:
        """What can be chosen beside the name."""
        yield from ()

    def proposed(self) -> str:
        """What stands in the line at first."""
        return ""

    def pick(self, choice: str) -> None:
        """A choice was made."""

    def says(self, path: str) -> str:
        """What would be done with this name."""
        return ""

    async def take(self, path: str) -> str:
        """Do it, and close; else what is wrong."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical():
            yield Static(self.QUESTION, classes="title", markup=False)
            yield from self.choices()
            yield Input(self.proposed(), classes="path", compact=True, select_on_focus=False)
            yield Static(classes="says", markup=False)
            yield Static(classes="wrong", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(self.DO, classes="do", variant="primary", compact=True)
                yield Button("Cancel", classes="cancel", compact=True)

    def on_mount(self) -> None:
        """The name is what is typed."""
        self.line.focus()
        self._tell()

    @property
    def line(self) -> Input:
        """Where the name stands."""
        return self.query_one(Input)

    def wrong(self, words: str) -> None:
        """Say what is wrong; "" for nothing."""
        self.query_one(".wrong", Static).update(node_text(words))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another name, another answer."""
        event.stop()
        self.wrong("")
        self._tell()

    def _tell(self) -> None:
        self.query_one(".says", Static).update(node_text(self.says(self.line.value)))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        await self._do()

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """The mouse, or Tab and Enter."""
        event.stop()
        if event.button.has_class("do"):
            await self._do()
        elif event.button.has_class("cancel"):
            self.dismiss(None)
        else:
            self.pick(event.button.id or "")

    async def _do(self) -> None:
        path = self.line.value.strip()
        self.wrong(await self.take(os.path.expanduser(path)) if path else "A file name is needed.")

    def action_close(self) -> None:
        """Nothing is done."""
        self.dismiss(None)
