"""Health: the errors that ECC found in a GPU's memory, what NVIDIA exchanges a board for, and whether ECC is on."""

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.ecc_counts import EccCount, ecc_count
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import Breaks, Fail, NotApplicable, Pass, Verdict, Verdicts, Warn

UNCORRECTED, CORRECTED = "health.ecc-uncorrected", "health.ecc-corrected"
SRAM, UNREPAIRABLE = "health.sram-threshold", "health.memory-unrepairable"
INFOROM, MODE = "health.inforom", "health.ecc-mode"

_THRESHOLD = "ecc.sram_threshold_exceeded"
_UNREPAIRABLE = "ecc.unrepairable_memory"
_REMAP_FAILED = "row_remap.failed"
_WAITING = ("row_remap.pending", "retired_pages.pending", "ecc.channel_repair_pending", "ecc.tpc_repair_pending")
"""What a GPU's memory waits with for a reset."""
_VALID, _IMAGE = "inforom.valid", "inforom.image"
_CURRENT, _PENDING = "ecc.current", "ecc.pending"
_CORRUPTED_INFOROM = frozenset((14,))

_DATA_CENTRE_BRANDS = ("tesla", "nvidia")
# The table of nvidia-smi tells no brand. T400 to T1200 are workstation boards, and so is all that is called RTX or Quadro.
_DATA_CENTRE_NAMES = pattern(
    r"Tesla |(?:NVIDIA )?(?:[AH]\d{2,3}|A2|B\d{3}|L\d{1,2}S?|T4G?|G[BH]\d{3}|[VP]\d{3})(?:X|\b)"
)


@check(
    UNCORRECTED,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(SRAM, UNREPAIRABLE, "health.row-remap-failed"),
    title="No uncorrectable memory error was counted since the driver was loaded",
)
def ecc_uncorrected(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """An error that ECC cannot correct kills the programs that met it, on GPUs before Ampere every program of the GPU.

    The counts live until the driver is loaded anew or the GPU is reset: they tell of something that happened since, not of
    something that happens now. From R565 on the driver says what must still be done: where it asks for nothing and no repair
    waits, this is a warning. DRAM is repaired by a reset, which remaps the row or retires the page, so that what waits for one
    is a consequence of the error; SRAM has no spares, and counts towards an exchange. Counts of the board's lifetime are
    history and are told, not judged: NVIDIA's guide exchanges for flags, not for counts (NVIDIA GPU Memory Error
    Management, "RMA Policy"). DCGM's health watch fails any volatile count (DcgmHealthWatch.cpp, MonitorMemVolatileDbes).
    """
    limit = limits.of("memory_uncorrected")
    return judged(gpus, nvml, lambda gpu, device: _uncorrected(gpu, device, limits, limit))


def _uncorrected(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, limit: float) -> Verdict:
    count, ever = ecc_count(device, "volatile", "uncorrected"), ecc_count(device, "aggregate", "uncorrected")
    if count is None:
        return _uncounted(gpu, device, "uncorrected")
    history = f"; {ever.total} in the board's lifetime ({ever.places})" if ever is not None and ever.total else ""
    if not count.total:
        evidence = count.evidence + (ever.evidence if ever is not None and ever.total else ())
        return Pass(gpu, f"no uncorrectable memory error since the driver was loaded{history}", evidence)
    summary = f"uncorrectable memory errors since the driver was loaded: {count.places}{history}"
    if count.total < limit:
        return Pass(gpu, summary, count.evidence + limits.cite("memory_uncorrected"))
    from gpudoctor.knowledge.memory_remedies import after_uncorrectable

    remedies = after_uncorrectable(UNCORRECTED, gpu.address)
    own = _is_apart(device, count)
    waits = [name for name in _WAITING if device.fields.get(name) is True]
    if waits:
        evidence = count.evidence + cited(device, waits)
        return Fail(gpu, f"{summary}; its repair waits for a reset", evidence, remedies, Breaks.SUBJECT, own_fault=own)
    told = cited(device, ("recovery_action", "reset_required"))
    if told:
        asking = bool(device.recovery) or device.fields.get("reset_required") is True
        asks = "" if asking else "; the driver asks for nothing now"
        return Warn(gpu, f"{summary}{asks}", count.evidence + told, remedies, own_fault=own)
    return Fail(gpu, summary, count.evidence, remedies, Breaks.SUBJECT, own_fault=own)


def _is_apart(device: NvmlDevice, count: EccCount) -> bool:
    """Whether errors were counted where nothing has failed for good: a flag of DRAM explains none on the chip, nor the other way round."""
    on_chip = device.fields.get(_THRESHOLD) is True
    dram = any(device.fields.get(name) is True for name in (_UNREPAIRABLE, _REMAP_FAILED))
    lone = (count.on_chip > 0 and not on_chip, count.dram > 0 and not dram)
    return any(lone) or (count.elsewhere > 0 and not (on_chip or dram))


def _uncounted(gpu: PciGpu, device: NvmlDevice, outcome: str) -> Verdict:
    if device.fields.get(_CURRENT) is False:
        return NotApplicable(gpu, "ECC is off: nothing is counted", (device.evidence(_CURRENT),))
    names = tuple(f"ecc.volatile.{place}{outcome}" for place in ("", "dram.", "sram."))
    return untold(gpu, device, names, "counts of ECC errors")


@check(
    CORRECTED,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(UNCORRECTED, "health.row-remap-failed", "health.row-remap-pending", "health.memory-repair"),
    advisory=True,
    title="Corrected memory errors are as rare as they should be",
)
def ecc_corrected(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """ECC puts single-bit errors right without anyone noticing: thousands of them are no fault, and no ground for an exchange.

    Only a flood is worth a look, because cells that fail often may fail doubly. NVIDIA names no limit, and its driver calls a
    high rate Xid 92, to be ignored; DCGM's own number is a dummy by its own words. The limits here are Azure's for its fleet;
    they count since the driver was loaded. facebookresearch/gcm takes 50 million for all memory together.
    """
    dram, sram = limits.of("memory_corrected_dram"), limits.of("memory_corrected_sram")
    return judged(gpus, nvml, lambda gpu, device: _corrected(gpu, device, limits, dram, sram))


def _corrected(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, dram: float, sram: float) -> Verdict:
    count = ecc_count(device, "volatile", "corrected")
    if count is None:
        return _uncounted(gpu, device, "corrected")
    told = f"since the driver was loaded: {count.places}" if count.total else "since the driver was loaded: none"
    over = [
        name
        for name, errors, limit in (
            ("memory_corrected_dram", count.dram + count.elsewhere, dram),
            ("memory_corrected_sram", count.on_chip, sram),
        )
        if errors > limit
    ]
    if not over:
        return Pass(gpu, f"corrected memory errors {told}", count.evidence)
    from gpudoctor.knowledge.memory_remedies import plan_exchange

    remedies = plan_exchange(CORRECTED, gpu.address, "Corrected errors harm nothing, but so many are unusual.")
    return Warn(gpu, f"a flood of corrected memory errors {told}", count.evidence + limits.cite(*over), remedies)


@check(
    SRAM,
    link=Link.HEALTH,
    over=PciGpus,
    isolates=True,
    title="Uncorrectable errors on the chip are below NVIDIA's limit",
)
def sram_threshold(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Caches and registers have no spare rows: a GPU whose SRAM fails repeatedly at one place is to be exchanged.

    The driver counts and sets the flag: more than four errors in a bank with parity, more than two in one with SEC-DED (NVIDIA
    GPU Memory Error Management, "GPU L2 Memory RMA Policy"). Only root is told, from Ampere on (nvml.h,
    nvmlDeviceGetSramEccErrorStatus). A few uncorrectable SRAM errors without the flag are no ground for an exchange, and are
    told elsewhere.
    """
    return judged(gpus, nvml, _sram)


def _sram(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    exceeded = device.fields.get(_THRESHOLD)
    if not isinstance(exceeded, bool):
        return untold(gpu, device, (_THRESHOLD,), "the limit of SRAM errors")
    if not exceeded:
        return Pass(gpu, "the driver has not set the flag", (device.evidence(_THRESHOLD),))
    from gpudoctor.knowledge.memory_remedies import exchange

    ever = ecc_count(device, "aggregate", "uncorrected")
    sources = [f"ecc.sram_sources.{unit}" for unit in ("l2", "sm", "microcontroller", "pcie", "other")]
    named = cited(device, (name for name in sources if device.fields.get(name)))
    evidence = (device.evidence(_THRESHOLD), *(ever.evidence if ever is not None else ()), *named)
    remedies = exchange(SRAM, gpu.address, "More errors will follow, and each kills what runs.")
    return Fail(
        gpu, "uncorrectable errors on the chip (SRAM) exceed NVIDIA's limit: RMA", evidence, remedies, Breaks.SUBJECT
    )


@check(
    UNREPAIRABLE, link=Link.HEALTH, over=PciGpus, isolates=True, title="All of the GPU's memory can still be repaired"
)
def memory_unrepairable(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """The driver's own word that memory is broken for which no spare is left: the board is to be exchanged.

    Told from Hopper on (nvml.h, nvmlDeviceGetUnrepairableMemoryFlag_v1), and by recent drivers only; DCGM fails on it as faulty
    memory (DcgmHealthWatch.cpp, MonitorMemUnrepairableFlag), and the kernel log tells the moment as Xid 157 or 161. A repair
    that only waits for a reset is not this.
    """
    return judged(gpus, nvml, _unrepairable)


def _unrepairable(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    broken = device.fields.get(_UNREPAIRABLE)
    if not isinstance(broken, bool):
        return untold(gpu, device, (_UNREPAIRABLE,), "unrepairable memory")
    if not broken:
        return Pass(gpu, "none is unrepairable", (device.evidence(_UNREPAIRABLE),))
    from gpudoctor.knowledge.memory_remedies import exchange

    remedies = exchange(UNREPAIRABLE, gpu.address, "Its memory has no spare part left for what broke.")
    return Fail(gpu, "memory is broken beyond repair: RMA", (device.evidence(_UNREPAIRABLE),), remedies, Breaks.SUBJECT)


@check(INFOROM, link=Link.HEALTH, over=PciGpus, title="The InfoROM is intact")
def inforom(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """The InfoROM is a small flash memory of the board: its identity, its ECC mode, retired pages, remapped rows and error counts.

    With a wrong checksum the GPU computes on, but errors may not be recorded, and nvidia-smi ends with exit code 14 after its
    usual output, which stops scripts and the GPU Operator's containers (NVIDIA cloud-native docs, GPU Operator
    troubleshooting). NVML reads the flash and checks it (nvml.h, nvmlDeviceValidateInforom); nvidia-smi prints "WARNING:
    infoROM is corrupted at gpu …". DCGM warns (DCGM_FR_CORRUPT_INFOROM). A GPU that NVML refuses altogether for its InfoROM is
    another question.
    """
    return judged(gpus, nvml, _inforom)


def _inforom(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    valid, image = device.fields.get(_VALID), device.fields.get(_IMAGE)
    refused = device.errors(_CORRUPTED_INFOROM)
    printed = isinstance(image, str) and image.lower() == "corrupted"
    if valid is True and not refused and not printed:
        return Pass(gpu, "its checksum is right", (device.evidence(_VALID),))
    if valid is not False and not refused and not printed:
        return untold(gpu, device, (_VALID,), "whether the InfoROM is intact")
    from gpudoctor.knowledge.memory_remedies import inforom as remedies

    names = [*([_VALID] if valid is False else ()), *([_IMAGE] if printed else ()), *list(refused)[:2]]
    evidence = tuple(device.evidence(name) for name in dict.fromkeys(names))
    return Warn(
        gpu,
        "the InfoROM is corrupted: the GPU computes, plan its repair or exchange",
        evidence,
        remedies(INFOROM, gpu.address),
    )


@check(
    MODE,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="ECC is on where the board is made for it, and no change of it waits",
)
def ecc_mode(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Without ECC a flipped bit is a wrong result and nobody is told; data centre boards are delivered with it on.

    The mode is kept in the InfoROM and changes with a reset or reboot only, so that after `nvidia-smi -e` the mode now and the
    mode wanted differ (nvml.h, nvmlDeviceGetEccMode). On workstation boards (RTX, Quadro) off is usual, GeForce has no such
    mode, and in a guest with a vGPU the host decides.
    """
    return judged(gpus, nvml, _mode)


def _mode(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    on, wanted = device.fields.get(_CURRENT), device.fields.get(_PENDING)
    if not isinstance(on, bool):
        return untold(gpu, device, (_CURRENT,), "the ECC mode")
    if device.fields.get("virtualization.mode") == "vgpu":
        return NotApplicable(gpu, "a vGPU: its host sets the mode", (device.evidence("virtualization.mode"),))
    evidence = cited(device, (_CURRENT, _PENDING))
    if isinstance(wanted, bool) and wanted is not on:
        from gpudoctor.knowledge.memory_remedies import ecc_pending

        words = ("on", "off") if on else ("off", "on")
        summary = f"ECC is {words[0]}, and {words[1]} after the next reset"
        remedies = ecc_pending(MODE, gpu.address, now_on=on)
        return Warn(gpu, summary, evidence, remedies, cause=f"ecc-turns-{words[1]}")
    if on:
        return Pass(gpu, "ECC is on", evidence)
    if not _of_data_centre(device):
        return Pass(gpu, "ECC is off, as is usual on a board that is none of a data centre", evidence)
    from gpudoctor.knowledge.memory_remedies import ecc_on

    summary = "ECC is off on a data centre board: wrong bits go unnoticed"
    return Warn(gpu, summary, evidence, ecc_on(MODE, gpu.address), cause="ecc-off")


def _of_data_centre(device: NvmlDevice) -> bool:
    if device.brand is not None:
        return device.brand in _DATA_CENTRE_BRANDS
    return _DATA_CENTRE_NAMES.match(device.name or "") is not None
