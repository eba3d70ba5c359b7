"""The report as JSON, schema `gpudoctor.report/1`."""

import msgspec

from gpudoctor.report import Report


def render(report: Report) -> str:
    """Indented JSON, keys in the order of the schema."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
