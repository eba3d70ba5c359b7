"""Build the stand-in for libnvidia-ml.so.1 and write the JSON that drives it (README.md describes both)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict

from typing_extensions import Required

SONAME = "libnvidia-ml.so.1"
NODE_VARIABLE = "GPUDOCTOR_STANDIN_NVML"
SOURCE = Path(__file__).with_name("libnvidia_ml.c")


class NoCompiler(Exception):
    """There is no C compiler here; tests turn it into a skip that says so."""


class BuildFailed(Exception):
    """The compiler is there and refused the source: a bug of the stand-in, never a skip."""


class Slow(TypedDict, total=False):
    """A call that answers late, for one device or all."""

    call: str
    index: int
    seconds: float


class Hang(TypedDict, total=False):
    """A call that does not come back; `ioctl` and `write` hang in the kernel if `path` is prepared for it."""

    call: str
    index: int
    how: Literal["sleep", "spin", "ioctl", "write"]
    path: str


class Crash(TypedDict, total=False):
    """A call that ends the process, by a signal or by exit(`status`)."""

    call: str
    index: int
    signal: Literal["SEGV", "ABRT", "BUS", "ILL", "FPE", "KILL", "exit"]
    status: int


class Memory(TypedDict, total=False):
    """Frame buffer in bytes."""

    total: int
    reserved: int
    free: int
    used: int


class Device(TypedDict, total=False):
    """One GPU; a query whose key is left out gives NVML_ERROR_NOT_SUPPORTED."""

    uuid: Required[str]
    name: Required[str]
    serial: str
    vbios_version: str
    board_part_number: str
    inforom_version: str
    pci_bus_id: Required[str]
    pci_device_id: int
    pci_subsystem_id: int
    minor: Required[int]
    persistence_mode: int
    compute_mode: int
    architecture: int
    max_pcie_link_generation: int
    max_pcie_link_width: int
    pcie_link_generation: int
    pcie_link_width: int
    power_milliwatts: int
    mig_mode: int | list[int]
    ecc_mode: int | list[int]
    compute_capability: int | list[int]
    memory: Memory
    errors: dict[str, int]


class Node(TypedDict, total=False):
    """What the stand-in answers; README.md says what each key does."""

    driver_version: Required[str]
    nvml_version: Required[str]
    cuda_driver_version: Required[int]
    init: int
    errors: dict[str, int]
    before_init: list[str]
    missing: list[str]
    devices: Required[list[Device]]
    slow: Slow | list[Slow]
    hang: Hang | list[Hang]
    crash: Crash | list[Crash]


@cache
def exported_calls() -> frozenset[str]:
    """Names of the NVML functions in the C source."""
    definition = re.compile(r"^(?:EXPORT .*?\b|\s+X\()(nvml[A-Z]\w+)[(,]", re.MULTILINE)
    return frozenset(definition.findall(SOURCE.read_text(encoding="utf-8")))


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
    compiler = find_compiler()
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / SONAME
    flags = ["-std=c11", "-Wall", "-Wextra", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
    command = [compiler, *flags, f"-Wl,-soname,{SONAME}", "-o", str(library), str(SOURCE)]
    if leave_out:
        script = directory / "leave-out.map"
        # In a version script a full name wins over a pattern.
        script.write_text("{ global: nvml*; local: " + "; ".join(leave_out) + "; *; };\n", encoding="ascii")
        command.append(f"-Wl,--version-script={script}")
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if compiled.returncode != 0:
        raise BuildFailed(compiled.stderr)
    return library


def environment(library: Path, node_file: Path) -> dict[str, str]:
    """This process's environment, made to load `library` and let it answer from `node_file`."""
    search = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(search), NODE_VARIABLE: str(node_file)}


def healthy(addresses: Sequence[str], driver: str = "550.163.01") -> Node:
    """An idle node of H100s, one at each PCI address, minors in order.

    An address is `0000:18:00.0`, as sysfs writes it; NVML's form with eight upper-case digits is made of it.
    """
    return {
        "driver_version": driver,
        "nvml_version": f"12.{driver}",
        "cuda_driver_version": 12040,
        "init": 0,
        "devices": [_healthy_device(index, address) for index, address in enumerate(addresses)],
    }


def _healthy_device(index: int, address: str) -> Device:
    domain, rest = address.split(":", 1)
    total = 81559 << 20
    return {
        "uuid": f"GPU-{0x5EED0000 + index:08x}-0000-4000-8000-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"{1650000000000 + index}",
        "vbios_version": "96.00.89.00.01",
        "pci_bus_id": f"{int(domain, 16):08X}:{rest.upper()}",
        "pci_device_id": 0x233010DE,
        "pci_subsystem_id": 0x16C110DE,
        "minor": index,
        "persistence_mode": 1,
        "compute_mode": 0,
        "architecture": 9,
        "max_pcie_link_generation": 5,
        "max_pcie_link_width": 16,
        "pcie_link_generation": 5,
        "pcie_link_width": 16,
        "power_milliwatts": 70000,
        "mig_mode": [0, 0],
        "ecc_mode": [1, 1],
        "compute_capability": [9, 0],
        "memory": {"total": total, "reserved": 0, "free": total, "used": 0},
    }


def write_node(node: Node, path: Path) -> Path:
    """Write `node` where the stand-in reads it; a misspelt key or call raises ValueError instead of doing nothing."""
    _refuse_unknown(node, Node.__annotations__, "no such key of a node")
    for device in node.get("devices", []):
        _refuse_unknown(device, Device.__annotations__, "no such key of a device")
        _refuse_unknown(device.get("errors", {}), exported_calls() | {"handle"}, "no such call to fail")
    _refuse_unknown(node.get("errors", {}), exported_calls() | {"handle"}, "no such call to fail")
    _refuse_unknown(node.get("missing", []), exported_calls(), "no such call to miss")
    _refuse_unknown(node.get("before_init", []), exported_calls(), "no such call to answer before init")
    for key, kind in (("slow", Slow), ("hang", Hang), ("crash", Crash)):
        for rule in _rules(node.get(key)):
            _refuse_unknown(rule, kind.__annotations__, f"no such key of {key}")
            _refuse_unknown([str(rule.get("call"))], exported_calls(), f"no such call to {key}")
    path.write_text(json.dumps(node, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def _rules(fault: object) -> list[Mapping[str, object]]:
    if isinstance(fault, Mapping):
        return [fault]
    return list(fault) if isinstance(fault, list) else []


def _refuse_unknown(names: Iterable[str], allowed: Iterable[str], problem: str) -> None:
    unknown = sorted(set(names) - set(allowed))
    if unknown:
        raise ValueError(f"{problem}: {', '.join(unknown)}")
