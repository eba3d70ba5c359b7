"""The topology of a report's details: drawn as `gpudoctor topo` draws it, from the same facts and the report's own findings."""

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvml import Nvml
from gpudoctor.report import Report
from gpudoctor.topo import Topo
from gpudoctor.topo_drawing import draw, remarks
from gpudoctor.verdicts import Unread


def drawn(desk: Desk, report: Report) -> Topo | Unread:
    """What is known of it, or why there is nothing to draw. NVML is quoted only when a check asked it."""
    return draw(desk, desk.asked(Nvml), report.started_at, lambda: remarks(report))
