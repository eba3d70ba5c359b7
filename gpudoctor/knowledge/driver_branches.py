"""Branches of the Linux driver: the CUDA version each reports, its kind, and how long it gets fixes.

CUDA version: the toolkit that ships with the branch (knowledge/cuda_toolkits.py); 390 and 396 from the minimum drivers of CUDA 9.1 and
9.2 (release notes of CUDA 11.0); 410 to 440 and 565 from nvidia-smi's banner in public captures, 590 to 620 from `cuda_variant` in
developer.download.nvidia.com/compute/nvidia-driver/redist/redistrib_VERSION.json. Kind, dates and newest release: endoflife-date/
endoflife.date at a70eca337600 (2026-08-22, from NVIDIA's releases.json), the index of that redist folder, the tags of
open-gpu-kernel-modules (520.61.07), the runfile of CUDA 12.6.3 (560.35.05), security bulletin 5861 (the month of 615), and the support
matrices of docs.nvidia.com/datacenter/tesla (editions 615 and 620; RN-08625-001 of March 2021), whose ends win. endoflife.date dates the
end of a new feature branch a year after its release by a rule of its own; NVIDIA promises none. Which architectures a branch drives:
knowledge/compute_capabilities.py; which releases are known to be bad: knowledge/bad_drivers.py. Read 2026-11-30.
"""

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.knowledge.version_numbers import numbers
from gpudoctor.patterns import pattern

if TYPE_CHECKING:
    from datetime import date

AS_OF = "2026-11-30"
SOURCE = "endoflife.date a70eca337600; docs.nvidia.com/datacenter/tesla/drivers/620; NVIDIA's driver redist index"


class Kind(str, Enum):
    """What NVIDIA promises of a branch: years of fixes, about one year, or nothing beyond the next branch."""

    LONG_TERM = "long-term support branch"
    PRODUCTION = "production branch"
    NEW_FEATURE = "new feature branch"
    UNKNOWN = "branch"


class Branch(Struct, frozen=True):
    """One branch. `first`, `end` and `latest_date` are ISO dates or months, "" where no source tells; the end is the last day with fixes.

    `by` says that the branch had ended by then: it is missing from the support matrix of that month.
    """

    number: int
    cuda: str
    kind: Kind
    first: str = ""
    end: str = ""
    latest: str = ""
    latest_date: str = ""
    by: bool = False


_LONG, _PRODUCTION, _FEATURE, _UNKNOWN = Kind.LONG_TERM, Kind.PRODUCTION, Kind.NEW_FEATURE, Kind.UNKNOWN

BRANCHES = (
    Branch(390, "9.1", _LONG, "2018-01-04", "2022-11-22", "390.157", "2022-11-22"),
    Branch(396, "9.2", _UNKNOWN, end="2021-03", by=True),
    Branch(410, "10.0", _UNKNOWN, end="2021-03", by=True),
    Branch(415, "10.0", _UNKNOWN, end="2021-03", by=True),
    Branch(418, "10.1", _LONG, "2019-01-30", "2022-03", "418.226.00", "2021-10-26"),
    Branch(430, "10.1", _UNKNOWN, end="2021-03", by=True),
    Branch(435, "10.1", _UNKNOWN, end="2021-03", by=True),
    Branch(440, "10.2", _FEATURE, end="2020-11"),
    Branch(450, "11.0", _LONG, "2020-06-24", "2023-07", "450.248.02", "2023-06-26"),
    Branch(455, "11.1", _FEATURE, latest="455.45.01"),
    Branch(460, "11.2", _PRODUCTION, "2021-01-07", "2022-01", "460.106.00", "2021-10-26"),
    Branch(465, "11.3", _FEATURE, "2021-04-19", "2022-04-19", "465.24.02", "2021-04-19"),
    Branch(470, "11.4", _LONG, "2021-07-19", "2024-07-20", "470.256.02", "2024-06-04"),
    Branch(495, "11.5", _FEATURE, "2021-10-26", "2022-10-12", "495.46", "2021-12-13"),
    Branch(510, "11.6", _PRODUCTION, "2022-01-14", "2023-01-01", "510.108.03", "2022-11-22"),
    Branch(515, "11.7", _PRODUCTION, "2022-05-11", "2023-05-01", "515.105.01", "2023-03-30"),
    Branch(520, "11.8", _FEATURE, "2022-10-12", "2023-10-01", "520.61.07", "2022-10-20"),
    Branch(525, "12.0", _PRODUCTION, "2022-11-10", "2023-12-01", "525.147.05", "2023-10-31"),
    Branch(530, "12.1", _FEATURE, "2023-03-23", "2023-06-24", "530.41.03", "2023-03-23"),
    Branch(535, "12.2", _LONG, "2023-06-14", "2026-06", "535.309.01", "2026-04-28"),
    Branch(545, "12.3", _FEATURE, "2023-10-31", "2024-10-01", "545.29.06", "2023-11-22"),
    Branch(550, "12.4", _PRODUCTION, "2024-02-23", "2025-04-17", "550.163.01", "2025-04-17"),
    Branch(555, "12.5", _FEATURE, "2024-06-04", "2025-06-01", "555.58.02", "2024-07-01"),
    Branch(560, "12.6", _FEATURE, "2024-08-22", "2025-08-22", "560.35.05", "2024-11"),
    Branch(565, "12.7", _FEATURE, "2024-10-29", "2025-10-01", "565.77", "2024-12-05"),
    Branch(570, "12.8", _PRODUCTION, "2025-01-27", "2026-01-27", "570.211.01", "2026-01-13"),
    Branch(575, "12.9", _FEATURE, "2025-06-03", "2026-06-03", "575.64.05", "2025-07-22"),
    Branch(580, "13.0", _LONG, "2025-08-04", "2028-06", "580.178.04", "2026-08-03"),
    Branch(590, "13.1", _FEATURE, "2025-12-22", "", "590.48.01", "2025-12-22"),
    Branch(595, "13.2", _PRODUCTION, "2026-03-24", "2027-03", "595.112.07", "2026-10-22"),
    Branch(610, "13.3", _FEATURE, "2026-08-03", "2026-08", "610.57.04", "2026-08-03"),
    Branch(615, "13.4", _FEATURE, "2026-09", "", "615.71.10", "2026-10-19"),
    Branch(620, "13.5", _LONG, "2026-11", "2029-09", "620.70.06", "2026-11-04"),
)
"""Oldest first. 560 and 565 are new feature branches for Azure/aks-gpu (pull request 113) and production branches for endoflife.date."""
BY_NUMBER: dict[int, Branch] = {branch.number: branch for branch in BRANCHES}
NEWEST = BRANCHES[-1]

CUDA_EXCEPTIONS: dict[str, str] = {"430.26": "10.2"}
"""Releases that report another CUDA version than their branch (nvidia-smi's banner in ten public captures)."""
JETSON = (540,)
"""Branches of JetPack alone, whose CUDA version JetPack chooses (540.4.0 reports 12.6, public captures): their number orders nothing."""

_DRIVER = pattern(r"[Rr]?([1-9]\d{2,3}(?:\.\d{1,4}){0,2})")


class Offered(Struct, frozen=True):
    """The CUDA version of a driver; where that is not known, why, with the nearest branches that are known below and above."""

    version: str | None = None
    below: Branch | None = None
    above: Branch | None = None
    why: str = ""


def release_of(text: str) -> tuple[int, ...]:
    """The numbers of a driver release or branch (`580.105.08`, `R580`), none for what cannot be one: cut or with a suffix."""
    found = _DRIVER.fullmatch(text.strip())
    return numbers(found[1]) if found is not None else ()


def branch_of(driver: str, *, windows: bool = False) -> Branch | None:
    """The branch of a release, None where the table has none.

    Under WSL the driver is that of Windows, where a branch goes on under the next numbers (R535 up to 539.72: endoflife.date): `windows`
    takes the newest branch that is not newer, unless that is the newest of the table.
    """
    release = release_of(driver)
    if not release:
        return None
    exact = BY_NUMBER.get(release[0])
    if exact is not None or not windows:
        return exact
    below, above = _neighbours(release[0])
    return below if above is not None else None


def _neighbours(number: int) -> tuple[Branch | None, Branch | None]:
    below = [branch for branch in BRANCHES if branch.number < number]
    above = [branch for branch in BRANCHES if branch.number > number]
    return (below[-1] if below else None), (above[0] if above else None)


def offered(driver: str, *, windows: bool = False) -> Offered:
    """The CUDA version that a driver reports as the newest it runs, or what is known instead."""
    release = release_of(driver)
    if not release:
        return Offered(why=f"{driver!r} is no version of a driver")
    if release[0] in JETSON:
        return Offered(why=f"{release[0]} is a branch of JetPack, which chooses the CUDA version itself")
    if (branch := branch_of(driver, windows=windows)) is not None:
        return Offered(CUDA_EXCEPTIONS.get(driver.strip(), branch.cuda))
    below, above = _neighbours(release[0])
    where = "newer than" if above is None else "older than" if below is None else "not in"
    return Offered(None, below, above, f"branch {release[0]} is {where} the table of {AS_OF}")


def cuda_of(driver: str, *, windows: bool = False) -> str | None:
    """`13.0` for a driver of branch 580; None where the table does not tell: `offered` says why, with bounds."""
    return offered(driver, windows=windows).version


class State(str, Enum):
    """Whether a branch gets fixes."""

    SUPPORTED = "supported"
    SUPERSEDED = "superseded"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Life(Struct, frozen=True):
    """Where a driver's branch stands on a day.

    `until` is its end as a date or month, `next` the branch that took over, `why` is for an unknown.
    """

    state: State
    branch: Branch | None = None
    until: str = ""
    next: Branch | None = None
    why: str = ""


def life(driver: str, on: "date", *, windows: bool = False) -> Life:
    """Whether the branch of a driver gets fixes on a day.

    A new feature branch gets none after the next branch is out (docs.nvidia.com/datacenter/tesla/drivers, branch types).
    """
    branch = branch_of(driver, windows=windows)
    if branch is None:
        return Life(State.UNKNOWN, why=offered(driver, windows=windows).why)
    day = on.isoformat()
    if branch.end and day[: len(branch.end)] > branch.end:
        return Life(State.ENDED, branch, branch.end)
    if branch.kind is Kind.NEW_FEATURE:
        later = (one for one in BRANCHES if one.number > branch.number and one.first)
        successor = next((one for one in later if one.first <= day[: len(one.first)]), None)
        if successor is not None:
            return Life(State.SUPERSEDED, branch, branch.end, successor)
        return Life(State.SUPPORTED, branch, branch.end)
    if not branch.end:
        return Life(State.UNKNOWN, branch, why=f"no source tells the end of branch {branch.number}")
    return Life(State.SUPPORTED, branch, branch.end)


def supported_on(day: "date") -> tuple[Branch, ...]:
    """The long-term and production branches that get fixes on a day, oldest first: where to go from one that has ended."""
    kept = (Kind.LONG_TERM, Kind.PRODUCTION)
    text = day.isoformat()
    return tuple(
        branch
        for branch in BRANCHES
        if branch.kind in kept
        and branch.first <= text[: len(branch.first)]
        and life(str(branch.number), day).state is State.SUPPORTED
    )


def newer_than_known(driver: str) -> bool | None:
    """Whether a release is newer than those of its branch that are known, or its branch newer than all; None if not comparable."""
    release = release_of(driver)
    if not release or release[0] in JETSON:
        return None
    branch = BY_NUMBER.get(release[0])
    if branch is None:
        return True if release[0] > NEWEST.number else None
    return release > numbers(branch.latest) if branch.latest and len(release) > 1 else None
