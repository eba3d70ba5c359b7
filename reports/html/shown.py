"""How a node's words stand on a page: without what reorders or hides text, and no longer than there is room for."""

from markupsafe import Markup, escape

from gpudoctor.reports.words import clean

MOST_BYTES = 400_000
"""What a page has at most for each eight GPUs."""
ROOMS = (None, 800, 250, 80)
"""How many bytes of each text a page shows: all of it, and less where the page grows too large. The report inside it stays whole."""


class Shown:
    """What is printed of a value. Markup is what templates made, with words in it that went through here."""

    def __init__(self) -> None:
        self.room: int | None = None

    def __call__(self, value: object) -> object:
        """The value, cleaned and cut if it is a text."""
        if not isinstance(value, str) or hasattr(value, "__html__"):
            return value
        text = clean(value)
        return text if self.room is None or len(text) * 2 < self.room else _fitted(text, self.room)


def whole(text: str) -> Markup:
    """A text that is of no use when it is cut: a command, an address."""
    return escape(clean(text))


def room_for(gpus: int) -> int:
    """How many bytes a page about so many GPUs may have."""
    return MOST_BYTES * max(1, -(-gpus // 8))


def _fitted(text: str, room: int) -> str:
    if _bytes(text) <= room:
        return text
    kept = 0
    for letter in text:
        room -= _bytes(letter)
        if room < 0:
            break
        kept += 1
    return f"{text[:kept]} ... ({len(text) - kept:,} more)"


def _bytes(text: str) -> int:
    return len(escape(text).encode("ascii", "xmlcharrefreplace"))
