"""Writes roff for man pages: man(7), as groff and mandoc read it."""

import re
from collections.abc import Iterable, Iterator

_CODE = re.compile(r"`([^`\n]+)`")
_LEADING = re.compile(r"(?m)^([.'])")


def escaped(text: str) -> str:
    """Text in which nothing is a request, an escape or a hyphen that could be broken at (groff_man_style(7), groff_char(7))."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    text = "".join(letter if ord(letter) < 128 else f"\\[u{ord(letter):04X}]" for letter in text)
    return _LEADING.sub(r"\\&\1", text)


def prose(text: str) -> str:
    """A paragraph in which `code` is bold, on one line."""
    return _CODE.sub(r"\\fB\1\\fR", escaped(" ".join(text.split())))


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring; lines that begin with a star or a dash become a list."""
    for block in re.split(r"\n\s*\n", text.strip()):
        items = re.split(r"(?m)^[*-] ", block)
        if len(items) > 1:
            if items[0].strip():
                yield f".PP\n{prose(items[0])}"
            yield from (f".IP \\(bu 2\n{prose(item)}" for item in items[1:])
        else:
            yield f".PP\n{prose(block)}"


def heading(title: str) -> str:
    """A section."""
    return f".SH {quoted(title)}"


def subheading(title: str) -> str:
    """A section within a section."""
    return f".SS {quoted(title)}"


def entry(tag: str, text: str) -> str:
    """A term and what it means."""
    return f".TP\n{tag}\n{prose(text)}"


def bold(text: str) -> str:
    """In bold; no request, whatever it begins with."""
    return f"\\fB{escaped(text)}\\fR"


def italic(text: str) -> str:
    """In italics: what is to be put in."""
    return f"\\fI{escaped(text)}\\fR"


def example(text: str) -> str:
    """Lines as they are."""
    return f".PP\n.in +4n\n.EX\n{escaped(text.rstrip())}\n.EE\n.in"


def quoted(text: str) -> str:
    """One argument of a macro."""
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def _joined(lines: Iterable[str]) -> str:
    """Without paragraph breaks right behind a heading, where they are one too many."""
    return re.sub(r"(?m)^(\.S[HS] .*)\n\.PP$", r"\1", "\n".join(lines))


def page(name: str, section: int, purpose: str, body: Iterator[str], source: tuple[str, str]) -> str:
    """A page; `source` is the version and the date that its foot shows."""
    version, date = source
    # A date is parsed, and a hyphen in it is no minus.
    kinds = {1: "User Commands", 5: "File Formats", 7: "Miscellaneous"}
    head = f".TH {quoted(name.upper())} {section} {date} {quoted(version)} {quoted(kinds[section])}"
    lines = (head, heading("NAME"), f"{escaped(name)} \\- {escaped(purpose)}", *body)
    return (
        ".\\\" Made by `make man` from the commands' own options and the checks' own texts.\n" + _joined(lines) + "\n"
    )
