"""What to do about Slurm's view of a node's GPUs, from the safest step up.

Sources: gres.conf(5), cgroup.conf(5), slurm.conf(5), scontrol(1), slurmd(8); slurm.schedmd.com/gres.html, cgroups.html and cgroup_v2.html.
SchedMD counsels to drain a node before the number of its File= records changes (gres.conf(5), File), or jobs that use them are aborted;
a restart of slurmd leaves jobs running (slurmd.service, KillMode=process).
"""

import shlex

from gpudoctor.verdicts import Action, Remedy

GRES_PAGE = "https://slurm.schedmd.com/gres.html"
CGROUPS_PAGE = "https://slurm.schedmd.com/cgroups.html"
NO_JOB = "no job that runs"
_ORDERED = (
    "printf '[Unit]\\nWants=nvidia-persistenced.service\\nAfter=nvidia-persistenced.service\\n[Service]\\n"
    "ExecStartPre=-/usr/bin/nvidia-modprobe -c 0 -u\\n' > /etc/systemd/system/slurmd.service.d/50-gpus.conf"
)


def confirmed(check_id: str) -> str:
    """The command that tells whether it helped."""
    return f"gpudoctor run --check {check_id}"


def _name(node: str) -> str:
    return shlex.quote(node) if node else "NODE"


def look(folder: str, check_id: str) -> Remedy:
    """Compare first."""
    return Remedy(
        Action.NONE,
        "Compare what Slurm is told with what is there.",
        run=(
            f"grep -niE 'gres|gpu|autodetect' {folder}/slurm.conf {folder}/gres.conf",
            "ls -l /dev/nvidia[0-9]*",
            "nvidia-smi -L",
        ),
        confirm=confirmed(check_id),
    )


def correct_gres(folder: str, node: str, check_id: str, say: str) -> Remedy:
    """Change the files and let slurmd register anew."""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"{say} The files are the same on all nodes of most clusters: change them where they are kept. Drain the node first, or jobs "
        "that use the GPUs in question are aborted.",
        run=(
            f"scontrol update nodename={_name(node)} state=drain reason='gres is being corrected'",
            f"vi {folder}/gres.conf {folder}/slurm.conf    # on the controller, and wherever the files are kept",
            "scontrol reconfigure",
            "systemctl restart slurmd",
            f"scontrol update nodename={_name(node)} state=resume",
        ),
        interrupts="new jobs on this node until it is resumed; jobs that run go on, and the drain waits for them",
        confirm=confirmed(check_id),
    )


def restart(check_id: str, say: str, *, then: bool = False) -> Remedy:
    """slurmd looks at files, plugins and GPUs when it starts."""
    return Remedy(
        Action.RESTART_SERVICE,
        say,
        run=(
            "systemctl restart slurmd",
            "systemctl status slurmd --no-pager",
            "journalctl -u slurmd -b -n 30 --no-pager",
        ),
        interrupts=f"{NO_JOB}: slurmd finds its jobs again",
        confirm=confirmed(check_id),
        then=then,
    )


def bring_back(check_id: str) -> Remedy:
    """A GPU or node of /dev that is missing is not Slurm's to mend."""
    return Remedy(
        Action.NONE,
        "Find out why the GPU or its node is missing: what Slurm is told may well be right.",
        run=("gpudoctor run --link pcie --link kernel-module --link device-nodes", "nvidia-smi -L"),
        confirm=confirmed(check_id),
    )


def make_nodes(check_id: str) -> Remedy:
    """The driver's own tool makes them."""
    return Remedy(
        Action.LOAD_MODULE,
        "Make the nodes of the GPUs, then start slurmd.",
        run=(
            "nvidia-modprobe -c 0 -u    # -c with the minor of each GPU that lacks its node",
            "systemctl restart slurmd",
        ),
        interrupts=NO_JOB,
        confirm=confirmed(check_id),
    )


def order_units(check_id: str) -> Remedy:
    """Start slurmd when the nodes are there."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let slurmd start after what makes the nodes of the GPUs, at every boot.",
        run=(
            "mkdir -p /etc/systemd/system/slurmd.service.d",
            _ORDERED,
            "gpudoctor run --check cgroup.survives-reload    # containers that lose GPUs by the next step",
            "systemctl daemon-reload",
        ),
        interrupts="containers that do not survive a daemon-reload",
        confirm=confirmed(check_id),
        then=True,
    )


def delegate(check_id: str) -> Remedy:
    """Keep systemd out of what slurmd manages."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Set Delegate=yes for slurmd, so that systemd leaves the control groups of jobs, and their device rules, alone.",
        run=(
            "mkdir -p /etc/systemd/system/slurmd.service.d",
            "printf '[Service]\\nDelegate=yes\\n' > /etc/systemd/system/slurmd.service.d/50-delegate.conf",
            "gpudoctor run --check cgroup.survives-reload    # containers that lose GPUs by the next step",
            "systemctl daemon-reload",
            "systemctl restart slurmd    # best while the node is drained and idle",
        ),
        interrupts="containers that do not survive a daemon-reload; no job, where the node is drained first",
        confirm=confirmed(check_id),
    )


def nvml_plugin(check_id: str) -> Remedy:
    """Slurm with NVML, or one release's own way without it."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        "Install Slurm's NVML plugin of the same version as slurmd: a package of its own in some distributions; whoever builds Slurm "
        "configures it with --with-nvml on a machine that has nvml.h.",
        run=("slurmd -V", "find / -xdev -name gpu_nvml.so 2>/dev/null", "systemctl restart slurmd"),
        interrupts=NO_JOB,
        confirm=confirmed(check_id),
    )


def link_library(check_id: str) -> Remedy:
    """The name that older releases of Slurm ask for."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Give slurmd the library by the name that it asks for: a link libnvidia-ml.so beside libnvidia-ml.so.1, which a package of the "
        "driver brings in some distributions. If the library has come since slurmd was started, restarting it is all it takes.",
        run=(
            "ldconfig -p | grep libnvidia-ml    # where libnvidia-ml.so.1 lies",
            "ln -s libnvidia-ml.so.1 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so    # in that directory",
            "systemctl restart slurmd",
        ),
        interrupts=NO_JOB,
        confirm=confirmed(check_id),
    )


def name_files(folder: str, node: str, files: str, check_id: str) -> Remedy:
    """Without detection: which files there are."""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Or do without detection: a line in gres.conf that names the files, NodeName={node or 'NODE'} AutoDetect=off Name=gpu "
        f"File={files}. From Slurm 24.11 on AutoDetect=nvidia needs no library either, but finds neither MIG instances nor NVLinks.",
        run=(
            f"vi {folder}/gres.conf    # wherever the file is kept",
            "scontrol reconfigure",
            "systemctl restart slurmd",
        ),
        interrupts=NO_JOB,
        confirm=confirmed(check_id),
    )


def constrain(folder: str, check_id: str) -> Remedy:
    """Who may open which GPU."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let Slurm keep jobs to their own GPUs: ConstrainDevices=yes in cgroup.conf, TaskPlugin=task/cgroup (with task/affinity) in "
        "slurm.conf, no CgroupPlugin=disabled, and File= or AutoDetect in gres.conf. Jobs that start afterwards are confined; do it while "
        "the node is drained.",
        run=(
            f"grep -ni constraindevices {folder}/cgroup.conf",
            f"grep -ni taskplugin {folder}/slurm.conf",
            "scontrol reconfigure",
            "systemctl restart slurmd",
        ),
        interrupts=f"{NO_JOB}; jobs that used GPUs that were not theirs lose them when they start anew",
        confirm=confirmed(check_id),
    )


def whole_nodes(check_id: str) -> Remedy:
    """Nothing to keep apart."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Or give jobs whole nodes: OverSubscribe=EXCLUSIVE for the partition in slurm.conf.",
        run=("scontrol show partition",),
        interrupts="jobs that now share the node wait for one of their own",
        confirm=confirmed(check_id),
    )


def stop_job(job: str, check_id: str) -> Remedy:
    """The one that computes where it should not."""
    number = job if job.isdecimal() else "JOB"
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Ask its owner why it computes there, a CUDA_VISIBLE_DEVICES of its own in most cases, or let it run again.",
        run=(f"scontrol show job -d {number}", f"gpudoctor trace slurm:{number}", f"scontrol requeue {number}"),
        interrupts="this job, by the last step",
        confirm=confirmed(check_id),
    )


def inside_job(check_id: str) -> Remedy:
    """A container that inherits the control group of its job."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Start containers so that they stay in the job's control group: srun --container-image (pyxis and enroot), apptainer, or rootless "
        "podman with --cgroups=disabled. Where it must be docker, give it the job's GPUs by their UUIDs: docker run --gpus "
        "'\"device=GPU-…,GPU-…\"'. SLURM_JOB_GPUS counts in the order of gres.conf, docker in that of nvidia-smi.",
        run=(
            "squeue -w $(hostname -s)    # whose job is it",
            "nvidia-smi -L    # within a job that ConstrainDevices=yes keeps to its GPUs: theirs and no others",
        ),
        interrupts="the container: it must be created anew",
        confirm=confirmed(check_id),
    )


def close_engine(check_id: str) -> Remedy:
    """Who may use the engine at all."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Take the engine's socket out of users' reach on nodes of Slurm: its containers run in the engine's control group, whatever the "
        "job was given.",
        run=("getent group docker", "ls -l /run/docker.sock"),
        interrupts="users of that engine",
        confirm=confirmed(check_id),
    )


def resume(node: str, check_id: str, say: str) -> Remedy:
    """Give it jobs again."""
    return Remedy(
        Action.CHANGE_CONFIG,
        say,
        run=(f"scontrol show node {_name(node)}", f"scontrol update nodename={_name(node)} state=resume"),
        interrupts="nothing: jobs may start on it again",
        confirm=confirmed(check_id),
        then=True,
    )


def ask_whoever(node: str, by: str, check_id: str) -> Remedy:
    """Somebody took it out on purpose."""
    return Remedy(
        Action.NONE,
        f"Ask {by or 'whoever did it'} whether the reason still holds before jobs are let on it again.",
        run=(f"scontrol show node {_name(node)}", "sinfo -R"),
        confirm=confirmed(check_id),
    )


def find_cause(check: str, check_id: str) -> Remedy:
    """The check that made it so."""
    return Remedy(
        Action.NONE,
        f"See what {check} says now, and mend that first.",
        run=(f"gpudoctor run --check {check}", f"gpudoctor explain {check}"),
        confirm=confirmed(check_id),
    )


def see_log(check_id: str) -> Remedy:
    """Both daemons say why."""
    return Remedy(
        Action.NONE,
        "Read what slurmd said, here, and slurmctld about this node, on the controller.",
        run=("systemctl status slurmd --no-pager", "journalctl -u slurmd -b -n 50 --no-pager"),
        confirm=confirmed(check_id),
    )
