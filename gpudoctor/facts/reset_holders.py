"""Who stands in the way of a GPU's reset: looked for only where the driver asks for a recovery.

nvidia-smi refuses a reset while anybody uses the GPU (nvidia-smi(1), --gpu-reset), and persistence mode counts as somebody
(NVIDIA/NVSentinel#1692); nvidia_drm with a use count is a display or a program of it.
"""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.gpu_holders import GpuHolder, GpuHolders
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import TextFile, decimal
from gpudoctor.verdicts import Cited, Evidence, Unread

MODULES = "/proc/modules"
MOST_NAMED = 6


class ResetHolders(Fact, frozen=True):
    """The holders of all GPUs, and how often nvidia_drm is in use; empty where no recovery is asked for."""

    holders: Reading[GpuHolders] | None = None
    drm: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "ResetHolders":
        """Never unread itself: it only adds to what others know."""
        nvml = desk.get(Nvml)
        devices = () if isinstance(nvml, Unread) else nvml.devices
        if not any(device.recovery or device.fields.get("reset_required") is True for device in devices):
            return cls()
        return cls(holders=desk.get(GpuHolders), drm=_drm(desk))

    def of(self, minor: int | None) -> tuple[GpuHolder, ...]:
        """Who has the node of one GPU, as far as it is known."""
        if minor is None or self.holders is None or isinstance(self.holders, Unread):
            return ()
        return self.holders.of(minor)

    @property
    def unseen(self) -> str:
        """Why there may be others, "" where there are none."""
        if self.holders is None:
            return ""
        if isinstance(self.holders, Unread):
            return "it is not known who else holds it"
        hidden = self.holders.hidden + self.holders.unmapped
        return f"{hidden} processes do not show what they hold" if hidden else ""


def _drm(desk: Desk) -> Cited:
    """The third word of the module's line is its use count (proc(5), /proc/modules)."""
    modules = desk.raw.read(MODULES)
    lines = modules.text.splitlines() if isinstance(modules, TextFile) else ()
    counts = [line.split()[2] for line in lines if line.startswith("nvidia_drm ")]
    return tuple(Evidence(MODULES, f"nvidia_drm: use count {count}") for count in counts if decimal(count))
