"""What to do about workloads that lack a GPU or lose it, from the safest step up.

Sources: NVIDIA/cloud-native-docs container-toolkit/troubleshooting.md ("Containers losing access to GPUs with error: Failed to initialize
NVML: Unknown Error"), container-toolkit/cdi-support.md and docker-specialized.md; opencontainers/runc#3708, #4568 and #3845;
NVIDIA/nvidia-docker#1730; NVIDIA/nvidia-container-toolkit#48, #1967 and #210; docker-run(1), podman-run(1) (--group-add keep-groups).
"""

import shlex

from gpudoctor.facts.workload import Workload
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

UNKNOWN_ERROR = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"
RUNC_AND_SYSTEMD = "https://github.com/opencontainers/runc/issues/3708"

_NAME = pattern(r"[A-Za-z0-9][\w.-]*")


def start_anew(one: Workload, check_id: str, *, then: bool = False, say: str = "") -> Remedy:
    """Start the workload again, as its engine does that; a name that is none is not put into a command."""
    pod, job = one.pod, one.engine == "slurm"
    interrupts = "this pod" if pod is not None else "this job" if job else "this container"
    run: tuple[str, ...] = ()
    words = "Create the container anew."
    if pod is not None:
        words = "Delete the pod, so that its controller starts it anew; one without a controller must be created again."
        if _NAME.fullmatch(pod.namespace) and _NAME.fullmatch(pod.name):
            run = (f"kubectl -n {pod.namespace} delete pod {pod.name}",)
    elif job:
        words = "Let the job run again."
        run = (f"scontrol requeue {one.id}",) if one.id.isdecimal() else ()
    elif one.engine == "docker":
        name = one.name if _NAME.fullmatch(one.name) else one.short_id
        words = "Start the container anew: docker then gives it its GPUs again."
        run = (f"docker restart {name}",) if _NAME.fullmatch(name) else ()
    return Remedy(
        Action.CHANGE_WORKLOAD, say or words, run=run, interrupts=interrupts, confirm=confirmed(check_id), then=then
    )


def confirmed(check_id: str) -> str:
    """The command that tells whether it helped."""
    return f"gpudoctor run --check {check_id}"


def by_cdi(check_id: str) -> Remedy:
    """Give GPUs in the container's own configuration, where the runtime and systemd know of them."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Give it the GPUs by CDI, which writes nodes and rules into the container's own configuration: `--device nvidia.com/gpu=all` "
        "with docker and podman, the strategy cdi-cri of the device plugin in Kubernetes.",
        run=("nvidia-ctk cdi list    # the names that can be given",),
        interrupts="this container: it must be created anew",
        confirm=confirmed(check_id),
    )


def by_device_options(check_id: str) -> Remedy:
    """The nodes one by one, for engines without CDI."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Give it each node by an option of its own, which allows it too; a mount (-v) does not: --device /dev/nvidiactl "
        "--device /dev/nvidia-uvm --device /dev/nvidia0.",
        interrupts="this container: it must be created anew",
        confirm=confirmed(check_id),
    )


def links(check_id: str) -> Remedy:
    """For runc that lists only devices with a link."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Make the links in /dev/char, at every boot before containers start: runc 1.1.3 to 1.1.6 tells systemd only of devices that "
        "have one.",
        run=("nvidia-ctk system create-dev-char-symlinks --create-all", "ls -l /dev/char/195:*"),
        confirm=confirmed(check_id),
    )


def newer_runc(check_id: str) -> Remedy:
    """runc that lists all devices."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        "Update runc to 1.2 or later, which tells systemd of all devices, links or not.",
        run=("runc --version",),
        interrupts="nothing that runs: containers started afterwards use it",
        confirm=confirmed(check_id),
    )


def cgroupfs(check_id: str) -> Remedy:
    """Keep systemd out of containers' cgroups: for docker alone, a kubelet must use the same driver as its runtime."""
    return Remedy(
        Action.CHANGE_CONFIG,
        'Let docker manage cgroups without systemd: "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json. Not '
        "on a node of Kubernetes, where kubelet and runtime must agree.",
        run=("systemctl restart docker",),
        interrupts="every container of docker, unless live-restore is on",
        confirm=confirmed(check_id),
    )


def unit_of_jobs(one: Workload, check_id: str) -> Remedy:
    """Slurm allows a job's devices by a program of its own; a policy of the unit above forbids what that allows."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Take DevicePolicy= and DeviceAllow= out of the drop-ins of the unit that jobs run in: Slurm limits each job to its own GPUs by "
        "itself (ConstrainDevices). The reload that this takes can cost containers their GPUs: ask first who would lose them.",
        run=(
            f"systemctl cat {shlex.quote(one.unit or 'slurmstepd.scope')}    # shows the drop-ins",
            "gpudoctor run --check cgroup.survives-reload",
            "systemctl daemon-reload",
        ),
        interrupts="containers that do not survive a daemon-reload",
        confirm=confirmed(check_id),
    )


def no_cgroups(check_id: str) -> Remedy:
    """The option that keeps the hook from adding rules, meant for rootless engines only."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Look whether no-cgroups is set: it is for rootless engines only, and keeps the toolkit's hook from allowing devices.",
        run=(
            "grep -n no-cgroups /etc/nvidia-container-runtime/config.toml",
            "nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        ),
        interrupts="nothing that runs: containers started afterwards get rules",
        confirm=confirmed(check_id),
    )


def through_plugin(check_id: str) -> Remedy:
    """For pods: who should have given the GPU."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "See that the pod asks for nvidia.com/gpu in its limits and runs under a runtime that gives GPUs: runtimeClassName: nvidia, or "
        "nvidia as the default runtime. A variable alone gives none.",
        run=("kubectl get runtimeclass", "gpudoctor run --link toolkit"),
        interrupts="nothing yet: a changed pod is created anew",
        confirm=confirmed(check_id),
    )


def load_uvm(check_id: str) -> Remedy:
    """Before containers start, the node of uvm must be there."""
    return Remedy(
        Action.LOAD_MODULE,
        "Load nvidia-uvm and make its nodes, at every boot before containers start: what was not there cannot be given.",
        run=("nvidia-modprobe -u -c 0", "ls -l /dev/nvidia-uvm"),
        confirm=confirmed(check_id),
    )


def add_group(check_id: str) -> Remedy:
    """For a container whose user is not in the nodes' group."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Give the container the group of the nodes: --group-add with its number, in Kubernetes securityContext.supplementalGroups; "
        "rootless podman keeps yours with --group-add keep-groups under crun.",
        run=("ls -ln /dev/nvidia*    # the number of the group",),
        interrupts="this container: it must be created anew",
        confirm=confirmed(check_id),
    )


def node_mode(check_id: str) -> Remedy:
    """The driver's own option, which its tools follow."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let everybody use the GPUs of this node: the module option NVreg_DeviceFileMode=0666, in octal with a leading zero. It "
        "counts once the driver is loaded anew.",
        run=("grep -rn DeviceFile /etc/modprobe.d /proc/driver/nvidia/params",),
        interrupts="nothing until the driver is loaded anew, then every process that uses a GPU of this node",
        confirm=confirmed(check_id),
    )


NEW_LIBRARIES = (
    "Start the workload anew, a container of podman by creating it again: it then gets the loaded driver's libraries."
)


def current_cdi(check_id: str) -> Remedy:
    """A specification that was written for another driver gives the same libraries again."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "If it comes back with the same libraries, write the CDI specification anew: it names files of the driver it was made with.",
        run=(
            "ls -l /etc/cdi /var/run/cdi",
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml    # or the file that is there",
            "nvidia-ctk cdi list",
        ),
        confirm=confirmed(check_id),
        then=True,
    )


def for_leftovers(pids: tuple[int, ...], check_id: str) -> tuple[Remedy, ...]:
    """Look, end, and as the last resort reboot."""
    listed = ",".join(str(pid) for pid in pids)
    return (
        Remedy(
            Action.NONE,
            "Look what they wait for, thread by thread; who started them may have to collect them.",
            run=(f"ps -L -o pid,tid,ppid,stat,wchan:32,comm -p {listed}", "fuser -v /dev/nvidia*"),
            confirm=confirmed(check_id),
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "End what is left of them. What sleeps in the kernel goes only when that lets it.",
            run=(f"kill -9 {' '.join(str(pid) for pid in pids)}",),
            interrupts="these processes",
            confirm=confirmed(check_id),
        ),
        Remedy(
            Action.REBOOT,
            "If they stay, drain the node and reboot it: until then the GPU cannot be reset and the driver not be updated.",
            run=("systemctl reboot",),
            interrupts="the whole node",
            confirm=confirmed(check_id),
            then=True,
        ),
    )
