"""A plain virtual environment with gpudoctor installed from a copy of the tree.

Editable installs and tools that hook into start-up through `.pth` files (coverage, setuptools) would be measured as well.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "bench-venv"
PACKAGES = ("gpudoctor", "checks", "reports")


def plain_venv() -> Path:
    """The environment's folder; built anew when the sources or the interpreter are not those it was built from."""
    key = _key()
    stamp = PLACE / "key"
    if not stamp.is_file() or stamp.read_text("ascii") != key:
        _build()
        stamp.write_text(key, "ascii")
    return PLACE


def _sources() -> Iterator[Path]:
    yield ROOT / "pyproject.toml"
    for package in PACKAGES:
        yield from (path for path in sorted((ROOT / package).rglob("*")) if path.is_file() and path.suffix != ".pyc")


def _key() -> str:
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix} {PLACE}".encode())
    for path in _sources():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _build() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True)
    pip = [str(PLACE / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "gpudoctor")
        _copy_sources(copy)
        subprocess.run([*pip, "install", "--quiet", "--compile", str(copy)], check=True)
    # It comes with the environment up to Python 3.11, and a `.pth` file with it.
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "setuptools"], check=True, stderr=subprocess.DEVNULL)
    hooks = [str(path) for path in PLACE.rglob("*.pth")]
    if hooks:
        raise SystemExit(f"bench: the environment runs code at start-up, its figures would not compare: {hooks}")


def _copy_sources(copy: Path) -> None:
    copy.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy / name)
