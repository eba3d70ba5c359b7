"""Tasks as /proc shows them: state, kernel stack, and whether they move at all.

Only stat, status, stack and wchan are read; cmdline and environ can block on a stuck task's memory lock.
"""

import os
import time
from collections.abc import Iterator

from msgspec import Struct


class Task(Struct, frozen=True):
    """One task at one moment; `stack` is empty without the privilege to read it, then `wchan` stands in when it is known."""

    pid: int
    comm: str
    state: str
    stack: str
    switches: int
    started_ticks: int = 0


def read_task(pid: int) -> Task | None:
    """The task, None when it is gone."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The name stands in parentheses and may itself hold any character, so the last one closes it (proc(5)).
    comm = stat[stat.find("(") + 1 : stat.rfind(")")]
    fields = stat[stat.rfind(")") + 2 :].split()
    wchan = _read(f"/proc/{pid}/wchan")
    return Task(
        pid=pid,
        comm=comm,
        state=fields[0],
        stack=_read(f"/proc/{pid}/stack").strip() or ("" if wchan in ("", "0") else f"[wchan] {wchan}"),
        switches=_switches(pid),
        started_ticks=int(fields[19]),
    )


def tasks_named(comm: str, owners: tuple[int, ...]) -> Iterator[Task]:
    """The live tasks of that name (neither zombie nor dead) that belong to one of these users: anybody can take a name."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and f"({comm})" in _read(f"/proc/{name}/stat") and _owner(name) in owners:
            task = read_task(int(name))
            if task is not None and task.state not in ("Z", "X"):
                yield task


def _owner(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _switches(pid: int) -> int:
    """How often the task has left the processor: a stuck one does not, a slow one does."""
    lines = _read(f"/proc/{pid}/status").splitlines()
    return sum(int(line.split()[1]) for line in lines if "_ctxt_switches:" in line)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""


class StackWatch:
    """Looks at a task again and again and knows for how long its state, stack and context switches have not changed."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since = time.monotonic()
        self._seen_at = self._since
        self.last: Task | None = None

    def look(self) -> Task | None:
        """Take a sample; None when the task is gone."""
        task = read_task(self._pid)
        now = time.monotonic()
        if task != self.last:
            self._since = now
            self.last = task
        self._seen_at = now
        return task

    @property
    def unchanged_seconds(self) -> float:
        """Between the first and the last of the samples that were all alike."""
        return round(self._seen_at - self._since, 1)
