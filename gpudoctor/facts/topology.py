"""The node's graph: where its GPUs, switches and network adapters hang on PCIe, and which CPUs are near to them.

From sysfs alone, so that it needs no driver. How far two devices are apart is said in the words of `nvidia-smi topo -m`, whose legend
defines them: at most a single PCIe bridge (PIX), multiple ones (PXB), a host bridge (PHB), the interconnect between host bridges within
a NUMA node (NODE), and that between NUMA nodes (SYS).
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.numa import NODES, NumaNode, Package
from gpudoctor.facts.topology_places import shared_hops
from gpudoctor.verdicts import Subject, SubjectKind, Unread

WAYS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")
"""The ways between two devices on PCIe, nearest first."""

REMOTE_DISTANCE = 20
"""So far and farther are NUMA nodes of other processors (REMOTE_DISTANCE in include/linux/topology.h). Those that one processor
shows as several (NPS, SNC) are 11 or 12 apart; where they are not, as under Cluster on Die, they count as others."""

_SUBJECTS = {"gpu": SubjectKind.GPU, "nvswitch": SubjectKind.NVSWITCH}


class DeviceLink(Struct, frozen=True):
    """The PCIe link of a function to the port above it: what it runs at and what the function can, speeds in GT/s; None if not told."""

    speed: float | None
    width: int | None
    max_speed: float | None
    max_width: int | None


class Device(Citable, frozen=True):
    """One PCI function. `kind` is gpu, nvswitch, nic, nvme, bridge or other.

    `path` are the bridges from the root port down to it, its own address last; empty, as `root` (`pci0000:00`), where the node does not
    tell its place. `numa` is -1 where the kernel knows no node, None where it was not told or, as of bridges, not asked. `link` is None
    where it was not read. `rdma` marks a network adapter that does RDMA. It cites `path`, and, where they were read, `numa` and the
    link's `speed`, `width`, `max_speed` and `max_width`; a GPU also `driver`.
    """

    address: str
    kind: str
    name: str = ""
    path: tuple[str, ...] = ()
    root: str = ""
    numa: int | None = None
    link: DeviceLink | None = None
    driver: str = ""
    virtual_function_of: str = ""
    class_code: str = ""
    vendor_id: str = ""
    device_id: str = ""
    rdma: bool = False

    @property
    def subject(self) -> Subject:
        """The device as a subject: a GPU or an NVSwitch by its address, anything else as an adapter by the kernel's name for it."""
        if self.kind in _SUBJECTS:
            return Subject(_SUBJECTS[self.kind], self.address)
        return Subject(SubjectKind.NIC, self.name or self.address)


class Topology(Fact, frozen=True, dict=True):
    """GPUs, NVSwitches and RDMA adapters, for the checks. `FullTopology` has every function.

    On a node with one GPU and no RDMA adapter only the GPU's place is read. `synthetic` says why the tree is a hypervisor's, whose ports
    and nodes tell nothing of the real ones. `unread` is what could not be seen, so that something may be missing. It cites `devices`,
    and `nodes`, `online` and `offline` where the NUMA nodes were read.
    """

    devices: tuple[Device, ...]
    numa_nodes: tuple[NumaNode, ...] = ()
    packages: tuple[Package, ...] = ()
    cpus_online: str = ""
    cpus_offline: str = ""
    synthetic: str = ""
    unread: tuple[Unread, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "Topology | Unread":
        """Where links lead, and a few small files of the devices that matter."""
        from gpudoctor.facts.topology_reading import small_topology

        return small_topology(desk)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs, by address."""
        return tuple(device for device in self.devices if device.kind == "gpu")

    @property
    def nics(self) -> tuple[Device, ...]:
        """The network adapters, those that do RDMA first, each by name; in the small form there are no others."""
        return tuple(device for device in self.devices if device.kind == "nic")

    @cached_property
    def by_address(self) -> Mapping[str, Device]:
        """The devices by their address."""
        return {device.address: device for device in self.devices}

    def node(self, number: int | None) -> NumaNode | None:
        """A NUMA node by its number."""
        return next((node for node in self.numa_nodes if node.number == number), None)

    def side(self, number: int) -> tuple[NumaNode, ...]:
        """The NUMA nodes of the processor that a node belongs to, by its distances; the node alone where they are not told."""
        node = self.node(number)
        if node is None or len(node.distances) != len(self.numa_nodes):
            return () if node is None else (node,)
        ranked = zip(node.distances, self.numa_nodes, strict=True)
        return tuple(other for far, other in ranked if other is node or far < REMOTE_DISTANCE)

    def between(self, one: str, other: str) -> str:
        """How two devices (by address) are joined by PCIe, a word of `WAYS`; empty where that is not told."""
        devices = self.by_address
        if one not in devices or other not in devices:
            return ""
        return self.way(devices[one], devices[other])

    def way(self, one: Device, other: Device) -> str:
        """As `between`. A switch counts as one bridge: below its upper port each way has one more function, the lower port."""
        if one.address == other.address:
            return "X"
        if not one.path or not other.path:
            return ""
        shared = shared_hops(one.path, other.path)
        if shared:
            own = max(len(one.path), len(other.path)) - shared - 1
            return "PIX" if own <= 1 else "PXB"
        if not one.root or not other.root:
            return ""
        return "PHB" if one.root == other.root else self._across(one, other)

    def near(self, address: str) -> str:
        """The CPUs near a device, `0-55`: those of its NUMA node, or of the nearest one that has CPUs; empty where that is not told."""
        device = self.by_address.get(address)
        return "" if device is None else self.cpus_near(device)

    def cpus_near(self, device: Device) -> str:
        """As `near`. To a device without a node all CPUs are as near (drivers/pci/pci-sysfs.c, pci_dev_show_local_cpu)."""
        node = self.node(device.numa)
        if node is not None:
            return node.cpus or (self._nearest_cpus(node) if node.told else "")
        # A kernel without NUMA has neither nodes nor the attribute.
        without = device.numa == -1 or (device.numa is None and not self.numa_nodes)
        return self.cpus_online if without else ""

    def _across(self, one: Device, other: Device) -> str:
        """Between host bridges. On a kernel that tells several nodes a device without one may be anywhere."""
        if one.numa is not None and one.numa >= 0 and other.numa is not None and other.numa >= 0:
            return "NODE" if one.numa == other.numa else "SYS"
        return "NODE" if self.has_one_node else ""

    @property
    def has_one_node(self) -> bool:
        """Whether it is known that all CPUs are of one NUMA node."""
        seen = self.cpus_online and not any(unread.where == NODES for unread in self.unread)
        return bool(seen) and sum(1 for node in self.numa_nodes if node.cpus or not node.told) <= 1

    def _nearest_cpus(self, node: NumaNode) -> str:
        """A node's distances are in the order of the nodes that are online (Documentation/ABI/stable/sysfs-devices-node)."""
        if len(node.distances) != len(self.numa_nodes):
            return ""
        ranked = sorted(zip(node.distances, self.numa_nodes, strict=True), key=lambda pair: (pair[0], pair[1].number))
        return next((other.cpus for _, other in ranked if other.cpus), "")


class FullTopology(Topology, frozen=True, dict=True):
    """Every hop and function, and the memory of each NUMA node: for `topo`."""

    @classmethod
    def gather(cls, desk: Desk) -> "FullTopology | Unread":
        """A few small files for each function, more for GPUs, switches, adapters, NVMe and all ports above them."""
        from gpudoctor.facts.topology_reading import full_topology

        return full_topology(desk)
