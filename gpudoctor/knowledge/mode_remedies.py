"""What to do about a GPU's modes and firmware, from the safest step up.

Sources, read 2026-11-30: nvidia-smi(1) of driver 610 (-mig, -pm, -c, -r; -i takes a PCI address); NVIDIA/NVSentinel#1692 (a reset is
refused while persistence mode is on); NVIDIA MPS guide, "Compute Modes".
"""

from gpudoctor.knowledge.memory_remedies import reset
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.verdicts import Action, Remedy


def apply_mig(check_id: str, address: str, on: bool) -> tuple[Remedy, ...]:
    """For a change of MIG mode that waits."""
    back = Remedy(
        Action.CHANGE_CONFIG,
        "Take the change back, if nobody wants it; else bring it into force.",
        run=(f"nvidia-smi -i {address} -mig {1 if on else 0}",),
        confirm=confirmed_by(check_id),
    )
    return (back, *reset(check_id, address, "The mode changes when the GPU is reset."))


def switch_persistence_on(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For one GPU that lacks it."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Have nvidia-persistenced keep all GPUs initialised, now and after the next boot.",
            run=("systemctl enable --now nvidia-persistenced", f"nvidia-smi -i {address} -pm 1"),
            confirm=confirmed_by(check_id),
        ),
    )


def default_compute_mode(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a mode that keeps programs out."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Let several programs in again. Find who set the mode: a scheduler's prolog, a service at boot.",
            run=(
                f"nvidia-smi -i {address} -c DEFAULT",
                "grep -rlE 'nvidia-smi.* (-c|--compute-mode)' /etc/systemd /etc/cron* /etc/slurm /etc/rc.local",
            ),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Or, where the mode is meant, give the GPU to one workload only, or run those that share it under MPS.",
            interrupts="the workloads that share it",
            confirm=confirmed_by(check_id),
        ),
    )


def same_firmware(check_id: str) -> tuple[Remedy, ...]:
    """For boards that differ in firmware."""
    return (
        Remedy(
            Action.CONTACT_VENDOR,
            "Nothing to do at once. Ask the server's vendor for this board's firmware, and bring all GPUs to one version at the next "
            "maintenance; never flash a VBIOS of another part number.",
            run=("nvidia-smi --query-gpu=index,pci.bus_id,vbios_version,inforom.img --format=csv",),
            interrupts="the whole node, during the update",
            confirm=confirmed_by(check_id),
        ),
    )
