"""Whether the target is there, and lives."""

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.oci_config import DockerContainer
from gpudoctor.facts.workload import Workload
from gpudoctor.trace import Step, StepId, failed, passed
from gpudoctor.tracing import remedies
from gpudoctor.verdicts import Cited, Evidence

KINDS = {
    GroupKind.CONTAINER: "container",
    GroupKind.JOB: "job",
    GroupKind.SERVICE: "service",
    GroupKind.SCOPE: "scope",
    GroupKind.SESSION: "session",
    GroupKind.MACHINE: "virtual machine",
}


def judge_found(one: Workload) -> Step:
    """Which process, container, pod, unit and engine."""
    if one.leading is None:
        said = f"{one.title} is there, but none of its processes lives: {_pids(one)}"
        again = remedies.start_again(one, "Start it again, and see why it ended.")
        return failed(StepId.FOUND, said, _evidence(one), again)
    name = f" ({one.leading.comm})" if one.leading.comm else ""
    return passed(StepId.FOUND, f"PID {one.leading.pid}{name} of {_what(one)}", _evidence(one))


def _what(one: Workload) -> str:
    """What it is, in which unit, on whose behalf."""
    kind = KINDS.get(one.kind, "process")
    if one.kind is GroupKind.OTHER:
        return "no container, job or unit"
    if one.kind is not GroupKind.CONTAINER:
        return f"{kind} {one.id or one.title}"
    engine = f"{one.engine} " if one.engine else ""
    inside = f" inside {one.inside}" if one.inside else ""
    whose = " of an ordinary user" if one.rootless is True else ""
    return f"{engine}{kind} {one.short_id}{whose}{inside}"


def _pids(one: Workload) -> str:
    more = f" and {len(one.pids) - 3} more" if len(one.pids) > 3 else ""
    return f"PID {', '.join(map(str, one.pids[:3]))}{more} ended, and what started it has not collected it"


def _evidence(one: Workload) -> Cited:
    seen = [one.read_from["cgroup"]] if "cgroup" in one.read_from else []
    if isinstance(one.docker, DockerContainer):
        seen.append(
            Evidence(one.docker.path, f"container {one.docker.name}, runtime {one.docker.runtime or 'default'}")
        )
    elif "hooks" in one.read_from:
        seen.append(one.read_from["hooks"])
    return tuple(seen)
