"""Builds dist/gpudoctor.pyz: the wheel and all it needs as one file that any Python 3.10 or newer of this machine's kind runs.

`python -m tools.single_file -o FILE WHEEL [--python 3.10 …]` installs the wheel, and beside them the extensions of other Pythons: their
names hold the Python that they are for (PEP 3149). With `--site-packages DIR` that directory is taken as
it is, and nothing is fetched. shiv makes the file; its start is preceded by packaging/single-file/launcher.py.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parent.parent / "packaging" / "single-file" / "launcher.py"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# What no run needs; tests and type hints of others make half of what is unpacked.
_LEFT_OUT = ("bin", "tests", "test", "__pycache__")


def install(wheel: Path, pythons: Iterable[str], place: Path) -> None:
    """Install the wheel with its dependencies, and of those with extensions the same release for each other Python.

    pip judges conditions such as `python_version < '3.11'` for the Python that it runs on, whatever --python-version says: so what other
    Pythons alone need is named here.
    """
    _pip("--target", str(place), str(wheel), *NEEDED_BY_OTHERS)
    for python in pythons:
        for name, version in _with_extensions(place):
            if f"{name}-{python}" not in NOT_NEEDED:
                kind = ("--no-deps", "--only-binary=:all:", f"--python-version={python}", "--implementation=cp")
                once = place.with_name(f"{name}-{python}")
                _pip(*kind, "--target", str(once), f"{name}=={version}")
                shutil.copytree(once, place, dirs_exist_ok=True)


NEEDED_BY_OTHERS = ("tomli>=2", "typing_extensions>=4.12")
NOT_NEEDED = ("backports_zstd-3.14",)


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", *words]
    subprocess.run(command, check=True)  # noqa: S603 - our own words


def _with_extensions(place: Path) -> list[tuple[str, str]]:
    """Name and version of each distribution that has an extension for one Python only (PEP 427: RECORD lists its files)."""
    found = []
    for record in sorted(place.glob("*.dist-info/RECORD")):
        if re.search(r"\.cpython-\d+-\S+\.so,", record.read_text("utf-8")):
            name, version = record.parent.name.removesuffix(".dist-info").split("-")
            found.append((name, version))
    return found


def slim(place: Path) -> None:
    """Take out what no run needs."""
    for path in sorted(place.rglob("*"), reverse=True):
        if path.is_dir() and (path.name in _LEFT_OUT):
            shutil.rmtree(path)


def tags(place: Path) -> tuple[str, ...]:
    """The Pythons that every package with extensions has one for: cp311, …"""
    found: dict[Path, set[str]] = {}
    for path in place.rglob("*.so"):
        if match := re.search(r"\.cpython-(\d+)-", path.name):
            found.setdefault(path.parent, set()).add(f"cp{match[1]}")
    required = [names for folder, names in found.items() if folder.name in ("msgspec", "yaml")]
    return tuple(sorted(set.intersection(*required), key=lambda tag: int(tag[2:]))) if required else ()


def build(place: Path, target: Path) -> None:
    """Make the file from a directory of packages."""
    slim(place)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "gpudoctor.pyz"
        words = ["--site-packages", str(place), "--entry-point", "gpudoctor.cli:main", "--compressed", "--reproducible"]
        command = [sys.executable, "-m", "shiv", *words, "--python", "/usr/bin/env python3", "-o", str(made)]
        subprocess.run(command, check=True)  # noqa: S603 - our own words
        _with_launcher(made, target, tags(place))


def _with_launcher(made: Path, target: Path, found: tuple[str, ...]) -> None:
    """The same archive behind the same first line, with our start in place of shiv's."""
    with zipfile.ZipFile(made) as source:
        build_id = json.loads(source.read("environment.json"))["build_id"]
    launcher = re.sub(r"(?m)^TAGS = .*$", f"TAGS = {found!r}", LAUNCHER.read_text("utf-8"))
    launcher = re.sub(r"(?m)^BUILD = .*$", f"BUILD = {build_id!r}", launcher)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(made, "rb") as file:
        target.write_bytes(file.readline())
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        for member in source.infolist():
            content = launcher.encode() if member.filename == "__main__.py" else source.read(member)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    target.chmod(0o755)


def main() -> None:
    """Parse and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--site-packages", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "packages"
        if options.site_packages is not None:
            shutil.copytree(options.site_packages, place)
        else:
            install(options.wheel, options.python or PYTHONS, place)
        build(place, options.output)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB for {', '.join(tags_of(options.output))}")


def tags_of(target: Path) -> tuple[str, ...]:
    """The Pythons that a built file is for."""
    with zipfile.ZipFile(target) as archive:
        match = re.search(r"(?m)^TAGS = \((.*)\)$", archive.read("__main__.py").decode())
    return tuple(re.findall(r"cp\d+", match[1])) if match else ()


if __name__ == "__main__":
    main()
