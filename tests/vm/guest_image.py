"""Compose the guest's root file system: tools and interpreter, gpudoctor, stand-ins, and the scripts of its scenarios.

The image is several archives one after the other. All but the scenarios' are built once and cached.
"""

import configparser
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import python_tree
from .cache import REPOSITORY, Cache, digest_of_files
from .kernel import HERE, Kernel, built_modules
from .newc import ArchiveWriter
from .scenarios import Scenario

GUEST = HERE / "guest"
NVML_SOURCE = HERE.parent / "standin" / "libnvidia_ml.c"
MODULES_FOLDER = "/lib/modules/standin"
NVML_LIBRARY, CUDA_LIBRARY = "/usr/lib/libnvidia-ml.so.1", "/usr/lib/libcuda.so.1"
BUILDERS = tuple(HERE / name for name in ("guest_image.py", "python_tree.py", "newc.py"))
PACKAGING_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


@dataclass(frozen=True, slots=True)
class GuestParts:
    """The cached archives that every boot shares, and where gpudoctor lies installed on this machine."""

    archives: tuple[Path, ...]
    gpudoctor_site: Path


def guest_parts(kernel: Kernel, cache: Cache) -> GuestParts:
    """Build, or find in the cache, everything in the guest that no scenario changes."""
    site = installed_gpudoctor(cache)
    return GuestParts((_base(cache), _project(site, cache), _standins(kernel, cache)), site)


def write_image(parts: GuestParts, scenarios: tuple[Scenario, ...], image: Path) -> None:
    """Write the whole initial file system of one boot."""
    with image.open("wb") as output:
        for archive in parts.archives:
            with archive.open("rb") as part:
                shutil.copyfileobj(part, output)
        output.write(_archive(lambda archive: _add_scenarios(archive, scenarios)))


def installed_gpudoctor(cache: Cache) -> Path:
    """A folder with gpudoctor of this working tree installed from a wheel, without what it depends on."""
    sources = _package_sources()

    def install(at: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="gpudoctor-vm-") as scratch:
            for source in sources:
                copy = Path(scratch, source.relative_to(REPOSITORY))
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy, follow_symlinks=False)
            _pip_install(Path(scratch), at)

    return cache.folder("site", (digest_of_files(sources), sys.version), install)


def _pip_install(tree: Path, at: Path) -> None:
    # Without isolation nothing is downloaded, so this way is taken wherever the build backend is installed.
    offline = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", *offline]
    made = subprocess.run([*command, "--target", str(at), str(tree)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"installing gpudoctor for the guest failed:\n{made.stdout}{made.stderr}")


def _package_sources() -> tuple[Path, ...]:
    wanted = [REPOSITORY / name for name in PACKAGING_FILES]
    for package in ("gpudoctor", "checks", "reports"):
        for folder, subfolders, names in os.walk(REPOSITORY / package):
            links = [name for name in subfolders if Path(folder, name).is_symlink()]
            subfolders[:] = [name for name in subfolders if name not in {"__pycache__", *links}]
            wanted += [Path(folder, name) for name in (*names, *links)]
    return tuple(sorted(path for path in wanted if path.is_symlink() or path.is_file()))


def _base(cache: Cache) -> Path:
    interpreter = python_tree.base_interpreter()
    files = (*BUILDERS, *sorted(GUEST.iterdir()), _busybox(), interpreter)
    return cache.file("base", (sys.version, digest_of_files(files)), _builder(_add_base))


def _project(site: Path, cache: Cache) -> Path:
    (installed,) = (found for found in importlib.metadata.distributions(path=[str(site)]))
    needed = sorted(
        python_tree.required_distributions(installed.requires or []), key=lambda distribution: distribution.name
    )

    def add(archive: ArchiveWriter) -> None:
        python_tree.add_tree(archive, site, python_tree.SITE_PACKAGES)
        for name, script in _console_scripts(installed):
            archive.file(f"{python_tree.VENV}/bin/{name}", script, 0o755)
        for distribution in needed:
            python_tree.add_distribution(archive, distribution)

    versions = (f"{distribution.name} {distribution.version}" for distribution in needed)
    return cache.file("project", (site.name, sys.version, digest_of_files(BUILDERS), *versions), _builder(add))


def _standins(kernel: Kernel, cache: Cache) -> Path:
    modules = built_modules(kernel, cache)
    key = (modules[0].parent.name, digest_of_files((NVML_SOURCE, *BUILDERS)))

    def add(archive: ArchiveWriter) -> None:
        for module in modules:
            archive.file(f"{MODULES_FOLDER}/{module.name}", module.read_bytes())
        archive.file(NVML_LIBRARY, _compiled_nvml(), 0o755)
        # Nobody loads it: it is looked for by its name.
        archive.file(CUDA_LIBRARY, b"", 0o755)

    return cache.file("standins", key, _builder(add))


def _compiled_nvml() -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpudoctor-vm-") as scratch:
        library = Path(scratch, "libnvidia-ml.so.1")
        flags = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{library.name}"]
        subprocess.run(["gcc", *flags, "-o", str(library), str(NVML_SOURCE), "-ldl", "-lpthread"], check=True)
        return library.read_bytes()


def _console_scripts(installed: importlib.metadata.Distribution) -> Iterable[tuple[str, bytes]]:
    entries = configparser.ConfigParser(delimiters=("=",))
    entries.read_string(installed.read_text("entry_points.txt") or "")
    for name, target in entries["console_scripts"].items() if entries.has_section("console_scripts") else ():
        module, _, function = target.partition(":")
        lines = (
            f"#!{python_tree.INTERPRETER}",
            "import sys",
            f"from {module} import {function}",
            f"sys.exit({function}())",
        )
        yield name, "\n".join((*lines, "")).encode()


def _add_base(archive: ArchiveWriter) -> None:
    busybox = _busybox()
    archive.character_device("/dev/console", 5, 1)
    for folder in ("/proc", "/sys", "/root", "/run", "/out", "/var/log"):
        archive.directory(folder)
    archive.directory("/tmp", 0o1777)
    archive.file("/bin/busybox", busybox.read_bytes(), 0o755)
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        archive.link(f"/bin/{applet}", "busybox")
    archive.file("/init", (GUEST / "init").read_bytes(), 0o755)
    archive.file("/sbin/modprobe", (GUEST / "modprobe").read_bytes(), 0o755)
    for name in ("passwd", "group", "hostname", "os-release"):
        archive.file(f"/etc/{name}", (GUEST / name).read_bytes())
    python_tree.add_interpreter(archive)


def _add_scenarios(archive: ArchiveWriter, scenarios: tuple[Scenario, ...]) -> None:
    for number, scenario in enumerate(scenarios):
        at = f"/scenarios/{number:02}-{scenario.name}"
        archive.file(f"{at}/prepare", scenario.prepare_script(on_new_node=number == 0).encode())
        archive.file(f"{at}/undo", "".join(f"{line}\n" for line in scenario.undo or ()).encode())
        archive.file(f"{at}/fetch", "".join(f"{path}\n" for path in scenario.fetch).encode())
        archive.file(f"{at}/nvml.json", scenario.nvml_answers().encode())
        for place, step in enumerate(scenario.steps):
            archive.file(f"{at}/steps/{place:02}-{step.name}", step.script().encode())


def _busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise RuntimeError("busybox is not installed")
    return Path(found)


def _builder(add: Callable[[ArchiveWriter], None]) -> Callable[[Path], None]:
    def build(at: Path) -> None:
        at.write_bytes(_archive(add))

    return build


def _archive(add: Callable[[ArchiveWriter], None]) -> bytes:
    buffer = io.BytesIO()
    archive = ArchiveWriter(buffer)
    add(archive)
    archive.close()
    return buffer.getvalue()
