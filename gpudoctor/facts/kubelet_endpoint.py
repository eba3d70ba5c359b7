"""Where the kubelets of a node expect their engine to listen.

The endpoint is the option --container-runtime-endpoint, else containerRuntimeEndpoint of the file that --config names, else
unix:///run/containerd/containerd.sock (kubernetes pkg/kubelet/apis/config/v1beta1/defaults.go); options win over files
(kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file). k3s, RKE2 and MicroK8s have one of their own.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.config_text import parse_yaml
from gpudoctor.facts.containerd_places import DEFAULT_SOCKET, K3S_SOCKET, MICROK8S_SOCKET, as_path
from gpudoctor.facts.daemons import WITH_KUBELET, Daemon, Daemons, Program
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

OPTION = "container-runtime-endpoint"
DEFAULT = f"unix://{DEFAULT_SOCKET}"
K3S, K3S_DOCKER = f"unix://{K3S_SOCKET}", "unix:///run/k3s/cri-dockerd/cri-dockerd.sock"
"""k3s pkg/agent/config/config.go; RKE2 uses the same."""
MICROK8S, MICROK8S_ARGUMENTS = f"unix://{MICROK8S_SOCKET}", "/var/snap/microk8s/current/args/kubelet"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
ARGUMENT_FILES = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet")
"""kubeadm's unit reads the first and, by distribution, one of the others (kubernetes/release, 10-kubeadm.conf)."""
UNIT_DROP_INS = ("/etc/systemd/system/kubelet.service.d", "/usr/lib/systemd/system/kubelet.service.d")

_IN_TEXT = r"--container-runtime-endpoint[= ][\"']?([^\s\"'\\]+)"


class Endpoint(Struct, frozen=True):
    """Where the kubelet's engine listens; `assumed` where only the default says so."""

    url: str
    evidence: Evidence
    assumed: bool = False

    @property
    def socket(self) -> str:
        """The path, the same for /var/run and /run."""
        return as_path(self.url)


class Kubelet(Struct, frozen=True):
    """One running kubelet and its endpoint, or why that is not known."""

    daemon: Daemon
    endpoint: Endpoint | Unread


class KubeletEndpoint(Fact, frozen=True):
    """All kubelets, those that are programs of their own first; `unlisted` says why there may be more."""

    kubelets: tuple[Kubelet, ...]
    unlisted: Unread | None = None

    @property
    def sockets(self) -> tuple[str, ...] | Unread:
        """Where their engines listen, none where no kubelet runs; why it is not known if it is not of one of them."""
        for kubelet in self.kubelets:
            if isinstance(kubelet.endpoint, Unread):
                return kubelet.endpoint
        if not self.kubelets and self.unlisted is not None:
            return self.unlisted
        return tuple(one.endpoint.socket for one in self.kubelets if isinstance(one.endpoint, Endpoint))

    @classmethod
    def gather(cls, desk: Desk) -> "KubeletEndpoint | Unread":
        """Nothing else is looked at where no kubelet runs."""
        daemons = desk.get(Daemons)
        if isinstance(daemons, Unread):
            return daemons
        return cls(
            kubelets=tuple(Kubelet(daemon, _endpoint(desk.raw, daemon)) for daemon in _running(daemons)),
            unlisted=daemons.unlisted,
            read_from=daemons.read_from,
        )


def _running(daemons: Daemons) -> tuple[Daemon, ...]:
    """RKE2 has its kubelet as a child (rke2 pkg/executor/staticpod): where that was seen, it says all that its parent would."""
    own = daemons.of(Program.KUBELET)
    inside = [daemon for daemon in daemons.of(*WITH_KUBELET) if daemon.program is not Program.KUBELET]
    return (*own, *(daemon for daemon in inside if not own or daemon.program is not Program.RKE2))


def _endpoint(raw: Raw, kubelet: Daemon) -> Endpoint | Unread:
    if isinstance(kubelet.arguments, Unread):
        return _from_files(raw) or kubelet.arguments
    said = kubelet.cite("command")[0]
    url = kubelet.option(OPTION)
    if url:
        return Endpoint(url, Evidence(said.where, f"--{OPTION}={url}"))
    match kubelet.program:
        case Program.K3S_SERVER | Program.K3S_AGENT | Program.RKE2:
            return _of_k3s(raw, kubelet)
        case Program.KUBELITE:
            return _in_text(raw, MICROK8S_ARGUMENTS) or Endpoint(MICROK8S, said, assumed=True)
        case _:
            return _of_config(raw, kubelet)


def _of_config(raw: Raw, kubelet: Daemon) -> Endpoint | Unread:
    """The file, then the drop-ins in the order of their names, the last one winning."""
    said = kubelet.cite("command")[0]
    path, folder = kubelet.option("config"), kubelet.option("config-dir")
    found = Endpoint(DEFAULT, Evidence(said.where, f"gives no --{OPTION}"), assumed=True)
    listing = raw.listing(folder) if folder else None
    if isinstance(listing, Unread):
        return listing
    names = listing.names if isinstance(listing, Listing) else ()
    for place in (*([path] if path else []), *(f"{folder}/{name}" for name in names if name.endswith(".conf"))):
        value = _configured(raw, place)
        if isinstance(value, Unread):
            return value
        found = value or found
    return found


def _configured(raw: Raw, path: str) -> Endpoint | Unread | None:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return file if isinstance(file, Unread) else None
    if "containerRuntimeEndpoint" not in file.text:
        return None
    document = parse_yaml(file)
    if not isinstance(document, dict):
        return Unread(Why.UNREADABLE, file.where, "cannot be parsed") if not isinstance(document, Unread) else document
    url = document.get("containerRuntimeEndpoint")
    return (
        Endpoint(url, Evidence(file.where, f"containerRuntimeEndpoint: {url}"))
        if isinstance(url, str) and url
        else None
    )


def _of_k3s(raw: Raw, kubelet: Daemon) -> Endpoint | Unread:
    """Options may stand in its configuration file, too (docs.k3s.io/installation/configuration)."""
    settings = k3s_settings(raw, kubelet)
    told: Mapping[str, tuple[K3sValue, ...]] = {} if isinstance(settings, Unread) else settings
    if OPTION in told:
        last = told[OPTION][-1]
        return Endpoint(last.value, Evidence(last.path, f"{OPTION}: {last.value}"))
    docker = next((one for one in told.get("docker", ())[-1:] if one.value == "true"), None)
    if docker is not None or kubelet.has("docker"):
        said = Evidence(docker.path, "docker: true") if docker is not None else kubelet.cite("command")[0]
        return Endpoint(K3S_DOCKER, said, assumed=True)
    return settings if isinstance(settings, Unread) else Endpoint(K3S, kubelet.cite("command")[0], assumed=True)


class K3sValue(Struct, frozen=True):
    """A value of a configuration file of k3s or RKE2, as it stands for an option, and the file."""

    path: str
    value: str


def k3s_settings(raw: Raw, kubelet: Daemon) -> Mapping[str, tuple[K3sValue, ...]] | Unread:
    """What the configuration files of k3s or RKE2 say, by option: config.yaml, then config.yaml.d/*.yaml by name.

    The last file that has a key wins, but for `KEY+`, which adds to what there is (docs.k3s.io/installation/configuration, Multiple Config
    Files). Rancher writes config.yaml.d/50-rancher.yaml and no config.yaml (rancher pkg/apis/rke.cattle.io, MachineGlobalConfig).
    """
    name = "rke2" if kubelet.program is Program.RKE2 else "k3s"
    path = kubelet.option("config", "c") or f"/etc/rancher/{name}/config.yaml"
    listing = raw.listing(f"{path}.d")
    if isinstance(listing, Unread) and listing.why is not Why.NOT_RECORDED:
        return listing
    names = sorted(listing.names) if isinstance(listing, Listing) else []
    found: dict[str, tuple[K3sValue, ...]] = {}
    for place in (path, *(f"{path}.d/{one}" for one in names if one.lower().endswith((".yaml", ".yml")))):
        file = raw.read(place)
        document = parse_yaml(file) if isinstance(file, TextFile) else file
        if isinstance(document, Unread):
            return document
        for key, value in document.items() if isinstance(document, dict) else ():
            option = str(key).removesuffix("+")
            before = found.get(option, ()) if str(key).endswith("+") else ()
            found[option] = (*before, *_k3s_values(place, value))
    return found


def _k3s_values(path: str, value: object) -> Iterator[K3sValue]:
    for one in value if isinstance(value, list) else (value,):
        yield K3sValue(path, str(one).lower() if isinstance(one, bool) else str(one))


def _from_files(raw: Raw) -> Endpoint | None:
    """What its unit would give it, where its own arguments were not seen."""
    for path in (*ARGUMENT_FILES, *_unit_files(raw)):
        if (found := _in_text(raw, path)) is not None:
            return found
    configured = _configured(raw, KUBELET_CONFIG)
    return configured if isinstance(configured, Endpoint) else None


def _unit_files(raw: Raw) -> Iterator[str]:
    for folder in UNIT_DROP_INS:
        listing = raw.listing(folder)
        for name in listing.names if isinstance(listing, Listing) else ():
            if name.endswith(".conf"):
                yield f"{folder}/{name}"


def _in_text(raw: Raw, path: str) -> Endpoint | None:
    """The option in a file of arguments, the last one that is no comment."""
    file = raw.read(path)
    lines = file.text.splitlines() if isinstance(file, TextFile) else []
    found = [match for line in lines if not line.lstrip().startswith("#") for match in re.finditer(_IN_TEXT, line)]
    if not found:
        return None
    url = re.sub(r"\$\{?SNAP_COMMON\}?", "/var/snap/microk8s/common", found[-1][1])
    return Endpoint(url, Evidence(path, found[-1][0]))
