"""The topology drawn up from facts: the whole graph, joined with what NVML and the checks say of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpudoctor import __version__
from gpudoctor.chain import Link
from gpudoctor.facts.desk import Desk, Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.host import Host
from gpudoctor.facts.nvml import Nvml, normal_address
from gpudoctor.facts.nvml_device import NvLink, NvmlDevice
from gpudoctor.facts.topology import WAYS, Device, FullTopology
from gpudoctor.facts.topology_matrix import MatrixRow, matrix_of
from gpudoctor.report import Report
from gpudoctor.topo import SCHEMA, Function, NodeWords, NvLinkBundle, NvLinkTarget, Remark, Topo, Use
from gpudoctor.verdicts import Status, Unread, Why

JUDGED = (Link.PCIE, Link.FABRIC, Link.TOPOLOGY)
"""The links whose findings are about what is drawn."""
_ACTIVE = "nvlink.active_links"
_MOST_CAPTURED = 128


def draw(
    desk: Desk, told: Reading[Nvml] | None, stamp: str, remarked: Callable[[], tuple[Remark, ...]]
) -> Topo | Unread:
    """What is known of a node's topology, or why there is nothing to draw. `told` is what NVML answered, None where nobody asked it."""
    full = desk.get(FullTopology)
    nvml = told if isinstance(told, Nvml) else None
    graph = FullTopology(devices=()) if isinstance(full, Unread) else full
    matrix = _physical(matrix_of(graph, nvml).rows, graph) if graph.gpus or nvml is None else _captured(nvml)
    if not matrix and not graph.devices:
        return full if isinstance(full, Unread) else Unread(Why.NOT_ANSWERED, "", "the node shows no PCI device")
    labels = {row.address: row.name for row in matrix if row.address}
    devices = _by_address(nvml)
    missing = (*((full,) if isinstance(full, Unread) else graph.unread), *((told,) if isinstance(told, Unread) else ()))
    return Topo(
        schema=SCHEMA,
        version=__version__,
        started_at=stamp,
        node=_node(desk, nvml),
        synthetic=graph.synthetic,
        packages=graph.packages,
        numa_nodes=graph.numa_nodes,
        cpus_online=graph.cpus_online,
        cpus_offline=graph.cpus_offline,
        functions=tuple(_function(one, labels, devices.get(one.address), graph) for one in graph.devices),
        matrix=matrix,
        nvlinks=_bundles(nvml),
        nvlink_targets=tuple(_targets(labels, devices, graph)),
        use=tuple(_use(row, matrix, graph) for row in matrix if row.name.startswith("GPU")),
        remarks=remarked(),
        unseen=tuple(dict.fromkeys(f"{one.where}: {one.detail}" for one in missing)),
    )


def _node(desk: Desk, nvml: Nvml | None) -> NodeWords:
    host, module = desk.get(Host), desk.get(NvidiaModule)
    told = host if isinstance(host, Host) else None
    version = module.version if isinstance(module, NvidiaModule) else None
    return NodeWords(
        hostname=told.hostname if told else None,
        source=desk.raw.kind.value,
        os=told.os if told else None,
        kernel=told.kernel if told else None,
        driver=version or (nvml.driver_version if nvml else None),
    )


def _function(device: Device, labels: Mapping[str, str], told: NvmlDevice | None, graph: FullTopology) -> Function:
    active = None if told is None else told.fields.get(_ACTIVE)
    known = isinstance(active, int) and not isinstance(active, bool)
    return Function(
        address=device.address,
        kind=device.kind,
        label=labels.get(device.address, ""),
        name=device.name,
        model=(told.name or "") if told is not None else "",
        root=device.root,
        path=device.path,
        numa=device.numa,
        cpus="" if device.numa is None else graph.cpus_near(device),
        link=device.link,
        driver=device.driver,
        virtual_function_of=device.virtual_function_of,
        class_code=device.class_code,
        vendor_id=device.vendor_id,
        device_id=device.device_id,
        rdma=device.rdma,
        nvlinks=active if known and isinstance(active, int) else None,
        nvlinks_to=tuple(sorted({link.remote_type for link in _active_links(told) if link.remote_type})),
    )


# NVLinks -------------------------------------------------------------------------------------------------------------


def _by_address(nvml: Nvml | None) -> dict[str, NvmlDevice]:
    return {one.address: one for one in (() if nvml is None else nvml.devices) if one.address is not None}


def _active_links(told: NvmlDevice | None) -> Sequence[NvLink]:
    return [] if told is None else [link for link in told.nvlinks if link.active]


def _bundles(nvml: Nvml | None) -> tuple[NvLinkBundle, ...]:
    paths = () if nvml is None else nvml.topology
    return tuple(NvLinkBundle(path.one, path.other, path.nvlinks) for path in paths if path.nvlinks)


def _targets(
    labels: Mapping[str, str], devices: Mapping[str, NvmlDevice], graph: FullTopology
) -> Iterator[NvLinkTarget]:
    """Where each GPU's active links end. None of a GPU of which one end is not told: a part would look like the whole."""
    switches = {device.address for device in graph.devices if device.kind == "nvswitch"}
    for address, told in devices.items():
        counts: dict[str, int] = {}
        types: dict[str, bool] = {}
        for link in _active_links(told):
            target = _address(link.remote_bus_id)
            counts[target] = counts.get(target, 0) + 1
            types[target] = link.remote_type == "switch" or target in switches
        if address in labels and "" not in counts:
            for target, links in sorted(counts.items()):
                yield NvLinkTarget(labels[address], target, types[target], links)


def _address(bus_id: str | None) -> str:
    """In the form of sysfs; "" for what is no address, such as the ones only of an end that a guest does not see."""
    try:
        address = normal_address(bus_id or "")
    except ValueError:
        return ""
    return "" if address.startswith("ffff") else address


def _physical(rows: tuple[MatrixRow, ...], graph: FullTopology) -> tuple[MatrixRow, ...]:
    """Without virtual functions, which are as near as their physical one and can be hundreds. The others keep nvidia-smi's numbers."""
    virtual = {device.address for device in graph.nics if device.virtual_function_of}
    kept = [at for at, row in enumerate(rows) if row.address not in virtual]
    if len(kept) == len(rows):
        return rows
    return tuple(replace(rows[at], cells=tuple(rows[at].cells[column] for column in kept)) for at in kept)


def _captured(nvml: Nvml) -> tuple[MatrixRow, ...]:
    """The matrix that `nvidia-smi topo -m` printed, where nothing but that is known of the node."""
    names = list(dict.fromkeys(name for path in nvml.topology for name in (path.one, path.other)))[:_MOST_CAPTURED]
    told = {frozenset((path.one, path.other)): path.path for path in nvml.topology}
    devices = {f"GPU{device.index}": device for device in nvml.devices}
    return tuple(
        MatrixRow(
            name=name,
            address="",
            device="" if name.startswith("GPU") else name,
            cells=tuple("X" if other == name else told.get(frozenset((name, other)), "") for other in names),
            cpus=_word(devices.get(name), "affinity.cpus"),
            numa=_word(devices.get(name), "affinity.numa_nodes"),
            memory_node=_word(devices.get(name), "affinity.memory_numa_node"),
        )
        for name in names
    )


def _word(device: NvmlDevice | None, field: str) -> str:
    value = None if device is None else device.fields.get(field)
    return str(value) if isinstance(value, (str, int)) else ""


# What to use, and what is wrong ---------------------------------------------------------------------------------------


def _use(row: MatrixRow, matrix: Sequence[MatrixRow], graph: FullTopology) -> Use:
    """Nothing of NUMA is advised where a hypervisor made the tree up."""
    far = {way: at for at, way in enumerate(WAYS)}
    found = [(far[cell], other.device) for cell, other in zip(row.cells, matrix, strict=True)
             if other.name.startswith("NIC") and cell in far]  # fmt: skip
    nearest = min((at for at, _ in found), default=0)
    node = graph.node(int(row.numa)) if row.numa.isdecimal() else None
    several = len(graph.numa_nodes) > 1 and not graph.synthetic
    has_memory = node is not None and node.cpus and node.memory_bytes != 0
    return Use(
        gpu=row.name,
        address=row.address,
        cpus=row.cpus,
        memory=(node.number,) if node is not None and has_memory else (),
        nics=tuple(name for at, name in found if at == nearest),
        way=WAYS[nearest] if found else "",
        command=node.binding if node is not None and several else "",
    )


def remarks(report: Report) -> tuple[Remark, ...]:
    """What the checks of these links found, the worst first."""
    found = [
        Remark(result.check, finding.subject.id, finding.status, finding.summary)
        for result in report.results
        for finding in result.findings
        if result.link in JUDGED and finding.status in (Status.FAIL, Status.WARN) and finding.waived is None
    ]
    return tuple(sorted(found, key=lambda remark: remark.status is not Status.FAIL))
