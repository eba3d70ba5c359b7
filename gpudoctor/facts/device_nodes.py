"""The device nodes of the GPUs. Nodes are never opened, only looked at: opening one can make the kernel load a module."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile, decimal
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

NVIDIA_MAJOR = 195
"""Fixed: NV_MAJOR_DEVICE_NUMBER in nv-chardev-numbers.h of open-gpu-kernel-modules."""

CONTROL = "/dev/nvidiactl"
CONTROL_MINOR = 255
UVM = "/dev/nvidia-uvm"
PROC_DEVICES = "/proc/devices"


def node_path(minor: int) -> str:
    """The device node of a GPU by its minor number, which need not be its NVML index."""
    return f"/dev/nvidia{minor}"


DRIVER_ROOT = "/run/nvidia/driver"
"""Where the GPU Operator's driver container has its root: it makes the device nodes there, not always in the host's /dev."""


def look(raw: Raw, path: str) -> Entry | Absent | Unread:
    """What is at a node's path, in the host's /dev or else below the driver container's root."""
    entry = raw.entry(path)
    if isinstance(entry, Absent):
        contained = raw.entry(DRIVER_ROOT + path)
        unseen = isinstance(contained, Unread) and contained.why is not Why.NOT_RECORDED
        return contained if isinstance(contained, Entry) or unseen else entry
    return entry


class ExpectedNode(Citable, frozen=True):
    """A node that belongs at a path with the numbers the driver gave it, and what is there."""

    path: str
    major: int
    minor: int
    found: Entry | Absent | Unread

    @property
    def subject(self) -> Subject:
        """The file as a subject."""
        return Subject(SubjectKind.FILE, self.path)

    @property
    def numbers(self) -> str:
        """The numbers it should have, as `ls -l` prints them but for the space."""
        return f"{self.major}:{self.minor}"

    @property
    def fault(self) -> str | None:
        """What is wrong with what is there; None when it is right, missing or could not be seen."""
        entry = self.found
        if not isinstance(entry, Entry):
            return None
        if entry.type is not EntryType.CHAR:
            return f"{entry.path} is a {entry.type.words}, not a device node"
        if entry.major is None or (entry.major, entry.minor) == (self.major, self.minor):
            return None
        return f"{entry.path} is {entry.major}:{entry.minor}, expected {self.numbers}"

    @property
    def unseen(self) -> Unread | None:
        """Why it is not known what is there."""
        match self.found:
            case Unread():
                return self.found
            case Entry(type=EntryType.CHAR, major=None):
                return Unread(Why.NOT_RECORDED, self.path, "its device numbers were not recorded")
            case _:
                return None

    @property
    def found_at(self) -> str:
        """Where it is, or belongs: a driver container has its nodes below a root of its own."""
        return self.found.path if isinstance(self.found, Entry) else self.path

    @property
    def right(self) -> bool:
        """It is there, with its numbers."""
        return isinstance(self.found, Entry) and self.fault is None and self.unseen is None

    @property
    def evidence(self) -> Evidence:
        """What is there, or that nothing is."""
        match self.found:
            case Entry():
                return Evidence(self.found.where, describe(self.found))
            case Absent():
                return self.found.evidence
            case Unread():
                return Evidence(self.path, self.found.detail)


class GpuNodes(Fact, frozen=True):
    """What is at the path where each GPU's device node belongs, by PCI address; GPUs without a known minor are left out."""

    by_address: Mapping[str, Entry | Absent | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "GpuNodes | Unread":
        """One lstat for each minor the driver lists."""
        driver = desk.get(DriverGpus)
        if isinstance(driver, Unread):
            return driver
        return cls(
            by_address={
                address: look(desk.raw, node_path(gpu.minor))
                for address, gpu in driver.gpus.items()
                if isinstance(gpu, DriverGpu) and gpu.minor is not None
            }
        )


class Majors(Fact, frozen=True):
    """The character-device majors of /proc/devices by name. Several names can share one, and a name can hold a colon."""

    by_name: Mapping[str, int]

    @classmethod
    def gather(cls, desk: Desk) -> "Majors | Unread":
        """Lines of number and name, up to the block devices."""
        file = desk.raw.read(PROC_DEVICES)
        if isinstance(file, Unread):
            return file
        if isinstance(file, Absent):
            return Unread(Why.UNREADABLE, PROC_DEVICES, "does not exist")
        characters = file.text.partition("Block devices:")[0]
        pairs = (line.split(None, 1) for line in characters.splitlines() if line[:4].strip().isdecimal())
        by_name = {
            words[1].strip(): major for words in pairs if len(words) == 2 and (major := decimal(words[0])) is not None
        }
        listed = {f"{name}": Evidence(PROC_DEVICES, f"{major} {name}") for name, major in by_name.items()}
        return cls(by_name=by_name, read_from={**listed, "all": Evidence(PROC_DEVICES, "lists the registered majors")})


class CommonNodes(Fact, frozen=True):
    """The nodes that all GPUs share."""

    control: Entry | Absent | Unread
    uvm: Entry | Absent | Unread

    @classmethod
    def gather(cls, desk: Desk) -> "CommonNodes | Unread":
        """Looked at, never opened."""
        return cls(control=look(desk.raw, CONTROL), uvm=look(desk.raw, UVM))


OVERFLOW = ("/proc/sys/kernel/overflowuid", "/proc/sys/kernel/overflowgid")
DEFAULT_OVERFLOW = 65534


class OverflowIds(Fact, frozen=True):
    """The user and group that stand for those a user namespace has no name for (user_namespaces(7), "Unmapped user and group IDs").

    Looked for only where a node has an owner other than root.
    """

    uid: int
    gid: int

    @classmethod
    def gather(cls, desk: Desk) -> "OverflowIds | Unread":
        """Never unread itself: the kernel's default, where its setting cannot be read."""
        gpus, common = desk.get(GpuNodes), desk.get(CommonNodes)
        found = [] if isinstance(gpus, Unread) else list(gpus.by_address.values())
        found += [] if isinstance(common, Unread) else [common.control]
        if not any(isinstance(entry, Entry) and (entry.uid or entry.gid) for entry in found):
            return cls(uid=DEFAULT_OVERFLOW, gid=DEFAULT_OVERFLOW)
        uid, gid = (_number(desk.raw, path) for path in OVERFLOW)
        return cls(uid=uid, gid=gid)


def _number(raw: Raw, path: str) -> int:
    file = raw.read(path)
    number = decimal(file.text.strip()) if isinstance(file, TextFile) else None
    return DEFAULT_OVERFLOW if number is None else number


def describe(entry: Entry) -> str:
    """What an entry is, the way `ls -l` and `stat` would say it."""
    numbers = f" {entry.major}:{entry.minor}" if entry.major is not None else ""
    mode = f", mode {entry.mode:04o}" if entry.mode is not None else ""
    return f"{entry.type.words}{numbers}{mode}"
