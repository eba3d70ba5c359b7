"""Heat and what holds clocks down: limits of the GPU's own, a blip told from what lasts, power, clocks, links and stragglers under load."""

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.sources.nvidia_smi_output import open_smi_output
from gpudoctor.verdicts import Status
from tests.captures import crashed, diagnose
from tests.health_node import ALARMS, HEALTH, HealthNode, alarms, find, shown

TEMPERATURE, MEMORY, THROTTLING = "health.temperature", "health.memory-temperature", "health.throttling"
POWER, CLOCKS, STRAGGLERS = "health.power-limit", "health.clocks", "health.stragglers"
REPLAYS, LINK = "health.pcie-replays", "health.pcie-under-load"

HEAT = 0x40 | 0x8
HOT = {"clocks_event.active": HEAT, "temperature.gpu_celsius": 86, "clocks.sm_mhz": 345}
COUNTER = "clocks_event.hw_thermal_slowdown_nanoseconds"
SECOND = 1_000_000_000
BUSY = {
    "utilization.gpu_percent": 100,
    "clocks_event.active": 0,
    "clocks.sm_mhz": 1980,
    "power.draw_milliwatts": 650000,
}


def test_a_healthy_idle_node_has_nothing_to_say() -> None:
    node = HealthNode()
    report = node.report()
    assert alarms(report) == []
    assert not any(report.result(check).status is Status.UNKNOWN for check in HEALTH)
    assert not node.was_asked("holders")


# Temperature ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        # An A100's own numbers: 85 and 89 degrees.
        ({"temperature.gpu_celsius": 84}, Status.PASS, "84 °C, 3 °C below its limit"),
        ({"temperature.gpu_celsius": 87}, Status.WARN, "at or above the temperature"),
        ({"temperature.gpu_celsius": 89}, Status.WARN, "halves the clocks"),
        # T.Limit counts down; the temperatures of the older call are not looked at then.
        ({"temperature.tlimit_celsius": 1, "temperature.gpu_celsius": 95}, Status.PASS, "1 °C below"),
        ({"temperature.tlimit_celsius": 0}, Status.WARN, "at or above"),
        ({"temperature.tlimit_celsius": -2}, Status.WARN, "halves the clocks"),
        ({"temperature.gpu_celsius": {"error": 999}}, Status.UNKNOWN, "not answered"),
        (
            {f"temperature.{name}_celsius": {"error": 3} for name in ("slowdown", "max_gpu")},
            Status.SKIP,
            "no limit of its own",
        ),
        ({"temperature.max_gpu_celsius": {"error": 3}}, Status.PASS, "below its slowdown"),
    ],
)
def test_each_gpu_is_held_against_its_own_limits(fields: dict[str, Any], status: Status, words: str) -> None:
    node = HealthNode()
    node.fields(fields, gpus=[2])
    said = node.says(TEMPERATURE, 2)
    assert (said.status, words in said.summary) == (status, True), said
    assert node.says(TEMPERATURE, 1).status is Status.PASS


def test_a_gpu_that_cools_down_within_a_second_is_not_hot() -> None:
    node = HealthNode()
    node.fields({"temperature.gpu_celsius": 87, "pcie.replays": 1}, gpus=[0])
    node.later({"temperature.gpu_celsius": 80, "pcie.replays": 1})
    assert node.says(TEMPERATURE).status is Status.PASS


def test_memory_has_a_limit_of_its_own() -> None:
    node = HealthNode()
    node.fields({"temperature.memory_celsius": 96}, gpus=[3])
    node.fields({"temperature.max_memory_celsius": {"error": 13}}, gpus=[4])
    node.fields({"temperature.memory_celsius": {"error": 3}}, gpus=[5])
    report = node.report()
    assert alarms(report) == [(MEMORY, node.address(3), Status.WARN)]
    assert "96 °C, its limit is 95 °C" in find(report, MEMORY, node.address(3)).summary
    assert find(report, MEMORY, node.address(4)).status is Status.SKIP
    assert find(report, MEMORY, node.address(5)).status is Status.SKIP


# Throttling -----------------------------------------------------------------------------------------------------------


def test_one_look_says_that_it_was_one() -> None:
    node = HealthNode()
    node.fields(HOT, gpus=[5])
    report = node.report()
    assert alarms(report) == [(THROTTLING, node.address(5), Status.WARN)]
    said = find(report, THROTTLING, node.address(5))
    assert "hardware thermal slowdown" in said.summary
    assert "at this moment" in said.summary
    assert "86 °C, SM clock 345 of 1980 MHz" in said.summary


def test_what_two_looks_show_is_more_than_a_moment() -> None:
    node = HealthNode()
    node.fields(HOT, gpus=[5])
    node.later({"clocks_event.active": HEAT}, gpu=5)
    report = node.report()
    assert alarms(report) == [(THROTTLING, node.address(5), Status.WARN)]
    assert "still after 1.0 s" in find(report, THROTTLING, node.address(5)).summary


def test_a_blip_is_none() -> None:
    node = HealthNode()
    node.fields({**HOT, "temperature.gpu_celsius": 70}, gpus=[5])
    node.later({"clocks_event.active": 0}, gpu=5)
    report = node.report()
    assert alarms(report) == []
    said = find(report, THROTTLING, node.address(5))
    assert "for a moment only" in said.summary
    assert "0x48" in shown(said)


@pytest.mark.parametrize(
    ("active", "counter", "later", "status"),
    [
        # The counter grew while nobody looked, for most of the time and for little of it.
        # Heat at both looks, by one reason and then by another.
        (0x20, 0, {"clocks_event.active": 0x40}, Status.WARN),
        (HEAT, 10 * SECOND, {"clocks_event.active": 0, COUNTER: 10 * SECOND + 9 * SECOND // 10}, Status.WARN),
        (HEAT, 10 * SECOND, {"clocks_event.active": 0, COUNTER: 10 * SECOND + SECOND // 10}, Status.PASS),
        # One look, and a counter that makes it none of the first.
        (HEAT, 183 * SECOND, None, Status.WARN),
        (HEAT, 3 * SECOND, None, Status.WARN),
        # One look, and a counter that says how short it was; a counter at nothing counts nothing.
        (HEAT, SECOND // 50, None, Status.PASS),
        (HEAT, 0, None, Status.WARN),
        # Not now, but for a good part of the 5000 seconds since the node booted, and for less of it.
        (0x1, 700 * SECOND, None, Status.WARN),
        (0x1, 183 * SECOND, None, Status.PASS),
    ],
)
def test_counters_tell_how_long(active: int, counter: int, later: dict[str, int] | None, status: Status) -> None:
    node = HealthNode()
    node.fields({"clocks_event.active": active, COUNTER: counter}, gpus=[0])
    if later is not None:
        node.later(later)
    said = node.says(THROTTLING)
    assert said.status is status, said


@pytest.mark.parametrize("active", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x104, 0x200, 0x400])
def test_what_is_normal_is_no_slowdown(active: int) -> None:
    node = HealthNode()
    node.fields({"clocks_event.active": active})
    result = node.report().result(THROTTLING)
    assert result.status is Status.PASS and all("0x" not in finding.summary for finding in result.findings)


def test_software_slows_down_gently() -> None:
    node = HealthNode()
    node.fields({"clocks_event.active": 0x20}, gpus=[0])
    node.later({"clocks_event.active": 0x20})
    said = node.says(THROTTLING)
    assert (said.status, said.cause) == (Status.WARN, "heat")
    assert "software thermal slowdown" in said.summary


def test_the_power_brake_is_no_heat_and_one_cause_for_all() -> None:
    node = HealthNode()
    node.fields({"clocks_event.active": 0x88})
    for gpu in range(8):
        node.later({"clocks_event.active": 0x88}, gpu=gpu)
    report = node.report()
    (cause,) = report.root_causes
    assert (cause.check, len(cause.subjects), cause.status) == (THROTTLING, 8, Status.WARN)
    said = find(report, THROTTLING, node.address(0))
    assert "power brake" in said.summary
    assert any("power supply" in remedy.say for remedy in said.remedies)


def test_a_hardware_slowdown_without_a_reason_in_one_look_may_be_a_change_of_clocks() -> None:
    node = HealthNode()
    node.fields({"clocks_event.active": 0x8}, gpus=[0])
    assert node.says(THROTTLING).status is Status.UNKNOWN
    node.later({"clocks_event.active": 0x8})
    assert node.says(THROTTLING).status is Status.WARN


def test_a_hot_gpu_that_is_slowed_down_is_one_root_cause() -> None:
    node = HealthNode()
    node.fields({**BUSY, "temperature.gpu_celsius": 60})
    node.fields({**HOT, "temperature.gpu_celsius": 91, "temperature.memory_celsius": 97}, gpus=[0])
    report = node.report()
    assert alarms(report) == [(TEMPERATURE, node.address(0), Status.WARN)]
    for check in (MEMORY, THROTTLING, STRAGGLERS):
        assert find(report, check, node.address(0)).status is Status.WARN, check


def test_hot_memory_that_slows_a_cool_gpu_down_is_one_root_cause() -> None:
    node = HealthNode()
    node.fields({"temperature.memory_celsius": 99, "clocks_event.active": 0x20}, gpus=[3])
    node.later({"temperature.memory_celsius": 99, "clocks_event.active": 0x20}, gpu=3)
    report = node.report()
    assert alarms(report) == [(MEMORY, node.address(3), Status.WARN)]
    assert find(report, THROTTLING, node.address(3)).caused_by == (f"{MEMORY}@gpu:{node.address(3)}",)


@pytest.mark.parametrize("active", [0x88, 0x8])
def test_heat_does_not_explain_what_is_no_heat(active: int) -> None:
    node = HealthNode()
    node.fields({"temperature.gpu_celsius": 91, "clocks_event.active": active}, gpus=[0])
    node.later({"temperature.gpu_celsius": 91, "clocks_event.active": active})
    assert {check for check, _, _ in alarms(node.report())} == {TEMPERATURE, THROTTLING}


# Power and clocks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words", "back"),
    [
        (
            {"power.limit_milliwatts": 250000, "power.enforced_limit_milliwatts": 250000},
            "250 W, by default it is 700 W",
            ["-pl 700"],
        ),
        # What others enforce, no limit of NVML's takes back.
        ({"power.enforced_limit_milliwatts": 400000}, "only 400 W are enforced", []),
        (
            {"power.module.limit_milliwatts": 900000, "power.module.default_limit_milliwatts": 1000000},
            "its module 900 W",
            ["-pl 1000 -sc 1"],
        ),
    ],
)
def test_a_lowered_power_limit_is_told(fields: dict[str, Any], words: str, back: list[str]) -> None:
    node = HealthNode()
    node.fields(fields, gpus=[1])
    report = node.report()
    assert alarms(report) == [(POWER, node.address(1), Status.WARN)]
    said = find(report, POWER, node.address(1))
    assert words in said.summary
    run = [command for remedy in said.remedies for command in remedy.run]
    assert [command.partition(f"-i {node.address(1)} ")[2] for command in run if " -i " in command] == back
    assert len(said.remedies) == 2


def test_a_higher_power_limit_and_a_reached_one_are_fine() -> None:
    node = HealthNode()
    node.fields({"power.limit_milliwatts": 750000, "power.enforced_limit_milliwatts": 750000}, gpus=[0])
    node.fields({**BUSY, "clocks_event.active": 0x4, "clocks.sm_mhz": 1500})
    assert alarms(node.report()) == []


def test_a_site_can_have_its_own_limit() -> None:
    node = HealthNode()
    node.fields({"power.limit_milliwatts": 560000, "power.enforced_limit_milliwatts": 560000})
    assert node.report().result(POWER).status is Status.WARN
    node.config = Config(thresholds={"power_limit_percent": 80})
    assert node.report().result(POWER).status is Status.PASS


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"clocks.applications.graphics_mhz": 1005}, "application-clocks"),
        ({**BUSY, "clocks.sm_mhz": 1005}, "locked-clocks"),
        ({**BUSY, "clocks.sm_mhz": 1005, "clocks_event.active": 0x2}, "locked-clocks"),
        # A reason is given, the GPU is idle, or it does as it was made: no lock.
        ({**BUSY, "clocks.sm_mhz": 1005, "clocks_event.active": 0x4}, ""),
        ({"clocks.sm_mhz": 345, "clocks_event.active": 0x1}, ""),
        ({**BUSY, "clocks.sm_mhz": 1755}, ""),
        ({**BUSY, "clocks.sm_mhz": 1005, "clocks.max_customer_boost.graphics_mhz": {"error": 3}}, ""),
        (
            {
                **BUSY,
                "clocks.sm_mhz": 1095,
                "clocks_event.active": 0x2,
                "clocks.applications.graphics_mhz": 1095,
                "clocks.default_applications.graphics_mhz": 1095,
            },
            "",
        ),
    ],
)
def test_clocks_that_somebody_left_behind_are_told(fields: dict[str, Any], cause: str) -> None:
    node = HealthNode()
    node.fields(fields, gpus=[0])
    said = node.says(CLOCKS)
    assert said.cause == cause, said
    assert (said.status in ALARMS) is bool(cause)
    assert not cause or any("-rgc" in command for remedy in said.remedies for command in remedy.run)


# Stragglers -----------------------------------------------------------------------------------------------------------


def test_the_one_that_falls_behind_is_told_with_the_reason() -> None:
    node = HealthNode()
    node.fields({**BUSY, "clocks_event.active": 0x4, "clocks.sm_mhz": 1700, "temperature.gpu_celsius": 60})
    node.fields({"clocks.sm_mhz": 1300}, gpus=[6])
    node.fields({"temperature.gpu_celsius": 81}, gpus=[2])
    # In the row behind another, and hot because it works harder.
    node.fields({"temperature.gpu_celsius": 76}, gpus=[3])
    node.fields({"temperature.gpu_celsius": 83, "clocks.sm_mhz": 1400, "power.draw_milliwatts": 740000}, gpus=[4])
    report = node.report()
    assert set(alarms(report)) == {
        (STRAGGLERS, node.address(6), Status.WARN),
        (STRAGGLERS, node.address(2), Status.WARN),
    }
    said = find(report, STRAGGLERS, node.address(6))
    assert "1300 MHz, its neighbours' is 1700 MHz" in said.summary
    assert "the power limit" in said.summary
    assert "81 °C" in find(report, STRAGGLERS, node.address(2)).summary


def test_a_straggler_with_a_finding_of_its_own_is_explained_by_it() -> None:
    node = HealthNode()
    node.fields({**BUSY, "temperature.gpu_celsius": 60})
    node.fields({**HOT, "clocks.sm_mhz": 345}, gpus=[6])
    node.later({"clocks_event.active": HEAT}, gpu=6)
    report = node.report()
    assert alarms(report) == [(THROTTLING, node.address(6), Status.WARN)]
    assert find(report, STRAGGLERS, node.address(6)).caused_by == (f"{THROTTLING}@gpu:{node.address(6)}",)


def test_one_that_is_slow_without_a_reason_is_no_lock_where_its_neighbours_are_not() -> None:
    node = HealthNode()
    node.fields({**BUSY, "temperature.gpu_celsius": 60})
    node.fields({"clocks.sm_mhz": 1125, "power.draw_milliwatts": 402000}, gpus=[5])
    report = node.report()
    assert alarms(report) == [(STRAGGLERS, node.address(5), Status.WARN)]
    assert "see health.stragglers" in find(report, CLOCKS, node.address(5)).summary
    node.fields({"clocks_event.active": 0x2}, gpus=[5])
    assert alarms(node.report()) == [(CLOCKS, node.address(5), Status.WARN)]
    node.fields({"clocks.sm_mhz": 1125, "clocks_event.active": 0})
    assert {(check, status) for check, _, status in alarms(node.report())} == {(CLOCKS, Status.WARN)}


def test_the_busy_ones_are_compared_beside_an_idle_one() -> None:
    node = HealthNode()
    node.fields({**BUSY, "temperature.gpu_celsius": 60}, gpus=range(7))
    node.fields({"clocks.sm_mhz": 1000, "clocks_event.active": 0x4}, gpus=[2])
    report = node.report()
    assert alarms(report) == [(STRAGGLERS, node.address(2), Status.WARN)]
    assert find(report, STRAGGLERS, node.address(7)).status is Status.SKIP
    node.fields({"utilization.gpu_percent": 0, "clocks_event.active": 0x1}, gpus=range(2, 8))
    assert node.report().result(STRAGGLERS).status is Status.SKIP


@pytest.mark.parametrize("heavy", [2, 4, 5])
def test_gpus_with_heavier_work_are_slower_and_no_stragglers(heavy: int) -> None:
    node = HealthNode()
    node.fields({**BUSY, "power.draw_milliwatts": 350000, "temperature.gpu_celsius": 55})
    capped = {"clocks.sm_mhz": 1400, "clocks_event.active": 0x4, "power.draw_milliwatts": 699000}
    node.fields({**capped, "temperature.gpu_celsius": 76}, gpus=range(heavy))
    assert alarms(node.report()) == []


def test_without_clock_and_temperature_nothing_is_compared() -> None:
    node = HealthNode()
    node.fields({**BUSY, "clocks.sm_mhz": {"error": 3}, "temperature.gpu_celsius": {"error": 3}})
    assert node.report().result(STRAGGLERS).status is Status.SKIP


def test_different_work_is_no_straggling() -> None:
    node = HealthNode()
    node.fields(BUSY)
    node.fields({"utilization.gpu_percent": 20, "clocks.sm_mhz": 345, "clocks_event.active": 0x1}, gpus=[6])
    assert node.report().result(STRAGGLERS).status is Status.SKIP


# Links ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "later", "status", "words"),
    [
        (7, 7, Status.PASS, "7 PCIe replays since the driver was loaded, 0 in 1.0 s"),
        (7, 8, Status.PASS, "1 in 1.0 s"),
        (7, 12, Status.WARN, "5 in 1.0 s"),
        # 5000 seconds are 83 minutes.
        (600, None, Status.PASS, "600 PCIe replays"),
        (700, None, Status.WARN, "8 a minute since the node booted"),
        (65535, None, Status.WARN, "65535"),
    ],
)
def test_replays_are_judged_by_their_rate(count: int, later: int | None, status: Status, words: str) -> None:
    node = HealthNode()
    node.fields({"pcie.replays": count}, gpus=[0])
    if later is not None:
        node.later({"pcie.replays": later})
    said = node.says(REPLAYS)
    assert (said.status, words in said.summary) == (status, True), said


@pytest.mark.parametrize(
    ("busy", "count", "later", "status"),
    [
        # 48211 in 5000 seconds are ten a second: refuted by a second without any, but not on an idle link, nor by a full counter.
        (True, 48211, 48211, Status.PASS),
        (True, 48211, 48212, Status.WARN),
        (False, 48211, 48211, Status.WARN),
        (True, 65535, 65535, Status.WARN),
        # One in seven seconds: a second proves nothing.
        (True, 700, 700, Status.WARN),
    ],
)
def test_a_busy_second_without_a_replay_refutes_a_high_rate(busy: bool, count: int, later: int, status: Status) -> None:
    node = HealthNode()
    node.fields({**(BUSY if busy else {}), "pcie.replays": count}, gpus=[0])
    node.later({"pcie.replays": later})
    assert node.says(REPLAYS).status is status


def test_other_errors_of_the_link_are_judged_by_their_growth() -> None:
    node = HealthNode()
    errors = {"pcie.errors.lcrc": 40, "pcie.errors.unsupported_request": 9, "pcie.l0_to_recovery": 3}
    node.fields(errors)
    node.later({"pcie.replays": 0, "pcie.errors.lcrc": 49, "pcie.errors.unsupported_request": 30})
    node.later({**errors, "pcie.replays": 0, "pcie.l0_to_recovery": 90}, gpu=1)
    report = node.report()
    assert alarms(report) == [(REPLAYS, node.address(0), Status.WARN)]
    assert "lcrc 9 more in 1.0 s" in find(report, REPLAYS, node.address(0)).summary
    assert "unsupported" not in find(report, REPLAYS, node.address(0)).summary


def test_what_comes_with_the_start_is_no_rate() -> None:
    node = HealthNode()
    node.text("/proc/uptime", "75.10 600.00\n")
    node.fields({"pcie.replays": 15, COUNTER: 5 * SECOND, "clocks_event.active": 0x1})
    assert alarms(node.report()) == []


def test_a_full_counter_is_told_without_a_time() -> None:
    node = HealthNode()
    node.error("/proc/uptime")
    node.error("/proc/stat")
    node.fields({"pcie.replays": 65535}, gpus=[0])
    node.fields({"pcie.replays": 60000}, gpus=[1])
    report = node.report()
    assert "stands at its end" in find(report, REPLAYS, node.address(0)).summary
    assert find(report, REPLAYS, node.address(1)).status is Status.PASS


def test_a_slow_link_is_told_under_load_only() -> None:
    node = HealthNode()
    node.fields({"pcie.generation": 1})
    assert node.report().result(LINK).status is Status.SKIP
    node.fields(BUSY)
    node.later({"pcie.generation": 5}, gpu=0)
    report = node.report()
    assert find(report, LINK, node.address(0)).status is Status.PASS
    said = find(report, LINK, node.address(1))
    assert (said.status, "generation 1 of 5 while it is busy" in said.summary) == (Status.WARN, True)


def test_lanes_are_left_to_the_bus_where_it_is_seen() -> None:
    node = HealthNode()
    node.fields({"pcie.width": 4}, gpus=[0])
    assert node.says(LINK).status is Status.PASS


# Real captures --------------------------------------------------------------------------------------------------------

SICK = {
    # One GPU has half the lanes of the other; both have one of sixteen, and a counter at its end.
    "nvidia-smi-q/gls-RTX4060Ti.txt": [(LINK, "0000:03:00.0")],
    "nvidia-smi-xml/a0s-gtx1080x2-riser.xml": [
        (LINK, "0000:01:00.0"),
        (LINK, "0000:03:00.0"),
        (REPLAYS, "0000:01:00.0"),
    ],
    # Four of the eight boards of one part number have another VBIOS: healthy, and worth knowing.
    "nvidia-smi-q/gls-V100_x8.txt": [("health.vbios-agrees", "node")],
}


def test_real_captures_speak_only_where_something_is_wrong(corpus: Path) -> None:
    told: dict[str, list[tuple[str, str]]] = {}
    read = 0
    for path in sorted(corpus.glob("nvidia-smi-*/*")):
        node = open_smi_output(path) if path.is_file() else None
        if node is None:
            continue
        read += 1
        report = diagnose(node)
        assert crashed(report) == []
        found = [
            (check, finding.subject.key)
            for check in HEALTH
            for finding in report.result(check).findings
            if finding.status in ALARMS
        ]
        if found:
            told[str(path.relative_to(corpus))] = sorted(found)
    assert told == {path: sorted(found) for path, found in SICK.items()}
    assert read >= 130


def test_replays_that_a_capture_counts_are_told(corpus: Path) -> None:
    node = open_smi_output(corpus / "nvidia-smi-q" / "gls-H100SXMx8.txt")
    assert node is not None
    counts = [finding.summary for finding in diagnose(node).result(REPLAYS).findings]
    assert [summary for summary in counts if summary.startswith(("7 ", "4 ", "15 "))] == [
        f"{count} PCIe replays since the driver was loaded" for count in (7, 4, 15)
    ]
