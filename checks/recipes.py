"""What containers were started with: recipes that do not work, requirements of images, and the driver capabilities they name."""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_variables import CAPABILITIES, CUDA_VISIBLE, Variables
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.toolkit_config import ToolkitConfig, ToolkitFile
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.facts.workload_recipes import WorkloadRecipes
from gpudoctor.facts.workload_requirements import Demands, WorkloadRequirements, environment_of
from gpudoctor.knowledge import requirement_remedies as remedies
from gpudoctor.knowledge.cuda_requirements import (
    CUDA_VERSION,
    DISABLE,
    REQUIRE_CUDA,
    Judged,
    Outcome,
    Requirement,
    is_legacy,
)
from gpudoctor.knowledge.myths import MISSPELT, TRUTHS
from gpudoctor.knowledge.toolkit_config import CAPABILITIES as HANDED_OUT
from gpudoctor.knowledge.toolkit_config import REQUIRE_OFF
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Cited,
    Evidence,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

_LIFTS = "NVIDIA_DISABLE_REQUIRES"
_SHOWN = 3


# recipes ------------------------------------------------------------------------------------------------------------


@check(
    "workload.recipes-sound",
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    title="No container relies on a recipe that does not work",
)
def recipes_sound(workloads: GpuWorkloads, recipes: WorkloadRecipes, requirements: WorkloadRequirements) -> Verdicts:
    """Recipes go round that promise MPS, a limit of memory or a GPU, and do nothing: what was hoped for is missing later, elsewhere.

    Looks at the variables a container was started with and at what it has: names that nothing of NVIDIA's reads (NVIDIA_MPS,
    CUDA_MAX_CONNECTIONS, misspelt ones), an index in CUDA_VISIBLE_DEVICES that only the node has, --privileged instead of asking for
    GPUs, and a pod that got GPUs by its image's NVIDIA_VISIBLE_DEVICES=all and not from the kubelet. Variables of other programs are
    theirs; what images of CUDA, Slurm, MPS and the device plugin set is as it should be. Pods that manage or watch GPUs see all of
    them on purpose.
    """
    for one in workloads:
        said, where = recipes.environments[one.workload.key]
        found = recipes.by_key[one.workload.key]
        told = [each for each in found if not _told_elsewhere(each.words, requirements.by_key[one.workload.key])]
        if told:
            first = told[0]
            words = "; ".join(
                f"{each.words}{f': {truth}' if (truth := TRUTHS[each.myth].words) else ''}" for each in told
            )
            evidence = tuple(dict.fromkeys(seen for each in told for seen in each.evidence))
            steps = tuple(dict.fromkeys(step for each in told for step in TRUTHS[each.myth].remedies))
            links = tuple(dict.fromkeys(link for each in told for link in TRUTHS[each.myth].references))
            summary = f"{one.workload.title}: {words}"
            yield Warn(one, summary, evidence, steps, cause=first.myth.value, references=links)
        elif not isinstance(said, Variables):
            yield _environment_unread(one, said)
        elif found:
            reason = f"{one.workload.title}: {found[0].words}, see workload.requirements-met"
            yield NotApplicable(one, reason, found[0].evidence)
        elif not said:
            yield NotApplicable(one, f"{one.workload.title} was started with no variable about GPUs")
        else:
            words = "nothing that it was started with is a recipe known not to work"
            yield Pass(one, f"{one.workload.title}: {words}", (_listed(said, where),))


def _told_elsewhere(words: str, demands: Demands | Absent | Unread) -> bool:
    """What should lift a requirement is told beside the requirement."""
    return words.startswith(f"{_LIFTS} ") and isinstance(demands, Demands) and bool(_unmet(demands))


def _listed(said: Variables, where: str) -> Evidence:
    names = list(dict.fromkeys(name for name, _ in said.pairs))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Evidence(where, f"sets {', '.join(names[:_SHOWN])}{more}")


def _environment_unread(one: GpuWorkload, said: Absent | Unread) -> Verdict:
    if isinstance(said, Unread):
        return said.about(one)
    return NotApplicable(one, f"{one.workload.title} has ended", (said.evidence,))


# requirements -------------------------------------------------------------------------------------------------------


@check(
    "workload.requirements-met",
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    needs={Link.DRIVER_CUDA},
    title="The driver meets what each image requires",
)
def requirements_met(
    workloads: GpuWorkloads,
    requirements: WorkloadRequirements,
    platform: Reading[PlatformGpu],
    toolkit: Reading[ToolkitConfig],
) -> Verdicts:
    """An image says which driver it needs; where that is not met, the toolkit refuses to start it: "unsatisfied condition: cuda>=12.8".

    Judges NVIDIA_REQUIRE_* as libnvidia-container does: blank is or, comma is and, once for each GPU, so that brand=tesla,driver>=550 may
    let in what cuda>=12.8 alone would not. Whoever runs got past it: by CDI, where nobody looks, or before the driver was
    changed; started by --gpus or in legacy mode it would be refused. That CUDA may work all the same (minor-version
    compatibility) is what NVIDIA_DISABLE_REQUIRE=true says. An image with CUDA_VERSION alone states nothing: of it only
    a major version that the driver does not run is remarked.
    """
    apart = None if isinstance(platform, Unread) else platform.kind
    for one in workloads:
        demands = requirements.by_key[one.workload.key]
        if apart is not None:
            yield NotApplicable(one, f"{apart.value} has rules of its own")
        elif not isinstance(demands, Demands):
            yield _environment_unread(one, demands)
        elif isinstance(one.devices, Devices) and not one.devices.minors and one.only_image:
            yield NotApplicable(one, f"{one.workload.title} has no GPU, nobody looks at its requirements")
        elif not demands.judged:
            yield NotApplicable(one, f"{one.workload.title}: its image requires nothing of the driver")
        elif (lifted := _lifted_by_file(toolkit)) is not None:
            reason = f"{one.workload.title}: {REQUIRE_OFF} = true in {lifted.where} lifts what images require"
            yield NotApplicable(one, reason, (lifted,))
        else:
            yield _judge_demands(one, demands, requirements)


def _lifted_by_file(toolkit: Reading[ToolkitConfig]) -> Evidence | None:
    file = _configured(toolkit)
    return file.says(REQUIRE_OFF) if file is not None and file.value(REQUIRE_OFF) is True else None


def _configured(toolkit: Reading[ToolkitConfig]) -> ToolkitFile | None:
    return None if isinstance(toolkit, Unread) else toolkit.default or toolkit.operators


def _judge_demands(one: GpuWorkload, demands: Demands, here: WorkloadRequirements) -> Verdict:
    title = one.workload.title
    stated = [requirement for requirement, _ in demands.judged]
    cited: Cited = (*(demands.stated(requirement.variable) for requirement in stated[:_SHOWN]), *here.offered)
    if demands.lifted:
        said = demands.stated(DISABLE)
        return Pass(one, f"{title}: {DISABLE} lifts what its image requires", (said, *cited))
    if unmet := _unmet(demands):
        return _warn(one, demands, unmet[0], here)
    unsure = next((each for each in demands.judged if each[1].outcome is Outcome.UNKNOWN), None)
    if unsure is not None:
        requirement, judged = unsure
        words = f"hangs on {' and '.join(judged.untold)}, and that is not known"
        return Unknown(one, Why.NOT_ANSWERED, f"{title}: whether {requirement.text[:80]} is met {words}", cited)
    if not cited or not here.offered:
        return NotApplicable(one, f"{title}: its image requires nothing of the driver")
    if any(requirement.derived and judged.outcome is Outcome.INVALID for requirement, judged in demands.judged):
        version = (demands.variables.get(CUDA_VERSION) or "")[:60]
        words = (
            f"{CUDA_VERSION}={version} is no version; the toolkit's hook refuses a container with it, CDI does not look"
        )
        return NotApplicable(one, f"{title}: {words}", cited)
    if any(requirement.derived and judged.outcome is Outcome.UNMET for requirement, judged in demands.judged):
        summary = f"{title}: CUDA {demands.variables.get(CUDA_VERSION)} runs on a driver of CUDA {here.cuda} (minor-version compatibility)"
        return Pass(one, summary, cited)
    return Pass(one, f"{title}: driver {here.driver} with CUDA {here.cuda} meets what its image requires", cited)


def _unmet(demands: Demands) -> list[tuple[Requirement, Judged]]:
    """Those that count: of one that the image does not state, only what no driver of this major version runs."""
    bad = (Outcome.UNMET, Outcome.INVALID)
    return [
        (requirement, judged)
        for requirement, judged in demands.judged
        if judged.outcome in bad and not (requirement.derived and not demands.beyond)
    ]


def _warn(one: GpuWorkload, demands: Demands, first: tuple[Requirement, Judged], here: WorkloadRequirements) -> Warn:
    requirement, judged = first
    condition = judged.condition.text if judged.condition is not None else requirement.text
    evidence = (demands.stated(requirement.variable), *here.offered)
    steps: tuple[Remedy, ...]
    if judged.outcome is Outcome.INVALID:
        words = f"{requirement.variable} holds {condition[:60]!r}, which libnvidia-container cannot read"
        steps = (remedies.spell_requirement(),)
    else:
        words = f"{_wants(requirement, condition)}, and driver {here.driver} offers CUDA {here.cuda}"
        if not condition.startswith("cuda"):
            words = f"its image requires {condition}, which driver {here.driver} with CUDA {here.cuda} does not meet"
        steps = remedies.for_requirement(condition, here.cuda)
    summary = f"{one.workload.title}: {words}"
    misspelt = demands.variables.get(_LIFTS)
    if misspelt is not None:
        summary += f"; {_LIFTS} lifts nothing, {MISSPELT[_LIFTS]} is the name"
        evidence = (*evidence, demands.stated(_LIFTS))
    return Warn(one, summary, evidence, steps, cause=f"requires {condition[:60]}", references=(remedies.REQUIREMENTS,))


def _wants(requirement: Requirement, condition: str) -> str:
    """An image that states nothing still says by a variable which CUDA it holds."""
    if requirement.derived:
        return f"its image is made for CUDA {condition.removeprefix('cuda>=')} ({requirement.variable})"
    return f"its image requires {condition}"


# capabilities -------------------------------------------------------------------------------------------------------


@check(
    "workload.capabilities-known",
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    title="NVIDIA_DRIVER_CAPABILITIES names what there is",
)
def capabilities_known(workloads: GpuWorkloads, toolkit: Reading[ToolkitConfig]) -> Verdicts:
    """The capabilities say which of the driver's libraries are mounted; a word that is none stops the container in legacy mode.

    Known are compute, compat32, graphics, utility, video, display and ngx; beside all nothing else is read, and none is no capability.
    Unset means compute and utility. With CDI only graphics and display are looked for, and a slip shows where the same container is
    started another way. utility alone gives nvidia-smi and
    no libcuda, which is right for monitoring: remarked only where CUDA_VISIBLE_DEVICES shows that CUDA is wanted. A
    container without utility lacks nvidia-smi, and computes all the same.
    """
    configured = _configured(toolkit)
    for one in workloads:
        said, where = environment_of(one)
        if not isinstance(said, Variables):
            yield _environment_unread(one, said)
        elif not (value := said.get(CAPABILITIES)):
            yield NotApplicable(one, f"{one.workload.title}: {_unset(said)}")
        else:
            yield _judge_capabilities(one, said, value, where, configured)


def _unset(said: Variables) -> str:
    """What is handed out then: to an image of the time before requirements everything (getDriverCapabilities)."""
    if said.get(CAPABILITIES) is None and is_legacy(dict(said.pairs)):
        return f"{CAPABILITIES} is not set, which means all for an image with {CUDA_VERSION} and no {REQUIRE_CUDA}"
    return f"{CAPABILITIES} is not set, which means compute and utility"


def _judge_capabilities(
    one: GpuWorkload, said: Variables, value: str, where: str, configured: ToolkitFile | None
) -> Verdict:
    title, seen = one.workload.title, Evidence(where, f"{CAPABILITIES}={value}")
    words = [word.strip() for word in value.split(",") if word.strip()]
    if "all" in words:
        return Pass(one, f"{title}: {value} stands for every driver capability that is handed out", (seen,))
    strange = [word for word in words if word not in remedies.CAPABILITIES]
    if strange:
        known = ", ".join(remedies.CAPABILITIES)
        summary = f"{title}: {', '.join(strange)} {'is' if len(strange) == 1 else 'are'} no driver capability; known are {known}, and all"
        return Warn(one, summary, (seen,), (remedies.known_capabilities(),), cause="unknown-capability")
    allowed = configured.value(HANDED_OUT) if configured is not None else None
    handed_out = [word.strip() for word in allowed.split(",")] if isinstance(allowed, str) else ["all"]
    refused = [word for word in words if word not in handed_out] if "all" not in handed_out else []
    if refused and configured is not None:
        summary = f"{title}: {', '.join(refused)} is not among the capabilities that this node's toolkit hands out"
        return Warn(
            one, summary, (seen, configured.says(HANDED_OUT)), remedies.handed_out(), cause="refused-capability"
        )
    if _wants_cuda_without_compute(one, said, words):
        summary = f"{title}: {CUDA_VISIBLE} is set for CUDA, and {value} gives no libcuda: that takes compute"
        evidence = (seen, Evidence(where, f"{CUDA_VISIBLE}={said.get(CUDA_VISIBLE)}"))
        return Warn(one, summary, evidence, (remedies.with_compute(),), cause="no-compute")
    return Pass(one, f"{title}: {value} are driver capabilities", (seen,))


def _wants_cuda_without_compute(one: GpuWorkload, said: Variables, words: list[str]) -> bool:
    """Only where the driver's libraries are seen to be mounted, and libcuda is not among them."""
    value = said.get(CUDA_VISIBLE)
    if not value or value in ("-1", "void", "none", "NoDevFiles") or "compute" in words:
        return False
    libraries = one.devices.libraries if isinstance(one.devices, Devices) else ()
    return bool(libraries) and all(library.name != "libcuda" for library in libraries)
