"""What NVML is asked about each device: the fields of an answer by name, what kind each is, and which call gives it.

Names, units and calls as of nvml.h of CUDA 13.5 and nvidia-ml-py 13.615.71, read 2026-11-30. A name ends in its unit where it has
one. `FI n` is nvmlDeviceGetFieldValues with that field id.
"""

from enum import Enum

from msgspec import Struct


class Kind(str, Enum):
    """How a field's value is written: a whole number, a truth, free text, or one of a few lower-case words."""

    NUMBER = "number"
    FLAG = "flag"
    TEXT = "text"
    WORD = "word"


class NvmlField(Struct, frozen=True):
    """One field of a device's answer and the call behind it."""

    name: str
    kind: Kind
    call: str


_ROWS = """
brand                                  word    nvmlDeviceGetBrand
architecture                           word    nvmlDeviceGetArchitecture
compute_capability                     text    nvmlDeviceGetCudaComputeCapability
board_id                               number  nvmlDeviceGetBoardId
board_part_number                      text    nvmlDeviceGetBoardPartNumber
multi_gpu_board                        flag    nvmlDeviceGetMultiGpuBoard
module_id                              number  nvmlDeviceGetModuleId
vbios_version                          text    nvmlDeviceGetVbiosVersion
gsp.firmware_version                   text    nvmlDeviceGetGspFirmwareVersion
gsp.enabled                            flag    nvmlDeviceGetGspFirmwareMode
inforom.image                          text    nvmlDeviceGetInforomImageVersion
inforom.oem                            text    nvmlDeviceGetInforomVersion(OEM)
inforom.ecc                            text    nvmlDeviceGetInforomVersion(ECC)
inforom.power                          text    nvmlDeviceGetInforomVersion(POWER)
inforom.valid                          flag    nvmlDeviceValidateInforom
platform.chassis_serial                text    nvmlDeviceGetPlatformInfo
platform.slot                          number  nvmlDeviceGetPlatformInfo
platform.tray                          number  nvmlDeviceGetPlatformInfo
platform.host_id                       number  nvmlDeviceGetPlatformInfo
platform.peer_type                     word    nvmlDeviceGetPlatformInfo
platform.module_id                     number  nvmlDeviceGetPlatformInfo
pci.device_id                          number  nvmlDeviceGetPciInfo_v3
pci.subsystem_id                       number  nvmlDeviceGetPciInfo_v3
persistence_mode                       flag    nvmlDeviceGetPersistenceMode
compute_mode                           word    nvmlDeviceGetComputeMode
display_active                         flag    nvmlDeviceGetDisplayActive
addressing_mode                        word    nvmlDeviceGetAddressingMode
accounting_mode                        flag    nvmlDeviceGetAccountingMode
virtualization.mode                    word    nvmlDeviceGetVirtualizationMode
virtualization.host_vgpu_mode          word    nvmlDeviceGetHostVgpuMode
vgpu.active                            number  nvmlDeviceGetActiveVgpus
vgpu.product                           text    nvmlDeviceGetGridLicensableFeatures_v4
vgpu.licensed                          flag    nvmlDeviceGetGridLicensableFeatures_v4
mig.current                            flag    nvmlDeviceGetMigMode
mig.pending                            flag    nvmlDeviceGetMigMode
ecc.current                            flag    nvmlDeviceGetEccMode
ecc.pending                            flag    nvmlDeviceGetEccMode
ecc.volatile.corrected                 number  nvmlDeviceGetTotalEccErrors
ecc.volatile.uncorrected               number  nvmlDeviceGetTotalEccErrors
ecc.aggregate.corrected                number  nvmlDeviceGetTotalEccErrors
ecc.aggregate.uncorrected              number  nvmlDeviceGetTotalEccErrors
ecc.volatile.dram.corrected            number  nvmlDeviceGetMemoryErrorCounter(DRAM)
ecc.volatile.dram.uncorrected          number  nvmlDeviceGetMemoryErrorCounter(DRAM)
ecc.aggregate.dram.corrected           number  nvmlDeviceGetMemoryErrorCounter(DRAM)
ecc.aggregate.dram.uncorrected         number  nvmlDeviceGetMemoryErrorCounter(DRAM)
ecc.volatile.sram.corrected            number  nvmlDeviceGetMemoryErrorCounter(SRAM)
ecc.volatile.sram.uncorrected          number  nvmlDeviceGetMemoryErrorCounter(SRAM)
ecc.aggregate.sram.corrected           number  nvmlDeviceGetMemoryErrorCounter(SRAM)
ecc.aggregate.sram.uncorrected         number  nvmlDeviceGetMemoryErrorCounter(SRAM)
ecc.volatile.register_file.corrected   number  nvmlDeviceGetMemoryErrorCounter(REGISTER_FILE)
ecc.volatile.register_file.uncorrected number  nvmlDeviceGetMemoryErrorCounter(REGISTER_FILE)
ecc.aggregate.register_file.corrected  number  nvmlDeviceGetMemoryErrorCounter(REGISTER_FILE)
ecc.aggregate.register_file.uncorrected number nvmlDeviceGetMemoryErrorCounter(REGISTER_FILE)
ecc.volatile.l1_cache.corrected        number  nvmlDeviceGetMemoryErrorCounter(L1_CACHE)
ecc.volatile.l1_cache.uncorrected      number  nvmlDeviceGetMemoryErrorCounter(L1_CACHE)
ecc.aggregate.l1_cache.corrected       number  nvmlDeviceGetMemoryErrorCounter(L1_CACHE)
ecc.aggregate.l1_cache.uncorrected     number  nvmlDeviceGetMemoryErrorCounter(L1_CACHE)
ecc.volatile.l2_cache.corrected        number  nvmlDeviceGetMemoryErrorCounter(L2_CACHE)
ecc.volatile.l2_cache.uncorrected      number  nvmlDeviceGetMemoryErrorCounter(L2_CACHE)
ecc.aggregate.l2_cache.corrected       number  nvmlDeviceGetMemoryErrorCounter(L2_CACHE)
ecc.aggregate.l2_cache.uncorrected     number  nvmlDeviceGetMemoryErrorCounter(L2_CACHE)
ecc.volatile.texture_memory.corrected  number  nvmlDeviceGetMemoryErrorCounter(TEXTURE_MEMORY)
ecc.volatile.texture_memory.uncorrected number nvmlDeviceGetMemoryErrorCounter(TEXTURE_MEMORY)
ecc.aggregate.texture_memory.corrected number  nvmlDeviceGetMemoryErrorCounter(TEXTURE_MEMORY)
ecc.aggregate.texture_memory.uncorrected number nvmlDeviceGetMemoryErrorCounter(TEXTURE_MEMORY)
ecc.volatile.cbu.uncorrected           number  nvmlDeviceGetMemoryErrorCounter(CBU)
ecc.aggregate.cbu.uncorrected          number  nvmlDeviceGetMemoryErrorCounter(CBU)
ecc.volatile.sram.uncorrected_parity   number  nvmlDeviceGetSramEccErrorStatus
ecc.volatile.sram.uncorrected_secded   number  nvmlDeviceGetSramEccErrorStatus
ecc.aggregate.sram.uncorrected_parity  number  nvmlDeviceGetSramEccErrorStatus
ecc.aggregate.sram.uncorrected_secded  number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_sources.l2                    number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_sources.sm                    number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_sources.microcontroller       number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_sources.pcie                  number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_sources.other                 number  nvmlDeviceGetSramEccErrorStatus
ecc.sram_threshold_exceeded            flag    nvmlDeviceGetSramEccErrorStatus
ecc.channel_repair_pending             flag    nvmlDeviceGetRepairStatus
ecc.tpc_repair_pending                 flag    nvmlDeviceGetRepairStatus
ecc.unrepairable_memory                flag    nvmlDeviceGetUnrepairableMemoryFlag_v1
retired_pages.single_bit               number  nvmlDeviceGetRetiredPages(MULTIPLE_SINGLE_BIT_ECC_ERRORS)
retired_pages.double_bit               number  nvmlDeviceGetRetiredPages(DOUBLE_BIT_ECC_ERROR)
retired_pages.pending                  flag    nvmlDeviceGetRetiredPagesPendingStatus
row_remap.corrected                    number  nvmlDeviceGetRemappedRows
row_remap.uncorrected                  number  nvmlDeviceGetRemappedRows
row_remap.pending                      flag    nvmlDeviceGetRemappedRows
row_remap.failed                       flag    nvmlDeviceGetRemappedRows
row_remap.corrected_inactive           number  FI 301
row_remap.uncorrected_inactive         number  FI 302
row_remap.histogram.max                number  nvmlDeviceGetRowRemapperHistogram
row_remap.histogram.high               number  nvmlDeviceGetRowRemapperHistogram
row_remap.histogram.partial            number  nvmlDeviceGetRowRemapperHistogram
row_remap.histogram.low                number  nvmlDeviceGetRowRemapperHistogram
row_remap.histogram.none               number  nvmlDeviceGetRowRemapperHistogram
recovery_action                        word    FI 230
reset_required                         flag    FI 226
drain_and_reset_recommended            flag    FI 227
temperature.gpu_celsius                number  nvmlDeviceGetTemperature(GPU)
temperature.memory_celsius             number  FI 82
temperature.tlimit_celsius             number  nvmlDeviceGetMarginTemperature
temperature.shutdown_celsius           number  nvmlDeviceGetTemperatureThreshold(SHUTDOWN)
temperature.slowdown_celsius           number  nvmlDeviceGetTemperatureThreshold(SLOWDOWN)
temperature.max_gpu_celsius            number  nvmlDeviceGetTemperatureThreshold(GPU_MAX)
temperature.max_memory_celsius         number  nvmlDeviceGetTemperatureThreshold(MEM_MAX)
temperature.shutdown_tlimit_celsius    number  FI 193
temperature.slowdown_tlimit_celsius    number  FI 194
temperature.max_memory_tlimit_celsius  number  FI 195
temperature.max_gpu_tlimit_celsius     number  FI 196
fan_percent                            number  nvmlDeviceGetFanSpeed
performance_state                      number  nvmlDeviceGetPerformanceState
power.draw_milliwatts                  number  nvmlDeviceGetPowerUsage
power.average_milliwatts               number  FI 185
power.instant_milliwatts               number  FI 186
power.limit_milliwatts                 number  nvmlDeviceGetPowerManagementLimit
power.enforced_limit_milliwatts        number  nvmlDeviceGetEnforcedPowerLimit
power.default_limit_milliwatts         number  nvmlDeviceGetPowerManagementDefaultLimit
power.min_limit_milliwatts             number  nvmlDeviceGetPowerManagementLimitConstraints
power.max_limit_milliwatts             number  nvmlDeviceGetPowerManagementLimitConstraints
power.module.average_milliwatts        number  FI 185 (scope MODULE)
power.module.instant_milliwatts        number  FI 186 (scope MODULE)
power.module.enforced_limit_milliwatts number  FI 190 (scope MODULE)
power.module.limit_milliwatts          number  FI 192 (scope MODULE)
power.module.default_limit_milliwatts  number  FI 189 (scope MODULE)
power.module.min_limit_milliwatts      number  FI 187 (scope MODULE)
power.module.max_limit_milliwatts      number  FI 188 (scope MODULE)
power.memory.average_milliwatts        number  FI 185 (scope MEMORY)
clocks.graphics_mhz                    number  nvmlDeviceGetClockInfo(GRAPHICS)
clocks.sm_mhz                          number  nvmlDeviceGetClockInfo(SM)
clocks.memory_mhz                      number  nvmlDeviceGetClockInfo(MEM)
clocks.video_mhz                       number  nvmlDeviceGetClockInfo(VIDEO)
clocks.max.graphics_mhz                number  nvmlDeviceGetMaxClockInfo(GRAPHICS)
clocks.max.sm_mhz                      number  nvmlDeviceGetMaxClockInfo(SM)
clocks.max.memory_mhz                  number  nvmlDeviceGetMaxClockInfo(MEM)
clocks.max.video_mhz                   number  nvmlDeviceGetMaxClockInfo(VIDEO)
clocks.applications.graphics_mhz       number  nvmlDeviceGetApplicationsClock(GRAPHICS)
clocks.applications.memory_mhz         number  nvmlDeviceGetApplicationsClock(MEM)
clocks.default_applications.graphics_mhz number nvmlDeviceGetDefaultApplicationsClock(GRAPHICS)
clocks.default_applications.memory_mhz number  nvmlDeviceGetDefaultApplicationsClock(MEM)
clocks.max_customer_boost.graphics_mhz number  nvmlDeviceGetMaxCustomerBoostClock(GRAPHICS)
clocks_event.active                    number  nvmlDeviceGetCurrentClocksEventReasons
clocks_event.supported                 number  nvmlDeviceGetSupportedClocksEventReasons
clocks_event.sw_power_cap_nanoseconds  number  FI 74
clocks_event.sync_boost_nanoseconds    number  FI 76
clocks_event.sw_thermal_slowdown_nanoseconds number FI 269
clocks_event.hw_thermal_slowdown_nanoseconds number FI 270
clocks_event.hw_power_brake_nanoseconds number FI 271
memory.total_bytes                     number  nvmlDeviceGetMemoryInfo_v2
memory.used_bytes                      number  nvmlDeviceGetMemoryInfo_v2
memory.free_bytes                      number  nvmlDeviceGetMemoryInfo_v2
memory.reserved_bytes                  number  nvmlDeviceGetMemoryInfo_v2
bar1.total_bytes                       number  nvmlDeviceGetBAR1MemoryInfo
bar1.used_bytes                        number  nvmlDeviceGetBAR1MemoryInfo
bar1.free_bytes                        number  nvmlDeviceGetBAR1MemoryInfo
protected_memory.total_bytes           number  nvmlDeviceGetConfComputeProtectedMemoryUsage
protected_memory.used_bytes            number  nvmlDeviceGetConfComputeProtectedMemoryUsage
protected_memory.free_bytes            number  nvmlDeviceGetConfComputeProtectedMemoryUsage
utilization.gpu_percent                number  nvmlDeviceGetUtilizationRates
utilization.memory_percent             number  nvmlDeviceGetUtilizationRates
utilization.encoder_percent            number  nvmlDeviceGetEncoderUtilization
utilization.decoder_percent            number  nvmlDeviceGetDecoderUtilization
pcie.generation                        number  nvmlDeviceGetCurrPcieLinkGeneration
pcie.width                             number  nvmlDeviceGetCurrPcieLinkWidth
pcie.max_generation                    number  nvmlDeviceGetMaxPcieLinkGeneration
pcie.max_width                         number  nvmlDeviceGetMaxPcieLinkWidth
pcie.device_max_generation             number  nvmlDeviceGetGpuMaxPcieLinkGeneration
pcie.replays                           number  nvmlDeviceGetPcieReplayCounter
pcie.replay_rollovers                  number  FI 95
pcie.l0_to_recovery                    number  FI 169
pcie.errors.correctable                number  FI 173
pcie.errors.naks_received              number  FI 174
pcie.errors.receiver                   number  FI 175
pcie.errors.bad_tlp                    number  FI 176
pcie.errors.naks_sent                  number  FI 177
pcie.errors.bad_dllp                   number  FI 178
pcie.errors.non_fatal                  number  FI 179
pcie.errors.fatal                      number  FI 180
pcie.errors.unsupported_request        number  FI 181
pcie.errors.lcrc                       number  FI 182
pcie.errors.lane                       number  FI 183
c2c.enabled                            flag    nvmlDeviceGetC2cModeInfoV
c2c.links                              number  FI 170
nvlink.active_links                    number  nvmlDeviceGetNvLinkState
fabric.state                           word    nvmlDeviceGetGpuFabricInfoV
fabric.status                          number  nvmlDeviceGetGpuFabricInfoV
fabric.clique_id                       number  nvmlDeviceGetGpuFabricInfoV
fabric.cluster_uuid                    text    nvmlDeviceGetGpuFabricInfoV
fabric.health_summary                  word    nvmlDeviceGetGpuFabricInfoV
fabric.bandwidth                       word    nvmlDeviceGetGpuFabricInfoV
fabric.route_recovery                  flag    nvmlDeviceGetGpuFabricInfoV
fabric.route_unhealthy                 flag    nvmlDeviceGetGpuFabricInfoV
fabric.access_timeout_recovery         flag    nvmlDeviceGetGpuFabricInfoV
fabric.incorrect_configuration         word    nvmlDeviceGetGpuFabricInfoV
fabric.partition_assigned              flag    nvmlDeviceGetGpuFabricInfoV
affinity.cpus                          text    nvmlDeviceGetCpuAffinityWithinScope(NODE)
affinity.numa_nodes                    text    nvmlDeviceGetMemoryAffinity(NODE)
affinity.memory_numa_node              number  nvmlDeviceGetNumaNodeId
"""

FIELDS: dict[str, NvmlField] = {
    name: NvmlField(name, Kind(kind), call)
    for name, kind, call in (row.split(maxsplit=2) for row in _ROWS.strip().splitlines())
}
"""Every field by name."""
