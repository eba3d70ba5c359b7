"""The stream of a run: JSON lines for programs that watch it, written as things happen."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.testing import fixtures
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
)

KINDS = ("begin", "reading", "read", "result", "report")


def command(*arguments: str) -> list[str]:
    """The doctor's command line in a child."""
    return [sys.executable, "-m", "gpudoctor", *arguments]


def streamed(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a streamed run, and its lines."""
    ended = subprocess.run(
        command("run", "--format", "stream", *arguments), capture_output=True, text=True, check=False, timeout=120
    )
    assert not ended.stderr
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The lines of one kind, in their order."""
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize(
    "name", ["h100x8", "row-remap-failed", "kubernetes-pod-lost-gpu-after-reload", "nothing-recorded"]
)
def test_the_lines_tell_the_run_and_the_last_one_is_its_full_report(name: str) -> None:
    place = str(fixtures() / name)
    code, lines = streamed("--node", place)
    assert {line["kind"] for line in lines} <= set(KINDS)
    begin, report = lines[0], lines[-1]["report"]
    assert (begin["kind"], begin["schema"], begin["node"], begin["source"]) == (
        "begin",
        "gpudoctor.stream/1",
        place,
        "snapshot",
    )
    plain = subprocess.run(
        command("run", "--details", "--format", "json", "--node", place), capture_output=True, text=True, check=False
    )
    expected = json.loads(plain.stdout)
    expected["seconds"] = report["seconds"]
    assert report == expected
    assert code == plain.returncode == report["exit_code"]


def test_results_come_in_the_order_that_begin_names_and_say_what_the_report_says() -> None:
    _, lines = streamed("--node", str(fixtures() / "row-remap-failed"))
    results, report = of_kind(lines, "result"), lines[-1]["report"]
    assert [one["id"] for one in lines[0]["checks"]] == [one["check"] for one in results]
    told = {one["check"]: (one["link"], one["status"], one["detail"]) for one in results}
    assert told == {one["check"]: (one["link"], one["status"], one["detail"]) for one in report["results"]}
    assert told["health.row-remap-failed"][1] == "fail"


def test_every_fact_that_is_said_to_be_read_is_said_to_be_read_in_the_end() -> None:
    _, lines = streamed("--node", str(fixtures() / "h100x8"))
    begun = [one["fact"] for one in of_kind(lines, "reading")]
    assert {"Nvml", "KernelLog", "PciStates"} <= set(begun)
    for fact in begun:
        kinds = [line["kind"] for line in lines if line.get("fact") == fact]
        assert kinds == ["reading", "read"] * (len(kinds) // 2), fact
    assert [begun.count(fact) for fact in ("Nvml", "KernelLog", "PciStates")] == [1, 1, 1]
    assert all(one["seconds"] >= 0 for one in of_kind(lines, "read"))


def test_a_run_of_some_checks_names_only_those() -> None:
    _, lines = streamed("--node", str(fixtures() / "h100x8"), "--check", "pcie.gpus-present")
    assert [one["id"] for one in lines[0]["checks"]] == ["pcie.gpus-present"]
    assert [one["check"] for one in of_kind(lines, "result")] == ["pcie.gpus-present"]
    untold = lines[-1]["report"]["details"]["untold"]
    assert any(words.startswith("workloads: the run was limited") for words in untold)


def test_lines_are_there_before_a_driver_that_hangs_has_used_up_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["hang"] = {"call": "nvmlDeviceGetUUID", "index": 3, "how": "sleep"}
    with_nvml(root, monkeypatch, standin)
    started = time.monotonic()
    child = subprocess.Popen(
        command("run", "--root", str(root), "--deadline", "8", "--format", "stream"), stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        arrived = [(time.monotonic() - started, json.loads(line)) for line in child.stdout]
    ended = time.monotonic() - started
    asked = next(at for at, line in arrived if line == {"kind": "reading", "fact": "Nvml"})
    answered = next(at for at, line in arrived if line["kind"] == "read" and line["fact"] == "Nvml")
    assert asked < 4 < answered < ended < 10
    before = [line["check"] for at, line in arrived if line["kind"] == "result" and at < asked + 0.5]
    assert {"pcie.gpus-present", "kernel-module.gpu-bound", "device-nodes.gpu-node"} <= set(before)
    report = arrived[-1][1]["report"]
    assert child.returncode == report["exit_code"] == 3
    assert report["node"]["source"] == "root"
    stopped = "NVML nvmlDeviceGetUUID(0000:5d:00.0) gave no answer; what comes after it was not asked"
    rows = {one["address"]: one for one in report["details"]["gpus"]}
    assert stopped in rows["0000:5d:00.0"]["unread"]
    assert rows["0000:9a:00.0"]["link"] == "Gen5 x16", "sysfs is read all the same"


def test_a_reader_that_has_gone_is_no_error() -> None:
    line = f"'{sys.executable}' -m gpudoctor run --format stream --node '{fixtures() / 'h100x8'}' | head -n 1"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(ended.stdout)["kind"] == "begin"
    assert not ended.stderr


def test_a_full_disk_is_told_in_one_line() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            command("run", "--format", "stream", "--node", str(fixtures() / "h100x8")),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1 and "No space left" in ended.stderr


def test_lines_are_utf8_whatever_the_locale() -> None:
    """As LANG=en_US has it, which is ISO 8859-1: the TUI, and any program, reads JSON."""
    ended = subprocess.run(
        command("run", "--format", "stream", "--node", str(fixtures() / "h100x8")),
        capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "iso8859-1"},
    )  # fmt: skip
    assert not ended.stderr and ended.returncode == 0
    last = json.loads(ended.stdout.decode("utf-8").splitlines()[-1])
    assert last["kind"] == "report" and not json.dumps(last, ensure_ascii=False).isascii()


def test_what_a_stream_is_not() -> None:
    """No form of a saved report, and no file."""
    for arguments in (("render", "report.json", "--format", "stream"), ("run", "-o", "stream=x")):
        ended = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
        assert ended.returncode == 3 and ended.stderr.count("\n") == 1


def test_the_schema_describes_every_line() -> None:
    printed = subprocess.run(command("schema", "--of", "stream"), capture_output=True, text=True, check=True)
    schema = json.loads(printed.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    _, lines = streamed("--node", str(fixtures() / "nvml-hung-at-gpu4"))
    for line in lines:
        validator.validate(line)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"kind": "result", "check": "pcie.gpus-present"})
