"""The kernel's messages that matter, kept from pass to pass: what a ring buffer has lost is put before what it still has.

A line is recognised by its text, which begins with its time since the boot. Lines that matter are those of facts/log_anchors.py, with
the lines that belong to them; of those the first and the last are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.log_moments import since_boot
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.raw import Log
from gpudoctor.facts.xid_lines import ANCHOR, OFF_THE_BUS, SXidLine, XidLine, find_all
from gpudoctor.health.answer import Event

MOST_FIRST, MOST_LAST = 500, 1500
"""So many lines of a boot are kept: how it began, and how it ended."""
LONGEST_LINE = 1000
PIECED = ", then "
"""In the source of a log that begins with what a journal or a file still has of NVIDIA's messages: nothing else is whole of the time before
the ring buffer (probes/kernel_log.py).
"""
MOST_CONTINUED = 16
MOST_EVENTS = 64


class Kept(Struct, frozen=True):
    """What is kept of one boot: `count` lines, of which `dropped` are lost again. `cursor` is the last line of the log as it was last read.

    `whole` says that no line that matters is lost since the boot: the log reached back to it once, and at each pass to the one before.
    `fetch` gives the lines: mostly the log still has them all, and nobody asks.
    """

    cursor: str = ""
    whole: bool = False
    dropped: int = 0
    count: int = 0
    fetch: Callable[[], Sequence[str]] = tuple

    @property
    def lines(self) -> Sequence[str]:
        """The lines that are still there, oldest first."""
        return self.fetch() if self.count else ()


class Read(Struct, frozen=True):
    """A log with what it has lost, what is to be kept of it, and those of its lines that no pass has seen yet."""

    log: Log
    kept: Kept
    new: str
    added: tuple[str, ...]


def read(log: Log, kept: Kept, *, first: bool) -> Read:
    """The log of this boot against what was kept of it; `first` is the first pass of a boot."""
    pieced = PIECED in log.source
    new, meets = _since(log.text, kept, pieced=pieced)
    whole = log.from_boot if first else kept.whole and (meets or log.from_boot)
    lines = () if log.from_boot or first else kept.lines
    earlier = _before(lines, log.text)
    between = _not_there(lines[len(earlier) :], log.text) if pieced else ()
    if not whole:
        # Between the two something is lost: without errors to tell of, the log is to speak for the time that it covers.
        begin = next(
            (place for place, line in enumerate(earlier) if ANCHOR in line or OFF_THE_BUS in line), len(earlier)
        )
        earlier = earlier[begin:]
    added = tuple(_that_matter(new))
    count = kept.count + len(added)
    after = Kept(_last_line(log.text) or kept.cursor, whole, max(0, count - MOST_FIRST - MOST_LAST), count)
    if earlier or between:
        text = "".join(f"{line}\n" for line in earlier) + (_between(between, log.text) if between else log.text)
        log = replace(log, text=text, source=f"what was kept of it, then {log.source}")
    if whole and not after.dropped:
        log = replace(log, from_boot=True)
    return Read(log, after, new, added)


def after_the_last_pass(previous: str, kept: Kept) -> str:
    """What the log of the boot before has beyond what passes of that boot saw; its times may be written otherwise."""
    lines = kept.lines
    if not lines:
        return previous
    last = split(lines[-1])[1]
    place = previous.rfind(last) if last else -1
    if place < 0:
        return ""
    end = previous.find("\n", place)
    return previous[end + 1 :] if end >= 0 else ""


def events(text: str, addresses: Mapping[str, str], *, previous_boot: bool = False) -> tuple[Event, ...]:
    """The errors that NVIDIA's drivers tell of, by GPU or switch and number; `addresses` are the GPUs' by slot."""
    if ANCHOR not in text and OFF_THE_BUS not in text:
        return ()
    from gpudoctor.knowledge.xids import xid

    found: dict[tuple[str, str], Event] = {}
    for line in find_all(text):
        if isinstance(line, SXidLine):
            if line.detail:
                continue
            gpu, code, area = line.address, f"SXid {line.code}", "nvswitch"
        else:
            gpu = addresses.get(line.slot, f"{line.slot}.0" if line.slot else "")
            code, area = _code(line), xid(line.code).area.value
        before = found.get((gpu, code))
        count = before.count + 1 if before is not None else 1
        first = before.first if before is not None else line.at
        found[gpu, code] = Event(gpu, code, count, area, first, line.at, line.message[:LONGEST_LINE], previous_boot)
    return tuple(found.values())[:MOST_EVENTS]


def _code(line: XidLine) -> str:
    return f"Xid {line.code}" if line.numbered else "off the bus"


def _since(text: str, kept: Kept, *, pieced: bool) -> tuple[str, bool]:
    """What comes after the cursor, and whether the log still reaches back to it; what is older does not tell that in a pieced one."""
    if not kept.cursor:
        return text, False
    place = text.rfind(kept.cursor)
    if place >= 0 and (place == 0 or text[place - 1] == "\n"):
        end = text.find("\n", place)
        return (text[end + 1 :] if end >= 0 else ""), True
    last = since_boot(split(kept.cursor)[0])
    begin = 0
    for line in text.splitlines(keepends=True):
        at = since_boot(split(line)[0])
        if last is None or at is None or at > last:
            break
        begin += len(line)
    return text[begin:], begin > 0 and not pieced


def _that_matter(text: str) -> Iterator[str]:
    if not text:
        return
    from gpudoctor.facts.log_anchors import ANCHORS

    follow = 0
    for line in text.split("\n"):
        anchor = next((one for one in ANCHORS if one.words in line), None)
        if anchor is not None:
            follow = max(anchor.after, MOST_CONTINUED)
            belongs = True
        else:
            belongs = follow > 0 and (follow > MOST_CONTINUED or not line.startswith(("[", "<")))
            follow = follow - 1 if belongs else 0
        if belongs and line:
            yield line[:LONGEST_LINE]


def _before(lines: Sequence[str], text: str) -> Sequence[str]:
    """The kept lines that are older than the first of the log."""
    begin = text.find("\n")
    first = text[: begin if begin >= 0 else len(text)]
    oldest = since_boot(split(first)[0])
    if oldest is None:
        from gpudoctor.facts.log_joining import joined

        whole = joined(lines, text)
        return whole[: -len(text)].splitlines() if whole else ()
    older: list[str] = []
    for line in lines:
        at = since_boot(split(line)[0])
        # A line without a time belongs to the one before it.
        if at is not None and at >= oldest:
            break
        older.append(line)
    return older


def _not_there(lines: Sequence[str], text: str) -> Sequence[str]:
    """The kept lines that a pieced log has lost: those of NVIDIA's drivers it has, as another wrote them down."""
    from gpudoctor.facts.log_anchors import NVIDIA_WORDS

    there = set(text.split("\n")) if lines else set()
    return [line for line in lines if line not in there and not any(words in line for words in NVIDIA_WORDS)]


def _between(lines: Sequence[str], text: str) -> str:
    """Lines put before the first of the log's that are younger."""
    parts: list[str] = []
    begin, place = 0, 0
    for line in text.splitlines(keepends=True):
        at = since_boot(split(line)[0])
        while place < len(lines) and at is not None and (since_boot(split(lines[place])[0]) or 0.0) < at:
            parts.append(f"{lines[place]}\n")
            place += 1
        if place == len(lines):
            break
        parts.append(line)
        begin += len(line)
    return "".join((*parts, text[begin:], *(f"{line}\n" for line in lines[place:])))


def _last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]
