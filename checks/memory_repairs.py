"""Health: how a GPU's memory repairs itself, by spare rows, retired pages and spare channels, and where that ends."""

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.ecc_counts import EccCount, ecc_count
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.registry import check
from gpudoctor.verdicts import Breaks, Cited, Fail, Pass, Verdict, Verdicts, Warn

PENDING, FAILED, SPARES = "health.row-remap-pending", "health.row-remap-failed", "health.row-remap-spares"
PAGES, REPAIR = "health.retired-pages", "health.memory-repair"

_REMAP_PENDING, _REMAP_FAILED = "row_remap.pending", "row_remap.failed"
_CORRECTED, _UNCORRECTED = "row_remap.corrected", "row_remap.uncorrected"
_BUCKETS = tuple(f"row_remap.histogram.{bucket}" for bucket in ("max", "high", "partial", "low", "none"))
_NONE, _LOW = _BUCKETS[-1], _BUCKETS[-2]
_SINGLE, _DOUBLE, _PAGES_PENDING = "retired_pages.single_bit", "retired_pages.double_bit", "retired_pages.pending"
_CHANNEL, _TPC, _UNREPAIRABLE = "ecc.channel_repair_pending", "ecc.tpc_repair_pending", "ecc.unrepairable_memory"
_REPAIRS = ((_CHANNEL, "a memory channel"), (_TPC, "a TPC"))


def _number(device: NvmlDevice, name: str) -> int | None:
    value = device.fields.get(name)
    return value if isinstance(value, int) else None


def _none_uncorrectable(count: EccCount | None) -> bool:
    """Whether DRAM is known to have had no uncorrectable error since the driver was loaded."""
    return count is not None and not count.dram and not count.elsewhere


@check(FAILED, link=Link.HEALTH, over=PciGpus, isolates=True, title="No row of the GPU's memory failed to be remapped")
def row_remap_failed(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """A row that cannot be replaced stays bad: the flag is what NVIDIA exchanges a board for, once its field diagnostic confirms it.

    It is set when a bank has no spare row left (eight are remapped), when a row fails that was remapped already, and after 512
    remappings (NVIDIA GPU Memory Error Management, "GPU DRAM Memory RMA Policy"); the kernel log tells the moment as Xid 64. It
    stays set after resets and reboots. A remapping that only waits for a reset is not this.
    """
    return judged(gpus, nvml, _failed)


def _failed(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    failed = device.fields.get(_REMAP_FAILED)
    if not isinstance(failed, bool):
        return untold(gpu, device, (_REMAP_FAILED,), "remapping of rows")
    evidence = cited(device, (_REMAP_FAILED, _UNCORRECTED))
    if not failed:
        return Pass(gpu, "no remapping has failed", evidence)
    from gpudoctor.knowledge.memory_remedies import exchange

    remedies = exchange(FAILED, gpu.address, "A bad row stays in use.")
    return Fail(gpu, "a bad row of its memory could not be remapped: RMA", evidence, remedies, Breaks.SUBJECT)


@check(
    PENDING,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(FAILED, "health.memory-unrepairable", "health.ecc-uncorrected"),
    title="No row of the GPU's memory waits to be remapped",
)
def row_remap_pending(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """A bad row of DRAM is replaced by a spare one, but only while the GPU is reset (nvml.h, nvmlDeviceGetRemappedRows).

    Until then its page is kept out of use, so running and new work goes on (NVIDIA GPU Memory Error Management, "Dynamic Page
    Offlining"); boards with GDDR have no such offlining in the guide's Table 1 (GA10x, AD10x). So this warns; where the error
    itself is still counted, a reset is due and health.ecc-uncorrected says so. A remapping that is done (rows counted, nothing
    pending) is no fault.
    """
    return judged(gpus, nvml, _pending)


def _pending(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    pending = device.fields.get(_REMAP_PENDING)
    if not isinstance(pending, bool):
        return untold(gpu, device, (_REMAP_PENDING,), "remapping of rows")
    evidence = cited(device, (_REMAP_PENDING, _CORRECTED, _UNCORRECTED))
    if not pending:
        return Pass(gpu, _remapped(device), evidence)
    from gpudoctor.knowledge.memory_remedies import reset

    count = ecc_count(device, "volatile", "uncorrected")
    remedies = reset(PENDING, gpu.address, "The row is replaced while the GPU is reset; new work may run until then.")
    only_corrected = _none_uncorrectable(count) and _number(device, _CORRECTED) and not _number(device, _UNCORRECTED)
    what = "a row of its memory with corrected errors" if only_corrected else "a bad row of its memory"
    seen = count.evidence if count is not None else ()
    flagged = device.fields.get(_REMAP_FAILED) is True or device.fields.get(_UNREPAIRABLE) is True
    # An error on the chip has no row.
    own = _none_uncorrectable(count) and not flagged
    return Warn(gpu, f"{what} waits for a reset to be remapped", evidence + seen, remedies, own_fault=own)


def _remapped(device: NvmlDevice) -> str:
    corrected, uncorrected = _number(device, _CORRECTED) or 0, _number(device, _UNCORRECTED) or 0
    if not corrected + uncorrected:
        return "none waits, and none was ever remapped"
    return f"none waits; remapped so far: {uncorrected} after uncorrectable, {corrected} after corrected errors"


@check(
    SPARES,
    link=Link.HEALTH,
    over=PciGpus,
    explained_by=(FAILED, "health.memory-unrepairable"),
    title="Every bank of the GPU's memory has spare rows",
)
def row_remap_spares(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """A bank without a spare row takes the next bad row no more: the remapping fails, and the board must be exchanged.

    nvml.h sorts the banks by what is left of their reserved rows, "none" being those with nothing left
    (nvmlRowRemapperHistogramValues_t); the driver then logs "All reserved rows for bank are remapped" at the next error. DCGM
    warns at 512 rows remapped after uncorrectable errors, where remapping ends for the whole GPU. Banks that are only low still
    work, and are told.
    """
    limit = limits.of("memory_remapped_rows")
    return judged(gpus, nvml, lambda gpu, device: _spares(gpu, device, limits, limit))


def _spares(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, limit: float) -> Verdict:
    empty, low, rows = _number(device, _NONE), _number(device, _LOW), _number(device, _UNCORRECTED)
    if empty is None and rows is None:
        return untold(gpu, device, (*_BUCKETS, _UNCORRECTED), "spare rows")
    evidence = cited(device, (_NONE, _UNCORRECTED))
    found = [f"{empty} {'bank has' if empty == 1 else 'banks have'} no spare row left"] if empty else []
    cite: Cited = ()
    if rows is not None and rows >= limit:
        found.append(f"{rows} rows were remapped after uncorrectable errors, of {limit:g} that can be")
        cite = limits.cite("memory_remapped_rows")
    if not found:
        rest = f"; {low} are low" if low else ""
        told = f"no bank is without one{rest}" if empty is not None else f"{rows} of {limit:g} rows remapped"
        return Pass(gpu, told, evidence + (cited(device, (_LOW,)) if low else ()))
    from gpudoctor.knowledge.memory_remedies import plan_exchange

    remedies = plan_exchange(SPARES, gpu.address, "It works, but the next bad row there cannot be replaced.")
    return Warn(gpu, " and ".join(found), evidence + cite, remedies)


@check(
    PAGES,
    link=Link.HEALTH,
    over=PciGpus,
    explained_by=("health.ecc-uncorrected",),
    title="Few pages of the GPU's memory are retired, and none waits for it",
)
def retired_pages(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """GPUs before Ampere put bad pages aside for ever: after one double bit error, or two single bit errors at one address.

    The page leaves use when the GPU starts anew; after a double bit error no program can start on the GPU before that (NVIDIA
    Dynamic Page Retirement, "Use Case 1"), after single bit errors everything works. There is room for about 256 KiB of pages;
    DCGM fails from 63 on, to match NVIDIA's field diagnostic (DcgmGPUHardwareLimits.h). More than 15 pages after double bit
    errors fail there when a week adds more than one, which a single look cannot tell: a warning here. Ampere and later remap
    rows instead.
    """
    most, doubles = limits.of("memory_retired_pages"), limits.of("memory_retired_pages_double_bit")
    return judged(gpus, nvml, lambda gpu, device: _pages(gpu, device, limits, most, doubles))


def _pages(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, most: float, doubles: float) -> Verdict:
    single, double, pending = _number(device, _SINGLE), _number(device, _DOUBLE), device.fields.get(_PAGES_PENDING)
    if single is None and double is None and not isinstance(pending, bool):
        return untold(gpu, device, (_SINGLE, _DOUBLE, _PAGES_PENDING), "retired pages")
    evidence = cited(device, (_SINGLE, _DOUBLE, _PAGES_PENDING))
    of_single, of_double = single or 0, double or 0
    count = f"{of_single + of_double} retired pages, {of_double} of them after double bit errors"
    if of_single + of_double >= most:
        from gpudoctor.knowledge.memory_remedies import exchange

        remedies = exchange(PAGES, gpu.address, "Hardly another page can be retired.")
        evidence += limits.cite("memory_retired_pages")
        return Fail(gpu, f"{count}: RMA", evidence, remedies, Breaks.SUBJECT, own_fault=True)
    if pending is True:
        return _page_waits(gpu, device, harmless=double == 0)
    if of_double > doubles:
        from gpudoctor.knowledge.memory_remedies import plan_exchange

        why = "If a week adds more than one, the board is to be exchanged."
        remedies = plan_exchange(PAGES, gpu.address, why)
        evidence += limits.cite("memory_retired_pages_double_bit")
        return Warn(gpu, count, evidence, remedies, own_fault=True)
    return Pass(gpu, count if of_single + of_double else "none is retired, and none waits", evidence)


def _page_waits(gpu: PciGpu, device: NvmlDevice, *, harmless: bool) -> Verdict:
    """`harmless`: no page was ever retired after a double bit error."""
    from gpudoctor.knowledge.memory_remedies import reset

    remedies = reset(PAGES, gpu.address, "The page is put aside while the driver starts the GPU anew.")
    count = ecc_count(device, "volatile", "uncorrected")
    evidence = cited(device, (_PAGES_PENDING, _SINGLE, _DOUBLE))
    if harmless or _none_uncorrectable(count):
        seen = count.evidence if count is not None else ()
        summary = "a page of its memory with single bit errors waits for a reset to be retired"
        return Warn(gpu, summary, evidence + seen, remedies, own_fault=_none_uncorrectable(count))
    summary = "a page of its memory with a double bit error waits for a reset to be retired"
    return Fail(gpu, summary, evidence, remedies, Breaks.SUBJECT)


@check(
    REPAIR,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=("health.memory-unrepairable", "health.ecc-uncorrected"),
    title="No repair of the GPU waits to be activated",
)
def memory_repair(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Newer GPUs replace a whole memory channel, or a TPC, by a spare one; that happens while the GPU starts.

    nvmlDeviceGetRepairStatus tells what waits, from Ampere on; the kernel log told it as Xid 160 (channel) or 156 (TPC), and of
    a channel named what activates it, a reset or a reboot. Both are reasons for which a GPU requires a reset
    (NVIDIA/NVSentinel, device API: TPCRepairPending, ChannelRepairPending); the GPU works until then, so this warns. Where no
    spare is left nothing waits: that is memory beyond repair.
    """
    return judged(gpus, nvml, _repair)


def _repair(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    told = [(name, what) for name, what in _REPAIRS if isinstance(device.fields.get(name), bool)]
    if not told:
        return untold(gpu, device, tuple(name for name, _ in _REPAIRS), "repairs that wait")
    evidence = tuple(device.evidence(name) for name, _ in told)
    waiting = [what for name, what in told if device.fields[name] is True]
    if not waiting:
        return Pass(gpu, "no repair waits", evidence)
    from gpudoctor.knowledge.memory_remedies import repair

    summary = f"the repair of {' and '.join(waiting)} waits for a reset"
    own = _is_apart(device) and device.fields.get(_UNREPAIRABLE) is not True
    return Warn(gpu, summary, evidence, repair(REPAIR, gpu.address), own_fault=own)


def _is_apart(device: NvmlDevice) -> bool:
    """Whether a part waits where no error was counted: a channel is of DRAM, a TPC on the chip."""
    count = ecc_count(device, "volatile", "uncorrected")
    if count is None or count.elsewhere:
        return False
    waits = (device.fields.get(_CHANNEL) is True, device.fields.get(_TPC) is True)
    return (waits[0] and not count.dram) or (waits[1] and not count.on_chip)
