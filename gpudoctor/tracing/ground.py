"""The node below a workload: its GPUs by every name they have, and what the checks said of them."""

from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError
from gpudoctor.report import NodeGpu, Report

REPLICA = "::"
"""Behind it stands the number of a time slice: `GPU-…::0` (k8s-device-plugin v0.20.0, internal/rm/device_map.go)."""
NOT_SUPPORTED = FieldError(3)
"""What NVML answers about MIG of a GPU that cannot be divided (nvml.h, NVML_ERROR_NOT_SUPPORTED)."""


class Ground(Struct, frozen=True):
    """The report on the node, and what NVML answered there.

    `complete` says that no GPU is missing from the list; `platform` is a kind of node whose GPUs are not on PCI, "" for all others.
    """

    report: Report
    nvml: Nvml | None
    complete: bool
    platform: str = ""

    @property
    def gpus(self) -> tuple[NodeGpu, ...]:
        """The node's GPUs by address."""
        return self.report.node.gpus

    def at(self, addresses: Iterable[str]) -> tuple[NodeGpu, ...]:
        """The GPUs at some addresses."""
        wanted = frozenset(addresses)
        return tuple(gpu for gpu in self.gpus if gpu.address in wanted)

    @property
    def knows_uuids(self) -> bool:
        """Whether the UUID of every GPU is known."""
        return self.complete and bool(self.gpus) and all(gpu.uuid for gpu in self.gpus)

    @property
    def knows_indices(self) -> bool:
        """Whether NVML's index of every GPU is known."""
        return self.complete and bool(self.gpus) and all(gpu.index is not None for gpu in self.gpus)

    def with_uuid(self, beginning: str) -> tuple[NodeGpu, ...]:
        """The GPUs whose UUID begins so."""
        start = beginning.lower()
        return tuple(gpu for gpu in self.gpus if gpu.uuid and gpu.uuid.lower().startswith(start))

    def with_index(self, index: int) -> NodeGpu | None:
        """The GPU with an index of NVML's."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    def with_minor(self, minor: int) -> NodeGpu | None:
        """The GPU whose node has a minor."""
        return next((gpu for gpu in self.gpus if gpu.minor == minor), None)

    @property
    def in_mig_mode(self) -> bool | None:
        """Whether some GPU is divided into MIG devices; None where NVML does not tell."""
        if self.nvml is None or not self.nvml.devices:
            return None
        devices = self.nvml.devices
        return any(device.fields.get("mig.current") is True or device.mig_devices for device in devices)

    def with_mig(self, name: str) -> NodeGpu | None:
        """The GPU that holds a MIG device, by the device's UUID."""
        devices = self.nvml.devices if self.nvml is not None else ()
        for device in devices:
            if any((one.uuid or "").lower().startswith(name.lower()) for one in device.mig_devices):
                return next((gpu for gpu in self.gpus if gpu.address == device.address), None)
        return None

    @property
    def knows_mig(self) -> bool:
        """Whether NVML listed the MIG devices of every GPU that has such."""
        devices = self.nvml.devices if self.nvml is not None else ()
        told = [device.mig_devices or device.fields.get("mig.current") in (False, NOT_SUPPORTED) for device in devices]
        return self.complete and bool(told) and all(told)
