"""What happened when: the kernel's words on the GPUs and what changed on the node, with the findings that cite it."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.details import Event, EventKind
from gpudoctor.patterns import pattern
from gpudoctor.report import Finding
from gpudoctor.reports.tui.badges import STYLES, node_text
from gpudoctor.reports.tui.marks import finding_marks
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.views import lines
from gpudoctor.reports.tui.views.lines import Line
from gpudoctor.reports.tui.views.two_panes import Column, Item, TwoPanes, names, untold_of
from gpudoctor.reports.words import STATUS_ORDER, counted
from gpudoctor.verdicts import Status

_COLUMNS = (
    Column("Time (UTC)", most=26),
    Column("Kind"),
    Column("GPU", rank=2, most=16),
    Column("Cited", rank=1),
    Column("What", most=400, least=24),
)
KINDS = {
    EventKind.XID: ("✘", "x", "Xid"),
    EventKind.SXID: ("✘", "x", "SXid"),
    EventKind.DRIVER: ("◆", "d", "driver"),
    EventKind.PCIE: ("═", "=", "PCIe"),
    EventKind.KERNEL: ("●", "k", "kernel"),
    EventKind.BOOT: ("↻", "o", "boot"),
    EventKind.MODULE: ("◇", "m", "module"),
    EventKind.PACKAGE: ("▣", "#", "package"),
    EventKind.CONFIGURATION: ("✎", "~", "configuration"),
    EventKind.SERVICE: ("▶", ">", "service"),
}
"""The sign of each kind, its twin in ASCII, and the word."""
UNTOLD = "untold:"
NONE = "No event: the kernel log, as far as it was read, says nothing of GPUs, and nothing that changed was seen."
_CODE = pattern(r"(S?Xid) (\d{1,5})\b")
_OF_THE_GPU = (EventKind.XID, EventKind.SXID)


class Timeline(TwoPanes):
    """The list of events."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "explain_code", "Explain", show=False)]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - as Widget calls it
        super().__init__(id=id, classes=classes)
        self._by_id: dict[str, Event] = {}

    def columns(self, shown: Shown) -> Sequence[Column]:
        """When, what kind, of which GPU, what."""
        return _COLUMNS

    def items(self, shown: Shown) -> Sequence[Item]:
        """Each event, in their order."""
        if shown.details is None:
            return ()
        untold = untold_of(shown, "timeline")
        events = shown.details.timeline
        self._by_id = dict(
            zip(names(f"{_when(one)} {one.kind.value} {one.gpu} {one.says}" for one in events), events, strict=True)
        )
        return [
            *(self._item(identity, event, shown) for identity, event in self._by_id.items()),
            *(_untold(words, shown) for words in (untold.split("\n") if untold else ())),
        ]

    def _item(self, identity: str, event: Event, shown: Shown) -> Item:
        fancy, plain, word = KINDS[event.kind]
        style = STYLES[Status.FAIL] if event.kind in _OF_THE_GPU else ""
        times = f" ({event.count} times)" if event.count > 1 else ""
        cells = (
            node_text(_when(event)),
            Content.styled(f"{plain if shown.ascii else fancy} {word}", style),
            node_text(event.gpu),
            Content("" if not event.findings else str(len(event.findings))),
            node_text(f"{event.says}{times}"),
        )
        boot = "previous boot" if event.previous_boot else "this boot"
        return Item(identity, cells, (event.where, event.kind.value, event.stamp, boot, *event.findings))

    def told(self, shown: Shown, items: Sequence[Item]) -> str:
        """How many, and how many are cited."""
        assert shown.details is not None
        cited = sum(1 for event in shown.details.timeline if event.findings)
        more = f", and {shown.details.more_events} more that are not told" if shown.details.more_events else ""
        events = len(shown.details.timeline)
        return f"{counted(events, 'event')}{more}; findings cite {cited} of them" if events else NONE

    def why_empty(self, shown: Shown) -> str:
        """Nothing happened, or nothing tells."""
        if shown.details is None:
            return shown.untold
        return NONE

    def stands_for(self, shown: Shown, item_id: str) -> str:
        """The first finding that cites it."""
        event = self._event(item_id)
        return event.findings[0] if event is not None and event.findings else ""

    def _event(self, item_id: str | None) -> Event | None:
        return self._by_id.get(item_id or "")

    def action_explain_code(self) -> None:
        """What the Xid or SXid of the event means; else the finding is explained."""
        event = self._event(self._items.chosen)
        code = _CODE.search(event.says) if event is not None and event.kind in _OF_THE_GPU else None
        if code is None:
            raise SkipAction
        self.doctor.explain((f"{code[1].lower()}:{code[2]}",))

    def about(self, shown: Shown, item_id: str) -> Iterator[Line]:
        """An event in full, and the findings that cite it."""
        if item_id.startswith(UNTOLD):
            yield lines.heading("Not told")
            yield lines.said(item_id.removeprefix(UNTOLD))
            return
        event = self._by_id[item_id]
        fancy, plain, word = KINDS[event.kind]
        yield lines.heading(f"{plain if shown.ascii else fancy} {word} {_when(event)}")
        yield Line(node_text(event.says), copies=event.says)
        yield from lines.fact("where", event.where)
        yield from lines.fact("in the log", event.stamp)
        yield from lines.fact("GPU", event.gpu)
        if event.count > 1:
            yield from lines.fact("how often", f"{event.count} times{f', until {event.until}' if event.until else ''}")
        if event.previous_boot:
            yield from lines.fact("boot", "the one before this")
        findings = [one for one in (_found(shown, each) for each in event.findings) if one is not None]
        yield lines.heading("Findings that cite it")
        marks = finding_marks(shown.before, shown.report)
        for finding in sorted(findings, key=lambda one: STATUS_ORDER.index(one.status)):
            yield lines.finding(finding, marks, ascii=shown.ascii)
        if not findings:
            yield lines.said("None: it is told because it may matter, not because it is wrong.")


def _untold(words: str, shown: Shown) -> Item:
    """What the timeline lacks, so that nobody takes it for whole."""
    nothing = Content()
    kind = Content.styled("? not told", STYLES[Status.UNKNOWN])
    return Item(f"{UNTOLD}{words}", (nothing, kind, nothing, nothing, node_text(words)))


def _found(shown: Shown, finding_id: str) -> Finding | None:
    try:
        return shown.report.finding(finding_id) if shown.report is not None else None
    except KeyError:
        return None


def _when(event: Event) -> str:
    """The time, else what the log has for one."""
    if not event.at:
        return event.stamp or "time not known"
    day, found, time = event.at.partition("T")
    return f"{day} {time.removesuffix('Z')}" if found else event.at
