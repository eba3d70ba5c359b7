"""Versions of driver, CUDA, kernel, toolkit and engines, and the parameters of the modules and the kernel."""

from collections.abc import Iterator, Mapping

from gpudoctor.diff import Area, Change, Gap
from gpudoctor.differing.likeness import Likeness
from gpudoctor.differing.party import A, B, Pairs, Party, gap
from gpudoctor.facts.cuda_toolkits import CudaToolkits
from gpudoctor.facts.driver import PARAMS, DriverParameters, NvidiaModule
from gpudoctor.facts.modprobe import CMDLINE
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.facts.software import PRODUCTS, Software
from gpudoctor.verdicts import Unread, Why

NOT_LOADED = "not loaded"
Told = str | None | Unread
"""A version, None for not there, or why neither is known."""

OF_GPUS = ("vbios_version", "gsp.firmware_version", "inforom.image")
"""Versions that NVML tells of each GPU."""
# Words of the command line that name a file or a disk of this machine (kernel-parameters.txt, "root="; dracut.cmdline(7)).
_OF_THE_DISK = ("BOOT_IMAGE=", "root=", "resume=", "initrd=", "rd.luks", "rd.lvm", "cryptdevice=", "ostree=")


def versions(a: Party, b: Party, pairs: Pairs) -> Iterator[Change | Gap]:
    """Of the node first, then of each GPU."""
    mine, theirs = _of_node(a), _of_node(b)
    for what in dict.fromkeys((*mine, *theirs)):
        yield from _compared(Area.VERSIONS, what, mine.get(what), theirs.get(what))
    for one, two in pairs.pairs:
        ours, other = _of_gpu(a, one.address), _of_gpu(b, two.address)
        for what in OF_GPUS:
            if ours.get(what) and other.get(what) and ours[what] != other[what]:
                yield Change(Area.VERSIONS, what, ours[what], other[what], subjects=(one.address,))


def parameters(a: Party, b: Party, likeness: Likeness) -> Iterator[Change | Gap]:
    """The registry keys in force, and the words of the kernel's command line. Each release of the driver has keys of its own."""
    mine, theirs = _driver_parameters(a), _driver_parameters(b)
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        alike = a.report.node.driver_version == b.report.node.driver_version
        for name in sorted(mine.keys() | theirs.keys() if alike else mine.keys() & theirs.keys()):
            if mine.get(name) != theirs.get(name):
                yield Change(Area.PARAMETERS, f"nvidia {name}", mine.get(name), theirs.get(name))
    elif a.desk is not None and b.desk is not None:
        told = mine if isinstance(mine, str) else theirs
        yield from gap(Area.PARAMETERS, PARAMS, isinstance(mine, Mapping), isinstance(theirs, Mapping), str(told))
    yield from _command_line(a, b, likeness)


def _of_node(party: Party) -> dict[str, Told]:
    node = party.report.node
    module, nvml = party.known(NvidiaModule), party.known(Nvml)
    driver: Told = node.driver_version or (NOT_LOADED if module is not None and not module.loaded else _unread(party))
    told: dict[str, Told] = {
        "driver": driver,
        "driver's modules": _flavour(party, module),
        "CUDA of the driver": node.cuda_version or _unread(party),
        "NVML": (nvml.nvml_version if nvml else None) or _unread(party),
        "kernel": node.kernel or _unread(party),
        "operating system": node.os or _unread(party),
    }
    software = party.fact(Software)
    for product in PRODUCTS:
        found = software if isinstance(software, Unread) else software.of(product)
        told[product.name] = found if isinstance(found, Unread) else None if isinstance(found, Absent) else found.text
    toolkits = party.fact(CudaToolkits)
    if isinstance(toolkits, Unread) or toolkits.unseen is not None:
        told["CUDA toolkits"] = toolkits if isinstance(toolkits, Unread) else toolkits.unseen
    else:
        told["CUDA toolkits"] = ", ".join(sorted(one.version for one in toolkits.toolkits)) or None
    return told


def _flavour(party: Party, module: NvidiaModule | None) -> Told:
    if module is None or module.is_open is None:
        return _unread(party)
    return "open" if module.is_open else "proprietary"


def _unread(party: Party) -> Unread:
    return Unread(Why.NOT_RECORDED, party.given, "not known")


def _compared(area: Area, what: str, a: Told, b: Told) -> Iterator[Change | Gap]:
    if not isinstance(a, Unread) and not isinstance(b, Unread):
        if a != b:
            yield Change(area, what, a, b)
    elif isinstance(a, Unread) and isinstance(b, str):
        yield Gap(area, A, (what,), "not known there")
    elif isinstance(b, Unread) and isinstance(a, str):
        yield Gap(area, B, (what,), "not known there")


def _of_gpu(party: Party, address: str) -> dict[str, str]:
    device = party.devices.get(address)
    fields = {} if device is None else device.fields
    return {name: value for name in OF_GPUS if isinstance(value := fields.get(name), str)}


def _driver_parameters(party: Party) -> Mapping[str, str] | str:
    """By name, or why they are not known: without the driver there are none."""
    found = party.fact(DriverParameters)
    if isinstance(found, Unread):
        return "not recorded"
    return found.values or "the driver is not loaded"


def _command_line(a: Party, b: Party, likeness: Likeness) -> Iterator[Change | Gap]:
    if a.desk is None or b.desk is None:
        return
    mine, theirs = a.desk.raw.read(CMDLINE), b.desk.raw.read(CMDLINE)
    if isinstance(mine, TextFile) and isinstance(theirs, TextFile):
        one, two = _words(mine.text), _words(theirs.text)
        names = tuple(dict.fromkeys((*one, *two)))
        apart = _kept_apart(one, two, likeness)
        if apart:
            side = A if likeness.redacted[0] else B
            yield Gap(Area.PARAMETERS, side, (f"words of {CMDLINE} that it keeps to itself",), "hidden by redaction")
        for name in names:
            if name in apart:
                continue
            left, right = one.get(name), two.get(name)
            if left == right or (left is not None and right is not None and likeness.exact(left, right)):
                continue
            yield Change(Area.PARAMETERS, f"kernel command line {name}", left, right)
    else:
        yield from gap(Area.PARAMETERS, CMDLINE, isinstance(mine, TextFile), isinstance(theirs, TextFile))


def _kept_apart(one: Mapping[str, str], two: Mapping[str, str], likeness: Likeness) -> frozenset[str]:
    """Words that cannot be held against the other side: hidden ones, and those in clear that a hidden one may stand for."""
    hidden = {name for name in (*one, *two) if likeness.hides(name) and not (name in one and name in two)}
    if hidden and likeness.redacted == (True, False):
        hidden |= two.keys() - one.keys()
    elif hidden and likeness.redacted == (False, True):
        hidden |= one.keys() - two.keys()
    return frozenset(hidden)


def _words(text: str) -> dict[str, str]:
    """By name; of a name that stands there several times all values."""
    found: dict[str, str] = {}
    for word in text.split()[:256]:
        if word.startswith(_OF_THE_DISK):
            continue
        name, given, value = word.partition("=")
        said = value if given else "set"
        found[name] = f"{found[name]} {said}" if name in found else said
    return found
