"""The line at the bottom: the keys that do something now. A click on one does it."""

from typing import TYPE_CHECKING, Any

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Static

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp

ALWAYS = 2
"""How to get help, and out: the last ones stay where all do not fit."""


class Keys(Static):
    """Keys and what they do, as many as fit. One text, in place of a widget for each key as textual's Footer has it: that takes as long
    to make as everything else of the first screen.
    """

    DEFAULT_CSS = "Keys { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; background: $panel; }"

    def on_mount(self) -> None:
        """Follow what can be done."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_resize(self) -> None:
        """As many as fit now."""
        self._changed(self.screen)

    @property
    def _doctor(self) -> "DoctorApp":
        return self.app  # type: ignore[return-value]  # there is no other program

    def _changed(self, screen: Screen[Any]) -> None:
        told = []
        seen: set[str] = set()
        for _, binding, enabled, _ in screen.active_bindings.values():
            if binding.show and enabled and binding.action not in seen and self._doctor.offers(binding.action):
                seen.add(binding.action)
                text = (
                    Content.styled(self.app.get_key_display(binding), "bold $text-accent") + f" {binding.description}"
                )
                told.append(text.stylize(Style.from_meta({"pressed": binding.key})))
        roomy = sum(text.cell_length + 2 for text in told) <= self.app.size.width
        self.update(Content("  ").join(told) if roomy else _crowded(told, self.app.size.width - 2), layout=False)

    def on_click(self, event: events.Click) -> None:
        """As if the key had been pressed."""
        if key := event.style.meta.get("pressed"):
            self.app.simulate_key(key)


def _crowded(told: list[Content], width: int) -> Content:
    """Those before the last ones give way."""
    gap = Content(" ")
    kept, always = told[:-ALWAYS], told[-ALWAYS:]
    while kept and gap.join([*kept, *always]).cell_length > width:
        kept.pop()
    return gap.join([*kept, *always])
