"""Every recorded node gets the verdict that its author, who had not read the checks, wrote down."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.verdicts import Status

NODES = sorted(place.name for place in fixtures().iterdir() if place.is_dir())


def _expected(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((fixtures() / name / "expected.json").read_text())
    return expected


def _said_by(report: Report, check: str) -> str:
    """Everything the warns and fails of a check say and cite."""
    said = [
        " ".join([finding.summary, *(f"{evidence.where} {evidence.shows}" for evidence in finding.evidence)])
        for finding in report.result(check).findings
        if finding.status in (Status.FAIL, Status.WARN)
    ]
    return "\n".join(said)


@pytest.mark.parametrize("name", NODES)
def test_node_is_diagnosed_as_its_author_said(name: str) -> None:
    expected, report = _expected(name), run_node(node(name))
    causes = sorted((cause.check, sorted(subject.key for subject in cause.subjects)) for cause in report.root_causes)
    assert causes == sorted((cause["check"], sorted(cause["subjects"])) for cause in expected["root_causes"])
    for cause in expected["root_causes"]:
        for word in cause.get("mentions", ()):
            assert word in _said_by(report, cause["check"])
    unknown = {(result.check, result.why) for result in report.results if result.status is Status.UNKNOWN}
    # An author speaks of the checks they knew; for those it must be exactly so. Alarms must be exactly theirs in any case.
    expected_unknown = {(entry["check"], entry["why"]) for entry in expected["unknown"]}
    spoken_of = {check for check, _ in expected_unknown} | set(expected["passes"])
    assert {(check, why) for check, why in unknown if check in spoken_of} == expected_unknown
    passed = {result.check for result in report.results if result.status is Status.PASS}
    assert passed & spoken_of == set(expected["passes"])
    assert (report.verdict.value, report.exit_code) == (expected["verdict"], expected["exit_code"])


@pytest.mark.parametrize("name", NODES)
def test_every_id_in_a_report_resolves_in_it(name: str) -> None:
    report = run_node(node(name))
    ids = {finding.id for result in report.results for finding in result.findings}
    for result in report.results:
        assert ids.issuperset(result.blocked_by)
        for finding in result.findings:
            assert ids.issuperset(finding.caused_by) and ids.issuperset(finding.possible_causes)
            assert finding.id.startswith(f"{result.check}@{finding.subject.kind.value}:{finding.subject.key}")
    for cause in report.root_causes:
        assert ids.issuperset(cause.findings) and ids.issuperset(cause.consequence_ids)


@pytest.mark.parametrize("name", NODES)
def test_nothing_wrong_is_said_without_evidence_and_remedy(name: str) -> None:
    for result in run_node(node(name)).results:
        for finding in result.findings:
            if finding.status in (Status.FAIL, Status.WARN):
                assert finding.evidence and finding.remedies, finding.id
            if finding.status is Status.PASS:
                assert finding.evidence, finding.id


def test_two_fault_nodes_are_among_the_fixtures() -> None:
    """Three that must give two root causes, three that must give one."""
    counts = {name: len(_expected(name)["root_causes"]) for name in NODES}
    two = [
        "nouveau-and-broken-daemon-json",
        "vfio-on-one-and-node-missing-on-another",
        "gpu-lost-and-daemon-json-broken",
    ]
    one = [
        "vfio-on-one-and-nvml-answers-for-seven",
        "empty-pci-bus-and-no-module-no-nodes-no-nvml",
        "module-not-loaded-and-nodes-missing-and-nvml-9",
    ]
    assert [counts[name] for name in two] == [2, 2, 2]
    assert [counts[name] for name in one] == [1, 1, 1]


def test_one_gpu_on_vfio_is_one_finding_and_the_other_seven_pass() -> None:
    result = run_node(node("vfio-holds-one-of-eight")).result("kernel-module.gpu-bound")
    failed = [finding.subject.key for finding in result.findings if finding.status is Status.FAIL]
    passed = [finding.subject.key for finding in result.findings if finding.status is Status.PASS]
    assert failed == ["0000:5d:00.0"]
    assert len(passed) == 7 and "0000:5d:00.0" not in passed


def test_a_gpu_that_nvml_misses_because_vfio_holds_it_is_a_consequence() -> None:
    report = run_node(node("vfio-on-one-and-nvml-answers-for-seven"))
    missed = next(f for f in report.result("driver-cuda.nvml-answers").findings if f.status is Status.FAIL)
    assert missed.caused_by == (f"kernel-module.gpu-bound@{missed.subject.id}",)
    # The device plugin, too, says nothing of that GPU.
    follow = [one for one in report.root_causes[0].consequence_ids if not one.startswith("device-plugin.")]
    assert len(report.root_causes) == 1 and follow == [missed.id]


def test_blocked_checks_name_the_findings_that_block_them() -> None:
    report = run_node(node("nouveau-holds-all-eight"))
    blocked = report.result("device-nodes.gpu-node")
    assert blocked.status is Status.BLOCKED
    assert len(blocked.blocked_by) == 8
    assert all(finding.startswith("kernel-module.gpu-bound@gpu:") for finding in blocked.blocked_by)


@pytest.mark.parametrize("name", NODES)
def test_nothing_stands_on_an_advisory_check(name: str) -> None:
    advisory = {check.id for check in built_in() if check.advisory}
    report = run_node(node(name))
    findings = [finding for result in report.results for finding in result.findings]
    named = {cause for finding in findings for cause in (*finding.caused_by, *finding.possible_causes)}
    named.update(blocker for result in report.results for blocker in result.blocked_by)
    assert {finding.partition("@")[0] for finding in named}.isdisjoint(advisory)


def test_every_fixture_tells_its_story() -> None:
    for name in NODES:
        about = (fixtures() / name / "about.md").read_text("utf-8")
        assert len(about.splitlines()) >= 4, name


def test_a_partial_root_directory_is_a_source_of_which_nothing_is_complete(tmp_path: Path) -> None:
    from gpudoctor.config import Config
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection, run
    from gpudoctor.sources.snapshot import open_snapshot

    (tmp_path / "etc/docker").mkdir(parents=True)
    (tmp_path / "etc/docker/daemon.json").write_text("{ not json")
    import datetime

    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
    report = run(open_snapshot(tmp_path), Config(), built_in(), Selection(), now)
    assert [cause.check for cause in report.root_causes] == ["toolkit.docker-runtime"]
    assert report.result("pcie.gpus-present").why == "not-recorded"
