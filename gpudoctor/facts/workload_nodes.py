"""What is wrong with the driver's nodes in a workload's own /dev, whatever its cgroup says: missing, wrong and shut ones.

A node that is missing gives ENOENT; one on a nodev mount, or whose mode and owner shut the process out, gives EACCES before anybody asks
the cgroup (may_open_dev and inode_permission in fs/namei.c).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.device_nodes import CONTROL, NVIDIA_MAJOR, UVM, Majors, describe
from gpudoctor.facts.driver import DriverGpu, DriverGpus, hidden_gpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.mig import Mig
from gpudoctor.facts.process_status import ProcessStatus
from gpudoctor.facts.raw import EntryType
from gpudoctor.facts.workload_access import (
    by_importance,
    gpu_minors,
    hidden_gpu,
    is_selective,
    is_vital,
    root_of_workload,
)
from gpudoctor.facts.workload_devices import Devices, NodeInside
from gpudoctor.facts.workload_requests import asked_gpus, mig_names, named_minors
from gpudoctor.facts.workload_users import WorkloadUser, WorkloadUsers, is_restricted
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

MOST_NAMED = 4
CAPS, CAPS_NAME = "/dev/nvidia-caps/", "nvidia-caps"


class NodeTrouble(str, Enum):
    """What is wrong, in the order of importance."""

    NO_GPU = "no-gpu-node"
    NOT_THAT_GPU = "asked-gpu-missing"
    NO_CONTROL = "no-control-node"
    NO_INSTANCE = "asked-instance-missing"
    NOT_A_DEVICE = "not-a-device"
    NO_SUCH_GPU = "numbers-of-no-gpu"
    OLD_MAJOR = "numbers-of-another-load"
    NODEV = "on-nodev-mount"
    MODE = "mode-shuts-out"
    NO_UVM = "no-uvm-node"


class NodeFault(Struct, frozen=True):
    """One thing that is wrong with one node, in words that follow its path."""

    trouble: NodeTrouble
    path: str
    words: str
    evidence: Cited


class NodesInside(Struct, frozen=True):
    """The faults of one workload, the most important first; `unsure` is why there may be more."""

    faults: tuple[NodeFault, ...]
    unsure: Unread | None = None


class WorkloadNodes(Fact, frozen=True):
    """The members of GpuWorkloads whose /dev was seen, by key."""

    by_key: Mapping[str, NodesInside]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadNodes | Unread":
        """Out of what others read."""
        concerned, users = desk.get(GpuWorkloads), desk.get(WorkloadUsers)
        if isinstance(concerned, Unread):
            return concerned
        if isinstance(users, Unread):
            return users
        looker = _Looker(desk.get(DriverGpus), desk.get(Majors), desk.get(Mig))
        return cls(
            by_key={
                one.workload.key: looker.inside(one, one.devices, users.by_key.get(one.workload.key))
                for one in concerned
                if isinstance(one.devices, Devices)
            }
        )


class _Looker:
    """Judges the nodes of workloads by what the node's driver says."""

    def __init__(self, driver: DriverGpus | Unread, majors: Majors | Unread, mig: Mig | Unread) -> None:
        self._driver = driver
        self._majors = majors
        self._mig = mig
        self._some_minors, complete = gpu_minors(driver)
        self._minors = self._some_minors if complete else None

    def inside(self, one: GpuWorkload, devices: Devices, user: WorkloadUser | None) -> NodesInside:
        """All about one workload."""
        if isinstance(has_gpu := one.has_gpu, Unread):
            return NodesInside((), has_gpu)
        if not devices.minors and (hidden := hidden_gpu(devices, self._some_minors)) is not None:
            return NodesInside((), hidden)
        faults = [*self._missing(one, devices), *self._instances(one, devices)]
        faults += [*self._wrong(devices), *_closed(devices, user)]
        order = list(NodeTrouble)
        unsure = (_unsure_of(devices, user) or self._of_hidden_gpu(devices)) if has_gpu else None
        return NodesInside(tuple(sorted(faults, key=lambda fault: order.index(fault.trouble))), unsure)

    def _missing(self, one: GpuWorkload, devices: Devices) -> Iterator[NodeFault]:
        if not devices.minors:
            lacks = f"there is no node of a GPU{self._asked_for(one)}"
            words = lacks + ("" if devices.node(CONTROL) else f", nor {CONTROL}")
            yield NodeFault(NodeTrouble.NO_GPU, "/dev/nvidia*", words, devices.cite("nodes"))
            return
        if isinstance(self._driver, DriverGpus) and not is_selective(one, devices):
            yield from _other_gpus(devices, named_minors(one, self._driver))
        for path, trouble in ((CONTROL, NodeTrouble.NO_CONTROL), (UVM, NodeTrouble.NO_UVM)):
            if devices.node(path) is None and path in devices.missing:
                absent = Evidence(f"{root_of_workload(devices)}{path}", "does not exist")
                yield NodeFault(trouble, path, f"{path} is missing{self._not_loaded(path)}", (absent,))

    def _instances(self, one: GpuWorkload, devices: Devices) -> Iterator[NodeFault]:
        """A MIG device that was asked for is used through the nodes of both its instances (nv-caps.c)."""
        if isinstance(self._mig, Unread) or not devices.all_capabilities or is_selective(one, devices):
            return
        inside = {node.entry.minor for node in devices.nodes if node.path.startswith(CAPS)}
        for name in mig_names(one):
            for minor in self._mig.minors_of(name):
                if minor not in inside and devices.minors:
                    path = f"{CAPS}nvidia-cap{minor}"
                    words = f"{path}, a node of {name}, is missing"
                    yield NodeFault(NodeTrouble.NO_INSTANCE, path, words, devices.cite("nodes"))

    def _asked_for(self, one: GpuWorkload) -> str:
        """The nodes of the GPUs that were asked for, in parentheses."""
        gpus = self._driver.gpus if isinstance(self._driver, DriverGpus) else {}
        asked = asked_gpus(one, self._driver) if isinstance(self._driver, DriverGpus) else ()
        found = [gpu.minor for address in asked if isinstance(gpu := gpus[address], DriverGpu)]
        paths = [f"/dev/nvidia{minor}" for minor in found if minor is not None]
        more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
        return f" ({', '.join(paths[:MOST_NAMED])}{more})" if paths else ""

    def _not_loaded(self, path: str) -> str:
        loaded = isinstance(self._majors, Unread) or "nvidia-uvm" in self._majors.by_name
        return "" if path != UVM or loaded else ": the module nvidia-uvm is not loaded on the node"

    def _wrong(self, devices: Devices) -> Iterator[NodeFault]:
        """Nodes that are none, or whose numbers are nobody's."""
        for node in (node for node in sorted(devices.nodes, key=by_importance) if is_vital(node)):
            seen = (Evidence(node.entry.where, describe(node.entry)),)
            numbers = f"{node.entry.major}:{node.entry.minor}"
            if node.entry.type is not EntryType.CHAR:
                words = f"{node.path} is a {node.entry.type.words}, not a device node"
                yield NodeFault(NodeTrouble.NOT_A_DEVICE, node.path, words, seen)
            elif node.entry.major is None:
                continue
            elif self._of_no_gpu(node):
                words = f"{node.path} is {numbers}, the numbers of no GPU of this node"
                yield NodeFault(NodeTrouble.NO_SUCH_GPU, node.path, words, seen)
            elif (major := self._registered(node)) is not None and major[0] != node.entry.major:
                words = f"{node.path} is {numbers}, and the loaded module has {major[0]}"
                yield NodeFault(NodeTrouble.OLD_MAJOR, node.path, words, (*seen, major[1]))

    def _of_no_gpu(self, node: NodeInside) -> bool:
        if not node.path.removeprefix("/dev/nvidia").isdecimal():
            return False
        other = node.entry.major != NVIDIA_MAJOR
        return other or (self._minors is not None and node.entry.minor not in self._minors)

    def _of_hidden_gpu(self, devices: Devices) -> Unread | None:
        """Why it is not known whether a node is that of a GPU: it would be one of those that are hidden."""
        if all(minor in self._some_minors for minor in devices.minors):
            return None
        return hidden_gpus(self._driver)

    def _registered(self, node: NodeInside) -> tuple[int, Evidence] | None:
        """The major that /proc/devices has for a node of a module that is given a new one at each load."""
        name = "nvidia-uvm" if node.path == UVM else CAPS_NAME if node.path.startswith(CAPS) else ""
        if isinstance(self._majors, Unread) or name not in self._majors.by_name:
            return None
        return self._majors.by_name[name], self._majors.cite(name)[0]


def _other_gpus(devices: Devices, named: Mapping[int, str]) -> Iterator[NodeFault]:
    """GPUs that were named and whose nodes are not there."""
    for minor, name in named.items():
        if minor in devices.minors:
            continue
        path = f"/dev/nvidia{minor}"
        node, of = devices.node(path), "" if name.startswith("/dev/") else f", the node of {name},"
        if node is not None:
            seen = Evidence(node.entry.where, describe(node.entry))
            words = f"{path}{of} is {node.entry.major}:{node.entry.minor}"
        elif path in devices.missing:
            words, seen = f"{path}{of} is missing", Evidence(f"{root_of_workload(devices)}{path}", "does not exist")
        else:
            continue
        yield NodeFault(NodeTrouble.NOT_THAT_GPU, path, words, (seen,))


def _closed(devices: Devices, user: WorkloadUser | None) -> Iterator[NodeFault]:
    """Nodes that a mount or their mode keeps shut."""
    vital = [node for node in devices.nodes if is_vital(node) and node.entry.type is EntryType.CHAR]
    for node in sorted(vital, key=by_importance):
        seen = Evidence(node.entry.where, describe(node.entry))
        if node.nodev and node.mount is not None:
            mount = Evidence(devices.read_from["mounts"].where, node.mount.line)
            yield NodeFault(NodeTrouble.NODEV, node.path, f"{node.path} lies on a mount with nodev", (seen, mount))
        elif user is not None and _checked(node) and user.may_open(node) is False:
            status = user.status
            assert isinstance(status, ProcessStatus)
            owner = f"mode {node.entry.mode or 0:04o}, owner {node.entry.uid}:{node.entry.gid}"
            words = f"its user {status.uid}:{status.gid} may not read and write {node.path} ({owner})"
            yield NodeFault(NodeTrouble.MODE, node.path, words, (seen, *status.cite("owner")))


def _checked(node: NodeInside) -> bool:
    """Capabilities are only read, and their modes are the driver's own."""
    return is_restricted(node) and not node.path.startswith(CAPS)


def _unsure_of(devices: Devices, user: WorkloadUser | None) -> Unread | None:
    """Why a fault may have been overlooked."""
    if devices.node(CONTROL) is None and CONTROL not in devices.missing:
        return Unread(Why.NOT_RECORDED, f"{root_of_workload(devices)}{CONTROL}", "was not recorded")
    if isinstance(devices.mounts, Unread):
        return devices.mounts
    closed: Sequence[NodeInside] = [node for node in devices.nodes if is_vital(node) and _checked(node)]
    if user is not None and any(user.may_open(node) is None for node in closed):
        if isinstance(user.status, Unread):
            return user.status
        return Unread(Why.NOT_ANSWERED, closed[0].entry.where, "whether its user may open it cannot be told")
    return devices.unseen
