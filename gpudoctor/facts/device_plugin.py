"""NVIDIA's device plugin on the node: how it was started, what it says, what the kubelet has of it to give, and the GPUs behind that.

The kubelet tells which devices are allocatable, and keeps which are registered: both are the healthy ones alone (kubernetes
pkg/kubelet/cm/devicemanager/manager.go, GetAllocatableDevices and writeCheckpoint). The record stays when the plugin is gone, so it is
taken for what is advertised only where the kubelet is connected to the plugin. Ids are UUIDs, those of replicas end in `::N`
(k8s-device-plugin internal/rm/devices.go); GKE's are nvidiaMINOR (container-engine-accelerators pkg/gpu/nvidia/manager.go); of other forms
nothing is said, so of HAMi's UUID-N, of which its scheduler and not the kubelet chooses the GPU (Project-HAMi/HAMi
pkg/device-plugin/nvidiadevice/nvinternal/rm/devices.go, GetPluginDevices). Options win over the environment, and that over the
configuration file (api/config/v1/config.go, NewConfig).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.kubelet_checkpoint import NVIDIA, KubeletCheckpoint
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.plugin_log import PluginLog, find_log
from gpudoctor.facts.plugin_sockets import PluginSockets, resource_of
from gpudoctor.facts.pod_resources import PodResources, own_id
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Raw, TextFile, decimal
from gpudoctor.facts.workloads import Workloads
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

PLUGIN = Subject(SubjectKind.SERVICE, "nvidia-device-plugin")

KEEP = (
    r"\A(?:(?:MIG_STRATEGY|FAIL_ON_INIT_ERROR|DEVICE_LIST_STRATEGY|CONFIG_FILE|NVIDIA_VISIBLE_DEVICES|DP_(?:DIS|EN)ABLE_HEALTHCHECKS)=|"
    r"--?(?:mig-strategy|fail-on-init-error|device-list-strategy|config-file)(?:=|\Z))"
)
"""What is read of the plugin's environment and command line; of an option whose value is a word of its own the option alone."""
_OPTIONS = {
    "migStrategy": ("MIG_STRATEGY", "--mig-strategy", "none"),
    "deviceListStrategy": ("DEVICE_LIST_STRATEGY", "--device-list-strategy", "envvar"),
}
_UUID = pattern(r"gpu-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ALL = ("", "all", "void")
"""Values of NVIDIA_VISIBLE_DEVICES with which the plugin may see every GPU: CDI writes void."""


class Told(Struct, frozen=True):
    """A setting of the plugin's and where it is told."""

    value: str
    evidence: Evidence


class Advertised(Struct, frozen=True):
    """What the kubelet has to give of NVIDIA's resources, by name, and where that is told."""

    by_resource: Mapping[str, tuple[str, ...]]
    evidence: Evidence

    @property
    def ids(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(device for ids in self.by_resource.values() for device in ids)

    @property
    def own_ids(self) -> frozenset[str]:
        """Without numbers of replicas, in lower case."""
        return frozenset(own_id(device).lower() for device in self.ids)

    @property
    def words(self) -> str:
        """`8 nvidia.com/gpu`."""
        return ", ".join(f"{len(ids)} {name}" for name, ids in self.by_resource.items()) or "no device of NVIDIA's"


class DevicePlugin(Fact, frozen=True):
    """The plugin. `present` is False where there is neither a kubelet nor a sign that a plugin of NVIDIA's is, was or should be here.

    `advertised` is None where no plugin is registered: who asks that is device-plugin.registered. `options` are by their names in the
    configuration. `restricted` is what keeps its container from seeing every GPU, or why that is not known.
    """

    kubelet: bool
    present: bool = False
    log: PluginLog | Absent | Unread | None = None
    options: Mapping[str, Told] = {}
    config: Mapping[str, Any] = {}
    config_at: str = ""
    restricted: Evidence | Unread | None = None
    advertised: Advertised | Unread | None = None

    @property
    def spoke(self) -> PluginLog | None:
        """Its log, where that could be read."""
        return self.log if isinstance(self.log, PluginLog) else None

    @classmethod
    def gather(cls, desk: Desk) -> "DevicePlugin | Unread":
        """Nothing but for a log is looked for where no plugin of NVIDIA's is or was: one that ends at its start leaves nothing else."""
        sockets = desk.get(PluginSockets)
        if isinstance(sockets, Unread):
            return sockets
        if sockets.kubelet is None:
            return cls(kubelet=False, read_from=sockets.read_from)
        settings = desk.get(KubeletSettings)
        root = settings.root if isinstance(settings, KubeletSettings) else ""
        pod_uid, unit = _home(desk, sockets)
        log = find_log(desk.raw, root, pod_uid, unit)
        if not sockets.concerns_gpus and not isinstance(log, PluginLog):
            return cls(kubelet=True, read_from=sockets.read_from)
        pid = sockets.plugins[0].pid if sockets.plugins else 0
        options, visible, file = _started_with(desk.raw, pid)
        config, config_at = (log.config or {}, log.where) if isinstance(log, PluginLog) else ({}, "")
        if not config and file:
            config, config_at = _configured(desk.raw, pid, file)
        return cls(
            kubelet=True,
            present=True,
            log=log,
            options={
                **options,
                **_in_config(config, config_at, options, log=isinstance(log, PluginLog) and bool(log.config)),
            },
            config=config,
            config_at=config_at,
            restricted=_restricted(desk, pid, visible) if pid else None,
            advertised=_advertised(desk, sockets),
            read_from=sockets.read_from,
        )


def _home(desk: Desk, sockets: PluginSockets) -> tuple[str, str]:
    """The pod and the unit that the plugin's process belongs to, "" where there is none."""
    processes = desk.get(Processes)
    if isinstance(processes, Unread) or not sockets.plugins:
        return "", ""
    process = next((one for one in processes.processes if one.pid == sockets.plugins[0].pid), None)
    if process is None or process.cgroup < 0:
        return "", ""
    identity = processes.identities[process.cgroup]
    return (identity.pod.uid, identity.unit) if identity.pod is not None else ("", identity.unit)


# How it was started --------------------------------------------------------------------------------------------------


def _started_with(raw: Raw, pid: int) -> tuple[dict[str, Told], Reading[str], str]:
    """Its options with their defaults, its NVIDIA_VISIBLE_DEVICES, and its configuration file as it sees that."""
    if not pid:
        return {}, "", ""
    paths = (f"/proc/{pid}/environ", f"/proc/{pid}/cmdline")
    files = raw.read_blocking(paths, keep=KEEP)
    environ, command = _pairs(files[paths[0]]), _options(files[paths[1]])
    if environ is None or command is None:
        seen = files[paths[0]]
        unread = seen if isinstance(seen, Unread) else Unread(Why.NOT_ANSWERED, paths[0], "was not seen")
        return {}, unread if environ is None else environ.get("NVIDIA_VISIBLE_DEVICES", ""), ""
    file = command.get("--config-file", environ.get("CONFIG_FILE", ""))
    told: dict[str, Told] = {}
    for name, (variable, option, default) in _OPTIONS.items():
        value = command.get(option, "")
        if value is None:
            continue
        if option in command:
            told[name] = Told(value, Evidence(paths[1], f"{option}={value}"))
        elif variable in environ:
            told[name] = Told(environ[variable], Evidence(paths[0], f"{variable}={environ[variable]}"))
        elif file == "":
            told[name] = Told(default, Evidence(paths[1], f"sets no {option}: the default is {default}"))
    return told, environ.get("NVIDIA_VISIBLE_DEVICES", ""), file or ""


def _restricted(desk: Desk, pid: int, visible: Reading[str]) -> Evidence | Unread | None:
    """What its container was started with; the process itself shows void where CDI has acted on that. Outside of one nobody heeds it."""
    workloads = desk.get(Workloads)
    one = workloads.by_pid.get(pid) if isinstance(workloads, Workloads) else None
    if one is None or one.kind is not GroupKind.CONTAINER:
        return None
    if isinstance(one.config, OciConfig):
        values = one.config.variables.all("NVIDIA_VISIBLE_DEVICES")
        only = next((value for value in values if not _is_all(value)), None)
        return Evidence(one.config.path, f"NVIDIA_VISIBLE_DEVICES={only}") if only is not None else None
    if isinstance(visible, Unread):
        return visible
    if visible.lower() == "void":
        return (
            one.config if isinstance(one.config, Unread) else Unread(Why.NOT_ANSWERED, one.config.where, "was not seen")
        )
    return None if _is_all(visible) else Evidence(f"/proc/{pid}/environ", f"NVIDIA_VISIBLE_DEVICES={visible}")


def _is_all(visible: str) -> bool:
    """By a name of CDI too: runtime.nvidia.com/gpu=all (nvidia-container-toolkit CHANGELOG 1.14.4)."""
    return visible.rpartition("=")[2].lower() in _ALL


def _pairs(file: TextFile | Absent | Unread) -> dict[str, str] | None:
    if not isinstance(file, TextFile):
        return None
    pairs = (part.partition("=") for part in file.text.split("\0") if "=" in part)
    return {name: value for name, _, value in pairs}


def _options(file: TextFile | Absent | Unread) -> dict[str, str | None] | None:
    """By name with two dashes, which Go's flag package takes for one (pkg.go.dev/flag); None for a value that is the next word, unread."""
    if not isinstance(file, TextFile):
        return None
    words = (word.lstrip("-").partition("=") for word in file.text.split("\0") if word.startswith("-"))
    return {f"--{name}": value if equals else None for name, equals, value in words}


def _configured(raw: Raw, pid: int, path: str) -> tuple[Mapping[str, Any], str]:
    from gpudoctor.facts.config_text import parse_yaml

    place = f"/proc/{pid}/root{path}"
    file = raw.read_blocking((place,))[place]
    document = parse_yaml(file) if isinstance(file, TextFile) else None
    return (document, place) if isinstance(document, dict) else ({}, "")


def _in_config(config: Mapping[str, Any], where: str, options: Mapping[str, Told], *, log: bool) -> dict[str, Told]:
    """What the configuration says; the one that the log shows is what is in force, a file gives way to options."""
    flags = config.get("flags")
    told: dict[str, Told] = {}
    if not isinstance(flags, dict):
        return told
    plugin = flags.get("plugin")
    for name in _OPTIONS:
        value = flags.get(name, plugin.get(name) if isinstance(plugin, dict) else None)
        words = ",".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(words, str) and (log or name not in options):
            told[name] = Told(words, Evidence(where, f"{name}: {words}"))
    return told


def shared(config: Mapping[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """The resources that are shared in time or by MPS: name, replicas, and whether all of its devices are (api/config/v1/replicas.go)."""
    sharing = config.get("sharing")
    for kind in ("timeSlicing", "mps"):
        way = sharing.get(kind) if isinstance(sharing, dict) else None
        resources = way.get("resources") if isinstance(way, dict) else None
        for one in resources if isinstance(resources, list) else ():
            if not isinstance(one, dict) or not isinstance(one.get("replicas"), int):
                continue
            name = str(one.get("name", ""))
            renamed = f"{name}.shared" if isinstance(way, dict) and way.get("renameByDefault") is True else name
            yield str(one.get("rename") or renamed), one["replicas"], one.get("devices") in (None, "all")


def resource(name: str) -> Subject:
    """A resource of the kubelet's as a subject."""
    return Subject(SubjectKind.SERVICE, name)


# What is advertised --------------------------------------------------------------------------------------------------


def _advertised(desk: Desk, sockets: PluginSockets) -> Advertised | Unread | None:
    resources = desk.get(PodResources)
    if isinstance(resources, PodResources) and not isinstance(resources.allocatable, Unread):
        names = [name for name in resources.resources if name.startswith(NVIDIA)]
        found = {
            name: ids for name in names if (ids := resources.allocatable_ids(name)) and not isinstance(ids, Unread)
        }
        return Advertised(found, resources.cite("allocatable")[0]) if found else None
    checkpoint = desk.get(KubeletCheckpoint)
    if isinstance(checkpoint, Unread):
        return checkpoint
    if isinstance(sockets.connections, Unread):
        return sockets.connections
    alive = {resource_of(name) for name in sockets.connected}
    found = {name: ids for name, ids in checkpoint.registered.items() if name in alive and ids}
    return Advertised(found, checkpoint.counted()) if found else None


class GpuIds(Fact, frozen=True):
    """Which GPU has which id: UUIDs of GPUs and MIG devices in lower case, with the addresses of the GPUs.

    `nameless` are GPUs of which no UUID is known; `mig` are those in MIG mode with the UUIDs and profiles of their devices, and
    `mig_unread` says why there may be more of these; `unlisted` says why there may be more GPUs.
    """

    addresses: Mapping[str, str]
    minors: Mapping[int, str]
    shows: Evidence
    nameless: tuple[str, ...] = ()
    mig: Mapping[str, tuple[tuple[str, str], ...]] = {}
    mig_unread: Unread | None = None
    unlisted: Unread | None = None

    def address(self, device: str) -> str | None:
        """The GPU behind a device's id; an old id of a MIG device names it (MIG-GPU-UUID/GI/CI)."""
        own = own_id(device).lower()
        if own.startswith("mig-gpu-"):
            return self.addresses.get(own.removeprefix("mig-").partition("/")[0])
        if own.startswith("nvidia"):
            minor = decimal(own.removeprefix("nvidia").partition("/")[0])
            return self.minors.get(minor) if minor is not None else None
        return self.addresses.get(own)

    def named(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """GPUs by their UUIDs, by their addresses where these are not known."""
        uuids = {address: uuid for uuid, address in self.addresses.items() if uuid.startswith("gpu-")}
        return tuple(_as_written(uuids[address]) if address in uuids else address for address in addresses)

    def knows(self, device: str) -> bool:
        """Whether an id is of a form that can be held against the GPUs that there are."""
        own = own_id(device).lower()
        if own.startswith("mig-"):
            listed = any(self.mig.values()) or (not self.mig and self.mig_unread is None)
            return own.startswith("mig-gpu-") or listed
        return _UUID.fullmatch(own) is not None

    @classmethod
    def gather(cls, desk: Desk) -> "GpuIds | Unread":
        """From the driver's own list, and NVML's for MIG devices."""
        pci, driver, nvml = desk.get(PciGpus), desk.get(DriverGpus), desk.get(Nvml)
        if isinstance(pci, Unread):
            return pci
        known = {} if isinstance(driver, Unread) else driver.gpus
        told = {address: gpu for address, gpu in known.items() if isinstance(gpu, DriverGpu)}
        addresses = {gpu.uuid.lower(): address for address, gpu in told.items() if gpu.uuid}
        mig: dict[str, tuple[tuple[str, str], ...]] = {}
        for device in nvml.devices if isinstance(nvml, Nvml) else ():
            if device.address is None:
                continue
            if device.uuid:
                addresses[device.uuid.lower()] = device.address
            if device.fields.get("mig.current") is True or device.mig_devices:
                mig[device.address] = tuple((one.uuid or "", one.profile or "") for one in device.mig_devices)
                addresses.update({one.uuid.lower(): device.address for one in device.mig_devices if one.uuid})
        if not addresses:
            return (
                nvml if isinstance(nvml, Unread) else Unread(Why.NOT_ANSWERED, "the driver", "tells no UUID of a GPU")
            )
        held = [gpu.address for gpu in pci if gpu.driver == "nvidia" or isinstance(gpu.driver, Unread)]
        named = set(addresses.values())
        return cls(
            addresses=addresses,
            minors={gpu.minor: address for address, gpu in told.items() if gpu.minor is not None},
            nameless=tuple(address for address in held if address not in named),
            mig=mig,
            mig_unread=nvml if isinstance(nvml, Unread) else None,
            shows=_shows(nvml, addresses),
            unlisted=pci.unlisted,
        )


def _shows(nvml: Reading[Nvml], addresses: Iterable[str]) -> Evidence:
    where = nvml.via if isinstance(nvml, Nvml) and nvml.devices else "/proc/driver/nvidia/gpus/*/information"
    listed = sorted(addresses)
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return Evidence(where, f"has {', '.join(_as_written(one) for one in listed[:4])}{more}")


def _as_written(uuid: str) -> str:
    return f"{uuid[:3].upper()}{uuid[3:]}"
