"""Who has each GPU: those that compute on it, those that were given it, and what keeps others from opening it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_nodes import GpuNodes
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_variables import CUDA_VISIBLE, Variables
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.nvml_device import GpuProcess, NvmlDevice
from gpudoctor.facts.raw import Entry
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_access import Accesses, WorkloadAccess
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Unread

if TYPE_CHECKING:
    from gpudoctor.facts.pod_devices import Given

MPS_SERVER = "nvidia-cuda-mps-server"
_YES = ("yes", "true", "1", "y", "t")
"""What counts as yes (s_p_get_boolean in SchedMD/slurm src/common/parse_config.c)."""


class Sharers(Struct, frozen=True):
    """Those that have a GPU, by what people call them. `nameless` are processes of which nobody knows whose they are.

    `unseen` says why there may be more.
    """

    names: tuple[str, ...] = ()
    nameless: int = 0
    unseen: str = ""


class Who:
    """What other facts tell of who has which GPU, put together once."""

    def __init__(self, desk: Desk) -> None:
        workloads, concerned, access = desk.get(Workloads), desk.get(GpuWorkloads), desk.get(WorkloadAccess)
        pods, driver, nodes = _given(desk), desk.get(DriverGpus), desk.get(GpuNodes)
        self._by_pid = {} if isinstance(workloads, Unread) else workloads.by_pid
        self._concerned = (
            () if isinstance(concerned, Unread) else tuple(one for one in concerned if not one.manages_gpus)
        )
        self._access = {} if isinstance(access, Unread) else access.by_key
        self._given = () if isinstance(pods, Unread) else pods
        self._pods = {one.uid: one.words for one in self._given if one.uid}
        self._minors = {} if isinstance(driver, Unread) else _minors(driver)
        self._nodes = {} if isinstance(nodes, Unread) else nodes.by_address
        self._unseen = _unseen(workloads, concerned, self._concerned, pods)
        self._slurm = _slurm(desk)

    def of(self, device: NvmlDevice) -> Sharers:
        """Those that compute on a GPU now, and those that were given it."""
        address = device.address or ""
        computing = [one for one in device.processes if computes(one)]
        owners = {one.pid: self.owner(one) for one in computing}
        given = [self._called(one.workload) for one in self._concerned if self._was_given(one, address)]
        pods = [one.words for one in self._given if address in one.gpus]
        names = sorted({name for name in (*owners.values(), *given, *pods) if name})
        hidden = "" if device.lists_processes else "the processes on it are not listed"
        return Sharers(tuple(names), sum(not name for name in owners.values()), hidden or self._unseen)

    def owner(self, process: GpuProcess) -> str:
        """What a process belongs to, "" where that is not known."""
        return self._called(self._by_pid.get(process.pid))

    def _called(self, one: Workload | None) -> str:
        """A pod whose name its engine does not tell is called as the kubelet calls it: it is one, not two."""
        pod = one.pod if one is not None else None
        known = self._pods.get(pod.uid) if pod is not None and not pod.name else None
        return known or owner_of(one)

    def access(self, address: str) -> str:
        """What decides who may open a GPU's node."""
        node = self._nodes.get(address)
        parts = [_by_mode(node.mode)] if isinstance(node, Entry) and node.mode is not None else []
        parts += [self._slurm] if self._slurm else []
        if any(one.workload.kind is GroupKind.CONTAINER and one.has_gpu is True for one in self._concerned):
            parts.append("containers what their cgroups allow")
        return "; ".join(parts)

    def note(self, address: str) -> str:
        """That nothing but a variable, which each may set as it likes, keeps those apart that may open a GPU."""
        able = {self._called(one.workload): one for one in self._concerned if self._may_open(one, address)}
        choosing = [one for one in able.values() if _chooses(one)]
        if len(able) < 2 or not choosing:
            return ""
        return f"{len(able)} workloads may open it, whoever uses it: {CUDA_VISIBLE} is a choice of each process, no isolation"

    def _may_open(self, one: GpuWorkload, address: str) -> bool:
        return self._permission(one, self._minors.get(address)) is True

    def _was_given(self, one: GpuWorkload, address: str) -> bool:
        """Whether it has the node and may open it; one that sees all of the node's was given those that its rules leave it."""
        accesses, minor = self._access.get(one.workload.key), self._minors.get(address)
        if accesses is None:
            return any(gpu.key == address for gpu in one.gpus)
        if self._permission(one, minor) is not True:
            return not accesses.selective and self._permission(one, minor) is None and self._has(accesses, minor)
        return not accesses.selective or any(node.is_gpu and node.permission is False for node in accesses.nodes)

    def _permission(self, one: GpuWorkload, minor: int | None) -> bool | None:
        accesses = self._access.get(one.workload.key)
        for node in accesses.nodes if accesses is not None and minor is not None else ():
            if node.node.gpu == minor:
                return None if isinstance(node.permission, Unread) else bool(node.permission)
        return False if accesses is not None else None

    def _has(self, accesses: Accesses, minor: int | None) -> bool:
        return any(node.node.gpu == minor for node in accesses.nodes)


def computes(process: GpuProcess) -> bool:
    """Whether a process that NVML lists computes for somebody: not the server of MPS, and no display."""
    return (process.kind.startswith("compute") or process.kind == "mps") and MPS_SERVER not in (process.name or "")


def owner_of(one: Workload | None) -> str:
    """What people call that to which a process belongs; the containers of a pod and the steps of a job are one."""
    if one is None:
        return ""
    if one.pod is not None:
        return f"{one.pod.namespace}/{one.pod.name}" if one.pod.name else f"pod {one.pod.uid}"
    if one.kind is GroupKind.SESSION and one.identity.user is not None:
        return f"user {one.identity.user}"
    return one.inside or one.title or one.key


def _minors(driver: DriverGpus) -> dict[str, int]:
    known = ((address, gpu.minor) for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu))
    return {address: minor for address, minor in known if minor is not None}


def _given(desk: Desk) -> "tuple[Given, ...] | Unread":
    """What pods were given, which is asked of a kubelet that runs alone."""
    settings = desk.get(KubeletSettings)
    if isinstance(settings, Unread) or settings.kubelet is None:
        return settings if isinstance(settings, Unread) else ()
    from gpudoctor.facts.pod_devices import PodDevices

    pods = desk.get(PodDevices)
    return pods if isinstance(pods, Unread) else pods.given


def _unseen(
    workloads: Workloads | Unread,
    concerned: GpuWorkloads | Unread,
    listed: tuple[GpuWorkload, ...],
    pods: "tuple[Given, ...] | Unread",
) -> str:
    """Why somebody may have a GPU who is not seen."""
    for unread in (workloads, concerned, pods):
        if isinstance(unread, Unread):
            return f"{unread.where}: {unread.detail}"
    if isinstance(workloads, Workloads) and workloads.unlisted is not None:
        return f"{workloads.unlisted.where}: {workloads.unlisted.detail}"
    hidden = next((one for one in listed if isinstance(one.has_gpu, Unread)), None)
    return f"whether {hidden.workload.title} has it could not be seen" if hidden is not None else ""


def _slurm(desk: Desk) -> str:
    """Whether Slurm keeps jobs to their GPUs (cgroup.conf(5), ConstrainDevices; slurm.conf(5), TaskPlugin)."""
    from gpudoctor.facts.slurm import Slurm

    # Its programs are asked where checks of Slurm want to know, never for this alone.
    slurm = desk.known(Slurm)
    setup = slurm.setup if slurm is not None else None
    if setup is None or not setup.cgroup.known:
        return ""
    said = setup.cgroup.setting("constraindevices")
    plugin = setup.conf.setting("taskplugin").lower()
    works = "cgroup" in plugin or not (setup.conf.file.there and setup.conf.file.known)
    groups = setup.cgroup.setting("cgroupplugin")
    works = works and (groups is None or groups[0].lower() != "disabled")
    if said is not None and said[0].lower() in _YES and works:
        return "jobs of Slurm their own GPUs only (ConstrainDevices)"
    return "jobs of Slurm all of them: without ConstrainDevices only CUDA_VISIBLE_DEVICES says which"


def _by_mode(mode: int) -> str:
    """Who may by the file's mode; `nvidia` makes nodes 0666 unless it is told otherwise (NVreg_DeviceFileMode)."""
    return "any user" if mode & 0o006 == 0o006 else f"root and whom its mode {mode:04o} lets"


def _chooses(one: GpuWorkload) -> bool:
    variables = one.wishes.variables
    return isinstance(variables, Variables) and bool(variables.get(CUDA_VISIBLE))


def crowded(device: NvmlDevice, who: Who) -> Iterator[tuple[int, int, list[str]]]:
    """MIG devices that several compute on, by GPU instance and compute instance, with their names."""
    by_instance: dict[tuple[int, int], set[str]] = {}
    for one in device.processes:
        if computes(one) and one.gpu_instance_id is not None and one.compute_instance_id is not None:
            name = who.owner(one) or f"PID {one.pid}"
            by_instance.setdefault((one.gpu_instance_id, one.compute_instance_id), set()).add(name)
    for (instance, compute), names in sorted(by_instance.items()):
        if len(names) > 1:
            yield instance, compute, sorted(names)
