"""Which ranks of distributed jobs use which GPU, where several processes share one.

torchrun and its kin give each rank RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (PyTorch, torch.distributed.run, "Environment
Variables"); what a rank forks inherits its variables. NCCL refuses two ranks of one job on one GPU ("Duplicate GPU detected", init.cc).
Ranks of MPI programs share a GPU on purpose, and so do processes under MPS and of different jobs. Read 2026-11-30.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuProcess
from gpudoctor.facts.raw import TextFile
from gpudoctor.verdicts import Evidence, Unread

KEEP = r"\A(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_RUN_ID|CUDA_VISIBLE_DEVICES|CUDA_MPS_\w+)="
MOST = 64
"""So many processes are looked at; a node has room for eight ranks, and more share a GPU only where that is meant."""


class Rank(Struct, frozen=True):
    """One process of a job: `job` is equal for all ranks of it."""

    pid: int
    name: str
    rank: int
    job: tuple[str, ...]
    visible: str | None

    @property
    def evidence(self) -> Evidence:
        """Its place in the job, and what it may see."""
        seen = "" if self.visible is None else f", CUDA_VISIBLE_DEVICES={self.visible}"
        return Evidence(f"/proc/{self.pid}/environ", f"RANK={self.rank}, WORLD_SIZE={self.job[0]}{seen} ({self.name})")


class SharedGpus(Fact, frozen=True):
    """By address of each GPU with several compute processes: the ranks that use no other GPU, and what could not be read."""

    ranks: Mapping[str, tuple[Rank, ...]]
    unread: Mapping[str, Unread] = {}
    counts: Mapping[str, int] = {}
    via: str = "NVML"

    @classmethod
    def gather(cls, desk: Desk) -> "SharedGpus | Unread":
        """Environments are read only where several processes share a GPU, or one of its instances."""
        nvml = desk.get(Nvml)
        if isinstance(nvml, Unread):
            return nvml
        users = {
            one.address: [process for process in one.processes if _computes(process)]
            for one in nvml.devices
            if one.address
        }
        counts = {address: len({process.pid for process in using}) for address, using in users.items()}
        shared = {address: using for address, using in users.items() if _crowded(using)}
        pids = sorted({process.pid for using in shared.values() for process in using})
        if not pids or len(pids) > MOST:
            return cls(ranks=dict.fromkeys(shared, ()), counts=counts, via=nvml.via)
        files = desk.raw.read_blocking(tuple(f"/proc/{pid}/environ" for pid in pids), keep=KEEP)
        places = {
            pid: [address for address, using in users.items() if any(one.pid == pid for one in using)] for pid in pids
        }
        ranks: dict[str, tuple[Rank, ...]] = {}
        unread: dict[str, Unread] = {}
        for address, using in shared.items():
            found = []
            for process in using:
                file = files[f"/proc/{process.pid}/environ"]
                if isinstance(file, Unread):
                    unread[address] = file
                elif isinstance(file, TextFile) and len(places[process.pid]) == 1:
                    found.append(_rank(process, file.text))
            ranks[address] = tuple(rank for rank in found if rank is not None)
        return cls(ranks=ranks, unread=unread, counts=counts, via=nvml.via)


def _computes(process: GpuProcess) -> bool:
    return process.kind.startswith("compute")


def _crowded(using: list[GpuProcess]) -> bool:
    """Two in one place: MIG keeps GPU instances apart."""
    places = [(one.gpu_instance_id, one.compute_instance_id) for one in using]
    return len(places) > len(set(places))


def _rank(process: GpuProcess, text: str) -> Rank | None:
    values = dict(part.split("=", 1) for part in text.replace("\0", "\n").splitlines() if "=" in part)
    rank, world = values.get("RANK", ""), values.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world.isdecimal() and values.get("MASTER_ADDR") and len(rank) < 8):
        return None
    if any(name.startswith("CUDA_MPS_") for name in values):
        return None
    job = (world, *(values.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")))
    instance = "" if process.gpu_instance_id is None else f"{process.gpu_instance_id}:{process.compute_instance_id}"
    return Rank(process.pid, process.name or "unnamed", int(rank), (*job, instance), values.get("CUDA_VISIBLE_DEVICES"))
