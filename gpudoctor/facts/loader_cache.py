"""The dynamic loader's cache, /etc/ld.so.cache: which file it gives for a library's name, in its order.

Sources: glibc, sysdeps/generic/dl-cache.h (the formats, ALIGN_CACHE, the extensions), elf/dl-cache.c (_dl_load_cache_lookup: the first
entry of the name that has the program's own flags), elf/cache.c (print_cache, compare), sysdeps/generic/ldconfig.h (the flags). Read
2026-11-30.
"""

import struct
from collections.abc import Callable, Iterator

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.pci_config import unescaped
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

CACHE = "/etc/ld.so.cache"

OLD_MAGIC = b"ld.so-1.7.0"
MAGIC = b"glibc-ld.so.cache1.1"
OLD_HEADER = struct.Struct("=11sxI")
OLD_ENTRY = struct.Struct("=iII")
HEADER = struct.Struct("=20sIIB3xI12x")
"""Magic and version, number of entries, bytes of strings, byte order, where the extensions are."""
ENTRY = struct.Struct("=iIIIQ")
"""Flags, place of the name, place of the path, unused, hardware capabilities."""
EXTENSIONS_MAGIC = 0xEAA42174
_EXTENSIONS = struct.Struct("=II")
_SECTION = struct.Struct("=IIII")
_HWCAPS_TAG = 1
_BY_INDEX = 1 << 62
"""DL_CACHE_HWCAP_EXTENSION: the rest of the number is an index into the names of glibc-hwcaps directories."""
_BIG_ENDIAN = 3
"""cache_file_new_flags_endian_big; 0 is not told, 2 is little."""

ELF, MACHINE = 0xFF, 0xFF00
LIBC6 = 3
_MACHINES = {
    0x0000: "",
    0x0100: "64bit",
    0x0300: "x86-64",
    0x0400: "64bit",
    0x0500: "64bit",
    0x0600: "N32",
    0x0700: "64bit",
    0x0800: "x32",
    0x0900: "hard-float",
    0x0A00: "AArch64",
    0x0B00: "soft-float",
    0x0F00: "soft-float",
    0x1000: "double-float",
    0x1100: "soft-float",
    0x1200: "double-float",
}
"""FLAG_REQUIRED_MASK in ldconfig.h, in the words of `ldconfig -p`."""
OF_64_BITS = frozenset((0x0300, 0x0500, 0x0A00))
"""The machines for which there is a driver of 64 bits: x86-64, POWER, AArch64. What has no mark is of 32 bits there."""

DRIVER_PREFIXES = (b"libcuda.so", b"libcudadebugger.so", b"libnvidia-")
"""How the names begin that a node's cache is searched for."""


class CachedLibrary(Struct, frozen=True):
    """One entry. `hwcaps` names the processor's abilities that it is for, "" for all processors."""

    name: str
    path: str
    flags: int
    hwcaps: str = ""

    @property
    def of_64_bits(self) -> bool:
        """Whether a program of 64 bits gets it."""
        return self.flags & ELF == LIBC6 and self.flags & MACHINE in OF_64_BITS

    @property
    def kind(self) -> str:
        """As `ldconfig -p` words it."""
        machine = _MACHINES.get(self.flags & MACHINE, f"{self.flags & MACHINE:#x}")
        words = [{1: "ELF", 2: "libc5", 3: "libc6"}.get(self.flags & ELF, "libc4"), machine]
        return ",".join(word for word in words if word)

    @property
    def evidence(self) -> Evidence:
        """The entry as `ldconfig -p` shows it."""
        return Evidence(CACHE, f"{self.name} ({self.kind}) => {self.path}")


class LoaderCache(Fact, frozen=True):
    """The driver's libraries in the cache, in its order; `exists` is False where there is none, and the loader uses its own directories."""

    exists: bool
    libraries: tuple[CachedLibrary, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "LoaderCache | Unread":
        """One read."""
        return read_cache(desk.raw)

    def of(self, name: str) -> tuple[CachedLibrary, ...]:
        """The entries of one name, of any machine."""
        return tuple(library for library in self.libraries if library.name == name)


class CacheError(ValueError):
    """The bytes are no cache, or a damaged one; the text says what is wrong with them."""


def read_cache(raw: Raw, root: str = "") -> LoaderCache | Unread:
    """The cache of the node, or of a tree below `root`."""
    return cache_of(raw.read(f"{root}{CACHE}"))


def cache_of(file: TextFile | Absent | Unread) -> LoaderCache | Unread:
    """What was read as a cache."""
    if isinstance(file, Unread):
        return file
    if isinstance(file, Absent):
        return LoaderCache(exists=False, libraries=(), read_from={"libraries": file.evidence})
    if file.truncated:
        return Unread(Why.UNREADABLE, file.where, "was cut: it is too large")
    try:
        _, libraries = parse_cache(unescaped(file.text), wanted=lambda name: name.startswith(DRIVER_PREFIXES))
    except CacheError as error:
        return Unread(Why.UNREADABLE, file.where, str(error))
    said = f"has {len(libraries)} entries for libraries of the driver"
    return LoaderCache(exists=True, libraries=libraries, read_from={"libraries": Evidence(file.where, said)})


def parse_cache(
    content: bytes, wanted: Callable[[bytes], bool] = lambda name: True
) -> tuple[int, tuple[CachedLibrary, ...]]:
    """How many entries a cache has, and those of the names that are wanted, in its order. Raises CacheError."""
    start = _new_format(content)
    if start is None:
        return _old_format(content, wanted)
    _, count, _, order, extensions = _unpacked(HEADER, content, start)
    if order == _BIG_ENDIAN:
        raise CacheError("is of the other byte order")
    first = start + HEADER.size
    if first + count * ENTRY.size > len(content):
        raise CacheError(f"is cut: {count} entries do not fit into {len(content)} bytes")
    names = _hwcaps(content, start, extensions) if extensions else ()
    found: list[CachedLibrary] = []
    for flags, key, value, _, hwcap in ENTRY.iter_unpack(content[first : first + count * ENTRY.size]):
        name = _string(content, start + key)
        if wanted(name):
            path = _string(content, start + value)
            found.append(CachedLibrary(_text(name), _text(path), flags, _capabilities(hwcap, names)))
    return count, tuple(found)


def _new_format(content: bytes) -> int | None:
    """Where the new format begins: at once, or behind the entries of the old one, aligned as its 64-bit numbers need it."""
    if content.startswith(MAGIC):
        return 0
    if not content.startswith(OLD_MAGIC):
        raise CacheError("is empty" if not content else "does not begin as a cache of glibc's loader does")
    _, count = _unpacked(OLD_HEADER, content, 0)
    behind = OLD_HEADER.size + count * OLD_ENTRY.size
    # A cache of a 32-bit ldconfig is aligned to four bytes, one of 64 bits to eight.
    places = dict.fromkeys((behind + 7 & ~7, behind + 3 & ~3))
    return next((place for place in places if content.startswith(MAGIC, place)), None)


def _old_format(content: bytes, wanted: Callable[[bytes], bool]) -> tuple[int, tuple[CachedLibrary, ...]]:
    """Places of strings count from behind the entries."""
    _, count = _unpacked(OLD_HEADER, content, 0)
    behind = OLD_HEADER.size + count * OLD_ENTRY.size
    if behind > len(content):
        raise CacheError(f"is cut: {count} entries do not fit into {len(content)} bytes")
    found: list[CachedLibrary] = []
    for flags, key, value in OLD_ENTRY.iter_unpack(content[OLD_HEADER.size : behind]):
        name = _string(content, behind + key)
        if wanted(name):
            found.append(CachedLibrary(_text(name), _text(_string(content, behind + value)), flags))
    return count, tuple(found)


def _unpacked(form: struct.Struct, content: bytes, place: int) -> tuple[int, ...]:
    if place + form.size > len(content):
        raise CacheError(f"is cut: it has {len(content)} bytes")
    return form.unpack_from(content, place)


def _string(content: bytes, place: int) -> bytes:
    end = content.find(b"\0", place)
    if place >= len(content) or end < 0:
        raise CacheError("is damaged: the place of a string lies outside of it")
    return content[place:end]


def _text(string: bytes) -> str:
    return string.decode("utf-8", "backslashreplace")


def _capabilities(hwcap: int, names: tuple[str, ...]) -> str:
    if not hwcap:
        return ""
    index = hwcap & 0xFFFFFFFF
    if hwcap >> 32 == _BY_INDEX >> 32 and index < len(names):
        return names[index]
    return f"{hwcap:#018x}"


def _hwcaps(content: bytes, start: int, place: int) -> tuple[str, ...]:
    """The names of glibc-hwcaps directories: glibc 2.33 and later keep them in a section behind the strings.

    Places of sections count from the beginning of the file, those of strings from `start`, where the new format begins (elf/cache.c,
    save_cache).
    """
    magic, count = _unpacked(_EXTENSIONS, content, place)
    if magic != EXTENSIONS_MAGIC:
        raise CacheError("is damaged: its extensions do not begin as they must")
    return tuple(_names(content, start, place + _EXTENSIONS.size, count))


def _names(content: bytes, start: int, place: int, count: int) -> Iterator[str]:
    if place + count * _SECTION.size > len(content):
        raise CacheError(f"is cut: {count} extensions do not fit into {len(content)} bytes")
    for tag, _, offset, size in _SECTION.iter_unpack(content[place : place + count * _SECTION.size]):
        if tag != _HWCAPS_TAG:
            continue
        if offset + size > len(content) or size % 4:
            raise CacheError("is damaged: an extension lies outside of it")
        for (string,) in struct.iter_unpack("=I", content[offset : offset + size]):
            yield _text(_string(content, start + string))
