"""Since when a root cause is there, in one line, where a report has details."""

from typing import TYPE_CHECKING

from gpudoctor.report import Report, RootCause

if TYPE_CHECKING:
    from gpudoctor.details import Details


def since_when(report: Report, cause: RootCause) -> str:
    """`2026-11-29 11:40:12 UTC: the first message about it in the kernel log`; "" of a report without details."""
    details: Details | None = getattr(report, "details", None)
    for one in details.since if details is not None else ():
        if 0 <= one.cause < len(report.root_causes) and report.root_causes[one.cause] == cause:
            when = one.at.replace("T", " ").replace("Z", " UTC")
            return f"{when}: {one.how}" if when else one.how
    return ""
