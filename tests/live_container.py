"""Starts a real container with runc or crun, its programs those of this machine, with device nodes that nobody opens."""

import contextlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("/usr", "/lib", "/lib64", "/bin")


WITHOUT_UNIFIED = ("unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh")
"""crun refuses a unified hierarchy beside those of v1, so it is not shown one."""


def _command(runtime: str, *arguments: str) -> list[str]:
    return [*(WITHOUT_UNIFIED if runtime == "crun" else ()), runtime, *arguments]


class Container:
    """A running container."""

    def __init__(self, runtime: str, name: str, bundle: Path) -> None:
        self.runtime, self.name, self.bundle = runtime, name, bundle

    @property
    def pid(self) -> int:
        """Its first process."""
        argv = _command(self.runtime, "state", self.name)
        return int(json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)["pid"])


@contextlib.contextmanager
def running(runtime: str, folder: Path, config: dict[str, Any], group: str = "") -> Iterator[Container]:
    """A container of a configuration, to which its programs are added; skips where none can be started."""
    if os.geteuid() != 0:
        pytest.skip("starting containers needs root")
    if shutil.which(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    name = f"gpudoctor-test-{uuid.uuid4().hex[:12]}"
    bundle = folder / name
    for place in ("proc", "dev", "sys", "tmp", "etc", *(path.lstrip("/") for path in PROGRAMS)):
        (bundle / "rootfs" / place).mkdir(parents=True, exist_ok=True)
    # Newer ones are refused by crun 1.8.
    config["ociVersion"] = "1.0.2"
    config["root"] = {"path": "rootfs"}
    config["process"] |= {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/bin/sleep", "600"]}
    config["mounts"] = [*_mounts(), *config.get("mounts", [])]
    config["linux"]["cgroupsPath"] = group or f"/{name}"
    (bundle / "config.json").write_text(json.dumps(config))
    argv = _command(runtime, "run", "--detach", "--bundle", str(bundle), name)
    with (bundle / "said").open("w") as said:
        status = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False).returncode
    if status != 0:
        pytest.skip(f"{runtime} starts no container here: {(bundle / 'said').read_text()[-300:]}")
    try:
        yield Container(runtime, name, bundle)
    finally:
        subprocess.run(_command(runtime, "delete", "--force", name), capture_output=True, check=False)


def _mounts() -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    ]
    for path in PROGRAMS:
        if os.path.isdir(path):
            source = os.path.realpath(path)
            mounts.append({"destination": path, "type": "bind", "source": source, "options": ["rbind", "ro"]})
    return mounts
