"""Captured machines as trees of sysfs: from hwloc's XML, from archives of hwloc-gather-topology, and from NCCL's topology files."""

import re
import tarfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

from tests.captures import Block, blocks, places
from tests.hwloc_witness import cpu_mask
from tests.topology_trees import (
    BRIDGE,
    CONTROLLER,
    DRIVE,
    GPU,
    INFINIBAND,
    Function,
    Machine,
    Node,
    Root,
    numbered,
    port,
    switch,
)


def unpacked(archive: Path, folder: Path) -> Path:
    """The tree in an archive, below a folder."""
    with tarfile.open(archive) as members:
        wanted = [m for m in members if "/memory" not in m.name or "meminfo" in m.name]
        members.extractall(folder, members=wanted, filter="fully_trusted")  # noqa: S202 (an archive kept with the tests)
    return next(place for place in folder.iterdir() if (place / "sys").is_dir())


# hwloc's XML ---------------------------------------------------------------------------------------------------------


def from_hwloc(place: Path) -> Machine:
    """The machine of an XML file, every function at its captured address."""
    top = ElementTree.parse(place).getroot().find("object")  # noqa: S314 (a capture kept with the tests)
    assert top is not None
    machine = Machine(place.name, {}, {}, [])
    _take(machine, top)
    _take_functions(machine, top, cpu_mask(top.get("cpuset")))
    return machine


def _take(machine: Machine, element: ElementTree.Element) -> None:
    number = int(element.get("os_index", "-1"))
    match element.get("type"):
        case "NUMANode":
            machine.nodes[number] = Node(cpu_mask_set(element), int(element.get("local_memory", "0")))
        case "Package" | "Socket" if cpu_mask_set(element):
            machine.packages[number] = cpu_mask_set(element)
    for child in element.findall("object"):
        _take(machine, child)


def cpu_mask_set(element: ElementTree.Element) -> set[int]:
    """The CPUs of an object."""
    return set(cpu_mask(element.get("cpuset")))


def _take_functions(machine: Machine, element: ElementTree.Element, cpus: frozenset[int]) -> None:
    """Host bridges, with the CPUs of the nearest object above that has some."""
    for child in element.findall("object"):
        if child.get("type") == "Bridge" and child.get("bridge_type", "").startswith("0"):
            near = [number for number, node in machine.nodes.items() if node.cpus and node.cpus == set(cpus)]
            _take_tops(machine, child, near[0] if len(near) == 1 else -1)
        else:
            own = child.get("cpuset")
            _take_functions(machine, child, cpus if own is None else cpu_mask(own))


def _take_tops(machine: Machine, bridge: ElementTree.Element, numa: int) -> None:
    """Bridges that hwloc left out make functions of several buses hang under one host bridge; each bus has one of its own then."""
    roots: dict[str, Root] = {}
    for child in bridge.findall("object"):
        function = _function(child, ())
        bus = function.address.rpartition(":")[0]
        if bus not in roots:
            roots[bus] = Root(numa, [], name=f"pci{bus}")
            machine.roots.append(roots[bus])
        roots[bus].below.append(function)


def _function(element: ElementTree.Element, path: tuple[str, ...]) -> Function:
    ids = re.match(r"(\w{4}) \[(\w{4}):(\w{4})\]", element.get("pci_type", ""))
    assert ids is not None
    address = element.get("pci_busid", "")
    below = [_function(child, (*path, address)) for child in element.findall("object") if child.get("pci_busid")]
    names = {child.get("osdev_type"): child.get("name", "") for child in element.findall("object")}
    behind = re.search(r"\[(\w\w)-(\w\w)\]", element.get("bridge_pci", ""))
    return Function(
        (f"{ids[1]}00", ids[2], ids[3]),
        below,
        name=names.get("3", ""),
        interface=names.get("2", ""),
        address=address,
        path=(*path, address),
        buses=(int(behind[1], 16), int(behind[2], 16)) if behind else (0, 0),
    )


# NCCL's topology files -----------------------------------------------------------------------------------------------


def from_nccl(place: Path) -> Machine | None:
    """The machine of a topology file, None for a file of graphs.

    NCCL writes one element for a switch and none for root ports: these and the lower ports are added, and all addresses given anew.
    """
    system = ElementTree.parse(place).getroot()  # noqa: S314 (a capture kept with the tests)
    if system.tag != "system":
        return None
    machine = Machine(place.name, {}, {}, [])
    for processor in system.findall("cpu"):
        number = int(processor.get("numaid", "0"))
        # Some files leave the CPUs out; four are as good as any.
        invented = {4 * len(machine.nodes) + cpu for cpu in range(4)}
        cpus = set(cpu_mask(processor.get("affinity"))) or invented
        machine.nodes[number] = Node(cpus)
        machine.packages[number] = cpus
        machine.roots += [Root(number, [port(_nccl_function(child))]) for child in processor.findall("pci")]
    return numbered(machine)


def _nccl_function(element: ElementTree.Element) -> Function:
    children = [_nccl_function(child) for child in element.findall("pci")]
    if element.get("class", "").startswith("0x0604"):
        return switch(*children)
    class_code = element.get("class", "0x030200").removeprefix("0x")
    usual = ("10de", "2330") if class_code.startswith("03") else ("15b3", "1021")
    ids = [element.get(name, other).removeprefix("0x") for name, other in zip(("vendor", "device"), usual, strict=True)]
    net = element.find("nic/net")
    return Function((class_code, ids[0], ids[1]), name="" if net is None else net.get("name", ""))


# lspci -vv -----------------------------------------------------------------------------------------------------------


def from_lspci_verbose(text: str, name: str) -> Machine | None:
    """The tree that bridges tell by the buses behind them, None where none is told. Of the CPUs lspci says nothing but the NUMA node."""
    functions = blocks(text)
    tops: dict[str, Root] = {}
    made: dict[str, Function] = {}
    nodes = {int(number) for block in functions.values() for number in re.findall(r"NUMA node: (\d+)", block.text)} or {
        0
    }
    if not any(block.bus_behind for block in functions.values()):
        return None
    for address, place in sorted(places(functions).items(), key=lambda pair: pair[1].count("/")):
        root, *path = place.removeprefix("/sys/devices/").split("/")
        block = functions[address]
        behind = re.search(r"secondary=(\w\w), subordinate=(\w\w)", block.text)
        node = re.search(r"NUMA node: (\d+)", block.text)
        function = Function(
            _ids(block),
            address=address,
            path=tuple(path),
            numa=int(node[1]) if node else -1,
            buses=(int(behind[1], 16), int(behind[2], 16)) if behind else (0, 0),
        )
        made[address] = function
        if len(path) > 1:
            made[path[-2]].below.append(function)
        else:
            tops.setdefault(root, Root(-1, [], name=root)).below.append(function)
    cpus = {number: {4 * number + cpu for cpu in range(4)} for number in nodes}
    return Machine(name, {number: Node(cpus[number]) for number in nodes}, cpus, list(tops.values()))


def _ids(block: Block) -> tuple[str, str, str]:
    """What the first line calls it; ids are not printed."""
    if block.bus_behind:
        return BRIDGE
    kinds = {
        r"(VGA compatible|3D) controller( \[\w+\])?: NVIDIA": GPU,
        "Infiniband controller|Mellanox": INFINIBAND,
        "Non-Volatile": DRIVE,
    }
    head = block.text.partition("\n")[0]
    return next((ids for words, ids in kinds.items() if re.search(words, head)), CONTROLLER)


# lspci -tv -----------------------------------------------------------------------------------------------------------


def from_lspci_tree(text: str, name: str, numa_of_bus: Callable[[int], int]) -> Machine:
    """The GPUs and adapters of a tree without switches, at their captured addresses; which node a root bus is in lspci does not say."""
    machine = Machine(name, {}, {}, [])
    above: Function | None = None
    adapters = count()
    for line in text.splitlines():
        if root := re.search(r"\[0000:(\w\w)\]", line):
            machine.roots.append(Root(numa_of_bus(int(root[1], 16)), [], name=f"pci0000:{root[1]}"))
        if bridge := re.search(r"(\w\w\.\d)-\[(\w\w)\]", line):
            address = f"0000:{machine.roots[-1].name[-2:]}:{bridge[1]}"
            above = Function(BRIDGE, address=address, path=(address,), buses=(int(bridge[2], 16), int(bridge[2], 16)))
        found = re.search(r"[-+\\]-+(00\.\d)  (NVIDIA|Mellanox) (?!.*Audio)", line)
        if found and above is not None:
            address = f"0000:{above.buses[0]:02x}:{found[1]}"
            nic = found[2] == "Mellanox"
            ids, label = (INFINIBAND, f"mlx5_{next(adapters)}") if nic else (GPU, "")
            if not above.below:
                machine.roots[-1].below.append(above)
            above.below.append(Function(ids, name=label, address=address, path=(*above.path, address)))
    return machine


def captured(corpus: Path) -> Iterator[tuple[str, Machine]]:
    """Every capture that is a description, as a machine."""
    for place in sorted((corpus / "hwloc-xml").glob("*.xml")):
        yield f"hwloc-xml/{place.name}", from_hwloc(place)
    for place in sorted((corpus / "nccl-topo").glob("*.xml")):
        machine = from_nccl(place)
        if machine is not None:
            yield f"nccl-topo/{place.name}", machine
    for place in sorted((corpus / "lspci").glob("*.txt")):
        machine = from_lspci_verbose(place.read_text(), place.name)
        if machine is not None:
            yield f"lspci/{place.name}", machine
