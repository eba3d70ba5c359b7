"""Compressed files: their form by the first bytes, unpacking and packing piece by piece."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, BinaryIO, Protocol, cast

from gpudoctor.sources.errors import SourceError

CHUNK = 64 * 1024
MAX_MEMORY = 128 * 1024 * 1024
"""What unpacking may take: `xz -9` needs 65 MiB, zstd refuses windows over 128 MiB by itself. A damaged header can ask for 4 GiB."""

# RFC 1952; bzip2's "BZh"; the .xz file format, 2.1.1.1; RFC 8878: a frame, or a frame to skip, which pzstd puts first.
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    *((bytes([0x50 + number]) + b"\x2a\x4d\x18", "zstd") for number in range(16)),
)


class Damaged(Exception):
    """Compressed data that is cut off or not what it says; the message says which."""


def form_of(head: bytes) -> str | None:
    """The form of compression that a file's first bytes announce; None for none that is known."""
    return next((form for magic, form in _MAGIC if head.startswith(magic)), None)


class Unpacked:
    """The content of a compressed file, never more of it at a time than is asked for."""

    def __init__(self, file: BinaryIO, form: str | None) -> None:
        """`form` None reads the file as it is. Raises SourceError when this Python cannot read the form."""
        self._form = form
        self._source, self._errors = _reader(file, form)

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises Damaged, and OSError when the file itself cannot be read."""
        try:
            return self._source.read(size)
        except EOFError as error:
            raise Damaged(f"the {self._form} file is cut off: collect or copy it again") from error
        except self._errors as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Damaged(f"damaged {self._form} file: {error}") from error


def packing(file: BinaryIO, form: str | None) -> AbstractContextManager[IO[bytes]]:
    """A stream that compresses into a file, which stays open when it is closed; equal content gives equal bytes."""
    match form:
        case "gzip":
            import gzip

            return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        case "bzip2":
            import bz2

            return bz2.BZ2File(file, "wb")
        case "xz":
            import lzma

            return lzma.LZMAFile(file, "wb")
        case "zstd":
            zstd: IO[bytes] = _zstd().ZstdFile(file, "wb", level=10)
            return zstd
    return nullcontext(file)


class _Decompressor(Protocol):
    """What bz2, lzma and zstd share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _reader(file: BinaryIO, form: str | None) -> tuple[_Readable, tuple[type[Exception], ...]]:
    match form:
        case "gzip":
            import gzip
            import zlib

            return gzip.GzipFile(fileobj=file), (OSError, zlib.error)
        case "bzip2":
            import bz2

            return _Streams(file, bz2.BZ2Decompressor), (OSError,)
        case "xz":
            import lzma

            return _Streams(file, lambda: lzma.LZMADecompressor(memlimit=MAX_MEMORY)), (OSError, lzma.LZMAError)
        case "zstd":
            zstd = _zstd()
            return _Streams(file, zstd.ZstdDecompressor), (OSError, zstd.ZstdError)
    return file, (OSError,)


class _Streams:
    """One compressed stream after another, as parallel compressors write them, zero bytes between them skipped (.xz, 2.2)."""

    def __init__(self, file: BinaryIO, new: Callable[[], _Decompressor]) -> None:
        self._file = file
        self._new = new
        self._stream = new()
        self._input = b""

    def read(self, size: int, /) -> bytes:
        """Raises EOFError when the last stream does not end."""
        data = b""
        while not data:
            if not self._input and (self._stream.eof or self._stream.needs_input):
                self._input = self._file.read(CHUNK)
                if not self._input:
                    if self._stream.eof:
                        return b""
                    raise EOFError
            if self._stream.eof:
                self._input = self._input.lstrip(b"\0")
                if not self._input:
                    continue
                self._stream = self._new()
            data, self._input = self._stream.decompress(self._input, size), b""
            if self._stream.eof:
                self._input = self._stream.unused_data
        return data


def _zstd() -> Any:
    """The standard library's module from Python 3.14 on, before that the same one as a package."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as error:
        raise SourceError("zstd needs the Python package backports.zstd; or use .tar.xz or .tar.gz") from error
    return zstd
