"""Which engines of the node are set up for GPUs: who listens where, and whether what it reads leads to an NVIDIA runtime or CDI.

Whether such a runtime's program exists, and whether the daemon has loaded its files, is other checks' matter.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.containerd import Containerd, Containerds, read_config, spec_paths
from gpudoctor.facts.containerd_config import Loaded, Refused
from gpudoctor.facts.containerd_cri import Cri, Declared, declared
from gpudoctor.facts.containerd_places import (
    DEFAULT_CONFIG,
    DEFAULT_SOCKET,
    K3S_CONFIG,
    K3S_SOCKET,
    MICROK8S_SOCKET,
    RKE2_CONFIG,
    as_path,
)
from gpudoctor.facts.crio import CrioConfig
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker import Docker, Dockers
from gpudoctor.facts.docker_places import is_rootless
from gpudoctor.facts.docker_rules import Refused as DockerRefused
from gpudoctor.facts.raw import Entry, Raw
from gpudoctor.verdicts import Cited, Evidence, Subject, Unread, Why

KNOWN_CONFIGS = (
    (DEFAULT_SOCKET, DEFAULT_CONFIG),
    (K3S_SOCKET, K3S_CONFIG),
    (K3S_SOCKET, RKE2_CONFIG),
    (MICROK8S_SOCKET, "/var/snap/microk8s/current/args/containerd.toml"),
    ("/run/k0s/containerd.sock", "/etc/k0s/containerd.toml"),
)
"""Which file the containerd behind a socket reads, by the distribution that has it there, where no running one tells."""
CRIO_SOCKET = "/run/crio/crio.sock"
DOCKER_SOCKETS = (
    "/run/cri-dockerd.sock",
    "/run/cri-docker.sock",
    "/run/dockershim.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
)


class EngineSetup(Struct, frozen=True):
    """One engine: what it is called, where it listens, whether it runs, and whether it is set up for GPUs.

    `meant` is whether somebody wanted it to be, even if what was written comes to nothing. `containerd` is what is known of a containerd,
    `subject` whom the engine's own checks speak of; None where the engine is only a file.
    """

    name: str
    config: str
    sockets: tuple[str, ...]
    runs: bool
    prepared: bool | Unread
    evidence: Cited
    meant: bool = False
    containerd: Containerd | None = None
    subject: Subject | None = None

    @property
    def is_docker(self) -> bool:
        """Docker serves people as well as a kubelet: that it is set up says nothing of pods."""
        return self.name == "docker"

    @property
    def called(self) -> str:
        """Its name, and its file where there can be several."""
        return f"{self.name} ({self.config})" if self.name == "containerd" else self.name


def setups(desk: Desk) -> tuple[EngineSetup, ...]:
    """All engines that run or are set up on this node."""
    return (*_containerds(desk), *_crio(desk), *_docker(desk))


def _containerds(desk: Desk) -> list[EngineSetup]:
    """Each that runs or would run, and each file at a known place that none of them reads."""
    containerds = desk.get(Containerds)
    known = () if isinstance(containerds, Unread) else containerds.containerds
    found = [_containerd(one) for one in known if one.daemon is not None or one.loaded is not None]
    for socket, config in KNOWN_CONFIGS:
        if all(engine.config != config for engine in found):
            entry = desk.raw.entry(config, follow=True)
            if isinstance(entry, Entry):
                owned = any(socket in engine.sockets for engine in found)
                found.append(_file(desk.raw, config, entry, () if owned else (socket,)))
    return found


def _containerd(one: Containerd) -> EngineSetup:
    if one.daemon is not None and isinstance(one.daemon.arguments, Unread):
        return EngineSetup("containerd", "a configuration not seen", (), True, one.daemon.arguments, ())
    named = (*_named(one.loaded), *one.stray)
    prepared = _prepared(one.path, one.cri, one.specs, named)
    return EngineSetup(
        name="containerd",
        config=one.path,
        sockets=(one.socket,),
        runs=one.daemon is not None,
        prepared=prepared,
        evidence=(
            *(one.cite("command") if one.daemon is not None else ()),
            *(_evidence(one.path, one.loaded, prepared, named, one.specs) or one.cite("file")),
        ),
        meant=prepared is True or bool(named),
        containerd=one,
        subject=one.subject,
    )


def _file(raw: Raw, config: str, entry: Entry, sockets: tuple[str, ...]) -> EngineSetup:
    """A file that no containerd reads that was seen to run: by every rule that may apply."""
    loaded, cri = read_config(raw, config, entry, None)
    idle = isinstance(cri, Unread) or cri.nvidia or cri.disabled or cri.cdi is False
    specs = () if idle or isinstance(cri, Unread) else spec_paths(raw, cri)
    named = tuple(_named(loaded))
    prepared = _prepared(config, cri, specs, named)
    evidence = _evidence(config, loaded, prepared, named, specs)
    return EngineSetup("containerd", config, sockets, False, prepared, evidence, meant=prepared is True or bool(named))


def _named(loaded: Loaded | Refused | Unread | None) -> Iterator[Declared]:
    """The nvidia runtimes that its files write down, whatever comes of them."""
    for file in loaded.files if isinstance(loaded, Loaded) else ():
        yield from declared(file)


def _prepared(
    config: str, cri: Cri | Unread, specs: tuple[str, ...] | Unread, named: tuple[Declared, ...]
) -> bool | Unread:
    """By its runtimes, or by CDI. Where releases take the files differently, and which it is is not known, what is named counts."""
    if isinstance(cri, Unread):
        return bool(named) or cri
    if cri.refused and not cri.nvidia:
        return Unread(Why.UNREADABLE, config, f"the CRI plugin does not start with it: {cri.refused}")
    if cri.nvidia or cri.disabled or cri.cdi is False:
        return bool(cri.nvidia) and not cri.disabled
    if isinstance(specs, Unread) or not specs:
        return specs if isinstance(specs, Unread) else False
    said = "there are CDI specs, and containerd may have CDI on by default"
    return True if cri.cdi else Unread(Why.NOT_ANSWERED, specs[0], said)


def _evidence(
    config: str,
    loaded: Loaded | Refused | Unread | None,
    prepared: bool | Unread,
    named: tuple[Declared, ...],
    specs: tuple[str, ...] | Unread,
) -> Cited:
    if named:
        return tuple(Evidence(one.file, f"has {one.plugin}.containerd.runtimes.{one.name}") for one in named[:2])
    if not isinstance(loaded, Loaded):
        return ()
    if prepared is True and specs and not isinstance(specs, Unread):
        return (
            Evidence(config, "names no NVIDIA runtime, and CDI is on"),
            Evidence(specs[0], "is a CDI spec of NVIDIA"),
        )
    return loaded.files[0].evidence, Evidence(config, f"names {'an' if prepared is True else 'no'} NVIDIA runtime")


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
            meant=bool(evidence),
            subject=crio.subject,
        )
    ]


def _docker(desk: Desk) -> list[EngineSetup]:
    """The system's dockerds: one that a user runs rootless has nothing to do with a kubelet."""
    dockers = desk.get(Dockers)
    every = () if isinstance(dockers, Unread) else dockers.dockers
    return [_dockerd(one) for one in every if one.daemon is None or not is_rootless(one.daemon)]


def _dockerd(one: Docker) -> EngineSetup:
    prepared: bool | Unread = bool(one.nvidia)
    if isinstance(one.settings, Unread):
        prepared = one.settings
    elif isinstance(one.settings, DockerRefused):
        prepared = Unread(Why.UNREADABLE, one.path, "dockerd does not start with it")
    return EngineSetup(
        "docker",
        one.path,
        DOCKER_SOCKETS if one.key == "docker" else (),
        one.daemon is not None,
        prepared,
        (one.nvidia[0].evidence,) if one.nvidia else one.cite("file"),
        meant=prepared is True,
        subject=one.subject,
    )
