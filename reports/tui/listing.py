"""The rows of the diagnosis: links, root causes, and the checks of a link or those that a filter finds."""

import re
import time
from collections.abc import Iterable, Sequence

from textual.content import Content

from gpudoctor.chain import Link
from gpudoctor.report import Overall, Report, Result, RootCause
from gpudoctor.reports.tui.badges import STYLES, badge, node_text
from gpudoctor.reports.tui.chain import LinkState, fact_words, link_states, status_counts
from gpudoctor.reports.tui.layout import cut, hung
from gpudoctor.reports.tui.model import Chosen, Shown
from gpudoctor.reports.tui.rows import Row
from gpudoctor.reports.tui.stream import Told
from gpudoctor.reports.words import STATUS_ORDER, counted
from gpudoctor.verdicts import Status

BADGE = 10
LINK = 14
MOST_EXPLAINED = 4
LEAST_ROOM = 6
MOST_LOG = 8
_XID = re.compile(r"\b(S?Xid) (?:\(PCI:[0-9A-Fa-f:.]+\): )?(\d{1,5})\b")


def link_rows(shown: Shown, now: float, width: int) -> list[Row]:
    """A row for each link."""
    return [Row(_link(state, shown, width), f"link:{state.link.value}") for state in link_states(shown, now)]


def _link(state: LinkState, shown: Shown, width: int) -> Content:
    unsaid = state.status is None or (state.on and shown.report is None)
    mark = _pending(state, shown) if unsaid else badge(state.status or Status.SKIP, ascii=shown.ascii, width=BADGE)
    if state.follows and state.status is not None:
        mark = Content.styled(mark.plain, STYLES[state.status].replace("bold ", ""))
    style = "bold" if state.causes else "" if state.status is not Status.SKIP else "dim"
    name = Content.styled(state.link.value.ljust(LINK), style)
    room = width - BADGE - LINK
    words = state.words + (" ..." if state.on and shown.report is not None else "")
    changed = _changed(state.link, shown)
    if changed:
        words = f"{changed}  {words}" if len(changed) + 2 + len(words) <= room else changed
    short = changed[:1] or _short(state, shown)
    tail = Content.styled(words if len(words) <= room else short, "$text-muted" if not changed else "bold")
    return cut(mark + name + tail, width, ascii=shown.ascii)


def _changed(link: Link, shown: Shown) -> str:
    """What matters most of what changed in a link since the pass before, `▲ new`; "" where nothing did."""
    if not shown.marks or shown.report is None:
        return ""
    from gpudoctor.reports.tui.marks import most_telling

    found = most_telling(shown.marks.get(one.check, "") for one in shown.report.results if one.link is link)
    return _marked(found, shown)


def _marked(word: str, shown: Shown) -> str:
    if not word:
        return ""
    from gpudoctor.reports.tui.marks import marked

    return marked(word, ascii=shown.ascii)


def _pending(state: LinkState, shown: Shown) -> Content:
    if state.on:
        return Content.styled(("> " if shown.ascii else "▸ ") + "asking".ljust(BADGE - 2), "$text-accent")
    return Content.styled((". " if shown.ascii else "· ") + "to come".ljust(BADGE - 2), "dim")


def _short(state: LinkState, shown: Shown) -> str:
    """What fits beside a link in a narrow window."""
    if state.on:
        return f"{state.seconds:.0f} s" if state.seconds is not None else "..."
    if state.causes:
        return str(state.causes)
    return ("^" if shown.ascii else "↳") if state.follows else ""


def finding_rows(shown: Shown, link: Link | None, width: int, height: int = 0) -> list[Row]:
    """Root causes first, then what is essential and was not seen, then the checks of a link, or of all where a filter is set.

    In a list as high as `height` lines there may be room for what is not well elsewhere.
    """
    report = shown.report
    if report is None:
        return _so_far(shown, link, width)
    causes = [cause for cause in report.root_causes if shown.matches(cause.summary, cause.check)]
    found = f"{len(causes)} of " if shown.words and report.root_causes else ""
    rows = [Row(_title(found + _causes_title(report), width))]
    rows += [Row(_cause(cause, shown, width), f"cause:{cause.findings[0]}") for cause in causes]
    if not causes:
        rows.append(Row(hung(Content(), _no_cause(report, shown), width, 0)))
    unseen = essential_unknown(report) if not shown.words else []
    if unseen:
        rows += [Row(Content()), Row(_title("Not seen, though essential", width))]
        rows += [Row(_told(result, shown, width, wrapped=True), f"unseen:{result.check}") for result in unseen]
    rows += _check_rows(shown, report, link, width)
    room = height - sum(row.content.plain.count("\n") + 1 for row in rows)
    return rows + (_elsewhere(shown, report, link, width, room) if room >= LEAST_ROOM and not shown.words else [])


def _title(words: str, width: int) -> Content:
    return cut(Content.styled(words, "bold $text-primary"), width)


def _causes_title(report: Report) -> str:
    fails = sum(cause.status is Status.FAIL for cause in report.root_causes)
    warns = len(report.root_causes) - fails
    told = [counted(fails, "root cause")] if fails else []
    told += [counted(warns, "warning")] if warns else []
    return " and ".join(told) if told else "No root cause"


def _no_cause(report: Report, shown: Shown) -> Content:
    if shown.words and report.root_causes:
        return Content.styled("None of them has these words.", "$text-muted")
    if report.verdict is Overall.UNKNOWN:
        return Content("Nothing broken was seen, but something essential could not be looked at.")
    more = f" {counted(len(report.not_seen), 'thing')} could not be looked at: key 6." if report.not_seen else ""
    return Content("Nothing that was looked at is broken." + more)


def _cause(cause: RootCause, shown: Shown, width: int) -> Content:
    head = hung(badge(cause.status, ascii=shown.ascii, width=BADGE), node_text(cause.summary), width, BADGE)
    separator = " | " if shown.ascii else " · "
    more = [cause.check]
    if cause.consequence_ids:
        more.append("explains " + counted(len(cause.consequence_ids), "finding"))
    if mark := shown.marks.get(cause.check):
        more.append(_marked(mark, shown))
    tail = cut(Content.styled(separator.join(more), "$text-muted"), max(1, width - BADGE), ascii=shown.ascii)
    return head + "\n" + Content.blank(BADGE) + tail


def essential_unknown(report: Report) -> list[Result]:
    """What keeps a node whose verdict is unknown from a better one."""
    if report.verdict is not Overall.UNKNOWN:
        return []
    return [
        result for result in report.results if result.essential and result.status in (Status.UNKNOWN, Status.BLOCKED)
    ]


def _check_rows(shown: Shown, report: Report, link: Link | None, width: int) -> list[Row]:
    if shown.words:
        results: Sequence[Result] = [result for result in report.results if _matches(result, shown)]
        title = f"Checks with '{shown.words}'"
    else:
        results = [result for result in report.results if result.link is link]
        title = link.value if link is not None else ""
    if not results:
        return [Row(Content()), Row(_title(f"{title}: none", width))] if title else []
    counts = status_counts(result.status for result in results)
    rows = [Row(Content()), Row(_title(f"{title}: {counts}", width))]
    ordered = sorted(results, key=lambda result: STATUS_ORDER.index(result.status))
    return rows + [Row(_told(result, shown, width), f"check:{result.check}") for result in ordered]


def _elsewhere(shown: Shown, report: Report, link: Link | None, width: int, room: int) -> list[Row]:
    """What is not well in other links, as much as there is room for."""
    well = (Status.PASS, Status.SKIP)
    results = [result for result in report.results if result.link is not link and result.status not in well]
    if not results:
        return []
    alike: dict[tuple[Status, str], list[Result]] = {}
    for result in sorted(results, key=lambda result: STATUS_ORDER.index(result.status)):
        blocked = result.status is Status.BLOCKED
        alike.setdefault((result.status, ", ".join(result.blocked_by) if blocked else result.detail), []).append(result)
    groups = list(alike.values())
    rows = [Row(Content()), Row(_title(f"Elsewhere: {status_counts(result.status for result in results)}", width))]
    fits = len(groups) if len(groups) <= room - 2 else room - 3
    rows += [Row(_together(group, shown, width), f"check:{group[0].check}") for group in groups[:fits]]
    more = f"and {sum(map(len, groups[fits:]))} checks more, by their links"
    return rows + ([Row(Content.styled(more, "$text-muted"))] if fits < len(groups) else [])


def _together(group: Sequence[Result], shown: Shown, width: int) -> Content:
    """Checks that say the same, by the first of them."""
    first, others = group[0], len(group) - 1
    blockers = sorted({finding.partition("@")[0] for finding in first.blocked_by})
    words = f"by {', '.join(blockers)}" if blockers else first.detail
    who = first.check + (f" and {others} more" if others else "")
    text = Content.styled(f"{who}: ", "$text-muted") + node_text(words)
    return cut(badge(first.status, ascii=shown.ascii, width=BADGE) + text, width, ascii=shown.ascii)


def _matches(result: Result, shown: Shown) -> bool:
    return shown.matches(result.check, result.title, result.detail, *(finding.summary for finding in result.findings))


def _told(result: "Result | Told", shown: Shown, width: int, *, wrapped: bool = False) -> Content:
    """A check in a line: what is said of it where it did not pass, else what it asks."""
    title = result.title if isinstance(result, Result) else _asked_of(result.check, shown)
    wrong = result.status not in (Status.PASS, Status.SKIP)
    words = result.detail if wrong and result.detail else title or result.check
    if result.status is Status.UNKNOWN:
        words = f"{result.check.partition('.')[2]}: {words}"
    mark = shown.marks.get(result.check, "")
    text = node_text(
        f"[{_marked(mark, shown)}] {words}" if mark else words,
        "" if wrong or mark else "dim" if result.status is Status.SKIP else "",
    )
    head = badge(result.status, ascii=shown.ascii, width=BADGE)
    if wrapped:
        return hung(head, text, width, BADGE)
    return cut(head + text, width, ascii=shown.ascii)


def _asked_of(check: str, shown: Shown) -> str:
    asked = shown.progress.checks if shown.progress is not None else ()
    return next((one.title for one in asked if one.id == check), "")


def _so_far(shown: Shown, link: Link | None, width: int) -> list[Row]:
    """What a run that is still on has told: what is wrong first, then the link's checks."""
    if shown.problem or shown.progress is None:
        said = [node_text(line, "$text-muted") for line in shown.log[-MOST_LOG - 1 : -1]]
        rows = [Row(_title("There is no report", width)), Row(hung(Content(), node_text(shown.problem), width, 0))]
        return rows + [Row(hung(Content(), line, width, 0)) for line in said]
    progress = shown.progress
    wrong = [told for told in progress.told.values() if told.status in (Status.FAIL, Status.WARN)]
    rows = [Row(_title("The run is on; root causes are told at its end", width))]
    if waits := progress.waits(time.monotonic()):
        rows.append(
            Row(hung(Content(), node_text(f"It waits for {fact_words(waits[0])}, {waits[1]:.1f} s by now."), width, 0))
        )
    rows += _asked(wrong, shown, width, "Wrong so far")
    of_link = [told for told in progress.told.values() if told.link is link]
    return rows + _asked(of_link, shown, width, f"{link.value}, so far" if link is not None else "")


def _asked(told: Iterable[Told], shown: Shown, width: int, title: str) -> list[Row]:
    listed = sorted(told, key=lambda one: STATUS_ORDER.index(one.status))
    if not listed:
        return []
    prefix = "wrong" if title.startswith("Wrong") else "check"
    rows = [Row(Content()), Row(_title(title, width))]
    return rows + [Row(_told(one, shown, width), f"{prefix}:{one.check}") for one in listed]


def chosen_row(row: str | None, shown: Shown) -> Chosen | None:
    """What a row stands for; None for a link, or nothing."""
    kind, _, name = (row or "").partition(":")
    if kind == "cause":
        check = name.partition("@")[0]
        cause = (
            next((one for one in shown.report.root_causes if one.findings[0] == name), None) if shown.report else None
        )
        return Chosen(row or "", check, cause.findings if cause is not None else ())
    return Chosen(row or "", name) if kind in ("check", "unseen", "wrong") else None


def chosen_for(finding: str, report: Report) -> Chosen:
    """What a finding belongs to: its root cause, or its check."""
    for cause in report.root_causes:
        if finding in cause.findings:
            return Chosen(f"cause:{cause.findings[0]}", cause.check, cause.findings)
    check = finding.partition("@")[0]
    return Chosen(f"check:{check}", check)


def explained_with(chosen: Chosen, report: Report | None) -> tuple[str, ...]:
    """What `gpudoctor explain` is asked: the check, and the codes that its findings speak of."""
    findings = [
        finding
        for result in (report.results if report is not None else ())
        for finding in result.findings
        if result.check == chosen.check and (not chosen.findings or finding.id in chosen.findings)
    ]
    said = [words for one in findings for words in (one.summary, *(evidence.shows for evidence in one.evidence))]
    codes = [f"{kind.lower()}:{number}" for words in said for kind, number in _XID.findall(words)]
    return (chosen.check, *dict.fromkeys(codes))[:MOST_EXPLAINED]
