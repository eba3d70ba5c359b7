"""Puts what a journal still has of NVIDIA's messages before a kernel's ring buffer that has wrapped."""

from collections.abc import Iterator, Sequence
from itertools import islice

from gpudoctor.facts.log_anchors import NVIDIA_WORDS
from gpudoctor.facts.log_stamps import split

_ENOUGH = 6
"""So many messages in the same order are the same ones."""


def joined(messages: Sequence[str], ring: str) -> str | None:
    """Messages older than the ring buffer's, then the ring buffer; None where there are none, or where the two do not meet."""
    earlier = _before(messages, ring)
    return "\n".join(earlier) + "\n" + ring if earlier else None


def about_nvidia(text: str) -> Iterator[str]:
    """The lines that NVIDIA's drivers wrote."""
    return (line for line in text.split("\n") if any(words in line for words in NVIDIA_WORDS))


def _before(messages: Sequence[str], ring: str) -> Sequence[str]:
    first = [split(line)[1] for line in islice(about_nvidia(ring), _ENOUGH)]
    if not first:
        return messages
    said = [split(line)[1] for line in messages]
    for place in range(len(said)):
        if said[place] == first[0] and said[place : place + len(first)] == first:
            return messages[:place]
    return ()
