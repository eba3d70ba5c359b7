"""The kubelet's side of GPUs for pods: its record of who holds what, its socket and those of plugins, and who is registered."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN, resource
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.kubelet_checkpoint import Checksum, KubeletCheckpoint, PodDevices
from gpudoctor.facts.plugin_sockets import KUBELET_SOCKET, PluginSocket, PluginSockets, resource_of
from gpudoctor.facts.pod_resources import PodResources
from gpudoctor.facts.raw import Absent
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
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

NO_PLUGIN = "no NVIDIA device plugin on this node"
STARTING = 60.0
"""So long a plugin may take from its start, or the kubelet's, to its registration: NVML alone takes up to 40 s without persistence."""


@check(
    "device-plugin.checkpoint-sound", link=Link.DEVICE_PLUGIN, title="The kubelet's record of devices and pods is sound"
)
def checkpoint_sound(
    checkpoint: KubeletCheckpoint, settings: KubeletSettings, sockets: Reading[PluginSockets]
) -> Verdicts:
    """kubelet_internal_checkpoint is the only record of which pod holds which GPU.

    A kubelet that cannot read it, or finds another checksum, starts all the same and takes every device for free: pods that restart then
    come up without their GPU, and two pods are given one. The file is read in its three shapes (list, by NUMA node, with BootID), its
    checksum is computed as the kubelet does it, and its entries are looked through for devices given to several pods. Devices that stay
    registered after their plugin is gone, and entries of pods that have ended, are usual: the kubelet drops these at the next allocation.
    """
    subject = Subject(SubjectKind.FILE, checkpoint.path)
    if not checkpoint.kubelet:
        yield NotApplicable(NODE, NO_KUBELET, checkpoint.cite("command") if "command" in checkpoint.read_from else ())
    elif isinstance(checkpoint.state, Absent):
        yield _no_checkpoint(subject, checkpoint, sockets)
    elif isinstance(checkpoint.state, Malformed):
        summary = (
            "the kubelet's record of who holds which device cannot be read: after its next start it takes all for free"
        )
        yield _unsound(subject, summary, checkpoint.cite("file"), settings, "unreadable")
    elif not checkpoint.concerns_gpus:
        yield NotApplicable(NODE, "it holds no device of NVIDIA's", checkpoint.cite("file"))
    else:
        yield from _judge_entries(subject, checkpoint, settings)


def _no_checkpoint(subject: Subject, checkpoint: KubeletCheckpoint, sockets: Reading[PluginSockets]) -> Verdict:
    from gpudoctor.knowledge.kubelet_remedies import REWRITE_CHECKPOINT

    connected = () if isinstance(sockets, Unread) else tuple(sorted(sockets.connected))
    if isinstance(sockets, Unread) or not connected:
        return NotApplicable(NODE, "the kubelet has kept nothing of devices", checkpoint.cite("file"))
    evidence = (*checkpoint.cite("file"), *sockets.cite_connections(f"connected to {', '.join(connected)}"))
    summary = "a device plugin is registered, but the record of who holds which device is gone: a restarted kubelet takes all for free"
    return Warn(subject, summary, evidence, (REWRITE_CHECKPOINT,), cause="gone")


def _unsound(subject: Subject, summary: str, evidence: Cited, settings: KubeletSettings, cause: str) -> Warn:
    """The running kubelet has it in memory and writes the file anew when a plugin registers: what is lost is lost at its next start."""
    from gpudoctor.knowledge.kubelet_remedies import REWRITE_CHECKPOINT, drain_and_remove

    remedies = (REWRITE_CHECKPOINT, drain_and_remove(subject.key, settings.unit))
    return Warn(subject, summary, evidence, remedies, cause=cause)


def _judge_entries(subject: Subject, checkpoint: KubeletCheckpoint, settings: KubeletSettings) -> Iterator[Verdict]:
    twice = [_given_twice(subject, checkpoint, device, both) for device, both in checkpoint.given_twice.items()]
    yield from twice
    if checkpoint.checksum is Checksum.WRONG:
        summary = "the checksum is not that of the data: a kubelet that starts discards the record and takes every device for free"
        evidence = (*checkpoint.cite("file"), Evidence(checkpoint.path, checkpoint.why))
        yield _unsound(subject, summary, evidence, settings, "checksum")
    elif checkpoint.checksum is Checksum.UNKNOWN:
        yield Unknown(
            subject, Why.UNREADABLE, f"its checksum cannot be verified: {checkpoint.why}", checkpoint.cite("file")
        )
    elif not twice:
        holders = len({entry.pod_uid for entry in checkpoint.held})
        summary = f"its checksum is right, {holders} {'pod holds' if holders == 1 else 'pods hold'} GPUs, no device is given twice"
        yield Pass(subject, summary, (*checkpoint.cite("file"), checkpoint.counted()))


def _given_twice(
    subject: Subject, checkpoint: KubeletCheckpoint, device: str, entries: tuple[PodDevices, ...]
) -> Verdict:
    from gpudoctor.knowledge.kubelet_remedies import CREATE_PODS_ANEW, WAIT_FOR_ALLOCATION

    evidence = tuple(
        Evidence(checkpoint.path, f"pod {one.pod_uid}, container {one.container}: {device}") for one in entries[:4]
    )
    there = checkpoint.pods
    if not isinstance(there, Unread) and sum(one.pod_uid in there for one in entries) > 1:
        summary = f"{len(entries)} pods that are still on the node were given one device, {device}"
        return Fail(subject, summary, evidence, (CREATE_PODS_ANEW,), Breaks.NOTHING, cause="twice")
    summary = (
        f"{len(entries)} pods have an entry with one device, {device}: one of them is a leftover, or they share it"
    )
    return Warn(subject, summary, evidence, (WAIT_FOR_ALLOCATION, CREATE_PODS_ANEW), cause="twice")


# Sockets -------------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.socket-alive", link=Link.DEVICE_PLUGIN, title="Somebody listens on the sockets of the device plugins"
)
def socket_alive(sockets: PluginSockets, settings: KubeletSettings) -> Verdicts:
    """A socket's file outlives who made it: a device plugin that was killed leaves nvidia-gpu.sock behind, and the kubelet has no GPUs.

    Who listens is read from /proc/PID/net/unix of the kubelet and of the plugins, each in its own network namespace; what the kubelet is
    connected to shows in its own. A plugin that is stopped properly removes its socket, and a kubelet that starts removes all: a socket
    that is older than the kubelet's own was overlooked. Devices in the kubelet's checkpoint prove nothing, they stay for minutes. That a
    plugin listens does not mean that the kubelet knows it: device-plugin.registered.
    """
    if (nothing := nothing_to_ask(sockets)) is not None:
        yield nothing
        return
    dead = [socket for socket in sockets.nvidia if socket.listens is False and socket.connected is False]
    yield from _own_socket(sockets, settings)
    for socket in sockets.nvidia:
        if sockets.left_behind(socket):
            yield NotApplicable(socket, f"left behind: another one serves {socket.resource}", socket.age)
        elif socket in dead:
            yield _dead(socket, sockets, Breaks.NODE if len(dead) == len(sockets.nvidia) else Breaks.SUBJECT)
        elif socket.connected is True:
            seen = sockets.cite_connections(f"connected: {socket.path}")
            yield Pass(socket, "the kubelet is connected to it", (*seen, *socket.age))
        elif socket.listens is True:
            yield Pass(socket, "a plugin listens on it", _listening(socket, sockets))
        else:
            yield _unseen(socket, socket.listens)
    if not sockets.nvidia and sockets.unlisted is not None:
        yield sockets.unlisted.about(NODE)


def nothing_to_ask(sockets: PluginSockets) -> Verdict | None:
    """Where the question makes no sense."""
    if sockets.kubelet is None:
        return NotApplicable(NODE, NO_KUBELET)
    if sockets.concerns_gpus:
        return None
    if sockets.unlisted is not None:
        return sockets.unlisted.about(NODE)
    return NotApplicable(NODE, NO_PLUGIN, sockets.cite("directory"))


def _unseen(socket: PluginSocket, reading: Reading[bool]) -> Verdict:
    unread = (
        reading if isinstance(reading, Unread) else Unread(Why.NOT_ANSWERED, socket.path, "who listens is not known")
    )
    return unread.about(socket)


def _listening(socket: PluginSocket, sockets: PluginSockets) -> Cited:
    for plugin in sockets.plugins:
        if not isinstance(plugin.listening, Unread) and socket.name in plugin.listening:
            return plugin.listens(socket.path), *socket.age
    return (*sockets.cite_connections(f"listening: {socket.path}"), *socket.age)


def _own_socket(sockets: PluginSockets, settings: KubeletSettings) -> Iterator[Verdict]:
    from gpudoctor.knowledge.kubelet_remedies import restart_kubelet

    own = sockets.own
    path = f"{sockets.directory}/{KUBELET_SOCKET}"
    subject = Subject(SubjectKind.FILE, path)
    silent = isinstance(own, Absent) or (isinstance(own, PluginSocket) and own.listens is False)
    if silent and (starting := _starting(subject, sockets)) is not None:
        yield starting
    elif isinstance(own, Absent):
        summary = "the kubelet runs, but the socket where plugins register is gone"
        yield Fail(subject, summary, (own.evidence,), (restart_kubelet(settings.unit),), Breaks.NODE, cause="kubelet")
    elif isinstance(own, Unread):
        yield own.about(subject)
    elif own is not None and own.listens is False:
        evidence = (*own.age, *sockets.cite_connections(f"nobody listens on {path}"))
        summary = "the kubelet runs, but does not listen where plugins register"
        yield Fail(subject, summary, evidence, (restart_kubelet(settings.unit),), Breaks.NODE, cause="kubelet")
    elif own is not None and own.listens is True:
        yield Pass(
            subject, "the kubelet listens where plugins register", sockets.cite_connections(f"listening: {path}")
        )
    elif own is not None:
        yield _unseen(own, own.listens)


def _dead(socket: PluginSocket, sockets: PluginSockets, breaks: Breaks) -> Verdict:
    """A plugin under another name, in a network namespace of its own, would not be seen; the kubelet's connection to it would."""
    from gpudoctor.knowledge.kubelet_remedies import ASK_PLUGIN, RESTART_PLUGIN

    if sockets.unseen is not None and not sockets.plugins:
        return sockets.unseen.about(socket)
    evidence: Cited = (*socket.age, *sockets.cite_connections(f"nobody listens on {socket.path}, nobody is connected"))
    if not sockets.plugins:
        evidence = (*evidence, Evidence("processes (/proc/*/stat)", "no device plugin of NVIDIA's runs"))
        summary = "nobody listens on it: the device plugin that made it was killed or crashed, and none has come back"
    else:
        summary = f"nobody listens on it: {sockets.plugins[0].words} runs, but serves nothing there"
    return Fail(socket, summary, evidence, (ASK_PLUGIN, RESTART_PLUGIN), breaks, cause="nobody-listens")


# Registration --------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.registered",
    link=Link.DEVICE_PLUGIN,
    needs={Link.SHARING},
    explained_by=("device-plugin.socket-alive", "device-plugin.plugin-found-devices", "device-plugin.mig-strategy"),
    title="The kubelet knows the device plugins that run",
)
def registered(
    sockets: PluginSockets,
    checkpoint: Reading[KubeletCheckpoint],
    resources: Reading[PodResources],
) -> Verdicts:
    """A plugin tells the kubelet of itself once; the kubelet then connects to the plugin's socket, and only then has the node GPUs.

    A kubelet that restarts forgets its plugins and removes their sockets. NVIDIA's plugin watches for the new kubelet.sock and registers
    again; one that hangs, is stopped or watches another directory goes on without knowing that nobody listens to it. The connection is
    seen in the kubelet's own /proc/PID/net/unix, or the kubelet tells what is allocatable. The checkpoint is no proof of life: it lists
    the devices of a plugin that is gone until the kubelet drops them, five minutes later. A plugin that runs and has registered nothing
    may have found no device; what has just started, a plugin or the kubelet, is given a minute. Where the driver itself is dead no
    plugin can register.
    """
    if (nothing := nothing_to_ask(sockets)) is not None:
        yield nothing
        return
    there = {socket.name for socket in sockets.nvidia}
    held = sorted(sockets.connected - there)
    lost = [name for name in sockets.wiped if name not in sockets.connected]
    for socket in _by_resource(sockets.nvidia):
        yield _registration(socket, sockets, resources)
    for name in held:
        summary = f"the kubelet is connected to {name}, though its file is gone"
        yield Pass(_served(name), summary, sockets.cite_connections(f"connected: {name}"))
    for name in lost:
        yield _wiped(name, sockets, resources)
    known = () if isinstance(checkpoint, Unread) else checkpoint.resources
    if sockets.nvidia or held or lost:
        return
    if known and not sockets.plugins and all(map(sockets.served_by_others, known)):
        yield NotApplicable(NODE, f"other plugins serve {', '.join(known)}", sockets.cite("directory"))
    else:
        yield from _none_registered(sockets, checkpoint, resources)


def _served(name: str) -> Subject:
    """What a plugin's socket is for: its resource, the node where its name does not tell."""
    served = resource_of(name)
    return resource(served) if served is not None else NODE


def _by_resource(sockets: tuple[PluginSocket, ...]) -> tuple[PluginSocket, ...]:
    """One for each resource: beside a running plugin's socket may lie one that another left, as GKE's have a time in their names."""
    best: dict[str, PluginSocket] = {}
    for socket in sorted(sockets, key=lambda one: (one.connected is True, one.listens is True), reverse=True):
        best.setdefault(socket.resource or socket.name, socket)
    return tuple(best[name] for name in sorted(best))


def _told(name: str | None, resources: Reading[PodResources]) -> Cited:
    """What the kubelet itself says is allocatable of a resource; of a plugin that is gone it is none."""
    if isinstance(resources, Unread) or name is None:
        return ()
    ids = resources.allocatable_ids(name)
    return () if isinstance(ids, Unread) or not ids else resources.cite("allocatable")


def _unproven(sockets: PluginSockets, resources: Reading[PodResources]) -> Unread | None:
    """Why a connection that is not seen may be there all the same: the table lists none at all, and the kubelet was not heard."""
    if isinstance(sockets.connections, Unread):
        return sockets.connections
    if sockets.shows_connections:
        return None
    silent = resources if isinstance(resources, Unread) else resources.allocatable
    return silent if isinstance(silent, Unread) else None


def _not_connected(what: str, sockets: PluginSockets, resources: Reading[PodResources]) -> tuple[Evidence, ...]:
    """That the kubelet is not connected to a socket, and what it has to give."""
    seen = sockets.cite_connections(f"nobody is connected to {what}")
    heard = not isinstance(resources, Unread) and not isinstance(resources.allocatable, Unread)
    return (*seen, *resources.cite("allocatable")) if heard and not isinstance(resources, Unread) else seen


def _registration(socket: PluginSocket, sockets: PluginSockets, resources: Reading[PodResources]) -> Verdict:
    from gpudoctor.knowledge.kubelet_remedies import ASK_PLUGIN, RESTART_PLUGIN

    subject = _served(socket.name)
    told = _told(socket.resource, resources)
    if socket.connected is True or told:
        evidence = sockets.cite_connections(f"connected: {socket.path}") if socket.connected is True else ()
        return Pass(subject, "the kubelet knows the plugin", (*evidence, *told))
    if socket.listens is False:
        return NotApplicable(subject, f"nobody listens on {socket.name}: device-plugin.socket-alive", socket.age)
    if isinstance(socket.listens, Unread):
        return socket.listens.about(subject)
    if (unproven := _unproven(sockets, resources)) is not None:
        return unproven.about(subject)
    if (starting := _starting(subject, sockets)) is not None:
        return starting
    summary = f"a plugin listens on {socket.name}, but the kubelet is not connected: it has not registered, or its registration is lost"
    evidence = (*_listening(socket, sockets), *_not_connected(socket.path, sockets, resources))
    breaks = Breaks.SUBJECT if sockets.connected else Breaks.NODE
    return Fail(subject, summary, evidence, (ASK_PLUGIN, RESTART_PLUGIN), breaks, cause="not-registered")


def _starting(subject: Subject, sockets: PluginSockets) -> Unknown | None:
    """What is not there yet may come: a plugin's registration, and after a kubelet's start the plugins."""
    if sockets.ageless is not None:
        return sockets.ageless.about(subject)
    young = next((one for one in sockets.plugins if one.age is not None and one.age < STARTING), None)
    age = sockets.kubelet_age
    if young is not None and young.age is not None:
        summary, words = "the device plugin has just started", f"{young.words} runs since {max(young.age, 0):.0f} s"
    elif sockets.kubelet is not None and age is not None and age < STARTING:
        program = f"{sockets.kubelet.program.value} (pid {sockets.kubelet.pid})"
        summary, words = "the kubelet has just started", f"{program} runs since {max(age, 0):.0f} s"
    else:
        return None
    return Unknown(subject, Why.SLOW_INIT, summary, (Evidence("processes (/proc/*/stat)", words),))


def _wiped(name: str, sockets: PluginSockets, resources: Reading[PodResources]) -> Verdict:
    from gpudoctor.knowledge.kubelet_remedies import ASK_PLUGIN, RESTART_PLUGIN

    subject, served = _served(name), resource_of(name)
    if told := _told(served, resources):
        return Pass(subject, f"the kubelet has {served} to give, though {name} is gone", told)
    if (unproven := _unproven(sockets, resources)) is not None:
        return unproven.about(subject)
    if (starting := _starting(subject, sockets)) is not None:
        return starting
    who = next(one for one in sockets.plugins if not isinstance(one.listening, Unread) and name in one.listening)
    seen = (who.listens(name), *sockets.cite("directory", "started"), *_not_connected(name, sockets, resources))
    summary = (
        f"{who.words} still listens on {name}, which a kubelet's restart has removed, and has not registered again"
    )
    summary += f": the node has no {served}" if served else ""
    return Fail(subject, summary, seen, (ASK_PLUGIN, RESTART_PLUGIN), Breaks.NODE, cause="wiped")


def _none_registered(
    sockets: PluginSockets, checkpoint: Reading[KubeletCheckpoint], resources: Reading[PodResources]
) -> Verdicts:
    from gpudoctor.knowledge.kubelet_remedies import ASK_PLUGIN, RESTART_PLUGIN, START_PLUGIN

    kept = None if isinstance(checkpoint, Unread) else checkpoint
    before = kept.resources if kept is not None else ()
    names = [name for name in before if not sockets.served_by_others(name)]
    given = {name: told for name in before or ("nvidia.com/gpu",) if (told := _told(name, resources))}
    if given:
        for name, told in given.items():
            yield Pass(resource(name), f"the kubelet has {name} to give", told)
    elif isinstance(sockets.connections, Unread):
        yield sockets.connections.about(NODE)
    elif sockets.unlisted is not None:
        yield sockets.unlisted.about(NODE)
    elif (starting := _starting(NODE, sockets)) is not None:
        yield starting
    elif sockets.plugins:
        plugin = sockets.plugins[0]
        evidence = (Evidence("processes (/proc/*/stat)", f"{plugin.words} runs"), *sockets.cite("directory"))
        summary = f"{plugin.words} runs, but has opened no socket and registered nothing"
        remedies = (ASK_PLUGIN, RESTART_PLUGIN)
        yield Fail(NODE, summary, evidence, remedies, Breaks.NODE, cause="serves-nothing", of=(PLUGIN,))
    elif sockets.unseen is not None:
        yield sockets.unseen.about(NODE)
    elif kept is None or not names:
        summary = "no device plugin runs; of NVIDIA's devices only entries of pods are left in the kubelet's record"
        yield NotApplicable(NODE, summary, (*sockets.cite("directory"), *(kept.cite("file") if kept else ())))
    else:
        evidence = (kept.counted(), *sockets.cite("directory"))
        for name in names:
            summary = f"no device plugin is there any more for {name}: what the kubelet's record lists is what one registered before"
            yield Fail(resource(name), summary, evidence, (ASK_PLUGIN, START_PLUGIN), Breaks.NODE, cause="gone")
