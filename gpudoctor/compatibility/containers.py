"""How a running container does on a host: its CUDA runtime, and what its image demands."""

from gpudoctor.compat import Answer, ContainerAnswer, Host, How
from gpudoctor.compatibility.asked import judge_demands
from gpudoctor.compatibility.judging import judge_cuda
from gpudoctor.compatibility.node import Container
from gpudoctor.knowledge.cuda_toolkits import minor_versions


def judged(one: Container, host: Host) -> ContainerAnswer:
    """A container on a host: of the host's GPUs those that it has, where these are the node's."""
    own = tuple(gpu for gpu in host.gpus if gpu.address in one.gpus)
    inner = Host(host.driver, host.driver_cuda, own or host.gpus, host.windows)
    runtime = one.runtime
    return ContainerAnswer(
        key=one.key,
        title=one.title,
        gpus=one.gpus,
        runtime=runtime.version if runtime is not None else "",
        runtime_from=runtime.evidence.where if runtime is not None else "",
        answer=_runtime(runtime.version, exact=runtime.exact, host=inner) if runtime is not None else None,
        image=judge_demands("", one.requirements, inner, lifted=one.lifted) if one.requirements else None,
    )


def _runtime(version: str, *, exact: bool, host: Host) -> Answer:
    """Of a runtime whose minor version is not known, what holds for all minor versions of its major one."""
    if exact:
        return judge_cuda(version, host)
    minors = [minor for minor in minor_versions() if minor.partition(".")[0] == version]
    answers = [judge_cuda(minor, host) for minor in minors]
    if answers and len({answer.how for answer in answers}) == 1:
        return Answer(version, answers[-1].how, answers[-1].why, answers[-1].limits, answers[-1].needs)
    said = ", ".join(f"{answer.cuda} {answer.how.value}" for answer in answers)
    return Answer(
        version, How.UNKNOWN, f"the minor version of this runtime is not known ({said or 'the table has none'})"
    )
