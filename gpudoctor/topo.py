"""What hangs where on a node, schema `gpudoctor.topo/1`: sockets, NUMA nodes, PCIe, NVLinks, and what is wrong with them.

Keys are never removed or given another meaning within `/1`.
"""

from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.facts.numa import NumaNode, Package
from gpudoctor.facts.topology import DeviceLink
from gpudoctor.facts.topology_matrix import MatrixRow
from gpudoctor.verdicts import MOST_NAMED, MOST_SAID, Status, cut, cut_fields

SCHEMA = "gpudoctor.topo/1"


class NodeWords(Struct, frozen=True):
    """The node that was looked at."""

    hostname: str | None
    source: str
    os: str | None
    kernel: str | None
    driver: str | None

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "hostname", "os", "kernel", "driver")


class Function(Struct, frozen=True):
    """One PCI function: `kind` is gpu, nvswitch, nic, nvme, bridge or other, `label` what nvidia-smi calls it (GPU0, NIC0), else empty.

    `name` is the kernel's (mlx5_0, nvme0), `model` what the driver calls a GPU. `path` are the functions from the root port down to it,
    its own address last. `numa` is -1 where the kernel knows no node, null where it was not told; `cpus` are those near to it. `nvlinks`
    counts a GPU's active NVLinks, null where that is not known; `nvlinks_to` is what they lead to.
    """

    address: str
    kind: str
    label: str = ""
    name: str = ""
    model: str = ""
    root: str = ""
    path: tuple[str, ...] = ()
    numa: int | None = None
    cpus: str = ""
    link: DeviceLink | None = None
    driver: str = ""
    virtual_function_of: str = ""
    class_code: str = ""
    vendor_id: str = ""
    device_id: str = ""
    rdma: bool = False
    nvlinks: int | None = None
    nvlinks_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.name) + len(self.model) + len(self.driver) > MOST_NAMED:
            cut_fields(self, MOST_NAMED, "name", "model", "driver")
        if any(len(end) > MOST_NAMED for end in self.nvlinks_to):
            msgspec.structs.force_setattr(self, "nvlinks_to", tuple(cut(end, MOST_NAMED) for end in self.nvlinks_to))


class NvLinkBundle(Struct, frozen=True, rename={"one": "from", "other": "to"}):
    """The NVLinks that join a pair of GPUs, directly or through switches; the GPUs by their labels."""

    one: str
    other: str
    links: int

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "one", "other")


class NvLinkTarget(Struct, frozen=True):
    """How many NVLinks lead from a GPU to one other end, by its PCI address."""

    gpu: str
    target: str
    switch: bool
    links: int


class Use(Struct, frozen=True):
    """What a job on one GPU does well to use: the CPUs and the memory near it, and the RDMA adapters that are nearest, `way` away.

    `memory` are NUMA nodes with memory of the CPUs' own; `command` binds a program to both.
    """

    gpu: str
    address: str
    cpus: str
    memory: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    way: str = ""
    command: str = ""


class Remark(Struct, frozen=True):
    """A finding of the checks of PCIe, fabric and topology. `subject` is `KIND:KEY`, a device's key being its address."""

    check: str
    subject: str
    status: Status
    summary: str

    @property
    def address(self) -> str:
        """The PCI address of the subject, or whatever else its key is."""
        return self.subject.partition(":")[2]


class Topo(Struct, frozen=True):
    """One node. `synthetic` says why its PCIe tree is a hypervisor's; `unseen` is what could not be read."""

    schema: str
    version: str
    started_at: str
    node: NodeWords
    synthetic: str
    packages: tuple[Package, ...]
    numa_nodes: tuple[NumaNode, ...]
    cpus_online: str
    cpus_offline: str
    functions: tuple[Function, ...]
    matrix: tuple[MatrixRow, ...]
    nvlinks: tuple[NvLinkBundle, ...]
    nvlink_targets: tuple[NvLinkTarget, ...]
    use: tuple[Use, ...]
    remarks: tuple[Remark, ...]
    unseen: tuple[str, ...]

    def __post_init__(self) -> None:
        if any(len(words) > MOST_SAID for words in self.unseen):
            msgspec.structs.force_setattr(self, "unseen", tuple(cut(words, MOST_SAID) for words in self.unseen))

    def of_kind(self, kind: str) -> tuple[Function, ...]:
        """The functions of one kind, in their order."""
        return tuple(one for one in self.functions if one.kind == kind)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the result, generated from these records."""
    schema = msgspec.json.schema(Topo)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
