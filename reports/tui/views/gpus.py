"""The GPUs: how each of them is, or who shares it, and all that is known of one."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.details import GpuDetail
from gpudoctor.report import Finding, NodeGpu, Report
from gpudoctor.reports.shares import Share, folded
from gpudoctor.reports.tui.badges import STYLES, badge, node_text
from gpudoctor.reports.tui.marks import FindingMarks, finding_marks, most_telling
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.amounts import celsius, memory, of_most, watts
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import Column, Item, TwoPanes, laid, untold_of
from gpudoctor.reports.words import STATUS_ORDER, STATUS_WORDS, counted
from gpudoctor.verdicts import Status, SubjectKind

_HEALTH = (
    Column("Status"),
    Column("Change", rank=1, most=17),
    Column("#"),
    Column("Address", most=16),
    Column("Name", rank=6, most=26),
    Column("Link", rank=4, most=18),
    Column("Memory", rank=2, most=18),
    Column("Temp", rank=3),
    Column("Power", rank=5),
    Column("Throttled", rank=1, most=24),
    Column("Errors", rank=1, most=24),
    Column("Not known", rank=8),
    Column("Worst finding", rank=7, most=60, least=16),
)
_SHARING = (
    Column("Status", rank=3),
    Column("Change", rank=7, most=17),
    Column("#"),
    Column("Address", most=16),
    Column("How", most=34),
    Column("By", rank=1, most=44),
    Column("Memory", rank=4, most=40),
    Column("Faults", rank=5, most=40),
    Column("Compute", rank=6, most=40),
    Column("Room", rank=2, most=40),
)


_WORST = (Status.FAIL, None, Status.WARN, Status.PASS, Status.UNKNOWN, Status.BLOCKED, Status.SKIP)
"""From what a GPU shows first; the second place is that of an essential check that is not known."""


class Known(Struct, frozen=True):
    """A GPU with all that the report says of it somewhere; `gpu` is None for one of which only findings speak."""

    address: str
    gpu: NodeGpu | None
    detail: GpuDetail | None
    findings: tuple[Finding, ...]
    share: Share | None
    essential: frozenset[str]

    @property
    def worst(self) -> Finding | None:
        """The finding that gives its status, as for the whole node: waived ones do not count, nor what is not known of the inessential."""
        counting = [one for one in self.findings if one.waived is None]
        return min(counting, key=self._place, default=None)

    def _place(self, one: Finding) -> int:
        if one.status is Status.UNKNOWN and one.id.partition("@")[0] in self.essential:
            return 1
        return _WORST.index(one.status)

    def of(self, *statuses: Status) -> list[Finding]:
        """Its findings of these statuses, in their order."""
        return sorted(
            (one for one in self.findings if one.status in statuses), key=lambda one: statuses.index(one.status)
        )

    @property
    def index(self) -> int | None:
        """NVML's number."""
        told = self.detail.index if self.detail else None
        return told if told is not None else self.gpu.index if self.gpu else None

    @property
    def name(self) -> str:
        """The model."""
        return (self.detail and self.detail.name) or (self.gpu and self.gpu.name) or ""


def known(report: Report, details: Sequence[GpuDetail]) -> tuple[Known, ...]:
    """All GPUs that the report speaks of, by address."""
    gpus = {gpu.address: gpu for gpu in report.node.gpus}
    of_gpu = {detail.address: detail for detail in details}
    about: dict[str, list[Finding]] = {}
    for result in report.results:
        for finding in result.findings:
            for address in _addresses(finding):
                about.setdefault(address, []).append(finding)
    shares = {row.gpu: folded([row])[0] for row in report.sharing}
    essential = frozenset(result.check for result in report.results if result.essential)
    return tuple(
        Known(
            address,
            gpus.get(address),
            of_gpu.get(address),
            tuple(about.get(address, ())),
            shares.get(address),
            essential,
        )
        for address in sorted({*gpus, *of_gpu, *about})
    )


def _addresses(finding: Finding) -> set[str]:
    """The GPU that it is about; a MIG instance stands on its GPU."""
    subjects = (finding.subject, *finding.subject.stands_on)
    return {subject.key for subject in subjects if subject.kind is SubjectKind.GPU and subject.key}


class Gpus(TwoPanes):
    """The list of GPUs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "turn", "Health/sharing")]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self._shares = False
        self._known: dict[str, Known] = {}
        self._marks = FindingMarks()

    def state(self) -> tuple[Any, ...]:
        """Which columns."""
        return (self._shares,)

    def action_turn(self) -> None:
        """From health to who shares them, and back."""
        self._shares = not self._shares
        self._again()

    def columns(self, shown: Shown) -> Sequence[Column]:
        """Health, or who shares."""
        return _SHARING if self._shares else _HEALTH

    def items(self, shown: Shown) -> Sequence[Item]:
        """Each GPU."""
        if shown.report is None:
            self._known = {}
            return ()
        found = known(shown.report, shown.details.gpus if shown.details else ())
        self._known = {one.address: one for one in found}
        self._marks = finding_marks(shown.before, shown.report)
        cells = self._shared if self._shares else self._healthy
        return [
            Item(one.address, cells(one, shown), (one.name, *_words(one), *(each.summary for each in one.findings)))
            for one in found
        ]

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """How many, and how they are."""
        statuses = [one.worst.status for one in self._known.values() if one.worst is not None]
        numbers = [f"{statuses.count(status)} {STATUS_WORDS[status]}" for status in STATUS_ORDER if status in statuses]
        told = f"{counted(len(items), 'GPU')}: {', '.join(numbers) or 'nothing was found out about them'}"
        other = "t: who shares them" if not self._shares else "t: how they are"
        return f"{told} ({other})" if shown.details is not None else f"{told} ({other}). {shown.untold}"

    def why_empty(self, shown: Shown) -> str:
        """No GPU, or no report."""
        if shown.report is None:
            return shown.untold
        try:
            return f"No GPU was seen: {shown.report.result('pcie.gpus-present').detail}"
        except KeyError:
            return "No GPU was seen, and this report does not say whether there should be one."

    def stands_for(self, shown: Shown, item_id: str) -> str:
        """Its worst finding."""
        worst = self._known[item_id].worst
        return worst.id if worst is not None else ""

    def more(self, shown: Shown, width: int) -> Content:
        """Below how they are, who shares them; and the other way round."""
        if not self._known:
            return Content()
        title, columns, cells = (
            ("How they are", _HEALTH, self._healthy) if self._shares else ("Who shares them", _SHARING, self._shared)
        )
        items = [Item(one.address, cells(one, shown)) for one in self._known.values()]
        head, listed = laid(columns, items, width, ascii=shown.ascii)
        return Content("\n").join([Content.styled(title, "bold"), head.stylize("bold dim"), *listed])

    def _healthy(self, one: Known, shown: Shown) -> tuple[Content, ...]:
        detail = one.detail
        nothing = Content()
        return (
            *self._first(one, shown),
            node_text(one.name.removeprefix("NVIDIA ")),
            node_text(_link(detail)) if detail else nothing,
            Content(memory(detail.memory_used, detail.memory)) if detail else nothing,
            Content(celsius(detail.temperature)) if detail else nothing,
            Content(watts(detail.power)) if detail else nothing,
            node_text(", ".join(detail.throttled), STYLES[Status.WARN]) if detail else nothing,
            node_text(", ".join(detail.errors), STYLES[Status.WARN]) if detail else nothing,
            Content(str(len(one.of(Status.UNKNOWN)) or "")),
            node_text(one.worst.summary if one.worst is not None and one.worst.status is not Status.PASS else ""),
        )

    def _shared(self, one: Known, shown: Shown) -> tuple[Content, ...]:
        share = one.share
        if share is None:
            return (*self._first(one, shown), Content("not told"), *(Content() for _ in range(5)))
        row = share.row
        told = (share.how, share.by, row.memory, row.faults, row.compute, row.room)
        return (*self._first(one, shown), *(node_text(words) for words in told))

    def _first(self, one: Known, shown: Shown) -> tuple[Content, ...]:
        status = badge(one.worst.status, ascii=shown.ascii) if one.worst else Content("not asked")
        marked = most_telling(self._marks.of(each.id, each.subject) for each in one.findings)
        change = lines.mark(marked, ascii=shown.ascii)
        return status, change, Content("" if one.index is None else str(one.index)), node_text(one.address)

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """All about one GPU."""
        one = self._known[item_id]
        number = "" if one.index is None else f" {one.index}"
        yield lines.heading(f"GPU{number} {one.address} {one.name}".rstrip())
        wrong = one.of(Status.FAIL, Status.WARN, Status.UNKNOWN)
        for each in wrong:
            yield lines.finding(each, self._marks, ascii=shown.ascii)
        if not wrong:
            yield lines.said("No finding about it is wrong or unknown." if one.findings else "No check spoke of it.")
        yield from _facts(one, shown)
        yield from _processes(one, shown)
        yield from _sharing(one)
        for words, status in (("Well", Status.PASS), ("Not applicable", Status.SKIP)):
            told = one.of(status)
            if told:
                yield lines.heading(f"{words}: {counted(len(told), 'finding')}")
            for each in told:
                yield lines.finding(each, self._marks, ascii=shown.ascii)


def _words(one: Known) -> Iterator[str]:
    if one.detail is not None:
        yield from (one.detail.uuid or "", one.detail.serial or "")
        for process in one.detail.processes:
            yield from (str(process.pid), process.name, process.workload)
    if one.gpu is not None and one.gpu.uuid:
        yield one.gpu.uuid


def _link(detail: GpuDetail) -> str:
    told = detail.link or ""
    if detail.nvlinks:
        told += f"{', ' if told else ''}NV {of_most(detail.nvlinks_up, detail.nvlinks)}"
    return told


def _facts(one: Known, shown: Shown) -> Iterator[Line]:
    yield lines.heading("What is known of it")
    detail = one.detail
    if detail is None:
        if one.gpu is not None:
            yield from lines.fact("UUID", one.gpu.uuid)
            yield from lines.fact("minor", None if one.gpu.minor is None else str(one.gpu.minor))
        yield lines.said(shown.untold or untold_of(shown, "gpus") or "The details of this report do not tell of it.")
        return
    link = f"{detail.link} of {detail.link_most}" if detail.link and detail.link_most else detail.link
    told = (
        ("UUID", detail.uuid),
        ("serial", detail.serial),
        ("minor", None if detail.minor is None else f"{detail.minor} (/dev/nvidia{detail.minor})"),
        ("driver", detail.driver),
        ("VBIOS", detail.vbios),
        ("NUMA node", None if detail.numa is None else str(detail.numa)),
        ("PCIe link", link),
        ("NVLinks up", of_most(detail.nvlinks_up, detail.nvlinks) if detail.nvlinks else None),
        ("memory", memory(detail.memory_used, detail.memory)),
        ("temperature", celsius(detail.temperature, detail.temperature_most)),
        ("power", watts(detail.power, detail.power_limit)),
        ("clock", f"{of_most(detail.clock, detail.clock_most)} MHz" if detail.clock is not None else None),
        ("utilisation", None if detail.utilization is None else f"{detail.utilization} %"),
        ("throttled", ", ".join(detail.throttled)),
        ("MIG", detail.mig),
        ("persistence", None if detail.persistence is None else "on" if detail.persistence else "off"),
        ("compute mode", detail.compute_mode),
    )
    for label, value in told:
        yield from lines.fact(label, value)
    for name, words in detail.errors.items():
        yield lines.labelled("errors", node_text(f"{name}: {words}", STYLES[Status.WARN]), f"{name}: {words}")
    for words in detail.unread:
        yield lines.said(words, STYLES[Status.UNKNOWN], label="not known")


def _processes(one: Known, shown: Shown) -> Iterator[Line]:
    if one.detail is None:
        return
    yield lines.heading(f"Processes: {len(one.detail.processes)}" if one.detail.processes else "Processes")
    for process in one.detail.processes:
        used = f", {memory(process.memory, None)}" if process.memory is not None else ""
        of = f" of {process.workload}" if process.workload else ""
        words = node_text(f"{process.name or 'name not known'}{used}{of}")
        yield lines.labelled(f"PID {process.pid}", words, str(process.pid))
    if not one.detail.processes:
        yield lines.said("None has it open, as far as was seen.")


def _sharing(one: Known) -> Iterator[Line]:
    yield lines.heading("Who shares it")
    if one.share is None:
        yield lines.said("This report does not say: it covers only parts of the node, or the GPU is not there.")
        return
    yield from lines.fact("how", one.share.how)
    for name, words in one.share.parts:
        yield from lines.fact(name, words)
