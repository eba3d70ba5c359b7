"""Counters that NVML tells of a GPU, with the words in which they are told, by what they count since.

nvml.h: volatile ECC counts "are reset each time the driver loads", aggregate ones "persist across reboots"; NVLink's and PCIe's counters
are the driver's and begin with it; remapped rows and retired pages are kept in the board's InfoROM (NVIDIA GPU Memory Error Management).
"""

SINCE_LOAD = {
    "ecc.volatile.corrected": "ECC errors corrected",
    "ecc.volatile.uncorrected": "ECC errors not corrected",
    "pcie.replays": "PCIe replays",
    "pcie.replay_rollovers": "PCIe replay rollovers",
    "pcie.errors.correctable": "PCIe errors corrected",
    "pcie.errors.non_fatal": "PCIe errors, not fatal",
    "pcie.errors.fatal": "PCIe errors, fatal",
}
KEPT = {
    "ecc.aggregate.corrected": "ECC errors corrected, in all",
    "ecc.aggregate.uncorrected": "ECC errors not corrected, in all",
    "row_remap.corrected": "rows remapped for corrected errors",
    "row_remap.uncorrected": "rows remapped for uncorrected errors",
    "retired_pages.single_bit": "pages retired for single-bit errors",
    "retired_pages.double_bit": "pages retired for double-bit errors",
}
HELD_DOWN = {
    "clocks_event.hw_thermal_slowdown_nanoseconds": ("clocks held down by heat, by hardware", True),
    "clocks_event.sw_thermal_slowdown_nanoseconds": ("clocks held down by heat, by the driver", True),
    "clocks_event.hw_power_brake_nanoseconds": ("clocks held down by the power brake", True),
    "clocks_event.sw_power_cap_nanoseconds": ("clocks held down by the power limit", False),
}
"""A GPU at work meets its power limit: that it did is no difference."""
