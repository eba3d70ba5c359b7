"""Topology: are all GPUs of a node as near to each other, and their ways as wide, as those of their peers?"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set

from gpudoctor.chain import Link
from gpudoctor.checks.topology import nothing_to_judge
from gpudoctor.facts.adapter_slots import BELOW_ONE_SWITCH
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.fabric_links import NvLinks
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuPath
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_link import GpuLinks, PciLink
from gpudoctor.facts.raw import UNRECORDED
from gpudoctor.facts.topology import WAYS, Device, Topology
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Evidence,
    NotApplicable,
    Pass,
    Subject,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

ALIKE, HOP_WIDTH = "topology.gpus-alike", "topology.hop-width"
MOST_SHOWN = 4
FEWEST_PEERS = 3
"""So many alike tell which one is the odd one."""
HALVED = 4
"""Boards give every other slot half the lanes, not a quarter."""


@check(
    ALIKE,
    link=Link.TOPOLOGY,
    advisory=True,
    title="Every GPU is as near to the others as its peers are",
)
def gpus_alike(
    gpus: Reading[PciGpus],
    topology: Reading[Topology],
    nvml: Reading[Nvml],
    links: Reading[NvLinks],
    machine: Reading[VirtualMachine],
) -> Verdicts:
    """Collective operations run at the pace of the GPU that is joined worst, so one that differs from its peers costs all of them.

    NVLink is compared by how many links join each GPU to all others, as NVML or `nvidia-smi topo -m` tell; which links of a GPU are up is
    fabric.nvlinks-up's, and a GPU that none joins fabric.peer-access's: neither is told twice. Without NVLink a GPU is odd that shares no
    switch with any other, while all the others share one. Boards with few GPUs, or an odd number of them, are built unevenly, and
    cube meshes join pairs by different numbers: the sum counts. GPUs in MIG mode use no NVLink. Of a text of `nvidia-smi topo -m` and
    nothing else all that it shows is told here, by the numbers that it gives to the GPUs.
    """
    if isinstance(gpus, Unread):
        yield from _by_text(nvml) or (gpus.about(NODE),)
        return
    judged = list(_nvlink_alike(gpus, nvml, links))
    if judged:
        yield from judged
    elif isinstance(topology, Unread):
        yield topology.about(NODE)
    elif (nothing := nothing_to_judge(topology, NODE)) is not None:
        yield nothing
    elif len(topology.gpus) < 2:
        yield NotApplicable(NODE, "one GPU", topology.cite("devices"))
    elif isinstance(machine, Unread):
        # The tree of a virtual machine need not be that of the host.
        yield machine.about(NODE)
    else:
        yield _pcie_alike(topology)


def _nvlink_alike(gpus: PciGpus, nvml: Reading[Nvml], links: Reading[NvLinks]) -> Iterable[Verdict]:
    """Nothing where no NVLink joins GPUs."""
    if isinstance(nvml, Unread) or isinstance(links, Unread):
        return
    sums = _sums(_pairs(nvml))
    told = {*links.lonely(nvml.topology), *_counted(links), *_others(gpus, nvml)}
    yield from _compared(nvml, sums, told, _by_name(gpus, nvml, len(sums)))


def _by_text(nvml: Reading[Nvml]) -> list[Warn]:
    """What is odd in a text that tells no addresses. That nothing is tells little: the text may have been cut."""
    if isinstance(nvml, Unread) or any(device.address for device in nvml.devices):
        return []
    compared = _compared(nvml, _sums(_pairs(nvml)), frozenset(), {})
    return [verdict for verdict in compared if isinstance(verdict, Warn)]


def _sums(pairs: list[GpuPath]) -> dict[str, int]:
    """How many NVLinks join each GPU to all others, where that is told of all others: a text may have lost some lines."""
    counts: dict[str, list[int]] = {}
    for pair in pairs:
        for name in (pair.one, pair.other):
            counts.setdefault(name, []).append(pair.nvlinks)
    return {name: sum(joined) for name, joined in counts.items() if len(joined) == len(counts) - 1}


def _compared(nvml: Nvml, sums: Mapping[str, int], told: Set[str], by_name: Mapping[str, Subject]) -> Iterator[Verdict]:
    if not any(sums.values()):
        return
    pairs = _pairs(nvml)
    usual = Counter(sums.values()).most_common(1)[0]
    fewer = [name for name, count in sums.items() if count < usual[0] and name not in told]
    if fewer and usual[1] >= FEWEST_PEERS and len(fewer) * 2 < len(sums):
        for name in fewer:
            yield _worse_joined(name, by_name.get(name, NODE), pairs, nvml.via)
    elif len(sums) < len({name for pair in pairs for name in (pair.one, pair.other)}):
        yield NotApplicable(
            NODE, "of some pairs of GPUs it is not told how they are joined", (_shown(pairs[0], nvml.via),)
        )
    else:
        yield _joined(sums, [pair for pair in pairs if pair.nvlinks], nvml.via)


def _pairs(nvml: Nvml) -> list[GpuPath]:
    apart = {f"GPU{device.index}" for device in nvml.devices if device.fields.get("mig.current") is True}
    gpus = [pair for pair in nvml.topology if pair.one.startswith("GPU") and pair.other.startswith("GPU")]
    return [pair for pair in gpus if not {pair.one, pair.other} & apart]


def _counted(links: NvLinks) -> Iterator[str]:
    """The GPUs whose links fabric.nvlinks-up judges."""
    for one in links:
        if one.active is not None and one.device is not None:
            yield f"GPU{one.device.index}"


def _others(gpus: PciGpus, nvml: Nvml) -> Iterator[str]:
    """The GPUs of another model than most: a board without NVLink may stand beside those that have it."""
    by_address = {gpu.address: gpu for gpu in gpus}
    models = {f"GPU{one.index}": by_address[one.address].device_id for one in nvml.devices if one.address in by_address}
    usual = Counter(models.values()).most_common(1)
    yield from (name for name, model in models.items() if model != usual[0][0])


def _worse_joined(name: str, subject: Subject, pairs: list[GpuPath], where: str) -> Verdict:
    from gpudoctor.knowledge.topology_remedies import raise_links

    own = [pair for pair in pairs if name in (pair.one, pair.other)]
    others = [pair for pair in pairs if name not in (pair.one, pair.other) and pair.nvlinks]
    summary = f"{name} is joined to the other GPUs by {_paths(own)}, its peers to one another by {_paths(others)}"
    evidence = tuple(_shown(pair, where) for pair in (*own[:MOST_SHOWN], *others[:1]))
    return Warn(subject, summary, evidence, raise_links(ALIKE), cause=f"fewer-nvlinks-{name}")


def _shown(pair: GpuPath, where: str) -> Evidence:
    return Evidence(where, f"{pair.one} to {pair.other}: {pair.path}")


def _by_name(gpus: PciGpus, nvml: Nvml, count: int) -> Mapping[str, Subject]:
    """GPU0, GPU1 as NVML tells their addresses; text that tells none counts them in the order of these, if it has all of them."""
    found = {gpu.address: gpu.subject for gpu in gpus}
    told = {f"GPU{one.index}": found[one.address] for one in nvml.devices if one.address in found}
    if told or count != len(found) or gpus.unlisted is not None:
        return told
    return {f"GPU{at}": found[address] for at, address in enumerate(sorted(found))}


def _paths(pairs: list[GpuPath]) -> str:
    return ", ".join(sorted({pair.path for pair in pairs}))


def _joined(sums: Mapping[str, int], pairs: list[GpuPath], where: str) -> Verdict:
    evidence = (_shown(pairs[0], where),)
    if len(set(sums.values())) == 1:
        return Pass(NODE, f"{len(sums)} GPUs, each joined to the others by as many NVLinks ({_paths(pairs)})", evidence)
    return NotApplicable(NODE, "NVLinks join the GPUs by different numbers, see fabric.nvlinks-up", evidence)


def _pcie_alike(topology: Topology) -> Verdict:
    gpus = _of_one_model(topology)
    if len(gpus) < 2:
        return NotApplicable(NODE, "no two GPUs of one model", topology.cite("devices"))
    best: dict[str, str] = {}
    for gpu in gpus:
        ways = [topology.way(gpu, other) for other in gpus if other is not gpu]
        if not all(ways):
            best[gpu.address] = ""
        else:
            best[gpu.address] = min(ways, key=WAYS.index)
    if not all(best.values()):
        return _partly(gpus, best)
    below = [gpu for gpu in gpus if best[gpu.address] in BELOW_ONE_SWITCH]
    odd = [gpu for gpu in gpus if gpu not in below]
    evidence = tuple(seen for gpu in gpus for seen in gpu.cite("path"))
    if len(odd) != 1 or len(below) < FEWEST_PEERS or len(gpus) % 2:
        nearest = min(best.values(), key=WAYS.index)
        return Pass(NODE, f"{len(gpus)} GPUs, the nearest to each other {nearest}", evidence)
    from gpudoctor.knowledge.topology_remedies import look_at_slot

    one = odd[0]
    summary = f"shares no PCIe switch with another GPU ({best[one.address]}), each of its {len(below)} peers does"
    return Warn(one, summary, one.cite("path") + below[0].cite("path"), look_at_slot(ALIKE, one.address), "odd-slot")


def _of_one_model(topology: Topology) -> tuple[Device, ...]:
    """The GPUs of the model that there are most of: a card for a screen is no peer of those that compute."""
    models = Counter(gpu.device_id for gpu in topology.gpus).most_common(1)
    return tuple(gpu for gpu in topology.gpus if models and gpu.device_id == models[0][0])


def _partly(gpus: tuple[Device, ...], best: Mapping[str, str]) -> Verdict:
    """Which host bridges lie together is not told; below one switch it is."""
    shared = [gpu for gpu in gpus if gpu.path and best[gpu.address]]
    pathless = next((gpu for gpu in gpus if not gpu.path), None)
    if pathless is not None:
        seen = pathless.read_from["path"]
        return Unknown(
            NODE, Why.NOT_RECORDED if seen.shows == UNRECORDED else Why.UNREADABLE, f"{seen.where}: {seen.shows}"
        )
    evidence = tuple(seen for gpu in gpus for seen in gpu.cite("path"))
    depths = {len(gpu.path) for gpu in gpus}
    if not shared and len(depths) == 1:
        return Pass(NODE, f"{len(gpus)} GPUs, each as deep in the tree as its peers", evidence)
    return NotApplicable(NODE, "how far host bridges are apart is not told", evidence)


# Hops -------------------------------------------------------------------------------------------------------------------


@check(
    HOP_WIDTH,
    link=Link.TOPOLOGY,
    over=PciGpus,
    advisory=True,
    title="No GPU has fewer lanes on its way than its peers",
)
def hop_width(gpus: PciGpus, links: GpuLinks, topology: Topology) -> Verdicts:
    """A GPU with sixteen lanes in a slot with eight is half as fast to the CPU and to network adapters, and nothing is broken.

    Compares the lanes that both ends of each hop, from the root port to the GPU, allow with those of the GPU, and the GPU with its peers
    of the same model. Lanes that are allowed and did not train are pcie.link-width's. A board on which all slots have eight lanes, or
    a workstation's board with some slots of sixteen lanes and others of eight, is made so and not accused; where most GPUs have more, or
    half of them four times as many, the GPU stands in the wrong slot, or the firmware splits this one.
    """
    known = {gpu.address: _lanes(links.by_address[gpu.address]) for gpu in gpus}
    for gpu in gpus:
        path = links.by_address[gpu.address]
        if (nothing := nothing_to_judge(topology, gpu)) is not None:
            yield nothing
        elif isinstance(path, Unread):
            yield path.about(gpu)
        elif not path:
            yield NotApplicable(gpu, "no port above it is visible")
        else:
            peers = [known[peer.address] for peer in gpus if peer is not gpu and peer.device_id == gpu.device_id]
            yield _hops(gpu, path, known[gpu.address], [lanes for lanes in peers if lanes is not None])


def _lanes(path: tuple[PciLink, ...] | Unread) -> int | None:
    """The least that a hop allows; None where a hop does not tell."""
    widths = () if isinstance(path, Unread) else tuple(link.allowed_width for link in path)
    known = [width for width in widths if width is not None]
    return min(known) if known and len(known) == len(widths) else None


def _hops(gpu: PciGpu, path: tuple[PciLink, ...], lanes: int | None, peers: list[int]) -> Verdict:
    own = path[0].below.max_width
    if lanes is None or own is None:
        if all(link.allowed_width is None for link in path):
            return NotApplicable(gpu, "the ports above it do not tell their width")
        return Unknown(gpu, Why.UNREADABLE, "not every hop on its way tells how many lanes it allows")
    evidence = tuple(seen for link in path for seen in (*link.below.cite("max_width"), *link.above.cite("max_width")))
    if lanes >= own:
        return Pass(gpu, f"{own} lanes all the way", evidence)
    wider = [other for other in peers if other > lanes]
    narrowest = min(path, key=lambda link: link.allowed_width or own)
    hop = f"{narrowest.above.address} to {narrowest.below.address}"
    if len(wider) >= FEWEST_PEERS and len(wider) * 2 > len(peers) + (lanes * HALVED > max(wider)):
        from gpudoctor.knowledge.topology_remedies import wider_slot

        summary = (
            f"the hop {hop} allows {lanes} of its {own} lanes; {len(wider)} of its {len(peers)} peers have {max(wider)}"
        )
        shown = narrowest.below.cite("max_width") + narrowest.above.cite("max_width") + path[0].below.cite("max_width")
        remedies = wider_slot(HOP_WIDTH, gpu.address)
        return Warn(gpu, summary, tuple(dict.fromkeys(shown)), remedies, cause=f"narrow-hop-{narrowest.below.address}")
    said = f"the hop {hop} allows {lanes} of its {own} lanes, as it is built"
    return Pass(gpu, said, evidence) if peers and not wider else NotApplicable(gpu, said, evidence)
