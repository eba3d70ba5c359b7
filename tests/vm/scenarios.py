"""The table of scenarios: how each node is prepared, what is run on it, what comes back and what must be said."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

DRIVER_VERSION = "550.163.01"
GPU_ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))
DEADLINE_SECONDS = 12.0
SNAPSHOT = "/tmp/snap"
NODE = "node"

LOAD_PCI = "insmod $STANDIN_MODULES/standin_pci.ko gpus={gpus}"
LOAD_DRIVER = "insmod $STANDIN_MODULES/nvidia.ko"
LOAD_RIVAL = "insmod $STANDIN_MODULES/rival.ko"
MAKE_NODES = (
    "mknod -m 666 /dev/nvidiactl c 195 255",
    "for minor in $(seq 0 $(({gpus} - 1))); do mknod -m 666 /dev/nvidia$minor c 195 $minor; done",
)


HEALTHY = (LOAD_PCI, LOAD_DRIVER, *MAKE_NODES)


@dataclass(frozen=True, slots=True)
class Step:
    """A shell command in the guest, whose output, exit code and duration come back under `name`."""

    name: str
    command: str
    as_user: bool = False

    def script(self) -> str:
        """The text the guest's shell runs."""
        return f"exec su operator -c {shlex.quote(self.command)}\n" if self.as_user else f"{self.command}\n"


# The stand-in for the driver binds GPUs only: of the guest's NVSwitch it would rightly be said that nobody holds it.
SKIPPED = "fabric.switches-seen"
DOCTOR = f"gpudoctor run --skip {SKIPPED}"
RUN = Step("run", f"{DOCTOR} --format json")
RECORD = Step("record", f"gpudoctor record -o {SNAPSHOT} --raw")
START_UP = Step("start-up", "gpudoctor --version")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says of a subject: a GPU by its address, or the node. Its summary and evidence hold all the words."""

    check: str
    subject: str
    words: tuple[str, ...]
    status: str = "fail"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A node in one state.

    `on` are shell lines that build the node, `{gpus}` in them the number of GPUs on the bus, and `change` those that bring
    it into this state. With `undo`, which takes the change back, it shares a boot with others on the same node.
    `exit_code`, `causes` (all root causes, subject by subject) and `also` (other findings) are what the `run` step says.
    `nvml` adds to the healthy answers of the NVML stand-in, `nvml_gpus` to those about single GPUs. `replayed` names the
    step whose report a replay of SNAPSHOT must equal. `left_behind` are the names of the doctor's processes that nothing
    can end. `node_opens` is how often NVML, and nobody else, opens a device node in all steps together.
    """

    name: str
    story: str
    on: tuple[str, ...] = HEALTHY
    change: tuple[str, ...] = ()
    undo: tuple[str, ...] | None = None
    exit_code: int = 0
    causes: tuple[Finding, ...] = ()
    also: tuple[Finding, ...] = ()
    steps: tuple[Step, ...] = (RUN, RECORD)
    gpus: int = 4
    nvml: Mapping[str, object] = field(default_factory=dict)
    nvml_gpus: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    fetch: tuple[str, ...] = (SNAPSHOT,)
    replayed: str | None = "run"
    left_behind: tuple[str, ...] = ()
    node_opens: int = 0

    def prepare_script(self, on_new_node: bool) -> str:
        """The shell script that brings the node into this state; its first failing line ends it."""
        lines = (*self.on, *self.change) if on_new_node else self.change
        return "".join(line.replace("{gpus}", str(self.gpus)) + "\n" for line in lines)

    def nvml_answers(self) -> str:
        """The JSON that drives the NVML stand-in (tests/standin/README.md)."""
        devices = [{**_nvml_device(index), **self.nvml_gpus.get(index, {})} for index in range(self.gpus)]
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
_STUCK_RUN = f"{DOCTOR} --deadline {DEADLINE_SECONDS:g} --format json | cat"
_STUCK_RECORD = Step(RECORD.name, f"{RECORD.command} --deadline {DEADLINE_SECONDS:g}")
# One line "/proc/PID/comm" for each.
_LIST_WORKERS = "grep -lx gpudoctor-nvml /proc/[0-9]*/comm"

# The four GPUs of most scenarios, in the order of their minors.
_GPU0, _GPU1, _GPU2, _GPU3 = _GPUS = GPU_ADDRESSES[:4]
_SYSFS = "/sys/bus/pci/devices"
_LOST = "/sys/module/standin_pci/parameters/lost"
_XID_79 = f"NVRM: Xid (PCI:{_GPU2.removesuffix('.0')}): 79, pid=0, GPU has fallen off the bus."
_BOUND = "kernel-module.gpu-bound"
_NODE = "device-nodes.gpu-node"


def _unbound(addresses: tuple[str, ...], *words: str) -> tuple[Finding, ...]:
    return tuple(Finding(_BOUND, address, ("held by no driver", *words)) for address in addresses)


def _held_by(driver: str, addresses: tuple[str, ...]) -> tuple[Finding, ...]:
    words = (f"held by {driver}, not by nvidia", f"drivers/{driver}")
    return tuple(Finding(_BOUND, address, words) for address in addresses)


SCENARIOS = (
    Scenario(
        "healthy",
        "GPUs on the bus, held by the driver, nodes made, NVML answering.",
        undo=(),
        steps=(
            START_UP,
            RUN,
            RECORD,
            Step("run-as-user", RUN.command, as_user=True),
            Step("replay", f"{DOCTOR} --node {SNAPSHOT} --format json"),
        ),
    ),
    Scenario(
        "expect-more-gpus",
        "Four healthy GPUs where the configuration expects eight.",
        change=("mkdir -p /etc/gpudoctor", "echo 'expect.gpus = 8' >/etc/gpudoctor/config.toml"),
        undo=("rm -r /etc/gpudoctor",),
        exit_code=2,
        causes=(Finding("pcie.gpus-present", NODE, ("4 of 8 expected GPUs", "expect.gpus = 8")),),
    ),
    Scenario(
        "no-gpu-at-all",
        "Only an NVSwitch and an audio function of NVIDIA are on the bus; the driver is loaded and finds nothing.",
        (LOAD_PCI, LOAD_DRIVER),
        exit_code=2,
        causes=(Finding("pcie.gpus-present", NODE, ("no NVIDIA GPU on the PCI bus", "0 of them NVIDIA display")),),
        gpus=0,
    ),
    Scenario(
        "narrow-link",
        "The link between a root port and its GPU trained half its lanes.",
        (f"{LOAD_PCI} lanes=16,8", LOAD_DRIVER, *MAKE_NODES),
        exit_code=1,
        causes=(
            Finding(
                "pcie.link-width",
                _GPU1,
                (f"the link 0000:42:00.0 to {_GPU1} runs 8 of 16 lanes", f"{_GPU1}/current_link_width: 8"),
                "warn",
            ),
        ),
        also=(Finding("pcie.link-width", _GPU0, ("16 lanes",), "pass"),),
    ),
    Scenario(
        "no-port-visible",
        "As in a virtual machine, no port above the GPUs is there: whether eight lanes are too few cannot be said.",
        (f"{LOAD_PCI} ports=0 lanes=16,8", LOAD_DRIVER, *MAKE_NODES),
        also=(Finding("pcie.link-width", _GPU1, ("no port above it is visible",), "skip"),),
    ),
    Scenario(
        "gpu-asleep",
        "A GPU that nobody uses sleeps, and has to be left asleep.",
        change=(
            f"echo auto >{_SYSFS}/{_GPU1}/power/control",
            f"until grep -q suspended {_SYSFS}/{_GPU1}/power/runtime_status; do sleep 0.1; done",
        ),
        # That nothing woke it means something only if waking shows.
        undo=(f"echo on >{_SYSFS}/{_GPU1}/power/control", "grep -x 1 /sys/module/nvidia/parameters/wakes"),
        exit_code=3,
        also=(
            Finding("pcie.power-state", _GPU1, ("suspended",), "pass"),
            Finding("pcie.gpu-responds", _GPU1, ("would wake the GPU up", "withheld"), "unknown"),
            Finding("pcie.link-width", _GPU1, ("would wake the GPU up", "withheld"), "unknown"),
            Finding("driver-cuda.nvml-answers", _GPU1, ("would wake it up", "withheld"), "unknown"),
            Finding("driver-cuda.nvml-answers", _GPU2, ("NVML index 2",), "pass"),
        ),
    ),
    Scenario(
        "module-not-loaded",
        "GPUs on the bus, nodes made by static rules, no driver: opening a node would make the kernel load it.",
        (LOAD_PCI, *MAKE_NODES),
        undo=(),
        exit_code=2,
        causes=_unbound(_GPUS, "the nvidia module is not loaded", "no line for nvidia"),
    ),
    Scenario(
        "module-blacklisted",
        "No driver, because a file in modprobe.d forbids it.",
        (LOAD_PCI, *MAKE_NODES),
        ("mkdir -p /etc/modprobe.d", "echo 'blacklist nvidia' >/etc/modprobe.d/no-nvidia.conf"),
        ("rm -r /etc/modprobe.d",),
        exit_code=2,
        causes=_unbound(_GPUS, "told not to load it", "/etc/modprobe.d/no-nvidia.conf: blacklist nvidia"),
    ),
    Scenario(
        "nouveau-holds-all",
        "nouveau came first and holds every GPU; nvidia, loaded after it, found none and left again.",
        (LOAD_PCI, *MAKE_NODES),
        (f"{LOAD_RIVAL} name=nouveau", LOAD_DRIVER, "rmmod nvidia"),
        ("rmmod rival",),
        exit_code=2,
        causes=_held_by("nouveau", _GPUS),
    ),
    Scenario(
        "gpu-refused",
        "The driver is loaded and refused one GPU of four; why is in the kernel log only.",
        (LOAD_PCI, f"{LOAD_DRIVER} refuse=4", *MAKE_NODES),
        exit_code=2,
        causes=_unbound((_GPU2,), f"NVRM: GPU {_GPU2}: the stand-in driver was told to refuse this GPU"),
    ),
    Scenario(
        "one-gpu-unbound",
        "Somebody took one GPU from the driver through sysfs.",
        change=(f"echo {_GPU3} >/sys/bus/pci/drivers/nvidia/unbind",),
        undo=(f"echo {_GPU3} >/sys/bus/pci/drivers/nvidia/bind",),
        exit_code=2,
        causes=_unbound((_GPU3,), "although the nvidia module is loaded", f"no driver is bound to {_GPU3}"),
    ),
    Scenario(
        "vfio-holds-one",
        "One GPU of four is set aside for a virtual machine.",
        change=(
            f"echo vfio-pci >{_SYSFS}/{_GPU1}/driver_override",
            f"echo {_GPU1} >/sys/bus/pci/drivers/nvidia/unbind",
            f"{LOAD_RIVAL} name=vfio-pci",
        ),
        undo=(
            "rmmod rival",
            f"echo >{_SYSFS}/{_GPU1}/driver_override",
            f"echo {_GPU1} >/sys/bus/pci/drivers/nvidia/bind",
        ),
        exit_code=2,
        causes=_held_by("vfio-pci", (_GPU1,)),
    ),
    Scenario(
        "node-missing",
        "One device node is gone.",
        change=("rm /dev/nvidia3",),
        undo=("mknod -m 666 /dev/nvidia3 c 195 3",),
        exit_code=2,
        causes=(Finding(_NODE, _GPU3, ("/dev/nvidia3 is missing", "Device Minor: 3", "does not exist")),),
    ),
    Scenario(
        "node-of-another-gpu",
        "One GPU's node carries the numbers of the next one.",
        change=("rm /dev/nvidia1", "mknod -m 666 /dev/nvidia1 c 195 2"),
        undo=("rm /dev/nvidia1", "mknod -m 666 /dev/nvidia1 c 195 1"),
        exit_code=2,
        causes=(Finding(_NODE, _GPU1, ("/dev/nvidia1 is 195:2, expected 195:1", "Device Minor: 1")),),
    ),
    Scenario(
        "node-is-a-file",
        "Somebody redirected output into a node that was not there.",
        change=("rm /dev/nvidia0", "echo test >/dev/nvidia0"),
        undo=("rm /dev/nvidia0", "mknod -m 666 /dev/nvidia0 c 195 0"),
        exit_code=2,
        causes=(Finding(_NODE, _GPU0, ("/dev/nvidia0 is a regular file", "not a device node")),),
    ),
    Scenario(
        "control-node-missing",
        "Every GPU has its node, but the one that programs open first is gone.",
        change=("rm /dev/nvidiactl",),
        undo=("mknod -m 666 /dev/nvidiactl c 195 255",),
        exit_code=2,
        causes=(Finding("device-nodes.control-node", NODE, ("/dev/nvidiactl is missing",)),),
    ),
    Scenario(
        "modes-changed-by-hand",
        "Somebody took a node away from ordinary users.",
        change=("chmod 600 /dev/nvidia2",),
        undo=("chmod 666 /dev/nvidia2",),
        exit_code=1,
        causes=(
            Finding(
                "device-nodes.modes",
                NODE,
                ("1 of 5 nodes are not 0666", "/dev/nvidia2 0600", "DeviceFileMode: 438"),
                "warn",
            ),
        ),
    ),
    Scenario(
        "gpu-off-the-bus",
        "A GPU left the bus while the driver held it: its registers read all ones, NVML and the kernel log say so.",
        change=(f"echo 4 >{_LOST}", f"echo '{_XID_79}' >/dev/kmsg"),
        undo=(f"echo 0 >{_LOST}",),
        exit_code=2,
        causes=(Finding("pcie.gpu-responds", _GPU2, ("does not answer", f"{_GPU2}/config: ff ff ff ff", _XID_79)),),
        also=(Finding("driver-cuda.nvml-answers", _GPU2, ("NVML_ERROR_GPU_IS_LOST",)),),
        nvml_gpus={2: {"errors": {"handle": 15}}},
    ),
    Scenario(
        "information-hangs",
        "Reading what the driver says of one GPU never returns, out of reach of SIGKILL.",
        (LOAD_PCI, f"{LOAD_DRIVER} hang_information=2", *MAKE_NODES),
        exit_code=3,
        also=(
            Finding(_NODE, _GPU0, ("/dev/nvidia0 is 195:0",), "pass"),
            Finding(_NODE, _GPU1, (f"gpus/{_GPU1}/information", "did not return", "timed-out"), "unknown"),
            Finding("kernel-module.flavour-fits", _GPU0, ("runs with the",), "pass"),
        ),
        steps=(START_UP, Step("run", _STUCK_RUN), _STUCK_RECORD),
        left_behind=("gpudoctor-files", "gpudoctor-files"),
    ),
    Scenario(
        "upgrade-waits",
        "Another version of the module lies on disk, and a process holds the loaded one.",
        (
            *HEALTHY,
            "printf '#!/bin/sh\\necho filename: /lib/modules/nvidia.ko\\necho version: 550.200.01\\n' >/sbin/modinfo",
            "chmod 755 /sbin/modinfo",
            "sleep 600 </dev/nvidia1 &",
        ),
        exit_code=1,
        causes=(
            Finding(
                "driver-cuda.module-on-disk",
                NODE,
                ("550.163.01 is loaded, 550.200.01 is on disk", "1 process holds", "sleep", "/dev/nvidia1 open"),
                "warn",
            ),
        ),
        node_opens=1,
    ),
    Scenario(
        "task-stuck",
        "A program sleeps uninterruptibly in the driver while NVML goes on answering.",
        (
            LOAD_PCI,
            f"{LOAD_DRIVER} hang=1",
            *MAKE_NODES,
            # Asks the node for a terminal's settings by an ioctl.
            "stty -F /dev/nvidiactl &",
        ),
        exit_code=2,
        causes=(
            Finding(
                "driver-cuda.no-stuck-task",
                NODE,
                ("1 task sleeps uninterruptibly in the driver: stty", "standin_wait_for_firmware", "[nvidia]"),
            ),
        ),
        also=tuple(Finding("driver-cuda.nvml-answers", address, ("NVML index",), "pass") for address in _GPUS),
        node_opens=1,
    ),
    Scenario(
        "kernel-oopsed",
        "The kernel has met an oops since it booted; its out-of-tree modules taint it as well, which is no news.",
        (*HEALTHY, "echo 128 >/proc/sys/kernel/tainted"),
        exit_code=1,
        causes=(Finding("kernel-module.kernel-unharmed", NODE, ("an oops or BUG (taint D)",), "warn"),),
    ),
    Scenario(
        "worker-stuck",
        "The driver never answers: whoever asks it sleeps uninterruptibly, out of reach of SIGKILL.",
        (LOAD_PCI, f"{LOAD_DRIVER} hang=1", *MAKE_NODES),
        exit_code=2,
        causes=tuple(
            Finding("driver-cuda.nvml-answers", address, ("in state D", "standin_wait_for_firmware"))
            for address in _GPUS
        ),
        steps=(
            START_UP,
            Step("run", _STUCK_RUN),
            Step("workers-after-first", _LIST_WORKERS),
            Step("run-again", _STUCK_RUN),
            Step("workers-after-second", _LIST_WORKERS),
            _STUCK_RECORD,
        ),
        nvml={"hang": {"call": "nvmlInit_v2", "how": "ioctl", "path": "/dev/nvidiactl"}},
        replayed="run-again",
        left_behind=("gpudoctor-nvml",),
        node_opens=1,
    ),
)


def boots() -> tuple[tuple[Scenario, ...], ...]:
    """The scenarios that share each boot, in the order of the table: those that undo their change, on one node."""
    shared: dict[object, list[Scenario]] = {}
    for scenario in SCENARIOS:
        node = (scenario.on, scenario.gpus) if scenario.undo is not None else scenario.name
        shared.setdefault(node, []).append(scenario)
    return tuple(tuple(scenarios) for scenarios in shared.values())
