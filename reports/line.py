"""The report as one line that is the same for like nodes: for grep, and for tools that fold the output of many nodes."""

from gpudoctor.report import Report
from gpudoctor.reports.words import one_line


def render(report: Report) -> str:
    """The verdict, then each root cause."""
    return one_line(report) + "\n"
