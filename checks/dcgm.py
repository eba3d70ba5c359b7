"""Health: what DCGM says where it is installed, read and explained, not rebuilt."""

from collections.abc import Iterable

from gpudoctor.chain import Link
from gpudoctor.facts.dcgm import FAILURE, HEALTHY, DcgmHealth, Incident
from gpudoctor.facts.dcgm_diag import FAILED, PASSED, SKIPPED, WARNED, DcgmDiag, DiagResult
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

SAME = (
    "health.ecc-uncorrected",
    "health.ecc-corrected",
    "health.sram-threshold",
    "health.row-remap-pending",
    "health.row-remap-failed",
    "health.row-remap-spares",
    "health.retired-pages",
    "health.memory-repair",
    "health.memory-unrepairable",
    "health.inforom",
    "health.ecc-mode",
    "health.memory-xids",
    "health.temperature",
    "health.memory-temperature",
    "health.throttling",
    "health.power-limit",
    "health.clocks",
    "health.persistence-mode",
    "health.pcie-replays",
    "health.pcie-under-load",
)
"""The checks that look at what DCGM looks at: where one of them has found it, DCGM's word is its consequence."""

WARNINGS = frozenset(SAME) - {
    "health.ecc-uncorrected",
    "health.sram-threshold",
    "health.row-remap-failed",
    "health.retired-pages",
    "health.memory-unrepairable",
    "health.memory-xids",
}
"""Those of which each finding is a warning: what DCGM's diagnosis says of the same is none the worse for being said by it."""


@check(
    "health.dcgm-health",
    link=Link.HEALTH,
    needs={Link.DRIVER_CUDA},
    explained_by=SAME,
    title="DCGM's health watches see nothing wrong",
)
def dcgm_health(dcgm: DcgmHealth, gpus: Reading[PciGpus], nvml: Reading[Nvml]) -> Verdicts:
    """DCGM watches counters over time: a rate that one look cannot tell. Its host engine keeps what it saw since it was started.

    Read with `dcgmi health -g 0 -c -j`, which sets no watch and loads no GPU, and only where an engine runs. DCGM numbers GPUs in NVML's
    order. Watches that nobody switched on see nothing, which is no verdict. "Warning" and "Failure" are DCGM's words (dcgmi/Health.cpp).
    """
    if dcgm.absent:
        yield NotApplicable(NODE, dcgm.absent, dcgm.seen)
    elif dcgm.unwatched:
        yield NotApplicable(NODE, "nobody switched DCGM's health watches on (dcgmi health -g 0 -s a)", dcgm.seen)
    elif not dcgm.incidents:
        if dcgm.overall == HEALTHY:
            yield Pass(NODE, "DCGM calls the node healthy", dcgm.seen)
        else:
            yield Unknown(NODE, Why.NOT_ANSWERED, f"DCGM says {dcgm.overall!r} and not why", dcgm.seen)
    by_entity: dict[tuple[str, int], list[Incident]] = {}
    for incident in dcgm.incidents:
        by_entity.setdefault((incident.group, incident.entity), []).append(incident)
    for (group, entity), incidents in by_entity.items():
        about = _subject(group, entity, gpus, nvml)
        yield _incidents(about, f"{group} {entity}: " if about is NODE else "", incidents)


def _incidents(about: AboutSubject, named: str, incidents: list[Incident]) -> Verdict:
    from gpudoctor.knowledge.dcgm_errors import BY_SEVERITY, MONITOR, TRIAGE

    failed = [incident for incident in incidents if incident.health == FAILURE]
    told = failed or incidents
    systems = ", ".join(dict.fromkeys(incident.system.removesuffix(" system") for incident in told))
    summary = f"DCGM watches {named}{systems}: {told[0].text or told[0].health}"
    evidence = tuple(incident.evidence for incident in incidents)
    if failed:
        return Fail(about, summary, evidence, BY_SEVERITY[TRIAGE], Breaks.NOTHING, cause=f"dcgm-health {systems}")
    return Warn(about, summary, evidence, BY_SEVERITY[MONITOR], cause=f"dcgm-health {systems}")


@check(
    "health.dcgm-diag",
    link=Link.HEALTH,
    needs={Link.DRIVER_CUDA},
    explained_by=(*SAME, "health.dcgm-health"),
    title="DCGM's diagnosis passes",
)
def dcgm_diag(diagnosis: DcgmDiag, gpus: Reading[PciGpus], nvml: Reading[Nvml]) -> Verdicts:
    """Some faults show under load only: memory that miscompares, a link that gives half its bandwidth, a board short of power.

    DCGM tests them; here its word is read and explained. It is run with `--active` only, and above level 1 on idle GPUs only; a recording
    or a saved file may hold one. A test that was skipped is no pass. Codes and severities as of DCGM 4.6; before 3.3 there is a text only.
    """
    if diagnosis.absent or not diagnosis.asked:
        yield NotApplicable(NODE, diagnosis.absent or "DCGM's diagnosis is run with --active only")
        return
    if diagnosis.error:
        shown = (diagnosis.evidence, Evidence(diagnosis.where, f"runtime_error: {diagnosis.error}"))
        yield Unknown(NODE, Why.NOT_ANSWERED, f"DCGM could not test: {diagnosis.error}", shown)
    bad = [result for result in diagnosis.results if result.status in (FAILED, WARNED)]
    by_entity: dict[tuple[int | None, str], list[DiagResult]] = {}
    for result in bad:
        by_entity.setdefault((result.gpu, result.entity), []).append(result)
    for (gpu, entity), results in by_entity.items():
        about = NODE if gpu is None else _subject("GPU", gpu, gpus, nvml)
        named = "" if about is not NODE else f"{entity}: " if entity else "" if gpu is None else f"GPU {gpu}: "
        yield _tests(about, named, results, diagnosis)
    if bad or diagnosis.error:
        return
    passed = sum(result.status == PASSED for result in diagnosis.results)
    if not passed:
        skipped = sum(result.status == SKIPPED for result in diagnosis.results)
        yield Unknown(NODE, Why.NOT_ANSWERED, f"no test was run ({skipped} were skipped)", (diagnosis.evidence,))
    else:
        yield Pass(NODE, f"{passed} tests passed, none failed", (diagnosis.evidence,))


def _tests(about: AboutSubject, named: str, results: list[DiagResult], diagnosis: DcgmDiag) -> Verdict:
    from gpudoctor.knowledge.dcgm_errors import BY_SEVERITY, CONFIG, MONITOR, RESET, SEVERITIES, TRIAGE, dcgm_error

    shown: list[Evidence] = []
    severities: set[str] = set()
    looked: dict[str, None] = {}
    mild = all(result.warnings for result in results)
    for result in results:
        for warning in result.warnings:
            error = dcgm_error(warning.code) if warning.code is not None else None
            severity = SEVERITIES.get(warning.severity or 0, error.severity if error is not None else TRIAGE)
            severities.add(severity)
            mild = mild and (severity in (MONITOR, CONFIG) or (error is not None and error.check in WARNINGS))
            code = f" ({error.name}, {severity})" if error is not None else ""
            shown.append(Evidence(diagnosis.where, f"{result.on}{result.test}: {result.status}: {warning.text}{code}"))
            if error is not None and error.check:
                looked[error.check] = None
        if not result.warnings:
            shown.append(Evidence(diagnosis.where, f"{result.test}: {result.status}, without a reason"))
    tests = ", ".join(dict.fromkeys(result.test for result in results))
    first = next((warning.text for result in results for warning in result.warnings if warning.text), "no reason given")
    also = f" (here: {', '.join(looked)})" if looked else ""
    summary = f"DCGM's test {named}{tests}: {first}{also}"
    if mild or all(result.status == WARNED for result in results):
        remedies = BY_SEVERITY[CONFIG if severities == {CONFIG} else RESET if RESET in severities else MONITOR]
        return Warn(about, summary, tuple(shown), remedies, cause=f"dcgm-diag {tests}")
    worst = next((one for one in ("isolate", "reset", TRIAGE) if one in severities), TRIAGE)
    return Fail(about, summary, tuple(shown), BY_SEVERITY[worst], Breaks.NOTHING, cause=f"dcgm-diag {tests}")


def _subject(group: str, entity: int, gpus: Reading[PciGpus], nvml: Reading[Nvml]) -> AboutSubject:
    """The GPU that DCGM numbers so, by NVML's order, on the bus where that is known; the node for anything else."""
    if group != "GPU" or isinstance(nvml, Unread):
        return NODE
    address = next((device.address for device in nvml.devices if device.index == entity), None)
    if address is None:
        return NODE
    listed: Iterable[AboutSubject] = () if isinstance(gpus, Unread) else gpus
    return next((gpu for gpu in listed if gpu.subject.key == address), Subject(SubjectKind.GPU, address))
