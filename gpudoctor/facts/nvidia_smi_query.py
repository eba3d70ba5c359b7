"""`nvidia-smi -q` as text: labels and values, in sections that are indented below their headings."""

import re
from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft, mig_value, process
from gpudoctor.facts.nvidia_smi_values import cuda_version, version
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_labels import MIG_LABELS, QUERY, REASON_SECTIONS, SECTIONS
from gpudoctor.patterns import pattern

_HEADING = pattern(r"[ \t]{0,16}GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])[ \t]{0,16}")
_HEADING_LINE = pattern(rf"^{_HEADING.pattern}\r?$", re.MULTILINE)
_LONGEST_LABEL = 80
_DEEPEST = 8
"""No release nests its labels deeper than five."""
_LONGEST_LINE = 4096

_PROCESSES = "processes"
_MIG = "mig device"


def is_query(text: str) -> bool:
    """Whether a text looks like one, whole or in part."""
    return "NVSMI LOG" in text or _HEADING_LINE.search(text) is not None


def from_query(text: str) -> dict[str, Any]:
    """The `data` of an answer."""
    reader = _Reader()
    for line in text.split("\n"):
        if not reader.feed(line[:_LONGEST_LINE].rstrip()):
            break
    return reader.data()


class _Reader:
    """The lines, one after the other: the labels above one are those with less indentation."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._devices: list[Draft] = []
        self._above: list[tuple[int, str]] = []
        self._process: dict[str, str] = {}

    def feed(self, line: str) -> bool:
        """A line, its end without blanks; gives whether there may be more."""
        heading = _HEADING.fullmatch(line)
        if heading:
            self._end_process()
            self._above = []
            self._devices.append(Draft(pci_bus_id=heading[1]))
        else:
            self._feed_label(line)
        return len(self._devices) <= MOST_DEVICES

    def _feed_label(self, line: str) -> None:
        label, colon, value = line.partition(":")
        words = label.strip()
        if not words or len(words) > _LONGEST_LABEL:
            return
        indent = len(line) - len(line.lstrip())
        while self._above and self._above[-1][0] >= indent:
            self._above.pop()
        if len(self._above) < _DEEPEST:
            self._above.append((indent, words.lower()))
            self._take("/".join(name for _, name in self._above), words, value.strip() if colon else None)

    def data(self) -> dict[str, Any]:
        """All that was said. GPUs are listed in NVML's order; where all are, the place is the index."""
        self._end_process()
        if not self._devices:
            return self._data
        if len(self._devices) == self._data.get("count"):
            for index, device in enumerate(self._devices):
                device.data["index"] = index
        return {**self._data, "devices": [device.finished(all_reasons=True) for device in self._devices]}

    def _take(self, path: str, label: str, value: str | None) -> None:
        if not self._devices:
            self._take_of_node(path, value or "")
            return
        device = self._devices[-1]
        section, _, last = path.rpartition("/")
        first = path.partition("/")[0]
        if first == _PROCESSES:
            self._take_process(last, value)
        elif first == _MIG:
            self._take_mig(device, path, value)
        elif value is None:
            return
        elif path in QUERY:
            device.take(QUERY[path], value, label)
        elif section.partition("/")[0] in REASON_SECTIONS:
            device.reason(last.replace(" ", "_"), value)
        elif path in REASON_SECTIONS:
            device.refuse(("clocks_event.active",), value, label)
        elif path in SECTIONS:
            device.refuse(SECTIONS[path], value, label)

    def _take_of_node(self, path: str, value: str) -> None:
        """Since 610 `Driver Version` and `CUDA Version` are deprecated for `KMD Version` and `CUDA UMD Version`, which follow them."""
        if path in ("driver version", "kmd version") and version(value) is not None:
            self._data["driver_version"] = version(value)
        elif path in ("cuda version", "cuda umd version") and cuda_version(value) is not None:
            self._data["cuda_driver_version"] = cuda_version(value)
        elif path == "attached gpus" and decimal(value) is not None:
            self._data["count"] = decimal(value)

    def _take_mig(self, device: Draft, path: str, value: str | None) -> None:
        if value is None:
            if path == _MIG:
                device.mig_devices.append({})
            return
        if path == _MIG:
            device.lists_mig = device.lists_mig or value.lower() == "none"
            return
        key = MIG_LABELS.get(path.partition("/")[2])
        number = mig_value(key, value) if key else None
        if key and number is not None and device.mig_devices:
            device.mig_devices[-1].setdefault(key, number)

    def _take_process(self, label: str, value: str | None) -> None:
        """The instances stand before the number of a process, the rest below it."""
        if value is None:
            return
        if label in self._process:
            self._end_process()
        self._process[label] = value

    def _end_process(self) -> None:
        said, self._process = self._process, {}
        instances = (said.get("gpu instance id", ""), said.get("compute instance id", ""))
        found = process(
            said.get("process id", ""),
            said.get("type", ""),
            said.get("name", ""),
            said.get("used gpu memory", ""),
            instances,
        )
        if found and self._devices:
            self._devices[-1].processes.append(found)
