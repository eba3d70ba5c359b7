"""Boot scenarios in QEMU and read back what the guest sent."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .guest_image import GuestParts, write_image
from .kernel import Kernel
from .scenarios import Scenario

BOOT_SECONDS = 120.0
SCENARIO_SECONDS = 120.0
COMMAND_LINE = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on no_timer_check"


class GuestFailed(Exception):
    """The machine did not send its results; the message ends with what its console showed."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step printed, its exit code, and how long it took by the guest's own clock."""

    stdout: str
    stderr: str
    exit_code: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GuestRun:
    """One scenario of a finished boot. `folder` holds what the guest sent of it: before/, after/, steps/, files/, dmesg."""

    scenario: Scenario
    folder: Path

    def step(self, name: str) -> StepResult:
        """The result of the step with this name."""
        at = self.folder / "steps" / name
        started, ended = (float((at / moment).read_text()) for moment in ("started", "ended"))
        exit_code = int((at / "exit").read_text())
        return StepResult((at / "stdout").read_text(), (at / "stderr").read_text(), exit_code, ended - started)

    def fetched(self, path: str) -> Path:
        """Where a file or folder of the guest, named in the scenario's `fetch`, lies on this machine."""
        return self.folder / "files" / path.lstrip("/")

    def text(self, name: str) -> str:
        """One of the guest's notes, such as `before/modules` or `dmesg`."""
        return (self.folder / name).read_text(errors="backslashreplace")


def boot(kernel: Kernel, parts: GuestParts, scenarios: tuple[Scenario, ...], folder: Path) -> dict[str, GuestRun]:
    """Run scenarios on one machine, one after the other, and unpack their results below `folder`. Raises GuestFailed."""
    console, results = folder / "console.txt", folder / "results.tar.gz"
    with tempfile.TemporaryDirectory(prefix="gpudoctor-vm-") as scratch:
        image = Path(scratch, "initramfs")
        write_image(parts, scenarios, image)
        limit = BOOT_SECONDS + SCENARIO_SECONDS * len(scenarios)
        _run_qemu(_qemu_command(kernel, image, console, results), console, limit)
    _unpack(results, folder, console)
    runs = {scenario.name: GuestRun(scenario, folder / scenario.name) for scenario in scenarios}
    for name, run in runs.items():
        if run.text("prepare.exit").split() != ["0"] or run.text("undo.exit").split() != ["0"]:
            raise GuestFailed(
                f"preparing or undoing {name} failed:\n{run.text('shell.log')}{run.text('dmesg')[-2000:]}"
            )
    return runs


# Emulation in software only: a /dev/kvm that is there may still fail, as nested ones do, after the machine started.
def _qemu_command(kernel: Kernel, image: Path, console: Path, results: Path) -> list[str]:
    return [
        *("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1024"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(kernel.image), "-initrd", str(image), "-append", COMMAND_LINE),
        *("-serial", f"file:{console}", "-serial", f"file:{results}"),
    ]


def _run_qemu(command: list[str], console: Path, limit: float) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as late:
        raise GuestFailed(f"no end after {limit:g} s\n{_tail(console)}") from late
    if ended.returncode != 0:
        raise GuestFailed(f"qemu ended with {ended.returncode}: {ended.stderr}\n{_tail(console)}")


def _unpack(results: Path, folder: Path, console: Path) -> None:
    command = ["tar", "-C", str(folder), "-xzf", str(results), "--no-same-owner"]
    unpacked = subprocess.run(command, capture_output=True, text=True, check=False)
    if unpacked.returncode != 0:
        raise GuestFailed(f"what the guest sent is incomplete: {unpacked.stderr}\n{_tail(console)}")


def _tail(console: Path) -> str:
    return console.read_text(errors="backslashreplace")[-4000:] if console.exists() else "(nothing on the console)"
