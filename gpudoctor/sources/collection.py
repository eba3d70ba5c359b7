"""Archives of other tools, told by the name of a member while they are read: how large they may be, and what of them is kept."""

from collections.abc import Callable

from msgspec import Struct

SOS_FOLDERS = ("sos_commands", "sos_reports", "sos_logs", "sos_strings")
"""sos' own folders in its report, beside the node's files (sos/report/__init__.py); sos_reports comes first in an archive."""

MUST_GATHER_MARKS = ("gpu_nodes.labels", "gpu_nodes.status", "gpu_operator_pod.status")
"""What hack/must-gather.sh of the GPU Operator always writes where there is anything to gather."""

MUST_GATHER_DEPTH = 2
"""`oc adm must-gather` puts the script's files into a folder for its image below must-gather.local.X."""


class Collection(Struct, frozen=True):
    """What to take from a tool's archive; `keeps` is asked with a member's name in the archive."""

    keeps: Callable[[str], bool]
    max_members: int = 1_000_000
    max_bytes: int = 4 * 1024 * 1024 * 1024


def recognised(name: str) -> Collection | None:
    """The collection that a member belongs to, if its name tells."""
    first, *more = name.split("/", MUST_GATHER_DEPTH)
    if first in SOS_FOLDERS or (more and more[0] in SOS_FOLDERS):
        from gpudoctor.sources import sos_report

        top = "" if first in SOS_FOLDERS else f"{first}/"
        return Collection(lambda member: sos_report.keeps(member.removeprefix(top)))
    if (more[-1] if more else first) in MUST_GATHER_MARKS:
        from gpudoctor.sources import must_gather

        return Collection(must_gather.keeps)
    return None
