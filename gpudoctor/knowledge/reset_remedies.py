"""The way to a reset past those who stand in it, from the safest step up.

Sources, read 2026-11-30: nvidia-smi(1) of driver 610 (--gpu-reset, -pm; -i takes a PCI address); NVIDIA/NVSentinel#1692 (persistence
mode refuses a reset: -pm 0 first); NVIDIA/DCGM#95 (DCGM holds GPUs that no list shows).
"""

from collections.abc import Sequence

from gpudoctor.knowledge.gpu_reset import INTERRUPTS, reset_command
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

_MONITORS = pattern(
    r"(?:^|[-_.])(?:dcgm|nv-hostengine|nvsm|nvidia-persiste(?:nced?)?|node[-_]exporter|gpud|netdata|telegraf|datadog)(?:[-_.@]|$)"
)
"""Units and programs that watch GPUs: they are stopped, nobody loses work. The kernel keeps fifteen letters of a program's name."""
_FABRIC = pattern(r"nv-fabricmanag|nvidia-fabricmanag|nvidia-imex|nvlsm|nvidia-device-p")


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
