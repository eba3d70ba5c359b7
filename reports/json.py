"""A report as JSON, schema `gpudoctor.report/1`; a trace, what runs where, a topology or a diff, each by a schema of its own."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpudoctor.compat import Compat
    from gpudoctor.diff import Diff
    from gpudoctor.health.answer import Health
    from gpudoctor.health.history import History
    from gpudoctor.report import Report
    from gpudoctor.topo import Topo
    from gpudoctor.trace import Trace


def render(report: "Report | Trace | Compat | Topo | Diff | Health | History") -> str:
    """Indented JSON, keys in the order of the schema."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
