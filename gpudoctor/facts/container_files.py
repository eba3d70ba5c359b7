"""Where engines and runtimes keep what they know of a running container: found by its id, no daemon asked.

Sources: containerd core/runtime/v2 bundle (STATE/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json); k3s and rke2 (/run/k3s), k0s
(/run/k0s), microk8s and docker's own containerd with state directories of their own; containers/storage (overlay-containers/ID/userdata,
containers.json with names); moby daemon/container (containers/ID/config.v2.json); runc libcontainer/state_linux.go (state.json) and
crun src/libcrun/status.c (status), both below /run, of a user below /run/user/UID.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.facts.oci_config import DockerContainer, OciConfig, parse_config, parse_docker
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.verdicts import Unread, Why

_TASKS = "io.containerd.runtime.v2.task"
CONTAINERD_STATES = (
    "/run/containerd",
    "/run/docker/containerd/daemon",
    "/run/k3s/containerd",
    "/run/k0s/containerd",
    "/var/snap/microk8s/common/run/containerd",
    "/var/snap/docker/current/run/docker/containerd/daemon",
)
STORAGE_DRIVERS = ("overlay", "vfs")
"""containers-storage.conf(5), driver: the one that is used, and the one for file systems that cannot overlay; others are rare."""
STORAGES = ("/run/containers/storage", "/var/lib/containers/storage")
"""CRI-O keeps the configuration of a running container in the first, podman in the second."""
DOCKER_ROOTS = ("/var/lib/docker", "/var/snap/docker/common/var-lib-docker")
DAEMON_JSON = "/etc/docker/daemon.json"
DOCKER_NAMESPACE = "moby"
"""The namespace in which dockerd runs containers in containerd."""


class Files(Struct, frozen=True):
    """What is known of one container: the namespace of containerd it runs in, its configuration, its engine's notes, its name."""

    config: OciConfig | Absent | Unread
    docker: DockerContainer | Absent | Unread | None = None
    namespace: str = ""
    name: str = ""


class RuntimeState(Struct, frozen=True):
    """A container as a runtime below any engine knows it."""

    runtime: str
    id: str
    pid: int
    bundle: str
    path: str


class Cabinet:
    """The files of all containers of one node; each folder is listed once, and only when a container could lie there."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._bundles: dict[str, tuple[str, str]] | None = None
        self._unseen: Unread | None = None
        self._names: dict[str, dict[str, str]] = {}
        self._docker_roots: tuple[str, ...] | None = None

    def of(self, engine: str, container: str, user: int | None) -> Files:
        """What is known of a container by its id, under an engine or, where that is "", under any."""
        if engine in ("podman", "cri-o"):
            return self._in_storage(container, user)
        found = self._bundle(container) or self._bundle_of_user(container, user)
        if found is None:
            config: OciConfig | Absent | Unread = self._missing(container, user)
        else:
            config = parse_config(self._raw.read(f"{found[1]}/config.json"))
        namespace = found[0] if found is not None else ""
        docker = self._docker(container) if engine == "docker" or namespace == DOCKER_NAMESPACE else None
        name = docker.name if isinstance(docker, DockerContainer) else ""
        return Files(config, docker, namespace, name)

    def _missing(self, container: str, user: int | None) -> Absent | Unread:
        """Why a container's bundle was not found; a rootless engine keeps it where only its user looks."""
        if self._unseen is not None:
            return self._unseen
        where = f"{CONTAINERD_STATES[0]}/{_TASKS}/*/{container}"
        if user:
            return Unread(Why.UNREADABLE, where, "a rootless engine keeps it in a folder of its own")
        return Absent(where)

    def _bundle(self, container: str) -> tuple[str, str] | None:
        if self._bundles is None:
            self._bundles = dict(self._all_bundles())
        return self._bundles.get(container)

    def _bundle_of_user(self, container: str, user: int | None) -> tuple[str, str] | None:
        """A rootless dockerd keeps its containerd's state below its own /run (docker-rootless, XDG_RUNTIME_DIR)."""
        folder = f"/run/user/{user}/docker/containerd/daemon/{_TASKS}/{DOCKER_NAMESPACE}/{container}"
        seen = user and not isinstance(self._raw.entry(f"{folder}/config.json"), (Absent, Unread))
        return (DOCKER_NAMESPACE, folder) if seen else None

    def _all_bundles(self) -> Iterable[tuple[str, tuple[str, str]]]:
        """Id, namespace and folder of each task of every containerd."""
        for state in CONTAINERD_STATES:
            folder = f"{state}/{_TASKS}"
            for namespace in self._listed(folder):
                for container in self._listed(f"{folder}/{namespace}"):
                    yield container, (namespace, f"{folder}/{namespace}/{container}")

    def _listed(self, folder: str) -> tuple[str, ...]:
        listing = self._raw.listing(folder)
        if isinstance(listing, Unread):
            self._unseen = self._unseen or listing
        elif isinstance(listing, Listing) and not listing.complete and self._unseen is None:
            self._unseen = Unread(Why.NOT_RECORDED, folder, "the recording lists at least these, perhaps not all")
        return listing.names if isinstance(listing, Listing) else ()

    # containers/storage ---------------------------------------------------------------------------------------------

    def _in_storage(self, container: str, user: int | None) -> Files:
        places = [f"/run/user/{user}/containers"] if user else list(STORAGES)
        config: OciConfig | Absent | Unread = Absent(places[0])
        for place in (f"{place}/{driver}-containers" for place in places for driver in STORAGE_DRIVERS):
            found = parse_config(self._raw.read(f"{place}/{container}/userdata/config.json"))
            if isinstance(found, OciConfig) or (isinstance(found, Unread) and not isinstance(config, Unread)):
                config = found
            if isinstance(found, OciConfig):
                break
        if user and not isinstance(config, OciConfig):
            config = self._by_runtime(container, user) or config
        name = "" if user else self._stored_name(STORAGES[-1], container)
        return Files(config, name=name)

    def _by_runtime(self, container: str, user: int) -> OciConfig | Unread | None:
        """A rootless engine keeps its storage in the home directory; the runtime's state below /run names it."""
        state = read_state(self._raw, f"/run/user/{user}", container)
        config = parse_config(self._raw.read(f"{state.bundle}/config.json")) if state is not None else None
        return None if isinstance(config, Absent) else config

    def _stored_name(self, storage: str, container: str) -> str:
        if storage not in self._names:
            file = self._raw.read(f"{storage}/overlay-containers/containers.json")
            self._names[storage] = dict(_stored_names(file.text)) if isinstance(file, TextFile) else {}
        return self._names[storage].get(container, "")

    # docker ---------------------------------------------------------------------------------------------------------

    def _docker(self, container: str) -> DockerContainer | Absent | Unread:
        found: DockerContainer | Absent | Unread = Absent(f"{DOCKER_ROOTS[0]}/containers/{container}")
        for root in self._roots():
            folder = f"{root}/containers/{container}"
            file, host = (self._raw.read(f"{folder}/{name}") for name in ("config.v2.json", "hostconfig.json"))
            said = parse_docker(file, host)
            if not isinstance(said, Absent):
                found = said
            if isinstance(said, DockerContainer):
                break
        return found

    def _roots(self) -> tuple[str, ...]:
        """Where dockerd keeps containers: `data-root` (older: `graph`) of daemon.json comes first."""
        if self._docker_roots is None:
            file = self._raw.read(DAEMON_JSON)
            said = _json(file.text) if isinstance(file, TextFile) else {}
            own = said.get("data-root") or said.get("graph")
            self._docker_roots = (*((own,) if isinstance(own, str) and own.startswith("/") else ()), *DOCKER_ROOTS)
        return self._docker_roots


def _stored_names(text: str) -> Iterable[tuple[str, str]]:
    """Id and first name of each container of containers.json."""
    try:
        said = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return
    for entry in said if isinstance(said, list) else ():
        names = entry.get("names") if isinstance(entry, dict) else None
        if isinstance(names, list) and names:
            yield str(entry.get("id")), str(names[0])


def _json(text: str) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return {}
    return said if isinstance(said, dict) else {}


# runtimes without an engine -----------------------------------------------------------------------------------------

RUNTIMES = {"runc": "state.json", "crun": "status"}


def read_states(raw: Raw, above: str = "/run") -> Iterable[RuntimeState]:
    """All containers that runtimes keep directly below a folder: those that no engine started."""
    for runtime in RUNTIMES:
        listing = raw.listing(f"{above}/{runtime}")
        for container in listing.names if isinstance(listing, Listing) else ():
            state = _state(raw, above, runtime, container)
            if state is not None:
                yield state


def read_state(raw: Raw, above: str, container: str) -> RuntimeState | None:
    """One container by its id."""
    found = (_state(raw, above, runtime, container) for runtime in RUNTIMES)
    return next((state for state in found if state is not None), None)


def _state(raw: Raw, above: str, runtime: str, container: str) -> RuntimeState | None:
    path = f"{above}/{runtime}/{container}/{RUNTIMES[runtime]}"
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return None
    said = _json(file.text)
    pid = said.get("init_process_pid" if runtime == "runc" else "pid")
    bundle = said.get("bundle") or _labelled(said.get("config"))
    if not isinstance(pid, int) or not isinstance(bundle, str):
        return None
    return RuntimeState(runtime, container, pid, bundle, path)


def _labelled(config: object) -> str:
    """Runc notes the bundle as a label of its own configuration (libcontainer/specconv, `bundle=`)."""
    labels = config.get("labels") if isinstance(config, dict) else None
    found = (str(label) for label in labels or () if str(label).startswith("bundle="))
    return next(found, "").removeprefix("bundle=")
