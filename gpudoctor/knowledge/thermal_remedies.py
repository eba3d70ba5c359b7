"""What to do about a GPU that is hot, slowed down, or set to less than it can, from the safest step up.

Sources, read 2026-11-30: nvidia-smi(1) of driver 610 (-pl, -sc, -rac, -rgc, -mig, -c, -pm, -i takes a PCI address); nvml.h of CUDA 13.5
(clocks event reasons, compute modes); failures seen as in kubeflow/kubeflow#68, NVIDIA/DCGM#270, leptonai/gpud PR#330.
"""

from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.verdicts import Action, Remedy


def cool(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For heat: look, cool, and ask the vendor only when its neighbours stay cool."""
    confirm = confirmed_by(check_id)
    return (
        Remedy(
            Action.INSPECT_HARDWARE,
            "See whether one GPU is hot or all are. All: inlet temperature, fans, air flow or coolant of the chassis. One: its fan, its "
            "heat sink, what blocks its slot.",
            run=(
                "nvidia-smi --query-gpu=index,temperature.gpu,temperature.memory,fan.speed,power.draw --format=csv",
                "ipmitool sdr type Temperature; ipmitool sdr type Fan",
                "ipmitool sel list | grep -iE 'temp|fan|therm' | tail",
            ),
            confirm=confirm,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Until it is cooled, lower its power limit (WATTS within what nvidia-smi -q -d POWER allows), or give it less work.",
            run=(f"nvidia-smi -i {address} -pl WATTS",),
            interrupts="nothing; programs on this GPU run slower",
            confirm=confirm,
            then=True,
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "If it stays hot under the same load and air as its neighbours, have heat sink, thermal paste or board exchanged.",
            interrupts="the whole node, while the board is exchanged",
            confirm=confirm,
            then=True,
        ),
    )


def power_brake(check_id: str) -> tuple[Remedy, ...]:
    """For the brake that the chassis pulls, and for draws of power that the board cannot follow."""
    return (
        Remedy(
            Action.INSPECT_HARDWARE,
            "The chassis pulls the brake: look for a failed or unplugged power supply, a power cap of the BMC, a tripped rack supply.",
            run=(
                "ipmitool sdr type 'Power Supply'",
                "ipmitool sel list | grep -iE 'power|supply|redundancy' | tail",
                "ipmitool dcmi power get_limit",
            ),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "With all supplies well, reseat the GPU's power cables; then ask the vendor.",
            interrupts="the whole node",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def power_limit(check_id: str, back: str) -> tuple[Remedy, ...]:
    """For a limit below the board's default; `back` is the command that sets the default, "" where the limit is not NVML's to set."""
    confirm = confirmed_by(check_id)
    meant = "Where the limit is meant, say so: thresholds.power_limit_percent in the configuration."
    services = "grep -rlE 'nvidia-smi.* (-pl|--power-limit)' /etc/systemd /etc/cron* /etc/slurm /etc/rc.local"
    outside = "ipmitool dcmi power get_limit"
    if not back:
        return (
            Remedy(
                Action.NONE,
                "Find what lowers it: a power cap of the BMC, a lost power supply, the module's own limit where a CPU shares it.",
                run=("nvidia-smi -q -d POWER", outside, "ipmitool sdr type 'Power Supply'"),
                confirm=confirm,
            ),
            Remedy(Action.CHANGE_CONFIG, f"Take the cap back where it was set. {meant}", confirm=confirm, then=True),
        )
    return (
        Remedy(
            Action.NONE,
            "Find who set it: a service at boot, a prolog, a power profile, or the BMC.",
            run=(services, "nvidia-smi -q -d POWER"),
            confirm=confirm,
        ),
        Remedy(Action.CHANGE_CONFIG, f"Set the default again. {meant}", run=(back,), confirm=confirm, then=True),
    )


def free_clocks(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For clocks that somebody set."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Take back what a benchmark or a scheduler (Slurm's --gpu-freq) left behind: locked clocks and application clocks.",
            run=(
                f"nvidia-smi -i {address} -rgc",
                f"nvidia-smi -i {address} -rmc",
                f"nvidia-smi -i {address} -rac    # drivers before R590",
            ),
            confirm=confirmed_by(check_id),
        ),
    )


def look_under_load(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a GPU that falls behind its neighbours under the same load."""
    return (
        Remedy(
            Action.NONE,
            "Watch it beside its neighbours while the job runs: clocks, power, temperature and the reasons.",
            run=("nvidia-smi dmon -s puc -c 30", f"nvidia-smi -i {address} -q -d PERFORMANCE,TEMPERATURE,POWER"),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Where no reason is given its clocks may be locked, which NVML does not tell: take a lock back.",
            run=(f"nvidia-smi -i {address} -rgc",),
            confirm=confirmed_by(check_id),
            then=True,
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "If it stays behind, test it alone with the same job on an idle node, then look at its cooling, power and slot.",
            run=("dcgmi diag -r 3    # on an idle node",),
            interrupts="the whole node while it is tested",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def link_errors(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a link that sends packets again, or that trained badly."""
    return (
        Remedy(
            Action.NONE,
            "Compare with the kernel's counters of the same link, and with what both its ends allow.",
            run=(
                f"grep . /sys/bus/pci/devices/{address}/aer_dev_correctable",
                f"lspci -vv -s {address} | grep -E 'LnkCap|LnkSta'",
                "journalctl -k -b --grep 'AER|pcieport' | tail",
            ),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "Drain the node at the next chance and reseat the board, its riser or cable; move the board to tell it from the slot.",
            interrupts="the whole node",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )
