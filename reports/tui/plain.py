"""A terminal that is sent nothing beyond ASCII, whatever a widget draws."""

import re
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from textual.driver import Driver

_BEYOND = re.compile("[^\x00-\x7f]")
_LOOKS_LIKE = {
    "│": "|",
    "▏": "|",
    "▕": "|",
    "─": "-",
    "▔": "-",
    "▁": "_",
    "╭": "+",
    "╮": "+",
    "╰": "+",
    "╯": "+",
    "…": ".",
    "⏎": ">",
    "·": ".",
    "°": " ",
    **dict.fromkeys("▂▃", "_"),
    **dict.fromkeys("▄▅▆▇█▀", "#"),
    **dict.fromkeys("▉▊▋▌▍▎▐", "|"),
}
"""Of the same width, as everything that stands in place of a character here."""


def plain_driver() -> "type[Driver]":
    """The driver of this platform, writing ASCII only."""
    from textual.drivers.linux_driver import LinuxDriver

    class PlainDriver(LinuxDriver):
        """Writes what ASCII has."""

        def write(self, data: str) -> None:
            """With each other character replaced by as many columns of ASCII."""
            super().write(as_ascii(data))

    return PlainDriver


def as_ascii(text: str) -> str:
    """Text of the same width in ASCII."""
    return _BEYOND.sub(lambda match: _LOOKS_LIKE.get(match[0], "?" * cell_len(match[0])), text)
