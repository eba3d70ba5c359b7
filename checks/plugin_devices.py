"""What the device plugin advertises, held against the GPUs that there are: real, all of them, healthy, and as often as configured."""

from collections.abc import Mapping

from gpudoctor.chain import Link
from gpudoctor.checks.device_plugin import NOT_REGISTERED, STRATEGY, without_plugin
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import Advertised, DevicePlugin, GpuIds, resource, shared
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.plugin_log import Mark
from gpudoctor.facts.pod_devices import Given, PodDevices
from gpudoctor.facts.pod_resources import REPLICA, own_id
from gpudoctor.facts.raw import decimal
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
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

EXIST, ADVERTISED, HEALTHY, REPLICAS = (
    f"device-plugin.{name}" for name in ("devices-exist", "all-gpus-advertised", "devices-healthy", "replicas-add-up")
)
IGNORED = frozenset({13, 31, 43, 45, 68, 109})
"""Xids for which the plugin takes no device out (internal/rm/health.go, ignoredXids)."""
MOST_NAMED = 4
MOST_REPLICAS = 1024


def _nothing(plugin: DevicePlugin) -> Advertised | Unread | str:
    """What is advertised, or why there is nothing to ask."""
    if (reason := without_plugin(plugin)) is not None:
        return reason
    return NOT_REGISTERED if plugin.advertised is None else plugin.advertised


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


# Do they exist? ------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.devices-exist",
    link=Link.DEVICE_PLUGIN,
    needs={Link.DRIVER_CUDA},
    title="Every device that is advertised or was given exists",
)
def devices_exist(plugin: DevicePlugin, ids: GpuIds, pods: Reading[PodDevices]) -> Verdicts:
    """A pod that is given a device that no longer exists does not start: "unknown device", or it starts and sees no GPU.

    The plugin lists GPUs and MIG devices when it starts. A GPU that was exchanged, or MIG instances made anew, have other UUIDs; until the
    plugin starts again the kubelet gives out the old ones. A pod keeps the one that it was given for as long as it lives. Held against what
    the driver and NVML list now, by UUID, without numbers of replicas; ids of other forms (of plugins for virtual machines) are not judged,
    nor entries of pods that have ended. A GPU that is dead but known is workload.pods-hold-live-gpus.
    """
    for given in pods.given if not isinstance(pods, Unread) else ():
        missing = [device for device in given.ids if ids.knows(device) and ids.address(device) is None]
        if missing and ids.unlisted is None and len(missing) > len(ids.nameless):
            yield _held(given, missing, ids)
    advertised = _nothing(plugin)
    if isinstance(advertised, str):
        yield NotApplicable(NODE, advertised)
        return
    if isinstance(advertised, Unread):
        yield advertised.about(NODE)
        return
    judged = sorted({own_id(device) for device in advertised.ids if ids.knows(device)})
    gone = [device for device in judged if ids.address(device) is None]
    if not judged:
        yield NotApplicable(NODE, f"{advertised.words}: no UUIDs of GPUs", (advertised.evidence,))
    elif not gone:
        yield Pass(NODE, f"all {len(judged)} devices exist", (advertised.evidence, ids.shows))
    elif ids.unlisted is not None:
        yield ids.unlisted.about(NODE)
    elif len(gone) <= len(ids.nameless):
        for address in ids.nameless:
            summary = f"whether {_listed(gone)} is this GPU is not known: it tells no UUID"
            yield Unknown(Subject(SubjectKind.GPU, address), Why.NOT_ANSWERED, summary, (advertised.evidence,))
    else:
        yield _gone(gone, judged, advertised, ids)


def _held(given: Given, missing: list[str], ids: GpuIds) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import recreate_pod

    summary = f"container {given.container} was given {_listed(missing)}, which no longer exists"
    say = "Create the pod anew: it keeps the device that it was given for as long as it lives."
    step = recreate_pod(EXIST, given.namespace, given.name, say=say)
    return Fail(given, summary, (given.evidence, ids.shows), (step,), Breaks.SUBJECT, cause="held")


def _gone(gone: list[str], judged: list[str], advertised: Advertised, ids: GpuIds) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import restart_plugin

    kind = "MIG devices" if all(device.startswith("MIG-") for device in gone) else "devices"
    summary = f"{len(gone)} of {len(judged)} advertised {kind} no longer exist: {_listed(gone)}"
    evidence = (advertised.evidence, Evidence(advertised.evidence.where, f"advertised: {_listed(gone)}"), ids.shows)
    step = restart_plugin(EXIST, "Let the plugin start anew: it lists GPUs and MIG devices only then.")
    breaks = Breaks.NODE if len(gone) == len(judged) else Breaks.NOTHING
    return Fail(NODE, summary, evidence, (step,), breaks, cause="gone")


# Are they healthy? ---------------------------------------------------------------------------------------------------


@check(
    "device-plugin.devices-healthy",
    link=Link.DEVICE_PLUGIN,
    over=PciGpus,
    needs={Link.DRIVER_CUDA, Link.HEALTH},
    title="The device plugin holds no GPU unhealthy",
)
def devices_healthy(gpus: PciGpus, plugin: DevicePlugin, ids: GpuIds) -> Verdicts:
    """The plugin takes a GPU out at any Xid but those of programs, and never puts it back: after a reset it must be started anew.

    Its log says which, and for which Xid; only what it said since it last started its plugins counts. The kubelet does not give out what it
    was told is unhealthy. The plugin says it once, to whoever is connected: where the kubelet still has such a device to give, it has not
    heard. If the driver or the GPU's health tells of the error too, that is the cause.
    """
    advertised = _nothing(plugin)
    for gpu in gpus:
        marks = _marks(gpu, plugin, ids)
        if isinstance(advertised, str) and not marks:
            yield NotApplicable(gpu, advertised)
        elif marks:
            yield _unhealthy(gpu, marks, advertised, ids)
        elif isinstance(advertised, Unread):
            yield advertised.about(gpu)
        elif isinstance(advertised, Advertised) and _advertises(gpu, advertised, ids):
            said = (plugin.spoke.read,) if plugin.spoke is not None and not plugin.spoke.cut else ()
            yield Pass(gpu, "the kubelet has it to give, which are the healthy ones", (advertised.evidence, *said))
        elif isinstance(plugin.log, Unread):
            yield plugin.log.about(gpu)
        else:
            yield NotApplicable(gpu, f"it is not advertised, see {ADVERTISED}")


def _marks(gpu: PciGpu, plugin: DevicePlugin, ids: GpuIds) -> tuple[Mark, ...]:
    marks = plugin.spoke.marks if plugin.spoke is not None and plugin.present else ()
    return tuple(mark for mark in marks if not mark.device or ids.address(mark.device) == gpu.address)


def _advertises(gpu: PciGpu, advertised: Advertised, ids: GpuIds) -> bool:
    return any(ids.address(device) == gpu.address for device in advertised.own_ids)


def _unhealthy(gpu: PciGpu, marks: tuple[Mark, ...], advertised: Advertised | Unread | str, ids: GpuIds) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import NO_RECOVERY, restart_plugin, see_gpu_first

    mark = marks[0]
    why = f" for Xid {mark.xid}" if mark.xid is not None else ""
    which = f"{_listed([one.device for one in marks])} of it" if mark.device.lower().startswith("mig-") else "it"
    what = f"the plugin holds {which} unhealthy{why}" if mark.device else "the plugin has taken out all devices"
    given: Cited = ()
    if isinstance(advertised, Advertised):
        plain = {device.lower() for device in advertised.ids}
        heard = all(one.device.lower() not in plain for one in marks if one.device)
        what += (
            ": no pod is given it until the plugin starts anew"
            if heard
            else ", and the kubelet, which has not heard, still gives it out"
        )
        given = (advertised.evidence,)
    steps: tuple[Remedy, ...] = (
        see_gpu_first(HEALTHY),
        restart_plugin(HEALTHY, "Then let the plugin start anew: it takes every GPU for healthy.", then=True),
    )
    evidence = (*(one.evidence for one in marks[:MOST_NAMED]), *given, ids.shows)
    cause = f"xid-{mark.xid}" if mark.xid is not None else "unhealthy"
    if mark.device:
        return Warn(gpu, what, evidence, steps, cause=cause, references=(NO_RECOVERY,))
    return Fail(gpu, what, evidence, steps, Breaks.SUBJECT, cause=cause, references=(NO_RECOVERY,))


# Are they all there? -------------------------------------------------------------------------------------------------


@check(
    "device-plugin.all-gpus-advertised",
    link=Link.DEVICE_PLUGIN,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(HEALTHY, STRATEGY),
    title="Every GPU of the driver is advertised",
)
def all_gpus_advertised(
    gpus: PciGpus, plugin: DevicePlugin, ids: GpuIds, driver: Reading[DriverGpus], errors: Reading[GpuErrors]
) -> Verdicts:
    """A GPU that the driver has and the plugin does not advertise is one that no pod will ever be given.

    The plugin lists the GPUs when it starts: one that came later, by a late probe or after a reset, is missing until it starts anew. One
    that it has marked unhealthy is missing too; where its log is not seen, an Xid in the kernel log points to that. GPUs held by another
    driver (vfio-pci for virtual machines), excluded ones and those that the plugin's own container may not see are left out on purpose.
    Of a GPU in MIG mode its instances count.
    """
    advertised = _nothing(plugin)
    for gpu in gpus:
        if isinstance(advertised, str):
            yield NotApplicable(gpu, advertised)
        elif isinstance(advertised, Unread):
            yield advertised.about(gpu)
        elif not any(ids.knows(device) or ids.address(device) for device in advertised.own_ids):
            yield NotApplicable(gpu, f"{advertised.words}: no UUIDs of GPUs", (advertised.evidence,))
        elif gpu.address in ids.nameless:
            yield Unknown(gpu, Why.NOT_ANSWERED, "it tells no UUID to look for", (advertised.evidence,))
        else:
            verdict = _is_there(gpu, advertised, ids, errors)
            yield (_on_purpose(gpu, plugin, driver, ids) if isinstance(verdict, Warn) else None) or verdict


def _on_purpose(gpu: PciGpu, plugin: DevicePlugin, driver: Reading[DriverGpus], ids: GpuIds) -> Verdict | None:
    if isinstance(gpu.driver, Unread):
        return gpu.driver.about(gpu)
    if gpu.driver != "nvidia":
        return NotApplicable(gpu, f"held by {gpu.driver or 'no driver'}")
    listed = None if isinstance(driver, Unread) else driver.gpus.get(gpu.address)
    if isinstance(listed, DriverGpu) and listed.excluded:
        return NotApplicable(gpu, "excluded from use", listed.cite("excluded"))
    if isinstance(plugin.restricted, Unread):
        return plugin.restricted.about(gpu)
    if ids.mig_unread is not None:
        return ids.mig_unread.about(gpu)
    if plugin.restricted is not None:
        return NotApplicable(gpu, "the plugin's container may see only some GPUs", (plugin.restricted,))
    return None


def _is_there(gpu: PciGpu, advertised: Advertised, ids: GpuIds, errors: Reading[GpuErrors]) -> Verdict:
    devices = [uuid for uuid, _ in ids.mig.get(gpu.address, ()) if uuid]
    missing = [uuid for uuid in devices if uuid.lower() not in advertised.own_ids]
    whole = not devices or len(missing) == len(devices)
    if whole and _advertises(gpu, advertised, ids):
        return Pass(gpu, "advertised", (advertised.evidence, ids.shows))
    if not whole and not missing:
        return Pass(gpu, f"its {len(devices)} MIG devices are advertised", (advertised.evidence, ids.shows))
    if gpu.address in ids.mig and not devices:
        return NotApplicable(gpu, f"in MIG mode without instances, see {STRATEGY}")
    return _missing(gpu, missing, advertised, ids, errors)


def _missing(
    gpu: PciGpu, devices: list[str], advertised: Advertised, ids: GpuIds, errors: Reading[GpuErrors]
) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import restart_plugin, see_gpu_first

    what = (
        f"of its MIG devices {_listed(devices)} are not advertised"
        if devices
        else "the driver has it, but it is not advertised"
    )
    seen: Cited = ()
    why = "it came after the plugin had started, or is held unhealthy"
    for trouble in errors.of(gpu.address) if not isinstance(errors, Unread) else ():
        fold = next((one for one in trouble.folds if one.code not in IGNORED), None)
        if fold is not None and not isinstance(errors, Unread):
            why = (
                f"the driver has reported Xid {fold.code}, for which the plugin takes a device out until it starts anew"
            )
            seen = (errors.evidence(fold.last),)
    summary = f"{what} among {advertised.words}: {why}"
    steps = (see_gpu_first(ADVERTISED),) if seen else ()
    again = restart_plugin(ADVERTISED, "Let the plugin start anew: it lists the GPUs then.", then=bool(steps))
    return Warn(gpu, summary, (advertised.evidence, ids.shows, *seen), (*steps, again), cause="missing")


# Replicas ------------------------------------------------------------------------------------------------------------


@check(
    REPLICAS,
    link=Link.DEVICE_PLUGIN,
    explained_by=(HEALTHY,),
    title="Every shared GPU is advertised as often as configured",
)
def replicas_add_up(plugin: DevicePlugin, ids: Reading[GpuIds]) -> Verdicts:
    """With time-slicing or MPS a GPU is advertised several times, as UUID::0, UUID::1 and so on; the numbers must be those configured.

    One replica that is missing while others are there: of a shared GPU the plugin takes out a single one when the GPU has an error, and
    goes on giving out the rest of an ill GPU. Fewer than configured on all GPUs: the plugin runs with another configuration than the
    file says. Where the configuration names devices, or is not seen, only gaps count. Ids without `::` are not shared.
    """
    advertised = _nothing(plugin)
    if not isinstance(advertised, Advertised):
        yield NotApplicable(NODE, advertised) if isinstance(advertised, str) else advertised.about(NODE)
        return
    configured = {name: (count, all_of_them) for name, count, all_of_them in shared(plugin.config)}
    found = {name: _replicas(devices) for name, devices in advertised.by_resource.items()}
    parted = {name: by_device for name, by_device in found.items() if by_device}
    wrong = [_uneven(name, parted[name], configured.get(name), plugin, advertised, ids) for name in parted]
    alarms = [one for one in wrong if one is not None]
    alarms += [
        _unshared(name, count, plugin, advertised)
        for name, (count, _) in configured.items()
        if name in advertised.by_resource and name not in parted and count > 1
    ]
    yield from alarms
    if not parted and not alarms:
        yield NotApplicable(NODE, "no device is advertised more than once", (advertised.evidence,))
    elif not alarms:
        words = [f"{len(by_device)} devices {_each(by_device)} times as {name}" for name, by_device in parted.items()]
        yield Pass(NODE, "; ".join(words), (advertised.evidence,))


def _replicas(devices: tuple[str, ...]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for device in devices:
        own, sign, number = device.partition(REPLICA)
        if sign and (counted := decimal(number)) is not None:
            found.setdefault(own, set()).add(counted)
    return {own: frozenset(numbers) for own, numbers in found.items()}


def _each(by_device: Mapping[str, frozenset[int]]) -> str:
    counts = sorted({len(numbers) for numbers in by_device.values()})
    return " or ".join(map(str, counts))


def _uneven(
    name: str,
    by_device: Mapping[str, frozenset[int]],
    configured: tuple[int, bool] | None,
    plugin: DevicePlugin,
    advertised: Advertised,
    ids: Reading[GpuIds],
) -> Verdict | None:
    """Of a resource whose devices do not all have the replicas 0 to N-1."""
    from gpudoctor.knowledge.device_plugin_remedies import restart_plugin

    most = configured[0] if configured is not None else max(max(numbers) + 1 for numbers in by_device.values())
    wanted = frozenset(range(min(most, MOST_REPLICAS)))
    odd = {device: numbers for device, numbers in by_device.items() if numbers != wanted}
    if not odd:
        return None
    counts = [f"{device} has {len(numbers)}{_lacking(wanted - numbers)}" for device, numbers in odd.items()]
    total, right = sum(map(len, by_device.values())), len(by_device) * len(wanted)
    summary = f"{name} has {total} replicas instead of {len(by_device)} times {most}, {right}: {_listed(counts)}"
    known = [None if isinstance(ids, Unread) else ids.address(device) for device in odd]
    of = tuple(Subject(SubjectKind.GPU, address) for address in known if address is not None)
    said = (Evidence(plugin.config_at, f"replicas of {name}: {most}"),) if configured is not None else ()
    step = restart_plugin(REPLICAS, "Let the plugin start anew when the GPUs are known to be well.")
    return Warn(
        resource(name),
        summary,
        (advertised.evidence, *said),
        (step,),
        cause="replicas",
        of=of if len(of) == len(odd) else (),
    )


def _lacking(missing: frozenset[int]) -> str:
    return f" and lacks {_listed([f'::{number}' for number in sorted(missing)])}" if missing else ""


def _unshared(name: str, count: int, plugin: DevicePlugin, advertised: Advertised) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import restart_plugin

    summary = f"{name} is to be advertised {count} times for each device, and is advertised once"
    said = Evidence(plugin.config_at, f"replicas of {name}: {count}")
    step = restart_plugin(REPLICAS, "Let the plugin start anew: it reads its configuration then.")
    return Warn(resource(name), summary, (advertised.evidence, said), (step,), cause="replicas")
