"""The CUDA runtime that a workload carries: one that is mapped, else the one that its image names.

Images of CUDA set CUDA_VERSION and NV_CUDA_CUDART_VERSION (nvidia/container-images/cuda); a runtime that is mapped is named
libcudart.so.12.4.127.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence

if TYPE_CHECKING:
    from gpudoctor.facts.gpu_variables import Variables
    from gpudoctor.facts.inner_libraries import MappedLibrary

LIBRARY = "libcudart"
VARIABLES = ("CUDA_VERSION", "NV_CUDA_CUDART_VERSION")

_LOADED = pattern(r"libcudart\.so\.(\d{1,2})(?:\.(\d{1,2}))?")
_VERSION = pattern(r"(\d{1,2})\.(\d{1,2})")


class CudaRuntime(Struct, frozen=True):
    """A runtime's version with where it was read.

    The file of a wheel from PyPI is called libcudart.so.12: `minor` is 0 then, and `exact` false.
    """

    major: int
    minor: int
    evidence: Evidence
    exact: bool = True

    @property
    def version(self) -> str:
        """`12.4`, or `12` where the minor version is not known."""
        return f"{self.major}.{self.minor}" if self.exact else str(self.major)


def mapped_runtime(libraries: "Iterable[MappedLibrary]") -> CudaRuntime | None:
    """The first that a process has mapped."""
    for library in libraries:
        found = _LOADED.search(library.path) if library.name == LIBRARY else None
        if found is not None:
            return CudaRuntime(int(found[1]), int(found[2] or 0), library.evidence, found[2] is not None)
    return None


def named_runtime(variables: "Variables", where: str) -> CudaRuntime | None:
    """What the variables of an image say that it holds."""
    for name in VARIABLES:
        value = variables.get(name) or ""
        if (found := _VERSION.match(value)) is not None:
            return CudaRuntime(int(found[1]), int(found[2]), Evidence(where, f"{name}={value}"))
    return None
