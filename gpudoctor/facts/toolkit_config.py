"""The toolkit's config.toml as the installed release understands it: wherever it lies, what is in force, what no release reads."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

from gpudoctor.facts.config_text import Document, Malformed, parse_toml
from gpudoctor.facts.daemons import Daemons
from gpudoctor.facts.desk import Citable, Desk, Population
from gpudoctor.facts.raw import Entry, TextFile
from gpudoctor.facts.software import TOOLKIT, Software, Version
from gpudoctor.knowledge.toolkit_config import BY_NAME, TABLES, Key, Release
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import AboutSubject, Evidence, Subject, SubjectKind, Unread

CONFIG = "/etc/nvidia-container-runtime/config.toml"
"""The default place; XDG_CONFIG_HOME or NVIDIA_CTK_CONFIG_FILE_PATH name another one (api/config/v1/config.go, GetConfigFilePath)."""
OPERATOR_FOLDER = "/usr/local/nvidia/toolkit"
"""Where the GPU Operator's toolkit container installs: wrappers that name the file below, programs as NAME.real beside them."""
OPERATOR_CONFIG = f"{OPERATOR_FOLDER}/.config/nvidia-container-runtime/config.toml"
"""cmd/nvidia-ctk-installer/toolkit/toolkit.go; up to 1.17 tools/container/toolkit/toolkit.go."""
_OWN_PLACE = "XDG_CONFIG_HOME"

_LIKE = 0.75
"""How like a known key, by difflib's ratio, an unknown one must be to pass for a misspelling."""


class Odd(str, Enum):
    """Why a key of the file has no effect."""

    MISSPELT = "misspelt"
    MISPLACED = "misplaced"
    TOO_NEW = "too new"
    RETIRED = "retired"
    STRANGE = "strange"


class OddKey(Struct, frozen=True):
    """A key that the release does not read: what it is, and the key that was meant or is known elsewhere ("" where none is like it)."""

    name: str
    odd: Odd
    nearest: str = ""


class ToolkitFile(Citable, frozen=True):
    """One config.toml. `version` is that of the programs that read it, None where it is not known; `engine` whose own it is, "" for all."""

    path: str
    document: Document | Malformed
    text: str
    version: Version | None
    engine: str = ""

    @property
    def subject(self) -> Subject:
        """The file."""
        return Subject(SubjectKind.FILE, self.path)

    @property
    def of_operator(self) -> bool:
        """Whether it is that of the Operator's toolkit container."""
        return self.path == OPERATOR_CONFIG

    @property
    def release(self) -> Release | None:
        """The release that reads it; a release candidate counts as its release."""
        return self.version.numbers if self.version is not None else None

    @property
    def stated(self) -> dict[str, Any]:
        """The keys that the file states by their dotted names: known keys as they are, of unknown tables only the table."""
        return dict(_leaves(self.document, "")) if isinstance(self.document, dict) else {}

    def reads(self, key: Key) -> bool:
        """Whether the release reads a key; where the release is not known, every key of any."""
        release = self.release
        return release is None or (release >= key.since and (key.until is None or release < key.until))

    def value(self, name: str) -> Any:
        """What is in force: the stated value where it can be, else the default."""
        key = BY_NAME[name]
        stated = self.stated.get(name)
        return stated if stated is not None and self.reads(key) and key.kind.fits(stated) else key.default

    def says(self, name: str) -> Evidence:
        """The line that states a key, or that none does."""
        number, line = line_of(self.text, name)
        if number:
            return Evidence(self.path, f"line {number}: {line}")
        stated = self.stated.get(name)
        return Evidence(self.path, f"{name} is not set" if stated is None else f"{name} = {stated!r}"[:200])

    @property
    def odd_keys(self) -> tuple[OddKey, ...]:
        """The keys that have no effect, in the order of the file."""
        found = (self._judged(name) for name in self.stated if name not in TABLES)
        return tuple(odd for odd in found if odd is not None)

    def _judged(self, name: str) -> OddKey | None:
        key = BY_NAME.get(name)
        if key is None:
            return unknown_key(name)
        if self.reads(key):
            return None
        return OddKey(name, Odd.RETIRED if self.release is not None and self.release >= key.since else Odd.TOO_NEW)


class ToolkitConfig(Population, frozen=True):
    """The config.toml files that are there, the default one first."""

    NOTHING = "the NVIDIA Container Toolkit has no config.toml here"

    files: tuple[ToolkitFile, ...]

    @property
    def members(self) -> Sequence[AboutSubject]:
        """The files."""
        return self.files

    @property
    def default(self) -> ToolkitFile | None:
        """The file at the default place."""
        return next((file for file in self.files if file.path == CONFIG), None)

    @property
    def operators(self) -> ToolkitFile | None:
        """The file of the Operator's toolkit container."""
        return next((file for file in self.files if file.of_operator), None)

    @classmethod
    def gather(cls, desk: Desk) -> "ToolkitConfig | Unread":
        """The version is asked for only where there is a file; the Operator's folder may be unseen where the default file is there."""
        raw = desk.raw
        places: list[tuple[str, str]] = [(CONFIG, "")]
        folder = raw.entry(OPERATOR_FOLDER)
        if isinstance(folder, Entry):
            places.append((OPERATOR_CONFIG, ""))
        found: list[tuple[TextFile, str]] = []
        unlisted: Unread | None = None
        for path, engine in (*places, *_own_places(desk)):
            file = raw.read(path)
            if isinstance(file, TextFile):
                found.append((file, engine))
            elif isinstance(file, Unread):
                unlisted = unlisted or file
        if isinstance(folder, Unread) and not found:
            unlisted = unlisted or folder
        software = desk.get(Software) if found else None
        read = [_file(file, engine, software) for file, engine in found]
        unread = next((file for file in read if isinstance(file, Unread)), None)
        return cls(files=tuple(file for file in read if isinstance(file, ToolkitFile)), unlisted=unlisted or unread)


def _own_places(desk: Desk) -> Iterator[tuple[str, str]]:
    """Where rootless engines look: the daemon's XDG_CONFIG_HOME, which it hands on to the runtimes that it starts."""
    daemons = desk.get(Daemons)
    for daemon in () if isinstance(daemons, Unread) else daemons.daemons:
        if not daemon.own_namespace:
            continue
        path = f"/proc/{daemon.pid}/environ"
        file = desk.raw.read_blocking((path,), keep=f"^{_OWN_PLACE}=").get(path)
        home = _variable(file.text) if isinstance(file, TextFile) else ""
        if home.startswith("/"):
            yield f"{home.rstrip('/')}/nvidia-container-runtime/config.toml", f"rootless {daemon.program.value}"


def _variable(environment: str) -> str:
    begin = f"{_OWN_PLACE}="
    words = environment.split("\0")
    return next((word.removeprefix(begin) for word in words if word.startswith(begin)), "")


def _file(file: TextFile, engine: str, software: Software | Unread | None) -> ToolkitFile | Unread:
    document = parse_toml(file)
    if isinstance(document, Unread):
        return document
    return ToolkitFile(
        path=file.path,
        document=document,
        text=file.text,
        version=None if software is None or isinstance(software, Unread) else _version(software, file.path),
        engine=engine,
        read_from={"file": Evidence(file.where, _shown(document))},
    )


def _shown(document: Document | Malformed) -> str:
    if isinstance(document, Malformed):
        return document.evidence.shows
    count = len(dict(_leaves(document, "")))
    return f"parses, {count} key{'s' * (count != 1)}"


def _version(software: Software, path: str) -> Version | None:
    """Packages and /usr/bin do not tell the version of the Operator's programs, nor these that of the packages."""
    version = software.of(TOOLKIT)
    if not isinstance(version, Version):
        return None
    told_by_operators = any(seen.where.startswith(f"{OPERATOR_FOLDER}/") for seen in version.cite("version"))
    return version if told_by_operators == (path == OPERATOR_CONFIG) else None


def _leaves(table: Document, above: str) -> Iterator[tuple[str, Any]]:
    for word, value in table.items():
        name = f"{above}.{word}" if above else word
        if isinstance(value, dict) and name in TABLES:
            yield from _leaves(value, name)
        else:
            yield name, value


def unknown_key(name: str) -> OddKey:
    """What a key is that no release reads: in the wrong table, misspelt, or like nothing that is known."""
    import difflib

    table, _, word = name.rpartition(".")
    elsewhere = next((known for known in BY_NAME if "." in known and known.rpartition(".")[2] == word), "")
    at_top = word if word in BY_NAME else ""
    if at_top or (elsewhere and word not in ("path", "debug")):
        return OddKey(name, Odd.MISPLACED, at_top or elsewhere)
    siblings = {known.rpartition(".")[2]: known for known in (*BY_NAME, *TABLES) if known.rpartition(".")[0] == table}
    like = difflib.get_close_matches(word.lower(), siblings, n=1, cutoff=_LIKE)
    return OddKey(name, Odd.MISSPELT, siblings[like[0]]) if like else OddKey(name, Odd.STRANGE)


_TABLE = pattern(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ASSIGNED = pattern(r"""\s*([A-Za-z0-9_."'-]+)\s*=""")


def line_of(text: str, name: str) -> tuple[int, str]:
    """The number, from 1, and words of the line that states a key or opens a table, (0, "") where it is written some other way."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _TABLE.match(line)
        if header is not None:
            table = _plain(header[1])
        elif (assigned := _ASSIGNED.match(line)) is not None:
            word = _plain(assigned[1])
            if (f"{table}.{word}" if table else word) == name:
                return number, line.strip()[:200]
            continue
        if header is not None and table == name:
            return number, line.strip()
    return 0, ""


def _plain(name: str) -> str:
    return ".".join(word.strip().strip("\"'") for word in name.split("."))
