"""The matrix of a topology in lines that fit a width: whole, or in parts, of which one that says the same everywhere is a line."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from gpudoctor.reports.topo_nvlinks import range_words
from gpudoctor.reports.topo_words import legend
from gpudoctor.reports.words import clean
from gpudoctor.topo import Topo

STYLES = {
    "NV": "green",
    "PIX": "green",
    "PXB": "green",
    "PHB": "yellow",
    "NODE": "yellow",
    "SYS": "bold red",
    "X": "dim",
}
INDENT = "  "
FEWEST_ALIKE = 5
"""A part with fewer rows is shown as it is, even where all its cells are alike."""


class MatrixLines:
    """A matrix being laid out; `told` are the words that were shown."""

    def __init__(self, topo: Topo, width: int, *, in_full: bool) -> None:
        self._rows = topo.matrix
        self._width = width
        self._in_full = in_full
        self.told: set[str] = set()

    def lines(self) -> Iterator[Text]:
        """All lines; none for a matrix of less than two devices."""
        gpus = [at for at, row in enumerate(self._rows) if not row.name.startswith("NIC")]
        nics = [at for at, row in enumerate(self._rows) if row.name.startswith("NIC")]
        if len(self._rows) < 2:
            return
        everything = [*gpus, *nics]
        if self._taken(everything, everything) <= self._width:
            blocks = [(everything, everything)]
        else:
            blocks = [(gpus, gpus), (gpus, nics), (nics, nics)]
        for number, (rows, columns) in enumerate((rows, columns) for rows, columns in blocks if rows and columns):
            if number:
                yield Text()
            yield from self._block(rows, columns)

    @property
    def legend(self) -> str:
        """The words that were shown, and what they mean."""
        return "; ".join(f"{word} {words}" for word, words in legend(self.told))

    def _block(self, rows: Sequence[int], columns: Sequence[int]) -> Iterator[Text]:
        cells = {self._rows[row].cells[column] for row in rows for column in columns if row != column}
        if len(cells) == 1 and len(rows) >= FEWEST_ALIKE and not self._in_full:
            yield self._alike(rows, columns, cells.pop())
            return
        room = max(1, (self._width - self._labels(rows)) // self._cell(columns))
        for start in range(0, len(columns), room):
            if start:
                yield Text()
            yield from self._cells(rows, columns[start : start + room])

    def _alike(self, rows: Sequence[int], columns: Sequence[int], cell: str) -> Text:
        self.told.add(cell)
        names = [range_words([self._rows[at].name for at in part], most=6) for part in (rows, columns)]
        who = f"every two of {names[0]}" if list(rows) == list(columns) else f"{names[0]} with {names[1]}"
        return Text.assemble(f"{INDENT}{clean(who)}: ", (clean(cell) or "?", _style(cell)))

    def _cells(self, rows: Sequence[int], columns: Sequence[int]) -> Iterator[Text]:
        label, width = self._labels(rows), self._cell(columns)
        head = "".join(f" {clean(self._rows[column].name):{width - 1}}" for column in columns)
        yield Text(f"{'':{label}}{head}".rstrip(), style="dim")
        for row in rows:
            text = Text(f"{INDENT}{clean(self._rows[row].name)}".ljust(label))
            for column in columns:
                cell = self._rows[row].cells[column]
                self.told.add(cell)
                text.append(f" {clean(cell) or '?':{width - 1}}", style=_style(cell))
            text.rstrip()
            yield text

    def _taken(self, rows: Sequence[int], columns: Sequence[int]) -> int:
        return self._labels(rows) + self._cell(columns) * len(columns)

    def _labels(self, rows: Sequence[int]) -> int:
        return len(INDENT) + max(len(self._rows[row].name) for row in rows)

    def _cell(self, columns: Sequence[int]) -> int:
        """How wide a column is, with the blank before it."""
        words = (word for column in columns for word in (self._rows[column].name, *self._rows[column].cells))
        return 1 + max(map(len, words))


def _style(cell: str) -> str:
    return STYLES.get("NV" if cell.startswith("NV") else cell, "")
