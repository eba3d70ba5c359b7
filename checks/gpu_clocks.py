"""Health: may a GPU draw the power and run at the clocks that it was made for, and does it keep up with its neighbours?"""

from collections.abc import Sequence

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import cited, judged, untold
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.nvml_window import ACTIVE, is_loaded, number
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.knowledge.clocks_events import APPLICATION_CLOCKS, in_words
from gpudoctor.registry import check
from gpudoctor.verdicts import NotApplicable, Pass, Verdict, Verdicts, Warn

POWER, CLOCKS, STRAGGLERS = "health.power-limit", "health.clocks", "health.stragglers"

_LIMIT, _DEFAULT = "power.limit_milliwatts", "power.default_limit_milliwatts"
_ENFORCED = "power.enforced_limit_milliwatts"
_MODULE, _MODULE_DEFAULT = "power.module.limit_milliwatts", "power.module.default_limit_milliwatts"
_DRAW = "power.draw_milliwatts"
_BUSY, _SM, _CELSIUS = "utilization.gpu_percent", "clocks.sm_mhz", "temperature.gpu_celsius"
_BOOST = "clocks.max_customer_boost.graphics_mhz"
_SET = {kind: f"clocks.applications.{kind}_mhz" for kind in ("graphics", "memory")}
_BY_DEFAULT = {kind: f"clocks.default_applications.{kind}_mhz" for kind in ("graphics", "memory")}

FEWEST_TO_COMPARE = 3
"""With two, nobody knows which of them is the odd one."""


@check(
    POWER,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="No GPU's power limit is below its default",
)
def power_limit(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """A power limit left low by somebody's test slows every job down without any error; the GPU only says "SW Power Cap".

    The limit is compared with the one that the board boots with, and with the one that is enforced, which others can lower: the BMC, or
    the module that a Grace CPU shares. A limit above the default is fine, and so is the cap being reached at full load. A limit meant for
    a whole site is said once in the configuration (thresholds.power_limit_percent). Not told by boards without power management.
    """
    return judged(gpus, nvml, lambda gpu, device: _power(gpu, device, limits))


def _power(gpu: PciGpu, device: NvmlDevice, limits: Thresholds) -> Verdict:
    limit, default, enforced = (number(device, name) for name in (_LIMIT, _DEFAULT, _ENFORCED))
    if limit is None or default is None:
        return untold(gpu, device, (_LIMIT, _DEFAULT), "power limit")
    least = limits.of("power_limit_percent") / 100
    evidence = cited(device, (_LIMIT, _DEFAULT, _ENFORCED))
    module, module_default = number(device, _MODULE), number(device, _MODULE_DEFAULT)
    watts: int | None = default
    scope = ""
    if limit < default * least:
        said = f"power limit {_watts(limit)}, by default it is {_watts(default)}"
        cause = "power-limit-lowered"
    elif enforced is not None and enforced < min(limit, default * least):
        said = f"power limit {_watts(limit)}, but only {_watts(enforced)} are enforced: something else limits it"
        cause, watts = "power-limit-enforced", None
    elif module is not None and module_default is not None and module < module_default * least:
        said = f"power limit of its module {_watts(module)}, by default it is {_watts(module_default)}"
        evidence += cited(device, (_MODULE, _MODULE_DEFAULT))
        cause, watts, scope = "module-power-limit-lowered", module_default, " -sc 1"
    else:
        return Pass(gpu, f"power limit {_watts(limit)}, by default {_watts(default)}", evidence)
    from gpudoctor.knowledge.thermal_remedies import power_limit as remedies

    evidence += limits.cite("power_limit_percent") + cited(device, (_BUSY, _DRAW))
    back = "" if watts is None else f"nvidia-smi -i {gpu.address} -pl {watts / 1000:g}{scope}"
    return Warn(gpu, said, evidence, remedies(POWER, back), cause=cause)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:g} W"


@check(
    CLOCKS,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=("health.throttling", "health.temperature", "health.memory-temperature", POWER),
    title="No GPU's clocks are held below what they could be",
)
def clocks(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """Clocks locked for a benchmark, or set by a scheduler for a job, stay until somebody takes them back or the driver is loaded anew.

    Application clocks below their default are told at any time. Locked clocks leave no trace that NVML tells: they show only on a busy
    GPU, as a clock well below what a customer can have (nvmlDeviceGetMaxCustomerBoostClock) with no reason given, or with the reason
    "application clocks" although those are not set (nvml.h, nvmlClocksEventReasonApplicationsClocksSetting). One that is slow without
    any reason while its neighbours are not is health.stragglers'. Idle clocks are low by intent and are not judged. From driver 590 on
    application clocks are gone. Boards that tell no boost clock, as GeForce, are not judged.
    """
    busy = _busy(gpus, nvml, limits)
    return judged(gpus, nvml, lambda gpu, device: _clocks(gpu, device, busy.get(device.name, ()), limits))


def _clocks(gpu: PciGpu, device: NvmlDevice, busy: Sequence[NvmlDevice], limits: Thresholds) -> Verdict:
    evidence = cited(device, (*_SET.values(), *_BY_DEFAULT.values()))
    for kind, name in _SET.items():
        chosen, default = number(device, name), number(device, _BY_DEFAULT[kind])
        if chosen is not None and default is not None and chosen < default:
            from gpudoctor.knowledge.thermal_remedies import free_clocks

            said = f"application clock of {kind} {chosen} MHz, by default it is {default} MHz"
            return Warn(gpu, said, evidence, free_clocks(CLOCKS, gpu.address), cause="application-clocks")
    seen = cited(device, (_SM, _BOOST, ACTIVE, _BUSY))
    current, possible = number(device, _SM), _possible(device)
    if is_loaded(device, limits) and current is not None and possible is not None:
        reasons = number(device, ACTIVE)
        low = current < possible * limits.of("clocks_percent_under_load") / 100
        if low and reasons == 0 and len(busy) >= FEWEST_TO_COMPARE and _behind(device, busy, limits):
            return Pass(gpu, f"busy, at {current} of {possible} MHz, see health.stragglers", seen + evidence)
        if low and reasons is not None and not reasons & ~APPLICATION_CLOCKS:
            from gpudoctor.knowledge.thermal_remedies import free_clocks

            said = f"busy, and at {current} of {possible} MHz for no other reason: its clocks are locked"
            seen += limits.cite("clocks_percent_under_load", "load_percent")
            return Warn(gpu, said, seen, free_clocks(CLOCKS, gpu.address), cause="locked-clocks")
        why = f" ({in_words(reasons)})" if low and reasons else ""
        return Pass(gpu, f"busy, at {current} of {possible} MHz{why}", seen + evidence)
    if not evidence:
        return NotApplicable(gpu, "it tells no application clocks, and locked clocks show under load only")
    return Pass(gpu, "application clocks are at their default or above", evidence)


def _possible(device: NvmlDevice) -> int | None:
    """The clock a busy GPU could have: what a customer can have, or the application clock where that is lower by default."""
    boost, chosen = number(device, _BOOST), number(device, _SET["graphics"])
    return boost if boost is None or chosen is None else min(boost, chosen)


@check(
    STRAGGLERS,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=("health.throttling", "health.temperature", "health.memory-temperature", POWER, CLOCKS),
    title="Under the same load no GPU falls behind its neighbours",
)
def stragglers(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> Verdicts:
    """In a job over all GPUs of a node the slowest sets the pace, and each of them alone looks well.

    Compared are clock and temperature of three GPUs or more of one model that are busy at the moment, with the middle one of them; the
    others must be idle, because half-busy ones are sign of different work. One sample is no benchmark: only clear differences are told,
    with what NVML gives as the reason, and a GPU that draws clearly more power than those that are faster works harder, and is not told.
    Nothing is said of idle nodes, and of MIG, where no utilisation is told. What already has a finding of its own (throttling, a low
    power limit) explains it.
    """
    busy = _busy(gpus, nvml, limits)
    mixed = {device.name for device in nvml.devices if not is_loaded(device, limits) and number(device, _BUSY)}
    for gpu in gpus:
        device = nvml.device(gpu.address)
        alike = busy.get(device.name, ()) if device is not None else ()
        if device is None or len(alike) < FEWEST_TO_COMPARE:
            yield NotApplicable(gpu, "fewer than three busy GPUs of its model to compare it with")
        elif device.name in mixed:
            yield NotApplicable(gpu, "not all GPUs of its model that work are busy")
        elif device not in alike:
            yield NotApplicable(gpu, "not busy, as others of its model are", cited(device, (_BUSY,)))
        else:
            yield _compare(gpu, device, alike, limits)


def _busy(gpus: PciGpus, nvml: Nvml, limits: Thresholds) -> dict[str | None, tuple[NvmlDevice, ...]]:
    """The busy GPUs by model."""
    found: dict[str | None, tuple[NvmlDevice, ...]] = {}
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if device is not None and device.error is None and is_loaded(device, limits):
            found[device.name] = (*found.get(device.name, ()), device)
    return found


def _compare(gpu: PciGpu, device: NvmlDevice, alike: Sequence[NvmlDevice], limits: Thresholds) -> Verdict:
    evidence = cited(device, (_SM, _CELSIUS, _DRAW, ACTIVE, _BUSY))
    if number(device, _SM) is None and number(device, _CELSIUS) is None:
        return untold(gpu, device, (_SM, _CELSIUS), "clock and temperature")
    clock = number(device, _SM) or 0
    faster = [one for one in alike if (number(one, _SM) or 0) > clock]
    draw, usual_draw = number(device, _DRAW), _middle(faster or alike, _DRAW)
    if draw is not None and usual_draw and draw > usual_draw * limits.of("straggler_power_percent") / 100:
        said = f"draws {draw / 1000:.0f} W, others of its model {usual_draw / 1000:.0f} W: it has other work"
        return NotApplicable(gpu, said, evidence)
    behind = _behind(device, alike, limits)
    if not behind:
        return Pass(gpu, "keeps up with the others of its model", evidence)
    from gpudoctor.knowledge.thermal_remedies import look_under_load

    named = in_words(number(device, ACTIVE) or 0)
    said = f"under the same load: {'; '.join(behind)}{f' (NVML gives as the reason: {named})' if named else ''}"
    evidence += tuple(one.evidence(name) for one in alike if one is not device for name in (_SM, _CELSIUS))
    evidence += limits.cite("straggler_clock_percent", "straggler_celsius")
    return Warn(gpu, said, evidence, look_under_load(STRAGGLERS, gpu.address), cause="straggler")


def _behind(device: NvmlDevice, alike: Sequence[NvmlDevice], limits: Thresholds) -> list[str]:
    """In what it is clearly worse than the middle one, in words."""
    clock, usual_clock = number(device, _SM), _middle(alike, _SM)
    celsius, usual_celsius = number(device, _CELSIUS), _middle(alike, _CELSIUS)
    behind: list[str] = []
    if clock is not None and usual_clock and clock < usual_clock * limits.of("straggler_clock_percent") / 100:
        behind.append(f"SM clock {clock} MHz, its neighbours' is {usual_clock} MHz")
    if celsius is not None and usual_celsius and celsius >= usual_celsius + limits.of("straggler_celsius"):
        behind.append(f"{celsius} °C, its neighbours are at {usual_celsius} °C")
    return behind


def _middle(alike: Sequence[NvmlDevice], name: str) -> int | None:
    values = sorted(value for device in alike if (value := number(device, name)) is not None)
    return values[len(values) // 2] if values else None
