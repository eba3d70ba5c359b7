"""Network adapters: which RDMA devices and interfaces the kernel made of which PCI function.

The links in /sys/class lead to the device below its PCI function, so that no register is read: `…/0000:18:00.0/infiniband/mlx5_0`, or
by way of an auxiliary device (irdma, bnxt_re, mana_ib): `…/0000:4b:00.0/ice.roce.0/infiniband/rocep75s0`.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile, decimal
from gpudoctor.facts.topology_places import Place, place_on
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

RDMA = "/sys/class/infiniband"
INTERFACES = "/sys/class/net"
_SHARED = "/sys/module/ib_core/parameters/netns_mode"
_PARTS = pattern(r"\d+|\D+")
# What containers and virtual machines leave in hundreds, none of it on PCI: veth(4), Calico, Cilium, tap devices.
_VIRTUAL = ("veth", "cali", "lxc", "cilium", "tap", "docker", "virbr", "br-", "flannel", "cni")


class Named(Struct, frozen=True):
    """A device of the kernel's by its name, and the PCI function below which it lies; `place` is empty for one made of software."""

    name: str
    place: Place
    evidence: Evidence


class RdmaDevices(Fact, frozen=True):
    """The RDMA devices (InfiniBand, RoCE, EFA), by name in the order of their numbers; `unread` says why some may be missing."""

    devices: tuple[Named, ...]
    unread: tuple[Unread, ...] = ()
    moved_away: Unread | None = None
    """Why devices may be in use that are not in the list."""

    @classmethod
    def gather(cls, desk: Desk) -> "RdmaDevices | Unread":
        """One listing, and where each link leads. Without the RDMA modules there is no such class."""
        named, unread, evidence = _class(desk.raw, RDMA)
        moved = _moved_away(desk.raw) if named else None
        return cls(devices=named, unread=unread, moved_away=moved, read_from={"devices": evidence})


class NetworkInterfaces(Fact, frozen=True):
    """The network interfaces that lie below a PCI function, by name; `bonds` names the bond of each one that is in one."""

    interfaces: tuple[Named, ...]
    bonds: Mapping[str, str]
    unread: tuple[Unread, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "NetworkInterfaces | Unread":
        """One listing, where each link leads, and who its master is (Documentation/networking/bonding.rst)."""
        named, unread, evidence = _class(desk.raw, INTERFACES)
        found = tuple(one for one in named if one.place.path)
        masters = {one.name: _master(desk.raw, one.name) for one in found}
        bonds = {name: master for name, master in masters.items() if master}
        return cls(interfaces=found, bonds=bonds, unread=unread, read_from={"interfaces": evidence})


def _moved_away(raw: Raw) -> Unread | None:
    """With `rdma system set netns exclusive` a device is seen in one network namespace alone (rdma-system(8)).

    The setting is the variable of the module's parameter netns_mode (drivers/infiniband/core/device.c), Y where all share the devices.
    """
    mode = raw.read(_SHARED)
    if isinstance(mode, TextFile) and mode.text.strip() == "N":
        return Unread(
            Why.NOT_ANSWERED, _SHARED, "RDMA devices belong to network namespaces: a pod may have the missing one"
        )
    return mode if isinstance(mode, Unread) and mode.why is Why.NO_PERMISSION else None


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts mlx5_2 before mlx5_10."""
    parts = ((part, decimal(part)) for part in _PARTS.findall(name))
    return tuple((1, 0, part) if number is None else (0, number, "") for part, number in parts)


def _class(raw: Raw, folder: str) -> tuple[tuple[Named, ...], tuple[Unread, ...], Evidence]:
    listing = raw.listing(folder)
    match listing:
        case Unread():
            return (), (listing,), Evidence(folder, listing.detail)
        case Absent():
            return (), (), listing.evidence
        case Listing():
            unread: list[Unread] = []
            if not listing.complete:
                unread.append(Unread(Why.NOT_RECORDED, folder, "the recording lists at least these, perhaps not all"))
            named = tuple(_named(raw, folder, listing, unread))
            return named, tuple(unread), Evidence(folder, ", ".join(listing.names[:12]) or "is empty")


def _named(raw: Raw, folder: str, listing: Listing, unread: list[Unread]) -> Iterator[Named]:
    names = [name for name in listing.names if folder != INTERFACES or not name.startswith(_VIRTUAL)]
    for name in sorted(names, key=natural):
        entry = raw.entry(f"{folder}/{name}")
        if isinstance(entry, Unread):
            unread.append(entry)
        elif isinstance(entry, Entry) and entry.to is not None:
            place = Place() if "/virtual/" in entry.to else place_on(entry.to)
            yield Named(name, place, Evidence(entry.where, f"-> {entry.to}"))


def _master(raw: Raw, name: str) -> str:
    entry = raw.entry(f"{INTERFACES}/{name}/master")
    return entry.to.rsplit("/", 1)[-1] if isinstance(entry, Entry) and entry.to is not None else ""
