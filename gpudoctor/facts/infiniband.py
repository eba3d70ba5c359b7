"""RDMA ports (InfiniBand, RoCE): their state, rate and error counters, the device nodes of their adapters, and when their links went down.

Documentation/ABI/stable/sysfs-class-infiniband names the files and what stands in them; `rate` is the rate of the link, and the letters
after it only how the kernel words its lanes (drivers/infiniband/core/sysfs.c, rate_show).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact, Population, Reading
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.nics import RDMA, Named, RdmaDevices
from gpudoctor.facts.nvml_window import NodeUptime
from gpudoctor.facts.pci import DEVICES, PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

VERBS, NODES = "/sys/class/infiniband_verbs", "/dev/infiniband"
MOST_PORTS = 64
MOST_LINKS = 2
"""No adapter for Ethernet has more links. One with more ports is in switchdev mode, in which there is a port for each virtual function
(mlx5_ib_vport_rep_load in drivers/infiniband/hw/mlx5/ib_rep.c); that of an unused function is down."""
ACTIVE, DOWN = "ACTIVE", "DOWN"
TRAINED = ("INIT", "ARMED")
"""States of a port whose link is up and that no subnet manager has made ready (InfiniBand Architecture Specification, port states)."""
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
COUNTERS = {
    "link_downed": 0xFF,
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}
"""Those of a port's counters that count faults of its link, and where each ends. port_xmit_wait counts waiting, which is no error.

They stop at all ones and begin anew only when they are reset (InfiniBand Architecture Specification, PortCounters; the widths are those
of PORT_PMA_ATTR in drivers/infiniband/core/sysfs.c).
"""

_STATE = pattern(r"\d: *(\S[^\n]*)")
_RATE = pattern(r"(\d{1,6}(?:\.\d)?) Gb/sec \((\d{1,2})X ")
_NUMBER = pattern(r"\d{1,3}")
_VERB = pattern(r"uverbs\d{1,4}")
_DEV = pattern(r"(\d{1,6}):(\d{1,8})")
# "mlx5_core 0000:bb:00.0 ens16f0np0: Link down" (mlx5e_update_carrier), "bnxt_en … NIC Link is Down", "ice … NIC Link is Down".
LINK_DOWN = pattern(r"[0-9a-f]{4,8}:[0-9a-f:.]+ \S+: (?:NIC )?[Ll]ink (?:is )?[Dd]own\b")
# What the firmware says of the cable and its module (drivers/net/ethernet/mellanox/mlx5/core/events.c, port_module).
MODULE_EVENT = pattern(r"Port module event")
_SECONDS = pattern(r"\d{1,10}\.\d{1,9}")
DAY = 86400.0
_SETTLING = 60.0
"""Links go up and down while the node starts and its network is set up."""


class RdmaPort(Citable, frozen=True):
    """A port of an adapter. `kind` is the board's or chip's name, empty where it is not told; `function` the PCI function's number.

    `state` and `physical` are the words in sysfs without their numbers; `rate` is in Gb/s, None where it is not told; `counters` are
    since the driver was loaded. A `virtual` port is that of a virtual function on the host (SR-IOV), or of a device that is a part of
    another on the same function, which `part_of` names; nothing else is known of it.
    It cites `state`, `physical`, `rate`, `layer`, and each counter by its name.
    """

    device: str
    number: int
    address: str
    state: Reading[str]
    physical: str
    rate: float | None
    lanes: int | None
    layer: str
    kind: str
    virtual: bool
    counters: Mapping[str, int]
    unread: Unread | None = None
    part_of: str = ""

    @property
    def subject(self) -> Subject:
        """The adapter by the kernel's name for it; of one with several ports, with the port's number."""
        return Subject(SubjectKind.NIC, self.device if self.number == 1 else f"{self.device}/{self.number}")

    @property
    def function(self) -> str:
        """The number of its PCI function: those of one card are often put to different uses."""
        return self.address.rpartition(".")[2]

    @property
    def active(self) -> bool:
        """Whether it carries data."""
        return self.state == ACTIVE

    def like(self, other: "RdmaPort") -> bool:
        """Whether both are ports of the same kind of card, in the same place on it, and for the same kind of network."""
        mine = (self.kind, self.layer, self.number, self.function, self.virtual)
        return self.kind != "" and mine == (other.kind, other.layer, other.number, other.function, other.virtual)


class RdmaPorts(Population, frozen=True):
    """The ports of all RDMA adapters that are functions on PCI beside a GPU, by the adapter's name."""

    NOTHING: ClassVar[str] = "no RDMA adapter beside a GPU"

    ports: tuple[RdmaPort, ...]

    @property
    def members(self) -> Sequence[RdmaPort]:
        """The ports."""
        return self.ports

    def __iter__(self) -> Iterator[RdmaPort]:
        return iter(self.ports)

    def switched(self, port: RdmaPort) -> bool:
        """Whether the adapter of an Ethernet port has more ports than links: which of them is whose is not told."""
        return port.layer == ETHERNET and sum(other.device == port.device for other in self.ports) > MOST_LINKS

    @property
    def physical(self) -> tuple[RdmaPort, ...]:
        """The ports that have a link of their own."""
        return tuple(port for port in self.ports if not port.virtual)

    def peers(self, port: RdmaPort) -> tuple[RdmaPort, ...]:
        """The other ports that are like one."""
        return tuple(other for other in self.ports if other is not port and port.like(other))

    @classmethod
    def gather(cls, desk: Desk) -> "RdmaPorts | Unread":
        """One listing where there are GPUs; the files of ports in one child, for the firmware behind them may not answer."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        if not gpus.gpus:
            return cls(ports=(), unlisted=gpus.unlisted, read_from={"devices": gpus.read_from["listing"]})
        found = desk.get(RdmaDevices)
        if isinstance(found, Unread):
            return found
        unread = list(found.unread)
        # In switchdev mode an adapter has a port for each virtual function: they come after the first ones of all adapters.
        found_places = _places(desk.raw, found.devices, unread)
        places = sorted(found_places, key=lambda place: (place.virtual, place.number > MOST_LINKS))[:MOST_PORTS]
        paths = tuple(path for place in places if not place.virtual for path in _paths(place))
        files = desk.raw.read_blocking(paths) if paths else {}
        ports = tuple(_virtual_port(place) if place.virtual else _port(desk.raw, place, files) for place in places)
        return cls(ports=ports, unlisted=next(iter(unread), None), read_from=found.read_from)


class _Place(Struct, frozen=True):
    device: str
    number: int
    address: str
    virtual: bool
    part_of: str = ""

    @property
    def folder(self) -> str:
        return f"{RDMA}/{self.device}/ports/{self.number}"


def _places(raw: Raw, devices: Sequence[Named], unread: list[Unread]) -> Iterator[_Place]:
    """A second device of one function is a part of the first: a subfunction, or the planes of its link (mlx5_ib_add_sub_dev in
    drivers/infiniband/hw/mlx5/main.c), each of which has one lane.
    """
    first: dict[str, str] = {}
    for device in devices:
        if not device.place.address:
            continue
        address = device.place.address
        whole = first.setdefault(address, device.name)
        if whole != device.name:
            yield _Place(device.name, 1, address, virtual=True, part_of=whole)
            continue
        if isinstance(raw.entry(f"{DEVICES}/{address}/physfn"), Entry):
            yield _Place(device.name, 1, address, virtual=True)
            continue
        listing = raw.listing(f"{RDMA}/{device.name}/ports")
        if isinstance(listing, Unread):
            unread.append(listing)
        names = listing.names if isinstance(listing, Listing) else ()
        yield from (_Place(device.name, int(name), address, virtual=False) for name in names if _NUMBER.fullmatch(name))


def _paths(place: _Place) -> Iterator[str]:
    yield from (f"{place.folder}/{name}" for name in ("state", "phys_state", "rate", "link_layer"))
    yield from (f"{place.folder}/counters/{name}" for name in COUNTERS)
    yield from (f"{RDMA}/{place.device}/{name}" for name in ("board_id", "hca_type"))


def _virtual_port(place: _Place) -> RdmaPort:
    """A port of which nothing is read: there can be hundreds, and each follows the physical one."""
    return RdmaPort(
        device=place.device,
        number=place.number,
        address=place.address,
        state=Unread(Why.NOT_ANSWERED, place.folder, "follows the physical port, and was not read"),
        physical="",
        rate=None,
        lanes=None,
        layer="",
        kind="",
        virtual=True,
        counters={},
        part_of=place.part_of,
    )


def _kind(raw: Raw, address: str, chip: str) -> str:
    """Some drivers call all their chips alike (bnxt_re, hca_type_show): the device's number on PCI tells them apart."""
    device = raw.read(f"{DEVICES}/{address}/device") if chip else None
    return f"{chip} {device.text.strip()}" if isinstance(device, TextFile) else ""


def _port(raw: Raw, place: _Place, files: Mapping[str, TextFile | Absent | Unread]) -> RdmaPort:
    seen: dict[str, Evidence] = {}

    def text(name: str, field: str, folder: str = place.folder) -> str:
        file = files[f"{folder}/{name}"]
        said = file.text.strip() if isinstance(file, TextFile) else ""
        seen[field] = Evidence(file.where, said if isinstance(file, TextFile) else file.detail)
        return said

    rate, physical = _RATE.match(text("rate", "rate")), _STATE.fullmatch(text("phys_state", "physical"))
    text("state", "state")
    own = f"{RDMA}/{place.device}"
    counted = {name: decimal(text(f"counters/{name}", name)) for name in COUNTERS}
    unread = (files[f"{place.folder}/counters/{name}"] for name in COUNTERS)
    return RdmaPort(
        device=place.device,
        number=place.number,
        address=place.address,
        state=_state(files[f"{place.folder}/state"]),
        physical=physical[1] if physical else "",
        rate=float(rate[1]) if rate else None,
        lanes=int(rate[2]) if rate else None,
        layer=text("link_layer", "layer"),
        kind=text("board_id", "board", own) or _kind(raw, place.address, text("hca_type", "chip", own)),
        virtual=False,
        counters={name: count for name, count in counted.items() if count is not None},
        unread=next((file for file in unread if isinstance(file, Unread)), None),
        read_from=seen,
    )


def _state(file: TextFile | Absent | Unread) -> Reading[str]:
    if isinstance(file, Unread):
        return file
    if isinstance(file, Absent):
        return Unread(Why.UNREADABLE, file.where, "every port has this attribute, here it is missing")
    told = _STATE.fullmatch(file.text.strip())
    return (
        told[1] if told else Unread(Why.UNREADABLE, file.where, f"holds {file.text.strip()[:40]!r}, which is no state")
    )


# Links that went down, by the kernel log ------------------------------------------------------------------------------


class LinkLosses(Fact, frozen=True):
    """How often the kernel says that the link of a network interface went down, by PCI function, since the node had started.

    `recent` counts those of the last day, as far as the log's stamps are seconds since the boot, else all. `hours` is how long the node
    has run, None where that is not known; `whole` is whether the log reaches back to the boot.
    """

    lines: Mapping[str, tuple[Evidence, ...]]
    recent: Mapping[str, int]
    hours: float | None
    whole: bool = False

    @classmethod
    def gather(cls, desk: Desk) -> "LinkLosses | Unread":
        """Only for the functions of RDMA adapters."""
        ports, log = desk.get(RdmaPorts), desk.get(KernelLog)
        if isinstance(ports, Unread):
            return ports
        uptime = desk.get(NodeUptime)
        seconds = uptime.seconds if isinstance(uptime, NodeUptime) else None
        hours = None if seconds is None else seconds / 3600
        seen = dict(uptime.read_from) if isinstance(uptime, NodeUptime) else {}
        if isinstance(log, Unread):
            return cls(lines={}, recent={}, hours=hours, read_from=seen)
        addresses = {port.address for port in ports if port.layer == ETHERNET}
        lines = {address: tuple(_losses(log, address)) for address in addresses}
        recent = {address: sum(_is_recent(line, seconds) for line in each) for address, each in lines.items()}
        return cls(lines=lines, recent=recent, hours=hours, whole=log.from_boot, read_from=seen)


def _losses(log: KernelLog, address: str) -> Iterator[Evidence]:
    yield from (line for line in log.lines(LINK_DOWN, address) if not _is_early(line))


def _stamp(line: Evidence) -> float | None:
    return float(line.at) if line.at is not None and _SECONDS.fullmatch(line.at) else None


def _is_early(line: Evidence) -> bool:
    stamp = _stamp(line)
    return stamp is not None and stamp < _SETTLING


def _is_recent(line: Evidence, uptime: float | None) -> bool:
    stamp = _stamp(line)
    return stamp is None or uptime is None or stamp >= uptime - DAY


# Device nodes ---------------------------------------------------------------------------------------------------------


class VerbsNode(Struct, frozen=True):
    """What the kernel calls an adapter's device (`uverbs0`), its numbers or why they are `unread`, and what is at its path."""

    name: str
    numbers: tuple[int, int] | None
    told: Evidence
    node: Entry | Absent | Unread
    unread: Unread | None = None

    @property
    def shown(self) -> Evidence:
        """The node as evidence."""
        if not isinstance(self.node, Entry):
            return Evidence(self.node.where, self.node.detail)
        return Evidence(self.node.where, f"{self.node.type.words} {self.node.major}:{self.node.minor}")

    @property
    def stale(self) -> bool:
        """Whether another device's node, or something else, lies at its path."""
        if not isinstance(self.node, Entry):
            return False
        if self.node.type is not EntryType.CHAR:
            return True
        numbers = (self.node.major, self.node.minor)
        return self.numbers is not None and None not in numbers and numbers != self.numbers


class VerbsNodes(Fact, frozen=True):
    """The devices that programs open to use RDMA; `listing` is the kernel's own list of them, absent without the module ib_uverbs.

    The kernel names them for udev and devtmpfs (drivers/infiniband/core/uverbs_main.c, uverbs_devnode: infiniband/uverbsN).
    """

    listing: Listing | Absent | Unread
    nodes: tuple[VerbsNode, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "VerbsNodes | Unread":
        """Looked for where there is an RDMA adapter; nodes are never opened."""
        ports = desk.get(RdmaPorts)
        if isinstance(ports, Unread):
            return ports
        listing = desk.raw.listing(VERBS) if ports.ports else Absent(VERBS)
        names = listing.names if isinstance(listing, Listing) else ()
        return cls(
            listing=listing,
            nodes=tuple(_verbs_node(desk.raw, name) for name in names if _VERB.fullmatch(name)),
            read_from={"listing": Evidence(VERBS, ", ".join(names[:16]) or "is empty")},
        )


def _verbs_node(raw: Raw, name: str) -> VerbsNode:
    file = raw.read(f"{VERBS}/{name}/dev")
    text = file.text.strip() if isinstance(file, TextFile) else ""
    told = _DEV.fullmatch(text)
    return VerbsNode(
        name=name,
        numbers=(int(told[1]), int(told[2])) if told else None,
        told=Evidence(file.where, text if isinstance(file, TextFile) else file.detail),
        node=raw.entry(f"{NODES}/{name}"),
        unread=file if isinstance(file, Unread) else None,
    )
