"""What slurmd stands on: the files that gres.conf names, its plugin for finding GPUs, and how systemd starts it.

gres.conf(5), slurm.conf(5) (PluginDir), systemd.unit(5) (where units and drop-ins lie), slurm.schedmd.com/cgroup_v2.html (Delegate=).
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.boot import in_words
from gpudoctor.facts.docker_units import FOLDERS
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile
from gpudoctor.facts.slurm_gres import Detection, GresRecord
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

PLUGINS = (
    "/usr/lib64/slurm",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/x86_64-linux-gnu/slurm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm",
    "/usr/lib/slurm",
    "/opt/slurm/lib/slurm",
    "/usr/local/lib/slurm",
)
"""SchedMD's RPMs; Debian's packages; SchedMD's for Debian; builds of one's own (slurm.spec, debian/rules of SchedMD/slurm @284c3b95)."""
ALWAYS = "gpu_generic.so"
"""Comes with every Slurm since 20.11, whatever it was built with."""
UNIT = "slurmd.service"

_DELEGATE = pattern(r"^[ \t]*Delegate[ \t]*=(.*)$", re.MULTILINE)
_NUMBER = pattern(r"/dev/nvidia(\d{1,5})")


class Plugin(Struct, frozen=True):
    """The plugin that AutoDetect takes: what is at its path, None where the folder of plugins is not known, and what was looked at."""

    name: str
    found: Entry | Absent | Unread | None
    seen: Cited = ()


class Devices(Struct, frozen=True):
    """What is at the paths of File= and MultipleFiles=."""

    by_path: Mapping[str, Entry | Absent | Unread]

    @property
    def missing(self) -> tuple[str, ...]:
        """Paths at which nothing is."""
        return tuple(path for path, found in self.by_path.items() if isinstance(found, Absent))

    @property
    def unseen(self) -> Unread | None:
        """Why it is not known what is at one of them."""
        return next((found for found in self.by_path.values() if isinstance(found, Unread)), None)


class Delegation(Struct, frozen=True):
    """Delegate= of slurmd.service; `value` is None where no file sets it."""

    value: str | None
    evidence: Evidence


def minor_of(path: str) -> int | None:
    """The number in a GPU's node's name."""
    found = _NUMBER.fullmatch(path)
    return int(found[1]) if found else None


def look_at(raw: Raw, records: Iterable[GresRecord]) -> Devices:
    """One lstat for each file."""
    paths = dict.fromkeys(path for record in records for path in record.files)
    return Devices({path: raw.entry(path, follow=True) for path in paths})


def shown(path: str, found: Entry | Absent | Unread) -> Evidence:
    """What is at one path."""
    if not isinstance(found, Entry):
        return found.evidence if isinstance(found, Absent) else Evidence(path, found.detail)
    since = f", made {in_words(found.mtime)}" if found.mtime is not None else ""
    return Evidence(found.where, f"{found.type.words} {found.major}:{found.minor}{since}")


def find_plugin(raw: Raw, detection: Detection, setting: str, program: str) -> Plugin | None:
    """That of the kind that is to detect; `full` tries what there is. None where none is needed."""
    if detection.kind not in ("nvml", "nvidia"):
        return None
    name = f"gpu_{detection.kind}.so"
    for folder in _folders(setting, program):
        there = raw.entry(f"{folder}/{ALWAYS}", follow=True)
        found = raw.entry(f"{folder}/{name}", follow=True) if isinstance(there, Entry) else there
        if isinstance(there, Entry):
            shows = found.detail if not isinstance(found, Entry) else "exists"
            return Plugin(name, found, (Evidence(f"{folder}/{name}", shows), Evidence(there.where, "exists")))
        if isinstance(there, Unread) and there.why is not Why.NOT_RECORDED:
            return Plugin(name, there)
    return Plugin(name, None)


def _folders(setting: str, program: str) -> Iterator[str]:
    """As slurm.conf says, else beside the program, else where packages put them."""
    yield from (folder for folder in setting.split(":") if folder.startswith("/"))
    if setting:
        return
    prefix = program.rpartition("/sbin/")[0]
    if program.startswith("/") and prefix not in ("", "/usr"):
        yield from (f"{prefix}/lib64/slurm", f"{prefix}/lib/slurm")
    yield from PLUGINS


def delegation(raw: Raw) -> Delegation | Unread | None:
    """The last that the unit and its drop-ins say; None where there is no such unit."""
    said: list[tuple[str, str]] = []
    unit: TextFile | None = None
    for folder in FOLDERS:
        file = raw.read(f"{folder}/{UNIT}")
        if isinstance(file, Unread):
            return file
        if isinstance(file, TextFile):
            unit = file
            break
    if unit is None:
        return None
    said += [(unit.where, value) for value in _DELEGATE.findall(unit.text)]
    for path in _drop_ins(raw):
        file = raw.read(path)
        if isinstance(file, Unread):
            return file
        said += [(file.where, value) for value in _DELEGATE.findall(file.text)] if isinstance(file, TextFile) else []
    if not said:
        return Delegation(None, Evidence(unit.where, "sets no Delegate="))
    value = said[-1][1].strip(" \t")
    return Delegation(value, Evidence(said[-1][0], f"Delegate={value[:200]}"))


def _drop_ins(raw: Raw) -> tuple[str, ...]:
    """By name, whatever their folder; of two with the same name the first folder's counts."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        listing = raw.listing(f"{folder}/{UNIT}.d")
        for name in listing.names if isinstance(listing, Listing) else ():
            if name.endswith(".conf"):
                found.setdefault(name, f"{folder}/{UNIT}.d/{name}")
    return tuple(found[name] for name in sorted(found))
