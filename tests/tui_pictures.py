"""Pictures of the TUI as SVG, for the README and for a person to look at: `python -m tests.tui_pictures FOLDER [NODE…]`."""

import datetime
import re
import sys
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

from gpudoctor.reports.tui.app import DoctorApp
from gpudoctor.reports.tui.model import Shown
from tests.tui_runs import LARGE, MIDDLE, SMALL, drive, full_report

README_NODE = "nouveau-and-broken-daemon-json"
NODES = ("h100x8", README_NODE, "nvml-hung-at-gpu4", "nvml-no-permission-for-user")
SIZES = (SMALL, MIDDLE, LARGE)
VIEWS = "12345678"
SECONDS_AGO = 4
_FONT = re.compile(r"@font-face \{[^}]*\}\s*")
"""Which textual's pictures take from a server; whoever looks has a font of one width."""


def tui_picture(place: Path, name: str = README_NODE, size: tuple[int, int] = MIDDLE, keys: str = "") -> None:
    """Write what is to be seen of a node after these keys, written as one word each, as SVG."""
    just_now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=SECONDS_AGO)
    report = replace(full_report(name), started_at=just_now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    shown = Shown(source="this node", report=report, passes=1)

    async def take(pilot: Pilot[None]) -> None:
        await pilot.press(*keys.split())
        await pilot.pause(0.2)
        picture = pilot.app.export_screenshot(title="gpudoctor tui")
        place.write_text(_FONT.sub("", picture), "utf-8")

    drive(DoctorApp(shown), size, take)


def tui_pictures(folder: Path) -> None:
    """Those of the README: `tui.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    tui_picture(folder / "tui.svg")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    tui_pictures(target)
    for chosen in sys.argv[2:] or NODES:
        for width, height in SIZES:
            for key in VIEWS:
                tui_picture(target / f"tui-{chosen}-{width}x{height}-{key}.svg", chosen, (width, height), key)
