"""Tasks in uninterruptible sleep, and who has the driver's device nodes open: both from /proc alone."""

import os
import re
import time
from typing import Any

from gpudoctor.facts.raw import Answer, Question
from gpudoctor.facts.tasks import OWN
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.tasks import StackWatch, Task, TaskTable

WATCH_SECONDS = 2.2
"""For how long a sleeper inside the driver is watched; a little longer than what a fact calls hung."""
SAMPLE_SECONDS = 0.2
MOST_WATCHED = 64
"""A hung file system can hold thousands of tasks; their stacks add nothing."""

_IN_DRIVER = re.compile(r"\[nvidia[\w-]*\]")
_NODE = re.compile(r"/dev/nvidia\S*")
_UNIT = re.compile(r"[^/]+\.(?:service|scope|slice)\b|[0-9a-f]{64}")


def look_at_sleepers(question: Question, deadline: Deadline, table: TaskTable) -> Answer:
    """The tasks in state D with their kernel stacks; those inside the driver are watched for whether they move.

    `also` in the question names threads that the kernel's log called hung: listings of /proc leave threads out.
    """
    pids = [pid for pid, _, state in table.tasks if state == "D"]
    pids += [pid for pid in question.arguments.get("also", ()) if pid not in pids]
    watches = {pid: StackWatch(pid, table.proc) for pid in pids[:MOST_WATCHED]}
    asleep = {pid: task for pid, watch in watches.items() if (task := watch.look()) is not None and task.state == "D"}
    inside = [pid for pid, task in asleep.items() if _IN_DRIVER.search(task.stack) and task.comm not in OWN]
    until = min(time.monotonic() + WATCH_SECONDS, time.monotonic() + deadline.remaining - 1.0)
    while inside and time.monotonic() < until:
        time.sleep(SAMPLE_SECONDS)
        inside = [pid for pid in inside if (task := watches[pid].look()) is not None and task.state == "D"]
    sleeping = [_sleeper(task, watches[pid].unchanged_seconds) for pid, task in sorted(asleep.items())]
    return Answer(data={"tasks": len(table.tasks), "sleeping": sleeping}, via="/proc")


def _sleeper(task: Task, unchanged_seconds: float) -> dict[str, Any]:
    return {
        "pid": task.pid,
        "comm": task.comm,
        "state": task.state,
        "stack": task.stack,
        "unchanged_seconds": unchanged_seconds,
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
