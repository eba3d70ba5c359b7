"""Kernel module: does the nvidia driver hold the GPUs, and can it?"""

import re

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.changes import KernelChanges
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.io_memory import ClaimedRegions
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.module_trace import ModuleTrace
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_passthrough import PassthroughTraces
from gpudoctor.facts.pci_state import PciState, PciStates, Region
from gpudoctor.facts.raw import Absent
from gpudoctor.knowledge.architectures import Flavour, architecture
from gpudoctor.knowledge.module_remedies import (
    BLACKLISTS,
    BUILD,
    DROP_OPTION,
    FIRMWARE,
    FREE_THE_REGION,
    INSTALL,
    LOAD,
    READ_THE_LOG,
    REBOOT,
    RELOAD,
    SIGN,
    UNBLOCK,
    WINDOW,
    bind,
    blacklist,
    take_from,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Why,
)


@check(
    "kernel-module.gpu-bound",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    explained_by=("kernel-module.flavour-fits",),
    essential=True,
    title="The nvidia driver holds every GPU",
)
def gpu_bound(
    gpus: PciGpus,
    module: Reading[NvidiaModule],
    file: Reading[ModuleFile],
    trace: ModuleTrace,
    claimed: ClaimedRegions,
    passthrough: PassthroughTraces,
    changes: KernelChanges,
) -> Verdicts:
    """CUDA sees only the GPUs that the nvidia driver holds.

    The kernel gives a device to one driver at a time; nouveau and vfio-pci are the usual rivals. Read from each function's
    `driver` link in sysfs. Easily confused with a module that is missing: a module can be loaded and yet hold nothing, because
    a rival came first. A GPU handed to a virtual machine on purpose is held by vfio-pci: waive it by its address.
    """
    for gpu in gpus:
        if isinstance(gpu.driver, Unread):
            yield gpu.driver.about(gpu)
        elif gpu.driver == "nvidia":
            yield Pass(gpu, "held by nvidia", gpu.cite("driver"))
        elif gpu.driver is None:
            reserved = _reserved(gpu, passthrough)
            why = reserved or _why_unbound(gpu, module, file, trace, claimed)
            yield _unbound(gpu, why, changes)
        else:
            yield Fail(
                gpu,
                f"held by {gpu.driver}, not by nvidia",
                gpu.cite("driver") + trace.probe_not_called + passthrough.about(gpu.address),
                _against(gpu.driver, gpu),
                Breaks.SUBJECT,
                cause=f"held-by-{gpu.driver}",
            )


class _Reason(Struct, frozen=True):
    """Why no driver holds a GPU: a name for grouping, words, what shows it, what to do."""

    cause: str
    words: str
    evidence: Cited
    remedies: tuple[Remedy, ...]


def _unbound(gpu: PciGpu, why: _Reason, changes: KernelChanges) -> Verdict:
    evidence = why.evidence + gpu.cite("driver") + (changes.lines if why.cause in MADE_BY_CHANGES else ())
    return Fail(gpu, f"held by no driver{why.words}", evidence, why.remedies, Breaks.SUBJECT, cause=why.cause)


def _reserved(gpu: PciGpu, passthrough: PassthroughTraces) -> _Reason | None:
    """An override keeps every driver but the one it names from a device (Documentation/ABI/testing/sysfs-bus-pci)."""
    trace = passthrough.by_address.get(gpu.address)
    override = trace.override if trace is not None else None
    if not isinstance(override, str) or override == "nvidia":
        return None
    words = f": driver_override lets only {override} have it"
    remedies = (take_from(override, gpu.address, bound=False), REBOOT)
    return _Reason(f"reserved-for-{override}", words, passthrough.about(gpu.address), remedies)


MADE_BY_CHANGES = ("no-module-for-kernel", "wrong-vermagic", "signature-refused")
"""Reasons that an upgrade of kernel or driver brings about."""


def _why_unbound(
    gpu: PciGpu,
    module: Reading[NvidiaModule],
    file: Reading[ModuleFile],
    trace: ModuleTrace,
    claimed: ClaimedRegions,
) -> _Reason:
    if isinstance(module, Unread):
        return _Reason("unbound", "", (), (bind(gpu.address), REBOOT))
    reason = _refused(gpu, module, trace) if module.loaded else _not_loaded(gpu, module, file, trace)
    owners = claimed.behind(reason.words)
    if owners:
        names = ", ".join(line.shows.partition(" : ")[2] for line in owners)
        words = f"{reason.words}; {names} owns that range"
        return _Reason("region-claimed", words, owners + reason.evidence, (FREE_THE_REGION, REBOOT))
    return reason


def _not_loaded(gpu: PciGpu, module: NvidiaModule, file: Reading[ModuleFile], trace: ModuleTrace) -> _Reason:
    """From the plainest reason to the last resort: no file, a forbidden one, one the kernel refused, one nobody loaded."""
    loaded = module.cite("loaded")
    if isinstance(file, ModuleFile) and not file.exists:
        words = f": there is no nvidia module for the running kernel {trace.kernel}".rstrip()
        if trace.dkms_failure:
            words += ", DKMS could not build it"
        return _Reason(
            "no-module-for-kernel", words, trace.dkms_failure + file.cite("exists") + loaded, (BUILD, LOAD, REBOOT)
        )
    if trace.blocked:
        words = ": the nvidia module is not loaded, and modprobe was told not to load it"
        return _Reason("module-blacklisted", words, trace.blocked + loaded, (UNBLOCK, LOAD, REBOOT))
    if trace.signature_refused:
        signer = file.cite("signer") if isinstance(file, ModuleFile) else ()
        words = ": the kernel refuses the nvidia module's signature"
        return _Reason(
            "signature-refused", words, trace.signature_refused + trace.secure_boot + signer + loaded, (SIGN, REBOOT)
        )
    if trace.vermagic_refused:
        words = ": the nvidia module was built for another kernel"
        vermagic = file.cite("vermagic") if isinstance(file, ModuleFile) else ()
        return _Reason("wrong-vermagic", words, trace.vermagic_refused + vermagic + loaded, (BUILD, LOAD, REBOOT))
    refusal = trace.refusal(gpu.address) if trace.refused_all else None
    if refusal:
        words = f": the nvidia module could not take it: {refusal.words}"
        return _Reason("probe-failed", words, refusal.evidence + loaded, (READ_THE_LOG, LOAD, REBOOT))
    return _Reason("module-not-loaded", ": the nvidia module is not loaded", loaded, (LOAD, INSTALL, REBOOT))


def _refused(gpu: PciGpu, module: NvidiaModule, trace: ModuleTrace) -> _Reason:
    refusal = trace.refusal(gpu.address)
    words = " although the nvidia module is loaded" + (f": {refusal.words}" if refusal else "")
    evidence = (refusal.evidence if refusal else trace.about(gpu.address)) + module.cite("loaded")
    return _Reason("unbound", words, evidence, (bind(gpu.address), REBOOT))


def _against(rival: str, gpu: PciGpu) -> tuple[Remedy, ...]:
    if rival in BLACKLISTS:
        return (blacklist(*BLACKLISTS[rival]), REBOOT)
    return (take_from(rival, gpu.address), REBOOT)


@check(
    "kernel-module.flavour-fits",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    title="The module's flavour fits every GPU",
)
def flavour_fits(gpus: PciGpus, module: NvidiaModule) -> Verdicts:
    """NVIDIA ships two builds of its kernel modules, and neither runs every GPU.

    Blackwell and Grace Hopper need the open one, GPUs before Turing the proprietary one; with the wrong one the module loads and
    nvidia-smi says "No devices were found". Read from /proc/driver/nvidia/version and the PCI device id. Easily confused with a GPU
    whose firmware does not start: that prints the same RmInitAdapter line.
    """
    for gpu in gpus:
        known = architecture(gpu.device_id)
        if module.mute is not None:
            yield module.mute.about(gpu)
        elif module.is_open is None:
            yield NotApplicable(gpu, "no nvidia module is loaded")
        elif isinstance(gpu.driver, str) and gpu.driver != "nvidia":
            yield NotApplicable(gpu, f"held by {gpu.driver}", gpu.cite("driver"))
        elif known is None:
            yield Unknown(gpu, Why.NOT_ANSWERED, f"device id 10de:{gpu.device_id} is not in the table of architectures")
        else:
            yield _fits(gpu, module, *known)


def _fits(gpu: PciGpu, module: NvidiaModule, name: str, needed: Flavour) -> Verdict:
    loaded = Flavour.OPEN if module.is_open else Flavour.PROPRIETARY
    evidence = module.cite("is_open") + gpu.cite("device_id")
    if needed in (Flavour.EITHER, loaded):
        return Pass(gpu, f"{name} runs with the {loaded.value} module", evidence)
    change = Remedy(
        Action.INSTALL_PACKAGE,
        f"Install the {needed.value} kernel modules of the same driver version, and reload or reboot.",
        run=(
            f"apt-cache search nvidia | grep -E 'dkms|driver' | grep {'-v ' if needed is Flavour.PROPRIETARY else ''}open",
        ),
        interrupts="every process that uses a GPU of this node",
        confirm="cat /proc/driver/nvidia/version",
    )
    summary = f"{name} needs the {needed.value} kernel module, the {loaded.value} one is loaded"
    return Fail(gpu, summary, evidence, (change, REBOOT), Breaks.SUBJECT, cause=f"needs-{needed.value}")


@check(
    "kernel-module.gpu-not-excluded",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    title="No GPU is excluded by a module option",
)
def gpu_not_excluded(gpus: PciGpus, driver: DriverGpus, modprobe: Reading[ModprobeConfig]) -> Verdicts:
    """An excluded GPU is held by the driver and listed in /proc, but NVML and CUDA do not see it, without any error.

    The option NVreg_ExcludedGpus is meant for a board that waits for its replacement, and is easily left behind after that.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if isinstance(known, Unread):
            yield known.about(gpu)
        elif isinstance(known, Absent):
            yield NotApplicable(gpu, "the driver does not list it", (known.evidence,))
        elif known.excluded:
            evidence = known.cite("excluded") + _option(modprobe, "NVreg_ExcludedGpus", "NVreg_GpuBlacklist")
            summary = "the driver was told to exclude it"
            yield Fail(gpu, summary, evidence, (DROP_OPTION, REBOOT), Breaks.SUBJECT, cause="excluded")
        else:
            yield Pass(gpu, "not excluded", known.cite("excluded"))


def _option(modprobe: Reading[ModprobeConfig], *names: str) -> Cited:
    if isinstance(modprobe, Unread):
        return ()
    options = modprobe.options.get("nvidia", ())
    return tuple(seen for option in options if option.name in names for seen in option.cite("value"))


@check(
    "kernel-module.adapter-initialised",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    explained_by=("kernel-module.flavour-fits", "kernel-module.gsp-firmware"),
    title="The driver initialised every GPU",
)
def adapter_initialised(
    gpus: PciGpus, driver: DriverGpus, states: Reading[PciStates], log: Reading[KernelLog]
) -> Verdicts:
    """The module can hold a GPU and still fail to start it, at the first program that opens it; nvidia-smi then finds no devices.

    The kernel log says so in a line RmInitAdapter with codes, and mostly why in the lines before it: firmware file missing, GSP in a
    bad state, too small an address window. A GPU whose VBIOS version the driver shows has been started since, whatever the log says;
    one that nobody opened yet has not, and that is no fault.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if isinstance(known, Unread):
            yield _by_the_log(gpu, known, states, log)
        elif isinstance(known, Absent):
            yield NotApplicable(gpu, "the driver does not list it", (known.evidence,))
        elif known.initialised:
            yield Pass(gpu, "initialised", known.cite("initialised"))
        elif isinstance(log, Unread):
            yield log.about(gpu)
        else:
            yield _started(gpu, known, states, log)


_RM_INIT = re.compile(
    r"NVRM: GPU \S+: RmInitAdapter failed|NVRM: \S*RmInitAdapter: Cannot initialize|rm_init_adapter failed"
)
LARGE_WINDOW_BYTES = 256 * 1024 * 1024
"""The size of BAR1 without Resizable BAR, which firmware gives with Above 4G Decoding only."""


class _Cause(Struct, frozen=True):
    """Why a GPU did not start: the driver's own words for it, and what to do first."""

    name: str
    line: "re.Pattern[str]"
    remedies: tuple[Remedy, ...]


# kernel_gsp.c of open-gpu-kernel-modules for WPR2 and GSP, drivers/base/firmware_loader for the file; the last comes from the
# proprietary module (NVIDIA/open-gpu-kernel-modules#862).
_CAUSES = (
    _Cause("wpr2", re.compile(r"NVRM: .*WPR2"), (READ_THE_LOG, RELOAD, REBOOT)),
    _Cause(
        "firmware",
        re.compile(r"Direct firmware load for nvidia/\S+ failed|NVRM: .*No firmware image found"),
        (FIRMWARE, RELOAD, REBOOT),
    ),
    _Cause(
        "needs-open",
        re.compile(r"requires use of the NVIDIA open kernel modules"),
        (READ_THE_LOG, RELOAD, REBOOT),
    ),
    _Cause("gsp", re.compile(r"NVRM: .*GSP"), (READ_THE_LOG, RELOAD, REBOOT)),
)


def _failures(gpu: PciGpu, log: KernelLog) -> list[Evidence]:
    return [line for line in log.lines(_RM_INIT, gpu.address) if "failed" in line.shows]


def _by_the_log(gpu: PciGpu, unseen: Unread, states: Reading[PciStates], log: Reading[KernelLog]) -> Verdict:
    """Where nobody recorded what the driver shows, its messages tell: each try failed, and it had no more to say."""
    if unseen.why is not Why.NOT_RECORDED or isinstance(log, Unread):
        return unseen.about(gpu)
    failed, said = _failures(gpu, log), log.lines(_NVRM, gpu.address)
    if len(failed) < MOST_FIRST_TRIES or said[-1].shows != failed[-1].shows:
        return unseen.about(gpu)
    return _not_started(gpu, failed, states, log)


_NVRM = re.compile(r"NVRM: ")
MOST_FIRST_TRIES = 3
"""A GPU can fail at first and start later, without a message; one that has failed so often and then ends the log has not."""


def _started(gpu: PciGpu, known: DriverGpu, states: Reading[PciStates], log: KernelLog) -> Verdict:
    failed = _failures(gpu, log)
    if not failed:
        return NotApplicable(gpu, "no program has opened it yet", known.cite("initialised"))
    return _not_started(gpu, failed, states, log)


def _not_started(gpu: PciGpu, failed: list[Evidence], states: Reading[PciStates], log: KernelLog) -> Verdict:
    # The driver says it twice; the line with the code says more.
    last = next((line for line in reversed(failed) if "(0x" in line.shows), failed[-1])
    words = last.shows
    for cause in _CAUSES:
        # The driver does not say of which GPU these lines are: those around its failure are its own.
        if lines := log.before(words, cause.line, most=24) or log.after(words, cause.line, most=6):
            summary = f"the driver could not initialise it: {lines[0].shows}"
            evidence = (last, *lines[:2])
            return Fail(gpu, summary, evidence, cause.remedies, Breaks.SUBJECT, cause=f"rminit-{cause.name}")
    window = None if isinstance(states, Unread) else _small_window(states.by_address[gpu.address])
    summary = f"the driver could not initialise it: {words}"
    if window and _NO_WINDOW in words:
        mebibytes = window.size >> 20
        summary += f"; BAR{window.number} has {mebibytes} MiB, as without Above 4G Decoding and Resizable BAR"
        return Fail(
            gpu, summary, (last, *window.cite("region")), (WINDOW, REBOOT), Breaks.SUBJECT, cause="rminit-small-window"
        )
    return Fail(gpu, summary, (last,), (READ_THE_LOG, RELOAD, REBOOT), Breaks.SUBJECT, cause="rminit-failed")


_NO_WINDOW = "(0x22:0x56:"
"""What boards with a large memory print whose firmware left both options off (NVIDIA/open-gpu-kernel-modules#862, #872)."""


def _small_window(state: PciState) -> Region | None:
    """The largest region, if it is small."""
    regions = () if isinstance(state.regions, Unread) else state.regions or ()
    largest = max(regions, key=lambda region: region.size, default=None)
    return largest if largest is not None and 0 < largest.size <= LARGE_WINDOW_BYTES else None
