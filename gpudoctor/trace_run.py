"""One trace: find the target, look at it, run the node's checks, and judge the steps."""

import datetime
import time

from gpudoctor.config import Config
from gpudoctor.diagnosis import EXIT_CODES
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Raw
from gpudoctor.registry import Registry
from gpudoctor.run import Selection, run
from gpudoctor.trace import OUTSIDE_OF_PODS, SCHEMA, StepId, Trace, Traced, skipped, unknown
from gpudoctor.tracing.judging import ground_of, judged, look
from gpudoctor.tracing.kubelets_side import look_at_kubelet
from gpudoctor.tracing.steps import OfPod, worst
from gpudoctor.tracing.target import Target, find, parse_target
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
    seen = [] if isinstance(found, Unread) else [look(one, desk) for one in found]
    report = run(raw, config, registry, Selection(), now, desk=desk)
    traced = (
        (_not_seen(target, found),)
        if isinstance(found, Unread)
        else tuple(judged(seen, ground_of(desk, report), target.word, _of_pod(target, desk)))
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


def _of_pod(target: Target, desk: Desk) -> OfPod | None:
    """The kubelet's side, for which a run has read all that it takes."""
    return OfPod(look_at_kubelet(desk)) if target.kind == "pod" else None


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
