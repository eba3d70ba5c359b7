"""What one health check leaves for the next: how often in a row each check has failed, in a file of this boot that only root can write."""

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

STALE_SECONDS = 86400.0
"""Runs further apart are not in a row: the health checks were off in between."""

LARGEST_BYTES = 65536


class CannotRememberError(Exception):
    """What was remembered cannot be read or written, or another run is at work: then nothing may be done to the node."""


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """`streaks` are fails in a row by check, `well` the runs in a row in which all was well.

    `ours` says whether the node was seen drained by us, None when nobody has looked.
    """

    boot_id: str
    at: float
    streaks: dict[str, int] = {}
    ours: bool | None = None
    well: int = 0

    def after(self, failed: Iterable[str], *, well: bool) -> "Memory":
        """After one more run in which these checks failed, or all was well; what is not so any more is no longer in a row."""
        fresh = 0 <= seconds_since_boot() - self.at <= STALE_SECONDS
        streaks = {check: (self.streaks.get(check, 0) if fresh else 0) + 1 for check in failed}
        in_a_row = (self.well if fresh else 0) + 1 if well else 0
        return Memory(self.boot_id, seconds_since_boot(), streaks, self.ours, in_a_row)

    def interrupted(self) -> "Memory":
        """While a run is at work, and after one that did not end."""
        return Memory(self.boot_id, self.at, {}, self.ours)

    def seen(self, ours: bool) -> "Memory":
        """After the node was looked at, or drained, or taken back."""
        return Memory(self.boot_id, self.at, self.streaks, ours, self.well)


class MemoryFile:
    """The file of one node, held by this run."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id

    def read(self) -> Memory:
        """What the last run of this boot left; nothing where there was none. Raises CannotRememberError."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return self.nothing()
        except OSError as error:
            raise CannotRememberError(f"{self._path}: {error.strerror}") from error
        with open(handle, "rb") as file:
            _refuse_others(os.fstat(handle), self._path, stat.S_IFREG)
            try:
                memory = msgspec.json.decode(file.read(LARGEST_BYTES), type=Memory)
            except (OSError, ValueError) as error:
                raise CannotRememberError(f"{self._path}: {error}") from error
        return memory if memory.boot_id == self._boot_id else self.nothing()

    def nothing(self) -> Memory:
        """Before the first run."""
        return Memory(self._boot_id, seconds_since_boot())

    def write(self, memory: Memory) -> None:
        """Leave it for the next run, at once or not at all. Raises CannotRememberError."""
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            try:
                with open(handle, "wb") as file:
                    file.write(msgspec.json.encode(memory))
                    file.flush()
                    os.fsync(handle)
                os.replace(temporary, self._path)
            finally:
                Path(temporary).unlink(missing_ok=True)
        except OSError as error:
            raise CannotRememberError(f"{self._path}: {error.strerror}") from error


@contextlib.contextmanager
def remembered(directory: str, node: str) -> Iterator[MemoryFile]:
    """The file of a node, while no other run has it. Raises CannotRememberError."""
    place = Path(directory)
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        _make(place)
        lock = os.open(place / f"{node}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotRememberError(f"{error.filename or place}: {error.strerror}") from error
    try:
        _refuse_others(os.fstat(lock), place / f"{node}.lock", stat.S_IFREG)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except CannotRememberError:
        os.close(lock)
        raise
    except OSError as error:
        os.close(lock)
        raise CannotRememberError(f"{place}/{node}.lock: another health check of this node is at work") from error
    try:
        yield MemoryFile(place / f"{node}.json", boot_id)
    finally:
        os.close(lock)


def _make(place: Path) -> None:
    """The directory, with those above it, whatever the umask is; none of them one in which others could put another in its place."""
    place = place.absolute()
    for folder in (*reversed(place.parents), place):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700 if folder == place else 0o755)
    _refuse_others(os.lstat(place), place, stat.S_IFDIR)
    real = place.parent.resolve(strict=True)
    for folder in dict.fromkeys((*place.parents, real, *real.parents)):
        found = os.stat(folder)
        sticky = found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not sticky):
            raise CannotRememberError(f"{folder}: others can write there, and put another {place.name} in its place")


def _refuse_others(found: os.stat_result, path: Path, kind: int) -> None:
    """What others could have written is not trusted."""
    if stat.S_IFMT(found.st_mode) != kind or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise CannotRememberError(
            f"{path}: not a {'directory' if kind == stat.S_IFDIR else 'file'} that only its owner can write"
        )


def seconds_since_boot() -> float:
    """Sleep included: no clock that anybody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
