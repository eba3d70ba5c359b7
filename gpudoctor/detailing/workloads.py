"""The workloads of a report's details: each that has a GPU or was meant to, traced as `gpudoctor trace` would."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.config import ConfigError
from gpudoctor.detailing.together import Together
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.workload import SHORT, Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.report import Report
from gpudoctor.sharers import computes
from gpudoctor.trace import Traced
from gpudoctor.tracing.judging import ground_of, judged
from gpudoctor.tracing.kubelets_side import look_at_kubelet
from gpudoctor.tracing.sight import Sight
from gpudoctor.tracing.steps import SEVERITY, OfPod
from gpudoctor.tracing.target import Target, find
from gpudoctor.tracing.waiting import Waiting
from gpudoctor.verdicts import Unread

if TYPE_CHECKING:
    from gpudoctor.facts.pod_devices import Asking, Given

MOST = 32
"""Traces kept in a report."""
MOST_LOOKED_AT = 128
"""Workloads that are looked at; each costs some dozen small reads."""
SECONDS = 3.0
"""For looking at them before the checks run, and as much again afterwards: a node with stuck containers must still be diagnosed."""
_ENGINES = {"docker": "docker", "podman": "podman", "containerd": "containerd", "cri-o": "crio"}
_NAMED = ("docker", "podman")
"""Engines whose containers people call by a name."""


class Listed(Struct, frozen=True):
    """The traces to show, how many workloads there are beyond them, and why there may be more still."""

    traced: tuple[Traced, ...]
    more: int
    untold: tuple[str, ...]


class Looking:
    """What was seen of workloads so far. `left` are those for which there was no time yet, `more` counts those beyond the bound.

    `hidden` are those that do not show whether they concern GPUs, `unasked` the keys of those that asked for none.
    """

    def __init__(
        self,
        desk: Desk,
        wanted: Sequence[Workload],
        hidden: Sequence[GpuWorkload] = (),
        unasked: frozenset[str] = frozenset(),
    ) -> None:
        self._together = Together(desk)
        self.seen: list[tuple[Workload | Waiting, Sight | Workload | Waiting]] = []
        self.left: list[Workload | Waiting] = [*wanted[:MOST_LOOKED_AT]]
        self.more = len(wanted[MOST_LOOKED_AT:])
        self.hidden = hidden
        self.unasked = unasked

    def go_on(self) -> None:
        """Look at those that are left, for as long as there is time."""
        seen, self.left = self._together.look(self.left, SECONDS)
        self.seen += seen


def looked_at(desk: Desk) -> Looking | Unread:
    """Look at each workload that concerns GPUs, for as long as there is time."""
    concerned = desk.get(GpuWorkloads)
    if isinstance(concerned, Unread):
        return concerned
    wanted = sorted((one for one in concerned if _has_or_asked(one)), key=_likely_broken)
    hidden = [one for one in concerned if one.unseen is not None and not _has_or_asked(one)]
    unasked = frozenset(one.workload.key for one in wanted if not one.asked)
    looking = Looking(desk, [one.workload for one in wanted], hidden, unasked)
    looking.go_on()
    return looking


def _has_or_asked(one: GpuWorkload) -> bool:
    return one.has_gpu is True or one.asked


def _likely_broken(one: GpuWorkload) -> tuple[bool, bool, str]:
    """Those first that asked and have none; what manages GPUs last."""
    return (one.manages_gpus, not (one.asked and one.has_gpu is not True), one.workload.key)


def target_of(one: Workload | Waiting) -> str:
    """The word by which `gpudoctor trace` finds it: a pod or job as a whole, a container by its name or id."""
    if isinstance(one, Waiting):
        return f"pod:{one.namespace}/{one.name}" if one.name else f"pod:{one.uid}"
    if one.pod is not None:
        return f"pod:{one.pod.namespace}/{one.pod.name}" if one.pod.name else f"pod:{one.pod.uid}"
    for key in (one.key, one.inside):
        if key.startswith("slurm:"):
            return key
    if one.kind is GroupKind.CONTAINER and one.id:
        name = one.name if one.engine in _NAMED and one.name else one.id[:SHORT]
        return f"{_ENGINES.get(one.engine, 'container')}:{name}"
    return f"pid:{one.pid}"


def listed(desk: Desk, report: Report, looking: Looking | Unread | None = None) -> Listed | Unread:
    """The traces to show, broken ones first."""
    looking = looked_at(desk) if looking is None else looking
    if isinstance(looking, Unread):
        return looking
    looking.left += _later(desk, [one for one, _ in looking.seen] + looking.left)
    looking.go_on()
    traced = sorted(_traced(looking, desk, report), key=_worst_first)
    more = len(traced[MOST:]) + len(looking.left) + looking.more
    return Listed(tuple(traced[:MOST]), more, tuple(_untold(looking, desk)))


def _untold(looking: Looking, desk: Desk) -> Iterator[str]:
    """Why there may be more, and why some are not traced."""
    concerned = desk.known(GpuWorkloads)
    if concerned is not None and concerned.unlisted is not None:
        yield f"there may be more: {_in_words(concerned.unlisted)}"
    if looking.hidden:
        unseen = looking.hidden[0].unseen
        why = f": {_in_words(unseen)}" if unseen is not None else ""
        yield f"whether they have GPUs could not be seen of {_some([one.workload.title for one in looking.hidden])}{why}"
    if looking.left:
        yield f"there was no time to look at {len(looking.left)} of them"


def _in_words(unread: Unread) -> str:
    return f"{unread.where}: {unread.detail}" + (f" (would need {unread.would_need})" if unread.would_need else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _worst_first(one: Traced) -> tuple[int, str, str]:
    return (-SEVERITY.index(one.verdict), one.title, one.subject.id)


def _traced(looking: Looking, desk: Desk, report: Report) -> Iterator[Traced]:
    """Target by target: the containers of one pod or job know of each other.

    What asked for no GPU and may open none is no workload of GPUs, though it sees the node's /dev, as any job of Slurm does.
    """
    ground = ground_of(desk, report)
    by_target: dict[str, list[Sight | Workload | Waiting]] = {}
    wishful: set[str] = set()
    for one, seen in looking.seen:
        target = target_of(one)
        by_target.setdefault(target, []).append(seen)
        if isinstance(one, Waiting) or one.key not in looking.unasked:
            wishful.add(target)
    for target, members in by_target.items():
        pod = OfPod(look_at_kubelet(desk)) if target.startswith("pod:") else None
        traced = judged(members, ground, target, pod)
        yield from (one for one in traced if one.gpus or target in wishful)


# What came to light while the checks ran ------------------------------------------------------------------------------


def _later(desk: Desk, known: Sequence[Workload | Waiting]) -> Iterator[Workload | Waiting]:
    """What the kubelet holds devices for, or is asked for, and what computes outside of containers and jobs by NVML's word."""
    keys = {_key(one) for one in known}
    for one in _of_kubelet(desk):
        if _key(one) not in keys:
            keys.add(_key(one))
            yield one
    for one in _computing(desk, keys):
        if one.key not in keys:
            keys.add(one.key)
            yield one


def _key(one: Workload | Waiting) -> str:
    return one.key if isinstance(one, Workload) else f"{one.namespace}/{one.name}/{one.uid}/{one.container}"


def _of_kubelet(desk: Desk) -> Iterator[Workload | Waiting]:
    """Pods that wait for GPUs, or whose containers have not got what the kubelet holds for them. Asked only where a kubelet runs."""
    settings = desk.get(KubeletSettings)
    if isinstance(settings, Unread) or settings.kubelet is None:
        return
    from gpudoctor.facts.pod_devices import PodDevices

    pods = desk.get(PodDevices)
    if isinstance(pods, Unread):
        return
    concerned: list[Given | Asking] = [*pods.given, *pods.asking]
    yield from (one.workload for one in concerned if one.workload is not None)
    waits: dict[str, set[str]] = {}
    for one in concerned:
        if one.workload is None and (one.name or one.uid):
            waits.setdefault(f"{one.namespace}/{one.name}" if one.name else one.uid, set()).add(one.container)
    for word, containers in waits.items():
        found = _found("pod", word, desk)
        yield from (one for one in found if isinstance(one, Waiting) and one.container in containers)


def _computing(desk: Desk, keys: set[str]) -> Iterator[Workload]:
    """One process of each unit or session that computes; those of containers and jobs that were seen are known by them."""
    answered, workloads = desk.known(Nvml), desk.known(Workloads)
    by_pid = workloads.by_pid if workloads is not None else {}
    for device in answered.devices if answered is not None else ():
        for process in device.processes:
            owner = by_pid.get(process.pid)
            if computes(process) and (owner is None or owner.key not in keys):
                found = (one for one in _found("pid", str(process.pid), desk) if isinstance(one, Workload))
                yield from (one for one in found if not one.sandbox)


def _found(kind: str, name: str, desk: Desk) -> tuple[Workload | Waiting, ...]:
    """As `gpudoctor trace` finds it; nothing where that finds nothing, or several."""
    try:
        found = find(Target(kind, name), desk)
    except ConfigError:
        return ()
    return () if isinstance(found, Unread) else found
