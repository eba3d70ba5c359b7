"""Pods and GPUs: has each the GPUs that the kubelet gave it, are those alive, and does nobody use one that was not given?"""

from collections.abc import Iterator, Sequence

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import DevicePlugin, GpuIds
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.pod_devices import Asking, Given, PodDevices
from gpudoctor.facts.pod_takers import PodTakers, Taker
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.facts.workload_devices import SHARED_NAMES, Devices
from gpudoctor.knowledge.toolkit_config import BY_MOUNT
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

HAVE, ALIVE, BYPASS = "workload.pods-have-their-gpus", "workload.pods-hold-live-gpus", "workload.no-bypass"
NOBODY = "no pod was given a GPU"
MOST_NAMED = 4


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _nothing(pods: PodDevices) -> Verdict | None:
    if not pods.kubelet:
        return NotApplicable(NODE, NO_KUBELET)
    if pods.unread is not None:
        return pods.unread.about(NODE)
    return None


def _seen(pods: PodDevices) -> Cited:
    """The kubelet's answer or its record, whichever is known."""
    return next((pods.cite(name) for name in ("pods", "record") if name in pods.read_from), ())


# What was given is inside --------------------------------------------------------------------------------------------


@check(
    HAVE,
    link=Link.WORKLOAD,
    needs={Link.DEVICE_NODES},
    explained_by=("workload.nodes-inside",),
    title="Every pod has the GPUs that it was given",
)
def pods_have_their_gpus(
    pods: PodDevices,
    takers: Reading[PodTakers],
    workloads: Reading[GpuWorkloads],
    driver: Reading[DriverGpus],
    toolkit: Reading[ToolkitConfig],
    plugin: Reading[DevicePlugin],
) -> Verdicts:
    """The kubelet notes a GPU as taken, and the container runs without it: nobody else gets it, and the program says "no CUDA device".

    A static pod asked before any plugin had registered: the kubelet then starts it as if it had asked for nothing, and never gives it the
    GPU later. The pod was started by a runtime that does not heed what the plugin answers, or that does not take devices named by mounts.
    The kubelet's record was lost: a container that started before has a GPU that the kubelet takes for free, one that started after has
    none. Or the resource goes by another name here. What the kubelet tells (PodResources) or keeps is held against the nodes in each
    container's /dev, and what static pods ask for, others too where the API server told, against what they were given. Containers that
    have ended or not started yet are not judged.
    """
    if (nothing := _nothing(pods)) is not None:
        yield nothing
        return
    alarms = [*_without_what_they_ask(pods, plugin), *_forgotten(pods, takers)]
    yield from alarms
    seen = {} if isinstance(workloads, Unread) else {one.workload.key: one for one in workloads}
    minors = {} if isinstance(driver, Unread) else _minors(driver)
    for given in pods.given:
        yield _has_it(given, seen, minors, workloads, toolkit)
    if not pods.given and not alarms:
        yield NotApplicable(NODE, NOBODY, _seen(pods))


def _minors(driver: DriverGpus) -> dict[str, int]:
    known = ((address, gpu.minor) for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu))
    return {address: minor for address, minor in known if minor is not None}


def _without_what_they_ask(pods: PodDevices, plugin: Reading[DevicePlugin]) -> Iterator[Verdict]:
    advertised = None if isinstance(plugin, Unread) or isinstance(plugin.advertised, Unread) else plugin.advertised
    names = advertised.by_resource if advertised is not None else {}
    for asked in pods.asking:
        other = f"{asked.resource}.shared"
        if asked.pending and asked.resource not in names and other in names and advertised is not None:
            yield _by_its_old_name(asked, other, advertised.evidence)
        elif not asked.pending and asked.runs is not None and len(asked.given or ()) < asked.count:
            yield _without(asked, pods)


def _by_its_old_name(asked: Asking, other: str, seen: Evidence) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import ask_by_name

    summary = f"asks for {asked.resource}, which this node calls {other}: it waits in vain"
    return Warn(asked, summary, (asked.manifest, seen), ask_by_name(other), cause="renamed")


def _without(asked: Asking, pods: PodDevices) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import recreate_pod, recreate_static

    given = len(asked.given or ())
    summary = f"container {asked.container} asks for {asked.count} {asked.resource} and runs with {given}: "
    if asked.static:
        summary += "no plugin had registered when the kubelet started it, and it is given none later"
        step = recreate_static(asked.manifest.where)
    else:
        summary += "the kubelet knows of no gift, its record was lost or the pod came before the plugin"
        step = recreate_pod(HAVE, asked.namespace, asked.name)
    evidence = (asked.manifest, asked.runs) if asked.runs is not None else (asked.manifest,)
    cause = "before-the-plugin" if asked.static else "without"
    return Fail(asked, summary, (*evidence, *_seen(pods)), (step,), Breaks.SUBJECT, cause=cause)


def _forgotten(pods: PodDevices, takers: Reading[PodTakers]) -> Iterator[Verdict]:
    """Pods with a plugin's gift of which the kubelet knows nothing."""
    from gpudoctor.knowledge.device_plugin_remedies import recreate_pod

    for taker in takers.takers if not isinstance(takers, Unread) else ():
        pod = taker.one.workload.pod
        if not taker.gift or pod is None:
            continue
        risk = _of_whom(taker) or ", which may give it to another pod"
        summary = f"runs with {_listed(taker.gpus)} by {taker.by}, and the kubelet has no record of it{risk}"
        evidence = (*taker.evidence, *_seen(pods), *(given.evidence for given in taker.others[:MOST_NAMED]))
        step = recreate_pod(HAVE, pod.namespace, pod.name)
        yield Fail(taker, summary, evidence, (step,), Breaks.NOTHING, cause="no-record")


def _has_it(
    given: Given,
    seen: dict[str, GpuWorkload],
    minors: dict[str, int],
    workloads: Reading[GpuWorkloads],
    toolkit: Reading[ToolkitConfig],
) -> Verdict:
    if given.workload is None:
        return _not_running(given, toolkit)
    one = seen.get(given.workload.key)
    devices = one.devices if one is not None else None
    # Which of the pod's containers one is stands in its configuration.
    unread = (workloads, devices, given.workload.config if not given.name else None)
    if (unseen := next((why for why in unread if isinstance(why, Unread)), None)) is not None:
        return unseen.about(given)
    if given.workload.leading is None or (one is not None and not isinstance(devices, Devices)):
        return NotApplicable(given, f"{given.words}: its container has ended", (given.evidence,))
    wanted = sorted({minors[address] for address in given.gpus if address in minors})
    if not wanted:
        return NotApplicable(given, f"{given.words}: which nodes its devices have is not known", (given.evidence,))
    inside = devices.minors if isinstance(devices, Devices) else ()
    missing = [f"/dev/nvidia{minor}" for minor in wanted if minor not in inside]
    if isinstance(devices, Devices) and not missing:
        paths = _listed([f"/dev/nvidia{minor}" for minor in wanted])
        return Pass(given, f"has {paths}", (given.evidence, *devices.cite("nodes")))
    unseen = _unseen(missing, devices) if isinstance(devices, Devices) else None
    if unseen is not None:
        return unseen.about(given)
    return _lacks(given, missing, devices)


def _unseen(paths: list[str], devices: Devices) -> Unread | None:
    """Why it is not known whether nodes are inside; of a /dev without any of NVIDIA's only the first name was looked for."""
    empty = not devices.nodes and f"/dev/{SHARED_NAMES[0]}" in devices.missing
    if empty or all(path in devices.missing for path in paths):
        return None
    said = Unread(Why.UNREADABLE, devices.read_from["nodes"].where, f"whether {_listed(paths)} is inside was not seen")
    return devices.unseen or said


def _not_running(given: Given, toolkit: Reading[ToolkitConfig]) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import ACCEPT_MOUNTS

    file = None if isinstance(toolkit, Unread) else toolkit.default or toolkit.operators
    if given.by_mount and file is not None and file.value(BY_MOUNT) is False:
        summary = (
            "its GPUs were named by mounts, which the toolkit of this node does not take: the container does not start"
        )
        evidence = (given.evidence, file.says(BY_MOUNT))
        return Fail(given, summary, evidence, (ACCEPT_MOUNTS,), Breaks.SUBJECT, cause="by-mounts")
    return NotApplicable(given, f"{given.words}: no running container of it is seen", (given.evidence,))


def _lacks(given: Given, missing: list[str], devices: object) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import recreate_pod
    from gpudoctor.knowledge.workload_remedies import through_plugin

    seen = devices.cite("nodes") if isinstance(devices, Devices) else ()
    workload = given.workload
    if workload is not None and isinstance(workload.config, OciConfig):
        seen += workload.config.cite("nodes", "hooks")
    summary = f"was given {_listed(given.ids)}, but container {given.container} has no {_listed(missing)}"
    again = recreate_pod(HAVE, given.namespace, given.name, then=True)
    steps: tuple[Remedy, ...] = (through_plugin(HAVE), again)
    return Fail(given, summary, (given.evidence, *seen), steps, Breaks.SUBJECT, cause="not-inside")


# What was given is alive ---------------------------------------------------------------------------------------------


@check(
    ALIVE,
    link=Link.WORKLOAD,
    needs={Link.DRIVER_CUDA},
    title="No pod holds a GPU that is dead",
)
def pods_hold_live_gpus(pods: PodDevices, ids: GpuIds, nvml: Nvml, gpus: PciGpus) -> Verdicts:
    """A pod keeps the device that it was given for as long as it lives, whatever becomes of the GPU, and Kubernetes sees it as running.

    A GPU that has fallen off the bus, or that another driver holds now: the pod must be created anew to be given another. Ids are held
    against what the driver and NVML list. What the GPU has is told by the links below; the pods that it hits are named here as its
    consequence. Whether a GPU lives that NVML does not list is not known. An id that no GPU has any more is device-plugin.devices-exist.
    """
    if (nothing := _nothing(pods)) is not None:
        yield nothing
        return
    if not pods.given:
        yield NotApplicable(NODE, NOBODY, _seen(pods))
        return
    drivers = {gpu.address: gpu.driver for gpu in gpus}
    for given in pods.given:
        yield _holds(given, ids, nvml, drivers)


def _holds(given: Given, ids: GpuIds, nvml: Nvml, drivers: dict[str, Reading[str | None]]) -> Verdict:
    dead: list[str] = []
    evidence: list[Evidence] = []
    gone: list[str] = []
    unlisted: list[str] = []
    for device in given.ids:
        address = ids.address(device)
        if address is None:
            gone += [device] if ids.knows(device) else []
            continue
        said = nvml.device(address)
        driver = drivers.get(address)
        if said is not None and said.error is not None:
            dead.append(f"{address} ({said.error.text})")
            evidence += said.cite("error")
        elif isinstance(driver, str) and driver != "nvidia":
            dead.append(f"{address} (held by {driver} now)")
            evidence.append(Evidence(f"/sys/bus/pci/devices/{address}/driver", driver))
        elif said is None:
            unlisted.append(address)
    if dead:
        return _dead(given, dead, (given.evidence, *evidence))
    if gone:
        return NotApplicable(given, f"{given.words}: {_listed(gone)} is no GPU here, see device-plugin.devices-exist")
    if unlisted:
        return Unread(Why.NOT_ANSWERED, nvml.via, f"does not list {_listed(unlisted)}").about(given)
    known = [device for device in given.ids if ids.address(device) is not None]
    if not known:
        return NotApplicable(given, f"{given.words}: its devices are no UUIDs of GPUs", (given.evidence,))
    return Pass(given, f"{_listed(known)}: alive", (given.evidence, ids.shows))


def _dead(given: Given, dead: list[str], evidence: Cited) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import recreate_pod

    summary = f"container {given.container} holds the dead GPU {_listed(dead)}"
    say = "Create the pod anew: it keeps the device that it was given for as long as it lives."
    step = recreate_pod(ALIVE, given.namespace, given.name, say=say)
    return Fail(given, summary, evidence, (step,), Breaks.SUBJECT, cause="dead")


# What was not given --------------------------------------------------------------------------------------------------


@check(
    BYPASS,
    link=Link.WORKLOAD,
    explained_by=("workload.recipes-sound",),
    title="No pod uses a GPU that the kubelet did not give it",
)
def no_bypass(pods: PodDevices, takers: PodTakers) -> Verdicts:
    """A pod that takes GPUs past the kubelet shares them with pods to which they were given: their memory is suddenly full.

    By NVIDIA_VISIBLE_DEVICES in its specification or image, or by nodes of /dev that it mounts. A pod with a GPU's node inside and no
    device by the kubelet's word is named, with those that were given the same GPU. Pods that are privileged have all nodes of the host:
    they are named only if NVML lists a process of theirs on a GPU. What manages or watches GPUs sees them on purpose, and claims (DRA)
    are gifts like any other. A variable that comes with images is workload.recipes-sound, a gift that the kubelet has forgotten
    workload.pods-have-their-gpus.
    """
    if (nothing := _nothing(pods)) is not None:
        yield nothing
        return
    if not _seen(pods):
        yield NotApplicable(NODE, "the kubelet keeps and tells nothing of devices")
        return
    taken = [taker for taker in takers.takers if not taker.gift]
    for taker in taken:
        yield _bypass(taker, pods)
    if not taken and takers.unseen is not None:
        yield takers.unseen.about(NODE)
    elif not taken:
        yield Pass(NODE, "every pod that has a GPU was given it, or manages GPUs", _seen(pods))


def _bypass(taker: Taker, pods: PodDevices) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import ASK_FOR_GPU, BYPASS_ISSUE, ONLY_THE_PLUGIN

    words = f"has {_listed(taker.gpus) or 'GPUs'}{_of_whom(taker)}, and the kubelet gave it none: it came by {taker.by}"
    evidence = (*taker.evidence, *_seen(pods), *(given.evidence for given in taker.others[:MOST_NAMED]))
    steps = (ASK_FOR_GPU, ONLY_THE_PLUGIN)
    return Warn(taker, words, evidence, steps, cause="bypass", references=(BYPASS_ISSUE,))


def _of_whom(taker: Taker) -> str:
    others = sorted({given.words for given in taker.others})
    return f", which the kubelet gave to {_listed(others)}" if others else ""
