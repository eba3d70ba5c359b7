"""What an engine told the runtime: the OCI configuration of a container on disk, and what dockerd keeps beside it.

Sources: opencontainers/runtime-spec config.md and config-linux.md; CDI SPEC.md (annotations cdi.k8s.io/*); NVIDIA/nvidia-container-toolkit
v1.20.0 internal/modifier (hooks, /var/run/nvidia-container-devices); moby api/types/container HostConfig.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from gpudoctor.facts.desk import Citable
from gpudoctor.facts.gpu_variables import Variables, variables
from gpudoctor.facts.mounts import MountedLibrary, is_library, of_driver, plugin_device
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

NODE_PREFIX = "/dev/nvidia"
CDI_ANNOTATIONS = "cdi.k8s.io/"
LEGACY_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
"""Prestart hooks that let libnvidia-container add GPUs behind the runtime's back; the older name is a link to the newer."""
CDI_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")
"""What CDI edits and the just-in-time mode put into a configuration."""


class OciDevice(Struct, frozen=True):
    """One device node that the runtime is told to make."""

    path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None


class OciRule(Struct, frozen=True):
    """One device rule: without type, major or minor it is about all."""

    allow: bool = False
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    access: str | None = None


class OciConfig(Citable, frozen=True):
    """What of a container's configuration has to do with GPUs.

    `nodes` are NVIDIA's among the devices, `requests` the CDI names in annotations, `plugin_devices` those asked for by mounts below
    /var/run/nvidia-container-devices, `libraries` the driver's that are to be mounted, `mounted` where all of
    the driver's mounts are to appear, `annotations` those that name the container.
    """

    path: str
    variables: Variables
    nodes: tuple[OciDevice, ...]
    rules: tuple[OciRule, ...]
    libraries: tuple[MountedLibrary, ...]
    mounted: frozenset[str]
    plugin_devices: tuple[str, ...]
    requests: tuple[str, ...]
    hooks: tuple[str, ...]
    annotations: Mapping[str, str]
    cgroups_path: str
    namespaces: tuple[str, ...]

    @property
    def legacy_hook(self) -> bool:
        """Whether libnvidia-container adds GPUs from outside."""
        return any(hook in LEGACY_HOOKS for hook in self.hooks)

    @property
    def edited(self) -> bool:
        """Whether CDI, just in time or from a specification, edited it."""
        return any(hook in CDI_HOOKS for hook in self.hooks)

    @property
    def allows_everything(self) -> bool:
        """Whether it is privileged: the last rule about all devices lets all through."""
        broad = [rule for rule in self.rules if rule.type in (None, "", "a") and rule.major is None]
        return bool(broad) and broad[-1].allow


class _Process(Struct):
    env: tuple[str, ...] | None = None


class _Resources(Struct):
    devices: tuple[OciRule, ...] | None = None


class _Namespace(Struct):
    type: str = ""


class _Linux(Struct, rename="camel"):
    devices: tuple[OciDevice, ...] | None = None
    resources: _Resources | None = None
    cgroups_path: str = ""
    namespaces: tuple[_Namespace, ...] | None = None


class _Mount(Struct):
    destination: str = ""
    source: str = ""


class _Hook(Struct):
    path: str = ""


class _Spec(Struct):
    process: _Process | None = None
    linux: _Linux | None = None
    mounts: tuple[_Mount, ...] | None = None
    hooks: dict[str, tuple[_Hook, ...] | None] | None = None
    annotations: dict[str, str] | None = None


_DECODER = msgspec.json.Decoder(_Spec)


def parse_config(file: TextFile | Absent | Unread) -> OciConfig | Absent | Unread:
    """The configuration as a runtime reads it; more in it than is known here is no fault."""
    if not isinstance(file, TextFile):
        return file
    try:
        spec = _DECODER.decode(file.text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        return Unread(Why.UNREADABLE, file.path, f"is no OCI configuration: {error}")
    linux = spec.linux or _Linux()
    mounts = [mount for mount in spec.mounts or () if of_driver(mount.destination) or of_driver(mount.source)]
    annotations = spec.annotations or {}
    hooks = tuple(sorted({_base(hook.path) for hook in _hooks(spec) if _base(hook.path) in LEGACY_HOOKS + CDI_HOOKS}))
    nodes = tuple(device for device in linux.devices or () if device.path.startswith(NODE_PREFIX))
    asked = [device for mount in mounts if (device := plugin_device(mount.destination))]
    return OciConfig(
        path=file.path,
        variables=variables((spec.process.env if spec.process else None) or ()),
        nodes=nodes,
        rules=(linux.resources.devices if linux.resources else None) or (),
        libraries=tuple(
            library for mount in mounts if (library := is_library(mount.destination, mount.source)) is not None
        ),
        mounted=frozenset(mount.destination for mount in mounts),
        plugin_devices=tuple(asked),
        requests=tuple(_requests(annotations)),
        hooks=hooks,
        annotations={name: annotations[name] for name in NAMING if name in annotations},
        cgroups_path=linux.cgroups_path,
        namespaces=tuple(namespace.type for namespace in linux.namespaces or ()),
        read_from={
            "nodes": Evidence(
                file.where, f"linux.devices: {', '.join(node.path for node in nodes) or 'none of NVIDIA'}"
            ),
            "hooks": Evidence(file.where, f"hooks: {', '.join(hooks) or 'none of NVIDIA'}"),
        },
    )


def _hooks(spec: _Spec) -> Iterable[_Hook]:
    return (hook for hooks in (spec.hooks or {}).values() for hook in hooks or ())


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _requests(annotations: Mapping[str, str]) -> Iterable[str]:
    """The GPUs that annotations ask for, comma separated (CDI SPEC.md; cdi.ParseAnnotations)."""
    for name, value in annotations.items():
        if name.startswith(CDI_ANNOTATIONS):
            yield from (word for word in map(str.strip, value.split(",")) if _OF_GPUS.match(word))


# nvidia.com/gpu of nvidia-ctk, k8s.device-plugin.nvidia.com/gpu, management.nvidia.com/gpu, nvidia.com/mig-1g.10gb, and the DRA driver's
# k8s.gpu.nvidia.com/device; nvidia.com/imex-channel, nvidia.com/gds and other vendors' devices are no GPU.
_OF_GPUS = pattern(r"(?:[\w.-]+\.)?nvidia\.com/(?:p?gpu|mig[\w.-]*)=|k8s\.gpu\.nvidia\.com/(?:device|claim)=")


# Annotations that name a container: containerd internal/cri/annotations, cri-o pkg/annotations, kubelet pkg/kubelet/types labels,
# nerdctl pkg/labels.
CONTAINER_NAME = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name")
POD_NAME = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
POD_NAMESPACE = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
POD_UID = ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")
KIND = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
NAMING = (*CONTAINER_NAME, *POD_NAME, *POD_NAMESPACE, *POD_UID, *KIND)


# dockerd ------------------------------------------------------------------------------------------------------------


class DeviceRequest(Struct, frozen=True, rename="pascal"):
    """What `--gpus` and `--device vendor.com/class=name` become; a count of -1 means all."""

    driver: str = ""
    count: int = 0
    device_i_ds: tuple[str, ...] | None = msgspec.field(default=None, name="DeviceIDs")
    capabilities: tuple[tuple[str, ...], ...] | None = None

    @property
    def about_gpus(self) -> bool:
        """Whether it is about NVIDIA's GPUs."""
        cdi = any(name.startswith("nvidia.com/") for name in self.device_i_ds or ())
        return cdi or self.driver == "nvidia" or any("gpu" in group for group in self.capabilities or ())

    @property
    def names(self) -> tuple[str, ...]:
        """The GPUs it names."""
        return self.device_i_ds or (("all",) if self.count == -1 else (f"{self.count} of them",))


class DockerContainer(Struct, frozen=True):
    """What dockerd keeps of a container: its name, runtime and what it was asked for."""

    name: str
    image: str
    runtime: str
    privileged: bool
    requests: tuple[DeviceRequest, ...]
    path: str


class _DockerConfig(Struct, rename="pascal"):
    image: str = ""


class _DockerFile(Struct, rename="pascal"):
    name: str = ""
    config: _DockerConfig | None = None


class _HostConfig(Struct, rename="pascal"):
    runtime: str = ""
    privileged: bool = False
    device_requests: tuple[DeviceRequest, ...] | None = None


_DOCKER = msgspec.json.Decoder(_DockerFile)
_HOST = msgspec.json.Decoder(_HostConfig)


def parse_docker(
    file: TextFile | Absent | Unread, host: TextFile | Absent | Unread
) -> DockerContainer | Absent | Unread:
    """config.v2.json and hostconfig.json of one container."""
    if not isinstance(file, TextFile):
        return file
    if not isinstance(host, TextFile):
        return host
    try:
        said, settings = _DOCKER.decode(file.text), _HOST.decode(host.text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        return Unread(Why.UNREADABLE, file.path, f"is not what dockerd writes: {error}")
    return DockerContainer(
        name=said.name.removeprefix("/"),
        image=said.config.image if said.config else "",
        runtime=settings.runtime,
        privileged=settings.privileged,
        requests=tuple(request for request in settings.device_requests or () if request.about_gpus),
        path=host.path,
    )
