"""CRI-O as it would start GPU containers: its handlers, its hooks, its CDI specs, and what lies where it does not look."""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.crio_files import DROP_INS, CrioFiles, Handler, Setting, read_files, said
from gpudoctor.facts.daemons import Daemon, Daemons, Program, changed
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS, GpuSpecs, read_specs
from gpudoctor.facts.oci_hooks import DEFAULT_FOLDER, HookFolders, read_hooks
from gpudoctor.facts.programs import Located, any_of, locate
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile
from gpudoctor.facts.software import CRIO, Software, Version
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

OTHER_FOLDER = "/etc/crio/conf.d"
"""Where nvidia-ctk of 1.18 and 1.19 puts its file, which CRI-O does not read (nvidia-container-toolkit 584f68e, fixed in 1.20.0)."""
CDI_SINCE = (1, 24)
"""cri-o a0d3fd8 ("config,cli: add configuration for CDI"); from then on CDI is always on."""
_MOST_STRAYS = 4
_PLAIN = ("crun", "runc", "youki")
"""A handler that is called nvidia and runs one of these brings no GPU by itself."""


class CrioRuntime(Struct, frozen=True):
    """A handler that is NVIDIA's: its program, and its monitor where it names one."""

    handler: Handler
    program: Located
    monitor: Located | None
    """None where it names none."""

    @property
    def evidence(self) -> Cited:
        """What the file says, and what was seen of the program."""
        return (said(self.handler), *self.program.evidence[:2])

    @property
    def shadows(self) -> str:
        """The earlier file whose table of this name it replaced, "" for none."""
        return self.handler.replaced[-1] if self.handler.replaced else ""


class CrioSetup(Struct, frozen=True):
    """What makes GPUs reach containers of CRI-O. `specs` is None where the installed version knows no CDI."""

    files: CrioFiles
    runtimes: tuple[CrioRuntime, ...]
    hooks: HookFolders
    specs: GpuSpecs | None
    strays: Cited
    """Files naming an NVIDIA runtime in folders that this CRI-O does not read."""

    @property
    def default(self) -> Setting | None:
        """default_runtime, None where it is left to CRI-O: then it is crun, before 1.31 runc."""
        return self.files.settings.get("default_runtime")


class CrioConfig(Fact, frozen=True):
    """`setup` is None where CRI-O is not installed, `daemon` the running one.

    `unsaid` is why it is not known which folder that was told to read, asked only where files lie in another one.
    """

    setup: CrioSetup | None
    daemon: Daemon | None
    unsaid: Unread | None
    newer: Cited
    """Files that set an NVIDIA runtime and were changed after the daemon started."""

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, "cri-o")

    @property
    def refused(self) -> Malformed | None:
        """The file that CRI-O does not start with."""
        if self.setup is None:
            return None
        return self.setup.files.refused or next(iter(self.setup.hooks.refused), None)

    @classmethod
    def gather(cls, desk: Desk) -> "CrioConfig | Unread":
        """Only where a crio is installed or runs is anything else looked at."""
        daemons = desk.get(Daemons)
        running = () if isinstance(daemons, Unread) else daemons.of(Program.CRIO)
        daemon = running[0] if running else None
        program = any_of(desk.raw, CRIO.programs)
        if daemon is None and not program.found:
            if isinstance(program.path, Unread):
                return program.path
            return cls(setup=None, daemon=None, unsaid=None, newer=(), read_from={"installed": program.evidence[0]})
        setup = _setup(desk, daemon)
        return cls(
            setup=setup,
            daemon=daemon,
            unsaid=_unsaid(desk.raw, daemons, daemon) if setup.strays else None,
            newer=tuple(_newer(desk.raw, setup, daemon)),
            read_from={"installed": daemon.cite("command")[0] if daemon is not None else program.evidence[0]},
        )


def _setup(desk: Desk, daemon: Daemon | None) -> CrioSetup:
    raw = desk.raw
    files = read_files(raw, daemon)
    named = [_runtime(raw, files, handler) for handler in files.handlers.values() if _is_nvidia(handler)]
    runtimes = tuple(runtime for runtime in named if runtime.program.name.rpartition("/")[2] not in _PLAIN)
    hooks = read_hooks(raw, files.words("hooks_dir", (DEFAULT_FOLDER,)))
    specs = None if runtimes else _specs(desk, files)
    strays = () if runtimes else tuple(_strays(raw, files))
    return CrioSetup(files, runtimes, hooks, specs, strays)


def _is_nvidia(handler: Handler) -> bool:
    return "nvidia" in handler.name or "nvidia" in handler.text("runtime_path").rpartition("/")[2]


def _runtime(raw: Raw, files: CrioFiles, handler: Handler) -> CrioRuntime:
    """Without a path the handler's own name is looked for (cri-o pkg/config/config.go, ValidateRuntimePath).

    One that inherits has the program of the default runtime, whatever its own table says (ValidateRuntimes, since 1.32).
    """
    monitor, source = handler.text("monitor_path"), handler
    default = files.settings.get("default_runtime")
    if handler.settings.get("inherit_default_runtime") is True and default is not None:
        source = files.handlers.get(default.value, Handler(default.value, {}, default.where))
    return CrioRuntime(
        handler,
        locate(raw, source.text("runtime_path") or source.name),
        locate(raw, monitor) if monitor and handler.text("runtime_type") in ("", "oci") else None,
    )


def _specs(desk: Desk, files: CrioFiles) -> GpuSpecs | None:
    specs = read_specs(desk.raw, files.words("cdi_spec_dirs", DEFAULT_FOLDERS))
    if not specs.specs:
        return specs
    software = desk.get(Software)
    version = software if isinstance(software, Unread) else software.of(CRIO)
    return None if isinstance(version, Version) and version.before(*CDI_SINCE) else specs


def _strays(raw: Raw, files: CrioFiles) -> Iterator[Evidence]:
    for folder in (OTHER_FOLDER, DROP_INS):
        listing = raw.listing(folder) if folder != files.folder.rstrip("/") else Absent(folder)
        for name in (listing.names if isinstance(listing, Listing) else ())[:_MOST_STRAYS]:
            file = raw.read(f"{folder}/{name}")
            lines = file.text.splitlines() if isinstance(file, TextFile) else []
            line = next((line.strip() for line in lines if "crio.runtime.runtimes.nvidia" in line), None)
            if line is not None:
                yield Evidence(f"{folder}/{name}", line[:200])


def _unsaid(raw: Raw, daemons: Daemons | Unread, daemon: Daemon | None) -> Unread | None:
    """Options and CONTAINER_CONFIG_DIR of its environment choose other files (cri-o internal/criocli/criocli.go, getCrioFlags)."""
    if isinstance(daemons, Unread):
        return daemons
    if daemon is None:
        return daemons.unlisted or Unread(
            Why.NOT_ANSWERED, CRIO.programs[0], "does not run, so that it could tell which folder it reads"
        )
    if isinstance(daemon.arguments, Unread):
        return daemon.arguments
    path = f"/proc/{daemon.pid}/environ"
    environment = raw.read_blocking((path,), keep="^CONTAINER_CONFIG")[path]
    if isinstance(environment, TextFile) and environment.text:
        return Unread(Why.NOT_ANSWERED, path, "the environment names other files")
    return environment if isinstance(environment, Unread) else None


def _newer(raw: Raw, setup: CrioSetup, daemon: Daemon | None) -> Iterator[Evidence]:
    for runtime in setup.runtimes if daemon is not None else ():
        entry = raw.entry(runtime.handler.where, follow=True)
        if daemon is not None and isinstance(entry, Entry) and daemon.older_than(entry):
            yield from daemon.cite("started")
            yield changed(entry)
