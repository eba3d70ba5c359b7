"""What to do about a kernel module that is missing, refused, wrong or does not take a GPU, from the safest step up.

The commands are those of modprobe.d(5), dkms(8) and mokutil(1). Cases they come from, as of 2026-11: nouveau negativo17/nvidia-driver#73,
nova beclab/Olares#3963, signatures NVIDIA/gpu-driver-container#44, failed builds NVIDIA/gpu-operator#252, firmware
NVIDIA/open-gpu-kernel-modules#263, GSP in a bad state NVIDIA/open-gpu-kernel-modules#1230.
"""

from gpudoctor.knowledge import gpu_reset
from gpudoctor.verdicts import Action, Remedy

BLACKLISTS = {"nouveau": ("nouveau",), "NovaCore": ("nova_core", "nova_drm"), "nova_core": ("nova_core", "nova_drm")}
"""Rival drivers that the kernel loads by itself, and the modules to blacklist: nova's driver is not its module's name."""


REBUILD_INITRAMFS = "update-initramfs -u    # RHEL, SUSE: dracut -f"

STOP_SERVICES = "systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-dcgm    # and whatever fuser lists then"
START_SERVICES = "systemctl start nvidia-persistenced nvidia-fabricmanager nvidia-dcgm    # those that ran"

UNLOAD = (
    STOP_SERVICES,
    "fuser -v /dev/nvidia*    # must list no process",
    "modprobe -r nvidia_peermem nvidia_fs gdrdrv    # those that are loaded: they use nvidia, too",
    "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
    "lsmod | grep -w nvidia    # must show nothing: what is named at the end of its line still uses it",
)
"""Take the driver out of the kernel, with what stands on it: GPUDirect RDMA (nvidia_peermem), Storage (nvidia_fs), GDRCopy (gdrdrv)."""

LOAD_ANEW = (*UNLOAD, "modprobe nvidia && modprobe nvidia_uvm    # and the others that were loaded", START_SERVICES)


def blacklist(*modules: str) -> Remedy:
    """Keep rival modules from loading."""
    lines = "".join(f"blacklist {module}\\n" for module in modules)
    modeset = "options nouveau modeset=0\\n" if "nouveau" in modules else ""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Keep {' and '.join(modules)} from loading, also from the initramfs; it takes effect at the next boot.",
        run=(
            f"printf '{lines}{modeset}' > /etc/modprobe.d/blacklist-{modules[0]}.conf",
            REBUILD_INITRAMFS,
        ),
        confirm="after the next boot: gpudoctor run --check kernel-module.gpu-bound",
    )


def confirmed_by(check_id: str) -> str:
    """The command that asks a check's question again."""
    return f"gpudoctor run --check {check_id}"


def reboot(check_id: str) -> Remedy:
    """A reboot, after which a check should pass."""
    return Remedy(
        Action.REBOOT,
        "Reboot once the node is drained.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm=confirmed_by(check_id),
    )


REBOOT = reboot("kernel-module.gpu-bound")


def _build(kernel: str, say: str, confirm: str) -> Remedy:
    return Remedy(
        Action.INSTALL_PACKAGE,
        say,
        run=(
            f"apt-get install linux-headers-{kernel}    # RHEL: dnf install kernel-devel-{kernel}; SUSE: kernel-default-devel",
            f"dkms autoinstall -k {kernel}",
        ),
        confirm=confirm,
    )


BUILD = _build(
    "$(uname -r)",
    "Install the kernel's headers and build the module for it, or install the distribution's prebuilt module package.",
    "modinfo -F vermagic nvidia    # begins with $(uname -r); after loading it: gpudoctor run --check kernel-module.gpu-bound",
)


def build_for(kernel: str) -> Remedy:
    """Build the module for a kernel that does not run yet."""
    say = f"Before the next boot, install the headers of kernel {kernel} and build the module for it."
    return _build(kernel, say, f"modinfo -k {kernel} -F version nvidia")


UNBLOCK = Remedy(
    Action.CHANGE_CONFIG,
    "Remove the line that keeps the module from loading, also from the initramfs.",
    run=("grep -rn nvidia /etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d /proc/cmdline", REBUILD_INITRAMFS),
    confirm="modprobe --showconfig | grep -E '^(blacklist|install) nvidia' shows none; then load it as below",
)

SIGN = Remedy(
    Action.INSTALL_PACKAGE,
    "Install modules signed by the distribution, or enrol the key that signed this one and confirm it on the console at the next boot.",
    run=("mokutil --sb-state", "modinfo -F signer nvidia", "mokutil --import /var/lib/shim-signed/mok/MOK.der"),
    interrupts="the whole node, at the reboot that enrolling takes",
    confirm="modprobe nvidia && gpudoctor run --check kernel-module.gpu-bound",
)

LOAD = Remedy(
    Action.LOAD_MODULE,
    "Load the module, and read the kernel log if it refuses.",
    run=("modinfo -F filename nvidia", "modprobe nvidia", "journalctl -k -b --grep 'nvidia|NVRM' | tail -20"),
    confirm="gpudoctor run --check kernel-module.gpu-bound",
)

INSTALL = Remedy(
    Action.INSTALL_PACKAGE,
    "If modprobe finds no module for this kernel, install the driver's module package or rebuild it for this kernel.",
    run=("modinfo -F filename nvidia", "dkms status"),
    confirm="modinfo -F filename nvidia names a file below /lib/modules/$(uname -r); after loading it: "
    "gpudoctor run --check kernel-module.gpu-bound",
)


def bind(address: str) -> Remedy:
    """Offer a GPU to the driver again."""
    return Remedy(
        Action.LOAD_MODULE,
        "Read why the driver refused this GPU in the kernel log, then offer it to the driver again.",
        run=(f"journalctl -k -b --grep '{address}|NVRM'", f"echo {address} > /sys/bus/pci/drivers/nvidia/bind"),
        confirm="gpudoctor run --check kernel-module.gpu-bound",
    )


def take_from(rival: str, address: str, *, bound: bool = True) -> Remedy:
    """Take a GPU from a driver that was given it on purpose, perhaps of an earlier time; or only from its claim to it."""
    unbind = (f"echo {address} > /sys/bus/pci/drivers/{rival}/unbind",) if bound else ()
    return Remedy(
        Action.CHANGE_CONFIG,
        f"If no virtual machine should have this GPU, take it from {rival} and give it to nvidia; else waive this finding.",
        run=(
            f"cat /sys/bus/pci/devices/{address}/driver_override",
            f"echo > /sys/bus/pci/devices/{address}/driver_override",
            *unbind,
            f"echo {address} > /sys/bus/pci/drivers_probe",
        ),
        interrupts="whatever uses this GPU now, for example a virtual machine",
        confirm="gpudoctor run --check kernel-module.gpu-bound",
    )


WINDOW = Remedy(
    Action.CHANGE_CONFIG,
    "In the firmware setup turn on Above 4G Decoding and Resizable BAR; with both on and no change, update the firmware.",
    interrupts="the whole node, at the reboot it takes",
    confirm="gpudoctor run --check kernel-module.adapter-initialised",
)

FREE_THE_REGION = Remedy(
    Action.CHANGE_CONFIG,
    "Keep the driver that owns the GPU's registers from taking them: a framebuffer by the command line, another by a blacklist.",
    run=(
        "grep -n '' /proc/iomem | grep -iE 'nvidia|fb|framebuffer|vfio|nouveau'",
        "grubby --update-kernel=ALL --args=video=efifb:off    # Debian, Ubuntu: GRUB_CMDLINE_LINUX in /etc/default/grub, update-grub",
    ),
    interrupts="the console on this GPU, from the next boot on",
    confirm="gpudoctor run --check kernel-module.gpu-bound",
)

DROP_OPTION = Remedy(
    Action.CHANGE_CONFIG,
    "Remove the option, also from the initramfs, and reload the driver or reboot.",
    run=("grep -rnE 'ExcludedGpus|GpuBlacklist' /etc/modprobe.d /proc/cmdline", REBUILD_INITRAMFS, *LOAD_ANEW),
    interrupts="every process that uses a GPU of this node",
    confirm=confirmed_by("kernel-module.gpu-not-excluded"),
)


def read_the_log(check_id: str) -> Remedy:
    """For a GPU that the driver could not take, or could not start."""
    return Remedy(
        Action.NONE,
        "Read the driver's messages about this GPU from the first to the last.",
        run=("journalctl -k -b --grep 'NVRM|nvidia'",),
        confirm=confirmed_by(check_id),
    )


RELOAD = Remedy(
    Action.LOAD_MODULE,
    "Stop what uses the GPUs and load the driver anew. If a module that uses it is still listed, reboot instead.",
    run=LOAD_ANEW,
    interrupts="every process that uses a GPU of this node",
    confirm=confirmed_by("kernel-module.adapter-initialised"),
)

APPLY = Remedy(
    Action.LOAD_MODULE,
    "Rebuild the initramfs if it holds the module, then reload the driver on a drained node. If a module that uses it is still listed, "
    "reboot instead.",
    run=(REBUILD_INITRAMFS, *LOAD_ANEW),
    interrupts="every process that uses a GPU of this node",
    confirm=confirmed_by("kernel-module.parameters-applied"),
)


def power(check_id: str) -> Remedy:
    """For a board that says that its power cables are not connected (osinit.c of open-gpu-kernel-modules, NV_ERR_INSUFFICIENT_POWER)."""
    return Remedy(
        Action.INSPECT_HARDWARE,
        "Shut the node down and check the board's auxiliary power cables, and what the power supply can give.",
        interrupts="the whole node",
        confirm=confirmed_by(check_id),
    )


INITIALISED = (
    read_the_log("kernel-module.adapter-initialised"),
    RELOAD,
    reboot("kernel-module.adapter-initialised"),
)
"""For a GPU that did not start, whatever the reason."""


def reset(address: str) -> tuple[Remedy, ...]:
    """For a GPU whose GSP is in a bad state: loading the driver anew does not clear its memory region, a reset of the GPU does.

    Documentation/ABI/testing/sysfs-bus-pci, reset. NVIDIA/open-gpu-kernel-modules#1230.
    """
    confirm = confirmed_by("kernel-module.adapter-initialised")
    return (
        gpu_reset.reset(address, confirm),
        Remedy(
            Action.RESET_GPU,
            "Where nvidia-smi does not know the GPU, and fuser lists nobody, reset it through PCI.",
            run=("fuser -v /dev/nvidia*", f"echo 1 > /sys/bus/pci/devices/{address}/reset"),
            interrupts="every process on this GPU; the whole node, if one that uses it is overlooked",
            confirm=confirm,
        ),
        reboot("kernel-module.adapter-initialised"),
        Remedy(
            Action.INSPECT_HARDWARE,
            "If a reboot does not clear it, power the machine off and on again; if it comes back, update the driver.",
            interrupts="the whole node",
            confirm=confirm,
        ),
    )


def firmware_package(check_id: str) -> Remedy:
    """The loaded driver's firmware, for a check that misses it."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        "Install the firmware package of exactly the loaded module's version, or correct the firmware search path.",
        run=(
            "cat /sys/module/nvidia/version",
            "ls /lib/firmware/nvidia",
            "cat /sys/module/firmware_class/parameters/path",
        ),
        confirm=confirmed_by(check_id),
    )
