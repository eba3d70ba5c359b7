"""What to do about the GPU Operator's pods on a node, from the safest step up.

The GPU Operator's troubleshooting guide (NVIDIA/cloud-native-docs gpu-operator/troubleshooting.rst, at 179ffdc3) and the labels by which
its DaemonSets are found (NVIDIA/gpu-operator assets/state-*).
"""

from gpudoctor.verdicts import Action, Remedy

CONFIRM = "gpudoctor run --link device-plugin"
_PODS_HERE = "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep -iE 'nvidia|gpu|dcgm'"
WITHOUT_DRIVER = "helm upgrade -n gpu-operator RELEASE nvidia/gpu-operator --reuse-values --set driver.enabled=false"

LOOK_AT_OPERANDS = Remedy(
    Action.NONE,
    "Look at the operator's pods on this node, and ask the one that does not run.",
    run=(
        _PODS_HERE,
        "kubectl -n NAMESPACE describe pod POD",
        "kubectl -n NAMESPACE logs POD --all-containers --tail=30",
    ),
    confirm="gpudoctor run --link device-plugin; ls /run/nvidia/validations/    # driver-ready toolkit-ready cuda-ready plugin-ready",
)
RESTART_VALIDATOR = Remedy(
    Action.RESTART_SERVICE,
    "Once the reason is mended, let the validator start anew: it goes through the stages again.",
    run=("kubectl -n NAMESPACE delete pod -l app=nvidia-operator-validator --field-selector spec.nodeName=NODE",),
    interrupts="no workload; the row of files is written anew",
    confirm="gpudoctor run --link device-plugin; ls /run/nvidia/validations/",
    then=True,
)
GET_IMAGE = Remedy(
    Action.CHANGE_CONFIG,
    "Let the node get the image: its registry, its tag, or the pull secret of the operator's configuration.",
    run=("kubectl -n NAMESPACE describe pod POD    # Events", "crictl pull IMAGE"),
    interrupts="nothing that runs",
    confirm="gpudoctor run --link device-plugin; ls /run/nvidia/validations/",
)
KEEP_HOSTS_DRIVER = Remedy(
    Action.CHANGE_CONFIG,
    "Where the host is meant to have its own driver, tell the operator to leave the driver alone.",
    run=(WITHOUT_DRIVER,),
    interrupts="the driver pods of all nodes; where other nodes need them, label this one instead: "
    "kubectl label node NODE nvidia.com/gpu.deploy.driver=false",
    confirm="gpudoctor run --link device-plugin; ls /run/nvidia/validations/    # driver-ready",
)
FREE_DRIVER = Remedy(
    Action.RESTART_SERVICE,
    "Or free the driver: stop what holds it, and the driver pod replaces it at its next start.",
    run=(
        "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data",
        "systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-dcgm    # those that run here",
        "fuser -v /dev/nvidia*    # nobody may be left",
    ),
    interrupts="every pod of the node but those of DaemonSets, and whatever else uses a GPU",
    confirm="cat /sys/module/nvidia/refcnt",
)
BOOT_WITHOUT_DRIVER = Remedy(
    Action.REBOOT,
    "Or remove the host's driver packages and reboot, so that nothing is loaded when the driver pod starts.",
    run=("kubectl drain NODE --ignore-daemonsets --delete-emptydir-data", "systemctl reboot"),
    interrupts="the node",
    confirm="gpudoctor run --link device-plugin; ls /run/nvidia/validations/",
    then=True,
)
MATCH_KERNEL = Remedy(
    Action.CHANGE_CONFIG,
    "Give the driver container what it needs for this kernel: a repository that still has its headers, a precompiled driver image, or "
    "boot the node into a kernel that the repositories have.",
    run=("uname -r", "kubectl -n NAMESPACE logs POD -c nvidia-driver-ctr | tail -30"),
    interrupts="nothing; another kernel takes a reboot",
    confirm=CONFIRM,
)
RESTART_DRIVER_POD = Remedy(
    Action.RESTART_SERVICE,
    "Let the driver pod start anew, with the node drained: it builds and loads the driver and mounts its root.",
    run=(
        "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data",
        "kubectl -n NAMESPACE delete pod -l app.kubernetes.io/component=nvidia-driver --field-selector spec.nodeName=NODE",
        "kubectl uncordon NODE",
    ),
    interrupts="every pod of the node but those of DaemonSets",
    confirm="ls /run/nvidia/driver/usr/bin/nvidia-smi",
    then=True,
)
ONE_ENGINE = Remedy(
    Action.CHANGE_CONFIG,
    "Keep one of the two host engines: either have the exporter use the host's (its environment DCGM_REMOTE_HOSTENGINE_INFO names it, "
    "and the operator is told dcgm.enabled=false), or stop the host's.",
    run=(
        "helm upgrade -n gpu-operator RELEASE nvidia/gpu-operator --reuse-values --set dcgm.enabled=false",
        "systemctl disable --now nvidia-dcgm    # instead, where nothing else on the host uses it",
    ),
    interrupts="metrics, for a moment",
    confirm="gpudoctor run --check device-plugin.dcgm-exporter",
)
REACH_ENGINE = Remedy(
    Action.NONE,
    "Look whether the host engine that the exporter is told of runs, and whether a NetworkPolicy stands between them.",
    run=(_PODS_HERE, "kubectl get networkpolicies -A", "ss -ltnp 'sport = :5555'"),
    confirm="gpudoctor run --check device-plugin.dcgm-exporter",
)
ASK_EXPORTER = Remedy(
    Action.NONE,
    "Ask the exporter itself: the words before its end name what it could not load or start.",
    run=(_PODS_HERE, "kubectl -n NAMESPACE logs POD --previous"),
    confirm="gpudoctor run --check device-plugin.dcgm-exporter",
)
APPLY_MIG_AGAIN = Remedy(
    Action.CHANGE_CONFIG,
    "Drain what uses the instances, then set the label anew: the MIG manager tries once for each change of it.",
    run=(
        "kubectl -n NAMESPACE logs -l app=nvidia-mig-manager --tail=50    # why",
        "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data",
        "kubectl label node NODE nvidia.com/mig.config-",
        "kubectl label node NODE nvidia.com/mig.config=CONFIG",
        "kubectl uncordon NODE",
    ),
    interrupts="every pod of the node but those of DaemonSets",
    confirm="kubectl get node NODE -o jsonpath='{.metadata.labels.nvidia\\.com/mig\\.config\\.state}'    # success",
)
