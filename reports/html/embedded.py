"""The report inside its page: how it is put there, and found again."""

import re

import msgspec

from gpudoctor.report import Report

OPENING = '<script type="application/json" id="gpudoctor-report">'
CLOSING = "</script>"

# What could end the element early or begin a comment in it (HTML Standard, "Restrictions for contents of script elements"),
# and whatever is not plain ASCII: U+2028 and U+2029 end a line in old JavaScript, others reorder or hide what a reader sees.
_ESCAPED = re.compile("[<>&\x7f]|[^\x00-\x7f]")


class NoReportInside(Exception):
    """A page that holds no report; the message says what is wrong with it."""


def embedded(report: Report) -> str:
    """The report as JSON that may stand within a script element: the same report, whatever its strings hold."""
    return _ESCAPED.sub(lambda match: _escape(match[0]), msgspec.json.encode(report).decode())


def report_within(page: str) -> str:
    """The JSON of the report inside a page. Raises NoReportInside.

    Every `<` of a node's words is escaped in a page of ours, so the opening tag stands there once.
    """
    before, *after = page.split(OPENING)
    if not after:
        raise NoReportInside("a page without a report of gpudoctor inside" if before.strip() else "an empty page")
    if len(after) > 1:
        raise NoReportInside("a page with more than one report inside")
    report, closing, _ = after[0].partition(CLOSING)
    if not closing:
        raise NoReportInside("the page ends within its report")
    return report


def _escape(character: str) -> str:
    """`\\uXXXX`, beyond the first plane as the pair of surrogates that JSON wants."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
