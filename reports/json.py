"""A report as JSON, schema `gpudoctor.report/1`, or a trace, schema `gpudoctor.trace/1`."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpudoctor.report import Report
    from gpudoctor.trace import Trace


def render(report: "Report | Trace") -> str:
    """Indented JSON, keys in the order of the schema."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
