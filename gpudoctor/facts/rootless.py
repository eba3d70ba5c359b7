"""Engines in user namespaces: rootless daemons with what their GPUs depend on, and dockerd that maps its containers' users.

Sources: docs.docker.com/engine/security/{rootless,userns-remap}; moby daemon/command/daemon_unix.go (the user's daemon.json); subuid(5);
user_namespaces(7); NVIDIA/nvidia-container-toolkit @d34b3046758c internal/info/auto.go and the hook's hook_config.go: since 1.18.0 auto
means jit-cdi for the runtime, which edits the configuration and no cgroup, and still legacy for the hook of --gpus.
"""

import re

from msgspec import Struct

from gpudoctor.facts.config_text import Document, Malformed, parse_json
from gpudoctor.facts.daemons import Daemon, Daemons, Program
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.docker_places import DAEMON_JSON, config_of
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS, GpuSpecs, read_specs
from gpudoctor.facts.raw import Raw, TextFile, decimal
from gpudoctor.facts.toolkit_config import ToolkitConfig, ToolkitFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

SUBUID = "/etc/subuid"
JIT_SINCE = (1, 18)
MODE = "nvidia-container-runtime.mode"
_NAME = pattern(r"[a-z_][a-z0-9_.-]{0,31}", re.IGNORECASE)


class RootlessDocker(Citable, frozen=True):
    """One rootless dockerd: its settings, the CDI specifications it may find, and the toolkit's file that its runtimes read.

    `settings` is None where it has no daemon.json, `toolkit` where the toolkit has none: then its defaults hold.
    """

    daemon: Daemon
    settings: Document | Unread | None
    specs: GpuSpecs
    toolkit: ToolkitFile | Unread | None

    @property
    def runtime(self) -> bool:
        """Whether it knows NVIDIA's runtime."""
        return _knows_runtime(self._settings)

    @property
    def cdi(self) -> bool | None:
        """Whether CDI is switched on or off; None where the file says nothing."""
        return _cdi_of(self._settings)

    @property
    def edits_only(self) -> bool:
        """Whether NVIDIA's runtime, not the hook, is known to touch no cgroup: of a release whose auto is jit-cdi, not told otherwise."""
        file = self.toolkit if isinstance(self.toolkit, ToolkitFile) else None
        if file is None or file.release is None or file.release < JIT_SINCE:
            return False
        return file.value(MODE) in ("auto", "jit-cdi")

    @property
    def _settings(self) -> Document:
        return self.settings if isinstance(self.settings, dict) else {}


class Remapped(Struct, frozen=True):
    """A rootful dockerd whose containers' root is an ordinary user of the node; `prepared` is whether its file speaks of GPUs."""

    evidence: Cited
    prepared: bool


class RootlessEngines(Fact, frozen=True):
    """All of them; `unlisted` is why there may be more. `remaps` is None where no dockerd maps users, or its file was not seen."""

    dockers: tuple[RootlessDocker, ...]
    remaps: Remapped | None
    unlisted: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "RootlessEngines | Unread":
        """Files are looked at only where such an engine runs; daemon.json of the system where dockerd does."""
        daemons = desk.get(Daemons)
        if isinstance(daemons, Unread):
            return daemons
        running = daemons.of(Program.DOCKERD)
        return cls(
            dockers=tuple(_rootless(desk, one) for one in running if one.own_namespace),
            remaps=next((found for one in running if (found := _remaps(desk.raw, one)) is not None), None),
            unlisted=daemons.unlisted,
            read_from=daemons.read_from,
        )


def _knows_runtime(settings: Document) -> bool:
    runtimes = settings.get("runtimes")
    entries = runtimes.values() if isinstance(runtimes, dict) else ()
    return any("nvidia-container-runtime" in str(one.get("path")) for one in entries if isinstance(one, dict))


def _cdi_of(settings: Document) -> bool | None:
    features = settings.get("features")
    value = features.get("cdi") if isinstance(features, dict) else None
    return value if isinstance(value, bool) else None


def _rootless(desk: Desk, daemon: Daemon) -> RootlessDocker:
    settings, evidence = _settings(desk.raw, daemon)
    return RootlessDocker(
        daemon=daemon,
        settings=settings,
        specs=_specs(desk.raw, settings),
        toolkit=_toolkit(desk),
        read_from={**daemon.read_from, "settings": evidence},
    )


def _settings(raw: Raw, daemon: Daemon) -> tuple[Document | Unread | None, Evidence]:
    """The user's daemon.json; where nothing tells the home, the place where most have it."""
    path = config_of(raw, daemon)
    if isinstance(path, Unread):
        name = _owner_by_range(raw, daemon.pid)
        if name is None:
            return path, Evidence(path.where, path.detail)
        path = f"/home/{name}/.config/docker/daemon.json"
    file = raw.read(path)
    if isinstance(file, Unread):
        return file, Evidence(file.where, file.detail)
    if not isinstance(file, TextFile):
        return None, file.evidence
    document = parse_json(file)
    if isinstance(document, Malformed):
        return Unread(Why.UNREADABLE, document.place, document.said), document.evidence
    if isinstance(document, Unread):
        return document, Evidence(document.where, document.detail)
    keys = ", ".join(document) or "nothing"
    return document, Evidence(file.where, f"sets {keys}"[:200])


def _owner_by_range(raw: Raw, pid: int) -> str | None:
    """The user to whom /etc/subuid gives the range that is mapped behind the daemon's own number (newuidmap(1))."""
    mapped, granted = raw.read(f"/proc/{pid}/uid_map"), raw.read(SUBUID)
    if not isinstance(mapped, TextFile) or not isinstance(granted, TextFile):
        return None
    rows = [line.split() for line in mapped.text.splitlines()]
    starts = {decimal(row[1]) for row in rows if len(row) == 3 and row[2] != "1"}
    for line in granted.text.splitlines():
        name, _, rest = line.partition(":")
        if decimal(rest.partition(":")[0]) in starts - {None} and _NAME.fullmatch(name) and not name.isdecimal():
            return name
    return None


def _specs(raw: Raw, settings: Document | Unread | None) -> GpuSpecs:
    """In the folders of the system, or those that daemon.json names instead (moby, CDISpecDirs)."""
    named = settings.get("cdi-spec-dirs") if isinstance(settings, dict) else None
    folders = [folder for folder in named if isinstance(folder, str)] if isinstance(named, list) else []
    return read_specs(raw, folders or DEFAULT_FOLDERS)


def _toolkit(desk: Desk) -> ToolkitFile | Unread | None:
    config = desk.get(ToolkitConfig)
    if isinstance(config, Unread):
        return config
    own = next((file for file in config.files if file.engine == f"rootless {Program.DOCKERD.value}"), None)
    return own or config.default or config.unlisted


def _remaps(raw: Raw, daemon: Daemon) -> Remapped | None:
    """`userns-remap` in the file or as an option."""
    if daemon.own_namespace or daemon.uid:
        return None
    file = raw.read(daemon.option("config-file") or DAEMON_JSON)
    document = parse_json(file) if isinstance(file, TextFile) else None
    settings = document if isinstance(document, dict) else {}
    prepared = _knows_runtime(settings) or _cdi_of(settings) is True
    if daemon.option("userns-remap"):
        return Remapped(daemon.cite("command"), prepared)
    value = settings.get("userns-remap")
    if not isinstance(file, TextFile) or not isinstance(value, str) or not value:
        return None
    return Remapped((Evidence(file.where, f'"userns-remap": "{value}"'),), prepared)
