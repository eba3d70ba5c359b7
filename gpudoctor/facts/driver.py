"""The loaded NVIDIA kernel driver: whether, which version, and the GPUs it lists."""

import re
from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

MODULES = "/proc/modules"
SYS_MODULE = "/sys/module/nvidia"
VERSION = "/proc/driver/nvidia/version"
GPUS = "/proc/driver/nvidia/gpus"
PARAMS = "/proc/driver/nvidia/params"

# "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  …" and, from the open modules,
# "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build  (…)".
_VERSION = pattern(r"^NVRM version:.*?Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", re.MULTILINE)


class NvidiaModule(Fact, frozen=True):
    """The `nvidia` kernel module of the running kernel; `mute` is why a loaded one does not say its version and flavour."""

    loaded: bool
    version: str | None
    is_open: bool | None
    mute: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "NvidiaModule | Unread":
        """From /proc/modules; a kernel without module support has none, then sysfs decides."""
        loaded, evidence = _loaded(desk.raw)
        if isinstance(loaded, Unread):
            return loaded
        file = desk.raw.read(VERSION)
        version, is_open, version_evidence = _version(file)
        return cls(
            loaded=loaded,
            version=version,
            is_open=is_open,
            mute=file if loaded and isinstance(file, Unread) else None,
            read_from={"loaded": evidence, "version": version_evidence, "is_open": version_evidence},
        )


class DriverGpu(Citable, frozen=True):
    """What the driver says of one GPU in /proc/driver/nvidia/gpus/ADDRESS/information."""

    address: str
    minor: int | None
    model: str | None
    uuid: str | None
    firmware: str | None
    excluded: bool
    initialised: bool
    vbios: str | None


class DriverGpus(Fact, frozen=True):
    """The GPUs the driver lists, by PCI address; a GPU it does not hold is `Absent` there. `unlisted` is why the bus may have others."""

    gpus: Mapping[str, DriverGpu | Absent | Unread]
    unlisted: Unread | None = None

    @property
    def unseen(self) -> Unread | None:
        """Why a minor, a UUID or a model that none of them has may be a GPU's all the same."""
        return self.unlisted or next((gpu for gpu in self.gpus.values() if isinstance(gpu, Unread)), None)

    @classmethod
    def gather(cls, desk: Desk) -> "DriverGpus | Unread":
        """One information file for each GPU on the bus."""
        pci = desk.get(PciGpus)
        if isinstance(pci, Unread):
            return pci
        return cls(gpus={gpu.address: _driver_gpu(desk.raw, gpu.address) for gpu in pci}, unlisted=pci.unlisted)


def hidden_gpus(driver: Reading[DriverGpus]) -> Unread | None:
    """Why GPUs may be here of which nothing is known; that a recording does not hold them is no reason."""
    unread = driver if isinstance(driver, Unread) else driver.unseen
    return None if unread is None or unread.why is Why.NOT_RECORDED else unread


def _loaded(raw: Raw) -> tuple[Reading[bool], Evidence]:
    modules = raw.read(MODULES)
    if isinstance(modules, TextFile):
        line = next((line for line in modules.text.splitlines() if line.startswith("nvidia ")), None)
        # The fifth word is the state: a module whose initialisation hangs stays Loading (proc_modules(5)).
        live = line is not None and " Loading " not in line and " Unloading " not in line
        return live, Evidence(MODULES, line or "no line for nvidia")
    if isinstance(modules, Absent):
        entry = raw.entry(SYS_MODULE)
        if isinstance(entry, Unread):
            return entry, Evidence(SYS_MODULE, entry.detail)
        exists = isinstance(entry, Entry)
        return exists, Evidence(SYS_MODULE, "exists" if exists else "does not exist, nor does /proc/modules")
    return modules, Evidence(MODULES, modules.detail)


def _version(file: TextFile | Absent | Unread) -> tuple[str | None, bool | None, Evidence]:
    if not isinstance(file, TextFile):
        return None, None, Evidence(VERSION, file.detail)
    found = _VERSION.search(file.text)
    first = file.text.partition("\n")[0]
    return (found[1] if found else None), ("Open Kernel Module" in first if found else None), Evidence(VERSION, first)


class DriverParameters(Fact, frozen=True):
    """/proc/driver/nvidia/params: the registry keys in force, names without `NVreg_`, numbers in decimal; empty without the driver."""

    values: Mapping[str, str]

    @classmethod
    def gather(cls, desk: Desk) -> "DriverParameters | Unread":
        """Lines of `Name: value`, strings in quotes."""
        file = desk.raw.read(PARAMS)
        if isinstance(file, Unread):
            return file
        if isinstance(file, Absent):
            return cls(values={}, read_from={"values": file.evidence})
        return cls(values=dict(_fields(file.text)), read_from={"values": Evidence(PARAMS, "lists the registry keys")})

    def number(self, name: str) -> int | None:
        """A numeric value."""
        return decimal(self.values.get(name, ""))

    def evidence(self, name: str) -> Evidence:
        """The line of one value."""
        return Evidence(PARAMS, f"{name}: {self.values.get(name, 'not listed')}")


def _driver_gpu(raw: Raw, address: str) -> DriverGpu | Absent | Unread:
    path = f"{GPUS}/{address}/information"
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return file
    fields = dict(_fields(file.text))
    minor = fields.get("Device Minor", "")
    if not fields:
        return Unread(Why.UNREADABLE, path, "holds no fields")
    video_bios = Evidence(path, f"Video BIOS: {fields.get('Video BIOS', 'not listed')}")
    return DriverGpu(
        address=address,
        minor=decimal(minor),
        model=_known(fields.get("Model")),
        uuid=_known(fields.get("GPU UUID")),
        firmware=None if fields.get("GPU Firmware") in (None, "N/A") else fields["GPU Firmware"],
        # Older drivers call it Blacklisted (nv-procfs.c).
        excluded=(fields.get("GPU Excluded") or fields.get("Blacklisted")) == "Yes",
        initialised=_known(fields.get("Video BIOS")) is not None,
        vbios=_known(fields.get("Video BIOS")),
        read_from={
            "minor": Evidence(path, f"Device Minor: {minor or 'not listed'}"),
            "firmware": Evidence(path, f"GPU Firmware: {fields.get('GPU Firmware', 'not listed')}"),
            "excluded": Evidence(
                path, f"GPU Excluded: {fields.get('GPU Excluded', fields.get('Blacklisted', 'not listed'))}"
            ),
            "initialised": video_bios,
            "vbios": video_bios,
        },
    )


def _fields(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _known(value: str | None) -> str | None:
    """The driver prints `Unknown` and question marks for a GPU it could not initialise."""
    return value if value and value != "Unknown" and "?" not in value else None
