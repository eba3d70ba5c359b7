"""A program on a pseudo-terminal of its own, as an ssh session has one."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

SECONDS = 20.0
"""How long anything is waited for."""
_OF_A_TERMINAL = frozenset(
    "COLUMNS LINES NO_COLOR COLORTERM COLORFGBG TMUX SSH_TTY SSH_CONNECTION TEXTUAL_THEME TEXTUAL_ANIMATIONS CLICOLOR_FORCE".split()
)
_SWITCHES = (
    ("\x1b[?1049h", "\x1b[?1049l"),
    ("\x1b[?25l", "\x1b[?25h"),
    ("\x1b[?1000h", "\x1b[?1000l"),
    ("\x1b[?2004h", "\x1b[?2004l"),
)
"""What is switched on and off again: the alternate screen, the hidden cursor, the mouse, bracketed paste."""


class Terminal:
    """The program and its terminal."""

    def __init__(self, argv: Sequence[str], size: tuple[int, int] = (80, 24), **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._before = termios.tcgetattr(self.slave)
        self.said = b""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_A_TERMINAL}
        self.process = subprocess.Popen(
            list(argv),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End whatever is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(SECONDS)
        for descriptor in (self.master, self.slave):
            os.close(descriptor)

    def until(self, *words: str) -> str:
        """Read until all of these words have come; all that came."""
        end = time.monotonic() + SECONDS
        while not all(word.encode() in self.said for word in words):
            assert time.monotonic() < end, f"{words} did not come: {self.said[-2000:]!r}"
            assert self._take(0.1) or self.process.poll() is None, f"it has ended: {self.said[-2000:]!r}"
        return self.said.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self.master, keys.encode())

    def ended(self, seconds: float = SECONDS) -> int:
        """Wait for its end; its exit status."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "it has not ended"
            self._take(0.02)
        while self._take(0.05):
            pass
        return int(self.process.returncode)

    @property
    def is_clean(self) -> bool:
        """Whether the terminal is as it was, its modes and whatever was switched."""
        text = self.said.decode("utf-8", "replace")
        left = [on for on, off in _SWITCHES if text.rfind(on) > text.rfind(off)]
        return not left and termios.tcgetattr(self.slave) == self._before

    def _take(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.said += chunk
        return bool(chunk)
