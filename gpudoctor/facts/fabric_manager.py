"""NVIDIA's fabric manager: whether this node needs it, whether it is started, and of which version it is.

It compares its version with the driver's when it starts, and ends where they differ. Its words then, as installation guides quote their
journals: "fabric manager NVIDIA GPU driver interface version 570.86.15 don't match with driver version 570.124.06. Please update with
matching NVIDIA driver package." Fabric Manager User Guide: --version; its unit says WantedBy=multi-user.target. Read 2026-11-30.
"""

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import DRIVER_ROOT
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import NvSwitches, PciGpus
from gpudoctor.facts.persistence import SLICES
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, EntryType, Log, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

UNIT = "nvidia-fabricmanager.service"
UNITS = "/etc/systemd/system"
WANTS = f"{UNITS}/multi-user.target.wants"
WANTED = f"{WANTS}/{UNIT}"
JOURNAL = f"journal/{UNIT}.log"
PROGRAM = "/usr/bin/nv-fabricmanager"
COMM = "nv-fabricmanage"
"""Its name as the kernel keeps it, 15 letters of it (proc_pid_comm(5))."""
ASK = ("nv-fabricmanager", "--version")

_SAID = pattern(r"version is\s*:\s*(\d+\.\d+(?:\.\d+)?)")
_REFUSAL = pattern(r"interface version (\d+\.\d+(?:\.\d+)?) don't match with driver version (\d+\.\d+(?:\.\d+)?)[^\n]*")
_STATE, _STATUS, _NO_FABRIC = "fabric.state", "fabric.status", "not_supported"


class Refusal(Struct, frozen=True):
    """What it said last about a driver of another version."""

    version: str
    driver: str
    evidence: Evidence


class FabricManager(Fact, frozen=True):
    """`needed` is whether the GPUs are joined by NVSwitches; nothing else is known where they are not, or where nobody starts it.

    `version` is that of the program on disk, which a running one need not be of; "" where there is no program. `running` is the node's
    own service; where it does not run, `another` is a process of that name, as in a driver container, `in_driver_root` is the program of
    such a container, and `completed` is what NVML says where the fabric is set up on all GPUs.
    """

    needed: Reading[bool]
    enabled: Reading[bool] = False
    running: Reading[bool] = False
    version: Reading[str] = ""
    refusal: Refusal | None = None
    another: Evidence | None = None
    in_driver_root: Evidence | Unread | None = None
    completed: Evidence | None = None

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, "nvidia-fabricmanager")

    @classmethod
    def gather(cls, desk: Desk) -> "FabricManager | Unread":
        """Asks the program for its version only where it is started at boot, or runs."""
        needed, why = _needed(desk)
        if needed is not True:
            return cls(needed=needed, read_from={"needed": why})
        enabled, link = is_enabled(desk.raw, UNIT)
        running, group = is_running(desk.raw, UNIT)
        seen = {"needed": why, "enabled": link, "running": group}
        if enabled is not True and running is not True:
            return cls(needed=True, enabled=enabled, running=running, read_from=seen)
        version, said = _version(desk.raw)
        seen["version"] = said
        if running is True:
            return cls(needed=True, enabled=enabled, running=True, version=version, read_from=seen)
        return cls(
            needed=True,
            enabled=enabled,
            running=running,
            version=version,
            refusal=_refusal(desk.raw),
            another=another(desk),
            in_driver_root=in_driver_root(desk.raw),
            completed=completed(desk),
            read_from=seen,
        )


def _needed(desk: Desk) -> tuple[Reading[bool], Evidence]:
    """By the switches on the bus; those of NVLink 5 are no functions of it, there NVML tells of a fabric (nvml.h, nvmlGpuFabricInfo_t)."""
    switches, nvml = desk.get(NvSwitches), desk.get(Nvml)
    if not isinstance(switches, Unread) and switches.switches:
        shows = f"{len(switches.switches)} NVSwitches, the first at {switches.switches[0].address}"
        return True, Evidence(switches.read_from["listing"].where, shows)
    for device in () if isinstance(nvml, Unread) else nvml.devices:
        state = device.fields.get(_STATE)
        if isinstance(state, str) and state != _NO_FABRIC:
            return True, device.evidence(_STATE)
    if (unseen := unseen_fabric(desk)) is not None:
        return unseen, Evidence(unseen.where, unseen.detail)
    if isinstance(switches, Unread):
        return switches, Evidence(switches.where, switches.detail)
    if switches.unlisted is not None:
        return switches.unlisted, Evidence(switches.unlisted.where, switches.unlisted.detail)
    return False, Evidence(switches.read_from["listing"].where, "no NVSwitch")


def unseen_fabric(desk: Desk) -> Unread | None:
    """Why nobody knows of a fabric: the board's switches are no functions of the bus, and NVML says nothing of it."""
    from gpudoctor.knowledge.nvlink_skus import HGX_NVLINK5_IDS

    gpus, nvml = desk.get(PciGpus), desk.get(Nvml)
    if isinstance(gpus, Unread) or not any(gpu.device_id in HGX_NVLINK5_IDS and gpu.driver == "nvidia" for gpu in gpus):
        return None
    if isinstance(nvml, Unread):
        return nvml
    told = any(_STATE in device.fields for device in nvml.devices)
    return None if told else Unread(Why.NOT_ANSWERED, nvml.via, "tells nothing of the fabric of this NVLink 5 board")


def is_enabled(raw: Raw, unit: str) -> tuple[Reading[bool], Evidence]:
    """Whether the unit is started at boot, by the link that `systemctl enable` makes for WantedBy=multi-user.target."""
    where = f"{WANTS}/{unit}"
    link = raw.entry(where)
    if isinstance(link, Unread):
        return link, Evidence(where, link.detail)
    if isinstance(link, Absent):
        return False, link.evidence
    if isinstance(raw.entry(where, follow=True), Absent):
        return False, Evidence(where, f"leads to {link.to}, which does not exist")
    # systemd.unit(5): a unit file that is a link to /dev/null is masked, it cannot be started.
    mask = raw.entry(f"{UNITS}/{unit}")
    if isinstance(mask, Entry) and mask.to == "/dev/null":
        return False, Evidence(mask.where, "-> /dev/null: masked")
    return True, Evidence(where, f"-> {link.to}" if link.to else "exists")


def is_running(raw: Raw, unit: str) -> tuple[Reading[bool], Evidence]:
    """By its control group; a node has one kind of them, so that a recording need not speak of the others."""
    groups = [raw.entry(f"{place}/{unit}") for place in SLICES]
    group = next((entry for entry in groups if isinstance(entry, Entry) and entry.type is EntryType.DIR), None)
    if group is not None:
        return True, Evidence(group.where, "exists")
    refused = [entry for entry in groups if isinstance(entry, Unread) and entry.why is not Why.NOT_RECORDED]
    gone = [entry for entry in groups if isinstance(entry, Absent)]
    in_view = any(isinstance(raw.entry(place), Entry) for place in SLICES)
    if refused or not gone or not in_view:
        unseen = refused[0] if refused else Unread(Why.NOT_RECORDED, f"{SLICES[0]}/{unit}", "is not in view")
        return unseen, Evidence(unseen.where, unseen.detail)
    return False, gone[0].evidence


def another(desk: Desk) -> Evidence | None:
    """The GPU Operator's driver container starts one of its own beside the driver (NVIDIA/gpu-driver-container, nvidia-driver)."""
    processes = desk.get(Processes)
    if isinstance(processes, Unread):
        return None
    named = (one for one in processes.processes if one.comm == COMM and not one.ended and one.cgroup >= 0)
    found = next((one for one in named if processes.identities[one.cgroup].unit != UNIT), None)
    return Evidence(f"/proc/{found.pid}/comm", found.comm) if found is not None else None


def in_driver_root(raw: Raw) -> Evidence | Unread | None:
    apart = raw.entry(DRIVER_ROOT + PROGRAM, follow=True)
    if isinstance(apart, Entry):
        return Evidence(DRIVER_ROOT + PROGRAM, "exists")
    return apart if isinstance(apart, Unread) and apart.why is not Why.NOT_RECORDED else None


def completed(desk: Desk) -> Evidence | None:
    nvml = desk.get(Nvml)
    if isinstance(nvml, Unread) or not all(_has_joined(device) for device in nvml.devices):
        return None
    return nvml.devices[0].evidence(_STATE) if nvml.devices else None


def _has_joined(device: NvmlDevice) -> bool:
    """A try that failed is completed too: its status, an nvmlReturn_t, tells (NVIDIA/NVSentinel#883)."""
    status = device.fields.get(_STATUS)
    return device.fields.get(_STATE) == "completed" and (status == 0 or not isinstance(status, int))


def _version(raw: Raw) -> tuple[Reading[str], Evidence]:
    program = raw.entry(PROGRAM, follow=True)
    if isinstance(program, Unread):
        return program, Evidence(PROGRAM, program.detail)
    if isinstance(program, Absent):
        return "", program.evidence
    output = raw.command(ASK)
    where = " ".join(ASK)
    if not isinstance(output, CommandOutput):
        unread = output if isinstance(output, Unread) else Unread(Why.UNREADABLE, where, "cannot be run")
        return unread, Evidence(where, unread.detail)
    found = _SAID.search(output.stdout)
    said = found[0] if found else (output.stdout or output.stderr).strip().partition("\n")[0][:100]
    if found is None:
        return Unread(Why.UNREADABLE, where, f"tells no version: {said!r}"), Evidence(where, said or "says nothing")
    return found[1], Evidence(where, said)


def _refusal(raw: Raw) -> Refusal | None:
    log = raw.log(JOURNAL)
    found = list(_REFUSAL.finditer(log.text)) if isinstance(log, Log) else []
    if not found or not isinstance(log, Log):
        return None
    last = found[-1]
    return Refusal(last[1], last[2], Evidence(log.where, f"fabric manager NVIDIA GPU driver {last[0].strip()}"))


def cited(manager: FabricManager, *fields: str) -> Cited:
    """The evidence for those of the fields that were looked at."""
    return tuple(manager.read_from[field] for field in fields if field in manager.read_from)
