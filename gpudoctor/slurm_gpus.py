"""Which GPUs a job was given, from what slurmd tells its prolog and epilog, as far as that can be known without asking Slurm.

SLURM_JOB_GPUS counts the devices in the order of gres.conf, not the numbers of their files: with File=/dev/nvidia[2-9] the first one is 0
(slurmd 22.05.8; gres_device->index in SchedMD/slurm src/plugins/gres/common/gres_common.c). Where that order is not certain, no GPU is
taken for the job's: a failing GPU of somebody else must not end this job.
"""

import posixpath
from collections.abc import Mapping, Sequence

from gpudoctor.facts.raw import Raw, decimal
from gpudoctor.facts.slurm_files import read_conf
from gpudoctor.facts.slurm_gres import GresConf, gres_conf
from gpudoctor.patterns import pattern
from gpudoctor.report import NodeGpu, Report
from gpudoctor.verdicts import Status

INSTANCES = "sharing.mig-instances"
"""It does not apply where no GPU is divided: then Slurm counts GPUs, and not instances of MIG."""

_FILE = pattern(r"/dev/nvidia(\d{1,4})")
USUAL_CONF = "/etc/slurm/slurm.conf"


class GpusUnknownError(Exception):
    """Which GPUs are the job's cannot be told."""


def numbers_of_job(environment: Mapping[str, str]) -> tuple[int, ...]:
    """The job's GPUs as slurmd counts them; none for a job without. Raises GpusUnknownError."""
    said = environment.get("SLURM_JOB_GPUS", "").strip()
    numbers = [decimal(word) for word in said.split(",")] if said else []
    if any(number is None for number in numbers):
        raise GpusUnknownError(f"SLURM_JOB_GPUS={said}: not a list of numbers")
    return tuple(number for number in numbers if number is not None)


def read_gres(raw: Raw, environment: Mapping[str, str]) -> GresConf:
    """gres.conf beside slurmd's slurm.conf, for this node. Raises GpusUnknownError."""
    node = environment.get("SLURMD_NODENAME", "")
    conf = environment.get("SLURM_CONF") or USUAL_CONF
    file = read_conf(raw, posixpath.join(posixpath.dirname(conf), "gres.conf"))
    if not node:
        raise GpusUnknownError("slurmd does not tell the node's name (SLURMD_NODENAME)")
    if file.trouble is not None:
        raise GpusUnknownError(f"{file.path}: {'is not there' if file.known else 'could not be read as a whole'}")
    return gres_conf(file, node)


def asked_for(gres: GresConf) -> tuple[str, ...]:
    """The checks that a report must hold for the job's GPUs to be told."""
    return (INSTANCES,) if gres.detection.on else ()


def addresses_of_job(numbers: Sequence[int], gres: GresConf, report: Report) -> frozenset[str]:
    """The sysfs addresses of the job's GPUs. Raises GpusUnknownError unless each of them is certain."""
    by_minor: dict[int, list[str]] = {}
    for gpu in report.node.gpus:
        if gpu.minor is not None:
            by_minor.setdefault(gpu.minor, []).append(gpu.address)
    order = _order(gres, report)
    addresses: set[str] = set()
    for number in numbers:
        if number >= len(order):
            raise GpusUnknownError(f"the job has GPU {number} of {len(order)} in {gres.file.path}")
        there = by_minor.get(order[number], [])
        if len(there) != 1:
            raise GpusUnknownError(f"/dev/nvidia{order[number]}: {len(there)} GPUs are known to have this minor number")
        addresses.add(there[0])
    return frozenset(addresses)


def _order(gres: GresConf, report: Report) -> list[int]:
    """The minor numbers of the GPUs in Slurm's order."""
    records = gres.gpus
    if not records and gres.detection.on:
        _refuse_instances(report)
        return _detected(report.node.gpus)
    if not records or gres.detection.on or any(record.multiple or not record.files for record in records):
        raise GpusUnknownError(f"{gres.file.path} does not list the GPUs of this node one by one")
    # slurmctld brings records of several types into its own order.
    if len({record.type for record in records}) > 1:
        raise GpusUnknownError(f"{gres.file.path} lists GPUs of several types")
    found = [_FILE.fullmatch(path) for record in records for path in record.files]
    minors = [int(match[1]) for match in found if match is not None]
    if len(minors) != len(found) or minors != sorted(set(minors)):
        raise GpusUnknownError(f"{gres.file.path} does not list files /dev/nvidiaN in ascending order")
    return minors


def _refuse_instances(report: Report) -> None:
    """AutoDetect counts the instances of a divided GPU one by one, and passes over one without any (gres.conf(5), AutoDetect)."""
    divided = next((result for result in report.results if result.check == INSTANCES), None)
    if divided is None or divided.status is not Status.SKIP:
        raise GpusUnknownError("slurmd looks for the GPUs itself, and it is not certain that none is divided by MIG")


def _detected(gpus: Sequence[NodeGpu]) -> list[int]:
    """Found by slurmd itself: by minor or by address, which must be the same (gres.conf(5), AutoDetect and Links)."""
    # Those of several types are counted in the order of Gres= in slurm.conf.
    if len({gpu.name for gpu in gpus if gpu.name is not None}) > 1:
        raise GpusUnknownError("slurmd looks for the GPUs itself, and they are of several types")
    minors = [gpu.minor for gpu in sorted(gpus, key=lambda gpu: gpu.address)]
    if minors != list(range(len(minors))):
        raise GpusUnknownError(
            "slurmd looks for the GPUs itself, and their minor numbers are not in the order of the bus"
        )
    return list(range(len(minors)))
