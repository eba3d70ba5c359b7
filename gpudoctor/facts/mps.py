"""NVIDIA's Multi-Process Service: the control daemons that run, their servers, and the processes that mean to be their clients.

A client finds its daemon through the sockets in its CUDA_MPS_PIPE_DIRECTORY, /tmp/nvidia-mps without one; logs lie in the daemon's
CUDA_MPS_LOG_DIRECTORY, /var/log/nvidia-mps without one (docs.nvidia.com/deploy/mps, "Appendix: Environment Variables", "Appendix:
Logging"). The daemon starts a server with its first client (nvidia-cuda-mps-control(1)). Read 2026-11-30.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_variables import KEEP, Variables
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.mps_units import wanted_units
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, Entry, TextFile, decimal
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

COMM = "nvidia-cuda-mps"
"""Both programs, nvidia-cuda-mps-control and -server, as the kernel cuts their names (proc_pid_comm(5))."""
WRAPPER = "mps-control-dae"
"""k8s-device-plugin's mps-control-daemon, which starts the daemon in its container (cmd/mps-control-daemon)."""
MPS = Subject(SubjectKind.SERVICE, "nvidia-cuda-mps-control", "nvidia-cuda-mps-control")
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPES, DEFAULT_LOGS = "/tmp/nvidia-mps", "/var/log/nvidia-mps"  # noqa: S108 - where NVIDIA has it
LIMITS = ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
MEMORY_LIMIT = LIMITS[0]
MOST = 64
"""As many processes that NVML lists are asked for their variables; a GPU takes 48 clients."""

_STAT = "processes (/proc/*/stat)"
_SERVER = "nvidia-cuda-mps-server"
_CONTROL = "nvidia-cuda-mps-control"
_WORDS = rf"{_SERVER}|{_CONTROL}|\A-"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_MULTIUSER = ("-multiuser-server", "--multiuser-server", "-m", "--multiuser")
"""nvidia-cuda-mps-control(1), and "MPS v3 Interface" of the guide."""
_SERVES = ("-d", "-f", "--daemon", "--foreground")


class MpsDaemon(Citable, frozen=True):
    """A control daemon. `gpus` are the addresses that it was confined to, none where it serves all that it sees.

    `uid` is its owner as the reader sees it, None where that is not shown; `multiuser` is whether it serves several users at once, None
    where its command line is not shown. `mount` and `workload` say where it lives; `limits` are those of its environment.
    """

    pid: int
    uid: int | None
    pipe_directory: Reading[str]
    log_directory: Reading[str]
    servers: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    limits: Mapping[str, str] = {}
    multiuser: bool | None = None
    mount: int = 0
    workload: Workload | None = None

    @property
    def words(self) -> str:
        """As a sentence names it."""
        place = f" with its pipes in {self.pipe_directory}" if isinstance(self.pipe_directory, str) else ""
        return f"the MPS daemon (PID {self.pid}){place}"

    @property
    def evidence(self) -> Cited:
        """That it runs, and where its pipes are, as far as that is known."""
        return tuple(self.read_from[name] for name in ("process", "pipes") if name in self.read_from)

    @property
    def contained(self) -> bool:
        """Whether it lives in a container."""
        return self.workload is not None and self.workload.kind is GroupKind.CONTAINER

    def inside(self, path: str) -> str:
        """A path of its own as the node sees it."""
        return f"/proc/{self.pid}/root{path}" if self.contained else path


class MpsClient(Citable, frozen=True):
    """A process that names pipes of MPS, or that NVML lists as a client (`connected`).

    `daemon` is the PID of the one behind its pipes, None where there is none or that is not known: `reaches` tells these apart, and
    `shares_memory` whether it has the IPC namespace or the /dev/shm of its daemon, None without one. `gpus` are those it uses, or has.
    """

    pid: int
    pipe_directory: Reading[str]
    daemon: int | None
    limits: Mapping[str, str] = {}
    uid: int | None = None
    connected: bool = False
    reaches: Reading[bool] = False
    shares_memory: Reading[bool] | None = None
    gpus: tuple[str, ...] = ()
    workload: Workload | None = None

    @property
    def subject(self) -> Subject:
        """Its container, job or unit; a process of none of these by its PID."""
        if self.workload is not None and self.workload.kind in (GroupKind.CONTAINER, GroupKind.JOB):
            return self.workload.subject
        return Subject(SubjectKind.SERVICE, f"pid:{self.pid}", f"PID {self.pid}")

    @property
    def evidence(self) -> Cited:
        """Which pipes it names, and where they lead to."""
        return tuple(self.read_from[name] for name in ("pipes", "reaches") if name in self.read_from)

    @property
    def memory_limit(self) -> str | None:
        """How much of a GPU's memory it may take, as it was set: without a limit, all of it."""
        return self.limits.get(MEMORY_LIMIT)


class Mps(Fact, frozen=True):
    """All daemons and clients. `unlisted` says why there may be more daemons.

    `wanted` are the units that systemd starts a daemon by, `wrappers` the processes of the device plugin that should have started one.
    """

    daemons: tuple[MpsDaemon, ...]
    clients: tuple[MpsClient, ...]
    wanted: tuple[Evidence, ...] | Unread = ()
    wrappers: tuple[int, ...] = ()
    unlisted: Unread | None = None

    @property
    def concerns(self) -> bool:
        """Whether anything here has to do with MPS."""
        return bool(self.daemons or self.clients or self.wanted or self.wrappers)

    def daemon(self, pid: int | None) -> MpsDaemon | None:
        """The daemon of that PID."""
        return next((one for one in self.daemons if one.pid == pid), None)

    def subject(self, daemon: MpsDaemon) -> Subject:
        """A daemon as a subject, named after its pipes where there are several; it stands on the GPUs that it was confined to."""
        gpus = tuple(Subject(SubjectKind.GPU, address) for address in daemon.gpus)
        pipes = daemon.pipe_directory
        place = f"@{pipes if isinstance(pipes, str) else daemon.pid}" if len(self.daemons) > 1 else ""
        return Subject(MPS.kind, f"{MPS.key}{place}", f"{MPS.name}{place}", stands_on=gpus)

    @classmethod
    def gather(cls, desk: Desk) -> "Mps | Unread":
        """Beyond what others look at anyway, only one directory is listed where nothing of MPS is on the node."""
        processes = desk.get(Processes)
        if isinstance(processes, Unread):
            return processes
        alive = [one for one in processes.processes if not one.ended]
        unlisted = processes.unlisted or _nameless(alive)
        daemons = _Daemons(desk, processes, [one for one in alive if one.comm.startswith(COMM)]).all()
        listed = f"{len(alive)} processes, {len(daemons)} of them an MPS daemon"
        return cls(
            daemons=daemons,
            clients=_clients(desk, daemons, processes, unlisted),
            wanted=wanted_units(desk.raw),
            wrappers=tuple(one.pid for one in alive if one.comm == WRAPPER),
            unlisted=unlisted,
            read_from={"daemons": Evidence(_STAT, listed)},
        )


def _nameless(alive: Iterable[Process]) -> Unread | None:
    """A recording made by hand has not the name of every process."""
    if all(one.comm for one in alive):
        return None
    return Unread(Why.NOT_RECORDED, _STAT, "the names of some processes were not recorded")


# Daemons -------------------------------------------------------------------------------------------------------------


class _Daemons:
    """Tells daemons and servers apart, and reads how each daemon was started."""

    def __init__(self, desk: Desk, processes: Processes, found: Sequence[Process]) -> None:
        self._desk = desk
        self._processes = processes
        self._found = found
        raw = desk.raw
        words = tuple(f"/proc/{one.pid}/cmdline" for one in found)
        variables = tuple(f"/proc/{one.pid}/environ" for one in found)
        self._words = raw.read_blocking(words, keep=_WORDS) if found else {}
        self._variables = raw.read_blocking(variables, keep=KEEP) if found else {}

    def all(self) -> tuple[MpsDaemon, ...]:
        """Each daemon with the servers that it started."""
        servers = [one for one in self._found if self._serves(one)]
        parents = {one.parent for one in servers}
        daemons = [one for one in self._found if one not in servers and (one.pid in parents or not self._asks(one))]
        pids = {one.pid for one in daemons}
        return tuple(
            self._daemon(
                one,
                tuple(
                    server.pid
                    for server in servers
                    if server.parent == one.pid or (server.parent not in pids and len(daemons) == 1)
                ),
            )
            for one in daemons
        )

    def _serves(self, process: Process) -> bool:
        """Whether it is a server: by its command line, else as the child of another process of MPS."""
        file = self._words.get(f"/proc/{process.pid}/cmdline")
        if isinstance(file, TextFile) and file.text:
            return _SERVER in file.text
        return any(one.pid == process.parent for one in self._found)

    def _asks(self, process: Process) -> bool:
        """Whether it only asks a daemon something: one that serves was started with -d or -f (nvidia-cuda-mps-control(1))."""
        file = self._words.get(f"/proc/{process.pid}/cmdline")
        said = file.text.split("\0") if isinstance(file, TextFile) else []
        return _CONTROL in said[0] and not any(word in _SERVES for word in said[1:]) if said else False

    def _daemon(self, process: Process, servers: tuple[int, ...]) -> MpsDaemon:
        environ = f"/proc/{process.pid}/environ"
        file = self._variables[environ]
        said = _pairs(file)
        workload = _workload(self._desk, process.pid)
        spaces = self._processes.of(process)
        uid, owner = owner_of(self._desk, process.pid)
        pipes = self._directory(process.pid, file, said, PIPES, DEFAULT_PIPES)
        about = {"process": Evidence(_STAT, _lives(process, servers)), "owner": owner}
        if isinstance(pipes, str):
            shown = f"{PIPES}={said[PIPES]}" if PIPES in said else f"sets no {PIPES}: the default is {DEFAULT_PIPES}"
            by_file = Evidence(f"{DEFAULT_PIPES}/{_PID_FILE}", str(process.pid))
            about["pipes"] = Evidence(environ, shown) if isinstance(file, TextFile) else by_file
        return MpsDaemon(
            pid=process.pid,
            uid=uid,
            pipe_directory=pipes,
            log_directory=self._directory(process.pid, file, said, LOGS, DEFAULT_LOGS),
            servers=servers,
            gpus=_confined(self._desk, said, workload),
            limits={name: said[name] for name in LIMITS if name in said},
            multiuser=self._multiuser(process.pid),
            mount=spaces.mount if spaces is not None else 0,
            workload=workload,
            read_from=about,
        )

    def _directory(
        self, pid: int, file: TextFile | Absent | Unread, said: Mapping[str, str], name: str, default: str
    ) -> Reading[str]:
        """What its environment says; where that is not shown, the default's PID file may name it."""
        if isinstance(file, TextFile):
            return normal(said.get(name) or default)
        written = self._desk.raw.read(f"{DEFAULT_PIPES}/{_PID_FILE}")
        if isinstance(written, TextFile) and decimal(written.text.strip()) == pid:
            return default
        return file if isinstance(file, Unread) else Unread(Why.NOT_ANSWERED, file.where, "was not seen")

    def _multiuser(self, pid: int) -> bool | None:
        file = self._words.get(f"/proc/{pid}/cmdline")
        if not isinstance(file, TextFile) or not file.text:
            return None
        return any(word in _MULTIUSER for word in file.text.split("\0"))


def _lives(process: Process, servers: tuple[int, ...]) -> str:
    served = f", its server{'s' if len(servers) > 1 else ''} PID {', '.join(map(str, servers))}" if servers else ""
    return f"{process.comm} ({process.pid}) runs as the control daemon{served or ', without a server'}"


def _confined(desk: Desk, said: Mapping[str, str], workload: Workload | None) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves it, or that its container has; indices count in the order of the bus."""
    driver = desk.get(DriverGpus)
    if isinstance(driver, Unread):
        return ()
    known = {address: gpu for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu)}
    visible = said.get("CUDA_VISIBLE_DEVICES")
    if visible:
        order = sorted(known)
        words = [word.strip() for word in visible.split(",")]
        indices = [decimal(word) for word in words]
        found = [order[index] for index in indices if index is not None and index < len(order)]
        lower = [word.lower() for word in words if word.lower().startswith("gpu-")]
        found += [
            address
            for address, gpu in known.items()
            if gpu.uuid and any(gpu.uuid.lower().startswith(word) for word in lower)
        ]
        return tuple(dict.fromkeys((*found, *_divided(desk, frozenset(words)))))
    if workload is None or workload.kind is not GroupKind.CONTAINER:
        return ()
    concerned = desk.get(GpuWorkloads)
    mine = () if isinstance(concerned, Unread) else [one for one in concerned if one.workload.key == workload.key]
    has = tuple(gpu.key for one in mine for gpu in one.gpus)
    return has if len(has) < len(known) else ()


def _divided(desk: Desk, names: frozenset[str]) -> Iterator[str]:
    """The GPUs of MIG devices: each has a daemon of its own (MIG User Guide, "CUDA Multi-Process Service")."""
    nvml = desk.get(Nvml) if any(name.startswith("MIG-") for name in names) else None
    for device in nvml.devices if isinstance(nvml, Nvml) else ():
        if device.address and any(one.uuid in names for one in device.mig_devices):
            yield device.address


# Clients -------------------------------------------------------------------------------------------------------------


def _clients(
    desk: Desk, daemons: tuple[MpsDaemon, ...], processes: Processes, unlisted: Unread | None
) -> tuple[MpsClient, ...]:
    """Leading processes of containers and jobs that name pipes, and what NVML lists where MPS runs."""
    using = _using(desk, daemons)
    said: dict[int, Reading[Mapping[str, str]]] = {}
    concerned = desk.get(GpuWorkloads)
    for one in () if isinstance(concerned, Unread) else concerned:
        variables = one.wishes.variables
        if isinstance(variables, Variables) and variables.get(PIPES) and one.workload.pid and one.has_gpu is not False:
            said[one.workload.pid] = dict(variables.pairs)
    more = tuple(pid for pid in using if pid not in said)[:MOST]
    files = desk.raw.read_blocking(tuple(f"/proc/{pid}/environ" for pid in more), keep=KEEP) if more else {}
    for pid in more:
        file = files[f"/proc/{pid}/environ"]
        gone = Unread(Why.NOT_ANSWERED, file.where, "does not exist")
        said[pid] = _pairs(file) if isinstance(file, TextFile) else file if isinstance(file, Unread) else gone
    wanted = [pid for pid, pairs in said.items() if _names_pipes(pairs) or (pid in using and using[pid][0])]
    if not wanted:
        return ()
    from gpudoctor.facts.mps_clients import Joiner

    own = {pid for one in daemons for pid in (one.pid, *one.servers)}
    joiner = Joiner(desk, daemons, processes, unlisted)
    clients = []
    for pid in (pid for pid in wanted if pid not in own):
        connected, gpus = using.get(pid, (False, ()))
        given = (
            next((one for one in concerned if one.workload.pid == pid), None)
            if not isinstance(concerned, Unread)
            else None
        )
        gpus = gpus or (tuple(gpu.key for gpu in given.gpus) if given is not None else ())
        clients.append(joiner.client(pid, said[pid], connected=connected, gpus=gpus, workload=_workload(desk, pid)))
    return tuple(clients)


def _names_pipes(said: Reading[Mapping[str, str]]) -> bool:
    return not isinstance(said, Unread) and bool(said.get(PIPES))


def _using(desk: Desk, daemons: tuple[MpsDaemon, ...]) -> dict[int, tuple[bool, tuple[str, ...]]]:
    """Whether each computing process is listed as a client, and on which GPUs it is; nobody is looked at where nothing of MPS is."""
    nvml = desk.get(Nvml)
    found: dict[int, tuple[bool, tuple[str, ...]]] = {}
    for device in () if isinstance(nvml, Unread) else nvml.devices:
        for process in device.processes if device.address else ():
            server, client = _SERVER in (process.name or ""), process.kind == "mps"
            if not server and (client or (daemons and process.kind.startswith("compute"))):
                before = found.get(process.pid, (False, ()))
                found[process.pid] = (before[0] or client, (*before[1], str(device.address)))
    return found


# Both ----------------------------------------------------------------------------------------------------------------


def _pairs(file: TextFile | Absent | Unread) -> dict[str, str]:
    parts: Iterable[str] = file.text.replace("\0", "\n").splitlines() if isinstance(file, TextFile) else ()
    return {name: value for name, equals, value in (part.partition("=") for part in parts) if equals}


def normal(path: str) -> str:
    """A directory without a slash at its end; /var/run is a link to /run wherever systemd runs (file-hierarchy(7))."""
    path = path.rstrip("/") or "/"
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def owner_of(desk: Desk, pid: int) -> tuple[int | None, Evidence]:
    """Whose a process is, by its status, else by the owner of its directory (proc_pid(5))."""
    from gpudoctor.facts.process_status import ProcessStatus, read_status

    status = read_status(desk.raw, pid)
    if isinstance(status, ProcessStatus) and status.uid is not None:
        return status.uid, Evidence(status.path, f"runs as user {status.uid}")
    entry = desk.raw.entry(f"/proc/{pid}")
    uid = entry.uid if isinstance(entry, Entry) else None
    return uid, Evidence(f"/proc/{pid}", "its user is not shown" if uid is None else f"belongs to user {uid}")


def _workload(desk: Desk, pid: int) -> Workload | None:
    workloads = desk.get(Workloads)
    return None if isinstance(workloads, Unread) else workloads.by_pid.get(pid)
