"""What `dcgmi diag -j` printed: of a recording as it was kept, of a live node only where the user said --active."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gpudoctor.facts.dcgm import json_in
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, CommandOutput, SourceKind
from gpudoctor.verdicts import Evidence, Unread, Why

LEVELS = (4, 3, 2, 1)
"""How thoroughly it tests: seconds, minutes, half an hour, hours (DCGM User Guide, Diagnostics)."""

# Releases before 4 say "DCGM GPU Diagnostic" (nvvs/include/NvvsJsonStrings.h at v3.3.9 and v4.0.0).
TITLES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
PASSED, SKIPPED, WARNED, FAILED = "pass", "skip", "warn", "fail"
_MOST_DIGITS = 9


class DiagWarning(Struct, frozen=True):
    """What a test complained of; the code and DCGM's severity are printed since 3.3."""

    text: str
    code: int | None = None
    severity: int | None = None


class DiagResult(Struct, frozen=True):
    """How a test ended on one entity, `gpu` being DCGM's number for it; None for the node's software, or another kind of entity."""

    test: str
    status: str
    gpu: int | None = None
    entity: str = ""
    warnings: tuple[DiagWarning, ...] = ()

    @property
    def on(self) -> str:
        """The entity as DCGM numbers it, with a colon; "" for the node's software."""
        return f"{self.entity}: " if self.entity else f"GPU {self.gpu}: " if self.gpu is not None else ""


class DcgmDiag(Fact, frozen=True):
    """`asked` says whether there is a diagnosis at all; `error` is why DCGM could not make one."""

    asked: bool = False
    absent: str = ""
    where: str = ""
    version: str = ""
    results: tuple[DiagResult, ...] = ()
    error: str = ""

    @classmethod
    def gather(cls, desk: Desk) -> "DcgmDiag | Unread":
        """Runs it at the level that the user chose; a recording may hold any."""
        live = desk.raw.kind in (SourceKind.LIVE, SourceKind.ROOT)
        if live and not desk.active:
            return cls()
        if live and (busy := _busy(desk)) is not None:
            return busy
        for level in (desk.active,) if live else LEVELS:
            argv = ("dcgmi", "diag", "-r", str(level), "-j")
            output = desk.raw.command(argv, seconds=float("inf"))
            if isinstance(output, CommandOutput):
                return _parsed(output)
            if isinstance(output, Absent):
                return cls(absent="dcgmi is not installed")
            if output.why is not Why.NOT_RECORDED:
                return output
        return cls()

    @property
    def evidence(self) -> Evidence:
        """What was read."""
        ran = [result for result in self.results if result.status != SKIPPED]
        release = f" of DCGM {self.version}" if self.version else ""
        return Evidence(self.where, f"{len(ran)} results{release}, {len(self.results) - len(ran)} skipped")


def _busy(desk: Desk) -> Unread | None:
    """Why a test under load would harm: somebody computes. The first level tests the node's software only."""
    nvml = desk.get(Nvml) if desk.active > 1 else None
    for device in nvml.devices if isinstance(nvml, Nvml) else ():
        for process in device.processes:
            who = f"PID {process.pid} ({process.name})" if process.name else f"PID {process.pid}"
            detail = f"{who} uses GPU {device.address or device.uuid}, and this level tests under load"
            return Unread(Why.WITHHELD, f"dcgmi diag -r {desk.active} -j", detail, would_need="idle GPUs")
    return None


def _parsed(output: CommandOutput) -> DcgmDiag | Unread:
    where = " ".join(output.argv)
    answer = json_in(output.stdout)
    answer = next(reversed(_diagnoses(answer)), None) if answer is not None else None
    diagnosis = _diagnosis(answer) if answer is not None else None
    if answer is None or diagnosis is None:
        said = (output.stdout or output.stderr).strip().partition("\n")[0][:200]
        return Unread(Why.NOT_ANSWERED, where, said or f"says nothing (exit {output.exit})")
    return DcgmDiag(
        asked=True,
        where=where,
        version=_version(answer, diagnosis),
        results=tuple(_results(diagnosis)),
        error=str(diagnosis.get("runtime_error") or "").strip()[:400],
    )


def is_diagnosis(answer: dict[str, Any]) -> bool:
    """Whether dcgmi printed it: anybody's JSON may have a list of iterations."""
    return bool(_diagnoses(answer))


def _diagnoses(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The one that was made, or of several by --iterations each (dcgmi/Diag.cpp, RunStartDiag)."""
    listed = answer.get("iterations")
    each = listed if isinstance(listed, list) else (answer,)
    return [one for one in each if isinstance(one, dict) and _diagnosis(one) is not None]


def _diagnosis(answer: dict[str, Any]) -> dict[str, Any] | None:
    return next((answer[title] for title in TITLES if isinstance(answer.get(title), dict)), None)


def _version(answer: dict[str, Any], diagnosis: dict[str, Any]) -> str:
    places = (answer, answer.get("metadata"), diagnosis)
    told = (place.get("version") for place in places if isinstance(place, dict))
    return next((version for version in told if isinstance(version, str)), "")


def _results(diagnosis: dict[str, Any]) -> Iterator[DiagResult]:
    for category in _dicts(diagnosis.get("test_categories")):
        for test in _dicts(category.get("tests")):
            name = str(test.get("name", "")).strip()
            results = _dicts(test.get("results"))
            yield from (_result(name, result) for result in results)
            # What no entity is to blame for stands in the summary only (dcgmi/Diag.cpp, HelperJsonAddTestSummary).
            summary = test.get("test_summary")
            if isinstance(summary, dict) and not any(
                result.get("status") == summary.get("status") for result in results
            ):
                yield _result(name, summary)


def _result(name: str, told: dict[str, Any]) -> DiagResult:
    kind = told.get("entity_group")
    number = _number(told.get("entity_id", told.get("gpu_id", told.get("gpu_ids"))))
    of_gpu = kind in (None, "GPU")
    return DiagResult(
        test=name,
        status=str(told.get("status", "")).lower(),
        gpu=number if of_gpu else None,
        entity="" if of_gpu or number is None else f"{kind} {number}",
        warnings=tuple(_warnings(told.get("warnings"))),
    )


def _warnings(told: object) -> Iterator[DiagWarning]:
    """A text before 3.3, then objects; the software tests of 3.3 call the text "warnings" (dcgmi/Diag.cpp at v3.3.9)."""
    if isinstance(told, str):
        yield DiagWarning(told.strip())
    for one in told if isinstance(told, list) else ():
        if isinstance(one, str):
            yield DiagWarning(one.strip())
        elif isinstance(one, dict):
            text = one.get("warning", one.get("warnings"))
            yield DiagWarning(str(text or "").strip(), _number(one.get("error_id")), _number(one.get("error_severity")))


def _dicts(told: object) -> list[dict[str, Any]]:
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def _number(told: object) -> int | None:
    if isinstance(told, bool):
        return None
    if isinstance(told, int):
        return told if 0 <= told < 10**_MOST_DIGITS else None
    return (
        int(told)
        if isinstance(told, str) and told.isascii() and told.isdecimal() and len(told) <= _MOST_DIGITS
        else None
    )
