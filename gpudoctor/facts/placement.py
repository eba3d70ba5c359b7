"""Which CPUs and memory the processes that use GPUs may use: /proc/PID/status tells both, their cpuset being applied already.

Sources: Documentation/ABI/stable/sysfs-devices-node (has_memory), proc_pid_status(5) (Cpus_allowed_list, Mems_allowed_list), cpuset(7).
Binding by set_mempolicy(2), as `numactl --membind` does, is told in /proc/PID/numa_maps alone, which takes a lock of the process's
memory: it is not looked at.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.numa import NODES, cpu_set
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.facts.topology import Topology
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Evidence, Unread, Why

MOST_PROCESSES, FEWEST_NODES = 64, 2
_CPUS, _MEMORY = "Cpus_allowed_list", "Mems_allowed_list"
COMPUTES = "compute"
"""How the kinds of processes that compute begin in NVML's answers."""


class BoundProcess(Struct, frozen=True):
    """A process that uses GPUs (by address): the CPUs and NUMA nodes with memory that it may use, each as a list like `0-3,8`.

    `workload` is None outside of all containers, jobs and units. `memory` is empty where it is not told.
    """

    pid: int
    gpus: tuple[str, ...]
    cpus: str
    memory: str
    evidence: Evidence
    workload: Workload | None

    @property
    def key(self) -> str:
        """What it belongs to: its workload, else itself."""
        return self.workload.key if self.workload is not None else f"pid:{self.pid}"

    def may_run_on(self, cpus: str) -> bool:
        """Whether one of some CPUs is among its own."""
        return bool(cpu_set(self.cpus) & cpu_set(cpus))


class Placement(Fact, frozen=True):
    """The processes that use GPUs; `unread` says of a workload, or of a process outside of all, why its binding is not known.

    `memory_nodes` are the NUMA nodes that have memory, empty where that is not told: a process may use no others, bound or not.
    """

    processes: tuple[BoundProcess, ...]
    unread: tuple[tuple[Workload | None, Unread], ...] = ()
    memory_nodes: frozenset[int] = frozenset()
    reason: str = ""

    @classmethod
    def gather(cls, desk: Desk) -> "Placement | Unread":
        """One small file for each process, and only where there are several NUMA nodes to be bound to."""
        topology = desk.get(Topology)
        if isinstance(topology, Unread):
            return topology
        if topology.synthetic or sum(1 for node in topology.numa_nodes if node.cpus) < FEWEST_NODES:
            return cls(processes=(), reason=topology.synthetic or "no two NUMA nodes with CPUs are known")
        viewpoint = desk.get(Viewpoint)
        if isinstance(viewpoint, Viewpoint) and viewpoint.contained:
            return cls(processes=(), reason="from within a container NVML's processes cannot be told")
        users, workloads = _users(desk), desk.get(Workloads)
        if users and isinstance(workloads, Unread):
            return workloads
        processes: list[BoundProcess] = []
        unread: list[tuple[Workload | None, Unread]] = []
        for pid, (gpus, workload) in list(users.items())[:MOST_PROCESSES]:
            found = _bound(desk.raw, pid, tuple(sorted(gpus)), workload)
            if isinstance(found, BoundProcess):
                processes.append(found)
            elif isinstance(found, Unread):
                unread.append((workload, found))
        memory = desk.raw.read(f"{NODES}/has_memory") if any(one.memory for one in processes) else None
        nodes = cpu_set(memory.text) if isinstance(memory, TextFile) else frozenset()
        return cls(processes=tuple(processes), unread=tuple(unread), memory_nodes=nodes)


def _users(desk: Desk) -> Mapping[int, tuple[set[str], Workload | None]]:
    """By process: those that NVML lists; of a container or job of which it lists none, the first process with what that may open."""
    workloads = desk.get(Workloads)
    by_pid = {} if isinstance(workloads, Unread) else workloads.by_pid
    users: dict[int, tuple[set[str], Workload | None]] = {}
    nvml = desk.get(Nvml)
    for device in nvml.devices if isinstance(nvml, Nvml) else ():
        for process in device.processes:
            if device.address is not None and process.kind.startswith(COMPUTES):
                users.setdefault(process.pid, (set(), by_pid.get(process.pid)))[0].add(device.address)
    told = {workload.key for _, workload in users.values() if workload is not None}
    for one, gpus in _given(desk):
        if one.workload.key not in told and one.workload.leading is not None and gpus:
            users.setdefault(one.workload.leading.pid, (set(gpus), one.workload))
    return users


def _given(desk: Desk) -> Iterator[tuple[GpuWorkload, frozenset[str]]]:
    """Containers and jobs with the GPUs that they may open; not those that manage GPUs, which have all of them."""
    concerned = desk.get(GpuWorkloads)
    if isinstance(concerned, Unread) or not concerned.workloads:
        return
    access, driver = desk.get(WorkloadAccess), desk.get(DriverGpus)
    if isinstance(access, Unread) or isinstance(driver, Unread):
        return
    addresses = {gpu.minor: address for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu)}
    for one in concerned:
        allowed = access.by_key.get(one.workload.key)
        if allowed is None or one.manages_gpus:
            continue
        minors = {node.node.gpu for node in allowed.allowed if node.node.gpu is not None}
        yield one, frozenset(addresses[minor] for minor in minors if minor in addresses)


def _bound(raw: Raw, pid: int, gpus: tuple[str, ...], workload: Workload | None) -> BoundProcess | Absent | Unread:
    file = raw.read(f"/proc/{pid}/status")
    if not isinstance(file, TextFile):
        return file
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in file.text.splitlines())}
    if not cpu_set(fields.get(_CPUS, "")):
        return Unread(Why.UNREADABLE, file.path, "lists no CPUs that it may run on")
    said = "; ".join(f"{name}: {fields[name]}" for name in (_CPUS, _MEMORY) if name in fields)
    return BoundProcess(
        pid=pid,
        gpus=gpus,
        cpus=fields[_CPUS],
        memory=fields.get(_MEMORY, ""),
        evidence=Evidence(file.where, said),
        workload=workload,
    )
