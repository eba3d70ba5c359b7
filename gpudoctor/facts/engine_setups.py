"""Which engines of the node are set up for GPUs, seen from afar: who listens where, and whether its files name an NVIDIA runtime or CDI.

What each configuration really comes to is other checks' matter; here it is only asked whether somebody prepared this engine.
"""

import re
from fnmatch import fnmatchcase

from msgspec import Struct

from gpudoctor.facts.config_text import parse_toml
from gpudoctor.facts.containerd_places import (
    DEFAULT_CONFIG,
    DEFAULT_SOCKET,
    K3S_SOCKET,
    MICROK8S_SOCKET,
    as_path,
    config_of,
)
from gpudoctor.facts.crio import CrioConfig
from gpudoctor.facts.daemons import Daemon, Daemons, Program
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker_places import DAEMON_JSON
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS, GpuSpecs, read_specs
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile
from gpudoctor.facts.software import CONTAINERD, Software, Version
from gpudoctor.verdicts import Evidence, Unread, Why

KNOWN_CONFIGS = {
    DEFAULT_SOCKET: (DEFAULT_CONFIG,),
    K3S_SOCKET: (
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    ),
    MICROK8S_SOCKET: ("/var/snap/microk8s/current/args/containerd.toml",),
    "/run/k0s/containerd.sock": ("/etc/k0s/containerd.toml",),
}
"""Which file the containerd behind a socket reads, by the distribution that has it there, where its own arguments do not tell."""
CRIO_SOCKET = "/run/crio/crio.sock"
DOCKER_SOCKETS = (
    "/run/cri-dockerd.sock",
    "/run/cri-docker.sock",
    "/run/dockershim.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
)
MOST_IMPORTS = 20

_RUNTIME = r"^(?![ \t]*#).*(?:nvidia-container-runtime|runtimes\.['\"]?nvidia).*$"
_CDI = r"^[ \t]*enable_cdi\s*=\s*(true|false)\b.*$"


class EngineSetup(Struct, frozen=True):
    """One engine: what it is called, where it listens, whether it runs, and whether somebody set it up for GPUs."""

    name: str
    config: str
    sockets: tuple[str, ...]
    runs: bool
    prepared: bool | Unread
    evidence: tuple[Evidence, ...]

    @property
    def is_docker(self) -> bool:
        """Docker serves people as well as a kubelet: that it is set up says nothing of pods."""
        return self.name == "docker"

    @property
    def called(self) -> str:
        """Its name, and its file where there can be several."""
        return f"{self.name} ({self.config})" if self.name == "containerd" else self.name


def setups(desk: Desk, daemons: Daemons) -> tuple[EngineSetup, ...]:
    """All engines that run or are set up on this node."""
    return (*_containerds(desk, daemons), *_crio(desk), *_docker(desk.raw, daemons))


def _containerds(desk: Desk, daemons: Daemons) -> list[EngineSetup]:
    """Each running one, and each file at a known place that none of them reads."""
    specs = read_specs(desk.raw, DEFAULT_FOLDERS)
    found = [_running(desk, daemon, specs) for daemon in daemons.of(Program.CONTAINERD)]
    for socket, configs in KNOWN_CONFIGS.items():
        for config in configs:
            taken = any(engine.config == config for engine in found)
            if not taken and isinstance(desk.raw.entry(config, follow=True), Entry):
                owned = any(socket in engine.sockets for engine in found)
                prepared, evidence, _ = _read_config(desk, config, specs)
                found.append(EngineSetup("containerd", config, () if owned else (socket,), False, prepared, evidence))
    return found


def _running(desk: Desk, daemon: Daemon, specs: GpuSpecs) -> EngineSetup:
    config = config_of(daemon)
    prepared, evidence, told = _read_config(desk, config, specs)
    if isinstance(daemon.arguments, Unread):
        return EngineSetup("containerd", "a configuration not seen", (), True, daemon.arguments, ())
    address = daemon.option("address", "a") or told or DEFAULT_SOCKET
    return EngineSetup(
        "containerd", config, (as_path(address),), True, prepared, (daemon.cite("command")[0], *evidence)
    )


def _read_config(desk: Desk, path: str, specs: GpuSpecs) -> tuple[bool | Unread, tuple[Evidence, ...], str]:
    """Whether a file or what it imports names an NVIDIA runtime or CDI, what was read, and the address it gives."""
    file = desk.raw.read(path)
    if isinstance(file, Unread):
        return file, (Evidence(file.where, file.detail),), ""
    if isinstance(file, Absent):
        return _by_cdi(desk, path, specs, None), (file.evidence,), ""
    document = parse_toml(file)
    settings = document if isinstance(document, dict) else {}
    grpc, imports = settings.get("grpc"), settings.get("imports")
    address = grpc.get("address", "") if isinstance(grpc, dict) else ""
    texts = (file, *_imported(desk.raw, file, imports if isinstance(imports, list) else []))
    switch: Evidence | None = None
    for text in texts:
        if isinstance(text, Unread):
            return text, (Evidence(file.where, "imports what was not seen"),), str(address)
        if (line := re.search(_RUNTIME, text.text, re.MULTILINE)) is not None:
            return True, (Evidence(text.where, line[0].strip()[:200]),), str(address)
        for found in re.finditer(_CDI, text.text, re.MULTILINE):
            switch = Evidence(text.where, found[0].strip())
    evidence = (Evidence(file.where, "names no NVIDIA runtime"), *((switch,) if switch is not None else ()))
    if not isinstance(document, dict):
        return Unread(Why.UNREADABLE, file.where, "cannot be parsed"), evidence, ""
    on = None if switch is None else "true" in switch.shows
    return _by_cdi(desk, path, specs, on), (*evidence, *_named(specs, on)), str(address)


def _named(specs: GpuSpecs, on: bool | None) -> tuple[Evidence, ...]:
    return () if on is False else tuple(piece for spec in specs.specs[:1] for piece in spec.cite("kind"))


def _imported(raw: Raw, file: TextFile, patterns: list[object]) -> list[TextFile | Unread]:
    found: list[TextFile | Unread] = []
    for pattern in patterns[:MOST_IMPORTS]:
        folder, _, name = str(pattern).rpartition("/")
        folder = folder if folder.startswith("/") else f"{file.path.rpartition('/')[0]}/{folder}".rstrip("/")
        listing = raw.listing(folder)
        if isinstance(listing, Unread):
            found.append(listing)
        elif isinstance(listing, Listing):
            if not listing.complete:
                found.append(Unread(Why.NOT_RECORDED, folder, "was recorded in part only"))
            read = [raw.read(f"{folder}/{each}") for each in listing.names if fnmatchcase(each, name)]
            found += [text for text in read if not isinstance(text, Absent)]
    return sorted(found, key=lambda text: isinstance(text, Unread))


def _by_cdi(desk: Desk, path: str, specs: GpuSpecs, on: bool | None) -> bool | Unread:
    """Specs reach pods where CDI is on: containerd 2 has it so without a word in its file (containerd/containerd#9621)."""
    if on is False:
        return False
    if on or not specs.specs:
        return bool(specs.specs) or specs.unread or False
    software = desk.get(Software) if path.startswith("/etc/containerd/") else None
    version = software.of(CONTAINERD) if isinstance(software, Software) else None
    if isinstance(version, Version) and version.before(2, 0):
        return False
    return Unread(
        Why.NOT_ANSWERED, specs.specs[0].path, "there are CDI specs, and containerd may have CDI on by default"
    )


def _crio(desk: Desk) -> list[EngineSetup]:
    crio = desk.get(CrioConfig)
    if isinstance(crio, Unread) or crio.setup is None:
        return []
    setup = crio.setup
    listen = setup.files.settings.get("listen")
    hooks = [hook for hook in setup.hooks.nvidia if hook.program.found]
    specs = () if setup.specs is None else setup.specs.specs
    evidence = (
        *(piece for runtime in setup.runtimes for piece in runtime.evidence[:1]),
        *(piece for hook in hooks for piece in hook.cite("program")),
        *(piece for spec in specs for piece in spec.cite("kind")),
    )
    unread = setup.files.unread or setup.hooks.unread or (setup.specs.unread if setup.specs is not None else None)
    return [
        EngineSetup(
            "cri-o",
            setup.files.config,
            (as_path(listen.value) if listen is not None else CRIO_SOCKET,),
            crio.daemon is not None,
            bool(evidence) or unread or False,
            evidence[:2] or crio.cite("installed"),
        )
    ]


def _docker(raw: Raw, daemons: Daemons) -> list[EngineSetup]:
    file = raw.read(DAEMON_JSON)
    running = daemons.of(Program.DOCKERD)
    if isinstance(file, Absent) and not running:
        return []
    if not isinstance(file, TextFile):
        prepared: bool | Unread = file if isinstance(file, Unread) else False
        shows = Evidence(DAEMON_JSON, file.detail)
    else:
        prepared = "nvidia" in file.text
        shows = Evidence(file.where, "names an NVIDIA runtime" if prepared else "names no NVIDIA runtime")
    return [EngineSetup("docker", DAEMON_JSON, DOCKER_SOCKETS, bool(running), prepared, (shows,))]
