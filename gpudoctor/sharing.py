"""Who shares each GPU, by what, and with what isolation: the table of every report, put together from facts that checks have read.

What is not known is said to be unknown, never taken for a GPU that nobody shares.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.mig import Mig, MigGpu
from gpudoctor.facts.mps import MEMORY_LIMIT, Mps, MpsDaemon
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge import isolation
from gpudoctor.knowledge.isolation import Isolation
from gpudoctor.report import How, SharedGpu
from gpudoctor.sharers import Sharers, Who, computes, crowded
from gpudoctor.verdicts import Unread

if TYPE_CHECKING:
    from gpudoctor.facts.device_plugin import Advertised
    from gpudoctor.facts.sharing_config import SharingConfig

MOST_NAMED = 8
CURRENT, VIRTUAL = "mig.current", "virtualization.mode"
_PORTION = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_HOSTS, _GUEST = ("host_vgpu", "host_vsga"), "vgpu"
_NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED (nvml.h): a GPU without MIG is a whole one."""
_WITH_MIG = (8, 0)
"""The first compute capability of which some GPUs can be divided (MIG User Guide, "Supported GPUs")."""


def shared_gpus(desk: Desk) -> tuple[SharedGpu, ...]:
    """A row for each GPU on the bus."""
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread) or not gpus.gpus:
        return ()
    try:
        table = _Table(desk)
        return tuple(table.row(gpu) for gpu in gpus)
    # As of a check: a bug must cost this table, not the report.
    except Exception as error:
        failed = f"gpudoctor failed: {type(error).__name__}: {error}"
        return tuple(_unknown(gpu, failed) for gpu in gpus)


class _Table:
    """The facts that rows are made of."""

    def __init__(self, desk: Desk) -> None:
        self._nvml = desk.get(Nvml)
        self._mig = desk.get(Mig)
        self._mps = desk.get(Mps)
        self._plugin = _Plugin(desk)
        self._who = Who(desk)

    def row(self, gpu: PciGpu) -> SharedGpu:
        """By its driver first: only nvidia's own is asked more."""
        if isinstance(gpu.driver, Unread):
            return _unknown(gpu, f"which driver holds it: {gpu.driver.detail}")
        if gpu.driver is not None and ("vfio" in gpu.driver or gpu.driver == "pciback"):
            detail = f"{gpu.driver} holds it for a virtual machine"
            return _row(gpu, How.PASSTHROUGH, detail, Sharers(), isolation.GIVEN_AWAY, counted=False)
        if gpu.driver != "nvidia":
            return _unknown(gpu, f"{gpu.driver} holds it" if gpu.driver else "no driver holds it")
        device = None if isinstance(self._nvml, Unread) else self._nvml.device(gpu.address)
        if device is None or device.error is not None:
            return _unknown(gpu, self._silent(device))
        row = self._of(gpu, device)
        # On a host or guest of vGPU the node's files say nothing of the virtual machines.
        if row.how is How.VGPU:
            return row
        return replace(row, access=self._who.access(gpu.address), note=row.note or self._who.note(gpu.address))

    def _silent(self, device: NvmlDevice | None) -> str:
        if isinstance(self._nvml, Unread):
            where, detail = self._nvml.where, self._nvml.detail
            return detail if where.lower() == "nvml" else f"{where}: {detail}"
        if device is not None and device.error is not None:
            return f"NVML did not answer for it: {device.error.text}"
        return "NVML does not list it"

    def _of(self, gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
        mode = device.fields.get(VIRTUAL)
        machines = device.fields.get("vgpu.active")
        if mode in _HOSTS or (isinstance(machines, int) and machines > 0):
            return _vgpu_host(gpu, device)
        if mode == _GUEST:
            return self._vgpu_guest(gpu, device)
        one = None if isinstance(self._mig, Unread) else self._mig.gpu(gpu.address)
        if one is not None:
            return self._by_mig(gpu, one)
        if not _undivided(device):
            return _unknown(gpu, "whether MIG is on was not answered", self._who.of(device))
        return self._together(gpu, device)

    def _together(self, gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
        """Of an undivided GPU."""
        sharers = self._who.of(device)
        daemon = self._daemon(gpu.address)
        way = self._way()
        if daemon is not None or way is How.MPS:
            return self._by_mps(gpu, device, sharers, daemon)
        if way is not None:
            return _row(gpu, How.TIME_SLICING, self._plugin.offers(way), sharers, isolation.IN_TURNS)
        if len(sharers.names) + sharers.nameless > 1:
            return self._by_processes(gpu, device, sharers)
        doubts = self._doubts(sharers)
        if doubts:
            return _unknown(gpu, doubts, sharers)
        return _row(gpu, How.WHOLE, "", sharers, isolation.NOT_SHARED)

    def _doubts(self, sharers: Sharers) -> str:
        """Why a GPU that seems to be one workload's alone may be shared all the same."""
        if isinstance(self._mps, Unread):
            return f"whether MPS shares it: {self._mps.where}: {self._mps.detail}"
        if self._mps.unlisted is not None:
            return f"whether MPS shares it: {self._mps.unlisted.where}: {self._mps.unlisted.detail}"
        unread = self._plugin.unread
        if unread is not None:
            return f"whether the device plugin shares it: {unread.where}: {unread.detail}"
        return f"who has it: {sharers.unseen}" if sharers.unseen else ""

    def _by_processes(self, gpu: PciGpu, device: NvmlDevice, sharers: Sharers) -> SharedGpu:
        """Several have it, and nothing divides it. An exclusive mode would have refused the second one (nvmlComputeMode_t)."""
        nameless = f"{sharers.nameless} processes of which it is not known whose they are" if sharers.nameless else ""
        mode = device.fields.get("compute_mode")
        exclusive = "EXCLUSIVE_PROCESS: only one process at a time can use it" if mode == "exclusive_process" else ""
        detail = "; ".join(part for part in (nameless, exclusive) if part)
        return _row(gpu, How.PROCESSES, detail, sharers, isolation.IN_TURNS, counted=not sharers.nameless)

    # MIG

    def _by_mig(self, gpu: PciGpu, one: MigGpu) -> SharedGpu:
        if one.is_hosts:
            return _vgpu_host(gpu, one.device)
        devices = one.device.mig_devices
        instances = [part.gpu_instance_id for part in devices]
        parted = len(set(instances)) < len(instances)
        kept = isolation.BY_MIG_PARTS if parted and None not in instances else isolation.BY_MIG
        listed = f"{len(devices)} MIG device{'' if len(devices) == 1 else 's'}{f': {one.layout}' if one.layout else ''}"
        detail = listed if devices else "no MIG device, so that nobody can use it"
        if not devices and not one.device.lists_mig:
            detail = "its MIG devices were not listed"
        sharers = self._who.of(one.device)
        # GPU instances without a compute instance take slices, and stand in no list of devices.
        told = bool(devices) or any(profile.free for profile in one.device.mig_profiles)
        notes = (*self._shared_within(one.device), *self._replicated(gpu.address))
        return replace(_row(gpu, How.MIG, detail, sharers, kept), room=one.room if told else "", note="; ".join(notes))

    def _shared_within(self, device: NvmlDevice) -> Iterator[str]:
        for instance, compute, names in crowded(device, self._who):
            yield f"{_some(names)} share one MIG device (GI {instance}, CI {compute}), and nothing keeps them apart"

    def _replicated(self, address: str) -> Iterator[str]:
        """MIG devices that are shared once more, by the device plugin in time (its MPS refuses MIG) or by a daemon of MPS."""
        if self._daemon(address) is not None:
            yield "an MPS daemon runs: within a MIG device, a fatal fault of one of its clients ends them all"
        if self._way("nvidia.com/mig-") is How.TIME_SLICING:
            yield "the device plugin shares MIG devices in time: within one, neither memory nor faults are kept apart"

    # MPS and time-slicing

    def _daemon(self, address: str) -> MpsDaemon | None:
        """The daemon that serves a GPU; one that was not confined serves all."""
        daemons = () if isinstance(self._mps, Unread) else self._mps.daemons
        return next((one for one in daemons if not one.gpus or address in one.gpus), None)

    def _way(self, name: str = "nvidia.com/gpu") -> How | None:
        """How the device plugin shares resources of that name, None for not at all."""
        return self._plugin.way(name, by_mps=isinstance(self._mps, Mps) and bool(self._mps.wrappers))

    def _by_mps(self, gpu: PciGpu, device: NvmlDevice, sharers: Sharers, daemon: MpsDaemon | None) -> SharedGpu:
        mps = self._mps
        clients = [] if isinstance(mps, Unread) else [one for one in mps.clients if gpu.address in one.gpus]
        by_plugin = not isinstance(mps, Unread) and bool(mps.wrappers)
        told = daemon.limits if daemon is not None else {}
        limited = [bool(by_plugin or MEMORY_LIMIT in told or one.memory_limit) for one in clients]
        portioned = [bool(by_plugin or _PORTION in told or _PORTION in one.limits) for one in clients]
        kept = isolation.BY_MPS
        if any(limited) or by_plugin or MEMORY_LIMIT in told:
            memory = isolation.MPS_LIMITED if all(limited) else isolation.MPS_PARTLY_LIMITED
            kept = replace(kept, memory=memory)
        if clients and all(portioned):
            kept = replace(kept, compute=isolation.MPS_PORTIONED)
        many = f"{len(clients)} client{'' if len(clients) == 1 else 's'}"
        seen = not isinstance(mps, Unread) and mps.unlisted is None
        missing = "no MPS daemon runs" if seen else "whether an MPS daemon runs is not known"
        served = f"{many} of the daemon with PID {daemon.pid}" if daemon is not None else missing
        offered = self._plugin.offers(How.MPS) if self._way() is How.MPS else ""
        row = _row(gpu, How.MPS, "; ".join(part for part in (offered, served) if part), sharers, kept)
        return replace(row, note=self._beside(device, {one.pid for one in clients}))

    def _beside(self, device: NvmlDevice, clients: set[int]) -> str:
        """Those that compute without MPS, as the driver tells them apart (nvmlDeviceGetMPSComputeRunningProcesses)."""
        if not any(one.kind == "mps" for one in device.processes):
            return ""
        others = [one for one in device.processes if one.kind != "mps" and computes(one) and one.pid not in clients]
        names = sorted({self._who.owner(one) or f"PID {one.pid}" for one in others})
        return f"{_some(names)} computes without MPS, in turns with its clients" if names else ""

    def _vgpu_guest(self, gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
        """What shares the physical GPU is the host's secret; within the guest several may share what it has."""
        sharers = self._who.of(device)
        many = len(sharers.names) + sharers.nameless > 1
        row = _row(gpu, How.VGPU, f"this is a guest, with {device.name or 'a vGPU'}", sharers, isolation.VGPU_GUEST)
        return replace(row, note="within this guest nothing keeps those apart that use it") if many else row


class _Plugin:
    """How NVIDIA's device plugin shares GPUs between pods. Where no kubelet is known to run, nothing of Kubernetes is asked or loaded."""

    def __init__(self, desk: Desk) -> None:
        self._config: SharingConfig | Unread | None = None
        self._advertised: Advertised | Unread | None = None
        settings = desk.get(KubeletSettings)
        if isinstance(settings, Unread):
            self._config = self._advertised = settings
        elif settings.kubelet is not None:
            from gpudoctor.facts import device_plugin, sharing_config

            self._config = desk.get(sharing_config.SharingConfig)
            plugin = desk.get(device_plugin.DevicePlugin)
            self._advertised = plugin if isinstance(plugin, Unread) else plugin.advertised

    @property
    def unread(self) -> Unread | None:
        """Why it is not known whether it shares them."""
        config = self._config
        if config is None or not (isinstance(config, Unread) or (config.present and not config.where)):
            return None
        told = self._advertised if isinstance(self._advertised, Unread) else config
        return told if isinstance(told, Unread) else None

    def way(self, name: str, *, by_mps: bool) -> How | None:
        """How it shares resources of that name: by its configuration, else by the ids of replicas and whether MPS wraps processes."""
        if isinstance(self._config, Unread) or self._config is None:
            return None
        from gpudoctor.facts.pod_resources import REPLICA
        from gpudoctor.facts.sharing_config import MPS, resources

        config = self._config
        if config.where:
            named = any(one.startswith(name) for one, _, _ in resources(config.sharing, config.way))
            return (How.MPS if config.way == MPS else How.TIME_SLICING) if named and config.way else None
        told = {} if isinstance(self._advertised, Unread) or self._advertised is None else self._advertised.by_resource
        shared = any(REPLICA in device for one, ids in told.items() if one.startswith(name) for device in ids)
        return (How.MPS if by_mps else How.TIME_SLICING) if shared else None

    def offers(self, way: How) -> str:
        """What it offers of a way that is in force."""
        from gpudoctor.facts.sharing_config import MPS, TIME_SLICING, resources, written

        config = self._config
        sharing = {} if isinstance(config, Unread) or config is None else config.sharing
        listed = resources(sharing, MPS if way is How.MPS else TIME_SLICING)
        counts = [f"{name} {written(count)} times" for name, count, _ in listed]
        return f"the device plugin offers {', '.join(counts) or 'each GPU several times'}"


def _undivided(device: NvmlDevice) -> bool:
    """Whether MIG is known to be off: it says so, has no such mode, or is of a kind that has none."""
    mode = device.fields.get(CURRENT)
    if mode is False or (isinstance(mode, FieldError) and mode.error == _NOT_SUPPORTED):
        return True
    major, _, minor = (device.compute_capability or "").partition(".")
    told = (decimal(major), decimal(minor))
    return None not in told and told < _WITH_MIG


def _vgpu_host(gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
    machines = device.fields.get("vgpu.active")
    count = machines if isinstance(machines, int) and machines >= 0 else None
    match count:
        case None:
            detail = "how many vGPUs of virtual machines are active was not answered"
        case 1:
            detail = "1 vGPU of a virtual machine is active"
        case _:
            detail = f"{count or 'no'} vGPUs of virtual machines are active"
    return replace(_row(gpu, How.VGPU, detail, Sharers(), isolation.VGPU_HOST), workloads=count)


def _unknown(gpu: PciGpu, detail: str, sharers: Sharers | None = None) -> SharedGpu:
    known = sharers or Sharers()
    return SharedGpu(gpu=gpu.address, how=How.UNKNOWN, detail=detail, by=known.names[:MOST_NAMED])


def _row(gpu: PciGpu, how: How, detail: str, sharers: Sharers, kept: Isolation, *, counted: bool = True) -> SharedGpu:
    """A row; what was not seen of sharers leaves their number open."""
    return SharedGpu(
        gpu=gpu.address,
        how=how,
        detail=detail,
        by=sharers.names[:MOST_NAMED],
        workloads=len(sharers.names) + sharers.nameless if counted and not sharers.unseen else None,
        memory=kept.memory,
        faults=kept.faults,
        compute=kept.compute,
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
