"""Whether a workload runs on CPUs near its GPUs.

Sources: Documentation/ABI/testing/sysfs-bus-pci (local_cpulist, numa_node, -1 where the firmware does not tell); proc_pid_status(5)
(Cpus_allowed_list, to which the cpuset of its cgroup is applied already, cpuset(7)).
"""

from gpudoctor.facts.process_status import ProcessStatus, overlap
from gpudoctor.facts.raw import Absent
from gpudoctor.trace import Step, StepId, passed, skipped, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.sight import Nearness, Sight
from gpudoctor.verdicts import Cited, Unread, Why


def judge_placement(sight: Sight) -> Step:
    """Far from all its GPUs is worth a word; far from some of them it can hardly help."""
    if not sight.nearness:
        return skipped(StepId.NUMA, "no GPU is inside of which the place is known")
    status = sight.status
    if not isinstance(status, ProcessStatus):
        unread = Unread(Why.UNREADABLE, status.where, status.detail) if isinstance(status, Absent) else status
        return unknown(StepId.NUMA, unread)
    if status.cpus is None:
        return unknown(StepId.NUMA, Unread(Why.UNREADABLE, status.path, "lists no CPUs that it may run on"))
    known = [one for one in sight.nearness.values() if isinstance(one, Nearness) and one.cpus is not None]
    told = [one for one in known if one.node is not None and one.node >= 0]
    if not told:
        unseen = next((one for one in sight.nearness.values() if isinstance(one, Unread)), None)
        if unseen is not None:
            return unknown(StepId.NUMA, unseen)
        return skipped(StepId.NUMA, "the platform does not tell which CPUs are near its GPUs")
    return _judged(sight, status, told)


def _judged(sight: Sight, status: ProcessStatus, told: list[Nearness]) -> Step:
    assert status.cpus is not None
    near = [one for one in told if one.cpus is not None and overlap(one.cpus, status.cpus)]
    evidence = (*status.cite("cpus"), *_cited(told))
    if not near:
        nodes = ", ".join(str(node) for node in sorted({one.node or 0 for one in told}))
        said = f"none of its CPUs is near its GPUs, which are on NUMA node {nodes}: copies between them are slower"
        return warned(StepId.NUMA, said, evidence, *remedies.nearer_cpus(sight.workload))
    some = (
        f"{len(near)} of its {len(told)} GPUs"
        if len(near) < len(told)
        else "all its GPUs"
        if len(told) > 1
        else "its GPU"
    )
    return passed(StepId.NUMA, f"CPUs near {some} are among those it may run on", evidence)


def _cited(told: list[Nearness]) -> Cited:
    return tuple(one.evidence for one in told[:4])
