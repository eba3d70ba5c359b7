"""Reads the node's graph from sysfs: the small form for the checks, the full one for the drawing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nics import Named, NetworkInterfaces, RdmaDevices, natural
from gpudoctor.facts.numa import NumaLayout, NumaNode, packages_of, with_memory
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import DEVICES, NvidiaFunctions, PciGpu
from gpudoctor.facts.pci_link import GpuLinks, LinkEnd, link_end
from gpudoctor.facts.raw import Entry, Listing, Raw, TextFile
from gpudoctor.facts.topology import Device, DeviceLink, FullTopology, Topology
from gpudoctor.facts.topology_places import Place, place_on
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

TopologyT = TypeVar("TopologyT", bound=Topology)

NVME = "/sys/class/nvme"
_SEVERAL = 2
_SWITCHED = 4
"""Functions on the way to a device behind a switch: root port, the switch's upper and lower port, and its own."""
_NUMA = pattern(r"-?\d{1,4}")
# "Node:      8", of memory that the driver made a NUMA node: nv_procfs_read_numa_status in kernel-open/nvidia/nv-procfs.c of
# open-gpu-kernel-modules.
_MEMORY_NODE = pattern(r"Node:\s+(\d{1,4})\b")
_HEXADECIMAL = pattern(r"0x([0-9a-f]{4,6})")
_ASLEEP = ("suspended", "suspending")
# PCI class codes (PCI Code and ID Assignment Specification): network controller, NVM Express, PCI-to-PCI bridge.
_KINDS = (("02", "nic"), ("0108", "nvme"), ("0604", "bridge"))


class _Kernel(Struct):
    """What the kernel made of the functions, by address."""

    rdma: Mapping[str, Named]
    names: Mapping[str, str]
    unread: tuple[Unread, ...]


def small_topology(desk: Desk) -> Topology | Unread:
    """GPUs, NVSwitches and RDMA adapters."""
    found = desk.get(NvidiaFunctions)
    if isinstance(found, Unread):
        return found
    kernel = _rdma(desk)
    unread = (*(() if found.unlisted is None else (found.unlisted,)), *kernel.unread)
    alone = len(found.gpus) < _SEVERAL and not kernel.rdma
    gpus = [_gpu(desk, gpu, few=alone) for gpu in found.gpus]
    if alone:
        return Topology(devices=tuple(gpus), unread=unread, read_from={"devices": found.read_from["listing"]})
    switches = [_switch(desk.raw, switch.address) for switch in found.switches]
    adapters = _by_name(_adapter(desk.raw, named) for named in kernel.rdma.values())
    topology = Topology(
        devices=(*gpus, *switches, *adapters),
        synthetic=_synthetic(desk, gpus or adapters),
        unread=unread,
        read_from={"devices": found.read_from["listing"]},
    )
    return _with_nodes(desk, topology)


def full_topology(desk: Desk) -> FullTopology | Unread:
    """Every function of the bus."""
    found = desk.get(NvidiaFunctions)
    if isinstance(found, Unread):
        return found
    listing = desk.raw.listing(DEVICES)
    kernel = _everything(desk)
    gpus = {gpu.address: _gpu(desk, gpu, few=False) for gpu in found.gpus}
    switches = {switch.address for switch in found.switches}
    outlines = {
        address: gpus.get(address) or _outline(desk.raw, address, kernel, switches)
        for address in (listing.names if isinstance(listing, Listing) else ())
    }
    wanted = {hop for device in outlines.values() if _matters(device) for hop in device.path}
    devices = [
        _filled(desk.raw, device, gpus) if _matters(device) or device.address in wanted else device
        for device in outlines.values()
    ]
    full = _with_nodes(
        desk,
        FullTopology(
            devices=_in_order(devices),
            synthetic=_synthetic(desk, list(gpus.values()) or devices),
            unread=(*(() if found.unlisted is None else (found.unlisted,)), *kernel.unread),
            read_from={"devices": found.read_from["listing"]},
        ),
    )
    nodes = with_memory(desk.raw, full.numa_nodes)
    hidden: list[Unread] = []
    packages = tuple(packages_of(desk.raw, nodes, full.cpus_online, hidden))
    return replace(full, numa_nodes=nodes, packages=packages, unread=(*full.unread, *hidden))


def _matters(device: Device) -> bool:
    return device.kind in ("gpu", "nvswitch", "nic", "nvme")


def _in_order(devices: Iterable[Device]) -> tuple[Device, ...]:
    """GPUs, NVSwitches, adapters by name, and all others, by address."""
    ranks = {"gpu": 0, "nvswitch": 1, "nic": 2, "nvme": 3, "bridge": 4}
    found = sorted(devices, key=lambda device: (ranks.get(device.kind, 5), device.address))
    nics = iter(_by_name([device for device in found if device.kind == "nic"]))
    return tuple(next(nics) if device.kind == "nic" else device for device in found)


def _by_name(adapters: Iterable[Device]) -> list[Device]:
    return sorted(adapters, key=lambda device: (not device.rdma, natural(device.name), device.address))


# What the kernel made of them ----------------------------------------------------------------------------------------


def _rdma(desk: Desk) -> _Kernel:
    found = desk.get(RdmaDevices)
    if isinstance(found, Unread):
        return _Kernel({}, {}, (found,))
    first = _first(found.devices)
    return _Kernel(first, _names(first), found.unread)


def _everything(desk: Desk) -> _Kernel:
    rdma, interfaces = _rdma(desk), desk.get(NetworkInterfaces)
    listing = desk.raw.listing(NVME)
    drives: dict[str, str] = {}
    for name in listing.names if isinstance(listing, Listing) else ():
        entry = desk.raw.entry(f"{NVME}/{name}")
        if isinstance(entry, Entry) and entry.to is not None:
            drives.setdefault(place_on(entry.to).address, name)
    if isinstance(interfaces, Unread):
        return _Kernel(rdma.rdma, {**drives, **rdma.names}, (*rdma.unread, interfaces))
    names = {**drives, **_names(_first(interfaces.interfaces)), **rdma.names}
    return _Kernel(rdma.rdma, names, (*rdma.unread, *interfaces.unread))


def _first(devices: Iterable[Named]) -> dict[str, Named]:
    """The first one of each function; without those made of software."""
    first: dict[str, Named] = {}
    for device in devices:
        if device.place.address:
            first.setdefault(device.place.address, device)
    return first


def _names(devices: Mapping[str, Named]) -> dict[str, str]:
    return {address: device.name for address, device in devices.items()}


# One function --------------------------------------------------------------------------------------------------------


def _gpu(desk: Desk, gpu: PciGpu, *, few: bool) -> Device:
    """A GPU; with `few` its place alone. Its link was read for the checks of links, unless it sleeps."""
    place, seen = _place(desk.raw, gpu.address)
    device = Device(
        address=gpu.address,
        kind="gpu",
        path=place.path,
        root=place.root,
        driver=gpu.driver if isinstance(gpu.driver, str) else "",
        class_code=gpu.class_code.removeprefix("0x"),
        vendor_id="10de",
        device_id=gpu.device_id,
        read_from={"path": seen, "driver": gpu.read_from["driver"]},
    )
    if few:
        return device
    links = desk.get(GpuLinks)
    of_gpu = links if isinstance(links, Unread) else links.by_address.get(gpu.address, ())
    device = _with_numa(desk.raw, device)
    return device if isinstance(of_gpu, Unread) or not of_gpu else _with_link(device, of_gpu[0].below)


def _switch(raw: Raw, address: str) -> Device:
    place, seen = _place(raw, address)
    device = Device(address=address, kind="nvswitch", path=place.path, root=place.root, read_from={"path": seen})
    return _with_numa(raw, device)


def _adapter(raw: Raw, named: Named) -> Device:
    address = named.place.address
    device = Device(
        address=address,
        kind="nic",
        name=named.name,
        path=named.place.path,
        root=named.place.root,
        virtual_function_of=_physical_function(raw, address),
        rdma=True,
        read_from={"path": named.evidence},
    )
    device = _with_numa(raw, device)
    # The link of a virtual function is the physical one's.
    if device.virtual_function_of or _sleeps(raw, address):
        return device
    return _with_link(device, link_end(raw, address))


def _outline(raw: Raw, address: str, kernel: _Kernel, switches: set[str]) -> Device:
    """What a function is and where it hangs: two reads."""
    place, seen = _place(raw, address)
    identity = _identity(raw, address)
    kind = next((kind for begin, kind in _KINDS if identity.class_code.startswith(begin)), "other")
    # An adapter of another class: accelerators that do RDMA.
    kind = "nvswitch" if address in switches else "nic" if address in kernel.rdma else kind
    return Device(
        address=address,
        kind=kind,
        name=kernel.names.get(address, ""),
        path=place.path,
        root=place.root,
        driver=identity.driver,
        class_code=identity.class_code,
        vendor_id=identity.vendor_id,
        device_id=identity.device_id,
        rdma=address in kernel.rdma,
        read_from={"path": seen},
    )


class _Identity(Struct, frozen=True):
    class_code: str = ""
    vendor_id: str = ""
    device_id: str = ""
    driver: str = ""


def _identity(raw: Raw, address: str) -> _Identity:
    """One file tells it all (pci_uevent in drivers/pci/pci-driver.c); where that was not recorded, the class has a file of its own."""
    base = f"{DEVICES}/{address}"
    file = raw.read(f"{base}/uevent")
    if isinstance(file, TextFile) and "PCI_CLASS=" in file.text:
        told = dict(line.split("=", 1) for line in file.text.splitlines() if "=" in line)
        vendor, _, device = told.get("PCI_ID", "").lower().partition(":")
        return _Identity(told["PCI_CLASS"].lower().zfill(6), vendor, device, told.get("DRIVER", ""))
    class_code, vendor, device = (_hexadecimal(raw, f"{base}/{name}") for name in ("class", "vendor", "device"))
    driver = raw.entry(f"{base}/driver")
    bound = driver.to.rstrip("/").rsplit("/", 1)[-1] if isinstance(driver, Entry) and driver.to else ""
    return _Identity(class_code, vendor, device, bound)


def _filled(raw: Raw, device: Device, gpus: Mapping[str, Device]) -> Device:
    """What else is to be told of a device that matters, or of a port above one."""
    address = device.address
    if address in gpus:
        return device
    if device.kind == "nic":
        device = replace(device, virtual_function_of=_physical_function(raw, address))
    if _matters(device):
        device = _with_numa(raw, device)
    return device if _sleeps(raw, address) else _with_link(device, link_end(raw, address))


def _place(raw: Raw, address: str) -> tuple[Place, Evidence]:
    path = f"{DEVICES}/{address}"
    entry = raw.entry(path)
    if not isinstance(entry, Entry):
        return Place(), Evidence(entry.where, entry.detail)
    if entry.to is None:
        return Place(), Evidence(entry.where, f"is a {entry.type.words}, not a link")
    return place_on(entry.to), Evidence(entry.where, f"-> {entry.to}")


def _physical_function(raw: Raw, address: str) -> str:
    """The function of which this is a virtual one (Documentation/PCI/pci-iov-howto)."""
    entry = raw.entry(f"{DEVICES}/{address}/physfn")
    return entry.to.rstrip("/").rsplit("/", 1)[-1] if isinstance(entry, Entry) and entry.to else ""


def _with_numa(raw: Raw, device: Device) -> Device:
    file = raw.read(f"{DEVICES}/{device.address}/numa_node")
    text = file.text.strip() if isinstance(file, TextFile) else ""
    seen = Evidence(file.where, text if isinstance(file, TextFile) else file.detail)
    numa = int(text) if _NUMA.fullmatch(text) else None
    return replace(device, numa=numa, read_from={**device.read_from, "numa": seen})


def _with_link(device: Device, end: LinkEnd) -> Device:
    link = DeviceLink(end.current_speed, end.current_width, end.max_speed, end.max_width)
    ends = {"speed": "current_speed", "width": "current_width", "max_speed": "max_speed", "max_width": "max_width"}
    seen = {name: end.read_from[field] for name, field in ends.items() if field in end.read_from}
    # A function of the root complex has no link: none of the four is there.
    told = any(value is not None for value in (link.speed, link.width, link.max_speed, link.max_width))
    return replace(device, link=link if told else None, read_from={**device.read_from, **seen})


def _sleeps(raw: Raw, address: str) -> bool:
    """Whether reading its link's state would wake it up: the kernel powers a device up for that."""
    file = raw.read(f"{DEVICES}/{address}/power/runtime_status")
    return isinstance(file, TextFile) and file.text.strip() in _ASLEEP


def _hexadecimal(raw: Raw, path: str) -> str:
    file = raw.read(path)
    found = _HEXADECIMAL.fullmatch(file.text.strip()) if isinstance(file, TextFile) else None
    return "" if found is None else found[1]


# The machine ---------------------------------------------------------------------------------------------------------


def _with_nodes(desk: Desk, topology: TopologyT) -> TopologyT:
    layout = desk.get(NumaLayout)
    if isinstance(layout, Unread):
        return replace(topology, unread=(*topology.unread, layout))
    return replace(
        topology,
        numa_nodes=_with_owners(desk, topology.gpus, layout.nodes),
        cpus_online=layout.online,
        cpus_offline=layout.offline,
        unread=(*topology.unread, *layout.unread),
        read_from={**topology.read_from, **layout.read_from},
    )


def _with_owners(desk: Desk, gpus: Sequence[Device], nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    """Which GPU's memory a node without CPUs is: the driver tells, where it made the memory a node, else NVML does."""
    if all(node.cpus or not node.told for node in nodes):
        return nodes
    owners: dict[int, str] = {}
    for gpu in gpus:
        file = desk.raw.read(f"/proc/driver/nvidia/gpus/{gpu.address}/numa_status")
        told = _MEMORY_NODE.search(file.text) if isinstance(file, TextFile) else None
        if told is not None:
            owners[int(told[1])] = gpu.address
    nvml = desk.get(Nvml) if gpus and not owners else None
    for device in nvml.devices if isinstance(nvml, Nvml) else ():
        number = device.fields.get("affinity.memory_numa_node")
        if isinstance(number, int) and device.address is not None:
            owners.setdefault(number, device.address)
    return tuple(replace(node, gpu="" if node.cpus else owners.get(node.number, "")) for node in nodes)


def _synthetic(desk: Desk, devices: Sequence[Device]) -> str:
    """Why the tree is a hypervisor's. One that shows PCIe switches was laid out after a real one."""
    if any("/VMBUS" in device.read_from["path"].shows for device in devices):
        return "Hyper-V gives each device a host bridge of its own: its tree tells nothing of the real one"
    if any(len(device.path) >= _SWITCHED for device in devices):
        return ""
    machine = desk.get(VirtualMachine)
    if isinstance(machine, VirtualMachine) and machine.guest:
        return "a virtual machine without PCIe switches: the hypervisor's tree tells nothing of the real one"
    return ""
