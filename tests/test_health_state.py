"""The memory of `gpudoctor health` under everything that can happen to a file: the diagnosis is given, and nothing else is lost."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.health.cached import NOT_ENDED
from gpudoctor.health.episodes import Ledger, Now, Rules, Seen
from gpudoctor.health.lock import Holder, LockedError, locked, seconds_since_boot
from gpudoctor.health.places import DATABASE, LAST, LOCK
from gpudoctor.health.rows import XidRow
from gpudoctor.health.store import MOST_EPISODES, CannotKeepError, Last, Outcome, RunRow, Store
from gpudoctor.health.tables import VERSION
from gpudoctor.verdicts import Status
from tests.diff_node import DiffNode
from tests.health_passes import HARD, HEALTHY, SOFT, Passes, aged, checks, turns
from tests.standin.frozen import CannotFreeze, frozen_filesystem

DOCKER, BOUND = "toolkit.docker-runtime", "kernel-module.gpu-bound"
KILLS = 200
NOT_KEPT = "gpudoctor: this pass is not remembered: "

V0 = """
CREATE TABLE runs (at REAL, verdict TEXT, exit_code INTEGER);
CREATE TABLE seen (finding TEXT, status TEXT, summary TEXT, first_seen REAL, last_seen REAL, times INTEGER);
INSERT INTO runs VALUES (1795950000, 'pass', 0), (1795950060, 'fail', 2);
INSERT INTO seen VALUES ('toolkit.docker-runtime@service:docker', 'fail', 'does not parse', 1795950060, 1795950060, 1);
"""


def mounted(place: Path, *options: str) -> None:
    """A small file system in memory, or another look of one that is there."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of one megabyte at a place."""
    mounted(place, "-t", "tmpfs", "-o", "size=1M,mode=755", "tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(place: Path) -> None:
    """Leave no room."""
    with contextlib.suppress(OSError), open(place / "full", "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


# A place that takes nothing ----------------------------------------------------------------------------------------


def test_a_full_disk_costs_the_memory_only(passes: Passes) -> None:
    with small_disk(passes.state):
        passes.over(HEALTHY)
        fill(passes.state)
        for _ in range(2):
            code, out, err = passes("--node", SOFT)
            assert code == 2 and DOCKER in out
            assert err.startswith(NOT_KEPT) and len(err.splitlines()) == 1
        (passes.state / "full").unlink()
        assert passes.over(HEALTHY) == (0, "")
        assert passes.history()["passes"] == 2


def test_a_full_disk_from_the_first_pass_on(passes: Passes) -> None:
    with small_disk(passes.state):
        fill(passes.state)
        assert passes("--node", HEALTHY)[:2] == (0, "")
        code, out, err = passes("--node", HARD)
        assert code == 2 and BOUND in out and DOCKER in out and err.startswith(NOT_KEPT)
        (passes.state / "full").unlink()
        assert passes.over(HEALTHY) == (0, "")


def test_a_place_that_can_only_be_read(passes: Passes) -> None:
    with small_disk(passes.state):
        passes.over(HEALTHY)
        passes.over(HARD)
        subprocess.run(["mount", "-o", "remount,ro", str(passes.state)], check=True)
        code, out, err = passes("--node", HARD)
        assert code == 2 and err.startswith(NOT_KEPT) and len(err.splitlines()) == 1
        # What was told is known; what waited for a second look counts now, for there may be none.
        assert f"NEW      {DOCKER}" in out and f"NEW      {BOUND}" not in out
        assert passes.told(HARD, "--cached")["wrong"][0]["check"] == BOUND


def test_a_place_that_cannot_be_made(passes: Passes) -> None:
    passes.state.write_text("a file")
    code, out, err = passes("--node", SOFT)
    assert code == 2 and DOCKER in out and err.startswith(NOT_KEPT) and "is not a directory" in err


def test_permission_denied(passes: Passes, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("taking a privilege away needs one")
    node = DiffNode("h100x8", Path("/tmp") / f"gpudoctor-health-{os.getpid()}")
    passes.state.mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        code, out, err = passes("--node", node.place)
    finally:
        os.seteuid(0)
        subprocess.run(["rm", "-rf", str(node.place)], check=True)
    assert (code, out) == (0, "") and "ermission denied" in err and len(err.splitlines()) == 1


def test_a_place_where_others_can_write_is_not_believed(passes: Passes) -> None:
    passes.state.mkdir()
    passes.state.chmod(0o777)
    code, _, err = passes("--node", HEALTHY)
    assert code == 0 and "others can write there" in err


# A database that is not what it should be --------------------------------------------------------------------------


def corrupt(path: Path, how: str) -> None:
    """Break a database."""
    content = bytearray(path.read_bytes())
    match how:
        case "another file":
            content = bytearray(b"this is no database\n" * 100)
        case "cut off":
            content = content[: len(content) // 2]
        case "zeros":
            content[4096:] = bytes(len(content) - 4096)
        case "garbled":
            random.Random(7).shuffle(content)  # noqa: S311 - the same each time
        case "values":
            database = sqlite3.connect(path)
            database.execute("UPDATE state SET value = 'x'")
            database.commit()
            database.close()
            return
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["another file", "cut off", "zeros", "garbled", "values"])
def test_a_corrupt_memory_is_set_aside_and_begun_anew(passes: Passes, how: str) -> None:
    passes.over(HEALTHY)
    for _ in range(2):
        corrupt(passes.state / DATABASE, how)
        code, out, err = passes("--node", SOFT)
        assert code == 2 and DOCKER in out, "a first pass tells everything"
        assert "set aside as health.sqlite3.corrupt-" in err and len(err.splitlines()) == 1
    assert len(list(passes.state.glob("*.corrupt-*"))) == 1
    assert passes.over(SOFT) == (2, "")


def test_an_empty_file_is_an_empty_memory(passes: Passes) -> None:
    passes.over(HEALTHY)
    (passes.state / DATABASE).write_bytes(b"")
    assert passes.over(HEALTHY) == (0, "")


def test_a_newer_memory_is_left_alone(passes: Passes) -> None:
    passes.over(HEALTHY)
    database = sqlite3.connect(passes.state / DATABASE)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = (passes.state / DATABASE).read_bytes()
    code, out, err = passes("--node", SOFT)
    assert code == 2 and DOCKER in out
    assert f"was written by a newer gpudoctor (schema 99, this one knows {VERSION})" in err
    assert (passes.state / DATABASE).read_bytes() == before


def test_an_older_memory_becomes_this_one(passes: Passes) -> None:
    passes.state.mkdir()
    database = sqlite3.connect(passes.state / DATABASE)
    database.executescript(V0)
    database.close()
    assert passes.over(HEALTHY) == (0, "")
    told = passes.history()
    (past,) = told["episodes"]
    assert (past["check"], past["key"], past["times"], past["how"]) == (DOCKER, "docker", 1, "not seen since")
    assert [run["verdict"] for run in told["runs"]] == ["pass", "fail", "pass"]


def test_a_look_at_an_older_memory_leaves_it_as_it_is(passes: Passes) -> None:
    passes.state.mkdir()
    path = passes.state / DATABASE
    database = sqlite3.connect(path)
    database.executescript(V0)
    database.close()
    before = path.read_bytes()
    assert [run["verdict"] for run in passes.history()["runs"]] == ["pass", "fail"]
    assert path.read_bytes() == before


def test_a_migration_is_done_whole_or_not_at_all(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    passes.state.mkdir()
    path = passes.state / DATABASE
    database = sqlite3.connect(path)
    database.executescript(V0)
    database.close()

    def half(database: sqlite3.Connection, version: int) -> None:
        database.execute("DROP TABLE runs")
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("gpudoctor.health.store.migrate", half)
    with pytest.raises(CannotKeepError, match="disk I/O error"):
        Store(path)
    monkeypatch.undo()
    assert passes.over(HEALTHY) == (0, "")
    assert len(passes.history()["episodes"]) == 1


# Ends from outside -------------------------------------------------------------------------------------------------


def outcome(number: int, episodes: Ledger | None = None) -> Outcome:
    """A pass with something of everything."""
    ledger = episodes or Ledger(Rules(), Now(float(number), float(number), 1))
    return Outcome(
        last=Last(number=number, at=number, elapsed=number, boot=1, passes=number, lines=number),
        run=RunRow(number, 1, number, number, 0.1, "pass", 0, 0),
        episodes=tuple(ledger.open.values()),
        ended=tuple(ledger.ended),
        added=(f"[{number}] NVRM: Xid",),
        xids=(XidRow(1, "0000:18:00.0", "Xid 31", "application", 1, "", "", number, number, "NVRM"),),
        keep_runs=50,
    )


def write_on_and_on(path: Path, told: int) -> None:
    """Pass after pass, each told about when it is remembered."""
    store = Store(path)
    number = store.past().last.number
    while True:
        number += 1
        store.keep(outcome(number))
        os.write(told, b"%d\n" % number)


def test_a_kill_at_any_moment_loses_the_pass_that_was_being_written_at_most(passes: Passes) -> None:
    passes.state.mkdir()
    path, moments = passes.state / DATABASE, random.Random(11)  # noqa: S311 - the same each time
    sure = 0
    for _ in range(KILLS):
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                write_on_and_on(path, there)
            os._exit(1)
        os.close(there)
        time.sleep(moments.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(here, encoding="ascii") as told:
            said = [int(line) for line in told if line.endswith("\n")]
        store = Store(path)
        last = store.past().last.number
        sure = said[-1] if said else sure
        assert sure <= last <= sure + 1, "a pass that was told of is there, and only one can be that was not"
        runs = sorted(run.number for run in store.rows(RunRow, "runs"))
        assert runs == list(range(max(1, last - 49), last + 1))
        assert [row.count for row in store.rows(XidRow, "xids")] == ([last] if last else [])
        assert store.news == ""
        store.close()
        sure = last
    assert sure > 20
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_kills_of_the_whole_command_alarm_nobody(passes: Passes) -> None:
    passes.over(HEALTHY)
    moments = random.Random(5)  # noqa: S311 - the same each time
    command = [sys.executable, "-m", "gpudoctor", "health", "--node", HEALTHY, "--state", str(passes.state)]
    for _ in range(10):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(moments.uniform(0.02, 0.6))
        child.kill()
        out, err = child.communicate()
        assert (out, err) == (b"", b"")
    assert passes.over(HEALTHY) == (0, "")
    assert passes.told(HEALTHY, "--cached")["exit_code"] == 0
    assert sorted(path.name for path in passes.state.iterdir() if "new" not in path.name) == [LOCK, DATABASE, LAST]


def test_changes_that_were_not_reported_to_the_end_are_told_by_the_next_pass(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes.over(HEALTHY)

    def broken(text: str) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("gpudoctor.health_run.say", broken)
        passes("--node", HARD)
    answer = passes.told(HARD)
    assert turns(answer) == [("new", BOUND), ("new", DOCKER)]
    assert "did not end by itself" in answer["memory"]["interrupted"]
    assert passes.over(HARD) == (2, "")


def test_two_runs_at_once(passes: Passes) -> None:
    passes.over(HEALTHY)
    command = [sys.executable, "-m", "gpudoctor", "health", "--node", HEALTHY, "--state", str(passes.state)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for child in both:
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out) == (0, "")
        assert err == "" or err.startswith("gpudoctor: another pass is at work (")
    assert passes.over(HEALTHY) == (0, "")


def test_a_run_that_hangs_in_the_kernel_is_a_finding_and_nobody_waits_for_it(passes: Passes) -> None:
    """The whole command, writing to a file system that does not answer: it has the lock and cannot be killed."""
    passes.over(HEALTHY)
    command = [sys.executable, "-m", "gpudoctor", "health", "--node", HEALTHY, "--state", str(passes.state)]
    try:
        with frozen_filesystem() as frozen:
            hangs = subprocess.Popen([*command, "-o", f"json={frozen}/answer"])
            until, still = time.monotonic() + 20, 0
            # A glance may fall on a wait for a disk.
            while still < 8 and time.monotonic() < until:
                still = still + 1 if read_state(hangs.pid) == "D" else 0
                time.sleep(0.05)
            hangs.kill()
            started = time.monotonic()
            answer = passes.told(HEALTHY)
            assert time.monotonic() - started < 6.0
            assert (answer["exit_code"], answer["earlier"]["pid"]) == (2, hangs.pid)
            (wrong,) = answer["wrong"]
            assert wrong["check"] == NOT_ENDED and "in state D" in wrong["evidence"][0]["shows"]
            assert turns(answer) == [("new", NOT_ENDED)] and turns(passes.told(HEALTHY)) == []
    except CannotFreeze as error:
        pytest.skip(f"no task can be put into D state here: {error}")
    hangs.wait(timeout=20)
    answer = passes.told(HEALTHY)
    assert turns(answer) == [("healed", NOT_ENDED)] and answer["exit_code"] == 0
    assert f"PID {hangs.pid}" in answer["memory"]["interrupted"]


def read_state(pid: int) -> str:
    """A process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_lock_is_never_waited_for_and_tells_of_whoever_did_not_end(tmp_path: Path) -> None:
    mine = Holder(os.getpid(), "b", seconds_since_boot(), "now", 20.0)
    with locked(tmp_path / LOCK, mine) as before:
        assert before is None
        with pytest.raises(LockedError) as refused, locked(tmp_path / LOCK, mine):
            pass
        assert refused.value.holder == mine
    with pytest.raises(KeyError), locked(tmp_path / LOCK, mine):
        raise KeyError
    with locked(tmp_path / LOCK, mine) as before:
        assert before == mine


# What is bounded ---------------------------------------------------------------------------------------------------


def test_the_memory_is_bounded_by_count_and_age(passes: Passes) -> None:
    passes.state.mkdir()
    store = Store(passes.state / DATABASE)
    day = 86400.0
    for number in range(1, 130):
        elapsed = number * day
        ledger = Ledger(Rules(lasting=1), Now(elapsed, elapsed, 1), store.past().episodes)
        wrong = [Seen(f"c@gpu:{number}", "c", "pcie", "gpu", str(number), Status.WARN, "", "bad")]
        ledger.take(wrong, {})
        last = Last(number=number, at=elapsed, elapsed=elapsed, boot=1, passes=number, lines=number, dropped=number)
        store.keep(
            Outcome(
                last=last,
                run=RunRow(number, 1, elapsed, elapsed, 0.1, "pass", 0, 0),
                episodes=tuple(ledger.open.values()),
                ended=tuple(ledger.ended),
                keep_runs=60,
                keep_days=30.0,
            )
        )
    assert len(store.rows(RunRow, "runs")) <= 60
    database = sqlite3.connect(store.path)
    (oldest,) = database.execute("SELECT min(elapsed) FROM episodes").fetchone()
    assert oldest >= (128 - 31) * day and MOST_EPISODES > 0
    store.close()


def test_memory_of_another_node_is_no_past_of_this_one(passes: Passes, tmp_path: Path) -> None:
    """As of an image that was made of a running node."""
    passes.over(HARD)
    other = DiffNode("h100x8", tmp_path / "other")
    other.renamed("n2")
    answer = passes.told(aged(other, 10).place)
    assert answer["changes"] == [] and checks(answer) == []
