"""What is said of a GPU's memory: errors counted, rows remapped, pages retired, repairs that wait, the InfoROM, the ECC mode.

Answers are built field by field as the worker or nvidia-smi gives them; below them all real captures of the shared corpus are judged.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Answer
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, NOW, Builder, crashed, diagnose, manifest_lines
from tests.conftest import SHARED
from tests.pieces import builder_of

GPU = "0000:1a:00.0"
OTHER = "0000:2a:00.0"

UNCORRECTED, CORRECTED = "health.ecc-uncorrected", "health.ecc-corrected"
SRAM, UNREPAIRABLE, INFOROM, MODE = (
    "health.sram-threshold",
    "health.memory-unrepairable",
    "health.inforom",
    "health.ecc-mode",
)
PENDING, FAILED, SPARES = "health.row-remap-pending", "health.row-remap-failed", "health.row-remap-spares"
PAGES, REPAIR = "health.retired-pages", "health.memory-repair"
MEMORY = (UNCORRECTED, CORRECTED, SRAM, UNREPAIRABLE, INFOROM, MODE, PENDING, FAILED, SPARES, PAGES, REPAIR)
RECOVERY = "driver-cuda.recovery-action"

ALARM = (Status.FAIL, Status.WARN)

WELL: dict[str, Any] = {
    "brand": "nvidia",
    "mig.current": False,
    "recovery_action": "none",
    "inforom.valid": True,
    "ecc.current": True,
    "ecc.pending": True,
    "ecc.volatile.corrected": 0,
    "ecc.volatile.uncorrected": 0,
    "ecc.aggregate.corrected": 0,
    "ecc.aggregate.uncorrected": 0,
    "ecc.volatile.dram.corrected": 0,
    "ecc.volatile.dram.uncorrected": 0,
    "ecc.aggregate.dram.uncorrected": 0,
    "ecc.volatile.sram.corrected": 0,
    "ecc.volatile.sram.uncorrected": 0,
    "ecc.aggregate.sram.uncorrected": 0,
    "ecc.volatile.register_file.uncorrected": {"error": 3},
    "ecc.sram_threshold_exceeded": False,
    "ecc.channel_repair_pending": False,
    "ecc.tpc_repair_pending": False,
    "ecc.unrepairable_memory": False,
    "retired_pages.single_bit": {"error": 3},
    "retired_pages.double_bit": {"error": 3},
    "retired_pages.pending": {"error": 3},
    "row_remap.corrected": 0,
    "row_remap.uncorrected": 0,
    "row_remap.pending": False,
    "row_remap.failed": False,
    "row_remap.histogram.max": 2560,
    "row_remap.histogram.high": 0,
    "row_remap.histogram.partial": 0,
    "row_remap.histogram.low": 0,
    "row_remap.histogram.none": 0,
}
"""An H100 of an R590 driver as NVML tells of it."""

VOLTA: dict[str, Any] = {
    **{name: {"error": 3} for name in WELL if name.startswith("row_remap")},
    "brand": "tesla",
    "ecc.current": True,
    "ecc.volatile.uncorrected": 0,
    "ecc.volatile.dram.uncorrected": 0,
    "ecc.sram_threshold_exceeded": {"error": 3},
    "retired_pages.single_bit": 0,
    "retired_pages.double_bit": 0,
    "retired_pages.pending": False,
}
"""A V100, whose driver asks for no recovery."""


# Making nodes ---------------------------------------------------------------------------------------------------------


def judge(
    fields: Mapping[str, Any], *, config: Config | None = None, other: Mapping[str, Any] | None = None, **device: Any
) -> Report:
    """The report on a node of one GPU with these fields, or of two."""
    builder = Builder()
    devices = []
    answers = [(GPU, fields), *([(OTHER, other)] if other is not None else [])]
    for number, (address, told) in enumerate(answers):
        builder.text(f"{DEVICES}/{address}/vendor", "0x10de\n")
        builder.text(f"{DEVICES}/{address}/class", "0x030200\n")
        known = {
            "pci_bus_id": f"0000{address}".upper(),
            "index": number,
            "uuid": f"GPU-{number}",
            "name": "NVIDIA H100",
        }
        devices.append({**known, "fields": dict(told), **device})
    node = RecordedNode(builder.tree, uid=0)
    node.answers["nvml"] = Answer(data={"init": 0, "count": len(devices), "devices": devices})
    report = run(node, config or Config(), built_in(), Selection(), NOW)
    assert crashed(report) == []
    return report


def finding(report: Report, check: str, address: str = GPU) -> Finding:
    (found,) = [one for one in report.result(check).findings if one.subject.key == address]
    return found


def memory_alarms(report: Report) -> dict[tuple[str, str], Finding]:
    """The alarms of the checks of memory, by check and GPU."""
    return {
        (check, one.subject.key): one
        for check in MEMORY
        for one in report.result(check).findings
        if one.status in ALARM
    }


def memory_roots(report: Report) -> list[str]:
    """The checks of memory that are root causes."""
    return [cause.check for cause in report.root_causes if cause.check in MEMORY]


# Well -----------------------------------------------------------------------------------------------------------------


def test_a_gpu_without_a_memory_error_passes_and_every_pass_says_what_was_read() -> None:
    report = judge(WELL)
    assert memory_alarms(report) == {}
    for check in MEMORY:
        one = finding(report, check)
        assert one.status is (Status.SKIP if check == PAGES else Status.PASS), (check, one.summary)
        assert one.evidence or one.status is Status.SKIP


HARMLESS: list[tuple[str, dict[str, Any], str]] = [
    (UNCORRECTED, {"ecc.aggregate.dram.uncorrected": 7, "ecc.aggregate.uncorrected": 7}, "7 in the board's lifetime"),
    (CORRECTED, {"ecc.volatile.dram.corrected": 353, "ecc.volatile.corrected": 353}, "353 in DRAM"),
    (CORRECTED, {"ecc.aggregate.dram.corrected": 90_000_000}, "none"),
    (PENDING, {"row_remap.uncorrected": 4, "row_remap.corrected": 2}, "4 after uncorrectable, 2 after corrected"),
    (SPARES, {"row_remap.histogram.low": 3, "row_remap.uncorrected": 20}, "3 are low"),
    (SRAM, {"ecc.aggregate.sram.uncorrected": 3}, "not set the flag"),
]


@pytest.mark.parametrize(("check", "fields", "words"), HARMLESS)
def test_history_and_repairs_that_are_done_are_told_and_not_alarmed(
    check: str, fields: dict[str, Any], words: str
) -> None:
    report = judge({**WELL, **fields})
    assert memory_alarms(report) == {}
    assert finding(report, check).status is Status.PASS
    assert words in finding(report, check).summary


# Ill ------------------------------------------------------------------------------------------------------------------

ILL: list[tuple[str, dict[str, Any], Status, str, str]] = [
    (UNCORRECTED, {"ecc.volatile.dram.uncorrected": 1}, Status.WARN, "1 in DRAM", "ecc.volatile.dram.uncorrected: 1"),
    (UNCORRECTED, {"ecc.volatile.uncorrected": 2}, Status.WARN, "2 in memory that is not named", "uncorrected: 2"),
    (
        UNCORRECTED,
        {"ecc.volatile.sram.uncorrected_parity": 1, "ecc.volatile.sram.uncorrected_secded": 2},
        Status.WARN,
        "3 on the chip (SRAM)",
        "uncorrected_secded: 2",
    ),
    (CORRECTED, {"ecc.volatile.dram.corrected": 20_000_001}, Status.WARN, "20000001 in DRAM", "Azure"),
    (CORRECTED, {"ecc.volatile.sram.corrected": 10_001}, Status.WARN, "10001 on the chip", "memory_corrected_sram"),
    (SRAM, {"ecc.sram_threshold_exceeded": True, "ecc.sram_sources.l2": 3}, Status.FAIL, "RMA", "sram_sources.l2: 3"),
    (UNREPAIRABLE, {"ecc.unrepairable_memory": True}, Status.FAIL, "beyond repair: RMA", "unrepairable_memory: True"),
    (FAILED, {"row_remap.failed": True, "row_remap.uncorrected": 9}, Status.FAIL, "RMA", "row_remap.failed: True"),
    (
        PENDING,
        {"row_remap.pending": True, "row_remap.uncorrected": 1},
        Status.WARN,
        "a bad row of its memory waits for a reset to be remapped",
        "row_remap.pending: True",
    ),
    (
        PENDING,
        {"row_remap.pending": True, "row_remap.corrected": 1},
        Status.WARN,
        "with corrected errors waits for a reset",
        "row_remap.corrected: 1",
    ),
    (SPARES, {"row_remap.histogram.none": 2}, Status.WARN, "2 banks have no spare row left", "histogram.none: 2"),
    (SPARES, {"row_remap.uncorrected": 512}, Status.WARN, "512 rows were remapped", "DcgmGPUHardwareLimits.h"),
    (
        REPAIR,
        {"ecc.channel_repair_pending": True},
        Status.WARN,
        "a memory channel waits",
        "channel_repair_pending: True",
    ),
    (REPAIR, {"ecc.tpc_repair_pending": True}, Status.WARN, "a TPC waits for a reset", "tpc_repair_pending: True"),
    (INFOROM, {"inforom.valid": False}, Status.WARN, "InfoROM is corrupted", "inforom.valid: False"),
    (INFOROM, {"inforom.valid": {"error": 14}}, Status.WARN, "InfoROM is corrupted", "inforom.valid"),
    (INFOROM, {"inforom.image": "Corrupted"}, Status.WARN, "InfoROM is corrupted", "inforom.image: Corrupted"),
    (MODE, {"ecc.pending": False}, Status.WARN, "ECC is on, and off after the next reset", "ecc.pending: False"),
    (MODE, {"ecc.current": False}, Status.WARN, "ECC is off, and on after the next reset", "ecc.current: False"),
    (
        MODE,
        {"ecc.current": False, "ecc.pending": False},
        Status.WARN,
        "off on a data centre board",
        "ecc.current: False",
    ),
]


@pytest.mark.parametrize(("check", "fields", "status", "words", "shown"), ILL)
def test_what_is_wrong_with_memory_is_the_one_root_cause(
    check: str, fields: dict[str, Any], status: Status, words: str, shown: str
) -> None:
    report = judge({**WELL, **fields}, other=WELL)
    assert memory_roots(report) == [check]
    one = finding(report, check)
    assert (one.status, one.subject.key) == (status, GPU)
    assert words in one.summary
    assert any(shown in f"{evidence.where} {evidence.shows}" for evidence in one.evidence), one.evidence
    assert finding(report, check, OTHER).status not in ALARM
    assert any(f"-i {GPU}" in command for remedy in one.remedies for command in remedy.run)


OLDER: list[tuple[str, dict[str, Any], Status, str]] = [
    (
        PAGES,
        {"retired_pages.single_bit": 60, "retired_pages.double_bit": 3},
        Status.FAIL,
        "63 retired pages, 3 of them",
    ),
    (PAGES, {"retired_pages.double_bit": 16}, Status.WARN, "16 retired pages, 16 of them"),
    (
        PAGES,
        {"retired_pages.pending": True, "retired_pages.single_bit": 1},
        Status.WARN,
        "with single bit errors waits",
    ),
    (
        UNCORRECTED,
        {"retired_pages.pending": True, "retired_pages.double_bit": 1, "ecc.volatile.dram.uncorrected": 1},
        Status.FAIL,
        "1 in DRAM; its repair waits for a reset",
    ),
    (
        PAGES,
        {"retired_pages.pending": True, "retired_pages.double_bit": 1, "ecc.volatile.uncorrected": {"error": 999}}
        | {f"ecc.volatile.{place}.uncorrected": {"error": 999} for place in ("dram", "sram", "register_file")},
        Status.FAIL,
        "with a double bit error waits for a reset",
    ),
    (UNCORRECTED, {"ecc.volatile.l2_cache.uncorrected": 1}, Status.FAIL, "1 on the chip (SRAM)"),
]


@pytest.mark.parametrize(("check", "fields", "status", "words"), OLDER)
def test_a_gpu_before_ampere_is_judged_by_its_retired_pages(
    check: str, fields: dict[str, Any], status: Status, words: str
) -> None:
    report = judge({**VOLTA, **fields})
    assert memory_roots(report) == [check]
    assert finding(report, check).status is status
    assert words in finding(report, check).summary


def test_few_retired_pages_are_no_fault() -> None:
    report = judge({**VOLTA, "retired_pages.single_bit": 40, "retired_pages.double_bit": 15})
    assert memory_alarms(report) == {}
    assert finding(report, PAGES).summary == "55 retired pages, 15 of them after double bit errors"


def test_without_the_drivers_word_an_uncorrectable_error_fails_and_with_it_the_error_is_over() -> None:
    fields = {**WELL, "ecc.volatile.dram.uncorrected": 1}
    assert "the driver asks for nothing now" in finding(judge(fields), UNCORRECTED).summary
    del fields["recovery_action"]
    assert finding(judge(fields), UNCORRECTED).status is Status.FAIL
    asked = judge({**fields, "reset_required": True}, other=WELL)
    assert "asks for nothing" not in finding(asked, UNCORRECTED).summary
    assert memory_roots(asked) == []


def test_errors_in_mig_devices_count() -> None:
    mig = {"index": 0, "ecc_uncorrected_sram": 2}
    untold = {name: {"error": 3} for name in WELL if name.startswith(("ecc.volatile", "ecc.aggregate"))}
    report = judge({**WELL, **untold, "mig.current": True}, mig_devices=[mig])
    assert "2 on the chip (SRAM)" in finding(report, UNCORRECTED).summary


# One illness, one root cause ------------------------------------------------------------------------------------------


def test_the_error_the_row_that_waits_for_it_and_the_drivers_word_are_one_root_cause() -> None:
    dram = {"ecc.volatile.dram.uncorrected": 1, "row_remap.uncorrected": 1, "row_remap.pending": True}
    alone = judge({**WELL, **dram})
    assert memory_roots(alone) == [UNCORRECTED]
    assert finding(alone, UNCORRECTED).status is Status.FAIL
    assert "its repair waits for a reset" in finding(alone, UNCORRECTED).summary
    assert finding(alone, PENDING).caused_by == (f"{UNCORRECTED}@gpu:{GPU}",)
    report = judge({**WELL, **dram, "recovery_action": "drain_and_reset"})
    assert memory_roots(report) == []
    assert RECOVERY in {cause.check for cause in report.root_causes}


def test_a_failed_row_explains_what_waits_and_what_was_counted_but_is_explained_by_nothing() -> None:
    fields = {
        "row_remap.failed": True,
        "row_remap.pending": True,
        "row_remap.uncorrected": 9,
        "row_remap.histogram.none": 1,
        "ecc.volatile.dram.uncorrected": 3,
    }
    assert memory_roots(judge({**WELL, **fields})) == [FAILED]
    report = judge({**WELL, **fields, "recovery_action": "gpu_reset"})
    assert memory_roots(report) == [FAILED]
    assert RECOVERY in {cause.check for cause in report.root_causes}


def test_an_error_on_the_chip_is_not_explained_by_a_row_of_dram_that_waits() -> None:
    waits = {"row_remap.pending": True, "row_remap.uncorrected": 1}
    report = judge({**WELL, **waits, "ecc.volatile.sram.uncorrected": 1})
    assert sorted(memory_roots(report)) == [UNCORRECTED, PENDING]
    flagged = judge({**WELL, "ecc.sram_threshold_exceeded": True, "ecc.volatile.sram.uncorrected": 1})
    assert memory_roots(flagged) == [SRAM]


CONSEQUENCES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    # What waits, what was counted, and what is told: a channel is of DRAM, a TPC on the chip.
    ({"ecc.channel_repair_pending": True}, {"ecc.volatile.dram.uncorrected": 1}, [UNCORRECTED]),
    ({"ecc.channel_repair_pending": True}, {"ecc.volatile.sram.uncorrected": 1}, [UNCORRECTED, REPAIR]),
    ({"ecc.tpc_repair_pending": True}, {"ecc.volatile.sram.uncorrected": 1}, [UNCORRECTED]),
    ({"ecc.tpc_repair_pending": True}, {"ecc.volatile.dram.uncorrected": 1}, [UNCORRECTED, REPAIR]),
    ({"ecc.volatile.dram.corrected": 90_000_000}, {"ecc.volatile.dram.uncorrected": 1}, [UNCORRECTED]),
    # A flag explains what was counted where it was set, and nothing elsewhere.
    ({"ecc.sram_threshold_exceeded": True}, {"ecc.volatile.sram.uncorrected": 1}, [SRAM]),
    ({"ecc.sram_threshold_exceeded": True}, {"ecc.volatile.dram.uncorrected": 1}, [SRAM, UNCORRECTED]),
    ({"row_remap.failed": True}, {"ecc.volatile.sram.uncorrected": 1}, [FAILED, UNCORRECTED]),
    ({"row_remap.failed": True}, {"ecc.volatile.uncorrected": 1}, [FAILED]),
]


@pytest.mark.parametrize(("state", "counted", "told"), CONSEQUENCES)
def test_an_error_explains_what_waits_for_it_and_a_flag_explains_the_error(
    state: dict[str, Any], counted: dict[str, Any], told: list[str]
) -> None:
    assert sorted(memory_roots(judge({**WELL, **state, **counted}))) == sorted(told)


@pytest.mark.parametrize(
    ("fields", "check", "steps"),
    [
        (
            {"ecc.volatile.dram.uncorrected": 1, "row_remap.pending": True},
            UNCORRECTED,
            ["none", "then reset-gpu", "reboot", "then contact-vendor"],
        ),
        ({"ecc.channel_repair_pending": True}, REPAIR, ["none", "then reset-gpu", "reboot"]),
        ({"row_remap.pending": True}, PENDING, ["reset-gpu", "reboot"]),
        ({"ecc.pending": False}, MODE, ["change-config", "reset-gpu", "reboot"]),
        ({"ecc.current": False, "ecc.pending": False}, MODE, ["change-config", "then reset-gpu", "reboot"]),
    ],
)
def test_remedies_begin_with_what_interrupts_nothing_and_a_reboot_stands_for_a_reset(
    fields: dict[str, Any], check: str, steps: list[str]
) -> None:
    one = finding(judge({**WELL, **fields}, other=WELL), check)
    assert [f"{'then ' if step.then else ''}{step.action.value}" for step in one.remedies] == steps
    assert one.remedies[0].interrupts.startswith("nothing") or one.remedies[0].action.value == "reset-gpu"


def test_a_page_table_that_is_full_is_told_beside_the_error_that_is_new() -> None:
    full = {"retired_pages.single_bit": 60, "retired_pages.double_bit": 4, "ecc.volatile.dram.uncorrected": 1}
    assert sorted(memory_roots(judge({**VOLTA, **full}))) == sorted([UNCORRECTED, PAGES])


@pytest.mark.parametrize(
    "fields",
    [
        {"inforom.valid": False},
        {"inforom.valid": {"error": 14}, "inforom.image": {"error": 14}},
        {"inforom.valid": False, "inforom.ecc": {"error": 999}},
    ],
)
def test_a_corrupted_inforom_is_told_once(fields: dict[str, Any]) -> None:
    report = judge({**WELL, **fields}, other=WELL)
    assert [cause.check for cause in report.root_causes] == [INFOROM]
    assert finding(report, "driver-cuda.queries-answered").status is Status.PASS
    half_alive = judge({**WELL, **fields, "fan_percent": {"error": 999}}, other=WELL)
    assert {cause.check for cause in half_alive.root_causes} == {INFOROM, "driver-cuda.queries-answered"}


def test_gpus_without_ecc_are_one_root_cause_and_gpus_with_bad_rows_are_two() -> None:
    off = {**WELL, "ecc.current": False, "ecc.pending": False}
    assert memory_roots(judge(off, other=off)) == [MODE]
    bad = {**WELL, "row_remap.failed": True}
    assert memory_roots(judge(bad, other=bad)) == [FAILED, FAILED]


# Not known, not asked, not there --------------------------------------------------------------------------------------

GEFORCE = {"brand": "geforce", "ecc.current": False, "ecc.pending": False}


@pytest.mark.parametrize(
    "fields",
    [GEFORCE, {**GEFORCE, "brand": "nvidia_rtx"}, {**WELL, "ecc.current": False, "virtualization.mode": "vgpu"}],
)
def test_ecc_may_be_off_where_that_is_usual_or_another_decides(fields: dict[str, Any]) -> None:
    assert memory_alarms(judge(fields)) == {}


@pytest.mark.parametrize(
    ("error", "extra", "status", "words"),
    [
        (3, {}, Status.SKIP, "not supported on this GPU"),
        (3, {"mig.current": True}, Status.SKIP, "not told while MIG is on"),
        (13, {}, Status.SKIP, "this driver does not tell"),
        (2, {}, Status.SKIP, "this driver does not tell"),
        (None, {}, Status.SKIP, "this driver does not tell"),
        (4, {}, Status.UNKNOWN, "told to root only"),
        (999, {}, Status.UNKNOWN, "not answered"),
    ],
)
def test_what_nvml_does_not_tell_is_never_a_pass_and_never_an_alarm(
    error: int | None, extra: dict[str, Any], status: Status, words: str
) -> None:
    kept = {"brand": "nvidia", "recovery_action": "none"}
    refused = {} if error is None else {name: {"error": error} for name in WELL if name not in kept}
    report = judge({**kept, **refused, **extra})
    assert memory_alarms(report) == {}
    for check in MEMORY:
        one = finding(report, check)
        assert one.status is status, (check, one.summary)
        assert words in one.summary, (check, one.summary)


def test_a_device_that_does_not_answer_and_one_without_details_are_not_judged() -> None:
    lost = judge(WELL, error={"code": 15, "call": "nvmlDeviceGetHandleByPciBusId_v2"})
    for report in (lost, judge({})):
        assert {finding(report, check).status for check in MEMORY if check in (SRAM, FAILED, PAGES)} == {Status.SKIP}
        assert memory_alarms(report) == {}


def test_a_site_sets_its_own_limits() -> None:
    fields = {**WELL, "ecc.volatile.dram.corrected": 500, "ecc.volatile.dram.uncorrected": 1}
    report = judge(fields, config=Config(thresholds={"memory_corrected_dram": 100, "memory_uncorrected": 2}))
    assert memory_roots(report) == [CORRECTED]
    shown = [evidence.shows for evidence in finding(report, CORRECTED).evidence]
    assert any("thresholds.memory_corrected_dram = 100" in text for text in shown)


# nvidia-smi's own words -----------------------------------------------------------------------------------------------

QUERY = """
Timestamp                                              : Mon Nov 30 08:11:07 2026
Driver Version                                         : 590.48.01
CUDA Version                                           : 13.1

Attached GPUs                                          : 1
GPU 00000000:1A:00.0
    Product Name                                       : NVIDIA L40S
    Product Brand                                      : NVIDIA
    GPU Recovery Action                                : None
    ECC Mode
        Current                                        : Enabled
        Pending                                        : Enabled
    ECC Errors
        Volatile
            SRAM Correctable                           : 0
            SRAM Uncorrectable Parity                  : 0
            SRAM Uncorrectable SEC-DED                 : 1
            DRAM Correctable                           : 0
            DRAM Uncorrectable                         : 0
        Aggregate
            SRAM Correctable                           : 0
            SRAM Uncorrectable Parity                  : 0
            SRAM Uncorrectable SEC-DED                 : 6
            DRAM Correctable                           : 0
            DRAM Uncorrectable                         : 0
            SRAM Threshold Exceeded                    : Yes
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                                    : 6
            SRAM SM                                    : 0
        Channel Repair Pending                         : No
        TPC Repair Pending                             : Yes
        Unrepairable Memory                            : No
    Retired Pages
        Single Bit ECC                                 : N/A
        Double Bit ECC                                 : N/A
        Pending Page Blacklist                         : N/A
    Remapped Rows
        Correctable Error                              : 0
        Uncorrectable Error                            : 0
        Pending                                        : No
        Remapping Failure Occurred                     : No
"""


def from_text(text: str) -> Report:
    """The report on the one GPU of an `nvidia-smi -q`."""
    builder = Builder()
    builder.text(f"{DEVICES}/{GPU}/vendor", "0x10de\n")
    builder.text(f"{DEVICES}/{GPU}/class", "0x030200\n")
    node = RecordedNode(builder.tree)
    answer = answer_from_query(text, "nvidia-smi -q")
    assert answer is not None
    node.answers["nvml"] = answer
    return diagnose(node)


def test_the_words_of_a_590_driver_are_judged() -> None:
    report = from_text(QUERY)
    assert {check for check, _ in memory_alarms(report)} == {UNCORRECTED, SRAM, REPAIR}
    assert memory_roots(report) == [SRAM]
    assert {"ecc.sram_sources.l2: 6", "ecc.sram_threshold_exceeded: True"} <= {
        evidence.shows for evidence in finding(report, SRAM).evidence
    }


# Real captures --------------------------------------------------------------------------------------------------------

FAULTS: dict[str, dict[str, str]] = {
    "nvidia-smi-q/azure-nhc-retired-pages-bad.txt": {
        "0001:00:00.0": PAGES,
        "0002:00:00.0": PAGES,
        "0004:00:00.0": PAGES,
        "0006:00:00.0": PAGES,
        "0008:00:00.0": PAGES,
    },
    "nvidia-smi-q/gls-A100SXMx4.txt": {"0000:9e:00.0": PENDING},
    "nvidia-smi-table/azdiag-nvidia-smi-inforom.txt": {"0008:00:00.0": INFOROM},
    "excerpt-docs/stas00-debug-02.txt": {"0000:10:1c.0": PENDING},
}
"""What ails which GPU, by the file that shows it; read in the captures."""
WITHOUT_A_GPU = {
    "issue-excerpts/remapped-rows-pending.smi-q": PENDING,
    "excerpt-docs/stas00-debug-07.txt": None,
    "excerpt-docs/stas00-debug-08.txt": UNCORRECTED,
}
"""Pieces of an `nvidia-smi -q` that name no GPU, and the check that speaks once they do; the first of the errors is two lines of grep."""
TOLD = {"nvidia-smi-xml/k8stestinfra-hw-t4.xml": "1 corrected DRAM ECC error"}
"""Called degraded in the MANIFEST, and no fault."""

_NAMED = re.compile(r"\becc\b|remap|inforom|retired page|\bsram\b|uncorrectable", re.IGNORECASE)
_FORMS = ("nvidia-smi-", "issue-excerpts/", "excerpt-docs/", "bug-report/")


@cache
def piece(path: str) -> Report:
    build = builder_of(path)
    assert build is not None, path
    report = diagnose(build(SHARED / "corpus" / path))
    assert crashed(report) == []
    return report


def test_every_memory_fault_that_the_manifest_names_is_looked_for_here(corpus: Path) -> None:
    named = {
        line.path
        for line in manifest_lines(corpus)
        if line.path.startswith(_FORMS)
        and not line.state.startswith("healthy")
        and "machine:" not in line.state
        and _NAMED.search(line.state)
        and "Xid" not in line.state
    }
    assert named <= set(FAULTS) | set(WITHOUT_A_GPU) | set(TOLD)
    assert len(named) >= 5


@pytest.mark.parametrize("path", FAULTS)
def test_a_memory_fault_of_a_real_capture_is_found_and_on_the_right_gpu(corpus: Path, path: str) -> None:
    report = piece(path)
    assert {address: check for check, address in memory_alarms(report)} == FAULTS[path]
    roots = {
        (cause.check, subject.key)
        for cause in report.root_causes
        if cause.check in MEMORY
        for subject in cause.subjects
    }
    assert roots == {(check, address) for address, check in FAULTS[path].items()}


@pytest.mark.parametrize(("path", "check"), [(path, check) for path, check in WITHOUT_A_GPU.items() if check])
def test_a_pasted_part_is_judged_under_the_head_it_lost(corpus: Path, path: str, check: str) -> None:
    head, _, _ = QUERY.partition("    ECC Mode")
    text = (corpus / path).read_text("utf-8")
    part = text[text.index("    ECC Errors") :] if check == UNCORRECTED else text
    report = from_text(head + part)
    assert {found for found, _ in memory_alarms(report)} == {check}


def healthy(corpus: Path) -> list[str]:
    """All captures of nvidia-smi and all bug reports that the MANIFEST does not name for a memory fault."""
    return [
        line.path
        for line in manifest_lines(corpus)
        if line.path.startswith(("nvidia-smi-", "bug-report/", "machine-tree/"))
        and line.path not in FAULTS
        and builder_of(line.path) is not None
    ]


def test_no_other_capture_raises_an_alarm_about_memory(corpus: Path) -> None:
    paths = healthy(corpus)
    said = {path: [one.summary for one in memory_alarms(piece(path)).values()] for path in paths}
    assert {path: words for path, words in said.items() if words} == {}
    judged = [
        path
        for path in paths
        if any(one.status is Status.PASS for check in MEMORY for one in piece(path).result(check).findings)
    ]
    assert (len(paths) >= 120, len(judged) >= 60) == (True, True), (len(paths), len(judged))


def test_a_corrected_error_and_lifetime_counts_are_told(corpus: Path) -> None:
    (t4,) = piece("nvidia-smi-xml/k8stestinfra-hw-t4.xml").result(CORRECTED).findings
    assert t4.status is Status.PASS
    k80 = piece("nvidia-smi-xml/pai-out_of_order.xml").result(UNCORRECTED).findings
    assert sorted(one.summary for one in k80 if "lifetime" in one.summary) == [
        "no uncorrectable memory error since the driver was loaded; 4 in the board's lifetime (4 in DRAM)",
        "no uncorrectable memory error since the driver was loaded; 7 in the board's lifetime (7 in DRAM)",
    ]


def test_the_error_that_the_table_counts_is_found() -> None:
    place = SHARED / "rig/toolkit/sick/nvidia-smi.gpu2-ecc_uncorrectable.txt"
    if not place.is_file():
        pytest.skip("the rig's captures are not here")
    report = diagnose(open_source(str(place)))
    assert {key: one.status for key, one in memory_alarms(report).items()} == {
        (UNCORRECTED, "0000:4a:00.0"): Status.FAIL
    }
