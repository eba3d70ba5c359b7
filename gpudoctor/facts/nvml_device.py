"""One device as NVML lists it: identity, fields by name, and its links, instances and processes."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from gpudoctor.facts.desk import Citable
from gpudoctor.knowledge import nvml_errors
from gpudoctor.verdicts import Evidence, Unread, Why


class NvmlError(Struct, frozen=True):
    """An `nvmlReturn_t` other than success, the call that gave it, and what a tool said of it."""

    code: int
    call: str = ""
    said: str = ""

    @property
    def text(self) -> str:
        """Name, number and meaning."""
        return nvml_errors.describe(self.code)


class FieldError(Struct, frozen=True):
    """The `nvmlReturn_t` with which NVML refused a field."""

    error: int


FieldValue: TypeAlias = bool | int | float | str | FieldError


class NvLink(Struct, frozen=True):
    """One NVLink of a GPU; what was not answered is None, `errors` holds counters by name since the driver was loaded."""

    link: int
    active: bool | None = None
    megabytes_per_second: int | None = None
    version: int | None = None
    remote_type: str | None = None
    remote_bus_id: str | None = None
    errors: dict[str, int] = {}


class Later(Struct, frozen=True):
    """What a suspicious device answered `seconds` after it was asked first: some of its fields, and its links where they have errors."""

    seconds: float
    fields: Mapping[str, FieldValue] = {}
    nvlinks: tuple[NvLink, ...] = ()


class GpuPath(Struct, frozen=True, rename={"one": "from", "other": "to"}):
    """How a pair of GPUs is joined, as `nvidia-smi topo -m` prints it; `p2p` is what NVML says of reading and writing each other's memory.

    The GPUs are named by their index, `GPU0`.
    """

    one: str
    other: str
    path: str = ""
    p2p: dict[str, str] = {}

    @property
    def nvlinks(self) -> int:
        """How many NVLinks join them; an X, PIX, PHB, SYS is none."""
        return int(self.path[2:]) if self.path.startswith("NV") and self.path[2:].isdecimal() else 0


class GpuProcess(Struct, frozen=True):
    """A process with a context on the GPU, in the PID namespace of whoever asked."""

    pid: int
    kind: str = ""
    used_bytes: int | None = None
    name: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class MigDevice(Struct, frozen=True):
    """A MIG device: a compute instance within a GPU instance."""

    index: int | None = None
    uuid: str | None = None
    profile: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    sm_count: int | None = None
    ecc_uncorrected_sram: int | None = None


class MigProfile(Struct, frozen=True):
    """A kind of GPU instance that this board can be divided into: how many in all, and how many more now, which root alone is told."""

    id: int | None = None
    name: str | None = None
    slices: int | None = None
    memory_bytes: int | None = None
    instances: int | None = None
    free: int | None = None


class NvmlDevice(Citable, frozen=True):
    """With an `error`, what could be asked before it is kept. The fields are those of knowledge/nvml_fields.py.

    `lists_mig` is whether its MIG devices were asked for and listed, so that there are no more of them.
    """

    index: int | None
    address: str | None
    uuid: str | None
    name: str | None
    error: NvmlError | None
    minor: int | None = None
    serial: str | None = None
    via: str = "NVML"
    fields: Mapping[str, FieldValue] = {}
    nvlinks: tuple[NvLink, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    mig_profiles: tuple[MigProfile, ...] = ()
    lists_mig: bool = False
    lists_processes: bool = False
    later: Later | None = None

    def field(self, name: str) -> bool | int | float | str | Unread:
        """A field's value, or why there is none: not asked, or refused by NVML with an error's name."""
        value = self.fields.get(name)
        if value is None:
            return Unread(Why.NOT_ANSWERED, self.via, f"{name} was not asked, or not answered")
        if isinstance(value, FieldError):
            why = Why.NO_PERMISSION if value.error == nvml_errors.NO_PERMISSION else Why.NOT_ANSWERED
            needed = "root" if why is Why.NO_PERMISSION else ""
            return Unread(why, self.via, f"{name}: {nvml_errors.describe(value.error)}", would_need=needed)
        return value

    @property
    def recovery(self) -> str:
        """The recovery that the driver asks for (a word of nvmlDeviceGpuRecoveryAction_t), "" for none and where it was not answered."""
        action = self.fields.get("recovery_action")
        return action if isinstance(action, str) and action != "none" else ""

    @property
    def compute_capability(self) -> str | None:
        """`9.0`, None where it was not answered."""
        told = self.fields.get("compute_capability")
        return told if isinstance(told, str) else None

    @property
    def brand(self) -> str | None:
        """NVML's word for the brand, None where it was not answered."""
        told = self.fields.get("brand")
        return told if isinstance(told, str) else None

    @property
    def answered_any(self) -> bool:
        """Whether NVML gave a value for any field."""
        return any(not isinstance(value, FieldError) for value in self.fields.values())

    def errors(self, codes: frozenset[int]) -> dict[str, int]:
        """The fields that NVML refused with one of these codes."""
        refused = ((name, value) for name, value in self.fields.items() if isinstance(value, FieldError))
        return {name: value.error for name, value in refused if value.error in codes}

    def evidence(self, name: str) -> Evidence:
        """A field as it was answered."""
        value = self.fields.get(name)
        shown = nvml_errors.describe(value.error) if isinstance(value, FieldError) else value
        return Evidence(f"{self.via} ({self.address or self.uuid})", f"{name}: {shown}")
