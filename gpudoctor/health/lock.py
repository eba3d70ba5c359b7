"""One run at a time: a lock that is never waited for, and who has it.

The lock is the kernel's (flock(2)) and ends with the process; what stands in the file tells of whoever has it, or of a run that was
ended from outside.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

LARGEST = 4096


class Holder(Struct, frozen=True):
    """A run: its process, when it began (`began` in seconds since the boot, `at` as people read it), by when it wanted to be over."""

    pid: int
    boot_id: str
    began: float
    at: str
    deadline: float


class LockedError(Exception):
    """Another run has the lock; who, as far as it is told."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__("another run is at work")
        self.holder = holder


@contextlib.contextmanager
def locked(path: Path, mine: Holder) -> Iterator[Holder | None]:
    """Hold the lock; gives the run before this one if it did not end by itself. Raises LockedError at once, or OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(_read(handle)) from None
        before = _read(handle)
        _write(handle, msgspec.json.encode(mine))
        yield before
        # Of a run that raises or is killed it stays there, for the next to tell of.
        _write(handle, b"")
    finally:
        os.close(handle)


def _read(handle: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(handle, LARGEST, 0), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(handle: int, content: bytes) -> None:
    """On a full disk the lock is held all the same; only who has it is not told."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, content, 0)


def seconds_since_boot() -> float:
    """Sleep included: no clock that anybody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
