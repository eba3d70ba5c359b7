"""The report for a person at a terminal: the verdict, the chain at a glance, then each root cause with evidence and remedy.

Below its heading it prints identical bytes for identical nodes, so that tools which gather many nodes can fold them.
"""

from collections.abc import Sequence

from rich.text import Text

from gpudoctor.chain import Link
from gpudoctor.diagnosis import label, more_like_it
from gpudoctor.report import Finding, Report, Result, RootCause
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import BADGE_WIDTH, LABEL_WIDTH, Page
from gpudoctor.reports.shares import folded, in_lines
from gpudoctor.reports.since_words import since_when
from gpudoctor.reports.words import (
    OVERALL_STATUS,
    STATUS_ORDER,
    clean,
    counted,
    distinct_evidence,
    headline,
    one_line,
    who_and_when,
)
from gpudoctor.verdicts import Status, SubjectKind

NARROW = 60
"""Below this width the chain at a glance shows statuses only; every finding is told in full further down."""

LINK_WIDTH = 13
MOST_SUBJECTS = 8
MOST_EVIDENCE = 3
MOST_WAYS = 4
"""As many ways of sharing GPUs are told on the first screen."""
SHARING = "who shares"


def render(report: Report, look: Look) -> str:
    """The report as text for a terminal, a pipe or a file."""
    text = one_line(report) + "\n" if look.quiet else _Page(report, look).text()
    return look.written(text)


class _Page(Page):
    """One report being laid out."""

    def __init__(self, report: Report, look: Look) -> None:
        super().__init__(look)
        self.report = report

    def text(self) -> str:
        """The whole page."""
        self._heading()
        self._chain()
        self._sharing()
        for cause in self.report.root_causes:
            self._root_cause(cause)
        self._not_seen()
        self._waived()
        if self.look.verbose:
            self._everything()
        return self.written()

    def _heading(self) -> None:
        self.heading(who_and_when(self.report))
        status = OVERALL_STATUS[self.report.verdict]
        self.line(Text.assemble(self.badge(status), "  ", (headline(self.report), "bold")))
        self.line(Text())

    def _chain(self) -> None:
        """A line for each link that has something to say, and one for all others."""
        details = self.look.width >= NARROW
        taken = 2 + LINK_WIDTH + 2 + BADGE_WIDTH + 2
        rows = self.grid("  ", LINK_WIDTH, BADGE_WIDTH)
        skipped = []
        for link in Link:
            results = [result for result in self.report.results if result.link is link]
            if not results:
                continue
            worst = min(results, key=lambda result: (STATUS_ORDER.index(result.status), not result.essential))
            if worst.status is Status.SKIP and details and not self.look.verbose:
                skipped.append(link.value)
                continue
            glance = self.shortened(self._glance(worst), taken) if details else Text()
            rows.add_row("", Text(link.value), self.badge(worst.status), glance)
        if skipped:
            # What a node has nothing of needs no line each; -v tells why.
            glance = self.shortened(", ".join(skipped), taken)
            rows.add_row("", Text("the others"), self.badge(Status.SKIP), glance)
        self.console.print(rows)

    def _sharing(self) -> None:
        """A line for each way in which GPUs are shared; who, and what is kept apart, with -v."""
        details = self.look.width >= NARROW
        rows = self.grid("  ", LINK_WIDTH)
        lines = [share.label + ": " + share.how for share in folded(self.report.sharing)]
        if not self.look.verbose:
            lines = in_lines(self.report.sharing)
            lines[MOST_WAYS:] = [f"and {len(lines) - MOST_WAYS} ways more (-v)"] if len(lines) > MOST_WAYS else []
        for number, line in enumerate(lines):
            shown = Text(clean(line)) if details else self.shortened(line, 2 + LINK_WIDTH + 2)
            rows.add_row("", Text(SHARING if number == 0 else ""), shown)
            for name, words in folded(self.report.sharing)[number].parts if self.look.verbose else ():
                rows.add_row("", Text(""), Text(clean(f"{name}: {words}"), style="dim"))
        self.console.print(rows)

    def _glance(self, result: Result) -> str:
        if result.status is Status.BLOCKED:
            blockers = sorted({finding.split("@")[0] for finding in result.blocked_by})
            return f"by {', '.join(blockers)}" if blockers else result.detail
        if result.status is Status.UNKNOWN:
            return f"({result.why}) {result.detail}"
        worst = [finding for finding in result.findings if finding.status is result.status]
        alike = [other for other in self.report.results if other.link is result.link and other.status is Status.PASS]
        if result.status is Status.PASS and not result.essential and len(alike) > 1:
            return counted(len(alike), "check") + " passed"
        if worst and all(finding.waived for finding in worst):
            return f"waived: {result.detail}"
        if worst and all(finding.caused_by for finding in worst):
            causes = sorted({cause.split("@")[0] for finding in worst for cause in finding.caused_by})
            return f"follows from {', '.join(causes)}: {result.detail}"
        return result.detail

    def _root_cause(self, cause: RootCause) -> None:
        findings = [self.report.finding(finding_id) for finding_id in cause.findings]
        self.line(Text())
        self.titled(cause.status, Text(clean(cause.summary), style="bold"))
        rows = self.grid("  ", LABEL_WIDTH)
        rows.add_row("", Text("check"), Text(cause.check))
        if len(cause.subjects) > 1:
            rows.add_row("", Text("who"), Text(_some([subject.key for subject in cause.subjects], MOST_SUBJECTS)))
        if self.look.verbose and (since := since_when(self.report, cause)):
            rows.add_row("", Text("since"), Text(clean(since)))
        for number, evidence in enumerate(
            distinct_evidence(findings)[: MOST_EVIDENCE if not self.look.verbose else None]
        ):
            rows.add_row("", Text("evidence" if number == 0 else ""), self.evidence(evidence))
        if cause.consequence_ids:
            rows.add_row("", Text("explains"), Text(_some(_check_counts(cause.consequence_ids), MOST_SUBJECTS)))
        if possible := sorted({one.split("@")[0] for finding in findings for one in finding.possible_causes}):
            rows.add_row("", Text("unseen"), Text("the cause may lie in " + _some(possible, 3)))
        self.console.print(rows)
        self.remedies([finding.remedies for finding in findings])

    def _not_seen(self) -> None:
        """What could not be told, each reason once: one unreadable path can blind many checks and subjects."""
        unknown: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
        for result in self.report.results:
            first: dict[str, str] = {}
            for finding in result.findings:
                if finding.status is Status.UNKNOWN and not finding.caused_by and finding.why is not None:
                    summary = first.setdefault(finding.why.value, finding.summary)
                    unknown.setdefault((finding.why.value, summary), []).append((result.check, finding))
        for (why, summary), found in unknown.items():
            checks = ", ".join(dict.fromkeys(check for check, _ in found))
            subjects = {finding.subject.id: finding.subject for _, finding in found}
            nodes = all(subject.kind is SubjectKind.NODE for subject in subjects.values())
            who = "" if nodes else f" {label(list(subjects.values()))}:"
            alike = len({finding.summary for _, finding in found}) - 1
            needed = f"; would need: {found[0][1].would_need}" if found[0][1].would_need else ""
            self.line(Text())
            self.titled(Status.UNKNOWN, Text(clean(f"{checks}:{who} {summary}{more_like_it(alike)} ({why}){needed}")))

    def _waived(self) -> None:
        for result in self.report.results:
            for finding in result.findings:
                if finding.waived is not None and finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
                    until = f" until {finding.waived.until}" if finding.waived.until else ""
                    self.line(Text())
                    said = f"waived{until}: {finding.id}: {finding.summary} ({finding.waived.reason})"
                    self.line(Text(clean(said), style="dim"))

    def _everything(self) -> None:
        self.line(Text())
        for result in self.report.results:
            self.line(Text.assemble(self.badge(result.status), f"  {result.check}: {result.title}"))
            rows = self.grid("    ", BADGE_WIDTH)
            for finding in result.findings:
                rows.add_row(
                    "", self.badge(finding.status), Text(clean(f"{label([finding.subject])}: {finding.summary}"))
                )
                for evidence in finding.evidence:
                    rows.add_row("", Text(), self.evidence(evidence))
            self.console.print(rows)
        if self.look.verbose > 1:
            self.line(Text(f"took {self.report.seconds:.3f} s, configuration {self.report.tool.config_digest}"))


def _some(words: Sequence[str], most: int) -> str:
    shown = [clean(word) for word in words[:most]]
    return ", ".join(shown) + (f" and {len(words) - most} more" if len(words) > most else "")


def _check_counts(finding_ids: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    for finding_id in finding_ids:
        check = finding_id.split("@", 1)[0]
        counts[check] = counts.get(check, 0) + 1
    return [f"{check} ({counted(number, 'finding')})" for check, number in counts.items()]
