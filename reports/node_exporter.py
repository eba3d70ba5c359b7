"""The report as metrics for the textfile collector of Prometheus' node_exporter.

The text format 0.0.4 of the Prometheus documentation ("Exposition formats"). No time stamps: the collector refuses files with them.
Every check has one series; subjects have one only when something is wrong with them, and no more than MOST_FINDINGS.
"""

from collections.abc import Iterator, Sequence

from gpudoctor.report import Overall, Report, counts
from gpudoctor.reports.words import clean
from gpudoctor.verdicts import Status, Why

MOST_FINDINGS = 200
STATUS_NUMBERS = {
    Status.PASS: 0,
    Status.WARN: 1,
    Status.FAIL: 2,
    Status.UNKNOWN: 3,
    Status.BLOCKED: 4,
    Status.SKIP: 5,
}
VERDICT_NUMBERS = {Overall.PASS: 0, Overall.WARN: 1, Overall.FAIL: 2, Overall.UNKNOWN: 3}


def render(report: Report) -> str:
    """All metrics, each with its help and type."""
    lines = [
        *metric("verdict", "0 pass, 1 warn, 2 fail, 3 unknown.", [({}, VERDICT_NUMBERS[report.verdict])]),
        *metric("root_causes", "Findings that nothing below explains.", _root_causes(report)),
        *metric("check_status", "0 pass, 1 warn, 2 fail, 3 unknown, 4 blocked, 5 skipped.", _checks(report)),
        *metric("finding", "A warning or failure of one subject; consequences too.", _findings(report)),
        *metric("findings_left_out", "Findings beyond the number that is listed.", [({}, _left_out(report))]),
        *metric("gpus", "GPUs on the PCI bus.", [({}, len(report.node.gpus))]),
        *metric("run_complete", "0 when the deadline cut the run short.", [({}, int(not _was_cut(report)))]),
        *metric("run_duration_seconds", "How long the run took.", [({}, round(report.seconds, 3))]),
        *metric("last_run_timestamp_seconds", "When the run began.", [({}, epoch(report.started_at))]),
        *metric("info", "Versions.", [(_versions(report), 1)]),
    ]
    return "\n".join(lines) + "\n"


Series = tuple[dict[str, str], float]
"""Labels and a value."""


def metric(name: str, text: str, series: Sequence[Series]) -> Iterator[str]:
    """The lines of one metric: its help, its type, its series."""
    yield f"# HELP gpudoctor_{name} {text}"
    yield f"# TYPE gpudoctor_{name} gauge"
    for labels, value in series:
        inside = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
        yield f"gpudoctor_{name}{'{' + inside + '}' if inside else ''} {value}"


def _escaped(value: str) -> str:
    """As the format has it; what a terminal would act upon is not left to whoever prints the file."""
    said = "\n".join(clean(line) for line in value.split("\n"))
    return said.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _root_causes(report: Report) -> list[Series]:
    return [
        ({"status": status.value}, sum(cause.status is status for cause in report.root_causes))
        for status in (Status.FAIL, Status.WARN)
    ]


def _checks(report: Report) -> list[Series]:
    return [
        ({"check": result.check, "link": result.link.value}, STATUS_NUMBERS[result.status]) for result in report.results
    ]


def _findings(report: Report) -> list[Series]:
    return _alarms(report)[:MOST_FINDINGS]


def _left_out(report: Report) -> int:
    return max(0, len(_alarms(report)) - MOST_FINDINGS)


def _alarms(report: Report) -> list[Series]:
    """One series for each subject of a check: a second finding about it would be the same series."""
    labels: dict[tuple[str, str], dict[str, str]] = {}
    by_id = {finding.id: finding for result in report.results for finding in result.findings}
    for result in report.results:
        for finding in result.findings:
            if finding.status in (Status.FAIL, Status.WARN) and counts(finding, by_id):
                subject = finding.subject
                labels.setdefault(
                    (result.check, subject.id),
                    {
                        "check": result.check,
                        "kind": subject.kind.value,
                        "key": subject.key,
                        "status": finding.status.value,
                        "cause": finding.cause,
                    },
                )
    return [(alarm, 1) for alarm in labels.values()]


def _was_cut(report: Report) -> bool:
    return any(result.status is Status.UNKNOWN and result.why == Why.TIMED_OUT.value for result in report.results)


def epoch(started_at: str) -> float:
    """A time as reports have it in seconds since 1970."""
    import datetime

    return datetime.datetime.fromisoformat(started_at.replace("Z", "+00:00")).timestamp()


def _versions(report: Report) -> dict[str, str]:
    node = report.node
    return {
        "version": report.tool.version,
        "driver": node.driver_version or "",
        "cuda": node.cuda_version or "",
        "kernel": node.kernel or "",
    }
