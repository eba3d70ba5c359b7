"""What the kernel says of its own health: the taint flags."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, decimal
from gpudoctor.verdicts import Evidence, Unread, Why

TAINTED = "/proc/sys/kernel/tainted"

HARM = {7: ("D", "an oops or BUG"), 4: ("M", "a machine check"), 14: ("L", "a soft lockup")}
"""The flags that tell of harm, by bit (Documentation/admin-guide/tainted-kernels.rst); the module's own are P, O and E."""


class KernelTaint(Fact, frozen=True):
    """The flags as a number."""

    flags: int

    @classmethod
    def gather(cls, desk: Desk) -> "KernelTaint | Unread":
        """One decimal number."""
        file = desk.raw.read(TAINTED)
        if isinstance(file, Unread):
            return file
        flags = None if isinstance(file, Absent) else decimal(file.text.strip())
        if flags is None:
            return Unread(Why.UNREADABLE, TAINTED, "holds no number")
        return cls(flags=flags, read_from={"flags": Evidence(TAINTED, str(flags))})

    @property
    def harm(self) -> tuple[tuple[str, str], ...]:
        """Letter and meaning of each flag that tells of harm."""
        return tuple(words for bit, words in HARM.items() if self.flags >> bit & 1)
