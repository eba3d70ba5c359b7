"""The Debian cloud kernel of this machine, what else the test needs, and our stand-in modules built for it."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .cache import Cache, digest_of_files

HERE = Path(__file__).parent
MODULE_SOURCES = HERE / "modules"
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "make": "make",
    "gcc": "gcc",
    "strip": "binutils",
    "ldd": "libc-bin",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A bootable kernel image and the folder its modules are built against."""

    release: str
    image: Path
    headers: Path


def installed_kernel() -> Kernel | None:
    """The newest cloud kernel that has its image and its headers on this machine."""
    images = Path("/boot").glob("vmlinuz-*-cloud-amd64")
    for image in sorted(images, key=lambda image: image.stat().st_mtime, reverse=True):
        release = image.name.removeprefix("vmlinuz-")
        headers = Path("/lib/modules", release, "build")
        if (headers / "Makefile").exists() and os.access(image, os.R_OK):
            return Kernel(release, image, headers)
    return None


def missing_parts() -> tuple[str, ...]:
    """What this machine lacks to run the test, in words; empty when all is there."""
    lacking = [f"{program} (package {package})" for program, package in PROGRAMS.items() if not shutil.which(program)]
    if platform.machine() != "x86_64":
        lacking.append(
            f"an x86_64 machine, because its interpreter runs in the guest (this one is {platform.machine()})"
        )
    if installed_kernel() is None:
        lacking.append("a readable cloud kernel (linux-image-cloud-amd64) and its headers (linux-headers-cloud-amd64)")
    return tuple(lacking)


def built_modules(kernel: Kernel, cache: Cache) -> tuple[Path, ...]:
    """The stand-in modules for this kernel, without debugging symbols."""
    sources = tuple(sorted(path for path in MODULE_SOURCES.iterdir() if path.suffix == ".c" or path.name == "Kbuild"))
    folder = cache.folder("modules", (kernel.release, digest_of_files(sources)), lambda at: _build(sources, kernel, at))
    return tuple(sorted(folder.glob("*.ko")))


def _build(sources: tuple[Path, ...], kernel: Kernel, at: Path) -> None:
    for source in sources:
        shutil.copy(source, at)
    command = ["make", "-s", "-C", str(kernel.headers), f"M={at}", "modules"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"building the stand-in modules failed: {' '.join(command)}\n{made.stdout}{made.stderr}")
    for module in at.glob("*.ko"):
        subprocess.run(["strip", "--strip-debug", str(module)], check=True)
