"""A report's text, plain or compressed, read piece by piece and cut into its sections. It is never held as a whole."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Protocol

from gpudoctor.sources.bug_report_gzip import MAGIC, GzipText
from gpudoctor.sources.errors import SourceError

PIECE = 32 * 1024
MAX_BYTES = 512 * 1024 * 1024
"""A report holds a few MB of text; more than this is something else, or a bomb."""
MAX_LINE = 256 * 1024
"""A longer line is cut: none that means anything has more than some thousand bytes."""
MAX_LAYERS = 3
"""The script compresses once; mailers and ticket systems do it again."""

_SEPARATOR = b"_" * 20
"""nvidia-bug-report.sh draws 43 or 44 of them."""
_NEXT = b"\n" + _SEPARATOR
_WINDOW = 64


class Collector(Protocol):
    """What takes the lines of one section."""

    def feed(self, lines: bytes) -> None:
        """Take some more whole lines."""
        ...

    def close(self, *, whole: bool) -> None:
        """There are no more; not `whole` when the report ended in the middle of the section."""
        ...


class ReportText:
    """The text of a file, compressed or not."""

    def __init__(self, file: BinaryIO, place: str) -> None:
        """`place` is what messages call it."""
        self._file = file
        self._place = place
        self._layers: list[GzipText] = []

    def pieces(self) -> Iterator[bytes]:
        """The text in pieces, with LF at the ends of lines. Raises SourceError for more of it than a report has."""
        chunks = self._plain(iter(lambda: self._file.read(PIECE), b""))
        head = b""
        while b"\n" not in head and len(head) < MAX_LINE and (chunk := next(chunks, b"")):
            head += chunk
        everything = self._measured(chain((head,), chunks))
        yield from _with_lf(everything) if b"\r\n" in head else everything

    def _measured(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_BYTES:
                most = f"more than {MAX_BYTES >> 20} MiB of text"
                raise SourceError(f"{self._place}: {most}: not an nvidia-bug-report log")
            yield chunk

    def _plain(self, chunks: Iterator[bytes], layers: int = 0) -> Iterator[bytes]:
        """What was compressed, and of that what was compressed again."""
        first = b""
        while len(first) < len(MAGIC) and (chunk := next(chunks, b"")):
            first += chunk
        everything = chain((first,), chunks)
        if not first.startswith(MAGIC):
            return everything
        if layers == MAX_LAYERS:
            raise SourceError(f"{self._place}: compressed more than {MAX_LAYERS} times: not an nvidia-bug-report log")
        layer = GzipText(everything)
        self._layers.append(layer)
        return self._plain(filter(None, layer.pieces()), layers + 1)

    @property
    def trouble(self) -> str:
        """Why there is no more text, once it is read; empty where that is all."""
        return next((layer.trouble for layer in self._layers if layer.trouble), "")


def _with_lf(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        text = held + chunk
        held = text[-1:] if text.endswith(b"\r") else b""
        yield text[: len(text) - len(held)].replace(b"\r\n", b"\n")
    yield held


class Splitter:
    """Cuts text into sections: a line of underscores, the first line that is not empty, what follows."""

    def __init__(self, begin: Callable[[str], Collector | None]) -> None:
        """`begin` is told a section's first line and gives what takes the others, None where nobody needs them."""
        self._begin = begin
        self._collector: Collector | None = None
        self._heading_comes = True
        self._rest = b""
        self._end = b""

    def feed(self, text: bytes) -> None:
        """Take a piece of the text. What nobody needs is not even copied, and the rest once: either can be most of it."""
        self._end = (self._end + text[-2:])[-2:]
        start = 0
        if self._skips:
            skipped = self._skip(text)
            if skipped < 0:
                self._rest = (self._rest + text[-_WINDOW:])[-_WINDOW:]
                return
            text = (self._rest + text)[skipped:]
        elif self._rest:
            start = text.find(b"\n") + 1
            if not start:
                self._rest = (self._rest + text)[:MAX_LINE]
                return
            line = self._rest + text[:start]
            self._take(line, 0, len(line))
        end = text.rfind(b"\n") + 1
        self._take(text, start, end)
        # A line of underscores is looked for together with the end of the line before it.
        self._rest = text[max(end - self._skips, 0) :][:MAX_LINE]

    @property
    def _skips(self) -> bool:
        return self._collector is None and not self._heading_comes

    def _skip(self, text: bytes) -> int:
        """Where the next line of underscores begins in what is left and this, less than zero where there is none."""
        seam = (self._rest + text[:_WINDOW]).find(_NEXT)
        if seam >= 0:
            return seam
        found = text.find(_NEXT)
        return found + len(self._rest) if found >= 0 else -1

    def _take(self, text: bytes, start: int, end: int) -> None:
        """Take whole lines, those between two places."""
        while start < end:
            if self._heading_comes:
                start = self._heading(text, start, end)
                continue
            separator, after = _separator(text, start, end)
            if self._collector is not None and separator > start:
                self._collector.feed(text[start:separator])
            if after > separator:
                self._close(whole=True)
            start = after

    def finish(self, *, sound: bool) -> bool:
        """There is no more. Gives whether the last section is whole: the script ends each with an empty line."""
        whole = sound and self._end == b"\n\n"
        self._take(self._rest, 0, len(self._rest))
        self._close(whole=whole)
        return whole

    def _close(self, *, whole: bool) -> None:
        if self._collector is not None:
            self._collector.close(whole=whole)
        self._collector = None
        self._heading_comes = True

    def _heading(self, text: bytes, start: int, end: int) -> int:
        """Skip empty lines and further separators up to a first line; gives where the next line begins."""
        after = text.find(b"\n", start, end)
        after = end if after < 0 else after
        line = text[start:after].strip()
        if line.strip(b"_"):
            self._heading_comes = False
            self._collector = self._begin(line[:1000].decode("utf-8", "backslashreplace"))
        return after + 1


def _separator(text: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the next separator begins and where the line after it does; twice the end where there is none."""
    place = start if text.startswith(_SEPARATOR, start, end) else _line_of_underscores(text, start, end)
    while place >= 0:
        after = text.find(b"\n", place, end)
        after = end if after < 0 else after
        if not text[place:after].strip(b"_ "):
            return place, min(after + 1, end)
        place = _line_of_underscores(text, after, end)
    return end, end


def _line_of_underscores(text: bytes, start: int, end: int) -> int:
    found = text.find(_NEXT, start, end)
    return found + 1 if found >= 0 else -1
