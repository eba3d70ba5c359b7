"""Whether the device nodes are in the mount namespace of a workload, with the right numbers, and can be opened as far as files go.

open(2) asks for the node first (ENOENT), then for its mode and the mount's nodev (EACCES); the device rules come after both (EPERM).

Sources: /dev/nvidiactl, /dev/nvidia-uvm and the GPU's own node are what CUDA opens (NVIDIA/nvidia-container-toolkit v1.20.0, required nodes
of `compute`); open-gpu-kernel-modules nv-chardev-numbers.h (195, 255); mount(8) (nodev); path_resolution(7).
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.facts.device_nodes import CONTROL, CONTROL_MINOR, NVIDIA_MAJOR, UVM, Majors, describe, node_path
from gpudoctor.facts.mounts import Mounts
from gpudoctor.facts.process_status import ProcessStatus
from gpudoctor.facts.raw import Absent, EntryType, decimal
from gpudoctor.facts.workload_devices import Devices, NodeInside
from gpudoctor.facts.workload_requests import by_nodes_only
from gpudoctor.trace import Step, StepId, failed, passed, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.asked import Asking
from gpudoctor.tracing.capabilities import wants_compute
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Remedy, Unread, Why

CAPS = "/dev/nvidia-caps/"
MOST_NAMES = 6
OPEN_TO_ALL = 0o666
"""What the driver gives its nodes unless it is told otherwise (nv-reg.h, NVreg_DeviceFileMode)."""


class Fault(Struct, frozen=True):
    """What is wrong with one node."""

    words: str
    evidence: Cited
    remedies: tuple[Remedy, ...]


class Needed(Struct, frozen=True):
    """A node that a workload needs, and its numbers; None where they are not known."""

    path: str
    major: int | None
    minor: int | None


def needed(sight: Sight, asking: Asking) -> tuple[Needed, ...]:
    """The control node, the nodes of the GPUs asked for and of those given, and nvidia-uvm for CUDA."""
    inside = [one for one in sight.devices.nodes if _is_gpu(one)] if isinstance(sight.devices, Devices) else []
    given = [one for one in inside if not sight.given or one.gpu is None or one.gpu in sight.given]
    gpus = dict.fromkeys((*(node_path(minor) for minor in asking.minors), *(one.path for one in given)))
    uvm = sight.majors.by_name.get("nvidia-uvm") if isinstance(sight.majors, Majors) else None
    found = [Needed(CONTROL, NVIDIA_MAJOR, CONTROL_MINOR)]
    found += [
        Needed(path, NVIDIA_MAJOR, decimal(path.removeprefix("/dev/nvidia"))) for path in sorted(gpus, key=_by_number)
    ]
    if wants_compute(sight):
        found.append(Needed(UVM, uvm, 0))
    return tuple(found)


def _is_gpu(node: NodeInside) -> bool:
    return decimal(node.path.removeprefix("/dev/nvidia")) is not None


def _by_number(path: str) -> tuple[int, str]:
    return decimal(path.removeprefix("/dev/nvidia")) or 0, path


def judge_nodes(sight: Sight, asking: Asking) -> Step:
    """Each needed node; then whether there is a GPU's at all."""
    devices = sight.devices
    if isinstance(devices, Unread):
        return unknown(StepId.NODES, devices)
    if isinstance(devices, Absent):
        return unknown(StepId.NODES, Unread(Why.UNREADABLE, devices.where, "is not there: the process is gone"))
    wanted = needed(sight, asking)
    faults = [fault for need in wanted if (fault := _fault(need, sight, devices)) is not None]
    if not devices.minors and not asking.minors:
        faults = _without_gpu(sight, devices, faults)
    if asking.mig and devices.nodes and not any(node.path.startswith(CAPS) for node in devices.nodes):
        faults += _without_caps(sight, devices)
    known = [fault for fault in faults if isinstance(fault, Fault)]
    if known and by_nodes_only(sight.concerned) and all(fault.evidence[0].where.endswith(UVM) for fault in known):
        said = f"{known[0].words}: CUDA cannot start in it, only NVML can"
        return warned(StepId.NODES, said, known[0].evidence, *known[0].remedies)
    if known:
        return _failed(sight, known, nothing=not devices.nodes)
    unseen = next((fault for fault in faults if isinstance(fault, Unread)), None) or _unsure(sight, devices, wanted)
    return _well(sight, devices, wanted) if unseen is None else unknown(StepId.NODES, unseen)


def _unsure(sight: Sight, devices: Devices, wanted: Iterable[Needed]) -> Unread | None:
    """Why a fault may have been overlooked: nodev is told by the mounts, a restricted mode says nothing without an owner."""
    if not isinstance(devices.mounts, Mounts):
        unread = Unread(Why.UNREADABLE, devices.mounts.where, devices.mounts.detail)
        return devices.mounts if isinstance(devices.mounts, Unread) else unread
    for need in wanted:
        node = devices.node(need.path)
        if node is None or node.entry.mode is None or node.entry.mode & OPEN_TO_ALL == OPEN_TO_ALL:
            continue
        if isinstance(sight.status, Unread):
            return sight.status
        own = sight.shared.get("user")
        if (
            not isinstance(sight.status, ProcessStatus)
            or sight.status.may_open(node.entry, in_first_namespace=own) is None
        ):
            return Unread(Why.NOT_ANSWERED, node.entry.where, "whether its user may open it cannot be told")
    return None


def _fault(need: Needed, sight: Sight, devices: Devices) -> Fault | Unread | None:
    """What is wrong with one node, why that is not known, or nothing."""
    node = devices.node(need.path)
    if node is None:
        return _missing(need.path, sight, devices)
    entry = node.entry
    seen = Evidence(entry.where, describe(entry))
    if entry.type is not EntryType.CHAR:
        return Fault(f"{need.path} is a {entry.type.words}, no device", (seen,), remedies.inject(sight.workload))
    if entry.major is None:
        return Unread(Why.NOT_RECORDED, entry.where, "its device numbers were not recorded")
    if _has_other_numbers(need, node):
        again = (remedies.start_again(sight.workload),)
        return Fault(_wrong_numbers(need, node), (seen, *_majors(need, sight)), again)
    if node.nodev and node.mount is not None:
        line = Evidence(f"/proc/{sight.pid}/mountinfo", node.mount.line)
        words = f"{need.path} lies on a mount with nodev, so that it cannot be opened (EACCES)"
        return Fault(words, (line,), remedies.unmounted(sight.workload))
    return _mode(need.path, node, sight)


def misplaced(sight: Sight, asking: Asking) -> frozenset[str]:
    """The needed nodes that are not inside, or have numbers of something else."""
    devices = sight.devices
    if not isinstance(devices, Devices):
        return frozenset()
    pairs = ((need, devices.node(need.path)) for need in needed(sight, asking))
    return frozenset(need.path for need, node in pairs if node is None or _has_other_numbers(need, node))


def _has_other_numbers(need: Needed, node: NodeInside) -> bool:
    major, minor = node.entry.major, node.entry.minor
    return major is not None and (major, minor) != _right(need, node)


def _right(need: Needed, node: NodeInside) -> tuple[int | None, int | None]:
    """The numbers a node should have; those it has where none are known."""
    minor = node.entry.minor if need.minor is None else need.minor
    return node.entry.major if need.major is None else need.major, minor


def _missing(path: str, sight: Sight, devices: Devices) -> Fault | Unread:
    where = f"/proc/{sight.pid}/root{path}"
    if path in devices.missing or (not devices.nodes and CONTROL in devices.missing):
        absent = Evidence(where, "does not exist")
        return Fault(f"{path} is not inside", (absent,), remedies.inject(sight.workload))
    return devices.unseen or Unread(Why.NOT_RECORDED, where, "whether it is there was not recorded")


def _wrong_numbers(need: Needed, node: NodeInside) -> str:
    right = _right(need, node)
    words = f"{need.path} is {node.entry.major}:{node.entry.minor}, not {right[0]}:{right[1]}"
    return f"{words}: the module was loaded anew since it was made" if need.path == UVM else words


def _majors(need: Needed, sight: Sight) -> Cited:
    majors = sight.majors
    return majors.cite("nvidia-uvm") if need.path == UVM and isinstance(majors, Majors) else ()


def _mode(path: str, node: NodeInside, sight: Sight) -> Fault | Unread | None:
    """Whether its mode and owner let the process read and write it; where either is not known, nothing is said of them."""
    status, entry = sight.status, node.entry
    if not isinstance(status, ProcessStatus):
        return None
    may = status.may_open(entry, in_first_namespace=sight.shared.get("user"))
    if may is not False:
        return None
    seen = Evidence(entry.where, f"{describe(entry)}, owner {entry.uid}:{entry.gid}")
    words = (
        f"{path} has the mode {entry.mode:04o} of {entry.uid}:{entry.gid}, which keeps uid {status.uid} out (EACCES)"
    )
    return Fault(words, (seen, *status.cite("owner")), remedies.owner(sight.workload))


def _without_gpu(sight: Sight, devices: Devices, faults: Iterable[Fault | Unread]) -> list[Fault | Unread]:
    """Nobody named a GPU, and none is inside."""
    if devices.unseen is not None:
        return [*faults, devices.unseen]
    if not devices.nodes:
        return list(faults)
    seen = devices.read_from["nodes"]
    return [*faults, Fault("no GPU's node is inside", (seen,), remedies.inject(sight.workload))]


def _without_caps(sight: Sight, devices: Devices) -> Iterator[Fault | Unread]:
    """A MIG device is used through the capability nodes of both its instances (nv-caps.c of open-gpu-kernel-modules)."""
    if devices.unseen is not None:
        yield devices.unseen
        return
    words = f"a MIG device was asked for, but no {CAPS}nvidia-cap* of its instances is inside"
    yield Fault(words, devices.cite("nodes"), remedies.inject(sight.workload))


def _failed(sight: Sight, faults: list[Fault], *, nothing: bool) -> Step:
    more = f" (and {len(faults) - 1} more like it)" if len(faults) > 1 else ""
    words = "none of NVIDIA's device nodes is inside" if nothing else f"{faults[0].words}{more}"
    evidence = tuple(seen for fault in faults[:3] for seen in fault.evidence)
    return failed(StepId.NODES, words, evidence, *faults[0].remedies)


def _well(sight: Sight, devices: Devices, wanted: tuple[Needed, ...]) -> Step:
    there = [node for need in wanted if (node := devices.node(need.path)) is not None]
    evidence = tuple(Evidence(node.entry.where, describe(node.entry)) for node in there)
    names = ", ".join(node.path.rpartition("/")[2] for node in there[:MOST_NAMES])
    more = f" and {len(there) - MOST_NAMES} more" if len(there) > MOST_NAMES else ""
    return passed(StepId.NODES, f"{names}{more} are inside, with their numbers{_open_to(sight, there)}", evidence)


def _open_to(sight: Sight, there: Iterable[NodeInside]) -> str:
    """For whom their modes were found to be wide enough."""
    status, own = sight.status, sight.shared.get("user")
    if not isinstance(status, ProcessStatus):
        return ""
    wide = all(status.may_open(node.entry, in_first_namespace=own) is True for node in there)
    return f", and open to uid {status.uid}" if wide and status.uid is not None else ""
