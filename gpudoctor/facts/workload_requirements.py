"""What the image of each workload that concerns GPUs demands of the driver, held against what there is for each of its GPUs."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.gpu_variables import Variables
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.knowledge.cuda_compatibility import minimum_driver, numbers
from gpudoctor.knowledge.cuda_requirements import (
    CUDA_VERSION,
    DISABLE,
    NAMED_BRANDS,
    UNKNOWN_BRAND,
    Judged,
    Outcome,
    Provided,
    Requirement,
    brand_of,
    is_true,
    judge_all,
    requirements_of,
)
from gpudoctor.knowledge.driver_branches import cuda_of
from gpudoctor.verdicts import Cited, Evidence, Unread

Environment: TypeAlias = Variables | Absent | Unread


class Demands(Citable, frozen=True):
    """The requirements of one workload with what becomes of each; `lifted` says that NVIDIA_DISABLE_REQUIRE stands beside them.

    `beyond` is whether the driver is too old for the whole major version of the CUDA that the image names.
    """

    judged: tuple[tuple[Requirement, Judged], ...]
    lifted: bool
    beyond: bool
    where: str
    variables: Variables

    def stated(self, variable: str) -> Evidence:
        """A variable as it is set."""
        return Evidence(self.where, f"{variable}={(self.variables.get(variable) or '')[:300]}")


class WorkloadRequirements(Fact, frozen=True):
    """By key: the demands, or why a workload's environment is not known. `cuda` is what the driver offers, with where that was read."""

    by_key: Mapping[str, Demands | Absent | Unread]
    cuda: str | None
    driver: str | None
    offered: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadRequirements | Unread":
        """Nothing is read but what others read."""
        concerned = desk.get(GpuWorkloads)
        if isinstance(concerned, Unread):
            return concerned
        nvml = desk.get(Nvml) if len(concerned.workloads) else None
        module = desk.get(NvidiaModule)
        known = nvml if isinstance(nvml, Nvml) else None
        driver = module.version if isinstance(module, NvidiaModule) else None
        driver = driver or (known.driver_version if known is not None else None)
        cuda, offered = _cuda(known, module if isinstance(module, NvidiaModule) else None, driver)
        here = Provided(cuda=cuda, driver=driver)
        return cls(
            by_key={one.workload.key: _demands(one, here, known) for one in concerned},
            cuda=cuda,
            driver=driver,
            offered=offered,
        )


def _cuda(nvml: Nvml | None, module: NvidiaModule | None, driver: str | None) -> tuple[str | None, Cited]:
    """As NVML tells it, which asks the same libcuda as libnvidia-container; else what all drivers of the branch offer."""
    cited = module.cite("version") if module is not None and module.version else ()
    if nvml is not None and nvml.cuda_version is not None:
        return nvml.cuda_version, (Evidence(f"{nvml.via}, the driver's CUDA version", nvml.cuda_version), *cited)
    return (cuda_of(driver) if driver else None), cited


def environment_of(one: GpuWorkload) -> tuple[Environment, str]:
    """What the runtime was given, else what the leading process has; and where that stands."""
    config = one.workload.config
    if isinstance(config, OciConfig) and config.variables:
        return config.variables, config.path
    return one.wishes.variables, f"/proc/{one.workload.pid}/environ"


def _demands(one: GpuWorkload, here: Provided, nvml: Nvml | None) -> Demands | Absent | Unread:
    said, where = environment_of(one)
    if not isinstance(said, Variables):
        return said
    requirements = requirements_of(dict(said.pairs))
    gpus = [_provided(gpu.key, here, nvml) for gpu in one.gpus] or [_without_gpus(one, here)]
    return Demands(
        judged=_by_either_name(requirements, gpus),
        lifted=is_true(said.get(DISABLE)),
        beyond=_beyond(said.get(CUDA_VERSION) or "", here.driver),
        where=where,
        variables=said,
        read_from={"variables": Evidence(where, f"{len(said.pairs)} variables about GPUs")},
    )


def _by_either_name(
    requirements: Sequence[Requirement], gpus: Sequence[Provided]
) -> tuple[tuple[Requirement, Judged], ...]:
    """Newer brands go by their names or as unknown, by release: what hangs on that is not known. NVIDIA's own images name both."""
    judged = judge_all(requirements, gpus)
    if all(gpu.brand is None or gpu.brand in (*NAMED_BRANDS, UNKNOWN_BRAND) for gpu in gpus):
        return judged
    unnamed = [gpu if gpu.brand in (None, *NAMED_BRANDS) else replace(gpu, brand=UNKNOWN_BRAND) for gpu in gpus]
    unsure = Judged(Outcome.UNKNOWN, untold=("brand",))
    return tuple(
        (requirement, one if one.outcome is other.outcome else unsure)
        for (requirement, one), (_, other) in zip(judged, judge_all(requirements, unnamed), strict=True)
    )


def _without_gpus(one: GpuWorkload, here: Provided) -> Provided:
    """What there is where no GPU's node is inside, or where it is not known whose nodes are."""
    devices = one.devices
    none = isinstance(devices, Devices) and devices.unseen is None and not devices.minors
    return Provided(cuda=here.cuda, driver=here.driver, no_gpu=none)


def _beyond(version: str, driver: str | None) -> bool:
    wanted, have = numbers(version)[:2], numbers(driver or "")
    oldest = minimum_driver(*wanted) if len(wanted) == 2 else None
    return bool(have) and oldest is not None and have < numbers(oldest)


def _provided(address: str, here: Provided, nvml: Nvml | None) -> Provided:
    device = nvml.device(address) if nvml is not None else None
    return Provided(
        cuda=here.cuda,
        driver=here.driver,
        arch=device.compute_capability if device is not None else None,
        brand=brand_of(device.brand) if device is not None else None,
    )
