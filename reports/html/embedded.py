"""The report inside its page: how it is put there, and found again."""

import base64
import binascii
import re
import zlib

import msgspec

from gpudoctor.report import Report

OPENING = '<script type="application/gzip" id="gpudoctor-report">'
_OPENING = re.compile(r'<script type="application/(gzip|json)" id="gpudoctor-report">')
"""Pages of earlier releases hold the JSON as it is."""
CLOSING = "</script>"
MOST_BYTES = 64 * 1024 * 1024
"""No report is as large; what unfolds to more was made to fill somebody's memory."""
_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 9


class NoReportInside(Exception):
    """A page that holds no report; the message says what is wrong with it."""


def embedded(report: Report) -> str:
    """The report as JSON, compressed (RFC 1952) and in base64: nothing in that can end a script element, whatever a node's words are."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = packer.compress(msgspec.json.encode(report)) + packer.flush()
    return base64.b64encode(packed).decode("ascii")


def report_within(page: str) -> str:
    """The JSON of the report inside a page. Raises NoReportInside.

    Every `<` of a node's words is escaped in a page of ours, so the opening tag stands there once.
    """
    found = list(_OPENING.finditer(page))
    if not found:
        raise NoReportInside("a page without a report of gpudoctor inside" if page.strip() else "an empty page")
    if len(found) > 1:
        raise NoReportInside("a page with more than one report inside")
    report, closing, _ = page[found[0].end() :].partition(CLOSING)
    if not closing:
        raise NoReportInside("the page ends within its report")
    return report if found[0][1] == "json" else _unpacked(report)


def _unpacked(text: str) -> str:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        report = unpacker.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
        whole = unpacker.eof
        words = report.decode("utf-8")
    except (binascii.Error, zlib.error, ValueError) as error:
        raise NoReportInside(f"a page whose report is damaged: {error}") from None
    if not whole:
        raise NoReportInside("a page whose report is damaged: it is cut off, or larger than any report")
    return words
