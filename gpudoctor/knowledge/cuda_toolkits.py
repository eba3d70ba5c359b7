"""Releases of the CUDA toolkit: the driver each was made with, and the oldest driver that runs what it builds.

Release notes of CUDA 13.4 Update 1, tables 2 and 3 (corresponding and minimum drivers, x86_64 and, from 11.0 on, sbsa alike); drivers in
the Linux runfiles: spack/spack-packages 1e8cf059e35d, cuda/package.py; releases after a table's last: PyPI cuda-toolkit and
nvidia-cuda-runtime; 13.5: redistrib_620.70.06.json. From 13.4 on no driver comes with the Linux toolkit (same notes). Read 2026-11-30.
"""

from msgspec import Struct

from gpudoctor.knowledge.driver_branches import BRANCHES, Branch
from gpudoctor.knowledge.version_numbers import minor_of, numbers

AS_OF = "2026-11-30"
SOURCE = "docs.nvidia.com/cuda/cuda-toolkit-release-notes of 13.4 Update 1; spack-packages 1e8cf059e35d; PyPI"

_BOTH = "release notes and runfile"
_NOTES = "release notes"
_PYPI = "PyPI"
_REDIST = "redistrib_620.70.06.json"


class Toolkit(Struct, frozen=True):
    """One release. `bundled` is the driver in its runfile, `corresponding` the driver or the branch that NVIDIA names for it."""

    version: str
    label: str
    bundled: str | None
    corresponding: str | None
    source: str


TOOLKITS = (
    Toolkit("10.0.130", "10.0", "410.48", "410.48", _BOTH),
    Toolkit("10.1.105", "10.1", "418.39", "418.39", _BOTH),
    Toolkit("10.1.168", "10.1 Update 1", None, "418.39", _NOTES),
    Toolkit("10.1.243", "10.1 Update 2", "418.87.00", "418.39", _BOTH),
    Toolkit("10.2.89", "10.2", "440.33.01", "440.33", _BOTH),
    Toolkit("11.0.1", "11.0 RC", None, "450.36.06", _NOTES),
    Toolkit("11.0.2", "11.0 GA", "450.51.05", "450.51.05", _BOTH),
    Toolkit("11.0.3", "11.0 Update 1", "450.51.06", "450.51.06", _BOTH),
    Toolkit("11.1.0", "11.1 GA", "455.23.05", "455.23", _BOTH),
    Toolkit("11.1.1", "11.1 Update 1", "455.32.00", "455.32", _BOTH),
    Toolkit("11.2.0", "11.2 GA", "460.27.04", "460.27.03", _BOTH),
    Toolkit("11.2.1", "11.2 Update 1", "460.32.03", "460.32.03", _BOTH),
    Toolkit("11.2.2", "11.2 Update 2", "460.32.03", "460.32.03", _BOTH),
    Toolkit("11.3.0", "11.3 GA", "465.19.01", "465.19.01", _BOTH),
    Toolkit("11.3.1", "11.3 Update 1", "465.19.01", "465.19.01", _BOTH),
    Toolkit("11.4.0", "11.4 GA", "470.42.01", "470.42.01", _BOTH),
    Toolkit("11.4.1", "11.4 Update 1", "470.57.02", "470.57.02", _BOTH),
    Toolkit("11.4.2", "11.4 Update 2", "470.57.02", "470.57.02", _BOTH),
    Toolkit("11.4.3", "11.4 Update 3", "470.82.01", "470.82.01", _BOTH),
    Toolkit("11.4.4", "11.4 Update 4", "470.82.01", "470.82.01", _BOTH),
    Toolkit("11.5.0", "11.5 GA", "495.29.05", "495.29.05", _BOTH),
    Toolkit("11.5.1", "11.5 Update 1", "495.29.05", "495.29.05", _BOTH),
    Toolkit("11.5.2", "11.5 Update 2", "495.29.05", "495.29.05", _BOTH),
    Toolkit("11.6.0", "11.6 GA", "510.39.01", "510.39.01", _BOTH),
    Toolkit("11.6.1", "11.6 Update 1", "510.47.03", "510.47.03", _BOTH),
    Toolkit("11.6.2", "11.6 Update 2", "510.47.03", "510.47.03", _BOTH),
    Toolkit("11.7.0", "11.7 GA", "515.43.04", "515.43.04", _BOTH),
    Toolkit("11.7.1", "11.7 Update 1", "515.65.01", "515.48.07", _BOTH),
    Toolkit("11.8.0", "11.8 GA", "520.61.05", "520.61.05", _BOTH),
    Toolkit("12.0.0", "12.0 GA", "525.60.13", "525.60.13", _BOTH),
    Toolkit("12.0.1", "12.0 Update 1", "525.85.12", "525.85.12", _BOTH),
    Toolkit("12.1.0", "12.1 GA", "530.30.02", "530.30.02", _BOTH),
    Toolkit("12.1.1", "12.1 Update 1", "530.30.02", "530.30.02", _BOTH),
    Toolkit("12.2.0", "12.2 GA", "535.54.03", "535.54.03", _BOTH),
    Toolkit("12.2.1", "12.2 Update 1", "535.86.10", "535.86.09", _BOTH),
    Toolkit("12.2.2", "12.2 Update 2", "535.104.05", "535.104.05", _BOTH),
    Toolkit("12.3.0", "12.3 GA", "545.23.06", "545.23.06", _BOTH),
    Toolkit("12.3.1", "12.3 Update 1", "545.23.08", "545.23.08", _BOTH),
    Toolkit("12.3.2", "12.3 Update 2", "545.23.08", "545.23.08", _BOTH),
    Toolkit("12.4.0", "12.4 GA", "550.54.14", "550.54.14", _BOTH),
    Toolkit("12.4.1", "12.4 Update 1", "550.54.15", "550.54.15", _BOTH),
    Toolkit("12.5.0", "12.5 GA", "555.42.02", "555.42.02", _BOTH),
    Toolkit("12.5.1", "12.5 Update 1", "555.42.06", "555.42.06", _BOTH),
    Toolkit("12.6.0", "12.6 GA", "560.28.03", "560.28.03", _BOTH),
    Toolkit("12.6.1", "12.6 Update 1", "560.35.03", "560.35.03", _BOTH),
    Toolkit("12.6.2", "12.6 Update 2", "560.35.03", "560.35.03", _BOTH),
    Toolkit("12.6.3", "12.6 Update 3", "560.35.05", "560.35.05", _BOTH),
    Toolkit("12.8.0", "12.8 GA", "570.86.10", "570.26", _BOTH),
    Toolkit("12.8.1", "12.8 Update 1", "570.124.06", "570.124.06", _BOTH),
    Toolkit("12.8.2", "12.8 Update 2", None, None, _PYPI),
    Toolkit("12.9.0", "12.9 GA", "575.51.03", "575.51.03", _BOTH),
    Toolkit("12.9.1", "12.9 Update 1", "575.57.08", "575.57.08", _BOTH),
    Toolkit("12.9.2", "12.9 Update 2", None, None, _PYPI),
    Toolkit("13.0.0", "13.0 GA", "580.65.06", "580", _BOTH),
    Toolkit("13.0.1", "13.0 Update 1", "580.82.07", "580", _BOTH),
    Toolkit("13.0.2", "13.0 Update 2", "580.95.05", "580", _BOTH),
    Toolkit("13.0.3", "13.0 Update 3", None, "580", _PYPI),
    Toolkit("13.1.0", "13.1 GA", "590.44.01", "590", _BOTH),
    Toolkit("13.1.1", "13.1 Update 1", "590.48.01", "590", _BOTH),
    Toolkit("13.1.2", "13.1 Update 2", "590.48.01", "590", _BOTH),
    Toolkit("13.2.0", "13.2 GA", "595.45.04", "595", _BOTH),
    Toolkit("13.2.1", "13.2 Update 1", "595.58.03", "595", _BOTH),
    Toolkit("13.2.2", "13.2 Update 2", None, "595", _PYPI),
    Toolkit("13.3.0", "13.3 GA", "610.43.02", "610", _BOTH),
    Toolkit("13.3.1", "13.3 Update 1", None, "610", _PYPI),
    Toolkit("13.4.0", "13.4 preview", None, "615", _NOTES),
    Toolkit("13.4.1", "13.4 GA", None, "615", _NOTES),
    Toolkit("13.4.2", "13.4 Update 1", None, "615", _NOTES),
    Toolkit("13.4.3", "13.4 Update 2", None, "615", _PYPI),
    Toolkit("13.5.0", "13.5 GA", None, "620", _REDIST),
)  # fmt: skip
"""Oldest first. 13.4.0 was a preview, and the third number of 13.4.1 counts builds, not updates."""

NOT_RELEASED: dict[str, str] = {"12.7": "there is no CUDA toolkit 12.7, only drivers of branch 565 that report it"}
"""Minor versions that drivers report and no toolkit has."""

MINIMUM_DRIVERS: dict[tuple[int, int | None], str] = {
    (13, None): "580",
    (12, None): "525.60.13",
    (11, None): "450.80.02",
    (11, 0): "450.36.06",
    (10, 2): "440.33",
    (10, 1): "418.39",
    (10, 0): "410.48",
}
"""By major version (minor-version compatibility, from CUDA 11 on), or by minor version where that has one of its own."""


def toolkit(version: str) -> Toolkit | None:
    """The release of a version (`12.8.1`), or the first of a minor version (`12.8`); None for one that the table does not have."""
    wanted = numbers(version)
    exact = (one for one in TOOLKITS if numbers(one.version) == wanted)
    first = (one for one in TOOLKITS if len(wanted) == 2 and minor_of(one.version) == wanted)
    return next(exact, None) or next(first, None)


def minor_versions() -> tuple[str, ...]:
    """The minor versions that were released, oldest first."""
    return tuple(dict.fromkeys(f"{major}.{minor}" for major, minor in (numbers(one.version)[:2] for one in TOOLKITS)))


def minimum_driver(major: int, minor: int) -> str | None:
    """The oldest driver that runs a CUDA runtime, None for one that the table does not know."""
    return MINIMUM_DRIVERS.get((major, minor)) or MINIMUM_DRIVERS.get((major, None))


def native_branch(cuda: str) -> Branch | None:
    """The oldest branch whose drivers report a CUDA version or a newer one: it runs that version without any compatibility mode.

    None where no known branch is that new; `12.7`, which only a driver has, gives branch 565.
    """
    wanted = minor_of(cuda)
    if wanted is None:
        return None
    return next((branch for branch in BRANCHES if (minor_of(branch.cuda) or (0, 0)) >= wanted), None)


def by_minor_version(cuda: str, driver_cuda: str) -> bool | None:
    """Whether minor-version compatibility can serve a runtime that is newer than the driver: within one major version from 11 on.

    None for what is no version. What it does not give: PTX of the newer toolkit (CUDA error 222) and features that need its driver.
    """
    wanted, have = minor_of(cuda), minor_of(driver_cuda)
    if wanted is None or have is None:
        return None
    return wanted[0] == have[0] >= 11 and wanted > have
