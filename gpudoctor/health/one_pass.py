"""One pass: a run of the engine over a source, held against what is remembered of the passes before."""

import datetime
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import NAME, PREVIOUS, KernelLog
from gpudoctor.facts.log_moments import since_boot
from gpudoctor.facts.pci import NvidiaFunctions
from gpudoctor.facts.raw import Log, Raw, SourceKind
from gpudoctor.health import counters, log_memory
from gpudoctor.health.answer import EXIT_CODES, SCHEMA, Change, Event, Health, Memory, State
from gpudoctor.health.episodes import Ledger, Now, Rules
from gpudoctor.health.looking import Looking
from gpudoctor.health.source import Remembering
from gpudoctor.health.store import Last, Outcome, Past, RunRow
from gpudoctor.health.telling import Telling
from gpudoctor.registry import Registry
from gpudoctor.report import Overall
from gpudoctor.run import Selection, run
from gpudoctor.verdicts import Status, Unread

if TYPE_CHECKING:
    from gpudoctor.health.rows import XidRow

MOST_OFF = 7 * 86400.0
"""So much at the most passes on the memory's own clock while the node is off: its clock may have been set meanwhile."""
NAMELESS = ("localhost", "localhost.localdomain", "(none)")
"""What a node is called before anybody has named it (hostname(5), "fallback hostname"; init/Kconfig, DEFAULT_HOSTNAME): no other node."""
MOST_UNTOLD = 200
HOUR = 3600.0
SHRINKS = 0.75
_LOADING = "NVRM: loading NVIDIA"


class Moment(Struct, frozen=True):
    """When a pass is: as people say it, and in seconds since the boot where that is known."""

    at: datetime.datetime
    boottime: float | None


class Timing(Struct, frozen=True):
    """A pass in its place after the one before; `same_boot` is also true of the first of all."""

    at: float
    elapsed: float
    interval: float
    boot: int
    passes: int
    first: bool
    same_boot: bool
    same_node: bool


class Untold(Struct, frozen=True):
    """Changes and events that are remembered until they are reported."""

    changes: tuple[Change, ...] = ()
    events: tuple[Event, ...] = ()


class Settled(Struct, frozen=True):
    """What a pass says, and what it leaves behind."""

    answer: Health
    outcome: Outcome


class Pass:
    """One pass over a source, made at once; what it means for the memory can be settled twice, for nothing here changes the past."""

    def __init__(
        self, raw: Raw, config: Config, registry: Registry, moment: Moment, past: Past, *, ask_nvml: bool = False
    ) -> None:
        self._config, self._past, self._moment = config, past, moment
        self._source = Remembering(raw, ask_nvml=ask_nvml or config.health.ask_nvml)
        self._desk = Desk(self._source, config, time.monotonic)
        host = self._desk.get(Host)
        host = host if isinstance(host, Host) else Host(hostname=None, kernel=None, os=None, os_id=None, boot_id=None)
        self.boot_id = host.boot_id or ""
        self._hostname = host.hostname if host.hostname and host.hostname not in NAMELESS else ""
        self.timing = _timing(past.last, moment, self.boot_id, self._hostname)
        goes_on = self.timing.same_boot and not self.timing.first
        self._kept, before = (past.kept, past.before) if goes_on else (log_memory.Kept(), past.kept)
        self._source.remember(self._kept, before, first_of_boot=not goes_on)
        self.report = run(self._source, config, registry, _everything(registry), moment.at, desk=self._desk)
        self._looking = Looking(self.report, registry, self._source.idle, self._on_bus())
        self._addresses = {gpu.address.rpartition(".")[0]: gpu.address for gpu in self.report.node.gpus}
        self._readings = counters.readings(self._desk)
        self._source.log(NAME)
        self._events = self._new_events()
        self._before = self._unseen_events()

    def settled(self, memory: Memory, *, rules: Rules | None = None) -> Settled:
        """What the pass says with this memory. Without `rules` those of the configuration decide what lasts."""
        timing, settings = self.timing, self._config.health
        rules = rules or Rules(settings.lasting, settings.flapping_changes, settings.flapping_window)
        now = Now(timing.at, timing.elapsed, timing.boot, timing.first or not timing.same_node)
        ledger = Ledger(rules, now, map(replace, self._past.episodes), self._past.tracks)
        if not (timing.same_boot and timing.same_node):
            ledger.reboot(forget=not timing.same_node)
        ledger.take(self._looking.wrong(), self._looking.fates(self._past.episodes))
        span = self._span()
        changed, growth = counters.grown(self._past.counters, self._past.counter, self._readings, span)
        telling = Telling(self.report, self._looking)
        verdict = self._verdict(ledger)
        untold = self._untold()
        changes = (*untold.changes[-MOST_UNTOLD:], *telling.changes(ledger.told))
        wrong = telling.wrong(ledger.open.values())
        answer = Health(
            schema=SCHEMA,
            tool=self.report.tool,
            node=self.report.node,
            at=self.report.started_at,
            seconds=self.report.seconds,
            number=self._past.last.number + 1,
            verdict=verdict,
            exit_code=EXIT_CODES[verdict],
            seen=self.report.verdict,
            nvml=self._nvml(),
            memory=replace(memory, passes=timing.passes, first=timing.first),
            changes=changes,
            wrong=tuple(one for one in wrong if one.state is not State.BLIP),
            blips=tuple(one for one in wrong if one.state is State.BLIP),
            links=telling.links(ledger.open.values()),
            growth=growth,
            events=(*untold.events[-MOST_UNTOLD:], *self._before, *self._events) if not timing.first else (),
            checks={result.check: result.status.value for result in self.report.results},
        )
        return Settled(answer, self._outcome(answer, ledger, span, changed))

    def _on_bus(self) -> frozenset[str]:
        found = self._desk.get(NvidiaFunctions)
        if isinstance(found, Unread):
            return frozenset()
        return frozenset(gpu.address for gpu in found.gpus) | frozenset(switch.address for switch in found.switches)

    def _untold(self) -> Untold:
        """What passes before could not report to the end; what another release has written otherwise is no reason to end."""
        try:
            return msgspec.json.decode(self._past.untold, type=Untold) if self._past.untold else Untold()
        except msgspec.MsgspecError:
            return Untold()

    def _nvml(self) -> str:
        if self._source.idle:
            return f"not asked: {self._source.idle}"
        if not self._source.asked:
            return "not asked: no check needed it"
        return "asked" if self._source.kind in (SourceKind.LIVE, SourceKind.ROOT) else "as recorded"

    def _verdict(self, ledger: Ledger) -> Overall:
        """As the report's, of what counts."""
        counting = [one for one in ledger.open.values() if one.counts]
        statuses = {one.counted for one in counting}
        if Status.FAIL in statuses:
            return Overall.FAIL
        if Status.UNKNOWN in statuses or self._looking.open_question():
            return Overall.UNKNOWN
        return Overall.WARN if Status.WARN in statuses else Overall.PASS

    def _new_events(self) -> tuple[Event, ...]:
        read = self._source.read_log
        return log_memory.events(read.new, self._addresses) if read is not None else ()

    def _unseen_events(self) -> tuple[Event, ...]:
        """What the boot before wrote after its last pass, which may well tell why it ended."""
        if self.timing.first or self.timing.same_boot or not self.timing.same_node:
            return ()
        log = self._source.log(PREVIOUS)
        if not isinstance(log, Log):
            return ()
        text = log_memory.after_the_last_pass(log.text, self._past.kept)
        return log_memory.events(text, self._addresses, previous_boot=True)

    def _loads(self) -> int | None:
        """How often the driver was loaded since the boot, None where the log does not reach back so far."""
        log = self._desk.known(KernelLog)
        return log.text.count(_LOADING) if log is not None and log.from_boot else None

    def _span(self) -> counters.Span:
        last, timing, loads = self._past.last, self.timing, self._loads()
        same = timing.same_boot and timing.same_node and last.driver == (self.report.node.driver_version or "")
        if same and loads is not None and last.loads is not None and loads != last.loads:
            same = False
        seconds = {source: timing.elapsed - then for source, then in last.counted.items()} if same else {}
        return counters.Span(timing.at, timing.elapsed, seconds)

    def _outcome(
        self, answer: Health, ledger: Ledger, span: counters.Span, changed: Sequence[counters.Counter]
    ) -> Outcome:
        timing, read = self.timing, self._source.read_log
        kept = read.kept if read is not None else self._kept
        added = read.added if read is not None else ()
        counted = dict.fromkeys({one.source for one in self._readings}, timing.elapsed)
        still = {source: timing.elapsed - seconds for source, seconds in span.seconds.items() if seconds is not None}
        last = Last(
            number=answer.number,
            at=timing.at,
            boottime=self._moment.boottime,
            elapsed=timing.elapsed,
            interval=timing.interval,
            boot=timing.boot,
            boot_id=self.boot_id,
            passes=timing.passes,
            hostname=self._hostname,
            driver=self.report.node.driver_version or "",
            loads=self._loads(),
            counted={**still, **counted},
            cursor=kept.cursor,
            whole=kept.whole,
            dropped=kept.dropped,
            lines=kept.count,
        )
        settings = self._config.health
        return Outcome(
            last=last,
            run=RunRow(
                number=answer.number,
                boot=timing.boot,
                at=timing.at,
                elapsed=timing.elapsed,
                seconds=answer.seconds,
                verdict=answer.verdict.value,
                exit_code=answer.exit_code,
                changes=len(answer.changes),
                note=answer.memory.interrupted,
            ),
            episodes=(*ledger.open.values(), *ledger.waiting),
            ended=tuple(ledger.ended),
            tracks=ledger.tracks,
            counters=changed,
            added=added,
            xids=tuple(self._xid_rows()),
            untold=msgspec.json.encode(Untold(answer.changes, answer.events)) if answer.has_news else b"",
            keep_runs=settings.keep_runs,
            keep_days=settings.keep_days,
        )

    def _xid_rows(self) -> "list[XidRow]":
        rows = [self._xid_row(event, self.timing.boot, self._moment.boottime) for event in self._events]
        return rows + [self._xid_row(event, self._past.last.boot, None) for event in self._before]

    def _xid_row(self, event: Event, boot: int, boottime: float | None) -> "XidRow":
        from gpudoctor.health.rows import XidRow

        latest = self.timing.at if boot == self.timing.boot else self._past.last.at
        moments = [since_boot(stamp) for stamp in (event.first, event.stamp)]
        at = [
            latest if boottime is None or one is None or one > boottime else latest - boottime + one for one in moments
        ]
        return XidRow(
            boot, event.gpu, event.code, event.area, event.count, event.first, event.stamp, at[0], at[1], event.says
        )


def _everything(registry: Registry) -> Selection:
    """All checks, but not the table of who shares a GPU with whom, which a timer does not show."""
    links = tuple(link.value for link in Link if link is not Link.SHARING)
    return Selection(links, tuple(check.id for check in registry if check.link is Link.SHARING))


def _interval(passed: float, before: float) -> float:
    """How far apart passes usually are: neither somebody's pass by hand between two of a timer nor one long gap tells."""
    return max(min(passed, max(HOUR, 4 * before)), SHRINKS * before)


def _timing(last: Last, moment: Moment, boot_id: str, hostname: str) -> Timing:
    """Where a pass stands: within a boot by the clock that nobody sets, over a boot by the other one, which may have stepped."""
    at = moment.at.timestamp()
    if last.number == 0:
        return Timing(at, 0.0, 0.0, 1, 1, first=True, same_boot=True, same_node=True)
    ran = None if moment.boottime is None or last.boottime is None else moment.boottime - last.boottime
    same_boot = boot_id == last.boot_id if boot_id and last.boot_id else ran is None or ran >= 0
    passed = max(0.0, ran if ran is not None else at - last.at) if same_boot else min(MOST_OFF, max(0.0, at - last.at))
    same_node = same_boot or not hostname or not last.hostname or hostname == last.hostname
    return Timing(
        at=at,
        elapsed=last.elapsed + passed,
        interval=_interval(passed, last.interval) if same_boot and passed > 0 else last.interval,
        boot=last.boot if same_boot else last.boot + 1,
        passes=last.passes + 1 if same_boot else 1,
        first=False,
        same_boot=same_boot,
        same_node=same_node,
    )
