"""Slurm's hostlists: `n[001-064,070],login`, for names of nodes and of device files (SchedMD/slurm src/common/hostlist.c, slurm.conf(5)).

A range in brackets counts decimal numbers and keeps the width of its first one; one name may hold several brackets.
"""

from collections.abc import Iterator
from itertools import islice

from gpudoctor.facts.raw import decimal
from gpudoctor.patterns import pattern

MOST = 1024
"""More files than Slurm counts by a gres (gres.conf(5), File) are not spelled out."""
MOST_BRACKETS = 5
"""A name with more stands for itself, as far as it is read here: Slurm takes no more (HIGHEST_DIMENSIONS in slurm.h)."""

_RANGE = pattern(r"(\d{1,9})(?:-(\d{1,9}))?")


def split_list(text: str) -> tuple[str, ...]:
    """At the commas outside of brackets."""
    parts, depth, begin = list[str](), 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return tuple(part for part in parts if part)


def spelled_out(text: str, most: int = MOST) -> tuple[str, ...]:
    """All names of a list in their order, up to so many."""
    names: list[str] = []
    for part in split_list(text):
        for name in _expanded(part, most) if part.count("[") <= MOST_BRACKETS else (part,):
            if len(names) >= most:
                return tuple(names)
            names.append(name)
    return tuple(names)


def _expanded(part: str, most: int) -> Iterator[str]:
    opening, closing = part.find("["), part.find("]")
    if opening < 0 or closing < opening:
        yield part
        return
    rest = tuple(islice(_expanded(part[closing + 1 :], most), most))
    for number in _numbers(part[opening + 1 : closing], most):
        for tail in rest:
            yield f"{part[:opening]}{number}{tail}"


def _numbers(text: str, most: int) -> Iterator[str]:
    for piece in text.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None:
            yield piece.strip()
            continue
        first, last = found[1], found[2] or found[1]
        for number in range(int(first), min(int(last), int(first) + most) + 1):
            yield f"{number:0{len(first)}d}"


def lists(text: str, name: str) -> bool:
    """Whether a list holds a name, without spelling it out: it may stand for a hundred thousand nodes."""
    return any(_fits(part, name) if part.count("[") <= MOST_BRACKETS else part == name for part in split_list(text))


def _fits(part: str, name: str) -> bool:
    opening, closing = part.find("["), part.find("]")
    if opening < 0 or closing < opening:
        return part == name
    if not name.startswith(part[:opening]):
        return False
    rest = name[opening:]
    digits = len(rest) - len(rest.lstrip("0123456789"))
    after = part[closing + 1 :]
    return any(
        _counts(part[opening + 1 : closing], rest[:length]) and _fits(after, rest[length:])
        for length in range(digits, 0, -1)
    )


def _counts(text: str, digits: str) -> bool:
    """Whether a number is in the ranges of one bracket, written as wide as they are."""
    number = decimal(digits)
    for piece in text.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None or number is None:
            if piece.strip() == digits:
                return True
            continue
        first, last = found[1], found[2] or found[1]
        if int(first) <= number <= int(last) and f"{number:0{len(first)}d}" == digits:
            return True
    return False


def position(text: str, name: str) -> int | None:
    """The place of a name in a list, None where it is not in it, or beyond what is spelled out."""
    names = spelled_out(text)
    return names.index(name) if name in names else None
