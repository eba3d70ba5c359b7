"""Which driver runs which CUDA: minimum drivers, and which package for forward compatibility fits which driver.

Minimum drivers: CUDA 13.4 Update 1 release notes, tables 2 and 3 (minor-version compatibility from CUDA 11 on; before, the driver that the
toolkit was released with). Packages: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, the edition that names
cuda-compat-13-4; the branch each is built from: the same page and NVIDIA's driver archive. Read 2026-11-30.
"""

import re
from enum import Enum

MINIMUM_DRIVERS: dict[tuple[int, int | None], str] = {
    (13, None): "580",
    (12, None): "525.60.13",
    (11, None): "450.80.02",
    (10, 2): "440.33",
    (10, 1): "418.39",
    (10, 0): "410.48",
}
"""By major version, before CUDA 11 by minor version as well."""

PACKAGES: dict[int, str] = {
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
    595: "13.2",
    610: "13.3",
    615: "13.4",
}
"""The CUDA version of the package whose libraries are of a driver branch."""
BASES = (535, 570, 580, 590, 595, 610, 615)
"""The branches that the table names as drivers below a package; others are not supported, or not told of."""


class Fit(str, Enum):
    """What the table says of a package on a driver."""

    COMPATIBLE = "compatible"
    NOT_NEEDED = "not needed"
    NOT_COMPATIBLE = "not compatible"


def numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, none for what is no version."""
    return (
        tuple(int(part) for part in version.split(".")) if re.fullmatch(r"\d{1,6}(?:\.\d{1,6}){0,3}", version) else ()
    )


def minimum_driver(major: int, minor: int) -> str | None:
    """The oldest driver that runs a CUDA runtime, None for one that the table does not know."""
    return MINIMUM_DRIVERS.get((major, None)) or MINIMUM_DRIVERS.get((major, minor))


def package_fit(library: str, driver: str) -> Fit | None:
    """What is said of compat libraries of a version on a loaded driver, None where the page does not tell.

    A package serves older drivers only: the table has a cross wherever the driver's branch is newer than the package's, and the page says
    so of all ("older forward compatibility packages are not supported on new driver versions").
    """
    built, base = (numbers(version)[:1] for version in (library, driver))
    if not built or not base or built[0] not in PACKAGES:
        return None
    if built[0] <= base[0]:
        return Fit.NOT_NEEDED if built == base else Fit.NOT_COMPATIBLE
    return Fit.COMPATIBLE if base[0] in BASES else None


# Names as NVML and /proc/driver/nvidia/gpus/*/information give them; forward compatibility is for data-center GPUs and some RTX cards.
_DATA_CENTER = re.compile(
    r"(?:NVIDIA )?(?:Tesla |(?:A|B|H|GH|GB)(?:2|10|16|20|30|40|100|200|300|800)\b|L(?:2|4|20|40S?)\b)", re.IGNORECASE
)
_CONSUMER = re.compile(r"GeForce|TITAN", re.IGNORECASE)


def forward_compatible(name: str | None) -> bool | None:
    """Whether a GPU of this name can use a package for forward compatibility; None where the name does not tell."""
    if not name:
        return None
    if _CONSUMER.search(name):
        return False
    return True if _DATA_CENTER.match(name) else None
