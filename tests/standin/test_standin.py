"""The NVML stand-in under the real pynvml, always in a child process, as the doctor's worker loads it."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from .build import (
    BuildFailed,
    Device,
    Hang,
    NoCompiler,
    Node,
    build_nvml,
    environment,
    exported_calls,
    find_compiler,
    healthy,
    write_node,
)

EIGHT = tuple(f"0000:{bus:02x}:00.0" for bus in (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB))
SIXTEEN = tuple(f"{domain:04x}:{bus:02x}:00.0" for domain in (0, 1) for bus in range(0x10, 0x90, 0x10))

# What pynvml raised becomes {"error": code}; what it returned is printed as JSON.
PROLOGUE = """
import ctypes, json, sys
import pynvml as n

def attempt(call, *arguments):
    try:
        answer = call(*arguments)
        json.dumps(answer)
        return answer
    except n.NVMLError as error:
        return {"error": error.value}

def show(answer):
    print(json.dumps(answer), flush=True)
"""

SURVEY = """
n.nvmlInit()
devices = []
for index in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(index)
    pci = n.nvmlDeviceGetPciInfo(handle)
    devices.append({
        "index": n.nvmlDeviceGetIndex(handle), "uuid": n.nvmlDeviceGetUUID(handle), "name": n.nvmlDeviceGetName(handle),
        "serial": n.nvmlDeviceGetSerial(handle), "minor": n.nvmlDeviceGetMinorNumber(handle), "bus_id": pci.busId,
        "legacy_bus_id": pci.busIdLegacy, "where": [pci.domain, pci.bus, pci.device],
        "pci_ids": [pci.pciDeviceId, pci.pciSubSystemId],
    })
show({"driver": n.nvmlSystemGetDriverVersion(), "nvml": n.nvmlSystemGetNVMLVersion(),
      "cuda": [n.nvmlSystemGetCudaDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2()], "devices": devices})
n.nvmlShutdown()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in, or a skip that says what is missing."""
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("the NVML stand-in is tested under pynvml (nvidia-ml-py), which is not installed")
    try:
        return build_nvml(tmp_path_factory.mktemp("nvml"))
    except NoCompiler as reason:
        pytest.skip(str(reason))


def start(library: Path, node: Node | None, directory: Path, script: str) -> subprocess.Popen[str]:
    """A child that has pynvml as `n` and runs `script`; without a node there is no JSON file at all."""
    node_file = directory / "node.json"
    if node is not None:
        write_node(node, node_file)
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + script],
        env=environment(library, node_file),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask(library: Path, node: Node | None, directory: Path, script: str) -> object:
    """What `script` showed."""
    with start(library, node, directory, script) as child:
        output, errors = child.communicate(timeout=30)
    assert child.returncode == 0, errors
    answer: object = json.loads(output)
    return answer


def expected_survey(node: Node) -> object:
    """What SURVEY shows, said by the JSON."""

    def device(index: int, facts: Device) -> Mapping[str, object]:
        domain, bus, slot = facts["pci_bus_id"].split(":")
        return {
            "index": index,
            "uuid": facts["uuid"],
            "name": facts["name"],
            "serial": facts.get("serial"),
            "minor": facts["minor"],
            "bus_id": facts["pci_bus_id"],
            "legacy_bus_id": f"{domain[4:]}:{bus}:{slot}",
            "where": [int(domain, 16), int(bus, 16), int(slot.split(".")[0], 16)],
            "pci_ids": [0x233010DE, 0x16C110DE],
        }

    return {
        "driver": node["driver_version"],
        "nvml": node["nvml_version"],
        "cuda": [node["cuda_driver_version"]] * 2,
        "devices": [device(index, facts) for index, facts in enumerate(node["devices"])],
    }


@pytest.mark.parametrize("addresses", [EIGHT, SIXTEEN, ()], ids=["eight", "sixteen", "none"])
def test_a_healthy_node_answers_what_the_json_says(library: Path, tmp_path: Path, addresses: tuple[str, ...]) -> None:
    node = healthy(addresses)
    assert ask(library, node, tmp_path, SURVEY) == expected_survey(node)


def test_known_values_arrive_unchanged(library: Path, tmp_path: Path) -> None:
    """Against literals, so that an error shared by the helper and the expectation shows."""
    node = healthy(["0001:ab:1f.0"], driver="580.95.05")
    device = node["devices"][0]
    device["uuid"], device["minor"], device["mig_mode"] = 'GPU-é-"quoted"\\', 7, [1, 0]
    device["memory"] = {"total": 85520809984}
    script = """
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
pci = n.nvmlDeviceGetPciInfo(handle)
show([n.nvmlDeviceGetUUID(handle), n.nvmlDeviceGetMinorNumber(handle), n.nvmlSystemGetDriverVersion(), pci.busId,
      pci.domain, pci.bus, pci.device, n.nvmlDeviceGetMigMode(handle), n.nvmlDeviceGetMemoryInfo(handle).total,
      n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2).total, n.nvmlDeviceGetPersistenceMode(handle)])
"""
    expected = ['GPU-é-"quoted"\\', 7, "580.95.05", "00000001:AB:1F.0", 1, 0xAB, 0x1F, [1, 0]]
    assert ask(library, node, tmp_path, script) == [*expected, 85520809984, 85520809984, 1]


def test_older_pci_info_has_the_older_layout(library: Path, tmp_path: Path) -> None:
    script = """
n.nvmlInit()
handle, rows = n.nvmlDeviceGetHandleByIndex(5), []
for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2"):
    guarded = (ctypes.c_ubyte * 64)(*[0xEE] * 64)
    info = n.nvmlPciInfo_v2_t.from_buffer(guarded)
    status = getattr(n.nvmlLib, name)(handle, ctypes.byref(info))
    end = ctypes.sizeof(n.nvmlPciInfo_v2_t)
    rows.append([status, info.busId, info.bus, info.pciDeviceId, info.reserved3, set(guarded[end:]) == {0xEE}])
show(rows)
"""
    row = [0, "0000:AB:00.0", 0xAB, 0x233010DE, 0, True]
    assert ask(library, healthy(EIGHT), tmp_path, script) == [row, row]


def test_a_device_is_found_by_bus_id_and_uuid(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    forms = ["00000000:AB:00.0", "0000:ab:00.0", "AB:00.0", "0000:ac:00.0", "0001:ab:00.0"]
    script = f"""
n.nvmlInit()
index = lambda find, key: n.nvmlDeviceGetIndex(find(key))
show([attempt(index, n.nvmlDeviceGetHandleByPciBusId, form) for form in {forms!r}]
     + [attempt(index, n.nvmlDeviceGetHandleByUUID, uuid) for uuid in [{node["devices"][3]["uuid"]!r}, "GPU-none"]])
"""
    missing = {"error": 6}
    assert ask(library, node, tmp_path, script) == [5, 5, 5, missing, missing, 3, missing]


@pytest.mark.parametrize("code", [9, 12, 18, 999])
def test_init_fails_as_told(library: Path, tmp_path: Path, code: int) -> None:
    node = healthy(EIGHT)
    node["init"] = code
    script = "show([attempt(n.nvmlInit), attempt(n.nvmlDeviceGetCount)])"
    assert ask(library, node, tmp_path, script) == [{"error": code}, {"error": 1}]


def test_no_file_and_no_json_are_no_driver(library: Path, tmp_path: Path) -> None:
    assert ask(library, None, tmp_path, "show(attempt(n.nvmlInit))") == {"error": 9}
    (tmp_path / "node.json").write_text('{"driver_version": "550', encoding="ascii")
    assert ask(library, None, tmp_path, "show(attempt(n.nvmlInit))") == {"error": 9}


def test_nothing_answers_outside_init_and_shutdown(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["init"] = 18
    node["before_init"] = ["nvmlSystemGetNVMLVersion"]
    script = "show([attempt(f) for f in (n.nvmlInit, n.nvmlSystemGetNVMLVersion, n.nvmlSystemGetDriverVersion)])"
    assert ask(library, node, tmp_path, script) == [{"error": 18}, "12.550.163.01", {"error": 1}]
    script = """
n.nvmlInit(), n.nvmlInit(), n.nvmlShutdown()
counts = [attempt(n.nvmlDeviceGetCount)]
n.nvmlShutdown()
show([*counts, attempt(n.nvmlDeviceGetCount), attempt(n.nvmlShutdown)])
"""
    assert ask(library, healthy(EIGHT), tmp_path, script) == [8, {"error": 1}, {"error": 1}]


def test_a_device_fails_alone(library: Path, tmp_path: Path) -> None:
    """Device 4 is lost, device 6 has no UUID, and the serials of all are refused."""
    node = healthy(EIGHT)
    node["devices"][4]["errors"] = {"handle": 15}
    node["devices"][6]["errors"] = {"nvmlDeviceGetUUID": 999}
    node["errors"] = {"nvmlDeviceGetSerial": 4}
    script = """
n.nvmlInit()
def look(index):
    handle = n.nvmlDeviceGetHandleByIndex(index)
    return [attempt(n.nvmlDeviceGetUUID, handle), attempt(n.nvmlDeviceGetMinorNumber, handle),
            attempt(n.nvmlDeviceGetSerial, handle)]
show([attempt(look, index) for index in range(9)])
"""
    expected: list[object] = [[device["uuid"], device["minor"], {"error": 4}] for device in node["devices"]]
    expected[4] = {"error": 15}
    expected[6] = [{"error": 999}, 6, {"error": 4}]
    assert ask(library, node, tmp_path, script) == [*expected, {"error": 2}]


def test_short_buffers_and_foreign_handles_are_refused(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["devices"][0].pop("serial")
    script = """
n.nvmlInit()
handle, library = n.nvmlDeviceGetHandleByIndex(0), n.nvmlLib
buffer = ctypes.create_string_buffer(64)
show([library.nvmlSystemGetDriverVersion(buffer, size) for size in (0, 10, 11)]
     + [library.nvmlDeviceGetUUID(handle, buffer, size) for size in (40, 41)]
     + [library.nvmlDeviceGetUUID(ctypes.c_void_p(0x1234), buffer, 64), library.nvmlDeviceGetUUID(handle, None, 64),
        library.nvmlDeviceGetSerial(handle, buffer, 64)])
"""
    assert ask(library, node, tmp_path, script) == [7, 7, 0, 7, 0, 2, 2, 3]


def test_a_left_out_symbol_is_function_not_found(library: Path, tmp_path: Path) -> None:
    old = build_nvml(tmp_path / "old", leave_out=["nvmlDeviceGetPciInfo_v3", "nvmlSystemGetCudaDriverVersion_v2"])
    script = """
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
show([attempt(n.nvmlDeviceGetPciInfo, handle), attempt(n.nvmlSystemGetCudaDriverVersion_v2),
      n.nvmlSystemGetCudaDriverVersion(), hasattr(n.nvmlLib, "nvmlDeviceGetPciInfo_v3"),
      hasattr(n.nvmlLib, "nvmlDeviceGetPciInfo_v2")])
"""
    assert ask(old, healthy(EIGHT), tmp_path, script) == [{"error": 13}, {"error": 13}, 12040, False, True]
    # "missing" says the same at run time, with the symbol still there.
    node = healthy(EIGHT)
    node["missing"] = ["nvmlDeviceGetPciInfo_v3"]
    assert ask(library, node, tmp_path, script) == [{"error": 13}, 12040, 12040, True, True]


@pytest.mark.parametrize(("name", "status"), [("SEGV", -signal.SIGSEGV), ("ABRT", -signal.SIGABRT), ("exit", 1)])
def test_a_crash_ends_the_process_at_its_device(
    library: Path, tmp_path: Path, name: Literal["SEGV", "ABRT", "exit"], status: int
) -> None:
    node = healthy(EIGHT)
    node["crash"] = {"call": "nvmlDeviceGetHandleByIndex_v2", "index": 2, "signal": name}
    script = "n.nvmlInit()\nfor index in range(8):\n    show(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByIndex(index)))"
    with start(library, node, tmp_path, script) as child:
        output, _ = child.communicate(timeout=30)
    assert (output.split(), child.returncode) == (["0", "1"], status)


@pytest.mark.parametrize(("how", "state"), [("sleep", "S"), ("spin", "R")])
def test_a_hang_in_init_lasts_until_it_is_killed(
    library: Path, tmp_path: Path, how: Literal["sleep", "spin"], state: str
) -> None:
    node = healthy(EIGHT)
    node["hang"] = {"call": "nvmlInit_v2", "how": how}
    with start(library, node, tmp_path, "show('before')\nn.nvmlInit()\nshow('after')") as child:
        try:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline()) == "before"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=1)
            assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == state
        finally:
            child.kill()
        assert (child.communicate(timeout=30)[0], child.returncode) == ("", -signal.SIGKILL)


def test_rules_may_be_several_and_slow_is_late_but_right(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["slow"] = [{"call": "nvmlInit", "seconds": 0.3}, {"call": "nvmlDeviceGetUUID", "index": 1, "seconds": 0.4}]
    node["hang"] = [Hang(call="nvmlDeviceGetName", index=7), Hang(call="nvmlShutdown", how="ioctl", path="/dev/null")]
    began = time.monotonic()
    answer = ask(library, node, tmp_path, SURVEY.replace("nvmlDeviceGetName(handle)", "nvmlDeviceGetUUID(handle)"))
    assert time.monotonic() - began >= 0.3 + 2 * 0.4
    renamed = healthy(EIGHT)
    for device in renamed["devices"]:
        device["name"] = device["uuid"]
    assert answer == expected_survey(renamed)


def test_an_ioctl_has_the_agreed_number(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preloaded ioctl() tells what the kernel would have been asked."""
    source = tmp_path / "tell.c"
    source.write_text(
        "#include <stdio.h>\n"
        "int ioctl(int file, unsigned long request, ...)\n"
        '{ (void)file; fprintf(stderr, "ioctl %lx\\n", request); return 0; }\n',
        encoding="ascii",
    )
    command = [find_compiler(), "-shared", "-fPIC", "-o", str(tmp_path / "tell.so"), str(source)]
    subprocess.run(command, check=True, timeout=60)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "tell.so"))
    node = healthy(EIGHT)
    node["hang"] = Hang(call="nvmlInit", how="ioctl", path="/dev/null")
    with start(library, node, tmp_path, "n.nvmlInit()") as child:
        _, errors = child.communicate(timeout=30)
    assert (child.returncode, errors.splitlines().count("ioctl c0de")) == (0, 1)


def test_a_path_that_cannot_be_opened_is_loud(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["hang"] = Hang(call="nvmlInit", how="ioctl", path=str(tmp_path / "none"))
    with start(library, node, tmp_path, "n.nvmlInit()") as child:
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 97
    assert errors == f"libnvidia-ml stand-in: No such file or directory: {tmp_path / 'none'}\n"


def test_a_write_lands_in_the_file(library: Path, tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["hang"] = Hang(call="nvmlInit", how="write", path=str(tmp_path / "page"))
    assert ask(library, node, tmp_path, SURVEY) == expected_survey(node)
    assert (tmp_path / "page").read_bytes() == bytes(4096)


def test_misspelt_nodes_are_refused(tmp_path: Path) -> None:
    node = healthy(EIGHT)
    node["hang"] = [Hang(call="nvmlInit_v9")]
    misspelt: Node = json.loads('{"devics": []}')
    with pytest.raises(ValueError, match="no such key of a node: devics"):
        write_node(misspelt, tmp_path / "node.json")
    with pytest.raises(ValueError, match="no such call to hang: nvmlInit_v9"):
        write_node(node, tmp_path / "node.json")
    with pytest.raises(ValueError, match="no such call to leave out: nvmlNothing"):
        build_nvml(tmp_path, leave_out=["nvmlNothing"])


def test_without_a_compiler_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match="neither cc nor gcc is on PATH"):
        build_nvml(tmp_path)


def test_a_compiler_that_refuses_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho refused >&2\nexit 1\n", encoding="ascii")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed, match="refused"):
        build_nvml(tmp_path / "out")


def test_every_promised_symbol_is_exported(library: Path, tmp_path: Path) -> None:
    """In a child: a library loaded here would answer every later load of its soname in the test process."""
    versioned = ("Init", "DeviceGetCount", "DeviceGetHandleByIndex", "DeviceGetHandleByPciBusId", "DeviceGetPciInfo")
    plain = "InitWithFlags Shutdown ErrorString SystemGetDriverVersion SystemGetNVMLVersion DeviceGetMigMode".split()
    plain += ["SystemGetCudaDriverVersion", "SystemGetCudaDriverVersion_v2", "DeviceGetPciInfo_v3"]
    plain += [f"DeviceGet{what}" for what in "UUID Name MinorNumber Index Serial PersistenceMode MemoryInfo".split()]
    promised = {f"nvml{name}" for name in [*plain, *versioned, *(f"{name}_v2" for name in versioned)]}
    assert promised <= exported_calls()
    script = f"""
loaded = ctypes.CDLL("libnvidia-ml.so.1")
loaded.nvmlErrorString.restype = ctypes.c_char_p
show([[name for name in {sorted(exported_calls())!r} if not hasattr(loaded, name)],
      [loaded.nvmlErrorString(code).decode() for code in (0, 9, 15, 18, 999)]])
"""
    words = ["Success", "Driver Not Loaded", "GPU is lost", "Driver/library version mismatch", "Unknown Error"]
    assert ask(library, healthy(EIGHT), tmp_path, script) == [[], words]
