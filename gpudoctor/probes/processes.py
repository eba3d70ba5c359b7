"""All processes with their control groups and namespaces, from /proc: files that never block, cgroup, stat and the links of ns."""

import os
from collections.abc import Iterator

from gpudoctor.facts.raw import Answer
from gpudoctor.probes.tasks import KTHREADD, Row, TaskTable

NAMESPACES = ("mnt", "pid", "user")


def look_at_processes(table: TaskTable) -> Answer:
    """Each process but the kernel's threads; each text of /proc/PID/cgroup and each set of namespaces once.

    Reading the group of each process costs some 9 µs. Walking all groups for their cgroup.procs costs about half, but in each of the
    hierarchies of v1, and leaves out what has ended and waits to be collected (Documentation/admin-guide/cgroup-v2.rst).
    """
    cgroups: dict[str, int] = {}
    namespaces: dict[tuple[int, ...], int] = {}
    processes: list[tuple[int, int, int, str, str, int, int]] = []
    hidden = 0
    for row in _of_users(table):
        text = _cgroup(f"{table.proc}/{row.pid}/cgroup")
        # It ended meanwhile.
        if text == "":
            continue
        hidden += text is None
        cgroup = -1 if text is None else cgroups.setdefault(text, len(cgroups))
        links = _namespaces(f"{table.proc}/{row.pid}/ns")
        number = -1 if links is None else namespaces.setdefault(links, len(namespaces))
        processes.append((row.pid, row.parent, row.started, row.comm, row.state, cgroup, number))
    data = {
        "processes": processes,
        "cgroups": list(cgroups),
        "namespaces": list(namespaces),
        "whole": table.whole,
        "hidden": hidden,
    }
    return Answer(data=data, via="/proc")


def _of_users(table: TaskTable) -> Iterator[Row]:
    """Whatever is not one of the kernel's threads, which kthreadd starts."""
    kthreadd = KTHREADD if table.whole else -1
    return (row for row in table.rows if kthreadd not in (row.pid, row.parent))


def _cgroup(path: str) -> str | None:
    """The file's text, "" for a process that is gone, None where it is not shown."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError:
        return None


def _namespaces(folder: str) -> tuple[int, ...] | None:
    """The inode numbers behind `mnt:[4026531841]`; None without the privilege to see them, and of what has ended."""
    try:
        return tuple(int(os.readlink(f"{folder}/{name}").partition("[")[2][:-1]) for name in NAMESPACES)
    except (OSError, ValueError):
        return None
