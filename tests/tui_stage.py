"""One view of the TUI on a stage of its own: what it shows as text, and what it asks the program for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from gpudoctor.details import FullReport
from gpudoctor.reports.tui.model import Shown
from gpudoctor.reports.tui.view import View
from gpudoctor.reports.tui.views import VIEWS
from gpudoctor.testing import node, run_node

SMALL, MIDDLE, LARGE = (80, 24), (120, 40), (200, 60)
SIZES = (SMALL, MIDDLE, LARGE)


@cache
def full(name: str) -> FullReport:
    """The report on a recorded node, with details."""
    return run_node(node(name), details=True)


def shown(name: str, **more: Any) -> Shown:
    """What is shown of a recorded node."""
    return Shown(f"recording {name}", report=full(name), **more)


def view(title: str) -> View:
    """A view by its title."""
    return next(kind for kind in VIEWS if kind.title == title).made()


class Stage(App[None]):
    """A program that has this one view, and remembers what it was asked for."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, one: View, what: Shown) -> None:
        super().__init__()
        self.animation_level = "none"
        self.view, self.shown = one, what
        self.opened: list[tuple[str, ...]] = []
        self.copied: list[str] = []
        self.explained: list[tuple[str, ...]] = []
        self.last = self.picture = ""

    def compose(self) -> ComposeResult:
        """The view."""
        yield self.view

    def on_mount(self) -> None:
        """Show."""
        self.view.show(self.shown)
        self.call_after_refresh(self.view.take_focus)

    async def open_findings(self, findings: Sequence[str]) -> None:
        """Remember."""
        self.opened.append(tuple(findings))

    def explain(self, words: Sequence[str]) -> None:
        """Remember."""
        self.explained.append(tuple(words))

    def copy(self, words: str) -> None:
        """Remember."""
        self.copied.append(words)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return text_of(self)


def text_of(app: App[Any]) -> str:
    """What stands on the screen of a program, line by line."""
    strips = (
        app.screen._compositor.render_strips()
    )  # textual's own snapshots are pictures, in which nobody finds a word
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def on_stage(
    title: str,
    what: Shown,
    size: tuple[int, int],
    act: Callable[[Stage, Pilot[None]], Awaitable[Any]] | None = None,
    keys: Sequence[str] = (),
) -> Stage:
    """The view after these keys, at this size; `act` may do more and look in between. Text and picture of the end are kept."""
    stage = Stage(view(title), what)

    async def play() -> None:
        async with stage.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
            await pilot.pause()
            if act is not None:
                await act(stage, pilot)
                await pilot.pause()
            stage.last, stage.picture = stage.text, stage.export_screenshot(title="gpudoctor")

    asyncio.run(play())
    return stage


def screen(title: str, what: Shown, size: tuple[int, int], *keys: str) -> str:
    """What a view shows after these keys."""
    return on_stage(title, what, size, keys=keys).last
