"""Since when a root cause is there, as far as anything tells, and what changed around then: in time, which is no word on the cause."""

from collections.abc import Sequence

from gpudoctor.chain import Link
from gpudoctor.detailing.since_loads import Begin, by_device_programs, by_loads
from gpudoctor.detailing.timeline_changes import OTHERS, STILL_RUNS, WRITTEN, family
from gpudoctor.details import Event, EventKind, Since
from gpudoctor.facts.clock import NodeClock, in_utc, instant, roughly, seconds_of
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.log_moments import moment, since_boot
from gpudoctor.facts.package_logs import VERBS
from gpudoctor.facts.tasks import HUNG_TASK
from gpudoctor.patterns import pattern
from gpudoctor.report import Report, RootCause
from gpudoctor.verdicts import Evidence, SubjectKind, Unread

BEFORE, AFTER = 24 * 3600.0, 3600.0
"""Seconds before and after a beginning within which something was around then."""
MOST_AROUND = 5
STARTING = 600.0
"""Seconds within which a node has started its driver and its services."""
EARLY = 60.0
"""So many seconds after its first message a kernel still finds its devices: what it says of them then was so at the boot."""

_ERRORS = (EventKind.XID, EventKind.SXID, EventKind.DRIVER, EventKind.PCIE, EventKind.KERNEL)
_OF_BOOT = (EventKind.BOOT, EventKind.MODULE)

_BUS = frozenset((EventKind.BOOT, EventKind.MODULE, EventKind.PCIE, EventKind.XID, EventKind.PACKAGE))
_DRIVER = _BUS | {EventKind.DRIVER, EventKind.CONFIGURATION}
_CONTAINERS = frozenset(
    (EventKind.BOOT, EventKind.MODULE, EventKind.PACKAGE, EventKind.CONFIGURATION, EventKind.SERVICE)
)
_MATTERS: dict[Link, frozenset[EventKind]] = {
    Link.PCIE: _BUS,
    Link.KERNEL_MODULE: _DRIVER,
    Link.DEVICE_NODES: _DRIVER,
    Link.DRIVER_CUDA: _DRIVER,
    Link.FABRIC: _DRIVER | {EventKind.SXID, EventKind.SERVICE},
    Link.SHARING: _DRIVER | {EventKind.SERVICE},
    Link.TOOLKIT: _CONTAINERS,
    Link.CGROUP: _CONTAINERS,
    Link.DEVICE_PLUGIN: _CONTAINERS | {EventKind.XID},
    Link.CUDA_INIT: _DRIVER,
    Link.WORKLOAD: _CONTAINERS | {EventKind.XID},
    Link.TOPOLOGY: _BUS,
    Link.HEALTH: _DRIVER | {EventKind.SXID},
    Link.STARTUP: _CONTAINERS,
}
"""Which kinds of events could have to do with a cause of each link. For the bus and the driver, packages of engines could not."""
_BELOW_ENGINES = frozenset(
    (Link.PCIE, Link.KERNEL_MODULE, Link.DEVICE_NODES, Link.DRIVER_CUDA, Link.TOPOLOGY, Link.HEALTH)
)
_ADDRESS = pattern(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_STACK = pattern(r"/proc/\d+/stack$")
_OF_FILES: dict[str, tuple[str, ...]] = {
    "device-plugin.checkpoint-sound": ("unreadable", "checksum"),
    "kernel-module.parameters-applied": (),
    "sharing.slurm-constrained": (),
    "sharing.slurm-gres-sound": (),
    "toolkit.cdi-specs-load": ("does not load",),
    "toolkit.containerd-config": (),
    "toolkit.containerd-loaded": ("not-loaded", "changed-since"),
    "toolkit.docker-loaded": ("not-loaded", "changed-since"),
    "toolkit.docker-runtime": ("syntax", "default-undefined"),
    "toolkit.runtime-config": ("syntax", "type"),
}
"""Checks of what files say, with the causes of those that ask other things too. Others cite a file beside something that may have come
later: a new driver that a CDI spec is not of, a package that is gone, a GPU that is lost."""
_WELL = ("Cable plugged", "Link up")
_COMES_UP = ("Started ", "Starting ", "Finished ")
_OF_MODULES = ("/etc/modprobe.d/", "/etc/default/grub")


def since(desk: Desk, report: Report, events: tuple[Event, ...]) -> tuple[Since, ...]:
    """When each root cause began, or why that is not known."""
    return tuple(_since(desk, report, number, events) for number in range(len(report.root_causes)))


def _since(desk: Desk, report: Report, number: int, events: Sequence[Event]) -> Since:
    cause = report.root_causes[number]
    cited = [place for place, event in enumerate(events) if not set(cause.findings).isdisjoint(event.findings)]
    begin = (
        _by_errors(desk, cause, cited, events)
        or _by_kind(cited, events, EventKind.SERVICE, "the first line of a journal that it cites")
        or by_loads(desk, report, cause, events)
        or by_device_programs(desk, cause)
        or _by_kind(cited, events, EventKind.PACKAGE, "packages were changed then; that change is cited")
        or _by_file(report, cause, cited, events)
        or _by_module(cause, cited, events)
        or _by_own_times(desk, report, cause)
        or _by_what_follows(cause, events)
        or _by_hung_tasks(report, cause, events)
        or Begin("", f"not known: {_why(desk)}{_youngest(cited, events)}")
    )
    evidence = begin.evidence if begin.place is None else (_evidence(events[begin.place]),)
    return Since(number, begin.at, begin.how, _around(cause, begin, events), evidence)


def _by_errors(desk: Desk, cause: RootCause, cited: Sequence[int], events: Sequence[Event]) -> Begin | None:
    """By the first error in the kernel log that its findings cite; of an Xid, by the first one of the same GPU and number.

    An earlier error about what follows from it says more: it cannot have begun later.
    """
    place = next((place for place in cited if events[place].kind in _ERRORS and not _well(events[place].says)), None)
    if place is None:
        return None
    event = events[place]
    follows = _by_what_follows(cause, events)
    if follows is not None and follows.place is not None and follows.place < place:
        before = events[follows.place]
        if (before.gpu, before.previous_boot) == (event.gpu, event.previous_boot) and not _same_xid(before, event):
            return follows
    place = next(number for number, one in enumerate(events) if _same_error(one, event))
    event = events[place]
    seconds = since_boot(event.stamp) if event.stamp and not event.previous_boot else None
    log = desk.get(KernelLog)
    lost = (
        "" if event.previous_boot or not isinstance(log, KernelLog) or log.from_boot else ", which has lost older ones"
    )
    if seconds is not None and seconds <= EARLY and event.kind is EventKind.PCIE:
        return Begin(event.at, f"at boot or before it: the kernel said so {seconds:.0f} s after its start", place)
    of = "the boot before" if event.previous_boot else "the kernel log"
    when = (
        "" if event.at else f", with the time {event.stamp!r}, {_untimed(event)}" if event.stamp else ", without a time"
    )
    return Begin(event.at, f"the first message about it in {of}{lost}{when}", place)


def _well(says: str) -> bool:
    """Whether a line that a finding cites tells of something that is as it should be, and so of no beginning."""
    return says.endswith(_WELL) or says.removeprefix("systemd[1]: ").startswith(_COMES_UP)


def _same_error(one: Event, other: Event) -> bool:
    """Whether two messages are of one error: an Xid by its number, another by its words."""
    if other.kind is EventKind.XID:
        return _same_xid(one, other)
    told = (other.kind, other.gpu, other.previous_boot, other.says)
    return (one.kind, one.gpu, one.previous_boot, one.says) == told


def _same_xid(one: Event, other: Event) -> bool:
    return (one.kind, one.gpu, one.previous_boot, one.says.partition(",")[0]) == (
        other.kind,
        other.gpu,
        other.previous_boot,
        other.says.partition(",")[0],
    )


def _untimed(event: Event) -> str:
    """Why a stamp is no moment."""
    return (
        "counted from a boot of an unknown time, or by a clock that stood still while the node slept"
        if since_boot(event.stamp) is not None
        else "of an unknown zone or year"
    )


def _by_kind(cited: Sequence[int], events: Sequence[Event], kind: EventKind, how: str) -> Begin | None:
    """By the first event of a kind that its findings cite."""
    telling = (place for place in cited if events[place].kind is kind and not _well(events[place].says))
    place = next((place for place in telling if not events[place].says.endswith(WRITTEN)), None)
    if place is None:
        return None
    event = events[place]
    if kind is EventKind.SERVICE and event.count > 1:
        how = f"the first of {event.count} like lines of a journal that it cites"
    when = "" if event.at else f" ({event.stamp!r}, {_untimed(event)})"
    return Begin(event.at, how + when, place)


def _by_file(report: Report, cause: RootCause, cited: Sequence[int], events: Sequence[Event]) -> Begin | None:
    """By the time of the file that is wrong, and of nothing else: it cannot have said so earlier.

    A copy that keeps its times, as those out of packages do, came later (dpkg, cp -p); a time behind the report's is of a wrong clock.
    """
    causes = _OF_FILES.get(cause.check)
    if causes is None or (causes and {report.finding(one).cause for one in cause.findings}.isdisjoint(causes)):
        return None
    subjects = {subject.key for subject in cause.subjects if subject.kind is SubjectKind.FILE}
    wrong = [place for place, event in enumerate(events) if event.where in subjects] if subjects else cited
    own = [place for place in wrong if events[place].says.endswith(WRITTEN)]
    if not own or not "" < events[own[-1]].at <= report.started_at:
        return None
    how = f"then at the earliest: {events[own[-1]].where} {WRITTEN}, and says so since"
    return Begin(events[own[-1]].at, how, own[-1])


def _youngest(cited: Sequence[int], events: Sequence[Event]) -> str:
    """The youngest file that is cited: something else may have come later that made it wrong."""
    found = [events[place] for place in cited if events[place].says.endswith(WRITTEN) and events[place].at]
    if not found:
        return ""
    when = found[-1].at.replace("T", " ").replace("Z", " UTC")
    return f"; {found[-1].where}, which it cites, was written last at {when}"


def _by_module(cause: RootCause, cited: Sequence[int], events: Sequence[Event]) -> Begin | None:
    """By what the kernel said of a driver that came or went: one that is cited, or a rival by its name, of one of its GPUs."""
    gpus = {subject.key for subject in cause.subjects if subject.kind is SubjectKind.GPU}
    rivals = [
        place
        for place, event in enumerate(events)
        if event.kind is EventKind.MODULE and event.gpu in gpus and event.says.split()[0] in cause.summary
    ]
    place = next((place for place in (*cited, *rivals) if events[place].kind in _OF_BOOT), None)
    if place is None:
        return None
    event = events[place]
    seconds = since_boot(event.stamp) if event.stamp else None
    if seconds is not None and seconds <= EARLY:
        return Begin(event.at, f"since boot: the kernel said so {seconds:.0f} s after its start", place)
    return Begin(event.at, "the first message about it in the kernel log", place)


def _by_own_times(desk: Desk, report: Report, cause: RootCause) -> Begin | None:
    """By the earliest time that its evidence has itself, such as that of a scheduler's or an engine's own words."""
    clock = desk.get(NodeClock)
    zone = clock.zone if isinstance(clock, NodeClock) else None
    timed = [
        (moment, seen)
        for finding in cause.findings
        for seen in report.finding(finding).evidence
        if seen.at is not None and not _well(seen.shows)
        if since_boot(seen.at) is None and (moment := instant(seen.at, zone=zone)) is not None
    ]
    if not timed:
        return None
    moment, seen = min(timed, key=lambda one: one[0])
    return Begin(in_utc(moment), f"the first time that its evidence names ({seen.where})", evidence=(seen,))


def _by_what_follows(cause: RootCause, events: Sequence[Event]) -> Begin | None:
    """By the first error about what follows from it: it cannot have begun later."""
    follows = set(cause.consequence_ids)
    for place, event in enumerate(events):
        if event.kind in _ERRORS and not follows.isdisjoint(event.findings):
            when = "" if event.at else f" ({event.stamp!r}, {_untimed(event)})"
            return Begin(
                event.at, f"then at the latest: the kernel's first message about what follows from it{when}", place
            )
    return None


def _by_hung_tasks(report: Report, cause: RootCause, events: Sequence[Event]) -> Begin | None:
    """Of something that hangs in the driver, by the first task that the kernel has called hung there (kernel/hung_task.c)."""
    seen = (one for finding in cause.findings for one in report.finding(finding).evidence)
    if not any(_STACK.match(one.where) and " in state D" in one.shows for one in seen):
        return None
    hung = [
        place
        for place, event in enumerate(events)
        if event.kind is EventKind.KERNEL and not event.previous_boot and HUNG_TASK.search(event.says)
    ]
    last = {place: seconds_of(events[place].until or events[place].at) or 0.0 for place in hung}
    lasting = [place for place in hung if last[place] >= max(last.values()) - STARTING]  # others may have gone on since
    if not lasting:
        return None
    event = events[lasting[0]]
    when = "" if event.at else f", with the time {event.stamp!r}, {_untimed(event)}"
    how = f"the kernel's first message about a task that hangs in the driver{when}"
    return Begin(event.at, how, lasting[0])


def _why(desk: Desk) -> str:
    """Why nothing tells."""
    log = desk.get(KernelLog)
    told = "what it cites tells what is, not since when"
    if isinstance(log, Unread):
        return f"{told}, and the kernel log was not read ({log.detail})"
    return told if log.from_boot else f"{told}, and the kernel log does not reach back to the boot"


def _evidence(event: Event) -> Evidence:
    return Evidence(event.where, event.says, at=event.stamp or event.at or None)


def _around(cause: RootCause, begin: Begin, events: Sequence[Event]) -> tuple[int, ...]:
    """The places of events that lie around a beginning: changes first, the nearest first."""
    if begin.place is None and not begin.at:
        return ()
    own = {*cause.findings, *cause.consequence_ids}
    told = events[begin.place] if begin.place is not None else Event(begin.at, EventKind.SERVICE, "", "")
    boots = [
        moment for event in events if event.kind is EventKind.BOOT and (moment := seconds_of(event.at)) is not None
    ]
    near: list[tuple[bool, float, int]] = []
    for place, event in enumerate(events):
        if place == begin.place or _is_of(event, told) or _belongs(event, own) or not _matters(cause, event):
            continue
        if _comes_with_a_boot(event, boots):
            continue
        apart = _apart(event, told)
        if apart is not None and -BEFORE <= apart <= AFTER:
            near.append((event.kind in _ERRORS, abs(apart), place))
    return tuple(place for _, _, place in sorted(near)[:MOST_AROUND])


def _belongs(event: Event, own: set[str]) -> bool:
    """Whether an event is the cause itself, or what follows from it."""
    return event.kind in _ERRORS and not own.isdisjoint(event.findings)


def _comes_with_a_boot(event: Event, boots: Sequence[float]) -> bool:
    """Whether an event is a part of a start, of the node or of the driver, which is told already."""
    if event.says.startswith("nvidia-uvm: Loaded"):
        return True
    at = seconds_of(event.at)
    begins = event.says.startswith("NVRM: loading ") or event.says.endswith(STILL_RUNS)
    return begins and at is not None and any(0 <= at - boot <= STARTING for boot in boots)


def _is_of(event: Event, told: Event) -> bool:
    """Whether an event is of that which tells of a beginning: the same error, the same words of another device, or of one journal."""
    if event.kind is not told.kind:
        return False
    alike = _ADDRESS.sub("*", event.says) == _ADDRESS.sub("*", told.says)
    return (
        alike
        or (event.kind is EventKind.XID and _same_xid(event, told))
        or (event.kind is EventKind.SERVICE and event.where == told.where)
    )


def _apart(event: Event, told: Event) -> float | None:
    """Seconds from one event to another, negative before it. A log's times can be compared with each other whatever their zone.

    For this alone a local time of an unknown zone is taken as UTC: it is told as it stands, and half a day more or less is still around.
    """
    one, other = seconds_of(event.at), seconds_of(told.at)
    if (one is None or other is None) and event.where == told.where:
        one, other = moment(event.stamp), moment(told.stamp)
    else:
        one = roughly(event.stamp, None) if one is None else one
        other = roughly(told.stamp, None) if other is None else other
    return None if one is None or other is None else one - other


def _matters(cause: RootCause, event: Event) -> bool:
    """Whether an event could have to do with a cause: by its kind; one about another GPU could not."""
    if event.kind not in _MATTERS[cause.link]:
        return False
    gpus = {subject.key for subject in cause.subjects if subject.kind is SubjectKind.GPU}
    if event.gpu and gpus and event.gpu not in gpus:
        return False
    if cause.link in _BELOW_ENGINES:
        if event.kind is EventKind.PACKAGE:
            return not _of_engines(event)
        if event.kind is EventKind.CONFIGURATION:
            return event.where.startswith(_OF_MODULES)
    return True


def _of_engines(event: Event) -> bool:
    """Whether a change of packages was of engines and services alone."""
    verb, _, rest = event.says.partition(" ")
    package = rest.split(" ", 1)[0].rstrip(",")
    if package.isdecimal():
        return f" packages of {OTHERS}" in rest
    return verb in VERBS and family(package) == OTHERS
