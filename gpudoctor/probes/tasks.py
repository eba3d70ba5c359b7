"""Tasks as /proc shows them: state, kernel stack, and whether they move at all.

Only stat, status, stack and wchan are read; cmdline and environ can block on a stuck task's memory lock.
"""

import os
import time
from collections.abc import Iterable

from msgspec import Struct


class Task(Struct, frozen=True):
    """One task at one moment; `hidden` without the privilege to read its stack, then `wchan` stands in when it is known."""

    pid: int
    comm: str
    state: str
    stack: str
    switches: int
    started_ticks: int = 0
    hidden: bool = False


KTHREADD = 2
"""The PID of the kernel's thread of that name, which every view of all tasks shows and no partial one does."""


class Row(Struct, frozen=True):
    """One process of the table; `started` in clock ticks after boot."""

    pid: int
    comm: str
    state: str
    parent: int
    started: int


class TaskTable:
    """The tasks of one moment by PID; read once, when somebody first asks."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self._rows: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """Each process."""
        if self._rows is None:
            self._rows = tuple(self._look())
        return self._rows

    @property
    def tasks(self) -> tuple[tuple[int, str, str], ...]:
        """PID, name and state of each process."""
        return tuple((row.pid, row.comm, row.state) for row in self.rows)

    @property
    def whole(self) -> bool:
        """Whether all tasks can be seen: no PID namespace and no hidepid hides any."""
        return any(row.pid == KTHREADD and row.comm == "kthreadd" for row in self.rows)

    def named(self, comm: str, owners: tuple[int, ...]) -> list[Task]:
        """Those of that name that still live (neither zombie nor dead) and belong to one of these users: anybody can take a name."""
        candidates = (pid for pid, name, _ in self.tasks if name == comm and _owner(self.proc, pid) in owners)
        found = (read_task(pid, self.proc) for pid in candidates)
        return [task for task in found if task is not None and task.comm == comm and task.state not in ("Z", "X")]

    def _look(self) -> Iterable[Row]:
        for name in os.listdir(self.proc):
            if name.isdecimal() and (stat := _stat(self.proc, int(name))) is not None:
                comm, fields = stat
                yield Row(int(name), comm, fields[0], int(fields[1]), int(fields[19]))


def read_task(pid: int, proc: str = "/proc") -> Task | None:
    """The task, None when it is gone. A thread is a task too, though listings of /proc leave it out."""
    stat = _stat(proc, pid)
    if stat is None:
        return None
    comm, fields = stat
    stack, wchan = _read(f"{proc}/{pid}/stack"), _read(f"{proc}/{pid}/wchan") or ""
    return Task(
        pid=pid,
        comm=comm,
        state=fields[0],
        stack=(stack or "").strip() or ("" if wchan in ("", "0") else f"[wchan] {wchan}"),
        switches=_switches(proc, pid),
        started_ticks=int(fields[19]),
        hidden=stack is None,
    )


def _stat(proc: str, pid: int) -> tuple[str, list[str]] | None:
    """The task's name and the fields behind it, beginning with the state.

    The name stands in parentheses and may itself hold any character, so the last one closes it (proc(5)).
    """
    stat = _read(f"{proc}/{pid}/stat")
    if not stat:
        return None
    return stat[stat.find("(") + 1 : stat.rfind(")")], stat[stat.rfind(")") + 2 :].split()


def _owner(proc: str, pid: int) -> int | None:
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None


def _switches(proc: str, pid: int) -> int:
    """How often the task has left the processor: a stuck one does not, a slow one does."""
    lines = (_read(f"{proc}/{pid}/status") or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if "_ctxt_switches:" in line)


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")
    except OSError:
        return None


class StackWatch:
    """Looks at a task again and again and knows for how long its state, stack and context switches have not changed."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._pid = pid
        self._proc = proc
        self._since = time.monotonic()
        self._seen_at = self._since
        self.last: Task | None = None

    def look(self) -> Task | None:
        """Take a sample; None when the task is gone."""
        task = read_task(self._pid, self._proc)
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
