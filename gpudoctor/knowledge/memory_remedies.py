"""What to do about a GPU's memory, from the safest step up.

Sources, read 2026-11-30: NVIDIA GPU Memory Error Management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, "RMA Policy", "User
Visible Statistics"): the field diagnostic decides over an RMA; NVIDIA Dynamic Page Retirement (docs.nvidia.com/deploy/
dynamic-page-retirement); NVIDIA RMA Process (docs.nvidia.com/deploy/rma-process): an nvidia-bug-report goes with each request;
nvidia-smi(1) of driver 610: -d, -e, -i takes a PCI address; DCGM @72fa3fee, dcgm_errors.h.
"""

from gpudoctor.knowledge import gpu_reset
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.verdicts import Action, Remedy


def reset(check_id: str, address: str, why: str) -> tuple[Remedy, ...]:
    """A reset once the GPU is free, or a reboot where there can be none."""
    confirm = confirmed_by(check_id)
    return (
        gpu_reset.reset(address, confirm, why=why),
        Remedy(
            Action.REBOOT,
            "Where a reset is refused, or not possible as in many virtual machines: drain the node and reboot it.",
            run=("systemctl reboot",),
            interrupts="the whole node",
            confirm=confirm,
        ),
    )


def exchange(check_id: str, address: str, why: str) -> tuple[Remedy, ...]:
    """Keep the evidence, keep work away, and ask for another board."""
    confirm = confirmed_by(check_id)
    return (
        _keep(address),
        Remedy(
            Action.CHANGE_WORKLOAD,
            f"{why} Give this GPU no more work: drain it, and cordon the node where jobs cannot be kept off one GPU.",
            interrupts="nothing that is already running",
            confirm=confirm,
            then=True,
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "Ask the board's vendor for an exchange: NVIDIA's field diagnostic, run with the GPU idle, decides; serial number and bug "
            "report go with it.",
            run=(f"nvidia-smi -q -i {address} | grep -E 'Serial Number|GPU UUID|GPU Part Number'",),
            interrupts="the whole node while the diagnostic runs, and while the board is exchanged",
            confirm=confirm,
            then=True,
        ),
    )


def _keep(address: str) -> Remedy:
    return Remedy(
        Action.NONE,
        "Keep the evidence first: the counters, and NVIDIA's bug report.",
        run=(
            f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {address}",
            "nvidia-bug-report.sh",
        ),
        confirm="ls nvidia-bug-report.log.gz",
    )


def plan_exchange(check_id: str, address: str, why: str) -> tuple[Remedy, ...]:
    """The GPU works; see to it before it does not."""
    return (
        _keep(address),
        Remedy(
            Action.CONTACT_VENDOR,
            f"{why} Have NVIDIA's field diagnostic run at the next maintenance; it decides over an exchange.",
            run=(f"nvidia-smi -q -i {address} | grep -E 'Serial Number|GPU UUID|GPU Part Number'",),
            interrupts="the whole node while the diagnostic runs",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def after_uncorrectable(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For errors that were counted and nothing else: what hit them is dead, and the count itself ends with a reset."""
    look = Remedy(
        Action.NONE,
        "See when it was, what was hit and whether the driver asked for something; the program that was hit must be started again.",
        run=(
            "journalctl -k -b --grep 'NVRM: Xid .*: (48|63|64|94|95|140|154|171|172),'",
            f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {address}",
        ),
        confirm=confirmed_by(check_id),
    )
    again = Remedy(
        Action.CONTACT_VENDOR,
        "If errors are counted again after the reset, have NVIDIA's field diagnostic run: it decides over an exchange.",
        interrupts="the whole node while the diagnostic runs",
        confirm=confirmed_by(check_id),
        then=True,
    )
    first, *others = reset(check_id, address, "A reset ends doubts about what is left of the error.")
    return (look, _then(first), *others, again)


def repair(check_id: str, address: str) -> tuple[Remedy, ...]:
    """The kernel's line says what activates the repair: `Perform GPU reset to activate repair`, or a node reboot.

    open-gpu-kernel-modules: ECC_CHANNEL_REPAIR_PENDING_XID_MESSAGE_FMT.
    """
    look = Remedy(
        Action.NONE,
        "The kernel log says whether a reset of the GPU is enough to activate the repair, or the node must be rebooted.",
        run=("journalctl -k -b --grep 'NVRM: Xid .*: (156|160),'",),
        confirm=confirmed_by(check_id),
    )
    first, *others = reset(check_id, address, "The spare is put in place while the GPU starts.")
    return (look, _then(first), *others)


def inforom(check_id: str, address: str) -> tuple[Remedy, ...]:
    """DCGM's advice for DCGM_FR_CORRUPT_INFOROM is to flash the InfoROM, which only the vendor's tool does."""
    confirm = confirmed_by(check_id)
    return (
        Remedy(
            Action.NONE,
            "See whether it stays: read it again, and look for what the driver says of it. As long as it is so nvidia-smi ends with exit "
            "code 14, which scripts and the GPU Operator's containers take for a failure.",
            run=(
                f"nvidia-smi --query-gpu=inforom.checksum_validation --format=csv -i {address}    # older drivers: nvidia-smi; echo $?",
                "journalctl -k -b --grep 'NVRM: Xid .*: (93|125),|[Ii]nfo[Rr][Oo][Mm]'",
            ),
            confirm=confirm,
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "Ask the board's vendor to write it anew, or for an exchange: retired pages, remapped rows and error counts are kept there.",
            run=(f"nvidia-smi -q -i {address} | grep -E 'Serial Number|GPU UUID|GPU Part Number'",),
            interrupts="the whole node while it is written, or the board exchanged",
            confirm=confirm,
            then=True,
        ),
    )


def ecc_on(check_id: str, address: str) -> tuple[Remedy, ...]:
    """nvidia-smi -e stores the mode; it holds from the next reset or reboot on.

    HBM has memory of its own for ECC (NVIDIA A100 GPU Memory Error Management, R450, note of the introduction).
    """
    choose = Remedy(
        Action.CHANGE_CONFIG,
        "Turn ECC on. If it was turned off on purpose, say so by a waiver in the doctor's configuration; on boards with HBM that gains "
        "neither memory nor speed.",
        run=(f"nvidia-smi -i {address} -e 1    # holds from the next reset on",),
        interrupts="nothing before the reset",
        confirm=confirmed_by(check_id),
    )
    first, *others = reset(check_id, address, "The mode changes with a reset.")
    return (choose, _then(first), *others)


def ecc_pending(check_id: str, address: str, *, now_on: bool) -> tuple[Remedy, ...]:
    """Bring the wanted mode into force, or take the wish back."""
    back = Remedy(
        Action.CHANGE_CONFIG,
        "Take the change back, if nobody wants it; else bring it into force.",
        run=(f"nvidia-smi -i {address} -e {int(now_on)}",),
        confirm=confirmed_by(check_id),
    )
    return (back, *reset(check_id, address, "The mode changes with a reset."))


def _then(remedy: Remedy) -> Remedy:
    from msgspec.structs import replace

    return replace(remedy, then=True)
