"""Whatever stands in a recording, a run over it ends in a report; nothing of it makes gpudoctor itself fail.

The texts of recorded nodes are spoilt the way files are in the field: cut, doubled, overwritten, with numbers too large, with bytes that
are no text. A check or fact that crashes turns into an `unknown (crashed)`, which is what is looked for.
"""

import gzip
import random
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.config import Config
from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Gate, Listing, Log, TextFile
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.sources.snapshot import Snapshot
from gpudoctor.testing import config_of, fixtures, node
from gpudoctor.verdicts import Unread
from tests.captures import NOW, crashed
from tests.conftest import REPOSITORY

NODES = sorted(place.name for place in fixtures().iterdir() if (place / "expected.json").is_file())

_INSERTS = (
    "\0",
    "\n\n\n",
    ":",
    "=",
    " ",
    "\\xff\\xff",
    "0x",
    "-1",
    "9" * 5000,
    "٣",
    "²",
    "…",
    "{",
    "]",
    "\t",
    "\x1b[31m",
    "%s",
    "../..",
)


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _double(text: str, chance: random.Random) -> str:
    return text + text[chance.randrange(len(text) + 1) :]


def _insert(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(_INSERTS) + text[place:]


def _drop_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if chance.random() > 0.3)


def _swap_words(text: str, chance: random.Random) -> str:
    words = text.split(" ")
    chance.shuffle(words)
    return " ".join(words)


def _numbers(text: str, chance: random.Random) -> str:
    return "".join(chance.choice("0123456789") if character.isdecimal() else character for character in text)


def _nothing(_: str, __: random.Random) -> str:
    return ""


_WAYS: tuple[Callable[[str, random.Random], str], ...] = (
    _cut,
    _double,
    _insert,
    _drop_line,
    _swap_words,
    _numbers,
    _nothing,
)


def _chance(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed} {name}")  # noqa: S311 - the same spoilt node each time, not a secret


class SpoiltNode(RecordedNode):
    """A recorded node of whose texts some are spoilt, always the same ones for a seed."""

    def __init__(self, whole: Snapshot, seed: int, share: float) -> None:
        assert whole.manifest is not None
        super().__init__(whole.tree, complete=whole.manifest.complete, uid=whole.uid)
        self.whole = whole
        self._seed = seed
        self._share = share

    def _spoil(self, name: str, text: str) -> str:
        chance = _chance(self._seed, name)
        if chance.random() > self._share:
            return text
        for _ in range(chance.randrange(1, 3)):
            text = chance.choice(_WAYS)(text, chance)
        return text

    def read(self, path: str) -> TextFile | Absent | Unread:
        """A file's text, perhaps spoilt."""
        file = super().read(path)
        return msgspec.structs.replace(file, text=self._spoil(path, file.text)) if isinstance(file, TextFile) else file

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """The names in a directory, of which one may be spoilt."""
        listing = super().listing(path, begin=begin)
        if not isinstance(listing, Listing):
            return listing
        names = tuple(sorted({self._spoil(f"{path} {name}", name).replace("/", "") or "x" for name in listing.names}))
        return msgspec.structs.replace(listing, names=names)

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """A command's output, perhaps spoilt."""
        output = self.whole.command(argv, seconds=seconds)
        if not isinstance(output, CommandOutput):
            return output
        return msgspec.structs.replace(output, stdout=self._spoil(" ".join(argv), output.stdout))

    def log(self, name: str) -> Log | Unread:
        """A log, perhaps spoilt."""
        log = self.whole.log(name)
        return msgspec.structs.replace(log, text=self._spoil(name, log.text)) if isinstance(log, Log) else log

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer in whose data something is spoilt."""
        answer = self.whole.answer(name, gate)
        if isinstance(answer, Unread):
            return answer
        return msgspec.structs.replace(answer, data=self._spoil_value(answer.data, name))

    def _spoil_value(self, value: Any, name: str) -> Any:
        chance = _chance(self._seed, f"{name} value")
        if chance.random() < self._share / 8:
            return chance.choice([None, -1, 2**70, "", "…", [], {}, True, 1.5])
        match value:
            case dict():
                return {key: self._spoil_value(inner, f"{name}.{key}") for key, inner in value.items()}
            case list():
                return [self._spoil_value(inner, f"{name}[{place}]") for place, inner in enumerate(value)]
            case str():
                return self._spoil(name, value)
            case _:
                return value


@lru_cache(maxsize=16)
def _whole(name: str) -> Snapshot:
    return node(name)


def _report(spoilt: SpoiltNode) -> Report:
    return run(spoilt, config_of(spoilt.whole), built_in(), Selection(), NOW)


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(NODES), seed=st.integers(0, 2**32), share=st.sampled_from([0.02, 0.2, 0.9]))
def test_spoilt_recording_ends_in_a_report_in_which_nothing_crashed(name: str, seed: int, share: float) -> None:
    report = _report(SpoiltNode(_whole(name), seed, share))
    assert crashed(report) == []
    assert msgspec.json.encode(report)


# files of any kind that --node may name --------------------------------------------------------------------------


def _seeds(place: Path) -> None:
    """Small inputs of each form: a bug report, a snapshot as archive in each compression, the beginning of each."""
    from gpudoctor.sources.writing import write_snapshot

    folder = fixtures() / "t4-cloud-guest"
    members = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    few = {name: members[name][:4000] for name in ("entries.jsonl", "kernel.log")}
    few["entries.jsonl"] = few["entries.jsonl"].rpartition(b"\n")[0] + b"\n"
    few["snapshot.json"] = members["snapshot.json"]
    for suffix in ("tar", "tar.gz", "tar.xz", "tar.bz2", "tar.zst"):
        write_snapshot(place / f"seed.{suffix}", few)
    report = "".join(f"{'_' * 44}\n\n{section}\n\n" for section in _SECTIONS).encode()
    (place / "report.log").write_bytes(report)
    (place / "report.log.gz").write_bytes(gzip.compress(report))


_SECTIONS = (
    "Start of NVIDIA bug report log file.  Please include this file, along\n\nuname: Linux n1 6.8.0-1 #1 SMP x86_64",
    (
        "*** /proc/driver/nvidia/version\n*** ls: -r--r--r-- 1 root root 0 2026-11-29 12:00:00 /proc/driver/nvidia/version\n"
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025"
    ),
    "*** /proc/modules\n*** ls: -r--r--r-- 1 root root 0 2026-11-29 12:00:00 /proc/modules\nnvidia 1 2 - Live 0x0 (POE)",
    "/usr/bin/lspci -nn\n\n01:00.0 3D controller [0302]: NVIDIA Corporation TU104GL [Tesla T4] [10de:1eb8] (rev a1)",
    (
        "/usr/bin/lspci -vvv\n\n01:00.0 3D controller: NVIDIA Corporation TU104GL [Tesla T4] (rev a1)\n\tControl: I/O- Mem+\n"
        "\tKernel driver in use: nvidia"
    ),
    "/usr/bin/nvidia-smi --query\n\nDriver Version   : 550.163.01\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Product Name : Tesla T4",
    "dmesg:\n\n[    0.000000] Linux version 6.8.0-1\n[    9.1] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x25:0x40:1457)",
)


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """The folder of seeds."""
    (tmp_path / "seeds").mkdir()
    _seeds(tmp_path / "seeds")
    return tmp_path / "seeds"


def _report_or_refusal(place: Path) -> None:
    from gpudoctor.sources.errors import SourceError
    from gpudoctor.sources.opening import open_source

    try:
        opened = open_source(str(place))
    except SourceError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert crashed(run(opened, Config(), built_in(), Selection(), NOW)) == []
    assert "\n" not in refusal


def test_cut_and_overwritten_files_end_in_a_report_or_one_line(seeds: Path, tmp_path: Path) -> None:
    place = tmp_path / "input"
    for seed in sorted(seeds.iterdir()):
        content = seed.read_bytes()
        for number in range(40):
            chance = _chance(number, seed.name)
            spoilt = bytearray(content[: chance.randrange(len(content) + 1)] if number % 2 else content)
            for _ in range(chance.randrange(1, 20) if spoilt else 0):
                spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            place.write_bytes(spoilt)
            _report_or_refusal(place)


def test_fuzzer_finds_no_other_end(seeds: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    line = [sys.executable, "-m", "tests.fuzz.source_fuzzer", str(seeds), "-max_total_time=20", "-rss_limit_mb=1500"]
    # A program begins with the largest size that its process had before it (getrusage(2), ru_maxrss; fs/exec.c), which libFuzzer reads:
    # the shell in between keeps that of the worker of these tests, which may be larger than the limit, to itself.
    ended = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *line],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=REPOSITORY,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    assert "Done " in ended.stderr
