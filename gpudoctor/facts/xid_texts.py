"""What the text of an Xid says beyond its number: containment, the recovery that the driver asks for, registers of NVLink.

Sources: open-gpu-kernel-modules, kern_gpu_error_cont_ga100.c (RST: the GPU must be reset; D-RST: drained and reset), gpu.c (154),
kernel_rc.c ("caused by previous Xid"); lines of 74 and 144 to 150 as NVSentinel and gpud read them (csv_test.go, nvlink_logs_test.go).
"""

from msgspec import Struct

from gpudoctor.patterns import pattern

_RESET = pattern(r"\bRST: (Yes|No), D-RST: (Yes|No)")
_PREVIOUS = pattern(r"caused by previous Xid (\d{1,6})")
_RECOVERY = pattern(r"changed from 0x([0-9a-fA-F]{1,8}) \(([^()]{0,40})\) to 0x([0-9a-fA-F]{1,8}) \(([^()]{0,40})\)")
_REGISTERS = pattern(r"\blink (-?\d{1,3}) ?\(((?:0x[0-9a-fA-F]{1,8}(?:, ?)?){1,16})\)?")
_LINK5 = pattern(
    r"([A-Z][A-Z0-9_/]{1,40})\s{1,8}(Fatal|Nonfatal)\s{1,8}XC(\d)\s{1,8}i(\d{1,2})"
    r"(?:\s{1,8}Link\s{1,8}(-?\d{1,3}))?(?:\s{0,8}\(((?:0x[0-9a-fA-F]{1,8}\s{0,4}){1,8}))?"
)
_PLACE = pattern(r"\(GPC (\d{1,2}), TPC (\d{1,2})(?:, SM (\d{1,2}))?\)")


class Link5(Struct, frozen=True):
    """An error of NVLink 5 (144 to 150): the unit, how bad, which link (-1 for none), and the words of its registers."""

    unit: str
    fatal: bool
    link: int | None
    words: tuple[int, ...]


def resets(text: str) -> str:
    """What 94 and 95 ask for by their flags: `reset`, `drain-and-reset`, `none`; "" where they have none."""
    found = _RESET.search(text)
    if found is None:
        return ""
    return "reset" if found[1] == "Yes" else "drain-and-reset" if found[2] == "Yes" else "none"


def previous(text: str) -> int | None:
    """The Xid that caused this one."""
    found = _PREVIOUS.search(text)
    return int(found[1]) if found is not None else None


def recovery(text: str) -> tuple[int, str] | None:
    """What the driver asks for since a 154, as number and word ("GPU Reset Required"); 0 is nothing."""
    found = _RECOVERY.search(text)
    return (int(found[3], 16), found[4]) if found is not None else None


def registers(text: str) -> tuple[int, tuple[int, ...]] | None:
    """The link and the words of a 74."""
    found = _REGISTERS.search(text)
    return (int(found[1]), tuple(int(word, 16) for word in found[2].replace(",", " ").split())) if found else None


def link5(text: str) -> Link5 | None:
    """The parts of a 144 to 150, as far as the line was kept."""
    found = _LINK5.search(text)
    if found is None:
        return None
    words = tuple(int(word, 16) for word in (found[6] or "").split())
    return Link5(found[1], found[2] == "Fatal", int(found[5]) if found[5] else None, words)


def place(text: str) -> str:
    """The part of the chip that a 13 names: `GPC 1, TPC 3`."""
    found = _PLACE.search(text)
    return f"GPC {found[1]}, TPC {found[2]}" if found is not None else ""
