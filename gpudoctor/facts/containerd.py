"""The containerds of a node: each with its configuration, what the kubelet gets from it, and whether it has loaded it."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from gpudoctor.facts.containerd_answer import Told, ask
from gpudoctor.facts.containerd_config import Loaded, Refused, load
from gpudoctor.facts.containerd_cri import Cri, Declared, cri_of, without_file
from gpudoctor.facts.containerd_places import (
    DEFAULT_CONFIG,
    DEFAULT_SOCKET,
    Family,
    as_path,
    config_of,
    family_of,
    usual_socket,
)
from gpudoctor.facts.containerd_programs import find_toolkit, ineffective, plugin_sockets, unimported
from gpudoctor.facts.containerd_rules import Rules, candidates, rules_for
from gpudoctor.facts.daemons import Daemon, Daemons, Program, changed
from gpudoctor.facts.desk import Citable, Desk, Population
from gpudoctor.facts.gpu_specs import read_specs
from gpudoctor.facts.kubelet_endpoint import KubeletEndpoint
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Entry, Raw
from gpudoctor.facts.software import CONTAINERD, Version, version_of
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

INSTALLED = (*CONTAINERD.programs, "/bin/containerd", "/usr/sbin/containerd")
"""Programs whose version is the installed package's."""


class Containerd(Citable, frozen=True):
    """One containerd: a running daemon, or what would run with the configuration that is there.

    `loaded` is None where there is no file, `cri` what the kubelet would get; both as files say. `asked` is whether the kubelet talks to
    it, `changed` the files that changed since it started, None where times are not known; `told` what it answers then. The last three are
    looked at only where it has no nvidia runtime: NVIDIA's CDI specs, the toolkit's runtime on the node, and the sockets of NVIDIA's
    device plugins.
    """

    socket: str
    path: str
    family: Family
    daemon: Daemon | None
    version_words: str
    loaded: Loaded | Refused | Unread | None
    cri: Cri | Unread
    asked: bool | Unread
    programs: Mapping[str, Located] = {}
    stray: tuple[Declared, ...] = ()
    vain: tuple[Declared, ...] = ()
    changed: tuple[Evidence, ...] | None = ()
    told: Told | Unread | None = None
    specs: tuple[str, ...] | Unread = ()
    toolkit: Located | None = None
    plugin_sockets: tuple[str, ...] | Unread = ()

    @property
    def subject(self) -> Subject:
        """The service; one that listens elsewhere than usual is named by its socket."""
        return Subject(
            SubjectKind.SERVICE, "containerd" if self.socket == DEFAULT_SOCKET else f"containerd@{self.socket}"
        )

    @property
    def evidence(self) -> Cited:
        """The files that were read, the main one first."""
        if isinstance(self.loaded, Loaded):
            return tuple(file.evidence for file in self.loaded.files[:8])
        return self.cite("file")


class Containerds(Population, frozen=True):
    """All of them."""

    NOTHING: ClassVar[str] = "there is no containerd on the node"

    containerds: tuple[Containerd, ...]

    @property
    def members(self) -> Sequence[Containerd]:
        """By socket."""
        return self.containerds

    @classmethod
    def gather(cls, desk: Desk) -> "Containerds | Unread":
        """The running ones; where none runs, or that is not known, what is installed or configured at the usual place."""
        raw, daemons = desk.raw, desk.get(Daemons)
        running = () if isinstance(daemons, Unread) else daemons.of(Program.CONTAINERD)
        asked = _asked(desk, running)
        found: dict[str, Containerd] = {}
        for daemon in running:
            if not daemon.own_namespace and not daemon.uid:
                one = _gather(desk, daemon, asked)
                found.setdefault(one.socket, one)
        unlisted = daemons if isinstance(daemons, Unread) else daemons.unlisted
        if not running:
            there = _there(raw)
            if there is True:
                one = _gather(desk, None, asked)
                found[one.socket] = one
            elif isinstance(there, Unread):
                unlisted = there
        return cls(containerds=tuple(found[socket] for socket in sorted(found)), unlisted=unlisted)


def _asked(desk: Desk, running: Sequence[Daemon]) -> tuple[str, ...] | Unread:
    """The sockets that kubelets talk to.

    A kubelet in a container, as Talos has it, is not among the daemons, and of others the arguments may not be known: then pods
    that run under containerd tell of it, if it can only be one of the daemons.
    """
    endpoints, processes = desk.get(KubeletEndpoint), desk.known(Processes)
    sockets = endpoints if isinstance(endpoints, Unread) else endpoints.sockets
    if processes is None or (sockets and not isinstance(sockets, Unread)):
        return sockets
    pods = any(one.pod is not None and one.engine in ("containerd", "") for one in processes.identities)
    given = {as_path(one.option("address", "a") or DEFAULT_SOCKET) for one in running}
    given -= {socket for socket in given if "/docker/" in socket}
    if not pods or not given:
        return sockets
    if len(given) == 1 or DEFAULT_SOCKET in given:
        return (DEFAULT_SOCKET,) if DEFAULT_SOCKET in given else tuple(given)
    where = "processes (/proc/*/cgroup)"
    return Unread(Why.NOT_ANSWERED, where, "pods run here, but which containerd their kubelet talks to is not known")


def _there(raw: Raw) -> bool | Unread:
    """Whether containerd is installed or configured."""
    seen = [raw.entry(path, follow=True) for path in (DEFAULT_CONFIG, *CONTAINERD.programs)]
    if any(isinstance(entry, Entry) for entry in seen):
        return True
    return next((entry for entry in seen if isinstance(entry, Unread)), False)


def _gather(desk: Desk, daemon: Daemon | None, sockets: tuple[str, ...] | Unread) -> Containerd:
    raw = desk.raw
    known = daemon is not None and not isinstance(daemon.arguments, Unread)
    path = config_of(daemon) if daemon is not None and known else DEFAULT_CONFIG
    family = family_of(path)
    file = Evidence(path, "exists")
    loaded: Loaded | Refused | Unread | None
    cri: Cri | Unread
    version = _version(desk, daemon)
    if not path.startswith("/"):
        loaded = cri = Unread(Why.NOT_RECORDED, path, "is relative to a folder that is not known")
    elif family is Family.DOCKER:
        loaded = cri = Unread(Why.WITHHELD, path, "Docker's own containerd is not looked into")
    else:
        entry = raw.entry(path, follow=True)
        file = entry.evidence if isinstance(entry, Absent) else file
        loaded, cri = read_config(raw, path, entry, version)
    socket = _socket(daemon, loaded, family)
    one = Containerd(
        socket=socket,
        path=path,
        family=family,
        daemon=daemon,
        version_words=str(version) if isinstance(version, Version) else "containerd",
        loaded=loaded,
        cri=cri,
        asked=sockets if isinstance(sockets, Unread) else socket in sockets,
        read_from={"file": file} | (daemon.read_from if daemon is not None else {}),
    )
    return one if family is Family.DOCKER else _with_surroundings(raw, one)


def _version(desk: Desk, daemon: Daemon | None) -> Version | None:
    """The installed version, unless another program than the installed one runs, as in k3s."""
    version = version_of(desk, CONTAINERD, daemon.program_path if daemon is not None else None, INSTALLED)
    return version if isinstance(version, Version) else None


def read_config(
    raw: Raw, path: str, entry: Entry | Absent | Unread, version: Version | None
) -> tuple[Loaded | Refused | Unread | None, Cri | Unread]:
    """The configuration and the CRI plugin's view of it; by every rule that may apply where the version is not known."""
    if isinstance(entry, Unread):
        return entry, entry
    if version is not None:
        return _by(raw, path, entry, rules_for(version))
    first = None if isinstance(entry, Absent) else load(raw, path, candidates(1)[-1])
    stated = next((one.version for one in first.files[:1]), 1) if isinstance(first, Loaded) else 1
    views = [_by(raw, path, entry, rules) for rules in candidates(stated)]
    loaded, cri = views[0]
    if all(type(other) is type(loaded) for other, _ in views) and not isinstance(cri, Unread):
        others = [other for _, other in views if isinstance(other, Cri)]
        cdi = cri.cdi if all(other.cdi is cri.cdi for other in others) else None
        same = replace(cri, cdi=cdi)
        if all(replace(other, key=cri.key, cdi=cdi) == same for other in others):
            return loaded, same
    elif all(isinstance(other, Refused) for other, _ in views):
        return loaded, cri
    said = "containerd's version is not known, and 1.x and 2.x take these files differently"
    differ = Unread(Why.NOT_RECORDED, path, said)
    return (loaded if isinstance(loaded, Loaded) else differ), differ


def _by(
    raw: Raw, path: str, entry: Entry | Absent, rules: Rules
) -> tuple[Loaded | Refused | Unread | None, Cri | Unread]:
    if isinstance(entry, Absent):
        return None, without_file(rules)
    loaded = load(raw, path, rules)
    if isinstance(loaded, Loaded):
        return loaded, cri_of(loaded, rules)
    if isinstance(loaded, Refused):
        return loaded, Unread(Why.UNREADABLE, path, "the configuration does not load")
    return loaded, loaded


def _socket(daemon: Daemon | None, loaded: Loaded | Refused | Unread | None, family: Family) -> str:
    """By option, by file, or as usual; an option wins (cmd/containerd/command/main.go, applyFlags).

    A distribution whose containerd listens elsewhere says so by an option, which k3s hides.
    """
    given = daemon.option("address", "a") if daemon is not None else None
    if not given and isinstance(loaded, Loaded):
        plugin = loaded.plugins.get("io.containerd.server.v1.grpc", {})
        given = plugin.get("address") if isinstance(plugin, dict) else None
        given = given or loaded.settings.get("grpc", {}).get("address")
    path = as_path(str(given)) if given else DEFAULT_SOCKET
    return usual_socket(family) if path == DEFAULT_SOCKET else path


def _with_surroundings(raw: Raw, one: Containerd) -> Containerd:
    cri, loaded = one.cri, one.loaded if isinstance(one.loaded, Loaded) else None
    younger = _changed(raw, one.daemon, loaded)
    one = replace(
        one,
        stray=unimported(raw, one.path, loaded) if isinstance(one.loaded, Loaded | None) else (),
        changed=younger,
        told=ask(raw, one.socket) if younger and one.asked is True else None,
    )
    if isinstance(cri, Unread) or cri.disabled:
        return one
    if loaded is not None:
        one = replace(one, vain=ineffective(loaded, cri))
    if cri.nvidia:
        return replace(one, programs={one.name: locate(raw, one.binary) for one in cri.nvidia if one.binary})
    return replace(
        one,
        specs=spec_paths(raw, cri) if cri.cdi is not False else (),
        toolkit=find_toolkit(raw),
        plugin_sockets=plugin_sockets(raw) if one.asked is True else (),
    )


def spec_paths(raw: Raw, cri: Cri) -> tuple[str, ...] | Unread:
    """NVIDIA's CDI specs in the folders that containerd looks into; why it is not known if none was seen and not all could be."""
    specs = read_specs(raw, cri.cdi_folders)
    return tuple(spec.path for spec in specs.specs) or specs.unread or ()


def _changed(raw: Raw, daemon: Daemon | None, loaded: Loaded | None) -> tuple[Evidence, ...] | None:
    """The files that are younger than the daemon, None where that cannot be told of one."""
    if daemon is None or loaded is None:
        return ()
    found: list[Evidence] = []
    unsure = False
    for file in loaded.files:
        entry = raw.entry(file.path, follow=True)
        older = daemon.older_than(entry) if isinstance(entry, Entry) else None
        if older and isinstance(entry, Entry):
            found.append(changed(entry))
        unsure |= older is None
    return tuple(found) if found or not unsure else None
