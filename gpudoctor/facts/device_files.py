"""The device files beside those of GPUs: modeset, uvm-tools, NVLink, NVSwitches, IMEX channels, and whose /dev it is."""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import DRIVER_ROOT, NVIDIA_MAJOR, ExpectedNode, GpuNodes, Majors, look
from gpudoctor.facts.driver import DriverGpus
from gpudoctor.facts.pci import NvSwitches
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

KMSG = "/dev/kmsg"
KMSG_NUMBERS = (1, 11)
"""Documentation/admin-guide/devices.txt: memory devices, 11 = /dev/kmsg."""

MODESET = "/dev/nvidia-modeset"
MODESET_MINOR = 254
"""NV_MINOR_DEVICE_NUMBER_MODESET_DEVICE in nv-chardev-numbers.h of open-gpu-kernel-modules."""

UVM_TOOLS = "/dev/nvidia-uvm-tools"
NVLINK = "/dev/nvidia-nvlink"

SWITCH_CONTROL = "/dev/nvidia-nvswitchctl"
SWITCH_CONTROL_MINOR = 255
"""NVSWITCH_CTL_MINOR in linux_nvswitch.c of open-gpu-kernel-modules."""

IMEX_DIRECTORY = "/dev/nvidia-caps-imex-channels"
IMEX_DEVICE = "nvidia-caps-imex-channels"
_CHANNEL = pattern(r"channel(\d{1,7})")


class DevDirectory(Fact, frozen=True):
    """Whether /dev is the node's own. A container's holds the nodes it was given, so that others are missing says nothing.

    The kernel puts kmsg, 1:11, into every devtmpfs (drivers/char/mem.c). A container's default devices do not include it (OCI runtime
    specification, config-linux.md, Default Devices), and some engines link the name to their console.
    """

    own: Reading[bool]

    @classmethod
    def gather(cls, desk: Desk) -> "DevDirectory | Unread":
        """One look at /dev/kmsg."""
        entry = desk.raw.entry(KMSG)
        if isinstance(entry, Unread):
            return cls(own=entry)
        own = (
            isinstance(entry, Entry)
            and entry.type is EntryType.CHAR
            and (entry.major, entry.minor) in (KMSG_NUMBERS, (None, None))
        )
        return cls(own=own)


class NotGiven(Fact, frozen=True):
    """The GPUs that this container sees on the bus and was not given: some GPU's node is in its /dev, theirs is not."""

    addresses: frozenset[str]

    @classmethod
    def gather(cls, desk: Desk) -> "NotGiven | Unread":
        """Empty outside of containers, and where that cannot be told; never unread itself."""
        dev, nodes, driver = desk.get(DevDirectory), desk.get(GpuNodes), desk.get(DriverGpus)
        if isinstance(dev, Unread) or dev.own is not False or isinstance(nodes, Unread) or isinstance(driver, Unread):
            return cls(addresses=frozenset())
        # NVIDIA's runtime mounts a folder over /proc/driver/nvidia/gpus that holds the given ones only (nvc_mount.c of
        # libnvidia-container, mount_procfs_gpu).
        unlisted = frozenset(address for address, gpu in driver.gpus.items() if isinstance(gpu, Absent))
        given = any(isinstance(found, Entry) for found in nodes.by_address.values())
        lacking = (address for address, found in nodes.by_address.items() if isinstance(found, Absent))
        return cls(addresses=frozenset(lacking) | unlisted if given else frozenset())


class OtherNodes(Fact, frozen=True):
    """The nodes beside those of GPUs whose driver is registered; who needs one makes it, so that it may well be missing."""

    nodes: tuple[ExpectedNode, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "OtherNodes | Unread":
        """One look for each name that /proc/devices has."""
        majors = desk.get(Majors)
        if isinstance(majors, Unread):
            return majors
        names = {
            # Before 545 the modules share the one name nvidia-frontend.
            MODESET: (_name_of(majors, NVIDIA_MAJOR), MODESET_MINOR),
            UVM_TOOLS: ("nvidia-uvm", 1),
            NVLINK: ("nvidia-nvlink", 0),
        }
        nodes = [expected(desk, majors, path, name, minor) for path, (name, minor) in names.items()]
        return cls(
            nodes=tuple(node for node in nodes if node is not None), read_from={"majors": majors.read_from["all"]}
        )


def _name_of(majors: Majors, major: int) -> str:
    """A name of NVIDIA's under a major, the modeset driver's own if it has one; empty when there is none."""
    names = [name for name, number in majors.by_name.items() if number == major and name.startswith("nvidia")]
    return "nvidia-modeset" if "nvidia-modeset" in names else next(iter(names), "")


def expected(desk: Desk, majors: Majors, path: str, name: str, minor: int) -> ExpectedNode | None:
    """The node that belongs to a registered name, None when nothing of that name is registered."""
    major = majors.by_name.get(name)
    if major is None:
        return None
    (evidence,) = majors.cite(name)
    return ExpectedNode(
        path=path, major=major, minor=minor, found=look(desk.raw, path), read_from={"numbers": evidence}
    )


class NvSwitchNodes(Fact, frozen=True):
    """The nodes of the NVSwitches that nvidia-nvswitch holds; none is looked for where it holds none.

    `held` counts those switches, `nodes` begins with the control node, `unsure` is why there may be more of them. A switch gets the
    lowest free minor when it is bound (nvswitch_find_minor in linux_nvswitch.c), so that every minor is below their number.
    """

    held: int
    nodes: tuple[ExpectedNode, ...]
    unsure: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "NvSwitchNodes | Unread":
        """One look for each switch and one for the control node."""
        switches, majors = desk.get(NvSwitches), desk.get(Majors)
        if isinstance(switches, Unread):
            return switches
        if isinstance(majors, Unread) and switches.members:
            return majors
        drivers = [switch.driver for switch in switches]
        unsure = switches.unlisted or next((driver for driver in drivers if isinstance(driver, Unread)), None)
        holding = [switch for switch in switches if switch.driver == "nvidia-nvswitch"]
        seen = {switch.address: switch.cite("driver")[0] for switch in holding or switches}
        if not holding or isinstance(majors, Unread):
            return cls(held=0, nodes=(), unsure=unsure, read_from=seen)
        paths = {SWITCH_CONTROL: SWITCH_CONTROL_MINOR}
        paths |= {f"/dev/nvidia-nvswitch{minor}": minor for minor in range(len(drivers))}
        nodes = [expected(desk, majors, path, "nvidia-nvswitch", minor) for path, minor in paths.items()]
        return cls(held=len(holding), nodes=tuple(node for node in nodes if node), unsure=unsure, read_from=seen)


class ImexChannels(Fact, frozen=True):
    """The IMEX channels that somebody made: the driver makes none unless told to (NVreg_CreateImexChannel0, nv-caps-imex.c).

    A channel's minor is its number. `incomplete` is why there may be more.
    """

    channels: tuple[ExpectedNode, ...]
    incomplete: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "ImexChannels | Unread":
        """One listing where the driver has channels, and one look for each that is there."""
        majors = desk.get(Majors)
        if isinstance(majors, Unread):
            return majors
        seen = {"channels": majors.read_from.get(IMEX_DEVICE, majors.read_from["all"])}
        if IMEX_DEVICE not in majors.by_name:
            return cls(channels=(), read_from=seen)
        listing = desk.raw.listing(IMEX_DIRECTORY)
        if isinstance(listing, Absent):
            contained = desk.raw.listing(DRIVER_ROOT + IMEX_DIRECTORY)
            listing = contained if isinstance(contained, Listing) else listing
        if isinstance(listing, Unread):
            return listing
        if isinstance(listing, Absent):
            return cls(channels=(), read_from={"channels": listing.evidence})
        numbers = sorted(int(name[1]) for name in map(_CHANNEL.fullmatch, listing.names) if name)
        nodes = [expected(desk, majors, f"{IMEX_DIRECTORY}/channel{number}", IMEX_DEVICE, number) for number in numbers]
        shows = f"holds {len(numbers)} channels"
        return cls(
            channels=tuple(node for node in nodes if node is not None),
            incomplete=None if listing.complete else _partly(listing.path),
            read_from={"channels": Evidence(listing.path, shows)},
        )


def _partly(path: str) -> Unread:
    return Unread(Why.NOT_RECORDED, path, "the recording lists at least these, perhaps not all")
