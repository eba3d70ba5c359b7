"""Saved reports read back: JSON, or a page with the JSON inside; their content tells which."""

from pathlib import Path

import msgspec

from gpudoctor.report import SCHEMA, Report
from gpudoctor.reports.html.embedded import NoReportInside, report_within
from gpudoctor.sources.errors import SourceError


class _Kind(msgspec.Struct):
    """Whether a report has the key `details` at all."""

    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def read_report(place: str) -> Report:
    """The report in a file, a FullReport where it has details. Raises SourceError."""
    try:
        report = _decoded(_json_in(Path(place).read_bytes()))
    except OSError as error:
        raise SourceError(f"{place}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, NoReportInside, RecursionError, ValueError) as error:
        raise SourceError(f"{place}: not a report of gpudoctor: {error}") from error
    if report.schema != SCHEMA:
        raise SourceError(f"{place}: schema {report.schema!r}, this gpudoctor reads {SCHEMA}")
    held = {finding.id for result in report.results for finding in result.findings}
    if not all(cause.findings and cause.subjects and held.issuperset(cause.findings) for cause in report.root_causes):
        raise SourceError(
            f"{place}: not a whole report of gpudoctor: a root cause names findings that it does not hold"
        )
    return report


def _decoded(text: bytes | str) -> Report:
    if msgspec.json.decode(text, type=_Kind).details is msgspec.UNSET:
        return msgspec.json.decode(text, type=Report)
    from gpudoctor.details import FullReport

    return msgspec.json.decode(text, type=FullReport)


def _json_in(content: bytes) -> bytes | str:
    """JSON begins with no `<`; an editor may have put a byte order mark before a page."""
    begins = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return report_within(content.decode("utf-8", "replace")) if begins == b"<" else content
