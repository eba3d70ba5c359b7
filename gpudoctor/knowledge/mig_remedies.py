"""What to do about MIG instances, from the safest step up.

Sources, read 2026-11-30: MIG User Guide, "Getting Started with MIG" (mig -lgip, -cgi, -C, -cci, -lgi, -lci, -dci, -dgi; -mig 0);
nvidia-smi(1) of driver 610 (-i takes a PCI address); NVIDIA/mig-parted README.md and deployments/systemd/README.md (apply -f -c,
nvidia-mig-manager.service, MIG_PARTED_SELECTED_CONFIG); NVIDIA/gpu-operator docs (nvidia.com/mig.config); NVIDIA/k8s-device-plugin#399 and
NVIDIA/nvidia-container-toolkit#1740, #1947 and NVIDIA/cloud-native-docs#498 (NVIDIA_MIG_MONITOR_DEVICES, mode legacy, mended in 1.20.1);
NVIDIA/nvidia-docker#1473 (start the container anew).
"""

from gpudoctor.facts.workload import Workload
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.knowledge.operator_remedies import APPLY_MIG_AGAIN
from gpudoctor.knowledge.workload_remedies import start_anew
from gpudoctor.verdicts import Action, Remedy

GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html"
MANAGER = "https://github.com/NVIDIA/mig-parted/tree/main/deployments/systemd"
MONITOR_ISSUE = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1740"
_SETTING = "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf"


def make_instances(check_id: str, address: str, maker: str, profiles: tuple[str, ...] = ()) -> tuple[Remedy, ...]:
    """For a GPU in MIG mode that has none; `maker` is whose work it would be: the GPU Operator's manager, the service, or "" for nobody."""
    kind = profiles[0] if profiles else "PROFILE"
    by_hand = Remedy(
        Action.CHANGE_CONFIG,
        "Make instances, each with its compute instance (-C): nothing runs on the GPU, so that nothing is in the way.",
        run=(
            f"nvidia-smi mig -i {address} -lgip    # what it can be divided into",
            f"nvidia-smi mig -i {address} -cgi {kind} -C    # or several, with commas between",
        ),
        confirm=confirmed_by(check_id),
    )
    if maker == "operator":
        return APPLY_MIG_AGAIN, by_hand, _leave(check_id, address)
    if maker == "service":
        return _by_service(check_id), by_hand, _leave(check_id, address)
    return by_hand, _at_each_boot(check_id), _leave(check_id, address)


def _by_service(check_id: str) -> Remedy:
    return Remedy(
        Action.CHANGE_CONFIG,
        "Have nvidia-mig-manager make its layout, now and at each boot. See first which one it selects: all-disabled, which its package "
        "comes with, turns MIG off on every GPU.",
        run=(
            f"grep SELECTED_CONFIG {_SETTING}",
            "nvidia-mig-parted assert -f /etc/nvidia-mig-manager/config.yaml -c NAME    # says which GPUs differ from it",
            "systemctl enable nvidia-mig-manager && systemctl start nvidia-mig-manager",
        ),
        interrupts="every program on the GPUs whose layout changes, and the services that its hooks stop: device plugin, dcgm-exporter",
        confirm=confirmed_by(check_id),
    )


def _at_each_boot(check_id: str) -> Remedy:
    return Remedy(
        Action.CHANGE_CONFIG,
        "Have them made at each boot, for they survive none: by the service nvidia-mig-manager of the package of that name, on nodes of "
        "the GPU Operator by its MIG manager and the label nvidia.com/mig.config.",
        run=(
            "systemctl edit nvidia-mig-manager    # Environment=MIG_PARTED_SELECTED_CONFIG=NAME instead of all-disabled",
            "systemctl enable nvidia-mig-manager    # from the next boot on",
        ),
        confirm="systemctl is-enabled nvidia-mig-manager",
        then=True,
    )


def _leave(check_id: str, address: str) -> Remedy:
    return Remedy(
        Action.CHANGE_CONFIG,
        "Or leave MIG mode, if nobody wants the GPU divided.",
        run=(f"nvidia-smi -i {address} -mig 0    # on Ampere boards this resets the GPU",),
        interrupts="every process on this GPU",
        confirm=confirmed_by(check_id),
    )


def make_compute_instances(check_id: str, address: str, instances: tuple[int, ...]) -> tuple[Remedy, ...]:
    """For GPU instances without one."""
    numbers = ",".join(map(str, instances))
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Make a compute instance in each: without a profile it takes the whole GPU instance.",
            run=(
                f"nvidia-smi mig -i {address} -lgi",
                f"nvidia-smi mig -i {address} -cci -gi {numbers}",
                "nvidia-smi -L",
            ),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or give the GPU instances up, so that others can be made.",
            run=(f"nvidia-smi mig -i {address} -dgi -gi {numbers}",),
            confirm=confirmed_by(check_id),
        ),
    )


def align(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For instances that one side alone knows."""
    return (
        Remedy(
            Action.NONE,
            "Look again when no change of the layout is under way.",
            run=(f"nvidia-smi mig -i {address} -lgi", f"nvidia-smi mig -i {address} -lci", "nvidia-smi -L"),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Destroy the instance that nobody can use, and make it anew.",
            run=(
                f"nvidia-smi mig -i {address} -dci -gi GI -ci CI && nvidia-smi mig -i {address} -dgi -gi GI",
                f"nvidia-smi mig -i {address} -cgi PROFILE -C",
            ),
            interrupts="what uses that instance, else nothing",
            confirm=confirmed_by(check_id),
        ),
    )


def name_anew(check_id: str, kind: str) -> tuple[Remedy, ...]:
    """For a name of a MIG device that is not there; `kind` is pod, job, service, or the engine of a container."""
    last = {
        "pod": "Delete the pod: its controller starts another, which is given an instance that is there.",
        "service": "Write the new name into the unit and restart it.",
        "job": "Cancel the job and submit it anew; have slurmd take the instances from the driver, not from a list.",
    }.get(
        kind,
        "Start it anew with a name that is there; better by profile or index than by a name that ends with the instance.",
    )
    commands = {
        "pod": (
            "kubectl get pods -A --field-selector spec.nodeName=$(hostname)",
            "kubectl -n NAMESPACE delete pod POD",
        ),
        "service": ("systemctl edit UNIT    # Environment=CUDA_VISIBLE_DEVICES=MIG-…", "systemctl restart UNIT"),
        "job": ("squeue -w $(hostname -s)", "scontrol requeue JOB"),
        "docker": ("docker rm -f NAME && docker run --gpus '\"device=MIG-…\"' …",),
        "podman": ("nvidia-ctk cdi list", "podman rm -f NAME && podman run --device nvidia.com/gpu=MIG-… …"),
    }.get(kind, ())
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            f"Take the names that there are. {last}",
            run=("nvidia-smi -L    # the names that there are", *commands),
            interrupts="this workload, which has no GPU now",
            confirm=confirmed_by(check_id),
        ),
    )


VIEW_IS_FIXED = (
    "Start the container anew: what it sees of MIG is fixed when it starts. With CDI its specification must be made anew first "
    "(toolkit.cdi-specs-current)."
)


def restart_watchers(check_id: str) -> Remedy:
    """For whoever changes the layout."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "And have whoever changes the layout restart what watches GPUs: mig-parted's hooks do that.",
        run=("nvidia-mig-parted apply -f FILE -c NAME -k /etc/nvidia-mig-manager/hooks.yaml",),
        interrupts="what uses the GPUs whose layout changes",
        confirm=confirmed_by(check_id),
        then=True,
    )


def possible_layout(check_id: str, file: str, names: str) -> tuple[Remedy, ...]:
    """For a layout with profiles that the board has not; `file` is where it is written, `names` what the board has."""
    label = "" if file else "kubectl label node $(hostname) nvidia.com/mig.config=NAME --overwrite"
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            f"Choose a layout of profiles that this board has{f': {names}' if names else ''}. `nvidia-mig-parted generate-config` writes "
            "one for what is here.",
            run=(
                "nvidia-smi mig -lgip",
                label or f"nvidia-mig-parted apply -f {file} -c NAME",
                *(
                    ()
                    if label
                    else (f"systemctl edit nvidia-mig-manager    # {_SETTING}: MIG_PARTED_SELECTED_CONFIG=NAME",)
                ),
            ),
            interrupts="every program on the GPUs whose layout changes",
            confirm=confirmed_by(check_id),
        ),
    )


def run_manager(check_id: str) -> tuple[Remedy, ...]:
    """For a MIG manager that failed."""
    return (
        Remedy(
            Action.NONE,
            "See why: mostly something used a GPU, the layout has profiles that the board has not, or the module was not loaded yet: "
            "later versions start after nvidia-persistenced.",
            run=("journalctl -b -u nvidia-mig-manager", "fuser -v /dev/nvidia*"),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Let it run again on a drained node.",
            run=("systemctl restart nvidia-mig-manager", "nvidia-smi -L"),
            interrupts="the services that its hooks stop, and every program on the GPUs whose layout changes",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def enable_manager(check_id: str) -> tuple[Remedy, ...]:
    """For one that does not run at boot."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "See that it selects the layout of now, then have it run at each boot; or remove it, where something else makes the instances.",
            run=(
                f"grep SELECTED_CONFIG {_SETTING}",
                "nvidia-mig-parted assert -f /etc/nvidia-mig-manager/config.yaml -c NAME",
                "systemctl enable nvidia-mig-manager",
            ),
            confirm=confirmed_by(check_id),
        ),
    )


def allow_monitor(check_id: str, node: str, *, inside: bool, one: Workload | None) -> tuple[Remedy, ...]:
    """For whoever watches MIG and may not; `inside` is whether the node is there and the cgroup refuses it.

    `one` is its container, None for the device plugin of which only the log was seen.
    """
    in_pod = one is None or one.pod is not None
    anew = start_anew(one, check_id).run if one is not None else ()
    charts = (
        "helm upgrade RELEASE nvdp/nvidia-device-plugin -n NAMESPACE --reuse-values --set migStrategy=STRATEGY    # as it is now",
        "kubectl -n NAMESPACE edit daemonset NAME    # without the chart: env and securityContext",
    )
    by_hand = ("docker run --gpus all --cap-add SYS_ADMIN -e NVIDIA_MIG_MONITOR_DEVICES=all …",)
    ask = Remedy(
        Action.CHANGE_CONFIG,
        "Have the container ask for it: NVIDIA_MIG_MONITOR_DEVICES=all with the capability SYS_ADMIN"
        + (", as NVIDIA's own charts do where a strategy for MIG is set." if in_pod else "."),
        run=charts if in_pod else by_hand,
        interrupts="the pods of this DaemonSet, on all its nodes"
        if in_pod
        else "this container: it must be created anew",
        confirm=confirmed_by(check_id),
    )
    allow = Remedy(
        Action.CHANGE_CONFIG,
        f"{'The' if inside else 'Or, where the'} cgroup refuses {node} under container toolkits from 1.18 to 1.20.0: take a later one, let "
        "the runtime work in its mode legacy, or make this container privileged.",
        run=(
            "nvidia-ctk --version",
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=legacy",
            *(anew or (("kubectl -n NAMESPACE delete pod POD",) if in_pod else ())),
        ),
        interrupts="this container, with its pod if it is in one; the mode holds for every container that starts from then on",
        confirm=confirmed_by(check_id),
    )
    return (allow, ask) if inside else (ask, allow)
