"""Whether a DaemonSet may have a pod on a node, and if not, what keeps it away: as the scheduler decides it.

kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node and taint-and-toleration; kubernetes/component-helpers
scheduling/corev1/nodeaffinity.
"""

from collections.abc import Iterable, Mapping

from gpudoctor.facts.kubernetes_objects import ApiNode, Condition, PodSpec, Term, Toleration
from gpudoctor.knowledge.operator_labels import PRESENCE

ALWAYS_TOLERATED = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)
"""What every pod of a DaemonSet tolerates (kubernetes.io/docs/concepts/workloads/controllers/daemonset, Taints and tolerations)."""


def obstacles(pods: PodSpec, node: ApiNode) -> tuple[str, ...]:
    """What keeps such pods off a node, in words: labels it lacks, taints they do not tolerate."""
    return (*missing_labels(pods, node), *(f"taint {taint.key}" for taint in untolerated(pods, node)))


def missing_labels(pods: PodSpec, node: ApiNode) -> tuple[str, ...]:
    """Labels that the node would need and lacks; of terms that stand for each other one is enough."""
    wanted = [f"label {key}={value}" for key, value in pods.node_selector.items() if node.labels.get(key) != value]
    terms = pods.affinity.node_affinity.required
    alternatives = terms.node_selector_terms if terms is not None else ()
    if alternatives and not any(_matches(term, node) for term in alternatives):
        wanted.append(
            " or ".join(words for term in alternatives if (words := _in_words(term, node))) or "no node at all"
        )
    return tuple(wanted)


def untolerated(pods: PodSpec, node: ApiNode) -> tuple[Condition, ...]:
    """Taints that keep such pods away."""
    keeping = (taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute"))
    return tuple(
        taint
        for taint in keeping
        if taint.key not in ALWAYS_TOLERATED and not any(_tolerates(each, taint) for each in pods.tolerations)
    )


def only_discovery(pods: PodSpec, node: ApiNode) -> bool:
    """Whether nothing but labels of discovery and taints keeps such pods away: then nobody chose other nodes for them."""
    keys = [key for key, value in pods.node_selector.items() if node.labels.get(key) != value]
    terms = pods.affinity.node_affinity.required
    for term in terms.node_selector_terms if terms is not None else ():
        if not _matches(term, node):
            keys += [each.key for each in term.match_expressions if not _holds(each, node.labels)]
    return all(PRESENCE.fullmatch(key) for key in keys)


def _matches(term: Term, node: ApiNode) -> bool:
    """All of a term must hold; an empty one matches nothing (kubernetes/api core/v1, NodeSelectorTerm)."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields: Mapping[str, str] = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.match_expressions) and all(
        _holds(each, fields) for each in term.match_fields
    )


def _holds(wish: Condition, labels: Mapping[str, str]) -> bool:
    value = labels.get(wish.key)
    match wish.operator:
        case "In":
            return value in wish.values
        case "NotIn":
            return value not in wish.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, wish)
        case _:
            return False


def _compares(value: str | None, wish: Condition) -> bool:
    other = wish.values[0] if wish.values else ""
    if value is None or not value.isdecimal() or not other.isdecimal():
        return False
    return int(value) > int(other) if wish.operator == "Gt" else int(value) < int(other)


def _in_words(term: Term, node: ApiNode) -> str:
    lacking: Iterable[Condition] = (each for each in term.match_expressions if not _holds(each, node.labels))
    return " and ".join(_wish(each) for each in lacking)


def _wish(wish: Condition) -> str:
    match wish.operator:
        case "In":
            return f"label {wish.key}={'|'.join(wish.values)}"
        case "Exists":
            return f"label {wish.key}"
        case "DoesNotExist":
            return f"no label {wish.key}"
        case _:
            return f"label {wish.key} {wish.operator} {'|'.join(wish.values)}"


def _tolerates(toleration: Toleration, taint: Condition) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
