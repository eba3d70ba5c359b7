"""Where each RDMA adapter is plugged in: the PCIe link to the port above it, and the GPU that it is next to."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.pci_link import LinkEnd, port_end
from gpudoctor.facts.topology import Device, Topology
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.verdicts import Unread

BELOW_ONE_SWITCH = ("PIX", "PXB")
"""The ways between two devices that do not lead over the CPU's root complex."""
_ENDS = {
    "speed": "current_speed",
    "width": "current_width",
    "max_speed": "max_speed",
    "max_width": "max_width",
}


class Slot(Citable, frozen=True):
    """An adapter's own link: `end` is the adapter's, `port` that of the port above, None where there is none to be seen.

    `gpu` is the address of the only GPU below the same switch, empty where there is none or several, `beside` whether there is any.
    `judges_speed` is False where ports and their speeds may be made up, as in a virtual machine.
    """

    end: LinkEnd
    port: LinkEnd | None
    gpu: str
    beside: bool = False
    judges_speed: bool = False

    @property
    def known(self) -> bool:
        """Whether its width was told."""
        return self.end.current_width is not None

    @property
    def allowed_width(self) -> int | None:
        """The width that both ends allow."""
        most, port = self.end.max_width, None if self.port is None else self.port.max_width
        return None if most is None or port is None else min(most, port)

    @property
    def allowed_speed(self) -> float | None:
        """The speed in GT/s that both ends allow."""
        most, port = self.end.max_speed, None if self.port is None else self.port.max_speed
        return None if most is None or port is None else min(most, port)

    @property
    def slow(self) -> bool:
        """Whether it runs slower than both ends allow."""
        speed, allowed = self.end.current_speed, self.allowed_speed
        return speed is not None and allowed is not None and speed < allowed


class AdapterSlots(Fact, frozen=True):
    """The slots of RDMA adapters by PCI address; without those whose links a hypervisor made up."""

    by_address: Mapping[str, Slot]

    def alike(self, one: str, other: str) -> bool:
        """Whether both adapters are beside a GPU, or neither: equal cards far from all GPUs serve storage, and are often not in use."""
        mine, theirs = self.by_address.get(one), self.by_address.get(other)
        return mine is None or theirs is None or mine.beside == theirs.beside

    @classmethod
    def gather(cls, desk: Desk) -> "AdapterSlots":
        """Two small files for the port above each adapter. Never unread: what needs it does without."""
        topology = desk.get(Topology)
        if isinstance(topology, Unread) or topology.synthetic:
            return cls(by_address={})
        nics = [nic for nic in topology.nics if nic.rdma and nic.link is not None]
        slots = {nic.address: _slot(desk, topology, nic) for nic in nics}
        if not any(slot.slow for slot in slots.values()):
            return cls(by_address=slots)
        machine = desk.get(VirtualMachine)
        metal = not isinstance(machine, Unread) and not machine.guest
        judged = {
            address: Slot(end=slot.end, port=slot.port, gpu=slot.gpu, beside=slot.beside, judges_speed=metal)
            for address, slot in slots.items()
        }
        return cls(by_address=judged)


def _slot(desk: Desk, topology: Topology, nic: Device) -> Slot:
    assert nic.link is not None
    seen = {ends: nic.read_from[name] for name, ends in _ENDS.items() if name in nic.read_from}
    end = LinkEnd(
        address=nic.address,
        current_width=nic.link.width,
        max_width=nic.link.max_width,
        current_speed=nic.link.speed,
        max_speed=nic.link.max_speed,
        read_from=seen,
    )
    port = port_end(desk.raw, nic.path[-2]) if len(nic.path) > 1 else None
    beside = [gpu.address for gpu in topology.gpus if topology.way(gpu, nic) in BELOW_ONE_SWITCH]
    return Slot(end=end, port=port, gpu=beside[0] if len(beside) == 1 else "", beside=bool(beside))
