"""Gating and folding: which links are down for which subjects, and what therefore explains what."""

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.outcome import Judgement
from gpudoctor.verdicts import NODE, AboutSubject, Breaks, Fail, Subject, Unknown, Warn


class Breakage(Struct):
    """What is broken so far: per link and subject id, the ids of the findings that broke it."""

    by_link: dict[Link, dict[str, list[str]]] = {}
    everywhere: dict[Link, list[str]] = {}


def remember_breakage(
    breakage: Breakage,
    link: Link,
    judgements: Iterable[Judgement],
    population: Sequence[AboutSubject] | None,
) -> None:
    """Add the fails of one check. When its whole population failed, the link is down for the node."""
    broken: dict[str, list[str]] = {}
    for judgement in judgements:
        if not isinstance(judgement.verdict, Fail):
            continue
        if judgement.verdict.breaks is Breaks.NODE:
            breakage.everywhere.setdefault(link, []).append(judgement.id)
        elif judgement.verdict.breaks is Breaks.SUBJECT:
            for subject in judgement.verdict.of or (judgement.verdict.subject,):
                broken.setdefault(subject.id, []).append(judgement.id)
    for subject_id, findings in broken.items():
        breakage.by_link.setdefault(link, {}).setdefault(subject_id, []).extend(findings)
    if population and all(member.subject.id in broken for member in population):
        breakage.everywhere.setdefault(link, []).extend(
            dict.fromkeys(functools.reduce(operator.iadd, broken.values(), []))
        )


def breakers(breakage: Breakage, links: Iterable[Link], subject: Subject) -> tuple[str, ...]:
    """The findings that make one of the links down for the subject, in the order of the chain."""
    down = [link for link in links if link in breakage.everywhere or link in breakage.by_link]
    if not down:
        return ()
    grounds = stands_on(subject)
    findings: list[str] = []
    for link in Link:
        if link in down:
            findings.extend(breakage.everywhere.get(link, ()))
            for subject_id, broken_by in breakage.by_link.get(link, {}).items():
                if subject_id in grounds:
                    findings.extend(broken_by)
    return tuple(dict.fromkeys(findings))


def stands_on(subject: Subject) -> frozenset[str]:
    """Ids of the subject and of everything it stands on; everything stands on the node."""
    return frozenset({subject.id, NODE.id}).union(*(stands_on(below) for below in subject.stands_on))


def explain(
    judgements: Sequence[Judgement], populations: Mapping[str, Sequence[AboutSubject]]
) -> dict[str, tuple[str, ...]]:
    """For each fail, warn or unknown that something below explains: the ids of the findings that explain it.

    `populations` gives, by check id, the members of completely listed populations.
    """
    by_check: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        by_check.setdefault(judgement.check.id, []).append(judgement)
    breakage = Breakage()
    causes: dict[str, Breakage] = {}
    warned: dict[str, Breakage] = {}
    for check_id, of_check in by_check.items():
        link = of_check[0].check.link
        remember_breakage(breakage, link, of_check, populations.get(check_id))
        causes[check_id] = Breakage()
        remember_breakage(causes[check_id], link, of_check, populations.get(check_id))
        warned[check_id] = _warnings(link, of_check)
    explained = {judgement.id: _explainers(judgement, breakage, causes, warned) for judgement in judgements}
    return {finding: by for finding, by in explained.items() if by}


def _warnings(link: Link, judgements: Iterable[Judgement]) -> Breakage:
    """What one check warns of, by subject: nothing is down for it, but it may be what another check warns of."""
    told: dict[str, list[str]] = {}
    for judgement in judgements:
        if isinstance(judgement.verdict, Warn):
            for subject in judgement.verdict.of or (judgement.verdict.subject,):
                told.setdefault(subject.id, []).append(judgement.id)
    return Breakage(by_link={link: told})


def _explainers(
    judgement: Judgement, breakage: Breakage, causes: Mapping[str, Breakage], warned: Mapping[str, Breakage]
) -> tuple[str, ...]:
    verdict = judgement.verdict
    if not isinstance(verdict, (Fail, Warn, Unknown)):
        return ()
    named = verdict.of if isinstance(verdict, (Fail, Warn)) else ()
    own_fault = isinstance(verdict, (Fail, Warn)) and verdict.own_fault
    found: list[str] = []
    for subject in named or (verdict.subject,):
        by = breakers(breakage, judgement.check.needs, subject)
        for cause in () if own_fault else judgement.check.explained_by:
            if cause in causes:
                by += breakers(causes[cause], (judgement.check.link,), subject)
                if isinstance(verdict, Warn):
                    by += breakers(warned[cause], (judgement.check.link,), subject)
        if not by:
            return ()
        found.extend(by)
    return tuple(dict.fromkeys(found))


def possible_causes(judgement: Judgement, judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """What below could not be seen and might explain an unexplained finding."""
    grounds = stands_on(judgement.verdict.subject)
    if isinstance(judgement.verdict, (Fail, Warn)):
        grounds = grounds.union(*(stands_on(subject) for subject in judgement.verdict.of))
    below = judgement.check
    return tuple(
        other.id
        for other in judgements
        if isinstance(other.verdict, Unknown)
        and not other.check.advisory
        and (other.check.link in below.needs or other.check.id in below.explained_by)
        and other.verdict.subject.id in grounds
    )
