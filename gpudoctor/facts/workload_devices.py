"""What each container and job has: the driver's nodes in its own /dev, and the driver's libraries mounted into it.

Looked at through /proc/PID/root (proc_pid_root(5)), in a child: a file system that a container mounted may never answer. Nodes are
never opened.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_nodes import NVIDIA_MAJOR
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.mounts import Mount, MountedLibrary, Mounts, parse_mounts
from gpudoctor.facts.raw import Absent, Contents, Entry, EntryType, Raw, TextFile, decimal
from gpudoctor.facts.workload import LOOKED_INTO, Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Evidence, Unread, Why

SHARED_NAMES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Of a container without any node, only that it lacks the first is said."""
_CAPABILITIES = "nvidia-caps"
FOLDERS = (_CAPABILITIES, "nvidia-caps-imex-channels")
"""Folders of nodes (nv-caps.c and nv-caps-imex.c of open-gpu-kernel-modules)."""


class NodeInside(Struct, frozen=True):
    """One of NVIDIA's nodes as a workload sees it: at which path, what is there, and the mount it lies on (None where unknown)."""

    path: str
    entry: Entry
    mount: Mount | None = None

    @property
    def bound(self) -> bool:
        """Whether just this node was mounted there; else it was made, or its whole folder mounted."""
        return self.mount is not None and self.mount.point == self.path

    @property
    def nodev(self) -> bool:
        """Whether the mount keeps it from being opened."""
        return self.mount is not None and self.mount.nodev

    @property
    def gpu(self) -> int | None:
        """The minor of the GPU whose node it is, None for any other node. The minor is the GPU's, whatever the name."""
        name = self.path.removeprefix("/dev/nvidia")
        return self.entry.minor if decimal(name) is not None and self.entry.major in (NVIDIA_MAJOR, None) else None


class Devices(Citable, frozen=True):
    """The nodes and libraries of one workload. `missing` are paths that were looked for in vain, `unseen` why more may be there.

    `all_capabilities` is whether every node of a capability that it has was seen.
    """

    nodes: tuple[NodeInside, ...]
    missing: frozenset[str]
    mounts: Mounts | Absent | Unread
    unseen: Unread | None = None
    all_capabilities: bool = False

    @property
    def libraries(self) -> tuple[MountedLibrary, ...]:
        """The driver's libraries that were mounted one by one."""
        return self.mounts.libraries if isinstance(self.mounts, Mounts) else ()

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of those libraries."""
        return tuple(sorted({library.version for library in self.libraries if library.version}))

    @property
    def minors(self) -> tuple[int, ...]:
        """The minors of the GPUs whose nodes are there."""
        return tuple(sorted({node.gpu for node in self.nodes if node.gpu is not None}))

    @property
    def whole_dev(self) -> bool:
        """Whether its /dev is the host's own, every node in it: given to it by nobody's wish for a GPU."""
        dev = self.mounts.bound("/dev") if isinstance(self.mounts, Mounts) else None
        return dev is not None and dev.type == "devtmpfs"

    def node(self, path: str) -> NodeInside | None:
        """The node at a path, if it was seen."""
        return next((node for node in self.nodes if node.path == path), None)


class WorkloadDevices(Fact, frozen=True):
    """The devices of containers and jobs by key; of those that have no process there is nothing to see."""

    by_key: Mapping[str, Devices | Absent | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadDevices | Unread":
        """Those of every container and job that is looked into."""
        workloads = desk.get(Workloads)
        if isinstance(workloads, Unread):
            return workloads
        return cls(by_key=devices_of(desk, looked_into(workloads)))


def devices_of(desk: Desk, wanted: Iterable[Workload]) -> dict[str, Devices | Absent | Unread]:
    """What workloads have by key, as their leading processes see it: one look into each /dev, all in one child; one list of mounts each."""
    folders = {one.key: (one, f"/proc/{one.pid}/root/dev") for one in wanted}
    names = (*SHARED_NAMES, *(f"nvidia{minor}" for minor in _minors(desk)), _CAPABILITIES)
    seen = desk.raw.look_blocking(tuple(folder for _, folder in folders.values()), begin="nvidia", names=names)
    below = _below(desk.raw, seen)
    return {key: _devices(desk.raw, one, seen[folder], below) for key, (one, folder) in folders.items()}


def looked_into(workloads: Workloads) -> tuple[Workload, ...]:
    """Containers and jobs with a process; those stuck in the kernel last, so that they hold up nobody else."""
    found = [one for one in workloads if one.kind in LOOKED_INTO and one.leading is not None and not one.sandbox]
    return tuple(sorted(found, key=lambda one: one.leading is not None and one.leading.state == "D"))


def _minors(desk: Desk) -> Iterable[int]:
    driver = desk.get(DriverGpus)
    known = [] if isinstance(driver, Unread) else [gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu)]
    return sorted(gpu.minor for gpu in known if gpu.minor is not None)


def _below(raw: Raw, seen: Mapping[str, Contents | Absent | Unread]) -> dict[str, Contents | Absent | Unread]:
    """What lies in folders of nodes, where there are any."""
    found: dict[str, Contents | Absent | Unread] = {}
    for name in FOLDERS:
        there = [
            f"{path}/{name}"
            for path, contents in seen.items()
            if isinstance(contents, Contents)
            and name in contents.entries
            and contents.entries[name].type is EntryType.DIR
        ]
        found |= raw.look_blocking(tuple(there), begin="") if there else {}
    return found


def _devices(
    raw: Raw, one: Workload, seen: Contents | Absent | Unread, below: Mapping[str, Contents | Absent | Unread]
) -> Devices | Absent | Unread:
    if not isinstance(seen, Contents):
        return replace(seen, detail=f"{one.title}: {seen.detail}") if isinstance(seen, Unread) else seen
    root = f"/proc/{one.pid}/root"
    file = raw.read(f"/proc/{one.pid}/mountinfo")
    mounts = parse_mounts(file) if isinstance(file, TextFile) else file
    inner = [contents for path, contents in below.items() if path.startswith(f"{seen.path}/")]
    nodes = list(_nodes(raw, root, (seen, *(found for found in inner if isinstance(found, Contents))), mounts))
    listed = ", ".join(f"{node.path} {node.entry.major}:{node.entry.minor}" for node in nodes)
    unseen = next((found for found in inner if isinstance(found, Unread)), None)
    return Devices(
        nodes=tuple(nodes),
        missing=frozenset(f"/dev/{name}" for name in seen.missing - {_CAPABILITIES}),
        mounts=mounts,
        unseen=unseen or _unsure(seen, nodes),
        all_capabilities=_complete(seen, below.get(f"{seen.path}/{_CAPABILITIES}")),
        read_from={
            "nodes": Evidence(seen.where, f"holds {listed}" if nodes else "holds none of NVIDIA's nodes"),
            **(mounts.read_from if isinstance(mounts, Mounts) else {}),
        },
    )


def _complete(seen: Contents, capabilities: Contents | Absent | Unread | None) -> bool:
    if _CAPABILITIES in seen.entries:
        return isinstance(capabilities, Contents) and capabilities.complete
    return seen.complete or _CAPABILITIES in seen.missing


def _unsure(seen: Contents, nodes: Sequence[NodeInside]) -> Unread | None:
    """A recording by hand may list some of a folder: then there may be more."""
    if seen.complete or nodes or SHARED_NAMES[0] in seen.missing:
        return None
    return Unread(Why.NOT_RECORDED, seen.path, "the recording lists at least these, perhaps not all")


def _nodes(raw: Raw, root: str, folders: Iterable[Contents], mounts: Mounts | Absent | Unread) -> Iterable[NodeInside]:
    """The entries that are no folders, links followed inside."""
    for contents in folders:
        for name, entry in contents.entries.items():
            path = f"{contents.path}/{name}"
            target = raw.entry(path, follow=True) if entry.type is EntryType.LINK else entry
            inside = path.removeprefix(root)
            if isinstance(target, Entry) and target.type is not EntryType.DIR:
                yield NodeInside(inside, target, mounts.over(inside) if isinstance(mounts, Mounts) else None)


def is_job(one: Workload) -> bool:
    """Whether a scheduler of jobs started it."""
    return one.kind is GroupKind.JOB
