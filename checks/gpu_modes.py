"""Health: do a GPU's modes fit what runs here, and have all GPUs of a model the same firmware?"""

from collections.abc import Sequence

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.mps import Mps
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldValue, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.workload_requests import meant
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, Breaks, Cited, Evidence, Fail, NotApplicable, Pass, Unread, Verdict, Verdicts, Warn

MIG, PERSISTENCE = "health.mig-mode-pending", "health.persistence-mode"
COMPUTE, VBIOS = "health.compute-mode", "health.vbios-agrees"

_MIG, _MIG_PENDING = "mig.current", "mig.pending"
_PERSISTENCE, _COMPUTE = "persistence_mode", "compute_mode"
_VBIOS, _PART, _MULTI = "vbios_version", "board_part_number", "multi_gpu_board"
MOST_NAMED = 4


@check(
    MIG,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="No change of MIG mode waits for a reset",
)
def mig_mode_pending(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Somebody switched MIG on or off and the GPU still runs in the other mode: instances cannot be made, or do not go away.

    Up to Ampere a change takes a reset, which is refused while anybody uses the GPU ("In use by another client"): MIG managers then say
    that MIG is disabled, and mark the node as failed. Read from NVML's current and pending mode. Nothing is said of GPUs without MIG. A
    pending change of ECC is health.ecc-mode.
    """
    return judged(gpus, nvml, _mig)


def _mig(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    current, pending = device.fields.get(_MIG), device.fields.get(_MIG_PENDING)
    if not isinstance(current, bool) or not isinstance(pending, bool):
        return untold(gpu, device, (_MIG, _MIG_PENDING), "MIG mode")
    evidence = cited(device, (_MIG, _MIG_PENDING))
    if current == pending:
        return Pass(gpu, f"MIG is {_switched(current)}, and no change waits", evidence)
    from gpudoctor.knowledge.mode_remedies import apply_mig

    said = f"MIG is {_switched(current)}; that it was switched {_switched(pending)} takes effect at a reset only"
    return Warn(gpu, said, evidence, apply_mig(MIG, gpu.address, _switched(current) == "on"), cause="mig-pending")


def _switched(on: bool) -> str:
    return "on" if on else "off"


@check(
    PERSISTENCE,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="All GPUs of the node stay initialised, or none does",
)
def persistence_mode(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Without persistence mode the driver shuts a GPU down when its last client ends: the next one waits seconds, and counters begin anew.

    That is slow with many GPUs, and how drivers are delivered: a node with persistence off on all GPUs is not accused, because a daemon,
    monitoring or a workload may keep them open all the same. Told is a node where some GPUs have it and others do not: somebody set it by
    hand, and a reset or an exchange lost it on one. Where it costs too much time, NVML itself answers late (driver-cuda.nvml-answers);
    whether nvidia-persistenced runs where it is enabled is device-nodes.persistence-daemon.
    """
    modes = {device.fields.get(_PERSISTENCE) for device in nvml.devices if device.error is None}
    return judged(gpus, nvml, lambda gpu, device: _persistence(gpu, device, {True, False} <= modes))


def _persistence(gpu: PciGpu, device: NvmlDevice, mixed: bool) -> Verdict:
    mode = device.fields.get(_PERSISTENCE)
    if not isinstance(mode, bool):
        return untold(gpu, device, (_PERSISTENCE,), "persistence mode")
    evidence = cited(device, (_PERSISTENCE,))
    if mode:
        return Pass(gpu, "persistence mode is on", evidence)
    if not mixed:
        return NotApplicable(gpu, "persistence mode is off on all GPUs: the first program waits for each", evidence)
    from gpudoctor.knowledge.mode_remedies import switch_persistence_on

    said = "persistence mode is off, and on at other GPUs: each first program waits for this one, and its settings are lost"
    return Warn(gpu, said, evidence, switch_persistence_on(PERSISTENCE, gpu.address), cause="persistence-mixed")


@check(
    COMPUTE,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="Every GPU's compute mode lets those in who share it",
)
def compute_mode(gpus: PciGpus, nvml: Nvml, workloads: Reading[GpuWorkloads], mps: Reading[Mps]) -> Verdicts:
    """In the mode "prohibited" no program can use CUDA on a GPU, in "exclusive process" only one at a time; nvidia-smi looks well in both.

    The next program gets CUDA error 46, "all CUDA-capable devices are busy or unavailable". Exclusive is right for a GPU that is given to
    one job, and recommended with MPS, whose server is the one process; it is told where several containers or jobs have been given the
    same GPU and MPS has nothing to do with it, and where the fewer GPUs of the node have it while nobody has them and nothing of MPS is
    set up: somebody left it behind. Whether MPS does its part on such a GPU is sharing.mps-daemon and sharing.mps-clients. Modes come from
    nvidia-smi -c, schedulers, or a prolog (nvml.h, nvmlComputeMode_t).
    """
    sharing = _sharers(workloads)
    known = not isinstance(workloads, Unread) and not isinstance(mps, Unread) and mps.unlisted is None
    forgotten = _forgotten(nvml) if known and not _by_mps(mps) else ()
    return judged(gpus, nvml, lambda gpu, device: _compute(gpu, device, sharing.get(device.minor, ()), forgotten, mps))


def _by_mps(mps: Reading[Mps], address: str = "") -> bool:
    """Whether MPS is to share a GPU between programs: a daemon serves it, or one is wanted that does not run; without an address, any."""
    if isinstance(mps, Unread):
        return False
    confined = bool(mps.daemons) and all(one.gpus for one in mps.daemons)
    served = {gpu for one in mps.daemons for gpu in one.gpus}
    return mps.concerns and (not confined or not address or address in served)


def _forgotten(nvml: Nvml) -> tuple[NvmlDevice, ...]:
    """The exclusive GPUs without a process, where most GPUs of the node are in the default mode."""
    modes = [mode for device in nvml.devices if isinstance(mode := device.fields.get(_COMPUTE), str)]
    if modes.count("default") * 2 <= len(modes):
        return ()
    return tuple(
        device
        for device in nvml.devices
        if _is_exclusive(device.fields.get(_COMPUTE)) and device.lists_processes and not device.processes
    )


def _is_exclusive(mode: FieldValue | None) -> bool:
    return isinstance(mode, str) and mode.startswith("exclusive")


def _sharers(workloads: Reading[GpuWorkloads]) -> dict[int | None, tuple[GpuWorkload, ...]]:
    """The workloads that were given each GPU, by its minor."""
    found: dict[int | None, tuple[GpuWorkload, ...]] = {}
    for one in () if isinstance(workloads, Unread) else workloads:
        minors = getattr(one.devices, "minors", ()) if meant(one) else ()
        for minor in minors:
            found[minor] = (*found.get(minor, ()), one)
    return found


def _compute(
    gpu: PciGpu,
    device: NvmlDevice,
    sharing: Sequence[GpuWorkload],
    forgotten: Sequence[NvmlDevice],
    mps: Reading[Mps],
) -> Verdict:
    mode = device.fields.get(_COMPUTE)
    if not isinstance(mode, str):
        return untold(gpu, device, (_COMPUTE,), "compute mode")
    evidence = cited(device, (_COMPUTE,))
    if mode == "prohibited":
        from gpudoctor.knowledge.mode_remedies import default_compute_mode

        said = "compute mode is prohibited: no program can use CUDA on it"
        steps = default_compute_mode(COMPUTE, gpu.address)
        return Fail(gpu, said, evidence, steps, Breaks.SUBJECT, cause="compute-prohibited")
    by_mps = any(process.kind == "mps" or "mps-server" in (process.name or "") for process in device.processes)
    if device in forgotten and not sharing:
        from gpudoctor.knowledge.mode_remedies import default_compute_mode

        said = f"compute mode is {mode.replace('_', ' ')}, unlike the others', and nobody has the GPU: only one process can use CUDA on it"
        return Warn(gpu, said, evidence, default_compute_mode(COMPUTE, gpu.address), cause="compute-exclusive")
    if _is_exclusive(mode) and len(sharing) > 1 and not by_mps:
        return _exclusive(gpu, mode, sharing, evidence, mps)
    return Pass(gpu, f"compute mode is {mode.replace('_', ' ')}", evidence)


def _exclusive(gpu: PciGpu, mode: str, sharing: Sequence[GpuWorkload], evidence: Cited, mps: Reading[Mps]) -> Verdict:
    """Of a GPU that takes one process, has been given to several workloads, and has no process of MPS."""
    words = mode.replace("_", " ")
    if _by_mps(mps, gpu.address):
        said = f"compute mode is {words}, for MPS to let {len(sharing)} workloads in: see sharing.mps-daemon and sharing.mps-clients"
        return NotApplicable(gpu, said, evidence)
    unseen = mps if isinstance(mps, Unread) else mps.unlisted
    if unseen is not None:
        return unseen.about(gpu)
    from gpudoctor.knowledge.mode_remedies import default_compute_mode

    names = ", ".join(one.workload.title for one in sharing[:MOST_NAMED])
    said = f"compute mode is {words}, and {len(sharing)} workloads share it ({names}): only one can use CUDA"
    evidence += tuple(seen for one in sharing[:MOST_NAMED] for seen in _given(one))
    return Warn(gpu, said, evidence, default_compute_mode(COMPUTE, gpu.address), cause="compute-exclusive")


def _given(one: GpuWorkload) -> tuple[Evidence, ...]:
    return tuple(wish.evidence for wish in one.wishes.wishes[:1])


@check(
    VBIOS,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="All GPUs of one board have the same VBIOS",
)
def vbios_agrees(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """GPUs of one model behave differently with different firmware: other limits of power and temperature, other bugs, other NVLink.

    A skew comes from an exchanged board or a half-done update, and makes one GPU of a job the odd one. Compared are GPUs of the same name
    and board part number only: boards that look alike are built in variants, with a VBIOS for each. GeForce boards tell no part number,
    and a board with two GPUs has two versions by design. Versions are compared as text: there is no order between them. Where more than
    half have one version the others are the odd ones, else nobody knows.
    """
    groups: dict[tuple[str, str], list[tuple[PciGpu, NvmlDevice]]] = {}
    for gpu in gpus:
        device = nvml.device(gpu.address)
        key = None if device is None or device.error is not None else _board(device)
        if device is None or key is None:
            yield NotApplicable(gpu, "it tells no VBIOS, or no part number of a board that has it alone")
        else:
            groups.setdefault(key, []).append((gpu, device))
    for group in groups.values():
        if len(group) == 1:
            yield NotApplicable(group[0][0], "no other GPU of the same board part to compare it with")
        elif len(_versions(group)) > 1:
            yield from _skew(group)
        else:
            yield from (
                Pass(gpu, f"VBIOS {_version(device)}, as all of its kind", cited(device, (_VBIOS,)))
                for gpu, device in group
            )


def _board(device: NvmlDevice) -> tuple[str, str] | None:
    part, version = device.fields.get(_PART), device.fields.get(_VBIOS)
    alone = device.fields.get(_MULTI) is not True
    return (device.name or "", part) if isinstance(part, str) and isinstance(version, str) and alone else None


def _version(device: NvmlDevice) -> str:
    """It is written in either case."""
    return str(device.fields[_VBIOS]).upper()


def _versions(group: Sequence[tuple[PciGpu, NvmlDevice]]) -> dict[str, list[str]]:
    """The addresses by version."""
    found: dict[str, list[str]] = {}
    for gpu, device in group:
        found.setdefault(_version(device), []).append(gpu.address)
    return found


def _skew(group: Sequence[tuple[PciGpu, NvmlDevice]]) -> Verdicts:
    from gpudoctor.knowledge.mode_remedies import same_firmware

    versions = sorted(_versions(group).items(), key=lambda item: len(item[1]), reverse=True)
    said = ", ".join(f"{version} at {_some(addresses)}" for version, addresses in versions)
    evidence = tuple(device.evidence(name) for _, device in group for name in (_VBIOS, _PART))
    name = group[0][1].name or "GPUs"
    cause = f"vbios {name}"
    summary = f"{name} of one board part differ in VBIOS: {said}"
    usual, having = versions[0]
    if len(having) * 2 <= len(group):
        of = tuple(gpu.subject for gpu, _ in group)
        yield Warn(NODE, summary, evidence, same_firmware(VBIOS), cause=cause, of=of)
        return
    for gpu, device in group:
        if _version(device) == usual:
            yield Pass(gpu, f"VBIOS {usual}, as most of its kind", cited(device, (_VBIOS,)))
        else:
            yield Warn(gpu, summary, evidence, same_firmware(VBIOS), cause=cause)


def _some(addresses: Sequence[str]) -> str:
    more = len(addresses) - MOST_NAMED
    return ", ".join(addresses[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
