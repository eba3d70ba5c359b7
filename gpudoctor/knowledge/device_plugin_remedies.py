"""What to do about NVIDIA's device plugin, what it advertises, and pods with devices that are not what they seem; from the safest step up.

Sources: NVIDIA/k8s-device-plugin README.md (runtimeClassName, migStrategy, sharing), internal/plugin/server.go ("there is no way to
recover": the plugin must be restarted); NVIDIA/gpu-operator docs (nvidia.com/mig.config); kubernetes.io/docs/concepts/extend-kubernetes/
compute-storage-net/device-plugins; NVIDIA/dcgm-exporter README.md.
"""

import shlex

from gpudoctor.knowledge.engine_remedies import configure_engine
from gpudoctor.knowledge.kubelet_remedies import beside
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

MIG_STRATEGY = "https://docs.nvidia.com/datacenter/cloud-native/kubernetes/latest/index.html"
PLUGIN_PREREQUISITES = "https://github.com/NVIDIA/k8s-device-plugin#prerequisites"
NO_RECOVERY = "https://github.com/NVIDIA/k8s-device-plugin/issues/1014"
POD_RESOURCES = "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources"
BYPASS_ISSUE = "https://github.com/NVIDIA/k8s-device-plugin/issues/61"

_NAME = pattern(r"[A-Za-z0-9][\w.-]*")
_ITS_POD = "kubectl get pods -A -o wide --field-selector spec.nodeName=$(hostname) | grep -i device-plugin    # the plugin's pod"
_RESTARTS = "no running pod; pods that ask for GPUs are not started until it has registered"


def confirmed(check_id: str) -> str:
    """The command that tells whether it helped."""
    return f"gpudoctor run --check {check_id}"


def restart_plugin(check_id: str, say: str, *, then: bool = False) -> Remedy:
    """It lists devices only when it starts."""
    run = (_ITS_POD, "kubectl -n NAMESPACE delete pod POD")
    return Remedy(Action.RESTART_SERVICE, say, run=run, interrupts=_RESTARTS, confirm=confirmed(check_id), then=then)


def see_gpu_first(check_id: str) -> Remedy:
    """A GPU that is ill must not be given out again."""
    return Remedy(
        Action.NONE,
        "See first that the GPU is well again: the Xid in the kernel log, and what the driver says of it.",
        run=("gpudoctor run --link driver-cuda --link health", "nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER"),
        confirm=confirmed(check_id),
    )


def run_under_nvidia(engine: str = "containerd", config: str = "/etc/containerd/config.toml") -> Remedy:
    """`engine` is that of the node's kubelet, and `config` its file."""
    steps = configure_engine(engine, config)
    say = "Have the plugin's pod started by the nvidia runtime: its container needs the driver's libraries like any other that uses a GPU."
    return Remedy(
        Action.CHANGE_CONFIG,
        say,
        run=(
            "nvidia-smi    # must work on the node itself; of a driver container: chroot /run/nvidia/driver nvidia-smi",
            *(command for step in steps for command in step.run),
            "helm upgrade … --set runtimeClassName=nvidia",
        ),
        interrupts=f"the engine's restart: {steps[-1].interrupts}",
        confirm=confirmed("device-plugin.plugin-found-devices"),
    )


def fit_strategy(strategy: str) -> tuple[Remedy, ...]:
    """The strategy to the layout, or the layout to the strategy."""
    check_id = "device-plugin.mig-strategy"
    mixed = Remedy(
        Action.CHANGE_CONFIG,
        "Let the plugin advertise what there is: the strategy mixed has a resource for each profile, which pods must ask for by name.",
        run=("helm upgrade … --set migStrategy=mixed    # GPU Operator: mig.strategy",),
        interrupts=_RESTARTS,
        confirm=confirmed(check_id),
    )
    uniform = Remedy(
        Action.CHANGE_CONFIG,
        "Or give every GPU the same layout, on a drained node."
        if strategy == "single"
        else "Or leave MIG mode on a drained node.",
        run=("kubectl label node $(hostname) nvidia.com/mig.config=all-1g.10gb --overwrite    # or all-disabled",),
        interrupts="every program on these GPUs",
        confirm=confirmed(check_id),
    )
    return mixed, uniform


MAKE_INSTANCES = Remedy(
    Action.CHANGE_CONFIG,
    "Make instances on the GPU or leave MIG mode, then restart the plugin.",
    run=("nvidia-smi mig -lgip", "kubectl label node $(hostname) nvidia.com/mig.config=all-1g.10gb --overwrite"),
    interrupts="every program on the GPU",
    confirm=confirmed("device-plugin.mig-strategy"),
)
ONE_PLUGIN = Remedy(
    Action.CHANGE_CONFIG,
    "Keep one of them: the Operator's, a chart's, a manifest's or the node image's own. Label or taint decides which runs here.",
    run=(
        "kubectl get daemonsets -A | grep -i device-plugin",
        "helm list -A | grep -i -e nvidia -e gpu",
        "kubectl -n NAMESPACE delete daemonset NAME",
    ),
    interrupts=_RESTARTS,
    confirm=confirmed("device-plugin.one-plugin-per-resource"),
)


def forget_resource(unit: str) -> tuple[Remedy, ...]:
    """The kubelet forgets a resource without a plugin by itself, or at its restart."""
    check_id = "device-plugin.stale-resources"
    return (
        Remedy(
            Action.NONE,
            "Wait: the kubelet drops a resource whose plugin has been gone for five minutes.",
            confirm="kubectl get node $(hostname) -o jsonpath='{.status.capacity}'",
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Restart the kubelet, which forgets what no plugin registers again.",
            run=(f"systemctl restart {unit}",),
            interrupts=f"no running container; pods that ask for GPUs are not started until the plugin has registered{beside(unit)}",
            confirm=confirmed(check_id),
        ),
    )


REACH_SOCKET = Remedy(
    Action.CHANGE_CONFIG,
    "Mount the kubelet's own directory into the exporter, at the path where that looks.",
    run=("kubectl -n NAMESPACE edit daemonset dcgm-exporter    # hostPath of the volume pod-gpu-resources",),
    interrupts="the exporter",
    confirm="the metrics have labels namespace and pod again",
)


def restart_for_mapping(unit: str) -> Remedy:
    """Its start makes the socket."""
    return Remedy(
        Action.RESTART_SERVICE,
        "Restart the kubelet: it makes the socket when it starts.",
        run=(f"systemctl restart {unit}",),
        interrupts=f"no running container{beside(unit)}",
        confirm=confirmed("device-plugin.mapping-readable"),
    )


# Pods ----------------------------------------------------------------------------------------------------------------


def recreate_pod(check_id: str, namespace: str, name: str, *, say: str = "", then: bool = False) -> Remedy:
    """What a pod was given cannot be changed while it runs."""
    words = (
        say or "Delete the pod, so that its controller creates it anew; one without a controller must be created again."
    )
    sound = bool(_NAME.fullmatch(namespace) and _NAME.fullmatch(name))
    run = (f"kubectl -n {namespace} delete pod {name}",) if sound else ()
    return Remedy(Action.CHANGE_WORKLOAD, words, run=run, interrupts="this pod", confirm=confirmed(check_id), then=then)


def recreate_static(manifest: str) -> Remedy:
    """The kubelet does not give devices to a pod that it has admitted."""
    there, back = shlex.quote(manifest), shlex.quote(f"/root/{manifest.rpartition('/')[2]}")
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Start the static pod anew now that the plugin is registered: move its manifest away and, when the pod is gone, back.",
        run=(
            f"mv {there} /root/",
            "crictl pods    # until it is gone",
            f"mv {back} {there}",
        ),
        interrupts="this pod",
        confirm=confirmed("workload.pods-have-their-gpus"),
    )


def ask_by_name(resource: str) -> tuple[Remedy, ...]:
    """What the configuration's renameByDefault does to names."""
    ask = Remedy(
        Action.CHANGE_WORKLOAD,
        f"Have the pod ask for {resource}.",
        interrupts="this pod, which does not run",
        confirm=confirmed("workload.pods-have-their-gpus"),
    )
    keep = Remedy(
        Action.CHANGE_CONFIG,
        "Or let the plugin keep the old name: renameByDefault: false in its configuration (sharing.timeSlicing).",
        run=("kubectl -n NAMESPACE edit configmap NAME    # the plugin's configuration",),
        interrupts=_RESTARTS,
        confirm=confirmed("workload.pods-have-their-gpus"),
    )
    return ask, keep


ACCEPT_MOUNTS = Remedy(
    Action.CHANGE_CONFIG,
    "Let the toolkit take devices named by mounts, or let the plugin name them otherwise (envvar, or cdi-cri).",
    run=(
        "nvidia-ctk config --set accept-nvidia-visible-devices-as-volume-mounts=true --in-place",
        "helm upgrade … --set deviceListStrategy=envvar",
    ),
    interrupts="nothing that runs: containers started afterwards see it",
    confirm=confirmed("workload.pods-have-their-gpus"),
)
ASK_FOR_GPU = Remedy(
    Action.CHANGE_WORKLOAD,
    "Have the pod ask for what it uses (resources.limits nvidia.com/gpu); one that should have none sets NVIDIA_VISIBLE_DEVICES=void.",
    interrupts="this pod",
    confirm=confirmed("workload.no-bypass"),
)
ONLY_THE_PLUGIN = Remedy(
    Action.CHANGE_CONFIG,
    "Let only the device plugin give GPUs: by CDI (deviceListStrategy cdi-cri), or by mounts that the toolkit takes instead.",
    run=(
        "nvidia-ctk config --set accept-nvidia-visible-devices-envvar-when-unprivileged=false --in-place",
        "nvidia-ctk config --set accept-nvidia-visible-devices-as-volume-mounts=true --in-place",
        "helm upgrade … --set deviceListStrategy=volume-mounts",
    ),
    interrupts="nothing that runs; pods that take GPUs by the variable get none when they start again",
    confirm=confirmed("workload.no-bypass"),
)
