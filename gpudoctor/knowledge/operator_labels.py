"""Labels of a node that NVIDIA's software writes and reads.

GPU Feature Discovery: NVIDIA/k8s-device-plugin internal/lm/resource.go (at aaccdfd2); nvidia.com/gpu.deploy.* and
gpu.workload.config: NVIDIA/gpu-operator controllers/state_manager.go (at 04751ec7); mig.config and mig.config.state: NVIDIA/mig-parted
deployments/gpu-operator/reconfigure-mig.sh (at 000bdfbd; success, failed, pending, rebooting).
"""

from gpudoctor.patterns import pattern

DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
WORKLOAD = "nvidia.com/gpu.workload.config"
OPERANDS = "nvidia.com/gpu.deploy.operands"
"""`false` takes every label gpu.deploy.* from the node (controllers/state_manager.go, updateGPUStateLabels)."""
OF_MACHINES = ("nvidia.com/gpu.deploy.sandbox-device-plugin", "nvidia.com/gpu.deploy.kata-sandbox-device-plugin")
"""What a node for virtual machines has, be it by its own label or by the cluster's default (state_manager.go, getEffectiveStateLabels)."""
OF_CLAIMS = "nvidia.com/gpu.deploy.dra-driver"
"""What a node has whose GPUs the operator has handed out by dynamic resource allocation (at a22dbf67, gpuClusterStateLabels)."""
PRODUCT, COUNT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/mig.strategy"
DRIVER_VERSION = "nvidia.com/cuda.driver-version.full"
MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"

PRESENCE = pattern(r"nvidia\.com/gpu\.present|feature\.node\.kubernetes\.io/pci-.*10de.*|nvidia\.com/gpu\.deploy\..*")
"""Labels that a GPU node is given by what discovers features, not by people who divide their nodes."""

_SHARED, _SLICED = pattern(r"-SHARED\Z"), pattern(r"-MIG-\d+[cg].*\Z|-MIG-INVALID\Z")
_LETTERS = pattern(r"[^A-Za-z0-9]+")


def product_of(label: str) -> str:
    """What a product's label tells of the GPU itself: letters and digits alone, without what says how it is divided or shared.

    The label is NVML's name with dashes for spaces and without what a label may not have (internal/lm/resource.go, sanitise).
    """
    return plain(_SLICED.sub("", _SHARED.sub("", label)))


def plain(name: str) -> str:
    """A name's letters and digits."""
    return _LETTERS.sub("", name).lower()
