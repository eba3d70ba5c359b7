"""What the benchmarks do that measure work in a folder of their own: options, a counter, complaints, the exit status."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from counting import CommandFailed, Counter
from plain_venv import plain_venv


def judged(about: str | None, measure: Callable[[Counter, Path], list[str]]) -> int:
    """Measure, print what is too dear, and give the exit status; `about` is what --help says in its first line."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0] if about else None)
    parser.add_argument("--cpu", action="store_true", help="count CPU time even where valgrind is installed")
    options = parser.parse_args()
    counter = Counter(plain_venv() / "bin" / "python", callgrind=not options.cpu)
    with tempfile.TemporaryDirectory() as folder:
        try:
            problems = measure(counter, Path(folder))
        except CommandFailed as failure:
            problems = [str(failure)]
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0
