"""What an SXid of an NVSwitch means and how far it reaches.

Names are the driver's (sxid_codes.py, generated). Classes are those of the Fabric Manager User Guide's appendix; for codes that it does
not list, the log line's own word, Fatal or Non-fatal, decides. Before R550 the numbers from 28000 meant something else: multicast was
28000 and reduction 29000, until the temperatures of optical modules came in between (ctrl_dev_nvswitch.h of 535.54.03 and 550.54.14).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from gpudoctor.knowledge import sxid_codes

AS_OF, SOURCE = sxid_codes.AS_OF, sxid_codes.SOURCE
RENUMBERED = 550
"""The first branch with today's numbers from 28000 on."""
OLD = (28006,)
"""Numbers that only drivers before that one use."""


class SXid(Struct, frozen=True):
    """An SXid. `means` is a clause without a full stop; `action` a key of xid_words.BUCKETS; `name` "" where the driver has no such code.

    `severity_class`: non-fatal, fatal (the port, and who uses it), always-fatal (the whole fabric), notable (the switch's own state), or ""
    where the guide does not list the code.
    """

    code: int
    name: str
    severity_class: str
    means: str
    action: str
    source: str = SOURCE
    before: str = ""
    """What the number meant before R550, where that was something else."""


# Parts of a switch by how their codes' names begin; the longest that fits counts.
_UNITS = {
    "HOST": "switch",
    "NPORT_INGRESS": "port, ingress",
    "NPORT_EGRESS": "port, egress",
    "NPORT_FSTATE": "port, FSTATE",
    "NPORT_TSTATE": "port, TSTATE",
    "NPORT_ROUTE": "port, routing",
    "NPORT": "port",
    "NPORT_SOURCETRACK": "port, source tracking",
    "NPORT_MULTICASTTSTATE": "port, multicast",
    "NPORT_REDUCTIONTSTATE": "port, reduction",
    "NVLCTRL": "NVLink controller",
    "DLPL": "NVLink data link",
    "NVLTLC": "NVLink transaction layer",
    "AFS": "AFS",
    "MINION": "NVLink micro-controller",
    "NXBAR": "crossbar",
    "NVLIPT": "NVLink port",
    "NVLIPT_LNK": "NVLink port",
    "SOE": "switch's own micro-controller (SOE)",
    "CCI": "optical modules",
    "OSFP_THERM": "temperature of an optical module",
}
_SPELT = {"ERR": "error", "ECC": "ECC", "DBE": "double-bit", "CRC": "CRC", "RX": "RX", "TX": "TX"}
_ACTIONS = {"non-fatal": "IGNORE", "fatal": "PORT_RESET", "always-fatal": "RESET_FABRIC"}
_SHIFTED = range(29000, 31000)


def sxid(code: int, *, fatal: bool | None = None, branch: int | None = None) -> SXid:
    """What there is to say of an SXid; `fatal` is the word of its line, which counts where the guide is silent; `branch` the driver's."""
    current = _table().get(code)
    old = _table().get(code + 1000) if code + 1000 in _SHIFTED else None
    of_before = branch is not None and branch < RENUMBERED and code >= 28000
    if of_before or (current is None and old is not None):
        current, old = old, None
    name, kind, title = current or ("", "", "")
    return SXid(
        code,
        name=f"NVSWITCH_ERR_HW_{name}" if name else "",
        severity_class=kind,
        means=_words(name, title) if name else f"not in {SOURCE.partition(';')[0]}",
        action=_action(kind, fatal),
        before=_words(old[0], old[2]) if old is not None else "",
    )


def known() -> tuple[int, ...]:
    """Every number there is a row for."""
    return tuple(_table())


def _action(kind: str, fatal: bool | None) -> str:
    if kind == "notable":
        return "SWITCH_SUPPORT" if fatal else "IGNORE"
    if kind in _ACTIONS:
        return _ACTIONS[kind]
    return "SWITCH_SUPPORT" if fatal is None else "PORT_RESET" if fatal else "IGNORE"


@lru_cache(maxsize=1)
def _table() -> dict[int, tuple[str, str, str]]:
    rows = (line.split("|") for line in sxid_codes.SXIDS.strip().splitlines())
    return {int(code): (name, *_class_and_title(more)) for code, name, *more in rows}


def _class_and_title(cells: Sequence[str]) -> tuple[str, str]:
    kind, title = cells or ("", "")
    # "non_fatal_driver_only": of no consequence but for the driver.
    return ("non-fatal" if kind.startswith("non_fatal") else kind.replace("_", "-")), title


def _words(name: str, title: str) -> str:
    begins = [begin for begin in _UNITS if name == begin or name.startswith(f"{begin}_")]
    unit = max(begins, key=len, default="")
    rest = " ".join(_SPELT.get(word, word.lower()) for word in name[len(unit) :].split("_") if word)
    title = re.sub(r"^host ", "", title.replace("_", " "), flags=re.IGNORECASE)
    detail = f"{title[0].lower()}{title[1:]}" if title[1:2].islower() else title
    return ": ".join(part for part in (_UNITS.get(unit, ""), detail or rest) if part)
