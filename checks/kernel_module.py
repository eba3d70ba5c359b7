"""Kernel module: does the nvidia driver hold the GPUs, and can it?"""

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.changes import KernelChanges
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpus, NvidiaModule
from gpudoctor.facts.io_memory import ClaimedRegions
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.module_trace import ModuleTrace
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_passthrough import PassthroughTraces
from gpudoctor.facts.raw import Absent
from gpudoctor.knowledge.architectures import Flavour, architecture
from gpudoctor.knowledge.module_remedies import (
    BLACKLISTS,
    BUILD,
    DROP_OPTION,
    FREE_THE_REGION,
    INSTALL,
    LOAD,
    REBOOT,
    SIGN,
    UNBLOCK,
    bind,
    blacklist,
    confirmed_by,
    read_the_log,
    reboot,
    take_from,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Breaks,
    Cited,
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
    explained_by=("kernel-module.flavour-fits", "kernel-module.branch-drives-gpus"),
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
                own_fault=True,
            )


class _Reason(Struct, frozen=True):
    """Why no driver holds a GPU: a name for grouping, words, what shows it, what to do."""

    cause: str
    words: str
    evidence: Cited
    remedies: tuple[Remedy, ...]


def _unbound(gpu: PciGpu, why: _Reason, changes: KernelChanges) -> Verdict:
    evidence = why.evidence + gpu.cite("driver") + (changes.lines if why.cause in MADE_BY_CHANGES else ())
    return Fail(
        gpu,
        f"held by no driver{why.words}",
        evidence,
        why.remedies,
        Breaks.SUBJECT,
        cause=why.cause,
        own_fault=why.cause in (*MADE_BY_CHANGES, "module-blacklisted") or why.cause.startswith("reserved-for-"),
    )


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
    if trace.signature_refused and _may_be_its(trace.signature_refused, file):
        signer = file.cite("signer") if isinstance(file, ModuleFile) else ()
        words = ": the kernel refuses the nvidia module's signature"
        return _Reason(
            "signature-refused", words, trace.signature_refused + trace.secure_boot + signer + loaded, (SIGN, REBOOT)
        )
    if trace.vermagic_refused and not _is_for(file, trace.kernel):
        words = ": the nvidia module was built for another kernel"
        vermagic = file.cite("vermagic") if isinstance(file, ModuleFile) else ()
        return _Reason("wrong-vermagic", words, trace.vermagic_refused + vermagic + loaded, (BUILD, LOAD, REBOOT))
    refusal = trace.refusal(gpu.address) if trace.refused_all else None
    if refusal:
        words = f": the nvidia module could not take it: {refusal.words}"
        return _Reason("probe-failed", words, refusal.evidence + loaded, _after(refusal.words, LOAD, REBOOT))
    if trace.found_none:
        words = ": the nvidia module found no GPU that it drives, and left"
        log = read_the_log("kernel-module.gpu-bound")
        return _Reason("no-gpu-found", words, trace.found_none + loaded, (log, LOAD, REBOOT))
    return _Reason("module-not-loaded", ": the nvidia module is not loaded", loaded, (LOAD, INSTALL, REBOOT))


def _may_be_its(refused: Cited, file: Reading[ModuleFile]) -> bool:
    """Whether the kernel's word on some module's signature fits this one: it names none, and tells unsigned from signed."""
    if isinstance(file, Unread) or not file.exists:
        return True
    return any(("unsigned" in line.shows) != bool(file.signer) for line in refused)


def _is_for(file: Reading[ModuleFile], kernel: str) -> bool:
    """Whether the file that is there now was built for the running kernel, whatever an earlier one was refused for."""
    return isinstance(file, ModuleFile) and bool(kernel) and file.vermagic.partition(" ")[0] == kernel


def _refused(gpu: PciGpu, module: NvidiaModule, trace: ModuleTrace) -> _Reason:
    refusal = trace.refusal(gpu.address)
    words = " although the nvidia module is loaded" + (f": {refusal.words}" if refusal else "")
    evidence = (refusal.evidence if refusal else trace.about(gpu.address)) + module.cite("loaded")
    remedies = _after(refusal.words, REBOOT) if refusal and _by_nature(refusal.words) else (bind(gpu.address), REBOOT)
    return _Reason("unbound", words, evidence, remedies)


def _by_nature(words: str) -> bool:
    """Whether this release would refuse the GPU each time (nv-pci.c, nv_pci_probe; osapi.c, rm_is_supported_device)."""
    return "ignoring the legacy GPU" in words or "driver release" in words


def _after(words: str, *again: Remedy) -> tuple[Remedy, ...]:
    """Read the log first; to try again helps only where the driver may take the GPU then."""
    log = read_the_log("kernel-module.gpu-bound")
    return (log,) if _by_nature(words) else (log, *again)


def _against(rival: str, gpu: PciGpu) -> tuple[Remedy, ...]:
    if rival in BLACKLISTS:
        return (blacklist(*BLACKLISTS[rival]), REBOOT)
    return (take_from(rival, gpu.address), REBOOT)


@check(
    "kernel-module.flavour-fits",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    explained_by=("kernel-module.branch-drives-gpus",),
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
        confirm=confirmed_by("kernel-module.flavour-fits"),
    )
    summary = f"{name} needs the {needed.value} kernel module, the {loaded.value} one is loaded"
    remedies = (change, reboot("kernel-module.flavour-fits"))
    return Fail(gpu, summary, evidence, remedies, Breaks.SUBJECT, cause=f"needs-{needed.value}")


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
            yield Fail(
                gpu,
                summary,
                evidence,
                (DROP_OPTION, reboot("kernel-module.gpu-not-excluded")),
                Breaks.SUBJECT,
                cause="excluded",
            )
        else:
            yield Pass(gpu, "not excluded", known.cite("excluded"))


def _option(modprobe: Reading[ModprobeConfig], *names: str) -> Cited:
    if isinstance(modprobe, Unread):
        return ()
    options = modprobe.options_of("nvidia")
    return tuple(seen for option in options if option.name in names for seen in option.cite("value"))
