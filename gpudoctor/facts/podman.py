"""Podman as it would start GPU containers: containers.conf of the system, OCI hooks and CDI specs.

The files and their order: containers.conf(5); go.podman.io/common pkg/config/new.go, systemConfigs. A later one overrides key by key,
of the tables entry by entry. What a user adds in the own home, and the environment (CONTAINERS_CONF), is not looked at.
"""

from typing import Any

from msgspec import Struct

from gpudoctor.facts.config_text import Document, Malformed, parse_toml_of, well_formed
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS, GpuSpecs, read_specs
from gpudoctor.facts.oci_hooks import DEFAULT_FOLDER, HookFolders, read_hooks
from gpudoctor.facts.programs import Located, any_of, locate
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.facts.software import PODMAN, Software, Version
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

PROGRAMS = ("/usr/bin/podman", "/usr/local/bin/podman")
FILES = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
DROP_INS = "/etc/containers/containers.conf.d"
CDI_FOLDERS_SINCE = (5, 5)
"""libpod takes cdi_spec_dirs since podman 5.5.0 (libpod/options.go, WithCDISpecDirs); before, it looks into the default folders only."""


class NvidiaRuntime(Struct, frozen=True):
    """An OCI runtime that is NVIDIA's: its name, where the file names its program, and where that is."""

    name: str
    where: str
    program: Located
    is_default: bool

    @property
    def evidence(self) -> Evidence:
        """What the file says."""
        default = "the default runtime, " if self.is_default else ""
        return Evidence(self.where, f"{default}runtimes.{self.name} is {self.program.name}")


class PodmanSetup(Struct, frozen=True):
    """What makes GPUs reach containers of Podman. `refused` is the first file that it does not take, `read` those that it does."""

    read: tuple[str, ...]
    runtimes: tuple[NvidiaRuntime, ...]
    hooks: HookFolders
    specs: GpuSpecs
    refused: Malformed | None
    unread: Unread | None


class PodmanConfig(Fact, frozen=True):
    """`setup` is None where Podman is not installed."""

    setup: PodmanSetup | None

    @property
    def subject(self) -> Subject:
        """Podman, which has no daemon: each command reads all this anew."""
        return Subject(SubjectKind.SERVICE, "podman")

    @classmethod
    def gather(cls, desk: Desk) -> "PodmanConfig | Unread":
        """Only where a podman is installed is anything else looked at."""
        program = any_of(desk.raw, PROGRAMS)
        if isinstance(program.path, Unread):
            return program.path
        setup = _setup(desk) if program.found else None
        return cls(setup=setup, read_from={"installed": program.evidence[0]})


class _Engine:
    """The table `engine` as it comes out of several files."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.runtime = ""
        self.runtimes: dict[str, tuple[str, list[str]]] = {}
        self.lists: dict[str, list[str]] = {}
        self.appending: set[str] = set()
        self.refused: Malformed | None = None
        self.unread: Unread | None = None

    def take(self, file: TextFile) -> None:
        if self.refused is not None:
            return
        document = parse_toml_of(file, _wrong_type)
        if isinstance(document, Unread):
            self.unread = document
        elif isinstance(document, Malformed):
            self.refused = document
        else:
            self.read.append(file.where)
            self._merge(document.get("engine", {}), file.where)

    def _merge(self, engine: Document, where: str) -> None:
        self.runtime = engine.get("runtime", self.runtime)
        for name, paths in engine.get("runtimes", {}).items():
            self.runtimes[well_formed(name)] = (where, paths)
        for key in _LISTS:
            if key in engine:
                self._list(key, engine[key])

    def _list(self, key: str, values: list[Any]) -> None:
        """`{append = true}` among the words adds them to the earlier ones, then and later (containers.conf(5), "Appending")."""
        for mark in (value for value in values if isinstance(value, dict)):
            (self.appending.add if mark.get("append") else self.appending.discard)(key)
        words = [value for value in values if isinstance(value, str)]
        self.lists[key] = self.lists.get(key, []) + words if key in self.appending else words


_LISTS = ("hooks_dir", "cdi_spec_dirs")


def _setup(desk: Desk) -> PodmanSetup:
    raw, engine = desk.raw, _Engine()
    engine.lists["hooks_dir"] = [DEFAULT_FOLDER]
    listing = raw.listing(DROP_INS)
    names = [name for name in listing.names if name.endswith(".conf")] if isinstance(listing, Listing) else []
    unread = listing if isinstance(listing, Unread) else None
    if isinstance(listing, Listing) and not listing.complete:
        unread = Unread(Why.NOT_RECORDED, DROP_INS, "was recorded in part only")
    for path in (*FILES, *(f"{DROP_INS}/{name}" for name in names)):
        file = raw.read(path)
        if isinstance(file, Unread):
            unread = file
        elif not isinstance(file, Absent):
            engine.take(file)
    return PodmanSetup(
        read=tuple(engine.read),
        runtimes=tuple(_runtime(raw, engine, name) for name in _nvidia_names(engine)),
        hooks=read_hooks(raw, engine.lists["hooks_dir"]),
        specs=read_specs(raw, _spec_folders(desk, engine)),
        refused=engine.refused,
        unread=engine.unread or unread,
    )


def _nvidia_names(engine: _Engine) -> list[str]:
    names = [name for name in engine.runtimes if "nvidia" in name]
    return names if engine.runtime in names or "nvidia" not in engine.runtime else [*names, engine.runtime]


def _runtime(raw: Raw, engine: _Engine, name: str) -> NvidiaRuntime:
    """Of its paths the first that is there counts, then its name on PATH (libpod/oci_conmon_common.go, newConmonOCIRuntime).

    A default runtime that is no path must be in the table (libpod/runtime.go).
    """
    if name not in engine.runtimes and "/" not in name:
        nowhere = Located(name, None, (Evidence(engine.read[-1], f"runtimes does not define {name}"),))
        return NvidiaRuntime(name, engine.read[-1], nowhere, is_default=True)
    where, paths = engine.runtimes.get(name, (engine.read[-1], []))
    found = [locate(raw, path) for path in (*paths, name)]
    program = next((place for place in found if place.found), None)
    unread = next((place for place in found if isinstance(place.path, Unread)), None)
    return NvidiaRuntime(name, where, program or unread or found[0], name == engine.runtime)


def _spec_folders(desk: Desk, engine: _Engine) -> tuple[str, ...]:
    named = tuple(engine.lists.get("cdi_spec_dirs", DEFAULT_FOLDERS))
    if named == DEFAULT_FOLDERS:
        return named
    software = desk.get(Software)
    version = software if isinstance(software, Unread) else software.of(PODMAN)
    return DEFAULT_FOLDERS if isinstance(version, Version) and version.before(*CDI_FOLDERS_SINCE) else named


def _wrong_type(document: Document) -> str | None:
    """What Go's decoder refuses in the settings that are read here."""
    engine = document.get("engine", {})
    if not isinstance(engine, dict):
        return f"engine is {engine!r}, not a table"
    if not isinstance(engine.get("runtime", ""), str):
        return f"engine.runtime is {engine['runtime']!r}, not a string"
    for key in _LISTS:
        values = engine.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str | dict) for value in values):
            return f"engine.{key} is {values!r}, not a list of strings"
    runtimes = engine.get("runtimes", {})
    if not isinstance(runtimes, dict):
        return f"engine.runtimes is {runtimes!r}, not a table"
    for name, paths in runtimes.items():
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            return f"engine.runtimes.{name} is {paths!r}, not a list of paths"
    return None
