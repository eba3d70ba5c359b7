"""The two lines at the top: the verdict, and of what, from where and when; below them the bar of views."""

import datetime
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from gpudoctor.reports.tui.model import MOMENT

if TYPE_CHECKING:
    from gpudoctor.reports.tui.model import Progress, Shown

AHEAD_SECONDS = 60
"""Two clocks may differ so much without a word."""
MOST_NAME = 64
"""As long as a host's name can be on Linux (HOST_NAME_MAX, gethostname(2)): what is longer must not push the rest out."""


class Heading(Static):
    """The verdict line and the source line."""

    DEFAULT_CSS = "Heading { height: 2; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; background: $panel; }"

    _told = Content()

    def show(self, shown: "Shown") -> None:
        """Show what is known now; what is there already is not sent again."""
        told = Content("\n").join([verdict_line(shown), source_line(shown)])
        if not told.is_same(self._told):
            self._told = told
            self.update(told, layout=False)


def verdict_line(shown: "Shown") -> Content:
    """The verdict, or that there is none yet, and what the run is doing."""
    from gpudoctor.reports.tui.badges import STYLES, badge, node_text
    from gpudoctor.reports.words import OVERALL_STATUS, counted, headline
    from gpudoctor.verdicts import Status

    parts = []
    if shown.report is not None:
        parts.append(badge(OVERALL_STATUS[shown.report.verdict], ascii=shown.ascii, width=0))
        parts.append(Content.styled(headline(shown.report), "bold"))
    elif shown.progress is not None:
        wrong = sum(told.status is Status.FAIL for told in shown.progress.told.values())
        parts.append(Content.styled(f"{counted(wrong, 'check')} failed so far" if wrong else "", STYLES[Status.FAIL]))
    if shown.problem:
        parts.append(node_text(shown.problem, STYLES[Status.FAIL]))
    if shown.progress is not None:
        parts.append(running_words(shown.progress))
    if shown.before is not None and shown.report is not None:
        from gpudoctor.reports.tui.marks import changes_line

        parts.append(Content.styled(changes_line(shown.before, shown.report), "$text-secondary"))
    # Last: in a narrow window what has changed matters more.
    if shown.progress is None and shown.watch is not None:
        parts.append(Content.styled(f"watching, every {shown.watch:g} s", "$text-accent"))
    return Content("  ").join(part for part in parts if part.plain)


def running_words(progress: "Progress") -> Content:
    """How far the run is, what it waits for, and how long it may still take."""
    from gpudoctor.reports.tui.chain import fact_words

    now = time.monotonic()
    total, done = len(progress.checks), len(progress.told)
    words = f"running {done}/{total}" if total else "running"
    if waits := progress.waits(now):
        words += f", waits for {fact_words(waits[0])} {waits[1]:.1f} s"
    if progress.deadline is not None:
        words += f", at most {max(0.0, progress.started + progress.deadline - now):.0f} s more"
    return Content.styled(words, "$text-accent")


def source_line(shown: "Shown") -> Content:
    """Which node, how old the answers are, and where they come from."""
    from gpudoctor.reports.tui.badges import node_text

    separator = " | " if shown.ascii else " · "
    report = shown.report
    words = [shown.source]
    if report is not None:
        driver = report.node.driver_version
        words = [
            (report.node.hostname or "unnamed node")[:MOST_NAME],
            _age(shown, report.started_at),
            f"driver {driver}" if driver else "",
            shown.source,
        ]
    return node_text(separator.join(word for word in words if word), "$text-muted")


def _age(shown: "Shown", started_at: str) -> str:
    # A recording that does not tell when it was made is told of as of the moment of the run.
    of_now = bool(shown.node and shown.began and started_at >= shown.began)
    return "of an unknown time" if of_now else age(started_at)


def age(started_at: str) -> str:
    """How long ago a report was begun."""
    try:
        began = datetime.datetime.strptime(started_at, MOMENT).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return started_at
    seconds = (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()
    if seconds < -AHEAD_SECONDS:
        return f"{began:%Y-%m-%d %H:%M} UTC, ahead of this clock"
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word} ago"
    return f"{max(0, int(seconds))} s ago"


class Bar(Static):
    """The views by their keys; a click goes there."""

    DEFAULT_CSS = "Bar { height: 1; padding: 0 1; text-wrap: nowrap; background: $panel; }"

    def show(self, views: Sequence[tuple[str, str]], current: str, width: int) -> None:
        """The views as (key, title); as narrow as a window is, keys are always there."""
        words = [f" {key} {title} " for key, title in views]
        if sum(map(len, words)) > width - 2:
            words = [f" {key} {title} " if key == current else f" {key} {title[:4].strip()} " for key, title in views]
        if sum(map(len, words)) > width - 2:
            words = [f" {key} {title} " if key == current else f" {key} " for key, title in views]
        told = []
        for (key, _), text in zip(views, words, strict=True):
            style = "bold reverse" if key == current else "$text-muted"
            told.append(Content.styled(text, style).stylize(Style.from_meta({"pressed": key})))
        self.update(Content("").join(told), layout=False)

    async def on_click(self, event: events.Click) -> None:
        """Go there. The key itself would be typed into the filter where one writes."""
        if key := event.style.meta.get("pressed"):
            await self.app.run_action(f"go_to('{key}')")
