"""What `gpudoctor compat` reads of a node: the driver, the GPUs, toolkits on disk, and running containers."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.compat import Gpu
from gpudoctor.config import Config
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.cuda_runtimes import CudaRuntime, mapped_runtime, named_runtime
from gpudoctor.facts.cuda_toolkits import CudaToolkits
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.host import Host as NodeHost
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.platform import PlatformGpu, PlatformKind
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Raw
from gpudoctor.knowledge.compute_capabilities import BY_CC, parse_targets
from gpudoctor.knowledge.cuda_compatibility import forward_compatible
from gpudoctor.knowledge.cuda_requirements import DISABLE, Requirement, brand_of, is_true, requirements_of
from gpudoctor.verdicts import Unread

if TYPE_CHECKING:
    from gpudoctor.facts.gpu_workloads import GpuWorkload


class Container(Struct, frozen=True):
    """A running container or job that concerns GPUs."""

    key: str
    title: str
    gpus: tuple[str, ...]
    runtime: CudaRuntime | None
    requirements: tuple[Requirement, ...]
    lifted: bool


class Seen(Struct, frozen=True):
    """What the node shows. `driver` is None where none is loaded; `cuda_from` is who told `driver_cuda`."""

    host: NodeHost
    driver: str | None
    driver_cuda: str | None
    cuda_from: str
    gpus: tuple[Gpu, ...]
    windows: bool
    toolkits: CudaToolkits | None
    containers: tuple[Container, ...]
    unseen: tuple[str, ...]


def look(raw: Raw, config: Config) -> Seen:
    """Everything that is judged, read once."""
    desk = Desk(raw, config)
    unseen: list[Unread] = []
    host, module, nvml, platform = (
        desk.get(NodeHost),
        desk.get(NvidiaModule),
        desk.get(Nvml),
        desk.get(PlatformGpu),
    )
    answered = nvml if isinstance(nvml, Nvml) else None
    loaded = module.version if isinstance(module, NvidiaModule) else None
    if loaded is None and isinstance(module, Unread):
        unseen.append(module)
    driver = loaded or (answered.driver_version if answered is not None else None)
    toolkits = desk.get(CudaToolkits)
    if isinstance(toolkits, Unread):
        unseen.append(toolkits)
    elif toolkits.unseen is not None:
        unseen.append(toolkits.unseen)
    return Seen(
        host=host
        if isinstance(host, NodeHost)
        else NodeHost(hostname=None, kernel=None, os=None, os_id=None, boot_id=None),
        driver=driver,
        driver_cuda=answered.cuda_version if answered is not None else None,
        cuda_from=answered.via if answered is not None else "",
        gpus=tuple(_gpus(desk, answered)),
        windows=isinstance(platform, PlatformGpu) and platform.kind is PlatformKind.WSL2,
        toolkits=toolkits if isinstance(toolkits, CudaToolkits) else None,
        containers=tuple(_containers(desk, unseen)),
        unseen=tuple(dict.fromkeys(f"{one.where}: {one.detail}" for one in unseen)),
    )


# GPUs -----------------------------------------------------------------------------------------------------------------


def _gpus(desk: Desk, nvml: Nvml | None) -> Iterator[Gpu]:
    """Those on PCI, and those that only NVML lists, as under WSL."""
    pci, drivers = desk.get(PciGpus), desk.get(DriverGpus)
    seen = set()
    for one in () if isinstance(pci, Unread) else pci:
        seen.add(one.address)
        known = drivers.gpus.get(one.address) if isinstance(drivers, DriverGpus) else None
        name = known.model if isinstance(known, DriverGpu) else None
        yield _gpu(one.address, nvml.device(one.address) if nvml is not None else None, name, one.device_id)
    for device in nvml.devices if nvml is not None else ():
        # A lost GPU may be counted without anything that tells which one it is.
        if device.address not in seen and (device.address or device.name):
            yield _gpu(device.address, device, None, "")


def _gpu(address: str | None, device: NvmlDevice | None, name: str | None, device_id: str) -> Gpu:
    """Its compute capability as NVML tells it, else by its PCI id, else by its name."""
    name = (device.name if device is not None else None) or name
    cc = device.compute_capability if device is not None else None
    if cc is None or name is None:
        from gpudoctor.knowledge.gpu_models import by_id, cc_of_name

        model = by_id(device_id) if device_id else None
        name = name or _called(model.names if model is not None else ())
        cc = cc or (model.cc if model is not None else None) or cc_of_name(name)
    return described(name, cc, address, brand_of(device.brand) if device is not None else None)


def _called(names: tuple[str, ...]) -> str | None:
    return " / ".join(names) or None


def described(name: str | None, cc: str | None, address: str | None = None, brand: str | None = None) -> Gpu:
    """A GPU with what the tables tell of its name and compute capability."""
    architecture = BY_CC[cc].architecture if cc in BY_CC else None
    return Gpu(name, cc, architecture, forward_compatible(name, cc), brand, address)


def asked_gpu(word: str) -> Gpu:
    """`sm_90`, `9.0`, a PCI id such as 10de:2330, or a product's name, with or without NVIDIA."""
    from gpudoctor.knowledge.gpu_models import by_id, cc_of_name

    word = word.strip()
    targets = parse_targets(word.removeprefix("cc"))
    if targets and re.match(r"(?:sm_|compute_|cc)?\d", word):
        return described(None, targets[0].cc)
    if found := re.fullmatch(r"(?:0x)?(?:10de[:-])(?:0x)?([0-9a-f]{4})", word, re.IGNORECASE):
        model = by_id(found[1])
        return described(
            _called(model.names if model is not None else ()) or word, model.cc if model is not None else None
        )
    gpu = described(word, cc_of_name(word))
    # A GeForce may go without that word: no other board is found with it put before.
    is_geforce = gpu.forward_compatible is None and cc_of_name(f"GeForce {word}") is not None
    return replace(gpu, forward_compatible=False) if is_geforce else gpu


# Containers -----------------------------------------------------------------------------------------------------------


def _containers(desk: Desk, unseen: list[Unread]) -> Iterator[Container]:
    """Running containers and jobs that were meant to have a GPU, or have one. What reads them is loaded where any runs."""
    if not _any_runs(desk, unseen):
        return
    from gpudoctor.facts.gpu_workloads import GpuWorkloads

    concerned = desk.get(GpuWorkloads)
    if isinstance(concerned, Unread):
        unseen.append(concerned)
        return
    for one in concerned:
        seen = _container(one, desk.raw)
        if isinstance(seen, Container):
            yield seen
        elif seen is not None:
            unseen.append(seen)


def _any_runs(desk: Desk, unseen: list[Unread]) -> bool:
    """Whether there may be a container or a job at all."""
    if isinstance(processes := desk.get(Processes), Unread):
        unseen.append(processes)
        return False
    if _all_alike(processes):
        unseen.extend(() if processes.unlisted is None else (processes.unlisted,))
        return False
    from gpudoctor.facts.workload import LOOKED_INTO
    from gpudoctor.facts.workloads import Workloads

    running = desk.get(Workloads)
    if not isinstance(running, Workloads):
        unseen.append(running)
        return False
    if running.unlisted is not None:
        unseen.append(running.unlisted)
    return any(one.kind in LOOKED_INTO for one in running)


def _all_alike(processes: Processes) -> bool:
    """Whether control groups and namespaces of all processes are plainly the node's own: then nothing of a workload need be loaded."""
    own = (GroupKind.SERVICE, GroupKind.SCOPE, GroupKind.SESSION, GroupKind.OTHER)
    plain = all(identity.kind in own for identity in processes.identities)
    return plain and len(processes.namespaces) == 1 and all(one.namespaces == 0 for one in processes.processes)


def _container(one: "GpuWorkload", raw: Raw) -> Container | Unread | None:
    """What it carries and demands; None where it names neither, and why where its environment is not known."""
    from gpudoctor.facts.gpu_variables import Variables
    from gpudoctor.facts.inner_libraries import mapped_libraries
    from gpudoctor.facts.workload_requirements import environment_of

    mapped, _ = mapped_libraries(raw, tuple(dict.fromkeys((one.workload.pid, *one.workload.pids))))
    said, where = environment_of(one)
    variables = said if isinstance(said, Variables) else Variables()
    runtime = mapped_runtime(mapped) or named_runtime(variables, where)
    requirements = requirements_of(dict(variables.pairs))
    if runtime is None and not requirements:
        return said if isinstance(said, Unread) else None
    return Container(
        key=one.workload.key,
        title=one.workload.title,
        gpus=tuple(gpu.key for gpu in one.gpus),
        runtime=runtime,
        requirements=requirements,
        lifted=is_true(variables.get(DISABLE)),
    )
