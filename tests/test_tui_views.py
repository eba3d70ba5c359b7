"""The views of the TUI, driven by textual's pilot: who is told and why, at three sizes, and nothing empty without a reason."""

import re
from collections.abc import Callable
from importlib.metadata import version

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpudoctor.details import Details, FullReport, GpuDetail
from gpudoctor.report import Node
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.rows import Rows
from gpudoctor.reports.tui.views import VIEWS, lines
from gpudoctor.reports.tui.views.two_panes import TwoPanes
from gpudoctor.verdicts import Evidence
from tests.conftest import Golden
from tests.tui_stage import LARGE, MIDDLE, SIZES, SMALL, Stage, full, on_stage, screen, shown, view

OURS = ("GPUs", "Topology", "Workloads", "Timeline", "Not seen", "Compare")
HEALTHY, HUNG, NOUVEAU = "h100x8", "nvml-hung-at-gpu4", "nouveau-and-broken-daemon-json"
POOR = "nvml-no-permission-for-user"
DENIED = "container-denied-and-another-with-old-libraries"
PODS = "time-slicing-two-pods-on-one-gpu"
MIG = "mig-mixed-strategy-on-a-mixed-layout"
LOST = "gpu-off-the-bus"


def line_with(text: str, *words: str) -> str:
    """The part of a line, left or right of the border between list and pane, that has all of these words."""
    parts = (part for line in text.splitlines() for part in line.split("▏"))
    return next(part for part in parts if all(word in part for word in words))


# GPUs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_gpu_on_which_nvml_hangs_is_told_apart_from_those_behind_it(size: tuple[int, int]) -> None:
    text = screen("GPUs", shown(HUNG), size)
    assert "8 GPUs: 1 FAIL, 3 UNKNOWN, 4 OK" in text
    assert line_with(text, "✘ FAIL", "0000:9a:00.0")
    assert line_with(text, "? UNKNOWN", "0000:ab:00.0")
    assert line_with(text, "✔ OK", "0000:18:00.0")
    assert "NVML hangs" in text or size != SMALL


def test_what_is_not_known_of_inessential_things_makes_no_healthy_gpu_unknown() -> None:
    text = screen("GPUs", shown(HEALTHY), SMALL)
    assert "8 GPUs: 8 OK" in text
    assert "topology.rails" in text, "but it is told"


def test_enter_shows_all_findings_of_a_gpu_and_enter_on_one_opens_it() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        assert line_with(stage.text, "driver-cuda.nvml-answers").startswith(" ✘ FAIL")
        assert "UUID         GPU-65a72231" in stage.text and "Who shares it" in stage.text
        await pilot.press("enter")

    stage = on_stage("GPUs", shown(HUNG), (120, 60), act, keys=("down",) * 4 + ("enter",))
    assert stage.opened == [("driver-cuda.nvml-answers@gpu:0000:9a:00.0",)]


def test_processes_are_told_with_pid_memory_and_whose_they_are() -> None:
    text = screen("GPUs", shown("memory-used-by-listed-processes"), LARGE, *("down",) * 4)
    assert line_with(text, "PID 20290", "python3, 2 GiB of service:session-7.scope")
    assert line_with(text, "PID 20117", "name not known, 33.6 GiB")


def test_the_same_list_says_who_shares_each_gpu() -> None:
    text = screen("GPUs", shown(MIG), MIDDLE, "t")
    assert line_with(text, "0000:17:00.0", "mig: 3 MIG devices")
    assert line_with(text, "0000:ca:00.0", "whole")
    text = screen("GPUs", shown(PODS), LARGE, "t")
    assert line_with(text, "time-slicing", "ml/")


def test_a_gpu_of_which_only_findings_speak_is_listed() -> None:
    report = full(LOST)
    without = replace(report, node=replace(report.node, gpus=report.node.gpus[:2]), details=Details())
    text = screen("GPUs", Shown("x", report=without), SMALL)
    assert line_with(text, "0000:3a:00.0").lstrip().startswith("✘ FAIL")


def test_counters_throttling_and_what_was_not_read_are_told_in_full() -> None:
    detail = GpuDetail(
        "0000:18:00.0",
        throttled=("power brake",),
        errors={"ecc.uncorrected": "3 uncorrected ECC errors"},
        unread=("memory: NVML gave no answer",),
    )
    told = replace(full(HEALTHY), details=Details(gpus=(detail,)))
    text = screen("GPUs", Shown("x", report=told), LARGE)
    assert line_with(text, "0000:18:00.0", "power brake", "ecc.uncorrected")
    assert "ecc.uncorrected: 3 uncorrected ECC errors" in text
    assert line_with(text, "not known", "NVML gave no answer")


# Topology --------------------------------------------------------------------------------------------------------------


def test_the_topology_is_that_of_topo_at_the_width_at_hand() -> None:
    texts = [screen("Topology", shown(HEALTHY), size) for size in SIZES]
    for text in texts:
        assert "NV18 between every two of GPU0 to GPU7" in text
        assert line_with(text, "GPU0", "0000:18:00.0", "gen5 x16")
    assert line_with(texts[-1], "GPU7", "NV18 NV18", "X")
    small = screen("Topology", shown(HEALTHY), SMALL, "G")
    assert "X" in line_with(small, "GPU7 NV18"), "the end is reached by the keys of the lists"


def test_a_filter_keeps_the_lines_of_the_drawing_that_match_and_ascii_draws_in_ascii() -> None:
    text = screen("Topology", shown(HEALTHY, words="gpu3 0000"), SMALL)
    assert "1 of" in text and "0000:5d:00.0" in text and "0000:18:00.0" not in text
    assert "Nothing matches" in screen("Topology", shown(HEALTHY, words="nonsense"), SMALL)
    plain = screen("Topology", shown(HEALTHY, ascii=True), MIDDLE)
    assert "`- switch" in plain and "└" not in plain


# Workloads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_workload_is_told_with_its_first_broken_step(size: tuple[int, int]) -> None:
    text = screen("Workloads", shown(DENIED), size)
    assert "3 workloads: 2 FAIL, 1 OK" in text
    assert line_with(text, "docker:render", "rules").lstrip().startswith("✘ FAIL")
    assert line_with(text, "docker:trainer", "libraries").lstrip().startswith("✘ FAIL")
    assert line_with(text, "docker:infer").lstrip().startswith("✔ OK")


def test_the_trace_of_a_workload_has_evidence_remedies_and_all_steps_and_a_command_is_copied() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        text = stage.text
        assert line_with(text, "evidence", "/sys/fs/cgroup/docker/")
        assert line_with(text, "next", "Give it the GPUs by CDI")
        assert "found: PID 4242 (python3)" in text
        pane = stage.query_one("Rows.about", Rows)
        place = next(n for n, row in enumerate(pane.options) if "$ docker restart render" in str(row.prompt))
        pane.highlighted = place
        await pilot.press("enter", "up", "up", "up", "y")

    stage = on_stage("Workloads", shown(DENIED), LARGE, act, keys=("enter",))
    assert stage.copied[0] == "docker restart render"
    assert len(stage.copied) == 2, "any line can be copied"


# Timeline --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_events_have_time_kind_and_gpu_and_the_findings_that_cite_them(size: tuple[int, int]) -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        items = stage.query_one("Rows.items", Rows)
        items.highlighted = next(n for n, row in enumerate(items.options) if "✘ Xid" in str(row.prompt))
        await pilot.press("enter")
        await pilot.pause()
        assert line_with(stage.text, "0000:3a:00.0")
        pane = stage.query_one("Rows.about", Rows)
        pane.highlighted = next(n for n, row in enumerate(pane.options) if "driver-cuda.xids" in str(row.prompt))
        await pilot.press("enter")

    text = screen("Timeline", shown(LOST), size)
    assert re.search(r"2026-11-29 11:40:12 +✘ Xid .*Xid 79, GPU has fal", text)
    stage = on_stage("Timeline", shown(LOST), size, act)
    assert stage.opened == [("driver-cuda.xids@gpu:0000:3a:00.0",)]


@pytest.mark.parametrize(("name", "code"), [(LOST, "xid:79"), ("sxid-fatal-on-one-nvswitch", "sxid:24007")])
def test_x_explains_the_code_of_an_event(name: str, code: str) -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        items = stage.query_one("Rows.items", Rows)
        await pilot.press("x")
        assert stage.explained == [], "a boot has no code"
        items.highlighted = next(n for n, row in enumerate(items.options) if "Xid " in str(row.prompt))
        await pilot.press("x")

    assert on_stage("Timeline", shown(name), MIDDLE, act).explained == [(code,)]


def test_a_row_stands_for_the_finding_that_matters_most_in_it() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        chosen = stage.view.chosen
        assert chosen is not None and chosen.check == "driver-cuda.nvml-answers"

    on_stage("GPUs", shown(HUNG), SMALL, act, keys=("down",) * 4)
    assert on_stage("Topology", shown(HUNG), SMALL).view.chosen is None


def test_a_filter_finds_kinds_gpus_and_places() -> None:
    text = screen("Timeline", shown(LOST, words="XID 3a:00"), MIDDLE)
    assert "1 of" in text and "✘ Xid" in text and "boot" not in text.split("What")[1].splitlines()[1]
    assert "Nothing matches the filter." in screen("Timeline", shown(LOST, words="nonsense"), SMALL)


# Not seen --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_what_was_not_seen_stands_by_the_privilege_that_would_show_it(size: tuple[int, int]) -> None:
    text = screen("Not seen", shown(POOR), size)
    assert "seen as user 1000" in text
    assert re.search(r"^ root +.*NVML does not", text, re.MULTILINE)
    assert "driver-cuda.nvml-answers" in text, "which check is blind for it"


def test_enter_shows_each_thing_and_the_checks_that_could_not_tell() -> None:
    text = screen("Not seen", shown("containers-seen-without-root"), MIDDLE, "enter")
    assert "Checks that could not tell" in text and "? UNKNOWN" in text


# All of them -----------------------------------------------------------------------------------------------------------


def _no_details(report: FullReport) -> Shown:
    return Shown("report x.json", report=replace(report, details=None))


def _nothing(report: FullReport) -> Shown:
    return Shown("x", report=replace(report, node=_empty(report.node), details=Details(), not_seen=(), results=()))


def _empty(node: Node) -> Node:
    return replace(node, gpus=())


EMPTY: dict[str, tuple[Callable[[FullReport], Shown], str]] = {
    "nothing yet": (lambda report: Shown("this node"), "There is no report."),
    "a problem": (lambda report: Shown("this node", problem="the run has brought no report"), "brought no report"),
    "no details": (_no_details, "gpudoctor run --details --format json"),
    "nothing there": (_nothing, "No GPU was seen|do not hold|No container, job|No event|Everything that|passes"),
}


@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("title", OURS)
def test_no_view_is_empty_without_saying_why(title: str, case: str) -> None:
    made, words = EMPTY[case]
    text = screen(title, made(full(HEALTHY)), SMALL)
    assert len(text.split()) > 3, text
    if case != "no details" or title in ("Topology", "Workloads", "Timeline", "GPUs"):
        assert re.search(words, " ".join(text.split()).replace(" ▏", "")), text


HOSTILE = "[bold red]x[/] \x1b[31m\x07 \u202e[link=x] \n$text-error"


def _hostile() -> FullReport:
    """Whatever a node may say, said with markup, escapes and line ends."""
    report = full(LOST)
    assert report.details is not None
    details = report.details
    results = tuple(
        replace(
            result,
            detail=HOSTILE,
            findings=tuple(
                replace(one, summary=HOSTILE, evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE),))
                for one in result.findings
            ),
        )
        for result in report.results
    )
    traced = full(DENIED).details
    assert traced is not None
    workloads = tuple(
        replace(one, title=HOSTILE, summary=HOSTILE, unit=HOSTILE, cgroup=HOSTILE) for one in traced.workloads
    )
    events = tuple(replace(event, says=HOSTILE, where=HOSTILE, stamp=HOSTILE) for event in details.timeline)
    gpus = tuple(replace(gpu, name=HOSTILE, unread=(HOSTILE,), vbios=HOSTILE) for gpu in details.gpus)
    unseen = tuple(replace(one, what=HOSTILE, would_need=HOSTILE) for one in full(POOR).not_seen)
    changed = replace(details, workloads=workloads, timeline=events, gpus=gpus)
    return replace(report, results=results, not_seen=unseen, details=changed)


@pytest.mark.parametrize("title", [title for title in OURS if title != "Topology"])
def test_a_nodes_words_are_neither_markup_nor_acted_upon(title: str) -> None:
    text = screen(title, Shown("x", report=_hostile(), against=full(HEALTHY)), LARGE, "enter")
    assert "[bold red]x[/]" in text and "\\x1b[31m\\x07" in text and "\\u202e" in text, text
    assert not set(text) & set("\x1b\x07\u202e")


def test_another_size_keeps_the_chosen_row_and_the_pane_comes_beside_it() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        assert stage.text.index("0000:db:00.0") < stage.text.index("GPU 0000:9a:00.0 NVIDIA"), "below the list"
        await pilot.resize_terminal(*LARGE)
        await pilot.pause()
        first = stage.text.splitlines()[1]
        assert first.startswith(" Status") and first.endswith("GPU 0000:9a:00.0 NVIDIA H100 80GB HBM3")
        await pilot.resize_terminal(60, 14)
        await pilot.pause()
        assert "What is known" not in stage.text and "0000:9a:00.0" in stage.text

    on_stage("GPUs", shown(HUNG), SMALL, act, keys=("down",) * 4)


def test_a_list_that_comes_later_has_the_keys_at_once() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        assert "There is no report." in stage.text
        stage.shown.report = full(HUNG)
        stage.view.show(stage.shown)
        await pilot.pause()
        await pilot.press("down", "down", "down", "down")
        await pilot.pause()
        assert line_with(stage.text, "GPU 0000:9a:00.0 NVIDIA")

    on_stage("GPUs", Shown("this node"), SMALL, act)


def test_escape_goes_back_to_the_list() -> None:
    assert "Status     #" not in screen("GPUs", shown(HUNG), SMALL, "enter")
    assert "Status     #" in screen("GPUs", shown(HUNG), SMALL, "enter", "escape")


def test_the_mouse_does_what_the_keys_do() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        await pilot.click("Rows.items", offset=(20, 4))
        await pilot.pause()
        assert line_with(stage.text, "GPU 0000:9a:00.0")
        await pilot.click("Rows.about", offset=(20, 1))

    stage = on_stage("GPUs", shown(HUNG), LARGE, act)
    assert stage.opened == [("driver-cuda.nvml-answers@gpu:0000:9a:00.0",)]


def test_a_filter_says_how_many_match_and_what_it_was() -> None:
    text = screen("GPUs", shown(HUNG, words="NVML hangs"), SMALL)
    assert "1 of 8 match 'NVML hangs'" in " ".join(text.split()) and "0000:18:00.0" not in text


def test_what_is_shown_again_without_a_change_is_not_laid_out_again() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        filled: list[Shown] = []
        stage.view._fill = filled.append  # type: ignore[attr-defined]
        stage.view.show(stage.shown)
        assert filled == []
        stage.shown.words = "9a"
        stage.view.show(stage.shown)
        assert len(filled) == 1

    on_stage("GPUs", shown(HUNG), SMALL, act)


VARIED = (
    *(HEALTHY, HUNG, NOUVEAU, POOR, DENIED, PODS, MIG, LOST),
    *(
        "nothing-recorded",
        "cpu-node-expects-none",
        "jetson-orin",
        "wsl2",
        "gb200-tray",
        "mps-daemon-with-two-clients",
    ),
    *("kubernetes-pod-gpu-healthy", "slurm-jobs-constrained", "nvml-crashes", "application-faults-on-a-healthy-gpu"),
)


@pytest.mark.parametrize("title", [title for title in OURS if title != "Topology"])
def test_every_kind_of_node_is_told_row_by_row(title: str) -> None:
    """Without a screen: each row has an id of its own and something about it, and an empty list says why."""
    rows = 0
    for name, other in zip(VARIED, (*VARIED[1:], HEALTHY), strict=True):
        one, what = view(title), shown(name, against=full(other), before=full(other))
        assert isinstance(one, TwoPanes)
        one.shown = what
        items = one.items(what)
        assert one.told(what, items) if items else one.why_empty(what), name
        assert len({item.id for item in items}) == len(items), name
        for item in items:
            assert lines.rows(list(one.about(what, item.id)), 60), (name, item.id)
        rows += len(items)
    assert rows >= 10


# As a person sees them ---------------------------------------------------------------------------------------------------

DRAWN_BY = "8.2.8"
GOLDEN = (
    ("GPUs", HUNG, ("down", "down", "down", "down")),
    ("Topology", HEALTHY, ()),
    ("Workloads", DENIED, ()),
    ("Timeline", LOST, ()),
    ("Not seen", POOR, ()),
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("title", "name", "keys"), GOLDEN)
def test_screens(title: str, name: str, keys: tuple[str, ...], size: tuple[int, int], golden: Golden) -> None:
    text = screen(title, shown(name), size, *keys)
    golden.check(f"tui/views/{title.lower().replace(' ', '-')}-{size[0]}x{size[1]}.txt", text + "\n")


@pytest.mark.parametrize(("title", "name", "keys"), [GOLDEN[0], GOLDEN[3]])
def test_pictures(title: str, name: str, keys: tuple[str, ...], golden: Golden) -> None:
    if version("textual") != DRAWN_BY:
        pytest.skip(f"the pictures were drawn by textual {DRAWN_BY}, another may choose other colours")
    stage = on_stage(title, shown(name), SMALL, keys=keys)
    golden.check(f"tui/views/{title.lower()}-80x24.svg", stage.picture + "\n")


def test_every_view_of_the_bar_is_there() -> None:
    assert {kind.title for kind in VIEWS} >= set(OURS)
    for kind in VIEWS:
        assert kind.made().id == kind.id


def test_a_bug_report_is_looked_at_in_the_same_way() -> None:
    from gpudoctor.config import Config
    from gpudoctor.details_run import run_in_full
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection
    from gpudoctor.sources.opening import open_source
    from tests.conftest import SHARED
    from tests.test_bug_reports import NOW

    place = SHARED / "corpus" / "bug-report" / "3x4070-xid79-two-lost.log.gz"
    if not place.is_file():
        pytest.skip("the shared corpus of real captures is not here")
    report = run_in_full(open_source(str(place)), Config(), built_in(deferred=True), Selection(), NOW)
    what = Shown("bug report", report=report)
    assert line_with(screen("GPUs", what, SMALL), "✘ FAIL")
    assert "Xid 79" in screen("Timeline", what, LARGE)
    assert "a recording that holds it" in screen("Not seen", what, SMALL)
    assert len(screen("Workloads", what, SMALL).split()) > 5
    assert len(screen("Topology", what, SMALL).split()) > 5


def test_that_there_may_be_more_workloads_stands_above_those_that_were_seen() -> None:
    report = full(DENIED)
    assert report.details is not None
    lacking = ("workloads: there may be more: processes (/proc/*/ns): not shown here (would need root)",)
    text = screen(
        "Workloads", Shown("x", report=replace(report, details=replace(report.details, untold=lacking))), SMALL
    )
    assert "3 workloads: 2 FAIL, 1 OK" in text and "there may be more: processes" in text


@pytest.mark.parametrize("title", ["Workloads", "Timeline", "Not seen"])
def test_the_cursor_stays_with_what_it_is_on_when_something_comes_above_it(title: str) -> None:
    """Else `y`, pressed just after a pass of a watch, copies a command of another workload."""
    report = full({"Workloads": DENIED, "Timeline": LOST, "Not seen": "containers-seen-without-root"}[title])
    assert report.details is not None
    details = report.details
    before = replace(
        report,
        not_seen=tuple(one for one in report.not_seen if one.would_need != report.not_seen[0].would_need),
        details=replace(details, workloads=details.workloads[1:], timeline=details.timeline[1:]),
    )

    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        items = stage.query_one("Rows.items", Rows)
        row = items.highlighted_option
        assert row is not None
        stage.view.show(Shown("x", report=report))
        await pilot.pause()
        now = items.highlighted_option
        assert now is not None and " ".join(str(now.prompt).split()[:3]) == " ".join(str(row.prompt).split()[:3])

    on_stage(title, Shown("x", report=before), SMALL, act)


def test_what_differs_keeps_its_row_when_something_comes_above_it() -> None:
    now, before = full(NOUVEAU), full(HEALTHY)

    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        items = stage.query_one("Rows.items", Rows)
        items.highlighted = next(n for n, row in enumerate(items.options) if "operating system" in str(row.prompt))
        stage.view.show(Shown("x", report=now, against=before))
        await pilot.pause()
        row = items.highlighted_option
        assert row is not None and "operating system" in str(row.prompt)

    same_kernel = replace(now, node=replace(now.node, kernel=before.node.kernel))
    on_stage("Compare", Shown("x", report=same_kernel, against=before), SMALL, act)
