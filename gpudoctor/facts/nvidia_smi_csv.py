"""`nvidia-smi --query-gpu=… --format=csv` and its sisters: a row for each GPU, retired page or process."""

import csv
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft, process
from gpudoctor.facts.nvidia_smi_values import error_code, is_bus_id, version
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_columns import (
    APP_COLUMNS,
    COLUMNS,
    COUNT_COLUMN,
    DRIVER_COLUMNS,
    PAGE_ADDRESS,
    PAGE_CAUSE,
    PAGE_CAUSES,
    REASON_PREFIXES,
)
from gpudoctor.patterns import pattern

_QUERIES = pattern(r"--query-(?:gpu|compute-apps|retired-pages|remapped-rows)=([\w.,]{1,16384})")
_UNIT = pattern(r" \[[^\]]{1,12}\]$")
_MOST_LINES = 100_000
_LONGEST_LINE = 64 * 1024
_IDENTITY = [
    column
    for target in ("@pci_bus_id", "@uuid", "@index", "@serial")
    for column, field in COLUMNS.items()
    if field == target
]
_PROCESS_NAME = ("process_name", "name")
_OWN = frozenset((*COLUMNS, *DRIVER_COLUMNS, COUNT_COLUMN, PAGE_CAUSE, PAGE_ADDRESS, *APP_COLUMNS, "timestamp"))


def columns_of(arguments: str | None, text: str) -> tuple[list[str], list[str]]:
    """The columns and the lines after their names; no columns where there are none of nvidia-smi's.

    Their names stand above them, or with `noheader` only on the command line.
    """
    # A zero byte would end csv's patience, and no column holds one.
    plain = text.replace("\0", "?").split("\n", _MOST_LINES)[:_MOST_LINES]
    lines = [line.strip() for line in plain if len(line) < _LONGEST_LINE]
    asked = _QUERIES.search(arguments or "")
    for number, line in enumerate(lines):
        names = [_UNIT.sub("", name.strip()) for name in line.split(",")]
        known = sum(name in _OWN or name.startswith(REASON_PREFIXES) for name in names)
        if known == len(names) >= (1 if asked else 2) or (known >= 2 and 2 * known >= len(names)):
            return names, lines[number + 1 :]
    return (asked[1].split(","), lines) if asked else ([], [])


def query_of(columns: list[str]) -> str:
    """The option that asks for such columns."""
    if PAGE_CAUSE in columns:
        return "--query-retired-pages"
    return "--query-compute-apps" if "pid" in columns else "--query-gpu"


def from_csv(columns: list[str], lines: list[str], *, every_gpu: bool) -> dict[str, Any]:
    """The `data` of an answer; `every_gpu` where no option chose some, so that one row alone is about GPU 0."""
    rows = list(_rows(columns, lines))
    devices: dict[str, Draft] = {}
    data: dict[str, Any] = {}
    if PAGE_CAUSE in columns or "pid" in columns:
        for row in rows:
            key = _key(row)
            if key is not None and (key in devices or len(devices) < MOST_DEVICES):
                device = devices.setdefault(key, Draft())
                _take(device, row)
                (_take_page if PAGE_CAUSE in row else _take_app)(device, row)
    else:
        for key, row in islice(_newest(rows, every_gpu=every_gpu).items(), MOST_DEVICES):
            devices[key] = Draft(**{} if _key(row) is not None else {"index": 0})
            _take(devices[key], row)
            _take_of_node(data, row)
    if devices:
        data["devices"] = [device.finished(all_reasons=False) for device in devices.values()]
    return data


def _newest(rows: list[dict[str, str]], *, every_gpu: bool) -> dict[str, dict[str, str]]:
    """The last row of each GPU: a query may go on and on."""
    if len(rows) == 1 and every_gpu:
        return {"": rows[0]}
    return {key: row for row in rows if (key := _key(row)) is not None}


def _rows(columns: list[str], lines: list[str]) -> Iterator[dict[str, str]]:
    """nvidia-smi quotes nothing: what is too much belongs to the name of a process, which may hold commas."""
    free = next((columns.index(name) for name in _PROCESS_NAME if "pid" in columns and name in columns), None)
    for line in lines:
        cells = next(csv.reader((line,), skipinitialspace=True), [])
        if len(cells) > len(columns) and free is not None:
            *before, rest = line.split(",", free)
            cells = [*before, *rest.rsplit(",", len(columns) - free - 1)]
        if len(cells) == len(columns) and any(cells):
            yield {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}


def _key(row: dict[str, str]) -> str | None:
    """What tells one device from another, the best first."""
    for column in _IDENTITY:
        said = row.get(column, "")
        if said and error_code(said) is None and (COLUMNS[column] != "@pci_bus_id" or is_bus_id(said)):
            return f"{COLUMNS[column]} {said}"
    return None


def _take(device: Draft, row: dict[str, str]) -> None:
    for column, text in row.items():
        target = COLUMNS.get(column)
        if target == "@name" and "pid" in row and column != "gpu_name":
            continue
        if target is not None:
            device.take(target, text, column, without_unit=True)
        for prefix in REASON_PREFIXES:
            if column.startswith(prefix):
                device.reason(column.removeprefix(prefix), text)


def _take_page(device: Draft, row: dict[str, str]) -> None:
    field = PAGE_CAUSES.get(row[PAGE_CAUSE].lower())
    if field is None:
        return
    code = error_code(row.get(PAGE_ADDRESS, ""))
    if code is not None:
        device.put(field, {"error": code})
        return
    # A GPU that has pages of one cause only has no row about the other.
    for name in PAGE_CAUSES.values():
        device.put(name, 0)
    count = device.fields[field]
    device.fields[field] = count + 1 if isinstance(count, int) else 1


def _take_app(device: Draft, row: dict[str, str]) -> None:
    said = {APP_COLUMNS[column]: text for column, text in row.items() if column in APP_COLUMNS}
    used = said.get("used_bytes", "")
    found = process(said.get("pid", ""), "C", said.get("name", ""), f"{used} MiB" if used.isdecimal() else used)
    if found:
        device.processes.append(found)


def _take_of_node(data: dict[str, Any], row: dict[str, str]) -> None:
    for column in DRIVER_COLUMNS:
        found = version(row.get(column, ""))
        if found is not None:
            data.setdefault("driver_version", found)
    count = decimal(row.get(COUNT_COLUMN, ""))
    if count is not None:
        data.setdefault("count", count)
