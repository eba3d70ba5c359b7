"""PCIe links: for each GPU, every link on the way from the root port, as both ends report it in sysfs."""

import re
from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.pci import DEVICES, PciGpu, PciGpus
from gpudoctor.facts.raw import Entry, EntryType, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Widths that a link can have (PCI Express Base Specification, Link Status Register); a dead device reads as 63."""


class LinkEnd(Citable, frozen=True):
    """One function's view of the link it takes part in; None for what it does not say."""

    address: str
    current_width: int | None
    max_width: int | None


class PciLink(Citable, frozen=True):
    """A link between a function and the port above it."""

    below: LinkEnd
    above: LinkEnd

    @property
    def allowed_width(self) -> int | None:
        """The width that both ends allow."""
        if self.below.max_width is None or self.above.max_width is None:
            return None
        return min(self.below.max_width, self.above.max_width)


class GpuLinks(Fact, frozen=True):
    """The links from each GPU up to its root port, nearest first; empty where no port above the GPU is visible."""

    by_address: Mapping[str, tuple[PciLink, ...] | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "GpuLinks | Unread":
        """Follow each GPU's place in the device tree; not of one that sleeps."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        ends: dict[str, LinkEnd] = {}
        return cls(by_address={gpu.address: _links(desk.raw, gpu, ends) for gpu in gpus})


def _links(raw: Raw, gpu: PciGpu, ends: dict[str, LinkEnd]) -> tuple[PciLink, ...] | Unread:
    """The path holds root port, then pairs of a switch's upstream and downstream port; a link joins two neighbours in turn.

    The link attributes read config space; since the commit "PCI/sysfs: Ensure devices are powered for config reads" (2025) the
    kernel powers the device up for that.
    """
    if gpu.withholds_registers:
        return gpu.withheld(f"{DEVICES}/{gpu.address}/current_link_width")
    entry = raw.entry(f"{DEVICES}/{gpu.address}")
    if isinstance(entry, Unread):
        return entry
    if not isinstance(entry, Entry) or entry.type is not EntryType.LINK or entry.to is None:
        return ()
    path = [part for part in entry.to.split("/") if _ADDRESS.fullmatch(part)]
    return tuple(
        PciLink(below=_end(raw, path[place], ends), above=_end(raw, path[place - 1], ends))
        for place in range(len(path) - 1, 0, -2)
    )


def _end(raw: Raw, address: str, ends: dict[str, LinkEnd]) -> LinkEnd:
    if address not in ends:
        current, current_evidence = _width(raw, f"{DEVICES}/{address}/current_link_width")
        most, max_evidence = _width(raw, f"{DEVICES}/{address}/max_link_width")
        ends[address] = LinkEnd(
            address=address,
            current_width=current,
            max_width=most,
            read_from={"current_width": current_evidence, "max_width": max_evidence},
        )
    return ends[address]


def _width(raw: Raw, path: str) -> tuple[int | None, Evidence]:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return None, Evidence(path, "is not readable")
    text = file.text.strip()
    return int(text) if text.isdecimal() and int(text) in WIDTHS else None, Evidence(path, text)
