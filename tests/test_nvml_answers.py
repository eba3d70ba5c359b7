"""Odd and partial NVML answers: what is judged, what is not believed. Each starts from a healthy recorded node."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.report import Report
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.testing import fixtures, run_node
from gpudoctor.verdicts import Status, Why

CHECK = "driver-cuda.nvml-answers"


def with_answer(tmp_path: Path, change: Callable[[dict[str, Any]], None], node: str = "h100x8") -> Report:
    """The report on a node whose NVML answer was changed."""
    copy = tmp_path / "node"
    shutil.copytree(fixtures() / node, copy, symlinks=True)
    place = copy / "answers/nvml.json"
    answer: dict[str, Any] = json.loads(place.read_text())
    change(answer)
    place.write_text(json.dumps(answer))
    return run_node(open_snapshot(copy))


def _devices(answer: dict[str, Any]) -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = answer["data"]["devices"]
    return devices


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer["data"].update(values)


def _top(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer.update(values)


def _device(index: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: _devices(answer)[index].update(values)


@pytest.mark.parametrize(
    "change",
    [
        _set(init=None),
        _set(init="0"),
        _set(count=9),
        _set(count=7),
        _set(devices="none"),
        _device(2, uuid=None),
        _device(2, uuid=""),
        _device(2, pci_bus_id="somewhere"),
        _device(2, error=[]),
        _device(2, error={}),
        _top(schema=2),
        _top(error={"why": "tired"}),
        _top(error="timed-out"),
        lambda answer: _devices(answer).pop(),
        lambda answer: answer["data"].pop("init"),
    ],
)
def test_an_answer_that_does_not_add_up_is_not_a_pass(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    report = with_answer(tmp_path, change)
    assert report.result(CHECK).status is Status.UNKNOWN, report.result(CHECK).detail
    assert report.exit_code == 3
    assert all(finding.why is not Why.CRASHED for finding in report.result(CHECK).findings)


def test_a_list_without_places_on_the_bus_accuses_no_gpu(tmp_path: Path) -> None:
    """nvidia-smi -L names each GPU and its UUID, and no address."""

    def change(answer: dict[str, Any]) -> None:
        for device in _devices(answer):
            del device["pci_bus_id"]

    result = with_answer(tmp_path, change).result(CHECK)
    assert result.status is Status.UNKNOWN
    assert {finding.status for finding in result.findings} == {Status.UNKNOWN}
    assert "does not say where on the bus" in result.findings[0].summary


def test_of_two_entries_for_one_gpu_the_one_with_an_error_counts(tmp_path: Path) -> None:
    def change(answer: dict[str, Any]) -> None:
        _devices(answer).append({**_devices(answer)[3], "error": {"code": 15}})

    report = with_answer(tmp_path, change)
    failed = [finding.subject.key for finding in report.result(CHECK).findings if finding.status is Status.FAIL]
    assert failed == ["0000:5d:00.0"]


def test_a_worker_that_answered_all_and_then_hangs_is_still_a_hang(tmp_path: Path) -> None:
    worker = {"pid": 7, "state": "D", "stack": "[<0>] nvidia_close+0x1/0x2 [nvidia]", "stack_unchanged_seconds": 9.0}
    report = with_answer(tmp_path, _top(error={"why": "timed-out"}, stopped_at="its exit", worker=worker))
    assert report.exit_code == 2
    assert "NVML hangs in its exit: PID 7 in state D" in report.root_causes[0].summary
    assert report.result(CHECK).findings[0].breaks == "nothing"


@pytest.mark.parametrize(
    ("signal", "status"), [("SIGSEGV", Status.FAIL), ("SIGKILL", Status.UNKNOWN), ("SIGTERM", Status.UNKNOWN)]
)
def test_a_worker_killed_from_outside_is_not_nvmls_crash(signal: str, status: Status, tmp_path: Path) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer.update(error={"why": "crashed", "signal": signal}, stopped_at="nvmlInit_v2()", data={})

    assert with_answer(tmp_path, change).result(CHECK).status is status


def test_an_error_of_counting_keeps_its_code(tmp_path: Path) -> None:
    report = with_answer(tmp_path, lambda answer: answer.update(data={"init": 0, "count_error": {"code": 999}}))
    assert "NVML does not answer (999)" in report.root_causes[0].summary


def test_a_stale_hung_task_line_does_not_make_a_moving_worker_hang(tmp_path: Path) -> None:
    worker = {"pid": 7, "state": "S", "stack": "", "stack_unchanged_seconds": 0.2}
    change = _top(data={}, error={"why": "timed-out"}, stopped_at="nvmlInit_v2()", worker=worker)
    report = with_answer(tmp_path, change, node="nvml-hung-in-init")
    assert {finding.why for finding in report.result(CHECK).findings} == {Why.SLOW_INIT}


@pytest.mark.parametrize(("uuid", "code"), [("Unknown Error", 999), ("GPU is lost", 15), ("GPU requires reset", 16)])
def test_nvidia_smi_values_that_are_errors_are_errors(uuid: str, code: int) -> None:
    text = (
        "Driver Version                            : 550.1\nAttached GPUs                             : 1\n"
        f"GPU 00000000:01:00.0\n    Product Name                          : {uuid}\n    GPU UUID                              : {uuid}\n"
    )
    answer = answer_from_query(text, "nvidia-smi -q")
    assert answer is not None
    assert answer.data["devices"][0]["error"]["code"] == code
    assert "name" not in answer.data["devices"][0]


def test_translation_does_not_choke_on_hostile_text() -> None:
    import time

    started = time.monotonic()
    answer_from_query("a" + " " * 200_000 + "\n" + "GPU " + "0" * 100_000, "nvidia-smi -q")
    assert time.monotonic() - started < 5
