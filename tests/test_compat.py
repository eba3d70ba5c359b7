"""`gpudoctor compat`: which CUDA versions, images and frameworks run on recorded nodes and on hosts that are only named."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.compat import Answer, Compat, ContainerAnswer, Gpu, Host, How
from gpudoctor.compat_run import Asked, compat
from gpudoctor.compatibility.judging import judge_cuda
from gpudoctor.compatibility.node import asked_gpu
from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.cuda_toolkits import CudaToolkits
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Raw
from gpudoctor.knowledge.cuda_compatibility import DATA_CENTER_ALONE
from gpudoctor.knowledge.cuda_requirements import Outcome
from gpudoctor.knowledge.cuda_toolkits import minor_versions
from gpudoctor.knowledge.driver_branches import BRANCHES
from gpudoctor.knowledge.gpu_models import models
from gpudoctor.reports import compat_terminal
from gpudoctor.reports.look import Look
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.testing import fixtures, node
from tests.captures import NOW
from tests.conftest import Golden
from tests.test_cli import gpudoctor
from tests.test_packaging import modules_of_a_run
from tests.trace_node import TraceNode

TRAINER = "requires-cuda-12.8-on-driver-550"
"""A T4 under 550.163.01; the image of its container docker:trainer demands cuda>=12.8."""
H100 = Gpu("NVIDIA H100 80GB HBM3", "9.0", "Hopper", forward_compatible=True)
V100 = Gpu("Tesla V100-SXM2-32GB", "7.0", "Volta", forward_compatible=True)
GEFORCE = Gpu("NVIDIA GeForce RTX 4090", "8.9", "Ada Lovelace", forward_compatible=False)
K80 = Gpu("Tesla K80", "3.7", "Kepler", forward_compatible=True)
RUBIN = Gpu(None, "10.7", "Rubin")
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", "12.0", "Blackwell", forward_compatible=False)


def of(
    raw: Raw | str,
    driver: str | None = None,
    cuda: Sequence[str] = (),
    gpus: Sequence[str] = (),
    images: Sequence[str] = (),
    frameworks: Sequence[str] = (),
) -> Compat:
    """The result for a recorded node."""
    asked = Asked(driver, tuple(cuda), tuple(gpus), tuple(images), tuple(frameworks))
    return compat(node(raw) if isinstance(raw, str) else raw, Config(), asked, NOW)


def hows(result: Compat) -> dict[str, str]:
    """How each CUDA version runs."""
    return {answer.cuda: answer.how.value for answer in result.cuda}


def trainer(result: Compat) -> ContainerAnswer:
    """The container of that node."""
    (container,) = result.containers
    assert container.title == "docker:trainer"
    return container


# CUDA versions --------------------------------------------------------------------------------------------------------

JUDGED = [
    ("12.4", Host("550.163.01", gpus=(H100,)), How.NATIVE, "offers CUDA 12.4", ""),
    ("12.5", Host("550.163.01", gpus=(GEFORCE,)), How.MINOR_VERSION, "error 222", ""),
    ("13.0", Host("550.163.01", gpus=(H100,)), How.PACKAGE, "NVIDIA's own images", ""),
    ("13.4", Host("580.95.05", gpus=(H100,)), How.MINOR_VERSION, "error 222", ""),
    ("13.4", Host("570.86.10", gpus=(H100,)), How.PACKAGE, "cuda-compat-13-4", ""),
    ("13.0", Host("550.163.01", gpus=(GEFORCE,)), How.NO, "error 804", "580"),
    ("13.0", Host("550.163.01", gpus=(H100, GEFORCE)), How.NO, "error 804", "580"),
    ("13.0", Host("545.23.08", gpus=(H100,)), How.NO, "needs 580", "580"),
    ("12.0", Host("470.256.02", gpus=(GEFORCE,)), How.NO, "driven from branch 520", "525.60.13"),
    ("12.0", Host("470.256.02", gpus=(H100,)), How.NO, "driven from branch 520", "525.60.13"),
    ("11.8", Host("470.256.02", gpus=(H100,)), How.NO, "driven from branch 520", "520"),
    ("13.0", Host("580.95.05", gpus=(V100,)), How.NO, "has no code for compute capability 7.0", ""),
    ("13.0", Host("580.95.05", gpus=(V100, H100)), How.NATIVE, "error 209", ""),
    ("12.4", Host("590.48.01", gpus=(V100,)), How.NO, "driven up to branch 580", ""),
    ("12.4", Host("590.48.01", gpus=(V100, H100)), How.NATIVE, "driven up to branch 580", ""),
    ("12.4", Host("550.163.01", gpus=(RTX_5090,)), How.NO, "driven from branch 570", "570"),
    ("12.4", Host("580.95.05", gpus=(RTX_5090,)), How.NATIVE, "only programs with PTX", ""),
    ("11.4", Host("580.95.05", gpus=(GEFORCE,)), How.NATIVE, "runs its code for 8.0 and 8.6", ""),
    ("12.9", Host("560.94", windows=True), How.MINOR_VERSION, "offers CUDA 12.6", ""),
    ("13.0", Host("560.94", gpus=(H100,), windows=True), How.NO, "the Windows driver must offer", ""),
    ("11.4", Host("418.226.00", gpus=(K80,)), How.PACKAGE, "cuda-compat-11-4", ""),
    ("11.5", Host("418.226.00", gpus=(K80,)), How.NO, "is of branch 495, which does not drive", "450.80.02"),
    ("11.5", Host("418.226.00", gpus=(K80, V100)), How.PACKAGE, "is of branch 495, which does not drive", ""),
    ("13.0", Host("580.95.05", gpus=(V100, RUBIN)), How.NO, "driven from branch 615", ""),
]


@pytest.mark.parametrize(("cuda", "host", "how", "words", "needs"), JUDGED)
def test_a_cuda_version_on_a_host(cuda: str, host: Host, how: How, words: str, needs: str) -> None:
    said = judge_cuda(cuda, host)
    assert said.how is how, said
    assert words in " ".join((said.why, *said.limits)), said
    assert said.needs == needs


UNKNOWN = [
    ("12.7", "580.95.05", "no CUDA toolkit 12.7", "12.6 and 12.8"),
    ("14.0", "580.95.05", "no CUDA 14.0", "the newest it has is 13.5"),
    ("14.0", "650.10", "no CUDA 14.0", "the newest it has is 13.5"),
    ("12.8.7", "580.95.05", "no CUDA 12.8.7", "12.8.0, 12.8.1, 12.8.2"),
    ("13", "580.95.05", "names no version", "10.0 to 13.5"),
    ("12.8.0a1", "580.95.05", "names no version", "10.0 to 13.5"),
    ("13.0", "58", "'58' is no version of a driver", ""),
    ("13.0", "580.", "is no version of a driver", ""),
    ("13.0", "580.95.05-dev", "is no version of a driver", ""),
    ("10.2", "440.31", "offers CUDA 10.2", "440.33"),
    ("9.0", "384.81", "older than the table", "at most CUDA 9.1"),
    ("12.6", "540.4.0", "JetPack", ""),
    ("12.6", None, "not known", ""),
]


@pytest.mark.parametrize(
    "name", ["Tesla K80", "sm_70", "Tesla T4", "RTX 3090", "L40S", "sm_90", "B200", "sm_103", "sm_120"]
)
def test_the_driver_that_is_named_as_needed_would_do(name: str) -> None:
    gpus = (asked_gpu(name),)
    for cuda in minor_versions():
        for branch in BRANCHES:
            said = judge_cuda(cuda, Host(branch.latest or str(branch.number), gpus=gpus))
            if said.needs:
                assert judge_cuda(cuda, Host(said.needs, gpus=gpus)).how is not How.NO, (branch.number, said)


@pytest.mark.parametrize(("cuda", "driver", "why", "near"), UNKNOWN)
def test_what_the_tables_do_not_have_is_unknown_with_the_nearest_bounds(
    cuda: str, driver: str | None, why: str, near: str
) -> None:
    said = judge_cuda(cuda, Host(driver))
    assert said.how is How.UNKNOWN and why in said.why and near in said.why, said


def test_a_driver_newer_than_the_tables_runs_what_is_older_than_them() -> None:
    host = Host("650.10", gpus=(H100,))
    assert judge_cuda("12.8", host).how is How.NATIVE
    assert "at least CUDA 13.5" in judge_cuda("12.8", host).why
    result = of(TRAINER, driver="650.10")
    assert any("newer than the tables" in note for note in result.notes)
    assert result.driver is not None and result.driver.newer_than_tables


def test_the_drivers_own_word_counts_before_the_table() -> None:
    assert judge_cuda("13.6", Host("625.10", "13.6")).how is How.NATIVE
    assert judge_cuda("13.7", Host("625.10", "13.6")).how is How.UNKNOWN
    for never_released in ("12.7", "12.10", "12.8.7"):
        assert judge_cuda(never_released, Host("625.10", "13.6")).how is How.UNKNOWN


def test_a_branch_stands_for_its_newest_release() -> None:
    assert judge_cuda("12.0", Host("525")).how is How.NATIVE
    assert judge_cuda("12.4", Host("525")).how is How.MINOR_VERSION


def test_a_gpu_that_is_not_known_is_said_to_be() -> None:
    said = judge_cuda("13.0", Host("570.86.10", gpus=(Gpu("NVIDIA RTX Something", None),)))
    assert said.how is How.UNKNOWN and "NVIDIA RTX Something" in said.why
    assert "compute capability of X is not known" in judge_cuda("12.8", Host("580", gpus=(Gpu("X", None),))).limits[0]


@pytest.mark.parametrize(
    ("word", "cc"),
    [
        ("sm_90", "9.0"),
        ("sm_120", "12.0"),
        ("8.6", "8.6"),
        ("compute_75", "7.5"),
        ("10de:2330", "9.0"),
        ("NVIDIA H100 PCIe", "9.0"),
        ("RTX 4090", "8.9"),
        ("no such GPU", None),
    ],
)
def test_gpus_by_target_by_id_and_by_name(word: str, cc: str | None) -> None:
    assert asked_gpu(word).cc == cc


@pytest.mark.parametrize(
    ("word", "serves"),
    [
        ("sm_90", True),
        ("10.0", True),
        ("sm_103", True),
        ("H100L 94GB", True),
        ("sm_80", None),
        ("sm_120", None),
        ("NVIDIA RTX A6000", None),
        ("RTX 4090", False),
        ("nvidia geforce rtx 4090", False),
    ],
)
def test_whether_a_gpu_that_is_named_can_use_packages(word: str, serves: bool | None) -> None:
    assert asked_gpu(word).forward_compatible is serves


def test_boards_of_a_data_center_capability_are_for_data_centers_alone() -> None:
    for model in models():
        if model.cc in DATA_CENTER_ALONE:
            assert not re.search(r"GeForce|RTX|TITAN|Quadro|CMP|Generic|Desktop", " ".join(model.names)), model
    assert {model.cc for model in models()} >= set(DATA_CENTER_ALONE)


# nodes ----------------------------------------------------------------------------------------------------------------


def test_a_node_with_its_driver_and_gpus() -> None:
    result = of("h100x8")
    assert result.host.driver == "550.163.01" and {gpu.cc for gpu in result.host.gpus} == {"9.0"}
    assert result.driver is not None and (result.driver.branch, result.driver.cuda_from) == (550, "NVML")
    found = hows(result)
    assert (found["12.4"], found["12.9"], found["13.0"], found["13.5"]) == ("native", "minor-version", "package", "no")
    assert result.what_if is None


def test_a_node_whose_gpus_newer_toolkits_have_dropped() -> None:
    result = of("v100x8")
    assert hows(result)["13.0"] == "no" and hows(result)["12.9"] == "minor-version"
    assert result.host.gpus[0].architecture == "Volta"


def test_a_running_container_with_its_runtime_and_its_requirement() -> None:
    one = trainer(of(TRAINER))
    assert one.runtime == "12.8" and one.answer is not None and one.answer.how is How.MINOR_VERSION
    assert one.image is not None and one.image.outcome is Outcome.UNMET
    assert "cuda>=12.8" in one.image.why and "offers CUDA 12.4" in one.image.why


def test_what_another_driver_would_change_comes_first() -> None:
    result = of(TRAINER, driver="580.178.04", cuda=["12.4", "13.0"], images=["cuda>=13.0"], frameworks=["torch==2.9.1"])
    assert result.what_if is not None
    changed = {(one.kind, one.what): (one.before, one.after) for one in result.what_if.changed}
    assert changed["container", "docker:trainer: CUDA 12.8"] == ("minor-version", "native")
    assert changed["requirement", "docker:trainer: what its image demands"] == ("unmet", "met")
    assert changed["image", "cuda>=13.0"] == ("unmet", "met")
    assert changed["framework", "pytorch 2.9.1 for CUDA 12.8"] == ("minor-version", "native")
    assert ("cuda", "CUDA 12.4") not in changed and result.what_if.unchanged == 1
    assert trainer(result).answer is not None and result.host.driver_cuda is None
    assert of(TRAINER, driver="550.163.01").what_if is None


def test_what_another_gpu_would_change() -> None:
    result = of(TRAINER, gpus=["RTX 5090"])
    assert result.what_if is not None
    (runtime,) = [one for one in result.what_if.changed if one.kind == "container"]
    assert (runtime.before, runtime.after) == ("minor-version", "no") and "branch 570" in runtime.why


def test_nothing_to_judge_is_a_usage_error_and_anything_asked_is_not() -> None:
    with pytest.raises(ConfigError, match="--driver"):
        of("nothing-recorded")
    result = of("nothing-recorded", cuda=["13.0"])
    assert result.asked[0].how is How.UNKNOWN and result.asked[0].needs == "580"
    known = of("nothing-recorded", driver="580", gpus=["sm_90"])
    assert hows(known)["13.0"] == "native" and known.unseen
    with pytest.raises(ConfigError, match="pytorch"):
        of("h100x8", frameworks=["pytorsh"])
    with pytest.raises(ConfigError, match="Windows driver"):
        of("wsl2")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"driver": "v580"}, "--driver takes a version"),
        ({"driver": ""}, "--driver takes a version"),
        ({"gpus": [" "]}, "--gpu takes"),
        ({"images": ["nvidia/cuda:12.8.0-base-ubuntu22.04"]}, "not its name"),
        ({"frameworks": ["torch>=2.0"]}, "one version, as torch==2.9.1"),
        ({"frameworks": [""]}, "one version, as torch==2.9.1"),
    ],
)
def test_words_of_which_nothing_can_be_made_are_usage_errors(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        of("h100x8", **asked)


def with_toolkits(**texts: str) -> RecordedNode:
    """The traced node with files below /usr/local."""
    one = TraceNode()
    one.complete.append("/usr/local")
    one.build()
    for folder, text in texts.items():
        name = folder.replace("_", "-").replace("-dot-", ".")
        one.text(f"/usr/local/{name}/{'version.json' if text.startswith('{') else 'version.txt'}", text)
    return one.recording()


def test_toolkits_on_the_nodes_disk() -> None:
    raw = with_toolkits(
        cuda_13_dot_2='{"cuda": {"name": "CUDA SDK", "version": "13.2.1"}}', cuda_10_dot_1="CUDA Version 10.1.243\n"
    )
    result = of(raw, driver="550.163.01")
    judged = {one.path: (one.version, one.answer.how.value) for one in result.toolkits}
    assert judged == {
        "/usr/local/cuda-10.1": ("10.1.243", "native"),
        "/usr/local/cuda-13.2": ("13.2.1", "no"),
    }
    assert result.what_if is not None
    assert [one.what for one in result.what_if.changed if one.kind == "toolkit"] == [
        "CUDA 13.2.1 in /usr/local/cuda-13.2"
    ]


def test_a_folder_with_a_package_for_forward_compatibility_alone_is_no_toolkit() -> None:
    one = TraceNode()
    one.complete.append("/usr/local")
    one.build()
    one.text("/usr/local/cuda-13.0/compat/libcuda.so.580.82.07", "")
    found = Desk(one.recording(), Config()).get(CudaToolkits)
    assert isinstance(found, CudaToolkits) and found.toolkits == () and found.unseen is None


def test_a_recording_holds_what_tells_of_toolkits(tmp_path: Path) -> None:
    place = tmp_path / "root" / "usr/local/cuda-12.8"
    place.mkdir(parents=True)
    (place / "version.json").write_text('{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}', "utf-8")
    for name in ("proc", "sys", "dev"):
        (tmp_path / "root" / name).mkdir()
    recorded = str(tmp_path / "recorded")
    assert gpudoctor("record", "--root", str(tmp_path / "root"), "-o", recorded).returncode == 0
    ended = gpudoctor("compat", "--node", recorded, "--driver", "560.35.05", "--format", "json")
    (toolkit,) = json.loads(ended.stdout)["toolkits"]
    assert (toolkit["version"], toolkit["answer"]["how"]) == ("12.8.1", "minor-version")


def test_every_recorded_node_is_judged() -> None:
    judged = 0
    for place in sorted(fixtures().iterdir()):
        if not (place / "snapshot.json").is_file():
            continue
        try:
            result = of(place.name)
        except ConfigError:
            continue
        judged += 1
        assert not [words for words in result.unseen if "gpudoctor failed" in words], place.name
        assert result.host.driver or result.host.gpus, place.name
        assert compat_terminal.render(result, Look())
    assert judged > 200


# images and frameworks ------------------------------------------------------------------------------------------------


def test_requirements_as_words_with_names() -> None:
    words = "NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla,driver>=550,driver<551 NVIDIA_REQUIRE_ARCH=arch>=8.0"
    (image,) = of(TRAINER, images=[words]).images
    assert [demand.variable for demand in image.demands] == ["NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_ARCH"]
    assert [demand.outcome for demand in image.demands] == [Outcome.MET, Outcome.UNMET]
    assert image.outcome is Outcome.UNMET and "arch>=8.0" in image.why
    (lifted,) = of(TRAINER, images=[f"{words} NVIDIA_DISABLE_REQUIRE=true"]).images
    assert lifted.lifted and lifted.outcome is Outcome.UNMET


def test_what_hangs_on_a_brand_that_nobody_told_is_unknown() -> None:
    words = ["cuda>=13.9 brand=tesla,driver>=580,driver<581"]
    (image,) = of("nothing-recorded", driver="580.95.05", gpus=["sm_90"], images=words).images
    assert image.outcome is Outcome.UNKNOWN and "brand" in image.why
    (broken,) = of("h100x8", images=["cuda=>12"]).images
    assert broken.outcome is Outcome.INVALID and "refused" in broken.why


REFUSED = [
    ("brand=tesla", "the GPU's brand is geforce; it would be met for the brand tesla"),
    ("driver>=580", "demands driver>=580: the driver is 550.163.01"),
    ("arch>=9.0", "the GPU's compute capability is 8.9"),
    (
        "cuda>=12.8 brand=tesla,driver>=550",
        "offers CUDA 12.4; its other alternative is not met either; it would be met",
    ),
    ("cuda>=12.8 cuda>=12.9 cuda>=13.0", "its 2 other alternatives are not met either"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_refused_image_is_told_what_there_is_instead(text: str, words: str) -> None:
    (image,) = of("rtx4090-workstation-display", images=[text]).images
    assert image.outcome is Outcome.UNMET and words in image.why, image.why


def test_brands_on_which_an_image_hangs() -> None:
    words = ["cuda>=13.9 brand=tesla,driver>=580,driver<581 brand=grid,driver>=550,driver<551"]
    (image,) = of("nothing-recorded", driver="580.95.05", gpus=["sm_90"], images=words).images
    assert "the GPU's brand (Product Brand of nvidia-smi -q), which is not known here" in image.why
    assert "would be met for the brand tesla" in image.why and "grid" not in image.why
    (image,) = of("h100x8", driver="580.95.05", images=["brand=nvidia"]).images
    assert image.outcome is Outcome.UNKNOWN and "what libnvidia-container calls the brand nvidia" in image.why
    (image,) = of("h100x8", gpus=["sm_90", "sm_80"], images=["arch>=9.0"]).images
    assert "demands arch>=9.0 for 8.0: the GPU's compute capability is 8.0" in image.why
    (image,) = of("h100x8", images=["cuda>=13.0"]).images
    assert "demands cuda>=13.0: the driver" in image.why
    (image,) = of("h100x8", driver="580", images=["driver>=590"]).images
    assert "the driver is 580, taken as its newest release 580." in image.why


@pytest.mark.parametrize("word", ["torch==2.7.1+cpu", "torch==2.7.1+rocm6.3", "torch==2.7.1+cu999"])
def test_a_build_that_is_none_of_the_release_is_not_judged_as_others(word: str) -> None:
    (one,) = of("h100x8", frameworks=[word]).frameworks
    assert not one.wheels and "no build for CUDA" in one.why and "11.8, 12.6, 12.8" in one.why


def test_a_framework_as_pip_spells_it() -> None:
    (one,) = of("h100x8", frameworks=["tensorflow[and-cuda]"]).frameworks[:1]
    assert one.framework == "tensorflow" and one.wheels


def test_frameworks_by_their_cuda_and_their_code() -> None:
    (torch,) = of("v100x8", frameworks=["torch==2.9.1"]).frameworks
    assert {wheel.cuda: wheel.how.value for wheel in torch.wheels} == {
        "12.6": "minor-version",
        "12.8": "minor-version",
        "13.0": "no",
    }
    (one,) = of("h100x8", frameworks=["torch==2.9.1+cu126"]).frameworks
    assert [wheel.cuda for wheel in one.wheels] == ["12.6"]
    (vllm,) = of("v100x8", frameworks=["vllm==0.20.0"], driver="580").frameworks
    assert [wheel.how for wheel in vllm.wheels] == [How.NO]
    (strange,) = of("h100x8", frameworks=["torch==9.9"]).frameworks
    assert not strange.wheels and "nearest" in strange.why


def test_without_a_version_the_newest_and_the_newest_that_runs_natively() -> None:
    newest, native = of("h100x8", frameworks=["pytorch"]).frameworks
    assert newest.native == native.version and any(wheel.how is How.NATIVE for wheel in native.wheels)


# the command ----------------------------------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path) -> None:
    assert gpudoctor("compat", "--node", str(fixtures() / "h100x8")).returncode == 0
    assert gpudoctor("compat", "--node", str(fixtures() / "v100x8"), "--cuda", "13.0", "-q").returncode == 0
    for arguments in (
        ("--node", str(fixtures() / "nothing-recorded")),
        ("--root", str(tmp_path)),
        ("--gpus", "x"),
        ("12.8",),
    ):
        ended = gpudoctor("compat", *arguments)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (3, "", 1), ended.stderr


def test_json_is_valid_under_its_own_schema(golden: Golden) -> None:
    printed = gpudoctor("schema", "--of", "compat").stdout
    golden.check("compat-1.schema.json", printed)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    asked = (
        "--driver",
        "580.178.04",
        "--cuda",
        "13.0",
        "--framework",
        "torch",
        "--image",
        "cuda>=13.1",
        "--gpu",
        "sm_90",
    )
    for arguments in ((), asked):
        ended = gpudoctor("compat", "--node", str(fixtures() / TRAINER), "--format", "json", *arguments)
        said = json.loads(ended.stdout)
        validator.validate(said)
        assert said["schema"] == "gpudoctor.compat/1" and said["tables"]["newest_branch"] >= 620


def test_pages(golden: Golden) -> None:
    golden.check("compat/h100x8.txt", compat_terminal.render(of("h100x8"), Look()))
    asked = of(TRAINER, driver="580.178.04", cuda=["12.9", "12.7"], images=["cuda>=13.1"], frameworks=["torch==2.9.1"])
    golden.check("compat/what-if.txt", compat_terminal.render(asked, Look()))
    golden.check("compat/v100x8-120.txt", compat_terminal.render(of("v100x8"), Look(width=120, verbose=1)))
    golden.check("compat/quiet.txt", compat_terminal.render(of("rtx4090-workstation-display"), Look(quiet=True)))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in ("h100x8", TRAINER, "rtx4090-workstation-display"):
        text = compat_terminal.render(of(name, cuda=["12.7"], frameworks=["torch"]), Look(width=width, ascii=True))
        assert text.isascii() and all(len(line) <= width for line in text.splitlines())


def test_hostile_words_cannot_drive_the_terminal() -> None:
    result = of(TRAINER, gpus=["\x1b]0;owned\x07"], cuda=["\x1b[2J"], images=["cuda>=\x1b[1m"])
    text = compat_terminal.render(result, Look(verbose=1))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) and "owned" in text


def test_a_run_does_not_import_it_and_it_builds_no_checks() -> None:
    assert not [name for name in modules_of_a_run("--format", "json") if name.startswith("gpudoctor.compat")]
    script = "import sys; from gpudoctor.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", script, "compat", "--node", str(fixtures() / "h100x8"), "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = ended.stderr.split()
    assert "gpudoctor.compat_run" in loaded
    assert not [name for name in loaded if name.startswith(("gpudoctor.checks", "rich", "gpudoctor.engine"))]


def page(result: Compat, **look: Any) -> str:
    """A page with its line breaks taken out."""
    return " ".join(compat_terminal.render(result, Look(**look)).split())


def test_unknown_for_one_reason_is_one_row() -> None:
    text = page(of("nothing-recorded", driver="535.288.01", gpus=["sm_80"]))
    assert (
        "13.0\N{EN DASH}13.4 unknown the driver (535.288.01) offers CUDA 12.2; cuda-compat-13-0 to 13-4 brings" in text
    )
    assert "if it serves a GPU of compute capability 8.0 (Ampere)" in text
    assert "13.0\N{EN DASH}13.4 by cuda-compat-13-0 to 13-4" in page(
        of("nothing-recorded", driver="535.288.01", gpus=["sm_90"])
    )


def test_no_for_more_than_the_drivers_cuda_says_why() -> None:
    text = page(of("nothing-recorded", driver="440", gpus=["sm_90", "sm_90"]))
    assert "2 x GPU (compute capability 9.0, Hopper)" in text
    assert "needs driver 520 or newer compute capability 9.0 (Hopper) is driven from branch 520 on, not by 440" in text


def test_what_holds_for_a_rows_toolkits_is_said_in_each_row() -> None:
    text = page(of("nothing-recorded", driver="580", gpus=["sm_90", "RTX 4090"]))
    older = "the toolkit is older than compute capability 9.0 (Hopper)"
    for row in ("10.0\N{EN DASH}10.2", "11.0", "11.1\N{EN DASH}11.7"):
        assert text.partition(f" {row} natively ")[2].startswith(older), row
    assert "11.8\N{EN DASH}13.0 natively 13.1" in text


def test_without_a_driver_it_is_said_what_each_thing_needs() -> None:
    text = page(of("cpu-node-no-config", images=["cuda>=12.8 brand=tesla,driver>=535"], frameworks=["vllm==0.33.0"]))
    assert "CUDA 13.0 unknown: needs driver 580 or newer, the default" in text
    assert "hangs on the driver's CUDA version, the GPU's brand" in text and "which are not known here" in text


def test_one_line_answers_what_was_asked() -> None:
    result = of("h100x8", cuda=["13.0", "13.2"], images=["cuda>=12.8"], frameworks=["torch==2.9.1+cu126"])
    text = compat_terminal.render(result, Look(quiet=True))
    assert text.endswith(
        ": CUDA 13.0 by cuda-compat-13-0; CUDA 13.2 no: needs driver 580 or newer; image with cuda>=12.8 refused; "
        "pytorch 2.9.1+cu126: CUDA 12.6 by minor-version compatibility\n"
    )


def test_a_page_says_how_old_the_oldest_table_is_and_where_there_is_nothing_to_compare() -> None:
    text = page(of("l4-cloud-guest", driver="590"))
    assert "nothing to compare" in text and "unchanged" not in text
    assert "oldest table: pci_gpus of 2026-08-22, 99 days old on 2026-11-29;" in text
    before = compat(node("h100x8"), Config(), Asked(), NOW.replace(month=2, day=1))
    assert "pci_gpus of 2026-08-22; known are drivers" in page(before)


def test_a_long_requirement_is_shortened_in_its_title_and_a_partly_covered_wheel_says_so() -> None:
    asked = f"cuda>=12.8 {'brand=tesla,driver>=470,driver<471 ' * 12}"
    text = compat_terminal.render(of("h100x8", driver="535", images=[asked, ""]), Look())
    text = " ".join(text.split())
    assert text.count("brand=tesla") == 1 and "driver<471 brand=tesl ...: refused" in text
    assert "image without a demand: starts" in text
    result = of("nothing-recorded", driver="580", gpus=["sm_70", "sm_90"], frameworks=["torch==2.9.1+cu130"])
    assert "CUDA 13.0 natively it has code for" in page(result) and "none of it for compute capability 7.0" in page(
        result
    )


def test_ranges_put_together_only_what_runs_alike() -> None:
    found = compat_terminal.spans(
        (
            Answer("12.4", How.NATIVE, "a"),
            Answer("12.5", How.NATIVE, "b"),
            Answer("12.6", How.NATIVE, "c", ("CUDA 12.6 is old",)),
            Answer("12.8", How.NATIVE, "d", ("CUDA 12.8 is old",)),
            Answer("13.0", How.NO, "e", needs="580"),
        )
    )
    assert [(one.first.cuda, one.last.cuda) for one in found] == [("12.4", "12.5"), ("12.6", "12.8"), ("13.0", "13.0")]
