"""Tegra: the GPU is part of the chip, driven by nvgpu and reached through its nodes; newer chips have it on PCI instead."""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.driver import MODULES
from gpudoctor.facts.platform import DEVICE_TREE, PlatformGpu, PlatformKind
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

MODULE = "/sys/module/nvgpu"

CONTROL_NODES = ("/dev/nvgpu/igpu0/ctrl", "/dev/nvhost-ctrl-gpu")
"""The control node that every program opens first, by its newer and its older name (nvgpu's uapi header nvgpu-ctrl.h)."""

# "Tegra26x selects openrm": Jetson Thor and later have one driver for all, nvidia.ko (Jetson Linux r39.2, nv-load-display-modules Service).
_OPENRM_CHIP = pattern(r"nvidia,(tegra26\d)")


class TegraDriver(Fact, frozen=True):
    """Whether nvgpu is loaded, and its control node; of no interest on any other platform.

    `openrm_chip` names a chip whose GPU is nvidia.ko's. `node` is what is there under one of its names.
    """

    openrm_chip: str | None
    loaded: Reading[bool]
    node: Entry | Absent | Unread

    @property
    def node_missing(self) -> Cited:
        """That there is a node under none of its names."""
        absent = [Absent(path).evidence for path in CONTROL_NODES]
        return tuple(absent) if isinstance(self.node, Absent) else ()

    @classmethod
    def gather(cls, desk: Desk) -> "TegraDriver | Unread":
        """A few looks on Tegra, none elsewhere."""
        platform = desk.get(PlatformGpu)
        if isinstance(platform, Unread):
            return platform
        if platform.kind is not PlatformKind.TEGRA:
            return cls(openrm_chip=None, loaded=False, node=Absent(CONTROL_NODES[0]))
        tree = desk.raw.read(DEVICE_TREE)
        chip = _OPENRM_CHIP.search(tree.text) if isinstance(tree, TextFile) else None
        loaded, evidence = _loaded(desk.raw)
        seen = {"loaded": evidence}
        if chip is not None:
            seen["openrm_chip"] = Evidence(DEVICE_TREE, chip[0])
        return cls(openrm_chip=chip[1] if chip else None, loaded=loaded, node=_node(desk.raw), read_from=seen)


def _loaded(raw: Raw) -> tuple[Reading[bool], Evidence]:
    """By /proc/modules; where it is built into the kernel only sysfs has it."""
    modules = raw.read(MODULES)
    if isinstance(modules, Unread):
        return modules, Evidence(MODULES, modules.detail)
    lines = modules.text.splitlines() if isinstance(modules, TextFile) else []
    line = next((line for line in lines if line.startswith("nvgpu ")), None)
    if line is not None:
        live = " Loading " not in line and " Unloading " not in line
        return live, Evidence(MODULES, line)
    entry = raw.entry(MODULE)
    if isinstance(entry, Unread):
        return entry, Evidence(MODULE, entry.detail)
    if isinstance(entry, Entry):
        return True, Evidence(MODULE, "exists")
    return False, Evidence(MODULES, f"no line for nvgpu, and {MODULE} does not exist")


def _node(raw: Raw) -> Entry | Absent | Unread:
    """The first of its names that is there, else why not."""
    unread: Unread | None = None
    for path in CONTROL_NODES:
        entry = raw.entry(path)
        if isinstance(entry, Entry) and entry.type is EntryType.CHAR:
            return entry
        unread = entry if isinstance(entry, Unread) else unread
    return unread or Absent(CONTROL_NODES[0])
