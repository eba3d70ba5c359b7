"""Boxes in boxes: how large each is and where it lies, in pixels."""

from collections.abc import Sequence

from msgspec import Struct

LEAF_WIDTH = 190
LEAF_HEIGHT = 44
GAP = 8
PAD = 10
HEAD = 22
"""Room for a box's title."""
CHARACTER = 7.2
"""About how wide a character of a title is."""
TALLEST = 5
"""So many leaves stand in one column before there are two."""


class Box(Struct):
    """A box: `kind` decides its looks. A leaf has no `inner` boxes. `x` and `y` are within the box around it.

    `detail` stands behind the title, `foot` below it, `aside` at the right; `link` is the looks of a stroke at the left, `about` what a
    reader sees who points at it.
    """

    kind: str
    title: str
    detail: str = ""
    foot: str = ""
    aside: str = ""
    mark: str = ""
    link: str = ""
    about: str = ""
    inner: "list[Box]" = []
    leaf: bool = False
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0


def lay_out(box: Box, widest: float) -> None:
    """Give a box and all in it their sizes and places; it is no wider than `widest`, unless a single box in it is."""
    if box.leaf:
        box.width, box.height = LEAF_WIDTH, LEAF_HEIGHT
        return
    for one in box.inner:
        lay_out(one, widest - 2 * PAD)
    titled = HEAD if box.title else 0
    width, height = _flow(box.inner, widest - 2 * PAD, PAD + titled)
    words = len(box.title) + len(box.detail) + len(box.aside) + 4
    box.width = max(width + 2 * PAD, min(words * CHARACTER, widest)) if box.title else width + 2 * PAD
    box.height = height + 2 * PAD + titled


def _flow(boxes: Sequence[Box], widest: float, top: float) -> tuple[float, float]:
    """Columns of leaves, then the other boxes from left to right, in rows; gives the room they take."""
    leaves = [box for box in boxes if box.leaf]
    columns = min(-(-len(leaves) // TALLEST), max(1, int((widest + GAP) // (LEAF_WIDTH + GAP)))) if leaves else 0
    rows = -(-len(leaves) // columns) if columns else 0
    for number, leaf in enumerate(leaves):
        leaf.x = PAD + (number // rows) * (LEAF_WIDTH + GAP)
        leaf.y = top + (number % rows) * (LEAF_HEIGHT + GAP)
    used = columns * (LEAF_WIDTH + GAP) - GAP if columns else 0.0
    y = top + rows * (LEAF_HEIGHT + GAP) if rows else top
    bottom = y - GAP if rows else top
    others = [box for box in boxes if not box.leaf]
    widest = _even(others, widest)
    x, tallest = 0.0, 0.0
    for box in others:
        if x and x + box.width > widest:
            x, y, tallest = 0.0, y + tallest + GAP, 0.0
        box.x, box.y = PAD + x, y
        x += box.width + GAP
        tallest = max(tallest, box.height)
        used, bottom = max(used, x - GAP), max(bottom, y + box.height)
    return used, bottom - top


def _even(boxes: Sequence[Box], widest: float) -> float:
    """The least width that makes no more rows of boxes than the widest does, so that the last row is not nearly empty."""
    least = _rows(boxes, widest)
    ends = [sum(box.width + GAP for box in boxes[:count]) - GAP for count in range(1, len(boxes) + 1)]
    return next((end for end in ends if end <= widest and _rows(boxes, end) <= least), widest)


def _rows(boxes: Sequence[Box], widest: float) -> int:
    rows, x = 1, 0.0
    for box in boxes:
        if x and x + box.width > widest:
            rows, x = rows + 1, 0.0
        x += box.width + GAP
    return rows
