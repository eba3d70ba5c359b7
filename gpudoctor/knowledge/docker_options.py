"""What may stand in daemon.json: each option, what it holds, the flag of the same meaning, and since and until which release.

dockerd refuses a key that is neither the name of a flag nor that of an option, and a key that is given as a flag too (moby,
daemon/config/config.go, findConfigurationConflicts). Flags and options were read in cmd/dockerd/config*.go and options.go of the tags
v20.10.24, v23.0.0, v24.0.0, v25.0.0, v26.0.0, v27.0.1, v28.0.0, v28.2.0, and daemon/command of docker-v29.0.0 to v29.7.0, on 2026-11-30.
"""

from enum import Enum

from msgspec import Struct


class Holds(str, Enum):
    """What Go's decoder takes for an option; null is taken for each."""

    TEXT = "a string"
    SWITCH = "true or false"
    NUMBER = "a whole number"
    LIST = "a list of strings"
    TEXTS = "an object of strings"
    SWITCHES = "an object of true and false"
    TABLE = "an object"
    TABLES = "an object of objects"
    ANYTHING = "anything"


class Option(Struct, frozen=True):
    """A key of daemon.json; `flag` is how the command line calls it, "" where it cannot. Releases are (major, minor)."""

    key: str
    holds: Holds
    flag: str
    since: tuple[int, int] = (0, 0)
    until: tuple[int, int] | None = None


_WORDS = {
    Holds.TEXT: (
        "bip bridge cgroup-parent containerd containerd-namespace data-root default-cgroupns-mode default-gateway default-gateway-v6"
        " default-ipc-mode default-runtime exec-root fixed-cidr fixed-cidr-v6 group init-path ip log-driver log-level metrics-addr pidfile"
        " seccomp-profile storage-driver swarm-default-advertise-addr tlscacert tlscert tlskey userland-proxy-path userns-remap"
        " default-shm-size"
    ),
    Holds.SWITCH: (
        "cri-containerd debug experimental icc init ip-forward ip-masq ip6tables iptables ipv6 live-restore no-new-privileges raw-logs"
        " rootless selinux-enabled tls tlsverify userland-proxy"
    ),
    Holds.NUMBER: (
        "cpu-rt-period cpu-rt-runtime max-concurrent-downloads max-concurrent-uploads max-download-attempts mtu"
        " network-control-plane-mtu network-diagnostic-port shutdown-timeout"
    ),
    Holds.LIST: "dns dns-search allow-nondistributable-artifacts",
    # The file takes the names of these, and does nothing with them; that of containerd's plugins is spelled otherwise in the file.
    Holds.ANYTHING: "config-file containerd-plugins-namespace help restart version",
}
_NAMED = {
    "authorization-plugins": ("authorization-plugin", Holds.LIST),
    "default-address-pools": ("default-address-pool", Holds.ANYTHING),
    "default-ulimits": ("default-ulimit", Holds.TABLES),
    "dns-opts": ("dns-opt", Holds.LIST),
    "exec-opts": ("exec-opt", Holds.LIST),
    "hosts": ("host", Holds.LIST),
    "insecure-registries": ("insecure-registry", Holds.LIST),
    "labels": ("label", Holds.LIST),
    "log-opts": ("log-opt", Holds.TEXTS),
    "node-generic-resources": ("node-generic-resource", Holds.LIST),
    "registry-mirrors": ("registry-mirror", Holds.LIST),
    "runtimes": ("add-runtime", Holds.TABLES),
    "storage-opts": ("storage-opt", Holds.LIST),
}
"""Options whose flag, which can be repeated, has another name."""

_CHANGED = (
    Option("features", Holds.SWITCHES, ""),
    Option("builder", Holds.TABLE, ""),
    Option("deprecated-key-path", Holds.TEXT, ""),
    Option("host-gateway-ip", Holds.TEXT, "host-gateway-ip"),
    Option("graph", Holds.TEXT, "graph", until=(24, 0)),
    Option("cluster-advertise", Holds.TEXT, "cluster-advertise", until=(24, 0)),
    Option("cluster-store", Holds.TEXT, "cluster-store", until=(24, 0)),
    Option("cluster-store-opts", Holds.TEXTS, "cluster-store-opt", until=(24, 0)),
    Option("oom-score-adjust", Holds.NUMBER, "oom-score-adjust", until=(26, 0)),
    Option("api-cors-header", Holds.TEXT, "api-cors-header", until=(29, 0)),
    Option("http-proxy", Holds.TEXT, "http-proxy", (23, 0)),
    Option("https-proxy", Holds.TEXT, "https-proxy", (23, 0)),
    Option("no-proxy", Holds.TEXT, "no-proxy", (23, 0)),
    Option("validate", Holds.ANYTHING, "validate", (23, 0)),
    Option("proxies", Holds.TABLE, "", (23, 0)),
    Option("default-network-opts", Holds.TABLES, "default-network-opt", (24, 0)),
    Option("cdi-spec-dirs", Holds.LIST, "cdi-spec-dir", (25, 0)),
    Option("log-format", Holds.TEXT, "log-format", (25, 0)),
    Option("bip6", Holds.TEXT, "bip6", (28, 0)),
    Option("feature", Holds.ANYTHING, "feature", (28, 0)),
    Option("host-gateway-ips", Holds.LIST, "", (28, 0)),
    Option("ip-forward-no-drop", Holds.SWITCH, "ip-forward-no-drop", (28, 0)),
    Option("allow-direct-routing", Holds.SWITCH, "allow-direct-routing", (28, 2)),
    Option("bridge-accept-fwmark", Holds.TEXT, "bridge-accept-fwmark", (29, 0)),
    Option("firewall-backend", Holds.TEXT, "firewall-backend", (29, 0)),
    Option("min-api-version", Holds.TEXT, "", (29, 0)),
    Option("nri-opts", Holds.TABLE, "nri-opts", (29, 2)),
    Option("default-stop-timeout", Holds.NUMBER, "default-stop-timeout", (29, 7)),
)

READ_BEFORE = (29, 8)
"""What this release and later ones take besides was not read."""

FLAT = (
    "builder",
    "cluster-store-opts",
    "default-network-opts",
    "default-ulimits",
    "features",
    "log-opts",
    "nri-opts",
    "runtimes",
)
"""Options that are objects; the keys of any other object count as if they stood outside of it (the same file, configValuesSet)."""

OPTIONS: dict[str, Option] = {
    option.key: option
    for option in (
        *(Option(key, holds, key) for holds, keys in _WORDS.items() for key in keys.split()),
        *(Option(key, holds, flag) for key, (flag, holds) in _NAMED.items()),
        *_CHANGED,
    )
}
FLAG_NAMES = frozenset(option.flag for option in OPTIONS.values()) - {""}
"""Flags as such: dockerd takes their names as keys, and lets those that are no options lie."""
OF_FLAG = {option.flag: option.key for option in OPTIONS.values() if option.flag} | {
    "feature": "features",
    "host-gateway-ip": "host-gateway-ip",
}
"""The option that a flag stands for."""
SHORT = {
    "b": "bridge",
    "D": "debug",
    "G": "group",
    "H": "host",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
}
"""One-letter flags (the same files, StringVarP and BoolVarP; options.go)."""
SWITCH_FLAGS = frozenset(option.flag for option in OPTIONS.values() if option.holds is Holds.SWITCH) | {
    "help",
    "restart",
    "validate",
    "version",
}
"""Flags that take no word after them."""

CHOICES: dict[str, tuple[str, ...]] = {
    "log-level": ("panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"),
    "default-cgroupns-mode": ("host", "private"),
    "default-ipc-mode": ("private", "shareable"),
}
"""What these may say, in any case for the first (sirupsen/logrus, ParseLevel; later releases take fewer); of the others verifyDefault… in
daemon/config/config_linux.go."""
STOCK_RUNTIME = "runc"
STOCK_RUNTIMES = (STOCK_RUNTIME, "io.containerd.runc.v2")
"""Runtimes that dockerd knows by itself (moby, daemon/runtime_unix.go, stockRuntimes)."""
LINUX_V1 = "io.containerd.runtime.v1.linux"
"""One more before 23.0 (moby v20.10.24, daemon/config/config_unix.go)."""

CDI_SINCE, CDI_DEFAULT_SINCE, CDI_PREFERRED_SINCE = (25, 0), (28, 2), (29, 2)
"""`features.cdi` is asked since v25.0.0 (cmd/dockerd/daemon.go), and on unless it is false since v28.2.0 (cdiEnabled there; moby#49963).

Since v29.2.0 --gpus goes by CDI first where nvidia-cdi-hook was on the PATH, then by the hook (daemon/devices_nvidia_linux.go,
getNVIDIADeviceDrivers), and a rootless dockerd also searches its owner's folders (daemon/command/daemon.go; cd4397b4dc)."""
