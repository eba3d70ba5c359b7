"""Container toolkit and startup: what the engines' journals tell of containers that did not start for their GPU."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.checks.toolkit_programs import PROGRAMS, TOOLKIT
from gpudoctor.facts.boot import in_words
from gpudoctor.facts.cdi_requests import NO_DRIVER, UNRESOLVABLE
from gpudoctor.facts.cdi_specs import CdiSpecs
from gpudoctor.facts.daemons import Daemon, Daemons, Program, changed
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_nodes import CommonNodes
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.docker_rules import Refused
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.raw import Entry
from gpudoctor.facts.start_failures import ENGINES, KUBELET, EngineJournal, StartFailure, StartFailures
from gpudoctor.knowledge.start_errors import Whose
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

ORDER = (
    Remedy(
        Action.CHANGE_WORKLOAD,
        "Start the container again: what it lacked is there now.",
        run=("docker start CONTAINER",),
        confirm="docker exec CONTAINER nvidia-smi -L",
    ),
    Remedy(
        Action.CHANGE_CONFIG,
        "Have the engine wait for the driver's nodes and for the CDI specification at the next boot.",
        run=(
            "systemctl edit docker    # [Unit] After=nvidia-persistenced.service nvidia-cdi-refresh.service",
            "systemctl edit docker    # [Service] ExecStartPre=/usr/bin/nvidia-modprobe -c 0 -u",
            "systemctl enable nvidia-persistenced",
        ),
        confirm="after the next boot: gpudoctor run --check startup.engine-after-driver",
        then=True,
    ),
)


DRA_DEVICES = "k8s.gpu.nvidia.com/"
RACE = 600.0
"""Seconds by which a specification of the same boot may come behind its engine; times of files and lines differ by less than two."""


@check(
    "toolkit.containers-start",
    link=Link.TOOLKIT,
    needs={Link.DRIVER_CUDA},
    explained_by=(
        "toolkit.docker-runtime",
        "toolkit.docker-cdi",
        "toolkit.containerd-config",
        "toolkit.containerd-runtime",
        "toolkit.crio-runtime",
        PROGRAMS,
        "toolkit.cdi-specs-current",
    ),
    title="No container failed to start for its GPU",
)
def containers_start(starts: StartFailures, specs: Reading[CdiSpecs], kubelet: Reading[KubeletEngine]) -> Verdicts:
    """A container that asks for a GPU and cannot have it does not start, and its engine's journal holds the toolkit's own sentence.

    Reads the journals of the engines that run, the kubelet's and that of podman.service, of this boot, and what dockerd keeps of containers
    whose last start failed: one that lacked a file is in no journal. Of these count those that were made or ran since the boot, and those
    that dockerd starts again by itself. What a container asked for in vain (a GPU that left, a CUDA version, a word that does not exist)
    is remarked, it may be that container's mistake alone; what the node could not give is a fail. A failure is over after which the same
    engine started a container that has its GPU by the toolkit or by CDI; one that is privileged or was given nodes by hand shows nothing.
    So is one for want of a runtime, where its engine was restarted since and has that now.
    A CDI device that was not found is told here only where NVIDIA has no specification at all, else by toolkit.cdi-devices-found. Lines
    about images and networks are not about the GPU, nor is a file system that was full for others; where it was full for a program of
    NVIDIA's, the container did not get its GPU, and that is told. What bears on a failure is read beside it: the kernel's log for a GPU
    that held the driver up, or for an ldconfig that was killed for want of memory (where it cannot be read it is not known whose fault
    that was), the GPUs that there are, and the installed programs.
    """
    for engine, journal in starts.journals.items():
        subject = Subject(SubjectKind.SERVICE, engine)
        if isinstance(journal, Unread):
            yield journal.about(subject)
        elif told := [
            one for one in journal.failures if one.error.whose is not Whose.ORDER and not _by_specs(one, specs)
        ]:
            unseen = starts.unseen
            yield from (_failed(one, specs, kubelet) if unseen is None else unseen.about(subject) for one in told)
        elif any(_by_specs(one, specs) for one in journal.failures):
            yield NotApplicable(
                subject, "a CDI device was not found: toolkit.cdi-devices-found", journal.cite("journal")
            )
        elif journal.unread is not None:
            yield journal.unread.about(subject)
        else:
            yield Pass(subject, _none(journal), (*journal.cite("journal"), *journal.cured))
    if not starts.journals:
        yield NotApplicable(NODE, "no engine runs here whose journal could tell")


def _by_specs(failure: StartFailure, specs: Reading[CdiSpecs]) -> bool:
    return failure.error.name == UNRESOLVABLE and isinstance(specs, CdiSpecs) and bool(specs.of_nvidia)


def _none(journal: EngineJournal) -> str:
    if journal.over and journal.cured:
        return (
            f"its engine was restarted since the last failure, and has now what it lacked ({journal.over[0].meaning})"
        )
    if journal.over:
        return f"a container with a GPU was started since the last failure ({journal.over[0].meaning})"
    return "its journal tells of no container that failed to start for its GPU"


def _failed(failure: StartFailure, specs: Reading[CdiSpecs], kubelet: Reading[KubeletEngine]) -> Verdict:
    unseen = specs if isinstance(specs, Unread) else specs.unlisted
    # A recording that holds a journal and no specifications has the journal's word only.
    if failure.error.name == UNRESOLVABLE and unseen is not None and unseen.why is not Why.NOT_RECORDED:
        return unseen.about(failure)
    if failure.unsettled is not None:
        return failure.unsettled.about(failure)
    times = f" ({failure.count} times)" if failure.count > 1 else ""
    summary = f"{failure.who} did not start: {failure.meaning}{times}"
    error, evidence, subject, steps = failure.error, failure.evidence, failure.subject, failure.error.remedies
    if error.name == UNRESOLVABLE and failure.detail.startswith(DRA_DEVICES):
        from gpudoctor.knowledge.start_remedies import DRA_AGAIN

        steps = DRA_AGAIN
    if error.whose is Whose.WORKLOAD:
        return Warn(subject, summary, evidence, steps, cause=error.name, references=error.references)
    subject = Subject(subject.kind, subject.key, stands_on=tuple(_grounds(failure, specs, kubelet)))
    return Fail(subject, summary, evidence, steps, Breaks.NOTHING, cause=error.name, references=error.references)


def _grounds(failure: StartFailure, specs: Reading[CdiSpecs], kubelet: Reading[KubeletEngine]) -> Iterator[Subject]:
    """What another check speaks of that failed here: the kubelet's engine, the toolkit that lacks a program, specifications."""
    if failure.engine == KUBELET and not isinstance(kubelet, Unread):
        yield from kubelet.subject.stands_on
    if failure.error.name == "program-gone":
        yield TOOLKIT
    elif failure.error.name == "stale-mount" and isinstance(specs, CdiSpecs):
        for file in specs.of_nvidia:
            spec = file.loaded
            if spec is not None and any(
                failure.detail in (mount.host_path, mount.container_path) for mount in spec.mounts
            ):
                yield file.subject


@check(
    "startup.engine-after-driver",
    link=Link.STARTUP,
    needs={Link.DRIVER_CUDA},
    title="Container engines start after the driver is ready",
)
def engine_after_driver(
    starts: StartFailures,
    daemons: Reading[Daemons],
    nodes: Reading[CommonNodes],
    specs: Reading[CdiSpecs],
    dockers: Reading[Dockers],
) -> Verdicts:
    """After a reboot, containers that start with their engine exit at once, and start by hand minutes later.

    Nothing makes /dev/nvidia-uvm before something asks for it, and nvidia-cdi-refresh may run behind Docker. Told by a failure in the
    journal that names a node or a specification which is there now, of a specification if it was written within minutes behind the
    failure: one that was there before was not found for another reason, and one that came hours later somebody wrote by hand. A Docker
    that has CDI off says "could not select device driver "cdi"", at boot and ever after. An engine that is older than the nodes and of
    which no start failed is no fault: a module loaded anew makes nodes anew.
    """
    judged = False
    for journal in starts.journals.values():
        failures = [] if isinstance(journal, Unread) else journal.failures
        for failure in failures:
            if failure.error.whose is Whose.ORDER or _is_there_now(failure, specs):
                judged = True
                if _cdi_off(failure, dockers):
                    yield NotApplicable(failure, "Docker has CDI off: toolkit.docker-cdi", failure.cite("line"))
                elif (unseen := starts.unseen or failure.unsettled) is not None:
                    yield unseen.about(failure)
                else:
                    yield _too_early(failure, nodes, specs)
    running = () if isinstance(daemons, Unread) else daemons.of(Program.DOCKERD, Program.CONTAINERD, Program.CRIO)
    for daemon in () if judged else running:
        judged = True
        yield _by_times(daemon, nodes)
    if not judged:
        yield daemons.about(NODE) if isinstance(daemons, Unread) else NotApplicable(NODE, "no container engine runs")


def _cdi_off(failure: StartFailure, dockers: Reading[Dockers]) -> bool:
    """Whether a dockerd has CDI off: only then is there no driver of that name (moby daemon/cdi.go, RegisterCDIDriver)."""
    if failure.error.name != NO_DRIVER or isinstance(dockers, Unread):
        return False
    return any(one.cdi in (None, False) and not isinstance(one.settings, Unread | Refused) for one in dockers.dockers)


def _is_there_now(failure: StartFailure, specs: Reading[CdiSpecs]) -> bool:
    if failure.error.name != UNRESOLVABLE or isinstance(specs, Unread) or failure.detail not in specs.devices:
        return False
    entry = specs.devices[failure.detail].entry
    written = entry.mtime if isinstance(entry, Entry) else None
    return written is None or failure.at is None or failure.at <= written + 2 <= failure.at + RACE


def _too_early(failure: StartFailure, nodes: Reading[CommonNodes], specs: Reading[CdiSpecs]) -> Verdict:
    there: Cited = ()
    if isinstance(specs, CdiSpecs) and failure.detail in specs.devices:
        there = specs.devices[failure.detail].cite("file")
    elif not isinstance(nodes, Unread) and isinstance(nodes.uvm, Entry):
        there = (changed(nodes.uvm),)
    summary = f"a container was started before the driver was ready: {failure.meaning}"
    return Warn(
        failure, summary, failure.cite("line") + there, ORDER, cause="too-early", references=failure.error.references
    )


def _by_times(daemon: Daemon, nodes: Reading[CommonNodes]) -> Verdict:
    subject = Subject(SubjectKind.SERVICE, ENGINES[daemon.program])
    if isinstance(nodes, Unread):
        return nodes.about(subject)
    if not isinstance(nodes.uvm, Entry) or nodes.uvm.mtime is None or daemon.started_at is None:
        return NotApplicable(subject, "no failed start is told, and when it or the nodes came is not known")
    if daemon.older_than(nodes.uvm):
        reason = f"no failed start is told; the nodes are younger than it, of {in_words(nodes.uvm.mtime)}"
        return NotApplicable(subject, reason, (*daemon.cite("started"), changed(nodes.uvm)))
    return Pass(
        subject, "it was started after the driver's nodes were made", (*daemon.cite("started"), changed(nodes.uvm))
    )
