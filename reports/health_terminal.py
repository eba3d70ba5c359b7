"""An answer of `gpudoctor health` for a person: what changed since the pass before, or with `everything` how the node is."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from gpudoctor.health.answer import HARMLESS, Change, Event, Growth, Health, State, Turn, Wrong
from gpudoctor.reports.health_forms import headline, in_words
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import BADGE_WIDTH, GLYPHS, LABEL_WIDTH, Page, Rows
from gpudoctor.reports.words import OVERALL_STATUS, clean, counted
from gpudoctor.verdicts import Status

MOST_EVIDENCE = 2
MOST_ROWS = 12
_STATUS_OF = {Turn.HEALED: Status.PASS, Turn.FLAPPING: Status.WARN}


def render(answer: Health, look: Look, *, everything: bool) -> str:
    """The answer as text for a terminal, a mail or a pipe."""
    page = _Page(answer, look)
    text = page.quiet() if look.quiet else page.text(everything=everything)
    return look.written(text)


class _Page(Page):
    """One answer being laid out."""

    def __init__(self, answer: Health, look: Look) -> None:
        super().__init__(look)
        self.answer = answer

    def quiet(self) -> str:
        """One line."""
        return clean(f"{self.answer.verdict.value.upper()} {self._said()}") + "\n"

    def text(self, *, everything: bool) -> str:
        """The whole page."""
        answer = self.answer
        node = answer.node
        self.heading(
            (
                f"gpudoctor {answer.tool.version}",
                node.hostname or "unnamed node",
                node.driver_version and f"driver {node.driver_version}",
                answer.at and f"{node.source} {answer.at}",
            )
        )
        self.titled(OVERALL_STATUS[answer.verdict], Text(clean(self._said()), style="bold"))
        for change in answer.changes:
            self._change(change)
        told = {finding for change in answer.changes for finding in change.wrong.findings}
        still = [one for one in answer.wrong if told.isdisjoint(one.findings)]
        if everything:
            self._everything(still)
        else:
            self._still(still)
            self._events([one for one in answer.events if one.area not in HARMLESS])
        return self.written()

    def _said(self) -> str:
        """`1 root cause; 2 new, 1 healed`."""
        counts = {turn: sum(change.turn is turn for change in self.answer.changes) for turn in Turn}
        changed = ", ".join(f"{count} {turn.value}" for turn, count in counts.items() if count)
        return "; ".join(words for words in (headline(self.answer), changed) if words)

    # Changes

    def _change(self, change: Change) -> None:
        wrong = change.wrong
        status = _STATUS_OF.get(change.turn, wrong.status)
        self.line(Text())
        rows = Rows(BADGE_WIDTH)
        text = wrong.summary if change.turn is Turn.FLAPPING else in_words(wrong)
        words = f"{wrong.check}: {text}" if change.turn is Turn.FLAPPING else text
        rows.add_row(self._mark(status, change.turn.value.upper()), Text(clean(words)))
        self.console.print(rows)
        self._facts(wrong, change)
        if change.turn in (Turn.NEW, Turn.WORSE, Turn.STAYS) and wrong.remedies:
            self.remedies([wrong.remedies])

    def _mark(self, status: Status, word: str) -> Text:
        fancy, plain, style = GLYPHS[status]
        return Text(f"{plain if self.look.ascii else fancy} {word:7}", style=style)

    def _facts(self, wrong: Wrong, change: Change | None = None) -> None:
        rows = self.grid("  ", LABEL_WIDTH)
        for name, said in self._told(wrong, change):
            rows.add_row("", Text(name, style="dim"), said)
        self.console.print(rows)

    def _told(self, wrong: Wrong, change: Change | None) -> Iterator[tuple[str, Text]]:
        if change is not None and change.turn is Turn.HEALED:
            yield (
                "was",
                Text(clean(f"{change.before} since {_time(wrong.since)}, seen in {_passes(wrong)}; {change.how}")),
            )
            return
        if change is not None and change.before and change.before != wrong.status.value:
            yield "was", Text(clean(change.before))
        yield "since", Text(clean(_since(wrong)))
        if change is not None and change.how:
            yield "how", Text(clean(change.how))
        if wrong.why:
            yield "unseen", Text(clean(wrong.why))
        for place, evidence in enumerate(wrong.evidence[: None if self.look.verbose else MOST_EVIDENCE]):
            yield "" if place else "evidence", self.evidence(evidence)
        if wrong.explains:
            yield "explains", Text(counted(wrong.explains, "finding"))

    # What else

    def _still(self, wrong: Sequence[Wrong]) -> None:
        """What has not changed, in one line."""
        if wrong:
            first = wrong[0]
            more = f" and {len(wrong) - 1} more (--all)" if len(wrong) > 1 else ""
            self.line(Text())
            self.line(Text(clean(f"still wrong: {first.check} since {_time(first.since)}{more}"), style="dim"))

    def _everything(self, wrong: Sequence[Wrong]) -> None:
        for one in wrong:
            self.line(Text())
            rows = Rows(BADGE_WIDTH)
            rows.add_row(self.badge(one.status), Text(clean(in_words(one))))
            self.console.print(rows)
            self._facts(one)
            if one.remedies:
                self.remedies([one.remedies])
        self._blips()
        self._events(self.answer.events)
        self._growth(self.answer.growth)
        self._notes()

    def _blips(self) -> None:
        if self.answer.blips:
            self._title("Seen once, not counted yet")
            rows = Rows(BADGE_WIDTH)
            for one in self.answer.blips[:MOST_ROWS]:
                rows.add_row(self.badge(one.status), Text(clean(f"{one.check}: {one.summary}")))
            self.console.print(rows)

    def _events(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._title("The kernel has written since")
        rows = self.grid("  ", 10, 14)
        for event in events[:MOST_ROWS]:
            times = f" ({event.count} times)" if event.count > 1 else ""
            boot = "the boot before: " if event.previous_boot else ""
            rows.add_row("", Text(event.code), Text(clean(event.gpu)), Text(clean(f"{boot}{event.says}{times}")))
        self.console.print(rows)

    def _growth(self, growth: Sequence[Growth]) -> None:
        if not growth:
            return
        self._title("Counters that grew")
        rows = self.grid("  ", 18)
        for one in growth[:MOST_ROWS]:
            rate = f", {one.per_hour:g}{one.unit and f' {one.unit}'} an hour" if one.per_hour is not None else ""
            said = f"{one.counter}: {one.growth:+g} in {one.seconds:.0f} s{rate}"
            rows.add_row("", Text(clean(one.subject.partition(":")[2])), Text(clean(said)))
        self.console.print(rows)
        if len(growth) > MOST_ROWS:
            self.line(Text(f"  and {len(growth) - MOST_ROWS} more, in --format json"))

    def _notes(self) -> None:
        answer = self.answer
        notes = [f"NVML {answer.nvml}"] if answer.nvml.startswith("not asked:") else []
        if answer.memory.interrupted:
            notes.append(answer.memory.interrupted)
        if answer.memory.kept:
            notes.append(f"pass {answer.number}, {answer.memory.passes} of this boot")
        if answer.stale is not None and answer.at:
            notes.append(f"answer of the last pass, {answer.stale.seconds:.0f} s old")
        if notes:
            self.line(Text())
        for note in notes:
            self.line(Text(clean(note), style="dim"))

    def _title(self, title: str) -> None:
        self.line(Text())
        self.line(Text(title, style="bold"))


def _since(wrong: Wrong) -> str:
    boots = f", over {wrong.boots - 1} reboot{'s' if wrong.boots > 2 else ''}" if wrong.boots > 1 else ""
    turns = f", {wrong.turns} changes" if wrong.state is State.FLAPPING and wrong.turns > 1 else ""
    return f"{_time(wrong.since)}, seen in {_passes(wrong)}{turns}{boots}"


def _passes(wrong: Wrong) -> str:
    return "1 pass" if wrong.times == 1 else f"{wrong.times} passes"


def _time(instant: str) -> str:
    """As people read it."""
    return f"{instant[:10]} {instant[11:19]} UTC" if len(instant) > 18 else instant
