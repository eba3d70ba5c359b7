"""Build the stand-in for libnvidia-ml.so.1 and write the JSON that drives it (README.md describes both)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from .node import NESTED, Crash, Device, Hang, Link, Memory, Model, Node, Slow

__all__ = ["BuildFailed", "Crash", "Device", "Hang", "Link", "Memory", "NoCompiler", "Node", "Slow", "build_nvml"]
__all__ += ["environment", "exported_calls", "find_compiler", "healthy", "write_node"]

SONAME = "libnvidia-ml.so.1"
NODE_VARIABLE = "GPUDOCTOR_STANDIN_NVML"
SOURCE = Path(__file__).with_name("libnvidia_ml.c")
PARTS = ("details.c", "lists.c")
"""What the source includes."""


class NoCompiler(Exception):
    """There is no C compiler here; tests turn it into a skip that says so."""


class BuildFailed(Exception):
    """The compiler is there and refused the source: a bug of the stand-in, never a skip."""


@cache
def exported_calls() -> frozenset[str]:
    """Names of the NVML functions in the C source."""
    definition = re.compile(r"^(?:EXPORT .*?\b|\s+X\()(nvml[A-Z]\w+)[(,]", re.MULTILINE)
    sources = (SOURCE, *(SOURCE.with_name(part) for part in PARTS))
    return frozenset(call for source in sources for call in definition.findall(source.read_text(encoding="utf-8")))


def find_compiler() -> str:
    """The path of a C compiler; raises NoCompiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("the NVML stand-in needs a C compiler: neither cc nor gcc is on PATH")
    return compiler


def build_nvml(directory: Path, leave_out: Sequence[str] = ()) -> Path:
    """Compile the stand-in to `directory`/libnvidia-ml.so.1 and return that path.

    Exactly the symbols in `leave_out` are not exported, like calls that an older driver lacks: leaving out
    `nvmlDeviceGetPciInfo_v3` keeps `nvmlDeviceGetPciInfo_v2`. Raises NoCompiler or BuildFailed.
    """
    _refuse_unknown(leave_out, exported_calls(), "no such call to leave out")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / SONAME
    library.unlink(missing_ok=True)
    library.write_bytes(_compiled(find_compiler(), tuple(leave_out)))
    library.chmod(0o755)
    return library


@cache
def _compiled(compiler: str, leave_out: tuple[str, ...]) -> bytes:
    """The library, compiled once in a test run."""
    with TemporaryDirectory() as place:
        library = Path(place) / SONAME
        flags = ["-std=c11", "-Wall", "-Wextra", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
        command = [compiler, *flags, f"-Wl,-soname,{SONAME}", "-o", str(library), str(SOURCE)]
        if leave_out:
            script = Path(place) / "leave-out.map"
            # In a version script a full name wins over a pattern.
            script.write_text("{ global: nvml*; local: " + "; ".join(leave_out) + "; *; };\n", encoding="ascii")
            command.append(f"-Wl,--version-script={script}")
        compiled = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if compiled.returncode != 0:
            raise BuildFailed(compiled.stderr)
        return library.read_bytes()


def environment(library: Path, node_file: Path) -> dict[str, str]:
    """This process's environment, made to load `library` and let it answer from `node_file`."""
    search = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(search), NODE_VARIABLE: str(node_file)}


def healthy(addresses: Sequence[str], driver: str = "550.163.01") -> Node:
    """An idle node of H100s behind NVSwitches, one at each PCI address, minors in order, the first half on NUMA node 0.

    An address is `0000:18:00.0`, as sysfs writes it; NVML's form with eight upper-case digits is made of it.
    """
    half = (len(addresses) + 1) // 2
    return {
        "driver_version": driver,
        "nvml_version": f"12.{driver}",
        "cuda_driver_version": 12040,
        "init": 0,
        "devices": [_healthy_device(index, address, index >= half) for index, address in enumerate(addresses)],
        # 40 is NODE, 50 is SYS.
        "topology": [
            [40 if (one < half) == (other < half) else 50 for other in range(len(addresses))]
            for one in range(len(addresses))
        ],
        "conf_compute": {"environment": 0, "cc_feature": 0, "dev_tools": 0, "multi_gpu_mode": 0, "gpus_ready": 0},
    }


def _healthy_device(index: int, address: str, second_half: bool) -> Device:
    domain, rest = address.split(":", 1)
    total = 81559 << 20
    return {
        "uuid": f"GPU-{0x5EED0000 + index:08x}-0000-4000-8000-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"{1650000000000 + index}",
        "pci_bus_id": f"{int(domain, 16):08X}:{rest.upper()}",
        "minor": index,
        **deepcopy(_H100),
        "module_id": index + 1,
        "memory": {"total": total, "reserved": 469 << 20, "free": total - (470 << 20), "used": 1 << 20},
        "nvlinks": [_switched_link(link) for link in range(18)],
        "cpus": [[48, 95], [144, 191]] if second_half else [[0, 47], [96, 143]],
        "numa_nodes": [[1, 1]] if second_half else [[0, 0]],
    }


def _switched_link(link: int) -> Link:
    """An NVLink 4 to one of four NVSwitches."""
    return {
        "active": 1,
        "version": 6,
        "remote_type": 2,
        "remote_bus_id": f"00000000:{0x05 + link % 4:02X}:00.0",
        "megabytes_per_second": 26562,
        "errors": [0, 0, 0, 0],
    }


_NO_MEMORY_ERRORS = {
    f"{error}.{counter}.{location}": 0 for error in (0, 1) for counter in (0, 1) for location in (2, 7)
}
_NO_SRAM_ERRORS: dict[str, int] = {"aggregateUncParity": 0, "volatileUncParity": 0, "aggregateUncBucketL2": 0}

_H100: Model = {
    "vbios_version": "96.00.A5.00.01",
    "board_part_number": "692-2G520-0200-000",
    "inforom_version": "G520.0200.00.05",
    "inforom_oem": "2.1",
    "inforom_ecc": "7.16",
    "inforom_valid": 1,
    "gsp_version": "550.163.01",
    "gsp_mode": [1, 1],
    "pci_device_id": 0x233010DE,
    "pci_subsystem_id": 0x16C110DE,
    "brand": 14,
    "board_id": 0x400,
    "multi_gpu_board": 0,
    "architecture": 9,
    "compute_capability": [9, 0],
    "persistence_mode": 1,
    "compute_mode": 0,
    "display_active": 0,
    "accounting_mode": 0,
    "addressing_mode": 0,
    "virtualization_mode": 0,
    "mig_mode": [0, 0],
    "ecc_mode": [1, 1],
    "total_ecc_errors": {"0.0": 0, "0.1": 0, "1.0": 0, "1.1": 0},
    "memory_errors": _NO_MEMORY_ERRORS,
    "sram_ecc": _NO_SRAM_ERRORS,
    "remapped_rows": [0, 0, 0, 0],
    "row_remapper_histogram": [2560, 0, 0, 0, 0],
    "temperatures": [33],
    "margin_temperature": 54,
    "performance_state": 0,
    "power_milliwatts": 70930,
    "power_limit_milliwatts": 700000,
    "enforced_power_limit_milliwatts": 700000,
    "default_power_limit_milliwatts": 700000,
    "power_limit_constraints": [200000, 700000],
    "clocks": [345, 345, 2619, 765],
    "max_clocks": [1980, 1980, 2619, 1545],
    "applications_clocks": [1980, None, 2619],
    "default_applications_clocks": [1980, None, 2619],
    "max_customer_boost_clocks": [1980],
    "clocks_event_reasons": 1,
    "supported_clocks_event_reasons": 0x1FF,
    "bar1": {"total": 131072 << 20, "free": 131071 << 20, "used": 1 << 20},
    "protected_memory": {"total": 0, "free": 0, "used": 0},
    "utilization": [0, 0],
    "encoder_utilization": [0, 0],
    "decoder_utilization": [0, 0],
    "max_pcie_link_generation": 5,
    "max_pcie_link_width": 16,
    "device_max_pcie_link_generation": 5,
    "pcie_link_generation": 5,
    "pcie_link_width": 16,
    "pcie_replays": 0,
    "c2c_enabled": 0,
    "fabric": {"state": 3, "status": 0, "clique_id": 0, "cluster_uuid": {"hex": "00" * 16}},
    "field_values": {
        **{str(field_id): 0 for field_id in (230, 74, 76, 269, 270, 271, 95, 169, *range(173, 183))},
        "226": {"error": 26},
        "227": {"error": 26},
        "82": 40,
        "185": 70930,
        "186": 70411,
        "193": -8,
        "194": -2,
        "195": {"value": 0, "type": 5},
        "196": {"value": 0, "type": 5},
    },
    "processes": {"compute": [], "graphics": [], "mps": []},
}
"""What nvidia-smi -q showed of an idle H100 of the field, in NVML's terms."""


def write_node(node: Node, path: Path) -> Path:
    """Write `node` where the stand-in reads it; a misspelt key or call raises ValueError instead of doing nothing."""
    _refuse_unknown(node, Node.__annotations__, "no such key of a node")
    for key, described in _described(node):
        _refuse_unknown(described, NESTED[key].__annotations__, f"no such key of {_words(key)}")
        _refuse_unknown(_calls(described), exported_calls() | {"handle"}, "no such call to fail")
    _refuse_unknown(_calls(node), exported_calls() | {"handle"}, "no such call to fail")
    _refuse_unknown(node.get("missing", []), exported_calls(), "no such call to miss")
    _refuse_unknown(node.get("before_init", []), exported_calls(), "no such call to answer before init")
    for fault in ("slow", "hang", "crash"):
        for rule in _objects(node.get(fault)):
            _refuse_unknown([str(rule.get("call"))], exported_calls(), f"no such call to {fault}")
    path.write_text(json.dumps(node, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def _described(described: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Every object whose keys are fixed, with the key it stands below."""
    for key, found in described.items():
        for each in _objects(found) if key in NESTED else ():
            yield key, each
            yield from _described(each)


def _calls(described: Mapping[str, object]) -> Iterable[str]:
    """The calls that are to fail; an NVLink's `errors` are counters."""
    errors = described.get("errors")
    return errors if isinstance(errors, Mapping) else ()


def _words(key: str) -> str:
    return "a device" if key == "devices" else key


def _objects(found: object) -> list[Mapping[str, object]]:
    """An object, or those of a list."""
    listed = found if isinstance(found, list) else [found]
    return [each for each in listed if isinstance(each, Mapping)]


def _refuse_unknown(names: Iterable[str], allowed: Iterable[str], problem: str) -> None:
    unknown = sorted(set(names) - set(allowed))
    if unknown:
        raise ValueError(f"{problem}: {', '.join(unknown)}")
