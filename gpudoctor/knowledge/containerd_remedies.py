"""What to do about a containerd that does not load its configuration or cannot hand out GPUs, from the safest step up.

Sources: NVIDIA/cloud-native-docs container-toolkit/install-guide.md ("Configuring containerd"); containerd docs/man/containerd-config.8.md
(dump
reads the files as the daemon would, and changes nothing); k3s-io/docs advanced.md ("Configuring containerd"); NVIDIA/gpu-operator#575,
NVIDIA/nvidia-container-toolkit#1404.
"""

import shlex

from gpudoctor.facts.containerd import Containerd
from gpudoctor.facts.containerd_places import Family
from gpudoctor.verdicts import Action, Remedy

_TEMPLATES = {
    Family.K3S: "It is generated when k3s starts, which finds nvidia runtimes by itself: what is to stay goes into a template beside it.",
    Family.RKE2: "It is generated when RKE2 starts, which finds nvidia runtimes by itself: what is to stay goes into a template beside it.",
    Family.MICROK8S: "It is made from containerd-template.toml beside it when MicroK8s starts: change that one.",
}


def dump(one: Containerd) -> str:
    """The command that reads the files as containerd would."""
    program = (one.daemon.program_path if one.daemon is not None else None) or "containerd"
    return f"{shlex.quote(program)} --config {shlex.quote(one.path)} config dump"


def unit(one: Containerd) -> str:
    """The unit that starts it."""
    if one.daemon is not None and one.daemon.unit.endswith(".service"):
        return one.daemon.unit.removesuffix(".service")
    return {Family.K3S: "k3s", Family.RKE2: "rke2-server"}.get(one.family, "containerd")


def correct(one: Containerd, what: str) -> Remedy:
    """Change the file by hand and have it read without a restart."""
    hint = _TEMPLATES.get(one.family, "")
    return Remedy(
        Action.CHANGE_CONFIG,
        f"{what} {hint}".strip(),
        run=(f"{dump(one)} > /dev/null    # says what is wrong, and nothing when it loads",),
        confirm="gpudoctor run --check toolkit.containerd-config --check toolkit.containerd-runtime",
    )


def import_files(one: Containerd, folder: str) -> Remedy:
    """The line that is missing at the top."""
    return correct(one, f'Put imports = ["{folder}/*.toml"] at the top of {one.path}, above its first table.')


def configure(one: Containerd) -> Remedy:
    """Let the toolkit write its runtime."""
    if one.family in _TEMPLATES:
        return Remedy(
            Action.RESTART_SERVICE,
            _TEMPLATES[one.family],
            run=(f"systemctl restart {unit(one)}",),
            interrupts="the kubelet for some seconds; pods run on",
            confirm=f"grep nvidia {shlex.quote(one.path)}",
        )
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let the toolkit write its runtime into this containerd's configuration. The GPU Operator does it itself once its driver is ready.",
        run=(f"nvidia-ctk runtime configure --runtime=containerd --config={shlex.quote(one.path)}",),
        confirm=f"{dump(one)} | grep -A6 runtimes.nvidia",
    )


def install(one: Containerd) -> Remedy:
    """The program that is missing."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        "Install the NVIDIA Container Toolkit, or let the GPU Operator's toolkit pod run again, so that the program is there.",
        run=("apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",),
        confirm="gpudoctor run --check toolkit.containerd-runtime",
    )


def default_runc(one: Containerd) -> Remedy:
    """Give pods without GPUs their runtime back."""
    return correct(one, 'Until then set default_runtime_name = "runc", so that pods without a GPU start.')


def restart(one: Containerd) -> Remedy:
    """Have the files read."""
    return Remedy(
        Action.RESTART_SERVICE,
        "Only when they load: restart containerd, which reads its files when it starts.",
        run=(f"systemctl restart {unit(one)}",),
        interrupts="the kubelet and new pods for some seconds; containers run on with their shims",
        confirm="crictl info | grep -A4 nvidia",
        then=True,
    )
