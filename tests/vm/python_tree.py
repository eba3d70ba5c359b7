"""Put a Python interpreter, its standard library and installed distributions into a guest's file system.

Everything keeps its absolute path, so what an interpreter remembers of its place (prefix, rpath, Debian's layout)
stays true. Beside each module lies bytecode that is never checked against the source: the guest starts fast.
"""

import importlib.metadata
import importlib.util
import marshal
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from .newc import ArchiveWriter

VENV = "/opt/gpudoctor"
INTERPRETER = f"{VENV}/bin/python3"
SITE_PACKAGES = f"{VENV}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

# Parts of the standard library that no program in the guest imports, by folder name.
LEFT_OUT = frozenset(
    {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests"}
    | {"tkinter", "turtledemo"}
)
# From PEP 552: a bytecode file with this flag word holds a source hash that the interpreter does not check.
UNCHECKED_HASH = (1).to_bytes(4, "little")


def base_interpreter() -> Path:
    """The interpreter behind this one's virtual environment, links resolved."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def add_interpreter(archive: ArchiveWriter) -> None:
    """Add the interpreter, its libraries and standard library, and an empty virtual environment at VENV."""
    executable = base_interpreter()
    standard_library = Path(os.__file__).resolve().parent
    extensions = Path(sysconfig.get_config_var("DESTSHARED") or standard_library / "lib-dynload")
    archive.file(str(executable), executable.read_bytes(), 0o755)
    add_tree(archive, standard_library, str(standard_library))
    add_libraries(archive, executable, *extensions.glob("*.so"))
    archive.link(INTERPRETER, str(executable))
    archive.file(f"{VENV}/pyvenv.cfg", f"home = {executable.parent}\ninclude-system-site-packages = false\n".encode())
    archive.directory(SITE_PACKAGES)


def add_libraries(archive: ArchiveWriter, *binaries: Path) -> None:
    """Add the shared libraries that binaries need, where the loader found them and where it looks by default."""
    for library in sorted(shared_libraries(*binaries)):
        archive.file(str(library), library.read_bytes(), 0o755)
        archive.link(f"/usr/lib/{library.name}", str(library))


def add_tree(archive: ArchiveWriter, source: Path, destination: str) -> None:
    """Add the files below a folder, with bytecode for each Python module."""
    for folder, subfolders, names in os.walk(source):
        subfolders[:] = sorted(name for name in subfolders if not _is_left_out(name))
        for name in sorted(names):
            path = Path(folder, name)
            add_python_file(archive, path, f"{destination}/{path.relative_to(source).as_posix()}")


def add_python_file(archive: ArchiveWriter, path: Path, destination: str) -> None:
    """Add one file; a Python module gets its bytecode beside it. Static libraries stay behind."""
    if path.suffix in {".a", ".o", ".pyc"} or not path.is_file():
        return
    content = path.read_bytes()
    archive.file(destination, content, 0o755 if os.access(path, os.X_OK) else 0o644)
    if path.suffix == ".py":
        bytecode = _bytecode(content, destination)
        if bytecode:
            archive.file(importlib.util.cache_from_source(destination, optimization=""), bytecode)


def add_distribution(archive: ArchiveWriter, distribution: importlib.metadata.Distribution) -> None:
    """Add a distribution's files to the guest's site-packages, and the libraries they need; its scripts stay behind."""
    extensions = []
    for relative in distribution.files or ():
        outside = ".." in relative.parts or relative.is_absolute()
        if not outside and not any(_is_left_out(part) for part in relative.parts):
            path = Path(str(distribution.locate_file(relative)))
            add_python_file(archive, path, f"{SITE_PACKAGES}/{relative}")
            extensions += [path] if path.suffix == ".so" else []
    if extensions:
        add_libraries(archive, *extensions)


def required_distributions(requirements: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions among some requirements and what they require in turn, extras left aside."""
    waiting = [name for name in map(_required_name, requirements) if name]
    met: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in met:
            continue
        met.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        yield distribution
        waiting += [more for more in map(_required_name, distribution.requires or ()) if more]


def shared_libraries(*binaries: Path) -> set[Path]:
    """The shared libraries that binaries need, the dynamic loader included, as `ldd` finds them."""
    told = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(?:=> |^\t)(/\S+) \(0x", told, re.MULTILINE)}


def _required_name(requirement: str) -> str | None:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    if name is None or "extra ==" in requirement:
        return None
    return re.sub(r"[-_.]+", "-", name.group()).lower()


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.startswith("config-")


def _bytecode(source: bytes, destination: str) -> bytes | None:
    # Some files of a standard library are templates or bad on purpose; they are not modules.
    try:
        code = compile(source, destination, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return None
    header = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
    return header + marshal.dumps(code)
