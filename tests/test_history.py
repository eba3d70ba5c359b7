"""`gpudoctor history`: what is remembered, as a table, as episodes, boot by boot."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from gpudoctor import cli
from tests.conftest import Golden
from tests.diff_node import DiffNode
from tests.health_passes import HARD, HEALTHY, Passes, aged, quick_place

GPU = "0000:3a:00.0"


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The memory of a node's day: it is well, fails for an hour, is well, is off for the night, and has an error."""
    place = tmp_path_factory.mktemp("day")
    healthy, sick = DiffNode("h100x8", place / "a"), DiffNode("nouveau-and-broken-daemon-json", place / "b")

    def look(node: DiffNode, *moments: float) -> None:
        for minutes in moments:
            with contextlib.redirect_stdout(io.StringIO()):
                cli.main(["health", "--node", str(aged(node, minutes).place), "--state", str(state)])

    with quick_place() as state:
        look(healthy, 0, 60, 120)
        look(sick, 180, 240)
        look(healthy, 300, 360)
        healthy.booted()
        healthy.say(f"[ 5900.000000] NVRM: Xid (PCI:{GPU[:-2]}): 31, pid=4, name=python, Ch 00000008, MMU Fault")
        healthy.gpu(2, pcie__replays=9)
        look(healthy, 1300, 1380)
        yield state


@pytest.fixture
def lived(day: Path, capsys: pytest.CaptureFixture[str]) -> Passes:
    """Somebody who reads it."""
    return Passes(capsys, day)


def test_a_history_for_people(lived: Passes, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, look in ((80, "narrow"), (140, "wide")):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, err = lived(command="history")
        assert (code, err) == (0, "")
        golden.check(f"health/history-{look}.txt", out.replace(str(lived.state), "STATE"))
    code, out, _ = lived("--ascii", command="history")
    assert out.isascii()
    assert lived("-q", command="history")[1].startswith("10 episodes, ")


def test_a_history_for_programs(lived: Passes, capsys: pytest.CaptureFixture[str]) -> None:
    told = lived.history()
    capsys.readouterr()
    assert cli.main(["schema", "--of", "history"]) == 0
    jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out)).validate(told)
    assert (told["schema"], told["passes"], len(told["boots"])) == ("gpudoctor.history/1", 9, 2)
    row = next(one for one in told["rows"] if one["key"] == GPU and one["check"] == "kernel-module.gpu-bound")
    assert {"fail", "pass", "unseen"} == set(row["buckets"]) and row["episodes"] == 1
    (xid,) = told["xids"]
    assert (xid["gpu"], xid["code"], xid["this_boot"], xid["escalates"]) == (GPU, "Xid 31", 1, "")


def test_a_part_of_it(lived: Passes) -> None:
    docker = lived.history("--check", "toolkit.docker-runtime")
    assert {one["check"] for one in docker["episodes"]} == {"toolkit.docker-runtime"} and docker["xids"] == []
    one = lived.history("--gpu", "00000000:3A:00.0")
    assert {past["key"] for past in one["episodes"]} == {GPU} and [xid["gpu"] for xid in one["xids"]] == [GPU]
    late = lived.history("--since", "2026-11-30")
    assert late["begin"] == "2026-11-30T00:00:00Z" and all(past["last"] > "2026-11-30" for past in late["episodes"])
    assert lived.history("--since", "2026-11-29T12:00:00Z")["episodes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--check", "toolkit.docker-runtme"), "did you mean 'toolkit.docker-runtime'"),
        (("--gpu", "eight"), "not a PCI address"),
        (("--since", "yesterday"), "--since yesterday"),
    ],
)
def test_bad_usage_is_one_line(lived: Passes, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = lived(*arguments, command="history")
    assert (code, out) == (3, "") and words in err and len(err.splitlines()) == 1


def test_without_a_memory_it_says_so_and_makes_none(passes: Passes) -> None:
    code, out, err = passes(command="history")
    assert (code, out) == (3, "") and "nothing is remembered there" in err
    assert not passes.state.exists()


def test_a_corrupt_memory_is_left_where_it_is(passes: Passes) -> None:
    passes.over(HEALTHY)
    path = passes.state / "health.sqlite3"
    path.write_bytes(b"no database at all" * 400)
    code, _, err = passes(command="history")
    assert code == 3 and "not a database" in err
    assert path.read_bytes().startswith(b"no database")


def test_nothing_was_wrong(passes: Passes) -> None:
    passes.over(HEALTHY)
    assert "nothing was wrong in this time" in passes(command="history")[1]
    assert passes("--node", HARD)[0] == 2
