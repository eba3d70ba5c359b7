"""`nvidia-smi topo -m`: how each pair of GPUs and network adapters is connected, and which CPUs and memory are near each GPU.

The heading is underlined by terminal codes, also in a file. Columns are separated by tabs, which pasting turns into blanks or
loses; adapters are called NIC0, NIC1 and explained below since driver 510, by their own names before.
"""

from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft
from gpudoctor.facts.raw import decimal
from gpudoctor.patterns import pattern

CODES = pattern(r"\x1b\[[0-9;]{0,16}m")
_AFFINITY = "CPU Affinity"
_NUMA = "NUMA Affinity"
_OWN_MEMORY = "GPU NUMA ID"
_NAME = pattern(r"[A-Za-z]\w{1,48}")
_PATH = pattern(r"NV\d{1,3}|[A-Z]{3,4}")
_LEGEND = pattern(r"(NIC\d{1,4}): (\S{1,64})")
_MOST_COLUMNS = 256


def is_topology(text: str) -> bool:
    """Whether a text holds the heading of such a matrix."""
    return _AFFINITY in text and "GPU0" in text and any(_columns(line) for line in _lines(text))


def from_topology(text: str) -> dict[str, Any]:
    """The `data` of an answer: GPUs by their index."""
    columns: list[str] = []
    tail = ""
    paths: dict[frozenset[str], dict[str, str]] = {}
    nics: dict[str, str] = {}
    devices: dict[int, Draft] = {}
    for line in _lines(text):
        if legend := _LEGEND.fullmatch(line.strip()):
            nics.setdefault(legend[1], legend[2])
        elif found := ([] if columns else _columns(line)):
            columns, tail = found, line.partition(_AFFINITY)[2]
        elif (name := (line.split(None, 1) or [""])[0]) in columns:
            _take_paths(paths, name, columns, line)
            index = decimal(name.removeprefix("GPU"))
            if index is not None and index < MOST_DEVICES:
                _take_affinity(devices.setdefault(index, Draft(index=index)), line, len(columns), tail)
    nics = nics or {name: name for name in columns if not name.startswith(("GPU", "NIC"))}
    system: dict[str, Any] = {"topology": list(paths.values())} if paths else {}
    return {
        **({"devices": [device.finished(all_reasons=False) for device in devices.values()]} if devices else {}),
        **({"system": {**system, **({"nics": nics} if nics else {})}} if system or nics else {}),
    }


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in CODES.sub("", text).split("\n") if len(line) < 8192]


def _columns(line: str) -> list[str]:
    """The names that stand over the columns, the last one perhaps without a blank before `CPU Affinity`."""
    head, affinity, _ = line.partition(_AFFINITY)
    names = head.split()
    begun = affinity and names[:1] == ["GPU0"] and len(names) <= _MOST_COLUMNS
    return names if begun and all(_NAME.fullmatch(name) for name in names) else []


def _take_paths(paths: dict[frozenset[str], dict[str, str]], name: str, columns: list[str], line: str) -> None:
    for other, path in zip(columns, line.split()[1:], strict=False):
        if other != name and _PATH.fullmatch(path):
            paths.setdefault(frozenset((name, other)), {"from": name, "to": other, "path": path})


def _take_affinity(device: Draft, line: str, columns: int, tail: str) -> None:
    """CPUs, memory nodes, and the node that the GPU's own memory is; with blanks only, a missing one cannot be told."""
    wanted = 1 + (_NUMA in tail) + (_OWN_MEMORY in tail)
    cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
    said = cells[columns + 1 :]
    if "\t" not in line and len(said) != wanted:
        return
    said += [""] * (wanted - len(said))
    device.take("affinity.cpus", said[0], _AFFINITY)
    if _NUMA in tail:
        device.take("affinity.numa_nodes", said[1], _NUMA)
    if _OWN_MEMORY in tail:
        # The heading before it is so wide that two tabs follow the value below.
        device.take("affinity.memory_numa_node", said[-1], _OWN_MEMORY)
