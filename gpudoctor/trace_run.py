"""One trace: find the target, look at it, run the node's checks, and judge the steps."""

import datetime
import time
from collections.abc import Iterator, Sequence

from gpudoctor.config import Config
from gpudoctor.diagnosis import EXIT_CODES
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.raw import Raw
from gpudoctor.facts.workload import Workload
from gpudoctor.registry import Registry
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.trace import OUTSIDE_OF_PODS, SCHEMA, StepId, Trace, Traced, skipped, unknown
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.kubelets_side import KubeletsSide, look_at_kubelet
from gpudoctor.tracing.sight import Sight, look_at
from gpudoctor.tracing.steps import OfPod, trace_dead, trace_one, trace_waiting, worst
from gpudoctor.tracing.target import Target, find, parse_target
from gpudoctor.tracing.waiting import Waiting
from gpudoctor.verdicts import Subject, SubjectKind, Unread


def trace(raw: Raw, config: Config, registry: Registry, word: str, now: datetime.datetime) -> Trace:
    """Why the workload that a word names can or cannot use its GPU.

    It is looked at before the checks run: a driver that hangs uses up the time of whoever comes after it. Raises ConfigError where the
    word names nothing, or several things.
    """
    started = time.monotonic()
    target = parse_target(word)
    desk = Desk(raw, config, time.monotonic)
    found = find(target, desk)
    seen = [] if isinstance(found, Unread) else [_look(one, desk) for one in found]
    report = run(raw, config, registry, Selection(), now, desk=desk)
    traced = (
        (_not_seen(target, found),)
        if isinstance(found, Unread)
        else tuple(_judged(seen, _ground(desk, report), target.word, _of_pod(target, desk)))
    )
    verdict = worst(one.verdict for one in traced)
    return Trace(
        schema=SCHEMA,
        tool=report.tool,
        node=report.node,
        started_at=report.started_at,
        seconds=round(time.monotonic() - started, 3),
        target=target.word,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        traced=traced,
    )


def _look(one: Workload | Waiting, desk: Desk) -> Sight | Workload | Waiting:
    return look_at(one, desk) if isinstance(one, Workload) and one.leading is not None else one


def _of_pod(target: Target, desk: Desk) -> OfPod | None:
    """The kubelet's side, for which a run has read all that it takes."""
    return OfPod(look_at_kubelet(desk)) if target.kind == "pod" else None


def _ground(desk: Desk, report: Report) -> Ground:
    gpus = desk.get(PciGpus)
    complete = isinstance(gpus, PciGpus) and gpus.unlisted is None
    apart = desk.get(PlatformGpu)
    kind = apart.kind if isinstance(apart, PlatformGpu) else None
    return Ground(report, desk.known(Nvml), complete, kind.value if kind is not None else "")


def _judged(
    seen: Sequence[Sight | Workload | Waiting], ground: Ground, target: str, pod: OfPod | None
) -> Iterator[Traced]:
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


def _not_seen(target: Target, unread: Unread) -> Traced:
    """Where not even the list of processes can be read."""
    rest = (skipped(step, "the target was not seen") for step in OUTSIDE_OF_PODS if step is not StepId.FOUND)
    steps = (unknown(StepId.FOUND, unread), *rest)
    return Traced(
        subject=Subject(SubjectKind.SERVICE, target.word),
        title=target.word,
        engine="",
        container_id="",
        pid=0,
        unit="",
        cgroup="",
        gpus=(),
        verdict=worst(()),
        first_broken=None,
        summary=f"could not tell: {steps[0].summary}",
        steps=steps,
    )
