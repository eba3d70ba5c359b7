"""The checks that a run loads only where they apply, by module: id, title, all links that they need, and what explains them.

Written by `make catalogue`; docs/designs/009.
"""

ROWS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "kubelet": (
        ("device-plugin.checkpoint-sound", "The kubelet's record of devices and pods is sound", "", ""),
        ("device-plugin.socket-alive", "Somebody listens on the sockets of the device plugins", "", ""),
        (
            "device-plugin.registered",
            "The kubelet knows the device plugins that run",
            "device-nodes driver-cuda kernel-module pcie sharing",
            "device-plugin.socket-alive device-plugin.plugin-found-devices device-plugin.mig-strategy",
        ),
    ),
    "kubelet_topology": (
        (
            "device-plugin.topology-fits",
            "Where the kubelet insists on one NUMA node, GPUs and CPUs can be had together",
            "",
            "",
        ),
    ),
    "device_plugin": (
        (
            "device-plugin.mig-strategy",
            "The plugin's MIG strategy fits the layout of the GPUs",
            "device-nodes driver-cuda kernel-module pcie sharing",
            "",
        ),
        (
            "device-plugin.plugin-found-devices",
            "The device plugin has found GPUs",
            "device-nodes driver-cuda kernel-module pcie sharing toolkit",
            "device-plugin.mig-strategy",
        ),
        ("device-plugin.one-plugin-per-resource", "One device plugin serves each resource", "", ""),
        ("device-plugin.stale-resources", "Every resource that the kubelet has registered has a plugin", "", ""),
        ("device-plugin.mapping-readable", "Which pod has which GPU can be read", "", ""),
    ),
    "plugin_devices": (
        (
            "device-plugin.devices-exist",
            "Every device that is advertised or was given exists",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
        (
            "device-plugin.devices-healthy",
            "The device plugin holds no GPU unhealthy",
            "device-nodes driver-cuda health kernel-module pcie",
            "",
        ),
        (
            "device-plugin.all-gpus-advertised",
            "Every GPU of the driver is advertised",
            "device-nodes driver-cuda kernel-module pcie",
            "device-plugin.devices-healthy device-plugin.mig-strategy",
        ),
        (
            "device-plugin.replicas-add-up",
            "Every shared GPU is advertised as often as configured",
            "",
            "device-plugin.devices-healthy",
        ),
    ),
    "pods": (
        (
            "workload.pods-have-their-gpus",
            "Every pod has the GPUs that it was given",
            "device-nodes kernel-module pcie",
            "workload.nodes-inside",
        ),
        (
            "workload.pods-hold-live-gpus",
            "No pod holds a GPU that is dead",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
        ("workload.no-bypass", "No pod uses a GPU that the kubelet did not give it", "", "workload.recipes-sound"),
    ),
    "gpu_operator": (
        ("device-plugin.driver-container", "The driver container brings up its driver", "", ""),
        (
            "device-plugin.operator-stages",
            "The GPU Operator has validated the node to its last stage",
            "device-nodes driver-cuda kernel-module pcie sharing toolkit",
            "device-plugin.driver-container device-plugin.socket-alive device-plugin.registered device-plugin.plugin-found-devices device-plugin.plugin-scheduled",
        ),
        (
            "device-plugin.dcgm-exporter",
            "dcgm-exporter has a host engine",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
    ),
    "kubernetes_api": (
        ("device-plugin.runtime-class", "Every RuntimeClass that is named for this node exists", "", ""),
        (
            "device-plugin.plugin-scheduled",
            "The device plugin's DaemonSet has a pod on this node",
            "",
            "device-plugin.runtime-class",
        ),
        ("device-plugin.node-object", "The node object tells of the GPUs that the kubelet has", "", ""),
        (
            "device-plugin.labels-true",
            "The node's labels tell of the GPUs and the driver it has",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
    ),
    "kubernetes_devices": (
        (
            "device-plugin.dra-consistent",
            "The DRA driver's slices tell of the GPUs that are here",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
        (
            "device-plugin.mig-manager",
            "The MIG manager has made the layout that the node's label asks for",
            "device-nodes driver-cuda kernel-module pcie sharing",
            "",
        ),
    ),
    "mig_monitor": (
        (
            "sharing.mig-monitor",
            "What watches MIG instances may see those of others",
            "device-nodes driver-cuda kernel-module pcie",
            "",
        ),
    ),
    "mps": (
        ("sharing.mps-mig", "The device plugin is not told to share by MPS what MIG has divided", "", ""),
        ("sharing.mps-daemon", "The MPS daemon runs where it is wanted", "", "sharing.mps-mig"),
        (
            "sharing.mps-server",
            "MPS servers live and take clients",
            "device-nodes driver-cuda kernel-module pcie",
            "sharing.mps-daemon sharing.mps-clients",
        ),
    ),
    "mps_clients": (
        ("sharing.mps-clients", "Every client of MPS reaches its daemon", "", "sharing.mps-daemon"),
        ("sharing.mps-shm", "Clients of MPS share memory with their daemon", "", "sharing.mps-clients"),
    ),
    "time_slicing": (("sharing.time-slicing", "GPUs are shared between pods as the device plugin was told", "", ""),),
    "slurm": (
        ("sharing.slurm-gres-sound", "slurmd can read the GPUs out of its files", "", ""),
        ("sharing.slurm-autodetect", "slurmd has what AutoDetect takes", "", ""),
        (
            "sharing.slurm-gres",
            "Slurm is told of the GPUs that are there",
            "device-nodes driver-cuda kernel-module pcie",
            "sharing.slurm-gres-sound sharing.slurm-autodetect sharing.mig-instances",
        ),
        (
            "sharing.slurm-unit",
            "slurmd is started when the GPUs are there",
            "",
            "sharing.slurm-gres sharing.slurm-gres-sound",
        ),
        (
            "sharing.slurm-node",
            "Slurm gives this node jobs",
            "device-nodes driver-cuda health kernel-module pcie",
            "sharing.slurm-gres sharing.slurm-gres-sound sharing.slurm-autodetect sharing.slurm-unit",
        ),
    ),
    "slurm_jobs": (
        ("sharing.slurm-constrained", "Slurm keeps every job to its own GPUs", "", ""),
        ("sharing.slurm-outside", "What computes on a node of Slurm is in a job", "", ""),
    ),
    "advisories": (
        ("toolkit.known-vulnerabilities", "No known vulnerability of the toolkit, runtimes or driver applies", "", ""),
    ),
}
