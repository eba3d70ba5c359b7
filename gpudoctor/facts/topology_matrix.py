"""The matrix of `nvidia-smi topo -m`: how each pair of GPUs and RDMA adapters is joined, and the CPUs and memory near each."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.topology import Device, Topology
from gpudoctor.verdicts import MOST_NAMED, Unread, cut, cut_fields

NOT_TOLD = "N/A"
"""What nvidia-smi prints where a GPU has no NUMA node, or no memory that is one."""


class MatrixRow(Struct, frozen=True):
    """One row: `name` is GPU0 or NIC0, `device` the adapter's own name (mlx5_0), cells in the order of the rows; empty if not told."""

    name: str
    address: str
    device: str
    cells: tuple[str, ...]
    cpus: str
    numa: str
    memory_node: str

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "name", "address", "device", "cpus", "numa", "memory_node")
        if any(len(cell) > MOST_NAMED for cell in self.cells):
            msgspec.structs.force_setattr(self, "cells", tuple(cut(cell, MOST_NAMED) for cell in self.cells))


class Matrix(Fact, frozen=True, dict=True):
    """The rows, GPUs first. NVLinks, which only the driver knows, stand instead of the way through PCIe.

    GPUs have NVML's index where NVML told one, and are counted in the order of their addresses otherwise, as the driver does. A GPU that
    NVML leaves out is called by its address.
    """

    rows: tuple[MatrixRow, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "Matrix | Unread":
        """From the small form of the graph, and what NVML or `topo -m` told of NVLinks."""
        topology, nvml = desk.get(Topology), desk.get(Nvml)
        return (
            topology if isinstance(topology, Unread) else matrix_of(topology, nvml if isinstance(nvml, Nvml) else None)
        )

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: at for at, row in enumerate(self.rows) for name in (row.name, row.address)}

    def cell(self, one: str, other: str) -> str:
        """How two devices are joined, by the names of their rows or their addresses; empty where that is not told."""
        places = self._places
        return self.rows[places[one]].cells[places[other]] if one in places and other in places else ""


def matrix_of(topology: Topology, nvml: Nvml | None) -> Matrix:
    """The matrix of a graph; without NVML's answers there is no NVLink in it."""
    named = [*named_gpus(topology, nvml), *((f"NIC{at}", nic) for at, nic in enumerate(_rdma(topology)))]
    joined = nvlinks(nvml)
    rows = tuple(
        MatrixRow(
            name=name,
            address=device.address,
            device=device.name,
            cells=tuple(joined.get(frozenset((name, other))) or topology.way(device, peer) for other, peer in named),
            cpus=topology.cpus_near(device),
            numa=NOT_TOLD if device.numa is None or device.numa < 0 else str(device.numa),
            memory_node=_memory_nodes(topology, device),
        )
        for name, device in named
    )
    return Matrix(rows=rows, read_from=topology.read_from)


def named_gpus(topology: Topology, nvml: Nvml | None) -> list[tuple[str, Device]]:
    """The GPUs with the names that nvidia-smi gives them, in the order of these."""
    gpus = topology.gpus
    known = {
        device.address: device.index
        for device in (() if nvml is None else nvml.devices)
        if device.address is not None and device.index is not None
    }
    indices = {gpu.address: known[gpu.address] for gpu in gpus if gpu.address in known}
    if not indices:
        indices = {gpu.address: at for at, gpu in enumerate(gpus)}
    ranked = sorted(gpus, key=lambda gpu: (indices.get(gpu.address, len(gpus)), gpu.address))
    return [(f"GPU{indices[gpu.address]}" if gpu.address in indices else gpu.address, gpu) for gpu in ranked]


def nvlinks(nvml: Nvml | None) -> Mapping[frozenset[str], str]:
    """The pairs of GPUs that NVLinks join, by their names: `NV18`."""
    paths = () if nvml is None else nvml.topology
    return {frozenset((path.one, path.other)): path.path for path in paths if path.nvlinks}


def _rdma(topology: Topology) -> Sequence[Device]:
    return [nic for nic in topology.nics if nic.rdma]


def _memory_nodes(topology: Topology, device: Device) -> str:
    numbers = [str(node.number) for node in topology.numa_nodes if node.gpu == device.address]
    return ",".join(numbers) or NOT_TOLD
