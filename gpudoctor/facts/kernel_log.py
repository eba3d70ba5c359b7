"""The kernel's messages of this boot, and of the one before."""

import re
from typing import TypeVar

from msgspec.structs import replace

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.log_stamps import split, stamped
from gpudoctor.facts.raw import Log
from gpudoctor.verdicts import Evidence, Unread

LogT = TypeVar("LogT", bound="KernelLog")
NAME = "kernel.log"
PREVIOUS = "kernel.previous.log"


class KernelLog(Fact, frozen=True):
    """Kernel messages, oldest first; `from_boot` says that none was lost since the boot, the rest is as a `Log` has it."""

    text: str
    where: str
    from_boot: bool
    timezone: str = ""

    @classmethod
    def gather(cls, desk: Desk) -> "KernelLog | Unread":
        """The log named `kernel.log`."""
        return cls.of(desk.raw.log(NAME))

    @classmethod
    def of(cls: type[LogT], log: Log | Unread) -> LogT | Unread:
        """A log as the fact."""
        if isinstance(log, Unread):
            return log
        return cls(text=log.text, where=log.where, from_boot=log.from_boot, timezone=log.timezone)

    def lines(self, pattern: "re.Pattern[str]", anchor: str) -> list[Evidence]:
        """The messages that match, oldest first.

        Lines are looked at only where `anchor`, a literal part of the pattern, occurs: a log can have millions of them.
        """
        found = []
        start = self.text.find(anchor)
        while start >= 0:
            begin = self.text.rfind("\n", 0, start) + 1
            end = self.text.find("\n", start)
            end = len(self.text) if end < 0 else end
            line = self.text[begin:end]
            if pattern.search(line):
                found.append(self._evidence(line))
            start = self.text.find(anchor, end)
        return found

    def since(self, words: str) -> "KernelLog":
        """The log from the last line on in which some words occur, the whole log where they do not."""
        place = self.text.rfind(words)
        return self if place < 0 else replace(self, text=self.text[self.text.rfind("\n", 0, place) + 1 :])

    def before(
        self, words: str, pattern: "re.Pattern[str]", most: int = 16, until: "re.Pattern[str] | None" = None
    ) -> tuple[Evidence, ...]:
        """The last message whose first line matches, among the last few lines before the last occurrence of some words.

        A message of several lines has its time before the first one only; where no line has a time each is a message. What lies
        before a message that matches `until` belongs to that one.
        """
        place = self.text.rfind(words)
        lines = self.text[max(0, place - 200 * most) : self.text.rfind("\n", 0, max(0, place)) + 1].splitlines()[-most:]
        timed = [stamped(line) for line in lines]
        messages: list[list[str]] = []
        for line, begins in zip(lines, timed, strict=True):
            if messages and not begins and any(timed):
                messages[-1].append(line)
            else:
                messages.append([line])
        for message in reversed(messages):
            if pattern.search(message[0]):
                return tuple(self._evidence(line) for line in message)
            if until is not None and until.search(message[0]):
                break
        return ()

    def after(self, words: str, pattern: "re.Pattern[str]", most: int = 4) -> tuple[Evidence, ...]:
        """The matching ones among the few messages after the last occurrence of some words: NVRM breaks its sentences into lines."""
        place = self.text.rfind(words)
        if place < 0:
            return ()
        lines = self.text[place : place + 200 * most].splitlines()[1 : most + 1]
        return tuple(self._evidence(line) for line in lines if pattern.search(line))

    def _evidence(self, line: str) -> Evidence:
        time, message = split(line)
        return Evidence(self.where, message, at=time or None)


class PreviousKernelLog(KernelLog, frozen=True):
    """Kernel messages of the boot before this one, as far as something kept them; live only NVIDIA's."""

    @classmethod
    def gather(cls, desk: Desk) -> "PreviousKernelLog | Unread":
        """The log named `kernel.previous.log`."""
        return cls.of(desk.raw.log(PREVIOUS))
