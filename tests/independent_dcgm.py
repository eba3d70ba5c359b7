"""What dcgmi prints, put together from NVIDIA/DCGM's own writers and not from our reader.

`health` as dcgmi/Health.cpp and dcgmi/DcgmiOutput.cpp build it at v4.6.0 (v2.4.8 and v3.3.9 alike), the diagnoses as dcgmi/Diag.cpp does at
v2.4.8 (`old_diag`), v3.3.9 and v4.6.0 (`new_diag`). jsoncpp's toStyledString sorts keys and puts a blank before each colon.
"""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

Warnings = tuple[tuple[str, int, int, int], ...]
"""Text, error_id, error_category, error_severity."""


def styled(tree: object) -> str:
    """As jsoncpp prints it."""
    return json.dumps(tree, indent=3, sort_keys=True, separators=(",", " : ")) + "\n"


def health(overall: str, incidents: Mapping[tuple[str, int], Mapping[str, tuple[str, str]]] | None = None) -> str:
    """`dcgmi health -c -j`: of each entity by system how bad it is and the text, in pieces of at most 54 characters."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    for (group, entity), systems in (incidents or {}).items():
        errors = {
            system: {"overflow": textwrap.wrap(text, 54), "value": bad} for system, (bad, text) in systems.items()
        }
        worst = "Failure" if any(bad == "Failure" for bad, _ in systems.values()) else "Warning"
        shown = {"children": {"Errors": {"children": errors}}, "value": worst}
        body.setdefault(group, {"children": {}})["children"][str(entity)] = shown
    return styled({"body": body, "header": ["Health Monitor Report"]})


def old_diag(results: Mapping[str, Mapping[int, tuple[str, str]]], software: str = "Pass", error: str = "") -> str:
    """Releases before 3.3: `gpu_ids`, and a warning that is a text."""
    tests = [
        {
            "name": name,
            "results": [
                {"gpu_ids": str(gpu), "status": status, **({"warnings": text} if text else {})}
                for gpu, (status, text) in by_gpu.items()
            ],
        }
        for name, by_gpu in results.items()
    ]
    deployment = {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"status": software}]}]}
    top: dict[str, Any] = {"test_categories": [deployment, {"category": "Hardware", "tests": tests}]}
    if error:
        top = {"runtime_error": error}
    return styled({"DCGM GPU Diagnostic": top, "version": "2.4.8", "Driver Version Detected": "510.47.03"})


def software_of_33(text: str, code: int, severity: int) -> str:
    """3.3: the software tests call a warning's text `warnings`, serials are listed by number."""
    warning = {"warnings": text, "error_id": code, "error_category": 8, "error_severity": severity}
    result = {"gpu_id": 2, "status": "Fail", "warnings": [warning]}
    tests = [{"name": "Persistence Mode", "results": [result]}]
    top = {"test_categories": [{"category": "Deployment", "tests": tests}]}
    serials = {str(gpu): f"165492200609{gpu}" for gpu in range(8)}
    return styled({"DCGM GPU Diagnostic": top, "version": "3.3.9", "GPU Device Serials": serials})


def new_diag(
    results: Mapping[str, Mapping[int, tuple[str, Warnings]]], summary: Mapping[str, tuple[str, Warnings]] | None = None
) -> str:
    """Releases from 4 on: entities, objects as warnings, a summary of each test that repeats them."""

    def told(status: str, warnings: Warnings) -> dict[str, Any]:
        keys = ("warning", "error_id", "error_category", "error_severity")
        listed = [dict(zip(keys, warning, strict=True)) for warning in warnings]
        return {"status": status, **({"warnings": listed} if listed else {})}

    tests = []
    for name, by_gpu in results.items():
        entries = [
            {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, **told(status, warnings)}
            for gpu, (status, warnings) in by_gpu.items()
        ]
        worst = next(
            (word for word in ("Fail", "Pass", "Skip") if any(word == entry["status"] for entry in entries)), "Skip"
        )
        all_of_them = tuple(warning for _, warnings in by_gpu.values() for warning in warnings)
        status, warnings = (summary or {}).get(name, (worst, all_of_them))
        tests.append({"name": name, "results": entries, "test_summary": told(status, warnings)})
    entities = [{"device_id": "2330", "entity_id": gpu, "serial_num": f"165492200609{gpu}"} for gpu in range(8)]
    return styled(
        {
            "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]},
            "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
            "metadata": {"Driver Version Detected": "580.95.05", "version": "4.6.0"},
        }
    )
