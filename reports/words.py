"""What several forms of a report say alike: the verdict in a few words, and text that nobody acts upon."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpudoctor.report import Finding, Overall, Report
from gpudoctor.verdicts import Evidence, Status

if TYPE_CHECKING:
    from gpudoctor.trace import Trace

# What a terminal would act upon: C0 and C1 controls, and the marks that reorder text.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_PILES = re.compile(f"([{_MARKS}]{{4}})([{_MARKS}]+)")
"""Marks above and below one letter, more than any language has: they would cover the lines around it."""


def clean(text: str) -> str:
    """Text from a node without anything that a terminal would act upon, or that would cover other text."""
    if not text.isascii():
        text = _PILES.sub(lambda match: f"{match[1]}(+{len(match[2])} marks)", text)
    return _CONTROLS.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}", text
    )


def headline(report: Report) -> str:
    """The verdict in a few words."""
    fails = [cause for cause in report.root_causes if cause.status is Status.FAIL]
    warns = len(report.root_causes) - len(fails)
    match report.verdict:
        case Overall.FAIL:
            more = f", {counted(warns, 'warning')}" if warns else ""
            return f"{counted(len(fails), 'root cause')}{more}"
        case Overall.WARN:
            return f"nothing is broken; {counted(warns, 'thing')} to look at"
        case Overall.UNKNOWN:
            seen = any(result.status is not Status.SKIP for result in report.results)
            return (
                "could not tell: something essential was not seen"
                if seen
                else "could not tell: no check applies to this node"
            )
        case Overall.PASS:
            return f"{counted(sum(result.status is Status.PASS for result in report.results), 'check')} passed"


def who_and_when(report: "Report | Trace") -> tuple[str | None, ...]:
    """The heading of a page: by whom, which node, and when."""
    node = report.node
    return (
        f"gpudoctor {report.tool.version}",
        node.hostname or "unnamed node",
        node.os,
        node.kernel and f"kernel {node.kernel}",
        node.driver_version and f"driver {node.driver_version}",
        f"{node.source} {report.started_at}",
    )


def counted(number: int, word: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


STATUS_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.BLOCKED, Status.PASS, Status.SKIP)
"""From the status that a link shows first to the one that it shows only alone."""

STATUS_WORDS = {
    Status.PASS: "OK",
    Status.FAIL: "FAIL",
    Status.WARN: "WARN",
    Status.UNKNOWN: "UNKNOWN",
    Status.BLOCKED: "BLOCKED",
    Status.SKIP: "SKIPPED",
}
"""What people read of a status."""

OVERALL_STATUS = {
    Overall.PASS: Status.PASS,
    Overall.FAIL: Status.FAIL,
    Overall.WARN: Status.WARN,
    Overall.UNKNOWN: Status.UNKNOWN,
}


def distinct_evidence(findings: Sequence[Finding]) -> list[Evidence]:
    """Evidence of the first finding, then whatever others add that is not the same place of another subject."""
    seen: dict[str, Evidence] = {}
    for finding in findings:
        for evidence in finding.evidence:
            seen.setdefault(
                evidence.where.replace(finding.subject.key, "*") + evidence.shows.replace(finding.subject.key, "*"),
                evidence,
            )
    return list(seen.values())


def in_short(report: Report) -> str:
    """The first root cause, or the verdict, in ASCII: for readers that cut what they read."""
    first = report.root_causes[0] if report.root_causes else None
    return plain(f"{first.check}: {first.summary}" if first else headline(report))


def plain(text: str) -> str:
    """Clean text in ASCII."""
    return clean(text).encode("ascii", "replace").decode()


def one_line(report: Report) -> str:
    """One line, without anything that differs between like nodes."""
    causes = "; ".join(f"{cause.check}: {cause.summary}" for cause in report.root_causes) or headline(report)
    return clean(f"{report.verdict.value.upper()} {causes}")
