"""A report as JSON, schema `gpudoctor.report/1`, a trace, schema `gpudoctor.trace/1`, what runs where, `gpudoctor.compat/1`, or `gpudoctor.topo/1`."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpudoctor.compat import Compat
    from gpudoctor.report import Report
    from gpudoctor.topo import Topo
    from gpudoctor.trace import Trace


def render(report: "Report | Trace | Compat | Topo") -> str:
    """Indented JSON, keys in the order of the schema."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
