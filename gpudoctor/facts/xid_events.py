"""Lines about one GPU made into troubles: repeats folded, and what came of an error put beside its cause.

A fault draws others behind it: NVIDIA's catalogue calls 43 and 45 the clean-up after another Xid, and a 13 or 31 right behind a memory
error (48, 94, 95) is that error seen by a program. What lies close together in time is therefore one burst, and what is the machine's in
it comes before what is a program's.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from gpudoctor.facts.log_moments import moment
from gpudoctor.facts.xid_lines import FALLEN, SXidLine, XidLine
from gpudoctor.facts.xid_texts import previous, recovery
from gpudoctor.knowledge.xids import Area, Xid, xid

RECOVERY_CHANGED = 154
MOST_PROCESSES = 8
"""Of the processes that an error hit as many are kept, the last ones."""

DEVICE = (Area.BUS, Area.DRIVER)
UNTIL_RESET = frozenset(("RESET_GPU", "RESTART_BM", "RESTART_VM", "WORKFLOW_XID_48"))
"""What NVIDIA asks for where a GPU is of no use before it is done."""


class Hit(Struct, frozen=True):
    """A process that a line names."""

    pid: int | None
    name: str


class Fold(Struct, frozen=True):
    """One Xid of one GPU, or of one MIG instance of it, however often it came. `lines` are the last ones that differ in their text."""

    xid: Xid
    count: int
    first: XidLine
    last: XidLine
    hits: tuple[Hit, ...] = ()
    lines: tuple[XidLine, ...] = ()

    @property
    def code(self) -> int:
        """The number."""
        return self.xid.code

    @property
    def instance(self) -> str:
        """The MIG instance, "" without one."""
        if self.last.gpu_instance is None:
            return ""
        inner = f", compute instance {self.last.compute_instance}" if self.last.compute_instance is not None else ""
        return f"GPU instance {self.last.gpu_instance}{inner}"


class Recovery(Struct, frozen=True):
    """What the driver asked for last, by an Xid 154: a word such as `GPU Reset Required`, and 0 for nothing."""

    action: int
    word: str
    line: XidLine


class Trouble(Struct, frozen=True):
    """What one GPU's log says of one part of it: the Xids in the order they came, the cause first, and their aftermath.

    `starts` are the moments at which bursts of it began; `recovery` is what the driver asked for last, after it.
    """

    address: str
    area: Area
    folds: tuple[Fold, ...]
    aftermath: tuple[Fold, ...] = ()
    recovery: Recovery | None = None
    starts: tuple[float, ...] = ()

    @property
    def lead(self) -> Fold:
        """What came first."""
        return self.folds[0]

    @property
    def last(self) -> XidLine:
        """The last line of it, its aftermath left aside."""
        return max((fold.last for fold in self.folds), key=_when)

    @property
    def codes(self) -> tuple[int, ...]:
        """Its numbers, the cause first."""
        return tuple(dict.fromkeys(fold.code for fold in self.folds))


def troubles(address: str, lines: Sequence[XidLine], burst_seconds: float) -> tuple[Trouble, ...]:
    """The troubles of one GPU from its lines, oldest first."""
    gatherer = _Gatherer(burst_seconds)
    for burst in _bursts(lines, burst_seconds):
        gatherer.take(burst)
    return tuple(gatherer.troubles(address))


def part(area: Area) -> Area:
    """The areas that one check judges together."""
    return Area.DRIVER if area in DEVICE else area


class _Bin(Struct):
    """What is found of one part of a GPU so far."""

    lines: list[XidLine] = []
    aftermath: list[XidLine] = []
    starts: list[float] = []
    recovery: Recovery | None = None


class _Gatherer:
    """Puts the bursts of one GPU in order."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._bins: dict[Area, _Bin] = {}
        # The part that leaves the GPU of no use, since when; whatever is cleaned up afterwards is its doing.
        self._down: Area | None = None
        self._latest: Area | None = None

    def take(self, burst: Sequence[XidLine]) -> None:
        """Sort the lines of one burst."""
        own = [line for line in burst if not self._is_aftermath(line)]
        hard = [line for line in own if part(xid(line.code).area) is not Area.APPLICATION]
        causes = {one: _causes(_touching(hard, one)) for one in {None, *(line.gpu_instance for line in burst)}}
        began: set[Area] = set()
        met: dict[tuple[Area, int | None], None] = {}
        for line in burst:
            if line.code == RECOVERY_CHANGED:
                self._changed(line, ([area for area, _ in met] or causes[None])[-1:])
                continue
            known = xid(line.code)
            area = part(known.area)
            before = [area for area, instance in met if _same_instance(instance, line.gpu_instance)]
            cause = self._cause(line, causes[line.gpu_instance], before)
            if cause is not None:
                self._bin(cause).aftermath.append(line)
                continue
            into = self._bin(area)
            into.lines.append(line)
            if into.recovery is not None and not into.recovery.action and known.immediate != "IGNORE":
                # That the driver asked for nothing was before this.
                into.recovery = None
            if area not in began and (start := moment(line.at)) is not None:
                into.starts.append(start)
            began.add(area)
            if area is Area.APPLICATION and not known.follows:
                # A program runs on the GPU again: what is cleaned up from here on is its own.
                self._down = None
            if area not in (Area.APPLICATION, Area.NOTICE):
                met[area, line.gpu_instance] = None
                self._latest = area
                self._down = area if known.immediate in UNTIL_RESET else self._down

    def _is_aftermath(self, line: XidLine) -> bool:
        return line.code == RECOVERY_CHANGED or xid(line.code).follows

    def _cause(self, line: XidLine, causes: Sequence[Area], met: Sequence[Area]) -> Area | None:
        """The part whose error this is the aftermath of, None where it stands for itself."""
        known = xid(line.code)
        if part(known.area) is not Area.APPLICATION:
            return None
        if (named := previous(line.text)) is not None and part(xid(named).area) in self._bins:
            return part(xid(named).area)
        if known.follows:
            if causes:
                return causes[0]
            if self._down is not None:
                return self._down
            own = self._bins.get(Area.APPLICATION)
            return Area.APPLICATION if own is not None and _near(own.lines[-1:], line, self._seconds) else None
        return (Area.MEMORY if Area.MEMORY in met else met[0]) if met else None

    def _changed(self, line: XidLine, met: Sequence[Area]) -> None:
        """The driver asks for another recovery than before."""
        told = recovery(line.text)
        area = met[0] if met else self._latest
        if told is None or (area is None and told[0] == 0):
            self._bin(Area.NOTICE).lines.append(line)
            return
        if area is None:
            # The cause is no longer in the log: the change itself is all that is known.
            area = Area.DRIVER
            self._bin(area).lines.append(line)
        self._down = area if told[0] else None
        for one in self._bins.values():
            if one.lines and (one is self._bins.get(area) or told[0] == 0):
                one.recovery = Recovery(told[0], told[1], line)

    def _bin(self, area: Area) -> _Bin:
        return self._bins.setdefault(area, _Bin(lines=[], aftermath=[], starts=[]))

    def troubles(self, address: str) -> Iterator[Trouble]:
        """One for each part that lines tell of."""
        for area, one in self._bins.items():
            if not one.lines:
                continue
            yield Trouble(
                address,
                area,
                folds=_causes_first(folded(one.lines)),
                aftermath=folded(one.aftermath),
                recovery=one.recovery,
                starts=tuple(one.starts),
            )


def folded(lines: Iterable[XidLine]) -> tuple[Fold, ...]:
    """Lines of one GPU by number and MIG instance, in the order in which they came first."""
    found: dict[tuple[int, int | None, int | None], list[XidLine]] = {}
    for line in lines:
        found.setdefault((line.code, line.gpu_instance, line.compute_instance), []).append(line)
    return tuple(_fold(same) for same in found.values())


def _fold(lines: Sequence[XidLine]) -> Fold:
    hits: dict[Hit, None] = {}
    numbered = [line for line in lines if line.numbered] or lines[:1]
    for line in lines:
        if line.pid is not None or line.name:
            hit = Hit(line.pid, line.name)
            hits.pop(hit, None)
            hits[hit] = None
    return Fold(
        xid(lines[0].code),
        count=len(numbered),
        first=numbered[0],
        last=numbered[-1],
        hits=tuple(hits)[-MOST_PROCESSES:],
        lines=tuple({line.text: line for line in numbered[-64:]}.values()),
    )


def _causes_first(folds: tuple[Fold, ...]) -> tuple[Fold, ...]:
    """What follows another of the same part comes behind it, whichever was printed first."""
    return tuple(sorted(folds, key=lambda fold: fold.xid.follows or fold.xid.immediate == "IGNORE"))


def _causes(hard: Sequence[XidLine]) -> list[Area]:
    """The parts of a burst that can be a cause, in the order in which they came: memory first, which is behind what else goes wrong."""
    areas = dict.fromkeys(part(xid(line.code).area) for line in hard)
    return sorted((area for area in areas if area is not Area.NOTICE), key=lambda area: area is not Area.MEMORY)


def _touching(lines: Iterable[XidLine], instance: int | None) -> list[XidLine]:
    """The lines that can be the cause of what one MIG instance met."""
    return [line for line in lines if _same_instance(line.gpu_instance, instance)]


def _same_instance(one: int | None, other: int | None) -> bool:
    """Whether one can have to do with the other: MIG keeps an error within its instance; a line without one is of the whole GPU."""
    return one is None or other is None or one == other


def _bursts(lines: Sequence[XidLine], seconds: float) -> Iterator[list[XidLine]]:
    burst: list[XidLine] = []
    for line in lines:
        if burst and not _near(burst[-1:], line, seconds):
            yield burst
            burst = []
        burst.append(line)
    if burst:
        yield burst


def _near(before: Sequence[XidLine], line: XidLine, seconds: float) -> bool:
    """Whether a line came right after another; without times whatever follows each other does."""
    if not before:
        return False
    one, other = moment(before[-1].at), moment(line.at)
    return one is None or other is None or abs(other - one) <= seconds


def _when(line: XidLine) -> float:
    return moment(line.at) or 0.0


def together(found: Iterable[Trouble], seconds: float) -> Mapping[tuple[str, Area], tuple[str, ...]]:
    """For troubles of the same part that began on several GPUs within so many seconds: the addresses of all of them.

    Not of memory, which each GPU has for itself.
    """
    starts: dict[Area, list[tuple[float, str]]] = {}
    for trouble in found:
        if trouble.area in (Area.DRIVER, Area.NVLINK):
            starts.setdefault(trouble.area, []).extend((start, trouble.address) for start in trouble.starts)
    common: dict[tuple[str, Area], tuple[str, ...]] = {}
    for area, moments in starts.items():
        for group in _groups(sorted(moments), seconds):
            common |= dict.fromkeys(((address, area) for address in group), group)
    return common


def swept(
    found: Sequence[Trouble], switches: Iterable[SXidLine], seconds: float
) -> Mapping[tuple[str, Area], XidLine | SXidLine]:
    """Troubles that came, each time, right beside an error elsewhere that brings them along: that one's line.

    A job on several GPUs ends on all of them when one fails it (43, 45); links fail whose other end is a GPU that fell off the bus or an
    NVSwitch with a fatal error (74, NVIDIA's Xid catalogue and Fabric Manager User Guide).
    """
    machine = [trouble for trouble in found if trouble.area in (Area.DRIVER, Area.MEMORY, Area.NVLINK)]
    hard = [
        (at, trouble.address, line)
        for trouble in machine
        for fold in trouble.folds
        if fold.xid.immediate != "IGNORE"
        for line in (fold.first, fold.last)
        if (at := moment(line.at)) is not None
    ]
    # Of a trouble that came again and again the bursts between the first and the last line end jobs, too.
    between = [
        (start, trouble.address, trouble.lead.last)
        for trouble in machine
        if trouble.lead.xid.immediate != "IGNORE"
        for start in trouble.starts
    ]
    lost = [(at, address, line) for at, address, line in hard if line.code == FALLEN]
    fatal = [(at, line.address, line) for line in switches if _is_told(line) and (at := moment(line.at)) is not None]
    told: dict[tuple[str, Area], XidLine | SXidLine] = {}
    for trouble in found:
        causes: Sequence[tuple[float, str, XidLine | SXidLine]] = ()
        if trouble.area is Area.NVLINK:
            causes = (*lost, *fatal)
        elif trouble.area is Area.APPLICATION and all(fold.xid.follows for fold in trouble.folds):
            causes = (*hard, *between)
        near = sorted(((at, line) for at, address, line in causes if address != trouble.address), key=itemgetter(0))
        moments = [at for at, _ in near]
        places = [(start, bisect_left(moments, start - seconds)) for start in trouble.starts]
        beside = [
            near[place][1] if place < len(near) and near[place][0] <= start + seconds else None
            for start, place in places
        ]
        if beside and beside[-1] is not None and None not in beside:
            told[trouble.address, trouble.area] = beside[-1]
    return told


def _is_told(line: SXidLine) -> bool:
    """Whether fabric.switch-sxids tells of it: the driver calls fatal what asks for nothing by NVIDIA's guide, as single bit errors."""
    from gpudoctor.knowledge.sxids import sxid

    return line.fatal is True and sxid(line.code, fatal=True).action != "IGNORE"


def _groups(moments: Sequence[tuple[float, str]], seconds: float) -> Iterator[tuple[str, ...]]:
    """Addresses whose moments, which are in order, lie within so many seconds; of one address alone nothing is told."""
    begin = 0
    for place in range(len(moments)):
        if place + 1 < len(moments) and moments[place + 1][0] - moments[begin][0] <= seconds:
            continue
        addresses = tuple(sorted({address for _, address in moments[begin : place + 1]}))
        if len(addresses) > 1:
            yield addresses
        begin = place + 1
