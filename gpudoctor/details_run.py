"""A run with its details: they are put together from facts that checks have read, and a few more."""

import datetime
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import asdict

from gpudoctor.config import Config
from gpudoctor.details import Details, Event, FullReport, GpuDetail, Since
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Raw
from gpudoctor.outcome import Outcome
from gpudoctor.registry import Registry
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.topo import Topo
from gpudoctor.verdicts import Unread, Why

if TYPE_CHECKING:
    from gpudoctor.detailing.workloads import Listed, Looking

PartT = TypeVar("PartT")
LIMITED = "the run was limited to some links or checks, and a trace stands on all of them"


def run_in_full(  # noqa: PLR0913 - what a run is made of
    raw: Raw,
    config: Config,
    registry: Registry,
    selection: Selection,
    now: datetime.datetime,
    durations: dict[str, float] | None = None,
    desk: Desk | None = None,
    active: int = 0,
    *,
    watch: Callable[[Outcome], None] | None = None,
) -> FullReport:
    """A run, and the details that belong to it.

    Workloads are looked at before the checks run, as `gpudoctor trace` does: a driver that hangs uses up the time of whoever comes
    after it. A run over some links or checks only traces none: what the others find is what a trace stands on.
    """
    desk = Desk(raw, config, time.monotonic) if desk is None else desk
    limited = bool(selection.links or selection.checks)
    looking = Unread(Why.NOT_ANSWERED, "", LIMITED) if limited else _tried(lambda: _look(desk))
    report = run(raw, config, registry, selection, now, durations, desk, active, watch=watch)
    return FullReport(**asdict(report), details=details_of(desk, report, looking))


def details_of(desk: Desk, report: Report, looking: "Looking | Unread | None" = None) -> Details:
    """The details that belong to a report over the same desk. `looking` is what was seen of workloads before the checks ran."""
    parts = _Parts()
    listed = parts.made("workloads", lambda: _workloads(desk, report, looking))
    parts.untold += [f"workloads: {words}" for words in (listed.untold if listed is not None else ())]
    events, more_events = parts.made("timeline", lambda: _timeline(desk, report)) or ((), 0)
    lacking = parts.made("timeline", lambda: _untold(desk, events)) or ()
    return Details(
        gpus=parts.made("gpus", lambda: _gpus(desk)) or (),
        workloads=listed.traced if listed is not None else (),
        more_workloads=listed.more if listed is not None else 0,
        timeline=events,
        more_events=more_events,
        since=parts.made("since", lambda: _since(desk, report, events)) or (),
        topology=parts.made("topology", lambda: _topology(desk, report)),
        untold=(*parts.untold, *lacking),
    )


class _Parts:
    """What became of each part: a bug in one costs that part, not the report."""

    def __init__(self) -> None:
        self.untold: list[str] = []

    def made(self, key: str, make: Callable[[], PartT | Unread]) -> PartT | None:
        """What `make` gives; where it gives none, the reason is kept under the part's key."""
        part = _tried(make)
        if not isinstance(part, Unread):
            return part
        self.untold.append(f"{key}: {': '.join(words for words in (part.where, part.detail) if words)}")
        return None


# Each maker is imported where its failure costs its own part only.


def _look(desk: Desk) -> "Looking | Unread":
    from gpudoctor.detailing.workloads import looked_at

    return looked_at(desk)


def _workloads(desk: Desk, report: Report, looking: "Looking | Unread | None") -> "Listed | Unread":
    from gpudoctor.detailing.workloads import listed

    return listed(desk, report, looking)


def _timeline(desk: Desk, report: Report) -> tuple[tuple[Event, ...], int] | Unread:
    from gpudoctor.detailing.timeline import timeline

    return timeline(desk, report)


def _untold(desk: Desk, events: tuple[Event, ...]) -> tuple[str, ...] | Unread:
    from gpudoctor.detailing.timeline import untold

    return untold(desk, events)


def _since(desk: Desk, report: Report, events: tuple[Event, ...]) -> tuple[Since, ...] | Unread:
    from gpudoctor.detailing.since import since

    return since(desk, report, events)


def _gpus(desk: Desk) -> tuple[GpuDetail, ...] | Unread:
    from gpudoctor.detailing.gpus import rows

    return rows(desk)


def _topology(desk: Desk, report: Report) -> Topo | Unread:
    from gpudoctor.detailing.topology import drawn

    return drawn(desk, report)


def _tried(make: Callable[[], PartT | Unread]) -> PartT | Unread:
    try:
        return make()
    # As of a check: a bug must cost this part, not the report.
    except Exception as error:
        return Unread(Why.CRASHED, "", f"gpudoctor failed: {type(error).__name__}: {error}")
