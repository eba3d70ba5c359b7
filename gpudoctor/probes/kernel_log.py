"""The kernel's messages of this boot: from /dev/kmsg, else through journalctl."""

import os

from gpudoctor.facts.device_files import KMSG, KMSG_NUMBERS
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType, Log
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.verdicts import Unread, Why

JOURNALCTL = ("journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic")
MAX_RECORDS = 200_000


def read_kernel_log(root: str, deadline: Deadline) -> Log | Unread:
    """The log in the form that `dmesg` prints."""
    refused: OSError | None = None
    try:
        place = _kmsg(root)
        text, first = _read_kmsg(place) if place is not None else ("", -1)
        if first >= 0:
            return Log("kernel.log", text, source="kmsg", from_boot=first == 0)
    except OSError as error:
        refused = error
    if root == "/":
        output = run_command(JOURNALCTL, deadline.sooner(5.0))
        if isinstance(output, CommandOutput) and output.exit == 0 and output.stdout.count("\n") > 1:
            return Log("kernel.log", output.stdout, source="journal")
    why = Why.NO_PERMISSION if isinstance(refused, PermissionError) else Why.UNREADABLE
    reason = (refused.strerror or "not readable").lower() if refused else "there is no kernel log device"
    return Unread(why, "kernel log", reason, would_need="root or group adm")


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
