"""When the node booted, and times as people read them."""

import re

from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.patterns import pattern

STAT = "/proc/stat"
_CALENDAR_ENDS = 253_402_300_800
"""The year 10000, which datetime does not have; a file's times may well lie there (inode(7): 64 bits)."""
_BTIME = pattern(r"^btime (\d{1,11})$", re.MULTILINE)


def booted_at(raw: Raw) -> int | None:
    """`btime`, the time of boot in seconds since the epoch (proc(5), /proc/stat); None where it is not told."""
    stat = raw.read(STAT)
    line = _BTIME.search(stat.text) if isinstance(stat, TextFile) else None
    return int(line[1]) if line is not None else None


def in_words(moment: float) -> str:
    """Seconds since the epoch as `2026-11-29 12:00:00 UTC`; times that no calendar has, as they are."""
    import datetime

    if not 0 <= moment < _CALENDAR_ENDS:
        return f"{moment:g} s since 1970"
    return f"{datetime.datetime.fromtimestamp(moment, datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
