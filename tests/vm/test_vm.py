"""The installed gpudoctor on a real kernel: right verdicts, bounded time, nothing changed, the same answer offline."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Boots
from .guest_image import GuestParts
from .machine import GuestRun, StepResult
from .scenarios import DEADLINE_SECONDS, SCENARIOS, SKIPPED, SNAPSHOT, Finding

pytestmark = pytest.mark.vm

Report = dict[str, Any]

# Counters and random values that move on a machine where nobody does anything.
MOVING_SYSCTLS = (
    "fs.dentry-state",
    "fs.file-nr",
    "fs.inode-nr",
    "fs.inode-state",
    "fs.quota.",
    "kernel.ns_last_pid",
    "kernel.random.entropy_avail",
    "kernel.random.uuid",
    "kernel.pty.nr",
)
every_scenario = pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])


def report_of(step: StepResult) -> Report:
    """The JSON report a step printed; what it said on stderr explains one that is not there."""
    assert step.stdout, f"no report, exit {step.exit_code}: {step.stderr}"
    report: Report = json.loads(step.stdout)
    return report


def comparable(report: Report) -> Report:
    """A report without what a replay may not repeat."""
    node = {key: value for key, value in report["node"].items() if key != "source"}
    return {**{key: value for key, value in report.items() if key not in ("started_at", "seconds")}, "node": node}


def differences(live: object, replayed: object, where: str = "") -> list[str]:
    """Where two reports differ, and what each says there."""
    if isinstance(live, dict) and isinstance(replayed, dict) and live.keys() == replayed.keys():
        return [line for key in live for line in differences(live[key], replayed[key], f"{where}.{key}")]
    if isinstance(live, list) and isinstance(replayed, list) and len(live) == len(replayed):
        pairs = enumerate(zip(live, replayed, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{where}[{place}]")]
    return [] if live == replayed else [f"{where}: live {live!r}, replayed {replayed!r}"]


def result_of(report: Report, check: str) -> Report:
    """A check's result in a report."""
    (result,) = (result for result in report["results"] if result["check"] == check)
    return dict(result)


def evidence_of(findings: list[Report]) -> str:
    """All that some findings show, where it was read and what it said."""
    return "\n".join(f"{item['where']}: {item['shows']}" for found in findings for item in found["evidence"])


@every_scenario
def test_who_and_why(booted: Boots, name: str) -> None:
    guest = booted(name)
    step, scenario = guest.step("run"), guest.scenario
    report = report_of(step)
    told = [(cause["check"], subject["key"]) for cause in report["root_causes"] for subject in cause["subjects"]]
    assert told == [(cause.check, cause.subject) for cause in scenario.causes]
    for expected in (*scenario.causes, *scenario.also):
        said = said_of(report, expected)
        assert [word for word in expected.words if word not in said] == [], said
    # Between the doctor's own pipe and the step there may be a shell, which hands the code on (pipefail).
    assert (step.exit_code, report["exit_code"]) == (scenario.exit_code, scenario.exit_code)


def said_of(report: Report, expected: Finding) -> str:
    """All that a check's findings of one status about one subject say."""
    about = [
        found
        for found in result_of(report, expected.check)["findings"]
        if (found["subject"]["key"], found["status"]) == (expected.subject, expected.status)
    ]
    return "\n".join([*(f"{found['summary']} {found['why'] or ''}" for found in about), evidence_of(about)])


def test_healthy_node_passes(booted: Boots) -> None:
    step = booted("healthy").step("run")
    report = report_of(step)
    assert (step.exit_code, report["verdict"], report["root_causes"]) == (0, "pass", [])
    passing = {result["check"] for result in report["results"] if result["status"] == "pass"}
    asked = {"pcie.gpus-present", "kernel-module.gpu-bound", "device-nodes.gpu-node", "driver-cuda.nvml-answers"}
    assert asked <= passing
    assert len(report["node"]["gpus"]) == booted("healthy").scenario.gpus


def test_ordinary_user_gets_the_same_verdict(booted: Boots) -> None:
    step = booted("healthy").step("run-as-user")
    report = report_of(step)
    assert report["node"]["uid"] == 1000
    assert (step.exit_code, report["verdict"], report["root_causes"]) == (0, "pass", [])
    assert "Traceback" not in step.stderr


@pytest.mark.parametrize("run", ["run", "run-again"])
def test_stuck_worker_is_named(booted: Boots, run: str) -> None:
    guest = booted("worker-stuck")
    step = guest.step(run)
    report = report_of(step)
    assert [cause["check"] for cause in report["root_causes"]] == ["driver-cuda.nvml-answers"]
    result = result_of(report, "driver-cuda.nvml-answers")
    worker = worker_pid(guest.step("workers-after-first"))
    failed = [found for found in result["findings"] if found["status"] == "fail"]
    assert failed, result
    shown = evidence_of(failed)
    assert f"PID {worker} in state D" in shown
    assert "standin_wait_for_firmware" in shown


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("worker-stuck", "run"),
        ("worker-stuck", "run-again"),
        ("worker-stuck", "record"),
        ("information-hangs", "run"),
        ("information-hangs", "record"),
    ],
)
def test_stuck_driver_costs_the_deadline_at_most(booted: Boots, name: str, step: str) -> None:
    guest = booted(name)
    # Under emulation the interpreter and its imports take most of a second before the deadline runs, and judging and writing down
    # what was seen takes longer after it; on a busy host each of them may take twice what it took when start-up was measured.
    slack = 4 * guest.step("start-up").seconds
    assert guest.step(step).seconds <= DEADLINE_SECONDS + 1 + slack


def test_second_run_starts_no_second_worker(booted: Boots) -> None:
    guest = booted("worker-stuck")
    assert worker_pid(guest.step("workers-after-second")) == worker_pid(guest.step("workers-after-first"))


def worker_pid(listed: StepResult) -> int:
    """The PID of the only NVML worker in a list of `/proc/PID/comm` paths."""
    (path,) = listed.stdout.split()
    return int(Path(path).parent.name)


@every_scenario
def test_nothing_changed(booted: Boots, name: str) -> None:
    guest = booted(name)
    for look in ("mounts", "dev", "pci"):
        assert guest.text(f"after/{look}") == guest.text(f"before/{look}"), look
    assert modules(guest, "after") == modules(guest, "before")
    assert settings(guest, "after") == settings(guest, "before")
    assert guest.text("after/modprobe-calls") == ""
    assert "char-major-77" in guest.text("trap")
    assert guest.text("after/opens").strip() in ("", str(guest.scenario.node_opens))
    assert guest.text("after/wakes") == guest.text("before/wakes")
    assert guest.text("after/new-files") == guest.text("before/new-files")
    asked_for = {Path(path).name for path in guest.scenario.fetch}
    assert set(guest.text("after/tmp").split()) <= asked_for


def modules(guest: GuestRun, moment: str) -> list[list[str]]:
    """The loaded modules at one look, without their reference counts: an abandoned worker holds one."""
    fields = (line.split() for line in guest.text(f"{moment}/modules").splitlines())
    return [[*module[:2], *module[3:]] for module in fields]


def settings(guest: GuestRun, moment: str) -> dict[str, str]:
    """The kernel's settings at one look, without those that move by themselves."""
    lines = (line.partition(" = ") for line in guest.text(f"{moment}/sysctl").splitlines())
    return {key: value for key, _, value in lines if not key.startswith(MOVING_SYSCTLS)}


@every_scenario
def test_no_process_stays(booted: Boots, name: str) -> None:
    guest = booted(name)
    left = [line.split()[-1] for line in guest.text("after/processes").splitlines() if "gpudoctor" in line]
    assert left == list(guest.scenario.left_behind)
    assert "python" not in guest.text("after/processes")


@every_scenario
def test_no_step_crashed(booted: Boots, name: str) -> None:
    guest = booted(name)
    for step in guest.scenario.steps:
        result = guest.step(step.name)
        assert "Traceback" not in result.stderr, step.name
        assert result.exit_code in (0, guest.scenario.exit_code), (
            f"{step.name}: exit {result.exit_code} {result.stderr}"
        )


@every_scenario
def test_replay_on_another_machine_equals_live(booted: Boots, parts: GuestParts, name: str, tmp_path: Path) -> None:
    guest = booted(name)
    if guest.scenario.replayed is None:
        pytest.skip("this scenario is not replayed")
    live = report_of(guest.step(guest.scenario.replayed))
    replayed = replay(guest.fetched(SNAPSHOT), parts.gpudoctor_site, tmp_path)
    assert differences(comparable(live), comparable(replayed)) == []


def test_replay_on_the_same_machine_equals_live(booted: Boots) -> None:
    guest = booted("healthy")
    live, replayed = report_of(guest.step("run")), report_of(guest.step("replay"))
    assert differences(comparable(live), comparable(replayed)) == []


def replay(snapshot: Path, site: Path, folder: Path) -> Report:
    """The report of the installed gpudoctor on this machine about a recorded node."""
    command = [sys.executable, "-m", "gpudoctor", "run", "--skip", SKIPPED, "--node", str(snapshot), "--format", "json"]
    paths = os.pathsep.join(path for path in (str(site), os.environ.get("PYTHONPATH")) if path)
    environment = {**os.environ, "PYTHONPATH": paths}
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return report_of(StepResult(told.stdout, told.stderr, told.returncode, 0.0))
