"""Looks at what is traced, and judges what was seen: the same for `gpudoctor trace` and for the workloads of a report's details."""

from collections.abc import Iterator, Sequence

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.workload import Workload
from gpudoctor.report import Report
from gpudoctor.trace import Traced
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.kubelets_side import KubeletsSide
from gpudoctor.tracing.sight import Sight, look_at
from gpudoctor.tracing.steps import OfPod, trace_dead, trace_one, trace_waiting
from gpudoctor.tracing.waiting import Waiting


def look(one: Workload | Waiting, desk: Desk) -> Sight | Workload | Waiting:
    """What there is to see of one that lives; others have nothing to look at."""
    return look_at(one, desk) if isinstance(one, Workload) and one.leading is not None else one


def ground_of(desk: Desk, report: Report) -> Ground:
    """The node below all workloads, after a run over the same desk."""
    gpus = desk.get(PciGpus)
    complete = isinstance(gpus, PciGpus) and gpus.unlisted is None
    apart = desk.get(PlatformGpu)
    kind = apart.kind if isinstance(apart, PlatformGpu) else None
    return Ground(report, desk.known(Nvml), complete, kind.value if kind is not None else "")


def judged(
    seen: Sequence[Sight | Workload | Waiting], ground: Ground, target: str, pod: OfPod | None
) -> Iterator[Traced]:
    """All that one target stands for, such as the containers of a pod, in their order."""
    with_gpu = [one for one in seen if isinstance(one, Sight) and _concerned(one)]
    for one in seen:
        match one:
            case Sight():
                among_others = any(other is not one for other in with_gpu)
                yield trace_one(one, ground, target, among_others=among_others, pod=pod)
            case Waiting():
                assert pod is not None and isinstance(pod.kubelet, KubeletsSide), (
                    "it was found by what the kubelet knows"
                )
                yield trace_waiting(one, ground, target, pod.kubelet)
            case _:
                yield trace_dead(one, ground, target, pod)


def _concerned(sight: Sight) -> bool:
    """Whether it was meant to have a GPU, or has one."""
    return sight.wishes.asked or bool(sight.given)
