"""Xids: whose words a line has, which error is another's cause, what GPUs lost at once share, and which driver wrote the registers."""

import pytest

from gpudoctor.facts.log_moments import moment
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.xid_lines import find_all, identities, parse
from gpudoctor.verdicts import Status
from tests.altered import Altered
from tests.small_node import alarms, cited
from tests.test_xids import (
    ALL,
    APPLICATION,
    DEVICE,
    FIRST,
    MEMORY,
    NVLINK,
    SECOND,
    SWITCHES,
    UNKNOWN,
    Logged,
    bare,
    one,
    only,
    said,
    xid,
)

RECOVERY, RESPONDS = "driver-cuda.recovery-action", "pcie.gpu-responds"
LOST = "79, GPU has fallen off the bus."
THIRD = "0000:3a:00"
FATAL = f"74, {UNKNOWN}, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"


# Whose words --------------------------------------------------------------------------------------------------------

ELSEWHERE = (
    f"systemd[1]: Started NVRM: Xid (PCI:{FIRST}): {LOST}",
    f"usb 1-4: Product: NVRM: Xid (PCI:{FIRST}): {LOST}",
    f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=NVRM: Xid (PCI:{FIRST}): {LOST},task=x,pid=7,uid=1000",
    f'audit: type=1400 audit(1.0:1): apparmor="ALLOWED" profile="NVRM: Xid (PCI:{FIRST}): {LOST}"',
    f"watcher[4410]: kernel: NVRM: Xid (PCI:{FIRST}): {LOST}",
    f"watcher[4410]: nvidia-nvswitch0: SXid (PCI:{FIRST}.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
    "watcher[4410]: NVRM: GPU 0000:99:00.0: GPU has fallen off the bus.",
    "watcher[4410]: NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.",
)


@pytest.mark.parametrize("words", ELSEWHERE)
@pytest.mark.parametrize(
    "stamp",
    ["[ 4000.100000] ", "12,99,4000100000,-;", "2026-11-29T03:04:05.678Z stdout F ", "Nov 29 03:04:05 host "],
)
def test_what_another_says_of_an_xid_is_none_of_the_drivers(stamp: str, words: str) -> None:
    assert not list(find_all(f"{stamp}{words}\n"))


def test_what_another_says_does_not_alarm() -> None:
    report = said(*(f"[ 4000.1] {words}" for words in ELSEWHERE))
    assert report.exit_code == 0 and not [found for check in ALL for found in alarms(report, check)]


def test_what_another_says_of_a_board_gives_no_serial_number() -> None:
    board = f"NVRM: GPU at PCI:{FIRST}: GPU-31ca7038-7b9b-cf96-6ae9-a2696d103c19"
    serial = "[ 1.0] NVRM: GPU Board Serial Number: 7777777"
    assert identities(f"[ 1.0] {board}\n{serial}\n")
    log = f"[ 1.0] watcher[4410]: {board}\n{serial}\n"
    assert not identities(log)


@pytest.mark.parametrize(
    "before", ["[...] ", "> [ 12.5] ", "/var/log/messages:Nov 30 03:04:05 host kernel: ", "123:[ 12.5] ", "[pod/a/b] "]
)
def test_a_line_of_unknown_form_is_taken(before: str) -> None:
    assert one(f"{before}NVRM: Xid (PCI:{FIRST}): {LOST}").code == 79


def test_a_line_that_ends_in_its_address_is_none() -> None:
    assert parse(f"[ 1.0] NVRM: Xid (PCI:{FIRST}") is None


@pytest.mark.parametrize("text", ["x", "Fault 3, intr 0", "", "GPU"])
def test_no_name_is_never_a_process(text: str) -> None:
    found = one(f"[ 1.0] NVRM: Xid (PCI:{FIRST}): 62, {UNKNOWN}, {text}".rstrip(", "))
    assert (found.pid, found.name, found.text) == (None, "", text)


# Times of other languages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "like"),
    [
        ("11月 16 04:38:20 node kernel: NVRM: x", "Nov 16 04:38:20"),
        ("[六 11月 16 04:38:20 2024] NVRM: x", "Nov 16 04:38:20 2024"),
        ("[火  2月  6 04:38:20 2024] NVRM: x", "Feb  6 04:38:20 2024"),
        ("[토 11월 16 04:38:20 2024] NVRM: x", "Nov 16 04:38:20 2024"),
        ("[Fr Okt  4 04:38:20 2024] NVRM: x", "Oct  4 04:38:20 2024"),
        ("[mar. août 6 04:38:20 2024] NVRM: x", "Aug  6 04:38:20 2024"),
        ("févr. 06 04:38:20 node kernel: NVRM: x", "Feb  6 04:38:20"),
        ("[mié ene  3 04:38:20 2024] NVRM: x", "Jan  3 04:38:20 2024"),
        ("13月 16 04:38:20 node kernel: NVRM: x", "no time"),
    ],
)
def test_a_month_in_the_readers_language(line: str, like: str) -> None:
    at, message = split(line)
    assert message == "NVRM: x" and moment(at) == moment(like)


def test_gpus_lost_at_once_by_a_log_in_chinese() -> None:
    lines = [
        f"[六 11月 16 04:38:2{second} 2024] NVRM: Xid (PCI:{slot}): {LOST}"
        for second, slot in enumerate((FIRST, SECOND))
    ]
    assert len([cause for cause in bare(*lines).root_causes if cause.check == DEVICE]) == 1


# Causes -------------------------------------------------------------------------------------------------------------


def test_what_one_mig_instance_met_is_not_in_the_wake_of_anothers() -> None:
    lines = [
        f"[ 4000.{place}] NVRM: Xid (PCI:{FIRST} GPU-I:{words}"
        for place, words in enumerate(
            (
                "05): 94, pid=7194, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
                "05): 43, pid=7194, name=python3, Ch 00000007",
                "09): 31, pid=8, name=other, Ch 00000007, intr 0. MMU Fault",
            )
        )
    ]
    report = said(*lines)
    assert "in its wake Xid 43 on GPU instance 5" in only(report, MEMORY).summary
    assert "Xid 31" not in only(report, MEMORY).summary
    assert "Xid 31 on GPU instance 9" in only(report, APPLICATION).summary
    whole = said(f"[ 3999.9] NVRM: Xid (PCI:{FIRST}): 95, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", *lines)
    assert not alarms(whole, APPLICATION) and "Xid 31 on GPU instance 9" in only(whole, MEMORY).summary


def test_a_job_on_several_gpus_ends_on_all_of_them_for_one_error() -> None:
    ended = "45, pid=77, name=python3, Ch 00000008"
    others = (xid(ended, 4003.4, SECOND), xid(ended, 4003.5, THIRD))
    report = said(xid(f"48, {UNKNOWN}, DBE"), xid(ended, 4000.4), *others)
    assert [cause.check for cause in report.root_causes] == [MEMORY]
    told = next(one for one in report.result(APPLICATION).findings if one.subject.key == f"{SECOND}.0")
    assert (
        told.status is Status.PASS and f"Xid 45 beside Xid 48 of {FIRST}" in told.summary and "48, pid" in cited(told)
    )
    assert len(alarms(said(*others), APPLICATION)) == 2
    again = said(xid(f"48, {UNKNOWN}, DBE"), *others, xid(ended, 9000.0, SECOND))
    assert only(again, APPLICATION).subject.key == f"{SECOND}.0"
    often = [
        line
        for at in (4000.1, 7000.0, 9000.0)
        for line in (xid(f"48, {UNKNOWN}, DBE", at), xid(ended, at + 0.3), xid(ended, at + 3.3, SECOND))
    ]
    assert [cause.check for cause in said(*often).root_causes] == [MEMORY]
    fault = said(xid(f"48, {UNKNOWN}, DBE"), xid("31, pid=3, name=x, Ch 1", 4001.0, SECOND))
    assert only(fault, APPLICATION).subject.key == f"{SECOND}.0"


def test_links_to_a_gpu_that_fell_off_the_bus_are_its() -> None:
    report = said(xid(LOST), xid(FATAL, 4000.4, SECOND))
    assert not alarms(report, NVLINK) and [cause.check for cause in report.root_causes] == [DEVICE]
    (told,) = [one for one in report.result(NVLINK).findings if "Xid 74" in one.summary]
    assert told.status is Status.SKIP and f"told of {FIRST}, which fell off the bus" in told.summary
    assert only(said(xid("62, halted"), xid(FATAL, 4000.4, SECOND)), NVLINK).subject.key == f"{SECOND}.0"
    assert only(said(xid(LOST), xid(FATAL, 4900.4, SECOND)), NVLINK).subject.key == f"{SECOND}.0"


def test_links_to_a_switch_with_a_fatal_error_are_its() -> None:
    switch = "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, {}, Link 28 sourcetrack timeout error (First)"
    report = said(switch.format("Fatal"), xid(FATAL, 4000.4, SECOND), xid(FATAL, 4000.4, THIRD))
    assert [cause.check for cause in report.root_causes] == [SWITCHES] and not alarms(report, NVLINK)
    assert f"beside it NVLink errors of {SECOND}.0, {THIRD}.0" in only(report, SWITCHES).summary
    assert any("told of the NVSwitch 0000:07:00.0" in one.summary for one in report.result(NVLINK).findings)
    assert len(alarms(said(switch.format("Non-fatal"), xid(FATAL, 4000.4, SECOND)), NVLINK)) == 1
    # The driver's word is Fatal (intr_ls10.c); by the guide it is a single bit error, which the check of the switches leaves aside.
    mild = "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 19055, Fatal, Link 28 HDR RAM ECC Limit Error (First)"
    beside = said(mild, xid(FATAL, 4000.4, SECOND))
    assert only(beside, NVLINK).subject.key == f"{SECOND}.0" and not alarms(beside, SWITCHES)
    told = next(one for one in beside.result(SWITCHES).findings if one.subject.key == "0000:07:00.0")
    assert told.summary == "no SXid that asks for something since boot, and 1 that ask for nothing"


NETIR = (
    "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
)
SYMPTOM = "145, pid=1, name=x, RLW_SRC_TRACK Nonfatal XC1 i0 Link 08 (0x040868e2 0x00000008 0x0 0x0 0x0 0x0)"
ASKS = "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
ASKS_MORE = "154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)"
CURED = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ((NETIR, ASKS, SYMPTOM, ASKS_MORE), "149, NETIR"),
        (("31, pid=3, name=x, Ch 1", NETIR, "31, pid=4, name=x, Ch 1", ASKS, SYMPTOM), "149, NETIR"),
        (("48, DBE", "63, Row remapping pending", ASKS, "45, pid=2, name=x, Ch 1"), "48, DBE"),
        (("62, halted", ASKS, CURED, NETIR, ASKS), "149, NETIR"),
        ((ASKS, NETIR), "149, NETIR"),
        (("45, pid=2, name=x, Ch 1", ASKS), "45, pid=2"),
        (("31, pid=3, name=x, Ch 1", "45, pid=2, name=x, Ch 1"), "31, pid=3"),
    ],
)
def test_a_recovery_is_told_with_the_xid_that_it_is_asked_for(texts: tuple[str, ...], cause: str) -> None:
    node = Logged()
    for place, text in enumerate(texts):
        node.say(xid(text, 4000.0 + place / 10))
    node.nvml_field(FIRST, "recovery_action", "gpu_reset")
    shown = [seen.shows for seen in only(node.report(), RECOVERY).evidence if "NVRM: Xid" in seen.shows]
    assert f"): {cause}" in shown[0] and (len(shown) == 1 or "154" in shown[1]) and len(shown) <= 2


def test_a_gpu_that_is_lost_after_another_recovery_was_asked_for() -> None:
    node = Logged()
    node.say(xid("62, halted"), xid(ASKS, 4000.2), xid(LOST, 4100.0))
    node.nvml_field(FIRST, "recovery_action", "gpu_reset")
    shown = cited(only(node.report(), RECOVERY))
    assert "): 62, halted" in shown and "): 154," in shown and "): 79," in shown


def test_a_reset_that_the_log_tells_of_is_said() -> None:
    report = said(xid("62, halted"), xid(ASKS, 4000.2), xid(CURED, 4900.0))
    found = only(report, DEVICE)
    assert found.status is Status.WARN and "since then the driver asks for nothing" in found.summary


def test_a_recovery_that_is_over_says_nothing_of_what_comes_later() -> None:
    node = Logged()
    node.untold(FIRST)
    node.say(xid("62, halted"), xid(ASKS, 4000.2), xid(CURED, 4900.0), xid("63, Row remapping pending", 5000.0))
    assert only(node.report(), DEVICE).status is Status.WARN
    node.say(xid("119, pid=9, name=x, Timeout after 45s of waiting for RPC response from GPU0 GSP!", 9000.0))
    found = only(node.report(), DEVICE)
    assert found.status is Status.FAIL and "asks for nothing" not in found.summary


def test_what_is_cleaned_up_after_a_program_ran_again_is_that_programs() -> None:
    lost, ended = xid("119, Timeout after 45s"), "43, pid={}, name=python3, Ch 00000008"
    wake = only(said(lost, xid(ended.format(7), 7000.0)), DEVICE)
    assert "in its wake Xid 43" in wake.summary and "it hit python3 (pid 7)" in wake.summary
    report = said(lost, xid("31, pid=8, name=python3, Ch 00000008", 9000.0), xid(ended.format(8), 9000.2))
    assert "python3" not in only(report, DEVICE).summary and "wake" not in only(report, DEVICE).summary
    assert "in its wake Xid 43" in only(report, APPLICATION).summary


def _without(node: Logged, *slots: str) -> None:
    for slot in slots:
        node.text(f"/sys/bus/pci/devices/{slot}.0/current_link_width", "63\n")
        node.text(f"/sys/bus/pci/devices/{slot}.0/config", "")


def test_gpus_lost_within_seconds_are_one_root_cause() -> None:
    node = Logged()
    _without(node, FIRST, SECOND, THIRD)
    node.say(xid(LOST), xid(LOST, 4000.9, SECOND), xid(LOST, 4900.0, THIRD))
    report = node.report()
    causes = sorted([one.key for one in cause.subjects] for cause in report.root_causes if cause.check == RESPONDS)
    assert causes == [[f"{FIRST}.0", f"{SECOND}.0"], [f"{THIRD}.0"]]
    first, second, third = alarms(report, RESPONDS)
    assert "power, a PCIe switch" in first.summary and first.summary == second.summary and "Xid (PCI" in cited(first)
    assert third.summary == "does not answer on the bus"


def test_a_gpu_that_answers_is_not_lost_with_one_that_does_not() -> None:
    node = Logged()
    _without(node, FIRST)
    node.say(xid(LOST), xid("62, halted", 4000.9, SECOND))
    assert only(node.report(), RESPONDS).summary == "does not answer on the bus"


# NVLink and time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "uptime", "status"),
    [
        (None, "5000.00 1.00\n", Status.FAIL),
        (None, "500000.00 1.00\n", Status.WARN),
        (None, None, Status.UNKNOWN),
        ("none", "5000.00 1.00\n", Status.WARN),
        ("none", None, Status.WARN),
    ],
)
def test_a_fatal_link_fails_while_it_is_recent(action: str | None, uptime: str | None, status: Status) -> None:
    node = Logged()
    node.nvml_field(FIRST, "recovery_action", action)
    node.nvml_field(FIRST, "reset_required", value=False)
    node.say(xid(FATAL))
    if uptime is None:
        node.error("/proc/uptime")
    else:
        node.text("/proc/uptime", uptime)
    (found,) = [one for one in node.report().result(NVLINK).findings if "Xid 74" in one.summary]
    assert found.status is status


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_without_the_uptime_nothing_is_called_recent(error: str) -> None:
    node = Logged()
    node.say(xid("31, pid=4242, name=train, Ch 00000007", 100.0))
    node.say(
        "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)"
    )
    node.error("/proc/uptime", error)
    report = node.report()
    assert not alarms(report, APPLICATION) and not alarms(report, SWITCHES)
    assert report.result(APPLICATION).status is report.result(SWITCHES).status is Status.UNKNOWN


def test_registers_are_those_of_the_driver_that_wrote_them() -> None:
    loaded = "[ {at}] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
    old, new = loaded.format(at="10.0", version="570.172.08"), loaded.format(at="30.0", version="580.95.05")
    before = only(bare(old, xid(NETIR, 20.0), new), NVLINK).summary
    after = only(bare(new, xid(NETIR, 40.0)), NVLINK).summary
    assert "link fatal" in before and "link fatal" not in after
    assert only(bare(old, new, xid(NETIR, 40.0)), NVLINK).summary == after


@pytest.mark.parametrize(
    ("version", "words"), [("535.161.08", "port, multicast"), ("570.172.08", "temperature of an optical module")]
)
def test_an_sxid_means_what_its_driver_means_by_it(version: str, words: str) -> None:
    loaded = f"[ 10.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build"
    line = "[ 4000.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 28002, Fatal, Link 28 MC TS tag store (First)"
    assert f"): {words}" in only(bare(loaded, line), SWITCHES).summary


BEAT = "[ 24.302465] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6070 timeout 5200"


def test_firmware_that_stopped_answering_is_told_without_a_number_of_its_own() -> None:
    """Of a node whose GPUs all answer it is a warning; an Xid 119 beside it tells the same with the GPU's address."""
    altered = Altered("h100x8")
    altered.say(BEAT)
    told = [
        finding for finding in altered.report().result("driver-cuda.xids").findings if finding.status.value != "pass"
    ]
    assert [(finding.subject.key, finding.status.value) for finding in told] == [("node", "warn")]
    assert "GPU 6" in told[0].summary and "Heartbeat timed out" in told[0].evidence[0].shows
    altered.say(
        "[ 84.4] NVRM: Xid (PCI:0000:ba:00): 119, pid=4242, name=python, Timeout after 60s of waiting for RPC response"
    )
    keys = [
        finding.subject.key
        for finding in altered.report().result("driver-cuda.xids").findings
        if finding.status.value != "pass"
    ]
    assert keys == ["0000:ba:00.0"]
