"""Pictures of reports for a person to look at: `python -m tests.screenshots FOLDER [NODE…]`; with `--readme` those of the README.

Of each node the page at the width of a telephone, a laptop and a desk, in both colour schemes, and as printed; and two pages of `diff`.
"""

import argparse
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from gpudoctor import cli
from gpudoctor.testing import fixtures
from tests.axe import DARK, LIGHT
from tests.chromium import browse
from tests.tui_pictures import tui_pictures

NODES = (
    "h100x8",
    "nouveau-and-broken-daemon-json",
    "nvml-hung-at-gpu4",
    "nothing-recorded",
    "kubernetes-pod-lost-gpu-after-reload",
    "mig-config-applied",
)
DIFFS = {"diff-times": ("h100x8", "nouveau-and-broken-daemon-json"), "diff-nodes": ("h100x8", "hgx-a100x8")}
WIDTHS = {380: 9000, 1280: 5000, 1920: 4500}
"""And how much of the page is taken."""
SICK = "nouveau-and-broken-daemon-json"
FIRST_SCREEN = (1280, 1000)
COLUMNS, LINES = 104, 38
MOST_BYTES = 250_000

_THEME = TerminalTheme(
    (16, 20, 25),
    (214, 218, 223),
    [(40, 46, 54), (255, 123, 114), (63, 185, 80), (227, 179, 65), (121, 184, 255), (179, 167, 255), (57, 197, 207), (214, 218, 223)],
    [(110, 118, 129), (255, 161, 152), (86, 211, 100), (240, 200, 90), (160, 205, 255), (205, 195, 255), (86, 212, 221), (255, 255, 255)],
)  # fmt: skip


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("--readme", action="store_true", help="those of the README")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8"}
    if options.readme:
        readme(options.folder)
        return
    for name in options.nodes or (*NODES, *DIFFS):
        place = options.folder / f"{name}.html"
        _said("diff", *_sides(name), "-q", "-o", place) if name in DIFFS else _said(*_run(name), "-q", "-o", place)
        shoot(place)


def shoot(page: Path) -> None:
    """Write a page's pictures beside it."""
    with tempfile.TemporaryDirectory() as profile:
        for width, height in WIDTHS.items():
            for scheme, setting in (("light", LIGHT), ("dark", DARK)):
                picture = page.with_name(f"{page.stem}-{width}-{scheme}.png")
                take(page, picture, (width, height), setting, Path(profile))
        sheet = page.with_suffix(".pdf")
        browse(["--no-pdf-header-footer", f"--print-to-pdf={sheet}"], page.resolve().as_uri(), Path(profile))
        assert sheet.stat().st_size > 10_000, f"{sheet} is empty"


def take(page: Path, picture: Path, size: tuple[int, int], setting: str, profile: Path) -> None:
    """Take one picture of a page as it opens."""
    browse([f"--window-size={size[0]},{size[1]}", setting, f"--screenshot={picture}"], page.resolve().as_uri(), profile)
    assert picture.stat().st_size > 10_000, f"{picture} is empty"


def readme(folder: Path) -> None:
    """The pictures of the README: a sick node's page in both schemes, what a telephone shows of it, the terminal, and the TUI."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        _said(*_run(SICK), "-q", "-o", page)
        for name, size, setting in (
            ("report-light.png", FIRST_SCREEN, LIGHT),
            ("report-dark.png", FIRST_SCREEN, DARK),
            ("report-narrow.png", (380, 820), LIGHT),
        ):
            take(page, folder / name, size, setting, Path(scratch) / "profile")
            assert (folder / name).stat().st_size <= MOST_BYTES, name
    (folder / "terminal.svg").write_text(terminal(_said(*_run(SICK), "--color", "always"), f"gpudoctor --node {SICK}"))
    tui_pictures(folder)


def terminal(said: str, title: str) -> str:
    """The first screen of what a terminal shows, as SVG that asks for nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join(said.splitlines()[:LINES])))
    drawn = console.export_svg(title=title, theme=_THEME, unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def _run(name: str) -> tuple[str, str, Path]:
    return "run", "--node", fixtures() / name


def _sides(name: str) -> tuple[Path, ...]:
    return tuple(fixtures() / one for one in DIFFS[name])


def _said(*words: object) -> str:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out):
        code = cli.main([str(word) for word in words])
    assert code in (0, 1, 2, 3)
    out.seek(0)
    return out.read()


if __name__ == "__main__":
    main()
