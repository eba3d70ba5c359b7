"""Beginnings that are loads: of a driver, by what a whole kernel log tells of this boot, and of programs that keep workloads from nodes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.details import Event, EventKind
from gpudoctor.facts.clock import LAST, in_utc
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.patterns import pattern
from gpudoctor.report import Report, RootCause
from gpudoctor.verdicts import Evidence

if TYPE_CHECKING:
    from gpudoctor.facts.device_programs import DeviceProgram
    from gpudoctor.facts.workload_access import Accesses

# Causes of kernel-module.gpu-bound by which no driver has the GPU, the nvidia module not being loaded.
_NOT_LOADED = frozenset(("module-blacklisted", "module-not-loaded", "no-module-for-kernel"))
# What a driver says that takes a GPU, nvidia by nvlink_linux.c and nv.c of open-gpu-kernel-modules.
_TAKES = pattern(
    r"NVRM: loading NVIDIA|nvidia-nvlink: Nvlink Core is being initialized|(?:nouveau|vfio-pci) [0-9a-f]{4,8}:[0-9a-f]{2}:"
)
_LOADS, _UNLOADS = "NVRM: loading NVIDIA", "nvidia-nvlink: Unregistered"


class Begin(Struct, frozen=True):
    """How a beginning is known: `place` is that of the event which tells, None where none does."""

    at: str
    how: str
    place: int | None = None
    evidence: tuple[Evidence, ...] = ()


def by_loads(desk: Desk, report: Report, cause: RootCause, events: Sequence[Event]) -> Begin | None:
    """By the boot, of GPUs that no driver took since; by the last time that the driver went, or came and was told to leave out a GPU."""
    log = desk.get(KernelLog)
    if not isinstance(log, KernelLog) or not log.from_boot:
        return None
    causes = {report.finding(one).cause for one in cause.findings}
    came = [place for place, event in enumerate(events) if _is_of_driver(event)]
    if cause.check == "kernel-module.gpu-not-excluded" and came and events[came[-1]].says.startswith(_LOADS):
        return _told(events, came[-1], "the driver was loaded then, and looks only then which GPUs it leaves out")
    if cause.check != "kernel-module.gpu-bound" or not causes <= _NOT_LOADED:
        return None
    if came and events[came[-1]].says.startswith(_UNLOADS):
        return _told(events, came[-1], "the driver was unloaded then, and the kernel log tells of no load since")
    boot = next((place for place, event in enumerate(events) if _is_boot(event)), None)
    if boot is None or _TAKES.search(log.text) is not None:
        return None
    return _told(events, boot, "since boot: the kernel log, of which nothing is lost, tells of no driver that took it")


def _told(events: Sequence[Event], place: int, how: str) -> Begin | None:
    """By one event; of several that are told as one it is not known which of them stands where."""
    event = events[place]
    return Begin(event.at, how, place) if event.at and event.count == 1 else None


def _is_boot(event: Event) -> bool:
    return event.kind is EventKind.BOOT and not event.previous_boot


def _is_of_driver(event: Event) -> bool:
    comes_or_goes = event.kind is EventKind.MODULE and event.says.startswith((_LOADS, _UNLOADS))
    return comes_or_goes and not event.previous_boot


def by_device_programs(desk: Desk, cause: RootCause) -> Begin | None:
    """By the first load of a program that denies a workload its nodes: it has done so since.

    At each daemon-reload systemd loads its own anew (src/core/bpf-devices.c): another may have denied them before.
    """
    if cause.check != "cgroup.device-rules":
        return None
    # Most nodes have no such cause.
    from gpudoctor.facts.workload_access import WorkloadAccess

    access = desk.known(WorkloadAccess)
    by_key = {} if access is None else access.by_key
    found = [one for subject in cause.subjects if subject.key in by_key for one in _denying(by_key[subject.key])]
    if not found:
        return None
    loaded, program, cgroup = min(found, key=lambda one: one[0])
    said = f"the device {program.words} was loaded"
    evidence = Evidence(f"bpf(2) on {cgroup}", said, at=in_utc(loaded))
    return Begin(in_utc(loaded), f"then at the latest: {said}, which denies it", evidence=(evidence,))


def _denying(accesses: "Accesses") -> "Iterator[tuple[float, DeviceProgram, str]]":
    """The programs that deny all that is denied, and when each was loaded: Slurm's denies a job the GPUs of others, as it should."""
    from gpudoctor.facts.device_rules import CgroupRules

    rules = accesses.rules
    if not isinstance(rules, CgroupRules) or not isinstance(rules.applied, tuple):
        return
    for applied in rules.applied:
        loaded = applied.program.loaded_at
        denies = all(rules.judge.allows(applied.program.id, one.asked) is False for one in accesses.denied)
        if denies and loaded is not None and 0 < loaded < LAST:
            yield float(loaded), applied.program, str(rules.place.unified)
