"""Confidential computing: the ready state that every boot loses, and modes that protect nothing."""

import pytest

from gpudoctor.testing import node, run_check
from gpudoctor.verdicts import Action, Status
from tests.small_node import alarms, cited, steps
from tests.vgpu_node import GPUS, AnswerNode

DEVTOOLS = ("nvidia-smi", "conf-compute", "-d")
READY, MODE = "sharing.cc-ready", "sharing.cc-mode"


def confidential(*, ready: bool | None = True, environment: str = "prod", persistent: bool = True) -> AnswerNode:
    """Two GPUs with confidential computing on."""
    node = AnswerNode()
    node.both(persistence_mode=persistent)
    node.system = {
        "conf_compute.environment": environment,
        "conf_compute.cc_feature": True,
        "conf_compute.multi_gpu_mode": "none",
    }
    if ready is not None:
        node.system["conf_compute.gpus_ready"] = ready
    node.printed[DEVTOOLS] = "DevTools Mode: OFF\n"
    return node


def test_attested_gpus_pass() -> None:
    report = confidential().report()
    assert [one.status for one in report.result(READY).findings] == [Status.PASS, Status.PASS]
    assert report.result(MODE).status is Status.PASS
    assert "DevTools Mode: OFF" in cited(report.result(MODE).findings[0])


@pytest.mark.parametrize("said", [None, "unknown option\n"])
def test_it_is_not_said_to_protect_where_the_mode_for_debugging_was_not_told(said: str | None) -> None:
    one = confidential()
    del one.printed[DEVTOOLS]
    if said is not None:
        one.printed[DEVTOOLS] = said
    assert one.report().result(MODE).status is Status.UNKNOWN


def test_it_is_not_said_to_protect_where_the_environment_was_not_told() -> None:
    one = confidential()
    del one.system["conf_compute.environment"]
    assert one.report().result(MODE).status is Status.UNKNOWN


def test_behind_a_protected_pcie_neither_is_asked() -> None:
    one = confidential()
    one.system = {
        "conf_compute.cc_feature": False,
        "conf_compute.multi_gpu_mode": "protected_pcie",
        "conf_compute.gpus_ready": True,
    }
    assert one.report().result(MODE).status is Status.PASS


def test_gpus_that_nobody_declared_ready_are_one_root_cause() -> None:
    report = confidential(ready=False).report()
    found = alarms(report, READY)
    assert [one.subject.key for one in found] == list(GPUS)
    assert found[0].breaks == "subject"
    assert "802" in found[0].summary
    assert "conf_compute.gpus_ready: False" in cited(found[0])
    assert "nvidia-smi conf-compute -srs 1" in steps(found[0])
    assert Action.REBOOT not in {one.action for one in found[0].remedies}
    assert [cause.check for cause in report.root_causes].count(READY) == 1


def test_several_gpus_behind_a_protected_pcie_count_as_on() -> None:
    one = confidential(ready=False)
    one.system |= {"conf_compute.cc_feature": False, "conf_compute.multi_gpu_mode": "protected_pcie"}
    assert len(alarms(one.report(), READY)) == 2


@pytest.mark.parametrize("system", [{}, {"conf_compute.cc_feature": False, "conf_compute.gpus_ready": False}])
def test_where_it_is_off_or_not_told_nothing_is_said(system: dict[str, bool]) -> None:
    one = AnswerNode()
    one.system = dict(system)
    report = one.report()
    assert report.result(READY).status is Status.SKIP
    assert report.result(MODE).status is Status.SKIP


def test_an_unanswered_ready_state_is_unknown() -> None:
    assert {one.status for one in confidential(ready=None).report().result(READY).findings} == {Status.UNKNOWN}


def test_a_simulated_environment_and_persistence_that_is_off_are_warnings() -> None:
    assert "simulated" in confidential(environment="sim").only(MODE).summary
    found = confidential(persistent=False).only(MODE)
    assert found.status is Status.WARN
    assert "persistence is off on 2 GPUs" in found.summary
    assert "persistence_mode" in found.evidence[0].shows
    assert "systemctl restart nvidia-persistenced" in steps(found)
    assert found.remedies[0].action is Action.RESTART_SERVICE


@pytest.mark.parametrize("check", [READY, MODE])
@pytest.mark.parametrize("name", ["h100x8", "mig-mixed-strategy-on-a-mixed-layout"])
def test_ordinary_nodes_are_not_judged(check: str, name: str) -> None:
    assert run_check(check, node(name)).status is Status.SKIP


@pytest.mark.parametrize(("said", "alarm"), [("ON", True), ("OFF", False)])
def test_devtools_protect_nothing(said: str, alarm: bool) -> None:
    one = confidential()
    one.printed[DEVTOOLS] = f"DevTools Mode: {said}\n"
    found = alarms(one.report(), MODE)
    assert [each.cause for each in found] == (["devtools"] if alarm else [])


def test_devtools_are_not_asked_for_where_it_is_off() -> None:
    one = AnswerNode()
    one.system = {"conf_compute.cc_feature": False}
    one.printed[DEVTOOLS] = "DevTools Mode: ON\n"
    assert not alarms(one.report(), MODE)
