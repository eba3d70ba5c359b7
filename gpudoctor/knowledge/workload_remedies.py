"""What to do about workloads that lack a GPU or lose it, from the safest step up.

Sources: NVIDIA/cloud-native-docs container-toolkit/troubleshooting.md ("Containers losing access to GPUs with error: Failed to initialize
NVML: Unknown Error"), container-toolkit/cdi-support.md and docker-specialized.md; opencontainers/runc#3708, #4568 and #3845;
NVIDIA/nvidia-docker#1730; NVIDIA/nvidia-container-toolkit#48, #1967 and #210; docker-run(1), podman-run(1) (--group-add keep-groups);
lxc.container.conf(5) (lxc.cgroup2.devices.allow, lxc.mount.entry), systemd-nspawn(1) (--bind=, --property=); scontrol(1), sbatch(1)
(--gpus), apptainer(1) (--nv); systemd.resource-control(5) (DeviceAllow=), systemd.exec(5) (SupplementaryGroups=); nvidia-modprobe(1).
"""

import shlex

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.workload import Workload
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

UNKNOWN_ERROR = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"
RUNC_AND_SYSTEMD = "https://github.com/opencontainers/runc/issues/3708"

_NAME = pattern(r"[A-Za-z0-9][\w.-]*")
_JOB = "slurm:"
_NODES = "nvidia0 nvidiactl nvidia-uvm"


def job_of(one: Workload) -> str:
    """The number of the job of Slurm that it is, or is inside of; "" for none."""
    return one.id if one.engine == "slurm" else one.inside.removeprefix(_JOB) if one.inside.startswith(_JOB) else ""


def start_anew(one: Workload, check_id: str, *, then: bool = False, say: str = "") -> Remedy:
    """Start the workload again, as its engine does that; a name that is none is not put into a command."""
    pod, job = one.pod, job_of(one)
    contained = one.kind is GroupKind.CONTAINER
    interrupts = (
        "this pod" if pod is not None else "this job" if job else f"this {'container' if contained else 'program'}"
    )
    run: tuple[str, ...] = ()
    words = "Create the container anew."
    if pod is not None:
        words = "Delete the pod, so that its controller starts it anew; one without a controller must be created again."
        if _NAME.fullmatch(pod.namespace) and _NAME.fullmatch(pod.name):
            run = (f"kubectl -n {pod.namespace} delete pod {pod.name}",)
    elif job:
        words = "Let the job run again."
        run = (f"scontrol requeue {job}",) if job.isdecimal() else ()
    elif not contained:
        words = "Start the program again."
    elif one.engine in ("lxc", "libvirt", "systemd-nspawn"):
        words = "Stop the container and start it again."
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


def give(one: Workload, check_id: str) -> tuple[Remedy, ...]:
    """The ways in which its own engine gives a workload GPUs, and lets it open them, the best first."""
    if job_of(one):
        return (by_slurm(one, check_id),)
    if one.kind is not GroupKind.CONTAINER:
        return (by_unit(one, check_id),)
    if one.engine in ("lxc", "libvirt"):
        return (by_lxc(check_id),)
    if one.engine == "systemd-nspawn":
        return (by_nspawn(check_id),)
    if not one.engine and one.id.startswith("pid:"):
        return (by_whoever(check_id),)
    return by_cdi(check_id), by_device_options(check_id)


def by_slurm(one: Workload, check_id: str) -> Remedy:
    """A job sees the node's own /dev and may open what slurmd lets it; a container in it may have a /dev of its own."""
    job = job_of(one)
    inside = "apptainer --nv, or NVIDIA_VISIBLE_DEVICES for enroot and pyxis, brings the nodes into a container. "
    return Remedy(
        Action.CHANGE_WORKLOAD,
        f"{'' if one.engine == 'slurm' else inside}Which GPUs a job may open is Slurm's to say: see which ones it gave, and that gres.conf "
        "names their files; a job gets those that it asks for (--gpus=1, --gres=gpu:1).",
        run=(
            *((f"scontrol show job -d {job}", f"gpudoctor trace slurm:{job}") if job.isdecimal() else ()),
            "gpudoctor run --check sharing.slurm-gres --check sharing.slurm-gres-sound",
        ),
        interrupts="this job, when it is submitted anew",
        confirm=confirmed(check_id),
    )


def by_lxc(check_id: str) -> Remedy:
    """LXC, and what is built on it; its configuration names nodes and rules apart."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Give the container the nodes, and the leave to open them, in its configuration: lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none "
        "bind,optional,create=file for each, and lxc.cgroup2.devices.allow = c MAJOR:* rwm for the majors 195 and that of nvidia-uvm "
        "(on cgroup v1 lxc.cgroup.devices.allow). Incus and LXD do it for a device of the type gpu.",
        run=("grep nvidia /proc/devices    # the majors, which may differ after a boot",),
        interrupts="this container: it must be started anew",
        confirm=confirmed(check_id),
    )


def by_nspawn(check_id: str) -> Remedy:
    """systemd-nspawn binds nodes, and its unit must allow them."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        f"Bind each node and allow it: --bind=/dev/NODE and --property='DeviceAllow=/dev/NODE rw', for {_NODES}; for a container "
        "that is a service, Bind= in its .nspawn file and DeviceAllow= in a drop-in of its unit.",
        run=("ls -l /dev/nvidia*",),
        interrupts="this container: it must be started anew",
        confirm=confirmed(check_id),
    )


def by_unit(one: Workload, check_id: str) -> Remedy:
    """For a process of the host, which no engine started: its control group has the rules of units, or of whoever made the group."""
    say = "Have whoever made its control group let it open the nodes: it is no unit of systemd's."
    run: tuple[str, ...] = (f"cat /proc/{one.pid}/cgroup",)
    if one.unit:
        unit = shlex.quote(one.unit)
        say = "See which unit restricts devices, its own or a slice above; let that have them in a drop-in: DeviceAllow=char-nvidia* rw."
        run = (f"systemctl show -p DevicePolicy -p DeviceAllow -p Slice {unit}    # and so of each slice above",)
    return Remedy(
        Action.CHANGE_CONFIG,
        say,
        run=run,
        interrupts="this program, if it must start again",
        confirm=confirmed(check_id),
    )


def by_whoever(check_id: str) -> Remedy:
    """For a container of which nothing tells who made it."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        f"Have whoever starts it bind the nodes into its /dev ({_NODES}), and leave it in a control group that may open them.",
        run=("ls -l /dev/nvidia*",),
        interrupts="this container: it must be started anew",
        confirm=confirmed(check_id),
    )


def of_the_node(check_id: str) -> Remedy:
    """For a job, which sees the node's own /dev."""
    return Remedy(
        Action.LOAD_MODULE,
        "It sees the node's own /dev: what is wrong there is to be mended on the node.",
        run=(
            "gpudoctor run --link device-nodes",
            "nvidia-modprobe -c 0 -u    # makes nodes that are missing; -c with the minor of each GPU",
        ),
        interrupts="nothing that runs",
        confirm=confirmed(check_id),
    )


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


def add_group(check_id: str, *, contained: bool = True) -> Remedy:
    """For a user who is not in the nodes' group."""
    if not contained:
        return Remedy(
            Action.CHANGE_CONFIG,
            "Put the user into the group of the nodes: a job and a login have the groups that their user has when they start; a service "
            "has those of SupplementaryGroups= as well.",
            run=("ls -l /dev/nvidia*    # the group", "usermod -aG GROUP USER    # or where the users are kept"),
            interrupts="nothing: what starts afterwards has the group",
            confirm=confirmed(check_id),
        )
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
