"""PCIe links: for each GPU, every link on the way from the root port, as both ends report it in sysfs."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.pci import DEVICES, PciGpu, PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile, decimal
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

THUNDERBOLT = "/sys/bus/thunderbolt/devices"
_ADDRESS = pattern(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Widths that a link can have (PCI Express Base Specification, Link Status Register); a dead device reads as 63."""

MADE_UP_WIDTH = 32
"""No slot has so many lanes; ports of virtual machines claim them (x-width in QEMU's hw/pci-bridge/gen_pcie_root_port.c)."""

SPEEDS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Speeds in GT/s that a link can have (PCI Express Base Specification, Link Capabilities 2 Register)."""

# "16.0 GT/s PCIe"; before Linux 5.7 "16 GT/s" (commit 6348a34dcb98, "PCI: Use pci_speed_string() for all PCI/PCI-X/PCIe strings").
# A speed that the kernel has no name for is "Unknown", formerly "Unknown speed".
_SPEED = pattern(r"(\d+(?:\.\d)?) GT/s(?: PCIe)?")


class LinkEnd(Citable, frozen=True):
    """One function's view of the link it takes part in; None for what it does not say, speeds in GT/s.

    What a link runs at is read at its lower end only: both ends tell of one link.
    """

    address: str
    current_width: int | None
    max_width: int | None
    current_speed: float | None
    max_speed: float | None


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

    @property
    def allowed_speed(self) -> float | None:
        """The speed in GT/s that both ends allow."""
        if self.below.max_speed is None or self.above.max_speed is None:
            return None
        return min(self.below.max_speed, self.above.max_speed)

    @property
    def slow(self) -> bool | None:
        """Whether it runs slower than both ends allow, None when they do not tell."""
        current, allowed = self.below.current_speed, self.allowed_speed
        return None if current is None or allowed is None else current < allowed

    @property
    def impossible(self) -> bool:
        """Whether it runs faster than an end says it can: then that end's figures are made up, as those of QEMU's ports are."""
        current, allowed = self.below.current_speed, self.allowed_speed
        return current is not None and allowed is not None and current > allowed

    @property
    def narrow(self) -> bool:
        """Whether it runs with fewer lanes than both ends say they allow."""
        current, allowed = self.below.current_width, self.allowed_width
        return current is not None and allowed is not None and current < allowed

    @property
    def width_made_up(self) -> bool:
        """Whether the lanes of a link that has not all of its lower end's cannot be held against the port's: these are made up.

        So is a port that has fewer than run, and one with more than any slot has, see `MADE_UP_WIDTH`.
        """
        current, most, above = self.below.current_width, self.below.max_width, self.above.max_width
        if current is None or most is None or above is None or current == most:
            return False
        return above == MADE_UP_WIDTH or current > min(most, above)

    @property
    def throughput(self) -> float:
        """Lanes times GT/s, to compare links by; what is not known counts as one."""
        return (self.below.current_width or 1) * (self.below.current_speed or 1)


class GpuPlaces(Fact, frozen=True):
    """The functions on the way from root port to GPU, which comes last: root port, then pairs of a switch's upstream and downstream port.

    Empty where the node does not tell the place. Known of sleeping GPUs too: no register is read for it.
    """

    by_address: Mapping[str, tuple[str, ...] | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "GpuPlaces | Unread":
        """Where each GPU's link on the bus leads."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        return cls(by_address={gpu.address: _place(desk.raw, gpu.address) for gpu in gpus})


class GpuLinks(Fact, frozen=True):
    """The links from each GPU up to its root port, nearest first; empty where no port above the GPU is visible."""

    by_address: Mapping[str, tuple[PciLink, ...] | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "GpuLinks | Unread":
        """Follow each GPU's place in the device tree; not of one that sleeps."""
        gpus, places = desk.get(PciGpus), desk.get(GpuPlaces)
        if isinstance(gpus, Unread):
            return gpus
        if isinstance(places, Unread):
            return places
        ends: dict[str, LinkEnd] = {}
        return cls(
            by_address={gpu.address: _links(desk.raw, gpu, places.by_address[gpu.address], ends) for gpu in gpus}
        )


class Doubt(Citable, frozen=True):
    """Why a slow link on a GPU's way may be no fault."""

    reason: str


class UplinkDoubts(Fact, frozen=True):
    """What speaks against judging the slow links above a GPU's own, by GPU; nothing is read for a GPU that has none."""

    by_address: Mapping[str, Doubt | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "UplinkDoubts | Unread":
        """A virtual machine's ports are made up by its host; a tunnel's by its ends."""
        links = desk.get(GpuLinks)
        if isinstance(links, Unread):
            return links
        slow = [
            address
            for address, path in links.by_address.items()
            if not isinstance(path, Unread) and any(link.slow for link in path[1:])
        ]
        found = {address: _doubt(desk, address) for address in slow}
        return cls(by_address={address: doubt for address, doubt in found.items() if doubt is not None})


def _place(raw: Raw, address: str) -> tuple[str, ...] | Unread:
    entry = raw.entry(f"{DEVICES}/{address}")
    if isinstance(entry, Unread):
        return entry
    if not isinstance(entry, Entry) or entry.type is not EntryType.LINK or entry.to is None:
        return ()
    # Above a volume management device (drivers/pci/controller/vmd.c) other domains begin: it is no port of this one.
    domain = f"{address.partition(':')[0]}:"
    return tuple(part for part in entry.to.split("/") if part.startswith(domain) and _ADDRESS.fullmatch(part))


def _links(
    raw: Raw, gpu: PciGpu, place: tuple[str, ...] | Unread, ends: dict[str, LinkEnd]
) -> tuple[PciLink, ...] | Unread:
    """A link joins two neighbours in turn, counted from the GPU.

    The link attributes read config space; since the commit "PCI/sysfs: Ensure devices are powered for config reads" (2025) the
    kernel powers the device up for that.
    """
    if gpu.withholds_registers:
        return gpu.withheld(f"{DEVICES}/{gpu.address}/current_link_width")
    if isinstance(place, Unread):
        return place
    return tuple(
        PciLink(below=_end(raw, place[at], ends, lower=True), above=_end(raw, place[at - 1], ends, lower=False))
        for at in range(len(place) - 1, 0, -2)
    )


def link_end(raw: Raw, address: str) -> LinkEnd:
    """The lower end of the link above any function: four small files. Not of a device that sleeps."""
    return _end(raw, address, {}, lower=True)


def port_end(raw: Raw, address: str) -> LinkEnd:
    """The upper end of the link below a port: what it allows, two small files."""
    return _end(raw, address, {}, lower=False)


def _end(raw: Raw, address: str, ends: dict[str, LinkEnd], *, lower: bool) -> LinkEnd:
    if address not in ends:
        base = f"{DEVICES}/{address}"
        seen: dict[str, Evidence] = {}
        most_lanes, seen["max_width"] = _width(raw, f"{base}/max_link_width")
        most_speed, seen["max_speed"] = _speed(raw, f"{base}/max_link_speed")
        lanes = speed = None
        if lower:
            lanes, seen["current_width"] = _width(raw, f"{base}/current_link_width")
            speed, seen["current_speed"] = _speed(raw, f"{base}/current_link_speed")
        ends[address] = LinkEnd(
            address=address,
            current_width=lanes,
            max_width=most_lanes,
            current_speed=speed,
            max_speed=most_speed,
            read_from=seen,
        )
    return ends[address]


def _width(raw: Raw, path: str) -> tuple[int | None, Evidence]:
    text, evidence = _line(raw, path)
    lanes = decimal(text)
    return (lanes if lanes in WIDTHS else None), evidence


def _speed(raw: Raw, path: str) -> tuple[float | None, Evidence]:
    text, evidence = _line(raw, path)
    form = _SPEED.fullmatch(text)
    return float(form[1]) if form and float(form[1]) in SPEEDS else None, evidence


def _line(raw: Raw, path: str) -> tuple[str, Evidence]:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return "", Evidence(file.where, "is not readable")
    text = file.text.strip()
    return text, Evidence(file.where, text)


def _doubt(desk: Desk, address: str) -> Doubt | Unread | None:
    machine = desk.get(VirtualMachine)
    if isinstance(machine, Unread):
        return machine
    if machine.guest:
        reason = "in a virtual machine the ports and their speeds are made up by the host"
        return Doubt(reason=reason, read_from={"reason": machine.cite("guest")[0]})
    # A function behind an external port is removable (Documentation/ABI/testing/sysfs-devices-removable). Ports that tunnel PCIe over
    # USB4 behave as 2.5 GT/s whatever the tunnel carries (USB4 Specification 2.0, 11.2.1).
    path = f"{DEVICES}/{address}/removable"
    file = desk.raw.read(path)
    if isinstance(file, TextFile) and file.text.strip() == "removable":
        reason = "it is reached through an external port, whose tunnels do not tell the speed they run at"
        return Doubt(reason=reason, read_from={"reason": Evidence(path, "removable")})
    if isinstance(file, Absent):
        # Kernels before 5.14 do not tell (commit "PCI: Set 'removable' for external ports"); a Thunderbolt host may have it outside.
        hosts = desk.raw.listing(THUNDERBOLT)
        if isinstance(hosts, Listing) and hosts.names:
            reason = "it may be reached through Thunderbolt, whose tunnels do not tell the speed they run at"
            return Doubt(reason=reason, read_from={"reason": Evidence(THUNDERBOLT, ", ".join(hosts.names[:4]))})
    return file if isinstance(file, Unread) and file.why is not Why.NOT_RECORDED else None
