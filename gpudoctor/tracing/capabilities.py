"""Whether NVIDIA_DRIVER_CAPABILITIES asks for the libraries that CUDA needs.

Source: internal/config/image/capabilities.go of NVIDIA/nvidia-container-toolkit v1.20.0: the words, and utility and compute where the
variable is unset or empty. NVIDIA/cloud-native-docs docker-specialized.md: compute brings libcuda, utility nvidia-smi and
libnvidia-ml. A CDI specification from a file holds all libraries, whatever the variable says.
"""

from gpudoctor.facts.gpu_variables import CAPABILITIES
from gpudoctor.facts.inner_libraries import CUDA, NVML
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Unread

KNOWN = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
DEFAULT = ("utility", "compute")


def _value(sight: Sight) -> str | Unread | None:
    """What the toolkit read: the engine's configuration, else the process itself."""
    if sight.config is not None:
        return sight.config.variables.get(CAPABILITIES)
    return sight.variables if isinstance(sight.variables, Unread) else sight.wishes.capabilities


def _words(value: str | None) -> tuple[str, ...]:
    words = tuple(word.strip() for word in (value or "").split(",") if word.strip())
    return KNOWN if "all" in words else words or DEFAULT


def wants_compute(sight: Sight) -> bool:
    """Whether CUDA is meant to work in it, as far as that is known: then it needs nvidia-uvm and libcuda."""
    value = _value(sight)
    return isinstance(value, Unread) or "compute" in _words(value)


def withholds_cuda(sight: Sight) -> bool:
    """Whether libcuda is not inside because nobody asked for it."""
    value = _value(sight)
    return (
        sight.contained and not isinstance(value, Unread) and "compute" not in _words(value) and not _has(sight, CUDA)
    )


def _has(sight: Sight, name: str) -> bool:
    """Whether a library is inside, however it came there."""
    mounted = sight.devices.libraries if isinstance(sight.devices, Devices) else ()
    return any(library.name == name for library in mounted) or bool(sight.libraries.of(name))


def judge_capabilities(sight: Sight) -> Step:
    """What is asked for, and whether something needed is missing for lack of it."""
    if not sight.contained:
        return skipped(StepId.CAPABILITIES, "only a container toolkit reads it, and this is no container")
    value = _value(sight)
    if isinstance(value, Unread):
        return unknown(StepId.CAPABILITIES, value)
    evidence = _evidence(sight, value)
    words = _words(value)
    if not value:
        return passed(StepId.CAPABILITIES, "it is not set: utility and compute are the default", evidence)
    if withholds_cuda(sight):
        say = "Let it ask for compute as well: NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        said = f"{CAPABILITIES}={value} does not ask for compute: no libcuda, and no CUDA"
        return failed(StepId.CAPABILITIES, said, evidence, *remedies.variable(say))
    if odd := [word for word in words if word not in KNOWN]:
        say = f"Write only words that the toolkit knows: {', '.join(KNOWN)} or all."
        said = f"the toolkit knows no {', '.join(odd)!r}, and may refuse to start it again"
        return warned(StepId.CAPABILITIES, said, evidence, *remedies.variable(say))
    if "utility" not in words and not _has(sight, NVML):
        say = "Let it ask for utility as well, if nvidia-smi or NVML is meant to work in it: NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        said = f"{CAPABILITIES}={value} does not ask for utility: no nvidia-smi, and no NVML"
        return warned(StepId.CAPABILITIES, said, evidence, *remedies.variable(say))
    if "compute" not in words:
        return passed(StepId.CAPABILITIES, f"{value} lacks compute, but libcuda is inside all the same", evidence)
    return passed(StepId.CAPABILITIES, f"{value} holds what CUDA needs", evidence)


def _evidence(sight: Sight, value: str | None) -> Cited:
    if sight.config is None:
        return sight.environ(CAPABILITIES)
    shows = f"{CAPABILITIES} is not set" if value is None else f"{CAPABILITIES}={value}"
    return (Evidence(sight.config.path, f"process.env: {shows}"),)
