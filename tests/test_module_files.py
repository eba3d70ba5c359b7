"""The module's files and options on disk: DKMS builds, modprobe.d, GSP firmware, and a module tree that is not in view."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, EntryType
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.report import Finding, Result
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import Builder, diagnose
from tests.small_node import COMPLETE, SmallNode, alarms, cited, steps

KERNEL, NEWER = "5.15.0-139-generic", "5.15.0-141-generic"
DKMS, MODINFO = ("dkms", "status"), ("modinfo", "nvidia")


class ModuleNode(SmallNode):
    """A node whose module tree, commands and modprobe.d a test fills."""

    def __init__(self, *kernels: str, complete: tuple[str, ...] = ("/lib/modules",)) -> None:
        super().__init__()
        self.complete = complete
        self.text("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
        for kernel in kernels:
            self.folder(f"/lib/modules/{kernel}")

    def folder(self, path: str) -> None:
        """An empty directory."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.DIR)))

    def dkms(self, *lines: str) -> "ModuleNode":
        """What `dkms status` prints."""
        self.commands[DKMS] = CommandOutput(DKMS, 0, "".join(f"{line}\n" for line in lines))
        return self

    def recorded(self) -> RecordedNode:
        """The node."""
        self.report()
        node = RecordedNode(self.tree, complete=(*COMPLETE, *self.complete), uid=0)
        node.commands |= self.commands
        return node

    def result(self, check: str) -> Result:
        """How a check ends."""
        return diagnose(self.recorded()).result(check)

    def alarm(self, check: str) -> Finding:
        """Its only alarm."""
        (finding,) = alarms(diagnose(self.recorded()), check)
        return finding


# DKMS ---------------------------------------------------------------------------------------------------------------

BUILT = "kernel-module.dkms-built"


@pytest.mark.parametrize(
    "name",
    ["nvidia", "nvidia-open", "nvidia-srv", "nvidia-current", "nvidia-current-open", "nvidia-384", "nvidia-tesla-470"],
)
@pytest.mark.parametrize("form", ["{}/550.163.01, {}, x86_64: installed", "{}, 550.163.01, {}, x86_64: installed"])
def test_the_drivers_own_names_are_known(name: str, form: str) -> None:
    machine = ModuleNode(KERNEL, NEWER).dkms(form.format(name, KERNEL))
    assert machine.alarm(BUILT).summary == f"no build for kernel {NEWER}"
    built = ModuleNode(KERNEL, NEWER).dkms(form.format(name, KERNEL), form.format(name, NEWER))
    assert built.result(BUILT).status is Status.PASS


@pytest.mark.parametrize(
    "other", ["nvidia-fs/2.17.5", "nvidia-peer-memory/1.3", "nvidia-gdrcopy/2.4", "nvidia-uvm/340.1"]
)
def test_another_module_of_nvidia_is_not_taken_for_the_driver(other: str) -> None:
    driver = f"nvidia/550.163.01, {KERNEL}, x86_64: installed"
    its_own = [f"{other}, {kernel}, x86_64: installed" for kernel in (KERNEL, NEWER)]
    assert ModuleNode(KERNEL, NEWER).dkms(driver, *its_own).alarm(BUILT).summary == f"no build for kernel {NEWER}"
    newer = f"nvidia/550.163.01, {NEWER}, x86_64: installed"
    not_its_own = (f"{other}: added", f"{other}, {NEWER}, x86_64: built")
    assert ModuleNode(KERNEL, NEWER).dkms(driver, newer, *not_its_own).result(BUILT).status is Status.PASS
    alone = ModuleNode(KERNEL, NEWER).dkms(*its_own).result(BUILT)
    assert alone.status is Status.SKIP and "does not manage" in alone.findings[0].summary


def test_a_build_by_either_of_two_packages_is_a_build() -> None:
    lines = [f"nvidia/550.163.01, {kernel}, x86_64: installed" for kernel in (KERNEL, NEWER)]
    machine = ModuleNode(KERNEL, NEWER).dkms(*lines, f"nvidia-srv/535.1, {NEWER}, x86_64: built")
    assert machine.result(BUILT).status is Status.PASS


def test_the_build_is_for_the_kernel_that_lacks_it() -> None:
    finding = ModuleNode(KERNEL, NEWER).dkms(f"nvidia/550.163.01, {KERNEL}, x86_64: installed").alarm(BUILT)
    assert f"dkms autoinstall -k {NEWER}" in steps(finding) and f"linux-headers-{NEWER}" in steps(finding)
    assert "uname -r" not in steps(finding)
    assert finding.remedies[0].confirm == f"modinfo -k {NEWER} -F version nvidia"
    assert {evidence.where for evidence in finding.evidence} == {"dkms status", "/lib/modules"}


@pytest.mark.parametrize("error", ["EACCES", "ENOENT", None])
def test_without_the_list_of_kernels_nothing_passes(error: str | None) -> None:
    complete = () if error is None else ("/lib/modules",)
    machine = ModuleNode(*(() if error else (KERNEL,)), complete=complete)
    machine.dkms(f"nvidia/550.163.01, {KERNEL}, x86_64: installed")
    if error is not None:
        machine.tree.put("/lib/modules", Record(error=error))
    assert machine.result(BUILT).status is Status.UNKNOWN


def test_a_dkms_that_failed_or_is_not_there_is_not_cited() -> None:
    absent, failed = ModuleNode(KERNEL), ModuleNode(KERNEL)
    absent.commands[DKMS] = Absent("dkms")
    failed.commands[DKMS] = CommandOutput(DKMS, 4, "", "Error! Could not locate dkms.conf file.\n")
    (finding,) = absent.result(BUILT).findings
    assert (finding.status, finding.evidence) == (Status.SKIP, ())
    assert failed.result(BUILT).why == "unreadable"


def test_a_dkms_without_a_place_for_temporary_files_has_not_said_that_it_manages_nothing() -> None:
    """Below a read-only root, dkms 3.0.10 prints its settings, complains, and ends with 0."""
    machine = ModuleNode(KERNEL)
    complaint = "mktemp: failed to create file via template '/tmp/tmp.XXXXXXXXXX': Read-only file system\n"
    said = 'source_tree[0]="/usr/src"\ndkms_tree[0]="/var/lib/dkms"\ntmp_location[0]="/tmp"\n'
    machine.commands[DKMS] = CommandOutput(DKMS, 0, said, f"{complaint}Error! Unable to make temporary file.\n")
    result = machine.result(BUILT)
    assert (result.status, result.why) == (Status.UNKNOWN, "unreadable")
    assert "Read-only file system" in (result.detail or "")


def test_a_version_that_was_only_added_is_managed_and_built_for_nothing() -> None:
    assert (
        ModuleNode(KERNEL, NEWER).dkms("nvidia/550.163.01: added").alarm(BUILT).summary
        == f"no build for kernel {NEWER}"
    )
    assert ModuleNode(KERNEL).dkms("nvidia/550.163.01: added").result(BUILT).status is Status.SKIP


def test_a_command_in_sbin_is_found_without_sbin_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("gpudoctor.probes.commands.SBIN", (str(tmp_path / "sbin"),))
    (tmp_path / "sbin").mkdir()
    program = tmp_path / "sbin" / "dkms"
    program.write_text("#!/bin/sh\necho nvidia/1: added\n")
    program.chmod(0o755)
    output = run_command(DKMS, Deadline(20.0))
    assert isinstance(output, CommandOutput) and output.stdout == "nvidia/1: added\n"


# A module tree that is not in view ----------------------------------------------------------------------------------


def _unloaded(*kernels: str, said: str = "modinfo: ERROR: Module nvidia not found.") -> ModuleNode:
    machine = ModuleNode(*kernels)
    machine.text("/proc/modules", "loop 1 0 - Live 0x0\n")
    for minor, bus in enumerate(("05", "06")):
        machine.absent(f"/sys/devices/pci0000:00/0000:00:01.{minor}/0000:{bus}:00.0/driver")
    machine.commands[MODINFO] = CommandOutput(MODINFO, 1, "", f"{said}\n")
    return machine


def _why_unbound(machine: ModuleNode) -> set[str]:
    return {finding.summary for finding in alarms(diagnose(machine.recorded()), "kernel-module.gpu-bound")}


def test_modinfo_without_a_tree_does_not_say_that_there_is_no_module() -> None:
    assert _why_unbound(_unloaded()) == {"held by no driver: the nvidia module is not loaded"}


def test_modinfo_with_a_tree_says_that_there_is_no_module() -> None:
    expected = {f"held by no driver: there is no nvidia module for the running kernel {KERNEL}"}
    assert _why_unbound(_unloaded(KERNEL)) == expected
    named = f"modinfo: ERROR: Module nvidia not found in directory /lib/modules/{KERNEL}"
    assert _why_unbound(_unloaded(said=named)) == expected


# modprobe.d ---------------------------------------------------------------------------------------------------------

APPLIED = "kernel-module.parameters-applied"
DEBIAN = "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n"


def _modprobe(text: str, *printed: str) -> ModuleNode:
    machine = ModuleNode(KERNEL)
    machine.parameters += "".join(f"{line}\n" for line in printed)
    machine.text("/etc/modprobe.d/nvidia.conf", text)
    return machine


def _options(text: str) -> Iterator[tuple[str, str]]:
    builder = Builder()
    builder.text("/etc/modprobe.d/nvidia.conf", text)
    found = Desk(RecordedNode(builder.tree), Config()).get(ModprobeConfig)
    assert isinstance(found, ModprobeConfig)
    for option in found.options_of("nvidia"):
        yield option.name, option.value


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('options nvidia NVreg_RegistryDwords="a=1; b=2"\n', {"NVreg_RegistryDwords": "a=1; b=2"}),
        (
            'options nvidia "NVreg_X=0" "NVreg_RegistryDwords=a=1; b=2"\n',
            {"NVreg_X": "0", "NVreg_RegistryDwords": "a=1; b=2"},
        ),
        ("options nvidia NVreg_X=1 \\\n  NVreg_Y=2\n", {"NVreg_X": "1", "NVreg_Y": "2"}),
        ("options nvidia NVreg_X=1\\\n2\n", {"NVreg_X": "12"}),
        ("# options nvidia \\\nNVreg_X=1\noptions nvidia NVreg_Y=2\n", {"NVreg_Y": "2"}),
        ("options nvidia NVreg-X=1\n", {"NVreg_X": "1"}),
        ("options nvidia-current NVreg_X=1\n", {"NVreg_X": "1"}),
        ("options nvidia_current NVreg_X=1\n", {"NVreg_X": "1"}),
        (
            "install nvidia modprobe -i nvidia-tesla-470 $CMDLINE_OPTS\noptions nvidia-tesla-470 NVreg_X=1\n",
            {"NVreg_X": "1"},
        ),
        (f"{DEBIAN}options nvidia-legacy-390xx NVreg_X=1\n", {}),
        (f"{DEBIAN}options nvidia NVreg_X=2\noptions nvidia-current NVreg_X=1\n", {"NVreg_X": "2"}),
    ],
)
def test_options_are_read_as_modprobe_and_the_kernel_read_them(text: str, options: dict[str, str]) -> None:
    assert dict(_options(text)) == options


@pytest.mark.parametrize(
    "line",
    [
        'options nvidia "NVreg_RestrictProfilingToAdminUsers=0" "NVreg_EnableStreamMemOPs=1"',
        "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0 NVreg_EnableStreamMemOPs=1",
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0 \\\n NVreg_EnableStreamMemOPs=1",
    ],
)
def test_options_that_are_not_in_force_are_seen_however_they_are_written(line: str) -> None:
    printed = ("RmProfilingAdminOnly: 1", "EnableStreamMemOPs: 0")
    finding = _modprobe(f"{line}\n", *printed).alarm(APPLIED)
    assert finding.summary == "not in force: EnableStreamMemOPs, RmProfilingAdminOnly"
    assert finding.remedies[-1].confirm == f"gpudoctor run --check {APPLIED}"


def test_a_quoted_string_is_the_one_that_the_driver_prints() -> None:
    machine = _modprobe('options nvidia NVreg_RegistryDwords="a=1; b=2"\n', 'RegistryDwords: "a=1; b=2"')
    assert machine.result(APPLIED).status is Status.PASS


# GSP firmware -------------------------------------------------------------------------------------------------------

GSP = "kernel-module.gsp-firmware"
VERSION = "550.163.01"
FOLDER = f"/lib/firmware/nvidia/{VERSION}"


def _firmware(files: dict[str, int | EntryType], *, device: str = "0x2330", version: str = VERSION) -> ModuleNode:
    machine = ModuleNode(KERNEL, complete=("/lib",))
    machine.text(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
    )
    for minor, bus in enumerate(("05", "06")):
        machine.text(f"/sys/devices/pci0000:00/0000:00:01.{minor}/0000:{bus}:00.0/device", f"{device}\n")
    machine.text("/sys/module/firmware_class/parameters/path", "\n")
    machine.text("/proc/cpuinfo", "processor : 0\n")
    for name, what in files.items():
        path = f"/lib/firmware/nvidia/{version}/{name}.bin"
        kind, size = (EntryType.FILE, what) if isinstance(what, int) else (what, None)
        machine.tree.put(path, Record(entry=Entry(path, kind, size=size)))
    return machine


def test_the_image_of_the_gpus_chip_passes() -> None:
    for device, name in (
        ("0x2330", "gsp_ga10x"),
        ("0x20b2", "gsp_tu10x"),
        ("0x1eb8", "gsp_tu10x"),
        ("0x2684", "gsp_ga10x"),
    ):
        (finding,) = _firmware({name: 9}, device=device).result(GSP).findings
        assert finding.status is Status.PASS and f"{FOLDER}/{name}.bin" in cited(finding)


def test_the_image_of_other_chips_is_not_enough() -> None:
    for device, name, wanted in (("0x2330", "gsp_tu10x", "gsp_ga10x"), ("0x20b2", "gsp_ga10x", "gsp_tu10x")):
        finding = _firmware({name: 9}, device=device).alarm(GSP)
        assert (
            f"there is no {wanted}.bin of version {VERSION}, which 0000:05:00.0, 0000:06:00.0 needs" == finding.summary
        )


def test_drivers_that_name_their_images_otherwise_are_content_with_any() -> None:
    assert _firmware({"gsp_tu10x": 9}, version="525.60.13").result(GSP).status is Status.PASS
    assert _firmware({"gsp": 9}, version="515.65.01").result(GSP).status is Status.PASS


def test_a_folder_an_empty_file_and_a_log_decoder_are_no_firmware() -> None:
    finding = _firmware({"gsp_ga10x": 0, "gsp_tu10x": EntryType.DIR, "gsp_log_ga10x": 9}).alarm(GSP)
    assert finding.summary == f"there is no firmware of version {VERSION} on the search path"
    assert f"{FOLDER}/gsp_ga10x.bin is empty" in cited(finding)
    assert f"{FOLDER}/gsp_tu10x.bin is a directory" in cited(finding)
    assert all(", " not in evidence.where for evidence in finding.evidence)
    assert {remedy.confirm for remedy in finding.remedies} == {f"gpudoctor run --check {GSP}"}


def test_a_gpu_that_runs_its_image_has_it_and_others_of_its_kind_can_load_it() -> None:
    machine = _firmware({"gsp_tu10x": 9})
    information = f"Device Minor: 0\nGPU Firmware: {VERSION}\n"
    machine.text("/proc/driver/nvidia/gpus/0000:05:00.0/information", information)
    assert machine.result(GSP).status is Status.PASS
    empty = f"{FOLDER}/gsp_ga10x.bin"
    machine.tree.put(empty, Record(entry=Entry(empty, EntryType.FILE, size=0)))
    finding = machine.alarm(GSP)
    assert finding.status is Status.WARN and f"{empty} is empty" in finding.summary
