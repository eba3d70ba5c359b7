"""`nvidia-smi --query` text, translated into the NVML answers it was printed from."""

import re
from typing import Any

from gpudoctor.facts.raw import Answer, decimal
from gpudoctor.knowledge import nvml_errors

# What nvidia-smi prints instead of a report, and the nvmlReturn_t of nvmlInit behind it.
_INIT_FAILED: tuple[tuple[str, int], ...] = (
    ("couldn't communicate with the NVIDIA driver", nvml_errors.DRIVER_NOT_LOADED),
    ("couldn't communicate with NVIDIA driver", nvml_errors.DRIVER_NOT_LOADED),
    ("couldn't find libnvidia-ml.so", nvml_errors.LIBRARY_NOT_FOUND),
    ("Driver/library version mismatch", nvml_errors.LIB_RM_VERSION_MISMATCH),
    ("Failed to initialize NVML: Insufficient Permissions", nvml_errors.NO_PERMISSION),
    ("Failed to initialize NVML: Unknown Error", nvml_errors.UNKNOWN),
)

# "Unable to determine the device handle for GPU0000:0F:00.0: Unknown Error"; some releases print a space after GPU.
_NO_HANDLE = re.compile(
    r"^Unable to determine the device handle for (?:gpu|GPU)\s*([0-9A-Fa-f:.]+): (.+)$", re.MULTILINE
)
_GPU_HEADING = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_FIELD = re.compile(r"^( *)([^ :][^:]{0,80}):\s(.*)$")

_ERROR_TEXTS = {
    "Unknown Error": nvml_errors.UNKNOWN,
    "GPU is lost": nvml_errors.GPU_IS_LOST,
    "GPU requires reset": nvml_errors.RESET_REQUIRED,
}


def answer_from_query(text: str, command: str) -> Answer | None:
    """The NVML answers behind the output of `nvidia-smi --query` (or `-q`); None when it holds none."""
    for phrase, code in _INIT_FAILED:
        if phrase in text:
            said = next(line for line in text.splitlines() if phrase in line).strip()
            return Answer(data={"init": code, "said": said}, via=command)
    if "No devices were found" in text:
        return Answer(data={"init": 0, "count": 0, "said": "No devices were found"}, via=command)
    data = _report(text)
    lost = [_without_handle(match) for match in _NO_HANDLE.finditer(text)]
    if not data and not lost:
        return None
    data.setdefault("init", 0)
    data["devices"] = [*data.get("devices", ()), *lost]
    return Answer(data=data, via=command)


def _without_handle(match: "re.Match[str]") -> dict[str, Any]:
    code = next((code for words, code in _ERROR_TEXTS.items() if words in match[2]), nvml_errors.UNKNOWN)
    return {"pci_bus_id": match[1], "error": {"code": code, "name": nvml_errors.NAMES[code], "said": match[0]}}


def _report(text: str) -> dict[str, Any]:
    """Driver, CUDA, count, and for each GPU the identifying fields, which stand at the first level of indentation."""
    data: dict[str, Any] = {}
    devices: list[dict[str, Any]] = []
    for line in text.splitlines():
        if heading := _GPU_HEADING.match(line):
            devices.append({"pci_bus_id": heading[1]})
        elif field := _FIELD.match(line):
            _take(data, devices, len(field[1]), field[2].strip(), field[3].strip())
    if devices:
        data["devices"] = devices
    return data


def _take(data: dict[str, Any], devices: list[dict[str, Any]], indent: int, name: str, value: str) -> None:
    if indent == 0 and name == "Driver Version":
        data["driver_version"] = value
    elif indent == 0 and name == "CUDA Version" and re.fullmatch(r"\d{1,4}\.\d{1,4}", value):
        major, minor = value.split(".")
        data["cuda_driver_version"] = int(major) * 1000 + int(minor) * 10
    elif indent == 0 and name == "Attached GPUs":
        data["count"] = decimal(value)
    elif devices and indent == 4:
        key = {"Product Name": "name", "GPU UUID": "uuid", "Minor Number": "minor", "Serial Number": "serial"}.get(name)
        code = next((code for words, code in _ERROR_TEXTS.items() if value.startswith(words)), None)
        if key == "uuid" and code is not None:
            devices[-1]["error"] = {"code": code, "said": f"{name}: {value}"}
        elif key == "minor":
            devices[-1][key] = decimal(value)
        elif key and code is None and value != "N/A":
            devices[-1][key] = value
