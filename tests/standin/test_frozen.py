"""A frozen filesystem holds its writers in the kernel, and always lets them go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .build import Hang, NoCompiler, build_nvml, environment, healthy, write_node
from .frozen import CannotFreeze, frozen_filesystem, thaw

WRITER = ["sh", "-c", 'printf x >> "$0"']
HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import frozen
with frozen.frozen_filesystem() as mount_point:
    print(mount_point, flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def freezable() -> None:
    """Skips where no filesystem can be frozen, and says why."""
    try:
        with frozen_filesystem():
            pass
    except CannotFreeze as reason:
        pytest.skip(f"cannot freeze a filesystem: {reason}")


needs_freezing = pytest.mark.usefixtures("freezable")


@contextlib.contextmanager
def child(command: list[str], **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is killed at the end but never waited for while it may be stuck."""
    process = subprocess.Popen(command, env={**os.environ, **environ}, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()


def state(pid: int) -> str:
    """The one-letter state of /proc/PID/stat."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something comes true in time."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def mounted(mount_point: Path) -> bool:
    """Asks the kernel's list, not the filesystem."""
    return f" {mount_point} " in Path("/proc/self/mounts").read_text(encoding="utf-8")


def loop_images() -> set[str]:
    """The files behind the loop devices."""
    return {
        backing.read_text(encoding="utf-8").strip() for backing in Path("/sys/block").glob("loop*/loop/backing_file")
    }


def stuck_in_write(pid: int) -> bool:
    """In state D for the right reason: a program that is being loaded from disk is in D for a moment too."""
    return state(pid) == "D" and "vfs_write" in Path(f"/proc/{pid}/stack").read_text(encoding="ascii")


@needs_freezing
def test_a_writer_is_stuck_until_the_filesystem_thaws() -> None:
    with contextlib.ExitStack() as children:
        with frozen_filesystem() as mount_point:
            image = str(mount_point.parent / "image")
            assert (mounted(mount_point), image in loop_images()) == (True, True)
            writer = children.enter_context(child([*WRITER, str(mount_point / "written")]))
            assert eventually(lambda: stuck_in_write(writer.pid))
        assert writer.wait(timeout=10) == 0
        assert (mounted(mount_point), image in loop_images(), mount_point.parent.exists()) == (False, False, False)


@needs_freezing
def test_a_kill_waits_for_the_thaw() -> None:
    with frozen_filesystem() as mount_point, child([*WRITER, str(mount_point / "written")]) as writer:
        assert eventually(lambda: stuck_in_write(writer.pid))
        writer.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(timeout=0.5)
        assert state(writer.pid) == "D"
        thaw(mount_point)
        assert writer.wait(timeout=10) == -signal.SIGKILL


@needs_freezing
def test_nvml_hangs_in_the_kernel(tmp_path: Path) -> None:
    """The two stand-ins together: a worker whose nvmlInit is in state D and outlives SIGKILL."""
    pytest.importorskip("pynvml", reason="the NVML stand-in is tested under pynvml (nvidia-ml-py)")
    try:
        library = build_nvml(tmp_path)
    except NoCompiler as reason:
        pytest.skip(str(reason))
    with frozen_filesystem() as mount_point:
        node = healthy(["0000:18:00.0"])
        node["hang"] = Hang(call="nvmlInit", how="write", path=str(mount_point / "written"))
        variables = environment(library, write_node(node, tmp_path / "node.json"))
        with child([sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"], **variables) as worker:
            assert eventually(lambda: stuck_in_write(worker.pid))
            worker.kill()
            time.sleep(0.3)
            assert stuck_in_write(worker.pid)
            thaw(mount_point)
            assert worker.wait(timeout=10) == -signal.SIGKILL


@needs_freezing
def test_an_error_in_the_block_leaves_nothing_behind() -> None:
    writers: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as children:
        with pytest.raises(ZeroDivisionError), frozen_filesystem() as mount_point:
            writers.append(children.enter_context(child([*WRITER, str(mount_point / "written")])))
            assert eventually(lambda: state(writers[0].pid) == "D")
            raise ZeroDivisionError
        assert writers[0].wait(timeout=10) == 0
        assert (mounted(mount_point), mount_point.parent.exists()) == (False, False)


@needs_freezing
def test_the_death_of_the_test_leaves_nothing_behind() -> None:
    """SIGKILL runs no finaliser; the guard cleans up."""
    command = [sys.executable, "-c", HOLDER, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        mount_point = Path(holder.stdout.readline().strip())
        assert mounted(mount_point)
        with child([*WRITER, str(mount_point / "written")]) as writer:
            assert eventually(lambda: state(writer.pid) == "D")
            holder.kill()
            assert writer.wait(timeout=10) == 0
    assert eventually(lambda: not mounted(mount_point) and not mount_point.parent.exists())
    assert str(mount_point.parent / "image") not in loop_images()


@needs_freezing
def test_the_time_limit_thaws_and_tells() -> None:
    with pytest.raises(TimeoutError, match=r"thawed by its guard after 0\.5 s"), frozen_filesystem(0.5) as mount_point:
        with child([*WRITER, str(mount_point / "written")]) as writer:
            assert writer.wait(timeout=10) == 0
        assert eventually(lambda: not mounted(mount_point) and not mount_point.parent.exists())


def test_an_ordinary_user_is_told_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_tools(tmp_path, monkeypatch, mount_status=0)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CannotFreeze, match=r"^mounting needs root$"), frozen_filesystem():
        pass


def test_a_container_without_loop_devices_is_told_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_tools(tmp_path, monkeypatch, mount_status=32)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    with pytest.raises(CannotFreeze, match=r"mount: failed to setup loop device$"), frozen_filesystem():
        pass
    assert list((tmp_path / "scratch").iterdir()) == []


def fake_tools(directory: Path, monkeypatch: pytest.MonkeyPatch, mount_status: int) -> None:
    """Puts tools on PATH that do nothing, of which mount may fail; nothing here touches the machine."""
    (directory / "scratch").mkdir()
    for name in ("mkfs.ext4", "mount", "umount", "fsfreeze"):
        failing = f"echo mount: failed to setup loop device >&2; exit {mount_status}" if name == "mount" else "exit 0"
        (directory / name).write_text(f"#!/bin/sh\n{failing}\n", encoding="ascii")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
