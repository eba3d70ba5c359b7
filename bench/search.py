"""How long a kernel log of 200 MB is looked through, as a multiple of grep(1) over the same words, and what memory that takes.

Both are measured in turn in one run, each in its quickest round, so that a slow machine or a busy one is slow for both. Exits with 1 when
a limit is exceeded, or when the two do not find the same lines.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpudoctor.facts.log_anchors import extended_expression
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.log_search import Boots, search, search_by_grep

T = TypeVar("T")

SIZE = 200_000_000
ONE_IN = 1000
ROUNDS = 4
PURE_LIMIT = 6.0
GREP_LIMIT = 1.6
MEMORY_LIMIT_KIBIBYTES = 40 * 1024

# What a busy node's kernel says all day, and what matters: each family of lines.
USUAL = (
    "eth0: renamed from veth3f2a1bc",
    "docker0: port 3(veth7d21aa0) entered blocking state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth7d21aa0: link becomes ready",
    "[UFW BLOCK] IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=40 TOS=0x00 TTL=240 ID=54321 PROTO=TCP SPT=40000 DPT=22",
    'audit: type=1400 audit(1795971974.123:45): apparmor="ALLOWED" operation="open" name="/proc/1/cmdline" pid=7 comm="sssd"',
    "usb 1-1: new high-speed USB device number 5 using xhci_hcd",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "mlx5_core 0000:17:00.0: mlx5_cmd_out_err:808:(pid 4242): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
    "perf: interrupt took too long (3213 > 3131), lowering kernel.perf_event_max_sample_rate to 62000",
    "nfs: server filer1 not responding, still trying",
)
MATTERS = (
    "NVRM: Xid (PCI:0000:68:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:68:00 GPU-I:05): 94, pid=7194, name=python, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "NVRM: GPU at PCI:0000:68:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
    "INFO: task python:4242 blocked for more than 120 seconds.",
    "nouveau 0000:68:00.0: fifo: fault 00 [READ] at 0000000000000000",
    "pcieport 0000:67:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4242]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=4242,uid=0",
)


def main() -> int:
    """Write a log, look through it in three ways, judge."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "kern.log")
        _write(place)
        problems = _measure(place)
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _write(place: Path) -> None:
    chance = random.Random(1)  # noqa: S311 - a log that is the same each time
    written = 0
    seconds = 0.0
    with place.open("w") as file:
        while written < SIZE:
            seconds += chance.random() / 100
            words = chance.choice(MATTERS if chance.randrange(ONE_IN) == 0 else USUAL)
            written += file.write(f"[{seconds:12.6f}] {words}\n")


def _measure(place: Path) -> list[str]:
    words = extended_expression()
    by_grep = pure = child = float("inf")
    lines = 0
    found: Boots | None = None
    again: Boots | None = None
    for _ in range(ROUNDS):
        counted, seconds = _timed(lambda: _grep(place, words))
        lines, by_grep = counted, min(by_grep, seconds)
        found, seconds = _timed(lambda: _searched(place))
        pure = min(pure, seconds)
        again, seconds = _timed(lambda: search_by_grep(str(place), Deadline(60.0)))
        child = min(child, seconds)
    peak = _anonymous_kibibytes()
    print(f"{SIZE // 1_000_000} MB, {lines} lines that matter, grep -c -E: {by_grep * 1e3:.0f} ms")
    print(f"in pieces     {pure / by_grep:6.2f} times grep   (limit {PURE_LIMIT:g})")
    print(f"grep's child  {child / by_grep:6.2f} times grep   (limit {GREP_LIMIT:g})")
    print(f"peak memory   {peak / 1024:6.1f} MiB anonymous (limit {MEMORY_LIMIT_KIBIBYTES // 1024})")
    problems = []
    if found is None or again is None or found.last.text != again.last.text or not lines <= found.lines <= lines + 2:
        problems.append("the ways do not find the same lines")
    if pure > PURE_LIMIT * by_grep:
        problems.append(f"looking through it in pieces takes {pure / by_grep:.2f} times grep")
    if child > GREP_LIMIT * by_grep:
        problems.append(f"looking through it by grep takes {child / by_grep:.2f} times grep")
    if peak > MEMORY_LIMIT_KIBIBYTES:
        problems.append(f"it takes {peak} KiB of memory")
    return problems


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    done = work()
    return done, time.perf_counter() - started


def _grep(place: Path, words: str) -> int:
    argv = ["grep", "-a", "-c", "-E", "-e", words, str(place)]
    done = subprocess.run(argv, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True)
    return int(done.stdout)


def _searched(place: Path) -> Boots | None:
    with place.open("rb", buffering=0) as file:
        return search(file.read)


def _anonymous_kibibytes() -> int:
    """The peak of what the process has held, without what is mapped from files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    status = {fields[0].rstrip(":"): int(fields[1]) for fields in lines if fields[2:] == ["kB"]}
    return status["VmHWM"] - status["RssFile"]


if __name__ == "__main__":
    sys.exit(main())
