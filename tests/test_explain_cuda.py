"""`gpudoctor explain cuda:N`: every code of the headers, what it means on a node and which links are suspected."""

import json

import pytest

from gpudoctor.chain import ORDER, Link
from gpudoctor.explaining import Explanation, explain_code
from gpudoctor.knowledge import cuda_error_names as names
from gpudoctor.knowledge.cuda_errors import OF_PROGRAMS, ON_A_NODE
from gpudoctor.registry import built_in
from tests.test_cli import gpudoctor

CODES = sorted({*names.DRIVER, *names.RUNTIME})


def _explained(word: str) -> Explanation:
    found = explain_code(word)
    assert isinstance(found, Explanation)
    return found


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_name_and_a_meaning(code: int) -> None:
    found = _explained(f"cuda:{code}")
    assert found.name and found.meaning.endswith(".")
    links = [ORDER[Link(suspect.link)] for suspect in found.suspects]
    assert links == sorted(links)
    assert set(found.checks) <= set(built_in().ids)
    assert bool(found.suspects) == bool(found.remedies) == (code in ON_A_NODE and bool(ON_A_NODE[code].suspects))


def test_the_tables_speak_of_codes_that_exist_and_not_twice() -> None:
    assert set(ON_A_NODE) | set(OF_PROGRAMS) <= set(CODES)
    assert not set(ON_A_NODE) & set(OF_PROGRAMS)


@pytest.mark.parametrize(
    ("code", "first", "check"),
    [
        (100, "pcie", "cgroup.device-rules"),
        (802, "driver-cuda", "device-nodes.nvswitch-nodes"),
        (803, "driver-cuda", "driver-cuda.module-on-disk"),
        (804, "driver-cuda", "workload.library-version"),
        (999, "device-nodes", "device-nodes.uvm-node"),
        (304, "device-nodes", "toolkit.selinux-allows"),
        (46, "driver-cuda", "cgroup.device-rules"),
    ],
)
def test_codes_of_a_node_suspect_the_lowest_link_first(code: int, first: str, check: str) -> None:
    found = _explained(f"cuda:{code}")
    assert found.suspects[0].link == first and check in found.checks


@pytest.mark.parametrize("code", [1, 400, 710, 716])
def test_a_programs_own_mistake_suspects_nothing_of_the_node(code: int) -> None:
    found = _explained(f"cuda:{code}")
    assert found.suspects == () and "own affair" in found.meaning


@pytest.mark.parametrize(
    "word",
    ["cuda:803", "cuda:CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "cuda:system_driver_mismatch", "cuda:systemDriverMismatch"],
)
def test_a_code_is_explained_by_number_and_by_either_name(word: str) -> None:
    ran = gpudoctor("explain", word)
    assert ran.returncode == 0
    assert ran.stdout.startswith("cuda:803   CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, cudaErrorSystemDriverMismatch\n")
    assert "gpudoctor trace" in ran.stdout and max(map(len, ran.stdout.splitlines())) <= 100
    told = json.loads(gpudoctor("explain", word, "--format", "json").stdout)
    assert told["suspects"][0]["link"] == "driver-cuda"


@pytest.mark.parametrize("word", ["cuda:99", "cuda:", "cuda:nonsense", "cuda:-1", "cuda:99999999999999999999"])
def test_an_unknown_code_is_a_usage_error_that_names_the_nearest(word: str) -> None:
    ran = gpudoctor("explain", word)
    assert ran.returncode == 3 and len(ran.stderr.splitlines()) == 1 and "the nearest are" in ran.stderr
    assert word != "cuda:99" or "98, 100" in ran.stderr
