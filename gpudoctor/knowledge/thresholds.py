"""Numbers that decide whether something is worth a finding, with unit and source. Sites override them by `[thresholds]`."""

from msgspec import Struct


class Threshold(Struct, frozen=True):
    """A limit by name; `unit` in words, `source` says where the number is from."""

    name: str
    default: float
    unit: str
    source: str


_AZURE = "Azure/azurehpc-health-checks @0e0a1ac, conf/nd96isr_h100_v5.conf: check_gpu_ecc 20000000 10000"
_DCGM_LIMITS = "NVIDIA/DCGM @72fa3fee, common/DcgmGPUHardwareLimits.h"

_ROWS: tuple[Threshold, ...] = (
    Threshold(
        "fabric_registration_seconds",
        300,
        "seconds from boot, or from the fabric manager's start, until every GPU has joined",
        "a judgement: nvidia-fabricmanager.service gives up starting after systemd's 90 s, NVTrust#128 shows 45 s of it",
    ),
    Threshold(
        "clocks_percent_under_load",
        80,
        "percent of the clock that a busy GPU could have",
        "judgement: leftovers of benchmarks are further below, boost varies less",
    ),
    Threshold("load_percent", 80, "percent of utilisation from which a GPU counts as busy", "judgement"),
    Threshold("memory_corrected_dram", 20_000_000, "corrected errors in DRAM since the driver was loaded", _AZURE),
    Threshold("memory_corrected_sram", 10_000, "corrected errors on the chip since the driver was loaded", _AZURE),
    Threshold("memory_remapped_rows", 512, "rows remapped after uncorrectable errors", _DCGM_LIMITS),
    Threshold("memory_retired_pages", 63, "retired pages", _DCGM_LIMITS),
    Threshold("memory_retired_pages_double_bit", 15, "pages retired after double bit errors", _DCGM_LIMITS),
    Threshold(
        "memory_uncorrected",
        1,
        "uncorrectable errors since the driver was loaded",
        "NVIDIA/DCGM @72fa3fee, modules/health/DcgmHealthWatch.cpp: any fails",
    ),
    Threshold(
        "mps_clients",
        48,
        "clients of MPS on a GPU, from which one that is not let in was refused for want of room",
        "k8s-device-plugin @1b826acc, cmd/mps-control-daemon/mps/device.go: 48 from Volta on; newer drivers take more",
    ),
    Threshold(
        "pcie_replays_in_window",
        2,
        "PCIe replays between the two looks, a second apart",
        "judgement: fifteen times DCGM's limit, and no single one",
    ),
    Threshold(
        "pcie_replays_per_minute", 8, "PCIe replays per minute", f"{_DCGM_LIMITS}: DCGM_LIMIT_MAX_PCIREPLAY_RATE"
    ),
    Threshold(
        "nic_link_downs_per_day",
        5,
        "times that the link of a network adapter went down, a day",
        "judgement: a switch that is restarted takes it down once or twice; NVSentinel @07b82dc2 tells each one as it happens",
    ),
    Threshold(
        "nic_link_errors_per_hour",
        10,
        "local integrity errors and buffer overruns of a network adapter's link, an hour",
        "judgement: NVSentinel @07b82dc2, docs/configuration/nic-health-monitor.md, tells each one as it happens",
    ),
    Threshold(
        "nic_receive_errors_per_hour",
        120,
        "bad packets that a network adapter received, an hour",
        "judgement: each bad packet comes of a symbol error at least",
    ),
    Threshold(
        "nic_recoveries_per_hour",
        10,
        "recoveries of a network adapter's link, an hour",
        "judgement: a healthy link has none for days",
    ),
    Threshold(
        "nic_symbol_errors_per_hour",
        120,
        "symbol errors of a network adapter's link, an hour",
        "NVSentinel @07b82dc2, docs/configuration/nic-health-monitor.md: 120 an hour, as the IBTA's bit error rate allows",
    ),
    Threshold(
        "power_limit_percent",
        100,
        "percent of the default power limit",
        "nvml.h of CUDA 13.5, nvmlDeviceGetPowerManagementDefaultLimit: the limit that the board boots with",
    ),
    Threshold(
        "shared_memory_percent",
        95,
        "percent of a GPU's memory that is in use, by workloads that nothing keeps apart",
        "judgement: a CUDA context alone takes some hundred MiB, so that nobody else can come in",
    ),
    Threshold(
        "straggler_celsius",
        20,
        "degrees Celsius above the middle one of its model under the same load",
        "judgement: GPUs of a row behind another are ten to fifteen degrees warmer",
    ),
    Threshold(
        "straggler_clock_percent",
        85,
        "percent of the clock of the middle one of its model under the same load",
        "judgement",
    ),
    Threshold(
        "straggler_power_percent",
        110,
        "percent of the power that the middle one of its model draws, from which a GPU has other work",
        "judgement: GPUs at one job draw within a few percent, or less where they fall behind",
    ),
    Threshold(
        "temperature_margin_celsius",
        0,
        "degrees Celsius left to the GPU's own limit",
        "nvml.h of CUDA 13.5, NVML_TEMPERATURE_THRESHOLD_GPU_MAX: from there on it can be throttled below its base clock",
    ),
    Threshold(
        "throttled_percent_of_uptime",
        5,
        "percent of the node's uptime",
        "judgement",
    ),
    Threshold(
        "throttled_percent_of_window",
        50,
        "percent of the time between the two looks",
        "judgement",
    ),
    Threshold(
        "throttled_seconds",
        60,
        "seconds in all since the driver was loaded, of a slowdown that is active",
        "judgement: as long as DCGM's health watch looks back (DcgmHealthWatch.cpp, MonitorThermal)",
    ),
    Threshold(
        "unowned_memory_mebibytes",
        1024,
        "MiB in use on a GPU without any process",
        "judgement: drivers that count what they reserve as used reserve up to 0.92 GiB (GB300, driver 580)",
    ),
    Threshold(
        "nvlink_crc_errors_per_second",
        100,
        "CRC errors of an NVLink a second",
        f"{_DCGM_LIMITS}: they only matter at rates of 100 and more a second",
    ),
    Threshold("nvlink_new_errors", 1, "new errors of an NVLink while it is watched", f"{_DCGM_LIMITS}: one is told"),
    Threshold(
        "nvlink_speed_percent",
        90,
        "percent of an NVLink's documented rate",
        "a judgement: NVML tells 25781 or 26562 MB/s for 25 GB/s, and a link that came up slower has half of it or less",
    ),
    Threshold(
        "xid_aftermath_seconds",
        15,
        "seconds without an Xid that end a burst of them",
        "NVIDIA/NVSentinel @0f60731, tests/health_events_analyzer_test.go: bursts lie further apart",
    ),
    Threshold(
        "xid_recent_hours",
        24,
        "hours for which an Xid or SXid counts as recent",
        "a judgement: as long somebody looks for why the job ended",
    ),
    Threshold(
        "xid_repeats",
        2,
        "bursts of one Xid from which on it is a pattern",
        "leptonai/gpud, components/accelerator/nvidia/xid/threshold.go: DefaultRebootThreshold",
    ),
    Threshold(
        "xid_together_seconds",
        5,
        "seconds within which Xids of several GPUs have one cause",
        "a judgement: GPUs behind one switch or supply are lost within milliseconds, some lines come later",
    ),
)

THRESHOLDS: dict[str, Threshold] = {row.name: row for row in _ROWS}
"""Every threshold by name."""
