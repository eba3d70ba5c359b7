"""The NUMA nodes and processor packages of the machine, from sysfs."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
PRESENT = f"{CPUS}/present"
_NODE = pattern(r"node(\d{1,4})")
_PACKAGE = pattern(r"-?\d{1,10}")
_MEMORY = pattern(r"Node\s+\d+\s+MemTotal:\s+(\d{1,18})\s+kB")
_MOST_CPUS = 8192
"""NR_CPUS of the largest kernels (arch/x86/Kconfig, MAXSMP)."""


class NumaNode(Struct, frozen=True):
    """One NUMA node. `cpus` is the list as sysfs writes it, empty for memory alone and where it was not `told`.

    `memory_bytes` is None where it was not read, 0 wherever it is known that there is none.

    `distances` are those to every node in the order of their numbers (Documentation/ABI/stable/sysfs-devices-node), empty where not
    told. `gpu` is the address of the GPU whose memory the node is, as on Grace and Power9, else empty.
    """

    number: int
    cpus: str
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()
    gpu: str = ""
    told: bool = True

    @property
    def binding(self) -> str:
        """What binds a program to its CPUs and memory; numactl(8) refuses nodes that have none: then it is left out."""
        memory = "" if self.memory_bytes == 0 else f" --membind={self.number}"
        return f"numactl --cpunodebind={self.number}{memory}" if self.cpus else ""


class Package(Struct, frozen=True):
    """One processor package (a socket), with the NUMA nodes whose CPUs it has. `number` is what the firmware calls it, -1 for no name."""

    number: int
    cpus: str
    numa: tuple[int, ...] = ()


class NumaLayout(Fact, frozen=True):
    """Nodes of the CPUs that are online; `offline` are the CPUs that are present and not.

    A kernel without NUMA has no node. `unread` says what could not be read of it.
    """

    nodes: tuple[NumaNode, ...]
    online: str
    offline: str
    unread: tuple[Unread, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "NumaLayout | Unread":
        """Two files for each node, and a few of all."""
        raw = desk.raw
        unread: list[Unread] = []
        listing = raw.listing(NODES)
        if isinstance(listing, Unread):
            return listing
        online, offline = (_text(raw, f"{CPUS}/{name}", unread) for name in ("online", "offline"))
        offline = _plugged_in(raw, offline, unread)
        nodes = tuple(_nodes(raw, listing, cpu_set(online), unread)) if isinstance(listing, Listing) else ()
        nodes = _without_memory(raw, nodes)
        return cls(
            nodes=nodes,
            online=online,
            offline=offline,
            unread=tuple(unread),
            read_from=_evidence(listing, nodes, online, offline),
        )


def cpu_set(text: str) -> frozenset[int]:
    """CPUs as `0-3,8` (cpuset(7), List format); empty for anything else."""
    parts: set[tuple[int, int]] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        low, high = decimal(first), decimal(last) if dash else decimal(first)
        if low is not None and high is not None and high < _MOST_CPUS:
            parts.add((low, high))
    cpus: set[int] = set()
    end = 0
    for low, high in sorted(parts):
        cpus.update(range(max(low, end), high + 1))
        end = max(end, high + 1)
    return frozenset(cpus)


def cpu_text(cpus: frozenset[int]) -> str:
    """CPUs as `0-3,8`."""
    parts: list[str] = []
    first = last = -2
    for cpu in sorted(cpus):
        if cpu != last + 1:
            first = cpu
            parts.append("")
        last = cpu
        parts[-1] = str(cpu) if cpu == first else f"{first}-{cpu}"
    return ",".join(parts)


def _nodes(raw: Raw, listing: Listing, online: frozenset[int], unread: list[Unread]) -> Iterator[NumaNode]:
    if not listing.complete:
        unread.append(Unread(Why.NOT_RECORDED, NODES, "the recording lists at least these nodes, perhaps not all"))
    names = [name for name in listing.names if _NODE.fullmatch(name)]
    for name in sorted(names, key=lambda name: int(name[4:])):
        distances = _text(raw, f"{NODES}/{name}/distance", unread)
        cpus = raw.read(f"{NODES}/{name}/cpulist")
        if isinstance(cpus, Unread):
            unread.append(cpus)
        yield NumaNode(
            number=int(name[4:]),
            cpus=_only(cpus.text.strip(), online) if isinstance(cpus, TextFile) else "",
            distances=tuple(far for word in distances.split() if (far := decimal(word)) is not None),
            told=isinstance(cpus, TextFile),
        )


def _without_memory(raw: Raw, nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    """Which have none: those that `has_memory` leaves out (Documentation/ABI/stable/sysfs-devices-node)."""
    file = raw.read(f"{NODES}/has_memory") if nodes else None
    filled = cpu_set(file.text) if isinstance(file, TextFile) else None
    return tuple(replace(node, memory_bytes=0) if filled and node.number not in filled else node for node in nodes)


def _only(text: str, online: frozenset[int]) -> str:
    """A node's list has only what is online (drivers/base/node.c, cpulist_read); where it has more, the rest is left out."""
    return text if not online or cpu_set(text) <= online else cpu_text(cpu_set(text) & online)


def with_memory(raw: Raw, nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    """The nodes with the size of their memory in bytes."""
    told = (_memory_of(raw, node.number) if node.memory_bytes is None else node.memory_bytes for node in nodes)
    return tuple(replace(node, memory_bytes=size) for node, size in zip(nodes, told, strict=True))


def _memory_of(raw: Raw, node: int) -> int | None:
    file = raw.read(f"{NODES}/node{node}/meminfo")
    total = _MEMORY.search(file.text) if isinstance(file, TextFile) else None
    return None if total is None else int(total[1]) << 10


def _plugged_in(raw: Raw, offline: str, unread: list[Unread]) -> str:
    """Of the CPUs that are offline those that are there: the kernel lists numbers that it keeps for others too.

    Documentation/admin-guide/cputopology.rst; print_cpus_offline in drivers/base/cpu.c goes by cpu_possible_mask.
    """
    if not cpu_set(offline):
        return ""
    present = _text(raw, PRESENT, unread)
    return cpu_text(cpu_set(offline) & cpu_set(present))


def packages_of(raw: Raw, nodes: tuple[NumaNode, ...], online: str, unread: list[Unread]) -> Iterator[Package]:
    """A package is known by one of its CPUs, which names all of them: two small files a package, whatever the number of its CPUs."""
    everyone = cpu_set(online) or frozenset(cpu for node in nodes for cpu in cpu_set(node.cpus))
    left = set(everyone)
    by_node = {node.number: cpu_set(node.cpus) for node in nodes}
    while left:
        cpu = min(left)
        left.discard(cpu)
        siblings = _siblings(raw, cpu)
        if isinstance(siblings, Unread):
            unread.append(siblings)
            return
        file = raw.read(f"{CPUS}/cpu{cpu}/topology/physical_package_id")
        named = _PACKAGE.fullmatch(file.text.strip()) if isinstance(file, TextFile) else None
        siblings = (siblings & everyone) | {cpu}
        left -= siblings
        numa = tuple(number for number, cpus in by_node.items() if cpus & siblings)
        yield Package(number=int(named[0]) if named else -1, cpus=cpu_text(siblings), numa=numa)


def _siblings(raw: Raw, cpu: int) -> frozenset[int] | Unread:
    """The CPUs of a CPU's package. Newer kernels keep the older name `core_siblings_list` (Documentation/admin-guide/cputopology.rst)."""
    file = raw.read(f"{CPUS}/cpu{cpu}/topology/core_siblings_list")
    if isinstance(file, Absent):
        file = raw.read(f"{CPUS}/cpu{cpu}/topology/package_cpus_list")
    if isinstance(file, Absent):
        return Unread(Why.NOT_ANSWERED, file.path, "the kernel does not tell the packages of its CPUs")
    return cpu_set(file.text) if isinstance(file, TextFile) else file


def _text(raw: Raw, path: str, unread: list[Unread]) -> str:
    file = raw.read(path)
    if isinstance(file, TextFile):
        return file.text.strip()
    if isinstance(file, Unread):
        unread.append(file)
    return ""


def _evidence(listing: Listing | Absent, nodes: tuple[NumaNode, ...], online: str, offline: str) -> dict[str, Evidence]:
    said = "; ".join(f"node{node.number}: {node.cpus or 'no CPU'}" for node in nodes) or "no NUMA node"
    return {
        "nodes": Evidence(listing.where, said),
        "online": Evidence(f"{CPUS}/online", online or "is not readable"),
        "offline": Evidence(f"{CPUS}/offline", offline or "none"),
    }
