"""What to do about CRI-O, Podman, Apptainer, enroot and the kubelet's choice of an engine, from the safest step up."""

from msgspec.structs import replace

from gpudoctor.verdicts import Action, Remedy

INSTALL_TOOLKIT = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the NVIDIA Container Toolkit, or correct the path.",
    run=("apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",),
    confirm="command -v nvidia-container-runtime",
)
CRIO_CORRECT = Remedy(
    Action.CHANGE_CONFIG,
    "Correct the file; CRI-O prints what it makes of all of them without starting.",
    run=("crio config > /dev/null", "crio status config    # of the running one"),
    confirm="gpudoctor run --check toolkit.crio-runtime",
)
CRIO_CONFIGURE = Remedy(
    Action.CHANGE_CONFIG,
    "Let the toolkit write its runtime where CRI-O reads it.",
    run=(
        "nvidia-ctk runtime configure --runtime=crio --drop-in-config=/etc/crio/crio.conf.d/99-nvidia.toml",
        "nvidia-ctk runtime configure --runtime=crio    # before toolkit 1.18, which knows no --drop-in-config",
    ),
    confirm="gpudoctor run --check toolkit.crio-runtime",
)
CRIO_RESTART = Remedy(
    Action.RESTART_SERVICE,
    "Restart CRI-O so that it reads its files.",
    run=("systemctl restart crio",),
    interrupts="no running container; pods cannot be started for a moment",
    confirm="crio status config    # lists [crio.runtime.runtimes.nvidia]",
    then=True,
)
PODMAN_CORRECT = Remedy(
    Action.CHANGE_CONFIG,
    "Correct the file: the next podman command reads it anew.",
    run=("podman info    # says what it objects to",),
    confirm="gpudoctor run --check toolkit.podman-gpus",
)
GENERATE_CDI = Remedy(
    Action.CHANGE_CONFIG,
    "Use CDI, which needs no hook and works without root, too.",
    run=("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",),
    confirm="podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi -L",
)
APPTAINER_CONFIG = Remedy(
    Action.CHANGE_CONFIG,
    "Correct the configuration, or take the libraries from the host without that program.",
    run=("apptainer config global --get 'use nvidia-container-cli'",),
    confirm="apptainer exec --nv IMAGE nvidia-smi -L",
)
APPTAINER_REINSTALL = Remedy(
    Action.INSTALL_PACKAGE,
    "Put the package's list of libraries back.",
    run=("apt-get install --reinstall apptainer    # RHEL: dnf reinstall apptainer",),
    confirm="apptainer exec --nv IMAGE nvidia-smi -L",
)
INSTALL_CLI = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the program.",
    run=("apt-get install libnvidia-container-tools    # RHEL: dnf install libnvidia-container-tools",),
    confirm="nvidia-container-cli --version",
)
KUBELET_ENDPOINT = Remedy(
    Action.CHANGE_CONFIG,
    "Look where the kubelet's engine should listen, and start that engine.",
    run=("systemctl status containerd crio", "crictl --runtime-endpoint ENDPOINT version"),
    confirm="gpudoctor run --check toolkit.kubelet-engine",
)


def executable(path: str) -> Remedy:
    """Make a script executable for everybody."""
    return Remedy(
        Action.CHANGE_CONFIG, "Make the hook executable.", run=(f"chmod 0755 {path}",), confirm=f"ls -l {path}"
    )


def readable(path: str) -> Remedy:
    """Let every user read a CDI spec, which holds no secret."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let every user read the spec; it holds paths and device numbers, no secrets.",
        run=(f"chmod o+rx {path.rpartition('/')[0]}", f"chmod o+r {path}"),
        confirm="gpudoctor run --check toolkit.podman-gpus",
    )


_KUBELET = "gpudoctor run --check toolkit.kubelet-engine"


def configure_engine(engine: str, config: str) -> tuple[Remedy, ...]:
    """Set up the engine that the kubelet uses. k3s and RKE2 write their containerd's file themselves at each start."""
    if engine == "cri-o":
        return (replace(CRIO_CONFIGURE, confirm=_KUBELET), CRIO_RESTART)
    if "/rancher/" in config:
        say = "Its file is written anew at each start, with the NVIDIA runtime where the toolkit is installed by then."
        run = (
            "command -v nvidia-container-runtime",
            "systemctl restart k3s    # or k3s-agent, rke2-server, rke2-agent",
        )
        interrupts = "no running container; the node's control plane for a moment"
        return (Remedy(Action.RESTART_SERVICE, say, run, interrupts, confirm=_KUBELET),)
    if config.startswith("/var/snap/microk8s/"):
        interrupts = "pods cannot be started while its containerd restarts"
        say = "MicroK8s sets its own containerd up."
        return (Remedy(Action.CHANGE_CONFIG, say, ("microk8s enable nvidia",), interrupts, confirm=_KUBELET),)
    runtime = "docker" if engine == "docker" else "containerd"
    named = "" if config in ("/etc/docker/daemon.json", "/etc/containerd/config.toml") else f" --config={config}"
    default = " --set-as-default    # a kubelet behind cri-dockerd asks for no runtime" if runtime == "docker" else ""
    containers = "every running container, unless live-restore is on" if runtime == "docker" else "no running container"
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Set up the engine that the kubelet uses.",
            run=(f"nvidia-ctk runtime configure --runtime={runtime}{named}{default}",),
            confirm=_KUBELET,
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Restart that engine so that it reads its file.",
            run=(f"systemctl restart {runtime}",),
            interrupts=containers,
            confirm="crictl info    # lists the nvidia runtime",
            then=True,
        ),
    )
