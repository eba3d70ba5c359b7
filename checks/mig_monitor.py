"""Sharing by MIG: may what watches instances see those of others?

MIG User Guide, "Device Nodes and Capabilities"; NVIDIA/nvidia-container-toolkit, NVIDIA_MIG_MONITOR_DEVICES.
"""

from gpudoctor.chain import Link
from gpudoctor.checks.mig_use import CAPS, part_seen
from gpudoctor.facts.absence import NO_MIG
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN, DevicePlugin
from gpudoctor.facts.mig import Mig
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.facts.workload_devices import Devices, WorkloadDevices
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

MONITOR = "sharing.mig-monitor"
WATCHERS = {
    "nvidia-device-p": "the device plugin",
    "gpu-feature-dis": "GPU feature discovery",
    "dcgm-exporter": "dcgm-exporter",
    "nv-hostengine": "DCGM",
}
"""Programs that look at instances of others, by their names as the kernel keeps them (proc_pid_comm(5))."""
DENIED = "Insufficient Permissions"


@check(
    MONITOR,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    title="What watches MIG instances may see those of others",
)
def mig_monitor(
    mig: Mig,
    processes: Reading[Processes],
    workloads: Reading[Workloads],
    devices: Reading[WorkloadDevices],
    access: Reading[WorkloadAccess],
    plugin: Reading[DevicePlugin],
) -> Verdicts:
    """The device plugin, feature discovery and exporters look at instances that they do not use: that takes the capability mig/monitor.

    Without it the plugin ends at its start ("error getting device memory info: Insufficient Permissions"), and the node has no GPU to
    give. The node of the capability, nvidia-cap2, is given to containers that ask by NVIDIA_MIG_MONITOR_DEVICES=all with SYS_ADMIN;
    container toolkits from 1.18 to 1.20.0 leave it out of the device cgroup (NVIDIA/nvidia-container-toolkit#1740, mended by #1947). Read
    are the plugin's log, the node inside and the rules of the cgroup. Easily confused with a workload that may not open its own instance
    (cgroup checks).
    """
    if not any(gpu.device.mig_devices for gpu in mig.gpus) or mig.monitor is None:
        yield NotApplicable(NODE, NO_MIG if not mig.gpus else "no MIG device is there to watch")
        return
    if isinstance(processes, Unread):
        yield processes.about(NODE)
        return
    said = _refused_in_log(plugin)
    if said is not None:
        summary = f"the device plugin may not look at MIG instances: {said.shows}"
        yield _shut_out(PLUGIN, summary, (said,), mig.monitor, None)
        return
    seen: set[str] = set()
    for process in processes.processes:
        words = WATCHERS.get(process.comm)
        one = workloads.by_pid.get(process.pid) if words and not isinstance(workloads, Unread) else None
        if words is None or one is None or one.kind is not GroupKind.CONTAINER or process.ended or one.key in seen:
            continue
        verdict = _watcher(one, process, mig.monitor, devices, access)
        if verdict is not None:
            seen.add(one.key)
            yield verdict
    if not seen:
        yield NotApplicable(NODE, "nothing that watches GPUs was seen in a container")


def _refused_in_log(plugin: Reading[DevicePlugin]) -> Evidence | None:
    log = None if isinstance(plugin, Unread) else plugin.spoke
    lines = () if log is None or log.serves or log.registered else (log.ended, *log.reasons)
    return next((line for line in lines if line is not None and DENIED in line.shows), None)


def _watcher(
    one: Workload,
    process: Process,
    monitor: int,
    devices: Reading[WorkloadDevices],
    access: Reading[WorkloadAccess],
) -> Verdict | None:
    """None where it is not seen well enough to say anything."""
    path, words = f"{CAPS}{monitor}", WATCHERS[process.comm]
    subject = PLUGIN if process.comm == "nvidia-device-p" else one.subject
    inside = None if isinstance(devices, Unread) else devices.by_key.get(one.key)
    if not isinstance(inside, Devices):
        return inside.about(subject) if isinstance(inside, Unread) else None
    if inside.whole_dev or (isinstance(one.config, OciConfig) and one.config.allows_everything):
        return Pass(subject, f"{words} is privileged", inside.cite("nodes"))
    if inside.node(path) is None:
        others = any(node.path.startswith(CAPS) for node in inside.nodes)
        if not others or not inside.all_capabilities:
            return part_seen(inside).about(subject) if others else None
        said = f"{words} has nodes of MIG instances, but not {path}: it may not look at those of others"
        return _shut_out(subject, said, inside.cite("nodes"), monitor, one, fails=False)
    found = None if isinstance(access, Unread) else access.by_key.get(one.key)
    entry = next((each for each in found.nodes if each.node.path == path), None) if found is not None else None
    if entry is None or found is None:
        return None
    if isinstance(entry.permission, Unread):
        return entry.permission.about(subject)
    if entry.permission:
        return Pass(subject, f"{words} may open {path}", found.cite((entry,)))
    said = f"{words} has {path}, and its cgroup does not let it open it: it may not look at MIG instances"
    return _shut_out(subject, said, found.cite((entry,)), monitor, one, inside=True)


def _shut_out(
    subject: Subject,
    summary: str,
    evidence: Cited,
    monitor: int,
    one: Workload | None,
    *,
    fails: bool = True,
    inside: bool = False,
) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import MONITOR_ISSUE, allow_monitor

    steps = allow_monitor(MONITOR, f"{CAPS}{monitor}", inside=inside, one=one)
    if fails:
        return Fail(subject, summary, evidence, steps, Breaks.SUBJECT, cause="monitor", references=(MONITOR_ISSUE,))
    return Warn(subject, summary, evidence, steps, cause="monitor", references=(MONITOR_ISSUE,))
