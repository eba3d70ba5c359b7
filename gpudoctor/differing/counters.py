"""Counters that grew between two times: by how much and how fast, never across a boot or a driver that was loaded anew.

nvml.h: volatile ECC counts "are reset each time the driver loads", aggregate ones "persist across reboots"; NVLink's and PCIe's counters
are the driver's and begin with it; remapped rows and retired pages are kept in the board's InfoROM (NVIDIA GPU Memory Error Management).
AER counts are the kernel's since the boot; those of RDMA ports begin when the adapter's driver is loaded, at the boot or later.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.diff import Area, Counter, Gap, Way
from gpudoctor.differing.party import Pairs, Party, gap, together
from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.infiniband import COUNTERS, RdmaPorts
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci_ports import PortsAbove
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.xid_lines import SXidLine, find_all
from gpudoctor.knowledge.counters import HELD_DOWN, KEPT, SINCE_LOAD

_SAME_BOOT_SECONDS = 60
"""The time of boot moves with the clock (getboottime64 in kernel/time/timekeeping.c): a clock that was set does not make another boot."""
_SHORTEST_HOURS = 1 / 60
_LOADING = "NVRM: loading NVIDIA"
MOST_XIDS = 64
AER = ("AER errors, fatal", "AER errors, not fatal", "AER errors of the port above, fatal")


class Between(Struct, frozen=True):
    """What lies between two times. `same_load` is None where it is not known whether the driver was loaded anew; `why` says it in words."""

    hours: float | None
    same_boot: bool | None
    same_load: bool | None
    why: str


def between(a: Party, b: Party) -> Between:
    """From boot ids, else times of boot; then versions, then how often the kernel log saw a driver loaded."""
    hours = None if a.at is None or b.at is None else (b.at - a.at).total_seconds() / 3600
    same_boot = _same_boot(a, b)
    if same_boot is False:
        return Between(hours, False, False, "the node booted in between")
    one, two = a.report.node.driver_version, b.report.node.driver_version
    mine, theirs = a.known(NvidiaModule), b.known(NvidiaModule)
    if one and two and one != two:
        return Between(hours, same_boot, False, "another driver was loaded in between")
    if mine is not None and theirs is not None and mine.loaded != theirs.loaded:
        return Between(hours, same_boot, False, "the driver is loaded on one side only")
    if same_boot is None:
        return Between(hours, None, None, "it is not known whether the node booted in between")
    loads = _loads(a), _loads(b)
    if loads[0] is not None and loads[1] is not None and loads[1] > loads[0]:
        return Between(hours, True, False, "the driver was loaded anew in between")
    if loads[1] is not None and (loads[1] <= 1 or loads[1] == loads[0]):
        return Between(hours, True, True, "")
    return Between(hours, True, None, "it is not known whether the driver was loaded anew in between")


def counters(a: Party, b: Party, pairs: Pairs, way: Way, time: Between) -> Iterator[Counter]:
    """Those that differ, GPU by GPU. Of two nodes only what their boards keep counts: all else is since some moment of each."""
    for one, two in pairs.pairs:
        mine, theirs = a.devices.get(one.address), b.devices.get(two.address)
        if mine is None or theirs is None:
            continue
        for name, what in KEPT.items():
            yield from _kept(one.address, what, _number(mine, name), _number(theirs, name), way, time)
        for what, left, right, unit, counts in _since_load(mine, theirs):
            yield from _grown(Counter(one.address, what, left, right, unit, counts=counts), way, time)


def errors_of_links(a: Party, b: Party, pairs: Pairs, way: Way, time: Between) -> Iterator[Counter | Gap]:
    """AER errors of GPUs and of the ports above them, and what RDMA ports count. Of two nodes they make no difference."""
    mine, theirs = _aer(a), _aer(b)
    if a.desk is not None and b.desk is not None:
        yield from gap(Area.COUNTERS, "AER errors", bool(mine), bool(theirs))
    named = {(two.address, what): (one.address, what) for one, two in pairs.pairs for what in AER}
    renamed = {named[key]: count for key, count in theirs.items() if key in named}
    for subject, what in sorted(mine.keys() & renamed.keys()):
        told = Counter(subject, what, mine[subject, what], renamed[subject, what], counts=way is Way.TIMES)
        yield from _grown(told, way, time, by_boot=True)
    yield from _ports(a.known(RdmaPorts), b.known(RdmaPorts), way, time)


def _aer(party: Party) -> Mapping[tuple[str, str], int]:
    """By address of the GPU and what is counted, as far as the kernel counts."""
    states, above = party.known(PciStates), party.known(PortsAbove)
    found: dict[tuple[str, str], Reading[int | None]] = {}
    for address, state in ({} if states is None else states.by_address).items():
        port = None if above is None else above.by_gpu.get(address)
        counts = (state.fatal_errors, state.nonfatal_errors, None if port is None else port.fatal_errors)
        found |= {(address, what): count for what, count in zip(AER, counts, strict=True)}
    return {key: count for key, count in found.items() if isinstance(count, int)}


def _ports(one: RdmaPorts | None, two: RdmaPorts | None, way: Way, time: Between) -> Iterator[Counter | Gap]:
    """Port by port, the adapters put together as those of the topology are."""
    if one is None or two is None:
        return
    ports = together(
        one.physical,
        two.physical,
        lambda port: (port.address, port.number),
        lambda port: (port.device, port.number),
    )
    for left, right in ports.pairs:
        what = f"error counters of {left.subject.key}"
        yield from gap(Area.COUNTERS, what, bool(left.counters), bool(right.counters))
        for name in (name for name in COUNTERS if name in left.counters and name in right.counters):
            counts = left.counters[name], right.counters[name]
            told = Counter(left.subject.key, name, *counts, counts=way is Way.TIMES)
            for counter in _grown(told, way, time, by_boot=True):
                ends = counter.growth is not None and counts[1] == COUNTERS[name]
                yield replace(counter, per_hour=None, note="it has come to its end") if ends else counter


def xids(a: Party, b: Party, pairs: Pairs, way: Way, time: Between) -> Iterator[Counter | Gap]:
    """How often each error number stands in the logs of GPUs and switches."""
    mine, theirs = _xids(a), _xids(b)
    if mine is None or theirs is None:
        if a.desk is not None and b.desk is not None:
            why = "the kernel log does not reach back to the boot"
            yield from gap(Area.COUNTERS, "Xids", mine is not None, theirs is not None, why)
        return
    named = {gpu.address.rpartition(".")[0]: gpu.address for gpu in a.gpus}
    to_a = {two.rpartition(".")[0]: one.rpartition(".")[0] for two, one in pairs.to_a.items()}
    renamed = {(what, to_a.get(slot, slot)): count for (what, slot), count in theirs.items()}
    for what, slot in sorted(mine.keys() | renamed.keys())[:MOST_XIDS]:
        left, right = mine.get((what, slot), 0), renamed.get((what, slot), 0)
        yield from _grown(Counter(named.get(slot, slot), what, left, right), way, time, by_boot=True)


def _same_boot(a: Party, b: Party) -> bool | None:
    one, two = a.report.node.boot_id, b.report.node.boot_id
    if one and two and a.redacted == b.redacted:
        return one == two
    moments = [None if party.desk is None else booted_at(party.desk.raw) for party in (a, b)]
    if moments[0] is None or moments[1] is None:
        return True if one and one == two else None
    return abs(moments[0] - moments[1]) <= _SAME_BOOT_SECONDS


def _loads(party: Party) -> int | None:
    """How often the driver was loaded since boot, None where the log does not reach back so far."""
    log = party.known(KernelLog)
    return log.text.count(_LOADING) if log is not None and log.from_boot else None


def _xids(party: Party) -> Mapping[tuple[str, str], int] | None:
    """By number and slot; None where the log does not reach back to the boot."""
    log = party.known(KernelLog)
    if log is None or not log.from_boot:
        return None
    found: dict[tuple[str, str], int] = {}
    for line in find_all(log.text):
        if isinstance(line, SXidLine):
            key = (f"SXid {line.code}", line.address.rpartition(".")[0])
        else:
            key = (f"Xid {line.code}" if line.numbered else "off the bus", line.slot)
        if not (isinstance(line, SXidLine) and line.detail):
            found[key] = found.get(key, 0) + 1
    return found


def _number(device: NvmlDevice, name: str) -> int | None:
    value = device.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _since_load(mine: NvmlDevice, theirs: NvmlDevice) -> Iterator[tuple[str, float | None, float | None, str, bool]]:
    for name, what in SINCE_LOAD.items():
        yield what, _number(mine, name), _number(theirs, name), "", True
    for name, (what, counts) in HELD_DOWN.items():
        left, right = _number(mine, name), _number(theirs, name)
        yield what, None if left is None else left / 1e9, None if right is None else right / 1e9, "s", counts
    one, two = _nvlink_errors(mine), _nvlink_errors(theirs)
    for kind in sorted(one.keys() & two.keys()):
        yield f"NVLink errors ({kind.replace('_', ' ')})", one[kind], two[kind], "", True


def _nvlink_errors(device: NvmlDevice) -> dict[str, int]:
    """Over all links of a GPU."""
    found: dict[str, int] = {}
    for link in device.nvlinks:
        for kind, count in link.errors.items():
            found[kind] = found.get(kind, 0) + count
    return found


def _kept(
    address: str, what: str, left: float | None, right: float | None, way: Way, time: Between
) -> Iterator[Counter]:
    """A counter of the board's own; its rate only where the node ran all the time."""
    if left is None or right is None or left == right:
        return
    if way is Way.NODES:
        yield Counter(address, what, left, right)
    elif time.hours is not None and time.hours < 0:
        yield Counter(address, what, left, right, note="B is older than A")
    elif right < left:
        yield Counter(
            address, what, left, right, note="lower than before, which such a counter never is: another board?"
        )
    else:
        rate = _rate(right - left, time) if time.same_boot else None
        yield Counter(address, what, left, right, growth=right - left, per_hour=rate, note="kept by the board")


def _grown(told: Counter, way: Way, time: Between, *, by_boot: bool = False) -> Iterator[Counter]:
    """A counter since the driver was loaded, or one of the kernel log's, since the boot. One that began anew counts where it is ahead."""
    left, right, counts = told.a, told.b, told.counts
    if left is None or right is None or left == right:
        return
    same = time.same_boot if by_boot else time.same_load
    if way is Way.NODES:
        yield replace(told, note="each since its own start", counts=counts and by_boot and not (left and right))
    elif time.hours is not None and time.hours < 0:
        yield replace(told, note="B is older than A")
    elif same is None:
        yield replace(told, note=f"no growth told: {time.why}")
    elif not same:
        yield replace(told, note=f"counts anew: {time.why}", counts=counts and right > left)
    elif right < left:
        note = "lower than before: it counts anew, as after a reset"
        yield replace(told, note=note, counts=counts and bool(right))
    else:
        yield replace(told, growth=right - left, per_hour=_rate(right - left, time))


def _rate(growth: float, time: Between) -> float | None:
    return round(growth / time.hours, 3) if time.hours is not None and time.hours >= _SHORTEST_HOURS else None
