"""The table of GPUs: what was read of each, in groups that stand in one cell, and the worst finding about it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.details import Details, GpuDetail
from gpudoctor.report import Finding, NodeGpu, Report
from gpudoctor.reports.html.gpu_cells import COLUMNS, Cell, answered, cells_of, listed, size
from gpudoctor.reports.html.workloads import WorkloadView
from gpudoctor.reports.words import STATUS_ORDER
from gpudoctor.verdicts import Status, SubjectKind

MOST_ROWS = 128
MOST_OPEN = 16
"""Of more GPUs only those of which something is said stand open."""
TAIL = 8
"""So many digits of a UUID are shown of a GPU that is not unfolded."""
_ALARMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)
_OF_LISTS = ("errors: ", "processes: ")
"""What says why a list is empty, of a GPU that answered."""


class GpuView(Struct, frozen=True):
    """A GPU: its worst unwaived status and the finding that gives it, one that is left open beside it, and what was read."""

    gpu: NodeGpu
    status: Status | None
    worst: Finding | None
    open: Finding | None
    detail: GpuDetail | None
    identity: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]
    workloads: tuple[WorkloadView, ...]
    unread: tuple[str, ...]

    @property
    def tail(self) -> str:
        """What a UUID is told apart by at a glance."""
        uuid = self.gpu.uuid or (self.detail.uuid if self.detail else None) or ""
        return uuid[-TAIL:]

    @property
    def name(self) -> str:
        """Its model."""
        return self.gpu.name or (self.detail.name if self.detail else None) or ""

    @property
    def serial(self) -> str:
        """The board's, by which it is found in a store."""
        return (self.detail.serial if self.detail else None) or ""

    @property
    def listed(self) -> bool:
        """Whether those who use it were listed, so that an empty list means nobody."""
        return self.detail is not None and listed(self.detail, "processes")

    @property
    def untold(self) -> bool:
        """Whether no finding says anything against it, and yet the driver told nothing of it for a reason that is known."""
        if self.detail is None or answered(self.detail) or self.status not in (None, Status.PASS, Status.SKIP):
            return False
        return not all(why.startswith(_OF_LISTS) for why in self.detail.unread)

    @property
    def mig(self) -> str:
        """What is told of MIG beside who uses it."""
        return f"MIG {self.detail.mig}" if self.detail and self.detail.mig else ""

    @property
    def users(self) -> tuple["User", ...]:
        """Who uses it: workloads that are traced below, then processes of no such."""
        named = {one.traced.subject.id for one in self.workloads}
        processes = self.detail.processes if self.detail else ()
        return (
            *(User(one.traced.title, one.anchor) for one in self.workloads),
            *(
                User(one.name, "", one.pid, "" if one.memory is None else size(one.memory))
                for one in processes
                if one.workload not in named
            ),
        )


class User(Struct, frozen=True):
    """A workload, with the id of its place, or a process with what it takes of the memory."""

    name: str
    anchor: str
    pid: int = 0
    memory: str = ""


class GpusView(Struct, frozen=True):
    """The table: rows that stand open, those that are folded, and how many are left out.

    Of all of them alike: `unread` why something is not known, `left_open` a check that could not tell, `everywhere` who has every GPU.
    """

    open: tuple[GpuView, ...]
    folded: tuple[GpuView, ...]
    more: int
    columns: tuple[str, ...]
    unread: tuple[str, ...]
    left_open: Finding | None
    everywhere: tuple[WorkloadView, ...]

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return len(self.open) + len(self.folded) + self.more


def gpus_of(report: Report, details: Details | None, workloads: Sequence[WorkloadView]) -> GpusView:
    """The GPUs in the report's order, then those of which only the details tell."""
    table = _Table(report, details, workloads)
    rows = table.rows()
    left_open = _open_everywhere(rows)
    if left_open:
        rows = [replace(one, open=None) for one in rows]
    first = rows if len(rows) <= MOST_OPEN else [one for one in rows if one.status in _ALARMS]
    first = first[:MOST_ROWS]
    rest = [one for one in rows if one not in first][: MOST_ROWS - len(first)]
    return GpusView(
        open=tuple(first),
        folded=tuple(rest),
        more=len(rows) - len(first) - len(rest),
        columns=COLUMNS if table.told else (),
        unread=tuple(table.alike),
        left_open=left_open,
        everywhere=tuple(table.everywhere),
    )


def _open_everywhere(rows: Sequence[GpuView]) -> Finding | None:
    """The first of the findings that leave the same open of every GPU."""
    checks = {one.open.id.partition("@")[0] if one.open else "" for one in rows}
    return rows[0].open if len(checks) == 1 and len(rows) > 1 else None


class _Table:
    """What rows are made of: `told` by address, `alike` what is not known of any, `everywhere` who has every GPU."""

    def __init__(self, report: Report, details: Details | None, workloads: Sequence[WorkloadView]) -> None:
        self.told = {one.address: one for one in details.gpus} if details else {}
        known = {one.address for one in report.node.gpus}
        beyond = (one for one in self.told.values() if one.address not in known)
        self._gpus = [
            *report.node.gpus,
            *(NodeGpu(one.address, one.uuid, one.name, one.minor, one.index) for one in beyond),
        ]
        unread = [set(one.unread) for one in self.told.values()]
        self.alike = [
            why for one in list(self.told.values())[:1] for why in one.unread if all(why in all_ for all_ in unread)
        ]
        self.everywhere = [one for one in workloads if 1 < len(self._gpus) == len(_addresses(one))]
        self._others = [one for one in workloads if one not in self.everywhere]
        self._essential = {result.check for result in report.results if result.essential}
        self._about: dict[str, list[Finding]] = {}
        for result in report.results:
            for finding in result.findings:
                if finding.subject.kind is SubjectKind.GPU:
                    self._about.setdefault(finding.subject.key, []).append(finding)

    def rows(self) -> list[GpuView]:
        """All of them."""
        return [self._row(gpu) for gpu in self._gpus]

    def _row(self, gpu: NodeGpu) -> GpuView:
        about = self._about.get(gpu.address, [])
        counting = [finding for finding in about if finding.waived is None]
        worst = min(counting, key=self._severity, default=None)
        detail = self.told.get(gpu.address)
        return GpuView(
            gpu=gpu,
            status=worst.status if worst else None,
            worst=worst,
            open=next((one for one in counting if one.status is Status.UNKNOWN and one is not worst), None),
            detail=detail,
            identity=tuple(_identity(gpu, detail)),
            cells=cells_of(detail, about) if detail else (),
            workloads=tuple(one for one in self._others if gpu.address in _addresses(one)),
            unread=tuple(why for why in detail.unread if why not in self.alike) if detail else (),
        )

    def _severity(self, finding: Finding) -> tuple[bool, int]:
        """As in the verdict on a node: what is not known of something that is not essential comes after everything that is known."""
        quiet = finding.status is Status.UNKNOWN and finding.id.partition("@")[0] not in self._essential
        return quiet, STATUS_ORDER.index(finding.status)


def _addresses(workload: WorkloadView) -> set[str]:
    return {gpu.address for gpu in workload.traced.gpus}


def _identity(gpu: NodeGpu, detail: GpuDetail | None) -> Iterator[tuple[str, str]]:
    yield "UUID", gpu.uuid or (detail.uuid if detail else None) or ""
    if detail:
        yield "Serial", detail.serial or ""
        yield "VBIOS", detail.vbios or ""
        yield "Driver", detail.driver or ""
    minor = gpu.minor if gpu.minor is not None or detail is None else detail.minor
    yield "Minor", "" if minor is None else str(minor)
    if detail:
        yield "NUMA node", "" if detail.numa is None else "none" if detail.numa < 0 else str(detail.numa)
        yield "Persistence", "" if detail.persistence is None else "on" if detail.persistence else "off"
        yield "Compute mode", detail.compute_mode or ""
