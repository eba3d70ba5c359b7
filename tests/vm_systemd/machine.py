"""Boot a guest in QEMU under one of the cgroup hierarchies, and read back what it sent."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vm.kernel import Kernel
from tests.vm.machine import GuestFailed

from .image import Image

SECONDS = 1500.0
"""Emulated on a busy machine."""
COMMAND_LINE = (
    "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on no_timer_check audit=0"
    " systemd.unit=trial.service systemd.show_status=0 systemd.log_target=console systemd.log_level=warning"
)
HIERARCHY = {"v2": "", "v1": " systemd.unified_cgroup_hierarchy=0"}


@dataclass(frozen=True, slots=True)
class TrialRun:
    """What one boot sent: `trial` is what the guest saw, `folder` holds reports and snapshots of before and after."""

    suite: str
    hierarchy: str
    trial: dict[str, Any]
    folder: Path

    def report(self, moment: str) -> dict[str, Any]:
        """What the doctor said in the guest."""
        report: dict[str, Any] = json.loads((self.folder / f"{moment}.json").read_text("utf-8"))
        return report

    def snapshot(self, moment: str) -> Path:
        """What it recorded there."""
        return self.folder / moment

    def of(self, name: str, moment: str) -> dict[str, Any]:
        """What was seen of a container."""
        seen: dict[str, Any] = self.trial["moments"][moment]["containers"][name]
        return seen

    def containers(self, moment: str) -> list[dict[str, Any]]:
        """Those that were looked at, with the `key` that the doctor knows them by."""
        found: list[dict[str, Any]] = self.trial["anew" if moment.startswith("anew") else "containers"]
        return found


def boot(kernel: Kernel, image: Image, suite: str, hierarchy: str, folder: Path) -> TrialRun:
    """Run all containers on one machine. Raises GuestFailed with what it said last."""
    console, results = folder / "console.txt", folder / "results.tar.gz"
    command = [
        *("nice", "-n", "19", "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "2"),
        *("-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(kernel.image), "-initrd", str(image.archive), "-append", COMMAND_LINE + HIERARCHY[hierarchy]),
        *("-drive", f"file={image.disk},format=raw,if=virtio,snapshot=on"),
        *("-serial", f"file:{console}", "-serial", f"file:{results}"),
    ]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        raise GuestFailed(f"no end after {SECONDS:g} s\n{_tail(console)}") from late
    unpack = ["tar", "-C", str(folder), "-xzf", str(results), "--no-same-owner"]
    unpacked = subprocess.run(unpack, capture_output=True, text=True, check=False)
    if ended.returncode != 0 or unpacked.returncode != 0:
        raise GuestFailed(f"the guest sent nothing: {ended.stderr}{unpacked.stderr}\n{_tail(console)}")
    trial = json.loads((folder / "trial.json").read_text("utf-8"))
    if "failure" in trial:
        raise GuestFailed(f"{trial['failure']}\n{_tail(console)}")
    return TrialRun(suite, hierarchy, trial, folder)


def _tail(console: Path) -> str:
    return console.read_text(errors="backslashreplace")[-4000:] if console.exists() else "(nothing on the console)"
