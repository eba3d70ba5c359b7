"""The line in which words to filter by are written."""

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp


class FilterBar(Input):
    """Filters while one writes; enter goes to what was found, escape shows everything again."""

    DEFAULT_CSS = "FilterBar { height: 1; border: none; padding: 0 1; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Show all"),
        Binding("enter,down", "found", "To the list", key_display="⏎"),
    ]

    def __init__(self, words: str) -> None:
        super().__init__(words, placeholder="filter: words that must all occur", compact=True, id="filter")

    @property
    def _doctor(self) -> "DoctorApp":
        return self.app  # type: ignore[return-value]  # there is no other program

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter by what is written."""
        event.stop()
        self._doctor.filter_by(event.value)

    def action_found(self) -> None:
        """To the list; without words the line goes away."""
        if self.value.strip():
            self._doctor.focus_view()
        else:
            self.action_clear()

    def action_clear(self) -> None:
        """Everything again."""
        self._doctor.action_show_all()
        self._doctor.focus_view()
