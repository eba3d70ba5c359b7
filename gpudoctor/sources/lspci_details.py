"""What lspci prints below a function's first line: driver, link, memory regions, bus numbers, configuration space."""

import re

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.pci_config import SIZES
from gpudoctor.facts.raw import decimal
from gpudoctor.patterns import pattern

# ls-kernel.c; that neither line is printed means that there is none, where the listing shows such lines at all.
_DRIVER = "\tKernel driver in use: "
_MODULES = "\tKernel modules: "
# show_verbose in lspci.c prints one of the three for every function, and for each the driver (show_device).
_HEADER_LINES = ("\tFlags: ", "\tControl: ", "\t!!! ")
# All ones in the header type, of which lspci shows seven bits.
_NOBODY = "\t!!! Unknown header type 7f"

_LINK = pattern(r"\tLnk(Cap|Sta):[^\n]*?Speed ([0-9]{1,3}(?:\.[0-9])?GT/s|unknown)[^\n]*?Width x([0-9]{1,2})\b")
_REGION = pattern(r"^\t(?:Region ([0-9]): )?(?:\[virtual\] )?(I/O ports|Memory) at (\S+)(.*)$", re.MULTILINE)
_NODE = "\tNUMA node: "
_GROUP = "\tIOMMU group: "
_BUSES = "\tBus: primary="
_VIRTUAL = r"\bTotal VFs: (\d{1,5}), Number of VFs: (\d{1,5})[^\n]*\n[^\n]*VF offset: (\d{1,5}), stride: (\d{1,5})"
_PLACED = pattern(r"[0-9a-f]{1,16}")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# include/linux/ioport.h, with the low bits of the register as the kernel keeps them (include/uapi/linux/pci_regs.h).
_IO, _MEMORY, _PREFETCHABLE, _WIDE = 0x40101, 0x40200, 0x2008, 0x100004
_REGIONS = 6
_UNSET = 0x20000000
"""IORESOURCE_UNSET: it exists and has no address."""


class Details(Struct, frozen=True):
    """One function. `driver` is empty for none and None where lspci did not look; `nobody` says that it does not answer.

    `attributes` are files of sysfs. `virtual_functions` are their number, the first one's offset and the stride between them.
    """

    origin: str
    driver: str | None = None
    modules: str = ""
    nobody: bool = False
    config: bytes = b""
    attributes: dict[str, str] = {}
    secondary: str = ""
    iommu_group: str = ""
    virtual_functions: tuple[int, int, int] = (0, 0, 0)


def details_of(text: str, origin: str, *, wanted: bool, shows_drivers: bool) -> Details:
    """The details of a function; of one that is not `wanted` only who holds it."""
    words, dump = _parts(text)
    looked = shows_drivers or any(line in words for line in _HEADER_LINES)
    driver = _after(words, _DRIVER) if looked else None
    group = _after(words, _GROUP)
    known = Details(origin, driver, _after(words, _MODULES), iommu_group=group if group.isdecimal() else "")
    return _more(known, words, dump) if wanted else known


def _parts(text: str) -> tuple[str, str]:
    """The words and the dump of registers, which comes last."""
    start = text.find("\n00: ") + 1
    return (text[:start], text[start:]) if start else ("", text) if text.startswith("00: ") else (text, "")


def _more(known: Details, text: str, dump: str) -> Details:
    attributes = _links(text)
    if resource := _resource(text):
        attributes["resource"] = resource
    node = _after(text, _NODE)
    if node.isdecimal():
        attributes["numa_node"] = node
    virtual = re.search(_VIRTUAL, text) if "Total VFs: " in text else None
    if virtual:
        attributes |= {"sriov_totalvfs": virtual[1], "sriov_numvfs": virtual[2]}
    secondary = _after(text, _BUSES).partition("secondary=")[2][:2]
    return replace(
        known,
        nobody=_NOBODY in text,
        config=_config(dump),
        attributes=attributes,
        secondary="" if secondary == "00" else secondary,
        virtual_functions=(int(virtual[2]), int(virtual[3]), int(virtual[4])) if virtual else (0, 0, 0),
    )


def _after(text: str, words: str) -> str:
    """The rest of the line that begins with some words, empty without one."""
    start = text.find(words)
    if start < 0:
        return ""
    start += len(words)
    end = text.find("\n", start)
    return text[start : end if end >= 0 else None].strip()


def _links(text: str) -> dict[str, str]:
    """LnkCap is what the function can do, LnkSta how the link runs; a width of 63 is all ones."""
    found: dict[str, str] = {}
    for register, speed, width in _LINK.findall(text):
        kind = "max" if register == "Cap" else "current"
        found.setdefault(f"{kind}_link_width", str(int(width)))
        # pci_speed_string in drivers/pci/probe.c.
        words = "Unknown" if speed == "unknown" else f"{float(speed.removesuffix('GT/s')):.1f} GT/s PCIe"
        found.setdefault(f"{kind}_link_speed", words)
    return found


def _resource(text: str) -> str:
    """The regions as sysfs lists them, a line for each of the six registers; empty where lspci does not tell a size.

    A region of 64 bits takes two registers. `-v` prints no numbers: those of NVIDIA's functions follow each other without a gap.
    """
    lines = ["0x0000000000000000 " * 2 + "0x0000000000000000"] * _REGIONS
    following = 0
    for number, kind, place, words in _REGION.findall(text):
        at = int(number) if number else following
        following = at + (2 if "(64-bit" in words else 1)
        size = _size(words)
        if at >= _REGIONS or (size == 0 and _PLACED.fullmatch(place)):
            return ""
        lines[at] = _line(place, size, _flags(kind, words))
    return "\n".join(lines) if following else ""


def _size(words: str) -> int:
    """What `[size=16M]` says in bytes, 0 without it."""
    size = words.partition("[size=")[2].partition("]")[0]
    digits = size.rstrip("KMGT")
    return (decimal(digits) or 0) * _UNITS.get(size[len(digits) :], 0)


def _flags(kind: str, words: str) -> int:
    if kind == "I/O ports":
        return _IO
    prefetchable = " prefetchable)" in words
    return _MEMORY | (_PREFETCHABLE if prefetchable else 0) | (_WIDE if "(64-bit" in words else 0)


def _line(place: str, size: int, flags: int) -> str:
    """`<unassigned>` and `<ignored>` stand for no address (show_bases in lspci.c)."""
    if _PLACED.fullmatch(place) is None:
        return f"0x{0:016x} 0x{0:016x} 0x{flags | _UNSET:016x}"
    start = int(place, 16)
    return f"0x{start:016x} 0x{start + size - 1:016x} 0x{flags:016x}"


def _config(dump: str) -> bytes:
    """The bytes that -x, -xxx or -xxxx printed, if they are as many as configuration space has."""
    try:
        content = bytes.fromhex("".join([line.partition(": ")[2] for line in dump.split("\n")]))
    except ValueError:
        return b""
    return content if len(content) in SIZES else b""
