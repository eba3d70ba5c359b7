"""Sharing in time: is the plugin told so in words that it takes, do pods get what they think, and does the memory suffice?

Replicas of a GPU are shared in time: neither memory nor faults are kept apart, every pod may take all of the memory, and each of their
processes gets an equal turn (k8s-device-plugin README.md, "Shared Access to GPUs", "With CUDA Time-Slicing"). The same holds for processes
that share a GPU without MIG, MPS or vGPU: the default compute mode of nvmlComputeMode_t (nvml.h). Read 2026-11-30.
"""

from collections.abc import Iterator, Mapping

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN
from gpudoctor.facts.mps import MEMORY_LIMIT, Mps, MpsClient
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pod_devices import Given, PodDevices
from gpudoctor.facts.pod_resources import own_id
from gpudoctor.facts.sharing_config import KNOWN, MPS, TIME_SLICING, SharingConfig, resources, written
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
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

SLICING, CONTENTION = "sharing.time-slicing", "sharing.memory-contention"
PERCENT = "shared_memory_percent"
MOST_NAMED = 4
_USED, _TOTAL = "memory.used_bytes", "memory.total_bytes"
_MPS_SERVER = "nvidia-cuda-mps-server"


# Time-slicing --------------------------------------------------------------------------------------------------------


@check(SLICING, link=Link.SHARING, title="GPUs are shared between pods as the device plugin was told")
def time_slicing(config: Reading[SharingConfig], pods: Reading[PodDevices]) -> Verdicts:
    """A misspelt key, and the plugin shares nothing and says nothing; one replica, and it does not start; and a pod that asks for two of a
    shared resource may get the same GPU twice, which gives it neither more time nor more memory.

    Read from the plugin's configuration in force and from its file, where unknown keys show, from its words when it refuses one, and from
    who holds what. failRequestsGreaterThanOne is off by default with time-slicing, and that alone is no fault. With renameByDefault shared
    GPUs are called nvidia.com/gpu.shared: pods that ask for the old name are workload.pods-have-their-gpus. How often a GPU is advertised
    is device-plugin.replicas-add-up; MPS with MIG is sharing.mps-mig.
    """
    if isinstance(config, Unread):
        yield NotApplicable(
            NODE, "the device plugin's configuration is not known, see device-plugin.plugin-found-devices"
        )
        return
    refusals = [one for one in config.refused if "MPS" not in one.shows and "MIG" not in one.shows]
    if not config.present or not (config.sharing or config.file or refusals):
        yield NotApplicable(
            NODE, "no device plugin shares GPUs between pods here" if config.present else "no device plugin here"
        )
        return
    found = [*(_refused(one) for one in refusals[-1:]), *_unsound(config)]
    found += [] if isinstance(pods, Unread) else _doubled(config, pods)
    yield from found
    if not found:
        yield _sound(config)


def _sound(config: SharingConfig) -> Verdict:
    if not config.way:
        return NotApplicable(NODE, "the device plugin shares no resource", (config.evidence(TIME_SLICING),))
    names = [f"{name}{_suffix(config)} {count} times" for name, count, _ in resources(config.sharing, config.way)]
    apart = (
        "MPS is to limit each pod's memory, and keeps no faults apart"
        if config.way == MPS
        else "neither memory nor faults are kept apart: each pod may take all of the memory"
    )
    how = "by MPS" if config.way == MPS else "in time"
    return Pass(PLUGIN, f"it gives out {', '.join(names)}, shared {how}; {apart}", (config.evidence(config.way),))


def _suffix(config: SharingConfig) -> str:
    """What the plugin puts behind the name of a shared resource (replicas.go, DefaultSharedRename)."""
    table = config.sharing.get(config.way)
    return ".shared" if isinstance(table, dict) and table.get("renameByDefault") is True else ""


def _refused(said: Evidence) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, mend_sharing

    say = "Correct the configuration: each resource needs a name and at least two replicas."
    summary = f"the device plugin does not take its configuration: {said.shows}"
    steps = mend_sharing(SLICING, say)
    return Fail(PLUGIN, summary, (said,), steps, Breaks.SUBJECT, cause="refused", references=(SHARED_ACCESS,))


def _unsound(config: SharingConfig) -> Iterator[Verdict]:
    """What is written and has no effect, or will stop the plugin at its next start."""
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, mend_sharing

    table, where = (config.sharing, config.where) if config.file is None else (config.file, config.file_at)
    for words, shows, say in _faults(table):
        steps = mend_sharing(SLICING, say)
        yield Warn(PLUGIN, words, (Evidence(where, shows),), steps, cause="configuration", references=(SHARED_ACCESS,))


def _faults(table: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Summary, what was read, and what to do (api/config/v1/replicas.go and sharing.go)."""
    for key in table:
        # Go's encoding/json takes the names of a struct's fields in any case; below, the keys are looked up in a map.
        if str(key).lower() not in (name.lower() for name in KNOWN["sharing"]):
            yield _unknown("sharing", str(key), KNOWN["sharing"])
    ways = [name for name in KNOWN["sharing"] if isinstance(table.get(name), dict)]
    shared = [name for name in ways if any(True for _ in resources(table, name))]
    if len(shared) > 1:
        say = "Leave one of the two: with both the plugin shares by MPS alone."
        yield (
            "both mps and timeSlicing are set: the plugin takes mps and leaves timeSlicing out",
            "sharing: mps, timeSlicing",
            say,
        )
    for way in ways:
        settings = table[way]
        if settings and not any(True for _ in resources(table, way)):
            say = f"Name the resources that are to be shared below sharing.{way}, or take that out."
            yield (
                f"sharing.{way} names no resource: the plugin does not start with it",
                f"sharing.{way}: no resources",
                say,
            )
        for key in settings if isinstance(settings, dict) else ():
            if key not in KNOWN["way"]:
                yield _unknown(f"sharing.{way}", str(key), KNOWN["way"])
        for name, count, entry in resources(table, way):
            yield from _entry_faults(way, name, count, entry)


def _entry_faults(way: str, name: str, count: object, entry: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    at = f"sharing.{way}.resources"
    if not isinstance(count, int) or isinstance(count, bool) or count < 2:
        said = "no replicas" if count is None else f"replicas {written(count)}"
        say = "Give it two replicas or more, or take the entry out: one replica is what a GPU has without sharing."
        yield (
            f"{name or 'a resource'} has {said}: the plugin takes two or more, and does not start otherwise",
            f"{at}: {name}, {said}",
            say,
        )
    for key in entry:
        if key not in KNOWN["resource"]:
            yield _unknown(at, str(key), KNOWN["resource"])
        elif key in ("rename", "devices") and entry[key] not in ("all", None, "", f"{name}.shared"):
            say = f"Take {key} out; renameByDefault: true calls shared resources NAME.shared."
            yield (
                f"{key} of {name} is passed over: the plugin does not support it yet",
                f"{at}: {name}, {key}: {written(entry[key])}",
                say,
            )


def _unknown(at: str, key: str, known: tuple[str, ...]) -> tuple[str, str, str]:
    from difflib import get_close_matches

    key = written(key)
    near = get_close_matches(key.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    meant = next((name for name in known if near and name.lower() == near[0]), "")
    hint = f", perhaps meant for {meant}" if meant else ""
    say = (
        f"Write {meant or 'one of ' + ', '.join(known)}: keys that it does not know the plugin passes over in silence."
    )
    return f"{at} has a key {key} that the device plugin does not know{hint}: it is passed over", f"{at}: {key}", say


# What pods get and ask for -------------------------------------------------------------------------------------------


def _doubled(config: SharingConfig, pods: PodDevices) -> Iterator[Verdict]:
    for one in pods.given if config.way else ():
        own = [own_id(device) for device in one.ids]
        twice = [device for device in dict.fromkeys(own) if own.count(device) > 1]
        if twice:
            yield _twice(config, one, twice[0], own.count(twice[0]))


def _twice(config: SharingConfig, one: Given, device: str, count: int) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, one_replica

    said = f"container {one.container} holds {count} replicas of one GPU, {device}: no more time and no more memory than one gives"
    evidence = (one.evidence, config.evidence(config.way))
    return Warn(one, said, evidence, one_replica(SLICING), cause="same-gpu-twice", references=(SHARED_ACCESS,))


# Memory --------------------------------------------------------------------------------------------------------------


@check(
    CONTENTION,
    link=Link.SHARING,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="No GPU that workloads share without limits is full",
)
def memory_contention(
    gpus: PciGpus, nvml: Nvml, workloads: Reading[Workloads], mps: Reading[Mps], limits: Thresholds
) -> Verdicts:
    """Pods, jobs and users that share a GPU in time, or just use the same one, have all of its memory in common: when it is full, the next
    allocation of any of them fails with CUDA error 2, of whoever comes last and not of whoever took most.

    Judged by the memory in use and by NVML's list of processes, where those belong to two or more containers, pods, jobs, units or logins;
    several processes of one workload are that workload's own affair. Frameworks take most of a GPU by design and are well alone on it.
    With MIG each instance has memory of its own. CUDA_VISIBLE_DEVICES and the memory fractions of PyTorch, JAX and vLLM keep nobody else
    out. Memory without any process is health.memory-without-process.
    """
    by_device = {device.address: device for device in nvml.devices if device.address and device.error is None}
    for gpu in gpus:
        device = by_device.get(gpu.address)
        if device is None:
            yield NotApplicable(gpu, "NVML does not list it")
        elif _limited(device, mps):
            yield NotApplicable(gpu, "MPS limits the memory of each that shares it")
        else:
            yield _contention(gpu, device, workloads, limits)


def _limited(device: NvmlDevice, mps: Reading[Mps]) -> bool:
    """Whether all that compute on it are clients of MPS with a limit of memory: their own, their daemon's, or that of the device plugin.

    The plugin's daemon limits each client to its part (k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go).
    """
    pids = {one.pid for one in device.processes if _computes(one.kind) and _MPS_SERVER not in (one.name or "")}
    if not pids or isinstance(mps, Unread):
        return False
    return pids <= {one.pid for one in mps.clients if one.connected and _has_limit(one, mps)}


def _has_limit(client: MpsClient, mps: Mps) -> bool:
    daemon = mps.daemon(client.daemon)
    return bool(client.memory_limit or mps.wrappers or (daemon is not None and MEMORY_LIMIT in daemon.limits))


def _contention(gpu: PciGpu, device: NvmlDevice, workloads: Reading[Workloads], limits: Thresholds) -> Verdict:
    if device.fields.get("mig.current") is True:
        return NotApplicable(gpu, "MIG keeps the memory of its instances apart")
    computing = [one for one in device.processes if _computes(one.kind) and _MPS_SERVER not in (one.name or "")]
    if len({one.pid for one in computing}) < 2:
        return NotApplicable(
            gpu, "no two processes share it" if device.lists_processes else "its processes are not listed"
        )
    if isinstance(workloads, Unread):
        return workloads.about(gpu)
    owners = {owner: one for one in computing if (owner := _owner(workloads.by_pid.get(one.pid)))}
    if len(owners) < 2:
        return NotApplicable(gpu, f"{len(computing)} processes share it, not known to be of several workloads")
    used, total = device.fields.get(_USED), device.fields.get(_TOTAL)
    if not isinstance(used, int) or not isinstance(total, int) or total <= 0:
        return Unknown(gpu, Why.NOT_ANSWERED, "how much of its memory is in use was not answered")
    percent = used * 100 / total
    listed = tuple(
        Evidence(f"{device.via} ({gpu.address})", f"PID {one.pid}: {owner}") for owner, one in owners.items()
    )
    evidence = (device.evidence(_USED), device.evidence(_TOTAL), *listed[:MOST_NAMED])
    names = ", ".join(list(owners)[:MOST_NAMED])
    if percent < limits.of(PERCENT):
        return Pass(gpu, f"{len(owners)} workloads share it, {percent:.0f} % of its memory is in use", evidence)
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, relieve_memory

    said = f"{percent:.0f} % of its memory is in use, and {len(owners)} workloads share it without limits ({names}): any may run out"
    shown = (*evidence, *limits.cite(PERCENT))
    return Warn(
        gpu, said, shown, relieve_memory(CONTENTION, gpu.address), cause="memory-shared", references=(SHARED_ACCESS,)
    )


def _computes(kind: str) -> bool:
    return kind.startswith("compute") or kind == "mps"


def _owner(one: Workload | None) -> str:
    """What a process belongs to, "" where that is not known; the containers of a pod and the steps of a job are one."""
    if one is None:
        return ""
    if one.pod is not None:
        return f"{one.pod.namespace}/{one.pod.name}" if one.pod.name else f"pod {one.pod.uid}"
    return one.inside or one.title or one.key
