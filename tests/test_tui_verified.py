"""The TUI looked at again: narrow windows, odd terminals, what is typed in haste, floods, and clocks."""

import asyncio
import functools
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input

from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.child import Child
from gpudoctor.reports.tui.heading import source_line
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.plain import as_ascii
from tests.tui_runs import SMALL, drive, full_report, live, over, play, screen_text, seen, told, until, until_nvml
from tests.tui_terminal import SECONDS, Terminal

SICK, HEALTHY = "nouveau-and-broken-daemon-json", "h100x8"
HANG: dict[str, Any] = {"play": "hang"}
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(Path(__file__).with_name("tui_program.py"))


def program(*arguments: str) -> list[str]:
    """What starts the program."""
    return [sys.executable, "-m", "gpudoctor", "tui", *arguments]


@pytest.mark.parametrize(("size", "keys"), [((40, 10), ""), (SMALL, "enter"), (SMALL, "7"), ((60, 20), "2")])
def test_however_narrow_the_last_line_says_how_to_get_help_and_out(
    size: tuple[int, int], keys: str, tmp_path: Path
) -> None:
    app = live(play(tmp_path, *until_nvml(SICK), HANG), report=full_report(SICK), passes=1)
    last = seen(app, size, *keys.split()).splitlines()[-1]
    assert re.search(r"\? Help {1,2}q Quit$", last), last


def test_a_small_window_begins_with_the_words_above_the_first_row() -> None:
    text = seen(over(HEALTHY), (40, 11))
    assert "No root cause" in text and "Nothing that was looked at" in text and "No uncorrectable" in text


def test_a_key_that_is_typed_into_the_filter_is_not_offered() -> None:
    last = seen(over(SICK), SMALL, "slash").splitlines()[-1]
    assert "Show all" in last and "/ Filter" not in last


@pytest.mark.parametrize("keys", ["s", "d", "question_mark", "x", "ctrl+p", "slash", "ctrl+f", "y"])
def test_ctrl_c_quits_from_everywhere(keys: str) -> None:
    app = over(SICK)

    async def leave(pilot: Pilot[None]) -> None:
        await pilot.press(keys)
        await pilot.pause()
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)

    drive(app, SMALL, leave)


def test_a_note_below_the_topology_is_wrapped_and_not_cut() -> None:
    lines = seen(over("nvml-hung-at-gpu4"), SMALL, "3", "G").splitlines()
    notes = [number for number, line in enumerate(lines) if line.startswith("note: ")]
    assert notes
    assert all(len(line.rstrip(" ▁▂▃▄▅▆▇█")) < 80 for line in lines[notes[0] : -1])


def test_before_the_first_view_nothing_of_the_programs_own_is_to_be_seen(tmp_path: Path) -> None:
    with Terminal(
        [sys.executable, PROGRAM, *play(tmp_path, *until_nvml(HEALTHY), HANG), "--"], PYTHONPATH=str(ROOT)
    ) as one:
        one.until("waits for NVML")
        one.press("q")
        assert one.ended() == 0
        assert b"Widget" not in one.said


def test_what_is_misspelt_is_told_before_the_screen_is_taken(tmp_path: Path) -> None:
    for words, says in (
        (("--node", str(tmp_path / "n1.tar.zst")), "n1.tar.zst: no such file or directory"),
        (("--config", str(tmp_path / "c.toml")), "c.toml: No such file or directory"),
        (("--against", str(tmp_path / "b.json")), "b.json: No such file or directory"),
        ((str(tmp_path / "r.html"),), "r.html: No such file or directory"),
        (("--theme", "darkk"), "--theme darkk: there is none of that name, but "),
    ):
        with Terminal(program(*words)) as one:
            assert one.ended() == 3
            assert says in one.said.decode() and b"\x1b" not in one.said


def test_a_recording_that_is_given_as_a_report_is_told_how_to_be_named() -> None:
    with Terminal(program(str(ROOT / "fixtures" / "nodes" / SICK))) as one:
        assert one.ended() == 3
        assert "Is a directory (a recording is named by --node)" in one.said.decode()


def test_in_a_locale_without_unicode_nothing_beyond_ascii_is_sent(tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    place.write_bytes(msgspec.json.encode(full_report(SICK)))
    with Terminal(program(str(place)), LC_ALL="C", LANG="C", NO_COLOR="1") as one:
        one.until("x FAIL", "Quit", "held by nouveau")
        one.press("q")
        assert one.ended() == 0
        one.said.decode("ascii")


def test_scroll_bars_are_told_in_ascii_without_question_marks() -> None:
    assert "?" not in as_ascii("▁▂▃▄▅▆▇█▉▊▋▌▍▎▏▔▕")


def test_a_recording_that_tells_no_time_is_not_called_fresh() -> None:
    report = replace(full_report(SICK), started_at="2026-11-30T12:00:05Z")
    shown = Shown("recording log.gz", report=report, node="log.gz", began="2026-11-30T12:00:04Z")
    assert "of an unknown time" in source_line(shown).plain
    for other in (replace(shown, node=""), replace(shown, began="2026-11-30T12:00:06Z")):
        assert re.search(r"\d+ (s|minutes|hours|days) ago", source_line(other).plain)


def test_where_nothing_changes_nothing_is_sent(tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    place.write_bytes(msgspec.json.encode(full_report(SICK)))
    with Terminal(program(str(place))) as one:
        one.until("Quit", "held by nouveau")
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            one._take(0.1)
        sent = len(one.said)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            one._take(0.1)
        assert len(one.said) - sent < 300, "a line that is sent again every tick keeps a slow ssh busy"


def test_after_it_was_suspended_all_of_the_screen_is_there_again(tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    place.write_bytes(msgspec.json.encode(full_report(SICK)))
    with Terminal(program(str(place))) as one:
        one.until("Quit", "held by nouveau")
        one.process.send_signal(signal.SIGTSTP)
        end = time.monotonic() + SECONDS
        while not (one.is_clean and _state(one.process.pid) == "T"):
            assert time.monotonic() < end
            one._take(0.05)
        one.said = b""
        one.process.send_signal(signal.SIGCONT)
        one.until("2 root causes", "held by nouveau", "Quit")
        one.press("q")
        assert one.ended() == 0 and one.is_clean


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


def test_a_long_name_leaves_room_for_the_rest_of_its_line() -> None:
    report = full_report(SICK)
    shown = Shown("this node", report=replace(report, node=replace(report.node, hostname="n" * 5000)))
    assert source_line(shown).plain.startswith("n" * 64 + " ") and source_line(shown).plain.endswith("this node")


def test_what_is_copied_holds_nothing_that_a_shell_would_act_upon() -> None:
    app = over(SICK)

    async def copy(pilot: Pilot[None]) -> None:
        app.copy("name\nreboot\r\x1b[201~")
        await pilot.pause()
        assert app.clipboard == "name\\x0areboot\\x0d\\x1b[201~"

    drive(app, SMALL, copy)


def test_a_run_that_was_asked_for_puts_the_next_pass_of_a_watch_off(tmp_path: Path) -> None:
    app = live(play(tmp_path, *told(HEALTHY)), watch=30.0)

    def over_and_done(passes: int) -> bool:
        return app.shown.passes == passes and app.runs.child is None

    async def ask(pilot: Pilot[None]) -> None:
        for passes in (1, 2, 3):
            await until(pilot, functools.partial(over_and_done, passes))
            if passes < 3:
                await pilot.press("r")
        pending = [
            timer for timer in app._timers if "_next_pass" in repr(timer._callback)
        ]  # textual tells of no timers
        assert len(pending) == 1

    drive(app, SMALL, ask)


def test_a_line_of_fifty_megabytes_is_read_at_once() -> None:
    async def read() -> tuple[list[int], float]:
        lines: list[int] = []
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        child = Child([sys.executable, "-c", "import sys; sys.stdout.write('x' * 50_000_000 + '\\nlast')"])
        began = time.monotonic()
        child.follow(lambda line: lines.append(len(line)), lambda _: None, ended.set_result)
        assert await ended == 0
        return lines, time.monotonic() - began

    lines, seconds = asyncio.run(read())
    assert lines == [50_000_000, 4]
    assert seconds < 8, "it is put together anew with every piece"


@pytest.mark.parametrize(
    "run",
    [
        ["true"],
        ["sh", "-c", "head -c 300000 /dev/urandom; exit 7"],
        ["sh", "-c", "printf '\\033[2Jboom\\n' >&2; kill -9 $$"],
    ],
    ids=["nothing", "garbage", "killed"],
)
def test_a_run_that_ends_badly_is_told_and_can_be_run_again(run: list[str]) -> None:
    with Terminal([sys.executable, PROGRAM, *run, "--"], PYTHONPATH=str(ROOT)) as one:
        one.until("the run has brought no report")
        one.press("8")
        one.press("r")
        one.press("q")
        assert one.ended() == 0 and one.is_clean
        assert b"\x1b[2Jboom" not in one.said


def test_running_again_leaves_neither_files_nor_runs_behind(tmp_path: Path) -> None:
    app = live(play(tmp_path, *until_nvml(HEALTHY), HANG))

    async def again(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "It waits for NVML" in screen_text(app))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(10):
            await pilot.press("r")
        await until(pilot, lambda: len(_children()) == 1)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def _children() -> list[str]:
        return [place.parent.name for place in Path("/proc").glob("[0-9]*/cmdline") if _holds(place, str(tmp_path))]

    drive(app, SMALL, again)


def _holds(place: Path, word: str) -> bool:
    try:
        return word.encode() in place.read_bytes()
    except OSError:
        return False


def test_saving_is_finished_though_one_quits_meanwhile(tmp_path: Path) -> None:
    app: DoctorApp = over(HEALTHY)

    async def save(pilot: Pilot[None]) -> None:
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one(Input).value = str(tmp_path / "report.html")
        await pilot.press("enter", "ctrl+c")
        await until(pilot, lambda: not app.is_running)

    drive(app, SMALL, save)
    assert all(page.read_text("utf-8").rstrip().endswith("</html>") for page in tmp_path.iterdir())
