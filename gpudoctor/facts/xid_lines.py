"""Lines in which NVIDIA's drivers tell of errors, each as a record: Xids of GPUs, SXids of NVSwitches, and a GPU that is off the bus.

Forms by driver, as open-gpu-kernel-modules prints them (515.43.04 to 595.45.04): src/nvidia/src/kernel/gpu/rc/kernel_rc.c
(`Xid (PCI:…): N, pid=…, name=…, text`, which branch 570 leaves out where no process is known; "caused by previous Xid"; the UUID and the
serial number before a GPU's first one), kern_gpu_error_cont_ga100.c (Contained, RST, D-RST), gpu.c (154), arch/nvalloc/unix/src/osinit.c
and osapi.c (off the bus, without a number); src/common/nvswitch/interface and kernel-open/nvidia/nv-tracepoint.h. Before branch 470 there
is no process and long ago no `PCI:`.
"""

import re
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter

from msgspec import Struct

from gpudoctor.facts.log_stamps import split
from gpudoctor.patterns import pattern

ANCHOR = "Xid ("
"""In every line with a number, of a GPU or a switch."""
OFF_THE_BUS = "fallen off the bus"
FALLEN = 79
"""The Xid of a GPU that fell off the bus (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS in nverror.h)."""
IDENTITY = "NVRM: GPU at PCI:"
NAMELESS = "<unknown>"
"""In the place of a name: no process is known (kernel_rc.c)."""
MOST_COMM = 15
"""Letters of a process's name: TASK_COMM_LEN without its NUL (include/linux/sched.h)."""
LONGEST = 4096
"""No message of the kernel is longer; of longer lines the beginning is read."""
BEFORE = 4
"""As many lines lie between the name of a GPU that is off the bus at its probe and the words that it is."""

_SLOT = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_XID = pattern(
    rf"(?<!S)Xid \((?:PCI:)?(?:({_SLOT})(\.[0-7])?|\.\.\.)(?: GPU-I:(\d{{1,3}}))?(?: GPU-CI:(\d{{1,3}}))?\): (\d{{1,6}})(?!\d)"
)
_SXID = pattern(rf"(?:(nvidia-nvswitch\d{{1,3}}): )?SXid \((?:PCI:)?({_SLOT})(\.[0-7])?\): (\d{{1,6}})(?!\d)")
_PID = pattern(r"pid=(?:'?<unknown>'?|'?(\d{1,10})'?)(?!\d)")
# What a message begins with that follows a name: anything else after a comma belongs to the name.
_MESSAGE = pattern(
    r"(?:Ch(?:annel|ID)? |Graphics |GPU |Class |NVLink|NVLINK|Timeout|Contained|Uncontained|MMU |Row |GSP |errorString|CMDre |Error "
    r"|DBE |[A-Z][A-Z0-9_/]{3,}\s|[0-9a-f]{4,8}[ (]|0x)"
)
# Whose words a line's are: the driver's own, or those of the tracepoint that repeats them.
_DRIVERS = ("", "NVRM: ", "nvidia_dev_xid: ")
_NUMBERED_LINK = pattern(r"Link (-?\d{1,3})\b")
_OFF = pattern(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?({_SLOT})")
_PROBED = pattern(rf"NVRM: The NVIDIA GPU ({_SLOT})")
_GPU = pattern(rf"{IDENTITY}({_SLOT})(?:\.[0-7])?: (GPU-[0-9a-fA-F-]{{8,40}})")
_SERIAL = pattern(r"NVRM: GPU Board Serial Number: *([\w-]{4,40})")


class XidLine(Struct, frozen=True):
    """One line about a GPU. `at` is the time as written; `slot` the address without a function, "" where the line has dots for it.

    The instances are those of MIG. Without a number of its own a line (`numbered` is false) tells that the GPU is off the bus.
    """

    at: str
    message: str
    slot: str
    code: int
    text: str = ""
    pid: int | None = None
    name: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    numbered: bool = True


class SXidLine(Struct, frozen=True):
    """One line about an NVSwitch; `fatal` is None where it does not say, as in the lines that continue an event (`detail`)."""

    at: str
    message: str
    address: str
    code: int
    text: str
    switch: str = ""
    fatal: bool | None = None
    link: int | None = None
    detail: bool = False


class Identity(Struct, frozen=True):
    """What the log says of the board before a GPU's first Xid: its UUID and serial number, "" where it is not told."""

    uuid: str
    serial: str
    lines: tuple[tuple[str, str], ...]


def parse(line: str) -> XidLine | SXidLine | None:
    """A line with the number of an error, None for any other, and for what somebody else says of one.

    Anybody can have such words in a log: in a unit's description, a cgroup's name, a USB device's. A message whose time is known begins
    with the driver's own words; what stands before a line of unknown form may be anything.
    """
    place = line.find(ANCHOR)
    if place < 0:
        return None
    sxid = place > 0 and line[place - 1] == "S"
    at, message = split(line[:LONGEST])
    return _sxid(at, message) if sxid else _xid(at, message)


def find(text: str) -> Iterator[XidLine | SXidLine]:
    """Every numbered error of a log, oldest first."""
    return (line for _, line in _numbered(text))


def find_off_the_bus(text: str) -> Iterator[XidLine]:
    """GPUs that the driver calls fallen off the bus without a number: while they ran, or when it looked for them."""
    return (line for _, line in _unnumbered(text))


def find_all(text: str) -> Iterator[XidLine | SXidLine]:
    """Both, in the order of the log."""
    return (line for _, line in find_placed(text))


def find_placed(text: str) -> Iterator[tuple[int, XidLine | SXidLine]]:
    """Both, in the order of the log, with the place at which each line begins."""
    return merge(_numbered(text), _unnumbered(text), key=itemgetter(0))


def _numbered(text: str) -> Iterator[tuple[int, XidLine | SXidLine]]:
    for begin, end in _lines_with(text, ANCHOR):
        found = parse(text[begin:end])
        if found is not None:
            yield begin, found


def _unnumbered(text: str) -> Iterator[tuple[int, XidLine]]:
    for begin, end in _lines_with(text, OFF_THE_BUS):
        line = text[begin : min(end, begin + LONGEST)]
        found = None if ANCHOR in line else _off(line) or _named_before(text, begin, line)
        if found is not None:
            yield begin, found


def identities(text: str) -> dict[str, Identity]:
    """What the log tells of the boards, by slot."""
    found: dict[str, Identity] = {}
    for begin, end in _lines_with(text, IDENTITY):
        at, message = split(text[begin : min(end, begin + LONGEST)])
        named = _first(_GPU, at, message)
        if named is not None:
            after = text[end + 1 : _line_at(text, end + 1)[1]][:LONGEST] if end + 1 < len(text) else ""
            serial = _SERIAL.search(after)
            lines = ((at, message), *((split(after),) if serial is not None else ()))
            slot = normal(named[1])
            before = found.get(slot)
            told = serial[1] if serial is not None else before.serial if before is not None else ""
            found[slot] = Identity(named[2], told, lines)
    return found


def normal(slot: str) -> str:
    """A domain, bus and device as sysfs writes them: lower case, the domain of at least four digits."""
    domain, _, rest = slot.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _line_at(text: str, place: int) -> tuple[int, int]:
    """Where the line around a place begins and ends."""
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    return begin, len(text) if end < 0 else end


def _lines_with(text: str, anchor: str) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end in which some words occur."""
    place = text.find(anchor)
    while place >= 0:
        begin, end = _line_at(text, place)
        yield begin, end
        place = text.find(anchor, end)


def _xid(at: str, message: str) -> XidLine | None:
    found = _XID.search(message)
    if found is None or (at and message[: found.start()] not in _DRIVERS):
        return None
    rest = message[found.end() :].removeprefix(",").strip()
    pid, name, text = _process(rest)
    return XidLine(
        at=at,
        message=message[_begin(message, found.start()) :],
        slot=normal(found[1]) if found[1] else "",
        code=int(found[5]),
        text=text,
        pid=pid,
        name=name,
        gpu_instance=int(found[3]) if found[3] else None,
        compute_instance=int(found[4]) if found[4] else None,
    )


def _first(words: "re.Pattern[str]", at: str, message: str) -> "re.Match[str] | None":
    """The driver's words, with which a message begins whose time is known."""
    return words.match(message) if at else words.search(message)


def _begin(message: str, place: int) -> int:
    """Where the driver's own words begin."""
    begin = message.rfind("NVRM: ", 0, place)
    return begin if begin >= 0 else place


def _process(rest: str) -> tuple[int | None, str, str]:
    """Process and name in front of a text, where they are; a name may hold commas, blanks and quotes."""
    found = _PID.match(rest)
    if found is None:
        return None, "", rest
    pid = int(found[1]) if found[1] else None
    text = rest[found.end() :].removeprefix(",").strip()
    if not text.startswith("name="):
        return pid, "", text
    name, text = _name(text.removeprefix("name="))
    return pid, "" if name == NAMELESS else name, text


def _name(text: str) -> tuple[str, str]:
    """A name and what follows it: it ends at the first comma behind which a message begins, else at the first one."""
    if text.startswith(NAMELESS):
        return NAMELESS, text.removeprefix(NAMELESS).removeprefix(",").strip()
    commas = []
    place = text.find(", ", 0, MOST_COMM + 4)
    while place >= 0:
        if _MESSAGE.match(text, place + 2):
            return _unquoted(text[:place]), text[place + 2 :].strip()
        commas.append(place)
        place = text.find(", ", place + 2, MOST_COMM + 4)
    if not commas or len(text) <= MOST_COMM:
        return _unquoted(text.rstrip(",")), ""
    return _unquoted(text[: commas[0]]), text[commas[0] + 2 :].strip()


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name


def _sxid(at: str, message: str) -> SXidLine | None:
    found = _SXID.search(message)
    if found is None or (at and message[: found.start()] not in _DRIVERS):
        return None
    text = message[found.end() :].removeprefix(",").strip()
    first = text.partition(",")[0].strip().casefold()
    fatal = True if first == "fatal" else False if first in ("non-fatal", "nonfatal") else None
    said = text.partition(",")[2].strip() if fatal is not None else text
    link = _NUMBERED_LINK.search(said)
    return SXidLine(
        at=at,
        message=message[found.start() :],
        address=normal(found[2]) + (found[3] or ".0"),
        code=int(found[4]),
        text=said,
        switch=found[1] or "",
        fatal=fatal,
        link=int(link[1]) if link is not None else None,
        detail=text.startswith(("Severity ", "Data {", "Data:")),
    )


def _off(line: str) -> XidLine | None:
    """Name and words on one line."""
    at, message = split(line)
    found = _first(_OFF, at, message)
    return None if found is None else XidLine(at, message, normal(found[1]), FALLEN, numbered=False)


def _named_before(text: str, begin: int, line: str) -> XidLine | None:
    """The words at a probe follow the name on a line of their own."""
    at, message = split(line)
    for _ in range(BEFORE if message.startswith("NVRM: ") else 0):
        if begin <= 0:
            return None
        begin, end = _line_at(text, begin - 1)
        time, above = split(text[begin:end][:LONGEST])
        found = _PROBED.match(above)
        if OFF_THE_BUS in above:
            return None
        if found is not None:
            return XidLine(at or time, f"{above} … {message}", normal(found[1]), FALLEN, numbered=False)
    return None
