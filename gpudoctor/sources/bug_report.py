"""nvidia-bug-report.log[.gz]: what NVIDIA's own script collected, as raw answers of the same interface.

The script (nvidia-bug-report.sh) writes sections separated by lines of underscores. A section is a file (`*** PATH`, then what
`ls -l` says, then the content), a command (its line, then the output), or prose. What a report lacks is not recorded. Which sections
are read, and for what, stands in docs/bug-reports.md.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Gate, Log, SourceKind
from gpudoctor.sources.bug_report_reader import HEADER, Sections
from gpudoctor.sources.bug_report_text import Collector, ReportText, Splitter
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Unread, Why

FIRST_BYTES = 64 * 1024
"""The head of a report begins in these."""


class BugReport(RecordedNode):
    """A bug report as a recorded node. `notes` are worth telling whoever asked for it, each in one line."""

    kind = SourceKind.BUG_REPORT

    def __init__(self, sections: Sections, notes: tuple[str, ...] = ()) -> None:
        """The script runs as root or not at all."""
        super().__init__(sections.tree, uid=0)
        self.notes = notes
        self.answers = sections.answers
        self.commands.update(sections.commands)
        self.listing_origins = sections.listed
        self._sections = sections

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """A recorded answer, or why there is none."""
        found = super().answer(name, gate)
        return self._explained(found, name) if isinstance(found, Unread) and name not in self.answers else found

    def log(self, name: str) -> Log | Unread:
        """A recorded log, or why there is none."""
        if name not in self.logs:
            found = self._sections.log(name)
            self.logs[name] = found or self._explained(Unread(Why.NOT_RECORDED, name, "the log was not recorded"), name)
        return self.logs[name]

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """A recorded command, or why there is none."""
        found = super().command(argv, seconds=seconds)
        return self._explained(found, " ".join(argv)) if isinstance(found, Unread) else found

    def unrecorded(self, path: str) -> Absent | Unread:
        """What to say of a path that the report does not speak of."""
        return self._explained(Unread(Why.NOT_RECORDED, path, "was not recorded"), path)

    def is_complete(self, path: str) -> bool:
        """Whether all names in a directory are known, or whether a path is not among all the names of one above it."""
        return path in self._sections.listed or self._listing_without(path) is not None

    def _find(self, path: str, *, follow: bool) -> Record | Absent | Unread:
        """An absence names the listing that shows it."""
        found = super()._find(path, follow=follow)
        if isinstance(found, Absent) and not found.origin:
            return Absent(found.path, self._listing_without(found.path) or "")
        return found

    def _listing_without(self, path: str) -> str | None:
        """What listed a directory above a path, or all paths that begin as this one does, and does not name it."""
        for listed, origin in self._sections.listed.items():
            beginning = listed.removesuffix("*") if listed.endswith("*") else f"{listed}/"
            name = path[len(beginning) :].partition("/")[0] if path.startswith(beginning) else ""
            if name and self.tree.lookup(beginning + name) is None:
                return origin
        return None

    def _explained(self, unread: Unread, what: str) -> Unread:
        """The same, with why the report lacks it."""
        reason = self._sections.reason(what)
        return Unread(unread.why, unread.where, f"{unread.detail}: {reason}") if reason else unread


class Reports:
    """The reports in one file. Somebody may have put several one after the other: the last whole one counts."""

    def __init__(self) -> None:
        self.count = 0
        self.current: Sections | None = None
        self._last_whole: Sections | None = None

    def begin(self, heading: str) -> Collector | None:
        """What takes the section with this first line, None where nobody needs it."""
        if heading.startswith(HEADER):
            self._retire()
            self.count += 1
            self.current = Sections()
        return self.current.begin(heading) if self.current is not None else None

    def chosen(self, *, whole: bool, trouble: str) -> BugReport | None:
        """The report that counts; `whole` says whether the last section of the file is, `trouble` why there was no more to read."""
        self._retire()
        sections = self._last_whole or self.current
        if sections is None:
            return None
        sections.finish(whole=whole)
        notes = [trouble] if trouble else []
        if self.count > 1:
            which = "last whole one" if sections.ended else "last one"
            notes.append(f"the file holds {self.count} reports: the {which} is read")
        if not sections.ended:
            notes.append(sections.reason(""))
        return BugReport(sections, tuple(notes))

    def _retire(self) -> None:
        if self.current is not None and self.current.ended:
            self._last_whole = self.current


def open_bug_report(path: Path) -> BugReport:
    """Read a report, compressed or not. Raises SourceError when it is none, or damaged before its first section ends."""
    with path.open("rb") as file:
        return load_bug_report(file, str(path))


def load_bug_report(file: BinaryIO, place: str) -> BugReport:
    """The same of a file that is open; `place` is what messages call it."""
    text = ReportText(file, place)
    reports = Reports()
    size, whole = _read(text.pieces(), reports, text)
    report = reports.chosen(whole=whole, trouble=text.trouble)
    if report is None or (text.trouble and reports.current is not None and reports.current.count < 2):
        raise SourceError(f"{place}: {_refusal(text.trouble, size)}")
    return report


def read_bug_report(text: str) -> BugReport:
    """The recorded node that a report's text holds. Raises SourceError when it is none."""
    reports = Reports()
    _, whole = _read([text.encode("utf-8", "surrogateescape")], reports)
    report = reports.chosen(whole=whole, trouble="")
    if report is None:
        raise SourceError(_refusal("", len(text)))
    return report


def _read(pieces: Iterable[bytes], reports: Reports, text: ReportText | None = None) -> tuple[int, bool]:
    """Gives how many bytes were read and whether the last section is whole."""
    splitter = Splitter(reports.begin)
    size = 0
    for lines in pieces:
        splitter.feed(lines)
        size += len(lines)
        if size > FIRST_BYTES and not reports.count:
            break
    return size, splitter.finish(sound=text is None or not text.trouble)


def _refusal(trouble: str, size: int) -> str:
    if trouble:
        return f"{trouble}, before the end of the first section: collect or copy it again"
    return f"not an nvidia-bug-report log: it lacks the line {HEADER!r}" if size else "is empty"
