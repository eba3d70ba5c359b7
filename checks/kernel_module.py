"""Kernel module: does the nvidia driver hold the GPUs?"""

import re

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.registry import check
from gpudoctor.verdicts import Action, Breaks, Cited, Fail, Pass, Remedy, Unread, Verdict, Verdicts

BLACKLIST_NOUVEAU = Remedy(
    Action.CHANGE_CONFIG,
    "Keep nouveau from loading, also from the initramfs; it takes effect at the next boot.",
    run=(
        "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/blacklist-nouveau.conf",
        "update-initramfs -u    # Debian, Ubuntu; on RHEL and SUSE: dracut -f",
    ),
    confirm="lsinitramfs or lsinitrd shows the new file",
)
REBOOT = Remedy(
    Action.REBOOT,
    "Reboot once the node is drained.",
    run=("systemctl reboot",),
    interrupts="the whole node",
    confirm="gpudoctor run --check kernel-module.gpu-bound",
)


@check(
    "kernel-module.gpu-bound",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    essential=True,
    title="The nvidia driver holds every GPU",
)
def gpu_bound(gpus: PciGpus, module: Reading[NvidiaModule], log: Reading[KernelLog]) -> Verdicts:
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
            yield _unbound(gpu, module, log)
        else:
            yield Fail(
                gpu,
                f"held by {gpu.driver}, not by nvidia",
                gpu.cite("driver") + _rival_lines(log),
                _against(gpu.driver, gpu),
                Breaks.SUBJECT,
                cause=f"held-by-{gpu.driver}",
            )


def _unbound(gpu: PciGpu, module: Reading[NvidiaModule], log: Reading[KernelLog]) -> Verdict:
    if isinstance(module, Unread):
        return Fail(gpu, "held by no driver", gpu.cite("driver"), (_bind(gpu), REBOOT), Breaks.SUBJECT, cause="unbound")
    if not module.loaded:
        return Fail(
            gpu,
            "held by no driver: the nvidia module is not loaded",
            gpu.cite("driver") + module.cite("loaded"),
            (_LOAD, _INSTALL, REBOOT),
            Breaks.SUBJECT,
            cause="module-not-loaded",
        )
    return Fail(
        gpu,
        "held by no driver although the nvidia module is loaded",
        gpu.cite("driver") + module.cite("loaded") + _lines_about(gpu, log),
        (_bind(gpu), REBOOT),
        Breaks.SUBJECT,
        cause="unbound",
    )


_LOAD = Remedy(
    Action.LOAD_MODULE,
    "Load the module, and read the kernel log if it refuses.",
    run=("modprobe nvidia", "journalctl -k -b --grep 'nvidia|NVRM' | tail -20"),
    confirm="gpudoctor run --check kernel-module.gpu-bound",
)
_INSTALL = Remedy(
    Action.INSTALL_PACKAGE,
    "If modprobe finds no module for this kernel, install the driver's module package or rebuild it for this kernel.",
    run=("modinfo -F filename nvidia", "dkms status"),
    confirm="modinfo nvidia names a file below /lib/modules/$(uname -r)",
)


def _bind(gpu: PciGpu) -> Remedy:
    return Remedy(
        Action.LOAD_MODULE,
        "Read why the driver refused this GPU in the kernel log, then offer it to the driver again.",
        run=(f"journalctl -k -b --grep '{gpu.address}|NVRM'", f"echo {gpu.address} > /sys/bus/pci/drivers/nvidia/bind"),
        confirm="gpudoctor run --check kernel-module.gpu-bound",
    )


def _against(rival: str, gpu: PciGpu) -> tuple[Remedy, ...]:
    if rival == "nouveau":
        return (BLACKLIST_NOUVEAU, REBOOT)
    give_back = Remedy(
        Action.CHANGE_CONFIG,
        f"If no virtual machine should have this GPU, take it from {rival} and give it to nvidia; else waive this finding.",
        run=(
            f"cat /sys/bus/pci/devices/{gpu.address}/driver_override",
            f"echo > /sys/bus/pci/devices/{gpu.address}/driver_override",
            f"echo {gpu.address} > /sys/bus/pci/drivers/{rival}/unbind",
            f"echo {gpu.address} > /sys/bus/pci/drivers_probe",
        ),
        interrupts="whatever uses this GPU now, for example a virtual machine",
        confirm="gpudoctor run --check kernel-module.gpu-bound",
    )
    return (give_back, REBOOT)


_PROBE_NOT_CALLED = re.compile(r"NVRM: The NVIDIA (?:GPU )?probe routine was not called|NVRM: No NVIDIA devices probed")


def _rival_lines(log: Reading[KernelLog]) -> Cited:
    return () if isinstance(log, Unread) else tuple(log.lines(_PROBE_NOT_CALLED, "NVRM: ")[-1:])


def _lines_about(gpu: PciGpu, log: Reading[KernelLog]) -> Cited:
    if isinstance(log, Unread):
        return ()
    return tuple(log.lines(re.compile(r"nvidia|NVRM", re.IGNORECASE), gpu.address)[-3:])
