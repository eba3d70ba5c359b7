"""Findings of two reports: what broke, what healed, what is no longer seen, what is still wrong."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from gpudoctor.chain import ORDER
from gpudoctor.diff import BLIND, WRONG, Area, Change, Gap, State, Turn
from gpudoctor.differing.likeness import Likeness
from gpudoctor.differing.party import A, B, Party
from gpudoctor.report import Finding, Report, Result
from gpudoctor.verdicts import NODE, Cited, Status, Subject, SubjectKind, Why

MOST_EVIDENCE = 4
MOST_RENAMED = 256
"""Subjects of one check whose names are held against each other one by one."""
_ORDER = {state: place for place, state in enumerate(State)}
_DISABLED = "disabled"


class Turns(Struct, frozen=True):
    """The turns by kind, as in `Diff`."""

    broke: tuple[Turn, ...]
    healed: tuple[Turn, ...]
    found: tuple[Turn, ...]
    unseen: tuple[Turn, ...]
    seen: tuple[Turn, ...]
    still: tuple[Turn, ...]


class _Half(Struct, frozen=True, dict=True):
    """One report, its findings by check and by their subject in A's addresses."""

    report: Report
    results: Mapping[str, Result]
    findings: Mapping[str, Mapping[str, Finding]]
    right: bool

    @cached_property
    def roots(self) -> Mapping[str, int]:
        """The findings that are root causes, and how many follow from each."""
        return {one: len(cause.consequence_ids) for cause in self.report.root_causes for one in cause.findings}

    def state(self, check: str, key: str) -> tuple[State, Finding | None]:
        """What is said of a subject: of a GPU without a finding of its own what is said of the node, and the other way round."""
        result = self.results.get(check)
        if result is None or result.why == _DISABLED:
            return State.UNASKED, None
        found = self.findings[check]
        if key in found:
            return _state(found[key]), found[key]
        if result.status is Status.BLOCKED:
            return State.BLOCKED, None
        of_node = found.get(NODE.id)
        if of_node is not None:
            return _state(of_node), of_node
        if key.startswith(f"{SubjectKind.NODE.value}:") or not found:
            return State(result.status.value), next(iter(found.values()), None)
        return State.GONE, None


class _Pair(Struct, frozen=True):
    """What both sides say of one subject."""

    check: str
    subject: Subject
    a: State
    b: State
    mine: Finding | None
    theirs: Finding | None

    @property
    def told(self) -> Finding | None:
        """The finding of the side where something is wrong, B's first; else whichever there is."""
        sides = ((self.b, self.theirs), (self.a, self.mine))
        return next((one for state, one in sides if state in WRONG), self.theirs or self.mine)


def turns(a: Party, b: Party, likeness: Likeness) -> tuple[Turns, list[Gap]]:
    """All findings of both, subject by subject, those that went the same way for the same reason together.

    What one recording does not hold is no change of the node, but a gap.
    """
    left, right = _half(a.report, None), _half(b.report, likeness)
    kinds: dict[str, list[Turn]] = {name: [] for name in Turns.__struct_fields__}
    groups: dict[tuple[str, str, State, State, str], list[_Pair]] = {}
    gaps: dict[str, list[str]] = {}
    for pair in _pairs(left, right, likeness):
        kind = _kind(pair.a, pair.b)
        if kind in ("unseen", "seen") and pair.a not in WRONG and _unrecorded(pair):
            gaps.setdefault(B if kind == "unseen" else A, []).append(pair.check)
        elif kind:
            groups.setdefault((kind, pair.check, pair.a, pair.b, _reason(pair, likeness)), []).append(pair)
    for (kind, *_), pairs in groups.items():
        kinds[kind].append(_turn(pairs, left, right, likeness))
    lacking = [
        Gap(Area.CHECKS, side, tuple(dict.fromkeys(checks)), "not recorded") for side, checks in sorted(gaps.items())
    ]
    return Turns(**{name: tuple(sorted(found, key=_place)) for name, found in kinds.items()}), lacking


def _unrecorded(pair: _Pair) -> bool:
    """Whether it is not known because a recording does not hold it: of the side where it is not known."""
    finding = pair.theirs if pair.b is State.UNKNOWN else pair.mine if pair.a is State.UNKNOWN else None
    return finding is not None and finding.why is Why.NOT_RECORDED


def unasked(a: Party, b: Party) -> Iterator[Gap]:
    """Checks that one report does not have: of another release, or left out."""
    mine, theirs = ({r.check for r in party.report.results if r.why != _DISABLED} for party in (a, b))
    for side, names in ((A, theirs - mine), (B, mine - theirs)):
        if names:
            yield Gap(Area.CHECKS, side, tuple(sorted(names)), "not asked there")


def applying(a: Party, b: Party) -> Iterator[Change]:
    """Checks that are not applicable on one side and answered, with nothing wrong, on the other: what they are about came or went."""
    mine, theirs = ({result.check: result for result in party.report.results} for party in (a, b))
    found: dict[tuple[str, bool], list[str]] = {}
    for check, one in mine.items():
        two = theirs.get(check)
        if two is None or _DISABLED in (one.why, two.why):
            continue
        if {one.status, two.status} == {Status.SKIP, Status.PASS}:
            found.setdefault((one.link.value, two.status is Status.PASS), []).append(check)
    for (link, in_b), checks in sorted(found.items()):
        many = str(len(checks))
        names = tuple(sorted(checks))
        what = f"checks of {link} that apply"
        yield Change(Area.CHECKS, what, None if in_b else many, many if in_b else None, subjects=names, counts=False)


def _half(report: Report, likeness: Likeness | None) -> _Half:
    found: dict[str, dict[str, Finding]] = {}
    for result in report.results:
        own = found.setdefault(result.check, {})
        for finding in result.findings:
            key = finding.id.partition("@")[2]
            own[likeness.in_a(key) if likeness else key] = finding
    return _Half(report, {result.check: result for result in report.results}, found, likeness is not None)


def _pairs(left: _Half, right: _Half, likeness: Likeness) -> Iterator[_Pair]:
    for check in dict.fromkeys((*left.results, *right.results)):
        mine, theirs = left.findings.get(check, {}), right.findings.get(check, {})
        renamed = _renamed(mine, theirs, likeness)
        for key in dict.fromkeys((*mine, *theirs)):
            if key in renamed.values() and key not in mine:
                continue
            other = renamed.get(key, key)
            (a, one), (b, two) = left.state(check, key), right.state(check, other)
            finding = theirs.get(other) if b in WRONG and other in theirs else mine.get(key) or theirs.get(other)
            if finding is not None:
                yield _Pair(check, finding.subject, a, b, one, two)
        if not mine and not theirs and check in left.results and check in right.results:
            a, b = left.state(check, NODE.id)[0], right.state(check, NODE.id)[0]
            yield _Pair(check, NODE, a, b, None, None)


def _renamed(mine: Mapping[str, Finding], theirs: Mapping[str, Finding], likeness: Likeness) -> Mapping[str, str]:
    """Subjects whose names a redacted side has other words for: by the key in A that in B."""
    if not any(likeness.redacted):
        return {}
    both = ((mine, theirs), (theirs, mine))
    left, right = ([key for key in one if key not in other][:MOST_RENAMED] for one, other in both)
    found: dict[str, str] = {}
    for key in left:
        other = next((one for one in right if likeness.exact(key, one)), None)
        if other is not None:
            right.remove(other)
            found[key] = other
    return found


def _state(finding: Finding) -> State:
    state = State(finding.status.value)
    return State.WAIVED if state in WRONG and finding.waived is not None else state


def _kind(a: State, b: State) -> str:
    """Which of the kinds of `Diff`, "" for what is not worth a word. A waiver heals nothing."""
    if State.WAIVED in (a, b):
        return "still" if a in WRONG or b in WRONG else ""
    if b in WRONG:
        if a in WRONG:
            return "still" if a is b else "broke" if b is State.FAIL else "healed"
        return "found" if a in BLIND else "broke"
    if a in WRONG:
        return "unseen" if b in BLIND else "healed"
    blind = (State.UNKNOWN, State.BLOCKED)
    if a is State.PASS and b in blind:
        return "unseen"
    return "seen" if a in blind and b is State.PASS else ""


def _reason(pair: _Pair, likeness: Likeness) -> str:
    """What findings have in common that are told together."""
    finding = pair.told
    if finding is None:
        return ""
    if pair.a in WRONG or pair.b in WRONG:
        of_a = finding is pair.mine
        return finding.cause or likeness.canonical(finding.summary, of_a)
    return finding.why.value if finding.why else ""


def _turn(pairs: Sequence[_Pair], left: _Half, right: _Half, likeness: Likeness) -> Turn:
    first = pairs[0]
    wrong_in_b = first.b in WRONG
    half = right if wrong_in_b or first.a not in WRONG else left
    findings = [one for pair in pairs if (one := pair.theirs if half is right else pair.mine) is not None]
    ids = {one.id for one in findings}
    result = right.results.get(first.check) or left.results[first.check]
    followed = [half.roots[one] for one in ids if one in half.roots]
    evidence = _evidence(first)
    return Turn(
        check=first.check,
        link=result.link,
        title=result.title,
        subjects=tuple({pair.subject.id: pair.subject for pair in pairs}.values()),
        a=first.a,
        b=first.b,
        a_says=_says(first.mine, left, first),
        b_says=_says(first.theirs, right, first),
        root=bool(followed),
        because=_because(pairs, half, left, right),
        since=next((each.at for each in evidence if each.at), None),
        explains=max(followed, default=0),
        evidence=evidence,
        same_words=all(_same(pair, likeness) for pair in pairs),
    )


def _evidence(pair: _Pair) -> Cited:
    finding = pair.told
    return finding.evidence[:MOST_EVIDENCE] if finding is not None else ()


def _says(finding: Finding | None, half: _Half, pair: _Pair) -> str:
    if finding is not None:
        return finding.summary
    state = pair.b if half.right else pair.a
    result = half.results.get(pair.check)
    return result.detail if result is not None and state not in (State.GONE, State.UNASKED) else ""


def _because(pairs: Sequence[_Pair], half: _Half, left: _Half, right: _Half) -> tuple[str, ...]:
    check = pairs[0].check
    if pairs[0].b is State.BLOCKED:
        ids: list[str] = list(right.results[check].blocked_by)
    elif pairs[0].a is State.BLOCKED and pairs[0].b not in WRONG:
        ids = list(left.results[check].blocked_by)
    else:
        told = [pair.theirs if half is right else pair.mine for pair in pairs]
        ids = [by for one in told if one is not None for by in one.caused_by]
    return tuple(dict.fromkeys(one.partition("@")[0] for one in ids))


def _same(pair: _Pair, likeness: Likeness) -> bool:
    if pair.a not in WRONG or pair.b not in WRONG or pair.mine is None or pair.theirs is None:
        return True
    return likeness.loosely(pair.mine.summary, pair.theirs.summary)


def _place(turn: Turn) -> tuple[object, ...]:
    """Root causes first, what is wrong before what is not, then along the chain."""
    worst = min(_ORDER[turn.a], _ORDER[turn.b]) if turn.b not in WRONG else _ORDER[turn.b]
    keys = tuple(subject.id for subject in turn.subjects)
    return (not turn.root, bool(turn.because), worst, ORDER[turn.link], turn.check, keys, turn.b_says, turn.a_says)
