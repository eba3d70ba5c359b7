"""Why a GPU's clocks are lower than they could be: the bits of NVML's clocks event reasons, and which of them are no normal operation.

Bits from nvml.h of CUDA 13.5 (nvmlClocksEventReason*; nvmlClocksThrottleReason* before R535), read 2026-11-30. Plain data: the NVML
worker reads it too.
"""

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80
DISPLAY = 0x100
BOARD_LIMIT = 0x200
RELIABILITY = 0x400

UNHEALTHY = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE
"""Heat and an outside signal; the others are how a GPU saves power, keeps to its limit or does as it was told.

DCGM and NVIDIA/gpud look at the same four (leptonai/gpud, components/accelerator/nvidia/hw-slowdown, and clock-speed's reasons)."""

COUNTERS = {
    SW_THERMAL: "clocks_event.sw_thermal_slowdown_nanoseconds",
    HW_THERMAL: "clocks_event.hw_thermal_slowdown_nanoseconds",
    HW_POWER_BRAKE: "clocks_event.hw_power_brake_nanoseconds",
}
"""How long each was active since the driver was loaded (nvml.h, NVML_FI_DEV_CLOCKS_EVENT_REASON_*); HW_SLOWDOWN has no counter."""

WORDS = {
    IDLE: "idle",
    APPLICATION_CLOCKS: "application clocks",
    SW_POWER_CAP: "the power limit",
    HW_THERMAL: "hardware thermal slowdown",
    SW_THERMAL: "software thermal slowdown",
    HW_POWER_BRAKE: "hardware power brake slowdown",
    HW_SLOWDOWN: "hardware slowdown",
    SYNC_BOOST: "sync boost",
    DISPLAY: "display clock setting",
    BOARD_LIMIT: "board limit",
    RELIABILITY: "reliability",
}


def in_words(bits: int) -> str:
    """The reasons that are active, in nvidia-smi's words; a number for the bits that have no name here."""
    named = [word for bit, word in WORDS.items() if bits & bit]
    rest = bits & ~sum(WORDS)
    return ", ".join([*named, *([f"{rest:#x}"] if rest else [])])
