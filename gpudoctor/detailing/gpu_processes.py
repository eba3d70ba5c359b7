"""Who has a GPU open: the processes that NVML lists, and those that hold its device node without being listed."""

from collections.abc import Iterator

from gpudoctor.details import GpuProcess
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_holders import GpuHolders
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.workloads import Workloads

MOST = 64
"""Of one GPU; MPS and time slicing put dozens on one."""


class Holding:
    """Processes by GPU, put together once. Who holds the nodes is looked for only where NVML cannot list processes, or checks asked."""

    def __init__(self, desk: Desk) -> None:
        workloads, answered = desk.known(Workloads), desk.known(Nvml)
        self._by_pid = workloads.by_pid if workloads is not None else {}
        listed = answered is not None and answered.failure is None
        holders = desk.known(GpuHolders) if listed else desk.get(GpuHolders)
        self._holders = holders if isinstance(holders, GpuHolders) else None

    def of(self, device: NvmlDevice | None, minor: int | None) -> tuple[GpuProcess, ...]:
        """Those of one GPU, NVML's first."""
        found: dict[int, GpuProcess] = {}
        for one in self._all(device, minor):
            found.setdefault(one.pid, one)
        return tuple(found.values())[:MOST]

    def _all(self, device: NvmlDevice | None, minor: int | None) -> Iterator[GpuProcess]:
        for one in device.processes if device is not None else ():
            yield GpuProcess(one.pid, one.name or "", one.used_bytes, self._workload(one.pid))
        for holder in self._holders.of(minor) if self._holders is not None and minor is not None else ():
            process = holder.process
            yield GpuProcess(process.pid, process.comm, None, self._workload(process.pid))

    def _workload(self, pid: int) -> str:
        one = self._by_pid.get(pid)
        return one.subject.id if one is not None else ""
