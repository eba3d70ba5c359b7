"""Pods that have a GPU which the kubelet did not give them, by its own word or its record, and how they came by it.

A device plugin's gift shows in a container as the UUID that envvar puts into NVIDIA_VISIBLE_DEVICES, or as nodes that the runtime was
told to make by CDI (k8s-device-plugin internal/plugin/server.go, getAllocateResponse): where such a pod is in no record, the record was
lost. A variable that says all or counts GPUs is the image's or the pod's own, and so is privilege.
"""

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_plugin import GpuIds
from gpudoctor.facts.gpu_variables import VISIBLE, Asked, asked_by
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.kubelet import ROOT, KubeletSettings
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.pod_devices import GPU_DRIVER, Given, PodDevices
from gpudoctor.facts.raw import Listing
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

_COMPUTE = frozenset(("all", "compute"))
CDI = "CDI"


class Taker(Struct, frozen=True):
    """One container: `gift` is whether a plugin gave it what it has, `by` how it came by it, `others` who was given the same GPU."""

    one: GpuWorkload
    gift: bool
    by: str
    gpus: tuple[str, ...]
    others: tuple[Given, ...]
    evidence: Cited

    @property
    def subject(self) -> Subject:
        """The pod, standing on its container."""
        pod = self.one.workload.pod
        key = f"{pod.namespace}/{pod.name}" if pod is not None and pod.name else self.one.workload.key
        return Subject(SubjectKind.POD, key, stands_on=(self.one.subject,))


class PodTakers(Fact, frozen=True):
    """All of them; `unseen` says why there may be more."""

    takers: tuple[Taker, ...] = ()
    unseen: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "PodTakers | Unread":
        """Only where the kubelet tells or keeps who was given what."""
        pods = desk.get(PodDevices)
        if isinstance(pods, Unread):
            return pods
        if not {"pods", "record"} & pods.read_from.keys():
            return cls()
        workloads = desk.get(GpuWorkloads)
        if isinstance(workloads, Unread):
            return workloads
        concerned = [one for one in workloads if one.workload.pod is not None and not _right_on(one)]
        nvml, ids = desk.get(Nvml), desk.get(GpuIds)
        without = [one for one in concerned if not _was_given(one, pods)]
        found = [taker for one in without if (taker := _taker(one, pods, nvml, ids)) is not None]
        if any(taker.by == CDI for taker in found) and not pods.claimed and _hands_out_claims(desk):
            found = [taker for taker in found if taker.by != CDI]
        named = {taker.one.workload.key for taker in found}
        hidden = [one.has_gpu for one in without if one.workload.key not in named]
        return cls(takers=tuple(found), unseen=next((why for why in hidden if isinstance(why, Unread)), None))


def _hands_out_claims(desk: Desk) -> bool:
    """Whether NVIDIA's driver for dynamic resource allocation is registered, and the kubelet tells of no claim.

    Its gifts come by CDI and are in no record of devices; PodResources tells of claims since Kubernetes 1.34 (feature gate
    KubeletPodResourcesDynamicResources). It registers as DRIVER-reg.sock (k8s.io/dynamic-resource-allocation/kubeletplugin).
    """
    settings = desk.get(KubeletSettings)
    root = ROOT if isinstance(settings, Unread) else settings.root
    listing = desk.raw.listing(f"{root}/plugins_registry")
    return isinstance(listing, Listing) and any(name.startswith(GPU_DRIVER) for name in listing.names)


def _right_on(one: GpuWorkload) -> bool:
    said = one.wishes.capabilities
    watches = said is not None and not _COMPUTE & {word.strip() for word in said.split(",")}
    return watches or one.manages_gpus


def _was_given(one: GpuWorkload, pods: PodDevices) -> bool:
    pod = one.workload.pod
    assert pod is not None, "only those of pods are asked"
    named = (pod.namespace, pod.name)
    if not pod.name:
        # Nobody could be named, and nothing of it held against what the kubelet tells.
        return True
    if not pods.told:
        return pod.uid in pods.recorded
    # A pod that the kubelet's answer lacks has come since, or ended.
    held = any((given.namespace, given.name) == named for given in pods.given)
    return held or named in pods.claimed or named not in pods.pods


def _taker(one: GpuWorkload, pods: PodDevices, nvml: Reading[Nvml], ids: Reading[GpuIds]) -> Taker | None:
    """What shows that it has a GPU, beyond privilege."""
    members = set(one.workload.pids)
    using = [
        (device.address, Evidence(f"{device.via} ({device.address or device.uuid})", f"process {process.pid}"))
        for device in (nvml.devices if isinstance(nvml, Nvml) else ())
        for process in device.processes
        if process.pid in members
    ]
    uses = tuple(evidence for _, evidence in using)
    devices = one.devices if isinstance(one.devices, Devices) and one.devices.minors else None
    config = one.workload.config if isinstance(one.workload.config, OciConfig) else None
    everything = config is not None and config.allows_everything
    # Annotations name devices on purpose, as a driver for dynamic resource allocation writes them.
    if not uses and (devices is None or everything or devices.whole_dev or (config is not None and config.requests)):
        return None
    has = [subject.key for subject in one.gpus] if devices is not None and not everything else []
    addresses = tuple(dict.fromkeys([*(address for address, _ in using if address), *has]))
    gift, by, seen = _by(config)
    return Taker(
        one=one,
        gift=gift,
        by=by,
        gpus=ids.named(addresses) if isinstance(ids, GpuIds) else addresses,
        others=tuple(given for given in pods.given if set(addresses) & set(given.gpus)),
        evidence=(*(devices.cite("nodes") if devices is not None else ()), *uses, *seen),
    )


def _by(config: OciConfig | None) -> tuple[bool, str, Cited]:
    """Whether a plugin gave it, how it came by it, and what shows that."""
    if config is None:
        return False, "ways that are not seen", ()
    values = config.variables.all(VISIBLE)
    value = next((value for value in values if asked_by(value) in (Asked.ALL, Asked.SOME)), None)
    if value is not None:
        uuid = value.startswith(("GPU-", "MIG-"))
        said = Evidence(config.path, f"{VISIBLE}={value}")
        return uuid, f"{VISIBLE}={value}", (said,)
    if config.allows_everything:
        return False, "privilege", (Evidence(config.path, "linux.resources.devices allows everything"),)
    if config.nodes and not config.plugin_devices:
        return True, CDI, config.cite("nodes")
    return False, "nodes that it was given otherwise", config.cite("nodes")
