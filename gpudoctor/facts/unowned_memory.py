"""GPU memory that is in use while NVML lists no process: who else holds the GPU, and what may hide somebody."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.gpu_holders import GpuHolder, GpuHolders
from gpudoctor.facts.leftovers import Leftovers
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.nvml_window import number
from gpudoctor.facts.tasks import Tasks
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.verdicts import Unread, Why

USED = "memory.used_bytes"
LIMIT = "unowned_memory_mebibytes"
_NOT_SUPPORTED = 3
"""nvml.h, nvmlReturn_t."""


class Unowned(Struct, frozen=True):
    """One GPU's memory without a process.

    `daemons` are holders that never have memory, `dead` are some that workload.no-leftovers tells, `unseen` why there may be others.
    """

    used_bytes: int
    holders: tuple[GpuHolder, ...] = ()
    daemons: tuple[GpuHolder, ...] = ()
    dead: bool = False
    unseen: Unread | None = None


class UnownedMemory(Fact, frozen=True):
    """The GPUs with such memory, by address. Who holds nodes is looked for only where there is one."""

    by_address: Mapping[str, Unowned]

    @classmethod
    def gather(cls, desk: Desk) -> "UnownedMemory | Unread":
        """From NVML's answer, and for GPUs that call for it from the open files of all processes."""
        nvml, limits = desk.get(Nvml), desk.get(Thresholds)
        if isinstance(nvml, Unread):
            return nvml
        assert isinstance(limits, Thresholds), "thresholds are never unread"
        least = int(limits.of(LIMIT)) << 20
        suspects = {device.address: device for device in nvml.devices if device.address and is_unowned(device, least)}
        if not suspects:
            return cls(by_address={})
        unseen = _blind(desk)
        holders = desk.get(GpuHolders) if unseen is None else unseen
        leftovers = desk.get(Leftovers) if unseen is None else unseen
        dead = {} if isinstance(leftovers, Unread) else {one.holder.process.pid for one in leftovers.dead}
        found: dict[str, Unowned] = {}
        for address, device in suspects.items():
            used = number(device, USED) or 0
            if isinstance(holders, Unread):
                found[address] = Unowned(used, unseen=holders)
                continue
            all_of_it = holders.of(device.minor) if device.minor is not None else ()
            daemons = tuple(one for one in all_of_it if _is_daemon(one))
            own = tuple(one for one in all_of_it if one not in daemons)
            hidden = holders.hidden + holders.unmapped
            lacks = Unread(
                Why.NO_PERMISSION, "holders (/proc/*/fd)", f"{hidden} processes do not show what they hold", "root"
            )
            no_minor = Unread(Why.NOT_ANSWERED, device.via, "the GPU's minor was not answered")
            why = no_minor if device.minor is None else lacks if hidden else None
            found[address] = Unowned(used, own, daemons, any(one.process.pid in dead for one in all_of_it), why)
        return cls(by_address=found)


def _is_daemon(holder: GpuHolder) -> bool:
    from gpudoctor.knowledge.reset_remedies import computes_nothing

    return computes_nothing(holder.process.comm) or computes_nothing(holder.process.unit)


def is_unowned(device: NvmlDevice, least: int) -> bool:
    """Whether more than that is in use while NVML lists no process.

    MIG devices have their own lists, and a vGPU's memory belongs to its guest (nvml.h, nvmlDeviceGetComputeRunningProcesses). Where the
    memory is a NUMA node of the system, the kernel puts pages of its own into it.
    """
    used = number(device, USED)
    whole = (
        device.fields.get("mig.current") is not True and not number(device, "vgpu.active") and not is_numa_node(device)
    )
    return used is not None and used >= least and whole and device.lists_processes and not device.processes


def is_numa_node(device: NvmlDevice) -> bool:
    """Whether the GPU's memory is, or may be, a NUMA node, as beside a Grace CPU unless the driver manages it itself (CDMM).

    The driver tells the node where there is one (nvml.h, nvmlDeviceGetNumaNodeId), older ones only that the CPU's page tables are used.
    """
    node = device.fields.get("affinity.memory_numa_node")
    if isinstance(node, int):
        return node >= 0
    coherent = device.fields.get("addressing_mode") == "ats" or device.fields.get("c2c.enabled") is True
    return coherent and node != FieldError(_NOT_SUPPORTED)


def _blind(desk: Desk) -> Unread | None:
    """Why processes may be hidden from here: NVML, too, names only those of the caller's PID namespace."""
    view, tasks = desk.get(Viewpoint), desk.get(Tasks)
    assert isinstance(view, Viewpoint), "a viewpoint is never unread"
    if isinstance(view.in_container, Unread):
        return view.in_container
    if view.in_container:
        return Unread(Why.WITHHELD, "/proc", "a container does not show the processes of others", would_need="the host")
    if isinstance(tasks, Unread):
        return tasks
    return (
        None
        if tasks.whole
        else Unread(Why.WITHHELD, "/proc", "a PID namespace or hidepid hides processes", "root of the host")
    )
