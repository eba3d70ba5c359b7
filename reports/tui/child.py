"""The gpudoctor that looks while this one shows: a child that is read as it tells, and left behind at once when it is no longer wanted.

A task asleep uninterruptibly cannot be killed, and whoever waits for it sleeps too: nothing here ever waits for the child.
"""

import asyncio
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence

_START = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from gpudoctor.cli import main; sys.exit(main())"
"""As `python -m gpudoctor`, but with this program's own import paths: `-m` would look into the working directory first."""

MOST_LINE = 256 * 1024 * 1024
"""A line longer than that is no report."""
LOOK_SECONDS = 0.1
"""How often it is asked whether a child has ended whose pipes something else may still hold."""
LAST_LOOKS = 20


def command(words: Sequence[str]) -> list[str]:
    """What runs `gpudoctor WORDS` with this interpreter and this installation."""
    return [sys.executable, "-c", _START, "\n".join(sys.path), *words]


class Child:
    """One started program. What it says goes on to whoever follows it, line by line, and its exit status once."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - argv comes from our own code, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._pipes = {pipe.fileno(): pipe for pipe in (self._process.stdout, self._process.stderr)}
        # In pieces: a line of many megabytes put together anew with each of them takes minutes.
        self._rests: dict[int, list[bytes]] = {descriptor: [] for descriptor in self._pipes}
        self._held = dict.fromkeys(self._pipes, 0)
        self._takers: dict[int, Callable[[bytes], None]] = {}
        self._ended: Callable[[int], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        """Its process, which leads a session and a group of its own."""
        return self._process.pid

    def refusal(self, seconds: float) -> str | None:
        """Why it has ended without a word on stdout, as its last line on stderr says; None where it goes on after that time.

        Before it is followed. Nothing is taken out of its pipes but that line.
        """
        out, complaints = self._pipes
        if not select.select([out], [], [], seconds)[0] or _waiting(out):
            return None
        said = os.read(complaints, 1 << 16) if select.select([complaints], [], [], seconds)[0] else b""
        lines = [line for line in said.decode("utf-8", "replace").split("\n") if line.strip()]
        return lines[-1] if lines else ""

    def follow(
        self, line: Callable[[bytes], None], complaint: Callable[[bytes], None], ended: Callable[[int], None]
    ) -> None:
        """Begin to read; needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        for descriptor, taker in zip(self._pipes, (line, complaint), strict=True):
            self._takers[descriptor] = taker
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._take, descriptor)
        self._loop.call_later(LOOK_SECONDS, self._look)

    def abandon(self) -> None:
        """Kill it and all of its group, and let go of it without waiting."""
        self._ended = None
        # Who is gone and was collected has no group any more; its number may be somebody else's by now.
        alive = self._process.poll() is None
        if alive:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                pass
        self._let_go()
        if alive:
            self._reap(LAST_LOOKS)

    def _take(self, descriptor: int) -> bool:
        """Read what is there, and pass on whole lines; whether there was anything."""
        try:
            chunk = os.read(descriptor, 1 << 18)
        except BlockingIOError:
            return False
        if not chunk or self._held[descriptor] > MOST_LINE:
            if self._loop is not None:
                self._loop.remove_reader(descriptor)
            self._look()
            return False
        first, *others = chunk.split(b"\n")
        rest = self._rests[descriptor]
        rest.append(first)
        self._held[descriptor] += len(first)
        for other in others:
            line = b"".join(rest)
            rest[:], self._held[descriptor] = [other], len(other)
            self._takers[descriptor](line)
        return True

    def _look(self) -> None:
        """Whether it has ended; what it started may still hold its pipes."""
        if self._ended is None or self._loop is None:
            return
        status = self._process.poll()
        if status is None:
            self._loop.call_later(LOOK_SECONDS, self._look)
            return
        ended, self._ended = self._ended, None
        for descriptor in tuple(self._pipes):
            while self._take(descriptor):
                pass
            if rest := b"".join(self._rests[descriptor]):
                self._takers[descriptor](rest)
        self._let_go()
        ended(status)

    def _let_go(self) -> None:
        for descriptor, pipe in self._pipes.items():
            if self._loop is not None:
                self._loop.remove_reader(descriptor)
            pipe.close()
        self._pipes = {}

    def _reap(self, looks: int) -> None:
        """Collect what was killed if it ends soon; what does not is left to whoever inherits it."""
        # Popen must neither complain about it nor wait for it when it is collected.
        self._process.returncode = 0
        try:
            ended, _ = os.waitpid(self._process.pid, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended and looks and self._loop is not None and self._loop.is_running():
            self._loop.call_later(LOOK_SECONDS, self._reap, looks - 1)


def _waiting(pipe: int) -> int:
    """How many bytes wait to be read; a pipe that can be read and has none is at its end (FIONREAD, ioctl_tty(2))."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)
