"""Container toolkit: do the engines' configurations lead to an NVIDIA runtime?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.docker import DAEMON_JSON, DockerConfig, DockerRuntime
from gpudoctor.knowledge.engine_remedies import INSTALL_TOOLKIT
from gpudoctor.registry import check
from gpudoctor.verdicts import Action, Breaks, Fail, NotApplicable, Pass, Remedy, Unread, Verdict, Verdicts, Warn

VALIDATE = Remedy(
    Action.CHANGE_CONFIG,
    "Correct the file and have dockerd check it before restarting anything.",
    run=(f"python3 -m json.tool {DAEMON_JSON}", f"dockerd --validate --config-file {DAEMON_JSON}"),
    confirm="gpudoctor run --check toolkit.docker-runtime",
)
CONFIGURE = Remedy(
    Action.CHANGE_CONFIG,
    "Let the toolkit write its runtime into the file.",
    run=("nvidia-ctk runtime configure --runtime=docker",),
    confirm=f"dockerd --validate --config-file {DAEMON_JSON}",
)
RESTART = Remedy(
    Action.RESTART_SERVICE,
    "Only when dockerd has validated the file: restart Docker so that it reads it.",
    run=("systemctl restart docker",),
    interrupts="every running container, unless live-restore is on",
    confirm="docker info lists the nvidia runtime",
    then=True,
)

STOCK_RUNTIMES = ("runc", "io.containerd.runc.v2")
"""Runtimes that dockerd knows by itself."""


@check("toolkit.docker-runtime", link=Link.TOOLKIT, title="Docker's daemon.json parses and its nvidia runtime exists")
def docker_runtime(docker: DockerConfig) -> Verdicts:
    """Docker starts GPU containers through what /etc/docker/daemon.json says, and not at all when that file does not parse.

    Reads the file at its default location and looks for each NVIDIA runtime's program where dockerd would. It needs neither
    driver nor GPU, so it tells of a broken file also on a node whose driver is dead. A file without an nvidia runtime
    breaks nothing by itself, `docker run --gpus` finds the toolkit's hook without it; where the toolkit is installed it is remarked,
    because `--runtime=nvidia` needs the entry. What the
    running daemon has loaded can differ from the file: it reads it when it starts.
    """
    if docker.installed is False:
        yield NotApplicable(docker, "Docker is not installed", docker.cite("installed"))
    elif isinstance(docker.syntax_error, Unread):
        yield docker.syntax_error.about(docker)
    elif docker.syntax_error is not None:
        summary = f"{DAEMON_JSON} does not parse: {docker.syntax_error}"
        yield Fail(docker, summary, docker.cite("file"), (VALIDATE, RESTART), Breaks.SUBJECT, cause="syntax")
    else:
        yield from _judge(docker) or [_without_runtime(docker)]


def _judge(docker: DockerConfig) -> list[Verdict]:
    verdicts = list(_default_runtime(docker))
    for runtime in docker.runtimes.values():
        if runtime.refused is not None:
            summary = f"runtime {runtime.name!r} {runtime.refused}: dockerd does not start with it"
            evidence = runtime.cite("program")
            verdicts.append(Fail(docker, summary, evidence, (VALIDATE, RESTART), Breaks.SUBJECT, cause="refused"))
        elif _is_nvidia(runtime):
            verdicts.append(_program(docker, runtime))
    return verdicts


def _is_nvidia(runtime: DockerRuntime) -> bool:
    return "nvidia" in runtime.name or "nvidia" in (runtime.program or "")


def _default_runtime(docker: DockerConfig) -> Iterator[Verdict]:
    """dockerd refuses to start when its default runtime is not among the runtimes (moby, daemon/runtime_unix.go)."""
    default = docker.default_runtime
    if default and default not in docker.runtimes and default not in STOCK_RUNTIMES and not _is_shim(default):
        summary = f"default-runtime is {default!r}, which runtimes does not define"
        yield Fail(
            docker, summary, docker.cite("file"), (CONFIGURE, RESTART), Breaks.SUBJECT, cause="default-undefined"
        )


def _is_shim(name: str) -> bool:
    """A containerd shim may be named without an entry if its name has a dot inside and no slash (moby, same file)."""
    return "." in name.strip(".") and "/" not in name and not name.startswith(".")


def _program(docker: DockerConfig, runtime: DockerRuntime) -> Verdict:
    evidence = runtime.cite("program") + runtime.searched
    if isinstance(runtime.executable, Unread):
        return runtime.executable.about(docker)
    if runtime.executable:
        return Pass(docker, f"runtime {runtime.name!r} is {runtime.program}", docker.cite("file") + evidence)
    if runtime.program is None:
        summary = f"runtime {runtime.name!r} is a plain shim: it names no NVIDIA program"
        return Fail(docker, summary, evidence, (CONFIGURE, RESTART), Breaks.SUBJECT, cause="program")
    summary = f"runtime {runtime.name!r} names {runtime.program}, which is not an executable file"
    return Fail(docker, summary, evidence, (INSTALL_TOOLKIT, CONFIGURE, RESTART), Breaks.SUBJECT, cause="program")


def _without_runtime(docker: DockerConfig) -> Verdict:
    if isinstance(docker.installed, Unread):
        return docker.installed.about(docker)
    if isinstance(docker.toolkit_runtime, Unread):
        return docker.toolkit_runtime.about(docker)
    evidence = docker.cite("file") + docker.searched
    if docker.toolkit_runtime is None:
        return NotApplicable(docker, "Docker names no nvidia runtime and the toolkit is not installed", evidence)
    summary = "the toolkit is installed but daemon.json names no nvidia runtime: --runtime=nvidia will not work"
    return Warn(docker, summary, evidence, (CONFIGURE, RESTART), cause="no-runtime")
