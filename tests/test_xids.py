"""Xids and SXids: every form of line, what is folded and what is put beside its cause, whose process it was, and when to be silent."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.raw import Answer, Gate, Log
from gpudoctor.facts.xid_lines import SXidLine, XidLine, find, find_all, find_off_the_bus, identities, parse
from gpudoctor.facts.xid_texts import link5, place, previous, recovery, registers, resets
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Status, Unread, Why
from tests.altered import Altered
from tests.captures import diagnose
from tests.small_node import alarms, cited, steps
from tests.workload_node import CRI, DOCKER, ID, POD, WorkloadNode, oci

DEVICE, MEMORY, NVLINK = "driver-cuda.xids", "health.memory-xids", "fabric.nvlink-xids"
APPLICATION, SWITCHES = "health.application-xids", "fabric.switch-sxids"
ALL = (DEVICE, MEMORY, NVLINK, APPLICATION, SWITCHES)
HEALTHY = "h100x8"
FIRST, SECOND = "0000:18:00", "0000:2a:00"
UNKNOWN = "pid='<unknown>', name=<unknown>"


class Logged(Altered):
    """A healthy node of which the kernel log, or a field of NVML, says something else."""

    def __init__(self, name: str = HEALTHY) -> None:
        super().__init__(name)
        self.devices: dict[str, dict[str, Any]] = {}

    def log(self, name: str) -> Log | Unread:
        """One that was set, else the node's."""
        return self.logs.get(name) or super().log(name)

    def untold(self, *slots: str) -> None:
        """A driver that does not tell of recoveries."""
        for slot in slots:
            self.nvml_field(slot, "recovery_action", None)
            self.nvml_field(slot, "reset_required", None)

    def nvml_field(self, slot: str, name: str, value: object) -> None:
        """What NVML answers for a field; None for a driver that does not know it."""
        self.devices.setdefault(slot, {})[name] = value

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """NVML's, with the fields that were set."""
        found = super().answer(name, gate)
        if name != "nvml" or isinstance(found, Unread) or not self.devices:
            return found
        data = copy.deepcopy(found.data)
        for device in data["devices"]:
            changed = self.devices.get(device["pci_bus_id"].lower()[-12:].rpartition(".")[0], {})
            fields = {**device.get("fields", {}), **changed}
            device["fields"] = {field: value for field, value in fields.items() if value is not None}
        return replace(found, data=data)


def xid(text: str, at: float = 4000.1, slot: str = FIRST) -> str:
    """A line of the kernel log."""
    return f"[ {at:.6f}] NVRM: Xid (PCI:{slot}): {text}"


def said(*lines: str, name: str = HEALTHY) -> Report:
    """What the doctor says of a healthy node whose kernel log has these lines too."""
    node = Logged(name)
    for line in lines:
        node.say(line)
    return node.report()


def only(report: Report, check: str) -> Finding:
    """The one alarm of a check."""
    (finding,) = alarms(report, check)
    return finding


def bare(*lines: str) -> Report:
    """The report on a kernel log of which nothing else is known."""
    node = RecordedNode(Tree(), uid=0)
    node.logs["kernel.log"] = Log("kernel.log", "\n".join(lines) + "\n", source="file")
    return diagnose(node)


def one(line: str) -> XidLine:
    """The record of a line about a GPU."""
    found = parse(line)
    assert isinstance(found, XidLine), line
    return found


# Lines --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "slot", "code", "pid", "name", "text"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14, None, "", "Channel 00000001"),
        ("NVRM: Xid (PCI:0000:01:00): 31, Ch 00000007", "0000:01:00", 31, None, "", "Ch 00000007"),
        (
            f"NVRM: Xid (PCI:0000:05:00): 79, {UNKNOWN}, GPU has fallen off the bus.",
            "0000:05:00",
            79,
            None,
            "",
            "GPU has",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 45, pid=4242, name=python3, Ch 08", "0000:01:00", 45, 4242, "python3", "Ch 08"),
        (
            "NVRM: Xid (PCI:0000:01:00): 45, pid='4242', name='python3', Ch 08",
            "0000:01:00",
            45,
            4242,
            "python3",
            "Ch 08",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 62, pid=7, 0cb5(2d50) 00000000", "0000:01:00", 62, 7, "", "0cb5(2d50)"),
        (
            "NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=a, b 'c', Ch 00000008",
            "0000:01:00",
            43,
            7,
            "a, b 'c'",
            "Ch 00000008",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=my job x, Ch 08, intr 0",
            "0000:01:00",
            43,
            7,
            "my job x",
            "Ch 08, intr 0",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 119, pid=9, name=nvc:[driver], Timeout after 6s",
            "0000:01:00",
            119,
            9,
            "nvc:[driver]",
            "Timeout",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=9, name=(udev-worker), Ch 1",
            "0000:01:00",
            31,
            9,
            "(udev-worker)",
            "Ch 1",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 46, pid=1234", "0000:01:00", 46, 1234, "", ""),
        ("NVRM: Xid (PCI:0000:01:00): 54, pid='<unknown>', name=<unknown>", "0000:01:00", 54, None, "", ""),
        ("NVRM: Xid (PCI:0000:b3:00.0): 79", "0000:b3:00", 79, None, "", ""),
        ("NVRM: Xid (PCI:03f8cfdd:00:00): 79, GPU", "3f8cfdd:00:00", 79, None, "", "GPU"),
        ("NVRM: Xid (PCI:00000000:1C:00): 79, GPU", "0000:1c:00", 79, None, "", "GPU"),
        ("NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)", "", 145, None, "", "RLW_RXPIPE"),
        ("nvidia_dev_xid: Xid (PCI:0000:01:00): 13, Graphics Exception", "0000:01:00", 13, None, "", "Graphics"),
        ("NVRM: Xid (PCI:0000:01:00): 119, pid=9 Recommended Action=X", "0000:01:00", 119, 9, "", "Recommended"),
    ],
)
def test_who_and_what_of_every_form(line: str, slot: str, code: int, pid: int | None, name: str, text: str) -> None:
    found = one(line)
    assert (found.slot, found.code, found.pid, found.name) == (slot, code, pid, name)
    assert found.text.startswith(text) and (bool(found.text) == bool(text))


@pytest.mark.parametrize(
    "stamp",
    [
        ("", ""),
        ("[   12.345678] ", "12.345678"),
        ("<4>[   12.345678] ", "12.345678"),
        ("[Fri Aug 30 11:43:09 2024] ", "Fri Aug 30 11:43:09 2024"),
        ("kern  :warn  : [   12.345678] ", "12.345678"),
        ("4,1234,12345678,-;", "12.345678"),
        ("Jul 13 17:08:23 node01 kernel: ", "Jul 13 17:08:23"),
        ("Jul 13 17:08:23 node01 kernel: [   12.345678] ", "Jul 13 17:08:23"),
        ("2025-07-13T17:08:23.395827+08:00 node01 kernel: ", "2025-07-13T17:08:23.395827+08:00"),
        ("2026-01-02T03:04:05.678901234Z stdout F [   12.345678] ", "12.345678"),
    ],
)
def test_the_time_of_every_log(stamp: tuple[str, str]) -> None:
    written, at = stamp
    found = one(f"{written}NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")
    assert (found.at, found.message[:10], found.code) == (at, "NVRM: Xid ", 79)


def test_a_container_that_logs_in_json_wraps_a_line() -> None:
    wrapped = '{"log":"NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\\n","stream":"stdout","time":"2026-01-02T03:04:05Z"}'
    found = one(wrapped)
    assert (found.code, found.text, found.at) == (79, "GPU has fallen off the bus.", "2026-01-02T03:04:05Z")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (PCI:0000:b3:00.0): INVALID, pid=1234, name=process",
        "NVRM: Xid : 32, pid=2280636",
        "NVRM: _kgspLogXid119: **** GSP Timeout ****",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): none",
    ],
)
def test_what_has_no_number_or_address_is_none(line: str) -> None:
    assert parse(line) is None


def test_instances_of_mig() -> None:
    whole = one(
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    )
    assert (whole.gpu_instance, whole.compute_instance, whole.pid) == (5, None, 7194)
    both = one("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 31, Ch 00000007")
    assert (both.gpu_instance, both.compute_instance) == (5, 0)


def test_what_texts_say() -> None:
    assert resets("Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No") == "reset"
    assert resets("Contained: CE. RST: No, D-RST: Yes") == "drain-and-reset"
    assert resets("Contained: CE User Channel (0x9). RST: No, D-RST: No") == "none"
    assert resets("Contained ECC error") == ""
    assert previous("Ch 00000008, errorString X caused by previous Xid 62") == 62
    assert recovery("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)") == (4, "Drain and Reset")
    assert recovery("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)") == (0, "None")
    assert registers("NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)") == (
        14,
        (0, 0, 65536, 0, 0, 0, 0),
    )
    assert place("Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address") == "GPC 1, TPC 3"
    told = link5("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000 0x0 0x0)")
    assert told is not None and (told.unit, told.fatal, told.link, told.words[0]) == (
        "NETIR_LINK_EVT",
        True,
        9,
        0x025525C6,
    )
    nowhere = link5("NETIR Fatal XC0 i0 Link -1 (0x000fe406")
    assert nowhere is not None and (nowhere.link, nowhere.words) == (-1, (0x000FE406,))
    cut = link5("RLW_SRC_TRACK Nonfatal XC1 i0")
    assert cut is not None and (cut.link, cut.fatal, cut.words) == (None, False, ())


def test_gpus_off_the_bus_without_a_number() -> None:
    log = """[   10.1] NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.
[   11.1] NVRM: GPU at 0000:01:00.0 has fallen off the bus.
[   12.1] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
[   13.1] NVRM: The NVIDIA GPU 0000:b4:00.0 fallen off the bus and is not responding to commands.
[   14.1] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.
[   15.1] a process said: it has fallen off the bus
"""
    found = [(line.slot, line.at) for line in find_off_the_bus(log)]
    assert found == [("0000:91:00", "10.1"), ("0000:01:00", "11.1"), ("0000:b3:00", "12.1"), ("0000:b4:00", "13.1")]
    assert [line.code for line in find_all(log)] == [79] * 5


def test_the_board_is_named_before_its_first_xid() -> None:
    log = """[ 1.0] NVRM: GPU at PCI:0000:03:00: GPU-31ca7038-7b9b-cf96-6ae9-a2696d103c19
[ 1.0] NVRM: GPU Board Serial Number: 0180510152105
[ 2.0] NVRM: GPU at PCI:0000:04:00: GPU-41ca7038-7b9b-cf96-6ae9-a2696d103c19
[ 2.0] NVRM: GPU Board Serial Number: 0
[ 3.0] NVRM: GPU at PCI:([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]+)
"""
    found = identities(log)
    assert {slot: (board.uuid[:12], board.serial) for slot, board in found.items()} == {
        "0000:03:00": ("GPU-31ca7038", "0180510152105"),
        "0000:04:00": ("GPU-41ca7038", ""),
    }


def test_lines_of_switches() -> None:
    def sxid(line: str) -> SXidLine:
        found = parse(line)
        assert isinstance(found, SXidLine), line
        return found

    plain = sxid(
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
    )
    assert (plain.switch, plain.address, plain.code, plain.fatal, plain.link) == (
        "nvidia-nvswitch3",
        "0000:05:00.0",
        12028,
        False,
        32,
    )
    assert (
        sxid("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)").fatal
        is True
    )
    more = sxid(
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00"
    )
    data = sxid("nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Data {0x50610002, 0x10100030, 0x00000000}")
    assert (more.detail, more.fatal, data.detail) == (True, None, True)
    halted = sxid("nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26006, SOE HALTED")
    assert (halted.fatal, halted.text, halted.detail) == (None, "SOE HALTED", False)


HOSTILE = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            [
                "NVRM: ", "Xid (", "PCI:", "0000:01:00", ".0", "): ", "79", ", ", "pid=", "'<unknown>'", "name=", "<unknown>", "\0", "\r",
                "GPU-I:05", " GPU-CI:", "SXid (", "Fatal", "Link ", "-1", "0x", "(", ")", "\n", "fallen off the bus", "The NVIDIA GPU ",
                "NVRM: GPU at PCI:", "GPU-", "Board Serial Number: ", "[  1.0] ", "4,1,1,-;", "{\"log\":\"",
                "RST: Yes, D-RST: No", "9" * 40,
                "changed from 0x0 (None) to 0x1 (GPU Reset Required)", "XC0 i0", "Nonfatal", "é", "154",
            ]
        ),
        max_size=40,
    ).map("".join),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(HOSTILE)
def test_no_text_breaks_the_parser_and_every_line_is_told_once(text: str) -> None:
    found = list(find(text))
    assert len(found) <= text.count("Xid (")
    list(find_off_the_bus(text))
    identities(text)
    for line in found:
        for asked in (resets, previous, recovery, registers, link5, place):
            asked(line.text)


@settings(max_examples=60, deadline=None)
@given(st.lists(HOSTILE, max_size=6))
def test_no_log_breaks_the_report(lines: list[str]) -> None:
    node = RecordedNode(Tree(), uid=0)
    node.logs["kernel.log"] = Log("kernel.log", "\n".join(lines), source="file")
    found = Desk(node, Config()).get(GpuErrors)
    assert isinstance(found, GpuErrors), found


def test_a_very_long_line_costs_little() -> None:
    line = "NVRM: Xid (PCI:0000:01:00): 43, pid=1, name=" + "a, " * 400_000
    found = one(line)
    assert found.pid == 1 and len(found.name) <= 20
    assert not list(find("Xid (" * 200_000))


# What is said -------------------------------------------------------------------------------------------------------


def test_a_healthy_node_is_silent_and_says_what_was_read() -> None:
    report = said()
    for check in ALL:
        result = report.result(check)
        assert result.status is Status.PASS, (check, result.detail)
        assert all("since boot" in finding.summary and finding.evidence for finding in result.findings)


def test_a_log_that_does_not_reach_back_says_from_when_it_does() -> None:
    report = bare("[ 5000.5] usb 1-1: new device", "[ 6000.5] usb 1-1: gone")
    (finding,) = report.result(DEVICE).findings
    assert finding.status is Status.PASS and "still has (since 5000 s after boot)" in finding.summary


def test_an_unread_log_and_an_empty_one_are_not_known() -> None:
    node = Logged()
    node.logs["kernel.log"] = Unread(
        Why.NO_PERMISSION, "kernel log", "permission denied", would_need="root or group adm"
    )
    assert {node.report().result(check).why for check in ALL} == {"no-permission"}
    node.logs["kernel.log"] = Log("kernel.log", "\n", source="kmsg", from_boot=True)
    assert {node.report().result(check).status for check in ALL} == {Status.UNKNOWN}


def test_an_error_that_needs_a_reset_fails_until_the_driver_asks_for_nothing() -> None:
    lines = (xid(f"62, {UNKNOWN}, 32269a40 0001b3f8"), xid("45, pid=77, name=python3, Ch 00000008", 4000.5))
    node = Logged()
    for line in lines:
        node.say(line)
    node.nvml_field(FIRST, "recovery_action", "none")
    warned = only(node.report(), DEVICE)
    assert warned.status is Status.WARN and "since then the driver asks for nothing" in warned.summary
    assert "in its wake Xid 45" in warned.summary and "reset the GPU" in warned.summary
    assert warned.evidence[0].at == "4000.100000" and "62," in warned.evidence[0].shows
    assert any("catalogue" in seen.where and "blame: " in seen.shows for seen in warned.evidence)
    assert "nvidia-smi --gpu-reset" in steps(warned)
    node.untold(FIRST)
    failed = only(node.report(), DEVICE)
    assert (failed.status, failed.breaks) == (Status.FAIL, "subject")
    assert not alarms(node.report(), APPLICATION)


@pytest.mark.parametrize(
    ("text", "check", "action", "status"),
    [
        ("62, 32269a40 0001b3f8", DEVICE, "drain_p2p", Status.WARN),
        ("62, 32269a40 0001b3f8", DEVICE, "recover_imex_domain", Status.WARN),
        ("62, 32269a40 0001b3f8", DEVICE, "drain_and_reset", Status.FAIL),
        ("74, NVLink: fatal error detected on link 14", NVLINK, "drain_p2p", Status.FAIL),
    ],
)
def test_what_the_driver_asks_for_by_now_can_be_less_than_a_reset(
    text: str, check: str, action: str, status: Status
) -> None:
    node = Logged()
    node.say(xid(text))
    node.nvml_field(FIRST, "recovery_action", action)
    node.nvml_field(FIRST, "reset_required", value=action == "drain_and_reset")
    found = only(node.report(), check)
    assert found.status is status and ("asks for less" in found.summary) is (status is Status.WARN)


def test_the_driver_that_asks_and_the_xid_are_one_root_cause() -> None:
    node = Logged()
    node.say(xid("62, 32269a40 0001b3f8"))
    node.say(xid("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 4000.2))
    node.nvml_field(FIRST, "recovery_action", "gpu_reset")
    report = node.report()
    assert [(cause.check, cause.subjects[0].key) for cause in report.root_causes] == [
        ("driver-cuda.recovery-action", f"{FIRST}.0")
    ]
    found = only(report, DEVICE)
    assert found.caused_by and "the driver asks for: GPU Reset Required" in found.summary and "154" not in found.summary


def test_a_recovery_that_was_taken_back_is_over() -> None:
    node = Logged()
    node.untold(FIRST)
    node.say(xid("62, 32269a40 0001b3f8"))
    node.say(xid("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", 4000.2))
    assert only(node.report(), DEVICE).status is Status.FAIL
    node.say(xid("154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", 4900.2))
    assert only(node.report(), DEVICE).status is Status.WARN


@pytest.mark.parametrize(
    ("number", "word", "step"),
    [
        (1, "GPU Reset Required", "--gpu-reset"),
        (2, "Node Reboot Required", "systemctl reboot"),
        (4, "Drain and Reset", "--gpu-reset"),
        (3, "Drain P2P", "gpudoctor record"),
        (5, "Recover IMEX Domain", "systemctl restart nvidia-imex"),
    ],
)
def test_a_154_whose_cause_the_log_has_lost_stands_for_itself(number: int, word: str, step: str) -> None:
    report = bare(xid(f"154, GPU recovery action changed from 0x0 (None) to 0x{number:x} ({word})"))
    found = only(report, DEVICE)
    assert word in found.summary and step in steps(found)
    assert found.status is (Status.WARN if number in (3, 5) else Status.FAIL)
    assert number != 5 or "reset" not in steps(found)


def test_who_may_not_ask_nvml_does_not_claim_that_the_gpu_is_broken() -> None:
    node = Logged()
    node.say(xid("62, 32269a40 0001b3f8"))
    node.answers["nvml"] = Unread(Why.NO_PERMISSION, "nvml", "hidden")
    result = node.report().result(DEVICE)
    assert (result.status, result.why) == (Status.UNKNOWN, "no-permission")


@pytest.mark.parametrize(
    ("uptime", "status", "why"),
    [("5000.00 1.00\n", Status.FAIL, None), ("500000.00 1.00\n", Status.UNKNOWN, "withheld")],
)
@pytest.mark.parametrize(
    "line",
    [xid("62, 32269a40 0001b3f8"), "[ 4000.1] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6070"],
)
def test_where_nvml_is_left_alone_what_is_old_may_be_cured(
    line: str, uptime: str, status: Status, why: str | None
) -> None:
    node = Logged()
    node.say(line)
    node.text("/proc/uptime", uptime)
    node.answers["nvml"] = Unread(Why.WITHHELD, "NVML", "no process holds a GPU")
    result = node.report().result(DEVICE)
    assert (result.status, result.why) == (status, why)


def test_firmware_that_fell_silent_is_not_called_dead_by_who_may_not_ask() -> None:
    node = Logged()
    node.say("[ 4000.1] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6070 timeout 5200")
    node.answers["nvml"] = Unread(Why.NO_PERMISSION, "nvml", "hidden")
    result = node.report().result(DEVICE)
    assert (result.status, result.why) == (Status.UNKNOWN, "no-permission")


@pytest.mark.parametrize("at", ["999999999999.500000", "600000000.5 <    0.000012>"])
def test_a_time_that_no_calendar_has_is_no_crash(at: str) -> None:
    found = only(bare(f"[{at}] NVRM: Xid (PCI:{FIRST}): 79, GPU has fallen off the bus."), DEVICE)
    assert found.status is Status.FAIL and "Xid 79" in found.summary


def test_repeats_are_one_finding_with_first_and_last() -> None:
    found = only(said(*(xid("48, pid=1, name=x, DBE", 4000.0 + number * 100) for number in range(9))), MEMORY)
    assert "Xid 48 9 times (last 4800 s after boot)" in found.summary and "it came 9 separate times" in found.summary
    assert [seen.at for seen in found.evidence[:2]] == ["4000.000000", "4800.000000"]
    assert len(found.evidence) < 8


def test_memory_leads_and_what_programs_saw_of_it_is_its_wake() -> None:
    report = said(
        xid("45, pid=77, name=python3, Ch 00000008", 4000.0),
        xid(f"48, {UNKNOWN}, DBE (double bit error)", 4000.1),
        xid("63, Row remapping event", 4000.2),
        xid("94, pid=77, name=python3, Contained: SM. RST: No, D-RST: No", 4000.3),
        xid("31, pid=77, name=python3, Ch 00000008, intr 0. MMU Fault", 4001.3),
        xid("43, pid=77, name=python3, Ch 00000008", 4002.3),
    )
    found = only(report, MEMORY)
    assert found.summary.startswith("Xid 48 (4000 s after boot): an uncorrectable")
    assert "with it Xid 94, Xid 63" in found.summary and "in its wake Xid 45, Xid 31, Xid 43" in found.summary
    assert "python3 (pid 77)" in found.summary
    assert not alarms(report, APPLICATION) and not alarms(report, DEVICE)


def test_a_program_that_faults_much_later_is_its_own() -> None:
    report = said(xid(f"48, {UNKNOWN}, DBE", 1000.0), xid("13, pid=5, name=train, Graphics Exception", 4900.0))
    assert only(report, MEMORY).status is not Status.PASS and only(report, APPLICATION).status is Status.WARN


def test_flags_and_containment_decide() -> None:
    node = Logged()
    node.untold(FIRST)
    node.say(xid("94, pid=7194, name=x, Contained: CE User Channel (0x9). RST: No, D-RST: No"))
    assert only(node.report(), MEMORY).status is Status.WARN
    node.say(xid("95, pid=7062, name=x, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", 4000.2))
    assert only(node.report(), MEMORY).status is Status.FAIL


def test_a_mig_instance_is_named() -> None:
    line = f"[ 4000.1] NVRM: Xid (PCI:{FIRST} GPU-I:05 GPU-CI:01): 94, pid=7194, name=x, Contained: SM (0x1). RST: No, D-RST: No"
    assert "Xid 94 on GPU instance 5, compute instance 1" in only(said(line), MEMORY).summary


@pytest.mark.parametrize(
    "line",
    [
        xid("63, Row remapping pending"),
        xid("14, Channel 00000001"),
        "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate",
        xid("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000021 0x00000004 0x00000000 0x00000000)"),
        xid("121, C2C correctable"),
        xid("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
    ],
)
def test_what_asks_for_nothing_is_silent(line: str) -> None:
    report = said(line)
    assert not [finding for check in ALL for finding in alarms(report, check)]
    assert report.exit_code == 0


def test_the_pass_counts_what_asks_for_nothing() -> None:
    report = said(xid("63, Row remapping pending"), xid("63, Row remapping pending again", 4500.0))
    told = next(finding for finding in report.result(MEMORY).findings if finding.subject.key == f"{FIRST}.0")
    assert "and 2 that ask for nothing" in told.summary and "63" in cited(told)


# Applications -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [13, 31, 43, 45, 69])
def test_a_program_that_faults_is_a_warning_about_the_program(code: int) -> None:
    report = said(xid(f"{code}, pid=4242, name=pt_main_thread, Ch 00000007, intr 00000000"))
    found = only(report, APPLICATION)
    assert found.status is Status.WARN and "pt_main_thread (pid 4242)" in found.summary
    assert not alarms(report, DEVICE) and not alarms(report, MEMORY)
    assert report.root_causes[0].check == APPLICATION and len(report.root_causes) == 1


def test_an_old_fault_of_a_program_is_only_told() -> None:
    lines = (xid("31, pid=4242, name=train, Ch 00000007", 100.0), "[ 200000.0] usb 1-1: new device")
    report = said(*lines)
    assert not alarms(report, APPLICATION)
    told = next(finding for finding in report.result(APPLICATION).findings if "Xid 31" in finding.summary)
    assert told.status is Status.PASS and "none of the last 24 hours" in told.summary
    node = Logged()
    node.say(lines[0])
    node.text("/proc/uptime", "200000.00 1.0\n")
    assert not alarms(node.report(), APPLICATION)
    node.error("/proc/uptime", "EACCES")
    assert node.report().result(APPLICATION).status is Status.UNKNOWN


def test_one_program_on_several_gpus_is_one_cause() -> None:
    report = said(
        xid("31, pid=1, name=train.3, Ch 00000007", 100.0), xid("31, pid=2, name=train.3, Ch 00000007", 900.0, SECOND)
    )
    (cause,) = report.root_causes
    assert len(cause.subjects) == 2 and cause.check == APPLICATION


def test_where_in_the_chip_is_told() -> None:
    text = "13, pid=5, name=x, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address"
    assert "GPC 1, TPC 3" in only(said(xid(text), xid(text, 4500.0)), APPLICATION).summary


# Whose process ------------------------------------------------------------------------------------------------------


def _hit(node: WorkloadNode, pid: int, name: str) -> str:
    """What a program's error says, on a node of which the log and the processes are known."""
    recorded = node.node()
    line = xid(f"31, pid={pid}, name={name}, Ch 00000007, intr 00000000")
    recorded.logs["kernel.log"] = Log("kernel.log", f"{line}\n", source="kmsg", from_boot=True)
    node.tree.put("/proc/uptime", Record(text="4100.00 1.00\n"))
    return only(diagnose(recorded), APPLICATION).summary


def test_a_living_process_is_told_with_its_pod_or_container() -> None:
    node = WorkloadNode()
    node.process(4242, POD, apart=True)
    node.process(4300, POD, apart=True, comm="ray::WorkerDict")
    node.inside(4242)
    node.bundle(ID, oci(annotations=CRI))
    assert "it hit python3 (pid 4242) in pod lab/trainer, container main" in _hit(node, 4242, "python3")
    assert "ray::WorkerDict (pid 4300) in pod lab/trainer" in _hit(node, 4300, "ray::WorkerDict")
    docker = WorkloadNode()
    docker.process(4242, DOCKER, apart=True)
    docker.inside(4242)
    assert f"python3 (pid 4242) in container {ID[:12]}" in _hit(docker, 4242, "python3")


def test_a_job_and_a_unit_are_told_too() -> None:
    node = WorkloadNode()
    node.process(4242, "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0")
    node.process(4243, "/system.slice/ollama.service", comm="ollama")
    assert "python3 (pid 4242) in job 397" in _hit(node, 4242, "python3")
    assert "ollama (pid 4243) in ollama.service" in _hit(node, 4243, "ollama")


def test_a_number_that_is_another_process_by_now_is_not_taken_for_it() -> None:
    node = WorkloadNode()
    node.process(4242, DOCKER, apart=True, comm="nginx")
    said_of_it = _hit(node, 4242, "python3")
    assert "it hit python3 (pid 4242);" in said_of_it and "container" not in said_of_it
    assert "it hit train (pid 999);" in _hit(node, 999, "train")


# Several GPUs, other boots, lost boards -------------------------------------------------------------------------------


def test_several_gpus_at_once_are_one_cause_and_apart_they_are_not() -> None:
    node = Logged()
    node.untold(FIRST)
    node.untold(SECOND)
    node.say(xid("79, GPU has fallen off the bus.", 4000.0))
    node.say(xid("79, GPU has fallen off the bus.", 4001.0, SECOND))
    causes = [cause for cause in node.report().root_causes if cause.check == DEVICE]
    assert len(causes) == 1 and len(causes[0].subjects) == 2
    assert f"at the same time as {SECOND}.0" in alarms(node.report(), DEVICE)[0].summary
    apart = bare(xid("79, GPU has fallen off the bus.", 1000.0), xid("79, GPU has fallen off the bus.", 4001.0, SECOND))
    assert len([cause for cause in apart.root_causes if cause.check == DEVICE]) == 2


def test_again_after_a_reboot() -> None:
    node = Logged()
    node.say(xid(f"48, {UNKNOWN}, DBE"))
    node.logs["kernel.previous.log"] = Log("kernel.previous.log", xid("48, DBE", 77.0) + "\n", source="journal")
    assert "the boot before saw it on this GPU too" in only(node.report(), MEMORY).summary
    node.logs["kernel.previous.log"] = Log("kernel.previous.log", xid("48, DBE", 77.0, SECOND) + "\n", source="journal")
    assert "the boot before" not in only(node.report(), MEMORY).summary


def test_a_lost_gpu_is_told_with_its_serial_number_also_without_a_bus_to_look_at() -> None:
    report = bare(
        "[ 4000.1] NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
        "[ 4000.1] NVRM: GPU Board Serial Number: 1653224019555",
        f"[ 4000.1] NVRM: Xid (PCI:0000:91:00): 79, {UNKNOWN}, GPU has fallen off the bus.",
        "[ 4000.1] NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
    )
    found = only(report, DEVICE)
    assert (found.subject.key, found.status) == ("0000:91:00.0", Status.FAIL)
    assert "Xid 79 (4000 s" in found.summary and "serial number 1653224019555" in found.summary
    assert "GPU-b6c3b2be" in cited(found)


def test_a_gpu_that_left_the_bus_is_told_once() -> None:
    result = Altered("gpu-missing-with-last-xid").report().result(DEVICE)
    told = next(finding for finding in result.findings if finding.subject.key == "0000:5d:00.0")
    assert told.status is Status.SKIP and "pcie.gpus-present" in told.summary and "serial number" in told.summary


def test_an_address_that_the_log_leaves_out_is_the_nodes() -> None:
    found = only(bare("NVRM: Xid (PCI:...): 62, halted"), DEVICE)
    assert found.subject.key == "node"


# NVLink and switches -------------------------------------------------------------------------------------------------


def test_registers_of_nvlink_5_are_decoded() -> None:
    text = "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    found = only(said(xid(text)), NVLINK)
    assert "link 9" in found.summary and "NETIR_LINK_EVT" in found.summary


def test_registers_of_hoppers_links_are_decoded_and_harmless_ones_ignored() -> None:
    node = Logged()
    node.nvml_field(FIRST, "architecture", "hopper")
    node.say(xid(f"74, {UNKNOWN}, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"))
    assert not alarms(node.report(), NVLINK)
    mute = Logged()
    mute.nvml_field(FIRST, "architecture", "hopper")
    mute.say(xid("74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"))
    assert "Xid 74" in only(mute.report(), NVLINK).summary
    node.say(
        xid(f"74, {UNKNOWN}, NVLink: fatal error detected on link 14(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 4900.0)
    )
    found = only(node.report(), NVLINK)
    assert "link 14" in found.summary and "bit 8" in found.summary


def test_a_fatal_error_of_a_switch() -> None:
    fatal = (
        "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)"
    )
    detail = "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Severity 1 Engine instance 28 Sub-engine instance 00"
    found = only(said(fatal, detail), SWITCHES)
    assert found.subject.key == "0000:07:00.0" and found.status is Status.FAIL
    assert "fatal SXid 24007 on link 28" in found.summary and "Severity 1" in cited(found)
    # A reset is refused while persistence mode or a daemon holds the GPU; the fabric manager goes on.
    before = steps(found).partition("nvidia-smi --gpu-reset -i GPU")[0]
    assert "nvidia-smi -i GPU -pm 0" in before and "fabricmanager" not in before
    halted = only(said("[ 4000.1] nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26006, SOE HALTED"), SWITCHES)
    assert halted.status is Status.WARN and "26006" in halted.summary
    old = said(fatal, "[ 400000.0] usb 1-1: new device")
    assert only(old, SWITCHES).status is Status.WARN


def test_nvml_answers_are_not_needed_for_a_bare_log() -> None:
    report = bare(xid("119, pid=9, name=nvc:[driver], Timeout after 6s of waiting for RPC response from GPU0 GSP!"))
    assert only(report, DEVICE).status is Status.FAIL
