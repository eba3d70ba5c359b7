"""Tasks in uninterruptible sleep, and who has the driver's device nodes open: both from /proc alone."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpudoctor.facts.cgroup_paths import DELETED
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.facts.tasks import IN_DRIVER, OWN, STUCK_AFTER_SECONDS
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.guarded import read_files
from gpudoctor.probes.tasks import KTHREADD, Row, StackWatch, Task, TaskTable

SECONDS_FOR_OTHERS = 8.0
"""What watching leaves of the run's time, for NVML above all."""
SAMPLE_SECONDS = 0.2
MOST_SLEEPERS = 4096
"""A hung file system can hold thousands of tasks; more than this many are not looked at one by one, and that is said."""
_NODE = re.compile(r"/dev/nvidia\S*")
_UNIT = re.compile(r"[^/]+\.(?:service|scope|slice)\b|[0-9a-f]{64}")


def look_at_sleepers(question: Question, deadline: Deadline, table: TaskTable) -> Answer:
    """The tasks in state D with their kernel stacks; those inside the driver are watched for whether they move.

    `also` in the question names threads that the kernel's log called hung: listings of /proc leave threads out.
    """
    pids = list(dict.fromkeys((*_asleep_or_threads(table), *question.arguments.get("also", ()))))
    watches = {pid: StackWatch(pid, table.proc) for pid in pids[:MOST_SLEEPERS]}
    asleep = {pid: task for pid, watch in watches.items() if (task := watch.look()) is not None and task.state == "D"}
    inside = [pid for pid, task in asleep.items() if IN_DRIVER.search(task.stack) and task.comm not in OWN]
    until = time.monotonic() + max(0.0, min(STUCK_AFTER_SECONDS + 1.0, deadline.remaining - SECONDS_FOR_OTHERS))
    while inside and time.monotonic() < until:
        time.sleep(SAMPLE_SECONDS)
        inside = [pid for pid in inside if (task := watches[pid].look()) is not None and task.state == "D"]
    data = {
        "tasks": len(table.tasks),
        "whole": table.whole,
        "unseen": max(0, len(pids) - MOST_SLEEPERS),
        "sleeping": [_sleeper(asleep[pid], watches[pid], still=pid in inside) for pid in sorted(asleep)],
    }
    return Answer(data=data, via="/proc")


def _asleep_or_threads(table: TaskTable) -> Iterator[int]:
    """The sleepers, and the threads of processes whose first thread has ended: what is left of a killed one that cannot end."""
    for pid, _, state in table.tasks:
        if state == "D":
            yield pid
        elif state == "Z":
            try:
                yield from (int(name) for name in os.listdir(f"{table.proc}/{pid}/task") if name != str(pid))
            except (OSError, ValueError):
                continue


def _sleeper(task: Task, watch: StackWatch, *, still: bool) -> dict[str, Any]:
    return {
        "pid": task.pid,
        "comm": task.comm,
        "state": task.state,
        "stack": task.stack,
        "unchanged_seconds": watch.unchanged_seconds,
        "still": still and watch.last == task,
        "hidden": task.hidden,
    }


def look_for_holders(table: TaskTable, root: str, deadline: Deadline, own: TaskTable) -> Answer:
    """The processes that have one of the driver's nodes open or mapped, with the control group of each.

    A mapping keeps a node in use when its descriptor is closed (mmap(2)). /proc/PID/maps and map_files both take the lock of the
    process's memory (fs/proc/task_mmu.c, fs/proc/base.c), which a task stuck in the driver may hold: so maps are read in a child, and
    of them only the lines about the driver. `own` are the doctor's own tasks: readers that earlier runs left behind are among them.
    """
    holders: dict[int, dict[str, Any]] = {}
    rest: list[Row] = []
    hidden = 0
    for row in table.rows:
        try:
            nodes = _open_nodes(f"{table.proc}/{row.pid}", row.state)
        except PermissionError:
            hidden += 1
            continue
        # It ended meanwhile.
        except OSError:
            continue
        if nodes:
            holders[row.pid] = _holder(table, row, nodes=nodes)
        elif row.state not in ("Z", "X"):
            rest.append(row)
    unseen = 0
    for row, mapped in _mapping(table, rest, root, deadline, own):
        if mapped is None:
            unseen += 1
        else:
            holders[row.pid] = _holder(table, row, mapped=mapped)
    listed = [holders[pid] for pid in sorted(holders)]
    return Answer(data={"holders": listed, "hidden": hidden, "unmapped": unseen}, via="/proc")


def _holder(table: TaskTable, row: Row, *, nodes: Sequence[str] = (), mapped: Sequence[str] = ()) -> dict[str, Any]:
    text = _text(f"{table.proc}/{row.pid}/cgroup")
    return {
        "pid": row.pid,
        "comm": row.comm,
        "nodes": list(nodes),
        "mapped": list(mapped),
        "unit": _unit(text),
        "cgroup": text,
        "state": row.state,
        "parent": row.parent,
    }


def _open_nodes(process: str, state: str) -> list[str]:
    """The nodes behind a process's descriptors; one whose first thread has ended keeps them while another thread lives."""
    directories = [f"{process}/fd"]
    if state == "Z":
        directories = [f"{process}/task/{thread}/fd" for thread in os.listdir(f"{process}/task")]
    links = {link.removesuffix(DELETED) for directory in directories for link in _links(directory)}
    return sorted(link for link in links if _NODE.fullmatch(link))


def _links(directory: str) -> Iterator[str]:
    for name in os.listdir(directory):
        try:
            yield os.readlink(f"{directory}/{name}")
        except FileNotFoundError:
            continue


def _mapping(
    table: TaskTable, rows: Sequence[Row], root: str, deadline: Deadline, own: TaskTable
) -> Iterator[tuple[Row, list[str] | None]]:
    """Processes that have a node mapped, None for one whose maps could not be read in time; those in state D are asked last."""
    asked = sorted((row for row in rows if row.parent != KTHREADD), key=lambda row: row.state == "D")
    paths = {f"/proc/{row.pid}/maps": row for row in asked}
    if not paths or deadline.remaining <= SECONDS_FOR_OTHERS:
        return
    seen = read_files(root, tuple(paths), deadline, own, keep=_NODE.pattern)
    for said in seen.lines:
        mapped = sorted(set(_NODE.findall(said.get("text", ""))))
        if mapped:
            yield paths[said["path"]], mapped
    yield from ((paths[path], None) for path in seen.stuck_at if path in paths)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except OSError:
        return ""


def _unit(text: str) -> str:
    """The last unit or container id on the process's cgroup path, "" when there is none (cgroups(7))."""
    units = max((_UNIT.findall(line) for line in text.splitlines()), key=len, default=[])
    return units[-1] if units else ""
