"""The report as a custom plugin of the node-problem-detector prints it.

pkg/custompluginmonitor of kubernetes/node-problem-detector reads the first 4 KiB of stdout, cuts them at `max_output_length` bytes, 80
by default, and knows three exit codes: 0 no problem, 1 a problem, anything else unknown.
"""

from gpudoctor.report import Overall, Report
from gpudoctor.reports.words import in_short

MOST_BYTES = 80
EXIT_CODES = {Overall.PASS: 0, Overall.WARN: 0, Overall.FAIL: 1, Overall.UNKNOWN: 2}


def render(report: Report) -> str:
    """The check first: it survives the cut."""
    text = in_short(report)
    if len(text) > MOST_BYTES:
        text = text[: MOST_BYTES - 3].rpartition(" ")[0] + "..."
    return text + "\n"


def exit_code(report: Report) -> int:
    """A warning is no problem of the node; that something could not be seen must not look like health."""
    return EXIT_CODES[report.verdict]
