"""The dockerds of a node: each with its file and flags, the runtimes and CDI settings that come of both, and what it has loaded."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.config_text import Document, well_formed
from gpudoctor.facts.daemons import WITH_KUBELET, Daemon, Daemons, Program, changed
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.docker_answer import Told, ask
from gpudoctor.facts.docker_places import (
    DAEMON_BINARIES,
    DAEMON_JSON,
    INSTALLED,
    ROOT,
    SNAP_JSON,
    SOCKET,
    config_of,
    is_rootless,
    locate_for,
    own_cdi_folders,
    sockets_of,
)
from gpudoctor.facts.docker_rules import Flags, Refused, added, flags_of, runtime_fields, take, why_refused
from gpudoctor.facts.docker_toolkit import Toolkit, look_for_toolkit, with_cdi_hook
from gpudoctor.facts.docker_units import command_line
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS, GpuSpecs, read_specs
from gpudoctor.facts.programs import Located
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.facts.software import DOCKER, Version, version_of
from gpudoctor.knowledge.docker_options import CDI_DEFAULT_SINCE, CDI_PREFERRED_SINCE, CDI_SINCE, STOCK_RUNTIME
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why


class Runtime(Struct, frozen=True):
    """One entry of `runtimes`: the program that it names, None for a plain shim, and where that is. `refused` is why it cannot be used."""

    name: str
    names: str
    where: str
    program: Located | None
    refused: str | None = None

    @property
    def is_nvidia(self) -> bool:
        """Whether it is NVIDIA's, by its name or its program's."""
        return "nvidia" in self.name or "nvidia" in self.names

    @property
    def evidence(self) -> Evidence:
        """What the configuration says of it."""
        return Evidence(self.where, f"runtimes.{self.name} names {self.names or 'no program'}")


class Docker(Citable, frozen=True):
    """One dockerd, running or as it would start.

    `settings` are those of its file, None where there is none; `flags` those of its command line. `changed` is whether the file changed
    after it started, None where times are not known, and `told` what the daemon answers then. `elsewhere` are files with an nvidia
    runtime that no dockerd reads, `own_cdi_folders` are a rootless one's owner's. `kubelet` is whether the node's
    containers are a kubelet's affair.
    """

    key: str
    path: str
    daemon: Daemon | None
    version: Version | Unread | None
    settings: Document | Refused | Unread | None
    flags: Flags
    toolkit: Toolkit
    kubelet: bool
    runtimes: Mapping[str, Runtime] = {}
    changed: bool | None = False
    told: Told | Unread | None = None
    specs: GpuSpecs | None = None
    elsewhere: tuple[Evidence, ...] = ()
    own_cdi_folders: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    socket_gone: Cited = ()

    @property
    def subject(self) -> Subject:
        """The service; where several dockerds run, the others are named by the file that they read."""
        return Subject(SubjectKind.SERVICE, self.key)

    @property
    def evidence(self) -> Cited:
        """The file, and the command line where that says something of runtimes or CDI."""
        speaks = {"add-runtime", "default-runtime", "config-file", "feature", "cdi-spec-dir"} & set(self.flags.values)
        return self.cite("file", *(("command",) if speaks and "command" in self.read_from else ()))

    @property
    def nvidia(self) -> tuple[Runtime, ...]:
        """Its runtimes of NVIDIA."""
        return tuple(runtime for runtime in self.runtimes.values() if runtime.is_nvidia)

    @property
    def default_runtime(self) -> str:
        """What containers run under that name no runtime."""
        return self.flags.last("default-runtime") or self._text("default-runtime") or STOCK_RUNTIME

    @property
    def cgroup_driver(self) -> str | None:
        """`native.cgroupdriver` of exec-opts, None where dockerd chooses."""
        options = [*self._list("exec-opts"), *self.flags.values.get("exec-opt", ())]
        found = [option.partition("=")[2] for option in options if option.startswith("native.cgroupdriver=")]
        return found[-1] if found else None

    @property
    def userns_remap(self) -> str | None:
        """The user whose ranges containers are mapped to."""
        return self.flags.last("userns-remap") or self._text("userns-remap")

    @property
    def data_root(self) -> str | None:
        """Where it keeps containers, None where only its owner's environment tells."""
        given = self.flags.last("data-root") or self._text("data-root") or self._text("graph")
        return given or (None if self.daemon is not None and is_rootless(self.daemon) else ROOT)

    @property
    def live_restore(self) -> bool:
        """Whether containers outlive a restart of the daemon."""
        return self.flags.last("live-restore") == "true" or self._known.get("live-restore") is True

    @property
    def asked_for_cdi(self) -> bool | None:
        """`features.cdi` of the file or --feature, None where neither says anything."""
        for value in reversed(self.flags.values.get("feature", ())):
            name, _, state = value.partition("=")
            if name == "cdi":
                return state in ("", "true", "1")
        features = self._known.get("features")
        on = features.get("cdi") if isinstance(features, dict) else None
        return on if isinstance(on, bool) else None

    @property
    def cdi(self) -> bool | Unread | None:
        """Whether CDI devices can be asked for; None before Docker 25, which knows no CDI."""
        if self.cdi_folders == ():
            return False
        asked = self.asked_for_cdi
        if not isinstance(self.version, Version):
            unknown = Unread(
                Why.NOT_RECORDED, "dockerd", "its version is not known, on which it depends whether CDI is on"
            )
            return False if asked is False else (self.version or unknown)
        if self.version.before(*CDI_SINCE):
            return None
        return not self.version.before(*CDI_DEFAULT_SINCE) if asked is None else asked

    @property
    def cdi_folders(self) -> tuple[str, ...]:
        """Where it looks for specs; none where a single empty name switches CDI off."""
        given = (*self._list("cdi-spec-dirs"), *self.flags.values.get("cdi-spec-dir", ()))
        return () if given == ("",) else given or (*DEFAULT_FOLDERS, *self.own_cdi_folders)

    @property
    def _known(self) -> Document:
        return self.settings if isinstance(self.settings, dict) else {}

    def _text(self, key: str) -> str | None:
        value = self._known.get(key)
        return well_formed(value) if isinstance(value, str) and value else None

    def _list(self, key: str) -> tuple[str, ...]:
        value = self._known.get(key)
        return tuple(well_formed(one) for one in value if isinstance(one, str)) if isinstance(value, list) else ()


class Dockers(Fact, frozen=True):
    """All of them, the one that reads the usual file first. `running` is why it is not known which of them run."""

    dockers: tuple[Docker, ...]
    running: Unread | None

    @property
    def subject(self) -> Subject:
        """Docker, where there is none."""
        return Subject(SubjectKind.SERVICE, "docker")

    @classmethod
    def gather(cls, desk: Desk) -> "Dockers | Unread":
        """The running ones; where none runs, or that is not known, what would run with the files that are there."""
        raw, daemons = desk.raw, desk.get(Daemons)
        running = () if isinstance(daemons, Unread) else daemons.of(Program.DOCKERD)
        unlisted = daemons if isinstance(daemons, Unread) else daemons.unlisted
        if running:
            paths = [config_of(raw, daemon) for daemon in running]
            keys = _keys(
                [
                    path if isinstance(path, str) else f"process {daemon.pid}"
                    for daemon, path in zip(running, paths, strict=True)
                ]
            )
            found = [_gather(desk, key, path, daemon) for key, path, daemon in zip(keys, paths, running, strict=True)]
            if DAEMON_JSON in paths:
                found = [replace(one, elsewhere=()) for one in found]
            return cls(dockers=tuple(sorted(found, key=lambda one: one.key)), running=unlisted)
        there = _installed(raw)
        if isinstance(there, Unread):
            return there
        path, seen = there
        evidence = {"installed": seen}
        if path is None:
            return cls(dockers=(), running=unlisted, read_from=evidence)
        return cls(dockers=(_gather(desk, "docker", path, None),), running=unlisted, read_from=evidence)


def _keys(paths: Sequence[str]) -> list[str]:
    """A lone dockerd is docker; of several, the one that reads the usual file, else the first."""
    usual = next((at for at, path in enumerate(paths) if path == DAEMON_JSON), 0)
    return ["docker" if at == usual else f"docker@{path}" for at, path in enumerate(paths)]


def _installed(raw: Raw) -> tuple[str | None, Evidence] | Unread:
    """The file that dockerd would read and by what it was found; no file where nothing is installed."""
    seen = [raw.entry(path, follow=True) for path in DAEMON_BINARIES]
    program = next((entry for entry in seen if isinstance(entry, Entry)), None)
    if program is not None:
        return DAEMON_JSON, Evidence(program.where, "exists")
    file = raw.read(DAEMON_JSON)
    unread = next((entry for entry in seen if isinstance(entry, Unread)), None)
    snap = raw.entry(SNAP_JSON, follow=True)
    if isinstance(snap, Entry):
        return SNAP_JSON, Evidence(SNAP_JSON, "exists")
    if isinstance(file, Unread):
        return file
    if unread is not None:
        return (DAEMON_JSON, Evidence(file.where, "exists")) if isinstance(file, TextFile) else unread
    return None, _nowhere()


def _nowhere() -> Evidence:
    return Evidence(DAEMON_BINARIES[0], "does not exist, nor does a dockerd elsewhere")


def _gather(desk: Desk, key: str, path: str | Unread, daemon: Daemon | None) -> Docker:
    raw = desk.raw
    words, command = _command(raw, daemon, path)
    flags = flags_of(words)
    path = flags.last("config-file") or path if daemon is None and isinstance(path, str) else path
    version = version_of(desk, DOCKER, daemon.program_path if daemon is not None else None, INSTALLED)
    settings, file, entry = _read(raw, path, flags, version)
    read_from = {"file": file, **(daemon.read_from if daemon is not None else {})}
    one = Docker(
        key=key,
        path=path if isinstance(path, str) else path.where,
        daemon=daemon,
        version=version,
        settings=settings,
        flags=flags,
        toolkit=look_for_toolkit(raw, daemon),
        kubelet=_has_kubelet(desk),
        own_cdi_folders=_own_cdi_folders(raw, daemon, version),
        read_from=read_from | ({"command": command} if daemon is None and command is not None else {}),
    )
    if isinstance(settings, Refused | Unread):
        return one
    return _with_surroundings(raw, replace(one, runtimes=_runtimes(raw, one)), entry)


def _prefers_cdi(version: Version | Unread | None) -> bool:
    return isinstance(version, Version) and not version.before(*CDI_PREFERRED_SINCE)


def _own_cdi_folders(raw: Raw, daemon: Daemon | None, version: Version | Unread | None) -> tuple[str, ...]:
    rootless = daemon is not None and is_rootless(daemon)
    return own_cdi_folders(raw, daemon) if daemon is not None and rootless and _prefers_cdi(version) else ()


def _command(raw: Raw, daemon: Daemon | None, path: str | Unread) -> tuple[tuple[str, ...], Evidence | None]:
    """The words that dockerd is called with. What a unit that cannot be read would add is left out."""
    if daemon is not None:
        return (() if isinstance(daemon.arguments, Unread) else daemon.arguments), daemon.cite("command")[0]
    found = command_line(raw) if path == DAEMON_JSON else ((), None)
    return ((), None) if isinstance(found, Unread) else found


def _read(
    raw: Raw, path: str | Unread, flags: Flags, version: Version | Unread | None
) -> tuple[Document | Refused | Unread | None, Evidence, Entry | None]:
    if isinstance(path, Unread):
        return path, Evidence(path.where, path.detail), None
    file = raw.read(path)
    known = version if isinstance(version, Version) else None
    if isinstance(file, Absent):
        # A file that is named must be there; the usual one need not (moby, daemon/command/daemon.go, loadDaemonCliConfig).
        if "config-file" in flags.values:
            return (
                Refused("does not exist, and the command line names it", file.evidence, "no-file"),
                file.evidence,
                None,
            )
        nothing = take(TextFile(path, "{}"), flags, known)
        return (nothing if isinstance(nothing, Refused) else None), file.evidence, None
    if isinstance(file, Unread):
        return file, Evidence(file.where, file.detail), None
    settings = take(file, flags, known)
    shows = well_formed(" ".join(file.text.split())[:300]) or "is empty"
    entry = raw.entry(path, follow=True)
    return settings, Evidence(file.where, shows), entry if isinstance(entry, Entry) else None


def _runtimes(raw: Raw, one: Docker) -> dict[str, Runtime]:
    table = one.settings.get("runtimes") if isinstance(one.settings, dict) else None
    found = {well_formed(name): _runtime(raw, one, well_formed(name), entry) for name, entry in (table or {}).items()}
    where = one.read_from["command"].where if "command" in one.read_from else one.path
    for name, program in added(one.flags).items():
        found.setdefault(name, Runtime(name, program, where, locate_for(raw, program, one.daemon)))
    return found


def _runtime(raw: Raw, one: Docker, name: str, entry: Any) -> Runtime:
    """A runtime is a program at `path`, or since Docker 23 a shim by `runtimeType` whose options may name the program."""
    fields = runtime_fields(entry)
    path, shim, options = fields.get("path"), fields.get("runtimeType"), fields.get("options") or {}
    binary = options.get("BinaryName") if not path else None
    program = well_formed(path or (binary if isinstance(binary, str) else "")) or None
    located = None if program is None else locate_for(raw, program, one.daemon)
    return Runtime(name, program or shim or "", one.path, located, why_refused(entry))


def _with_surroundings(raw: Raw, one: Docker, entry: Entry | None) -> Docker:
    daemon = one.daemon
    specs = read_specs(raw, one.cdi_folders) if one.cdi not in (None, False) else None
    if daemon is None:
        return replace(one, specs=specs)
    since = daemon.older_than(entry) if entry is not None else False
    settings = one.settings if isinstance(one.settings, dict) else {}
    sockets = sockets_of(one.flags, settings, daemon)
    # Without a session of systemd XDG_RUNTIME_DIR is another folder (moby, contrib/dockerd-rootless-setuptool.sh), and so is the socket's.
    default = is_rootless(daemon) and "host" not in one.flags.values and "hosts" not in settings
    wanted = bool(one.nvidia) and since is not False
    socket = sockets[0] if sockets and sockets[0] != SOCKET else ""
    return replace(
        one,
        specs=specs,
        toolkit=with_cdi_hook(raw, daemon, one.toolkit)
        if one.cdi is True and _prefers_cdi(one.version)
        else one.toolkit,
        changed=since,
        told=ask(raw, socket, one.data_root) if wanted else None,
        elsewhere=() if one.nvidia else _elsewhere(raw, one),
        sockets=sockets,
        socket_gone=() if default else _gone(raw, sockets),
        read_from=one.read_from | ({"changed": changed(entry)} if entry is not None else {}),
    )


def _elsewhere(raw: Raw, one: Docker) -> tuple[Evidence, ...]:
    """nvidia-ctk writes into /etc/docker/daemon.json unless it is told otherwise (cmd/nvidia-ctk/runtime/configure/configure.go)."""
    if one.path == DAEMON_JSON:
        return ()
    file = raw.read(DAEMON_JSON)
    found = take(file, Flags(), None) if isinstance(file, TextFile) else {}
    table = found.get("runtimes") if isinstance(found, dict) else None
    names = [
        name
        for name, entry in (table or {}).items()
        if "nvidia" in name or "nvidia" in str(runtime_fields(entry).get("path"))
    ]
    return tuple(Evidence(DAEMON_JSON, f"has runtimes.{well_formed(name)}") for name in names[:2])


def _gone(raw: Raw, sockets: tuple[str, ...]) -> Cited:
    seen = [raw.entry(socket, follow=True) for socket in sockets]
    absent = [entry.evidence for entry in seen if isinstance(entry, Absent)]
    return tuple(absent) if sockets and len(absent) == len(seen) else ()


def _has_kubelet(desk: Desk) -> bool:
    daemons = desk.get(Daemons)
    return not isinstance(daemons, Unread) and bool(daemons.of(*WITH_KUBELET))
