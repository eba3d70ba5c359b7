"""nvidia-smi's outputs of every form, on small ones with invented values: what is read, what is refused, what is put together."""

import gzip
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.facts.nvidia_smi import answer_from, together
from gpudoctor.facts.nvidia_smi_values import value_of
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Listing, TextFile
from gpudoctor.knowledge.nvidia_smi_texts import EXITS
from gpudoctor.report import Report
from gpudoctor.sources.bug_report import read_bug_report
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.nvidia_smi_commands import nvml_answer
from gpudoctor.sources.nvidia_smi_output import SmiOutput
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Status, Unread, Why
from tests.captures import diagnose, fact
from tests.conftest import REPOSITORY
from tests.test_collected import sos

OUTPUTS = REPOSITORY / "fixtures" / "raw" / "nvidia-smi"
MIB = 1 << 20
NOT_SUPPORTED = {"error": 3}


def text_of(name: str) -> str:
    """An output as it is stored, its line ends too."""
    return (OUTPUTS / name).read_bytes().decode()


def data_of(name: str, arguments: str | None = None) -> dict[str, Any]:
    """The data of the answer in an output."""
    return data_in(text_of(name), arguments)


def data_in(text: str, arguments: str | None = None, exit_status: int | None = None) -> dict[str, Any]:
    answer = answer_from(arguments, text, exit_status)
    assert answer is not None
    return answer.data


def fields(name: str, number: int = 0) -> dict[str, Any]:
    said: dict[str, Any] = data_of(name)["devices"][number]["fields"]
    return said


def picked(said: dict[str, Any], **wanted: Any) -> None:
    """Names of fields with `__` for dots."""
    expected = {name.replace("__", "."): value for name, value in wanted.items()}
    assert {name: said.get(name) for name in expected} == expected


# -q as text -----------------------------------------------------------------------------------------------------------


def test_an_old_driver_counts_errors_by_their_bits() -> None:
    data = data_of("q-346-quadro.txt")
    assert (data["init"], data["driver_version"], data["count"], data.get("cuda_driver_version")) == (
        0,
        "346.01",
        1,
        None,
    )
    (device,) = data["devices"]
    assert (device["index"], device["minor"], device["serial"]) == (0, 2, "0303030303030")
    assert (device["pci_bus_id"], device["name"]) == ("0000:03:00.0", "Quadro K1")
    picked(
        device["fields"],
        compute_mode="exclusive_process",
        ecc__current=True,
        ecc__pending=False,
        ecc__volatile__dram__corrected=5,
        ecc__volatile__l2_cache__corrected=1,
        ecc__volatile__corrected=6,
        ecc__volatile__uncorrected=1,
        ecc__volatile__texture_memory__corrected=NOT_SUPPORTED,
        ecc__aggregate__dram__uncorrected=3,
        ecc__aggregate__corrected=72,
        retired_pages__single_bit=4,
        retired_pages__double_bit=3,
        retired_pages__pending=True,
        pcie__width=4,
        pcie__max_width=16,
        pcie__replays=12,
        performance_state=8,
        power__draw_milliwatts=20_500,
        power__limit_milliwatts=110_000,
        power__enforced_limit_milliwatts=105_000,
        clocks_event__active=0x9,
        board_id=0x300,
        pci__device_id=0x103A10DE,
        memory__total_bytes=4095 * MIB,
    )
    assert device["processes"] == [{"pid": 1203, "kind": "compute", "used_bytes": 21 * MIB, "name": "solver --set a:b"}]


def test_a_sick_node_tells_of_each_gpu_what_is_wrong() -> None:
    first, second, third = data_of("q-580-lost-and-reset.txt")["devices"]
    assert "error" not in first and [device["index"] for device in (first, second, third)] == [0, 1, 2]
    picked(
        first["fields"],
        recovery_action="drain_and_reset",
        ecc__volatile__sram__uncorrected_parity=2,
        ecc__volatile__sram__uncorrected_secded=3,
        ecc__volatile__sram__uncorrected=5,
        ecc__sram_threshold_exceeded=True,
        ecc__channel_repair_pending=False,
        ecc__tpc_repair_pending={"error": 4},
        row_remap__pending=True,
        row_remap__failed=False,
        row_remap__histogram__max=2559,
        temperature__tlimit_celsius=-3,
        fabric__state="completed",
        fabric__status=23,
        fabric__clique_id=32_766,
        fabric__health_summary="limited_capacity",
        fabric__bandwidth="degraded",
        fabric__route_recovery=True,
        fabric__incorrect_configuration="insufficient_nvlinks",
        fabric__partition_assigned=True,
    )
    assert ("error" in second, second["uuid"][-1]) == (False, "2")
    picked(
        second["fields"],
        recovery_action="gpu_reset",
        temperature__gpu_celsius={"error": 16},
        temperature__tlimit_celsius={"error": 16},
    )
    assert (third["error"]["code"], third["error"]["said"]) == (15, "GPU UUID: GPU is lost")
    assert (third.get("uuid"), third.get("name"), third["minor"]) == (None, None, 2)


def test_the_new_words_of_610_and_its_instances_are_read() -> None:
    data = data_of("q-610-mig.txt")
    assert (data["driver_version"], data["cuda_driver_version"]) == ("610.01.03", 13_030)
    (device,) = data["devices"]
    picked(
        device["fields"],
        mig__current=True,
        mig__pending=False,
        row_remap__pending=NOT_SUPPORTED,
        row_remap__histogram__none=NOT_SUPPORTED,
        power__enforced_limit_milliwatts=300_000,
        power__limit_milliwatts=400_000,
        power__default_limit_milliwatts=500_000,
        power__instant_milliwatts=101_750,
    )
    first, second = device["mig_devices"]
    assert (first["gpu_instance_id"], first["sm_count"], first["memory_bytes"]) == (3, 16, 1024 * MIB)
    assert second == {"index": 1, "gpu_instance_id": 4, "compute_instance_id": 1, "ecc_uncorrected_sram": 7}
    mps, nameless = device["processes"]
    assert (mps["kind"], mps["gpu_instance_id"]) == ("mps", 3)
    assert nameless == {"pid": 78, "kind": "compute", "gpu_instance_id": 4, "compute_instance_id": 1}


def test_line_ends_of_windows_and_shifted_quotations_read_the_same() -> None:
    for name in ("q-580-lost-and-reset.txt", "table-610-mig.txt", "L-mig.txt", "query-gpu.csv", "dmon.txt"):
        text = text_of(name)
        shifted = "".join(f"        {line}\n" for line in text.splitlines())
        assert data_in(text.replace("\n", "\r\n")) == data_in(text)
        if not name.startswith("dmon"):
            assert data_in(shifted) == data_in(text), name


def test_some_sections_alone_are_an_answer_too() -> None:
    text = "GPU 00000001:00:00.0\n    Retired Pages\n        Pending Page Blacklist            : Yes\n"
    assert data_in(text)["devices"] == [{"pci_bus_id": "00000001:00:00.0", "fields": {"retired_pages.pending": True}}]


def test_a_license_of_a_vgpu_is_a_truth() -> None:
    for status, truth in (("Licensed (Expiry: 2027-1-1 1:2:3 GMT)", True), ("Unlicensed (Restricted)", False)):
        text = (
            "GPU 00000000:02:00.0\n    vGPU Software Licensed Product\n        Product Name : NVIDIA Virtual Compute Server\n"
            f"        License Status                    : {status}\n"
        )
        said = {"vgpu.product": "NVIDIA Virtual Compute Server", "vgpu.licensed": truth}
        assert data_in(text)["devices"][0]["fields"] == said


def test_a_number_that_is_cut_off_is_no_number() -> None:
    """`81559 MiB` must not become 815 of them."""
    text = text_of("q-580-lost-and-reset.txt").partition("    ECC Mode")[0]
    for end in ("FB Memory Usage\n        Total : 815", "FB Memory Usage\n        Total : 81559 Mi"):
        assert "memory.total_bytes" not in data_in(f"{text}    {end}")["devices"][0]["fields"]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("memory.total_bytes", "N/A", NOT_SUPPORTED),
        ("memory.total_bytes", "[Not Supported]", NOT_SUPPORTED),
        ("memory.total_bytes", "[Function Not Found]", {"error": 13}),
        ("memory.total_bytes", "4799 MB", 4799 * MIB),
        ("temperature.gpu_celsius", "ERR!", {"error": 999}),
        ("temperature.gpu_celsius", "Insufficient Permissions", {"error": 4}),
        ("clocks.applications.graphics_mhz", "Requested functionality has been deprecated", {"error": 26}),
        ("power.draw_milliwatts", "59.77 W", 59_770),
        ("clocks_event.sw_power_cap_nanoseconds", "15820333506 us", 15_820_333_506_000),
        ("row_remap.histogram.max", "640 bank(s)", 640),
        ("fabric.state", "Not Supported", "not_supported"),
        ("fabric.status", "Success", 0),
        ("fabric.status", "In a way", None),
        ("fabric.status", "Unknown Error", 999),
        ("recovery_action", "Reboot", "node_reboot"),
        ("recovery_action", "Drain P2P", "drain_p2p"),
        ("virtualization.mode", "Host VGPU", "host_vgpu"),
        ("virtualization.mode", "Pass-Through", "passthrough"),
        ("persistence_mode", "Sometimes", None),
        ("pcie.width", "16x", 16),
        ("pcie.width", "sixteen", None),
        ("performance_state", "P12", 12),
        ("performance_state", "Unknown", None),
        ("memory.total_bytes", "815", None),
    ],
)
def test_a_text_is_the_value_of_its_field(field: str, text: str, value: Any) -> None:
    assert value_of(field, text) == value


# -q -x ----------------------------------------------------------------------------------------------------------------


def test_xml_of_a_gpu_with_instances_and_one_that_is_lost() -> None:
    data = data_of("x-v13.xml")
    assert (data["driver_version"], data["cuda_driver_version"], data["count"]) == ("580.01.02", 13_000, 2)
    first, lost = data["devices"]
    picked(
        first["fields"],
        architecture="ada",
        pcie__width=8,
        pcie__replays=3,
        clocks_event__active=0x44,
        row_remap__uncorrected=2,
        row_remap__failed=True,
        pci__device_id=0x233010DE,
    )
    assert first["mig_devices"] == [
        {
            "index": 0,
            "gpu_instance_id": 5,
            "compute_instance_id": 0,
            "sm_count": 14,
            "ecc_uncorrected_sram": 2,
            "memory_bytes": 4096 * MIB,
            "used_bytes": 12 * MIB,
        }
    ]
    assert first["processes"][0]["name"] == 'python -c "a & b < c"'
    assert (lost["error"]["code"], lost["index"], lost["fields"]["row_remap.failed"]) == (15, 1, NOT_SUPPORTED)


def test_xml_that_is_cut_off_counts_up_to_the_last_whole_gpu() -> None:
    text = text_of("x-v13.xml")
    for end in ('<gpu id="00000000:1B', "<uuid>GPU is l", "</gpu>\n</nvidia_smi_log>"):
        cut = data_in(text[: text.rindex(end)])
        assert [device["pci_bus_id"] for device in cut["devices"]] == ["00000000:1A:00.0"]
        assert "index" not in cut["devices"][0] and cut["count"] == 2
    damaged = text.replace("<performance_state>P0</performance_state>\n", "<performance_state>P0\n")
    assert "devices" not in data_in(damaged)


def test_xml_with_stray_ampersands_and_control_characters_is_read() -> None:
    text = text_of("x-v13.xml").replace("a &amp; b &lt; c", "a & b\x1b &bogus; c")
    assert data_in(text)["devices"][0]["processes"][0]["name"] == 'python -c "a & b? &bogus; c"'


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY a "GPU-1">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % p SYSTEM "http://localhost/x"> %p;',
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">',
    ],
)
def test_a_document_with_entities_of_its_own_is_refused(declared: str) -> None:
    text = text_of("x-v13.xml").replace('SYSTEM "nvsmi_device_v13.dtd"', f"[{declared}]")
    assert answer_from("-q -x", text.replace("<uuid>GPU-1", "<uuid>&a;")) is None


# The table ------------------------------------------------------------------------------------------------------------


def test_a_table_with_errors_in_its_cells() -> None:
    data = data_of("table-470-err.txt")
    assert (data["driver_version"], data["cuda_driver_version"], data["count"]) == ("470.01.02", 11_040, 3)
    first, broken, lost = data["devices"]
    picked(
        first["fields"],
        persistence_mode=True,
        ecc__current=True,
        ecc__volatile__uncorrected=2,
        fan_percent=NOT_SUPPORTED,
        temperature__gpu_celsius=34,
        power__draw_milliwatts=60_000,
        memory__used_bytes=3 * MIB,
        compute_mode="exclusive_process",
        mig__current=False,
        mig__pending=True,
        inforom__valid=False,
    )
    assert first["processes"] == [
        {"pid": 4242, "kind": "compute", "used_bytes": 2 * MIB, "name": "...bin/python train.py"}
    ]
    assert (broken["error"]["code"], broken.get("name"), broken["pci_bus_id"]) == (999, None, "00000000:0F:00.0")
    picked(broken["fields"], temperature__gpu_celsius={"error": 999}, mig__current={"error": 999})
    picked(lost["fields"], ecc__current=False, memory__used_bytes={"error": 15}, memory__total_bytes={"error": 15})


def test_a_table_with_instances_between_fences() -> None:
    data = data_of("table-610-mig.txt")
    assert (data["driver_version"], data["cuda_driver_version"], data["count"]) == ("610.01.03", 13_030, 1)
    (device,) = data["devices"]
    picked(device["fields"], mig__current=True, ecc__current=True, ecc__volatile__uncorrected=NOT_SUPPORTED)
    assert [(mig["gpu_instance_id"], mig["index"], mig["ecc_uncorrected_sram"]) for mig in device["mig_devices"]] == [
        (3, 0, 0),
        (4, 1, 7),
    ]
    assert device["processes"][0]["kind"] == "mps"


def test_of_a_table_that_is_cut_off_it_is_not_known_how_many_gpus_there_are() -> None:
    text = text_of("table-470-err.txt")
    assert "count" not in data_in(text.partition("| Processes:")[0])
    assert "count" not in data_in(text, "-i 0,1,2")


def test_the_table_of_vgpus_counts_them() -> None:
    assert [device["fields"]["vgpu.active"] for device in data_of("vgpu.txt")["devices"]] == [2, 0]
    text = "GPU 00000000:85:00.0\n    Active vGPUs                      : 3\n    vGPU ID                           : 3251635087\n"
    assert data_in(text, "vgpu -q")["devices"][0]["fields"] == {"vgpu.active": 3}


# csv ------------------------------------------------------------------------------------------------------------------


def test_csv_is_read_by_the_names_of_its_columns() -> None:
    first, second = data_of("query-gpu.csv")["devices"]
    assert (first["index"], first["pci_bus_id"], "error" in first) == (0, "00000000:1A:00.0", False)
    picked(
        first["fields"],
        inforom__valid=True,
        power__draw_milliwatts=95_500,
        memory__total_bytes=81_559 * MIB,
        fabric__status=0,
    )
    # Only one of the reasons was asked about: of the others nothing is known.
    assert "clocks_event.active" not in first["fields"]
    picked(second["fields"], inforom__valid=False, fabric__status=999, temperature__gpu_celsius={"error": 16})
    assert second["fields"]["row_remap.failed"] == NOT_SUPPORTED


def test_csv_without_names_needs_the_command_line() -> None:
    arguments = "--query-gpu=pci.bus_id,temperature.gpu,power.draw,memory.total,clocks_event_reasons.active --format=csv,noheader,nounits"
    first, second = data_of("query-gpu-noheader.csv", arguments)["devices"]
    picked(
        first["fields"], temperature__gpu_celsius=41, power__draw_milliwatts=95_500, memory__total_bytes=81_559 * MIB
    )
    assert (first["fields"]["clocks_event.active"], second["fields"]["clocks_event.active"]) == (0x48, 1)
    assert answer_from(None, text_of("query-gpu-noheader.csv")) is None


def test_single_reasons_make_the_mask_when_all_that_matter_were_asked_about() -> None:
    names = ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        header = ", ".join(["index", *(f"{prefix}.{name}" for name in names)])
        text = f"{header}\n0, Active, Not Active, Active, Not Active, Not Active\n"
        assert data_in(text)["devices"][0]["fields"] == {"clocks_event.active": 0x44}
        fewer = ", ".join(header.split(", ")[:-1])
        assert "fields" not in data_in(f"{fewer}\n0, Active, Not Active, Active, Not Active\n")["devices"][0]


def test_of_a_query_that_goes_on_the_newest_row_of_each_gpu_counts() -> None:
    text = "index, temperature.gpu\n0, 30\n1, 31\n0, 40\n1, 41\n"
    assert [device["fields"]["temperature.gpu_celsius"] for device in data_in(text)["devices"]] == [40, 41]


def test_one_row_without_identity_is_the_only_gpu() -> None:
    arguments = "--query-gpu=temperature.gpu,utilization.gpu --format=csv,noheader"
    assert data_in("41, 3 %\n", arguments)["devices"][0]["index"] == 0
    assert answer_from(f"-i 3 {arguments}", "41, 3 %\n") is None
    assert answer_from(arguments, "41, 3 %\n42, 3 %\n") is None


def test_retired_pages_and_applications_have_rows_of_their_own() -> None:
    some, none = data_of("retired-pages.csv")["devices"]
    picked(some["fields"], retired_pages__single_bit=2, retired_pages__double_bit=0)
    picked(none["fields"], retired_pages__single_bit=NOT_SUPPORTED, retired_pages__double_bit=NOT_SUPPORTED)
    (device,) = data_of("compute-apps.csv")["devices"]
    first, second = device["processes"]
    assert (first["name"], first["used_bytes"]) == ('python -c "print(1, 2)"', 400 * MIB)
    assert second == {"pid": 4243, "kind": "compute", "name": "./burn"}


# Lists, links, topology, and the rest ---------------------------------------------------------------------------------


def test_the_list_names_instances() -> None:
    data = data_of("L-mig.txt")
    assert data["count"] == 1
    assert [(mig["index"], mig["profile"], mig["uuid"][-1]) for mig in data["devices"][0]["mig_devices"]] == [
        (0, "1g.24gb", "1"),
        (1, "1c.2g.48gb", "2"),
    ]
    assert "count" not in data_in(text_of("L-mig.txt"), "-L -i 0")


def test_links_are_active_inactive_all_inactive_or_not_there() -> None:
    data = data_of("nvlink-s.txt")
    assert "count" not in data
    some, none, without = data["devices"]
    assert some["nvlinks"] == [
        {"link": 0, "active": True, "megabytes_per_second": 26_562},
        {"link": 1, "active": False},
        {"link": 2, "active": True, "megabytes_per_second": 26_562},
    ]
    assert [device["fields"]["nvlink.active_links"] for device in (some, none, without)] == [2, 0, NOT_SUPPORTED]


def test_speeds_errors_and_neighbours_of_links_come_together() -> None:
    answer = together(
        answer
        for name, arguments in (
            ("nvlink-s.txt", "nvlink -s"),
            ("nvlink-e.txt", "nvlink -e"),
            ("nvlink-R.txt", "nvlink -R"),
        )
        if (answer := answer_from(arguments, text_of(name))) is not None
    )
    assert answer is not None and answer.via == "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi nvlink -R"
    first, _, third = answer.data["devices"][0]["nvlinks"]
    assert first == {
        "link": 0,
        "active": True,
        "megabytes_per_second": 26_562,
        "errors": {"replay": 1, "recovery": 2, "crc_flit": 3},
        "remote_bus_id": "00000000:CD:00.0",
    }
    assert third["errors"] == {"symbol": 4, "effective": 5, "link_recovery_failed": 6, "local_integrity": 7}


def test_a_matrix_keeps_each_pair_once_and_what_is_near() -> None:
    data = data_of("topo-m.txt")
    assert data["system"]["nics"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_bond_0"}
    assert [(pair["from"], pair["to"], pair["path"]) for pair in data["system"]["topology"]] == [
        ("GPU0", "GPU1", "NV18"),
        ("GPU0", "NIC0", "PIX"),
        ("GPU0", "NIC1", "SYS"),
        ("GPU1", "NIC0", "SYS"),
        ("GPU1", "NIC1", "PXB"),
        ("NIC0", "NIC1", "NODE"),
    ]
    first, second = (device["fields"] for device in data["devices"])
    assert first == {
        "affinity.cpus": "0-31,64-95",
        "affinity.numa_nodes": "0",
        "affinity.memory_numa_node": NOT_SUPPORTED,
    }
    assert second == {"affinity.cpus": "32-63,96-127", "affinity.numa_nodes": "1", "affinity.memory_numa_node": 9}


def test_a_matrix_with_blanks_for_tabs_reads_the_same_where_nothing_is_missing() -> None:
    text = text_of("topo-m.txt")
    assert data_in(text.replace("\t\t", "\t").expandtabs(14)) == data_in(text)
    missing = text.replace("\t\tN/A", "\t\t").expandtabs(14)
    assert "fields" not in data_in(missing)["devices"][0]


def test_small_outputs() -> None:
    assert data_of("version-610.txt") == {
        "init": 0,
        "driver_version": "610.01.03",
        "nvml_version": "610.01",
        "cuda_driver_version": 13_030,
    }
    assert data_of("conf-compute-q.txt")["system"]["fields"] == {
        "conf_compute.cc_feature": True,
        "conf_compute.multi_gpu_mode": "protected_pcie",
        "conf_compute.gpus_ready": False,
    }
    first, second = (device["fields"] for device in data_of("dmon.txt")["devices"])
    assert (first["power.draw_milliwatts"], "utilization.gpu_percent" in first) == (103_000, False)
    assert (
        second["temperature.gpu_celsius"],
        second["utilization.gpu_percent"],
        "temperature.memory_celsius" in second,
    ) == (41, 7, False)
    profiles = data_of("mig-lgip.txt")["devices"][0]["mig_profiles"]
    assert profiles[0] == {
        "id": 19,
        "name": "1g.24gb",
        "slices": 1,
        "memory_bytes": 22 << 30,
        "instances": 7,
        "free": 5,
    }
    assert (profiles[1]["name"], profiles[1]["free"]) == ("1g.24gb+me", 0)


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that …\n", 9),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure …\n", 12),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n", 18),
        ("Failed to initialize NVML: Driver/Library Version Mismatch\n", 18),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4),
        ("Failed to initialize NVML: Unknown Error\n", 999),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", 17),
        ("Failed to initialize NVML: Something new\n", 999),
    ],
)
def test_why_nvml_did_not_start(text: str, code: int) -> None:
    answer = answer_from("-q", text)
    assert answer is not None
    assert (answer.data["init"], answer.via) == (code, "nvidia-smi -q")
    assert answer.data["said"] == text.partition("\n")[0] and "devices" not in answer.data


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("GPU0000:0F:00.0: Unknown Error", {"pci_bus_id": "0000:0F:00.0", "code": 999}),
        (
            "gpu 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU",
            {"pci_bus_id": "0000:02:00.0", "code": 15},
        ),
        ("GPU1: 0000:81:00.0: GPU requires reset", {"index": 1, "pci_bus_id": "0000:81:00.0", "code": 16}),
        ("GPU0: Unknown Error", {"index": 0, "code": 999}),
        ("GPU 000:BA:80.0: Unknown Error", {"code": 999}),
    ],
)
def test_a_gpu_without_a_handle(line: str, device: dict[str, Any]) -> None:
    """That there are none, said after it, is said by whoever could reach none."""
    for end in ("\n", "\nNo devices were found\n"):
        data = data_in(f"Unable to determine the device handle for {line}{end}")
        (found,) = data["devices"]
        error = found.pop("error")
        assert {**found, "code": error["code"]} == device and line in error["said"]
        assert (data["init"], "count" in data) == (0, False)


def test_no_devices_are_none() -> None:
    data = data_in("No devices were found\n", "-q", 6)
    assert (data["init"], data["count"], data["said"]) == (0, 0, "No devices were found")


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (9, {"init": 9}),
        (12, {"init": 12}),
        (18, {"init": 18}),
        (4, {"init": 4}),
        (6, {"init": 0, "count": 0}),
        (15, {"init": 0, "code": 15}),
        (8, {"init": 0, "code": 8}),
        (10, {"init": 0, "code": 11}),
    ],
)
def test_an_exit_status_speaks_where_there_is_no_text(status: int, data: dict[str, int]) -> None:
    found = data_in("", "-q", status)
    said = found.get("said") or found["devices"][0]["error"]["said"]
    assert said == f"exit status {status}" + (f": {EXITS[status]}" if status in EXITS else "")
    known: dict[str, int] = {key: found[key] for key in ("init", "count") if key in found}
    if "devices" in found:
        known["code"] = found["devices"][0]["error"]["code"]
    assert known == data


def test_exit_statuses_that_tell_nothing_of_nvml() -> None:
    for status in (0, 2, 3, 13, 14, 127, 255):
        assert answer_from("-q", "", status) is None
    assert answer_from("-i 9 -q", "", 6) is None
    assert (
        answer_from("-q", "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2) is None
    )
    assert answer_from("-q", "some words", 9) is None


def test_the_exit_status_of_a_corrupted_inforom_is_about_the_only_gpu() -> None:
    one = data_in(text_of("table-610-mig.txt"), "", 14)["devices"]
    assert one[0]["fields"]["inforom.valid"] is False
    three = data_in(text_of("table-470-err.txt").rpartition("WARNING")[0], "", 14)["devices"]
    assert all("inforom.valid" not in device["fields"] for device in three)


def test_texts_of_others_are_no_answer() -> None:
    for text in (
        "",
        "nvidia-smi: command not found\n",
        "ERROR: Option -m is missing its value. Please run 'nvidia-smi -h' for help.\n",
        'Field "gpu" is not a valid field to query.\n',
        "GPU 0: fine\nGPU 1: fine\n",
        "name, city\nx, y\n",
        "| a | b | c |\n| 0 | 1 | 2 |\n",
        "# a comment\nkey: value\n",
        "<html><body>nvidia_smi_log</body></html>",
    ):
        assert answer_from(None, text) is None, text


# Several outputs ------------------------------------------------------------------------------------------------------


def test_a_terminal_session_is_one_answer() -> None:
    answer = answer_from(None, text_of("terminal-session.txt"))
    assert answer is not None
    assert answer.via == (
        "nvidia-smi -q; nvidia-smi --query-gpu=vbios_version,pci.bus_id,temperature.gpu --format=csv,noheader; "
        "nvidia-smi -L; nvidia-smi topo -m"
    )
    (device,) = answer.data["devices"]
    picked(
        device["fields"],
        vbios_version="96.00.01.02.03",
        affinity__cpus="0-23",
        affinity__memory_numa_node=4,
        power__instant_milliwatts=101_750,
    )
    assert [(mig["profile"], mig["gpu_instance_id"]) for mig in device["mig_devices"]] == [
        ("1g.24gb", 3),
        ("1c.2g.48gb", 4),
    ]
    assert (answer.data["count"], answer.data["driver_version"]) == (1, "610.01.03")


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-smi -L",
        "/usr/bin/nvidia-smi -L",
        "$ nvidia-smi -L",
        "root@n1:/home/user# /usr/local/bin/nvidia-smi  -L | tee list.txt",
        "(container) $ sudo nvidia-smi -L > list.txt",
        "+ nvidia-smi -L",
        "PS C:\\Users\\x>nvidia-smi.exe -L",
    ],
)
def test_a_command_line_is_told_by_its_prompt(line: str) -> None:
    answer = answer_from("-q", f"{text_of('q-610-mig.txt')}{line}\n{text_of('L-mig.txt')}")
    assert answer is not None and answer.via == "nvidia-smi -q; nvidia-smi -L"


@pytest.mark.parametrize(
    "line",
    [
        "            Name                          : /usr/bin/nvidia-smi -q",
        "<process_name>/usr/bin/nvidia-smi -q</process_name>",
        "<process_name>nvidia-smi -q</process_name>",
        "nvidia-smi was not found",
        "Nov 29 12:00:00 n1 sudo[1]: root : COMMAND=/usr/bin/nvidia-smi -q",
        "|    0   N/A  N/A      4242      C   nvidia-smi                         2MiB |",
        "0, 4242, /usr/bin/nvidia-smi -q, 4 MiB",
        'echo "=== GPU ==="; nvidia-smi || echo "no GPU"',
    ],
)
def test_what_only_names_the_program_is_no_command_line(line: str) -> None:
    answer = answer_from("-q", f"{text_of('q-610-mig.txt')}{line}\n")
    assert answer is not None and answer.via == "nvidia-smi -q"
    assert answer_from("-q", f"{line}\n{text_of('q-610-mig.txt')}") is not None


def test_outputs_one_after_the_other_in_one_file_are_one_answer() -> None:
    answer = answer_from(None, text_of("table-610-mig.txt") + text_of("q-610-mig.txt") + text_of("L-mig.txt"))
    assert answer is not None and answer.via == "nvidia-smi -q; nvidia-smi -L; nvidia-smi"
    (device,) = answer.data["devices"]
    assert (device["mig_devices"][0]["profile"], device["fields"]["temperature.gpu_celsius"]) == ("1g.24gb", 36)


def test_the_query_counts_before_the_table_whatever_comes_first() -> None:
    query, table = answer_from("-q", text_of("q-610-mig.txt")), answer_from("", text_of("table-610-mig.txt"))
    assert query is not None and table is not None
    both, other = together([table, query]), together([query, table])
    assert both is not None and both == other
    (device,) = both.data["devices"]
    assert device["fields"]["temperature.gpu_celsius"] == 36, "only the table has it"
    assert device["fields"]["power.enforced_limit_milliwatts"] == 300_000
    assert device["mig_devices"][1]["memory_bytes"] == 2048 * MIB
    assert both.via == "nvidia-smi -q; nvidia-smi"


def test_what_has_an_index_only_makes_no_device_where_others_are_known_better() -> None:
    """`-q` of some GPUs says nothing of their indices: topo's cannot be told to be one of them."""
    some = text_of("q-610-mig.txt").replace(
        "Attached GPUs                                          : 1", "Attached GPUs : 2"
    )
    answer = together(a for a in (answer_from("-q", some), answer_from("topo -m", text_of("topo-m.txt"))) if a)
    assert answer is not None
    assert len(answer.data["devices"]) == 1 and len(answer.data["system"]["topology"]) == 6


def test_equal_uuids_of_masked_reports_do_not_join_gpus() -> None:
    text = "".join(f"GPU 00000000:0{n}:00.0\n    GPU UUID : GPU-0\n    Fan Speed : {n} %\n" for n in (1, 2))
    table = answer_from("--query-gpu=x", "pci.bus_id, uuid, temperature.gpu\n00000000:02:00.0, GPU-0, 42\n")
    query = answer_from("-q", text)
    assert query is not None and table is not None
    answer = together([query, table])
    assert answer is not None
    assert [device["fields"].get("temperature.gpu_celsius") for device in answer.data["devices"]] == [None, 42]


def test_a_start_that_failed_is_the_answer_of_whoever_counts_first() -> None:
    failed = answer_from("-q", "Failed to initialize NVML: Unknown Error")
    listed = answer_from("-L", text_of("L-mig.txt"))
    assert failed is not None and listed is not None
    assert together([listed, failed]) == failed
    late = answer_from("topo -m", "Failed to initialize NVML: Unknown Error")
    assert late is not None and together([listed, late]) == Answer(data=listed.data, via="nvidia-smi -L")


# As a SOURCE ----------------------------------------------------------------------------------------------------------


def report_on(text: str | bytes, tmp_path: Path, name: str = "smi.txt") -> Report:
    place = tmp_path / name
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    node = open_source(str(place))
    assert isinstance(node, SmiOutput)
    return diagnose(node)


def failed(report: Report) -> dict[str, str]:
    """Who fails, by which check."""
    return {
        finding.subject.key: result.check
        for result in report.results
        for finding in result.findings
        if finding.status is Status.FAIL
    }


def test_a_lost_gpu_and_one_to_be_reset_are_told_from_the_output_alone(tmp_path: Path) -> None:
    report = report_on(text_of("q-580-lost-and-reset.txt"), tmp_path)
    assert failed(report)["0000:5d:00.0"] == "driver-cuda.nvml-answers"
    assert "0000:1b:00.0" in failed(report)
    assert report.exit_code == 2 and report.node.driver_version == "580.01.02"
    assert [gpu.name for gpu in report.node.gpus] == ["NVIDIA H999", "NVIDIA H999", None]


def test_a_table_tells_of_lost_gpus_too(tmp_path: Path) -> None:
    report = report_on(text_of("table-470-err.txt"), tmp_path)
    assert {"0000:0f:00.0", "0000:47:00.0"} <= set(failed(report)) and report.exit_code == 2


def test_nothing_is_claimed_of_what_nvidia_smi_does_not_see(tmp_path: Path) -> None:
    # The seven errors that its MIG device counts are a finding of their own.
    text = text_of("table-610-mig.txt").replace("| 16      7 |", "| 16      0 |")
    report = report_on(text, tmp_path)
    assert report.exit_code == 3 and not report.root_causes
    passed = {result.check for result in report.results if result.status.value == "pass"}
    modes = {"health.compute-mode", "health.ecc-mode", "health.persistence-mode"}
    asked = {"driver-cuda.nvml-answers", "driver-cuda.queries-answered", "sharing.mig-instances"}
    assert passed <= {"pcie.gpus-present", *asked, *modes}
    bound = report.result("kernel-module.gpu-bound")
    assert (bound.status.value, bound.why) == ("unknown", "not-recorded")
    assert "is not in what nvidia-smi printed" in bound.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "DRIVER_NOT_LOADED"),
        ("No devices were found\n", "NVML lists no GPU"),
    ],
)
def test_a_failure_alone_is_a_source(text: str, words: str, tmp_path: Path) -> None:
    report = report_on(text, tmp_path)
    assert report.exit_code == 2
    (cause,) = report.root_causes
    assert cause.check == "driver-cuda.nvml-answers"
    assert words in cause.summary or "driver is not loaded" in cause.summary


def test_files_of_windows_and_compressed_ones_are_sources(tmp_path: Path) -> None:
    text = text_of("q-580-lost-and-reset.txt").replace("\n", "\r\n")
    for number, content in enumerate(
        (
            b"\xff\xfe" + text.encode("utf-16-le"),
            b"\xfe\xff" + text.encode("utf-16-be"),
            b"\xef\xbb\xbf" + text.encode(),
            gzip.compress(text.encode()),
        )
    ):
        assert report_on(content, tmp_path, f"smi-{number}").exit_code == 2


def test_the_command_line_says_what_the_file_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "nvidia-smi-q.txt"
    place.write_text(text_of("q-580-lost-and-reset.txt"))
    assert cli.main(["run", "--node", str(place), "--format", "line"]) == 2
    said = capsys.readouterr()
    assert "driver-cuda.nvml-answers" in said.out
    assert said.err == f"gpudoctor: {place}: holds what nvidia-smi -q printed, and nothing else of the node\n"


@pytest.mark.parametrize("content", ["", "hello\n", "a, b\n1, 2\n", "x\n" * 3000 + "No devices were found\n"])
def test_other_files_are_refused_as_before(content: str, tmp_path: Path) -> None:
    place = tmp_path / "other.txt"
    place.write_text(content)
    with pytest.raises(SourceError) as caught:
        open_source(str(place))
    assert "\n" not in str(caught.value)


def test_gpus_are_on_the_bus_where_nvidia_smi_saw_them(tmp_path: Path) -> None:
    place = tmp_path / "smi.xml"
    place.write_text(text_of("x-v13.xml"))
    node = open_source(str(place))
    listing = node.listing("/sys/bus/pci/devices")
    assert isinstance(listing, Listing)
    assert (listing.names, listing.complete, listing.where) == (
        ("0000:1a:00.0", "0000:1b:00.0"),
        False,
        "nvidia-smi -q -x",
    )
    device = node.read("/sys/bus/pci/devices/0000:1a:00.0/device")
    assert isinstance(device, TextFile) and (device.text, device.where) == ("0x2330\n", "nvidia-smi -q -x")
    unknown = node.entry("/sys/bus/pci/devices/0000:1c:00.0")
    assert isinstance(unknown, Unread) and unknown.detail == "is not in what nvidia-smi -q -x printed"


# In snapshots ---------------------------------------------------------------------------------------------------------


def snapshot(tmp_path: Path, *commands: dict[str, Any], answer: dict[str, Any] | None = None) -> Any:
    (tmp_path / "snapshot.json").write_text('{"format": 1, "recorded_at": "2026-11-29T12:00:00Z"}')
    (tmp_path / "commands.jsonl").write_text("".join(f"{json.dumps(command)}\n" for command in commands))
    if answer is not None:
        (tmp_path / "answers").mkdir()
        (tmp_path / "answers" / "nvml.json").write_text(json.dumps(answer))
    return open_snapshot(tmp_path)


def ran(arguments: str, stdout: str = "", code: int = 0, stderr: str = "") -> dict[str, Any]:
    return {"argv": ["/usr/bin/nvidia-smi", *arguments.split()], "exit": code, "stdout": stdout, "stderr": stderr}


def test_recorded_runs_answer_for_nvml_where_nobody_recorded_it(tmp_path: Path) -> None:
    node = snapshot(
        tmp_path,
        ran("topo -m", text_of("topo-m.txt")),
        ran("nvlink -s", text_of("nvlink-s.txt")),
        ran("-q", text_of("q-580-lost-and-reset.txt"), 15, "WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n"),
    )
    nvml = fact(node, Nvml)
    assert (nvml.via, nvml.count, nvml.driver_version) == (
        "nvidia-smi -q; nvidia-smi nvlink -s; nvidia-smi topo -m",
        3,
        "580.01.02",
    )
    first, _, lost = nvml.devices
    assert (first.address, first.field("inforom.valid"), len(first.nvlinks)) == ("0000:1a:00.0", False, 3)
    assert first.field("affinity.cpus") == "0-31,64-95"
    assert lost.error is not None and lost.error.code == 15


def test_what_nvml_itself_answered_counts_alone(tmp_path: Path) -> None:
    answer = {"schema": 1, "via": "NVML", "data": {"init": 9}}
    node = snapshot(tmp_path, ran("-q", text_of("q-610-mig.txt")), answer=answer)
    assert fact(node, Nvml).init == 9


def test_runs_that_say_nothing_say_why(tmp_path: Path) -> None:
    for commands, why, words in (
        ([{"argv": ["nvidia-smi", "-q"], "error": "timed-out"}], Why.TIMED_OUT, "deadline"),
        (
            [{"argv": ["nvidia-smi", "-q"], "error": "timed-out"}, ran("-L", text_of("L-mig.txt"))],
            Why.TIMED_OUT,
            "deadline",
        ),
        ([ran("-q", code=255)], Why.NOT_ANSWERED, "exit status 255: another error or an internal driver error"),
        ([ran("--bogus", "Invalid combination\n", 2)], Why.NOT_ANSWERED, "exit status 2: a supplied argument"),
        ([{"argv": ["nvidia-smi"], "error": "not-found"}], Why.NOT_RECORDED, "was not asked"),
        ([{"argv": ["uname", "-r"], "exit": 0, "stdout": "6.8\n"}], Why.NOT_RECORDED, "was not asked"),
    ):
        answer = snapshot(tmp_path, *commands).answer("nvml", lambda: pytest.fail("asked"))
        assert isinstance(answer, Unread) and answer.why is why and words in answer.detail, commands


def test_a_run_that_timed_out_does_not_hide_what_others_said() -> None:
    commands: dict[tuple[str, ...], CommandOutput | Absent | Unread] = {
        ("nvidia-smi", "topo", "-m"): Unread(Why.TIMED_OUT, "nvidia-smi topo -m", "did not end before its deadline"),
        ("nvidia-smi", "-L"): CommandOutput(("nvidia-smi", "-L"), 0, text_of("L-mig.txt")),
    }
    answer = nvml_answer(commands)
    assert isinstance(answer, Answer) and answer.data["count"] == 1


# Hostile texts --------------------------------------------------------------------------------------------------------


def _hostile(size: int) -> Iterator[str]:
    gpu = "GPU 00000000:01:00.0\n"
    yield "a " * (size // 2)
    yield ":" * size
    yield "|" * size
    yield "\0" * size
    yield "\n" * size
    yield "\x1b[" * (size // 2)
    yield gpu * (size // len(gpu))
    yield gpu + "    Product Name : x\n" * (size // 21)
    yield gpu + "\n".join(" " * (number % 4000) + "x" for number in range(size // 2000))
    yield gpu + "    Processes\n" + "        Process ID : 1\n            Name : y\n" * (size // 46)
    yield gpu + "    Product Name : " + "x" * size
    yield "<nvidia_smi_log>" + '<gpu id="00000000:01:00.0">' * (size // 27)
    yield "<nvidia_smi_log>" + '<gpu id="00000000:01:00.0"></gpu>' * (size // 33)
    yield "<nvidia_smi_log><gpu>" + "<a>" * (size // 3)
    yield "<nvidia_smi_log><gpu>" + "&" * size
    yield "<nvidia_smi_log><gpu><uuid>" + "&#65;" * (size // 5)
    yield "<nvidia_smi_log " + 'a="b" ' * (size // 6)
    yield "index, uuid, name\n" + "0, GPU-1, a\n" * (size // 12)
    yield "index, uuid, name\n" + "".join(f"{number}, GPU-{number}, a\n" for number in range(size // 18))
    yield "index, uuid\n" + "," * size + "\n" + '"' * size
    yield "index, uuid\n" + '"\n' * (size // 2)
    yield "| NVIDIA-SMI 1 Driver Version: 1 |\n" + "|   0  A B On | 00000000:01:00.0 Off | 0 |\n" * (size // 42)
    yield ("|   0  " + "|" * 400 + "\n") * (size // 408)
    yield "".join(f"GPU {number % 9999}: A (UUID: x{number})\n" for number in range(size // 24))
    yield "GPU 0: A (UUID: x)\n" + " Link 0: 25 GB/s\n" * (size // 17)
    yield "\tGPU0\tCPU Affinity\n" + "GPU0\t X \t0\n" * (size // 12)
    yield "\t" + "\t".join(f"GPU{number}" for number in range(1500)) + "\tCPU Affinity\n" + "GPU0\t" * (size // 5)
    yield "$ nvidia-smi -q\n" * (size // 16)
    yield "nvidia-smi " * (size // 11)
    yield "x nvidia-smi y\n" * (size // 15)
    yield "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n" * (size // 74)
    yield "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n" * (size // 50)
    yield "# gpu pwr\n# Idx W\n" + " 0 1\n" * (size // 5)
    yield "Failed to initialize NVML: " * (size // 27)
    yield "\udcff" * (size // 4) + "<nvidia_smi_log>\udcff"


def test_hostile_texts_take_time_by_their_length_only() -> None:
    started = time.monotonic()
    for text in _hostile(1 << 19):
        answer = answer_from(None, text)
        assert answer is None or len(answer.data.get("devices", ())) <= 1280
    assert time.monotonic() - started < 30


def test_spoilt_outputs_are_read_as_far_as_they_are_sound() -> None:
    """Cut, doubled, exchanged and mixed: never a traceback, always an answer of the documented form or none."""
    chance = random.Random(20261129)  # noqa: S311 - the same spoilt texts each time
    outputs = [text_of(place.name) for place in sorted(OUTPUTS.iterdir())]
    junk = (
        "",
        "\0",
        "|",
        "N/A",
        "ERR!",
        "GPU is lost",
        "9" * 40,
        ":",
        "\n",
        "\t",
        '"',
        "&",
        "<",
        "</gpu>",
        "$ nvidia-smi -q\n",
        ", ",
    )
    read = 0
    for _ in range(600):
        text = chance.choice(outputs)
        for _ in range(chance.randint(1, 6)):
            begin = chance.randint(0, len(text))
            end = min(len(text), begin + chance.randint(0, 60))
            other = chance.choice(outputs)
            middle = chance.choice((chance.choice(junk), text[begin:end] * 3, other[: chance.randint(0, 800)]))
            text = text[:begin] + middle + text[end:]
        answer = answer_from(
            chance.choice((None, "-q", "", "--query-gpu=index,name --format=csv,noheader")),
            text,
            chance.choice((0, 9, 14)),
        )
        if answer is not None:
            node = RecordedNode(Tree())
            node.answers["nvml"] = answer
            assert isinstance(fact(node, Nvml), Nvml)
            read += 1
    assert read > 300


def test_what_names_a_heading_twice_is_read_once_for_each_gpu() -> None:
    """Duplicate sections: the first value counts, and the places of GPUs are not mistaken."""
    text = text_of("q-610-mig.txt")
    twice = answer_from(None, text + text)
    assert twice is not None
    first, second = twice.data["devices"]
    assert first["fields"] == second["fields"] and "index" not in first
    section = "    FB Memory Usage\n        Total : 1 MiB\n"
    again = data_in(f"GPU 00000000:01:00.0\n{section}{section.replace('1', '2')}")
    assert again["devices"][0]["fields"] == {"memory.total_bytes": MIB}


def test_binary_rubbish_is_nothing(tmp_path: Path) -> None:
    place = tmp_path / "rubbish"
    for content in (bytes(range(256)) * 4096, b"\xff\xfe" + bytes(range(256)) * 64, b"\x1f\x8b" + bytes(1000)):
        place.write_bytes(content)
        with pytest.raises(SourceError):
            open_source(str(place))


# In bug reports and sos reports ---------------------------------------------------------------------------------------

LINE = "_" * 44


def test_all_runs_in_a_bug_report_come_together() -> None:
    runs = (
        ("--query", text_of("q-580-lost-and-reset.txt")),
        (
            "--query --unit",
            "\n==============NVSMI LOG==============\n\nDriver Version : 580.01.02\n\nAttached Units : 0\n",
        ),
        ("nvlink --errorcounters", text_of("nvlink-e.txt")),
        ("nvlink --status", text_of("nvlink-s.txt")),
        ("conf-compute --query-conf-compute", text_of("conf-compute-q.txt")),
    )
    section = "\n\n".join(f"/usr/bin/nvidia-smi {arguments}\n\n{printed}" for arguments, printed in runs)
    other = f"/usr/bin/nvidia-smi topo -m\n\n{text_of('topo-m.txt')}"
    head = "Start of NVIDIA bug report log file.  Please include this file\n\nDate: Sun Nov 29\nuname: Linux n7 6.8.0-1 #1 SMP x86_64"
    end = f"{LINE}\n\nEnd of NVIDIA bug report log file.\n"
    node = read_bug_report(f"{LINE}\n\n{head}\n\n{LINE}\n\n{section}\n\n{LINE}\n\n{other}\n\n{end}")
    answer = node.answer("nvml", lambda: pytest.fail("asked"))
    assert isinstance(answer, Answer)
    assert answer.via == (
        "nvidia-smi --query; nvidia-smi nvlink --errorcounters; nvidia-smi nvlink --status; "
        "nvidia-smi conf-compute --query-conf-compute; nvidia-smi topo -m"
    )
    first = answer.data["devices"][0]
    assert (first["nvlinks"][0]["errors"]["replay"], first["nvlinks"][0]["active"]) == (1, True)
    assert (len(answer.data["devices"]), first["fields"]["affinity.numa_nodes"]) == (3, "0")
    assert answer.data["system"]["fields"]["conf_compute.cc_feature"] is True
    assert isinstance(fact(node, Nvml), Nvml)


def test_all_runs_in_an_sos_report_come_together(tmp_path: Path) -> None:
    """Those of plugin nvidia, and whatever else the manifest names."""
    asked = "--query-gpu=pci.bus_id,vbios_version --format=csv"
    outputs = {
        "nvidia-smi -q": text_of("q-610-mig.txt"),
        "nvidia-smi --list-gpus": text_of("L-mig.txt"),
        f"nvidia-smi {asked}": "pci.bus_id, vbios_version\n00000018:01:00.0, 96.00.01\n",
    }
    for name, content in sos(outputs, {}, {"nvidia-smi nvlink -s": 124}).items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    nvml = fact(open_source(str(tmp_path)), Nvml)
    assert nvml.via == f"nvidia-smi -q; nvidia-smi {asked}; nvidia-smi --list-gpus"
    assert nvml.devices[0].field("vbios_version") == "96.00.01"
    assert nvml.devices[0].mig_devices[0].profile == "1g.24gb"


def test_masked_uuids_do_not_make_one_gpu_of_two() -> None:
    """Links of GPU 1 stay its own though both UUIDs were masked alike."""
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    query = {"index": 0, "pci_bus_id": "00000000:01:00.0", "uuid": uuid}
    other = {"index": 1, "pci_bus_id": "00000000:02:00.0", "uuid": uuid}
    links = [{"index": number, "uuid": uuid, "nvlinks": [{"link": 0, "active": number == 0}]} for number in (0, 1)]
    whole = together([Answer(data={"init": 0, "devices": [query, other]}), Answer(data={"init": 0, "devices": links})])
    assert whole is not None
    assert [device["nvlinks"][0]["active"] for device in whole.data["devices"]] == [True, False]
