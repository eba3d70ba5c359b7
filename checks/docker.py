"""Docker: does dockerd take its configuration, and has the running one loaded it and found the toolkit?"""

from collections.abc import Callable, Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.docker import Docker, Dockers, Runtime
from gpudoctor.facts.docker_answer import Told
from gpudoctor.facts.docker_places import is_rootless, is_snap
from gpudoctor.facts.docker_rules import Refused
from gpudoctor.facts.gpu_specs import GPU
from gpudoctor.knowledge.docker_remedies import (
    INSTALL,
    REPLACE_SNAP,
    USE_SNAP,
    configure,
    correct,
    once,
    restart,
    restart_alone,
    take_out,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)


def of_each(dockers: Dockers, judge: Callable[[Docker], Iterator[Verdict]]) -> Iterator[Verdict]:
    if not dockers.dockers:
        yield NotApplicable(dockers, "Docker is not installed", dockers.cite("installed"))
    for one in dockers.dockers:
        yield from judge(one)


@check("toolkit.docker-runtime", link=Link.TOOLKIT, title="Docker's daemon.json parses and its nvidia runtime exists")
def docker_runtime(dockers: Dockers) -> Verdicts:
    """Docker starts GPU containers through what daemon.json says, and does not start at all with a file that it refuses.

    Reads the file that each dockerd reads, by its own command line or by docker.service and its drop-ins, and looks for each NVIDIA
    runtime's program where dockerd would. Refused are broken JSON, keys that this release does not know, values of the wrong kind, and
    what stands both in the file and on the command line ("hosts" beside -H fd:// is the usual one). It needs neither driver nor GPU, so
    it tells of a broken file also on a node whose driver is dead. A file without an nvidia runtime breaks nothing by itself,
    `docker run --gpus` finds the toolkit's hook without it, and CDI needs neither. What the running daemon has loaded can differ
    from the file: another check's matter.
    """
    yield from of_each(dockers, _runtime_verdicts)


def _runtime_verdicts(one: Docker) -> Iterator[Verdict]:
    if isinstance(one.settings, Unread):
        yield one.settings.about(one)
    elif isinstance(one.settings, Refused):
        yield _refused(one, one.settings)
    elif one.nvidia:
        for runtime in one.nvidia:
            yield _program(one, runtime)
    else:
        yield _without_runtime(one)


def _refused(one: Docker, refused: Refused) -> Fail:
    fix = once(one) if refused.cause == "flag-and-file" else correct(one)
    fixes = (fix, configure(one)) if refused.cause == "default-undefined" else (fix,)
    end = "" if refused.cause == "syntax" else ": dockerd does not start with it"
    command = (
        one.cite("command") if "command" in one.read_from and refused.cause in ("flag-and-file", "no-file") else ()
    )
    evidence = (refused.evidence, *command)
    return Fail(
        one, f"{one.path} {refused.said}{end}", evidence, (*fixes, restart(one)), Breaks.SUBJECT, cause=refused.cause
    )


def _program(one: Docker, runtime: Runtime) -> Verdict:
    evidence = (runtime.evidence, *(runtime.program.evidence[:6] if runtime.program is not None else ()))
    default = one.default_runtime == runtime.name
    fixes = (INSTALL, *((take_out(one),) if default else (configure(one),)), restart(one))
    if runtime.program is None:
        summary = f"runtime {runtime.name!r} is a plain shim: it names no NVIDIA program"
        return Fail(one, summary, evidence, fixes, Breaks.SUBJECT, cause="program")
    if isinstance(runtime.program.path, Unread):
        return runtime.program.path.about(one)
    if runtime.program.found:
        return Pass(one, f"runtime {runtime.name!r} is {runtime.names}", one.evidence + evidence)
    summary = f"runtime {runtime.name!r} names {runtime.names}, which is not an executable file"
    if default:
        summary += ". It is the default runtime: no container starts that names no other"
    return Fail(one, summary, evidence, fixes, Breaks.SUBJECT, cause="program")


def _without_runtime(one: Docker) -> Verdict:
    evidence = one.evidence + one.toolkit.evidence
    installed, hook = one.toolkit.installed, one.toolkit.hook.path
    if not installed:
        return NotApplicable(one, "Docker names no nvidia runtime and the toolkit is not installed", evidence)
    if one.daemon is not None and is_snap(one.daemon):
        return NotApplicable(
            one, "the snap of Docker names no nvidia runtime, and does not see the node's toolkit", evidence
        )
    if one.kubelet:
        return NotApplicable(
            one, "Docker names no nvidia runtime; the kubelet's containers do not need one here", evidence
        )
    if isinstance(hook, str):
        return NotApplicable(
            one, "names no nvidia runtime; docker run --gpus needs only the toolkit's hook, which is there", evidence
        )
    by_cdi = one.cdi if one.specs is not None and one.specs.of(GPU) else one.specs and one.specs.unread
    unread = next((found for found in (installed, hook, by_cdi) if isinstance(found, Unread)), None)
    if unread is not None:
        return unread.about(one)
    if one.cdi is True:
        return NotApplicable(one, "names no nvidia runtime; GPUs come by CDI", evidence)
    summary = "the toolkit is installed, but daemon.json names no nvidia runtime, and there is no hook for --gpus"
    return Warn(one, summary, evidence, (configure(one), restart(one)), cause="no-runtime")


@check(
    "toolkit.docker-loaded",
    link=Link.TOOLKIT,
    explained_by=("toolkit.docker-runtime",),
    title="The running dockerd has loaded its configuration and found the toolkit",
)
def docker_loaded(dockers: Dockers) -> Verdicts:
    """dockerd reads its file and looks for the toolkit's hook once, when it starts: what is installed or written later needs a restart.

    Compares the start of the daemon with the last change of its file and with the time at which the toolkit's package was unpacked
    (dpkg's list of it; the programs themselves carry the time of their build). An upgrade of the toolkit is told from a first
    installation by dpkg's log. Where the file is younger and names an nvidia runtime, `docker info` is asked for what the daemon has; else
    that is not known, for a reload (SIGHUP) takes new runtimes too. It also tells when the nvidia runtime stands in
    /etc/docker/daemon.json while dockerd reads another file, as that of the snap, a rootless one, or one started with --config-file.
    A file whose time was changed, not its content, looks the same and is no fault. "could not select device driver "" with
    capabilities: [[gpu]]" is the hook that was not found, and so is, since 29.3, "failed to discover GPU vendor from CDI"
    or "AMD CDI spec not found"; with driver "cdi" it is CDI that is off.
    """
    yield from of_each(dockers, lambda one: iter([_loaded(one, dockers.running)]))


def _loaded(one: Docker, running: Unread | None) -> Verdict:
    if one.daemon is None:
        return running.about(one) if running is not None else NotApplicable(one, "it does not run", one.cite("file"))
    if isinstance(one.settings, Unread):
        return one.settings.about(one)
    if isinstance(one.settings, Refused):
        return NotApplicable(
            one, f"{one.path} is refused: what runs was started with another", one.cite("file", "started")
        )
    if one.elsewhere and not one.nvidia and not one.kubelet:
        return _elsewhere(one)
    if one.nvidia:
        return _loaded_runtimes(one) or _hook(one) or Pass(one, _said(one), _loading(one))
    if one.kubelet:
        return NotApplicable(
            one, "nothing in its configuration concerns GPUs, and the kubelet runs beside it", one.evidence
        )
    if is_snap(one.daemon):
        return NotApplicable(
            one, "the snap of Docker names no nvidia runtime, and does not see the node's toolkit", one.evidence
        )
    return _without_runtimes(one)


def _without_runtimes(one: Docker) -> Verdict:
    installed, hook = one.toolkit.installed, one.toolkit.hook
    if isinstance(installed, Unread) or not installed:
        return (
            installed.about(one)
            if isinstance(installed, Unread)
            else NotApplicable(
                one,
                "nothing in its configuration concerns GPUs, and the toolkit is not installed",
                one.evidence + one.toolkit.evidence,
            )
        )
    late = _hook(one)
    if late is not None:
        return late
    if isinstance(hook.path, Unread):
        return hook.path.about(one)
    if hook.found and one.toolkit.late is None:
        said = (
            "when the toolkit was installed is not known: whether dockerd found its hook when it started is not either"
        )
        return Unknown(one, Why.NOT_RECORDED, said, one.cite("started") + hook.evidence)
    if one.changed is not False and not hook.found:
        return Unknown(
            one, Why.NOT_RECORDED, "when its file changed, or it started, is not known", one.cite("file", "started")
        )
    if one.socket_gone:
        return _no_socket(one)
    if one.settings is None and not hook.found:
        return NotApplicable(
            one, f"there is no {one.path}, and no hook of the toolkit: there is nothing to load", one.evidence
        )
    found = (
        "it found the toolkit's hook when it started"
        if hook.found
        else "its file is older than it is, and names no nvidia runtime"
    )
    return Pass(one, found, (*_loading(one), *one.toolkit.when, *hook.evidence[:1]))


def _loading(one: Docker) -> Cited:
    told = (one.told.evidence,) if isinstance(one.told, Told) else ()
    file = (*one.cite("changed"), *one.evidence) if "changed" in one.read_from else ()
    return (*one.cite("started"), *file, *told)


def _said(one: Docker) -> str:
    if isinstance(one.told, Told):
        return f"it has the nvidia runtime{'s' if len(one.nvidia) > 1 else ''} of {one.path}"
    return f"started after {one.path} changed last"


def _elsewhere(one: Docker) -> Fail | Warn:
    """nvidia-ctk wrote into the usual file, and this daemon reads another."""
    snap = one.daemon is not None and is_snap(one.daemon)
    kind = (
        "the snap's dockerd"
        if snap
        else "the rootless dockerd"
        if one.daemon is not None and is_rootless(one.daemon)
        else "dockerd"
    )
    summary = f"{kind} reads {one.path}, which names no nvidia runtime; the one in {one.elsewhere[0].where} is read by no dockerd here"
    evidence = (*one.cite("command", "file"), *one.elsewhere)
    fixes = (USE_SNAP, REPLACE_SNAP) if snap else (configure(one), restart(one))
    by_cdi = one.cdi is True and one.specs is not None and bool(one.specs.of(GPU))
    if kind == "the rootless dockerd" and (one.toolkit.hook.found or by_cdi):
        # A file of root's may wait for a dockerd of the system that does not run; its owner has GPUs without a runtime.
        return Warn(one, f"{summary}: --runtime=nvidia does not work", evidence, fixes, cause="elsewhere")
    return Fail(one, summary, evidence, fixes, Breaks.SUBJECT, cause="elsewhere")


def _loaded_runtimes(one: Docker) -> Verdict | None:
    """Whether the daemon has the nvidia runtimes of its file; None where it has."""
    if one.socket_gone:
        return _no_socket(one)
    if one.changed is False:
        return None
    if not isinstance(one.told, Told):
        words = (
            f"{one.path} changed after dockerd started"
            if one.changed
            else f"whether {one.path} changed since dockerd started is not known"
        )
        told = one.told or Unread(Why.NOT_ANSWERED, "docker info", "was not asked")
        said = f"{words}: what it has loaded is not known either ({told.where}: {told.detail})"
        return Unknown(one, told.why, said, _loading(one), would_need=told.would_need)
    missing = [runtime.name for runtime in one.nvidia if runtime.name not in one.told.runtimes]
    since = ": it was started before the file changed" if one.changed else ""
    if missing:
        summary = f"the running dockerd does not have runtime {', '.join(missing)} of {one.path}{since}"
        return Fail(one, summary, _loading(one), (restart_alone(one),), Breaks.SUBJECT, cause="not-loaded")
    if one.told.default != one.default_runtime:
        summary = f"the running dockerd has default runtime {one.told.default!r}, {one.path} has {one.default_runtime!r}{since}"
        return Warn(one, summary, _loading(one), (restart_alone(one),), cause="default-not-loaded")
    return None


def _hook(one: Docker) -> Verdict | None:
    """Whether the hook came too late; None where it did not, or nothing tells."""
    late = one.toolkit.late
    if isinstance(late, Unread):
        return None if one.nvidia else late.about(one)
    if not late:
        return None
    evidence = (*one.cite("started"), *one.toolkit.when, *one.toolkit.hook.evidence)
    summary = "the NVIDIA Container Toolkit was installed after dockerd started, which looks for its hook only then: --gpus does not work"
    if one.nvidia:
        return Warn(
            one, f"{summary}; --runtime=nvidia works", evidence, (restart_alone(one),), cause="older-than-toolkit"
        )
    return Fail(one, summary, evidence, (restart_alone(one),), Breaks.SUBJECT, cause="older-than-toolkit")


def _no_socket(one: Docker) -> Fail:
    summary = f"dockerd runs, but its socket {one.sockets[0]} is gone: no client reaches it"
    return Fail(
        one,
        summary,
        (*one.cite("command"), *one.socket_gone),
        (restart_alone(one),),
        Breaks.SUBJECT,
        cause="socket-gone",
    )
