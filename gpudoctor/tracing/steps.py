"""All steps of one workload in their order, which follows from which, and the first that is broken."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.report import NodeGpu, Overall
from gpudoctor.trace import ESSENTIAL, OUTSIDE_OF_PODS, Step, StepId, Traced, failed, skipped, unknown
from gpudoctor.tracing import pod_remedies
from gpudoctor.tracing.allocation import judge_allocation, judge_waiting
from gpudoctor.tracing.asked import Asking, judge_asking
from gpudoctor.tracing.capabilities import judge_capabilities, withholds_cuda
from gpudoctor.tracing.found import judge_found
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.host import judge_host, running_with
from gpudoctor.tracing.kubelets_side import KubeletsSide
from gpudoctor.tracing.libraries import judge_libraries
from gpudoctor.tracing.limits import PIPES, judge_limits
from gpudoctor.tracing.nodes import judge_nodes, misplaced
from gpudoctor.tracing.placement import judge_placement
from gpudoctor.tracing.remedies import confirmed
from gpudoctor.tracing.rules import denied_paths, judge_rules
from gpudoctor.tracing.runtime import judge_runtime
from gpudoctor.tracing.sight import Sight
from gpudoctor.tracing.visible import judge_visible
from gpudoctor.tracing.waiting import Waiting
from gpudoctor.verdicts import Status, Subject, Unread, Why

WRONG = (Status.WARN, Status.FAIL)
SEVERITY = (Overall.PASS, Overall.WARN, Overall.UNKNOWN, Overall.FAIL)


class OfPod(Struct, frozen=True):
    """Where a pod is traced: the kubelet's side, None where no kubelet runs."""

    kubelet: KubeletsSide | Unread | None


def trace_one(sight: Sight, ground: Ground, target: str, *, among_others: bool, pod: OfPod | None = None) -> Traced:
    """One workload that lives. `among_others` says that another of the same pod or job has a GPU; `pod` is there where a pod is traced."""
    found = judge_found(sight.workload)
    if ground.platform:
        return _traced(sight.workload, [found, *_elsewhere(ground, pod)], ground, ())
    asking = judge_asking(sight, ground, among_others=among_others)
    given = judge_allocation(pod.kubelet, sight, asking, ground) if pod is not None else None
    allocation = (given.step,) if given is not None else ()
    if asking.step.status is Status.SKIP and not (given is not None and given.step.status in WRONG):
        reason = "it is not meant to have a GPU"
        rest = (step for step in OUTSIDE_OF_PODS if step not in (StepId.FOUND, StepId.ASKED))
        steps = [found, *allocation, asking.step, *(skipped(step, reason) for step in rest)]
    else:
        held = given.addresses if given is not None else ()
        addresses = {gpu.address for gpu in asking.wanted} | set(sight.addresses) | set(held)
        steps = [
            found,
            *allocation,
            asking.step,
            judge_host(ground, addresses, running_with(mps=sight.wishes.variable(PIPES) is not None)),
            judge_nodes(sight, asking),
            judge_rules(sight, asking),
            judge_libraries(sight, ground),
            judge_runtime(sight),
            judge_visible(sight, ground),
            judge_capabilities(sight),
            judge_limits(sight),
            judge_placement(sight),
        ]
        dead = given is not None and given.dead
        steps = _explained([_confirmed(step, target) for step in steps], _causes(sight, asking, dead=dead))
    return _traced(sight.workload, steps, ground, sight.addresses)


def _elsewhere(ground: Ground, pod: OfPod | None) -> Iterator[Step]:
    """On WSL2 and Tegra the nodes and libraries are others, and a toolkit gives them in ways of its own."""
    reason = f"{ground.platform} has rules of its own, which are not traced yet"
    unread = Unread(Why.NOT_ANSWERED, "its GPU", reason)
    for step in _steps(pod):
        if step is StepId.HOST:
            yield judge_host(ground, ())
        elif step is not StepId.FOUND:
            yield unknown(step, unread, reason) if step in ESSENTIAL else skipped(step, reason)


def trace_dead(workload: Workload, ground: Ground, target: str, pod: OfPod | None = None) -> Traced:
    """One of which no process lives: there is nothing to look at."""
    rest = (skipped(step, "no process of it lives") for step in _steps(pod) if step is not StepId.FOUND)
    return _traced(workload, [_confirmed(judge_found(workload), target), *rest], ground, ())


def _steps(pod: OfPod | None) -> Iterable[StepId]:
    return OUTSIDE_OF_PODS if pod is None else StepId


def _found(one: Waiting) -> Step:
    """That nothing of it runs is known only where all processes are seen."""
    if one.unseen is not None:
        said = f"whether a process of it runs is not known: {one.unseen.detail}; {one.known}"
        return unknown(StepId.FOUND, one.unseen, said, one.evidence)
    said = f"no process of it runs here; {one.known}"
    return failed(StepId.FOUND, said, one.evidence, pod_remedies.describe(one.namespace, one.name))


def trace_waiting(one: Waiting, ground: Ground, target: str, kubelet: KubeletsSide) -> Traced:
    """A container of a pod that does not run here: what the kubelet holds for it, and whether it can be given what it asks for."""
    found = _found(one)
    asked = kubelet.asking(one.namespace, one.name, one.container)
    given = judge_waiting(kubelet, asked, one.held, one.namespace, one.name)
    judged = (StepId.FOUND, StepId.ALLOCATION, StepId.HOST)
    skips = {step: skipped(step, "no process of it runs here") for step in StepId if step not in judged}
    concerned = bool(given.addresses or asked) and not ground.platform
    host = judge_host(ground, given.addresses) if concerned else skipped(StepId.HOST, "no GPU of it is known")
    made = {**skips, StepId.FOUND: found, StepId.ALLOCATION: given.step, StepId.HOST: host}
    causes = {
        StepId.FOUND: (*((StepId.HOST,) if given.dead else ()), StepId.ALLOCATION),
        StepId.ALLOCATION: (StepId.HOST,) if given.dead else (),
    }
    steps = _explained([_confirmed(made[step], target) for step in StepId], causes)
    return _judged(one.subject, one.title, tuple(steps), ground.at(given.addresses))


def _confirmed(step: Step, target: str) -> Step:
    """What the node's own checks say keeps the confirmation they give."""
    own = step.id is not StepId.HOST and step.remedies
    return replace(step, remedies=confirmed(step.remedies, target)) if own else step


def _traced(workload: Workload, steps: Iterable[Step], ground: Ground, addresses: Iterable[str]) -> Traced:
    traced = _judged(workload.subject, workload.title, tuple(steps), ground.at(addresses))
    return replace(
        traced,
        engine=workload.engine,
        container_id=workload.id,
        pid=workload.pid,
        unit=workload.unit,
        cgroup=workload.cgroup or workload.devices_cgroup or "",
    )


def _judged(subject: Subject, title: str, steps: tuple[Step, ...], gpus: tuple[NodeGpu, ...]) -> Traced:
    """By its steps alone."""
    verdict = overall(steps)
    first = next((step for step in steps if step.status is Status.FAIL and not step.caused_by), None)
    return Traced(
        subject=subject,
        title=title,
        engine="",
        container_id="",
        pid=0,
        unit="",
        cgroup="",
        gpus=gpus,
        verdict=verdict,
        first_broken=first.id if first is not None else None,
        summary=_summary(steps, verdict, first),
        steps=steps,
    )


def overall(steps: Iterable[Step]) -> Overall:
    """A fail, else an essential step that is unknown, else a warn; a pass needs an essential step that passed."""
    judged = tuple(steps)
    statuses = {step.status for step in judged}
    if Status.FAIL in statuses:
        return Overall.FAIL
    if any(step.essential and step.status is Status.UNKNOWN for step in judged):
        return Overall.UNKNOWN
    if Status.WARN in statuses:
        return Overall.WARN
    positive = any(step.essential and step.status is Status.PASS for step in judged)
    return Overall.PASS if positive else Overall.UNKNOWN


def worst(verdicts: Iterable[Overall]) -> Overall:
    """Of several workloads."""
    return max(verdicts, key=SEVERITY.index, default=Overall.UNKNOWN)


def _summary(steps: tuple[Step, ...], verdict: Overall, first: Step | None) -> str:
    match verdict:
        case Overall.FAIL:
            assert first is not None
            return f"{first.id.value}: {first.summary}"
        case Overall.UNKNOWN:
            unseen = next((step for step in steps if step.id in ESSENTIAL and step.status is Status.UNKNOWN), None)
            return f"could not tell: {unseen.id.value}: {unseen.summary}" if unseen is not None else "could not tell"
        case Overall.WARN:
            warning = next(step for step in steps if step.status is Status.WARN)
            return f"nothing is broken; {warning.id.value}: {warning.summary}"
        case Overall.PASS:
            if next(step for step in steps if step.id is StepId.ASKED).status is Status.SKIP:
                return "it is not meant to have a GPU"
            open_steps = [step.id.value for step in steps if step.status is Status.UNKNOWN]
            rest = f"; not seen: {', '.join(open_steps)}" if open_steps else ""
            return f"nothing seen keeps it from its GPUs{rest}"


# what follows from what ---------------------------------------------------------------------------------------------


def _explained(steps: list[Step], causes: Mapping[StepId, tuple[StepId, ...]]) -> list[Step]:
    """Steps that fail only because another one did; that one is before them in the chain, but for what the runtime was asked to mount."""
    failing = {step.id: step for step in steps if step.status is Status.FAIL}
    return [
        replace(step, caused_by=by) if step.id in failing and (by := _by(causes.get(step.id, ()), failing)) else step
        for step in steps
    ]


def _by(causes: Iterable[StepId], failed: Mapping[StepId, Step]) -> tuple[StepId, ...]:
    return next(((cause,) for cause in causes if cause in failed), ())


def _causes(sight: Sight, asking: Asking, *, dead: bool) -> dict[StepId, tuple[StepId, ...]]:
    """For each step those that would explain its failure, the deepest first."""
    # What the kubelet does not hold, or holds and did not hand on, nobody asked the runtime for.
    nobody = (StepId.ALLOCATION, StepId.ASKED)
    inside = sight.devices.nodes if isinstance(sight.devices, Devices) else ()
    misplaced_only = denied_paths(sight, asking) <= misplaced(sight, asking)
    return {
        StepId.FOUND: (),
        # Why a GPU is dead that the kubelet holds, the node's own checks know.
        StepId.ALLOCATION: (StepId.HOST,) if dead else (),
        StepId.ASKED: (StepId.ALLOCATION,) if not dead else (),
        StepId.HOST: (),
        # Whoever asked for a GPU that is broken on the node may well have been given nothing.
        StepId.NODES: (*nobody, StepId.HOST),
        # What makes a node makes its rule as well.
        StepId.RULES: (*nobody, *((StepId.NODES,) if misplaced_only else ())),
        StepId.LIBRARIES: (*nobody, *((StepId.CAPABILITIES,) if withholds_cuda(sight) else ()), *_not_injected(inside)),
        StepId.RUNTIME: (),
        StepId.VISIBLE: (*nobody, StepId.NODES),
        StepId.CAPABILITIES: (),
        StepId.LIMITS: (),
        StepId.NUMA: (),
    }


def _not_injected(inside: Iterable[object]) -> tuple[StepId, ...]:
    """Where not even a node was put inside, no library was either."""
    return () if tuple(inside) else (StepId.NODES,)
