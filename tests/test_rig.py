"""Whole states of a real virtual machine (../shared/rig), each with one fault: who is accused, and for what.

The kernel, sysfs, procfs and /dev are real; the GPUs and every NVML value are stand-ins, so those values are judged only for what they
must not do: hide what the links below show.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudoctor.facts.device_nodes import Majors
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.report import Report
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import LOWER, Builder, crashed, diagnose, fact, failed_roots, put_dmesg_functions, rig_node
from tests.conftest import SHARED

FOUR = ("0000:1a:00.0", "0000:3a:00.0", "0000:8a:00.0", "0000:ba:00.0")
THREE = FOUR[:3]


class Expected(NamedTuple):
    """What a state is: its GPUs on the bus, whether the module is loaded, and who is accused with which words."""

    gpus: tuple[str, ...]
    loaded: bool
    roots: list[tuple[str, tuple[str, ...]]]
    words: str = ""


# What console.txt shows each state to be. The fourth GPU was taken off the bus (state 10) before 11 and 12 were captured.
# 12: the vfio module is loaded and driver_override says vfio-pci, but its probe failed (-22, no IOMMU): nothing holds the GPU.
# 20: meant as "module not loaded", but udev loaded it when the GPUs appeared ("loaded: nvidia  dev:"): no node was made yet.
STATES = {
    "vm-states/00-no-gpu-no-module": Expected((), False, [("pcie.gpus-present", ("node",))], "no NVIDIA GPU"),
    "vm-states/01-module-load-fails-no-gpu": Expected((), False, [("pcie.gpus-present", ("node",))], "no NVIDIA GPU"),
    "vm-states/03-module-loaded-no-nodes": Expected(FOUR, True, [("device-nodes.gpu-node", FOUR)], "is missing"),
    "vm-states/05-full": Expected(FOUR, True, []),
    "vm-states/07-with-dev-char-symlinks": Expected(FOUR, True, []),
    "vm-states/09-gpu-fallen-off-bus": Expected(
        FOUR, True, [("pcie.gpu-responds", ("0000:8a:00.0",))], "does not answer on the bus"
    ),
    "vm-states/11-one-gpu-unbound": Expected(
        THREE, True, [("kernel-module.gpu-bound", ("0000:3a:00.0",))], "held by no driver although"
    ),
    "vm-states/12-one-gpu-vfio": Expected(
        THREE, True, [("kernel-module.gpu-bound", ("0000:3a:00.0",))], "driver_override lets only vfio-pci"
    ),
    "vm-states2/20-gpu-on-bus-module-not-loaded": Expected(FOUR, True, [("device-nodes.gpu-node", FOUR)], "is missing"),
    "vm-states2/22-no-module-for-kernel": Expected(
        FOUR, False, [("kernel-module.gpu-bound", FOUR)], "the nvidia module is not loaded"
    ),
    "vm-states2/24-stale-nodes": Expected(
        FOUR, False, [("kernel-module.gpu-bound", FOUR)], "the nvidia module is not loaded"
    ),
}
HEALTHY = sorted(name for name, expected in STATES.items() if not expected.roots)


@pytest.fixture
def rig() -> Path:
    """The rig's captures, present where the shared material is."""
    if not (SHARED / "rig" / "README.md").is_file():
        pytest.skip("the shared captures of the rig are not here")
    return SHARED / "rig"


def _summary(report: Report) -> str:
    return next(cause.summary for cause in report.root_causes if cause.link in LOWER)


def _said(report: Report, check: str) -> str:
    """Everything the fails of a check say and cite."""
    fails = [finding for finding in report.result(check).findings if finding.status is Status.FAIL]
    return "\n".join(f"{finding.summary}\n{[seen.shows for seen in finding.evidence]}" for finding in fails)


def test_every_state_of_the_rig_is_spoken_of(rig: Path) -> None:
    captured = {f"{place.parent.name}/{place.name}" for place in rig.glob("vm-states*/*") if place.is_dir()}
    assert captured == set(STATES)


@pytest.mark.parametrize("name", STATES)
def test_a_state_gets_its_root_cause(name: str, rig: Path) -> None:
    expected, report = STATES[name], diagnose(rig_node(rig / name, nvml=False))
    assert failed_roots(report) == expected.roots
    assert [gpu.address for gpu in report.node.gpus] == list(expected.gpus)
    assert crashed(report) == []
    if expected.roots:
        assert expected.words in _summary(report)


@pytest.mark.parametrize("name", STATES)
def test_what_nvml_says_does_not_hide_what_the_links_below_show(name: str, rig: Path) -> None:
    node = rig_node(rig / name)
    assert "nvml" in node.answers
    report = diagnose(node)
    assert failed_roots(report, LOWER) == STATES[name].roots
    assert crashed(report) == []
    explained = {finding for cause in report.root_causes if cause.link in LOWER for finding in cause.consequence_ids}
    accused = {key for _, keys in STATES[name].roots for key in keys}
    for finding in report.result("driver-cuda.nvml-answers").findings:
        if finding.status is Status.FAIL and finding.subject.key in accused:
            assert finding.id in explained, finding.id


@pytest.mark.parametrize("name", HEALTHY)
def test_a_full_state_passes_every_link_that_was_recorded(name: str, rig: Path) -> None:
    report = diagnose(rig_node(rig / name, nvml=False))
    assert report.root_causes == ()
    passed = {result.check for result in report.results if result.status is Status.PASS}
    assert passed >= {
        "pcie.gpus-present",
        "pcie.gpu-responds",
        "pcie.aer-errors",
        "kernel-module.gpu-bound",
        "kernel-module.flavour-fits",
        "kernel-module.gpu-not-excluded",
        "kernel-module.adapter-initialised",
        "device-nodes.gpu-node",
        "device-nodes.control-node",
        "device-nodes.uvm-node",
        "device-nodes.modes",
    }


@pytest.mark.parametrize("name", STATES)
def test_the_facts_agree_with_what_the_state_shows_elsewhere(name: str, rig: Path) -> None:
    """lspci against sysfs, /proc/modules against the state's story, /proc/driver/nvidia against what is bound."""
    node, expected = rig_node(rig / name), STATES[name]
    listing = (rig / name / "lspci-nnk.txt").read_text()
    shown = re.findall(r"^([0-9a-f:.]+) 3D controller \[0302\]: NVIDIA.*\[10de:([0-9a-f]{4})\]", listing, re.MULTILINE)
    gpus = fact(node, PciGpus)
    assert gpus.unlisted is None
    assert [(gpu.address, gpu.device_id) for gpu in gpus] == [(f"0000:{short}", device) for short, device in shown]
    assert fact(node, NvidiaModule).loaded is expected.loaded
    in_use = set(re.findall(r"^([0-9a-f:.]+) 3D.*\n\t.*\n\tKernel driver in use: nvidia", listing, re.MULTILINE))
    assert {gpu.address for gpu in gpus if gpu.driver == "nvidia"} == {f"0000:{short}" for short in in_use}
    listed = fact(node, DriverGpus).gpus
    assert {address for address, gpu in listed.items() if isinstance(gpu, DriverGpu)} == {
        gpu.address for gpu in gpus if gpu.driver == "nvidia"
    }
    assert ("nvidia-uvm" in fact(node, Majors).by_name) == ("nvidia_uvm" in (rig / name / "proc.modules").read_text())


def test_stale_nodes_are_a_consequence_and_not_accused(rig: Path) -> None:
    report = diagnose(rig_node(rig / "vm-states2/24-stale-nodes"))
    for check in ("device-nodes.gpu-node", "device-nodes.control-node"):
        result = report.result(check)
        assert result.status is Status.BLOCKED
        assert all(finding.startswith("kernel-module.gpu-bound@gpu:") for finding in result.blocked_by)


def test_a_gpu_off_the_bus_is_found_by_its_registers_and_the_kernel_log_is_cited(rig: Path) -> None:
    report = diagnose(rig_node(rig / "vm-states/09-gpu-fallen-off-bus"))
    said = _said(report, "pcie.gpu-responds")
    assert "ff ff ff ff" in said and "Xid (PCI:0000:8a:00): 79" in said


def test_a_gpu_off_the_bus_is_found_by_its_link_where_the_registers_were_not_read(rig: Path) -> None:
    node = rig_node(rig / "vm-states/09-gpu-fallen-off-bus", nvml=False)
    for path in [path for path in node.tree.records if path.endswith("/config")]:
        del node.tree.records[path]
    assert failed_roots(diagnose(node)) == [("pcie.gpu-responds", ("0000:8a:00.0",))]


def test_no_module_for_the_kernel_is_told_from_one_that_is_not_loaded(rig: Path) -> None:
    """modinfo was not run then; modprobe's words prove the state, and modinfo searches the same directory."""
    said = (rig / "vm-states2" / "modprobe-missing.txt").read_text()
    missing = re.search(r"Module nvidia not found in directory /lib/modules/(\S+)", said)
    assert missing is not None
    node = rig_node(rig / "vm-states2/22-no-module-for-kernel")
    argv = ("modinfo", "nvidia")
    node.commands[argv] = CommandOutput(argv, 1, "", "modinfo: ERROR: Module nvidia not found.\n")
    report = diagnose(node)
    assert failed_roots(report) == [("kernel-module.gpu-bound", FOUR)]
    assert f"there is no nvidia module for the running kernel {missing[1]}" in _summary(report)


def test_another_drivers_failed_probe_is_not_explained_by_an_nvrm_message(rig: Path) -> None:
    said = _said(diagnose(rig_node(rig / "vm-states/12-one-gpu-vfio")), "kernel-module.gpu-bound")
    assert "vfio-pci" in said.partition("\n")[0] or "NVRM" not in said.partition("\n")[0]
    assert "components have the same version" not in said


def test_a_gpu_that_somebody_unbound_is_not_explained_by_an_earlier_failure_to_start(rig: Path) -> None:
    assert "RmInitAdapter" not in _summary(diagnose(rig_node(rig / "vm-states/11-one-gpu-unbound")))


# NVIDIA's own open module, with devices that have no memory regions and no interrupt --------------------------------


def _real_module(rig: Path, name: str) -> RecordedNode:
    """These states have no lspci; the kernel's own enumeration in the log says which functions there were."""
    builder = Builder()
    put_dmesg_functions(builder, (rig / "vm-real-open-module" / name / "dmesg.txt").read_text())
    node = rig_node(rig / "vm-real-open-module" / name)
    for path, record in builder.tree.records.items():
        node.tree.put(path, record)
    return node


def test_the_real_module_that_refused_its_gpus_leaves_them_unbound(rig: Path) -> None:
    report = diagnose(_real_module(rig, "01-real-module-gpu-without-bars"))
    assert failed_roots(report) == [("kernel-module.gpu-bound", FOUR[:2])]
    assert crashed(report) == []


def test_the_real_module_that_refused_its_gpus_is_quoted(rig: Path) -> None:
    report = diagnose(_real_module(rig, "01-real-module-gpu-without-bars"))
    assert "Can't find an IRQ" in _said(report, "kernel-module.gpu-bound")


# Each of these has neither lspci nor sysfs, and its log does not enumerate the bus. 00: only "NVRM: No NVIDIA GPU found". 02: meant as a
# vermagic mismatch, but the module loaded (console.txt: "bad.ko: No such device") and the log holds no "version magic" line.
@pytest.mark.parametrize("name", ["00-real-module-no-gpu", "02-vermagic-mismatch"])
def test_a_state_that_shows_no_bus_is_accused_of_what_nvml_says_only(name: str, rig: Path) -> None:
    report = diagnose(_real_module(rig, name))
    assert failed_roots(report) == [("driver-cuda.nvml-answers", ("node",))] and crashed(report) == []
    assert "NVML does not start (9)" in report.root_causes[0].summary
    assert report.result("pcie.gpus-present").why == "not-recorded"
    assert fact(_real_module(rig, name), NvidiaModule).loaded is False
