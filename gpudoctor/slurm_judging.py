"""What a report says of the checks for whose fails a node may be drained: which failed, which could not tell, which passed."""

from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.config import Config, ConfigError, nearest
from gpudoctor.registry import Registry
from gpudoctor.report import Finding, Report, Result
from gpudoctor.verdicts import Status, SubjectKind


class Marked(Struct, frozen=True):
    """The marked checks of one report. `fails` are findings that count, by check; `open` are checks that neither failed nor passed.

    `passes` are the addresses of GPUs that passed, by check.
    """

    fails: dict[str, tuple[Finding, ...]]
    open: dict[str, str]
    passes: dict[str, frozenset[str]]

    @property
    def all_pass(self) -> bool:
        """Whether every one of them that applies passes, and at least one does."""
        return not self.fails and not self.open and bool(self.passes)


def marked_checks(config: Config, registry: Registry) -> tuple[str, ...]:
    """The ids of the checks a node is drained for. Raises ConfigError when the configuration names one that does not isolate."""
    marks = tuple(check.id for check in registry if check.isolates)
    if config.slurm.drain_on is None:
        return marks
    for check_id in config.slurm.drain_on:
        if check_id not in marks:
            raise ConfigError(
                f"slurm.drain_on: no node is drained for {check_id!r}{nearest(check_id, marks)}; those are: {', '.join(marks)}"
            )
    return tuple(check_id for check_id in marks if check_id in config.slurm.drain_on)


def judge(report: Report, marks: Iterable[str], essential: Iterable[str] = ()) -> Marked:
    """Sort the marked checks of a report. A waived fail does not count, nor one that only waived ones explain.

    What the driver is to be asked for does not apply to a GPU for which it does not answer, so that a hang could look like health: with
    `essential`, the checks that see to it, whatever is wrong with them leaves things open.
    """
    counting = _Counting(report)
    results = {result.check: result for result in report.results}
    fails: dict[str, tuple[Finding, ...]] = {}
    still_open: dict[str, str] = {}
    passes: dict[str, frozenset[str]] = {}
    for check_id in marks:
        result = results.get(check_id)
        if result is None:
            still_open[check_id] = "was not asked"
            continue
        found = tuple(
            finding for finding in result.findings if finding.status is Status.FAIL and counting.counts(finding)
        )
        if found:
            fails[check_id] = found
        elif result.status is Status.PASS:
            passes[check_id] = frozenset(_gpus(result, Status.PASS))
        elif result.status is not Status.SKIP:
            still_open[check_id] = _why_open(result)
    for check_id in essential:
        result = results.get(check_id)
        if result is not None and result.status not in (Status.PASS, Status.SKIP):
            still_open[check_id] = _why_open(result)
    return Marked(fails, still_open, passes)


def essential_checks(registry: Registry) -> tuple[str, ...]:
    """The checks that tell whether the node's GPUs were seen at all."""
    return tuple(check.id for check in registry if check.essential)


def _gpus(result: Result, status: Status) -> Iterable[str]:
    return (
        finding.subject.key
        for finding in result.findings
        if finding.status is status and finding.subject.kind is SubjectKind.GPU
    )


def _why_open(result: Result) -> str:
    """Why a check that did not fail did not pass either."""
    if result.status is Status.BLOCKED:
        return f"blocked by {', '.join(result.blocked_by[:2])}"
    worst = next((finding for finding in result.findings if finding.status is result.status), None)
    waived = " (waived)" if worst is not None and worst.waived is not None else ""
    return f"{result.status.value}{waived}: {worst.summary if worst is not None else result.detail}"


class _Counting:
    """Which findings of a report count, as its verdict has it."""

    def __init__(self, report: Report) -> None:
        self._findings = {finding.id: finding for result in report.results for finding in result.findings}

    def counts(self, finding: Finding, seen: frozenset[str] = frozenset()) -> bool:
        """Not waived, and not explained by findings alone that do not count."""
        if finding.waived is not None or finding.id in seen:
            return False
        causes = [self._findings[cause] for cause in finding.caused_by if cause in self._findings]
        return not causes or any(self.counts(cause, seen | {finding.id}) for cause in causes)
