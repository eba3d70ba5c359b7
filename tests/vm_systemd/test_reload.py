"""Containers of runc, crun and podman at a real `systemctl daemon-reload`: foretold before, found after, nothing said of the others."""

import errno
from typing import Any

import pytest

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_access import LETTERS, Access, DeviceAccess, DeviceKind
from gpudoctor.facts.workload_rules import WorkloadRules
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.testing import config_of, run_node
from gpudoctor.verdicts import Unread

from .machine import TrialRun
from .trials import TAKES_LATER, TRIALS, Grant

pytestmark = pytest.mark.vm_systemd

RULES, SURVIVES = "cgroup.device-rules", "cgroup.survives-reload"
NUMBERS = {"/dev/nvidia0": (195, 0), "/dev/nvidiactl": (195, 255)}
WITH_GPU = {trial.name: trial for trial in TRIALS if trial.grant is not Grant.NONE}
MOMENTS = ("before", "after", "anew", "anew-after")

Finding = dict[str, Any]


def errors(run: TrialRun, moment: str) -> dict[str, set[str]]:
    """By container, the errors that opening its nodes for reading, writing and both gave."""
    return {
        name: {errno.errorcode.get(int(answer), answer) for answer in seen["answers"].values()}
        for name, seen in run.trial["moments"][moment]["containers"].items()
    }


def denied(run: TrialRun, moment: str) -> set[str]:
    """The containers that could open none of their nodes."""
    return {name for name, found in errors(run, moment).items() if found == {"EPERM"}}


def losers(run: TrialRun) -> set[str]:
    """Those that must lose their nodes on this machine."""
    return {name for name, trial in WITH_GPU.items() if trial.loses(run.suite)}


def never(run: TrialRun) -> set[str]:
    """Those that could not open them from the start."""
    return {name for name, trial in WITH_GPU.items() if trial.never_had(run.suite)}


def findings(run: TrialRun, moment: str, check: str) -> dict[str, Finding]:
    """By container, what a check said of it in the guest."""
    names = {container["key"]: container["name"] for container in run.containers(moment)}
    (result,) = (result for result in run.report(moment)["results"] if result["check"] == check)
    return {names[found["subject"]["key"]]: found for found in result["findings"]}


def with_status(said: dict[str, Finding], *statuses: str) -> set[str]:
    """The containers of which one of these was said."""
    return {name for name, found in said.items() if found["status"] in statuses}


def test_which_containers_lose_their_nodes(run: TrialRun) -> None:
    before, after = errors(run, "before"), errors(run, "after")
    assert before.pop("runc-systemd-none") == after.pop("runc-systemd-none") == {"ENOENT"}
    assert before == {name: {"EPERM"} if name in never(run) else {"0"} for name in WITH_GPU}
    assert after == {name: {"EPERM"} if name in never(run) | losers(run) else {"0"} for name in WITH_GPU}


def test_when_systemd_takes_them(run: TrialRun) -> None:
    """While it reloads, or when the next unit of the slice starts."""
    denials = {name for name, answers in run.trial["reloaded"].items() if set(answers.values()) == {str(errno.EPERM)}}
    assert denials == denied(run, "before" if run.suite in TAKES_LATER else "after")


def test_loss_is_foretold_of_exactly_those(run: TrialRun) -> None:
    said = findings(run, "before", SURVIVES)
    lost = denied(run, "after") - denied(run, "before")
    assert with_status(said, "warn") == lost != set()
    assert with_status(said, "pass", "skip") == set(WITH_GPU) - lost
    rules = findings(run, "before", RULES)
    assert with_status(rules, "fail") == denied(run, "before")
    assert with_status(rules, "pass") == set(WITH_GPU) - denied(run, "before")


def test_why_they_will_lose_them(run: TrialRun) -> None:
    said = findings(run, "before", SURVIVES)
    assert {name: said[name]["cause"] for name in losers(run)} == {
        name: "added-behind-systemd" if WITH_GPU[name].grant is Grant.HOOK else "left-out-by-runtime"
        for name in losers(run)
    }


def test_loss_is_found_in_exactly_those(run: TrialRun) -> None:
    said = findings(run, "after", RULES)
    assert with_status(said, "fail") == denied(run, "after")
    assert with_status(said, "pass") == set(WITH_GPU) - denied(run, "after")
    assert with_status(findings(run, "after", SURVIVES), "warn", "unknown") == set()


def test_why_they_have_lost_them(run: TrialRun) -> None:
    said = findings(run, "after", RULES)
    assert {name: said[name]["cause"] for name in losers(run)} == dict.fromkeys(losers(run), "taken-by-systemd")


def test_links_cure_what_the_runtime_left_out(run: TrialRun) -> None:
    """Those that were made without links are made anew with them; of a hook systemd hears no more than before."""
    again = {name for name in losers(run) if not WITH_GPU[name].links}
    incurable = {name for name in again if WITH_GPU[name].grant is Grant.HOOK}
    if run.suite == "bookworm":
        assert {WITH_GPU[name].grant for name in again} == {Grant.RULES, Grant.DEVICE, Grant.CDI, Grant.HOOK}
    assert denied(run, "anew") == denied(run, "after") - again
    assert denied(run, "anew-after") == denied(run, "anew") | incurable
    assert with_status(findings(run, "anew", SURVIVES), "warn") == incurable
    for moment in ("anew", "anew-after"):
        assert with_status(findings(run, moment, RULES), "fail") == denied(run, moment)
    assert with_status(findings(run, "anew-after", SURVIVES), "warn", "unknown") == set()


def test_what_foretells_nothing(run: TrialRun) -> None:
    """Units of survivors need a reload, too, and systemd's own program is on some of them."""
    survivors = set(WITH_GPU) - denied(run, "after")
    if run.suite == "bookworm":
        assert any("NeedDaemonReload=yes" in run.of(name, "before")["systemctl"] for name in survivors)
    if run.hierarchy == "v2":
        programs = [names for name in survivors for names in run.of(name, "after")["programs"].values()]
        assert any("sd_devices" in names for names in programs)


@pytest.mark.parametrize("moment", MOMENTS)
def test_rules_on_paper_equal_what_the_kernel_does(run: TrialRun, moment: str) -> None:
    recorded = open_snapshot(run.snapshot(moment))
    rules = Desk(recorded, config_of(recorded)).get(WorkloadRules)
    assert not isinstance(rules, Unread)
    compared = 0
    for container in run.containers(moment):
        if container["name"] not in WITH_GPU:
            continue
        of_container = rules.by_key[container["key"]]
        assert not isinstance(of_container, Unread), of_container
        for question, answer in run.of(container["name"], moment)["answers"].items():
            _, letters, path = question.split()
            access = Access(sum(LETTERS[letter] for letter in letters))
            asked = DeviceAccess(DeviceKind.CHAR, *NUMBERS[path], access)
            assert of_container.allows(asked) is (answer == "0"), (
                container["name"],
                question,
                of_container.cite(asked),
            )
            compared += 1
    assert compared >= len(run.containers(moment)) * 5


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_recording_tells_the_same(run: TrialRun, moment: str) -> None:
    replayed = run_node(open_snapshot(run.snapshot(moment)))
    names = {container["key"]: container["name"] for container in run.containers(moment)}
    for check in (RULES, SURVIVES):
        live = {name: (found["status"], found["cause"]) for name, found in findings(run, moment, check).items()}
        told = {
            names[found.subject.key]: (found.status.value, found.cause) for found in replayed.result(check).findings
        }
        assert told == live


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_opened(run: TrialRun, moment: str) -> None:
    seen = run.trial["moments"][moment]
    assert (seen["opens"], seen["stderr"]) == (0, "")
