"""What the TUI asks for: words to search for, and a place to save to. Nothing is written but what was named, and nothing over anything."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.widgets import Input

from gpudoctor.reports.saved import read_report
from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.runs import End
from gpudoctor.reports.tui.saving import FORMS, MODE, form_of, proposed_stem, refused
from gpudoctor.reports.tui.search import places, search
from gpudoctor.verdicts import Status
from tests.test_tui_views import line_with
from tests.tui_stage import LARGE, SMALL, full, shown, text_of

NOUVEAU, HEALTHY, HUNG = "nouveau-and-broken-daemon-json", "h100x8", "nvml-hung-at-gpu4"


class Doctor(DoctorApp):
    """The program, which asks no other gpudoctor anything: what it would ask is kept."""

    def __init__(self, what: Shown, end: End | None = None, source_options: Sequence[str] = ()) -> None:
        super().__init__(what, source_options=source_options)
        self.asked: list[tuple[str, ...]] = []
        self.said: list[str] = []
        self._end = end or End(0, "", "")

    async def outcome_of(self, *words: str) -> End:
        """Keep the words."""
        self.asked.append(words)
        return self._end

    def notify(self, message: str, **more: object) -> None:
        """Keep the notice."""
        assert more.get("markup") is False, "a path may look like markup"
        self.said.append(message)


def asked(app: Doctor, size: tuple[int, int], key: str, value: str, *keys: str) -> str:
    """Press a key, give the question this answer, press more keys; what stands on the screen then."""

    async def run() -> str:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await pilot.press(key)
            await _asks(app)
            app.screen.query_one(Input).value = value
            await pilot.pause()
            for more in keys:
                await pilot.press(more)
                await pilot.pause()
            await asyncio.sleep(0.05)
            await pilot.pause()
            return text_of(app)

    return asyncio.run(run())


async def _asks(app: DoctorApp) -> None:
    """Until the question is there."""
    for _ in range(1000):
        if app.screen.query(Input):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was asked")


def inside(text: str) -> str:
    """The words within the frame of a question."""
    lines = (line.split("│") for line in text.splitlines() if line.count("│") == 2)
    return " ".join(" ".join(parts[1] for parts in lines).split())


# Search ----------------------------------------------------------------------------------------------------------------


def test_the_search_finds_words_of_checks_findings_evidence_subjects_and_remedies() -> None:
    every = places(full(NOUVEAU))
    kinds = {place.kind for place in search(every, "NOUVEAU")}
    assert kinds == {"check", "finding", "evidence", "remedy"}
    [trailing] = [place for place in search(every, "daemon.json line 9") if place.kind == "finding"]
    assert trailing.opens.startswith("toolkit.docker-runtime@")
    assert search(every, "  ") == [] and search(every, "nouveau nonsense") == []


def test_what_is_wrong_comes_first_and_what_differs_in_an_address_comes_once() -> None:
    found = search(places(full(NOUVEAU)), "nouveau")
    assert found[0].status is Status.FAIL and found[-1].status is not Status.FAIL
    assert len([place for place in found if place.kind == "finding" and place.check == "kernel-module.gpu-bound"]) == 1
    one = [place for place in search(places(full(NOUVEAU)), "nouveau 0000:9a:00.0") if place.kind == "finding"]
    assert one[0].opens == "kernel-module.gpu-bound@gpu:0000:9a:00.0", "an address that was asked for is found"


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_enter_on_what_was_found_opens_its_finding(size: tuple[int, int]) -> None:
    app = Doctor(shown(NOUVEAU))
    text = asked(app, size, "ctrl+f", "trailing comma property name")
    assert "0 found" in text
    text = asked(Doctor(shown(NOUVEAU)), size, "ctrl+f", "property name enclosed")
    assert line_with(text, "✘ FAIL", "toolkit.docker-runtime", "property name")
    text = asked(Doctor(shown(NOUVEAU)), size, "ctrl+f", "property name enclosed", "enter")
    assert "/etc/docker/daemon.json" in text and "Search checks" not in text
    text = asked(Doctor(shown(NOUVEAU)), size, "ctrl+f", "nouveau", "escape")
    assert "Search checks" not in text


def test_before_there_is_a_report_the_search_says_so() -> None:
    assert "There is nothing to search yet." in asked(Doctor(Shown("this node")), SMALL, "ctrl+f", "x")


# Saving ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_report_is_saved_with_its_details_and_read_back_equal(name: str, tmp_path: Path) -> None:
    app = Doctor(shown(HEALTHY))
    asked(app, SMALL, "s", str(tmp_path / name), "enter")
    assert app.said == [f"Saved {tmp_path / name}"]
    assert read_report(str(tmp_path / name)) == full(HEALTHY)
    assert os.stat(tmp_path / name).st_mode & 0o777 == MODE & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_what_exists_is_never_written_over_not_even_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("mine")
    text = asked(Doctor(shown(HEALTHY)), SMALL, "s", str(tmp_path / "a.json"), "enter")
    assert "exists: another name, please" in inside(text)
    assert (tmp_path / "a.json").read_text() == "mine"
    (tmp_path / "b.json").symlink_to(tmp_path / "elsewhere.json")
    asked(Doctor(shown(HEALTHY)), SMALL, "s", str(tmp_path / "b.json"), "enter")
    assert not (tmp_path / "elsewhere.json").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere/x.json", "no such directory"),
        ("x.txt", "The name must end in .html"),
        ("", "A file name is needed"),
        (".json", "The name must end in .html"),
    ],
)
def test_what_cannot_be_saved_is_said_and_the_question_stays(name: str, says: str, tmp_path: Path) -> None:
    place = f"{tmp_path}/{name}" if name else ""
    text = inside(asked(Doctor(shown(HEALTHY)), SMALL, "s", place, "enter"))
    assert says in text and "Save what is shown" in text
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refused(str(tmp_path / "x.json")) == f"{tmp_path}: no permission to write there."


def test_escape_and_cancel_write_nothing(tmp_path: Path) -> None:
    text = asked(Doctor(shown(HEALTHY)), SMALL, "s", str(tmp_path / "x.json"), "escape")
    assert "Save what is shown" not in text
    asked(Doctor(shown(HEALTHY)), SMALL, "s", str(tmp_path / "x.json"), "tab", "tab", "enter")
    assert list(tmp_path.iterdir()) == []


def test_the_mouse_chooses_form_and_saves(tmp_path: Path) -> None:
    app = Doctor(shown(HEALTHY))

    async def run() -> None:
        async with app.run_test(size=SMALL) as pilot:
            await pilot.pause()
            await pilot.press("s")
            await _asks(app)
            app.screen.query_one(Input).value = str(tmp_path / "x.html")
            await pilot.pause()
            await pilot.click("#json")
            await pilot.pause()
            assert app.screen.query_one(Input).value == str(tmp_path / "x.json")
            await pilot.click(".do")
            await pilot.pause()
            await asyncio.sleep(0.05)
            await pilot.pause()

    asyncio.run(run())
    assert json.loads((tmp_path / "x.json").read_text())["schema"] == "gpudoctor.report/1"


def test_a_snapshot_of_a_live_node_is_recorded_by_a_child_with_the_same_options(tmp_path: Path) -> None:
    place = str(tmp_path / "n1.tar.zst")
    app = Doctor(shown(HEALTHY, live=True), source_options=("--root", "/host"))
    asked(app, SMALL, "s", place, "enter")
    assert app.asked == [("record", "-o", place, "--root", "/host")]
    assert app.said[-1] == f"Recorded {place}"
    failing = Doctor(shown(HEALTHY, live=True), End(3, "", "gpudoctor: no space left on device"))
    asked(failing, SMALL, "s", place, "enter")
    assert failing.said[-1] == "gpudoctor: no space left on device"


def test_of_a_recording_no_snapshot_is_made(tmp_path: Path) -> None:
    app = Doctor(shown(HEALTHY))
    text = asked(app, SMALL, "s", str(tmp_path / "n1.tar.zst"), "enter")
    assert "a snapshot is made of a live node" in inside(text)
    assert app.asked == []


def test_the_name_that_is_proposed_says_which_node_and_when_and_is_a_harmless_one() -> None:
    from msgspec.structs import replace

    report = full(HEALTHY)
    assert proposed_stem(report) == "gpudoctor-n1-2026-11-29T120000Z"
    hostile = replace(report, node=replace(report.node, hostname="../../etc/\x1b[0mx -rf"), started_at="../x")
    assert proposed_stem(hostile) == "gpudoctor-etc0mx-rf-"
    assert {form_of(f"x{end}") for end, *_ in FORMS.values()} == set(FORMS)
