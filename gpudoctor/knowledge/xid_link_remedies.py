"""What to do about NVLinks and NVSwitches that report errors, from the safest step up.

Steps: sheet "Resolution Buckets" of NVIDIA's Xid catalogue as of 2026-07-14, and the Fabric Manager User Guide on SXids: a fatal one needs
its port recovered, an always fatal one the whole fabric, by a reset of all GPUs and NVSwitches or of the machine. nvidia-smi refuses a
reset while anything has a GPU open, and names the fabric manager among what may.
"""

from msgspec.structs import replace

from gpudoctor.knowledge.reset_remedies import RESET_ALL
from gpudoctor.knowledge.xid_steps import LOG, WATCH, collect, reboot, reset, vendor
from gpudoctor.verdicts import Action, Remedy


def look_at_links(address: str) -> Remedy:
    """See which NVLinks of a GPU are ill."""
    return Remedy(
        Action.NONE,
        "See which links are down or count errors, and what is at their other end: a GPU or switch that fails takes its links with it.",
        run=(
            f"nvidia-smi nvlink -s -i {address}",
            f"nvidia-smi nvlink -e -i {address}",
            LOG,
        ),
        confirm="gpudoctor run --link fabric",
    )


def link(address: str) -> tuple[Remedy, ...]:
    """An NVLink of a GPU failed."""
    return (
        look_at_links(address),
        replace(collect(), then=True),
        reset(address),
        _inspect(),
        vendor(address, "If it stays on that link, ask the vendor."),
    )


def signal(address: str) -> tuple[Remedy, ...]:
    """The signal of a GPU's NVLink is weak."""
    return (look_at_links(address), _inspect(), vendor(address, "If it stays on that link, ask the vendor."))


def peer(address: str) -> tuple[Remedy, ...]:
    """What is at the other end of a GPU's NVLink failed, or was taken down."""
    return (
        look_at_links(address),
        Remedy(
            Action.NONE,
            "Read the log of the device at the other end, GPU, switch or tray: was it reset, put to sleep, switched off, or too hot?",
            run=("journalctl -k -b --grep 'SXid|nvswitch'", "journalctl -u nvidia-fabricmanager -b | tail -50"),
            confirm=WATCH,
            then=True,
        ),
    )


def _inspect() -> Remedy:
    return Remedy(
        Action.INSPECT_HARDWARE,
        "If it comes again on the same link, see to its mechanics: bridge, cable, transceiver, the board's seat, temperature.",
        interrupts="the whole node, and where a cable joins trays the other one",
        confirm=WATCH,
        then=True,
    )


def port(address: str) -> tuple[Remedy, ...]:
    """A port of an NVSwitch failed; which GPU is at its end the switch does not say."""
    del address
    return (
        look_at_links("GPU"),
        Remedy(
            Action.RESET_GPU,
            "Stop the jobs that use the link and reset the GPU at its end, with the fabric manager running; on a board whose GPUs cannot "
            "be reset one by one, all of them together. Where virtual machines share the switches, restart the one that has the port.",
            run=reset("GPU").run,
            interrupts="the jobs that use this link",
            confirm="gpudoctor run --link fabric",
            then=True,
        ),
        replace(_reset_all(), then=False),
        reboot(then=False),
    )


def fabric(address: str) -> tuple[Remedy, ...]:
    """The fabric of a board failed as a whole."""
    del address
    return (
        _collect_all(),
        _reset_all(),
        reboot(then=False),
        _switch_vendor("If it comes again on the same switch, ask the vendor."),
    )


def switch(address: str) -> tuple[Remedy, ...]:
    """An NVSwitch reports what only its vendor can weigh."""
    del address
    return (_collect_all(), _switch_vendor("Nothing on the node cures it for sure: ask the vendor what it means here."))


def _collect_all() -> Remedy:
    return replace(collect(), say="Keep the evidence: the kernel log, the fabric manager's log, NVIDIA's own report.")


def _reset_all() -> Remedy:
    return Remedy(
        Action.RESET_GPU,
        "Drain the node, stop everything that uses a GPU, then the fabric manager, reset all GPUs in one command (the NVSwitches are "
        "reset with them), and start the fabric manager again.",
        run=RESET_ALL,
        interrupts="every process that uses a GPU of this node",
        confirm="gpudoctor run --link fabric",
        then=True,
    )


def _switch_vendor(say: str) -> Remedy:
    return Remedy(
        Action.CONTACT_VENDOR,
        f"{say} Give the vendor the machine's serial number and the file of nvidia-bug-report.sh.",
        run=(
            "cat /sys/class/dmi/id/product_serial",
            "journalctl -u nvidia-fabricmanager -b | tail -200",
            "nvidia-bug-report.sh",
        ),
        interrupts="nothing until the board is exchanged",
        confirm="ls nvidia-bug-report.log.gz",
        then=True,
    )
