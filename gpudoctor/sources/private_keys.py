"""Keys in PEM form (RFC 7468) in texts: whole, with escaped line ends, line by line behind the prefixes of a log, or cut off."""

import re
from collections.abc import Callable

from gpudoctor.patterns import pattern

_BEGIN = pattern(r"-----BEGIN [A-Z0-9 ]{1,64}-----")
_INLINE = pattern(r"(?:\\+[nr]|[A-Za-z0-9+/=]|[ \t](?=[A-Za-z0-9+/=]{16}))+")
_BODY = pattern(r"[A-Za-z0-9+/]{1,}={0,2}(?=[\\nr\"',;\s]*\Z)")
_HEADER = pattern(r"(?:Proc-Type|DEK-Info): \S+\Z|\s*\Z")
_RUN = pattern(r"\d+|\s+")
_LOOSE = r"[ \t>#|*\"'+-]*"
LEAST_LINE = 20
"""A shorter line belongs to a key only right before its end: a log's line may be one word."""

LONGEST_PREFIX = 512


def without_keys(text: str, hide: Callable[[str, str], str]) -> str:
    """The text without what stands between the first and the last line of keys."""
    if "-----BEGIN" not in text:
        return text
    parts: list[str] = []
    done = 0
    while (begin := _BEGIN.search(text, done)) is not None:
        parts.append(text[done : begin.end()])
        done = begin.end()
        inline = _INLINE.match(text, done)
        if inline is not None and len(inline[0]) >= LEAST_LINE:
            parts.append(hide(inline[0], "secret"))
            done = inline.end()
        elif text.find("\n", done) >= 0:
            nearby = max(0, begin.start() - LONGEST_PREFIX)
            prefix = text[max(nearby, text.rfind("\n", nearby, begin.start()) + 1) : begin.start()]
            place = text.find("\n", done) + 1
            body, end = _lines(text, place, prefix, hide)
            parts += [text[done:place], body]
            done = end
    return "".join((*parts, text[done:]))


def _lines(text: str, place: int, prefix: str, hide: Callable[[str, str], str]) -> tuple[str, int]:
    """The lines of a key's body with their content hidden, and where they end."""
    behind = re.compile(f"(?:{_shape(prefix)})?{_LOOSE}")
    parts: list[str] = []
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        line = text[place:end]
        front = behind.match(line)
        start = front.end() if front is not None else 0
        body = _BODY.match(line, start)
        if body is not None and (len(body[0]) >= LEAST_LINE or "-----END" in text[end : end + len(line) + 40]):
            parts.append(line[:start] + hide(body[0], "secret") + line[body.end() :] + text[end : end + 1])
        elif _HEADER.match(line, start):
            parts.append(text[place : end + 1])
        else:
            break
        place = end + 1
    return "".join(parts), min(place, len(text))


def _shape(prefix: str) -> str:
    """Whatever looks like a line's prefix: other numbers, other blanks."""
    pieces, done = [], 0
    for run in _RUN.finditer(prefix):
        pieces += [re.escape(prefix[done : run.start()]), r"\d+" if run[0].isdecimal() else r"\s+"]
        done = run.end()
    return "".join((*pieces, re.escape(prefix[done:])))
