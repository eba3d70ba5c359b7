"""What went wrong on a GPU, by the name of its counter, in words: only what is not zero."""

from collections.abc import Iterator
from typing import Literal

from gpudoctor.facts.ecc_counts import ecc_count
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci_state import PciState

_SINCE: tuple[tuple[Literal["volatile", "aggregate"], str], ...] = (
    ("volatile", "since the driver was loaded"),
    ("aggregate", "in the board's lifetime"),
)
_OUTCOMES: tuple[Literal["uncorrected", "corrected"], ...] = ("uncorrected", "corrected")
_FLAGS = {
    "ecc.sram_threshold_exceeded": "more SRAM errors than the board may have",
    "ecc.channel_repair_pending": "the repair of a memory channel waits for a reset",
    "ecc.tpc_repair_pending": "the repair of a TPC waits for a reset",
    "ecc.unrepairable_memory": "memory that cannot be repaired",
    "row_remap.failed": "a row could not be remapped",
    "row_remap.pending": "a remapped row waits for a reset",
    "retired_pages.pending": "a retired page waits for a reset",
    "reset_required": "the driver asks for a reset",
    "drain_and_reset_recommended": "the driver asks for a reset once its work is done",
}
_COUNTS = {
    "row_remap.uncorrected": "rows remapped for uncorrectable errors",
    "row_remap.corrected": "rows remapped for correctable errors",
    "retired_pages.double_bit": "pages retired for double-bit errors",
    "retired_pages.single_bit": "pages retired for single-bit errors",
    "pcie.replays": "PCIe replays",
    "pcie.replay_rollovers": "PCIe replay rollovers",
    "pcie.errors.fatal": "fatal PCIe errors",
    "pcie.errors.non_fatal": "non-fatal PCIe errors",
    "pcie.errors.correctable": "correctable PCIe errors",
}
"""Since the driver was loaded, but for retired pages and remapped rows, which last (nvml.h)."""
_MOST_LINKS = 6


def counters(
    device: NvmlDevice | None, state: PciState | None, logged: GpuErrors | None, address: str
) -> dict[str, str]:
    """By NVML's names, and `xid.…`, `aer.…` and `nvlink.…` for what others count."""
    found: dict[str, str] = dict(_of_log(logged, address)) if logged is not None else {}
    if device is not None:
        found.update(_of_memory(device))
        found.update((name, words) for name, words in _FLAGS.items() if device.fields.get(name) is True)
        found.update(_counted(device))
        found.update(_of_nvlinks(device))
        if device.recovery:
            found["recovery_action"] = f"the driver asks for: {device.recovery.replace('_', ' ')}"
    if state is not None:
        for name, words, count in (
            ("aer.fatal", "fatal", state.fatal_errors),
            ("aer.nonfatal", "non-fatal", state.nonfatal_errors),
        ):
            if isinstance(count, int) and count:
                found[name] = f"{words} PCIe errors counted by the kernel (AER): {count}"
    return found


def counted_any(device: NvmlDevice) -> bool:
    """Whether it told of any counter, so that it was zero where nothing is listed."""
    return (
        any(isinstance(device.fields.get(name), int) for name in _COUNTS)
        or any(ecc_count(device, since, outcome) is not None for since, _ in _SINCE for outcome in _OUTCOMES)
        or any(link.errors for link in device.nvlinks)
    )


def _of_log(logged: GpuErrors, address: str) -> Iterator[tuple[str, str]]:
    """How often the kernel log has each Xid of the GPU."""
    counts: dict[int, int] = {}
    for trouble in logged.of(address) if address else ():
        for fold in (*trouble.folds, *trouble.aftermath):
            counts[fold.code] = counts.get(fold.code, 0) + fold.count
    for code, count in counts.items():
        yield f"xid.{code}", f"Xid {code}: {count} {logged.span}"


def _of_memory(device: NvmlDevice) -> Iterator[tuple[str, str]]:
    for since, when in _SINCE:
        for outcome in _OUTCOMES:
            count = ecc_count(device, since, outcome)
            if count is not None and count.total:
                yield f"ecc.{since}.{outcome}", f"{count.total} {when}: {count.places}"


def _counted(device: NvmlDevice) -> Iterator[tuple[str, str]]:
    for name, words in _COUNTS.items():
        count = device.fields.get(name)
        if isinstance(count, int) and count > 0:
            yield name, f"{words}: {count}"


def _of_nvlinks(device: NvmlDevice) -> Iterator[tuple[str, str]]:
    """Each kind of error summed over the links, with those that had it."""
    by_kind: dict[str, dict[int, int]] = {}
    for link in device.nvlinks:
        for kind, count in link.errors.items():
            if count > 0:
                by_kind.setdefault(kind, {})[link.link] = count
    for kind, counts in by_kind.items():
        numbers = sorted(counts)
        more = f" and {len(numbers) - _MOST_LINKS} more" if len(numbers) > _MOST_LINKS else ""
        which = ", ".join(map(str, numbers[:_MOST_LINKS]))
        word = "link" if len(numbers) == 1 else "links"
        yield f"nvlink.{kind}", f"{sum(counts.values())} on {word} {which}{more}"
