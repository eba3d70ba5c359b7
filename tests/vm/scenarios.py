"""The table of scenarios: how each node is prepared, what is run on it, what comes back. One boot each."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

DRIVER_VERSION = "550.163.01"
GPU_ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))
DEADLINE_SECONDS = 6.0
SNAPSHOT = "/tmp/snap"

LOAD_PCI = "insmod $STANDIN_MODULES/standin_pci.ko gpus={gpus}"
LOAD_DRIVER = "insmod $STANDIN_MODULES/nvidia.ko"
MAKE_NODES = (
    "mknod -m 666 /dev/nvidiactl c 195 255",
    "for minor in $(seq 0 $(({gpus} - 1))); do mknod -m 666 /dev/nvidia$minor c 195 $minor; done",
)


@dataclass(frozen=True, slots=True)
class Step:
    """A shell command in the guest, whose output, exit code and duration come back under `name`."""

    name: str
    command: str
    as_user: bool = False

    def script(self) -> str:
        """The text the guest's shell runs."""
        return f"exec su operator -c {shlex.quote(self.command)}\n" if self.as_user else f"{self.command}\n"


RUN = Step("run", "gpudoctor run --format json")
RECORD = Step("record", f"gpudoctor record -o {SNAPSHOT} --raw")
START_UP = Step("start-up", "gpudoctor --version")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A node in one state.

    `prepare` are shell lines run before the first look, `{gpus}` in them the number of GPUs on the bus. `nvml` adds to
    the healthy answers of the NVML stand-in. `replayed` names the step whose report a replay of SNAPSHOT must equal.
    `left_behind` are the names of the doctor's processes that nothing can end. `node_opens` is how often NVML, and
    nobody else, opens a device node in all steps together.
    """

    name: str
    story: str
    prepare: tuple[str, ...]
    steps: tuple[Step, ...] = (START_UP, RUN, RECORD)
    gpus: int = 4
    nvml: Mapping[str, object] = field(default_factory=dict)
    fetch: tuple[str, ...] = (SNAPSHOT,)
    replayed: str | None = "run"
    left_behind: tuple[str, ...] = ()
    node_opens: int = 0

    def prepare_script(self) -> str:
        """The shell script that prepares the node; its first failing line ends it."""
        return "".join(line.replace("{gpus}", str(self.gpus)) + "\n" for line in self.prepare)

    def nvml_answers(self) -> str:
        """The JSON that drives the NVML stand-in (tests/standin/README.md)."""
        devices = [_nvml_device(index) for index in range(self.gpus)]
        healthy = {"driver_version": DRIVER_VERSION, "nvml_version": f"12.{DRIVER_VERSION}"}
        return json.dumps({**healthy, "cuda_driver_version": 12040, "devices": devices, **self.nvml}, indent=1)


def _nvml_device(index: int) -> dict[str, object]:
    return {
        "uuid": f"GPU-57a2d100-0000-4000-8000-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"0000{GPU_ADDRESSES[index]}".upper(),
        "pci_device_id": 0x233010DE,
        "pci_subsystem_id": 0x16C110DE,
        "minor": index,
        "architecture": 9,
        "compute_capability": [9, 0],
        "persistence_mode": 1,
        "compute_mode": 0,
        "mig_mode": 0,
        "ecc_mode": 1,
        "memory": {"total": 85520809984, "reserved": 603979776, "free": 84916830208, "used": 0},
        "vbios_version": "96.00.74.00.09",
        "pcie_link_generation": 5,
        "max_pcie_link_generation": 5,
        "pcie_link_width": 16,
        "max_pcie_link_width": 16,
        "power_milliwatts": 71000,
    }


# The doctor's report through a pipe, as in `gpudoctor | less`: nobody may hold the pipe open after it.
_STUCK_RUN = f"gpudoctor run --deadline {DEADLINE_SECONDS:g} --format json | cat"
# One line "/proc/PID/comm" for each.
_LIST_WORKERS = "grep -lx gpudoctor-nvml /proc/[0-9]*/comm"

SCENARIOS = (
    Scenario(
        "healthy",
        "GPUs on the bus, held by the driver, nodes made, NVML answering.",
        (LOAD_PCI, LOAD_DRIVER, *MAKE_NODES),
        (
            START_UP,
            RUN,
            RECORD,
            Step("run-as-user", RUN.command, as_user=True),
            Step("replay", f"gpudoctor run --node {SNAPSHOT} --format json"),
        ),
    ),
    Scenario(
        "module-not-loaded",
        "GPUs on the bus, nodes made by static rules, no driver: opening a node would make the kernel load it.",
        (LOAD_PCI, *MAKE_NODES),
    ),
    Scenario(
        "gpu-refused",
        "The driver is loaded and refused one GPU of four; why is in the kernel log only.",
        (LOAD_PCI, f"{LOAD_DRIVER} refuse=4", *MAKE_NODES),
    ),
    Scenario(
        "worker-stuck",
        "The driver never answers: whoever asks it sleeps uninterruptibly, out of reach of SIGKILL.",
        (LOAD_PCI, f"{LOAD_DRIVER} hang=1", *MAKE_NODES),
        (
            START_UP,
            Step("run", _STUCK_RUN),
            Step("workers-after-first", _LIST_WORKERS),
            Step("run-again", _STUCK_RUN),
            Step("workers-after-second", _LIST_WORKERS),
            Step("record", f"gpudoctor record -o {SNAPSHOT} --raw --deadline {DEADLINE_SECONDS:g}"),
        ),
        nvml={"hang": {"call": "nvmlInit_v2", "how": "ioctl", "path": "/dev/nvidiactl"}},
        replayed="run-again",
        left_behind=("gpudoctor-nvml",),
        node_opens=1,
    ),
)
