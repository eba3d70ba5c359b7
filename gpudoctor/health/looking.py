"""What a report says of what is wrong now, and of what was: nothing is judged here that the report does not say."""

from collections.abc import Iterable, Mapping

from gpudoctor.health.cached import NOT_ENDED
from gpudoctor.health.episodes import Episode, Fate, Seen
from gpudoctor.registry import Registry
from gpudoctor.report import Finding, Overall, Report, Result, counts
from gpudoctor.verdicts import Status, SubjectKind, Why

NVML_ANSWERS = "driver-cuda.nvml-answers"
LEFT = {
    SubjectKind.GPU: "the GPU is no longer on the PCI bus",
    SubjectKind.NVSWITCH: "the NVSwitch is no longer on the PCI bus",
}
"""What was wrong and has left the bus has not healed, whether it fell off or somebody took it away."""


class Looking:
    """One report with what it takes to ask what counts in it.

    `idle` are the words with which NVML was left alone, "" where it was not; `on_bus` the addresses of the GPUs and NVSwitches on PCI.
    """

    def __init__(
        self, report: Report, registry: Registry, idle: str = "", on_bus: frozenset[str] = frozenset()
    ) -> None:
        self.report = report
        self._idle = idle
        self._on_bus = on_bus
        self._results = {result.check: result for result in report.results}
        self._findings = {finding.id: finding for result in report.results for finding in result.findings}
        # A GPU that fails a check that isolates is of no use to any job, and an essential check says whether GPUs are seen at all.
        self._hard = frozenset(check.id for check in registry if check.essential or check.isolates)
        self._below_hard = self._found_below_hard()

    def wrong(self) -> tuple[Seen, ...]:
        """Every warn and fail that counts, and what essential checks could not tell."""
        return tuple(
            _seen(result, finding, hard=self._is_hard(result, finding))
            for result in self.report.results
            for finding in result.findings
            if self._is_wrong(result, finding)
        )

    def fates(self, episodes: Iterable[Episode]) -> Mapping[str, tuple[Fate, str]]:
        """What has become of each finding that was wrong, where it is not any more, with a word on what cannot be seen."""
        return {one.finding: self._fate(one) for one in episodes}

    def open_question(self) -> bool:
        """Whether the report's verdict is unknown for another reason than an idle node's NVML or what an episode tells of."""
        if self.report.verdict is not Overall.UNKNOWN:
            return False
        essential = [result for result in self.report.results if result.essential and result.why != "disabled"]
        asked = essential or self.report.results
        if not any(finding.status is Status.PASS for result in asked for finding in result.findings):
            return True
        return any(
            result.status is Status.BLOCKED and not any(self._by_id_counts(by) for by in result.blocked_by)
            for result in essential
        )

    def idle_only(self, result: Result) -> bool:
        """Whether a check did not look for no other reason than that NVML was left alone."""
        unknown = [finding for finding in result.findings if finding.status is Status.UNKNOWN]
        return bool(unknown) and all(self._of_idleness(finding) for finding in unknown)

    def _is_wrong(self, result: Result, finding: Finding) -> bool:
        if finding.status in (Status.FAIL, Status.WARN):
            return counts(finding, self._findings)
        if finding.status is Status.UNKNOWN and result.essential and counts(finding, self._findings):
            return not (result.check == NVML_ANSWERS and self._of_idleness(finding))
        return False

    def _is_hard(self, result: Result, finding: Finding) -> bool:
        """What is certain at first sight, explains that, or keeps an essential check from looking."""
        if finding.status is Status.WARN:
            return False
        return result.check in self._hard or finding.id in self._below_hard

    def _found_below_hard(self) -> frozenset[str]:
        """What blocks essential checks, and what explains findings that are certain, down to the last cause."""
        results = self.report.results
        found = {by for result in results if result.essential for by in result.blocked_by}
        hard = ((result, one) for result in results if result.check in self._hard for one in result.findings)
        certain = (one.id for result, one in hard if one.status is not Status.WARN and self._is_wrong(result, one))
        todo = [*found, *certain]
        while todo:
            one = self._findings.get(todo.pop())
            new = set(one.caused_by) - found if one is not None else set()
            found |= new
            todo += new
        return frozenset(found)

    def _of_idleness(self, finding: Finding) -> bool:
        return bool(self._idle) and finding.why is Why.WITHHELD and self._idle in finding.summary

    def _by_id_counts(self, finding: str) -> bool:
        return finding in self._findings and counts(self._findings[finding], self._findings)

    def _fate(self, episode: Episode) -> tuple[Fate, str]:
        if episode.check == NOT_ENDED:
            return Fate.WELL, ""
        result = self._results.get(episode.check)
        if result is None or result.why == "disabled":
            return Fate.UNASKED, ""
        finding = self._findings.get(episode.finding)
        if finding is None:
            return self._without_finding(result, episode)
        match finding.status:
            case Status.PASS:
                return Fate.WELL, ""
            case Status.UNKNOWN:
                return Fate.UNSEEN, finding.summary
            case Status.FAIL | Status.WARN:
                return Fate.WAIVED, ""
            case _:
                # That a check no longer applies to it is no wonder then.
                left = self._left(episode)
                return (Fate.UNSEEN, left) if left else (Fate.GONE, "")

    def _without_finding(self, result: Result, episode: Episode) -> tuple[Fate, str]:
        """The check says nothing of it any more: it passes, it has lost its subject, or nobody could look."""
        if result.status is Status.BLOCKED:
            return Fate.HIDDEN, " ".join(result.blocked_by)
        same = [finding for finding in result.findings if finding.subject.kind.value == episode.kind]
        told = [finding for finding in same if finding.subject.key == episode.key]
        if any(finding.status in (Status.PASS, Status.FAIL, Status.WARN) for finding in told):
            return Fate.WELL, ""
        unknown = next((one for one in (*told, *result.findings) if one.status is Status.UNKNOWN), None)
        if unknown is not None:
            return Fate.UNSEEN, unknown.summary
        passes = any(finding.status is Status.PASS for finding in result.findings)
        if left := self._left(episode):
            return Fate.UNSEEN, left
        there = episode.kind in (SubjectKind.NODE.value, SubjectKind.GPU.value)
        return (Fate.WELL if passes and there else Fate.GONE), ""

    def _left(self, episode: Episode) -> str:
        """Words on a GPU or an NVSwitch that has left the bus, "" for one that is there, and for anything else."""
        return "" if episode.key in self._on_bus else LEFT.get(SubjectKind(episode.kind), "")


def _seen(result: Result, finding: Finding, *, hard: bool) -> Seen:
    return Seen(
        finding=finding.id,
        check=result.check,
        link=result.link.value,
        kind=finding.subject.kind.value,
        key=finding.subject.key,
        status=finding.status,
        cause=finding.cause,
        summary=finding.summary,
        causes=finding.caused_by,
        hard=hard,
    )
