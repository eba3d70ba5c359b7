"""The kubelet's side of a pod, read from what a run of the node reads anyway: what it holds for a container, and what of that lives."""

from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Reading
from gpudoctor.facts.device_plugin import Advertised, DevicePlugin, GpuIds
from gpudoctor.facts.kubelet_checkpoint import NVIDIA, KubeletCheckpoint
from gpudoctor.facts.kubernetes_api import KubernetesApi
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.pod_devices import GPU_DRIVER, Asking, Given, PodDevices
from gpudoctor.facts.pod_resources import Claim, Holder, PodResources
from gpudoctor.facts.pod_takers import PodTakers, Taker
from gpudoctor.facts.workload import Workload
from gpudoctor.verdicts import Cited, Evidence, Unread, Why


class Held(Struct, frozen=True):
    """What the kubelet holds for one container: ids, claims, and where it says so."""

    ids: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    evidence: Cited = ()


class Fate(Struct, frozen=True):
    """What became of devices: GPUs that live, what is dead and why, ids that no GPU has, and ids that cannot be looked up."""

    alive: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    evidence: Cited = ()
    unread: Unread | None = None


class KubeletsSide(Struct, frozen=True):
    """What the kubelet tells and keeps, what the API server said where it was asked, and the GPUs behind ids."""

    pods: PodDevices
    takers: Reading[PodTakers]
    resources: Reading[PodResources]
    record: Reading[KubeletCheckpoint]
    api: Reading[KubernetesApi]
    plugin: Reading[DevicePlugin]
    ids: Reading[GpuIds]
    nvml: Reading[Nvml]
    gpus: Reading[PciGpus]

    @property
    def seen(self) -> Cited:
        """The kubelet's answer, else its record; nothing where neither is known."""
        return next((self.pods.cite(name) for name in ("pods", "record") if name in self.pods.read_from), ())

    @property
    def unread(self) -> Unread:
        """Why neither is known."""
        return next(
            (one for one in (self.pods.unread, self.resources, self.record) if isinstance(one, Unread)),
            Unread(Why.NOT_ANSWERED, "the kubelet", "keeps and tells nothing of devices"),
        )

    @property
    def advertised(self) -> Advertised | None:
        """What the kubelet has to give, where that is known."""
        told = None if isinstance(self.plugin, Unread) else self.plugin.advertised
        return None if isinstance(told, Unread) else told

    @property
    def by_claims(self) -> bool:
        """Whether the DRA driver has GPUs of this node to give: then pods that ask for nvidia.com/gpu may get those (KEP-5004)."""
        slices = () if isinstance(self.api, Unread) or isinstance(self.api.slices, Unread) else self.api.slices
        return any(each.spec.driver == GPU_DRIVER and each.spec.devices for each in slices)

    def held(self, one: Workload) -> Held | Unread:
        """What it holds for a container that runs, nothing for one that it knows to have none."""
        if not self.seen:
            return self.unread
        pod = one.pod
        assert pod is not None, "only containers of pods are asked"
        mine = [given for given in self.pods.given if _is(given, one)]
        if mine:
            return Held(
                tuple(device for given in mine for device in given.ids),
                self.claims(pod.namespace, pod.name, pod.container),
                tuple(given.evidence for given in mine),
            )
        if not self.pods.told:
            return Held(evidence=self.seen)
        where = self.seen[0].where
        if not pod.name or not pod.container:
            return Unread(Why.NOT_ANSWERED, where, f"tells pods by name, and that of pod {pod.uid} is not known")
        if (pod.namespace, pod.name) not in self.pods.pods:
            return Unread(Why.NOT_ANSWERED, where, f"does not list {pod.namespace}/{pod.name}: it came later, or ends")
        return self.told(pod.namespace, pod.name, pod.container)

    def told(self, namespace: str, name: str, container: str) -> Held:
        """What its answer says of a container of a pod that it lists, GPUs of other plugins and claims included."""
        if isinstance(self.resources, Unread) or (pod := self.resources.pod(namespace, name)) is None:
            return Held(evidence=self.seen)
        one = next((one for one in pod.containers if one.name == container), None)
        return Held(evidence=self.seen) if one is None else held_by(self.resources, Holder(pod, one), self.pods)

    def claims(self, namespace: str, name: str, container: str) -> tuple[Claim, ...]:
        """The claims of a container by which it has GPUs."""
        return self.told(namespace, name, container).claims

    def asking(self, namespace: str, name: str, container: str) -> tuple[Asking, ...]:
        """What manifests, or the API server, say that a container asks for."""
        named = (namespace, name, container)
        return tuple(one for one in self.pods.asking if (one.namespace, one.name, one.container) == named)

    def taker(self, one: Workload) -> Taker | None:
        """Whether a container has GPUs that the kubelet did not give it, and is none that manages them."""
        takers = () if isinstance(self.takers, Unread) else self.takers.takers
        return next((taker for taker in takers if taker.one.workload.key == one.key), None)

    def holders(self, resource: str) -> tuple[str, ...]:
        """The pods that hold devices of a resource, by the kubelet's answer."""
        pods = () if isinstance(self.resources, Unread) else self.resources.pods
        return tuple(pod.words for pod in pods if any(one.ids(resource) for one in pod.containers))

    def taken(self, resource: str) -> int:
        """How many devices of a resource pods hold."""
        pods = () if isinstance(self.resources, Unread) else self.resources.pods
        return sum(len(one.ids(resource)) for pod in pods for one in pod.containers)

    def fate(self, held: Held) -> Fate:
        """Each device against the driver, NVML and the PCI bus."""
        if isinstance(self.ids, Unread):
            return Fate(unknown=held.ids, unread=self.ids if held.ids else None)
        return _fate(held.ids, self.ids, self.nvml, self.gpus)


def look_at_kubelet(desk: Desk) -> KubeletsSide | Unread | None:
    """None where no kubelet runs: then nothing more is looked at."""
    pods = desk.get(PodDevices)
    if isinstance(pods, Unread):
        return pods
    if not pods.kubelet:
        return None
    return KubeletsSide(
        pods=pods,
        takers=desk.get(PodTakers),
        resources=desk.get(PodResources),
        record=desk.get(KubeletCheckpoint),
        api=desk.get(KubernetesApi),
        plugin=desk.get(DevicePlugin),
        ids=desk.get(GpuIds),
        nvml=desk.get(Nvml),
        gpus=desk.get(PciGpus),
    )


def _is(given: Given, one: Workload) -> bool:
    """Whether a gift is this container's."""
    return given.workload is not None and given.workload.key == one.key


def held_by(told: PodResources, holder: Holder, pods: PodDevices) -> Held:
    """What the kubelet's answer says of a container: of claims and resources of others only where they give GPUs."""
    pod, one = holder
    claimed = (pod.namespace, pod.name) in pods.claimed
    # Claims of other drivers give channels or network cards.
    claims = tuple(claim for claim in one.claims if any(GPU_DRIVER in device.driver for device in claim.devices))
    kinds = [each for each in one.devices if each.resource.startswith(NVIDIA) or (claimed and not one.claims)]
    ids = tuple(device for each in kinds for device in each.ids)
    return Held(ids, claims, (told.holding(holder),))


# What became of devices ---------------------------------------------------------------------------------------------


def _fate(devices: Iterable[str], ids: GpuIds, nvml: Reading[Nvml], gpus: Reading[PciGpus]) -> Fate:
    alive: list[str] = []
    dead: list[str] = []
    gone: list[str] = []
    unknown: list[str] = []
    seen: list[Evidence] = []
    addresses: dict[str, None] = {}
    for device in dict.fromkeys(devices):
        address = ids.address(device)
        if address is None:
            certain = ids.knows(device) and not ids.nameless and ids.unlisted is None
            (gone if certain else unknown).append(device)
            continue
        addresses[address] = None
        trouble = _trouble(address, nvml, gpus)
        if trouble is None:
            alive.append(device)
        else:
            words, evidence = trouble
            dead.append(f"{device} ({address}: {words})")
            seen += evidence
    unread = _unseen(addresses, nvml, gpus) if alive else None
    shows = (ids.shows,) if alive or gone else ()
    return Fate(
        alive=tuple(alive),
        dead=tuple(dead),
        gone=tuple(gone),
        unknown=tuple(unknown),
        addresses=tuple(addresses),
        evidence=tuple(dict.fromkeys((*seen, *shows))),
        unread=unread,
    )


def _unseen(addresses: Iterable[str], nvml: Reading[Nvml], gpus: Reading[PciGpus]) -> Unread | None:
    """A list that nobody could read, or that lacks a GPU, says of nothing that it lives."""
    if isinstance(nvml, Unread):
        return nvml
    missing = next((address for address in addresses if nvml.device(address) is None), None)
    if missing is not None:
        return Unread(Why.NOT_ANSWERED, nvml.via, f"does not list {missing}")
    return gpus if isinstance(gpus, Unread) else None


def _trouble(address: str, nvml: Reading[Nvml], gpus: Reading[PciGpus]) -> tuple[str, Cited] | None:
    """What NVML or the PCI bus says against a GPU, and where."""
    said = None if isinstance(nvml, Unread) else nvml.device(address)
    if said is not None and said.error is not None:
        return said.error.text, said.cite("error")
    if isinstance(gpus, Unread):
        return None
    function = next((gpu for gpu in gpus if gpu.address == address), None)
    place = f"/sys/bus/pci/devices/{address}"
    if function is None:
        return None if gpus.unlisted is not None else ("not on the PCI bus", (Evidence(place, "does not exist"),))
    if function.driver is None or (isinstance(function.driver, str) and function.driver != "nvidia"):
        driver = function.driver or "no driver"
        return f"held by {driver} now", (Evidence(f"{place}/driver", driver),)
    return None
