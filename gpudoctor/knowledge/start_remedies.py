"""What to do about containers that did not start for their GPU, from the safest step up.

Sources: NVIDIA/cloud-native-docs container-toolkit (install-guide.md, cdi-support.md); NVIDIA/nvidia-container-toolkit CHANGELOG.md
("Ignore NVIDIA_VISIBLE_DEVICES for containers with insufficent privileges": 1.4.1); systemd.resource-control(5); the issues named in
knowledge/start_errors.py.
"""

from gpudoctor.verdicts import Action, Remedy

AGAIN = "start the container again and look at its engine's journal"


def do(
    action: Action, say: str, *run: str, interrupts: str = "nothing", confirm: str = AGAIN, then: bool = False
) -> Remedy:
    """A step, confirmed by the next start unless something else is named."""
    return Remedy(action, say, run=run, interrupts=interrupts, confirm=confirm, then=then)


RECREATE = do(
    Action.CHANGE_WORKLOAD,
    "Create the container anew with a GPU that this node has, or with all of them.",
    "nvidia-smi -L",
    interrupts="this container only",
)
REGENERATE = do(
    Action.CHANGE_CONFIG,
    "Write the CDI specification anew for the driver that is loaded.",
    "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml    # toolkit 1.18 and later: systemctl restart nvidia-cdi-refresh",
    confirm="nvidia-ctk cdi list",
)
TOOLKIT_UPDATE = do(
    Action.INSTALL_PACKAGE,
    "Install the current NVIDIA Container Toolkit: it no longer runs this step from outside the container.",
    "apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",
    confirm="nvidia-ctk --version",
)
CDI_MODE = do(
    Action.CHANGE_CONFIG,
    "Or let the runtime use CDI, which needs no such step.",
    "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi",
)
PERSIST = do(
    Action.RESTART_SERVICE,
    "Keep the driver initialised between containers.",
    "systemctl enable --now nvidia-persistenced",
    confirm="nvidia-smi -q -d PERFORMANCE returns within a second",
)
LDCONFIG = do(
    Action.CHANGE_CONFIG,
    "Name this distribution's ldconfig in config.toml: /sbin/ldconfig.real on Debian and Ubuntu where it exists, else /sbin/ldconfig.",
    "nvidia-ctk config --in-place --set nvidia-container-cli.ldconfig=@/sbin/ldconfig",
)
REQUIREMENT = (
    do(Action.CHANGE_WORKLOAD, "Use an image built for this driver.", interrupts="this container only"),
    do(
        Action.CHANGE_WORKLOAD,
        "Or, where minor-version compatibility is enough, have the check skipped: NVIDIA_DISABLE_REQUIRE=true, without an S.",
        interrupts="this container only",
    ),
    do(
        Action.INSTALL_PACKAGE,
        "Or install a driver that provides the CUDA version.",
        interrupts="every GPU workload of the node: the module must be loaded anew",
        confirm="nvidia-smi",
    ),
)
ROOTLESS = (
    do(
        Action.CHANGE_CONFIG,
        "Give the GPU by CDI, which needs no rule from outside.",
        "docker run --device nvidia.com/gpu=all …",
    ),
    do(
        Action.CHANGE_CONFIG,
        "Or, only where every engine of this node is rootless, have the hook leave the rules alone.",
        "nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=true",
    ),
)
BY_POD = do(
    Action.CHANGE_WORKLOAD,
    "In Kubernetes delete the pod instead: the one that its controller makes is given a GPU that is there.",
    "kubectl -n NAMESPACE delete pod POD",
    interrupts="this pod only",
    confirm="kubectl -n NAMESPACE get pods",
)
AGAIN_NOW = do(
    Action.CHANGE_WORKLOAD,
    "Start the container again: what it asks for is there now.",
    "docker start CONTAINER    # Kubernetes: the kubelet tries again by itself",
    interrupts="this container only",
)
TIME_DRIVER = do(
    Action.INSPECT_HARDWARE,
    "Time the driver, and look for a GPU that holds it up.",
    "time nvidia-smi",
    "dmesg | grep Xid",
)
CONTAINER_MEMORY = (
    do(
        Action.CHANGE_WORKLOAD,
        "Give the container more memory: ldconfig, which reads all libraries of the image, is charged to it.",
        "docker update --memory 1g --memory-swap 1g CONTAINER    # Kubernetes: resources.limits.memory of the pod",
        interrupts="this container only",
    ),
)
NODE_MEMORY = (
    do(
        Action.INSPECT_HARDWARE,
        "See what holds the memory: of the node, or of the control group that the kernel's line names.",
        "free -h",
        "systemd-cgtop --order=memory --iterations=1",
    ),
    do(
        Action.CHANGE_CONFIG,
        "Where it is the engine's own limit, raise MemoryMax of its unit.",
        "systemctl show docker containerd kubelet --property=MemoryMax",
        then=True,
    ),
    do(
        Action.CHANGE_WORKLOAD,
        "Else stop or limit what holds it.",
        interrupts="what is stopped",
        then=True,
    ),
)
DISK = (
    do(
        Action.INSPECT_HARDWARE,
        "See which file system is full, of blocks or of inodes.",
        "df -h /var/lib/docker /var/lib/containerd /run /tmp",
        "df -i /var/lib/docker /var/lib/containerd /run /tmp",
    ),
    do(
        Action.CHANGE_CONFIG,
        "Remove images and layers that no container uses, or enlarge the file system.",
        "docker image prune    # containerd: crictl rmi --prune",
        interrupts="nothing that runs; what was removed is pulled again when it is wanted",
        confirm="df -h",
        then=True,
    ),
)
VARIABLE = (
    do(
        Action.CHANGE_WORKLOAD,
        "Ask for the GPU as this node wants it: nvidia.com/gpu under resources.limits of the pod; with Docker a CDI device or the mount of "
        "its name, for --gpus sets the variable too.",
        "docker run --volume /dev/null:/var/run/nvidia-container-devices/all …    # accept-nvidia-visible-devices-as-volume-mounts",
        interrupts="this container only",
    ),
    do(
        Action.CHANGE_WORKLOAD,
        "Where only its image sets the variable and it needs no GPU, take it back.",
        "docker run --env NVIDIA_VISIBLE_DEVICES=void …    # Kubernetes: the same under env of the container",
        interrupts="this container only",
    ),
    do(
        Action.INSTALL_PACKAGE,
        "Since 1.4.1 the toolkit starts such a container, without a GPU.",
        "apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",
        confirm="nvidia-ctk --version",
    ),
)
CDI_HOOK = (
    do(
        Action.CHANGE_WORKLOAD,
        "Where the container has a user namespace of its own (--userns auto or nomap, userns-remap), map its root or use the host's.",
        "podman run --userns=keep-id --device nvidia.com/gpu=all …    # Docker: --userns=host",
        interrupts="this container only",
    ),
    do(
        Action.CHANGE_CONFIG,
        "Else write the CDI specification anew: one of another toolkit gives the hook words that it does not know.",
        "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml    # toolkit 1.18 and later: systemctl restart nvidia-cdi-refresh",
        confirm="nvidia-ctk cdi list",
    ),
    do(
        Action.CHANGE_WORKLOAD,
        "Or start it by runc, which repeats the hook's words.",
        "podman --runtime runc run --device nvidia.com/gpu=all …",
        interrupts="this container only",
    ),
)
INSTALL = (
    do(
        Action.INSTALL_PACKAGE,
        "Install the NVIDIA Container Toolkit again, or take its runtime out of the engine's configuration.",
        "apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",
    ),
)
OPERATOR = (
    do(
        Action.CHANGE_CONFIG,
        'Give containers without a GPU their runtime back: default_runtime_name = "runc", or away with the drop-in that sets it.',
        "grep -rn default_runtime_name /etc/containerd/",
        confirm="containerd config dump | grep default_runtime_name",
    ),
    do(
        Action.RESTART_SERVICE,
        "Have containerd read it.",
        "systemctl restart containerd",
        interrupts="the kubelet and new pods for some seconds; containers run on",
        then=True,
    ),
    do(
        Action.RESTART_SERVICE,
        "Or, where the node is to keep its GPUs, have the GPU Operator put its toolkit back.",
        "kubectl -n gpu-operator rollout restart daemonset nvidia-container-toolkit-daemonset",
        interrupts="new pods with a GPU until it is done",
        confirm="ls -l /usr/local/nvidia/toolkit/nvidia-container-runtime",
    ),
)
UNLISTED = (
    do(
        Action.INSPECT_HARDWARE,
        "See which GPUs the driver lists, and why this one left.",
        "ls /proc/driver/nvidia/gpus",
        "dmesg | grep -E 'NVRM|Xid'",
    ),
)
NODES = (
    do(
        Action.LOAD_MODULE,
        "Have the nodes made before engines start, then start the container again.",
        "nvidia-modprobe -c 0 -u",
        confirm="ls -l /dev/nvidia0 /dev/nvidia-uvm",
    ),
)
NO_GIDS = (
    do(
        Action.CHANGE_CONFIG,
        "Have the specification written without it.",
        "nvidia-ctk cdi generate --feature-flag no-additional-gids-for-device-nodes --output=/var/run/cdi/nvidia.yaml",
        confirm="nvidia-ctk cdi list",
    ),
)
HANDLER = (
    do(
        Action.CHANGE_CONFIG,
        "Have the toolkit write its runtime into the engine's configuration, then restart the engine.",
        "nvidia-ctk runtime configure --runtime=containerd    # or crio",
        interrupts="with the restart of containerd: no running container",
    ),
)
RUNTIME = (
    do(
        Action.CHANGE_CONFIG,
        "Have the toolkit write its runtime into daemon.json, then restart Docker.",
        "nvidia-ctk runtime configure --runtime=docker",
        "systemctl restart docker",
        interrupts="every running container, unless live-restore is on",
    ),
)
DRA_AGAIN = (
    do(
        Action.RESTART_SERVICE,
        "Restart the DRA driver's pod on this node: it writes its CDI specification (/var/run/cdi/k8s.gpu.nvidia.com-*) when it starts.",
        "kubectl get pods -A -o wide --field-selector spec.nodeName=$(hostname) | grep dra-driver",
        "kubectl -n NAMESPACE delete pod DRA-DRIVER-POD",
        interrupts="no running pod; claims are not prepared for a moment",
        confirm="ls /var/run/cdi",
    ),
    do(
        Action.CHANGE_WORKLOAD,
        "Then create the pod anew: its claim is prepared again with it.",
        "kubectl -n NAMESPACE delete pod POD",
        interrupts="this pod",
        then=True,
    ),
)
"""For devices of kubernetes-sigs/dra-driver-nvidia-gpu, whose names nvidia-ctk does not write (#736)."""
DOCKER_AGAIN = (
    do(
        Action.RESTART_SERVICE,
        "Where the toolkit is installed, restart Docker: it looks for the hook only when it starts.",
        "systemctl restart docker",
        interrupts="every running container, unless live-restore is on",
    ),
)
