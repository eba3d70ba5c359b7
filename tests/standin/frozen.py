"""A filesystem whose writers wait in the kernel, uninterruptibly: the nearest thing to a wedged driver without a GPU.

A task that writes to a frozen filesystem sleeps in state D, keeps sleeping through SIGKILL and has a readable
kernel stack, as a task in an ioctl of a hung driver does; thawing frees it (kernel, fs/super.c, freeze_super).
Run as a program, this file is the guard of one mount; see `_guard`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# The kernel's own hung-task report comes after 120 s (kernel.hung_task_timeout_secs); a test should never cause it.
LONGEST_FREEZE_SECONDS = 60.0
_COMMAND_SECONDS = 15.0
_UMOUNT_SECONDS = 10.0


class CannotFreeze(Exception):
    """This machine does not let us freeze a filesystem; tests turn the reason into a visible skip."""


@contextlib.contextmanager
def frozen_filesystem(longest_seconds: float = LONGEST_FREEZE_SECONDS) -> Iterator[Path]:
    """The mount point of a small ext4 that is frozen until the block ends, holding one empty file, `written`.

    After `longest_seconds`, or when this process dies, a guard thaws and unmounts it; then the end of the block
    raises TimeoutError. Raises CannotFreeze where there is no root, no loop device or no mkfs.ext4.
    """
    tools = {name: _tool(name) for name in ("mkfs.ext4", "mount", "umount", "fsfreeze")}
    if os.geteuid() != 0:
        raise CannotFreeze("mounting needs root")
    directory = Path(tempfile.mkdtemp(prefix="gpudoctor-frozen-"))
    mount_point = directory / "mounted"
    began = time.monotonic()
    guard = _start_guard(directory, longest_seconds)
    try:
        mount_point.mkdir()
        _mount_image(tools, directory / "image", mount_point)
        (mount_point / "written").touch()
        _run(tools["fsfreeze"], "-f", str(mount_point))
        yield mount_point
        if time.monotonic() - began >= longest_seconds:
            raise TimeoutError(f"the filesystem was thawed by its guard after {longest_seconds:g} s")
    finally:
        _release(directory)
        _dismiss(guard)


def thaw(mount_point: Path) -> None:
    """Let the writers go on before the block ends; thawing twice is harmless."""
    if mount_point.is_mount():
        subprocess.run(
            [_tool("fsfreeze"), "-u", str(mount_point)], timeout=_COMMAND_SECONDS, capture_output=True, check=False
        )


def _tool(name: str) -> str:
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if path is None:
        raise CannotFreeze(f"{name} is not installed")
    return path


def _run(*command: str) -> None:
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise CannotFreeze(f"{' '.join(command)}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotFreeze(f"{' '.join(command)}: no end after {_COMMAND_SECONDS:g} s") from error


def _mount_image(tools: dict[str, str], image: Path, mount_point: Path) -> None:
    with image.open("wb") as empty:
        empty.truncate(16 << 20)
    _run(tools["mkfs.ext4"], "-q", "-F", str(image))
    # -o loop gives the device autoclear: it detaches itself at the last umount.
    _run(tools["mount"], "-o", "loop,noatime", str(image), str(mount_point))


def _release(directory: Path) -> None:
    """Thaw, unmount and delete, whatever of it is there; wait for writers to leave, then unmount lazily."""
    mount_point = directory / "mounted"
    give_up = time.monotonic() + _UMOUNT_SECONDS
    while mount_point.is_mount():
        thaw(mount_point)
        lazily = ["-l"] if time.monotonic() > give_up else []
        subprocess.run(
            [_tool("umount"), *lazily, str(mount_point)], timeout=_COMMAND_SECONDS, capture_output=True, check=False
        )
        if time.monotonic() > give_up + _UMOUNT_SECONDS:
            raise OSError(f"{mount_point} cannot be unmounted")
        time.sleep(0.02)
    shutil.rmtree(directory, ignore_errors=True)


def _start_guard(directory: Path, longest_seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", __file__, str(directory), str(longest_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
        guard.communicate(b"done", timeout=_COMMAND_SECONDS)


def _guard(directory: Path, longest_seconds: float) -> None:
    """Wait for the word that all is cleaned up; at the end of the pipe (the test died) or of the time, clean up."""
    readable, _, _ = select.select([sys.stdin], [], [], longest_seconds)
    if not readable or os.read(sys.stdin.fileno(), 4) != b"done":
        _release(directory)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), float(sys.argv[2]))
