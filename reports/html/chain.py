"""The chain as a picture: each link in a cell of a grid, and lines from what is stood on to what stands on it.

The cells are placed by the style sheet, the lines lie behind them, so that the picture is a list where there is no room for it.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from gpudoctor.chain import BELOW, STANDS_ON, Link
from gpudoctor.report import Report
from gpudoctor.verdicts import Status

CELL = 100
"""The side of a cell in the drawing of the lines, which is stretched over the grid."""

ROWS: dict[Link, int] = {
    Link.PCIE: 1,
    Link.KERNEL_MODULE: 1,
    Link.DEVICE_NODES: 1,
    Link.DRIVER_CUDA: 1,
    Link.FABRIC: 0,
    Link.SHARING: 1,
    Link.TOOLKIT: 2,
    Link.CGROUP: 3,
    Link.DEVICE_PLUGIN: 2,
    Link.CUDA_INIT: 0,
    Link.WORKLOAD: 1,
    Link.TOPOLOGY: 2,
    Link.HEALTH: 3,
    Link.STARTUP: 3,
}
"""The row of each link: its column is how far it is from the bottom. So chosen that no line crosses a cell."""

LAST_COLUMN = frozenset({Link.STARTUP})
"""What stands on nothing, and is asked of what comes after everything else."""


class Place(Struct, frozen=True):
    """Where a link stands, counted from 0, and what it stands on directly."""

    column: int
    row: int
    stands_on: tuple[Link, ...]


class Line(Struct, frozen=True):
    """A line from a link to one that stands on it, as the path of an SVG."""

    one: Link
    other: Link
    path: str


def first_broken(report: Report) -> Link | None:
    """The link of the first root cause that fails: what stands on it waits for it."""
    return next((cause.link for cause in report.root_causes if cause.status is Status.FAIL), None)


class Picture:
    """Where the links are drawn that a report tells of, and the lines between them; rows without a link are left out."""

    def __init__(self, present: Collection[Link]) -> None:
        self._links = [link for link in Link if link in present]
        rows = sorted({ROWS[link] for link in self._links})
        last = max(map(_depth, Link))
        self._at = {
            link: (last if link in LAST_COLUMN else _depth(link), rows.index(ROWS[link])) for link in self._links
        }
        self.width = (last + 1) * CELL
        self.height = len(rows) * CELL

    def place(self, link: Link) -> Place:
        """Of one that is there. Raises KeyError."""
        return Place(*self._at[link], tuple(one for one in _directly(link) if one in self._at))

    def lines(self) -> tuple[Line, ...]:
        """What follows from two others is not drawn."""
        return tuple(self._line(one, other) for other in self._links for one in self.place(other).stands_on)

    def _line(self, one: Link, other: Link) -> Line:
        """From middle to middle, up or down between two columns where no cell is in the way."""
        (left, top), (right, down) = self._at[one], self._at[other]
        early = any((column, top) in self._at.values() for column in range(left + 1, right))
        turn = (left + 1 if early else right) * CELL
        path = f"M{_middle(left)} {_middle(top)}H{turn}V{_middle(down)}H{_middle(right)}"
        return Line(one, other, path)


def _depth(link: Link) -> int:
    return 1 + max((_depth(below) for below in STANDS_ON[link]), default=-1)


def _directly(link: Link) -> Iterator[Link]:
    """What it stands on, without what that stands on in turn."""
    for one in Link:
        others = STANDS_ON[link] - {one}
        if one in STANDS_ON[link] and not any(one in BELOW[other] for other in others):
            yield one


def _middle(cell: int) -> int:
    return cell * CELL + CELL // 2
