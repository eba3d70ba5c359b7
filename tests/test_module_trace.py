"""Why no driver holds a GPU, from the kernel's messages of a probe that failed, as older and newer kernels and drivers word them."""

import pytest

from gpudoctor.facts.raw import Log
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import RecordedNode
from tests.captures import Builder, diagnose, put_dmesg_functions

GPU = "0000:05:00.0"
BUS = f"[    0.500000] pci {GPU}: [10de:2f04] type 00 class 0x030000\n"
OFF_THE_BUS = f"""\
[    8.100000] NVRM: The NVIDIA GPU {GPU} (PCI ID: 10de:2f04)
               NVRM: fallen off the bus and is not responding to commands.
"""
OLD_FORM = f"[    8.100100] nvidia: probe of {GPU} failed with error -1\n"
NEW_FORM = f"[    8.100100] nvidia {GPU}: probe with driver nvidia failed with error -1\n"
NONE_LEFT = """\
[    8.100200] NVRM: The NVIDIA probe routine failed for 1 device(s).
[    8.100300] NVRM: None of the NVIDIA devices were initialized.
"""
LOADING = (
    "[    9.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build  (root@host)\n"
)
MISMATCH = """\
[    7.000000] NVRM: API mismatch: the client has the version 470.57.01, but
               NVRM: this kernel module has the version 550.163.01.  Please
               NVRM: make sure that this kernel module and all NVIDIA driver
               NVRM: components have the same version.
"""


README = """\
[    8.100000] NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:2f04)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
               NVRM: Please see the 'Open Linux Kernel Modules' and 'GSP
               NVRM: Firmware' sections in the driver README, available on
               NVRM: the Linux graphics driver download page at
               NVRM: www.nvidia.com.
"""


def _unbound(log: str, *, loaded: bool) -> Finding:
    builder = Builder()
    put_dmesg_functions(builder, BUS)
    builder.text("/proc/modules", "nvidia 1000 0 - Live 0x0\n" if loaded else "ext4 1000 0 - Live 0x0\n")
    node = RecordedNode(builder.tree, complete=("/sys/bus/pci/devices",))
    node.logs["kernel.log"] = Log("kernel.log", log, source="dmesg", from_boot=True)
    (finding,) = diagnose(node).result("kernel-module.gpu-bound").findings
    assert finding.subject.key == GPU
    return finding


@pytest.mark.parametrize("form", [OLD_FORM, NEW_FORM])
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (OFF_THE_BUS, "fallen off the bus and is not responding to commands."),
        (
            README,
            "is not supported by open nvidia.ko because it does not include the required GPU System Processor (GSP).",
        ),
    ],
)
def test_the_message_before_a_failed_probe_is_quoted_as_one_sentence(message: str, said: str, form: str) -> None:
    finding = _unbound(MISMATCH + message + form + NONE_LEFT, loaded=False)
    assert finding.summary.endswith(said)
    assert "could not take it" in finding.summary
    assert finding.cause == "probe-failed"
    shown = [seen.shows for seen in finding.evidence]
    assert form.partition("] ")[2].strip() in shown
    assert f"NVRM: The NVIDIA GPU {GPU} (PCI ID: 10de:2f04)" in shown


@pytest.mark.parametrize("form", [OLD_FORM, NEW_FORM])
def test_a_module_that_was_loaded_since_and_taken_away_did_not_refuse_the_gpu(form: str) -> None:
    finding = _unbound(OFF_THE_BUS + form + NONE_LEFT + LOADING, loaded=False)
    assert finding.summary == "held by no driver: the nvidia module is not loaded"


@pytest.mark.parametrize("form", [OLD_FORM, NEW_FORM])
def test_one_gpu_that_a_loaded_module_refused(form: str) -> None:
    finding = _unbound(OFF_THE_BUS + form + LOADING, loaded=True)
    assert "although the nvidia module is loaded" in finding.summary
    assert "fallen off the bus" in finding.summary


def test_another_drivers_failed_probe_is_quoted_without_what_nvrm_said_before_it() -> None:
    rival = f"[    9.100000] vfio-pci {GPU}: probe with driver vfio-pci failed with error -22\n"
    finding = _unbound(LOADING + MISMATCH + rival, loaded=True)
    assert "probe with driver vfio-pci failed with error -22" in finding.summary
    assert "NVRM" not in finding.summary


def test_a_failed_start_is_no_reason_for_a_gpu_without_a_driver() -> None:
    failed = f"[   20.000000] NVRM: GPU {GPU}: RmInitAdapter failed! (0x62:0xffff:2142)\n"
    finding = _unbound(LOADING + failed, loaded=True)
    assert finding.summary == "held by no driver although the nvidia module is loaded"


def test_a_log_without_times_gives_its_last_line() -> None:
    log = "NVRM: Can't find an IRQ for your NVIDIA card!\nNVRM: Please check your BIOS settings.\n"
    finding = _unbound(
        log + OLD_FORM.partition("] ")[2] + "NVRM: None of the NVIDIA devices were initialized.\n", loaded=False
    )
    assert "could not take it: NVRM: Can't find an IRQ for your NVIDIA card!" in finding.summary
