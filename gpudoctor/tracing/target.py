"""The target of a trace: what its word stands for, and which workloads of the node it fits."""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.config import ConfigError, nearest
from gpudoctor.facts.cgroup_paths import NOWHERE, GroupKind, Groups
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.workload import Pod, Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.tracing.stopped import why_stopped
from gpudoctor.tracing.waiting import Waiting, waiting
from gpudoctor.verdicts import Evidence, Unread, Why

FORMS = (
    "pid:N, docker:NAME, containerd:ID, crio:ID, podman:NAME, pod:NAMESPACE/NAME, slurm:JOB, "
    "or container:ID whatever started it"
)
ENGINES = {"docker": "docker", "containerd": "containerd", "crio": "cri-o", "podman": "podman", "container": ""}
KINDS = ("pid", *ENGINES, "pod", "slurm")
SHORTEST_ID = 4
"""Fewer letters of an id fit too much."""
MOST_LISTED = 6


class Target(Struct, frozen=True):
    """What to trace: `kind:name`."""

    kind: str
    name: str

    @property
    def word(self) -> str:
        """As it was given."""
        return f"{self.kind}:{self.name}"


def parse_target(word: str) -> Target:
    """Raises ConfigError for a word of no known form."""
    kind, colon, name = word.partition(":")
    if not colon:
        raise ConfigError(f"{word!r} names no target: it is {FORMS}")
    if kind not in KINDS:
        raise ConfigError(f"there is no target of the kind {kind!r}{nearest(kind, KINDS)}")
    if not name or (kind == "pid" and decimal(name) is None):
        raise ConfigError(f"{word!r} names no target: it is {FORMS}")
    return Target(kind, name)


def find(target: Target, desk: Desk) -> tuple[Workload | Waiting, ...] | Unread:
    """The workloads it stands for, a pod's containers among them, each led by the process to trace; of a pod those that do not run, too.

    Raises ConfigError where none fits, or more than one could be meant.
    """
    workloads = desk.get(Workloads)
    if isinstance(workloads, Unread):
        return workloads
    match target.kind:
        case "pid":
            return (_process(target, workloads, desk),)
        case "pod":
            return _pod(target, workloads, desk)
        case "slurm":
            return _job(target, workloads)
        case _:
            return (_container(target, workloads, desk),)


# processes ----------------------------------------------------------------------------------------------------------


def _process(target: Target, workloads: Workloads, desk: Desk) -> Workload:
    """The workload that a process is of, led by this very process: its variables, limits and CPUs are its own."""
    processes = desk.get(Processes)
    assert isinstance(processes, Processes)
    pid = decimal(target.name)
    process = next((one for one in processes.processes if one.pid == pid), None)
    if process is None:
        _refuse(target, f"none of {len(processes.processes)} processes has that number here", (), workloads)
    groups = processes.groups[process.cgroup] if process.cgroup >= 0 else Groups(None, {})
    found = workloads.by_pid.get(process.pid) or _alone(process, processes)
    return replace(found, leading=None if process.ended else process, groups=groups)


def _alone(process: Process, processes: Processes) -> Workload:
    """A process that is of no container, job or unit."""
    identity = processes.identities[process.cgroup] if process.cgroup >= 0 else NOWHERE
    return Workload(
        kind=GroupKind.OTHER,
        engine="",
        id="",
        key=f"pid:{process.pid}",
        identity=identity,
        pids=(process.pid,),
        leading=process,
        groups=Groups(None, {}),
        name=process.comm or f"pid:{process.pid}",
        read_from={"cgroup": Evidence(f"/proc/{process.pid}/cgroup", identity.own)},
    )


# containers ---------------------------------------------------------------------------------------------------------


def _container(target: Target, workloads: Workloads, desk: Desk) -> Workload:
    """By name, else by the whole id or its beginning. dockerd's containers are containerd's, too."""
    engine = ENGINES[target.kind]
    own = [one for one in workloads.containers if not engine or one.engine == engine]
    others = [one for one in workloads.containers if engine == "containerd" and one.engine == "docker"]
    fits = _named(target.name, own) or _by_id(target.name, own) or _by_id(target.name, others)
    if not fits:
        if engine in ("", "docker") and (stopped := why_stopped(desk, target.name, SHORTEST_ID)):
            raise ConfigError(f"{target.word}: {stopped}")
        searched = f"none of {len(own)} running containers{f' of {engine}' if engine else ''} has that name or id here"
        unnamed = sum(not one.name for one in own)
        searched += f", but of {unnamed} only the id is known" if unnamed else ""
        _refuse(target, searched, [word for one in own for word in (one.name, one.short_id)], workloads, target.kind)
    return _only(target, fits, _container_words)


def _named(name: str, among: Iterable[Workload]) -> list[Workload]:
    return [one for one in among if name and name in (one.name, one.key)]


def _by_id(name: str, among: Iterable[Workload]) -> list[Workload]:
    found = [one for one in among if one.id == name]
    return found or [one for one in among if len(name) >= SHORTEST_ID and one.id.startswith(name)]


def _container_words(one: Workload) -> str:
    return f"{one.title} ({one.short_id})"


def _only(target: Target, fits: Sequence[Workload], words: Callable[[Workload], str]) -> Workload:
    if len(fits) > 1:
        listed = ", ".join(words(one) for one in fits[:MOST_LISTED])
        more = f" and {len(fits) - MOST_LISTED} more" if len(fits) > MOST_LISTED else ""
        raise ConfigError(f"{target.word} could be {len(fits)} containers: {listed}{more}; say which, by its id")
    return fits[0]


# pods and jobs ------------------------------------------------------------------------------------------------------


def _pod(target: Target, workloads: Workloads, desk: Desk) -> tuple[Workload | Waiting, ...]:
    """By `NAMESPACE/NAME`, by the name alone where only one namespace has it, or by uid; what does not run the kubelet may know."""
    namespace, slash, name = target.name.rpartition("/")
    pods = workloads.pods
    fits = [
        pod
        for pod in pods
        if target.name == pod.uid or (pod.name == name and (not slash or pod.namespace == namespace))
    ]
    if len(fits) > 1:
        listed = ", ".join(f"pod:{_pod_words(pod)} (uid {pod.uid})" for pod in fits[:MOST_LISTED])
        raise ConfigError(f"{target.word} could be {len(fits)} pods: {listed}; say which, by its uid")
    known = () if fits and fits[0].containers else _waiting(target, fits, desk)
    if not fits and not isinstance(known, Unread):
        # By the uid that the API server told, where no file of the pod tells its name.
        fits = [pod for pod in pods if any(one.uid == pod.uid for one in known)]
    if fits and fits[0].containers:
        return fits[0].containers
    if known and not isinstance(known, Unread):
        unseen = _hidden(known, workloads)
        return tuple(replace(one, unseen=unseen) for one in known)
    why = f"; what the kubelet knows is not known: {known.detail}" if isinstance(known, Unread) else ""
    if not fits:
        searched = f"none of {len(pods)} pods has that name or uid here"
        unnamed = sum(not pod.name for pod in pods)
        if unnamed:
            searched += f", but of {unnamed} only the uid is known"
        return _refuse(target, f"{searched}{why}", [_pod_words(pod) for pod in pods], workloads, "pod")
    return _refuse(target, f"only the sandbox of that pod runs, none of its containers{why}", (), workloads)


def _hidden(known: Iterable[Waiting], workloads: Workloads) -> Unread | None:
    """Why a pod may run nevertheless: not all processes are seen, or of some pods only the uid is known."""
    unnamed = sum(not pod.name and bool(pod.containers) for pod in workloads.pods)
    if workloads.unlisted is not None or not unnamed or all(one.uid for one in known):
        return workloads.unlisted
    return Unread(Why.NOT_ANSWERED, "the pods here", f"of {unnamed} of them only the uid is known")


def _waiting(target: Target, fits: Sequence[Pod], desk: Desk) -> tuple[Waiting, ...] | Unread:
    """By its word, else by the uid of its sandbox."""
    known = waiting(target.name, desk)
    return known or (waiting(fits[0].uid, desk) if fits else ())


def _pod_words(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.name else pod.uid


def _job(target: Target, workloads: Workloads) -> tuple[Workload, ...]:
    """The job itself, and the containers that run inside it."""
    jobs = [one for one in workloads if one.kind is GroupKind.JOB and one.engine == "slurm"]
    job = next((one for one in jobs if one.id == target.name), None)
    if job is None:
        _refuse(
            target, f"none of {len(jobs)} Slurm jobs has that number here", [one.id for one in jobs], workloads, "slurm"
        )
    return (job, *(one for one in workloads.containers if one.inside == job.key))


def _refuse(target: Target, searched: str, known: Sequence[str], workloads: Workloads, kind: str = "") -> NoReturn:
    """Say what was searched, which name is near, and whether there may be more than was seen."""
    names = tuple(dict.fromkeys(name for name in known if name))
    near = _near(target, kind, names) if names else ""
    hidden = workloads.unlisted
    need = f" (would need {hidden.would_need})" if hidden is not None and hidden.would_need else ""
    unseen = f"; {hidden.detail}{need}" if hidden is not None else ""
    raise ConfigError(f"{target.word}: {searched}{near}{unseen}")


def _near(target: Target, kind: str, names: Sequence[str]) -> str:
    """The name that is most like the one given, else some of those there are."""
    from difflib import get_close_matches

    close = get_close_matches(target.name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {f'{kind}:{close[0]}'!r}?"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"; there are {', '.join(f'{kind}:{name}' for name in names[:MOST_LISTED])}{more}"
