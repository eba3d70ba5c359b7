"""What a GPU's own registers and the PCI core say of it: config header, memory regions, error counters, power state."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.pci import DEVICES, PciGpu, PciGpus
from gpudoctor.facts.pci_config import unescaped
from gpudoctor.facts.raw import Absent, Raw, TextFile, decimal
from gpudoctor.verdicts import Evidence, Unread, Why

ALL_ONES = "\\xff\\xff\\xff\\xff"
"""How four bytes of ff appear in text; a read that no device answers gives all ones (PCI Local Bus Specification, master abort)."""

VENDOR_BYTES = b"\xde\x10"
"""NVIDIA's vendor id, little-endian, as configuration space begins."""

DEAD_WIDTH = 63
"""The six bits of the link width, all set (PCI Express Base Specification, Link Status Register)."""


IORESOURCE_MEM = 0x200
"""The kernel's flag for memory; I/O ports have 0x100 (include/linux/ioport.h)."""


class Region(Citable, frozen=True):
    """One base address register: its range in bytes, and the kernel's flags for it (0 when there is no such region)."""

    number: int
    start: int
    end: int
    flags: int

    @property
    def size(self) -> int:
        """Bytes, 0 without a place."""
        return 0 if self.empty else self.end - self.start + 1

    @property
    def empty(self) -> bool:
        """It has no place, if it exists at all: what the kernel could not place begins at zero, with or without its size."""
        return self.start == 0

    @property
    def unassigned(self) -> bool:
        """It exists, is of memory, and has no place; the driver does not use its I/O ports (nv-pci.c, nv_pci_validate_bars)."""
        return self.flags & IORESOURCE_MEM != 0 and self.empty


class PciState(Citable, frozen=True):
    """One GPU. `responds` is None when neither config space nor link could be read; counters are uncorrectable errors."""

    address: str
    responds: Reading[bool | None]
    regions: Reading[tuple[Region, ...] | None]
    fatal_errors: Reading[int | None]
    nonfatal_errors: Reading[int | None]
    power_state: str | None


class PciStates(Fact, frozen=True):
    """The state of each GPU by address."""

    by_address: Mapping[str, PciState]

    @classmethod
    def gather(cls, desk: Desk) -> "PciStates | Unread":
        """Config space is read only of GPUs that are awake, and where a dead one cannot hold the doctor."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        paths = tuple(f"{DEVICES}/{gpu.address}/config" for gpu in gpus if not gpu.withholds_registers)
        configs = desk.raw.read_blocking(paths)
        return cls(by_address={gpu.address: _state(desk.raw, gpu, configs) for gpu in gpus})


def _state(raw: Raw, gpu: PciGpu, configs: Mapping[str, TextFile | Absent | Unread]) -> PciState:
    base = f"{DEVICES}/{gpu.address}"
    responds, responds_evidence = _responds(raw, gpu, base, configs)
    regions, regions_evidence = _regions(raw, f"{base}/resource")
    fatal, fatal_evidence = errors_counted(raw, f"{base}/aer_dev_fatal", "TOTAL_ERR_FATAL")
    nonfatal, nonfatal_evidence = errors_counted(raw, f"{base}/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL")
    power, power_evidence = _line(raw, f"{base}/power_state")
    return PciState(
        address=gpu.address,
        responds=responds,
        regions=regions,
        fatal_errors=fatal,
        nonfatal_errors=nonfatal,
        power_state=power,
        read_from={
            "responds": responds_evidence,
            "regions": regions_evidence,
            "fatal_errors": fatal_evidence,
            "nonfatal_errors": nonfatal_evidence,
            "power_state": power_evidence,
        },
    )


def _responds(
    raw: Raw, gpu: PciGpu, base: str, configs: Mapping[str, TextFile | Absent | Unread]
) -> tuple[Reading[bool | None], Evidence]:
    """All ones in config space, or a link of width 63, say that nobody answers; any other header that somebody does."""
    if gpu.withholds_registers:
        return gpu.withheld(f"{base}/config"), Evidence(f"{base}/config", "not read: the GPU is not active")
    config = configs[f"{base}/config"]
    if isinstance(config, TextFile) and config.text:
        dead = config.text.startswith(ALL_ONES)
        if not dead and unescaped(config.text)[:2] != VENDOR_BYTES:
            begins = unescaped(config.text)[:8].hex(" ")
            odd = Unread(Why.UNREADABLE, f"{base}/config", f"begins with {begins}, not with NVIDIA's vendor id de 10")
            return odd, Evidence(config.where, begins)
        shows = "ff ff ff ff: nobody answers" if dead else f"begins with {unescaped(config.text)[:8].hex(' ')}"
        return not dead, Evidence(config.where, shows)
    if isinstance(config, Unread) and config.why is Why.TIMED_OUT:
        return config, Evidence(config.where, config.detail)
    width, evidence = _line(raw, f"{base}/current_link_width")
    lanes = decimal(width or "")
    if lanes is not None:
        return lanes != DEAD_WIDTH, evidence
    return (config if isinstance(config, Unread) else None), evidence


def _regions(raw: Raw, path: str) -> tuple[Reading[tuple[Region, ...] | None], Evidence]:
    """Lines of start, end and flags; the first six are the base address registers (Documentation/PCI/sysfs-pci.rst)."""
    file = raw.read(path)
    if isinstance(file, Unread):
        return file, Evidence(path, file.detail)
    if isinstance(file, Absent):
        return None, file.evidence
    regions = []
    for number, line in enumerate(file.text.splitlines()[:6]):
        try:
            start, end, flags = (int(word, 16) for word in line.split())
        except ValueError:
            return Unread(Why.UNREADABLE, path, f"line {number + 1} is {line!r}"), Evidence(path, line)
        seen = {"region": Evidence(file.where, f"region {number}: {line.strip()}")}
        regions.append(Region(number=number, start=start, end=end, flags=flags, read_from=seen))
    return tuple(regions), Evidence(file.where, file.text.strip().replace("\n", "; ")[:200])


def errors_counted(raw: Raw, path: str, name: str) -> tuple[Reading[int | None], Evidence]:
    """The kernel's sum of one kind of AER error since boot, None where it counts none.

    Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats.
    """
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return (file if isinstance(file, Unread) else None), Evidence(path, file.detail)
    counts = {words[0]: words[-1] for line in file.text.splitlines() if len(words := line.split()) == 2}
    counted = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count not in ("0", ""))
    total = counts.get(name, "")
    return decimal(total), Evidence(file.where, counted or f"{name} {total}")


def _line(raw: Raw, path: str) -> tuple[str | None, Evidence]:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return None, Evidence(path, file.detail)
    return file.text.strip(), Evidence(file.where, file.text.strip())
