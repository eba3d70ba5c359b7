"""Asks what to compare with: a saved report, or a recording, of which a report is made first."""

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec

from gpudoctor.reports.tui.asking import Asking
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.named import is_report

if TYPE_CHECKING:
    from gpudoctor.report import Report
    from gpudoctor.reports.tui.app import DoctorApp


class AgainstError(Exception):
    """What was named cannot be compared with, and why."""


class AgainstScreen(Asking):
    """Asks for it, and closes with the path."""

    QUESTION = "Compare what is shown (B) with (A) ..."
    DO = "Compare"

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown

    def proposed(self) -> str:
        """What it was compared with before."""
        return self._shown.against_name

    def says(self, path: str) -> str:
        """What may be named."""
        return "A saved report (JSON or HTML), a snapshot, a bug report, or any other recording; it is only read."

    async def take(self, path: str) -> str:
        """The path, when there is something."""
        if not os.path.exists(path):
            return f"{path}: no such file or directory."
        self.dismiss(path)
        return ""


def config_of(doctor: "DoctorApp") -> tuple[str, ...]:
    """The option by which both sides are judged alike: what one limits or waives, the other does too."""
    options = doctor.source_options
    place = options.index("--config") if "--config" in options else len(options)
    return options[place : place + 2]


async def against_report(doctor: "DoctorApp", path: str) -> "Report":
    """The report of what was named: read where it is one, else made of the recording by a child. Raises AgainstError."""
    from gpudoctor.reports.saved import read_report
    from gpudoctor.sources.errors import SourceError

    try:
        if await asyncio.to_thread(is_report, path):
            return await asyncio.to_thread(read_report, path)
    except SourceError as error:
        raise AgainstError(str(error)) from error
    end = await doctor.outcome_of("run", "--node", path, "--format", "json", *config_of(doctor))
    from gpudoctor.report import Report

    try:
        return msgspec.json.decode(end.stdout, type=Report)
    except msgspec.MsgspecError as error:
        raise AgainstError(end.stderr.strip() or f"{path}: no report came of it: {error}") from error
