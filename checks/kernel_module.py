"""Kernel module: does the nvidia driver hold the GPUs, and can it?"""

import re

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, DriverParameters, NvidiaModule
from gpudoctor.facts.firmware import GspFirmware
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import Dkms, ModuleFile
from gpudoctor.facts.module_trace import ModuleTrace
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import Absent
from gpudoctor.knowledge.architectures import Flavour, architecture
from gpudoctor.knowledge.module_remedies import (
    APPLY,
    BLACKLISTS,
    BUILD,
    DROP_OPTION,
    FIRMWARE,
    INSTALL,
    LOAD,
    READ_THE_LOG,
    REBOOT,
    RELOAD,
    SIGN,
    UNBLOCK,
    bind,
    blacklist,
    take_from,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
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
    Warn,
    Why,
)


@check(
    "kernel-module.gpu-bound",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    essential=True,
    title="The nvidia driver holds every GPU",
)
def gpu_bound(gpus: PciGpus, module: Reading[NvidiaModule], file: Reading[ModuleFile], trace: ModuleTrace) -> Verdicts:
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
            yield _unbound(gpu, module, file, trace)
        else:
            yield Fail(
                gpu,
                f"held by {gpu.driver}, not by nvidia",
                gpu.cite("driver") + trace.probe_not_called,
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


def _unbound(gpu: PciGpu, module: Reading[NvidiaModule], file: Reading[ModuleFile], trace: ModuleTrace) -> Verdict:
    if isinstance(module, Unread):
        why = _Reason("unbound", "", (), (bind(gpu.address), REBOOT))
    elif not module.loaded:
        why = _not_loaded(gpu, module, file, trace)
    else:
        why = _refused(gpu, module, trace)
    summary = f"held by no driver{why.words}"
    return Fail(gpu, summary, why.evidence + gpu.cite("driver"), why.remedies, Breaks.SUBJECT, cause=why.cause)


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
def adapter_initialised(gpus: PciGpus, driver: DriverGpus, log: Reading[KernelLog]) -> Verdicts:
    """The module can hold a GPU and still fail to start it, at the first program that opens it; nvidia-smi then finds no devices.

    The kernel log says so in a line RmInitAdapter with codes, and mostly why in the lines before it: firmware file missing, GSP in a
    bad state, too small an address window. A GPU whose VBIOS version the driver shows has been started since, whatever the log says;
    one that nobody opened yet has not, and that is no fault.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if isinstance(known, Unread):
            yield known.about(gpu)
        elif isinstance(known, Absent):
            yield NotApplicable(gpu, "the driver does not list it", (known.evidence,))
        elif known.initialised:
            yield Pass(gpu, "initialised", known.cite("initialised"))
        elif isinstance(log, Unread):
            yield log.about(gpu)
        else:
            yield _started(gpu, known, log)


_RM_INIT = re.compile(
    r"NVRM: GPU \S+: RmInitAdapter failed|NVRM: \S*RmInitAdapter: Cannot initialize|rm_init_adapter failed"
)
_GSP = re.compile(
    r"NVRM: .*(?:WPR2|GSP)|Direct firmware load for nvidia/\S+ failed|requires use of the NVIDIA open kernel modules"
)


def _started(gpu: PciGpu, known: DriverGpu, log: KernelLog) -> Verdict:
    failed = [line for line in log.lines(_RM_INIT, gpu.address) if "failed" in line.shows]
    if not failed:
        return NotApplicable(gpu, "no program has opened it yet", known.cite("initialised"))
    reasons = [
        line for anchor in ("WPR2", "GSP", "firmware load", "requires use of") for line in log.lines(_GSP, anchor)
    ][:2]
    evidence = (failed[-1], *reasons)
    summary = f"the driver could not initialise it: {(reasons or failed)[-1].shows}"
    remedies = (READ_THE_LOG, RELOAD, REBOOT)
    return Fail(gpu, summary, evidence, remedies, Breaks.SUBJECT, cause="rminit-failed")


@check(
    "kernel-module.dkms-built",
    link=Link.KERNEL_MODULE,
    explained_by=("kernel-module.gpu-bound",),
    title="DKMS has built the module for the kernels here",
)
def dkms_built(dkms: Dkms, host: Host) -> Verdicts:
    """A kernel without a build of the module has no GPU after the next boot.

    Compares `dkms status` with the kernels installed below /lib/modules. Only kernels newer than the running one count: older ones
    are seldom booted again, and what the running one lacks shows in which driver holds the GPUs. Where DKMS does not manage the
    driver there is nothing to say.
    """
    if not dkms.states:
        yield NotApplicable(NODE, "DKMS does not manage the nvidia driver", dkms.cite("states"))
        return
    running = host.kernel or ""
    lacking = [kernel for kernel in dkms.kernels if _order(kernel) > _order(running) and not _is_built(dkms, kernel)]
    if lacking:
        names = ", ".join(lacking)
        evidence = dkms.cite("states") + (dkms.cite("failure") if dkms.failure else ())
        failed = f"; the build stopped at: {dkms.failure}" if dkms.failure else ""
        yield Warn(NODE, f"no build for kernel {names}{failed}", evidence, (BUILD,), cause="not-built")
    else:
        yield Pass(NODE, "every kernel that may be booted next has one", dkms.cite("states"))


def _is_built(dkms: Dkms, kernel: str) -> bool:
    return dkms.states.get(kernel, "").startswith("installed")


def _order(kernel: str) -> tuple[int, ...]:
    """The numbers of a kernel release, for comparing."""
    return tuple(int(number) for number in re.findall(r"\d+", kernel)[:5])


@check(
    "kernel-module.parameters-applied",
    link=Link.KERNEL_MODULE,
    needs={Link.PCIE},
    title="modprobe.d's options are in force",
)
def parameters_applied(parameters: DriverParameters, modprobe: ModprobeConfig) -> Verdicts:
    """Options of the nvidia module take effect when it is loaded, and from the initramfs if it is loaded there.

    Compares what modprobe.d says with /proc/driver/nvidia/params, number for number: the files may write hexadecimal or octal, the
    driver prints decimal. Options that the driver does not print cannot be compared. The kernel command line may override a file.
    """
    if not parameters.values:
        yield NotApplicable(NODE, "the driver is not loaded", parameters.cite("values"))
        return
    options = {_printed_name(option.name): option for option in modprobe.options.get("nvidia", ())}
    overridden = {word.partition("=")[0].removeprefix("nvidia.NVreg_") for word in modprobe.cmdline}
    comparable = {
        name: option for name, option in options.items() if name in parameters.values and name not in overridden
    }
    differing = [name for name, option in comparable.items() if not _same(option.value, parameters.values[name])]
    if differing:
        evidence = tuple(
            seen for name in differing for seen in (*comparable[name].cite("value"), parameters.evidence(name))
        )
        summary = f"not in force: {', '.join(sorted(differing))}"
        yield Warn(NODE, summary, evidence, (APPLY, REBOOT), cause="not-applied")
    elif comparable:
        evidence = tuple(
            seen for name, option in comparable.items() for seen in (*option.cite("value"), parameters.evidence(name))
        )
        yield Pass(NODE, f"in force: {', '.join(sorted(comparable))}", evidence)
    else:
        yield NotApplicable(NODE, "modprobe.d sets no option that the driver prints")


def _printed_name(option: str) -> str:
    """The name in params: without its prefix, and in one case another (nv-reg.h)."""
    name = option.removeprefix("NVreg_")
    return "RmProfilingAdminOnly" if name == "RestrictProfilingToAdminUsers" else name


def _same(written: str, printed: str) -> bool:
    left, right = _number(written), _number(printed)
    if left is not None and right is not None:
        return left & 0xFFFFFFFF == right & 0xFFFFFFFF
    return written.strip("\"'") == printed.strip("\"'")


def _number(text: str) -> int | None:
    """A number as the kernel's parameter parser reads it: 0x for hexadecimal, a leading 0 for octal."""
    text = text.strip("\"'")
    try:
        return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    except ValueError:
        return None


@check(
    "kernel-module.gsp-firmware",
    link=Link.KERNEL_MODULE,
    needs={Link.PCIE},
    title="The loaded driver's GSP firmware is on disk",
)
def gsp_firmware(module: NvidiaModule, driver: DriverGpus, firmware: GspFirmware) -> Verdicts:
    """The GPU's system processor runs firmware of exactly the module's version, read from disk each time the GPU is initialised.

    The open modules always need it, the proprietary ones on GPUs that have the processor. Looks for the version's folder on the
    firmware search path. A GPU that shows its firmware's version has loaded it. Easily confused with a firmware that is there and
    does not start.
    """
    running = [gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu) and gpu.firmware]
    if module.mute is not None:
        yield module.mute.about(NODE)
    elif module.version is None:
        yield NotApplicable(NODE, "no nvidia module is loaded")
    elif firmware.files:
        yield Pass(NODE, f"{', '.join(firmware.files)} of {module.version}", firmware.cite("files"))
    elif running:
        yield Pass(NODE, f"{running[0].firmware} runs", running[0].cite("firmware"))
    elif not module.is_open:
        yield NotApplicable(NODE, "the proprietary module runs without it here", module.cite("is_open"))
    elif isinstance(firmware.missing, Unread):
        yield firmware.missing.about(NODE)
    else:
        summary = f"there is no firmware of version {module.version} on the search path"
        evidence = firmware.cite("files") + module.cite("version")
        yield Fail(NODE, summary, evidence, (FIRMWARE, REBOOT), Breaks.NODE, cause="firmware-missing")
