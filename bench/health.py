"""What a pass of `gpudoctor health` costs when it has something to remember, and whether that stays so after ten thousand of them.

Exits with 1 when a pass costs more than five yardsticks or takes more memory than promised, when the memory has grown too large, or when
a pass has become dearer by it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from counting import CommandFailed, Cost, Counter
from msgspec.structs import replace
from plain_venv import plain_venv
from run import NODE, PEAK_LIMIT_KIBIBYTES, YARDSTICK

from gpudoctor.health.counters import Counter as Remembered
from gpudoctor.health.episodes import Ledger, Now, Rules, Seen
from gpudoctor.health.places import DATABASE
from gpudoctor.health.rows import XidRow
from gpudoctor.health.store import Outcome, RunRow, Store
from gpudoctor.verdicts import Status

PASSES = 10_000
INTERVAL = 60.0
QUIET = 120
LIMIT = 5.0
MOST_BYTES = 20_000_000
MOST_DEARER = 1.1
GPUS = tuple(f"0000:{bus:02x}:00.0" for bus in (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB))


def main() -> int:
    """Measure, print, judge."""
    counter = Counter(plain_venv() / "bin" / "python", callgrind=not _options().cpu)
    doctor = plain_venv() / "bin" / "gpudoctor"
    with tempfile.TemporaryDirectory(dir=_fast_place()) as folder:
        arguments = ("health", "--node", str(NODE), "--state", folder)
        try:
            yardstick = counter.cost(YARDSTICK)
            counter.output(doctor, *arguments)
            early = counter.cost(doctor, *arguments)
            _live_through(Path(folder))
            size = _size(Path(folder))
            late = counter.cost(doctor, *arguments)
            cached = counter.cost(doctor, *arguments, "--cached", "--format", "npd")
        except CommandFailed as failure:
            print(f"bench: {failure}", file=sys.stderr)
            return 1
    print(f"{'':36}{'times A':>10}{'VmHWM MiB':>12}{'wall ms':>10}   work in {counter.unit}")
    for name, cost in (
        ("second pass", early),
        (f"pass {PASSES} (memory of {size / 1e6:.1f} MB)", late),
        ("answer of the last pass (--cached)", cached),
    ):
        memory = cost.peak_kibibytes / 1024
        print(f"{name:36}{cost.work / yardstick.work:10.2f}{memory:12.1f}{cost.wall_seconds * 1e3:10.0f}")
    problems = _problems(early, late, yardstick, size)
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--cpu", action="store_true", help="count CPU time even where valgrind is installed")
    return parser.parse_args()


def _problems(early: Cost, late: Cost, yardstick: Cost, size: int) -> list[str]:
    problems = []
    for name, cost in (("a second pass", early), (f"pass {PASSES}", late)):
        if cost.work > LIMIT * yardstick.work:
            problems.append(f"{name} costs {cost.work / yardstick.work:.2f} times A, more than {LIMIT:g}")
        if cost.peak_kibibytes > PEAK_LIMIT_KIBIBYTES:
            problems.append(f"{name} takes {cost.peak_kibibytes} KiB, more than {PEAK_LIMIT_KIBIBYTES}")
    if size > MOST_BYTES:
        problems.append(f"the memory of {PASSES} passes takes {size} bytes, more than {MOST_BYTES}")
    if late.work > MOST_DEARER * early.work:
        problems.append(f"pass {PASSES} costs {late.work / early.work:.2f} times the second, more than {MOST_DEARER:g}")
    return problems


def _fast_place() -> str | None:
    """Ten thousand fsyncs of a disk are not what is measured."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of our own is made there


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _live_through(folder: Path) -> None:
    """A bad week: every GPU has something that comes and goes, errors come in, counters grow, and the node boots now and then.

    The last two hours are quiet, so that the last pass finds nothing that flaps.
    """
    store = Store(folder / DATABASE)
    for number in range(1, PASSES):
        _pass(store, number)
    store.close()


def _pass(store: Store, number: int) -> None:
    past = store.past()
    boots = number % 1500 == 0
    last = replace(
        past.last,
        number=past.last.number + 1,
        at=past.last.at + INTERVAL,
        elapsed=past.last.elapsed + INTERVAL,
        boot=past.last.boot + boots,
        passes=1 if boots else past.last.passes + 1,
        lines=past.last.lines + 1,
        dropped=max(0, past.last.lines + 1 - 2000),
    )
    ledger = Ledger(Rules(), Now(last.at, last.elapsed, last.boot), past.episodes, past.tracks)
    if boots:
        ledger.reboot()
    bad = [_seen(gpu) for place, gpu in enumerate(GPUS) if number % (7 + 13 * place) < 3 and number < PASSES - QUIET]
    ledger.take(bad, {})
    gpu = GPUS[number % len(GPUS)]
    xid = XidRow(
        last.boot, gpu, f"Xid {number % 40}", "application", 1, "", "", last.at, last.at, "NVRM: Xid " + "x" * 100
    )
    grown = Remembered(f"gpu:{gpu}", "PCIe replays", "nvml", "", number, 0.0, number, 1.0, last.at, last.elapsed)
    store.keep(
        Outcome(
            last=last,
            run=RunRow(last.number, last.boot, last.at, last.elapsed, 0.4, "pass", 0, len(ledger.told)),
            episodes=(*ledger.open.values(), *ledger.waiting),
            ended=tuple(ledger.ended),
            tracks=ledger.tracks,
            counters=(grown,),
            added=(f"[{number}.000000] NVRM: Xid (PCI:{gpu[:-2]}): 31, pid=1, name=python" + " padding" * 10,),
            xids=(xid,),
        )
    )


def _seen(gpu: str) -> Seen:
    summary = "its link is narrower than it could be, and has been for a while, says the bus " * 2
    return Seen(f"pcie.link-width@gpu:{gpu}", "pcie.link-width", "pcie", "gpu", gpu, Status.WARN, "", summary)


if __name__ == "__main__":
    sys.exit(main())
