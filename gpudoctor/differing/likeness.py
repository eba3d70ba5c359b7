"""Words of two sides held against each other: equal but for names, addresses, UUIDs, PIDs and pseudonyms."""

import re
from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.differing.party import Pairs, Party
from gpudoctor.patterns import pattern

LONGEST = 8192
"""Longer texts are equal or not: nobody looks for names in them."""
_UUID = pattern(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_ID = pattern(r"\b[0-9a-f]{12,64}\b")
_PID = pattern(r"\b(PIDs?|pid)[ =:]\s?\d{1,10}\b")
_NUMBER = pattern(r"\d+(?:\.\d+)?")
# The forms that sources/pseudonyms.py gives; those of serials and MACs look like the real ones.
_PSEUDONYM = pattern(
    r"(?:(?:registry\.example\.org/)?\b[a-z]{2,10}-[0-9a-f]{10}(?:@example\.org|\.example\.org)?)|\b(?:24\d|25[0-4])(?:\.\d{1,3}){3}\b"
)


class Likeness(Struct, frozen=True):
    """How texts of the two are told apart: each side's own names, by what stands for them on both."""

    a: Mapping[str, str]
    b: Mapping[str, str]
    to_a: Mapping[str, str]
    redacted: tuple[bool, bool]

    def in_a(self, text: str) -> str:
        """A key of B with the addresses of A in it."""
        return _replaced(text, self.to_a)

    def hides(self, word: str) -> bool:
        """Whether a word may stand for one that a redacted side keeps to itself."""
        return any(self.redacted) and _PSEUDONYM.fullmatch(word) is not None

    def exact(self, a: str, b: str) -> bool:
        """Whether two texts differ by identity at most; numbers count."""
        if a == b or max(len(a), len(b)) > LONGEST:
            return a == b
        one, two = _named(a, self.a), _named(b, self.b)
        return one == two or self._but_for_pseudonyms(one, two)

    def loosely(self, a: str, b: str) -> bool:
        """Whether they say the same, whatever the numbers."""
        return self.exact(a, b) or self.exact(*(_NUMBER.sub("#", text) for text in (a, b)))

    def canonical(self, text: str, of_a: bool) -> str:
        """A text without what identifies its side, and without numbers."""
        return _NUMBER.sub("#", _named(text, self.a if of_a else self.b))

    def canonical_name(self, text: str, *, of_a: bool) -> str:
        """A text without what identifies its side, pseudonyms among it where a side is redacted."""
        named = _named(text, self.a if of_a else self.b)
        return _PSEUDONYM.sub("<private>", named) if any(self.redacted) else named

    def _but_for_pseudonyms(self, one: str, two: str) -> bool:
        """Where a side is redacted, pseudonyms may stand for whatever the other has in their place."""
        match self.redacted:
            case (False, False):
                return False
            case (True, True):
                return _PSEUDONYM.sub("<private>", one) == _PSEUDONYM.sub("<private>", two)
            case (True, False):
                return _fits(one, two)
            case _:
                return _fits(two, one)


def likeness(a: Party, b: Party, pairs: Pairs) -> Likeness:
    """From the hostnames, and the addresses and UUIDs of GPUs that were put together."""
    mine, theirs = _names(a), _names(b)
    for number, (one, two) in enumerate(pairs.pairs):
        mine[one.address] = theirs[two.address] = f"<gpu {number}>"
    return Likeness(mine, theirs, {two: one for two, one in pairs.to_a.items() if one != two}, (a.redacted, b.redacted))


def _names(party: Party) -> dict[str, str]:
    """The host's name; a redacted side has a pseudonym for it, as for other hosts."""
    host = "" if party.redacted else party.report.node.hostname or ""
    return {host: "<host>"} if len(host) > 1 else {}


def _named(text: str, names: Mapping[str, str]) -> str:
    text = _UUID.sub("<uuid>", text[:LONGEST])
    text = _replaced(text, names)
    return _PID.sub(r"\1 #", _ID.sub("<id>", text))


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """All at once: one name's replacement may be another's name."""
    if not names:
        return text
    form = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w.-])(?:{form})(?![\w-])", lambda found: names[found[0]], text)


def _fits(redacted: str, raw: str) -> bool:
    """Whether what stands around pseudonyms stands in the other text in the same order."""
    pieces = _PSEUDONYM.split(redacted)
    if len(pieces) == 1:
        return False
    if len(raw) < len(pieces[0]) + len(pieces[-1]) or not raw.startswith(pieces[0]) or not raw.endswith(pieces[-1]):
        return False
    at, end = len(pieces[0]), len(raw) - len(pieces[-1])
    for piece in pieces[1:-1]:
        place = raw.find(piece, at, end)
        if place < 0:
            return False
        at = place + len(piece)
    return at <= end
