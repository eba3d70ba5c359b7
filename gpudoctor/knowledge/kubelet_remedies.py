"""What to do about the kubelet's sockets, its checkpoint and its managers, from the safest step up."""

from gpudoctor.verdicts import Action, Remedy

_CONFIRM = "gpudoctor run --link device-plugin"
_ITS_POD = (
    "kubectl get pods -A -o wide --field-selector spec.nodeName=$(hostname) | grep -i nvidia    # the plugin's pod"
)

ASK_PLUGIN = Remedy(
    Action.NONE,
    "Ask the device plugin why: its own words, and those before its last restart.",
    run=(_ITS_POD, "kubectl -n NAMESPACE logs POD --all-containers", "kubectl -n NAMESPACE logs POD --previous"),
    confirm="the last lines name what it waits for or why it ended",
)
RESTART_PLUGIN = Remedy(
    Action.RESTART_SERVICE,
    "Let the device plugin start anew: it makes its socket and registers.",
    run=(_ITS_POD, "kubectl -n NAMESPACE delete pod POD"),
    interrupts="no running pod; pods that ask for GPUs are not started until it has registered",
    confirm=_CONFIRM,
    then=True,
)
START_PLUGIN = Remedy(
    Action.RESTART_SERVICE,
    "Have a device plugin on this node: look whether its DaemonSet is there and may run here.",
    run=("kubectl get daemonsets -A | grep -i nvidia", "kubectl describe node $(hostname)    # Labels, Taints"),
    confirm=_CONFIRM,
    then=True,
)
REWRITE_CHECKPOINT = Remedy(
    Action.RESTART_SERVICE,
    (
        "Unless the kubelet has restarted since, it still knows better than the file and writes it anew when a plugin registers: restart "
        "the device plugin, not the kubelet."
    ),
    run=(_ITS_POD, "kubectl -n NAMESPACE delete pod POD"),
    interrupts="no running pod; pods that ask for GPUs are not started until it has registered",
    confirm="gpudoctor run --check device-plugin.checkpoint-sound",
)
CREATE_PODS_ANEW = Remedy(
    Action.CHANGE_WORKLOAD,
    "Create the pods that share a device anew: what they were given cannot be taken back.",
    run=(
        "kubectl get pods -A -o custom-columns=NS:.metadata.namespace,POD:.metadata.name,UID:.metadata.uid",
        "kubectl -n NAMESPACE delete pod POD",
    ),
    interrupts="these pods",
    confirm="gpudoctor run --check device-plugin.checkpoint-sound",
)
WAIT_FOR_ALLOCATION = Remedy(
    Action.NONE,
    "Nothing, if one of the pods has ended: the kubelet drops its entry when it next gives a device to a pod.",
    confirm="gpudoctor run --check device-plugin.checkpoint-sound",
)


def beside(unit: str) -> str:
    """What a restart of its unit stops beside a kubelet: that of k3s, RKE2 and MicroK8s runs a server's control plane too."""
    return "" if unit == "kubelet.service" else f"; what else {unit} runs, on a server the control plane, for a moment"


def restart_kubelet(unit: str) -> Remedy:
    """Its start makes its socket and removes those of plugins, which then register anew."""
    return Remedy(
        Action.RESTART_SERVICE,
        "Restart the kubelet: it makes its socket anew and removes those of plugins, which register again.",
        run=(f"systemctl restart {unit}",),
        interrupts="no running container; pods cannot be started for a moment, and what its checkpoint does not hold is forgotten"
        + beside(unit),
        confirm=_CONFIRM,
        then=True,
    )


def drain_and_remove(path: str, unit: str) -> Remedy:
    """The file is the only record of which pod holds which device."""
    return Remedy(
        Action.RESTART_SERVICE,
        "Otherwise drain the node first, then remove the file; never on a node with running pods, whose GPUs would be given away twice.",
        run=(
            "kubectl drain $(hostname) --ignore-daemonsets --delete-emptydir-data",
            f"systemctl stop {unit}",
            f"rm {path}",
            f"systemctl start {unit}",
            "kubectl uncordon $(hostname)",
        ),
        interrupts=f"every pod of the node but those of DaemonSets{beside(unit)}",
        confirm="gpudoctor run --check device-plugin.checkpoint-sound",
    )


SMALLER_REQUEST = Remedy(
    Action.CHANGE_WORKLOAD,
    "Ask for no more GPUs and CPUs in one container than one NUMA node has left; delete the pods that were refused.",
    run=("kubectl delete pods -A --field-selector status.phase=Failed,spec.nodeName=$(hostname)",),
    interrupts="all failed pods of the node, which do not run: why the others failed is told nowhere else",
    confirm="kubectl get pods -A --field-selector spec.nodeName=$(hostname)",
)


def relax_policy(policy: str, unit: str) -> Remedy:
    """A policy that prefers instead of refusing."""
    softer = "restricted or best-effort" if policy == "single-numa-node" else "best-effort"
    return Remedy(
        Action.CHANGE_CONFIG,
        (
            f"Or let the kubelet prefer what lies together instead of refusing the rest: topologyManagerPolicy {softer} "
            "in its configuration, on a drained node."
        ),
        run=(
            "kubectl drain $(hostname) --ignore-daemonsets --delete-emptydir-data",
            f"systemctl restart {unit}    # after the change",
            "kubectl uncordon $(hostname)",
        ),
        interrupts=f"every pod of the node but those of DaemonSets{beside(unit)}",
        confirm="gpudoctor run --check device-plugin.topology-fits",
    )
