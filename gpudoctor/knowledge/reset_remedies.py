"""What the driver asks for after an error, and the way to a reset past those who stand in it, from the safest step up.

Sources, read 2026-11-30: nvidia-smi(1) of driver 610 (--gpu-reset, -pm; -i takes a PCI address); NVIDIA/NVSentinel#1692 (persistence
mode refuses a reset: -pm 0 first); NVIDIA/DCGM#95 (DCGM holds GPUs that no list shows); imex_session_api.c of
NVIDIA/open-gpu-kernel-modules 595.45.04 (when it asks to recover the IMEX domain, and what ends that).
"""

from collections.abc import Sequence

from gpudoctor.knowledge.gpu_reset import INTERRUPTS, reset_command
from gpudoctor.knowledge.module_remedies import START_SERVICES, STOP_SERVICES, confirmed_by
from gpudoctor.knowledge.nvml_remedies import confirming, for_recovery
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

_MONITORS = pattern(
    r"(?:^|[-_.])(?:dcgm|nv-hostengine|nvsm|nvidia-persiste(?:nced?)?|node[-_]exporter|gpud|netdata|telegraf|datadog)(?:[-_.@]|$)"
)
"""Units and programs that watch GPUs: they are stopped, nobody loses work. The kernel keeps fifteen letters of a program's name."""
_FABRIC = pattern(r"nv-fabricmanag|nvidia-fabricmanag|nvidia-imex|nvlsm|nvidia-device-p")


RESET_ALL = (
    STOP_SERVICES,
    "nvidia-smi -pm 0    # persistence mode counts as a user of the GPUs",
    "fuser -v /dev/nvidia*    # must list no process",
    "nvidia-smi --gpu-reset",
    f"{START_SERVICES}; without nvidia-persistenced: nvidia-smi -pm 1",
)
"""The commands that reset all GPUs of a node together, and with them its NVSwitches."""
IMEX_DOMAIN = "recover_imex_domain"


def recover(action: str, check_id: str) -> tuple[Remedy, ...]:
    """What the driver itself asks for, in the words of nvmlDeviceGpuRecoveryAction_t (nvml.h) or of Xid 154."""
    if action.lower().replace(" ", "_") == IMEX_DOMAIN:
        return _recover_domain(check_id)
    return confirming(for_recovery(action), check_id)


def _recover_domain(check_id: str) -> tuple[Remedy, ...]:
    """nvidia-imex ended and left memory exported: the driver gives out no more of it for other nodes until the daemon runs again.

    No reset is asked for, and none helps: the driver keeps this for the node, not for a GPU.
    """
    return (
        Remedy(
            Action.NONE,
            "See when nvidia-imex ended, and why. Where Kubernetes' compute domains or a prolog bring it, that one's log tells.",
            run=("journalctl -b -u nvidia-imex --no-pager | tail -30", "tail -30 /var/log/nvidia-imex.log"),
            confirm="nvidia-imex-ctl -q",
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "End the jobs that share this node's GPU memory with other nodes, on all of them: they may still use what would be given away.",
            interrupts="jobs over several nodes of this NVLink domain that include this one",
            confirm="nvidia-imex-ctl -N",
            then=True,
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Start nvidia-imex again, or the job that brings it: from then on memory is given out again.",
            run=("systemctl restart nvidia-imex",),
            interrupts="nothing that the step before has not ended",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def is_monitor(name: str) -> bool:
    """Whether a unit or program only watches GPUs; nv-hostengine is DCGM's (DCGM, hostengine)."""
    return _MONITORS.search(name) is not None


def computes_nothing(name: str) -> bool:
    """Whether a unit or program has GPUs open and never memory of theirs: those that watch, and NVIDIA's of fabric and Kubernetes."""
    return is_monitor(name) or _FABRIC.match(name) is not None


def free_and_reset(
    check_id: str, address: str, *, persistence: bool, units: Sequence[str], drm: bool
) -> tuple[Remedy, ...]:
    """Drain, let go, reset, reboot: `units` are monitoring daemons that hold the GPU, `drm` whether a display does."""
    confirm = confirmed_by(check_id)
    display = "systemctl isolate multi-user.target    # ends the display"
    let_go = (
        *((f"nvidia-smi -i {address} -pm 0    # persistence mode counts as a user",) if persistence else ()),
        *((f"systemctl stop {' '.join(units)}",) if units else ()),
        *((display,) if drm else ()),
        "fuser -v /dev/nvidia*    # nobody may be left at this GPU",
        *(("rmmod nvidia_drm nvidia_modeset",) if drm else ()),
    )
    again = (
        *((f"nvidia-smi -i {address} -pm 1",) if persistence else ()),
        *((f"systemctl start {' '.join(units)}",) if units else ()),
        *(("modprobe nvidia_drm    # nvidia_modeset comes with it",) if drm else ()),
    )
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Drain the GPU: end or move the jobs that use it, before Ampere also those on GPUs joined to it by NVLink.",
            interrupts="the jobs on this GPU",
            confirm="fuser -v /dev/nvidia*",
            then=True,
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Have those let go of it that nobody would call a user: they come back after the reset.",
            run=let_go,
            interrupts="monitoring" + (", and the display of this node" if drm else ""),
            confirm="fuser -v /dev/nvidia*",
            then=True,
        ),
        Remedy(
            Action.RESET_GPU,
            'Reset it. Not possible in most virtual machines; while it is refused ("In use by another client"), somebody still holds it.',
            run=(reset_command(address), *again),
            interrupts=INTERRUPTS,
            confirm=confirm,
            then=True,
        ),
        Remedy(
            Action.REBOOT,
            "If it stays refused, drain the node and reboot it.",
            run=("systemctl reboot",),
            interrupts="the whole node",
            confirm=confirm,
        ),
    )
