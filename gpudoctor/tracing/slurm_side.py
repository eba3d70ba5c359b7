"""Slurm's side of a job: which of the node's GPUs its controller gave to it.

`scontrol show job -d` names them by Slurm's own index, IDX (gpudoctor.facts.slurm_order).
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import DriverGpus
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.slurm import Slurm
from gpudoctor.facts.slurm_setup import Setup, told_conf
from gpudoctor.facts.workload import Workload
from gpudoctor.verdicts import Evidence, Unread

if TYPE_CHECKING:
    from gpudoctor.facts.slurm_node import Allocation

INSIDE = "slurm:"


class JobSide(Struct, frozen=True):
    """The minors of the GPUs that a job was given, and what says so."""

    minors: tuple[int, ...]
    evidence: Evidence


def look_at_job(workload: Workload, desk: Desk) -> JobSide | None:
    """Of a job, and of a container in one; None where the controller was not asked, or did not name them."""
    job = _job(workload)
    slurm = desk.get(Slurm) if job else None
    if not isinstance(slurm, Slurm) or slurm.setup is None or not desk.config.slurm.ask:
        return None
    from gpudoctor.facts.slurm_node import ask_job

    setup = slurm.setup
    told = ask_job(desk.raw, job, setup.name, told_conf(setup.daemon))
    return None if isinstance(told, Unread) else _by_minors(told, setup, desk)


def _job(workload: Workload) -> str:
    if workload.kind is GroupKind.JOB and workload.engine == "slurm":
        return workload.id
    return workload.inside.removeprefix(INSIDE) if workload.inside.startswith(INSIDE) else ""


def _by_minors(told: "Allocation", setup: Setup, desk: Desk) -> JobSide | None:
    from gpudoctor.facts.slurm_order import minors_in_order

    order = minors_in_order(setup, desk.get(Nvml), desk.get(DriverGpus)) if told.indices else ()
    if told.indices is None or order is None or any(index >= len(order) for index in told.indices):
        return None
    return JobSide(tuple(sorted(order[index] for index in told.indices)), told.evidence)
