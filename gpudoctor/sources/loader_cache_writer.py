"""The loader's cache as a recording that is given away holds it: the driver's libraries alone, in the cache's order.

What else is installed on a machine is its owner's affair; and places in a cache are counted in bytes, so that no word in it can be replaced
where it stands. Format: facts/loader_cache.py.
"""

from collections.abc import Callable, Iterable

from gpudoctor.facts.loader_cache import (
    DRIVER_PREFIXES,
    ENTRY,
    HEADER,
    MAGIC,
    CachedLibrary,
    CacheError,
    parse_cache,
)
from gpudoctor.facts.pci_config import unescaped

LITTLE_ENDIAN = 2
_FOR_SOME_PROCESSORS = 1 << 32
"""Stands for whatever abilities of a processor an entry is for."""


def driver_part(content: bytes, renamed: Callable[[str], str]) -> bytes:
    """A cache with the driver's libraries only, paths being renamed; what is no cache stays none."""
    cache = unescaped(content.decode("utf-8", "backslashreplace"))
    try:
        _, libraries = parse_cache(cache, wanted=lambda name: name.startswith(DRIVER_PREFIXES))
    except CacheError:
        return cache[: HEADER.size] if cache.startswith(MAGIC) else b""
    return write_cache(
        CachedLibrary(library.name, renamed(library.path), library.flags, library.hwcaps) for library in libraries
    )


def write_cache(libraries: Iterable[CachedLibrary]) -> bytes:
    """A cache of the new format with these entries, in this order."""
    listed = tuple(libraries)
    place = HEADER.size + len(listed) * ENTRY.size
    entries, strings = b"", b""
    for library in listed:
        name, path = (text.encode() + b"\0" for text in (library.name, library.path))
        hwcap = _FOR_SOME_PROCESSORS if library.hwcaps else 0
        entries += ENTRY.pack(library.flags, place + len(strings), place + len(strings) + len(name), 0, hwcap)
        strings += name + path
    return HEADER.pack(MAGIC, len(listed), len(strings), LITTLE_ENDIAN, 0) + entries + strings
