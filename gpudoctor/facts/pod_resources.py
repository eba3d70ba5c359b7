"""Which pods hold which devices, and what there is to be had, as the kubelet tells over its PodResources API.

List gives every pod with its containers, whether they hold devices or not (kubernetes pkg/kubelet/apis/podresources/server_v1.go); what
is allocatable shrinks as soon as a plugin is gone, what pods hold stays. kubernetes.io/docs/concepts/extend-kubernetes/
compute-storage-net/device-plugins/#monitoring-device-plugin-resources.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.kubelet import ROOT, KubeletSettings
from gpudoctor.facts.raw import Absent, Answer, Question
from gpudoctor.verdicts import Evidence, Unread, Why

SOCKET = "pod-resources/kubelet.sock"
"""Below the kubelet's root directory (kubernetes pkg/kubelet/kubelet_getters.go, getPodResourcesDir)."""
EXTRA = "gpudoctor-node[kubernetes]"

REPLICA = "::"
"""What NVIDIA's plugin puts before a replica's number (k8s-device-plugin internal/rm/devices.go, NewAnnotatedID)."""


class DeviceSet(Struct, frozen=True):
    """Devices of one resource on the same NUMA nodes; `numa` is empty where the plugin told none."""

    resource: str
    ids: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()


class ClaimedDevice(Struct, frozen=True):
    """A device that dynamic resource allocation gave: the driver's name, its pool and device, and what it is called in CDI."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()
    share: str = ""


class Claim(Struct, frozen=True):
    """A ResourceClaim of a container."""

    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...] = ()


class PodContainer(Struct, frozen=True):
    """A container's devices by resource, its exclusive CPUs and its claims."""

    name: str
    devices: tuple[DeviceSet, ...] = ()
    cpus: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()

    def ids(self, resource: str = "") -> tuple[str, ...]:
        """The devices it holds, of one resource or of all."""
        return tuple(_ids(self.devices, resource))


class Pod(Struct, frozen=True):
    """A pod with its containers."""

    namespace: str
    name: str
    containers: tuple[PodContainer, ...] = ()

    @property
    def words(self) -> str:
        """As kubectl takes it: NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


class Holder(NamedTuple):
    """Who holds a device."""

    pod: Pod
    container: PodContainer


class PodResources(Fact, frozen=True):
    """What the kubelet tells. `allocatable` says why where only that is not known; `version` is that of the API."""

    via: str
    version: str
    pods: tuple[Pod, ...]
    allocatable: tuple[DeviceSet, ...] | Unread
    cpus: tuple[int, ...] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources that are allocatable or held, sorted."""
        allocatable = () if isinstance(self.allocatable, Unread) else self.allocatable
        held = (device for pod in self.pods for container in pod.containers for device in container.devices)
        return tuple(sorted({device.resource for device in (*allocatable, *held)}))

    def allocatable_ids(self, resource: str = "") -> tuple[str, ...] | Unread:
        """The devices that are to be had or held, of one resource or of all."""
        return self.allocatable if isinstance(self.allocatable, Unread) else tuple(_ids(self.allocatable, resource))

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        return next((pod for pod in self.pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def pod_of(self, device_id: str) -> tuple[Holder, ...]:
        """Who holds a device; asked by its own id, whoever holds any of its replicas."""
        return tuple(
            Holder(pod, container)
            for pod in self.pods
            for container in pod.containers
            if any(device_id in (held, own_id(held)) for held in container.ids())
        )

    def holding(self, holder: Holder) -> Evidence:
        """What a container holds, as evidence."""
        held = "; ".join(f"{device.resource} {_listed(device.ids)}" for device in holder.container.devices)
        claims = "; ".join(f"claim {claim.name}" for claim in holder.container.claims)
        shows = "; ".join(part for part in (held, claims) if part) or "holds no device"
        return Evidence(self.via, f"{holder.pod.words}, container {holder.container.name}: {shows}")

    @classmethod
    def gather(cls, desk: Desk) -> "PodResources | Unread":
        """The source is asked where a kubelet runs or its socket is; a live one connects only to a socket that is there."""
        settings = desk.get(KubeletSettings)
        kubelet = None if isinstance(settings, Unread) else settings.kubelet
        socket = f"{ROOT if isinstance(settings, Unread) else settings.root}/{SOCKET}"
        # One in a container, as Talos has it, is not seen among the daemons.
        if kubelet is None and isinstance(desk.raw.entry(socket, follow=True), Absent):
            return Unread(Why.NOT_ANSWERED, "PodResources", f"no kubelet is seen, and {socket} does not exist")
        question = Question("pod_resources", {"socket": socket})
        answer = desk.raw.answer("pod_resources", lambda: question)
        if isinstance(answer, Unread):
            return answer
        try:
            return _parse(answer)
        except (msgspec.ValidationError, ValueError) as error:
            return Unread(Why.UNREADABLE, answer.via, f"the recorded answer: {error}")


def own_id(device_id: str) -> str:
    """A device's id without the number of a replica."""
    return device_id.partition(REPLICA)[0]


class _Trouble(Struct, frozen=True):
    why: str
    detail: str = ""


class _Data(Struct):
    """The `data` of answers/pod_resources.json."""

    version: str = ""
    pods: tuple[Pod, ...] | None = None
    allocatable: tuple[DeviceSet, ...] | None = None
    cpus: tuple[int, ...] = ()
    notes: dict[str, _Trouble] = {}


_WHY: Mapping[str, Why] = {
    "no-permission": Why.NO_PERMISSION,
    "timed-out": Why.TIMED_OUT,
    "too-large": Why.UNREADABLE,
    "unreadable": Why.UNREADABLE,
    "crashed": Why.CRASHED,
    "withheld": Why.WITHHELD,
    "absent": Why.NOT_ANSWERED,
    "refused": Why.NOT_ANSWERED,
    "unavailable": Why.NOT_ANSWERED,
    "unimplemented": Why.NOT_ANSWERED,
    "failed": Why.NOT_ANSWERED,
}
_NEEDS = {"no-permission": "root", "unavailable": f"pip install '{EXTRA}'"}


def _parse(answer: Answer) -> PodResources | Unread:
    """Raises ValidationError or ValueError for an answer that is not of the documented form."""
    if answer.schema != 1:
        raise ValueError(f"schema {answer.schema}, this gpudoctor reads schema 1")
    data: Any = msgspec.convert(answer.data, _Data)
    trouble = _unread(answer, msgspec.convert(answer.error, _Trouble)) if answer.error is not None else None
    if data.pods is None:
        return trouble or Unread(Why.NOT_RECORDED, answer.via, "its answer was not recorded")
    allocatable = data.allocatable
    if allocatable is None:
        noted = data.notes.get("GetAllocatableResources")
        unasked = Unread(Why.NOT_ANSWERED, answer.via, f"{data.version or 'this recording'} tells only what is held")
        allocatable = _unread(answer, noted) if noted is not None else trouble or unasked
    return PodResources(
        via=answer.via,
        version=data.version,
        pods=data.pods,
        allocatable=allocatable,
        cpus=data.cpus,
        read_from={
            "pods": Evidence(answer.via, f"List: {_counted(data.pods)}"),
            "allocatable": Evidence(answer.via, f"GetAllocatableResources: {_summed(allocatable)}"),
        },
    )


def _unread(answer: Answer, trouble: _Trouble) -> Unread:
    if trouble.why not in _WHY:
        raise ValueError(f"unknown reason {trouble.why!r}")
    at = f", at {answer.stopped_at}" if trouble.why == "timed-out" and answer.stopped_at else ""
    return Unread(_WHY[trouble.why], answer.via, f"{trouble.detail}{at}", would_need=_NEEDS.get(trouble.why, ""))


def _ids(devices: tuple[DeviceSet, ...], resource: str) -> Iterator[str]:
    for device in devices:
        if resource in ("", device.resource):
            yield from device.ids


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def _counted(pods: tuple[Pod, ...]) -> str:
    holding = sum(any(container.devices or container.claims for container in pod.containers) for pod in pods)
    return f"{len(pods)} pod{'' if len(pods) == 1 else 's'}, {holding} with devices"


def _summed(allocatable: tuple[DeviceSet, ...] | Unread) -> str:
    if isinstance(allocatable, Unread):
        return allocatable.detail
    numbers: dict[str, int] = {}
    for device in allocatable:
        numbers[device.resource] = numbers.get(device.resource, 0) + len(device.ids)
    return ", ".join(f"{number} {resource}" for resource, number in sorted(numbers.items())) or "no devices"
