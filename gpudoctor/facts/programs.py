"""Where a program is found: at the path it is given by, or by its bare name in the folders that a service searches."""

from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw
from gpudoctor.verdicts import Cited, Evidence, Unread

SERVICE_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""systemd's default PATH for services (systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager")."""


class Located(Struct, frozen=True):
    """A program that was looked for: its path, None when no executable file is there, or why that is not known."""

    name: str
    path: str | Unread | None
    evidence: Cited

    @property
    def found(self) -> bool:
        """Whether an executable file is there."""
        return isinstance(self.path, str)

    @property
    def missing(self) -> bool:
        """Whether it was looked for in vain, completely."""
        return self.path is None


def locate(raw: Raw, program: str, folders: Iterable[str] = SERVICE_PATH) -> Located:
    """Look for a program as execvp(3) would; an entry that is no executable file does not count."""
    candidates = [program] if "/" in program else [f"{folder}/{program}" for folder in folders]
    seen: list[Evidence] = []
    unread: Unread | None = None
    for path in candidates:
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Unread):
            unread = entry
        elif isinstance(entry, Absent):
            seen.append(entry.evidence)
        elif entry.type is EntryType.FILE and (entry.mode is None or entry.mode & 0o111):
            return Located(program, path, (Evidence(path, _executable(entry)),))
        else:
            mode = f" with mode {entry.mode:04o}" if entry.type is EntryType.FILE and entry.mode is not None else ""
            seen.append(Evidence(path, f"is a {entry.type.words}{mode}, not executable"))
    if unread is not None:
        return Located(program, unread, (Evidence(unread.where, unread.detail),))
    return Located(program, None, tuple(seen))


def any_of(raw: Raw, paths: Iterable[str]) -> Located:
    """The first of several places where a program may be installed."""
    places = tuple(paths)
    found = [locate(raw, path) for path in places]
    first = next((place for place in found if place.found), None)
    if first is not None:
        return first
    unread = next((place for place in found if isinstance(place.path, Unread)), None)
    return unread or Located(places[0], None, tuple(evidence for place in found for evidence in place.evidence))


def _executable(entry: Entry) -> str:
    return "exists" if entry.mode is None else f"exists, mode {entry.mode:04o}"
