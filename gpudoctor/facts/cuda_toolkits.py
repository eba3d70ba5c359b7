"""CUDA toolkits on the node's disk: where NVIDIA's packages and installer put them, and Arch's package.

A toolkit says its version in version.json, before 11.1 in version.txt. A folder that holds nothing but `compat` is of a package for
forward compatibility (CUDA Compatibility guide: /usr/local/cuda-X.Y/compat), no toolkit.
"""

import json
from typing import Any

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

PLACE = "/usr/local"
ELSEWHERE = ("/opt/cuda",)
MOST = 32

_FOLDER = pattern(r"cuda(?:-(\d{1,2}\.\d{1,2}))?")
_TEXT = pattern(r"CUDA Version (\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)")
_VERSION = pattern(r"\d{1,2}\.\d{1,2}(?:\.\d{1,4})?")


class CudaToolkit(Struct, frozen=True):
    """One toolkit: its folder and its version, with where that was read."""

    path: str
    version: str
    evidence: Evidence


class CudaToolkits(Fact, frozen=True):
    """All of them by path; `unseen` is why there may be more."""

    toolkits: tuple[CudaToolkit, ...]
    unseen: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "CudaToolkits | Unread":
        """One listing, then a small file for each folder; links to a folder are not counted again."""
        raw = desk.raw
        found, unseen = _folders(raw)
        toolkits = []
        for path, named in found:
            one = _toolkit(raw, path, named)
            if isinstance(one, CudaToolkit):
                toolkits.append(one)
            elif isinstance(one, Unread):
                unseen = unseen or one
        return cls(toolkits=tuple(toolkits), unseen=unseen)


def _folders(raw: Raw) -> tuple[list[tuple[str, str]], Unread | None]:
    """Folders with the version in their names, "" where there is none."""
    listing = raw.listing(PLACE, begin="cuda")
    names = listing.names if isinstance(listing, Listing) else ()
    found = [(f"{PLACE}/{name}", match[1] or "") for name in names[:MOST] if (match := _FOLDER.fullmatch(name))]
    found += [(path, "") for path in ELSEWHERE]
    return found, listing if isinstance(listing, Unread) else None


def _toolkit(raw: Raw, path: str, named: str) -> CudaToolkit | Absent | Unread:
    entry = raw.entry(path)
    if isinstance(entry, Unread | Absent):
        # A recording may hold files of a folder without the folder itself.
        if isinstance(entry, Absent) or path in ELSEWHERE:
            return Absent(path)
    elif entry.type is not EntryType.DIR:
        return Absent(path)
    file = raw.read(f"{path}/version.json")
    if isinstance(file, TextFile) and (version := _of_json(file.text)):
        return CudaToolkit(path, version, Evidence(file.where, f"cuda {version}"))
    older = raw.read(f"{path}/version.txt") if not isinstance(file, TextFile) else file
    if isinstance(older, TextFile) and (said := _TEXT.search(older.text)):
        return CudaToolkit(path, said[1], Evidence(older.where, said[0]))
    compiler = raw.entry(f"{path}/bin/nvcc", follow=True)
    if named and isinstance(compiler, Entry):
        return CudaToolkit(path, named, Evidence(compiler.path, "exists, in a folder named after the version"))
    unread = [one for one in (file, older, compiler) if isinstance(one, Unread)]
    return unread[0] if unread else Absent(path)


def _of_json(text: str) -> str:
    try:
        said: Any = json.loads(text)
    except ValueError:
        return ""
    version = said.get("cuda", {}) if isinstance(said, dict) else {}
    number = version.get("version") if isinstance(version, dict) else None
    return number if isinstance(number, str) and _VERSION.fullmatch(number) else ""
