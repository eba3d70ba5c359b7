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
from gpudoctor.reports.tui.heading import source_line, verdict_line
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.plain import as_ascii
from gpudoctor.reports.tui.theme import clipboard_note
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


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, "set -g set-clipboard on"),
        ({"TERM": "screen", "STY": "1.pts-0.n1"}, "GNU screen keeps it to itself"),
        ({"TERM": "linux"}, "the Linux console has no clipboard"),
        ({"TERM": "xterm-256color"}, ""),
    ],
)
def test_where_a_copy_does_not_arrive_it_is_not_called_one(environment: dict[str, str], says: str) -> None:
    note = clipboard_note(environment)
    assert says in note if says else note == ""


def test_what_cannot_be_compared_with_stands_in_the_log_too(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no recording\n")
    app = over(SICK, against_name=str(tmp_path / "words.txt"))

    async def look(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.log)
        await pilot.press("8")
        await until(pilot, lambda: "not an nvidia-bug-report log" in " ".join(screen_text(app).split()))

    drive(app, SMALL, look)


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


# Keys that answer ------------------------------------------------------------------------------------------------------


def notices(app: DoctorApp) -> list[str]:
    """What was said at the edge."""
    return [notice.message for notice in app._notifications]


@pytest.mark.parametrize("key", ["r", "w"])
def test_over_a_saved_report_the_keys_of_runs_say_that_there_is_nothing_to_run(key: str) -> None:
    app = over(SICK)

    async def press(pilot: Pilot[None]) -> None:
        assert "r Re-run" not in screen_text(app) and "w Watch" not in screen_text(app)
        await pilot.press(key)
        await pilot.pause()
        assert notices(app) == ["A saved report is shown: there is nothing to run."]
        assert app.shown.watch is None and app.runs.child is None

    drive(app, SMALL, press)


@pytest.mark.parametrize("view", "12345678")
def test_escape_clears_the_filter_in_every_view(view: str) -> None:
    app = over(SICK)

    async def leave(pilot: Pilot[None]) -> None:
        await pilot.press(view)
        await pilot.press("slash", "a", "enter")
        await pilot.pause()
        assert app.shown.words == "a"
        await pilot.press("escape")
        await pilot.pause()
        assert app.shown.words == "" and not app.query("#filter")

    drive(app, SMALL, leave)


def test_a_click_on_a_view_goes_there_while_one_writes_a_filter() -> None:
    app = over(SICK)

    async def click(pilot: Pilot[None]) -> None:
        await pilot.press("slash", "a")
        await pilot.click("Bar", offset=(16, 0))
        await pilot.pause()
        assert app.shown.words == "a" and "GPUs: " in screen_text(app)

    drive(app, SMALL, click)


def test_what_a_filter_hides_is_opened_all_the_same() -> None:
    app = over(SICK)

    async def go(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"nouveau", "enter")
        await app.open_findings(("toolkit.docker-runtime@",))
        await until(pilot, lambda: "daemon.json" in screen_text(app) and "next" in screen_text(app))
        assert app.shown.words == ""

    drive(app, SMALL, go)


def test_in_a_narrow_window_a_finding_is_opened_in_place_of_the_chain() -> None:
    app = over(SICK)

    async def go(pilot: Pilot[None]) -> None:
        await pilot.press("left")
        await app.open_findings(("pcie.gpu-responds@",))
        await until(pilot, lambda: "pcie.gpu-responds" in screen_text(app))

    drive(app, (50, 24), go)


def test_a_filter_says_how_many_of_the_root_causes_it_leaves() -> None:
    assert "1 of 2 root causes" in seen(over(SICK), SMALL, "slash", *"nouveau", "enter")
    assert "0 of 2 root causes" in seen(over(SICK), SMALL, "slash", *"row-remap", "enter")
    assert "No root cause\n" in re.sub(" +", " ", seen(over(HEALTHY), SMALL, "slash", *"ecc", "enter"))


def test_the_line_of_keys_is_made_anew_for_another_width() -> None:
    app = over(SICK)

    async def resize(pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(44, 20)
        await until(pilot, lambda: screen_text(app).splitlines()[-1].endswith("? Help q Quit"))
        await pilot.resize_terminal(*SMALL)
        await until(pilot, lambda: "d Diff" in screen_text(app).splitlines()[-1])

    drive(app, SMALL, resize)


def test_a_view_that_two_want_at_once_is_made_once() -> None:
    app = over(SICK)

    async def go(pilot: Pilot[None]) -> None:
        await asyncio.gather(app.action_go_to("7"), app.action_go_to("7"))
        await pilot.pause()
        assert app.crash is None and len(app.query("#view-compare")) == 1

    drive(app, SMALL, go)


def test_enter_where_nothing_is_behind_a_line_and_b_without_a_saved_report_say_so(tmp_path: Path) -> None:
    app = live(play(tmp_path, *told(SICK)))

    async def press(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.report is not None)
        await pilot.press("7", "b")
        await pilot.pause()
        assert notices(app) == ["There is no saved report beside the passes: d compares with one."]
        await pilot.press("enter", "G", "enter")
        await pilot.pause()
        assert notices(app)[1:] == ["There is nothing behind this line; y copies it."]

    drive(app, SMALL, press)


# Runs that cannot be, and passes while one reads -------------------------------------------------------------------------


def test_a_node_that_lets_no_run_be_started_costs_neither_the_program_nor_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = live(play(tmp_path, *told(HEALTHY)), watch=0.2)

    async def again(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.report is not None)
        good, app.runs.argv = app.runs.argv, ("/nonexistent/python3",)
        await until(pilot, lambda: app.shown.problem)
        assert "it cannot be started: No such file or directory" in app.shown.problem
        assert "✔ OK" in screen_text(app).splitlines()[0]
        passes, app.runs.argv = app.shown.passes, good
        await until(pilot, lambda: app.shown.passes > passes)
        assert app.shown.problem == "", "the watch goes on"
        monkeypatch.setattr("gpudoctor.reports.tui.runs.command", lambda words: ["/nonexistent/python3"])
        end = await app.outcome_of("explain", "x")
        assert (end.status, end.stderr) == (-1, "gpudoctor cannot be started: No such file or directory")

    drive(app, SMALL, again)


def test_why_there_is_no_report_is_never_what_was_said_before_that_run(tmp_path: Path) -> None:
    app = live(play(tmp_path, *told(HEALTHY)))

    async def fail(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.passes == 1 and app.runs.child is None)
        app.runs.log("GPU 0000:3a:00.0 has gone")
        app.runs.argv = ("sh", "-c", "kill -9 $$")
        await pilot.press("r")
        await until(pilot, lambda: app.shown.problem)
        assert app.shown.problem == "the run has brought no report: it ended with -9"

    drive(app, SMALL, fail)


def test_the_next_pass_leaves_the_page_where_one_reads(tmp_path: Path) -> None:
    app = live(play(tmp_path, *told(SICK)))

    async def read(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.passes == 1 and app.runs.child is None)
        await pilot.press("enter")
        await until(pilot, lambda: "root cause 1 of 2" in screen_text(app))
        await pilot.press("G")
        page = app.query_one("#page")
        await until(pilot, lambda: page.scroll_y > 0)
        place = page.scroll_y
        await pilot.press("r")
        await until(pilot, lambda: app.shown.passes == 2)
        assert page.scroll_y == place

    drive(app, SMALL, read)


def test_a_report_of_tomorrow_is_not_called_fresh() -> None:
    report = replace(full_report(SICK), started_at="2099-01-01T00:00:00Z")
    told_of = source_line(Shown("report x.json", report=report)).plain
    assert "2099-01-01 00:00 UTC, ahead of this clock" in told_of and "ago" not in told_of


def test_in_a_narrow_heading_what_changed_comes_before_that_it_is_watched() -> None:
    before, after = full_report("nvml-hung-at-gpu4"), full_report("nvml-no-permission-for-user")
    shown = Shown("this node", live=True, watch=10.0, report=after, before=before)
    line = verdict_line(shown).plain
    assert line.index("since ") < line.index("watching, every 10 s")


def test_what_a_run_refuses_is_told_before_the_screen_is_taken(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no recording\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "config.toml").write_text("[nonsense]\n")
    node = str(ROOT / "fixtures" / "nodes" / HEALTHY)
    for words, says in (
        (("--node", str(tmp_path / "words.txt")), "words.txt: not an nvidia-bug-report log"),
        (("--node", str(tmp_path / "empty")), "empty: neither a snapshot"),
        (("--node", f"{node}:n2"), "holds one node only: leave out :n2"),
        (("--node", node, "--config", str(tmp_path / "config.toml")), "config.toml"),
        (("--node", node, str(tmp_path / "report.json")), "a saved report and --node are two things to look at"),
    ):
        with Terminal(program(*words)) as one:
            assert one.ended() == 3
            assert says in one.said.decode() and one.said.count(b"gpudoctor: ") == 1 and b"\x1b" not in one.said


def test_in_a_directory_that_was_removed_one_can_still_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    app = over(HEALTHY)

    async def save(pilot: Pilot[None]) -> None:
        await pilot.press("s")
        await until(pilot, lambda: "to a new file" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "No such file or directory" in screen_text(app))
        app.screen.query_one(Input).value = str(tmp_path / "report.json")
        await pilot.press("enter")
        await until(pilot, (tmp_path / "report.json").exists)

    drive(app, SMALL, save)
