"""What images demand of the driver: NVIDIA_REQUIRE_*, read and judged as libnvidia-container does before it lets a container start.

Blank means or, comma and; all variables must be met. Sources: NVIDIA/libnvidia-container @5823754b8577 src/cli/dsl.c (grammar, comparison)
and src/cli/configure.c (rules, once for each visible GPU), src/driver.c (brands); NVIDIA/nvidia-container-toolkit v1.20.0
internal/config/image/cuda_image.go (which variables, NVIDIA_DISABLE_REQUIRE, images without a requirement). Read 2026-11-30. Where CDI
injects GPUs nobody looks at requirements; on Tegra another program does, with rules of its own.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

REQUIRE, REQUIRE_CUDA, JETPACK = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_JETPACK"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION = "CUDA_VERSION"

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
"""What Go's strconv.ParseBool takes for true; whatever else stands there lifts nothing."""
_CONDITION = re.compile(r"([^<>=!]+)([<>=!]+)([^<>=!].*)", re.DOTALL)
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "!")
_VERSION = re.compile(r"[0-9.]*")
_SEMANTIC = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.\d{1,6})?(?:[-+][0-9A-Za-z.+-]*)?")

BRANDS = {
    "nvidia_virtual_applications": "vapps",
    "nvidia_virtual_pc": "vpc",
    "nvidia_virtual_compute_server": "vcs",
    "nvidia_rtx_virtual_workstation": "vws",
    "nvidia_cloud_gaming": "cloudgaming",
    "quadro_rtx": "quadrortx",
    "nvidia_rtx": "nvidiartx",
    "geforce_rtx": "geforcertx",
    "titan_rtx": "titanrtx",
}
"""NVML's brands by the words of an answer, as images and libnvidia-container spell them; all others are spelt alike."""


class Outcome(str, Enum):
    """What becomes of a requirement; unknown where it hangs on something that was not told."""

    MET = "met"
    UNMET = "unmet"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Provided(Struct, frozen=True):
    """What there is for one GPU; None where it is not known."""

    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None

    def of(self, name: str) -> str | None:
        """One of the four things that can be demanded."""
        return {"cuda": self.cuda, "driver": self.driver, "arch": self.arch, "brand": self.brand}[name]


NAMES = ("cuda", "driver", "arch", "brand")


class Condition(Struct, frozen=True):
    """One comparison as it stands there; `name` is "" where it is none."""

    text: str
    name: str = ""
    operator: str = ""
    value: str = ""


class Requirement(Struct, frozen=True):
    """One variable: alternatives, each a row of conditions. `derived` is one that the image does not state itself."""

    variable: str
    text: str
    alternatives: tuple[tuple[Condition, ...], ...]
    derived: bool = False


class Judged(Struct, frozen=True):
    """The outcome, and the condition that decides: of several alternatives the first one's, as the error message quotes it."""

    outcome: Outcome
    condition: Condition | None = None


def is_true(value: str | None) -> bool:
    """Whether a value switches something on, as Go reads it."""
    return value in _TRUE


def parse_requirement(variable: str, text: str, *, derived: bool = False) -> Requirement:
    """Never fails: what cannot be read is found when it is looked at, and not where an earlier alternative is met."""
    alternatives = tuple(
        tuple(_condition(part) for part in term.split(",") if part) for term in text.split(" ") if term
    )
    return Requirement(variable, text, alternatives, derived)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None or found[1].lower() not in NAMES or found[2] not in _OPERATORS:
        return Condition(text)
    return Condition(text, found[1].lower(), "!=" if found[2] == "!" else found[2], found[3])


def requirements_of(variables: Mapping[str, str]) -> tuple[Requirement, ...]:
    """All that an environment states, and what the toolkit makes of one that names a CUDA version and states none."""
    stated = [
        parse_requirement(name, value)
        for name, value in variables.items()
        if name.startswith(REQUIRE) and not name.startswith(JETPACK)
    ]
    version = variables.get(CUDA_VERSION, "")
    if version and not variables.get(REQUIRE_CUDA):
        found = _SEMANTIC.fullmatch(version)
        text = f"cuda>={int(found[1])}.{int(found[2] or 0)}" if found is not None else f"{CUDA_VERSION}={version}"
        stated.append(parse_requirement(CUDA_VERSION, text, derived=True))
    return tuple(stated)


def judge(requirement: Requirement, provided: Provided) -> Judged:
    """The alternatives in order, up to the first that is met or cannot be read."""
    unsure, failed = False, False
    for row in requirement.alternatives:
        if not row:
            # A term of nothing but commas ends the search (dsl_evaluate).
            break
        outcome = _row(row, provided)
        if outcome is Outcome.MET:
            return Judged(Outcome.MET)
        if outcome is Outcome.INVALID and unsure:
            return Judged(Outcome.UNKNOWN)
        if outcome is Outcome.INVALID:
            return Judged(Outcome.INVALID, next((one for one in row if not _readable(one, provided)), None))
        unsure = unsure or outcome is not Outcome.UNMET
        failed = failed or outcome is Outcome.UNMET
    if unsure:
        return Judged(Outcome.UNKNOWN)
    if not failed:
        return Judged(Outcome.MET)
    return Judged(Outcome.UNMET, _deciding(requirement, provided))


def judge_all(requirements: Sequence[Requirement], gpus: Sequence[Provided]) -> tuple[tuple[Requirement, Judged], ...]:
    """Each requirement with its worst outcome over the visible GPUs."""
    order = (Outcome.INVALID, Outcome.UNMET, Outcome.UNKNOWN, Outcome.MET)
    judged = []
    for requirement in requirements:
        outcomes = [judge(requirement, gpu) for gpu in gpus]
        judged.append((requirement, min(outcomes, key=lambda one: order.index(one.outcome))))
    return tuple(judged)


def _row(row: Sequence[Condition], provided: Provided) -> Outcome:
    """A row up to its first condition that fails."""
    unsure = False
    for condition in row:
        outcome = _holds(condition, provided)
        if outcome is Outcome.UNMET:
            return Outcome.UNMET
        if outcome is Outcome.INVALID:
            return Outcome.UNKNOWN if unsure else Outcome.INVALID
        unsure = unsure or outcome is Outcome.UNKNOWN
    return Outcome.UNKNOWN if unsure else Outcome.MET


def _holds(condition: Condition, provided: Provided) -> Outcome:
    if not _readable(condition, provided):
        return Outcome.INVALID
    have = provided.of(condition.name)
    if have is None:
        return Outcome.UNKNOWN
    if condition.name == "brand":
        same = have.lower() == condition.value.lower()
        met = same if condition.operator == "=" else not same
    else:
        compared = compare_versions(have, condition.operator, condition.value)
        if compared is None:
            return Outcome.INVALID
        met = compared
    return Outcome.MET if met else Outcome.UNMET


def _readable(condition: Condition, provided: Provided) -> bool:
    if not condition.name:
        return False
    if condition.name == "brand":
        return condition.operator in ("=", "!=")
    have = provided.of(condition.name)
    return compare_versions(have or "1", condition.operator, condition.value) is not None


def _deciding(requirement: Requirement, provided: Provided) -> Condition:
    """The condition of the first alternative that does not hold."""
    first = requirement.alternatives[0]
    return next(one for one in first if _holds(one, provided) is Outcome.UNMET)


def compare_versions(have: str, operator: str, wanted: str) -> bool | None:
    """Number by number; what is left over counts where it is more than zeros. None for what is no version (dsl_compare_version)."""
    if not _VERSION.fullmatch(have) or not _VERSION.fullmatch(wanted):
        return None
    left, right = have, wanted
    while left and right:
        one, two = re.match(r"\d+", left), re.match(r"\d+", right)
        if one is None or two is None:
            return None
        if int(one[0]) != int(two[0]):
            return _ordered(int(one[0]) - int(two[0]), operator)
        left, right = left[one.end() :].lstrip("."), right[two.end() :].lstrip(".")
    return _ordered(bool(left.lstrip(".0")) - bool(right.lstrip(".0")), operator)


def _ordered(difference: int, operator: str) -> bool:
    match operator:
        case "=":
            return difference == 0
        case "!=":
            return difference != 0
        case "<":
            return difference < 0
        case "<=":
            return difference <= 0
        case ">":
            return difference > 0
        case _:
            return difference >= 0
