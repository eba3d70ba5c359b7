"""The reason that is given to Slurm for a drained node: how it is written, and how one of ours is told from all others.

`gpudoctor:CHECK ADDRESS[,ADDRESS…] words #SEAL`. Whatever does not begin so was written by somebody else: an administrator, NHC, or Slurm
itself. The seal is a checksum of all before it: whoever changes a word of ours, or adds one, makes the reason his own, and what he keeps
out stays out. slurmctld adds words too (SchedMD/slurm src/slurmctld/node_mgr.c @284c3b95, set_node_reason); those for a node that was
rebooted say nothing against it once it is back.
"""

import binascii
from collections.abc import Sequence

from msgspec import Struct

from gpudoctor.patterns import pattern

PREFIX = "gpudoctor:"
LONGEST = 300
"""Slurm keeps longer ones too, but `sinfo -R` and mails are read by people."""
MOST_GPUS = 16
"""Where more failed, the last word of the list says how many more: then the list names no GPUs that could be seen to be well again."""

_OURS = pattern(
    r"gpudoctor:([a-z0-9-]+\.[a-z0-9-]+)(?: ([0-9a-f]{4,8}:[0-9a-f:.,]+))?(?: (.*?))?"
    r"(?: #([0-9a-f]{8})(?: : (?:Not responding|reboot issued|reboot complete))*)?"
)


class Reason(Struct, frozen=True):
    """One of ours: the check that failed, the sysfs addresses of the GPUs that failed, and words; `sealed` while nobody has changed it."""

    check: str
    gpus: tuple[str, ...]
    words: str
    sealed: bool = False


def written(check: str, gpus: Sequence[str], words: str) -> str:
    """A reason in printable ASCII, without what scontrol or the programs that show it could take for something else."""
    plain = "".join(letter if " " <= letter <= "~" and letter not in "\"'`\\|[]" else " " for letter in words)
    more = [f"+{len(gpus) - MOST_GPUS}"] if len(gpus) > MOST_GPUS else []
    text = " ".join(f"{PREFIX}{check} {','.join([*gpus[:MOST_GPUS], *more])} {plain}".split())
    text = text[: LONGEST - len(" #") - 8].rstrip()
    return f"{text} #{_seal(text)}"


def ours(reason: str) -> bool:
    """Whether a node's reason began as one of ours."""
    return reason.startswith(PREFIX)


def unchanged(reason: str) -> bool:
    """Whether it is one of ours word for word."""
    told = read(reason)
    return told is not None and told.sealed


def read(reason: str) -> Reason | None:
    """What one of ours says; None for another's, and for one that begins so but is not written as ours are."""
    found = _OURS.fullmatch(reason)
    if found is None:
        return None
    sealed = found[4] is not None and found[4] == _seal(reason[: found.start(4) - len(" #")])
    return Reason(found[1], tuple(found[2].split(",")) if found[2] else (), found[3] or "", sealed)


def _seal(text: str) -> str:
    return f"{binascii.crc32(text.encode('utf-8', 'backslashreplace')):08x}"
