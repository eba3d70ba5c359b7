"""What hwloc makes of a machine: lstopo's XML, read here anew, and the matrix of `nvidia-smi topo -m` computed from that alone."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from msgspec import Struct

LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
# hwloc leaves GPU memory out unless told otherwise (hwloc documentation, "Environment Variables").
_ENVIRONMENT = {"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1", "HWLOC_HIDE_ERRORS": "2", "PATH": os.defpath}


class HwlocNode(Struct, frozen=True):
    """A NUMA node; `gpu` is the address of the GPU whose memory hwloc says it is."""

    cpus: frozenset[int]
    bytes: int
    gpu: str


class HwlocDevice(Struct, frozen=True):
    """A PCI function: the bridges above it and itself, which host bridge, and the CPUs of whatever the host bridge hangs under."""

    path: tuple[str, ...]
    bridge: int
    cpus: frozenset[int]
    class_code: str
    vendor: str


class Hwloc(Struct, frozen=True):
    """A machine as hwloc shows it."""

    nodes: dict[int, HwlocNode]
    packages: dict[int, frozenset[int]]
    devices: dict[str, HwlocDevice]

    @property
    def gpus(self) -> list[str]:
        """NVIDIA's display controllers, by address."""
        return sorted(a for a, d in self.devices.items() if d.vendor == "10de" and d.class_code.startswith("03"))

    def way(self, one: str, other: str) -> str:
        """By the legend of `topo -m`: how many bridges are traversed, else whether host bridge or NUMA node are the same."""
        if one == other:
            return "X"
        mine, yours = self.devices[one], self.devices[other]
        common = set(mine.path[:-1]) & set(yours.path[:-1])
        if common:
            each = [len(device.path) - 1 - len(common) for device in (mine, yours)]
            return "PIX" if each[0] < 2 and each[1] < 2 else "PXB"
        if mine.bridge == yours.bridge:
            return "PHB"
        homes = [
            {n for n, node in self.nodes.items() if node.cpus and not node.gpu and node.cpus <= d.cpus}
            for d in (mine, yours)
        ]
        if any(len(home) != 1 for home in homes):
            return "" if len([n for n in self.nodes.values() if not n.gpu]) > 1 else "NODE"
        return "NODE" if homes[0] == homes[1] else "SYS"


def hwloc_of(place: Path) -> Hwloc:
    """What lstopo makes of a folder with /sys, or of an XML file."""
    assert LSTOPO is not None
    form = "fsroot" if place.is_dir() else "xml"
    command = [
        LSTOPO,
        "-i",
        str(place),
        "--if",
        form,
        "--disallowed",
        "--whole-io",
        "--no-collapse",
        "--no-caches",
        "--of",
        "xml",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, env=_ENVIRONMENT, timeout=120, check=True)
    return read(ran.stdout)


def cpu_mask(text: str | None) -> frozenset[int]:
    """hwloc's bitmaps: words of 32 bits in hexadecimal, an empty one being zero."""
    value = 0
    for word in (text or "0x0").split(","):
        value = value << 32 | int(word or "0", 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1)


def read(xml: str) -> Hwloc:
    """Read hwloc's XML, of version 1, 2 or 3."""
    found = Hwloc({}, {}, {})
    machine = ElementTree.fromstring(xml).find("object")  # noqa: S314 (lstopo's own output, or a capture kept with the tests)
    assert machine is not None
    _read(machine, found, frozenset(), (), [0])
    return found


def _read(
    element: ElementTree.Element, found: Hwloc, cpus: frozenset[int], path: tuple[str, ...], bridges: list[int]
) -> None:
    match element.get("type"):
        case "NUMANode":
            bus = next((i.get("value", "") for i in element.findall("info") if i.get("name") == "PCIBusID"), "")
            cpus = cpu_mask(element.get("cpuset"))
            node = HwlocNode(cpus, int(element.get("local_memory", "0")), bus)
            found.nodes[int(element.get("os_index", "0"))] = node
        case "Package" | "Socket":
            cpus = cpu_mask(element.get("cpuset"))
            found.packages[int(element.get("os_index", "-1"))] = cpus
        case "Bridge" if element.get("bridge_type", "").startswith("0"):
            bridges[0] += 1
            path = ()
        case "Bridge" | "PCIDev":
            path = (*path, element.get("pci_busid", ""))
            ids = re.match(r"(\w{4}) \[(\w{4}):", element.get("pci_type", ""))
            assert ids is not None
            found.devices[path[-1]] = HwlocDevice(path, bridges[0], cpus, ids[1], ids[2])
        case _ if element.get("cpuset") is not None:
            cpus = cpu_mask(element.get("cpuset"))
    for child in element.findall("object"):
        _read(child, found, cpus, path, bridges)
