"""What NVML's answers say over time: how long something has slowed a GPU down, by two looks, by counters, and by the node's uptime."""

from enum import Enum

from msgspec import Struct

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.raw import TextFile
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.knowledge.clocks_events import COUNTERS, HW_POWER_BRAKE, HW_SLOWDOWN, HW_THERMAL, SW_THERMAL
from gpudoctor.verdicts import Evidence

ACTIVE = "clocks_event.active"
UPTIME = "/proc/uptime"
_DAY = 86400.0
HOUR = 3600.0
"""Rates over the node's uptime are taken over so long at least: what comes with the start says little of what will be."""
_NANO = 1e-9


class NodeUptime(Fact, frozen=True):
    """For how many seconds the node has run, at most; None where that is not told.

    From /proc/uptime (proc(5)); a recording that has only the time of boot tells it to the day.
    """

    seconds: float | None

    @classmethod
    def gather(cls, desk: Desk) -> "NodeUptime":
        """Never unread: what needs it does without."""
        file = desk.raw.read(UPTIME)
        first = file.text.partition(" ")[0] if isinstance(file, TextFile) else ""
        if first.replace(".", "", 1).isdecimal():
            return cls(seconds=float(first), read_from={"seconds": Evidence(UPTIME, f"{first} seconds")})
        booted = booted_at(desk.raw)
        if booted is None or desk.today is None:
            return cls(seconds=None)
        import datetime

        midnight = datetime.datetime.combine(desk.today, datetime.time(), datetime.timezone.utc).timestamp()
        seconds = midnight + _DAY - booted
        seen = Evidence("/proc/stat", f"btime {booted}: at most {seconds / 3600:.0f} hours")
        return cls(seconds=seconds if seconds > 0 else None, read_from={"seconds": seen})


BLIP_SECONDS = 1.0
"""What has been active for less, in all the time since the driver was loaded, is a blip in one look too."""


class Lasting(str, Enum):
    """How long a slowdown has been: `moment` where only one look and no counter tells, `often` for one that comes and goes."""

    NONE = "none"
    BLIP = "blip"
    MOMENT = "moment"
    OFTEN = "often"
    LASTING = "lasting"


class Slowdown(Struct, frozen=True):
    """One kind of slowdown of a GPU. `bits` are those active at the first look, `seconds` how long in all, where a counter tells."""

    lasting: Lasting
    bits: int
    seconds: float | None
    window: float | None = None

    @property
    def speaks(self) -> bool:
        """Whether it is worth a finding."""
        return self.lasting in (Lasting.MOMENT, Lasting.OFTEN, Lasting.LASTING)


HEAT, BRAKE = HW_THERMAL | SW_THERMAL, HW_POWER_BRAKE


def slowdown(device: NvmlDevice, kinds: int, limits: Thresholds, uptime: NodeUptime) -> Slowdown:
    """How long the device has been slowed down by any of `kinds`; nothing where NVML did not tell."""
    bits = (number(device, ACTIVE) or 0) & kinds
    counters = [name for kind, name in COUNTERS.items() if kind & kinds]
    counted = [value for name in counters if (value := number(device, name)) is not None]
    seconds = max(counted) * _NANO if counted else None
    later = device.later
    still = None if later is None else later.fields.get(ACTIVE)
    if later is not None and isinstance(still, int):
        grown = [_grown(device, name) * _NANO for name in counters]
        long_enough = limits.of("throttled_percent_of_window") / 100 * later.seconds
        if (bits and still & kinds) or (grown and max(grown) >= long_enough):
            return Slowdown(Lasting.LASTING, bits or still & kinds, seconds, later.seconds)
    elif bits and (seconds is None or not 0 < seconds < BLIP_SECONDS):
        long = seconds is not None and seconds >= limits.of("throttled_seconds")
        return Slowdown(Lasting.LASTING if long else Lasting.MOMENT, bits, seconds)
    least = limits.of("throttled_percent_of_uptime") / 100
    if seconds and uptime.seconds and seconds >= least * max(uptime.seconds, HOUR):
        return Slowdown(Lasting.OFTEN, bits, seconds)
    return Slowdown(Lasting.BLIP if bits else Lasting.NONE, bits, seconds, later.seconds if later else None)


def other_slowdown(device: NvmlDevice, limits: Thresholds, uptime: NodeUptime) -> Slowdown:
    """A hardware slowdown for neither heat nor a brake: a too high draw of power, or a change of clocks (nvml.h)."""
    explained = (number(device, ACTIVE) or 0) & (HW_THERMAL | HW_POWER_BRAKE)
    if explained:
        return Slowdown(Lasting.NONE, 0, None)
    return slowdown(device, HW_SLOWDOWN, limits, uptime)


def _grown(device: NvmlDevice, name: str) -> int:
    before, after = number(device, name), later_number(device, name)
    return 0 if before is None or after is None else after - before


def number(device: NvmlDevice, name: str) -> int | None:
    """A field that has a number."""
    value = device.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def later_number(device: NvmlDevice, name: str) -> int | None:
    """What a field said at the second look, None where there was none."""
    value = device.later.fields.get(name) if device.later is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_loaded(device: NvmlDevice, limits: Thresholds) -> bool:
    """Whether it was busy when it was asked: only then clocks, links and power are what they could be."""
    busy = number(device, "utilization.gpu_percent")
    return busy is not None and busy >= limits.of("load_percent")
