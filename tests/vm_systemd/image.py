"""The disk that the guest's root file system lies on, and the first file system, which brings along what changes between runs."""

import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.facts.device_access import Access, DeviceKind
from tests.cgroup_stage import PROBE
from tests.device_shapes import ALL, RW, Rule, runc
from tests.vm.cache import Cache, digest_of_files
from tests.vm.guest_image import installed_gpudoctor
from tests.vm.kernel import Kernel, built_modules
from tests.vm.newc import ArchiveWriter

from .trials import TAKES_LATER, TRIALS

HERE = Path(__file__).parent
GUEST = HERE / "guest"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "runc", "crun", "podman", "python3", "busybox-static")
PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
"""The releases of Debian that can be booted, and the version of their Python."""
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
SPARE_BYTES = 200 << 20
KERNEL_MODULES = ("virtio_pci.ko", "virtio_blk.ko", "overlay.ko")
"""What the kernel needs to see the disk, and podman to start; one that has them built in lists no such files."""
PROGRAMS = {"mmdebstrap": "mmdebstrap", "genext2fs": "genext2fs", "resize2fs": "e2fsprogs"}

_MKNOD = Access.MKNOD
RULES_OF_HOOK = (
    *(Rule(True, kind, None, None, _MKNOD) for kind in DeviceKind),
    *(Rule(True, DeviceKind.CHAR, 1, minor, ALL) for minor in (3, 5, 7, 8, 9)),
    *(Rule(True, DeviceKind.CHAR, 5, minor, ALL) for minor in (0, 2)),
    Rule(True, DeviceKind.CHAR, 136, None, ALL),
    *(Rule(True, DeviceKind.CHAR, 195, minor, RW) for minor in (0, 255)),
)
"""What runtimes allow every container (defaultDevices in the OCI runtime specification, config-linux.md), and the driver's nodes."""


@dataclass(frozen=True, slots=True)
class Image:
    """What QEMU is given; nothing is written to the disk."""

    disk: Path
    archive: Path


def missing_programs() -> tuple[str, ...]:
    """What this machine lacks beyond what tests/vm needs."""
    return tuple(f"{name} (package {package})" for name, package in PROGRAMS.items() if shutil.which(name) is None)


def image(kernel: Kernel, cache: Cache, suite: str) -> Image:
    """Build, or find in the cache, all that a guest with a release of Debian is booted from."""
    packages = (suite, *PACKAGES, *LEFT_OUT, str(SPARE_BYTES))
    disk = cache.file(f"{suite}-disk", packages, lambda at: _write_disk(suite, at))
    site = installed_gpudoctor(cache)
    wanted = _requirements(site)
    needed = cache.folder(f"{suite}-site", (PYTHON[suite], *wanted), lambda at: _install(wanted, PYTHON[suite], at))
    modules = built_modules(kernel, cache)
    sources = (Path(__file__), HERE / "trials.py", PROBE, *sorted(GUEST.iterdir()))
    key = (kernel.release, site.name, needed.name, modules[0].parent.name, digest_of_files(sources))

    def write(at: Path) -> None:
        at.write_bytes(_archive(kernel, suite, (site, needed), modules))

    return Image(disk, cache.file(f"{suite}-archive", key, write))


def _write_disk(suite: str, at: Path) -> None:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    packages = f"--include={','.join(PACKAGES)}"
    plain = at.with_suffix(".ext2")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", *excluded, packages, suite, str(plain)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"making the guest's disk failed: {' '.join(command)}\n{made.stdout}{made.stderr}")
    plain.rename(at)
    kibibytes = (at.stat().st_size + SPARE_BYTES) >> 10
    subprocess.run(["resize2fs", "-f", str(at), f"{kibibytes}K"], capture_output=True, check=True)


def _requirements(site: Path) -> list[str]:
    """What gpudoctor needs, on whatever Python: pip asks this machine's version, not the guest's."""
    (metadata,) = site.glob("gpudoctor*.dist-info/METADATA")
    lines = metadata.read_text("utf-8").splitlines()
    wanted = [line.removeprefix("Requires-Dist:").strip() for line in lines if line.startswith("Requires-Dist:")]
    return sorted(line.partition(";")[0].strip() for line in wanted if "extra ==" not in line)


def _install(requirements: Sequence[str], python: str, at: Path) -> None:
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-compile"]
    command = [*pip, f"--python-version={python}", *platforms, "--target", str(at), *requirements]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"installing what gpudoctor needs failed: {' '.join(command)}\n{made.stdout}{made.stderr}")


def _archive(kernel: Kernel, suite: str, sites: Sequence[Path], modules: Sequence[Path]) -> bytes:
    plan = {"trials": [trial.plan(suite) for trial in TRIALS], "takes_later": suite in TAKES_LATER}
    buffer = io.BytesIO()
    archive = ArchiveWriter(buffer)
    archive.character_device("/dev/console", 5, 1)
    for folder in ("/proc", "/root"):
        archive.directory(folder)
    _add_first_steps(archive, kernel)
    for site in sites:
        _add_folder(archive, site, "/payload/opt/gpudoctor")
    for module in modules:
        archive.file(f"/payload/opt/trial/modules/{module.name}", module.read_bytes())
    archive.file("/payload/opt/trial/drive.py", (GUEST / "drive.py").read_bytes())
    archive.file("/payload/opt/trial/probe", _compiled_probe(), 0o755)
    archive.file("/payload/opt/trial/program", runc(RULES_OF_HOOK))
    archive.file("/payload/opt/trial/plan.json", json.dumps(plan).encode())
    archive.file("/payload/etc/systemd/system/trial.service", (GUEST / "trial.service").read_bytes())
    hook = "nvidia-container-runtime-hook"
    archive.file(f"/payload/usr/bin/{hook}", (GUEST / hook).read_bytes(), 0o755)
    archive.close()
    return buffer.getvalue()


def _add_first_steps(archive: ArchiveWriter, kernel: Kernel) -> None:
    busybox = shutil.which("busybox")
    assert busybox is not None
    archive.file("/bin/busybox", Path(busybox).read_bytes(), 0o755)
    for applet in ("sh", "mount", "umount", "insmod", "cp", "poweroff", "switch_root", "echo"):
        archive.link(f"/bin/{applet}", "busybox")
    archive.file("/init", (GUEST / "init").read_bytes(), 0o755)
    files = _kernel_modules(Path("/lib/modules", kernel.release))
    for file in files:
        archive.file(f"/modules/{file.name}", file.read_bytes())
    archive.file("/modules/order", "".join(f"/modules/{file.name}\n" for file in files).encode())


def _kernel_modules(folder: Path) -> list[Path]:
    """In the order in which they must be loaded: modules.dep lists behind each one what it needs, what is needed first last."""
    order: dict[Path, None] = {}
    for line in (folder / "modules.dep").read_text("utf-8").splitlines():
        module, _, needed = line.partition(":")
        if module.rpartition("/")[2] in KERNEL_MODULES:
            order |= dict.fromkeys(folder / path for path in (*reversed(needed.split()), module))
    return list(order)


def _add_folder(archive: ArchiveWriter, source: Path, destination: str) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            archive.file(f"{destination}/{path.relative_to(source).as_posix()}", path.read_bytes())


def _compiled_probe() -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpudoctor-vm-") as scratch:
        probe = Path(scratch, "probe")
        subprocess.run(["gcc", "-O1", "-static", "-o", str(probe), str(PROBE)], check=True)
        return probe.read_bytes()
