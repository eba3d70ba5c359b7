"""Workloads: has each that asked for a GPU what it needs inside, and does nothing dead hold one?"""

from collections.abc import Set

from msgspec.structs import replace

from gpudoctor.chain import Link
from gpudoctor.checks.image_libraries import judge_image
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpus, NvidiaModule
from gpudoctor.facts.gpu_holders import GpuHolder
from gpudoctor.facts.gpu_variables import CUDA_VISIBLE, VISIBLE, Asked, asked_by
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.leftovers import Leftover, Leftovers, Remains
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.tasks import Tasks
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.facts.workload_access import WorkloadAccess, by_importance, is_selective
from gpudoctor.facts.workload_devices import Devices, is_job
from gpudoctor.facts.workload_libraries import ImageLibraries
from gpudoctor.facts.workload_nodes import NodeFault, NodesInside, NodeTrouble, WorkloadNodes
from gpudoctor.facts.workload_requests import asked_gpus, by_nodes_only, meant
from gpudoctor.knowledge import workload_remedies as remedies
from gpudoctor.knowledge.toolkit_config import BY_VARIABLE
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

NODES, LIBRARIES, LEFTOVERS = "workload.nodes-inside", "workload.library-version", "workload.no-leftovers"
MOST_NAMED = 4
_COMPUTE = ("all", "compute")


# nodes --------------------------------------------------------------------------------------------------------------


@check(
    NODES,
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    needs={Link.DEVICE_NODES},
    title="Every workload that asked for a GPU has its nodes",
)
def nodes_inside(
    workloads: GpuWorkloads,
    nodes: WorkloadNodes,
    access: WorkloadAccess,
    driver: Reading[DriverGpus],
    platform: Reading[PlatformGpu],
    toolkit: Reading[ToolkitConfig],
) -> Verdicts:
    """A container runs happily without the GPU it was to have; the program inside then says "no CUDA-capable device".

    Looks into the /dev of each workload: a GPU's node, /dev/nvidiactl and /dev/nvidia-uvm, of a MIG device those of its instances, with
    the numbers that the loaded driver has now, on a mount without nodev, with a mode that lets the container's user read and write.
    Nothing is opened. Asked means by an engine or a scheduler, or by a UUID in the environment: images of CUDA set
    NVIDIA_VISIBLE_DEVICES=all and programs CUDA_VISIBLE_DEVICES=0, which give no GPU by themselves under an ordinary runtime.
    NVIDIA_VISIBLE_DEVICES=void proves nothing: CDI sets it in containers that have GPUs. Only the toolkit's hook takes a variable at its
    word, if its config.toml lets it. Whether the cgroup lets the nodes be opened is cgroup.device-rules. Without nvidia-uvm monitoring
    works and CUDA does not; the toolkit leaves it out where NVIDIA_DRIVER_CAPABILITIES does not name compute.
    """
    apart = None if isinstance(platform, Unread) else platform.kind
    for one in workloads:
        if apart is not None:
            yield NotApplicable(one, f"{apart.value} has rules of its own")
        elif isinstance(one.devices, Unread):
            yield one.devices.about(one)
        elif isinstance(one.devices, Absent):
            yield NotApplicable(one, f"{one.workload.title} has no /dev, or has ended", (one.devices.evidence,))
        elif not _by_hook(one, toolkit) and (reason := _nobody_asked(one, one.devices)) is not None:
            yield one.unseen.about(one) if one.unseen else reason
        else:
            denied = {node.node.path for node in access.by_key[one.workload.key].denied}
            yield _judge_nodes(one, one.devices, nodes.by_key[one.workload.key], denied, driver)


def _by_hook(one: GpuWorkload, toolkit: Reading[ToolkitConfig]) -> bool:
    """Whether the toolkit's hook is in its configuration and takes the variable's word: then that is a request like any other.

    accept-nvidia-visible-devices-envvar-when-unprivileged = false lets it take that of privileged containers only (cuda_image.go).
    """
    config = one.workload.config
    if not isinstance(config, OciConfig) or not config.legacy_hook or isinstance(toolkit, Unread) or toolkit.unlisted:
        return False
    values = config.variables.all(VISIBLE)
    asked = bool(values) and asked_by(values[-1]) in (Asked.ALL, Asked.SOME)
    return asked and bool(toolkit.files) and all(file.value(BY_VARIABLE) is True for file in toolkit.files)


def _nobody_asked(one: GpuWorkload, devices: Devices) -> NotApplicable | None:
    """Why there is nothing to expect of it; what it was given, if only by its image's wish, must be right all the same."""
    if meant(one) or (devices.minors and not is_selective(one, devices) and not _by_privilege(one)):
        return None
    title, said = one.workload.title, tuple(wish.evidence for wish in one.wishes.wishes)
    if devices.minors:
        whose = "the nodes of when it started, being privileged" if _by_privilege(one) else "the node's own /dev"
        return NotApplicable(one, f"{title} sees {whose}; nobody asked for a GPU", devices.cite("nodes"))
    if one.only_image:
        reason = f"{VISIBLE}=all is set, as images of CUDA do; no engine was asked, and the variable alone gives no GPU"
        return NotApplicable(one, f"{title}: {reason}", said)
    if one.asked:
        reason = f"names in {VISIBLE} or {CUDA_VISIBLE}, or libraries, give no GPU; no engine was asked for one"
        return NotApplicable(one, f"{title}: {reason}", said)
    return NotApplicable(one, f"{title} asked for no GPU")


def _by_privilege(one: GpuWorkload) -> bool:
    """Whether it has all devices of the host for another reason: privileged, or set apart by no engine (a sandbox of the desktop)."""
    config = one.workload.config
    return (isinstance(config, OciConfig) and config.allows_everything) or not one.workload.engine


_OF_NUMBERS = (NodeTrouble.NOT_THAT_GPU, NodeTrouble.NO_SUCH_GPU, NodeTrouble.OLD_MAJOR)
"""Of a node with wrong numbers that the rules deny, cgroup.device-rules says which they allow instead."""


def _judge_nodes(
    one: GpuWorkload, devices: Devices, inside: NodesInside, denied: Set[str], driver: Reading[DriverGpus]
) -> Verdict:
    needed = [fault for fault in inside.faults if not _needs_no_uvm(one, fault)]
    faults = tuple(fault for fault in needed if fault.trouble not in _OF_NUMBERS or fault.path not in denied)
    if needed and not faults:
        return NotApplicable(
            one, f"{one.workload.title}: {needed[0].words}, see cgroup.device-rules", needed[0].evidence
        )
    if not faults:
        if inside.unsure is not None:
            return inside.unsure.about(one)
        listed = [node.path for node in sorted(devices.nodes, key=by_importance)]
        more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
        summary = f"{one.workload.title} has {', '.join(listed[:MOST_NAMED])}{more}"
        return Pass(one, summary, devices.cite("nodes"))
    first = faults[0]
    summary = f"{one.workload.title}: {_words(faults)}"
    evidence = tuple(dict.fromkeys(seen for fault in faults for seen in fault.evidence))
    evidence += tuple(wish.evidence for wish in one.wishes.wishes[:MOST_NAMED])
    about = _about(one, driver, first)
    steps = _FOR_NODES[first.trouble](one)
    if first.trouble is NodeTrouble.NO_UVM and by_nodes_only(one):
        return Warn(about, f"{summary}: CUDA cannot start in it", evidence, steps, cause=first.trouble.value)
    return Fail(about, summary, evidence, steps, Breaks.SUBJECT, cause=first.trouble.value)


def _words(faults: tuple[NodeFault, ...]) -> str:
    """Each kind once, with the other nodes that it is said of."""
    parts: list[str] = []
    for trouble in dict.fromkeys(fault.trouble for fault in faults):
        first, *others = [fault for fault in faults if fault.trouble is trouble]
        alike = f" (and so {', '.join(fault.path for fault in others[:MOST_NAMED])})" if others else ""
        parts.append(f"{first.words}{alike}")
    return "; ".join(parts)


def _needs_no_uvm(one: GpuWorkload, fault: NodeFault) -> bool:
    """libnvidia-container mounts uvm only for compute (src/nvc_mount.c); unset means compute and utility."""
    said = one.wishes.capabilities
    asked = said is None or any(word.strip() in _COMPUTE for word in said.split(","))
    return fault.trouble is NodeTrouble.NO_UVM and not asked


def _about(one: GpuWorkload, driver: Reading[DriverGpus], fault: NodeFault) -> Subject:
    """One that lacks a GPU's node stands on the GPUs that it asked for: what is wrong with them explains it."""
    subject = one.subject
    if fault.trouble not in (NodeTrouble.NO_GPU, NodeTrouble.NOT_THAT_GPU) or isinstance(driver, Unread):
        return subject
    asked = tuple(Subject(SubjectKind.GPU, address) for address in asked_gpus(one, driver))
    return replace(subject, stands_on=tuple(dict.fromkeys((*subject.stands_on, *asked))))


def _give(one: GpuWorkload) -> tuple[Remedy, ...]:
    if is_job(one.workload):
        return _on_the_node(one)
    if one.workload.pod is not None:
        return remedies.through_plugin(NODES), remedies.start_anew(one.workload, NODES, then=True)
    return remedies.give(one.workload, NODES)


def _on_the_node(one: GpuWorkload) -> tuple[Remedy, ...]:
    """A job sees the node's own /dev."""
    return remedies.of_the_node(NODES), remedies.start_anew(one.workload, NODES, then=True)


def _again(one: GpuWorkload) -> tuple[Remedy, ...]:
    if is_job(one.workload):
        return _on_the_node(one)
    return (remedies.start_anew(one.workload, NODES), remedies.give(one.workload, NODES)[0])


def _uvm(one: GpuWorkload) -> tuple[Remedy, ...]:
    steps = (remedies.load_uvm(NODES), remedies.start_anew(one.workload, NODES, then=True))
    return steps if is_job(one.workload) else (*steps, remedies.give(one.workload, NODES)[-1])


def _unmounted(one: GpuWorkload) -> tuple[Remedy, ...]:
    return _on_the_node(one) if is_job(one.workload) else remedies.give(one.workload, NODES)[::-1]


def _open_mode(one: GpuWorkload) -> tuple[Remedy, ...]:
    contained = not remedies.job_of(one.workload)
    return (remedies.add_group(NODES, contained=contained), remedies.node_mode(NODES))


_FOR_NODES = {
    NodeTrouble.NO_GPU: _give,
    NodeTrouble.NOT_THAT_GPU: _again,
    NodeTrouble.NO_CONTROL: _give,
    NodeTrouble.NO_INSTANCE: _give,
    NodeTrouble.NOT_A_DEVICE: _unmounted,
    NodeTrouble.NO_SUCH_GPU: _again,
    NodeTrouble.OLD_MAJOR: _again,
    NodeTrouble.NODEV: _unmounted,
    NodeTrouble.MODE: _open_mode,
    NodeTrouble.NO_UVM: _uvm,
}


# libraries ----------------------------------------------------------------------------------------------------------


@check(
    LIBRARIES,
    link=Link.WORKLOAD,
    over=GpuWorkloads,
    needs={Link.DRIVER_CUDA},
    title="Every workload has the loaded driver's libraries",
)
def library_version(workloads: GpuWorkloads, module: NvidiaModule, images: Reading[ImageLibraries]) -> Verdicts:
    """A container keeps the driver's libraries that it was started with; after a driver update they no longer fit the loaded module.

    Then everything that starts in it says "Driver/library version mismatch" (NVML 18) or CUDA error 803 or 804, while the node itself is
    well. The toolkit mounts the libraries one by one, and their names end in the version: they are read from the workload's mounts and
    held against /proc/driver/nvidia/version. Of what an image brings along only that is looked into which its LD_LIBRARY_PATH puts first:
    a stub, or a package for forward compatibility, which must be newer than the driver and does not work on GPUs that are not made for data
    centers; folders mounted as a whole are not looked into here. If libraries and module of the node differ themselves, that is
    driver-cuda.nvml-answers, and every container follows from it.
    """
    for one in workloads:
        devices = one.devices
        image = None if isinstance(images, Unread) else images.by_key.get(one.workload.key)
        ahead = judge_image(one, image, module, LIBRARIES) if image is not None else None
        if ahead is not None:
            yield ahead
        elif isinstance(devices, Unread):
            yield devices.about(one)
        elif isinstance(devices, Absent):
            yield NotApplicable(one, f"{one.workload.title} has no /dev, or has ended", (devices.evidence,))
        elif isinstance(devices.mounts, Unread):
            yield devices.mounts.about(one)
        elif not devices.versions:
            yield NotApplicable(one, f"{one.workload.title}: none of the driver's libraries is mounted by itself")
        elif not module.loaded:
            yield NotApplicable(one, "the nvidia module is not loaded", module.cite("loaded"))
        elif module.version is None:
            unread = module.mute or Unread(Why.UNREADABLE, "/proc/driver/nvidia/version", "tells no version")
            yield unread.about(one)
        else:
            yield _judge_libraries(one, devices, module, module.version)


def _judge_libraries(one: GpuWorkload, devices: Devices, module: NvidiaModule, loaded: str) -> Verdict:
    known = [library for library in devices.libraries if library.version]
    other = [library for library in known if library.version != loaded]
    where = devices.read_from["mounts"].where
    if not other:
        said = Evidence(where, f"mounts {known[0].path} of {loaded} and {len(known) - 1} more")
        return Pass(one, f"{one.workload.title} has the libraries of {loaded}", (said, *module.cite("version")))
    versions = ", ".join(dict.fromkeys(library.version for library in other))
    summary = f"{one.workload.title} has libraries of {versions}, and the loaded module is {loaded}"
    evidence = tuple(Evidence(where, f"mounts {library.path} of {library.version}") for library in other[:MOST_NAMED])
    steps = (remedies.start_anew(one.workload, LIBRARIES, say=remedies.NEW_LIBRARIES), remedies.current_cdi(LIBRARIES))
    return Fail(
        one, summary, (*evidence, *module.cite("version")), steps, Breaks.SUBJECT, cause="libraries-of-another-driver"
    )


# leftovers ----------------------------------------------------------------------------------------------------------


@check(LEFTOVERS, link=Link.WORKLOAD, title="Nothing dead holds a GPU")
def no_leftovers(leftovers: Leftovers, tasks: Reading[Tasks], log: Reading[KernelLog]) -> Verdicts:
    """What is left of a dead container or process can keep a GPU: its memory stays taken, nvidia-smi shows no process for it.

    A GPU cannot be reset, and the module not be unloaded, while anything has a node open or mapped. Told are processes whose first
    thread has ended while others live, and those of containers that are gone: their control group was removed, or they run on while
    the engine has no files of them any more and its monitor is gone. Whoever lives and belongs to somebody is none of this: monitoring,
    nvidia-persistenced, a program that sleeps for a moment. Tasks that hang in the driver are driver-cuda.no-stuck-task.
    """
    seen = leftovers.cite("dead")
    if not isinstance(tasks, Unread) and tasks.stuck_in_driver(log):
        yield NotApplicable(NODE, "tasks hang in the driver, see driver-cuda.no-stuck-task", tasks.cite("count"))
    elif leftovers.dead:
        yield _dead(leftovers.dead)
    elif leftovers.unlisted is not None:
        yield leftovers.unlisted.about(NODE)
    elif leftovers.hidden:
        summary = f"{leftovers.hidden} processes do not show which nodes they hold"
        yield Unknown(NODE, Why.NO_PERMISSION, summary, seen, would_need="root")
    else:
        yield Pass(NODE, "nothing that has ended holds a node of a GPU", seen)


def _dead(dead: tuple[Leftover, ...]) -> Warn:
    holders = [one.holder for one in dead]
    words = [
        f"{one.holder.process.comm} ({one.holder.process.pid}) {_how(one)} and holds {', '.join(one.holder.nodes)}"
        for one in dead
    ]
    more = f" and {len(dead) - MOST_NAMED} more" if len(dead) > MOST_NAMED else ""
    summary = f"{'; '.join(words[:MOST_NAMED])}{more}: neither can the GPU be reset nor the module be unloaded"
    evidence: Cited = tuple(seen for one in holders for seen in (one.evidence, *_group(one)))
    steps = remedies.for_leftovers(tuple(one.process.pid for one in holders), LEFTOVERS)
    return Warn(NODE, summary, evidence, steps, cause="dead-holder")


def _group(one: GpuHolder) -> Cited:
    """Where it belongs, or did."""
    return (Evidence(f"/proc/{one.process.pid}/cgroup", one.process.cgroup.strip()),) if one.process.cgroup else ()


def _how(one: Leftover) -> str:
    whose = f" {one.holder.workload.title}" if one.holder.workload is not None else ""
    match one.remains:
        case Remains.GROUP_GONE:
            return "is left of a container or unit whose control group is gone"
        case Remains.CONTAINER_GONE:
            return f"is left of the container{whose}, which is gone,"
        case Remains.ENDED:
            return f"{f'of{whose} ' if whose else ''}has ended but for a thread"
