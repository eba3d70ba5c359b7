"""What the NVML worker asks about each device, field by field: the calls in order, the newest shape of each first.

Part of the NVML worker: standard library only. The names are those of knowledge/nvml_fields.py, which a test compares. Enumerators and
struct layouts are those of nvml.h of CUDA 13.5 and nvidia-ml-py 13.615.71. Nothing here sets or resets anything, and what takes
long by design (nvmlDeviceGetPcieThroughput measures for 20 ms) is left out.
"""

from collections.abc import Callable, Iterator
from ctypes import byref, c_uint, create_string_buffer
from typing import Any, NamedTuple

from gpudoctor.probes import nvml_readers as readers
from gpudoctor.probes.nvml_readers import each, fabric, flag, members, number, word
from gpudoctor.probes.nvml_session import (
    ARGUMENT_VERSION_MISMATCH,
    DEPRECATED,
    FUNCTION_NOT_FOUND,
    Gpu,
    Refused,
    text,
    understood,
)

ASK_OLDER = (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED)
"""Refusals that mean: this library is older, or newer, than this shape of the call."""

AFFINITY_WORDS = 64
"""Room for 4096 CPUs or NUMA nodes, 64 a word."""

UNREPAIRABLE_MEMORY_V1 = 0x1000008
"""The version word that nvidia-ml-py gives nvmlDeviceGetUnrepairableMemoryFlag_v1."""

Way = Callable[[Gpu], Any]


class Question(NamedTuple):
    """The fields that one call answers, and the ways to make it, the newest first; each gives the fields' values in their order."""

    fields: tuple[str, ...]
    ways: tuple[Way, ...]


def asks(fields: str, *ways: Way) -> Question:
    """A question by its fields' names, separated by blanks."""
    return Question(tuple(fields.split()), ways)


def plain(function: str, *arguments: Any, read: Callable[[Any], Any] = number, symbol: str = "") -> Way:
    """Ask by a function of the binding that returns the answer."""
    return lambda gpu: gpu.ask(function, *arguments, read=read, symbol=symbol)


def filled(function: str, structure: str, size: int, read: Callable[[Any], Any]) -> Way:
    """Ask by a function that fills a struct of the binding, of so many bytes."""

    def ask(gpu: Gpu) -> Any:
        answer = gpu.session.structure(structure, size)
        gpu.fill(function, byref(answer))
        return understood(function, read, answer)

    return ask


def one_number(function: str) -> Way:
    """Ask by a function that fills a number; nvidia-ml-py 12.535 wants to be given it."""

    def ask(gpu: Gpu) -> int:
        answer = c_uint()
        gpu.fill(function, byref(answer))
        return answer.value

    return ask


def gsp_version(gpu: Gpu) -> Any:
    """The version of the GSP firmware; NVML_GSP_FIRMWARE_VERSION_BUF_SIZE is 0x40 (nvml.h)."""
    buffer = create_string_buffer(0x40)
    gpu.fill("nvmlDeviceGetGspFirmwareVersion", buffer)
    return text(buffer.value)


def gsp_enabled(gpu: Gpu) -> bool:
    """Whether the firmware is in use; the second number is the default."""
    enabled, default = c_uint(), c_uint()
    gpu.fill("nvmlDeviceGetGspFirmwareMode", byref(enabled), byref(default))
    return bool(enabled.value)


def inforom_valid(gpu: Gpu) -> bool:
    """The call only succeeds or says that the checksum is wrong."""
    corrupted = 14
    try:
        gpu.fill("nvmlDeviceValidateInforom")
    except Refused as refused:
        if refused.code != corrupted:
            raise
        return False
    return True


def unrepairable_memory(gpu: Gpu) -> bool:
    """The flag of nvmlUnrepairableMemoryStatus_v1_t.

    nvml.h 13.5 declares one word, the flag; nvidia-ml-py 13.615.71 a version and the flag, so that it would always read the second
    word. Given two words of which the first looks like a version, the library shows which of them it takes for the flag.
    """
    words = (c_uint * 2)(UNREPAIRABLE_MEMORY_V1, 0)
    gpu.session.fill_directly("nvmlDeviceGetUnrepairableMemoryFlag_v1", gpu.handle, byref(words), about=gpu.address)
    return bool(words[1] if words[0] == UNREPAIRABLE_MEMORY_V1 else words[0])


def memory_info(gpu: Gpu) -> Any:
    """Version 2 tells apart what is reserved and what is used."""
    version = getattr(gpu.session.pynvml, "nvmlMemory_v2", None)
    if version is None:
        raise Refused(FUNCTION_NOT_FOUND)
    read = members("total", "used", "free", "reserved")
    return gpu.ask("nvmlDeviceGetMemoryInfo", version, read=read, symbol="nvmlDeviceGetMemoryInfo_v2")


def memory_info_v1(gpu: Gpu) -> Any:
    """Version 1 counts the reserved memory as used."""
    return [*gpu.ask("nvmlDeviceGetMemoryInfo", read=members("total", "used", "free")), readers.TOO_NEW]


COUNTERS = (("volatile", 0), ("aggregate", 1))
ERRORS = (("corrected", 0), ("uncorrected", 1))
LOCATIONS = (
    ("dram", 2),
    ("sram", 7),
    ("register_file", 3),
    ("l1_cache", 0),
    ("l2_cache", 1),
    ("texture_memory", 4),
    ("cbu", 6),
)
# What cannot be corrected in the compute units' convergence barriers is only counted uncorrected (nvml.h, NVML_FI_DEV_ECC_*_CBU).
_NOT_COUNTED = ("cbu", "corrected")


def _ecc_counters() -> Iterator[Question]:
    for counter, of_counter in COUNTERS:
        for error, of_error in ERRORS:
            yield asks(f"ecc.{counter}.{error}", plain("nvmlDeviceGetTotalEccErrors", of_error, of_counter))
    for location, at in LOCATIONS:
        for counter, of_counter in COUNTERS:
            for error, of_error in ERRORS:
                if (location, error) != _NOT_COUNTED:
                    way = plain("nvmlDeviceGetMemoryErrorCounter", of_error, of_counter, at)
                    yield asks(f"ecc.{counter}.{location}.{error}", way)


SRAM_STATUS = (
    "volatileUncParity",
    "volatileUncSecDed",
    "aggregateUncParity",
    "aggregateUncSecDed",
    "aggregateUncBucketL2",
    "aggregateUncBucketSm",
    "aggregateUncBucketMcu",
    "aggregateUncBucketPcie",
    "aggregateUncBucketOther",
)


def sram_status(status: Any) -> list[Any]:
    """The members of nvmlEccSramErrorStatus_v1_t in the order of the fields."""
    return [*members(*SRAM_STATUS)(status), flag(status.bThresholdExceeded)]


QUESTIONS: tuple[Question, ...] = (
    asks("brand", plain("nvmlDeviceGetBrand", read=word("brand"))),
    asks("architecture", plain("nvmlDeviceGetArchitecture", read=word("architecture"))),
    asks("compute_capability", plain("nvmlDeviceGetCudaComputeCapability", read=readers.version_number)),
    asks("board_id", plain("nvmlDeviceGetBoardId")),
    asks("board_part_number", plain("nvmlDeviceGetBoardPartNumber", read=text)),
    asks("multi_gpu_board", plain("nvmlDeviceGetMultiGpuBoard", read=flag)),
    asks("module_id", one_number("nvmlDeviceGetModuleId")),
    asks("vbios_version", plain("nvmlDeviceGetVbiosVersion", read=text)),
    asks("gsp.firmware_version", gsp_version),
    asks("gsp.enabled", gsp_enabled),
    asks("inforom.image", plain("nvmlDeviceGetInforomImageVersion", read=text)),
    asks("inforom.oem", plain("nvmlDeviceGetInforomVersion", 0, read=text)),
    asks("inforom.ecc", plain("nvmlDeviceGetInforomVersion", 1, read=text)),
    asks("inforom.power", plain("nvmlDeviceGetInforomVersion", 2, read=text)),
    asks(
        "platform.chassis_serial platform.slot platform.tray platform.host_id platform.peer_type platform.module_id",
        filled("nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v2_t", 44, readers.platform),
        filled("nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v1_t", 44, readers.platform),
    ),
    asks(
        "pci.device_id pci.subsystem_id",
        plain("nvmlDeviceGetPciInfo_v3", read=members("pciDeviceId", "pciSubSystemId")),
    ),
    asks("persistence_mode", plain("nvmlDeviceGetPersistenceMode", read=flag)),
    asks("compute_mode", plain("nvmlDeviceGetComputeMode", read=word("compute_mode"))),
    asks("display_active", plain("nvmlDeviceGetDisplayActive", read=flag)),
    asks("addressing_mode", plain("nvmlDeviceGetAddressingMode", read=word("addressing_mode"))),
    asks("accounting_mode", plain("nvmlDeviceGetAccountingMode", read=flag)),
    asks("virtualization.mode", plain("nvmlDeviceGetVirtualizationMode", read=word("virtualization.mode"))),
    asks(
        "virtualization.host_vgpu_mode",
        plain("nvmlDeviceGetHostVgpuMode", read=word("virtualization.host_vgpu_mode")),
    ),
    asks("vgpu.active", plain("nvmlDeviceGetActiveVgpus", read=len)),
    asks("vgpu.product vgpu.licensed", plain("nvmlDeviceGetGridLicensableFeatures_v4", read=readers.licence)),
    asks("mig.current mig.pending", plain("nvmlDeviceGetMigMode", read=each(flag, flag))),
    asks("ecc.current ecc.pending", plain("nvmlDeviceGetEccMode", read=each(flag, flag))),
    *_ecc_counters(),
    asks(
        "ecc.volatile.sram.uncorrected_parity ecc.volatile.sram.uncorrected_secded "
        "ecc.aggregate.sram.uncorrected_parity ecc.aggregate.sram.uncorrected_secded "
        "ecc.sram_sources.l2 ecc.sram_sources.sm ecc.sram_sources.microcontroller ecc.sram_sources.pcie "
        "ecc.sram_sources.other ecc.sram_threshold_exceeded",
        filled("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", 104, sram_status),
    ),
    asks(
        "ecc.channel_repair_pending ecc.tpc_repair_pending",
        plain("nvmlDeviceGetRepairStatus", read=each(flag, flag)),
    ),
    asks("ecc.unrepairable_memory", unrepairable_memory),
    asks("retired_pages.single_bit", plain("nvmlDeviceGetRetiredPages", 0, read=len)),
    asks("retired_pages.double_bit", plain("nvmlDeviceGetRetiredPages", 1, read=len)),
    asks("retired_pages.pending", plain("nvmlDeviceGetRetiredPagesPendingStatus", read=flag)),
    asks(
        "row_remap.corrected row_remap.uncorrected row_remap.pending row_remap.failed",
        plain("nvmlDeviceGetRemappedRows", read=each(number, number, flag, flag)),
    ),
    asks(
        "row_remap.histogram.max row_remap.histogram.high row_remap.histogram.partial row_remap.histogram.low "
        "row_remap.histogram.none",
        plain("nvmlDeviceGetRowRemapperHistogram", read=members("max", "high", "partial", "low", "none")),
    ),
    asks(
        "temperature.gpu_celsius",
        plain("nvmlDeviceGetTemperatureV", 0),
        plain("nvmlDeviceGetTemperature", 0),
    ),
    asks("temperature.tlimit_celsius", plain("nvmlDeviceGetMarginTemperature")),
    asks("temperature.shutdown_celsius", plain("nvmlDeviceGetTemperatureThreshold", 0)),
    asks("temperature.slowdown_celsius", plain("nvmlDeviceGetTemperatureThreshold", 1)),
    asks("temperature.max_memory_celsius", plain("nvmlDeviceGetTemperatureThreshold", 2)),
    asks("temperature.max_gpu_celsius", plain("nvmlDeviceGetTemperatureThreshold", 3)),
    asks("fan_percent", plain("nvmlDeviceGetFanSpeed")),
    asks("performance_state", plain("nvmlDeviceGetPerformanceState", read=readers.performance_state)),
    asks("power.draw_milliwatts", plain("nvmlDeviceGetPowerUsage")),
    asks("power.limit_milliwatts", plain("nvmlDeviceGetPowerManagementLimit")),
    asks("power.enforced_limit_milliwatts", plain("nvmlDeviceGetEnforcedPowerLimit")),
    asks("power.default_limit_milliwatts", plain("nvmlDeviceGetPowerManagementDefaultLimit")),
    asks(
        "power.min_limit_milliwatts power.max_limit_milliwatts",
        plain("nvmlDeviceGetPowerManagementLimitConstraints", read=each(number, number)),
    ),
    asks("clocks.graphics_mhz", plain("nvmlDeviceGetClockInfo", 0)),
    asks("clocks.sm_mhz", plain("nvmlDeviceGetClockInfo", 1)),
    asks("clocks.memory_mhz", plain("nvmlDeviceGetClockInfo", 2)),
    asks("clocks.video_mhz", plain("nvmlDeviceGetClockInfo", 3)),
    asks("clocks.max.graphics_mhz", plain("nvmlDeviceGetMaxClockInfo", 0)),
    asks("clocks.max.sm_mhz", plain("nvmlDeviceGetMaxClockInfo", 1)),
    asks("clocks.max.memory_mhz", plain("nvmlDeviceGetMaxClockInfo", 2)),
    asks("clocks.max.video_mhz", plain("nvmlDeviceGetMaxClockInfo", 3)),
    asks("clocks.applications.graphics_mhz", plain("nvmlDeviceGetApplicationsClock", 0)),
    asks("clocks.applications.memory_mhz", plain("nvmlDeviceGetApplicationsClock", 2)),
    asks("clocks.default_applications.graphics_mhz", plain("nvmlDeviceGetDefaultApplicationsClock", 0)),
    asks("clocks.default_applications.memory_mhz", plain("nvmlDeviceGetDefaultApplicationsClock", 2)),
    asks("clocks.max_customer_boost.graphics_mhz", plain("nvmlDeviceGetMaxCustomerBoostClock", 0)),
    # Called ThrottleReasons before R535.
    asks(
        "clocks_event.active",
        plain("nvmlDeviceGetCurrentClocksEventReasons"),
        plain("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    asks(
        "clocks_event.supported",
        plain("nvmlDeviceGetSupportedClocksEventReasons"),
        plain("nvmlDeviceGetSupportedClocksThrottleReasons"),
    ),
    asks("memory.total_bytes memory.used_bytes memory.free_bytes memory.reserved_bytes", memory_info, memory_info_v1),
    asks(
        "bar1.total_bytes bar1.used_bytes bar1.free_bytes",
        plain("nvmlDeviceGetBAR1MemoryInfo", read=members("bar1Total", "bar1Used", "bar1Free")),
    ),
    asks(
        "protected_memory.total_bytes protected_memory.used_bytes protected_memory.free_bytes",
        plain("nvmlDeviceGetConfComputeProtectedMemoryUsage", read=members("total", "used", "free")),
    ),
    asks(
        "utilization.gpu_percent utilization.memory_percent",
        plain("nvmlDeviceGetUtilizationRates", read=members("gpu", "memory")),
    ),
    asks("utilization.encoder_percent", plain("nvmlDeviceGetEncoderUtilization", read=lambda pair: number(pair[0]))),
    asks("utilization.decoder_percent", plain("nvmlDeviceGetDecoderUtilization", read=lambda pair: number(pair[0]))),
    asks("pcie.generation", plain("nvmlDeviceGetCurrPcieLinkGeneration")),
    asks("pcie.width", plain("nvmlDeviceGetCurrPcieLinkWidth")),
    asks("pcie.max_generation", plain("nvmlDeviceGetMaxPcieLinkGeneration")),
    asks("pcie.max_width", plain("nvmlDeviceGetMaxPcieLinkWidth")),
    asks("pcie.device_max_generation", plain("nvmlDeviceGetGpuMaxPcieLinkGeneration")),
    asks("pcie.replays", plain("nvmlDeviceGetPcieReplayCounter")),
    asks("c2c.enabled", plain("nvmlDeviceGetC2cModeInfoV", read=lambda info: flag(info.isC2cEnabled))),
    asks(
        "fabric.state fabric.status fabric.clique_id fabric.cluster_uuid fabric.health_summary fabric.bandwidth "
        "fabric.route_recovery fabric.route_unhealthy fabric.access_timeout_recovery fabric.incorrect_configuration "
        "fabric.partition_assigned",
        filled("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", 40, fabric),
        filled("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", 36, fabric),
        filled("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", 28, fabric),
    ),
    asks(
        "affinity.cpus",
        plain("nvmlDeviceGetCpuAffinityWithinScope", AFFINITY_WORDS, 0, read=readers.bit_list),
        plain("nvmlDeviceGetCpuAffinity", AFFINITY_WORDS, read=readers.bit_list),
    ),
    asks("affinity.numa_nodes", plain("nvmlDeviceGetMemoryAffinity", AFFINITY_WORDS, 0, read=readers.bit_list)),
    asks("affinity.memory_numa_node", plain("nvmlDeviceGetNumaNodeId", read=readers.numa_node)),
)

LAST_QUESTIONS: tuple[Question, ...] = (
    # Reads the flash of the board, the slowest of all.
    asks("inforom.valid", inforom_valid),
)
