"""What the API server says of this node: asked only with a kubeconfig that was named for it, or kept in a recording."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.host import Host
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

if TYPE_CHECKING:
    from gpudoctor.facts.kubernetes_objects import (
        ApiNode,
        ApiPod,
        DaemonSet,
        Note,
        Objects,
        ResourceClaim,
        ResourceSlice,
        RuntimeClass,
    )

ANSWER = "kubernetes"
NOT_ASKED = "the API server was not asked: that takes --kubeconfig FILE"

_WHY: Mapping[str, Why] = {
    "no-permission": Why.NO_PERMISSION,
    "timed-out": Why.TIMED_OUT,
    "unreadable": Why.UNREADABLE,
    "crashed": Why.CRASHED,
    "absent": Why.NOT_ANSWERED,
    "refused": Why.NOT_ANSWERED,
    "unavailable": Why.NOT_ANSWERED,
    "failed": Why.NOT_ANSWERED,
    "not-recorded": Why.NOT_RECORDED,
}
_NEEDS = {"no-permission": "a kubeconfig that may read it", "unavailable": "kubectl"}


class KubernetesApi(Fact, frozen=True):
    """Objects that bear on this node, each kind or why it is not known. Without `asked` nobody asked, which is no fault.

    `pods` are those on this node, `daemonsets` those for GPUs, `slices` and `claims` those of this node's devices.
    """

    asked: bool
    via: str = ""
    node: "ApiNode | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)
    pods: "tuple[ApiPod, ...] | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)
    runtime_classes: "tuple[RuntimeClass, ...] | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)
    daemonsets: "tuple[DaemonSet, ...] | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)
    slices: "tuple[ResourceSlice, ...] | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)
    claims: "tuple[ResourceClaim, ...] | Unread" = Unread(Why.NOT_RECORDED, ANSWER, NOT_ASKED)

    def pod(self, namespace: str, name: str) -> "ApiPod | None":
        """The pod of that name on this node."""
        pods = () if isinstance(self.pods, Unread) else self.pods
        return next((one for one in pods if (one.metadata.namespace, one.metadata.name) == (namespace, name)), None)

    def saying(self, kind: str, name: str, shows: str) -> Evidence:
        """Words of an object as evidence, with the command that shows it."""
        namespace, slash, plain = name.rpartition("/")
        where = f"kubectl -n {namespace} get {kind} {plain}" if slash else f"kubectl get {kind} {plain}".strip()
        return Evidence(where, shows)

    def labels(self, *names: str) -> Cited:
        """Labels of the node as they stand there; one that is not there is shown as absent."""
        if isinstance(self.node, Unread):
            return ()
        told = self.node.labels
        words = (f"{name}={told[name]}" if name in told else f"no label {name}" for name in names)
        return tuple(self.saying("node", self.node.name, each) for each in words)

    @classmethod
    def gather(cls, desk: Desk) -> "KubernetesApi | Unread":
        """A live source asks only where it was given a kubeconfig."""
        answer = desk.raw.answer(ANSWER, lambda: Question(ANSWER, {"node": node_name(desk)}))
        if isinstance(answer, Unread):
            return cls(asked=False) if answer.why is Why.NOT_RECORDED else answer
        import msgspec

        from gpudoctor.facts.kubernetes_objects import Note, Objects

        try:
            failure = msgspec.convert(answer.error, Note) if answer.error is not None else None
            objects = msgspec.convert(answer.data, Objects)
            return _known(answer, objects, failure)
        except (msgspec.ValidationError, ValueError) as error:
            return Unread(Why.UNREADABLE, answer.via, f"the recorded answer: {error}")


def _known(answer: Answer, objects: "Objects", failure: "Note | None") -> KubernetesApi | Unread:
    """Raises ValueError for an answer that is not of the documented form."""
    if answer.schema != 1:
        raise ValueError(f"schema {answer.schema}, this gpudoctor reads schema 1")
    trouble = None if failure is None else _unread(answer, failure)
    found = (objects.node, objects.pods, objects.runtimeclasses, objects.daemonsets, objects.resourceslices)
    if trouble is not None and all(each is None for each in found):
        return trouble

    def missing(kind: str) -> Unread:
        noted = objects.notes.get(kind)
        if noted is not None:
            return _unread(answer, noted)
        return trouble or Unread(Why.NOT_RECORDED, answer.via, f"its {kind} were not recorded")

    return KubernetesApi(
        asked=True,
        via=answer.via,
        node=missing("node") if objects.node is None else objects.node,
        pods=missing("pods") if objects.pods is None else objects.pods,
        runtime_classes=missing("runtimeclasses") if objects.runtimeclasses is None else objects.runtimeclasses,
        daemonsets=missing("daemonsets") if objects.daemonsets is None else objects.daemonsets,
        slices=missing("resourceslices") if objects.resourceslices is None else objects.resourceslices,
        claims=missing("resourceclaims") if objects.resourceclaims is None else objects.resourceclaims,
    )


def _unread(answer: Answer, note: "Note") -> Unread:
    if note.why not in _WHY:
        raise ValueError(f"unknown reason {note.why!r}")
    at = f", at {answer.stopped_at}" if note.why == "timed-out" and answer.stopped_at else ""
    return Unread(_WHY[note.why], answer.via, f"{note.detail}{at}", would_need=_NEEDS.get(note.why, ""))


def node_name(desk: Desk) -> str:
    """What the kubelet calls its node: the name that it was told, else its host's, in small letters (component-helpers node/util)."""
    settings = desk.get(KubeletSettings)
    told = "" if isinstance(settings, Unread) else settings.node_name
    return (told or hostname(desk)).lower()


def hostname(desk: Desk) -> str:
    """The host's name, "" where it is not known: below a root the kernel tells that of whoever looks."""
    host = desk.get(Host)
    return host.hostname or "" if isinstance(host, Host) else ""
