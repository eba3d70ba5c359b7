"""Whether shared memory, lockable memory and the IPC namespace suffice for NCCL, which joins several GPUs, and MPS, which shares one.

Sources: NCCL user guide, "Runtime and MPI issues" (GUIDE below, read 2026-11-30: containers get little shared and pinned memory;
--shm-size=1g --ulimit memlock=-1); moby gives a container 64 MiB of /dev/shm; tmpfs(5) (size; half of the memory without it);
ibv_reg_mr(3) and RLIMIT_MEMLOCK of getrlimit(2); nvidia-cuda-mps-control(1) (a program that does not reach the daemon goes on without
MPS). That clients need the daemon's IPC namespace, or its /dev/shm, is how k8s-device-plugin v0.20.0 sets them up
(internal/plugin/mps.go); no document of NVIDIA's was found to say so, so that it is no more than a warning.
"""

import re

from gpudoctor.facts.mounts import MPS, Mount, Mounts
from gpudoctor.facts.process_status import IPC_LOCK, LockedMemory, ProcessStatus
from gpudoctor.facts.raw import Contents, decimal
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.trace import Step, StepId, passed, skipped, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
SHM = "/dev/shm"  # noqa: S108 - a mount point that is looked for
SMALL_MEBIBYTES = 64
"""What docker and others give a container that asks for nothing."""

_SIZE = re.compile(r"(?:^|,)size=(\d{1,18})([kmg]?)(?:,|$)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def judge_limits(sight: Sight) -> Step:
    """Several GPUs need memory that processes share; a client of MPS needs to reach its server."""
    devices = sight.devices
    if isinstance(devices, Unread):
        return unknown(StepId.LIMITS, devices)
    gpus = len(sight.given)
    pipes = sight.wishes.variable(PIPES)
    mounts = devices.mounts if isinstance(devices, Devices) else None
    if pipes is not None and (step := _apart_from_mps(sight, mounts)) is not None:
        return step
    if gpus < 2:
        if pipes is not None:
            return passed(
                StepId.LIMITS, "it shares the IPC namespace or /dev/shm of the MPS daemon", _mps_evidence(sight, mounts)
            )
        return skipped(StepId.LIMITS, "NCCL joins several GPUs, and fewer are inside; no pipes of MPS are named")
    if not isinstance(mounts, Mounts):
        unread = (
            mounts
            if isinstance(mounts, Unread)
            else Unread(Why.UNREADABLE, f"/proc/{sight.pid}/mountinfo", "does not exist")
        )
        return unknown(StepId.LIMITS, unread)
    return _memory(sight, mounts, gpus)


def _memory(sight: Sight, mounts: Mounts, gpus: int) -> Step:
    mount = mounts.over(SHM)
    size = _mebibytes(mount) if mount is not None else None
    shown = (Evidence(mounts.path, mount.line if mount is not None else f"nothing is mounted at {SHM}"),)
    if size is not None and size <= SMALL_MEBIBYTES:
        said = f"{SHM} holds {size} MiB, which is little for NCCL between {gpus} GPUs"
        return warned(StepId.LIMITS, said, shown, *remedies.more_memory(sight.workload), references=(GUIDE,))
    if (step := _cannot_lock(sight)) is not None:
        return step
    much = f"{size} MiB" if size is not None else "as much as the node lets it"
    locked = f"; it may lock {_locked(sight.locked)}" if isinstance(sight.locked, LockedMemory) else ""
    return passed(StepId.LIMITS, f"{SHM} holds {much}{locked}", (*shown, *_locked_evidence(sight)))


def _mebibytes(mount: Mount) -> int | None:
    """The size of a tmpfs in its own options, which stand behind the dash."""
    found = _SIZE.search(mount.line.rpartition(" ")[2])
    return (decimal(found[1]) or 0) * _UNITS[found[2]] >> 20 if found else None


# memory that may be locked ------------------------------------------------------------------------------------------


def _locked_evidence(sight: Sight) -> Cited:
    return (sight.locked.evidence,) if isinstance(sight.locked, LockedMemory) else ()


def _locked(limit: LockedMemory) -> str:
    return "any amount of memory" if limit.bytes is None else f"{limit.bytes >> 10} KiB of memory"


def _cannot_lock(sight: Sight) -> Step | None:
    """RDMA locks the memory it reads and writes: with a low limit it fails, unless CAP_IPC_LOCK lifts that (capabilities(7))."""
    limit, status, verbs = sight.locked, sight.status, sight.infiniband
    if (
        not isinstance(limit, LockedMemory)
        or limit.bytes is None
        or not isinstance(verbs, Contents)
        or not verbs.entries
    ):
        return None
    if not isinstance(status, ProcessStatus) or status.has(IPC_LOCK) is not False:
        return None
    said = f"it has InfiniBand devices, but may lock only {_locked(limit)}: RDMA of NCCL fails to register memory"
    devices = Evidence(verbs.where, f"holds {', '.join(sorted(verbs.entries)[:4])}")
    return warned(
        StepId.LIMITS, said, (limit.evidence, devices), *remedies.more_memory(sight.workload), references=(GUIDE,)
    )


# MPS ----------------------------------------------------------------------------------------------------------------


def _mps_evidence(sight: Sight, mounts: object) -> Cited:
    shm = mounts.bound(SHM) if isinstance(mounts, Mounts) else None
    ipc = Evidence(f"/proc/{sight.pid}/ns/ipc", "is that of the node" if sight.shared.get("ipc") else "is its own")
    return (
        *sight.environ(PIPES),
        ipc,
        *((Evidence(f"/proc/{sight.pid}/mountinfo", shm.line),) if shm is not None else ()),
    )


def _apart_from_mps(sight: Sight, mounts: object) -> Step | None:
    """Its own IPC namespace, and a /dev/shm of its own as well."""
    if sight.shared.get("ipc") is None:
        need = "root"
        unread = Unread(
            Why.NO_PERMISSION, f"/proc/{sight.pid}/ns/ipc", "the IPC namespace is not shown", would_need=need
        )
        return unknown(StepId.LIMITS, unread)
    shm = mounts.bound(SHM) if isinstance(mounts, Mounts) else None
    from_mps = shm is not None and (any(part in shm.root for part in ("/mps", "nvidia-mps")) or shm.root in MPS)
    if sight.shared["ipc"] or from_mps:
        return None
    said = "it names pipes of MPS, but has neither the node's IPC namespace nor the daemon's /dev/shm"
    return warned(StepId.LIMITS, said, _mps_evidence(sight, mounts), *remedies.share_ipc())
