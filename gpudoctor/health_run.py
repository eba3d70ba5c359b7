"""`gpudoctor health`: one pass with a memory, or the kept answer of the last one; whatever happens to the memory, there is a diagnosis."""

import argparse
import contextlib
import datetime
import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.config import Config, ConfigError, nearest
from gpudoctor.facts.raw import Raw, SourceKind, TextFile
from gpudoctor.health import cached
from gpudoctor.health.answer import EXIT_CODES, Earlier, Health, Memory
from gpudoctor.health.lock import Holder, LockedError, locked, seconds_since_boot
from gpudoctor.health.places import DATABASE, LAST, LOCK, NoPlaceError, made, state_directory
from gpudoctor.outputs import must_have_stdout, say, write
from gpudoctor.report import Overall

Opened = tuple[Raw, Config, datetime.datetime]
Source = Callable[[argparse.Namespace, tuple[str, ...]], Opened]
"""What opens the source that the options name."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FORMATS = ("terminal", "line", "json", "nagios", "npd", "node-exporter")
SUFFIXES = {".json": "json", ".txt": "terminal", ".prom": "node-exporter"}
GRACE_SECONDS = 10.0
"""So long after its deadline a run may still be writing down what it saw, on a node that is busy."""


def health(options: argparse.Namespace, source: Source) -> int:
    """`gpudoctor health`. Raises ConfigError and SourceError."""
    _refuse_unknown_links(options.link)
    outputs = [_output(word) for word in options.output]

    def tell(answer: Health) -> None:
        shown = narrowed(answer, options.link)
        for form, path in outputs:
            write(path, _rendered(shown, form, options, file=True))
        if text := _rendered(shown, options.format, options, file=False):
            say(text)
            sys.stdout.flush()

    if options.cached:
        answer = _kept(options, source)
        tell(answer)
    else:
        answer = _Run(options, source, tell).answer()
    shown = narrowed(answer, options.link)
    if options.format == "npd":
        from gpudoctor.reports.health_forms import npd_exit_code

        return npd_exit_code(shown)
    return shown.exit_code


def narrowed(answer: Health, links: list[str]) -> Health:
    """The answer about some links of the chain only."""
    if not links:
        return answer
    states = tuple(state for state in answer.links if state.link in links)
    verdicts = {state.verdict for state in states}
    worst = next((one for one in (Overall.FAIL, Overall.UNKNOWN, Overall.WARN) if one in verdicts), Overall.PASS)
    if not states or (answer.stale is not None and answer.stale.why):
        worst = Overall.UNKNOWN
    return replace(
        answer,
        verdict=worst,
        exit_code=EXIT_CODES[worst],
        links=states,
        wrong=tuple(one for one in answer.wrong if one.link in links),
        blips=tuple(one for one in answer.blips if one.link in links),
        changes=tuple(change for change in answer.changes if change.wrong.link in links),
        checks={check: status for check, status in answer.checks.items() if check.partition(".")[0] in links},
    )


class _Place(Struct, frozen=True):
    """Where the memory lies, None where there is none; `why` in words, `quiet` where nobody expects one."""

    path: Path | None
    why: str = ""
    quiet: bool = False


class _Run:
    """One pass, as the command makes it."""

    def __init__(self, options: argparse.Namespace, source: Source, tell: Callable[[Health], None]) -> None:
        from gpudoctor.registry import built_in

        self._options, self._tell = options, tell
        self._registry = built_in(deferred=True)
        self._raw, self._config, now = source(options, self._registry.ids)
        self._at, self._boottime = now, _boottime(self._raw)

    def answer(self) -> Health:
        """Make the pass, unless another run is at it, and tell what it says."""
        place = _place(self._options)
        if place.path is None:
            if not place.quiet:
                _complain(f"this pass is not remembered: {place.why}")
            return self._passed(None, Memory(kept=False, place="", note=place.why))
        mine = Holder(os.getpid(), _boot_id("/"), seconds_since_boot(), _in_words(self._at), self._options.deadline)
        with contextlib.ExitStack() as stack:
            interrupted = ""
            try:
                before = stack.enter_context(locked(place.path / LOCK, mine))
            except LockedError as error:
                return self._beside(place.path, error.holder)
            # Where nothing can be written there is no lock either; the store says why.
            except OSError:
                before = None
            if before is not None:
                interrupted = f"the pass that began at {before.at} (PID {before.pid}) did not end by itself"
            return self._passed(place.path, Memory(kept=True, place=str(place.path), interrupted=interrupted))

    def _passed(self, place: Path | None, memory: Memory) -> Health:
        """Look, remember, keep the answer for others, tell it, and remember that it was told: in this order nothing is lost."""
        from gpudoctor.health.episodes import Rules
        from gpudoctor.health.one_pass import Moment, Pass
        from gpudoctor.health.store import CannotKeepError, Past, Store

        store, past, note = None, Past(), memory.note
        if place is not None:
            try:
                store = Store(place / DATABASE)
                past = store.past()
            except CannotKeepError as error:
                store, note = None, str(error)
        moment = Moment(self._at, self._boottime)
        one = Pass(self._raw, self._config, self._registry, moment, past, ask_nvml=self._options.ask_nvml)
        settled = one.settled(replace(memory, note=store.news if store is not None else note))
        if store is not None:
            try:
                store.keep(settled.outcome)
            except CannotKeepError as error:
                note = str(error)
        kept = store is not None and not note
        if not kept:
            # Without a memory nothing can be waited for: what is wrong counts now.
            settled = one.settled(replace(memory, kept=False, note=note), rules=Rules(lasting=1))
        answer = settled.answer
        if place is not None:
            self._say_what_is_not_kept(answer.memory)
            self._put_by(place, answer, one.boot_id, settled.outcome.last.interval)
        self._tell(answer)
        if store is not None:
            if kept and answer.has_news:
                store.told()
            store.close()
        return answer

    def _say_what_is_not_kept(self, memory: Memory) -> None:
        if not memory.kept:
            _complain(f"this pass is not remembered: {memory.note}")
        elif memory.note:
            _complain(memory.note)

    def _put_by(self, place: Path, answer: Health, boot_id: str, interval: float, suffix: str = ".new") -> None:
        after = cached.stale_after(self._config.health.stale_after, interval)
        kept = cached.Kept(replace(answer, changes=()), boot_id, self._boottime, self._at.timestamp(), after)
        try:
            cached.put_by(place / LAST, kept, suffix=suffix)
        except OSError as error:
            if answer.memory.kept:
                _complain(f"{place / LAST}: {error.strerror or error}: --cached has no answer of this pass")

    def _beside(self, place: Path, holder: Holder | None) -> Health:
        """Another run has the lock. One that hangs is a finding; one that is at work will give the next answer, this is the last one."""
        earlier = _look_at(holder)
        boot_id = self._boot_id()
        last = cached.read(place / LAST)
        answer = cached.aged(last, boot_id, self._boottime, self._at.timestamp())
        if earlier.hangs:
            times = _noted(place, earlier, self._at)
            now = _in_words(self._at)
            old = cached.outlived(last, self._at.timestamp()) if isinstance(last, cached.Kept) else ""
            answer = cached.hung(answer, earlier, first=times == 1, times=times, now=now, old=old)
            interval = last.stale_after / cached.INTERVALS if isinstance(last, cached.Kept) else 0.0
            self._put_by(place, answer, boot_id, interval, suffix=".hung")
        else:
            who = f"PID {earlier.pid}, since {earlier.since}" if earlier.pid else "its number is not known"
            told = f"this is the answer of {answer.at}" if answer.at else "there is no answer yet"
            _complain(f"another pass is at work ({who}): {told}")
            answer = replace(answer, earlier=earlier, stale=answer.stale if answer.at else None)
        self._tell(answer)
        return answer

    def _boot_id(self) -> str:
        found = self._raw.read(BOOT_ID)
        return found.text.strip() if isinstance(found, TextFile) else ""


def _kept(options: argparse.Namespace, source: Source) -> Health:
    """The answer of the last pass."""
    place = _place(options, make=False)
    if place.path is None:
        return cached.aged(place.why, "", None, 0.0)
    last = cached.read(place.path / LAST)
    if options.node is not None:
        raw, _, now = source(options, ())
        found = raw.read(BOOT_ID)
        return cached.aged(
            last, found.text.strip() if isinstance(found, TextFile) else "", _boottime(raw), now.timestamp()
        )
    now = datetime.datetime.now(datetime.timezone.utc)
    return cached.aged(last, _boot_id(options.root), seconds_since_boot(), now.timestamp())


def _place(options: argparse.Namespace, *, make: bool = True) -> _Place:
    """A recording is remembered only where somebody names a place: it must not be mixed with this node."""
    if options.node is not None and options.state is None:
        return _Place(None, "a recorded node is remembered only with --state", quiet=True)
    try:
        path = state_directory(options.state, os.environ, os.geteuid())
        return _Place(made(path) if make else path)
    except NoPlaceError as error:
        return _Place(None, str(error))


def _boottime(raw: Raw) -> float | None:
    """Seconds since the boot, of a recording those that it tells."""
    if raw.kind in (SourceKind.LIVE, SourceKind.ROOT):
        return seconds_since_boot()
    from gpudoctor.sources.snapshot import Snapshot

    told = raw.manifest.clock.get("boottime") if isinstance(raw, Snapshot) and raw.manifest is not None else None
    return float(told) if isinstance(told, (int, float)) else None


def _boot_id(root: str) -> str:
    try:
        return Path(f"{root.rstrip('/')}{BOOT_ID}").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _look_at(holder: Holder | None) -> Earlier:
    """Who has the lock, and whether that run hangs: it does not move in the kernel, or is long past its own deadline."""
    if holder is None:
        return Earlier(0, "", 0.0)
    if holder.boot_id != (here := _boot_id("/")) and holder.boot_id and here:
        # Where nodes share the directory its PID and its seconds are another node's.
        return Earlier(holder.pid, holder.at, 0.0)
    from gpudoctor.probes.earlier_run import look_at_run

    seconds = max(0.0, seconds_since_boot() - holder.began)
    seen = look_at_run(holder.pid, seconds)
    hangs = ""
    if seen is not None and seen.stuck:
        hangs = f"sleeps uninterruptibly in the kernel and has not moved (PID {holder.pid})"
    elif seconds > holder.deadline + GRACE_SECONDS:
        hangs = f"wanted to be over after {holder.deadline:g} s and still runs after {seconds:.0f} s (PID {holder.pid})"
    state, stack = (seen.state, seen.stack) if seen is not None else ("", "")
    return Earlier(holder.pid, holder.at, round(seconds, 1), hangs, state, stack)


def _noted(place: Path, earlier: Earlier, at: datetime.datetime) -> int:
    """Remember that a run hangs; gives in how many passes that was seen, 1 where it cannot be remembered."""
    from gpudoctor.health.episodes import Episode
    from gpudoctor.health.hang import episode_of
    from gpudoctor.health.store import CannotKeepError, Store

    try:
        store = Store(place / DATABASE)
        past = store.past()
        episode: Episode = episode_of(past, earlier, at.timestamp())
        store.note(episode)
        store.close()
    except CannotKeepError:
        return 1
    return episode.times


def _refuse_unknown_links(links: list[str]) -> None:
    from gpudoctor.chain import Link

    known = tuple(link.value for link in Link)
    for link in links:
        if link not in known:
            raise ConfigError(f"there is no link {link!r}{nearest(link, known)}")


def _output(word: str) -> tuple[str, Path]:
    """`[FORMAT=]FILE`; without a format the file's suffix decides."""
    form, equals, path = word.partition("=")
    if equals and form in FORMATS:
        return form, Path(path)
    suffix = SUFFIXES.get(Path(word).suffix)
    if suffix is None:
        raise ConfigError(f"-o {word}: say which format, as in -o json={word}; known are {', '.join(FORMATS)}")
    return suffix, Path(word)


def _rendered(answer: Health, form: str, options: argparse.Namespace, *, file: bool) -> str:
    if form == "json":
        from gpudoctor.reports import json

        return json.render(answer)
    if form == "terminal":
        everything = options.all or options.cached or file
        if not everything and not answer.has_news:
            return ""
        from gpudoctor.reports import health_terminal
        from gpudoctor.reports.look import Look

        if not file:
            must_have_stdout()
        return health_terminal.render(answer, Look.chosen(options, sys.stdout, file=file), everything=everything)
    from gpudoctor.reports import health_forms

    return health_forms.FORMS[form](answer)


def _in_words(at: datetime.datetime) -> str:
    return f"{at.astimezone(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _complain(words: str) -> None:
    """One line on stderr; one that is closed changes nothing."""
    line = words.encode("ascii", "backslashreplace").decode()
    with contextlib.suppress(OSError, AttributeError, ValueError):
        sys.stderr.write(f"gpudoctor: {' '.join(line.split())}\n")
        sys.stderr.flush()
