"""Driver and CUDA: what the driver itself asks to be done with a GPU."""

from gpudoctor.chain import Link
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.reset_holders import MOST_NAMED, ResetHolders
from gpudoctor.knowledge.reset_remedies import IMEX_DOMAIN, free_and_reset, is_monitor, recover
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Why,
)

RECOVERY = "driver-cuda.recovery-action"
FIRST_BRANCH = 565
"""The first branch whose nvidia-smi -q has a GPU Recovery Action."""
ACTION, RESET = "recovery_action", "reset_required"
WORKS_ALONE = frozenset(("drain_p2p", IMEX_DOMAIN))
"""What concerns a GPU's work with others only: the rest of it can be looked at."""
PERSISTENCE = "persistence_mode"


@check(
    RECOVERY,
    link=Link.DRIVER_CUDA,
    over=PciGpus,
    needs={Link.DEVICE_NODES},
    explained_by=("driver-cuda.nvml-answers",),
    isolates=True,
    title="The driver asks for no recovery of any GPU",
)
def recovery_action(gpus: PciGpus, nvml: Nvml, around: NvmlSurroundings, in_the_way: ResetHolders) -> Verdicts:
    """After a fatal Xid the driver says what brings a GPU back: a reset, a reboot, a drain. Until then new CUDA contexts fail on it.

    nvidia-smi prints it as "GPU Recovery Action", and everything else about the GPU can look well (scitix/sichek PR#121). Drivers before
    R565 have no such field; the kernel log tells the change as Xid 154, which is no cause of its own: the Xid before it is. A reset is
    refused while anybody holds the GPU, persistence mode included: who does is named, and how to have them let go. A GPU of which only
    the traffic with others is to be drained, or the IMEX domain to be recovered, works alone.
    """
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is None or device.error is not None:
            yield NotApplicable(gpu, "NVML does not answer for it")
        else:
            yield _judge(gpu, device, around, in_the_way, nvml.driver_version or "")


def _judge(gpu: PciGpu, device: NvmlDevice, around: NvmlSurroundings, in_the_way: ResetHolders, driver: str) -> Verdict:
    action, reset = device.field(ACTION), device.field(RESET)
    asked = device.recovery or ("gpu_reset" if reset is True else "")
    if asked:
        told = (name for name in (ACTION, RESET) if not isinstance(device.fields.get(name, FieldError(0)), FieldError))
        evidence = tuple(device.evidence(name) for name in told)
        # The daemon that is missing is what it takes, no reset in whose way anybody could stand.
        held, seen = ("", ()) if asked == IMEX_DOMAIN else _held_by(device, in_the_way)
        summary = f"the driver asks for: {asked.replace('_', ' ')}{held}"
        remedies = _steps(asked, gpu.address, device, in_the_way)
        evidence += around.xids(gpu.address) + seen
        breaks = Breaks.NOTHING if asked in WORKS_ALONE else Breaks.SUBJECT
        return Fail(gpu, summary, evidence, remedies, breaks, cause=f"recovery-{asked}")
    if action == "none" or reset is False:
        return Pass(gpu, "none is asked for", (device.evidence(ACTION if action == "none" else RESET),))
    if not device.fields:
        return NotApplicable(gpu, "nothing beyond its identity was asked")
    branch = decimal(driver.partition(".")[0])
    if isinstance(device.fields.get(ACTION), FieldError) or (branch is not None and branch < FIRST_BRANCH):
        return NotApplicable(gpu, "this driver tells of none", device.cite("uuid"))
    assert isinstance(action, Unread), "an answer is none, an action or no word of nvml.h's"
    return Unknown(gpu, Why.NOT_ANSWERED, action.detail)


def _held_by(device: NvmlDevice, in_the_way: ResetHolders) -> tuple[str, Cited]:
    """Who stands in the way of a reset, in words and as seen."""
    holders = in_the_way.of(device.minor)
    persistent = device.fields.get(PERSISTENCE) is True
    names = [f"{holder.process.comm} ({holder.process.pid})" for holder in holders[:MOST_NAMED]]
    words = [
        *(["persistence mode"] if persistent else []),
        *names,
        *([f"{len(holders) - MOST_NAMED} more"] if len(holders) > MOST_NAMED else []),
        *(["nvidia_drm"] if in_the_way.drm else []),
    ]
    seen = (
        *((device.evidence(PERSISTENCE),) if persistent else ()),
        *(holder.evidence for holder in holders[:MOST_NAMED]),
        *in_the_way.drm,
    )
    unseen = f"; {in_the_way.unseen}" if in_the_way.unseen and words else ""
    return f"; held by {', '.join(words)}{unseen}" if words else "", seen


def _steps(asked: str, address: str, device: NvmlDevice, in_the_way: ResetHolders) -> tuple[Remedy, ...]:
    """What brings it back; where that is a reset and somebody is known to hold it, past those who do."""
    general = recover(asked, RECOVERY)
    holders = in_the_way.of(device.minor)
    persistent = device.fields.get(PERSISTENCE) is True
    resets = any(remedy.action is Action.RESET_GPU for remedy in general)
    if not resets or not (holders or persistent or in_the_way.drm):
        return general
    watching = [holder.process for holder in holders if is_monitor(holder.process.unit or holder.process.comm)]
    units = tuple(dict.fromkeys(one.unit for one in watching if one.unit.endswith(".service")))
    steps = free_and_reset(RECOVERY, address, persistence=persistent, units=units, drm=bool(in_the_way.drm))
    return (general[0], *steps)
