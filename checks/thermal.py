"""Health: is a GPU too hot, and does anything hold its clocks down that should not?"""

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.nvml_window import (
    ACTIVE,
    BRAKE,
    HEAT,
    Lasting,
    NodeUptime,
    Slowdown,
    later_number,
    number,
    other_slowdown,
    slowdown,
)
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.knowledge.clocks_events import COUNTERS, UNHEALTHY, in_words
from gpudoctor.registry import check
from gpudoctor.verdicts import Cited, Evidence, NotApplicable, Pass, Unknown, Verdict, Verdicts, Warn, Why

TEMPERATURE, MEMORY, THROTTLING = "health.temperature", "health.memory-temperature", "health.throttling"

_GPU, _MARGIN = "temperature.gpu_celsius", "temperature.tlimit_celsius"
_SLOWDOWN, _SLOWDOWN_MARGIN = "temperature.slowdown_celsius", "temperature.slowdown_tlimit_celsius"
_MOST, _MOST_MARGIN = "temperature.max_gpu_celsius", "temperature.max_gpu_tlimit_celsius"
_MEMORY, _MOST_OF_MEMORY = "temperature.memory_celsius", "temperature.max_memory_celsius"


class _Heat(Struct, frozen=True):
    """How far a GPU is from its own limits, in degrees; None where it does not tell one."""

    to_most: int | None
    to_slowdown: int | None
    fields: tuple[str, ...]


def _heat(device: NvmlDevice) -> _Heat | None:
    """By the margin that newer GPUs tell, else by temperatures; the cooler of two looks counts.

    The margin counts down to 0 at the maximum operating temperature; the other limits are given on the same scale and are negative
    (nvml.h, nvmlDeviceGetMarginTemperature and NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT).
    """
    margin = number(device, _MARGIN)
    if margin is not None:
        later = later_number(device, _MARGIN)
        margin = margin if later is None else max(margin, later)
        slowdown_at = number(device, _SLOWDOWN_MARGIN)
        most = margin - (number(device, _MOST_MARGIN) or 0)
        left = None if slowdown_at is None else margin - slowdown_at
        return _Heat(most, left, (_GPU, _MARGIN, _SLOWDOWN_MARGIN, _MOST_MARGIN))
    celsius = number(device, _GPU)
    if celsius is None:
        return None
    later = later_number(device, _GPU)
    celsius = celsius if later is None else min(celsius, later)
    limits = [(number(device, name) or 0) for name in (_MOST, _SLOWDOWN)]
    most_left, slowdown_left = (limit - celsius if limit > 0 else None for limit in limits)
    return _Heat(most_left, slowdown_left, (_GPU, _MOST, _SLOWDOWN))


@check(
    TEMPERATURE,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="Every GPU is cooler than its own limit",
)
def temperature(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """Each board knows the temperatures it can bear: above the first its clocks may fall below their base, above the second they halve.

    They differ from model to model, so that no number of ours is used: newer GPUs tell how many degrees are left (T.Limit), older ones
    the temperatures. Beyond the last they switch themselves off, which looks like a GPU that fell off the bus (Xid 79) and happens under
    load only. That heat slows the GPU down, health.throttling tells: a consequence. Easily confused with a warm GPU: 85 degrees are
    well within the limits of many boards.
    """
    return judged(gpus, nvml, lambda gpu, device: _temperature(gpu, device, limits))


def _temperature(gpu: PciGpu, device: NvmlDevice, limits: Thresholds) -> Verdict:
    heat = _heat(device)
    if heat is None:
        return untold(gpu, device, (_GPU,), "temperature")
    evidence = cited(device, heat.fields)
    told = _degrees(device)
    if heat.to_slowdown is not None and heat.to_slowdown <= 0:
        from gpudoctor.knowledge.thermal_remedies import cool

        summary = f"{told}: from here on its hardware halves the clocks"
        return Warn(gpu, summary, evidence, cool(TEMPERATURE, gpu.address), cause="hot")
    if heat.to_most is None:
        if heat.to_slowdown is None:
            return NotApplicable(gpu, f"{told or 'the GPU'}: it tells no limit of its own", evidence[:1])
        return Pass(gpu, f"{told}, {heat.to_slowdown} °C below its slowdown", evidence)
    if heat.to_most <= limits.of("temperature_margin_celsius"):
        from gpudoctor.knowledge.thermal_remedies import cool

        left = f"{heat.to_most} °C are left to" if heat.to_most > 0 else "at or above"
        summary = f"{told}: {left} the temperature from which it may be throttled"
        evidence += limits.cite("temperature_margin_celsius")
        return Warn(gpu, summary, evidence, cool(TEMPERATURE, gpu.address), cause="hot")
    return Pass(gpu, f"{told}, {heat.to_most} °C below its limit", evidence)


def _degrees(device: NvmlDevice) -> str:
    celsius = number(device, _GPU)
    return "" if celsius is None else f"{celsius} °C"


@check(
    MEMORY,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(TEMPERATURE,),
    title="Every GPU's memory is cooler than its limit",
)
def memory_temperature(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """Stacked memory (HBM) gets hotter than the GPU beside it, and has a limit of its own: from there the driver slows the GPU down.

    Memory that stays hot also makes more errors. Judged where NVML tells both the temperature and the limit
    (NVML_TEMPERATURE_THRESHOLD_MEM_MAX): boards with GDDR tell no temperature, and since Hopper nvidia-smi prints the limit only
    relative to itself, as 0, so that such a capture has none.
    """
    return judged(gpus, nvml, _memory_temperature)


def _memory_temperature(gpu: PciGpu, device: NvmlDevice) -> Verdict:
    celsius, most = number(device, _MEMORY), number(device, _MOST_OF_MEMORY)
    if celsius is None:
        return untold(gpu, device, (_MEMORY,), "temperature of its memory")
    if not most:
        return NotApplicable(gpu, f"memory at {celsius} °C: it tells no limit for it", cited(device, (_MEMORY,)))
    evidence = cited(device, (_MEMORY, _MOST_OF_MEMORY))
    later = later_number(device, _MEMORY)
    if min(celsius, celsius if later is None else later) < most:
        return Pass(gpu, f"memory at {celsius} °C, its limit is {most} °C", evidence)
    from gpudoctor.knowledge.thermal_remedies import cool

    summary = f"memory at {celsius} °C, its limit is {most} °C: from there on the driver slows the GPU down"
    return Warn(gpu, summary, evidence, cool(MEMORY, gpu.address), cause="hot-memory")


@check(
    THROTTLING,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(TEMPERATURE, MEMORY),
    title="Neither heat nor a power brake slows a GPU down",
)
def throttling(gpus: PciGpus, nvml: Nvml, limits: Thresholds, uptime: NodeUptime) -> Verdicts:
    """A GPU that is slowed down works and gives no error; a job over many GPUs runs at the pace of the slowest.

    Heat (software: below the base clock; hardware: half the clock and less) and the power brake that a chassis pulls are told from what
    is normal: an idle GPU, one that keeps to its power limit at full load, clocks that somebody set. A blip is told from what lasts: a GPU
    found slowed down is asked again a second later, and newer drivers count for how long in all. Where only one look is known, as in what
    nvidia-smi printed once, it is said so. A hardware slowdown without one of those two reasons may be no more than a change of clocks
    (nvml.h, nvmlClocksEventReasonHwSlowdown). Easily confused with power limits: health.power-limit.
    """
    return judged(gpus, nvml, lambda gpu, device: _throttling(gpu, device, limits, uptime))


_WORDS = {
    Lasting.MOMENT: "at this moment",
    Lasting.OFTEN: "often",
    Lasting.LASTING: "not only for a moment",
    Lasting.BLIP: "for a moment only",
}


def _throttling(gpu: PciGpu, device: NvmlDevice, limits: Thresholds, uptime: NodeUptime) -> Verdict:
    if number(device, ACTIVE) is None:
        return untold(gpu, device, (ACTIVE,), "reason for its clocks")
    heat, brake = (slowdown(device, kinds, limits, uptime) for kinds in (HEAT, BRAKE))
    other = other_slowdown(device, limits, uptime)
    evidence = _shown(device) + (uptime.cite("seconds") if Lasting.OFTEN in (heat.lasting, brake.lasting) else ())
    if brake.speaks:
        summary = f"the chassis' power brake holds its clocks down {_for(brake)}{_state(device)}"
        return _told(gpu, summary, evidence, "power-brake")
    if heat.speaks:
        summary = f"{in_words(heat.bits) or 'heat'} holds its clocks down {_for(heat)}{_state(device)}"
        hot = _heat(device)
        seen_hot = hot is not None and hot.to_slowdown is not None and hot.to_slowdown <= 0
        heat = Slowdown(Lasting.LASTING, heat.bits, heat.seconds) if seen_hot and heat.bits else heat
        return _told(gpu, summary, evidence, "heat")
    if other.lasting is Lasting.MOMENT:
        words = "a hardware slowdown without a reason at this moment: a change of clocks looks the same"
        return Unknown(gpu, Why.NOT_ANSWERED, words, evidence, would_need="a second look")
    if other.speaks:
        summary = (
            f"a hardware slowdown holds its clocks down {_for(other)}, neither for heat nor by a brake{_state(device)}"
        )
        return _told(gpu, summary, evidence, "hw-slowdown")
    if Lasting.BLIP in (heat.lasting, brake.lasting, other.lasting):
        since = "a second later nothing was" if device.later is not None else "less than a second in all"
        return Pass(gpu, f"slowed down for a moment only: {since}", evidence)
    return Pass(gpu, _at_ease(device), evidence)


def _told(gpu: PciGpu, summary: str, evidence: Cited, cause: str) -> Verdict:
    from gpudoctor.knowledge import thermal_remedies as remedies

    steps = remedies.cool(THROTTLING, gpu.address) if cause == "heat" else remedies.power_brake(THROTTLING)
    # A brake, or a draw of power, has nothing to do with how hot it is.
    return Warn(gpu, summary, evidence, steps, cause=cause, own_fault=cause != "heat")


def _for(one: Slowdown) -> str:
    seconds = (
        "" if one.seconds is None or one.seconds < 1 else f", {_span(one.seconds)} in all since the driver was loaded"
    )
    window = f" (still after {one.window:.1f} s)" if one.lasting is Lasting.LASTING and one.window else ""
    return f"{_WORDS[one.lasting]}{window}{seconds}"


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _state(device: NvmlDevice) -> str:
    """`: 88 °C, SM clock 345 of 1980 MHz`."""
    clock, most = number(device, "clocks.sm_mhz"), number(device, "clocks.max.sm_mhz")
    parts = [_degrees(device), f"SM clock {clock} of {most} MHz" if clock is not None and most else ""]
    shown = ", ".join(part for part in parts if part)
    return f": {shown}" if shown else ""


def _at_ease(device: NvmlDevice) -> str:
    named = in_words(number(device, ACTIVE) or 0)
    return f"nothing unusual holds its clocks down{f' ({named})' if named else ''}"


def _shown(device: NvmlDevice) -> Cited:
    """The reasons in words, at both looks, the counters that are not zero, and what shows the effect."""
    active = number(device, ACTIVE) or 0
    where = f"{device.via} ({device.address or device.uuid})"
    seen = [Evidence(where, f"{ACTIVE}: {active:#x} ({in_words(active) or 'nothing'})")]
    still = later_number(device, ACTIVE)
    if still is not None and device.later is not None:
        shows = f"{device.later.seconds:.1f} s later {ACTIVE}: {still:#x} ({in_words(still) or 'nothing'})"
        seen.append(Evidence(where, shows))
    counters = [name for name in COUNTERS.values() if number(device, name)]
    if active & UNHEALTHY:
        counters += [_GPU, "clocks.sm_mhz", "clocks.max.sm_mhz", "power.draw_milliwatts", "fan_percent"]
    return (*seen, *cited(device, counters))
