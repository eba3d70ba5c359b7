"""How soon `gpudoctor tui` paints its first screen, and how soon it answers a key while a probe hangs: `PYTHONPATH=. python bench/tui.py`.

The first screen is judged by instructions (CPU time without valgrind), as multiples of a program that only imports textual, in the same
plain environment; keys by wall clock, on a pseudo-terminal. Exits with 1 when a limit is exceeded.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from plain_venv import ROOT, plain_venv

from tests.tui_terminal import Terminal

NODE = ROOT / "fixtures" / "nodes" / "h100x8"
PLAYER = ROOT / "tests" / "tui_player.py"
PROGRAM = ROOT / "tests" / "tui_program.py"
FIRST_PAINT = Path(__file__).with_name("first_paint.py")
MOST_TIMES = 1.4
MOST_MILLISECONDS = 50.0
CPU_RUNS = 9
PRESSES = 40
VIEWS = (("8", "said nothing on stderr"), ("1", "root causes are told at its end"))
"""Keys that show another view, and words of it."""


def main() -> int:
    """Measure, print, judge."""
    python = str(plain_venv() / "bin" / "python")
    importing = _work([python, "-c", "import textual.app"])
    paint = _work([python, str(FIRST_PAINT), "--node", str(NODE)])
    times = paint / importing
    unit = "million instructions" if shutil.which("valgrind") else "ms of CPU time"
    print(f"importing textual {importing:8.1f}  {unit}")
    print(f"first screen      {paint:8.1f}  {times:.2f} times importing textual, limit {MOST_TIMES}")
    median, worst, quitting = _keys()
    print(
        f"a key while a probe hangs: median {median:.1f} ms, limit {MOST_MILLISECONDS:g}; worst {worst:.1f} ms; quitting {quitting:.0f} ms"
    )
    problems = [f"the first screen costs {times:.2f} times importing textual"] if times > MOST_TIMES else []
    problems += [f"a key takes {median:.1f} ms in the median"] if median > MOST_MILLISECONDS else []
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _work(argv: Sequence[str]) -> float:
    """Instructions in millions, or the least CPU time in ms, of a program on a terminal of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if not shutil.which("valgrind"):
            return min(_cpu(argv) for _ in range(CPU_RUNS))
        said = f"{folder}/said"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", f"--log-file={said}"]
        _run([*valgrind, *argv])
        counted = re.search(r"Collected : (\d+)", Path(said).read_text("utf-8"))
        assert counted is not None, Path(said).read_text("utf-8")
        return int(counted[1]) / 1e6


def _run(argv: Sequence[str]) -> None:
    with Terminal(argv, (120, 40), PYTHONHASHSEED="0", PYTHONPATH="") as terminal:
        status = terminal.ended(600)
        assert status == 0, terminal.said[-2000:]


def _cpu(argv: Sequence[str]) -> float:
    before = os.times()
    _run(argv)
    after = os.times()
    return (after.children_user + after.children_system - before.children_user - before.children_system) * 1e3


def _keys() -> tuple[float, float, float]:
    """Milliseconds from a key to the view it shows, the median and the worst, and from `q` to the end."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.jsonl")
        script.write_text("\n".join([*_until_nvml(), json.dumps({"play": "hang"})]) + "\n", "utf-8")
        run = [sys.executable, "-I", "-S", str(PLAYER), str(script)]
        with Terminal([sys.executable, str(PROGRAM), *run, "--"], (120, 40), PYTHONPATH=str(ROOT)) as terminal:
            terminal.until("waits for NVML", "Quit")
            for key, words in VIEWS:  # the first time a view is loaded
                _answered(terminal, key, words)
            taken = [_answered(terminal, *VIEWS[number % 2]) for number in range(PRESSES)]
            pressed = time.perf_counter()
            terminal.press("q")
            terminal.ended(60)
            return statistics.median(taken), max(taken), (time.perf_counter() - pressed) * 1e3


def _answered(terminal: Terminal, key: str, words: str) -> float:
    terminal.said = b""
    pressed = time.perf_counter()
    terminal.press(key)
    terminal.until(words)
    return (time.perf_counter() - pressed) * 1e3


def _until_nvml() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "run", "--node", str(NODE), "--format", "stream"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    lines = done.stdout.splitlines()
    return lines[: next(place for place, line in enumerate(lines) if json.loads(line).get("fact") == "Nvml") + 1]


if __name__ == "__main__":
    sys.exit(main())
