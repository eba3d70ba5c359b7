"""Sharing by MPS: does its daemon run where it is wanted, do its servers live, and do clients find them?

MPS gives its clients address spaces of their own since Volta, but no memory of their own unless a limit is set, and no faults of their
own: a fatal exception of one client ends all that share its GPU (docs.nvidia.com/deploy/mps, "Memory Protection and Error Containment").
"""

from collections.abc import Iterator, Sequence

from gpudoctor.chain import Link
from gpudoctor.checks.mps_answers import kept_out, named, nobody_left, reached
from gpudoctor.facts.absence import NO_MPS
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN, GpuIds, resource, shared
from gpudoctor.facts.mps import DEFAULT_PIPES, MPS, Mps, MpsClient, MpsDaemon
from gpudoctor.facts.mps_logs import MOST_DEATHS, Asked, MpsLog, MpsLogs
from gpudoctor.facts.mps_setup import MpsSetup
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuProcess, NvmlDevice
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.sharing_config import SharingConfig
from gpudoctor.facts.thresholds import Thresholds
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

DAEMON, SERVER, CLIENTS, MIG = (f"sharing.mps-{name}" for name in ("daemon", "server", "clients", "mig"))
MOST_CLIENTS = "mps_clients"
UNSEEN = "nothing here asks for MPS, and whether it runs is not known: no process was seen"
_NO_DAEMON = "no MPS daemon runs"
MOST_NAMED = 4


# MIG -----------------------------------------------------------------------------------------------------------------


@check(MIG, link=Link.SHARING, title="The device plugin is not told to share by MPS what MIG has divided")
def mps_mig(config: Reading[SharingConfig], ids: Reading[GpuIds]) -> Verdicts:
    """The device plugin refuses to share MIG devices by MPS: it ends, or starts no MPS daemon, and the node gives Kubernetes no GPU.

    With migStrategy mixed it ends at its start ("using --mig-strategy=mixed is not supported with MPS"), with single once a MIG device is
    there ("MPS sharing is not supported for MIG devices; skipping daemon creation"). Read from the configuration in force or the plugin's
    words, and the GPUs' MIG mode. Outside of Kubernetes MPS on a MIG device works: with a daemon for each (MIG User Guide, "CUDA
    Multi-Process Service"). Easily confused with sharing.mps-daemon: a daemon that should run and does not.
    """
    if isinstance(config, Unread):
        yield NotApplicable(
            NODE, "the device plugin's configuration is not known, see device-plugin.plugin-found-devices"
        )
        return
    said = tuple(one for one in config.refused if "with MPS" in one.shows or "for MIG devices" in one.shows)
    if config.way != "mps" and not said:
        yield NotApplicable(NODE, "no device plugin here shares GPUs by MPS")
        return
    divided = () if isinstance(ids, Unread) else tuple(address for address, devices in ids.mig.items() if devices)
    told = (config.evidence("mps"),) if config.way == "mps" else ()
    if said or config.strategy == "mixed" or (config.strategy == "single" and divided):
        yield _unmixable(config, (*said, *told, *_divided(ids, divided)), divided)
    elif isinstance(ids, Unread) and config.strategy == "single":
        yield ids.about(PLUGIN)
    else:
        shown = (Evidence(config.where, f"migStrategy: {config.strategy or 'none'}"),)
        yield Pass(PLUGIN, f"it shares whole GPUs by MPS (migStrategy {config.strategy or 'none'})", (*told, *shown))


def _divided(ids: Reading[GpuIds], divided: Sequence[str]) -> Iterator[Evidence]:
    if isinstance(ids, Unread):
        return
    for address in divided[:MOST_NAMED]:
        yield Evidence(ids.shows.where, f"{address}: MIG mode on, {len(ids.mig[address])} devices")


def _unmixable(config: SharingConfig, evidence: Cited, divided: Sequence[str]) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, mig_or_mps

    strategy = config.strategy or ("mixed" if any("mixed" in one.shows for one in evidence) else "single")
    why = f"MIG divides {len(divided)} of the GPUs" if divided else f"migStrategy is {strategy}"
    said = f"the device plugin is told to share by MPS, and {why}: it does not do both, and gives Kubernetes no GPU"
    shown = (*evidence, Evidence(config.where or "the device plugin", f"migStrategy: {strategy}"))
    steps = mig_or_mps(MIG, strategy)
    return Fail(
        PLUGIN, said, shown, steps, Breaks.SUBJECT, cause="mps-and-mig", of=_its(config), references=(SHARED_ACCESS,)
    )


def _its(config: SharingConfig) -> tuple[Subject, ...]:
    """The plugin, and the resources that it cannot give."""
    names = dict.fromkeys(name for name, _, _ in shared({"sharing": config.sharing})) or {"nvidia.com/gpu": None}
    return (PLUGIN, *(resource(name) for name in names))


# The daemon ----------------------------------------------------------------------------------------------------------


@check(DAEMON, link=Link.SHARING, explained_by=(MIG,), title="The MPS daemon runs where it is wanted")
def mps_daemon(
    mps: Reading[Mps], config: Reading[SharingConfig], setup: Reading[MpsSetup], nvml: Reading[Nvml]
) -> Verdicts:
    """Programs that are to share a GPU through MPS go on without it when its daemon is gone, or get CUDA error 805, or 46 on a GPU
    in exclusive mode, which MPS set-ups use: then one program has the GPU and all others are refused.

    It is wanted where a unit of systemd that starts it is enabled, where the device plugin is told to share by MPS, and where workloads
    that have a GPU name its pipes (CUDA_MPS_PIPE_DIRECTORY). Looked for among all processes by its name; what its unit or its pod said
    last is read only when it is missing. No daemon is fine where nobody wants one. Whether a client reaches a daemon that runs is
    sharing.mps-clients, whether its servers live is sharing.mps-server.
    """
    if isinstance(mps, Unread):
        yield NotApplicable(NODE, UNSEEN) if isinstance(config, Unread) or config.way != "mps" else mps.about(MPS)
        return
    by_plugin = isinstance(config, SharingConfig) and config.way == "mps"
    told = isinstance(config, SharingConfig) and (bool(config.where) or not config.present)
    if mps.daemons:
        yield from (_runs(mps, one) for one in mps.daemons)
    elif not mps.concerns and not by_plugin:
        yield NotApplicable(NODE, NO_MPS)
    elif mps.unlisted is not None:
        yield mps.unlisted.about(MPS)
    elif any(one.connected for one in mps.clients):
        # A server lives, whoever started it: of what NVML sees, a PID namespace may hide the processes.
        yield Unknown(MPS, Why.NOT_ANSWERED, "NVML lists clients of MPS, and no process of MPS is seen here")
    elif by_plugin or (not told and any(map(_of_plugin, mps.clients))):
        yield _plugin_lacks(mps, config, setup, _exclusive(nvml))
    elif isinstance(mps.wanted, Unread):
        yield mps.wanted.about(MPS)
    elif mps.wanted:
        yield _unit_failed(mps, mps.wanted, setup, _exclusive(nvml))
    elif mps.clients:
        yield _clients_lack(mps, _exclusive(nvml))
    else:
        yield NotApplicable(NODE, "only the device plugin's MPS pod runs, and the plugin shares nothing by MPS")


def _exclusive(nvml: Reading[Nvml]) -> tuple[Subject, ...]:
    """GPUs that only one process may use: without the daemon they cannot be shared as they were set up to be."""
    devices = () if isinstance(nvml, Unread) else nvml.devices
    alone = (one.address for one in devices if one.address and one.fields.get("compute_mode") == "exclusive_process")
    return tuple(Subject(SubjectKind.GPU, address) for address in alone)


def _of_plugin(client: MpsClient) -> bool:
    """Whether the device plugin named its pipes: /mps/RESOURCE/pipe (k8s-device-plugin cmd/mps-control-daemon/mps/root.go, PipeDir)."""
    pipes = client.pipe_directory
    return isinstance(pipes, str) and pipes.startswith("/mps/") and pipes.endswith("/pipe")


def _refused(exclusive: Sequence[Subject]) -> str:
    """What the GPUs' mode makes of it."""
    if not exclusive:
        return ""
    those = exclusive[0].key if len(exclusive) == 1 else f"{len(exclusive)} GPUs"
    return f"; in exclusive mode {those} let{'s' if len(exclusive) == 1 else ''} one process in, and others get CUDA error 46"


def _runs(mps: Mps, daemon: MpsDaemon) -> Verdict:
    served = (
        f", server PID {', '.join(map(str, daemon.servers))}" if daemon.servers else ", no server yet: no client came"
    )
    return Pass(mps.subject(daemon), f"{daemon.words} runs{served}", daemon.evidence)


def _plugin_lacks(
    mps: Mps, config: Reading[SharingConfig], setup: Reading[MpsSetup], exclusive: tuple[Subject, ...]
) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, plugins_daemon

    said = setup.pod_said if isinstance(setup, MpsSetup) else ()
    pod = "though its pod runs" if mps.wrappers else "nor does its pod run on this node"
    why = f": {said[-1].shows}" if said else f", {pod}"
    summary = f"the device plugin is to share GPUs by MPS, and {_NO_DAEMON}{why}{_refused(exclusive)}"
    wanted: Cited = tuple(seen for one in mps.clients if _of_plugin(one) for seen in one.evidence)
    given: tuple[Subject, ...] = (PLUGIN,)
    if isinstance(config, SharingConfig) and config.way == "mps":
        wanted, given = (config.evidence("mps"),), _its(config)
    evidence, of = (*wanted, *mps.cite("daemons"), *said), (*given, *exclusive)
    steps = plugins_daemon(DAEMON)
    return Fail(PLUGIN, summary, evidence, steps, Breaks.SUBJECT, cause="no-daemon", of=of, references=(SHARED_ACCESS,))


def _unit_failed(mps: Mps, wanted: Cited, setup: Reading[MpsSetup], exclusive: tuple[Subject, ...]) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, start_unit

    unit = wanted[0].where.rpartition("/")[2]
    said = setup.unit_said if isinstance(setup, MpsSetup) else ()
    why = f": {said[0].shows}" if said else ""
    summary = f"{unit} is enabled to start the MPS daemon, and {_NO_DAEMON}{why}{_without(mps)}{_refused(exclusive)}"
    evidence = (*wanted[:1], *mps.cite("daemons"), *said)
    steps, of = start_unit(DAEMON, unit), (MPS, *exclusive)
    return Fail(MPS, summary, evidence, steps, Breaks.SUBJECT, cause="no-daemon", of=of, references=(MPS_GUIDE,))


def _without(mps: Mps) -> str:
    names = _called(mps.clients)
    return f"; without it {'is' if len(mps.clients) == 1 else 'are'} {names}" if names else ""


def _called(clients: Sequence[MpsClient]) -> str:
    """Clients by name and key."""
    subjects = [one.subject for one in clients[:MOST_NAMED]]
    return ", ".join(f"{one.name} ({one.key})" if one.name not in ("", one.key) else one.key for one in subjects)


def _clients_lack(mps: Mps, exclusive: tuple[Subject, ...]) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, start_daemon, without_plugins_daemon

    named = [one.pipe_directory for one in mps.clients if isinstance(one.pipe_directory, str)]
    pipes = named[0] if named else DEFAULT_PIPES
    mine = {address for one in mps.clients for address in one.gpus}
    shut = tuple(gpu for gpu in exclusive if gpu.key in mine)
    verb = "is" if len(mps.clients) == 1 else "are"
    summary = (
        f"{_called(mps.clients)} {verb} to share a GPU by MPS (pipes in {pipes}), and {_NO_DAEMON}{_refused(shut)}"
    )
    evidence = (*(seen for one in mps.clients[:MOST_NAMED] for seen in one.evidence), *mps.cite("daemons"))
    left = all(map(_of_plugin, mps.clients))
    steps = without_plugins_daemon(DAEMON) if left else start_daemon(DAEMON, pipes)
    of = (MPS, *shut)
    return Fail(MPS, summary, evidence, steps, Breaks.SUBJECT, cause="no-daemon", of=of, references=(MPS_GUIDE,))


# Its servers ---------------------------------------------------------------------------------------------------------


@check(
    SERVER,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    explained_by=(DAEMON, CLIENTS),
    title="MPS servers live and take clients",
)
def mps_server(
    mps: Reading[Mps],
    logs: Reading[MpsLogs],
    nvml: Reading[Nvml],
    processes: Reading[Processes],
    limits: Thresholds,
) -> Verdicts:
    """One client's fatal fault ends all clients of MPS on that GPU, and the server takes no new ones there until the last has gone: a pod
    that idles in the ruins keeps everybody out. A server that dies as it starts is started over and over, while clients wait in cuInit.

    Read from the ends of control.log and server.log, where a server that is ready, or a daemon that starts anew, puts an end to what was
    before; from the processes; and from NVML's list of clients. A daemon without a server is well as long as nobody waits: the first client
    has it started. "User did not send valid credentials" comes with every connection and means nothing; a server that ends with status 0
    made room for another user, or had nothing left to do.
    """
    if isinstance(mps, Unread) or not mps.daemons:
        yield without_daemon(mps)
        return
    alive = frozenset() if isinstance(processes, Unread) else frozenset(one.pid for one in processes.processes)
    for daemon in mps.daemons:
        log = logs.by_daemon[daemon.pid] if isinstance(logs, MpsLogs) else MpsLog(unread=logs)
        full = _full(log, alive, nvml, limits) if len(mps.daemons) == 1 else None
        yield full if full is not None else _server(mps, daemon, log, nvml)


def without_daemon(mps: Reading[Mps]) -> Verdict:
    """There is nothing to ask of servers and clients."""
    if isinstance(mps, Unread):
        return NotApplicable(NODE, UNSEEN)
    return NotApplicable(NODE, f"{_NO_DAEMON}, see {DAEMON}" if mps.concerns else NO_MPS)


def _server(mps: Mps, daemon: MpsDaemon, log: MpsLog, nvml: Reading[Nvml]) -> Verdict:
    subject, lives = mps.subject(daemon), daemon.cite("process")
    fault = None if daemon.servers and nobody_left(mps, nvml) else log.fault
    lines = tuple(one for one in (log.reason, log.died, fault, log.full) if one is not None)
    lines += (log.waiting.evidence,) if log.waiting is not None else ()
    evidence = (*lines, *lives)
    if log.deaths and (log.deaths >= MOST_DEATHS or (log.waiting is not None and not daemon.servers)):
        return _dying(subject, log, evidence, daemon, kept_out(mps, nvml))
    if fault is not None and daemon.servers:
        return _faulty(subject, fault, evidence, daemon, nvml)
    if log.deaths or fault is not None:
        from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, restart_servers

        said = "its last server died, and all clients with it; none has come since to have another started"
        steps = restart_servers(SERVER, reached(daemon))
        return Warn(subject, said, evidence, steps, cause="died", references=(MPS_GUIDE,))
    if log.full is not None:
        from gpudoctor.knowledge.mps_remedies import fewer_clients

        return Warn(subject, f"it refused a client: {log.full.shows}", evidence, fewer_clients(SERVER), cause="full")
    if log.waiting is not None and not daemon.servers:
        said = f"a client waits for a server that starts: {log.waiting.evidence.shows}"
        return Unknown(subject, Why.SLOW_INIT, said, evidence)
    return _lives(subject, daemon, log, lives)


def _faulty(subject: Subject, fault: Evidence, evidence: Cited, daemon: MpsDaemon, nvml: Reading[Nvml]) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import TROUBLESHOOTING, end_clients

    devices = () if isinstance(nvml, Unread) else nvml.devices
    left = sorted({process.pid for device in devices for process in device.processes if process.kind == "mps"})
    named = f" (PID {', '.join(map(str, left[:MOST_NAMED]))})" if left else ""
    listed = tuple(
        Evidence(one.via, f"lists PID {pid} as a client of MPS") for one in devices[:1] for pid in left[:MOST_NAMED]
    )
    said = f"after a fatal fault the server waits until the clients it has are gone{named}, and takes no new ones: {fault.shows}"
    steps = end_clients(SERVER, reached(daemon))
    return Fail(
        subject, said, (*evidence, *listed), steps, Breaks.SUBJECT, cause="fault", references=(TROUBLESHOOTING,)
    )


def _lives(subject: Subject, daemon: MpsDaemon, log: MpsLog, lives: Cited) -> Verdict:
    served = (
        f"its server runs (PID {', '.join(map(str, daemon.servers))})"
        if daemon.servers
        else "no client waits for a server"
    )
    if log.unread is None:
        last = log.last if log.last is not None else Evidence(log.where, "tells of no server that died")
        return Pass(subject, f"{served}, and none died since", (*lives, last))
    if daemon.servers and log.unread.why is Why.NOT_RECORDED:
        return Pass(subject, served, lives)
    return log.unread.about(subject)


def _dying(
    subject: Subject,
    log: MpsLog,
    evidence: Cited,
    daemon: MpsDaemon,
    intruders: tuple[tuple[NvmlDevice, GpuProcess], ...],
) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, free_exclusive, restart_servers

    times = f"{log.deaths} servers in a row" if log.deaths > 1 else "its server"
    waits = f", and {_client(log.waiting)} waits" if log.waiting is not None else ""
    why = f": {log.reason.shows}" if log.reason is not None else ""
    gpus = tuple(Subject(SubjectKind.GPU, device.address or "") for device, _ in intruders)
    steps = restart_servers(SERVER, reached(daemon))
    if intruders:
        device, process = intruders[0]
        why += f"; {named(process)} has {device.address} to itself in exclusive mode"
        listed = Evidence(f"{device.via} ({device.address})", f"compute process: {named(process)}")
        evidence = (*evidence, device.evidence("compute_mode"), listed)
        steps = (*free_exclusive(SERVER, device.address or "", process.pid), *steps[1:])
    said = f"{times} died before one was ready{waits}{why}"
    of = gpus or (subject,)
    return Fail(subject, said, evidence, steps, Breaks.SUBJECT, cause="dies", of=of, references=(MPS_GUIDE,))


def _client(asked: Asked) -> str:
    return f"client {asked.pid}" if asked.pid else "a client"


def _full(log: MpsLog, alive: frozenset[int], nvml: Reading[Nvml], limits: Thresholds) -> Verdict | None:
    """A client that asked last, lives, and has no context, where a GPU has as many clients as a server takes."""
    asked = log.asked
    if isinstance(nvml, Unread) or asked is None or asked.pid not in alive or log.fault is not None:
        return None
    if any(process.pid == asked.pid for device in nvml.devices for process in device.processes):
        return None
    for device in nvml.devices:
        count = sum(process.kind == "mps" for process in device.processes)
        if device.address and count >= limits.of(MOST_CLIENTS):
            from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, fewer_clients

            said = f"it is full with {count} clients of MPS: PID {asked.pid}, which asked last, was not let in (CUDA error 808)"
            shown = Evidence(
                f"{device.via} ({device.address})", f"{count} processes as clients of MPS, not PID {asked.pid}"
            )
            evidence = (shown, asked.evidence, *limits.cite(MOST_CLIENTS))
            gpu = Subject(SubjectKind.GPU, device.address)
            steps = fewer_clients(SERVER)
            return Warn(gpu, said, evidence, steps, cause="full", references=(MPS_GUIDE,))
    return None
