"""Moments that logs of a node name, in seconds since the epoch: with the time of its boot, and the zone of its local times.

Nothing is made up: a local time of a node whose zone is not known, one that a change of the clocks makes ambiguous, and a date without a
year that could be of two of them have no moment.
"""

import datetime
import io
import struct

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.log_moments import FIRST_EPOCH, has_year, since_boot, wall_clock
from gpudoctor.facts.raw import Absent, Clocked, Entry, Raw, TextFile
from gpudoctor.patterns import pattern

LOCALTIME = "/etc/localtime"
SLACK = 120.0
"""So many seconds a message may lie outside of the boot that it is of: clocks are set while a node starts."""
LAST = 253_402_300_799.0
"""The end of the year 9999: no moment lies behind it."""

_EPOCH = pattern(r"\d{9,11}(?:\.\d{1,9})?")
# What stands behind the seconds of a date: an offset, or the zone's letters.
_ZONE = pattern(r":\d\d(?:[.,]\d{1,9})?(?: \d{4})? ?(Z|[+-]\d\d(?::?\d\d)?|[A-Z]{2,5})?$")
_OFFSET = pattern(r"([+-])(\d\d):?(\d\d)?")
_POSIX = pattern(r"[A-Za-z<][A-Za-z0-9<>+,./:-]{2,100}")
_NAME = pattern(r"[A-Za-z][A-Za-z0-9_+-]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,2}")
_UTC = ("Z", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "UCT", "Universal", "Zulu", "Etc/UCT", "Etc/Universal", "Etc/Zulu")


class NodeClock(Fact, frozen=True):
    """When the node booted, in seconds since the epoch, and its zone; None where nothing tells."""

    booted: float | None
    zone: datetime.tzinfo | None

    @classmethod
    def gather(cls, desk: Desk) -> "NodeClock":
        """Never unread: the kernel's own count of seconds, else the clock of the recording, and the file of localtime(5)."""
        booted: float | None = booted_at(desk.raw)
        if booted is None and isinstance(desk.raw, Clocked):
            booted = desk.raw.booted
        return cls(booted=booted, zone=_zone(desk.raw))


def instant(
    at: str,
    *,
    booted: float | None = None,
    zone: datetime.tzinfo | None = None,
    within: tuple[float, float] | None = None,
) -> float | None:
    """The moment of a time as a log has it, None where that is not certain.

    `booted` is when seconds since boot began; `zone` that of local times. A date without a year is of the one in which it lies `within`
    two moments, where that is one only.
    """
    at = at.strip()
    if not at or at.startswith("+"):  # the time since the line before
        return None
    if (seconds := since_boot(at)) is not None:
        return None if booted is None else booted + seconds
    if _EPOCH.fullmatch(at) is not None:
        return float(at) if float(at) >= FIRST_EPOCH else None
    if has_year(at):
        return _moment(at, 1972, zone)
    return _within(at, zone, within) if within is not None else None


def roughly(at: str, now: float | None) -> float | None:
    """About when it was, to put it in an order: a time without a zone taken as UTC, one without a year as of the last twelve months."""
    at = at.strip()
    exact = instant(at)
    if exact is not None or not at:
        return exact
    if has_year(at):
        date = wall_clock(at, 1972)
        return date.timestamp() if date is not None else None
    if now is None:
        return None
    year = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).year
    dates = [date.timestamp() for one in (year, year - 1) if (date := wall_clock(at, one)) is not None]
    return next((date for date in dates if date <= now + 86400), None)


def zone_named(words: str) -> datetime.tzinfo | None:
    """The zone that a recording names for a log: an offset, UTC, or a name of the time zone database, where that is at hand."""
    if words in _UTC:
        return datetime.timezone.utc
    if (offset := _offset(words)) is not None:
        return offset
    if _NAME.fullmatch(words) is None:
        return None
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(words)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        return None


def in_utc(moment: float) -> str:
    """As a report writes it: `2026-11-29T12:00:00Z`."""
    return f"{datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def seconds_of(at: str) -> float | None:
    """The moment that a report's time names."""
    return instant(at) if at.endswith("Z") else None


def _within(at: str, zone: datetime.tzinfo | None, within: tuple[float, float]) -> float | None:
    begin, end = within
    if not 0 < begin <= end < LAST:
        return None
    years = (datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).year for moment in within)
    first, last = years
    found = {
        moment
        for year in range(max(first - 1, last - 3), last + 2)
        if (moment := _moment(at, year, zone)) is not None and begin - SLACK <= moment <= end + SLACK
    }
    return found.pop() if len(found) == 1 else None


def _moment(at: str, year: int, zone: datetime.tzinfo | None) -> float | None:
    """Of a date that has a year, or of the year given."""
    date = wall_clock(at, year)
    named = _ZONE.search(at)
    if date is None or named is None:
        return None
    told = _told(named[1] or "", date, zone)
    if told is None:
        return None
    local = date.replace(tzinfo=told)
    if local.replace(fold=1).utcoffset() != local.utcoffset():  # the hour that the clocks repeat, or leave out
        return None
    moment = local.timestamp()
    return moment if 0 < moment < LAST else None


def _told(word: str, date: datetime.datetime, zone: datetime.tzinfo | None) -> datetime.tzinfo | None:
    """The zone that a date names, else the node's. Letters such as `CST` are several zones': they must be those of the node's."""
    if not word:
        return zone
    if word in _UTC:
        return datetime.timezone.utc
    if (offset := _offset(word)) is not None:
        return offset
    return zone if zone is not None and date.replace(tzinfo=zone).tzname() == word else None


def _offset(word: str) -> datetime.timezone | None:
    found = _OFFSET.fullmatch(word)
    if found is None:
        return None
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return (
        datetime.timezone(datetime.timedelta(minutes=-minutes if found[1] == "-" else minutes))
        if minutes < 1440
        else None
    )


def _zone(raw: Raw) -> datetime.tzinfo | None:
    """Without the file the zone is UTC (localtime(5)). Its last line is the rule for the times since its last entry (RFC 8536, 3.3)."""
    entry = raw.entry(LOCALTIME)
    if isinstance(entry, Absent):
        return datetime.timezone.utc
    name = (entry.to or "").partition("zoneinfo/")[2] if isinstance(entry, Entry) else ""
    if name in _UTC:
        return datetime.timezone.utc
    file = raw.read(LOCALTIME)
    if not isinstance(file, TextFile) or not file.text.startswith("TZif"):
        return None
    rule = file.text.rstrip("\n").rpartition("\n")[2]
    return _by_rule(rule) if _POSIX.fullmatch(rule) is not None else None


def _by_rule(rule: str) -> datetime.tzinfo | None:
    """A zone by a rule as TZ has it (POSIX.1-2017, 8.3): put into a file of RFC 8536 without any other entry, which zoneinfo reads."""
    import zoneinfo

    block = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    try:
        return zoneinfo.ZoneInfo.from_file(io.BytesIO(block * 2 + b"\n" + rule.encode("ascii") + b"\n"))
    except (ValueError, struct.error):
        return None
