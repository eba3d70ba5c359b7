"""The page's timeline, since when each root cause is there, what was not seen by what would show it, and the raw evidence."""

import re
from collections.abc import Callable
from urllib.parse import unquote

import msgspec
import pytest
from msgspec.structs import replace

from gpudoctor.details import Details, Event, EventKind, FullReport, Since
from gpudoctor.details_run import run_in_full
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.reports import html, markdown, terminal
from gpudoctor.reports.html.appendix import appendix_of
from gpudoctor.reports.html.rows import ADDRESS
from gpudoctor.reports.html.timeline import MOST_ROWS, bounded, timeline_of
from gpudoctor.reports.look import Look
from gpudoctor.run import Selection
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Status

REGISTRY = built_in(deferred=True)
SICK = ("nvml-mismatch-apt-history", "gpu-off-the-bus", "xid-48-and-its-aftermath", "persistenced-failed")
ALARMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)
Reports = Callable[[str], FullReport]


@pytest.fixture(scope="module")
def reports() -> Reports:
    """Reports with details, each made once."""
    made: dict[str, FullReport] = {}

    def give(name: str) -> FullReport:
        if name not in made:
            recorded = node(name)
            assert recorded.manifest is not None
            made[name] = run_in_full(
                recorded, config_of(recorded), REGISTRY, Selection(), recorded.manifest.recorded_at
            )
        return made[name]

    return give


def details_of(report: FullReport) -> Details:
    """The details, which are there."""
    assert report.details is not None
    return report.details


def with_events(report: FullReport, *events: Event, since: tuple[Since, ...] = ()) -> FullReport:
    """The report with another timeline."""
    return replace(report, details=replace(details_of(report), timeline=events, since=since, more_events=0))


def section(page: str, name: str) -> str:
    """The markup of one section."""
    begin = page.index(f'<section id="{name}"')
    end = page.find("\n<section id=", begin)
    return page[begin : end if end >= 0 else page.index("</main>", begin)]


def ids(page: str) -> set[str]:
    """Where addresses may lead."""
    return set(re.findall(r'\bid="([^"]+)"', page))


@pytest.mark.parametrize("name", SICK)
def test_every_root_cause_says_since_when_and_what_was_around_then(name: str, reports: Reports) -> None:
    report = reports(name)
    page = html.render(report)
    causes = section(page, "causes")
    assert causes.count("<dt>Since</dt>") == len(report.root_causes) > 0
    leading = {unquote(one) for one in re.findall(r'href="#(event/\d+)"', page)}
    assert leading <= ids(page)
    around = [one for one in details_of(report).since if one.around]
    assert causes.count("<dt>Around then</dt>") == len(around)


@pytest.mark.parametrize("name", SICK)
def test_events_and_findings_lead_to_each_other(name: str, reports: Reports) -> None:
    page = html.render(reports(name))
    timeline, checks = section(page, "timeline"), section(page, "checks")
    cited = set(re.findall(r'<span class="cites"><a href="#([^"]+)">', timeline))
    assert cited and cited <= ids(page)
    assert "In the timeline: " in checks


def test_the_upgrade_before_a_mismatch_is_on_the_page(reports: Reports) -> None:
    page = html.render(reports("nvml-mismatch-apt-history"))
    causes, timeline = section(page, "causes"), section(page, "timeline")
    for part in (causes, timeline):
        assert (
            "upgraded 7 packages of the driver (550.144.03-0ubuntu0.22.04.1 -&gt; 550.163.01-0ubuntu0.22.04.1)" in part
        )
    assert '<time datetime="2026-11-28T06:28:39Z">2026-11-28 06:28:39 UTC</time>: the first message about it' in causes
    assert "by its own log" in causes  # the package manager's time is local, and the zone not known


def test_the_timeline_reads_without_a_script(reports: Reports) -> None:
    report = reports("xid-48-and-its-aftermath")
    timeline = section(html.render(report), "timeline")
    assert "<script" not in timeline and " hidden" not in timeline
    for event in details_of(report).timeline:
        assert html_escaped(event.says[:40]) in timeline


def html_escaped(text: str) -> str:
    """As the page has it."""
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;").replace('"', "&#34;")
    )


def test_what_is_not_told_is_named(reports: Reports) -> None:
    timeline = section(html.render(reports("gpu-off-the-bus")), "timeline")
    assert "Not told here: what the kernel said before the last boot: the log was not recorded" in timeline
    empty = with_events(reports("gpu-off-the-bus"))
    assert "No event was found in what was read." in section(html.render(empty), "timeline")


def test_a_page_without_details_says_so(reports: Reports) -> None:
    full = reports("gpu-off-the-bus")
    plain = msgspec.convert(msgspec.to_builtins(full), Report)
    page = html.render(plain)
    assert "this report was written without details" in section(page, "timeline")
    assert "No event was found" not in page and "<dt>Since</dt>" not in page
    assert "<dd>" in section(page, "raw")


def test_the_same_of_several_gpus_is_one_row(reports: Reports) -> None:
    report = reports("nouveau-holds-all-eight")
    rows = [row for _, rows in timeline_of(report, details_of(report)).days for row in rows if row.word == "module"]
    assert [len(row.gpus) for row in rows] == [8]
    timeline = section(html.render(report), "timeline")
    assert all(gpu in timeline for row in rows for gpu in row.gpus)


def test_days_are_those_of_the_events(reports: Reports) -> None:
    report = reports("xid-62-again-after-reboot")
    days = [day for day, _ in timeline_of(report, details_of(report)).days]
    assert days == ["2026-08-07", "2026-09-21", "The boot before", "2026-11-29"]
    report = reports("nvml-mismatch-apt-history")
    days = [day for day, _ in timeline_of(report, details_of(report)).days]
    assert days == ["2026-11-10", "2026-11-28"]


def test_colour_is_never_alone(reports: Reports) -> None:
    timeline = section(html.render(reports("xid-48-and-its-aftermath")), "timeline")
    rows = re.findall(r'<li id="event/\d+".*?</li>', timeline, re.DOTALL)
    assert rows
    for row in rows:
        assert re.search(r'<span class="kind"><svg aria-hidden="true"><use href="#k-\w+"/></svg>\w+</span>', row)


def test_hostile_words_are_inert_and_bounded(reports: Reports) -> None:
    evil = "</li><script>alert(1)</script>\x00\u202e'\"" + "A" * 10_000
    event = Event(
        "", EventKind.DRIVER, evil, "kernel log", stamp="<b>1.0</b>", gpu='"><img src=x>', findings=("x@node:node",)
    )
    since = Since(0, "", evil, (0,))
    page = html.render(with_events(reports("gpu-off-the-bus"), event, since=(since,)))
    timeline = section(page, "timeline")
    assert "<script>alert" not in page and "<img" not in page and "<b>1.0" not in page
    assert "&lt;/li&gt;&lt;script&gt;" in timeline and "\\x00" in timeline and "\\u202e" in timeline
    assert "more bytes" in timeline and len(timeline) < 6000


def test_a_long_timeline_keeps_what_alarms_cite(reports: Reports) -> None:
    report = reports("gpu-off-the-bus")
    finding = next(one.id for result in report.results for one in result.findings if one.status is Status.FAIL)
    events = [
        Event(
            f"2026-11-29T10:{number // 60:02d}:{number % 60:02d}Z", EventKind.XID, f"Xid {number}", "kernel log", gpu=""
        )
        for number in range(400)
    ]
    events[0] = replace(events[0], findings=(finding,))
    told = timeline_of(report, details_of(with_events(report, *events)))
    rows = [row for _, rows in told.days for row in rows]
    assert len(rows) == MOST_ROWS and rows[0].places == (0,)
    assert (told.count, told.more) == (400, 400 - MOST_ROWS)


def test_bytes_that_are_left_out_are_counted() -> None:
    assert bounded("short", 10) == "short"
    assert bounded("a" * 10 + "\u00e9" * 600, 10) == "a" * 10 + "\u2026 1,200 more bytes"


@pytest.mark.parametrize("name", SICK)
def test_the_appendix_holds_every_place_that_alarms_cite(name: str, reports: Reports) -> None:
    report = reports(name)
    told = {source.where for part in appendix_of(report) for source in part.sources}
    cited = {
        seen.where
        for result in report.results
        for finding in result.findings
        if finding.status in ALARMS
        for seen in finding.evidence
    }
    assert cited
    assert {where for where in cited if where not in told and ADDRESS.sub("*", where) not in told} == set()


def test_the_appendix_has_each_line_once_and_names_who_cites_it(reports: Reports) -> None:
    report = reports("gpu-off-the-bus")
    for part in appendix_of(report):
        for source in part.sources:
            lines = [(line.at, line.shows, line.of) for line in source.lines]
            assert len(lines) == len(set(lines)) and source.checks
    page = html.render(report)
    raw = section(page, "raw")
    assert set(re.findall(r'href="#([^"]+)"', raw)) <= ids(page)
    assert set(re.findall(r'href="#(raw/[^"]+)"', page)) <= ids(page)


def test_devices_that_show_something_else_are_named(reports: Reports) -> None:
    (part,) = [part for part in appendix_of(reports("narrow-link-at-gpu")) if part.link.value == "pcie"]
    widths = next(source for source in part.sources if source.where.endswith("/current_link_width"))
    assert len(widths.lines) > 1 and any(line.of and "and" not in line.of for line in widths.lines)


@pytest.mark.parametrize("name", SICK)
def test_the_appendix_is_thrifty(name: str, reports: Reports) -> None:
    page = html.render(reports(name))
    assert len(section(page, "raw")) + len(section(page, "timeline")) < 70_000
    assert len(page) <= 400_000


def test_what_was_not_seen_is_told_by_what_would_show_it(reports: Reports) -> None:
    report = reports("containers-seen-without-root")
    unseen = section(html.render(report), "unseen")
    needs = {one.would_need for one in report.not_seen}
    assert "root" in needs and "" in needs
    titles = re.findall(r'<h3 class="needs">(.*?)</h3>', unseen)
    assert len(titles) == len(needs) and "As root, this would be seen" in titles
    assert titles[-1] == "What would show this is not known"


def test_since_is_told_in_a_line_where_there_are_details(reports: Reports) -> None:
    full = reports("nvml-mismatch-apt-history")
    plain = msgspec.convert(msgspec.to_builtins(full), Report)
    line = "2026-11-28 06:28:39 UTC: the first message about it in the kernel log"
    wide, verbose = Look(width=200), Look(width=200, verbose=1)
    assert f"since     {line}" in terminal.render(full, verbose)
    assert f"Since {line}" in markdown.render(full)
    for text in (terminal.render(full, wide), terminal.render(plain, verbose), markdown.render(plain)):
        assert line not in text
