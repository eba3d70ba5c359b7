"""Where the memory lies: the place that was named, that of systemd's service, or that of whoever runs it."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

SYSTEM = "/var/lib/gpudoctor"
"""Variable data of a program that outlives reboots (Filesystem Hierarchy Standard 3.0, 5.8)."""
DATABASE, LOCK, LAST = "health.sqlite3", "health.lock", "last.json"


class NoPlaceError(Exception):
    """There is no place for a memory, with words on why."""


def state_directory(given: str | None, environment: Mapping[str, str], uid: int) -> Path:
    """`--state`, else the first of $STATE_DIRECTORY (systemd.exec(5), StateDirectory=), else by the user (XDG Base Directory)."""
    if given:
        return Path(given)
    named = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if named.startswith("/"):
        return Path(named)
    if uid == 0:
        return Path(SYSTEM)
    own = environment.get("XDG_STATE_HOME", "")
    home = environment.get("HOME", "")
    if own.startswith("/"):
        return Path(own, "gpudoctor")
    if home.startswith("/"):
        return Path(home, ".local", "state", "gpudoctor")
    raise NoPlaceError("neither --state nor $STATE_DIRECTORY nor a home directory says where to keep a memory")


def made(place: Path) -> Path:
    """The directory, made where it is not there. Raises NoPlaceError where it cannot be, or where others could change what is in it."""
    try:
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = place.stat()
    except FileExistsError as error:
        raise NoPlaceError(f"{place}: is not a directory") from error
    except OSError as error:
        raise NoPlaceError(f"{place}: {error.strerror or error}") from error
    if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o022:
        raise NoPlaceError(f"{place}: others can write there, and make the doctor believe what they like")
    return place
