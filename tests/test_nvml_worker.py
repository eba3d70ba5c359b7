"""The NVML worker against a library that answers, refuses, lies, hangs and crashes: what arrives in the answer, and when."""

import datetime
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from gpudoctor.facts.nvml import normal_address
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvml_fields import FIELDS, Kind, NvmlField
from gpudoctor.knowledge.nvml_words import WORDS
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.nvml import ask_nvml
from gpudoctor.probes.nvml_details import field_names
from gpudoctor.probes.tasks import TaskTable
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.live import Live
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Status
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
)
from tests.nvml_values import talkative_gpu
from tests.standin.build import Crash, Hang, Node, healthy
from tests.standin.eras import missing_in
from tests.standin.node import Text

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
ANSWERS = "driver-cuda.nvml-answers"
QUERIES = "driver-cuda.queries-answered"

SIXTEEN = [f"{domain:04x}:{bus:02x}:00.0" for domain in (0, 1) for bus in range(0x10, 0x90, 0x10)]
PAIR = SIXTEEN[:2]

REFUSED, TOO_OLD, LOST = {"error": 3}, {"error": 13}, {"error": 15}


class Library:
    """A root directory with the stand-in in it, and whoever asks it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch

    def ask(self, standin: Node, seconds: float = 9.0, leave_out: tuple[str, ...] = ()) -> Answer:
        """The answer about all of its GPUs; it must come by the deadline, or a second later."""
        with_nvml(self.root, self.monkeypatch, standin, leave_out)
        addresses = [normal_address(device["pci_bus_id"]) for device in standin["devices"]]
        question = Question("nvml", {"addresses": addresses, "attach": True})
        started = time.monotonic()
        # A second of the deadline is the run's.
        answer = ask_nvml(question, Deadline(seconds + 1.0), str(self.root), TaskTable())
        assert time.monotonic() - started < seconds + 1.0
        return answer


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The stand-in in a directory of its own."""
    return Library(tmp_path / "root", monkeypatch)


def talkative(addresses: Sequence[str]) -> tuple[Node, list[dict[str, Any]]]:
    """A node whose GPUs answer everything, and the fields each answer must have."""
    told = [talkative_gpu(index, address) for index, address in enumerate(addresses)]
    standin = healthy([])
    standin["devices"] = [device for device, _ in told]
    return standin, [fields for _, fields in told]


def gpus(standin: Node) -> list[dict[str, Any]]:
    """A node's devices, to be changed."""
    return cast("list[dict[str, Any]]", standin["devices"])


def devices(answer: Answer) -> list[dict[str, Any]]:
    """The devices of an answer that ended by itself."""
    assert answer.error is None, answer
    found: list[dict[str, Any]] = answer.data["devices"]
    return found


def is_of_its_kind(field: NvmlField, value: object) -> bool:
    """Whether a value is written as its field's kind wants it."""
    match field.kind:
        case Kind.NUMBER:
            return type(value) is int
        case Kind.FLAG:
            return type(value) is bool
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.WORD:
            return value in WORDS[field.name].values()


# What is answered ---------------------------------------------------------------------------------------------------


def test_the_worker_asks_for_the_documented_fields() -> None:
    asked = field_names()
    assert len(asked) == len(set(asked))
    assert set(asked) == set(FIELDS)


def test_the_words_are_those_of_fields_that_hold_words() -> None:
    of_fields = {name for name in WORDS if name in FIELDS}
    assert of_fields == {name for name, field in FIELDS.items() if field.kind is Kind.WORD}


def test_every_field_of_sixteen_gpus_is_what_the_library_said(library: Library) -> None:
    """195 fields and more, each with a value of its own, many of them another one on each GPU."""
    standin, expected = talkative(SIXTEEN)
    answered = devices(library.ask(standin))
    assert [device["pci_bus_id"] for device in answered] == SIXTEEN
    compared = 0
    for device, described, fields in zip(answered, gpus(standin), expected, strict=True):
        assert (device["uuid"], device["serial"]) == (described["uuid"], described["serial"])
        assert device["minor"] == described["minor"]
        for name, value in fields.items():
            assert device["fields"][name] == value, (device["pci_bus_id"], name)
            assert is_of_its_kind(FIELDS[name], device["fields"][name]), name
            compared += 1
    print(f"compared {compared} values of {len(FIELDS)} fields")
    assert compared >= 16 * 196
    assert set(expected[0]) == set(FIELDS), "a field without a row in nvml_values.py"


def test_a_healthy_node_answers_without_notes_and_tells_how_its_gpus_are_joined(library: Library) -> None:
    standin = healthy(SIXTEEN[:8])
    answer = library.ask(standin)
    assert "notes" not in answer.data
    assert answer.data["system"]["topology"][:2] == [
        {"from": "GPU0", "to": "GPU1", "path": "NV18"},
        {"from": "GPU0", "to": "GPU2", "path": "NV18"},
    ]
    assert len(answer.data["system"]["topology"]) == 8 * 7 / 2
    assert answer.data["system"]["excluded"] == []
    assert {device["fields"]["nvlink.active_links"] for device in devices(answer)} == {18}
    assert [device["processes"] for device in devices(answer)] == [[]] * 8
    assert not any("mig_devices" in device for device in devices(answer))


def test_the_way_through_pcie_is_told_where_no_nvlinks_join_two_gpus(library: Library) -> None:
    levels = [0, 10, 20, 30, 40, 50]
    standin = healthy(SIXTEEN[:7])
    standin["topology"] = [[levels[abs(one - other) - 1] for other in range(7)] for one in range(7)]
    for device in gpus(standin):
        device["nvlinks"] = []
    # Two GPUs with a bridge of two links, one of them down; a third whose links go elsewhere.
    for one, other in ((1, 2), (2, 1)):
        far = gpus(standin)[other]["pci_bus_id"]
        gpus(standin)[one]["nvlinks"] = [
            {"active": active, "remote_type": 0, "remote_bus_id": far} for active in (1, 0, 1)
        ]
    gpus(standin)[5]["nvlinks"] = [{"active": 1, "remote_type": 0, "remote_bus_id": "00000000:EE:00.0"}]
    paths = {(pair["from"], pair["to"]): pair["path"] for pair in library.ask(standin).data["system"]["topology"]}
    assert [paths["GPU0", f"GPU{other}"] for other in range(1, 7)] == ["PSB", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert paths["GPU1", "GPU2"] == "NV2"
    assert paths["GPU5", "GPU6"] == "PSB"


def test_gpus_of_two_fabric_partitions_are_not_joined_by_nvlinks(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[1]["fabric"]["clique_id"] = 7
    assert library.ask(standin).data["system"]["topology"] == [{"from": "GPU0", "to": "GPU1", "path": "SYS"}]


def test_whether_two_gpus_may_use_each_others_memory(library: Library) -> None:
    standin = healthy(PAIR)
    standin["p2p"] = [[0, 5], [5, 0]]
    pair = {"from": "GPU0", "to": "GPU1", "path": "NV18"}
    told = {"read": "not_supported", "write": "not_supported"}
    assert library.ask(standin).data["system"]["topology"] == [{**pair, "p2p": told}]
    standin["p2p"] = [[0, 6], [6, 0]]
    told = {"read": "unknown", "write": "unknown"}
    assert library.ask(standin).data["system"]["topology"] == [{**pair, "p2p": told}]


def test_no_path_is_told_where_nobody_knows_where_the_links_lead(library: Library) -> None:
    standin = healthy(PAIR)
    for device in gpus(standin):
        device["nvlinks"] = [{"active": 1}]
    assert "topology" not in library.ask(standin).data["system"]


def test_nvlinks_are_told_with_the_counters_of_their_generation(library: Library) -> None:
    standin = healthy(PAIR)
    hopper, blackwell = gpus(standin)
    hopper["nvlinks"] = [
        {**hopper["nvlinks"][0], "errors": [1, 2, 3, 4]},
        {"active": 0, "version": 7},
    ]
    blackwell["architecture"] = 10
    counters = {"211": 11, "214": 14, "215": 15, "219": 19, "221": {"value": 21, "type": 3}}
    link = {"active": 1, "version": 8, "remote_type": 2, "megabytes_per_second": 53125}
    blackwell["nvlinks"] = [{**link, "fields": counters}]
    answered = devices(library.ask(standin))
    assert answered[0]["nvlinks"] == [
        {
            "link": 0,
            "active": True,
            "megabytes_per_second": 26562,
            "version": 4,
            "remote_type": "switch",
            "remote_bus_id": "00000000:05:00.0",
            "errors": {"replay": 1, "recovery": 2, "crc_flit": 3, "crc_data": 4},
        },
        # The resource manager's number of the same generation.
        {"link": 1, "active": False, "version": 4},
    ]
    assert answered[1]["nvlinks"] == [
        {
            "link": 0,
            "active": True,
            "megabytes_per_second": 53125,
            "version": 5,
            "remote_type": "switch",
            "errors": {
                "recovery": 15,
                "link_recovery_failed": 14,
                "local_integrity": 11,
                "effective": 19,
                "symbol": 21,
            },
        }
    ]


def test_a_gpu_without_nvlinks_has_none_and_one_that_does_not_say_has_no_list(library: Library) -> None:
    standin = healthy(SIXTEEN[:3])
    del gpus(standin)[0]["nvlinks"]
    gpus(standin)[1]["errors"] = {"nvmlDeviceGetNvLinkState": 999}
    gpus(standin)[1]["nvlinks"] = []
    gpus(standin)[1]["field_values"]["91"] = {"error": 999}
    gpus(standin)[2]["errors"] = {"nvmlDeviceGetNvLinkState": 999}
    none, silent, unsure = devices(library.ask(standin))
    assert (none["nvlinks"], none["fields"]["nvlink.active_links"]) == ([], REFUSED)
    assert "nvlinks" not in silent
    assert "nvlink.active_links" not in silent["fields"]
    assert len(unsure["nvlinks"]) == 18
    assert not any("active" in link for link in unsure["nvlinks"])
    assert "nvlink.active_links" not in unsure["fields"]


def test_processes_are_told_by_kind_and_name(library: Library) -> None:
    standin = healthy(PAIR)
    own = os.getpid()
    gpus(standin)[0]["processes"] = {
        "compute": [{"pid": own, "used_bytes": 4096}, {"pid": 4194303, "gpu_instance_id": 1, "compute_instance_id": 0}],
        "graphics": [{"pid": own, "used_bytes": 4096}, {"pid": 4194302, "used_bytes": 1}],
        "mps": [{"pid": 4194301, "used_bytes": 2}],
    }
    gpus(standin)[1]["errors"] = {"nvmlDeviceGetGraphicsRunningProcesses_v3": 999}
    # What the root shows is what the GPU's processes are called, whoever has the number here.
    comm = library.root / f"proc/{own}/comm"
    comm.parent.mkdir(parents=True)
    comm.write_text("trainer\n")
    told, silent = devices(library.ask(standin))
    assert told["processes"] == [
        {"pid": own, "used_bytes": 4096, "kind": "compute+graphics", "name": "trainer"},
        {"pid": 4194303, "gpu_instance_id": 1, "compute_instance_id": 0, "kind": "compute"},
        {"pid": 4194302, "used_bytes": 1, "kind": "graphics"},
        {"pid": 4194301, "used_bytes": 2, "kind": "mps"},
    ]
    assert "processes" not in silent


def test_mig_devices_and_profiles_are_told(library: Library) -> None:
    """Two GPUs with MIG on, the indices with a gap; without the right to it, the remaining capacity is left out."""
    standin = healthy(PAIR)
    for index, device in enumerate(gpus(standin)):
        device["mig_mode"] = [1, 1]
        device["max_mig_devices"] = 7
        device["mig_devices"] = [
            None
            if slot == 1
            else {
                "uuid": f"MIG-{index}{slot}",
                "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                "gpu_instance_id": 7 + slot,
                "compute_instance_id": 0,
                "attributes": {"multiprocessors": 16, "gpu_slices": 1, "compute_slices": 1, "mebibytes": 9856},
                "memory": {"total": 9856 << 20, "free": 9000 << 20, "used": slot << 20},
                "memory_errors": {"1.0.7": slot},
            }
            for slot in range(3)
        ]
        profile = {"id": 19, "slices": 1, "instances": 7, "mebibytes": 9856, "name": "MIG 1g.10gb", "free": 5 - index}
        device["mig_profiles"] = [profile, None, {**profile, "id": 9, "slices": 4, "instances": 1}]
    gpus(standin)[1]["errors"] = {"nvmlDeviceGetGpuInstanceRemainingCapacity": 4}
    answered = devices(library.ask(standin))
    assert answered[0]["mig_devices"] == [
        {
            "index": slot,
            "uuid": f"MIG-0{slot}",
            "profile": "1g.10gb",
            "gpu_instance_id": 7 + slot,
            "compute_instance_id": 0,
            "memory_bytes": 9856 << 20,
            "used_bytes": slot << 20,
            "sm_count": 16,
            "ecc_uncorrected_sram": slot,
        }
        for slot in (0, 2)
    ]
    assert [found["uuid"] for found in answered[1]["mig_devices"]] == ["MIG-10", "MIG-12"]
    expected = {"id": 19, "name": "1g.10gb", "slices": 1, "memory_bytes": 9856 << 20, "instances": 7}
    assert answered[0]["mig_profiles"][0] == {**expected, "free": 5}
    assert [profile["id"] for profile in answered[0]["mig_profiles"]] == [19, 9]
    assert answered[1]["mig_profiles"][0] == expected


def test_what_concerns_the_node_is_told(library: Library) -> None:
    standin = healthy(PAIR)
    standin["conf_compute"] = {"environment": 2, "cc_feature": 1, "multi_gpu_mode": 1, "gpus_ready": 1}
    standin["excluded_devices"] = [{"pci_bus_id": "00000000:9A:00.0", "uuid": "GPU-excluded"}]
    system = library.ask(standin).data["system"]
    assert system["fields"] == {
        "conf_compute.environment": "prod",
        "conf_compute.cc_feature": True,
        "conf_compute.multi_gpu_mode": "protected_pcie",
        "conf_compute.gpus_ready": True,
    }
    assert system["excluded"] == [{"pci_bus_id": "00000000:9A:00.0", "uuid": "GPU-excluded"}]


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_gpu_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with one GPU, to run the whole doctor on."""
    return make_root("t4-cloud-guest", tmp_path_factory.mktemp("one") / "root")


@pytest.mark.parametrize("code", sorted(set(nvml_errors.NAMES) - {nvml_errors.SUCCESS}))
def test_every_code_that_nvmlinit_can_give_is_named(
    code: int, one_gpu_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = healthy_nvml("t4-cloud-guest")
    standin["init"] = code
    with_nvml(one_gpu_root, monkeypatch, standin)
    report = live_report(one_gpu_root, "t4-cloud-guest", 10.0)
    (finding,) = report.result(ANSWERS).findings
    assert finding.status in (Status.FAIL, Status.UNKNOWN)
    asked = next(evidence for evidence in finding.evidence if evidence.where == "NVML nvmlInit")
    assert asked.shows == nvml_errors.describe(code)
    assert nvml_errors.NAMES[code] in asked.shows and nvml_errors.MEANINGS.get(code, "") in asked.shows


def live_report(root: Path, name: str, seconds: float) -> Report:
    """What the doctor says of NVML on a root directory."""
    selection = Selection(checks=(ANSWERS, QUERIES))
    return run(Live(Deadline(seconds), str(root)), config_of(node(name)), built_in(), selection, NOW)


def test_what_one_call_is_refused_stays_with_its_fields(library: Library) -> None:
    standin, expected = talkative(PAIR)
    gpus(standin)[0]["errors"] = {
        "nvmlDeviceGetSramEccErrorStatus": 4,
        "nvmlDeviceGetPowerUsage": 999,
        "nvmlDeviceGetMigMode": 3,
        "nvmlDeviceGetBAR1MemoryInfo": 1234,
    }
    gpus(standin)[0]["field_values"]["230"] = {"error": 16}
    answered = devices(library.ask(standin))
    fields = answered[0]["fields"]
    assert fields["ecc.sram_threshold_exceeded"] == {"error": 4}
    assert fields["power.draw_milliwatts"] == {"error": 999}
    assert (fields["mig.current"], fields["mig.pending"]) == (REFUSED, REFUSED)
    assert fields["bar1.total_bytes"] == {"error": 1234}
    assert fields["recovery_action"] == {"error": 16}
    refused = {name for name, value in fields.items() if isinstance(value, dict)}
    assert {name: fields[name] for name in fields if name not in refused} == {
        name: value for name, value in expected[0].items() if name not in refused
    }
    assert {name.split(".")[0] for name in refused} == {"ecc", "power", "mig", "bar1", "recovery_action"}
    assert answered[1]["fields"] == expected[1]


def test_a_lost_gpu_is_asked_no_further_and_the_next_one_is(library: Library) -> None:
    standin, expected = talkative(SIXTEEN[:3])
    gpus(standin)[0]["errors"] = {"nvmlDeviceGetTotalEccErrors": 15}
    gpus(standin)[1]["field_values"]["82"] = {"error": 15}
    first, second, third = devices(library.ask(standin))
    assert first["uuid"] == gpus(standin)[0]["uuid"]
    assert list(first["fields"])[-1] == "ecc.volatile.corrected"
    assert first["fields"]["ecc.volatile.corrected"] == LOST
    assert second["fields"]["temperature.memory_celsius"] == LOST
    assert "inforom.valid" not in second["fields"]
    assert "nvlinks" not in first and "processes" not in second
    assert third["fields"] == expected[2]


def test_a_gpu_lost_in_the_middle_of_a_list_has_no_list(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[0]["errors"] = {"nvmlDeviceGetNvLinkRemoteDeviceType": 15}
    lost, well = devices(library.ask(standin))
    assert "nvlinks" not in lost and "processes" not in lost
    assert len(well["nvlinks"]) == 18


OLDER_SHAPES = (
    "clocks_event.active",
    "clocks_event.supported",
    "memory.total_bytes",
    "memory.used_bytes",
    "memory.free_bytes",
    "affinity.cpus",
)
"""Fields that an older call gives where the documented one is missing."""

OF_THE_FABRIC = ("fabric.state", "fabric.status", "fabric.clique_id", "fabric.cluster_uuid")
"""Fields that R525's nvmlDeviceGetGpuFabricInfo gives."""


@pytest.mark.parametrize("branch", [390, 470, 525, 535])
def test_the_library_of_an_older_driver_answers_what_it_can(branch: int, library: Library) -> None:
    standin, expected = talkative(PAIR)
    gpus(standin)[0]["processes"] = {"compute": [{"pid": 4194303, "used_bytes": 1}]}
    missing = missing_in(branch)
    answer = library.ask(standin, leave_out=missing)
    older = OLDER_SHAPES + (OF_THE_FABRIC if branch >= 525 else ())
    too_old = {name for name, field in FIELDS.items() if symbol(field) in missing and name not in older}
    fields = devices(answer)[0]["fields"]
    assert {name for name, value in fields.items() if value == TOO_OLD} == too_old
    assert {name: fields[name] for name in fields if name not in too_old} == {
        name: value for name, value in expected[0].items() if name not in too_old
    }
    assert len(fields) == len(FIELDS)
    assert "notes" not in answer.data
    # R390 knows neither versioned list of processes; R470 knows the second.
    assert ("processes" in devices(answer)[0]) is (branch >= 470)
    assert ("cuda_driver_version" in answer.data) is (branch >= 470)


def symbol(field: NvmlField) -> str:
    """The C function behind a field."""
    return "nvmlDeviceGetFieldValues" if field.call.startswith("FI ") else field.call.partition("(")[0]


def test_older_structs_are_asked_for_when_the_newer_are_not_known(library: Library) -> None:
    standin, expected = talkative(PAIR)
    gpus(standin)[0]["fabric"]["newest"] = 2
    gpus(standin)[0]["platform"]["newest"] = 1
    gpus(standin)[0]["unrepairable_memory_versioned"] = 1
    gpus(standin)[0]["unrepairable_memory"] = 0
    fields = devices(library.ask(standin))[0]["fields"]
    assert fields == {**expected[0], "fabric.health_summary": TOO_OLD}


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("key", ["unrepairable_memory", "unrepairable_memory_versioned"])
def test_the_flag_of_unrepairable_memory_is_read_in_either_layout(key: Any, flag: int, library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[0][key] = flag
    assert devices(library.ask(standin))[0]["fields"]["ecc.unrepairable_memory"] is bool(flag)


def test_field_values_are_asked_one_by_one_when_the_batch_is_refused(library: Library) -> None:
    standin, expected = talkative(PAIR)
    gpus(standin)[0]["most_field_values"] = 1
    gpus(standin)[1]["errors"] = {"nvmlDeviceGetFieldValues": 999}
    one_by_one, refused = devices(library.ask(standin))
    assert one_by_one["fields"] == expected[0]
    by_id = [name for name, field in FIELDS.items() if field.call.startswith("FI ")]
    assert {name: refused["fields"][name] for name in by_id} == {name: {"error": 999} for name in by_id}


def test_a_field_value_that_nobody_filled_is_not_zero(library: Library) -> None:
    standin, _ = talkative(PAIR)
    gpus(standin)[0]["field_values"]["82"] = "untouched"
    fields = devices(library.ask(standin))[0]["fields"]
    assert "temperature.memory_celsius" not in fields
    assert len(fields) == len(FIELDS) - 1


def test_what_a_struct_calls_unsupported_or_unknown_is_no_value(library: Library) -> None:
    standin, _ = talkative(PAIR)
    device, other = gpus(standin)
    device["fabric"] = {"state": 2, "status": 999, "health_mask": 0, "health_summary": 0}
    device["performance_state"] = 32
    device["numa_node_id"] = -1
    device["licensable_features"] = [{"code": 3, "state": 0, "enabled": 0, "product": "vWS"}]
    other["fabric"] = {"state": 0}
    other["brand"], other["architecture"] = 77, 0xFFFFFFFF
    answered = devices(library.ask(standin))
    fields = answered[0]["fields"]
    unknown = ("performance_state", "affinity.memory_numa_node", "vgpu.product", "vgpu.licensed", "fabric.status")
    assert [fields[name] for name in unknown] == [REFUSED] * 5
    assert (fields["fabric.state"], fields["fabric.bandwidth"]) == ("in_progress", REFUSED)
    assert (answered[1]["fields"]["fabric.state"], answered[1]["fields"]["fabric.clique_id"]) == (
        "not_supported",
        REFUSED,
    )
    assert answered[1]["fields"]["brand"] == "unknown_77"
    assert answered[1]["fields"]["architecture"] == REFUSED


# What is garbage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "name"),
    [
        ({"hex": "fffe80"}, "\\xff\\xfe\\x80"),
        ({"hex": "4855004200"}, "HU"),
        ({"hex": "41" * 96}, "A" * 96),
        ({"hex": "ff" * 96}, "\\xff" * 96),
        ({"hex": "1b5b33316d1b5d303b7878"}, "\x1b[31m\x1b]0;xx"),
        ("GPU-é\u202e", "GPU-é\u202e"),
    ],
)
def test_strings_of_any_bytes_arrive_as_text(garbage: Text, name: str, library: Library) -> None:
    standin, expected = talkative(PAIR)
    device = gpus(standin)[0]
    device["name"] = device["uuid"] = garbage
    device["vbios_version"] = device["gsp_version"] = garbage
    answered = devices(library.ask(standin))
    assert (answered[0]["name"], answered[0]["uuid"]) == (name, name)
    assert name.startswith(answered[0]["fields"]["vbios_version"])
    assert name.startswith(answered[0]["fields"]["gsp.firmware_version"])
    assert answered[1]["fields"] == expected[1]


def test_garbage_in_structs_arrives_as_text(library: Library) -> None:
    standin, _ = talkative(PAIR)
    device = gpus(standin)[0]
    device["platform"]["chassis_serial"] = {"hex": "ff" * 16}
    device["licensable_features"][1]["product"] = {"hex": "80" * 128}
    fields = devices(library.ask(standin))[0]["fields"]
    assert fields["platform.chassis_serial"] == "\\xff" * 16
    assert fields["vgpu.product"] == "\\x80" * 128


def test_names_that_steer_a_terminal_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("t4-cloud-guest", tmp_path / "root")
    standin = healthy_nvml("t4-cloud-guest")
    gpus(standin)[0]["name"] = "\x1b[31mGPU\x07"
    with_nvml(root, monkeypatch, standin)
    command = [sys.executable, "-m", "gpudoctor", "run", "--root", str(root), "--verbose", "--color", "never"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert b"GPU" in done.stdout and b"\x1b" not in done.stdout and b"\x07" not in done.stdout, done.stderr


BINDING_OF_ITS_OWN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("real", {real!r})
real = importlib.util.module_from_spec(spec)
sys.modules["real"] = real
spec.loader.exec_module(real)
globals().update({{name: value for name, value in vars(real).items() if not name.startswith("__")}})

class Wrong:
    pass

def __getattr__(name):
    raise AttributeError(name)

def nvmlDeviceGetPowerUsage(handle):
    raise TypeError("one argument too many")

def nvmlDeviceGetUtilizationRates(handle):
    return Wrong()

def nvmlDeviceGetComputeMode(handle):
    return "default"

def nvmlDeviceGetName(handle):
    raise ValueError("no such name")

def nvmlDeviceGetNvLinkState(handle, link):
    raise IndexError("link")

class c_nvmlProcessInfo_t(real.c_nvmlProcessInfo_t):
    _fields_ = [("usedGpuCcProtectedMemory", real.c_ulonglong)]

class c_nvmlPlatformInfo_v1_t(real.c_nvmlPlatformInfo_v1_t):
    _fields_ = [("more", real.c_uint)]

del nvmlDeviceGetBrand, nvmlDeviceGetTemperatureV, c_nvmlGpuFabricInfo_v3_t, c_nvmlPlatformInfo_v2_t, nvmlMemory_v2
"""


def test_a_binding_that_is_older_or_wrong_costs_only_its_own_fields(library: Library, tmp_path: Path) -> None:
    """What it lacks is like a library that lacks it; what it gets wrong is left out and noted, once for all GPUs."""
    binding = tmp_path / "binding"
    binding.mkdir()
    found = importlib.util.find_spec("pynvml")
    assert found is not None
    (binding / "pynvml.py").write_text(BINDING_OF_ITS_OWN.format(real=found.origin))
    library.monkeypatch.syspath_prepend(str(binding))
    # One that was imported here already is found where it was.
    library.monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    standin, expected = talkative(PAIR)
    answer = library.ask(standin)
    fields = devices(answer)[0]["fields"]
    wrong = {
        "power.draw_milliwatts",
        "utilization.gpu_percent",
        "utilization.memory_percent",
        "compute_mode",
        "nvlink.active_links",
        *(name for name in FIELDS if name.startswith("platform.")),
    }
    too_old = {"brand": TOO_OLD, "fabric.health_summary": TOO_OLD, "memory.reserved_bytes": TOO_OLD}
    assert fields == {name: value for name, value in {**expected[0], **too_old}.items() if name not in wrong}
    assert "name" not in devices(answer)[0] and devices(answer)[0]["uuid"] == gpus(standin)[0]["uuid"]
    assert "nvlinks" not in devices(answer)[0] and "processes" not in devices(answer)[0]
    notes = answer.data["notes"]
    assert len(notes) == len(set(notes))
    for words in (
        "one argument too many",
        "'default' is no number",
        "no such name",
        "32 bytes, nvml.h 24",
        "48 bytes, nvml.h 44",
    ):
        assert sum(words in note for note in notes) == 1, (words, notes)


# What hangs and what crashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hang", "stopped_at", "answered"),
    [
        (Hang(call="nvmlInit", how="sleep"), "nvmlInit_v2()", 0),
        (
            Hang(call="nvmlDeviceGetHandleByPciBusId", index=2, how="sleep"),
            f"nvmlDeviceGetHandleByPciBusId_v2({SIXTEEN[2]})",
            2,
        ),
        (
            Hang(call="nvmlDeviceGetTemperatureThreshold", index=1, how="spin"),
            f"nvmlDeviceGetTemperatureThreshold({SIXTEEN[1]})",
            4,
        ),
        (
            Hang(call="nvmlDeviceGetNvLinkErrorCounter", index=3, how="sleep"),
            f"nvmlDeviceGetNvLinkErrorCounter({SIXTEEN[3]})",
            4,
        ),
    ],
    ids=["init", "a GPU's handle", "a detail", "a link"],
)
def test_a_call_that_hangs_is_named_and_costs_nothing_that_was_answered(
    hang: Hang, stopped_at: str, answered: int, library: Library
) -> None:
    standin = healthy(SIXTEEN[:4])
    standin["hang"] = hang
    answer = library.ask(standin, seconds=2.0)
    assert (answer.error, answer.stopped_at) == ({"why": "timed-out"}, stopped_at)
    found = answer.data.get("devices", [])
    assert [device["uuid"] for device in found] == [device["uuid"] for device in gpus(standin)[:answered]]
    if "TemperatureThreshold" in stopped_at:
        assert len(found[0]["fields"]) == len(FIELDS) - 1
        assert list(found[1]["fields"])[-1] == "temperature.tlimit_celsius"
        assert not any("fields" in device for device in found[2:])
    if "NvLink" in stopped_at:
        assert ["nvlinks" in device for device in found] == [True] * 3 + [False]
        assert all(len(device["fields"]) >= len(FIELDS) - 1 for device in found)


def test_a_shutdown_that_would_hang_is_not_waited_for(library: Library) -> None:
    standin = healthy(PAIR)
    standin["hang"] = Hang(call="nvmlShutdown", how="sleep")
    assert len(devices(library.ask(standin, seconds=5.0))) == 2


def test_a_gpu_that_hangs_in_a_detail_leaves_all_identities_passing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["hang"] = Hang(call="nvmlDeviceGetClockInfo", index=3, how="sleep")
    with_nvml(root, monkeypatch, standin)
    started = time.monotonic()
    report = live_report(root, "h100x8", 4.0)
    assert time.monotonic() - started < 5.0
    findings = report.result(ANSWERS).findings
    assert [f.status for f in findings if f.subject.kind == "gpu"] == [Status.PASS] * 8
    assert not [finding for finding in findings if finding.subject.kind != "gpu"]
    (stopped,) = (f for f in report.result(QUERIES).findings if f.subject.key == "0000:5d:00.0")
    assert stopped.status is Status.UNKNOWN
    assert "nvmlDeviceGetClockInfo(0000:5d:00.0)" in stopped.summary


@pytest.mark.parametrize(
    ("crash", "stopped_at", "error"),
    [
        (Crash(call="nvmlInit", signal="ABRT"), "nvmlInit_v2()", {"signal": "SIGABRT"}),
        (
            Crash(call="nvmlDeviceGetGpuFabricInfoV", index=1, signal="SEGV"),
            f"nvmlDeviceGetGpuFabricInfoV({SIXTEEN[1]})",
            {"signal": "SIGSEGV"},
        ),
        (
            Crash(call="nvmlDeviceGetComputeRunningProcesses_v3", index=1, signal="exit", status=3),
            f"nvmlDeviceGetComputeRunningProcesses_v3({SIXTEEN[1]})",
            {"exit": "exit status 3"},
        ),
        (
            Crash(call="nvmlDeviceGetTopologyCommonAncestor", signal="KILL"),
            f"nvmlDeviceGetTopologyCommonAncestor({SIXTEEN[0]}) to {SIXTEEN[1]}",
            {"signal": "SIGKILL"},
        ),
    ],
    ids=["init", "a detail", "a list", "a pair"],
)
def test_a_crash_is_told_with_what_was_answered_before(
    crash: Crash, stopped_at: str, error: Mapping[str, str], library: Library
) -> None:
    standin = healthy(PAIR)
    standin["crash"] = crash
    answer = library.ask(standin)
    assert answer.stopped_at == stopped_at
    assert answer.error == {"why": "crashed", **error}
    if "Init" not in stopped_at:
        found = answer.data["devices"]
        assert [device["uuid"] for device in found] == [device["uuid"] for device in gpus(standin)]
        assert len(found[0]["fields"]) >= len(FIELDS) - 1


# What it costs ------------------------------------------------------------------------------------------------------


def test_the_worker_imports_nothing_but_the_standard_library() -> None:
    """Besides the tables that are plain data; each import is paid in every run."""
    program = (
        "import sys; sys.path.append(sys.argv[1]); import gpudoctor.probes.nvml_asking; print(*sorted(sys.modules))"
    )
    package = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(package)], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    own = {name for name in done.stdout.split() if name.startswith("gpudoctor.")}
    assert loaded - set(sys.stdlib_module_names) <= {"gpudoctor", "__main__"}
    assert own >= {"gpudoctor.probes.nvml_lists", "gpudoctor.knowledge.nvml_words"}
    assert not any(name.startswith(("gpudoctor.facts", "gpudoctor.sources")) for name in own)
    assert loaded.isdisjoint({"dataclasses", "inspect", "pathlib", "subprocess", "asyncio"}), loaded
