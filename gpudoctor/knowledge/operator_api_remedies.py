"""What to do about a node's objects in the API: labels, DaemonSets, RuntimeClasses, slices; from the safest step up."""

from gpudoctor.knowledge.kubelet_remedies import beside
from gpudoctor.verdicts import Action, Remedy

_DESCRIBE = "kubectl describe node NODE    # Labels, Taints, Capacity, Conditions"


def reach_server(unit: str) -> tuple[Remedy, ...]:
    """For a kubelet that runs in this unit and does not bring its node's status to the server."""
    look = Remedy(
        Action.NONE,
        "Look why the kubelet does not reach the API server: what it says, the route, its certificate.",
        run=(f"journalctl -u {unit} --since -15min | grep -iE 'node status|lease|x509|dial tcp'", _DESCRIBE),
        confirm="kubectl get node NODE    # Ready",
    )
    restart = Remedy(
        Action.RESTART_SERVICE,
        "Where it reaches the server, restart the kubelet: it writes the node's status anew.",
        run=(f"systemctl restart {unit}",),
        interrupts=f"no running container; device plugins register again{beside(unit)}",
        confirm="kubectl get node NODE -o jsonpath='{.status.allocatable}'",
        then=True,
    )
    return look, restart


RESTART_DISCOVERY = Remedy(
    Action.RESTART_SERVICE,
    "Restart GPU Feature Discovery's pod on this node: it writes the labels anew. What nobody writes any more can be removed by hand.",
    run=(
        "kubectl -n NAMESPACE delete pod -l app=gpu-feature-discovery --field-selector spec.nodeName=NODE",
        "kubectl label node NODE nvidia.com/gpu.product-    # instead, where no GPU Feature Discovery is installed",
    ),
    interrupts="no workload; pods that choose nodes by these labels may be placed elsewhere",
    confirm="gpudoctor run --check device-plugin.labels-true --kubeconfig FILE",
)
ALLOW_PLUGIN = Remedy(
    Action.CHANGE_CONFIG,
    "Let Node Feature Discovery give the label that the DaemonSet waits for (deviceLabelFields: [vendor]), or give the node the one that "
    "stands for it.",
    run=(_DESCRIBE, "kubectl label node NODE nvidia.com/gpu.present=true"),
    interrupts="nothing",
    confirm=_DESCRIBE,
)
TOLERATE = Remedy(
    Action.CHANGE_CONFIG,
    "Have the DaemonSet tolerate the node's taint (tolerations in its chart's values), or take the taint away.",
    run=(_DESCRIBE, "kubectl -n NAMESPACE edit daemonset NAME    # spec.template.spec.tolerations"),
    interrupts="nothing; without the taint other pods may be placed here as well",
    confirm="kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep device-plugin",
)
WHY_NO_POD = Remedy(
    Action.NONE,
    "Ask the DaemonSet why it makes no pod here: its events say what was refused.",
    run=(
        "kubectl -n NAMESPACE describe daemonset NAME    # Events",
        "kubectl -n NAMESPACE get events --sort-by .lastTimestamp",
    ),
    confirm="kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep device-plugin",
)


def create_runtime_class(name: str) -> Remedy:
    """The object that only names a handler of the engine."""
    manifest = f"{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {name}}}, handler: {name}}}"
    return Remedy(
        Action.CHANGE_CONFIG,
        "Create the object; the GPU Operator makes it, or: the handler is the name of the runtime in the engine's configuration.",
        run=(f"echo '{manifest}' | kubectl apply -f -",),
        interrupts="nothing",
        confirm=f"kubectl get runtimeclass {name}",
    )


RESTART_DRA = Remedy(
    Action.RESTART_SERVICE,
    "Restart the DRA driver's pod on this node: it looks for its GPUs anew and publishes its slices again.",
    run=(
        "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep dra-driver",
        "kubectl -n NAMESPACE delete pod POD",
    ),
    interrupts="no running pod; claims are not prepared for a moment",
    confirm="kubectl get resourceslices --field-selector spec.nodeName=NODE -o yaml",
)
CREATE_CLAIM_ANEW = Remedy(
    Action.CHANGE_WORKLOAD,
    "Create the pods whose claims name a device that is gone anew: what a claim was given does not change.",
    run=("kubectl get resourceclaims -A", "kubectl -n NAMESPACE delete pod POD"),
    interrupts="these pods",
    confirm="gpudoctor run --check device-plugin.dra-consistent --kubeconfig FILE",
    then=True,
)
