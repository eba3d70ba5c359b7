"""The GPU Operator on this node: which of its stages is not reached, and what its driver container and its exporter say of themselves."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.kubernetes_api import KubernetesApi
from gpudoctor.facts.operands import (
    CONNECTED,
    INSTALLING,
    NO_ENGINE,
    REMOTE,
    VALIDATOR,
    DcgmExporter,
    DriverContainer,
    OperandLog,
    Operands,
    no_engine,
)
from gpudoctor.facts.operator_validations import (
    CONTAINER_READY,
    CONTAINERS,
    CUDA,
    DRIVER,
    FOLDER,
    PLUGIN,
    TOOLKIT,
    OperatorValidations,
)
from gpudoctor.facts.plugin_sockets import PluginSockets
from gpudoctor.patterns import pattern
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
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

NO_OPERATOR = "no GPU Operator has come to this node"

_WAITED_FOR = {
    DRIVER: "the driver",
    TOOLKIT: "the container toolkit",
    CUDA: "a CUDA program in a pod of its own",
    PLUGIN: "a pod that asks for a GPU",
}
_BY_CLAIMS = (
    "the driver is validated; the operator has GPUs handed out by claims here, for which no other stage is written"
)
_SAID = pattern(r"cur+ently in|not discovered|level=(?:error|fatal)|Could not")


@check(
    "device-plugin.operator-stages",
    link=Link.DEVICE_PLUGIN,
    needs={Link.TOOLKIT, Link.SHARING},
    explained_by=(
        "device-plugin.driver-container",
        "device-plugin.socket-alive",
        "device-plugin.registered",
        "device-plugin.plugin-found-devices",
        "device-plugin.plugin-scheduled",
    ),
    title="The GPU Operator has validated the node to its last stage",
)
def operator_stages(
    row: OperatorValidations,
    operands: Operands,
    sockets: Reading[PluginSockets],
    api: Reading[KubernetesApi],
    engine: Reading[KubeletEngine],
) -> Verdicts:
    """Each operand of the GPU Operator waits for a file of the stage before: the first that is missing names what is broken.

    /run/nvidia/validations holds driver-ready, toolkit-ready, cuda-ready and plugin-ready, in this order, and optional ones that
    no other waits for. Without driver-ready or toolkit-ready the device plugin waits, and the node has no GPUs for pods.
    cuda-ready and plugin-ready are only the validator's own tests: where a plugin is registered, pods have their GPUs all the
    same. Why a stage is not reached is told by the validator's log, or lies below: no driver, no runtime. plugin-ready is written
    only where the operator has the device plugin, and nothing but driver-ready where it has GPUs handed out by claims. Each
    stage is given ten minutes, a driver 21. An operator that has left the node leaves the folder behind: without a pod of it
    nothing waits. Easily confused with a DaemonSet that does not match the node: then nothing waits either.
    """
    if not row.present:
        yield NotApplicable(NODE, NO_OPERATOR, row.cite("row"))
    elif row.workloads != CONTAINERS:
        yield NotApplicable(
            NODE, f"the operator prepares this node for {row.workloads}, not for containers", row.cite("row")
        )
    elif row.missing == "":
        validated = "driver, toolkit, CUDA and device plugin are validated"
        yield Pass(NODE, _BY_CLAIMS if row.by_claims else validated, row.cite("row"))
    elif row.unseen is not None:
        yield row.unseen.about(NODE)
    elif row.missing == PLUGIN and operands.unlisted is not None and not _concerns_gpus(sockets):
        # Whether its validator waits for a plugin, or none is to be, only its pods tell.
        yield operands.unlisted.about(NODE)
    elif row.missing == PLUGIN and not operands.of(VALIDATOR) and not _concerns_gpus(sockets):
        yield Pass(NODE, "driver, toolkit and CUDA are validated; there is no device plugin to be", row.cite("row"))
    elif row.young and row.age is not None:
        yield Unknown(NODE, Why.NOT_ANSWERED, f"{row.missing} is not there yet, after {row.age:.0f} s", row.cite("row"))
    else:
        yield _stopped(row, operands, sockets, api, engine)


def _concerns_gpus(sockets: Reading[PluginSockets]) -> bool:
    return isinstance(sockets, Unread) or sockets.concerns_gpus


def _stopped(
    row: OperatorValidations,
    operands: Operands,
    sockets: Reading[PluginSockets],
    api: Reading[KubernetesApi],
    engine: Reading[KubeletEngine],
) -> Verdict:
    from gpudoctor.knowledge.operator_remedies import GET_IMAGE, LOOK_AT_OPERANDS, RESTART_VALIDATOR

    reasons = tuple(_reasons(operands, api))
    no_image = any("ImagePull" in one.shows for one in reasons)
    said = f"; {reasons[0].shows}" if reasons else ""
    summary = f"the operator's validation stands before {row.missing}: it waits for {_WAITED_FOR[row.missing]}{said}"
    evidence = (*row.cite("row"), *reasons)
    remedies = (LOOK_AT_OPERANDS, *((GET_IMAGE,) if no_image else ()), RESTART_VALIDATOR)
    served = not isinstance(sockets, Unread) and any(socket.connected is True for socket in sockets.nvidia)
    if row.missing == CUDA or served:
        kept = "; pods get their GPUs all the same" if served else ""
        return Warn(NODE, f"{summary}{kept}", evidence, remedies, cause=row.missing)
    # The toolkit's stage is a container of the runtime nvidia: an engine that lacks it is the reason.
    own = None if isinstance(engine, Unread) or row.missing != TOOLKIT else engine.own
    below = own.subject if own is not None else None
    of = () if below is None else (below,)
    return Fail(NODE, summary, evidence, remedies, Breaks.NODE, cause=row.missing, of=of)


def _reasons(operands: Operands, api: Reading[KubernetesApi]) -> Iterator[Evidence]:
    """What the API server tells of the operator's pods that do not run, then the validator's own last words."""
    pods = () if isinstance(api, Unread) or isinstance(api.pods, Unread) else api.pods
    for pod in pods:
        if "validator" in pod.metadata.name and not isinstance(api, Unread):
            for status in pod.statuses:
                if status.trouble:
                    yield api.saying("pod", pod.words, f"{pod.words}, container {status.name}: {status.trouble}")
    yield from operands.pulls
    for log in operands.of(VALIDATOR):
        yield from log.cite(_SAID)


# The driver container ------------------------------------------------------------------------------------------------


@check("device-plugin.driver-container", link=Link.DEVICE_PLUGIN, title="The driver container brings up its driver")
def driver_container(
    container: DriverContainer, row: Reading[OperatorValidations], module: Reading[NvidiaModule]
) -> Verdicts:
    """On nodes whose driver comes from a container, that container must unload what is there, build, load, and mount its root.

    Read from its last log: it ends again and again where the host has a driver of its own that is in use, where the repositories
    no longer have the headers of the running kernel, or where a module cannot be loaded. Who holds the loaded driver is looked
    up. An earlier run that failed says nothing where a later one came up. Where driver-ready names a root in which no driver
    lies, containers are given libraries that are not there. Easily confused with a broken driver: the host's own may work
    perfectly.
    """
    if not container.looked:
        yield NotApplicable(NODE, NO_OPERATOR)
    elif container.log is not None and isinstance(container.log.lines, Unread):
        yield container.log.lines.about(NODE)
    elif container.failure:
        yield _container_failed(container, container.log, row, module)
    elif container.root is False and not isinstance(row, Unread):
        yield _rootless(row)
    elif container.root is True and not isinstance(row, Unread):
        shows = Evidence(f"{FOLDER}/{DRIVER}", f"NVIDIA_DRIVER_ROOT={row.driver_root}")
        there = Evidence(row.driver_root, "has nvidia-smi")
        yield Pass(NODE, f"the driver lies in {row.driver_root}", (shows, there))
    elif not isinstance(row, Unread) and CONTAINER_READY in row.names:
        yield Pass(NODE, "the driver container has come up", row.cite("row"))
    elif not isinstance(row, Unread) and row.settings.get("IS_HOST_DRIVER") == "true":
        yield NotApplicable(NODE, "the operator uses the host's own driver", row.cite("row"))
    elif container.unlisted is not None:
        yield container.unlisted.about(NODE)
    else:
        yield NotApplicable(NODE, "there is no driver container on this node")


def _container_failed(
    container: DriverContainer,
    log: OperandLog | None,
    row: Reading[OperatorValidations],
    module: Reading[NvidiaModule],
) -> Verdict:
    assert log is not None
    remedies = _driver_remedies(container)
    evidence = (*log.cite(INSTALLING, pattern(r"^nvidia +\d+ ")), Evidence(log.path, container.failure[:300]))
    if container.in_use:
        version = "" if isinstance(module, Unread) or not module.version else f" {module.version}"
        holders = container.holding()
        names = ", ".join(
            f"{one.identity.unit or one.process.comm} (PID {one.process.pid})".replace(".service", "")
            for one in holders[:6]
        )
        more = f" and {len(holders) - 6} more" if len(holders) > 6 else ""
        summary = (
            f"the driver container cannot replace the loaded driver{version}, held by {names or 'something'}{more}"
        )
        evidence += tuple(one.evidence for one in holders[:6])
    else:
        summary = f"the driver container does not come up: {container.failure[:160]}"
    starts = f", after {log.run} restarts" if log.run else ""
    if not isinstance(row, Unread) and DRIVER in row.names:
        return Warn(NODE, f"{summary}{starts}", evidence, remedies, cause="driver-container")
    return Fail(NODE, f"{summary}{starts}", evidence, remedies, Breaks.NODE, cause="driver-container")


def _driver_remedies(container: DriverContainer) -> tuple[Remedy, ...]:
    from gpudoctor.knowledge import operator_remedies as remedies

    if container.in_use:
        return remedies.KEEP_HOSTS_DRIVER, remedies.FREE_DRIVER, remedies.BOOT_WITHOUT_DRIVER
    return remedies.MATCH_KERNEL, remedies.RESTART_DRIVER_POD


def _rootless(row: OperatorValidations) -> Verdict:
    from gpudoctor.knowledge.operator_remedies import LOOK_AT_OPERANDS, RESTART_DRIVER_POD

    root = row.driver_root
    evidence = (
        Evidence(f"{FOLDER}/{DRIVER}", f"NVIDIA_DRIVER_ROOT={root}"),
        Evidence(root, "has no nvidia-smi: not in usr/bin, usr/sbin, bin, sbin, nor in itself"),
    )
    summary = (
        f"driver-ready says that the driver lies in {root}, but nothing of it is there: the driver container has ended"
    )
    return Fail(NODE, summary, evidence, (LOOK_AT_OPERANDS, RESTART_DRIVER_POD), Breaks.NODE, cause="no-driver-root")


# dcgm-exporter -------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.dcgm-exporter",
    link=Link.DEVICE_PLUGIN,
    needs={Link.DRIVER_CUDA},
    title="dcgm-exporter has a host engine",
    advisory=True,
)
def dcgm_exporter(exporter: DcgmExporter) -> Verdicts:
    """Without an engine dcgm-exporter ends at each start, and the node's GPUs vanish from dashboards and alerts though they work.

    It runs DCGM inside itself or connects to a host engine, as it is told; its last log says with what success. An engine that it
    is told to use may be down, behind a NetworkPolicy, or unable to start because another of the host, nvidia-dcgm.service, has
    port 5555. An exporter that uses the host's engine on purpose is in order. Where the driver is dead, that is the reason.
    Easily confused with metrics that lack the names of pods: then the exporter runs, and does not see the kubelet's PodResources.
    """
    if not exporter.looked:
        yield NotApplicable(NODE, NO_KUBELET)
    elif not exporter.logs:
        yield (
            exporter.unlisted.about(NODE) if exporter.unlisted else NotApplicable(NODE, "no dcgm-exporter on this node")
        )
    for log in exporter.logs:
        if isinstance(log.lines, Unread):
            yield log.lines.about(log)
        elif no_engine(log):
            yield _without_engine(exporter, log)
        elif log.find(CONNECTED):
            yield Pass(log, "it has a host engine", log.cite(REMOTE, CONNECTED))
        else:
            yield Unknown(log, Why.NOT_ANSWERED, f"{log.path} does not tell whether it has a host engine")


def _without_engine(exporter: DcgmExporter, log: OperandLog) -> Verdict:
    from gpudoctor.knowledge.operator_remedies import ASK_EXPORTER, ONE_ENGINE, REACH_ENGINE

    evidence: Cited = log.cite(REMOTE, NO_ENGINE)
    remote = REMOTE.search(log.find(REMOTE))
    starts = f", after {log.run} restarts" if log.run else ""
    if remote is None:
        summary = f"it cannot start DCGM{starts}: {log.find(NO_ENGINE)[:160]}"
        return Warn(log, summary, evidence, (ASK_EXPORTER,), cause="no-engine")
    refused = exporter.engine_log.cite(pattern(r"Failed to start DCGM Server")) if exporter.engine_log else ()
    evidence += (*refused, *exporter.port)
    taken = exporter.engines and (refused or exporter.port) and not exporter.in_containers
    if taken:
        evidence += tuple(
            Evidence("processes (/proc/*/stat)", f"nv-hostengine ({pid}), in no container") for pid in exporter.engines
        )
        owner = f"the host's nv-hostengine (PID {', '.join(map(str, exporter.engines))}) has port 5555"
        summary = f"it gets no answer from {remote[1]}{starts}: {owner}, which the operator's own engine needs"
        return Warn(log, summary, evidence, (ONE_ENGINE, REACH_ENGINE), cause="port-taken")
    return Warn(log, f"it gets no answer from {remote[1]}{starts}", evidence, (REACH_ENGINE,), cause="no-engine")
