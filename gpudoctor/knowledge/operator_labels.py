"""Labels of a node that NVIDIA's software writes and reads.

GPU Feature Discovery: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery and internal/lm/resource.go; nvidia.com/gpu.deploy.* and
gpu.workload.config: NVIDIA/gpu-operator controllers/state_manager.go; mig.config and mig.config.state: NVIDIA/mig-parted
deployments/k8s-mig-manager. Read 2026-11-30.
"""

from gpudoctor.patterns import pattern

DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
WORKLOAD = "nvidia.com/gpu.workload.config"
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
