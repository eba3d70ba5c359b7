"""Root causes as the page tells them: what is broken, how that is known, what to do, what follows from it."""

from collections.abc import Sequence

from msgspec import Struct

from gpudoctor.diagnosis import label
from gpudoctor.report import Finding, Report, Result, RootCause
from gpudoctor.reports.words import distinct_evidence
from gpudoctor.verdicts import Action, Breaks, Evidence, Remedy, Status


class Step(Struct, frozen=True):
    """A remedy, once for all subjects of which it says the same; `who` names them where others are told something else."""

    word: str
    who: str
    action: Action
    say: str
    interrupts: str
    commands: tuple[str, ...]
    confirms: tuple[str, ...]


class CauseView(Struct, frozen=True):
    """A root cause with what the report says elsewhere about its findings."""

    number: int
    cause: RootCause
    findings: tuple[Finding, ...]
    breaks: str
    evidence: tuple[Evidence, ...]
    steps: tuple[Step, ...]
    unseen: tuple[str, ...]
    references: tuple[str, ...]
    consequences: tuple[Finding, ...]
    blocks: tuple[Result, ...]

    @property
    def follows(self) -> tuple[tuple[Finding, ...], ...]:
        """The consequences, those of one check that say the same put together."""
        groups: dict[tuple[str, Status, str], list[Finding]] = {}
        for one in self.consequences:
            groups.setdefault((one.id.partition("@")[0], one.status, one.summary), []).append(one)
        return tuple(tuple(group) for group in groups.values())


def causes_of(report: Report) -> tuple[CauseView, ...]:
    """The root causes in the report's order."""
    found = {finding.id: finding for result in report.results for finding in result.findings}
    return tuple(_cause(number, cause, report, found) for number, cause in enumerate(report.root_causes, start=1))


def steps(findings: Sequence[Finding]) -> tuple[Step, ...]:
    """The remedies of findings with one cause, place by place, those that say the same put together."""
    told: list[Step] = []
    for place in range(max((len(finding.remedies) for finding in findings), default=0)):
        alike: dict[tuple[Action, str, str, bool], list[Finding]] = {}
        for finding in findings:
            if place < len(finding.remedies):
                remedy = finding.remedies[place]
                alike.setdefault((remedy.action, remedy.say, remedy.interrupts, remedy.then), []).append(finding)
        told += [_step(group, place, alone=len(alike) == 1) for group in alike.values()]
    return tuple(told)


def _step(findings: Sequence[Finding], place: int, *, alone: bool) -> Step:
    remedies = [finding.remedies[place] for finding in findings]
    return Step(
        word=word_for(place, remedies[0]),
        who="" if alone else label([finding.subject for finding in findings]),
        action=remedies[0].action,
        say=remedies[0].say,
        interrupts=remedies[0].interrupts,
        commands=tuple(dict.fromkeys(command for remedy in remedies for command in remedy.run)),
        confirms=tuple(dict.fromkeys(remedy.confirm for remedy in remedies if remedy.confirm)),
    )


def word_for(place: int, remedy: Remedy) -> str:
    """Remedies go from the safest up: each stands instead of the one before, or comes after it."""
    if place == 0:
        return "next"
    return "then" if remedy.then else "or"


def _breaks(findings: Sequence[Finding]) -> str:
    """How far it reaches, in words; nothing for a warning."""
    worst = {finding.breaks for finding in findings}
    if Breaks.NODE.value in worst:
        return "the whole node"
    if Breaks.SUBJECT.value in worst:
        subjects = list({finding.subject.id: finding.subject for finding in findings}.values())
        return f"{label(subjects)}, and what stands on {'it' if len(subjects) == 1 else 'them'}"
    return "nothing beyond itself" if Breaks.NOTHING.value in worst else ""


def _cause(number: int, cause: RootCause, report: Report, found: dict[str, Finding]) -> CauseView:
    findings = tuple(found[finding_id] for finding_id in cause.findings)
    reached = {*cause.findings, *cause.consequence_ids}
    return CauseView(
        number=number,
        cause=cause,
        findings=findings,
        breaks=_breaks(findings),
        evidence=tuple(distinct_evidence(findings)),
        steps=steps(findings),
        unseen=tuple(dict.fromkeys(one.split("@", 1)[0] for finding in findings for one in finding.possible_causes)),
        references=tuple(dict.fromkeys(one for finding in findings for one in finding.references)),
        consequences=tuple(found[one] for one in cause.consequence_ids if one in found),
        blocks=tuple(
            result
            for result in report.results
            if result.status is Status.BLOCKED and not reached.isdisjoint(result.blocked_by)
        ),
    )
