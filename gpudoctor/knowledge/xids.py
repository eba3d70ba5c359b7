"""What an Xid of NVIDIA's driver means: its area, who is to blame, what NVIDIA asks for, and where other tools see it otherwise.

The rows are generated (xid_codes.py); areas and blame are set here, code by code, from the catalogue's actions ("Resolution Buckets") and
trigger conditions and from the causes of the older listing. Loaded only where there is an Xid to explain.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from gpudoctor.knowledge import xid_codes
from gpudoctor.knowledge.xid_elsewhere import elsewhere
from gpudoctor.knowledge.xid_notes import NOTES
from gpudoctor.knowledge.xid_words import BUCKETS, MEANS, OURS, family

AS_OF, SOURCE = xid_codes.AS_OF, xid_codes.SOURCE
__all__ = ["BUCKETS", "Area", "Xid", "known", "xid"]


class Area(str, Enum):
    """Which part of a node an Xid speaks of, and thus which check tells of it."""

    MEMORY = "memory"
    BUS = "bus"
    DRIVER = "driver"
    NVLINK = "nvlink"
    APPLICATION = "application"
    NOTICE = "notice"


class Xid(Struct, frozen=True):
    """An Xid. `means` is a clause without a full stop; `blame` has the likeliest first; `immediate` and `investigate` are keys of BUCKETS.

    `follows`: it is the aftermath of another Xid, which is the cause. `ours`: why `immediate` is not the catalogue's own word.
    `note` is what else the catalogue tells. `since` is the first driver branch known to have it, `announced` the first that follows it
    up by Xid 154.
    """

    code: int
    mnemonic: str
    means: str
    area: Area
    blame: tuple[str, ...]
    immediate: str
    investigate: str
    follows: bool
    elsewhere: str
    source: str
    title: str = ""
    legacy_title: str = ""
    applies: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    since: int | None = None
    announced: int | None = None
    other_names: tuple[str, ...] = ()
    ours: str = ""
    note: str = ""


# Memory: ECC errors, row remapping, page and channel retirement, containment, and the memory's own interface.
# Bus: the way to the board: PCIe (32: "These failures primarily involve quality issues on PCI", catalogue), power plugs, C2C to a Grace.
# NVLink: all of its units, and confidential computing on it.
# Application: NVIDIA first asks to restart the program or to look at it: RESTART_APP, CHECK_APP, XID_137_FLOW, and its aftermath.
# Notice: IGNORE, and nothing of the above.
# Driver: all else: the GPU's engines, firmware and driver as such, resets, displays, virtual GPUs.
_AREAS = {
    Area.MEMORY: "48 57 58 63 64 92 94 95 140 160 161 168 171 172 175",
    Area.BUS: "18 32 54 79 80 159 167 173 176",
    Area.NVLINK: "74 136 144-150 155 166 170",
    Area.APPLICATION: "8 11 13 25 31 39-41 43 45 60 68-72 75-77 82-86 88 89 96-105 108 126-135 137 139 174",
    Area.NOTICE: "14 37 38 44 66 67 93 106 107 121 141 152 153 162",
    Area.DRIVER: "1-7 9 10 12 15-17 19-24 26-30 33-36 42 46 47 49-53 55 56 59 61 62 65 73 78 81 87 90 91 109-120 122-125 138 142 143 "
    "151 154 156-158 163-165 169",
}
# 43: a channel that is reset after a fault of its program; 45: "Preemptive cleanup, due to previous errors"; 154: "Informational only
# regarding another Xid"; 174: the silent kind of 43.
_FOLLOWS = frozenset((43, 45, 154, 174))
# Causes of the older listing in four words. Where it has none, or the catalogue's text weighs them otherwise, the codes below.
_CAUSES = {
    "hardware": "hardware",
    "framebuffer_corruption": "hardware",
    "driver": "driver",
    "user_app": "application",
    "system_memory_corruption": "system",
    "bus": "system",
    "thermal": "system",
}
_LIKELIEST = {
    Area.MEMORY: ("hardware", "driver", "system", "application"),
    Area.BUS: ("hardware", "system", "driver", "application"),
    Area.NVLINK: ("hardware", "system", "driver", "application"),
    Area.APPLICATION: ("application", "driver", "hardware", "system"),
    Area.NOTICE: ("driver", "hardware", "application", "system"),
    Area.DRIVER: ("driver", "hardware", "system", "application"),
}
_BLAME = {
    **dict.fromkeys((32, 176), "system hardware"),
    **dict.fromkeys((39, 40, 41, *range(126, 136), 139, 142), "driver hardware"),
    **dict.fromkeys((48, 156, 157, 160, 161, 164, 165, 167, 168, 171, 172, 173, 175), "hardware"),
    **dict.fromkeys((136, *range(144, 151)), "hardware driver"),
    **dict.fromkeys((122, 123, 124, 125, 143, 158, 169), "hardware driver"),
    **dict.fromkeys((14, 108, 137, 174), "application"),
    13: "application hardware driver",
    31: "application driver hardware",
    54: "system hardware",
    110: "hardware",
    **dict.fromkeys((121, 162), "hardware"),
    **dict.fromkeys((166, 170), "driver hardware"),
    155: "driver system",
    159: "hardware driver",
    163: "system hardware",
}


def xid(code: int) -> Xid:
    """What there is to say of an Xid, also of one that NVIDIA's catalogue does not have."""
    return _table().get(code) or Xid(
        code,
        mnemonic="",
        means=f"not in {SOURCE}",
        area=Area.DRIVER,
        blame=("driver",),
        immediate="CONTACT_SUPPORT",
        investigate="",
        follows=False,
        elsewhere="",
        source=SOURCE,
        ours="the catalogue does not have it",
    )


def known() -> tuple[int, ...]:
    """Every number there is a row for."""
    return tuple(_table())


@lru_cache(maxsize=1)
def _table() -> dict[int, Xid]:
    areas = {code: area for area, codes in _AREAS.items() for code in _numbers(codes)}
    rows = (line.split("|") for line in xid_codes.XIDS.strip().splitlines())
    return {row.code: row for row in (_xid(cells + [""] * (12 - len(cells)), areas) for cells in rows)}


def _numbers(codes: str) -> Iterator[int]:
    for word in codes.split():
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _xid(cells: list[str], areas: dict[int, Area]) -> Xid:
    number, mnemonic, title, immediate, investigate, applies, since, names, causes, announced, legacy, condensed = cells
    code = int(number)
    area = areas[code]
    action, why = OURS.get(code, ("", "")) if not immediate else ("", "")
    return Xid(
        code,
        mnemonic,
        means=MEANS.get(code) or family(mnemonic, title or legacy, unused=not applies) or condensed,
        area=area,
        blame=_blame(code, area, causes.split()),
        immediate=immediate or action,
        investigate=_BUCKET.get(investigate, investigate),
        follows=code in _FOLLOWS,
        elsewhere=elsewhere(code, immediate),
        source=SOURCE if immediate or applies else xid_codes.HEADERS,
        title=title,
        legacy_title=legacy,
        applies=tuple(applies.split()),
        causes=tuple(causes.split()),
        since=int(since) if since else None,
        announced=int(announced) if announced else None,
        other_names=tuple(names.split()),
        ours=why,
        note=NOTES.get(code, ""),
    )


# Cells of the catalogue that are sentences rather than the name of a bucket.
_BUCKET = {
    "Solo: RESTART_FM / Not Solo: IGNORE (follow other Xid)": "WORKFLOW_XID_45",
    "N/A Informational only regarding another Xid": "XID_154",
    "IGNORE (sympathetic)": "SYMPATHETIC_REPORT_SOLO",
}


def _blame(code: int, area: Area, causes: list[str]) -> tuple[str, ...]:
    if code in _BLAME:
        return tuple(_BLAME[code].split())
    told = {_CAUSES[cause] for cause in causes}
    return tuple(word for word in _LIKELIEST[area] if word in told) or (_LIKELIEST[area][0],)
