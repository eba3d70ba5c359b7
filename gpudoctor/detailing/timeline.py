"""One list of what happened on a node, oldest first: what the kernel said of GPUs, and what changed."""

import math
from collections.abc import Iterable, Sequence

from gpudoctor.detailing.drafts import Citations, Draft
from gpudoctor.detailing.timeline_changes import boots, files, packages, services, unread_logs
from gpudoctor.detailing.timeline_kernel import Known, kernel_drafts
from gpudoctor.details import Event, EventKind
from gpudoctor.facts.clock import LOCALTIME, NodeClock, instant, roughly, seconds_of, zone_named
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kernel_log import KernelLog, PreviousKernelLog
from gpudoctor.facts.log_moments import since_boot
from gpudoctor.facts.raw import SourceKind
from gpudoctor.patterns import pattern
from gpudoctor.report import Report
from gpudoctor.verdicts import Unread

MOST_EVENTS = 200
MOST_OF_HARDWARE = 120
"""Of errors that no finding cites as many are kept before any change is left out."""
HARDWARE = (EventKind.XID, EventKind.SXID, EventKind.DRIVER, EventKind.PCIE, EventKind.KERNEL)
"""What the kernel said of a fault."""
# What a kernel says before it sleeps (kernel/power/suspend.c, hibernate.c). The clock that stamps its messages stands still meanwhile
# (dmesg(1), --ctime).
_FALLS_ASLEEP = pattern(r"PM: (?:suspend|(?:hibernation: )?hibernation) entry")
_CHANGES = (EventKind.BOOT, EventKind.PACKAGE, EventKind.CONFIGURATION, EventKind.SERVICE, EventKind.MODULE)


def timeline(desk: Desk, report: Report) -> tuple[tuple[Event, ...], int]:
    """The events, oldest first, and how many more there are than are told."""
    citations = Citations(report)
    clock, log, previous = _clock(desk), desk.get(KernelLog), desk.get(PreviousKernelLog)
    before = previous if isinstance(previous, KernelLog) and previous.text.strip() else None
    # Of a bug report "now" is the reader's.
    now = None if desk.raw.kind is SourceKind.BUG_REPORT else seconds_of(report.started_at)
    known = Known.of(desk)
    began = list(boots(desk, clock, before))
    older, newer = [one for one in began if one.previous_boot], [one for one in began if not one.previous_boot]
    drafts: list[Draft] = []
    if before is not None:
        older += kernel_drafts(before, known, citations, previous=True)
        drafts += _timed_before(older, before, clock)
    if isinstance(log, KernelLog):
        newer += kernel_drafts(log, known, citations)
    drafts += _timed(newer, log if isinstance(log, KernelLog) else None, clock, now)
    drafts += packages(desk.raw, clock, now, citations)
    drafts += files(desk, citations)
    drafts += services(desk, clock, now, citations)
    kept = _most_telling(drafts)
    return tuple(draft.event for draft in sorted(kept, key=lambda one: one.order)), len(drafts) - len(kept)


def untold(desk: Desk, events: Sequence[Event]) -> tuple[str, ...]:
    """What a timeline lacks, and why: that nothing is told of a time does not mean that nothing happened."""
    clock, log, previous = _clock(desk), desk.get(KernelLog), desk.get(PreviousKernelLog)
    lacking = []
    if isinstance(log, Unread):
        lacking.append(f"what the kernel said since the boot: {log.where}: {log.detail}{_needed(log)}")
    elif not log.from_boot:
        lacking.append(f"what the kernel said first: {log.where} does not reach back to the boot")
    if isinstance(previous, Unread):
        lacking.append(f"what the kernel said before the last boot: {previous.detail}{_needed(previous)}")
    if packages_unread := unread_logs(desk.raw):
        lacking.append(f"which packages were changed: {packages_unread}")
    untimed = [event for event in events if event.stamp and not event.at]
    counted = [event for event in untimed if since_boot(event.stamp) is not None]
    if clock.booted is None and counted:
        lacking.append("when the boot began: times since boot stand as the log has them")
    elif any(not event.previous_boot for event in counted):
        lacking.append("for how long the node slept: times since boot stand as the log has them")
    if clock.zone is None and len(counted) < len(untimed):
        lacking.append(f"the zone of local times: {LOCALTIME} was not read; such times stand as the log has them")
    return tuple(f"timeline: {one}" for one in lacking)


def _needed(unread: Unread) -> str:
    return f" (would need {unread.would_need})" if unread.would_need else ""


def _clock(desk: Desk) -> NodeClock:
    clock = desk.get(NodeClock)
    return clock if isinstance(clock, NodeClock) else NodeClock(booted=None, zone=None)


def _timed(drafts: Sequence[Draft], log: KernelLog | None, clock: NodeClock, now: float | None) -> list[Draft]:
    """Events of this boot, in the order of its log. One without a certain moment stands behind those before it."""
    zone = (zone_named(log.timezone) if log is not None and log.timezone else None) or clock.zone
    begin = clock.booted
    within = (begin, now) if begin is not None and now is not None and begin <= now else None
    latest = begin if begin is not None else math.inf
    asleep = _fell_asleep(log)

    def told(stamp: str) -> float | None:
        awake = (since_boot(stamp) or 0.0) < asleep
        return instant(stamp, booted=begin if awake else None, zone=zone, within=within)

    for draft in drafts:
        if draft.moment is None:
            draft.moment, draft.last_moment = told(draft.stamp), told(draft.last)
        place = draft.moment if draft.moment is not None else roughly(draft.stamp, now)
        draft.order = latest if place is None else place
        if draft.moment is None and begin is not None:
            draft.order = max(draft.order, begin + (since_boot(draft.stamp) or 0.0))
        latest = draft.order if draft.order < math.inf else latest
    return list(drafts)


def _fell_asleep(log: KernelLog | None) -> float:
    """The seconds since boot from which on the kernel's own clock tells no moment, infinite where the node never slept."""
    if log is None:
        return math.inf
    said = (*log.lines(_FALLS_ASLEEP, "suspend entry"), *log.lines(_FALLS_ASLEEP, "hibernation entry"))
    return min((seconds for seen in said if (seconds := since_boot(seen.at or "")) is not None), default=math.inf)


def _timed_before(drafts: Sequence[Draft], log: KernelLog, clock: NodeClock) -> list[Draft]:
    """Events of the boot before: all of them before this boot's first. Seconds since that boot are of an unknown moment."""
    zone = (zone_named(log.timezone) if log.timezone else None) or clock.zone
    end = clock.booted
    within = (end - 366 * 86400, end) if end is not None else None
    latest = -math.inf if end is not None else math.inf
    for draft in drafts:
        draft.moment = instant(draft.stamp, zone=zone, within=within)
        draft.last_moment = instant(draft.last, zone=zone, within=within)
        place = draft.moment if draft.moment is not None else roughly(draft.stamp, end)
        if place is None:
            place = latest if latest > -math.inf else (end - 1 if end is not None else math.inf)
        draft.order = place if end is None or draft.moment is not None else min(place, end - 1)
        latest = draft.order
    return list(drafts)


def _most_telling(drafts: Sequence[Draft]) -> list[Draft]:
    """What alarms cite, then errors, then changes, of each the latest first."""
    if len(drafts) <= MOST_EVENTS:
        return list(drafts)
    latest = sorted(drafts, key=lambda one: -one.order)
    cited = [one for one in latest if one.alarming or one.alike == "this"]
    errors = [one for one in latest if not one.alarming and one.kind in HARDWARE]
    changed = [one for one in latest if one not in cited and one.kind in _CHANGES]
    return _first((*cited, *errors[:MOST_OF_HARDWARE], *changed, *errors[MOST_OF_HARDWARE:]))


def _first(drafts: Iterable[Draft]) -> list[Draft]:
    return list(drafts)[:MOST_EVENTS]
