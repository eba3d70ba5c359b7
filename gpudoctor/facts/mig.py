"""MIG: the GPUs that are divided, their instances as NVML lists them and as the driver's capabilities show them, and who asks for which.

/proc/driver/nvidia/capabilities/gpuN/mig/giG/ciC has a folder for each GPU instance and each compute instance, N being the GPU's minor
(NVIDIA/nvidia-container-toolkit internal/nvcaps/nvcaps.go, NewGPUInstanceCap). NVML lists a MIG device for each compute instance only
(nvml.h, nvmlDeviceGetMigDeviceHandleByIndex). Instances end with a reboot, a reset, or when the driver's modules are unloaded. The mode
ends so too, but for Ampere boards, which keep it in their InfoROM (MIG User Guide, "Getting Started", "GPU Reset on Hopper+ GPUs" and
"GPU Reset on NVIDIA Ampere Architecture GPUs"; NVIDIA/k8s-device-plugin#343).
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.capabilities import CAPABILITIES, Capabilities, Capability
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, MigDevice, NvmlDevice
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.facts.workloads import Workloads
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

CURRENT, PENDING, VIRTUAL = "mig.current", "mig.pending", "virtualization.mode"
MOST_SHOWN = 8
_PLACE = pattern(rf"{CAPABILITIES}/gpu(\d{{1,4}})/mig/gi(\d{{1,4}})/(?:ci(\d{{1,4}})/)?access")
_MONITOR = f"{CAPABILITIES}/mig/monitor"
_SLICES = pattern(r"(?:\d{1,2}c\.)?(\d{1,2})g\.")
_VISIBLE = r"\A(?:CUDA|NVIDIA)_VISIBLE_DEVICES=.*MIG-"
_DRA = "gpu-kubelet-plu"
_OPERATORS, _PARTED = "nvidia-mig-mana", "nvidia-mig-part"
"""gpu-kubelet-plugin, the GPU Operator's nvidia-mig-manager, and nvidia-mig-parted, which changes layouts for it and for the service of
that name (NVIDIA/mig-parted cmd/), as the kernel keeps their names (proc_pid_comm(5))."""
_NO_MIG = (3, 13)
"""NOT_SUPPORTED and FUNCTION_NOT_FOUND (nvml.h)."""
_HOSTS = ("host_vgpu", "host_vsga")
"""NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU and HOST_VSGA (nvml.h): the GPU belongs to virtual machines."""


class MigGpu(Citable, frozen=True):
    """A GPU in MIG mode. `instances` has the compute instances of each GPU instance as the driver's capabilities show them."""

    address: str
    device: NvmlDevice
    instances: Reading[Mapping[int, tuple[int, ...]]]
    capabilities: tuple[Capability, ...] = ()

    @property
    def subject(self) -> Subject:
        """The GPU."""
        return Subject(SubjectKind.GPU, self.address)

    @property
    def is_hosts(self) -> bool:
        """Whether a hypervisor gives its instances to virtual machines, which make the compute instances (vGPU User Guide, MIG)."""
        return self.device.fields.get(VIRTUAL) in _HOSTS

    @property
    def keeps_mode(self) -> bool | None:
        """Whether the board keeps the mode over a boot: Ampere does, those that came after do not; None where that is not told."""
        told = self.device.compute_capability
        return None if told is None else told.startswith("8.")

    @property
    def listed_whole(self) -> bool | None:
        """Whether NVML lists all compute instances that the driver has; None where the driver's are not known."""
        if isinstance(self.instances, Unread):
            return None
        known = {(number, compute) for number, computes in self.instances.items() for compute in computes}
        return known <= {_numbers(one) for one in self.device.mig_devices}

    @property
    def leaves(self) -> bool:
        """Whether MIG was switched off, and a reset has yet to bring that into force."""
        return self.device.fields.get(PENDING) is False

    @property
    def numbered(self) -> bool:
        """Whether NVML's list tells which instances its MIG devices are."""
        return all(_numbers(one) is not None for one in self.device.mig_devices)

    @property
    def mode(self) -> Cited:
        """That MIG is on."""
        return (self.device.evidence(CURRENT),)

    @property
    def listed(self) -> Evidence:
        """What NVML lists."""
        names = [_named(one) for one in self.device.mig_devices]
        more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
        return Evidence(f"{self.device.via} ({self.address})", f"MIG devices: {', '.join(names[:MOST_SHOWN])}{more}")

    @property
    def nothing_listed(self) -> Evidence:
        """That NVML lists none."""
        return Evidence(f"{self.device.via} ({self.address})", "MIG devices: none")

    @property
    def layout(self) -> str:
        """`1 3g.40gb, 2 1g.10gb`, "" where the profiles are not told."""
        profiles = [one.profile for one in self.device.mig_devices if one.profile]
        if not profiles or len(profiles) < len(self.device.mig_devices):
            return ""
        return ", ".join(f"{profiles.count(one)} {one}" for one in dict.fromkeys(profiles))

    @property
    def room(self) -> str:
        """What could still be made of it, "" where that is not told: only root is (nvml.h, GetGpuInstanceRemainingCapacity)."""
        profiles = [one for one in self.device.mig_profiles if one.free is not None and one.slices]
        if not profiles:
            return ""
        fits = [f"{one.free} {one.name or f'of profile {one.id}'}" for one in profiles if one.free]
        if fits:
            return f"there is room for {' or '.join(fits[:4])}"
        left = self._slices_left(max(one.slices or 0 for one in profiles))
        return f"{left} of its slices left, into which no profile fits" if left else "it is divided up"

    def _slices_left(self, whole: int) -> int:
        """Compute slices that no GPU instance has, by the names of profiles; 0 where they do not tell."""
        used: dict[int | None, int] = {}
        for one in self.device.mig_devices:
            found = _SLICES.match(one.profile or "")
            if found is None or one.gpu_instance_id is None:
                return 0
            used[one.gpu_instance_id] = int(found[1])
        bare = not isinstance(self.instances, Unread) and any(number not in used for number in self.instances)
        return 0 if bare else max(whole - sum(used.values()), 0)

    def seen(self, instance: int, compute: int | None = None) -> Cited:
        """The capability of an instance."""
        return tuple(
            seen
            for one in self.capabilities
            if (place := _PLACE.fullmatch(one.path)) is not None
            and int(place[2]) == instance
            and (place[3] is None if compute is None else place[3] == str(compute))
            for seen in one.cite("minor")
        )


class ServiceWish(Struct, frozen=True):
    """A MIG device that a unit of systemd asks for by name in the environment of its first process."""

    unit: str
    name: str
    evidence: Evidence


class Mig(Fact, frozen=True):
    """The GPUs in MIG mode; where there is none, nothing more is looked at.

    `nodes` are the instances by the minors of their nodes in /dev/nvidia-caps, with the minor of their GPU, or why they are not known;
    `others` are the minors of all other capabilities. `names` are the UUIDs of all MIG devices in lower case, or why there may be more.
    `operators` is the GPU Operator's MIG manager where it runs here, `at_work` what is changing the layout just now. Where a GPU has no
    instance, `booted` is told, and `on_demand`: what shows that instances are made when a pod asks for one.
    """

    nodes: Reading[Mapping[int, tuple[int, str]]]
    others: frozenset[int] = frozenset()
    gpus: tuple[MigGpu, ...] = ()
    names: Reading[frozenset[str]] = frozenset()
    monitor: int | None = None
    booted: int | None = None
    on_demand: Evidence | None = None
    at_work: Evidence | None = None
    operators: Evidence | None = None
    services: tuple[ServiceWish, ...] = ()

    def gpu(self, address: str) -> MigGpu | None:
        """The GPU at an address, None where it is not in MIG mode."""
        return next((one for one in self.gpus if one.address == address), None)

    def minors_of(self, name: str) -> tuple[int, ...]:
        """The minors of the nodes that whoever uses a MIG device needs: of its GPU instance and its compute instance."""
        wanted: set[tuple[int | None, str]] = set()
        for one in self.gpus:
            for each in one.device.mig_devices:
                numbers = _numbers(each)
                old = f"MIG-{one.device.uuid}/{each.gpu_instance_id}/{each.compute_instance_id}"
                if numbers is not None and name.lower() in ((each.uuid or "").lower(), old.lower()):
                    place = f"gi{numbers[0]}"
                    wanted |= {(one.device.minor, place), (one.device.minor, f"{place}/ci{numbers[1]}")}
        nodes = {} if isinstance(self.nodes, Unread) else self.nodes
        return tuple(sorted(minor for minor, place in nodes.items() if place in wanted))

    @classmethod
    def gather(cls, desk: Desk) -> "Mig | Unread":
        """NVML tells who is in MIG mode."""
        nvml = desk.get(Nvml)
        if isinstance(nvml, Unread):
            return nvml
        divided = [one for one in nvml.devices if one.fields.get(CURRENT) is True or one.mig_devices]
        names = _names(nvml, divided)
        if not divided:
            return cls(nodes={}, names=names)
        capabilities = desk.get(Capabilities)
        gpus = tuple(_gpu(one, capabilities) for one in divided if one.address is not None)
        empty = any(not one.device.mig_devices for one in gpus)
        return cls(
            gpus=gpus,
            nodes=_nodes(capabilities),
            others=_others(capabilities),
            names=names,
            monitor=_monitor(capabilities),
            booted=_booted(desk.raw) if empty else None,
            on_demand=_on_demand(desk) if empty else None,
            at_work=_running(desk, _PARTED),
            operators=_running(desk, _OPERATORS),
            services=tuple(_service_wishes(desk)),
            read_from=capabilities.read_from if isinstance(capabilities, Capabilities) else {},
        )


def _numbers(device: MigDevice) -> tuple[int, int] | None:
    if device.gpu_instance_id is None or device.compute_instance_id is None:
        return None
    return device.gpu_instance_id, device.compute_instance_id


def _named(device: MigDevice) -> str:
    numbers = _numbers(device)
    place = f"(GI {numbers[0]}, CI {numbers[1]})" if numbers is not None else ""
    return " ".join(word for word in (device.profile or device.uuid or "one", place) if word)


def _names(nvml: Nvml, divided: list[NvmlDevice]) -> Reading[frozenset[str]]:
    """Those of the old form are told as NVML tells them: MIG-GPU-UUID/GI/CI up to R460 (nvml.h of 450)."""
    for device in nvml.devices:
        told = device.lists_mig or bool(device.mig_devices) or device.fields.get(CURRENT) is True or _never(device)
        if device.error is not None or not told:
            where = device.address or device.uuid or "a GPU"
            return Unread(Why.NOT_ANSWERED, device.via, f"whether {where} has MIG devices is not told")
    for device in divided:
        if not device.lists_mig or any(not one.uuid for one in device.mig_devices):
            return Unread(Why.NOT_ANSWERED, device.via, f"not all MIG devices of {device.address} are told by UUID")
    return frozenset(one.uuid.lower() for device in divided for one in device.mig_devices if one.uuid)


def _never(device: NvmlDevice) -> bool:
    """Whether it has no MIG device because MIG is off, or unknown to the board or to the driver (nvml.h, nvmlDeviceGetMigMode)."""
    told = device.fields.get(CURRENT)
    return told is False or (isinstance(told, FieldError) and told.error in _NO_MIG)


def _gpu(device: NvmlDevice, capabilities: Reading[Capabilities]) -> MigGpu:
    own = () if isinstance(capabilities, Unread) else tuple(_of_gpu(capabilities, device.minor))
    return MigGpu(
        address=device.address or "",
        device=device,
        instances=_instances(capabilities, device.minor, own),
        capabilities=own,
    )


def _of_gpu(capabilities: Capabilities, minor: int | None) -> Iterator[Capability]:
    for one in capabilities.capabilities:
        place = _PLACE.fullmatch(one.path)
        if place is not None and int(place[1]) == minor:
            yield one


def _hidden(capabilities: Reading[Capabilities]) -> Unread | None:
    """Why there may be more instances than the capabilities show. A driver with MIG lists mig/config and mig/monitor in any case."""
    if isinstance(capabilities, Unread):
        return capabilities
    if capabilities.unread is not None:
        return capabilities.unread
    if not capabilities.capabilities:
        return Unread(Why.NOT_ANSWERED, CAPABILITIES, "shows no capability here")
    return None


def _instances(
    capabilities: Reading[Capabilities], minor: int | None, own: tuple[Capability, ...]
) -> Reading[Mapping[int, tuple[int, ...]]]:
    hidden = _hidden(capabilities)
    if hidden is not None:
        return hidden
    if minor is None:
        return Unread(
            Why.NOT_ANSWERED, CAPABILITIES, "which of them are this GPU's is not known: its minor is not told"
        )
    found: dict[int, list[int]] = {}
    for one in own:
        place = _PLACE.fullmatch(one.path)
        if place is not None:
            computes = found.setdefault(int(place[2]), [])
            computes += [int(place[3])] if place[3] is not None else []
    return {instance: tuple(sorted(computes)) for instance, computes in sorted(found.items())}


def _nodes(capabilities: Reading[Capabilities]) -> Reading[Mapping[int, tuple[int, str]]]:
    hidden = _hidden(capabilities)
    if hidden is not None or isinstance(capabilities, Unread):
        return hidden or {}
    found: dict[int, tuple[int, str]] = {}
    for one in capabilities.capabilities:
        place, number = _PLACE.fullmatch(one.path), one.node.minor
        if place is not None and number is not None:
            found[number] = int(place[1]), f"gi{place[2]}" + (f"/ci{place[3]}" if place[3] is not None else "")
    return found


def _others(capabilities: Reading[Capabilities]) -> frozenset[int]:
    """mig/config, mig/monitor, fabric-imex-mgmt, and what later drivers add."""
    found = () if isinstance(capabilities, Unread) else capabilities.capabilities
    return frozenset(one.node.minor for one in found if _PLACE.fullmatch(one.path) is None)


def _monitor(capabilities: Reading[Capabilities]) -> int | None:
    """The minor of the capability to watch instances that one does not use."""
    found = () if isinstance(capabilities, Unread) else capabilities.capabilities
    return next((one.node.minor for one in found if one.path == _MONITOR), None)


def _booted(raw: Raw) -> int | None:
    from gpudoctor.facts.boot import booted_at

    return booted_at(raw)


def _running(desk: Desk, comm: str) -> Evidence | None:
    processes = desk.get(Processes)
    found = () if isinstance(processes, Unread) else processes.processes
    one = next((each for each in found if each.comm == comm and not each.ended), None)
    return Evidence("processes (/proc/*/stat)", f"{comm} ({one.pid})") if one is not None else None


def _on_demand(desk: Desk) -> Evidence | None:
    """The DRA driver with its feature DynamicMIG leaves MIG on where it cannot switch it back, and makes instances for claims.

    kubernetes-sigs/dra-driver-nvidia-gpu#1018; FEATURE_GATES in its chart's templates/kubeletplugin.yaml.
    """
    processes = desk.get(Processes)
    if isinstance(processes, Unread):
        return None
    paths = tuple(f"/proc/{one.pid}/environ" for one in processes.processes if one.comm == _DRA and not one.ended)
    files = desk.raw.read_blocking(paths, keep=r"\AFEATURE_GATES=") if paths else {}
    texts = ((path, file.text) for path, file in files.items() if isinstance(file, TextFile))
    return next((Evidence(path, text.strip("\0\n")) for path, text in texts if "DynamicMIG=true" in text), None)


def _service_wishes(desk: Desk) -> Iterator[ServiceWish]:
    """Containers and jobs are asked what they want by others; of a unit only the two variables that may name a MIG device are read."""
    workloads = desk.get(Workloads)
    if isinstance(workloads, Unread):
        return
    units = [one for one in workloads if one.kind is GroupKind.SERVICE and one.leading is not None]
    paths = {f"/proc/{one.pid}/environ": one for one in units}
    files = desk.raw.read_blocking(tuple(paths), keep=_VISIBLE) if paths else {}
    for path, one in paths.items():
        file = files[path]
        for line in file.text.split("\0") if isinstance(file, TextFile) else ():
            variable, _, value = line.strip().partition("=")
            for name in value.split(",") if variable.endswith("_VISIBLE_DEVICES") else ():
                if name.strip().startswith("MIG-"):
                    yield ServiceWish(one.key, name.strip(), Evidence(path, f"{variable}={value}"))
