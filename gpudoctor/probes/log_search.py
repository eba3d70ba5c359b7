"""Looks for the lines that matter in kernel logs of any size, and keeps no more of them in memory than can be read.

A log that is small is kept whole. In a larger one the words of facts/log_anchors.py are looked for, in pieces of the file or by a grep in
a child; a message's further lines, and the stack behind a report of the kernel, are kept with it. Where several boots lie in one log, the
last two are kept.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from gpudoctor.facts.log_anchors import ANCHORS, BOOT_WORDS, Anchor, extended_expression
from gpudoctor.facts.log_lines import LONGEST_PREFIX, is_kernels, plain_lines
from gpudoctor.facts.log_stamps import split
from gpudoctor.probes.child import run_child
from gpudoctor.probes.deadline import Deadline

CHUNK = 256 * 1024
"""As much of a log is looked through at once."""
LONGEST_LINE = 8 * 1024
"""Of a longer line the beginning is kept: no message of the kernel is longer (LOG_LINE_MAX, kernel/printk/internal.h)."""
WHOLE = 2 * 1024 * 1024
"""A log of this size is kept as it is."""
MOST_FIRST = 512 * 1024
MOST_LAST = 1536 * 1024
"""Of what is found in a boot as much is kept: how it began, and how it ended."""
CONTINUED = 16
"""Lines of a message after its first, where they have no time of their own."""
EARLY = 2 * 1024 * 1024
"""As much of a log may a kernel print while it starts."""
_SAMPLE = 8 * 1024
_SAMPLED_EVERY = 32
_FEW = 192
"""So often a letter may occur in a chunk for looking at each to be quicker than looking for the words."""
_GREP_OUTPUT = 4 * 1024 * 1024
_GREP_SECONDS = 10.0
_BEHIND = LONGEST_LINE


class Boot(Struct, frozen=True):
    """What is kept of one boot's messages; whether it `begins` with the first, and whether nothing that matters was left out."""

    text: str
    begins: bool
    whole: bool

    @property
    def from_boot(self) -> bool:
        """Whether no message that matters is missing since the boot."""
        return self.begins and self.whole


class Boots(Struct, frozen=True):
    """The last boot in a log and the one before it. `lines` is how many lines with words that matter, or in all, were kept."""

    last: Boot
    previous: Boot | None
    lines: int

    def behind(self, older: "Boots") -> "Boots":
        """These after those of an older file: where none begins here, the last one began there."""
        if self.last.begins:
            return self if self.previous is not None else Boots(self.last, older.last, self.lines)
        begun = older.last
        last = Boot(begun.text + self.last.text, begun.begins, begun.whole and self.last.whole)
        return Boots(last, older.previous, self.lines + older.lines)


def search(
    read: Callable[[int], bytes], *, kernel_only: bool = False, deadline: Deadline | None = None
) -> Boots | None:
    """Look through a log piece by piece; `read` gives at most so many bytes, none at the end. None when the deadline came first.

    With `kernel_only` lines of other programs in it are left out, as syslog mixes them. Raises what `read` raises.
    """
    head = _read(read, WHOLE + 1)
    finder = _Finder(kernel_only=kernel_only)
    if len(head) <= WHOLE:
        finder.take_all(head)
        return finder.boots
    rest = b""
    pieces = (head[start : start + CHUNK] for start in range(0, len(head), CHUNK))
    for piece in _chained(pieces, read):
        chunk = rest + piece if rest else piece
        end = chunk.rfind(b"\n") + 1
        if not end:
            # A line longer than a chunk: its beginning is kept until it ends.
            rest = chunk[:LONGEST_LINE]
            continue
        rest = chunk[end:]
        finder.feed(chunk if end == len(chunk) else chunk[:end])
        if deadline is not None and deadline.remaining <= 0:
            return None
    if rest:
        finder.feed(rest + b"\n")
    finder.take_end()
    return finder.boots


def search_by_grep(place: str, deadline: Deadline, *, kernel_only: bool = False) -> Boots | None:
    """The same of a file through grep(1); None where that cannot be: without grep, when it floods, or in time."""
    try:
        if os.path.getsize(place) <= WHOLE:
            return None
        argv = ("grep", "-a", "-b", "-E", "-e", extended_expression(), "--", place)
        environment = {**os.environ, "LC_ALL": "C"}
        end = run_child(argv, deadline.sooner(_GREP_SECONDS), environment=environment, most_bytes=_GREP_OUTPUT)
        if end.abandoned is not None or end.exit not in (0, 1):
            return None
        with open(place, "rb", buffering=0) as file:
            finder = _Finder(kernel_only=kernel_only)
            finder.take_first(os.pread(file.fileno(), LONGEST_LINE, 0))
            _take_found(end.stdout, file.fileno(), finder)
            finder.look_at_end(os.pread(file.fileno(), LONGEST_LINE, max(0, os.path.getsize(place) - LONGEST_LINE)))
            finder.take_end()
            return finder.boots
    except OSError:
        return None


def _read(read: Callable[[int], bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := read(min(size, CHUNK))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _chained(pieces: Iterable[bytes], read: Callable[[int], bytes]) -> Iterable[bytes]:
    yield from pieces
    while piece := read(CHUNK):
        yield piece


def _take_found(printed: bytes, descriptor: int, finder: "_Finder") -> None:
    """Take lines that grep printed with their places, and from the file what follows each."""
    found = [line.partition(b":") for line in printed.splitlines()]
    for number, (place, _, line) in enumerate(found):
        finder.take(line[:LONGEST_LINE], _after(line), known=place == b"0")
        behind = int(place) + len(line) + 1
        limit = int(found[number + 1][0]) - behind if number + 1 < len(found) else _BEHIND
        while limit > 0 and finder.wants_more:
            block = os.pread(descriptor, min(limit, _BEHIND), behind)
            whole = block.rfind(b"\n") + 1
            finder.pass_by(block, 0, whole or len(block))
            if len(block) < min(limit, _BEHIND) or not whole:
                break
            behind, limit = behind + whole, limit - whole


def _after(line: bytes) -> int:
    return max((anchor.after for words, anchor in _BY_WORDS if anchor.after and words in line), default=0)


_BY_WORDS = tuple((anchor.words.encode(), anchor) for anchor in ANCHORS)
_BOOT = BOOT_WORDS.encode()


class _Kept:
    """Lines of one boot, the first ones and the last ones."""

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._first_bytes = 0
        self._last_bytes = 0
        self._dropped = 0

    def add(self, line: bytes) -> None:
        if self._first_bytes < MOST_FIRST:
            self._first.append(line)
            self._first_bytes += len(line) + 1
            return
        self._last.append(line)
        self._last_bytes += len(line) + 1
        while self._last_bytes > MOST_LAST:
            self._last_bytes -= len(self._last.popleft()) + 1
            self._dropped += 1

    def boot(self, *, kernel_only: bool) -> Boot:
        lines = plain_lines((*self._first, *self._last), kernel_only=kernel_only)
        return Boot("".join(f"{line}\n" for line in lines), self.begins, not self._dropped)


class _Finder:
    """Takes a log's lines, keeps those that matter, and knows which of the next ones belong to them."""

    def __init__(self, *, kernel_only: bool) -> None:
        self._kernel_only = kernel_only
        self._last = _Kept(begins=False)
        self._previous: _Kept | None = None
        self._lines = 0
        self._latest = self._end = b""
        self._follow = 0
        self._joined = 0
        self._timed = False
        self._fed = 0
        self._early_until = EARLY
        self._plan: list[tuple[bytes, bytes, int, Anchor]] = []
        self._chunks = 0

    @property
    def boots(self) -> Boots:
        """What was kept so far."""
        previous = self._previous.boot(kernel_only=self._kernel_only) if self._previous is not None else None
        return Boots(self._last.boot(kernel_only=self._kernel_only), previous, self._lines)

    @property
    def wants_more(self) -> bool:
        """Whether lines after the last one taken may belong to it."""
        return self._follow > 0 or self._joined > 0

    def take_all(self, text: bytes) -> None:
        """Take every line of a text."""
        for line in text.split(b"\n"):
            if line:
                self._add(line[:LONGEST_LINE])

    def _add(self, line: bytes) -> None:
        if _BOOT in line and _begins_boot(line):
            self._previous, self._last = self._last if self._lines else None, _Kept(begins=True)
        self._keep(line)
        self._lines += 1

    def _keep(self, line: bytes) -> None:
        self._last.add(line)
        self._latest = line

    def take_first(self, text: bytes) -> None:
        """Take the first line of a log, and its last by `take_end`: they tell from when to when it reaches."""
        line = text[: text.find(b"\n") if b"\n" in text else len(text)][:LONGEST_LINE]
        if not self._foreign(line):
            self._add(line)

    def look_at_end(self, text: bytes) -> None:
        """Remember the last line of a text."""
        self._end = text.rstrip(b"\n").rpartition(b"\n")[2][:LONGEST_LINE]

    def take_end(self) -> None:
        """There are no more lines."""
        if self._end not in (b"", self._latest) and not self._foreign(self._end):
            self._add(self._end)

    def take(self, line: bytes, after: int, *, known: bool = False) -> None:
        """Take a line, which so many others follow; one that is `known` was taken already."""
        if self._foreign(line):
            return
        if not known:
            self._add(line)
        self._follow = max(self._follow, after)
        # A further line of a message that has words that matter itself.
        self._timed = _is_timed(line) or (self._timed and self._joined > 0)
        self._joined = CONTINUED

    def pass_by(self, text: bytes, start: int, end: int) -> None:
        """Look at whole lines that have no words that matter, as long as they may belong to the last one taken."""
        while start < end and self.wants_more:
            stop = text.find(b"\n", start, end)
            stop = end if stop < 0 else stop
            line = text[start : min(stop, start + LONGEST_LINE)]
            if self._follow > 0 and not self._foreign(line):
                self._follow -= 1
                self._keep(line)
            elif self._joined > 0 and self._continues(line):
                self._joined -= 1
                self._keep(line)
            else:
                self._joined = 0
                self._follow = max(0, self._follow - 1)
            start = stop + 1

    def _foreign(self, line: bytes) -> bool:
        return self._kernel_only and not is_kernels(line[: 2 * LONGEST_PREFIX].decode("utf-8", "replace"))

    def _continues(self, line: bytes) -> bool:
        """Whether a line without a time belongs to a message that has one."""
        return (self._timed or line[:1] in b" \t") and not _is_timed(line)

    def feed(self, chunk: bytes) -> None:
        """Look through whole lines."""
        if self._chunks % _SAMPLED_EVERY == 0:
            self._plan = _planned(chunk)
        if self._chunks == 0:
            self.take_first(chunk)
        self._chunks += 1
        self.look_at_end(chunk[-LONGEST_LINE:])
        cursor = 0
        for place, anchor in self._found(chunk):
            if place < cursor:
                self._follow = max(self._follow, anchor.after)
                continue
            begin = chunk.rfind(b"\n", cursor, place) + 1 or cursor
            end = chunk.find(b"\n", place)
            self.pass_by(chunk, cursor, begin)
            line = chunk[begin : min(end, begin + LONGEST_LINE)]
            if not anchor.beside or any(words.encode() in line for words in anchor.beside):
                self.take(line, anchor.after, known=begin == 0 and self._chunks == 1)
                cursor = end + 1
            else:
                cursor = begin
        self.pass_by(chunk, cursor, len(chunk))
        self._fed += len(chunk)

    def _found(self, chunk: bytes) -> list[tuple[int, Anchor]]:
        """Where words that matter stand, in order."""
        found: list[tuple[int, Anchor]] = []
        for words, letter, offset, anchor in self._plan:
            if anchor.early and self._fed > self._early_until:
                continue
            if letter:
                _by_letter(chunk, words, letter, offset, anchor, found)
            else:
                _by_words(chunk, words, 0, anchor, found)
            if words == _BOOT and found and found[-1][1] is anchor:
                self._early_until = self._fed + EARLY
        found.sort(key=lambda one: one[0])
        return found


def _is_timed(line: bytes) -> bool:
    return line[:2] == b"[ " or split(line[:200].decode("utf-8", "replace"))[0] != ""


def _begins_boot(line: bytes) -> bool:
    return split(line[:400].decode("utf-8", "replace"))[1].startswith(BOOT_WORDS)


def _planned(chunk: bytes) -> list[tuple[bytes, bytes, int, Anchor]]:
    """For each anchor the letter of it that such text has least often, and where it stands; none where that would be no quicker."""
    often = Counter(chunk[:_SAMPLE])
    scale = max(1, len(chunk) // _SAMPLE)
    plan = []
    for words, anchor in _BY_WORDS:
        offset = min(range(len(words)), key=lambda place: often[words[place]])
        few = often[words[offset]] * scale <= _FEW
        plan.append((words, words[offset : offset + 1] if few else b"", offset, anchor))
    return plan


def _by_letter(
    chunk: bytes, words: bytes, letter: bytes, offset: int, anchor: Anchor, found: list[tuple[int, Anchor]]
) -> None:
    """Look at each place of a rare letter; where it is not rare after all, for the words."""
    place = chunk.find(letter)
    looked = 0
    while place >= 0:
        if chunk.startswith(words, max(0, place - offset)):
            found.append((place - offset, anchor))
        looked += 1
        if looked > 4 * _FEW:
            _by_words(chunk, words, place - offset + 1, anchor, found)
            return
        place = chunk.find(letter, place + 1)


def _by_words(chunk: bytes, words: bytes, start: int, anchor: Anchor, found: list[tuple[int, Anchor]]) -> None:
    place = chunk.find(words, max(0, start))
    while place >= 0:
        found.append((place, anchor))
        # One place in a line is enough.
        place = chunk.find(words, chunk.find(b"\n", place))
