"""`nvidia-smi --query-gpu` and its sisters: the column behind each field of an NVML answer.

Read in `nvidia-smi --help-query-gpu` and captures of drivers 418 to 610 (2026-11-30). A row is a field and its column; a query may
name a column by any of its names, and `clocks_throttle_reasons` became `clocks_event_reasons` with driver 535. See nvidia_smi_labels.py.
"""

from gpudoctor.knowledge.nvidia_smi_labels import by_label

_ROWS = """
@index                                   index
@name                                    name
@name                                    gpu_name
@serial                                  serial
@serial                                  gpu_serial
@uuid                                    uuid
@uuid                                    gpu_uuid
@pci_bus_id                              pci.bus_id
@pci_bus_id                              gpu_bus_id
compute_capability                       compute_cap
display_active                           display_active
persistence_mode                         persistence_mode
addressing_mode                          addressing_mode
mig.current                              mig.mode.current
mig.pending                              mig.mode.pending
accounting_mode                          accounting.mode
vbios_version                            vbios_version
platform.chassis_serial                  platform.chassis_serial_number
platform.slot                            platform.slot_number
platform.tray                            platform.tray_index
platform.host_id                         platform.host_id
platform.peer_type                       platform.peer_type
platform.module_id                       platform.module_id
inforom.image                            inforom.img
inforom.image                            inforom.image
inforom.oem                              inforom.oem
inforom.ecc                              inforom.ecc
inforom.power                            inforom.pwr
inforom.power                            inforom.power
inforom.valid                            inforom.checksum_validation
c2c.enabled                              c2c.mode
recovery_action                          gpu_recovery_action
reset_required                           reset_status.reset_required
drain_and_reset_recommended              reset_status.drain_and_reset_recommended
gsp.enabled                              gsp.mode.current
pci.device_id                            pci.device_id
pci.subsystem_id                         pci.sub_device_id
pcie.max_generation                      pcie.link.gen.max
pcie.generation                          pcie.link.gen.current
pcie.device_max_generation               pcie.link.gen.gpumax
pcie.max_width                           pcie.link.width.max
pcie.width                               pcie.link.width.current
fan_percent                              fan.speed
performance_state                        pstate
clocks_event.active                      clocks_event_reasons.active
clocks_event.active                      clocks_throttle_reasons.active
clocks_event.supported                   clocks_event_reasons.supported
clocks_event.supported                   clocks_throttle_reasons.supported
clocks_event.sw_power_cap_nanoseconds         clocks_event_reasons_counters.sw_power_cap
clocks_event.sync_boost_nanoseconds           clocks_event_reasons_counters.sync_boost
clocks_event.sw_thermal_slowdown_nanoseconds  clocks_event_reasons_counters.sw_thermal_slowdown
clocks_event.hw_thermal_slowdown_nanoseconds  clocks_event_reasons_counters.hw_thermal_slowdown
clocks_event.hw_power_brake_nanoseconds       clocks_event_reasons_counters.hw_power_brake_slowdown
memory.total_bytes                       memory.total
memory.reserved_bytes                    memory.reserved
memory.used_bytes                        memory.used
memory.free_bytes                        memory.free
protected_memory.total_bytes             protected_memory.total
protected_memory.used_bytes              protected_memory.used
protected_memory.free_bytes              protected_memory.free
compute_mode                             compute_mode
utilization.gpu_percent                  utilization.gpu
utilization.memory_percent               utilization.memory
utilization.encoder_percent              utilization.encoder
utilization.decoder_percent              utilization.decoder
ecc.current                              ecc.mode.current
ecc.pending                              ecc.mode.pending
ecc.{}.dram.corrected                    ecc.errors.corrected.{}.dram
ecc.{}.dram.uncorrected                  ecc.errors.uncorrected.{}.dram
ecc.{}.dram.corrected                    ecc.errors.corrected.{}.device_memory
ecc.{}.dram.uncorrected                  ecc.errors.uncorrected.{}.device_memory
ecc.{}.sram.corrected                    ecc.errors.corrected.{}.sram
ecc.{}.sram.uncorrected                  ecc.errors.uncorrected.{}.sram
ecc.{}.sram.uncorrected_parity           ecc.errors.uncorrected.{}.sram.parity
ecc.{}.sram.uncorrected_secded           ecc.errors.uncorrected.{}.sram.secded
ecc.{}.register_file.corrected           ecc.errors.corrected.{}.register_file
ecc.{}.register_file.uncorrected         ecc.errors.uncorrected.{}.register_file
ecc.{}.l1_cache.corrected                ecc.errors.corrected.{}.l1_cache
ecc.{}.l1_cache.uncorrected              ecc.errors.uncorrected.{}.l1_cache
ecc.{}.l2_cache.corrected                ecc.errors.corrected.{}.l2_cache
ecc.{}.l2_cache.uncorrected              ecc.errors.uncorrected.{}.l2_cache
ecc.{}.texture_memory.corrected          ecc.errors.corrected.{}.texture_memory
ecc.{}.texture_memory.uncorrected        ecc.errors.uncorrected.{}.texture_memory
ecc.{}.cbu.uncorrected                   ecc.errors.uncorrected.{}.cbu
ecc.{}.corrected                         ecc.errors.corrected.{}.total
ecc.{}.uncorrected                       ecc.errors.uncorrected.{}.total
ecc.sram_threshold_exceeded              ecc.errors.uncorrected.aggregate.sram.thresholdExceeded
ecc.sram_sources.l2                      ecc.errors.uncorrected.aggregate.sram.l2
ecc.sram_sources.sm                      ecc.errors.uncorrected.aggregate.sram.sm
ecc.sram_sources.microcontroller         ecc.errors.uncorrected.aggregate.sram.mcu
ecc.sram_sources.pcie                    ecc.errors.uncorrected.aggregate.sram.pcie
ecc.sram_sources.other                   ecc.errors.uncorrected.aggregate.sram.other
retired_pages.single_bit                 retired_pages.single_bit_ecc.count
retired_pages.single_bit                 retired_pages.sbe
retired_pages.double_bit                 retired_pages.double_bit.count
retired_pages.double_bit                 retired_pages.dbe
retired_pages.pending                    retired_pages.pending
row_remap.corrected                      remapped_rows.correctable
row_remap.uncorrected                    remapped_rows.uncorrectable
row_remap.pending                        remapped_rows.pending
row_remap.failed                         remapped_rows.failure
row_remap.corrected_inactive             remapped_rows.correctable_inactive
row_remap.uncorrected_inactive           remapped_rows.uncorrectable_inactive
row_remap.histogram.max                  remapped_rows.histogram.max
row_remap.histogram.high                 remapped_rows.histogram.high
row_remap.histogram.partial              remapped_rows.histogram.partial
row_remap.histogram.low                  remapped_rows.histogram.low
row_remap.histogram.none                 remapped_rows.histogram.none
temperature.gpu_celsius                  temperature.gpu
temperature.tlimit_celsius               temperature.gpu.tlimit
temperature.memory_celsius               temperature.memory
power.draw_milliwatts                    power.draw
power.average_milliwatts                 power.draw.average
power.instant_milliwatts                 power.draw.instant
power.limit_milliwatts                   power.limit
power.enforced_limit_milliwatts          enforced.power.limit
power.default_limit_milliwatts           power.default_limit
power.min_limit_milliwatts               power.min_limit
power.max_limit_milliwatts               power.max_limit
power.module.average_milliwatts          module.power.draw.average
power.module.instant_milliwatts          module.power.draw.instant
power.module.limit_milliwatts            module.power.limit
power.module.enforced_limit_milliwatts   module.enforced.power.limit
power.module.default_limit_milliwatts    module.power.default_limit
power.module.min_limit_milliwatts        module.power.min_limit
power.module.max_limit_milliwatts        module.power.max_limit
clocks.graphics_mhz                      clocks.current.graphics
clocks.graphics_mhz                      clocks.gr
clocks.sm_mhz                            clocks.current.sm
clocks.sm_mhz                            clocks.sm
clocks.memory_mhz                        clocks.current.memory
clocks.memory_mhz                        clocks.mem
clocks.video_mhz                         clocks.current.video
clocks.video_mhz                         clocks.video
clocks.applications.graphics_mhz         clocks.applications.graphics
clocks.applications.graphics_mhz         clocks.applications.gr
clocks.applications.memory_mhz           clocks.applications.memory
clocks.applications.memory_mhz           clocks.applications.mem
clocks.default_applications.graphics_mhz clocks.default_applications.graphics
clocks.default_applications.graphics_mhz clocks.default_applications.gr
clocks.default_applications.memory_mhz   clocks.default_applications.memory
clocks.default_applications.memory_mhz   clocks.default_applications.mem
clocks.max.graphics_mhz                  clocks.max.graphics
clocks.max.graphics_mhz                  clocks.max.gr
clocks.max.sm_mhz                        clocks.max.sm
clocks.max.memory_mhz                    clocks.max.memory
clocks.max.memory_mhz                    clocks.max.mem
fabric.state                             fabric.state
fabric.status                            fabric.status
fabric.clique_id                         fabric.cliqueId
fabric.cluster_uuid                      fabric.clusterUuid
fabric.health_summary                    fabric.health.summary
fabric.bandwidth                         fabric.health.bandwidth
fabric.route_recovery                    fabric.health.route_recovery_in_progress
fabric.route_unhealthy                   fabric.health.route_unhealthy
fabric.access_timeout_recovery           fabric.health.access_timeout_recovery
fabric.incorrect_configuration           fabric.health.incorrect_configuration
fabric.partition_assigned                fabric.health.partition_assigned
"""

COLUMNS = by_label(_ROWS)
"""The field of each column; `@` before what identifies a device instead."""

REASON_PREFIXES = ("clocks_event_reasons.", "clocks_throttle_reasons.")
"""Before the names of single reasons."""

DRIVER_COLUMNS = ("kmd_version", "driver_version")
COUNT_COLUMN = "count"
"""How many GPUs there are, the same on every row."""

PAGE_CAUSE = "retired_pages.cause"
PAGE_ADDRESS = "retired_pages.address"
PAGE_CAUSES: dict[str, str] = {
    "single bit ecc": "retired_pages.single_bit",
    "double bit ecc": "retired_pages.double_bit",
}
"""`--query-retired-pages` has a row for each retired page; of a GPU that retires none, one for each cause, without an address."""

APP_COLUMNS: dict[str, str] = {
    "pid": "pid",
    "process_name": "name",
    "name": "name",
    "used_gpu_memory": "used_bytes",
    "used_memory": "used_bytes",
}
"""`--query-compute-apps` has a row for each process."""
