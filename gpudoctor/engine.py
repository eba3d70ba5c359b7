"""The engine: runs checks in chain order over facts, gates each by what it stands on, and collects the outcomes."""

import datetime
from collections.abc import Callable, Sequence

from gpudoctor.chain import ORDER, Link, with_everything_below
from gpudoctor.config import Waiver
from gpudoctor.facts.desk import Desk, Population
from gpudoctor.gating import Breakage, breakers, remember_breakage
from gpudoctor.outcome import Judgement, Outcome
from gpudoctor.registry import Check, Registry, loaded
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Fail,
    NotApplicable,
    Subject,
    Unknown,
    Unread,
    Verdict,
    Warn,
    Why,
)

BUG_REPORT_HINT = "this is a bug in gpudoctor: please report it with the output of `gpudoctor record`"


def run_checks(
    registry: Registry,
    desk: Desk,
    ids: frozenset[str],
    today: datetime.date,
    watch: Callable[[Outcome], None] | None = None,
) -> tuple[Outcome, ...]:
    """Run the checks named by `ids`, in chain order, and tell `watch` each outcome. A crashing check costs its own answer only."""
    breakage = Breakage()
    outcomes = []
    for check in registry:
        if check.id not in ids:
            continue
        if check.id in desk.config.disable:
            outcome = Outcome(check, skipped="disabled", detail="switched off in the configuration")
        else:
            ready = loaded(check, desk)
            outcome = _run(ready, desk, breakage, today)
            remember_breakage(breakage, ready.link, outcome.judgements, _whole_population(ready, desk))
        outcomes.append(outcome)
        if watch is not None:
            watch(outcome)
    return tuple(outcomes)


def _whole_population(check: Check, desk: Desk) -> Sequence[AboutSubject] | None:
    """The members of a completely listed population, None when it is not that."""
    if check.over is None:
        return None
    population = desk.get(check.over)
    if isinstance(population, Unread) or population.unlisted is not None:
        return None
    return population.members


def _run(check: Check, desk: Desk, breakage: Breakage, today: datetime.date) -> Outcome:
    if blockers := _blockers(check.needs, breakage, (NODE,)):
        return Outcome(check, blocked_by=blockers)
    if check.over is None:
        return _judged(check, (NODE,), desk, breakage, today)
    population = desk.get(check.over)
    if isinstance(population, Unread):
        verdicts = _ask(check, desk, (NODE,)) if _judges_unseen(check) else [population.about(NODE)]
        return _outcome(check, verdicts, desk, today)
    return _run_over(check, population, desk, breakage, today)


def _judges_unseen(check: Check) -> bool:
    """Whether a check has something to say of a population of which nothing is seen: it asks for `Reading[Population]`."""
    return any(need.fact is check.over and need.judges_unread for need in check.parameters)


def _run_over(check: Check, population: Population, desk: Desk, breakage: Breakage, today: datetime.date) -> Outcome:
    members = population.members
    if not members:
        if population.unlisted is None:
            return Outcome(check, skipped="not-applicable", detail=population.NOTHING)
        verdicts = _ask(check, desk, (NODE,)) if _judges_unseen(check) else [population.unlisted.about(NODE)]
        return _outcome(check, verdicts, desk, today)
    return _judged(check, members, desk, breakage, today)


def _judged(
    check: Check, members: Sequence[AboutSubject], desk: Desk, breakage: Breakage, today: datetime.date
) -> Outcome:
    """What a check says of members, unless a link that it or one of its facts needs is down for all of them."""
    by_links = _blockers(check.needs, breakage, members)
    if blockers := by_links or _blockers(_unread_links(check, desk), breakage, members):
        return Outcome(check, blocked_by=blockers)
    return _outcome(check, _ask(check, desk, members), desk, today)


def _unread_links(check: Check, desk: Desk) -> frozenset[Link]:
    """The links without which a fact that the check needs could not be read, of those facts that were not."""
    unread = [
        need.fact.OF
        for need in check.parameters
        if need.fact.OF is not None and not need.judges_unread and isinstance(desk.get(need.fact), Unread)
    ]
    return with_everything_below(frozenset(unread)) - {check.link} if unread else frozenset()


def _blockers(links: frozenset[Link], breakage: Breakage, members: Sequence[AboutSubject]) -> tuple[str, ...]:
    """The findings that make one needed link down for every member; several links down for a part each block nothing."""
    found: list[str] = []
    # On a node without fails, which most are, there is nothing to go through.
    down = [link for link in links if link in breakage.everywhere or link in breakage.by_link]
    for link in sorted(down, key=lambda link: ORDER[link]):
        broken = [breakers(breakage, (link,), member.subject) for member in members]
        if all(broken):
            found.extend(finding for some in broken for finding in some)
    return tuple(dict.fromkeys(found))


def _ask(check: Check, desk: Desk, members: Sequence[AboutSubject]) -> list[Verdict]:
    facts = []
    for need in check.parameters:
        fact = desk.get(need.fact)
        if isinstance(fact, Unread) and not need.judges_unread:
            return [fact.about(member) for member in members]
        facts.append(fact)
    verdicts: list[Verdict] = []
    crash: list[Verdict] = []
    try:
        verdicts.extend(check.function(*facts))
    # A check is foreign code: its bug must cost the answers it still owed, not the run.
    except Exception as error:
        crash.append(_crashed(f"the check failed with {type(error).__name__}: {error}"))
    if not verdicts and not crash:
        crash.append(_crashed(f"the check said nothing about {len(members)} subjects"))
    return verdicts + crash + _not_answered(verdicts, members if check.over else ())


def _crashed(what: str) -> Verdict:
    return Unknown(NODE, Why.CRASHED, f"{what}; {BUG_REPORT_HINT}")


def _not_answered(verdicts: list[Verdict], members: Sequence[AboutSubject]) -> list[Verdict]:
    answered = {verdict.subject.id for verdict in verdicts}
    for verdict in verdicts:
        if isinstance(verdict, (Fail, Warn)):
            answered.update(subject.id for subject in verdict.of)
    return [
        Unknown(member, Why.NOT_ANSWERED, f"the check gave no answer; {BUG_REPORT_HINT}")
        for member in members
        if member.subject.id not in answered
    ]


def _outcome(check: Check, verdicts: Sequence[Verdict], desk: Desk, today: datetime.date) -> Outcome:
    seen: dict[str, int] = {}
    judgements = []
    for verdict in verdicts:
        finding_id = f"{check.id}@{verdict.subject.id}"
        seen[finding_id] = seen.get(finding_id, 0) + 1
        if seen[finding_id] > 1:
            finding_id = f"{finding_id}#{seen[finding_id]}"
        waiver = _waiver(check, verdict.subject, desk.config.waive, today)
        judgements.append(Judgement(finding_id, check, verdict, waiver))
    skips = [verdict for verdict in verdicts if isinstance(verdict, NotApplicable)]
    skipped = "not-applicable" if len(skips) == len(verdicts) else None
    return Outcome(check, tuple(judgements), skipped=skipped, detail=skips[0].reason if skipped else "")


def _waiver(check: Check, subject: Subject, waivers: Sequence[Waiver], today: datetime.date) -> Waiver | None:
    return next((waiver for waiver in waivers if waiver.covers(check.id, subject.key, today)), None)
