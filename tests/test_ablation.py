"""Ablation: blind the doctor to one recorded path at a time and see that it neither alarms nor claims what it cannot know."""

import functools
import re
from collections.abc import Iterator

import pytest

from gpudoctor.facts.kubernetes_api import NOT_ASKED
from gpudoctor.facts.raw import error_name
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.testing import config_of, fixtures, node
from gpudoctor.verdicts import Status, Why
from tests.blinding import NOW, Ablation
from tests.sweeping import recorded_nodes, thinned

NODES = recorded_nodes()


def _findings(report: Report) -> dict[str, Finding]:
    return {finding.id: finding for result in report.results for finding in result.findings}


def _alarms(report: Report) -> set[tuple[str, Status]]:
    return {
        (finding.id, finding.status)
        for finding in _findings(report).values()
        if finding.status in (Status.FAIL, Status.WARN)
    }


@functools.lru_cache(maxsize=4096)
def _cited(evidence_path: str, whole: RecordedNode) -> frozenset[str]:
    """The paths a citation stands on: as written and as resolved, with everything above each."""
    return frozenset(_standing_on(evidence_path, whole))


def _standing_on(evidence_path: str, whole: RecordedNode) -> Iterator[str]:
    for place in (evidence_path, *(whole._resolve(evidence_path, follow=follow) for follow in (False, True))):
        if isinstance(place, str):
            parts = place.strip("/").split("/")
            yield from ("/" + "/".join(parts[: depth + 1]) for depth in range(len(parts)))


def _still_citing(report: Report, hidden: str, whole: RecordedNode) -> list[str]:
    citing = []
    for finding in _findings(report).values():
        if finding.status is not Status.PASS:
            continue
        for evidence in finding.evidence:
            paths = _cited(evidence.where, whole) if evidence.where.startswith("/") else frozenset()
            via_answer = evidence.where.startswith(_ANSWERED.get(hidden, "no answer"))
            if hidden in paths or via_answer or (hidden == "kernel.log" and evidence.where.startswith("kernel log")):
                citing.append(f"{finding.id} cites {evidence.where}")
    return citing


_ANSWERED = {"answers/nvml": "NVML", "answers/tasks": "tasks "}
"""How citations of an answer begin."""


def _candidates(node_of: Ablation) -> list[str]:
    """Every recorded thing that a run over the whole node looks at; of a node derived from another, what its author changed.

    What is the same as in the base is blinded there. Paths that an alarm cites are blinded in any case.
    """
    alike = _gpus_like_others(node_of.report)
    paths = [path for path in sorted(node_of.looked_at - {"/"}) if not any(address in path for address in alike)]
    base = _base(node_of.name)
    if base is not None:
        whole = node_of.node.whole
        cited = _cited_by_alarms(node_of.report, whole)
        paths = [path for path in paths if path in cited or _record(whole, path) != _record(base_node(base), path)]
    answers = sorted(place.stem for place in (fixtures() / node_of.name / "answers").glob("*.json"))
    return [*paths, "kernel.log", *(f"answers/{answer}" for answer in answers)]


base_node = functools.lru_cache(maxsize=4)(node)


def _base(name: str) -> str | None:
    """The node that a node was made from, as its story says."""
    changed = re.search(r"^Change to `([\w-]+)`", (fixtures() / name / "about.md").read_text("utf-8"), re.MULTILINE)
    return changed[1] if changed and changed[1] in NODES else None


def _record(whole: RecordedNode, path: str) -> tuple[Record | None, set[str]]:
    return whole.tree.lookup(path), whole.tree.names(path)


def _cited_by_alarms(report: Report, whole: RecordedNode) -> set[str]:
    alarms = (finding for finding in _findings(report).values() if finding.status in (Status.FAIL, Status.WARN))
    places = (evidence.where for finding in alarms for evidence in finding.evidence if evidence.where.startswith("/"))
    return {path for place in places for path in _cited(place, whole)}


def _gpus_like_others(report: Report) -> set[str]:
    """GPUs of which a node has several alike: the first, the last and every one with a finding stand for the others."""
    addresses = [gpu.address for gpu in report.node.gpus]
    odd = {
        finding.subject.key
        for finding in _findings(report).values()
        if finding.status not in (Status.PASS, Status.SKIP)
    }
    return {address for address in addresses[1:-1] if address not in odd or len(odd) >= len(addresses)}


def _may_be_gone(before: Report, after: Report) -> bool:
    """An absent thing may be missed loudly; and a sick GPU that nothing else mentions may really not be there."""
    return any(result.status is Status.FAIL for result in (*before.results, *after.results))


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
@pytest.mark.parametrize("name", thinned(NODES))
def test_blinding_neither_alarms_nor_leaves_a_claim(name: str, error: str) -> None:
    node_of = ablation(name)
    whole, before = node_of.node.whole, node_of.report
    problems = []
    for hidden in _candidates(node_of):
        after = node_of.without(hidden, error)
        # What was blocked before was never said to be well: blinding the blocker only lets it speak.
        blocked = {result.check for result in before.results if result.status is Status.BLOCKED}
        # Where the GPUs cannot be told apart any more, what was said of each is said of the node.
        told = {f"{alarm.split('@')[0]}@node:node" for alarm, _ in _alarms(before)}
        new = {
            alarm
            for alarm in _alarms(after) - _alarms(before)
            if alarm[0].split("@")[0] not in blocked and alarm[0] not in told
        }
        # What blocks or explains less than before may now stand alone; only a new (check, subject, cause) is an alarm.
        if error == "EACCES" and new:
            problems.append(f"{hidden}: new alarm {sorted(new)}")
        problems.extend(f"{hidden}: {citing}" for citing in _still_citing(after, hidden, whole))
        vanished = set(_findings(before)) - set(_findings(after))
        unsettled = {result.status for result in after.results} & {Status.UNKNOWN, Status.BLOCKED}
        if vanished and not unsettled and not (error == "ENOENT" and _may_be_gone(before, after)):
            problems.append(f"{hidden}: {sorted(vanished)} vanished and nothing turned unknown")
        crashed = [finding.summary for finding in _findings(after).values() if finding.why is Why.CRASHED]
        problems.extend(f"{hidden}: {summary}" for summary in crashed)
    assert not problems, "\n".join(problems[:20])


ablation = functools.lru_cache(maxsize=1)(Ablation)


@pytest.mark.parametrize("name", [*NODES[::50], "h100x8", "dgx-b200x8"])
@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_what_is_not_read_anew_is_what_it_was(name: str, error: str) -> None:
    node_of = ablation(name)
    hidden = _candidates(node_of)
    for one in [*hidden[:: max(1, len(hidden) // 12)], *hidden[-3:]]:
        reused, anew = node_of.without(one, error), node_of.without_reuse(one, error)
        for report in (reused, anew):
            assert report.results
        assert reused.results == anew.results, one
        assert (reused.root_causes, reused.verdict, reused.sharing) == (anew.root_causes, anew.verdict, anew.sharing)
        assert set(reused.not_seen) == set(anew.not_seen), one


def test_ablation_covers_enough() -> None:
    assert len(_candidates(ablation("h100x8"))) > 80
    assert len([name for name in NODES if _base(name) is None]) > 20


def test_empty_node_passes_nothing() -> None:
    empty = RecordedNode(Tree())
    report = run(empty, config_of(node("h100x8")), built_in(deferred=True), Selection(), NOW)
    assert [result.check for result in report.results if result.status is Status.PASS] == []
    assert report.exit_code == 3
    # Where nothing is configured, or asked for on the command line, there is nothing to look at.
    configured = (
        "pcie.hardware-profile",
        "driver-cuda.expected-versions",
        "toolkit.known-vulnerabilities",
        "health.dcgm-diag",
    )
    said = [
        finding
        for finding in _findings(report).values()
        if not finding.id.startswith(configured) and finding.summary != NOT_ASKED
    ]
    assert said and [(finding.id, finding.why) for finding in said if finding.why is not Why.NOT_RECORDED] == []


def test_error_names_survive_the_round_trip() -> None:
    from gpudoctor.facts.raw import trouble

    for name in ("EACCES", "EPERM", "ETIMEDOUT", "EIO", "ELOOP", "ENODEV", "ENOENT"):
        assert error_name(trouble("/x", name)) == name
