"""CRI-O, Podman and the kubelet's engine: does what they really read lead to GPUs?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.containerd_places import Family
from gpudoctor.facts.crio import CrioConfig, CrioRuntime, CrioSetup
from gpudoctor.facts.engine_setups import EngineSetup
from gpudoctor.facts.gpu_specs import GPU
from gpudoctor.facts.kubelet_endpoint import DEFAULT, Endpoint
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.podman import PodmanConfig, PodmanSetup
from gpudoctor.facts.raw import Absent, EntryType
from gpudoctor.knowledge.containerd_remedies import configure, restart
from gpudoctor.knowledge.engine_remedies import (
    CRIO_CONFIGURE,
    CRIO_CORRECT,
    CRIO_RESTART,
    GENERATE_CDI,
    INSTALL_TOOLKIT,
    KUBELET_ENDPOINT,
    PODMAN_CORRECT,
    configure_engine,
    readable,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Cited,
    Evidence,
    Fail,
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

_BUILT_IN = ("crun", "runc", "")
"""Handlers that CRI-O has without a file: crun, before 1.31 runc (cri-o pkg/config/config_linux.go, DefaultRuntime)."""


@check("toolkit.crio-runtime", link=Link.TOOLKIT, title="CRI-O's configuration leads to an NVIDIA runtime that exists")
def crio_runtime(crio: CrioConfig) -> Verdicts:
    """A pod with the RuntimeClass nvidia starts only where CRI-O has a handler of that name whose program exists.

    CRI-O reads /etc/crio/crio.conf, then every file below /etc/crio/crio.conf.d in the order of their names, whatever their ending; a
    later one overrides key by key, but replaces the whole table of a handler. One that does not parse, or a default_runtime that no file
    defines, keeps it from starting; a handler whose program is gone is left out with a line in its log. nvidia-ctk of 1.18 and 1.19
    writes to /etc/crio/conf.d, where CRI-O does not look. An OCI hook or CDI specs, which CRI-O takes since 1.24, reach pods without
    any handler; there, a pod that names the RuntimeClass nvidia is itself the mistake. A CRI-O that nobody set up for GPUs is no fault.
    """
    setup = crio.setup
    if setup is None:
        yield NotApplicable(crio, "CRI-O is not installed", crio.cite("installed"))
    elif crio.refused is not None:
        yield _refused(crio, crio.refused, "CRI-O does not start with it", (CRIO_CORRECT, CRIO_RESTART))
    elif setup.files.unread is not None:
        yield setup.files.unread.about(crio)
    elif (wrong := _crio_default(crio, setup)) is not None:
        yield wrong
    elif setup.runtimes:
        yield from (_crio_handler(crio, setup, runtime) for runtime in setup.runtimes)
    else:
        yield _without_handler(crio, setup)


def _refused(about: CrioConfig | PodmanConfig, file: Malformed, result: str, remedies: tuple[Remedy, ...]) -> Fail:
    summary = f"{file.place}: {file.said}: {result}"
    return Fail(about, summary, (file.evidence,), remedies, Breaks.SUBJECT, cause="syntax")


def _crio_default(crio: CrioConfig, setup: CrioSetup) -> Fail | None:
    """CRI-O does not start without the table of its default runtime (cri-o pkg/config/config.go, ValidateDefaultRuntime)."""
    default = setup.default
    if default is None or default.value in (*setup.files.handlers, *_BUILT_IN):
        return None
    summary = f"default_runtime is {default.value!r}, for which no file has a table: CRI-O does not start"
    evidence = (Evidence(default.where, f"default_runtime = {default.value!r}"), *setup.strays)
    return Fail(crio, summary, evidence, (CRIO_CONFIGURE, CRIO_RESTART), Breaks.SUBJECT, cause="default-undefined")


def _crio_handler(crio: CrioConfig, setup: CrioSetup, runtime: CrioRuntime) -> Verdict:
    name, program = runtime.handler.name, runtime.program
    is_default = setup.default is not None and setup.default.value == name
    result = (
        "CRI-O does not start" if is_default else "CRI-O leaves the handler out, and pods that ask for it do not start"
    )
    kind = runtime.handler.text("runtime_type")
    if isinstance(program.path, Unread):
        return program.path.about(crio)
    if program.path is None:
        shadow = f"; the table replaces the one in {runtime.shadows}" if runtime.shadows else ""
        summary = f"handler {name!r} names {program.name}, which is not an executable file{shadow}: {result}"
        return Fail(crio, summary, runtime.evidence, _for_program(runtime), Breaks.SUBJECT, cause="program")
    if kind not in ("", "oci", "vm", "pod"):
        summary = f"handler {name!r} has runtime_type {kind!r}, which CRI-O does not know: {result}"
        return Fail(crio, summary, runtime.evidence, (CRIO_CONFIGURE, CRIO_RESTART), Breaks.SUBJECT, cause="type")
    if runtime.monitor is not None and runtime.monitor.missing:
        summary = f"handler {name!r} has monitor_path {runtime.monitor.name}, which is not there: CRI-O does not start"
        evidence = (*runtime.evidence, *runtime.monitor.evidence)
        return Fail(crio, summary, evidence, (CRIO_CORRECT, CRIO_RESTART), Breaks.SUBJECT, cause="monitor")
    if crio.newer:
        summary = (
            f"CRI-O runs since before {runtime.handler.where} was changed; whether it was told to reload cannot be seen"
        )
        return Unknown(crio, Why.NOT_ANSWERED, summary, crio.newer, would_need="systemctl reload crio")
    return Pass(crio, f"handler {name!r} is {program.path}{_default_words(setup, name)}", runtime.evidence)


def _for_program(runtime: CrioRuntime) -> tuple[Remedy, ...]:
    if runtime.shadows or not runtime.handler.text("runtime_path"):
        return (CRIO_CORRECT, CRIO_RESTART)
    return (INSTALL_TOOLKIT, CRIO_CONFIGURE, CRIO_RESTART)


def _default_words(setup: CrioSetup, name: str) -> str:
    default = setup.default
    if default is None:
        return ", for pods of its RuntimeClass"
    if default.value == name:
        return ", the default"
    overrides = f", over {default.overridden[-1]}" if default.overridden else ""
    return f", for pods of its RuntimeClass; the default is {default.value!r} by {default.where}{overrides}"


def _without_handler(crio: CrioConfig, setup: CrioSetup) -> Verdict:
    """GPUs can come by a hook or by CDI; else a file that was meant to bring a handler, or nobody's wish."""
    hooks, specs = setup.hooks, setup.specs
    there = hooks.working
    if there is not None:
        evidence = (*there.cite("program"), *there.program.evidence)
        return Pass(crio, f"no handler, but {there.path} runs {there.program.name} for GPU containers", evidence)
    if specs is not None and specs.specs:
        spec = specs.specs[0]
        return Pass(
            crio, f"no handler, but CRI-O takes CDI specs: {spec.path} describes {spec.kind}", spec.cite("kind")
        )
    unread = hooks.unread or (specs.unread if specs is not None else None)
    if unread is not None:
        return unread.about(crio)
    unseen = hooks.doubtful
    if unseen is not None:
        return Unknown(crio, Why.NOT_ANSWERED, f"{unseen.path}: whether its program exists is not known")
    if setup.strays and crio.unsaid is not None:
        return crio.unsaid.about(crio)
    if setup.strays:
        summary = f"{setup.strays[0].where} brings the runtime, but CRI-O reads {setup.files.folder} only"
        evidence = (*setup.strays, Evidence(setup.files.folder, "no file there defines an NVIDIA runtime"))
        return Fail(crio, summary, evidence, (CRIO_CONFIGURE, CRIO_RESTART), Breaks.SUBJECT, cause="unread-drop-in")
    gone = hooks.gone
    if gone is not None:
        summary = (
            f"{gone.path} names {gone.program.name}, which is gone: CRI-O leaves the hook out, and pods get no GPU"
        )
        evidence = (*gone.cite("program"), *gone.program.evidence[:1])
        return Fail(
            crio, summary, evidence, (INSTALL_TOOLKIT, CRIO_CONFIGURE, CRIO_RESTART), Breaks.SUBJECT, cause="hook"
        )
    evidence = (*crio.cite("installed"), *hooks.cite(*hooks.folders), *(specs.seen if specs is not None else ()))
    return NotApplicable(crio, "CRI-O is not set up for GPUs: no NVIDIA handler, hook or CDI spec", evidence)


@check("toolkit.podman-gpus", link=Link.TOOLKIT, title="Podman can hand out GPUs by CDI or by a hook")
def podman_gpus(podman: PodmanConfig) -> Verdicts:
    """Podman gives a container GPUs by `--device nvidia.com/gpu=…` where a CDI spec describes them, or through NVIDIA's OCI hook.

    It reads the system's containers.conf files, each over the one before, at every command: one that does not parse stops all of them,
    and so does a default runtime that is not there. A hook file that does not parse stops every container; one whose program is gone is
    left out without a word, so that containers start and have no GPU. Users without root must be able to read the spec, else they are
    told "unresolvable CDI devices". What users add in their own homes is not looked at, nor whether the spec is right: that is
    another check. Podman on a GPU node that nobody set up for GPUs is no fault.
    """
    setup = podman.setup
    if setup is None:
        yield NotApplicable(podman, "Podman is not installed", podman.cite("installed"))
    elif setup.refused is not None:
        yield _refused(podman, setup.refused, "no podman command works with it", (PODMAN_CORRECT,))
    elif setup.hooks.refused:
        yield _refused(podman, setup.hooks.refused[0], "Podman starts no container with it", (PODMAN_CORRECT,))
    elif setup.unread is not None:
        yield setup.unread.about(podman)
    else:
        yield from list(_podman_runtime(podman, setup)) or [_podman_devices(podman, setup)]


def _podman_runtime(podman: PodmanConfig, setup: PodmanSetup) -> Iterator[Verdict]:
    """A default runtime that is gone stops Podman; another is left out (libpod/runtime.go)."""
    for runtime in setup.runtimes:
        if runtime.is_default and runtime.program.missing:
            summary = f"the default runtime {runtime.name!r} is not there: no podman command works"
            evidence = (runtime.evidence, *runtime.program.evidence[:2])
            yield Fail(podman, summary, evidence, (PODMAN_CORRECT, INSTALL_TOOLKIT), Breaks.SUBJECT, cause="program")


def _podman_devices(podman: PodmanConfig, setup: PodmanSetup) -> Verdict:
    specs, hooks = setup.specs.of(GPU), setup.hooks
    there = hooks.working
    gone = hooks.gone
    open_spec = next((spec for spec in specs if spec.for_everyone is not False), None)
    runtime = next((runtime for runtime in setup.runtimes if runtime.program.found), None)
    if open_spec is not None:
        words = "" if open_spec.for_everyone else "; whether users without root can read it is not known"
        evidence = open_spec.cite("kind", "mode")
        return Pass(podman, f"{open_spec.path} describes {GPU}{words}", evidence)
    if specs and setup.specs.unread is None:
        summary = f"only root can read {specs[0].path}: for users without root {GPU} is unresolvable"
        return Warn(podman, summary, specs[0].cite("kind", "mode"), (readable(specs[0].path),), cause="unreadable-spec")
    if there is not None:
        evidence = (*there.cite("program"), *there.program.evidence)
        return Pass(podman, f"{there.path} runs {there.program.name} for GPU containers", evidence)
    if runtime is not None:
        evidence = (runtime.evidence, *runtime.program.evidence)
        return Pass(podman, f"runtime {runtime.name!r} is {runtime.program.path}", evidence)
    if (unread := setup.specs.unread or hooks.unread) is not None:
        return unread.about(podman)
    unseen = hooks.doubtful
    if unseen is not None:
        return Unknown(podman, Why.NOT_ANSWERED, f"{unseen.path}: whether its program exists is not known")
    if gone is not None:
        summary = f"{gone.path} names {gone.program.name}, which is gone: Podman leaves the hook out, and containers get no GPU"
        evidence = (*gone.cite("program"), *gone.program.evidence[:1])
        return Fail(podman, summary, evidence, (GENERATE_CDI, INSTALL_TOOLKIT), Breaks.SUBJECT, cause="hook")
    evidence = (*podman.cite("installed"), *setup.specs.seen, *hooks.cite(*hooks.folders))
    return NotApplicable(podman, "Podman is not set up for GPUs: no CDI spec for them and no hook", evidence)


@check(
    "toolkit.kubelet-engine",
    link=Link.TOOLKIT,
    explained_by=("toolkit.containerd-config", "toolkit.crio-runtime", "toolkit.docker-runtime"),
    title="The kubelet talks to the engine that is set up for GPUs",
)
def kubelet_engine(node: KubeletEngine) -> Verdicts:
    """A node can have several engines, and `nvidia-ctk` sets up the one it is told; pods get GPUs only if the kubelet talks to that one.

    Seen on nodes with Docker's containerd and another for Kubernetes, and with k3s, RKE2 and MicroK8s, whose containerd has a
    socket and a file of its own and never reads /etc/containerd/config.toml. The endpoint is read from the running kubelet's
    arguments, else from its file; which engine listens there, from the engines' arguments and files; whether one is set up, from what
    its configuration comes to. An nvidia runtime that the kubelet's own containerd reads in vain is toolkit.containerd-config's matter.
    Docker set up for people on a Kubernetes node whose pods were never given a GPU is no fault, and neither is a node where no engine
    is set up. An engine that does not start with its files has no socket: then the files are the cause.
    """
    if node.kubelet is None:
        yield NotApplicable(node, NO_KUBELET, node.cite("processes"))
    elif not isinstance(node.endpoint, Endpoint):
        unread = node.endpoint or Unread(Why.NOT_ANSWERED, "kubelet", "its endpoint is not known")
        yield unread.about(node)
    elif (dead := _dead_socket(node, node.endpoint)) is not None:
        yield dead
    elif _may_be_dockershim(node, node.endpoint):
        summary = "the kubelet names no endpoint and Docker runs: before Kubernetes 1.24 that is its engine, since then containerd"
        yield Unknown(node, Why.NOT_ANSWERED, summary, (node.endpoint.evidence,))
    elif node.own is None:
        yield Unknown(
            node,
            Why.NOT_ANSWERED,
            f"which engine listens on {node.endpoint.url} is not known",
            (node.endpoint.evidence,),
        )
    elif isinstance(node.own.prepared, Unread):
        yield node.own.prepared.about(node)
    else:
        yield _choice(node, node.endpoint, node.own)


def _may_be_dockershim(node: KubeletEngine, endpoint: Endpoint) -> bool:
    """dockershim was removed in 1.24 (kubernetes.io/blog/2022/02/17/dockershim-faq); its kubelet needs no endpoint."""
    by_default = endpoint.assumed and endpoint.url == DEFAULT
    return by_default and any(engine.is_docker and engine.runs for engine in node.engines)


def _dead_socket(node: KubeletEngine, endpoint: Endpoint) -> Verdict | None:
    """A socket that was only assumed may be another."""
    match node.socket:
        case Unread() as unread:
            return unread.about(node)
        case Absent() as absent if not endpoint.assumed:
            summary = f"the kubelet talks to {endpoint.url}, which does not exist: no engine listens there"
            evidence = (endpoint.evidence, absent.evidence)
            return Fail(node, summary, evidence, (KUBELET_ENDPOINT,), Breaks.SUBJECT, cause="no-socket")
        case Absent() as absent:
            summary = f"the kubelet names no endpoint, and the default {endpoint.url} does not exist"
            return Unknown(node, Why.NOT_ANSWERED, summary, (endpoint.evidence, absent.evidence))
        case None:
            return Unknown(node, Why.NOT_ANSWERED, f"{endpoint.url} is no socket of this node", (endpoint.evidence,))
        case entry if entry.type is not EntryType.SOCKET:
            summary = f"the kubelet talks to {endpoint.url}, which is a {entry.type.words}, not a socket"
            evidence = (endpoint.evidence, Evidence(entry.path, f"is a {entry.type.words}"))
            return Fail(node, summary, evidence, (KUBELET_ENDPOINT,), Breaks.SUBJECT, cause="no-socket")
        case _:
            return None


def _choice(node: KubeletEngine, endpoint: Endpoint, own: EngineSetup) -> Verdict:
    evidence: Cited = (endpoint.evidence, Evidence(endpoint.socket, "is a socket"), *own.evidence)
    if own.prepared is True:
        return Pass(node, f"the kubelet talks to {own.called}, which is set up for GPUs", evidence)
    if own.meant:
        return NotApplicable(node, f"{own.called}, the kubelet's engine, was set up for GPUs, but in vain", evidence)
    others = [engine for engine in node.engines if engine is not own and engine.meant]
    meant = next((engine for engine in others if not engine.is_docker or node.wants_gpus), None)
    if meant is None:
        beside = f"; {others[0].called} is, for others than pods" if others else ""
        return NotApplicable(node, f"{own.called}, the kubelet's engine, is not set up for GPUs{beside}", evidence)
    summary = (
        f"the kubelet talks to {own.called} at {endpoint.socket}, but it is {meant.called} that is set up for GPUs"
    )
    return Fail(
        node,
        summary,
        (*evidence, *meant.evidence, *node.wants_gpus),
        _set_up(own),
        Breaks.SUBJECT,
        cause="other-engine",
        of=(node.subject,) if own.subject is None else (node.subject, own.subject),
    )


def _set_up(own: EngineSetup) -> tuple[Remedy, ...]:
    """A containerd that somebody brought himself is restarted by the unit that runs it."""
    containerd = own.containerd
    if containerd is not None and containerd.family in (Family.PLAIN, Family.K0S):
        return configure(containerd), restart(containerd)
    return configure_engine(own.name, own.config)
