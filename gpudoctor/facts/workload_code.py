"""Whether an image leaves a workload without code for one of its GPUs: by its CUDA version, and by what PyTorch was built for.

Sources: images of CUDA set CUDA_VERSION (nvidia/container-images/cuda); PyTorch builds for TORCH_CUDA_ARCH_LIST (pytorch
torch/utils/cpp_extension.py), which NVIDIA's own images keep in their environment. A toolkit's libraries have code for what it
compiles for (knowledge/compute_capabilities.py).
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.gpu_variables import Variables
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.workload_requirements import WorkloadRequirements, environment_of
from gpudoctor.knowledge.cuda_requirements import CUDA_VERSION
from gpudoctor.verdicts import Evidence, Unread

ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


class Lacking(Struct, frozen=True):
    """A GPU for which there is no code, by its key and compute capability, and why."""

    gpu: str
    cc: str
    why: str


class Code(Citable, frozen=True):
    """What an image says of its code. `capabilities` are those of the workload's GPUs that are known, `lacking` those without code.

    `variable` is the one that tells, "" where none does.
    """

    variable: str
    capabilities: Mapping[str, str]
    lacking: tuple[Lacking, ...]


class WorkloadCode(Fact, frozen=True):
    """By key: the code, or why a workload's environment is not known."""

    by_key: Mapping[str, Code | Absent | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadCode | Unread":
        """The tables are only asked where an image says something and there is a GPU."""
        concerned = desk.get(GpuWorkloads)
        if isinstance(concerned, Unread):
            return concerned
        return cls(by_key={one.workload.key: _code(desk, one) for one in concerned})


def _code(desk: Desk, one: GpuWorkload) -> Code | Absent | Unread:
    said, where = environment_of(one)
    if not isinstance(said, Variables):
        return said
    listed, cuda = said.get(ARCH_LIST) or "", said.get(CUDA_VERSION) or ""
    variable = ARCH_LIST if listed else CUDA_VERSION if cuda else ""
    shows = f"{variable}={said.get(variable)}" if variable else f"{len(said.pairs)} variables about GPUs"
    capabilities = dict(_capabilities(desk, one)) if variable else {}
    offered = desk.get(WorkloadRequirements)
    driver_cuda = offered.cuda if isinstance(offered, WorkloadRequirements) else None
    return Code(
        variable=variable,
        capabilities=capabilities,
        lacking=tuple(_lacking(capabilities, listed, cuda, driver_cuda)),
        read_from={"variable": Evidence(where, shows[:300])},
    )


def _capabilities(desk: Desk, one: GpuWorkload) -> Iterator[tuple[str, str]]:
    """As NVML tells them, else by the device's id on the bus."""
    from gpudoctor.knowledge.gpu_models import cc_of_id

    nvml, gpus = desk.get(Nvml), desk.get(PciGpus)
    on_bus = {} if isinstance(gpus, Unread) else {gpu.address: gpu for gpu in gpus}
    for gpu in one.gpus:
        device = None if isinstance(nvml, Unread) else nvml.device(gpu.key)
        told = device.compute_capability if device is not None else None
        found = on_bus.get(gpu.key)
        cc = told if told is not None else cc_of_id(found.device_id) if found is not None else None
        if cc is not None:
            yield gpu.key, cc


def _lacking(capabilities: Mapping[str, str], listed: str, cuda: str, driver_cuda: str | None) -> Iterator[Lacking]:
    from gpudoctor.knowledge.compute_capabilities import BY_CC, Runs, parse_targets, runs
    from gpudoctor.knowledge.version_numbers import minor_of

    targets = tuple(word for word in re.split(r"[\s;,]+", listed) if word)
    readable = bool(targets) and all(parse_targets(word) for word in targets)
    version = ".".join(cuda.split(".")[:2])
    for gpu, cc in capabilities.items():
        last = BY_CC[cc].last_toolkit if cc in BY_CC else None
        if readable:
            outcome = runs(targets, cc, driver_cuda, version or None)
            if outcome.runs is Runs.NO:
                yield Lacking(gpu, cc, outcome.why)
        elif not targets and last is not None and (minor_of(version) or (0, 0)) > (minor_of(last) or (99, 0)):
            yield Lacking(gpu, cc, f"CUDA {version} has no code for it, the last that has is {last}: CUDA error 209")
