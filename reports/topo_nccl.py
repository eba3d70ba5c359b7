"""A node's topology as an XML file of NCCL's, for NCCL_TOPO_FILE and for programs that read what NCCL_TOPO_DUMP_FILE writes.

The form is that of ncclTopoGetXmlFromSys and ncclTopoGetXmlFromGpu in NCCL's src/graph/xml.cc: below `cpu`, which stands for a NUMA node,
`pci` elements, every other function of a way being left out, so that a switch is one element; `link_speed` and `link_width` the lesser
of what a function and the port above it can. NCCL fills in what a file lacks (xmlSetAttrIfUnset and the like): numbers of GPUs and
adapters, which a container may count otherwise, and rates of ports are left to it. Its reader knows no XML declaration and no entities.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.numa import cpu_set
from gpudoctor.topo import Function, NvLinkTarget, Topo

_INDENT = "  "
_SWITCH, _GPU = "0x068000", "0x030200"
# What its reader takes as it is: it knows no entity, and ends a value at the first quote (xmlGetValue).
_ODD = re.compile(r"[^A-Za-z0-9_.:,/+ -]")
_LONGEST = 200
"""A value may have MAX_STR_LEN, 255 characters (NCCL's src/graph/xml.h)."""


class _Element(Struct):
    """A `pci` element and those below it, by address."""

    function: Function
    below: "dict[str, _Element]" = {}


def render(topo: Topo) -> str:
    """The file. It has the GPUs and the RDMA adapters, as NCCL's own has those it uses."""
    writer = _Writer(topo)
    return "\n".join(writer.lines()) + "\n"


class _Writer:
    def __init__(self, topo: Topo) -> None:
        self.topo = topo
        self.functions: Mapping[str, Function] = {one.address: one for one in topo.functions}
        self.targets: dict[str, list[NvLinkTarget]] = {}
        for target in topo.nvlink_targets:
            self.targets.setdefault(target.gpu, []).append(target)

    def lines(self) -> Iterator[str]:
        node = _plain(self.topo.node.hostname or "a node without a name")
        made_up = f"; {_plain(self.topo.synthetic)}" if self.topo.synthetic else ""
        yield f"<!-- gpudoctor {self.topo.version} of {node}, {self.topo.started_at}{made_up} -->"
        yield '<system version="1">'
        for numa, elements in sorted(self._cpus().items()):
            yield f"{_INDENT}<cpu{_attributes(numaid=str(numa), affinity=self._affinity(numa))}>"
            for element in sorted(elements.values(), key=_address):
                yield from self._pci(element, _INDENT * 2)
            yield f"{_INDENT}</cpu>"
        yield "</system>"

    def _cpus(self) -> Mapping[int, dict[str, _Element]]:
        """Elements by the NUMA node of the function that NCCL reads last on its way up."""
        cpus: dict[int, dict[str, _Element]] = {}
        for end in self.topo.functions:
            if end.kind != "gpu" and not (end.kind == "nic" and end.rdma):
                continue
            way = [self.functions.get(address) or Function(address, "bridge") for address in kept(end)]
            numa = way[0].numa if way[0].numa is not None else end.numa
            below = cpus.setdefault(-1 if numa is None else numa, {})
            for function in way:
                below = below.setdefault(function.address, _Element(function)).below
        return cpus

    def _affinity(self, numa: int) -> str:
        """The CPUs as the kernel writes a mask: words of 32 bits, the highest first."""
        cpus = next((cpu_set(node.cpus) for node in self.topo.numa_nodes if node.number == numa), frozenset())
        words = [0] * (max(cpus, default=0) // 32 + 1)
        for cpu in cpus:
            words[cpu // 32] |= 1 << cpu % 32
        return ",".join(f"{word:08x}" for word in reversed(words)) if cpus else ""

    def _pci(self, element: _Element, indent: str) -> Iterator[str]:
        one = element.function
        attributes = _attributes(
            busid=one.address,
            **{"class": f"0x{one.class_code}" if one.class_code else ""},
            vendor=f"0x{one.vendor_id}" if one.vendor_id else "",
            device=f"0x{one.device_id}" if one.device_id else "",
            **self._link(one),
        )
        inner = [*self._device(one, indent + _INDENT)]
        for below in sorted(element.below.values(), key=_address):
            inner += self._pci(below, indent + _INDENT)
        yield f"{indent}<pci{attributes}>" if inner else f"{indent}<pci{attributes}/>"
        if inner:
            yield from inner
            yield f"{indent}</pci>"

    def _link(self, one: Function) -> dict[str, str]:
        above = self.functions.get(one.path[-2]) if len(one.path) > 1 else None
        links = [end.link for end in (one, above) if end is not None and end.link is not None]
        speeds = [link.max_speed for link in links if link.max_speed]
        widths = [link.max_width for link in links if link.max_width]
        return {
            "link_speed": f"{min(speeds):.1f} GT/s PCIe" if speeds else "",
            "link_width": str(min(widths)) if widths else "",
        }

    def _device(self, one: Function, indent: str) -> Iterator[str]:
        if one.kind == "nic":
            yield f"{indent}<nic>"
            yield f"{indent}{_INDENT}<net{_attributes(name=one.name)}/>"
            yield f"{indent}</nic>"
        elif one.kind == "gpu":
            links = [*self._nvlinks(one, indent + _INDENT)]
            yield f"{indent}<gpu>" if links else f"{indent}<gpu/>"
            if links:
                yield from links
                yield f"{indent}</gpu>"

    def _nvlinks(self, one: Function, indent: str) -> Iterator[str]:
        for link in self.targets.get(one.label, ()):
            kind = _SWITCH if link.switch else _GPU
            yield f"{indent}<nvlink{_attributes(target=link.target, count=str(link.links), tclass=kind)}/>"


def kept(function: Function) -> tuple[str, ...]:
    """The functions of a way that NCCL keeps, outermost first: from the device up every other one."""
    way = function.path or (function.address,)
    return way[::-1][::2][::-1]


def _address(element: _Element) -> str:
    return element.function.address


def _attributes(**values: str) -> str:
    return "".join(f' {name}="{_plain(value)}"' for name, value in values.items() if value)


def _plain(words: str) -> str:
    """Without what its reader, or a comment, would take for something else."""
    return re.sub("-{2,}", "-", _ODD.sub("_", words))[:_LONGEST]
