"""Where the doctor that runs lies, as other programs can start it."""

import os
import sys
from pathlib import Path

from gpudoctor.installing.node import COMMAND


def running_command() -> tuple[str, tuple[str, ...]]:
    """The absolute path of the program that runs, links kept, and what is to be said of it.

    Links stay: an upgrade leaves /usr/local/bin/gpudoctor and changes what it leads to.
    """
    beside = str(Path(sys.executable or "/").parent / "gpudoctor")
    for place in (*sys.argv[:1], beside):
        if place and not place.endswith(".py") and os.path.isfile(place) and os.access(place, os.X_OK):
            return os.path.abspath(place), ()
    return COMMAND, (
        f"no program named gpudoctor was found beside this Python: the files expect {COMMAND}; --command names another",
    )
