"""One value that nvidia-smi printed, as NVML's answer has it: in the unit of its field, a truth, a word, or the error it stands for."""

from typing import TypeAlias

from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_texts import ERROR_TEXTS, NO, WORDS, YES
from gpudoctor.knowledge.nvml_errors import SUCCESS
from gpudoctor.knowledge.nvml_fields import FIELDS, Kind
from gpudoctor.patterns import pattern

Value: TypeAlias = bool | int | str | dict[str, int]

MOST_TEXT = 256
"""No value that means anything is longer; names of processes are cut here."""

_NUMBER = pattern(r"([+-]?\d{1,20}(?:\.\d{1,9})?) ?(\S{0,9})")
_HEX = pattern(r"(?:0x)?([0-9A-Fa-f]{1,16})")
_BUS_ID = pattern(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_CUDA = pattern(r"(\d{1,4})\.(\d{1,4})")
_NO_WORD = pattern(r"[^a-z0-9]+")

_UNITS: dict[str, dict[str, int]] = {
    # nvidia-smi counts in MiB; drivers before 331 write MB for them.
    "bytes": {"MiB": 1 << 20, "MB": 1 << 20, "KiB": 1 << 10, "GiB": 1 << 30, "B": 1},
    "milliwatts": {"W": 1000, "mW": 1},
    "mhz": {"MHz": 1},
    "celsius": {"C": 1},
    "percent": {"%": 1},
    "nanoseconds": {"us": 1000, "ns": 1, "ms": 1_000_000},
    "": {"": 1, "bank(s)": 1, "x": 1},
}
"""By the end of a field's name, what a number is multiplied by for each unit. The first unit is what `nounits` leaves out."""

_HEXADECIMAL = ("pci.device_id", "pci.subsystem_id", "board_id", "clocks_event.active", "clocks_event.supported")


def value_of(field: str, text: str, *, without_unit: bool = False) -> Value | None:
    """The value of a field; None for a text that says nothing of it. `without_unit` allows numbers without theirs."""
    said = " ".join(text[:MOST_TEXT].split()).removeprefix("[").removesuffix("]")
    known = WORDS.get(field, {}).get(said.lower())
    if known is not None:
        return known
    if field == "fabric.status":
        return _status(said)
    code = error_code(said)
    if code is not None:
        return {"error": code}
    match FIELDS[field].kind:
        case Kind.FLAG:
            return _flag(said)
        case Kind.WORD:
            return _NO_WORD.sub("_", said.lower()).strip("_") or None
        case Kind.TEXT:
            return said or None
        case Kind.NUMBER:
            return _number(field, said, without_unit=without_unit)


def error_code(text: str) -> int | None:
    """The `nvmlReturn_t` that a text stands for; None when it is no error's."""
    return ERROR_TEXTS.get(text.strip().removeprefix("[").removesuffix("]").lower())


def error_within(text: str, otherwise: int) -> int:
    """The error that a sentence names: `GPU is lost.  Reboot the system to recover this GPU`."""
    small = text.lower()
    return next((code for words, code in ERROR_TEXTS.items() if words in small and words != "n/a"), otherwise)


def is_bus_id(text: str) -> bool:
    """Whether it is an address as NVML prints one."""
    return _BUS_ID.fullmatch(text) is not None


def cuda_version(text: str) -> int | None:
    """NVML's number for `12.4`, also before a remark in brackets."""
    found = _CUDA.fullmatch(text.partition(" [")[0].strip())
    return int(found[1]) * 1000 + int(found[2]) * 10 if found else None


def version(text: str) -> str | None:
    """A version, also before a remark in brackets; None for a text that only says where to look."""
    plain = text.partition(" [")[0].strip()
    return plain if plain and " " not in plain and error_code(plain) is None else None


def mebibytes(text: str) -> int | None:
    """The bytes of `803MiB` or `803 MiB`, None for anything else."""
    value = value_of("memory.used_bytes", text)
    return value if isinstance(value, int) else None


def _flag(text: str) -> bool | None:
    """`Licensed (Expiry: …)` and `Unlicensed (Restricted)` tell more than the truth."""
    word = text.partition(" (")[0].lower()
    return True if word in YES else False if word in NO else None


def _status(text: str) -> Value | None:
    """The fabric's status is itself an `nvmlReturn_t`, printed as its text."""
    small = text.lower()
    if small == "n/a":
        return {"error": ERROR_TEXTS[small]}
    return SUCCESS if small == "success" else ERROR_TEXTS.get(small)


def _number(field: str, text: str, *, without_unit: bool) -> int | None:
    if field in _HEXADECIMAL:
        digits = _HEX.fullmatch(text)
        return int(digits[1], 16) if digits else None
    if field == "performance_state":
        return decimal(text.removeprefix("P"))
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    end = field.rpartition("_")[2]
    units = _UNITS.get(end, _UNITS[""])
    unit = found[2] or (next(iter(units)) if without_unit else "")
    factor = units.get(unit)
    if factor is None:
        return None
    return int(found[1]) * factor if "." not in found[1] else round(float(found[1]) * factor)
