"""Where the dynamic loader looks for libraries, in its order: the directories of ld.so.conf, then the trusted ones."""

from fnmatch import fnmatchcase

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Listing, Raw, TextFile
from gpudoctor.knowledge.driver_places import LOADER_DIRECTORIES
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread

CONFIG = "/etc/ld.so.conf"
MOST_FILES = 64

_OTHER_MACHINE = pattern(r"/(?:i[3-6]86-linux-gnu|lib32|libx32)(?:/|$)")


class LoaderDirectories(Fact, frozen=True):
    """The directories from the first to the last. An earlier one wins: on Debian /usr/local/lib comes before the distribution's own.

    The environment (LD_LIBRARY_PATH) and a program's own paths come before all of them, and the cache may be older than the file.
    """

    directories: tuple[str, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "LoaderDirectories | Unread":
        """Never unread itself: the distributions' directories where the configuration cannot be read."""
        named = [name.rstrip("/") for name in _directories(desk.raw, CONFIG, []) if not _OTHER_MACHINE.search(name)]
        return cls(directories=tuple(dict.fromkeys([*named, *LOADER_DIRECTORIES])))


def _directories(raw: Raw, path: str, seen: list[str]) -> list[str]:
    """The lines of ld.so.conf are directories, or `include` with patterns, taken where it stands in the order of names (ldconfig(8))."""
    file = raw.read(path)
    seen.append(path)
    if not isinstance(file, TextFile) or len(seen) > MOST_FILES:
        return []
    found: list[str] = []
    for line in file.text.splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                for included in _matching(raw, pattern):
                    found += _directories(raw, included, seen) if included not in seen else []
        elif words[:1] != ["hwcap"]:
            found += [word.partition("=")[0] for word in words if word.startswith("/")]
    return found


def _matching(raw: Raw, pattern: str) -> list[str]:
    directory, _, names = pattern.rpartition("/")
    if not directory.startswith("/"):
        directory = f"{CONFIG.rpartition('/')[0]}/{directory}".rstrip("/")
    listing = raw.listing(directory)
    listed = listing.names if isinstance(listing, Listing) else ()
    return [f"{directory}/{name}" for name in listed if fnmatchcase(name, names)]
