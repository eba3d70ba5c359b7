"""What one process may do and where: whose it is, its capabilities, its CPUs, how much memory it may lock.

Sources: proc_pid_status(5), proc_pid_limits(5), capabilities(7), cpuset(7) ("List format"), path_resolution(7) (permissions).
"""

import re
from typing import TypeAlias

from msgspec import Struct

from gpudoctor.facts.desk import Citable
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

DAC_OVERRIDE, IPC_LOCK = 1, 14
"""Numbers of two capabilities (include/uapi/linux/capability.h)."""
READ_WRITE = 0o6

Cpus: TypeAlias = tuple[tuple[int, int], ...]
"""First and last of each range."""

_RANGE = pattern(r"(\d{1,6})(?:-(\d{1,6}))?")
_LOCKED = pattern(r"^Max locked memory +(unlimited|\d{1,20}) ", re.MULTILINE)


class ProcessStatus(Citable, frozen=True):
    """`uid` and `gid` are those that count for files, as the reader's user namespace names them; None where they are not told."""

    path: str
    uid: int | None
    gid: int | None
    groups: frozenset[int]
    capabilities: int | None
    cpus: Cpus | None

    def has(self, capability: int) -> bool | None:
        """Whether it has a capability in its own user namespace."""
        return None if self.capabilities is None else bool(self.capabilities >> capability & 1)

    def may_open(self, entry: Entry, *, in_first_namespace: bool | None) -> bool | None:
        """Whether mode and owner let it read and write; None where that is not known.

        The first class that fits decides: owner, then group, then others. CAP_DAC_OVERRIDE passes over that only where owner and group
        have names in its user namespace (capable_wrt_inode_uidgid in kernel/capability.c), as all have in the first one.
        """
        if entry.mode is None:
            return None
        if entry.mode & 0o666 == 0o666:
            return True
        if self.uid is None or self.gid is None or entry.uid is None or entry.gid is None:
            return None
        if entry.uid == self.uid:
            bits = entry.mode >> 6
        elif entry.gid == self.gid or entry.gid in self.groups:
            bits = entry.mode >> 3
        else:
            bits = entry.mode
        if bits & READ_WRITE == READ_WRITE:
            return True
        overrides = self.has(DAC_OVERRIDE)
        return False if in_first_namespace is False or overrides is False else overrides and in_first_namespace


def read_status(raw: Raw, pid: int) -> ProcessStatus | Absent | Unread:
    """From /proc/PID/status, which everybody may read and which takes no lock of the process's memory."""
    file = raw.read(f"/proc/{pid}/status")
    if not isinstance(file, TextFile):
        return file
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in file.text.splitlines())}
    uids, gids = fields.get("Uid", "").split(), fields.get("Gid", "").split()
    said = [
        f"{name}: {' '.join(fields[name].split())}" for name in ("Uid", "Gid", "Groups", "CapEff") if name in fields
    ]
    return ProcessStatus(
        path=file.path,
        uid=decimal(uids[3]) if len(uids) == 4 else None,
        gid=decimal(gids[3]) if len(gids) == 4 else None,
        groups=frozenset(number for word in fields.get("Groups", "").split() if (number := decimal(word)) is not None),
        capabilities=_hexadecimal(fields.get("CapEff", "")),
        cpus=parse_cpus(fields.get("Cpus_allowed_list", "")),
        read_from={
            "owner": Evidence(file.where, "; ".join(said) or "tells nothing of its owner"),
            "cpus": Evidence(file.where, f"Cpus_allowed_list: {fields.get('Cpus_allowed_list', 'not listed')}"),
        },
    )


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch("[0-9a-f]{1,16}", text) else None


def parse_cpus(text: str) -> Cpus | None:
    """A list of CPUs, `0-3,8`; None for anything else, and for none."""
    ranges = [_RANGE.fullmatch(word) for word in text.strip().split(",")]
    if not all(ranges):
        return None
    return tuple((int(found[1]), int(found[2] or found[1])) for found in ranges if found is not None)


def overlap(one: Cpus, other: Cpus) -> bool:
    """Whether two lists have a CPU in common."""
    return any(first <= end and begin <= last for first, last in one for begin, end in other)


class LockedMemory(Struct, frozen=True):
    """How many bytes a process may lock, None for any number."""

    bytes: int | None
    evidence: Evidence


def read_locked_memory(raw: Raw, pid: int) -> LockedMemory | Absent | Unread:
    """The soft limit in /proc/PID/limits: `Max locked memory  8388608  8388608  bytes`."""
    file = raw.read(f"/proc/{pid}/limits")
    if not isinstance(file, TextFile):
        return file
    found = _LOCKED.search(file.text)
    if found is None:
        return Unread(Why.UNREADABLE, file.path, "lists no limit of locked memory")
    return LockedMemory(decimal(found[1]), Evidence(file.where, f"Max locked memory: {found[1]}"))
