"""The node in a few lines: what it is, its GPUs, who shares them, and how much was looked at."""

from collections.abc import Iterator

from textual.content import Content

from gpudoctor.report import NodeGpu, Report
from gpudoctor.reports.shares import in_lines
from gpudoctor.reports.tui.badges import node_text
from gpudoctor.reports.tui.cause import Line
from gpudoctor.reports.tui.chain import status_counts
from gpudoctor.reports.words import counted

MOST_GPUS = 16
LABEL_WIDTH = 9


def about_lines(report: Report) -> Iterator[Line]:
    """Lines for beside the chain."""
    node = report.node
    yield Line(Content.styled("This node", "bold $text-primary"), None)
    yield from _told("host", node.hostname)
    yield from _told("os", node.os)
    yield from _told("kernel", node.kernel)
    cuda = f", CUDA {node.cuda_version}" if node.cuda_version else ""
    yield from _told("driver", f"{node.driver_version}{cuda}" if node.driver_version else "not known")
    yield from _told("seen as", {None: "", 0: "root"}.get(node.uid, f"user {node.uid}, not root"))
    yield from _told("checks", status_counts(result.status for result in report.results))
    yield from _told("took", f"{report.seconds:.1f} s")
    yield Line(Content(), None)
    yield Line(Content.styled(counted(len(node.gpus), "GPU"), "bold $text-primary"), None)
    for gpu in node.gpus[:MOST_GPUS]:
        yield Line(_gpu(gpu), "" if gpu.index is None else str(gpu.index))
    if len(node.gpus) > MOST_GPUS:
        yield Line(Content(f"and {len(node.gpus) - MOST_GPUS} more: key 2"))
    for line in in_lines(report.sharing):
        yield Line(node_text(line, "$text-muted"), None)


def _told(name: str, words: str | None) -> Iterator[Line]:
    if words:
        yield Line(node_text(words), name)


def _gpu(gpu: NodeGpu) -> Content:
    return node_text(gpu.address + (f" {gpu.name}" if gpu.name else ""))
