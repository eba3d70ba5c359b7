"""A diff for a person at a terminal: what broke, what healed, what is no longer known, what changed; what is mere identity is folded."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from gpudoctor.diff import Area, Change, Counter, Diff, Turn, Way
from gpudoctor.reports import diff_words as words
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import BADGE_WIDTH, GLYPHS, Page, Rows
from gpudoctor.reports.words import clean, counted
from gpudoctor.verdicts import Status

MOST_TURNS = 12
MOST_EVIDENCE = 4
MOST_LINES = 12
MOST_CHANGES = 24
MOST_COUNTERS = 16
MOST_NAMED = 6
AREA_WIDTH = 10
SIDE_WIDTH = 1
STYLES = {"-": "red", "+": "green"}


def render(diff: Diff, look: Look) -> str:
    """The diff as text for a terminal or a pipe."""
    text = _quiet(diff) if look.quiet else _Page(diff, look).text()
    return look.written(text)


def _quiet(diff: Diff) -> str:
    return clean(f"{'SAME' if diff.same else 'DIFFERENT'} {diff.headline}") + "\n"


class _Page(Page):
    """One diff being laid out."""

    def __init__(self, diff: Diff, look: Look) -> None:
        super().__init__(look)
        self.diff = diff
        self.arrow = "->" if look.ascii else "\u2192"

    def text(self) -> str:
        """The whole page."""
        self._sides()
        status = words.status(self.diff)
        rows = Rows(BADGE_WIDTH)
        rows.add_row(self._mark(status, words.VERDICTS[status]), Text(clean(self.diff.headline), style="bold"))
        self.console.print(rows)
        self.line(Text(clean(words.relation(self.diff)), style="dim"))
        for note in self.diff.notes:
            self.line(Text(clean(f"note: {note}")))
        for section in words.sections(self.diff):
            self._section(section)
        self._changes()
        self._counters()
        self._gaps()
        self._identity()
        return self.written()

    def _sides(self) -> None:
        joint = " | " if self.look.ascii else " \u00b7 "
        rows = self.grid("  ", SIDE_WIDTH)
        for letter, side in (("A", self.diff.a), ("B", self.diff.b)):
            parts = [*words.side_parts(side), *((side.given,) if self.look.verbose else ())]
            rows.add_row("", Text(letter, style="bold"), Text(clean(joint.join(parts)), style="dim"))
        self.console.print(rows)
        self.line(Text())

    def _title(self, title: str) -> None:
        self.line(Text())
        self.line(Text(title, style="bold"))

    # Turns

    def _section(self, section: words.Section) -> None:
        self._title(section.title)
        most = len(section.turns) if self.look.verbose else MOST_TURNS
        for turn in section.turns[:most]:
            self._turn(turn, section.key)
        if len(section.turns) > most:
            self.line(Text(f"  and {len(section.turns) - most} more (-v)"))
        for because, turns in section.following:
            self._following(because, turns)

    def _turn(self, turn: Turn, kind: str) -> None:
        whom = words.who(turn)
        head = f"{turn.check}: {f'{whom}: ' if whom else ''}{words.now(turn)}"
        rows = self.grid("  ", BADGE_WIDTH)
        rows.add_row("", self._mark(words.STATUS_OF[turn.b], words.badge_word(turn.b)), Text(clean(head)))
        self.console.print(rows)
        more = self.grid("             ", 8)
        for name, said in self._told(turn, kind):
            more.add_row("", Text(name, style="dim"), said)
        self.console.print(more)

    def _mark(self, status: Status, word: str) -> Text:
        fancy, plain, style = GLYPHS[status]
        return Text(f"{plain if self.look.ascii else fancy} {word:7}", style=style)

    def _told(self, turn: Turn, kind: str) -> Iterator[tuple[str, Text]]:
        full = self.look.verbose or kind in ("broke", "found")
        if was := words.before(turn):
            yield "in A", Text(clean(was))
        if full and turn.since:
            yield "since", Text(clean(words.since(turn)))
        for place, evidence in enumerate(turn.evidence[: MOST_EVIDENCE if self.look.verbose else 1] if full else ()):
            yield "" if place else "evidence", self.evidence(evidence)
        if turn.explains:
            yield "explains", Text(counted(turn.explains, "finding"))

    def _following(self, because: str, turns: Sequence[Turn]) -> None:
        names = list(dict.fromkeys(turn.check for turn in turns))
        shown = names if self.look.verbose else names[:MOST_NAMED]
        more = f" and {len(names) - len(shown)} more (-v)" if len(names) > len(shown) else ""
        verb = "follows" if len(names) == 1 else "follow"
        self.console.print(self._row(f"{counted(len(names), 'check')} {verb} from {because}: {', '.join(shown)}{more}"))

    def _row(self, text: str) -> object:
        rows = self.grid("  ", 0)
        rows.add_row("", "", Text(clean(text)))
        return rows

    # What else

    def _changes(self) -> None:
        changes = [one for one in self.diff.changes if one.area is not Area.CHECKS or self.look.verbose]
        if not changes:
            return
        self._title("Changed" if self.diff.way is Way.TIMES else "Different")
        most = len(changes) if self.look.verbose else MOST_CHANGES
        for area, group in words.by_area(changes[:most]):
            rows = self.grid("  ", AREA_WIDTH)
            for place, change in enumerate(group):
                rows.add_row("", Text("" if place else words.AREA_WORDS[area], style="dim"), self._change(change))
            self.console.print(rows)
        if len(changes) > most:
            self.line(Text(f"  and {len(changes) - most} more (-v)"))

    def _change(self, change: Change) -> Text:
        whom = words.of_whom(change)
        text = Text(clean(f"{f'{whom}: ' if whom else ''}{change.what}"))
        if not (change.diff and change.a == change.b):
            text.append(": ")
            text.append_text(self._values(words.value(change.a), words.value(change.b)))
        if change.note:
            text.append(clean(f" ({change.note})"), style="dim")
        most = len(change.diff) if self.look.verbose else MOST_LINES
        for line in change.diff[:most]:
            text.append("\n" + clean(line), style=STYLES.get(line[:1], "dim"))
        left = change.omitted + max(0, len(change.diff) - most)
        if left:
            text.append(f"\nand {counted(left, 'more line')}{'' if self.look.verbose else ' (-v)'}", style="dim")
        if self.look.verbose and len(change.subjects) > 1:
            text.append("\n" + clean(", ".join(change.subjects)), style="dim")
        return text

    def _values(self, a: str, b: str) -> Text:
        return Text.assemble((clean(a), "red"), f" {self.arrow} ", (clean(b), "green"))

    def _counters(self) -> None:
        counters = [one for one in self.diff.counters if one.counts or self.look.verbose]
        if not counters:
            return
        self._title("Counters")
        most = len(counters) if self.look.verbose else MOST_COUNTERS
        for counter in counters[:most]:
            self.console.print(self._counter(counter))
        if len(counters) > most:
            self.line(Text(f"  and {len(counters) - most} more (-v)"))

    def _counter(self, counter: Counter) -> object:
        rows = self.grid("  ", 0)
        a, b = words.number(counter.a, counter.unit), words.number(counter.b, counter.unit)
        text = Text(clean(f"{counter.subject} {counter.what}: "))
        text.append_text(self._values(a, b))
        text.append(clean(f"  {words.growth(counter)}"))
        rows.add_row("", "", text)
        return rows

    def _gaps(self) -> None:
        if not self.diff.gaps:
            return
        self._title("Not compared")
        for gap in self.diff.gaps:
            shown = gap.what if self.look.verbose else gap.what[:MOST_NAMED]
            more = f" and {len(gap.what) - len(shown)} more (-v)" if len(gap.what) > len(shown) else ""
            rows = self.grid("  ", AREA_WIDTH)
            text = Text(clean(f"{words.lacking(gap)}: {', '.join(shown)}{more}"))
            rows.add_row("", Text(words.AREA_WORDS[gap.area], style="dim"), text)
            self.console.print(rows)

    def _identity(self) -> None:
        own = self.diff.identity
        if not own:
            return
        if not self.look.verbose:
            names = ", ".join(dict.fromkeys(change.what for change in own[:MOST_CHANGES]))
            self.line(Text())
            self.line(Text(clean(f"By identity only (-v): {names}"), style="dim"))
            return
        self._title("By identity only")
        rows = self.grid("  ", AREA_WIDTH)
        for change in own:
            rows.add_row("", Text(words.AREA_WORDS[change.area], style="dim"), self._change(change))
        self.console.print(rows)
