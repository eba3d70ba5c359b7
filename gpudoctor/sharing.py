"""Who shares each GPU, by what, and with what isolation: the table of every report, put together from facts that checks have read.

What is not known is said to be unknown, never taken for a GPU that nobody shares.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_plugin import Advertised, DevicePlugin
from gpudoctor.facts.mig import Mig, MigGpu
from gpudoctor.facts.mps import MEMORY_LIMIT, Mps, MpsDaemon
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pod_resources import REPLICA
from gpudoctor.facts.sharing_config import MPS, TIME_SLICING, SharingConfig, resources
from gpudoctor.knowledge import isolation
from gpudoctor.knowledge.isolation import Isolation
from gpudoctor.report import How, SharedGpu
from gpudoctor.sharers import Sharers, Who, crowded
from gpudoctor.verdicts import Unread

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
    table = _Table(desk)
    return tuple(table.row(gpu) for gpu in gpus)


class _Table:
    """The facts that rows are made of."""

    def __init__(self, desk: Desk) -> None:
        self._nvml = desk.get(Nvml)
        self._mig = desk.get(Mig)
        self._mps = desk.get(Mps)
        self._config = desk.get(SharingConfig)
        plugin = desk.get(DevicePlugin)
        self._advertised = plugin.advertised if isinstance(plugin, DevicePlugin) else plugin
        self._who = Who(desk)

    def row(self, gpu: PciGpu) -> SharedGpu:
        """By its driver first: only nvidia's own is asked more."""
        if isinstance(gpu.driver, Unread):
            return _unknown(gpu, f"which driver holds it is not known: {gpu.driver.detail}")
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
            return f"{self._nvml.where}: {self._nvml.detail}"
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
        if daemon is not None or way == MPS:
            return self._by_mps(gpu, sharers, daemon)
        if way:
            return self._in_time(gpu, sharers)
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
        if isinstance(self._config, Unread) or (self._config.present and not self._config.where):
            told = self._advertised if isinstance(self._advertised, Unread) else self._config
            if isinstance(told, Unread):
                return f"whether the device plugin shares it: {told.where}: {told.detail}"
        return sharers.unseen

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
        way = self._way("nvidia.com/mig-")
        if way == TIME_SLICING:
            yield "the device plugin shares MIG devices in time: within one, neither memory nor faults are kept apart"

    # MPS and time-slicing

    def _daemon(self, address: str) -> MpsDaemon | None:
        """The daemon that serves a GPU; one that was not confined serves all."""
        daemons = () if isinstance(self._mps, Unread) else self._mps.daemons
        return next((one for one in daemons if not one.gpus or address in one.gpus), None)

    def _way(self, name: str = "nvidia.com/gpu") -> str:
        """How the device plugin shares resources of that name, "" for not at all: by its configuration, else by the ids of replicas."""
        config = self._config
        if isinstance(config, SharingConfig) and config.where:
            named = (resource for resource, _, _ in resources(config.sharing, config.way))
            return config.way if any(one.startswith(name) for one in named) else ""
        told = self._advertised.by_resource if isinstance(self._advertised, Advertised) else {}
        shared = any(REPLICA in device for one, ids in told.items() if one.startswith(name) for device in ids)
        by_mps = isinstance(self._mps, Mps) and bool(self._mps.wrappers)
        return (MPS if by_mps else TIME_SLICING) if shared else ""

    def _by_mps(self, gpu: PciGpu, sharers: Sharers, daemon: MpsDaemon | None) -> SharedGpu:
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
        served = f"{many} of the daemon with PID {daemon.pid}" if daemon is not None else ""
        shared = self._shares(MPS) or ("" if daemon is not None else "no MPS daemon was seen")
        return _row(gpu, How.MPS, "; ".join(part for part in (shared, served) if part), sharers, kept)

    def _in_time(self, gpu: PciGpu, sharers: Sharers) -> SharedGpu:
        return _row(gpu, How.TIME_SLICING, self._shares(TIME_SLICING), sharers, isolation.IN_TURNS)

    def _shares(self, way: str) -> str:
        if self._way() != way:
            return ""
        sharing = self._config.sharing if isinstance(self._config, SharingConfig) else {}
        counts = [f"{name} {count} times" for name, count, _ in resources(sharing, way)]
        return f"the device plugin offers {', '.join(counts) or 'each GPU several times'}"

    def _vgpu_guest(self, gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
        """What shares the physical GPU is the host's secret; within the guest several may share what it has."""
        sharers = self._who.of(device)
        many = len(sharers.names) + sharers.nameless > 1
        row = _row(gpu, How.VGPU, f"this is a guest, with {device.name or 'a vGPU'}", sharers, isolation.VGPU_GUEST)
        return replace(row, note="within this guest nothing keeps those apart that use it") if many else row


def _undivided(device: NvmlDevice) -> bool:
    """Whether MIG is known to be off: it says so, has no such mode, or is of a kind that has none."""
    mode = device.fields.get(CURRENT)
    if mode is False or (isinstance(mode, FieldError) and mode.error == _NOT_SUPPORTED):
        return True
    told = (device.compute_capability or "").split(".")
    return len(told) == 2 and all(map(str.isdecimal, told)) and tuple(map(int, told)) < _WITH_MIG


def _vgpu_host(gpu: PciGpu, device: NvmlDevice) -> SharedGpu:
    machines = device.fields.get("vgpu.active")
    count = machines if isinstance(machines, int) else None
    detail = "virtual machines share it" if count is None else f"{count} vGPUs of virtual machines are active"
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
