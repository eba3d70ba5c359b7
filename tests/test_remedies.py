"""Remedies: safe in their order, named for what they do, and confirmed by the check they belong to."""

import re

import pytest

from gpudoctor.report import Finding
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.verdicts import Action, Status

NODES = sorted(place.name for place in fixtures().iterdir() if place.is_dir())
FINAL = (Action.REBOOT, Action.RESET_GPU, Action.LOAD_MODULE)
"""After these the fault itself is gone, or not: their confirmation asks the check."""


def _findings(name: str) -> list[Finding]:
    alarms = (Status.WARN, Status.FAIL)
    return [
        finding for result in run_node(node(name)).results for finding in result.findings if finding.status in alarms
    ]


def _check_of(finding: Finding) -> str:
    return finding.id.partition("@")[0]


def _finding(name: str, check: str) -> Finding:
    return next(finding for finding in _findings(name) if _check_of(finding) == check)


@pytest.mark.parametrize("name", NODES)
def test_what_should_mend_a_fault_is_confirmed_by_its_check(name: str) -> None:
    for finding in _findings(name):
        check = _check_of(finding)
        for remedy in finding.remedies:
            named = re.findall(r"--check (\S+)", remedy.confirm)
            assert not named or check in named, (finding.id, remedy.confirm)
            if remedy.action in FINAL:
                assert named or "--link" in remedy.confirm, (finding.id, remedy.say, remedy.confirm)


@pytest.mark.parametrize("name", NODES)
def test_the_driver_is_unloaded_only_after_what_uses_it(name: str) -> None:
    for finding in _findings(name):
        for remedy in finding.remedies:
            unloading = [step for step in remedy.run if "modprobe -r" in step and "nvidia_modeset" in step]
            for step in unloading:
                before = "\n".join(remedy.run[: remedy.run.index(step)])
                assert "fuser -v /dev/nvidia*" in before
                assert all(module in before for module in ("nvidia_peermem", "nvidia_fs", "gdrdrv"))
                assert "lsmod" in "\n".join(remedy.run)


@pytest.mark.parametrize("name", NODES)
def test_evidence_says_one_place_each(name: str) -> None:
    for result in run_node(node(name)).results:
        for finding in result.findings:
            for evidence in finding.evidence:
                assert not re.search(r", /| and /|^journal/", evidence.where), (finding.id, evidence.where)


def test_wpr2_is_cleared_by_a_reset_then_a_reboot_then_a_cold_start() -> None:
    finding = _finding("rminit-failed-wpr2", "kernel-module.adapter-initialised")
    actions = [remedy.action for remedy in finding.remedies]
    assert actions == ["reset-gpu", "reset-gpu", "reboot", "inspect-hardware"]
    first, by_pci = finding.remedies[:2]
    assert "nvidia-smi --gpu-reset -i 0000:9a:00.0" in first.run
    assert "echo 1 > /sys/bus/pci/devices/0000:9a:00.0/reset" in by_pci.run
    assert all("fuser -v /dev/nvidia*" in remedy.run for remedy in (first, by_pci))
    assert not any("modprobe" in step for remedy in finding.remedies for step in remedy.run)


def test_packages_are_listed_before_the_runfile_is_removed_and_only_installed_ones() -> None:
    (name,) = (name for name in NODES if "runfile" in name and _has(name, "driver-cuda.one-installation"))
    remedy = _finding(name, "driver-cuda.one-installation").remedies[-1]
    listing, _, uninstall, again = remedy.run
    assert "db:Status-Abbrev" in listing and "[ih]i" in listing and listing.endswith("> /var/tmp/nvidia-packages")
    assert uninstall == "nvidia-uninstall" and "/var/tmp/nvidia-packages" in again and "dpkg-query" not in again


def _has(name: str, check: str) -> bool:
    return any(_check_of(finding) == check for finding in _findings(name))
