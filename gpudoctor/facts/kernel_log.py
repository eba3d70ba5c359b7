"""The kernel's messages of this boot."""

import re

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.verdicts import Evidence, Unread

# The time that `dmesg` prints before a message: seconds since boot, or a date with -T.
_STAMP = re.compile(r"^(?:<\d+>)?\[\s*([^\]]+)\]\s*")


class KernelLog(Fact, frozen=True):
    """Kernel messages, oldest first; `from_boot` says that none was lost since the boot."""

    text: str
    where: str
    from_boot: bool

    @classmethod
    def gather(cls, desk: Desk) -> "KernelLog | Unread":
        """The log named `kernel.log`."""
        log = desk.raw.log("kernel.log")
        return log if isinstance(log, Unread) else cls(text=log.text, where=log.where, from_boot=log.from_boot)

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

    def _evidence(self, line: str) -> Evidence:
        stamp = _STAMP.match(line)
        if stamp is None:
            return Evidence(self.where, line.strip())
        return Evidence(self.where, line[stamp.end() :].strip(), at=stamp[1].strip())
