"""Health: is a GPU's memory in use although nobody uses it?"""

from collections.abc import Iterable

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.gpu_holders import GpuHolder
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.nvml_window import number
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.unowned_memory import LIMIT, USED, Unowned, UnownedMemory, is_numa_node
from gpudoctor.registry import check
from gpudoctor.verdicts import Cited, Evidence, NotApplicable, Pass, Verdict, Verdicts, Warn

MEMORY_USE = "health.memory-without-process"
MOST_NAMED = 4


@check(
    MEMORY_USE,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="No GPU memory is in use without a process",
)
def memory_without_process(gpus: PciGpus, nvml: Nvml, unowned: UnownedMemory, limits: Thresholds) -> Verdicts:
    """A program finds a GPU that nvidia-smi shows without any process, and runs out of memory on it at once.

    Judged is memory that is in use beyond what the driver keeps for itself, while NVML lists no process. NVML does not see processes of
    other PID namespaces from within a container, so that there nothing is said. On the host whoever has the GPU's node open explains it,
    but for daemons that have it open and compute nothing. What is left of dead containers and processes is workload.no-leftovers. Of MIG
    and of GPUs cut for virtual machines NVML keeps other lists; where the memory is a NUMA node, as beside a Grace CPU, the kernel's own
    pages lie in it. With nobody there, the driver has lost track of it: a reset gives it back.
    """
    return judged(gpus, nvml, lambda gpu, device: _memory(gpu, device, unowned.by_address.get(gpu.address), limits))


def _memory(gpu: PciGpu, device: NvmlDevice, unowned: Unowned | None, limits: Thresholds) -> Verdict:
    used = number(device, USED)
    if used is None:
        return untold(gpu, device, (USED,), "memory in use")
    evidence = cited(device, (USED, "memory.reserved_bytes"))
    mebibytes = used >> 20
    if unowned is None:
        return _accounted_for(gpu, device, evidence, mebibytes)
    if unowned.dead:
        return NotApplicable(gpu, "held by what is left of something dead, see workload.no-leftovers", evidence)
    if unowned.holders:
        seen = tuple(holder.evidence for holder in unowned.holders[:MOST_NAMED])
        said = f"{mebibytes} MiB in use, NVML lists no process: held by {_names(unowned.holders)}"
        return Pass(gpu, said, evidence + seen)
    if unowned.unseen is not None:
        return unowned.unseen.about(gpu)
    from gpudoctor.knowledge.memory_remedies import reset

    who = f"only daemons that compute nothing have it open ({_names(unowned.daemons)})" if unowned.daemons else ""
    said = f"{mebibytes} MiB in use, and {who or 'no process has the GPU'}: the driver has lost track of them"
    seen = tuple(holder.evidence for holder in unowned.daemons[:MOST_NAMED])
    evidence = (*evidence, _listed(device), *seen, *limits.cite(LIMIT))
    return Warn(
        gpu, said, evidence, reset(MEMORY_USE, gpu.address, "A reset gives the memory back."), cause="leaked-memory"
    )


def _accounted_for(gpu: PciGpu, device: NvmlDevice, evidence: Cited, mebibytes: int) -> Verdict:
    """Nothing to look into: somebody is listed, little is in use, or the lists are not of all that use it."""
    if device.fields.get("mig.current") is True or not device.lists_processes:
        return NotApplicable(gpu, "MIG has its own lists" if device.lists_processes else "it lists no processes")
    if device.processes:
        pids = ", ".join(str(process.pid) for process in device.processes[:MOST_NAMED])
        return Pass(gpu, f"{mebibytes} MiB in use, by PID {pids}", (*evidence, _listed(device)))
    if number(device, "vgpu.active"):
        return NotApplicable(gpu, f"{mebibytes} MiB in use: it is cut for virtual machines", evidence)
    if is_numa_node(device):
        said = f"{mebibytes} MiB in use: its memory is a NUMA node, where the kernel's own pages lie as well"
        return NotApplicable(gpu, said, evidence)
    return Pass(gpu, f"{mebibytes} MiB in use, by no process: the driver's own", (*evidence, _listed(device)))


def _listed(device: NvmlDevice) -> Evidence:
    return Evidence(f"{device.via} ({device.address or device.uuid})", f"{len(device.processes)} processes are listed")


def _names(holders: Iterable[GpuHolder]) -> str:
    names = [f"{one.process.comm} ({one.process.pid})" for one in holders]
    return ", ".join(names[:MOST_NAMED])
