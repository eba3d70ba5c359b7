"""What the GPU Operator's must-gather collected: one nvidia-bug-report for each node that has a driver pod.

hack/must-gather.sh of NVIDIA/gpu-operator (read at a22dbf67, 2026-08-21, and back to 222a2855, its first version for OpenShift)
writes `gpu_nodes.labels`, `gpu_nodes.status`, `gpu_operator_pod.status` and more of the cluster beside
`nvidia-bug-report_NODE.log.gz`. As the image of `oc adm must-gather` it does so in a folder of its own below must-gather.local.X.
"""

from collections.abc import Iterator

from gpudoctor.facts.raw import EntryType
from gpudoctor.patterns import pattern
from gpudoctor.sources.collection import MUST_GATHER_DEPTH, MUST_GATHER_MARKS
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import Members
from gpudoctor.sources.recorded import RecordedNode

_REPORT = pattern(r"nvidia-bug-report_(.+)\.log\.gz")
MAX_NAMED = 20
"""So many nodes are named in a message."""


def keeps(name: str) -> bool:
    """Whether a member's content is asked for: logs and descriptions of pods are not."""
    last = name.rpartition("/")[2]
    return last in MUST_GATHER_MARKS or _REPORT.fullmatch(last) is not None


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
        return load_bug_report(file, f"{members.place}/{path}")


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
