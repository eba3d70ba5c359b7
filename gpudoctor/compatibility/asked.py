"""Whether an image's requirements are met on a host, and how the releases of a framework run on it."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from gpudoctor.compat import Code, Demand, FrameworkAnswer, Gpu, Host, How, ImageAnswer, OfGpu, WheelAnswer
from gpudoctor.compatibility.judging import cuda_offered, judge_cuda, offer_of
from gpudoctor.config import ConfigError
from gpudoctor.knowledge.compute_capabilities import Runs, compiles, runs
from gpudoctor.knowledge.cuda_requirements import (
    CUDA_VERSION,
    DISABLE,
    NAMED_BRANDS,
    REQUIRE,
    REQUIRE_CUDA,
    UNKNOWN_BRAND,
    Expression,
    Judged,
    Outcome,
    Provided,
    Requirement,
    evaluate,
    is_true,
    parse,
    requirements_of,
)
from gpudoctor.knowledge.driver_branches import branch_of
from gpudoctor.knowledge.frameworks import ALIASES, Nearest, Release, Wheel, release, releases, wheel_tag
from gpudoctor.knowledge.version_numbers import minor_of

_VARIABLE = rf"(?:^|\s)({REQUIRE}\w+|{DISABLE}|{CUDA_VERSION})="
_WORST = (Outcome.INVALID, Outcome.UNMET, Outcome.UNKNOWN, Outcome.MET)


# Images ---------------------------------------------------------------------------------------------------------------


def variables_in(text: str) -> dict[str, str]:
    """`NVIDIA_REQUIRE_X=…` words by name; what stands before the first, or alone, is the value of NVIDIA_REQUIRE_CUDA."""
    found = list(re.finditer(_VARIABLE, text))
    first = text[: found[0].start()] if found else text
    said = {REQUIRE_CUDA: first.strip()} if first.strip() else {}
    ends = [*(one.start() for one in found[1:]), len(text)]
    return said | {one[1]: text[one.end() : end].strip() for one, end in zip(found, ends, strict=False)}


def refuse_other_words(text: str) -> None:
    """Raises ConfigError for what is no requirement but, as a rule, an image's name."""
    if text.strip() and not re.search(r"[<>=!]", text):
        raise ConfigError(
            f"--image takes what an image demands, not its name: {text!r} compares nothing; see NVIDIA_REQUIRE_CUDA in "
            "docker image inspect -f '{{range .Config.Env}}{{println .}}{{end}}' IMAGE"
        )


def judge_image(text: str, host: Host) -> ImageAnswer:
    """What becomes of the requirements in `--image`."""
    said = variables_in(text)
    return judge_demands(text, requirements_of(said), host, lifted=is_true(said.get(DISABLE)))


def judge_demands(asked: str, requirements: Sequence[Requirement], host: Host, *, lifted: bool) -> ImageAnswer:
    """What becomes of requirements for each GPU; the worst of all decides whether the container is started."""
    demands = tuple(_demand(requirement, host) for requirement in requirements)
    if not demands:
        return ImageAnswer(asked, Outcome.MET, "it demands nothing of the driver", (), lifted)
    worst = min(demands, key=lambda one: _WORST.index(one.outcome))
    requirement = requirements[demands.index(worst)]
    return ImageAnswer(asked, worst.outcome, _why(worst, requirement.expression, host), demands, lifted)


def _demand(requirement: Requirement, host: Host) -> Demand:
    each = [(gpu, _judged(requirement, _provided(host, gpu))) for gpu in host.gpus]
    # Without a GPU that is known, whatever hangs on one is not known either.
    pairs: list[tuple[str | None, Judged]] = [(gpu.address or gpu.name or gpu.cc, judged) for gpu, judged in each]
    pairs = pairs or [(None, _judged(requirement, _provided(host, None)))]
    answers = tuple(
        OfGpu(gpu, judged.outcome, judged.condition.text if judged.condition else "", judged.untold)
        for gpu, judged in pairs
    )
    worst = min((one.outcome for one in answers), key=_WORST.index)
    return Demand(requirement.variable, requirement.text, worst, answers)


def _judged(requirement: Requirement, provided: Provided) -> Judged:
    """Newer brands go by their names or as unknown, by release of libnvidia-container: what hangs on that is not known."""
    judged = evaluate(requirement.expression, provided)
    if provided.brand in (None, *NAMED_BRANDS, UNKNOWN_BRAND):
        return judged
    other = evaluate(requirement.expression, replace(provided, brand=UNKNOWN_BRAND))
    return judged if judged.outcome is other.outcome else Judged(Outcome.UNKNOWN, untold=("brand",))


def _provided(host: Host, gpu: Gpu | None) -> Provided:
    driver = host.driver
    if driver and "." not in driver:
        branch = branch_of(driver, windows=host.windows)
        driver = (branch.latest if branch is not None else "") or None
    return Provided(
        cuda=cuda_offered(host),
        driver=driver or None,
        arch=gpu.cc if gpu is not None else None,
        brand=gpu.brand if gpu is not None else None,
    )


def _why(demand: Demand, expression: Expression, host: Host) -> str:
    index, one = min(enumerate(demand.gpus), key=lambda pair: _WORST.index(pair[1].outcome))
    gpu = host.gpus[index] if host.gpus else None
    match demand.outcome:
        case Outcome.MET:
            return f"{demand.variable} is met"
        case Outcome.INVALID:
            return f"{demand.variable} holds {one.condition!r}, which cannot be read: the container is refused"
        case Outcome.UNKNOWN:
            return f"{demand.variable} hangs on {_untold(one, gpu)}{_for_brands(expression, host, gpu)}"
        case Outcome.UNMET:
            alike = len({(other.outcome, other.condition) for other in demand.gpus}) == 1
            of = f" for {one.gpu}" if one.gpu and not alike else ""
            others = sum(1 for row in expression.alternatives if row) - 1
            nor = f"; {'its other alternative is' if others == 1 else f'its {others} other alternatives are'} not met either"
            why = f"{demand.variable} demands {one.condition}{of}: {_have(one.condition, host, gpu)}"
            return f"{why}{nor if others else ''}{_for_brands(expression, host, gpu)}"


_IN_WORDS = {
    "cuda": "the driver's CUDA version",
    "driver": "the driver's version",
    "arch": "the GPU's compute capability",
    "brand": "the GPU's brand (Product Brand of nvidia-smi -q)",
}


def _have(condition: str, host: Host, gpu: Gpu | None) -> str:
    """What there is instead of what a condition demands."""
    provided = _provided(host, gpu)
    match parse(condition).alternatives[0][0].name:
        case "driver":
            newest = f", taken as its newest release {provided.driver}" if provided.driver != host.driver else ""
            return f"the driver is {host.driver}{newest}"
        case "arch":
            return f"the GPU's compute capability is {provided.arch}"
        case "brand":
            return f"the GPU's brand is {provided.brand}"
        case _:
            return f"the driver ({host.driver or 'unknown'}) offers CUDA {provided.cuda or 'unknown'}"


def _untold(one: OfGpu, gpu: Gpu | None) -> str:
    if gpu is not None and gpu.brand is not None and one.untold == ("brand",):
        return f"what libnvidia-container calls the brand {gpu.brand}: by that name, or {UNKNOWN_BRAND}, by its release"
    *names, last = (_IN_WORDS[name] for name in one.untold)
    return f"{', '.join(names)} and {last}, which are not known here" if names else f"{last}, which is not known here"


def _for_brands(expression: Expression, host: Host, gpu: Gpu | None) -> str:
    """For which other brands it would be met, "" where none is named that helps."""
    named = [one.value.lower() for row in expression.alternatives for one in row if one.name == "brand"]
    provided = _provided(host, gpu)
    helpful = [
        brand
        for brand in dict.fromkeys(named)
        if brand != provided.brand and evaluate(expression, replace(provided, brand=brand)).outcome is Outcome.MET
    ]
    return f"; it would be met for the brand {' or '.join(helpful)}" if helpful else ""


# Frameworks -----------------------------------------------------------------------------------------------------------


def split_framework(word: str) -> tuple[str, str]:
    """`torch==2.9.1+cu128` as framework and version, "" for none; extras, as of `jax[cuda12]`, do not count. Raises ConfigError."""
    found = re.fullmatch(r"([\w.-]+)(?:\[[^\]]*\])?\s*(?:==?\s*([^\s<>=!~,;]*))?", word.strip())
    if found is None:
        raise ConfigError(f"--framework takes a name, or a name and one version, as torch==2.9.1: not {word!r}")
    name = found[1].lower()
    return ALIASES.get(name, name), found[2] or ""


def judge_framework(word: str, host: Host) -> tuple[FrameworkAnswer, ...]:
    """The release that was asked for; without a version the newest, and the newest of which it is known that it runs natively."""
    name, version = split_framework(word)
    if version:
        return (_asked_release(word, name, version, host),)
    rows = releases(name)
    newest = _release(word, rows[-1], "", host)
    native = next((one for row in reversed(rows) if _native(one := _release(word, row, "", host))), None)
    if native is None:
        return (newest,)
    newest = replace(newest, native=native.version)
    return (newest,) if native.version == newest.version else (newest, native)


def _asked_release(word: str, name: str, version: str, host: Host) -> FrameworkAnswer:
    row = release(name, version)
    if isinstance(row, Release):
        return _release(word, row, version, host)
    if isinstance(row, Nearest):
        near = [one.version for one in (row.below, row.above) if one is not None]
        return FrameworkAnswer(
            word, name, version, f"the table has no {name} {version}: the nearest is {' or '.join(near)}"
        )
    return FrameworkAnswer(word, name, version, f"{version!r} is no version such as {releases(name)[-1].version}")


def _native(answer: FrameworkAnswer) -> bool:
    return any(wheel.how is How.NATIVE for wheel in answer.wheels)


def _release(word: str, row: Release, version: str, host: Host) -> FrameworkAnswer:
    """All builds of a release, or the one that the version chooses by `+cu128`."""
    tag = wheel_tag(version)
    wheels = [wheel for wheel in row.wheels if tag is None or wheel.cuda == tag]
    why = (
        f"the row of {row.version} stands for its minor version"
        if version and not version.startswith(row.version)
        else ""
    )
    local = version.partition("+")[2]
    if local and tag is None:
        wheels, why = [], f"+{local} names no build for CUDA; those are for {', '.join(one.cuda for one in row.wheels)}"
    elif not wheels:
        why = f"{row.framework} {row.version} has no build for CUDA {tag}: {', '.join(one.cuda for one in row.wheels)}"
    if row.torch is not None:
        why = "; ".join(part for part in (why, f"it needs PyTorch {row.torch}") if part)
    answers = tuple(_wheel(wheel, row, host) for wheel in wheels)
    return FrameworkAnswer(word, row.framework, version or row.version, why, answers)


def _wheel(wheel: Wheel, row: Release, host: Host) -> WheelAnswer:
    answer = judge_cuda(wheel.cuda, host)
    ccs = dict.fromkeys(gpu.cc for gpu in host.gpus if gpu.cc)
    code = tuple(_code(wheel, cc, host) for cc in ccs)
    how, why = answer.how, answer.why
    lacking = [one for one in code if one.runs is Runs.NO]
    untold = [one for one in code if one.runs is Runs.UNKNOWN]
    if how not in (How.NO, How.UNKNOWN) and lacking:
        how, why = How.NO if len(lacking) == len(code) else how, "; ".join(one.why for one in lacking)
    if how not in (How.NO, How.UNKNOWN) and untold:
        how, why = How.UNKNOWN, f"its CUDA runs ({how.value}), but {untold[0].why}"
    return WheelAnswer(wheel.cuda, wheel.cuda == row.default, how, why, answer, code)


def _code(wheel: Wheel, cc: str, host: Host) -> Code:
    """By the build's own list; where that is not known, by what its documents and its toolkit admit."""
    if wheel.targets is not None:
        found = runs(wheel.targets, cc, _compiles_up_to(host), wheel.cuda)
        return Code(cc, found.runs, found.why)
    least = minor_of(wheel.minimum_cc) if wheel.minimum_cc else None
    own, made = minor_of(cc), compiles(wheel.cuda, cc)
    if least is not None and own is not None and own < least:
        return Code(cc, Runs.NO, f"its documents name compute capability {wheel.minimum_cc} and newer, not {cc}")
    if least is not None and made:
        return Code(cc, Runs.NATIVE, f"by its documents: from compute capability {wheel.minimum_cc} on")
    return Code(cc, Runs.UNKNOWN, f"whether it has code for compute capability {cc} no source tells")


def _compiles_up_to(host: Host) -> str | None:
    """The newest CUDA whose PTX the driver certainly compiles."""
    low = offer_of(host).low
    return f"{low[0]}.{low[1]}" if low is not None else None
