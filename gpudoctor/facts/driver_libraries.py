"""The driver's libraries as a program of the node would load them: by the loader's cache, else in its directories.

The loader takes the path that its cache gives; where that cannot be opened, or the cache has none, it looks into its own directories
(glibc, elf/dl-load.c, _dl_map_object; ld.so(8)). It knows the directories of ld.so.conf by the cache only. LD_LIBRARY_PATH and a program's
own paths come before all of that, and are a process's matter.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import DRIVER_ROOT
from gpudoctor.facts.driver import MODULES, NvidiaModule
from gpudoctor.facts.library_files import LibraryFile, library_at
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.loader_cache import CachedLibrary, LoaderCache, read_cache
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.knowledge.driver_places import APART_DIRECTORIES, TRUSTED_DIRECTORIES
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
JIT, NVVM, DEBUGGER = "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libcudadebugger.so.1"
NAMES = (CUDA, NVML, JIT, NVVM, DEBUGGER)
"""The names that programs and libcuda load (NVIDIA's README, "Installed components"). libnvidia-gpucomp and others are loaded by a name
that holds their version, and cannot be of another one."""

_LIBC = "/usr/lib64/libc.so.6"


class DriverLibrary(Struct, frozen=True):
    """One of the names. `loaded` is what programs get; `nowhere` cites where it was looked for in vain.

    `later` are other entries of the cache that come behind it, `of_32_bits` those that programs of 64 bits pass over; `next_first` is the
    path that a directory of ld.so.conf would give after the next ldconfig, "" where the cache would stay as it is.
    """

    name: str
    loaded: LibraryFile | Absent | Unread
    cached: CachedLibrary | None = None
    later: tuple[CachedLibrary, ...] = ()
    of_32_bits: tuple[CachedLibrary, ...] = ()
    nowhere: Cited = ()
    next_first: str = ""

    @property
    def evidence(self) -> Cited:
        """What the cache gives, and where that leads."""
        return ((self.cached.evidence,) if self.cached is not None else ()) + self.at_place

    @property
    def at_place(self) -> Cited:
        """Where it leads."""
        return (self.loaded.evidence,) if isinstance(self.loaded, LibraryFile) else self.nowhere


class DriverLibraries(Fact, frozen=True):
    """All of them by name. `apart` are those in a driver's own root, libcuda first, looked for where the host's are not the module's.

    `unseen_apart` is why there may be such ones; `for_guests` shows that the driver is the one for hosts of virtual GPUs.
    """

    libraries: Mapping[str, DriverLibrary]
    cache: Reading[LoaderCache]
    apart: tuple[LibraryFile, ...] = ()
    unseen_apart: Unread | None = None
    for_guests: Evidence | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "DriverLibraries | Unread":
        """The cache is read once; a name takes as many looks as it has links."""
        cache, loader, module = desk.get(LoaderCache), desk.get(LoaderDirectories), desk.get(NvidiaModule)
        # WSL2's is no place of this driver.
        named = () if isinstance(loader, Unread) else tuple(name for name in loader.directories if "/wsl/" not in name)
        search = _Search(desk.raw, cache, named)
        libraries = {name: search.library(name) for name in NAMES}
        version = None if isinstance(module, Unread) else module.version
        cuda = libraries[CUDA].loaded
        if isinstance(cuda, LibraryFile) and (cuda.version == version or not version):
            return cls(libraries=libraries, cache=cache)
        apart, unseen = _apart(desk.raw)
        guests = None if isinstance(cuda, LibraryFile) else _for_guests(desk.raw)
        return cls(libraries=libraries, cache=cache, apart=apart, unseen_apart=unseen, for_guests=guests)

    @property
    def cuda(self) -> DriverLibrary:
        """The library of CUDA."""
        return self.libraries[CUDA]

    @property
    def found(self) -> tuple[DriverLibrary, ...]:
        """Those that programs get."""
        return tuple(library for library in self.libraries.values() if isinstance(library.loaded, LibraryFile))


class _Search:
    """One search: in the cache, and in the directories."""

    def __init__(self, raw: Raw, cache: Reading[LoaderCache], named: tuple[str, ...]) -> None:
        self._raw = raw
        self._cache = None if isinstance(cache, Unread) else cache
        self._unread = cache if isinstance(cache, Unread) else None
        self._named = named

    def library(self, name: str) -> DriverLibrary:
        """What programs get by a name."""
        entries = self._cache.of(name) if self._cache is not None else ()
        wide = [entry for entry in entries if entry.of_64_bits]
        narrow = tuple(entry for entry in entries if not entry.of_64_bits)
        # What is for some processors only comes first on those; no driver has such libraries.
        plain = [entry for entry in wide if not entry.hwcaps]
        first = plain[0] if plain else None
        loaded, nowhere = self._first(name, first, narrow)
        at_cached = first if isinstance(loaded, LibraryFile) and first and loaded.path == first.path else None
        return DriverLibrary(
            name=name,
            loaded=loaded,
            cached=at_cached,
            later=tuple(entry for entry in wide if entry is not first),
            of_32_bits=narrow,
            nowhere=nowhere,
            next_first=self._next_first(name, plain) if name == CUDA and self._cache and self._cache.exists else "",
        )

    def _first(
        self, name: str, cached: CachedLibrary | None, narrow: tuple[CachedLibrary, ...]
    ) -> tuple[LibraryFile | Absent | Unread, Cited]:
        nowhere: list[Evidence] = []
        unseen: Unread | None = None
        for path in self._paths(name, cached):
            if any(_same(path, entry.path) for entry in narrow):
                continue
            match library := library_at(self._raw, path, by_name=True):
                case LibraryFile():
                    if unseen is not None and unseen.why is not Why.NOT_RECORDED:
                        return unseen, tuple(nowhere)
                    # The cache tells of what it gives for whom it is.
                    if (cached is None or path != cached.path) and self._of_32_bits(path):
                        continue
                    return self._unless_another(library, name), tuple(nowhere)
                case Unread():
                    if cached is not None and path == cached.path:
                        return library, tuple(nowhere)
                    unseen = library if unseen is None or unseen.why is Why.NOT_RECORDED else unseen
                case Absent():
                    nowhere.append(library.evidence)
                case Evidence():
                    nowhere.append(library)
        return unseen or Absent(name), tuple(nowhere)

    def _paths(self, name: str, cached: CachedLibrary | None) -> Iterator[str]:
        if cached is not None:
            yield cached.path
        for directory in TRUSTED_DIRECTORIES if self._cache is not None else self._named:
            yield f"{directory}/{name}"

    def _unless_another(self, library: LibraryFile, name: str) -> LibraryFile | Unread:
        """What ld.so.conf puts first; where another lies in a trusted directory, only the cache tells whether ldconfig has run since."""
        if self._unread is None or any(_same(library.directory, trusted) for trusted in TRUSTED_DIRECTORIES):
            return library
        for directory in TRUSTED_DIRECTORIES:
            other = library_at(self._raw, f"{directory}/{name}", by_name=True)
            hidden = isinstance(other, Unread) and other.why is not Why.NOT_RECORDED
            if hidden or (isinstance(other, LibraryFile) and other.version != library.version):
                return self._unread
        return library

    def _of_32_bits(self, path: str) -> bool:
        """Where libc of 64 bits lies in /usr/lib64, /usr/lib holds what is of 32 bits (Filesystem Hierarchy Standard, /usr/libqual)."""
        in_lib = path.rpartition("/")[0] in ("/usr/lib", "/lib")
        return in_lib and isinstance(self._raw.entry(_LIBC, follow=True), Entry)

    def _next_first(self, name: str, cached: list[CachedLibrary]) -> str:
        """What ld.so.conf names and the cache does not know yet, if it comes before what the cache has first."""
        for directory in self._named:
            if any(_same(directory, trusted) for trusted in TRUSTED_DIRECTORIES) or (
                cached and _same(f"{directory}/{name}", cached[0].path)
            ):
                return ""
            if isinstance(library_at(self._raw, f"{directory}/{name}", by_name=True), LibraryFile):
                return f"{directory}/{name}"
        return ""


def _for_guests(raw: Raw) -> Evidence | None:
    """The module that only the Virtual GPU Manager has: CUDA on such a host would take a merged driver (DualCoder/vgpu_unlock#10)."""
    modules = raw.read(MODULES)
    lines = modules.text.splitlines() if isinstance(modules, TextFile) else ()
    line = next((line for line in lines if line.startswith("nvidia_vgpu_vfio ")), None)
    return Evidence(MODULES, line) if line is not None else None


def _same(one: str, other: str) -> bool:
    """Whether two paths are one where /lib and /lib64 are links into /usr, as on every distribution that merged them."""
    return one.removeprefix("/usr") == other.removeprefix("/usr")


def _apart(raw: Raw) -> tuple[tuple[LibraryFile, ...], Unread | None]:
    """A containerised driver's, by the cache in its root as NVIDIA's container toolkit reads it, else in its directories; or an image's."""
    cache = read_cache(raw, DRIVER_ROOT)
    if not isinstance(cache, Unread) and cache.of(CUDA):
        firsts = [next((one for one in cache.of(name) if one.of_64_bits), None) for name in NAMES]
        paths = [f"{DRIVER_ROOT}{first.path}" for first in firsts if first is not None]
        found = tuple(_files(raw, paths))
        if found and found[0].path.endswith(f"/{CUDA}"):
            return found, None
    unseen: Unread | None = None
    for directory in APART_DIRECTORIES:
        cuda = library_at(raw, f"{directory}/{CUDA}", by_name=False, root=_root(directory))
        if isinstance(cuda, LibraryFile):
            return (cuda, *_files(raw, [f"{directory}/{name}" for name in NAMES if name != CUDA])), None
        # Recordings speak of the places of other systems only where they were looked at.
        if isinstance(cuda, Unread) and (directory.startswith(DRIVER_ROOT) or cuda.why is not Why.NOT_RECORDED):
            unseen = unseen or cuda
    return (), unseen


def _files(raw: Raw, paths: list[str]) -> Iterator[LibraryFile]:
    for path in paths:
        library = library_at(raw, path, by_name=False, root=_root(path))
        if isinstance(library, LibraryFile):
            yield library


def _root(path: str) -> str:
    return DRIVER_ROOT if path.startswith(f"{DRIVER_ROOT}/") else ""
