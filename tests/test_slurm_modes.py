"""`gpudoctor slurm`: what may drain a node, what may take it back, and all that may do neither."""

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor import slurm_health, slurm_memory, slurm_run
from gpudoctor.config import Config, ConfigError, Slurm
from gpudoctor.knowledge.slurm_reason import ours, read, unchanged, written
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.slurm_drain import NodeUnknownError, name_is_one_node, parse_node
from gpudoctor.slurm_judging import essential_checks, judge, marked_checks
from gpudoctor.testing import node, run_node
from tests.live_root import healthy_nvml, make_root, with_nvml
from tests.slurm_fakes import HEALTHY, LOST, LOST_GPU, NODE, OFF_BUS, Doctor, FakeSlurm, doctor, job, report, slurm

__all__ = ["doctor", "job", "slurm"]

OUR_REASON = written(OFF_BUS, (LOST_GPU,), "does not answer on the bus")
MARKED = (
    "pcie.gpu-responds",
    "driver-cuda.recovery-action",
    "health.sram-threshold",
    "health.memory-unrepairable",
    "health.row-remap-failed",
)


def well_again(doctor: Doctor) -> str:
    """Two health checks in which all is well: what the second one said."""
    doctor.run(HEALTHY)
    return doctor.run(HEALTHY)


# what isolates --------------------------------------------------------------------------------------------------------


def test_the_checks_that_isolate_are_these_and_each_speaks_of_single_gpus() -> None:
    marked = [check for check in built_in() if check.isolates]
    assert tuple(check.id for check in marked) == MARKED
    assert {check.over.__name__ for check in marked if check.over is not None} == {"PciGpus"}
    assert not any(check.advisory for check in marked)


@pytest.mark.parametrize(
    ("name", "check", "gpus"),
    [
        (LOST, OFF_BUS, [LOST_GPU]),
        ("two-gpus-off-the-bus-at-once", OFF_BUS, ["0000:18:00.0", "0000:2a:00.0"]),
        ("reset-required-and-held-by-nobody", "driver-cuda.recovery-action", ["0000:c9:00.0"]),
        ("drain-and-reset-after-contained-error", "driver-cuda.recovery-action", ["0000:db:00.0"]),
        ("ecc-sram-threshold-exceeded", "health.sram-threshold", ["0000:9a:00.0"]),
        ("memory-unrepairable", "health.memory-unrepairable", ["0019:01:00.0"]),
        ("row-remap-failed", "health.row-remap-failed", ["0000:4e:00.0"]),
    ],
)
def test_a_node_with_such_a_gpu_is_found_by_its_check(name: str, check: str, gpus: list[str]) -> None:
    found = judge(report(name), MARKED)
    assert {one: [finding.subject.key for finding in findings] for one, findings in found.fails.items()} == {
        check: gpus
    }


@pytest.mark.parametrize(
    "name",
    [
        "row-remap-pending-alone",
        "nouveau-and-broken-daemon-json",
        "module-not-loaded",
        "nvml-mismatch",
        "nvml-hung-at-gpu4",
        "nvml-hung-in-init",
        "fabric-manager-not-running-on-nvswitch-board",
        "application-fault-of-a-pod",
        "xid-79-only-before-the-last-reboot",
        "reset-done-and-recovery-action-none-again",
        "narrow-link-at-gpu",
        "seven-of-eight-expected",
        "vfio-holds-one-of-eight",
        "nothing-recorded",
        HEALTHY,
    ],
)
def test_what_is_no_dead_gpu_drains_no_node(doctor: Doctor, slurm: FakeSlurm, name: str) -> None:
    for _ in range(4):
        doctor.run(name)
    assert slurm.changes == []


def test_drain_on_chooses_among_the_checks_that_isolate() -> None:
    registry = built_in()
    assert marked_checks(Config(), registry) == MARKED
    assert marked_checks(Config(slurm=Slurm(drain_on=("health.row-remap-failed", OFF_BUS))), registry) == (
        OFF_BUS,
        "health.row-remap-failed",
    )
    assert marked_checks(Config(slurm=Slurm(drain_on=())), registry) == ()
    with pytest.raises(ConfigError, match=r"no node is drained for 'pcie.link-width'"):
        marked_checks(Config(slurm=Slurm(drain_on=("pcie.link-width",))), registry)


# draining -------------------------------------------------------------------------------------------------------------


def test_by_default_nothing_is_configured_and_nothing_done(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.configure()
    said = [doctor.run(LOST) for _ in range(3)]
    assert slurm.calls == []
    assert "run 1 of 2: pcie.gpu-responds: 0000:3a:00.0" in said[0]
    assert "allows no draining" in said[2] and OUR_REASON in said[2]


def test_the_second_fail_in_a_row_drains_and_says_why(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)
    assert slurm.calls == []
    assert f"drained: {OUR_REASON}" in doctor.run(LOST)
    assert slurm.calls == [f"show node {NODE}", f"update nodename={NODE} state=drain reason={OUR_REASON}"]
    assert (slurm.state, slurm.reason) == ("IDLE+DRAIN", OUR_REASON)
    assert "is drained already" in doctor.run(LOST)
    assert slurm.changes == []


@pytest.mark.parametrize("failures", [1, 3, 5])
def test_as_many_fails_as_configured(doctor: Doctor, slurm: FakeSlurm, failures: int) -> None:
    doctor.configure(drain=True, failures=failures)
    for _ in range(failures - 1):
        doctor.run(LOST)
    assert slurm.calls == []
    doctor.run(LOST)
    assert len(slurm.changes) == 1


@pytest.mark.parametrize("between", [HEALTHY, "nothing-recorded", "nvml-hung-in-init"])
def test_fails_count_only_in_a_row(doctor: Doctor, slurm: FakeSlurm, between: str) -> None:
    for name in (LOST, between, LOST, between, LOST):
        doctor.run(name)
    assert slurm.changes == []


def test_fails_of_two_checks_are_not_in_a_row(doctor: Doctor, slurm: FakeSlurm) -> None:
    for name in (LOST, "row-remap-failed", LOST, "row-remap-failed"):
        doctor.run(name)
    assert slurm.changes == []


def test_the_reason_names_every_gpu(doctor: Doctor, slurm: FakeSlurm) -> None:
    for _ in range(2):
        doctor.run("row-remap-failed-on-one-and-xid-79-on-another")
    reason = read(slurm.reason)
    assert reason is not None
    assert (reason.check, reason.gpus) == (OFF_BUS, ("0000:db:00.0", "0000:2a:00.0"))


def test_a_waived_fail_drains_nobody(doctor: Doctor, slurm: FakeSlurm) -> None:
    waived = f'[[waive]]\ncheck = "{OFF_BUS}"\nreason = "known"\n'
    config = slurm_run_config(waived)
    doctor.sees(lambda: run_node(node(LOST), config))
    for _ in range(3):
        doctor.run()
    assert slurm.changes == []


def slurm_run_config(text: str) -> Config:
    """A configuration from its text."""
    from gpudoctor.config import from_json

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return from_json(tomllib.loads(text), "test", built_in().ids)


def test_drain_on_leaves_the_others_alone(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.configure(drain=True, drain_on='["health.row-remap-failed"]')
    for _ in range(3):
        doctor.run(LOST)
    assert slurm.changes == []
    for _ in range(2):
        doctor.run("row-remap-failed")
    assert slurm.reason.startswith("gpudoctor:health.row-remap-failed 0000:4e:00.0 ")


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("IDLE+DRAIN", "bad DIMM", "somebody else: bad DIMM"),
        ("ALLOCATED+DRAIN", "NHC: check_fs_mount: /home not mounted", "somebody else: NHC"),
        ("IDLE+DRAIN", "Prolog error", "somebody else: Prolog error"),
        ("MIXED+DRAIN", "Kill task failed", "somebody else"),
        ("IDLE+DRAIN", "", "no reason"),
        ("IDLE+DRAIN", "see gpudoctor: gpu 3", "somebody else"),
        ("IDLE+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured (0 < 8)", "somebody else"),
        ("DOWN", "Not responding", "somebody else's: Not responding"),
        ("DOWN+NOT_RESPONDING", "", "Slurm's own: DOWN"),
        ("IDLE+MAINTENANCE", "", "MAINTENANCE"),
        ("IDLE+FAIL", "", "FAIL"),
        ("IDLE+REBOOT_REQUESTED", "", "REBOOT_REQUESTED"),
        ("IDLE+POWERING_DOWN", "", "POWERING_DOWN"),
        ("UNKNOWN", "", "UNKNOWN"),
        ("FUTURE", "", "FUTURE"),
        ("IDLE+A_FLAG_OF_A_LATER_RELEASE", "", "A_FLAG_OF_A_LATER_RELEASE"),
        ("IDLE$", "", "IDLE$"),
        ("IDLE", "watch this one, alice", "somebody else's: watch this one"),
    ],
)
def test_a_node_that_is_somebody_elses_is_left_alone(
    doctor: Doctor, slurm: FakeSlurm, state: str, reason: str, words: str
) -> None:
    slurm.set(state, reason)
    doctor.run(LOST)
    assert words in doctor.run(LOST)
    doctor.run(HEALTHY)
    assert slurm.changes == []
    assert (slurm.state, slurm.reason) == (state, reason)


@pytest.mark.parametrize(
    "state", ["IDLE", "MIXED", "ALLOCATED", "ALLOCATED+COMPLETING", "IDLE+CLOUD", "IDLE*", "MIXED-"]
)
def test_a_node_in_service_is_drained(doctor: Doctor, slurm: FakeSlurm, state: str) -> None:
    slurm.set(state)
    for _ in range(2):
        doctor.run(LOST)
    assert len(slurm.changes) == 1


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        (
            "echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "Unable to contact",
        ),
        ("exit 0", "no single node"),
        ("echo 'Node n1 not found'; exit 1", "not found"),
        ("echo 'NodeName=n1 Arch=x86_64'; exit 0", "no single node"),
        ("echo 'NodeName=n2 Arch=x86_64'; echo '   State=IDLE ThreadsPerCore=1'; exit 0", "no single node"),
        ("cat shown shown; exit 0", "no single node"),
        ("cat shown; echo '   Reason=gpudoctor:a.b x'; echo '   Reason=mine'; exit 0", "no single node"),
        ("kill -9 $$", "failed (-9)"),
        ("sleep 30; exit 0", "did not end"),
        ("head -c 100 /dev/urandom; exit 0", "no single node"),
    ],
)
def test_where_the_nodes_state_cannot_be_read_nothing_is_done(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shell: str, words: str
) -> None:
    monkeypatch.setattr(slurm_run, "SCONTROL_SECONDS", 0.5)
    doctor.run(LOST)
    slurm.on("show", shell)
    assert words in doctor.run(LOST)
    slurm.set("IDLE+DRAIN", OUR_REASON)
    assert words in well_again(doctor)
    assert slurm.changes == []


def test_without_scontrol_nothing_is_done(doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(slurm.place))
    monkeypatch.setattr("gpudoctor.probes.commands.SBIN", ())
    doctor.run(LOST)
    assert "scontrol is not installed" in doctor.run(LOST)


@pytest.mark.parametrize("shell", ["echo denied >&2; exit 1", "sleep 30", "kill -9 $$"])
def test_an_update_that_fails_is_told_and_tried_again(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setattr(slurm_run, "SCONTROL_SECONDS", 0.5)
    slurm.on("update", shell)
    doctor.run(LOST)
    assert "could not be drained" in doctor.run(LOST)
    slurm.on("update", "")
    assert f"drained: {OUR_REASON}" in doctor.run(LOST)


@pytest.mark.parametrize(
    "name", ["", "ALL", "all", "n[1-64]", "n1,n2", "-n1", "n1 state=down", "n1\nn2", "../n1", "$(n1)"]
)
def test_only_a_single_node_is_ever_named(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", name)
    for _ in range(3):
        assert "names no node" in doctor.run(LOST)
    assert slurm.calls == [] and not name_is_one_node(name)


def test_by_hand_there_is_no_node_to_drain(doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMD_NODENAME")
    for _ in range(3):
        doctor.run(LOST)
    assert slurm.calls == [] and not doctor.state.exists()


def test_a_health_check_that_runs_as_a_prolog_calls_no_scontrol(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for _ in range(3):
        assert "SLURM_JOB_ID" in doctor.run(LOST)
    assert slurm.calls == []


def test_a_dry_run_changes_nothing_and_remembers_nothing(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)
    kept = (doctor.state / f"{NODE}.json").read_bytes()
    for _ in range(3):
        assert "dry run, else it would now be drained: gpudoctor:" in doctor.run(LOST, words=["--dry-run"])
    assert slurm.changes == [] and (doctor.state / f"{NODE}.json").read_bytes() == kept
    slurm.set("IDLE+DRAIN", OUR_REASON)
    doctor.run(HEALTHY)
    assert "would now be taken back" in doctor.run(HEALTHY, words=["--dry-run"])
    assert slurm.changes == []


# taking back ----------------------------------------------------------------------------------------------------------


def test_what_was_drained_is_taken_back_when_its_gpu_is_well(doctor: Doctor, slurm: FakeSlurm) -> None:
    for name in (LOST, LOST):
        doctor.run(name)
    assert slurm.state == "IDLE+DRAIN" and slurm.calls
    assert "taken back" not in doctor.run(HEALTHY) and slurm.calls == []
    assert f"taken back: {OUR_REASON}" in doctor.run(HEALTHY)
    assert slurm.changes == [f"update nodename={NODE} state=undrain"]
    assert (slurm.state, slurm.reason) == ("IDLE", "")
    # Nobody asks the controller for ever about a node that is well.
    doctor.run(HEALTHY)
    doctor.run(HEALTHY)
    assert slurm.calls == []


def test_after_a_reboot_the_reason_alone_tells_that_it_was_ours(doctor: Doctor, slurm: FakeSlurm) -> None:
    slurm.set("IDLE+DRAIN", OUR_REASON)
    well_again(doctor)
    assert slurm.changes == [f"update nodename={NODE} state=undrain"]


@pytest.mark.parametrize("between", [LOST, "nvml-hung-in-init", "nothing-recorded"])
def test_what_is_well_only_now_and_then_is_not_taken_back(doctor: Doctor, slurm: FakeSlurm, between: str) -> None:
    slurm.set("IDLE+DRAIN", OUR_REASON)
    for name in (HEALTHY, between) * 3:
        doctor.run(name)
    assert slurm.changes == []
    doctor.configure(drain=True, failures=3)
    well_again(doctor)
    assert slurm.changes == []
    doctor.run(HEALTHY)
    assert slurm.changes == [f"update nodename={NODE} state=undrain"]


def test_undraining_can_be_switched_off_and_needs_draining_switched_on(doctor: Doctor, slurm: FakeSlurm) -> None:
    slurm.set("IDLE+DRAIN", OUR_REASON)
    doctor.configure(drain=True, undrain=False)
    well_again(doctor)
    doctor.run(LOST)
    doctor.configure(undrain=True)
    well_again(doctor)
    assert slurm.calls == []


@pytest.mark.parametrize(
    "name",
    [
        "nothing-recorded",
        "nvml-hung-in-init",
        "nvml-hung-at-gpu4",
        "nvml-crashes",
        "nvml-slow-init",
        "nvml-mismatch",
        "nvml-counts-seven-of-eight",
        "module-not-loaded",
        "nouveau-holds-all-eight",
        "vfio-holds-one-of-eight",
        "gpu-unbound-one-of-eight",
        "no-nvidia-on-pci",
        "nvml-not-asked",
        "row-remap-failed",
    ],
)
def test_what_is_not_known_to_be_well_stays_drained(doctor: Doctor, slurm: FakeSlurm, name: str) -> None:
    slurm.set("IDLE+DRAIN", OUR_REASON)
    for _ in range(3):
        doctor.run(name)
    assert slurm.state == "IDLE+DRAIN" and not any(change.endswith("state=undrain") for change in slurm.changes)


def test_gpus_that_fail_while_it_is_drained_must_be_well_too(doctor: Doctor, slurm: FakeSlurm) -> None:
    """Else one that is lost, and gone after the reboot, would not be missed."""
    slurm.set("IDLE+DRAIN", OUR_REASON)
    doctor.run("row-remap-failed")
    assert slurm.changes == []
    doctor.run("row-remap-failed")
    both = written(OFF_BUS, (LOST_GPU, "0000:4e:00.0"), "does not answer on the bus")
    assert slurm.changes == [f"update nodename={NODE} state=drain reason={both}"]
    for _ in range(3):
        doctor.run("row-remap-failed")
    slurm.set("IDLE+DRAIN+MAINTENANCE", OUR_REASON)
    for _ in range(3):
        assert "left alone" in doctor.run("row-remap-failed")
    assert slurm.changes == []
    slurm.set("IDLE+DRAIN", both.replace("0000:4e", "0000:fe"))
    doctor.run(HEALTHY)
    slurm.set("IDLE+DRAIN", written(OFF_BUS, (LOST_GPU, "0000:fe:00.0"), "x"))
    assert "0000:fe:00.0 was not seen to pass" in well_again(doctor)
    assert slurm.changes == []


@pytest.mark.parametrize(
    "changed",
    [
        f"{OUR_REASON}; RMA 4711, keep it out, alice",
        f"{OUR_REASON} : gres/gpu count reported lower than configured (7 < 8)",
        f"{OUR_REASON} : Not responding : RMA",
        f"{OUR_REASON}\n       board is exchanged on Monday, alice",
        OUR_REASON.replace("does not answer", "never answered"),
        OUR_REASON.replace(LOST_GPU, "0000:19:00.0"),
        OUR_REASON.rpartition(" #")[0],
        f"gpudoctor:{OFF_BUS} {LOST_GPU} keep it out #00000000",
    ],
)
def test_a_reason_of_ours_that_somebody_changed_is_his(doctor: Doctor, slurm: FakeSlurm, changed: str) -> None:
    slurm.set("IDLE+DRAIN", changed)
    for name in (HEALTHY, HEALTHY, LOST, LOST, HEALTHY, HEALTHY):
        assert "taken back" not in doctor.run(name)
    slurm.set("IDLE", changed)
    for name in (LOST, LOST, LOST):
        doctor.run(name)
    assert slurm.changes == []


@pytest.mark.parametrize("after", [" : Not responding", " : reboot issued : reboot complete"])
def test_what_slurm_adds_for_a_reboot_changes_nothing(doctor: Doctor, slurm: FakeSlurm, after: str) -> None:
    slurm.set("IDLE+DRAIN", OUR_REASON + after)
    well_again(doctor)
    assert slurm.changes == [f"update nodename={NODE} state=undrain"]


def test_a_node_that_lost_more_gpus_than_can_be_named_is_not_taken_back(doctor: Doctor, slurm: FakeSlurm) -> None:
    slurm.set("IDLE+DRAIN", written(OFF_BUS, (LOST_GPU,) * 17, "does not answer on the bus"))
    assert "stays drained" in well_again(doctor)
    assert slurm.changes == []


@pytest.mark.parametrize("seconds", [61.0, -1.0])
def test_what_was_seen_too_long_ago_changes_nothing(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A run that was stopped, or slept, between its look and what it would do."""
    clock = slurm_memory.seconds_since_boot()
    ahead = [0.0]

    def late() -> Report:
        ahead[0] += seconds
        return report(LOST)

    monkeypatch.setattr(slurm_health, "seconds_since_boot", lambda: clock + ahead[0])
    doctor.configure(drain=True, failures=1)
    doctor.sees(late)
    assert "took longer" in doctor.run()
    assert slurm.changes == []


def test_another_cluster_is_never_meant(doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    doctor.configure(drain=True, failures=1)
    assert "another cluster" in doctor.run(LOST)
    assert slurm.calls == []


def test_a_gpu_that_is_gone_has_not_been_cured(doctor: Doctor, slurm: FakeSlurm) -> None:
    """After a reboot the board that fell off the bus is not listed at all: all that are listed pass."""
    slurm.set("IDLE+DRAIN", written(OFF_BUS, (LOST_GPU, "0000:ff:00.0"), "does not answer on the bus"))
    assert "0000:ff:00.0 was not seen to pass" in well_again(doctor)
    assert slurm.changes == []


@pytest.mark.parametrize(
    "reason",
    [
        "bad DIMM",
        "NHC: check_hw",
        "Prolog error",
        "gres/gpu count reported lower than configured (7 < 8)",
        "GPUDOCTOR:pcie.gpu-responds 0000:3a:00.0 x",
        " gpudoctor: x",
        "not gpudoctor:pcie.gpu-responds",
        "",
    ],
)
def test_what_others_drained_is_never_taken_back(doctor: Doctor, slurm: FakeSlurm, reason: str) -> None:
    slurm.set("IDLE+DRAIN", reason)
    for _ in range(3):
        doctor.run(HEALTHY)
    assert slurm.changes == [] and slurm.state == "IDLE+DRAIN"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("gpudoctor: keep it out, RMA 4711, alice", "not written as ours"),
        (written("no.such-check", (LOST_GPU,), "x"), "no.such-check was not seen to pass"),
        (written("pcie.link-width", (LOST_GPU,), "x"), "pcie.link-width was not seen to pass"),
        (f"gpudoctor:{OFF_BUS} {LOST_GPU} does not answer", "was changed since it was written"),
        ("gpudoctor:", "not written as ours"),
        (f"gpudoctor:{OFF_BUS} keep it out, alice", "not written as ours"),
        (f"gpudoctor:{OFF_BUS} GPU 3 does not answer", "not written as ours"),
    ],
)
def test_a_reason_that_names_no_cured_fault_stays(doctor: Doctor, slurm: FakeSlurm, reason: str, words: str) -> None:
    slurm.set("IDLE+DRAIN", reason)
    assert words in well_again(doctor)
    assert slurm.changes == []


@pytest.mark.parametrize("state", ["DOWN+DRAIN", "IDLE+DRAIN+INVALID_REG", "IDLE+DRAIN+MAINTENANCE", "IDLE+DRAIN+FAIL"])
def test_a_node_that_slurm_holds_as_well_stays_drained(doctor: Doctor, slurm: FakeSlurm, state: str) -> None:
    slurm.set(state, OUR_REASON)
    assert "Slurm's own" in well_again(doctor)
    assert slurm.changes == []


def test_an_admin_who_gives_another_reason_keeps_the_node_drained(doctor: Doctor, slurm: FakeSlurm) -> None:
    for _ in range(2):
        doctor.run(LOST)
    assert len(slurm.changes) == 1
    slurm.set("IDLE+DRAIN", "board is exchanged on Monday, alice")
    for name in (HEALTHY, HEALTHY, LOST, LOST, LOST):
        doctor.run(name)
    assert slurm.changes == []


# what cannot be remembered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"boot_id": 1}',
        b'{"boot_id": "x", "at": 0, "streaks": {"a": "b"}}',
        b"0" * 100_000,
    ],
)
def test_a_memory_that_cannot_be_read_drains_nobody_and_is_begun_anew(
    doctor: Doctor, slurm: FakeSlurm, content: bytes
) -> None:
    doctor.configure(drain=True, failures=1)
    doctor.state.mkdir(mode=0o700)
    (doctor.state / f"{NODE}.json").write_bytes(content)
    assert "nothing is done" in doctor.run(LOST)
    assert slurm.calls == []
    assert "drained" in doctor.run(LOST)


def test_a_memory_that_others_can_write_is_not_trusted(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)
    (doctor.state / f"{NODE}.json").chmod(0o666)
    assert "only its owner can write" in doctor.run(LOST)
    (doctor.state / f"{NODE}.lock").chmod(0o666)
    for _ in range(3):
        assert "only its owner can write" in doctor.run(LOST)
    doctor.state.chmod(0o777)
    for _ in range(3):
        assert "only its owner can write" in doctor.run(LOST)
    assert slurm.calls == []


def test_a_folder_that_others_could_put_elsewhere_is_not_trusted(
    doctor: Doctor, slurm: FakeSlurm, tmp_path: Path
) -> None:
    """Whoever may write in the folder above can take it away and put one that was kept from another day there; not in a sticky one."""
    doctor.configure(drain=True, failures=1)
    above = tmp_path / "above"
    above.mkdir(mode=0o755)
    doctor.state = above / "slurm"
    above.chmod(0o777)
    assert "others can write there" in doctor.run(LOST)
    (tmp_path / "link").symlink_to(above)
    doctor.state = tmp_path / "link" / "slurm"
    assert "others can write there" in doctor.run(LOST)
    assert slurm.calls == []
    above.chmod(0o1777)
    assert "drained" in doctor.run(LOST)


def test_whatever_the_umask_is_nobody_else_can_write_there(doctor: Doctor, slurm: FakeSlurm, tmp_path: Path) -> None:
    doctor.state = tmp_path / "gpudoctor" / "slurm"
    before = os.umask(0)
    try:
        doctor.run(LOST)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (doctor.state.parent, doctor.state)]
    assert modes == [0o755, 0o700]
    assert all(stat.S_IMODE(place.stat().st_mode) == 0o600 for place in doctor.state.iterdir())


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_memory_of_a_wrong_kind_drains_nobody(doctor: Doctor, slurm: FakeSlurm, tmp_path: Path, kind: str) -> None:
    doctor.state.mkdir(mode=0o700)
    place = doctor.state / f"{NODE}.json"
    match kind:
        case "link":
            (tmp_path / "elsewhere").write_text("untouched")
            place.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(place)
        case _:
            place.mkdir()
    assert "nothing is done" in doctor.run(LOST)
    assert slurm.calls == []
    assert kind != "link" or (tmp_path / "elsewhere").read_text() == "untouched"


def test_where_nothing_can_be_written_nothing_is_done(doctor: Doctor, slurm: FakeSlurm, tmp_path: Path) -> None:
    doctor.configure(drain=True, failures=1)
    doctor.state = tmp_path / "config.toml" / "state"
    assert "nothing is done" in doctor.run(LOST)
    doctor.state = Path("/proc/nowhere")
    assert "nothing is done" in doctor.run(LOST)
    assert slurm.calls == []


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system without room."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", place], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_drains_nobody(doctor: Doctor, slurm: FakeSlurm, full_disk: Path) -> None:
    doctor.configure(drain=True, failures=1)
    doctor.state = full_disk
    for _ in range(3):
        assert "No space left" in doctor.run(LOST)
    assert slurm.calls == []
    (full_disk / "filler").unlink()
    assert "drained" in doctor.run(LOST)


def test_fails_of_another_boot_do_not_count(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)
    place = doctor.state / f"{NODE}.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"boot_id": "of the boot before"}))
    doctor.run(LOST)
    assert slurm.calls == []


@pytest.mark.parametrize("seconds", [-90_000, 90_000])
def test_fails_of_another_day_are_not_in_a_row(doctor: Doctor, slurm: FakeSlurm, seconds: int) -> None:
    doctor.run(LOST)
    place = doctor.state / f"{NODE}.json"
    said = json.loads(place.read_text())
    place.write_text(json.dumps(said | {"at": said["at"] + seconds}))
    doctor.run(LOST)
    assert slurm.calls == []


def test_two_health_checks_at_once_count_as_one(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)

    def while_another_runs() -> Report:
        command = [sys.executable, "-m", "gpudoctor", "slurm", "health-check", "--state", str(doctor.state)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "another health check of this node is at work" in done.stderr
        return report(HEALTHY)

    doctor.sees(while_another_runs)
    doctor.run()
    doctor.run(LOST)
    assert slurm.calls == []


def test_nodes_of_one_machine_are_counted_apart(
    doctor: Doctor, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n1", "n2", "n3"):
        monkeypatch.setenv("SLURMD_NODENAME", name)
        doctor.run(LOST)
    assert slurm.calls == []
    assert stat.S_IMODE(doctor.state.stat().st_mode) == 0o700


# what goes wrong with the doctor itself -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom"), MemoryError(), KeyboardInterrupt(), SystemExit(2), OSError(28, "No space left on device")],
)
@pytest.mark.parametrize("mode", ["health-check", "prolog", "epilog"])
def test_whatever_is_raised_ends_with_0_and_drains_nobody(
    doctor: Doctor, slurm: FakeSlurm, job: None, mode: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "health-check":
        monkeypatch.delenv("SLURM_JOB_ID")

    def fails() -> Report:
        raise error

    doctor.configure(drain=True, failures=1, prolog=True, epilog=True)
    doctor.sees(fails)
    said = doctor.run(mode=mode)
    assert "nothing is done" in said and len(said.splitlines()) == 1
    assert slurm.calls == []


def test_a_run_that_dies_ends_a_row_of_fails(doctor: Doctor, slurm: FakeSlurm) -> None:
    doctor.run(LOST)

    def dies() -> Report:
        raise SystemExit(1)

    doctor.sees(dies)
    doctor.run()
    doctor.run(LOST)
    assert slurm.calls == []
    doctor.run(LOST)
    assert len(slurm.changes) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("this is not toml", "not TOML"),
        ("[slurm]\ndrains = true", "did you mean 'drain'"),
        ("[slurm]\ndrain = 1", "Expected `bool`"),
        ("[slurm]\ndrain = true\nfailures = 0", "1 or more"),
        ('[slurm]\ndrain = true\ndrain_on = ["pcie.gpu-respond"]', "did you mean 'pcie.gpu-responds'"),
        ('[slurm]\ndrain = true\ndrain_on = ["pcie.link-width"]', "no node is drained for"),
    ],
)
def test_a_configuration_that_cannot_be_used_drains_nobody(
    doctor: Doctor, slurm: FakeSlurm, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "config.toml").write_text(text)
    for _ in range(3):
        assert words in doctor.run(LOST)
    assert slurm.calls == [] and doctor.looked == 0


PROGRAM = [sys.executable, "-m", "gpudoctor"]
BROKEN_IMPORT = [
    sys.executable,
    "-c",
    "import sys; sys.modules['gpudoctor.slurm_run'] = None; from gpudoctor.cli import main; sys.exit(main())",
]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([*PROGRAM, "slurm"], "mode"),
        ([*PROGRAM, "slurm", "helth-check"], "invalid choice"),
        ([*PROGRAM, "slurm", "prolog", "--no-such-option"], "--no-such-option"),
        ([*PROGRAM, "slurm", "prolog", "--config", "/nowhere.toml"], "/nowhere.toml"),
        ([*PROGRAM, "slurm", "health-check", "--root", "/nowhere"], ""),
        ([*BROKEN_IMPORT, "slurm", "prolog"], "ModuleNotFoundError"),
    ],
)
def test_as_a_program_it_ends_with_0_however_it_is_called(slurm: FakeSlurm, command: list[str], words: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert words in done.stderr and len(done.stderr.splitlines()) <= 1, done.stderr
    assert slurm.calls == []


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">/dev/full", "2>/dev/full", ">&- 2>&- <&-"])
def test_as_a_program_it_ends_with_0_wherever_it_talks_to(slurm: FakeSlurm, redirection: str) -> None:
    line = f"'{sys.executable}' -m gpudoctor slurm prolog --config /nowhere.toml {redirection}"
    assert subprocess.run(["sh", "-c", line], stderr=subprocess.DEVNULL, check=False, timeout=60).returncode == 0


# the doctor itself, over a root with real files -----------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy node of eight GPUs, with an NVML that answers."""
    place = make_root(HEALTHY, tmp_path / "node")
    with_nvml(place, monkeypatch, healthy_nvml(HEALTHY))
    return place


def lose(root: Path) -> Path:
    """The registers of a GPU that fell off the bus read as all ones; its folder."""
    folder = (root / f"sys/bus/pci/devices/{LOST_GPU}").resolve()
    (folder / "config").write_bytes(b"\xff" * 256)
    (folder / "current_link_width").write_text("63\n")
    return folder


def health_check(tmp_path: Path, root: Path, text: str = "[slurm]\ndrain = true\n") -> str:
    """The program, started as slurmd would, over a root; what it said."""
    config = tmp_path / "site.toml"
    config.write_text(text)
    words = ["slurm", "health-check", "--root", str(root), "--config", str(config), "--state", str(tmp_path / "kept")]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def test_over_real_files_a_node_is_drained_and_taken_back(tmp_path: Path, slurm: FakeSlurm, root: Path) -> None:
    folder = (root / f"sys/bus/pci/devices/{LOST_GPU}").resolve()
    kept = {name: (folder / name).read_bytes() for name in ("config", "current_link_width")}
    assert health_check(tmp_path, root) == ""
    lose(root)
    health_check(tmp_path, root)
    assert "drained: " in health_check(tmp_path, root)
    assert slurm.reason == OUR_REASON
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    assert "taken back" not in health_check(tmp_path, root)
    assert "taken back" in health_check(tmp_path, root)
    assert slurm.changes[-1] == f"update nodename={NODE} state=undrain"


# pieces ---------------------------------------------------------------------------------------------------------------


def test_a_reason_says_what_it_was_made_of_and_nothing_that_a_shell_or_slurm_reads() -> None:
    reason = written(OFF_BUS, ("0000:3a:00.0", "0000:3b:00.0"), 'is "gone" |`x`\n[root@now] \u00fc')
    assert reason == "gpudoctor:pcie.gpu-responds 0000:3a:00.0,0000:3b:00.0 is gone x root@now #f4443f32"
    told = read(reason)
    assert told is not None and told.gpus == ("0000:3a:00.0", "0000:3b:00.0") and told.words == "is gone x root@now"
    assert told.sealed and unchanged(reason)
    longest = ""
    buses = [f"0000:{bus:02x}:00.0" for bus in range(64)]
    for count, gpus in ((16, tuple(buses[:16])), (17, ()), (64, ())):
        longest = written("driver-cuda.recovery-action", buses[:count], "x" * 999)
        told = read(longest)
        assert len(longest) == 300 and ours(longest) and told is not None and told.sealed and told.gpus == gpus
    assert "0000:0f:00.0,+48 x" in longest


def test_a_node_is_read_only_where_it_is_certain() -> None:
    shown = "NodeName=n1 Arch=x86_64\n   State=MIXED*+DRAIN+COMPLETING ThreadsPerCore=1\n   Reason=a [b] c [root@x]\n"
    read_node = parse_node(shown, "n1")
    assert (read_node.state, sorted(read_node.flags), read_node.reason) == ("MIXED", ["COMPLETING", "DRAIN"], "a [b] c")
    assert parse_node("NodeName=n1 \n   State=DRAINED x\n", "n1").flags == {"DRAIN"}
    for text in ("", shown.replace("n1", "n10"), shown + shown, "   State=IDLE x\n", "Node n1 not found"):
        with pytest.raises(NodeUnknownError):
            parse_node(text, "n1")


def test_the_line_in_the_systems_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    place = tmp_path / "devlog"
    monkeypatch.setattr(slurm_run, "SYSLOG", str(place))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log, contextlib.redirect_stderr(io.StringIO()):
        log.bind(str(place))
        slurm_run.tell("slurm health-check on n1: drained\nand more")
        said = log.recv(4096).decode()
        # Nobody reads: what no longer fits is dropped.
        for _ in range(2000):
            slurm_run.tell("x" * 1000)
    assert said.startswith("<28>") and said.endswith(
        f"gpudoctor[{os.getpid()}]: slurm health-check on n1: drained and more"
    )


def test_in_a_hook_slurms_own_commands_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpudoctor.probes.deadline import Deadline
    from gpudoctor.verdicts import Unread, Why

    node_here = slurm_run.BesideSlurm(Deadline(5))
    for argv in (("scontrol", "show", "node", "n1"), ("slurmd", "-C"), ("/usr/bin/scontrol", "ping")):
        said = node_here.command(argv)
        assert isinstance(said, Unread) and said.why is Why.WITHHELD
    assert not isinstance(node_here.command(("true",)), Unread)


def test_essential_checks_are_asked_too() -> None:
    assert "driver-cuda.nvml-answers" in essential_checks(built_in())
