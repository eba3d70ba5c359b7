"""What images require of the driver: the grammar of libnvidia-container, against a second reading of it and by properties."""

import itertools
import random
import re

import pytest

from gpudoctor.facts.raw import Answer
from gpudoctor.knowledge.cuda_requirements import (
    Outcome,
    Provided,
    compare_versions,
    evaluate,
    is_true,
    judge_all,
    parse,
    requirements_of,
)
from gpudoctor.knowledge.requirement_remedies import branch_for, for_requirement
from gpudoctor.report import Finding
from gpudoctor.testing import node as fixture
from gpudoctor.testing import run_node
from gpudoctor.verdicts import Status
from tests.gpu_node import GpuNode
from tests.small_node import cited, steps
from tests.workload_node import DOCKER, ID, oci

T4 = Provided(cuda="12.4", driver="550.163.01", arch="7.5", brand="tesla")
IMAGE = (
    "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=grid,driver>=470,driver<471 brand=tesla,driver>=470,driver<471 "
    "brand=tesla,driver>=550,driver<551 brand=geforce,driver>=550,driver<551"
)


def outcome(text: str, provided: Provided = T4) -> Outcome:
    return evaluate(parse(text), provided).outcome


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda>=12.4", Outcome.MET),
        ("cuda>=12.8", Outcome.UNMET),
        ("cuda>=12.8 driver>=550", Outcome.MET),
        ("cuda>=12.4,driver>=560", Outcome.UNMET),
        ("cuda>=12.4,,driver>=550", Outcome.MET),
        ("  cuda>=12.4", Outcome.MET),
        ("", Outcome.MET),
        (IMAGE, Outcome.MET),
        ("brand=TESLA", Outcome.MET),
        ("BRAND=tesla", Outcome.MET),
        ("brand!=tesla", Outcome.UNMET),
        ("brand>tesla", Outcome.INVALID),
        ("driver=550.163.1", Outcome.MET),
        ("driver=550.163.01.0", Outcome.MET),
        ("driver>550.163.01.0", Outcome.UNMET),
        ("driver<550.163.01.1", Outcome.MET),
        ("arch>=8.0", Outcome.UNMET),
        ("cuda==12.4", Outcome.INVALID),
        ("cuda!12.4", Outcome.UNMET),
        ("cuda=>12.4", Outcome.INVALID),
        ("cuda>=", Outcome.INVALID),
        (">=12.4", Outcome.INVALID),
        ("toolkit>=12.4", Outcome.INVALID),
        ("cuda>=twelve", Outcome.INVALID),
        ("cuda>=12.4 nonsense", Outcome.MET),
        ("cuda>=12.8 nonsense", Outcome.INVALID),
        ("cuda>=12.8,nonsense driver>=1", Outcome.MET),
        (",", Outcome.MET),
        ("cuda>=12.8 , driver>=1", Outcome.UNMET),
        (f"cuda>={'9' * 5000}", Outcome.INVALID),
        ("cuda<18446744073709551614", Outcome.MET),
        ("cuda<18446744073709551615", Outcome.INVALID),
        (f"cuda>={'0' * 5000}12.4", Outcome.MET),
        (f"brand={'x' * 119}", Outcome.UNMET),
        (f"brand={'x' * 120}", Outcome.INVALID),
        (f"brand!={'x' * 120}", Outcome.MET),
    ],
)
def test_as_libnvidia_container_reads_it(text: str, expected: Outcome) -> None:
    assert outcome(text) is expected


def test_what_is_not_known_leaves_open_only_what_hangs_on_it() -> None:
    known = Provided(cuda="12.4", driver="550.163.01")
    assert outcome(IMAGE, known) is Outcome.UNKNOWN
    assert outcome("cuda>=12.4 brand=tesla", known) is Outcome.MET
    assert outcome("cuda>=12.8,brand=tesla", known) is Outcome.UNMET
    assert outcome("brand=tesla,cuda>=12.8", known) is Outcome.UNMET
    assert outcome("brand=tesla nonsense", known) is Outcome.UNKNOWN
    assert outcome("brand=tesla,nonsense cuda>=12.4", known) is Outcome.UNKNOWN
    assert outcome("cuda>=12.8,nonsense", Provided()) is Outcome.UNKNOWN


def test_the_reason_is_the_condition_that_decides_or_the_names_that_nobody_told() -> None:
    unmet = evaluate(parse("cuda>=12.8,driver>=550 brand=geforce"), T4)
    assert (unmet.holds, unmet.condition and unmet.condition.text, unmet.untold) == (False, "cuda>=12.8", ())
    invalid = evaluate(parse("cuda>=12.8 brand>tesla"), T4)
    assert (invalid.holds, invalid.condition and invalid.condition.text) == (False, "brand>tesla")
    untold = evaluate(parse("cuda>=12.8 brand=tesla,driver>=550 arch>=7"), Provided(cuda="12.4", driver="550.1"))
    assert (untold.holds, untold.untold) == (None, ("brand", "arch"))
    assert evaluate(parse("cuda>=12.4"), T4).holds is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cuda>=12.4,brand=geforce", Outcome.MET), ("cuda>=12.8 arch>=9.0", Outcome.MET), ("cuda>=12.8", Outcome.UNMET)],
)
def test_where_no_gpu_is_visible_what_is_demanded_of_one_counts_as_met(text: str, expected: Outcome) -> None:
    assert outcome(text, Provided(cuda="12.4", driver="550.1", no_gpu=True)) is expected


def second_reading(text: str, provided: Provided) -> Outcome:
    """The C program, statement by statement: `ret`, two splits, two breaks."""
    ret = True
    for term in re.split(" ", text):
        if term == "":
            continue
        left = term.split(",")
        broken = False
        for factor in left:
            if factor == "":
                continue
            held = _rule(factor, provided)
            if held is None:
                return Outcome.INVALID
            ret = held
            if not ret:
                broken = True
                break
        if not broken:
            break
    return Outcome.MET if ret else Outcome.UNMET


def _rule(factor: str, provided: Provided) -> bool | None:
    found = re.match(r"([^<>=!]+)([<>=!]+)", factor)
    if found is None:
        return None
    span = found[2]
    names = ("=", "!=", "<", "<=", ">", ">=")
    operator = next((name for name in names if (name + "\0")[: len(span)] == span), None)
    value = factor[found.end() :]
    if operator is None or not value or found[1].lower() not in ("cuda", "driver", "arch", "brand"):
        return None
    have = provided.of(found[1].lower()) or ""
    if found[1].lower() == "brand":
        equal = have.lower() == value.lower()
        return None if operator not in ("=", "!=") else equal == (operator == "=")
    if re.search(r"[^0-9.]", have + value) or not have or value.startswith(".") or have.startswith("."):
        return None
    one, two = ([int(part) for part in re.findall(r"\d+", version)] for version in (have, value))
    width = max(len(one), len(two))
    left, right = (numbers + [0] * (width - len(numbers)) for numbers in (one, two))
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


def test_random_requirements_agree_with_the_second_reading() -> None:
    dice = random.Random(7)  # noqa: S311 - no secret
    names, operators = (
        ("cuda", "driver", "arch", "brand", "CUDA", "jetpack"),
        ("=", "!=", "<", "<=", ">", ">=", "==", "!"),
    )
    values = ("12.4", "12", "12.4.0", "550", "550.163.01", "7.5", "tesla", "Tesla", "8", "", "x")
    counts = dict.fromkeys(Outcome, 0)
    for _ in range(4000):
        factors = [dice.choice(names) + dice.choice(operators) + dice.choice(values) for _ in range(dice.randint(1, 5))]
        text = "".join(factor + dice.choice((" ", ",", "  ", ",,", " ")) for factor in factors)
        expected = second_reading(text, T4)
        assert outcome(text) is expected, text
        counts[expected] += 1
    assert min(counts[Outcome.MET], counts[Outcome.UNMET], counts[Outcome.INVALID]) > 200


def of(**told: str) -> Provided:
    """A GPU of which only this is known."""
    return Provided(told.get("cuda"), told.get("driver"), told.get("arch"), told.get("brand"))


def test_knowing_less_never_turns_one_verdict_into_another() -> None:
    """What is judged without brand, arch or version holds whatever they are."""
    dice = random.Random(11)  # noqa: S311 - no secret
    values = {
        "cuda": ("12.4", "12.8"),
        "driver": ("550", "470.57"),
        "arch": ("7.5", "9.0"),
        "brand": ("tesla", "geforce"),
    }
    judged = 0
    for _ in range(400):
        row = [
            dice.choice(list(values)) + "=" + dice.choice(("12.4", "12.8", "550", "7.5", "tesla"))
            for _ in range(dice.randint(1, 4))
        ]
        text = "".join(factor + dice.choice(" ,") for factor in row)
        hidden = dice.sample(list(values), dice.randint(1, 3))
        full = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        for whole in full[:4]:
            less = outcome(text, of(**{name: value for name, value in whole.items() if name not in hidden}))
            fitting = [each for each in full if all(each[name] == whole[name] for name in values if name not in hidden)]
            if less is not Outcome.UNKNOWN:
                judged += 1
                assert {outcome(text, of(**each)) for each in fitting} == {less}, (text, hidden)
    assert judged > 300


def test_comparison_is_an_order() -> None:
    versions = ["12", "12.0", "12.4", "12.4.1", "12.10", "13", "9.2", "0", "550.163.01", "550.163.1"]
    for one, two in itertools.product(versions, versions):
        less, equal, more = (compare_versions(one, operator, two) for operator in "<=>")
        assert [less, equal, more].count(True) == 1, (one, two)
        assert compare_versions(one, "<=", two) is (less or equal)
        assert compare_versions(one, "!=", two) is (not equal)
        assert compare_versions(two, ">", one) is less
    assert compare_versions("12.4", ">=", "12.x") is None and compare_versions("12.4", ">=", ".12") is None


def test_all_variables_are_anded_and_jetson_has_its_own() -> None:
    said = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_REQUIRE_DRIVER": "driver>=560", "NVIDIA_REQUIRE_JETPACK": "x"}
    judged = judge_all(requirements_of(said), [T4])
    assert [(one.variable, found.outcome) for one, found in judged] == [
        ("NVIDIA_REQUIRE_CUDA", Outcome.MET),
        ("NVIDIA_REQUIRE_DRIVER", Outcome.UNMET),
    ]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"CUDA_VERSION": "12.8.1"}, "cuda>=12.8"),
        ({"CUDA_VERSION": "v13"}, "cuda>=13.0"),
        ({"CUDA_VERSION": "12.8.1", "NVIDIA_REQUIRE_CUDA": ""}, "cuda>=12.8"),
    ],
)
def test_an_image_without_a_requirement_is_taken_by_its_version(said: dict[str, str], text: str) -> None:
    assert [one.text for one in requirements_of(said) if one.derived] == [text]


def test_what_go_takes_for_true() -> None:
    assert [value for value in ("1", "t", "TRUE", "True", "true", "yes", "on", "", "0", "tRue") if is_true(value)] == [
        *("1", "t", "TRUE", "True", "true")
    ]
    assert not is_true(None)


def test_the_branch_that_offers_a_version() -> None:
    assert (branch_for("12.8"), branch_for("12.7"), branch_for("13"), branch_for("99")) == (570, 570, 580, None)


# the check ----------------------------------------------------------------------------------------------------------


def container(*environment: str, nvml: bool = True, cuda: int = 13000, brand: str = "tesla") -> GpuNode:
    """A container with one GPU of a node with driver 580.95.05."""
    node = GpuNode()
    node.container(702, DOCKER, *environment)
    node.rules()
    node.bundle(ID, oci(*environment, nodes={"nvidia0": (195, 0), "nvidiactl": (195, 255)}), namespace="moby")
    if nvml:
        fields = {"brand": brand, "compute_capability": "9.0"}
        devices = [
            {
                "index": at,
                "pci_bus_id": f"00000000:0{5 + at}:00.0",
                "uuid": f"GPU-{at}",
                "name": "NVIDIA H100",
                "fields": fields,
            }
            for at in (0, 1)
        ]
        data = {"init": 0, "driver_version": "580.95.05", "cuda_driver_version": cuda, "count": 2, "devices": devices}
        node.answers["nvml"] = Answer(data=data)
    return node


def judged(node: GpuNode) -> Finding:
    return node.says("workload.requirements-met")


def test_a_requirement_that_is_met_passes_citing_it_and_the_driver() -> None:
    found = judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.0"))
    assert found.status is Status.PASS
    assert "NVIDIA_REQUIRE_CUDA=cuda>=13.0" in cited(found) and "580.95.05" in cited(found)


def test_a_requirement_that_is_not_met_names_clause_driver_and_remedies() -> None:
    found = judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.2 brand=geforce,driver>=580"))
    assert (found.status, found.subject.kind.value) == (Status.WARN, "container")
    assert "cuda>=13.2" in found.summary and "580.95.05 offers CUDA 13.0" in found.summary
    assert [remedy.action.value for remedy in found.remedies] == [
        "change-workload",
        "change-workload",
        "install-package",
    ]
    assert "NVIDIA_DISABLE_REQUIRE=true" in steps(found) and "branch 595" in found.remedies[-1].say


def test_another_major_version_cannot_be_waved_through() -> None:
    found = judged(container("NVIDIA_REQUIRE_CUDA=cuda>=14.0"))
    assert found.status is Status.WARN and "DISABLE_REQUIRE" not in steps(found)


@pytest.mark.parametrize("value", ["true", "1"])
def test_the_users_word_lifts_it(value: str) -> None:
    found = judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.2", f"NVIDIA_DISABLE_REQUIRE={value}"))
    assert found.status is Status.PASS and "NVIDIA_DISABLE_REQUIRE" in cited(found)


@pytest.mark.parametrize("line", ["NVIDIA_DISABLE_REQUIRE=yes", "NVIDIA_DISABLE_REQUIRES=true"])
def test_a_word_that_nobody_reads_lifts_nothing(line: str) -> None:
    node = container("NVIDIA_REQUIRE_CUDA=cuda>=13.2", line)
    found = judged(node)
    assert found.status is Status.WARN
    assert ("NVIDIA_DISABLE_REQUIRE is the name" in found.summary) == (line == "NVIDIA_DISABLE_REQUIRES=true")
    assert node.says("workload.recipes-sound").status is not Status.WARN


def test_the_toolkits_own_switch_lifts_all() -> None:
    node = container("NVIDIA_REQUIRE_CUDA=cuda>=13.2")
    node.text("/etc/nvidia-container-runtime/config.toml", "disable-require = true\n")
    found = judged(node)
    assert found.status is Status.SKIP and "disable-require" in found.summary


def test_an_alternative_for_the_brand_is_enough_and_without_nvml_nobody_knows() -> None:
    image = "NVIDIA_REQUIRE_CUDA=cuda>=13.2 brand=tesla,driver>=580,driver<581"
    assert judged(container(image)).status is Status.PASS
    assert judged(container(image, brand="geforce_rtx")).status is Status.WARN
    unsure = judged(container(image, nvml=False))
    assert unsure.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("listed", "status"),
    [
        ("brand=nvidia,driver>=580 brand=unknown,driver>=580", Status.PASS),
        ("brand=nvidia,driver>=580", Status.UNKNOWN),
        ("brand=unknown,driver>=580", Status.UNKNOWN),
        ("brand=tesla,driver>=580", Status.WARN),
    ],
)
def test_a_newer_brand_has_two_names(listed: str, status: Status) -> None:
    assert judged(container(f"NVIDIA_REQUIRE_CUDA=cuda>=13.2 {listed}", brand="nvidia")).status is status


def test_without_nvml_the_branch_tells_what_its_drivers_offer() -> None:
    assert judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.0", nvml=False)).status is Status.PASS
    assert judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.2", nvml=False)).status is Status.WARN


def test_an_image_that_states_nothing_is_remarked_only_beyond_its_major_version() -> None:
    same = judged(container("CUDA_VERSION=13.2.0"))
    assert same.status is Status.PASS and "minor-version compatibility" in same.summary
    assert judged(container("CUDA_VERSION=12.2.0")).status is Status.PASS
    (beyond,) = run_node(fixture("cuda-12.4-image-on-driver-470")).result("workload.requirements-met").findings
    assert (
        beyond.status is Status.WARN and "its image is made for CUDA 12.4 (CUDA_VERSION), and driver" in beyond.summary
    )


def test_a_version_that_the_hook_cannot_read_is_no_pass() -> None:
    found = judged(container("CUDA_VERSION=cu121"))
    assert found.status is Status.SKIP and "CUDA_VERSION=cu121 is no version" in found.summary


@pytest.mark.parametrize("condition", ["driver<560", "cuda<13", "arch>=10.0", "brand=geforce"])
def test_what_no_newer_driver_meets_calls_for_none(condition: str) -> None:
    found = judged(container(f"NVIDIA_REQUIRE_CUDA={condition}"))
    assert found.status is Status.WARN and condition in found.summary
    assert [remedy.action.value for remedy in found.remedies] == ["change-workload"]
    assert "earlier CUDA" not in found.remedies[0].say


def test_minor_versions_work_together_only_from_cuda_11_on() -> None:
    said = "".join(step.say for step in for_requirement("cuda>=10.2", "10.1"))
    assert "DISABLE_REQUIRE" not in said and "DISABLE_REQUIRE" in str(for_requirement("cuda>=11.8", "11.4"))


def test_what_a_verdict_hangs_on_is_named() -> None:
    unsure = judged(container("NVIDIA_REQUIRE_CUDA=cuda>=13.2 brand=tesla,driver>=580", nvml=False))
    assert unsure.status is Status.UNKNOWN and "hangs on brand" in unsure.summary


def test_what_cannot_be_read_is_said() -> None:
    found = judged(container("NVIDIA_REQUIRE_CUDA=cuda >= 12.4"))
    assert found.status is Status.WARN and "cannot read" in found.summary


def test_a_container_without_a_gpu_is_asked_nothing() -> None:
    node = GpuNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=13.2", nodes={})
    node.rules()
    assert judged(node).status is Status.SKIP


def test_an_environment_that_is_hidden_is_unknown() -> None:
    from gpudoctor.sources.recorded import Record

    node = GpuNode()
    node.container()
    node.rules()
    node.tree.put("/proc/702/environ", Record(error="EACCES"))
    assert judged(node).status is Status.UNKNOWN
