"""From outcomes to the report: root causes, what follows from them, the verdict and the exit code."""

import datetime
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec
from msgspec import Struct

from gpudoctor import __version__
from gpudoctor.chain import ORDER, Link
from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.gating import explain, possible_causes
from gpudoctor.knowledge import TABLES_DATE
from gpudoctor.outcome import Judgement, Outcome
from gpudoctor.report import SCHEMA, Finding, Node, NotSeen, Overall, Report, Result, RootCause, SharedGpu, Tool, Waived
from gpudoctor.verdicts import (
    MOST_SAID,
    MOST_SHOWN,
    AboutSubject,
    Fail,
    NotApplicable,
    Status,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Warn,
    Why,
    cut,
)

EXIT_CODES = {Overall.PASS: 0, Overall.WARN: 1, Overall.FAIL: 2, Overall.UNKNOWN: 3}

_STATUS_ORDER = {status: position for position, status in enumerate(Status)}


class Diagnosis(Struct):
    """Outcomes with their explanations: what every derived statement is computed from."""

    outcomes: tuple[Outcome, ...]
    explained: dict[str, tuple[str, ...]]

    @property
    def judgements(self) -> list[Judgement]:
        """All judgements, in chain order."""
        return [judgement for outcome in self.outcomes for judgement in outcome.judgements]


def diagnose(outcomes: tuple[Outcome, ...], desk: Desk) -> Diagnosis:
    """Find what explains what."""
    judgements = [judgement for outcome in outcomes for judgement in outcome.judgements]
    populations: dict[str, Sequence[AboutSubject]] = {}
    for outcome in outcomes:
        if outcome.check.over is not None:
            population = desk.get(outcome.check.over)
            if not isinstance(population, Unread) and population.unlisted is None:
                populations[outcome.check.id] = population.members
    return Diagnosis(outcomes, explain(judgements, populations))


def report_on(  # noqa: PLR0913 - what makes a report
    diagnosis: Diagnosis,
    *,
    wanted: frozenset[str],
    skipped: frozenset[str] = frozenset(),
    unread: Sequence[Unread] = (),
    node: Node,
    config: Config,
    started_at: datetime.datetime,
    seconds: float,
    sharing: tuple[SharedGpu, ...] = (),
) -> Report:
    """The report about the wanted checks and about whatever blocks or explains them, never about a skipped one."""
    shown = _with_explaining(diagnosis, wanted) - skipped
    outcomes = [outcome for outcome in diagnosis.outcomes if outcome.check.id in shown]
    ids = {judgement.id for outcome in outcomes for judgement in outcome.judgements}
    # What only a skipped check explains stands for itself: the skip must not excuse it.
    explained = {
        finding: tuple(cause for cause in by if cause in ids)
        for finding, by in diagnosis.explained.items()
        if finding in ids and not ids.isdisjoint(by)
    }
    narrowed = Diagnosis(tuple(outcomes), explained)
    root_causes = tuple(_root_causes(narrowed))
    overall = _overall(narrowed)
    weight = {finding: len(cause.consequence_ids) for cause in root_causes for finding in cause.findings}
    results = [_result(outcome, narrowed, weight, ids) for outcome in outcomes]
    return Report(
        schema=SCHEMA,
        tool=Tool("gpudoctor", __version__, TABLES_DATE, _digest(config)),
        node=node,
        started_at=started_at.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(seconds, 3),
        verdict=overall,
        exit_code=EXIT_CODES[overall],
        root_causes=root_causes,
        results=tuple(sorted(results, key=lambda result: _result_order(result, weight))),
        not_seen=tuple(_not_seen(narrowed, unread)),
        sharing=sharing,
    )


def _digest(config: Config) -> str:
    return f"crc32:{zlib.crc32(msgspec.json.encode(config, order='sorted')):08x}"


def _with_explaining(diagnosis: Diagnosis, wanted: frozenset[str]) -> frozenset[str]:
    """The wanted checks and, transitively, those whose findings block or explain them: ids in a report resolve in it."""
    shown: set[str] = set()
    todo = list(wanted)
    by_id = {outcome.check.id: outcome for outcome in diagnosis.outcomes}
    while todo:
        check_id = todo.pop()
        if check_id in shown or check_id not in by_id:
            continue
        shown.add(check_id)
        outcome = by_id[check_id]
        findings = [
            *outcome.blocked_by,
            *(by for one in outcome.judgements for by in diagnosis.explained.get(one.id, ())),
        ]
        todo.extend(finding.split("@", 1)[0] for finding in findings)
    return frozenset(shown)


def _counting(diagnosis: Diagnosis) -> frozenset[str]:
    """Ids of judgements that count: not waived, and not explained by waived ones alone."""
    counting: set[str] = set()
    for judgement in diagnosis.judgements:
        by = diagnosis.explained.get(judgement.id, ())
        if judgement.waiver is None and (not by or not counting.isdisjoint(by)):
            counting.add(judgement.id)
    return frozenset(counting)


def _overall(diagnosis: Diagnosis) -> Overall:
    counting = _counting(diagnosis)
    statuses = {judgement.status for judgement in diagnosis.judgements if judgement.id in counting}
    if Status.FAIL in statuses:
        return Overall.FAIL
    if any(_leaves_essential_open(outcome, counting) for outcome in diagnosis.outcomes):
        return Overall.UNKNOWN
    if Status.WARN in statuses:
        return Overall.WARN
    return Overall.PASS if _passes_something(diagnosis) else Overall.UNKNOWN


def _passes_something(diagnosis: Diagnosis) -> bool:
    """A pass needs a positive statement: where essential questions were asked, an answer to one of them."""
    asked = [outcome for outcome in diagnosis.outcomes if outcome.check.essential and outcome.skipped != "disabled"]
    answering = asked or list(diagnosis.outcomes)
    return any(judgement.status is Status.PASS for outcome in answering for judgement in outcome.judgements)


def _leaves_essential_open(outcome: Outcome, counting: frozenset[str]) -> bool:
    """An essential check that could not tell, or that is blocked by waived fails only."""
    if not outcome.check.essential:
        return False
    if outcome.blocked_by:
        return counting.isdisjoint(outcome.blocked_by)
    return any(judgement.status is Status.UNKNOWN and judgement.id in counting for judgement in outcome.judgements)


def _root_causes(diagnosis: Diagnosis) -> list[RootCause]:
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in diagnosis.judgements:
        verdict = judgement.verdict
        if isinstance(verdict, (Fail, Warn)) and judgement.id not in diagnosis.explained and judgement.waiver is None:
            groups.setdefault((judgement.check.id, verdict.cause or judgement.id), []).append(judgement)
    causes = [_root_cause(group, diagnosis) for group in groups.values()]
    return sorted(
        causes,
        key=lambda cause: (
            _STATUS_ORDER[cause.status],
            ORDER[cause.link],
            -len(cause.consequence_ids),
            cause.check,
            cause.subjects[0].key,
        ),
    )


def _root_cause(group: Sequence[Judgement], diagnosis: Diagnosis) -> RootCause:
    ids = tuple(sorted(judgement.id for judgement in group))
    subjects = tuple(sorted(_subjects(group), key=lambda subject: (subject.kind.value, subject.key)))
    worst = min((judgement.status for judgement in group), key=lambda status: _STATUS_ORDER[status])
    return RootCause(
        findings=ids,
        check=group[0].check.id,
        link=group[0].check.link,
        subjects=subjects,
        status=worst,
        summary=_in_words(group, subjects),
        consequence_ids=_consequences(frozenset(ids), diagnosis.explained),
    )


def _in_words(group: Sequence[Judgement], subjects: Sequence[Subject]) -> str:
    """The first finding's words after whom they are about; how many more there are that say it of something else."""
    first, *others = dict.fromkeys(_summary(judgement) for judgement in group)
    words = first + more_like_it(len(others))
    return cut(words if subjects[0].kind is SubjectKind.NODE else f"{label(subjects)}: {words}", MOST_SHOWN)


def _subjects(group: Sequence[Judgement]) -> Iterator[Subject]:
    seen: dict[str, Subject] = {judgement.verdict.subject.id: judgement.verdict.subject for judgement in group}
    yield from seen.values()


def label(subjects: Sequence[Subject]) -> str:
    """How people call these subjects: `GPU 0000:3a:00.0`, `8 GPUs`, `file /etc/docker/daemon.json`."""
    words = {
        SubjectKind.GPU: "GPU",
        SubjectKind.NIC: "NIC",
        SubjectKind.NVSWITCH: "NVSwitch",
        SubjectKind.MIG: "MIG instance",
    }
    word = words.get(subjects[0].kind, subjects[0].kind.value)
    if len({subject.kind for subject in subjects}) > 1:
        return f"{len(subjects)} subjects"
    if len(subjects) > 1:
        return f"{len(subjects)} {word}{'es' if word.endswith('ch') else 's'}"
    if subjects[0].kind is SubjectKind.NODE:
        return word
    if subjects[0].kind is SubjectKind.SERVICE:
        return subjects[0].key
    return f"{word} {subjects[0].key}"


def more_like_it(others: int) -> str:
    """What follows the words of one finding that stands for others too."""
    return f" (and {others} more like it)" if others else ""


def _summary(judgement: Judgement) -> str:
    verdict = judgement.verdict
    return cut(verdict.reason if isinstance(verdict, NotApplicable) else verdict.summary, MOST_SAID)


def _consequences(roots: frozenset[str], explained: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    reached = set(roots)
    grown = True
    while grown:
        more = {finding for finding, by in explained.items() if not reached.isdisjoint(by)} - reached
        reached |= more
        grown = bool(more)
    return tuple(sorted(reached - roots))


def _result(outcome: Outcome, diagnosis: Diagnosis, weight: Mapping[str, int], ids: Set[str]) -> Result:
    findings = [_finding(judgement, diagnosis) for judgement in outcome.judgements]
    findings.sort(
        key=lambda finding: (_STATUS_ORDER[finding.status], -weight.get(finding.id, 0), finding.subject.key, finding.id)
    )
    status = outcome.status
    why = outcome.skipped
    if status is Status.UNKNOWN:
        whys = [finding.why for finding in findings if finding.why is not None]
        why = Why.CRASHED.value if Why.CRASHED in whys else whys[0].value
    return Result(
        check=outcome.check.id,
        link=outcome.check.link,
        title=outcome.check.title,
        status=status,
        why=why,
        detail=cut(outcome.detail or _detail(status, findings) or _blocked_by_hidden(outcome, ids), MOST_SHOWN),
        blocked_by=tuple(finding for finding in outcome.blocked_by if finding in ids),
        essential=outcome.check.essential,
        findings=tuple(findings),
    )


def detail_of(outcome: Outcome) -> str:
    """What a report will say of a check in one line, before it is known what explains what."""
    findings = [_finding(judgement, Diagnosis((outcome,), {})) for judgement in outcome.judgements]
    return outcome.detail or _detail(outcome.status, findings)


def _blocked_by_hidden(outcome: Outcome, ids: Set[str]) -> str:
    """What blocks it although the report does not show it, because it was skipped."""
    hidden = sorted({finding.split("@", 1)[0] for finding in outcome.blocked_by if finding not in ids})
    return f"by {', '.join(hidden)}, which was skipped" if hidden else ""


def _detail(status: Status, findings: Sequence[Finding]) -> str:
    """One line for the whole check: how many are at its worst status, and what is said of them."""
    worst = [finding for finding in findings if finding.status is status]
    if not worst:
        return ""
    summaries = list(dict.fromkeys(finding.summary for finding in worst))
    if worst[0].subject.kind is SubjectKind.NODE:
        return summaries[0]
    who = label([finding.subject for finding in worst])
    if len(worst) != len(findings) and worst[0].subject.kind is SubjectKind.GPU:
        gpus = {finding.subject.key for finding in findings if finding.subject.kind is SubjectKind.GPU}
        who = f"{len(worst)} of {len(gpus)} GPUs" + (f" ({worst[0].subject.key})" if len(worst) == 1 else "")
    if len(summaries) > 1 and status is Status.PASS:
        return who
    return f"{who}: {summaries[0]}{more_like_it(len(summaries) - 1)}"


def _result_order(result: Result, weight: Mapping[str, int]) -> tuple[int, int, int, str]:
    heaviest = max((weight.get(finding.id, 0) for finding in result.findings), default=0)
    return (_STATUS_ORDER[result.status], ORDER[Link(result.link)], -heaviest, result.check)


def _finding(judgement: Judgement, diagnosis: Diagnosis) -> Finding:
    verdict = judgement.verdict
    caused_by = diagnosis.explained.get(judgement.id, ())
    wrong = verdict if isinstance(verdict, (Fail, Warn)) else None
    unknown = verdict if isinstance(verdict, Unknown) else None
    waiver = judgement.waiver
    return Finding(
        id=judgement.id,
        subject=verdict.subject,
        status=judgement.status,
        summary=_summary(judgement),
        cause=cut(wrong.cause, MOST_SAID) if wrong else "",
        why=unknown.why if unknown else None,
        would_need=unknown.would_need if unknown else "",
        breaks=verdict.breaks.value if isinstance(verdict, Fail) else None,
        evidence=verdict.evidence,
        remedies=wrong.remedies if wrong else (),
        caused_by=caused_by,
        possible_causes=possible_causes(judgement, diagnosis.judgements) if wrong and not caused_by else (),
        references=wrong.references if wrong else (),
        waived=Waived(waiver.reason, waiver.until.isoformat() if waiver.until else None) if waiver else None,
    )


def _not_seen(diagnosis: Diagnosis, unread: Sequence[Unread]) -> list[NotSeen]:
    """What checks could not tell, and facts that could not be read although some check went on without them."""
    seen: dict[str, NotSeen] = {}
    for judgement in diagnosis.judgements:
        if isinstance(judgement.verdict, Unknown):
            unknown, summary = judgement.verdict, _summary(judgement)
            seen.setdefault(summary, NotSeen(summary, unknown.why, unknown.would_need))
    for fact in unread:
        summary = cut(f"{fact.where}: {fact.detail}", MOST_SAID)
        seen.setdefault(summary, NotSeen(summary, fact.why, fact.would_need))
    return list(seen.values())
