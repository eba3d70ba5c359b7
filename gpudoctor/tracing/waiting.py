"""A pod of which no container runs here, found by what the kubelet tells and keeps, its manifests, and the API server where it was asked.

The kubelet's record keeps the devices of pods that have ended until it next gives one away (kubernetes pkg/kubelet/cm/devicemanager/
manager.go, UpdateAllocatedDevices), and knows pods by uid alone.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.config import ConfigError
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kubelet_checkpoint import KubeletCheckpoint
from gpudoctor.facts.kubernetes_api import KubernetesApi, hostname
from gpudoctor.facts.pod_devices import PodDevices
from gpudoctor.facts.pod_resources import Holder, PodResources
from gpudoctor.tracing.kubelets_side import Held, held_by
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread


class Waiting(Struct, frozen=True):
    """A container that does not run: what knows it, in words, and what is held for it. `unseen` is why it may run nevertheless."""

    namespace: str
    name: str
    uid: str
    container: str
    known: str
    evidence: Cited
    held: Held = Held()
    unseen: Unread | None = None

    @property
    def title(self) -> str:
        """What people call it."""
        named = f"{self.namespace}/{self.name}" if self.name else f"pod {self.uid}"
        return "/".join(part for part in (named, self.container) if part)

    @property
    def subject(self) -> Subject:
        """The pod."""
        return Subject(SubjectKind.POD, f"{self.namespace}/{self.name}" if self.name else self.uid)


def waiting(word: str, desk: Desk) -> "tuple[Waiting, ...] | Unread":
    """The containers of the pod that a word names; none where nothing knows it, and why where nothing could be read.

    Raises ConfigError where several pods have that name.
    """
    pods = desk.get(PodDevices)
    if isinstance(pods, Unread):
        return pods
    if not pods.kubelet:
        return ()
    found: dict[tuple[str, str, str], Waiting] = {}
    for one in _all(word, desk, pods):
        known = found.get((one.namespace, one.name, one.container))
        found[one.namespace, one.name, one.container] = one if known is None else _joined(known, one)
    named = sorted({f"{one.namespace}/{one.name}" for one in found.values()})
    if len(named) > 1:
        raise ConfigError(f"pod:{word} could be {len(named)} pods: {', '.join(f'pod:{each}' for each in named[:6])}")
    if not found and not {"pods", "record"} & pods.read_from.keys() and pods.unread is not None:
        return pods.unread
    return tuple(found.values())


def _joined(one: Waiting, other: Waiting) -> Waiting:
    """One container that two of them know: the kubelet's word first."""
    return Waiting(
        namespace=one.namespace,
        name=one.name,
        uid=one.uid or other.uid,
        container=one.container,
        known=f"{one.known}; {other.known}",
        evidence=tuple(dict.fromkeys((*one.evidence, *other.evidence))),
        held=one.held if one.held.ids else other.held,
    )


def _all(word: str, desk: Desk, pods: PodDevices) -> Iterator[Waiting]:
    told = desk.get(PodResources)
    if isinstance(told, PodResources):
        yield from _told(word, told, pods)
    api = desk.get(KubernetesApi)
    if isinstance(api, KubernetesApi):
        yield from _by_api(word, api)
    for asked in pods.asking:
        names = (asked.name, f"{asked.name}-{hostname(desk).lower()}")
        if asked.static and asked.runs is None and any(_fits(word, asked.namespace, name) for name in names):
            said = f"its manifest {asked.manifest.where} asks for {asked.count} {asked.resource}"
            yield Waiting(asked.namespace, asked.name, "", asked.container, said, (asked.manifest,))
    record = desk.get(KubeletCheckpoint)
    if isinstance(record, KubeletCheckpoint):
        yield from _recorded(word, record)


def _fits(word: str, namespace: str, name: str, uid: str = "") -> bool:
    space, slash, plain = word.rpartition("/")
    return bool(uid and word == uid) or (plain == name and (not slash or space == namespace))


def _told(word: str, told: PodResources, pods: PodDevices) -> Iterator[Waiting]:
    for pod in told.pods:
        if _fits(word, pod.namespace, pod.name):
            for one in pod.containers:
                held = held_by(told, Holder(pod, one), pods)
                yield Waiting(pod.namespace, pod.name, "", one.name, "the kubelet lists it", held.evidence, held)


def _by_api(word: str, api: KubernetesApi) -> Iterator[Waiting]:
    for pod in () if isinstance(api.pods, Unread) else api.pods:
        if not _fits(word, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid):
            continue
        statuses = {one.name: one for one in pod.statuses}
        node = f"on node {pod.spec.node_name}" if pod.spec.node_name else "on no node yet"
        why = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
        for one in pod.spec.containers:
            trouble = statuses[one.name].trouble if one.name in statuses else ""
            told = ", ".join(part for part in (pod.status.phase or "known", node, why, trouble) if part)
            said = api.saying("pod", pod.words, f"container {one.name}: {told}")
            known = f"the API server has it as {told}"
            yield Waiting(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, one.name, known, (said,))


def _recorded(word: str, record: KubeletCheckpoint) -> Iterator[Waiting]:
    """By uid alone."""
    for entry in record.held if record.state is None else ():
        if entry.pod_uid == word:
            listed = ", ".join(entry.ids[:4]) + (f" and {len(entry.ids) - 4} more" if len(entry.ids) > 4 else "")
            said = Evidence(record.path, f"pod {entry.pod_uid}, container {entry.container}: {listed}")
            known = "the kubelet's record has devices of it, and keeps those of pods that have ended until it next gives one away"
            yield Waiting("", "", entry.pod_uid, entry.container, known, (said,), Held(entry.ids, (), (said,)))
