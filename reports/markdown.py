"""The report as Markdown for a ticket: verdict, chain, root causes with evidence and next steps."""

from collections.abc import Iterable, Iterator

from gpudoctor.chain import Link
from gpudoctor.report import Finding, Report, RootCause
from gpudoctor.reports.shares import folded
from gpudoctor.reports.since_words import since_when
from gpudoctor.reports.words import STATUS_ORDER, clean, counted, headline
from gpudoctor.verdicts import Evidence, Remedy, Status

MOST_EVIDENCE = 6
MOST_SUBJECTS = 16
MOST_COMMANDS = 32


def render(report: Report) -> str:
    """GitHub's flavour, which other trackers read as well."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    node = report.node
    yield f"# {report.verdict.value.upper()}: {_text(headline(report))}"
    yield ""
    facts = (node.hostname, node.os, node.kernel and f"kernel {node.kernel}", _driver(report), report.started_at)
    yield " · ".join(_text(fact) for fact in facts if fact)
    yield ""
    yield from _chain(report)
    yield from _sharing(report)
    for cause in report.root_causes:
        yield from _root_cause(report, cause)
    yield from _not_seen(report)
    yield f"gpudoctor {report.tool.version}, {node.source}"


def _driver(report: Report) -> str:
    return f"driver {report.node.driver_version}" if report.node.driver_version else ""


def _chain(report: Report) -> Iterator[str]:
    yield "| link | status | checks |"
    yield "| --- | --- | --- |"
    for link in Link:
        results = [result for result in report.results if result.link is link]
        if results:
            worst = next(status for status in STATUS_ORDER if any(result.status is status for result in results))
            alarms = [result.check for result in results if result.status in (Status.FAIL, Status.WARN)]
            said = ", ".join(f"`{check}`" for check in alarms) or counted(len(results), "check")
            yield f"| {link.value} | {worst.value} | {said} |"
    yield ""


def _sharing(report: Report) -> Iterator[str]:
    if report.sharing:
        yield "| who shares | how | by | memory | faults | compute | who may open it |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for share in folded(report.sharing):
            row = share.row
            how = "; ".join(part for part in (share.how, row.room, row.note) if part)
            cells = (share.label, how, share.by, row.memory, row.faults, row.compute, row.access)
            yield f"| {' | '.join(_text(cell) for cell in cells)} |"
        yield ""


def _root_cause(report: Report, cause: RootCause) -> Iterator[str]:
    findings = [report.finding(one) for one in cause.findings]
    yield f"## {cause.status.value.upper()}: {_text(cause.summary)}"
    yield ""
    left = len(cause.subjects) - MOST_SUBJECTS
    subjects = ", ".join(f"`{_code(subject.key)}`" for subject in cause.subjects[:MOST_SUBJECTS])
    yield f"`{cause.check}`, about {subjects}{f' and {left} more' if left > 0 else ''}"
    if since := since_when(report, cause):
        yield f"Since {_text(since)}"
    if cause.consequence_ids:
        yield f"Explains {counted(len(cause.consequence_ids), 'other finding')}."
    yield ""
    yield from _evidence(findings[0])
    for place, remedy in enumerate(findings[0].remedies):
        alike = [one.remedies[place] for one in findings if len(one.remedies) > place]
        yield from _remedy(place + 1, remedy, [command for one in alike for command in one.run])
    yield ""


def _evidence(finding: Finding) -> Iterator[str]:
    if finding.evidence:
        yield "```"
        yield from (_quoted(seen) for seen in finding.evidence[:MOST_EVIDENCE])
        yield "```"
        yield ""


def _quoted(seen: Evidence) -> str:
    at = f" [{seen.at}]" if seen.at else ""
    return clean(f"{seen.where}{at}: {seen.shows}").replace("```", "'''")


def _remedy(number: int, remedy: Remedy, commands: Iterable[str]) -> Iterator[str]:
    """A step, with the commands of every subject that it is for."""
    run = list(dict.fromkeys(commands))
    interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {_text(remedy.interrupts)})"
    yield f"{number}. {'Then: ' if remedy.then else ''}{_text(remedy.say)}{interrupts}"
    if run:
        yield ""
        yield "   ```sh"
        yield from (f"   {clean(command)}" for command in run[:MOST_COMMANDS])
        if len(run) > MOST_COMMANDS:
            yield f"   # and {len(run) - MOST_COMMANDS} more, in --format json"
        yield "   ```"
    if remedy.confirm:
        yield f"   Confirm: `{_code(remedy.confirm)}`"


def _not_seen(report: Report) -> Iterator[str]:
    if report.not_seen:
        yield f"<details><summary>{counted(len(report.not_seen), 'thing')} could not be seen</summary>"
        yield ""
        for unseen in report.not_seen:
            needed = f"; would need {_text(unseen.would_need)}" if unseen.would_need else ""
            yield f"* {_text(unseen.what)} ({unseen.why.value}{needed})"
        yield ""
        yield "</details>"
        yield ""


def _text(text: str) -> str:
    """Text in which nothing is markup."""
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{character}" if character in "\\`*_[]|#" else character for character in escaped)


def _code(text: str) -> str:
    return clean(text).replace("`", "'")
