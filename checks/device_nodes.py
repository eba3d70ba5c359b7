"""Device nodes: can programs reach the driver?"""

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.chain import Link
from gpudoctor.facts.device_files import UVM_TOOLS, NotGiven, OtherNodes
from gpudoctor.facts.device_nodes import (
    CONTROL,
    CONTROL_MINOR,
    NVIDIA_MAJOR,
    UVM,
    CommonNodes,
    GpuNodes,
    Majors,
    OverflowIds,
    describe,
    node_path,
)
from gpudoctor.facts.driver import DriverGpus, DriverParameters, NvidiaModule
from gpudoctor.facts.node_makers import NodeMakers
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType
from gpudoctor.knowledge.module_remedies import LOAD_ANEW, REBUILD_INITRAMFS
from gpudoctor.knowledge.node_remedies import make_node
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Action,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)


class _Fault(Struct, frozen=True):
    """A node that is missing or wrong: in words, with what was seen, why, and where it is or belongs."""

    summary: str
    evidence: Cited
    cause: str
    path: str


@check(
    "device-nodes.gpu-node",
    link=Link.DEVICE_NODES,
    over=PciGpus,
    needs={Link.KERNEL_MODULE},
    title="Every GPU has its device node",
)
def gpu_node(gpus: PciGpus, driver: DriverGpus, nodes: GpuNodes, makers: NodeMakers, not_given: NotGiven) -> Verdicts:
    """Every program reaches a GPU through /dev/nvidiaN, a character device with major 195 and the GPU's minor number.

    The minor is what the driver says in /proc/driver/nvidia/gpus/ADDRESS/information; it need not be the NVML index, nor follow
    the order on the bus. The kernel makes no such node by itself: nvidia-modprobe, udev rules or nvidia-persistenced do, so a
    freshly booted node where nothing asked yet has none. Where one is missing, it is said whether the helper nvidia-modprobe is there
    and setuid root, without which only root's programs get nodes, and whether a udev rule makes them by mknod, which fails at random
    while the module still registers (NVIDIA/open-gpu-kernel-modules#547). The nodes are looked at, never opened. A node that exists
    in /dev can still be denied by a container's device cgroup: that is another link.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if not isinstance(gpu.driver, Unread) and gpu.driver != "nvidia":
            yield NotApplicable(
                gpu, f"held by {gpu.driver or 'no driver'}: the nvidia driver has no node for it", gpu.cite("driver")
            )
        elif isinstance(known, Unread):
            yield known.about(gpu)
        elif gpu.address in not_given.addresses:
            evidence = (known.evidence,) if isinstance(known, Absent) else known.cite("minor")
            yield NotApplicable(gpu, "this container was not given it", evidence)
        elif isinstance(known, Absent) or known.minor is None:
            evidence = (known.evidence,) if isinstance(known, Absent) else known.cite("minor")
            yield Unknown(gpu, Why.NOT_ANSWERED, "the driver lists no minor number for this GPU", evidence)
        else:
            path, numbers = node_path(known.minor), (NVIDIA_MAJOR, known.minor)
            judged = _judge(gpu, nodes.by_address[gpu.address], path, numbers, known.cite("minor"))
            yield _wrong_gpu_node(gpu, known.minor, judged, makers) if isinstance(judged, _Fault) else judged


def _judge(
    subject: AboutSubject, found: Entry | Absent | Unread, path: str, numbers: tuple[int, int], evidence: Cited
) -> Verdict | _Fault:
    """Whether a node is a character device with these numbers."""
    if isinstance(found, Unread):
        return found.about(subject)
    if isinstance(found, Absent):
        return _Fault(f"{path} is missing", (*evidence, found.evidence), "missing", path)
    path = found.path
    seen = (*evidence, Evidence(path, describe(found)))
    if found.type is not EntryType.CHAR:
        return _Fault(f"{path} is a {describe(found)}, not a device node", seen, "not-a-device", path)
    if found.major is None or found.minor is None:
        return Unknown(subject, Why.NOT_RECORDED, f"{path}: its device numbers were not recorded")
    if (found.major, found.minor) != numbers:
        summary = f"{path} is {found.major}:{found.minor}, expected {numbers[0]}:{numbers[1]}"
        return _Fault(summary, seen, "wrong-numbers", path)
    return Pass(subject, f"{path} is {found.major}:{found.minor}", seen)


def _wrong_gpu_node(gpu: PciGpu, minor: int, fault: _Fault, makers: NodeMakers) -> Fail:
    confirm = "gpudoctor run --check device-nodes.gpu-node"
    clear = fault.cause != "missing"
    make = make_node(fault.path, f"-c {minor}", (NVIDIA_MAJOR, minor), makers, clear=clear, confirm=confirm)
    keep = Remedy(
        Action.RESTART_SERVICE,
        "Have the nodes made at every boot, before containers start.",
        run=("systemctl enable --now nvidia-persistenced",),
        confirm=f"ls -l {fault.path} after the next boot",
        then=True,
    )
    evidence = fault.evidence + _why(fault, makers)
    return Fail(gpu, fault.summary, evidence, (*make, keep), Breaks.SUBJECT, cause=fault.cause)


def _why(fault: _Fault, makers: NodeMakers) -> Cited:
    """What keeps a missing node from being made: the helper, if not everybody may use it, and rules that run mknod."""
    if fault.cause != "missing":
        return ()
    helper = makers.helper
    return (helper.cite("path") if helper and not helper.setuid_root else ()) + makers.mknod_rules + makers.failures


@check(
    "device-nodes.control-node",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    explained_by=("device-nodes.gpu-node",),
    title="/dev/nvidiactl is there",
)
def control_node(module: NvidiaModule, common: CommonNodes, makers: NodeMakers) -> Verdicts:
    """Every program opens /dev/nvidiactl before any GPU; without it NVML says that the driver is not loaded, CUDA that there is no GPU.

    It is a character device 195:255, made by nvidia-modprobe, udev rules or the driver's own tools. A udev rule that runs mknod while
    the module still registers leaves it out at random.
    """
    if not module.loaded:
        yield NotApplicable(NODE, "the nvidia module is not loaded", module.cite("loaded"))
        return
    numbers = (NVIDIA_MAJOR, CONTROL_MINOR)
    judged = _judge(NODE, common.control, CONTROL, numbers, ())
    if isinstance(judged, _Fault):
        yield _wrong_common_node(judged, f"-c {CONTROL_MINOR}", numbers, makers, Breaks.NODE)
    else:
        yield judged


def _wrong_common_node(
    fault: _Fault, options: str, numbers: tuple[int, int], makers: NodeMakers, breaks: Breaks
) -> Fail:
    confirm = f"gpudoctor run --check device-nodes.{'uvm' if options.startswith('-u') else 'control'}-node"
    make = make_node(fault.path, options, numbers, makers, clear=fault.cause != "missing", confirm=confirm)
    evidence, other = fault.evidence + _why(fault, makers), fault.cause != "missing"
    return Fail(NODE, fault.summary, evidence, make, breaks, cause=fault.cause, own_fault=other)


@check(
    "device-nodes.uvm-node",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    explained_by=("device-nodes.gpu-node", "device-nodes.control-node"),
    advisory=True,
    title="/dev/nvidia-uvm belongs to the loaded module",
)
def uvm_node(majors: Majors, common: CommonNodes, other: OtherNodes, makers: NodeMakers) -> Verdicts:
    """CUDA manages its memory through /dev/nvidia-uvm; with a wrong node nvidia-smi works and every CUDA program fails.

    Its major number is given anew each time nvidia-uvm is loaded, so a node that outlived a reload, or was copied into a container or
    image, can point to another driver. The module is loaded when the first CUDA program asks: where it is not loaded yet, as on a
    node that only displays, there is nothing to compare.
    """
    major = majors.by_name.get("nvidia-uvm")
    if major is None:
        yield NotApplicable(NODE, "nvidia-uvm is not loaded: the first CUDA program does that", majors.cite("all"))
        return
    judged = _judge(NODE, common.uvm, UVM, (major, 0), majors.cite("nvidia-uvm"))
    if isinstance(judged, _Fault):
        tools = tuple(node.evidence for node in other.nodes if node.path == UVM_TOOLS and node.fault)
        fault = replace(judged, evidence=judged.evidence + tools)
        yield _wrong_common_node(fault, "-u -c 0", (major, 0), makers, Breaks.NOTHING)
    else:
        yield judged


@check(
    "device-nodes.modes",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="The device nodes have the mode the driver was told",
)
def modes(parameters: DriverParameters, nodes: GpuNodes, common: CommonNodes, overflow: OverflowIds) -> Verdicts:
    """Whoever may not read and write a node cannot use the GPU: NVML says "Insufficient Permissions", but not to root.

    The driver's tools make nodes with the mode, user and group of the options NVreg_DeviceFileMode, -UID and -GID, and put them back
    when somebody changes them by hand. A restrictive mode is policy, not a fault, and so is any mode where ModifyDeviceFiles is 0: then
    those tools leave the nodes alone. One that not even its owner can use comes from an option written in decimal: 666 is octal 1232.
    In a user namespace that has no name for a node's owner, it shows the overflow uid 65534: that is not knowing.
    """
    mode, uid, gid = (parameters.number(f"DeviceFile{name}") for name in ("Mode", "UID", "GID"))
    found = [common.control, *nodes.by_address.values()]
    entries = [entry for entry in found if isinstance(entry, Entry) and entry.type is EntryType.CHAR]
    known = [entry for entry in entries if entry.mode is not None]
    if not entries:
        yield NotApplicable(NODE, "there is no device node to look at")
    elif mode is None or not known:
        yield Unknown(NODE, Why.NOT_RECORDED, "the modes of the nodes, or the driver's option for them, are not known")
    elif parameters.number("ModifyDeviceFiles") == 0:
        evidence = (
            parameters.evidence("ModifyDeviceFiles"),
            *(Evidence(entry.path, describe(entry)) for entry in known),
        )
        yield NotApplicable(NODE, "the driver's tools leave the nodes alone (ModifyDeviceFiles: 0)", evidence)
    elif mode & 0o600 != 0o600:
        summary = f"DeviceFileMode is {mode} in decimal, octal {mode:04o}: not even its owner can read and write a node"
        evidence = (parameters.evidence("DeviceFileMode"), Evidence(known[0].path, describe(known[0])))
        yield Fail(NODE, summary, evidence, (_OCTAL,), Breaks.NOTHING, cause="decimal-mode")
    else:
        mapped = [_without_overflow(entry, overflow) for entry in known]
        verdict = _modes(mapped, mode, (uid, gid), parameters)
        nameless = next((entry for entry, seen in zip(known, mapped, strict=True) if entry != seen), None)
        if nameless is not None and isinstance(verdict, Pass) and mode & 0o006 != 0o006:
            summary = f"{nameless.path} shows {nameless.uid}:{nameless.gid}, an owner that this user namespace has no name for"
            yield Unknown(NODE, Why.NO_PERMISSION, summary, verdict.evidence, would_need="the host's user namespace")
        else:
            yield verdict


def _without_overflow(entry: Entry, overflow: OverflowIds) -> Entry:
    """The node without an owner that only stands for an unknown one."""
    uid = None if entry.uid == overflow.uid else entry.uid
    gid = None if entry.gid == overflow.gid else entry.gid
    return replace(entry, uid=uid, gid=gid)


def _modes(
    entries: list[Entry], mode: int, owner: tuple[int | None, int | None], parameters: DriverParameters
) -> Verdict:
    other = [entry for entry in entries if entry.mode != mode or not _is_owner(entry, owner)]
    evidence = tuple(Evidence(entry.path, describe(entry)) for entry in other or entries)
    told = f"{mode:04o} {owner[0]}:{owner[1]}"
    if not other:
        return Pass(
            NODE,
            f"{len(entries)} nodes are {mode:04o} as the driver was told",
            (*evidence, parameters.evidence("DeviceFileMode")),
        )
    names = ", ".join(f"{entry.path} {entry.mode:04o} {_owner(entry)}" for entry in other[:4])
    summary = f"{len(other)} of {len(entries)} nodes are not {told} as the driver was told: {names}"
    return Warn(NODE, summary, (*evidence, parameters.evidence("DeviceFileMode")), (_BY_OPTION,), cause="other-mode")


def _owner(entry: Entry) -> str:
    return ":".join("?" if number is None else str(number) for number in (entry.uid, entry.gid))


def _is_owner(entry: Entry, owner: tuple[int | None, int | None]) -> bool:
    actual = (entry.uid, entry.gid)
    return all(told is None or seen is None or told == seen for told, seen in zip(owner, actual, strict=True))


_OCTAL = Remedy(
    Action.CHANGE_CONFIG,
    "Write the mode in octal, with a leading zero, and reload the driver.",
    run=(
        "grep -rn DeviceFileMode /etc/modprobe.d    # there: options nvidia NVreg_DeviceFileMode=0666",
        REBUILD_INITRAMFS,
        *LOAD_ANEW,
    ),
    interrupts="every process that uses a GPU of this node",
    confirm="gpudoctor run --check device-nodes.modes",
)
_BY_OPTION = Remedy(
    Action.CHANGE_CONFIG,
    "Set mode, user and group by the module's options, not by chmod: the driver's tools put them back.",
    run=("grep -rn DeviceFile /etc/modprobe.d /proc/driver/nvidia/params",),
    confirm="gpudoctor run --check device-nodes.modes",
)
