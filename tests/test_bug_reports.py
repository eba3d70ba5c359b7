"""Real nvidia-bug-report logs through the same checks, and the reader's own rules on small ones."""

import datetime
import gzip
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.bug_report import open_bug_report, read_bug_report
from gpudoctor.sources.errors import SourceError
from gpudoctor.verdicts import Status

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
LINE = "_" * 44

# What the MANIFEST says is wrong, as far as these checks can see it: check and a word of its summary.
SICK = {
    "1050ti-nouveau-conflict-fedora": ("kernel-module.gpu-bound", "nouveau"),
    "2x2080ti-driver-missing-after-kernel": ("kernel-module.gpu-bound", "not loaded"),
    "3x4070-xid79-two-lost": ("driver-cuda.nvml-answers", "NVML does not answer (999): NVML_ERROR_GPU_IS_LOST"),
    "3xa6000-one-lost": ("driver-cuda.nvml-answers", "NVML_ERROR_UNKNOWN (999)"),
    "5080-gsp-timeouts": ("kernel-module.adapter-initialised", "could not initialise"),
    "a5000-nouveau-no-module": ("kernel-module.gpu-bound", "nouveau"),
    "nvs5200m-2013-not-loaded": ("kernel-module.gpu-bound", "not loaded"),
    "p3200-mismatch-no-nvml": ("driver-cuda.nvml-answers", "NVML_ERROR_LIBRARY_NOT_FOUND (12)"),
    # Its log says why: Secure Boot is on, and "unsigned module loading is restricted".
    "vm-2xa6000-2x3090-not-loaded": ("kernel-module.gpu-bound", "refuses the nvidia module's signature"),
}
HEALTHY = ("2x3080-healthy", "2xa6000-healthy", "3060-laptop-arch", "8xrtx5000-healthy")


def _report(path: Path) -> Report:
    return run(open_bug_report(path), Config(), built_in(), Selection(), NOW)


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
        if result.essential:
            assert result.status is Status.PASS, result.detail


def test_every_real_report_is_read_without_a_crash(corpus: Path) -> None:
    reports = sorted((corpus / "bug-report").glob("*.log.gz"))
    assert len(reports) >= 20
    for path in reports:
        for result in _report(path).results:
            assert result.why != "crashed", (path.name, result.detail)


def test_counts_of_gpus_in_real_reports(corpus: Path) -> None:
    counts = {
        "8xrtx5000-healthy": 8,
        "2xa6000-healthy": 2,
        "3x4070-xid79-two-lost": 3,
        "vm-2xa6000-2x3090-not-loaded": 4,
    }
    for name, count in counts.items():
        assert len(_report(corpus / "bug-report" / f"{name}.log.gz").node.gpus) == count, name


def _text(*sections: str) -> str:
    head = "\nStart of NVIDIA bug report log file.  Please include this file\n\nuname: Linux n7 6.8.0-1 #1 SMP x86_64\n"
    return f"{LINE}\n{head}" + "".join(f"{LINE}\n\n{section}\n\n" for section in sections)


LSPCI = "/usr/bin/lspci -nn\n\n01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [RTX A5000] [10de:2231] (rev a1)"
VERBOSE = '/usr/bin/lspci -d "10de:*" -v -xxx\n\n01:00.0 VGA compatible controller: NVIDIA Corporation GA102\n\tFlags: bus master'


def _diagnose(*sections: str) -> Report:
    return run(read_bug_report(_text(*sections)), Config(), built_in(), Selection(), NOW)


def test_what_a_report_lacks_is_not_recorded() -> None:
    report = _diagnose(LSPCI)
    assert report.result("pcie.gpus-present").status is Status.PASS
    assert report.result("driver-cuda.nvml-answers").why == "not-recorded"
    assert report.result("toolkit.docker-runtime").why == "not-recorded"
    assert report.node.hostname == "n7" and report.node.kernel == "6.8.0-1"


def test_the_driver_in_use_comes_from_the_verbose_listing_and_is_cited_as_such() -> None:
    report = _diagnose(LSPCI, VERBOSE + "\n\tKernel driver in use: nvidia")
    finding = report.result("kernel-module.gpu-bound").findings[0]
    assert finding.status is Status.PASS
    assert finding.evidence[0].where == 'lspci -d "10de:*" -v -xxx'
    assert finding.evidence[0].shows == "Kernel driver in use: nvidia"


def test_a_function_that_was_not_shown_verbosely_has_an_unknown_driver() -> None:
    assert _diagnose(LSPCI).result("kernel-module.gpu-bound").status is Status.UNKNOWN
    unbound = _diagnose(
        LSPCI, VERBOSE, "*** /proc/modules\n*** ls: -r--r--r-- 1 root root 0 /proc/modules\nnouveau 1 0 - Live 0x0"
    )
    assert unbound.result("kernel-module.gpu-bound").status is Status.FAIL


def test_an_lspci_without_any_nvidia_function_is_an_empty_bus() -> None:
    report = _diagnose(
        "/usr/bin/lspci -nn\n\n00:00.0 Host bridge [0600]: Intel Corporation Device [8086:2020] (rev 07)"
    )
    assert [cause.check for cause in report.root_causes] == ["pcie.gpus-present"]


CUT = "/usr/bin/lspci -nn\n\n01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090 Founders Ed"


def test_a_gpu_whose_ids_an_older_lspci_cut_off_is_still_a_gpu_and_its_model_is_unknown() -> None:
    known = "\n02:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b0] (rev a1)"
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC 2021"
    report = _diagnose(CUT + known, f"*** /proc/driver/nvidia/version\n*** ls: -r--r--r-- 1 root root 0 x\n{version}")
    (present,) = report.result("pcie.gpus-present").findings
    assert present.status is Status.PASS
    assert "2 GPUs" in present.summary
    fits = {finding.subject.key: finding.status for finding in report.result("kernel-module.flavour-fits").findings}
    assert fits["0000:01:00.0"] is Status.UNKNOWN
    audio = CUT.replace("VGA compatible controller [0300]", "Audio device [0403]")
    assert "1 GPU " in _diagnose(audio + known).result("pcie.gpus-present").findings[0].summary


def test_files_are_found_under_their_plain_path_and_missing_ones_are_absent() -> None:
    node = read_bug_report(
        _text(
            "*** /proc/driver/nvidia/./version\n*** ls: -r--r--r-- 1 root\nNVRM version: x",
            "*** /proc/pci does not exist",
        )
    )
    assert node.read("/proc/driver/nvidia/version").text.startswith("NVRM")  # type: ignore[union-attr]
    assert type(node.read("/proc/pci")).__name__ == "Absent"


def test_a_trimmed_section_is_not_recorded_rather_than_empty() -> None:
    node = read_bug_report(_text("*** /proc/modules\n[section body removed by corpus trimming]"))
    assert type(node.read("/proc/modules")).__name__ == "Unread"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02" * 1000, "not an nvidia-bug-report log"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 50, "damaged gzip"),
        (gzip.compress(b"hello\n" * 100), "not an nvidia-bug-report log"),
        (gzip.compress(_text(LSPCI).encode() * 50)[:-200], "cut off"),
    ],
)
def test_what_is_no_report_is_refused_with_one_clear_line(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        open_bug_report(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_hostile_sections_take_no_time() -> None:
    import time

    started = time.monotonic()
    read_bug_report(
        _text(
            "/usr/bin/lspci -nn\n\n01:00.0 " + "[0300]: " * 20_000,
            "/usr/bin/lspci -vvv\n\n01:00.0 x\n" + "\n\t" * 20_000,
            "/usr/bin/nvidia-smi --query\n\n" + "a " * 100_000,
            "*** " + "/x" * 100_000,
        )
    )
    assert time.monotonic() - started < 5
