"""Lines of `ls -l` as entries: device nodes, links, directories, and what ls could not find."""

from collections.abc import Iterator

from gpudoctor.facts.raw import Entry, EntryType, decimal
from gpudoctor.patterns import pattern
from gpudoctor.sources.recorded import Record

# "crw-rw-rw- 1 root root 195, 0 2023-11-14 09:43:41.712000000 +0000 /dev/nvidia0"
_LINE = pattern(
    r"([-bcdlps])([-rwxsStT]{9})[.+@]?\s+\d{1,9}\s+(\S+)\s+(\S+)\s+(?:(\d{1,9}),\s*(\d{1,9})|(\d{1,19}))\s+(\S.*)$"
)
# --full-time, long-iso and the C locale; other locales have other words for a month, then a day, and a time or year.
_TIME = pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: [-+]\d{4})? |\S+ +\d{1,2}\S? +(?:\d\d:\d\d|\d{4}) ")
_MISSING = pattern(
    r"ls: (?:cannot access )?['\u2018]?(/[^'\u2019:]{1,4000})['\u2019]?: (No such file or directory|Permission denied)"
)
# "total 0", or another word for it.
_TOTAL = pattern(r"\S+ [\d.,]+[KMGT]?$")
_HEADING = pattern(r"(/[^:]{0,4000}):$")

_TYPES = {
    "-": EntryType.FILE,
    "b": EntryType.BLOCK,
    "c": EntryType.CHAR,
    "d": EntryType.DIR,
    "l": EntryType.LINK,
    "p": EntryType.FIFO,
    "s": EntryType.SOCKET,
}
_SPECIAL = {2: 0o4000, 5: 0o2000, 8: 0o1000}
"""What `s` or `t` in the place of an execute bit stands for: set-user-id, set-group-id, sticky."""


def entries(text: str, origin: str, folder: str = "") -> Iterator[tuple[str, Record]]:
    """The paths in a listing with what is there. Names alone belong to the folder named in a line before them, else to `folder`."""
    for line in (line.strip().removeprefix("*** ls: ") for line in text.split("\n")):
        if missing := _MISSING.match(line):
            error = "EACCES" if missing[2].startswith("Permission") else "ENOENT"
            if "*" not in missing[1]:
                yield missing[1], Record(error=error, origin=origin)
        elif heading := _HEADING.match(line):
            folder = heading[1]
        elif entry := _entry(line, folder, origin):
            yield entry.path, Record(entry=entry, origin=origin)


def directories(text: str, operands: list[str]) -> list[str]:
    """The directories that were listed: `ls` puts the sum of blocks before the names of each."""
    folder = operands[0] if len(operands) == 1 else ""
    found = []
    for line in text.split("\n"):
        if heading := _HEADING.match(line):
            folder = heading[1]
        elif folder and _TOTAL.match(line):
            found.append(folder)
    return found


def _entry(line: str, folder: str, origin: str) -> Entry | None:
    fields = _LINE.match(line[:8192])
    if fields is None:
        return None
    time = _TIME.match(fields[8])
    name, _, to = fields[8][time.end() if time else 0 :].partition(" -> ")
    path = name if name.startswith("/") else f"{folder}/{name}"
    if (time is None and not name.startswith("/")) or not path.startswith("/") or name in (".", ".."):
        return None
    return Entry(
        path,
        _TYPES[fields[1]],
        mode=_mode(fields[2]),
        uid=_number(fields[3]),
        gid=_number(fields[4]),
        size=int(fields[7]) if fields[7] else None,
        major=int(fields[5]) if fields[5] else None,
        minor=int(fields[6]) if fields[6] else None,
        to=to or None,
        origin=origin,
    )


def _number(owner: str) -> int | None:
    """Only root's number is known by name."""
    return 0 if owner == "root" else decimal(owner)


def _mode(letters: str) -> int:
    mode = 0
    for place, letter in enumerate(letters):
        if letter not in "-ST":
            mode |= 1 << (8 - place)
        if letter in "sStT":
            mode |= _SPECIAL.get(place, 0)
    return mode
