"""What a run tells while it is on: the lines of `gpudoctor run --format stream`."""

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.reports.tui.model import Progress
from gpudoctor.verdicts import Status

if TYPE_CHECKING:
    from gpudoctor.details import FullReport


class Asked(Struct, frozen=True):
    """A check of the run in progress, before its answer."""

    id: str
    link: Link
    title: str


class Told(Struct, frozen=True):
    """How a check ended, as a run in progress tells it: less than a report's result, and earlier."""

    check: str
    link: Link
    status: Status
    detail: str = ""


class Begin(Struct, tag_field="kind", tag="begin"):
    """The run has begun, and which checks it is going to answer."""

    checks: tuple[Asked, ...]


class Reading(Struct, tag_field="kind", tag="reading"):
    """A fact is being read that may let one wait."""

    fact: str


class Read(Struct, tag_field="kind", tag="read"):
    """It was read."""

    fact: str
    seconds: float = 0.0


class Answer(Struct, tag_field="kind", tag="result"):
    """A check has ended."""

    check: str
    link: Link
    status: Status
    detail: str = ""


class Whole(Struct, tag_field="kind", tag="report"):
    """The whole report."""

    report: msgspec.Raw


_DECODER = msgspec.json.Decoder(Begin | Reading | Read | Answer | Whole)


def take(line: bytes, progress: Progress) -> "FullReport | None":
    """Enter a line into what is known of the run; the report, when this is the line that has it. Raises msgspec.MsgspecError."""
    match _DECODER.decode(line):
        case Begin(checks=checks):
            progress.checks = checks
        case Reading(fact=fact):
            progress.reading.setdefault(fact, time.monotonic())
        case Read(fact=fact):
            progress.reading.pop(fact, None)
        case Answer(check=check, link=link, status=status, detail=detail):
            progress.told[check] = Told(check, link, status, detail)
        case Whole(report=report):
            from gpudoctor.details import FullReport

            return msgspec.json.decode(report, type=FullReport)
    return None
