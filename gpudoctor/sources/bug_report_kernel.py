"""The kernel log of a report: what dmesg printed, and before that what the journal still has of NVIDIA's messages of this boot."""

from gpudoctor.facts import log_lines
from gpudoctor.facts.kernel_log import NAME
from gpudoctor.facts.log_joining import joined
from gpudoctor.facts.node_makers import UDEV_JOURNAL
from gpudoctor.facts.persistence import JOURNAL
from gpudoctor.facts.raw import Log

_LONGEST_PREFIX = 120
_FIRST_LINES = 4096

UNITS = {JOURNAL: " nvidia-persistenced[", UDEV_JOURNAL: " systemd-udevd["}
"""How lines of the journal name the services that facts ask for."""


def kernel_log(dmesg: str, boot: str, *, broken: bool) -> Log | None:
    """What dmesg printed, and where the ring buffer wrapped what the journal has before it; `broken` if not all of dmesg is there."""
    if "] Linux version " in dmesg[:_FIRST_LINES]:
        return Log(NAME, dmesg, source="dmesg", from_boot=not broken)
    messages = kernel_lines(boot)
    if not dmesg.strip():
        return Log(NAME, "\n".join(messages) + "\n", source="journal, NVIDIA's lines") if messages else None
    whole = joined(messages, dmesg)
    if whole is None:
        return Log(NAME, dmesg, source="dmesg")
    return Log(NAME, whole, source="the journal, then dmesg")


def kernel_lines(boot: str) -> list[str]:
    """The kernel's own among the lines of the journal, with the further lines of a message."""
    return list(log_lines.kernel_lines(boot.split("\n")))


def unit_log(name: str, boot: str) -> Log | None:
    """The lines of a service, None where there are none."""
    identifier = UNITS[name]
    lines = [line for line in boot.split("\n") if identifier in line[:_LONGEST_PREFIX]] if identifier in boot else []
    return Log(name, "\n".join(lines) + "\n", source="journal") if lines else None
