"""Where the ways of GPUs part below a PCIe switch, and whether the ports there send what GPUs say to each other up to the CPU."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.pci import DEVICES, PciGpu, PciGpus
from gpudoctor.facts.pci_config import (
    ABSENT_READ,
    EXTENDED,
    HEADER_BYTES,
    config_bytes,
    double_word,
    extended_capability,
    word,
)
from gpudoctor.facts.pci_link import GpuPlaces
from gpudoctor.facts.pci_passthrough import TRANSLATED, iommu_group, number_of
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile
from gpudoctor.facts.virtual_machine import Firmware, VirtualMachine
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ACS = 0x000D
"""Extended capability Access Control Services: PCI_EXT_CAP_ID_ACS in include/uapi/linux/pci_regs.h, as the bits below."""
P2P_REDIRECT = 0x04 | 0x08
"""PCI_ACS_RR and PCI_ACS_CR: requests and completions for a peer go up instead."""
DIRECT_TRANSLATED = 0x40
"""PCI_ACS_DT: requests with a translated address go to the peer all the same (PCI Express Base Specification 7.0, 6.12.3)."""
_NAMES = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")

# Drivers that keep a function for a virtual machine: vfio-pci and its variants (nvgrace-gpu-vfio-pci), Xen's pciback, pci-stub.
_FOR_GUESTS = ("vfio", "pciback", "pci-stub")
VFIO = "/sys/module/vfio_pci/drivers/pci:vfio-pci"
"""Leads to the driver's folder, which has a link for each function that it holds; absent while the module is not loaded."""
VGPU = "/sys/module/nvidia_vgpu_vfio"


class AccessControl(Struct, frozen=True):
    """The ACS registers of a port: what it can do and what is on."""

    offset: int
    capability: int
    control: int
    where: str = ""

    @property
    def on(self) -> int:
        """What is in force: a control bit without its capability means nothing (clGetPortAcsRedirectConfig in open-gpu-kernel-modules)."""
        return self.control & self.capability

    @property
    def redirects(self) -> bool:
        """Whether traffic for a peer goes up."""
        return bool(self.on & P2P_REDIRECT)

    @property
    def lets_translated_pass(self) -> bool:
        """Whether redirection leaves out requests whose address is translated already, as devices with ATS send them."""
        return bool(self.on & DIRECT_TRANSLATED)

    @property
    def words(self) -> str:
        """The control register as lspci prints it."""
        return " ".join(f"{name}{'+' if self.control >> bit & 1 else '-'}" for bit, name in enumerate(_NAMES))


class PeerPort(Struct, frozen=True):
    """The downstream port by which a GPU's way leaves a switch that others reach by other ports; `peers` are their addresses."""

    address: str
    switch: str
    peers: tuple[str, ...]


class Isolation(Struct, frozen=True):
    """Why traffic between devices should go up here."""

    reason: str
    evidence: Cited


class PeerPaths(Fact, frozen=True):
    """The ports that can redirect what GPUs say to each other, by GPU, nearest first, and the ACS registers of each port.

    Redirection chooses between the way to the peer and the way up, so it counts only where two ways part (PCI Express Base
    Specification, 6.12; the same in the patches "PCI/P2PDMA" of 2026, mail-archive.com/dri-devel@lists.freedesktop.org/msg634702).
    `controls` has None for a port without ACS, and no port at all where `isolation` was known before. `translation` are the types
    of IOMMU groups that translate, read only of GPUs whose traffic is redirected.
    """

    ports: Mapping[str, Reading[tuple[PeerPort, ...]]]
    controls: Mapping[str, Reading[AccessControl | None]]
    isolation: Reading[Isolation | None]
    translation: Mapping[str, Cited]

    @classmethod
    def gather(cls, desk: Desk) -> "PeerPaths | Unread":
        """Registers are read only of ports where the ways of GPUs part, and not in what its firmware calls a virtual machine."""
        gpus, places = desk.get(PciGpus), desk.get(GpuPlaces)
        if isinstance(gpus, Unread):
            return gpus
        if isinstance(places, Unread):
            return places
        ports = _ports(gpus, places)
        shared = any(_known(of_gpu) for of_gpu in ports.values())
        plain = _plain_isolation(desk, gpus) if shared else None
        if plain is not None or not shared:
            return cls(ports=ports, controls={}, isolation=plain, translation={})
        controls, seen = _controls(desk, gpus, ports)
        redirecting = {address for address, control in controls.items() if _redirects(control)}
        redirected = [gpu for gpu in gpus if any(port.address in redirecting for port in _known(ports[gpu.address]))]
        return cls(
            ports=ports,
            controls=controls,
            isolation=_isolation(desk, redirected) if redirected else None,
            translation={gpu.address: _translation(desk.raw, gpu.address) for gpu in redirected},
            read_from=seen,
        )


def _known(ports: Reading[tuple[PeerPort, ...]]) -> tuple[PeerPort, ...]:
    return () if isinstance(ports, Unread) else ports


def _redirects(control: Reading[AccessControl | None]) -> bool:
    return isinstance(control, AccessControl) and control.redirects


def _ports(gpus: PciGpus, places: GpuPlaces) -> dict[str, Reading[tuple[PeerPort, ...]]]:
    """For each GPU the ports where its way parts from that of another; why not known where a peer may be hidden."""
    by_switch: dict[str, dict[str, list[str]]] = {}
    hidden = gpus.unlisted
    for address, place in places.by_address.items():
        if isinstance(place, Unread):
            hidden = place
            continue
        for switch, port in _switches(place):
            by_switch.setdefault(switch, {}).setdefault(port, []).append(address)
    return {address: _ports_of(place, by_switch, hidden) for address, place in places.by_address.items()}


def _ports_of(
    place: tuple[str, ...] | Unread, by_switch: Mapping[str, Mapping[str, list[str]]], hidden: Unread | None
) -> Reading[tuple[PeerPort, ...]]:
    if isinstance(place, Unread):
        return place
    switches = _switches(place)
    found = []
    for switch, port in switches:
        peers = [peer for other, below in by_switch[switch].items() if other != port for peer in below]
        if peers:
            found.append(PeerPort(port, switch, tuple(sorted(peers))))
    return hidden if switches and not found and hidden is not None else tuple(found)


def _switches(place: tuple[str, ...]) -> list[tuple[str, str]]:
    """Upstream and downstream port of each switch on the way, nearest to the GPU first."""
    return list(zip(place[-3::-2], place[-2::-2], strict=False))


def _plain_isolation(desk: Desk, gpus: Iterable[PciGpu]) -> Isolation | None:
    """What says without a look at the ports that redirection is as it should be."""
    for gpu in gpus:
        if isinstance(gpu.driver, str) and any(name in gpu.driver for name in _FOR_GUESTS):
            return Isolation(
                f"this node gives GPUs to virtual machines: {gpu.address} is held by {gpu.driver}", gpu.cite("driver")
            )
    firmware = desk.get(Firmware)
    if isinstance(firmware, Firmware) and firmware.names_hypervisor:
        return Isolation(
            "in a virtual machine the host decides on the ways of peer traffic", firmware.cite("vendor", "product")
        )
    return None


def _isolation(desk: Desk, gpus: Iterable[PciGpu]) -> Reading[Isolation | None]:
    """Whether peer traffic is redirected for a reason: read only where it is redirected."""
    machine = desk.get(VirtualMachine)
    if isinstance(machine, Unread):
        return machine
    if machine.guest:
        return Isolation("in a virtual machine the host decides on the ways of peer traffic", machine.cite("guest"))
    listing = desk.raw.listing(VFIO)
    held = [name for name in listing.names if ":" in name] if isinstance(listing, Listing) else []
    if held:
        return Isolation("this node gives devices to virtual machines", (Evidence(VFIO, ", ".join(held[:4])),))
    if isinstance(desk.raw.entry(VGPU), Entry):
        return Isolation("this node gives virtual GPUs to virtual machines", (Evidence(VGPU, "exists"),))
    unseen = listing if isinstance(listing, Unread) and listing.why is not Why.NOT_RECORDED else None
    for gpu in gpus:
        functions, evidence = number_of(desk.raw, f"{DEVICES}/{gpu.address}/sriov_numvfs")
        if isinstance(functions, int) and functions:
            return Isolation("this node gives virtual functions of its GPUs to virtual machines", (evidence,))
        if isinstance(functions, Unread) and functions.why is not Why.NOT_RECORDED:
            unseen = functions
    return unseen


def _translation(raw: Raw, address: str) -> Cited:
    """The type of the GPU's IOMMU group where it translates."""
    group, _ = iommu_group(raw, address)
    file = raw.read(f"/sys/kernel/iommu_groups/{group}/type") if isinstance(group, int) else None
    if not isinstance(file, TextFile) or file.text.strip() not in TRANSLATED:
        return ()
    return (Evidence(file.where, f"{file.text.strip()}: the IOMMU translates what {address} asks for"),)


def _controls(
    desk: Desk, gpus: PciGpus, ports: Mapping[str, Reading[tuple[PeerPort, ...]]]
) -> tuple[dict[str, Reading[AccessControl | None]], dict[str, Evidence]]:
    """The registers of each port by way of which a GPU answers: the answer came through the port, so reading it does not block."""
    states = desk.get(PciStates)
    answers: dict[str, list[Reading[bool | None]]] = {}
    for gpu in gpus:
        for port in _known(ports[gpu.address]):
            responds = states if isinstance(states, Unread) else states.by_address[gpu.address].responds
            answers.setdefault(port.address, []).append(responds)
    controls: dict[str, Reading[AccessControl | None]] = {}
    seen: dict[str, Evidence] = {}
    for address, below in answers.items():
        path = f"{DEVICES}/{address}/config"
        controls[address] = _control(desk.raw, address, path) if True in below else _mute(path, below)
        seen[address] = _evidence(path, controls[address])
    return controls, seen


def _mute(path: str, below: Iterable[Reading[bool | None]]) -> Unread:
    said = Unread(Why.UNREADABLE, path, "is not read: no GPU below it is known to answer")
    return next((responds for responds in below if isinstance(responds, Unread)), said)


def _control(raw: Raw, port: str, path: str) -> Reading[AccessControl | None]:
    asleep = _asleep(raw, port, path)
    if asleep is not None:
        return asleep
    match file := raw.read(path):
        case TextFile():
            return _parsed(file)
        case Absent():
            return Unread(Why.UNREADABLE, path, file.detail)
        case Unread():
            return file


def _evidence(path: str, control: Reading[AccessControl | None]) -> Evidence:
    match control:
        case AccessControl():
            return Evidence(
                control.where, f"ACSCtl: {control.words} ({control.control:04x} at {control.offset + 6:#x})"
            )
        case None:
            return Evidence(path, "has no Access Control Services")
        case Unread():
            return Evidence(control.where, control.detail)


def _asleep(raw: Raw, port: str, path: str) -> Unread | None:
    """Why the registers of a port are left alone: reading them would wake a sleeping one up (pci_config_pm_runtime_get)."""
    status = raw.read(f"{DEVICES}/{port}/power/runtime_status")
    awake = isinstance(status, TextFile) and status.text.strip() in ("active", "unsupported")
    if awake or isinstance(status, Absent) or (isinstance(status, Unread) and status.why is Why.NOT_RECORDED):
        return None
    return Unread(Why.WITHHELD, path, "reading it would wake the port up", would_need="the GPUs below it in use")


def _parsed(file: TextFile) -> AccessControl | Unread | None:
    config = config_bytes(file.text)
    if config is None:
        return Unread(Why.UNREADABLE, file.where, "has not the length of a configuration space")
    if double_word(config, 0) == ABSENT_READ:
        return Unread(Why.UNREADABLE, file.where, "reads as all ones: the port does not answer")
    if len(config) == HEADER_BYTES:
        said = "shows its first 64 bytes only, the Access Control Services come later"
        return Unread(Why.NO_PERMISSION, file.where, said, would_need="root")
    if len(config) == EXTENDED or double_word(config, EXTENDED) == ABSENT_READ:
        return Unread(Why.UNREADABLE, file.where, "extended configuration space cannot be reached")
    offset = extended_capability(config, ACS)
    return (
        None
        if offset is None
        else AccessControl(offset, word(config, offset + 4), word(config, offset + 6), file.where)
    )
