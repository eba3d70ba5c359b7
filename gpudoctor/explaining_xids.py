"""What `gpudoctor explain` says of Xids and SXids, by number or by name."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.explaining import MOST_DIGITS, WIDTH, Explanation
from gpudoctor.knowledge import sxid_codes, sxids, xid_codes, xids
from gpudoctor.knowledge.xid_elsewhere import TOOLS
from gpudoctor.knowledge.xid_remedies import remedies_for
from gpudoctor.knowledge.xid_words import BUCKETS

if TYPE_CHECKING:
    from gpudoctor.verdicts import Remedy

LABEL = 16
"""How wide the labels of a text's details are."""
MOST_NAMED = 4
"""As many codes of one name are told of."""
SHORTEST = 3
"""As many letters, at least, are looked for where words of longer names begin."""

CHECKS: Mapping[xids.Area, tuple[str, ...]] = {
    xids.Area.MEMORY: (
        "health.memory-xids",
        "health.ecc-uncorrected",
        "health.row-remap-pending",
        "health.row-remap-failed",
        "health.sram-threshold",
    ),
    xids.Area.BUS: ("driver-cuda.xids", "pcie.gpu-responds", "pcie.gpus-present", "driver-cuda.nvml-answers"),
    xids.Area.DRIVER: ("driver-cuda.xids", "driver-cuda.nvml-answers", "driver-cuda.recovery-action"),
    xids.Area.NVLINK: ("fabric.nvlink-xids", "fabric.nvlinks-up", "fabric.nvlink-errors"),
    xids.Area.APPLICATION: ("health.application-xids", "health.memory-xids"),
    xids.Area.NOTICE: (),
}
"""Which checks look into Xids of an area, or into what they speak of."""
SXID_CHECKS = ("fabric.switch-sxids", "fabric.manager-running", "fabric.nvlinks-up")
_AREAS = {
    xids.Area.MEMORY: "the GPU's memory",
    xids.Area.BUS: "the way to the board: PCIe, power, C2C",
    xids.Area.DRIVER: "the GPU, its firmware and driver",
    xids.Area.NVLINK: "NVLink",
    xids.Area.APPLICATION: "the application",
    xids.Area.NOTICE: "a notice",
}
_CAUSES = {
    "user_app": "application",
    "system_memory_corruption": "corrupted system memory",
    "framebuffer_corruption": "corrupted GPU memory",
    "thermal": "heat",
}
_CLASSES = {
    "non-fatal": "non-fatal: the driver goes on",
    "fatal": "fatal: the port, and who uses it, must be recovered; GPUs may log Xid 74 for it",
    "always-fatal": "always fatal: the whole fabric must be recovered",
    "notable": "notable: about the switch itself",
}


class Asked(Struct, frozen=True):
    """What is asked to be done: NVIDIA's word for it and what that means. `ours` says why it is not the catalogue's."""

    bucket: str
    say: str
    ours: str = ""


class XidExplanation(Explanation, frozen=True, kw_only=True):
    """An Xid: beside what every code has, who is to blame and what NVIDIA and others want done.

    `since` is the first driver branch known to have it (515: that one or an earlier one), `announced` the first that follows it up
    by an Xid 154 with the recovery action.
    """

    area: str
    blame: tuple[str, ...]
    immediate: Asked
    investigate: Asked | None
    title: str
    legacy_title: str
    causes: tuple[str, ...]
    applies: tuple[str, ...]
    note: str
    since: int | None
    announced: int | None
    elsewhere: str

    @property
    def details(self) -> tuple[str, ...]:
        """Who, what and since when, a line each."""
        area = xids.Area(self.area)
        said = (
            ("speaks of", _AREAS[area]),
            ("to blame", _likely(self.blame)),
            ("NVIDIA asks", _asked(self.immediate)),
            ("then", _asked(self.investigate) if self.investigate not in (None, self.immediate) else ""),
            ("note", self.note),
            ("listed causes", ", ".join(_CAUSES.get(cause, cause) for cause in self.causes)),
            ("once called", self.legacy_title if self.legacy_title != self.title else ""),
            ("seen on", f"{', '.join(self.applies)} and their kin" if self.applies else ""),
            ("known since", self._known_since),
            ("elsewhere", self.elsewhere),
        )
        return tuple(line for label, words in said if words for line in _labelled(label, words))

    @property
    def _known_since(self) -> str:
        if self.since is None:
            return ""
        earlier = " or earlier" if self.since == FIRST_READ else ""
        announced = f"; Xid 154 follows it since R{self.announced}" if self.announced is not None else ""
        return f"R{self.since}{earlier}{announced}"


class SXidExplanation(Explanation, frozen=True, kw_only=True):
    """An SXid of an NVSwitch: beside what every code has, how far it reaches and what is asked for."""

    severity_class: str
    immediate: Asked
    before: str

    @property
    def details(self) -> tuple[str, ...]:
        """How far it reaches and what it asks for, a line each."""
        unlisted = "not in the guide: the word in its line, Fatal or Non-fatal, decides"
        said = (
            ("severity", _CLASSES.get(self.severity_class, unlisted)),
            ("asks", _asked(self.immediate)),
            ("before R550", self.before),
        )
        return tuple(line for label, words in said if words for line in _labelled(label, words))


FIRST_READ = 515
"""The oldest branch whose headers were read."""


def explain_xid(code: str) -> Explanation | str:
    """The explanation of an Xid, by number, mnemonic or title; what there is instead, in words, when there is none."""
    rows = (xids.xid(number) for number in xids.known())
    names = {one.code: (one.mnemonic, one.title, *one.other_names) for one in rows}
    number = _find(code, names, f"{xids.SOURCE} has no Xid")
    if isinstance(number, str):
        return number
    one = xids.xid(number)
    return XidExplanation(
        id=f"xid:{number}",
        name=f"{one.mnemonic}: {one.title}" if one.title else one.mnemonic,
        meaning=_sentence(one.means),
        checks=CHECKS[one.area],
        remedies=_steps(one),
        source="; ".join(dict.fromkeys((one.source, xid_codes.HEADERS, *([TOOLS] if one.elsewhere else [])))),
        area=one.area.value,
        blame=one.blame,
        immediate=Asked(one.immediate, BUCKETS[one.immediate], one.ours),
        investigate=Asked(one.investigate, BUCKETS[one.investigate]) if one.investigate else None,
        title=one.title,
        legacy_title=one.legacy_title,
        causes=one.causes,
        applies=one.applies,
        note=one.note,
        since=one.since,
        announced=one.announced,
        elsewhere=one.elsewhere,
    )


def explain_sxid(code: str) -> Explanation | str:
    """The explanation of an SXid, by number or name; what there is instead, in words, when there is none."""
    rows = (sxids.sxid(number) for number in (*sxids.known(), *sxids.OLD))
    names: dict[int, tuple[str, ...]] = {one.code: (one.name,) for one in rows}
    number = _find(code, names, f"the driver ({sxids.SOURCE.partition(';')[0]}) has no SXid")
    if isinstance(number, str):
        return number
    one = sxids.sxid(number)
    return SXidExplanation(
        id=f"sxid:{number}",
        name=one.name,
        meaning=_sentence(one.means),
        checks=SXID_CHECKS,
        remedies=remedies_for(one.action, ""),
        source=sxid_codes.SOURCE,
        severity_class=one.severity_class,
        immediate=Asked(one.action, BUCKETS[one.action]),
        before=one.before,
    )


def _steps(one: xids.Xid) -> "tuple[Remedy, ...]":
    """What to do at once, and where that is nothing, how to look into it."""
    if one.immediate in ("IGNORE", "RESTART_APP") and one.investigate in _LOOKS:
        return remedies_for(one.investigate, "")
    return remedies_for(one.immediate, "")


# Investigations whose steps begin with what is to be done at once.
_LOOKS = frozenset(("WORKFLOW_XID_13", "WORKFLOW_XID_31", "XID_137_FLOW", "CHECK_APP/CUDA", "INVESTIGATE_SW"))


def _find(code: str, names: Mapping[int, tuple[str, ...]], none: str) -> int | str:
    """The number of a code given as such or by name; a sentence where there is none, or more than one."""
    if code.isascii() and code.isdecimal():
        number = int(code) if len(code.lstrip("0")) <= MOST_DIGITS else max(names)
        if number in names and len(code.lstrip("0")) <= MOST_DIGITS:
            return number
        return f"{none} {code!r}; the nearest are {_few(sorted(names, key=lambda one: (abs(one - number), one))[:3])}"
    wanted = _plain(code)
    called = {number: [_plain(name) for name in given if name] for number, given in names.items()}
    found = [number for number, given in called.items() if wanted in given]
    if not found and len(wanted) >= SHORTEST:
        found = [number for number, given in called.items() if any(f"_{wanted}" in f"_{name}" for name in given)]
    if len(found) == 1:
        return found[0]
    if found:
        return f"{code!r} names several: {', '.join(f'{one} ({names[one][0]})' for one in found[:MOST_NAMED])}{_more(found)}"
    return f"{none} {code!r}; give its number or its name; the nearest are {_few(_alike(wanted, called))}"


def _alike(wanted: str, called: Mapping[int, list[str]]) -> list[int]:
    import difflib

    by_name = {name: number for number, given in called.items() for name in given}
    close = difflib.get_close_matches(wanted, by_name, n=3, cutoff=0.3)
    return list(dict.fromkeys(by_name[name] for name in close)) or sorted(called)[:3]


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _more(found: list[int]) -> str:
    return f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""


def _plain(name: str) -> str:
    """A name as it is compared: small letters and numbers, without what all names begin with."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return plain.removeprefix("robust_channel_").removeprefix("nvswitch_err_hw_")


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _likely(blame: tuple[str, ...]) -> str:
    return blame[0] if len(blame) == 1 else f"{blame[0]}; less likely {', '.join(blame[1:])}"


def _asked(asked: Asked) -> str:
    return f"{asked.say} ({asked.bucket}{f'; {asked.ours}' if asked.ours else ''})"


def _labelled(label: str, words: str) -> list[str]:
    from textwrap import wrap

    return wrap(words, WIDTH, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL)
