"""The chain at a glance: how each link stands, in a report or in a run that is still on. Nothing is judged here."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.report import Report, Result
from gpudoctor.reports.tui.model import Progress, Shown
from gpudoctor.reports.tui.stream import Told
from gpudoctor.reports.words import STATUS_ORDER, STATUS_WORDS, counted
from gpudoctor.verdicts import Status

_CAPITAL = re.compile("(?<!^)(?=[A-Z])")
_SHORT = frozenset("nvml pci pcie mig mps cdi xid imex cuda gpu gpus dcgm dkms bpf numa api nics ecc vgpu".split())
"""Words of facts' names that people write in capitals."""


class LinkState(Struct, frozen=True):
    """How a link stands; `status` is None before any of its checks has ended. `causes` counts root causes in it, `follows` says that
    what is wrong there follows from another link; `words` is more of it, in a few words. `on` says that it is being asked
    now, `seconds` for how long it has waited for one answer.
    """

    link: Link
    status: Status | None
    words: str = ""
    causes: int = 0
    follows: bool = False
    on: bool = False
    seconds: float | None = None


def fact_words(name: str) -> str:
    """How people call what is being read: `NVML`, `module file`; a path or a program as it is."""
    if not name.isalnum():
        return name
    words = _CAPITAL.sub(" ", name).lower().split()
    return " ".join(word.upper() if word in _SHORT else word for word in words) or "an answer"


def link_states(shown: Shown, now: float) -> tuple[LinkState, ...]:
    """A state for each link that a report or a run speaks of."""
    if shown.report is not None:
        states = tuple(_finished(link, shown.report) for link in Link if _of(link, shown.report.results))
        asked = current(shown.progress) if shown.progress is not None else None
        return tuple(_asked(state) if state.link is asked else state for state in states)
    return _running(shown.progress, now) if shown.progress is not None else ()


def _asked(state: LinkState) -> LinkState:
    return LinkState(state.link, state.status, state.words, state.causes, state.follows, on=True)


def _of(link: Link, results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.link is link]


def _finished(link: Link, report: Report) -> LinkState:
    results = _of(link, report.results)
    status = _worst([result.status for result in results])
    causes = sum(cause.link is link for cause in report.root_causes)
    bad = [
        finding
        for result in results
        for finding in result.findings
        if finding.status is status and finding.status in (Status.FAIL, Status.WARN) and finding.waived is None
    ]
    follows = bool(bad) and not causes and all(finding.caused_by for finding in bad)
    return LinkState(link, status, _words(results, status, causes, follows=follows), causes, follows)


def _worst(statuses: Sequence[Status]) -> Status:
    return min(statuses, key=STATUS_ORDER.index)


def _words(results: Sequence[Result], status: Status, causes: int, *, follows: bool) -> str:
    if causes:
        return counted(causes, "root cause")
    if follows:
        return "follows from below"
    count = sum(result.status is status for result in results)
    match status:
        case Status.BLOCKED:
            return f"{counted(count, 'check')} blocked"
        case Status.SKIP:
            return "nothing of it here"
        case Status.UNKNOWN:
            return f"{count} not seen"
        case _:
            return f"{count} of {counted(len(results), 'check')}"


def _running(progress: Progress, now: float) -> tuple[LinkState, ...]:
    """What a run has told so far: links ahead are without a status, and the one that is asked says what it waits for."""
    asked = current(progress)
    links = {check.link for check in progress.checks} or set(Link)
    return tuple(_partial(link, progress, now, on=link is asked) for link in Link if link in links)


def current(progress: Progress) -> Link | None:
    """The link of the first check that has not ended, which is asked now: the engine goes along the chain."""
    return next((asked.link for asked in progress.checks if asked.id not in progress.told), None)


def _partial(link: Link, progress: Progress, now: float, *, on: bool) -> LinkState:
    asked = sum(check.link is link for check in progress.checks)
    told = [told for told in progress.told.values() if told.link is link]
    status = _worst([one.status for one in told]) if told else None
    if on and (waits := progress.waits(now)) is not None:
        return LinkState(link, status, f"waits for {fact_words(waits[0])} {waits[1]:.1f} s", on=True, seconds=waits[1])
    words = f"{len(told)}/{asked}" if on else _counts(told) if told else ""
    return LinkState(link, status, words, on=on)


def _counts(told: Sequence[Told]) -> str:
    worst = _worst([one.status for one in told])
    return f"{sum(one.status is worst for one in told)} of {counted(len(told), 'check')}"


def status_counts(statuses: Iterable[Status]) -> str:
    """`2 FAIL, 31 OK`, the worst first."""
    listed = list(statuses)
    counts = [(status, listed.count(status)) for status in STATUS_ORDER]
    return ", ".join(f"{count} {STATUS_WORDS[status]}" for status, count in counts if count)
