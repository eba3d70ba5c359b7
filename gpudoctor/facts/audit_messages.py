"""What the kernel's audit tells of accesses that SELinux or AppArmor denied, about GPUs and about user namespaces, since the boot.

Where auditd runs, it takes the messages and keeps them in its own file; else the kernel prints them (kernel/audit.c, kauditd_hold_skb;
auditd.conf(5), log_file). Sources of the messages: security/selinux/avc.c (avc_audit_post_callback), security/apparmor/audit.c.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Entry, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

AUDIT_LOG = "/var/log/audit/audit.log"
TURNED_OVER = f"{AUDIT_LOG}.1"
AUDITD = "auditd"
MOST_READ = 1 << 24
"""Of the file as much is looked through; by default it is turned over at half of that (auditd.conf(5), max_log_file)."""

_ABOUT = r"(?:nvidia|libcuda|libnvcuvid|userns_create|unprivileged_userns)"
KEEP = rf"(?:avc: +denied|apparmor=\"DENIED\").*{_ABOUT}"
"""Of the audit's file no other line is held or recorded."""
_ANCHORS = ("avc: ", 'apparmor="DENIED"')

_FIELD = pattern(r'(\w+)=("[^"]*"|\S+)')
_TIME = pattern(r"audit\((\d{1,11})\.\d+:\d+\)")

GPU_NODE = pattern(r"(?:/dev/)?(?:nvidia-caps/)?nvidia(?:\d{1,3}|ctl|-uvm(?:-tools)?|-modeset|-cap\d{1,4})")
"""The driver's nodes by the last part of their names, as an AVC has it, or by path, as AppArmor has it."""
DRIVER_FILE = pattern(r"(?:/[\w./-]*/)?(?:lib(?:cuda|nvcuvid|nvidia-[\w-]+)\.so(?:\.\d+)*|nvidia-smi)")


class Message(Struct, frozen=True):
    """One denial: its fields without their quotes, and the line."""

    fields: dict[str, str]
    evidence: Evidence

    def get(self, name: str) -> str:
        """A field, "" where the message has none."""
        return self.fields.get(name, "")

    @property
    def pid(self) -> int:
        """The process that was denied, by its number in the first PID namespace (dump_common_audit_data, task_tgid_nr)."""
        return decimal(self.get("pid")) or 0

    @property
    def target(self) -> str:
        """The path or the last part of a name, whichever is told."""
        return self.get("path") or self.get("name")

    @property
    def about_gpu(self) -> bool:
        """Whether it is about a node or a file of the driver, and not about some other file with its name in it."""
        return GPU_NODE.fullmatch(self.target) is not None or DRIVER_FILE.fullmatch(self.target) is not None


class AuditMessages(Fact, frozen=True):
    """The denials, oldest first. `unseen` is why there may be more; `searched` says what was looked through."""

    messages: tuple[Message, ...]
    unseen: Unread | None
    searched: Cited

    @classmethod
    def gather(cls, desk: Desk) -> "AuditMessages | Unread":
        """Asked for only where one of the two confines: the audit's file is large, and read in a child."""
        log = desk.get(KernelLog)
        found: list[Evidence] = []
        searched: list[Evidence] = []
        unseen: Unread | None = None
        if isinstance(log, Unread):
            unseen = log
        else:
            found += [line for anchor in _ANCHORS for line in log.lines(re.compile(KEEP), anchor)]
            searched.append(Evidence(log.where, f"{len(found)} denials about GPUs or user namespaces"))
            if not log.from_boot:
                unseen = Unread(Why.NOT_ANSWERED, log.where, "no longer reaches back to the boot")
        kept = _audit_log(desk)
        if isinstance(kept, TextFile):
            lines = [line for line in kept.text.splitlines() if line]
            booted = booted_at(desk.raw)
            unseen = _turned_over(desk, booted) or unseen
            found += [Evidence(kept.where, line.strip()) for line in lines if _since(line, booted)]
            searched.append(Evidence(kept.where, f"{len(lines)} denials about GPUs or user namespaces"))
        elif isinstance(kept, Unread):
            unseen = kept
        return cls(messages=tuple(_messages(found)), unseen=unseen, searched=tuple(searched))


def _audit_log(desk: Desk) -> TextFile | Unread | None:
    """The lines that matter; None where nothing writes such a file."""
    entry = desk.raw.entry(AUDIT_LOG)
    if not isinstance(entry, Entry):
        processes = desk.get(Processes)
        if isinstance(processes, Unread) and isinstance(entry, Absent):
            return None
        if not isinstance(processes, Unread) and all(one.comm != AUDITD for one in processes.processes):
            return None
        elsewhere = f"is not there, and {AUDITD} runs: it keeps its messages elsewhere"
        return entry if isinstance(entry, Unread) else Unread(Why.NOT_ANSWERED, AUDIT_LOG, elsewhere)
    if (entry.size or 0) > MOST_READ:
        return Unread(Why.NOT_ANSWERED, AUDIT_LOG, "is larger than what is looked through")
    file = desk.raw.read_blocking((AUDIT_LOG,), keep=KEEP)[AUDIT_LOG]
    return None if isinstance(file, Absent) else file


def _turned_over(desk: Desk, booted: int | None) -> Unread | None:
    """Whether messages of this boot went into an older file (auditd.conf(5), max_log_file_action = rotate)."""
    older = desk.raw.entry(TURNED_OVER)
    if not isinstance(older, Entry) or (booted is not None and older.mtime is not None and older.mtime < booted):
        return None
    return Unread(Why.NOT_ANSWERED, AUDIT_LOG, f"was turned over since the boot: {TURNED_OVER} holds what came before")


def _since(line: str, booted: int | None) -> bool:
    """The file holds what came before the boot, too."""
    told = _TIME.search(line)
    return booted is None or told is None or int(told[1]) >= booted


def _messages(lines: Iterable[Evidence]) -> Iterable[Message]:
    for line in lines:
        fields = {name: value.strip('"') for name, value in _FIELD.findall(line.shows)}
        yield Message(fields, Evidence(line.where, line.shows[:400], at=line.at))
