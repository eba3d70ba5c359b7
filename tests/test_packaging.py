"""What gets installed is what lies in the tree, and a run loads no more of it than it needs."""

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
HEALTHY = ROOT / "fixtures" / "nodes" / "h100x8"
LINKED = ("checks", "reports")

BUILDS_WHEELS = (77,)
"""The first setuptools that has bdist_wheel of its own (release notes 70.1.0)."""

# The doctor's own exit status, and what its run has imported, as the last line on stderr.
_RUN_AND_LIST_MODULES = """
import json, sys
from gpudoctor.cli import main
status = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
sys.exit(status)
"""


def python_files(folder: Path) -> set[str]:
    """The Python files below a folder, by their path in it; links are not followed."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}


def declared() -> dict[str, Any]:
    """The table [tool.setuptools] of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    return table


def package_folders() -> dict[str, Path]:
    """The packages in the tree by the name they install under."""
    folders = {}
    for top, name in (("gpudoctor", "gpudoctor"), *((link, f"gpudoctor.{link}") for link in LINKED)):
        for marker in (ROOT / top).rglob("__init__.py"):
            below = marker.parent.relative_to(ROOT / top).parts
            if top != "gpudoctor" or below[:1] not in {(link,) for link in LINKED}:
                folders[".".join((name, *below))] = marker.parent
    return folders


def test_every_package_folder_is_listed() -> None:
    folders = package_folders()
    assert {"gpudoctor.checks", "gpudoctor.reports", "gpudoctor.facts"} <= folders.keys()
    assert sorted(folders) == sorted(declared()["packages"])


def test_every_folder_with_code_is_a_package() -> None:
    """Setuptools leaves out a folder without `__init__.py`, and says nothing."""
    for top in ("gpudoctor", *LINKED):
        for path in (ROOT / top).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_to_the_top_level_folders(name: str) -> None:
    link = ROOT / "gpudoctor" / name
    assert link.is_symlink(), "git wrote the link as a file: set core.symlinks and check it out again"
    assert link.readlink() == Path("..", name)
    assert declared()["package-dir"][f"gpudoctor.{name}"] == name


def version_of(distribution: str) -> tuple[int, ...]:
    """Major and minor; nothing when it is not installed. It is not looked for as a module: setuptools' hook warns of distutils then."""
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(int(number) for number in version.split(".")[:2])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, without a network."""
    if not version_of("pip") or version_of("setuptools") < BUILDS_WHEELS:
        pytest.skip("no wheel can be built without a network: needs pip and setuptools>=77 (pip install -e '.[dev]')")
    copy = tmp_path_factory.mktemp("tree")
    for name in ("gpudoctor", *LINKED):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in (".toml", ".md", ""):
            shutil.copy(path, copy / path.name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run([*command, "-w", str(out), str(copy)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("gpudoctor_node-*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_the_tree_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Also that checks/ and reports/ do not install beside the package, under names that anyone might use."""
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    code = {f"gpudoctor/{path}" for path in python_files(ROOT / "gpudoctor")}
    linked = {f"gpudoctor/{name}/{path}" for name in LINKED for path in python_files(ROOT / name)}
    assert {"gpudoctor/checks/pcie.py", "gpudoctor/reports/terminal.py"} <= linked
    assert code | linked <= held
    assert {name for name in held if name.endswith(".py")} <= code | linked
    assert {name.split("/")[0] for name in held} == {"gpudoctor"}
    assert "gpudoctor/py.typed" in held
    templates = {path.name for path in (ROOT / "reports" / "html" / "templates").iterdir()}
    assert {f"gpudoctor/reports/html/templates/{name}" for name in templates} <= held
    assert {"page.html", "page.css", "page.js"} <= templates
    for folder in ("templates", "completion"):
        printed = {path.name for path in (ROOT / "gpudoctor" / "installing" / folder).iterdir()}
        assert printed and {f"gpudoctor/installing/{folder}/{name}" for name in printed} <= held


def modules_of_a_run(*arguments: str) -> set[str]:
    """What a run over the healthy node has imported by its end."""
    command = [sys.executable, "-c", _RUN_AND_LIST_MODULES, "run", "--node", str(HEALTHY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_json_run_imports_no_user_interface() -> None:
    modules = modules_of_a_run("--format", "json")
    assert "gpudoctor.reports.json" in modules
    assert modules.isdisjoint({"textual", "jinja2", "rich"})


def test_terminal_run_imports_rich() -> None:
    """The test above could not fail if the modules were listed wrongly."""
    modules = modules_of_a_run("--format", "terminal")
    assert "rich" in modules
    assert modules.isdisjoint({"textual", "jinja2"})


def test_html_run_imports_jinja2(tmp_path: Path) -> None:
    modules = modules_of_a_run("--format", "json", "-o", str(tmp_path / "page.html"))
    assert "jinja2" in modules
    assert modules.isdisjoint({"textual", "rich"})


def test_a_report_is_read_back_from_its_page_without_jinja2(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    modules_of_a_run("--format", "json", "-o", str(page))
    command = [sys.executable, "-c", _RUN_AND_LIST_MODULES, "render", str(page), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "pass"), done.stderr
    assert {"jinja2", "rich", "textual"}.isdisjoint(json.loads(done.stderr.splitlines()[-1]))


def test_module_and_program_are_one_command() -> None:
    """`python -m gpudoctor` prints the report that the installed program prints."""
    arguments = ["run", "--node", str(HEALTHY), "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "pass"), done.stderr
