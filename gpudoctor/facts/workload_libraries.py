"""The libcuda that a workload's image puts before the driver's: of those whose LD_LIBRARY_PATH leads to compat libraries or stubs."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.inner_libraries import CUDA, InnerLibrary, MappedLibrary, look_for_libraries
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Raw
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

LIBRARY_PATH = "LD_LIBRARY_PATH"

_OF_AN_IMAGE = pattern(r"/(?:compat|stubs?)(?:[/.:]|$)")


class ImageLibrary(Struct, frozen=True):
    """The libcuda that comes first in one workload, and the names of its GPUs; `unseen` is why nothing is known of it."""

    library: InnerLibrary | MappedLibrary | None
    gpus: tuple[str, ...]
    variable: Evidence
    unseen: Unread | None = None

    @property
    def evidence(self) -> Cited:
        """The library and the variable."""
        return (*((self.library.evidence,) if self.library is not None else ()), self.variable)


class ImageLibraries(Fact, frozen=True):
    """By key of the workload. Only those are looked into whose variable names such a folder: others put none before the driver's."""

    by_key: Mapping[str, ImageLibrary]

    @classmethod
    def gather(cls, desk: Desk) -> "ImageLibraries | Unread":
        """What is mapped counts first, then what the variable leads to."""
        workloads = desk.get(GpuWorkloads)
        if isinstance(workloads, Unread):
            return workloads
        found: dict[str, ImageLibrary] = {}
        for one in workloads:
            search = one.wishes.variable(LIBRARY_PATH) or ""
            if _OF_AN_IMAGE.search(search) and isinstance(one.devices, Devices):
                found[one.workload.key] = _look(desk.raw, one, search, one.devices, _names(desk, one))
        return cls(by_key=found)


def _look(raw: Raw, one: GpuWorkload, search: str, devices: Devices, gpus: tuple[str, ...]) -> ImageLibrary:
    pid = one.workload.pid
    pids = tuple(dict.fromkeys((pid, *one.workload.pids)))
    folders = [folder for folder in search.split(":") if folder.startswith("/")]
    inside = look_for_libraries(raw, pid, pids, folders, devices.libraries)
    mapped = inside.mapped_as(CUDA)
    variable = Evidence(f"/proc/{pid}/environ", f"{LIBRARY_PATH}={search}")
    first = mapped[0] if mapped else inside.first(CUDA)
    return ImageLibrary(first, gpus, variable, inside.unseen or inside.unmapped if first is None else None)


def _names(desk: Desk, one: GpuWorkload) -> tuple[str, ...]:
    """The names of the GPUs whose nodes it has, as NVML, else the driver's procfs, gives them."""
    nvml, gpus = desk.get(Nvml), desk.get(DriverGpus)
    found: list[str] = []
    for subject in one.gpus:
        device = None if isinstance(nvml, Unread) else nvml.device(subject.key)
        driver = None if isinstance(gpus, Unread) else gpus.gpus.get(subject.key)
        name = device.name if device is not None and device.name else None
        name = name or (driver.model if isinstance(driver, DriverGpu) else None)
        found += [name] if name else []
    return tuple(found)
