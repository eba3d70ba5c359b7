"""CRI-O's configuration files as it merges them: crio.conf, then every file below the drop-in folder, then its options.

As cri-o does (pkg/config/config.go, UpdateFromFile, UpdateFromPath; internal/criocli/criocli.go, mergeConfig): all names below the folder
count, whatever their ending, backups of editors and packages too, in the order in which filepath.Walk visits them. A later file overrides
key by key; of the runtimes it replaces the whole table of one name (BurntSushi/toml, unifyMap makes a new value for each key).
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gpudoctor.facts.config_text import Document, Malformed, parse_toml_of, well_formed
from gpudoctor.facts.daemons import Daemon
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

CONFIG, DROP_INS = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
"""CrioConfigPath and CrioConfigDropInPath (cri-o pkg/config/config_unix.go)."""
MOST_FILES, DEEPEST = 100, 4
MANY_HANDLERS = 3


class Handler(Struct, frozen=True):
    """One table of crio.runtime.runtimes: its settings, the file they come from, and the earlier files whose table it replaced."""

    name: str
    settings: Document
    where: str
    replaced: tuple[str, ...] = ()

    def text(self, key: str) -> str:
        """A setting that is text, "" where it is not given."""
        value = self.settings.get(key, "")
        return value if isinstance(value, str) else ""


class Setting(Struct, frozen=True):
    """A value of crio.runtime or crio.api and the file or command that sets it; earlier ones that it overrides."""

    value: Any
    where: str
    overridden: tuple[str, ...] = ()


class CrioFiles(Struct, frozen=True):
    """What the files say together. `refused` is the first that CRI-O does not take: then it does not start, and the rest was not merged.

    `unread` is why there may be other files or values; `read` are those that were read, in order.
    """

    config: str
    folder: str
    read: tuple[str, ...]
    handlers: dict[str, Handler]
    settings: dict[str, Setting]
    refused: Malformed | None
    unread: Unread | None

    def words(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A setting that is a list of words."""
        setting = self.settings.get(key)
        return tuple(setting.value) if setting is not None else default


def read_files(raw: Raw, daemon: Daemon | None) -> CrioFiles:
    """Read and merge them as a daemon called like this would, or one called without options."""
    config, folder = CONFIG, DROP_INS
    if daemon is not None:
        config = daemon.option("config", "c") or config
        folder = daemon.option("config-dir", "d") or folder
    paths, unread = _walk(raw, folder.rstrip("/"), 0)
    merged = _Merged()
    for path in (config, *paths[:MOST_FILES]):
        file = raw.read(path)
        if isinstance(file, Unread):
            unread = file
        elif isinstance(file, TextFile):
            merged.take(file)
    if daemon is not None:
        merged.take_options(daemon)
    return CrioFiles(
        config, folder, tuple(merged.read), merged.handlers, merged.settings, merged.refused, merged.unread or unread
    )


def _walk(raw: Raw, folder: str, depth: int) -> tuple[list[str], Unread | None]:
    """The files below a folder in the order of names, a folder's own files at its place among them."""
    listing = raw.listing(folder)
    if not isinstance(listing, Listing):
        return [], listing if isinstance(listing, Unread) else None
    found: list[str] = []
    unread = None if listing.complete else Unread(Why.NOT_RECORDED, folder, "was recorded in part only")
    for name in listing.names:
        entry = raw.entry(f"{folder}/{name}")
        if isinstance(entry, Entry) and entry.type is EntryType.DIR and depth < DEEPEST:
            below, blind = _walk(raw, entry.path, depth + 1)
            found, unread = found + below, unread or blind
        elif not isinstance(entry, Absent):
            found.append(f"{folder}/{name}")
    return found, unread


_LISTS = ("hooks_dir", "cdi_spec_dirs")


class _Merged:
    """The state of a merge."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.handlers: dict[str, Handler] = {}
        self.settings: dict[str, Setting] = {}
        self.refused: Malformed | None = None
        self.unread: Unread | None = None

    def take(self, file: TextFile) -> None:
        """Merge one file; nothing comes after one that is refused."""
        if self.refused is not None:
            return
        document = parse_toml_of(file, lambda found: next(_wrong_types(found), None))
        if isinstance(document, Unread):
            self.unread = document
            return
        if isinstance(document, Malformed):
            self.refused = document
            return
        self.read.append(file.where)
        crio = document.get("crio", {})
        runtime, api = crio.get("runtime", {}), crio.get("api", {})
        for key in ("default_runtime", *_LISTS):
            if key in runtime:
                self._set(key, runtime[key], file.where)
        if "listen" in api:
            self._set("listen", api["listen"], file.where)
        for name, settings in runtime.get("runtimes", {}).items():
            self._handle(well_formed(name), settings, file.where)

    def take_options(self, daemon: Daemon) -> None:
        """Options of the command come last (criocli.go, mergeConfig); --runtimes is NAME:PATH:ROOT[:TYPE…]."""
        where = daemon.cite("command")[0].where
        if (listen := daemon.option("listen")) is not None:
            self._set("listen", listen, where)
        if (default := daemon.option("default-runtime")) is not None:
            self._set("default_runtime", default, where)
        for key, option in (("hooks_dir", "hooks-dir"), ("cdi_spec_dirs", "cdi-spec-dirs")):
            if values := daemon.options(option):
                self._set(key, [word for value in values for word in value.split(",")], where)
        for value in daemon.options("runtimes"):
            for described in value.split(","):
                words = described.split(":")
                if len(words) >= MANY_HANDLERS:
                    settings = {"runtime_path": words[1], "runtime_type": (words[3:4] or ["oci"])[0]}
                    self._handle(words[0], settings, where)

    def _set(self, key: str, value: Any, where: str) -> None:
        before = self.settings.get(key)
        earlier = () if before is None else (*before.overridden, before.where)
        self.settings[key] = Setting(value, where, earlier)

    def _handle(self, name: str, settings: Document, where: str) -> None:
        before = self.handlers.get(name)
        earlier = () if before is None else (*before.replaced, before.where)
        self.handlers[name] = Handler(name, settings, where, earlier)


def _wrong_types(document: Document) -> Iterator[str]:
    """What Go's decoder refuses in the settings that are read here."""
    crio = document.get("crio", {})
    tables = [("crio", crio)]
    if isinstance(crio, dict):
        tables += [(f"crio.{name}", crio.get(name, {})) for name in ("runtime", "api")]
    for name, table in tables:
        if not isinstance(table, dict):
            yield f"{name} is {table!r}, not a table"
            return
    runtime, api = tables[1][1], tables[2][1]
    for where, table, key in (("crio.runtime", runtime, "default_runtime"), ("crio.api", api, "listen")):
        if not isinstance(table.get(key, ""), str):
            yield f"{where}.{key} is {table[key]!r}, not a string"
    for key in _LISTS:
        value = runtime.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            yield f"crio.runtime.{key} is {value!r}, not a list of strings"
    runtimes = runtime.get("runtimes", {})
    if not isinstance(runtimes, dict):
        yield f"crio.runtime.runtimes is {runtimes!r}, not a table"
        return
    for name, settings in runtimes.items():
        yield from _wrong_handler(f"crio.runtime.runtimes.{name}", settings)


def _wrong_handler(where: str, settings: Any) -> Iterator[str]:
    if not isinstance(settings, dict):
        yield f"{where} is {settings!r}, not a table"
        return
    for key in ("runtime_path", "runtime_type", "monitor_path"):
        if not isinstance(settings.get(key, ""), str):
            yield f"{where}.{key} is {settings[key]!r}, not a string"


def said(handler: Handler) -> Evidence:
    """A handler as its file has it."""
    shown = ", ".join(
        f"{key} = {handler.settings[key]!r}" for key in ("runtime_path", "runtime_type") if key in handler.settings
    )
    return Evidence(handler.where, f"[crio.runtime.runtimes.{handler.name}] {shown or 'names no runtime_path'}")
