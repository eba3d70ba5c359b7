"""The memory on disk: one sqlite database, written in one transaction a pass, so that a pass is remembered whole or not at all.

In WAL mode (readers do not wait for a writer) with synchronous=FULL: a node that a failing GPU takes down must not lose the last passes
before, and one fsync a minute is nothing. Bounded by rows and by age.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from gpudoctor.health.counters import Counter
from gpudoctor.health.episodes import Episode
from gpudoctor.health.log_memory import MOST_FIRST, MOST_LAST, Kept
from gpudoctor.health.tables import VERSION, create, migrate

if TYPE_CHECKING:
    from gpudoctor.health.rows import XidRow

BUSY_SECONDS = 2.0
MOST_EPISODES = 5000
MOST_BOOTS = 200
MOST_COUNTERS = 10_000
TIDY_EVERY = 64
"""So often in passes what is superfluous is looked for."""
PAGES_GIVEN_BACK = 256
DAY = 86400.0
_VALUES = "SELECT subject, counter, value FROM counters"
_Record = TypeVar("_Record", bound=Struct)


class CannotKeepError(Exception):
    """The memory cannot be read or written, with words on why."""


class Last(Struct, frozen=True):
    """The pass before: when, in which boot, with which driver; `counted` is when each source of counters was read, in `elapsed`."""

    number: int = 0
    at: float = 0.0
    boottime: float | None = None
    elapsed: float = 0.0
    interval: float = 0.0
    boot: int = 0
    boot_id: str = ""
    passes: int = 0
    hostname: str = ""
    driver: str = ""
    loads: int | None = None
    counted: dict[str, float] = {}
    cursor: str = ""
    whole: bool = False
    dropped: int = 0
    lines: int = 0


def _no_counter(subject: str, counter: str) -> None:
    """Nothing is remembered."""


class Past(Struct, frozen=True):
    """What is remembered when a pass begins. `kept` is of the last boot's log, `before` of that of the boot before it.

    `counters` are values by subject and name, `counter` gives the rest of one. `untold` are changes of a pass that was not reported to its
    end, as they were written.
    """

    last: Last = Last()
    episodes: tuple[Episode, ...] = ()
    tracks: Mapping[str, tuple[float, ...]] = {}
    counters: Mapping[tuple[str, str], float] = {}
    counter: Callable[[str, str], Counter | None] = _no_counter
    kept: Kept = Kept()
    before: Kept = Kept()
    untold: bytes = b""


class RunRow(Struct, frozen=True):
    """One pass."""

    number: int
    boot: int
    at: float
    elapsed: float
    seconds: float
    verdict: str
    exit_code: int
    changes: int
    note: str = ""


class Outcome(Struct, frozen=True):
    """What a pass leaves behind. `added` are lines of this boot's kernel log, `xids` errors that no pass had seen."""

    last: Last
    run: RunRow
    episodes: Sequence[Episode] = ()
    ended: Sequence[Episode] = ()
    tracks: Mapping[str, tuple[float, ...]] = {}
    counters: Sequence[Counter] = ()
    added: Sequence[str] = ()
    xids: "Sequence[XidRow]" = ()
    untold: bytes = b""
    keep_runs: int = 10_000
    keep_days: float = 90.0


class Store:
    """The database of one node. `writable` is False where it can only be read; then `why` says so. `news` tells of one begun anew."""

    def __init__(self, path: Path, *, change: bool = True) -> None:
        """Open it, or make it; without `change` it is only read, and a corrupt one left where it is. Raises CannotKeepError."""
        self.path = path
        self.why = "" if change else f"{path}: opened to be read"
        self.news = ""
        try:
            self._database = self._opened()
        except sqlite3.OperationalError as error:
            self.why = f"{path}: {error}"
            self._database = _read_only(path, self.why)
        except sqlite3.DatabaseError as error:
            if not change:
                raise CannotKeepError(f"{path}: {error}") from error
            self._set_aside(error)

    @property
    def writable(self) -> bool:
        """Whether passes can be remembered."""
        return not self.why

    def past(self) -> Past:
        """What is remembered. What cannot be understood is set aside, and the memory begun anew. Raises CannotKeepError."""
        try:
            return self._past()
        except sqlite3.OperationalError as error:
            raise CannotKeepError(f"{self.path}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if not self.writable:
                raise CannotKeepError(f"{self.path}: {error}") from error
            self._database.close()
            self._set_aside(error)
            return Past()

    def keep(self, outcome: Outcome) -> None:
        """Remember a pass. Raises CannotKeepError, and then nothing of it is remembered."""
        if not self.writable:
            raise CannotKeepError(self.why)
        with self._transaction() as database:
            _write(database, outcome)

    def note(self, episode: Episode) -> None:
        """Remember one episode by itself, while another run has the memory. Raises CannotKeepError."""
        if not self.writable:
            raise CannotKeepError(self.why)
        with self._transaction() as database:
            _put_episode(database, episode)

    def told(self) -> None:
        """The changes of the last pass have been reported."""
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("DELETE FROM state WHERE key = 'untold'")

    def rows(self, kind: type[_Record], table: str, where: str = "", values: Sequence[Any] = ()) -> list[_Record]:
        """The rows of a table as records. Raises CannotKeepError."""
        try:
            return list(_rows(self._database, kind, table, where, values))
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise CannotKeepError(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = FULL")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                said = f"was written by a newer gpudoctor (schema {version}, this one knows {VERSION})"
                raise CannotKeepError(f"{self.path}: {said}; it is left as it is")
            if version < VERSION:
                database = database if self.writable else _in_memory(database)
                _bring_up_to_date(database)
        except BaseException:
            database.close()
            raise
        return database

    def _set_aside(self, error: Exception) -> None:
        """Keep a corrupt database under another name, one at most, and begin anew."""
        aside = self.path.with_name(f"{self.path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        try:
            for old in self.path.parent.glob(f"{self.path.name}.corrupt-*"):
                old.unlink()
            # Its log first: beside a new database it would be taken for that one's.
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self.path.rename(aside)
            self._database = self._opened()
        except (OSError, sqlite3.Error) as worse:
            raise CannotKeepError(f"{self.path}: {error}; and it cannot be begun anew: {worse}") from worse
        self.news = f"{self.path}: {error}: set aside as {aside.name}, and begun anew"

    def _past(self) -> Past:
        database = self._database
        state = dict(database.execute("SELECT key, value FROM state"))
        last = msgspec.json.decode(state["last"], type=Last) if "last" in state else Last()
        tracks = database.execute("SELECT finding, moments FROM tracks")
        return Past(
            last=last,
            episodes=tuple(_rows(database, Episode, "episodes", "ended_at IS NULL")),
            tracks={finding: msgspec.json.decode(moments, type=tuple[float, ...]) for finding, moments in tracks},
            counters={(of, name): value for of, name, value in database.execute(_VALUES) if isinstance(value, float)},
            counter=self._counter,
            kept=Kept(last.cursor, last.whole, last.dropped, last.lines, partial(self._lines, last.boot)),
            before=Kept(count=last.boot - 1, fetch=partial(self._lines, last.boot - 1)),
            untold=state.get("untold", b""),
        )

    def _counter(self, subject: str, counter: str) -> Counter | None:
        """All that is remembered of a counter."""
        return next(_rows(self._database, Counter, "counters", "subject = ? AND counter = ?", (subject, counter)), None)

    def _lines(self, boot: int) -> tuple[str, ...]:
        """What is kept of a boot's log, nothing where it cannot be read any more."""
        try:
            rows = self._database.execute("SELECT text FROM lines WHERE boot = ? ORDER BY number", (boot,)).fetchall()
        except sqlite3.Error:
            return ()
        return tuple(text for (text,) in rows if isinstance(text, str))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise CannotKeepError(f"{self.path}: {error}") from error


def _in_memory(database: sqlite3.Connection) -> sqlite3.Connection:
    """A copy that can be brought up to date for somebody who only looks."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    database.backup(copy)
    database.close()
    return copy


def _bring_up_to_date(database: sqlite3.Connection) -> None:
    """Make the tables, or those of an older schema into these, in one transaction; another run may have been quicker."""
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("BEGIN IMMEDIATE")
    try:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            create(database)
        else:
            migrate(database, version)
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _read_only(path: Path, why: str) -> sqlite3.Connection:
    """What can be read of it where nothing can be written, not even the index of its log (sqlite.org/wal.html, "Read-Only Databases")."""
    from urllib.parse import quote

    try:
        database = sqlite3.connect(f"file:{quote(str(path.absolute()))}?immutable=1", uri=True, isolation_level=None)
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            database.close()
            raise CannotKeepError(why)
    except sqlite3.Error:
        raise CannotKeepError(why) from None
    return database


def _rows(
    database: sqlite3.Connection, kind: type[_Record], table: str, where: str = "", values: Sequence[Any] = ()
) -> Iterator[_Record]:
    names = kind.__struct_fields__
    columns = ", ".join(f'"{name}"' for name in names)
    # Names of our own records and tables, no values.
    query = f'SELECT {columns} FROM "{table}"{f" WHERE {where}" if where else ""}'  # noqa: S608
    for row in database.execute(query, values):
        yield msgspec.convert(dict(zip(names, row, strict=True)), kind, strict=False)


def _put(database: sqlite3.Connection, table: str, record: Struct) -> None:
    values = msgspec.to_builtins(record)
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    # Names of our own records and tables, no values.
    database.execute(f'INSERT OR REPLACE INTO "{table}" ({names}) VALUES ({marks})', tuple(values.values()))  # noqa: S608


def _write(database: sqlite3.Connection, outcome: Outcome) -> None:
    last = outcome.last
    state = [("last", msgspec.json.encode(last))]
    state += [("untold", outcome.untold)] if outcome.untold else []
    database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state)
    first_of_boot = last.passes <= 1
    if first_of_boot:
        from gpudoctor.health.rows import BootRow

        _put(database, "boots", BootRow(last.boot, last.boot_id, last.at, last.at, last.elapsed, last.passes))
    else:
        set_to = (last.at, last.elapsed, last.passes, last.boot)
        database.execute("UPDATE boots SET last_at = ?, elapsed = ?, passes = ? WHERE id = ?", set_to)
    _put(database, "runs", outcome.run)
    database.execute("DELETE FROM runs WHERE number <= ?", (outcome.run.number - outcome.keep_runs,))
    for episode in (*outcome.episodes, *outcome.ended):
        _put_episode(database, episode)
    _write_tracks(database, outcome.tracks)
    for counter in outcome.counters:
        _put(database, "counters", counter)
    _write_lines(database, last, outcome.added)
    for xid in outcome.xids:
        _add_xid(database, xid)
    if last.number % TIDY_EVERY == 0 or first_of_boot:
        _tidy(database, last, outcome.keep_days)


def _put_episode(database: sqlite3.Connection, episode: Episode) -> None:
    if episode.id:
        _put(database, "episodes", episode)
        return
    values = msgspec.to_builtins(episode)
    del values["id"]
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    # Names of our own record, no values.
    done = database.execute(f"INSERT INTO episodes ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608
    episode.id = done.lastrowid or 0


def _write_tracks(database: sqlite3.Connection, tracks: Mapping[str, tuple[float, ...]]) -> None:
    old = dict(database.execute("SELECT finding, moments FROM tracks"))
    new = {finding: msgspec.json.encode(moments).decode() for finding, moments in tracks.items()}
    if old != new:
        database.execute("DELETE FROM tracks")
        database.executemany("INSERT INTO tracks VALUES (?, ?)", new.items())


def _write_lines(database: sqlite3.Connection, last: Last, added: Sequence[str]) -> None:
    begin = last.lines - len(added)
    rows = ((last.boot, begin + place, line) for place, line in enumerate(added))
    database.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", rows)
    if last.dropped:
        middle = (last.boot, MOST_FIRST, last.lines - MOST_LAST)
        database.execute("DELETE FROM lines WHERE boot = ? AND number >= ? AND number < ?", middle)


def _add_xid(database: sqlite3.Connection, xid: "XidRow") -> None:
    row = (xid.count, xid.last_stamp, xid.last_at, xid.says, xid.boot, xid.gpu, xid.code)
    done = database.execute(
        "UPDATE xids SET count = count + ?, last_stamp = ?, last_at = ?, says = ? WHERE boot = ? AND gpu = ? AND code = ?",
        row,
    )
    if done.rowcount == 0:
        _put(database, "xids", xid)


def _tidy(database: sqlite3.Connection, last: Last, keep_days: float) -> None:
    """Take away what is too old by the memory's clock, which no step of the node's clock moves, and what is too much."""
    oldest = last.elapsed - keep_days * DAY
    database.execute("DELETE FROM episodes WHERE ended_at IS NOT NULL AND elapsed < ?", (oldest,))
    database.execute(
        "DELETE FROM episodes WHERE ended_at IS NOT NULL AND id <= (SELECT max(id) FROM episodes) - ?", (MOST_EPISODES,)
    )
    database.execute("DELETE FROM runs WHERE elapsed < ?", (oldest,))
    too_old = (oldest, last.boot - MOST_BOOTS, last.boot)
    database.execute("DELETE FROM boots WHERE (elapsed < ? OR id <= ?) AND id <> ?", too_old)
    database.execute("DELETE FROM xids WHERE boot NOT IN (SELECT id FROM boots)")
    database.execute("DELETE FROM lines WHERE boot < ?", (last.boot - 1,))
    count = database.execute("SELECT count(*) FROM counters").fetchone()[0]
    if count > MOST_COUNTERS:
        query = "DELETE FROM counters WHERE (subject, counter) IN (SELECT subject, counter FROM counters ORDER BY elapsed LIMIT ?)"
        database.execute(query, (count - MOST_COUNTERS,))
    database.execute(f"PRAGMA incremental_vacuum({PAGES_GIVEN_BACK})").fetchall()
