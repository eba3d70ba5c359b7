"""Where a function hangs on PCIe, from the target of its link in sysfs: a host bridge, then the bridges down to it."""

from msgspec import Struct

from gpudoctor.patterns import pattern

_ADDRESS = pattern(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = pattern(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Place(Struct, frozen=True):
    """A host bridge (`pci0000:00`) and the functions from the root port down, the last one being the function itself."""

    root: str = ""
    path: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The function's own address, empty where nothing of PCI is in the way."""
        return self.path[-1] if self.path else ""


def place_on(way: str) -> Place:
    """The place that the target of a link tells: of a function, or of something that belongs to one, such as an interface.

    Above a volume management device (drivers/pci/controller/vmd.c) other domains begin: it is no port of the function's own.
    """
    parts = way.split("/")
    addresses = [part for part in parts if _ADDRESS.fullmatch(part)]
    if not addresses:
        return Place()
    domain = f"{addresses[-1].partition(':')[0]}:"
    roots = [part for part in parts if part.startswith(f"pci{domain}") and _ROOT.fullmatch(part)]
    return Place(roots[-1] if roots else "", tuple(part for part in addresses if part.startswith(domain)))


def shared_hops(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many functions two ways have in common, counted from the root port."""
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count
