"""A root cause or a check told in full: how it is known, what to do from the safest step up, and what follows from it."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content
from textual.style import Style

from gpudoctor.diagnosis import label
from gpudoctor.report import Finding, Report, Result
from gpudoctor.reports.html.causes import CauseView, Step, causes_of, steps
from gpudoctor.reports.tui.badges import badge, node_text
from gpudoctor.reports.tui.layout import hung
from gpudoctor.reports.tui.model import Chosen, Shown
from gpudoctor.reports.words import STATUS_WORDS, clean, counted
from gpudoctor.verdicts import Evidence, Status, Subject

LABEL_WIDTH = 11
MOST_BRIEF = 3
MOST_FRAMES = 4
MOST_LISTED = 40
"""As many subjects, commands or consequences are told; a screen is no place for more, the JSON has them all."""


class Line(Struct):
    """A line of a page: words behind a label, or with none behind it where the label is None."""

    text: Content
    label: str | None = ""
    style: str = "$text-muted"


class Command(Struct, frozen=True):
    """A command of a remedy, which stands there to be copied; `step` is the remedy in words."""

    command: str
    step: str


def page(lines: Iterable[Line], width: int, label_width: int = LABEL_WIDTH) -> Content:
    """The lines, wrapped to a width."""
    told = [
        hung(Content(), line.text, width, 0)
        if line.label is None
        else hung(Content.styled(line.label, line.style), line.text, width, label_width)
        for line in lines
    ]
    return Content("\n").join(told)


def lines_of(chosen: Chosen, shown: Shown) -> list[Line]:
    """All that is known of what was chosen."""
    report = shown.report
    if report is None:
        return list(_so_far(chosen, shown))
    if (cause := cause_of(chosen, report)) is not None:
        return list(_cause(cause, report, shown))
    try:
        return list(_result(report.result(chosen.check), report, shown))
    except KeyError:
        return [Line(Content("The report that is shown now says nothing of it any more."), None)]


def cause_of(chosen: Chosen, report: Report) -> CauseView | None:
    """The root cause that was chosen; None where a check was."""
    if not chosen.id.startswith("cause:"):
        return None
    return next((view for view in causes_of(report) if cause_id(view.cause.findings) == chosen.id), None)


def cause_id(findings: Sequence[str]) -> str:
    """How the row of a root cause is known: by its first finding, which the next pass finds again."""
    return f"cause:{findings[0]}"


def commands_of(chosen: Chosen, report: Report) -> list[Command]:
    """The commands of its remedies, from the safest up."""
    told = steps([finding for finding in _findings(chosen, report) if finding.remedies])
    return [Command(clean(command), f"{step.word}: {clean(step.say)}") for step in told for command in step.commands]


def _findings(chosen: Chosen, report: Report) -> list[Finding]:
    if (cause := cause_of(chosen, report)) is not None:
        return list(cause.findings)
    return [finding for result in report.results if result.check == chosen.check for finding in result.findings]


def _so_far(chosen: Chosen, shown: Shown) -> Iterator[Line]:
    """Of a run that is still on there is a status and a line of each check."""
    told = shown.progress.told.get(chosen.check) if shown.progress is not None else None
    yield Line(Content.styled(chosen.check, "bold"), None)
    if told is not None:
        yield Line(badge(told.status, ascii=shown.ascii, width=0) + "  " + node_text(told.detail), None)
    yield Line(Content(""), None)
    yield Line(Content(shown.problem or "The run is still on. Evidence and remedies come with its report."), None)


def _cause(view: CauseView, report: Report, shown: Shown) -> Iterator[Line]:
    cause = view.cause
    yield Line(badge(cause.status, ascii=shown.ascii, width=0) + "  " + node_text(cause.summary, "bold"), None)
    yield Line(Content.styled(f"root cause {view.number} of {len(report.root_causes)}", "$text-muted"), None)
    yield Line(Content(""), None)
    yield Line(Content(f"{cause.check} ({report.result(cause.check).title})"), "check")
    if mark := shown.marks.get(cause.check):
        yield Line(node_text(f"{mark} since the pass before"), "changed")
    if len(cause.subjects) > 1:
        yield _who(cause.subjects)
    if view.breaks:
        yield Line(node_text(view.breaks), "breaks")
    yield from _since(view, shown)
    brief = [_in_brief(one) for one in view.evidence[:MOST_BRIEF]]
    yield from _evidence(brief)
    yield from _steps(view.steps)
    yield from _follows(view)
    if view.unseen:
        yield Line(node_text("the cause may lie in " + ", ".join(view.unseen)), "unseen")
    yield from _listed("see", view.references)
    if tuple(brief) != view.evidence:
        yield Line(Content(), None)
        yield Line(Content.styled("All of the evidence", "bold $text-primary"), None)
        yield from _evidence(view.evidence)


def _in_brief(evidence: Evidence) -> Evidence:
    """A kernel stack's innermost frames tell where a task waits; all of them stand at the end of the page."""
    frames = evidence.shows.split("; ")
    return (
        replace(evidence, shows="; ".join([*frames[:MOST_FRAMES], "..."]))
        if len(frames) > MOST_FRAMES + 1
        else evidence
    )


def _who(subjects: Sequence[Subject]) -> Line:
    more = f" and {len(subjects) - MOST_LISTED} more" if len(subjects) > MOST_LISTED else ""
    return Line(node_text(", ".join(subject.key for subject in subjects[:MOST_LISTED]) + more), "who")


def _since(view: CauseView, shown: Shown) -> Iterator[Line]:
    """When it began, and what happened about then."""
    details = shown.details
    since = next((one for one in details.since if one.cause == view.number - 1), None) if details else None
    if details is None or since is None:
        return
    yield Line(node_text(f"{_moment(since.at)}: {since.how}" if since.at else since.how), "since")
    events = [details.timeline[place] for place in since.around if place < len(details.timeline)]
    yield from _listed("about then", [f"{_moment(event.at) or event.stamp} {event.says}" for event in events[:3]])


def _moment(stamp: str) -> str:
    """`2026-11-29 12:00:00 UTC`."""
    return stamp.replace("T", " ").replace("Z", " UTC")


def _evidence(evidence: Sequence[Evidence]) -> Iterator[Line]:
    for number, one in enumerate(evidence[:MOST_LISTED]):
        at = f" at {one.at}" if one.at else ""
        arrow = " " if one.shows.startswith("->") else ": "
        yield Line(
            node_text(one.where + at, "$text-secondary") + arrow + node_text(one.shows), "" if number else "evidence"
        )
    yield from _more(len(evidence))


def _steps(told: Sequence[Step]) -> Iterator[Line]:
    for place, step in enumerate(told):
        yield Line(Content(""), None)
        who = f"{step.who}: " if step.who else ""
        yield Line(node_text(who + step.say, "" if place else "bold"), step.word, "bold $text-primary")
        for command in step.commands[:MOST_LISTED]:
            yield Line(_to_copy(clean(command)))
        yield from _more(len(step.commands))
        yield Line(node_text(step.interrupts), "interrupts")
        yield from _listed("confirm", step.confirms)


def _to_copy(command: str) -> Content:
    """A command, which a click copies."""
    return Content("$ ") + Content.styled(command, "$text-success").stylize(Style.from_meta({"copies": command}))


def _follows(view: CauseView) -> Iterator[Line]:
    if not view.consequences and not view.blocks:
        return
    yield Line(Content(""), None)
    told = []
    for group in view.follows:
        who = label(list({one.subject.id: one.subject for one in group}.values()))
        told.append(f"{group[0].id.partition('@')[0]} {STATUS_WORDS[group[0].status]}: {who}: {group[0].summary}")
    yield from _listed("explains", told)
    if view.blocks:
        links = [result.link.value for result in view.blocks]
        yield Line(
            Content(", ".join(f"{link} ({counted(links.count(link), 'check')})" for link in dict.fromkeys(links))),
            "blocks",
        )


def _listed(name: str, words: Sequence[str]) -> Iterator[Line]:
    for number, one in enumerate(words[:MOST_LISTED]):
        yield Line(node_text(one), "" if number else name)
    yield from _more(len(words))


def _more(count: int) -> Iterator[Line]:
    if count > MOST_LISTED:
        yield Line(Content.styled(f"and {count - MOST_LISTED} more", "$text-muted"))


def _result(result: Result, report: Report, shown: Shown) -> Iterator[Line]:
    """A check with all of its findings, the worst first; those that say the same of other subjects are told together."""
    yield Line(badge(result.status, ascii=shown.ascii, width=0) + "  " + node_text(result.title, "bold"), None)
    yield Line(Content.styled(f"{result.check}{', essential' if result.essential else ''}", "$text-muted"), None)
    if mark := shown.marks.get(result.check):
        yield Line(node_text(f"{mark} since the pass before"), None)
    if result.why or not result.findings:
        why = f"({result.why}) " if result.why else ""
        yield Line(node_text(why + (result.detail or "nothing more is told")), None)
    if result.blocked_by:
        yield from _listed("blocked by", [_named(finding, report) for finding in result.blocked_by])
    alike: dict[tuple[Status, str], list[Finding]] = {}
    for finding in result.findings:
        alike.setdefault((finding.status, finding.summary), []).append(finding)
    for group in alike.values():
        yield from _group(group, report, shown)


def _group(group: Sequence[Finding], report: Report, shown: Shown) -> Iterator[Line]:
    first = group[0]
    subjects = list({finding.subject.id: finding.subject for finding in group}.values())
    yield Line(Content(""), None)
    said = f"{label(subjects)}: {first.summary}"
    yield Line(badge(first.status, ascii=shown.ascii, width=0) + "  " + node_text(said, "bold"), None)
    if len(subjects) > 1:
        yield _who(subjects)
    if first.why is not None:
        yield Line(
            node_text(first.why.value + (f"; would need: {first.would_need}" if first.would_need else "")), "why"
        )
    if first.waived is not None:
        until = f" until {first.waived.until}" if first.waived.until else ""
        yield Line(node_text(first.waived.reason + until), "waived")
    yield from _listed("follows", [_named(cause, report) for cause in first.caused_by])
    yield from _evidence([evidence for finding in group for evidence in finding.evidence])
    yield from _steps(steps([finding for finding in group if finding.remedies]))
    yield from _listed("see", first.references)


def _named(finding_id: str, report: Report) -> str:
    try:
        return f"{finding_id}: {report.finding(finding_id).summary}"
    except KeyError:
        return finding_id
