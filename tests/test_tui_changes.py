"""What changed, in the TUI: marks since the pass before, the passes of a session, and what differs from a saved report."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpudoctor.details import FullReport
from gpudoctor.diff import Way
from gpudoctor.reports import json as as_json
from gpudoctor.reports.tui import marks
from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.marks import GLYPHS, FindingMarks, changes_line, finding_marks, hot_plugged, noted
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.rows import Rows
from gpudoctor.reports.tui.runs import End
from gpudoctor.reports.tui.views.against import AgainstError, against_report
from gpudoctor.testing import fixtures
from gpudoctor.verdicts import Status, SubjectKind
from tests.conftest import Golden
from tests.test_tui_asking import Doctor, inside
from tests.test_tui_views import line_with
from tests.tui_stage import LARGE, MIDDLE, SIZES, SMALL, Stage, full, on_stage, screen, shown, text_of

HEALTHY, HUNG, NOUVEAU = "h100x8", "nvml-hung-at-gpu4", "nouveau-and-broken-daemon-json"
FABRIC = "fabric-manager-down-and-daemon-json-broken"


def at(report: FullReport, time: str) -> FullReport:
    """The report of another moment of the same day."""
    return replace(report, started_at=f"2026-11-29T{time}Z")


def passes(*names: str) -> Shown:
    """A session over these nodes, one pass after the other, half a minute apart."""
    what = Shown("this node", live=True, watch=30.0)
    for number, name in enumerate(names):
        report = at(full(name), f"12:{number // 2:02}:{number % 2 * 30:02}")
        what.before, what.report = what.report, report
        what.history = noted(what.history, what.before, report)
        what.passes += 1
    return what


# Marks -----------------------------------------------------------------------------------------------------------------


def test_each_check_that_changed_has_the_word_of_the_diff() -> None:
    found = marks.marks(full(HEALTHY), full(NOUVEAU))
    assert found["kernel-module.gpu-bound"] == found["toolkit.docker-runtime"] == "new"
    assert found["topology.gpus-alike"] == "no longer known"
    assert "pcie.gpu-responds" not in found
    back = marks.marks(full(NOUVEAU), full(HEALTHY))
    assert back["kernel-module.gpu-bound"] == back["toolkit.docker-runtime"] == "healed"
    assert back["topology.gpus-alike"] == "known again"
    assert marks.marks(full(HEALTHY), full(HEALTHY)) == {}


def test_a_warning_that_becomes_a_fail_is_worse_and_the_other_way_round_better() -> None:
    mild, bad = full("ecc-error-on-gpu-3-and-daemon-json-broken"), full("ecc-error-on-gpu-3-and-daemon-json-broken")
    check = next(cause.check for cause in bad.root_causes if cause.check.startswith("health."))
    mild = msgspec.json.decode(
        msgspec.json.encode(replace(bad, results=tuple(_milder(one, check) for one in bad.results))), type=FullReport
    )
    assert marks.marks(mild, bad) == {check: "worse"}
    assert marks.marks(bad, mild) == {check: "better"}


def _milder(result: Any, check: str) -> Any:
    if result.check != check:
        return result
    findings = tuple(replace(one, status=Status.WARN) if one.status is Status.FAIL else one for one in result.findings)
    return replace(result, status=Status.WARN, findings=findings)


def test_marks_of_findings_know_their_subject() -> None:
    found = finding_marks(full(HEALTHY), full(HUNG))
    words = {
        one.subject.key: found.of(one.id, one.subject)
        for one in full(HUNG).result("driver-cuda.nvml-answers").findings
        if one.subject.kind is SubjectKind.GPU
    }
    assert words["0000:9a:00.0"] == "new"
    assert words["0000:ab:00.0"] == "no longer known"
    assert words["0000:18:00.0"] == ""
    assert not finding_marks(None, full(HUNG)).words


def test_the_line_of_changes_counts_root_causes_and_says_since_when() -> None:
    before = at(full(HEALTHY), "11:59:30")
    assert changes_line(before, full(HUNG)) == "since 11:59:30Z: 1 new, 7 no longer known"
    assert changes_line(before, full(HEALTHY)) == "no change since 11:59:30Z"


def test_every_sign_has_a_twin_in_ascii_and_a_word_so_that_colour_tells_nothing_alone() -> None:
    assert all(fancy and plain.isascii() for fancy, plain in GLYPHS.values())
    text = screen("GPUs", passes(HEALTHY, HUNG), LARGE)
    assert line_with(text, "0000:9a:00.0", "✘ FAIL", "▲ new")
    assert line_with(text, "0000:ab:00.0", "◌ no longer known")
    what = passes(HEALTHY, HUNG)
    what.ascii = True
    assert line_with(screen("GPUs", what, LARGE), "0000:9a:00.0", "x FAIL", "^ new")


def test_of_what_changed_in_a_gpu_the_list_marks_what_matters_most(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = "gpu:0000:4e:00.0"
    found = {("health.row-remap-pending", gpu): "new", ("topology.rails", gpu): "no longer known"}
    monkeypatch.setattr("gpudoctor.reports.tui.views.gpus.finding_marks", lambda *_: FindingMarks(found))
    text = screen("GPUs", shown("ecc-error-on-gpu-3-and-daemon-json-broken"), LARGE)
    assert line_with(text, "✘ FAIL", "0000:4e:00.0", "▲ new")


def test_gpus_that_came_and_went_are_told_where_both_listings_are_whole() -> None:
    eight = full(HEALTHY)
    seven = replace(eight, node=replace(eight.node, gpus=eight.node.gpus[:-1]))
    [gone] = hot_plugged(eight, seven)
    assert gone.startswith("GPU 0000:db:00.0 has gone: NVIDIA H100")
    [came] = hot_plugged(seven, eight)
    assert came.startswith("GPU 0000:db:00.0 is new: ")
    assert hot_plugged(eight, eight) == []


def test_the_chain_and_its_lists_are_marked_by_sign_and_word() -> None:
    what = passes(HEALTHY, HUNG)
    assert what.before is not None and what.report is not None
    what.marks = marks.marks(what.before, what.report)
    text = play(DoctorApp(what), MIDDLE)
    assert "since 12:00:00Z: 1 new, 7 no longer known" in text.splitlines()[0]
    assert re.search(r"✘ FAIL +driver-cuda +▲ new", text)
    assert re.search(r"driver-cuda.nvml-answers .* ▲ new", text)
    what.ascii = True
    assert re.search(r"x FAIL +driver-cuda +\^ new", play(DoctorApp(what), MIDDLE))


# Passes ----------------------------------------------------------------------------------------------------------------


def test_the_passes_of_a_session_are_listed_with_what_changed_in_each() -> None:
    text = screen("Compare", passes(HEALTHY, HUNG, HEALTHY, HEALTHY), LARGE)
    assert "4 passes of this session" in text
    assert line_with(text, "12:00:00Z", "✔ OK", "the first pass")
    assert line_with(text, "12:00:30Z", "✘ FAIL", "1 new, 7 no longer known")
    assert line_with(text, "12:01:00Z", "1 healed, 7 known again")
    assert line_with(text, "12:01:30Z", "nothing")
    text = screen("Compare", passes(HEALTHY, HUNG), SMALL, "enter")
    assert line_with(text, "▲ broke", "driver-cuda.nvml-answers: GPU 0000:9a:00.0: NVML hangs")


def test_only_the_last_hundred_passes_are_kept() -> None:
    what = passes(*(HEALTHY,) * 103)
    assert len(what.history) == 100 and what.history[0].number == 4 and what.history[-1].number == 103


def test_whoever_looks_at_the_newest_pass_goes_on_to_the_next() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        items = stage.query_one("Rows.items", Rows)
        assert items.chosen == "1"
        stage.view.show(passes(HEALTHY, HUNG))
        await pilot.pause()
        assert items.chosen == "2"
        await pilot.press("down")
        stage.view.show(passes(HEALTHY, HUNG, HEALTHY))
        await pilot.pause()
        assert items.chosen == "1", "who has chosen an older one stays with it"

    on_stage("Compare", passes(HEALTHY), SMALL, act)


# Against a saved report ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_what_broke_comes_first_and_identity_is_folded(size: tuple[int, int]) -> None:
    text = screen("Compare", shown(NOUVEAU, against=full(HEALTHY), against_name="yesterday.json"), size)
    lines = [line for line in text.splitlines() if line.startswith((" ▲", " ≠"))]
    assert "kernel-module.gpu-bound" in lines[0] and lines[0].startswith(" ▲ broke")
    assert "toolkit.docker-runtime" in lines[1]
    assert line_with(text, "≠ changed", "versions", "kernel: 5.15.0")
    assert line_with(text, "· not compared"), "a saved report does not hold all"
    other = replace(full(HEALTHY), node=replace(full(HEALTHY).node, hostname="n2"))
    text = screen("Compare", shown(HEALTHY, against=other), size)
    assert line_with(text, "≡ identity", "by identity only: host name")


def test_enter_tells_what_was_before_and_opens_what_is_now() -> None:
    async def act(stage: Stage, pilot: Pilot[None]) -> None:
        assert line_with(stage.text, "before", "well: held by nvidia")
        assert line_with(stage.text, "evidence", "/sys/bus/pci/devices/")
        await pilot.press("down", "enter")

    what = shown(NOUVEAU, against=full(HEALTHY))
    stage = on_stage("Compare", what, MIDDLE, act, keys=("enter",))
    assert stage.opened[0][0] == "kernel-module.gpu-bound@gpu:0000:18:00.0" and len(stage.opened[0]) == 8


def test_nothing_that_differs_is_said_in_words() -> None:
    text = screen("Compare", shown(HEALTHY, against=full(HEALTHY)), SMALL)
    assert "the same, as far as both tell" in " ".join(text.split())
    assert "There are no passes" not in text


def test_b_goes_from_the_saved_report_to_the_passes_and_back() -> None:
    what = passes(HEALTHY, HUNG)
    what.against = full(NOUVEAU)
    assert "▼ healed" in screen("Compare", what, SMALL)
    assert "2 passes of this session" in screen("Compare", what, SMALL, "b")
    assert "▼ healed" in screen("Compare", what, SMALL, "b", "b")


def test_two_nodes_are_compared_as_two_nodes() -> None:
    other = replace(
        full(NOUVEAU),
        node=replace(full(NOUVEAU).node, hostname="n2", boot_id="other", gpus=full(NOUVEAU).node.gpus[:0]),
    )
    assert marks.diff_of(full(HEALTHY), other, None, ("a", "b")).way is Way.NODES
    text = screen("Compare", Shown("x", report=other, against=full(HEALTHY)), SMALL)
    assert line_with(text, "▲ in B only", "toolkit.docker-runtime")


def test_screens(golden: Golden) -> None:
    what = shown(NOUVEAU, against=full(HEALTHY), against_name="yesterday.json")
    for size in SIZES:
        golden.check(f"tui/views/compare-{size[0]}x{size[1]}.txt", screen("Compare", what, size) + "\n")
    golden.check("tui/views/passes-80x24.txt", screen("Compare", passes(HEALTHY, HUNG, HEALTHY), SMALL) + "\n")


# Naming what to compare with ---------------------------------------------------------------------------------------------


def play(app: DoctorApp, size: tuple[int, int], *keys: str, until: str = "") -> str:
    """What the whole program shows after these keys; words are typed. It waits until it shows `until`."""

    async def run() -> str:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                await (
                    pilot.press(key) if len(key) < 12 and " " not in key and "/" not in key else _type(app, pilot, key)
                )
            for _ in range(200):
                await pilot.pause()
                if not until or until in text_of(app):
                    break
                await asyncio.sleep(0.05)
            return text_of(app)

    return asyncio.run(run())


async def _type(app: DoctorApp, pilot: Pilot[None], words: str) -> None:
    from textual.widgets import Input

    app.screen.query_one(Input).value = words
    await pilot.pause()


def test_d_asks_for_a_report_and_shows_what_differs(tmp_path: Path) -> None:
    place = tmp_path / "yesterday.json"
    place.write_text(as_json.render(full(HEALTHY)), "utf-8")
    app = DoctorApp(shown(NOUVEAU))
    text = play(app, SMALL, "d", str(place), "enter", until="▲ broke")
    assert line_with(text, "▲ broke", "kernel-module.gpu-bound")
    assert app.shown.against_name == str(place)


def test_what_is_not_there_is_said_and_the_question_stays(tmp_path: Path) -> None:
    text = play(DoctorApp(shown(NOUVEAU)), SMALL, "d", f"{tmp_path}/nothing.json", "enter")
    assert "no such file or directory" in inside(text)
    assert "Compare what is shown (B) with (A)" in text


def test_a_recording_is_made_a_report_by_a_child_and_what_is_none_is_refused(tmp_path: Path) -> None:
    app = DoctorApp(shown(NOUVEAU))

    async def ask() -> None:
        report = await against_report(app, str(fixtures() / HEALTHY))
        assert report.node.hostname == "n1" and report.exit_code == 0
        (tmp_path / "x.json").write_text('{"schema": "gpudoctor.report/1"}')
        with pytest.raises(AgainstError, match="not a report of gpudoctor"):
            await against_report(app, str(tmp_path / "x.json"))
        (tmp_path / "x.bin").write_bytes(b"\x00\x01")
        with pytest.raises(AgainstError, match=r"x\.bin"):
            await against_report(app, str(tmp_path / "x.bin"))

    asyncio.run(ask())


def test_of_two_recordings_the_counters_are_compared_too_as_diff_does() -> None:
    name = "pcie-replays-growing"
    places = str(fixtures() / HEALTHY), str(fixtures() / name)
    app = DoctorApp(shown(name, against=full(HEALTHY), against_name=places[0], node=places[1]))
    text = play(app, LARGE, "7", until="# counter")
    assert line_with(text, "# counter", "0000:db:00.0", "PCIe replays: 0 → 48,211  +48,211")


def test_both_sides_are_judged_by_the_same_configuration() -> None:
    """Else a limit of the user's own looks like a difference."""
    options = ("--config", "c.toml", "--kubeconfig", "k")
    app = Doctor(shown(NOUVEAU), End(0, as_json.render(full(HEALTHY)), ""), options)
    asyncio.run(against_report(app, str(fixtures() / HEALTHY)))
    assert app.asked == [("run", "--node", str(fixtures() / HEALTHY), "--format", "json", "--config", "c.toml")]
    places = str(fixtures() / HEALTHY), str(fixtures() / NOUVEAU)
    told = shown(NOUVEAU, against=full(HEALTHY), against_name=places[0], node=places[1])
    app = Doctor(told, source_options=("--root", "/host"))
    play(app, SMALL, "7")
    assert app.asked == [("diff", "--format", "json", *places)]
    app = Doctor(told, source_options=options)
    play(app, SMALL, "7")
    assert app.asked == [("diff", "--format", "json", "--config", "c.toml", *places)]


def test_against_takes_a_recording_too_which_is_looked_at_behind_the_first_screen(tmp_path: Path) -> None:
    from gpudoctor.reports.tui import start
    from gpudoctor.sources.errors import SourceError

    (tmp_path / "a.json").write_text(as_json.render(full(HEALTHY)), "utf-8")
    assert start._against(str(tmp_path / "a.json")) == full(HEALTHY)
    assert start._against(str(fixtures() / HEALTHY)) is None and start._against(None) is None
    with pytest.raises(SourceError, match="nothing"):
        start._against(str(tmp_path / "nothing.json"))
    app = DoctorApp(shown(NOUVEAU, against_name=str(fixtures() / HEALTHY)))
    assert "kernel-module" in play(app, SMALL), "meanwhile the diagnosis stands there"
    app = DoctorApp(shown(NOUVEAU, against_name=str(fixtures() / HEALTHY)))
    assert line_with(play(app, LARGE, "7", until="▲ broke"), "▲ broke", "kernel-module.gpu-bound")
