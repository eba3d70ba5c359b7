"""Kernel module: its files and options on disk against what runs: DKMS builds, modprobe.d, GSP firmware."""

import re
from collections.abc import Mapping

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, DriverParameters, NvidiaModule
from gpudoctor.facts.firmware import GspFirmware
from gpudoctor.facts.host import Host
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import Dkms
from gpudoctor.facts.platform import Platform, PlatformKind
from gpudoctor.knowledge.module_remedies import APPLY, build_for, firmware_package, reboot
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, Breaks, Fail, NotApplicable, Pass, Unknown, Unread, Verdict, Verdicts, Warn, Why


@check(
    "kernel-module.dkms-built",
    link=Link.KERNEL_MODULE,
    explained_by=("kernel-module.gpu-bound",),
    advisory=True,
    title="DKMS has built the module for the kernels here",
)
def dkms_built(dkms: Dkms, host: Host) -> Verdicts:
    """A kernel without a build of the module has no GPU after the next boot.

    Compares `dkms status` with the kernels installed below /lib/modules. Only kernels newer than the running one count: older ones
    are seldom booted again, and what the running one lacks shows in which driver holds the GPUs. Where DKMS does not manage the
    driver there is nothing to say. Other modules of NVIDIA's that DKMS may build, such as nvidia-fs, are not judged.
    """
    if not dkms.installed:
        yield NotApplicable(NODE, "there is no dkms here")
    elif not dkms.managed:
        yield NotApplicable(NODE, "DKMS does not manage the nvidia driver", dkms.cite("states"))
    elif isinstance(dkms.kernels, Unread):
        yield dkms.kernels.about(NODE)
    elif host.kernel is None:
        yield Unknown(NODE, Why.NOT_RECORDED, "which kernel runs is not known")
    else:
        yield _built(dkms, dkms.kernels, host.kernel)


def _built(dkms: Dkms, kernels: tuple[str, ...], running: str) -> Verdict:
    newer = [kernel for kernel in kernels if kernel[:1].isdigit() and _order(kernel) > _order(running)]
    lacking = [kernel for kernel in newer if not _is_built(dkms, kernel)]
    evidence = dkms.cite("states", "kernels")
    if lacking:
        failed = f"; the build stopped at: {dkms.failure}" if dkms.failure else ""
        summary = f"no build for kernel {', '.join(lacking)}{failed}"
        remedies = tuple(build_for(kernel) for kernel in lacking[:3])
        return Warn(
            NODE, summary, evidence + (dkms.cite("failure") if dkms.failure else ()), remedies, cause="not-built"
        )
    if dkms.incomplete is not None:
        return dkms.incomplete.about(NODE)
    if not newer and not _is_built(dkms, running):
        return NotApplicable(NODE, "no kernel here is newer than the running one", evidence)
    return Pass(NODE, "every kernel that may be booted next has one", evidence)


def _is_built(dkms: Dkms, kernel: str) -> bool:
    return dkms.states.get(kernel, "").startswith("installed")


def _order(kernel: str) -> tuple[int, ...]:
    """The numbers of a kernel release, for comparing."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", kernel)[:5])


@check(
    "kernel-module.parameters-applied",
    link=Link.KERNEL_MODULE,
    needs={Link.PCIE},
    advisory=True,
    title="modprobe.d's options are in force",
)
def parameters_applied(parameters: DriverParameters, modprobe: ModprobeConfig) -> Verdicts:
    """Options of the nvidia module take effect when it is loaded, and from the initramfs if it is loaded there.

    Compares what modprobe.d says with /proc/driver/nvidia/params, number for number: the files may write hexadecimal or octal, the
    driver prints decimal. Options that the driver does not print cannot be compared. The kernel command line may override a file.
    Debian's options are those of nvidia-current, the name of its file.
    """
    if not parameters.values:
        yield NotApplicable(NODE, "the driver is not loaded", parameters.cite("values"))
        return
    options = {_printed_name(option.name): option for option in modprobe.options_of("nvidia")}
    overridden = _on_command_line(modprobe)
    comparable = {
        name: option for name, option in options.items() if name in parameters.values and name not in overridden
    }
    differing = [name for name, option in comparable.items() if not _same(option.value, parameters.values[name])]
    if differing:
        evidence = tuple(
            seen for name in differing for seen in (*comparable[name].cite("value"), parameters.evidence(name))
        )
        summary = f"not in force: {', '.join(sorted(differing))}"
        yield Warn(NODE, summary, evidence, (APPLY, reboot("kernel-module.parameters-applied")), cause="not-applied")
    elif comparable:
        evidence = tuple(
            seen for name, option in comparable.items() for seen in (*option.cite("value"), parameters.evidence(name))
        )
        yield Pass(NODE, f"in force: {', '.join(sorted(comparable))}", evidence)
    else:
        yield NotApplicable(NODE, "modprobe.d sets no option that the driver prints")


def _on_command_line(modprobe: ModprobeConfig) -> set[str]:
    """Names of options of the module: `nvidia.NVreg_NAME=VALUE`, dashes being as good as underscores."""
    words = [word.partition("=")[0].replace("-", "_").partition(".") for word in modprobe.cmdline]
    return {_printed_name(name) for module, _, name in words if module in modprobe.names_of("nvidia")}


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
def gsp_firmware(
    module: NvidiaModule, driver: DriverGpus, firmware: GspFirmware, platform: Reading[Platform]
) -> Verdicts:
    """The GPU's system processor runs firmware of exactly the module's version, read from disk each time the GPU is initialised.

    The open modules always need it, the proprietary ones on GPUs that have the processor. Looks for the version's folder on the
    firmware search path, and there for the image of each GPU's chip: gsp_tu10x.bin for Turing and A100, gsp_ga10x.bin for what came
    later. A folder or an empty file of that name is none. A GPU that shows its firmware's version has loaded it. Easily confused with
    a firmware that is there and does not start.
    """
    running = [gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu) and gpu.firmware]
    lacking = _lacking(firmware, {firmware.wanted.get(gpu.address) for gpu in running})
    if module.mute is not None:
        yield module.mute.about(NODE)
    elif module.version is None:
        yield NotApplicable(NODE, "no nvidia module is loaded")
    elif isinstance(platform, Platform) and platform.kind is PlatformKind.TEGRA:
        yield NotApplicable(NODE, "Tegra's own GPU has its firmware elsewhere", platform.cite("kind"))
    elif firmware.files and firmware.complete:
        yield Pass(NODE, f"{', '.join(firmware.files)} of {module.version}", firmware.cite(*firmware.files))
    elif running and not lacking:
        yield _running(running[0], firmware)
    elif not module.is_open:
        yield NotApplicable(NODE, "the proprietary module runs without it here", module.cite("is_open"))
    elif isinstance(firmware.missing, Unread):
        yield firmware.missing.about(NODE)
    elif isinstance(platform, Unread):
        yield platform.about(NODE)
    else:
        yield _no_firmware(module, firmware, lacking)


def _lacking(firmware: GspFirmware, running: set[str | None]) -> dict[str, str]:
    """The image that is not there, by the address of each GPU that needs it, unless one runs it already."""
    there = running.union(firmware.files)
    return {address: name for address, name in firmware.wanted.items() if name not in there}


def _running(gpu: DriverGpu, firmware: GspFirmware) -> Verdict:
    """It was loaded from somewhere, perhaps out of sight; but a file in sight that has become useless is what the next start finds."""
    spoilt = [firmware.spoilt[name] for name in sorted(set(firmware.wanted.values())) if name in firmware.spoilt]
    if not spoilt:
        return Pass(NODE, f"{gpu.firmware} runs", gpu.cite("firmware"))
    summary = (
        f"{gpu.firmware} runs, but {spoilt[0].where} {spoilt[0].shows}: a GPU that is initialised again will not start"
    )
    remedies = (firmware_package("kernel-module.gsp-firmware"),)
    return Warn(NODE, summary, (*spoilt, *gpu.cite("firmware")), remedies, cause="firmware-spoilt")


def _no_firmware(module: NvidiaModule, firmware: GspFirmware, lacking: Mapping[str, str]) -> Fail:
    remedies = (firmware_package("kernel-module.gsp-firmware"), reboot("kernel-module.gsp-firmware"))
    evidence = firmware.nowhere + module.cite("version")
    if not firmware.files:
        summary = f"there is no firmware of version {module.version} on the search path"
        return Fail(NODE, summary, evidence, remedies, Breaks.NODE, cause="firmware-missing")
    names, gpus = sorted(set(lacking.values())), ", ".join(sorted(lacking))
    summary = f"there is no {' or '.join(names)} of version {module.version}, which {gpus} needs"
    evidence = firmware.cite(*firmware.files) + evidence
    breaks = Breaks.NODE if set(firmware.wanted) == set(lacking) else Breaks.NOTHING
    return Fail(NODE, summary, evidence, remedies, breaks, cause="firmware-missing")
