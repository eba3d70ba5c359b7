"""The report as a Nagios plugin prints it (monitoring-plugins.org, Development Guidelines).

The exit codes are gpudoctor's own: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

from gpudoctor.report import Overall, Report
from gpudoctor.reports.words import in_short, plain
from gpudoctor.verdicts import Status

MOST_BYTES = 1000
"""NRPE before version 3 cuts the output at 1024 bytes."""

STATES = {Overall.PASS: "OK", Overall.WARN: "WARNING", Overall.FAIL: "CRITICAL", Overall.UNKNOWN: "UNKNOWN"}


def render(report: Report) -> str:
    """Status and performance data on the first line, then a line for each root cause as far as they fit."""
    head = f"GPUDOCTOR {STATES[report.verdict]} - {_barless(in_short(report))[:400]} | {_performance(report)}"
    lines = [head]
    for cause in report.root_causes:
        line = _barless(plain(f"{cause.status.value.upper()} {cause.check}: {cause.summary}"))
        if len("\n".join([*lines, line]).encode()) > MOST_BYTES:
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _performance(report: Report) -> str:
    counts = {status: sum(result.status is status for result in report.results) for status in Status}
    return (
        f"'gpus'={len(report.node.gpus)};;;0 'root_causes'={len(report.root_causes)};;;0 "
        f"'failed'={counts[Status.FAIL]};;;0 'unknown'={counts[Status.UNKNOWN]};;;0 'time'={report.seconds:.3f}s;;;0"
    )


def _barless(text: str) -> str:
    """Without the bar that would begin the performance data."""
    return text.replace("|", "/")
