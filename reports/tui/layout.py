"""Text in a given width: words that hang behind a label, and lines that are cut."""

from textual.content import Content


def hung(label: Content, text: Content, width: int, indent: int) -> Content:
    """Text wrapped behind a label, its further lines as far in as the first; `indent` is how far."""
    room = max(8, width - indent)
    first, *others = text.wrap(room) if text.cell_length > room or "\n" in text.plain else [text]
    head = label.pad_right(max(0, indent - label.cell_length)) if label else Content.blank(indent)
    if not others:
        return head + first
    margin = Content.blank(indent)
    return Content("\n").join([head + first, *(margin + line for line in others)])


def cut(text: Content, width: int, *, ascii: bool = False) -> Content:  # noqa: A002 - as `Look` calls it
    """As much as fits into a line of this width."""
    if text.cell_length <= width:
        return text
    end = "..." if ascii else "…"
    return text.truncate(max(1, width - len(end))) + end
