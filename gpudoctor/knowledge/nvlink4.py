"""What the seven words of Xid 74 say on Hopper (NVLink 4): the bits that NVIDIA's catalogue explains, in words.

"The first, third, fourth and fifth registers are valid for Hopper-based products … If bits other than those specifically outlined below
are seen, please report a bug" (NVIDIA's Xid catalogue as of 2026-07-14, sheet Resolution Buckets, WORKFLOW_NVLINK_ERR). Boards before
Hopper print words of another layout: decode only a Hopper's.
"""

from msgspec import Struct

WORDS = 7
"""How many words the line has."""


class Bits(Struct, frozen=True):
    """Bits of one word that mean the same; `harmless` ones ask for nothing by themselves."""

    word: int
    bits: tuple[int, ...]
    say: str
    harmless: bool = False


_ECC = "an ECC or parity error, likely hardware: report it if seen more than twice on the same link"
_SYMPATHETIC = "the after-effect of another error: follow that one; report it if it stands alone"

BITS: tuple[Bits, ...] = (
    Bits(1, (0, 23, 30), "can be ignored", harmless=True),
    Bits(1, (1, 20), _SYMPATHETIC, harmless=True),
    Bits(1, (4, 5), _ECC),
    Bits(
        1, (8, 9, 12, 16, 17, 24, 28), "maybe hardware: check the link's connections and seating, then run diagnostics"
    ),
    Bits(1, (21, 22), "a marginal signal: check the link's connections, run field diagnostics and report it"),
    Bits(1, (27, 29), "report it if seen repeatedly"),
    Bits(3, (0, 1, 2, 6), _ECC),
    Bits(3, (13,), "not expected in production: report it"),
    Bits(3, (16, 19), "if seen repeatedly, run field diagnostics and report it"),
    Bits(3, (17, 18), "report it if seen repeatedly"),
    Bits(4, (16, 17), _SYMPATHETIC, harmless=True),
    Bits(4, (18,), f"{_SYMPATHETIC}; the fabric must be reset"),
    Bits(5, (18, 19, 21, 22, 24, 25, 27, 28), _ECC),
    Bits(5, (20, 23, 26, 29), "more corrected ECC errors than the threshold: operation continues", harmless=True),
)
"""In the order of the catalogue; words and bits are counted from 1 and 0."""


def decode(words: tuple[int, ...]) -> tuple[str, ...]:
    """A sentence for each meaning of the bits that are set, as `word 3 bits 0 and 1: …`; none where there are not seven words."""
    if len(words) != WORDS:
        return ()
    said = []
    for number, word in enumerate(words, start=1):
        explained: set[int] = set()
        for row in BITS:
            here = [bit for bit in row.bits if row.word == number and word >> bit & 1]
            explained.update(here)
            said += [f"{_where(number, here)}: {row.say}"] if here else []
        rest = [bit for bit in range(32) if word >> bit & 1 and bit not in explained]
        said += (
            [f"{_where(number, rest)}: not explained by NVIDIA's catalogue, which asks to report it"] if rest else []
        )
    return tuple(said)


def harmless(words: tuple[int, ...]) -> bool:
    """Whether every bit that is set asks for nothing by itself; words without any tell nothing."""
    quiet = {(row.word, bit) for row in BITS if row.harmless for bit in row.bits}
    set_bits = {(number, bit) for number, word in enumerate(words, start=1) for bit in range(32) if word >> bit & 1}
    return len(words) == WORDS and bool(set_bits) and set_bits <= quiet


def _where(word: int, bits: list[int]) -> str:
    numbers = [str(bit) for bit in bits]
    listed = numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"word {word} bit{'s' if len(numbers) > 1 else ''} {listed}"
