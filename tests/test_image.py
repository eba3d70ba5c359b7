"""The recipe of the container image: it copies what the wheel is made of, onto a Python that the doctor runs on.

No engine builds it here; docs/kubernetes.md says how it was built and measured.
"""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.test_packaging import (
    BUILDS_WHEELS,
    LINKED,
    ROOT,
    declared,
    package_folders,
    python_files,
    version_of,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECIPE = ROOT / "packaging" / "container" / "Dockerfile"

PYTHONS = {"debian:bookworm-slim": (3, 11), "debian:trixie-slim": (3, 13)}
"""The version of the package python3 (packages.debian.org/python3, read 2026-11-29)."""


def instructions() -> list[tuple[str, str]]:
    """The instructions in order, as word and argument, continued lines joined (Dockerfile reference, Format)."""
    lines = [line for line in RECIPE.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    pairs = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(word, argument) for word, argument in pairs]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, FROM first; what stands before them is left out."""
    found: list[list[tuple[str, str]]] = []
    for word, argument in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, argument))
    return found


def copied_from_the_context() -> list[str]:
    """What the first stage copies out of the repository."""
    places: list[str] = []
    for word, argument in stages()[0]:
        if word == "COPY":
            *sources, target = shlex.split(argument)
            assert target == "./" or sources == [target], argument
            places += sources
    return [place.rstrip("/") for place in places]


def let_through() -> set[str]:
    """The names at the top that .dockerignore lets into the context; it must be of the form that is read here."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert patterns[0] == "*" and patterns[-1] == "**/__pycache__"
    assert all(re.fullmatch(r"![\w.]+/?", pattern) for pattern in patterns[1:-1]), patterns
    return {pattern.strip("!/") for pattern in patterns[1:-1]}


def project() -> dict[str, Any]:
    """The table [project] of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def package_data() -> set[Path]:
    """What belongs to the wheel beside code, by its place there."""
    places = package_folders()
    return {
        Path(*package.split("."), path.relative_to(places[package]))
        for package, patterns in declared()["package-data"].items()
        for pattern in patterns
        for path in places[package].glob(pattern)
    }


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    assert set(copied_from_the_context()) == let_through()
    assert all((ROOT / place).exists() for place in copied_from_the_context())


def test_what_is_copied_makes_the_whole_wheel(tmp_path: Path) -> None:
    """Built from nothing but that; the licence and the README go into its metadata."""
    if not version_of("pip") or version_of("setuptools") < BUILDS_WHEELS:
        pytest.skip("no wheel can be built without a network: needs pip and setuptools>=77 (pip install -e '.[dev]')")
    source = tmp_path / "source"
    source.mkdir()
    for place in copied_from_the_context():
        if (ROOT / place).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / place, source / place, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / place, source / place)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run([*command, "-w", str(tmp_path), str(source)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"gpudoctor/{path}" for path in python_files(ROOT / "gpudoctor")} <= held
    assert {f"gpudoctor/{name}/{path}" for name in LINKED for path in python_files(ROOT / name)} <= held
    assert {str(path) for path in package_data()} <= held
    assert [name for name in held if name.endswith("/LICENSE")]
    (metadata,) = (name for name in held if name.endswith("/METADATA"))
    assert (ROOT / "README.md").read_text("utf-8")[:200] in zipfile.ZipFile(wheel).read(metadata).decode()


def test_both_stages_stand_on_one_python_that_the_doctor_runs_on() -> None:
    """The environment of the first stage is taken over by the second, and its Python is a link to the system's."""
    (default,) = (argument.partition("=")[2] for word, argument in instructions() if word == "ARG")
    assert [stage[0][1].split()[0] for stage in stages()] == ["${BASE}", "${BASE}"]
    wanted = re.fullmatch(r">=(\d+)\.(\d+)", project()["requires-python"])
    assert wanted is not None
    assert PYTHONS[default] >= (int(wanted[1]), int(wanted[2]))


def test_the_command_is_where_the_entry_point_looks_for_it() -> None:
    build, final = stages()
    runs = " ".join(argument for word, argument in build if word == "RUN")
    place = re.search(r"venv --without-pip (\S+)", runs)
    assert place is not None
    assert ("COPY", f"--from=build {place[1]} {place[1]}") in final
    settings = dict(
        word.split("=", 1) for name, argument in final if name == "ENV" for word in shlex.split(argument) if "=" in word
    )
    assert settings["PATH"].split(":")[0] == f"{place[1]}/bin"
    assert settings["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert final[-1] == ("ENTRYPOINT", '["gpudoctor"]')
    assert "gpudoctor" in project()["scripts"]


def test_nothing_of_the_build_stays_in_the_image() -> None:
    """No package lists, no caches, no pip; and no user but root, who is the one that sees most."""
    _, final = stages()
    (installs,) = (argument for word, argument in final if word == "RUN")
    assert "--no-install-recommends" in installs and "/var/lib/apt/lists/*" in installs
    assert not re.search(r"pip|venv", installs)
    assert not [word for word, _ in final if word == "USER"]
