"""`nvidia-smi -q -x`: the elements of nvidia_smi_log.

Only the events of an XML parser are used, which knows no entity beyond XML's own five: a document that declares one is no output of
nvidia-smi and is refused. Of a document that is cut off, or damaged, the GPUs before that place count.
"""

from typing import Any
from xml.parsers import expat

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft, mig_value, process
from gpudoctor.facts.nvidia_smi_values import cuda_version, is_bus_id, version
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_elements import (
    ELEMENTS,
    MIG_ELEMENTS,
    REASON_PREFIXES,
    REASON_SECTIONS,
    SECTIONS,
)
from gpudoctor.patterns import pattern

ROOT = "<nvidia_smi_log"
_END = "</nvidia_smi_log>"
_DEEPEST = 12
"""No element of nvsmi_device_v13.dtd lies deeper than nine."""
_TOO_DEEP = 256
_MOST_TEXT = 4096

# Names of processes come from anywhere: an ampersand that begins no reference, and characters that XML does not have.
_STRAY = pattern(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_NO_XML = pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_PROCESS = "processes/process_info"
_MIG_LIST = "mig_devices"
_MIG = f"{_MIG_LIST}/mig_device"


def from_xml(text: str) -> dict[str, Any]:
    """The `data` of an answer; empty when there is no such document in the text, or one that declares entities."""
    start = max(text.find("<?xml"), 0)
    document = text[start:].partition(_END)
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(_NO_XML.sub("?", _STRAY.sub("&amp;", document[0] + document[1])), True)
    except _DeclaresEntities:
        return {}
    except (_NoOutputOfIts, expat.ExpatError):
        pass
    return reader.data


class _NoOutputOfIts(Exception):
    """Nothing that nvidia-smi prints looks like that."""


class _DeclaresEntities(_NoOutputOfIts):
    """The document brings definitions of its own."""


def _refuse(*_declaration: object) -> None:
    raise _DeclaresEntities


class _Reader:
    """The document's events; paths are those below `gpu`."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._devices: list[dict[str, Any]] = []
        self._device: Draft | None = None
        self._path: list[str] = []
        self._depth = 0
        self._text: list[str] = []
        self._has_children = False
        self._process: dict[str, str] = {}

    @property
    def data(self) -> dict[str, Any]:
        """All that was said. GPUs are listed in NVML's order; where all are, the place is the index."""
        if not self._devices:
            return self._data
        if len(self._devices) == self._data.get("count"):
            for index, device in enumerate(self._devices):
                device["index"] = index
        return {**self._data, "devices": self._devices}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._depth += 1
        if self._depth > _TOO_DEEP:
            raise _NoOutputOfIts
        self._text, self._has_children = [], False
        if self._depth == 2 and name == "gpu" and len(self._devices) < MOST_DEVICES:
            bus_id = attributes.get("id", "")
            self._device = Draft(**{"pci_bus_id": bus_id} if is_bus_id(bus_id) else {})
            self._path = []
        elif 2 < self._depth <= _DEEPEST:
            self._path.append(name)
            if "/".join(self._path) == _MIG and self._device is not None:
                self._device.mig_devices.append({})

    def characters(self, text: str) -> None:
        """Text of the innermost element."""
        if len(self._text) < 16:
            self._text.append(text[:_MOST_TEXT])

    def end(self, name: str) -> None:
        """An element ends; one with others inside has no text of its own."""
        if not self._has_children and self._depth <= _DEEPEST:
            self._take(name, "".join(self._text).strip())
        if self._depth > 2:
            self._leave()
        elif self._depth == 2 and name == "gpu" and self._device is not None:
            self._devices.append(self._device.finished(all_reasons=True))
            self._device = None
        self._depth -= 1
        self._text, self._has_children = [], True

    def _leave(self) -> None:
        if self._depth > _DEEPEST:
            return
        if "/".join(self._path) == _PROCESS:
            self._end_process()
        self._path.pop()

    def _take(self, name: str, text: str) -> None:
        device = self._device
        if device is None:
            if self._depth == 2:
                self._take_of_node(name, text)
            return
        path = "/".join(self._path)
        if path.startswith(f"{_PROCESS}/"):
            self._process[name] = text
        elif path == _MIG_LIST:
            device.lists_mig = text == "None"
        elif path.startswith(f"{_MIG}/"):
            _take_mig(device, path.removeprefix(f"{_MIG}/"), text)
        else:
            _take_field(device, path, text)

    def _take_of_node(self, name: str, text: str) -> None:
        if name in ("driver_version", "kmd_version") and version(text) is not None:
            self._data["driver_version"] = version(text)
        elif name in ("cuda_version", "cuda_umd_version") and cuda_version(text) is not None:
            self._data["cuda_driver_version"] = cuda_version(text)
        elif name == "attached_gpus" and decimal(text) is not None:
            self._data["count"] = decimal(text)

    def _end_process(self) -> None:
        said, self._process = self._process, {}
        instances = (said.get("gpu_instance_id", ""), said.get("compute_instance_id", ""))
        found = process(
            said.get("pid", ""),
            said.get("type", ""),
            said.get("process_name", ""),
            said.get("used_memory", ""),
            instances,
        )
        if found and self._device is not None:
            self._device.processes.append(found)


def _take_field(device: Draft, path: str, text: str) -> None:
    section, _, name = path.rpartition("/")
    if path in ELEMENTS:
        device.take(ELEMENTS[path], text, name)
    elif section in REASON_SECTIONS:
        for prefix in REASON_PREFIXES:
            device.reason(name.removeprefix(prefix), text)
    elif path in REASON_SECTIONS:
        device.refuse(("clocks_event.active",), text, name)
    elif path in SECTIONS:
        device.refuse(SECTIONS[path], text, name)


def _take_mig(device: Draft, path: str, text: str) -> None:
    key = MIG_ELEMENTS.get(path)
    number = mig_value(key, text) if key else None
    if key and number is not None:
        device.mig_devices[-1].setdefault(key, number)
