"""Who was given NVIDIA's devices, joined: what the kubelet tells or keeps of a pod, the container that runs for it, the GPUs behind ids.

The kubelet's record has entries of pods that have ended until it next gives a device away (kubernetes pkg/kubelet/cm/devicemanager/
manager.go, UpdateAllocatedDevices): without the kubelet's own word only those count of which a container runs.

What a static pod asks for stands in its manifest, which the kubelet starts whether or not a plugin has registered: of its resources only
those are looked at that some plugin has (the same file, Allocate and isDevicePluginResource); its name ends in that of the node
(pkg/kubelet/config/common.go, applyDefaults).
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.facts.config_text import parse_yaml
from gpudoctor.facts.daemons import Program
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_plugin import GpuIds
from gpudoctor.facts.kubelet import KubeletSettings, Setting
from gpudoctor.facts.kubelet_checkpoint import NVIDIA, KubeletCheckpoint
from gpudoctor.facts.kubernetes_api import KubernetesApi, node_name
from gpudoctor.facts.pod_resources import Pod, PodContainer, PodResources
from gpudoctor.facts.raw import Listing, Raw, TextFile, decimal
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread

GPU_DRIVER = "gpu.nvidia.com"
"""NVIDIA's driver for dynamic resource allocation (kubernetes-sigs/dra-driver-nvidia-gpu)."""
MOST_MANIFESTS = 64
_OF_GPUS = pattern(r"gpu|cuda|nvidia|mig-")
"""Resources of plugins that give NVIDIA's GPUs, those of others too: aliyun.com/gpu-mem, tencent.com/vcuda-core, volcano.sh/vgpu-number."""
_MANIFESTS = {Program.K3S_SERVER: "k3s", Program.K3S_AGENT: "k3s", Program.RKE2: "rke2"}


class Given(Struct, frozen=True):
    """A container and the devices that it was given; `uid` is "" where nothing tells it, `workload` None where none runs for it."""

    namespace: str
    name: str
    uid: str
    container: str
    ids: tuple[str, ...]
    evidence: Evidence
    workload: Workload | None = None
    gpus: tuple[str, ...] = ()
    by_mount: bool = False

    @property
    def words(self) -> str:
        """As people call the pod."""
        return f"{self.namespace}/{self.name}" if self.name else f"pod {self.uid}"

    @property
    def subject(self) -> Subject:
        """The pod; it stands on its container and on the GPUs behind its devices."""
        below = [Subject(SubjectKind.GPU, address) for address in self.gpus]
        below += [self.workload.subject] if self.workload is not None else []
        return Subject(SubjectKind.POD, self.words if self.name else self.uid, stands_on=tuple(below))


class Asking(Citable, frozen=True):
    """A container that asks for GPUs: the resource, how many, and what runs for it by the kubelet's word or by itself.

    `static` is whether its manifest lies on the node; else the API server told. `pending` is why it does not run yet.
    """

    namespace: str
    name: str
    container: str
    resource: str
    count: int
    manifest: Evidence
    uid: str = ""
    static: bool = True
    pending: str = ""
    runs: Evidence | None = None
    given: tuple[str, ...] | None = None
    workload: Workload | None = None

    @property
    def subject(self) -> Subject:
        """The pod."""
        below = (self.workload.subject,) if self.workload is not None else ()
        return Subject(SubjectKind.POD, f"{self.namespace}/{self.name}", stands_on=below)


class PodDevices(Fact, frozen=True):
    """What was given to whom, and who asks: static pods, and others where the API server told.

    `told` is False where only the kubelet's record says who holds what. `pods` are namespace and name of those that the kubelet tells
    of, `claimed` of those whose devices came by a claim or from a plugin of somebody else's; `recorded` are the uids in the record.
    `unread` says why it is not known who holds what.
    """

    kubelet: bool
    given: tuple[Given, ...] = ()
    asking: tuple[Asking, ...] = ()
    told: bool = False
    pods: frozenset[tuple[str, str]] = frozenset()
    recorded: frozenset[str] = frozenset()
    claimed: frozenset[tuple[str, str]] = frozenset()
    unread: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "PodDevices | Unread":
        """Nothing is looked at where no kubelet runs."""
        settings = desk.get(KubeletSettings)
        if isinstance(settings, Unread):
            return settings
        if settings.kubelet is None:
            return cls(kubelet=False, read_from=settings.read_from)
        manifests = (*_asked_for(desk.raw, settings), *_asked_api(desk))
        resources, checkpoint = desk.get(PodResources), desk.get(KubeletCheckpoint)
        told = None if isinstance(resources, Unread) else resources
        kept = None if isinstance(checkpoint, Unread) or checkpoint.state is not None else checkpoint
        holds = bool(told is not None and told.pods) or bool(kept is not None and kept.held)
        running = desk.get(Workloads) if holds or manifests else None
        containers = running.containers if isinstance(running, Workloads) else ()
        joiner = _Joiner(containers, kept, desk.get(GpuIds) if holds else None, node_name(desk) if manifests else "")
        about: dict[str, Evidence] = dict(settings.read_from)
        about |= {"pods": told.cite("pods")[0]} if told is not None else {}
        about |= {"record": kept.cite("file")[0]} if kept is not None else {}
        return cls(
            kubelet=True,
            given=tuple(joiner.told(told) if told is not None else joiner.recorded()),
            asking=_once(joiner.asking(one, told) for one in manifests),
            told=told is not None,
            pods=frozenset((pod.namespace, pod.name) for pod in told.pods) if told is not None else frozenset(),
            recorded=frozenset(one.pod_uid for one in kept.entries if _OF_GPUS.search(one.resource))
            if kept
            else frozenset(),
            claimed=frozenset(_claimed(told.pods)) if told is not None else frozenset(),
            unread=resources if isinstance(resources, Unread) and isinstance(checkpoint, Unread) else None,
            read_from=about,
        )


def _once(asking: Iterable[Asking]) -> tuple[Asking, ...]:
    """The API server tells of static pods too."""
    found: dict[tuple[str, ...], Asking] = {}
    for one in asking:
        found.setdefault((one.namespace, one.name, one.container, one.resource), one)
    return tuple(found.values())


def _claimed(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        devices = (device for one in pod.containers for claim in one.claims for device in claim.devices)
        claimed = any(
            GPU_DRIVER in device.driver or any("nvidia.com/" in name for name in device.cdi) for device in devices
        )
        if claimed or any(_OF_GPUS.search(one.resource) for container in pod.containers for one in container.devices):
            yield pod.namespace, pod.name


class _Joiner:
    """Brings pods, containers and GPUs together."""

    def __init__(
        self,
        containers: tuple[Workload, ...],
        checkpoint: KubeletCheckpoint | None,
        ids: "GpuIds | Unread | None",
        node: str,
    ) -> None:
        self._containers = [one for one in containers if one.pod is not None]
        self._checkpoint = checkpoint
        self._ids = ids if isinstance(ids, GpuIds) else None
        self._node = node

    def told(self, resources: PodResources) -> Iterator[Given]:
        """What the kubelet says."""
        for pod in resources.pods:
            for container in pod.containers:
                ids = _nvidias(container)
                if not ids:
                    continue
                shows = f"List: {pod.words}, container {container.name}: {_listed(ids)}"
                workload = self._container(pod.namespace, pod.name, container.name)
                uid = (
                    workload.pod.uid
                    if workload is not None and workload.pod is not None
                    else self._uid(container.name, ids)
                )
                yield self._given(
                    Given(pod.namespace, pod.name, uid, container.name, ids, Evidence(resources.via, shows), workload)
                )

    def recorded(self) -> Iterator[Given]:
        """What it keeps of pods of which a container runs."""
        checkpoint = self._checkpoint
        for entry in checkpoint.held if checkpoint is not None else ():
            workload = self._by_uid(entry.pod_uid, entry.container)
            if checkpoint is None or workload is None or workload.pod is None:
                continue
            shows = f"pod {entry.pod_uid}, container {entry.container}: {_listed(entry.ids)}"
            at = Evidence(checkpoint.path, shows)
            pod = workload.pod
            yield self._given(Given(pod.namespace, pod.name, pod.uid, entry.container, entry.ids, at, workload))

    def _given(self, one: Given) -> Given:
        from msgspec.structs import replace

        known = self._ids
        gpus = [address for device in one.ids if known is not None and (address := known.address(device)) is not None]
        return replace(one, gpus=tuple(dict.fromkeys(gpus)), by_mount=self._by_mount(one))

    def _by_mount(self, one: Given) -> bool:
        """Whether the plugin's answer names its devices by mounts alone (k8s-device-plugin internal/plugin/server.go, volume-mounts)."""
        for entry in self._checkpoint.held if self._checkpoint is not None else ():
            if set(entry.ids) <= set(one.ids) and not isinstance(entry.response, Unread):
                mounts = [mount.container_path for mount in entry.response.mounts]
                return any(path.startswith("/var/run/nvidia-container-devices") for path in mounts)
        return False

    def asking(self, asked: Asking, resources: PodResources | None) -> Asking:
        """A static pod with what runs for it."""
        from msgspec.structs import replace

        workload = self._container(asked.namespace, asked.name, asked.container, static=asked.static)
        if resources is not None:
            names = [pod for pod in resources.pods if pod.namespace == asked.namespace and _is_of(pod.name, asked)]
            pod = min(names, key=lambda one: self._distance(one.name, asked.name), default=None)
            container = next((one for one in pod.containers if one.name == asked.container), None) if pod else None
            if pod is None or container is None:
                return asked
            ids = (*container.ids(asked.resource), *_by_claim(container))
            shows = f"List: {pod.words}, container {container.name}: {_listed(ids) or 'no device'}"
            uid = workload.pod.uid if workload is not None and workload.pod is not None else ""
            runs = Evidence(resources.via, shows)
            return replace(asked, name=pod.name, uid=uid, runs=runs, given=ids, workload=workload)
        if workload is None or workload.pod is None or self._checkpoint is None:
            return asked
        given = tuple(device for one in self._checkpoint.held if one.pod_uid == workload.pod.uid for device in one.ids)
        runs = Evidence(self._checkpoint.path, f"pod {workload.pod.uid}: {_listed(given) or 'no device'}")
        return replace(asked, name=workload.pod.name, uid=workload.pod.uid, runs=runs, given=given, workload=workload)

    def _container(self, namespace: str, name: str, container: str, *, static: bool = False) -> Workload | None:
        found: dict[tuple[bool, int], Workload] = {}
        for one in self._containers:
            pod = one.pod
            if pod is None or pod.namespace != namespace or pod.container != container:
                continue
            if pod.name == name or (static and pod.name.startswith(f"{name}-")):
                found.setdefault(self._distance(pod.name, name), one)
        return found[min(found)] if found else None

    def _distance(self, pod: str, name: str) -> tuple[bool, int]:
        """How far a pod's name is from that of a manifest: the kubelet puts the node's behind it, and other pods may begin alike."""
        return pod not in (name, f"{name}-{self._node}"), len(pod)

    def _by_uid(self, uid: str, container: str) -> Workload | None:
        mine = [one for one in self._containers if one.pod is not None and one.pod.uid == uid]
        found = next((one for one in mine if one.pod is not None and one.pod.container == container), None)
        # Of one whose files are not seen the name is not known.
        unnamed = mine[0] if len(mine) == 1 and mine[0].pod is not None and not mine[0].pod.container else None
        return found or unnamed

    def _uid(self, container: str, ids: tuple[str, ...]) -> str:
        """The pod's uid by the kubelet's record, where just one entry has these devices."""
        held = self._checkpoint.held if self._checkpoint is not None else ()
        uids = {one.pod_uid for one in held if one.container == container and set(one.ids) & set(ids)}
        return uids.pop() if len(uids) == 1 else ""


def _is_of(name: str, asked: Asking) -> bool:
    return name == asked.name or (asked.static and name.startswith(f"{asked.name}-"))


def _by_claim(container: PodContainer) -> tuple[str, ...]:
    """GPUs of claims: since Kubernetes 1.36 the scheduler makes one for whoever asks for nvidia.com/gpu where a DeviceClass has that name
    (kubernetes/enhancements KEP-5004, DRAExtendedResource).
    """
    devices = (device for claim in container.claims for device in claim.devices)
    return tuple(device.device for device in devices if GPU_DRIVER in device.driver)


def _nvidias(container: PodContainer) -> tuple[str, ...]:
    return tuple(device for one in container.devices if one.resource.startswith(NVIDIA) for device in one.ids)


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def _asked_api(desk: Desk) -> Iterator[Asking]:
    """What the API server says that pods of this node ask for, where it was asked."""
    api = desk.get(KubernetesApi)
    pods = () if isinstance(api, Unread) or isinstance(api.pods, Unread) else api.pods
    if not pods:
        return
    from gpudoctor.facts.kubernetes_objects import whole

    for pod in pods:
        if pod.status.phase not in ("Running", "Pending"):
            continue
        for one in pod.spec.containers:
            for resource, count in one.resources.limits.items():
                number = whole(count) if resource.startswith(NVIDIA) else None
                if not number:
                    continue
                said = f"{pod.words}, container {one.name}: limits {resource}: {count}"
                yield Asking(
                    namespace=pod.metadata.namespace,
                    name=pod.metadata.name,
                    container=one.name,
                    resource=resource,
                    count=number,
                    manifest=Evidence(f"kubectl -n {pod.metadata.namespace} get pod {pod.metadata.name}", said),
                    uid=pod.metadata.uid,
                    static=False,
                    pending=pod.status.phase if pod.status.phase == "Pending" else "",
                )


# Manifests -----------------------------------------------------------------------------------------------------------


def _asked_for(raw: Raw, settings: KubeletSettings) -> Iterator[Asking]:
    """The containers of static pods that ask for NVIDIA's resources."""
    folder = _folder(settings)
    listing = raw.listing(folder) if folder else None
    names = listing.names if isinstance(listing, Listing) else ()
    for name in names[:MOST_MANIFESTS]:
        # The kubelet leaves out names that begin with a dot, and no others (pkg/kubelet/config/file.go).
        file = raw.read(f"{folder}/{name}") if name[0] != "." else None
        if not isinstance(file, TextFile) or NVIDIA not in file.text:
            continue
        document = parse_yaml(file)
        if isinstance(document, dict) and document.get("kind") == "Pod":
            yield from _of_manifest(file, document)


def _of_manifest(file: TextFile, document: dict[str, object]) -> Iterator[Asking]:
    meta, spec = document.get("metadata"), document.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for one in containers if isinstance(containers, list) else ():
        resources = one.get("resources") if isinstance(one, dict) else None
        limits = resources.get("limits") if isinstance(resources, dict) else None
        for resource, count in (limits or {}).items() if isinstance(limits, dict) else ():
            number = decimal(str(count)) if str(resource).startswith(NVIDIA) else None
            if not number:
                continue
            named = meta if isinstance(meta, dict) else {}
            said = Evidence(file.where, f"container {one.get('name')}: limits {resource}: {count}")
            yield Asking(
                namespace=str(named.get("namespace") or "default"),
                name=str(named.get("name", "")),
                container=str(one.get("name", "")),
                resource=str(resource),
                count=number,
                manifest=said,
            )


def _folder(settings: KubeletSettings) -> str:
    """--pod-manifest-path or staticPodPath, "" for none; k3s and RKE2 hand on their own, or write it into a drop-in (1.32)."""
    told = settings.settings.get("staticPodPath")
    if isinstance(told, Setting) and told.value:
        return told.value.rstrip("/")
    name = _MANIFESTS.get(settings.kubelet.program) if settings.kubelet is not None else None
    return f"/var/lib/rancher/{name}/agent/pod-manifests" if name is not None else ""
