"""The driver's capabilities: what a process may do is decided by whether it may open the node of a capability.

Each file below /proc/driver/nvidia/capabilities names a node of the driver nvidia-caps: `DeviceFileMinor`, `DeviceFileMode` in decimal,
and `DeviceFileModify`, whether user space may make and repair it (nv_cap_procfs_read in nv-caps.c of open-gpu-kernel-modules).
"""

import re

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_files import expected
from gpudoctor.facts.device_nodes import ExpectedNode, Majors
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

CAPABILITIES = "/proc/driver/nvidia/capabilities"
DEEPEST = 5
"""gpu0/mig/gi1/ci0/access."""

_INSTANCE = pattern(rf"{CAPABILITIES}/gpu\d+/mig/gi\d+/(?:ci\d+/)?access")
_FIELD = pattern(r"^(DeviceFile(?:Minor|Mode|Modify)): (\d{1,9})$", re.MULTILINE)


class Capability(Citable, frozen=True):
    """One capability and its node. What mode the node has is the administrator's business where user space must not make it."""

    path: str
    node: ExpectedNode
    mode: int | None
    user_space_may_make: bool

    @property
    def is_instance(self) -> bool:
        """Whether it stands for a MIG GPU instance or compute instance, which nobody uses without its node."""
        return _INSTANCE.fullmatch(self.path) is not None


class Capabilities(Fact, frozen=True):
    """All capabilities that the driver lists, none where it has no such directory; `unread` is why there may be more."""

    capabilities: tuple[Capability, ...]
    registered: bool = True
    unread: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "Capabilities | Unread":
        """Walk the driver's directory, and look for the node of each file in it."""
        majors = desk.get(Majors)
        if isinstance(majors, Unread):
            return majors
        files, unread = _files(desk.raw, CAPABILITIES, DEEPEST)
        if "nvidia-caps" not in majors.by_name:
            return cls(capabilities=(), registered=not files, unread=unread, read_from={"all": majors.read_from["all"]})
        found: list[Capability] = []
        for file in files:
            capability = _capability(desk, majors, file)
            if isinstance(capability, Unread):
                unread = capability
            else:
                found.append(capability)
        shows = f"lists {len(found)} capabilities"
        return cls(capabilities=tuple(found), unread=unread, read_from={"all": Evidence(CAPABILITIES, shows)})


def _files(raw: Raw, directory: str, depth: int) -> tuple[list[TextFile], Unread | None]:
    """The files below a directory in the order of their names, and why there may be more."""
    listing = raw.listing(directory)
    if isinstance(listing, Absent):
        return [], None
    if isinstance(listing, Unread):
        return [], listing
    files: list[TextFile] = []
    unread = None if listing.complete else Unread(Why.NOT_RECORDED, directory, "the recording may lack some of it")
    for name in listing.names:
        path = f"{directory}/{name}"
        entry = raw.entry(path)
        if isinstance(entry, Entry) and entry.type is EntryType.DIR:
            below, trouble = _files(raw, path, depth - 1) if depth else ([], None)
            files += below
            unread = trouble or unread
            continue
        file = raw.read(path)
        if isinstance(file, TextFile):
            files.append(file)
        elif isinstance(file, Unread):
            unread = file
    return files, unread


def _capability(desk: Desk, majors: Majors, file: TextFile) -> Capability | Unread:
    fields = {name: int(value) for name, value in _FIELD.findall(file.text)}
    minor = fields.get("DeviceFileMinor")
    node = (
        None if minor is None else expected(desk, majors, f"/dev/nvidia-caps/nvidia-cap{minor}", "nvidia-caps", minor)
    )
    if minor is None or node is None:
        return Unread(Why.UNREADABLE, file.path, "names no DeviceFileMinor")
    shows = "; ".join(file.text.split("\n")[:3]).strip("; ")
    return Capability(
        path=file.path,
        node=node,
        mode=fields.get("DeviceFileMode"),
        user_space_may_make=fields.get("DeviceFileModify") != 0,
        read_from={"minor": Evidence(file.path, shows)},
    )
