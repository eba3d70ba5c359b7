"""Platforms whose GPU is not an NVIDIA function on PCI: WSL2 and Tegra."""

from enum import Enum

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Entry, TextFile
from gpudoctor.verdicts import Evidence, Unread

OSRELEASE = "/proc/sys/kernel/osrelease"
DEVICE_TREE = "/proc/device-tree/compatible"
TEGRA_RELEASE = "/etc/nv_tegra_release"


class PlatformKind(str, Enum):
    """Where the GPU is."""

    PCI = "PCI"
    WSL2 = "WSL2"
    TEGRA = "Tegra"


class Platform(Fact, frozen=True):
    """What kind of node this is, as far as it changes where a GPU must be looked for."""

    kind: PlatformKind

    @classmethod
    def gather(cls, desk: Desk) -> "Platform | Unread":
        """WSL2 by its kernel's name (`…-microsoft-standard-WSL2`), Tegra by its kernel's (`…-tegra`) or its device tree."""
        release = desk.raw.read(OSRELEASE)
        if isinstance(release, Unread):
            return release
        kernel = release.text.strip() if isinstance(release, TextFile) else ""
        if "microsoft" in kernel.lower():
            return cls(kind=PlatformKind.WSL2, read_from={"kind": Evidence(release.where, kernel)})
        if kernel.endswith("-tegra"):
            return cls(kind=PlatformKind.TEGRA, read_from={"kind": Evidence(release.where, kernel)})
        tree = desk.raw.read(DEVICE_TREE)
        if isinstance(tree, TextFile) and "nvidia,tegra" in tree.text:
            return cls(
                kind=PlatformKind.TEGRA, read_from={"kind": Evidence(DEVICE_TREE, tree.text.replace("\0", " ").strip())}
            )
        if isinstance(desk.raw.entry(TEGRA_RELEASE), Entry):
            return cls(kind=PlatformKind.TEGRA, read_from={"kind": Evidence(TEGRA_RELEASE, "exists")})
        return cls(kind=PlatformKind.PCI, read_from={"kind": Evidence(release.where, "an ordinary kernel")})


class PlatformGpu(Fact, frozen=True):
    """Whether the GPU is to be looked for by a platform's own rules. `kind` is None where it is not, and `reason` says why."""

    kind: PlatformKind | None
    reason: str

    @classmethod
    def gather(cls, desk: Desk) -> "PlatformGpu | Unread":
        """A GPU on PCI settles it: Jetson Thor has one, and a Tegra board can have a card in a slot."""
        gpus = desk.get(PciGpus)
        if not isinstance(gpus, Unread) and gpus.gpus:
            return cls(kind=None, reason="the GPUs are functions on PCI", read_from={"kind": gpus.read_from["listing"]})
        if desk.config.expect.gpus == 0:
            expected = Evidence("configuration", "expect.gpus = 0")
            return cls(kind=None, reason="no GPU is expected here", read_from={"kind": expected})
        platform = desk.get(Platform)
        if isinstance(platform, Unread):
            return platform
        kind = None if platform.kind is PlatformKind.PCI else platform.kind
        return cls(
            kind=kind,
            reason="a node whose GPUs are on PCI" if kind is None else kind.value,
            read_from=platform.read_from,
        )
