"""nvidia-bug-report logs: real ones through the same checks, and the reader's own rules on small ones of every form."""

import datetime
import gzip
import re
import time
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk, FactT
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.pci_link import GpuLinks, PciLink
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.persistence import PersistenceDaemon
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, EntryType, Listing, Log, TextFile
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources import bug_report_gzip, bug_report_text
from gpudoctor.sources.bug_report import BugReport, open_bug_report, read_bug_report
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.lspci_text import DEVICES, Bus
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Status, Unread, Why
from tests.captures import LOWER, blocks, crashed, failed_roots

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
LINE = "_" * 44

# What the MANIFEST says is wrong, as far as these checks can see it: check and a word of its summary.
SICK = {
    "1050ti-nouveau-conflict-fedora": ("kernel-module.gpu-bound", "nouveau"),
    "2x2080ti-driver-missing-after-kernel": (
        "kernel-module.gpu-bound",
        "no nvidia module for the running kernel 5.4.0-132",
    ),
    "3x4070-xid79-two-lost": ("driver-cuda.nvml-answers", "NVML does not answer (999): the GPU has fallen off the bus"),
    "3xa6000-one-lost": ("driver-cuda.nvml-answers", "NVML does not answer (999)"),
    "5080-gsp-575": ("kernel-module.adapter-initialised", "could not initialise"),
    "5080-gsp-timeouts": ("kernel-module.adapter-initialised", "could not initialise"),
    # It ends before lspci: which GPU it is about nobody can tell.
    "5080-gsp-tiny": ("driver-cuda.nvml-answers", "NVML lists no GPU"),
    "a5000-nouveau-no-module": ("kernel-module.gpu-bound", "nouveau"),
    # modinfo printed nothing, but neither does lspci tell of any module: that there is none is not certain.
    "nvs5200m-2013-not-loaded": ("kernel-module.gpu-bound", "not loaded"),
    "p3200-mismatch-no-nvml": ("driver-cuda.nvml-answers", "NVML does not start (12)"),
    # Its log says why: Secure Boot is on, and "unsigned module loading is restricted".
    "vm-2xa6000-2x3090-not-loaded": ("kernel-module.gpu-bound", "refuses the nvidia module's signature"),
}
HEALTHY = ("2x3080-healthy", "2xa6000-healthy", "3060-laptop-arch", "8xrtx5000-healthy")
# What the first three links and NVML cannot see in the others.
ELSEWHERE = {
    "1080ti-no-uvm": "no fault of these links: a display box needs no nvidia_uvm, and the script lists no /dev",
    "2x4090-gt1030-mismatch": "the API mismatch is of the boot before: since then nvidia-smi answers for all",
    "3090-xid56": "Xid 56 is of the health link; made with --safe-mode, nvidia-smi was not asked",
    "4x2080ti-xid62-13": "Xids are of the health link; nvidia-smi answers for all",
    "titanx-2015": "as 1080ti-no-uvm",
}
# Essential checks of WSL2 and Tegra, which have nothing to say of these machines.
OF_OTHER_PLATFORMS = ("kernel-module.tegra-driver", "driver-cuda.wsl-libraries")


def _report(path: Path) -> Report:
    return run(open_bug_report(path), Config(), built_in(), Selection(), NOW)


def _whole(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8", "backslashreplace")


def _sections(text: str) -> dict[str, str]:
    """The sections of a report by their first line, read in another way than gpudoctor does."""
    found = (section.strip("\n").partition("\n") for section in re.split(r"^_{20,}\n", text, flags=re.MULTILINE))
    return {heading.strip(): body for heading, _, body in found}


# Real reports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SICK))
def test_a_real_sick_report_gets_the_right_root_cause(name: str, corpus: Path) -> None:
    check, words = SICK[name]
    report = _report(corpus / "bug-report" / f"{name}.log.gz")
    assert [cause.check for cause in report.root_causes] == [check]
    assert words in report.root_causes[0].summary
    assert report.exit_code == 2


@pytest.mark.parametrize("name", HEALTHY)
def test_a_real_healthy_report_passes_all_essential_checks(name: str, corpus: Path) -> None:
    report = _report(corpus / "bug-report" / f"{name}.log.gz")
    assert (report.exit_code, report.root_causes) == (0, ())
    for result in report.results:
        if result.essential and result.check not in OF_OTHER_PLATFORMS:
            assert result.status is Status.PASS, result.detail


def test_every_real_report_is_spoken_of_and_read_without_a_crash(corpus: Path) -> None:
    reports = {path.name.removesuffix(".log.gz"): path for path in (corpus / "bug-report").glob("*.log.gz")}
    assert set(reports) == {*SICK, *HEALTHY, *ELSEWHERE} and len(reports) >= 20
    for name, path in reports.items():
        report = _report(path)
        assert crashed(report) == [], name
        if name in ELSEWHERE:
            assert failed_roots(report, LOWER) == [], name


def test_counts_of_gpus_in_real_reports(corpus: Path) -> None:
    counts = {
        "8xrtx5000-healthy": 8,
        "2xa6000-healthy": 2,
        "3x4070-xid79-two-lost": 3,
        "vm-2xa6000-2x3090-not-loaded": 4,
    }
    for name, count in counts.items():
        assert len(_report(corpus / "bug-report" / f"{name}.log.gz").node.gpus) == count, name


def test_nothing_stands_under_a_path_of_its_own_that_has_no_section(corpus: Path) -> None:
    """What was put together from a command's output says which command that was."""
    records = 0
    for path in (corpus / "bug-report").glob("*.log.gz"):
        text = _whole(path)
        shown = {found.replace("/./", "/") for found in re.findall(r"^\*\*\* (/\S+)", text, re.MULTILINE)}
        shown |= set(re.findall(r"^(/sys/module/\w+/parameters/\w+):", text, re.MULTILINE))
        node = open_bug_report(path)
        for place, record in node.tree.records.items():
            on_the_bus = re.sub(r"^/sys/devices/.*(/\w+:\w\w:\w\w\.\w/)", rf"{DEVICES}\1", place)
            assert record.origin or on_the_bus in shown, place
            records += 1
    assert records >= 10_000


def test_the_tree_of_lspci_and_the_buses_of_its_bridges_give_each_function_the_same_place(corpus: Path) -> None:
    compared = 0
    for path in (corpus / "bug-report").glob("*.log.gz"):
        found = {re.sub(r"^/\S*/lspci ", "", heading): body for heading, body in _sections(_whole(path)).items()}
        verbose = next((name for name in found if name.startswith("-nnDvvv")), None)
        if verbose is None:
            continue
        by_tree, by_bridges = Bus(), Bus()
        by_tree.take("lspci -nntv", found["-nntv"])
        by_bridges.take(f"lspci {verbose}", found[verbose])
        functions = blocks(found["-nn"])
        for bus in (by_tree, by_bridges):
            bus.take("lspci -nn", found["-nn"])
        assert [by_tree.place(address) for address in functions] == [by_bridges.place(address) for address in functions]
        compared += len(functions)
    assert compared >= 700


def test_links_of_real_gpus_are_those_that_lspci_prints_and_regions_those_in_their_registers(corpus: Path) -> None:
    widths = regions = 0
    for path in (corpus / "bug-report").glob("*.log.gz"):
        found = _sections(_whole(path)).items()
        printed = {
            address: block
            for heading, body in found
            if re.search(r"lspci .*-\w*v", heading)
            for address, block in blocks(body).items()
        }
        node = open_bug_report(path)
        links, states = _fact(node, GpuLinks), _fact(node, PciStates)
        for gpu in _fact(node, PciGpus):
            way, seen, config = (
                links.by_address[gpu.address],
                states.by_address[gpu.address].regions,
                printed[gpu.address].config,
            )
            if not isinstance(way, Unread) and way and way[0].below.current_width is not None:
                assert way[0].below.current_width == printed[gpu.address].width("LnkSta"), (path.name, gpu.address)
                assert way[0].above.max_width == printed[way[0].above.address].width("LnkCap")
                widths += 1
            assert isinstance(seen, tuple) and len(config) >= 64
            for region in (region for region in seen if region.size):
                register = config[0x10 + 4 * region.number :][:8]
                wide = register[0] & 7 == 4
                start = int.from_bytes(register[: 8 if wide else 4], "little") & ~(3 if register[0] & 1 else 15)
                # A GPU that was reset behind the driver's back has lost its addresses; the kernel knows them still.
                assert start in (region.start, 0), (path.name, gpu.address, region.number)
                regions += start != 0
    assert widths >= 10 and regions >= 100


def test_a_real_report_cut_off_anywhere_accuses_nobody_new_and_passes_nothing_new(corpus: Path, tmp_path: Path) -> None:
    """But for NVML, whose silence is the consequence of what is cut off, and its own finding without that."""
    cut = tmp_path / "nvidia-bug-report.log.gz"
    for path in sorted((corpus / "bug-report").glob("*.log.gz")):
        whole, content = _report(path), path.read_bytes()
        for part in (5, 9, 13, 17, 19):
            cut.write_bytes(content[: len(content) * part // 20])
            if path.name == "5080-gsp-tiny.log.gz" and part < 19:
                continue
            report = _report(cut)
            assert crashed(report) == []
            new = {check for check, _ in failed_roots(report)} - {check for check, _ in failed_roots(whole)}
            assert new <= {"driver-cuda.nvml-answers"}, (path.name, part)
            passed = {result.check for result in whole.results if result.status is Status.PASS}
            assert {result.check for result in report.results if result.status is Status.PASS} <= passed


def test_nvidia_smi_in_xml_is_read_as_an_xml_parser_reads_it(corpus: Path) -> None:
    compared = 0
    for path in sorted((corpus / "nvidia-smi-xml").glob("*.xml")):
        text = path.read_text("utf-8", "backslashreplace")
        answer = answer_from("-q -x", text)
        assert answer is not None
        tree = ElementTree.fromstring(text.encode())  # noqa: S314 - files of the corpus
        gpus = [(gpu.get("id"), gpu.findtext("uuid"), gpu.findtext("product_name")) for gpu in tree.findall("gpu")]
        devices = answer.data["devices"]
        assert [(device["pci_bus_id"], device.get("uuid"), device.get("name")) for device in devices] == gpus, path.name
        assert answer.data.get("driver_version") == tree.findtext("driver_version")
        compared += len(gpus)
    assert compared >= 45


# Small ones -------------------------------------------------------------------------------------------------------


HEAD = "Start of NVIDIA bug report log file.  Please include this file\n\nDate: Sun Nov 29\nuname: Linux n7 6.8.0-1 #1 SMP x86_64"
END = f"{LINE}\n\nEnd of NVIDIA bug report log file.\n"


def _text(*sections: str, head: str = HEAD) -> str:
    return f"{LINE}\n\n{head}\n\n" + "".join(f"{LINE}\n\n{section}\n\n" for section in sections)


def _node(*sections: str, head: str = HEAD) -> BugReport:
    return read_bug_report(_text(*sections, head=head) + END)


def _diagnose(*sections: str) -> Report:
    return run(_node(*sections), Config(), built_in(), Selection(), NOW)


def _fact(node: RecordedNode, kind: type[FactT]) -> FactT:
    found = Desk(node, Config()).get(kind)
    assert isinstance(found, kind), found
    return found


def _file(path: str, content: str) -> str:
    return f"*** {path}\n*** ls: -r--r--r-- 1 root root 0 2026-11-29 12:00:00.000000000 +0000 {path}\n{content}"


NAMES = (
    "/usr/bin/lspci -nn\n\n00:01.0 PCI bridge [0604]: Intel Corporation Root Port [8086:1901] (rev 07)\n"
    "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [RTX A5000] [10de:2231] (rev a1)\n"
    "02:00.0 Ethernet controller [0200]: Intel Corporation I210 [8086:1533] (rev 03)"
)
OLD_VERBOSE = '/usr/bin/lspci -d "10de:*" -v -xxx\n\n01:00.0 VGA compatible controller: NVIDIA Corporation GA102\n\tFlags: bus master'
PORT = (
    "0000:00:01.0 PCI bridge [0604]: Intel Corporation Root Port [8086:1901] (rev 07) (prog-if 00 [Normal decode])\n"
    "\tControl: I/O+ Mem+\n\tIOMMU group: 1\n\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n"
    "\t\tLnkCap:\tPort #2, Speed 16GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n"
    "\tKernel driver in use: pcieport"
)
GPU = (
    "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [RTX A5000] [10de:2231] (rev a1) (prog-if 00 [VGA])\n"
    "\tControl: I/O+ Mem+ BusMaster+\n\tNUMA node: 1\n\tIOMMU group: 1\n"
    "\tRegion 0: Memory at f6000000 (32-bit, non-prefetchable) [size=16M]\n"
    "\tRegion 1: Memory at e0000000 (64-bit, prefetchable) [size=256M]\n"
    "\tRegion 3: Memory at f0000000 (64-bit, prefetchable) [size=32M]\n\tRegion 5: I/O ports at e000 [size=128]\n"
    "\tExpansion ROM at f7000000 [virtual] [disabled] [size=512K]\n"
    "\tCapabilities: [78] Express (v2) Legacy Endpoint, MSI 00\n"
    "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us\n"
    "\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n\t\tLnkSta2: Current De-emphasis Level: -6dB\n"
    "\tKernel driver in use: nvidia\n\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia"
)
NIC = (
    "0000:02:00.0 Ethernet controller [0200]: Intel Corporation I210 [8086:1533] (rev 03)\n\tControl: I/O+ Mem+\n"
    "\tIOMMU group: 1\n\tKernel driver in use: igb"
)
TREE = "-[0000:00]-+-00.0\n           +-01.0-[01]----00.0\n           \\-1c.0-[02]----00.0"
VERSION = _file(
    "/proc/driver/nvidia/version",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025",
)


def _verbose(*functions: str, options: str = "-nnDvvv") -> str:
    return f"/usr/bin/lspci {options}\n\n" + "\n\n".join(functions)


def _dump(content: bytes) -> str:
    """The lines of `lspci -x…`."""
    return "".join(f"\n{at:02x}: {content[at : at + 16].hex(' ')}" for at in range(0, len(content), 16))


def test_what_a_report_lacks_is_not_recorded() -> None:
    report = _diagnose(NAMES)
    assert report.result("pcie.gpus-present").status is Status.PASS
    assert report.result("driver-cuda.nvml-answers").why == "not-recorded"
    assert report.result("toolkit.docker-runtime").why == "not-recorded"
    assert (report.node.hostname, report.node.kernel, report.node.uid) == ("n7", "6.8.0-1", 0)


# lspci


def test_the_driver_in_use_comes_from_the_verbose_listing_and_is_cited_as_such() -> None:
    report = _diagnose(NAMES, OLD_VERBOSE + "\n\tKernel driver in use: nvidia")
    finding = report.result("kernel-module.gpu-bound").findings[0]
    assert finding.status is Status.PASS
    assert finding.evidence[0].where == 'lspci -d "10de:*" -v -xxx'
    assert finding.evidence[0].shows == "Kernel driver in use: nvidia"


def test_a_function_that_was_not_shown_verbosely_has_an_unknown_driver() -> None:
    assert _diagnose(NAMES).result("kernel-module.gpu-bound").why == "not-recorded"
    modules = _file("/proc/modules", "nouveau 1 0 - Live 0x0")
    assert _diagnose(NAMES, OLD_VERBOSE, modules).result("kernel-module.gpu-bound").status is Status.FAIL


def test_an_lspci_without_any_nvidia_function_is_an_empty_bus() -> None:
    report = _diagnose(
        "/usr/bin/lspci -nn\n\n00:00.0 Host bridge [0600]: Intel Corporation Device [8086:2020] (rev 07)"
    )
    assert [cause.check for cause in report.root_causes] == ["pcie.gpus-present"]


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param([_verbose(PORT, GPU.replace("[10de:2231] ", ""))], id="a function without ids"),
        pytest.param([_verbose(GPU, options='-d "10de:*" -nnvvv')], id="a part of the bus"),
        pytest.param([_verbose("[section body removed by somebody]")], id="a removed section"),
    ],
)
def test_a_listing_that_may_lack_functions_is_not_complete(sections: list[str]) -> None:
    node = _node(*sections)
    assert not isinstance(node.entry(f"{DEVICES}/0000:05:00.0"), Absent)
    assert _diagnose(*sections).result("pcie.gpus-present").status is not Status.FAIL


def test_a_complete_listing_says_nothing_of_attributes_it_does_not_show() -> None:
    node = _node(NAMES)
    gone, silent = node.entry(f"{DEVICES}/0000:05:00.0"), node.read(f"{DEVICES}/0000:01:00.0/current_link_width")
    assert isinstance(gone, Absent) and gone.where == "lspci -nn"
    assert isinstance(silent, Unread) and silent.why is Why.NOT_RECORDED
    listing = node.listing(DEVICES)
    assert isinstance(listing, Listing) and listing.complete and listing.where == "lspci -nn"


CUT = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090 Founders Edi... (rev a1)"


def test_a_gpu_whose_ids_an_older_lspci_cut_off_is_still_a_gpu_and_its_model_is_unknown() -> None:
    known = "02:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b0] (rev a1)"
    other = "03:00.0 Host bridge [0600]: Intel Corporation Sky Lake-E Something With A Long Na [8086... (rev 02)"
    listing = f"/usr/bin/lspci -nn\n\n{CUT}\n{known}\n{other}"
    report = _diagnose(listing, VERSION)
    (present,) = report.result("pcie.gpus-present").findings
    assert present.status is Status.PASS
    assert "2 GPUs" in present.summary
    fits = {finding.subject.key: finding.status for finding in report.result("kernel-module.flavour-fits").findings}
    assert fits["0000:01:00.0"] is Status.UNKNOWN
    audio = listing.replace("VGA compatible controller [0300]", "Audio device [0403]")
    assert "1 GPU " in _diagnose(audio).result("pcie.gpus-present").findings[0].summary


def test_ids_that_were_cut_off_are_taken_from_the_registers() -> None:
    registers = bytes.fromhex("de1031220704100 0a1000003".replace(" ", "")) + bytes(244)
    block = CUT + "\n\tFlags: bus master" + _dump(registers)
    node = _node(f"/usr/bin/lspci -nn\n\n{CUT}", _verbose(block, options='-d "10de:*" -v -xxx'))
    assert [gpu.device_id for gpu in _fact(node, PciGpus)] == ["2231"]
    config = node.read(f"{DEVICES}/0000:01:00.0/config")
    assert isinstance(config, TextFile) and config.where == 'lspci -d "10de:*" -v -xxx'
    assert _fact(node, PciStates).by_address["0000:01:00.0"].responds is True


def test_links_regions_and_groups_of_a_verbose_listing_stand_where_sysfs_has_them() -> None:
    node = _node(NAMES, _verbose(PORT, GPU, NIC))
    (link,) = _links(node, "0000:01:00.0")
    assert (link.above.address, link.below.current_width, link.allowed_width) == ("0000:00:01.0", 8, 16)
    assert (link.below.current_speed, link.allowed_speed) == (8.0, 16.0)
    regions = _fact(node, PciStates).by_address["0000:01:00.0"].regions
    assert isinstance(regions, tuple)
    assert [(region.number, region.size >> 10) for region in regions if region.size] == [
        (0, 16 << 10),
        (1, 256 << 10),
        (3, 32 << 10),
        (5, 0),
    ]
    numa = node.read(f"{DEVICES}/0000:01:00.0/numa_node")
    assert isinstance(numa, TextFile) and (numa.text, numa.where) == ("1\n", "lspci -nnDvvv")
    group = node.listing("/sys/kernel/iommu_groups/1/devices")
    assert isinstance(group, Listing) and group.names == ("0000:00:01.0", "0000:01:00.0", "0000:02:00.0")


def _links(node: RecordedNode, address: str) -> tuple[PciLink, ...]:
    found = _fact(node, GpuLinks).by_address[address]
    assert not isinstance(found, Unread)
    return found


def test_a_narrow_link_in_a_report_is_a_warning() -> None:
    (cause,) = _diagnose(NAMES, _verbose(PORT, GPU)).root_causes
    assert cause.check == "pcie.link-width" and "8 of 16 lanes" in cause.summary


def test_a_region_without_an_address_is_a_root_cause() -> None:
    homeless = GPU.replace("at e0000000", "at <unassigned>")
    (cause,) = _diagnose(NAMES, _verbose(PORT, homeless)).root_causes[:1]
    assert cause.check == "pcie.bars-assigned" and "BAR1" in cause.summary


def test_a_region_whose_size_is_not_told_leaves_all_of_them_unknown() -> None:
    result = _diagnose(NAMES, _verbose(PORT, GPU.replace(" [size=256M]", ""))).result("pcie.bars-assigned")
    assert (result.status, result.why) == (Status.UNKNOWN, "not-recorded")


def test_regions_of_an_older_listing_are_numbered_in_their_order() -> None:
    plain = re.sub(r"Region \d: ", "", GPU.partition("\n\tCapabilities")[0])
    node = _node(NAMES, _verbose(plain, options='-d "10de:*" -v'))
    regions = _fact(node, PciStates).by_address["0000:01:00.0"].regions
    assert isinstance(regions, tuple)
    assert [region.number for region in regions if region.size] == [0, 1, 3, 5]


def test_a_gpu_that_reads_as_all_ones_does_not_answer() -> None:
    """Where lspci prints no dump, its remark on the header type tells."""
    head = "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [10de:2231] (rev ff) (prog-if ff)"
    dead = f"{head}\n\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia"
    for block in (dead, dead + _dump(b"\xff" * 4096)):
        report = _diagnose(_verbose(PORT, block))
        assert [cause.check for cause in report.root_causes] == ["pcie.gpu-responds"]
        assert report.result("pcie.gpus-present").status is Status.PASS
        (evidence,) = report.result("pcie.gpu-responds").findings[0].evidence
        assert (evidence.where, evidence.shows) == ("lspci -nnDvvv", "ff ff ff ff: nobody answers")


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param((NAMES, f"/usr/bin/lspci -t\n\n{TREE}"), id="tree"),
        pytest.param((NAMES, f"/usr/bin/lspci -t\n\n{TREE.replace('-[02]', '-[0000:02]')}"), id="tree with domains"),
        pytest.param((NAMES, f"/usr/bin/lspci -t\n\n{TREE.replace('0000:', '')}"), id="tree without domains"),
        pytest.param((_verbose(PORT, GPU),), id="buses of the bridges"),
    ],
)
def test_a_function_lies_below_the_bridges_above_it(sections: tuple[str, ...]) -> None:
    entry = _node(*sections).entry(f"{DEVICES}/0000:01:00.0")
    assert isinstance(entry, Entry) and entry.to == "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"


def test_without_a_word_on_bridges_no_place_is_made_up() -> None:
    for sections in ((NAMES,), (NAMES, OLD_VERBOSE)):
        entry = _node(*sections).entry(f"{DEVICES}/0000:01:00.0")
        assert isinstance(entry, Entry) and entry.type is EntryType.DIR


def test_nested_bridges_of_several_roots_are_told_apart() -> None:
    bus = Bus()
    bus.take(
        "lspci -tv",
        "-+-[10000:00]-+-02.0-[01]----00.0  SK hynix Device\n"
        " +-[0000:64]-+-00.0-[65-68]--+-00.0-[66-68]--+-08.0-[67]----00.0  NVIDIA Corporation [Quadro]\n"
        " |           |               |               \\-10.0-[68]--\n |           \\-05.0  Intel\n"
        " \\-[0000:00]-+-00.0\n             \\-1f.5\n",
    )
    ids = "00.0 VGA compatible controller [0300]: NVIDIA Corporation X [10de:2231]"
    bus.take("lspci -nn", f"0000:67:{ids}\n10000:01:{ids}\n0000:00:{ids.replace('00.0', '1f.5')}")
    assert bus.place("0000:67:00.0").removeprefix("/sys/devices/").split("/") == [
        "pci0000:64",
        "0000:64:00.0",
        "0000:65:00.0",
        "0000:66:08.0",
        "0000:67:00.0",
    ]
    assert bus.place("10000:01:00.0") == "/sys/devices/pci10000:00/10000:00:02.0/10000:01:00.0"
    assert bus.place("0000:00:1f.5") == "/sys/devices/pci0000:00/0000:00:1f.5"


def test_bridges_that_lead_in_circles_lead_nowhere() -> None:
    circle = PORT.replace("secondary=01", "secondary=00").replace("primary=00", "primary=01")
    bus = Bus()
    bus.take(
        "lspci -nnDvvv", f"{circle.replace('secondary=00', 'secondary=01').replace('00:01.0', '01:01.0')}\n\n{GPU}"
    )
    tree = Tree()
    bus.put(tree)
    assert bus.place("0000:01:00.0") == f"{DEVICES}/0000:01:00.0"


def test_a_virtual_function_is_no_gpu_of_the_host() -> None:
    sriov = (
        "\tCapabilities: [bcc v1] Single Root I/O Virtualization (SR-IOV)\n\t\tIOVCtl:\tEnable+ Migration- Interrupt- MSE+\n"
        "\t\tInitial VFs: 16, Total VFs: 16, Number of VFs: 2, Function Dependency Link: 00\n"
        "\t\tVF offset: 4, stride: 1, Device ID: 2231\n\tKernel driver in use: nvidia"
    )
    physical = GPU.replace("\tKernel driver in use: nvidia", sriov)
    virtual = [GPU.replace("0000:01:00.0", f"0000:01:00.{function}") for function in (4, 5)]
    node = _node(_verbose(PORT, physical, *virtual))
    assert [gpu.address for gpu in _fact(node, PciGpus)] == ["0000:01:00.0"]
    count = node.read(f"{DEVICES}/0000:01:00.0/sriov_numvfs")
    assert isinstance(count, TextFile) and count.text == "2\n"


def test_the_dump_of_sysfs_in_place_of_a_missing_lspci_is_a_complete_bus() -> None:
    registers = bytes.fromhex("de103122") + bytes(60)
    dump = (
        "PCI devices configuration space dump using sysfs\n\n\n0000:00:00.0 060000: Vendor 8086 Device 1237 (rev 02)"
        + _dump(bytes.fromhex("86803712") + bytes(60))
        + "\n\n0000:01:00.0 030000: Vendor 10de Device 2231 (rev a1)"
        + _dump(registers).replace("\n", " \n")
    )
    report = _diagnose(dump)
    assert report.result("pcie.gpus-present").status is Status.PASS
    assert report.result("pcie.gpu-responds").status is Status.PASS
    assert report.result("kernel-module.gpu-bound").why == "not-recorded"


def test_lspci_with_its_drivers_only_is_read_as_well() -> None:
    tree, bus = Tree(), Bus()
    bus.take(
        "lspci -nnk",
        "00:01.0 PCI bridge [0604]: Intel [8086:1901]\n\tKernel driver in use: pcieport\n"
        "01:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330]\n\tSubsystem: NVIDIA [10de:16c1]\n",
    )
    bus.put(tree)
    assert tree.records[f"{DEVICES}/0000:01:00.0/driver"].error == "ENOENT"
    assert bus.listing_origin == "lspci -nnk"


# Files


def test_files_are_found_under_their_plain_path_and_missing_ones_are_absent() -> None:
    node = _node(
        _file("/proc/driver/nvidia/./version", "NVRM version: x"),
        "*** /proc/pci does not exist",
        "*** /proc/iomem is not readable",
        _file("/.bottlerocket/rootfs/etc/os-release", 'PRETTY_NAME="Bottlerocket"'),
    )
    version, release, denied = (
        node.read(path) for path in ("/proc/driver/nvidia/version", "/etc/os-release", "/proc/iomem")
    )
    assert isinstance(version, TextFile) and version.text == "NVRM version: x\n"
    assert isinstance(release, TextFile) and "Bottlerocket" in release.text
    assert isinstance(denied, Unread) and denied.why is Why.NO_PERMISSION
    assert isinstance(node.read("/proc/pci"), Absent)


def test_of_two_sections_about_one_file_the_first_counts() -> None:
    node = _node(_file("/proc/cmdline", "first"), _file("/proc/cmdline", "second"))
    file = node.read("/proc/cmdline")
    assert isinstance(file, TextFile) and file.text == "first\n"


def test_a_trimmed_section_is_not_recorded_rather_than_empty() -> None:
    node = _node("*** /proc/modules\n[section body removed by corpus trimming]", "dmesg:\n[section body removed]")
    modules, log = node.read("/proc/modules"), node.log("kernel.log")
    assert isinstance(modules, Unread) and "its section was removed" in modules.detail
    assert isinstance(log, Unread)


def test_a_functions_own_files_stand_beside_what_lspci_says() -> None:
    status = _file(f"{DEVICES}/0000:01:00.0/power/runtime_status", "active")
    node = _node(status, NAMES, _verbose(PORT, GPU))
    (gpu,) = _fact(node, PciGpus)
    assert gpu.runtime_status == "active"
    assert gpu.cite("runtime_status")[0].where == f"{DEVICES}/0000:01:00.0/power/runtime_status"


INFORMATION = _file(
    "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA RTX A5000\nDevice Minor: \t 0"
)


def test_with_the_section_after_them_the_drivers_gpus_are_all_known() -> None:
    node = _node(VERSION, INFORMATION, _file("/proc/cmdline", "ro"))
    other = node.read("/proc/driver/nvidia/gpus/0000:02:00.0/information")
    assert isinstance(other, Absent)
    assert other.where == "sections /proc/driver/nvidia/gpus/*/information"
    assert isinstance(node.read("/proc/driver/nvidia/gpus/0000:01:00.0/information"), TextFile)


def test_a_driver_that_is_not_loaded_lists_no_gpu() -> None:
    node = _node("*** /proc/driver/nvidia/./version does not exist", _file("/proc/cmdline", "ro"))
    assert isinstance(node.read("/proc/driver/nvidia/gpus/0000:01:00.0/information"), Absent)


def test_safe_mode_and_a_cut_leave_the_drivers_gpus_unknown() -> None:
    safe = _node(VERSION, _file("/proc/cmdline", "ro"), head=f"{HEAD}\ncommand line flags: --safe-mode")
    cut = read_bug_report(_text(VERSION, INFORMATION))
    for node, words in ((safe, "--safe-mode"), (cut, "the report ends with its section")):
        found = node.read("/proc/driver/nvidia/gpus/0000:02:00.0/information")
        assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED and words in found.detail


def test_parameters_of_modules_are_files() -> None:
    node = _node("/sys/module/nvidia_drm/parameters/modeset:Y\n/sys/module/nvidia/parameters/NVreg_x:a:b")
    files = {
        path: node.read(f"/sys/module/{path}")
        for path in ("nvidia_drm/parameters/modeset", "nvidia/parameters/NVreg_x")
    }
    assert [file.text for file in files.values() if isinstance(file, TextFile)] == ["Y\n", "a:b\n"]


def test_dmidecode_tells_who_made_the_machine() -> None:
    node = _node(
        "/usr/sbin/dmidecode\n\n# dmidecode 3.5\n\nHandle 0x0001, DMI type 1, 27 bytes\nSystem Information\n"
        "\tManufacturer: QEMU\n\tProduct Name: Not Specified\n\nHandle 0x0002\nBase Board Information\n\tManufacturer: X"
    )
    vendor = node.read("/sys/class/dmi/id/sys_vendor")
    assert isinstance(vendor, TextFile) and (vendor.text, vendor.where) == ("QEMU\n", "dmidecode")
    assert isinstance(node.read("/sys/class/dmi/id/product_name"), Unread)


# ls -l

NODES = (
    "crw-rw-rw- 1 root root 195,   0 2026-11-29 12:00:00.000000000 +0000 /dev/nvidia0\n"
    "crw-rw-rw- 1 root root 195, 255 Nov 29 12:00 /dev/nvidiactl\n"
    "crw-rw----+ 1 root video 508, 0 11月 29 12:00 /dev/nvidia-uvm\n\n"
    "/dev/nvidia-caps:\ntotal 0\ncr-------- 1 root root 511, 1 Nov 29 12:00 nvidia-cap1"
)


def test_a_listing_of_device_nodes_makes_entries_and_names_those_that_are_missing() -> None:
    node = _node(f"ls -l /dev/nvidia*\n\n{NODES}")
    zero, control, uvm = (node.entry(f"/dev/nvidia{name}") for name in ("0", "ctl", "-uvm"))
    assert isinstance(zero, Entry) and isinstance(control, Entry) and isinstance(uvm, Entry)
    assert (zero.type, zero.major, zero.minor, zero.mode, zero.uid) == (EntryType.CHAR, 195, 0, 0o666, 0)
    assert (control.minor, uvm.mode, uvm.gid, uvm.where) == (255, 0o660, None, "ls -l /dev/nvidia*")
    cap, missing = node.entry("/dev/nvidia-caps/nvidia-cap1"), node.entry("/dev/nvidia1")
    assert isinstance(cap, Entry) and (cap.minor, cap.mode) == (1, 0o400)
    assert isinstance(missing, Absent) and missing.where == "ls -l /dev/nvidia*"
    assert isinstance(node.entry("/dev/nvidia-caps/nvidia-cap2"), Absent)
    assert isinstance(node.entry("/dev/kmsg"), Unread)


def test_what_ls_cannot_access_is_absent_or_closed() -> None:
    node = _node(
        "ls -l /dev/nvidia0 /root/x\n\nls: cannot access '/dev/nvidia0': No such file or directory\n"
        "ls: cannot access '/root/x': Permission denied\nls: 无法访问 '/dev/nvidiactl': 没有那个文件或目录",
        "ls -l /dev/nvidia*\n\nls: cannot access '/dev/nvidia*': No such file or directory",
    )
    closed = node.entry("/root/x")
    assert isinstance(node.entry("/dev/nvidia0"), Absent)
    assert isinstance(closed, Unread) and closed.why is Why.NO_PERMISSION
    assert isinstance(node.entry("/dev/nvidia7"), Absent)


def test_a_listed_directory_is_complete_and_its_links_are_links() -> None:
    node = _node(
        "ls -l /etc/modprobe.d/\n\ntotal 8\nlrwxrwxrwx 1 root root 7 Nov 29 2025 a.conf -> b.conf\n"
        "-rwsr-xr-x 1 root root 12 Nov 29 12:00 b.conf"
    )
    listing, link, file = (
        node.listing("/etc/modprobe.d"),
        node.entry("/etc/modprobe.d/a.conf"),
        node.entry("/etc/modprobe.d/b.conf"),
    )
    assert isinstance(listing, Listing) and (listing.names, listing.complete) == (("a.conf", "b.conf"), True)
    assert isinstance(link, Entry) and link.to == "b.conf"
    assert isinstance(file, Entry) and (file.mode, file.size) == (0o4755, 12)


# nvidia-smi

SMI = """/usr/bin/nvidia-smi --query

==============NVSMI LOG==============

Driver Version                            : 550.163.01
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA RTX A5000
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555

/usr/bin/nvidia-smi --query --unit

Attached Units : 0"""
XML = """/usr/bin/nvidia-smi -q -x

<?xml version="1.0" ?>
<nvidia_smi_log>
\t<driver_version>550.163.01</driver_version>
\t<cuda_version>12.4</cuda_version>
\t<attached_gpus>2</attached_gpus>
\t<gpu id="00000000:01:00.0">
\t\t<product_name>NVIDIA RTX A5000</product_name>
\t\t<uuid>GPU-11111111-2222-3333-4444-555555555555</uuid>
\t\t<minor_number>0</minor_number>
\t</gpu>
\t<gpu id="00000000:02:00.0">
\t\t<uuid>GPU is lost</uuid>
\t</gpu>
</nvidia_smi_log>"""


def test_what_nvidia_smi_printed_is_what_nvml_answered() -> None:
    for section in (SMI, XML):
        nvml = _fact(_node(section), Nvml)
        device = nvml.device("0000:01:00.0")
        assert (nvml.init, nvml.driver_version, nvml.cuda_version) == (0, "550.163.01", "12.4")
        assert device is not None and device.uuid == "GPU-11111111-2222-3333-4444-555555555555"
    lost = _fact(_node(XML), Nvml).device("0000:02:00.0")
    assert lost is not None and lost.error is not None and lost.error.code == 15


def _table(details: str) -> str:
    row = "NVIDIA GPU Details"
    return f"{HEAD}\n\n{'Component':35} | Details\n{'=' * 80}\n{row:35} | {details}\n{'-' * 80}"


def test_the_head_tells_what_nvidia_smi_said_where_nobody_else_does() -> None:
    nvml = _fact(_node(head=_table("Failed: No devices were found")), Nvml)
    assert (nvml.init, nvml.count) == (0, 0) and nvml.via.startswith("nvidia-smi --query-gpu=")
    assert _fact(_node(SMI, head=_table("Failed: No devices were found")), Nvml).count == 1
    rows = "NVIDIA RTX A5000, 550.163.01, 24564 MiB, 94.02, 00000000:01:00.0, [N/A]"
    assert isinstance(Desk(_node(head=_table(rows)), Config()).get(Nvml), Unread)


@pytest.mark.parametrize(
    ("sections", "head", "words"),
    [
        (["Skipping nvidia-smi output (nvidia-smi not found)"], HEAD, "was not found"),
        (["Skipping: nvidia-smi output\nnvidia-smi not found"], HEAD, "was not found"),
        ([], f"{HEAD}\ncommand line flags: --safe-mode", "--safe-mode"),
        ([], f"{HEAD}\ncommand line flags: ", "was not asked when this was recorded"),
    ],
)
def test_why_nvidia_smi_said_nothing_is_told(sections: list[str], head: str, words: str) -> None:
    found = Desk(_node(*sections, head=head), Config()).get(Nvml)
    assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED and words in found.detail


# Logs

STAMPED = "[Sun Nov 29 11:58:01 2026] "
JOURNAL = (
    "Scanning kernel log files for NVIDIA kernel messages:\n\n  /var/log/kern.log:\nNov 1 00:00:00 n7 kernel: NVRM: an old one\n"
    "\n  journalctl -b -0:\nNov 29 11:58:01 n7 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
    "Nov 29 11:58:02 n7 nvidia-persistenced[9]: device 0000:01:00.0 - registered\n"
    "Nov 29 11:59:00 n7 kernel: NVRM: Xid (PCI:0000:01:00): 62, pid=1\n                          NVRM: its second line\n"
    "Nov 29 12:00:00 n7 kernel: NVRM: Xid (PCI:0000:01:00): 45, pid=2\n"
    "\n  journalctl -b -1:\nNov 28 12:00:00 n7 kernel: NVRM: of the boot before"
)


def test_dmesg_with_dates_that_begins_with_the_boot_lacks_nothing() -> None:
    log = _node(f"dmesg:\n\n{STAMPED}Linux version 6.8.0-1\n{STAMPED}NVRM: loading", JOURNAL).log("kernel.log")
    assert isinstance(log, Log) and log.from_boot and log.where == "dmesg"
    assert "an old one" not in log.text and "Xid" not in log.text


def test_a_ring_buffer_that_wrapped_is_completed_from_the_journal() -> None:
    node = _node("dmesg:\n\n[  120.0] NVRM: Xid (PCI:0000:01:00): 45, pid=2\n[  121.0] usb 1-1: new", JOURNAL)
    log = _fact(node, KernelLog)
    assert not log.from_boot and log.where == "kernel log"
    said = [re.sub(r"^.*?NVRM: ", "", line) for line in log.text.splitlines()]
    assert said == [
        "loading NVIDIA UNIX x86_64 Kernel Module",
        "Xid (PCI:0000:01:00): 62, pid=1",
        "its second line",
        "Xid (PCI:0000:01:00): 45, pid=2",
        "[  121.0] usb 1-1: new",
    ]


def test_a_journal_that_does_not_meet_dmesg_is_not_put_before_it() -> None:
    log = _node("dmesg:\n\n[  120.0] NVRM: something else", JOURNAL).log("kernel.log")
    assert isinstance(log, Log) and log.text.startswith("[  120.0]")


def test_without_dmesg_the_journals_lines_are_the_kernel_log() -> None:
    node = _node(JOURNAL)
    log, previous = node.log("kernel.log"), node.log("kernel.previous.log")
    assert isinstance(log, Log) and not log.from_boot and "persistenced" not in log.text and "Xid" in log.text
    assert isinstance(previous, Log) and previous.text.endswith("NVRM: of the boot before\n")
    daemon = node.log("journal/nvidia-persistenced.service.log")
    assert isinstance(daemon, Log) and "registered" in daemon.text


# Modules and services

NO_VERMAGIC = (
    "/sbin/modinfo nvidia | grep vermagic\n\n\n/sbin/modinfo nvidia_drm | grep vermagic\n\nvermagic: 6.8.0-1 SMP"
)
VERMAGIC = "/sbin/modinfo nvidia | grep vermagic\n\nvermagic:       6.8.0-1 SMP mod_unload"
NOUVEAU_ONLY = GPU.replace(", nvidia_drm, nvidia", "").replace("use: nvidia", "use: nouveau")


def test_a_module_is_missing_where_neither_modinfo_nor_lspci_knows_it() -> None:
    assert not _fact(_node(NO_VERMAGIC, _verbose(PORT, NOUVEAU_ONLY)), ModuleFile).exists
    for sections in (
        (NO_VERMAGIC, _verbose(PORT, GPU)),
        (NO_VERMAGIC, NAMES, OLD_VERBOSE),
        (VERMAGIC, _verbose(PORT, NOUVEAU_ONLY)),
    ):
        found = Desk(_node(*sections), Config()).get(ModuleFile)
        assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED


def test_other_commands_are_kept_under_their_words() -> None:
    node = _node(
        "/usr/sbin/dkms status\n\nnvidia/550.163.01, 6.8.0-1, x86_64: installed",
        "modinfo nvidia\n\nfilename: /lib/x.ko",
    )
    dkms, modinfo = node.command(("dkms", "status")), node.command(("modinfo", "nvidia"))
    assert isinstance(dkms, CommandOutput) and "installed" in dkms.stdout
    assert isinstance(modinfo, CommandOutput) and modinfo.exit == 0
    assert isinstance(node.command(("rpm", "-qa")), Unread)


def _status(loaded: str, active: str) -> str:
    return (
        "/usr/bin/systemctl status nvidia-suspend.service nvidia-persistenced.service\n"
        "○ nvidia-suspend.service - NVIDIA system suspend actions\n     Loaded: loaded (/usr/lib/x.service; enabled)\n"
        f"     Active: inactive (dead)\n\n● nvidia-persistenced.service - NVIDIA Persistence Daemon\n     Loaded: {loaded}\n"
        f"     Active: {active} since Sun 2026-11-29\n\n"
        "Nov 29 11:58:03 n7 nvidia-persistenced[9]: Failed to query NVIDIA devices. Please ensure that they exist\n"
        "Nov 29 11:58:04 n7 systemd[1]: nvidia-persistenced.service: Failed with result 'exit-code'."
    )


UNIT_FILE = "/usr/lib/systemd/system/nvidia-persistenced.service"


def test_the_status_of_the_persistence_daemon_is_read() -> None:
    running = _fact(
        _node(_status(f"loaded ({UNIT_FILE}; enabled; preset: enabled)", "active (running)")), PersistenceDaemon
    )
    assert running.enabled and running.running is True
    failed = _fact(
        _node(_status(f"loaded ({UNIT_FILE}; enabled; vendor preset: enabled)", "failed (Result: x)")),
        PersistenceDaemon,
    )
    assert failed.enabled and failed.running is False and "Failed to query" in failed.said[0].shows
    off = _fact(_node(_status(f"loaded ({UNIT_FILE}; disabled)", "inactive (dead)")), PersistenceDaemon)
    assert not off.enabled


# Whole files ------------------------------------------------------------------------------------------------------

WHOLE = (
    _text(
        NAMES,
        _verbose(PORT, GPU, NIC),
        SMI,
        JOURNAL,
        VERSION,
        INFORMATION,
        _file("/proc/modules", "nvidia 1 0 - Live 0x0"),
    )
    + END
)


def _opened(tmp_path: Path, content: bytes) -> BugReport:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(content)
    return open_bug_report(path)


@pytest.mark.parametrize("size", [1, 7, 61, 4096])
def test_a_report_reads_the_same_in_pieces_of_any_size(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_bug_report(WHOLE)
    monkeypatch.setattr(bug_report_text, "PIECE", size)
    monkeypatch.setattr(bug_report_gzip, "PIECE", size)
    for content in (WHOLE.encode(), gzip.compress(WHOLE.encode()), WHOLE.replace("\n", "\r\n").encode()):
        node = _opened(tmp_path, content)
        assert node.tree.records == expected.tree.records
        assert (node.answers, node.log("kernel.log")) == (expected.answers, expected.log("kernel.log"))
        assert node.notes == ()


def test_a_report_that_was_compressed_again_and_again_is_read(tmp_path: Path) -> None:
    content = gzip.compress(gzip.compress(WHOLE.encode()))
    assert _opened(tmp_path, content).tree.records == read_bug_report(WHOLE).tree.records
    with pytest.raises(SourceError, match="compressed more than 3 times"):
        _opened(tmp_path, gzip.compress(gzip.compress(content)))


def test_a_member_for_each_section_and_zeros_behind_them_are_read(tmp_path: Path) -> None:
    """`gzip -c >> LOG` writes one member after the other."""
    parts = [LINE + part for part in WHOLE.split(LINE)[1:]]
    content = b"".join(gzip.compress(part.encode()) for part in parts) + bytes(512)
    assert _opened(tmp_path, content).tree.records == read_bug_report(WHOLE).tree.records


def test_every_part_of_a_gzip_header_is_passed_over(tmp_path: Path) -> None:
    """RFC 1952: extra field, name, comment, check sum of the header."""
    plain = gzip.compress(WHOLE.encode())
    header = b"\x1f\x8b\x08\x1e" + plain[4:10] + b"\x03\x00xyz" + b"a name\0" + b"a comment\0" + b"\x12\x34"
    assert _opened(tmp_path, header + plain[10:]).tree.records == read_bug_report(WHOLE).tree.records


@pytest.mark.parametrize(("most", "words"), [(1 << 20, "check sum"), (10, "length")])
def test_text_that_is_not_what_was_compressed_is_damage(
    most: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bug_report_gzip, "MOST_CHECKED", most)
    wrong = gzip.compress(WHOLE.encode())[:-8] + bytes(8)
    assert words in _opened(tmp_path, wrong).notes[0]


def test_bytes_that_are_no_text_do_not_hide_the_rest(tmp_path: Path) -> None:
    content = WHOLE.encode().replace(b"RTX A5000", b"RTX \xff\xfe A5000")
    assert [gpu.address for gpu in _fact(_opened(tmp_path, content), PciGpus)] == ["0000:01:00.0"]


def _cut_at(words: str) -> bytes:
    return WHOLE[: WHOLE.index(words) + len(words)].encode()


def test_everything_up_to_a_cut_is_used_and_the_rest_is_not_recorded(tmp_path: Path) -> None:
    node = _opened(tmp_path, _cut_at("CUDA Version        "))
    assert [gpu.driver for gpu in _fact(node, PciGpus)] == ["nvidia"]
    nvml, modules = Desk(node, Config()).get(Nvml), node.read("/proc/modules")
    assert isinstance(nvml, Nvml) and nvml.count is None
    assert isinstance(modules, Unread) and "is cut off in its section '/usr/bin/nvidia-smi --query'" in modules.detail
    report = run(node, Config(), built_in(), Selection(), NOW)
    assert any("the report is cut off" in unseen.what for unseen in report.not_seen)
    assert report.result("driver-cuda.nvml-answers").status is Status.UNKNOWN
    assert node.notes == ("the report is cut off in its section '/usr/bin/nvidia-smi --query'",)


def test_a_report_that_ends_where_nvidia_smi_was_asked_says_so(tmp_path: Path) -> None:
    found = Desk(_opened(tmp_path, _cut_at("nvidia-smi --query\n")), Config()).get(Nvml)
    assert isinstance(found, Unread) and "as it does when nvidia-smi hangs" in found.detail


def test_a_file_or_listing_that_is_cut_off_proves_no_absence(tmp_path: Path) -> None:
    modules = _opened(tmp_path, _cut_at("/proc/modules\n") + b"nouveau 1 0 - Live 0x0\n")
    found = modules.read("/proc/modules")
    assert isinstance(found, Unread) and "cut off" in found.detail
    for listing in (NAMES, _verbose(PORT, GPU, NIC)):
        whole = read_bug_report(_text(listing)).entry(f"{DEVICES}/0000:05:00.0")
        cut = read_bug_report(_text(listing)[:-40]).entry(f"{DEVICES}/0000:05:00.0")
        assert isinstance(whole, Absent) and isinstance(cut, Unread)


def test_a_log_that_is_cut_off_does_not_reach_to_the_present() -> None:
    text = _text("dmesg:\n\n[    0.0] Linux version 6.8.0-1\n[    1.0] NVRM: loading NVIDIA\n[    2.0] NVRM: Xi")
    log = read_bug_report(text.rstrip("\n")).log("kernel.log")
    assert isinstance(log, Log) and not log.from_boot and "NVRM: Xi" not in log.text and "loading" in log.text


def test_a_gzip_file_that_is_cut_or_damaged_is_read_up_to_there(tmp_path: Path) -> None:
    noise = "".join(f"{number * 2654435761 % 2**32:08x}\n" for number in range(20_000))
    begun = f"{_text(NAMES)}{LINE}\n\nacpidump -o\n\n{noise}".encode()
    content = gzip.compress(begun + END.encode())
    broken = gzip.compress(begun) + content[:10] + b"\xff" * 100
    for damaged, words in ((content[:-2000], "the gzip file is cut off"), (broken, "damaged gzip file: Error")):
        node = _opened(tmp_path, damaged)
        assert len(_fact(node, PciGpus).gpus) == 1
        trouble, cut = node.notes
        assert trouble.startswith(words) and cut == "the report is cut off in its section 'acpidump -o'"


def test_of_several_reports_in_one_file_the_last_whole_one_counts(tmp_path: Path) -> None:
    older = (_text(_file("/proc/cmdline", "older")) + END).encode()
    newer = (_text(_file("/proc/cmdline", "newer")) + END).encode()
    begun = _text(_file("/proc/cmdline", "begun"), VERSION).encode()
    for content, said in (
        (older + newer, "newer"),
        (gzip.compress(older) + gzip.compress(newer), "newer"),
        (older + begun, "older"),
    ):
        node = _opened(tmp_path, content)
        file = node.read("/proc/cmdline")
        assert isinstance(file, TextFile) and file.text == f"{said}\n"
        assert node.notes == ("the file holds 2 reports: the last whole one is read",)
    assert _opened(tmp_path, begun + begun).notes == (
        "the file holds 2 reports: the last one is read",
        "the report ends with its section '*** /proc/driver/nvidia/version'",
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"\x00\x01\x02" * 1000, "not an nvidia-bug-report log", id="binary"),
        pytest.param(b"x" * 200_000 + WHOLE.encode(), "not an nvidia-bug-report log", id="late"),
        pytest.param(b"\x1f\x8b\x08\x00" + b"\xff" * 50, "damaged gzip", id="damaged"),
        pytest.param(gzip.compress(b"hello\n" * 100), "not an nvidia-bug-report log", id="another text"),
        pytest.param(gzip.compress(WHOLE.encode())[:60], "cut off", id="cut off"),
        pytest.param(gzip.compress(b"")[:8], "cut off", id="cut off in the header"),
    ],
)
def test_what_is_no_report_is_refused_with_one_clear_line(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        _opened(tmp_path, content)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_report_text, "MAX_BYTES", 1 << 20)
    with pytest.raises(SourceError, match="MiB of text"):
        _opened(tmp_path, gzip.compress(WHOLE.encode() + bytes(2 << 20)))


def _hostile() -> Iterable[str]:
    yield "/usr/bin/lspci -nn\n\n01:00.0 " + "[0300]: " * 20_000
    yield "/usr/bin/lspci -vvv\n\n01:00.0 x\n" + "\n\t" * 20_000
    yield "/usr/bin/lspci -nnvvv\n\n" + "\n\n".join(
        GPU.replace("01:00.0", f"{n >> 8:02x}:{n >> 3 & 31:02x}.{n & 7}") for n in range(3000)
    )
    yield "/usr/bin/lspci -t\n\n-[0000:00]-" + "+-01.0-[01-05]--" * 50_000
    yield "/usr/bin/nvidia-smi --query\n\n" + "a " * 100_000
    yield "/usr/bin/nvidia-smi -q -x\n\n<nvidia_smi_log>" + '<gpu id="00000000:01:00.0">' * 20_000
    yield "*** " + "/x" * 100_000
    yield "ls -l /dev\n\n" + "c" + "r" * 300_000 + "\n" + "crw-rw-rw- 1 root root " + "9" * 6000 + ", 1 Nov 29 12:00 x"
    yield "dmesg:\n\n" + "[1] NVRM: \n" * 200_000
    yield "Scanning kernel log files for NVRM messages:\n\n" + "  journalctl -b -0:\n" * 200_000
    yield f"{LINE[:30]}x\n" * 100_000


def test_hostile_sections_take_no_time() -> None:
    started = time.monotonic()
    for section in _hostile():
        read_bug_report(_text(section)).log("kernel.log")
    assert time.monotonic() - started < 10
