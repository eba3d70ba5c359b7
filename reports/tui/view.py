"""What a view is."""

from typing import TYPE_CHECKING

from textual.widget import Widget

from gpudoctor.reports.tui.model import Chosen, Shown

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp


class View(Widget):
    """One way of looking at what is shown; it takes the room between the heading and the footer."""

    DEFAULT_CSS = "View { height: 1fr; width: 1fr; }"

    @property
    def doctor(self) -> "DoctorApp":
        """The program."""
        return self.app  # type: ignore[return-value]  # there is no other

    def show(self, shown: Shown) -> None:
        """Show this; called when the view appears and, while it is to be seen, after every change."""
        raise NotImplementedError

    @property
    def chosen(self) -> Chosen | None:
        """What the keys for copying and explaining are about."""
        return None

    def take_focus(self) -> None:
        """Give the keys to the widget in it that is moved in; by default the first that takes them."""
        for widget in self.query("*"):
            if widget.focusable:
                widget.focus()
                return
