"""Kernel logs of every form and size: their times and messages, the search through large ones, bare files, and what a live node keeps."""

import ast
import bz2
import gzip
import io
import json
import lzma
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.infiniband import LINK_DOWN, MODULE_EVENT
from gpudoctor.facts.kernel_log import NAME, PREVIOUS, KernelLog, PreviousKernelLog
from gpudoctor.facts.log_anchors import ANCHORS, NVIDIA_WORDS
from gpudoctor.facts.raw import CommandOutput, Log, SourceKind
from gpudoctor.probes import kernel_log, log_search
from gpudoctor.probes.deadline import Deadline
from gpudoctor.registry import built_in
from gpudoctor.run import Selection, run
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.live import Live
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.testing import config_of, fixtures, node
from gpudoctor.verdicts import Evidence, Status, Unread
from tests.captures import NOW, crashed

ROOT = Path(__file__).resolve().parent.parent
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)"
BOOT = "Linux version 6.8.0-31-generic (buildd@lcy02) #31-Ubuntu SMP"


def _log(source: RecordedNode, kind: type[KernelLog] = KernelLog) -> KernelLog:
    found = Desk(source, Config()).get(kind)
    assert isinstance(found, KernelLog), found
    return found


def _opened(place: Path, content: str | bytes) -> RecordedNode:
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_source(str(place))


def _xids(log: KernelLog) -> list[Evidence]:
    return log.lines(re.compile("Xid"), "Xid")


# Forms of lines -----------------------------------------------------------------------------------------------------

FORMS = {
    "dmesg": ("[12345.678901] {}", "12345.678901"),
    "dmesg with a caller": ("[12345.678901][   T77] {}", "12345.678901"),
    "dmesg -T": ("[Fri Aug  8 09:09:09 2025] {}", "Fri Aug  8 09:09:09 2025"),
    "dmesg -r": ("<4>[12345.678901] {}", "12345.678901"),
    "dmesg -x": ("kern  :warn  : [12345.678901] {}", "12345.678901"),
    "dmesg -x in ISO": ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 {}", "2025-01-21T04:41:44,283302+00:00"),
    "dmesg in ISO": ("2025-01-21T04:41:44,283302+00:00 {}", "2025-01-21T04:41:44,283302+00:00"),
    "dmesg -d": ("[12345.678901 <    0.000012>] {}", "12345.678901 <    0.000012>"),
    "dmesg -e": ("[Nov30 12:00] {}", "Nov30 12:00"),
    "kmsg": ("4,1234,12345678901,-;{}", "12345.678901"),
    "kmsg with a caller": ("4,1234,12345678901,-,caller=T77;{}", "12345.678901"),
    "journal short": ("Nov 14 09:43:40 n1 kernel: {}", "Nov 14 09:43:40"),
    "journal short in French": ("janv. 14 09:43:40 n1 kernel: {}", "janv. 14 09:43:40"),
    "journal short-precise": ("Nov 14 09:43:40.123456 n1 kernel: {}", "Nov 14 09:43:40.123456"),
    "journal short-iso": ("2026-11-14T09:43:40+0000 n1 kernel: {}", "2026-11-14T09:43:40+0000"),
    "journal short-full": ("Sat 2026-11-14 09:43:40 UTC n1 kernel: {}", "Sat 2026-11-14 09:43:40 UTC"),
    "journal short-unix": ("1795971974.123456 n1 kernel: {}", "1795971974.123456"),
    "journal short-monotonic": ("[12345.678901] n1 kernel: {}", "12345.678901"),
    "journal without host": ("[12345.678901] kernel: {}", "12345.678901"),
    "syslog": ("Nov  4 09:43:40 n1 kernel: {}", "Nov  4 09:43:40"),
    "syslog with the kernel's time": ("Nov  4 09:43:40 n1 kernel: [12345.678901] {}", "Nov  4 09:43:40"),
    "syslog RFC 3339": ("2026-08-16T09:49:06.440268-05:00 n1 kernel: {}", "2026-08-16T09:49:06.440268-05:00"),
    "syslog RFC 5424": ("<4>1 2026-08-16T09:49:06Z n1 kernel - - - {}", "2026-08-16T09:49:06Z"),
    "CRI": ("2026-11-30T12:00:00.123456789Z stdout F {}", "2026-11-30T12:00:00.123456789Z"),
    "CRI around dmesg": ("2026-11-30T12:00:00.123456789Z stderr F [12345.678901] {}", "12345.678901"),
    "docker": ('{{"log":"{}\\n","stream":"stdout","time":"2026-11-30T12:00:00.1Z"}}', "2026-11-30T12:00:00.1Z"),
    "docker around dmesg": ('{{"log":"[12345.678901] {}\\n","stream":"stdout","time":"2026-11-30T12:00:00.1Z"}}', "12345.678901"),
    "in colours": ("\x1b[32m[12345.678901] \x1b[0m\x1b[33m{}\x1b[0m", "12345.678901"),
    "no time": ("{}", None),
    "no time but who": ("n1 kernel: {}", None),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_time_and_message_of_every_form_of_line(form: str, tmp_path: Path) -> None:
    line, time_written = FORMS[form]
    for words in (XID, SXID):
        (found,) = _xids(_log(_opened(tmp_path / "any-name", line.format(words) + "\n")))
        assert (found.shows, found.at) == (words, time_written)


def test_brackets_and_names_in_a_message_are_no_time() -> None:
    recorded = RecordedNode(node("h100x8").tree)
    for line in (
        "[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00003b00] Failed to allocate",
        "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
        "[drm] Initialized nvidia-drm 0.0.0",
    ):
        for stamp, at in (("[   12.345678] ", "12.345678"), ("", None)):
            recorded.logs[NAME] = Log(NAME, f"{stamp}{line}\n")
            (found,) = _log(recorded).lines(re.compile("nvidia"), "nvidia")
            assert (found.shows, found.at) == (line, at)


def test_an_event_of_a_bare_log_is_told_and_nothing_else_is_claimed(tmp_path: Path) -> None:
    opened = _opened(tmp_path / "dmesg.txt", f"[    0.000000] {BOOT}\n[12345.678901] {XID}\n")
    report = run(opened, Config(), built_in(), Selection(), NOW)
    assert crashed(report) == [] and opened.kind is SourceKind.BUG_REPORT
    told = report.result("driver-cuda.xids")
    assert told.status in (Status.FAIL, Status.WARN)
    assert any(finding.subject.key == "0000:3b:00.0" and "79" in finding.summary for finding in told.findings)
    spoken = {result.check for result in report.results if result.status in (Status.PASS, Status.WARN, Status.FAIL)}
    assert {check.rpartition("-")[2] for check in spoken} <= {"cuda.xids", "xids", "sxids"}
    assert report.result("pcie.gpus-present").why == "not-recorded"
    assert isinstance(Desk(opened, Config()).get(PreviousKernelLog), Unread)


# Files --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_compressed_logs(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    content = f"[    0.000000] {BOOT}\n".encode() + b"[    9.000000] usb 1-1: new device\n" * 90_000
    content += f"[12345.678901] {XID}\n".encode()
    log = _log(_opened(tmp_path / "kern.log.1", pack(content)))
    assert [line.at for line in _xids(log)] == ["12345.678901"] and log.from_boot


def test_a_log_compressed_with_zstd(tmp_path: Path) -> None:
    from gpudoctor.sources.compressed import packing

    place = io.BytesIO()
    with packing(place, "zstd") as file:
        file.write(f"[12345.678901] {XID}\n".encode())
    assert len(_xids(_log(_opened(tmp_path / "kern.log.2.zst", place.getvalue())))) == 1


def test_a_log_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    chance = "".join(f"[{number:5}.000000] {number * 7919 % 100_003} {number**3}\n" for number in range(40_000))
    packed = gzip.compress(f"[    1.000000] {XID}\n{chance}".encode())
    opened = _opened(tmp_path / "dmesg.gz", packed[: len(packed) // 2])
    assert len(_xids(_log(opened))) == 1 and any("cut off" in note for note in opened.notes)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hello\n" * 1000,
        "[    12.345] (II) LoadModule: \"glx\"\n[    12.346] (--) NVIDIA(0): connected\n",
        "Nov 14 09:43:40 n1 systemd[1]: Started nvidia-persistenced.service\n" * 9,
        '{"level":"info","msg":"Xid 79 is a bus error"}\n',
    ],
)  # fmt: skip
def test_what_is_no_kernel_log_is_refused_in_one_line_that_names_them(content: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        _opened(tmp_path / "a", content)
    assert "kernel log" in str(caught.value) and "\n" not in str(caught.value)


def test_of_several_boots_the_last_is_the_log_and_the_one_before_the_previous(tmp_path: Path) -> None:
    lines = []
    for day, code in (("12", 13), ("13", 48), ("14", 79)):
        lines += [
            f"Nov {day} 09:00:00 n1 kernel: {BOOT}",
            f"Nov {day} 09:00:01 n1 nvidia-persistenced[7]: Xid is mentioned",
        ]
        lines += [f"Nov {day} 10:00:00 n1 kernel: {XID.replace('79', str(code))}"]
    opened = _opened(tmp_path / "syslog", "\n".join(lines) + "\n")
    now, before = _log(opened), _log(opened, PreviousKernelLog)
    assert [line.at for line in _xids(now)] == ["Nov 14 10:00:00"] and "): 79," in now.text
    assert [line.at for line in _xids(before)] == ["Nov 13 10:00:00"] and now.from_boot and before.from_boot
    assert "persistenced" not in now.text + before.text


def test_lines_that_a_containers_log_cut_into_pieces_are_whole_again(tmp_path: Path) -> None:
    head, tail = XID[:30], XID[30:]
    cri = f"2026-11-30T12:00:00.1Z stdout P {head}\n2026-11-30T12:00:00.2Z stdout F {tail}\n"
    pieces = ({"log": head, "time": "2026-11-30T12:00:00.1Z"}, {"log": tail + "\n", "time": "2026-11-30T12:00:00.2Z"})
    for content in (cri, "".join(json.dumps(piece) + "\n" for piece in pieces)):
        (found,) = _xids(_log(_opened(tmp_path / "container.log", content * 1)))
        assert (found.shows, found.at) == (XID, "2026-11-30T12:00:00.1Z")


def test_a_containers_log_counts_for_the_drivers_errors_that_it_quotes(tmp_path: Path) -> None:
    chatter = "".join(f"2026-11-30T12:00:00.1Z stdout F epoch {number}\n" for number in range(2000))
    opened = _opened(tmp_path / "0.log", f"{chatter}2026-11-30T12:00:00.1Z stdout F [   77.000001] {XID}\n{chatter}")
    assert [line.at for line in _xids(_log(opened))] == ["77.000001"]


# The search ---------------------------------------------------------------------------------------------------------


def _small_pieces(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(log_search, "CHUNK", chunk)
    monkeypatch.setattr(log_search, "WHOLE", 0)


def _searched(text: str) -> log_search.Boots:
    found = log_search.search(io.BytesIO(text.encode()).read)
    assert found is not None
    return found


def test_equal_lines_at_the_beginning_and_the_end_are_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 4096)
    assert _searched(f"{XID}\n" * 3 + "usb\n" * 9 + f"{XID}\n" * 2).last.text.count(XID) == 5


@pytest.mark.parametrize("chunk", [1, 7, 64, 100, 101, 4096])
def test_lines_that_matter_are_found_wherever_the_pieces_end(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, chunk)
    lines = [f"[{number:5}.000000] usb 1-{number}: new device" for number in range(60)]
    for number in (0, 3, 4, 17, 30, 59):
        lines[number] = f"[{number:5}.000000] {(XID, SXID)[number % 2]}"
    for end in ("\n", ""):
        assert _searched("\n".join(lines) + end).last.text.splitlines() == [line for line in lines if "Xid" in line]


def test_every_anchor_is_found_among_letters_that_are_rare_and_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 1 << 16)
    everything = "".join(sorted({letter for anchor in ANCHORS for letter in anchor.words}))
    for usual in ("[    1.000000] lllllllllllllllllllllll", f"[    1.000000] {everything}"):
        for anchor in ANCHORS:
            line = f"[    2.000000] words {anchor.words}x {anchor.beside[0] if anchor.beside else ''}"
            block = f"{usual}\n" * 900
            assert line in _searched(f"{block}{line}\n{block}").last.text.splitlines()


@pytest.mark.parametrize(
    "words",
    [
        "mlx5_core 0000:bb:00.0 ens16f0np0: Link down",
        "bnxt_en 0000:bb:00.0 ens16f0np0: NIC Link is Down",
        "mlx5_core 0000:bb:00.0: Port module event: module 0, Cable unplugged",
    ],
)
def test_what_is_looked_for_by_an_adapters_address_has_an_anchor(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 1 << 16)
    line = f"[   90.000000] {words}"
    block = "[    1.000000] usb 1-1: new device\n" * 2000
    assert LINK_DOWN.search(line) or MODULE_EVENT.search(line)
    assert line in _searched(f"{block}{line}\n{block}").last.text.splitlines()


def test_a_message_keeps_its_further_lines_and_a_report_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 128)
    usual = "[    1.000000] usb 1-1: new device\n" * 50
    message = f"[    2.000000] {XID}\n               NVRM: the second line\nbare third line\n"
    stack = "[    3.000000] INFO: task python:42 blocked for more than 120 seconds.\n" + "".join(
        f"[    3.0000{number:02}]  frame_{number}+0x1/0x2\n" for number in range(20)
    )
    text = _searched(usual + message + usual + stack + usual * 3).last.text
    assert message in text and stack in text
    assert text.count("usb") <= 1 + 30


def test_a_line_longer_than_a_piece_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 4096)
    monkeypatch.setattr(log_search, "LONGEST_LINE", 256)
    long = f"[    1.000000] {XID} {'x' * 100_000}"
    after = f"[    2.000000] {SXID}"
    found = _searched(f"[    0.500000] first\n{long}\n{after}\n").last.text.splitlines()
    assert found[-1] == after and found[1].startswith(f"[    1.000000] {XID}") and len(found[1]) <= 256


def test_grep_and_the_search_in_pieces_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "WHOLE", 0)
    texts = [path.read_bytes() for path in sorted(fixtures().glob("*/kernel.log"))]
    place = tmp_path / "kern.log"
    place.write_bytes(b"".join(texts))
    by_grep = log_search.search_by_grep(str(place), Deadline(20))
    assert by_grep is not None and by_grep.last.text
    assert by_grep.last == _searched(place.read_text(errors="backslashreplace")).last


def test_what_the_search_keeps_gives_the_same_findings_as_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "WHOLE", 0)
    registry = built_in()
    for place in sorted(fixtures().glob("*/kernel.log"))[::4]:
        whole, searched = node(place.parent.name), node(place.parent.name)
        log = whole.log(NAME)
        assert isinstance(log, Log) and whole.manifest is not None
        boots = _searched(log.text)
        text = (boots.previous.text if boots.previous else "") + boots.last.text
        searched.logs[NAME] = Log(NAME, text, source=log.source, from_boot=log.from_boot)
        one, two = (
            run(source, config_of(source), registry, Selection(), whole.manifest.recorded_at)
            for source in (whole, searched)
        )
        assert [result.findings for result in one.results] == [result.findings for result in two.results], place


# Words that stand in lines which other anchors find: "Xid (" behind NVRM: or a switch's name, the tracepoints' too.
_FOUND_OTHERWISE = {"Xid (": "NVRM", "Xid": "NVRM", "GSP": "NVRM", "API mismatch": "NVRM", "fallen off the bus": "NVRM",
    "request_mem_region failed": "NVRM", "ut of memory": " Killed process ", "Oops": "[#", "BUG: ": "BUG: soft lockup",
    "general protection fault": "[#", "Internal error: ": "[#", "RIP: ": "[#", "pc : ": "[#", "rejected": "Loading of unsigned module ",
    "restricted": "unsigned module loading is restricted", "trusted key": "PKCS#7 signature", "avc: ": "avc:  denied",
    "oom-kill:": "oom-kill:constraint=", "No NVIDIA ": "NVRM", "The NVIDIA GPU ": "NVRM", "GPU installed in this system is": "NVRM",
    "ignoring the legacy GPU": "NVRM", "kernel BUG at": "kernel BUG at "}  # fmt: skip


def test_every_word_that_a_check_looks_for_has_an_anchor() -> None:
    known = [anchor.words for anchor in ANCHORS]
    asked = dict(_asked_of_the_log())
    assert len(asked) > 15
    for words, where in asked.items():
        found = any(anchor in words for anchor in known) or _FOUND_OTHERWISE.get(words) in known
        assert found, f"{where} looks for {words!r} in the kernel log: add it to gpudoctor/facts/log_anchors.py"


def _asked_of_the_log() -> Iterator[tuple[str, str]]:
    """The literal words in calls of KernelLog's methods, and in the tuples of anchors that loops take them from."""
    for place in sorted((*(ROOT / "checks").glob("*.py"), *(ROOT / "gpudoctor/facts").glob("*.py"))):
        text = place.read_text()
        if "KernelLog" not in text and ".log.lines(" not in text and "around.lines(" not in text:
            continue
        tree = ast.parse(text)
        names = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node_ in ast.walk(tree):
            if isinstance(node_, ast.Call) and isinstance(node_.func, ast.Attribute) and node_.func.attr == "lines":
                for argument in node_.args[1:2]:
                    value = names.get(argument.id) if isinstance(argument, ast.Name) else argument
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield value.value, f"{place.name}:{node_.lineno}"
        for name, value in names.items():
            if name in ("_ANCHORS", "_HARM_WORDS") and isinstance(value, ast.Tuple):
                yield from ((str(ast.literal_eval(one)), f"{place.name}: {name}") for one in value.elts)


_MEASURE = """
import re, sys
from gpudoctor.sources.opening import open_source
log = open_source(sys.argv[1]).log("kernel.log")
status = dict(re.findall(r"^(\\w+):\\s+(\\d+) kB$", open("/proc/self/status").read(), re.MULTILINE))
print(len(log.text), int(status["VmHWM"]) - int(status["RssFile"]))
"""


@pytest.mark.parametrize("storm", [False, True])
def test_a_large_log_is_read_within_forty_mebibytes(storm: bool, tmp_path: Path) -> None:
    usual = "[    1.000000] eth0: link becomes ready, and more words as they come\n" * (0 if storm else 999)
    block = (usual + f"[    2.000000] {XID}\n") * (8000 if storm else 8)
    place = tmp_path / "kern.log"
    with place.open("w") as file:
        while file.tell() < 64 << 20:
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(place)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    kept, peak = map(int, done.stdout.split())
    assert 0 < kept <= 2_200_000 and peak <= 40 * 1024


# Live ---------------------------------------------------------------------------------------------------------------


def _root(place: Path, **files: str) -> Live:
    for top in ("proc", "sys", "dev", "var/log"):
        (place / top).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / "var/log" / name.replace("_", ".")).write_text(text)
    return Live(Deadline(20.0), str(place))


KERN = f"Nov 14 09:00:00 n1 kernel: [    0.000000] {BOOT}\nNov 14 10:00:00 n1 kernel: [ 3600.000001] {XID}\n"
OLDER = KERN.replace("Nov 14", "Nov 13").replace(": 79", ": 48")


def test_below_a_root_the_files_of_syslog_stand_in_and_are_recorded_and_replayed(tmp_path: Path) -> None:
    recorder = Recorder(_root(tmp_path / "root", kern_log=OLDER + KERN))
    log, before = recorder.log(NAME), recorder.log(PREVIOUS)
    assert isinstance(log, Log) and isinstance(before, Log)
    assert (log.text, log.where, log.from_boot) == (KERN, "kernel log (/var/log/kern.log)", True)
    assert (before.text, before.where) == (OLDER, "kernel log (/var/log/kern.log), the boot before")
    recorder.write(tmp_path / "snapshot", Config())
    replayed = open_snapshot(tmp_path / "snapshot")
    assert (replayed.log(NAME), replayed.log(PREVIOUS)) == (log, before)


def test_a_file_that_was_turned_over_is_read_with_the_one_before(tmp_path: Path) -> None:
    begun, went_on = KERN.splitlines(keepends=True)
    live = _root(tmp_path, kern_log=went_on, kern_log_1=OLDER + begun)
    log, before = live.log(NAME), live.log(PREVIOUS)
    assert isinstance(log, Log) and isinstance(before, Log)
    assert (log.text, log.from_boot, before.text) == (KERN, True, OLDER)
    live = _root(tmp_path, kern_log=KERN, kern_log_1=OLDER)
    before = live.log(PREVIOUS)
    assert isinstance(before, Log) and before.text == OLDER


def test_a_file_that_nobody_writes_any_more_is_no_log_of_this_boot(tmp_path: Path) -> None:
    import os

    live = _root(tmp_path, kern_log=KERN)
    os.utime(tmp_path / "var/log/kern.log", (1, 1))
    assert isinstance(live.log(NAME), Unread)
    assert isinstance(live.log(PREVIOUS), Unread)


def _live(monkeypatch: pytest.MonkeyPatch, ring: str, first: int, journal: dict[str, str]) -> Live:
    """A node whose ring buffer begins with a record, and whose journal has these lines by boot."""

    def run_command(argv: tuple[str, ...], _deadline: Deadline) -> CommandOutput:
        text = journal.get(argv[argv.index("-b") + 1], "")
        return CommandOutput(argv, 0 if text else 1, text, "" if text else "No such boot ID in journal\n")

    def read(_path: str) -> tuple[str, int]:
        if not ring:
            raise PermissionError(1, "Operation not permitted")
        return ring, first

    monkeypatch.setattr(kernel_log, "_kmsg", lambda _root: "/dev/kmsg")
    monkeypatch.setattr(kernel_log, "_read_kmsg", read)
    monkeypatch.setattr(kernel_log, "run_command", run_command)
    monkeypatch.setattr(kernel_log, "LOG_FILES", ())
    return Live(Deadline(20.0))


def test_where_the_ring_buffer_wrapped_the_journal_has_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    early = f"[   77.000001] kernel: {XID}\n"
    ring = f"[   99.000001] usb 1-1: new device\n[  100.000001] {SXID}\n"
    journal = {"0": f"{early}[  100.000002] kernel: {SXID}\n"}
    log = _live(monkeypatch, ring, 5, journal).log(NAME)
    assert isinstance(log, Log)
    assert (log.text, log.from_boot) == (early + ring, False)
    assert log.where == "kernel log (journalctl -k -b, then /dev/kmsg)"
    whole = _live(monkeypatch, ring, 0, journal).log(NAME)
    assert whole == Log(NAME, ring, source="kmsg", from_boot=True)
    alone = _live(monkeypatch, ring, 5, {}).log(NAME)
    assert alone == Log(NAME, ring, source="kmsg")


def test_the_boot_before_comes_from_the_journal_or_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"2026-11-13T10:00:00+0000 kernel: {XID}\n"
    log = _live(monkeypatch, "[ 1.0] x\n", 0, {"-1": f"-- Boot 12 --\n{line}"}).log(PREVIOUS)
    assert log == Log(PREVIOUS, line, source="journal")
    assert Log(PREVIOUS, line, source="journal").where == "kernel log (journalctl -k -b -1)"
    recorder = Recorder(_live(monkeypatch, "[ 1.0] x\n", 0, {}))
    none = recorder.log(PREVIOUS)
    assert isinstance(none, Unread) and "boot before" in none.where
    recorder.write(tmp_path / "snapshot", Config())
    assert open_snapshot(tmp_path / "snapshot").log(PREVIOUS) == none


def test_whoever_may_read_neither_the_device_nor_the_journal_reads_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = _live(monkeypatch, "", 0, {})
    refused = live.log(NAME)
    assert isinstance(refused, Unread) and refused.would_need == "root or group adm"
    place = tmp_path / "kern.log"
    place.write_text(KERN)
    monkeypatch.setattr(kernel_log, "LOG_FILES", (str(place),))
    log = live.log(NAME)
    assert isinstance(log, Log) and log.text == KERN


def test_hosts_and_serials_of_both_logs_are_redacted(tmp_path: Path) -> None:
    serial = "NVRM: GPU Board Serial Number: 1654321012345"
    members = {
        "snapshot.json": b'{"format": 1, "hostname": "gpu-node-17", "logs": {}}',
        "root/proc/sys/kernel/hostname": b"gpu-node-17\n",
        NAME: f"[    1.000001] {serial}\n".encode(),
        PREVIOUS: f"Nov 13 10:00:00 gpu-node-17 kernel: {serial}\n".encode(),
    }
    redacted = redact(members, b"salt").members
    text = (redacted[NAME] + redacted[PREVIOUS]).decode()
    assert "1654321012345" not in text and "gpu-node-17" not in text
    assert " kernel: NVRM: GPU Board Serial Number: " in text


def test_the_journal_is_asked_with_words_that_it_minds_the_case_of() -> None:
    assert any(word != word.lower() for word in NVIDIA_WORDS)


def test_a_search_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_pieces(monkeypatch, 4096)

    def read(size: int) -> bytes:
        time.sleep(0.001)
        return b"[    1.000000] usb 1-1: new device\n" * (size // 36 + 1)

    assert log_search.search(read, deadline=Deadline(0.05)) is None
