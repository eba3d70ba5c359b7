"""The text in a gzip file, piece by piece, up to where the file is cut off or damaged (RFC 1952)."""

import zlib
from collections.abc import Iterator

MAGIC = b"\x1f\x8b"
PIECE = 32 * 1024
"""What zlib gives at a time without putting smaller pieces together."""
MOST_CHECKED = 4 * 1024 * 1024
"""Of longer members the length is verified, but not the check sum, which costs a quarter of all that reading them does.

The script writes a member for each section.
"""

_DEFLATE = 8
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16


class GzipText:
    """What was compressed; `trouble` says, once it is read, why there is no more of it."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._input = _Input(chunks)
        self.trouble = ""

    def pieces(self) -> Iterator[bytes]:
        """The text of one member after the other; zeros may follow."""
        try:
            while self._input.skip_zeros():
                _skip_header(self._input)
                yield from _member(self._input)
        except EOFError:
            self.trouble = "the gzip file is cut off"
        except (ValueError, zlib.error) as error:
            self.trouble = f"damaged gzip file: {error}"


class _Input:
    """The compressed bytes that were read and not yet used."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.data = b""

    def more(self) -> bool:
        """Read on; gives whether there was more."""
        chunk = next(self._chunks, b"")
        self.data += chunk
        return bool(chunk)

    def take(self, count: int) -> bytes:
        """So many bytes. Raises EOFError where there are less."""
        while len(self.data) < count:
            if not self.more():
                raise EOFError
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def skip_zeros(self) -> bool:
        """Gives whether there is anything else."""
        self.data = self.data.lstrip(b"\0")
        while not self.data and self.more():
            self.data = self.data.lstrip(b"\0")
        return bool(self.data)


def _skip_header(source: _Input) -> None:
    """Raises ValueError where none begins."""
    header = source.take(10)
    if not header.startswith(MAGIC) or header[2] != _DEFLATE:
        raise ValueError("no member begins where one should")
    flags = header[3]
    if flags & _EXTRA:
        source.take(int.from_bytes(source.take(2), "little"))
    for text in (_NAME, _COMMENT):
        while flags & text and source.take(1) != b"\0":
            pass
    if flags & _HEADER_CRC:
        source.take(2)


def _member(source: _Input) -> Iterator[bytes]:
    """Raises zlib.error for what is not compressed text, ValueError where the text is not what was compressed."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    size = check_sum = 0
    while True:
        over = not source.data and not source.more()
        text = stream.decompress(source.data, PIECE)
        size += len(text)
        if size <= MOST_CHECKED:
            check_sum = zlib.crc32(text, check_sum)
        yield text
        if stream.eof:
            break
        if over and not text:
            raise EOFError
        source.data = stream.unconsumed_tail
    source.data = stream.unused_data
    trailer = source.take(8)
    if size <= MOST_CHECKED and int.from_bytes(trailer[:4], "little") != check_sum:
        raise ValueError("the check sum of its text is wrong")
    if int.from_bytes(trailer[4:], "little") != size & 0xFFFFFFFF:
        raise ValueError("the length of its text is wrong")
