"""Where a containerd's configuration and socket are, and which of several the kubelet talks to.

Defaults: containerd/containerd defaults/defaults_unix.go. k3s and RKE2: k3s-io/k3s pkg/agent/config (their containerd listens below
/run/k3s, its file is generated below agent/etc/containerd). MicroK8s: canonical/microk8s microk8s-resources/default-args. k0s:
k0sproject/k0s docs/runtime.md. Docker's own: moby/moby libcontainerd/supervisor/remote_daemon.go.
"""

import re
from enum import Enum

from gpudoctor.facts.daemons import WITH_KUBELET, Daemon, Daemons, Program
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.verdicts import Unread

DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
MICROK8S_SOCKET = "/var/snap/microk8s/common/run/containerd.sock"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"


class Family(str, Enum):
    """Who brought a containerd and writes its configuration."""

    PLAIN = "containerd"
    K3S = "k3s"
    RKE2 = "rke2"
    MICROK8S = "microk8s"
    K0S = "k0s"
    DOCKER = "docker"


_MARKS = (
    ("/docker/containerd/", Family.DOCKER),
    ("/rancher/k3s/", Family.K3S),
    ("/rancher/rke2/", Family.RKE2),
    ("microk8s", Family.MICROK8S),
    ("/k0s", Family.K0S),
)


def family_of(path: str) -> Family:
    """Whose configuration a path is."""
    return next((family for mark, family in _MARKS if mark in path), Family.PLAIN)


def config_of(daemon: Daemon) -> str:
    """The file that a daemon read when it started, /etc/containerd/config.toml unless it was told another."""
    return daemon.option("config", "c") or DEFAULT_CONFIG


def as_path(endpoint: str) -> str:
    """A socket's path out of an endpoint; /var/run is a link to /run (file-hierarchy(7))."""
    path = endpoint.removeprefix("unix://")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


_ENDPOINT = re.compile(r"""^containerRuntimeEndpoint:\s*["']?([^\s"'#]+)""", re.MULTILINE)


def kubelet_sockets(raw: Raw, daemons: Daemons | Unread) -> tuple[str, ...] | Unread:
    """The sockets of the runtimes that the node's kubelets talk to, empty where none runs."""
    if isinstance(daemons, Unread):
        return daemons
    found = []
    for daemon in daemons.of(*WITH_KUBELET):
        if isinstance(daemon.arguments, Unread):
            return daemon.arguments
        found.append(_endpoint(raw, daemon))
    if not found and daemons.unlisted is not None:
        return daemons.unlisted
    return tuple(as_path(one) for one in found)


def _endpoint(raw: Raw, daemon: Daemon) -> str:
    """By flag, by KubeletConfiguration, or by default (k8s.io/kubelet config/v1beta1, containerRuntimeEndpoint)."""
    given = daemon.option("container-runtime-endpoint")
    if given:
        return given
    if daemon.program is Program.KUBELITE:
        return MICROK8S_SOCKET
    if daemon.program is not Program.KUBELET:
        return "/run/cri-dockerd.sock" if daemon.has("docker") else K3S_SOCKET
    file = raw.read(daemon.option("config") or KUBELET_CONFIG)
    line = _ENDPOINT.search(file.text) if isinstance(file, TextFile) else None
    return line[1] if line is not None else DEFAULT_SOCKET
