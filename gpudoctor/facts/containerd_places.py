"""Where a containerd's configuration and socket are.

Defaults: containerd/containerd defaults/defaults_unix.go. k3s and RKE2: k3s-io/k3s pkg/agent/config (their containerd listens below
/run/k3s, its file is generated below agent/etc/containerd). MicroK8s: canonical/microk8s microk8s-resources/default-args. k0s:
k0sproject/k0s docs/runtime.md. Docker's own: moby/moby libcontainerd/supervisor/remote_daemon.go.
"""

from enum import Enum

from gpudoctor.facts.daemons import Daemon
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread

DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
K3S_CONFIG = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
RKE2_CONFIG = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
MICROK8S_SOCKET = "/var/snap/microk8s/common/run/containerd.sock"


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


_UNPACKED = pattern(r"(/.*/(?:k3s|rke2))/data/[^/]+/bin/[^/]+")
"""Where k3s and RKE2 unpack their programs, below the folder that holds everything of theirs (k3s cmd/k3s/main.go, extract)."""


def config_of(daemon: Daemon) -> str:
    """The file that a daemon read when it started, /etc/containerd/config.toml unless it was told another.

    k3s hides its containerd's arguments, which it overwrites with zeros: there the program's place tells.
    """
    unpacked = _UNPACKED.fullmatch(daemon.program_path or "")
    hidden = not isinstance(daemon.arguments, Unread) and not any(daemon.arguments)
    if unpacked is not None and hidden:
        return f"{unpacked[1]}/agent/etc/containerd/config.toml"
    return daemon.option("config", "c") or DEFAULT_CONFIG


def usual_socket(family: Family) -> str:
    """Where a containerd listens that is not told otherwise, by who brought it."""
    if family in (Family.K3S, Family.RKE2):
        return K3S_SOCKET
    return MICROK8S_SOCKET if family is Family.MICROK8S else DEFAULT_SOCKET


def as_path(endpoint: str) -> str:
    """A socket's path out of an endpoint; /var/run is a link to /run (file-hierarchy(7))."""
    path = endpoint.removeprefix("unix://")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path
