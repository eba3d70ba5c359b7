"""What is seen of one traced workload: its process, its nodes, its rules, its libraries, all read once before any step is judged."""

import re
from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.cgroup_places import CgroupMounts
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.device_nodes import NVIDIA_MAJOR, Majors
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.gpu_variables import Variables
from gpudoctor.facts.gpu_workloads import GpuWorkload
from gpudoctor.facts.inner_libraries import InnerLibraries, look_for_libraries
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.process_status import (
    Cpus,
    LockedMemory,
    ProcessStatus,
    parse_cpus,
    read_locked_memory,
    read_status,
)
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Contents, Entry, Raw, TextFile
from gpudoctor.facts.toolkit_cgroups import ToolkitCgroups
from gpudoctor.facts.unit_devices import UnitDevices
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_access import is_selective
from gpudoctor.facts.workload_denials import Around
from gpudoctor.facts.workload_devices import Devices, WorkloadDevices, devices_of
from gpudoctor.facts.workload_rules import MOUNTINFO, WorkloadRules
from gpudoctor.facts.workload_wishes import Wishes, WorkloadWishes, wishes_of
from gpudoctor.facts.workloads import Workloads
from gpudoctor.tracing.slurm_side import JobSide, look_at_job
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

LIBRARY_PATH = "LD_LIBRARY_PATH"
INFINIBAND = "/dev/infiniband"
SYS_DEVICES = "/sys/bus/pci/devices"
_NUMBER = re.compile(r"-?\d{1,5}")


class Nearness(Struct, frozen=True):
    """Which CPUs are near a GPU; `node` is -1 where the platform does not tell (Documentation/ABI/testing/sysfs-bus-pci, numa_node)."""

    address: str
    node: int | None
    cpus: Cpus | None
    evidence: Evidence


class Sight(Struct, frozen=True):
    """All that the steps judge a workload by.

    `given` are the minors of the GPUs it may use, of the nodes inside: where it is `selective`, with the node's whole /dev or in the cgroup
    of a job, the nodes of others lie there, too. `shared` are namespaces by name, and whether it has each in common with the node's first
    process; None where they could not be compared. `slurm` is what the controller gave to a job, as far as it was asked.
    """

    concerned: GpuWorkload
    rules: CgroupRules | Unread
    around: Around
    selective: bool
    given: tuple[int, ...]
    status: ProcessStatus | Absent | Unread
    locked: LockedMemory | Absent | Unread
    libraries: InnerLibraries
    shared: Mapping[str, bool | None]
    minors: Mapping[int, str]
    nearness: Mapping[str, Nearness | Unread]
    infiniband: Contents | Absent | Unread
    module: NvidiaModule | Unread
    majors: Majors | Unread
    slurm: JobSide | None = None

    @property
    def workload(self) -> Workload:
        """The workload, led by the traced process."""
        return self.concerned.workload

    @property
    def devices(self) -> Devices | Absent | Unread:
        """Nodes and mounts as the traced process sees them."""
        return self.concerned.devices

    @property
    def wishes(self) -> Wishes:
        """Who asked for what."""
        return self.concerned.wishes

    @property
    def pid(self) -> int:
        """The traced process."""
        return self.workload.pid

    @property
    def config(self) -> OciConfig | None:
        """What its engine told the runtime, where that is known."""
        return self.workload.config if isinstance(self.workload.config, OciConfig) else None

    @property
    def contained(self) -> bool:
        """Whether it is in a container."""
        return self.workload.kind is GroupKind.CONTAINER

    @property
    def hosts_own(self) -> bool:
        """Whether it sees the node's own /dev, as every process does that nothing set apart."""
        return self.shared.get("mnt") is True or (isinstance(self.devices, Devices) and self.devices.whole_dev)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The GPUs it was given, by PCI address."""
        return tuple(self.minors[minor] for minor in self.given if minor in self.minors)

    @property
    def variables(self) -> Variables | Unread:
        """The variables of the traced process."""
        said = self.wishes.variables
        if isinstance(said, Absent):
            return Unread(Why.UNREADABLE, said.where, "does not exist: the process is gone")
        return said

    def environ(self, name: str) -> Cited:
        """A variable of the traced process as evidence, set or not."""
        where = f"/proc/{self.pid}/environ"
        if not isinstance(self.wishes.variables, Variables):
            return (Evidence(where, self.wishes.variables.detail),)
        value = self.wishes.variable(name)
        return (Evidence(where, f"{name} is not set" if value is None else f"{name}={value}"),)


def look_at(workload: Workload, desk: Desk) -> Sight:
    """Everything about one workload that has a process."""
    devices, wishes = _devices_and_wishes(workload, desk)
    inside = devices.get(workload.key, Absent(f"/proc/{workload.pid}"))
    concerned = GpuWorkload(workload=workload, wishes=wishes[workload.key], devices=inside)
    driver = desk.get(DriverGpus)
    minors = {} if isinstance(driver, Unread) else _by_minor(driver)
    rules = _rules(workload, desk)
    selective = isinstance(inside, Devices) and is_selective(concerned, inside)
    given = _given(inside, rules, selective=selective) if isinstance(inside, Devices) else ()
    return Sight(
        concerned=concerned,
        rules=rules,
        around=_around(workload, desk),
        selective=selective,
        given=given,
        status=read_status(desk.raw, workload.pid),
        locked=read_locked_memory(desk.raw, workload.pid),
        libraries=_libraries(concerned, desk.raw),
        shared=_shared(workload, desk),
        minors=minors,
        nearness={minors[minor]: _nearness(desk.raw, minors[minor]) for minor in given if minor in minors},
        infiniband=_infiniband(desk.raw, workload.pid) if len(given) > 1 else Absent(INFINIBAND),
        module=desk.get(NvidiaModule),
        majors=desk.get(Majors),
        slurm=look_at_job(workload, desk),
    )


def _libraries(one: GpuWorkload, raw: Raw) -> InnerLibraries:
    search = (one.wishes.variable(LIBRARY_PATH) or "").split(":")
    return look_for_libraries(
        raw,
        one.workload.pid,
        tuple(dict.fromkeys((one.workload.pid, *one.workload.pids))),
        [folder for folder in search if folder.startswith("/")],
        one.devices.libraries if isinstance(one.devices, Devices) else (),
    )


def _around(workload: Workload, desk: Desk) -> Around:
    """What systemd would apply to its unit, and whether the toolkit's hook leaves rules alone."""
    units, toolkit = desk.get(UnitDevices), desk.get(ToolkitCgroups)
    unit = units if isinstance(units, Unread) else units.by_key.get(workload.key)
    return Around(unit, () if isinstance(toolkit, Unread) else toolkit.no_cgroups)


def _given(devices: Devices, rules: CgroupRules | Unread, *, selective: bool) -> tuple[int, ...]:
    """The GPUs inside; of those that lie there for everybody only the ones that it may open."""
    if not selective or isinstance(rules, Unread):
        return devices.minors
    opened = Access.READ | Access.WRITE
    asked = ((minor, DeviceAccess(DeviceKind.CHAR, NVIDIA_MAJOR, minor, opened)) for minor in devices.minors)
    return tuple(minor for minor, access in asked if rules.allows(access) is not False)


def _by_minor(driver: DriverGpus) -> dict[int, str]:
    known = (gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu))
    return {gpu.minor: gpu.address for gpu in known if gpu.minor is not None}


def _devices_and_wishes(
    workload: Workload, desk: Desk
) -> tuple[Mapping[str, Devices | Absent | Unread], Mapping[str, Wishes]]:
    """Those that a run reads anyway, where the traced process leads a container or job; its own otherwise."""
    known, wished = desk.get(WorkloadDevices), desk.get(WorkloadWishes)
    if isinstance(known, WorkloadDevices) and isinstance(wished, WorkloadWishes) and _leads(workload, desk):
        by_key = known.by_key, wished.by_key
        if all(workload.key in found for found in by_key):
            return by_key
    devices = devices_of(desk, (workload,))
    return devices, wishes_of(desk.raw, (workload,), devices)


def _leads(workload: Workload, desk: Desk) -> bool:
    """Whether the traced process is the one that stands for its workload."""
    workloads = desk.get(Workloads)
    found = workloads.by_pid.get(workload.pid) if isinstance(workloads, Workloads) else None
    return found is not None and found.pid == workload.pid


def _rules(workload: Workload, desk: Desk) -> CgroupRules | Unread:
    """Those that a run reads anyway, or those of the process's own cgroup."""
    known = desk.get(WorkloadRules)
    if isinstance(known, WorkloadRules) and workload.key in known.by_key and _leads(workload, desk):
        return known.by_key[workload.key]
    files = [desk.raw.read(path) for path in MOUNTINFO]
    mountinfo = next((file for file in files if isinstance(file, TextFile)), None)
    if mountinfo is None:
        missing = Unread(Why.UNREADABLE, MOUNTINFO[0], "does not exist")
        return next((file for file in files if isinstance(file, Unread)), missing)
    where = f"/proc/{workload.pid}/cgroup"
    if workload.groups.unified is None and not workload.groups.controllers:
        return Unread(Why.NOT_RECORDED, where, "the cgroup of the process is not known")
    place = CgroupMounts.parsed(mountinfo.text).place(workload.groups.unified, workload.groups.devices, where)
    return DeviceRules.read(desk.raw, (place,)).by_place[place]


def _shared(workload: Workload, desk: Desk) -> dict[str, bool | None]:
    """Which namespaces it has in common with the node's first process (namespaces(7))."""
    processes = desk.get(Processes)
    own = processes.of(workload.leading) if isinstance(processes, Processes) and workload.leading else None
    host = processes.host if isinstance(processes, Processes) else None
    pairs = {"mnt": (own and own.mount, host and host.mount), "user": (own and own.user, host and host.user)}
    shared = {name: one == other if one and other else None for name, (one, other) in pairs.items()}
    links = [desk.raw.entry(f"/proc/{pid}/ns/ipc") for pid in (workload.pid, 1)]
    targets = [link.to for link in links if isinstance(link, Entry) and link.to]
    return {**shared, "ipc": targets[0] == targets[1] if len(targets) == 2 else None}


def _nearness(raw: Raw, address: str) -> Nearness | Unread:
    """Two attributes that sysfs answers without asking the device."""
    node, cpus = (raw.read(f"{SYS_DEVICES}/{address}/{name}") for name in ("numa_node", "local_cpulist"))
    if isinstance(cpus, Unread):
        return cpus
    if isinstance(cpus, Absent) or isinstance(node, Unread):
        return node if isinstance(node, Unread) else Unread(Why.UNREADABLE, cpus.path, "does not exist")
    number = node.text.strip() if isinstance(node, TextFile) else ""
    shows = f"local_cpulist {cpus.text.strip()}, numa_node {number or 'not there'}"
    return Nearness(
        address=address,
        node=int(number) if _NUMBER.fullmatch(number) else None,
        cpus=parse_cpus(cpus.text),
        evidence=Evidence(f"{SYS_DEVICES}/{address}", shows),
    )


def _infiniband(raw: Raw, pid: int) -> Contents | Absent | Unread:
    folder = f"/proc/{pid}/root{INFINIBAND}"
    return raw.look_blocking((folder,), begin="uverbs")[folder]
