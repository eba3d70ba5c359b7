"""The TUI: what is to be seen of healthy, sick, hung and hardly seen nodes, live and saved; its keys; how it ends."""

import base64
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpudoctor.config import Config
from gpudoctor.details_run import run_in_full
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.reports import html
from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.plain import as_ascii
from gpudoctor.reports.tui.screens import flowing
from gpudoctor.reports.tui.start import as_full
from gpudoctor.reports.tui.theme import chosen_theme
from gpudoctor.run import Selection
from gpudoctor.sources.bug_report import open_bug_report
from gpudoctor.testing import node, run_node
from tests.conftest import Golden
from tests.tui_runs import (
    LARGE,
    MIDDLE,
    SMALL,
    drive,
    full_report,
    live,
    over,
    play,
    screen_text,
    seen,
    told,
    until,
    until_nvml,
)
from tests.tui_terminal import Terminal

HEALTHY, SICK, HUNG = "h100x8", "nouveau-and-broken-daemon-json", "nvml-hung-at-gpu4"
POOR = "nvml-no-permission-for-user"
XID = "gpu-off-the-bus"
PROGRAM = str(Path(__file__).with_name("tui_program.py"))
ROOT = Path(__file__).resolve().parent.parent
HANG: dict[str, Any] = {"play": "hang"}

BUG_REPORT = f"""{"_" * 44}

Start of NVIDIA bug report log file.  Please include this file

Date: Sun Nov 29
uname: Linux n7 6.8.0-1 #1 SMP x86_64

{"_" * 44}

/usr/bin/lspci -nn

01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [RTX A5000] [10de:2231] (rev a1)

{"_" * 44}

/usr/bin/lspci -d "10de:*" -v -xxx

01:00.0 VGA compatible controller: NVIDIA Corporation GA102
\tFlags: bus master
\tKernel driver in use: nouveau

{"_" * 44}

End of NVIDIA bug report log file.
"""


def bug_report(folder: Path) -> DoctorApp:
    """The program over a bug report."""
    place = folder / "nvidia-bug-report.log"
    place.write_text(BUG_REPORT, "utf-8")
    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
    report = run_in_full(open_bug_report(place), Config(), built_in(deferred=True), Selection(), now)
    return DoctorApp(Shown(source="recording nvidia-bug-report.log", report=report, passes=1))


# What is to be seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        (HEALTHY, SMALL, ""),
        (HEALTHY, MIDDLE, ""),
        (SICK, SMALL, ""),
        (SICK, SMALL, "enter"),
        (SICK, MIDDLE, "down"),
        (SICK, LARGE, ""),
        (HUNG, SMALL, ""),
        (HUNG, LARGE, "tab enter"),
        (POOR, SMALL, ""),
        (POOR, MIDDLE, ""),
        (SICK, (40, 10), ""),
    ],
)
def test_screens(name: str, size: tuple[int, int], keys: str, golden: Golden) -> None:
    kind = f"{name}-{size[0]}x{size[1]}" + (f"-{keys.replace(' ', '-')}" if keys else "")
    golden.check(f"tui/{kind}.txt", seen(over(name), size, *keys.split()))


def test_a_bug_report_is_shown_the_same_way(tmp_path: Path, golden: Golden) -> None:
    golden.check("tui/bug-report-80x24.txt", seen(bug_report(tmp_path), SMALL))


@pytest.mark.parametrize("name", [SICK, HUNG, XID])
def test_the_first_screen_says_what_is_wrong_and_enter_what_to_do(name: str) -> None:
    report = full_report(name)
    cause = report.root_causes[0]
    remedy = report.finding(cause.findings[0]).remedies[0]
    first, page = seen(over(name), SMALL), seen(over(name), SMALL, "enter")
    assert "✘ FAIL" in first.splitlines()[0]
    assert words(cause.summary)[:3] == words(first.split("FAIL")[2])[:3] or cause.check in first
    assert remedy.say.split()[0] in page and "next" in page


def words(text: str) -> list[str]:
    """Words without whatever marks stand between them."""
    return re.findall(r"[\w.:/-]+", text)


def test_without_colour_or_beyond_ascii_the_words_say_all() -> None:
    text = seen(over(SICK, ascii=True), MIDDLE)
    ours = as_ascii(text)
    assert [line for line in text.splitlines() if line.isascii()], "most lines are ASCII by themselves"
    assert "x FAIL" in ours and "? UNKNOWN" in ours and "- BLOCKED" in ours


def test_a_link_whose_findings_follow_from_another_says_so() -> None:
    text = seen(over("module-not-loaded-and-nodes-missing-and-nvml-9"), MIDDLE)
    assert "follows from below" in text or "blocked" in text


def test_going_along_the_chain_shows_each_links_checks() -> None:
    async def along(pilot: Pilot[None]) -> None:
        await pilot.press("left", "home")
        await pilot.pause()
        assert "pcie: " in screen_text(pilot.app)
        await pilot.press("j")
        await pilot.pause()
        assert "kernel-module: " in screen_text(pilot.app)

    drive(over(HEALTHY), SMALL, along)


def test_the_filter_finds_checks_of_every_link_and_escape_shows_all_again() -> None:
    async def search(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"ecc", "enter")
        await pilot.pause()
        text = screen_text(pilot.app)
        assert "Checks with 'ecc'" in text
        await pilot.press("escape")
        await pilot.pause()
        assert "Checks with" not in screen_text(pilot.app)

    drive(over(HEALTHY), MIDDLE, search)


def test_a_click_opens_what_is_clicked_on() -> None:
    async def click(pilot: Pilot[None]) -> None:
        await pilot.click("#findings", offset=(5, 1))
        await pilot.pause()
        assert "root cause 1 of 2" in screen_text(pilot.app)
        await pilot.click("Bar", offset=(60, 0))
        await pilot.pause()
        assert "8 Log" in screen_text(pilot.app).splitlines()[2]

    drive(over(SICK), SMALL, click)


def test_resizing_lays_out_anew_and_too_small_is_said_in_a_line() -> None:
    async def resize(pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(39, 9)
        await pilot.pause()
        assert screen_text(pilot.app).split() == "too small: needs 40x10, has 39x9".split()
        await pilot.resize_terminal(*LARGE)
        await until(pilot, lambda: "This node" in screen_text(pilot.app))
        assert "root cause 1 of 2" in screen_text(pilot.app)

    drive(over(SICK), SMALL, resize)


def test_in_a_narrow_window_the_chain_takes_turns_with_the_findings() -> None:
    async def turn(pilot: Pilot[None]) -> None:
        await pilot.press("left")
        await pilot.pause()
        assert "device-plugin" in screen_text(pilot.app) and "held by nouveau" not in screen_text(pilot.app)
        await pilot.press("enter")
        await pilot.pause()
        assert "held by nouveau" in screen_text(pilot.app)

    drive(over(SICK), (50, 24), turn)


def test_words_of_a_node_are_never_markup_and_never_act_on_the_terminal() -> None:
    report = full_report(SICK)
    cause = report.root_causes[0]
    hostile = "[bold red]x[/] [@click=app.quit]q[/] \x1b]52;c;aGk=\x07 \u202egnp.exe\u202c"
    findings = tuple(
        replace(result, findings=tuple(replace(one, summary=hostile, evidence=()) for one in result.findings))
        if result.check == cause.check
        else result
        for result in report.results
    )
    told = replace(report, root_causes=(replace(cause, summary=hostile), *report.root_causes[1:]), results=findings)
    app = DoctorApp(Shown(source=hostile, report=told, passes=1))
    text = seen(app, LARGE)
    assert text.count("[bold red]x[/] [@click=app.quit]q[/]") >= 3
    assert "\\x1b]52;c;aGk=\\x07 \\u202egnp.exe" in text
    assert "\x1b" not in text and "\u202e" not in text


# Live ------------------------------------------------------------------------------------------------------------------


def test_links_fill_in_as_answers_come_and_a_slow_one_says_what_it_waits_for(tmp_path: Path, golden: Golden) -> None:
    lines = told(HEALTHY)
    begun = until_nvml(HEALTHY)
    gate = tmp_path / "open"
    app = live(play(tmp_path, *begun, {"play": "wait", "path": str(gate)}, *lines[len(begun) :]))

    async def watch(pilot: Pilot[None]) -> None:
        def says_so() -> bool:
            text = screen_text(app)
            return "waits for NVML" in text.splitlines()[0] and "It waits for NVML" in text

        await until(pilot, says_so)
        text = re.sub(r"\b\d+(\.\d)? s\b", "N s", screen_text(app))
        golden.check("tui/live-80x24.txt", text)
        gate.touch()
        await until(pilot, lambda: app.shown.report is not None)
        await pilot.pause()
        assert "✔ OK" in screen_text(app).splitlines()[0]

    drive(app, SMALL, watch)


def test_while_a_probe_hangs_keys_are_answered_and_quitting_is_immediate(tmp_path: Path) -> None:
    app = live(play(tmp_path, *until_nvml(HEALTHY), HANG))

    async def hang(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.progress and app.shown.progress.reading)
        await pilot.press("8")
        await pilot.pause()
        assert "said nothing on stderr" in screen_text(app)
        await pilot.press("1", "q")

    started = time.monotonic()
    drive(app, SMALL, hang)
    assert time.monotonic() - started < 10


def test_running_again_leaves_a_hanging_run_behind(tmp_path: Path) -> None:
    app = live(play(tmp_path, *until_nvml(HEALTHY), HANG))

    async def again(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.progress and app.shown.progress.reading)
        assert app.runs.child is not None
        hanging = app.runs.child.pid
        app.runs.argv = tuple(play(tmp_path, *told(HEALTHY)))
        await pilot.press("r")
        await until(pilot, lambda: app.shown.report is not None)
        await until(pilot, lambda: not Path(f"/proc/{hanging}").exists())
        await pilot.press("q")

    drive(app, SMALL, again)


def test_a_watch_runs_again_and_marks_what_has_changed(tmp_path: Path) -> None:
    app = live(play(tmp_path, *told(HEALTHY)), watch=1.0)
    check = "driver-cuda.nvml-answers"

    async def watch(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.passes == 1)
        app.runs.argv = tuple(play(tmp_path, *told(HUNG)))
        await until(pilot, lambda: f"{check} · ▲ new" in screen_text(app))
        await pilot.press("w")
        passes = app.shown.passes
        await until(pilot, lambda: app.shown.watch is None and app.runs.child is None)
        assert app.shown.passes - passes <= 1

    drive(app, MIDDLE, watch)


def test_a_run_without_a_report_says_why_and_so_does_the_log(tmp_path: Path) -> None:
    said = "gpudoctor: /etc/gpudoctor/config.toml: there is no check 'pcie.gpu'"
    app = live(play(tmp_path, {"play": "complain", "words": said}, {"play": "exit", "status": 3}))

    async def fail(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "There is no report" in screen_text(app))
        assert "there is no check 'pcie.gpu'" in screen_text(app)
        await pilot.press("8")
        await pilot.pause()
        assert said.rsplit(": ", maxsplit=1)[-1] in screen_text(app)

    drive(app, MIDDLE, fail)


def test_lines_that_nobody_understands_cost_themselves_only(tmp_path: Path) -> None:
    lines = told(HEALTHY)
    app = live(play(tmp_path, '{"kind": "news", "what": 1}', lines[0], '{"kind": "read"}', *lines[1:]))

    async def look(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.shown.report is not None)
        assert len([line for line in app.shown.log if "is not understood" in line]) == 2

    drive(app, SMALL, look)


# Keys ------------------------------------------------------------------------------------------------------------------


def test_explain_shows_what_gpudoctor_explain_says() -> None:
    async def explain(pilot: Pilot[None]) -> None:
        await pilot.press("x")
        await until(pilot, lambda: "presupposes" in screen_text(pilot.app))
        assert "CUDA sees only the GPUs" in screen_text(pilot.app)
        await pilot.press("escape")
        await pilot.pause()
        assert "presupposes" not in screen_text(pilot.app)

    drive(over(SICK), SMALL, explain)


def test_explain_tells_of_the_xid_that_a_finding_speaks_of() -> None:
    from gpudoctor.reports.tui.listing import chosen_for, explained_with

    report = full_report(XID)
    finding = next(one for result in report.results for one in result.findings if "Xid 79" in one.summary)
    assert "xid:79" in explained_with(chosen_for(finding.id, report), report)


def test_help_names_every_key() -> None:
    text = seen(over(SICK), LARGE, "question_mark")
    for _, description in (("y", "copy a command"), ("x", "explain"), ("w", "watch"), ("s", "save"), ("q", "quit")):
        assert description in text
    assert "No key changes the node" in text


def test_the_palette_finds_checks_by_their_names() -> None:
    async def search(pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+p")
        await pilot.press(*"row-remap")
        await until(pilot, lambda: "health.row-remap" in screen_text(pilot.app))
        await pilot.press("escape", "escape")

    drive(over(HEALTHY), MIDDLE, search)


def test_no_key_starts_anything_but_gpudoctors_that_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    def noted(commands: Sequence[str]) -> list[str]:
        asked.append(commands)
        return [sys.executable, "-I", "-S", "-c", ""]

    monkeypatch.setattr("gpudoctor.reports.tui.runs.command", noted)
    keys = [key for key in DoctorApp(Shown(""))._bindings.key_to_bindings if key not in ("q", "ctrl+c", "ctrl+q")]

    async def press(pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("escape")

    drive(over(SICK), SMALL, press)
    assert {commands[0] for commands in asked} <= {"run", "explain", "record"}


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm-256color"}, "textual-dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "textual-light"),
        ({"TERM": "xterm-256color", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "ansi-dark"),
        ({"TERM": "xterm", "COLORFGBG": "0;default;15"}, "ansi-light"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "textual-dark"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "ansi-dark"),
        ({"TERM": "xterm-256color", "TEXTUAL_THEME": "nord", "SSH_TTY": "/dev/pts/1"}, "nord"),
    ],
)
def test_the_theme_fits_the_terminal(environment: dict[str, str], theme: str) -> None:
    assert chosen_theme(None, environment) == theme
    assert chosen_theme("gruvbox", environment) == "gruvbox"


def test_paragraphs_of_an_explanation_flow_and_lists_do_not() -> None:
    long = "Everything above stands on the GPU being a function on the PCI bus,"
    assert flowing(f"id\nTitle\n\n{long}\nand no more.\n- one\n  two") == [
        "id",
        "Title",
        "",
        f"{long} and no more.",
        "- one",
        "  two",
    ]


# On a terminal ---------------------------------------------------------------------------------------------------------


def program(*arguments: str) -> list[str]:
    """What starts the program by its front door."""
    return [sys.executable, "-m", "gpudoctor", "tui", *arguments]


def played(run: list[str], *arguments: str) -> list[str]:
    """The same over a played run."""
    return [sys.executable, PROGRAM, *run, "--", *arguments]


@pytest.mark.parametrize("stuck", [HANG, {"play": "stop"}], ids=["deaf", "stopped"])
def test_quitting_while_the_run_is_stuck_is_immediate_and_leaves_the_screen_clean(
    stuck: dict[str, Any], tmp_path: Path
) -> None:
    with Terminal(played(play(tmp_path, *until_nvml(HEALTHY), stuck)), PYTHONPATH=str(ROOT)) as terminal:
        terminal.until("waits for NVML")
        pressed = time.monotonic()
        terminal.press("q")
        assert terminal.ended() == 0
        assert time.monotonic() - pressed < 3, "it waited for the run"
        assert terminal.is_clean


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_with_a_clean_screen_and_no_run_left(number: signal.Signals, tmp_path: Path) -> None:
    run = play(tmp_path, *until_nvml(HEALTHY), HANG)
    with Terminal(played(run), PYTHONPATH=str(ROOT)) as terminal:
        terminal.until("waits for NVML")
        terminal.process.send_signal(number)
        assert terminal.ended() == -number
        assert terminal.is_clean
    assert not running(run[-1])


def test_a_killed_ssh_leaves_no_program_behind(tmp_path: Path) -> None:
    run = play(tmp_path, *until_nvml(HEALTHY), HANG)
    terminal = Terminal(played(run), PYTHONPATH=str(ROOT))
    terminal.until("waits for NVML")
    for descriptor in (terminal.slave, terminal.master):
        os.close(descriptor)
    # It is no session's controlling terminal, so the kernel sends no SIGHUP either.
    terminal.process.wait(10)
    assert not running(run[-1])


def running(word: str) -> bool:
    """Whether a process has this word among its arguments."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes():
                return True
        except OSError:
            continue
    return False


def test_a_crash_is_one_line_and_3_and_leaves_the_screen_clean() -> None:
    with Terminal(played(["crash"]), PYTHONPATH=str(ROOT)) as terminal:
        assert terminal.ended() == 3
        assert terminal.is_clean
        after = terminal.said.decode().rpartition("\x1b[?1049l")[2]
        (line,) = [line for line in after.splitlines() if "gpudoctor" in line]
        assert "RuntimeError: the heading is broken" in line and "Traceback" not in after


@pytest.mark.parametrize(("terminal", "says"), [("xterm", "needs a terminal"), ("dumb", "needs a terminal")])
def test_without_a_terminal_it_is_one_line_and_3(terminal: str, says: str) -> None:
    environment = {**os.environ, "TERM": terminal}
    done = subprocess.run(
        program(), stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert says in done.stderr


def test_the_first_screen_is_painted_without_the_records_of_a_report() -> None:
    said = "import sys, gpudoctor.reports.tui.app; print(sorted({'gpudoctor.report', 'gpudoctor.registry', 'jinja2'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_dumb_terminal_is_refused() -> None:
    with Terminal(program(), TERM="dumb") as terminal:
        assert terminal.ended() == 3
        assert b"cannot draw" in terminal.said and b"\x1b" not in terminal.said


def saved(folder: Path, report: Report, form: str = "json") -> str:
    """A report in a file."""
    place = folder / f"report.{form}"
    place.write_bytes(msgspec.json.encode(report) if form == "json" else html.render(report).encode())
    return str(place)


def test_copying_sends_the_command_to_the_terminals_clipboard(tmp_path: Path) -> None:
    report = full_report(SICK)
    first = report.finding(report.root_causes[0].findings[0]).remedies[0].run[0]
    with Terminal(program(saved(tmp_path, report))) as terminal:
        terminal.until("root causes", "Quit", "held by nouveau")
        terminal.press("y")
        terminal.until("Which command?")
        terminal.press("\r")
        terminal.until(f"\x1b]52;c;{base64.b64encode(first.encode()).decode()}\x07")
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_saved_page_is_opened_as_its_json_is(tmp_path: Path) -> None:
    place = saved(tmp_path, full_report(SICK), "html")
    with Terminal(program(place), (200, 60)) as terminal:
        terminal.until("held by nouveau", "root cause 1 of 2")
        terminal.press("q")
        assert terminal.ended() == 0 and terminal.is_clean


def test_a_report_that_is_none_is_refused_before_the_screen_is_taken(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", "utf-8")
    with Terminal(program(str(tmp_path / "x.json"))) as terminal:
        assert terminal.ended() == 3
        assert b"not a report of gpudoctor" in terminal.said and b"\x1b[?1049h" not in terminal.said


def test_without_colours_none_is_sent_and_in_ascii_nothing_else(tmp_path: Path) -> None:
    place = saved(tmp_path, full_report(SICK))
    with Terminal(program(place, "--ascii"), NO_COLOR="1") as terminal:
        terminal.until("root causes", "Quit", "held by nouveau", "\x1b[1;7;39;49mx FAIL")  # what is chosen is reversed
        terminal.press("q")
        assert terminal.ended() == 0
        text = terminal.said.decode("ascii")
    colours = {code for codes in re.findall(r"\x1b\[([\d;]*)m", text) for code in codes.split(";") if code}
    assert not {code for code in colours if 30 <= int(code) <= 48 or 90 <= int(code) <= 107} - {"39"}, (
        "39 and 49 are none"
    )


def test_a_report_without_details_is_shown_as_well() -> None:
    plain = run_node(node(SICK))
    assert as_full(plain).details is None and as_full(plain).root_causes == plain.root_causes
    assert json.loads(msgspec.json.encode(as_full(plain)))["details"] is None


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (Debian: tmux)")
def test_in_a_real_tmux(tmp_path: Path) -> None:
    place = saved(tmp_path, full_report(SICK))
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]

    def say(*words: str) -> str:
        return subprocess.run([*tmux, *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout

    def until_there(*wanted: str) -> str:
        end = time.monotonic() + 20
        while not all(word in (pane := say("capture-pane", "-p")) for word in wanted):
            assert time.monotonic() < end, pane
            time.sleep(0.1)
        return pane

    command = " ".join(["env", "TERM=tmux-256color", "LANG=C.UTF-8", *program(place), "; echo left with $?; sleep 60"])
    say("new-session", "-d", "-x", "80", "-y", "24", command)
    try:
        first = until_there("2 root causes", "held by nouveau", "q Quit")
        assert "✘ FAIL" in first.splitlines()[0]
        say("send-keys", "Enter")
        until_there("root cause 1 of 2", "next", "Keep nouveau from loading")
        say("send-keys", "Escape")
        until_there("toolkit.docker-runtime")
        say("send-keys", "?")
        until_there("Keys and words")
        say("send-keys", "x")  # escape and a letter in one go are Alt and that letter
        until_there("toolkit.docker-runtime")
        say("send-keys", "q")
        assert "FAIL" not in until_there("left with 0")
    finally:
        say("kill-server")
