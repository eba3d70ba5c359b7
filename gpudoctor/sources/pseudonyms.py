"""Replacements for private values, made with a keyed hash: equal stays equal, and nothing is replaced twice.

While a text is worked on, a pair of characters of Unicode's private use area stands for each hidden value, so that no later rule takes
a replacement for something private. A value that holds such pairs is hidden as what it was in the beginning.
"""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Container

from gpudoctor.patterns import pattern
from gpudoctor.sources.public_pods import private_parts

FIRST, SECOND = 0xE000, 0xF000
FIRSTS, SECONDS = SECOND - FIRST, 0xF900 - SECOND
MARK = f"[{chr(FIRST)}-{chr(SECOND - 1)}][{chr(SECOND)}-{chr(SECOND + SECONDS - 1)}]"
_MARK = pattern(MARK)
NIL_UUID = "00000000-0000-0000-0000-000000000000"
"""Names nothing (RFC 9562, section 5.9): a GPU's cluster has it where it is in none."""


class Pseudonyms:
    """What stands for what in one recording."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt[:64]
        self._marks: dict[str, str] = {}
        self._hidden: list[tuple[str, str]] = []
        self._kinds: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self.hosts: Container[str] = ()
        """What machines are called: a part of the name of a pod that runs on one."""
        self.replaced: dict[str, str] = {}
        """Of the texts that were revealed: each original, and what stands in its place."""

    def hide(self, value: str, kind: str) -> str:
        """A mark that stands for a value until the text around it is revealed."""
        value = _MARK.sub(lambda mark: self._of(mark[0])[0], value)
        if not value or value == NIL_UUID:
            return value
        if value not in self._marks:
            number = len(self._hidden)
            if number >= FIRSTS * SECONDS:
                return self._made(value, kind)
            self._hidden.append((value, self._made(value, kind)))
            self._marks[value] = chr(FIRST + number // SECONDS) + chr(SECOND + number % SECONDS)
        return self._marks[value]

    def reveal(self, text: str) -> str:
        """The text with replacements in place of marks."""
        return _MARK.sub(self._replacement, text)

    def _replacement(self, mark: "re.Match[str]") -> str:
        original, new = self._of(mark[0])
        if original != new:
            readable = original.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            self.replaced[readable] = new
        return new

    def _in_parts(self, name: str, parts: tuple[tuple[int, int], ...]) -> str:
        """The name of a pod with what is public in it."""
        said, done = [], 0
        for begin, end in parts:
            part = name[begin:end]
            said += [name[done:begin], self._made(part, "host" if part in self.hosts else "pod")]
            done = end
        return "".join((*said, name[done:]))

    def _of(self, mark: str) -> tuple[str, str]:
        number = (ord(mark[0]) - FIRST) * SECONDS + ord(mark[1]) - SECOND
        return self._hidden[number] if number < len(self._hidden) else (mark, mark)

    def _made(self, value: str, kind: str) -> str:
        """Names and addresses are compared without regard to case; of two kinds of the same value the first counts."""
        kind = self._kinds.setdefault(value.lower(), kind)
        parts = private_parts(value, self.hosts) if kind == "pod" else ()
        if parts and parts != ((0, len(value)),):
            return self._in_parts(value, parts)
        canonical = _CANONICAL.get(kind, str.lower)(value)
        for attempt in range(16):
            said = f"{canonical}\0{attempt}" if attempt else canonical
            seed = said.encode("utf-8", "backslashreplace")
            digest = hashlib.blake2b(seed, key=self._salt, digest_size=32).digest()
            new = _FORMS.get(kind, _plain)(value, digest, kind)
            if new.lower() != value.lower() and self._taken.setdefault(new.lower(), value.lower()) == value.lower():
                return new
        return _plain(value, hashlib.blake2b(value.encode("utf-8", "backslashreplace"), key=self._salt).digest(), kind)


def _plain(_: str, digest: bytes, kind: str) -> str:
    return f"{kind}-{digest[:5].hex()}"


def _alike(value: str, digest: bytes, _: str) -> str:
    """Of the same shape: a digit for a digit, a letter for a letter; `0x` stays."""
    begin = 2 if value[:2] in ("0x", "0X") else 0
    stream = hashlib.shake_256(digest).digest(len(value))
    return value[:begin] + "".join(
        map(_alike_character, value[begin:], stream[begin:]),
    )


def _alike_character(character: str, byte: int) -> str:
    if character.isdecimal():
        return str(byte % 10)
    return chr((ord("A") if character.isupper() else ord("a")) + byte % 6) if character.isalpha() else character


def new_mac(digest: bytes) -> bytes:
    """An address of the locally administered ones (IEEE 802)."""
    return bytes((0x02, *digest[:5]))


def _mac(value: str, digest: bytes, _: str) -> str:
    """In the spelling of the value: with colons, with dashes, or with neither."""
    joint = next((character for character in value if character in ":-"), "")
    return joint.join(f"{byte:02x}" for byte in new_mac(digest))


def _eui64(value: str, digest: bytes, _: str) -> str:
    """An EUI-64 with its eight bytes apart, or in four groups as an address's interface has it."""
    size = len(re.split("[:.-]", value)[-1]) // 2 or 1
    body = (bytes((0x02, *digest[:7])) if size == 1 else bytes((0x00, *digest[:2], 0xFF, 0xFE, *digest[2:5]))).hex()
    return ":".join(body[at : at + 2 * size] for at in range(0, 16, 2 * size))


def _ipv6(value: str, digest: bytes, _: str) -> str:
    """Global addresses become ones for documentation (RFC 3849), others keep their network and lose their interface."""
    address = ipaddress.IPv6Address(value)
    whole = address.exploded == value.lower()
    if address.is_global:
        new = ipaddress.IPv6Address(0x20010DB8 << 96 | int.from_bytes(digest[:8], "big"))
    else:
        interface = bytes((0x00, *digest[:2], 0xFF, 0xFE, *digest[2:5]))
        new = ipaddress.IPv6Address(address.packed[:8] + interface)
    return new.exploded if whole else new.compressed


_CANONICAL: dict[str, Callable[[str], str]] = {
    "mac": lambda value: value.lower().replace("-", ":").replace(":", ""),
    "ipv6": lambda value: ipaddress.IPv6Address(value).compressed,
}
_FORMS: dict[str, Callable[[str, bytes, str], str]] = {
    "serial": _alike,
    "mac": _mac,
    "eui64": _eui64,
    # Addresses that nobody has: 240.0.0.0/4 is reserved (RFC 1112).
    "ipv4": lambda _value, digest, _kind: ".".join(str(part) for part in (240 + digest[0] % 15, *digest[1:4])),
    "ipv6": _ipv6,
    "email": lambda _value, digest, _kind: f"user-{digest[:5].hex()}@example.org",
    "domain": lambda _value, digest, _kind: f"domain-{digest[:5].hex()}.example.org",
    "image": lambda _value, digest, _kind: f"registry.example.org/image-{digest[:5].hex()}",
}
