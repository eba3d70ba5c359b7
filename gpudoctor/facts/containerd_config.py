"""The configuration that containerd would have if it started now: its file, what that imports, and how they are put together.

containerd/containerd services/server/config/config.go (v1.6.20, v1.7.34) and cmd/containerd/server/config/config.go (v2.0.0 to v2.3.4),
LoadConfig: breadth first, each path once, what comes later over what came before. Only the files' own `imports` are followed: the
default of 2.2, /etc/containerd/conf.d/*.toml (cmd/containerd/command/config.go), is printed by `containerd config default` and read by
nothing else.
"""

import posixpath
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.config_text import Malformed, parse_toml
from gpudoctor.facts.containerd_glob import BadPattern, matches
from gpudoctor.facts.containerd_merge import Settings, merge, name_fully, split_cri
from gpudoctor.facts.containerd_rules import CRI_NAME, CRI_RUNTIME_URI, CRI_URI, Rules
from gpudoctor.facts.containerd_types import CRI, SERVER, WrongKind, decode
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

MOST_FILES = 200
"""No more files are followed: a configuration that imports more is not a configuration."""


class ConfigFile(Struct, frozen=True):
    """One file as it was read; `imported_by` is the file that names it."""

    path: str
    text: TextFile
    settings: Settings
    imported_by: str = ""

    @property
    def version(self) -> int:
        """Its own version, 0 where it names none."""
        return int(self.settings.get("version", 0))

    @property
    def evidence(self) -> Evidence:
        """What it says of itself."""
        imports = ", ".join(self.settings.get("imports", []))
        says = f"version = {self.version}" if self.version else "names no version"
        return Evidence(self.text.where, f"{says}; imports {imports}"[:300] if imports else says)


class Refused(Struct, frozen=True):
    """Why containerd would not start with these files: what is wrong, in which file, and where in it."""

    path: str
    said: str
    evidence: Evidence
    place: str = ""
    cause: str = "refused"


class Loaded(Struct, frozen=True):
    """What the files make together. `version` is what containerd takes the whole for; `plugins` are the tables it would look into."""

    files: tuple[ConfigFile, ...]
    settings: Settings
    version: int

    @property
    def plugins(self) -> Mapping[str, Any]:
        """The plugins' tables by name."""
        found: dict[str, Any] = self.settings.get("plugins", {})
        return found

    @property
    def disabled(self) -> tuple[str, ...]:
        """The plugins that are switched off."""
        return tuple(self.settings.get("disabled_plugins", ()))


DEFAULTS: Settings = {
    "root": "/var/lib/containerd",
    "state": "/run/containerd",
    "grpc": {"address": "/run/containerd/containerd.sock"},
}
"""What is so without any file, of what is asked for here (cmd/containerd/command/config.go)."""


def load(raw: Raw, path: str, rules: Rules) -> Loaded | Refused | Unread:
    """The configuration that begins with a file, which must be there."""
    try:
        return _load(raw, path, rules)
    except RecursionError:
        return Unread(Why.UNREADABLE, path, "its tables are nested too deeply to be followed")


def _load(raw: Raw, path: str, rules: Rules) -> Loaded | Refused | Unread:
    out = deepcopy(DEFAULTS) | {"version": 1 if rules.first_generation else rules.latest}
    files: dict[str, ConfigFile] = {}
    pending = [(path, "")]
    while pending and len(files) < MOST_FILES:
        at, parent = pending.pop(0)
        if at in files:
            continue
        file = _read(raw, at, parent, rules)
        if not isinstance(file, ConfigFile):
            return file
        files[at] = file
        root = next((one.version for one in files.values() if one.version), 0)
        if rules.each_file_alone and file.version > root:
            return _refuse(file, f"its version {file.version} is higher than that of the main file, {root}", "version")
        merge(out, _converted(file, out, rules), rules)
        imported = _imports(raw, file, rules)
        if not isinstance(imported, list):
            return imported
        pending += [(one, at) for one in imported]
    return _finish(tuple(files.values()), out, rules)


def _read(raw: Raw, path: str, parent: str, rules: Rules) -> ConfigFile | Refused | Unread:
    found = raw.read(path)
    if isinstance(found, Absent):
        return Refused(path, f"{path} does not exist", found.evidence, cause="import-missing" if parent else "missing")
    if isinstance(found, Unread):
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Entry) and entry.type is EntryType.DIR:
            said = "is a directory, which cannot be read as a file"
            return Refused(path, f"{path} {said}", Evidence(entry.where, said), cause="import-missing")
        return found
    document = parse_toml(found)
    if isinstance(document, Malformed):
        if rules.first_generation and _go_may_take(document, found.text):
            return Unread(Why.UNREADABLE, document.place, f"{document.said}, which go-toml 1 may accept")
        said = f"does not parse: {document.place.removeprefix(path).strip()}: {document.said}"
        return Refused(path, f"{path} {said}", document.evidence, document.place, cause="syntax")
    if isinstance(document, Unread):
        return document
    try:
        settings = decode(document, SERVER, first_generation=rules.first_generation)
        return ConfigFile(path, found, settings, parent)
    except WrongKind as error:
        return _wrong(path, found, error)


def _imports(raw: Raw, file: ConfigFile, rules: Rules) -> list[str] | Refused | Unread:
    """The paths that a file imports, in order: a glob that matches nothing is none, a plain path must exist."""
    found: list[str] = []
    for named in file.settings.get("imports", []):
        if "*" in named and not rules.relative_globs:
            # The working directory of a service is / unless its unit names one (systemd.exec(5), WorkingDirectory=).
            pattern = named if named.startswith("/") else f"/{named}"
        else:
            # normpath keeps two slashes at the beginning, which Go's filepath.Clean does not.
            pattern = re.sub("^/+", "/", posixpath.normpath(posixpath.join(posixpath.dirname(file.path), named)))
        if "*" not in pattern:
            found.append(pattern)
            continue
        try:
            globbed = matches(raw, pattern)
        except BadPattern:
            return _refuse(file, f"imports {named!r}, which is no valid pattern", "import-missing")
        if isinstance(globbed, Unread):
            return globbed
        found += globbed
    return found


def _converted(file: ConfigFile, out: Settings, rules: Rules) -> Settings:
    """A file's settings as they are merged: 2.0 to 2.2 convert those of version 1 only, 2.3 converts every file by itself."""
    settings = deepcopy(file.settings)
    if rules.first_generation:
        return settings
    if file.version < 2:
        name_fully(settings)
        settings["version"] = max(int(out["version"]), 2)
    if rules.each_file_alone and file.version < rules.latest:
        split_cri(settings.get("plugins", {}))
        _move_address(settings)
        settings["version"] = rules.latest
    return settings


def _move_address(settings: Settings) -> None:
    """Version 3 to 4: the socket's address belongs to a plugin (serviceMigrate in v2.3.0)."""
    address = settings.get("grpc", {}).get("address")
    plugins = settings.setdefault("plugins", {})
    if address and "io.containerd.server.v1.grpc" not in plugins:
        plugins["io.containerd.server.v1.grpc"] = {"address": address}


def _finish(files: tuple[ConfigFile, ...], out: Settings, rules: Rules) -> Loaded | Refused:
    version = int(out["version"])
    main = files[0]
    bad = _invalid(out, version, rules)
    if bad is not None:
        culprit = next((file for file in reversed(files) if _names(file, bad[0])), main)
        return _refuse(culprit, bad[1], "refused", bad[0])
    if not rules.first_generation and not rules.each_file_alone and version < rules.latest:
        # cmd/containerd/server/server.go, New: all that was merged is converted together, by the version of the whole.
        split_cri(out.setdefault("plugins", {}))
    loaded = Loaded(files, out, version)
    if is_disabled(loaded, rules):
        return loaded
    try:
        decode(cri_table(loaded, rules), CRI, first_generation=rules.first_generation)
    except WrongKind as error:
        culprit = next((file for file in reversed(files) if _names(file, error.name.rpartition(".")[2])), main)
        return _wrong(culprit.path, culprit.text, error)
    return loaded


def cri_table(loaded: Loaded, rules: Rules) -> dict[str, Any]:
    """The table that the CRI plugin's runtimes are read from, empty where there is none."""
    key = cri_key(loaded.version, rules)
    table = loaded.plugins.get(key, {})
    if not isinstance(table, dict):
        raise WrongKind(f"plugins.{key}", table, "a table")
    return table


def is_disabled(loaded: Loaded, rules: Rules) -> bool:
    """Whether the CRI plugin is off: by its short name where 1.x takes the whole for version 1 (V1DisabledFilter), else by its full one.

    In 2.x it has three parts, each of which it needs (plugins/cri/cri.go, Requires).
    """
    if rules.first_generation:
        return (CRI_NAME if loaded.version < 2 else CRI_URI) in loaded.disabled
    return bool({CRI_URI, CRI_RUNTIME_URI, "io.containerd.cri.v1.images"} & set(loaded.disabled))


def cri_key(version: int, rules: Rules) -> str:
    """The name of that table: 1.x asks the version of the whole (Config.Decode), 2.x converts to its own first."""
    if not rules.first_generation:
        return CRI_RUNTIME_URI
    return CRI_NAME if version in (0, 1) else CRI_URI


def _invalid(out: Settings, version: int, rules: Rules) -> tuple[str, str] | None:
    """What ValidateV2 and ValidateVersion object to: a word of the file, and what is said."""
    named = [*out.get("disabled_plugins", ()), *out.get("required_plugins", ())]
    if not rules.first_generation:
        if version > rules.latest:
            return "version", f"version {version} is newer than {rules.words} knows, {rules.latest}"
        bad = next((name for name in named if "." not in name), None)
    else:
        if version < 2:
            return None
        if version > 2 and rules.refuses_newer:
            return "version", f"version {version} is newer than {rules.words} knows, 2"
        bad = next((name for name in (*named, *out.get("plugins", {})) if not _is_uri(name, rules)), None)
    said = f"names the plugin {bad!r}, which in version {version} must be written in full, as io.containerd.grpc.v1.cri"
    return (bad, said) if bad is not None else None


def _is_uri(name: str, rules: Rules) -> bool:
    return name.count(".") >= 3 and (name.startswith("io.containerd.") or not rules.needs_prefix)


def _names(file: ConfigFile, word: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", file.text.text) is not None


def _refuse(file: ConfigFile, said: str, cause: str, word: str = "") -> Refused:
    return Refused(file.path, f"{file.path} {said}", *_quoted(file.path, file.text, word, said), cause=cause)


def _wrong(path: str, text: TextFile, error: WrongKind) -> Refused:
    evidence, place = _quoted(path, text, error.name.rpartition(".")[2], str(error))
    return Refused(path, f"{place or path}: {error}", evidence, place, cause="wrong-kind")


def _quoted(path: str, text: TextFile, word: str, said: str) -> tuple[Evidence, str]:
    """The one line on which a word stands, with line and column; of several none is named."""
    form = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])")
    lines = [(number, line) for number, line in enumerate(text.text.splitlines(), 1) if word and form.search(line)]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    if len(lines) != 1:
        return Evidence(text.where, said), ""
    number, line = lines[0]
    found = form.search(line)
    column = found.start() + 1 if found is not None else 1
    shown = Malformed(path, number, column, said, line)
    return replace(shown, where=text.where).evidence, shown.place


_AGAIN = pattern(r"Cannot declare \((.*)\) twice")


def _go_may_take(malformed: Malformed, text: str) -> bool:
    """go-toml 1 lets a table be opened that dotted keys made before; it objects to the same header twice as everybody does."""
    if not _AGAIN.search(malformed.said):
        return False
    header = malformed.text.split("#")[0].strip()
    return sum(line.split("#")[0].strip() == header for line in text.splitlines()) < 2
