"""Health: does a GPU's PCIe link send packets again and again, and does it run at its best while the GPU is busy?"""

from collections.abc import Mapping

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.nvml_window import HOUR, NodeUptime, is_loaded, later_number, number
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_link import GpuLinks
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.registry import check
from gpudoctor.verdicts import Evidence, NotApplicable, Pass, Unread, Verdict, Verdicts, Warn

REPLAYS, UNDER_LOAD = "health.pcie-replays", "health.pcie-under-load"

_REPLAYS, _ROLLOVERS = "pcie.replays", "pcie.replay_rollovers"
_GENERATION, _WIDTH = "pcie.generation", "pcie.width"
_MOST_GENERATION, _MOST_WIDTH = "pcie.max_generation", "pcie.max_width"
_BUSY = "utilization.gpu_percent"
_UNSUPPORTED = "pcie.errors.unsupported_request"

FULL = 65535
"""A counter of 16 bits that has reached its end; seen beside a link of one lane behind a riser."""
SEVERAL = 3.0
"""None where three are due happens once in twenty times by chance (Poisson)."""


@check(
    REPLAYS,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=("health.pcie-under-load",),
    title="No GPU's PCIe link sends packets again all the time",
)
def pcie_replays(gpus: PciGpus, nvml: Nvml, limits: Thresholds, uptime: NodeUptime) -> Verdicts:
    """A packet that arrives damaged is sent again: nothing is lost, but a link that does so all the time is slow, and often about to fail.

    A number alone says nothing: some replays are ordinary since the driver was loaded. NVIDIA's limit is eight a minute (DCGM,
    DCGM_LIMIT_MAX_PCIREPLAY_RATE). Judged are the replays between two looks a second apart, which a GPU with any gets, and their rate
    over the node's uptime, an hour at least, which is no more than the true one. That rate is refuted where a busy link had to make
    several in the second and made none: then all came at once, as when the link was trained. Where neither is known the number is
    told. The kernel's own counters of errors that cost data are pcie.aer-errors.
    """
    return judged(gpus, nvml, lambda gpu, device: _replays(gpu, device, limits, uptime))


def _replays(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, uptime: NodeUptime) -> Verdict:
    count = number(device, _REPLAYS)
    if count is None:
        return untold(gpu, device, (_REPLAYS,), "PCIe replay counter")
    evidence = cited(device, (_REPLAYS, _ROLLOVERS))
    later, after = device.later, later_number(device, _REPLAYS)
    window = ""
    if later is not None and after is not None:
        window = f", {after - count} in {later.seconds:.1f} s"
        evidence += (Evidence(_where(device), f"{later.seconds:.1f} s later {_REPLAYS}: {after}"),)
    rate = None if uptime.seconds is None else count / (max(uptime.seconds, HOUR) / 60)
    again = f"its PCIe link sends packets again: {count} replays"
    in_window = limits.of("pcie_replays_in_window")
    growing = [(name, more) for name, more in _grown(device) if more >= in_window]
    if after is not None and after - count >= in_window:
        said, name = f"{again}{window}", "pcie_replays_in_window"
    elif growing and later is not None:
        kinds = ", ".join(f"{kind.rpartition('.')[2].replace('_', ' ')} {more} more" for kind, more in growing)
        said, name = f"its PCIe link makes errors: {kinds} in {later.seconds:.1f} s", "pcie_replays_in_window"
        evidence += cited(device, [kind for kind, _ in growing])
    elif rate is not None and rate > limits.of("pcie_replays_per_minute") and not _is_over(device, rate, limits):
        said, name = f"{again}, {rate:.0f} a minute since the node booted{window}", "pcie_replays_per_minute"
        evidence += uptime.cite("seconds")
    elif count >= FULL:
        said, name = f"its PCIe link sends packets again: the counter of replays stands at its end, {count}", ""
    else:
        few = f"{count} PCIe replays since the driver was loaded{window}" if count else "no PCIe replays"
        return Pass(gpu, few, evidence)
    from gpudoctor.knowledge.thermal_remedies import link_errors

    evidence += limits.cite(name) if name else ()
    evidence += cited(device, (_GENERATION, _WIDTH, _MOST_WIDTH))
    return Warn(gpu, said, evidence, link_errors(REPLAYS, gpu.address), cause="pcie-replays")


def _is_over(device: NvmlDevice, rate: float, limits: Thresholds) -> bool:
    """Whether a busy link made no replay in a time in which it makes several at that rate a minute; a counter at its end cannot tell."""
    later, before, after = device.later, number(device, _REPLAYS), later_number(device, _REPLAYS)
    if later is None or before is None or before >= FULL or before != after or not is_loaded(device, limits):
        return False
    return rate / 60 * later.seconds >= SEVERAL


def _grown(device: NvmlDevice) -> list[tuple[str, int]]:
    """The other counters of errors that grew between two looks; a request that nobody supports is none of the link's."""
    if device.later is None:
        return []
    names = [name for name in device.later.fields if name.startswith("pcie.errors.") and name != _UNSUPPORTED]
    both = [(name, number(device, name), later_number(device, name)) for name in names]
    return [(name, after - before) for name, before, after in both if before is not None and after is not None]


def _where(device: NvmlDevice) -> str:
    return f"{device.via} ({device.address or device.uuid})"


@check(
    UNDER_LOAD,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="A busy GPU's PCIe link runs at its best",
)
def pcie_under_load(gpus: PciGpus, nvml: Nvml, links: Reading[GpuLinks], limits: Thresholds) -> Verdicts:
    """Idle GPUs lower their link's speed to save power, so that a slow link proves something only while the GPU is busy.

    Then the generation should be the highest that GPU and system allow together (nvmlDeviceGetMaxPcieLinkGeneration). Lanes are not
    lowered for saving: where both ends of the link are seen, pcie.link-width judges them; elsewhere, as in virtual machines and in what
    nvidia-smi printed, a GPU with fewer lanes than another of its model is told, and a busy one with a quarter of its lanes or less.
    Half of them is how many slots are wired, and is only said.
    """
    widest: dict[str | None, int] = {}
    for device in nvml.devices:
        widest[device.name] = max(widest.get(device.name, 0), number(device, _WIDTH) or 0)
    return judged(gpus, nvml, lambda gpu, device: _link(gpu, device, widest, _seen(gpu, links), limits))


def _seen(gpu: PciGpu, links: Reading[GpuLinks]) -> bool:
    """Whether sysfs tells of both ends of the GPU's link."""
    return (
        not isinstance(links, Unread)
        and bool(links.by_address.get(gpu.address))
        and not isinstance(links.by_address[gpu.address], Unread)
    )


def _link(gpu: PciGpu, device: NvmlDevice, widest: Mapping[str | None, int], seen: bool, limits: Thresholds) -> Verdict:
    generation, width = number(device, _GENERATION), number(device, _WIDTH)
    if generation is None or width is None:
        return untold(gpu, device, (_GENERATION, _WIDTH), "PCIe link")
    most, lanes = number(device, _MOST_GENERATION) or generation, number(device, _MOST_WIDTH) or width
    evidence = cited(device, (_GENERATION, _MOST_GENERATION, _WIDTH, _MOST_WIDTH, _BUSY))
    busy = is_loaded(device, limits)
    generation = max(generation, later_number(device, _GENERATION) or 0)
    trouble: list[str] = []
    if busy and generation < most:
        trouble.append(f"generation {generation} of {most} while it is busy")
    if not seen and width < widest.get(device.name, 0):
        trouble.append(f"{width} lanes, and {widest[device.name]} at another GPU of its model")
    elif not seen and busy and width * 4 <= lanes:
        trouble.append(f"{width} of {lanes} lanes")
    if trouble:
        from gpudoctor.knowledge.thermal_remedies import link_errors

        said = f"its PCIe link has {' and '.join(trouble)}"
        return Warn(gpu, said, evidence, link_errors(UNDER_LOAD, gpu.address), cause="pcie-link-degraded")
    fewer = f", {width} of {lanes} lanes, as wide as its slot may be" if width < lanes else f", {width} lanes"
    if not busy and generation < most:
        return NotApplicable(gpu, f"not busy: generation {generation} of {most} saves power{fewer}", evidence)
    return Pass(gpu, f"generation {generation}{fewer}", evidence)
