"""Driver and CUDA: what the driver itself asks to be done with a GPU."""

from gpudoctor.chain import Link
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvml_remedies import confirming, for_recovery
from gpudoctor.registry import check
from gpudoctor.verdicts import Breaks, Fail, NotApplicable, Pass, Unknown, Unread, Verdict, Verdicts, Why

RECOVERY = "driver-cuda.recovery-action"
FIRST_BRANCH = 565
"""The first branch whose nvidia-smi -q has a GPU Recovery Action."""
ACTION, RESET = "recovery_action", "reset_required"


@check(
    RECOVERY,
    link=Link.DRIVER_CUDA,
    over=PciGpus,
    needs={Link.DEVICE_NODES},
    explained_by=("driver-cuda.nvml-answers",),
    title="The driver asks for no recovery of any GPU",
)
def recovery_action(gpus: PciGpus, nvml: Nvml, around: NvmlSurroundings) -> Verdicts:
    """After a fatal Xid the driver says what brings a GPU back: a reset, a reboot, a drain. Until then new CUDA contexts fail on it.

    nvidia-smi prints it as "GPU Recovery Action", and everything else about the GPU can look well (scitix/sichek PR#121). Drivers before
    R565 have no such field; the kernel log tells the change as Xid 154, which is no cause of its own: the Xid before it is.
    """
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is None or device.error is not None:
            yield NotApplicable(gpu, "NVML does not answer for it")
        else:
            yield _judge(gpu, device, around, nvml.driver_version or "")


def _judge(gpu: PciGpu, device: NvmlDevice, around: NvmlSurroundings, driver: str) -> Verdict:
    action, reset = device.field(ACTION), device.field(RESET)
    asked = device.recovery or ("gpu_reset" if reset is True else "")
    if asked:
        told = (name for name in (ACTION, RESET) if not isinstance(device.fields.get(name, FieldError(0)), FieldError))
        evidence = tuple(device.evidence(name) for name in told)
        summary = f"the driver asks for: {asked.replace('_', ' ')}"
        remedies = confirming(for_recovery(asked), RECOVERY)
        return Fail(
            gpu, summary, evidence + around.xids(gpu.address), remedies, Breaks.SUBJECT, cause=f"recovery-{asked}"
        )
    if action == "none" or reset is False:
        return Pass(gpu, "none is asked for", (device.evidence(ACTION if action == "none" else RESET),))
    if not device.fields:
        return NotApplicable(gpu, "nothing beyond its identity was asked")
    branch = decimal(driver.partition(".")[0])
    if isinstance(device.fields.get(ACTION), FieldError) or (branch is not None and branch < FIRST_BRANCH):
        return NotApplicable(gpu, "this driver tells of none", device.cite("uuid"))
    assert isinstance(action, Unread), "an answer is none, an action or no word of nvml.h's"
    return Unknown(gpu, Why.NOT_ANSWERED, action.detail)
