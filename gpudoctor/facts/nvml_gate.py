"""The gate before NVML: it may be asked only when everything it would otherwise create or load is there.

As root, NVML and nvidia-smi load the module and make missing nodes by themselves, through nvidia-modprobe. And opening a node
whose major no driver has registered makes the kernel ask for a module (the alias char-major-195-* of nvidia.ko).
"""

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_files import NotGiven
from gpudoctor.facts.device_nodes import (
    CONTROL,
    CONTROL_MINOR,
    DRIVER_ROOT,
    NVIDIA_MAJOR,
    GpuNodes,
    describe,
    look,
    node_path,
)
from gpudoctor.facts.driver import VERSION, DriverGpu, DriverGpus
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Question, TextFile
from gpudoctor.verdicts import Unread, Why


def may_ask(desk: Desk) -> Question | Unread:
    """The question with the addresses of the GPUs that are awake, or why NVML must be left alone.

    `within` is the root that NVML has to see as its own: a driver container makes the nodes below /run/nvidia/driver, and NVML opens
    /dev/nvidiactl (NVIDIA's advice for a shell: chroot /run/nvidia/driver nvidia-smi; NVIDIA/gpu-operator#178).
    """
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread):
        return gpus
    # A GPU whose driver link cannot be read may well be held by nvidia: it is asked about like the others.
    not_given = _not_given(desk)
    given = [gpu for gpu in gpus if gpu.address not in not_given]
    held = [gpu for gpu in given if gpu.driver == "nvidia" or isinstance(gpu.driver, Unread)]
    missing = _missing(desk, held)
    if missing is not None:
        return Unread(Why.WITHHELD, "NVML", f"{missing}; asking NVML as root could load the module or make the node")
    awake = [gpu.address for gpu in held if not gpu.sleeps]
    within = DRIVER_ROOT if _path(look(desk.raw, CONTROL)).startswith(f"{DRIVER_ROOT}/") else ""
    return Question("nvml", {"addresses": awake, "attach": len(awake) == len(held), "within": within})


def _path(found: Entry | Absent | Unread) -> str:
    return "" if isinstance(found, Unread) else found.path


def _not_given(desk: Desk) -> frozenset[str]:
    """A container's NVML lists what the container was given."""
    found = desk.get(NotGiven)
    return frozenset() if isinstance(found, Unread) else found.addresses


def _missing(desk: Desk, held: list[PciGpu]) -> str | None:
    version = desk.raw.read(VERSION)
    if not isinstance(version, TextFile):
        return f"{VERSION} {_state(version)}"
    control = look(desk.raw, CONTROL)
    if not _is_node(control, CONTROL_MINOR):
        return f"{CONTROL} {_state(control)}"
    driver, nodes = desk.get(DriverGpus), desk.get(GpuNodes)
    if isinstance(driver, Unread):
        return f"{driver.where} could not be read ({driver.detail})"
    if isinstance(nodes, Unread):
        return f"{nodes.where} could not be read ({nodes.detail})"
    for gpu in held:
        known = driver.gpus[gpu.address]
        if not isinstance(known, DriverGpu) or known.minor is None:
            return f"the driver lists no minor for GPU {gpu.address}"
        node = nodes.by_address.get(gpu.address, Absent(node_path(known.minor)))
        if not _is_node(node, known.minor):
            return f"{node_path(known.minor)} {_state(node)}"
    return None


def _is_node(found: object, minor: int) -> bool:
    """The numbers count as well: a node of another driver would be opened, and of an unregistered major would load a module."""
    return (
        isinstance(found, Entry)
        and found.type is EntryType.CHAR
        and (found.major, found.minor) == (NVIDIA_MAJOR, minor)
    )


def _state(found: object) -> str:
    match found:
        case Absent():
            return "does not exist"
        case Unread(detail=detail):
            return f"could not be read ({detail})"
        case Entry():
            return f"is a {describe(found)}"
        case _:
            return "is not what it should be"
