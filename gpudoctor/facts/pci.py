"""NVIDIA functions on the PCI bus, from sysfs."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gpudoctor.facts.desk import Citable, Desk, Fact, Population, Reading
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

DEVICES = "/sys/bus/pci/devices"
NVIDIA_VENDOR = "0x10de"
_ADDRESS = pattern(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VENDOR = pattern(r"0x[0-9a-f]{4}")
_CLASS = pattern(r"0x[0-9a-f]{6}")
_DRIVER = pattern(r"[\w.-]{1,64}")
DISPLAY_CLASS = "0x03"
"""PCI base class 03h, display controller: VGA (0300h) and 3D (0302h). NVIDIA's audio, USB and NVSwitch functions have others."""
SWITCH_CLASS = "0x0680"
"""PCI class 0680h, other bridge: an NVSwitch (linux_nvswitch.c of open-gpu-kernel-modules, nvswitch_pci_table)."""


class PciGpu(Citable, frozen=True):
    """One GPU as the PCI bus shows it; `address` is sysfs' (domain:bus:device.function, lower case)."""

    address: str
    device_id: str
    class_code: str
    driver: Reading[str | None]
    runtime_status: Reading[str | None]

    @property
    def subject(self) -> Subject:
        """The GPU as a subject."""
        return Subject(SubjectKind.GPU, self.address)

    @property
    def sleeps(self) -> bool:
        """Whether reading its config space or asking NVML about it could wake it up: anything but known to be awake.

        `unsupported` means that runtime power management is off (Documentation/ABI/testing/sysfs-devices-power).
        """
        return self.runtime_status not in ("active", "unsupported", None)

    @property
    def withholds_registers(self) -> bool:
        """Whether reading its registers could wake it up. Where its state was not recorded the reader has only a recording."""
        status = self.runtime_status
        return self.sleeps and not (isinstance(status, Unread) and status.why is Why.NOT_RECORDED)

    def withheld(self, path: str) -> Unread:
        """Why its registers are not read from a path."""
        return Unread(Why.WITHHELD, path, "reading it would wake the GPU up", would_need="the GPU in use")


class NvSwitch(Citable, frozen=True):
    """One NVSwitch as the PCI bus shows it."""

    address: str
    device_id: str
    driver: Reading[str | None]

    @property
    def subject(self) -> Subject:
        """The switch as a subject."""
        return Subject(SubjectKind.NVSWITCH, self.address)


class NvidiaFunctions(Fact, frozen=True):
    """NVIDIA's GPUs and switches among the functions of the bus; `unlisted` says why some may be missing."""

    gpus: tuple[PciGpu, ...]
    switches: tuple[NvSwitch, ...]
    has_bus: bool
    unlisted: Unread | None

    @classmethod
    def gather(cls, desk: Desk) -> "NvidiaFunctions | Unread":
        """Look at the vendor of every PCI function, and closer at NVIDIA's."""
        listing = desk.raw.listing(DEVICES)
        if isinstance(listing, Unread):
            return listing
        if isinstance(listing, Absent):
            return _no_bus(desk.raw, listing)
        gpus: list[PciGpu] = []
        switches: list[NvSwitch] = []
        unlisted = None if listing.complete else _incomplete(listing)
        for name in listing.names:
            match _function(desk.raw, name):
                case PciGpu() as gpu:
                    gpus.append(gpu)
                case NvSwitch() as switch:
                    switches.append(switch)
                case Unread() as unread:
                    unlisted = unread
        said = f"{len(listing.names)} functions, {len(gpus)} of them NVIDIA display controllers"
        return cls(
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.address)),
            switches=tuple(sorted(switches, key=lambda switch: switch.address)),
            has_bus=True,
            unlisted=unlisted,
            read_from={"listing": Evidence(listing.where, said)},
        )


class PciGpus(Population, frozen=True):
    """The NVIDIA display-class functions of the node, by address."""

    NOTHING: ClassVar[str] = "no GPU on the PCI bus"

    gpus: tuple[PciGpu, ...]
    has_bus: bool = True

    @property
    def members(self) -> Sequence[PciGpu]:
        """The GPUs."""
        return self.gpus

    def __iter__(self) -> Iterator[PciGpu]:
        return iter(self.gpus)

    @classmethod
    def gather(cls, desk: Desk) -> "PciGpus | Unread":
        """The GPUs among NVIDIA's functions."""
        found = desk.get(NvidiaFunctions)
        if isinstance(found, Unread):
            return found
        return cls(gpus=found.gpus, has_bus=found.has_bus, unlisted=found.unlisted, read_from=found.read_from)


class NvSwitches(Population, frozen=True):
    """The NVSwitches that are functions of this node's bus, by address."""

    NOTHING: ClassVar[str] = "no NVSwitch on the PCI bus"

    switches: tuple[NvSwitch, ...]

    @property
    def members(self) -> Sequence[NvSwitch]:
        """The switches."""
        return self.switches

    def __iter__(self) -> Iterator[NvSwitch]:
        return iter(self.switches)

    @classmethod
    def gather(cls, desk: Desk) -> "NvSwitches | Unread":
        """The switches among NVIDIA's functions."""
        found = desk.get(NvidiaFunctions)
        if isinstance(found, Unread):
            return found
        return cls(switches=found.switches, unlisted=found.unlisted, read_from=found.read_from)


def _no_bus(raw: Raw, absent: Absent) -> NvidiaFunctions | Unread:
    """Sysfs without a PCI bus is a finding; no sysfs at all is blindness."""
    if isinstance(raw.entry("/sys/bus"), Entry):
        return NvidiaFunctions(
            gpus=(), switches=(), has_bus=False, unlisted=None, read_from={"listing": absent.evidence}
        )
    return Unread(Why.UNREADABLE, DEVICES, "sysfs is not mounted here", would_need="/sys")


def _incomplete(listing: Listing) -> Unread:
    return Unread(
        Why.NOT_RECORDED,
        listing.path,
        "the recording lists at least these functions, perhaps not all",
        would_need="a recording with a complete PCI listing",
    )


def _function(raw: Raw, address: str) -> PciGpu | NvSwitch | Unread | None:
    """The GPU or NVSwitch at an address, None for any other function, `Unread` when it cannot be told."""
    base = f"{DEVICES}/{address}"
    if not _ADDRESS.fullmatch(address):
        return Unread(Why.UNREADABLE, base, "is not named as a PCI function is")
    vendor = _attribute(raw, f"{base}/vendor", _VENDOR)
    if isinstance(vendor, Unread):
        return vendor
    if vendor.text.strip() != NVIDIA_VENDOR:
        return None
    class_code = _attribute(raw, f"{base}/class", _CLASS)
    if isinstance(class_code, Unread):
        return class_code
    if class_code.text.startswith(SWITCH_CLASS):
        return _switch(raw, address, class_code)
    # A virtual function is the host's half of a vGPU: NVML lists the physical one (Documentation/PCI/pci-iov-howto).
    if not class_code.text.startswith(DISPLAY_CLASS) or isinstance(raw.entry(f"{base}/physfn"), Entry):
        return None
    return _gpu(raw, address, vendor, class_code)


def _switch(raw: Raw, address: str, class_code: TextFile) -> NvSwitch:
    base = f"{DEVICES}/{address}"
    device_id, id_evidence = _device_id(raw, base)
    driver, driver_evidence = _driver(raw, base)
    return NvSwitch(
        address=address.lower(),
        device_id=device_id,
        driver=driver,
        read_from={
            "class_code": Evidence(class_code.where, class_code.text.strip()),
            "device_id": id_evidence,
            "driver": driver_evidence,
        },
    )


def _gpu(raw: Raw, address: str, vendor: TextFile, class_code: TextFile) -> PciGpu:
    base = f"{DEVICES}/{address}"
    device_id, id_evidence = _device_id(raw, base)
    driver, driver_evidence = _driver(raw, base)
    status, status_evidence = _runtime_status(raw, base)
    return PciGpu(
        address=address.lower(),
        device_id=device_id,
        class_code=class_code.text.strip(),
        driver=driver,
        runtime_status=status,
        read_from={
            "vendor": Evidence(vendor.where, vendor.text.strip()),
            "class_code": Evidence(class_code.where, class_code.text.strip()),
            "device_id": id_evidence,
            "driver": driver_evidence,
            "runtime_status": status_evidence,
        },
    )


def _device_id(raw: Raw, base: str) -> tuple[str, Evidence]:
    device = _attribute(raw, f"{base}/device", _VENDOR)
    text = "unknown" if isinstance(device, Unread) else device.text.strip()
    return text.removeprefix("0x"), Evidence(device.where, text)


def _attribute(raw: Raw, path: str, form: "re.Pattern[str]") -> TextFile | Unread:
    """A one-line sysfs attribute that every PCI function has."""
    file = raw.read(path)
    if isinstance(file, Absent):
        return Unread(Why.UNREADABLE, path, "every PCI function has this attribute, here it is missing")
    if isinstance(file, TextFile) and not form.fullmatch(file.text.strip()):
        return Unread(Why.UNREADABLE, path, f"holds {file.text.strip()[:40]!r}, not {form.pattern}")
    return file


def _driver(raw: Raw, base: str) -> tuple[Reading[str | None], Evidence]:
    path = f"{base}/driver"
    entry = raw.entry(path)
    if isinstance(entry, Absent):
        return None, Evidence(entry.where, f"no driver is bound to {base.rsplit('/', 1)[-1]}")
    if isinstance(entry, Unread):
        return entry, Evidence(path, entry.detail)
    if entry.type is not EntryType.LINK or entry.to is None:
        return Unread(Why.UNREADABLE, path, f"is a {entry.type.words}, not a link"), Evidence(path, entry.type.value)
    driver = entry.to.rstrip("/").rsplit("/", 1)[-1]
    if not _DRIVER.fullmatch(driver):
        return Unread(Why.UNREADABLE, path, f"leads to {entry.to!r}, which names no driver"), Evidence(path, entry.to)
    return driver, Evidence(entry.where, f"Kernel driver in use: {driver}" if entry.origin else f"-> {entry.to}")


def _runtime_status(raw: Raw, base: str) -> tuple[Reading[str | None], Evidence]:
    path = f"{base}/power/runtime_status"
    file = raw.read(path)
    match file:
        case TextFile():
            return file.text.strip(), Evidence(file.where, file.text.strip())
        case Absent():
            return None, file.evidence
        case Unread():
            return file, Evidence(path, file.detail)
