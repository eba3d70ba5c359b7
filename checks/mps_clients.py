"""Clients of MPS: does each reach its daemon, and share memory with it?"""

from gpudoctor.chain import Link
from gpudoctor.checks.mps import CLIENTS, DAEMON, MOST_NAMED, without_daemon
from gpudoctor.checks.mps_answers import kept_out, named, reached
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.mps import DEFAULT_PIPES, Mps, MpsClient, MpsDaemon
from gpudoctor.facts.mps_logs import MpsLogs
from gpudoctor.facts.nvml import Nvml
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

SHM = "sharing.mps-shm"


@check(CLIENTS, link=Link.SHARING, explained_by=(DAEMON,), title="Every client of MPS reaches its daemon")
def mps_clients(mps: Reading[Mps], nvml: Reading[Nvml], logs: Reading[MpsLogs]) -> Verdicts:
    """A program that does not find the daemon's pipes runs on without MPS, and nobody is told: it gets slices of time instead of a share,
    no limit holds for it, and on a GPU in exclusive mode it is refused, or keeps the server out.

    Judged are containers and jobs that name pipes of MPS and processes that NVML lists as clients, by what lies at that directory in their
    own mounts: the daemon's own directory, another one, or none. A daemon that does not run as root serves only its own user; one that
    serves one user at a time lets those of others wait. A PID namespace of its own does not matter: the plugin's clients have one, and
    the logs then call them client 0. Whether shared memory is reached is sharing.mps-shm.
    """
    if isinstance(mps, Unread) or not mps.daemons:
        yield without_daemon(mps)
        return
    verdicts = [_client(one, mps, _Told(nvml, logs)) for one in mps.clients]
    verdicts += [*_intruders(mps, nvml, logs), *(() if isinstance(logs, Unread) else _pending(mps, logs))]
    yield from verdicts
    if not verdicts:
        listed = "NVML tells of no clients" if isinstance(nvml, Unread) else "NVML lists no client"
        yield NotApplicable(NODE, f"nobody is seen to name the pipes of MPS, and {listed}")


class _Told:
    """What NVML and the logs tell of clients: which processes compute, on which GPUs only one may, and who waits."""

    def __init__(self, nvml: Reading[Nvml], logs: Reading[MpsLogs]) -> None:
        devices = () if isinstance(nvml, Unread) else nvml.devices
        listed = bool(devices) and all(one.lists_processes for one in devices)
        pids = frozenset(process.pid for device in devices for process in device.processes)
        self.computing = pids if listed else None
        alone = (one.address for one in devices if one.fields.get("compute_mode") == "exclusive_process")
        self.exclusive = frozenset(address for address in alone if address)
        self.logs = {} if isinstance(logs, Unread) else logs.by_daemon


def _client(client: MpsClient, mps: Mps, told: _Told) -> Verdict:
    daemon = mps.daemon(client.daemon)
    evidence = client.evidence
    if isinstance(client.reaches, Unread):
        return client.reaches.about(client)
    if not client.reaches:
        return _astray(client, mps, evidence, told)
    if daemon is None:
        return Pass(client, "NVML lists it as a client of MPS", evidence)
    if (verdict := _of_another_user(client, daemon, mps, told)) is not None:
        return verdict
    return Pass(client, f"it reaches {daemon.words}", (*evidence, *daemon.evidence))


def _astray(client: MpsClient, mps: Mps, evidence: Cited, told: _Told) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, join_pipes

    known = [one.pipe_directory for one in mps.daemons if isinstance(one.pipe_directory, str)]
    contained = client.subject.kind is SubjectKind.CONTAINER
    where = " inside the container" if contained else ""
    if client.pipe_directory in known:
        lacks = "not mounted into it" if contained else "not in its mounts"
        said = f"its {client.pipe_directory} is not the daemon's, which is {lacks}: it runs without MPS"
    else:
        told_of = (
            f"; the daemon's {'is' if len(known) == 1 else 'are'} {', '.join(known[:MOST_NAMED])}" if known else ""
        )
        said = f"no daemon has its pipes at {client.pipe_directory}{where}{told_of}: it runs without MPS"
    if client.limits:
        said += f", and {', '.join(f'{name}={value}' for name, value in client.limits.items())} does not hold"
    shown = (*evidence, *(seen for one in mps.daemons[:MOST_NAMED] for seen in one.evidence))
    steps = join_pipes(CLIENTS, known[0] if known else DEFAULT_PIPES, contained=contained)
    if told.exclusive.intersection(client.gpus):
        said += ", on a GPU in exclusive mode, where the server or another has the only place"
        return Fail(client, said, shown, steps, Breaks.NOTHING, cause="no-pipes", references=(MPS_GUIDE,))
    return Warn(client, said, shown, steps, cause="no-pipes", references=(MPS_GUIDE,))


def _of_another_user(client: MpsClient, daemon: MpsDaemon, mps: Mps, told: _Told) -> Verdict | None:
    """A server runs as the user of its clients (nvidia-cuda-mps-control(1)); only root can start one for another user (setuid(2))."""
    from gpudoctor.knowledge.mps_remedies import TROUBLESHOOTING, one_user

    if client.connected or told.computing is None or client.pid in told.computing:
        return None
    log, evidence, steps = (
        told.logs.get(daemon.pid),
        (*client.cite("owner"), *daemon.cite("owner")),
        one_user(CLIENTS, reached(daemon)),
    )
    waiting = log.waiting if log is not None else None
    if client.uid is None or daemon.uid is None:
        if waiting is None:
            return None
        return Unread(Why.NO_PERMISSION, evidence[0].where, "whose process it is is not shown", "root").about(client)
    if daemon.uid not in (0, client.uid):
        said = (
            f"it runs as user {client.uid}, and its daemon as user {daemon.uid}, which cannot start a server for others"
        )
        return Fail(client, said, evidence, steps, Breaks.NOTHING, cause="other-user", references=(TROUBLESHOOTING,))
    others = [
        one
        for one in mps.clients
        if one.connected and one.daemon == daemon.pid and one.uid is not None and one.uid != client.uid
    ]
    if not others or daemon.multiuser is True or log is None:
        return None
    if log.unread is not None:
        return log.unread.about(client)
    if waiting is None or waiting.uid != client.uid:
        return None
    said = f"it runs as user {client.uid} and waits: the server serves user {others[0].uid} until that user's last client has ended"
    shown = (waiting.evidence, *evidence, *others[0].cite("owner", "reaches"))
    return Fail(client, said, shown, steps, Breaks.NOTHING, cause="waits-for-user", references=(TROUBLESHOOTING,))


def _intruders(mps: Mps, nvml: Reading[Nvml], logs: Reading[MpsLogs]) -> Verdicts:
    known = () if isinstance(logs, Unread) else tuple(logs.by_daemon.values())
    waits = any(log.deaths or log.waiting for log in known)
    unread = next((log.unread for log in known if log.unread is not None), None)
    for device, process in kept_out(mps, nvml):
        from gpudoctor.knowledge.mps_remedies import MPS_GUIDE, free_exclusive

        said = f"{named(process)} has this GPU to itself in exclusive mode: the MPS server cannot come in"
        listed = Evidence(f"{device.via} ({device.address})", f"compute process: {named(process)}")
        shown = (device.evidence("compute_mode"), listed)
        steps = free_exclusive(CLIENTS, device.address or "", process.pid)
        gpu = Subject(SubjectKind.GPU, device.address or "")
        if waits:
            said += ", and its clients wait"
            yield Fail(gpu, said, shown, steps, Breaks.SUBJECT, cause="beside-mps", references=(MPS_GUIDE,))
        elif unread is not None:
            yield unread.about(gpu)
        else:
            said += ", and its clients would get CUDA error 46"
            yield Warn(gpu, said, shown, steps, cause="beside-mps", references=(MPS_GUIDE,))


def _pending(mps: Mps, logs: MpsLogs) -> Verdicts:
    """Clients that the log's last word leaves waiting while a server serves another user, and that nothing else tells of."""
    known = {one.pid for one in mps.clients}
    users = {one.uid for one in mps.clients if not one.connected}
    for daemon in mps.daemons:
        log = logs.by_daemon.get(daemon.pid)
        waiting = log.waiting if log is not None else None
        if log is None or waiting is None or not daemon.servers or log.user in (None, waiting.uid):
            continue
        if waiting.pid in known or not users.isdisjoint({waiting.uid, None}) or daemon.multiuser is True or log.deaths:
            continue
        from gpudoctor.knowledge.mps_remedies import TROUBLESHOOTING, one_user

        if waiting.pid == 0:
            said = f"a client of user {waiting.uid} waits for the server of user {log.user}; which one is not seen"
            yield Unknown(mps.subject(daemon), Why.NOT_ANSWERED, said, (waiting.evidence,))
            continue
        name, served = f"PID {waiting.pid}", f"the server serves user {log.user}"
        said = f"{name} of user {waiting.uid} waits: {served} until the last of that user's clients has ended"
        subject = Subject(SubjectKind.SERVICE, f"pid:{waiting.pid}", name)
        evidence, steps = (waiting.evidence, *daemon.cite("process")), one_user(CLIENTS, reached(daemon))
        yield Fail(
            subject, said, evidence, steps, Breaks.NOTHING, cause="waits-for-user", references=(TROUBLESHOOTING,)
        )


# Shared memory -------------------------------------------------------------------------------------------------------


@check(SHM, link=Link.SHARING, explained_by=(CLIENTS,), title="Clients of MPS share memory with their daemon")
def mps_shm(mps: Reading[Mps]) -> Verdicts:
    """An MPS server hands its clients shared memory; a container with an IPC namespace and a /dev/shm of its own may not see that.

    Compared are the IPC namespaces and what is mounted at /dev/shm in both; one of them in common is enough. The device plugin mounts the
    daemon's /dev/shm into each client, `docker run --ipc=host` shares both. No document of NVIDIA's was found to demand it, and
    programs have been seen to start without, so that it is a warning only. Whether a client finds its daemon at all is sharing.mps-clients.
    """
    if isinstance(mps, Unread) or not mps.clients:
        seen = not isinstance(mps, Unread) and mps.daemons
        yield NotApplicable(NODE, "no client of MPS is seen") if seen else without_daemon(mps)
        return
    for client in mps.clients:
        daemon = mps.daemon(client.daemon)
        if daemon is None or client.shares_memory is None:
            yield NotApplicable(client, f"of which daemon it is is not known, see {CLIENTS}")
        elif client.shares_memory is True:
            yield Pass(client, f"it shares memory with {daemon.words}", client.cite("memory"))
        elif isinstance(client.shares_memory, Unread):
            yield client.shares_memory.about(client)
        else:
            from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, share_memory

            said = f"it has neither the IPC namespace nor the /dev/shm of {daemon.words}: it may not see its server's shared memory"
            shown = tuple(client.read_from[name] for name in client.read_from if name.startswith("memory"))
            yield Warn(client, said, shown, share_memory(SHM), cause="own-memory", references=(SHARED_ACCESS,))
