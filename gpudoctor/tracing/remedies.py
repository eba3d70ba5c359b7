"""The next steps for a traced workload, from the safest up. Whatever confirms them is the same trace again: see `confirmed`.

Sources: docs.docker.com (docker run --gpus, --device, --shm-size, --ulimit, --ipc), podman-run(1), Slurm sbatch(1), scontrol(1) and
gres.conf(5), systemd.exec(5) and systemd.resource-control(5), NVIDIA/nvidia-container-toolkit v1.20.0, and those of
knowledge/workload_remedies.py.
"""

import shlex
from collections.abc import Iterable

from msgspec.structs import replace

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_denials import Denial
from gpudoctor.knowledge import workload_remedies as common
from gpudoctor.verdicts import Action, Remedy

ITSELF = "this workload: it must be started anew"
CHECK = "workload.nodes-inside"


def confirmed(remedies: Iterable[Remedy], target: str) -> tuple[Remedy, ...]:
    """The same steps, each with the trace that tells whether it helped."""
    again = f"gpudoctor trace {shlex.quote(target)}"
    return tuple(replace(remedy, confirm=again) for remedy in remedies)


def start_again(one: Workload, say: str = "", *, then: bool = False) -> Remedy:
    """Nodes, mounts and rules are made when a workload starts."""
    if one.kind is not GroupKind.SERVICE:
        return common.start_anew(one, CHECK, then=then, say=say)
    run = (f"systemctl restart {shlex.quote(one.id)}",)
    return Remedy(Action.RESTART_SERVICE, say or "Restart the service.", run=run, interrupts="the service", then=then)


def ask(one: Workload) -> tuple[Remedy, ...]:
    """How to ask for a GPU."""
    say, run = _how_to_ask(one)
    return (Remedy(Action.CHANGE_WORKLOAD, say, run=run, interrupts=ITSELF),)


def _how_to_ask(one: Workload) -> tuple[str, tuple[str, ...]]:
    if one.pod is not None:
        say = "Give the container a limit of nvidia.com/gpu, or of another GPU resource of the node, and create the pod anew."
        return say, _looked_up(one)
    if one.kind is GroupKind.JOB:
        return "Submit the job with the GPUs it needs: --gres=gpu:1 or --gpus=1.", _looked_up(one)
    if one.engine == "docker":
        say = "Create the container anew with `--gpus all` or, where CDI is set up, with `--device nvidia.com/gpu=all`."
        return say, _looked_up(one)
    if one.engine == "podman":
        say = (
            "Create the container anew with `--device nvidia.com/gpu=all`, for which there must be a CDI specification."
        )
        return say, ("nvidia-ctk cdi list",)
    return "Start it in a way that gives it the device nodes and libraries of the GPU.", ()


def _looked_up(one: Workload) -> tuple[str, ...]:
    """How to see what was asked for."""
    pod = one.pod
    if pod is not None:
        named = f"-n {shlex.quote(pod.namespace)} {shlex.quote(pod.name)}" if pod.namespace and pod.name else ""
        return (f"kubectl get pod {named} -o jsonpath='{{.spec.containers[*].resources}}'",) if named else ()
    if one.kind is GroupKind.JOB:
        return (f"scontrol show job {shlex.quote(one.id)}",)
    if one.engine == "docker":
        template = "{{.HostConfig.Runtime}} {{json .HostConfig.DeviceRequests}} {{json .HostConfig.Devices}}"
        return (f"docker inspect --format '{template}' {shlex.quote(one.name or one.short_id)}",)
    return ()


def name_existing(one: Workload) -> tuple[Remedy, ...]:
    """For a name that stands for no GPU of this node."""
    say = (
        "Start it anew with the name of a GPU that is there: UUIDs change with the card, those of MIG devices with each division, and "
        "indices count from 0."
    )
    return (Remedy(Action.CHANGE_WORKLOAD, say, run=("nvidia-smi -L", *_looked_up(one)), interrupts=ITSELF),)


def inject(one: Workload) -> tuple[Remedy, ...]:
    """For nodes or libraries that are not inside."""
    if one.kind is GroupKind.SERVICE:
        say = "See what the unit hides: PrivateDevices=yes gives a service a /dev without the GPU's nodes (systemd.exec(5))."
        run = (f"systemctl show -p PrivateDevices -p DevicePolicy -p DeviceAllow {shlex.quote(one.id)}",)
        return (Remedy(Action.CHANGE_CONFIG, say, run=run),)
    if one.pod is not None:
        return (common.through_plugin(CHECK), common.start_anew(one, CHECK, then=True))
    if one.kind is not GroupKind.CONTAINER:
        return (common.of_the_node(CHECK), common.start_anew(one, CHECK, then=True))
    return (common.start_anew(one, CHECK), *common.give(one, CHECK))


def unmounted(one: Workload) -> tuple[Remedy, ...]:
    """For nodes that were mounted as if they were files."""
    return common.give(one, CHECK)[::-1] if one.kind is GroupKind.CONTAINER else inject(one)


def owner(one: Workload) -> tuple[Remedy, ...]:
    """For a mode that keeps the process's user out."""
    contained = one.kind is GroupKind.CONTAINER and not common.job_of(one)
    return (common.add_group(CHECK, contained=contained), common.node_mode(CHECK))


def allow(one: Workload, kind: Denial) -> tuple[Remedy, ...]:
    """For rules that deny: what was lost comes back with a new start, what was never given must be given."""
    if one.kind is GroupKind.SERVICE:
        say = (
            "Let the unit have the devices, in a drop-in: `DeviceAllow=char-nvidia* rw` (systemd.resource-control(5))."
        )
        unit = shlex.quote(one.id)
        run = (f"systemctl show -p DevicePolicy -p DeviceAllow {unit}", f"systemctl edit {unit}")
        return (Remedy(Action.CHANGE_CONFIG, say, run=run, interrupts="the service, when it is restarted"),)
    again, later, ways = start_again(one), start_again(one, then=True), common.give(one, CHECK)
    if common.job_of(one):
        return (*against_reloads(one), later) if kind is Denial.BY_SYSTEMD else (again, *ways)
    if one.kind is not GroupKind.CONTAINER:
        return (*ways, later)
    if kind is Denial.BY_SYSTEMD:
        return (again, *against_reloads(one))
    if kind in (Denial.TAKEN, Denial.UNCLEAR):
        return (again, ways[0])
    if kind is Denial.NO_CGROUPS:
        return (common.no_cgroups(CHECK), later, ways[0])
    if kind is Denial.HOOK:
        return (ways[0], common.no_cgroups(CHECK), again)
    return ways


def against_reloads(one: Workload) -> tuple[Remedy, ...]:
    """What keeps devices when systemd applies its own list."""
    if common.job_of(one):
        return (common.unit_of_jobs(one, CHECK),)
    if one.kind is not GroupKind.CONTAINER:
        return common.give(one, CHECK)
    cgroupfs = (common.cgroupfs(CHECK),) if one.engine == "docker" and one.pod is None else ()
    return (common.links(CHECK), common.give(one, CHECK)[0], common.newer_runc(CHECK), *cgroupfs)


def same_libraries(one: Workload) -> tuple[Remedy, ...]:
    """For libraries of another version than the module's."""
    if one.kind is not GroupKind.CONTAINER:
        say = "Reboot, or load the module anew while nothing uses it: after an upgrade the old one stays loaded."
        return (Remedy(Action.REBOOT, say, run=("modinfo -F version nvidia",), interrupts="the node"),)
    baked = "If they are part of the image, take them out of it: the driver's libraries belong to the node."
    return (
        start_again(one, common.NEW_LIBRARIES),
        common.current_cdi(CHECK),
        Remedy(Action.CHANGE_WORKLOAD, baked, interrupts=ITSELF, then=True),
    )


def library_path(folder: str) -> tuple[Remedy, ...]:
    """For a libcuda that comes before the driver's own."""
    say = f"Take {folder} out of LD_LIBRARY_PATH, and out of the loader's configuration in the image, so that the driver's own comes first."
    return (Remedy(Action.CHANGE_WORKLOAD, say, interrupts=ITSELF),)


def newer_driver(minimum: str) -> tuple[Remedy, ...]:
    """For a runtime that this driver is too old for."""
    older = "Use an image of an older CUDA; on data-center GPUs the package cuda-compat of its own CUDA does as well."
    newer = f"Upgrade the node's driver to {minimum} or newer."
    return (
        Remedy(Action.CHANGE_WORKLOAD, older, interrupts=ITSELF),
        Remedy(Action.INSTALL_PACKAGE, newer, interrupts="every workload of the node"),
    )


def variable(say: str) -> tuple[Remedy, ...]:
    """For a variable with a value that hides or withholds something."""
    return (Remedy(Action.CHANGE_WORKLOAD, say, interrupts=ITSELF),)


def more_memory(one: Workload) -> tuple[Remedy, ...]:
    """For a small /dev/shm, or little memory that may be locked."""
    if one.pod is not None:
        say = "Mount an emptyDir with `medium: Memory` at /dev/shm; the limit of locked memory is that of the container runtime's service."
    elif one.engine in ("docker", "podman"):
        say = "Create it anew with `--shm-size=1g --ulimit memlock=-1`, as NCCL's guide has it."
    else:
        say = "Mount a larger tmpfs at its /dev/shm and raise its limit of locked memory."
    return (Remedy(Action.CHANGE_WORKLOAD, say, interrupts=ITSELF),)


def share_ipc() -> tuple[Remedy, ...]:
    """For a client of MPS that is apart from its server."""
    say = "Start it in the IPC namespace of the MPS daemon (`--ipc=host` where that runs on the host), with its pipes and its /dev/shm."
    return (Remedy(Action.CHANGE_WORKLOAD, say, interrupts=ITSELF),)


def nearer_cpus(one: Workload) -> tuple[Remedy, ...]:
    """For CPUs of another NUMA node."""
    if one.pod is not None:
        say = "Let the kubelet align CPUs with GPUs: cpuManagerPolicy static, and topologyManagerPolicy best-effort or stricter."
    elif one.kind is GroupKind.JOB:
        say = "Let Slurm bind jobs near their GPUs: AutoDetect or Cores= in gres.conf, and --gpu-bind=closest."
    else:
        say = "Give it CPUs of the GPU's NUMA node: --cpuset-cpus of docker and podman, CPUAffinity= of a unit."
    return (Remedy(Action.CHANGE_WORKLOAD, say, run=("nvidia-smi topo -m",), interrupts=ITSELF),)
