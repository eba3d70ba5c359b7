"""Machines as trees of sysfs that both gpudoctor and hwloc can read: described here, numbered as firmware would, written to a folder."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

GPU = ("030200", "10de", "2330")
NVSWITCH = ("068000", "10de", "22a3")
INFINIBAND = ("020700", "15b3", "1021")
ETHERNET = ("020000", "15b3", "101d")
DRIVE = ("010802", "144d", "a80a")
CONTROLLER = ("010601", "8086", "a1d2")
BRIDGE = ("060400", "1000", "c030")
_ORDINARY_BRIDGE = 0x01
_MOST_BUSES = 0x100


class Function(Struct):
    """A function, or a bridge with what hangs below it; `functions` are further ones of the same device, `name` the kernel's for it."""

    ids: tuple[str, str, str]
    below: list["Function"] = []
    functions: list["Function"] = []
    name: str = ""
    interface: str = ""
    numa: int | None = None
    physical: bool = True
    # Given by `numbered`:
    address: str = ""
    path: tuple[str, ...] = ()
    buses: tuple[int, int] = (0, 0)


class Root(Struct):
    """A host bridge in a NUMA node; `above` is what lies above it in /sys/devices."""

    numa: int
    below: list[Function]
    above: str = ""
    domain: int | None = None
    name: str = ""


class Node(Struct):
    """A NUMA node; `gpu` is the position of the GPU whose memory it is."""

    cpus: set[int]
    bytes: int = 64 << 30
    gpu: int | None = None


class Machine(Struct):
    """A machine; `packages` are CPUs by the firmware's number."""

    name: str
    nodes: dict[int, Node]
    packages: dict[int, set[int]]
    roots: list[Root]
    offline: set[int] = set()
    threads: int = 1
    distances: dict[int, list[int]] = {}

    @property
    def online(self) -> set[int]:
        """The CPUs that are online."""
        return {cpu for cpus in self.packages.values() for cpu in cpus} - self.offline

    @property
    def functions(self) -> list[tuple[Root, Function]]:
        """All functions, with the root each hangs under."""
        return [(root, function) for root in self.roots for top in root.below for function in _all(top)]

    @property
    def gpus(self) -> list[Function]:
        """The GPUs, by address."""
        return sorted((f for _, f in self.functions if f.ids[1] == "10de" and f.ids[0].startswith("03")), key=_address)


def _address(function: Function) -> str:
    return function.address


def _all(top: Function) -> Iterator[Function]:
    yield top
    for other in (*top.functions, *top.below):
        yield from _all(other)


# Pieces ------------------------------------------------------------------------------------------------------------


def gpu() -> Function:
    """A GPU."""
    return Function(GPU)


def nic(name: str, interface: str = "") -> Function:
    """An RDMA adapter."""
    return Function(INFINIBAND, name=name, interface=interface)


def drive(name: str) -> Function:
    """An NVMe drive."""
    return Function(DRIVE, name=name)


def port(below: Function | None) -> Function:
    """A port with one device, or an empty slot."""
    return Function(BRIDGE, [] if below is None else [below])


def switch(*devices: Function | None) -> Function:
    """A PCIe switch: its upper port, and a lower port for each device."""
    return Function(BRIDGE, [port(device) for device in devices])


def cpus(count: int, packages: int, *, threads: int = 1, interleaved: bool = False) -> dict[int, set[int]]:
    """Packages of so many CPUs each; second threads are numbered after all first ones, as Linux finds them on x86."""
    cores = count // threads
    total = cores * packages
    found: dict[int, set[int]] = {}
    for package in range(packages):
        mine = range(package, total, packages) if interleaved else range(package * cores, (package + 1) * cores)
        found[package] = {cpu + total * thread for cpu in mine for thread in range(threads)}
    return found


def nodes(packages: dict[int, set[int]], per_package: int = 1, threads: int = 1) -> dict[int, Node]:
    """So many NUMA nodes in each package, cores being dealt in blocks with all their threads."""
    found: dict[int, Node] = {}
    for mine in packages.values():
        ordered = sorted(mine)
        cores = len(ordered) // threads
        size = cores // per_package
        for part in range(per_package):
            block = range(part * size, (part + 1) * size)
            found[len(found)] = Node({ordered[at + cores * thread] for at in block for thread in range(threads)})
    return found


def numbered(machine: Machine) -> Machine:
    """Give buses depth first; a new PCI domain begins where the buses of one are used up."""
    domain, bus = 0, 0
    for root in machine.roots:
        needed = 1 + sum(1 for top in root.below for function in _all(top) if function.ids[0].startswith("0604"))
        if root.domain is not None:
            domain, bus = root.domain, 0
        elif bus + needed > _MOST_BUSES:
            domain, bus = domain + 1, 0
        root.name = f"pci{domain:04x}:{bus:02x}"
        bus = _number(root.below, domain, bus, (), 0 if len(root.below) > 30 else 1)
    return machine


def _number(below: list[Function], domain: int, bus: int, path: tuple[str, ...], slot: int) -> int:
    """Number what is on a bus; gives the next free bus."""
    free = bus + 1
    for top in below:
        for number, function in enumerate((top, *top.functions)):
            function.address = f"{domain:04x}:{bus:02x}:{slot:02x}.{number}"
            function.path = (*path, function.address)
            if function.ids[0].startswith("0604"):
                first = free
                # The buses below a switch have many slots, those below any other port only one, which is number zero.
                free = _number(function.below, domain, first, function.path, 0)
                function.buses = (first, free - 1)
        slot += 1
    return free


# Writing -----------------------------------------------------------------------------------------------------------


def written(machine: Machine, folder: Path) -> Path:
    """Write a numbered machine as /sys and /proc below a folder."""
    tree = _Writer(folder)
    _write_cpus(tree, machine)
    _write_nodes(tree, machine)
    for root, function in machine.functions:
        _write_function(tree, machine, root, function)
    for name in ("infiniband", "net", "nvme"):
        tree.folder(f"/sys/class/{name}")
    tree.folder("/sys/bus/pci/devices")
    return folder


class _Writer:
    def __init__(self, base: Path) -> None:
        self._base = base
        self._made: set[Path] = set()

    def folder(self, path: str) -> Path:
        place = self._base / path.lstrip("/")
        if place not in self._made:
            place.mkdir(parents=True, exist_ok=True)
            self._made.add(place)
        return place

    def text(self, path: str, text: str) -> None:
        above, _, name = path.rpartition("/")
        (self.folder(above) / name).write_text(f"{text}\n")

    def content(self, path: str, content: bytes) -> None:
        above, _, name = path.rpartition("/")
        (self.folder(above) / name).write_bytes(content)

    def link(self, path: str, to: str) -> None:
        above, _, name = path.rpartition("/")
        (self.folder(above) / name).symlink_to(to)


def mask(numbers: Iterable[int]) -> str:
    """CPUs as sysfs writes a mask: words of 32 bits, commas between."""
    value = sum(1 << number for number in set(numbers))
    words: list[str] = []
    while value or not words:
        words.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


def listed(numbers: Iterable[int]) -> str:
    """CPUs as sysfs writes a list, each run being found by its first and last member."""
    have = set(numbers)
    firsts = sorted(number for number in have if number - 1 not in have)
    lasts = sorted(number for number in have if number + 1 not in have)
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def _write_cpus(tree: _Writer, machine: Machine) -> None:
    base = "/sys/devices/system/cpu"
    everything = machine.online | machine.offline
    tree.text(f"{base}/online", listed(machine.online))
    tree.text(f"{base}/offline", listed(machine.offline))
    tree.text(f"{base}/possible", listed(everything))
    tree.text(f"{base}/present", listed(everything))
    for number, members in machine.packages.items():
        here = members - machine.offline
        ordered = sorted(members)
        cores = max(len(ordered) // machine.threads, 1)
        for at, cpu in enumerate(ordered):
            if cpu in machine.offline:
                tree.text(f"{base}/cpu{cpu}/online", "0")
                continue
            mates = {ordered[other] for other in range(at % cores, len(ordered), cores)} - machine.offline
            folder = f"{base}/cpu{cpu}/topology"
            tree.text(f"{folder}/physical_package_id", str(number))
            tree.text(f"{folder}/core_id", str(at % cores))
            tree.text(f"{folder}/core_siblings", mask(here))
            tree.text(f"{folder}/core_siblings_list", listed(here))
            tree.text(f"{folder}/thread_siblings", mask(mates))


def _write_nodes(tree: _Writer, machine: Machine) -> None:
    base = "/sys/devices/system/node"
    if not machine.nodes:
        return
    tree.text(f"{base}/online", listed(machine.nodes))
    tree.text(f"{base}/possible", listed(machine.nodes))
    for number, node in machine.nodes.items():
        here = node.cpus - machine.offline
        folder = f"{base}/node{number}"
        tree.text(f"{folder}/cpumap", mask(here))
        tree.text(f"{folder}/cpulist", listed(here))
        tree.text(f"{folder}/meminfo", f"Node {number} MemTotal:       {node.bytes >> 10} kB")
        far = machine.distances.get(number) or [10 if other == number else 20 for other in machine.nodes]
        tree.text(f"{folder}/distance", " ".join(map(str, far)))
        if node.gpu is not None:
            address = machine.gpus[node.gpu].address
            status = f"Node:      {number}\nStatus:    online\n\nAddress:   0\nSize:      0"
            tree.text(f"/proc/driver/nvidia/gpus/{address}/numa_status", status)


def local_cpus(machine: Machine, root: Root, function: Function) -> tuple[int, set[int]]:
    """The node of a function and the CPUs that the kernel calls local: of a node that is none all that are online."""
    numa = root.numa if function.numa is None else function.numa
    node = machine.nodes.get(numa)
    return numa, machine.online if node is None else node.cpus - machine.offline


def _write_function(tree: _Writer, machine: Machine, root: Root, function: Function) -> None:
    above = f"/devices/{root.above}{root.name}"
    place = f"/sys{above}/{'/'.join(function.path)}"
    tree.link(f"/sys/bus/pci/devices/{function.address}", f"../../..{above}/{'/'.join(function.path)}")
    class_code, vendor, device = function.ids
    numa, near = local_cpus(machine, root, function)
    for name, value in (("class", class_code), ("vendor", vendor), ("device", device)):
        tree.text(f"{place}/{name}", f"0x{value}")
    about = f"PCI_CLASS={class_code.lstrip('0').upper()}\nPCI_ID={vendor.upper()}:{device.upper()}"
    tree.text(f"{place}/uevent", f"DRIVER=pcieport\n{about}" if class_code == BRIDGE[0] else about)
    tree.text(f"{place}/numa_node", str(numa))
    tree.text(f"{place}/local_cpus", mask(near))
    tree.content(f"{place}/config", _config(function))
    for end in ("current", "max") if function.ids in (GPU, BRIDGE) and len(machine.functions) < 40 else ():
        tree.text(f"{place}/{end}_link_speed", "32.0 GT/s PCIe")
        tree.text(f"{place}/{end}_link_width", "16")
    if not function.physical:
        tree.link(f"{place}/physfn", f"../{function.address[:-1]}0")
    for folder, name in (("infiniband", function.name), ("net", function.interface), ("nvme", function.name)):
        fits = (folder == "nvme") == name.startswith("nvme")
        if name and fits:
            tree.folder(f"{place}/{folder}/{name}")
            tree.link(f"/sys/class/{folder}/{name}", f"../..{place.removeprefix('/sys')}/{folder}/{name}")


def _config(function: Function) -> bytes:
    """A header of 64 bytes (PCI Local Bus Specification), the rest of the first 256 being zero."""
    class_code, vendor, device = (bytes.fromhex(value)[::-1] for value in function.ids)
    config = bytearray(256)
    config[0:4] = vendor + device
    config[9:12] = class_code
    if function.ids[0].startswith("0604"):
        config[0x0E] = _ORDINARY_BRIDGE
        own = int(function.address.split(":")[1], 16)
        config[0x18:0x1B] = bytes((own, *function.buses))
    elif function.functions:
        config[0x0E] = 0x80
    return bytes(config)


# Machines ----------------------------------------------------------------------------------------------------------


def machines() -> list[Machine]:
    """Servers, workstations and virtual machines of many kinds, numbered."""
    made = [*_servers(), *_numa_shapes(), *_oddities(), *_virtual(), *(_random(seed) for seed in range(24))]
    return [numbered(machine) for machine in made]


def _server(name: str, sockets: int, roots: list[Root], *, per_socket: int = 1, count: int = 8) -> Machine:
    packages = cpus(count, sockets, threads=2)
    return Machine(name, nodes(packages, per_socket, threads=2), packages, roots, threads=2)


def _servers() -> Iterator[Machine]:
    for sockets in (1, 2, 4):
        for gpus in (1, 2, 4):
            direct = [Root(s, [port(gpu()) for _ in range(gpus)]) for s in range(sockets)]
            yield _server(f"{sockets} sockets, {gpus} GPUs at root ports each", sockets, direct)
    for sockets, per_switch in ((1, 2), (2, 2), (2, 4), (4, 4)):
        rails = [
            Root(s, [port(switch(*(gpu() for _ in range(per_switch)), nic(f"mlx5_{s}"), None))]) for s in range(sockets)
        ]
        yield _server(f"{sockets} sockets, a switch each with {per_switch} GPUs and an adapter", sockets, rails)
    yield _server("8 GPUs on four host bridges, eight rails", 2, [_rail(n // 2, n) for n in range(4)], count=16)
    yield _server("16 GPUs on switches in two levels", 2, [_two_levels(n) for n in range(2)], count=16)
    yield _server("64 GPUs and 64 adapters", 2, [_rail(n // 16, n) for n in range(32)], count=32)
    yield _hgx()


def _rail(numa: int, number: int) -> Root:
    pairs = [(gpu(), nic(f"mlx5_{number * 2 + at}", f"ib{number * 2 + at}")) for at in range(2)]
    return Root(numa, [port(switch(*(device for pair in pairs for device in pair), drive(f"nvme{number}")))])


def _two_levels(socket: int) -> Root:
    lower = [switch(*(gpu() for _ in range(4)), nic(f"mlx5_{socket * 2 + at}")) for at in range(2)]
    return Root(socket, [port(switch(*lower, drive(f"nvme{socket}")))])


def _hgx() -> Machine:
    rails = [_rail(n // 2, n) for n in range(4)]
    fabric = Root(1, [port(Function(NVSWITCH)) for _ in range(4)])
    service = nic("mlx5_8", "eth0")
    service.functions = [nic("mlx5_9", "eth1")]
    storage = Root(0, [port(service), port(drive("nvme9")), Function(CONTROLLER)])
    return _server("eight GPUs with NVSwitches, rails and a two-port adapter", 2, [*rails, fabric, storage], count=16)


def _numa_shapes() -> Iterator[Machine]:
    for sockets in (1, 2):
        for per_socket in (2, 4):
            every = [Root(n, [port(gpu()), port(nic(f"mlx5_{n}"))]) for n in range(sockets * per_socket)]
            name = f"{sockets} sockets of {per_socket} nodes, a GPU in each"
            yield _server(name, sockets, every, per_socket=per_socket, count=16)
    packages = cpus(8, 2, interleaved=True)
    roots = [Root(n, [port(gpu()), port(gpu())]) for n in range(2)]
    yield Machine("CPUs numbered in turns", nodes(packages), packages, roots)
    eight = cpus(4, 8)
    yield Machine("eight sockets", nodes(eight), eight, [Root(n, [port(gpu())]) for n in range(8)])
    yield _two_bridges_in_a_node()
    yield _grace()
    yield _power9()


def _two_bridges_in_a_node() -> Machine:
    return _server(
        "four host bridges in one node", 1, [Root(0, [port(gpu()), port(nic(f"mlx5_{n}"))]) for n in range(4)]
    )


def _grace() -> Machine:
    """Grace Blackwell: a PCI domain for each GPU and adapter, and GPU memory as NUMA nodes without CPUs."""
    packages = cpus(12, 2)
    roots = [Root(n // 2, [port(gpu())], domain=8 + 2 * n) for n in range(4)]
    roots += [Root(n, [port(nic(f"mlx5_{n}"))], domain=2 + n) for n in range(2)]
    memory = {2 + 8 * n: Node(set(), 96 << 30, gpu=n) for n in range(4)}
    return Machine("Grace with four GPUs whose memory is nodes", {**nodes(packages), **memory}, packages, roots)


def _power9() -> Machine:
    packages = {0: set(range(8)), 8: set(range(8, 16))}
    mine = {0: Node(packages[0]), 8: Node(packages[8])}
    memory = {255 - n: Node(set(), 16 << 30, gpu=n) for n in range(4)}
    roots = [
        Root(0, [port(switch(gpu(), gpu()))], domain=4),
        Root(8, [port(switch(gpu(), gpu()))], domain=0x35),
        Root(0, [port(_two_ports("mlx5_0", "mlx5_1"))], domain=3),
        Root(8, [port(_two_ports("mlx5_2", "mlx5_3"))], domain=0x33),
    ]
    return Machine("Power9 with NVLink to the CPU", {**mine, **memory}, packages, roots)


def _two_ports(*names: str) -> Function:
    first, *others = (nic(name) for name in names)
    first.functions = list(others)
    return first


def _oddities() -> Iterator[Machine]:
    offline = _server("CPUs of one socket half offline", 2, [Root(n, [port(gpu())]) for n in range(2)])
    offline.offline = {1, 3, 17}
    yield offline
    lost = _server(
        "a GPU whose node the firmware does not tell", 2, [Root(n, [port(gpu()), port(gpu())]) for n in range(2)]
    )
    lost.roots[1].numa = -1
    yield lost
    virtual = nic("mlx5_0", "ens1f0")
    virtual.functions = [Function(INFINIBAND, name=f"mlx5_{n}", physical=False) for n in range(1, 4)]
    yield _server("virtual functions", 2, [Root(0, [port(virtual), port(gpu())]), Root(1, [port(gpu())])])
    lone = _server(
        "a GPU on the root bus, a bridge to PCI, a drive",
        1,
        [Root(0, [gpu(), port(Function(ETHERNET)), port(drive("nvme0"))])],
    )
    yield lone
    crowded = [Function(CONTROLLER) for _ in range(28)]
    yield _server("a crowded root bus", 2, [Root(0, [*crowded, port(gpu())]), Root(1, [port(gpu())])])
    deep = switch(switch(switch(gpu(), nic("mlx5_0")), gpu()), gpu())
    yield _server("switches in three levels", 2, [Root(0, [port(deep)]), Root(1, [port(nic("mlx5_1"))])])
    yield _server(
        "the only adapter is far from all GPUs",
        2,
        [Root(0, [port(switch(gpu(), gpu()))]), Root(1, [port(nic("mlx5_0"))])],
    )


def _virtual() -> Iterator[Machine]:
    one = cpus(8, 1)
    flat = [Root(-1, [Function(CONTROLLER), *(gpu() for _ in range(4)), nic("rdmap0s6")])]
    yield Machine("a virtual machine with all on the root bus", nodes(one), one, flat)
    q35 = [Root(-1, [port(gpu()) for _ in range(2)])]
    yield Machine("a virtual machine with a port for each GPU", nodes(one), one, q35)
    vmbus = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-000{}-0000-3130-444532333231/"
    two = cpus(8, 2)
    hyper = [Root(n // 2, [gpu()], above=vmbus.format(n), domain=n + 1) for n in range(4)]
    yield Machine("Hyper-V with a host bridge for each GPU", nodes(two), two, hyper)


def _random(seed: int) -> Machine:
    """Any shape: sockets, nodes, host bridges, switches in switches, devices of all kinds."""
    choose = random.Random(seed)  # noqa: S311 (the same shapes every time are wanted)
    sockets, per_socket, threads = choose.choice((1, 2, 2, 4)), choose.choice((1, 1, 2, 4)), choose.choice((1, 2))
    count = 8 * choose.choice((1, 2))
    packages = cpus(count, sockets, threads=threads, interleaved=choose.random() < 0.3)
    made = nodes(packages, per_socket, threads)
    counter = iter(range(1000))

    def device() -> Function:
        kind = choose.randrange(6)
        if kind < 3:
            return gpu()
        return (nic(f"mlx5_{next(counter)}"), drive(f"nvme{next(counter)}"), Function(CONTROLLER))[kind - 3]

    def branch(depth: int) -> Function:
        if depth and choose.random() < 0.5:
            return switch(*(branch(depth - 1) for _ in range(choose.randrange(1, 5))))
        return device()

    roots = [
        Root(choose.choice(list(made)), [port(branch(choose.randrange(3))) for _ in range(choose.randrange(1, 4))])
        for _ in range(choose.randrange(1, 7))
    ]
    return Machine(f"random {seed}", made, packages, roots, threads=threads)
