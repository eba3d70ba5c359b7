"""A history for a person: a line of marks for each check and subject, episodes, errors by boot, counters."""

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from gpudoctor.diagnosis import label
from gpudoctor.health.history import UNSEEN, History, Past, Row, XidHistory
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import BADGE_WIDTH, Page, Rows
from gpudoctor.reports.words import clean, counted
from gpudoctor.verdicts import Status, Subject, SubjectKind

MOST_ROWS = 40
MOST_EPISODES = 20
MARKS = {
    Status.FAIL.value: ("█", "X", "red"),
    Status.UNKNOWN.value: ("▒", "?", "magenta"),
    Status.WARN.value: ("▄", "w", "yellow"),
    Status.PASS.value: ("▁", ".", "green"),
    UNSEEN: (" ", " ", ""),
}
NARROW = 100
"""Below this width a line of marks stands under its name."""


def render(history: History, look: Look) -> str:
    """The history as text for a terminal or a pipe."""
    page = _Page(history, look)
    text = page.quiet() if look.quiet else page.text()
    return look.written(text)


class _Page(Page):
    """One history being laid out."""

    def __init__(self, history: History, look: Look) -> None:
        super().__init__(look)
        self.history = history

    def quiet(self) -> str:
        """One line."""
        going = sum(not one.ended for one in self.history.episodes)
        return f"{counted(len(self.history.episodes), 'episode')}, {going} going on\n"

    def text(self) -> str:
        """The whole page."""
        history = self.history
        boots = counted(len(history.boots), "boot")
        passes = "1 pass" if history.passes == 1 else f"{history.passes} passes"
        span = f"{_time(history.begin)} to {_time(history.end)}"
        self.heading((history.place, span if history.passes else "", passes, boots))
        if not history.rows:
            looked = any(run.at >= history.begin for run in history.runs)
            self.line(Text("nothing was wrong in this time" if looked else "no pass looked in this time"))
        self._rows(history.rows)
        self._episodes(history.episodes)
        self._xids(history.xids)
        self._counters()
        return self.written()

    def _rows(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        shown = rows if self.look.verbose else rows[:MOST_ROWS]
        width = max(len(_name(row)) for row in shown)
        beside = self.look.width >= NARROW and width + len(shown[0].buckets) + 2 <= self.look.width
        for row in shown:
            name = Text(clean(f"{_name(row):{width}}  " if beside else _name(row)))
            name.append_text(self._marks(row.buckets) if beside else Text("\n  ").append_text(self._marks(row.buckets)))
            self.console.print(name, soft_wrap=True)
        if len(rows) > len(shown):
            self.line(Text(f"and {len(rows) - len(shown)} more (-v)"))
        legend = "  ".join(f"{self._mark(status)} {status}" for status in MARKS if status != UNSEEN)
        self.line(Text(f"{legend}  blank: no pass looked", style="dim"))

    def _mark(self, status: str) -> str:
        fancy, plain, _ = MARKS[status]
        return plain if self.look.ascii else fancy

    def _marks(self, buckets: Sequence[str]) -> Text:
        text = Text()
        for status, alike in groupby(buckets):
            text.append(self._mark(status) * len(list(alike)), style=MARKS[status][2])
        return text

    def _episodes(self, episodes: Sequence[Past]) -> None:
        if not episodes:
            return
        self._title("Episodes")
        groups = _alike(episodes)
        shown = groups if self.look.verbose else groups[:MOST_EPISODES]
        for group in shown:
            one = group[0]
            rows = Rows(BADGE_WIDTH)
            whom = label([Subject(SubjectKind(member.kind), member.key) for member in group])
            whom = "" if one.kind == "node" else f"{whom}: "
            rows.add_row(self.badge(one.status), Text(clean(f"{one.check}: {whom}{one.summary}")))
            self.console.print(rows)
            more = self.grid("  ", BADGE_WIDTH - 2)
            more.add_row("", "", Text(clean(_when(one)), style="dim"))
            self.console.print(more)
        left = sum(map(len, groups[len(shown) :])) + self.history.more_episodes
        if left:
            self.line(Text(f"and {left} more, in --format json"))

    def _xids(self, xids: Sequence[XidHistory]) -> None:
        if not xids:
            return
        self._title("Errors that the driver reported")
        rows = self.grid("  ", 12, 12)
        for one in xids:
            now = f", {one.this_boot} in this boot" if one.this_boot else ""
            times = "once" if one.count == 1 else f"{one.count} times"
            said = f"{times} in {counted(one.boots, 'boot')}{now}; last {_time(one.last)}: {one.says}"
            rows.add_row("", Text(clean(one.gpu)), Text(one.code), Text(clean(said)))
            if one.escalates:
                rows.add_row("", "", "", Text(one.escalates, style="bold"))
        self.console.print(rows)

    def _counters(self) -> None:
        if not self.history.counters:
            return
        self._title("Counters that grew")
        rows = self.grid("  ", 16)
        for one in self.history.counters:
            unit = one.unit and f" {one.unit}"
            peak = f", at most {one.peak_per_hour:g}{unit} an hour" if one.peak_per_hour else ""
            said = f"{one.counter}: {one.growth:+g}{unit} since {_time(one.since)}{peak}; last {_time(one.last_grown)}"
            rows.add_row("", Text(clean(one.subject.partition(":")[2])), Text(clean(said)))
        self.console.print(rows)

    def _title(self, title: str) -> None:
        self.line(Text())
        self.line(Text(title, style="bold"))


def _alike(episodes: Sequence[Past]) -> list[list[Past]]:
    """Episodes that differ only in whom they are about."""
    groups: dict[tuple[str, ...], list[Past]] = {}
    for one in episodes:
        key = (one.check, one.kind, one.status.value, one.summary, one.first, one.last, one.how)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _name(row: Row) -> str:
    return row.check if row.kind == "node" else f"{row.check} {row.key}"


def _when(one: Past) -> str:
    passes = "1 pass" if one.times == 1 else f"{one.times} passes"
    state = "" if one.state.value == "lasting" else f" ({one.state.value})"
    turns = f", {one.turns} changes" if one.state.value == "flapping" else ""
    boots = f", over {one.boots - 1} reboot{'s' if one.boots > 2 else ''}" if one.boots > 1 else ""
    until = f"until {_time(one.last)}, {one.how}" if one.ended else f"last seen {_time(one.last)}, goes on"
    return f"from {_time(one.first)} {until}; {passes}{state}{turns}{boots}"


def _time(instant: str) -> str:
    """As people read it, in UTC."""
    return f"{instant[:10]} {instant[11:16]}"
