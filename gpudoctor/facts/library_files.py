"""Files of the driver's libraries: what the name that programs load leads to, of which version it is, and whose it is by its place."""

from gpudoctor.facts.desk import Citable
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

MOST_LINKS = 8

# The driver installs libNAME.so.VERSION and links to it (NVIDIA's README, "Installed components"); a toolkit's stub is for linking only and
# lies in a directory `stubs` (CUDA Installation Guide, "Stub libraries"); the libraries of a package for forward compatibility lie in
# /usr/local/cuda-X.Y/compat (https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, read 2026-11-30).
_VERSION = pattern(r"lib[\w-]+\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})")
_STUB = pattern(r"/stubs?/")
_COMPAT = pattern(r"/compat(?:\.[\w-]+)?/")


class LibraryFile(Citable, frozen=True):
    """One file. `path` is where it was found, `file` what it leads to; `version` is "" where its name does not tell.

    `by_name` says that programs find it there by the name that they load, in a directory of the loader.
    """

    path: str
    file: str
    version: str
    stub: bool
    by_name: bool

    @property
    def compat(self) -> bool:
        """Whether it is of a package for forward compatibility."""
        return _COMPAT.search(self.path) is not None or _COMPAT.search(self.file) is not None

    @property
    def directory(self) -> str:
        """The directory it was found in."""
        return self.path.rpartition("/")[0]

    @property
    def evidence(self) -> Evidence:
        """Where it is and where that leads."""
        return self.read_from["path"]


def version_of(path: str) -> str:
    """The driver's version in a file's name, "" where it has none."""
    version = _VERSION.fullmatch(path.rpartition("/")[2])
    return version[1] if version else ""


def library_at(raw: Raw, path: str, *, by_name: bool, root: str = "") -> LibraryFile | Evidence | Absent | Unread:
    """What a library's name leads to, links followed one by one: Debian's lead through /etc/alternatives.

    Evidence is that of an empty file; absolute links lead inside `root`.
    """
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
        file = f"{root}{entry.to}" if entry.to.startswith("/") else f"{file.rpartition('/')[0]}/{entry.to}"
    else:
        return Unread(Why.UNREADABLE, path, "too many levels of symbolic links")
    return _library(path, file, by_name=by_name)


def beside(raw: Raw, loaded: LibraryFile, name: str) -> list[LibraryFile]:
    """Versions in the same directory that no link leads to: ldconfig links the name to the newest of them (ldconfig(8)).

    `name` is how the library's files begin: `libcuda.so.`.
    """
    directory = loaded.directory
    listing = raw.listing(directory, begin=name)
    names = listing.names if isinstance(listing, Listing) else ()
    others = [name for name in names if (version := version_of(name)) and version != loaded.version]
    paths = [f"{directory}/{name}" for name in others if not _is_empty(raw.entry(f"{directory}/{name}", follow=True))]
    return [_library(path, path, by_name=False) for path in paths]


def _is_empty(entry: Entry | Absent | Unread) -> bool:
    """A file of no length, or a link that leads nowhere."""
    return isinstance(entry, Absent) or (isinstance(entry, Entry) and entry.size == 0)


def _library(path: str, file: str, *, by_name: bool) -> LibraryFile:
    version = _VERSION.search(file.rpartition("/")[2])
    shows = f"-> {file}" if file != path else "exists"
    return LibraryFile(
        path=path,
        file=file,
        version=version[1] if version else "",
        stub=_STUB.search(file) is not None,
        by_name=by_name,
        read_from={"path": Evidence(path, shows)},
    )
