"""daemon.json as the installed dockerd takes it beside its command line, or why it would not start with the two.

moby, daemon/config/config.go: MergeDaemonConfigurations, getConflictFreeConfiguration, Validate; daemon/runtime_unix.go, setupRuntimes.
What 20.10.24 takes and refuses was tried, tests/test_dockerd_refuses.py. Keys and types are Go's: a name of another case is another
key at the top, and the same one inside of a runtime (encoding/json, Unmarshal).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.config_text import Document, Malformed, parse_json, well_formed
from gpudoctor.facts.raw import TextFile
from gpudoctor.facts.software import Version
from gpudoctor.knowledge.docker_options import (
    CHOICES,
    FLAG_NAMES,
    FLAT,
    LINUX_V1,
    OF_FLAG,
    OPTIONS,
    READ_BEFORE,
    SHORT,
    STOCK_RUNTIME,
    STOCK_RUNTIMES,
    SWITCH_FLAGS,
    Holds,
)
from gpudoctor.verdicts import Evidence, Unread, Why

STRICT_SINCE = 23
"""Since 23.0.0 the file is decoded as a whole, an empty one and a byte order mark are taken, and runtimes are checked at the start."""


class Refused(Struct, frozen=True):
    """Why dockerd does not start: in words that follow the file's name, what of it to cite, and of what kind it is."""

    said: str
    evidence: Evidence
    cause: str


class Flags(Struct, frozen=True):
    """A command line: each flag by its long name with its values, in order; a switch without a value is "true"."""

    values: Mapping[str, tuple[str, ...]] = {}

    def last(self, flag: str) -> str | None:
        """The value that counts."""
        return self.values[flag][-1] if flag in self.values else None


def flags_of(words: Sequence[str]) -> Flags:
    """As spf13/pflag reads them: `--name value`, `--name=value`, `-n value`, `-nvalue`."""
    values: dict[str, tuple[str, ...]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            continue
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = SHORT.get(word[1:2], word[1:2]), word[2:], word[2:].removeprefix("=")
        if not equals:
            value = "true" if name in SWITCH_FLAGS else next(rest, "")
        values[name] = (*values.get(name, ()), value)
    return Flags(values)


def take(file: TextFile, flags: Flags, version: Version | None) -> Document | Refused | Unread:
    """The settings of the file, if dockerd starts with them and these flags. Without a version, as releases since 23.0 do."""
    settings = _decoded(file, version)
    if not isinstance(settings, dict):
        return settings
    found = next(_faults(settings, flags, version), None)
    if found is None:
        return settings
    said, cause = found
    said = well_formed(said)
    if cause == "unknown-key" and version is not None and not version.before(*READ_BEFORE):
        return Unread(
            Why.NOT_ANSWERED,
            file.where,
            f"{said}, if this release is like those before {READ_BEFORE[0]}.{READ_BEFORE[1]}",
        )
    return Refused(said, Evidence(file.where, said[:300]), cause)


def _before(version: Version | None, *numbers: int) -> bool:
    return version is not None and version.before(*numbers)


def _decoded(file: TextFile, version: Version | None) -> Document | Refused | Unread:
    settings = parse_json(file)
    if _before(version, STRICT_SINCE) and not file.truncated:
        if isinstance(settings, Malformed) and settings.said == "Extra data" and "\n" not in file.text:
            settings = parse_json(replace(file, text=file.text[: settings.column - 1]))
        empty = not file.text.strip(" \t\r\n")
        if empty or file.text.startswith("\ufeff"):
            said = "is empty" if empty else "begins with a byte order mark"
            said = f"{said}, which Docker before 23.0 does not take"
            return Refused(said, Evidence(file.where, said), "syntax")
    if isinstance(settings, Malformed):
        place = settings.place.removeprefix(settings.where).strip()
        said = f"{place}: {settings.said}" if place else settings.said
        quoted = f": {settings.text.strip()[:100]!r}" if settings.text.strip() else ""
        return Refused(f"does not parse: {said}{quoted}", settings.evidence, "syntax")
    return settings


def _faults(settings: Document, flags: Flags, version: Version | None) -> Iterator[tuple[str, str]]:
    """Everything that keeps dockerd from starting, as words that follow the file's name and the kind."""
    if unknown := [well_formed(key) for key in _names(settings, version) if not _is_known(key, version)]:
        yield f"has what this Docker does not know: {', '.join(unknown)}", "unknown-key"
    given = {OF_FLAG.get(flag, flag): flag for flag in flags.values}
    if twice := [key for key in _names(settings, version) if key in given and key != "runtimes"]:
        said = ", ".join(f"{key} (--{given[key]})" for key in twice)
        yield f"and the command line of dockerd both set {said}", "flag-and-file"
    for key, value in settings.items():
        option = OPTIONS.get(key)
        if option is not None and value is not None and _is_known(key, version) and not _fits(value, option.holds):
            shown = f"a JSON {type(value).__name__}" if isinstance(value, dict | list) else repr(value)
            yield f"does not fit: {key} is {shown}, not {option.holds.value}", "type"
    yield from _runtime_types(settings.get("runtimes"), version)
    for key, choices in CHOICES.items():
        chosen = settings.get(key)
        if chosen and (chosen.lower() if key == "log-level" else chosen) not in choices:
            yield f"does not fit: {key} is {chosen!r}", "value"
    size = settings.get("default-shm-size")
    if size is not None and not re.fullmatch(r"\d+(?:\.\d+)? ?(?:[kKmMgGtTpP]?i?[bB]?)", size):
        yield f"does not fit: default-shm-size is {size!r}", "value"
    yield from _runtime_values(settings, flags, version)


def _names(settings: Document, version: Version | None) -> list[str]:
    """The keys as they are compared with flags: those of an object that is no option of its own stand for themselves."""
    return [
        name
        for key, value in settings.items()
        for name in (value if isinstance(value, dict) and not (key in FLAT and _is_known(key, version)) else (key,))
    ]


def _is_known(key: str, version: Version | None) -> bool:
    option = OPTIONS.get(key)
    if option is None:
        return key in FLAG_NAMES
    if version is None:
        return True
    return not version.before(*option.since) and (option.until is None or version.before(*option.until))


def _fits(value: Any, holds: Holds) -> bool:
    match holds:
        case Holds.TEXT:
            return isinstance(value, str)
        case Holds.SWITCH:
            return isinstance(value, bool)
        case Holds.NUMBER:
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
        case Holds.LIST:
            return isinstance(value, list) and all(one is None or isinstance(one, str) for one in value)
        case Holds.ANYTHING:
            return True
        case _:
            kind = {Holds.TEXTS: str, Holds.SWITCHES: bool, Holds.TABLES: dict}.get(holds, object)
            return isinstance(value, dict) and all(one is None or isinstance(one, kind) for one in value.values())


RUNTIME_FIELDS = (("path", str), ("runtimeArgs", list), ("runtimeType", str), ("options", dict))
_OLD_FIELDS = 2
"""Before 23.0 only the first of these are looked at."""


def runtime_fields(entry: Document | None) -> Document:
    """An entry of `runtimes` by the names of its fields, of which the case does not count."""
    names = {name.lower(): name for name, _ in RUNTIME_FIELDS}
    return {names.get(key.lower(), key): value for key, value in (entry or {}).items() if value is not None}


def _runtime_types(runtimes: Any, version: Version | None) -> Iterator[tuple[str, str]]:
    fields = RUNTIME_FIELDS[:_OLD_FIELDS] if _before(version, STRICT_SINCE) else RUNTIME_FIELDS
    for name, entry in runtimes.items() if isinstance(runtimes, dict) else ():
        found = runtime_fields(entry)
        for field, kind in fields:
            if not isinstance(found.get(field, kind()), kind):
                yield f"does not fit: runtimes.{name}.{field} is {found[field]!r}, not a {kind.__name__}", "type"


def _runtime_values(settings: Document, flags: Flags, version: Version | None) -> Iterator[tuple[str, str]]:
    runtimes = settings.get("runtimes") or {}
    if STOCK_RUNTIME in runtimes:
        yield "defines runtime runc, a name that dockerd keeps for itself", "refused"
    old = _before(version, STRICT_SINCE)
    for name, entry in () if old else runtimes.items():
        if (why := why_refused(entry)) is not None:
            yield f"has runtime {name!r}, which {why}", "refused"
    default = settings.get("default-runtime")
    if default and not _is_defined(default, {*runtimes, *(() if old else added(flags))}, old=old):
        yield f"has default-runtime {default!r}, which runtimes does not define", "default-undefined"
    chosen = flags.last("default-runtime")
    if chosen and not _is_defined(chosen, {*runtimes, *added(flags)}, old=old):
        yield f"does not define runtime {chosen!r}, which --default-runtime names", "default-undefined"


def why_refused(entry: Document | None) -> str | None:
    """Why dockerd since 23.0 does not start with an entry of `runtimes`; earlier ones fail when a container is started with it."""
    found = runtime_fields(entry)
    path, shim = found.get("path"), found.get("runtimeType")
    if not path and not shim:
        return "names neither a path nor a runtimeType"
    if path and shim:
        return "names both a path and a runtimeType"
    if path and found.get("options"):
        return "gives options to a path"
    return "gives runtimeArgs to a runtimeType" if shim and found.get("runtimeArgs") else None


def added(flags: Flags) -> dict[str, str]:
    """Runtimes of --add-runtime NAME=PATH."""
    pairs = (value.partition("=") for value in flags.values.get("add-runtime", ()))
    return {name.strip().lower(): path.strip() for name, _, path in pairs}


def _is_defined(name: str, defined: set[str], *, old: bool) -> bool:
    """A containerd shim may be named without an entry if its name has a dot inside and no slash; not before 23.0."""
    if name in defined or name in STOCK_RUNTIMES:
        return True
    if old:
        return name == LINUX_V1
    return "." in name.strip(".") and "/" not in name and not name.startswith(".")
