"""What the printed service's restrictions cost: nothing that it is there to see. tests/test_install_systemd.py has a systemd apply them."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.install_node import bare
from tests.live_root import alone_with_its_workers, healthy_nvml, make_root, with_nvml
from tests.test_install import content, setting
from tests.unit_cage import CAPABILITIES, HEADERS

__all__ = ["alone_with_its_workers"]


def capsh() -> str:
    """The program that drops capabilities."""
    found = shutil.which("capsh") or shutil.which("capsh", path="/usr/sbin:/sbin")
    if found is None or os.geteuid() != 0:
        pytest.skip("needs root and capsh (Debian: libcap2-bin)")
    return found


def seen_with(kept: set[str], pid: int, private: Path) -> set[str]:
    """Which looks see something with these capabilities alone."""
    dropped = ",".join(f"cap_{name.lower()}" for name in CAPABILITIES if name not in kept)
    command = f"exec {sys.executable} -m tests.capability_view {pid} {private}"
    done = subprocess.run(
        [capsh(), f"--drop={dropped}", "--", "-c", command], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return {name for name, seen in json.loads(done.stdout).items() if seen}


def test_each_capability_of_the_service_is_needed_and_no_other(tmp_path: Path) -> None:
    """A process of another user is looked at, and a file of his; with all capabilities everything is seen that this machine has."""
    unit = content(bare(), "systemd", "gpudoctor.service")
    (words,) = setting(unit, "CapabilityBoundingSet")
    ours = {word.removeprefix("CAP_") for word in words.split()}
    capsh()
    private = tmp_path / "secret"
    private.write_text("secret")
    private.chmod(0o600)
    os.chown(private, 65534, 65534)
    other = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "60"])
    try:
        everything = seen_with(set(CAPABILITIES), other.pid, private)
        assert len(everything) >= 8, everything
        assert seen_with(ours, other.pid, private) == everything
        lost = {name: everything - seen_with(ours - {name}, other.pid, private) for name in sorted(ours)}
    finally:
        other.kill()
        other.wait()
    # Everybody reads the kernel's log where that is not restricted (dmesg_restrict of Documentation/admin-guide/sysctl/kernel.rst).
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    assert all(gone or (name == "SYSLOG" and not restricted) for name, gone in lost.items()), lost
    assert (
        lost["SYSLOG"] <= {"kernel log"}
        and "device programs" in lost["SYS_ADMIN"]
        and "open files" in lost["SYS_PTRACE"]
    )


def test_the_report_is_the_same_under_the_services_restrictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML is asked too, by a worker of its own: its library is loaded, and entered by chroot."""
    if os.geteuid() != 0 or shutil.which("systemd-analyze") is None or not any(path.is_file() for path in HEADERS):
        pytest.skip("needs root, systemd-analyze and the numbers of x86_64's system calls (linux-libc-dev)")
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    unit = tmp_path / "unit.service"
    unit.write_text(content(bare(), "systemd", "gpudoctor.service"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    doctor = [sys.executable, "-m", "gpudoctor", "run", "--root", str(root), "--format", "json"]
    reports = []
    for cage in ([], [sys.executable, "-m", "tests.unit_cage", str(unit)]):
        done = subprocess.run(
            [*cage, *doctor],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        assert done.returncode in (0, 1, 2), done.stderr
        report = json.loads(done.stdout)
        reports.append({name: value for name, value in report.items() if name not in ("started_at", "seconds")})
    assert reports[0] == reports[1]
    statuses = {result["check"]: result["status"] for result in reports[1]["results"]}
    assert statuses["driver-cuda.nvml-answers"] == "pass"


def test_a_daemon_on_this_node_is_reached_over_tcp(tmp_path: Path) -> None:
    """As dcgmi reaches nv-hostengine, which listens on 127.0.0.1:5555 (DCGM documentation, nv-hostengine)."""
    if os.geteuid() != 0 or shutil.which("systemd-analyze") is None or not any(path.is_file() for path in HEADERS):
        pytest.skip("needs root, systemd-analyze and the numbers of x86_64's system calls (linux-libc-dev)")
    unit = tmp_path / "unit.service"
    unit.write_text(content(bare(), "systemd", "gpudoctor.service"))
    with socket.create_server(("127.0.0.1", 0)) as daemon:
        code = f"import socket; socket.create_connection({daemon.getsockname()!r}, 5); print('reached')"
        done = subprocess.run(
            [sys.executable, "-m", "tests.unit_cage", str(unit), sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": "/dev/shm"},
        )
    assert done.stdout == "reached\n", done.stderr


def test_the_cage_is_closed(tmp_path: Path) -> None:
    """The test above could not fail in an open one."""
    if os.geteuid() != 0 or shutil.which("systemd-analyze") is None or not any(path.is_file() for path in HEADERS):
        pytest.skip("needs root, systemd-analyze and the numbers of x86_64's system calls (linux-libc-dev)")
    unit = tmp_path / "unit.service"
    unit.write_text(content(bare(), "systemd", "gpudoctor.service"))
    tries = {
        "file": f"open({str(tmp_path / 'made')!r}, 'w')",
        "packet": "socket.socket(socket.AF_PACKET)",
        "memory": "mmap.mmap(-1, 4096, prot=7)",
        "module": "ctypes.CDLL(None).syscall(175, 0, 0, 0) and os.setuid(1)",
        "unix": "socket.socket(socket.AF_UNIX)",
    }
    code = "import ctypes, mmap, os, socket\n" + "".join(
        f"try:\n  {line}\n  print({name!r})\nexcept OSError: pass\n" for name, line in tries.items()
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit_cage", str(unit), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": "/dev/shm"},
    )
    assert done.stdout.split() == ["unix"], done.stdout + done.stderr
