"""Whose process an Xid names: alive, with its container, pod or job; else as the line has it.

The driver names the process by its number on the node, whatever namespace it lives in, and by the first 15 letters of its name
(open-gpu-kernel-modules, kernel_rc.c; TASK_COMM_LEN in include/linux/sched.h). The number can be another process's by now: the name tells.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.facts.xid_events import Hit
from gpudoctor.facts.xid_lines import MOST_COMM
from gpudoctor.verdicts import Cited, Evidence, Unread


class Owner(Struct, frozen=True):
    """A process in words, `python3 (pid 4242) in container web`, and what tells that."""

    words: str
    alive: bool = False
    evidence: Cited = ()


def owners(desk: Desk, hits: Iterable[Hit]) -> Mapping[Hit, Owner]:
    """Who they are; the node's processes are looked at only where there is a number to look for."""
    asked = tuple(dict.fromkeys(hits))
    numbered = [hit for hit in asked if hit.pid]
    processes = desk.get(Processes) if numbered else None
    if not isinstance(processes, Processes):
        return {hit: Owner(_words(hit)) for hit in asked}
    living = {process.pid: process for process in processes.processes}
    workloads = desk.get(Workloads)
    by_pid = {} if isinstance(workloads, Unread) else workloads.by_pid
    return {hit: _owner(hit, living, by_pid) for hit in asked}


def as_written(hits: Iterable[Hit]) -> Mapping[Hit, Owner]:
    """Who they were, by their lines: what ran in another boot does not live."""
    return {hit: Owner(_words(hit)) for hit in hits}


def _owner(hit: Hit, living: Mapping[int, Process], by_pid: Mapping[int, Workload]) -> Owner:
    process = living.get(hit.pid or 0)
    if process is None or not _same(process, hit):
        return Owner(_words(hit))
    workload = by_pid.get(process.pid)
    named = Hit(hit.pid, hit.name or process.comm)
    place = f" in {_place(workload)}" if workload is not None else ""
    seen = Evidence(f"/proc/{process.pid}/stat", f"{process.pid} ({process.comm}) {process.state}".rstrip())
    evidence = (seen, *(workload.cite("cgroup") if workload is not None else ()))
    return Owner(_words(named) + place, alive=True, evidence=evidence)


def _same(process: Process, hit: Hit) -> bool:
    """Whether the number still is that process's: both are cut to the same length."""
    return not hit.name or not process.comm or process.comm[:MOST_COMM] == hit.name[:MOST_COMM]


def _words(hit: Hit) -> str:
    if hit.pid is None:
        return hit.name
    return f"{hit.name} (pid {hit.pid})" if hit.name else f"pid {hit.pid}"


def _place(workload: Workload) -> str:
    if workload.pod is not None and workload.pod.name:
        inner = f", container {workload.pod.container}" if workload.pod.container else ""
        return f"pod {workload.pod.namespace or 'default'}/{workload.pod.name}{inner}"
    if workload.kind is GroupKind.CONTAINER:
        return f"container {workload.name or workload.short_id or workload.key}"
    return f"job {workload.id}" if workload.kind is GroupKind.JOB else workload.name or workload.id
