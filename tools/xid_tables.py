"""Tables of Xids, SXids and NVLink 5's errors, from a YAML file that gathers NVIDIA's catalogue and the driver's headers.

`python -m tools.knowledge --xids FILE` writes them. The file has the keys sources, xids, nvlink5_decode and sxids; a row says where it is
from by the file's `sources`. What a row says of itself to be from memory or unverified is left out.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

Row = Mapping[str, Any]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_BRANCH = re.compile(r"\bR(\d{3})\b")
_TAG = re.compile(r"\b\d{3}\.\d+\.\d+\b")
_UNVERIFIED = re.compile(r"\b(?:from memory|unverified)\b")
_LONG = "# ruff: noqa: E501  # a row of the table is one line"
LINE = 140
"""How long a line may be without saying so: pyproject.toml, max-line-length."""

_XID_CELLS = (
    "A line each: number, mnemonic, title, immediate and investigatory action, GPUs it applies to, first branch, other names in the "
    "headers, possible causes, first branch that announces it by Xid 154, title of the older listing, condensed meaning."
)
_NVLINK5_CELLS = (
    "A line each: Xid, unit (below R575/from R575), intrInfo below R575 and from R575 (32 bits, the highest first, - is any), error "
    "status, immediate and investigatory action, severity, hardware or software; then, where it has one, the intrInfo of both layouts "
    "that asks for another immediate action, and that action."
)


class BadTables(Exception):
    """The YAML file does not look like what it should be."""


def read(path: Path) -> dict[str, Any]:
    """The file, with the keys that are used here."""
    told = yaml.safe_load(path.read_text("utf-8"))
    missing = {"sources", "xids", "nvlink5_decode", "sxids"} - set(told if isinstance(told, dict) else {})
    if missing:
        raise BadTables(f"{path}: has no {', '.join(sorted(missing))}")
    return dict(told)


def xid_codes(told: Mapping[str, Any]) -> str:
    """The module xid_codes.py."""
    sources = told["sources"]
    tags = _TAG.findall(sources["driver_header"])
    source = f"NVIDIA's Xid catalogue as of {_catalogue_date(told)}"
    headers = f"nverror.h of NVIDIA/open-gpu-kernel-modules {tags[0]} to {tags[-1]}"
    return _module(
        "NVIDIA's Xids by number",
        told,
        source,
        {
            "HEADERS": (
                headers,
                "Where the first branch that names a code is from; the first of them means that one or an earlier one.",
            ),
            "XIDS": (
                _rows(told["xids"], _xid),
                _XID_CELLS,
            ),
        },
    )


def _xid(row: Row) -> tuple[str, ...]:
    return (
        str(row["code"]),
        _one_line(row["mnemonic"]).replace(" / / ", ", "),
        _one_line(row["title"]).replace(" / (", " ("),
        row["immediate"] or "",
        row["investigate"] or "",
        " ".join(row["applies"]),
        str(row.get("driver_header_since_branch", "")),
        " ".join(name for name in row.get("driver_header_names", ()) if name not in row["mnemonic"]),
        " ".join(row.get("possible_causes", ())),
        _announced(row),
        _one_line(row.get("legacy_title")),
        _one_line(row.get("meaning")),
    )


def _announced(row: Row) -> str:
    """The first branch that follows the Xid up by Xid 154; "with it" is the branch of the Xid itself."""
    words = row.get("announces_xid154_since", "")
    found = _BRANCH.search(words)
    return found[1] if found is not None else str(row["driver_header_since_branch"]) if words else ""


def sxid_codes(told: Mapping[str, Any]) -> str:
    """The module sxid_codes.py."""
    tag = _TAG.findall(told["sources"]["sxid"])[0]
    source = f"ctrl_dev_nvswitch.h of NVIDIA/open-gpu-kernel-modules {tag}; classes: Fabric Manager User Guide DU-09883-001_v1.3"
    return _module(
        "NVSwitch's SXids by number",
        told,
        source,
        {
            "SXIDS": (
                _rows(told["sxids"], _sxid),
                "A line each: number, name without NVSWITCH_ERR_HW_, class and title of the guide.",
            )
        },
    )


def _sxid(row: Row) -> tuple[str, ...]:
    name = row["name"].removeprefix("NVSWITCH_ERR_HW_")
    return str(row["code"]), name, row.get("class", ""), _one_line(row.get("guide_title"))


def nvlink5_rows(told: Mapping[str, Any]) -> str:
    """The module nvlink5_rows.py."""
    return _module(
        "What intrInfo and errorStatus of Xid 144 to 150 mean",
        told,
        f"NVIDIA's Xid catalogue as of {_catalogue_date(told)}, sheet Xid 144-150 Decode",
        {
            "ROWS": (
                _rows(told["nvlink5_decode"], _nvlink5),
                _NVLINK5_CELLS,
            )
        },
    )


def _nvlink5(row: Row) -> tuple[str, ...]:
    for key in ("intrinfo_v1", "intrinfo_v2", "action2_v1", "action2_v2"):
        if key in row and not re.fullmatch(r"[01-]{32}", row[key]):
            raise BadTables(f"Xid {row['xid']} {row['unit']}: {key} is no pattern of 32 bits: {row[key]!r}")
    more = (row["action2_v1"], row["action2_v2"], row["action2"]) if "action2" in row else ()
    return (
        str(row["xid"]),
        row["unit"],
        row["intrinfo_v1"],
        row["intrinfo_v2"],
        row["error_status"] or "",
        row["action"],
        row["investigate"],
        row["severity"],
        row["hw_sw"],
        *more,
    )


def _module(what: str, told: Mapping[str, Any], source: str, tables: Mapping[str, tuple[str, str]]) -> str:
    head = (
        f'"""{what}. Written by tools/xid_tables.py; `make knowledge ARGS="--xids FILE"` renews it.\n\n'
        'Numbers, names and bit patterns are NVIDIA\'s; meanings are in other words.\n"""\n'
    )
    parts = [head, f'AS_OF = "{_catalogue_date(told)}"\nSOURCE = "{source}"\n']
    for name, (text, words) in tables.items():
        quoted = f'"""{text}"""' if "\n" in text else f'"{text}"'
        parts.append(f'{name} = {quoted}\n"""{words}"""\n')
    made = "\n".join(parts)
    return f"{_LONG}\n{made}" if any(len(line) > LINE for line in made.splitlines()) else made


def _catalogue_date(told: Mapping[str, Any]) -> str:
    found = _DATE.search(told["sources"]["catalogue"])
    if found is None:
        raise BadTables("the catalogue's date is not told")
    return found[0]


def _rows(rows: list[Row], cells: Callable[[Row], tuple[str, ...]]) -> str:
    made = [cells(row) for row in rows if not _UNVERIFIED.search(str(row))]
    if not made:
        raise BadTables("a table has no row")
    for row in made:
        if any("|" in cell or "\n" in cell or "\\" in cell or '"""' in cell for cell in row):
            raise BadTables(f"a cell does not fit the table: {row}")
    return "".join(("\n", *("|".join(row).rstrip("|") + "\n" for row in made)))


def _one_line(words: str | None) -> str:
    return " ".join((words or "").split())
