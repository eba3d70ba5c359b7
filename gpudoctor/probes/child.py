"""Children that may be abandoned: what may block runs here, never in the doctor itself.

A task asleep uninterruptibly cannot be killed, and whoever waits for it sleeps too. So a child gets its own session and none of
the doctor's descriptors, is read through a selector until its deadline, then killed and left behind, never joined.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence

from msgspec import Struct

from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.tasks import StackWatch, Task, read_task

MAX_OUTPUT_BYTES = 32 * 1024 * 1024
"""What a child may print; one that prints more is not answering but flooding, and is given up."""

SAMPLE_SECONDS = 0.2
"""How often a waiting child's kernel stack is looked at."""


class Abandoned(Struct, frozen=True):
    """A child given up at its deadline, as it was then."""

    task: Task
    stack_unchanged_seconds: float


class ChildEnd(Struct, frozen=True):
    """How a child ended: its exit status (negative for a signal) or how it was abandoned. Output is kept in any case."""

    stdout: bytes
    stderr: bytes
    exit: int | None
    abandoned: Abandoned | None
    seconds: float


def run_child(
    argv: Sequence[str],
    deadline: Deadline,
    *,
    environment: dict[str, str] | None = None,
    most_bytes: int = MAX_OUTPUT_BYTES,
) -> ChildEnd:
    """Run a program until it ends, the deadline comes, or it has printed too much. Raises OSError when it cannot be started."""
    started = time.monotonic()
    child = subprocess.Popen(  # noqa: S603 - argv comes from our own code, no shell
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        close_fds=True,
        env=environment,
    )
    reader = _Reader(child)
    watch = StackWatch(child.pid)
    looked = started - SAMPLE_SECONDS
    while not reader.finished and deadline.remaining > 0 and reader.bytes_read < most_bytes:
        reader.wait(min(SAMPLE_SECONDS, deadline.remaining))
        # A talkative child wakes us far more often.
        if time.monotonic() - looked >= SAMPLE_SECONDS / 2:
            watch.look()
            looked = time.monotonic()
    abandoned = None if reader.finished else _give_up(child, watch)
    reader.close()
    status = child.returncode
    if status is None:
        # Left behind on purpose: Popen must neither complain about it nor wait for it when it is collected.
        child.returncode = 0
    return ChildEnd(reader.stdout, reader.stderr, status, abandoned, time.monotonic() - started)


def _give_up(child: "subprocess.Popen[bytes]", watch: StackWatch) -> Abandoned:
    watch.look()
    task = read_task(child.pid) or watch.last or Task(child.pid, "", "?", "", 0)
    unchanged = watch.unchanged_seconds
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    for _ in range(10):
        if child.poll() is not None:
            break
        time.sleep(0.01)
    return Abandoned(task, unchanged)


class _Reader:
    """Reads a child's two pipes without ever blocking on it."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None and child.stderr is not None
        self._child = child
        self.bytes_read = 0
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, list[bytes]] = {}
        self._pipes = (child.stdout, child.stderr)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            self._parts[pipe.fileno()] = []
            self._selector.register(pipe, selectors.EVENT_READ)
        self._output, self._errors = child.stdout.fileno(), child.stderr.fileno()

    @property
    def finished(self) -> bool:
        """The child has been reaped and what it wrote has been read; what it started may still hold its pipes."""
        if self._child.poll() is None:
            return False
        while self._selector.get_map() and self._take(0):
            pass
        return True

    @property
    def stdout(self) -> bytes:
        """What came on stdout so far."""
        return b"".join(self._parts[self._output])

    @property
    def stderr(self) -> bytes:
        """What came on stderr so far."""
        return b"".join(self._parts[self._errors])

    def wait(self, seconds: float) -> None:
        """Take what comes within so many seconds."""
        if self._selector.get_map():
            self._take(seconds)
        else:
            time.sleep(min(seconds, 0.005))

    def _take(self, seconds: float) -> bool:
        """Read what is there; whether anything was, or came to its end."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            chunk = os.read(key.fd, 1 << 16)
            self._parts[key.fd].append(chunk)
            self.bytes_read += len(chunk)
            if not chunk:
                self._selector.unregister(key.fileobj)
        return bool(ready)

    def close(self) -> None:
        """Let go of the pipes."""
        self._selector.close()
        for pipe in self._pipes:
            pipe.close()
