"""The report for a person at a terminal: the verdict, the chain at a glance, then each root cause with evidence and remedy.

Below its heading it prints identical bytes for identical nodes, so that tools which gather many nodes can fold them.
"""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpudoctor.chain import Link
from gpudoctor.diagnosis import label, more_like_it
from gpudoctor.report import Finding, Report, Result, RootCause
from gpudoctor.reports.look import Look
from gpudoctor.reports.words import (
    OVERALL_STATUS,
    STATUS_ORDER,
    STATUS_WORDS,
    clean,
    counted,
    distinct_evidence,
    headline,
    one_line,
)
from gpudoctor.verdicts import Evidence, Remedy, Status, SubjectKind

_GLYPHS = {
    Status.PASS: ("✔", "+", "green"),
    Status.FAIL: ("✘", "x", "bold red"),
    Status.WARN: ("!", "!", "bold yellow"),
    Status.UNKNOWN: ("?", "?", "bold magenta"),
    Status.BLOCKED: ("⊘", "-", "cyan"),
    Status.SKIP: ("·", ".", "dim"),
}

NARROW = 60
"""Below this width the chain at a glance shows statuses only; every finding is told in full further down."""

LINK_WIDTH = 13
BADGE_WIDTH = 9
LABEL_WIDTH = 8
MOST_SUBJECTS = 8
MOST_EVIDENCE = 3
MOST_COMMANDS = 8
MOST_FRAMES = 4


def render(report: Report, look: Look) -> str:
    """The report as text for a terminal, a pipe or a file."""
    text = one_line(report) + "\n" if look.quiet else _Page(report, look).text()
    return text.encode("ascii", "backslashreplace").decode() if look.ascii else text


class _Page:
    """One report being laid out."""

    def __init__(self, report: Report, look: Look) -> None:
        self.report = report
        self.look = look
        self.console = Console(
            file=io.StringIO(),
            width=look.width,
            color_system="standard" if look.color else None,
            force_terminal=look.color,
            no_color=not look.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        """The whole page."""
        self._heading()
        self._chain()
        for cause in self.report.root_causes:
            self._root_cause(cause)
        self._not_seen()
        self._waived()
        if self.look.verbose:
            self._everything()
        output = self.console.file
        assert isinstance(output, io.StringIO)
        return "\n".join(line.rstrip() for line in output.getvalue().split("\n"))

    def _heading(self) -> None:
        node = self.report.node
        separator = " | " if self.look.ascii else " · "
        parts = [
            f"gpudoctor {self.report.tool.version}",
            node.hostname or "unnamed node",
            node.os,
            node.kernel and f"kernel {node.kernel}",
        ]
        parts.append(node.driver_version and f"driver {node.driver_version}")
        parts.append(f"{node.source} {self.report.started_at}")
        self._print(Text(separator.join(clean(part) for part in parts if part), style="dim"))
        self._print(Text())
        status = OVERALL_STATUS[self.report.verdict]
        self._print(Text.assemble(self._badge(status), "  ", (headline(self.report), "bold")))
        self._print(Text())

    def _chain(self) -> None:
        details = self.look.width >= NARROW
        taken = 2 + LINK_WIDTH + 2 + BADGE_WIDTH + 2
        rows = self._grid("  ", LINK_WIDTH, BADGE_WIDTH)
        for link in Link:
            results = [result for result in self.report.results if result.link is link]
            if not results:
                continue
            worst = min(results, key=lambda result: (STATUS_ORDER.index(result.status), not result.essential))
            glance = self._one_line(self._glance(worst), taken) if details else Text()
            rows.add_row("", Text(link.value), self._badge(worst.status), glance)
        self.console.print(rows)

    def _one_line(self, words: str, taken: int) -> Text:
        """As much as fits behind what is taken of the line: every finding is told in full further down."""
        words, room = clean(words), self.look.width - taken
        return Text(words if len(words) <= room else f"{words[: room - 3]}...")

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
        self._print(Text())
        self._titled(cause.status, Text(clean(cause.summary), style="bold"))
        rows = self._grid("  ", LABEL_WIDTH)
        rows.add_row("", Text("check"), Text(cause.check))
        if len(cause.subjects) > 1:
            rows.add_row("", Text("who"), Text(_some([subject.key for subject in cause.subjects], MOST_SUBJECTS)))
        for number, evidence in enumerate(
            distinct_evidence(findings)[: MOST_EVIDENCE if not self.look.verbose else None]
        ):
            rows.add_row("", Text("evidence" if number == 0 else ""), self._evidence(evidence))
        if cause.consequence_ids:
            rows.add_row("", Text("explains"), Text(_some(_check_counts(cause.consequence_ids), MOST_SUBJECTS)))
        if possible := sorted({one.split("@")[0] for finding in findings for one in finding.possible_causes}):
            rows.add_row("", Text("unseen"), Text("the cause may lie in " + _some(possible, 3)))
        self.console.print(rows)
        self._remedies(findings)

    def _evidence(self, evidence: Evidence) -> Text:
        at = clean(f" at {evidence.at}") if evidence.at and self.look.verbose else ""
        arrow = ": " if not evidence.shows.startswith("->") else " "
        shows = evidence.shows if self.look.verbose else _shortened(evidence.shows)
        return Text.assemble((clean(evidence.where) + at, "cyan"), arrow, clean(shows))

    def _remedies(self, findings: Sequence[Finding]) -> None:
        """The first step with its commands, for every subject of the group; the further ones in words."""
        for number, remedy in enumerate(findings[0].remedies):
            word = "next" if number == 0 else "then" if remedy.then else "or"
            interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {remedy.interrupts})"
            rows = self._grid("  ", LABEL_WIDTH)
            rows.add_row("", Text(word, style="bold" if number == 0 else ""), Text(clean(f"{remedy.say}{interrupts}")))
            self.console.print(rows)
            if number == 0 or self.look.verbose:
                self._commands([finding.remedies[number] for finding in findings if len(finding.remedies) > number])
        if len(findings[0].remedies) > 1 and not self.look.verbose:
            self._print(Text("            (-v shows the commands of the further steps)", style="dim"))

    def _commands(self, remedies: Sequence[Remedy]) -> None:
        """Commands are never wrapped: they are there to be copied."""
        commands = list(dict.fromkeys(command for remedy in remedies for command in remedy.run))
        for command in commands[:MOST_COMMANDS]:
            self.console.print(Text(f"            $ {clean(command)}", style="green"), soft_wrap=True)
        if len(commands) > MOST_COMMANDS:
            self._print(Text(f"            and {len(commands) - MOST_COMMANDS} more, in --format json"))
        if remedies[0].confirm:
            confirm = self._grid("  ", LABEL_WIDTH)
            confirm.add_row("", Text("confirm"), Text(clean(remedies[0].confirm)))
            self.console.print(confirm)

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
            self._print(Text())
            self._titled(Status.UNKNOWN, Text(clean(f"{checks}:{who} {summary}{more_like_it(alike)} ({why}){needed}")))

    def _waived(self) -> None:
        for result in self.report.results:
            for finding in result.findings:
                if finding.waived is not None and finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
                    until = f" until {finding.waived.until}" if finding.waived.until else ""
                    self._print(Text())
                    said = f"waived{until}: {finding.id}: {finding.summary} ({finding.waived.reason})"
                    self._print(Text(clean(said), style="dim"))

    def _everything(self) -> None:
        self._print(Text())
        for result in self.report.results:
            self._print(Text.assemble(self._badge(result.status), f"  {result.check}: {result.title}"))
            rows = self._grid("    ", BADGE_WIDTH)
            for finding in result.findings:
                rows.add_row(
                    "", self._badge(finding.status), Text(clean(f"{label([finding.subject])}: {finding.summary}"))
                )
                for evidence in finding.evidence:
                    rows.add_row("", Text(), self._evidence(evidence))
            self.console.print(rows)
        if self.look.verbose > 1:
            self._print(Text(f"took {self.report.seconds:.3f} s, configuration {self.report.tool.config_digest}"))

    def _titled(self, status: Status, text: Text) -> None:
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=BADGE_WIDTH)
        row.add_column(overflow="fold")
        row.add_row(self._badge(status), text)
        self.console.print(row)

    def _badge(self, status: Status) -> Text:
        fancy, plain, style = _GLYPHS[status]
        return Text(f"{plain if self.look.ascii else fancy} {STATUS_WORDS[status]:7}", style=style)

    def _grid(self, indent: str, *widths: int) -> Table:
        """Columns of these widths behind an indentation, and one that takes the rest of the line."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=len(indent) - 2)
        for width in widths:
            grid.add_column(width=width)
        grid.add_column(overflow="fold")
        return grid

    def _print(self, text: Text) -> None:
        self.console.print(text)


def _shortened(shows: str) -> str:
    """A kernel stack's innermost frames tell where a task waits; the rest is for -v."""
    frames = shows.split("; ")
    return "; ".join([*frames[:MOST_FRAMES], "..."]) if len(frames) > MOST_FRAMES + 1 else shows


def _some(words: Sequence[str], most: int) -> str:
    shown = [clean(word) for word in words[:most]]
    return ", ".join(shown) + (f" and {len(words) - most} more" if len(words) > most else "")


def _check_counts(finding_ids: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    for finding_id in finding_ids:
        check = finding_id.split("@", 1)[0]
        counts[check] = counts.get(check, 0) + 1
    return [f"{check} ({counted(number, 'finding')})" for check, number in counts.items()]
