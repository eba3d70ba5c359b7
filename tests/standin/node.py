"""What the JSON of the NVML stand-in holds: a node, its devices and the faults; README.md says what each key does."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict, Union

from typing_extensions import Required


class Hex(TypedDict):
    """Bytes that are no text, as hexadecimal digits; they may fill their buffer without a NUL."""

    hex: str


Text: TypeAlias = Union[str, Hex]  # noqa: UP007 - evaluated by Python 3.10, where TypedDicts know no `|`
Numbers: TypeAlias = "list[int]"
Listed: TypeAlias = "list[int | None]"


class Slow(TypedDict, total=False):
    """A call that answers late, for one device or all."""

    call: str
    index: int
    seconds: float


class Hang(TypedDict, total=False):
    """A call that does not come back; `ioctl` and `write` hang in the kernel if `path` is prepared for it."""

    call: str
    index: int
    how: Literal["sleep", "spin", "ioctl", "write"]
    path: str


class Crash(TypedDict, total=False):
    """A call that ends the process, by a signal or by exit(`status`)."""

    call: str
    index: int
    signal: Literal["SEGV", "ABRT", "BUS", "ILL", "FPE", "KILL", "exit"]
    status: int


class Memory(TypedDict, total=False):
    """A memory in bytes."""

    total: int
    reserved: int
    free: int
    used: int


class Link(TypedDict, total=False):
    """One NVLink; numbers as nvml.h has them."""

    active: int
    version: int
    remote_type: int
    remote_bus_id: str
    megabytes_per_second: int
    errors: Numbers
    fields: dict[str, FieldAnswer]


class FieldError(TypedDict):
    """A field value that is refused."""

    error: int


class TypedField(TypedDict):
    """A field value of a type of its own, an nvmlValueType_t."""

    value: float
    type: int


FieldAnswer: TypeAlias = "int | FieldError | TypedField | Literal['untouched']"


class Fabric(TypedDict, total=False):
    """nvmlGpuFabricInfo*_t; `newest` is the last version of it that the library knows."""

    newest: int
    state: int
    status: int
    clique_id: int
    cluster_uuid: Hex
    health_mask: int
    health_summary: int


class Platform(TypedDict, total=False):
    """nvmlPlatformInfo*_t."""

    newest: int
    chassis_serial: Text
    slot: int
    tray: int
    host_id: int
    peer_type: int
    module_id: int


class Feature(TypedDict, total=False):
    """A licensable feature of vGPU."""

    code: int
    state: int
    enabled: int
    product: Text


class Process(TypedDict, total=False):
    """A process on a device."""

    pid: int
    used_bytes: int
    gpu_instance_id: int
    compute_instance_id: int


class Processes(TypedDict, total=False):
    """The processes by the list they are in."""

    compute: list[Process]
    graphics: list[Process]
    mps: list[Process]


class Attributes(TypedDict, total=False):
    """nvmlDeviceAttributes_t."""

    multiprocessors: int
    gpu_slices: int
    compute_slices: int
    mebibytes: int


class Profile(TypedDict, total=False):
    """A GPU instance profile, and how many of it could still be made."""

    id: int
    slices: int
    instances: int
    mebibytes: int
    name: Text
    free: int


class MigDevice(TypedDict, total=False):
    """A MIG device; it answers any query whose key it has."""

    uuid: Text
    name: Text
    gpu_instance_id: int
    compute_instance_id: int
    attributes: Attributes
    memory: Memory
    memory_errors: dict[str, int]
    errors: dict[str, int]


class Model(TypedDict, total=False):
    """What GPUs of one model may answer alike; a query whose key is left out gives NVML_ERROR_NOT_SUPPORTED."""

    later: Model
    vbios_version: Text
    board_part_number: Text
    inforom_version: Text
    inforom_oem: Text
    inforom_ecc: Text
    inforom_power: Text
    inforom_valid: int
    gsp_version: Text
    gsp_mode: int | Numbers
    pci_device_id: int
    pci_subsystem_id: int
    brand: int
    board_id: int
    multi_gpu_board: int
    module_id: int
    architecture: int
    compute_capability: int | Numbers
    persistence_mode: int
    compute_mode: int
    display_active: int
    accounting_mode: int
    addressing_mode: int
    virtualization_mode: int
    host_vgpu_mode: int
    active_vgpus: Numbers
    licensable_features: list[Feature]
    platform: Platform
    mig_mode: int | Numbers
    max_mig_devices: int
    mig_devices: list[MigDevice | None]
    mig_profiles: list[Profile | None]
    ecc_mode: int | Numbers
    total_ecc_errors: dict[str, int]
    memory_errors: dict[str, int]
    sram_ecc: dict[str, int]
    repair_pending: Numbers
    unrepairable_memory: int
    unrepairable_memory_versioned: int
    retired_pages: list[Numbers]
    retired_pages_pending: int
    remapped_rows: Numbers
    row_remapper_histogram: Numbers
    temperatures: Listed
    temperature_thresholds: Listed
    margin_temperature: int
    fan_percent: int
    performance_state: int
    power_milliwatts: int
    power_limit_milliwatts: int
    enforced_power_limit_milliwatts: int
    default_power_limit_milliwatts: int
    power_limit_constraints: Numbers
    clocks: Listed
    max_clocks: Listed
    applications_clocks: Listed
    default_applications_clocks: Listed
    max_customer_boost_clocks: Listed
    clocks_event_reasons: int
    supported_clocks_event_reasons: int
    memory: Memory
    bar1: Memory
    protected_memory: Memory
    utilization: Numbers
    encoder_utilization: Numbers
    decoder_utilization: Numbers
    max_pcie_link_generation: int
    max_pcie_link_width: int
    device_max_pcie_link_generation: int
    pcie_link_generation: int
    pcie_link_width: int
    pcie_replays: int
    c2c_enabled: int
    fabric: Fabric
    cpus: list[Numbers]
    numa_nodes: list[Numbers]
    numa_node_id: int
    field_values: dict[str, FieldAnswer]
    most_field_values: int
    nvlinks: list[Link]
    processes: Processes
    errors: dict[str, int]


class Device(Model, total=False):
    """One GPU."""

    uuid: Required[Text]
    name: Required[Text]
    pci_bus_id: Required[str]
    minor: Required[int]
    serial: Text


class ConfCompute(TypedDict, total=False):
    """Confidential computing of the node."""

    environment: int
    cc_feature: int
    dev_tools: int
    multi_gpu_mode: int
    gpus_ready: int


class ExcludedDevice(TypedDict):
    """A GPU that the driver was told to leave out."""

    pci_bus_id: str
    uuid: Text


class Node(TypedDict, total=False):
    """What the stand-in answers."""

    driver_version: Required[Text]
    nvml_version: Required[Text]
    cuda_driver_version: Required[int]
    init: int
    errors: dict[str, int]
    before_init: list[str]
    missing: list[str]
    devices: Required[list[Device]]
    topology: list[Listed]
    p2p: list[Listed]
    conf_compute: ConfCompute
    excluded_devices: list[ExcludedDevice]
    slow: Slow | list[Slow]
    hang: Hang | list[Hang]
    crash: Crash | list[Crash]


NESTED: dict[str, type] = {
    "memory": Memory,
    "bar1": Memory,
    "protected_memory": Memory,
    "nvlinks": Link,
    "fabric": Fabric,
    "platform": Platform,
    "licensable_features": Feature,
    "processes": Processes,
    "compute": Process,
    "graphics": Process,
    "mps": Process,
    "attributes": Attributes,
    "mig_profiles": Profile,
    "mig_devices": MigDevice,
    "devices": Device,
    "later": Model,
    "conf_compute": ConfCompute,
    "excluded_devices": ExcludedDevice,
    "slow": Slow,
    "hang": Hang,
    "crash": Crash,
}
"""What the objects below a key hold, wherever it stands."""
