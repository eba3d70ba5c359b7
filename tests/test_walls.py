"""The walls between the parts: which may import which, as pyproject.toml declares them."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed (pip install -e '.[dev]')"
)

CHECKS_MAY_IMPORT = {"chain", "checks", "facts", "knowledge", "registry", "verdicts"}
BENEATH_THEM = {"patterns", "config"}

# Where a forbidden import is put, and what the broken contract is called: one for each thing a wall keeps apart.
TRESPASSES = [
    ("checks/pcie.py", "import os", "checks judge facts"),
    ("checks/pcie.py", "import subprocess", "checks judge facts"),
    ("checks/pcie.py", "from gpudoctor.probes import files", "checks judge facts"),
    ("checks/pcie.py", "from gpudoctor import engine", "checks judge facts"),
    ("gpudoctor/knowledge/nvml_errors.py", "import socket", "checks judge facts"),
    ("gpudoctor/facts/pci.py", "import os", "facts and tables"),
    ("gpudoctor/facts/pci.py", "import subprocess", "facts and tables"),
    ("gpudoctor/facts/pci.py", "from gpudoctor.sources import live", "facts and tables"),
    ("gpudoctor/engine.py", "from gpudoctor.checks import pcie", "engine, facts and verdicts"),
    ("gpudoctor/facts/pci.py", "from gpudoctor.reports import json", "engine, facts and verdicts"),
    ("gpudoctor/verdicts.py", "from gpudoctor.checks import pcie", "engine, facts and verdicts"),
    ("reports/terminal.py", "import textual.app", "only reports.tui"),
    ("gpudoctor/commands.py", "import jinja2", "only reports.tui"),
    ("gpudoctor/sources/live.py", "import pynvml", "only probes"),
    ("gpudoctor/run.py", "import psutil", "only probes"),
    ("reports/json.py", "import ctypes", "only probes"),
]


def lint(tree: Path) -> "subprocess.CompletedProcess[str]":
    """What import-linter says of a tree; it must find that tree's package, not an installed one."""
    command = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, ''); from importlinter.cli import lint_imports_command as run; run()",
    ]
    return subprocess.run([*command, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False)


def contracts() -> list[dict[str, Any]]:
    """The contracts of pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed: list[dict[str, Any]] = declared["tool"]["importlinter"]["contracts"]
    return listed


def broken(said: str) -> list[str]:
    """The names of the contracts that a lint reports as broken."""
    flat = " ".join(said.split())
    return [contract["name"] for contract in contracts() if f"{contract['name']} BROKEN" in flat]


def test_walls_stand() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(contracts())} kept, 0 broken." in done.stdout


@pytest.mark.parametrize(("file", "line", "contract"), TRESPASSES)
def test_trespassing_breaks_a_contract(tmp_path: Path, file: str, line: str, contract: str) -> None:
    for name in ("gpudoctor", "checks", "reports"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a", encoding="utf-8") as trespasser:
        trespasser.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(name.startswith(contract) for name in broken(done.stdout)), done.stdout


def test_every_module_stands_on_one_side_of_the_checks_wall() -> None:
    """A new module of gpudoctor must be named: either checks may import it, or the contract forbids it."""
    (contract,) = (contract for contract in contracts() if contract["source_modules"] == ["gpudoctor.checks"])
    forbidden = {name.partition(".")[2] for name in contract["forbidden_modules"] if name.startswith("gpudoctor.")}
    modules = {path.stem for path in (ROOT / "gpudoctor").glob("*.py") if path.stem != "__init__"}
    packages = {path.parent.name for path in (ROOT / "gpudoctor").glob("*/__init__.py")}
    assert modules | packages == forbidden | CHECKS_MAY_IMPORT | BENEATH_THEM
    assert not forbidden & CHECKS_MAY_IMPORT
