"""How many errors ECC found in a GPU's memory and where, out of the fields of its NVML answer.

DRAM is the memory beside the chip, SRAM the caches and register files on it. nvidia-smi counts on the chip as one sum from Turing on,
by kind of memory before (nvml.h, nvmlMemoryLocation_t); under MIG it tells a count of each MIG device as well.
"""

from typing import Literal

from msgspec import Struct

from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.verdicts import Cited, Evidence

Since = Literal["volatile", "aggregate"]
"""Volatile counts begin anew when the driver is loaded, aggregate ones last for the board's life (nvml.h, nvmlEccCounterType_t)."""
Outcome = Literal["corrected", "uncorrected"]

_ON_CHIP = ("register_file", "l1_cache", "l2_cache", "texture_memory", "cbu")


class EccCount(Struct, frozen=True):
    """Errors by place; `elsewhere` are those of the sum that no place accounts for."""

    dram: int
    on_chip: int
    elsewhere: int
    evidence: Cited

    @property
    def total(self) -> int:
        """All of them."""
        return self.dram + self.on_chip + self.elsewhere

    @property
    def places(self) -> str:
        """`1 in DRAM, 2 on the chip (SRAM)`; "" where nothing was counted."""
        counts = (
            (self.dram, "in DRAM"),
            (self.on_chip, "on the chip (SRAM)"),
            (self.elsewhere, "in memory that is not named"),
        )
        return ", ".join(f"{count} {place}" for count, place in counts if count)


def ecc_count(device: NvmlDevice, since: Since, outcome: Outcome) -> EccCount | None:
    """What was counted, None where no counter was told. Evidence are the counters that are not zero, else one that is."""
    told: dict[str, int] = {}

    def read(name: str) -> int:
        value = device.fields.get(name)
        if not isinstance(value, int):
            return 0
        told[name] = value
        return value

    total = read(f"ecc.{since}.{outcome}")
    dram = read(f"ecc.{since}.dram.{outcome}")
    sram = read(f"ecc.{since}.sram.{outcome}")
    if outcome == "uncorrected":
        kinds = read(f"ecc.{since}.sram.uncorrected_parity") + read(f"ecc.{since}.sram.uncorrected_secded")
        sram = max(sram, kinds)
    on_chip = max(sram, sum(read(f"ecc.{since}.{place}.{outcome}") for place in _ON_CHIP))
    in_mig, of_mig = _of_mig(device) if since == "volatile" and outcome == "uncorrected" else (0, ())
    if not told and not of_mig:
        return None
    on_chip = max(on_chip, in_mig)
    shown = [name for name, count in told.items() if count] or list(told)[:1]
    evidence = tuple(device.evidence(name) for name in shown)
    return EccCount(dram, on_chip, max(total - dram - on_chip, 0), evidence + of_mig)


def _of_mig(device: NvmlDevice) -> tuple[int, Cited]:
    """Uncorrectable SRAM errors of the MIG devices, and those that counted any."""
    counted = [mig for mig in device.mig_devices if mig.ecc_uncorrected_sram]
    where = f"{device.via} ({device.address or device.uuid})"
    return sum(mig.ecc_uncorrected_sram or 0 for mig in counted), tuple(
        Evidence(where, f"MIG device {mig.index}: ecc_uncorrected_sram: {mig.ecc_uncorrected_sram}") for mig in counted
    )
