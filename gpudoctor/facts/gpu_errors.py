"""What the kernel log tells of errors of GPUs and NVSwitches, put in order: which GPU, since when, how often, whose process, and why."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kernel_log import KernelLog, PreviousKernelLog
from gpudoctor.facts.log_moments import days_before, moment, since_boot
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import UNRECORDED, Raw, SourceKind, TextFile
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.xid_lines import ANCHOR, OFF_THE_BUS, Identity, SXidLine, XidLine
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

# What gives these their meaning is loaded only where the log has an error.
if TYPE_CHECKING:
    from gpudoctor.facts.xid_events import Hit, Trouble
    from gpudoctor.facts.xid_owners import Owner
    from gpudoctor.knowledge.xids import Area

MOST_LOOKED_FOR = 8
"""Of the processes of one trouble as many are looked for."""
_LOADING = pattern(r"NVRM: loading NVIDIA .{0,60}Kernel Module .{0,40}?(\d{3})\.\d")
MOST_SLOTS = 512
"""GPUs that a log can name: what has more is no log of one node."""


class SwitchFold(Struct, frozen=True):
    """One SXid of one NVSwitch, however often it came; `details` are the lines that continue it."""

    address: str
    switch: str
    code: int
    fatal: bool | None
    count: int
    first: SXidLine
    last: SXidLine
    links: tuple[int, ...] = ()
    details: tuple[SXidLine, ...] = ()


_BEAT = "NVRM: GPU"
_SILENT = pattern(r"NVRM: GPU\d+ _kgspIsHeartbeatTimedOut: Heartbeat timed out")
"""src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c of NVIDIA/open-gpu-kernel-modules."""


class GpuErrors(Fact, frozen=True):
    """Troubles by GPU, and SXids by switch, oldest first. A GPU whose address the log leaves out has the address "".

    `again` has the address and number of Xids that the boot before this one saw too; `together` the GPUs that a trouble began on at once;
    `oldest` is the time of the log's first message, `newest` of its last; `uptime` is read, in seconds, where there is an error.
    `swept` has troubles that an error of another GPU or of a switch brought along, and its line.
    `loads` are the moments at which the log saw a driver loaded, and its branch: whoever renews the driver need not reboot.
    `previous` is the boot before in a report that somebody made: mostly that is the one that made them do it. `lacking` is what such a
    report lacks of its logs: then "none" is not known.
    """

    where: str
    from_boot: bool
    empty: bool = False
    oldest: str = ""
    newest: str = ""
    troubles: "tuple[Trouble, ...]" = ()
    switches: tuple[SwitchFold, ...] = ()
    identities: Mapping[str, Identity] = {}
    owners: Mapping["Hit", "Owner"] = {}
    again: frozenset[tuple[str, int]] = frozenset()
    together: Mapping["tuple[str, Area]", tuple[str, ...]] = {}
    swept: Mapping["tuple[str, Area]", XidLine | SXidLine] = {}
    loads: tuple[tuple[float, int], ...] = ()
    previous: "GpuErrors | None" = None
    lacking: Unread | None = None
    uptime: Reading[float] | None = None
    today: datetime.date | None = None
    silent: Cited = ()
    """What tells of a GPU's firmware (GSP) that stopped answering; such lines name the GPU by the driver's own number."""

    @classmethod
    def gather(cls, desk: Desk) -> "GpuErrors | Unread":
        """From this boot's log; the one before is asked for only where this one has an error of the machine's."""
        log = desk.get(KernelLog)
        if isinstance(log, Unread):
            return log
        previous, lacking = _previous(desk, log) if desk.raw.kind is SourceKind.BUG_REPORT else (None, None)
        about = cls(
            where=log.where,
            from_boot=log.from_boot,
            empty=not log.text.strip(),
            previous=previous,
            lacking=lacking,
            silent=tuple(log.lines(_SILENT, _BEAT)),
        )
        if ANCHOR not in log.text and OFF_THE_BUS not in log.text and not about.silent:
            return about if about.empty or about.from_boot else _with_span(about, log)
        return _read(desk, log, _with_span(about, log))

    @property
    def span(self) -> str:
        """What "none" refers to: `since boot`, or as far back as the log goes."""
        if self.from_boot:
            return "since boot"
        from gpudoctor.facts.log_moments import in_words

        return f"in what the kernel log still has{f' (since {in_words(self.oldest)})' if self.oldest else ''}"

    @property
    def read(self) -> Cited:
        """That the log was read."""
        what = "no line tells of one" if not self.troubles and not self.switches else "read for Xids and SXids"
        return (Evidence(self.where, f"{what} {self.span}"),)

    def of(self, address: str) -> "tuple[Trouble, ...]":
        """The troubles of one GPU."""
        return tuple(trouble for trouble in self.troubles if trouble.address == address)

    def identity(self, address: str) -> Identity | None:
        """What the log tells of the board at an address."""
        return self.identities.get(address.rpartition(".")[0])

    def evidence(self, line: XidLine | SXidLine) -> Evidence:
        """A line as evidence."""
        return Evidence(self.where, line.message, at=line.at or None)

    def branch_at(self, line: XidLine | SXidLine) -> int | None:
        """The branch of the driver that was loaded last before a line; None where the log does not have that."""
        then = moment(line.at)
        before = [branch for at, branch in self.loads if then is not None and at <= then]
        return before[-1] if before else None

    def age(self, line: XidLine | SXidLine | Evidence) -> float:
        """Seconds that have passed since a line at the least, as far as the log's last message, the uptime and the date tell."""
        at = line.at or ""
        then, last, booted = moment(at), moment(self.newest), since_boot(at)
        ages = [0.0]
        if then is not None and last is not None and (booted is None) == (since_boot(self.newest) is None):
            ages.append(last - then)
        if booted is not None and isinstance(self.uptime, float):
            ages.append(self.uptime - booted)
        if booted is None and self.today is not None:
            ages.append(days_before(at, self.today) or 0.0)
        return max(ages)


def _with_span(about: GpuErrors, log: KernelLog) -> GpuErrors:
    """With the times of the first and the last message that have one."""
    from msgspec.structs import replace

    from gpudoctor.facts.log_stamps import split

    head, tail = log.text[:8192].splitlines(), log.text[-8192:].splitlines()
    oldest = next((time for line in head[:16] if (time := split(line)[0])), "")
    newest = next((time for line in tail[:-17:-1] if (time := split(line)[0])), "")
    return replace(about, oldest=oldest, newest=newest)


def _previous(desk: Desk, now: KernelLog) -> tuple[GpuErrors | None, Unread | None]:
    """The errors of the boot before, where a report of a node has them, and what it lacks: it may have been cut off anywhere."""
    log = PreviousKernelLog.gather(desk)
    lacking = None
    if not now.from_boot:
        lacking = Unread(Why.NOT_RECORDED, now.where, "the report does not have all of it")
    elif isinstance(log, Unread) and not log.detail.endswith(UNRECORDED):
        # A report of a machine without a journal just does not have it; this one tells why.
        lacking = log
    if isinstance(log, Unread) or (ANCHOR not in log.text and OFF_THE_BUS not in log.text):
        return None, lacking
    from msgspec.structs import replace

    from gpudoctor.facts.xid_owners import as_written

    found = _sorted(desk, log, GpuErrors(where=log.where, from_boot=log.from_boot))
    return replace(found, owners=as_written(_hits(found.troubles))), lacking


def _read(desk: Desk, log: KernelLog, about: GpuErrors) -> GpuErrors:
    """The errors of this boot, and what else of the node bears on them."""
    from msgspec.structs import replace

    from gpudoctor.facts.xid_owners import owners

    found = _sorted(desk, log, about)
    return replace(
        found,
        owners=owners(desk, _hits(found.troubles)),
        again=_again(desk, found.troubles),
        uptime=_uptime(desk.raw) if found.troubles or found.switches or found.silent else None,
        today=desk.today,
    )


def _sorted(desk: Desk, log: KernelLog, about: GpuErrors) -> GpuErrors:
    """The lines of a log by GPU and switch, each GPU's in order."""
    from msgspec.structs import replace

    from gpudoctor.facts.xid_events import swept, together, troubles
    from gpudoctor.facts.xid_lines import find_all, identities
    from gpudoctor.knowledge.xids import Area

    limits = desk.get(Thresholds)
    assert isinstance(limits, Thresholds), "thresholds are never unread"
    by_slot: dict[str, list[XidLine]] = {}
    switches: list[SXidLine] = []
    for line in find_all(log.text):
        if isinstance(line, SXidLine):
            switches.append(line)
        elif line.slot in by_slot or len(by_slot) < MOST_SLOTS:
            by_slot.setdefault(line.slot, []).append(line)
    addresses = _addresses(desk, by_slot)
    seconds = limits.of("xid_aftermath_seconds")
    found = tuple(one for slot, lines in by_slot.items() for one in troubles(addresses[slot], lines, seconds))
    folds = _switch_folds(switches)
    return replace(
        about,
        troubles=found,
        switches=folds,
        identities=identities(log.text) if by_slot else {},
        together=together(found, limits.of("xid_together_seconds")),
        swept=swept(found, (line for fold in folds for line in (fold.first, fold.last)), seconds),
        loads=_loads(log) if folds or any(trouble.area is Area.NVLINK for trouble in found) else (),
    )


def _loads(log: KernelLog) -> tuple[tuple[float, int], ...]:
    """When a driver was loaded, and its branch, which says what Xid 144 to 150 and SXids from 28000 mean (nv.c, "loading %s")."""
    told = ((moment(line.at or ""), _LOADING.match(line.shows)) for line in log.lines(_LOADING, "NVRM: loading NVIDIA"))
    return tuple((at, int(found[1])) for at, found in told if at is not None and found is not None)


def _uptime(raw: Raw) -> Reading[float] | None:
    """The first number in /proc/uptime (proc_uptime(5)); None where nothing of a node but its log is there."""
    file = raw.read("/proc/uptime")
    if isinstance(file, TextFile):
        first = file.text.partition(" ")[0]
        return float(first) if first.replace(".", "", 1).isdecimal() and len(first) < 20 else None
    if isinstance(file, Unread):
        return file if file.why is Why.NO_PERMISSION else None
    hidden = raw.kind in (SourceKind.LIVE, SourceKind.SNAPSHOT, SourceKind.ROOT)
    return Unread(Why.UNREADABLE, "/proc/uptime", "is not there") if hidden else None


def _addresses(desk: Desk, slots: Iterable[str]) -> dict[str, str]:
    """The address of each slot's GPU: Xids leave out the function, which is 0 where the bus does not show another."""
    gpus = desk.get(PciGpus)
    listed = {} if isinstance(gpus, Unread) else {gpu.address.rpartition(".")[0]: gpu.address for gpu in gpus}
    return {slot: listed.get(slot, f"{slot}.0" if slot else "") for slot in slots}


def _hits(found: "Iterable[Trouble]") -> "list[Hit]":
    return [
        hit
        for trouble in found
        for hit in [hit for fold in (*trouble.folds, *trouble.aftermath[:1]) for hit in fold.hits][-MOST_LOOKED_FOR:]
    ]


def _again(desk: Desk, found: "Sequence[Trouble]") -> frozenset[tuple[str, int]]:
    """The machine's errors that the boot before had too, on the same GPU."""
    from gpudoctor.facts.xid_lines import find_all
    from gpudoctor.knowledge.xids import Area

    hard = {
        (trouble.address, code)
        for trouble in found
        if trouble.area not in (Area.APPLICATION, Area.NOTICE)
        for code in trouble.codes
    }
    # Not through the desk: that it is lacking, as it mostly is, is nothing that a report should tell.
    previous = PreviousKernelLog.gather(desk) if hard else None
    if not isinstance(previous, PreviousKernelLog):
        return frozenset()
    before = {(line.slot, line.code) for line in find_all(previous.text) if isinstance(line, XidLine)}
    return frozenset(one for one in hard if (one[0].rpartition(".")[0], one[1]) in before)


def _switch_folds(lines: Sequence[SXidLine]) -> tuple[SwitchFold, ...]:
    """SXids by switch and number; a line with data or severity continues the last event of its number."""
    events: dict[tuple[str, int], list[SXidLine]] = {}
    details: dict[tuple[str, int], list[SXidLine]] = {}
    for line in lines:
        (details if line.detail else events).setdefault((line.address, line.code), []).append(line)
    return tuple(
        _switch_fold(same or details[key][:1], details.get(key, []))
        for key in dict.fromkeys((line.address, line.code) for line in lines)
        for same in (events.get(key, []),)
    )


def _switch_fold(same: Sequence[SXidLine], details: Sequence[SXidLine]) -> SwitchFold:
    last = same[-1]
    told = [line.fatal for line in same if line.fatal is not None]
    return SwitchFold(
        address=last.address,
        switch=last.switch,
        code=last.code,
        fatal=any(told) if told else None,
        count=len(same),
        first=same[0],
        last=last,
        links=tuple(sorted({line.link for line in same if line.link is not None})),
        details=tuple(details[-2:]),
    )
