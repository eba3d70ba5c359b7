"""What images demand of the driver: NVIDIA_REQUIRE_*, read and judged as libnvidia-container does before it lets a container start.

Blank means or, comma and; all variables must be met. Sources: NVIDIA/libnvidia-container @5823754b8577 src/cli/dsl.c (grammar, comparison)
and src/cli/configure.c (rules, once for each visible GPU and for the parent of each MIG device), src/driver.c (versions and brands as NVML
tells them); NVIDIA/nvidia-container-toolkit v1.20.0
internal/config/image/cuda_image.go (which variables, NVIDIA_DISABLE_REQUIRE, images without a requirement). Read 2026-11-30. Where CDI
injects GPUs nobody looks at requirements; on Tegra another program does, with rules of its own.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from gpudoctor.patterns import pattern

REQUIRE, REQUIRE_CUDA, JETPACK = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_JETPACK"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION = "CUDA_VERSION"

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
"""What Go's strconv.ParseBool takes for true; whatever else stands there lifts nothing."""
_CONDITION = pattern(r"([^<>=!]+)([<>=!]+)([^<>=!].*)", re.DOTALL)
_MOST_KEPT = 128
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "!")
_VERSION = pattern(r"[0-9.]*")
_NUMBER = pattern(r"(?=[0-9])0*([0-9]{0,20})(?![0-9])")
_TOO_LARGE = (1 << 64) - 1
"""What strtoumax gives for all that it cannot hold: that is no version."""
_SEMANTIC = pattern(r"v?([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:\.[0-9]{1,6})?(?:[-+][0-9A-Za-z.+-]*)?")

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
"""NVML's brands by the words of an answer, as images spell them; all others are spelt alike."""
UNKNOWN_BRAND = "unknown"
"""What libnvidia-container calls all but NAMED_BRANDS in what could be read (driver_get_device_brand_1_svc at 06deb20d1ca4)."""
NAMED_BRANDS = ("quadro", "tesla", "nvs", "grid", "geforce", "titan")


def brand_of(told: str | None) -> str | None:
    """NVML's word for a brand as images spell it."""
    return BRANDS.get(told, told) if told is not None else None


class Outcome(str, Enum):
    """What becomes of a requirement; unknown where it hangs on something that was not told."""

    MET = "met"
    UNMET = "unmet"
    INVALID = "invalid"
    UNKNOWN = "unknown"


NAMES = ("cuda", "driver", "arch", "brand")
_OF_A_GPU = ("arch", "brand")


class Provided(Struct, frozen=True):
    """What there is for one GPU; None where it is not known. `cuda` is the driver's version, whatever toolkit is in the image.

    Where no GPU is visible, whatever is demanded of one counts as met (check_device_arch and check_device_brand without a device).
    """

    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None
    no_gpu: bool = False

    def of(self, name: str) -> str | None:
        """One of the four things that can be demanded."""
        return {"cuda": self.cuda, "driver": self.driver, "arch": self.arch, "brand": self.brand}[name]


class Condition(Struct, frozen=True):
    """One comparison as it stands there; `name` is "" where it is none."""

    text: str
    name: str = ""
    operator: str = ""
    value: str = ""


class Expression(Struct, frozen=True):
    """What one variable holds: alternatives, each a row of conditions that must all be met."""

    text: str
    alternatives: tuple[tuple[Condition, ...], ...]


class Requirement(Struct, frozen=True):
    """A variable with what it holds. `derived` is one that the image does not state itself."""

    variable: str
    expression: Expression
    derived: bool = False

    @property
    def text(self) -> str:
        """As it stands there."""
        return self.expression.text


class Judged(Struct, frozen=True):
    """The outcome and its reason: the condition that decides, or the names that it hangs on and nobody told.

    Of several alternatives that are not met it is the first one's, which is the one that the error message quotes.
    """

    outcome: Outcome
    condition: Condition | None = None
    untold: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether a container may start; None where that is not known."""
        return None if self.outcome is Outcome.UNKNOWN else self.outcome is Outcome.MET


def is_true(value: str | None) -> bool:
    """Whether a value switches something on, as Go reads it."""
    return value in _TRUE


def parse(text: str) -> Expression:
    """Never fails: what cannot be read is found when it is looked at, and not where an earlier alternative is met."""
    alternatives = tuple(
        tuple(_condition(part) for part in term.split(",") if part) for term in text.split(" ") if term
    )
    return Expression(text, alternatives)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None or found[1].lower() not in NAMES or found[2] not in _OPERATORS:
        return Condition(text)
    return Condition(text, found[1].lower(), "!=" if found[2] == "!" else found[2], found[3])


def requirements_of(variables: Mapping[str, str]) -> tuple[Requirement, ...]:
    """All that an environment states, and what the toolkit makes of one that names a CUDA version and states none."""
    stated = [
        Requirement(name, parse(value))
        for name, value in variables.items()
        if name.startswith(REQUIRE) and not name.startswith(JETPACK)
    ]
    if is_legacy(variables):
        version = variables[CUDA_VERSION]
        found = _SEMANTIC.fullmatch(version)
        text = f"cuda>={int(found[1])}.{int(found[2] or 0)}" if found is not None else f"{CUDA_VERSION}={version}"
        stated.append(Requirement(CUDA_VERSION, parse(text), derived=True))
    return tuple(stated)


def is_legacy(variables: Mapping[str, str]) -> bool:
    """Whether the toolkit takes an image for one of the time before requirements (cuda_image.go, IsLegacy)."""
    return bool(variables.get(CUDA_VERSION)) and not variables.get(REQUIRE_CUDA)


class _Possible:
    """What can still come out while conditions are gone through in order: one outcome, or several where something is not known."""

    def __init__(self) -> None:
        self.outcomes: set[Outcome] = set()
        self.untold: list[str] = []
        self.unreadable: Condition | None = None

    def add(self, outcome: Outcome, condition: Condition | None = None) -> None:
        """One way in which it may end."""
        self.outcomes.add(outcome)
        if outcome is Outcome.INVALID and self.unreadable is None:
            self.unreadable = condition


def evaluate(expression: Expression, provided: Provided) -> Judged:
    """The alternatives in order, up to the first that is met or cannot be read (dsl_evaluate)."""
    possible, failed = _Possible(), False
    for row in expression.alternatives:
        if not row:
            # A term of nothing but commas ends the search with what came out before it.
            break
        failed = _may_fail(row, provided, possible)
        if not failed:
            break
    if failed or not possible.outcomes:
        possible.add(Outcome.UNMET if failed else Outcome.MET)
    if len(possible.outcomes) > 1:
        return Judged(Outcome.UNKNOWN, untold=tuple(dict.fromkeys(possible.untold)))
    (outcome,) = possible.outcomes
    if outcome is Outcome.INVALID:
        return Judged(outcome, possible.unreadable)
    return Judged(outcome, _deciding(expression, provided) if outcome is Outcome.UNMET else None)


def _may_fail(row: Sequence[Condition], provided: Provided, possible: _Possible) -> bool:
    """One row up to its first condition that fails; whether the next alternative may be looked at."""
    fails = False
    for condition in row:
        outcome = _holds(condition, provided)
        if outcome is Outcome.INVALID:
            possible.add(outcome, condition)
            return fails
        if outcome is Outcome.UNMET:
            return True
        if outcome is Outcome.UNKNOWN:
            possible.untold.append(condition.name)
            fails = True
    possible.add(Outcome.MET)
    return fails


def judge_all(requirements: Sequence[Requirement], gpus: Sequence[Provided]) -> tuple[tuple[Requirement, Judged], ...]:
    """Each requirement with its worst outcome over the visible GPUs."""
    order = (Outcome.INVALID, Outcome.UNMET, Outcome.UNKNOWN, Outcome.MET)
    judged = []
    for requirement in requirements:
        outcomes = [evaluate(requirement.expression, gpu) for gpu in gpus]
        judged.append((requirement, min(outcomes, key=lambda one: order.index(one.outcome))))
    return tuple(judged)


def _holds(condition: Condition, provided: Provided) -> Outcome:
    """One condition by itself. Where no GPU is visible, whatever is said of one is met, well written or not."""
    if not condition.name:
        return Outcome.INVALID
    if provided.no_gpu and condition.name in _OF_A_GPU:
        return Outcome.MET
    have = provided.of(condition.name)
    met: bool | None
    if condition.name == "brand":
        same = have is not None and have.lower() == condition.value.lower()
        met = {"=": same, "!=": not same}.get(condition.operator)
    else:
        met = compare_versions("1" if have is None else have, condition.operator, condition.value)
    if met is None:
        return Outcome.INVALID
    if have is None:
        return Outcome.UNKNOWN
    if met:
        return Outcome.MET
    return Outcome.INVALID if _overlong(condition) else Outcome.UNMET


def _overlong(condition: Condition) -> bool:
    """One that does not hold is kept for the message, and is an error where it does not fit there (evaluate_rule, EXPR_MAX)."""
    kept = f"{condition.name} {condition.operator} {condition.value}"
    return len(kept.encode("utf-8", "surrogateescape")) >= _MOST_KEPT


def _deciding(expression: Expression, provided: Provided) -> Condition:
    """The condition of the first alternative that does not hold."""
    return next(one for one in expression.alternatives[0] if _holds(one, provided) is Outcome.UNMET)


def compare_versions(have: str, operator: str, wanted: str) -> bool | None:
    """Number by number; what is left over counts where it is more than zeros. None for what is no version (dsl_compare_version)."""
    if not _VERSION.fullmatch(have) or not _VERSION.fullmatch(wanted):
        return None
    left, right = have, wanted
    while left and right:
        one, two = _NUMBER.match(left), _NUMBER.match(right)
        if one is None or two is None:
            return None
        here, there = int(one[1] or 0), int(two[1] or 0)
        if max(here, there) >= _TOO_LARGE:
            return None
        if here != there:
            return _ordered(here - there, operator)
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
