"""The kernel log of a report: what dmesg printed, and before that what the journal still has of NVIDIA's messages of this boot."""

import re

from gpudoctor.facts.node_makers import UDEV_JOURNAL
from gpudoctor.facts.persistence import JOURNAL
from gpudoctor.facts.raw import Log

NAME = "kernel.log"
PREVIOUS = "kernel.previous.log"

# The options of the script's grep; the second generation of it has the first two only.
_ABOUT_NVIDIA = ("NVRM", "nvidia-", "nvrm-nvlog")
_STAMP = r"^(?:<\d+>)?\[[^\]]+\] ?"
# journalctl's default form: "Nov 14 09:43:40 n1 kernel: NVRM: …"; a message's further lines are indented.
_OF_KERNEL = " kernel: "
_LONGEST_PREFIX = 120
_FIRST_LINES = 4096
_ENOUGH = 6
"""So many messages in the same order are the same ones."""

UNITS = {JOURNAL: " nvidia-persistenced[", UDEV_JOURNAL: " systemd-udevd["}
"""How lines of the journal name the services that facts ask for."""


def kernel_log(dmesg: str, boot: str, *, broken: bool) -> Log | None:
    """What dmesg printed, and where the ring buffer wrapped what the journal has before it; `broken` if not all of dmesg is there."""
    if "] Linux version " in dmesg[:_FIRST_LINES]:
        return Log(NAME, dmesg, source="dmesg", from_boot=not broken)
    messages = kernel_lines(boot)
    if not dmesg.strip():
        return Log(NAME, "\n".join(messages) + "\n", source="journal, NVIDIA's lines") if messages else None
    earlier = _before(messages, dmesg)
    if not earlier:
        return Log(NAME, dmesg, source="dmesg")
    return Log(NAME, "\n".join(earlier) + "\n" + dmesg, source="the journal, then dmesg")


def kernel_lines(boot: str) -> list[str]:
    """The kernel's own among the lines of the journal, with the further lines of a message."""
    kept: list[str] = []
    of_kernel = False
    for line in boot.split("\n"):
        if not line.startswith(" "):
            of_kernel = 0 < line.find(_OF_KERNEL) < _LONGEST_PREFIX
        if of_kernel:
            kept.append(line)
    return kept


def unit_log(name: str, boot: str) -> Log | None:
    """The lines of a service, None where there are none."""
    identifier = UNITS[name]
    lines = [line for line in boot.split("\n") if identifier in line[:_LONGEST_PREFIX]] if identifier in boot else []
    return Log(name, "\n".join(lines) + "\n", source="journal") if lines else None


def _before(messages: list[str], dmesg: str) -> list[str]:
    """The journal's messages that are older than the first of dmesg's; none where the two do not meet."""
    first = []
    for line in dmesg.split("\n"):
        if any(words in line for words in _ABOUT_NVIDIA):
            first.append(re.sub(_STAMP, "", line).strip())
            if len(first) == _ENOUGH:
                break
    if not first:
        return messages
    said = [line.partition(_OF_KERNEL)[2].strip() or line.strip() for line in messages]
    for place in range(len(said)):
        if said[place] == first[0] and said[place : place + len(first)] == first:
            return messages[:place]
    return []
