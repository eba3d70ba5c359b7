"""The runs behind what is shown: one child that looks, and those that are asked something beside it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpudoctor.reports.tui.child import Child, command
from gpudoctor.reports.tui.model import Progress, Shown

if TYPE_CHECKING:
    from gpudoctor.details import FullReport

MOST_LOG = 2000
"""As many lines of stderr are kept."""


class End(Struct, frozen=True):
    """How a gpudoctor that was asked something ended."""

    status: int
    stdout: str
    stderr: str


class Runs:
    """What they tell goes into `shown`; `changed` is called when a run has brought or ended something, `notice` with what to point out.

    `argv` is what starts a run, nothing where there is none to start; `first` is one that was started already.
    """

    def __init__(
        self,
        shown: Shown,
        argv: Sequence[str],
        first: Child | None,
        deadline: float | None,
        changed: Callable[[], None],
        notice: Callable[[str], None],
    ) -> None:
        self.argv = tuple(argv)
        self.child = first
        self.ended: Callable[[], None] | None = None
        """Called when a run is over."""
        self._shown = shown
        self._deadline = deadline
        self._changed = changed
        self._notice = notice
        self._said = ""
        self._asked: set[Child] = set()

    def begin(self) -> None:
        """Read the run that was started already, or start one."""
        if self.child is not None:
            self._follow(self.child)
        elif self.argv:
            self.again()

    def again(self) -> None:
        """Run again; a run that is still on is left behind."""
        if self.child is not None:
            self.child.abandon()
        try:
            self._follow(Child(self.argv))
        except OSError as error:
            # A node without room for another process must not cost the answers that are there.
            self._shown.progress = Progress()
            self._said = f"it cannot be started: {error.strerror or error}"
            self.log(self._said)
            self._end(-1)
            return
        self._changed()

    def abandon(self) -> None:
        """Let go of whatever was started."""
        for child in (self.child, *self._asked):
            if child is not None:
                child.abandon()
        self.child = None

    async def outcome_of(self, words: Sequence[str]) -> End:
        """Ask another gpudoctor, and wait for its end without holding anything up."""
        try:
            child = Child(command(words))
        except OSError as error:
            return End(-1, "", f"gpudoctor cannot be started: {error.strerror or error}")
        self._asked.add(child)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        said: list[bytes] = []
        complained: list[bytes] = []
        child.follow(said.append, complained.append, lambda status: None if done.done() else done.set_result(status))
        try:
            status = await done
        finally:
            self._asked.discard(child)
            child.abandon()
        return End(status, _text(said), _text(complained))

    def log(self, text: str) -> None:
        """A line for the log view."""
        from gpudoctor.reports.words import clean

        self._shown.log.append(clean(text))
        del self._shown.log[:-MOST_LOG]

    def _follow(self, child: Child) -> None:
        self.child = child
        self._shown.progress = Progress(deadline=self._deadline)
        self._shown.problem = self._said = ""
        child.follow(self._line, lambda line: self._complained(line.decode("utf-8", "replace")), self._end)

    def _complained(self, words: str) -> None:
        """What this run says beside its report: the last of it tells why there is none."""
        self.log(words)
        self._said = self._shown.log[-1]

    def _line(self, line: bytes) -> None:
        if self._shown.progress is None or not line.strip():
            return
        from gpudoctor.reports.tui.stream import take

        try:
            report = take(line, self._shown.progress)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._complained(f"a line of the run is not understood: {error}: {line[:200].decode('utf-8', 'replace')}")
            return
        if report is not None:
            self._arrived(report)

    def _arrived(self, report: "FullReport") -> None:
        """A report is there; what has changed since the one before is marked."""
        from gpudoctor.reports.tui import marks

        shown = self._shown
        shown.before, shown.report, shown.progress = shown.report, report, None
        shown.passes += 1
        shown.marks = {}
        shown.history = marks.noted(shown.history, shown.before, report)
        if shown.before is not None:
            shown.marks = marks.marks(shown.before, report)
            for line in marks.hot_plugged(shown.before, report):
                self.log(line)
                self._notice(line)
        self._changed()

    def _end(self, status: int) -> None:
        """The run is over; one that has brought no report says why on stderr."""
        progress, self.child, self._shown.progress = self._shown.progress, None, None
        if progress is not None:
            self._shown.problem = f"the run has brought no report: {self._said or f'it ended with {status}'}"
        self._changed()
        if self.ended is not None:
            self.ended()


def _text(lines: Sequence[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace")
