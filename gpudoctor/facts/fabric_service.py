"""The services that set an NVLink fabric up: whether they are this node's to run, whether they run, and since when.

The fabric manager runs where the NVSwitches are: on the node itself (HGX and DGX boards), on the switch trays of a rack (GB200 and GB300
NVL72: NVOS brings it, MNNVL User Guide, Overview), or in the hypervisor or a service machine (Fabric Manager User Guide, Virtualization
Models). From NVLink 5 on it works through NVLSM, which nvidia-fabricmanager-start.sh starts before it (same guide, "NVLink Subnet
Manager"). Read 2026-11-30.
"""

import re

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.driver import MODULES, DriverParameters, NvidiaModule
from gpudoctor.facts.fabric_manager import (
    JOURNAL,
    WANTED,
    FabricManager,
    another,
    completed,
    in_driver_root,
    unseen_fabric,
)
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import NvSwitches, PciGpus
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Entry, Log, TextFile
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

STATE, STATUS, CLIQUE, CLUSTER = "fabric.state", "fabric.status", "fabric.clique_id", "fabric.cluster_uuid"
WAITING = ("not_started", "in_progress")
ZERO_UUID = "00000000-0000-0000-0000-000000000000"
UPTIME = "/proc/uptime"
TICKS = 100
"""USER_HZ, in which /proc/PID/stat counts (proc_pid_stat(5)): 100 on every architecture that NVIDIA's driver runs on."""

NVLSM = "nvlsm"
_COMM = "nv-fabricmanage"
_REASON = pattern(r"[Ff]ail|[Ee]rror|not found|NV_WARN_NOTHING_TO_DO|timed out|exited, code=|unable to")


def text_field(device: NvmlDevice, name: str) -> str:
    """A field's text, "" where it was not answered."""
    value = device.fields.get(name)
    return value if isinstance(value, str) else ""


def in_domain(device: NvmlDevice) -> bool:
    """Whether the GPU has joined an NVLink domain of several nodes: its UUID is not all zeros (nvml.h, nvmlGpuFabricInfo_t)."""
    cluster = text_field(device, CLUSTER)
    return bool(cluster) and cluster != ZERO_UUID and text_field(device, STATE) == "completed"


class FabricService(Fact, frozen=True):
    """The fabric manager with what else decides whether its absence matters.

    `idle` says that it is started where it has nothing to do, `elsewhere` that the fabric of this node is managed by others, or why
    that is not known, `off` that the driver was told to use no NVLink. `differs` is set where the node's own is of another version than
    the driver. `said` are its last words about what failed.
    """

    manager: FabricManager
    idle: Evidence | None = None
    elsewhere: Evidence | Unread | None = None
    off: Evidence | Unread | None = None
    another: Evidence | None = None
    in_driver_root: Evidence | Unread | None = None
    completed: Evidence | None = None
    differs: Reading[bool] = False
    said: Cited = ()

    @property
    def subject(self) -> Subject:
        """The service."""
        return self.manager.subject

    @property
    def runs(self) -> bool:
        """Whether one is seen to run."""
        return self.manager.running is True or self.another is not None

    @property
    def stalls(self) -> bool:
        """Whether the fabric is seen not to be set up: nobody does it, and no GPU has joined."""
        return self.manager.running is False and self.another is None and self.completed is None

    @classmethod
    def gather(cls, desk: Desk) -> "FabricService | Unread":
        """Little is looked at where no fabric is needed."""
        manager = desk.get(FabricManager)
        if isinstance(manager, Unread):
            return manager
        if manager.needed is not True:
            return cls(manager=manager, idle=_idle(desk) if manager.needed is False else None)
        running = manager.running is True
        return cls(
            manager=manager,
            elsewhere=_elsewhere(desk),
            off=_off(desk),
            another=None if running else manager.another or another(desk),
            in_driver_root=None if running else manager.in_driver_root or in_driver_root(desk.raw),
            completed=completed(desk),
            differs=_differs(desk, manager),
            said=() if running else said(desk),
        )


def _idle(desk: Desk) -> Evidence | None:
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread) or not gpus.gpus:
        return None
    link = desk.raw.entry(WANTED)
    return Evidence(WANTED, f"-> {link.to}" if link.to else "exists") if isinstance(link, Entry) else None


def _elsewhere(desk: Desk) -> Evidence | Unread | None:
    switches = desk.get(NvSwitches)
    if isinstance(switches, Unread) or switches.unlisted is not None:
        return None
    if switches.switches:
        lent = all(isinstance(one.driver, str) and one.driver.startswith("vfio") for one in switches)
        return switches.switches[0].cite("driver")[0] if lent else None
    nvml, machine = desk.get(Nvml), desk.get(VirtualMachine)
    for device in () if isinstance(nvml, Unread) else nvml.devices:
        if in_domain(device):
            return device.evidence(CLUSTER)
        if in_rack(device):
            return named(device)
    if isinstance(machine, Unread):
        return machine
    return machine.cite("guest")[0] if machine.guest else None


def in_rack(device: NvmlDevice) -> bool:
    """GB200 and GB300 boards: their switches are in trays of their own."""
    return re.search(r"\bGB[23]00\b", device.name or "") is not None


def named(device: NvmlDevice) -> Evidence:
    """The product's name."""
    return Evidence(f"{device.via} ({device.address or device.uuid})", f"is {device.name}")


def _off(desk: Desk) -> Evidence | Unread | None:
    parameters = desk.get(DriverParameters)
    if isinstance(parameters, Unread):
        return None if parameters.why is Why.NOT_RECORDED else parameters
    return switched_off(desk)


def switched_off(desk: Desk) -> Evidence | None:
    """The module's option NVreg_NvLinkDisable (nv-reg.h of open-gpu-kernel-modules)."""
    parameters = desk.get(DriverParameters)
    if isinstance(parameters, Unread) or parameters.number("NvLinkDisable") != 1:
        return None
    return parameters.evidence("NvLinkDisable")


def _differs(desk: Desk, manager: FabricManager) -> Reading[bool]:
    """As driver-cuda.daemons-match tells it; where that could not see enough, one that does not run may be of another version."""
    if manager.running is True:
        return False
    module = desk.get(NvidiaModule)
    hidden = isinstance(manager.running, Unread) and manager.running.why is not Why.NOT_RECORDED
    stopped = manager.running is False or hidden
    blind = module if isinstance(module, Unread) else module.mute
    if blind is not None:
        return blind if stopped else False
    assert isinstance(module, NvidiaModule)
    if module.version is None:
        return False
    if manager.refusal is not None and manager.refusal.driver == module.version:
        return True
    if stopped and isinstance(manager.enabled, Unread):
        return manager.enabled
    if isinstance(manager.version, Unread):
        unseen = manager.version.why in (Why.NO_PERMISSION, Why.NOT_RECORDED)
        return manager.version if stopped and unseen else False
    return manager.enabled is True and manager.version not in ("", module.version)


def said(desk: Desk) -> Cited:
    """The last two lines of its journal that tell why it ended."""
    log = desk.raw.log(JOURNAL)
    return last_words(log, _REASON) if isinstance(log, Log) else ()


def last_words(log: Log, reason: "re.Pattern[str]") -> Cited:
    """The last two lines of a service's journal in which something is found, without time and host."""
    split_lines = (split(line) for line in log.text.splitlines() if reason.search(line))
    return tuple(Evidence(log.where, message.strip(), at=at or None) for at, message in list(split_lines)[-2:])


def managed_seconds(desk: Desk) -> Reading[tuple[float, Evidence]]:
    """For how long the fabric could have been set up: since the boot, or since a fabric manager was started that is seen to run."""
    file = desk.raw.read(UPTIME)
    words = file.text.split() if isinstance(file, TextFile) else []
    if not words or not re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", words[0]):
        return file if isinstance(file, Unread) else Unread(Why.UNREADABLE, UPTIME, "tells no time")
    up = float(words[0])
    processes = desk.get(Processes)
    found = [one for one in processes.processes if one.comm == _COMM] if isinstance(processes, Processes) else []
    if found and found[0].started:
        age = max(0.0, up - found[0].started / TICKS)
        return age, Evidence(f"/proc/{found[0].pid}/stat", f"{_COMM}, started {age:.0f} s ago")
    return up, Evidence(UPTIME, f"up {up:.0f} s")


class FabricAge(Fact, frozen=True):
    """For how long the fabric could have been set up; looked at only where a GPU has not finished joining it."""

    seconds: Reading[float] | None

    @classmethod
    def gather(cls, desk: Desk) -> "FabricAge | Unread":
        """None where nothing waits."""
        nvml = desk.get(Nvml)
        waits = not isinstance(nvml, Unread) and any(text_field(one, STATE) in WAITING for one in nvml.devices)
        if not waits:
            return cls(seconds=None)
        found = managed_seconds(desk)
        return (
            cls(seconds=found) if isinstance(found, Unread) else cls(seconds=found[0], read_from={"seconds": found[1]})
        )


class SubnetManager(Fact, frozen=True):
    """NVLSM; `board` is None where the node has no NVLink 5 switches of its own.

    `medium` tells that what it speaks through is missing. `starter` is why nobody starts it: the fabric manager, which does, does not run.
    """

    board: Evidence | None
    starter: Evidence | None = None
    running: Evidence | Unread | None = None
    completed: Evidence | None = None
    program: Evidence | Unread | None = None
    medium: Evidence | None = None

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, NVLSM)

    @classmethod
    def gather(cls, desk: Desk) -> "SubnetManager | Unread":
        """By the names that NVML gives, and the processes of the node."""
        board = _board(desk)
        if not isinstance(board, Evidence):
            return cls(board=None) if board is None else board
        finished = completed(desk)
        running = _running(desk)
        if isinstance(running, Evidence) or finished is not None:
            return cls(board=board, running=running, completed=finished)
        # Where NVIDIA's package puts it, and the module of the management datagrams it speaks (Fabric Manager User Guide, NVLSM).
        program = desk.raw.entry("/opt/nvidia/nvlsm/sbin/nvlsm", follow=True)
        found = Evidence(program.where, "exists") if isinstance(program, Entry) else None
        medium = _medium(desk)
        return cls(
            board=board,
            running=running,
            program=program if isinstance(program, Unread) else found,
            medium=medium,
            starter=_starter(desk, ready=medium is None and not isinstance(program, Absent)),
        )


def _medium(desk: Desk) -> Evidence | None:
    """That ib_umad is not loaded."""
    module = desk.raw.entry("/sys/module/ib_umad")
    if isinstance(module, Absent):
        return module.evidence
    if isinstance(module, Entry) or module.why is not Why.NOT_RECORDED:
        return None
    loaded = desk.raw.read(MODULES)
    is_there = not isinstance(loaded, TextFile) or any(line.startswith("ib_umad ") for line in loaded.text.splitlines())
    return None if is_there else Evidence(MODULES, "no line for ib_umad")


def _starter(desk: Desk, *, ready: bool) -> Evidence | None:
    """Of a fabric manager that nobody starts, or that ended though all that NVLSM needs is there, it is no fault that NVLSM is gone too."""
    manager = desk.get(FabricManager)
    if isinstance(manager, Unread) or manager.running is not False or manager.another is not None:
        return None
    return manager.read_from["running"] if ready or manager.enabled is False else None


def _board(desk: Desk) -> Evidence | Unread | None:
    from gpudoctor.knowledge.nvlink_skus import HGX_NVLINK5

    gpus, nvml, machine = desk.get(PciGpus), desk.get(Nvml), desk.get(VirtualMachine)
    if isinstance(gpus, PciGpus) and not gpus.gpus and gpus.unlisted is None:
        return None
    if isinstance(nvml, Unread):
        return nvml
    if not any(HGX_NVLINK5.search(device.name or "") for device in nvml.devices):
        return unseen_fabric(desk)
    if isinstance(machine, Unread):
        return machine if machine.why is not Why.NOT_ANSWERED else None
    if machine.guest:
        return None
    for device in nvml.devices:
        fabric = text_field(device, STATE) not in ("", "not_supported")
        if fabric and HGX_NVLINK5.search(device.name or "") and not in_domain(device):
            return named(device)
    return None


def _running(desk: Desk) -> Evidence | Unread | None:
    processes = desk.get(Processes)
    if isinstance(processes, Unread):
        return processes
    one = next((one for one in processes.processes if one.comm == NVLSM and not one.ended), None)
    if one is not None:
        return Evidence(f"/proc/{one.pid}/comm", NVLSM)
    named = [one for one in processes.processes if one.comm]
    return (
        processes.unlisted if named else Unread(Why.NOT_RECORDED, "/proc", "the names of the processes are not in view")
    )
