"""GPUs, their links, and the topology around them."""

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.diff import Area, Change, Gap, Way
from gpudoctor.differing.party import A, B, Pairs, Party, gap, together
from gpudoctor.facts.nics import RdmaDevices
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvLink, NvmlDevice
from gpudoctor.facts.pci_link import GpuLinks, PciLink
from gpudoctor.facts.topology import Topology
from gpudoctor.report import NodeGpu

SIZES = (("memory.total_bytes", "memory"), ("bar1.total_bytes", "BAR1"))
_NEAREST = "its speed follows the load"


def gpus(a: Party, b: Party, pairs: Pairs, way: Way) -> Iterator[Change | Gap]:
    """Added, gone, in another slot; model, minor and size of those that are on both sides."""
    for side, other, alone in ((a, b, pairs.gone), (b, a, pairs.added)):
        if not alone:
            continue
        in_a = side is a
        if not other.lists_all_gpus:
            why = "its list of GPUs may not be complete"
            yield Gap(Area.GPUS, other.letter, tuple(gpu.address for gpu in alone), why)
            continue
        for gpu in alone:
            told = _named(gpu)
            yield Change(Area.GPUS, f"GPU {gpu.address}", told if in_a else None, None if in_a else told)
    for one, two in pairs.pairs:
        if way is Way.TIMES and one.address != two.address:
            yield Change(Area.GPUS, "slot", one.address, two.address, subjects=(one.address,), note=one.uuid or "")
        for what, mine, theirs in (("model", one.name, two.name), ("minor", one.minor, two.minor)):
            if mine is not None and theirs is not None and mine != theirs:
                yield Change(Area.GPUS, what, str(mine), str(theirs), subjects=(one.address,))
        yield from _sizes(a.devices.get(one.address), b.devices.get(two.address), one.address)


def links(a: Party, b: Party, pairs: Pairs) -> Iterator[Change | Gap]:
    """The PCIe links from each GPU up, and its NVLinks."""
    mine, theirs = a.known(GpuLinks), b.known(GpuLinks)
    if a.desk is not None and b.desk is not None:
        yield from gap(Area.LINKS, "PCIe links", mine is not None, theirs is not None)
    for one, two in pairs.pairs:
        if mine is not None and theirs is not None:
            left, right = mine.by_address.get(one.address), theirs.by_address.get(two.address)
            if isinstance(left, tuple) and isinstance(right, tuple):
                yield from _pcie(left, right, one.address)
        yield from _nvlinks(a.devices.get(one.address), b.devices.get(two.address), one.address)


def topology(a: Party, b: Party, pairs: Pairs, way: Way) -> Iterator[Change | Gap]:
    """NUMA nodes and packages, the GPUs' places among them, network adapters, and how pairs of GPUs are joined."""
    one, two = a.fact(Topology), b.fact(Topology)
    if isinstance(one, Topology) and isinstance(two, Topology):
        yield from _machine(one, two)
        yield from _adapters(one, two, way, (_hidden(a, one), _hidden(b, two)))
        for gpu, other in pairs.pairs:
            left, right = one.by_address.get(gpu.address), two.by_address.get(other.address)
            if left is None or right is None or left.numa is None or right.numa is None:
                continue
            if left.numa != right.numa:
                yield Change(Area.TOPOLOGY, "NUMA node", str(left.numa), str(right.numa), subjects=(gpu.address,))
    elif a.desk is not None and b.desk is not None:
        yield from gap(Area.TOPOLOGY, "topology", isinstance(one, Topology), isinstance(two, Topology))
    yield from _joined(a.known(Nvml), b.known(Nvml))


def _named(gpu: NodeGpu) -> str:
    return " ".join(part for part in (gpu.name or "a GPU", gpu.uuid) if part)


def _sizes(mine: NvmlDevice | None, theirs: NvmlDevice | None, address: str) -> Iterator[Change]:
    for name, what in SIZES:
        left, right = _number(mine, name), _number(theirs, name)
        if left is not None and right is not None and left != right:
            yield Change(Area.GPUS, what, f"{left / 2**20:.0f} MiB", f"{right / 2**20:.0f} MiB", subjects=(address,))


def _number(device: NvmlDevice | None, name: str) -> int | None:
    value = device.fields.get(name) if device is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# Links ---------------------------------------------------------------------------------------------------------------


def _pcie(mine: Sequence[PciLink], theirs: Sequence[PciLink], address: str) -> Iterator[Change]:
    """Link by link from the GPU up. A GPU's own link slows down while it idles, so that its speed says nothing."""
    if len(mine) != len(theirs):
        yield Change(Area.LINKS, "links up to the root port", str(len(mine)), str(len(theirs)), subjects=(address,))
        return
    for place, (one, two) in enumerate(zip(mine, theirs, strict=True)):
        where = "PCIe" if place == 0 else f"PCIe {place} above"
        told = (
            ("width", _lanes(one.below.current_width), _lanes(two.below.current_width), True),
            ("widest", _lanes(one.allowed_width), _lanes(two.allowed_width), True),
            ("speed", _speed(one.below.current_speed), _speed(two.below.current_speed), place > 0),
            ("fastest", _speed(one.allowed_speed), _speed(two.allowed_speed), True),
        )
        for what, left, right, counts in told:
            if left and right and left != right:
                note = "" if counts else _NEAREST
                yield Change(Area.LINKS, f"{where} {what}", left, right, subjects=(address,), note=note, counts=counts)


def _lanes(width: int | None) -> str:
    return "" if width is None else f"x{width}"


def _speed(speed: float | None) -> str:
    return "" if speed is None else f"{speed:g} GT/s"


def _nvlinks(mine: NvmlDevice | None, theirs: NvmlDevice | None, address: str) -> Iterator[Change]:
    if mine is None or theirs is None or not mine.nvlinks or not theirs.nvlinks:
        return
    left, right = ({link.link: link for link in each.nvlinks} for each in (mine, theirs))
    lost = [number for number, link in left.items() if link.active and _active(right.get(number)) is False]
    back = [number for number, link in right.items() if link.active and _active(left.get(number)) is False]
    for what, numbers in (("down", lost), ("up", back)):
        if numbers:
            named = ", ".join(map(str, sorted(numbers)))
            told = _count(left), _count(right)
            yield Change(Area.LINKS, "active NVLinks", *told, subjects=(address,), note=f"{what}: {named}")
    speeds = [
        (left[number].megabytes_per_second, right[number].megabytes_per_second)
        for number in sorted(left.keys() & right.keys())
    ]
    for one, two in dict.fromkeys(pair for pair in speeds if None not in pair and pair[0] != pair[1]):
        yield Change(Area.LINKS, "NVLink speed", f"{one} MB/s", f"{two} MB/s", subjects=(address,))


def _active(link: NvLink | None) -> bool | None:
    return None if link is None else link.active


def _count(links: Mapping[int, NvLink]) -> str:
    return str(sum(1 for link in links.values() if link.active))


# Topology ------------------------------------------------------------------------------------------------------------


def _machine(one: Topology, two: Topology) -> Iterator[Change]:
    mine, theirs = ({node.number: node for node in each.numa_nodes} for each in (one, two))
    if mine and theirs:
        for number in sorted(mine.keys() | theirs.keys()):
            left, right = mine.get(number), theirs.get(number)
            told = [None if node is None else node.cpus or "no CPU" for node in (left, right)]
            if told[0] != told[1] and all(node is None or node.told for node in (left, right)):
                yield Change(Area.TOPOLOGY, f"CPUs of NUMA node {number}", told[0], told[1])
    if one.cpus_online and two.cpus_online and one.cpus_offline != two.cpus_offline:
        yield Change(Area.TOPOLOGY, "CPUs offline", one.cpus_offline or None, two.cpus_offline or None)


def _hidden(party: Party, topology: Topology) -> str:
    """Why a side may have adapters that it does not show; "" where it shows all."""
    rdma = party.known(RdmaDevices)
    if topology.unread:
        return "its list of network adapters may not be complete"
    return rdma.moved_away.detail if rdma is not None and rdma.moved_away is not None else ""


def _adapters(one: Topology, two: Topology, way: Way, hidden: tuple[str, str]) -> Iterator[Change | Gap]:
    """By address, for names come and go with rules of udev; by name where buses were numbered anew."""
    adapters = together(one.nics, two.nics, lambda nic: nic.address, lambda nic: nic.name or nic.address)
    for alone, why, letter in ((adapters.gone, hidden[1], B), (adapters.added, hidden[0], A)):
        if alone and why:
            yield Gap(Area.TOPOLOGY, letter, tuple(nic.name or nic.address for nic in alone), why)
            continue
        for nic in alone:
            told = nic.name or "an adapter"
            what = f"network adapter {nic.address}"
            yield Change(Area.TOPOLOGY, what, *((told, None) if letter == B else (None, told)))
    for left, right in adapters.pairs:
        named = left.name or left.address
        if left.address != right.address:
            what, places = f"address of {named}", (left.address, right.address)
            yield Change(Area.TOPOLOGY, what, *places, counts=way is Way.TIMES)
        if left.numa is not None and right.numa is not None and left.numa != right.numa:
            yield Change(Area.TOPOLOGY, f"NUMA node of {named}", str(left.numa), str(right.numa))
        if left.link is not None and right.link is not None:
            for what, ours, other_words in (
                ("width", _lanes(left.link.width), _lanes(right.link.width)),
                ("speed", _speed(left.link.speed), _speed(right.link.speed)),
            ):
                if ours and other_words and ours != other_words:
                    yield Change(Area.LINKS, f"PCIe {what} of {named}", ours, other_words)


def _joined(one: Nvml | None, two: Nvml | None) -> Iterator[Change]:
    """As `nvidia-smi topo -m` has it: pairs that changed in the same way together."""
    if one is None or two is None:
        return
    mine, theirs = ({(path.one, path.other): path.path for path in each.topology} for each in (one, two))
    alike: dict[tuple[str, str], list[str]] = {}
    for pair in sorted(mine.keys() & theirs.keys()):
        if mine[pair] and theirs[pair] and mine[pair] != theirs[pair]:
            alike.setdefault((mine[pair], theirs[pair]), []).append("-".join(pair))
    for (left, right), pairs in alike.items():
        yield Change(Area.TOPOLOGY, "ways between GPUs", left, right, subjects=tuple(pairs))
