"""All steps of one workload in their order, which follows from which, and the first that is broken."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.report import Overall
from gpudoctor.trace import ESSENTIAL, Step, StepId, Traced, skipped, unknown
from gpudoctor.tracing.asked import Asking, judge_asking
from gpudoctor.tracing.capabilities import judge_capabilities, withholds_cuda
from gpudoctor.tracing.found import judge_found
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.host import judge_host
from gpudoctor.tracing.libraries import judge_libraries
from gpudoctor.tracing.limits import judge_limits
from gpudoctor.tracing.nodes import judge_nodes, misplaced
from gpudoctor.tracing.placement import judge_placement
from gpudoctor.tracing.remedies import confirmed
from gpudoctor.tracing.rules import denied_paths, judge_rules
from gpudoctor.tracing.runtime import judge_runtime
from gpudoctor.tracing.sight import Sight
from gpudoctor.tracing.visible import judge_visible
from gpudoctor.verdicts import Status, Unread, Why

SEVERITY = (Overall.PASS, Overall.WARN, Overall.UNKNOWN, Overall.FAIL)


def trace_one(sight: Sight, ground: Ground, target: str, *, among_others: bool) -> Traced:
    """One workload that lives. `among_others` says that another of the same pod or job has a GPU."""
    found = judge_found(sight.workload)
    if ground.platform:
        return _traced(sight.workload, [found, *_elsewhere(ground)], ground, ())
    asking = judge_asking(sight, ground, among_others=among_others)
    if asking.step.status is Status.SKIP:
        reason = "it is not meant to have a GPU"
        steps = [
            found,
            asking.step,
            *(skipped(step, reason) for step in StepId if step not in (StepId.FOUND, StepId.ASKED)),
        ]
    else:
        addresses = {gpu.address for gpu in asking.wanted} | set(sight.addresses)
        steps = [
            found,
            asking.step,
            judge_host(ground, addresses),
            judge_nodes(sight, asking),
            judge_rules(sight, asking),
            judge_libraries(sight, ground),
            judge_runtime(sight),
            judge_visible(sight, ground),
            judge_capabilities(sight),
            judge_limits(sight),
            judge_placement(sight),
        ]
        steps = _explained([_confirmed(step, target) for step in steps], sight, asking)
    return _traced(sight.workload, steps, ground, sight.addresses)


def _elsewhere(ground: Ground) -> Iterator[Step]:
    """On WSL2 and Tegra the nodes and libraries are others, and a toolkit gives them in ways of its own."""
    reason = f"{ground.platform} has rules of its own, which are not traced yet"
    unread = Unread(Why.NOT_ANSWERED, "its GPU", reason)
    for step in StepId:
        if step is StepId.HOST:
            yield judge_host(ground, ())
        elif step is not StepId.FOUND:
            yield unknown(step, unread, reason) if step in ESSENTIAL else skipped(step, reason)


def trace_dead(workload: Workload, ground: Ground, target: str) -> Traced:
    """One of which no process lives: there is nothing to look at."""
    rest = (skipped(step, "no process of it lives") for step in StepId if step is not StepId.FOUND)
    return _traced(workload, [_confirmed(judge_found(workload), target), *rest], ground, ())


def _confirmed(step: Step, target: str) -> Step:
    """What the node's own checks say keeps the confirmation they give."""
    own = step.id is not StepId.HOST and step.remedies
    return replace(step, remedies=confirmed(step.remedies, target)) if own else step


def _traced(workload: Workload, steps: Iterable[Step], ground: Ground, addresses: Iterable[str]) -> Traced:
    judged = tuple(steps)
    verdict = overall(judged)
    first = next((step for step in judged if step.status is Status.FAIL and not step.caused_by), None)
    return Traced(
        subject=workload.subject,
        title=workload.title,
        engine=workload.engine,
        container_id=workload.id,
        pid=workload.pid,
        unit=workload.unit,
        cgroup=workload.cgroup or workload.devices_cgroup or "",
        gpus=ground.at(addresses),
        verdict=verdict,
        first_broken=first.id if first is not None else None,
        summary=_summary(judged, verdict, first),
        steps=judged,
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


def _explained(steps: list[Step], sight: Sight, asking: Asking) -> list[Step]:
    """Steps that fail only because another one did; that one is before them in the chain, but for what the runtime was asked to mount."""
    failed = {step.id: step for step in steps if step.status is Status.FAIL}
    causes = _causes(sight, asking)
    return [
        replace(step, caused_by=by) if step.id in failed and (by := _by(causes[step.id], failed)) else step
        for step in steps
    ]


def _by(causes: Iterable[StepId], failed: Mapping[StepId, Step]) -> tuple[StepId, ...]:
    return next(((cause,) for cause in causes if cause in failed), ())


def _causes(sight: Sight, asking: Asking) -> dict[StepId, tuple[StepId, ...]]:
    """For each step those that would explain its failure, the deepest first."""
    nobody = (StepId.ASKED,)
    inside = sight.devices.nodes if isinstance(sight.devices, Devices) else ()
    misplaced_only = denied_paths(sight, asking) <= misplaced(sight, asking)
    return {
        StepId.FOUND: (),
        StepId.ASKED: (),
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
