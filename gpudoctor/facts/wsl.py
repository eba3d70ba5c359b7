"""WSL2: the GPU is the Windows host's, reached through /dev/dxg with libraries that Windows' driver brings."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.installation import DPKG_INFO
from gpudoctor.facts.platform import PlatformGpu, PlatformKind
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

DXG = "/dev/dxg"
"""The node of dxgkrnl, the driver for the host's GPUs (pkg/nvcdi/device-wsl.go of nvidia-container-toolkit)."""

LIBRARIES = "/usr/lib/wsl/lib"
CUDA = f"{LIBRARIES}/libcuda.so.1"
NVML = f"{LIBRARIES}/libnvidia-ml.so.1"

LINUX_DRIVER = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
)
"""Where packages and NVIDIA's installer put a Linux driver's CUDA library: Debian's, and the others' library folders."""

_PACKAGE = pattern(r"(libnvidia-compute-\d+[\w-]*)(?::\w+)?\.list")


class WslDriver(Fact, frozen=True):
    """The node and the libraries by their paths, and what there is of a Linux driver; nothing is looked for on any other platform."""

    node: Entry | Absent | Unread
    libraries: Mapping[str, Entry | Absent | Unread]
    linux_driver: tuple[Evidence, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "WslDriver | Unread":
        """A few looks on WSL2, none elsewhere."""
        platform = desk.get(PlatformGpu)
        if isinstance(platform, Unread):
            return platform
        if platform.kind is not PlatformKind.WSL2:
            return cls(node=Absent(DXG), libraries={}, linux_driver=())
        raw = desk.raw
        libraries = tuple(found for path in LINUX_DRIVER if (found := _linux_library(raw, path)))
        return cls(
            node=raw.entry(DXG),
            libraries={path: raw.entry(path, follow=True) for path in (CUDA, NVML)},
            linux_driver=libraries + _packages(raw),
        )


def _linux_library(raw: Raw, path: str) -> Evidence | None:
    """A library at a Linux driver's place that is not a link to WSL's own."""
    entry = raw.entry(path)
    if not isinstance(entry, Entry) or entry.type not in (EntryType.FILE, EntryType.LINK):
        return None
    to = entry.to or ""
    return None if "/wsl/" in to else Evidence(path, f"-> {to}" if to else "exists")


def _packages(raw: Raw) -> tuple[Evidence, ...]:
    """Ubuntu's package of a Linux driver's CUDA library, by the list that dpkg keeps of its files."""
    listing = raw.listing(DPKG_INFO)
    names = [name for name in listing.names if _PACKAGE.fullmatch(name)] if isinstance(listing, Listing) else []
    return tuple(Evidence(f"{DPKG_INFO}/{name}", "exists") for name in names)
