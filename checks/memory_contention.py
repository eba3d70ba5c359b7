"""Memory of a GPU that several workloads use: does it suffice for all of them?

Whoever shares a GPU without MIG, a limit of MPS or vGPU may take all of its memory (k8s-device-plugin README.md, "Shared Access to GPUs";
the default compute mode of nvmlComputeMode_t, nvml.h). Read 2026-11-30.
"""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.mps import MEMORY_LIMIT, Mps, MpsClient
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import check
from gpudoctor.verdicts import Evidence, NotApplicable, Pass, Unknown, Unread, Verdict, Verdicts, Warn, Why

CONTENTION = "sharing.memory-contention"
PERCENT = "shared_memory_percent"
MOST_NAMED = 4
_USED, _TOTAL = "memory.used_bytes", "memory.total_bytes"
_MPS_SERVER = "nvidia-cuda-mps-server"


@check(
    CONTENTION,
    link=Link.SHARING,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="No GPU that workloads share without limits is full",
)
def memory_contention(
    gpus: PciGpus, nvml: Nvml, workloads: Reading[Workloads], mps: Reading[Mps], limits: Thresholds
) -> Verdicts:
    """Pods, jobs and users that share a GPU in time, or just use the same one, have all of its memory in common: when it is full, the next
    allocation of any of them fails with CUDA error 2, of whoever comes last and not of whoever took most.

    Judged by the memory in use and by NVML's list of processes, where those belong to two or more containers, pods, jobs, units or logins;
    several processes of one workload are that workload's own affair. Frameworks take most of a GPU by design and are well alone on it.
    With MIG each instance has memory of its own. CUDA_VISIBLE_DEVICES and the memory fractions of PyTorch, JAX and vLLM keep nobody else
    out. Memory without any process is health.memory-without-process.
    """
    by_device = {device.address: device for device in nvml.devices if device.address and device.error is None}
    for gpu in gpus:
        device = by_device.get(gpu.address)
        if device is None:
            yield NotApplicable(gpu, "NVML does not list it")
        elif _limited(device, mps):
            yield NotApplicable(gpu, "MPS limits the memory of each that shares it")
        else:
            yield _contention(gpu, device, workloads, limits)


def _limited(device: NvmlDevice, mps: Reading[Mps]) -> bool:
    """Whether all that compute on it are clients of MPS with a limit of memory: their own, their daemon's, or that of the device plugin.

    The plugin's daemon limits each client to its part (k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go).
    """
    pids = {one.pid for one in device.processes if _computes(one.kind) and _MPS_SERVER not in (one.name or "")}
    if not pids or isinstance(mps, Unread):
        return False
    return pids <= {one.pid for one in mps.clients if one.connected and _has_limit(one, mps)}


def _has_limit(client: MpsClient, mps: Mps) -> bool:
    daemon = mps.daemon(client.daemon)
    if client.memory_limit or daemon is None:
        return client.memory_limit is not None
    return MEMORY_LIMIT in daemon.limits or (daemon.contained and bool(mps.wrappers))


def _contention(gpu: PciGpu, device: NvmlDevice, workloads: Reading[Workloads], limits: Thresholds) -> Verdict:
    if device.fields.get("mig.current") is True:
        return NotApplicable(gpu, "MIG keeps the memory of its instances apart")
    computing = [one for one in device.processes if _computes(one.kind) and _MPS_SERVER not in (one.name or "")]
    if len({one.pid for one in computing}) < 2:
        return NotApplicable(
            gpu, "no two processes share it" if device.lists_processes else "its processes are not listed"
        )
    if isinstance(workloads, Unread):
        return workloads.about(gpu)
    owners = {owner: one for one in computing if (owner := _owner(workloads.by_pid.get(one.pid)))}
    if len(owners) < 2:
        return NotApplicable(gpu, f"{len(computing)} processes share it, not known to be of several workloads")
    used, total = device.fields.get(_USED), device.fields.get(_TOTAL)
    if not isinstance(used, int) or not isinstance(total, int) or total <= 0:
        return Unknown(gpu, Why.NOT_ANSWERED, "how much of its memory is in use was not answered")
    percent = used * 100 / total
    listed = tuple(
        Evidence(f"{device.via} ({gpu.address})", f"PID {one.pid}: {owner}") for owner, one in owners.items()
    )
    evidence = (device.evidence(_USED), device.evidence(_TOTAL), *listed[:MOST_NAMED])
    names = ", ".join(list(owners)[:MOST_NAMED])
    if percent < limits.of(PERCENT):
        return Pass(gpu, f"{len(owners)} workloads share it, {percent:.0f} % of its memory is in use", evidence)
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, relieve_memory

    said = f"{percent:.0f} % of its memory is in use, and {len(owners)} workloads share it without limits ({names}): any may run out"
    shown = (*evidence, *limits.cite(PERCENT))
    return Warn(
        gpu, said, shown, relieve_memory(CONTENTION, gpu.address), cause="memory-shared", references=(SHARED_ACCESS,)
    )


def _computes(kind: str) -> bool:
    return kind.startswith("compute") or kind == "mps"


def _owner(one: Workload | None) -> str:
    """What a process belongs to, "" where that is not known; the containers of a pod and the steps of a job are one."""
    if one is None:
        return ""
    if one.pod is not None:
        return f"{one.pod.namespace}/{one.pod.name}" if one.pod.name else f"pod {one.pod.uid}"
    return one.inside or one.title or one.key
