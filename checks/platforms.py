"""Platforms whose GPU is not a function on PCI: WSL2 and Tegra, by their own nodes, libraries and driver."""

import re

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.platform import PlatformGpu, PlatformKind
from gpudoctor.facts.raw import Absent, Entry, EntryType
from gpudoctor.facts.tegra import TegraDriver
from gpudoctor.facts.wsl import CUDA, LIBRARIES, WslDriver
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

_IN_WINDOWS = Remedy(
    Action.CHANGE_CONFIG,
    "In Windows: see that the distribution is of version 2 and that .wslconfig does not say gpuSupport=false, update WSL, start it anew.",
    run=("wsl.exe --list --verbose", "wsl.exe --update", "wsl.exe --shutdown"),
    interrupts="everything that runs in WSL",
    confirm="gpudoctor run --check device-nodes.platform-node",
)
_WINDOWS_DRIVER = Remedy(
    Action.INSTALL_PACKAGE,
    "Install NVIDIA's driver in Windows, not in Linux: it brings these libraries, and WSL mounts them when it starts.",
    run=("nvidia-smi.exe    # from WSL: does the driver answer in Windows?", "wsl.exe --shutdown"),
    interrupts="everything that runs in WSL",
    confirm=f"ls -l {LIBRARIES}",
)
_NO_LINUX_DRIVER = Remedy(
    Action.INSTALL_PACKAGE,
    "Remove the Linux driver's packages; of CUDA install the toolkit alone, from NVIDIA's WSL-Ubuntu repository.",
    run=(
        "dpkg -S libcuda.so.1",
        "apt-get remove 'libnvidia-compute-*' 'nvidia-driver-*' cuda-drivers    # look at what else it would take along",
        "ldconfig",
    ),
    interrupts="programs that have the wrong libraries open",
    confirm=f"ldconfig -p | grep libcuda.so.1    # {CUDA}",
)
_LOAD_NVGPU = Remedy(
    Action.LOAD_MODULE,
    "Load the module, and see why nobody did: a deny list, or from JetPack 7.2 on, where it is on one, the service that loads it.",
    run=(
        "modprobe nvgpu",
        "grep -rn nvgpu /etc/modprobe.d /etc/modules-load.d",
        "systemctl status nv-load-display-modules --no-pager",
        "journalctl -k -b --grep nvgpu | tail -20",
    ),
    confirm="gpudoctor run --check kernel-module.tegra-driver",
)
_RELOAD_NVGPU = Remedy(
    Action.LOAD_MODULE,
    "Read what stopped the driver, such as firmware that is not where firmware_class.path points to; then load it anew.",
    run=(
        "journalctl -k -b --grep 'nvgpu|firmware' | tail -30",
        "grep -o 'firmware_class.path=[^ ]*' /proc/cmdline",
        "modprobe -r nvgpu && modprobe nvgpu",
    ),
    interrupts="every program that uses the GPU",
    confirm="gpudoctor run --check device-nodes.platform-node",
)


def _reboot(check_id: str) -> Remedy:
    return Remedy(
        Action.REBOOT,
        "Or reboot.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm=f"gpudoctor run --check {check_id}",
    )


_NVGPU_TROUBLE = pattern(r"nvgpu.*(?:fail|error|invalid|unable)", re.IGNORECASE)


@check(
    "device-nodes.platform-node",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    title="The platform's own GPU node is there (WSL2, Tegra)",
)
def platform_node(gpu: PlatformGpu, wsl: WslDriver, tegra: TegraDriver, log: Reading[KernelLog]) -> Verdicts:
    """In WSL2 every program reaches the Windows host's GPU through /dev/dxg, on Tegra its own through nvgpu's control node.

    On Tegra that is /dev/nvgpu/igpu0/ctrl, in older releases /dev/nvhost-ctrl-gpu. The kernel makes either when the driver has started,
    so a loaded nvgpu without it is one that did not get all the way up, mostly for lack of firmware: then CUDA finds no GPU, and some
    other nvhost nodes are there all the same. Their numbers are given by the kernel and not judged. Ordinary nodes have GPUs on PCI
    and are judged by device-nodes.gpu-node; so are Jetson Thor and boards with a card in a slot.
    """
    if gpu.kind is None:
        yield NotApplicable(NODE, gpu.reason, gpu.cite("kind"))
    elif gpu.kind is PlatformKind.WSL2:
        yield _node(wsl.node, gpu, (_IN_WINDOWS, _WINDOWS_DRIVER), ())
    elif tegra.openrm_chip is not None:
        yield NotApplicable(NODE, f"{tegra.openrm_chip} has its GPU on PCI", tegra.cite("openrm_chip"))
    else:
        lines = () if isinstance(log, Unread) else tuple(log.lines(_NVGPU_TROUBLE, "nvgpu"))[-3:]
        yield _node(
            tegra.node, gpu, (_RELOAD_NVGPU, _reboot("device-nodes.platform-node")), tegra.node_missing[1:] + lines
        )


def _node(
    found: Entry | Absent | Unread,
    gpu: PlatformGpu,
    remedies: tuple[Remedy, ...],
    lines: tuple[Evidence, ...],
) -> Verdict:
    if isinstance(found, Unread):
        return found.about(NODE)
    kind = gpu.cite("kind")
    if isinstance(found, Absent):
        evidence = (found.evidence, *kind, *lines)
        return Fail(NODE, f"{found.path} is missing", evidence, remedies, Breaks.NODE, cause="missing")
    numbers = "" if found.major is None else f" {found.major}:{found.minor}"
    seen = (Evidence(found.path, f"{found.type.words}{numbers}"), *kind)
    if found.type is not EntryType.CHAR:
        summary = f"{found.path} is a {found.type.words}, not a device node"
        return Fail(NODE, summary, seen, remedies, Breaks.NODE, cause="not-a-device")
    return Pass(NODE, f"{found.path} is there", seen)


@check(
    "driver-cuda.wsl-libraries",
    link=Link.DRIVER_CUDA,
    needs={Link.DEVICE_NODES},
    essential=True,
    title="WSL's own driver libraries are there",
)
def wsl_libraries(gpu: PlatformGpu, wsl: WslDriver) -> Verdicts:
    """In WSL2 the driver is Windows': it brings libcuda and libnvidia-ml for Linux, which WSL mounts at /usr/lib/wsl/lib.

    They are missing where Windows has no NVIDIA driver, or one without support for WSL; DirectX' libraries are there all the same. A
    Linux driver installed inside, as the packages `cuda` and `cuda-drivers` do, hides them, and CUDA finds no GPU (CUDA on WSL User Guide,
    "Do not install any Linux display driver in WSL"). NVML is not asked in WSL, so this stands for its answer. Ordinary nodes are not
    judged here.
    """
    if gpu.kind is not PlatformKind.WSL2:
        yield NotApplicable(NODE, gpu.reason, gpu.cite("kind"))
        return
    if wsl.linux_driver:
        summary = "a Linux NVIDIA driver is installed inside WSL2: it hides the libraries of the Windows driver"
        yield Warn(NODE, summary, wsl.linux_driver, (_NO_LINUX_DRIVER,), cause="linux-driver")
    libraries = _libraries(wsl)
    # What is there but hidden is no pass.
    if not wsl.linux_driver or not isinstance(libraries, Pass):
        yield libraries


def _libraries(wsl: WslDriver) -> Verdict:
    missing = [found for found in wsl.libraries.values() if isinstance(found, Absent)]
    unread = [found for found in wsl.libraries.values() if isinstance(found, Unread)]
    if missing:
        names = " and ".join(found.path.rsplit("/", 1)[-1] for found in missing)
        breaks = Breaks.NODE if isinstance(wsl.libraries[CUDA], Absent) else Breaks.NOTHING
        summary = f"{names} {'are' if len(missing) > 1 else 'is'} not in {LIBRARIES}"
        evidence = tuple(found.evidence for found in missing)
        return Fail(NODE, summary, evidence, (_WINDOWS_DRIVER,), breaks, cause="missing")
    if unread:
        return unread[0].about(NODE)
    evidence = tuple(Evidence(path, "exists") for path in wsl.libraries)
    return Pass(NODE, f"libcuda and libnvidia-ml are in {LIBRARIES}", evidence)


@check(
    "kernel-module.tegra-driver",
    link=Link.KERNEL_MODULE,
    essential=True,
    title="The nvgpu driver is loaded (Tegra)",
)
def tegra_driver(gpu: PlatformGpu, tegra: TegraDriver, modprobe: Reading[ModprobeConfig]) -> Verdicts:
    """On Jetson and other Tegra the GPU is part of the chip and driven by nvgpu, not by nvidia.

    A module nvidia that is loaded there drives the display alone. From JetPack 7.2 on, nvgpu is on modprobe's deny list and loaded by
    the service nv-load-display-modules; a kernel built by oneself lacks it where its modules were not built along. A driver built
    into the kernel is known by /sys/module, or by its node. Jetson Thor has one driver for all, nvidia, and its GPU on PCI: there,
    and on every ordinary node, this does not apply.
    """
    if gpu.kind is not PlatformKind.TEGRA:
        yield NotApplicable(NODE, gpu.reason, gpu.cite("kind"))
    elif tegra.openrm_chip is not None:
        yield NotApplicable(NODE, f"{tegra.openrm_chip} is driven by nvidia", tegra.cite("openrm_chip"))
    elif isinstance(tegra.loaded, Unread):
        yield tegra.loaded.about(NODE)
    elif tegra.loaded:
        yield Pass(NODE, "nvgpu is loaded", tegra.cite("loaded"))
    elif isinstance(tegra.node, Entry):
        yield Pass(NODE, "built into the kernel: its node is there", (Evidence(tegra.node.path, "exists"),))
    elif isinstance(tegra.node, Unread):
        yield tegra.node.about(NODE)
    else:
        blocked = None if isinstance(modprobe, Unread) else modprobe.blocked.get("nvgpu")
        evidence = (*tegra.cite("loaded"), *tegra.node_missing, *((blocked,) if blocked else ()))
        remedies = (_LOAD_NVGPU, _reboot("kernel-module.tegra-driver"))
        yield Fail(NODE, "nvgpu is not loaded", evidence, remedies, Breaks.NODE, cause="not-loaded")
