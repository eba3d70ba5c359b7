"""Slurm: whether jobs are kept to their own GPUs, and what computes on the node outside of any job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.chain import Link
from gpudoctor.checks.slurm import ITS_OWN
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.slurm import Slurm
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Cited,
    Evidence,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

if TYPE_CHECKING:
    from gpudoctor.facts.slurm_gres import Partition
    from gpudoctor.facts.slurm_setup import Setup

CONSTRAINED, OUTSIDE = "sharing.slurm-constrained", "sharing.slurm-outside"
JOB_GPUS = "SLURM_JOB_GPUS"
DISABLED = "disabled"
"""CgroupPlugin= for no control groups at all, in Slurm 23.02 and later (cgroup.conf(5))."""
_YES = ("yes", "true", "1", "y", "t")
"""What counts as yes (s_p_get_boolean in SchedMD/slurm src/common/parse_config.c)."""


@check(CONSTRAINED, link=Link.SHARING, advisory=True, title="Slurm keeps every job to its own GPUs")
def constrained(
    slurm: Slurm, workloads: Reading[GpuWorkloads], nvml: Reading[Nvml], driver: Reading[DriverGpus]
) -> Verdicts:
    """Without ConstrainDevices=yes only CUDA_VISIBLE_DEVICES tells a job which GPU is its own, and every job may open all of them.

    A program that sets the variable itself, or starts a container, then computes on GPU 0, whoever was given it; nobody's memory is
    safe from that. cgroup.conf decides, with TaskPlugin=task/cgroup in slurm.conf, without which it does nothing. It matters only where
    jobs share a node: partitions with OverSubscribe=EXCLUSIVE, and select/linear, give whole nodes. Where slurm.conf was not seen,
    nothing is said of the setting; that a job computes on a GPU that it was not given is told in any case. Confinement says who may open
    which GPU: it is no limit of memory, and no MIG.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    yield from _setting(slurm.setup, workloads, tuple(_strayed(slurm.setup, workloads, nvml, driver)))


def _setting(setup: "Setup", workloads: Reading[GpuWorkloads], strayed: "tuple[Strayed, ...]") -> Iterator[Verdict]:
    cgroup, conf = setup.cgroup, setup.conf
    if not cgroup.known and isinstance(cgroup.trouble, Unread):
        yield cgroup.trouble.about(NODE)
        return
    said = cgroup.setting("constraindevices")
    line = said[1].evidence if said is not None else cgroup.evidence("sets no ConstrainDevices, which is no")
    confines = said is not None and said[0].lower() in _YES
    plugin = conf.setting("taskplugin").lower()
    task = (conf.cite("taskplugin"),) if confines and conf.file.there and conf.file.known else ()
    off = cgroup.setting("cgroupplugin") if confines else None
    off = off if off is not None and off[0].lower() == DISABLED else None
    if confines and off is None and (not task or "cgroup" in plugin):
        yield Pass(NODE, "jobs may open their own GPUs only (ConstrainDevices=yes)", (line, *task))
        for one in strayed:
            yield _escaped(one)
        return
    setting = f"ConstrainDevices={said[0]}" if said is not None else "ConstrainDevices is not set"
    why = f"{setting}: every job may open every GPU of the node"
    if off is not None:
        why = "ConstrainDevices=yes does nothing with CgroupPlugin=disabled"
    elif confines:
        why = f"ConstrainDevices=yes does nothing with TaskPlugin={plugin or 'task/none'}"
    evidence = (line, *((off[1].evidence,) if off is not None else task))
    yield _collided(setup, evidence, why, strayed[0]) if strayed else _shared(setup, evidence, why, workloads)


def _escaped(one: "Strayed") -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import stop_job

    step = stop_job(one.job.workload.id, CONSTRAINED)
    return Warn(one.job, f"it {one.words}, though jobs are confined", one.evidence, (step,), cause="strayed")


def _collided(setup: "Setup", evidence: Cited, why: str, one: "Strayed") -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import CGROUPS_PAGE, constrain, stop_job

    job = one.job.workload.id
    summary = f"{why}, and job {job} {one.words}"
    steps = (stop_job(job, CONSTRAINED), constrain(setup.folder, CONSTRAINED))
    cited = (*evidence, *one.evidence)
    return Warn(NODE, summary, cited, steps, cause="unconstrained", of=ITS_OWN, references=(CGROUPS_PAGE,))


def _shared(setup: "Setup", evidence: Cited, why: str, workloads: Reading[GpuWorkloads]) -> Verdict:
    """Unconfined jobs, where several can be on the node."""
    from gpudoctor.knowledge.slurm_remedies import CGROUPS_PAGE, constrain, whole_nodes

    conf = setup.conf
    if not conf.file.there or not conf.file.known:
        trouble = conf.file.trouble
        if isinstance(trouble, Unread):
            return Unknown(
                NODE,
                trouble.why,
                f"{why}; whether jobs share the node is not known: {trouble.where}: {trouble.detail}",
                evidence,
            )
        return Unknown(
            NODE, Why.NOT_ANSWERED, f"{why}; whether jobs share the node is not known: no slurm.conf", evidence
        )
    if not conf.promised:
        return NotApplicable(NODE, "Slurm manages no GPU on this node", (*evidence, conf.evidence))
    shared = [one for one in conf.partitions if not one.exclusive and not _linear(setup, one)]
    if not conf.partitions:
        return NotApplicable(NODE, "the node is in no partition", (*evidence, conf.evidence))
    if not shared:
        lines = tuple(one.line.evidence for one in conf.partitions[:2])
        return NotApplicable(NODE, "jobs get whole nodes here: there is nothing to keep apart", (*evidence, *lines))
    if not conf.setting("selecttype") and _jobs(workloads) < 2:
        # The default was select/linear, and is select/cons_tres since 23.11 (RELEASE_NOTES of SchedMD/slurm @slurm-23-11-0-1;
        # DEFAULT_SELECT_TYPE in src/common/read_config.h there and @slurm-23-02-7-1).
        said = f"{why}; whether jobs share the node is not known: slurm.conf sets no SelectType"
        return Unknown(NODE, Why.NOT_ANSWERED, said, evidence)
    summary = f"{why}, and jobs share nodes in partition {shared[0].name}"
    steps = (constrain(setup.folder, CONSTRAINED), whole_nodes(CONSTRAINED))
    cited = (*evidence, shared[0].line.evidence)
    return Warn(NODE, summary, cited, steps, cause="unconstrained", of=ITS_OWN, references=(CGROUPS_PAGE,))


def _linear(setup: "Setup", partition: "Partition") -> bool:
    """select/linear gives whole nodes, unless the partition lets jobs run over each other (slurm.conf(5), SelectType, OverSubscribe)."""
    return setup.conf.setting("selecttype").lower() == "select/linear" and partition.shares in ("", "no", "exclusive")


def _jobs(workloads: Reading[GpuWorkloads]) -> int:
    return 0 if isinstance(workloads, Unread) else sum(1 for one in workloads if one.workload.kind is GroupKind.JOB)


class Strayed(NamedTuple):
    """A job that computes where it should not."""

    job: GpuWorkload
    words: str
    evidence: Cited


def _strayed(
    setup: "Setup", workloads: Reading[GpuWorkloads], nvml: Reading[Nvml], driver: Reading[DriverGpus]
) -> Iterator[Strayed]:
    """Jobs that compute on a GPU which is not among those they were given, each once.

    Slurm counts GPUs in an order of its own, and instances of MIG one by one: where that order is not known, nobody has strayed. A GPU
    whose index or minor is among the numbers is taken for the job's as well.
    """
    if isinstance(workloads, Unread) or isinstance(nvml, Unread):
        return
    from gpudoctor.facts.slurm_order import minors_in_order

    jobs = {pid: one for one in workloads if one.workload.kind is GroupKind.JOB for pid in one.workload.pids}
    order = minors_in_order(setup, nvml, driver) if jobs else None
    if order is None:
        return
    told: set[str] = set()
    for device in nvml.devices if jobs else ():
        for process in device.processes:
            one = jobs.get(process.pid)
            given = (one.wishes.variable(JOB_GPUS) or "") if one is not None else ""
            numbers = given.split(",")
            places = [decimal(number) for number in numbers]
            if one is None or one.workload.key in told or device.index is None or device.minor is None:
                continue
            if any(place is None or place >= len(order) for place in places):
                continue
            theirs = {order[place] for place in places if place is not None}
            if device.minor in theirs or not {device.index, device.minor}.isdisjoint(places):
                continue
            told.add(one.workload.key)
            evidence = (
                Evidence(f"/proc/{one.workload.pid}/environ", f"{JOB_GPUS}={given}"),
                Evidence(f"{device.via} ({device.address})", f"GPU {device.index}: PID {process.pid} computes"),
            )
            yield Strayed(one, f"computes on GPU {device.index}, while Slurm gave it {_gpus(numbers)}", evidence)


def _gpus(numbers: list[str]) -> str:
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


# outside of jobs ----------------------------------------------------------------------------------------------------


@check(OUTSIDE, link=Link.SHARING, advisory=True, title="What computes on a node of Slurm is in a job")
def outside(slurm: Slurm, workloads: Reading[GpuWorkloads], nvml: Reading[Nvml]) -> Verdicts:
    """`docker run --gpus all` in a job starts the container in docker's control group, where no rule of the job holds.

    It sees every GPU of the node, computes on those of other jobs, and lives on when the job has ended. Told of are containers that
    have GPUs, are in no job's control group, and compute, by the processes that NVML lists. Containers that watch GPUs (dcgm-exporter)
    compute nothing and are not meant, nor are those of Kubernetes. enroot, pyxis and apptainer stay in the job's group.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
    elif isinstance(workloads, Unread):
        yield workloads.about(NODE)
    else:
        containers = [one for one in workloads if one.workload.kind is GroupKind.CONTAINER]
        for one in containers:
            yield _container(one, workloads, nvml)
        if not containers and workloads.unlisted is not None:
            yield workloads.unlisted.about(NODE)
        elif not containers:
            yield NotApplicable(NODE, "no container here has a GPU")


def _container(one: GpuWorkload, workloads: GpuWorkloads, nvml: Reading[Nvml]) -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import CGROUPS_PAGE, close_engine, inside_job

    where = one.workload.cite("cgroup")
    if one.workload.inside.startswith("slurm:"):
        groups = Evidence("processes (/proc/*/cgroup)", f"PID {one.workload.pid}: {where[0].shows}")
        return Pass(one, f"it is inside of job {one.workload.inside.removeprefix('slurm:')}", (groups,))
    if one.workload.pod is not None:
        return NotApplicable(one, "it is a pod's")
    if one.has_gpu is not True:
        return one.has_gpu.about(one) if isinstance(one.has_gpu, Unread) else NotApplicable(one, "it has no GPU")
    if isinstance(nvml, Unread):
        return nvml.about(one)
    busy = [
        (device.index, process.pid)
        for device in nvml.devices
        for process in device.processes
        if process.pid in one.workload.pids
    ]
    if not busy:
        return NotApplicable(one, "it computes nothing")
    jobs = [other for other in workloads if other.workload.kind is GroupKind.JOB]
    index, pid = busy[0]
    evidence = (*where, *one.cite("nodes"), Evidence(nvml.via, f"GPU {index}: PID {pid} computes"), *_jobs_seen(jobs))
    held = f" while {len(jobs)} job{'s run' if len(jobs) != 1 else ' runs'} here" if jobs else ""
    summary = f"it computes on GPU {index} outside of every job{held}: Slurm neither counts nor confines it"
    steps = (inside_job(OUTSIDE), close_engine(OUTSIDE))
    return Warn(one, summary, evidence, steps, cause="outside", references=(CGROUPS_PAGE,))


def _jobs_seen(jobs: list[GpuWorkload]) -> Cited:
    return tuple(evidence for one in jobs[:2] for evidence in one.workload.cite("cgroup"))
