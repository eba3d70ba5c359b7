"""The answers behind what nvidia-smi printed in a report: `--query` as text or XML, or the one line in the report's head."""

import re
from typing import Any

from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Answer, decimal
from gpudoctor.knowledge import nvml_errors

IN_HEAD = (
    "nvidia-smi --query-gpu=name,driver_version,memory.total,vbios_version,pci.bus_id,serial --format=csv,noheader"
)
"""What the head's "NVIDIA GPU Details" are the output of (run_query in nvidia-bug-report.sh, since 570)."""

_NEXT_COMMAND = re.compile(r"^/\S*/nvidia-smi ", re.MULTILINE)
_GPU = '<gpu id="'
_LOST = ("GPU is lost", "Unknown Error", "GPU requires reset")


def asks_for_everything(arguments: str) -> bool:
    """Whether these arguments ask for all about every GPU."""
    words = set(arguments.split())
    return bool(words & {"-q", "--query"}) and words <= {"-q", "--query", "-a", "-x", "--xml-format"}


def answer_of(command: str, output: str) -> Answer | None:
    """The answers of `nvidia-smi -q`; a section goes on with other invocations, each under its own command line."""
    own = _NEXT_COMMAND.split(output, maxsplit=1)[0]
    return _answer_from_xml(own, command) if "<nvidia_smi_log>" in own else answer_from_query(own, command)


def answer_of_head(details: str) -> Answer | None:
    """The answer where the head says that nvidia-smi failed; its rows of GPUs that answered lack the UUID."""
    failed, _, said = details.partition("Failed: ")
    return answer_from_query(said, IN_HEAD) if not failed and said else None


def _answer_from_xml(text: str, command: str) -> Answer:
    """The elements of nvsmi_device: one of each that is needed, before or inside `gpu`."""
    head, *gpus = text.split(_GPU)
    # Of one that is cut off it is not known what would have come.
    devices = [_device(gpu.partition('"')[0], gpu) for gpu in gpus if "</gpu>" in gpu]
    data: dict[str, Any] = {"init": nvml_errors.SUCCESS, "devices": devices}
    if version := _element(head, "driver_version"):
        data["driver_version"] = version
    if (cuda := re.fullmatch(r"(\d{1,4})\.(\d{1,4})", _element(head, "cuda_version") or "")) is not None:
        data["cuda_driver_version"] = int(cuda[1]) * 1000 + int(cuda[2]) * 10
    if (count := decimal(_element(head, "attached_gpus") or "")) is not None:
        data["count"] = count
    return Answer(data=data, via=command)


def _device(bus_id: str, text: str) -> dict[str, Any]:
    device: dict[str, Any] = {"pci_bus_id": bus_id}
    for name, element in (("name", "product_name"), ("uuid", "uuid"), ("serial", "serial")):
        value = _element(text, element)
        if value is not None and value != "N/A":
            device[name] = value
    if (minor := decimal(_element(text, "minor_number") or "")) is not None:
        device["minor"] = minor
    if device.get("uuid") in _LOST:
        said = device.pop("uuid")
        code = nvml_errors.GPU_IS_LOST if said == _LOST[0] else nvml_errors.UNKNOWN
        device["error"] = {"code": code, "said": f"uuid: {said}"}
    return device


def _element(text: str, name: str) -> str | None:
    found = re.search(rf"<{name}>([^<]{{0,200}})</{name}>", text)
    return found[1].strip() if found else None
