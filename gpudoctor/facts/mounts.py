"""The mounts of a process: which of the driver's nodes and libraries were mounted, and how.

Sources: proc_pid_mountinfo(5) (`id parent major:minor root point options fields - type source super`, blanks as \\040); mount(8) (nodev);
NVIDIA/nvidia-container-toolkit v1.20.0 internal/config/image/cuda_image.go (/var/run/nvidia-container-devices).
"""

from msgspec import Struct

from gpudoctor.facts.desk import Citable
from gpudoctor.facts.raw import TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence

PLUGIN_DEVICES = ("/var/run/nvidia-container-devices/", "/run/nvidia-container-devices/")
"""The toolkit takes the names of mounts below it for the GPUs asked for; /var/run is a link to /run in most images."""
MPS = ("/mps", "/run/nvidia/mps", "/run/nvidia-mps", "/tmp/nvidia-mps")  # noqa: S108 - a mount point that is looked for
"""Where the pipes of MPS are mounted: k8s-device-plugin cmd/mps-control-daemon, and the default of nvidia-cuda-mps-control."""

# The libraries of the driver are named after its version: libcuda.so.550.163.01, libnvidia-ml.so.550.54.14.
_LIBRARY = pattern(
    r"(lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[\w-]+|EGL_nvidia|GLX_nvidia|GLESv\d_\w*nvidia|vdpau_nvidia))\.so"
    r"(?:\.(\d{3}\.\d{1,3}(?:\.\d{1,3})?))?(?:\.\d{1,2})?"
)
_DRIVER = pattern(r"nvidia|libcuda|libnvcuvid|libnvoptix")
"""Whatever of the driver's is mounted has one of these in its path."""
_OCTAL = pattern(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One mount: what of its file system (`root`) lies at which `point`, with which options."""

    root: str
    point: str
    options: tuple[str, ...]
    type: str
    source: str
    line: str

    @property
    def nodev(self) -> bool:
        """Whether device nodes on it cannot be opened: EACCES (mount(8))."""
        return "nodev" in self.options


class MountedLibrary(Struct, frozen=True):
    """A library of the driver: its name without version, the version its file is named after ("" without one), and where it is seen."""

    name: str
    version: str
    path: str


class Mounts(Citable, frozen=True):
    """The mounts of one process that have to do with GPUs, and those at / and /dev."""

    path: str
    mounts: tuple[Mount, ...]

    @property
    def libraries(self) -> tuple[MountedLibrary, ...]:
        """The driver's libraries that were mounted one by one."""
        found = (is_library(mount.point, mount.root) for mount in self.mounts)
        return tuple(library for library in found if library is not None)

    @property
    def plugin_devices(self) -> tuple[str, ...]:
        """The GPUs named by mounts."""
        return tuple(name for mount in self.mounts if (name := plugin_device(mount.point)))

    @property
    def folders(self) -> tuple[Mount, ...]:
        """Whole folders of the driver's, as GKE's device plugin mounts them (/usr/local/nvidia), and those of MPS."""
        return tuple(
            mount
            for mount in self.mounts
            if mount.point in MPS or (mount.point.startswith("/usr/local/nvidia") and "." not in mount.point)
        )

    def over(self, path: str) -> Mount | None:
        """The mount that a path lies on: the longest mount point above it, of equal ones the last."""
        best: Mount | None = None
        for mount in self.mounts:
            above = mount.point == path or path.startswith(mount.point.rstrip("/") + "/")
            if above and (best is None or len(mount.point) >= len(best.point)):
                best = mount
        return best

    def bound(self, path: str) -> Mount | None:
        """The mount of just this path, if it is one: a node that was bound, not made."""
        return next((mount for mount in reversed(self.mounts) if mount.point == path), None)


def parse_mounts(file: TextFile) -> Mounts:
    """The lines that matter, in their order."""
    mounts = tuple(mount for line in file.text.split("\n") if (mount := _mount(line)) is not None)
    said = f"{len(mounts)} mounts at /, in /dev or of the driver"
    return Mounts(path=file.path, mounts=mounts, read_from={"mounts": Evidence(file.where, said)})


def _mount(line: str) -> Mount | None:
    """A line that matters; most do not, and are not taken apart."""
    words = line.split(" ", 6)
    if len(words) < 7 or not _matters(words[3], words[4]):
        return None
    behind = line.partition(" - ")[2].split(" ")
    if len(behind) < 2:
        return None
    root, point = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), word) for word in words[3:5])
    return Mount(root, point, tuple(words[5].split(",")), behind[0], behind[1], line)


def _matters(root: str, point: str) -> bool:
    return (
        point.startswith("/dev")
        or point == "/"
        or point in MPS
        or _DRIVER.search(point) is not None
        or (root != "/" and _DRIVER.search(root) is not None)
    )


def of_driver(path: str) -> bool:
    """Whether a path may be of the driver's: most are not, and need no closer look."""
    return _DRIVER.search(path) is not None


def is_library(*paths: str) -> MountedLibrary | None:
    """The driver's library that a mount puts somewhere: the first path is where it is seen, any may tell its version."""
    names = [found for path in paths if (found := _LIBRARY.fullmatch(path.rpartition("/")[2])) is not None]
    if not names:
        return None
    version = next((found[2] for found in names if found[2]), "")
    return MountedLibrary(names[0][1], version, paths[0])


def plugin_device(point: str) -> str:
    """The GPU that a mount below /var/run/nvidia-container-devices asks for, "" for any other mount; one of CDI by its full name."""
    name = next((point.removeprefix(start) for start in PLUGIN_DEVICES if point.startswith(start)), "")
    parts = name.split("/")
    return f"{parts[1]}/{parts[2]}={parts[3]}" if len(parts) == 4 and parts[0] == "cdi" else name
