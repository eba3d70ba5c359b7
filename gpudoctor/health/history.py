"""What the memory holds of a node's past, schema `gpudoctor.history/1`: episodes, errors of GPUs boot by boot, counters.

Keys are never removed or given another meaning within `/1`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.health.answer import HARMLESS, State
from gpudoctor.health.counters import Counter
from gpudoctor.health.episodes import Episode
from gpudoctor.health.rows import BootRow, XidRow
from gpudoctor.health.store import Last, RunRow, Store
from gpudoctor.health.telling import instant
from gpudoctor.verdicts import Status

SCHEMA = "gpudoctor.history/1"
BUCKETS = 60
MOST_EPISODES = 500
MOST_RUNS = 100
GAP = 3.0
"""Passes that lie further apart than so many usual intervals leave a stretch between them in which nobody looked."""
UNSEEN = "unseen"
"""A stretch of time in which no pass looked."""
_RANK = {Status.WARN: 1, Status.UNKNOWN: 2, Status.FAIL: 3}


class Wish(Struct, frozen=True):
    """What is asked for; `since` in seconds since 1970, None for all."""

    checks: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    since: float | None = None

    def wants(self, episode: Episode) -> bool:
        """Whether an episode is asked for."""
        return (
            (not self.checks or episode.check in self.checks)
            and (not self.gpus or (episode.kind == "gpu" and episode.key in self.gpus))
            and (self.since is None or (episode.ended_at or episode.last_at) >= self.since)
        )


class Past(Struct, frozen=True):
    """One episode. `ended` is "" while it goes on; `how` says how it ended. A `blip` never counted."""

    finding: str
    check: str
    kind: str
    key: str
    status: Status
    state: State
    summary: str
    first: str
    last: str
    times: int
    ended: str = ""
    how: str = ""
    turns: int = 0
    boots: int = 1


class Row(Struct, frozen=True):
    """One check about one subject over time: in each bucket the worst status, `pass`, or `unseen` where no pass looked."""

    check: str
    kind: str
    key: str
    buckets: tuple[str, ...]
    episodes: int
    times: int
    last: str


class XidHistory(Struct, frozen=True):
    """How often a GPU or switch had an error. `boots` counts those in which it came; `escalates` with words where that asks for more."""

    gpu: str
    code: str
    area: str
    count: int
    boots: int
    first: str
    last: str
    this_boot: int
    says: str
    escalates: str = ""


class CounterHistory(Struct, frozen=True):
    """A counter that grew: by how much since it was first read, its highest rate an hour, and when it grew last."""

    subject: str
    counter: str
    value: float
    growth: float
    since: str
    peak_per_hour: float
    last_grown: str
    unit: str = ""


class Boot(Struct, frozen=True):
    """One boot, from its first pass to its last."""

    boot_id: str
    first: str
    last: str
    passes: int


class Run(Struct, frozen=True):
    """One pass; `note` tells of one before it that did not end."""

    number: int
    at: str
    seconds: float
    verdict: str
    exit_code: int
    changes: int
    note: str = ""


class History(Struct, frozen=True):
    """All of it. The buckets of `rows` are of equal length from `begin` to `end`; `more_episodes` counts those left out."""

    schema: str
    place: str
    begin: str
    end: str
    passes: int
    rows: tuple[Row, ...] = ()
    episodes: tuple[Past, ...] = ()
    more_episodes: int = 0
    xids: tuple[XidHistory, ...] = ()
    counters: tuple[CounterHistory, ...] = ()
    boots: tuple[Boot, ...] = ()
    runs: tuple[Run, ...] = ()


def history_of(store: Store, wish: Wish) -> History:
    """What is remembered of what is asked for. Raises CannotKeepError where nothing can be read."""
    last = store.past().last
    boots = sorted(store.rows(BootRow, "boots"), key=lambda boot: boot.id)
    runs = sorted(store.rows(RunRow, "runs"), key=lambda run: run.number)
    episodes = [one for one in store.rows(Episode, "episodes") if wish.wants(one)]
    episodes.sort(key=lambda one: (one.ended_at is not None, -one.last_at, one.finding))
    # A clock that was set back has put later passes before earlier ones.
    moments = [last.at, *(at for boot in boots for at in (boot.first_at, boot.last_at)), *(run.at for run in runs)]
    begin = max(min(moments), wish.since) if wish.since is not None else min(moments)
    end = max(*moments, begin)
    span = _Span(begin, end, boots, runs)
    return History(
        schema=SCHEMA,
        place=str(store.path.parent),
        begin=instant(begin),
        end=instant(end),
        passes=last.number,
        rows=tuple(_rows(episodes, span)),
        episodes=tuple(map(_past, episodes[:MOST_EPISODES])),
        more_episodes=max(0, len(episodes) - MOST_EPISODES),
        xids=tuple(_xids(store.rows(XidRow, "xids"), last, wish)),
        counters=tuple(_counters(store.rows(Counter, "counters"), wish)),
        boots=tuple(Boot(one.boot_id, instant(one.first_at), instant(one.last_at), one.passes) for one in boots),
        runs=tuple(
            Run(one.number, instant(one.at), one.seconds, one.verdict, one.exit_code, one.changes, one.note)
            for one in runs[-MOST_RUNS:]
        ),
    )


class _Span:
    """A stretch of time in buckets, and in which of them passes looked."""

    def __init__(self, begin: float, end: float, boots: Sequence[BootRow], runs: Sequence[RunRow]) -> None:
        self._begin = begin
        self._length = max(end - begin, 1.0) / BUCKETS
        self._looked = {self.bucket(run.at) for run in runs}
        pairs = [(one, two) for one, two in pairwise(runs) if one.boot == two.boot]
        gaps = sorted(two.at - one.at for one, two in pairs)
        usual = GAP * gaps[len(gaps) // 2] if gaps else 0.0
        for one, two in pairs:
            if two.at - one.at <= usual:
                self._looked.update(range(self.bucket(one.at), self.bucket(two.at) + 1))
        # Of passes longer ago than runs are kept it is known only in which boots they were.
        oldest = runs[0].at if runs else end
        for boot in boots:
            if boot.first_at < oldest:
                self._looked.update(range(self.bucket(boot.first_at), self.bucket(min(boot.last_at, oldest)) + 1))

    def bucket(self, at: float) -> int:
        """The bucket of a moment, the nearest one for one outside."""
        return min(BUCKETS - 1, max(0, int((at - self._begin) / self._length)))

    def of(self, episodes: Iterable[Episode]) -> tuple[str, ...]:
        """The worst status in each bucket."""
        worst: dict[int, Status] = {}
        for one in episodes:
            until = one.last_at if one.ended_at is None else max(one.last_at, one.first_at)
            if until < self._begin:
                continue
            for bucket in range(self.bucket(one.first_at), self.bucket(until) + 1):
                worst[bucket] = max(worst.get(bucket, one.worst), one.worst, key=_RANK.__getitem__)
        return tuple(
            worst[bucket].value if bucket in worst else Status.PASS.value if bucket in self._looked else UNSEEN
            for bucket in range(BUCKETS)
        )


def _rows(episodes: Iterable[Episode], span: _Span) -> list[Row]:
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for one in episodes:
        groups.setdefault((one.check, one.kind, one.key), []).append(one)
    return [
        Row(
            *names,
            buckets=span.of(group),
            episodes=len(group),
            times=sum(one.times for one in group),
            last=instant(max(one.last_at for one in group)),
        )
        for names, group in sorted(groups.items())
    ]


def _past(one: Episode) -> Past:
    return Past(
        finding=one.finding,
        check=one.check,
        kind=one.kind,
        key=one.key,
        status=one.worst,
        state=State.UNSEEN if one.unseen and one.ended_at is None else one.state,
        summary=one.summary,
        first=instant(one.first_at),
        last=instant(one.last_at),
        times=one.times,
        ended=instant(one.ended_at) if one.ended_at is not None else "",
        how=one.ended,
        turns=one.turns,
        boots=one.boots,
    )


def _xids(rows: Iterable[XidRow], last: Last, wish: Wish) -> list[XidHistory]:
    groups: dict[tuple[str, str], list[XidRow]] = {}
    for row in rows:
        if (not wish.gpus or row.gpu in wish.gpus) and (wish.since is None or row.last_at >= wish.since):
            groups.setdefault((row.gpu, row.code), []).append(row)
    return [_xid(group, last) for _, group in sorted(groups.items())] if not wish.checks else []


def _xid(rows: Sequence[XidRow], last: Last) -> XidHistory:
    boots = {row.boot for row in rows}
    newest = max(rows, key=lambda row: row.last_at)
    return XidHistory(
        gpu=newest.gpu,
        code=newest.code,
        area=newest.area,
        count=sum(row.count for row in rows),
        boots=len(boots),
        first=instant(min(row.first_at for row in rows)),
        last=instant(newest.last_at),
        this_boot=sum(row.count for row in rows if row.boot == last.boot),
        says=newest.says,
        escalates=_escalation(newest, boots),
    )


def _escalation(row: XidRow, boots: set[int]) -> str:
    """An error of the machine's own that a reboot did not end is not one that the next reboot ends."""
    if row.area in HARMLESS or len(boots) < 2:
        return ""
    return f"came in {len(boots)} boots: rebooting does not help, so look at the hardware or ask its vendor"


def _counters(rows: Iterable[Counter], wish: Wish) -> list[CounterHistory]:
    if wish.checks:
        return []
    wanted: Mapping[str, None] = dict.fromkeys(f"gpu:{address}" for address in wish.gpus)
    grown = [
        one
        for one in rows
        if one.total > 0
        and (not wanted or one.subject in wanted)
        and (wish.since is None or one.grown_at >= wish.since)
    ]
    return [
        CounterHistory(
            one.subject,
            one.counter,
            one.value,
            one.total,
            instant(one.since),
            one.peak,
            instant(one.grown_at),
            one.unit,
        )
        for one in sorted(grown, key=lambda one: (one.subject, one.counter))
    ]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a history, generated from these records."""
    schema = msgspec.json.schema(History)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
