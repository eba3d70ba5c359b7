"""Turns what the NVML binding returns into the values of an answer; part of the NVML worker: standard library only.

A reader raises TypeError, ValueError or the like for what it cannot read; who called it says so.
"""

import struct
from collections.abc import Callable
from typing import Any

from gpudoctor.knowledge.nvml_words import WORDS
from gpudoctor.probes.nvml_session import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Refused, text

NOT_THERE = {"error": NOT_SUPPORTED}
"""A struct was filled, but says of this member that it is not supported; nvidia-smi prints N/A."""

TOO_NEW = {"error": FUNCTION_NOT_FOUND}
"""Only a newer version of the call gives this value."""

UNKNOWN_64 = 0xFFFFFFFFFFFFFFFF
UNKNOWN_32 = 0xFFFFFFFF
PSTATE_UNKNOWN = 32

_FORMATS = {0: "@d", 1: "@I", 2: "@L", 3: "@Q", 4: "@q", 5: "@i", 6: "@H"}
"""nvmlValueType_t (nvml.h) as formats of `struct`."""


def number(value: Any) -> Any:
    """A whole number; NVML_VALUE_NOT_AVAILABLE (nvml.h) is none."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is no number")
    return NOT_THERE if value == UNKNOWN_64 else int(value)


def whole(value: Any) -> int | None:
    """A whole number for an entry of a list, where what is not known is left out."""
    found = number(value)
    return found if isinstance(found, int) else None


def flag(value: Any) -> Any:
    """A truth."""
    return bool(number(value))


def word(field: str) -> Callable[[Any], Any]:
    """A reader of the words of an enumeration; a number without one is written as `unknown_17`, all ones are no answer."""
    words = WORDS[field]

    def read(value: Any) -> Any:
        found = number(value)
        return NOT_THERE if found in (NOT_THERE, UNKNOWN_32) else words.get(found, f"unknown_{found}")

    return read


def each(*reads: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """A reader of several values, one after another."""

    def read(values: Any) -> list[Any]:
        return [reader(value) for reader, value in zip(reads, list(values)[: len(reads)], strict=True)]

    return read


def members(*names: str, read: Callable[[Any], Any] = number) -> Callable[[Any], list[Any]]:
    """A reader of a struct's members."""
    return lambda filled: [read(getattr(filled, name)) for name in names]


def member_bytes(filled: Any, name: str) -> bytes:
    """A member's bytes: the binding would decode them, and has single bytes that are numbers as characters."""
    place = getattr(type(filled), name)
    return bytes(filled)[place.offset : place.offset + place.size]


def member_text(filled: Any, name: str) -> str:
    """A member that is a string of C."""
    return str(text(member_bytes(filled, name).split(b"\0", 1)[0]))


def version_number(values: Any) -> str:
    """`9.0` for a compute capability."""
    major, minor = (number(value) for value in values)
    return f"{major}.{minor}"


def performance_state(value: Any) -> Any:
    """0 is the fastest; NVML_PSTATE_UNKNOWN is none."""
    return NOT_THERE if number(value) == PSTATE_UNKNOWN else number(value)


def numa_node(value: Any) -> Any:
    """-1, written unsigned by some bindings, is no node."""
    return NOT_THERE if number(value) in (-1, UNKNOWN_32) else number(value)


def bit_list(words: Any) -> str:
    """The bits that are set, as the kernel writes lists of CPUs: `0-31,64`. Each word holds 64."""
    spans: list[list[int]] = []
    for bit in (64 * at + bit for at, bits in enumerate(words) if bits for bit in range(64) if bits >> bit & 1):
        if spans and bit == spans[-1][1] + 1:
            spans[-1][1] = bit
        else:
            spans.append([bit, bit])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def licence(features: Any) -> list[Any]:
    """Name and state of the vGPU software product in force; a bare GPU lists some, none of them enabled."""
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    enabled = [feature for feature in listed if feature.featureEnabled]
    if not features.isGridLicenseSupported or not enabled:
        return [NOT_THERE, NOT_THERE]
    return [member_text(enabled[0], "productName"), flag(enabled[0].featureState)]


def fabric(info: Any) -> list[Any]:
    """The fabric's fields, of any version of the struct; a status counts only when the probe is complete (nvml.h)."""
    state = number(info.state)
    if state == 0:
        return [word("fabric.state")(state), *[NOT_THERE] * 10]
    return [
        word("fabric.state")(state),
        number(info.status) if state == 3 else NOT_THERE,
        number(info.cliqueId),
        _uuid(bytes(info.clusterUuid)),
        *_fabric_health(info),
    ]


def _fabric_health(info: Any) -> list[Any]:
    if not hasattr(info, "healthMask"):
        return [TOO_NEW] * 7
    mask = number(info.healthMask)

    def part(shift: int, width: int = 0x3) -> int:
        return int(mask >> shift & width)

    # NVML_GPU_FABRIC_HEALTH_MASK_*: 0 is not supported, 1 true, 2 false.
    flags = [NOT_THERE if part(shift) == 0 else part(shift) == 1 for shift in (2, 4, 6)]
    assigned = NOT_THERE if part(12) == 0 else part(12) == 1
    summary = _supported("fabric.health_summary", number(info.healthSummary)) if _has_summary(info) else TOO_NEW
    bandwidth = _supported("fabric.bandwidth", part(0))
    return [summary, bandwidth, *flags, _supported("fabric.incorrect_configuration", part(8, 0xF)), assigned]


def _has_summary(info: Any) -> bool:
    return hasattr(info, "healthSummary")


def _supported(field: str, value: int) -> Any:
    return NOT_THERE if value == 0 else word(field)(value)


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def platform(info: Any) -> list[Any]:
    """The platform's fields; version 1 of the struct has the same bytes under other names (nvml.h, nvmlPlatformInfo_v2_t)."""
    names = ("chassisSerialNumber", "slotNumber", "trayIndex", "hostId", "peerType", "moduleId")
    if not hasattr(type(info), names[0]):
        names = ("rackGuid", "chassisPhysicalSlotNumber", "computeSlotIndex", "nodeIndex", "peerType", "moduleId")
    slot, tray, host, peer, module = (member_bytes(info, name)[0] for name in names[1:])
    return [member_text(info, names[0]), slot, tray, host, word("platform.peer_type")(peer), module]


def field_value(entry: Any) -> Any:
    """The value of one nvmlFieldValue_t, None where the library left the entry untouched. Raises Refused.

    An entry that nobody filled is all zeros, which would read as a success.
    """
    if entry.nvmlReturn != 0:
        raise Refused(entry.nvmlReturn)
    raw = bytes(entry.value)
    if entry.valueType == 0 and entry.timestamp == 0 and not any(raw):
        return None
    return struct.unpack_from(_FORMATS[entry.valueType], raw)[0]
