"""On the machine that runs the tests: a right verdict as root and as an ordinary user, and nothing changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

NOBODY = 65534


def _state() -> dict[str, str]:
    """What the doctor could have changed: modules, device nodes, settings, PCI power."""
    modules = Path("/proc/modules")
    settings = (
        subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False)
        if shutil.which("sysctl")
        else None
    )
    # These count by themselves.
    moving = (
        "random",
        "nr_",
        "-nr",
        "state",
        "sched_domain",
        "dentry",
        "inode",
        "file-nr",
        "pty",
        "ns_last_pid",
        "uuid",
        "age",
    )
    lines = [
        line for line in (settings.stdout.splitlines() if settings else []) if not any(word in line for word in moving)
    ]
    return {
        "modules": "\n".join(line.split()[0] for line in modules.read_text().splitlines())
        if modules.exists()
        else "none",
        "dev": "\n".join(
            sorted(
                str(path) for path in Path("/dev").rglob("*") if "/pts/" not in str(path) and "/shm/" not in str(path)
            )
        ),
        "sysctl": "\n".join(lines),
        "power": "\n".join(
            f"{path} {path.read_text().strip()}"
            for path in sorted(Path("/sys/bus/pci/devices").glob("*/power/runtime_status"))
        ),
    }


def _python_for_nobody() -> str | None:
    """An interpreter of this version that an ordinary user can start."""
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            ended = subprocess.run([candidate, "-c", ""], user=NOBODY, capture_output=True, check=False, cwd="/")
        except OSError:
            continue
        if ended.returncode == 0:
            return candidate
    return None


def _check(ended: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in ended.stderr and ended.stderr == "", ended.stderr
    report = json.loads(ended.stdout)
    assert ended.returncode == report["exit_code"]
    vendors = [path.read_text().strip() for path in Path("/sys/bus/pci/devices").glob("*/vendor")]
    presence = next(result for result in report["results"] if result["check"] == "pcie.gpus-present")
    if vendors and "0x10de" not in vendors:
        assert presence["status"] == "fail" and report["exit_code"] == 2
        assert [cause["check"] for cause in report["root_causes"]] == ["pcie.gpus-present"]


def test_live_changes_nothing() -> None:
    before = _state()
    ended = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "run", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    _check(ended)
    assert _state() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests already run as an ordinary user")
def test_live_as_an_ordinary_user(tmp_path: Path) -> None:
    python = _python_for_nobody()
    if python is None:
        pytest.skip(f"no Python {sys.version_info.major}.{sys.version_info.minor} that uid {NOBODY} may start")
    packages = next(path for path in map(Path, sys.path) if (path / "msgspec").is_dir())
    shutil.copytree(REPOSITORY / "gpudoctor", tmp_path / "code" / "gpudoctor")
    for name in ("msgspec", "pynvml.py", "rich", "pygments", "markdown_it", "mdurl"):
        source = packages / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / "code" / name)
        elif source.exists():
            shutil.copy(source, tmp_path / "code" / name)
    for path in (tmp_path, *tmp_path.parents):
        if str(path) != "/tmp" and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    before = _state()
    for form in ("json", "terminal"):
        ended = subprocess.run(
            [python, "-m", "gpudoctor", "run", "--format", form],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": str(tmp_path / "code"), "PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )
        if form == "json":
            _check(ended)
        assert ended.stderr == ""
    assert _state() == before
