"""The toolkit's programs where its packages and the GPU Operator put them, and which of them should be there."""

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw
from gpudoctor.facts.software import Software, Version
from gpudoctor.facts.toolkit_config import OPERATOR_FOLDER
from gpudoctor.verdicts import Cited, Evidence, Unread

BIN = "/usr/bin"
RUNTIME, HOOK = "nvidia-container-runtime", "nvidia-container-runtime-hook"
CLI, CTK, CDI_HOOK = "nvidia-container-cli", "nvidia-ctk", "nvidia-cdi-hook"
LIBRARY = "libnvidia-container.so.1"
CDI_HOOK_SINCE = (1, 16, 0)
BASE_SINCE = (1, 11, 0)

# packaging/debian/*.install and packaging/rpm/SPECS of NVIDIA/nvidia-container-toolkit v1.10.0 to v1.20.0. The runtimes .cdi and .legacy
# are in -operator-extensions, which nobody needs without the Operator; the link nvidia-container-toolkit is made by postinst.
_OF_PACKAGE = {
    "nvidia-container-toolkit-base": (RUNTIME, CTK, CDI_HOOK),
    "nvidia-container-toolkit": (HOOK,),
    "libnvidia-container-tools": (CLI,),
}
_OF_OPERATOR = (RUNTIME, CLI, CTK)
"""What cmd/nvidia-ctk-installer installs by the same name in every release, each a wrapper of NAME.real."""


class Wanted(Struct, frozen=True):
    """A program that should be there, why, and what was found."""

    program: str
    because: Cited
    located: Located


class ToolkitPrograms(Fact, frozen=True):
    """`wanted` are those of the packages or of what leans on them; `seen` whether any is there at all, `unseen` why that is not known.

    `operators` are the missing names of the Operator's folder, none where it is not there or was not seen as a whole.
    """

    wanted: tuple[Wanted, ...]
    seen: bool
    unseen: Unread | None = None
    operators: tuple[str, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "ToolkitPrograms | Unread":
        """Nothing more is looked for where neither a program nor the Operator's folder is there."""
        raw = desk.raw
        first = {name: locate(raw, f"{BIN}/{name}") for name in (RUNTIME, HOOK, CTK, CLI)}
        folder = raw.listing(OPERATOR_FOLDER)
        software = desk.get(Software)
        packages = {} if isinstance(software, Unread) or isinstance(software.packages, Unread) else software.packages
        wanted = [*_by_package(raw, dict(packages)), *_by_each_other(desk, first, dict(packages))]
        unread = [one.path for one in first.values() if isinstance(one.path, Unread)]
        seen = any(one.found for one in first.values()) or isinstance(folder, Listing)
        return cls(
            wanted=tuple(wanted),
            seen=seen,
            unseen=None if seen or wanted else next(iter(unread), folder if isinstance(folder, Unread) else None),
            operators=_missing(folder),
            read_from={
                "seen": next((one.evidence[0] for one in first.values() if one.found), _shown(folder)),
                "folder": _shown(folder),
            },
        )


def _shown(folder: Listing | Absent | Unread) -> Evidence:
    names = ", ".join(folder.names[:12]) if isinstance(folder, Listing) else folder.detail
    return Evidence(OPERATOR_FOLDER, names or "is empty")


def _missing(folder: Listing | Absent | Unread) -> tuple[str, ...]:
    """A listing that is not complete shows nothing to be missing; an empty folder is what an uninstalled toolkit leaves."""
    if not isinstance(folder, Listing) or not folder.complete or not folder.names:
        return ()
    wrapped = any(name.endswith(".real") for name in folder.names)
    wanted = [*_OF_OPERATOR, *(f"{name}.real" for name in _OF_OPERATOR if wrapped)]
    return tuple(name for name in wanted if name not in folder.names)


def _by_package(raw: Raw, packages: dict[str, Version]) -> list[Wanted]:
    wanted: list[Wanted] = []
    for package, programs in _OF_PACKAGE.items():
        version = packages.get(package)
        if version is None:
            continue
        for program in programs:
            if program == CDI_HOOK and version.before(*CDI_HOOK_SINCE):
                continue
            if program == HOOK and version.before(*BASE_SINCE):
                continue
            wanted.append(Wanted(program, version.cite("version"), locate(raw, f"{BIN}/{program}")))
    return wanted


def _by_each_other(desk: Desk, first: dict[str, Located], packages: dict[str, Version]) -> list[Wanted]:
    """The hook runs nvidia-container-cli, which loads its library (cmd/nvidia-container-runtime-hook/main.go; libnvidia-container)."""
    wanted: list[Wanted] = []
    if first[HOOK].found and "libnvidia-container-tools" not in packages:
        wanted.append(Wanted(CLI, first[HOOK].evidence, first[CLI]))
    library = _library(desk) if first[CLI].found else None
    # Bottlerocket and others keep libraries in places of their own: only a package says that it must be in the usual ones.
    if library is not None and (library.found or "libnvidia-container1" in packages):
        wanted.append(Wanted(LIBRARY, first[CLI].evidence, library))
    return wanted


def _library(desk: Desk) -> Located:
    loader = desk.get(LoaderDirectories)
    folders = () if isinstance(loader, Unread) else loader.directories
    seen: list[Evidence] = []
    unread: Unread | None = loader if isinstance(loader, Unread) else None
    for folder in folders:
        entry = desk.raw.entry(f"{folder}/{LIBRARY}", follow=True)
        if isinstance(entry, Entry):
            return Located(LIBRARY, entry.path, (Evidence(f"{folder}/{LIBRARY}", "exists"),))
        if isinstance(entry, Unread):
            unread = unread or entry
        else:
            seen.append(entry.evidence)
    return Located(LIBRARY, unread, tuple(seen))
