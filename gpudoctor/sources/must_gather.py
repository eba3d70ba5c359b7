"""What the GPU Operator's must-gather collected: one nvidia-bug-report for each node that has a driver pod, and objects of the API.

hack/must-gather.sh of NVIDIA/gpu-operator (read at a22dbf67, 2026-08-21, and back to 222a2855, its first version for OpenShift)
writes `gpu_nodes.labels`, `gpu_nodes.status`, `gpu_operator_pod.status` and more of the cluster beside
`nvidia-bug-report_NODE.log.gz`. As the image of `oc adm must-gather` it does so in a folder of its own below must-gather.local.X.
"""

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.raw import Answer, EntryType, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.sources.collection import MUST_GATHER_DEPTH, MUST_GATHER_MARKS
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import Members
from gpudoctor.sources.recorded import RecordedNode

_REPORT = pattern(r"nvidia-bug-report_(.+)\.log\.gz")
LABELS, PODS, DAEMONSETS = "gpu_nodes.labels", "gpu_operand_pods.yaml", "gpu_operand_ds.yaml"
MAX_NAMED = 20
"""So many nodes are named in a message."""


def keeps(name: str) -> bool:
    """Whether a member's content is asked for: logs and descriptions of pods are not."""
    last = name.rpartition("/")[2]
    return last in MUST_GATHER_MARKS or last in (PODS, DAEMONSETS) or _REPORT.fullmatch(last) is not None


def folder_of(members: Members) -> str | None:
    """Where the script's files lie, None when it wrote none of them."""
    return next(
        (
            folder
            for folder in _folders(members, "", MUST_GATHER_DEPTH)
            if any(members.kind(_join(folder, mark)) for mark in MUST_GATHER_MARKS)
        ),
        None,
    )


def open_must_gather(members: Members, folder: str, wanted: str) -> RecordedNode:
    """The node named `wanted`, or the only one when that is empty. Raises SourceError with one clear line."""
    reports = {match[1]: name for name in sorted(members.names(folder)) if (match := _REPORT.fullmatch(name))}
    if not reports:
        raise SourceError(
            f"{members.place}: a must-gather without any nvidia-bug-report_NODE.log.gz: no driver pod was asked"
        )
    if not wanted and len(reports) > 1:
        raise SourceError(
            f"{members.place}: holds {len(reports)} nodes, say which: --node {members.place}:NODE with {_listed(reports)}"
        )
    name = reports.get(wanted) if wanted else next(iter(reports.values()))
    if name is None:
        raise SourceError(f"{members.place}: holds no node {wanted!r}; there is {_listed(reports)}")
    from gpudoctor.sources.bug_report import load_bug_report

    path = _join(folder, name)
    with members.open(path) as file:
        node = load_bug_report(file, f"{members.place}/{path}")
    told = _REPORT.fullmatch(name)
    objects = _objects(members, folder, told[1] if told else wanted)
    if objects:
        node.answers["kubernetes"] = Answer(data=objects, via=f"must-gather ({folder or members.place})")
    return node


def _objects(members: Members, folder: str, node: str) -> dict[str, Any]:
    """What of the API the script kept of a node: its labels, the operator's pods on it, the operator's DaemonSets."""
    from gpudoctor.facts.kubernetes_kept import is_operand, kept, kept_of_node

    found: dict[str, Any] = {}
    pods = [one for one in _items(members, _join(folder, PODS)) or () if _node_of(one) == node]
    if pods:
        found["pods"] = [kept("pods", one) for one in pods]
    daemonsets = _items(members, _join(folder, DAEMONSETS))
    if daemonsets is not None:
        found["daemonsets"] = [kept("daemonsets", one) for one in daemonsets if is_operand(one)]
    labels = _labels(members.text(_join(folder, LABELS)) or "", node)
    if labels:
        told = {"metadata": {"name": node, "labels": labels}}
        found["node"] = kept_of_node(told, found.get("daemonsets", ()))
    return found


def _items(members: Members, name: str) -> list[Any] | None:
    """The objects in a list that kubectl printed as YAML; None where there is none, or nothing that can be read."""
    from gpudoctor.facts.config_text import parse_yaml

    text = members.text(name)
    document = parse_yaml(TextFile(name, text)) if text else None
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else None


def _node_of(pod: object) -> str:
    spec = pod.get("spec") if isinstance(pod, dict) else None
    return str(spec.get("nodeName", "")) if isinstance(spec, dict) else ""


def _labels(text: str, node: str) -> dict[str, str]:
    """A node's stretch: its name, a line `- KEY=VALUE` for each label, and an empty line."""
    lines = iter(text.splitlines())
    labels: dict[str, str] = {}
    for line in lines:
        if line.strip() != node:
            continue
        for told in lines:
            if not told.startswith("- "):
                break
            key, _, value = told[2:].partition("=")
            labels[key] = value
    return labels


def _listed(reports: dict[str, str]) -> str:
    more = len(reports) - MAX_NAMED
    return ", ".join([*list(reports)[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _folders(members: Members, folder: str, depth: int) -> Iterator[str]:
    yield folder
    if depth:
        for name in sorted(members.names(folder)):
            below = _join(folder, name)
            if members.kind(below) is EntryType.DIR:
                yield from _folders(members, below, depth - 1)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
