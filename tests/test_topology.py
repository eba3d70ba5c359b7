"""The node's graph, its NUMA nodes and its matrix, against hwloc on the same tree."""

import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nics import NetworkInterfaces, RdmaDevices
from gpudoctor.facts.numa import NumaLayout, NumaNode, Package, cpu_set, cpu_text, packages_of
from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.nvidia_smi_topology import is_topology
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, TextFile, trouble
from gpudoctor.facts.topology import FullTopology, Topology
from gpudoctor.facts.topology_matrix import Matrix, matrix_of
from gpudoctor.facts.topology_places import place_on
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.folder import DiskTree
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node
from gpudoctor.verdicts import Unread, Why
from tests.captures import Builder
from tests.hwloc_witness import LSTOPO, Hwloc, hwloc_of, read
from tests.nccl_topology import NcclTopology, parse_nccl_topology
from tests.topology_corpus import captured, from_lspci_tree, from_nccl, unpacked
from tests.topology_trees import Machine, Node, Root, gpu, machines, numbered, port, written

needs_lstopo = pytest.mark.skipif(LSTOPO is None, reason="lstopo is not installed (Debian: hwloc)")


def desk_of(folder: Path) -> Desk:
    """A tree as a recorded node that is complete."""
    return Desk(RecordedNode(DiskTree(str(folder)), complete=("/",)), Config())


def full(folder: Path) -> FullTopology:
    """The full graph of a tree."""
    found = desk_of(folder).get(FullTopology)
    assert isinstance(found, FullTopology), found
    return found


def disagreements(mine: FullTopology, theirs: Hwloc) -> Iterator[str]:
    """Where the two differ: hierarchy, host bridges, locality, nodes, packages, matrix."""
    devices = mine.by_address
    if set(devices) != set(theirs.devices):
        yield f"functions {set(devices) ^ set(theirs.devices)}"
        return
    for address, device in devices.items():
        other = theirs.devices[address]
        if device.path != other.path:
            yield f"{address} path {device.path} {other.path}"
    yield from _roots(mine, theirs)
    yield from _places(mine, theirs)
    ends = [device for device in mine.devices if device.kind in ("gpu", "nic")]
    for one in ends:
        for other_end in ends:
            ours, wanted = mine.way(one, other_end), theirs.way(one.address, other_end.address)
            if ours != wanted:
                yield f"{one.address} to {other_end.address}: {ours} {wanted}"


def _roots(mine: FullTopology, theirs: Hwloc) -> Iterator[str]:
    pairs = {(device.root, theirs.devices[device.address].bridge) for device in mine.devices}
    if len(pairs) != len({root for root, _ in pairs}) or len(pairs) != len({bridge for _, bridge in pairs}):
        yield f"host bridges {sorted(pairs)}"


def _places(mine: FullTopology, theirs: Hwloc) -> Iterator[str]:
    for device in mine.devices:
        told = theirs.devices[device.address].cpus
        if device.numa is not None and cpu_set(mine.cpus_near(device)) != told:
            yield f"{device.address} CPUs {mine.cpus_near(device)} {sorted(told)}"
    owners = {number: node.gpu for number, node in theirs.nodes.items()}
    if {node.number: node.gpu for node in mine.numa_nodes} != owners:
        yield f"GPU memory {mine.numa_nodes} {owners}"
    yield from machine_disagreements(mine.numa_nodes, mine.packages, theirs)


def machine_disagreements(nodes: tuple[NumaNode, ...], packages: tuple[Package, ...], theirs: Hwloc) -> Iterator[str]:
    """Where the two differ of NUMA nodes and packages; hwloc gives a node without CPUs those of whatever it puts it under."""
    if {node.number for node in nodes} != set(theirs.nodes):
        yield f"nodes {nodes} {set(theirs.nodes)}"
        return
    for mine in nodes:
        other = theirs.nodes[mine.number]
        if mine.cpus and cpu_set(mine.cpus) != other.cpus:
            yield f"node {mine.number} {mine.cpus} {sorted(other.cpus)}"
        if mine.memory_bytes not in (None, other.bytes):
            yield f"node {mine.number} {mine.memory_bytes} {other.bytes}"
    found = {package.number: cpu_set(package.cpus) for package in packages}
    if found != theirs.packages:
        yield f"packages {found} {theirs.packages}"


def compared(machine: Machine, folder: Path) -> tuple[FullTopology, list[str]]:
    """A machine's graph, and where lstopo sees another."""
    mine = full(written(machine, folder))
    return mine, list(disagreements(mine, hwloc_of(folder)))


def cells(mine: FullTopology) -> int:
    """How many cells the matrix of GPUs and adapters has."""
    return len([*mine.gpus, *mine.nics]) ** 2


@needs_lstopo
def test_the_graph_is_hwlocs(tmp_path: Path) -> None:
    made = machines()
    found = {machine.name: compared(machine, tmp_path / str(at)) for at, machine in enumerate(made)}
    assert {name: wrong[:4] for name, (_, wrong) in found.items() if wrong} == {}
    functions, fields = (sum(count(mine) for mine, _ in found.values()) for count in (lambda m: len(m.devices), cells))
    print(f"{len(found)} trees, {functions} functions and {fields} cells of the matrix compared with lstopo")
    assert len(found) >= 60
    assert functions >= 1_700
    assert fields >= 20_000


# What an XML file cannot say: flux-sierra2 was written without the bridges, whose devices then lie on buses of their own; flux-chimera
# has two NUMA nodes without memory, which hwloc 2 leaves out when it reads a file of hwloc 1.
_XML_LACKS = {
    "hwloc-xml/flux-sierra2.xml": ("host bridges", "NODE PHB"),
    "hwloc-xml/flux-chimera.xml": ("nodes", "GPU memory"),
}


@needs_lstopo
def test_captured_machines_are_hwlocs(corpus: Path, tmp_path: Path) -> None:
    trees = functions = documents = fields = 0
    for at, (name, machine) in enumerate(captured(corpus)):
        mine, wrong = compared(machine, tmp_path / str(at))
        assert wrong == [], name
        trees += 1
        functions += len(mine.devices)
        fields += cells(mine)
        if name.startswith("hwloc-xml"):
            text = (corpus / name).read_text()
            # hwloc 2.9 does not read what hwloc 3 writes.
            theirs = read(text) if 'topology version="3' in text[:400] else hwloc_of(corpus / name)
            lacks = _XML_LACKS.get(name, ())
            assert [one for one in disagreements(mine, theirs) if not any(word in one for word in lacks)] == [], name
            documents += 1
    print(
        f"{trees} captured trees, {functions} functions, {documents} trees also with their own XML, {fields} cells compared"
    )
    assert trees >= 33
    assert documents >= 11
    assert functions >= 1_400
    assert fields >= 1_000


@needs_lstopo
def test_gathered_trees_are_hwlocs(corpus: Path, tmp_path: Path) -> None:
    places = sorted((corpus / "sysfs-hwloc").iterdir())
    for archive in places:
        folder = unpacked(archive, tmp_path / archive.name)
        theirs, desk = hwloc_of(folder), desk_of(folder)
        layout = desk.get(NumaLayout)
        assert isinstance(layout, NumaLayout)
        packages = tuple(packages_of(desk.raw, layout.nodes, layout.online, []))
        wrong = list(machine_disagreements(layout.nodes, packages, theirs))
        if theirs.devices:
            wrong += disagreements(full(folder), theirs)
        if "pci-conflicts" in archive.name:
            # Some masks were altered upstream, the lists beside them were not; hwloc reads the masks and gives up one package.
            assert {package.number for package in packages} - set(theirs.packages) == {3}
            wrong = [one for one in wrong if not one.startswith("packages")]
        assert wrong == [], archive.name
    assert len(places) >= 4


# The graph by itself -------------------------------------------------------------------------------------------------


def tree(name: str, folder: Path) -> Path:
    """One of the machines by its name."""
    return written(next(machine for machine in machines() if machine.name == name), folder)


def small(desk: Desk) -> Topology:
    """The small form of the graph."""
    found = desk.get(Topology)
    assert isinstance(found, Topology), found
    return found


def test_the_small_graph_is_part_of_the_full_one(tmp_path: Path) -> None:
    for at, machine in enumerate(machines()[:36:4]):
        folder = written(machine, tmp_path / str(at))
        few, every = small(desk_of(folder)), full(folder)
        if len(every.gpus) < 2 and not any(nic.rdma for nic in every.nics):
            assert few.numa_nodes == () and [gpu.path for gpu in few.gpus] == [gpu.path for gpu in every.gpus]
            continue
        assert [gpu.address for gpu in few.gpus] == [gpu.address for gpu in every.gpus]
        assert [nic.name for nic in few.nics] == [nic.name for nic in every.nics if nic.rdma]
        for one in few.devices:
            assert few.near(one.address) == every.near(one.address)
            for other in few.devices:
                assert few.between(one.address, other.address) == every.between(one.address, other.address)


def test_a_node_with_one_gpu_is_hardly_looked_at(tmp_path: Path) -> None:
    folder = tree("1 sockets, 1 GPUs at root ports each", tmp_path)
    found = small(desk_of(folder))
    assert [(gpu.kind, gpu.numa, gpu.link) for gpu in found.devices] == [("gpu", None, None)]
    assert found.numa_nodes == () and found.packages == () and found.unread == ()


def test_adapters_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = small(desk_of(tree("64 GPUs and 64 adapters", tmp_path)))
    assert [nic.name for nic in found.nics] == [f"mlx5_{number}" for number in range(64)]


def test_virtual_functions_name_their_physical_one(tmp_path: Path) -> None:
    found = small(desk_of(tree("virtual functions", tmp_path)))
    physical, *virtual = found.nics
    assert physical.virtual_function_of == ""
    assert {nic.virtual_function_of for nic in virtual} == {physical.address}
    assert found.between(physical.address, virtual[0].address) == "PIX"


def test_a_gpu_without_a_node_may_be_anywhere(tmp_path: Path) -> None:
    found = small(desk_of(tree("a GPU whose node the firmware does not tell", tmp_path)))
    told, lost = found.gpus[0], found.gpus[-1]
    assert lost.numa == -1 and lost.cite("numa")[0].shows == "-1"
    assert found.between(told.address, lost.address) == ""
    assert found.near(lost.address) == found.cpus_online != found.near(told.address)


def test_gpu_memory_is_a_node_of_its_gpu(tmp_path: Path) -> None:
    found = full(tree("Grace with four GPUs whose memory is nodes", tmp_path))
    owners = {node.number: node.gpu for node in found.numa_nodes if node.gpu}
    assert owners == {2 + 8 * at: gpu.address for at, gpu in enumerate(found.gpus)}
    rows = matrix_of(found, None).rows
    assert [row.memory_node for row in rows[:4]] == ["2", "10", "18", "26"]
    assert [row.cpus for row in rows[:4]] == ["0-11", "0-11", "12-23", "12-23"]


def test_a_device_at_memory_alone_has_the_nearest_cpus(tmp_path: Path) -> None:
    packages = {number: set(range(4 * number, 4 * number + 4)) for number in range(2)}
    made = {0: Node(packages[0]), 1: Node(packages[1]), 2: Node(set())}
    roots = [Root(2, [port(gpu())]), Root(1, [port(gpu())])]
    far = {0: [10, 20, 28], 1: [20, 10, 14], 2: [28, 14, 10]}
    machine = numbered(Machine("memory alone", made, packages, roots, distances=far))
    found = small(desk_of(written(machine, tmp_path)))
    assert [found.near(one.address) for one in found.gpus] == ["4-7", "4-7"]
    assert found.between(*(one.address for one in found.gpus)) == "SYS"


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    packages = {0: set(range(4))}
    machine = numbered(Machine("no NUMA", {}, packages, [Root(-1, [port(gpu())]), Root(-1, [port(gpu())])]))
    found = small(desk_of(written(machine, tmp_path)))
    assert found.numa_nodes == () and found.has_one_node
    assert [(one.numa, found.near(one.address)) for one in found.gpus] == [(-1, "0-3"), (-1, "0-3")]
    assert found.between(*(one.address for one in found.gpus)) == "NODE"


def test_virtual_machines_are_told_by_their_tree(tmp_path: Path) -> None:
    hyper = small(desk_of(tree("Hyper-V with a host bridge for each GPU", tmp_path / "hyper")))
    assert "Hyper-V" in hyper.synthetic
    folder = tree("a virtual machine with a port for each GPU", tmp_path / "q35")
    assert small(desk_of(folder)).synthetic == ""
    _firmware(folder, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
    assert "hypervisor" in small(desk_of(folder)).synthetic
    switched = tree("8 GPUs on four host bridges, eight rails", tmp_path / "switched")
    _firmware(switched, "QEMU", "Standard PC (Q35 + ICH9, 2009)")
    assert small(desk_of(switched)).synthetic == ""


def _firmware(folder: Path, vendor: str, product: str) -> None:
    place = folder / "sys/class/dmi/id"
    place.mkdir(parents=True)
    (place / "sys_vendor").write_text(f"{vendor}\n")
    (place / "product_name").write_text(f"{product}\n")


def test_what_is_not_read_is_not_told(tmp_path: Path) -> None:
    folder = tree("8 GPUs on four host bridges, eight rails", tmp_path)
    disk = DiskTree(str(folder))
    for path in ("/sys/devices/system/node", "/sys/class/infiniband"):
        disk.put(path, Record(error="EACCES"))
    found = small(Desk(RecordedNode(disk, complete=("/",)), Config()))
    assert {one.where for one in found.unread} == {"/sys/devices/system/node", "/sys/class/infiniband"}
    assert found.nics == () and found.near(found.gpus[0].address) == ""


def test_a_place_that_cannot_be_read_has_no_way(tmp_path: Path) -> None:
    folder = tree("8 GPUs on four host bridges, eight rails", tmp_path)
    disk = DiskTree(str(folder))
    lost, other = (gpu.address for gpu in full(folder).gpus[:2])
    disk.put(f"/sys/bus/pci/devices/{lost}", Record(entry=Entry(f"/sys/bus/pci/devices/{lost}", EntryType.DIR)))
    found = Desk(RecordedNode(disk, complete=("/",)), Config()).get(Topology)
    assert isinstance(found, Unread) or found.between(lost, other) == ""


def test_no_link_is_read_of_what_sleeps(tmp_path: Path) -> None:
    folder = tree("2 sockets, a switch each with 2 GPUs and an adapter", tmp_path)
    root_port = full(folder).gpus[0].path[0]
    for place in (folder / "sys/devices").rglob(root_port):
        (place / "power").mkdir()
        (place / "power/runtime_status").write_text("suspended\n")
    found = full(folder).by_address
    assert found[root_port].link is None and found[root_port].kind == "bridge"
    assert found[full(folder).gpus[0].path[1]].link is not None


# The matrix ----------------------------------------------------------------------------------------------------------


def test_the_matrix_has_nvlinks_from_the_driver() -> None:
    matrix = Desk(node("h100x8"), Config()).get(Matrix)
    assert isinstance(matrix, Matrix)
    assert [row.name for row in matrix.rows] == [f"GPU{index}" for index in range(8)]
    assert matrix.cell("GPU0", "GPU7") == "NV18" and matrix.cell("GPU0", "GPU0") == "X"
    assert matrix.rows[0].cells == ("X", *("NV18",) * 7)
    assert matrix.cell("0000:18:00.0", "0000:db:00.0") == "NV18"


def test_without_the_driver_it_has_the_ways_through_pcie(tmp_path: Path) -> None:
    matrix = desk_of(tree("eight GPUs with NVSwitches, rails and a two-port adapter", tmp_path)).get(Matrix)
    assert isinstance(matrix, Matrix)
    by_name = {row.name: row for row in matrix.rows}
    assert by_name["GPU0"].cells[:8] == ("X", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    assert by_name["NIC8"].device == "mlx5_8" and matrix.cell("NIC8", "NIC9") == "PIX"
    assert matrix.cell("GPU0", "NIC0") == "PIX" and matrix.cell("GPU7", "NIC0") == "SYS"
    assert by_name["GPU0"].numa == "0" and by_name["GPU7"].numa == "1" and by_name["GPU0"].memory_node == "N/A"


def test_the_matrix_is_the_drivers(corpus: Path, tmp_path: Path) -> None:
    """One machine of which both the tree and `topo -m` were captured: four GPUs and two adapters of two ports."""
    name = "stelline-asus-esc8000a-e12"
    text = (corpus / "lspci" / f"{name}-0.txt").read_text()
    machine = from_lspci_tree(text, name, lambda bus: bus >> 7)
    for number in range(2):
        machine.packages[number] = set(range(32 * number, 32 * number + 32))
        machine.nodes[number] = Node(machine.packages[number])
    matrix = desk_of(written(machine, tmp_path)).get(Matrix)
    assert isinstance(matrix, Matrix)
    said = (corpus / "nvidia-smi-topo" / f"{name}-10.txt").read_text().splitlines()[2:10]
    assert [[row.name, *row.cells] for row in matrix.rows] == [line.split()[:9] for line in said]
    assert [[row.cpus, row.numa, row.memory_node] for row in matrix.rows[:4]] == [line.split()[9:] for line in said[:4]]


# NCCL's files --------------------------------------------------------------------------------------------------------


def test_nccls_files_are_read(corpus: Path) -> None:
    gpus = pairs = 0
    for place in sorted((corpus / "nccl-topo").glob("*.xml")):
        found, machine = parse_nccl_topology(place.read_text(), place.name), from_nccl(place)
        if machine is None:
            assert isinstance(found, Unread) and "<graphs>" in found.detail
            continue
        assert isinstance(found, NcclTopology), found
        elements = list(ElementTree.parse(place).getroot().iter("pci"))  # noqa: S314 (captures)
        assert [device.address for device in found.devices] == [element.get("busid") for element in elements]
        assert len(found.gpus) == len(machine.gpus) or "aws-g5" in place.name
        gpus += len(found.gpus)
        pairs += _same_ways(found, machine) if len(found.gpus) == len(machine.gpus) else 0
    print(f"{gpus} GPUs in NCCL's files, {pairs} ways between them compared")
    assert gpus >= 60
    assert pairs >= 500


def _same_ways(found: NcclTopology, machine: Machine) -> int:
    """The ways in the file and in the tree that was made of it, GPUs in the order of the file."""
    ordered = [function for _, function in machine.functions if function in machine.gpus]
    roots = {function.address: root for root, function in machine.functions}
    count = 0
    for one, mine in zip(found.gpus, ordered, strict=True):
        for other, yours in zip(found.gpus, ordered, strict=True):
            shared = len(set(mine.path[:-1]) & set(yours.path[:-1]))
            same_node = roots[mine.address].numa == roots[yours.address].numa
            own = max(len(mine.path), len(yours.path)) - 1 - shared
            wanted = ("PIX" if own < 2 else "PXB") if shared else ("NODE" if same_node else "SYS")
            assert found.way(one, other) == ("X" if one is other else wanted)
            count += 1
    return count


def test_what_is_no_topology_is_refused() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><system version="1"/>'
    for text in ("", "not XML", "<graphs/>", "<system>\udcff</system>", bomb):
        assert isinstance(parse_nccl_topology(text, "topo.xml"), Unread)


# Captured matrices ---------------------------------------------------------------------------------------------------


def test_a_matrix_without_its_heading_is_read(corpus: Path) -> None:
    text = (corpus / "issue-excerpts" / "topo-m-b200-gpu2-off-nvlink.txt").read_text()
    answer = answer_from(None, text)
    assert answer is not None
    paths = {frozenset((pair["from"], pair["to"])): pair["path"] for pair in answer.data["system"]["topology"]}
    of_gpu2 = {path for pair, path in paths.items() if "GPU2" in pair}
    assert of_gpu2 == {"NODE", "SYS"}
    assert {path for pair, path in paths.items() if "GPU2" not in pair} == {"NV18"}
    rows = (corpus / "issue-excerpts" / "topo-m-8gpu-nps8-rows.txt").read_text()
    told = answer_from(None, rows)
    assert told is not None
    assert {"from": "NIC1", "to": "NIC2", "path": "PIX"} in told.data["system"]["topology"]


def test_rows_that_are_no_matrix_are_left_alone() -> None:
    for text in (
        "GPU0  X  NV18\n",
        "GPU1 X NV18\nGPU0 NV18 X\n",
        "NIC0 X PIX\nNIC1 PIX X\n",
        "GPU0 X\nsomething else\n",
    ):
        assert not is_topology(text)


def test_nvml_names_the_adapters() -> None:
    text = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-3\nNIC0\tPIX\t X \t\n\nNIC Legend:\n\n  NIC0: mlx5_4\n"
    recorded = RecordedNode(DiskTree("/nonexistent"))
    answer = answer_from("topo -m", text)
    assert answer is not None
    recorded.answers["nvml"] = answer
    nvml = Desk(recorded, Config()).get(Nvml)
    assert isinstance(nvml, Nvml) and nvml.nics == {"NIC0": "mlx5_4"}


# Adapters ------------------------------------------------------------------------------------------------------------


def adapters() -> RecordedNode:
    """A bond of two ports, an Intel adapter by way of an auxiliary device, soft RoCE, a container's interface."""
    builder = Builder()
    port = "../../devices/pci0000:15/0000:15:01.0/0000:18:00"
    intel = "../../devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0"
    builder.link("/sys/class/infiniband/mlx5_bond_0", f"{port}.0/infiniband/mlx5_bond_0")
    builder.link("/sys/class/infiniband/rocep75s0", f"{intel}/ice.roce.0/infiniband/rocep75s0")
    builder.link("/sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0")
    for number in (0, 1):
        builder.link(f"/sys/class/net/ens1f{number}", f"{port}.{number}/net/ens1f{number}")
    builder.link("/sys/class/net/bond0", "../../devices/virtual/net/bond0")
    builder.link("/sys/class/net/veth12ab", "../../devices/virtual/net/veth12ab")
    for number in (0, 1):
        place = f"/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.{number}/net/ens1f{number}"
        builder.link(f"{place}/master", "../../../../../virtual/net/bond0")
    return RecordedNode(builder.tree, complete=("/sys/class", "/sys/devices"))


def test_adapters_lie_below_their_function() -> None:
    desk = Desk(adapters(), Config())
    rdma, interfaces = desk.get(RdmaDevices), desk.get(NetworkInterfaces)
    assert isinstance(rdma, RdmaDevices) and isinstance(interfaces, NetworkInterfaces)
    places = {device.name: (device.place.root, device.place.path) for device in rdma.devices}
    assert places == {
        "mlx5_bond_0": ("pci0000:15", ("0000:15:01.0", "0000:18:00.0")),
        "rocep75s0": ("pci0000:4a", ("0000:4a:02.0", "0000:4b:00.0")),
        "rxe0": ("", ()),
    }
    assert {one.name: one.place.address for one in interfaces.interfaces} == {
        "ens1f0": "0000:18:00.0",
        "ens1f1": "0000:18:00.1",
    }
    assert interfaces.bonds == {"ens1f0": "bond0", "ens1f1": "bond0"}


def test_a_volume_management_device_begins_another_domain() -> None:
    place = place_on("../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0")
    assert (place.root, place.path) == ("pci10000:e0", ("10000:e0:06.0", "10000:e1:00.0"))
    assert place_on("../../devices/virtual/net/lo").address == ""


def test_lists_of_cpus() -> None:
    assert cpu_text(cpu_set("0-3,8,10-11")) == "0-3,8,10-11"
    assert cpu_set("") == cpu_set("none") == cpu_set("0-99999") == frozenset()


# This machine, and every read refused --------------------------------------------------------------------------------


@needs_lstopo
@pytest.mark.skipif(not Path("/sys/bus/pci/devices").is_dir(), reason="this machine shows no PCI bus")
def test_this_machine_is_hwlocs() -> None:
    mine = Desk(Live(Deadline(20)), Config()).get(FullTopology)
    assert isinstance(mine, FullTopology), mine
    theirs = hwloc_of(Path("/"))
    assert list(_places(mine, theirs)) == []
    # Without root the registers of a bridge that tell its buses are not shown to hwloc.
    if os.geteuid() == 0:
        assert list(disagreements(mine, theirs)) == []


class Watched(RecordedNode):
    """Notes what is asked."""

    def __init__(self, folder: Path, refused: str = "", error: str = "EACCES") -> None:
        disk = DiskTree(str(folder))
        super().__init__(disk, complete=("/",))
        self.asked: list[str] = []
        self._refused, self._error = refused, error

    def read(self, path: str) -> TextFile | Absent | Unread:
        """As a recorded node, but for what is refused."""
        self.asked.append(path)
        return trouble(path, self._error) if path == self._refused else super().read(path)

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """As a recorded node, but for what is refused."""
        self.asked.append(path)
        return trouble(path, self._error) if path == self._refused else super().entry(path, follow=follow)

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """As a recorded node, but for what is refused."""
        self.asked.append(path)
        return trouble(path, self._error) if path == self._refused else super().listing(path, begin=begin)


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_whatever_is_refused_nothing_is_made_up(tmp_path: Path, error: str) -> None:
    folder = tree("2 sockets, a switch each with 2 GPUs and an adapter", tmp_path)
    watched = Watched(folder)
    whole = Desk(watched, Config()).get(FullTopology)
    assert isinstance(whole, FullTopology)
    for path in dict.fromkeys(watched.asked):
        found = Desk(Watched(folder, path, error), Config()).get(FullTopology)
        if isinstance(found, Unread):
            assert found.why is not Why.CRASHED, (path, found)
            continue
        for one in found.gpus:
            assert found.near(one.address) in ("", whole.near(one.address)), (path, one.address)
            for other in found.gpus:
                ways = ("", whole.between(one.address, other.address))
                assert found.between(one.address, other.address) in ways, (path, one.address, other.address)
    print(f"{len(set(watched.asked))} paths refused with {error}")
