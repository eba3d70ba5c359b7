"""Device rules of control groups: may each workload open the nodes it has, and will it still after systemd's next reload?"""

from collections.abc import Iterable, Sequence

from gpudoctor.chain import Link
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.systemd_reloads import SystemdReloads
from gpudoctor.facts.toolkit_cgroups import ToolkitCgroups
from gpudoctor.facts.unit_devices import DeviceUnit, UnitDevices
from gpudoctor.facts.workload_access import Accesses, NodeAccess, WorkloadAccess
from gpudoctor.facts.workload_denials import Around, Denial, Denied, given_by_config, why_denied
from gpudoctor.facts.workload_requests import meant
from gpudoctor.knowledge import workload_remedies as remedies
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

RULES, SURVIVES = "cgroup.device-rules", "cgroup.survives-reload"
MOST_NAMED = 4


@check(RULES, link=Link.CGROUP, over=GpuWorkloads, title="Every workload may open the GPU nodes it has")
def device_rules(
    workloads: GpuWorkloads,
    access: WorkloadAccess,
    units: UnitDevices,
    toolkit: ToolkitCgroups,
    reloads: SystemdReloads,
) -> Verdicts:
    """A container can have /dev/nvidia0 and be refused all the same: then NVML says "Unknown Error" and CUDA finds no GPU.

    Beside the node, a process needs the leave of its control group: on cgroup v2 all eBPF programs must allow the device, on v1 the
    list devices.list. Here the programs are run on paper and the lists read, for reading and writing, of each node in the workload's
    own /dev; nothing is opened. The kernel asks in this order: no node (ENOENT), a mode, owner or nodev mount that forbids it
    (EACCES), these rules (EPERM), no driver (ENXIO): the first two are workload.nodes-inside. Told apart are rules that were taken away
    later, as systemd does at a daemon-reload, and rules that never were. A v1 list that allows everything does not show what was
    denied after that. A job, or a container with the node's whole /dev, sees nodes that it was not given: it needs one GPU that it may
    open. What SELinux denies is not seen here.
    """
    for one in workloads:
        found = _judgeable(one, access)
        around = Around(units.by_key.get(one.workload.key), toolkit.no_cgroups)
        yield _judge(one, found, around, reloads) if isinstance(found, Accesses) else found


def _judgeable(one: GpuWorkload, access: WorkloadAccess) -> Accesses | Verdict:
    """The nodes to judge, or what is to be said where there are none."""
    title = one.workload.title
    if isinstance(one.devices, Unread):
        return one.devices.about(one)
    if isinstance(one.devices, Absent):
        return NotApplicable(one, f"{title} has no /dev, or has ended", (one.devices.evidence,))
    accesses = access.by_key[one.workload.key]
    if not accesses.nodes and accesses.unjudged is None:
        unseen = one.devices.unseen
        return unseen.about(one) if unseen else _no_node(one)
    if accesses.selective and not meant(one):
        reason = f"{title} sees the node's own /dev, and nobody gave it a GPU"
        return NotApplicable(one, reason, one.devices.cite("nodes"))
    return accesses


def _no_node(one: GpuWorkload) -> Verdict:
    evidence = () if isinstance(one.devices, (Absent, Unread)) else one.devices.cite("nodes")
    return NotApplicable(one, f"{one.workload.title} has no node of a GPU", evidence)


def _judge(one: GpuWorkload, accesses: Accesses, around: Around, reloads: SystemdReloads) -> Verdict:
    if accesses.denied:
        return _denied(one, accesses, around, reloads)
    if accesses.unjudged is not None:
        return accesses.unjudged.about(one)
    if not accesses.allowed:
        return _no_node(one)
    others = f", but not {_named(accesses.minor_ones)}" if accesses.minor_ones else ""
    hidden = ", as far as a list that allows everything shows" if accesses.may_hide_denials else ""
    summary = f"{one.workload.title} may open {_named(accesses.allowed)}{others}{hidden}"
    return Pass(one, summary, accesses.cite(accesses.allowed))


def _named(nodes: Sequence[NodeAccess]) -> str:
    """The first few by name and numbers."""
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    return ", ".join(node.words for node in nodes[:MOST_NAMED]) + more


def _denied(one: GpuWorkload, accesses: Accesses, around: Around, reloads: SystemdReloads) -> Verdict:
    denied = [why_denied(one, node, accesses, around) for node in accesses.denied]
    kinds = [kind for kind in Denial if any(node.denial is kind for node in denied)]
    parts = [_words(kind, [node for node in denied if node.denial is kind]) for kind in kinds]
    summary = f"{one.workload.title} {'; '.join(parts)}{_of_unit(one, kinds)}"
    told = tuple(evidence for node in denied for evidence in node.told_by)
    last = reloads.last if Denial.BY_SYSTEMD in kinds else ()
    evidence = (*accesses.cite(accesses.denied[:1]), *last, *told, *accesses.cite(accesses.denied[1:]))
    return Fail(
        one,
        summary,
        tuple(dict.fromkeys(evidence)),
        _remedies_for(kinds[0], denied, one),
        Breaks.SUBJECT,
        cause=kinds[0].value,
        references=(remedies.UNKNOWN_ERROR, remedies.RUNC_AND_SYSTEMD) if kinds[0].lost else (),
    )


_WORDS = {
    Denial.BY_SYSTEMD: "may not open {nodes}: systemd's own list of devices, which it applies at a daemon-reload, lacks {them}",
    Denial.TAKEN: "may no longer open {nodes}: its configuration gives {them}, but the rules of its cgroup were changed since",
    Denial.READ_ONLY: "may only read {nodes}: programs open {them} for reading and writing",
    Denial.WRITE_ONLY: "may only write {nodes}: programs open {them} for reading and writing",
    Denial.MKNOD_ONLY: "may make {nodes} but not open {them}: its rules say m, not rw",
    Denial.OTHER_NUMBERS: "may not open {nodes}: its rules allow {instead} instead",
    Denial.NO_CGROUPS: "may not open {nodes}: no-cgroups = true keeps the toolkit's hook from allowing {them}",
    Denial.HOOK: "may not open {nodes}: the rules that the toolkit's hook adds are not there",
    Denial.MOUNTED: "may not open {nodes}: only mounted, and a mount gives no permission",
    Denial.NEVER: "may not open {nodes}: its configuration never allowed {them}",
    Denial.UNCLEAR: "may not open {nodes}: the rules of its cgroup deny {them}",
}


def _words(kind: Denial, denied: Sequence[Denied]) -> str:
    instead = ", ".join(dict.fromkeys(node.instead for node in denied if node.instead))
    them = "it" if len(denied) == 1 else "them"
    return _WORDS[kind].format(nodes=_named([node.node for node in denied]), instead=instead, them=them)


def _of_unit(one: GpuWorkload, kinds: Iterable[Denial]) -> str:
    unit = _short(one, one.workload.unit)
    return f" (unit {unit})" if Denial.BY_SYSTEMD in kinds and unit else ""


def _short(one: GpuWorkload, unit: str) -> str:
    """A unit's name with its container's id as engines abbreviate it."""
    return unit.replace(one.workload.id, one.workload.short_id) if one.workload.id else unit


def _remedies_for(kind: Denial, denied: Sequence[Denied], one: GpuWorkload) -> tuple[Remedy, ...]:
    """Of what was lost a new start is the cure; what was never given must be given."""
    again, later = (remedies.start_anew(one.workload, RULES, then=then) for then in (False, True))
    ways = remedies.give(one.workload, RULES)
    if remedies.job_of(one.workload):
        return (remedies.unit_of_jobs(one.workload, RULES), later) if kind is Denial.BY_SYSTEMD else (again, *ways)
    if kind is Denial.BY_SYSTEMD:
        told = any(node.told_by for node in denied)
        return (again, *_against_reloads(one, RULES, by_config=told))
    if kind in (Denial.TAKEN, Denial.UNCLEAR):
        return again, ways[0]
    if kind is Denial.HOOK:
        # Started anew, a toolkit that leaves these rules out leaves them out again (NVIDIA/nvidia-container-toolkit#1740).
        return ways[0], remedies.no_cgroups(RULES), again
    if kind is Denial.NO_CGROUPS:
        return remedies.no_cgroups(RULES), later, ways[0]
    if one.workload.pod is not None:
        return remedies.by_cdi(RULES), remedies.through_plugin(RULES)
    return ways


def _against_reloads(one: GpuWorkload, check_id: str, *, by_config: bool) -> tuple[Remedy, ...]:
    """What keeps devices at a reload: the runtime must list what it knows of, and must know of what was added behind it."""
    if remedies.job_of(one.workload):
        return (remedies.unit_of_jobs(one.workload, check_id),)
    without_systemd = (remedies.cgroupfs(check_id),) if one.workload.engine == "docker" else ()
    if by_config:
        return (remedies.links(check_id), remedies.newer_runc(check_id), *without_systemd)
    return (remedies.give(one.workload, check_id)[0], *without_systemd)


@check(SURVIVES, link=Link.CGROUP, over=GpuWorkloads, title="Every workload keeps its GPUs at the next daemon-reload")
def survives_reload(workloads: GpuWorkloads, access: WorkloadAccess, units: UnitDevices) -> Verdicts:
    """`systemctl daemon-reload`, which package updates run too, takes GPUs from containers that work: "NVML: Unknown Error" a day later.

    Where systemd manages a container's cgroup and its unit restricts devices (DevicePolicy=strict or closed, or any DeviceAllow=), systemd
    applies its own list anew at every reload. A device that the container may open now, and that the list lacks, is lost then. runc
    1.1.3 to 1.1.6 lists no device without a link in /dev/char; the toolkit's hook adds rules that systemd never hears of, with every
    runc. NeedDaemonReload=yes foretells nothing, and neither does a program called sd_devices: containers that keep their GPUs have
    both. Without a unit (cgroupfs) nothing is reloaded, and a user's own systemd can set no device rules.
    """
    for one in workloads:
        found = _judgeable(one, access)
        unit = units.by_key.get(one.workload.key)
        yield _foretold(one, found, unit) if isinstance(found, Accesses) else found


def _foretold(one: GpuWorkload, accesses: Accesses, unit: DeviceUnit | Unread | None) -> Verdict:
    title = one.workload.title
    if unit is None:
        reason = "no unit of the node's systemd: a reload does not touch its rules"
        return NotApplicable(one, f"{title} has {reason}", one.workload.cite("cgroup"))
    if isinstance(unit, Unread):
        return unit.about(one)
    if not unit.restricts:
        return Pass(one, f"{_short(one, unit.unit)} restricts no devices", unit.cite("policy"))
    if not accesses.allowed:
        if accesses.unjudged is not None:
            return accesses.unjudged.about(one)
        return NotApplicable(
            one, f"{title} may open no node now, so that it can lose none", accesses.cite(accesses.denied)
        )
    kept = [(node, unit.keeps(node.asked)) for node in accesses.allowed]
    lost = tuple(node for node, keeps in kept if keeps is False)
    if lost:
        return _lost(one, accesses, unit, lost)
    unread = next((keeps for _, keeps in kept if isinstance(keeps, Unread)), accesses.unjudged)
    if unread is not None:
        return unread.about(one)
    return Pass(one, f"{_short(one, unit.unit)} lists {_named(accesses.allowed)}", unit.cite("policy", "lines"))


def _lost(one: GpuWorkload, accesses: Accesses, unit: DeviceUnit, lost: tuple[NodeAccess, ...]) -> Verdict:
    """Whether the runtime left them out of systemd's list, or never knew of them."""
    config = one.workload.config
    told = given_by_config(config, lost[0].asked) if isinstance(config, OciConfig) else ()
    them = "it" if len(lost) == 1 else "them"
    summary = f"{one.workload.title} loses {_named(lost)} at the next daemon-reload: {_short(one, unit.unit)} does not list {them}"
    evidence = tuple(dict.fromkeys((*unit.cite("policy", "lines"), *told, *accesses.cite(lost))))
    steps = _against_reloads(one, SURVIVES, by_config=bool(told))
    if told:
        steps = (steps[0], remedies.start_anew(one.workload, SURVIVES, then=True), *steps[1:])
    cause = "left-out-by-runtime" if told else "added-behind-systemd"
    return Warn(one, summary, evidence, steps, cause=cause, references=(remedies.RUNC_AND_SYSTEMD,))
