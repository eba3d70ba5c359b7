"""`gpudoctor tui` over a played run: `python tui_program.py PLAY... -- ARGUMENTS`.

PLAY is the command that plays; `crash` has the program crash at once.
"""

import sys

from gpudoctor.cli import main
from gpudoctor.reports.tui import start


def play() -> int:
    """Put the played run in place of the real one, and go in by the front door."""
    place = sys.argv.index("--")
    played, arguments = sys.argv[1:place], sys.argv[place + 1 :]
    start.__dict__["command"] = lambda words: played
    if played == ["crash"]:
        from gpudoctor.reports.tui import heading

        def broken(shown: object) -> object:
            raise RuntimeError("the heading is broken")

        heading.verdict_line = broken  # type: ignore[assignment]
        played[:] = [sys.executable, "-c", "import time; time.sleep(60)"]
    return main(["tui", *arguments])


if __name__ == "__main__":
    sys.exit(play())
