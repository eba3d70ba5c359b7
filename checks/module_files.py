"""Kernel module: its files and options on disk against what runs: DKMS builds, modprobe.d, GSP firmware."""

import re

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, DriverParameters, NvidiaModule
from gpudoctor.facts.firmware import GspFirmware
from gpudoctor.facts.host import Host
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import Dkms
from gpudoctor.facts.platform import Platform, PlatformKind
from gpudoctor.knowledge.module_remedies import APPLY, BUILD, FIRMWARE, REBOOT
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, Breaks, Fail, NotApplicable, Pass, Unread, Verdicts, Warn


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
def gsp_firmware(
    module: NvidiaModule, driver: DriverGpus, firmware: GspFirmware, platform: Reading[Platform]
) -> Verdicts:
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
    elif isinstance(platform, Platform) and platform.kind is PlatformKind.TEGRA:
        yield NotApplicable(NODE, "Tegra's own GPU has its firmware elsewhere", platform.cite("kind"))
    elif firmware.files:
        yield Pass(NODE, f"{', '.join(firmware.files)} of {module.version}", firmware.cite("files"))
    elif running:
        yield Pass(NODE, f"{running[0].firmware} runs", running[0].cite("firmware"))
    elif not module.is_open:
        yield NotApplicable(NODE, "the proprietary module runs without it here", module.cite("is_open"))
    elif isinstance(firmware.missing, Unread):
        yield firmware.missing.about(NODE)
    elif isinstance(platform, Unread):
        yield platform.about(NODE)
    else:
        summary = f"there is no firmware of version {module.version} on the search path"
        evidence = firmware.cite("files") + module.cite("version")
        yield Fail(NODE, summary, evidence, (FIRMWARE, REBOOT), Breaks.NODE, cause="firmware-missing")
