"""The files of NVML's library: which of them there are, of which version, and whether one is CUDA's stub."""

import re

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.host import Host
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw
from gpudoctor.knowledge.driver_places import (
    APART_DIRECTORIES,
    DIRECTORIES_OF_SYSTEMS,
    DRIVER_CONTAINER_DIRECTORIES,
)
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

SONAME = "libnvidia-ml.so.1"
MOST_LINKS = 8

# The driver installs libnvidia-ml.so.VERSION and links to it (NVIDIA's README, "Installed components"); a toolkit's stub is for linking
# only and lies in a directory `stubs` (CUDA Installation Guide, "Stub libraries").
_VERSION = re.compile(r"libnvidia-ml\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})")
_STUB = re.compile(r"/stubs?/")


class NvmlLibrary(Citable, frozen=True):
    """One file. `path` is where it was found, `file` what it leads to; `version` is "" where its name does not tell.

    `by_name` says that programs find it as libnvidia-ml.so.1 in a directory of the loader.
    """

    path: str
    file: str
    version: str
    stub: bool
    by_name: bool

    @property
    def evidence(self) -> Evidence:
        """Where it is and where that leads."""
        return self.read_from["path"]


class NvmlLibraries(Fact, frozen=True):
    """All that were found; `unseen` is why others may lie where nobody looked. `nowhere` cites the places where there is none."""

    libraries: tuple[NvmlLibrary, ...]
    unseen: Unread | None
    nowhere: Cited

    @classmethod
    def gather(cls, desk: Desk) -> "NvmlLibraries | Unread":
        """The name that programs load in each directory, and the other versions beside it."""
        loader, host = desk.get(LoaderDirectories), desk.get(Host)
        if isinstance(loader, Unread):
            return loader
        system = DIRECTORIES_OF_SYSTEMS.get((None if isinstance(host, Unread) else host.os_id) or "", ())
        found: list[NvmlLibrary] = []
        unseen: list[Unread] = []
        nowhere: list[Evidence] = []
        for directory in loader.directories + APART_DIRECTORIES:
            if directory == "/usr/lib" and any(library.path.startswith("/usr/lib64/") for library in found):
                # Where there is a /usr/lib64, /usr/lib holds what is of 32 bits (Filesystem Hierarchy Standard, /usr/libqual).
                continue
            library = _loaded(desk.raw, directory, by_name=directory in loader.directories)
            needed = directory in loader.directories or directory in DRIVER_CONTAINER_DIRECTORIES + system
            match library:
                case NvmlLibrary():
                    found += [library, *_beside(desk.raw, directory, library)]
                case Unread() if needed:
                    unseen.append(library)
                case Absent() if needed:
                    nowhere.append(library.evidence)
                case Evidence():
                    nowhere.append(library)
        return cls(libraries=_of_the_node(found), unseen=unseen[0] if unseen else None, nowhere=tuple(nowhere))

    @property
    def by_name(self) -> NvmlLibrary | None:
        """The one that programs get, as far as directories tell: the loader's cache may order them otherwise."""
        return next((library for library in self.libraries if library.by_name), None)

    @property
    def version(self) -> str:
        """The version of the driver's library, "" where names do not tell or tell several."""
        versions = self.versions
        return versions[0] if len(versions) == 1 else ""

    @property
    def versions(self) -> tuple[str, ...]:
        """Every version that is there, in the order they were found."""
        return tuple(dict.fromkeys(library.version for library in self.libraries if library.version))

    @property
    def evidence(self) -> Cited:
        """One line a version."""
        seen: dict[str, Evidence] = {}
        for library in self.libraries:
            seen.setdefault(library.version or library.file, library.evidence)
        return tuple(seen.values())


def _of_the_node(found: list[NvmlLibrary]) -> tuple[NvmlLibrary, ...]:
    """Those that programs of the host can get; a driver's own root counts where the host has none: nothing of the host loads from it."""
    own = {directory for library in found if library.by_name for directory in (library.path.rpartition("/")[0],)}
    return tuple(library for library in found if not own or library.path.rpartition("/")[0] in own)


def _loaded(raw: Raw, directory: str, *, by_name: bool) -> NvmlLibrary | Evidence | Absent | Unread:
    """What libnvidia-ml.so.1 is there, links followed one by one: Debian's lead through /etc/alternatives."""
    path = f"{directory}/{SONAME}"
    file = path
    for _ in range(MOST_LINKS):
        entry = raw.entry(file)
        if isinstance(entry, Absent):
            # A link that leads nowhere is a library that is not there.
            return Absent(path)
        if isinstance(entry, Unread):
            if file == path or entry.why is not Why.NOT_RECORDED:
                return entry
            break
        if entry.type is not EntryType.LINK or not entry.to:
            if entry.size == 0:
                # Left in an image that was built under NVIDIA's runtime, which mounts over it (libnvidia-container#140).
                return Evidence(path, "is an empty file" if file == path else f"-> {file}, an empty file")
            break
        file = entry.to if entry.to.startswith("/") else f"{file.rpartition('/')[0]}/{entry.to}"
    else:
        return Unread(Why.UNREADABLE, path, "too many levels of symbolic links")
    return _library(path, file, by_name=by_name)


def _beside(raw: Raw, directory: str, loaded: NvmlLibrary) -> list[NvmlLibrary]:
    """Versions in the same directory that no link leads to: ldconfig links the name to the newest of them (ldconfig(8))."""
    listing = raw.listing(directory, begin="libnvidia-ml.so.")
    names = listing.names if isinstance(listing, Listing) else ()
    others = [name for name in names if (version := _VERSION.fullmatch(name)) and version[1] != loaded.version]
    paths = [f"{directory}/{name}" for name in others if not _is_empty(raw.entry(f"{directory}/{name}", follow=True))]
    return [_library(path, path, by_name=False) for path in paths]


def _is_empty(entry: Entry | Absent | Unread) -> bool:
    """A file of no length, or a link that leads nowhere."""
    return isinstance(entry, Absent) or (isinstance(entry, Entry) and entry.size == 0)


def _library(path: str, file: str, *, by_name: bool) -> NvmlLibrary:
    version = _VERSION.search(file.rpartition("/")[2])
    shows = f"-> {file}" if file != path else "exists"
    return NvmlLibrary(
        path=path,
        file=file,
        version=version[1] if version else "",
        stub=_STUB.search(file) is not None,
        by_name=by_name,
        read_from={"path": Evidence(path, shows)},
    )
