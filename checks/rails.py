"""Topology: has each GPU its network adapter and its CPUs near, and does the work on it run there?"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from gpudoctor.chain import Link
from gpudoctor.checks.topology import no_layout, nothing_to_judge
from gpudoctor.facts.adapter_slots import BELOW_ONE_SWITCH
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.nics import RDMA, RdmaDevices
from gpudoctor.facts.numa import cpu_set
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.placement import BoundProcess, Placement
from gpudoctor.facts.topology import WAYS, Device, Topology
from gpudoctor.facts.workload import Workload
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Cited,
    Evidence,
    NotApplicable,
    Pass,
    Subject,
    SubjectKind,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

RAILS, USE, PLACEMENT = "topology.rails", "topology.use", "topology.placement"
FEWEST_PEERS = 3
MOST_SHOWN = 4
GIVEN_AWAY = "vfio-pci"
MINORITY = 4
"""Of so many GPUs one at most may be without an adapter beside it, for that to be a fault: else the machine was bought so."""


def _adapters(topology: Topology) -> list[Device]:
    return [nic for nic in topology.nics if nic.rdma and not nic.virtual_function_of]


def _nearest(topology: Topology, gpu: Device, nics: Iterable[Device]) -> tuple[str, list[Device]]:
    """How the nearest adapters are joined to a GPU, and which they are; empty where that is not told of any."""
    ways = [(topology.way(gpu, nic), nic) for nic in nics]
    told = [(way, nic) for way, nic in ways if way in WAYS]
    if not told:
        return "", []
    best = min((way for way, _ in told), key=WAYS.index)
    return best, [nic for way, nic in told if way == best]


@check(
    RAILS,
    link=Link.TOPOLOGY,
    over=PciGpus,
    advisory=True,
    title="Every GPU has an RDMA adapter as near as its peers have",
)
def rails(gpus: PciGpus, topology: Topology, rdma: RdmaDevices) -> Verdicts:
    """On nodes built in rails each GPU sends through an adapter below its own PCIe switch; one without it crosses the CPU, and all wait.

    Judged against the peers: nearly all GPUs have an adapter below their own switch (PIX or PXB), and this one has not, because it
    failed, is not on the bus, or was put into another slot. Their number is no measure: fewer adapters than GPUs are a purchase, as is a
    machine on which half of the GPUs have none beside them. Peers are GPUs of the same model that no virtual machine was given. Adapters
    that are far from all GPUs are for storage or management, and where the kernel gives each network namespace devices of its own, a pod
    may have the one that seems to be gone. A port that is down is topology.nic-ports'.
    """
    nics = _adapters(topology)
    devices = topology.by_address
    every = {gpu.address: _nearest(topology, gpu, nics) for gpu in topology.gpus}
    hidden = next((one for one in topology.unread if one.where.startswith(RDMA)), None)
    for gpu in gpus:
        device = devices.get(gpu.address)
        if (nothing := nothing_to_judge(topology, gpu)) is not None:
            yield nothing
        elif not nics:
            yield hidden.about(gpu) if hidden is not None else NotApplicable(gpu, "no RDMA adapter")
        elif len(topology.gpus) == 1 or device is None:
            yield NotApplicable(gpu, "one GPU")
        elif device.driver == GIVEN_AWAY:
            yield NotApplicable(gpu, f"{GIVEN_AWAY} has it, for a virtual machine", device.cite("driver"))
        else:
            peers = [one for one in topology.gpus if one.device_id == device.device_id and one.driver != GIVEN_AWAY]
            nearest = {one.address: every[one.address] for one in peers}
            yield _rail(device, rdma, nearest, hidden)


def _rail(
    gpu: Device, rdma: RdmaDevices, nearest: dict[str, tuple[str, list[Device]]], hidden: Unread | None
) -> Verdict:
    best, nics = nearest[gpu.address]
    beside = [address for address, (way, _) in nearest.items() if way in BELOW_ONE_SWITCH]
    lacking = len(nearest) - len(beside)
    evidence = gpu.cite("path") + tuple(_link(nic) for nic in nics[:MOST_SHOWN])
    if best in BELOW_ONE_SWITCH:
        return Pass(gpu, f"{_names(nics)} ({best})", evidence)
    if len(beside) < FEWEST_PEERS or lacking * MINORITY > len(nearest):
        if not best:
            return NotApplicable(gpu, "how far the adapters are is not told", gpu.cite("path"))
        if len(beside) * 2 > len(nearest):
            reason = f"{len(beside)} of {len(nearest)} GPUs have an adapter below their own switch, as the machine may be built"
            return NotApplicable(gpu, reason, evidence)
        return Pass(gpu, f"{_names(nics)} ({best}), and no nearer to most of its peers", evidence)
    if (unseen := hidden or rdma.moved_away) is not None:
        return unseen.about(gpu)
    if not gpu.path:
        return NotApplicable(gpu, "the node does not tell its place", gpu.cite("path"))
    from gpudoctor.knowledge.topology_remedies import find_adapter

    peer, way = beside[0], nearest[beside[0]][0]
    example = nearest[peer][1][0]
    far = f", the nearest is {_names(nics)} ({best})" if nics else ""
    summary = (
        f"no RDMA adapter is below its PCIe switch{far}; {len(beside)} of its {len(nearest) - 1} peers have one ({way})"
    )
    return Warn(
        gpu, summary, (*evidence, _link(example)), find_adapter(RAILS, gpu.address), cause=f"rail-{gpu.address}"
    )


def _link(nic: Device) -> Evidence:
    """Where the kernel's link in a class leads: read in the folder, whatever can be read at its end."""
    folder, _, name = nic.read_from["path"].where.rpartition("/")
    return Evidence(folder, f"{name} {nic.read_from['path'].shows}")


def _names(nics: list[Device]) -> str:
    names = [nic.name or nic.address for nic in nics[:MOST_SHOWN]]
    more = len(nics) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


@check(
    USE,
    link=Link.TOPOLOGY,
    over=PciGpus,
    advisory=True,
    title="It is known which CPUs and which adapter are near each GPU",
)
def use(gpus: PciGpus, topology: Topology) -> Verdicts:
    """What to put beside each GPU: the CPUs of its NUMA node, and the RDMA adapter that is nearest to it.

    Told for numactl (--cpunodebind), for Cores= in Slurm's gres.conf, which counts cores in an order of its own, and for UCX_NET_DEVICES.
    NCCL and the kubelet find it themselves where nothing hides the tree from them; NCCL_IB_HCA is to be the same for all ranks of a node.
    From sysfs alone; CPUs are those that the kernel calls local (Documentation/ABI/testing/sysfs-bus-pci, local_cpulist), which are all
    of them where no NUMA node is told.
    """
    devices = topology.by_address
    nics = _adapters(topology)
    for gpu in gpus:
        device = devices.get(gpu.address)
        if (nothing := nothing_to_judge(topology, gpu)) is not None:
            yield nothing
        elif device is None:
            yield NotApplicable(gpu, "the node does not tell its place")
        else:
            yield _use(gpu, device, topology, nics)


def _use(gpu: PciGpu, device: Device, topology: Topology, nics: list[Device]) -> Verdict:
    cpus = topology.cpus_near(device)
    best, near = _nearest(topology, device, nics)
    numa = device.numa if device.numa is not None and device.numa >= 0 else None
    if numa is None or not cpus:
        unseen = no_layout(topology, gpu)
        return unseen or NotApplicable(gpu, "no CPU is nearer to it than the others")
    node = topology.node(numa)
    binding = f" ({node.binding})" if node is not None and node.binding else ""
    words = [f"CPUs {cpus}{binding}"]
    evidence = device.cite("numa") + topology.cite("nodes")
    if best in BELOW_ONE_SWITCH:
        words.append(f"RDMA by {', '.join(nic.name for nic in near)} ({best})")
        evidence += device.cite("path") + tuple(_link(nic) for nic in near)
    return Pass(gpu, "; ".join(words), evidence)


# Work that is bound elsewhere -------------------------------------------------------------------------------------------


@check(
    PLACEMENT,
    link=Link.TOPOLOGY,
    advisory=True,
    title="What uses a GPU may run on CPUs near it",
)
def placement(topology: Topology, placement: Placement) -> Verdicts:
    """A process that may run only on the other processor's CPUs sends every copy and every launch across, and often nobody meant it to.

    Judged are the processes that NVML lists on a GPU, and containers and jobs that were given GPUs, by the CPUs and the memory nodes that
    /proc/PID/status allows. Far is who may run on no CPU of any of its GPUs' processors, several of whose NUMA nodes may lie together
    (NPS, SNC); who may run everywhere is bound to nothing, and who has GPUs of both sides cannot be near all of them. The kubelet's
    static CPU policy without a topology policy, Slurm without Cores=, and numactl in front of a launcher instead of each process do
    this. What watches or gives away GPUs sees all of them on purpose.
    """
    if placement.reason:
        yield NotApplicable(NODE, placement.reason)
        return
    if not placement.processes and not placement.unread:
        unseen = no_layout(topology, NODE)
        yield unseen or NotApplicable(NODE, "no process uses a GPU, or none is known")
        return
    hidden = {("" if one is None else one.key): (NODE if one is None else one, why) for one, why in placement.unread}
    for processes in _grouped(placement.processes):
        verdict = _placed(topology, processes, placement.memory_nodes)
        # What one process of a workload does is told; that all of them are near takes all of them.
        if isinstance(verdict, Warn) or processes[0].key not in hidden:
            yield verdict
            hidden.pop(processes[0].key, None)
    for about, unread in hidden.values():
        yield unread.about(about)


def _grouped(processes: tuple[BoundProcess, ...]) -> Iterator[list[BoundProcess]]:
    """By workload; a process outside of all stands for itself."""

    for _, found in groupby(sorted(processes, key=lambda one: (one.key, one.pid)), lambda one: one.key):
        yield list(found)


def _placed(topology: Topology, processes: list[BoundProcess], memory: frozenset[int]) -> Verdict:
    workload = processes[0].workload
    about: AboutSubject = workload if workload is not None else Subject(SubjectKind.GPU, processes[0].gpus[0])
    devices = topology.by_address
    known = [one for one in processes if _nodes(devices, one)]
    if not known:
        return NotApplicable(about, "its GPUs tell no NUMA node", _told(devices, processes[0]))
    far = [one for one in known if not _is_near(topology, devices, one)]
    apart = [one for one in known if one not in far and _memory_is_apart(topology, devices, one, memory)]
    wrong = far or apart
    if not wrong:
        evidence = tuple(one.evidence for one in known[:MOST_SHOWN]) + _told(devices, known[0])
        return Pass(about, f"may run on CPUs {known[0].cpus}, near its GPUs", evidence)
    unseen = next((one for one in topology.unread if one.where.endswith("/distance")), None)
    if unseen is not None and unseen.why is not Why.NOT_RECORDED:
        return unseen.about(about)
    return _far(about, workload, topology, devices, wrong, by_memory=not far)


def _far(
    about: AboutSubject,
    workload: Workload | None,
    topology: Topology,
    devices: Mapping[str, Device],
    wrong: list[BoundProcess],
    *,
    by_memory: bool,
) -> Verdict:
    from gpudoctor.knowledge.topology_remedies import nearer_cpus

    first = wrong[0]
    nodes = _nodes(devices, first)
    numbers = ", ".join(str(number) for number in nodes)
    who = f"process {first.pid}" if len(wrong) == 1 else f"processes {', '.join(str(one.pid) for one in wrong)}"
    what = f"use memory of NUMA node {first.memory} only" if by_memory else f"run on CPUs {first.cpus} only"
    whose = "the GPU in use is" if len({gpu for one in wrong for gpu in one.gpus}) == 1 else "the GPUs in use are"
    summary = f"{who} may {what}, {whose} on NUMA node {numbers}: each copy crosses from one side to the other"
    evidence = tuple(one.evidence for one in wrong[:MOST_SHOWN]) + _told(devices, first) + topology.cite("nodes")
    pod = workload is not None and workload.pod is not None
    job = workload is not None and workload.kind is GroupKind.JOB
    near = next(topology.cpus_near(devices[address]) for address in first.gpus if address in devices)
    own = topology.node(nodes[0]) if len(nodes) == 1 else None
    whole = own is not None and own.cpus and own.memory_bytes != 0
    remedies = nearer_cpus(PLACEMENT, pod=pod, job=job, cpus=near, node=numbers if whole else "")
    return Warn(about, summary, evidence, remedies, cause=f"far-{first.key}")


def _nodes(devices: Mapping[str, Device], process: BoundProcess) -> list[int]:
    found = (devices[address].numa for address in process.gpus if address in devices)
    return sorted({number for number in found if number is not None and number >= 0})


def _is_near(topology: Topology, devices: Mapping[str, Device], process: BoundProcess) -> bool:
    """Whether it may run near one of its GPUs at least; a GPU without CPUs near it proves nothing."""
    near = [_cpus_beside(topology, devices[address]) for address in process.gpus if address in devices]
    return any(not cpu_set(cpus) or process.may_run_on(cpus) for cpus in near)


def _cpus_beside(topology: Topology, gpu: Device) -> str:
    """The CPUs of the GPU's processor, else the nearest."""
    nodes = topology.side(gpu.numa) if gpu.numa is not None else ()
    return ",".join(node.cpus for node in nodes if node.cpus) or topology.cpus_near(gpu)


def _memory_is_apart(
    topology: Topology, devices: Mapping[str, Device], process: BoundProcess, memory: frozenset[int]
) -> bool:
    """Whether its GPUs have memory near them, and it may use none of that."""
    near = memory & {node.number for number in _nodes(devices, process) for node in topology.side(number)}
    return bool(process.memory and near) and not cpu_set(process.memory) & near


def _told(devices: Mapping[str, Device], process: BoundProcess) -> Cited:
    known = [
        devices[address] for address in process.gpus if address in devices and "numa" in devices[address].read_from
    ]
    return tuple(seen for device in known[:MOST_SHOWN] for seen in device.cite("numa"))
