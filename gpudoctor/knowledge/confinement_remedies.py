"""What to do where SELinux, AppArmor or a user namespace stands between a container and its GPUs, from the safest step up.

Sources: NVIDIA/cloud-native-docs container-toolkit/troubleshooting.md and cdi-support.md; containers/container-selinux container.te and
pull request 306; docs.docker.com/engine/security/{apparmor,rootless,userns-remap}; apparmor.d(5); podman-run(1);
NVIDIA/libnvidia-container#154 and NVIDIA/nvidia-container-toolkit#139 (device programs under rootless engines).
"""

from gpudoctor.verdicts import Action, Remedy

SELINUX_REFERENCES = (
    "https://github.com/NVIDIA/nvidia-container-toolkit/issues/210",
    "https://github.com/containers/container-selinux/pull/306",
)
APPARMOR_REFERENCES = ("https://docs.docker.com/engine/security/apparmor/",)
NAMESPACE_REFERENCES = (
    "https://docs.docker.com/engine/security/rootless/",
    "https://discourse.ubuntu.com/t/spec-unprivileged-user-namespace-restrictions-via-apparmor-in-ubuntu-23-10/37626",
)
ROOTLESS_REFERENCES = (
    "https://github.com/NVIDIA/libnvidia-container/issues/154",
    "https://docs.docker.com/engine/security/rootless/",
)

_SELINUX, _APPARMOR, _ROOTLESS = (
    f"gpudoctor run --check toolkit.{name}" for name in ("selinux-allows", "apparmor-allows", "rootless-set-up")
)
_ANEW = "this container: it must be created anew"


def use_devices(boolean: str) -> Remedy:
    """The switch that the policy has for this; the narrower one where there are two."""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Let containers use the GPUs' nodes: the policy's switch {boolean}, which stays on after a reboot.",
        run=(f"setsebool -P {boolean} on", f"getsebool {boolean}"),
        confirm="run a container with a GPU again; ausearch -m avc -ts recent shows no new denial",
    )


def relabel() -> Remedy:
    """For nodes and libraries that lost the type the policy has for them."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Give nodes and libraries the labels that the policy has for them, in case they were made or copied with others.",
        run=("ls -Z /dev/nvidia*", "restorecon -v /dev/nvidia*", "nvidia-container-cli -k list | restorecon -v -f -"),
        confirm=_SELINUX,
    )


def without_label() -> Remedy:
    """One container less confined, the others as they are."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Or start this one container without a label: --security-opt label=disable.",
        run=("podman run --security-opt label=disable --device nvidia.com/gpu=all …",),
        interrupts=_ANEW,
        confirm=_SELINUX,
    )


def allow_in_profile(profile: str) -> tuple[Remedy, ...]:
    """Look what the profile says, let it allow the nodes; as the last resort one container without it."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            f"Let the profile {profile} allow the GPUs' nodes again (/dev/nvidia* rw): the ones that engines bring along deny none. One "
            "that an engine makes itself is made anew when the engine starts.",
            run=("aa-status", "grep -rn nvidia /etc/apparmor.d", "journalctl -k -b -g 'apparmor=.DENIED.*nvidia'"),
            interrupts="nothing until the profile is loaded anew",
            confirm=_APPARMOR,
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Or give this one container a profile of its own that allows them: --security-opt apparmor=NAME, in Kubernetes "
            "securityContext.appArmorProfile; apparmor=unconfined takes all of AppArmor away from it.",
            run=("docker run --security-opt apparmor=NAME --gpus all …",),
            interrupts=_ANEW,
            confirm=_APPARMOR,
        ),
    )


def allow_namespaces() -> tuple[Remedy, ...]:
    """A profile for the one program; the switch for the whole node comes last."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Give the program a profile that allows user namespaces (`userns,` in /etc/apparmor.d): rootless Docker's documentation has "
            "the one for rootlesskit, Ubuntu's packages bring that of podman.",
            run=("sysctl kernel.apparmor_restrict_unprivileged_userns", "ls /etc/apparmor.d", "aa-status"),
            confirm=_APPARMOR,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or lift the restriction for every program of the node, which it protects from more than containers.",
            run=("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",),
            interrupts="nothing that runs; the node is less protected",
            confirm=_APPARMOR,
        ),
    )


def rootless_by_cdi() -> Remedy:
    """CDI leaves cgroups alone."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Give GPUs by CDI, which touches no device rules: write the specification as root, readable for everybody, switch on features.cdi "
        "in the user's daemon.json, and ask with --device nvidia.com/gpu=all.",
        run=(
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "chmod 0644 /etc/cdi/nvidia.yaml",
            "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json --cdi.enabled    # as the user",
            "systemctl --user restart docker    # as the user",
        ),
        interrupts="the containers of this user",
        confirm=_ROOTLESS,
    )


def by_runtime() -> Remedy:
    """Since 1.18 the runtime edits the configuration, the hook of --gpus does not."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Ask by NVIDIA's runtime and not by --gpus: this release's runtime touches no device rules.",
        run=("docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all …    # as the user",),
        interrupts="this container: it must be created anew",
        confirm=_ROOTLESS,
    )


def no_cgroups() -> Remedy:
    """Right for a rootless engine alone: a rootful one beside it needs the rules."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Or, where no rootful engine of this node uses the same file, tell the hook to leave device rules alone.",
        run=("nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",),
        interrupts="containers that a rootful engine starts afterwards: they would lack their rules",
        confirm=_ROOTLESS,
    )


def readable(path: str) -> Remedy:
    """A specification is no secret."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let everybody read the specification and its folder.",
        run=(f"chmod 0644 {path}", f"chmod 0755 {path.rpartition('/')[0]}"),
        confirm=f"as the user: nvidia-ctk cdi list; then {_ROOTLESS}",
    )


def remapped() -> tuple[Remedy, ...]:
    """Users of the container are nobody on the node."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Start containers that need a GPU in the node's own user namespace: --userns=host.",
            run=("docker run --userns=host --gpus all …",),
            interrupts=_ANEW,
            confirm=_ROOTLESS,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or let everybody use the GPUs of this node: the module option NVreg_DeviceFileMode=0666. It counts once the driver is loaded "
            "anew.",
            run=("grep -rn DeviceFile /etc/modprobe.d /proc/driver/nvidia/params",),
            interrupts="nothing until the driver is loaded anew, then every process that uses a GPU of this node",
            confirm=_ROOTLESS,
        ),
    )
