"""What sysfs tells of a GPU that nvidia does not hold: who asked for that, and what goes with it to a virtual machine."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.pci import DEVICES, PciGpus
from gpudoctor.facts.raw import Absent, EntryType, Listing, Raw, TextFile, decimal
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

IOMMU_GROUPS = "/sys/kernel/iommu_groups"

TRANSLATED = ("DMA", "DMA-FQ")
"""Types of a group whose DMA the IOMMU translates (Documentation/ABI/testing/sysfs-kernel-iommu_groups)."""


class PassthroughTrace(Citable, frozen=True):
    """One GPU; the files are those of Documentation/ABI/testing/sysfs-bus-pci.

    `override` is the only driver the kernel may bind, None when none is asked for. `companions` are the other functions of its IOMMU
    group: VFIO gives a group to a virtual machine as a whole (Documentation/driver-api/vfio.rst). `reset_methods` are in the order
    in which the kernel tries them, empty when it can reset the GPU in no way. None stands for a file that this kernel does not have.
    """

    address: str
    override: Reading[str | None]
    group: Reading[int | None]
    companions: Reading[tuple[str, ...]]
    reset_methods: Reading[tuple[str, ...] | None]
    virtual_functions: Reading[int | None]
    most_virtual_functions: Reading[int | None]


class PassthroughTraces(Fact, frozen=True):
    """The traces of each GPU that the nvidia driver does not hold, by address; no file is read for the others."""

    by_address: Mapping[str, PassthroughTrace]

    @classmethod
    def gather(cls, desk: Desk) -> "PassthroughTraces | Unread":
        """None of these files touches the device itself."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        others = [gpu for gpu in gpus if not isinstance(gpu.driver, Unread) and gpu.driver != "nvidia"]
        return cls(by_address={gpu.address: _trace(desk.raw, gpu.address) for gpu in others})

    def about(self, address: str) -> Cited:
        """What is worth telling of a GPU, empty for one that nvidia holds: the override, the IOMMU group, how it can be reset."""
        trace = self.by_address.get(address)
        if trace is None:
            return ()
        told = {
            "override": isinstance(trace.override, str),
            "group": isinstance(trace.group, int),
            "companions": bool(trace.companions) and not isinstance(trace.companions, Unread),
            "reset_methods": isinstance(trace.reset_methods, tuple),
            "virtual_functions": isinstance(trace.virtual_functions, int) and trace.virtual_functions > 0,
        }
        return trace.cite(*(field for field, known in told.items() if known))


def iommu_group(raw: Raw, address: str) -> tuple[Reading[int | None], Evidence]:
    """The IOMMU group of a PCI function; None where no IOMMU is in use."""
    path = f"{DEVICES}/{address}/iommu_group"
    entry = raw.entry(path)
    if isinstance(entry, Absent):
        return None, entry.evidence
    if isinstance(entry, Unread):
        return entry, Evidence(path, entry.detail)
    number = decimal((entry.to or "").rpartition("/")[2])
    if entry.type is not EntryType.LINK or number is None:
        return Unread(Why.UNREADABLE, path, f"leads to {entry.to!r}, which names no group"), Evidence(path, "no group")
    return number, Evidence(entry.where, f"-> {entry.to}")


def number_of(raw: Raw, path: str) -> tuple[Reading[int | None], Evidence]:
    """A file that holds one decimal number; None where there is no such file."""
    file = raw.read(path)
    match file:
        case TextFile():
            text = file.text.strip()
            number = decimal(text)
            if number is not None:
                return number, Evidence(file.where, text)
            return Unread(Why.UNREADABLE, path, f"holds {text[:40]!r}, not a number"), Evidence(path, text[:40])
        case Absent():
            return None, file.evidence
        case Unread():
            return file, Evidence(path, file.detail)


def _trace(raw: Raw, address: str) -> PassthroughTrace:
    base = f"{DEVICES}/{address}"
    override, override_evidence = _override(raw, f"{base}/driver_override")
    group, group_evidence = iommu_group(raw, address)
    companions, companions_evidence = _companions(raw, address, group)
    methods, methods_evidence = _reset_methods(raw, f"{base}/reset_method")
    functions, functions_evidence = number_of(raw, f"{base}/sriov_numvfs")
    most, most_evidence = number_of(raw, f"{base}/sriov_totalvfs")
    return PassthroughTrace(
        address=address,
        override=override,
        group=group,
        companions=companions,
        reset_methods=methods,
        virtual_functions=functions,
        most_virtual_functions=most,
        read_from={
            "override": override_evidence,
            "group": group_evidence,
            "companions": companions_evidence,
            "reset_methods": methods_evidence,
            "virtual_functions": functions_evidence,
            "most_virtual_functions": most_evidence,
        },
    )


def _override(raw: Raw, path: str) -> tuple[Reading[str | None], Evidence]:
    """The kernel prints a pointer to nothing where there is no override (driver_override_show in drivers/pci/pci-sysfs.c)."""
    file = raw.read(path)
    match file:
        case TextFile():
            text = file.text.strip()
            return (None if text in ("", "(null)") else text), Evidence(path, text)
        case Absent():
            return None, file.evidence
        case Unread():
            return file, Evidence(path, file.detail)


def _companions(raw: Raw, address: str, group: Reading[int | None]) -> tuple[Reading[tuple[str, ...]], Evidence]:
    if not isinstance(group, int):
        return (group if isinstance(group, Unread) else ()), Evidence(f"{DEVICES}/{address}", "in no IOMMU group")
    path = f"{IOMMU_GROUPS}/{group}/devices"
    listing = raw.listing(path)
    if isinstance(listing, Listing):
        others = tuple(name for name in listing.names if name != address)
        shows = f"{', '.join(others)} in the same group" if others else "nothing else in the group"
        return others, Evidence(listing.where, shows)
    if isinstance(listing, Absent):
        return Unread(Why.UNREADABLE, path, listing.detail), listing.evidence
    return listing, Evidence(path, listing.detail)


def _reset_methods(raw: Raw, path: str) -> tuple[Reading[tuple[str, ...] | None], Evidence]:
    """Since Linux 5.15 (commit "PCI: Allow userspace to query and set device reset mechanism")."""
    file = raw.read(path)
    match file:
        case TextFile():
            methods = tuple(file.text.split())
            return methods, Evidence(path, " ".join(methods) or "none: the kernel cannot reset it")
        case Absent():
            return None, file.evidence
        case Unread():
            return file, Evidence(path, file.detail)
