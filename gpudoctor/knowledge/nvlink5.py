"""What the first two words of Xid 144 to 150 say (NVLink 5, Blackwell): intrInfo and errorStatus, in either layout of intrInfo.

The driver's branch tells the layout: "V1(<R575): IntrInfo[9:5], V2(>=R575): IntrInfo[6:0]" hold the unit (NVIDIA's Xid catalogue, sheet
Xid 144-150 Decode). Where the branch is not known, a word that both layouts read is only decoded if they agree on what to do.
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from gpudoctor.knowledge import nvlink5_rows

FIRST_V2 = 575
"""The first branch with the second layout."""
CODES = range(144, 151)


class Decoded(Struct, frozen=True):
    """The unit that reports and what NVIDIA asks for; actions are keys of xid_words.BUCKETS.

    `severity` is the catalogue's (Non-fatal, Fatal, Link Fatal) without its footnotes, `hw_sw` HW, SW, FW, a mix, or "".
    `layout` is 1 or 2, and 0 where the branch is not known and both layouts agree.
    """

    unit: str
    immediate: str
    investigate: str
    severity: str
    layout: int
    hw_sw: str


class Row(Struct, frozen=True):
    """One rule of the catalogue: patterns of 32 bits, the highest first; no `statuses` means any."""

    code: int
    units: tuple[str, str]
    patterns: tuple[str, str]
    statuses: tuple[int, ...]
    immediate: str
    investigate: str
    severity: str
    hw_sw: str
    promoted: tuple[str, str] = ("", "")
    immediate_promoted: str = ""


def decode(code: int, intr_info: int, error_status: int, branch: int | None) -> Decoded | None:
    """What the words mean to a driver of a branch; None where no rule fits, or where the layout matters and is not known."""
    if branch is not None:
        return _decode(code, intr_info, error_status, 1 if branch < FIRST_V2 else 2)
    found = [one for layout in (1, 2) if (one := _decode(code, intr_info, error_status, layout)) is not None]
    if len(found) == 2:
        first, second = found
        same = (first.immediate, first.investigate, first.severity) == (
            second.immediate,
            second.investigate,
            second.severity,
        )
        unit = first.unit if first.unit == second.unit else f"{first.unit} or {second.unit}"
        return Decoded(unit, first.immediate, first.investigate, first.severity, 0, first.hw_sw) if same else None
    return found[0] if found else None


def _decode(code: int, intr_info: int, error_status: int, layout: int) -> Decoded | None:
    bits = f"{intr_info & 0xFFFFFFFF:032b}"
    for row in rows():
        promoted = _fits(bits, row.promoted[layout - 1])
        if row.code != code or not (promoted or _fits(bits, row.patterns[layout - 1])):
            continue
        if row.statuses and error_status not in row.statuses:
            continue
        immediate = row.immediate_promoted if promoted else row.immediate
        return Decoded(row.units[layout - 1], immediate, row.investigate, row.severity, layout, row.hw_sw)
    return None


def _fits(bits: str, pattern: str) -> bool:
    return bool(pattern) and all(want in ("-", bit) for bit, want in zip(bits, pattern, strict=True))


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """The rules, in the order they are tried: one for a single status before one for several, which leaves the rest to it."""
    return tuple(sorted(_rows(), key=lambda row: len(row.statuses) > 1))


def _rows() -> Iterator[Row]:
    for line in nvlink5_rows.ROWS.strip().splitlines():
        code, unit, v1, v2, status, immediate, investigate, severity, hw_sw, *more = line.split("|")
        first, _, second = unit.partition("/")
        promoted_v1, promoted_v2, immediate_promoted = more or ("", "", "")
        yield Row(
            int(code),
            (first, second or first),
            (v1, v2),
            tuple(int(word, 16) for word in status.split("/") if word),
            immediate,
            _BUCKET.get(investigate, investigate),
            severity.rstrip("*?"),
            "" if hw_sw == "NA" else hw_sw,
            (promoted_v1, promoted_v2),
            immediate_promoted,
        )


# Two cells that are spelled otherwise than the action they mean.
_BUCKET = {"REPORT_ISSUE (if seen >1 per day)": "REPORT_ISSUE", "INVESTIGATE_SW/USER": "INVESTIGATE_SW_USER"}
