"""Findings of one check that say the same about several subjects: one row that names all of them."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from gpudoctor.diagnosis import label
from gpudoctor.report import Finding
from gpudoctor.reports.html.causes import CauseView, Step, steps
from gpudoctor.verdicts import Evidence

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""A PCI address: what differs between paths of like devices."""

_Told = TypeVar("_Told", bound=Hashable)


class Line(Struct, frozen=True):
    """A line of evidence of all findings of a row, or of those that `of` names.

    Between the pieces of `where`, and of `shows`, stands the key of each subject. A piece that names other devices has them in braces,
    one for each subject; then `ordered`.
    """

    of: str
    where: tuple[str, ...]
    at: str
    shows: tuple[str, ...]
    ordered: bool = False


class Row(Struct, frozen=True):
    """Findings that say the same. Where something holds of some only, these are named before it."""

    findings: tuple[Finding, ...]
    label: str
    placeholder: str
    evidence: tuple[Line, ...]
    caused_by: tuple[tuple[str, tuple[str, ...]], ...]
    possible_causes: tuple[tuple[str, tuple[str, ...]], ...]
    references: tuple[str, ...]
    causes: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...]

    @property
    def says(self) -> Finding:
        """The first finding: status, summary and reasons are those of all."""
        return self.findings[0]


def rows(findings: Sequence[Finding], cause_of: Mapping[str, CauseView]) -> tuple[Row, ...]:
    """The findings in their order, those that say the same put together; a remedy that a root cause shows is left to it."""
    groups: dict[Hashable, list[Finding]] = {}
    for one in findings:
        said = (one.subject.kind, one.status, one.summary, one.why, one.would_need, one.waived)
        groups.setdefault(said, []).append(one)
    return tuple(_row(group, cause_of) for group in groups.values())


def _row(findings: Sequence[Finding], cause_of: Mapping[str, CauseView]) -> Row:
    def number(finding: Finding) -> int | None:
        return cause_of[finding.id].number if finding.id in cause_of else None

    return Row(
        findings=tuple(findings),
        label=label([finding.subject for finding in findings]),
        placeholder=findings[0].subject.kind.value.upper(),
        evidence=_evidence(findings),
        caused_by=_told(findings, lambda finding: _causing(finding, finding.caused_by, alone=len(findings) == 1)),
        possible_causes=_told(
            findings, lambda finding: _causing(finding, finding.possible_causes, alone=len(findings) == 1)
        ),
        references=tuple(dict.fromkeys(one for finding in findings for one in finding.references)),
        causes=_told(findings, number),
        steps=steps([finding for finding in findings if finding.id not in cause_of]),
    )


def _told(findings: Sequence[Finding], tells: Callable[[Finding], _Told | None]) -> tuple[tuple[str, _Told], ...]:
    """What is told of findings, each once, with the names of its subjects unless it holds of all."""
    groups: dict[_Told, list[Finding]] = {}
    for finding in findings:
        told = tells(finding)
        if told is not None:
            groups.setdefault(told, []).append(finding)
    return tuple((_names(group, len(findings)), told) for told, group in groups.items())


def _causing(finding: Finding, ids: tuple[str, ...], *, alone: bool) -> tuple[str, ...] | None:
    """What a finding follows from. Among others that is, if about the same subject, the check: so each of them says the same."""
    own = f"@{finding.subject.id}"
    if not alone and all(one.endswith(own) for one in ids):
        ids = tuple(one.removesuffix(own) for one in ids)
    return ids or None


def _names(findings: Sequence[Finding], among: int) -> str:
    return "" if len(findings) == among else ", ".join(finding.subject.key for finding in findings)


def _evidence(findings: Sequence[Finding]) -> tuple[Line, ...]:
    everywhere = set(findings[0].evidence).intersection(*(finding.evidence for finding in findings))
    groups: dict[Hashable, list[tuple[Finding, Evidence]]] = {}
    for finding in findings:
        times: Counter[Hashable] = Counter()
        for seen in finding.evidence:
            where = tuple(ADDRESS.sub("*", piece) for piece in _pieces(seen.where, finding))
            like = seen if seen in everywhere else (where, seen.at, _pieces(seen.shows, finding))
            groups.setdefault((like, times[like]), []).append((finding, seen))
            times[like] += 1
    return tuple(_line(group, len(findings)) for group in groups.values())


def _pieces(text: str, finding: Finding) -> tuple[str, ...]:
    """A text cut at each place where the subject's key stands."""
    return tuple(text.split(finding.subject.key)) if finding.subject.key else (text,)


def _line(group: Sequence[tuple[Finding, Evidence]], among: int) -> Line:
    finding, seen = group[0]
    if len(group) == among and all(seen == other for _, other in group):
        return Line("", (seen.where,), seen.at or "", (seen.shows,))
    if len(group) == 1:
        named = finding.subject.key in seen.where or finding.subject.key in seen.shows
        return Line("" if named else finding.subject.key, (seen.where,), seen.at or "", (seen.shows,))
    places = list(zip(*(_pieces(seen.where, finding) for finding, seen in group), strict=True))
    return Line(
        of=_names([finding for finding, _ in group], among),
        where=tuple(_braced(texts) for texts in places),
        at=seen.at or "",
        shows=_pieces(seen.shows, finding),
        ordered=any(len(set(texts)) > 1 for texts in places),
    )


def _braced(texts: Sequence[str]) -> str:
    """Texts that differ in addresses only, as one: `/sys/bus/pci/devices/{0000:17:00.0, 0000:39:00.0}/max_link_speed`."""
    between = ADDRESS.split(texts[0])
    columns = zip(*(ADDRESS.findall(text) for text in texts), strict=True)
    listed = [column[0] if len(set(column)) == 1 else f"{{{', '.join(column)}}}" for column in columns]
    return between[0] + "".join(one + text for one, text in zip(listed, between[1:], strict=True))
