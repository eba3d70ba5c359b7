"""Saving what is shown: as a page, as JSON, or by recording a snapshot of the node. Nothing that exists is written over."""

import asyncio
import os
import re
from collections.abc import Iterator

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button

from gpudoctor.report import Report
from gpudoctor.reports.tui.asking import Asking
from gpudoctor.reports.tui.model import Shown

FORMS = {
    "html": (".html", "HTML page", "an HTML page with the whole report inside"),
    "json": (".json", "JSON", "the report as JSON, which `gpudoctor render` and `diff` read"),
    "snapshot": (".tar.zst", "Snapshot", "a snapshot, which every command of gpudoctor reads"),
}
"""Each form, how its files end, its name, and what it is."""
_SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".tar": "snapshot",
    ".tar.gz": "snapshot",
    ".tar.xz": "snapshot",
    ".tar.bz2": "snapshot",
    ".tar.zst": "snapshot",
}
MODE = 0o644
"""As of `-o`: readable by whoever collects it."""


NOT_LIVE = "What is shown is a recording or a report already: a snapshot is made of a live node."


class SaveScreen(Asking):
    """Asks where to and in which form."""

    DEFAULT_CSS = "SaveScreen .forms { height: 1; margin-bottom: 1; }"
    QUESTION = "Save what is shown"
    DO = "Save"

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown
        self._stem = proposed_stem(shown.report)

    def choices(self) -> Iterator[Widget]:
        """The forms, as buttons that change how the name ends."""
        with Horizontal(classes="forms"):
            for form, (end, name, _) in FORMS.items():
                yield Button(f"{name} {end}", id=form, compact=True)

    def proposed(self) -> str:
        """In the directory where the program was started."""
        return f"{self._stem}.html"

    def says(self, path: str) -> str:
        """Where it would be written, and how."""
        form = form_of(path.strip())
        if form is None:
            return "The name decides on the form: .html, .json, or .tar.zst for a snapshot."
        place = _absolute(os.path.expanduser(path.strip()))
        if form == "snapshot":
            look = "Looks at the node once more, as `gpudoctor record` does, and writes"
            return self._no_snapshot or f"{look} {FORMS[form][2]}, to a new file: {place}"
        return f"Writes {FORMS[form][2]}, to a new file: {place}"

    @property
    def _no_snapshot(self) -> str:
        return "" if self._shown.live else NOT_LIVE

    def pick(self, choice: str) -> None:
        """Another form, another ending."""
        path = self.line.value
        stem = next((path[: -len(end)] for end in sorted(_SUFFIXES, key=len, reverse=True) if path.endswith(end)), path)
        self.line.value = f"{stem or self._stem}{FORMS[choice][0]}"
        self.line.cursor_position = len(self.line.value)
        self.line.focus()

    async def take(self, path: str) -> str:
        """Write it; what is wrong is said, and the question stays."""
        form = form_of(path)
        if form is None:
            return "The name must end in .html, .json or, for a snapshot, .tar.zst, .tar.gz, .tar.xz or .tar."
        if form == "snapshot":
            return self._record(path)
        if self._shown.report is None:
            return "There is no report yet: wait for the end of the run."
        report = self._shown.report
        problem = await asyncio.to_thread(_written, path, form, report)
        if not problem:
            self.doctor.notify(f"Saved {_absolute(path)}", markup=False)
            self.dismiss(path)
        return problem

    def _record(self, path: str) -> str:
        """Recording takes as long as a run: it goes on behind the views, and its end is told."""
        problem = self._no_snapshot or refused(path)
        if not problem:
            self.doctor.run_worker(self._recorded(path), exit_on_error=True)
            self.doctor.notify(f"Recording to {_absolute(path)} ...", markup=False)
            self.dismiss(path)
        return problem

    async def _recorded(self, path: str) -> None:
        doctor = self.doctor
        end = await doctor.outcome_of("record", "-o", _absolute(path), *doctor.source_options)
        if end.status == 0:
            doctor.notify(f"Recorded {_absolute(path)}", markup=False)
        else:
            said = end.stderr.strip() or f"gpudoctor record ended with {end.status}"
            doctor.notify(said, title="Nothing was recorded", severity="error", timeout=20, markup=False)


def _absolute(path: str) -> str:
    """The whole path; as it is where the working directory was removed, which has no path any more (getcwd(3), ENOENT)."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def form_of(path: str) -> str | None:
    """By how the name ends."""
    name = os.path.basename(path).lower()
    ends = (end for end in sorted(_SUFFIXES, key=len, reverse=True) if name.endswith(end) and name != end)
    return next((_SUFFIXES[end] for end in ends), None)


def proposed_stem(report: Report | None) -> str:
    """`gpudoctor-n1-2026-11-29T120000Z`: which node, and when."""
    if report is None:
        return "gpudoctor-report"
    host = re.sub(r"[^A-Za-z0-9._-]", "", report.node.hostname or "")[:64].lstrip(".-") or "node"
    return f"gpudoctor-{host}-{re.sub(r'[^0-9TZ-]', '', report.started_at)}"


def refused(path: str) -> str:
    """Why a new file cannot be made there, as far as can be told before; "" where nothing speaks against it."""
    folder = os.path.dirname(_absolute(path)) or "."
    if os.path.lexists(path):
        return f"{path} exists: another name, please; nothing is written over."
    if not os.path.isdir(folder):
        return f"{folder}: no such directory."
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder}: no permission to write there."
    return ""


def _written(path: str, form: str, report: Report) -> str:
    """Write a report to a new file; what went wrong, "" for nothing."""
    if problem := refused(path):
        return problem
    if form == "html":
        from gpudoctor.reports.html import render as html

        text = html(report)
    else:
        from gpudoctor.reports.json import render as as_json

        text = as_json(report)
    return _put(path, text)


def _put(path: str, text: str) -> str:
    """Only into a file that was not there: O_EXCL follows no link either (open(2))."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    except FileExistsError:
        return f"{path} exists: another name, please; nothing is written over."
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        os.unlink(path)
        return f"{path}: {error.strerror or error}: nothing was saved."
    return ""
