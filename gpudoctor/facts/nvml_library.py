"""The files of NVML's library: which of them there are, of which version, and whether one is CUDA's stub."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.host import Host
from gpudoctor.facts.library_files import LibraryFile, beside, library_at
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.raw import Absent
from gpudoctor.knowledge.driver_places import (
    APART_DIRECTORIES,
    DIRECTORIES_OF_SYSTEMS,
    DRIVER_CONTAINER_DIRECTORIES,
)
from gpudoctor.verdicts import Cited, Evidence, Unread

SONAME = "libnvidia-ml.so.1"


class NvmlLibraries(Fact, frozen=True):
    """All that were found; `unseen` is why others may lie where nobody looked. `nowhere` cites the places where there is none."""

    libraries: tuple[LibraryFile, ...]
    unseen: Unread | None
    nowhere: Cited

    @classmethod
    def gather(cls, desk: Desk) -> "NvmlLibraries | Unread":
        """The name that programs load in each directory, and the other versions beside it."""
        loader, host = desk.get(LoaderDirectories), desk.get(Host)
        if isinstance(loader, Unread):
            return loader
        system = DIRECTORIES_OF_SYSTEMS.get((None if isinstance(host, Unread) else host.os_id) or "", ())
        found: list[LibraryFile] = []
        unseen: list[Unread] = []
        nowhere: list[Evidence] = []
        for directory in loader.directories + APART_DIRECTORIES:
            if directory == "/usr/lib" and any(library.path.startswith("/usr/lib64/") for library in found):
                # Where there is a /usr/lib64, /usr/lib holds what is of 32 bits (Filesystem Hierarchy Standard, /usr/libqual).
                continue
            library = library_at(desk.raw, f"{directory}/{SONAME}", by_name=directory in loader.directories)
            needed = directory in loader.directories or directory in DRIVER_CONTAINER_DIRECTORIES + system
            match library:
                case LibraryFile():
                    found += [library, *beside(desk.raw, library, "libnvidia-ml.so.")]
                case Unread() if needed:
                    unseen.append(library)
                case Absent() if needed:
                    nowhere.append(library.evidence)
                case Evidence():
                    nowhere.append(library)
        return cls(libraries=_of_the_node(found), unseen=unseen[0] if unseen else None, nowhere=tuple(nowhere))

    @property
    def by_name(self) -> LibraryFile | None:
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


def _of_the_node(found: list[LibraryFile]) -> tuple[LibraryFile, ...]:
    """Those that programs of the host can get; a driver's own root counts where the host has none: nothing of the host loads from it."""
    own = {library.directory for library in found if library.by_name}
    return tuple(library for library in found if not own or library.directory in own)
