"""What one command costs: instructions or CPU time, wall clock, and peak memory."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CPU_RUNS = 15
WALL_RUNS = 7
EXPECTED_EXITS = (0,)

# The peak is a line of the process's own status, so the process itself reads it, once its work is done. What the parent
# learns from wait4 is no substitute: it also counts the parent's pages of the moment before exec. A program that leaves at once is kept.
_SAY_PEAK = """
import os, sys
program, sys.argv = sys.argv[1], sys.argv[1:]
os._exit = sys.exit
try:
    exec(compile(open(program).read(), program, "exec"))
finally:
    sys.stdout.flush()
    sys.stderr.write(open("/proc/self/status").read())
"""


@dataclass(frozen=True)
class Cost:
    """The cost of one command; `work` is in the unit that `Counter.unit` names."""

    work: float
    wall_seconds: float
    peak_kibibytes: int


class CommandFailed(Exception):
    """A measured command did not do its work: its figures would mean nothing."""


class Counter:
    """Measures Python programs in one interpreter; instructions with valgrind's callgrind, else the least CPU time."""

    def __init__(self, python: Path, *, callgrind: bool) -> None:
        self._python = str(python)
        self._callgrind = shutil.which("valgrind") if callgrind else None
        self._environment = {
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONHASHSEED": "0",
        }

    @property
    def unit(self) -> str:
        """What `Cost.work` counts."""
        return "million instructions" if self._callgrind else "ms of CPU time"

    def cost(self, program: Path, *arguments: str) -> Cost:
        """Measure one program. Raises CommandFailed when it does not exit with 0."""
        argv = [self._python, str(program), *arguments]
        self._run(argv)
        walls = [self._wall(argv) for _ in range(WALL_RUNS)]
        work = self._instructions(argv) if self._callgrind else min(self._cpu(argv) for _ in range(CPU_RUNS))
        return Cost(work, min(walls), self._peak(program, arguments))

    def output(self, program: Path, *arguments: str) -> str:
        """What a program prints. Raises CommandFailed when it does not exit with 0."""
        return self._run([self._python, str(program), *arguments]).stdout

    def import_times(self, program: Path, *arguments: str) -> str:
        """What `-X importtime` says of a program's imports."""
        return self._run([self._python, "-X", "importtime", str(program), *arguments]).stderr

    def _run(self, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode not in EXPECTED_EXITS:
            raise CommandFailed(f"exit {done.returncode}: {' '.join(argv)}\n{done.stderr}")
        return done

    def _wall(self, argv: Sequence[str]) -> float:
        started = time.perf_counter()
        self._run(argv)
        return time.perf_counter() - started

    def _instructions(self, argv: Sequence[str]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            valgrind = [str(self._callgrind), "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
            said = self._run([*valgrind, *argv]).stderr
        counted = re.search(r"Collected : (\d+)", said)
        if counted is None:
            raise CommandFailed(f"callgrind gave no count: {said}")
        return int(counted[1]) / 1e6

    def _cpu(self, argv: Sequence[str]) -> float:
        with open(os.devnull, "w", encoding="ascii") as nowhere:
            child = subprocess.Popen(argv, env=self._environment, stdout=nowhere, stderr=nowhere, cwd="/")
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in EXPECTED_EXITS:
            raise CommandFailed(f"exit {child.returncode}: {' '.join(argv)}")
        return (used.ru_utime + used.ru_stime) * 1e3

    def _peak(self, program: Path, arguments: Sequence[str]) -> int:
        status = self._run([self._python, "-c", _SAY_PEAK, str(program), *arguments]).stderr
        peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        if peak is None:
            raise CommandFailed(f"no VmHWM in {status!r} of {sys.executable}")
        return int(peak[1])
