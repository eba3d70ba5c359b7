"""Lines of a kernel log as they lay in a file, as plain ones: out of a container's log, without colours, without what others say."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.facts.log_stamps import CRI, decoded, split
from gpudoctor.patterns import pattern

MARK = " kernel: "
"""How syslog and the journal name the kernel, within the first letters of a line."""
LONGEST_PREFIX = 160
DRIVERS = pattern(r"NVRM: |nvidia-nvswitch\d+: |Linux version \d")
_COLOUR = pattern(r"\x1b\[[\d;]*[mK]")


class Wrapped(Struct, frozen=True):
    """What a line of a container's log holds, when it was written, and whether the next line continues it."""

    text: str
    time: str
    goes_on: bool


def wrapped(line: str) -> Wrapped | None:
    """What a container's log wraps in a line; None for a line that is of none."""
    if (cri := CRI.match(line)) is not None:
        return Wrapped(line[cri.end() :], cri[1], cri[2] == "P")
    said = decoded(line) if line.startswith('{"') else {}
    text = said.get("log")
    if not isinstance(text, str):
        return None
    return Wrapped(text.rstrip("\r\n"), str(said.get("time", "")), not text.endswith("\n"))


def plain_lines(lines: Iterable[bytes], *, kernel_only: bool = False) -> Iterator[str]:
    """The lines as text; bytes that are not UTF-8 become backslash escapes. With `kernel_only` those of the kernel."""
    texts = (line.decode("utf-8", "backslashreplace").rstrip("\r\n") for line in lines)
    plain = _unwrapped(_COLOUR.sub("", line) if "\x1b" in line else line for line in texts)
    return kernel_lines(plain) if kernel_only else plain


def is_kernels(line: str) -> bool:
    """Whether the kernel says a line: it is named, it stamped the line with its own clock, or its drivers name themselves first."""
    if line.find(MARK, 0, LONGEST_PREFIX) > 0 or line.startswith(("[", "<")):
        return True
    return DRIVERS.match(split(line)[1]) is not None


def kernel_lines(lines: Iterable[str]) -> Iterator[str]:
    """The kernel's own among the lines of a journal or of syslog, with the further lines of a message."""
    of_kernel = False
    for line in lines:
        if not line.startswith((" ", "\t")):
            of_kernel = is_kernels(line)
        if of_kernel:
            yield line


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines out of a container's log; one that it cut into several is whole again, and has the log's time where it has none of its own."""
    begun: list[str] = []
    time = ""
    for line in lines:
        inside = wrapped(line) if line[:1].isdigit() or line.startswith("{") else None
        if inside is None:
            if begun:
                yield _timed("".join(begun), time)
                begun = []
            yield line
            continue
        time = time if begun else inside.time
        begun.append(inside.text)
        if not inside.goes_on:
            yield _timed("".join(begun), time)
            begun = []
    if begun:
        yield _timed("".join(begun), time)


def _timed(line: str, time: str) -> str:
    return line if not time or split(line)[0] else f"{time} {line}"
