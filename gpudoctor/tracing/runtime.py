"""Whether the loaded driver is new enough for the CUDA runtime that a workload carries.

Sources: knowledge/cuda_compatibility.py; images of CUDA set CUDA_VERSION and NV_CUDA_CUDART_VERSION (nvidia/container-images/cuda);
a runtime that is mapped is named libcudart.so.12.4.127. Error 35: driver_types.h, cudaErrorInsufficientDriver.
"""

import re

from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.inner_libraries import CUDA
from gpudoctor.knowledge.cuda_compatibility import minimum_driver, numbers
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown
from gpudoctor.tracing import remedies
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Evidence, Unread

_LOADED = re.compile(r"libcudart\.so\.(\d{1,2})(?:\.(\d{1,2}))?")
_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})")
VARIABLES = ("CUDA_VERSION", "NV_CUDA_CUDART_VERSION")


def judge_runtime(sight: Sight) -> Step:
    """A runtime that is mapped counts before what the image says it holds."""
    carried = _loaded(sight) or _said(sight)
    if carried is None:
        unread = sight.variables if isinstance(sight.variables, Unread) else None
        if unread is not None:
            return unknown(StepId.RUNTIME, unread)
        return skipped(StepId.RUNTIME, "no CUDA runtime is mapped, and no variable of its image names one")
    module = sight.module
    if isinstance(module, Unread):
        return unknown(StepId.RUNTIME, module)
    if module.version is None:
        return skipped(StepId.RUNTIME, "no driver is loaded that could run it")
    (major, minor), evidence = carried
    return _compared(sight, module, major, minor, evidence)


def _compared(sight: Sight, module: NvidiaModule, major: int, minor: int, evidence: Evidence) -> Step:
    least = minimum_driver(major, minor)
    if least is None or not module.version:
        return skipped(StepId.RUNTIME, f"the table of minimum drivers does not know CUDA {major}.{minor}")
    cited = (evidence, *module.cite("version"))
    first = sight.libraries.first(CUDA)
    if numbers(module.version) >= numbers(least):
        return passed(
            StepId.RUNTIME, f"CUDA {major} needs a driver of {least} or newer, and {module.version} is loaded", cited
        )
    if first is not None and first.compat and numbers(first.version) >= numbers(least):
        said = (
            f"CUDA {major} needs {least} or newer, which the package for forward compatibility gives ({first.version})"
        )
        return passed(StepId.RUNTIME, said, (*cited, first.evidence))
    said = f"CUDA {major}.{minor} needs a driver of {least} or newer, and {module.version} is loaded: error 35"
    return failed(StepId.RUNTIME, said, cited, *remedies.newer_driver(least))


def _loaded(sight: Sight) -> tuple[tuple[int, int], Evidence] | None:
    for library in sight.libraries.mapped_as("libcudart"):
        found = _LOADED.search(library.path)
        if found is not None:
            return (int(found[1]), int(found[2] or 0)), library.evidence
    return None


def _said(sight: Sight) -> tuple[tuple[int, int], Evidence] | None:
    for name in VARIABLES:
        found = _VERSION.match(sight.wishes.variable(name) or "")
        if found is not None:
            return (int(found[1]), int(found[2])), sight.environ(name)[0]
    return None
