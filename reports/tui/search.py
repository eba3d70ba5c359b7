"""Search over all that the report says: checks, findings, subjects, evidence and remedies, and the way to what was found."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from gpudoctor.patterns import pattern
from gpudoctor.report import Finding, Report
from gpudoctor.reports.html.rows import ADDRESS
from gpudoctor.reports.tui.badges import badge, node_text
from gpudoctor.reports.tui.layout import cut
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.rows import Row, Rows
from gpudoctor.reports.words import STATUS_ORDER, clean
from gpudoctor.verdicts import Status

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp

_UUID = pattern(r"(?:GPU-|MIG-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
MOST = 200
"""As many places are shown; whoever looks for less writes more."""
AROUND = 30


class Place(Struct, frozen=True):
    """Where words may be found: a check, or a finding with one of its texts. `opens` is what `open_findings` shows.

    `shape` is the text without the addresses in it, by which like places are told once.
    """

    opens: str
    check: str
    status: Status
    kind: str
    text: str
    lower: str
    shape: str


def places(report: Report) -> tuple[Place, ...]:
    """All that can be found, what is wrong first."""
    found: list[Place] = []
    for result in report.results:
        first = result.findings[0].id if result.findings else f"{result.check}@"
        said = f"{result.title}. {result.detail}" if result.detail else result.title
        found.append(_place(first, result.check, result.status, "check", said))
        for finding in result.findings:
            found += [_place(finding.id, result.check, finding.status, kind, text) for kind, text in _texts(finding)]
    return tuple(sorted(found, key=lambda place: STATUS_ORDER.index(place.status)))


def _texts(finding: Finding) -> Iterator[tuple[str, str]]:
    subject = finding.subject
    yield "finding", f"{' '.join(filter(None, (subject.id, subject.name, subject.uuid)))}: {finding.summary}"
    for seen in finding.evidence:
        yield "evidence", f"{seen.where}: {seen.shows}"
    for remedy in finding.remedies:
        yield "remedy", f"{remedy.say} {' '.join(remedy.run)}"
    for reference in finding.references:
        yield "reference", reference


def _place(opens: str, check: str, status: Status, kind: str, text: str) -> Place:
    told = clean(text)
    shape = ADDRESS.sub("*", _UUID.sub("*", told))
    return Place(opens, check, status, kind, told, f"{check} {told}".lower(), shape)


def search(every: Sequence[Place], words: str) -> list[Place]:
    """The places in which all words occur, whatever their case; of those that differ in an address only, the first."""
    wanted = words.lower().split()
    found: dict[tuple[str, str, Status, str], Place] = {}
    for place in every if wanted else ():
        if all(word in place.lower for word in wanted):
            found.setdefault((place.check, place.kind, place.status, place.shape), place)
    return list(found.values())


class SearchScreen(ModalScreen[str | None]):
    """Asks for words, shows where they are, and closes with what was chosen: a finding's id, or a check's with `@` behind it."""

    DEFAULT_CSS = """
    SearchScreen { align: center middle; }
    SearchScreen > Vertical { width: 94%; height: 90%; background: $surface; border: round $border; padding: 0 1; }
    SearchScreen Input { margin-bottom: 1; }
    SearchScreen .said { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close"),
        Binding("down", "to_list", "To the list", show=False),
    ]

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown
        self._places = places(shown.report) if shown.report is not None else ()
        self._found: list[Place] = []

    @property
    def doctor(self) -> "DoctorApp":
        """The program."""
        return cast("DoctorApp", self.app)

    def compose(self) -> ComposeResult:
        """A line for words, and what was found."""
        with Vertical():
            yield Static("Search checks, findings, subjects, evidence and remedies", classes="said", markup=False)
            yield Input(placeholder="words that must all occur", compact=True)
            yield Static(classes="said told", markup=False)
            yield Rows(id="found")

    def on_mount(self) -> None:
        """Words first."""
        self.query_one(Input).focus()
        self._search("")

    def on_resize(self) -> None:
        """Cut anew."""
        self.call_after_refresh(self._fill)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while one writes."""
        event.stop()
        self._search(event.value)

    def _search(self, words: str) -> None:
        self._found = search(self._places, words)
        if self._shown.report is None:
            told = f"There is nothing to search yet. {self._shown.untold}"
        elif not words.strip():
            told = f"{len(self._places)} places to look in"
        else:
            more = f", of which {MOST} are shown" if len(self._found) > MOST else ""
            told = f"{len(self._found)} found{more}"
        self.query_one(".told", Static).update(node_text(told))
        self._fill()

    def _fill(self) -> None:
        width = self.query_one(Rows).scrollable_content_region.width or 60
        wanted = self.query_one(Input).value.lower().split()
        rows = [Row(self._row(place, wanted, width), str(number)) for number, place in enumerate(self._found[:MOST])]
        self.query_one(Rows).fill(rows)

    def _row(self, place: Place, wanted: Sequence[str], width: int) -> Content:
        before = Content.assemble(
            badge(place.status, ascii=self._shown.ascii), " ", f"{place.check}  ", place.kind.ljust(10)
        )
        text = _around(place.text, wanted, max(20, width - before.cell_length - 1), ascii=self._shown.ascii)
        return cut(Content.assemble(before, " ", text), width, ascii=self._shown.ascii)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The one that is highlighted, which is the first."""
        event.stop()
        self._choose(self.query_one(Rows).chosen)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """This one."""
        event.stop()
        self._choose(event.option_id)

    def _choose(self, row: str | None) -> None:
        if row is not None:
            self.dismiss(self._found[int(row)].opens)

    def action_to_list(self) -> None:
        """From the words to what was found."""
        self.query_one(Rows).focus()

    def action_close(self) -> None:
        """Nothing was wanted."""
        self.dismiss(None)


def _around(text: str, wanted: Sequence[str], width: int, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    """As much of a text as fits, with the first word found in it, and all of them marked."""
    lower = text.lower()
    at = min((place for word in wanted if (place := lower.find(word)) >= 0), default=0)
    begin = max(0, at - min(AROUND, width // 3)) if at + max(map(len, wanted), default=0) > width else 0
    dots = "..." if ascii else "…"
    told = (dots if begin else "") + text[begin:]
    content = node_text(told)
    low = told.lower()
    for word in wanted:
        place = low.find(word)
        while place >= 0 and len(low) == len(told):
            content = content.stylize("bold underline", place, place + len(word))
            place = low.find(word, place + len(word))
    return content
