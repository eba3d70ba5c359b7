"""Workload: does each rank of a distributed job have a GPU of its own?"""

from gpudoctor.chain import Link
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.ranks import Rank, SharedGpus
from gpudoctor.registry import check
from gpudoctor.verdicts import Evidence, NotApplicable, Pass, Verdict, Verdicts, Warn

APART = "workload.ranks-apart"
MOST_NAMED = 4


@check(
    APART,
    link=Link.WORKLOAD,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="No two ranks of one job share a GPU",
)
def ranks_apart(gpus: PciGpus, shared: SharedGpus) -> Verdicts:
    """NCCL refuses a job two of whose ranks use one GPU: "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device".

    The cause is a program that never chose its GPU by LOCAL_RANK, equal values of CUDA_VISIBLE_DEVICES, or two replicas of one time-sliced
    GPU for one job. Judged by the variables that torchrun and its kin give to each rank, of compute processes that use no other GPU:
    a rank that leaves a small context on the first GPU also has its own. Not judged: workers that a rank forked (they have its number),
    processes of different jobs, under MPS, in different MIG instances, and MPI programs, which share GPUs on purpose.
    """
    for gpu in gpus:
        yield _judge(gpu, shared)


def _judge(gpu: PciGpu, shared: SharedGpus) -> Verdict:
    count = shared.counts.get(gpu.address)
    if count is None:
        return NotApplicable(gpu, "NVML does not tell who uses it")
    if gpu.address not in shared.ranks:
        return NotApplicable(gpu, "no two processes share it")
    jobs: dict[tuple[str, ...], dict[int, Rank]] = {}
    for rank in shared.ranks[gpu.address]:
        jobs.setdefault(rank.job, {}).setdefault(rank.rank, rank)
    doubled = next((ranks for ranks in jobs.values() if len(ranks) > 1), None)
    if doubled is None:
        if gpu.address in shared.unread:
            return shared.unread[gpu.address].about(gpu)
        if not jobs:
            return NotApplicable(gpu, f"{count} processes share it, none of them as a rank that uses no other GPU")
        ranks = tuple(rank.evidence for found in jobs.values() for rank in found.values())
        return Pass(gpu, f"{count} processes share it, no two as ranks of one job", ranks[:MOST_NAMED])
    from gpudoctor.knowledge.fabric_remedies import apart

    order = sorted(doubled)
    named = ", ".join(map(str, order[:MOST_NAMED])) + (" …" if len(order) > MOST_NAMED else "")
    idle = sum(1 for used in shared.counts.values() if used == 0)
    summary = f"ranks {named} of one job use this GPU alone" + (
        f", while {idle} GPUs of the node are idle" if idle else ""
    )
    pids = ", ".join(f"PID {doubled[rank].pid}" for rank in order[:MOST_NAMED])
    evidence = (
        *(doubled[rank].evidence for rank in order[:MOST_NAMED]),
        Evidence(f"{shared.via} ({gpu.address})", f"compute processes: {pids}"),
    )
    return Warn(gpu, f"{summary}: NCCL refuses that", evidence, apart(APART), cause="ranks-share")
