"""What else of a node bears on a container that did not start: looked up only where a journal tells of such a failure.

Sources: linux mm/oom_kill.c (dump_oom_summary: "oom-kill:constraint=…,oom_memcg=…,task=…"; __oom_kill_process: "… out of memory: Killed
process"), fs/exec.c (of fexecve a process is named by its descriptor, since 6.14 by its file); libnvidia-container src/nvc_ldcache.c
("nvc:[ldconfig]" until the host's ldconfig is executed), src/nvc_mount.c, mount_procfs_gpu (a domain of 8 digits is tried first, then its
last 4, which the error names); NVIDIA's Xid catalogue (13, 31, 43 and 45 are a program's own).
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import GPUS, DriverGpu, DriverGpus, hidden_gpus
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.persistence import PersistenceDaemon
from gpudoctor.facts.raw import Absent, Entry, Listing
from gpudoctor.facts.software import LIBNVIDIA_CONTAINER, RUNC, TOOLKIT, Software, Version
from gpudoctor.facts.xid_lines import XidLine, find
from gpudoctor.knowledge.start_errors import (
    CONTAINER_OUT_OF_MEMORY,
    GPU_BACK,
    OUT_OF_MEMORY,
    PERSISTENT,
    UNLISTED_GPU,
    Beside,
    StartError,
)
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

NEAR = 60.0
"""Seconds between the kernel's line and the engine's that tell of one death."""

MOST_NAMED = 4
"""Of the GPUs that there are as many are named."""

_LDCONFIG = r"(ldconfig(?:\.real)?|nvc:\[ldconfig\]|\d{1,3})"
_SUMMARY = pattern(rf"oom-kill:constraint=(\w+),(?:.*?oom_memcg=([^,]*),)?.*\btask={_LDCONFIG},pid=")
_KILLED = pattern(rf"([Mm]emory cgroup o|O)ut of memory[^:]*: Kill(?:ed)? process \d+,?.* \({_LDCONFIG}\)")
# A control group of one container or pod: the node's own, such as kubepods.slice and docker.service, have no such name.
_OF_CONTAINER = pattern(r"[0-9a-f]{64}|pod[0-9a-f]{8}[-_]")
_OF_PROGRAMS = (13, 31, 43, 45)


class Told(Struct, frozen=True):
    """A line of a journal: what its sentence names, and when it was said, in seconds since the epoch."""

    message: str
    detail: str
    at: float | None


class Circumstance(Struct, frozen=True):
    """Something that bears on a failure, in words that may be empty; `instead` is the error that it shows the failure to be.

    `unread` is what could not be read and would tell whose fault it is.
    """

    words: str = ""
    evidence: Cited = ()
    instead: StartError | None = None
    unread: Unread | None = None


def look(desk: Desk, beside: Beside, told: Told) -> Circumstance | None:
    """What one thing beside a failure says; None for nothing, and where it is not known."""
    return _LOOK[beside](desk, told)


# Memory -------------------------------------------------------------------------------------------------------------


def _memory(desk: Desk, told: Told) -> Circumstance | None:
    if "signal 9" not in told.message:
        return None
    log = desk.get(KernelLog)
    if isinstance(log, Unread):
        words = "whether memory was short is not known, the kernel log was not read"
        # A recording that holds a journal and no kernel log has the journal's word only.
        return Circumstance(words, unread=None if log.why is Why.NOT_RECORDED else log)
    booted = booted_at(desk.raw)
    summaries = [line for line in log.lines(_SUMMARY, "oom-kill:") if _near(line, told, booted)]
    killed = [line for line in log.lines(_KILLED, "ut of memory") if _near(line, told, booted)]
    evidence = (*summaries[-1:], *killed[-1:])
    if not evidence:
        return None
    place = _limit(evidence[0].shows)
    error = CONTAINER_OUT_OF_MEMORY if _OF_CONTAINER.search(place) else OUT_OF_MEMORY
    return Circumstance(f"{place} was used up", evidence, error)


def _limit(line: str) -> str:
    """Whose memory was used up."""
    summary = _SUMMARY.search(line)
    if summary is not None and summary[2]:
        return f"the limit of the control group {summary[2]}"
    if line.casefold().startswith("memory cgroup") or (summary is not None and summary[1] == "CONSTRAINT_MEMCG"):
        return "the limit of a control group"
    return "the memory of the node"


def _near(line: Evidence, told: Told, booted: int | None) -> bool:
    """Whether it is of that time. Where times cannot be compared a process that bears ldconfig's name will do, a number will not."""
    moment = _moment(line.at, booted)
    if moment is not None and told.at is not None:
        return abs(moment - told.at) <= NEAR
    return "ldconfig" in line.shows.rpartition("task=")[2]


def _moment(at: str | None, booted: int | None) -> float | None:
    """Seconds since the epoch; of the date that dmesg -T prints the zone is not known."""
    try:
        return booted + float(at) if at is not None and booted is not None else None
    except ValueError:
        return None


# GPUs ---------------------------------------------------------------------------------------------------------------


def _gpus(desk: Desk, told: Told) -> Circumstance | None:
    known = dict(_identities(desk, migs=told.detail.startswith("MIG-")))
    if told.detail in known:
        return Circumstance("it is there now", (known[told.detail],), GPU_BACK)
    if (hidden := hidden_gpus(desk.get(DriverGpus))) is not None:
        return Circumstance(f"whether it is there now is not known ({hidden.where}: {hidden.detail})")
    if not known:
        return None
    named, more = list(known)[:MOST_NAMED], len(known) - MOST_NAMED
    words = f"there is {' and '.join(named)}" if len(named) < 3 else f"there are {', '.join(named)}"
    return Circumstance(words + (f" and {more} more" if more > 0 else ""), tuple(known[name] for name in named))


def _identities(desk: Desk, *, migs: bool) -> Iterator[tuple[str, Evidence]]:
    """The UUIDs that the driver lists in /proc; NVML is asked for those of MIG devices, and where the driver has not all of them."""
    driver = desk.get(DriverGpus)
    listed = [] if isinstance(driver, Unread) else [gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu)]
    for gpu in listed:
        if gpu.uuid is not None and not migs:
            yield gpu.uuid, Evidence(f"{GPUS}/{gpu.address}/information", f"GPU UUID: {gpu.uuid}")
    if listed and all(gpu.uuid is not None for gpu in listed) and hidden_gpus(driver) is None and not migs:
        return
    nvml = desk.get(Nvml)
    for device in () if isinstance(nvml, Unread) else nvml.devices:
        uuids = [mig.uuid for mig in device.mig_devices] if migs else [device.uuid]
        for uuid in uuids:
            if uuid is not None:
                yield uuid, Evidence(f"{device.via} ({device.address or device.index})", f"uuid: {uuid}")


def _listed(desk: Desk, told: Told) -> Circumstance | None:
    listing = desk.raw.listing(GPUS)
    if not isinstance(listing, Listing):
        return None
    longer = next((name for name in listing.names if name.endswith(told.detail) and name != told.detail), None)
    if longer is not None:
        return Circumstance(f"the driver lists it as {longer}", (Evidence(f"{GPUS}/{longer}", "exists"),))
    if told.detail in listing.names:
        return Circumstance("the driver lists it now", (Evidence(f"{GPUS}/{told.detail}", "exists"),), UNLISTED_GPU)
    seen = Evidence(GPUS, f"lists {', '.join(listing.names) or 'none'}")
    return Circumstance("", (seen,), UNLISTED_GPU) if listing.complete else None


# The driver's start -------------------------------------------------------------------------------------------------


def _persistence(desk: Desk, _told: Told) -> Circumstance | None:
    nvml = desk.get(Nvml)
    devices = () if isinstance(nvml, Unread) else nvml.devices
    asked = [device for device in devices if isinstance(device.field("persistence_mode"), bool)]
    off = [device for device in asked if device.field("persistence_mode") is False]
    if off:
        words = f"persistence mode is off on {len(off)} of {len(asked)} GPUs, so that each start initialises them"
        return Circumstance(words, (off[0].evidence("persistence_mode"),))
    if asked:
        return Circumstance("although persistence mode is on", (asked[0].evidence("persistence_mode"),), PERSISTENT)
    daemon = desk.get(PersistenceDaemon)
    if isinstance(daemon, Unread) or isinstance(daemon.running, Unread):
        return None
    if not daemon.enabled:
        return Circumstance("nvidia-persistenced is not enabled", daemon.cite("enabled"))
    return Circumstance("" if daemon.running else "nvidia-persistenced does not run", daemon.cite("running"))


def _xids(desk: Desk, _told: Told) -> Circumstance | None:
    log = desk.get(KernelLog)
    if isinstance(log, Unread):
        return None
    told = [line for line in find(log.text) if isinstance(line, XidLine) and line.code not in _OF_PROGRAMS]
    if not told:
        return None
    numbers = dict.fromkeys(str(line.code) for line in told)
    evidence = tuple(Evidence(log.where, line.message, line.at or None) for line in told[-3:])
    return Circumstance(f"the kernel log tells of Xid {', '.join(numbers)}", evidence)


# Programs -----------------------------------------------------------------------------------------------------------


def _versions(desk: Desk, _told: Told) -> Circumstance | None:
    software = desk.get(Software)
    if isinstance(software, Unread):
        return None
    found = [software.of(product) for product in (LIBNVIDIA_CONTAINER, TOOLKIT, RUNC)]
    known = [version for version in found if isinstance(version, Version)]
    if not known:
        return None
    evidence = tuple(piece for version in known for piece in version.cite("version"))
    return Circumstance(f"installed: {', '.join(map(str, known))}", evidence)


def _program(desk: Desk, told: Told) -> Circumstance | None:
    entry = desk.raw.entry(told.detail, follow=True) if told.detail.startswith("/") else None
    if isinstance(entry, Entry):
        return Circumstance("it is there now", (Evidence(told.detail, "exists"),))
    return Circumstance("", (entry.evidence,)) if isinstance(entry, Absent) else None


_LOOK: Mapping[Beside, Callable[[Desk, Told], Circumstance | None]] = {
    Beside.MEMORY: _memory,
    Beside.GPUS: _gpus,
    Beside.LISTED: _listed,
    Beside.PERSISTENCE: _persistence,
    Beside.XIDS: _xids,
    Beside.VERSIONS: _versions,
    Beside.PROGRAM: _program,
}
