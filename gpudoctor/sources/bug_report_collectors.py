"""What takes the lines of a section while they are read: as much as is needed of each, and no more."""

import re
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from gpudoctor.sources.lspci_text import Bus

REMOVED = "[section body removed"
"""What a report that was made smaller says in place of a section."""

MOST_TEXT = 256 * 1024
"""As much of a file or of a command's output is kept."""
MOST_LOG = 4 * 1024 * 1024
"""As much of the end of a kernel log is kept; the kernel's own buffer has some hundred KiB, a few MiB on large machines."""

_LONGEST_HEADING = 200
_WHERE_FROM = re.compile(rb"\n  (?:journalctl -b -(\d)|/var/log/\S+):(?=\n)")


class Body(Struct, frozen=True):
    """The lines of a section. Not `whole`: the report ended in it. `shortened`: more was there than is kept."""

    text: str
    whole: bool
    shortened: bool

    @property
    def removed(self) -> bool:
        """Whether the section was taken out of the report."""
        return self.text.lstrip("\n").startswith(REMOVED)


class Beginning:
    """Keeps the first lines of a section."""

    def __init__(self, take: Callable[[Body], None], most: int = MOST_TEXT) -> None:
        self._take = take
        self._room = most
        self._kept: list[bytes] = []

    def feed(self, lines: bytes) -> None:
        """Keep what there is room for."""
        if self._room > 0:
            self._kept.append(lines[: self._room])
        self._room -= len(lines)

    def close(self, *, whole: bool) -> None:
        """Hand on what was kept."""
        self._take(Body(_text(self._kept), whole, self._room < 0))


class End:
    """Keeps the last lines of a section."""

    def __init__(self, take: Callable[[Body], None], most: int = MOST_LOG) -> None:
        self._take = take
        self._kept = Tail(most)

    def feed(self, lines: bytes) -> None:
        """Keep them, and drop the oldest where there are too many."""
        self._kept.add(lines)

    def close(self, *, whole: bool) -> None:
        """Hand on what was kept."""
        self._take(Body(self._kept.text, whole, self._kept.shortened))


class Tail:
    """The last lines of many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._pieces: deque[bytes] = deque()
        self.shortened = False

    def add(self, lines: bytes) -> None:
        """Add lines at the end."""
        self._pieces.append(lines)
        self._size += len(lines)
        while self._size - len(self._pieces[0]) >= self._most:
            self._size -= len(self._pieces.popleft())
            self.shortened = True

    @property
    def text(self) -> str:
        """The lines that are kept."""
        return _text(self._pieces)


class Functions:
    """Hands the functions of a verbose lspci on as they come: with the registers of a large machine they are tens of MB."""

    def __init__(self, bus: Bus, command: str) -> None:
        self._bus = bus
        self._command = command
        self._rest = b""
        self._removed = False

    def feed(self, lines: bytes) -> None:
        """Take whole functions, keep the last one until it is known to end."""
        lines = self._rest + lines
        end = lines.rfind(b"\n\n") + 1
        if end:
            self._take(lines[:end])
        self._rest = lines[end:][:MOST_TEXT]

    def close(self, *, whole: bool) -> None:
        """The last function of a report that ends here is not taken: it may lack its end."""
        if whole:
            self._take(self._rest)
        self._bus.take_end(self._command, whole=whole and not self._removed)

    def _take(self, lines: bytes) -> None:
        text = _text([lines])
        self._removed = self._removed or text.lstrip("\n").startswith(REMOVED)
        self._bus.take_functions(self._command, text)


class BootLogs:
    """Takes the lines about NVIDIA of this boot and the one before out of "Scanning kernel log files", which has more of them."""

    def __init__(self, take: Callable[[str, str], None], most: int = MOST_LOG // 4) -> None:
        """`take` gets a boot, "0" or "1", and its lines as journalctl prints them."""
        self._take = take
        self._kept = {"0": Tail(most), "1": Tail(most)}
        self._boot = ""

    def feed(self, lines: bytes) -> None:
        """Headings in the section tell whose lines follow."""
        first = _WHERE_FROM.match(b"\n" + lines[:_LONGEST_HEADING])
        if first is not None:
            self._boot = (first[1] or b"").decode()
        start = 0 if first is None else first.end()
        for heading in _WHERE_FROM.finditer(lines, max(start - 1, 0)):
            self._add(lines, start, heading.start() + 1)
            self._boot = (heading[1] or b"").decode()
            start = heading.end() + 1
        self._add(lines, start, len(lines))

    def _add(self, lines: bytes, start: int, end: int) -> None:
        if self._boot in self._kept and start < end:
            self._kept[self._boot].add(lines[start:end])

    def close(self, *, whole: bool) -> None:
        """Hand on what was kept of each boot."""
        for boot, kept in self._kept.items():
            if text := kept.text.strip("\n"):
                self._take(boot, text)


def _text(pieces: "list[bytes] | deque[bytes]") -> str:
    """Bytes that are not UTF-8 are kept as backslash escapes."""
    return b"".join(pieces).decode("utf-8", "backslashreplace")
