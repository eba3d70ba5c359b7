"""enroot as it would give GPUs to a container: through its hook 98-nvidia.sh, which calls nvidia-container-cli."""

import re

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.programs import SERVICE_PATH, Located, any_of, locate
from gpudoctor.facts.raw import Entry, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

PROGRAMS = ("/usr/bin/enroot", "/usr/local/bin/enroot")
CONFIG, FOLDER = "/etc/enroot/enroot.conf", "/etc/enroot"
"""ENROOT_SYSCONF_PATH of the packages (enroot doc/configuration.md); enroot.conf may name another one."""
CLI = "nvidia-container-cli"


class EnrootHook(Citable, frozen=True):
    """The hook script: enroot runs it only where it is executable, and leaves it out silently else (enroot src/common.sh, runparts)."""

    path: str
    mode: int | None


class EnrootSetup(Struct, frozen=True):
    """The hooks that call nvidia-container-cli, and where that is; `unread` is why there may be others."""

    folder: str
    hooks: tuple[EnrootHook, ...]
    cli: Located | None
    unread: Unread | None
    seen: Evidence


class Enroot(Fact, frozen=True):
    """`setup` is None where enroot is not installed."""

    setup: EnrootSetup | None

    @property
    def subject(self) -> Subject:
        """The program; it has no daemon."""
        return Subject(SubjectKind.SERVICE, "enroot")

    @classmethod
    def gather(cls, desk: Desk) -> "Enroot | Unread":
        """Only where enroot is installed are its hooks looked for."""
        program = any_of(desk.raw, PROGRAMS)
        if isinstance(program.path, Unread):
            return program.path
        return cls(setup=_setup(desk.raw) if program.found else None, read_from={"installed": program.evidence[0]})


def _setup(raw: Raw) -> EnrootSetup:
    folder = _folder(raw)
    if isinstance(folder, Unread):
        return EnrootSetup(FOLDER, (), None, folder, Evidence(folder.where, folder.detail))
    listing = raw.listing(folder)
    if not isinstance(listing, Listing):
        unread = listing if isinstance(listing, Unread) else None
        return EnrootSetup(folder, (), None, unread, Evidence(folder, listing.detail))
    unread = None if listing.complete else Unread(Why.NOT_RECORDED, folder, "was recorded in part only")
    hooks: list[EnrootHook] = []
    for name in listing.names:
        found = _hook(raw, f"{folder}/{name}") if name.endswith(".sh") and "nvidia" in name else None
        if isinstance(found, Unread):
            unread = found
        elif found is not None:
            hooks.append(found)
    seen = Evidence(folder, f"holds {', '.join(listing.names[:12])}" if listing.names else "is empty")
    return EnrootSetup(folder, tuple(hooks), locate(raw, CLI, SERVICE_PATH) if hooks else None, unread, seen)


def _folder(raw: Raw) -> str | Unread:
    """Where the hooks lie. Values of enroot.conf are evaluated by a shell: one that is more than a path is not told."""
    config = raw.read(CONFIG)
    if isinstance(config, Unread):
        return config
    text = config.text if isinstance(config, TextFile) else ""
    named = re.search(r"^[ \t]*ENROOT_SYSCONF_PATH[ \t=]+[\"']?([^\s\"']+)", text, re.MULTILINE)
    if named is not None and not re.fullmatch(r"/[\w./-]+", named[1]):
        return Unread(Why.NOT_ANSWERED, CONFIG, f"gives ENROOT_SYSCONF_PATH as {named[1]}")
    return f"{FOLDER if named is None else named[1].rstrip('/')}/hooks.d"


def _hook(raw: Raw, path: str) -> EnrootHook | Unread | None:
    file, entry = raw.read(path), raw.entry(path, follow=True)
    if isinstance(file, Unread):
        return file
    if not isinstance(file, TextFile) or CLI not in file.text:
        return None
    mode = entry.mode if isinstance(entry, Entry) else None
    shows = "calls nvidia-container-cli" if mode is None else f"mode {mode:04o}, calls nvidia-container-cli"
    return EnrootHook(path=path, mode=mode, read_from={"mode": Evidence(file.where, shows)})
