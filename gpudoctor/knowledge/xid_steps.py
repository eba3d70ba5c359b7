"""Steps that many remedies are made of: keep the evidence, reset a GPU, reboot, diagnose, ask the vendor.

Diagnostics: dcgmi-diag(1), whose plugin eud needs NVIDIA's Extended Utility Diagnostics. Where the driver may hang,
nvidia-bug-report.sh needs --safe-mode.
"""

from gpudoctor.knowledge import gpu_reset
from gpudoctor.verdicts import Action, Remedy

LOG = "journalctl -k -b --grep 'NVRM: Xid|SXid'"
WATCH = f"{LOG}    # no new line like it"
RECOVERY = "gpudoctor run --check driver-cuda.recovery-action"


def collect(*, hangs: bool = False) -> Remedy:
    """Keep what there is to know; `hangs` where the driver may not answer."""
    return Remedy(
        Action.NONE,
        "Before anything else keep the evidence: the kernel log with the lines around it, and NVIDIA's own report.",
        run=(
            "gpudoctor record --raw -o /var/tmp/gpudoctor-$(date +%Y%m%d-%H%M%S).tar.zst",
            f"nvidia-bug-report.sh{' --safe-mode' if hangs else ''}",
        ),
        confirm="ls /var/tmp/gpudoctor-* nvidia-bug-report.log.gz",
    )


def reset(address: str) -> Remedy:
    """Reset one GPU, after the step before it."""
    return gpu_reset.reset(address, RECOVERY, then=True)


def reboot(*, then: bool) -> Remedy:
    """Reboot; `then`: after the step before it, not instead of it."""
    return Remedy(
        Action.REBOOT,
        "Drain the node and reboot it; a power cycle, where a reboot does not bring the GPU back. A virtual machine is stopped and started "
        "anew; its host, where that does not help.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm="gpudoctor run --link pcie --check driver-cuda.nvml-answers",
        then=then,
    )


# The older the tool, the fewer its fields: serial and uuid are those of every nvidia-smi; a lost GPU's serial is in the kernel log.
def vendor(address: str, say: str) -> Remedy:
    """Ask the vendor about a GPU, after the step before it."""
    return Remedy(
        Action.CONTACT_VENDOR,
        f"{say} Give the vendor the board's serial number and the file of nvidia-bug-report.sh.",
        run=(
            f"nvidia-smi -i {address} --query-gpu=serial,uuid,vbios_version,inforom.img --format=csv",
            "journalctl -k -b --grep 'NVRM: GPU Board Serial Number'    # for a GPU that no longer answers",
            "nvidia-bug-report.sh",
        ),
        interrupts="nothing until the board is exchanged",
        confirm="ls nvidia-bug-report.log.gz",
        then=True,
    )


def diagnose(address: str, when: str) -> Remedy:
    """Run diagnostics on a GPU, after the step before it."""
    return Remedy(
        Action.INSPECT_HARDWARE,
        f"{when} take the node out of service and run diagnostics on this GPU; the field diagnostics that follow come from the vendor.",
        run=(
            f"nvidia-smi -i {address} --query-gpu=index --format=csv,noheader    # INDEX",
            "dcgmi diag -r 3 -i INDEX",
            "dcgmi diag -r eud -i INDEX    # where NVIDIA's extended utility diagnostics are installed",
        ),
        interrupts="everything on this GPU, about 15 minutes and more",
        confirm=WATCH,
        then=True,
    )
