"""One of the two sides: its report, and the desk to ask for facts where it is more than a report."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Generic, TypeVar

from msgspec import Struct

from gpudoctor.diff import Area, Gap, Way
from gpudoctor.facts.desk import Desk, FactT
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpus
from gpudoctor.report import NodeGpu, Report
from gpudoctor.verdicts import Status, Unread, Why

T = TypeVar("T")
A, B = "A", "B"
MOST_GPUS = 512
"""No node has more; a report that somebody made up may."""
GPUS_PRESENT = "pcie.gpus-present"


class Party(Struct, frozen=True, dict=True):
    """`at` is when it was looked at, None where the recording does not tell; without a `desk` it is a saved report."""

    letter: str
    given: str
    report: Report
    desk: Desk | None
    at: datetime.datetime | None
    redacted: bool = False

    def fact(self, kind: type[FactT]) -> FactT | Unread:
        """A fact, or why it is not known."""
        if self.desk is None:
            return Unread(Why.NOT_RECORDED, self.given, "a saved report holds findings only")
        return self.desk.get(kind)

    def known(self, kind: type[FactT]) -> FactT | None:
        """A fact, None where it is not known."""
        found = self.fact(kind)
        return None if isinstance(found, Unread) else found

    @cached_property
    def gpus(self) -> tuple[NodeGpu, ...]:
        """The GPUs by address: those of the bus, else those that NVML or nvidia-smi told of."""
        told = self.report.node.gpus or tuple(
            NodeGpu(device.address, device.uuid, device.name, device.minor, device.index)
            for device in self.devices.values()
            if device.address is not None
        )
        return tuple(sorted(told, key=lambda gpu: gpu.address))[:MOST_GPUS]

    @cached_property
    def uuids(self) -> frozenset[str]:
        """The UUIDs of its GPUs; `nvidia-smi -L` tells them without addresses."""
        nvml = self.known(Nvml)
        told = [gpu.uuid for gpu in self.report.node.gpus]
        told += [device.uuid for device in (nvml.devices if nvml else ())]
        return frozenset(uuid for uuid in told if uuid)

    @cached_property
    def devices(self) -> Mapping[str, NvmlDevice]:
        """What NVML told of each GPU, by address."""
        nvml = self.known(Nvml)
        return {one.address: one for one in (nvml.devices if nvml else ()) if one.address is not None}

    @cached_property
    def lists_all_gpus(self) -> bool:
        """Whether there are no other GPUs than those listed."""
        if self.desk is not None:
            gpus = self.known(PciGpus)
            return gpus is not None and gpus.unlisted is None and gpus.has_bus
        return any(
            result.check == GPUS_PRESENT and result.status in (Status.PASS, Status.WARN, Status.FAIL)
            for result in self.report.results
        )


class Pairs(Struct, frozen=True):
    """Which GPU of A is compared with which of B, and those that are on one side only; `by` says how they were put together."""

    pairs: tuple[tuple[NodeGpu, NodeGpu], ...]
    gone: tuple[NodeGpu, ...]
    added: tuple[NodeGpu, ...]
    by: str

    @property
    def to_a(self) -> Mapping[str, str]:
        """The address in A by that in B."""
        return {two.address: one.address for one, two in self.pairs}


class Together(Struct, Generic[T], frozen=True):
    """Things of both sides, put together, and those of one side only."""

    pairs: tuple[tuple[T, T], ...]
    gone: tuple[T, ...]
    added: tuple[T, ...]


def paired(a: Party, b: Party, way: Way) -> Pairs:
    """By UUID for two times, as a GPU keeps it in another slot, and by address where one has none; by position for two nodes."""
    left, right = list(a.gpus), list(b.gpus)
    found: list[tuple[NodeGpu, NodeGpu]] = []
    if way is Way.TIMES:
        by_uuid = {gpu.uuid: gpu for gpu in right if gpu.uuid}
        for gpu in a.gpus:
            if gpu.uuid and gpu.uuid in by_uuid and by_uuid[gpu.uuid] in right:
                _take(gpu, by_uuid[gpu.uuid], left, right, found)
    by_address = {gpu.address: gpu for gpu in right}
    for gpu in tuple(left):
        other = by_address.get(gpu.address)
        same_time = way is Way.NODES or (other is not None and not (gpu.uuid and other.uuid))
        if other is not None and same_time:
            _take(gpu, other, left, right, found)
    by = "UUID, else address" if way is Way.TIMES else "address"
    # Buses are numbered anew with every card that is put in: where the numbers differ the order of the slots is what is left.
    if way is Way.NODES and left and right and (not found or len(left) == len(right)):
        for gpu, other in tuple(zip(left, right, strict=False)):
            _take(gpu, other, left, right, found)
        by = "the order of their addresses"
    return Pairs(tuple(sorted(found, key=lambda pair: pair[0].address)), tuple(left), tuple(right), by)


def _take(
    one: NodeGpu, two: NodeGpu, left: list[NodeGpu], right: list[NodeGpu], found: list[tuple[NodeGpu, NodeGpu]]
) -> None:
    left.remove(one)
    right.remove(two)
    found.append((one, two))


def together(mine: Iterable[T], theirs: Iterable[T], *keys: Callable[[T], object]) -> Together[T]:
    """What has the first key in common, then, of what is left, the next one."""
    left, right = list(mine), list(theirs)
    found: list[tuple[T, T]] = []
    for key in keys:
        there = {key(other): other for other in right}
        mates = [(one, there.pop(key(one))) for one in left if key(one) in there]
        found += mates
        taken = {id(one) for pair in mates for one in pair}
        left, right = ([one for one in side if id(one) not in taken] for side in (left, right))
    return Together(tuple(found), tuple(left), tuple(right))


def gap(area: Area, what: str, a: bool, b: bool, why: str = "not recorded") -> Iterator[Gap]:
    """What one side, and only one, knows."""
    if a != b:
        yield Gap(area, B if a else A, (what,), why)
