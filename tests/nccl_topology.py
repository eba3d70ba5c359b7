"""NCCL's topology files: what NCCL_TOPO_DUMP_FILE writes, and what a cloud's image gives it by NCCL_TOPO_FILE.

An element `system` holds `cpu` elements with a NUMA node each, these the `pci` elements below them, nested as switches are: one element
for a switch, none for a root port (ncclTopoGetXmlFromSys in NCCL's src/graph/xml.cc leaves out every other hop). `gpu` and `nic` lie
in the function that is one. A file of `graphs` is another thing. Only the events of an XML parser are used; a document that declares
entities is refused.
"""

from typing import NoReturn
from xml.parsers import expat

from msgspec import Struct

from gpudoctor.facts.topology_places import shared_hops
from gpudoctor.verdicts import Unread, Why

_MOST_ELEMENTS = 20_000
_DEEPEST = 24


class NcclNet(Struct, frozen=True):
    """A port of a network adapter; speed in Mbit/s, `gdr` whether GPUs may be reached by RDMA."""

    name: str
    speed: int | None
    gdr: bool


class NcclLink(Struct, frozen=True):
    """NVLinks of a GPU to one other end, by its PCI address; an address of all ones is a switch that no function stands for."""

    target: str
    count: int


class NcclDevice(Struct):
    """A function: its address, the elements above it (outermost first), the NUMA node of its CPU, and what it is."""

    address: str
    path: tuple[str, ...]
    numa: int | None
    class_code: str
    gpu: int | None = None
    nets: tuple[NcclNet, ...] = ()
    nvlinks: tuple[NcclLink, ...] = ()


class NcclTopology(Struct, frozen=True):
    """What a file says; `affinity` is the mask of the CPUs of each NUMA node as written."""

    devices: tuple[NcclDevice, ...]
    affinity: dict[int, str]

    @property
    def gpus(self) -> tuple[NcclDevice, ...]:
        """The GPUs: those that are said to be one, and display controllers (files made by hand give only the class)."""
        return tuple(d for d in self.devices if d.gpu is not None or d.class_code.startswith("03"))

    def way(self, one: NcclDevice, other: NcclDevice) -> str:
        """How two functions are joined by PCIe as far as the file tells: PIX, PXB, or SYS; NODE within a NUMA node, which may be PHB."""
        if one.address == other.address:
            return "X"
        shared = shared_hops(one.path, other.path)
        if shared:
            return "PIX" if max(len(one.path), len(other.path)) == shared else "PXB"
        return "NODE" if one.numa == other.numa else "SYS"


def parse_nccl_topology(text: str, where: str) -> NcclTopology | Unread:
    """Read a file; `Unread` says why it is none."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, UnicodeError) as error:
        return Unread(Why.UNREADABLE, where, f"is no XML: {error}")
    except _NotTopology as error:
        return Unread(Why.UNREADABLE, where, str(error))
    return NcclTopology(tuple(reader.devices), reader.affinity)


class _NotTopology(Exception):
    """The document is something else."""


def _refuse(*_: object) -> NoReturn:
    raise _NotTopology("declares entities, which no topology of NCCL's does")


class _Reader:
    def __init__(self) -> None:
        self.devices: list[NcclDevice] = []
        self.affinity: dict[int, str] = {}
        self._open: list[str] = []
        self._above: list[NcclDevice] = []
        self._numa: int | None = None
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if not self._open and name != "system":
            raise _NotTopology(f"begins with <{name[:40]}>, not with <system>")
        if self._count > _MOST_ELEMENTS or len(self._open) > _DEEPEST:
            raise _NotTopology("has more elements than any machine")
        self._open.append(name)
        match name:
            case "cpu":
                self._numa = _number(attributes.get("numaid", ""))
                if self._numa is not None:
                    self.affinity[self._numa] = attributes.get("affinity", "")
            case "pci":
                self._begin(attributes)
            case "gpu" | "net" | "nvlink" if self._above:
                self._add(name, attributes)

    def end(self, name: str) -> None:
        self._open.pop()
        if name == "pci":
            self._above.pop()
        elif name == "cpu":
            self._numa = None

    def _begin(self, attributes: dict[str, str]) -> None:
        device = NcclDevice(
            address=attributes.get("busid", "").lower(),
            path=tuple(above.address for above in self._above),
            numa=self._numa,
            class_code=attributes.get("class", "").removeprefix("0x"),
        )
        self.devices.append(device)
        self._above.append(device)

    def _add(self, name: str, attributes: dict[str, str]) -> None:
        device = self._above[-1]
        if name == "gpu":
            device.gpu = _number(attributes.get("dev", ""))
        elif name == "net":
            net = NcclNet(
                attributes.get("name", ""), _number(attributes.get("speed", "")), attributes.get("gdr") == "1"
            )
            device.nets = (*device.nets, net)
        else:
            link = NcclLink(attributes.get("target", "").lower(), _number(attributes.get("count", "")) or 0)
            device.nvlinks = (*device.nvlinks, link)


def _number(text: str) -> int | None:
    """NCCL writes numbers in decimal, and some in hexadecimal (xmlGetAttrInt reads them with base 0)."""
    try:
        return int(text, 0) if len(text) <= 20 else None
    except ValueError:
        return None
