"""How one GPU is reset, for all that ends in a reset.

Sources, read 2026-11-30: nvidia-smi(1) of driver 610, --gpu-reset: no process may have the GPU open; since Ampere a GPU with NVLinks can
be reset alone, on Ampere boards with NVSwitch the fabric manager takes part and must run, since Hopper it need not; without it, and before
Ampere, all that NVLink joins are reset in one command; -i takes a PCI address. NVIDIA/NVSentinel#1692: a reset is refused while
persistence mode is on.
"""

from gpudoctor.verdicts import Action, Remedy

INTERRUPTS = "every process on this GPU, and its MIG instances, which must be made anew; where GPUs are reset together, on all of them"


def reset_command(address: str) -> str:
    """The command alone, for a GPU that nobody has open."""
    return f"nvidia-smi --gpu-reset -i {address}"


def reset(address: str, confirm: str, *, why: str = "", then: bool = False) -> Remedy:
    """Drain, let go, reset; `why` are sentences before it, `then`: after the step before it, not instead of it."""
    say = (
        "Drain the GPU, stop what has it open, and reset it. The fabric manager, where there is one, goes on: on A100 the reset of one GPU "
        "needs it. Without it, and before Ampere, all GPUs that NVLink joins are reset together (-i 0,1,2,3 or none). While fuser lists "
        "another process, and in a virtual machine, most of which refuse it, do not reset: reboot."
    )
    return Remedy(
        Action.RESET_GPU,
        f"{why} {say}" if why else say,
        run=(
            "systemctl stop nvidia-persistenced nvidia-dcgm    # and exporters and other agents that fuser lists",
            f"nvidia-smi -i {address} -pm 0    # persistence mode counts as a user of the GPU",
            "fuser -v /dev/nvidia*",
            reset_command(address),
            f"systemctl start nvidia-persistenced nvidia-dcgm    # those that ran; without that daemon: nvidia-smi -i {address} -pm 1",
        ),
        interrupts=INTERRUPTS,
        confirm=confirm,
        then=then,
    )
