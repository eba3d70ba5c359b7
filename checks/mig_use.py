"""Sharing by MIG, seen from those who use it: do the instances that they name and hold exist, and may whoever watches them do so?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.checks.mig import COMPUTE, INSTANCES
from gpudoctor.facts.absence import NO_MIG
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.mig import Mig
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.facts.workload_devices import Devices, NodeInside, is_job
from gpudoctor.facts.workload_requests import mig_names
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

UUIDS, VIEW = "sharing.mig-uuids", "sharing.mig-view-current"
MOST_NAMED = 4
CAPS = "/dev/nvidia-caps/nvidia-cap"


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
    kinds: dict[Subject, str] = {}
    for about, name, seen in asked:
        if not _exists(name, mig):
            gone.setdefault(_subject(about), []).append((name, seen))
            kinds[_subject(about)] = _kind(about)
    if gone and (hidden := _not_all_listed(mig, viewpoint)) is not None:
        yield hidden.about(NODE)
        return
    for subject, names in gone.items():
        yield _name_gone(subject, names, mig, kinds[subject])
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


def _kind(about: GpuWorkload | str) -> str:
    """What whoever starts it calls it: a pod, a job, a service, or the engine of a container."""
    if isinstance(about, str):
        return "service"
    if about.workload.pod is not None:
        return "pod"
    from gpudoctor.knowledge.workload_remedies import job_of

    return "job" if job_of(about.workload) else about.workload.engine


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


def _name_gone(subject: Subject, names: list[tuple[str, Evidence]], mig: Mig, kind: str) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import name_anew

    listed = list(dict.fromkeys(name for name, _ in names))
    old = any(name.startswith("MIG-GPU-") for name in listed)
    form = ", in the form of drivers up to R460" if old else ""
    summary = f"asks for {', '.join(listed[:MOST_NAMED])}{form}: no such MIG device is there"
    there = tuple(gpu.listed if gpu.device.mig_devices else gpu.nothing_listed for gpu in mig.gpus)
    shown = there or (Evidence("NVML", NO_MIG),)
    evidence = (*dict.fromkeys(seen for _, seen in names), *shown[:MOST_NAMED])
    if not subject.stands_on:
        # Whose instance it was is not told: where one has none at all, it was that one's.
        empty = tuple(gpu.subject for gpu in mig.gpus if gpu.device.lists_mig and not gpu.device.mig_devices)
        subject = Subject(subject.kind, subject.key, subject.name, stands_on=empty)
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

    It holds the nodes of instances that are gone, or lacks those of instances that were made since, although it asked for all; it has none
    where it started before MIG was switched on (NVIDIA/nvidia-docker#1473). Compared are the nodes in its /dev/nvidia-caps with the minors
    of the driver's capabilities; an instance that was made anew in the place of an old one has the same. Privileged containers, and those
    with the node's own /dev, are not asked.
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
        verdict = _view(one, mig)
        if not isinstance(verdict, tuple):
            told = True
            yield verdict
        else:
            right += verdict
    if right and not told:
        yield Pass(NODE, f"{len(right)} containers hold nodes of instances, all of which are there", tuple(right))
    elif not told:
        yield NotApplicable(NODE, "no container that was seen holds the node of an instance")


def _view(one: GpuWorkload, mig: Mig) -> Verdict | Cited:
    """What is wrong with the nodes in a container, else what shows that they are right, () where it is not concerned."""
    devices = one.devices
    if not isinstance(devices, Devices) or isinstance(mig.nodes, Unread) or not _was_given_nodes(one, devices):
        return ()
    capabilities = _capabilities(devices, mig)
    stale = [node for node in capabilities if node.entry.minor not in mig.nodes]
    lacking = _lacking(one, capabilities, mig)
    if stale or lacking:
        return _old_view(one, devices, stale, lacking, mig)
    if capabilities and not devices.all_capabilities:
        return part_seen(devices).about(one)
    return devices.cite("nodes") if capabilities else ()


def part_seen(devices: Devices) -> Unread:
    """Why a folder of capability nodes that is not seen in whole tells nothing of those that it lacks."""
    where = devices.cite("nodes")[0].where
    return devices.unseen or Unread(Why.NOT_RECORDED, f"{where}/nvidia-caps", "not all of its nodes were seen")


def _was_given_nodes(one: GpuWorkload, devices: Devices) -> bool:
    """Whether somebody chose the nodes in a container; one that is given all devices has those of any time."""
    config = one.workload.config
    everything = devices.whole_dev or (isinstance(config, OciConfig) and config.allows_everything)
    return not (everything or is_job(one.workload) or one.workload.inside)


def _capabilities(devices: Devices, mig: Mig) -> list[NodeInside]:
    """The nodes of instances, of now or of another time."""
    return [
        node for node in devices.nodes if node.path.startswith(CAPS) and node.entry.minor not in (None, *mig.others)
    ]


def _lacking(one: GpuWorkload, capabilities: list[NodeInside], mig: Mig) -> list[str]:
    """The instances of its GPUs that it has no node of, where it asked for all and nothing else: an image's `all` gives way to a name."""
    names = {_plain(name) for wish in one.wishes.wishes for name in wish.gpus if not name.startswith("/dev/")}
    if names != {"all"} or not isinstance(one.devices, Devices) or isinstance(mig.nodes, Unread):
        return []
    if not one.devices.all_capabilities or (one.only_image and not capabilities):
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
    from gpudoctor.knowledge.mig_remedies import VIEW_IS_FIXED, restart_watchers
    from gpudoctor.knowledge.workload_remedies import start_anew

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
    steps = (start_anew(one.workload, VIEW, say=VIEW_IS_FIXED), restart_watchers(VIEW))
    return Warn(one, " and ".join(parts), evidence, steps, cause="old-view")
