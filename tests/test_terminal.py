"""The terminal report as people see it: golden pages, widths, colour, ASCII, hostile text."""

import re
from pathlib import Path

import pytest

from gpudoctor.reports import markdown, terminal
from gpudoctor.reports.look import Look, use_color
from gpudoctor.testing import fixtures, node, run_node
from tests.conftest import Golden
from tests.test_cli import SICK, gpudoctor

PAGES = [
    "h100x8",
    "nouveau-and-broken-daemon-json",
    "vfio-holds-one-of-eight",
    "nvml-hung-at-gpu4",
    "nothing-recorded",
    "wsl2",
]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, golden: Golden) -> None:
    report = run_node(node(name))
    golden.check(f"terminal/{name}.txt", terminal.render(report, Look()))


def test_other_looks(golden: Golden) -> None:
    report = run_node(node("vfio-holds-one-of-eight"))
    golden.check("terminal/narrow.txt", terminal.render(report, Look(width=40)))
    golden.check("terminal/ascii.txt", terminal.render(report, Look(ascii=True)))
    golden.check("terminal/verbose.txt", terminal.render(report, Look(verbose=1, width=120)))
    golden.check("terminal/quiet.txt", terminal.render(report, Look(quiet=True)))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("name", PAGES)
def test_only_commands_are_wider_than_the_terminal(name: str, width: int) -> None:
    for line in terminal.render(run_node(node(name)), Look(width=width)).splitlines():
        assert len(line) <= width or line.lstrip().startswith("$ "), line


def test_colour_changes_nothing_but_colour() -> None:
    report = run_node(node("vfio-holds-one-of-eight"))
    colored = terminal.render(report, Look(color=True))
    assert "\x1b[" in colored
    plain = [line.rstrip() for line in ANSI.sub("", colored).splitlines()]
    assert plain == terminal.render(report, Look()).splitlines()


def test_status_is_never_told_by_colour_alone() -> None:
    text = terminal.render(run_node(node("nvml-mismatch")), Look(ascii=True))
    assert text.isascii()
    assert {"OK", "FAIL", "BLOCKED"} <= set(text.split())


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", ["thermal-slowdown-lasting", "lost-and-probe-failed-two-gpus"])
def test_no_word_of_ours_becomes_an_escape_where_only_ascii_is_written(name: str, width: int) -> None:
    text = terminal.render(run_node(node(name)), Look(width=width, ascii=True, verbose=1))
    assert text.isascii() and not re.search(r"\\x|\\u", text)
    assert " C" in text or " . " in text
    assert not [line for line in text.splitlines() if len(line) > width and not line.lstrip().startswith("$ ")]


def test_the_first_screen_has_verdict_chain_cause_evidence_and_first_remedy() -> None:
    screen = "\n".join(terminal.render(run_node(node("nouveau-holds-all-eight")), Look()).splitlines()[:30])
    for words in (
        "1 root cause",
        "device-nodes",
        "held by nouveau",
        "drivers/nouveau",
        "Keep nouveau from loading",
        "$ printf",
    ):
        assert words in screen, words


def test_a_ticket_has_the_commands_of_every_gpu_as_the_terminal_has() -> None:
    report = run_node(node("nodes-missing-all"))
    ticket, page = markdown.render(report), terminal.render(report, Look(verbose=1))
    commands = [f"nvidia-modprobe -c {minor}" for minor in range(8)]
    assert all(f"   {command}\n" in ticket for command in commands)
    assert "$ nvidia-modprobe -c 0" in page and "$ nvidia-modprobe -c 3" in page


def test_a_ticket_says_how_many_subjects_it_does_not_name() -> None:
    from msgspec.structs import replace

    report = run_node(node("nodes-missing-all"))
    (cause,) = report.root_causes
    many = replace(report, root_causes=(replace(cause, subjects=cause.subjects * 3),))
    assert "`0000:db:00.0` and 8 more\n" in markdown.render(many)
    assert " more\n" not in markdown.render(report).partition("## FAIL")[2].partition("Explains")[0].partition("\n")[2]


def _below_heading(text: str) -> str:
    return text.split("\n\n", 1)[1]


def test_like_nodes_print_like_bytes_below_the_heading() -> None:
    """Host name, time and UUIDs differ between nodes; the page below the heading must not."""
    report = run_node(node("vfio-holds-one-of-eight"))
    from msgspec.structs import replace

    gpus = tuple(replace(gpu, uuid=f"GPU-{number}") for number, gpu in enumerate(report.node.gpus))
    other = replace(
        report,
        seconds=9.9,
        started_at="2027-01-01T00:00:00Z",
        node=replace(report.node, hostname="elsewhere", boot_id="x", gpus=gpus),
    )
    page, other_page = (terminal.render(one, Look()) for one in (report, other))
    assert page != other_page
    assert _below_heading(page) == _below_heading(other_page)
    assert "GPU-" not in _below_heading(page) and report.node.hostname not in _below_heading(page).split()
    assert terminal.render(report, Look(quiet=True)) == terminal.render(other, Look(quiet=True))


def test_hostile_text_cannot_drive_the_terminal(tmp_path: Path) -> None:
    import shutil

    from gpudoctor.sources.snapshot import open_snapshot

    hostile = tmp_path / "node"
    shutil.copytree(fixtures() / "daemon-json-trailing-comma", hostile, symlinks=True)
    (hostile / "root/etc/docker/daemon.json").write_text('{"a": \x1b]0;owned\x07 \u202e [bold]x[/bold]')
    text = terminal.render(run_node(open_snapshot(hostile)), Look(width=200))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\x1b]0;owned" in text.replace("\\\\", "\\") and "[bold]x[/bold]" in text


@pytest.mark.parametrize(
    ("wish", "terminal_there", "environment", "colored"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"CLICOLOR_FORCE": "1"}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False),
        ("auto", False, {"CLICOLOR_FORCE": "1"}, True),
        ("auto", False, {"CLICOLOR_FORCE": "0"}, False),
        ("auto", True, {"CLICOLOR": "0"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True),
    ],
)
def test_when_colour_is_used(wish: str, terminal_there: bool, environment: dict[str, str], colored: bool) -> None:
    assert use_color(wish, terminal_there, environment) is colored


def test_a_locale_that_is_not_utf8_gets_ascii() -> None:
    for locale in (
        {"LC_ALL": "C"},
        {"LC_ALL": "", "LANG": "POSIX"},
        {"LC_ALL": "", "LANG": ""},
        {"PYTHONIOENCODING": "latin-1"},
    ):
        ended = gpudoctor("--node", SICK, **{"PYTHONUTF8": "", **locale})
        assert ended.returncode == 2 and ended.stdout.isascii() and "x FAIL" in ended.stdout
    assert "✘" in gpudoctor("--node", SICK, PYTHONUTF8="", LC_ALL="C.UTF-8").stdout


def test_a_pipe_has_80_columns_unless_told() -> None:
    assert max(map(len, gpudoctor("--node", SICK).stdout.splitlines()[:10])) <= 80
    assert max(map(len, gpudoctor("--node", SICK, COLUMNS="120").stdout.splitlines()[:10])) > 80
