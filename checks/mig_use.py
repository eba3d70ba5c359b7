"""Sharing by MIG, seen from those who use it: do the instances that they name and hold exist, and may whoever watches them do so?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.checks.mig import COMPUTE, INSTANCES
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN, DevicePlugin
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.mig import Mig
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.facts.workload_devices import Devices, NodeInside, WorkloadDevices, is_job
from gpudoctor.facts.workload_requests import mig_names
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    SubjectKind,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

UUIDS, VIEW, MONITOR = (f"sharing.mig-{name}" for name in ("uuids", "view-current", "monitor"))
NO_MIG = "no GPU is in MIG mode"
MOST_NAMED = 4
CAPS = "/dev/nvidia-caps/nvidia-cap"
WATCHERS = {
    "nvidia-device-p": "the device plugin",
    "gpu-feature-dis": "GPU feature discovery",
    "dcgm-exporter": "dcgm-exporter",
    "nv-hostengine": "DCGM",
}
"""Programs that look at instances of others, by their names as the kernel keeps them (proc_pid_comm(5))."""
DENIED = "Insufficient Permissions"


# Names ---------------------------------------------------------------------------------------------------------------


@check(
    UUIDS,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    explained_by=(INSTANCES, COMPUTE),
    title="The MIG devices that workloads ask for by name exist",
)
def mig_uuids(mig: Mig, workloads: Reading[GpuWorkloads], viewpoint: Viewpoint) -> Verdicts:
    """A MIG device has another UUID each time it is made: what was pinned to one before a new layout or a reboot finds no GPU (CUDA error
    100).

    Drivers up to R460 named them MIG-GPU-UUID/GI/CI, since R470 MIG-UUID (MIG User Guide, "CUDA Visible Devices"): a list that was
    written down before an upgrade names nothing that NVML lists; CUDA still takes the old form, container runtimes do not
    (NVIDIA/nvidia-container-toolkit#203). Compared are the names that containers, jobs and units of systemd ask for with those that NVML
    lists, which it does in whole to root on the host only. A container that does not start for such a name is toolkit.containers-start,
    a pod's device that is gone is told with the device plugin. Where a GPU in MIG mode has no instance at all, that is the reason. Easily
    confused with UUIDs of whole GPUs, which change with the card only.
    """
    asked: list[tuple[GpuWorkload | str, str, Evidence]] = [*_asked(workloads)]
    asked += [(unit.unit, unit.name, unit.evidence) for unit in mig.services]
    if not asked:
        reason = NO_MIG if not mig.gpus else "nobody that was seen asks for a MIG device by name"
        yield workloads.about(NODE) if mig.gpus and isinstance(workloads, Unread) else NotApplicable(NODE, reason)
        return
    if isinstance(mig.names, Unread):
        yield mig.names.about(NODE)
        return
    gone: dict[Subject, list[tuple[str, Evidence]]] = {}
    for about, name, seen in asked:
        if not _exists(name, mig):
            gone.setdefault(_subject(about), []).append((name, seen))
    if gone and (hidden := _not_all_listed(mig, viewpoint)) is not None:
        yield hidden.about(NODE)
        return
    for subject, names in gone.items():
        yield _name_gone(subject, names, mig)
    if not gone:
        evidence = tuple(dict.fromkeys(seen for _, _, seen in asked))[:MOST_NAMED]
        listed = tuple(gpu.listed for gpu in mig.gpus if gpu.device.mig_devices)
        yield Pass(NODE, f"{len(asked)} names of MIG devices are asked for, and all are there", (*evidence, *listed))


def _asked(workloads: Reading[GpuWorkloads]) -> Iterator[tuple[GpuWorkload, str, Evidence]]:
    for one in () if isinstance(workloads, Unread) else workloads:
        for wish in one.wishes.wishes:
            for name in mig_names(one):
                if any(name in asked for asked in wish.gpus):
                    yield one, name, wish.evidence


def _not_all_listed(mig: Mig, viewpoint: Viewpoint) -> Unread | None:
    """Why NVML may have more MIG devices than it lists here: it leaves out those whose nodes may not be opened."""
    if viewpoint.in_container is False and viewpoint.uid == 0:
        return None
    part = (one for one in mig.gpus if one.listed_whole is False or (one.listed_whole is None and viewpoint.contained))
    one = next(part, None)
    return Unread(Why.NO_PERMISSION, one.listed.where, "lists only what may be used from here") if one else None


def _subject(about: GpuWorkload | str) -> Subject:
    return Subject(SubjectKind.SERVICE, about) if isinstance(about, str) else about.subject


def _exists(name: str, mig: Mig) -> bool:
    """Whether NVML lists it. A beginning of a UUID is enough for CUDA (CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES)."""
    small = name.lower()
    if not isinstance(mig.names, Unread) and any(known.startswith(small) for known in mig.names):
        return True
    uuid, _, place = small.removeprefix("mig-").partition("/")
    if not uuid.startswith("gpu-"):
        return False
    places = {
        f"{each.gpu_instance_id}/{each.compute_instance_id}"
        for one in mig.gpus
        if (one.device.uuid or "").lower() == uuid
        for each in one.device.mig_devices
    }
    return place in places


def _name_gone(subject: Subject, names: list[tuple[str, Evidence]], mig: Mig) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import name_anew

    listed = list(dict.fromkeys(name for name, _ in names))
    old = any(name.startswith("MIG-GPU-") for name in listed)
    form = ", in the form of drivers up to R460" if old else ""
    summary = f"asks for {', '.join(listed[:MOST_NAMED])}{form}: no such MIG device is there"
    there = tuple(gpu.listed if gpu.device.mig_devices else gpu.nothing_listed for gpu in mig.gpus)
    shown = there or (Evidence("NVML", "no GPU is in MIG mode"),)
    evidence = (*dict.fromkeys(seen for _, seen in names), *shown[:MOST_NAMED])
    if not subject.stands_on:
        # Whose instance it was is not told: where one has none at all, it was that one's.
        empty = tuple(gpu.subject for gpu in mig.gpus if gpu.device.lists_mig and not gpu.device.mig_devices)
        subject = Subject(subject.kind, subject.key, subject.name, stands_on=empty)
    kind = "container"
    if subject.kind is SubjectKind.SERVICE:
        kind = "job" if subject.key.startswith("slurm:") else "service"
    elif "/" in subject.name:
        kind = "pod"
    return Fail(subject, summary, evidence, name_anew(UUIDS, kind), Breaks.SUBJECT, cause="gone")


# Views ---------------------------------------------------------------------------------------------------------------


@check(
    VIEW,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    explained_by=(UUIDS, INSTANCES, COMPUTE),
    title="Running containers hold the MIG instances that are there",
)
def mig_view_current(mig: Mig, workloads: Reading[GpuWorkloads]) -> Verdicts:
    """What a container sees of MIG is fixed when it starts: an agent that runs since before the last change of the layout shows the old
    one.

    It holds the nodes of instances that are gone, or lacks those of instances that were made since, although it asked for all
    (NVIDIA/nvidia-docker#1473). Compared are the nodes in its /dev/nvidia-caps with the minors of the driver's capabilities; an instance
    that was made anew in the place of an old one has the same. Privileged containers, and those with the node's own /dev, are not asked.
    Easily confused with a name that is gone (sharing.mig-uuids), which explains it, and with nodes that the cgroup denies.
    """
    if not mig.gpus:
        yield NotApplicable(NODE, NO_MIG)
        return
    if isinstance(mig.nodes, Unread):
        yield mig.nodes.about(NODE)
        return
    if isinstance(workloads, Unread):
        yield workloads.about(NODE)
        return
    right: list[Evidence] = []
    told = False
    for one in workloads:
        capabilities = _capabilities(one, mig)
        if not isinstance(one.devices, Devices) or not capabilities:
            continue
        stale = [node for node in capabilities if node.entry.minor not in mig.nodes]
        lacking = _lacking(one, capabilities, mig)
        if stale or lacking:
            told = True
            yield _old_view(one, one.devices, stale, lacking, mig)
        elif not one.devices.all_capabilities:
            told = True
            yield _part_seen(one.devices).about(one)
        else:
            right += one.devices.cite("nodes")
    if right and not told:
        yield Pass(NODE, f"{len(right)} containers hold nodes of instances, all of which are there", tuple(right))
    elif not told:
        yield NotApplicable(NODE, "no container that was seen holds the node of an instance")


def _part_seen(devices: Devices) -> Unread:
    where = devices.cite("nodes")[0].where
    return devices.unseen or Unread(Why.NOT_RECORDED, f"{where}/nvidia-caps", "not all of its nodes were seen")


def _capabilities(one: GpuWorkload, mig: Mig) -> list[NodeInside]:
    """The nodes of instances that somebody gave to a container; one that is given all devices has those of any time."""
    devices, config = one.devices, one.workload.config
    if not isinstance(devices, Devices) or devices.whole_dev or is_job(one.workload) or one.workload.inside:
        return []
    if isinstance(config, OciConfig) and config.allows_everything:
        return []
    return [
        node for node in devices.nodes if node.path.startswith(CAPS) and node.entry.minor not in (None, *mig.others)
    ]


def _lacking(one: GpuWorkload, capabilities: list[NodeInside], mig: Mig) -> list[str]:
    """The instances of its GPUs that it has no node of, where it asked for all and nothing else: an image's `all` gives way to a name."""
    names = {_plain(name) for wish in one.wishes.wishes for name in wish.gpus if not name.startswith("/dev/")}
    if names != {"all"} or not isinstance(one.devices, Devices) or isinstance(mig.nodes, Unread):
        return []
    if not one.devices.all_capabilities:
        return []
    inside = {node.entry.minor for node in capabilities}
    return [
        f"nvidia-cap{minor} (gpu{gpu} {name})"
        for minor, (gpu, name) in sorted(mig.nodes.items())
        if gpu in one.devices.minors and minor not in inside
    ]


def _plain(name: str) -> str:
    return name.rpartition("=")[2].lower()


def _old_view(one: GpuWorkload, devices: Devices, stale: list[NodeInside], lacking: list[str], mig: Mig) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import start_anew

    parts = []
    if stale:
        names = ", ".join(node.path.removeprefix("/dev/nvidia-caps/") for node in stale[:MOST_NAMED])
        parts.append(f"holds {names}, nodes of MIG instances that no longer exist")
    if lacking:
        more = f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
        named = ", ".join(lacking[:MOST_NAMED])
        parts.append(f"was to have all GPUs and lacks {named}{more}: it sees the layout of when it started")
    wishes = tuple(wish.evidence for wish in one.wishes.wishes[:1]) if lacking else ()
    evidence = (*devices.cite("nodes"), *wishes, *mig.cite("all"))
    return Warn(one, " and ".join(parts), evidence, start_anew(VIEW), cause="old-view")


# Watchers ------------------------------------------------------------------------------------------------------------


@check(
    MONITOR,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    title="What watches MIG instances may see those of others",
)
def mig_monitor(
    mig: Mig,
    processes: Reading[Processes],
    workloads: Reading[Workloads],
    devices: Reading[WorkloadDevices],
    access: Reading[WorkloadAccess],
    plugin: Reading[DevicePlugin],
) -> Verdicts:
    """The device plugin, feature discovery and exporters look at instances that they do not use: that takes the capability mig/monitor.

    Without it the plugin ends at its start ("error getting device memory info: Insufficient Permissions"), and the node has no GPU to
    give. The node of the capability, nvidia-cap2, is given to containers that ask by NVIDIA_MIG_MONITOR_DEVICES=all with SYS_ADMIN;
    container toolkits from 1.18 to 1.20.0 leave it out of the device cgroup (NVIDIA/nvidia-container-toolkit#1740, mended by #1947). Read
    are the plugin's log, the node inside and the rules of the cgroup. Easily confused with a workload that may not open its own instance
    (cgroup checks).
    """
    if not any(gpu.device.mig_devices for gpu in mig.gpus) or mig.monitor is None:
        yield NotApplicable(NODE, NO_MIG if not mig.gpus else "no MIG device is there to watch")
        return
    if isinstance(processes, Unread):
        yield processes.about(NODE)
        return
    said = _refused_in_log(plugin)
    if said is not None:
        yield _shut_out(PLUGIN, f"the device plugin may not look at MIG instances: {said.shows}", (said,), mig.monitor)
        return
    seen: set[str] = set()
    for process in processes.processes:
        words = WATCHERS.get(process.comm)
        one = workloads.by_pid.get(process.pid) if words and not isinstance(workloads, Unread) else None
        if words is None or one is None or one.kind is not GroupKind.CONTAINER or process.ended or one.key in seen:
            continue
        verdict = _watcher(one, process, mig.monitor, devices, access)
        if verdict is not None:
            seen.add(one.key)
            yield verdict
    if not seen:
        yield NotApplicable(NODE, "nothing that watches GPUs was seen in a container")


def _refused_in_log(plugin: Reading[DevicePlugin]) -> Evidence | None:
    log = None if isinstance(plugin, Unread) else plugin.spoke
    lines = () if log is None or log.serves or log.registered else (log.ended, *log.reasons)
    return next((line for line in lines if line is not None and DENIED in line.shows), None)


def _watcher(
    one: Workload,
    process: Process,
    monitor: int,
    devices: Reading[WorkloadDevices],
    access: Reading[WorkloadAccess],
) -> Verdict | None:
    """None where it is not seen well enough to say anything."""
    path, words = f"{CAPS}{monitor}", WATCHERS[process.comm]
    subject = PLUGIN if process.comm == "nvidia-device-p" else one.subject
    inside = None if isinstance(devices, Unread) else devices.by_key.get(one.key)
    if not isinstance(inside, Devices):
        return inside.about(subject) if isinstance(inside, Unread) else None
    if inside.whole_dev or (isinstance(one.config, OciConfig) and one.config.allows_everything):
        return Pass(subject, f"{words} is privileged", inside.cite("nodes"))
    if inside.node(path) is None:
        others = any(node.path.startswith(CAPS) for node in inside.nodes)
        if not others or not inside.all_capabilities:
            return _part_seen(inside).about(subject) if others else None
        said = f"{words} has nodes of MIG instances, but not {path}: it may not look at those of others"
        return _shut_out(subject, said, inside.cite("nodes"), monitor, fails=False)
    found = None if isinstance(access, Unread) else access.by_key.get(one.key)
    entry = next((each for each in found.nodes if each.node.path == path), None) if found is not None else None
    if entry is None or found is None:
        return None
    if isinstance(entry.permission, Unread):
        return entry.permission.about(subject)
    if entry.permission:
        return Pass(subject, f"{words} may open {path}", found.cite((entry,)))
    said = f"{words} has {path}, and its cgroup does not let it open it: it may not look at MIG instances"
    return _shut_out(subject, said, found.cite((entry,)), monitor, inside=True)


def _shut_out(
    subject: Subject, summary: str, evidence: Cited, monitor: int, *, fails: bool = True, inside: bool = False
) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import MONITOR_ISSUE, allow_monitor

    steps = allow_monitor(MONITOR, f"{CAPS}{monitor}", inside=inside)
    if fails:
        return Fail(subject, summary, evidence, steps, Breaks.SUBJECT, cause="monitor", references=(MONITOR_ISSUE,))
    return Warn(subject, summary, evidence, steps, cause="monitor", references=(MONITOR_ISSUE,))
