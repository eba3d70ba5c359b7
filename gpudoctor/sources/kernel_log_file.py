"""A bare kernel log as a file: a node of which nothing else is known.

What dmesg or journalctl printed, a file of syslog's, or a container's log with such lines in it, compressed or not. Of a large one only
the lines that matter are kept (probes/log_search.py). Where several boots lie in it, the last two are told apart.
"""

from itertools import islice
from pathlib import Path

from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.log_lines import DRIVERS, LONGEST_PREFIX, MARK, plain_lines
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.raw import Absent, Log, SourceKind
from gpudoctor.patterns import pattern
from gpudoctor.probes.log_search import Boot, search
from gpudoctor.sources.compressed import Damaged, Unpacked, form_of
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Unread, Why

HEAD = 64 * 1024
_LOOKED_AT = 400
"""So many of the first lines tell what a file is."""
_DRIVER_ERROR = pattern(r"NVRM: (?:Xid \(|GPU )|nvidia-nvswitch\d+: SXid \(")
_SINCE_BOOT = pattern(
    r"\s*(?:<\d+>)?(?:\w+\s*:\w+\s*: )?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? (?!\((?:II|--|\*\*|==|WW|EE)\))"
)
"""As the kernel stamps its messages, and the X server its own, which begin with a mark (os/log.c)."""
_RECORD = pattern(r"\d{1,3},\d+,\d+,[^;\s]{1,40};")


class KernelLogFile(RecordedNode):
    """The log as a recorded node."""

    kind = SourceKind.BUG_REPORT

    def __init__(self, last: Boot, previous: Boot | None, notes: tuple[str, ...] = ()) -> None:
        """`notes` are worth telling whoever asked for it."""
        super().__init__(Tree())
        self.logs[NAME] = Log(NAME, last.text, source="file", from_boot=last.from_boot)
        boots = ""
        if previous is not None:
            self.logs[PREVIOUS] = Log(PREVIOUS, previous.text, source="file", from_boot=previous.from_boot)
            boots = ", of its last two boots"
        self.notes = (f"holds kernel messages{boots}, and nothing else of the node", *notes)
        if not last.whole:
            self.notes += ("the messages in the middle of the last boot are left out: there are too many",)

    def unrecorded(self, path: str) -> Absent | Unread:
        """What to say of a path: a kernel log does not tell."""
        return Unread(Why.NOT_RECORDED, path, "is not in a kernel log")


def is_kernel_log(head: bytes) -> bool:
    """Whether a file that begins so is a kernel log: most of its first lines are the kernel's, or one is the driver's own."""
    lines = [line for line in plain_lines(islice(head.split(b"\n"), _LOOKED_AT)) if line.strip()][:_LOOKED_AT]
    kernels = sum(_is_kernels(line) for line in lines)
    return kernels > 0 and (2 * kernels > len(lines) or any(DRIVERS.match(split(line)[1]) for line in lines))


def _is_kernels(line: str) -> bool:
    stamped = _SINCE_BOOT.match(line) is not None or _RECORD.match(line) is not None
    return stamped or MARK in line[:LONGEST_PREFIX] or DRIVERS.match(split(line)[1]) is not None


def open_kernel_log(path: Path) -> KernelLogFile | None:
    """The node behind a file, compressed or not; None when it is no kernel log. Raises OSError and SourceError.

    Where it does not begin as one, it counts when the driver tells of an error somewhere in it, as in the log of a container.
    """
    head = head_of(path)
    with path.open("rb") as file:
        form = form_of(file.read(16))
        file.seek(0)
        text = _Text(Unpacked(file, form))
        boots = search(text.read, kernel_only=_is_mixed(head))
    if boots is None or not (is_kernel_log(head) or _DRIVER_ERROR.search(boots.last.text)):
        return None
    return KernelLogFile(boots.last, boots.previous, (text.trouble,) if text.trouble else ())


class _Text:
    """The text of a file up to where it is damaged: a log that was cut off is one all the same."""

    def __init__(self, source: Unpacked) -> None:
        self._source = source
        self.trouble = ""

    def read(self, size: int) -> bytes:
        """At most so many bytes, none at the end."""
        try:
            return b"" if self.trouble else self._source.read(size)
        except Damaged as error:
            self.trouble = f"only what stands before the damage is read: {error}"
            return b""


def head_of(path: Path) -> bytes:
    """How a file begins once it is unpacked; empty where it cannot be. Raises OSError."""
    with path.open("rb") as file:
        form = form_of(file.read(16))
        file.seek(0)
        try:
            return Unpacked(file, form).read(HEAD)
        except (Damaged, SourceError):
            return b""


def _is_mixed(head: bytes) -> bool:
    """Whether other programs speak too, and the kernel is named where it does: as in syslog's files and the journal."""
    lines = list(plain_lines(islice(head.split(b"\n"), _LOOKED_AT)))
    return any(MARK in line[:LONGEST_PREFIX] and _SINCE_BOOT.match(line) is None for line in lines)
