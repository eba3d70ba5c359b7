"""The whole TUI over reports of recorded nodes and over played runs, and what is to be seen of it as text."""

import asyncio
import functools
import io
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from gpudoctor.details import FullReport
from gpudoctor.registry import built_in
from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.model import Shown
from gpudoctor.run import Selection
from gpudoctor.stream_run import stream
from gpudoctor.testing import config_of, node, run_node

PLAYER = Path(__file__).with_name("tui_player.py")
SECONDS = 15.0
"""How long anything is waited for."""
SMALL, MIDDLE, LARGE = (80, 24), (120, 40), (200, 60)

_AGE = re.compile(r"\d+ (days|hours|minutes|s) ago")
_TOOK = re.compile(r"took( +)\d+\.\d s")


@functools.cache
def full_report(name: str) -> FullReport:
    """The report on a recorded node, with details."""
    return run_node(node(name), details=True)


def over(name: str, **about: Any) -> DoctorApp:
    """The program over a finished report."""
    return DoctorApp(Shown(source=f"recording {name}", report=full_report(name), passes=1, **about))


@functools.cache
def told(name: str) -> tuple[str, ...]:
    """What a run over a recorded node tells, line by line."""
    recorded, out = node(name), io.StringIO()
    assert recorded.manifest is not None
    now = recorded.manifest.recorded_at
    stream(out, name, recorded, config_of(recorded), built_in(deferred=True), Selection(), now)
    return tuple(out.getvalue().splitlines())


def until_nvml(name: str) -> list[str]:
    """What a run tells until it begins to read NVML."""
    lines = told(name)
    place = next(number for number, line in enumerate(lines) if json.loads(line).get("fact") == "Nvml")
    return list(lines[: place + 1])


def play(folder: Path, *lines: "str | dict[str, Any]") -> list[str]:
    """A command that plays these lines."""
    script = folder / f"script-{len(list(folder.iterdir()))}.jsonl"
    script.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return [sys.executable, "-I", "-S", str(PLAYER), str(script)]


def live(run: list[str], **about: Any) -> DoctorApp:
    """The program over a live node, of which a run is played."""
    return DoctorApp(Shown(source="this node", live=True, **about), run, deadline=30.0)


def drive(app: DoctorApp, size: tuple[int, int], act: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    """Run the program in a window of that size while `act` uses it."""

    async def play_it() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "root cause" in screen_text(app).lower() or app.shown.report is None)
            await act(pilot)

    asyncio.run(play_it())


def seen(app: DoctorApp, size: tuple[int, int], *keys: str) -> str:
    """What is to be seen after these keys."""
    text = ""

    async def look(pilot: Pilot[None]) -> None:
        nonlocal text
        await pilot.press(*keys)
        await pilot.pause()
        text = screen_text(app)

    drive(app, size, look)
    return text


async def until(pilot: Pilot[Any], came: Callable[[], object]) -> None:
    """Wait for something to come about."""
    end = time.monotonic() + SECONDS
    while not came():
        assert time.monotonic() < end, f"it did not come:\n{screen_text(pilot.app)}"
        await pilot.pause(0.02)
    await pilot.pause()


def screen_text(app: Any) -> str:
    """What is to be seen, as text; how old a report is, and what it took, differs from day to day."""
    # textual has no public way to a screen's text but a picture of it.
    strips = app.screen._compositor.render_strips()
    text = "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
    return _TOOK.sub(r"took\g<1>N s", _AGE.sub("AGE ago", text)) + "\n"
