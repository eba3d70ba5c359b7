"""NVIDIA's device plugin against the node: does it find GPUs, alone, in the layout that they have, and can the mapping be read?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_KUBELET, NO_MIG
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN, DevicePlugin, GpuIds, Told, resource
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.kubelet_checkpoint import KubeletCheckpoint
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.mapping_readers import MappingReaders
from gpudoctor.facts.plugin_log import PluginLog
from gpudoctor.facts.plugin_sockets import PluginProcess, PluginSockets, is_nvidias, resource_of
from gpudoctor.facts.pod_resources import PodResources
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
)

FOUND, ONE, STALE, STRATEGY, MAPPING = (
    f"device-plugin.{name}"
    for name in (
        "plugin-found-devices",
        "one-plugin-per-resource",
        "stale-resources",
        "mig-strategy",
        "mapping-readable",
    )
)
NO_PLUGIN = "no NVIDIA device plugin on this node"
NOT_REGISTERED = "no device plugin is registered, see device-plugin.registered"
_PROCESSES = "processes (/proc/*/stat)"


def without_plugin(plugin: DevicePlugin) -> str | None:
    """Why there is nothing to ask."""
    return None if plugin.present else NO_PLUGIN if plugin.kubelet else NO_KUBELET


# What it found -------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.plugin-found-devices",
    link=Link.DEVICE_PLUGIN,
    needs={Link.TOOLKIT, Link.SHARING},
    explained_by=(STRATEGY,),
    title="The device plugin has found GPUs",
)
def plugin_found_devices(plugin: DevicePlugin, sockets: PluginSockets, engine: Reading[KubeletEngine]) -> Verdicts:
    """A plugin that finds no GPU runs on for ever, healthy for Kubernetes, and the node has none to give; or it ends at its start.

    It looks inside its own container: the node may be well while the container was started by another runtime than NVIDIA's, and has no
    libnvidia-ml.so.1. What it looked for in vain stands in its log, which is read as the kubelet or the journal keeps it, since its last
    start. It never looks again by itself: with failOnInitError=false it waits, else Kubernetes starts it over and over. If the driver or
    the runtime of the node is broken, that is the cause.
    """
    log = plugin.spoke
    if (reason := without_plugin(plugin)) is not None:
        yield NotApplicable(NODE, reason)
    elif log is not None and (said := log.ended or log.found_nothing) is not None and not _advertises(plugin):
        yield _found_nothing(log, said, sockets, engine)
    elif isinstance(plugin.advertised, Unread):
        yield plugin.advertised.about(PLUGIN)
    elif plugin.advertised is not None:
        seen = (plugin.advertised.evidence, *(log.registered[-1:] if log is not None else ()))
        yield Pass(PLUGIN, f"the kubelet has {plugin.advertised.words} to give", seen)
    elif log is not None and log.serves and sockets.plugins:
        # It opens a socket only for what it has found (main.go, startPlugins).
        yield Pass(PLUGIN, "it has found devices and serves them", log.serves[-1:])
    elif isinstance(plugin.log, Unread):
        yield plugin.log.about(PLUGIN)
    else:
        yield NotApplicable(PLUGIN, NOT_REGISTERED)


def _advertises(plugin: DevicePlugin) -> bool:
    return plugin.advertised is not None and not isinstance(plugin.advertised, Unread)


def _found_nothing(log: PluginLog, said: Evidence, sockets: PluginSockets, engine: Reading[KubeletEngine]) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import PLUGIN_PREREQUISITES, restart_plugin, run_under_nvidia

    reasons = tuple(one for one in log.reasons if one != said)
    process = f"{sockets.plugins[0].words} runs" if sockets.plugins else "the device plugin"
    why = f": {reasons[0].shows}" if reasons else ""
    waits = f"{process} and waits, having found no device{why}"
    summary = waits if said is log.found_nothing else f"the device plugin ends at its start: {said.shows}"
    again = restart_plugin(
        FOUND, "When the cause is mended, let the plugin start anew: it does not look again by itself.", then=True
    )
    evidence = tuple(dict.fromkeys((said, *reasons, *sockets.cite("directory"))))
    own = None if isinstance(engine, Unread) else engine.own
    remedies = (run_under_nvidia(own.name, own.config) if own is not None else run_under_nvidia(), again)
    return Fail(
        PLUGIN, summary, evidence, remedies, Breaks.NODE, cause="no-devices", references=(PLUGIN_PREREQUISITES,)
    )


# Two of them ---------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.one-plugin-per-resource",
    link=Link.DEVICE_PLUGIN,
    title="One device plugin serves each resource",
)
def one_plugin_per_resource(sockets: PluginSockets) -> Verdicts:
    """Of two plugins for one resource the kubelet talks to the one that registered last; the other believes that it serves the node.

    An Operator beside a chart, a manifest beside the plugin of the node's image: each starts by removing the other's socket, and on every
    restart of the kubelet they change places. Devices that one has marked unhealthy are healthy for the other. Which sockets a plugin
    listens on is read from /proc/PID/net/unix, each in its own network namespace. Plugins for different resources, such as one for each
    profile of MIG, are as it should be.
    """
    if sockets.kubelet is None or not sockets.concerns_gpus:
        yield NotApplicable(NODE, NO_KUBELET if sockets.kubelet is None else NO_PLUGIN)
        return
    serving: dict[str, list[tuple[PluginProcess, str]]] = {}
    for plugin in sockets.plugins:
        for name in plugin.listening if not isinstance(plugin.listening, Unread) else ():
            if is_nvidias(name):
                serving.setdefault(resource_of(name) or name, []).append((plugin, name))
    twice = {name: both for name, both in serving.items() if _listeners(both) > 1 < len({one.pid for one, _ in both})}
    for name, both in twice.items():
        yield _two(name, both)
    unread = next((one.listening for one in sockets.plugins if isinstance(one.listening, Unread)), None)
    if twice:
        return
    if unread is not None and len(sockets.plugins) > 1:
        yield unread.about(NODE)
    elif serving:
        listed = ", ".join(f"{both[0][0].words} serves {name}" for name, both in serving.items())
        yield Pass(NODE, listed, tuple(plugin.listens(name) for both in serving.values() for plugin, name in both[:1]))
    else:
        yield NotApplicable(NODE, "no device plugin is seen to serve anything")


def _listeners(both: list[tuple[PluginProcess, str]]) -> int:
    """Sockets, not processes: of two in one network namespace, as the host's, each is seen to listen on what the other does."""
    heard = [one.listening[name] for one, name in both if not isinstance(one.listening, Unread)]
    return len(frozenset[int]().union(*heard))


def _two(name: str, both: list[tuple[PluginProcess, str]]) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import ONE_PLUGIN

    plugins = list(dict.fromkeys(plugin.words for plugin, _ in both))
    summary = f"{len(plugins)} device plugins serve {name}: {' and '.join(plugins)}; the kubelet talks to one of them"
    evidence = tuple(plugin.listens(name) for plugin, name in both)
    return Warn(resource(name), summary, evidence, (ONE_PLUGIN,), cause="two")


# Resources without a plugin ------------------------------------------------------------------------------------------


@check(
    "device-plugin.stale-resources",
    link=Link.DEVICE_PLUGIN,
    title="Every resource that the kubelet has registered has a plugin",
)
def stale_resources(
    sockets: PluginSockets,
    checkpoint: KubeletCheckpoint,
    resources: Reading[PodResources],
    settings: KubeletSettings,
) -> Verdicts:
    """After a change of MIG's layout, of its strategy or of a resource's name the node still shows the old name: pods wait for it in vain.

    The kubelet keeps a resource whose plugin is gone for five minutes, older ones until they restart. NVIDIA's plugin serves each resource
    on a socket of its name: one that is registered and has no socket, while others have, is stale. With the strategy mixed several
    resources are as it should be. Where no plugin is registered at all, that is device-plugin.registered.
    """
    if sockets.kubelet is None or not sockets.concerns_gpus:
        yield NotApplicable(NODE, NO_KUBELET if sockets.kubelet is None else NO_PLUGIN)
        return
    alive = {name for socket in sockets.nvidia if socket.listens is not False for name in (socket.resource,) if name}
    alive |= {name for name in map(resource_of, sockets.connected) if name}
    if not alive or not checkpoint.resources:
        yield sockets.unlisted.about(NODE) if sockets.unlisted else NotApplicable(NODE, NOT_REGISTERED)
        return
    stale = [name for name in checkpoint.resources if name not in alive and not _served(name, sockets, resources)]
    if not stale:
        seen = (checkpoint.counted(), *sockets.cite("directory"))
        yield Pass(NODE, f"{', '.join(checkpoint.resources)}: each is served on a socket", seen)
    elif sockets.unlisted is not None:
        yield sockets.unlisted.about(NODE)
    else:
        for name in stale:
            yield _stale(name, checkpoint, sockets, settings)


def _served(name: str, sockets: PluginSockets, resources: Reading[PodResources]) -> bool:
    """By a plugin whose socket is called otherwise, or by the kubelet's own word."""
    if sockets.served_by_others(name):
        return True
    ids = resources if isinstance(resources, Unread) else resources.allocatable_ids(name)
    return not isinstance(ids, Unread) and bool(ids)


def _stale(name: str, checkpoint: KubeletCheckpoint, sockets: PluginSockets, settings: KubeletSettings) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import forget_resource

    held = sorted({entry.container for entry in checkpoint.held if entry.resource == name})
    summary = f"{name} is registered with the kubelet, but no plugin serves it any more"
    summary += f"; containers {', '.join(held)} were given devices of it" if held else ""
    evidence = (checkpoint.counted(), *sockets.cite("directory"))
    return Warn(resource(name), summary, evidence, forget_resource(settings.unit), cause="stale")


# MIG -----------------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.mig-strategy",
    link=Link.DEVICE_PLUGIN,
    needs={Link.SHARING},
    title="The plugin's MIG strategy fits the layout of the GPUs",
)
def mig_strategy(plugin: DevicePlugin, ids: GpuIds) -> Verdicts:
    """How the plugin advertises GPUs in MIG mode is a matter of its strategy, and each fits other layouts.

    none takes them for whole GPUs: a pod that is given one finds no device it can use. single wants all GPUs of the node in MIG mode with
    instances of one profile, and ends at its start otherwise. mixed has a resource for each profile; pods that ask for nvidia.com/gpu do
    not get those. A GPU in MIG mode without instances is advertised by no strategy but none. The strategy is read from what the plugin
    says that it runs with, its options or its environment.
    """
    if (reason := without_plugin(plugin)) is not None:
        yield NotApplicable(NODE, reason)
        return
    if ids.mig_unread is not None:
        yield ids.mig_unread.about(PLUGIN)
        return
    if not ids.mig:
        yield NotApplicable(NODE, NO_MIG, (ids.shows,))
        return
    told = plugin.options.get("migStrategy") or _by_what_it_does(plugin, ids)
    if told is None:
        unread = plugin.log if isinstance(plugin.log, Unread) else None
        yield unread.about(PLUGIN) if unread else NotApplicable(PLUGIN, "the plugin's strategy is not seen")
        return
    whole = sorted(set(ids.addresses.values()) - set(ids.mig))
    empty = [address for address, devices in ids.mig.items() if not devices]
    profiles = sorted({profile for devices in ids.mig.values() for _, profile in devices})
    match told.value:
        case "none":
            words = f"with the strategy none the plugin advertises {_named(ids.mig)} in MIG mode as whole GPUs, which no pod can use"
            yield _unfit(words, told, ids, tuple(ids.mig), Breaks.SUBJECT)
        case "single" if whole:
            words = f"the strategy single wants all GPUs in MIG mode: {_named(whole)} {'is' if len(whole) == 1 else 'are'} not"
            yield _unfit(words, told, ids, (), Breaks.NODE)
        case "single" if empty or len(profiles) > 1:
            what = f"{_named(empty)} in MIG mode without instances" if empty else f"profiles {', '.join(profiles)}"
            words = f"the strategy single wants instances of one profile everywhere: {what}"
            alone = tuple(empty) if len(profiles) < 2 else ()
            yield _unfit(words, told, ids, alone, Breaks.NODE)
        case _ if empty:
            yield from _without_instances(empty, told, ids)
        case _:
            layout = f"{len(ids.mig)} GPUs in MIG mode with {', '.join(profiles)}"
            yield Pass(PLUGIN, f"the strategy {told.value} fits {layout}", (told.evidence, ids.shows))


def _by_what_it_does(plugin: DevicePlugin, ids: GpuIds) -> Told | None:
    """A GPU in MIG mode that is advertised as a whole one: that is what the strategy none does."""
    advertised = plugin.advertised
    if advertised is None or isinstance(advertised, Unread):
        return None
    whole = [uuid for uuid, address in ids.addresses.items() if address in ids.mig and uuid.startswith("gpu-")]
    return Told("none", advertised.evidence) if any(uuid in advertised.own_ids for uuid in whole) else None


def _named(addresses: object) -> str:
    listed = list(addresses) if isinstance(addresses, (list, tuple, dict)) else []
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return f"{', '.join(listed[:4])}{more}"


def _layout(ids: GpuIds) -> Iterator[Evidence]:
    for address, devices in list(ids.mig.items())[:4]:
        profiles = [profile for _, profile in devices]
        counted = ", ".join(f"{profiles.count(one)} {one}" for one in dict.fromkeys(profiles))
        yield Evidence(ids.shows.where, f"{address}: MIG mode on, {counted or 'no instance'}")


def _unfit(summary: str, told: Told, ids: GpuIds, of: tuple[str, ...], breaks: Breaks) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import MIG_STRATEGY, fit_strategy

    gpus = tuple(Subject(SubjectKind.GPU, address) for address in of)
    evidence = (told.evidence, *_layout(ids))
    remedies = fit_strategy(told.value)
    return Fail(PLUGIN, summary, evidence, remedies, breaks, cause=told.value, of=gpus, references=(MIG_STRATEGY,))


def _without_instances(empty: list[str], told: Told, ids: GpuIds) -> Iterator[Verdict]:
    from gpudoctor.knowledge.device_plugin_remedies import MAKE_INSTANCES

    for address in empty:
        summary = "in MIG mode without instances: nothing of it is advertised"
        evidence = (Evidence(ids.shows.where, f"{address}: MIG mode on, no instance"), told.evidence)
        yield Warn(Subject(SubjectKind.GPU, address), summary, evidence, (MAKE_INSTANCES,), cause="no-instances")


# The mapping ---------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.mapping-readable",
    link=Link.DEVICE_PLUGIN,
    title="Which pod has which GPU can be read",
)
def mapping_readable(
    sockets: PluginSockets,
    resources: Reading[PodResources],
    settings: KubeletSettings,
    readers: MappingReaders,
) -> Verdicts:
    """Metrics of GPUs carry the names of pods only where the exporter can ask the kubelet who holds what, over pod-resources/kubelet.sock.

    That socket lies below the kubelet's root directory: with another --root-dir an exporter that mounts /var/lib/kubelet/pod-resources sees
    an empty directory. The kubelet makes it at its start; where it was removed nobody can ask. Looked at are the kubelet's answer, and the
    directory as each running dcgm-exporter that is told to map pods sees it.
    """
    if sockets.kubelet is None or not sockets.concerns_gpus:
        yield NotApplicable(NODE, NO_KUBELET if sockets.kubelet is None else NO_PLUGIN)
        return
    blind = [reader for reader in readers.readers if reader.sees is False]
    for reader in blind:
        yield _blind(reader.subject, reader.evidence, settings)
    if not isinstance(resources, Unread):
        if not blind:
            seen = tuple(reader.evidence[0] for reader in readers.readers if reader.sees is True)
            yield Pass(NODE, "the kubelet tells which pod has which GPU", (*resources.cite("pods"), *seen))
    elif sockets.serves_pod_resources is False and settings.kubelet is not None:
        yield _no_socket(sockets, settings)
    else:
        yield resources.about(NODE)


def _blind(subject: Subject, evidence: Cited, settings: KubeletSettings) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import POD_RESOURCES, REACH_SOCKET

    own = (
        Evidence(settings.kubelet.cite("command")[0].where, f"root directory {settings.root}")
        if settings.kubelet
        else None
    )
    summary = f"it finds no kubelet to ask where it looks; the kubelet's is {settings.root}/pod-resources: its metrics name no pod"
    seen = (*evidence, own) if own is not None else evidence
    return Warn(subject, summary, seen, (REACH_SOCKET,), cause="looks-elsewhere", references=(POD_RESOURCES,))


def _no_socket(sockets: PluginSockets, settings: KubeletSettings) -> Verdict:
    from gpudoctor.knowledge.device_plugin_remedies import POD_RESOURCES, restart_for_mapping

    summary = "the kubelet does not listen where it tells which pod has which GPU"
    evidence = sockets.cite_connections("nobody listens below pod-resources")
    remedies = (restart_for_mapping(settings.unit),)
    return Warn(NODE, summary, evidence, remedies, cause="not-served", references=(POD_RESOURCES,))
