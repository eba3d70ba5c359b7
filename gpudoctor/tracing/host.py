"""Whether the node itself is well for the GPUs of a workload: by the root causes that a run of its checks found."""

from collections.abc import Iterable

from gpudoctor.chain import Link
from gpudoctor.report import Finding, Report, RootCause
from gpudoctor.trace import Step, StepId, failed, passed, unknown, warned
from gpudoctor.tracing.ground import Ground
from gpudoctor.verdicts import Evidence, Status, SubjectKind, Unread, Why

BELOW = (
    Link.PCIE,
    Link.KERNEL_MODULE,
    Link.DEVICE_NODES,
    Link.DRIVER_CUDA,
    Link.FABRIC,
    Link.SHARING,
    Link.CUDA_INIT,
    Link.HEALTH,
)
"""The links that a running workload stands on. A broken runtime or device plugin harms those that are to be started."""
NODE_WIDE = (SubjectKind.NODE, SubjectKind.FILE, SubjectKind.NVSWITCH, SubjectKind.SERVICE)
MOST_CITED = 4
ANY_SHARING = (f"{Link.SHARING.value}.",)


def running_with(*, mps: bool) -> tuple[str, ...]:
    """Checks of services by which a workload that runs shares a GPU: MPS has clients, the device plugin and Slurm begin workloads only."""
    return ("sharing.vgpu-", "sharing.mps-") if mps else ("sharing.vgpu-",)


def judge_host(ground: Ground, addresses: Iterable[str], sharing: tuple[str, ...] = ANY_SHARING) -> Step:
    """`addresses` are the GPUs that were asked for or are inside; where none is known, all of the node's count.

    `sharing` is how the checks begin of whose services the workload needs.
    """
    gpus = frozenset(addresses) or frozenset(gpu.address for gpu in ground.gpus)
    report = ground.report
    causes = [cause for cause in report.root_causes if cause.link in BELOW and _concerns(cause, gpus, sharing)]
    broken = [cause for cause in causes if cause.status is Status.FAIL]
    if broken:
        return failed(StepId.HOST, _words(broken), _evidence(report, broken[0]), *_first(report, broken[0]).remedies)
    if unseen := _unseen(report, gpus):
        return unseen
    if causes:
        return warned(StepId.HOST, _words(causes), _evidence(report, causes[0]), *_first(report, causes[0]).remedies)
    return _well(report, gpus)


def _concerns(cause: RootCause, gpus: frozenset[str], sharing: tuple[str, ...]) -> bool:
    served = cause.link is not Link.SHARING or cause.check.startswith(sharing)
    return any(
        (subject.kind in NODE_WIDE and (served or subject.kind is not SubjectKind.SERVICE))
        or (subject.kind is SubjectKind.GPU and subject.key in gpus)
        for subject in cause.subjects
    )


def _first(report: Report, cause: RootCause) -> Finding:
    return report.finding(cause.findings[0])


def _words(causes: list[RootCause]) -> str:
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return f"{causes[0].check}: {causes[0].summary}{more}"


def _evidence(report: Report, cause: RootCause) -> tuple[Evidence, ...]:
    return _first(report, cause).evidence[:MOST_CITED]


def _unseen(report: Report, gpus: frozenset[str]) -> Step | None:
    """An essential question about these GPUs that nobody could answer."""
    for result in report.results:
        if not result.essential or result.link not in BELOW:
            continue
        for finding in result.findings:
            about = finding.subject.kind in NODE_WIDE or finding.subject.key in gpus
            if finding.status is Status.UNKNOWN and about and not finding.caused_by:
                why = finding.why or Why.NOT_ANSWERED
                return unknown(StepId.HOST, Unread(why, result.check, finding.summary, finding.would_need))
    return None


def _well(report: Report, gpus: frozenset[str]) -> Step:
    """A positive statement about these GPUs, from the essential checks."""
    seen = [
        finding.evidence[0]
        for result in report.results
        if result.essential and result.link in BELOW
        for finding in result.findings
        if finding.status is Status.PASS and finding.evidence
        if finding.subject.kind in NODE_WIDE or finding.subject.key in gpus
    ]
    number = sum(result.status is Status.PASS for result in report.results if result.link in BELOW)
    if not seen:
        nothing = Unread(Why.NOT_ANSWERED, "the node's checks", "no essential check of the node has an answer")
        return unknown(StepId.HOST, nothing)
    cited = tuple(dict.fromkeys(seen))[:MOST_CITED]
    return passed(StepId.HOST, f"{number} checks of the node passed, and nothing is wrong with its GPUs", cited)
