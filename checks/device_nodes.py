"""Device nodes: can programs reach the driver?"""

from gpudoctor.chain import Link
from gpudoctor.facts.device_nodes import NVIDIA_MAJOR, GpuNodes, describe, node_path
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType
from gpudoctor.registry import check
from gpudoctor.verdicts import (
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
    Why,
)


@check(
    "device-nodes.gpu-node",
    link=Link.DEVICE_NODES,
    over=PciGpus,
    needs={Link.KERNEL_MODULE},
    title="Every GPU has its device node",
)
def gpu_node(gpus: PciGpus, driver: DriverGpus, nodes: GpuNodes) -> Verdicts:
    """Every program reaches a GPU through /dev/nvidiaN, a character device with major 195 and the GPU's minor number.

    The minor is what the driver says in /proc/driver/nvidia/gpus/ADDRESS/information; it need not be the NVML index, nor follow
    the order on the bus. The kernel makes no such node by itself: nvidia-modprobe, udev rules or nvidia-persistenced do, so a
    freshly booted node where nothing asked yet has none. The nodes are looked at, never opened. A node that exists in /dev can
    still be denied by a container's device cgroup: that is another link.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if (isinstance(gpu.driver, str) and gpu.driver != "nvidia") or gpu.driver is None:
            yield NotApplicable(
                gpu, f"held by {gpu.driver or 'no driver'}: the nvidia driver has no node for it", gpu.cite("driver")
            )
        elif isinstance(known, Unread):
            yield known.about(gpu)
        elif isinstance(known, Absent):
            yield Unknown(gpu, Why.NOT_ANSWERED, "the driver lists no minor number for this GPU", (known.evidence,))
        else:
            yield _judge(gpu, known, nodes.by_address.get(gpu.address))


def _judge(gpu: PciGpu, known: DriverGpu, entry: Entry | Absent | Unread | None) -> Verdict:
    assert known.minor is not None
    path = node_path(known.minor)
    minor = known.cite("minor")
    if isinstance(entry, Unread):
        return entry.about(gpu)
    if entry is None or isinstance(entry, Absent):
        return _fail(gpu, f"{path} is missing", (*minor, Evidence(path, "does not exist")), "missing", known.minor)
    seen = (Evidence(path, describe(entry)),)
    if entry.type is not EntryType.CHAR:
        return _fail(
            gpu, f"{path} is a {describe(entry)}, not a device node", minor + seen, "not-a-device", known.minor
        )
    if entry.major is None or entry.minor is None:
        return Unknown(gpu, Why.NOT_RECORDED, f"{path}: its device numbers were not recorded")
    if (entry.major, entry.minor) != (NVIDIA_MAJOR, known.minor):
        wrong = f"{path} is {entry.major}:{entry.minor}, expected {NVIDIA_MAJOR}:{known.minor}"
        return _fail(gpu, wrong, minor + seen, "wrong-numbers", known.minor)
    return Pass(gpu, f"{path} is {entry.major}:{entry.minor}", minor + seen)


def _fail(gpu: PciGpu, summary: str, evidence: Cited, cause: str, minor: int) -> Fail:
    path = node_path(minor)
    clear = () if cause == "missing" else (f"rm {path}",)
    make = Remedy(
        Action.CHANGE_CONFIG,
        "Make the node with the driver's own helper.",
        run=(*clear, f"nvidia-modprobe -c {minor}", f"stat -c '%F %t:%T %a' {path}"),
        confirm="gpudoctor run --check device-nodes.gpu-node",
    )
    keep = Remedy(
        Action.RESTART_SERVICE,
        "Have the nodes made at every boot, before containers start.",
        run=("systemctl enable --now nvidia-persistenced",),
        interrupts="nothing",
        confirm=f"ls -l {path} after the next boot",
    )
    return Fail(gpu, summary, evidence, (make, keep), Breaks.SUBJECT, cause=cause)
