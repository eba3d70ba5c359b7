"""Which GPUs a workload was meant to have, by address: as far as the names that were asked for tell."""

from collections.abc import Iterable

from gpudoctor.facts.device_nodes import NVIDIA_MAJOR
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.workload_wishes import Asker, Wish

_UUIDS = ("GPU-", "MIG-")


def meant(one: GpuWorkload) -> bool:
    """Whether an engine or scheduler was asked for a GPU, or a variable names one by its UUID.

    Images set NVIDIA_VISIBLE_DEVICES=all, programs CUDA_VISIBLE_DEVICES=0: neither asks anybody. A UUID is nobody's default: the device
    plugin's strategy envvar sends one through the kubelet. Mounted libraries alone are also what `none` gives.
    """
    return any(_names_gpus(wish) for wish in one.wishes.wishes) or _ruled(one)


def _names_gpus(wish: Wish) -> bool:
    if wish.asker is Asker.ENVIRONMENT:
        return any(name.startswith(_UUIDS) for name in wish.gpus)
    return wish.asker in (Asker.SCHEDULER, Asker.ENGINE) and bool(wish.gpus)


def _ruled(one: GpuWorkload) -> bool:
    """Whether its configuration allows NVIDIA's devices, and not just all: `--device-cgroup-rule`."""
    config = one.workload.config
    if not isinstance(config, OciConfig) or config.allows_everything:
        return False
    return any(rule.allow and rule.major == NVIDIA_MAJOR and "r" in (rule.access or "rwm") for rule in config.rules)


def by_nodes_only(one: GpuWorkload) -> bool:
    """Whether nothing but single nodes was asked for, as whoever only watches GPUs may do."""
    names = [name for wish in one.wishes.wishes if _names_gpus(wish) for name in wish.gpus]
    return bool(names) and all(name.startswith("/dev/") for name in names)


def asked_gpus(one: GpuWorkload, driver: DriverGpus) -> tuple[str, ...]:
    """The addresses of all GPUs it may be about. An index counts them in the order of the bus, as NVML does (nvml.h).

    Where some are hidden an index may be any of those that are seen.
    """
    names = [name for wish in one.wishes.wishes if wish.asker is not Asker.IMAGE for name in wish.gpus]
    addresses = sorted(driver.gpus)
    found: list[str] = []
    for name in (_plain(name) for name in names):
        index = decimal(name)
        if name == "all" or name.endswith(" of them") or (index is not None and driver.unlisted is not None):
            return tuple(addresses)
        if index is not None:
            found += addresses[index : index + 1]
        else:
            found += _named(name, driver)
    return tuple(dict.fromkeys(found))


def named_minors(one: GpuWorkload, driver: DriverGpus) -> dict[int, str]:
    """The minors of GPUs that were asked for by UUID or node, with the name; an index may be counted in more than one way."""
    names = [_plain(name) for wish in one.wishes.wishes if _names_gpus(wish) for name in wish.gpus]
    known = {address: gpu for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu)}
    return {
        minor: name
        for name in names
        for address in _named(name, driver)
        if address in known and (minor := known[address].minor) is not None
    }


def mig_names(one: GpuWorkload) -> tuple[str, ...]:
    """The MIG devices that were asked for by name."""
    names = (_plain(name) for wish in one.wishes.wishes for name in wish.gpus)
    return tuple(dict.fromkeys(name for name in names if name.startswith("MIG-")))


def _plain(name: str) -> str:
    """Without the class of CDI and the number of a replica: `nvidia.com/gpu=GPU-…`, `GPU-…::0` (k8s-device-plugin, time-slicing)."""
    return name.rpartition("=")[2].partition("::")[0]


def _named(name: str, driver: DriverGpus) -> Iterable[str]:
    minor = decimal(name.removeprefix("/dev/nvidia")) if name.startswith("/dev/nvidia") else None
    return [
        address
        for address, gpu in driver.gpus.items()
        if isinstance(gpu, DriverGpu)
        and ((minor is not None and gpu.minor == minor) or (gpu.uuid is not None and gpu.uuid.lower() == name.lower()))
    ]
