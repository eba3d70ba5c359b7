"""What is wrong with the libraries of a package for forward compatibility on a driver and its GPUs: tables of cuda_compatibility.py.

CUDA answers 803 beside a driver of a newer branch and 804 on a GPU that may not use such a package (cuda.h; the page that
cuda_compatibility.py names). One of the driver's own branch works where it is newer than the driver: the libraries name their own branch
among those they run on, and NVIDIA's container toolkit then puts them first in a container (nvidia-container-toolkit d34b3046758c,
cmd/nvidia-cdi-hook/cudacompat/cuda-elf-header.go, UseCompat, and its test). Read 2026-11-30.
"""

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from gpudoctor.knowledge.cuda_compatibility import Fit, forward_compatible, package_fit
from gpudoctor.knowledge.version_numbers import numbers

PAGE = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"


class Trouble(str, Enum):
    """Why programs that load it do not run, or need not load it."""

    OLDER = "older"
    REFUSED = "refused"
    NOT_NEEDED = "not needed"
    UNTOLD = "untold"


class PackageTrouble(Struct, frozen=True):
    """The trouble in words that go on a sentence about the libraries; `refusing` is a GPU that may not use them."""

    trouble: Trouble
    words: str
    refusing: str = ""

    @property
    def breaks(self) -> bool:
        """Whether CUDA does not start."""
        return self.trouble in (Trouble.OLDER, Trouble.REFUSED)


def package_trouble(library: str, driver: str, gpus: Sequence[str]) -> PackageTrouble | None:
    """What is wrong with libraries of a version on a driver and GPUs of these names, None where all is known to fit."""
    fit = package_fit(library, driver)
    if fit is Fit.NOT_COMPATIBLE:
        return PackageTrouble(Trouble.OLDER, f"that is older than the driver {driver}: CUDA answers 803")
    newer = numbers(library) > numbers(driver)
    if fit is Fit.NOT_NEEDED and not newer:
        return PackageTrouble(Trouble.NOT_NEEDED, f"of the driver's own branch ({driver}), where none is needed")
    refusing = next((gpu for gpu in gpus if forward_compatible(gpu) is False), None)
    if refusing is not None:
        return PackageTrouble(Trouble.REFUSED, f"which {refusing} does not support: CUDA answers 804", refusing)
    if fit is not None and gpus and all(forward_compatible(gpu) for gpu in gpus):
        return None
    return PackageTrouble(
        Trouble.UNTOLD, f"of which no table tells whether it works with the driver {driver} on these GPUs"
    )
