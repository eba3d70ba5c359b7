"""The topology on the page: the drawing, what is wrong with it by links to the findings, and the matrix as a table."""

from msgspec import Struct

from gpudoctor.facts.topology_matrix import MatrixRow
from gpudoctor.report import Report
from gpudoctor.reports import topo_svg
from gpudoctor.reports.topo_words import legend
from gpudoctor.topo import Remark, Topo, Use
from gpudoctor.verdicts import Status

WIDTH = 1136
"""The page's own width, in pixels."""
MOST_BYTES = 120_000
"""A drawing larger than this is left to `gpudoctor topo`."""
MOST_ROWS = 40
"""With more rows the matrix is left to it as well."""


class Remarked(Struct, frozen=True):
    """What is said of several devices alike: by their labels, with the ids of the findings."""

    remark: Remark
    of: tuple[tuple[str, str], ...]


class TopologyView(Struct, frozen=True):
    """What is shown. `drawing` is markup in which all that a node says is escaped, empty where it is too large; `header` are the columns
    of the matrix."""

    topo: Topo
    drawing: str
    remarks: tuple[Remarked, ...]
    header: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    more: int
    notes: tuple[str, ...]
    uses: tuple[Use, ...]
    legend: tuple[tuple[str, str], ...]


def topology_of(report: Report, topo: Topo | None) -> TopologyView | None:
    """What is drawn of a topology; None of none."""
    if topo is None:
        return None
    drawing = topo_svg.inline(topo, WIDTH)
    shown = topo.matrix[:MOST_ROWS]
    return TopologyView(
        topo=topo,
        drawing=drawing if len(drawing) <= MOST_BYTES else "",
        remarks=_remarks(report, topo),
        header=tuple(row.name for row in shown),
        rows=shown,
        more=len(topo.matrix) - len(shown),
        notes=(*((topo.synthetic,) if topo.synthetic else ()), *(f"not seen: {words}" for words in topo.unseen)),
        uses=topo.use[:MOST_ROWS] if any(one.cpus or one.memory or one.nics for one in topo.use) else (),
        legend=legend({cell for row in shown for cell in row.cells if cell}),
    )


def _remarks(report: Report, topo: Topo) -> tuple[Remarked, ...]:
    names = {one.address: one.label or one.name for one in topo.functions}
    ids = {finding.id for result in report.results for finding in result.findings}
    alike: dict[tuple[Status, str, str], list[Remark]] = {}
    for remark in topo.remarks:
        alike.setdefault((remark.status, remark.check, remark.summary), []).append(remark)
    told = []
    for group in alike.values():
        of: dict[str, str] = {}
        for remark in group:
            finding = f"{remark.check}@{remark.subject}"
            of.setdefault(names.get(remark.address) or remark.address, finding if finding in ids else "")
        told.append(Remarked(group[0], tuple(of.items())))
    return tuple(told)
