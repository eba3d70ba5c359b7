"""What kind of machine a node itself says it is, as far as that tells how many GPUs it has."""

from typing import TYPE_CHECKING

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.expectations import Expectations
from gpudoctor.facts.pci import NvSwitches, PciGpus
from gpudoctor.facts.virtual_machine import Firmware, VirtualMachine
from gpudoctor.verdicts import Cited, Unread

if TYPE_CHECKING:
    from gpudoctor.knowledge.profiles import Profile

VENDORS = ("Amazon EC2", "NVIDIA")
"""Vendors in DMI whose product names tell the kind of machine. Azure, Google and Oracle do not name the instance type there."""


class Recognition(Fact, frozen=True):
    """The profile that the machine tells, None when it tells none or somebody said what to expect; and what told it."""

    profile: "Profile | None"
    told_by: Cited = ()
    is_instance: bool = False

    @classmethod
    def gather(cls, desk: Desk) -> "Recognition | Unread":
        """The table of profiles is loaded only for machines that may be in it."""
        expected = desk.get(Expectations)
        if isinstance(expected, Unread) or expected.gpus is not None:
            return cls(profile=None)
        return _by_name(desk) or _by_switches(desk) or cls(profile=None)


def _by_name(desk: Desk) -> Recognition | None:
    """An EC2 instance type counts in virtual machines and on metal; a DGX's name only where the machine is not made up."""
    firmware = desk.get(Firmware)
    if isinstance(firmware, Unread) or not isinstance(firmware.vendor, str) or not isinstance(firmware.product, str):
        return None
    if firmware.vendor not in VENDORS:
        return None
    from gpudoctor.knowledge.profiles import of_product

    profile = of_product(firmware.vendor, firmware.product)
    if profile is None:
        return None
    names = firmware.cite("vendor", "product")
    if firmware.vendor == "Amazon EC2":
        return Recognition(profile=profile, told_by=names, is_instance=True)
    metal = _metal(desk)
    return None if metal is None else Recognition(profile=profile, told_by=names + metal)


def _by_switches(desk: Desk) -> Recognition | None:
    """NVSwitches stand on boards with eight GPUs only; in a virtual machine there may be any number of either."""
    switches, gpus = desk.get(NvSwitches), desk.get(PciGpus)
    if isinstance(switches, Unread) or isinstance(gpus, Unread) or not switches.switches or not gpus.gpus:
        return None
    metal = _metal(desk)
    if metal is None:
        return None
    from gpudoctor.knowledge.profiles import of_board

    device_ids = frozenset(gpu.device_id for gpu in gpus)
    switch_ids = frozenset(switch.device_id for switch in switches)
    profile = of_board(device_ids, switch_ids, len(switches.switches))
    told = tuple(evidence for switch in switches for evidence in switch.cite("device_id"))
    return None if profile is None else Recognition(profile=profile, told_by=told + metal)


def _metal(desk: Desk) -> Cited | None:
    """How it is known that this is no virtual machine, None when it is one or that is not known."""
    machine = desk.get(VirtualMachine)
    return None if isinstance(machine, Unread) or machine.guest else machine.cite("guest")
