"""The kernel's messages: from /dev/kmsg, else through journalctl, else from the files that syslog writes.

Where the ring buffer has wrapped, what the journal or those files still have of NVIDIA's messages of this boot is put before it.
"""

import os
import stat
import time
from typing import TYPE_CHECKING

from gpudoctor.facts.device_files import KMSG, KMSG_NUMBERS
from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType, Log
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.verdicts import Unread, Why

if TYPE_CHECKING:
    from gpudoctor.probes.log_search import Boots

JOURNALCTL = ("journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic")
MAX_RECORDS = 200_000
SECONDS = 5.0
SECONDS_OF_A_SEARCH = 3.0
"""What came before is no more than a second thought: a run waits no longer for all places together."""

LOG_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
"""Where rsyslog and syslog-ng keep the kernel's messages: Debian and Ubuntu, RHEL and SUSE, older Debian; group adm may read the first."""
_TURNED_OVER = ".1"


def read_kernel_log(root: str, deadline: Deadline) -> Log | Unread:
    """The log of this boot, in the form that `dmesg` prints where it comes from the kernel itself."""
    refused: OSError | None = None
    try:
        place = _kmsg(root)
        text, first = _read_kmsg(place) if place is not None else ("", -1)
        if first == 0:
            return Log(NAME, text, source="kmsg", from_boot=True)
        if first > 0:
            return _with_earlier(text, root, deadline)
    except OSError as error:
        refused = error
    if root == "/":
        output = run_command(JOURNALCTL, deadline.sooner(SECONDS))
        if isinstance(output, CommandOutput) and output.exit == 0 and output.stdout.count("\n") > 1:
            return Log(NAME, output.stdout, source="journal")
    kept = _from_files(NAME, root, deadline)
    if kept is not None:
        return kept
    why = Why.NO_PERMISSION if isinstance(refused, PermissionError) else Why.UNREADABLE
    reason = (refused.strerror or "not readable").lower() if refused else "there is no kernel log device"
    return Unread(why, "kernel log", reason, would_need="root or group adm")


def read_previous_log(root: str, deadline: Deadline) -> Log | Unread:
    """NVIDIA's messages of the boot before this one."""
    deadline = deadline.sooner(SECONDS_OF_A_SEARCH)
    if root == "/":
        lines = _journal_lines("-1", "short-iso", deadline)
        if lines:
            return Log(PREVIOUS, "".join(f"{line}\n" for line in lines), source="journal")
        if lines is not None:
            # The journal has that boot, and nothing of NVIDIA in it.
            return Log(PREVIOUS, "", source="journal")
    kept = _from_files(PREVIOUS, root, deadline)
    if kept is not None:
        return kept
    where = "kernel log of the boot before"
    return Unread(Why.NOT_RECORDED, where, "neither the journal nor a log file that can be read reaches back to it")


def _with_earlier(ring: str, root: str, deadline: Deadline) -> Log:
    """The ring buffer, and before it what it has lost of NVIDIA's messages."""
    from gpudoctor.facts.log_joining import about_nvidia, joined

    deadline = deadline.sooner(SECONDS_OF_A_SEARCH)
    lines = _journal_lines("0", "short-monotonic", deadline) if root == "/" else None
    whole = joined(lines, ring) if lines else None
    if whole is not None:
        return Log(NAME, whole, source="the journal, then kmsg")
    kept = _from_files(NAME, root, deadline) if lines is None else None
    whole = joined(list(about_nvidia(kept.text)), ring) if kept is not None else None
    if kept is not None and whole is not None:
        return Log(NAME, whole, source=f"{kept.source}, then kmsg")
    return Log(NAME, ring, source="kmsg")


def _journal_lines(boot: str, form: str, deadline: Deadline) -> list[str] | None:
    """What the journal has of a boot's kernel messages about NVIDIA, None where that cannot be told.

    The pattern has capital letters, so that journalctl minds their case; where nothing matches, it exits with 1 and says so.
    """
    from gpudoctor.facts.log_anchors import NVIDIA_WORDS

    pattern = "|".join(NVIDIA_WORDS)
    argv = ("journalctl", "-k", "-b", boot, "--no-pager", "--no-hostname", "-q", "-o", form, "--grep", pattern)
    output = run_command(argv, deadline)
    if not isinstance(output, CommandOutput) or output.stderr.strip() or output.exit not in (0, 1):
        return None
    lines = [line for line in output.stdout.splitlines() if line.strip() and not line.startswith("-- ")]
    return lines if lines or _has_boot(boot, deadline) else None


def _has_boot(boot: str, deadline: Deadline) -> bool:
    """Whether the journal has any message of the kernel of a boot: then that none is NVIDIA's is an answer."""
    argv = ("journalctl", "-k", "-b", boot, "--no-pager", "-q", "-o", "cat", "-n", "1")
    output = run_command(argv, deadline.sooner(1.0))
    return isinstance(output, CommandOutput) and output.exit == 0 and bool(output.stdout.strip())


def _from_files(name: str, root: str, deadline: Deadline) -> Log | None:
    """What the first of the files that can be read, and that was written to since the boot, keeps of a boot's kernel messages."""
    files = LiveFiles(root)
    for path in LOG_FILES:
        boots = _boots(files, path, root, deadline, written_since_boot=True)
        if boots is None:
            continue
        if not boots.last.begins or (name == PREVIOUS and boots.previous is None):
            older = _boots(files, path + _TURNED_OVER, root, deadline)
            boots = boots if older is None else boots.behind(older)
        boot = boots.last if name == NAME else boots.previous
        if boot is not None and boot.text:
            return Log(name, boot.text, source=path, from_boot=boot.from_boot)
    return None


def _boots(
    files: LiveFiles, path: str, root: str, deadline: Deadline, *, written_since_boot: bool = False
) -> "Boots | None":
    """The last boots in a file; None where it cannot be read, or not in time, or holds nothing of the kernel's."""
    from gpudoctor.probes.log_search import search, search_by_grep

    try:
        place = files.place(path, follow=True)
        status = os.stat(place)
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if not stat.S_ISREG(status.st_mode) or (written_since_boot and status.st_mtime < booted):
            return None
        limit = deadline.sooner(SECONDS)
        found = search_by_grep(place, limit, kernel_only=True) if root == "/" else None
        if found is None:
            with open(place, "rb", buffering=0) as file:
                found = search(file.read, kernel_only=True, deadline=limit)
    except OSError:
        return None
    return found if found is not None and (found.last.text or found.previous is not None) else None


def _kmsg(root: str) -> str | None:
    """The kernel's log device, and only that: containers link the name to their console, which must not be read."""
    files = LiveFiles(root)
    entry = files.entry(KMSG)
    is_kmsg = isinstance(entry, Entry) and entry.type is EntryType.CHAR and (entry.major, entry.minor) == KMSG_NUMBERS
    return files.place(KMSG, follow=False) if is_kmsg else None


def _read_kmsg(path: str) -> tuple[str, int]:
    """All records now in the ring buffer and the sequence number of the first: 0 when none was overwritten yet.

    The format is `priority,sequence,microseconds,flags;text`, continuation lines begin with a space
    (Documentation/ABI/testing/dev-kmsg).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    lines: list[str] = []
    first = -1
    try:
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            # The record was overwritten while we read: the next read goes on after the gap.
            except BrokenPipeError:
                continue
            if not record:
                break
            head, _, text = record.decode("utf-8", "backslashreplace").partition(";")
            _, sequence, microseconds = head.split(",")[:3]
            first = int(sequence) if first < 0 else first
            lines.extend(_as_dmesg(int(microseconds), text.split("\n", 1)[0]))
    finally:
        os.close(descriptor)
    return "\n".join(lines) + "\n", first


def _as_dmesg(microseconds: int, message: str) -> list[str]:
    """A record as `dmesg` prints it: the time before its first line only.

    The device escapes a line break within a message as `\\x0a`; NVRM writes whole paragraphs in one.
    """
    seconds, rest = divmod(microseconds, 1_000_000)
    first, *more = message.split("\\x0a")
    return [f"[{seconds:5d}.{rest:06d}] {first}", *(line for line in more if line)]
