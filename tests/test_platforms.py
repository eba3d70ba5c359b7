"""WSL2 and Tegra, whose GPU is no function on PCI, by their own nodes, libraries and driver."""

import datetime

import pytest

from gpudoctor.config import Config, Expect
from gpudoctor.facts.raw import Entry, EntryType, Log
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Overall, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node, run_check, run_node
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, NOW, Builder

NODE_CHECK = "device-nodes.platform-node"
LIBRARIES_CHECK = "driver-cuda.wsl-libraries"
DRIVER_CHECK = "kernel-module.tegra-driver"
LIBRARIES = "/usr/lib/wsl/lib"


class Machine(Builder):
    """A node without an NVIDIA function on PCI."""

    def __init__(self, release: str) -> None:
        super().__init__()
        self.text("/proc/sys/kernel/osrelease", f"{release}\n")
        self.text("/proc/modules", "")
        self.tree.put(DEVICES, Record(entry=Entry(DEVICES, EntryType.DIR)))
        self.log = ""

    def char(self, path: str) -> None:
        """A character device."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, 0o666, 0, 0, major=10, minor=125)))

    def report(self, config: Config | None = None) -> Report:
        """What the doctor says."""
        complete = (DEVICES, "/dev", LIBRARIES, "/usr/lib/x86_64-linux-gnu", "/var/lib/dpkg/info", "/sys/module/nvgpu")
        recorded = RecordedNode(self.tree, complete=complete, uid=0)
        recorded.logs["kernel.log"] = Log("kernel.log", self.log, source="dmesg")
        return run(recorded, config or Config(), built_in(), Selection(), NOW)


def _wsl() -> Machine:
    machine = Machine("5.15.167.4-microsoft-standard-WSL2")
    machine.char("/dev/dxg")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libdxcore.so"):
        machine.text(f"{LIBRARIES}/{name}", "")
    return machine


def _jetson(compatible: str = "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0") -> Machine:
    machine = Machine("5.15.148-tegra")
    machine.text("/proc/device-tree/compatible", compatible)
    machine.text("/proc/modules", "nvgpu 2654208 23 - Live 0x0 (O)\nnvidia 1503232 8 - Live 0x0 (O)\n")
    machine.char("/dev/nvgpu/igpu0/ctrl")
    return machine


def _alarm(report: Report, check: str) -> Finding:
    (finding,) = [one for one in report.result(check).findings if one.status in (Status.WARN, Status.FAIL)]
    return finding


def _cited(finding: Finding) -> str:
    return "\n".join(f"{evidence.where} {evidence.shows}" for evidence in finding.evidence)


# WSL2 ---------------------------------------------------------------------------------------------------------------


def test_a_healthy_wsl_ends_with_a_pass() -> None:
    report = _wsl().report()
    assert (report.verdict, report.root_causes) == (Overall.PASS, ())
    passed = {result.check for result in report.results if result.status is Status.PASS}
    assert {NODE_CHECK, LIBRARIES_CHECK} <= passed
    assert report.result(DRIVER_CHECK).status is Status.SKIP


def test_wsl_without_its_node_is_one_root_cause() -> None:
    machine = _wsl()
    machine.absent("/dev/dxg")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        machine.absent(f"{LIBRARIES}/{name}")
    report = machine.report()
    (cause,) = report.root_causes
    assert (cause.check, cause.summary) == (NODE_CHECK, "/dev/dxg is missing")
    assert report.result(LIBRARIES_CHECK).status is Status.BLOCKED


@pytest.mark.parametrize(
    ("missing", "words", "breaks"),
    [
        (("libcuda.so.1", "libnvidia-ml.so.1"), "libcuda.so.1 and libnvidia-ml.so.1 are not in", "node"),
        (("libnvidia-ml.so.1",), "libnvidia-ml.so.1 is not in", "nothing"),
    ],
)
def test_libraries_that_windows_did_not_bring_fail(missing: tuple[str, ...], words: str, breaks: str) -> None:
    machine = _wsl()
    for name in missing:
        machine.absent(f"{LIBRARIES}/{name}")
    finding = _alarm(machine.report(), LIBRARIES_CHECK)
    assert finding.summary.startswith(words) and finding.breaks == breaks


@pytest.mark.parametrize(
    "path", ["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/var/lib/dpkg/info/libnvidia-compute-550:amd64.list"]
)
def test_a_linux_driver_inside_warns_and_hidden_libraries_are_no_pass(path: str) -> None:
    machine = _wsl()
    machine.text(path, "")
    report = machine.report()
    assert path in _cited(_alarm(report, LIBRARIES_CHECK))
    assert all(finding.status is not Status.PASS for finding in report.result(LIBRARIES_CHECK).findings)


def test_a_link_to_wsls_own_library_is_no_linux_driver() -> None:
    machine = _wsl()
    machine.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", f"{LIBRARIES}/libcuda.so.1")
    machine.text("/var/lib/dpkg/info/libnvidia-container1:amd64.list", "")
    assert machine.report().result(LIBRARIES_CHECK).status is Status.PASS


def test_libraries_that_cannot_be_seen_leave_the_verdict_open() -> None:
    machine = _wsl()
    machine.tree.put(f"{LIBRARIES}/libcuda.so.1", Record(error="EACCES"))
    report = machine.report()
    assert report.result(LIBRARIES_CHECK).why == "no-permission"
    assert report.verdict is Overall.UNKNOWN


def test_a_wsl_that_should_have_no_gpu_is_not_accused() -> None:
    machine = _wsl()
    machine.absent("/dev/dxg")
    assert machine.report(Config(expect=Expect(gpus=0))).root_causes == ()


# Tegra --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/nvgpu/igpu0/ctrl", "/dev/nvhost-ctrl-gpu"])
def test_a_healthy_jetson_passes_by_either_name_of_its_node(path: str) -> None:
    machine = _jetson()
    machine.absent("/dev/nvgpu/igpu0/ctrl")
    machine.char(path)
    report = machine.report()
    assert report.result(NODE_CHECK).status is Status.PASS and report.result(DRIVER_CHECK).status is Status.PASS
    assert path in report.result(NODE_CHECK).detail


def test_a_jetson_without_nvgpu_is_one_root_cause_with_what_keeps_it_out() -> None:
    machine = _jetson()
    machine.text("/proc/modules", "nvidia 1503232 8 - Live 0x0 (O)\n")
    machine.absent("/dev/nvgpu/igpu0/ctrl")
    machine.text("/etc/modprobe.d/denylist.conf", "blacklist nvgpu\n")
    report = machine.report()
    finding = _alarm(report, DRIVER_CHECK)
    assert finding.breaks == "node" and "/etc/modprobe.d/denylist.conf blacklist nvgpu" in _cited(finding)
    assert report.result(NODE_CHECK).status is Status.BLOCKED


def test_a_driver_built_into_the_kernel_is_known_by_sysfs_or_its_node() -> None:
    by_sysfs, by_node = _jetson(), _jetson()
    for machine in (by_sysfs, by_node):
        machine.text("/proc/modules", "")
    by_sysfs.tree.put("/sys/module/nvgpu", Record(entry=Entry("/sys/module/nvgpu", EntryType.DIR)))
    assert [machine.report().result(DRIVER_CHECK).status for machine in (by_sysfs, by_node)] == [Status.PASS] * 2


def test_a_driver_that_did_not_get_all_the_way_up_is_told_with_the_kernels_words() -> None:
    """As in NVIDIA-AI-IOT/jetson-ai-lab#427: nvgpu is loaded, other nvhost nodes are there, its firmware is not."""
    machine = _jetson()
    machine.absent("/dev/nvgpu/igpu0/ctrl")
    machine.char("/dev/nvhost-power-gpu")
    machine.log = "[   12.000001] nvgpu: 17000000.gpu nvgpu_acr_bootstrap_hs_acr:110  [ERR]  ACR bootstrap failed\n"
    report = machine.report()
    finding = _alarm(report, NODE_CHECK)
    assert "/dev/nvgpu/igpu0/ctrl" in finding.summary and "ACR bootstrap failed" in _cited(finding)
    assert report.result(DRIVER_CHECK).status is Status.PASS


def test_a_chip_whose_gpu_is_nvidias_is_not_judged_by_nvgpus_rules() -> None:
    machine = _jetson("nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0")
    machine.text("/proc/modules", "nvidia 1503232 8 - Live 0x0 (O)\n")
    machine.absent("/dev/nvgpu/igpu0/ctrl")
    report = machine.report()
    assert [report.result(check).status for check in (DRIVER_CHECK, NODE_CHECK)] == [Status.SKIP] * 2
    assert "tegra264" in report.result(DRIVER_CHECK).detail


def test_a_board_with_a_card_in_a_slot_is_judged_by_the_card() -> None:
    machine = _jetson()
    machine.text("/proc/modules", "nvidia 1503232 8 - Live 0x0 (O)\n")
    machine.absent("/dev/nvgpu/igpu0/ctrl")
    place = "/sys/devices/pci0005:00/0005:01:00.0"
    machine.function("0005:01:00.0", place, "nvidia")
    for name, value in (("vendor", "0x10de"), ("device", "0x26b1"), ("class", "0x030000")):
        machine.text(f"{place}/{name}", f"{value}\n")
    report = machine.report()
    assert [report.result(check).status for check in (DRIVER_CHECK, NODE_CHECK)] == [Status.SKIP] * 2


def test_modules_that_cannot_be_read_are_unknown() -> None:
    machine = _jetson()
    machine.tree.put("/proc/modules", Record(error="EACCES"))
    assert machine.report().result(DRIVER_CHECK).why == "no-permission"


# Ordinary nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [NODE_CHECK, LIBRARIES_CHECK, DRIVER_CHECK])
@pytest.mark.parametrize("name", ["h100x8", "gb200-tray", "t4-cloud-guest", "cpu-node-expects-none"])
def test_an_ordinary_node_is_not_judged_by_these_rules(check: str, name: str) -> None:
    assert run_check(check, node(name)).status is Status.SKIP


@pytest.mark.parametrize("link", ["pcie", "kernel-module", "device-nodes", "driver-cuda"])
def test_a_healthy_link_of_an_ordinary_node_passes_by_itself(link: str) -> None:
    """Essential questions that do not apply to it must not take its verdict away."""
    recorded = node("h100x8")
    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
    report = run(recorded, Config(), built_in(), Selection(links=(link,)), now)
    assert report.exit_code == 0


def test_the_recorded_wsl_is_read_without_an_alarm() -> None:
    report = run_node(node("wsl2"))
    assert report.root_causes == () and report.result(NODE_CHECK).status is Status.PASS
