"""Runs the container of a pod's manifest by runc, as a kubelet's container runtime would, over a host of our making.

The image is stood in for by this machine's own programs and Python, mounted read-only. What a runtime adds of its own is kept to what
the OCI runtime specification and containerd's CRI plugin make of the fields that the manifests use: capabilities, devices, mounts.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.test_packaging import ROOT

HOST_FOLDERS = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
"""What a program and a Python need, on merged and unmerged distributions."""

CAPABILITIES = """
chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service net_broadcast net_admin
net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time
sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read
""".split()
"""By number (include/uapi/linux/capability.h), those that every runc since 1.0 knows."""

GIVEN = frozenset(
    """
    chown dac_override fsetid fowner mknod net_raw setgid setuid setfcap setpcap net_bind_service sys_chroot kill audit_write
    """.split()
)
"""What containerd gives a container that asks for nothing (defaultUnixCaps in pkg/oci/spec.go)."""


class Runtime:
    """A runc with a state of its own below a directory; containers are gone when their test is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._command = ["runc", "--root", str(place / "state")]

    def run(self, name: str, config: Mapping[str, Any]) -> "subprocess.CompletedProcess[str]":
        """Run a container to its end."""
        return subprocess.run(self._argv(name, config), capture_output=True, text=True, timeout=60, check=False)

    def start(self, name: str, config: Mapping[str, Any]) -> "subprocess.Popen[str]":
        """Run a container in the background; its output goes nowhere."""
        return subprocess.Popen(
            self._argv(name, config),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def signal(self, name: str, signal: str) -> None:
        """Send a signal to a container's first process."""
        subprocess.run([*self._command, "kill", name, signal], capture_output=True, timeout=30, check=False)

    def remove(self, name: str) -> None:
        """Whatever state it is in."""
        subprocess.run([*self._command, "delete", "--force", name], capture_output=True, timeout=30, check=False)

    def _argv(self, name: str, config: Mapping[str, Any]) -> list[str]:
        bundle = self.place / name
        (bundle / "rootfs").mkdir(parents=True)
        for folder in map(Path, HOST_FOLDERS):
            if folder.is_symlink():
                (bundle / "rootfs" / folder.name).symlink_to(folder.readlink())
        (bundle / "config.json").write_text(json.dumps(config))
        return [*self._command, "run", "--bundle", str(bundle), name]


def runtime(place: Path) -> Runtime:
    """A runtime that has proved that it can run a container here; skips the test elsewhere."""
    if shutil.which("runc") is None:
        pytest.skip("needs runc (Debian: runc; tests/install-packages.sh)")
    if os.geteuid() != 0:
        pytest.skip("running containers needs root")
    found = Runtime(place)
    tried = found.run("control", bundle_config(["true"], {}, mounts=[], security={"privileged": True}))
    if tried.returncode != 0:
        pytest.skip(f"runc cannot run a container here: {tried.stderr.strip()[-300:]}")
    return found


def bundle_config(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    mounts: Sequence[Mapping[str, Any]],
    security: Mapping[str, Any],
) -> dict[str, Any]:
    """The config.json of an OCI bundle with the host's PID namespace; `security` is a container's securityContext."""
    privileged = bool(security.get("privileged"))
    allowed = _allowed(security)
    path = f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "ociVersion": "1.0.2",
        "hostname": "a-pod",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "terminal": False,
            "cwd": "/",
            "args": list(argv),
            "user": {"uid": 0, "gid": 0},
            "env": [f"PATH={path}", *(f"{name}={value}" for name, value in environment.items())],
            "capabilities": dict.fromkeys(("bounding", "permitted", "effective"), allowed),
        },
        "mounts": [*_image(), *mounts],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("mount", "ipc", "uts", "network")],
            "resources": {"devices": [{"allow": privileged, "access": "rwm"}]},
        },
    }


def pod_config(pod: Mapping[str, Any], host: Path, variables: Mapping[str, str], log: Path) -> dict[str, Any]:
    """What becomes of a pod's only container: hostPath volumes lie below `host`, `log` is its termination message."""
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
    assert pod["hostPID"] is True
    mounts = [_bound(volumes[mount["name"]], mount, host) for mount in container["volumeMounts"]]
    mounts.append(_bind(log, container.get("terminationMessagePath", "/dev/termination-log"), "rw"))
    environment = {entry["name"]: entry["value"] for entry in container["env"]} | dict(variables)
    # `args` follow the image's entry point, `command` replaces it.
    argv = container.get("command") or ["gpudoctor", *container["args"]]
    return bundle_config(argv, environment, mounts=mounts, security=container["securityContext"])


def _bound(volume: Mapping[str, str], mount: Mapping[str, Any], host: Path) -> dict[str, Any]:
    source = host / volume["path"].lstrip("/")
    if volume["type"] == "DirectoryOrCreate":
        source.mkdir(parents=True, exist_ok=True)
    propagation = {"HostToContainer": "rslave"}.get(mount.get("mountPropagation", ""), "rprivate")
    return _bind(source, mount["mountPath"], "ro" if mount.get("readOnly") else "rw", propagation)


def _bind(source: Path, target: str, mode: str, propagation: str = "rprivate") -> dict[str, Any]:
    options = ["rbind", propagation, mode]
    return {"destination": target, "type": "bind", "source": str(source), "options": options}


def _image() -> list[dict[str, Any]]:
    """The programs and the Python of this machine, and the file systems that every container has."""
    folders = {path for path in map(Path, HOST_FOLDERS) if path.is_dir() and not path.is_symlink()}
    folders |= {path for path in (Path(sys.base_prefix), Path(sys.prefix), ROOT) if not path.is_relative_to("/usr")}
    shared_memory = ["nosuid", "noexec", "nodev", "mode=1777"]
    return [
        *(_bind(path, str(path), "ro") for path in sorted(folders)),
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": shared_memory},
    ]


def _allowed(security: Mapping[str, Any]) -> list[str]:
    """Those of the capabilities asked for that this process has to give."""
    status = Path("/proc/self/status").read_text().splitlines()
    mask = int(next(line for line in status if line.startswith("CapBnd:")).split()[1], 16)
    wanted = set(CAPABILITIES)
    if not security.get("privileged"):
        asked = security.get("capabilities", {})
        wanted = set(() if asked.get("drop") == ["ALL"] else GIVEN) | {name.lower() for name in asked.get("add", ())}
    return [f"CAP_{name.upper()}" for number, name in enumerate(CAPABILITIES) if name in wanted and mask >> number & 1]
