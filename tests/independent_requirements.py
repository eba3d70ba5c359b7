"""What libnvidia-container answers to an NVIDIA_REQUIRE_* string, written again from its C source to check gpudoctor's reading.

Nothing of gpudoctor is used here. The source is NVIDIA/libnvidia-container, src/cli/dsl.c at commit
5823754b8577d16fabf25a6ef6a1d58f7ff1e5dd (`dsl_evaluate`, `evaluate_rule`, `dsl_compare_version`, `dsl_compare_string`),
and the four rules of src/cli/configure.c at commit e27a4a75805021ffdfa9b56403921f50eb3b83d2. The stored versions of
dsl.c differ in the wording of a message only.
"""

import operator
import re
from collections.abc import Callable

RULES: tuple[str, ...] = ("cuda", "driver", "arch", "brand")

OPERATORS: dict[bytes, Callable[[int, int], bool]] = {
    b"=": operator.eq,
    b"!=": operator.ne,
    b"!": operator.ne,  # the run of operator characters need only be the beginning of an operator
    b"<": operator.lt,
    b"<=": operator.le,
    b">": operator.gt,
    b">=": operator.ge,
}

EXPR_MAX = 128
"""A condition that does not hold is kept for the message; one that does not fit there, with its final zero, is an error."""

UINTMAX_MAX = 2**64 - 1
"""What strtoumax gives for a number too large; the comparison takes it for an error, also when it was written so."""

BRANDS = ("Quadro", "Tesla", "NVS", "GRID", "GeForce", "TITAN", "Unknown")
"""The only names that a device can have: src/driver.c, `driver_get_device_brand_1_svc`, at commit
06deb20d1ca438aa6c6c3ac9ba94d5b9885f1fb8. NVML's newer brands ("NVIDIA", "NVIDIA RTX", "Quadro RTX", vGPU's ...) are all
"Unknown" there, whatever names the images' strings list."""


def requirement_holds(text: str, cuda: str, driver: str, arch: str, brand: str) -> bool | None:
    """Whether a host satisfies one string; None is the error "invalid expression", which refuses the container as well.

    Alternatives stand between blanks, the conditions of one between commas; empty ones are skipped. Two things follow
    from the loop of `dsl_evaluate`, which keeps one result for all: what comes after an alternative that holds is not
    even parsed, and an alternative of commas alone ends the search with the result of the one before it.
    """
    host = dict(zip(RULES, (value.encode() for value in (cuda, driver, arch, brand)), strict=True))
    holds = True
    for alternative in text.encode().split(b" "):
        if not alternative:
            continue
        for condition in alternative.split(b","):
            if not condition:
                continue
            answer = _condition_holds(condition, host)
            if answer is None:
                return None
            holds = answer
            if not holds:
                break
        else:  # all its conditions were gone through
            break
    return holds


def _condition_holds(condition: bytes, host: dict[str, bytes]) -> bool | None:
    """`evaluate_rule`: a name, a run of operator characters, and all the rest as the value."""
    parts = re.fullmatch(rb"([^<>=!]+)([<>=!]+)([^<>=!].*)", condition, re.DOTALL)
    if parts is None:
        return None
    name, sign, wanted = parts.groups()
    rule = name.lower().decode(errors="replace")
    if sign not in OPERATORS or rule not in host:
        return None
    compare = _compare_strings if rule == "brand" else _compare_versions
    holds = compare(host[rule], sign, wanted)
    written = sign if sign != b"!" else b"!="
    if holds is False and len(b" ".join((name, written, wanted))) >= EXPR_MAX:
        return None
    return holds


def _compare_strings(own: bytes, sign: bytes, wanted: bytes) -> bool | None:
    """`dsl_compare_string`: equal or not, in any case of letters."""
    if OPERATORS[sign] not in (operator.eq, operator.ne):
        return None
    equal = own.lower() == wanted.lower()
    return equal if sign == b"=" else not equal


def _compare_versions(own: bytes, sign: bytes, wanted: bytes) -> bool | None:
    """`dsl_compare_version`: number by number; where one ends, whatever is left of the other counts unless it is zeros and dots.

    Between two numbers any count of dots may stand, but none before the first.
    """
    if own.strip(b"0123456789.") or wanted.strip(b"0123456789."):
        return None
    compare = OPERATORS[sign]
    while own and wanted:
        first, second = re.match(rb"[0-9]+", own), re.match(rb"[0-9]+", wanted)
        if first is None or second is None:
            return None
        one, other = _strtoumax(first[0]), _strtoumax(second[0])
        if UINTMAX_MAX in (one, other):
            return None
        if one != other:
            return compare(one, other)
        own, wanted = own[first.end() :].lstrip(b"."), wanted[second.end() :].lstrip(b".")
    return compare(len(own.lstrip(b".0")) > 0, len(wanted.lstrip(b".0")) > 0)


def _strtoumax(digits: bytes) -> int:
    significant = digits.lstrip(b"0") or b"0"
    return min(int(significant[:21]), UINTMAX_MAX)
