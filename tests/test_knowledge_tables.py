"""The tables of drivers, CUDA and GPUs: against real captures, against each other, and against what they are generated from."""

import gzip
import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from gpudoctor.knowledge import cuda_error_names, pci_gpus
from gpudoctor.knowledge.architectures import ARCHITECTURES, FLAVOURS, Flavour, architecture
from gpudoctor.knowledge.bad_drivers import KNOWN_BAD, known_bad
from gpudoctor.knowledge.compute_capabilities import (
    BY_CC,
    CAPABILITIES,
    FAMILIES,
    PTXAS,
    Runs,
    architectures_of,
    cc_of_chip,
    compiles,
    covers,
    drives,
    flavour_of,
    parse_targets,
    runs,
    targets,
)
from gpudoctor.knowledge.cuda_compatibility import IMAGE_BASES, PACKAGES, Fit, Told, package_fit, package_name, told_by
from gpudoctor.knowledge.cuda_toolkits import (
    NOT_RELEASED,
    TOOLKITS,
    by_minor_version,
    minimum_driver,
    minor_versions,
    native_branch,
    toolkit,
)
from gpudoctor.knowledge.driver_branches import (
    BRANCHES,
    BY_NUMBER,
    NEWEST,
    Kind,
    State,
    branch_of,
    cuda_of,
    life,
    newer_than_known,
    offered,
    supported_on,
)
from gpudoctor.knowledge.frameworks import FRAMEWORKS, Nearest, Release, release, releases, wheel_tag
from gpudoctor.knowledge.gpu_models import by_id, cc_of_id, cc_of_name, models
from gpudoctor.knowledge.table_dates import tables
from gpudoctor.knowledge.version_numbers import minor_of, numbers
from tools.knowledge import CUDA_ERROR_NAMES, DEBIAN, PCI_GPUS, SourceError, as_of, replace
from tools.knowledge import cuda_error_names as render_names
from tools.knowledge import pci_gpus as render_gpus

TODAY = date(2026, 11, 30)

# Real captures ------------------------------------------------------------------------------------------------------

_SHAPES = (
    re.compile(r"NVIDIA-SMI\s+\S+\s+(?:Driver|KMD) Version:\s*(\S+)\s+CUDA (?:UMD )?Version:\s*(\d+\.\d+)"),
    re.compile(r"^Driver Version\s+:\s*(\S+)\s*\nCUDA (?:UMD )?Version\s+:\s*(\d+\.\d+)", re.MULTILINE),
    re.compile(r"<driver_version>\s*(\S+?)\s*</driver_version>\s*<cuda_version>\s*(\d+\.\d+)"),
)
_PRODUCT = (
    re.compile(
        r"<product_name>([^<]+)</product_name>(?:(?!</gpu>).)*?<pci_device_id>(\w{4})10DE</pci_device_id>", re.DOTALL
    ),
    re.compile(r"Product Name\s+: ([^\n]+)\n(?:(?!Product Name).)*?Device Id\s+: 0x(\w{4})10DE", re.DOTALL),
)
_WINDOWS = {"516.59", "536.40", "537.13", "591.86"}
"""Drivers of Windows, seen through WSL or in its own nvidia-smi: of branches 515, 535 and 590, which go on under other numbers there."""


def texts(corpus: Path) -> Iterator[tuple[str, str]]:
    """Every text of the corpus, archives opened, with its path."""
    for path in sorted(corpus.rglob("*")):
        if not path.is_file() or path.name == "MANIFEST.tsv":
            continue
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                for member in archive:
                    if (opened := archive.extractfile(member)) is not None:
                        yield str(path), opened.read().decode("utf-8", "replace")
        else:
            content = path.read_bytes()
            yield str(path), (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")


def test_every_captured_driver_reports_the_cuda_version_of_the_table(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(path, *found) for path, text in texts(corpus) for shape in _SHAPES for found in set(shape.findall(text))]
    wrong = [
        (path, driver, cuda) for path, driver, cuda in pairs if cuda_of(driver, windows=driver in _WINDOWS) != cuda
    ]
    with capsys.disabled():
        print(
            f"\n{len(pairs)} captured pairs of driver and CUDA version, {len({pair[1:] for pair in pairs})} different"
        )
    assert wrong == []
    assert len(pairs) >= 100


def test_drivers_of_windows_are_no_branch_of_linux_but_lie_between_the_right_ones() -> None:
    found = offered("516.59")
    assert found.version is None
    assert (found.below, found.above) == (BY_NUMBER[515], BY_NUMBER[520])
    assert cuda_of("516.59", windows=True) == "11.7"
    assert cuda_of("699.10", windows=True) is None


def test_captured_gpus_have_the_same_capability_by_name_and_by_id(corpus: Path) -> None:
    pairs = {found for _, text in texts(corpus) for shape in _PRODUCT for found in shape.findall(text)}
    told = {(name, cc_of_name(name), cc_of_id(device)) for name, device in pairs}
    assert {one for one in told if one[1] != one[2]} == {("NVIDIA GeForce GT 1030", None, "6.1")}
    assert len(told) >= 25


# Drivers ------------------------------------------------------------------------------------------------------------


def test_branches_rise_in_number_and_in_cuda() -> None:
    for older, newer in pairwise(BRANCHES):
        assert older.number < newer.number
        assert numbers(older.cuda) <= numbers(newer.cuda)
        assert older.first <= newer.first or not newer.first


def test_each_branch_of_the_table_tells_when_it_ends_or_that_it_is_of_a_kind_without_an_end() -> None:
    for branch in BRANCHES:
        assert branch.end or branch.kind is Kind.NEW_FEATURE, branch
        assert not branch.latest or numbers(branch.latest)[0] == branch.number
        assert life(str(branch.number), TODAY).state is not State.UNKNOWN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no version"),
        ("58", "no version"),
        ("580.", "no version"),
        ("580.105.08-dev", "no version"),
        ("N/A", "no version"),
        ("640.10", "newer than the table"),
        ("384.81", "older than the table"),
        ("585.12", "not in the table"),
        ("540.4.0", "JetPack"),
    ],
)
def test_an_unknown_driver_is_said_to_be_unknown(text: str, why: str) -> None:
    found = offered(text)
    assert found.version is None
    assert why in found.why
    assert cuda_of(text) is None
    assert life(text, TODAY).state is State.UNKNOWN
    assert life(text, TODAY).why == found.why


def test_an_unknown_driver_comes_with_its_nearest_neighbours() -> None:
    assert offered("640.10").below is NEWEST
    assert offered("640.10").above is None
    assert offered("384.81").below is None
    assert offered("384.81").above is BRANCHES[0]
    assert (offered("585.12").below, offered("585.12").above) == (BY_NUMBER[580], BY_NUMBER[590])


@pytest.mark.parametrize("text", ["580", "R580", "r580", "580.178.04", " 580.95.05\n"])
def test_a_branch_is_known_by_its_name_and_by_its_releases(text: str) -> None:
    assert branch_of(text) is BY_NUMBER[580]
    assert cuda_of(text) == "13.0"


def test_one_release_of_430_reports_more_than_its_branch() -> None:
    assert (cuda_of("430.26"), cuda_of("430.40")) == ("10.2", "10.1")


@pytest.mark.parametrize(
    ("driver", "day", "state"),
    [
        ("535.309.01", date(2026, 6, 30), State.SUPPORTED),
        ("535.309.01", date(2026, 7, 1), State.ENDED),
        ("580.95.05", TODAY, State.SUPPORTED),
        ("580.95.05", date(2028, 7, 1), State.ENDED),
        ("590.48.01", date(2026, 3, 23), State.SUPPORTED),
        ("590.48.01", TODAY, State.SUPERSEDED),
        ("610.57.04", TODAY, State.ENDED),
        ("615.71.10", date(2026, 10, 31), State.SUPPORTED),
        ("615.71.10", TODAY, State.SUPERSEDED),
        ("620.70.06", TODAY, State.SUPPORTED),
        ("415.27", TODAY, State.ENDED),
    ],
)
def test_the_life_of_a_branch(driver: str, day: date, state: State) -> None:
    assert life(driver, day).state is state


def test_where_to_go_is_what_nvidia_lists_as_supported() -> None:
    assert [branch.number for branch in supported_on(TODAY)] == [580, 595, 620]
    assert life("590.48.01", TODAY).next is BY_NUMBER[595]


def test_a_driver_newer_than_the_table_is_noticed() -> None:
    assert newer_than_known("580.178.04") is False
    assert newer_than_known("580.200.01") is True
    assert newer_than_known("640.10") is True
    assert newer_than_known("585.12") is None
    assert newer_than_known("540.4.0") is None
    assert newer_than_known("580") is None


@pytest.mark.parametrize(
    ("driver", "keys"),
    [
        ("570.124.06", {"mixed-mig-pending", "rtx-pro-6000-server-too-old", "hgx-b200-too-old"}),
        ("570.158.01", {"mixed-mig-pending", "rtx-pro-6000-server-too-old"}),
        ("570.172.08", {"rtx-pro-6000-server-too-old"}),
        ("575.57.08", {"rtx-pro-6000-server-mig"}),
        ("580.65.06", {"cdmm-mig"}),
        ("580.178.04", set()),
        ("580", set()),
        ("soon", set()),
    ],
)
def test_releases_that_are_known_to_be_bad(driver: str, keys: set[str]) -> None:
    assert {one.key for one in known_bad(driver)} == keys


def test_what_is_bad_says_where_and_on_whose_word() -> None:
    for one in KNOWN_BAD:
        assert one.source.startswith("https://")
        assert one.scope.device_ids or one.scope.mixed_mig
        assert all(cc_of_id(device) is not None for device in one.scope.device_ids)


# Toolkits -----------------------------------------------------------------------------------------------------------


def test_toolkits_rise_and_each_was_made_with_the_branch_that_reports_its_version() -> None:
    for older, newer in pairwise(TOOLKITS):
        assert numbers(older.version) < numbers(newer.version)
    for one in TOOLKITS:
        minor = ".".join(one.version.split(".")[:2])
        for driver in filter(None, (one.bundled, one.corresponding)):
            assert cuda_of(driver) == minor, one
        major, after = numbers(one.version)[:2]
        least = minimum_driver(major, after)
        assert least is not None
        assert not one.bundled or numbers(least) <= numbers(one.bundled)


def test_every_cuda_version_of_a_branch_since_10_is_a_toolkit_or_known_not_to_be_one() -> None:
    assert {branch.cuda for branch in BRANCHES if branch.number >= 410} == {*minor_versions(), *NOT_RELEASED}


@pytest.mark.parametrize(
    ("cuda", "branch"), [("10.0", 410), ("11.1", 455), ("12.7", 565), ("12.8.1", 570), ("13.5", 620)]
)
def test_the_branch_that_runs_a_version_natively(cuda: str, branch: int) -> None:
    found = native_branch(cuda)
    assert found is not None
    assert found.number == branch


def test_nothing_is_said_of_toolkits_to_come() -> None:
    assert native_branch("13.6") is None
    assert minimum_driver(14, 0) is None
    assert toolkit("12.7") is None
    assert toolkit("12.8.3") is None


def test_a_minor_version_stands_for_its_first_release() -> None:
    found = toolkit("12.8")
    assert found is not None
    assert (found.version, found.bundled) == ("12.8.0", "570.86.10")


@pytest.mark.parametrize(
    ("cuda", "driver_cuda", "served"),
    [
        ("12.8", "12.2", True),
        ("12.2", "12.8", False),
        ("13.0", "12.8", False),
        ("10.2", "10.1", False),
        ("x", "12.8", None),
    ],
)
def test_minor_version_compatibility(cuda: str, driver_cuda: str, served: bool | None) -> None:
    assert by_minor_version(cuda, driver_cuda) is served


def test_cuda_11_0_has_a_minimum_of_its_own() -> None:
    assert (minimum_driver(11, 0), minimum_driver(11, 4)) == ("450.36.06", "450.80.02")


# Packages for forward compatibility ---------------------------------------------------------------------------------


def test_there_is_a_package_for_each_toolkit_since_10() -> None:
    assert set(PACKAGES.values()) == set(minor_versions())
    assert package_name("12.8") == "cuda-compat-12-8"
    assert package_name("12.7") is None
    for branch, cuda in PACKAGES.items():
        assert cuda_of(str(branch)) == cuda


@pytest.mark.parametrize(
    ("library", "driver", "fit", "told"),
    [
        ("615.71.09", "535.309.01", Fit.COMPATIBLE, Told.PAGE),
        ("595.45.04", "590.48.01", Fit.COMPATIBLE, Told.PAGE),
        ("570.86.10", "550.54.15", Fit.COMPATIBLE, Told.IMAGES),
        ("530.30.02", "470.256.02", Fit.COMPATIBLE, Told.IMAGES),
        ("620.70.06", "580.178.04", None, None),
        ("615.71.09", "550.54.15", None, None),
        ("535.54.03", "535.309.01", Fit.NOT_NEEDED, None),
        ("535.54.03", "580.95.05", Fit.NOT_COMPATIBLE, None),
        ("470.82.01", "580.95.05", Fit.NOT_COMPATIBLE, None),
        ("565.57.01", "535.309.01", None, None),
        ("soon", "535.309.01", None, None),
    ],
)
def test_packages_on_drivers(library: str, driver: str, fit: Fit | None, told: Told | None) -> None:
    assert package_fit(library, driver) is fit
    assert told_by(library, driver) is told


def test_images_start_on_branches_older_than_their_package() -> None:
    for cuda, bases in IMAGE_BASES.items():
        native = native_branch(cuda)
        assert native is not None
        assert all(base <= native.number for base in bases), cuda


# Compute capabilities -----------------------------------------------------------------------------------------------


def test_capabilities_rise_and_name_architectures_that_are_known() -> None:
    for older, newer in pairwise(CAPABILITIES):
        assert (minor_of(older.cc) or ()) < (minor_of(newer.cc) or ())
    assert {one.architecture for one in CAPABILITIES} == set(ARCHITECTURES) - {"Grace Hopper"}
    assert set(FAMILIES) <= set(BY_CC)


def test_ptxas_agrees_with_first_and_last_toolkits() -> None:
    for version, listed in PTXAS.items():
        for one in CAPABILITIES:
            present = one.cc.replace(".", "") in listed
            first, last = (numbers(edge or "") for edge in (one.first_toolkit, one.last_toolkit))
            if first:
                assert present is (first <= numbers(version)[:2] and (not last or numbers(version)[:2] <= last)), (
                    one.cc,
                    version,
                )


@pytest.mark.parametrize(
    ("version", "cc", "answer"),
    [
        ("12.8", "12.0", True),
        ("12.6", "12.0", False),
        ("13.0", "7.0", False),
        ("12.9", "7.0", True),
        ("11.0", "8.6", False),
        ("11.4", "8.6", True),
        ("11.4", "8.7", None),
        ("13.2", "10.3", True),
        ("13.9", "10.3", None),
        ("13.9", "7.0", False),
        ("12.8", "99.0", None),
    ],
)
def test_what_a_toolkit_compiles_for(version: str, cc: str, answer: bool | None) -> None:
    assert compiles(version, cc) is answer


def test_a_list_between_two_that_differ_is_not_known() -> None:
    assert targets("12.4") is None
    assert targets("13.2") == targets("13.0")
    assert targets("13.5.1") == PTXAS["13.5.37"]


@pytest.mark.parametrize(
    ("branch", "cc", "answer"),
    [
        (580, "7.0", True),
        (590, "7.0", False),
        (470, "3.5", True),
        (495, "3.5", False),
        (550, "12.0", False),
        (570, "12.0", True),
        (575, "10.3", False),
        (610, "10.7", False),
        (640, "9.0", None),
        (640, "7.0", False),
        (384, "3.5", None),
        (450, "8.0", True),
        (450, "8.6", None),
        (440, "8.6", False),
        (580, "8.7", None),
        (580, "8.8", None),
        (580, "99.0", None),
    ],
)
def test_which_gpus_a_branch_drives(branch: int, cc: str, answer: bool | None) -> None:
    assert drives(branch, cc) is answer


def test_the_architectures_of_a_branch() -> None:
    assert architectures_of(580)[0] == "Maxwell"
    assert architectures_of(590)[0] == "Turing"
    assert architectures_of(620)[-1] == "Rubin"
    assert architectures_of(390)[:1] == ("Fermi",)
    assert "Hopper" not in architectures_of(515)


def test_the_flavour_by_capability_is_that_by_device_id() -> None:
    samples = {"130b", "1725", "172e", "172f"}  # GK110 and GP100 under a first byte of Maxwell's: ids without a product
    for model in models():
        by_device = None if model.device_id in samples else architecture(model.device_id)
        if by_device is not None and model.cc is not None and by_device[0] != "Grace Hopper":
            assert BY_CC[model.cc].architecture == by_device[0], model
            assert flavour_of(model.cc) is by_device[1] is FLAVOURS[by_device[0]]
    assert flavour_of("10.7") is None
    assert flavour_of("7.0") is Flavour.PROPRIETARY


@pytest.mark.parametrize(
    ("target", "cc", "fits"),
    [
        ("sm_86", "8.9", True),
        ("sm_89", "8.6", False),
        ("sm_90", "10.0", False),
        ("sm_100", "10.3", True),
        ("sm_100", "12.0", False),
        ("sm_90a", "9.0", True),
        ("sm_100a", "10.3", False),
        ("sm_100f", "10.3", True),
        ("sm_103f", "10.0", False),
        ("sm_120f", "12.1", True),
        ("sm_100f", "12.0", False),
        ("sm_80", "8.7", False),
        ("sm_87", "8.7", True),
        ("compute_90", "12.0", True),
        ("compute_120", "9.0", False),
        ("compute_90a", "10.0", False),
        ("compute_80", "8.7", True),
        ("90-virtual", "12.0", True),
        ("90-real", "12.0", False),
    ],
)
def test_what_code_runs_on(target: str, cc: str, fits: bool) -> None:
    parsed = parse_targets(target)
    assert len(parsed) == 1
    assert covers(parsed[0], cc) is fits


@pytest.mark.parametrize("text", ["", "sm_", "sm_9", "sm_9000", "gfx90a", "9", "sm_90b", "PTX"])
def test_what_is_no_target(text: str) -> None:
    assert parse_targets(text) == ()


@pytest.mark.parametrize(
    ("build", "cc", "driver", "made", "expected"),
    [
        ("7.5 8.0 8.6 9.0", "9.0", "12.8", "12.8", Runs.NATIVE),
        ("7.5 8.0 8.6 9.0", "8.9", None, None, Runs.NATIVE),
        ("7.5 8.0 8.6 9.0", "12.0", "13.0", "12.8", Runs.NO),
        ("8.0 9.0+PTX", "12.0", "12.8", "12.8", Runs.JIT),
        ("8.0 9.0+PTX", "12.0", "12.8", "12.9", Runs.NO),
        ("8.0 9.0+PTX", "12.0", "12.8", None, Runs.UNKNOWN),
        ("8.0 9.0+PTX", "12.0", None, "12.8", Runs.UNKNOWN),
        ("gfx90a", "12.0", "12.8", "12.8", Runs.UNKNOWN),
        ("sm_90 sm_next", "12.0", "12.8", "12.8", Runs.UNKNOWN),
        ("sm_90 sm_next", "9.0", "12.8", "12.8", Runs.NATIVE),
        ("sm_90", "Hopper", "12.8", "12.8", Runs.UNKNOWN),
        ("", "12.0", "12.8", "12.8", Runs.UNKNOWN),
    ],
)
def test_how_a_build_runs(build: str, cc: str, driver: str | None, made: str | None, expected: Runs) -> None:
    outcome = runs(tuple(build.split()), cc, driver, made)
    assert outcome.runs is expected
    assert outcome.why if expected in (Runs.NO, Runs.UNKNOWN) else outcome.target


def test_ptx_is_no_older_than_its_target() -> None:
    refused = runs(("compute_120",), "12.1", "12.2")
    assert refused.runs is Runs.NO
    assert "12.8 or later" in refused.why
    assert runs(("compute_120",), "12.1", "12.9").runs is Runs.UNKNOWN


def test_a_refused_build_says_which_error_comes() -> None:
    assert "209" in runs(("sm_90",), "12.0", "13.0").why
    assert "222" in runs(("compute_90",), "12.0", "12.8", "13.0").why


# GPUs ---------------------------------------------------------------------------------------------------------------


def test_every_listed_gpu_has_a_capability_that_is_known() -> None:
    listed = models()
    assert len(listed) > 900
    assert [model.device_id for model in listed] == sorted({model.device_id for model in listed})
    for model in listed:
        assert model.cc in BY_CC, model


def test_a_gpu_by_its_id() -> None:
    model = by_id("0x2330")
    assert model is not None
    assert (model.chip, model.names, model.cc) == ("GH100", ("H100 SXM5 80GB",), "9.0")
    assert by_id("25B6") == by_id("25b6")
    assert by_id("ffff") is by_id("") is by_id("GPUS") is None
    assert cc_of_chip("GB120") is cc_of_chip("GA1020") is None


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("Tesla T4", "7.5"),
        ("NVIDIA T4", "7.5"),
        ("NVIDIA A2", "8.6"),
        ("NVIDIA A40-48Q", "8.6"),
        ("NVIDIA L40S", "8.9"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
        ("NVIDIA GB200", "10.0"),
        ("NVIDIA GB10", "12.1"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "8.9"),
        ("RTX 4090", "8.9"),
        ("h100", "9.0"),
        ("Orin (nvgpu)", "8.7"),
    ],
)
def test_the_capability_of_a_name(name: str, cc: str) -> None:
    assert cc_of_name(name) == cc


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA",
        "NVIDIA Graphics Device",
        "RTX 6000",
        "6000",
        "NVIDIA GeForce GT 730",
        "NVIDIA H900",
        "Tesla",
        "80GB",
    ],
)
def test_a_name_that_does_not_tell(name: str | None) -> None:
    assert cc_of_name(name) is None


# Frameworks ---------------------------------------------------------------------------------------------------------


def test_every_wheel_is_of_a_cuda_version_that_was_released_and_of_targets_that_are_known() -> None:
    for rows in FRAMEWORKS.values():
        for older, newer in pairwise(rows):
            assert numbers(older.version) < numbers(newer.version)
        for row in rows:
            assert row.default is None or row.wheel() is not None, row
            for wheel in row.wheels:
                assert wheel.cuda in minor_versions()
                assert wheel.minimum_driver is not None
                assert wheel.minimum_cc is None or wheel.minimum_cc in BY_CC
                for target in wheel.targets or ():
                    assert parse_targets(target), target
                    assert compiles(wheel.cuda, target.removesuffix("+PTX")) is not False, (
                        row.version,
                        wheel.cuda,
                        target,
                    )


def test_a_release_and_its_wheels() -> None:
    row = release("torch", "2.9.0+cu128")
    assert isinstance(row, Release)
    wheel = row.wheel(wheel_tag("2.9.0+cu128"))
    assert wheel is not None
    assert wheel.minimum_driver == "525.60.13"
    assert runs(wheel.targets or (), "7.0", "12.8").runs is Runs.NATIVE
    newest = row.wheel("13.0")
    assert newest is not None
    assert newest.minimum_driver == "580"
    assert runs(newest.targets or (), "7.0", "13.0", "13.0").runs is Runs.NO


def test_a_release_that_is_not_known_comes_with_its_neighbours() -> None:
    newer = release("pytorch", "2.99")
    assert isinstance(newer, Nearest)
    assert newer.below is releases("pytorch")[-1]
    assert newer.above is None
    between = release("vllm", "v0.15.0")
    assert isinstance(between, Nearest)
    assert (between.below and between.below.version, between.above and between.above.version) == ("0.11.0", "0.20.0")
    assert release("pytorch", "nightly") is release("mxnet", "1.9") is None


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("2.9.1+cu128", "12.8"), ("2.7.1+cu118", "11.8"), ("2.9.1+cpu", None), ("2.9.1", None), ("2+rocm6", None)],
)
def test_the_cuda_version_in_the_name_of_a_wheel(version: str, cuda: str | None) -> None:
    assert wheel_tag(version) == cuda


# What is generated, and the dates -----------------------------------------------------------------------------------

_PCI_IDS = """#
#\tDate:    2026-08-22 03:15:01
#
10dd  Evans & Sutherland
\t0100  GA100 [not NVIDIA's]
10de  NVIDIA Corporation
\t0008  NV1 [STG2000X-B]
# a comment
\t1af1  GA100 [A100 NVSwitch]
\t20b0  GA100 [A100 SXM4 40GB]
\t\t10de 1450  a subsystem
\t20bf  GA100 [Reserved Dev ID]
\t228b  GA104 High Definition Audio Controller
\t25b6  GA107GL [A2 / A16]
\t2717  AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]
\t2924  GB100
\t3340  GB120
10df  Emulex Corporation
\t0720  GH100 [nor this]
"""
_CUDA_H = """
typedef enum cudaError_enum {
    /** The call {@link x} worked, CUDA_NOT_THIS = 7 */
    CUDA_SUCCESS                              = 0,
     CUDA_ERROR_INSUFFICIENT_LOADER_VERSION   = 227,
    CUDA_ERROR_UNKNOWN                        = 999
} CUresult;
typedef enum other_enum { CUDA_OTHER = 1 } other;
"""
_DRIVER_TYPES_H = """
enum __device_builtin__ cudaError
{
    cudaSuccess                           =      0,
    cudaErrorUnknown                      =    999
    , cudaErrorApiFailureBase               =  10000
};
"""


def _wheel(folder: Path) -> Path:
    place = folder / "nvidia_cuda_runtime-13.5.37-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for name, text in (("cuda.h", _CUDA_H), ("driver_types.h", _DRIVER_TYPES_H)):
            archive.writestr(zipfile.ZipInfo(f"nvidia/cu13/include/{name}", (2026, 10, 13, 3, 4, 0)), text)
    return place


def test_gpus_are_what_pci_ids_says() -> None:
    text = render_gpus(_PCI_IDS)
    scope: dict[str, str] = {}
    exec(text, scope)  # noqa: S102  # the module as it would be imported
    assert scope["GPUS"].strip().split("\n") == [
        "20b0 GA100 A100 SXM4 40GB",
        "25b6 GA107GL A2 / A16",
        "2717 AD103M GeForce RTX 4090 Laptop GPU",
        "2924 GB100",
    ]
    assert (scope["AS_OF"], scope["SOURCE"]) == ("2026-08-22", "pci.ids 2026-08-22")
    assert render_gpus(_PCI_IDS) == text


def test_error_names_are_what_the_headers_say(tmp_path: Path) -> None:
    text = render_names(_wheel(tmp_path))
    scope: dict[str, dict[int, str]] = {}
    exec(text, scope)  # noqa: S102  # the module as it would be imported
    assert scope["DRIVER"] == {
        0: "CUDA_SUCCESS",
        227: "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION",
        999: "CUDA_ERROR_UNKNOWN",
    }
    assert scope["RUNTIME"] == {0: "cudaSuccess", 999: "cudaErrorUnknown", 10000: "cudaErrorApiFailureBase"}
    assert as_of(text) == "2026-10-13"
    assert "nvidia-cuda-runtime 13.5.37" in text
    assert render_names(_wheel(tmp_path)) == text


def test_inputs_that_are_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="date"):
        render_gpus("10de  NVIDIA Corporation\n")
    with pytest.raises(SourceError, match="no GPU"):
        render_gpus("# Date:    2026-08-22\n10de  NVIDIA Corporation\n")
    empty = tmp_path / "nvidia_cuda_runtime-1-py3-none-any.whl"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("nothing", "")
    with pytest.raises(SourceError, match="0 files"):
        render_names(empty)


def test_a_table_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    place = tmp_path / "pci_gpus.py"
    assert "written" in replace(place, lambda: render_gpus(_PCI_IDS))
    assert "nothing new" in replace(place, lambda: render_gpus(_PCI_IDS))
    older = _PCI_IDS.replace("2026-08-22", "2023-04-11")
    assert "left as it is" in replace(place, lambda: render_gpus(older))
    assert as_of(place.read_text("utf-8")) == "2026-08-22"


def test_the_tables_are_as_they_were_generated() -> None:
    assert (as_of(PCI_GPUS.read_text("utf-8")), as_of(CUDA_ERROR_NAMES.read_text("utf-8"))) == (
        pci_gpus.AS_OF,
        cuda_error_names.AS_OF,
    )
    assert pci_gpus.SOURCE.startswith("pci.ids 20")
    assert "nvidia-cuda-runtime" in cuda_error_names.SOURCE
    for model in models():
        assert model.cc == cc_of_chip(model.chip)
    assert cuda_error_names.DRIVER[803] == "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    assert cuda_error_names.RUNTIME[35] == "cudaErrorInsufficientDriver"


def test_the_gpus_of_debians_pci_ids_are_in_the_table() -> None:
    if not DEBIAN.is_file():
        pytest.skip(f"no {DEBIAN}: the package pci.ids is not installed")
    text = render_gpus(DEBIAN.read_text("utf-8"))
    if as_of(text) > pci_gpus.AS_OF:
        pytest.skip(f"{DEBIAN} is newer than the table: make knowledge")
    chips = {
        row.split(" ")[0]: row.split(" ")[1] for row in io.StringIO(text).read().split('"""')[3].strip().split("\n")
    }
    known = {model.device_id: model.chip for model in models()}
    assert {device: chip for device, chip in chips.items() if device in known and known[device][:5] != chip[:5]} == {}
    assert len(chips.keys() - known.keys()) < 10


def test_every_table_carries_its_date_and_source() -> None:
    found = tables()
    for table in found.tables:
        assert date.fromisoformat(table.as_of) <= date(2027, 12, 31)
        assert table.source, table.name
    assert found.oldest == min(table.as_of for table in found.tables)
    assert found.newest_branch == NEWEST.number == 620
