"""Whether the images of workloads have code for the GPUs that they were given."""

from gpudoctor.chain import Link
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.workload_code import Code, WorkloadCode
from gpudoctor.registry import check
from gpudoctor.verdicts import Action, NotApplicable, Pass, Remedy, Unread, Verdict, Verdicts, Warn

CHECK = "workload.code-for-gpu"
_ANEW = "this container: it must be created anew"
OTHER_BUILD = (
    Remedy(
        Action.NONE,
        "The node is well. See which images and framework builds have code for these GPUs.",
        run=("gpudoctor compat --framework pytorch", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
        confirm="one of them runs natively",
    ),
    Remedy(
        Action.CHANGE_WORKLOAD,
        "Use such an image, or build for these GPUs (TORCH_CUDA_ARCH_LIST for PyTorch and its extensions).",
        interrupts=_ANEW,
        confirm="python3 -c 'import torch; print(torch.cuda.get_arch_list(), torch.ones(1).cuda())'",
    ),
)


@check(
    CHECK,
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    needs={Link.DRIVER_CUDA},
    title="Every image has code for its GPUs",
)
def code_for_gpu(workloads: GpuWorkloads, code: WorkloadCode) -> Verdicts:
    """A build for other GPUs starts, sees its GPU and fails at the first kernel: "no kernel image is available for execution" (209).

    Two things that images say are held against the compute capability of each GPU that a workload has: TORCH_CUDA_ARCH_LIST, for which
    NVIDIA's PyTorch was built, with PTX where it says so; and CUDA_VERSION, where that toolkit has dropped the architecture (CUDA 13:
    Maxwell, Pascal and Volta). An older toolkit is no fault: PTX of its libraries is compiled for newer GPUs. It is a remark about the
    image, the node is well; an image that says nothing of the kind, as most wheels do not, is not judged: `gpudoctor compat
    --framework` is. Easily confused with PTX that is too new for the driver (222), and with a driver that does not drive the GPU.
    """
    for one in workloads:
        yield _verdict(one, code.by_key[one.workload.key])


def _verdict(one: GpuWorkload, said: Code | Absent | Unread) -> Verdict:
    title = one.workload.title
    if isinstance(said, Unread):
        return said.about(one)
    if isinstance(said, Absent):
        return NotApplicable(one, f"{title} has ended", (said.evidence,))
    evidence = said.cite("variable")
    if not said.variable:
        return NotApplicable(one, f"{title}: its image does not say what it was built for", evidence)
    if not said.capabilities:
        return NotApplicable(one, f"{title} has no GPU whose compute capability is known", evidence)
    known = ", ".join(sorted(set(said.capabilities.values())))
    if not said.lacking:
        return Pass(one, f"{title}: nothing in {said.variable} leaves out compute capability {known}", evidence)
    first = said.lacking[0]
    summary = f"{title}: its image has no code for compute capability {first.cc} of GPU {first.gpu}: {first.why}"
    return Warn(one, summary, evidence, OTHER_BUILD, cause="no-code")
