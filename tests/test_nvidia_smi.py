"""nvidia-smi's real outputs, all of the corpus: each is read, and what was read is what another reader reads.

The other reader stands here: ElementTree for XML, csv.DictReader for csv, lines split by their indentation for `-q`. It shares with
gpudoctor only the labels, and those are proved by pairs: two outputs of the same machine, of which one cannot know the other's labels.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.nvml import Nvml
from gpudoctor.knowledge.nvidia_smi_columns import COLUMNS
from gpudoctor.knowledge.nvidia_smi_elements import ELEMENTS
from gpudoctor.knowledge.nvidia_smi_labels import QUERY
from gpudoctor.knowledge.nvml_fields import FIELDS, Kind
from gpudoctor.knowledge.nvml_words import WORDS
from gpudoctor.sources.recorded import RecordedNode, Tree
from tests.conftest import SHARED

UNREAD = {"nvidia-smi-topo/uo-win-geforce-rtx-2080-super-591.86.txt": "only says that the option is not known there"}
COUNT = 141

Found = dict[tuple[int, str], Any]
"""Values by the number of the device and the field, `@` before what identifies it."""


# The corpus -----------------------------------------------------------------------------------------------------------


@cache
def captures(form: str = "") -> dict[str, str]:
    """The captures of a form by their path in the corpus."""
    places = sorted(path for path in (SHARED / "corpus").glob(f"nvidia-smi-{form or '*'}/*") if path.is_file())
    return {
        str(path.relative_to(SHARED / "corpus")): path.read_bytes().decode("utf-8", "backslashreplace")
        for path in places
    }


@cache
def data_of(path: str) -> dict[str, Any]:
    """The data of the answer in a capture."""
    answer = answer_from(None, captures()[path])
    assert answer is not None, path
    return answer.data


def devices_of(path: str) -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = data_of(path).get("devices", [])
    return devices


def told(path: str) -> Found:
    """What gpudoctor read in a capture."""
    identity = ("name", "uuid", "serial", "minor", "pci_bus_id")
    return {
        (number, name): value
        for number, device in enumerate(devices_of(path))
        for name, value in [
            *device.get("fields", {}).items(),
            *((f"@{name}", device[name]) for name in identity if name in device),
        ]
    }


def test_every_capture_is_read(corpus: Path) -> None:
    read = {path for path, text in captures().items() if answer_from(None, text) is not None}
    assert set(captures()) - read == set(UNREAD)
    assert len(captures()) >= COUNT


def test_every_answer_is_of_the_documented_form(corpus: Path) -> None:
    """Fields are known by name, of the right kind, and the fact takes the whole answer."""
    values = 0
    for path in captures():
        if path in UNREAD:
            continue
        node = RecordedNode(Tree())
        answer = answer_from(None, captures()[path])
        assert answer is not None
        node.answers["nvml"] = answer
        assert isinstance(Desk(node, Config()).get(Nvml), Nvml), path
        for device in devices_of(path):
            for name, value in device.get("fields", {}).items():
                assert type(value) in (_TYPES[FIELDS[name].kind], dict), (path, name, value)
                assert not isinstance(value, str) or name not in WORDS or value in WORDS[name].values(), (
                    path,
                    name,
                    value,
                )
                values += 1
    print(f"{values} fields of {len(captures())} captures have the kind that their name has")
    assert values >= 18_500


_TYPES = {Kind.NUMBER: int, Kind.FLAG: bool, Kind.TEXT: str, Kind.WORD: str}


# Another reader -------------------------------------------------------------------------------------------------------

_ERRORS = {
    "N/A": 3,
    "Not Supported": 3,
    "Unknown Error": 999,
    "Function Not Found": 13,
    "Insufficient Permissions": 4,
    "Requested functionality has been deprecated": 26,
}
_TRUE = ("Yes", "Enabled", "On", "Active", "True", "valid")
_FALSE = ("No", "Disabled", "Off", "Not Active", "False")
_SCALE = {"MiB": 1024 * 1024, "W": 1000, "us": 1000}
_WORDS = {"Ada Lovelace": "ada", "Pass-Through": "passthrough"}
_NOWHERE = object()


def reading(field: str, text: str) -> Any:
    """A value as this reader understands it, `_NOWHERE` where it says nothing."""
    text = text.strip().strip("[]")
    if text in _ERRORS:
        return {"error": _ERRORS[text]} if not field.startswith("@") else _NOWHERE
    if not text or field.startswith("@"):
        return (int(text) if field == "@minor" else text) if text else _NOWHERE
    if field == "fabric.status":
        return {"Success": 0}[text]
    kind = FIELDS[field].kind
    if kind is Kind.FLAG:
        return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text]
    if kind is Kind.WORD:
        return _WORDS.get(text, text.lower().replace(" ", "_"))
    return text if kind is Kind.TEXT else number_reading(field, text)


def number_reading(field: str, text: str) -> int:
    if field in ("pci.device_id", "pci.subsystem_id", "board_id") or text.startswith("0x"):
        return int(text, 16)
    number = re.search(r"-?[0-9.]+", text)
    assert number, (field, text)
    scale = next((factor for unit, factor in _SCALE.items() if text.endswith(f" {unit}")), 1)
    return round(float(number[0]) * scale)


def add(found: Found, number: int, field: str, text: str) -> None:
    """Of several labels of one field the first counts, unless it only says that it is not supported."""
    value = reading(field, text)
    if value is not _NOWHERE and found.get((number, field), {"error": 3}) == {"error": 3}:
        found[number, field] = value


def xml_reading(text: str) -> Found:
    """ElementTree looks each element up by its path."""
    found: Found = {}
    for number, gpu in enumerate(ElementTree.fromstring(text.encode()).findall("gpu")):  # noqa: S314 - files of the corpus
        found[number, "@pci_bus_id"] = gpu.attrib["id"]
        for path, field in ELEMENTS.items():
            if (said := gpu.find(path)) is not None:
                add(found, number, field, said.text or "")
        if (remapped := gpu.find("remapped_rows")) is not None and not len(remapped):
            assert remapped.text == "N/A"
            found.update({(number, f): {"error": 3} for f in FIELDS if f.startswith("row_remap.")})
        reasons = [e for e in gpu.iter() if "_reason_" in e.tag and e.tag.startswith("clocks_") and e.text != "N/A"]
        if reasons:
            found[number, "clocks_event.active"] = mask(
                re.sub(r"clocks_\w+?_reason_", "", e.tag) for e in reasons if e.text == "Active"
            )
        sums(found, number)
    return found


_BITS = ("idle", "applications", "sw_power", "hw_slow", "sync", "sw_therm", "hw_therm", "hw_power", "display")


def mask(active: Iterator[str]) -> int:
    """The bits of nvml.h in their order, by how the reasons' names begin."""
    return sum(
        1 << n for name in active for n, begin in enumerate(_BITS) if name.removeprefix("gpu_").startswith(begin)
    )


def sums(found: Found, number: int) -> None:
    for span in ("volatile", "aggregate"):
        name = f"ecc.{span}.sram.uncorrected"
        parity, secded = (found.get((number, f"{name}_{kind}")) for kind in ("parity", "secded"))
        if (number, name) not in found and parity is not None and secded is not None:
            found[number, name] = parity if isinstance(parity, dict) else parity + secded


def query_lines(text: str) -> Iterator[tuple[int, list[str], str]]:
    """Number of the GPU, labels from the outermost inwards, value: from the blanks before and the first colon alone."""
    number, labels = -1, [""] * 8
    for line in re.split(r"^/\S*/nvidia-smi ", text, maxsplit=1, flags=re.MULTILINE)[0].splitlines():
        if re.match(r"GPU 0", line):
            number += 1
        elif line.strip() and not line.startswith("==="):
            level = (len(line) - len(line.lstrip(" "))) // 4
            name, _, value = line.partition(":")
            labels[level] = name.strip()
            yield number, labels[: level + 1], value.strip()


def query_reading(text: str) -> Found:
    found: Found = {}
    active: dict[int, list[str]] = {}
    for number, (_, *labels), value in query_lines(text):
        path = "/".join(labels).lower()
        if number < 0 or not labels:
            continue
        if path in QUERY and value:
            add(found, number, QUERY[path], value)
        if labels[0].endswith("Reasons") and len(labels) > 1 and value:
            active.setdefault(number, []).extend([labels[-1].lower().replace(" ", "_")] if value == "Active" else [])
        if (path, value) == ("remapped rows", "N/A"):
            found.update({(number, f): {"error": 3} for f in QUERY.values() if f.startswith("row_remap.")})
        if path.startswith("clocks ") and path.endswith(" reasons") and value == "N/A":
            found[number, "clocks_event.active"] = {"error": 3}
    found.update({(number, "clocks_event.active"): mask(iter(names)) for number, names in active.items()})
    for number in range(1 + max((number for number, _ in found), default=-1)):
        sums(found, number)
    headings = re.findall(r"^GPU (\S+)\r?$", text, re.MULTILINE)
    headings += re.findall(r"device handle for GPU(\S+): ", text)[:1]
    return {**found, **{(number, "@pci_bus_id"): bus_id for number, bus_id in enumerate(headings)}}


def csv_reading(text: str) -> Found:
    found: Found = {}
    for number, row in enumerate(csv.DictReader(text.splitlines(), skipinitialspace=True)):
        for column, field in COLUMNS.items():
            for name in (name for name in row if name.partition(" [")[0] == column):
                add(found, number, field, row[name])
    return {key: value for key, value in found.items() if key[1] != "@index"}


@pytest.mark.parametrize(
    ("form", "read", "floor"), [("xml", xml_reading, 5_800), ("q", query_reading, 10_000), ("csv", csv_reading, 1_700)]
)
def test_values_are_those_that_another_reader_reads(form: str, read: Any, floor: int, corpus: Path) -> None:
    compared = 0
    for path, text in captures(form).items():
        if form == "csv" and not re.search("(idle|load)[.]csv$", path):
            continue
        expected = read(text)
        # A bug report puts the links, of `nvidia-smi nvlink`, behind `-q`.
        found = {key: value for key, value in told(path).items() if key[1] != "nvlink.active_links"}
        assert found == expected, path
        compared += len(expected)
    print(f"{compared} values of {form} compared with another reader's")
    assert compared >= floor


def test_heads_processes_and_instances_are_those_that_another_reader_reads(corpus: Path) -> None:
    compared = 0
    for path, text in captures("xml").items():
        root = ElementTree.fromstring(text.encode())  # noqa: S314 - files of the corpus
        data = data_of(path)
        assert data.get("driver_version") == root.findtext("driver_version")
        assert data.get("count") == (int(root.findtext("attached_gpus") or 0) or None)
        for gpu, device in zip(root.findall("gpu"), devices_of(path), strict=True):
            pids = [int(pid.text or 0) for pid in gpu.iterfind("processes/process_info/pid")]
            assert [process["pid"] for process in device.get("processes", ())] == pids, path
            instances = [int(index.text or 0) for index in gpu.iterfind("mig_devices/mig_device/gpu_instance_id")]
            assert [mig["gpu_instance_id"] for mig in device.get("mig_devices", ())] == instances
            compared += len(pids) + len(instances) + 2
    for path, text in captures("q").items():
        lines = list(query_lines(text))
        pids = [int(value) for number, labels, value in lines if labels[-1] == "Process ID"]
        assert [process["pid"] for device in devices_of(path) for process in device.get("processes", ())] == pids
        used = [value for _, labels, value in lines if labels[-1] == "Used GPU Memory" and "MiB" in value]
        assert used == [
            f"{process['used_bytes'] >> 20} MiB"
            for device in devices_of(path)
            for process in device.get("processes", ())
            if "used_bytes" in process
        ]
        sizes = [
            value
            for _, labels, value in lines
            if labels[1:2] == ["MIG Device"] and labels[-2:] == ["Shared FB Memory Usage", "Total"]
        ]
        assert sizes == [
            f"{mig['memory_bytes'] >> 20} MiB" for device in devices_of(path) for mig in device.get("mig_devices", ())
        ]
        compared += len(pids) + len(used) + len(sizes)
    print(f"{compared} heads, processes and instances compared")
    assert compared >= 300


_FIRST = re.compile(
    r"^\| +(\d+)  (\S.*?) +(On|Off|N/A|WDDM) +\| +([0-9A-F]{8}:\S+) +(On|Off|N/A) \| +(\S+) \|", re.MULTILINE
)
_SECOND = re.compile(
    r"^\| *(\d+%|N/A) +(\d+)C +P(\d+) +(\d+W|N/A) / +(\d+W|N/A) \| +(\d+)MiB / +(\d+)MiB \| +(\d+%|N/A) +(\S.*?) \|",
    re.MULTILINE,
)
_PROCESS = re.compile(
    r"^\| +(\d+) +(?:(?:N/A|\d+) +(?:N/A|\d+) +)?(\d+) +(C|G|C\+G) +(\S.*?) +(\d+MiB|N/A) +\|", re.MULTILINE
)


def test_tables_are_those_that_another_reader_reads(corpus: Path) -> None:
    """All tables, also those of machines without another output: two expressions over the whole text."""
    compared = 0
    for path, text in captures("table").items():
        first, second = _FIRST.findall(text), _SECOND.findall(text)
        assert len(first) == len(second) == len(devices_of(path)) == data_of(path)["count"] > 0, path
        for device, one, two in zip(devices_of(path), first, second, strict=True):
            fields = device["fields"]
            assert (str(device["index"]), device["name"], device["pci_bus_id"]) == (one[0], one[1], one[3])
            said = {
                "persistence_mode": {"On": True, "Off": False}.get(one[2]),
                "display_active": {"On": True, "Off": False}.get(one[4], {"error": 3}),
                "temperature.gpu_celsius": int(two[1]),
                "performance_state": int(two[2]),
                "memory.used_bytes": int(two[5]) << 20,
                "memory.total_bytes": int(two[6]) << 20,
                "compute_mode": two[8].lower(),
                "fan_percent": _number_or_none(two[0], 1),
                "power.draw_milliwatts": _number_or_none(two[3], 1000),
                "power.enforced_limit_milliwatts": _number_or_none(two[4], 1000),
                "utilization.gpu_percent": _number_or_none(two[7], 1),
                "ecc.volatile.uncorrected": _number_or_none(one[5], 1),
            }
            assert {name: fields.get(name) for name in said} == said, path
            compared += 3 + len(said)
        rows = [(int(gpu), int(pid), name) for gpu, pid, _, name, _ in _PROCESS.findall(text)]
        found = [
            (device["index"], process["pid"], process["name"])
            for device in devices_of(path)
            for process in device.get("processes", ())
        ]
        assert found == rows, path
        compared += 3 * len(rows)
    print(f"{compared} cells of tables compared with another reader's")
    assert compared >= 1_750


def _number_or_none(text: str, scale: int) -> Any:
    digits = re.match(r"\d+", text)
    return int(digits[0]) * scale if digits else {"error": 3}


def test_links_are_those_that_another_reader_reads(corpus: Path) -> None:
    links = 0
    for path, text in captures("nvlink").items():
        for block, device in zip(text.split("GPU ")[1:], devices_of(path), strict=True):
            speeds = [round(float(speed) * 1000) for speed in re.findall(r"Link \d+: (\S+) GB/s", block)]
            assert [link["megabytes_per_second"] for link in device.get("nvlinks", ())] == speeds
            assert f"(UUID: {device['uuid']})" in block
            links += len(speeds)
    print(f"{links} links compared")
    assert links >= 120


# No label is lost -----------------------------------------------------------------------------------------------------

# What NVML's answer has no place for, because no check of health, fabric, sharing or topology could ask for it.
IGNORED_LABELS = """
display mode|display attached|accounting mode buffer size|driver model/.*|gpu pdi|gpu part number|fru part number
platform info/gpu fabric guid|inforom bbx object flush/.*|inforom time data/.*|gpu operation mode/.*
gpu virtualization mode/vgpu heterogeneous mode|ibmnpu/.*|pci/(bus|device|domain|base classcode|sub classcode|bus id)
pci/gpu link info/pcie generation/(device current|host max)|pci/bridge chip/.*|pci/(tx|rx) throughput|pci/atomic caps (in|out)bound
sparse operation mode|utilization/(jpeg|ofa)|encoder stats/.*|fbc stats/.*|dram encryption mode/.*
ecc errors/(volatile|aggregate)/(single|double) bit/texture shared|ecc errors/(volatile|aggregate)/single bit/cbu
temperature/gpu target temperature( specification)?|power readings/power management|gpu memory power readings/instantaneous power draw
gpu power readings/gpu base power/.*|power smoothing|workload power profiles/.*|edpp multiplier|deferred clocks/memory
clock policy/.*|voltage/graphics|capabilities/egm
mig device/device attributes/shared/(copy engine|encoder|decoder|ofa|jpg) count
mig device/shared fb memory usage/(reserved|free)|mig device/shared bar1 memory/.*
"""
IGNORED_ELEMENTS = """
display_mode|display_attached|accounting_mode_buffer_size|driver_model/.*|pdi|gpu_part_number|gpu_fru_part_number
platformInfo/gpu_fabric_guid|inforom_bbx_flush/.*|gpu_operation_mode/.*|gpu_virtualization_mode/vgpu_heterogeneous_mode|ibmnpu/.*
pci/pci_(bus|device|domain|base_class|sub_class|bus_id)|pci/pci_gpu_link_info/pcie_gen/(device_current_link_gen|max_host_link_gen)
pci/pci_bridge_chip/.*|pci/(tx|rx)_util|pci/atomic_caps_(in|out)bound|sparse_operation_mode|utilization/(jpeg|ofa)_util
encoder_stats/.*|fbc_stats/.*|dram_encryption_mode/.*|ecc_errors/(volatile|aggregate)/(single|double)_bit/texture_shm
ecc_errors/(volatile|aggregate)/single_bit/cbu|retired_pages/.*/retired_pagelist(/.*)?|temperature/gpu_target_temperature
supported_gpu_target_temp/.*|(gpu_|module_)?power_readings/power_state|power_readings/power_management
gpu_memory_power_readings/instant_power_draw|power_smoothing|power_profiles/.*|edpp_multiplier|deferred_clocks/mem_clock
clock_policy/.*|voltage/graphics_volt|capabilities/egm|accounted_processes|supported_clocks(/.*)?
mig_devices|mig_devices/mig_device/device_attributes/shared/(copy_engine|encoder|decoder|ofa|jpg)_count
mig_devices/mig_device/fb_memory_usage/(reserved|free)|mig_devices/mig_device/bar1_memory_usage/.*
"""
IGNORED_COLUMNS = r"""
timestamp|vgpu_(driver|device)_capability\..*|pci\.(domain|bus|device|baseClass|subClass)|pcie\.link\.gen\.(gpucurrent|hostmax)
display_(mode|attached)|accounting\.buffer_size|driver_model\..*|gom\..*|utilization\.(jpeg|ofa)|encoder\.stats\..*
dramEncryption\..*|ecc\.errors\.corrected\..*\.cbu|power\.management|gpu\.base\..*|power_smoothing\..*|edpp_multiplier
gsp\.mode\.default|platform\.gpu_fabric_guid|hostname|bbx\.time_run
"""
# Read, though not by a table of fields.
READ_LABELS = r"""
timestamp|(driver|kmd|cuda|cuda umd) version|attached gpus|clocks (event|throttle) reasons(/.*)?|remapped rows|processes(/.*)?
mig device/(index|(gpu|compute) instance id|device attributes/shared/multiprocessor count)
mig device/ecc errors/volatile/sram uncorrectable|mig device/shared fb memory usage/(total|used)
"""
READ_ELEMENTS = r"""
clocks_(event|throttle)_reasons(/.*)?|remapped_rows|processes(/.*)?|mig_devices/mig_device/(index|(gpu|compute)_instance_id)
mig_devices/mig_device/(device_attributes/shared/multiprocessor_count|ecc_error_count/volatile_count/sram_uncorrectable)
mig_devices/mig_device/fb_memory_usage/(total|used)
"""
READ_COLUMNS = r"clocks_(event|throttle)_reasons\..*|driver_version|kmd_version|count"


def labels_of(form: str) -> Counter[str]:
    """How often each label stands in the captures of a form."""
    counted: Counter[str] = Counter()
    for path, text in captures(form).items():
        if form == "q" and "Attached GPUs" in text:
            told_of = (labels[1 if number >= 0 else 0 :] for number, labels, value in query_lines(text) if value)
            counted.update("/".join(labels).lower() for labels in told_of)
        elif form == "xml":
            for gpu in ElementTree.fromstring(text.encode()).findall("gpu"):  # noqa: S314 - files of the corpus
                counted.update(_leaves(gpu, ""))
        elif form == "csv" and re.search("(idle|load)[.]csv$", path):
            counted.update(name.strip().partition(" [")[0] for name in text.splitlines()[0].split(","))
    return counted


def _leaves(element: "ElementTree.Element", path: str) -> Iterator[str]:
    for child in element:
        below = f"{path}/{child.tag}".removeprefix("/")
        yield from _leaves(child, below) if len(child) else [below]


def _form(lines: str) -> "re.Pattern[str]":
    return re.compile("|".join(f"(?:{line})" for line in lines.strip().splitlines()))


@pytest.mark.parametrize(
    ("form", "table", "read", "ignored", "floor"),
    [
        ("q", QUERY, READ_LABELS, IGNORED_LABELS, 15_000),
        ("xml", ELEMENTS, READ_ELEMENTS, IGNORED_ELEMENTS, 20_000),
        ("csv", COLUMNS, READ_COLUMNS, IGNORED_COLUMNS, 2_500),
    ],
)
def test_no_label_is_lost(form: str, table: dict[str, str], read: str, ignored: str, floor: int, corpus: Path) -> None:
    """Each label stands in a table, is read in another way, or is ignored on purpose; nothing is on the list for nothing."""
    counted = labels_of(form)
    unknown = {label for label in counted if label not in table and not _form(read).fullmatch(label)}
    assert {label for label in unknown if not _form(ignored).fullmatch(label)} == set()
    left_out = sum(counted[label] for label in unknown)
    print(
        f"{form}: {len(counted)} labels stand {counted.total()} times, {len(unknown)} are ignored on purpose, {left_out} times"
    )
    assert counted.total() >= floor
    for line in ignored.strip().splitlines():
        assert any(re.fullmatch(line, label) for label in unknown), line


# Pairs of the same machine --------------------------------------------------------------------------------------------

# What may differ between two questions, and by how much: of what the larger of both is, and in any case.
_VARYING = {
    r"temperature\.(gpu|memory|tlimit)_celsius": (0, 4),
    r"power\.(draw|average|instant|memory\.average)_milliwatts": (0.5, 20_000),
    r"clocks\.(graphics|sm|memory|video)_mhz": (1, 0),
    r"utilization\..*": (1, 100),
    r"memory\.(used|free|total)_bytes": (0.02, 300 << 20),
    r"fan_percent": (0, 100),
    r"performance_state": (0, 8),
    r"pcie\.(generation|width)": (0, 16),
    r"clocks_event\.active": (0, 511),
    r"clocks_event\..*_nanoseconds": (1, 0),
}
# A board that lies in no chassis of a rack: the query of single values prints NVML's zeros, `-q` says N/A.
_TOLD_APART = re.compile(r"platform\..*")


def agree(field: str, one: Any, other: Any) -> bool:
    for pattern, (share, least) in _VARYING.items():
        if re.fullmatch(pattern, field) and isinstance(one, int) and isinstance(other, int):
            return abs(one - other) <= max(least, share * max(abs(one), abs(other)))
    return bool(one == other)


def compare(one: Found, other: Found, where: str) -> Counter[str]:
    """How often each field was compared; those that only one of the two can tell are left out."""
    compared: Counter[str] = Counter()
    for key in one.keys() & other.keys():
        if _TOLD_APART.fullmatch(key[1]) and {"error": 3} in (one[key], other[key]):
            continue
        assert agree(key[1], one[key], other[key]), (where, key, one[key], other[key])
        compared[key[1]] += 1
    return compared


def test_query_and_csv_of_one_machine_agree(corpus: Path) -> None:
    compared: Counter[str] = Counter()
    pairs = 0
    for path in captures("csv"):
        if (name := re.search(r"nvidia-smi-csv/(uo-.*-(?:idle|load))\.csv", path)) is None:
            continue
        query = told(f"nvidia-smi-q/{name[1]}.txt")
        csv_values = told(path)
        # A MIG-enabled GPU's remapped rows: `-q` says N/A of the whole section, the single histogram is answered.
        remapped = {
            key for key in csv_values if key[1].startswith("row_remap.histogram") and query.get(key) == {"error": 3}
        }
        compared += compare(query, {key: value for key, value in csv_values.items() if key not in remapped}, path)
        pairs += 1
    print(f"{compared.total()} values of {len(compared)} fields compared in {pairs} pairs of -q and csv")
    assert (pairs, compared.total() >= 1_200, len(compared) >= 110) == (12, True, True)


def _rounded(found: Found) -> Found:
    """What the table shows of an answer: whole watts, no aggregate counts; the name as far as there is room."""
    return {
        key: value // 1000 * 1000 if key[1].startswith("power.") and isinstance(value, int) else value
        for key, value in found.items()
        if key[1] not in ("@name", "ecc.volatile.uncorrected")
    }


def test_table_and_query_of_one_machine_agree(corpus: Path) -> None:
    compared: Counter[str] = Counter()
    pairs = 0
    for path in captures("table"):
        query = path.replace("-table/", "-q/")
        if query not in captures("q"):
            continue
        one, other = told(path), told(query)
        compared += compare(_rounded(one), _rounded(other), path)
        for key in (key for key in one if key[1] == "@name"):
            assert str(other[key]).startswith(str(one[key]).removesuffix("..."))
        assert data_of(path)["driver_version"] == data_of(query)["driver_version"]
        assert data_of(path)["cuda_driver_version"] == data_of(query)["cuda_driver_version"]
        assert data_of(path)["count"] == data_of(query)["count"]
        for listed, asked in zip(devices_of(path), devices_of(query), strict=True):
            assert [p["pid"] for p in listed.get("processes", ())] == [p["pid"] for p in asked.get("processes", ())]
            assert _without(listed.get("mig_devices", ())) == _without(asked.get("mig_devices", ()))
        pairs += 1
    print(f"{compared.total()} values of {len(compared)} fields compared in {pairs} pairs of -q and table")
    assert (pairs, compared.total() >= 700, len(compared) >= 12) == (23, True, True)


def _without(migs: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in mig.items() if key != "used_bytes"} for mig in migs]


def test_lists_links_versions_and_samples_agree_with_the_query_of_their_machine(corpus: Path) -> None:
    compared = 0
    for path in (*captures("L"), *captures("nvlink"), *captures("version"), *captures("csv")):
        name = re.search(r"/(uo-[^/]*?)(-dmon-load|-retired-pages)?\.\w+$", path)
        if name is None or path in UNREAD:
            continue
        query = f"nvidia-smi-q/{name[1]}{'-load' if name[2] == '-dmon-load' else '-idle'}.txt"
        if query not in captures("q"):
            continue
        one, other = told(path), told(query)
        compared += compare(one, other, path).total()
        if "driver_version" in data_of(path):
            assert data_of(path)["driver_version"] == data_of(query)["driver_version"]
            assert data_of(path)["cuda_driver_version"] == data_of(query)["cuda_driver_version"]
            compared += 2
        for listed, asked in zip(devices_of(path), devices_of(query), strict=False):
            assert len(listed.get("mig_devices", ())) in (0, len(asked.get("mig_devices", ())))
    print(f"{compared} values of -L, nvlink, --version, dmon and retired pages compared with -q")
    assert compared >= 70


def test_elements_come_in_the_order_of_the_labels(corpus: Path) -> None:
    """No machine has both XML and text here; but nvidia-smi prints both in one order, so that no two fields can be mistaken."""
    labels = {path: _query_order(text) for path, text in captures("q").items()}
    compared = 0
    for path, text in captures("xml").items():
        gpu = ElementTree.fromstring(text.encode()).find("gpu")  # noqa: S314 - files of the corpus
        assert gpu is not None
        order = list(dict.fromkeys(ELEMENTS[leaf] for leaf in _leaves(gpu, "") if leaf in ELEMENTS))
        if len(order) < 70:
            continue
        common = max(len(set(order) & set(other)) for other in labels.values() if _in_order(order, other))
        assert common >= 70 and common >= len(order) - 6, path
        compared += common
    print(f"{compared} elements stand in the order of labels")
    assert compared >= 1_500


def _query_order(text: str) -> list[str]:
    paths = ("/".join(labels[1:]).lower() for number, labels, value in query_lines(text) if number == 0 and value)
    return list(dict.fromkeys(QUERY[path] for path in paths if path in QUERY))


def _in_order(one: list[str], other: list[str]) -> bool:
    return [name for name in one if name in other] == [name for name in other if name in one]


# What the MANIFEST calls sick, degraded or odd ------------------------------------------------------------------------


def field(path: str, number: int, name: str) -> Any:
    return devices_of(path)[number]["fields"][name]


def test_a_pending_row_remap_is_in_the_answer(corpus: Path) -> None:
    path = "nvidia-smi-q/gls-A100SXMx4.txt"
    pending = [device["fields"]["row_remap.pending"] for device in devices_of(path)]
    corrected = [device["fields"]["row_remap.corrected"] for device in devices_of(path)]
    assert (pending.count(True), corrected[pending.index(True)]) == (1, 1)


def test_retired_pages_are_in_the_answer(corpus: Path) -> None:
    path = "nvidia-smi-q/azure-nhc-retired-pages-bad.txt"
    counts = [
        (
            d["fields"]["retired_pages.single_bit"],
            d["fields"]["retired_pages.double_bit"],
            d["fields"]["retired_pages.pending"],
        )
        for d in devices_of(path)
    ]
    assert counts == [
        (60, 5, False), (2, 61, True), (0, 0, False), (6, 0, True), (0, 0, False), (20, 45, True), (0, 0, False), (8, 56, True),
    ]  # fmt: skip
    good = devices_of("nvidia-smi-q/azure-nhc-retired-pages-orig.txt")
    assert {tuple(d["fields"].values()) for d in good} == {(0, 0, False)}


def test_a_corrupted_inforom_is_that_of_its_gpu(corpus: Path) -> None:
    devices = devices_of("nvidia-smi-table/azdiag-nvidia-smi-inforom.txt")
    assert [d["pci_bus_id"] for d in devices if d["fields"].get("inforom.valid") is False] == ["00000008:00:00.0"]
    assert len(devices) == 8


def test_links_that_are_all_inactive_are_none(corpus: Path) -> None:
    (bad,), (good,) = (devices_of(f"nvidia-smi-nvlink/azure-nhc-nvlink-{word}.txt") for word in ("bad", "good"))
    assert (bad["index"], bad["fields"]["nvlink.active_links"], bad.get("nvlinks")) == (6, 0, None)
    assert (good["index"], good["fields"]["nvlink.active_links"]) == (7, 12)
    assert {link["megabytes_per_second"] for link in good["nvlinks"]} == {25_000}


def test_counters_and_links_that_the_manifest_names(corpus: Path) -> None:
    riser = devices_of("nvidia-smi-xml/a0s-gtx1080x2-riser.xml")
    assert {(d["fields"]["pcie.width"], d["fields"]["pcie.max_width"]) for d in riser} == {(1, 16)}
    assert 65_535 in [d["fields"]["pcie.replays"] for d in riser]
    assert any(d["fields"]["clocks_event.active"] & 4 for d in riser)
    replays = [d["fields"]["pcie.replays"] for d in devices_of("nvidia-smi-xml/k8stestinfra-hw-h100.xml")]
    assert (min(replays), max(replays)) == (106, 174)
    assert field("nvidia-smi-xml/k8stestinfra-hw-t4.xml", 0, "ecc.aggregate.dram.corrected") == 1
    h100 = [d["fields"]["pcie.replays"] for d in devices_of("nvidia-smi-q/gls-H100SXMx8.txt")]
    assert min(count for count in h100 if count) >= 4 and sum(count > 0 for count in h100) == 3
    narrow = devices_of("nvidia-smi-q/gls-RTX4060Ti.txt")
    assert [(d["fields"]["pcie.width"], d["fields"]["pcie.max_width"]) for d in narrow] == [(4, 8), (8, 8)]
    assert len(devices_of("nvidia-smi-xml/telegraf-a100-sxm4-v12.xml")[0]["mig_devices"]) == 4
    b200 = devices_of("nvidia-smi-xml/k8stestinfra-hw-b200.xml")
    assert {d["fields"]["fabric.state"] for d in b200} == {"completed"} and len(b200) == 8


def test_failures_are_what_the_manifest_says(corpus: Path) -> None:
    for name, code in (
        ("2x2080ti-driver-missing-after-kernel", 9),
        ("a5000-nouveau-no-module", 9),
        ("nvs5200m-2013-not-loaded", 9),
        ("p3200-mismatch-no-nvml", 12),
    ):
        assert data_of(f"nvidia-smi-q/br-{name}.txt")["init"] == code
    assert data_of("nvidia-smi-q/br-5080-gsp-timeouts.txt")["count"] == 0
    for name, bus_id in (("3x4070-xid79-two-lost", "0000:0F:00.0"), ("3xa6000-one-lost", "0000:68:00.0")):
        (lost,) = devices_of(f"nvidia-smi-q/br-{name}.txt")
        assert (lost["pci_bus_id"], lost["error"]["code"]) == (bus_id, 999)
        assert data_of(f"nvidia-smi-q/br-{name}.txt")["driver_version"].startswith("535.")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("issue-excerpts/device-handle-lost-reboot.err", ("0000:02:00.0", 15)),
        ("issue-excerpts/device-handle-new-format.err", ("0000:17:00.0", 999)),
        ("issue-excerpts/device-handle-domain-bad-bdf.err", (None, 999)),
        ("issue-excerpts/pod-unexpectedadmission-gpu-lost.txt", ("0000:C1:00.0", 15)),
    ],
)
def test_quoted_errors_are_told(path: str, error: tuple[str | None, int], corpus: Path) -> None:
    answer = answer_from(None, (corpus / path).read_text())
    assert answer is not None
    (device,) = answer.data["devices"]
    assert (device.get("pci_bus_id"), device["error"]["code"]) == error


def test_quoted_sections_and_matrices_are_read(corpus: Path) -> None:
    excerpts = corpus / "issue-excerpts"
    links = answer_from(None, (excerpts / "nvlink-s-v100-two-inactive.txt").read_text())
    assert links is not None and links.data["devices"][0]["fields"]["nvlink.active_links"] == 4
    profiles = answer_from(None, (excerpts / "mig-lgip-b200-early.txt").read_text())
    assert profiles is not None and profiles.data["devices"][0]["mig_profiles"][0]["free"] == 7
    pairs = 0
    for place in sorted(excerpts.glob("topo-m-*.txt")):
        answer = answer_from(None, place.read_text())
        rows = re.findall(r"^(GPU\d+|NIC\d+|mlx\S+)\s+(.*)$", place.read_text(), re.MULTILINE)
        columns = place.read_text().splitlines()[0].partition("CPU Affinity")[0].split()
        if "CPU Affinity" not in place.read_text():
            # Two were pasted without their heading; both are of eight GPUs.
            columns = [f"GPU{index}" for index in range(8)]
        assert answer is not None
        topology = {frozenset((p["from"], p["to"])): p["path"] for p in answer.data["system"]["topology"]}
        for name, cells in rows:
            for other, path in zip(columns, cells.split(), strict=False):
                if path != "X":
                    assert topology[frozenset((name, other))] == path, (place.name, name, other)
                    pairs += 1
    print(f"{pairs} cells of quoted matrices compared")
    assert pairs >= 200


def test_matrices_are_read_cell_by_cell(corpus: Path) -> None:
    cells = 0
    for path, text in captures("topo").items():
        if path in UNREAD:
            continue
        plain = re.sub("\x1b\\[\\d*m", "", text)
        header = next(line for line in plain.splitlines() if "CPU Affinity" in line)
        columns = header.partition("CPU Affinity")[0].split()
        pairs = data_of(path).get("system", {}).get("topology", [])
        topology = {frozenset((pair["from"], pair["to"])): pair["path"] for pair in pairs}
        assert len(pairs) == len(topology) == len(columns) * (len(columns) - 1) // 2, path
        for row in re.findall(r"^((?:GPU|NIC)\d+\s.*)$", plain, re.MULTILINE):
            if "CPU Affinity" in row:
                continue
            name, *said = row.split()
            for other, link in zip(columns, said, strict=False):
                assert name == other or topology[frozenset((name, other))] == link
                cells += 1
        nics = dict(re.findall(r"^\s*(NIC\d+): (\S+)$", plain, re.MULTILINE))
        assert data_of(path).get("system", {}).get("nics", {}) == nics
    print(f"{cells} cells of matrices compared")
    assert cells >= 400
