"""Whether CUDA_VISIBLE_DEVICES, as the process has it, leaves it the GPUs that are inside.

Source: CUDA programming guide, "CUDA Environment Variables" (PAGE below, read 2026-11-30): indices count from 0 over the GPUs that
there are; an invalid one hides itself and all that follow; a UUID may be abbreviated as long as it names one GPU; an empty value hides
all. Inside a container there are only its own GPUs, so that an index or UUID of the node may be invalid there.
"""

from msgspec import Struct

from gpudoctor.facts.gpu_variables import CUDA_VISIBLE
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.trace import Step, StepId, failed, passed, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Unread, Why

PAGE = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"


class Inside(Struct, frozen=True):
    """The GPUs inside: how many, and the UUIDs as far as they are known."""

    count: int
    uuids: tuple[str, ...]

    @property
    def words(self) -> str:
        """How many, in words."""
        return f"{self.count} GPU{'' if self.count == 1 else 's'}"


def judge_visible(sight: Sight, ground: Ground) -> Step:
    """The list, entry by entry, up to the first that names nothing inside."""
    if isinstance(sight.variables, Unread):
        return unknown(StepId.VISIBLE, sight.variables)
    value, evidence = sight.wishes.variable(CUDA_VISIBLE), sight.environ(CUDA_VISIBLE)
    devices = sight.devices
    inside = None if not isinstance(devices, Devices) else _inside(sight, ground, devices)
    if value is None:
        count = f": {_all(inside)} visible" if inside is not None and inside.count else ""
        return passed(StepId.VISIBLE, f"it is not set{count}", evidence)
    names = [name.strip() for name in value.split(",")]
    if names[0] in ("", "-1", "NoDevFiles") or (decimal(names[0]) is None and "-" not in names[0]):
        return _hides_all(sight, value, evidence)
    if inside is None:
        assert not isinstance(devices, Devices)
        unread = devices if isinstance(devices, Unread) else Unread(Why.UNREADABLE, devices.where, devices.detail)
        return unknown(StepId.VISIBLE, unread)
    return _judged(sight, ground, value, names, inside, evidence)


def _inside(sight: Sight, ground: Ground, devices: Devices) -> Inside:
    uuids = (gpu.uuid for gpu in ground.at(sight.addresses))
    return Inside(len(sight.given), tuple(uuid for uuid in uuids if uuid))


def _judged(sight: Sight, ground: Ground, value: str, names: list[str], inside: Inside, evidence: Cited) -> Step:
    if any(name.startswith("MIG-") for name in names) or ground.in_mig_mode:
        return _mig(ground, value, names, evidence)
    for at, name in enumerate(names):
        valid = _valid(name, inside)
        if valid is None:
            unread = Unread(
                Why.NOT_ANSWERED, CUDA_VISIBLE, f"the UUIDs of the GPUs inside are not all known, {name} may be one"
            )
            return unknown(StepId.VISIBLE, unread, evidence=evidence)
        if not valid:
            return _cut(sight, value, names, at, inside, evidence)
    if len(names) == inside.count:
        return passed(StepId.VISIBLE, f"{value}: {_all(inside)} visible", evidence)
    return passed(StepId.VISIBLE, f"{value} names {len(names)} of the {inside.words} inside", evidence)


def _all(inside: Inside) -> str:
    """Each of them."""
    return "the GPU inside is" if inside.count == 1 else f"all {inside.words} inside are"


def _valid(name: str, inside: Inside) -> bool | None:
    index = decimal(name)
    if index is not None:
        return index < inside.count
    matching = [uuid for uuid in inside.uuids if uuid.lower().startswith(name.lower())]
    if len(inside.uuids) < inside.count and not matching:
        return None
    return len(matching) == 1


def _mig(ground: Ground, value: str, names: list[str], evidence: Cited) -> Step:
    """Of MIG devices only the UUIDs can be compared: which of them an index counts is libcuda's business."""
    mig = [name for name in names if name.startswith("MIG-")]
    if mig and all(ground.with_mig(name) is not None for name in mig):
        return passed(StepId.VISIBLE, f"{value} names MIG devices of this node", evidence)
    detail = "which MIG devices it names cannot be told from outside"
    return unknown(StepId.VISIBLE, Unread(Why.NOT_ANSWERED, CUDA_VISIBLE, detail), evidence=evidence)


def _hides_all(sight: Sight, value: str, evidence: Cited) -> Step:
    say = "Unset it, or let it name GPUs by their index inside, from 0."
    said = f"{CUDA_VISIBLE}={value} hides every GPU: CUDA answers 100"
    return failed(StepId.VISIBLE, said, evidence, *remedies.variable(say), references=(PAGE,))


def _cut(sight: Sight, value: str, names: list[str], at: int, inside: Inside, evidence: Cited) -> Step:
    say = "Unset it, or let it count the GPUs inside from 0: whatever their number on the node is, inside they begin with 0."
    remedy = remedies.variable(say)
    seen = (*evidence, *(sight.devices.cite("nodes") if isinstance(sight.devices, Devices) else ()))
    named = f"{CUDA_VISIBLE}={value}: {names[at]} names no GPU inside, where there {'is' if inside.count == 1 else 'are'} {inside.words}"
    if at == 0:
        return failed(StepId.VISIBLE, f"{named}: none is visible", seen, *remedy, references=(PAGE,))
    return warned(StepId.VISIBLE, f"{named}: it and all after it are hidden", seen, *remedy, references=(PAGE,))
