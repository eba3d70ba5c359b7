"""What to do about a kernel module that is missing, refused, wrong or does not take a GPU, from the safest step up.

The commands are those of modprobe.d(5), dkms(8) and mokutil(1). Cases they come from, as of 2026-11: nouveau negativo17/nvidia-driver#73,
nova beclab/Olares#3963, signatures NVIDIA/gpu-driver-container#44, failed builds NVIDIA/gpu-operator#252, firmware
NVIDIA/open-gpu-kernel-modules#263, GSP in a bad state NVIDIA/open-gpu-kernel-modules#1230.
"""

from gpudoctor.verdicts import Action, Remedy

BLACKLISTS = {"nouveau": ("nouveau",), "NovaCore": ("nova_core", "nova_drm"), "nova_core": ("nova_core", "nova_drm")}
"""Rival drivers that the kernel loads by itself, and the modules to blacklist: nova's driver is not its module's name."""


def blacklist(*modules: str) -> Remedy:
    """Keep rival modules from loading."""
    lines = "".join(f"blacklist {module}\\n" for module in modules)
    modeset = "options nouveau modeset=0\\n" if "nouveau" in modules else ""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Keep {' and '.join(modules)} from loading, also from the initramfs; it takes effect at the next boot.",
        run=(
            f"printf '{lines}{modeset}' > /etc/modprobe.d/blacklist-{modules[0]}.conf",
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

BUILD = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the kernel's headers and build the module for it, or install the distribution's prebuilt module package.",
    run=(
        "apt-get install linux-headers-$(uname -r)    # RHEL: dnf install kernel-devel-$(uname -r)",
        "dkms autoinstall -k $(uname -r)",
    ),
    confirm="modinfo -F vermagic nvidia",
)

UNBLOCK = Remedy(
    Action.CHANGE_CONFIG,
    "Remove the line that keeps the module from loading, also from the initramfs.",
    run=("grep -rn nvidia /etc/modprobe.d /usr/lib/modprobe.d /proc/cmdline",),
    confirm="modprobe --showconfig | grep -E '^(blacklist|install) nvidia'",
)

SIGN = Remedy(
    Action.INSTALL_PACKAGE,
    "Install modules signed by the distribution, or enrol the key that signed this one and confirm it on the console at the next boot.",
    run=("mokutil --sb-state", "modinfo -F signer nvidia", "mokutil --import /var/lib/shim-signed/mok/MOK.der"),
    interrupts="the whole node, at the reboot that enrolling takes",
    confirm="modprobe nvidia",
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
    confirm="modinfo nvidia names a file below /lib/modules/$(uname -r)",
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

_REBUILD_INITRAMFS = "update-initramfs -u    # RHEL, SUSE: dracut -f"
_LOAD_ANEW = ("modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia", "modprobe nvidia")

DROP_OPTION = Remedy(
    Action.CHANGE_CONFIG,
    "Remove the option, also from the initramfs, and reload the driver or reboot.",
    run=("grep -rnE 'ExcludedGpus|GpuBlacklist' /etc/modprobe.d", _REBUILD_INITRAMFS),
    interrupts="every process that uses a GPU of this node",
    confirm="grep ExcludedGpus /proc/driver/nvidia/params",
)

READ_THE_LOG = Remedy(
    Action.NONE,
    "Read the driver's messages about this GPU from the first to the last.",
    run=("journalctl -k -b --grep 'NVRM|nvidia'",),
    confirm="gpudoctor run --check kernel-module.adapter-initialised",
)

RELOAD = Remedy(
    Action.RESET_GPU,
    "Stop what uses the GPUs and load the driver anew; a GSP in a bad state needs a reset of the GPU or a cold start.",
    run=_LOAD_ANEW,
    interrupts="every process that uses a GPU of this node",
    confirm="gpudoctor run --check kernel-module.adapter-initialised",
)

APPLY = Remedy(
    Action.LOAD_MODULE,
    "Rebuild the initramfs if it holds the module, then reload the driver on a drained node.",
    run=(_REBUILD_INITRAMFS, *_LOAD_ANEW),
    interrupts="every process that uses a GPU of this node",
    confirm="cat /proc/driver/nvidia/params",
)

FIRMWARE = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the firmware package of exactly the loaded module's version, or correct the firmware search path.",
    run=("cat /sys/module/nvidia/version", "ls /lib/firmware/nvidia", "cat /sys/module/firmware_class/parameters/path"),
    confirm="ls /lib/firmware/nvidia/$(cat /sys/module/nvidia/version)",
)
