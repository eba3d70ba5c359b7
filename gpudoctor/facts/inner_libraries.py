"""The driver's libraries as a process finds them: by LD_LIBRARY_PATH, in the loader's folders, and those that are mapped already.

Looked at through /proc/PID/root in a child, for a file system that a container mounted may never answer; nothing is opened.

Sources: ld.so(8) (LD_LIBRARY_PATH comes before the cache, the cache before the trusted folders), proc_pid_maps(5), proc_pid_root(5),
NVIDIA's README "Installed components" (libcuda.so.VERSION and a link of its SONAME), the CUDA Installation Guide ("stubs": for linking
only), and https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html (/usr/local/cuda-X.Y/compat), read 2026-11-30.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Reading
from gpudoctor.facts.loader_cache import CACHE, LoaderCache, cache_of
from gpudoctor.facts.mounts import MountedLibrary
from gpudoctor.facts.raw import Absent, Contents, Entry, EntryType, Raw, TextFile
from gpudoctor.knowledge.driver_places import LOADER_DIRECTORIES
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

CUDA, NVML = "libcuda", "libnvidia-ml"
TOOLKITS = "/usr/local"
"""Where toolkits lie, each with the compat libraries of its package: /usr/local/cuda-12.8/compat."""
MOST_HOPS = 8
MOST_PROCESSES = 16
"""Of so many processes of a workload the maps are read: whoever uses CUDA is rarely the shell that a container begins with."""

_VERSION = pattern(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})")
_STUB = pattern(r"/stubs?/")
_COMPAT = pattern(r"/compat(?:\.[\w-]+)?/")
_MAPPED = pattern(
    r"^\S+ \S+ \S+ \S+ \S+ +(/.*/(lib(?:cuda|cudart|nvidia-ml)\.so[.\d]*))(?: \(deleted\))?$", re.MULTILINE
)
_KEEP = r"/lib(?:cuda|cudart|nvidia-ml)\.so"
# Where the root file system has only usr/lib (usrmerge), these are links.
_MERGED = ("lib", "lib64", "bin", "sbin")


class InnerLibrary(Struct, frozen=True):
    """A library by the name that programs load: where it is found, the file that leads to, and the version that file is named after.

    `version` is "" where no name tells it. `by_variable` says that LD_LIBRARY_PATH leads to it.
    """

    name: str
    path: str
    file: str
    version: str
    by_variable: bool
    evidence: Evidence

    @property
    def stub(self) -> bool:
        """Whether it is made for linking only."""
        return _STUB.search(self.path) is not None or _STUB.search(self.file) is not None

    @property
    def compat(self) -> bool:
        """Whether it is of a package for forward compatibility."""
        return _COMPAT.search(self.path) is not None or _COMPAT.search(self.file) is not None


class MappedLibrary(Struct, frozen=True):
    """A library that a process has mapped: that is the one it uses, whatever else there is."""

    name: str
    path: str
    version: str
    pid: int
    evidence: Evidence

    @property
    def compat(self) -> bool:
        """Whether it is of a package for forward compatibility."""
        return _COMPAT.search(self.path) is not None

    @property
    def stub(self) -> bool:
        """Whether it is made for linking only."""
        return _STUB.search(self.path) is not None


class InnerLibraries(Citable, frozen=True):
    """What was found, in the order of the folders; `cached` are the paths that the loader's cache gives first, by name of library.

    `unlinked` are files of the driver beside which the name that programs load is missing; `compat` are those of packages for forward
    compatibility that nothing seen here leads to; `unseen` is why there may be more of the first kind.
    """

    found: tuple[InnerLibrary, ...]
    unlinked: tuple[InnerLibrary, ...]
    compat: tuple[InnerLibrary, ...]
    mapped: tuple[MappedLibrary, ...]
    folders: tuple[str, ...]
    cache: Reading[LoaderCache]
    cached: Mapping[str, str] = {}
    unseen: Unread | None = None
    unmapped: Unread | None = None

    def of(self, name: str) -> tuple[InnerLibrary, ...]:
        """Those of one name."""
        return tuple(one for one in self.found if one.name == name)

    def mapped_as(self, name: str) -> tuple[MappedLibrary, ...]:
        """The mapped ones of one name."""
        return tuple(one for one in self.mapped if one.name == name)

    def first(self, name: str) -> InnerLibrary | None:
        """The one that programs get: found by LD_LIBRARY_PATH, or by the cache, or all others being of one version, any.

        None where it cannot be told.
        """
        found = self.of(name)
        ahead = next((one for one in found if one.by_variable), None)
        ahead = ahead or next((one for one in found if one.path == self.cached.get(name)), None)
        if ahead is not None or not found:
            return ahead
        alike = {(one.version, one.stub, one.compat) for one in found}
        return found[0] if len(alike) == 1 else None


def look_for_libraries(
    raw: Raw, pid: int, pids: Sequence[int], search: Sequence[str], mounted: Sequence[MountedLibrary]
) -> InnerLibraries:
    """The libraries inside the root of a process. `search` are the folders of its LD_LIBRARY_PATH, `mounted` what was put inside."""
    look = _Look(raw, pid)
    ahead = {folder: look.folder(folder) for folder in dict.fromkeys(search)}
    own = [library.path.rpartition("/")[0] for library in mounted]
    cache, cached = look.cache()
    others = dict.fromkeys([*own, *(path.rpartition("/")[0] for path in cached.values()), *LOADER_DIRECTORIES])
    behind = [folder for folder in others if folder not in ahead.values()]
    versions = {library.path: library.version for library in mounted}
    found: list[InnerLibrary] = []
    unlinked: list[InnerLibrary] = []
    unseen: Unread | None = None
    for name in (CUDA, NVML):
        seen = look.contents([*ahead.values(), *behind], f"{name}.so")
        for folder, contents in seen.items():
            if isinstance(contents, Absent) and folder in own:
                what = "holds what is mounted there, but was not recorded"
                unseen = unseen or Unread(Why.NOT_RECORDED, contents.path, what)
            elif isinstance(contents, Unread):
                unseen = unseen or contents
            elif isinstance(contents, Contents):
                linked, alone = look.libraries(name, folder, contents, versions, by_variable=folder in ahead.values())
                found += linked
                unlinked += [] if linked else alone
    mapped, unmapped = mapped_libraries(raw, pids)
    return InnerLibraries(
        found=tuple(found),
        unlinked=tuple(unlinked),
        compat=tuple(look.compat({one.path for one in found})),
        mapped=mapped,
        folders=(*ahead.values(), *behind),
        cache=cache,
        cached=cached,
        unseen=unseen,
        unmapped=unmapped,
    )


class _Look:
    """Looks into folders below the root of one process, each once."""

    def __init__(self, raw: Raw, pid: int) -> None:
        self._raw = raw
        self._root = f"/proc/{pid}/root"
        self._known: dict[tuple[str, str], Entry | Absent | Unread] = {}

    def cache(self) -> tuple[Reading[LoaderCache], Mapping[str, str]]:
        """The loader's cache inside, and the path that it gives first for each library."""
        path = f"{self._root}{CACHE}"
        cache = cache_of(self._raw.read_blocking((path,))[path])
        firsts: dict[str, str] = {}
        for entry in () if isinstance(cache, Unread) else cache.libraries:
            name = entry.name.removesuffix(".so.1")
            if name in (CUDA, NVML) and name not in firsts and entry.of_64_bits and not entry.hwcaps:
                folder, _, file = entry.path.rpartition("/")
                firsts[name] = f"{self.folder(folder)}/{file}"
        return cache, firsts

    def contents(self, folders: Iterable[str], begin: str) -> Mapping[str, Contents | Absent | Unread]:
        """What begins so in folders, by their names inside."""
        wanted = [folder for folder in dict.fromkeys(folders) if folder.strip("/")]
        seen = self._raw.look_blocking(tuple(self._root + folder for folder in wanted), begin=begin)
        return {folder: seen[self._root + folder] for folder in wanted}

    def folder(self, folder: str, hops: int = MOST_HOPS) -> str:
        """Where a folder really lies: a look follows no link, and says of one on the way only that there is no such folder."""
        folder = posixpath.normpath(folder)
        parts = folder.strip("/").split("/")
        for at in range(1, len(parts)):
            parent = "/" + "/".join(parts[:at])
            entry = self._entry(parent, parts[at])
            if isinstance(entry, Entry) and entry.type is EntryType.LINK and entry.to and hops:
                target = posixpath.join(parent, entry.to, *parts[at + 1 :])
                return self.folder(target, hops - 1)
            if not isinstance(entry, Entry):
                break
        return f"/usr{folder}" if parts[0] in _MERGED else folder

    def _entry(self, parent: str, name: str) -> Entry | Absent | Unread:
        if (parent, name) not in self._known:
            seen = self.contents([parent], name).get(parent, Absent(parent))
            self._known[parent, name] = seen.at(name) if isinstance(seen, Contents) else seen
        return self._known[parent, name]

    def libraries(
        self, name: str, folder: str, contents: Contents, mounted: Mapping[str, str], *, by_variable: bool
    ) -> tuple[list[InnerLibrary], list[InnerLibrary]]:
        """The name that programs load, if it is there; and the driver's files in the same folder."""
        linked, alone = [], []
        for entry_name, entry in contents.entries.items():
            path = f"{folder}/{entry_name}"
            if entry_name == f"{name}.so.1":
                file = self._leads_to(path, entry)
                version = _version(file) or mounted.get(path, "")
                linked.append(self._library(name, path, file, version, entry, by_variable))
            elif (version := _version(entry_name)) and entry.type is not EntryType.LINK:
                alone.append(self._library(name, path, path, version, entry, by_variable))
        return linked, alone

    def _library(self, name: str, path: str, file: str, version: str, entry: Entry, by_variable: bool) -> InnerLibrary:
        shows = f"-> {entry.to}" if entry.to else f"is a {entry.type.words}"
        shows += f", which leads to {file}" if entry.to and posixpath.basename(file) != entry.to else ""
        return InnerLibrary(name, path, file, version, by_variable, Evidence(self._root + path, shows))

    def _leads_to(self, path: str, entry: Entry) -> str:
        """The file that a link leads to, over further links as Debian's alternatives."""
        for _ in range(MOST_HOPS):
            if entry.type is not EntryType.LINK or not entry.to:
                return path
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.to))
            if _version(path):
                return path
            further = self._entry(*posixpath.split(path))
            if not isinstance(further, Entry):
                return path
            entry = further
        return path

    def compat(self, known: set[str]) -> Iterable[InnerLibrary]:
        """Those of packages for forward compatibility that were not met yet."""
        seen = self.contents([TOOLKITS], "cuda").get(TOOLKITS)
        entries = seen.entries.items() if isinstance(seen, Contents) else ()
        folders = [f"{TOOLKITS}/{name}/compat" for name, entry in entries if entry.type is EntryType.DIR]
        for folder, contents in self.contents(folders, f"{CUDA}.so").items() if folders else ():
            if isinstance(contents, Contents) and f"{folder}/{CUDA}.so.1" not in known:
                linked, alone = self.libraries(CUDA, folder, contents, {}, by_variable=False)
                yield from linked or alone


def _version(path: str) -> str:
    found = _VERSION.search(path.rpartition("/")[2])
    return found[1] if found else ""


def mapped_libraries(raw: Raw, pids: Sequence[int]) -> tuple[tuple[MappedLibrary, ...], Unread | None]:
    """The libraries in the maps of some processes; reading them takes a lock of the process's memory that a stuck one may hold."""
    files = raw.read_blocking(tuple(f"/proc/{pid}/maps" for pid in pids[:MOST_PROCESSES]), keep=_KEEP)
    found: dict[tuple[int, str], MappedLibrary] = {}
    unread: Unread | None = None
    for pid, file in zip(pids, files.values(), strict=False):
        if isinstance(file, Unread):
            unread = unread or file
        for path, name in _MAPPED.findall(file.text) if isinstance(file, TextFile) else ():
            version = _version(path)
            shows = Evidence(f"/proc/{pid}/maps", f"has mapped {path}")
            found.setdefault((pid, path), MappedLibrary(name.partition(".so")[0], path, version, pid, shows))
    return tuple(found.values()), unread
