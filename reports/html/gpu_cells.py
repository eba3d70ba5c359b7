"""What a driver tells of one GPU, in groups of lines: each a cell of the table of GPUs."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.details import GpuDetail
from gpudoctor.report import Finding
from gpudoctor.verdicts import Status

COLUMNS = ("Links", "Memory", "Heat and power", "Clocks", "Errors")
"""The groups, each a column."""
NOT_KNOWN = "not known"
_JUDGED: dict[str, tuple[str, ...]] = {
    "link": ("pcie.link-width", "pcie.link-speed"),
    "NVLinks": ("fabric.nvlinks-up", "fabric.nvlink-speed"),
    "memory": ("health.memory-without-process",),
    "heat": ("health.temperature", "health.memory-temperature"),
    "power": ("health.power-limit",),
    "held down": ("health.throttling",),
    "clock": ("health.clocks",),
}
"""The checks that judge a value: it is marked where one of them finds fault with the GPU, and by nothing else."""


class Told(Struct, frozen=True):
    """A line in a cell; `bad` is the finding that says that it is wrong, `known` not where the driver did not tell it."""

    words: str
    name: str = ""
    known: bool = True
    long: bool = False
    bad: Finding | None = None


class Cell(Struct, frozen=True):
    """A group of values. `span` is how many columns it takes: groups of which nothing is known are one."""

    title: str
    lines: tuple[Told, ...]
    span: int = 1

    @property
    def known(self) -> bool:
        """Whether anything in it is."""
        return any(line.known for line in self.lines)


def cells_of(detail: GpuDetail, about: Sequence[Finding]) -> tuple[Cell, ...]:
    """The cells of a GPU; what a finding about it finds fault with is marked."""
    groups = (_links(detail), _memory(detail), _heat(detail), _clocks(detail), _errors(detail))
    alarms = {one.id.partition("@")[0]: one for one in about if one.status in (Status.FAIL, Status.WARN)}
    cells = [
        Cell(title, tuple(_marked(line, alarms) for line in lines))
        for title, lines in zip(COLUMNS, groups, strict=True)
    ]
    return tuple(_joined(cells))


def _marked(line: Told, alarms: Mapping[str, Finding]) -> Told:
    bad = next((alarms[check] for check in _JUDGED.get(line.name, ()) if check in alarms), None)
    return replace(line, bad=bad) if bad and line.known else line


def _joined(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Neighbours of which nothing is known as one."""
    waiting: list[Cell] = []
    for cell in cells:
        if not cell.known:
            waiting.append(cell)
            continue
        yield from _unknown(waiting)
        waiting = []
        yield cell
    yield from _unknown(waiting)


def _unknown(cells: Sequence[Cell]) -> Iterator[Cell]:
    if cells:
        titles = [cell.title.lower() for cell in cells]
        words = f"{', '.join(titles[:-1])} and {titles[-1]} {NOT_KNOWN}" if len(titles) > 1 else NOT_KNOWN
        yield Cell(", ".join(cell.title for cell in cells), (Told(words, known=False),), len(cells))


def _links(detail: GpuDetail) -> Iterator[Told]:
    yield Told(f"PCIe {detail.link or NOT_KNOWN}", "link", known=detail.link is not None)
    if detail.link_most is not None:
        yield Told(f"of {detail.link_most}", "most")
    if detail.nvlinks is not None or detail.nvlinks_up is not None:
        up, most = ("?" if one is None else str(one) for one in (detail.nvlinks_up, detail.nvlinks))
        yield Told(f"{up} of {most} NVLinks", "NVLinks")


def _memory(detail: GpuDetail) -> Iterator[Told]:
    used, most = detail.memory_used, detail.memory
    yield Told("use not known", "memory", known=False) if used is None else Told(size(used), "memory")
    if most is not None:
        yield Told(f"of {size(most)}", "most")


def _heat(detail: GpuDetail) -> Iterator[Told]:
    yield _pair(detail.temperature, detail.temperature_most, "\u00b0C", "heat")
    yield _pair(detail.power, detail.power_limit, "W", "power")


def _clocks(detail: GpuDetail) -> Iterator[Told]:
    yield _pair(detail.clock, detail.clock_most, "MHz", "clock")
    busy = detail.utilization
    yield Told("load not known", "busy", known=False) if busy is None else Told(f"{busy} % busy", "busy")
    if detail.throttled:
        yield Told(f"held down: {', '.join(detail.throttled)}", "held down", long=True)


def _errors(detail: GpuDetail) -> Iterator[Told]:
    for name, words in detail.errors.items():
        group, _, kind = name.partition(".")
        counted = group == "nvlink" or name.startswith(("ecc.volatile.", "ecc.aggregate."))
        what = kind.rpartition(".")[2].replace("_", " ")
        yield Told(f"{'NVLink ' if group == 'nvlink' else ''}{what}: {words}" if counted else words)
    if not detail.errors:
        yield Told("none counted") if listed(detail, "errors") else Told(NOT_KNOWN, known=False)


def listed(detail: GpuDetail, key: str) -> bool:
    """Whether the driver told of what a list would hold, so that an empty one means nobody or none."""
    return answered(detail) and not any(why.startswith(f"{key}: ") for why in detail.unread)


def answered(detail: GpuDetail) -> bool:
    """Whether the driver told anything of it but who it is."""
    told = (detail.memory, detail.temperature, detail.power, detail.clock, detail.utilization)
    return any(one is not None for one in told)


def _pair(now: float | None, most: float | None, unit: str, kind: str) -> Told:
    """`34 of 87 °C`."""
    if now is None:
        return Told(f"{kind} {NOT_KNOWN}", kind, known=False)
    return Told(f"{now:.0f} {unit}" if most is None else f"{now:.0f} of {most:.0f} {unit}", kind)


def size(count: int) -> str:
    """Bytes with a tenth of a GiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
