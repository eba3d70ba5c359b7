"""Recipes that go round and do not work: what they promise, what is true instead, and the right way.

Sources, read 2026-11-30: NVIDIA/nvidia-container-toolkit @d34b3046758c internal/config/image/envvars.go and cuda_image.go (variables that
it reads; `git grep NVIDIA_MPS` finds none); NVIDIA/k8s-device-plugin v0.20.0 internal/plugin/mps.go; the CUDA programming guide, "CUDA
Environment Variables" (CUDA_ENVIRONMENT below); docs.docker.com/reference/cli/docker/container/run, "--privileged".
"""

from enum import Enum

from msgspec import Struct

from gpudoctor.verdicts import Action, Remedy

CUDA_ENVIRONMENT = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
MPS_GUIDE = "https://docs.nvidia.com/deploy/mps/index.html"
TOOLKIT_VARIABLES = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus"
PRIVILEGED = "https://docs.docker.com/reference/cli/docker/container/run/#privileged"
UNPRIVILEGED_ACCESS = "https://github.com/NVIDIA/k8s-device-plugin/issues/61"

RECIPES = "workload.recipes-sound"
_CONFIRM = f"gpudoctor run --check {RECIPES}"
_ANEW = "this container: it must be created anew"


class Myth(str, Enum):
    """The recipes that are recognised, by the number that each has in our list of claims where it has one."""

    MPS_SWITCH = "nvidia-mps-variable"
    CONNECTIONS = "cuda-max-connections"
    MISSPELT = "misspelt-variable"
    NUMBER_OF_THE_HOST = "cuda-index-of-the-host"
    PRIVILEGED_ALONE = "privileged-without-libraries"
    ROUND_THE_PLUGIN = "gpus-without-a-request"


class Truth(Struct, frozen=True):
    """What is so instead, in words that follow a semicolon, the steps, and where it can be read."""

    words: str
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...]


def _change(say: str, *run: str, interrupts: str = _ANEW) -> Remedy:
    return Remedy(Action.CHANGE_WORKLOAD, say, run=run, interrupts=interrupts, confirm=_CONFIRM)


MISSPELT = {
    "NVIDIA_DISABLE_REQUIRES": "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_VISIBLE_DEVICE": "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITY": "NVIDIA_DRIVER_CAPABILITIES",
    "CUDA_VISIBLE_DEVICE": "CUDA_VISIBLE_DEVICES",
}
"""Names that nothing of NVIDIA's reads, with those that were meant. The first is copied round (MauriceNino/dashdot#1226)."""

TRUTHS: dict[Myth, Truth] = {
    Myth.MPS_SWITCH: Truth(
        "MPS is used by whoever finds its daemon through CUDA_MPS_PIPE_DIRECTORY",
        (
            _change(
                "Run nvidia-cuda-mps-control on the node, and give the container its pipe directory and the node's IPC namespace; in "
                "Kubernetes let the device plugin do it (sharing.mps). Without a need for MPS, drop the variable.",
                "nvidia-cuda-mps-control -d    # on the node",
                "docker run --ipc=host -v /tmp/nvidia-mps:/tmp/nvidia-mps -e CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps …",
            ),
        ),
        (MPS_GUIDE, PLUGIN),
    ),
    Myth.CONNECTIONS: Truth(
        "CUDA's variable is CUDA_DEVICE_MAX_CONNECTIONS, the number of queues to a GPU; neither limits memory or clients",
        (
            _change(
                "Drop it. For queues set CUDA_DEVICE_MAX_CONNECTIONS (1 to 32); for a limit of memory use MIG, or MPS with "
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT."
            ),
        ),
        (CUDA_ENVIRONMENT, MPS_GUIDE),
    ),
    Myth.MISSPELT: Truth(
        "",
        (_change("Set the right name instead."),),
        (TOOLKIT_VARIABLES, CUDA_ENVIRONMENT),
    ),
    Myth.NUMBER_OF_THE_HOST: Truth(
        "inside, CUDA counts the GPUs that are there from 0, whatever their numbers on the node",
        (
            _change(
                "Leave CUDA_VISIBLE_DEVICES unset, or let it count from 0: which GPUs are inside was settled when the container was "
                "created (--gpus, --device, the device plugin)."
            ),
        ),
        (CUDA_ENVIRONMENT,),
    ),
    Myth.PRIVILEGED_ALONE: Truth(
        "libcuda, nvidia-smi and their like are mounted by the toolkit where GPUs are asked for, and must be those of the node's driver",
        (
            _change(
                "Ask for the GPUs: with --gpus or a CDI device in docker and podman, nvidia.com/gpu in Kubernetes. --privileged is not "
                "needed for them.",
                "docker run --gpus all …",
            ),
        ),
        (PRIVILEGED, TOOLKIT_VARIABLES),
    ),
    Myth.ROUND_THE_PLUGIN: Truth(
        "it works beside GPUs that the kubelet gave to others, or to nobody",
        (
            _change(
                "Let the pod ask for nvidia.com/gpu in its limits if it is to have GPUs; else set NVIDIA_VISIBLE_DEVICES=void in it.",
                interrupts="this pod: it must be created anew",
            ),
            Remedy(
                Action.CHANGE_CONFIG,
                "Let the toolkit take no GPUs from a variable of an unprivileged container, and the device plugin hand them on by mounts "
                "or CDI (DEVICE_LIST_STRATEGY=volume-mounts or cdi-cri): change the plugin first.",
                run=(
                    "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-as-volume-mounts=true",
                    "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false",
                ),
                interrupts="pods started afterwards that still rely on the variable",
                confirm=_CONFIRM,
            ),
        ),
        (UNPRIVILEGED_ACCESS, TOOLKIT_VARIABLES),
    ),
}
