"""The kubelet as it runs: its root directory and the settings that bear on devices, from its options and its configuration.

Options win over the file that --config names, and over the drop-ins of --config-dir, of which the last by name wins
(kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file). k3s and RKE2 hand options on by `kubelet-arg`
(docs.k3s.io/cli/agent); MicroK8s keeps them in a file (microk8s.io/docs/services-and-ports).
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.config_text import parse_yaml
from gpudoctor.facts.daemons import Daemon, Program
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.kubelet_endpoint import MICROK8S_ARGUMENTS, K3sValue, KubeletEndpoint, k3s_settings
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

ROOT = "/var/lib/kubelet"
"""The default of --root-dir; k3s and RKE2 leave it as it is."""
MICROK8S_ROOT = "/var/snap/microk8s/common/var/lib/kubelet"
DEVICE_PLUGINS = "device-plugins"
"""Of the default root whatever --root-dir says: its path is a constant (kubernetes/kubelet pkg/apis/deviceplugin/v1beta1/constants.go)."""

SETTINGS: Mapping[str, tuple[str, str]] = {
    "topologyManagerPolicy": ("topology-manager-policy", "none"),
    "topologyManagerScope": ("topology-manager-scope", "container"),
    "cpuManagerPolicy": ("cpu-manager-policy", "none"),
    "memoryManagerPolicy": ("memory-manager-policy", "None"),
    "cgroupDriver": ("cgroup-driver", "cgroupfs"),
    "reservedSystemCPUs": ("reserved-cpus", ""),
    "staticPodPath": ("pod-manifest-path", ""),
}
"""By their names in the file: the option, and the default (kubernetes pkg/kubelet/apis/config/v1beta1/defaults.go)."""

NODE_NAME = "hostname-override"
"""The option by which a kubelet calls its node otherwise than its host; k3s hands its own, node-name, on as this."""

_IN_FILE = pattern(r"(?m)^[ \t]*--([a-z-]+)[= ][\"']?([^\s\"'\\]*)")


class Setting(Struct, frozen=True):
    """A setting's value and where it is told; `assumed` where it is the default."""

    value: str
    evidence: Evidence
    assumed: bool = False


class KubeletSettings(Fact, frozen=True):
    """The first kubelet of the node, None where none runs. In `directories` plugins' sockets may be, likeliest first.

    `node_name` is what it calls its node, "" where that is its host's name or not known.
    """

    kubelet: Daemon | None
    root: str = ROOT
    directories: tuple[str, ...] = (f"{ROOT}/{DEVICE_PLUGINS}",)
    settings: Mapping[str, Setting | Unread] = {}
    node_name: str = ""

    def setting(self, name: str) -> Setting | Unread:
        """A setting by its name in the configuration file."""
        return self.settings[name]

    @property
    def unit(self) -> str:
        """The service to restart: the unit that it runs in."""
        return self.kubelet.unit if self.kubelet is not None and self.kubelet.unit else "kubelet.service"

    @classmethod
    def gather(cls, desk: Desk) -> "KubeletSettings | Unread":
        """Nothing else is read where no kubelet runs."""
        endpoints = desk.get(KubeletEndpoint)
        if isinstance(endpoints, Unread):
            return endpoints
        if not endpoints.kubelets:
            return _none(desk.raw, endpoints)
        kubelet = endpoints.kubelets[0].daemon
        told = _Told(desk.raw, kubelet)
        root, name = told.option("root-dir"), told.option(NODE_NAME)
        own = MICROK8S_ROOT if kubelet.program is Program.KUBELITE else ROOT
        where = (root.value if isinstance(root, Setting) else own).rstrip("/")
        roots = dict.fromkeys((own, ROOT, where))
        return cls(
            kubelet=kubelet,
            root=where,
            directories=tuple(f"{place}/{DEVICE_PLUGINS}" for place in roots),
            settings={setting: told.setting(setting) for setting in SETTINGS},
            node_name=name.value if isinstance(name, Setting) else "",
            read_from=kubelet.read_from,
        )


def _none(raw: Raw, endpoints: KubeletEndpoint) -> KubeletSettings | Unread:
    """Where not all processes are seen, that its directory is missing shows that there is no kubelet."""
    if endpoints.unlisted is not None and not isinstance(raw.entry(ROOT), Absent):
        return endpoints.unlisted
    return KubeletSettings(kubelet=None, read_from=endpoints.read_from)


class _Told:
    """What one kubelet was told, by options and by files; the files are read when they are first asked for."""

    def __init__(self, raw: Raw, kubelet: Daemon) -> None:
        self._raw = raw
        self._kubelet = kubelet
        self._options: dict[str, Setting] | Unread | None = None
        self._files: dict[str, Setting] | Unread | None = None

    def option(self, name: str) -> Setting | Unread | None:
        """An option's value."""
        if self._options is None:
            self._options = _options(self._raw, self._kubelet)
        return self._options if isinstance(self._options, Unread) else self._options.get(name)

    def setting(self, name: str) -> Setting | Unread:
        """A setting's value, from wherever it is told."""
        option, default = SETTINGS[name]
        told = self.option(option)
        if told is not None:
            return told
        if self._files is None:
            self._files = self._configured()
        if isinstance(self._files, Unread):
            return self._files
        said = self._kubelet.cite("command")[0]
        return self._files.get(name) or Setting(
            default, Evidence(said.where, f"sets no {name}: the default is {default or 'none'}"), assumed=True
        )

    def _configured(self) -> dict[str, Setting] | Unread:
        found: dict[str, Setting] = {}
        config, folder = self.option("config"), self.option("config-dir")
        places = [config.value] if isinstance(config, Setting) else []
        if isinstance(folder, Setting):
            listing = self._raw.listing(folder.value)
            if isinstance(listing, Unread):
                return listing
            names = listing.names if isinstance(listing, Listing) else ()
            places += [f"{folder.value}/{name}" for name in names if name.endswith(".conf")]
        for place in places:
            file = self._raw.read(place)
            if isinstance(file, Unread):
                return file
            document = parse_yaml(file) if isinstance(file, TextFile) else {}
            if not isinstance(document, dict):
                said = document if isinstance(document, Unread) else None
                return said or Unread(Why.UNREADABLE, place, "cannot be parsed")
            for name in SETTINGS:
                if isinstance(value := document.get(name), str) and value:
                    found[name] = Setting(value, Evidence(place, f"{name}: {value}"))
        return found


def _options(raw: Raw, kubelet: Daemon) -> dict[str, Setting] | Unread:
    """Options by name, however they reached it."""
    match kubelet.program:
        case Program.KUBELET:
            if isinstance(kubelet.arguments, Unread):
                return kubelet.arguments
            where = kubelet.cite("command")[0].where
            named = (*(option for option, _ in SETTINGS.values()), "root-dir", "config", "config-dir", NODE_NAME)
            return {
                name: Setting(value, Evidence(where, f"--{name}={value}"))
                for name in named
                if (value := kubelet.option(name))
            }
        case Program.KUBELITE:
            file = raw.read(MICROK8S_ARGUMENTS)
            return file if isinstance(file, Unread) else dict(_in_file(file))
        case _:
            return _handed_on(raw, kubelet)


def _in_file(file: TextFile | Absent) -> Iterator[tuple[str, Setting]]:
    for option in _IN_FILE.finditer(file.text) if isinstance(file, TextFile) else ():
        value = option[2].replace("${SNAP_COMMON}", "/var/snap/microk8s/common")
        value = value.replace("${SNAP_DATA}", "/var/snap/microk8s/current")
        yield option[1], Setting(value, Evidence(file.where, option[0].strip()))


def _handed_on(raw: Raw, kubelet: Daemon) -> dict[str, Setting] | Unread:
    """`kubelet-arg` in the configuration files and, winning, on the command line. k3s makes a drop-in of its own for the kubelet (1.32)."""
    if isinstance(kubelet.arguments, Unread):
        return kubelet.arguments
    told = k3s_settings(raw, kubelet)
    if isinstance(told, Unread):
        return told
    name = "rke2" if kubelet.program is Program.RKE2 else "k3s"
    said = kubelet.cite("command")[0].where
    words = [*told.get("kubelet-arg", ()), *(K3sValue(said, word) for word in kubelet.options("kubelet-arg"))]
    folder = f"/var/lib/rancher/{name}/agent/etc/kubelet.conf.d"
    found = {"config-dir": Setting(folder, Evidence(said, f"{name} writes {folder}"), assumed=True)}
    named = [*told.get("node-name", ()), *(K3sValue(said, word) for word in kubelet.options("node-name"))]
    for one in named:
        found[NODE_NAME] = Setting(one.value, Evidence(one.path, f"node-name: {one.value}"))
    for one in words:
        option, _, value = one.value.lstrip("-").partition("=")
        found[option] = Setting(value, Evidence(one.path, f"kubelet-arg: {option}={value}"))
    return found
