"""The device nodes of the GPUs. Nodes are never opened, only looked at: opening one can make the kernel load a module."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.raw import Absent, Entry
from gpudoctor.verdicts import Unread

NVIDIA_MAJOR = 195
"""Fixed: NV_MAJOR_DEVICE_NUMBER in nv-chardev-numbers.h of open-gpu-kernel-modules."""

CONTROL = "/dev/nvidiactl"
CONTROL_MINOR = 255


def node_path(minor: int) -> str:
    """The device node of a GPU by its minor number, which need not be its NVML index."""
    return f"/dev/nvidia{minor}"


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
                address: desk.raw.entry(node_path(gpu.minor))
                for address, gpu in driver.gpus.items()
                if isinstance(gpu, DriverGpu) and gpu.minor is not None
            }
        )


def describe(entry: Entry) -> str:
    """What an entry is, the way `ls -l` and `stat` would say it."""
    numbers = f" {entry.major}:{entry.minor}" if entry.major is not None else ""
    mode = f", mode {entry.mode:04o}" if entry.mode is not None else ""
    return f"{entry.type.words}{numbers}{mode}"
