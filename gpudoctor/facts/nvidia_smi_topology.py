"""`nvidia-smi topo`. `-m` tells how each pair of GPUs and network adapters is connected, and which CPUs and memory are near each GPU.

The heading is underlined by terminal codes, also in a file. Columns are separated by tabs, which pasting turns into blanks or
loses; adapters are called NIC0, NIC1 and explained below since driver 510, by their own names before. Rows that were pasted without the
heading tell their columns by the X that each row has at its own place. `-p2p r` and `-p2p w` tell whether
each GPU may read and write the memory of each other one; which of them a text is only its command line says.
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
# Old drivers say SOC for SYS. Answers of `-p2p` look alike, CNS for one.
_SURE_PATH = pattern(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_ROW = pattern(r"(GPU|NIC)(\d{1,3})")
_FEWEST_ROWS = 2
_MOST_COLUMNS = 256
P2P = {"r": "read", "w": "write"}
"""What of `-p2p` counts, as NVML's answers name it. The others ask for single ways (n NVLink, p PCIe) and atomics (a)."""
_ANSWERS = {
    "OK": "ok",
    "CNS": "chipset_not_supported",
    "GNS": "gpu_not_supported",
    "TNS": "ioh_topology_not_supported",
    "NS": "not_supported",
    "DR": "disabled_by_regkey",
    "U": "unknown",
}


def is_topology(text: str) -> bool:
    """Whether a text holds the heading of such a matrix."""
    lines = _lines(text)
    if _AFFINITY in text:
        return "GPU0" in text and any(_columns(line) for line in lines)
    return " X " in text and bool(_columns_of_rows(lines))


def from_topology(text: str) -> dict[str, Any]:
    """The `data` of an answer: GPUs by their index."""
    columns = [] if _AFFINITY in text else _columns_of_rows(_lines(text))
    headed, tail = not columns, ""
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
            if headed and index is not None and index < MOST_DEVICES:
                _take_affinity(devices.setdefault(index, Draft(index=index)), line, len(columns), tail)
    nics = nics or {name: name for name in columns if not name.startswith(("GPU", "NIC"))}
    system: dict[str, Any] = {"topology": list(paths.values())} if paths else {}
    return {
        **({"devices": [device.finished(all_reasons=False) for device in devices.values()]} if devices else {}),
        **({"system": {**system, **({"nics": nics} if nics else {})}} if system or nics else {}),
    }


def p2p_kind(arguments: str | None) -> str | None:
    """What `topo -p2p KIND` asks for, None for another command line or one that does not count."""
    words = (arguments or "").split()
    asked = words[words.index("-p2p") + 1 :] if words[:1] == ["topo"] and "-p2p" in words else []
    return P2P.get(asked[0]) if asked else None


def from_p2p(kind: str, text: str) -> dict[str, Any]:
    """The `data` of an answer: pairs without their path, which `topo -m` knows."""
    columns: list[str] = []
    pairs: dict[frozenset[str], dict[str, Any]] = {}
    for line in _lines(text):
        name, *answers = line.split() or [""]
        if not columns and name == "GPU0" and all(_NAME.fullmatch(other) for other in answers):
            columns = [name, *answers][:_MOST_COLUMNS]
        elif name in columns:
            for other, answer in zip(columns, answers, strict=False):
                if other != name and answer in _ANSWERS:
                    pair = pairs.setdefault(frozenset((name, other)), {"from": name, "to": other, "p2p": {}})
                    # One direction may be refused while the other is not.
                    if pair["p2p"].get(kind, "ok") == "ok":
                        pair["p2p"][kind] = _ANSWERS[answer]
    return {"system": {"topology": list(pairs.values())}} if pairs else {}


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in CODES.sub("", text).split("\n") if len(line) < 8192]


def _columns(line: str) -> list[str]:
    """The names that stand over the columns, the last one perhaps without a blank before `CPU Affinity`."""
    head, affinity, _ = line.partition(_AFFINITY)
    names = head.split()
    begun = affinity and names[:1] == ["GPU0"] and len(names) <= _MOST_COLUMNS
    return names if begun and all(_NAME.fullmatch(name) for name in names) else []


def _columns_of_rows(lines: list[str]) -> list[str]:
    """The columns of rows whose heading is lost, as far as they are sure: GPUs first, then adapters where a row of one is there."""
    gpus: list[int] = []
    seen = width = 0
    exact: int | None = None
    for name, _, rest in (line.strip().partition(" " if "\t" not in line else "\t") for line in lines):
        cells = _cells(rest)
        row = _ROW.fullmatch(name)
        if row is None or cells.count("X") != 1 or len(cells) > _MOST_COLUMNS:
            continue
        width = max(width, len(cells))
        if row[1] == "NIC":
            exact = cells.index("X") - int(row[2]) if exact is None else exact
        elif cells.index("X") == int(row[2]):
            gpus.append(int(row[2]))
            # Only between GPUs are there NVLinks.
            seen = max(seen, *(at + 1 for at, cell in enumerate(cells) if cell == "X" or cell.startswith("NV")))
    if len(gpus) < _FEWEST_ROWS:
        return []
    if exact is None or exact <= max(gpus):
        return [f"GPU{at}" for at in range(seen)]
    return [f"GPU{at}" if at < exact else f"NIC{at - exact}" for at in range(width)]


def _cells(rest: str) -> list[str]:
    """The paths with which a row begins."""
    cells: list[str] = []
    for word in rest.split():
        if not _SURE_PATH.fullmatch(word):
            break
        cells.append(word)
    return cells


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
