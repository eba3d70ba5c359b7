"""Objects of the Kubernetes API, and how much of each is kept: what is judged of a node, and nothing else.

Fields as in kubernetes/api core/v1, apps/v1, node/v1 and resource/v1 (v1beta1 puts attributes below `basic`); objects stay in that shape.
Values of environments, arguments, volumes, secrets and annotations are never kept.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpudoctor.facts.kubernetes_objects import REQUIRED
from gpudoctor.patterns import pattern

KINDS = ("node", "pods", "runtimeclasses", "daemonsets", "resourceslices", "resourceclaims")
MOST_TEXT = 300
_OPERANDS = pattern(r"nvidia|gpu-feature-discovery|dcgm")
_LABELS = pattern(
    r"nvidia\.com/(?:gpu|mig|cuda|mps|vgpu|gfd|cc)[.-].*|feature\.node\.kubernetes\.io/pci-.*|"
    r"(?:beta\.)?kubernetes\.io/(?:arch|os|hostname)|node\.kubernetes\.io/instance-type"
)
_RESOURCES = pattern(r".*nvidia\.com/.*")

Form = Any
"""`True` keeps a value, a pattern the keys of a map that it matches, a dictionary these keys, a list its form for each element."""

_STATE = {
    "running": {"startedAt": True},
    "waiting": {"reason": True},
    "terminated": {"reason": True, "exitCode": True},
}
_STATUS = {
    "name": True,
    "ready": True,
    "restartCount": True,
    "containerID": True,
    "state": _STATE,
    "lastState": {"terminated": {"reason": True, "exitCode": True}},
}
_CONTAINER = {
    "name": True,
    "image": True,
    "resources": {"limits": _RESOURCES, "requests": _RESOURCES, "claims": [{"name": True, "request": True}]},
}
_TERM = {
    "matchExpressions": [{"key": True, "operator": True, "values": [True]}],
    "matchFields": [{"key": True, "operator": True, "values": [True]}],
}
_TEMPLATE = {
    "nodeSelector": pattern(r".*"),
    "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [_TERM]}}},
    "tolerations": [{"key": True, "operator": True, "value": True, "effect": True}],
    "runtimeClassName": True,
    "containers": [{"name": True, "image": True}],
}
_META = {"name": True, "namespace": True, "uid": True}
_ATTRIBUTES = pattern(r"uuid|type|productName|pcieBusID|(?:resource\.kubernetes\.io/)?pciBusID|parentUUID")
_RESULTS = {"driver": True, "pool": True, "device": True, "request": True}

_FORMS: Mapping[str, Form] = {
    "node": {
        "metadata": {"name": True, "labels": _LABELS},
        "spec": {"unschedulable": True, "taints": [{"key": True, "value": True, "effect": True}]},
        "status": {
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
            "conditions": [{"type": True, "status": True, "reason": True, "lastHeartbeatTime": True}],
            "nodeInfo": {"bootID": True, "kubeletVersion": True, "containerRuntimeVersion": True},
        },
    },
    "pods": {
        "metadata": {**_META, "ownerReferences": [{"kind": True, "name": True}], "deletionTimestamp": True},
        "spec": {
            "nodeName": True,
            "runtimeClassName": True,
            "initContainers": [_CONTAINER],
            "containers": [_CONTAINER],
            "resourceClaims": [{"name": True, "resourceClaimName": True, "resourceClaimTemplateName": True}],
        },
        "status": {
            "phase": True,
            "reason": True,
            "message": True,
            "initContainerStatuses": [_STATUS],
            "containerStatuses": [_STATUS],
        },
    },
    "runtimeclasses": {"metadata": {"name": True}, "handler": True},
    "daemonsets": {
        "metadata": {"name": True, "namespace": True},
        "spec": {"template": {"spec": _TEMPLATE}},
        "status": {"desiredNumberScheduled": True, "currentNumberScheduled": True, "numberReady": True},
    },
    "resourceslices": {
        "spec": {
            "driver": True,
            "nodeName": True,
            "pool": {"name": True, "generation": True, "resourceSliceCount": True},
            "devices": [{"name": True, "attributes": _ATTRIBUTES, "basic": {"attributes": _ATTRIBUTES}}],
        },
    },
    "resourceclaims": {
        "metadata": _META,
        "status": {
            "allocation": {"devices": {"results": [_RESULTS]}},
            "reservedFor": [{"resource": True, "name": True, "uid": True}],
        },
    },
}


def kept(kind: str, value: object) -> Any:
    """What is kept of an object of a kind; None of what is no object."""
    return _kept(value, _FORMS[kind]) if isinstance(value, dict) else None


def kept_of_node(node: object, daemonsets: Iterable[Mapping[str, Any]]) -> Any:
    """A node, with the labels besides NVIDIA's by which these DaemonSets choose their nodes."""
    mine = kept("node", node)
    if mine is not None and "metadata" in mine and isinstance(node, dict):
        labels = node["metadata"].get("labels")
        named = {key for each in daemonsets for key in _named_labels(each)}
        told = labels.items() if isinstance(labels, dict) else ()
        chosen = {key: str(value)[:MOST_TEXT] for key, value in told if key in named}
        mine["metadata"]["labels"] = {**mine["metadata"].get("labels", {}), **chosen}
    return mine


def is_operand(daemonset: object) -> bool:
    """Whether a DaemonSet is one for GPUs, by its name and its images."""
    if not isinstance(daemonset, dict):
        return False
    small = _kept(daemonset, _FORMS["daemonsets"])
    containers = small.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    names = (small.get("metadata", {}).get("name", ""), *(each.get("image", "") for each in containers))
    return any(_OPERANDS.search(str(name)) for name in names)


def is_of_node(node: str) -> Callable[[object], bool]:
    """Whether a claim has a device of the node's pool: NVIDIA's driver names the pool after the node."""

    def has(claim: object) -> bool:
        small = kept("resourceclaims", claim) or {}
        results = small.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        return any(each.get("pool") == node for each in results)

    return has


def _named_labels(daemonset: Mapping[str, Any]) -> Iterable[str]:
    spec = daemonset.get("spec", {}).get("template", {}).get("spec", {})
    yield from spec.get("nodeSelector", {})
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    for term in terms:
        yield from (each.get("key", "") for each in term.get("matchExpressions", []))


def _kept(value: Any, form: Form) -> Any:
    """Only what has the shape of its form; null is left out, as Go's encoder leaves out what is empty."""
    if isinstance(form, dict):
        found = ((key, _kept(value.get(key), inner)) for key, inner in form.items()) if isinstance(value, dict) else ()
        return {key: inner for key, inner in found if inner is not None} if isinstance(value, dict) else None
    if isinstance(form, list):
        each = [_kept(one, form[0]) for one in value] if isinstance(value, list) else None
        return each if each is None else [one for one in each if one is not None]
    if form is True:
        return value[:MOST_TEXT] if isinstance(value, str) else value if isinstance(value, (bool, int)) else None
    return _by_key(value, form) if isinstance(value, dict) else None


def _by_key(value: Mapping[Any, Any], form: Any) -> dict[str, Any]:
    """Quantities may be numbers in YAML; attributes of a device are objects with one field, `{"string": "…"}`."""
    found = ((str(key), each) for key, each in value.items() if form.fullmatch(str(key)))
    return {
        key: {str(kind): str(told)[:MOST_TEXT] for kind, told in each.items()}
        if isinstance(each, dict)
        else str(each)[:MOST_TEXT]
        for key, each in found
    }
