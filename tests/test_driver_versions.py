"""The driver's branch and release against the tables: by its own words in the kernel log, by the tables alone, and where neither tells."""

import datetime

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import Answer, CommandOutput, Log, Question, SourceKind
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.testing import node, run_node
from gpudoctor.verdicts import Status, Why
from tests.altered import Altered
from tests.captures import DEVICES
from tests.small_node import COMPLETE, SmallNode, alarms, cited, steps

DRIVES, BOUND, FLAVOUR = "kernel-module.branch-drives-gpus", "kernel-module.gpu-bound", "kernel-module.flavour-fits"
SUPPORTED = "driver-cuda.branch-supported"
FIRST, SECOND = "0000:05:00.0", "0000:06:00.0"
V100, P40, K80, B200, H100, T4 = "1db4", "1b38", "102d", "2901", "2330", "1eb8"
DAY = datetime.datetime(2026, 2, 20, tzinfo=datetime.timezone.utc)
MODINFO = ("modinfo", "nvidia")


class DriverNode(SmallNode):
    """Two GPUs and a driver, whose log a test writes."""

    def __init__(self, release: str | None, *device_ids: str, flavour: str = "proprietary") -> None:
        super().__init__()
        self.release, self.flavour = release, flavour
        self.loaded = True
        self.kind: type[RecordedNode] = RecordedNode
        self.answers: dict[str, Answer] = {}
        self.lines: list[str] = ["nvidia-nvlink: Nvlink Core is being initialized, major device number 510"]
        for address, device_id in zip((FIRST, SECOND), device_ids or (V100, V100), strict=True):
            self.text(f"{self.place(address)}/device", f"0x{device_id}\n")
        self.text("/etc/os-release", "ID=ubuntu\n")
        for address in (FIRST, SECOND):
            self.started(address)

    def place(self, address: str) -> str:
        """Where a GPU lies."""
        return f"/sys/devices/pci0000:00/0000:00:01.{(FIRST, SECOND).index(address)}/{address}"

    def held_by(self, driver: str | None, *addresses: str) -> "DriverNode":
        """Another driver, or none."""
        for address in addresses or (FIRST, SECOND):
            self.function(address, self.place(address), driver)
            self.absent(f"/proc/driver/nvidia/gpus/{address}/information")
        return self

    def started(self, address: str, bios: str = "88.00.43.00.04") -> None:
        """The driver shows the GPU's VBIOS, or question marks."""
        text = f"Model: \t\t Tesla\nVideo BIOS: \t {bios}\nDevice Minor: \t 0\n"
        self.text(f"/proc/driver/nvidia/gpus/{address}/information", text)

    def unloaded(self) -> "DriverNode":
        """No module, no GPU held."""
        self.loaded = False
        return self.held_by(None)

    def said(self, *lines: str) -> "DriverNode":
        """Kernel messages since the module was loaded last."""
        self.lines.extend(lines)
        return self

    def judge(self, config: Config | None = None, day: datetime.datetime = DAY) -> Report:
        """The whole report."""
        super().report()
        if self.loaded and self.release is not None:
            opened = "Open Kernel Module for x86_64" if self.flavour == "open" else "x86_64 Kernel Module"
            self.text("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {opened}  {self.release}  Mon\n")
        elif not self.loaded:
            self.text("/proc/modules", "ext4 1000 0 - Live 0x0\n")
        recorded = self.kind(self.tree, complete=(*COMPLETE, "/etc/modprobe.d"), uid=0)
        recorded.logs["kernel.log"] = Log("kernel.log", "".join(f"{line}\n" for line in self.lines))
        recorded.answers |= self.answers
        if self.release is not None:
            recorded.commands[MODINFO] = CommandOutput(MODINFO, 0, f"filename: /x/nvidia.ko\nversion: {self.release}\n")
        return run(recorded, config or Config(), built_in(), Selection(), day)

    def of(self, address: str, check: str = DRIVES) -> Finding:
        """What a check says of a GPU."""
        return next(one for one in self.judge().result(check).findings if one.subject.key == address)


def legacy(name: str, branch: int, release: str, *, stamp: bool = True) -> tuple[str, ...]:
    """The driver's sentence about a GPU that an older branch was the last for."""
    words = (
        f"The NVIDIA {name} GPU installed in this system is",
        f" supported through the NVIDIA {branch}.xx Legacy drivers. Please",
        " visit http://www.nvidia.com/object/unix.html for more",
        f" information.  The {release} NVIDIA driver will ignore",
        " this GPU.  Continuing probe...",
    )
    return tuple(f"[    9.3{number if stamp else ''}] NVRM: {line}" for number, line in enumerate(words))


def unsupported(address: str, device_id: str, release: str) -> tuple[str, ...]:
    """The driver's sentence about a GPU that it does not know, its lines without times but the first."""
    return (
        f"[    9.300000] NVRM: The NVIDIA GPU {address} (PCI ID: 10de:{device_id})",
        "               NVRM: installed in this system is not supported by the",
        f"               NVRM: NVIDIA {release} driver release.",
        "               NVRM: Please see 'Appendix A - Supported NVIDIA GPU Products'",
        f"[    9.305000] nvidia: probe of {address} failed with error -1",
    )


def ignoring(address: str) -> tuple[str, ...]:
    """What it says at the probe."""
    return (
        f"[    9.411000] NVRM: ignoring the legacy GPU {address}",
        f"[    9.411300] nvidia: probe of {address} failed with error -1",
    )


NONE_FOUND = "[    9.4] NVRM: No NVIDIA GPU found."


def roots(report: Report) -> list[tuple[str, list[str]]]:
    """Root causes of the kernel-module link."""
    return [
        (cause.check, sorted(subject.key for subject in cause.subjects))
        for cause in report.root_causes
        if cause.check.startswith("kernel-module.")
    ]


# By the driver's own words -------------------------------------------------------------------------------------------


def test_all_gpus_of_a_dropped_architecture_are_one_root_cause_that_explains_the_rest() -> None:
    machine = DriverNode("590.48.01").unloaded()
    report = machine.said(*legacy("Tesla V100-PCIE-16GB", 580, "590.48.01"), NONE_FOUND).judge()
    assert roots(report) == [(DRIVES, [FIRST, SECOND])]
    finding = alarms(report, DRIVES)[0]
    assert finding.summary == (
        "the installed driver 590.48.01 ignores it: Tesla V100 PCIe 16GB (Volta) is last supported by branch 580"
    )
    assert "580.xx Legacy drivers" in cited(finding) and "No NVIDIA GPU found" in cited(finding)
    assert "apt-mark hold nvidia-driver-580-server" in steps(finding)
    assert "580 (until 2028-06)" in finding.remedies[0].say and "proprietary" in finding.remedies[0].say
    bound = alarms(report, BOUND)[0]
    assert f"{DRIVES}@{bound.subject.id}" in bound.caused_by
    assert "found no GPU that it drives" in bound.summary


def test_one_of_two_is_found_by_its_address_and_the_other_passes() -> None:
    machine = DriverNode("590.48.01", P40, H100).held_by(None, FIRST)
    report = machine.said(*legacy("Tesla P40", 580, "590.48.01"), *ignoring(FIRST)).judge()
    assert roots(report) == [(DRIVES, [FIRST])]
    (finding,) = alarms(report, DRIVES)
    assert "ignoring the legacy GPU 0000:05:00.0" in cited(finding)
    assert "(Pascal) is last supported by branch 580" in finding.summary
    assert any("take this one out" in remedy.say for remedy in finding.remedies)
    assert "bind" not in steps(alarms(report, BOUND)[0])
    assert machine.of(SECOND).status is Status.PASS


@pytest.mark.parametrize("device_id", [V100, "ffff"])
def test_the_line_with_the_address_is_enough(device_id: str) -> None:
    finding = DriverNode("595.71.05", device_id, H100).held_by(None, FIRST).said(*ignoring(FIRST)).of(FIRST)
    assert finding.status is Status.FAIL
    assert ("branch 580" in finding.summary) is (device_id == V100)


def test_kepler_with_495_is_told_to_take_470() -> None:
    machine = DriverNode("495.46", K80, K80).unloaded()
    report = machine.said(*legacy("Tesla K80", 470, "495.46", stamp=False), NONE_FOUND).judge()
    assert roots(report) == [(DRIVES, [FIRST, SECOND])]
    finding = alarms(report, DRIVES)[0]
    assert "(Kepler) is last supported by branch 470" in finding.summary
    assert "install branch 470 with its proprietary kernel modules" in finding.remedies[0].say
    assert "apt-mark hold nvidia-driver-470-server" in steps(finding)


def test_words_of_another_release_are_history() -> None:
    """590 was tried; 580 was installed since, and nobody loaded it yet."""
    machine = DriverNode("580.126.09").unloaded()
    report = machine.said(*legacy("Tesla V100-PCIE-16GB", 580, "590.48.01"), *ignoring(FIRST), NONE_FOUND).judge()
    assert report.result(DRIVES).status is Status.PASS
    assert [check for check, _ in roots(report)] == [BOUND]


def test_words_from_before_the_module_was_loaded_last_are_history() -> None:
    machine = DriverNode("590.48.01", H100, H100).unloaded()
    machine.said(*legacy("Tesla V100-PCIE-16GB", 580, "590.48.01"), *ignoring(FIRST), NONE_FOUND)
    machine.said("nvidia-nvlink: Nvlink Core is being initialized, major device number 510")
    assert machine.of(FIRST).status is Status.PASS


@pytest.mark.parametrize(
    "lines",
    [
        unsupported(FIRST, B200, "535.288.01"),
        (
            f"NVRM: The NVIDIA GPU {FIRST} (PCI ID: 10de:{B200})",
            "NVRM: installed in this system is not supported by the 535.288.01",
            "NVRM: NVIDIA Linux driver release.  Please see 'Appendix",
        ),
    ],
)
def test_a_gpu_that_is_newer_than_the_branch(lines: tuple[str, ...]) -> None:
    machine = DriverNode("535.288.01", B200, B200, flavour="open").unloaded().said(*lines)
    finding = machine.of(FIRST)
    assert finding.status is Status.FAIL
    assert "535.288.01 does not drive it: B200 (Blackwell) needs branch 570 or later" in finding.summary
    assert "is not supported by the" in cited(finding)
    assert "table of" not in finding.summary and "table of" in machine.of(SECOND).summary
    assert "nvidia-driver-580-server-open" in steps(finding)


def test_the_same_words_where_the_branch_knows_the_gpu_are_no_fault_of_the_branch() -> None:
    machine = DriverNode("580.126.09", B200, B200, flavour="open").held_by(None, FIRST)
    machine.said(*unsupported(FIRST, B200, "580.126.09"))
    assert machine.of(FIRST).status is Status.UNKNOWN
    assert "although its branch drives Blackwell" in machine.of(FIRST).summary
    assert [check for check, _ in roots(machine.judge())] == [BOUND]


def test_a_gpu_that_needs_the_other_flavour_is_not_the_branchs_fault() -> None:
    for name in ("pascal-with-open-module", "pascal-alone-with-open-module", "blackwell-with-proprietary-module"):
        assert run_node(node(name)).result(DRIVES).status is Status.PASS, name


# By the tables alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "device_id", "words"),
    [
        ("590.48.01", V100, "(Volta) is last supported by branch 580 (table of"),
        ("620.70.06", P40, "(Pascal) is last supported by branch 580 (table of"),
        ("495.46", K80, "(Kepler) is last supported by branch 470 (table of"),
        ("535.288.01", B200, "(Blackwell) needs branch 570 or later (table of"),
        ("510.108.03", H100, "(Hopper) needs branch 520 or later (table of"),
    ],
)
def test_the_tables_decide_where_the_log_is_silent(release: str, device_id: str, words: str) -> None:
    machine = DriverNode(release, device_id, device_id).unloaded()
    report = machine.judge()
    assert roots(report) == [(DRIVES, [FIRST, SECOND])]
    assert words in alarms(report, DRIVES)[0].summary


@pytest.mark.parametrize(
    ("release", "device_id", "why"),
    [
        ("640.10", V100, "which know branches 390 to 620, do not tell"),
        ("640.10", V100, "the last that they know to drive it is 580"),
        ("640.10", H100, "which know branches 390 to 620, do not tell"),
        ("340.108", B200, "do not tell whether the installed driver 340.108 drives B200"),
        ("590.48.01", "fffe", "10de:fffe is not in the tables"),
        ("450.248.02", "2230", "do not tell whether"),
    ],
)
def test_what_the_tables_do_not_know_is_no_fault(release: str, device_id: str, why: str) -> None:
    finding = DriverNode(release, device_id, device_id).unloaded().of(FIRST)
    assert finding.status is Status.UNKNOWN
    assert why in finding.summary


def test_a_gpu_that_the_driver_holds_is_driven_whatever_the_table_says() -> None:
    machine = DriverNode("590.48.01", V100, H100)
    assert machine.of(FIRST).status is Status.PASS
    assert "although the table of" in machine.of(FIRST).summary
    assert "88.00.43.00.04" in cited(machine.of(FIRST))
    machine.started(FIRST, "??.??.??.??.??")
    assert machine.of(FIRST).status is Status.UNKNOWN
    assert roots(machine.judge()) == []


def test_without_a_driver_nothing_is_said_of_branches() -> None:
    machine = DriverNode(None).unloaded()
    assert machine.of(FIRST).status is Status.UNKNOWN
    assert machine.of(FIRST).why is Why.NOT_RECORDED
    assert run_node(node("driver-newer-than-every-table")).result(DRIVES).status is Status.PASS


# Several faults, and several GPUs ------------------------------------------------------------------------------------


def test_a_gpu_given_to_a_virtual_machine_is_not_judged() -> None:
    machine = DriverNode("590.48.01", P40, H100).held_by("vfio-pci", FIRST)
    machine.said(*legacy("Tesla P40", 580, "590.48.01"), *ignoring(FIRST))
    assert machine.of(FIRST).status is Status.SKIP


def test_nouveau_that_holds_what_the_driver_ignores_is_a_second_fault() -> None:
    machine = DriverNode("590.48.01", P40, H100).held_by("nouveau", FIRST)
    machine.said(*legacy("Tesla P40", 580, "590.48.01"))
    assert sorted(roots(machine.judge())) == [(DRIVES, [FIRST]), (BOUND, [FIRST])]
    assert DriverNode("590.48.01", P40, H100).held_by("nouveau", FIRST).of(FIRST).status is Status.SKIP


def test_a_blacklisted_module_of_the_wrong_branch_is_two_faults() -> None:
    machine = DriverNode("590.48.01").unloaded()
    machine.text("/etc/modprobe.d/off.conf", "blacklist nvidia\n")
    assert sorted(roots(machine.judge())) == [(DRIVES, [FIRST, SECOND]), (BOUND, [FIRST, SECOND])]


def test_the_flavour_follows_from_the_branch() -> None:
    """590's proprietary modules, which the flavour alone would ask for, do not drive Pascal either."""
    machine = DriverNode("590.48.01", P40, T4, flavour="open").held_by(None, FIRST)
    report = machine.judge()
    assert roots(report) == [(DRIVES, [FIRST])]
    assert alarms(report, FLAVOUR)[0].caused_by


def test_gpus_that_no_driver_runs_together_are_to_be_parted() -> None:
    finding = DriverNode("590.48.01", V100, B200, flavour="open").held_by(None, FIRST).of(FIRST)
    assert "No branch and flavour of the driver runs all GPUs of this node" in finding.remedies[0].say


@pytest.mark.parametrize(
    ("os_id", "has", "has_not"),
    [
        ("rocky", "dnf module switch-to nvidia-driver:580-dkms", "apt"),
        ("debian", "nvidia-driver-pinning-580", "nvidia-driver-580-server"),
        ("sles", "zypper addlock", "dnf"),
        ("arch", "zypper addlock", "pacman"),
    ],
)
def test_the_words_are_those_of_the_distribution(os_id: str, has: str, has_not: str) -> None:
    machine = DriverNode("590.48.01").unloaded()
    machine.text("/etc/os-release", f"ID={os_id}\n")
    said = steps(machine.of(FIRST))
    assert has in said and has_not not in said


def test_a_message_among_others_and_in_a_journals_form_is_read() -> None:
    machine = DriverNode("590.48.01", P40, H100).held_by(None, FIRST)
    for number, line in enumerate(legacy("Tesla P40", 580, "590.48.01")):
        machine.said(f"Feb 20 12:00:0{number} node kernel: {line}", "Feb 20 12:00:09 node kernel: eth0: link up")
    machine.said("Feb 20 12:00:09 node kernel: NVRM: The NVIDIA Tesla P40 GPU installed in this system is")
    assert "580.xx Legacy drivers" in cited(machine.of(FIRST))


# Whether the branch gets fixes ----------------------------------------------------------------------------------------

ASKED = Config(advisories=True, disable=("toolkit.known-vulnerabilities",))


class Untimed(RecordedNode):
    """A source that does not say when it was made."""

    kind = SourceKind.BUG_REPORT


def supported(
    release: str, config: Config | None = None, day: datetime.datetime = DAY, *device_ids: str
) -> list[Finding]:
    """What is said of a running release."""
    return list(DriverNode(release, *device_ids).judge(config, day).result(SUPPORTED).findings)


def test_an_ended_branch_is_named_and_warns_where_that_is_asked_for() -> None:
    (finding,) = supported("525.147.05")
    assert finding.status is Status.PASS
    assert "production branch 525 has ended" in finding.summary and "2023-12-01" in finding.summary
    (asked,) = supported("525.147.05", ASKED)
    assert asked.status is Status.WARN and "2023-12-01" in asked.summary
    assert "install branch 580" in asked.remedies[0].say and "620" not in asked.remedies[0].say


@pytest.mark.parametrize(
    ("day", "status"), [((2026, 1, 27), Status.PASS), ((2026, 1, 28), Status.WARN), ((2026, 11, 30), Status.WARN)]
)
def test_the_day_is_that_of_the_report(day: tuple[int, int, int], status: Status) -> None:
    at = datetime.datetime(*day, 12, tzinfo=datetime.timezone.utc)
    assert [one.status for one in supported("570.211.01", ASKED, at)] == [status]


def test_a_report_that_tells_no_time_is_not_judged_by_the_readers_clock() -> None:
    machine = DriverNode("570.211.01")
    machine.kind = Untimed
    (finding,) = machine.judge(ASKED).result(SUPPORTED).findings
    assert finding.status is Status.UNKNOWN and "2026-01-27" in finding.summary


def test_a_new_feature_branch_ends_with_the_next() -> None:
    (finding,) = supported("590.48.01", ASKED, datetime.datetime(2026, 6, 1, tzinfo=datetime.timezone.utc), H100, H100)
    assert finding.status is Status.WARN and "since branch 595 came" in finding.summary


@pytest.mark.parametrize(
    ("release", "status", "words"),
    [
        ("640.10", Status.PASS, "ends with branch 620"),
        ("580.00", Status.PASS, "long-term support branch 580"),
        ("580.999.01", Status.PASS, "newer than 580.178.04"),
        ("600.10.01", Status.UNKNOWN, "branch 600 is not in the table"),
        ("340.108", Status.UNKNOWN, "older than the table"),
        ("540.4.0", Status.SKIP, "JetPack"),
    ],
)
@pytest.mark.parametrize("config", [None, ASKED])
def test_a_release_that_the_table_does_not_have(
    release: str, status: Status, words: str, config: Config | None
) -> None:
    (finding,) = supported(release, config)
    assert finding.status is status
    assert words in finding.summary


def test_where_no_supported_branch_drives_the_gpus_it_says_so() -> None:
    (finding,) = supported("470.256.02", ASKED, DAY, K80, K80)
    assert finding.status is Status.WARN
    assert "No branch that gets fixes is known to drive all GPUs here (Kepler)" in finding.remedies[0].say


# Whether a release is known to be bad here ---------------------------------------------------------------------------


def mixed(name: str = "known-bad-570-on-mig-and-full-gpus") -> Altered:
    """The node whose GPUs are divided in part."""
    return Altered(name)


def test_a_bad_release_warns_where_its_condition_holds() -> None:
    (finding,) = mixed().report().result(SUPPORTED).findings
    assert finding.status is Status.WARN
    assert "570.133.20" in finding.summary and "570.172.08" in finding.summary
    assert "kubelet" in cited(finding) and "mig.current: True" in cited(finding)


def test_without_a_kubelet_it_does_not_apply() -> None:
    machine = mixed()
    machine.answers["processes"] = Answer(data={"processes": []})
    (finding,) = machine.report().result(SUPPORTED).findings
    assert finding.status is Status.PASS and "mixed-mig-pending" in finding.summary


def test_where_the_condition_is_not_known_nothing_is_claimed() -> None:
    machine = mixed()
    machine.answers["processes"] = Answer(data={"processes": [], "whole": False})
    (finding,) = machine.report().result(SUPPORTED).findings
    assert finding.status is Status.UNKNOWN and "mixed-mig-pending" not in finding.summary


def test_gpus_that_the_driver_does_not_hold_do_not_suffer_from_it() -> None:
    assert run_node(node("r535-driver-with-b200s")).result(SUPPORTED).status is Status.SKIP
    (finding,) = supported("570.86.15", None, DAY, "2bb5", "2bb5")
    assert finding.status is Status.WARN and "575.57.08" in finding.summary
    machine = DriverNode("570.86.15", "2bb5", H100).held_by("vfio-pci", FIRST)
    assert machine.judge().result(SUPPORTED).status is Status.PASS


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("/run/nvidia/driver/usr/lib/x86_64-linux-gnu", Status.WARN),
        ("/usr/lib/x86_64-linux-gnu", Status.PASS),
        (None, Status.UNKNOWN),
    ],
)
def test_what_is_asked_of_a_driver_container_is_not_asked_of_the_hosts_packages(
    place: str | None, status: Status
) -> None:
    """B200 is in the driver's own list of GPUs from 570.86.15 on."""
    machine = DriverNode("570.86.15", B200, B200, flavour="open")
    kubelet = node("known-bad-570-on-mig-and-full-gpus").answer("processes", lambda: Question("processes"))
    assert isinstance(kubelet, Answer)
    machine.answers["processes"] = kubelet
    if place is not None:
        machine.text(f"{place}/libnvidia-ml.so.1", "an ELF file")
    (finding,) = machine.judge().result(SUPPORTED).findings
    assert finding.status is status, finding


def test_a_parameter_of_the_module_can_be_the_condition() -> None:
    (without,) = supported("580.65.06", None, DAY, "2342", "2342")
    assert without.status is Status.PASS
    machine = DriverNode("580.65.06", "2342", "2342", flavour="open")
    machine.parameters += 'CoherentGPUMemoryMode: "driver"\n'
    (finding,) = machine.judge().result(SUPPORTED).findings
    assert finding.status is Status.UNKNOWN
    kubelet = node("known-bad-570-on-mig-and-full-gpus").answer("processes", lambda: Question("processes"))
    assert isinstance(kubelet, Answer)
    devices = [{"index": 0, "pci_bus_id": FIRST, "uuid": "GPU-1", "fields": {"mig.current": True}}]
    machine.answers |= {"processes": kubelet, "nvml": Answer(data={"init": 0, "count": 1, "devices": devices})}
    (finding,) = machine.judge().result(SUPPORTED).findings
    assert finding.status is Status.WARN and "coherent driver-based memory management" in finding.summary
    assert DEVICES in cited(finding) and "CoherentGPUMemoryMode" in cited(finding)
