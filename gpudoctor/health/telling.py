"""Episodes and their changes in the words of the report: findings of one check with one cause are told as one."""

from collections.abc import Iterable, Sequence

from gpudoctor.chain import ORDER, Link
from gpudoctor.diagnosis import label, more_like_it
from gpudoctor.health.answer import Change, LinkState, State, Turn, Wrong
from gpudoctor.health.episodes import Episode, Fate, Told
from gpudoctor.health.looking import Looking
from gpudoctor.report import Finding, Overall, Report, Result
from gpudoctor.verdicts import Status, Subject, SubjectKind

MOST_EVIDENCE = 3
_STATUSES = (Status.FAIL, Status.UNKNOWN, Status.WARN)
_TURNS = tuple(Turn)
_VERDICTS = {Status.FAIL: Overall.FAIL, Status.UNKNOWN: Overall.UNKNOWN, Status.WARN: Overall.WARN}


class Telling:
    """Says things as one report does."""

    def __init__(self, report: Report, looking: Looking) -> None:
        self._looking = looking
        self._results = report.results
        self._findings = {finding.id: finding for result in report.results for finding in result.findings}
        self._roots = {finding: cause for cause in report.root_causes for finding in cause.findings}

    def wrong(self, episodes: Iterable[Episode]) -> tuple[Wrong, ...]:
        """What is wrong now, the worst first, without what follows from something else."""
        groups: dict[tuple[str, str, str, str], list[Episode]] = {}
        for one in episodes:
            state = State.UNSEEN if one.unseen and one.state is not State.BLIP else one.state
            if not one.follows and one.unseen != Fate.HIDDEN.value:
                key = (one.check, one.cause or one.summary, one.counted.value, state.value)
                groups.setdefault(key, []).append(one)
        told = [self._told(group, State(key[3])) for key, group in groups.items()]
        return tuple(sorted(told, key=_order))

    def changes(self, told: Iterable[Told]) -> tuple[Change, ...]:
        """What changed, in the order of `Turn`, like changes of one check together."""
        groups: dict[tuple[str, str, str, str, str], list[Told]] = {}
        for one in told:
            episode = one.episode
            key = (one.turn.value, episode.check, episode.cause or episode.summary, one.before, one.how)
            groups.setdefault(key, []).append(one)
        found = [
            Change(
                group[0].turn,
                self._told([one.episode for one in group], group[0].episode.state),
                before=group[0].before,
                how=group[0].how,
            )
            for group in groups.values()
        ]
        return tuple(sorted(found, key=lambda change: (_TURNS.index(change.turn), *_order(change.wrong))))

    def links(self, episodes: Iterable[Episode]) -> tuple[LinkState, ...]:
        """Each link by itself."""
        by_link: dict[str, list[Episode]] = {}
        for one in episodes:
            if one.counts:
                by_link.setdefault(one.link, []).append(one)
        results: dict[str, list[Result]] = {}
        for result in self._results:
            results.setdefault(result.link.value, []).append(result)
        return tuple(self._link(link.value, by_link.get(link.value, ()), results.get(link.value, ())) for link in Link)

    def _link(self, link: str, episodes: Sequence[Episode], results: Sequence[Result]) -> LinkState:
        if episodes:
            first = min(episodes, key=lambda one: (_STATUSES.index(one.counted), one.follows, one.check, one.key))
            return LinkState(link, _VERDICTS[first.counted], f"{first.check}: {self._words([first])}")
        passed = sum(result.status is Status.PASS for result in results)
        if passed:
            return LinkState(link, Overall.PASS, f"{passed} checks passed")
        open_ones = [one for one in results if one.status is Status.UNKNOWN and not self._looking.idle_only(one)]
        if open_ones:
            return LinkState(link, Overall.UNKNOWN, f"{open_ones[0].check}: {open_ones[0].detail}")
        blocked = [one for one in results if one.status is Status.BLOCKED]
        if blocked:
            return LinkState(link, Overall.UNKNOWN, f"blocked by {', '.join(blocked[0].blocked_by[:1])}")
        return LinkState(
            link, None, "not asked: idle" if any(map(self._looking.idle_only, results)) else "nothing to check"
        )

    def _told(self, episodes: Sequence[Episode], state: State) -> Wrong:
        first = episodes[0]
        found = self._findings.get(first.finding)
        is_same = found is not None and found.status is first.status
        return Wrong(
            check=first.check,
            link=first.link,
            status=first.counted,
            state=state,
            summary=self._words(episodes),
            subjects=tuple(self._subject(one) for one in episodes),
            findings=tuple(one.finding for one in episodes),
            since=instant(min(one.since for one in episodes)),
            last=instant(max(one.last_at for one in episodes)),
            times=max(one.times for one in episodes),
            boots=max(one.boots for one in episodes),
            turns=max(one.turns for one in episodes),
            explains=self._explains(first),
            why=first.unseen,
            evidence=found.evidence[:MOST_EVIDENCE] if found is not None and is_same else (),
            remedies=found.remedies[:MOST_EVIDENCE] if found is not None and is_same else (),
        )

    def _words(self, episodes: Sequence[Episode]) -> str:
        """As the report words a root cause, where it is just that one; else after whom it is about, and what was said last."""
        root = self._roots.get(episodes[0].finding)
        if root is not None and set(root.findings) == {one.finding for one in episodes}:
            return root.summary
        first, *others = dict.fromkeys(one.summary for one in episodes)
        words = first + more_like_it(len(others))
        if episodes[0].kind == SubjectKind.NODE.value:
            return words
        return f"{label([self._subject(one) for one in episodes])}: {words}"

    def _subject(self, episode: Episode) -> Subject:
        found: Finding | None = self._findings.get(episode.finding)
        return found.subject if found is not None else Subject(SubjectKind(episode.kind), episode.key)

    def _explains(self, episode: Episode) -> int:
        root = self._roots.get(episode.finding)
        return len(root.consequence_ids) if root is not None else 0


def _order(wrong: Wrong) -> tuple[int, int, str, str]:
    link = ORDER[Link(wrong.link)] if wrong.link else -1
    return _STATUSES.index(wrong.status), link, wrong.check, wrong.findings[0]


def instant(seconds: float) -> str:
    """Seconds since 1970 as `2026-11-29T12:00:00Z`."""
    import datetime

    return f"{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
