"""What a drawing of a node's topology shows, arranged: sockets, their NUMA nodes, host bridges, and what hangs below them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gpudoctor.facts.numa import NumaNode, Package
from gpudoctor.facts.pci_link import MADE_UP_WIDTH
from gpudoctor.facts.topology import DeviceLink
from gpudoctor.topo import Function, Topo

DRAWN = ("gpu", "nvswitch", "nic", "nvme")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCI Express generations by GT/s on a lane (PCI Express Base Specification 6.0, Data Link Feature)."""
NOBODYS = -1
"""Stands for the NUMA node of what has none."""


class Leaf(Struct):
    """A device; `ports` are the bridges above it that lead to nothing else drawn, `virtual` counts its virtual functions."""

    function: Function
    ports: tuple[Function, ...] = ()
    virtual: int = 0
    narrow: str = ""


class Hop(Struct):
    """A switch, by its upper port, or a port with a device of several functions."""

    function: Function
    ports: tuple[Function, ...] = ()
    switch: bool = True
    hops: "list[Hop]" = []
    leaves: list[Leaf] = []
    narrow: str = ""


class Bridge(Struct):
    """A host bridge, `pci0000:15`; empty where the node does not tell where its devices hang."""

    name: str
    hops: list[Hop] = []
    leaves: list[Leaf] = []


class Locality(Struct):
    """A NUMA node with its host bridges. `node` is None where only its number is known; number -1 is for what has none."""

    number: int
    node: NumaNode | None
    bridges: list[Bridge] = []
    memories: list[NumaNode] = []


class Socket(Struct):
    """A package, or several that share a NUMA node; none where the packages are not known."""

    packages: tuple[Package, ...]
    localities: list[Locality] = []


def arranged(topo: Topo) -> list[Socket]:
    """The node's sockets in order, last what no socket has."""
    localities = _localities(topo)
    sockets: list[Socket] = []
    for package in sorted(topo.packages, key=lambda package: package.number):
        mate = next((one for one in sockets if _numa(one) & set(package.numa)), None)
        if mate is None:
            sockets.append(Socket((package,)))
        else:
            mate.packages = (*mate.packages, package)
    rest = Socket(())
    for locality in localities.values():
        home = next((one for one in sockets if locality.number in _numa(one)), rest)
        home.localities.append(locality)
    return [socket for socket in (*sockets, rest) if socket.packages or socket.localities]


def _numa(socket: Socket) -> set[int]:
    return {number for package in socket.packages for number in package.numa}


def _localities(topo: Topo) -> Mapping[int, Locality]:
    """By number. Memory of a GPU goes with the GPU, other memory without CPUs stands alone; spare nodes with neither are left out."""
    nodes = {node.number: node for node in topo.numa_nodes}
    owned = {node.gpu: node for node in topo.numa_nodes if node.gpu}
    found = {number: Locality(number, node) for number, node in sorted(nodes.items()) if not node.gpu}
    for root, functions in _by_root(topo).items():
        number = next((one.numa for one in functions if one.numa is not None and one.numa >= 0), NOBODYS)
        place = found.setdefault(number, Locality(number, nodes.get(number)))
        place.bridges.append(_bridge(root, functions, topo))
        place.memories += [owned[one.address] for one in functions if one.address in owned]
    drawn = {number: place for number, place in found.items() if place.bridges or not _is_spare(place.node)}
    return dict(sorted(drawn.items(), key=lambda item: (item[0] < 0, item[0])))


def _is_spare(node: NumaNode | None) -> bool:
    """Whether it has neither CPUs nor memory: on Grace each GPU has eight nodes, seven of them for MIG instances that it may get."""
    return node is not None and node.told and not node.cpus and node.memory_bytes == 0


def _by_root(topo: Topo) -> Mapping[str, list[Function]]:
    """The drawn functions by host bridge, in the order of the bridges. Virtual functions count with their physical one."""
    addresses = {one.address for one in topo.functions}
    roots: dict[str, list[Function]] = {}
    for one in topo.functions:
        if one.kind in DRAWN and one.virtual_function_of not in addresses:
            roots.setdefault(one.root, []).append(one)
    return {root: sorted(roots[root], key=lambda one: one.path) for root in sorted(roots)}


# Below a host bridge -------------------------------------------------------------------------------------------------


class _Way(Struct):
    """A function on the way to what is drawn, and what follows on it; `hops` counts the functions from the root port down to it."""

    address: str
    hops: int = 0
    below: "dict[str, _Way]" = {}
    end: Function | None = None


def _bridge(root: str, functions: Sequence[Function], topo: Topo) -> Bridge:
    top = _Way(root)
    for one in functions:
        at = top
        for address in one.path or (one.address,):
            at = at.below.setdefault(address, _Way(address, at.hops + 1))
        at.end = one
    bridge = Bridge(root)
    _take(top, bridge, _Known(topo))
    return bridge


class _Known:
    """Functions by address, and how many virtual ones each has."""

    def __init__(self, topo: Topo) -> None:
        self.functions = {one.address: one for one in topo.functions}
        self.virtual: dict[str, int] = {}
        for one in topo.functions:
            if one.virtual_function_of:
                self.virtual[one.virtual_function_of] = self.virtual.get(one.virtual_function_of, 0) + 1

    def of(self, address: str) -> Function:
        return self.functions.get(address) or Function(address, "bridge")


def _take(way: _Way, into: Bridge | Hop, known: _Known) -> None:
    """Ports of which only one way leads on are kept with what it leads to."""
    for start in way.below.values():
        ports: list[Function] = []
        at = start
        while at.end is None and len(at.below) == 1 and not _is_switch(at):
            ports.append(known.of(at.address))
            at = next(iter(at.below.values()))
        narrow = next(filter(None, map(_narrowed_between, _pairs(into, ports, known.of(at.address)))), "")
        if at.end is not None:
            into.leaves.append(Leaf(at.end, tuple(ports), known.virtual.get(at.address, 0), narrow))
        else:
            hop = Hop(known.of(at.address), tuple(ports), switch=_parts(at), narrow=narrow)
            _take(at, hop, known)
            into.hops.append(hop)


def _is_switch(way: _Way) -> bool:
    """Whether it is a switch's upper port, though one device alone is drawn below: ways alternate, a port, then what its link leads to."""
    return way.hops % 2 == 0 and _parts(way)


def _parts(way: _Way) -> bool:
    """Below a switch's upper port are its lower ports; below any other port are the functions of one device."""
    return all(below.end is None for below in way.below.values())


def _pairs(above: Bridge | Hop, ports: Sequence[Function], end: Function) -> Iterator[tuple[Function | None, Function]]:
    """Each function with the one above it."""
    upper = above.function if isinstance(above, Hop) else None
    for one in (*ports, end):
        yield upper, one
        upper = one


def _narrowed_between(pair: tuple[Function | None, Function]) -> str:
    above, below = pair
    return narrowed(below, above)


def narrowed(function: Function, above: Function | None) -> str:
    """`x8 of x16` where a link has fewer lanes than both of its ends can; a slower rate may be saving power.

    Ways alternate: a port, then what its link leads to. What is in the place of a port has its link below itself. Ports that a
    virtual machine's host makes up say nothing of the slot.
    """
    link = function.link
    if above is not None and above.link is not None and above.link.max_width == MADE_UP_WIDTH:
        return ""
    ends = [one.link.max_width for one in (function, above) if one is not None and one.link is not None]
    if link is None or not link.width or not all(ends) or len(ends) < 2 or len(function.path) % 2:
        return ""
    can = min(end for end in ends if end)
    return f"x{link.width} of x{can}" if link.width < can else ""


def entries(sockets: Sequence[Socket]) -> Iterator[Hop | Leaf]:
    """All that hangs below the host bridges."""

    def below(above: Bridge | Hop) -> Iterator[Hop | Leaf]:
        yield from above.leaves
        for hop in above.hops:
            yield hop
            yield from below(hop)

    for socket in sockets:
        for locality in socket.localities:
            for bridge in locality.bridges:
                yield from below(bridge)


# Words ---------------------------------------------------------------------------------------------------------------


def link_words(link: DeviceLink | None) -> str:
    """`gen5 x16`, or with what it could run at: `gen1 x16, can gen5`."""
    if link is None or not link.width or not link.speed:
        return ""
    now, can = _generation(link.speed), _generation(link.max_speed) if link.max_speed else ""
    slower = bool(link.max_speed and link.speed < link.max_speed)
    return f"{now} x{link.width}{f', can {can}' if slower else ''}"


def _generation(speed: float) -> str:
    number = _GENERATIONS.get(speed)
    return f"gen{number}" if number else f"{speed:g} GT/s"


def socket_words(socket: Socket) -> str:
    """`socket 0`, `sockets 0 and 1`, or that none is known."""
    numbers = [str(package.number) for package in socket.packages if package.number >= 0]
    if len(socket.packages) > 1:
        return f"sockets {' and '.join(numbers)}" if numbers else "sockets"
    if socket.packages:
        return f"socket {numbers[0]}" if numbers else "socket"
    return "socket not told"


def locality_words(locality: Locality) -> str:
    """`NUMA node 0`."""
    return f"NUMA node {locality.number}" if locality.number >= 0 else "no NUMA node"


def cpus_words(locality: Locality) -> str:
    """CPUs and memory of a NUMA node, as far as they are known."""
    node = locality.node
    if node is None:
        return ""
    cpus = f"CPUs {node.cpus}" if node.cpus else "memory without CPUs"
    return f"{cpus}, {size_words(node.memory_bytes)}" if node.memory_bytes else cpus


def size_words(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / 2**30:.0f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def device_words(function: Function) -> str:
    """What a device is called: a GPU's model, an adapter's or a drive's name."""
    if function.kind == "gpu":
        return function.model.removeprefix("NVIDIA ") or f"10de:{function.device_id}"
    if function.kind == "nvswitch":
        return ""
    driver = f" ({function.driver})" if function.driver and function.kind == "nic" else ""
    return f"{function.name}{driver}" if function.name else f"{function.vendor_id}:{function.device_id}{driver}"


def kind_words(function: Function) -> str:
    """What stands before a device: its label, or its kind."""
    return function.label or {"gpu": "GPU", "nvswitch": "NVSwitch", "nic": "net", "nvme": "NVMe"}.get(function.kind, "")
