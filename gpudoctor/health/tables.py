"""The tables of the memory, and how older ones become them. `PRAGMA user_version` is the number of the schema."""

import json
import sqlite3
from collections.abc import Callable

VERSION = 1

_TABLES = """
CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE boots (id INTEGER PRIMARY KEY, boot_id TEXT, first_at REAL, last_at REAL, elapsed REAL, passes INTEGER);
CREATE TABLE runs (number INTEGER PRIMARY KEY, boot INTEGER, at REAL, elapsed REAL, seconds REAL, verdict TEXT, exit_code INTEGER,
    changes INTEGER, note TEXT);
CREATE TABLE episodes (id INTEGER PRIMARY KEY, finding TEXT, "check" TEXT, link TEXT, kind TEXT, "key" TEXT, cause TEXT, status TEXT,
    worst TEXT, summary TEXT, state TEXT, follows INTEGER, hard INTEGER, boot INTEGER, since REAL, first_at REAL, last_at REAL,
    elapsed REAL, unseen TEXT, bad INTEGER, told INTEGER, times INTEGER, streak INTEGER, boots INTEGER, turns INTEGER,
    ended_at REAL, ended TEXT);
CREATE INDEX episodes_open ON episodes (finding) WHERE ended_at IS NULL;
CREATE TABLE tracks (finding TEXT PRIMARY KEY, moments TEXT) WITHOUT ROWID;
CREATE TABLE counters (subject TEXT, counter TEXT, source TEXT, unit TEXT, value REAL, since REAL, total REAL, peak REAL, grown_at REAL,
    elapsed REAL, PRIMARY KEY (subject, counter)) WITHOUT ROWID;
CREATE TABLE lines (boot INTEGER, number INTEGER, text TEXT, PRIMARY KEY (boot, number)) WITHOUT ROWID;
CREATE TABLE xids (boot INTEGER, gpu TEXT, code TEXT, area TEXT, count INTEGER, first_stamp TEXT, last_stamp TEXT, first_at REAL,
    last_at REAL, says TEXT, PRIMARY KEY (boot, gpu, code)) WITHOUT ROWID;
"""


def create(database: sqlite3.Connection) -> None:
    """An empty memory. To be called within a transaction."""
    for statement in _TABLES.split(";"):
        if statement.strip():
            database.execute(statement)
    database.execute(f"PRAGMA user_version = {VERSION}")


def migrate(database: sqlite3.Connection, version: int) -> None:
    """From an older schema to this one, step by step. To be called within a transaction, so that it is done whole or not at all."""
    for step in _STEPS[version:]:
        step(database)


def _from_0(database: sqlite3.Connection) -> None:
    """Version 0 had a row for each run and for each finding that was wrong: `runs(at, verdict, exit_code)` and
    `seen(finding, status, summary, first_seen, last_seen, times)`, with times in seconds since 1970.
    """
    runs = database.execute("SELECT at, verdict, exit_code FROM runs ORDER BY at").fetchall()
    seen = database.execute("SELECT finding, status, summary, first_seen, last_seen, times FROM seen").fetchall()
    database.execute("DROP TABLE runs")
    database.execute("DROP TABLE seen")
    create(database)
    if runs:
        first, last = runs[0][0], runs[-1][0]
        database.execute("INSERT INTO boots VALUES (1, '', ?, ?, 0, ?)", (first, last, len(runs)))
        state = {"number": len(runs), "at": last, "boot": 1, "boot_id": "not told", "passes": len(runs)}
        database.execute("INSERT INTO state VALUES ('last', ?)", (json.dumps(state).encode(),))
    for number, (at, verdict, exit_code) in enumerate(runs, start=1):
        row = (number, 1, at, 0.0, 0.0, verdict, exit_code, 0, "")
        database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    for finding, status, summary, first_at, last_at, times in seen:
        check, _, subject = finding.partition("@")
        kind, _, key = subject.partition(":")
        # Which boot they are of is not told, so that they are history.
        values = (finding, check, check.partition(".")[0], kind, key, "", status, status, summary, "lasting", 0, 0, 1)
        past = (first_at, first_at, last_at, 0.0, "", 0, 1, times, times, 1, 0, last_at, "not seen since")
        episode = (None, *values, *past)
        marks = ", ".join("?" * len(episode))
        database.execute(f"INSERT INTO episodes VALUES ({marks})", episode)  # noqa: S608 - question marks only


_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_from_0,)
