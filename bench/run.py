"""The speed and memory of gpudoctor, as multiples of a program that only imports what any command-line tool imports.

Wall clock differs from machine to machine and from minute to minute, so it is printed and never judged; instruction
counts repeat within a percent. Exits with 1 when a limit is exceeded or when a check did not run.
"""

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counting import CommandFailed, Cost, Counter
from plain_venv import ROOT, plain_venv

NODE = ROOT / "fixtures" / "nodes" / "options-applied"
YARDSTICK = Path(__file__).with_name("yardstick.py")
PEAK_LIMIT_KIBIBYTES = 30 * 1024
SHOWN_IMPORTS = 10


@dataclass(frozen=True)
class Case:
    """One measured run of gpudoctor and the most it may cost, in yardsticks; None where nothing is promised."""

    name: str
    arguments: tuple[str, ...]
    limit: float | None


JSON_RUN = Case("run --format json", ("run", "--node", str(NODE), "--format", "json"), 5.0)
CASES = (
    JSON_RUN,
    Case("run --format terminal", ("run", "--node", str(NODE), "--format", "terminal"), 6.0),
    Case("compat --format json", ("compat", "--node", str(NODE), "--format", "json"), 2.5),
    Case("--version", ("--version",), None),
)


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    venv = plain_venv()
    counter = Counter(venv / "bin" / "python", callgrind=not options.cpu)
    doctor = venv / "bin" / "gpudoctor"
    try:
        problems = _checks_that_did_not_run(counter, doctor)
        problems += _measure(counter, doctor)
        if options.profile:
            _print_imports(counter.import_times(doctor, *JSON_RUN.arguments))
    except CommandFailed as failure:
        problems = [str(failure)]
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--profile", action="store_true", help="also list the dearest imports of the JSON run")
    parser.add_argument("--cpu", action="store_true", help="count CPU time even where valgrind is installed")
    return parser.parse_args()


def _checks_that_did_not_run(counter: Counter, doctor: Path) -> list[str]:
    """A run is only worth measuring when every check looked: what it found not applicable, it had to look at as well."""
    known = [check["id"] for check in json.loads(counter.output(doctor, "checks", "--format", "json"))]
    report = json.loads(counter.output(doctor, *JSON_RUN.arguments))
    results = {result["check"]: result for result in report["results"]}
    silent = [check for check in known if not _looked(results.get(check, {}))]
    problems = [f"{check} did not run: {results.get(check, {}).get('status', 'absent')}" for check in silent]
    print(f"{len(known) - len(problems)} of {len(known)} checks ran over {NODE.relative_to(ROOT)}")
    return problems if known else ["the catalogue lists no check"]


def _looked(result: dict[str, Any]) -> bool:
    """A check of things that the node has none of says so instead of having a finding about each."""
    return bool(result.get("findings")) or (result.get("status") == "skip" and bool(result.get("detail")))


def _measure(counter: Counter, doctor: Path) -> list[str]:
    yardstick = counter.cost(YARDSTICK)
    print(f"A is {YARDSTICK.relative_to(ROOT)} in the same plain environment; work in {counter.unit}\n")
    print(f"{'':24}{'work':>9}{'times A':>10}{'limit':>8}{'VmHWM MiB':>12}{'wall ms':>10}")
    _print_row("A", yardstick, yardstick, None)
    problems = []
    for case in CASES:
        cost = counter.cost(doctor, *case.arguments)
        _print_row(case.name, cost, yardstick, case.limit)
        ratio = cost.work / yardstick.work
        if case.limit is not None and ratio > case.limit:
            problems.append(f"{case.name} costs {ratio:.2f} times A, more than {case.limit:g}")
        if cost.peak_kibibytes > PEAK_LIMIT_KIBIBYTES:
            problems.append(f"{case.name} takes {cost.peak_kibibytes} KiB, more than {PEAK_LIMIT_KIBIBYTES}")
    return problems


def _print_row(name: str, cost: Cost, yardstick: Cost, limit: float | None) -> None:
    most = f"{limit:.1f}" if limit is not None else "-"
    memory, wall = f"{cost.peak_kibibytes / 1024:.1f}", f"{cost.wall_seconds * 1e3:.0f}"
    print(f"{name:24}{cost.work:9.1f}{cost.work / yardstick.work:10.2f}{most:>8}{memory:>12}{wall:>10}", flush=True)


def _print_imports(said: str) -> None:
    """The dearest imports with all that they import, and alone."""
    rows = [
        (int(own), int(total), name)
        for own, total, name in re.findall(r"^import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)$", said, re.MULTILINE)
    ]
    for column, title in ((1, "with what it imports"), (0, "alone")):
        print(f"\ndearest imports of {JSON_RUN.name}, {title} (ms)")
        for row in sorted(rows, key=lambda row: row[column], reverse=True)[:SHOWN_IMPORTS]:
            print(f"{row[column] / 1e3:8.2f}  {row[2]}")
    print(f"\n{len(rows)} modules imported")


if __name__ == "__main__":
    sys.exit(main())
