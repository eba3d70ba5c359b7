"""Go's filepath.Glob over recorded or live folders: what the imports of a containerd configuration match (pkg.go.dev/path/filepath)."""

import posixpath
import re

from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread, Why

_MAGIC = pattern(r"[*?\[\\]")


class BadPattern(Exception):
    """What Go calls `syntax error in pattern`."""


def matches(raw: Raw, pattern: str, depth: int = 8) -> tuple[str, ...] | Unread:
    """The paths that exist and match, by folder and name in order; `Unread` where a folder cannot be listed completely.

    A folder that is not there matches nothing. Raises BadPattern, also where nothing could match.
    """
    _form(pattern)
    if not _MAGIC.search(pattern):
        entry = raw.entry(pattern)
        return entry if isinstance(entry, Unread) else (pattern,) if isinstance(entry, Entry) else ()
    folder, _, name = pattern.rpartition("/")
    folder = folder or "/"
    if not _MAGIC.search(folder) or depth == 0:
        return _inside(raw, folder, name)
    folders = matches(raw, folder, depth - 1)
    if isinstance(folders, Unread):
        return folders
    found: list[str] = []
    for one in folders:
        inside = _inside(raw, one, name)
        if isinstance(inside, Unread):
            return inside
        found += inside
    return tuple(found)


def _inside(raw: Raw, folder: str, name: str) -> tuple[str, ...] | Unread:
    """Names in one folder that match; a name that begins with a dot is like any other to Go."""
    listing = raw.listing(folder)
    if isinstance(listing, Unread):
        entry = raw.entry(folder, follow=True)
        return () if isinstance(entry, Entry) and entry.type is not EntryType.DIR else listing
    if isinstance(listing, Absent):
        return ()
    return _complete(raw, listing, folder, _form(name))


def _complete(raw: Raw, listing: Listing, folder: str, form: re.Pattern[str]) -> tuple[str, ...] | Unread:
    if not listing.complete:
        return Unread(Why.NOT_RECORDED, listing.where, "not all of its names were recorded")
    # Go's filepath.Join, which puts folder and name together, cleans what it gives.
    clean = re.sub("^/+", "/", posixpath.normpath(folder))
    return tuple(posixpath.join(clean, name) for name in sorted(listing.names) if form.fullmatch(name))


def _form(pattern: str) -> re.Pattern[str]:
    """filepath.Match's syntax as a regular expression: `*`, `?`, `[a-z]`, `[^a-z]` and backslashes; none of them matches a slash."""
    parts, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            text, at = _class(pattern, at)
            parts.append(text)
        elif character == "\\":
            literal, at = _literal(pattern, at - 1)
            parts.append(re.escape(literal))
        else:
            parts.append(re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _class(pattern: str, at: int) -> tuple[str, int]:
    """A class behind its bracket, and where it ends."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[str] = []
    while not (pattern[at : at + 1] == "]" and ranges):
        low, at = _member(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _member(pattern, at + 1)
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            ranges.append("")
    body = "".join(ranges)
    if not body:
        return ("[^/]" if negated else "(?!)"), at + 1
    return (f"[^{body}/]" if negated else f"(?!/)[{body}]"), at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at : at + 1] in ("", "-", "]"):
        raise BadPattern(pattern)
    found, at = _literal(pattern, at)
    if at >= len(pattern):
        raise BadPattern(pattern)
    return found, at


def _literal(pattern: str, at: int) -> tuple[str, int]:
    """One character, a backslash taking the next one as it is."""
    if pattern[at] == "\\":
        at += 1
        if at >= len(pattern):
            raise BadPattern(pattern)
    return pattern[at], at + 1
