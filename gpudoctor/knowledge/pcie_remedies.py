"""What to do about GPUs that are missing from the PCI bus, do not answer there, or have no room or too few lanes, from the safest up."""

from gpudoctor.verdicts import Action, Remedy

LOOK_AT_THE_BUS = Remedy(
    Action.INSPECT_HARDWARE,
    "Look for the GPU on the bus and for link or power errors in the kernel log; in a virtual machine, was it passed through?",
    run=("lspci -d 10de: -nn", "journalctl -k -b --grep 'pci|AER|NVRM'"),
    confirm="gpudoctor run --check pcie.gpus-present",
)
POWER_CYCLE = Remedy(
    Action.INSPECT_HARDWARE,
    "Power the machine off and on again, not just reboot; then reseat the board, its power cable or riser, or ask the vendor.",
    interrupts="the whole node",
    confirm="lspci -d 10de: -nn lists the GPU, and gpudoctor run --link pcie",
)
# "When you stop and start an instance, … in most cases, the instance is migrated to a new underlying host computer" (AWS EC2 User
# Guide, Stop and start Amazon EC2 instances).
OTHER_HOST = Remedy(
    Action.REBOOT,
    "Stop the instance and start it again, not just reboot: it then runs on other hardware. If GPUs stay away, ask AWS.",
    interrupts="the whole node; what its instance store holds is lost",
    confirm="gpudoctor run --check pcie.gpus-present",
)
OFF_THE_BUS = (
    Remedy(
        Action.NONE,
        "Take the node out of service and keep the evidence: kernel log, power and temperature records of the chassis.",
        run=(
            "gpudoctor record --raw -o /var/tmp/gpudoctor-$(date +%Y%m%d-%H%M%S).tar.zst",
            "ipmitool sel list | tail -20",
        ),
        confirm="ls /var/tmp/gpudoctor-*",
    ),
    POWER_CYCLE,
    Remedy(
        Action.CONTACT_VENDOR,
        "If it happens again on the same slot or board, move the board to tell the two apart, then ask the vendor for a replacement.",
        interrupts="the whole node",
        confirm="gpudoctor run --check pcie.gpu-responds",
    ),
)
MORE_SPACE = (
    Remedy(
        Action.CHANGE_CONFIG,
        "In the firmware setup turn on Above 4G Decoding and enlarge the high MMIO window; for a virtual machine, give it a larger one.",
        interrupts="the whole node, at the reboot it takes",
        confirm="gpudoctor run --check pcie.bars-assigned",
    ),
    Remedy(
        Action.CHANGE_CONFIG,
        "Or let the kernel place the regions anew: boot with pci=realloc.",
        run=("grep -o 'pci=[^ ]*' /proc/cmdline",),
        interrupts="the whole node, at the reboot it takes",
        confirm="gpudoctor run --check pcie.bars-assigned",
    ),
)


def keep_awake(address: str) -> tuple[Remedy, ...]:
    """For a GPU that does not come out of a power state.

    nvidia's remove waits without end while anybody has the device open (nv-pci.c, nv_pci_remove).
    """
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Tell the kernel to keep the GPU awake.",
            run=(f"echo on > /sys/bus/pci/devices/{address}/power/control",),
            confirm="gpudoctor run --check pcie.power-state",
        ),
        Remedy(
            Action.RESET_GPU,
            "Stop every process that has the GPU open, then have the kernel forget it and find it anew.",
            run=(
                "fuser -v /dev/nvidia*    # stop all that is listed: while one has the GPU open, the next command never returns",
                f"echo 1 > /sys/bus/pci/devices/{address}/remove",
                "echo 1 > /sys/bus/pci/rescan",
                f"echo on > /sys/bus/pci/devices/{address}/power/control",
            ),
            interrupts="whatever uses this GPU; the whole node, if a process that uses it is overlooked",
            confirm="gpudoctor run --check pcie.power-state",
        ),
    )


def reseat(address: str) -> tuple[Remedy, ...]:
    """For a link that lost lanes or transactions."""
    say = "Drain the node at the next chance, then reseat the board, riser or cable of this link and look at it again."
    return (
        Remedy(
            Action.INSPECT_HARDWARE,
            say,
            run=(f"lspci -vv -s {address} | grep -E 'LnkCap|LnkSta'",),
            interrupts="the whole node",
            confirm="gpudoctor run --link pcie",
        ),
    )


def expect_gpus(count: int) -> Remedy:
    """For a node that is meant to be as it is; a file of its own, because a key may stand in a file only once."""
    what = f"{count} GPU{'' if count == 1 else 's'}"
    return Remedy(
        Action.CHANGE_CONFIG,
        f"If the node is meant to have {what}, say so in the configuration: expect.gpus = {count}.",
        run=(
            "mkdir -p /etc/gpudoctor/conf.d",
            f"echo 'expect.gpus = {count}' > /etc/gpudoctor/conf.d/expected-gpus.toml",
        ),
        confirm="gpudoctor run --check pcie.gpus-present",
    )


OTHER_PROFILE = Remedy(
    Action.CHANGE_CONFIG,
    "If the node is as it was bought, name the right profile in expect.profile, or leave it out.",
    run=("grep -rn 'profile' /etc/gpudoctor",),
    confirm="gpudoctor run --check pcie.hardware-profile",
)
LOOK_AT_THE_BOARDS = Remedy(
    Action.INSPECT_HARDWARE,
    "Compare the boards in the machine with what was ordered or rented.",
    run=("lspci -d 10de: -nn",),
    confirm="gpudoctor run --check pcie.hardware-profile",
)
LOOK_AT_THE_SLOT = Remedy(
    Action.INSPECT_HARDWARE,
    "See which end allows less: the slot's wiring, a riser or a bifurcation setting of the firmware may take lanes away, a setting of "
    "the firmware may limit the speed.",
    run=("lspci -tv", "lspci -vv -d 10de: | grep -E '^[0-9a-f]|LnkCap:'"),
    confirm="gpudoctor run --check pcie.hardware-profile",
)
