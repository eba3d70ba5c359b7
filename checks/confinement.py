"""Confinement of containers: do SELinux, AppArmor and user namespaces let them use the GPUs they were given?"""

from collections.abc import Sequence

from gpudoctor.chain import Link
from gpudoctor.facts.apparmor import PROFILES, AppArmor
from gpudoctor.facts.audit_messages import AuditMessages, Message
from gpudoctor.facts.daemons import Daemons
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_nodes import GpuNodes
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.raw import Entry
from gpudoctor.facts.rootless import Remapped, RootlessDocker, RootlessEngines
from gpudoctor.facts.selinux import SELinux
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_nodes import NodeTrouble, WorkloadNodes
from gpudoctor.facts.workloads import Workloads
from gpudoctor.knowledge import confinement_remedies as remedies
from gpudoctor.knowledge.toolkit_config import NO_CGROUPS
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

DOCKER, PODMAN = Subject(SubjectKind.SERVICE, "docker"), Subject(SubjectKind.SERVICE, "podman")
_SHOWN = 4


def _with_gpus(workloads: Reading[GpuWorkloads]) -> tuple[GpuWorkload, ...]:
    """The containers that have a GPU now."""
    found = () if isinstance(workloads, Unread) else workloads.workloads
    return tuple(one for one in found if one.has_gpu is True and one.workload.subject.kind is SubjectKind.CONTAINER)


def _alive(denials: Sequence[Message], workloads: Reading[Workloads]) -> dict[str, Workload]:
    """The running containers, by key, whose processes were denied."""
    if isinstance(workloads, Unread):
        return {}
    found = (workloads.by_pid.get(one.pid) for one in denials)
    containers = [one for one in found if one is not None and one.subject.kind is SubjectKind.CONTAINER]
    return {one.key: one for one in containers}


def _targets(denials: Sequence[Message]) -> str:
    names = list(dict.fromkeys(one.target for one in denials))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _whose(alive: dict[str, Workload]) -> str:
    return f" ({', '.join(one.title for one in list(alive.values())[:_SHOWN])})" if alive else ""


def _cite(denials: Sequence[Message]) -> Cited:
    """Each thing that was denied once, the last time it was."""
    return tuple({one.target: one.evidence for one in denials}.values())[:_SHOWN]


def _told(
    summary: str,
    evidence: Cited,
    steps: tuple[Remedy, ...],
    alive: dict[str, Workload],
    cause: str,
    links: tuple[str, ...],
) -> Fail:
    """A denial that nothing speaks against; it breaks the containers that are known to have met it."""
    subjects = tuple(one.subject for one in alive.values())
    breaks = Breaks.SUBJECT if subjects else Breaks.NOTHING
    return Fail(NODE, summary, evidence, steps, breaks, cause=cause, of=subjects, references=links)


# SELinux ------------------------------------------------------------------------------------------------------------


@check("toolkit.selinux-allows", link=Link.TOOLKIT, title="SELinux lets containers use the GPU")
def selinux_allows(selinux: SELinux, workloads: Reading[Workloads], concerned: Reading[GpuWorkloads]) -> Verdicts:
    """On Fedora, RHEL and their like a container has the nodes, modes and rules it needs and still hears "Insufficient Permissions".

    Under an enforcing policy a container's type (container_t) may not open what carries another device's label: /dev/nvidia* are
    xserver_misc_device_t. Only a denial is held against it, from the kernel log or, where auditd runs, its audit.log: a container may
    be started without a label, and the booleans container_use_xserver_devices and container_use_devices allow nodes for all; a
    library (tclass=file) needs its own label back. permissive=1 means written down and allowed. Denials of other programs, or of files
    with such a name, are none of the GPU's.
    Labels are not read.
    """
    enforce = selinux.cite("enforce")
    if selinux.enforcing is None:
        yield NotApplicable(NODE, "the kernel runs without SELinux", enforce)
    elif not selinux.enforcing:
        count = len(selinux.denials)
        later = f"; enforcing, it would have denied containers {_targets(selinux.denials)}" if count else ""
        yield Pass(NODE, f"SELinux is permissive and denies nothing{later}", (*enforce, *_cite(selinux.denials)))
    elif selinux.denied:
        yield _selinux_denied(selinux, workloads, _with_gpus(concerned))
    else:
        yield _selinux_quiet(selinux, _with_gpus(concerned))


def _selinux_denied(selinux: SELinux, workloads: Reading[Workloads], running: Sequence[GpuWorkload]) -> Verdict:
    denials, alive = selinux.denied, _alive(selinux.denied, workloads)
    booleans = tuple(selinux.read_from[name] for name in selinux.booleans)
    evidence = (*_cite(denials), *selinux.cite("enforce"), *booleans)
    summary = f"SELinux denied a container{_whose(alive)} {_targets(denials)}"
    steps: tuple[Remedy, ...] = (remedies.relabel(), remedies.without_label())
    nodes = [one for one in denials if one.get("tclass") != "file"]
    if selinux.switch is not None and selinux.allowed is None and nodes:
        steps = (remedies.use_devices(selinux.switch), *steps)
    if selinux.allowed is not None and nodes:
        summary = f"{summary}, though {selinux.allowed} is on now"
    elif not alive and running:
        summary += "; that process is gone, and containers with GPUs run"
    else:
        return _told(summary, evidence, steps, alive, "selinux", remedies.SELINUX_REFERENCES)
    return Warn(NODE, summary, evidence, steps, cause="selinux", references=remedies.SELINUX_REFERENCES)


def _selinux_quiet(selinux: SELinux, running: Sequence[GpuWorkload]) -> Verdict:
    audit, enforce = selinux.audit, selinux.cite("enforce")
    if not isinstance(audit, AuditMessages):
        return audit.about(NODE) if audit is not None else Unknown(NODE, Why.NOT_ANSWERED, "its denials were not read")
    if selinux.allowed is not None and audit.searched:
        switch = selinux.read_from[selinux.allowed]
        return Pass(
            NODE, f"SELinux enforces, {selinux.allowed} is on, and no container was denied a GPU", (*enforce, switch)
        )
    if audit.unseen is not None:
        return audit.unseen.about(NODE)
    if not running:
        return NotApplicable(NODE, "SELinux enforces; no container with a GPU runs, and none was denied one", enforce)
    summary = f"SELinux enforces and denied none of {len(running)} containers with GPUs anything of theirs"
    return Pass(NODE, summary, (*enforce, *audit.searched, *_runs(running)))


def _runs(running: Sequence[GpuWorkload]) -> Cited:
    return running[0].cite("nodes") if "nodes" in running[0].read_from else ()


# AppArmor -----------------------------------------------------------------------------------------------------------


@check("toolkit.apparmor-allows", link=Link.TOOLKIT, title="AppArmor lets containers use the GPU")
def apparmor_allows(
    apparmor: AppArmor,
    workloads: Reading[Workloads],
    concerned: Reading[GpuWorkloads],
    daemons: Reading[Daemons],
) -> Verdicts:
    """A profile that was tightened, or a snap's, can deny a container the GPU's nodes or libraries that it plainly has.

    Engines run containers under a profile (docker-default, cri-containerd.apparmor.d, crio-default, containers-default-…), which by default
    denies none of /dev/nvidia*. Only apparmor="DENIED" about a node or library of the driver counts, of such a profile or of a process
    in a container. A device rule that is missing gives EPERM and no such line. Since 24.04 Ubuntu keeps programs without a profile
    from user namespaces of their own: rootless engines, apptainer and enroot then do not start at all, GPU or not.
    """
    enabled = apparmor.cite("enabled")
    if not apparmor.enabled:
        yield NotApplicable(NODE, "the kernel runs without AppArmor", enabled)
        return
    alive = _alive(apparmor.denials, workloads)
    pids = {pid for one in alive.values() for pid in one.pids}
    denials = [one for one in apparmor.denials if one.pid in pids or PROFILES.match(one.get("profile"))]
    working = _in_namespaces(daemons, workloads)
    namespaces = tuple(one for one in apparmor.namespaces if not one.get("comm").startswith(working))
    if denials:
        yield _apparmor_denied(denials, alive, _with_gpus(concerned), enabled)
    if namespaces:
        yield _namespaces_denied(namespaces)
    if not denials and not namespaces:
        yield _apparmor_quiet(apparmor.audit, _with_gpus(concerned), enabled)


def _in_namespaces(daemons: Reading[Daemons], workloads: Reading[Workloads]) -> tuple[str, ...]:
    """How the programs begin that run in a user namespace of their own now, whatever they were denied before."""
    found = () if isinstance(workloads, Unread) else workloads.workloads
    engines = {one.engine for one in found if one.engine and one.rootless is True}
    if not isinstance(daemons, Unread) and any(one.own_namespace for one in daemons.daemons):
        engines.add("rootlesskit")
    return tuple(sorted(engines))


def _apparmor_denied(
    denials: Sequence[Message], alive: dict[str, Workload], running: Sequence[GpuWorkload], enabled: Cited
) -> Verdict:
    profile = denials[-1].get("profile")
    summary = f"AppArmor's profile {profile} denied a container{_whose(alive)} {_targets(denials)}"
    evidence, steps = (*_cite(denials), *enabled), remedies.allow_in_profile(profile)
    if alive or not running:
        return _told(summary, evidence, steps, alive, "apparmor", remedies.APPARMOR_REFERENCES)
    summary += "; that process is gone, and containers with GPUs run"
    return Warn(NODE, summary, evidence, steps, cause="apparmor", references=remedies.APPARMOR_REFERENCES)


def _namespaces_denied(denials: Sequence[Message]) -> Warn:
    names = ", ".join(dict.fromkeys(one.get("comm") for one in denials))
    summary = (
        f"AppArmor keeps {names} from a user namespace of its own: its containers do not start, with a GPU or without"
    )
    evidence = tuple({one.get("comm"): one.evidence for one in denials}.values())
    return Warn(
        NODE,
        summary,
        evidence,
        remedies.allow_namespaces(),
        cause="user-namespaces",
        references=remedies.NAMESPACE_REFERENCES,
    )


def _apparmor_quiet(audit: AuditMessages | Unread | None, running: Sequence[GpuWorkload], enabled: Cited) -> Verdict:
    if not isinstance(audit, AuditMessages):
        return audit.about(NODE) if audit is not None else Unknown(NODE, Why.NOT_ANSWERED, "its denials were not read")
    if audit.unseen is not None:
        return audit.unseen.about(NODE)
    if not running:
        return NotApplicable(NODE, "no container with a GPU runs, and none was denied one", enabled)
    summary = f"AppArmor denied none of {len(running)} containers with GPUs anything of theirs"
    return Pass(NODE, summary, (*enabled, *audit.searched, *_runs(running)))


# User namespaces ----------------------------------------------------------------------------------------------------


@check("toolkit.rootless-set-up", link=Link.TOOLKIT, title="Rootless engines are set up for GPUs")
def rootless_set_up(
    engines: RootlessEngines, concerned: Reading[GpuWorkloads], inside: Reading[WorkloadNodes], nodes: Reading[GpuNodes]
) -> Verdicts:
    """An engine that runs as an ordinary user may not do all that the toolkit does: containers end with "operation not permitted".

    A rootless dockerd that hands out GPUs by the toolkit's hook needs no-cgroups = true, for it may not edit device programs (bpf(2)); with
    CDI it needs nothing but a specification that its user may read. A dockerd with userns-remap makes root of a container an
    ordinary user, who may not open nodes of mode 0660; so may not who lost the nodes' group on the way into the namespace: of
    containers that run, workload.nodes-inside tells. A rootless engine that nobody set up for GPUs is no fault.
    """
    spoken = False
    for docker in engines.dockers:
        spoken = True
        yield _rootless_docker(docker, _rootless(concerned, "docker"))
    if engines.remaps is not None:
        spoken = True
        yield _unseen(concerned) or _remapped(engines.remaps, _of_docker(concerned), nodes)
    if podman := _rootless(concerned, "podman"):
        spoken = True
        yield inside.about(PODMAN) if isinstance(inside, Unread) else _rootless_podman(podman, inside)
    if not spoken:
        none = "no engine runs rootless, or maps users of its containers"
        yield engines.unlisted.about(NODE) if engines.unlisted is not None else NotApplicable(NODE, none)


def _rootless(concerned: Reading[GpuWorkloads], engine: str) -> list[GpuWorkload]:
    """The containers with a GPU that an engine runs for an ordinary user."""
    return [one for one in _with_gpus(concerned) if one.workload.engine == engine and one.workload.rootless is True]


def _rootless_docker(docker: RootlessDocker, running: Sequence[GpuWorkload]) -> Verdict:
    called = () if isinstance(docker.daemon.arguments, Unread) else docker.daemon.cite("command")
    seen = (*called, *docker.cite("settings"))
    if isinstance(docker.settings, Unread):
        return docker.settings.about(DOCKER)
    if not docker.runtime and not docker.cdi:
        return NotApplicable(DOCKER, "a rootless dockerd runs that nobody set up for GPUs", seen)
    if docker.specs.specs and (docker.cdi or not docker.runtime):
        return _by_specification(docker, seen)
    if docker.specs.unread is not None:
        return docker.specs.unread.about(DOCKER)
    if not docker.runtime:
        return NotApplicable(DOCKER, "CDI is on and there is no specification, see toolkit.docker-cdi", seen)
    if running:
        titles = ", ".join(one.workload.title for one in running[:_SHOWN])
        return Pass(DOCKER, f"rootless, and {titles} has a GPU", (*_runs(running), *seen))
    return _by_hook(docker, seen)


def _by_specification(docker: RootlessDocker, seen: Cited) -> Verdict:
    shut = [spec for spec in docker.specs.specs if spec.for_everyone is False]
    if len(shut) == len(docker.specs.specs):
        path = shut[0].path
        mode = shut[0].cite("mode")
        summary = f"rootless dockerd may not read the CDI specification {path} ({mode[0].shows}): its devices are unresolvable"
        return Fail(
            DOCKER,
            summary,
            (*mode, *seen),
            (remedies.readable(path),),
            Breaks.SUBJECT,
            cause="specification-unreadable",
        )
    right = next((spec for spec in docker.specs.specs if spec.for_everyone), None)
    if right is None:
        where = docker.specs.specs[0].path
        return Unknown(DOCKER, Why.NOT_RECORDED, f"{where}: whether its user may read it was not recorded", seen)
    return Pass(DOCKER, f"rootless, and gives GPUs by the CDI specification {right.path}", (*right.cite("mode"), *seen))


def _by_hook(docker: RootlessDocker, seen: Cited) -> Verdict:
    file = docker.toolkit
    if isinstance(file, Unread):
        return file.about(DOCKER)
    if file is not None and not isinstance(file.document, dict):
        return Unknown(DOCKER, Why.UNREADABLE, f"{file.path}: is malformed, see toolkit.runtime-config", seen)
    says = (file.says(NO_CGROUPS),) if file is not None else ()
    if file is not None and file.value(NO_CGROUPS) is True:
        return Pass(
            DOCKER, "rootless, and the toolkit's hook leaves device rules alone (no-cgroups = true)", (*says, *seen)
        )
    if docker.cdi is None and docker.specs.specs:
        summary = "whether a rootless dockerd uses CDI here hangs on its version: features.cdi is not set"
        return Unknown(DOCKER, Why.NOT_ANSWERED, summary, (*seen, *docker.specs.specs[0].cite("kind")))
    summary = (
        "rootless dockerd gives GPUs (--gpus) by the toolkit's hook, which may not edit device rules for it: "
        "that takes no-cgroups = true, or CDI"
    )
    evidence, links = (*seen, *says, *docker.specs.seen[:2]), remedies.ROOTLESS_REFERENCES
    steps: tuple[Remedy, ...] = (remedies.rootless_by_cdi(), remedies.no_cgroups())
    if docker.edits_only:
        summary += "; --runtime=nvidia, which touches none, works without"
        steps = (remedies.by_runtime(), *steps)
    return Fail(DOCKER, summary, evidence, steps, Breaks.SUBJECT, cause="rootless-hook", references=links)


def _unseen(concerned: Reading[GpuWorkloads]) -> Unknown | None:
    """Why a container may be shut out that does not show it."""
    if isinstance(concerned, Unread):
        return concerned.about(DOCKER)
    unread = (one.devices for one in concerned if isinstance(one.devices, Unread))
    first = next(unread, concerned.unlisted)
    return first.about(DOCKER) if first is not None else None


def _of_docker(concerned: Reading[GpuWorkloads]) -> list[GpuWorkload]:
    """The containers of a rootful docker that concern GPUs: what is wrong with their nodes shows in them."""
    found = () if isinstance(concerned, Unread) else concerned.workloads
    return [one for one in found if one.workload.engine == "docker" and one.workload.rootless is not True]


def _remapped(remaps: Remapped, running: Sequence[GpuWorkload], nodes: Reading[GpuNodes]) -> Verdict:
    """Nodes that only root and a group may open; that group has no number in the container's namespace."""
    evidence = remaps.evidence
    if running:
        title = running[0].workload.title
        reason = f"dockerd maps users of its containers; whether {title} may open its nodes is workload.nodes-inside"
        return NotApplicable(DOCKER, reason, evidence)
    if not remaps.prepared:
        return NotApplicable(DOCKER, "dockerd maps users of its containers, and nobody set it up for GPUs", evidence)
    if isinstance(nodes, Unread):
        return nodes.about(DOCKER)
    entries = [entry for entry in nodes.by_address.values() if isinstance(entry, Entry) and entry.mode is not None]
    closed = [entry for entry in entries if (entry.mode or 0) & 0o006 != 0o006]
    if not entries:
        return NotApplicable(DOCKER, "dockerd maps users of its containers; no node of a GPU was seen", evidence)
    shown = entries[0] if not closed else closed[0]
    mode = Evidence(shown.where, f"mode {shown.mode or 0:04o}, owner {shown.uid}:{shown.gid}")
    if len(closed) < len(entries):
        return Pass(
            DOCKER, "dockerd maps users of its containers, and everybody may open the GPUs' nodes", (*evidence, mode)
        )
    summary = f"dockerd maps users of its containers, none of whom may open {shown.path} (mode {shown.mode or 0:04o})"
    return Warn(DOCKER, summary, (*evidence, mode), remedies.remapped(), cause="users-remapped")


def _rootless_podman(podman: Sequence[GpuWorkload], inside: WorkloadNodes) -> Verdict:
    """Whether the users of the containers may open what they were given."""
    evidence = podman[0].cite("nodes") if "nodes" in podman[0].read_from else ()
    looked = [(one.workload.title, inside.by_key.get(one.workload.key)) for one in podman]
    shut_out = [
        title
        for title, nodes in looked
        if nodes is None or any(fault.trouble is NodeTrouble.MODE for fault in nodes.faults)
    ]
    if shut_out or not evidence:
        return NotApplicable(
            PODMAN, f"{(shut_out or [podman[0].workload.title])[0]}: see workload.nodes-inside", evidence
        )
    unsure = next((nodes.unsure for _, nodes in looked if nodes is not None and nodes.unsure is not None), None)
    if unsure is not None:
        return unsure.about(PODMAN)
    titles = ", ".join(title for title, _ in looked[:_SHOWN])
    return Pass(PODMAN, f"rootless, and mode and owner of the nodes let the users of {titles} open them", evidence)
