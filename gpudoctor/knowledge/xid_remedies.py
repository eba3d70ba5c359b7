"""What to do about an Xid or SXid, by the action NVIDIA's catalogue names (xid_words.BUCKETS), from the safest step up.

Steps behind the actions: sheet "Resolution Buckets" of the catalogue as of 2026-07-14, and NVIDIA's GPU Debug Guidelines.
"""

from collections.abc import Callable

from msgspec.structs import replace

from gpudoctor.knowledge.xid_link_remedies import fabric, link, peer, port, signal, switch
from gpudoctor.knowledge.xid_steps import LOG, RECOVERY, WATCH, collect, diagnose, reboot, reset, vendor
from gpudoctor.verdicts import Action, Remedy


def remedies_for(bucket: str, address: str) -> tuple[Remedy, ...]:
    """The steps for an action, for the GPU at a PCI address (0000:1b:00.0; the log's 0000:1b:00 does, and "" stands for any)."""
    steps = _STEPS.get(bucket, _support)
    return steps(_whole(address))


def buckets() -> tuple[str, ...]:
    """Every action there are steps for."""
    return tuple(_STEPS)


def _whole(address: str) -> str:
    if not address:
        return "ADDRESS"
    return address if "." in address else f"{address}.0"


def _nothing(address: str) -> tuple[Remedy, ...]:
    del address
    return (
        Remedy(
            Action.NONE,
            "Nothing has to be done now. See whether it comes again, and what came just before it.",
            run=(LOG,),
            confirm=WATCH,
        ),
    )


_APPLICATION = Remedy(
    Action.CHANGE_WORKLOAD,
    "Run the program under the memory checker, or under the debugger: it names the line that went wrong. The line's pid and name, or the "
    "time, tell which program it was.",
    run=(
        "compute-sanitizer --tool memcheck PROGRAM",
        "CUDA_DEVICE_WAITS_ON_EXCEPTION=1 PROGRAM    # stops at the fault; attach with: cuda-gdb -p PID",
    ),
    interrupts="this program: it runs many times slower",
    confirm=WATCH,
    then=True,
)
_RESTART = Remedy(
    Action.CHANGE_WORKLOAD,
    "Restart the application or job that was on the GPU; others are not affected.",
    interrupts="this application",
    confirm=WATCH,
)


def _restart(address: str) -> tuple[Remedy, ...]:
    return (
        _RESTART,
        replace(
            collect(),
            say="Where it comes again on this GPU with several programs, keep the evidence.",
            then=True,
        ),
        vendor(address, "Then it is no application's fault: ask the vendor."),
    )


def _application(address: str) -> tuple[Remedy, ...]:
    del address
    return (_RESTART, _APPLICATION)


def _suspect(address: str) -> tuple[Remedy, ...]:
    return (
        _RESTART,
        _APPLICATION,
        diagnose(address, "Where it comes again in the same place of the same GPU with several programs,"),
    )


def _reset_gpu(address: str) -> tuple[Remedy, ...]:
    return (
        collect(),
        reset(address),
        reboot(then=False),
        vendor(address, "If it comes again after that, ask the vendor."),
    )


def _machine(address: str) -> tuple[Remedy, ...]:
    return (
        collect(hangs=True),
        reboot(then=True),
        Remedy(
            Action.INSPECT_HARDWARE,
            "Look for what took the link away: PCIe errors, power, heat; then reseat the board, its riser and its power cables. Of a "
            "virtual machine that is done on its host.",
            run=(
                "journalctl -k -b -1 --grep 'AER|pcieport|NVRM'    # the boot before",
                "ipmitool sel list | tail -20",
            ),
            interrupts="the whole node while the board is out",
            confirm="gpudoctor run --link pcie",
            then=True,
        ),
        vendor(address, "If it comes again on the same board, ask for a replacement."),
    )


def _virtual_machine(address: str) -> tuple[Remedy, ...]:
    return (
        collect(),
        Remedy(
            Action.REBOOT,
            "Restart the virtual machine that has the GPU, on its host or from inside.",
            run=("systemctl reboot    # inside the virtual machine",),
            interrupts="this virtual machine",
            confirm=WATCH,
            then=True,
        ),
        vendor(address, "If it comes again after that, ask the vendor."),
    )


def _support(address: str) -> tuple[Remedy, ...]:
    return (
        collect(),
        vendor(address, "Nothing on the node cures it for sure: ask the vendor what it means here."),
    )


def _mechanics(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.INSPECT_HARDWARE,
            "Switch the node off and see that the board sits well in its slot and that every power and bridge connector of it is attached.",
            interrupts="the whole node",
            confirm=WATCH,
        ),
        vendor(address, "If all is connected, ask the vendor."),
    )


def _versions(address: str) -> tuple[Remedy, ...]:
    del address
    return (
        Remedy(
            Action.NONE,
            "See which driver the host and which the guest has, and whether this virtual GPU's type fits guest and board.",
            run=("nvidia-smi vgpu -q    # on the host", "nvidia-smi --query-gpu=driver_version --format=csv,noheader"),
            confirm=WATCH,
        ),
        Remedy(
            Action.INSTALL_PACKAGE,
            "Install in the guest a driver of a branch that the host's vGPU software supports, or renew the host's.",
            interrupts="the guest, or every guest of the host",
            confirm=WATCH,
            then=True,
        ),
    )


def _cleanup(address: str) -> tuple[Remedy, ...]:
    del address
    return (
        Remedy(
            Action.NONE,
            "Look for the Xid just before it, on any GPU of the node, and follow that one. Without one, a process that ended or was "
            "killed is enough: then nothing has to be done.",
            run=(LOG, "journalctl -k -b --grep 'Killed process|oom-kill'"),
            confirm=WATCH,
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Where it stands alone and unexplained on a board with NVSwitches, drain the node and restart the fabric manager.",
            run=("systemctl restart nvidia-fabricmanager",),
            interrupts="every job of the node that uses several GPUs",
            confirm="systemctl is-active nvidia-fabricmanager",
            then=True,
        ),
    )


def _ecc(address: str) -> tuple[Remedy, ...]:
    return (
        collect(),
        Remedy(
            Action.NONE,
            "See where the error was: DRAM, whose row is replaced at the reset, or SRAM, where only an exceeded threshold is a reason to "
            "exchange the board.",
            run=(f"nvidia-smi -i {address} -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",),
            confirm="gpudoctor run --link health",
            then=True,
        ),
        reset(address),
        reboot(then=False),
        diagnose(address, "Where it comes again, or the SRAM threshold is exceeded,"),
        vendor(
            address,
            "If the diagnostics fail, a row remap failed or the SRAM threshold is exceeded, ask for a replacement.",
        ),
    )


def _person(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.NONE,
            "Find out who did it: a reset, a link that was switched off, the fabric manager or a service that restarted at that time.",
            run=(LOG, "journalctl -b -u nvidia-fabricmanager -u nvidia-imex -u nvidia-persistenced | tail -50"),
            confirm=WATCH,
        ),
        vendor(address, "If nobody did it, report it."),
    )


def _recovery(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.NONE,
            "Do what the line says: the driver tells it as the GPU's recovery action, too. The Xid before it is the cause.",
            run=(f"nvidia-smi -i {address} -q | grep 'Recovery Action'", LOG),
            confirm=RECOVERY,
        ),
        reset(address),
        reboot(then=False),
    )


def _recovery_or_restart(address: str) -> tuple[Remedy, ...]:
    return (
        *_recovery(address)[:1],
        replace(_RESTART, say=f"Without an Xid 154: {_RESTART.say[0].lower()}{_RESTART.say[1:]}"),
    )


def _unified_memory(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.NONE,
            "See whether unified memory or virtual GPUs are in use; without them nothing has to be done.",
            run=("fuser -v /dev/nvidia-uvm", "nvidia-smi vgpu    # on a host of virtual GPUs"),
            confirm=WATCH,
        ),
        reset(address),
    )


def _power_smoothing(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.INSPECT_HARDWARE,
            "See whether heat did it, and cure that.",
            run=(f"nvidia-smi -i {address} -q -d TEMPERATURE,PERFORMANCE",),
            confirm=WATCH,
        ),
        replace(reset(address), say=f"Where a timeout did it and power smoothing is wanted: {reset(address).say}"),
    )


def _protected_region(address: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Turn ECC on: only then can faulty rows be remapped. It takes effect at the next reset or reboot.",
            run=(f"nvidia-smi -i {address} -e 1",),
            confirm=f"nvidia-smi -i {address} -q -d ECC",
        ),
        reboot(then=True),
        vendor(address, "If it comes again with ECC on, ask the vendor."),
    )


_STEPS: dict[str, Callable[[str], tuple[Remedy, ...]]] = {
    "IGNORE": _nothing,
    "RESTART_APP": _restart,
    "RESET_GPU": _reset_gpu,
    "RESTART_BM": _machine,
    "RESTART_VM": _virtual_machine,
    "CONTACT_SUPPORT": _support,
    "CHECK_MECHANICALS": _mechanics,
    "UPDATE_SWFW": _versions,
    "WORKFLOW_XID_13": _suspect,
    "WORKFLOW_XID_31": _suspect,
    "WORKFLOW_XID_45": _cleanup,
    "WORKFLOW_XID_48": _ecc,
    "WORKFLOW_NVLINK_ERR": link,
    "WORKFLOW_NVLINK5_ERR": link,
    "WORKFLOW_XID_168": _protected_region,
    "XID_154": _recovery,
    "XID_154_EVAL": _recovery_or_restart,
    "XID_137_FLOW": _application,
    "CHECK_UVM": _unified_memory,
    "CHECK_APP/CUDA": _application,
    "INVESTIGATE_SW": _application,
    "INVESTIGATE_SW_USER": _person,
    "INVESTIGATE_LINK_SI": signal,
    "INVESTIGATE_SW_USER_LINK_SI": signal,
    "INVESTIGATE_LINK_SI_AND_CABLES": signal,
    "INVESTIGATE_PEER_DEVICE": peer,
    "INVESTIGATE_HOST": _person,
    "CHECK_NVLINK_FAILURE_FLOW": peer,
    "SYMPATHETIC_REPORT_SOLO": _nothing,
    "REPORT_ISSUE": _support,
    "RECOVER_FEATURE_RESET_GPU": _power_smoothing,
    "PORT_RESET": port,
    "RESET_FABRIC": fabric,
    "SWITCH_SUPPORT": switch,
}
