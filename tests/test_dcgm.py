"""What DCGM says: `dcgmi health` and `dcgmi diag` in the forms of its releases, read from a recording, a file, and live with --active."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cli_parser import parse
from gpudoctor.config import Config
from gpudoctor.facts.dcgm_diag import DcgmDiag
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Answer, CommandOutput, Question, SourceKind
from gpudoctor.knowledge.dcgm_errors import BY_SEVERITY, SEVERITIES, dcgm_error
from gpudoctor.probes.deadline import Deadline
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.sources.live import Live
from gpudoctor.sources.snapshot import Snapshot
from gpudoctor.testing import node, run_node
from gpudoctor.verdicts import Status, Unread, Why
from tests.altered import Altered
from tests.independent_dcgm import health, new_diag, old_diag, software_of_33
from tests.test_cli import gpudoctor

HEALTH = ("dcgmi", "health", "-g", "0", "-c", "-j")
THIRD_GPU = "0000:3a:00.0"


def told(argv: tuple[str, ...], text: str, name: str = "h100x8") -> Report:
    """The report on a healthy node in whose recording dcgmi printed this."""
    recorded: Snapshot = node(name)
    recorded.commands[argv] = CommandOutput(argv=argv, exit=0, stdout=text)
    return run_node(recorded)


def findings(report: Report, check: str) -> list[Finding]:
    """What a check found."""
    return list(report.result(check).findings)


# dcgmi health -----------------------------------------------------------------------------------------------------


def test_a_healthy_word_of_dcgm_passes_and_is_cited() -> None:
    found = findings(told(HEALTH, health("Healthy")), "health.dcgm-health")
    assert [finding.status for finding in found] == [Status.PASS]
    assert "Overall Health: Healthy" in found[0].evidence[0].shows


def test_a_failure_names_the_gpu_on_the_bus_and_the_system_and_keeps_the_whole_text() -> None:
    text = "Row remap failure on GPU 2: the memory has no spare row left, and this sentence is longer than one line."
    report = told(HEALTH, health("Failure", {("GPU", 2): {"Memory system": ("Failure", text)}}))
    (finding,) = findings(report, "health.dcgm-health")
    assert (finding.status, finding.subject.key) == (Status.FAIL, THIRD_GPU)
    assert "Memory" in finding.summary and "no spare row left" in finding.summary
    assert finding.remedies and report.exit_code == 2


def test_a_warning_of_two_systems_is_one_warning_of_its_gpu() -> None:
    systems = {"PCIe system": ("Warning", "Detected more than 8 PCIe replays"), "Thermal system": ("Warning", "hot")}
    report = told(
        HEALTH, health("Warning", {("GPU", 2): systems, ("Switch", 1): {"NVLINK system": ("Warning", "down")}})
    )
    found = findings(report, "health.dcgm-health")
    assert {(finding.status, finding.subject.key) for finding in found} == {
        (Status.WARN, THIRD_GPU),
        (Status.WARN, "node"),
    }
    assert any("PCIe, Thermal" in finding.summary for finding in found)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (
            "Error: Health watches not enabled. Please enable watches. \n",
            Status.SKIP,
            "switched DCGM's health watches on",
        ),
        (
            "Error: unable to establish a connection to the specified host: localhost\n",
            Status.UNKNOWN,
            "unable to establish",
        ),
        ("", Status.UNKNOWN, "says nothing"),
        ("{", Status.UNKNOWN, "{"),
        ('{"body": [1], "header": 3}', Status.UNKNOWN, "body"),
        ('{"body": {"Overall Health": {"value": "Failure"}}}', Status.UNKNOWN, "not why"),
    ],
)
def test_what_is_no_report_is_no_pass(text: str, status: Status, words: str) -> None:
    result = told(HEALTH, text).result("health.dcgm-health")
    said = " ".join([result.detail or "", *(finding.summary for finding in result.findings)])
    assert result.status is status and words in said


def test_what_a_check_here_has_found_is_the_cause_of_dcgms_word() -> None:
    altered = Altered("h100x8")
    nvml = altered.answer("nvml", lambda: Question("nvml"))
    assert isinstance(nvml, Answer)
    nvml.data["devices"][2]["fields"].update({"row_remap.failed": True, "row_remap.uncorrected": 3})
    altered.answers["nvml"] = nvml
    text = health("Failure", {("GPU", 2): {"Memory system": ("Failure", "Row remap failure")}})
    altered.commands[HEALTH] = CommandOutput(argv=HEALTH, exit=0, stdout=text)
    report = altered.report()
    assert [cause.check for cause in report.root_causes] == ["health.row-remap-failed"]
    (finding,) = findings(report, "health.dcgm-health")
    assert finding.caused_by == (f"health.row-remap-failed@gpu:{THIRD_GPU}",)


def test_a_row_that_waits_is_one_warning_whether_or_not_dcgm_tested_it() -> None:
    altered = Altered("h100x8")
    nvml = altered.answer("nvml", lambda: Question("nvml"))
    assert isinstance(nvml, Answer)
    text = new_diag({"software": {2: ("Fail", (("GPU 2 has a pending row remap", 85, 10, 6),))}})
    argv = ("dcgmi", "diag", "-r", "1", "-j")
    altered.commands[argv] = CommandOutput(argv=argv, exit=0, stdout=text)
    alone = altered.report()
    (finding,) = findings(alone, "health.dcgm-diag")
    assert finding.status is Status.WARN and any("--gpu-reset" in run for step in finding.remedies for run in step.run)
    nvml.data["devices"][2]["fields"].update({"row_remap.pending": True, "row_remap.uncorrected": 1})
    altered.answers["nvml"] = nvml
    report = altered.report()
    assert [cause.check for cause in report.root_causes] == ["health.row-remap-pending"]


# dcgmi diag -------------------------------------------------------------------------------------------------------


def test_no_diagnosis_is_no_pass() -> None:
    assert run_node(node("h100x8")).result("health.dcgm-diag").status is Status.SKIP


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_passed_diagnosis_passes_at_any_level(level: int) -> None:
    text = new_diag({"memory": dict.fromkeys(range(8), ("Pass", ())), "pcie": dict.fromkeys(range(8), ("Skip", ()))})
    result = told(("dcgmi", "diag", "-r", str(level), "-j"), text).result("health.dcgm-diag")
    assert result.status is Status.PASS
    assert "8 results of DCGM 4.6.0, 8 skipped" in result.findings[0].evidence[0].shows


def test_only_skipped_tests_are_unknown() -> None:
    text = new_diag({"pcie": dict.fromkeys(range(8), ("Skip", ()))})
    assert told(("dcgmi", "diag", "-r", "2", "-j"), text).result("health.dcgm-diag").status is Status.UNKNOWN


NEW = new_diag(
    {
        "memory": {2: ("Fail", (("Detected 4 memory mismatches for GPU 2", 58, 10, 2),)), 3: ("Pass", ())},
        "pcie": {2: ("Fail", (("PCIe width 8 is below 16", 46, 13, 5),))},
    }
)
OLD = old_diag({"Memory": {2: ("Fail", "Detected 4 memory mismatches for GPU 2"), 3: ("Pass", "")}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NEW, ("memory, pcie", "4 memory mismatches", "health.pcie-under-load")),
        (OLD, ("Memory", "4 memory mismatches")),
        ("Successfully ran diagnostic for group.\n" + NEW, ("memory",)),
        (json.dumps({"iterations": [json.loads(NEW), json.loads(NEW)], "Overall Result": "Fail"}), ("memory",)),
    ],
)
def test_a_failed_test_fails_its_gpu_with_dcgms_words(text: str, words: tuple[str, ...]) -> None:
    report = told(("dcgmi", "diag", "-r", "3", "-j"), text)
    (finding,) = findings(report, "health.dcgm-diag")
    assert (finding.status, finding.subject.key) == (Status.FAIL, THIRD_GPU)
    for word in words:
        assert word in finding.summary
    assert any(remedy.action.value == "contact-vendor" for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (software_of_33("Persistence mode for GPU 2 is disabled.", 29, 5), Status.WARN),
        (software_of_33("GPU 2 requires a reset", 125, 6), Status.FAIL),
        (software_of_33("Something new", 250, 3), Status.FAIL),
        (new_diag({"nvbandwidth": {2: ("Fail", (("slow", 105, 10, 1),))}}), Status.WARN),
    ],
)
def test_how_bad_dcgm_holds_it_decides(text: str, status: Status) -> None:
    (finding,) = findings(told(("dcgmi", "diag", "-r", "1", "-j"), text), "health.dcgm-diag")
    assert (finding.status, finding.subject.key) == (status, THIRD_GPU)


def test_a_failure_of_no_gpu_is_the_nodes() -> None:
    text = new_diag({"software": {}}, {"software": ("Fail", (("Found driver on the denylist: nouveau", 23, 3, 5),))})
    (finding,) = findings(told(("dcgmi", "diag", "-r", "1", "-j"), text), "health.dcgm-diag")
    assert finding.subject.key == "node" and "denylist" in finding.summary


@pytest.mark.parametrize(
    "text",
    [
        old_diag({}, error="Unable to complete diagnostic: nvvs was not found"),
        "Error: unable to establish a connection to the specified host: localhost\n",
        '{"DCGM Diagnostic": {"test_categories": 3}}',
        '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": [{"gpu_id": "x", "status": 7}]}]}]}}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_a_diagnosis_that_could_not_be_made_is_unknown(text: str) -> None:
    assert told(("dcgmi", "diag", "-r", "2", "-j"), text).result("health.dcgm-diag").status is Status.UNKNOWN


# as DCGM's own printing code gives it -----------------------------------------------------------------------------

SAMPLES = Path(__file__).parent.parent / "fixtures" / "raw" / "dcgm"
SIXTH_GPU, FOURTH_GPU, SEVENTH_GPU = "0000:ab:00.0", "0000:5d:00.0", "0000:ba:00.0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("diag-2.4.7-fail-memory.json", {SIXTH_GPU: ("fail", "double-bit ECC")}),
        ("diag-2.4.7-fail-row-remap.json", {"node": ("fail", "row remapping failed")}),
        ("diag-2.4.7-pass.json", {"node": ("pass", "65 tests passed")}),
        ("diag-3.3.9-fail-memory.json", {SIXTH_GPU: ("fail", "health.ecc-uncorrected")}),
        ("diag-3.3.9-fail-pcie-bandwidth.json", {THIRD_GPU: ("fail", "direction d2h of 11.02")}),
        ("diag-3.3.9-fail-row-remap.json", {SIXTH_GPU: ("fail", "health.row-remap-failed")}),
        ("diag-3.3.9-pass.json", {"node": ("pass", "57 tests passed")}),
        ("diag-3.3.9-runtime-error.json", {"node": ("unknown", "Tesla recommended driver")}),
        ("diag-4.6.0-fail-memory.json", {SIXTH_GPU: ("fail", "health.ecc-uncorrected")}),
        ("diag-4.6.0-fail-pcie-bandwidth.json", {THIRD_GPU: ("fail", "direction d2h of 11.02")}),
        ("diag-4.6.0-fail-row-remap.json", {SIXTH_GPU: ("fail", "health.row-remap-failed")}),
        ("diag-4.6.0-pass.json", {"node": ("pass", "56 tests passed")}),
        ("diag-4.6.0-runtime-error.json", {"node": ("unknown", "Host engine connection invalid")}),
        ("health-failure-memory.json", {SIXTH_GPU: ("fail", "double-bit ECC")}),
        ("health-failure-nvlink-down-3.3.9.json", {SEVENTH_GPU: ("fail", "NVLINK")}),
        ("health-failure-two-gpus-4.6.0.json", {SIXTH_GPU: ("fail", "Memory"), FOURTH_GPU: ("warn", "PCIe")}),
        ("health-healthy.json", {"node": ("pass", "healthy")}),
        ("health-no-hostengine.txt", {"node": ("unknown", "unable to establish")}),
        ("health-warning-pcie-replay-2.4.7.json", {FOURTH_GPU: ("warn", "8 PCIe replays")}),
        ("health-warning-pcie-replay-4.6.0.json", {FOURTH_GPU: ("warn", "31 PCIe replays")}),
        ("health-watches-off.txt", {"node": ("skip", "switched DCGM's health watches on")}),
    ],
)
def test_samples_of_every_release(name: str, expected: dict[str, tuple[str, str]]) -> None:
    argv = HEALTH if name.startswith("health") else ("dcgmi", "diag", "-r", "3", "-j")
    check = "health.dcgm-health" if argv == HEALTH else "health.dcgm-diag"
    found = {finding.subject.key: finding for finding in findings(told(argv, (SAMPLES / name).read_text()), check)}
    assert {key: finding.status.value for key, finding in found.items()} == {
        key: status for key, (status, _) in expected.items()
    }
    for key, (_, words) in expected.items():
        assert words in found[key].summary


def test_one_setting_on_eight_gpus_is_one_warning() -> None:
    text = (SAMPLES / "diag-4.6.0-persistence-mode-only.json").read_text()
    report = told(("dcgmi", "diag", "-r", "1", "-j"), text)
    (cause,) = report.root_causes
    assert (cause.check, len(cause.subjects), report.exit_code) == ("health.dcgm-diag", 8, 1)


# in a file, live, and the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "check"),
    [
        (NEW, "health.dcgm-diag"),
        (json.dumps({"iterations": [None, json.loads(NEW)], "Overall Result": "Fail"}), "health.dcgm-diag"),
        (health("Failure", {("GPU", 2): {"SM system": ("Failure", "x")}}), "health.dcgm-health"),
    ],
)
def test_a_file_of_its_own_is_read(tmp_path: Path, text: str, check: str) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(text)
    result = gpudoctor("run", "--node", str(saved), "--format", "json")
    report: dict[str, Any] = json.loads(result.stdout)
    (found,) = [one for one in report["results"] if one["check"] == check]
    assert found["status"] == "fail" and report["node"]["source"] == "bug-report"


@pytest.mark.parametrize(
    "answer",
    [
        {"iterations": []},
        {"iterations": [{"loss": 0.5}, {"loss": 0.4}], "name": "train"},
        {"iterations": [[NEW], None, "DCGM Diagnostic"]},
        {"DCGM Diagnostic": "see elsewhere"},
        {"header": ["a report"]},
    ],
)
def test_a_file_of_somebody_elses_is_no_diagnosis(tmp_path: Path, answer: dict[str, Any]) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(answer))
    result = gpudoctor("run", "--node", str(saved))
    assert result.returncode != 0 and "nor what nvidia-smi or dcgmi printed" in result.stderr


def dcgmi(folder: Path, text: str) -> None:
    """A dcgmi that writes down how it was called and prints this."""
    program = folder / "dcgmi"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\ncat <<'END'\n{text}END\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("level", "called"), [(0, ""), (1, "diag -r 1 -j\n"), (2, "diag -r 2 -j\n")])
def test_live_it_is_run_with_active_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, called: str
) -> None:
    dcgmi(tmp_path, new_diag({"software": {0: ("Pass", ())}}))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    desk = Desk(Live(Deadline(20.0)), Config())
    desk.active = level
    found = desk.get(DcgmDiag)
    assert isinstance(found, DcgmDiag) and found.asked is (level > 0)
    calls = tmp_path / "calls"
    assert (calls.read_text() if calls.exists() else "") == called


def test_a_test_under_load_is_withheld_while_somebody_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    altered = Altered("h100x8")
    nvml = altered.answer("nvml", lambda: Question("nvml"))
    assert isinstance(nvml, Answer)
    nvml.data["devices"][5]["processes"] = [{"pid": 4242, "kind": "compute", "name": "python"}]
    altered.answers["nvml"] = nvml
    monkeypatch.setattr(altered, "kind", SourceKind.LIVE)
    for level, withheld in ((1, False), (2, True)):
        desk = Desk(altered, Config())
        desk.active = level
        found = desk.get(DcgmDiag)
        assert (isinstance(found, Unread) and found.why is Why.WITHHELD and "4242" in found.detail) is withheld


def test_active_has_its_own_deadline() -> None:
    assert [parse(["run", *words]).deadline for words in ([], ["--active"], ["--active", "3"])] == [30.0, 180.0, 3600.0]
    assert parse(["run", "--active", "2", "--deadline", "5"]).deadline == 5.0
    assert (parse(["trace", "pid:1"]).deadline, parse(["record", "-o", "x", "--active"]).active) == (30.0, 1)


def test_every_code_has_a_severity_with_steps_and_every_check_named_exists() -> None:
    ids = built_in().ids
    codes = [error for code in range(200) if (error := dcgm_error(code)) is not None]
    assert len(codes) == 133 and [error.code for error in codes] == list(range(133))
    assert {error.severity for error in codes} <= set(SEVERITIES.values())
    assert set(BY_SEVERITY) | {"unknown"} == set(SEVERITIES.values())
    assert [error.check for error in codes if error.check and error.check not in ids] == []


def test_explain_tells_of_a_code() -> None:
    said = gpudoctor("explain", "dcgm:118", "dcgm:row_remap_failure").stdout
    assert "DCGM_FR_SRAM_THRESHOLD" in said and "health.sram-threshold" in said and "dcgm:80" in said
    wrong = gpudoctor("explain", "dcgm:4711")
    assert wrong.returncode == 3 and "0 to 132" in wrong.stderr


def test_serials_of_the_output_are_redacted() -> None:
    from gpudoctor.sources.private_rules import IDENTITIES, lines_of

    for text in (NEW, software_of_33("x", 29, 5)):
        hidden = text
        for rule in IDENTITIES:
            for start, end in reversed(lines_of(rule, hidden, hidden.lower())):
                hidden = hidden[:start] + rule.form.sub("…", hidden[start:end]) + hidden[end:]
        assert "165492200609" not in hidden
