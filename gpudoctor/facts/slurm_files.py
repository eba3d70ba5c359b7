"""Slurm's configuration files as lines of pairs: slurm.conf, gres.conf and cgroup.conf, with what they include.

As SchedMD/slurm src/common/parse_config.c @284c3b95 reads them: names count without regard to case, `#` begins a remark, a backslash at
the end joins the next line, a value with blanks stands in quotes, `Include FILE` takes a file of the same directory unless its path is
absolute, `%c` in it is the name of the cluster, and wildcards are refused. Where they lie: src/common/read_config.c (SLURM_CONF, the
directory that Slurm was built for, then /run/slurm/conf, to which a slurmd without files of its own links what its controller sent).
"""

import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

FOLDERS = (
    "/etc/slurm",
    "/run/slurm/conf",
    "/var/spool/slurmd/conf-cache",
    "/etc/slurm-llnl",
    "/opt/slurm/etc",
    "/usr/local/etc/slurm",
)
"""What packages are built for; then what a controller sent; then older Debian, AWS ParallelCluster, builds of one's own."""
DEEPEST = 8
"""Includes within includes."""
MOST_FILES = 64
MOST_LINES = 50_000
"""More than the largest clusters have; each is looked at several times."""

_PAIR = pattern(r"\s*([\w.]+)\s*[-*+/]?=\s*(?:\"([^\"]*)\"|(\S*))(?=\s|$)")
_INCLUDE = pattern(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_ESCAPE = pattern(r"\\(.?)")


class Line(Struct, frozen=True):
    """One line with its pairs; `number` is that of its first line in the file. Names are in lower case."""

    path: str
    number: int
    text: str
    pairs: tuple[tuple[str, str], ...]

    def value(self, *names: str) -> str | None:
        """The value of the first pair of one of these names."""
        return next((value for name, value in self.pairs if name in names), None)

    @property
    def first(self) -> str:
        """The name that it begins with, which says what kind of line it is."""
        return self.pairs[0][0] if self.pairs else ""

    @property
    def evidence(self) -> Evidence:
        """The line as it stands there."""
        return Evidence(self.path, f"line {self.number}: {self.text[:200]}")


class ConfFile(Struct, frozen=True):
    """A file with all it includes; `trouble` is why it, or a part of it, could not be read, an `Absent` where there is none."""

    path: str
    lines: tuple[Line, ...] = ()
    trouble: Absent | Unread | None = None

    @property
    def known(self) -> bool:
        """Whether it was read as a whole, or is known to be missing."""
        return not isinstance(self.trouble, Unread)

    @property
    def there(self) -> bool:
        """Whether there is such a file, and something of it was read."""
        return self.trouble is None or bool(self.lines)

    def setting(self, name: str) -> tuple[str, Line] | None:
        """The last value of a setting that has a line of its own, or stands on one with others."""
        found = [(value, line) for line in self.lines for key, value in line.pairs if key == name]
        return found[-1] if found else None

    def evidence(self, shows: str) -> Evidence:
        """What is said of the file as a whole."""
        return self.trouble.evidence if isinstance(self.trouble, Absent) else Evidence(self.path, shows)


def read_conf(raw: Raw, path: str, cluster: str = "") -> ConfFile:
    """A file and what it includes."""
    reader = _Reader(raw, posixpath.dirname(path), cluster)
    lines = tuple(reader.lines(path, 0))
    return ConfFile(path, lines, reader.trouble)


class _Reader:
    """Reads one file with its includes."""

    def __init__(self, raw: Raw, folder: str, cluster: str) -> None:
        self._raw = raw
        self._folder = folder
        self._cluster = cluster
        self._files = 0
        self._lines = 0
        self.trouble: Absent | Unread | None = None

    def lines(self, path: str, depth: int) -> Iterator[Line]:
        file = self._raw.read(path)
        self._files += 1
        if not isinstance(file, TextFile):
            missing = isinstance(file, Absent) and depth > 0
            self.trouble = Unread(Why.UNREADABLE, path, "is included, but does not exist") if missing else file
            return
        if file.truncated:
            self.trouble = Unread(Why.NOT_RECORDED, path, "only its beginning was kept")
        for number, text in _joined(file.text):
            self._lines += 1
            if self._lines > MOST_LINES:
                self.trouble = Unread(Why.UNREADABLE, path, f"has more than {MOST_LINES} lines: no more are read here")
                return
            if (include := _INCLUDE.fullmatch(text)) is not None:
                yield from self._included(include[1], depth, path)
                continue
            pairs = tuple(_pairs(text))
            for name, value in pairs:
                if name == "clustername":
                    self._cluster = value.lower()
            if pairs:
                yield Line(path, number, " ".join(text.split()), pairs)

    def _included(self, name: str, depth: int, path: str) -> Iterator[Line]:
        place = posixpath.normpath(posixpath.join(self._folder, name.replace("%c", self._cluster)))
        if "*" in name:
            self.trouble = Unread(Why.UNREADABLE, path, f"includes {name}: Slurm takes no wildcards there")
        elif depth >= DEEPEST or self._files >= MOST_FILES:
            self.trouble = Unread(Why.UNREADABLE, path, "includes more files than are followed here")
        else:
            yield from self.lines(place, depth + 1)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines without remarks and escapes, those that end with a backslash joined with the next."""
    begun, number = "", 0
    for at, line in enumerate(text.splitlines(), start=1):
        kept = _without_remark(line)
        number = number or at
        stripped = kept.rstrip()
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            begun += stripped[:-1]
            continue
        yield number, _ESCAPE.sub(r"\1", begun + kept)
        begun, number = "", 0
    if begun:
        yield number, _ESCAPE.sub(r"\1", begun)


def _without_remark(line: str) -> str:
    at = line.find("#")
    while at > 0 and _slashes_before(line, at) % 2:
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def _slashes_before(line: str, at: int) -> int:
    begin = at
    while begin and line[begin - 1] == "\\":
        begin -= 1
    return at - begin


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values up to the first thing that is neither."""
    at = 0
    while (found := _PAIR.match(text, at)) is not None:
        yield found[1].lower(), found[2] if found[2] is not None else found[3]
        at = found.end()
