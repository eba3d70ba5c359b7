"""Marks and styles of a status, told by sign and word as well as by colour, and node text that is never taken for markup."""

from textual.content import Content

from gpudoctor.reports.page import GLYPHS
from gpudoctor.reports.words import STATUS_WORDS, clean
from gpudoctor.verdicts import Status

STYLES = {
    Status.PASS: "$text-success",
    Status.FAIL: "bold $text-error",
    Status.WARN: "bold $text-warning",
    Status.UNKNOWN: "$text-accent",
    Status.BLOCKED: "$text-secondary",
    Status.SKIP: "dim",
}
MOST = 4000
"""Longer text of a node is cut: a screen shows less, and wrapping a flood takes long."""


def badge(status: Status, *, ascii: bool = False, width: int = 9) -> Content:  # noqa: A002 - as `Look` calls it
    """`✘ FAIL   `, in its colour; so wide that what follows is aligned."""
    fancy, plain, _ = GLYPHS[status]
    return Content.styled(f"{plain if ascii else fancy} {STATUS_WORDS[status]}".ljust(width), STYLES[status])


def node_text(text: str, style: str = "", most: int = MOST) -> Content:
    """Words that came from a node: cleaned, bounded, and never markup."""
    cleaned = clean(text if len(text) <= most else text[: most - 3] + "...")
    return Content.styled(cleaned, style) if style else Content(cleaned)
