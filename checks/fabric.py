"""Fabric: the services that set an NVLink fabric up, and whether every GPU has joined it."""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.fabric_manager import cited
from gpudoctor.facts.fabric_multicast import Multicast
from gpudoctor.facts.fabric_service import (
    STATE,
    STATUS,
    WAITING,
    FabricAge,
    FabricService,
    SubnetManager,
    in_domain,
    in_rack,
    text_field,
)
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

MANAGER, SUBNET, REGISTERED = "fabric.manager-running", "fabric.subnet-manager", "fabric.registered"
SWITCHES = "fabric.switches-seen"
HEALTH, MULTICAST = "fabric.health", "fabric.multicast"
SILENT = "NVML does not answer for it"
IDENTITY_ONLY = "nothing beyond its identity was asked"
PATIENCE = "fabric_registration_seconds"


@check(
    MANAGER,
    link=Link.FABRIC,
    needs={Link.KERNEL_MODULE},
    explained_by=(SWITCHES, SUBNET),
    title="The fabric manager runs where the GPUs are joined by NVSwitches",
)
def manager_running(service: FabricService, module: Reading[NvidiaModule], subnet: Reading[SubnetManager]) -> Verdicts:
    """Until the fabric manager has set the NVSwitches up, every CUDA program ends with 802, system not yet initialized.

    nvidia-smi lists all GPUs meanwhile, with the fabric's state "In Progress". Needed where the bus shows NVSwitches or NVML tells of a
    fabric, unless others manage it: the switch trays of an NVL72 rack, a hypervisor, a virtual machine that was given the switches. It
    runs where systemd has a control group for it, or a process bears its name, as in a driver container. One that ended after the GPUs had
    joined leaves them joined, but new jobs and multicast want it back. Without the kernel module it has nothing to speak to. On a machine
    without NVSwitches it has nothing to do and ends at once (NV_WARN_NOTHING_TO_DO), which is no fault (NVIDIA/gpu-operator#610). One of
    another version than the driver is driver-cuda.daemons-match's.
    """
    manager = service.manager
    if isinstance(manager.needed, Unread):
        yield manager.needed.about(service)
    elif not manager.needed:
        said = "no NVSwitch here: there is nothing for it to do"
        if service.idle is not None:
            said += ", and it ends at once each time it is started; systemctl disable nvidia-fabricmanager stops that"
        yield NotApplicable(service, said, cited(manager, "needed") + ((service.idle,) if service.idle else ()))
    elif manager.running is True:
        yield Pass(service, "it runs", manager.cite("running"))
    elif service.another is not None:
        yield Pass(service, "one runs that is not the node's service, as in a driver container", (service.another,))
    else:
        driver = "" if isinstance(module, Unread) else module.version or ""
        lacks = isinstance(subnet, SubnetManager) and subnet.board is not None and subnet.program is None
        yield _elsewhere(service) or _not_seen(service, driver, nvlsm=lacks and service.completed is None)


def _elsewhere(service: FabricService) -> Verdict | None:
    """Where none has to run here, or another check tells why it does not."""
    for unread in (service.elsewhere, service.off, service.differs):
        if isinstance(unread, Unread):
            return unread.about(service)
    if isinstance(service.elsewhere, Evidence):
        return NotApplicable(service, "the fabric of this node is managed elsewhere", (service.elsewhere,))
    if isinstance(service.off, Evidence):
        return NotApplicable(service, "the driver was told to use no NVLink", (service.off,))
    if service.differs:
        return NotApplicable(service, "it is of another version than the driver, see driver-cuda.daemons-match")
    return None


def _not_seen(service: FabricService, driver: str, *, nvlsm: bool) -> Verdict:
    from gpudoctor.knowledge import fabric_remedies

    manager = service.manager
    if isinstance(manager.running, Unread):
        if service.completed is not None:
            return Pass(service, "NVML says that the fabric is set up on all GPUs", (service.completed,))
        return manager.running.about(service)
    if service.in_driver_root is not None:
        said = "a driver container brings its own, and no process of it is seen here"
        seen = (service.in_driver_root,) if isinstance(service.in_driver_root, Evidence) else ()
        return Unknown(service, Why.NOT_ANSWERED, said, seen, would_need="all processes of the node")
    evidence = cited(manager, "running", "enabled", "version", "needed")
    enabled = manager.enabled is True
    how = "it is started at boot, but does not run" if enabled else "nobody starts it"
    if service.said:
        how += f": {service.said[-1].shows}"
    evidence += service.said
    if service.completed is not None:
        summary = f"{how}; the GPUs joined the fabric before it ended"
        remedies = fabric_remedies.restart_manager(MANAGER)
        return Warn(service, summary, (*evidence, service.completed), remedies, cause="fabric-manager-down")
    remedies = fabric_remedies.start_manager(MANAGER, driver, installed=enabled, nvlsm=nvlsm)
    summary = (
        f"{how}, and the GPUs are joined by NVSwitches: every CUDA program ends with 802, system not yet initialized"
    )
    return Fail(service, summary, evidence, remedies, Breaks.NODE, cause="fabric-manager-down")


@check(
    SUBNET,
    link=Link.FABRIC,
    needs={Link.KERNEL_MODULE},
    title="NVLSM runs beside the fabric manager on NVLink 5 boards",
)
def subnet_manager(subnet: SubnetManager) -> Verdicts:
    """From NVLink 5 on (HGX B100, B200, B300) the fabric manager reaches the switches through NVLSM, a daemon of its own package.

    Without it the fabric manager ends with NV_WARN_NOTHING_TO_DO, as on a machine that has no switches, and CUDA with 802. It speaks
    InfiniBand's management datagrams, and so wants the module ib_umad. nvidia-fabricmanager-start.sh starts it; there is no unit of its
    own, and without a fabric manager nobody starts it. In a rack it runs on the switch trays. Judged by the names of the node's
    processes while a GPU has not joined the fabric.
    """
    from gpudoctor.knowledge.fabric_remedies import start_nvlsm

    if subnet.board is None:
        yield NotApplicable(subnet, "no NVLink 5 board whose switches are this node's own")
    elif isinstance(subnet.running, Evidence):
        yield Pass(subnet, "it runs", (subnet.running,))
    elif subnet.completed is not None:
        yield Pass(subnet, "NVML says that the fabric is set up on all GPUs", (subnet.completed,))
    elif isinstance(subnet.running, Unread):
        yield subnet.running.about(subnet)
    elif subnet.starter is not None:
        said = "the fabric manager, which starts it, does not run: see fabric.manager-running"
        yield NotApplicable(subnet, said, (subnet.starter,))
    else:
        evidence: tuple[Evidence, ...] = (subnet.board, Evidence("/proc", "no process is called nvlsm"))
        installed = subnet.program is not None
        summary = "it does not run" if installed else "it is not installed"
        if subnet.medium is not None:
            evidence += (subnet.medium,)
            summary += ", and ib_umad, which it speaks through, is not loaded"
        summary += ": the fabric manager cannot set up the NVLink 5 switches, and CUDA answers 802"
        remedies = start_nvlsm(SUBNET, installed=installed, medium=subnet.medium is None)
        yield Fail(subnet, summary, evidence, remedies, Breaks.NODE, cause="nvlsm-down")


@check(
    REGISTERED,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(MANAGER, SUBNET),
    title="Every GPU has joined the NVLink fabric",
)
def registered(
    gpus: PciGpus, nvml: Nvml, service: Reading[FabricService], age: FabricAge, limits: Thresholds
) -> Verdicts:
    """A GPU of an NVSwitch board must join the fabric; until then CUDA answers 802, and after a failed try NCCL's peers miss it.

    NVML tells a state and, once that is "completed", a status, which is an nvmlReturn_t of its own: "Completed" with any other status
    than success is a failure that a look at the state alone overlooks (NVIDIA/NVSentinel#883). Joining takes a while after boot; where it
    lasts longer than the threshold it hangs. Boards without NVSwitches answer "not supported", and older drivers and GPUs before Hopper
    nothing. Easily confused with confidential computing, which answers 802 too.
    """
    known = None if isinstance(service, Unread) else service
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is None or device.error is not None:
            yield NotApplicable(gpu, SILENT)
        else:
            yield _judge(gpu, device, known, age, limits)


def _judge(
    gpu: PciGpu, device: NvmlDevice, service: FabricService | None, age: FabricAge, limits: Thresholds
) -> Verdict:
    state, status = text_field(device, STATE), device.fields.get(STATUS)
    if not state:
        told = (device.evidence(STATE),) if STATE in device.fields else ()
        return NotApplicable(gpu, "it tells of no fabric" if device.fields else IDENTITY_ONLY, told)
    if state == "not_supported":
        return _without(gpu, device)
    if state == "completed" and status == 0:
        return Pass(gpu, "it has joined the fabric", (device.evidence(STATE), device.evidence(STATUS)))
    steps = _remedies(device, service)
    if state == "completed":
        return _refused(gpu, device, steps)
    return _excused(gpu, device, service) or _waiting(gpu, device, state, age, limits, steps)


def _excused(gpu: PciGpu, device: NvmlDevice, service: FabricService | None) -> Verdict | None:
    """What is told elsewhere, or would be if it could be seen."""
    if service is not None and isinstance(service.off, Evidence):
        return NotApplicable(gpu, "the driver was told to use no NVLink", (service.off,))
    if service is None or service.runs or service.differs is False:
        return None
    if isinstance(service.differs, Unread):
        return service.differs.about(gpu)
    said = "the fabric manager is of another version than the driver, see driver-cuda.daemons-match"
    return NotApplicable(gpu, said, (device.evidence(STATE),))


def _without(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    switched = text_field(device, "platform.peer_type") == "switch_connected"
    if switched and in_rack(device):
        evidence = (device.evidence("platform.peer_type"), device.evidence(STATE))
        summary = "its board joins the switches of a rack, yet the driver tells of no fabric"
        return Warn(gpu, summary, evidence, _remedies(device, None), cause="no-fabric")
    return NotApplicable(gpu, "it belongs to no fabric", (device.evidence(STATE),))


def _refused(gpu: PciGpu, device: NvmlDevice, steps: tuple[Remedy, ...]) -> Verdict:
    from gpudoctor.knowledge.nvml_errors import describe

    evidence = (device.evidence(STATE), device.evidence(STATUS))
    status = device.fields.get(STATUS)
    if status is None or isinstance(status, (FieldError, str)):
        return Unknown(gpu, Why.NOT_ANSWERED, "its try to join the fabric is over, how it ended is not told", evidence)
    summary = f"its try to join the fabric failed: {describe(int(status))}"
    return Fail(gpu, summary, evidence, steps, Breaks.SUBJECT, cause=f"fabric-status-{int(status)}")


def _waiting(
    gpu: PciGpu, device: NvmlDevice, state: str, age: FabricAge, limits: Thresholds, steps: tuple[Remedy, ...]
) -> Verdict:
    evidence: tuple[Evidence, ...] = (device.evidence(STATE),)
    if state not in WAITING:
        return Unknown(gpu, Why.NOT_ANSWERED, f"the fabric's state {state!r} is none that nvml.h knows", evidence)
    if isinstance(age.seconds, Unread) and age.seconds.why is not Why.NOT_RECORDED:
        return age.seconds.about(gpu)
    summary = "its joining the fabric has not begun" if state == "not_started" else "it is still joining the fabric"
    if isinstance(age.seconds, float):
        evidence += age.cite("seconds")
        if age.seconds < limits.of(PATIENCE):
            summary += f", {age.seconds:.0f} s after it could begin"
            return Unknown(gpu, Why.SLOW_INIT, summary, evidence, would_need="another look in a few minutes")
        evidence += limits.cite(PATIENCE)
        summary += f" after {age.seconds:.0f} s"
    summary += ": CUDA answers 802 on it"
    return Fail(gpu, summary, evidence, steps, Breaks.SUBJECT, cause="not-in-fabric")


def _remedies(device: NvmlDevice, service: FabricService | None) -> tuple[Remedy, ...]:
    """By whose the fabric is: of a rack, of this node, or of the host of a guest."""
    from gpudoctor.knowledge import fabric_remedies as remedies

    if in_rack(device):
        return remedies.join_rack(REGISTERED)
    managed = service is None or service.runs or not isinstance(service.elsewhere, Evidence)
    return remedies.register_anew(REGISTERED) if managed else remedies.ask_host(REGISTERED)


@check(
    HEALTH,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(REGISTERED,),
    title="The NVLink fabric is healthy for every GPU",
)
def health(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """A GPU can have joined the fabric and yet reach its peers at less than full width, or not by all routes.

    NVML tells it as a health mask of parts of two and four bits (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*) and, from R575 on, sums them up:
    healthy, limited capacity (it works, with less bandwidth or spare), unhealthy. Parts that a board does not tell are left aside; boards
    without a rack's fabric tell none. A recovery that is in progress ends by itself, or with an error.
    """
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is None or device.error is not None:
            yield NotApplicable(gpu, SILENT)
        elif text_field(device, STATE) != "completed":
            yield NotApplicable(gpu, "it has joined no fabric" if device.fields else IDENTITY_ONLY)
        else:
            yield _health_of(gpu, device)


_PARTS = (
    ("fabric.route_unhealthy", True, "a route is unhealthy"),
    ("fabric.bandwidth", "degraded", "bandwidth is degraded"),
    ("fabric.route_recovery", True, "routes are being recovered"),
    ("fabric.access_timeout_recovery", True, "it recovers from an access that timed out"),
)
_MISCONFIGURED = {
    "incorrect_sysguid": "the system's GUID is wrong",
    "incorrect_chassis_sn": "the chassis' serial number is wrong",
    "no_partition": "it is in no partition",
    "insufficient_nvlinks": "too few of its NVLinks are up",
    "incompatible_gpu_fw": "its firmware does not fit the fabric",
    "invalid_location": "it is in a place where the fabric expects none",
    "gpu_state_invalid": "it is in a state the fabric does not take",
}
_SUMMARY, _CONFIGURATION = "fabric.health_summary", "fabric.incorrect_configuration"


def _health_of(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    wrong = {name: words for name, bad, words in _PARTS if device.fields.get(name) == bad}
    configuration = text_field(device, _CONFIGURATION)
    if configuration not in ("", "none"):
        wrong[_CONFIGURATION] = _MISCONFIGURED.get(configuration, configuration.replace("_", " "))
    summed = text_field(device, _SUMMARY)
    told = [name for name in (_SUMMARY, _CONFIGURATION, *(part[0] for part in _PARTS)) if _is_told(device, name)]
    if not wrong and summed in ("", "healthy"):
        if not told:
            return NotApplicable(gpu, "its fabric tells no health", (device.evidence(_SUMMARY),))
        return Pass(gpu, "the fabric is healthy for it", tuple(device.evidence(name) for name in told))
    from gpudoctor.knowledge import fabric_remedies as remedies

    evidence = tuple(device.evidence(name) for name in (*((_SUMMARY,) if summed else ()), *wrong))
    what = ", ".join(wrong.values()) or "no part of it says why"
    rack = in_rack(device) or in_domain(device)
    steps = remedies.join_rack(HEALTH) if rack else remedies.register_anew(HEALTH)
    recovering = set(wrong) <= {"fabric.route_recovery", "fabric.access_timeout_recovery"} and bool(wrong)
    if summed == "unhealthy" or (not summed and wrong.keys() & {"fabric.route_unhealthy", _CONFIGURATION}):
        return Fail(
            gpu, f"the fabric is unhealthy for it: {what}", evidence, steps, Breaks.SUBJECT, cause=f"fabric-{what}"
        )
    if recovering and summed in ("", "healthy"):
        return Warn(gpu, what, evidence, remedies.wait_for(HEALTH, rack=rack), cause="fabric-recovers")
    grade = (
        "the fabric has limited capacity for it" if summed == "limited_capacity" else "the fabric is not whole for it"
    )
    return Warn(gpu, f"{grade}: {what}", evidence, steps, cause=f"fabric-{what}")


def _is_told(device: NvmlDevice, name: str) -> bool:
    value = device.fields.get(name)
    return value is not None and not isinstance(value, FieldError)


@check(MULTICAST, link=Link.FABRIC, explained_by=(MANAGER,), title="The fabric manager can set multicast up")
def multicast(seen: Multicast, service: Reading[FabricService]) -> Verdicts:
    """NVLink SHARP (NCCL's NVLS) needs a multicast team from the fabric manager: without it NCCL ends with CUDA failure 401, or hangs.

    A fabric manager that was restarted knows the GPUs by new handles, while they keep asking by their old ones until they are reset:
    "failed to find the GPU handle … in the multicast team request" in fabricmanager.log (NVIDIA/nccl#1488). Judged by the last word of
    that log on teams: one that was set up since then proves it cured, and a fabric manager that was started, or GPUs that registered,
    since then make it history. A reset may leave no line, so that it is a warning. Easily confused with a fabric manager that is gone.
    """
    about = NODE if isinstance(service, Unread) else service
    if isinstance(seen.log, Unread):
        yield seen.log.about(about)
    elif seen.log is None:
        yield NotApplicable(about, "no fabric manager of this node writes a log", tuple(seen.read_from.values()))
    elif seen.refused is None:
        yield Pass(about, "its log tells of no multicast team that it could not set up", (seen.log,))
    elif seen.cured is not None:
        said = "since a multicast team failed, others were set up or the GPUs were registered anew"
        yield Pass(about, said, (seen.refused, seen.cured))
    else:
        from gpudoctor.knowledge.fabric_remedies import without_multicast

        summary = "a GPU asked for multicast by a handle that the fabric manager does not know"
        if seen.restarts:
            summary += ": it was restarted after the GPUs had joined"
        evidence = (seen.refused, *seen.restarts)
        yield Warn(about, summary, evidence, without_multicast(MULTICAST), cause="stale-handles")
