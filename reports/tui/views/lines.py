"""What stands in the pane beside a list: lines that can be gone through, and opened or copied where there is something behind them."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from textual.content import Content

from gpudoctor.report import Finding
from gpudoctor.reports.tui.badges import badge, node_text
from gpudoctor.reports.tui.layout import hung
from gpudoctor.reports.tui.marks import STYLES as MARK_STYLES
from gpudoctor.reports.tui.marks import FindingMarks
from gpudoctor.reports.tui.marks import marked as marked_word
from gpudoctor.reports.tui.rows import Row
from gpudoctor.verdicts import Evidence, Remedy, Status

BADGE = 10
LABEL = 13
"""The width of what stands before the words of a line."""
MOST_LINES = 2000


class Line(Struct, frozen=True):
    """Words behind a label, which go on below themselves; `indent` is how far in they stand.

    What Enter or a click does: `opens` are findings, `copies` is text.
    """

    text: Content
    label: Content = Content()
    indent: int = 0
    opens: tuple[str, ...] = ()
    copies: str = ""
    heading: bool = False


def heading(words: str) -> Line:
    """A heading, with a line of room above it."""
    return Line(node_text(words, "bold"), heading=True)


def labelled(label: str, text: Content, copies: str = "") -> Line:
    """Words behind their name."""
    return Line(text, Content.styled(label, "dim"), LABEL, copies=copies)


def said(words: str, style: str = "", *, label: str = "") -> Line:
    """Words that only stand there."""
    return labelled(label, node_text(words, style)) if label else Line(node_text(words, style))


def fact(label: str, value: str | None) -> Iterator[Line]:
    """A value with its name; nothing where it is not known."""
    if value:
        yield labelled(label, node_text(value), value)


def marked(status: Status, words: Content, *, ascii: bool, opens: tuple[str, ...] = ()) -> Line:  # noqa: A002 - as `Look` calls it
    """Words behind the mark of a status."""
    return Line(words, badge(status, ascii=ascii), BADGE, opens=opens)


def mark(word: str, *, ascii: bool) -> Content:  # noqa: A002 - as `Look` calls it
    """`▲ new`, in its colour; nothing for no word."""
    return Content.styled(marked_word(word, ascii=ascii), MARK_STYLES[word]) if word else Content()


def finding(one: Finding, marks: FindingMarks, *, ascii: bool, check: bool = True) -> Line:  # noqa: A002
    """A finding in a line that opens it."""
    name = f"{one.id.partition('@')[0]}: " if check else ""
    waived = "waived: " if one.waived is not None else ""
    told = mark(marks.of(one.id, one.subject), ascii=ascii)
    words = (
        Content.assemble(told, " ", node_text(f"{waived}{name}{one.summary}"))
        if told.plain
        else node_text(f"{waived}{name}{one.summary}")
    )
    return marked(one.status, words, ascii=ascii, opens=(one.id,))


def evidence(seen: Evidence) -> Line:
    """Where it was read, and the raw words."""
    joint = " " if seen.shows.startswith("->") else ": "
    at = f" at {seen.at}" if seen.at else ""
    text = Content.assemble(node_text(f"{seen.where}{at}", "$text-secondary"), joint, node_text(seen.shows))
    return labelled("evidence", text, f"{seen.where}{joint}{seen.shows}")


def remedies(steps: Sequence[Remedy]) -> Iterator[Line]:
    """What to do from the safest up, each command in a line of its own that can be copied."""
    for number, remedy in enumerate(steps):
        word = "next" if number == 0 else "then" if remedy.then else "or"
        interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {remedy.interrupts})"
        yield labelled(word, node_text(f"{remedy.say}{interrupts}", "bold" if number == 0 else ""))
        for command in remedy.run:
            yield labelled("", node_text(f"$ {command}", "$text-success"), command)
        if remedy.confirm:
            yield labelled("confirm", node_text(remedy.confirm))


def rows(lines: Sequence[Line], width: int) -> list[Row]:
    """The lines for a list of this width; a heading is passed over."""
    found: list[Row] = []
    for number, line in enumerate(lines[:MOST_LINES]):
        if line.heading:
            text = line.text if number == 0 else Content("\n") + line.text
            found.append(Row(text))
        else:
            found.append(Row(hung(line.label, line.text, width, line.indent), str(number)))
    if len(lines) > MOST_LINES:
        found.append(Row(Content.styled(f"and {len(lines) - MOST_LINES} more lines", "dim")))
    return found
