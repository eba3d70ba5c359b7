"""`systemctl status` as the files that tell of a service: the links that enable it, its control group, its journal."""

import re
from collections.abc import Iterator

from gpudoctor.facts.persistence import JOURNAL, MASK, SLICES, SOCKETS, UNIT, WANTED
from gpudoctor.facts.raw import Entry, EntryType, Log
from gpudoctor.patterns import pattern
from gpudoctor.sources.recorded import Record

# systemctl(1), status: "● NAME - WORDS" or "NAME" alone, then "Loaded: loaded (PATH; enabled; …)" and "Active: active (running) since …".
_UNIT = pattern(r"^[^\s\w] (\S+\.service)\b", re.MULTILINE)
_LOADED = pattern(r"^ *Loaded: (\w+) \(([^;)]+)(?:; ([\w-]+))?", re.MULTILINE)
_ACTIVE = pattern(r"^ *Active: (\w+(?: \(running\))?)", re.MULTILINE)

_ENABLED = ("enabled", "enabled-runtime")
_NOT_ENABLED = ("disabled", "static", "indirect")
"""States of a unit file in which nothing wants it at boot (systemctl(1), is-enabled)."""
_ENDED = ("inactive", "failed")


def persistence_daemon(text: str, origin: str) -> Iterator[tuple[str, Record]]:
    """What the status of nvidia-persistenced means for the paths that tell of it; nothing where it is not among the units shown."""
    status = _status_of(UNIT, text)
    loaded, active = _LOADED.search(status), _ACTIVE.search(status)
    if loaded is None or active is None:
        return
    if loaded[1] == "masked":
        yield MASK, _link(MASK, "/dev/null", origin)
    elif loaded[1] == "loaded" and loaded[3] in _ENABLED:
        yield WANTED, _link(WANTED, loaded[2], origin)
        yield loaded[2], Record(entry=Entry(loaded[2], EntryType.FILE, origin=origin), origin=origin)
    elif loaded[1] == "loaded" and loaded[3] in _NOT_ENABLED:
        yield WANTED, Record(error="ENOENT", origin=origin)
    yield from _running(active[1], origin)


def persistence_journal(text: str) -> Log | None:
    """The last lines of its journal, which stand below its status after an empty line."""
    lines = _status_of(UNIT, text).partition("\n\n")[2].strip("\n")
    return Log(JOURNAL, lines, source="journal") if lines else None


def _status_of(unit: str, text: str) -> str:
    """The part of the output that is about a unit, empty without one."""
    found = [match for match in _UNIT.finditer(text) if match[1] == unit]
    if not found:
        return ""
    start = found[0].start()
    following = _UNIT.search(text, found[0].end())
    return text[start : following.start() if following else None]


def _running(state: str, origin: str) -> Iterator[tuple[str, Record]]:
    """A service that runs has a control group; one that ended has neither that nor its socket."""
    group = f"{SLICES[0]}/{UNIT}"
    if state == "active (running)":
        yield group, Record(entry=Entry(group, EntryType.DIR, origin=origin), origin=origin)
    elif state in _ENDED:
        for path in (*(f"{place}/{UNIT}" for place in SLICES), *SOCKETS):
            yield path, Record(error="ENOENT", origin=origin)
        yield SLICES[0], Record(entry=Entry(SLICES[0], EntryType.DIR, origin=origin), origin=origin)


def _link(path: str, to: str, origin: str) -> Record:
    return Record(entry=Entry(path, EntryType.LINK, to=to, origin=origin), origin=origin)
