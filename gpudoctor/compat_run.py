"""One run of `gpudoctor compat`: look at the node for what was not given, judge, and say what another driver or GPU would change.

No check runs. The node's containers are looked at for their CUDA runtimes and for what their images demand.
"""

import datetime
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor import __version__
from gpudoctor.compat import (
    SCHEMA,
    Compat,
    ContainerAnswer,
    DriverWords,
    FrameworkAnswer,
    Host,
    ImageAnswer,
    NodeWords,
    Reach,
    TableDate,
    ToolkitAnswer,
    WhatIf,
)
from gpudoctor.compatibility.judging import cuda_offered, judge_cuda
from gpudoctor.compatibility.node import Seen, asked_gpu, look
from gpudoctor.config import Config, ConfigError, nearest
from gpudoctor.facts.cuda_toolkits import CudaToolkits
from gpudoctor.facts.raw import Raw
from gpudoctor.knowledge.cuda_toolkits import minor_versions
from gpudoctor.knowledge.driver_branches import Life, State, life, newer_than_known, release_of, supported_on
from gpudoctor.knowledge.version_numbers import minor_of


class Asked(Struct, frozen=True):
    """The words of the command line."""

    driver: str | None = None
    cuda: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()


def compat(raw: Raw, config: Config, asked: Asked, now: datetime.datetime) -> Compat:
    """What runs on the node, or on the driver and the GPUs that were asked for. Raises ConfigError where there is nothing to judge."""
    _refuse_unusable(asked)
    seen = look(raw, config)
    host = _host(seen, asked)
    if not host.driver and not host.gpus and not (asked.cuda or asked.images or asked.frameworks):
        here = (
            "the Windows driver did not answer (WSL2)"
            if seen.windows
            else "no driver is loaded here and no GPU was seen"
        )
        raise ConfigError(f"nothing to judge: {here}; say --driver VERSION, --gpu NAME or --cuda VERSION")
    return Compat(
        schema=SCHEMA,
        version=__version__,
        started_at=now.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        node=NodeWords(seen.host.hostname, raw.kind.value, seen.host.os, seen.host.kernel, seen.driver),
        host=host,
        driver=_driver(host, seen, now.date()) if host.driver else None,
        cuda=tuple(judge_cuda(cuda, host) for cuda in minor_versions()),
        toolkits=_toolkits(seen.toolkits, host),
        containers=_containers(seen, host),
        asked=tuple(judge_cuda(cuda, host) for cuda in asked.cuda),
        images=_images(asked, host),
        frameworks=_frameworks(asked, host),
        what_if=_what_if(seen, host, asked),
        notes=tuple(_notes(seen, host, asked)),
        unseen=seen.unseen,
        tables=_reach(),
    )


# What not every run needs is loaded when it is needed: the command costs little more than reading the node.


def _refuse_unusable(asked: Asked) -> None:
    """Raises ConfigError for words of which nothing could be made."""
    if asked.driver is not None and not release_of(asked.driver):
        raise ConfigError(f"--driver takes a version such as 580.178.04, or a branch such as 580: not {asked.driver!r}")
    if not all(word.strip() for word in asked.gpus):
        raise ConfigError("--gpu takes a GPU's name, or its compute capability as sm_90 or 9.0: not ''")
    if not asked.images and not asked.frameworks:
        return
    from gpudoctor.compatibility.asked import refuse_other_words, split_framework
    from gpudoctor.knowledge.frameworks import FRAMEWORKS, releases

    for text in asked.images:
        refuse_other_words(text)
    for name, _ in map(split_framework, asked.frameworks):
        if not releases(name):
            raise ConfigError(f"there is no framework {name!r} in the table{nearest(name, tuple(FRAMEWORKS))}")


def _containers(seen: Seen, host: Host) -> tuple[ContainerAnswer, ...]:
    if not seen.containers:
        return ()
    from gpudoctor.compatibility.containers import judged

    return tuple(judged(one, host) for one in seen.containers)


def _images(asked: Asked, host: Host) -> tuple[ImageAnswer, ...]:
    if not asked.images:
        return ()
    from gpudoctor.compatibility.asked import judge_image

    return tuple(judge_image(text, host) for text in asked.images)


def _frameworks(asked: Asked, host: Host) -> tuple[FrameworkAnswer, ...]:
    if not asked.frameworks:
        return ()
    from gpudoctor.compatibility.asked import judge_framework

    return tuple(answer for word in asked.frameworks for answer in judge_framework(word, host))


def _what_if(seen: Seen, host: Host, asked: Asked) -> WhatIf | None:
    """From the node as it is to another host; None where it is the same, or the node has no driver."""
    before = Host(seen.driver, seen.driver_cuda, seen.gpus, seen.windows)
    if before == host or not before.driver:
        return None
    from gpudoctor.compatibility.changes import what_if

    return what_if(seen, (before, host), asked.cuda, asked.images, asked.frameworks)


def _host(seen: Seen, asked: Asked) -> Host:
    """What was asked for goes before what the node has; NVML's word counts for the node's own driver only."""
    other = asked.driver is not None and asked.driver.strip() != (seen.driver or "")
    return Host(
        driver=asked.driver.strip() if asked.driver is not None else seen.driver,
        driver_cuda=None if other else seen.driver_cuda,
        gpus=tuple(asked_gpu(word) for word in asked.gpus) or seen.gpus,
        windows=seen.windows,
    )


def _toolkits(toolkits: CudaToolkits | None, host: Host) -> tuple[ToolkitAnswer, ...]:
    found = toolkits.toolkits if toolkits is not None else ()
    return tuple(ToolkitAnswer(one.path, one.version, judge_cuda(one.version, host)) for one in found)


# Words about the driver -----------------------------------------------------------------------------------------------


def _driver(host: Host, seen: Seen, day: datetime.date) -> DriverWords:
    version = host.driver or ""
    found = life(version, day, windows=host.windows)
    asked_nvml = host.driver_cuda is not None
    return DriverWords(
        version=version,
        branch=found.branch.number if found.branch is not None else None,
        kind=found.branch.kind.value if found.branch is not None else "",
        cuda=cuda_offered(host),
        cuda_from=(seen.cuda_from if asked_nvml else "the table of branches") if cuda_offered(host) else "",
        state=found.state.value,
        until=found.until,
        newer_than_tables=None if host.windows else newer_than_known(version),
        says=_life(found, day),
    )


def _life(found: Life, day: datetime.date) -> str:
    branch = found.branch
    if branch is None:
        return found.why
    kept = ", ".join(str(one.number) for one in supported_on(day))
    begin = f"{branch.kind.value} {branch.number}"
    match found.state:
        case State.SUPPORTED:
            return f"{begin}, gets fixes{f' until {found.until}' if found.until else ''}"
        case State.SUPERSEDED:
            taken = f" since {found.next.number} is out" if found.next is not None else ""
            return f"{begin}, gets no fixes{taken}; those that do: {kept}"
        case State.ENDED:
            return f"{begin}, ended {'by ' if branch.by else ''}{found.until}; branches with fixes: {kept}"
        case State.UNKNOWN:
            return f"{begin}: {found.why}"


def _notes(seen: Seen, host: Host, asked: Asked) -> Iterator[str]:
    """What a reader should know of the input: what was assumed, and what does not fit together."""
    if not host.driver:
        yield "no driver is loaded here and none was given (--driver): only what each version needs can be said"
    if not host.gpus:
        yield "no GPU is known (--gpu): whether a driver drives it and a toolkit has code for it is not judged"
    table = cuda_offered(Host(host.driver, windows=host.windows))
    if host.driver_cuda is not None and table is not None and minor_of(table) != minor_of(host.driver_cuda):
        yield (
            f"{seen.cuda_from} tells CUDA {host.driver_cuda}, and drivers of this branch offer {table}: "
            "another libcuda than the driver's own answered, as of a package for forward compatibility"
        )
    for word, gpu in zip(asked.gpus, host.gpus, strict=False):
        if gpu.cc is None:
            yield f"the table of GPUs has no {word!r}, or several of that name: --gpu sm_NN says its compute capability"
        elif gpu.architecture is None:
            yield f"the table of compute capabilities has no {gpu.cc}: which drivers and toolkits it takes is not known"
    if host.driver and not host.windows and newer_than_known(host.driver):
        yield f"driver {host.driver} is newer than the tables, which end with branch {_reach().newest_branch}"


def _reach() -> Reach:
    from gpudoctor.knowledge.table_dates import tables

    dated = tables()
    return Reach(
        oldest=dated.oldest,
        newest_branch=dated.newest_branch,
        newest_cuda=minor_versions()[-1],
        tables=tuple(TableDate(one.name, one.as_of, one.source) for one in dated.tables),
    )
