"""Objects of the Kubernetes API as records, in the shape in which it gives them (kubernetes/api core/v1, apps/v1, node/v1, resource/v1).

Loaded only where a recording or a kubeconfig has them. What is kept of each is in facts/kubernetes_kept.py.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from gpudoctor.patterns import pattern

NVIDIAS = "nvidia.com/"
GPU_DRIVER = "gpu.nvidia.com"
"""The DRA driver for GPUs (NVIDIA/k8s-dra-driver-gpu)."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


_QUANTITY = pattern(r"([0-9]{1,15})([kMGTPE]?)")


def whole(told: str) -> int | None:
    """A whole number as the API spells quantities: 1000 is 1k (apimachinery pkg/api/resource/quantity.go); None for anything else."""
    found = _QUANTITY.fullmatch(told)
    return None if found is None else int(found[1]) * 1000 ** " kMGTPE".index(found[2] or " ")


class Meta(Struct, frozen=True, rename="camel"):
    """Who an object is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None
    owner_references: tuple["Meta", ...] = ()
    kind: str = ""


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of a node, or a taint of one."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_heartbeat_time: str = ""
    key: str = ""
    value: str = ""
    effect: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeInfo(Struct, frozen=True, rename="camel"):
    """What the kubelet told of its machine."""

    boot_id: str = field(default="", name="bootID")
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(Struct, frozen=True, rename="camel"):
    """What the kubelet told last."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class NodeSpec(Struct, frozen=True, rename="camel"):
    """What keeps pods away."""

    unschedulable: bool = False
    taints: tuple[Condition, ...] = ()


class ApiNode(Struct, frozen=True):
    """A Node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels

    @property
    def ready(self) -> Condition | None:
        """Its condition Ready."""
        return next((one for one in self.status.conditions if one.type == "Ready"), None)

    def amounts(self, of: Mapping[str, str]) -> dict[str, int]:
        """NVIDIA's resources in capacity or allocatable; extended resources are whole numbers."""
        found = ((name, whole(told)) for name, told in of.items() if NVIDIAS in name)
        return {name: number for name, number in found if number is not None}


class Resources(Struct, frozen=True):
    """What a container asks for of NVIDIA's resources, and its claims."""

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    claims: tuple[Meta, ...] = ()


class ContainerState(Struct, frozen=True, rename="camel"):
    """A state of a container, or why it waits or has ended."""

    running: "ContainerState | None" = None
    waiting: "ContainerState | None" = None
    terminated: "ContainerState | None" = None
    reason: str = ""
    exit_code: int | None = None
    started_at: str = ""


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """How a container stands."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = field(default="", name="containerID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def trouble(self) -> str:
        """Why it does not run, "" where it does or has ended well."""
        if self.state.waiting is not None:
            ended = self.last_state.terminated
            before = f", ended before by {ended.reason} ({ended.exit_code})" if ended is not None else ""
            return f"{self.state.waiting.reason}{before}"
        ended = self.state.terminated
        return "" if ended is None or ended.exit_code == 0 else f"{ended.reason} ({ended.exit_code})"


class ApiContainer(Struct, frozen=True):
    """A container as it is asked for."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()


class Toleration(Struct, frozen=True):
    """A toleration of taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Term(Struct, frozen=True, rename="camel"):
    """One of several ways in which a node may match."""

    match_expressions: tuple[Condition, ...] = ()
    match_fields: tuple[Condition, ...] = ()


class Terms(Struct, frozen=True, rename="camel"):
    """They stand for each other: one that matches is enough."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(Struct, frozen=True):
    """What a pod requires of its node."""

    required: Terms | None = field(default=None, name=REQUIRED)


class Affinity(Struct, frozen=True, rename="camel"):
    """Of affinities only that to nodes."""

    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Struct, frozen=True, rename="camel"):
    """A pod as it is asked for."""

    node_name: str = ""
    runtime_class_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    init_containers: tuple[ApiContainer, ...] = ()
    containers: tuple[ApiContainer, ...] = ()


class PodStatus(Struct, frozen=True, rename="camel"):
    """How a pod stands."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class ApiPod(Struct, frozen=True):
    """A Pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def words(self) -> str:
        """As kubectl takes it: NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def owner(self) -> str:
        """The name of what made it."""
        return self.metadata.owner_references[0].name if self.metadata.owner_references else ""

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more or ever will: its object may stay for long."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Of its containers, those that run before the others first."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)


class RuntimeClass(Struct, frozen=True):
    """A RuntimeClass and the runtime of the engine that it names."""

    metadata: Meta = Meta()
    handler: str = ""


class Template(Struct, frozen=True):
    """What pods are made from."""

    spec: PodSpec = PodSpec()


class DaemonSetSpec(Struct, frozen=True):
    """Of a DaemonSet only its template."""

    template: Template = Template()


class DaemonSetStatus(Struct, frozen=True, rename="camel"):
    """How many nodes it wants a pod on, and how many have one."""

    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(Struct, frozen=True):
    """A DaemonSet."""

    metadata: Meta = Meta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()

    @property
    def words(self) -> str:
        """As kubectl takes it: NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def pods(self) -> PodSpec:
        """What its pods are."""
        return self.spec.template.spec


class Pool(Struct, frozen=True, rename="camel"):
    """A driver's devices of one node; what has an older generation counts no more."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class Basic(Struct, frozen=True):
    """Where v1beta1 has the attributes."""

    attributes: dict[str, dict[str, str]] = {}


class ApiDevice(Struct, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, dict[str, str]] = {}
    basic: Basic = Basic()

    def told(self, *names: str) -> str:
        """The first of these attributes that it has, "" where it has none."""
        attributes = {**self.basic.attributes, **self.attributes}
        return next((value for name in names for value in attributes.get(name, {}).values()), "")

    @property
    def uuid(self) -> str:
        """The GPU's or MIG device's."""
        return self.told("uuid")

    @property
    def is_passed_through(self) -> bool:
        """Whether it is a GPU for virtual machines, which NVML does not list (k8s-dra-driver-gpu, types vfio, gpu and mig)."""
        return self.told("type") == "vfio"

    @property
    def address(self) -> str:
        """The GPU's PCI address; the driver has called it by three names."""
        return self.told("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID").lower()


class SliceSpec(Struct, frozen=True, rename="camel"):
    """What a slice holds."""

    driver: str = ""
    node_name: str = ""
    pool: Pool = Pool()
    devices: tuple[ApiDevice, ...] = ()


class ResourceSlice(Struct, frozen=True):
    """A ResourceSlice."""

    spec: SliceSpec = SliceSpec()


class AllocationResult(Struct, frozen=True):
    """A device that was given to a claim."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    request: str = ""


class Results(Struct, frozen=True):
    """All that was given to a claim."""

    results: tuple[AllocationResult, ...] = ()


class Allocation(Struct, frozen=True):
    """What was given to a claim."""

    devices: Results = Results()


class ClaimStatus(Struct, frozen=True, rename="camel"):
    """What was given to a claim, and who may use it."""

    allocation: Allocation = Allocation()
    reserved_for: tuple[Meta, ...] = ()


class ResourceClaim(Struct, frozen=True):
    """A ResourceClaim."""

    metadata: Meta = Meta()
    status: ClaimStatus = ClaimStatus()

    @property
    def words(self) -> str:
        """As kubectl takes it: NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class Objects(Struct, frozen=True):
    """The `data` of answers/kubernetes.json; None for what was not answered."""

    node: ApiNode | None = None
    pods: tuple[ApiPod, ...] | None = None
    runtimeclasses: tuple[RuntimeClass, ...] | None = None
    daemonsets: tuple[DaemonSet, ...] | None = None
    resourceslices: tuple[ResourceSlice, ...] | None = None
    resourceclaims: tuple[ResourceClaim, ...] | None = None
    notes: dict[str, "Note"] = {}


class Note(Struct, frozen=True):
    """Why something was not answered."""

    why: str
    detail: str = ""
