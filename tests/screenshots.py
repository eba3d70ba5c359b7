"""Pictures of HTML reports for a person to look at: `python -m tests.screenshots FOLDER [NODE…]`."""

import sys
import tempfile
from pathlib import Path

from gpudoctor.reports import html
from gpudoctor.testing import node, run_node
from tests.chromium import browse

NODES = ("h100x8", "nouveau-and-broken-daemon-json", "nvml-hung-at-gpu4")
HEIGHT = 3600
NARROW = 420
DARK = "--blink-settings=preferredColorScheme=0"

_NARROW_FRAME = '<body style="margin:0"><iframe src="{}" style="border:0;width:{}px;height:{}px"></iframe>'
"""A window of the browser cannot be as narrow as a telephone, a frame in it can."""


def shoot(name: str, folder: Path) -> None:
    """Write NODE.html and its pictures: wide, dark, narrow, and as printed."""
    page = folder / f"{name}.html"
    page.write_text(html.render(run_node(node(name))), "ascii")
    frame = folder / f"{name}-narrow.html"
    frame.write_text(_NARROW_FRAME.format(page.name, NARROW, HEIGHT), "ascii")
    wide, narrow = f"--window-size=1280,{HEIGHT}", f"--window-size=520,{HEIGHT}"
    with tempfile.TemporaryDirectory() as profile:
        for kind, place, arguments in (
            ("light.png", page, [wide, "--screenshot="]),
            ("dark.png", page, [wide, DARK, "--screenshot="]),
            ("narrow.png", frame, [narrow, "--screenshot="]),
            ("print.pdf", page, ["--no-pdf-header-footer", "--print-to-pdf="]),
        ):
            picture = folder / f"{name}-{kind}"
            browse([*arguments[:-1], f"{arguments[-1]}{picture}"], place.resolve().as_uri(), Path(profile))
            assert picture.stat().st_size > 10_000, f"{picture} is empty"
    frame.unlink()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[2:] or NODES:
        shoot(chosen, target)
