"""NVIDIA functions on the PCI bus, from sysfs."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gpudoctor.facts.desk import Citable, Desk, Population, Reading
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

DEVICES = "/sys/bus/pci/devices"
NVIDIA_VENDOR = "0x10de"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VENDOR = re.compile(r"0x[0-9a-f]{4}")
_CLASS = re.compile(r"0x[0-9a-f]{6}")
_DRIVER = re.compile(r"[\w.-]{1,64}")
DISPLAY_CLASS = "0x03"
"""PCI base class 03h, display controller: VGA (0300h) and 3D (0302h). NVIDIA's audio, USB and NVSwitch functions have others."""


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
        """Look at vendor and class of every PCI function, and closer at the GPUs."""
        listing = desk.raw.listing(DEVICES)
        if isinstance(listing, Unread):
            return listing
        if isinstance(listing, Absent):
            return _no_bus(desk.raw, listing)
        gpus: list[PciGpu] = []
        unlisted = None if listing.complete else _incomplete(listing)
        for name in listing.names:
            gpu = _gpu(desk.raw, name)
            if isinstance(gpu, PciGpu):
                gpus.append(gpu)
            elif isinstance(gpu, Unread):
                unlisted = gpu
        said = f"{len(listing.names)} functions, {len(gpus)} of them NVIDIA display controllers"
        return cls(
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.address)),
            unlisted=unlisted,
            read_from={"listing": Evidence(listing.where, said)},
        )


def _no_bus(raw: Raw, absent: Absent) -> "PciGpus | Unread":
    """Sysfs without a PCI bus is a finding; no sysfs at all is blindness."""
    if isinstance(raw.entry("/sys/bus"), Entry):
        return PciGpus(gpus=(), has_bus=False, read_from={"listing": absent.evidence})
    return Unread(Why.UNREADABLE, DEVICES, "sysfs is not mounted here", would_need="/sys")


def _incomplete(listing: Listing) -> Unread:
    return Unread(
        Why.NOT_RECORDED,
        listing.path,
        "the recording lists at least these functions, perhaps not all",
        would_need="a recording with a complete PCI listing",
    )


def _gpu(raw: Raw, address: str) -> PciGpu | Unread | None:
    """The GPU at an address, None for any other function, `Unread` when it cannot be told."""
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
    if not class_code.text.startswith(DISPLAY_CLASS):
        return None
    # A virtual function is the host's half of a vGPU: NVML lists the physical one (Documentation/PCI/pci-iov-howto).
    if isinstance(raw.entry(f"{base}/physfn"), Entry):
        return None
    device = _attribute(raw, f"{base}/device", _VENDOR)
    driver, driver_evidence = _driver(raw, base)
    status, status_evidence = _runtime_status(raw, base)
    return PciGpu(
        address=address.lower(),
        device_id="unknown" if isinstance(device, Unread) else device.text.strip().removeprefix("0x"),
        class_code=class_code.text.strip(),
        driver=driver,
        runtime_status=status,
        read_from={
            "vendor": Evidence(vendor.where, vendor.text.strip()),
            "class_code": Evidence(class_code.where, class_code.text.strip()),
            "device_id": Evidence(f"{base}/device", "unknown" if isinstance(device, Unread) else device.text.strip()),
            "driver": driver_evidence,
            "runtime_status": status_evidence,
        },
    )


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
