"""Topology: does the kernel know what is near to what, are the CPUs near the GPUs online, and does the driver see the same tree?"""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.numa import CPUS, NODES, PRESENT, cpu_set
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuPath
from gpudoctor.facts.raw import ERROR_TEXTS, UNRECORDED
from gpudoctor.facts.topology import WAYS, Device, Topology
from gpudoctor.facts.topology_matrix import Matrix
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Evidence,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

NUMA, CPUS_ONLINE, MATRIX = "topology.numa-known", "topology.cpus-online", "topology.matrix"
MOST_SHOWN = 4
_LAYOUT = (NODES, f"{CPUS}/online", f"{CPUS}/offline")
# pci_register_host_bridge in drivers/pci/probe.c.
_NO_NODE = pattern(r"Unknown NUMA node; performance will be reduced")


def nothing_to_judge(topology: Topology, about: AboutSubject) -> Verdict | None:
    """Why there is nothing to compare on this node: one GPU alone, or a tree that a hypervisor made up."""
    if not topology.gpus:
        return NotApplicable(about, "no GPU on the PCI bus", topology.cite("devices"))
    if len(topology.gpus) == 1 and not topology.nics:
        return NotApplicable(about, "one GPU, and no RDMA adapter", topology.cite("devices"))
    if topology.synthetic:
        return NotApplicable(about, topology.synthetic, topology.gpus[0].cite("path"))
    return None


def no_layout(topology: Topology, about: AboutSubject) -> Unknown | None:
    """Why the NUMA nodes are not known."""
    found = next((one for one in topology.unread if one.where in _LAYOUT or one.where.endswith("/cpulist")), None)
    return None if found is None else found.about(about)


def untold(device: Device, about: AboutSubject) -> Unknown:
    """Why a device's NUMA node is not known."""
    seen = device.read_from["numa"] if "numa" in device.read_from else Evidence(device.address, "was not looked at")
    why = {UNRECORDED: Why.NOT_RECORDED, ERROR_TEXTS["EACCES"]: Why.NO_PERMISSION}.get(seen.shows, Why.UNREADABLE)
    return Unknown(about, why, f"{seen.where}: {seen.shows}")


@check(
    NUMA,
    link=Link.TOPOLOGY,
    advisory=True,
    title="Where there are several NUMA nodes, every GPU tells its own",
)
def numa_known(topology: Topology, machine: Reading[VirtualMachine], log: Reading[KernelLog]) -> Verdicts:
    """Nobody can bring work near a GPU of which the kernel does not know the NUMA node: the kubelet, Slurm, NCCL and numactl all ask it.

    The firmware tells it for each host bridge (ACPI _PXM); `numa_node` is -1 where it does not, and all CPUs count as near
    (Documentation/ABI/testing/sysfs-bus-pci). Copies then cross from one processor to the other by chance. On a machine with one NUMA
    node -1 is as good as 0, and a virtual machine that has no NUMA nodes for its devices is made so.
    """
    if (nothing := nothing_to_judge(topology, NODE)) is not None:
        yield nothing
    else:
        devices = [device for device in (*topology.gpus, *topology.nics) if not device.virtual_function_of]
        guest = not isinstance(machine, Unread) and machine.guest
        untied = guest and any(device.numa == -1 for device in devices)
        made_so = "a virtual machine whose host ties its devices to no NUMA node"
        yield NotApplicable(NODE, made_so) if untied else _numa(topology, devices, log)


def _numa(topology: Topology, devices: list[Device], log: Reading[KernelLog]) -> Verdict:
    told = {device.numa for device in devices if device.numa is not None and device.numa >= 0}
    if len(told) < 2:
        if topology.has_one_node:
            return NotApplicable(NODE, "the CPUs of the node are one NUMA node", topology.cite("nodes"))
        if (unseen := no_layout(topology, NODE)) is not None:
            return unseen
        if len(topology.numa_nodes) < 2:
            return NotApplicable(NODE, "the kernel tells no NUMA nodes")
    astray = [device for device in devices if device.numa == -1]
    silent = [device for device in devices if device.numa is None]
    if astray:
        from gpudoctor.knowledge.topology_remedies import tell_numa

        gpus = sum(device.kind == "gpu" for device in astray)
        nics = len(astray) - gpus
        nodes = max(len(told), sum(1 for node in topology.numa_nodes if node.cpus))
        counts = ((gpus, len(topology.gpus), "GPUs"), (nics, len(devices) - len(topology.gpus), "RDMA adapters"))
        what = " and ".join(f"{count} of {whole} {noun}" for count, whole, noun in counts if count)
        summary = f"{what} tell no NUMA node, although there are {nodes}: no work can be placed near them"
        said = () if isinstance(log, Unread) else tuple(log.lines(_NO_NODE, "Unknown NUMA node")[:1])
        evidence = tuple(seen for device in astray[:MOST_SHOWN] for seen in device.cite("numa"))
        members = tuple(device.subject for device in astray)
        evidence += topology.cite("nodes") + said
        return Warn(NODE, summary, evidence, tell_numa(NUMA, astray[0].address), cause="no-numa-node", of=members)
    if silent:
        return untold(silent[0], NODE)
    words = ", ".join(f"{name} on NUMA node {number}" for number, name in _by_node(topology.gpus))
    evidence = tuple(seen for device in devices for seen in device.cite("numa"))
    return Pass(NODE, words, evidence)


def _by_node(gpus: tuple[Device, ...]) -> list[tuple[int, str]]:
    counts: dict[int, int] = {}
    for gpu in gpus:
        counts[gpu.numa or 0] = counts.get(gpu.numa or 0, 0) + 1
    return [(number, f"{count} GPU{'' if count == 1 else 's'}") for number, count in sorted(counts.items())]


@check(
    CPUS_ONLINE,
    link=Link.TOPOLOGY,
    advisory=True,
    title="The CPUs near every GPU are online",
)
def cpus_online(topology: Topology) -> Verdicts:
    """A GPU whose processor's CPUs were taken offline is served from the other one, and no tool says so: its node just has no CPUs.

    Judged are the NUMA nodes that GPUs belong to: none of their CPUs online, or less than half as many as another node has, while the
    kernel lists CPUs that are not online. Easily confused with second threads that are switched off (nosmt), which takes half of the
    CPUs of every node, with nodes that are memory alone, as that of a CXL expander or of a GPU beside a Grace CPU, and with numbers that
    the kernel keeps for CPUs to be plugged in.
    """
    if (nothing := nothing_to_judge(topology, NODE)) is not None:
        yield nothing
    elif (unseen := no_layout(topology, NODE)) is not None:
        yield unseen
    elif not topology.numa_nodes or not topology.cpus_online:
        yield NotApplicable(NODE, "the kernel tells no NUMA nodes, or not which CPUs are online")
    else:
        yield _cpus(topology)


def _cpus(topology: Topology) -> Verdict:
    counts = {node.number: len(cpu_set(node.cpus)) for node in topology.numa_nodes}
    near = {gpu.numa for gpu in topology.gpus if gpu.numa in counts}
    most = max(counts.values())
    bare = sorted(number for number in counts if number in near and counts[number] * 2 < most)
    told = {"nodes": True, "online": topology.cpus_online, "offline": topology.cpus_offline}
    evidence = topology.cite(*(name for name, text in told.items() if text))
    unplugged = next((one for one in topology.unread if one.where == PRESENT), None)
    if bare and unplugged is not None:
        return unplugged.about(NODE)
    if not bare or not topology.cpus_offline:
        return Pass(NODE, f"CPUs {topology.cpus_online} are online", evidence)
    from gpudoctor.knowledge.topology_remedies import cpus_online as bring_back

    members = tuple(gpu.subject for gpu in topology.gpus if gpu.numa in bare)
    nodes = "NUMA node " + ", ".join(str(number) for number in bare)
    how = f"only {counts[bare[0]]}" if counts[bare[0]] else "none"
    whose = "1 GPU belongs" if len(members) == 1 else f"{len(members)} GPUs belong"
    summary = f"{how} of the CPUs of {nodes} are online, to which {whose}; offline are {topology.cpus_offline}"
    remedies = bring_back(CPUS_ONLINE, topology.cpus_offline, nodes)
    return Warn(NODE, summary, evidence, remedies, cause="cpus-offline", of=members)


# The matrix -------------------------------------------------------------------------------------------------------------


def _shown(pair: GpuPath, where: str) -> Evidence:
    return Evidence(where, f"{pair.one} to {pair.other}: {pair.path}")


@check(
    MATRIX,
    link=Link.TOPOLOGY,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="The driver's matrix agrees with the PCIe tree",
)
def matrix(found: Reading[Matrix], topology: Reading[Topology], nvml: Reading[Nvml]) -> Verdicts:
    """NCCL and nvidia-smi see the tree in two ways, through sysfs and through the driver: where both agree the picture can be relied on.

    Compared are the pairs of which both tell how they are joined by PCIe, in the words of `nvidia-smi topo -m`; pairs that NVLink joins
    are not among them. Where they differ, a recording may have been taken at another time, or one of the two does not see the switches
    between: which one cannot be said.
    """
    if isinstance(topology, Unread) or isinstance(found, Unread) or isinstance(nvml, Unread):
        yield next(one for one in (topology, found, nvml) if isinstance(one, Unread)).about(NODE)
        return
    if (nothing := nothing_to_judge(topology, NODE)) is not None:
        yield nothing
        return
    both = [(pair, found.cell(pair.one, pair.other)) for pair in nvml.topology if pair.path in WAYS]
    pairs = [(pair, ours) for pair, ours in both if ours in WAYS]
    differ = [(pair, ours) for pair, ours in pairs if pair.path != ours]
    if not pairs:
        yield NotApplicable(NODE, "of no pair both tell how it is joined by PCIe")
    elif differ:
        pair, ours = differ[0]
        said = f"{len(differ)} of {len(pairs)} pairs differ: {pair.one} to {pair.other} is {pair.path} for the driver, {ours} by sysfs"
        yield Unknown(NODE, Why.NOT_ANSWERED, said, (_shown(pair, nvml.via),))
    else:
        evidence = (_shown(pairs[0][0], nvml.via), *(one for device in topology.gpus for one in device.cite("path")))
        yield Pass(NODE, f"{len(pairs)} pairs, joined as the PCIe tree shows", evidence)
