"""Tasks in uninterruptible sleep, and who has the driver's device nodes open: both from /proc alone."""

import os
import re
import time
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.raw import Answer, Question
from gpudoctor.facts.tasks import IN_DRIVER, OWN, STUCK_AFTER_SECONDS
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.tasks import StackWatch, Task, TaskTable

SECONDS_FOR_OTHERS = 8.0
"""What watching leaves of the run's time, for NVML above all."""
SAMPLE_SECONDS = 0.2
MOST_SLEEPERS = 4096
"""A hung file system can hold thousands of tasks; more than this many are not looked at one by one, and that is said."""
KTHREADD = 2
"""The PID of the kernel's thread of that name, which every view of all tasks shows and no partial one does."""

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
        "whole": any(pid == KTHREADD and name == "kthreadd" for pid, name, _ in table.tasks),
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


def look_for_holders(table: TaskTable) -> Answer:
    """The processes that have one of the driver's nodes open, with the unit or container each belongs to."""
    holders: list[dict[str, Any]] = []
    hidden = 0
    for pid, comm, _ in table.tasks:
        try:
            nodes = _open_nodes(f"{table.proc}/{pid}/fd")
        except PermissionError:
            hidden += 1
            continue
        # It ended meanwhile.
        except OSError:
            continue
        if nodes:
            holders.append({"pid": pid, "comm": comm, "nodes": nodes, "unit": _unit(f"{table.proc}/{pid}/cgroup")})
    return Answer(data={"holders": holders, "hidden": hidden}, via="/proc")


def _open_nodes(directory: str) -> list[str]:
    links = set()
    for name in os.listdir(directory):
        try:
            links.add(os.readlink(f"{directory}/{name}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if _NODE.fullmatch(link))


def _unit(path: str) -> str:
    """The last unit or container id on the process's cgroup path, "" when there is none (cgroups(7))."""
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            found = [_UNIT.findall(line) for line in file]
    except OSError:
        return ""
    units = max(found, key=len, default=[])
    return units[-1] if units else ""
