"""Times of a kernel log as numbers: how far two messages lie apart, and how old one is at least.

A time is seconds since boot, or a date as people read it. Of a date without a zone only the difference to others of its log is known, and
one without a year (RFC 3164, `journalctl`'s short form) is of the year in which the log is read, or of the one before.
"""

import datetime

from gpudoctor.patterns import pattern

DAY = 86400.0
FIRST_EPOCH = 500_000_000.0
"""More seconds than that are since 1970, not since boot (journalctl's short-unix)."""

_SECONDS = pattern(r"\+?(\d{1,12}(?:\.\d{1,9})?)(?:\s*<.*)?")
_ISO = pattern(r"(?:\D{0,6} )?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_OLD = pattern(
    r"(?:[^\W\d]{1,5}\.?,? {1,2})?([^\W\d]{3,6}\.?|\d{1,2}[月월]) {1,2}(\d{1,2})(?: (\d{4}))? "
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: (\d{4}))?"
)
# As strftime's %b has them, which journalctl and `dmesg -T` print in the reader's language (CLDR, abbreviated months): English, German,
# French, Spanish, Italian, Portuguese. Chinese, Japanese and Korean number them.
_MONTHS = {
    word: number
    for number, words in enumerate(
        (
            "jan janv ene gen",
            "feb févr fev fév",
            "mar mär mars märz",
            "apr avr abr",
            "may mai mag",
            "jun juin giu juni",
            "jul juil lug juli",
            "aug août ago",
            "sep sept set",
            "oct okt ott out",
            "nov",
            "dec dez déc dic",
        ),
        start=1,
    )
    for word in words.split()
}
_NO_YEAR = 1972


def since_boot(at: str) -> float | None:
    """Seconds since boot, None for a date."""
    found = _SECONDS.fullmatch(at)
    seconds = float(found[1]) if found is not None else None
    return seconds if seconds is not None and seconds < FIRST_EPOCH else None


def moment(at: str) -> float | None:
    """A number of seconds that can be compared with others of the same log; None for what is no time."""
    at = at.strip()
    if not at:
        return None
    found = _SECONDS.fullmatch(at)
    if found is not None:
        return float(found[1])
    date = wall_clock(at, _NO_YEAR)
    return date.timestamp() if date is not None else None


def days_before(at: str, today: datetime.date) -> float | None:
    """How many seconds a date lies before the beginning of a day, less a day for zones that are not known; None for other times."""
    found = _SECONDS.fullmatch(at)
    if found is not None and since_boot(at) is None:
        then = float(found[1])
    elif (date := wall_clock(at, today.year)) is not None:
        then = date.timestamp()
    else:
        return None
    midnight = datetime.datetime(today.year, today.month, today.day, tzinfo=datetime.timezone.utc)
    age = midnight.timestamp() - then
    if age < -2 * DAY and not has_year(at):
        age += 365 * DAY
    return max(0.0, age - DAY)


def in_words(at: str) -> str:
    """As people say it: `at 12:03:11`, `3301 s after boot`, the date where there is one."""
    seconds = since_boot(at)
    return f"{seconds:.0f} s after boot" if seconds is not None else at


def has_year(at: str) -> bool:
    """Whether a date names its year."""
    return wall_clock(at, _NO_YEAR) == wall_clock(at, _NO_YEAR + 1)


def wall_clock(at: str, year: int) -> datetime.datetime | None:
    """A date as it is written, of a year where it names none: in UTC whatever its zone, so that only differences count."""
    iso = _ISO.match(at)
    if iso is not None:
        return _moment(int(iso[1]), int(iso[2]), int(iso[3]), (iso[4], iso[5], iso[6], iso[7]))
    old = _OLD.match(at)
    month = _month(old[1]) if old is not None else None
    if old is None or month is None:
        return None
    told = int(old[3] or old[8] or year)
    return _moment(told, month, int(old[2]), (old[4], old[5], old[6], old[7]))


def _month(word: str) -> int | None:
    """The number of a month, by its name or as `11月`."""
    return int(word[:-1]) if word[0].isdecimal() else _MONTHS.get(word.rstrip(".").casefold())


def _moment(year: int, month: int, day: int, clock: tuple[str, str, str, str | None]) -> datetime.datetime | None:
    """None for a day or an hour that there is not."""
    hour, minute, second, fraction = clock
    try:
        return datetime.datetime(
            year,
            month,
            day,
            int(hour),
            int(minute),
            int(second),
            _microseconds(fraction),
            tzinfo=datetime.timezone.utc,
        )
    except ValueError:
        return None


def _microseconds(digits: str | None) -> int:
    return int((digits or "0").ljust(6, "0")[:6])
