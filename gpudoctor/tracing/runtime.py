"""Whether the loaded driver is new enough for the CUDA runtime that a workload carries.

Sources: knowledge/cuda_compatibility.py, facts/cuda_runtimes.py. Error 35: driver_types.h, cudaErrorInsufficientDriver.
"""

from gpudoctor.facts.cuda_runtimes import LIBRARY, CudaRuntime, mapped_runtime, named_runtime
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.gpu_variables import Variables
from gpudoctor.facts.inner_libraries import CUDA
from gpudoctor.knowledge.cuda_compatibility import minimum_driver, numbers
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown
from gpudoctor.tracing import remedies
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Unread


def judge_runtime(sight: Sight) -> Step:
    """A runtime that is mapped counts before what the image says it holds."""
    carried = mapped_runtime(sight.libraries.mapped_as(LIBRARY)) or _said(sight)
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
    return _compared(sight, module, carried)


def _compared(sight: Sight, module: NvidiaModule, carried: CudaRuntime) -> Step:
    major, minor = carried.major, carried.minor
    least = minimum_driver(major, minor)
    if least is None or not module.version:
        return skipped(StepId.RUNTIME, f"the table of minimum drivers does not know CUDA {major}.{minor}")
    cited = (carried.evidence, *module.cite("version"))
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


def _said(sight: Sight) -> CudaRuntime | None:
    said = sight.wishes.variables
    return named_runtime(said, f"/proc/{sight.pid}/environ") if isinstance(said, Variables) else None
