"""What the checks of GPU memory have in common: whom they judge, and what to say where NVML told nothing."""

from collections.abc import Callable, Iterable

from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.verdicts import Cited, NotApplicable, Unknown, Verdict, Verdicts, Why

_NOT_SUPPORTED, _NO_PERMISSION = 3, 4
_FROM_THE_LIBRARY = frozenset((2, 13, 25, 26))
"""INVALID_ARGUMENT (a threshold or field id that it does not know), FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH and DEPRECATED (nvml.h):
the library has no such question, the GPU was not asked."""


def judged(gpus: PciGpus, nvml: Nvml, judge: Callable[[PciGpu, NvmlDevice], Verdict]) -> Verdicts:
    """A verdict on each GPU of which NVML told more than who it is."""
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is None or device.error is not None:
            yield NotApplicable(gpu, "NVML does not answer for it")
        elif not device.fields:
            yield NotApplicable(gpu, "nothing beyond its identity was asked")
        else:
            yield judge(gpu, device)


def cited(device: NvmlDevice, names: Iterable[str]) -> Cited:
    """Those of the fields that have a value."""
    return tuple(
        device.evidence(name) for name in names if not isinstance(device.fields.get(name, FieldError(0)), FieldError)
    )


def untold(gpu: PciGpu, device: NvmlDevice, names: tuple[str, ...], what: str) -> Verdict:
    """None of the fields has a value. A refusal that depends on who asks, or on the moment, is not knowing; the others make no sense.

    On a GPU in MIG mode NVML has no row remapper and no counters of the whole GPU (nvml.h, nvmlDeviceGetRemappedRows).
    """
    errors = {name: value.error for name in names if isinstance(value := device.fields.get(name), FieldError)}
    for name, code in errors.items():
        if code == _NO_PERMISSION:
            return Unknown(
                gpu, Why.NO_PERMISSION, f"{what}: told to root only", (device.evidence(name),), would_need="root"
            )
        if code != _NOT_SUPPORTED and code not in _FROM_THE_LIBRARY:
            return Unknown(gpu, Why.NOT_ANSWERED, f"{what}: not answered", (device.evidence(name),))
    evidence = tuple(device.evidence(name) for name in list(errors)[:1])
    if _NOT_SUPPORTED not in errors.values():
        return NotApplicable(gpu, f"{what}: this driver does not tell", evidence)
    if device.fields.get("mig.current") is True:
        return NotApplicable(gpu, f"{what}: not told while MIG is on", evidence)
    return NotApplicable(gpu, f"{what}: not supported on this GPU", evidence)
