"""Every Xid and SXid in captures of real machines is found and has an address, and their count is what grep counts."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from gpudoctor.facts.raw import Log
from gpudoctor.facts.xid_lines import SXidLine, XidLine, find, find_all
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Status
from tests.captures import crashed, diagnose

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
CHECKS = (
    "driver-cuda.xids",
    "health.memory-xids",
    "fabric.nvlink-xids",
    "health.application-xids",
    "fabric.switch-sxids",
)
FOLDERS = ("dmesg", "bug-report", "issue-excerpts")
FILES = sorted(place for folder in FOLDERS for place in (CORPUS / folder).glob("*") if place.is_file())
# Written without a look at the parser: an address, or dots where somebody took it out, and a number behind the parenthesis.
COUNTED = r"Xid \((PCI:)?([0-9a-fA-F:.]{8,}|\.\.\.)( GPU-[CI:0-9A-Z -]*)?\): [0-9]+"
# The same written once more, for the whole of a capture: whatever has a number behind "Xid (…): ".
LOOSELY = r"Xid \([^)]*\): [0-9]"

pytestmark = pytest.mark.skipif(not FILES, reason="the corpus of captures is not at hand")


def _counted(place: Path, pattern: str) -> int:
    """What `grep -c` counts in a file or, of a compressed one, in what `zcat` prints."""
    search = ["grep", "-acE", pattern]
    if place.suffix == ".gz":
        with subprocess.Popen(["zcat", str(place)], stdout=subprocess.PIPE) as unpacked:
            done = subprocess.run(search, stdin=unpacked.stdout, capture_output=True, text=True, check=False)
    else:
        done = subprocess.run([*search, str(place)], capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def _text(place: Path) -> str:
    content = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
    return content.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize("place", FILES, ids=lambda place: f"{place.parent.name}/{place.name}")
def test_as_many_are_found_as_grep_counts_and_each_has_its_gpu(place: Path) -> None:
    text = _text(place)
    found = list(find(text))
    assert len(found) == _counted(place, COUNTED) == _counted(place, LOOSELY)
    for line in found:
        where = line.address if isinstance(line, SXidLine) else line.slot
        assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?", where) or "(PCI:...)" in line.message
    dead = {line.slot for line in find_all(text) if isinstance(line, XidLine) and not line.numbered}
    assert all(dead)


@pytest.mark.parametrize(
    "place", [place for place in FILES if place.parent.name != "bug-report"], ids=lambda place: place.name
)
def test_each_gpu_that_a_log_names_gets_a_verdict(place: Path) -> None:
    text = _text(place)
    node = RecordedNode(Tree(), uid=0)
    node.logs["kernel.log"] = Log("kernel.log", text, source="file")
    report = diagnose(node)
    assert not crashed(report)
    told = {finding.subject.key for check in CHECKS for finding in report.result(check).findings}
    for line in find_all(text):
        where = line.address if isinstance(line, SXidLine) else f"{line.slot}.0" if line.slot else "node"
        assert where in told, line


@pytest.mark.parametrize("place", [place for place in FILES if "healthy" in place.name], ids=lambda place: place.name)
def test_healthy_machines_give_no_alarm(place: Path) -> None:
    node = RecordedNode(Tree(), uid=0)
    node.logs["kernel.log"] = Log("kernel.log", _text(place), source="file")
    report = diagnose(node)
    findings = [finding for check in CHECKS for finding in report.result(check).findings]
    assert findings and not [finding for finding in findings if finding.status in (Status.FAIL, Status.WARN)]


# What was wrong with the machine, by its owner's words (MANIFEST.tsv).
ILL = {
    "br-3090-xid56.log": ("driver-cuda.xids", "0000:0a:00.0", "Xid 56"),
    "br-3x4070-xid79-two-lost.log": ("driver-cuda.xids", "0000:0c:00.0", "Xid 79"),
    "br-3xa6000-one-lost.log": ("driver-cuda.xids", "0000:68:00.0", "Xid 62"),
    "br-4x2080ti-xid62-13.log": ("driver-cuda.xids", "0000:03:00.0", "Xid 62"),
    "br-5080-gsp-575.log": ("driver-cuda.xids", "0000:02:00.0", "Xid 119"),
    "br-5080-gsp-timeouts.log": ("driver-cuda.xids", "0000:02:00.0", "Xid 143"),
    "imbue-h100-row-remap-sxid.log": ("health.memory-xids", "0000:0f:00.0", "Xid 64"),
    "xid119-after45s-pci-domain1.dmesg-T": ("driver-cuda.xids", "0001:6c:00.0", "NvmlTaskRunner (pid 10200)"),
    "xid13-109-then-peermem.dmesg-T": ("driver-cuda.xids", "0000:cb:00.0", "Xid 109"),
    "xid149-145-blackwell-nvlink.kmsg": ("fabric.nvlink-xids", "0019:01:00.0", "NETIR"),
    "fallen-off-bus-gt650m-2014.dmesg": ("driver-cuda.xids", "0000:01:00.0", "off the bus without an Xid"),
}


@pytest.mark.parametrize("name", sorted(ILL))
def test_what_was_wrong_is_said(name: str) -> None:
    check, address, words = ILL[name]
    place = next(place for place in FILES if place.name == name)
    node = RecordedNode(Tree(), uid=0)
    node.logs["kernel.log"] = Log("kernel.log", _text(place), source="file")
    findings = diagnose(node).result(check).findings
    (finding,) = [finding for finding in findings if finding.subject.key == address]
    assert finding.status in (Status.FAIL, Status.WARN) and words in finding.summary


def test_what_programs_did_long_ago_is_told_without_an_alarm() -> None:
    node = RecordedNode(Tree(), uid=0)
    place = next(place for place in FILES if place.name == "gpud-dmesg-decode-iso-xid13.log")
    node.logs["kernel.log"] = Log("kernel.log", _text(place), source="file")
    result = diagnose(node).result("health.application-xids")
    assert result.status is Status.PASS and any("Xid 13 16 times" in finding.summary for finding in result.findings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4x2080ti-xid62-13.log.gz", "in the boot before Xid 62"),
        ("3090-xid56.log.gz", "in the boot before Xid 56"),
        ("3xa6000-one-lost.log.gz", "in its wake Xid 45 2152 times"),
        ("3x4070-xid79-two-lost.log.gz", "Xid 79"),
    ],
)
def test_a_bug_report_tells_also_of_the_boot_that_it_was_made_for(name: str, words: str) -> None:
    findings = diagnose(open_source(str(CORPUS / "bug-report" / name))).result("driver-cuda.xids").findings
    alarms = [finding for finding in findings if finding.status in (Status.FAIL, Status.WARN)]
    assert len(alarms) == 1 and words in alarms[0].summary
