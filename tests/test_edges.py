"""States between healthy and sick: what looks like a fault and is none, and what passes for health and is not."""

import pytest

from gpudoctor.facts.raw import Answer
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Status
from tests.altered import Altered
from tests.captures import diagnose

DEVICES = "/sys/bus/pci/devices"
WORKSTATION_GPU = f"{DEVICES}/0000:01:00.0"


def _causes(report: Report) -> list[tuple[str, str]]:
    """Check and cause of each root cause."""
    findings = {finding.id: finding for result in report.results for finding in result.findings}
    return sorted((root.check, findings[root.findings[0]].cause) for root in report.root_causes)


def _finding(report: Report, check: str, key: str) -> Finding:
    return next(finding for finding in report.result(check).findings if finding.subject.key == key)


# PCIe ----------------------------------------------------------------------------------------------------------------


def _regions(node: Altered, **lines: str) -> None:
    path = f"{WORKSTATION_GPU}/resource"
    found = node.whole.read(path)
    text = getattr(found, "text", "").splitlines()
    for number, line in lines.items():
        text[int(number.removeprefix("bar"))] = line
    node.text(path, "\n".join(text) + "\n")


def test_io_ports_without_a_place_are_no_fault() -> None:
    node = Altered("rtx4090-workstation-display")
    _regions(node, bar5="0x0000000000000000 0x0000000000000000 0x0000000000000000")
    node.say("[    1.1] pci 0000:01:00.0: BAR 5: no space for [io  size 0x0080]")
    node.say("[    1.2] pci 0000:01:00.0: BAR 5: failed to assign [io  size 0x0080]")
    assert node.report().exit_code == 0
    _regions(node, bar5="0x0000000000000000 0x000000000000007f 0x0000000000040101")
    assert node.report().exit_code == 0


def test_memory_that_kept_its_size_and_lost_its_place_is_one() -> None:
    node = Altered("rtx4090-workstation-display")
    _regions(node, bar1="0x0000000000000000 0x00000007ffffffff 0x000000000014220c")
    report = node.report()
    assert _causes(report) == [("pcie.bars-assigned", "no-bar-space")]
    assert "BAR1" in report.root_causes[0].summary


def test_registers_of_nobody_are_no_answer() -> None:
    node = Altered("rtx4090-workstation-display")
    node.text(f"{WORKSTATION_GPU}/config", "\0" * 64)
    result = node.report().result("pcie.gpu-responds")
    assert (result.status, result.why) == (Status.UNKNOWN, "unreadable")


def test_a_gpu_that_fell_and_was_taken_off_the_bus_is_missed() -> None:
    node = Altered("h100x8-minors-shuffled")
    gone = "0000:db:00.0"
    node.error(node.place(f"{DEVICES}/{gone}"))
    node.error(f"{DEVICES}/{gone}")
    node.say("[ 9000.1] NVRM: Xid (PCI:0000:db:00): 79, pid=0, GPU has fallen off the bus.")
    listed = Altered("h100x8-minors-shuffled")
    listed.say("[ 9000.1] NVRM: Xid (PCI:0000:db:00): 63, pid=0, Row remapping pending")
    assert not _causes(listed.report())
    finding = node.report().result("pcie.gpus-present").findings[0]
    assert (finding.status, finding.cause) == (Status.WARN, "gone-since-boot")
    assert any("fallen off the bus" in seen.shows for seen in finding.evidence)


def test_a_fatal_error_that_only_the_port_saw_warns_and_half_the_counters_are_no_pass() -> None:
    node = Altered("h100x8")
    node.text(f"{DEVICES}/0000:17:00.0/aer_dev_fatal", "SDES 3\nTOTAL_ERR_FATAL 3\n")
    finding = _finding(node.report(), "pcie.aer-errors", "0000:18:00.0")
    assert finding.status is Status.WARN and "3 fatal at the port 0000:17:00.0" in finding.summary
    blind = Altered("h100x8")
    blind.error(blind.place(f"{DEVICES}/0000:18:00.0") + "/aer_dev_nonfatal", "EACCES")
    assert _finding(blind.report(), "pcie.aer-errors", "0000:18:00.0").why == "no-permission"


# kernel module -------------------------------------------------------------------------------------------------------


def test_a_failure_of_before_the_last_load_is_over() -> None:
    node = Altered("never-initialised-yet")
    address = node.report().node.gpus[0].address
    node.say(f"[ 50.1] NVRM: GPU {address}: RmInitAdapter failed! (0x62:0x40:2168)")
    assert _causes(node.report()) == [("kernel-module.adapter-initialised", "rminit-failed")]
    node.say("[ 90.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025")
    assert not _causes(node.report())


def test_two_gpus_that_fail_for_two_reasons_are_two_root_causes() -> None:
    node = Altered("rminit-failed-wpr2")
    path = "/proc/driver/nvidia/gpus/0000:db:00.0/information"
    lines = getattr(node.whole.read(path), "text", "").splitlines()
    node.text(path, "\n".join("Video BIOS: \t ??.??.??.??.??" if "Video BIOS" in line else line for line in lines))
    node.say("[ 4714.9] NVRM: GPU 0000:db:00.0: RmInitAdapter failed! (0x24:0x65:1569)")
    causes = [cause for check, cause in _causes(node.report()) if check == "kernel-module.adapter-initialised"]
    assert causes == ["rminit-failed", "rminit-wpr2"]


@pytest.mark.parametrize(
    "line",
    [
        "PKCS#7 signature not signed with a trusted key",
        "zfs: module verification failed: signature and/or required key missing - tainting kernel",
    ],
)
def test_a_remark_on_another_modules_signature_is_no_reason(line: str) -> None:
    node = Altered("module-not-loaded")
    before = _causes(node.report())
    node.say(f"[    5.0] {line}")
    assert _causes(node.report()) == before


# tasks and two faults ------------------------------------------------------------------------------------------------


def _tasks(**fields: object) -> Answer:
    sleeper = {
        "pid": 900,
        "comm": "python",
        "state": "D",
        "stack": "[<0>] down+0x1/0x2\n[<0>] nvidia_open+0x1/0x2 [nvidia]",
    }
    data = {
        "tasks": 300,
        "sleeping": [sleeper | {key: fields.pop(key) for key in list(fields) if key in _OF_ONE}],
        **fields,
    }
    return Answer(data=data, via="/proc")


_OF_ONE = ("unchanged_seconds", "still", "stack")


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (_tasks(unchanged_seconds=2.2, still=True), Status.UNKNOWN, "slow-init"),
        (_tasks(unchanged_seconds=2.2, still=False), Status.PASS, None),
        (_tasks(unchanged_seconds=10.4, still=True), Status.FAIL, None),
        (_tasks(stack="[<0>] nvfs_io_wait+0x1/0x2 [nvidia_fs]", unchanged_seconds=30.0), Status.PASS, None),
        (_tasks(stack="[<0>] rpc_wait+0x1/0x2 [sunrpc]", whole=False), Status.UNKNOWN, "no-permission"),
        (_tasks(stack="[<0>] rpc_wait+0x1/0x2 [sunrpc]", unseen=3), Status.UNKNOWN, "not-answered"),
    ],
    ids=["waits", "moved", "stuck", "storage", "part-of-the-tasks", "too-many"],
)
def test_a_task_is_stuck_or_not_or_nobody_knows(answer: Answer, status: Status, why: str | None) -> None:
    node = Altered("h100x8")
    node.answers["tasks"] = answer
    result = node.report().result("driver-cuda.no-stuck-task")
    assert (result.status, result.why) == (status, why)


def test_a_stuck_task_does_not_explain_libraries_of_another_version() -> None:
    node = Altered("nvml-mismatch")
    node.answers["tasks"] = _tasks(unchanged_seconds=11.0, still=True)
    checks = [check for check, _ in _causes(node.report())]
    assert "driver-cuda.no-stuck-task" in checks and "driver-cuda.nvml-answers" in checks


# a container's view --------------------------------------------------------------------------------------------------


def test_a_container_is_not_accused_of_the_gpus_it_was_not_given() -> None:
    node = Altered("h100x8")
    for path in ("/dev/kmsg", *(f"/dev/nvidia{minor}" for minor in range(1, 8))):
        node.error(path)
    answer = node.answer("nvml", lambda: pytest.fail("asked"))
    assert isinstance(answer, Answer)
    devices = [device for device in answer.data["devices"] if device["minor"] == 0]
    node.answers["nvml"] = Answer(data={**answer.data, "count": 1, "devices": devices})
    report = node.report()
    alarms = [finding.id for result in report.results for finding in result.findings if finding.status is Status.FAIL]
    assert alarms == []
    node.answers["nvml"] = Answer(data={**answer.data, "count": 0, "devices": []})
    assert [check for check, _ in _causes(node.report())] == ["driver-cuda.nvml-answers"]


# the driver's own library, where the bus was not seen -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        ({"init": 18}, Status.FAIL, "NVML does not start (18)"),
        ({"init": 0, "count": 0}, Status.FAIL, "NVML lists no GPU"),
        ({"init": 4}, Status.UNKNOWN, "NVML does not start (4)"),
        ({"init": 0, "count": 2}, Status.UNKNOWN, "was not recorded"),
    ],
)
def test_nvml_that_fails_is_told_of_though_nobody_saw_the_bus(data: dict[str, int], status: Status, words: str) -> None:
    recorded = RecordedNode(Tree())
    recorded.answers["nvml"] = Answer(data=dict(data))
    result = diagnose(recorded).result("driver-cuda.nvml-answers")
    assert (result.status, result.findings[0].subject.key) == (status, "node")
    assert words in result.findings[0].summary
