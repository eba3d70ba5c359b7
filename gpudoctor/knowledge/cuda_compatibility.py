"""Which driver runs which CUDA: which package for forward compatibility fits which driver, and which GPUs can use one.

Packages: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, the edition that names cuda-compat-13-4; the
branch each is built from: the same page and NVIDIA's driver archive. Before 12.2, and on branches that the page does not name, what
NVIDIA's own images with the package in them state as their requirement: NVIDIA_REQUIRE_CUDA of nvidia/cuda base images (gitlab
nvidia/container-images/cuda, mirrored in pranavmishra90/nvidia-container-images-cuda 60a1c892e6b9; 13.1 in the RAPIDS deployment guide).
Minimum drivers: knowledge/cuda_toolkits.py. Read 2026-11-30.
"""

import re
from enum import Enum

from gpudoctor.knowledge.cuda_toolkits import MINIMUM_DRIVERS, TOOLKITS, minimum_driver
from gpudoctor.knowledge.version_numbers import numbers
from gpudoctor.patterns import pattern

__all__ = [
    "BASES",
    "MINIMUM_DRIVERS",
    "PACKAGES",
    "Fit",
    "Told",
    "forward_compatible",
    "minimum_driver",
    "numbers",
    "package_fit",
    "package_name",
    "told_by",
]

AS_OF = "2026-11-30"
SOURCE = "docs.nvidia.com/deploy/cuda-compatibility (with cuda-compat-13-4); NVIDIA_REQUIRE_CUDA of nvidia/cuda images"

PACKAGES: dict[int, str] = {
    int(one.corresponding.partition(".")[0]): one.version.rpartition(".")[0] for one in TOOLKITS if one.corresponding
}
"""The CUDA version of the package whose libraries are of a driver branch, from cuda-compat-10-0 on."""
# The first and the last branch that the table of the page has packages of.
_PAGE = (535, 615)
BASES = (535, 570, 580, 590, 595, 610, 615)
"""The branches that the page's table names as drivers below a package; others are not supported, or not told of."""

IMAGE_BASES: dict[str, tuple[int, ...]] = {
    "10.0": (384,),
    "10.1": (418,),
    "10.2": (418,),
    "11.0": (418,),
    "11.1": (418, 450),
    "11.2": (418, 450),
    "11.3": (418,),
    "11.4": (418, 440, 450, 460),
    "11.5": (418, 450, 470),
    "11.6": (418, 450, 470),
    "11.7": (450, 470),
    "11.8": (470,),
    "12.0": (470,),
    "12.1": (470, 525),
    "12.2": (470, 525),
    "12.3": (470, 525, 535),
    "12.4": (470, 525, 535),
    "12.5": (470, 535, 550),
    "12.6": (470, 535, 550),
    "12.8": (470, 535, 550, 560, 565),
    "12.9": (535, 550, 560, 565, 570),
    "13.0": (535, 550, 565, 570, 575),
    "13.1": (535, 550, 570, 575, 580),
}
"""The driver branches on which an image of a CUDA version lets itself be started, all its updates together."""


class Fit(str, Enum):
    """What is said of a package on a driver."""

    COMPATIBLE = "compatible"
    NOT_NEEDED = "not needed"
    NOT_COMPATIBLE = "not compatible"


class Told(str, Enum):
    """Who says that a package fits a driver."""

    PAGE = "NVIDIA's table of forward compatibility"
    IMAGES = "the requirement in NVIDIA's own images"


def package_name(cuda: str) -> str | None:
    """`cuda-compat-12-8`, None for a version without one."""
    return f"cuda-compat-{cuda.replace('.', '-')}" if cuda in PACKAGES.values() else None


def package_fit(library: str, driver: str) -> Fit | None:
    """What is said of compat libraries of a version on a loaded driver, None where neither the page nor an image tells.

    A package serves older drivers only: the table has a cross wherever the driver's branch is newer than the package's, and the page says
    so of all ("older forward compatibility packages are not supported on new driver versions").
    """
    built, base = (numbers(version)[:1] for version in (library, driver))
    if not built or not base or built[0] not in PACKAGES:
        return None
    if built[0] <= base[0]:
        return Fit.NOT_NEEDED if built == base else Fit.NOT_COMPATIBLE
    return Fit.COMPATIBLE if told_by(library, driver) is not None else None


def told_by(library: str, driver: str) -> Told | None:
    """Who says that libraries of a branch work on an older driver: the page where it has a row and a column, else the images."""
    built, base = (numbers(version)[:1] for version in (library, driver))
    if not built or not base or built[0] not in PACKAGES or built[0] <= base[0]:
        return None
    if _PAGE[0] <= built[0] <= _PAGE[1] and base[0] in BASES:
        return Told.PAGE
    return Told.IMAGES if base[0] in IMAGE_BASES.get(PACKAGES[built[0]], ()) else None


# Names as NVML and /proc/driver/nvidia/gpus/*/information give them; forward compatibility is for data-center GPUs and some RTX cards.
_DATA_CENTER = pattern(
    r"(?:NVIDIA )?(?:Tesla |(?:A|B|H|GH|GB)(?:2|10[GM]?|16|20|30X?|40|100X?|200|300|800)\b|L(?:2|4|20|40S?)\b)",
    re.IGNORECASE,
)
_CONSUMER = pattern(r"GeForce|TITAN", re.IGNORECASE)
DATA_CENTER_ALONE = ("9.0", "10.0", "10.3")
"""Compute capabilities that data-center boards alone have: no GeForce, TITAN, Quadro, RTX or CMP of knowledge/pci_gpus.py is of one."""


def forward_compatible(name: str | None, cc: str | None = None) -> bool | None:
    """Whether a GPU can use a package for forward compatibility; None where neither its name nor its compute capability tells."""
    if name and _CONSUMER.search(name):
        return False
    if cc in DATA_CENTER_ALONE:
        return True
    return True if name and _DATA_CENTER.match(name) else None
