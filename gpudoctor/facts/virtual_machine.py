"""Whether this kernel runs in a virtual machine, whose PCI ports are made up by its host."""

import re

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

DMI = "/sys/class/dmi/id"
CPUINFO = "/proc/cpuinfo"

HYPERVISORS = (
    "KVM",
    "OpenStack",
    "KubeVirt",
    "Amazon EC2",
    "QEMU",
    "VMware",
    "VMW",
    "innotek GmbH",
    "VirtualBox",
    "Xen",
    "Bochs",
    "Parallels",
    "BHYVE",
    "Apple Virtualization",
    "Google Compute Engine",
)
"""How the vendor or product of a virtual machine begins: dmi_vendor_table of systemd, src/basic/virt.c at commit 0099e5589762.

Without Oracle Corporation, whose own servers bear that name.
"""
# Amazon's bare-metal instances have the vendor of its virtual ones (detect_vm_dmi, same file).
_METAL = pattern(r"\.metal(?:-|$)")
# Hyper-V and Azure (detect_vm_dmi has "Hyper-V" in the product's version).
_MICROSOFT = ("Microsoft Corporation", "Virtual Machine")
_FLAGS = pattern(r"^flags\s*:(.*)$", re.MULTILINE)


class Firmware(Fact, frozen=True):
    """Who made the machine, as its firmware says (SMBIOS); None where it does not."""

    vendor: Reading[str | None]
    product: Reading[str | None]

    @property
    def names_hypervisor(self) -> bool:
        """Whether these are the names of a virtual machine. That they are not proves nothing."""
        vendor, product = (name if isinstance(name, str) else "" for name in (self.vendor, self.product))
        if vendor.startswith("Amazon EC2") and _METAL.search(product):
            return False
        return (vendor, product) == _MICROSOFT or vendor.startswith(HYPERVISORS) or product.startswith(HYPERVISORS)

    @classmethod
    def gather(cls, desk: Desk) -> "Firmware | Unread":
        """Two small files, readable by everyone; a machine without SMBIOS has neither."""
        vendor, vendor_evidence = _name(desk, "sys_vendor")
        product, product_evidence = _name(desk, "product_name")
        return cls(
            vendor=vendor,
            product=product,
            read_from={"vendor": vendor_evidence, "product": product_evidence},
        )


class VirtualMachine(Fact, frozen=True):
    """Whether this is a virtual machine. Dearer than `Firmware`: the kernel may ask each CPU for its clock to answer."""

    guest: bool

    @classmethod
    def gather(cls, desk: Desk) -> "VirtualMachine | Unread":
        """The names in the firmware, else the processor's flag `hypervisor` (CPUID leaf 1, ECX bit 31), which only x86 has."""
        firmware = desk.get(Firmware)
        if isinstance(firmware, Firmware) and firmware.names_hypervisor:
            return cls(guest=True, read_from=_same(firmware))
        file = desk.raw.read(CPUINFO)
        flags = _FLAGS.search(file.text) if isinstance(file, TextFile) else None
        if flags is not None:
            guest = "hypervisor" in flags[1].split()
            shows = "flags: … hypervisor …" if guest else "no flag hypervisor"
            return cls(guest=guest, read_from={"guest": Evidence(CPUINFO, shows)})
        if isinstance(file, Unread) and file.why is not Why.NOT_RECORDED:
            return file
        if isinstance(firmware, Firmware) and isinstance(firmware.vendor, str):
            return cls(guest=False, read_from=_same(firmware))
        return Unread(Why.NOT_ANSWERED, f"{DMI}, {CPUINFO}", "neither says whether this is a virtual machine")


def _same(firmware: Firmware) -> dict[str, Evidence]:
    vendor, product = firmware.cite("vendor", "product")
    return {"guest": Evidence(vendor.where, f"{vendor.shows}, {product.shows}")}


def _name(desk: Desk, attribute: str) -> tuple[Reading[str | None], Evidence]:
    file = desk.raw.read(f"{DMI}/{attribute}")
    match file:
        case TextFile():
            return file.text.strip() or None, Evidence(file.where, file.text.strip())
        case Absent():
            return None, file.evidence
        case Unread():
            return file, Evidence(file.where, file.detail)
