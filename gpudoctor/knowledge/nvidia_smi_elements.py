"""`nvidia-smi -q -x`: the element behind each field of an NVML answer.

Read in documents after nvsmi_device_v9.dtd to v13.dtd, of drivers 384 to 610 (2026-11-30). A row is a field and its element below
`gpu`; see nvidia_smi_labels.py, whose labels name the same.
"""

from gpudoctor.knowledge.nvidia_smi_labels import below, by_label

_ROWS = """
@name                                    product_name
@serial                                  serial
@uuid                                    uuid
@minor                                   minor_number
brand                                    product_brand
architecture                             product_architecture
display_active                           display_active
persistence_mode                         persistence_mode
addressing_mode                          addressing_mode
mig.current                              mig_mode/current_mig
mig.pending                              mig_mode/pending_mig
accounting_mode                          accounting_mode
vbios_version                            vbios_version
multi_gpu_board                          multigpu_board
board_id                                 board_id
board_part_number                        board_part_number
module_id                                gpu_module_id
platform.chassis_serial                  platformInfo/chassis_serial_number
platform.slot                            platformInfo/slot_number
platform.tray                            platformInfo/tray_index
platform.host_id                         platformInfo/host_id
platform.peer_type                       platformInfo/peer_type
platform.module_id                       platformInfo/module_id
inforom.image                            inforom_version/img_version
inforom.oem                              inforom_version/oem_object
inforom.ecc                              inforom_version/ecc_object
inforom.power                            inforom_version/pwr_object
c2c.enabled                              c2c_mode
virtualization.mode                      gpu_virtualization_mode/virtualization_mode
virtualization.host_vgpu_mode            gpu_virtualization_mode/host_vgpu_mode
vgpu.product                             vgpu_software_licensed_product/licensed_product_name
vgpu.licensed                            vgpu_software_licensed_product/license_status
recovery_action                          gpu_recovery_action
reset_required                           gpu_reset_status/reset_required
drain_and_reset_recommended              gpu_reset_status/drain_and_reset_recommended
gsp.firmware_version                     gsp_firmware_version
pci.device_id                            pci/pci_device_id
pci.subsystem_id                         pci/pci_sub_system_id
pcie.max_generation                      pci/pci_gpu_link_info/pcie_gen/max_link_gen
pcie.generation                          pci/pci_gpu_link_info/pcie_gen/current_link_gen
pcie.device_max_generation               pci/pci_gpu_link_info/pcie_gen/max_device_link_gen
pcie.max_width                           pci/pci_gpu_link_info/link_widths/max_link_width
pcie.width                               pci/pci_gpu_link_info/link_widths/current_link_width
pcie.replays                             pci/replay_counter
pcie.replay_rollovers                    pci/replay_rollover_counter
fan_percent                              fan_speed
performance_state                        performance_state
clocks_event.sw_power_cap_nanoseconds         clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap
clocks_event.sync_boost_nanoseconds           clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost
clocks_event.sw_thermal_slowdown_nanoseconds  clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown
clocks_event.hw_thermal_slowdown_nanoseconds  clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown
clocks_event.hw_power_brake_nanoseconds       clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake
memory.total_bytes                       fb_memory_usage/total
memory.reserved_bytes                    fb_memory_usage/reserved
memory.used_bytes                        fb_memory_usage/used
memory.free_bytes                        fb_memory_usage/free
bar1.total_bytes                         bar1_memory_usage/total
bar1.used_bytes                          bar1_memory_usage/used
bar1.free_bytes                          bar1_memory_usage/free
protected_memory.total_bytes             cc_protected_memory_usage/total
protected_memory.used_bytes              cc_protected_memory_usage/used
protected_memory.free_bytes              cc_protected_memory_usage/free
compute_mode                             compute_mode
utilization.gpu_percent                  utilization/gpu_util
utilization.memory_percent               utilization/memory_util
utilization.encoder_percent              utilization/encoder_util
utilization.decoder_percent              utilization/decoder_util
ecc.current                              ecc_mode/current_ecc
ecc.pending                              ecc_mode/pending_ecc
ecc.{}.dram.corrected                    ecc_errors/{}/dram_correctable
ecc.{}.dram.uncorrected                  ecc_errors/{}/dram_uncorrectable
ecc.{}.sram.corrected                    ecc_errors/{}/sram_correctable
ecc.{}.sram.uncorrected                  ecc_errors/{}/sram_uncorrectable
ecc.{}.sram.uncorrected_parity           ecc_errors/{}/sram_uncorrectable_parity
ecc.{}.sram.uncorrected_secded           ecc_errors/{}/sram_uncorrectable_secded
ecc.{}.dram.corrected                    ecc_errors/{}/single_bit/device_memory
ecc.{}.dram.uncorrected                  ecc_errors/{}/double_bit/device_memory
ecc.{}.register_file.corrected           ecc_errors/{}/single_bit/register_file
ecc.{}.register_file.uncorrected         ecc_errors/{}/double_bit/register_file
ecc.{}.l1_cache.corrected                ecc_errors/{}/single_bit/l1_cache
ecc.{}.l1_cache.uncorrected              ecc_errors/{}/double_bit/l1_cache
ecc.{}.l2_cache.corrected                ecc_errors/{}/single_bit/l2_cache
ecc.{}.l2_cache.uncorrected              ecc_errors/{}/double_bit/l2_cache
ecc.{}.texture_memory.corrected          ecc_errors/{}/single_bit/texture_memory
ecc.{}.texture_memory.uncorrected        ecc_errors/{}/double_bit/texture_memory
ecc.{}.cbu.uncorrected                   ecc_errors/{}/double_bit/cbu
ecc.{}.corrected                         ecc_errors/{}/single_bit/total
ecc.{}.uncorrected                       ecc_errors/{}/double_bit/total
ecc.sram_threshold_exceeded              ecc_errors/aggregate/sram_threshold_exceeded
ecc.sram_sources.l2                      ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2
ecc.sram_sources.sm                      ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm
ecc.sram_sources.microcontroller         ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller
ecc.sram_sources.pcie                    ecc_errors/aggregate_uncorrectable_sram_sources/sram_pcie
ecc.sram_sources.other                   ecc_errors/aggregate_uncorrectable_sram_sources/sram_other
ecc.channel_repair_pending               ecc_errors/channel_repair_pending
ecc.tpc_repair_pending                   ecc_errors/tpc_repair_pending
ecc.unrepairable_memory                  ecc_errors/unrepairable_memory
retired_pages.single_bit                 retired_pages/multiple_single_bit_retirement/retired_count
retired_pages.double_bit                 retired_pages/double_bit_retirement/retired_count
retired_pages.pending                    retired_pages/pending_retirement
retired_pages.pending                    retired_pages/pending_blacklist
row_remap.corrected                      remapped_rows/remapped_row_corr
row_remap.uncorrected                    remapped_rows/remapped_row_unc
row_remap.pending                        remapped_rows/remapped_row_pending
row_remap.failed                         remapped_rows/remapped_row_failure
row_remap.corrected_inactive             remapped_rows/remapped_row_corr_inactive
row_remap.uncorrected_inactive           remapped_rows/remapped_row_unc_inactive
row_remap.histogram.max                  remapped_rows/row_remapper_histogram/row_remapper_histogram_max
row_remap.histogram.high                 remapped_rows/row_remapper_histogram/row_remapper_histogram_high
row_remap.histogram.partial              remapped_rows/row_remapper_histogram/row_remapper_histogram_partial
row_remap.histogram.low                  remapped_rows/row_remapper_histogram/row_remapper_histogram_low
row_remap.histogram.none                 remapped_rows/row_remapper_histogram/row_remapper_histogram_none
temperature.gpu_celsius                  temperature/gpu_temp
temperature.tlimit_celsius               temperature/gpu_temp_tlimit
temperature.shutdown_celsius             temperature/gpu_temp_max_threshold
temperature.slowdown_celsius             temperature/gpu_temp_slow_threshold
temperature.max_gpu_celsius              temperature/gpu_temp_max_gpu_threshold
temperature.shutdown_tlimit_celsius      temperature/gpu_temp_max_tlimit_threshold
temperature.slowdown_tlimit_celsius      temperature/gpu_temp_slow_tlimit_threshold
temperature.max_gpu_tlimit_celsius       temperature/gpu_temp_max_gpu_tlimit_threshold
temperature.memory_celsius               temperature/memory_temp
temperature.max_memory_celsius           temperature/gpu_temp_max_mem_threshold
temperature.max_memory_tlimit_celsius    temperature/gpu_temp_max_mem_tlimit_threshold
power.draw_milliwatts                    power_readings/power_draw
power.limit_milliwatts                   power_readings/power_limit
power.enforced_limit_milliwatts          power_readings/enforced_power_limit
power.default_limit_milliwatts           power_readings/default_power_limit
power.min_limit_milliwatts               power_readings/min_power_limit
power.max_limit_milliwatts               power_readings/max_power_limit
power.draw_milliwatts                    gpu_power_readings/power_draw
power.average_milliwatts                 gpu_power_readings/average_power_draw
power.instant_milliwatts                 gpu_power_readings/instant_power_draw
power.limit_milliwatts                   gpu_power_readings/requested_power_limit
power.enforced_limit_milliwatts          gpu_power_readings/current_power_limit
power.default_limit_milliwatts           gpu_power_readings/default_power_limit
power.min_limit_milliwatts               gpu_power_readings/min_power_limit
power.max_limit_milliwatts               gpu_power_readings/max_power_limit
power.memory.average_milliwatts          gpu_memory_power_readings/average_power_draw
power.memory.average_milliwatts          gpu_memory_power_readings/power_draw
power.module.average_milliwatts          module_power_readings/average_power_draw
power.module.average_milliwatts          module_power_readings/power_draw
power.module.instant_milliwatts          module_power_readings/instant_power_draw
power.module.limit_milliwatts            module_power_readings/requested_power_limit
power.module.enforced_limit_milliwatts   module_power_readings/current_power_limit
power.module.default_limit_milliwatts    module_power_readings/default_power_limit
power.module.min_limit_milliwatts        module_power_readings/min_power_limit
power.module.max_limit_milliwatts        module_power_readings/max_power_limit
clocks.graphics_mhz                      clocks/graphics_clock
clocks.sm_mhz                            clocks/sm_clock
clocks.memory_mhz                        clocks/mem_clock
clocks.video_mhz                         clocks/video_clock
clocks.applications.graphics_mhz         applications_clocks/graphics_clock
clocks.applications.memory_mhz           applications_clocks/mem_clock
clocks.default_applications.graphics_mhz default_applications_clocks/graphics_clock
clocks.default_applications.memory_mhz   default_applications_clocks/mem_clock
clocks.max.graphics_mhz                  max_clocks/graphics_clock
clocks.max.sm_mhz                        max_clocks/sm_clock
clocks.max.memory_mhz                    max_clocks/mem_clock
clocks.max.video_mhz                     max_clocks/video_clock
clocks.max_customer_boost.graphics_mhz   max_customer_boost_clocks/graphics_clock
fabric.state                             fabric/state
fabric.status                            fabric/status
fabric.clique_id                         fabric/cliqueId
fabric.cluster_uuid                      fabric/clusterUuid
fabric.health_summary                    fabric/health/summary
fabric.bandwidth                         fabric/health/bandwidth
fabric.route_recovery                    fabric/health/route_recovery_in_progress
fabric.route_unhealthy                   fabric/health/route_unhealthy
fabric.access_timeout_recovery           fabric/health/access_timeout_recovery
fabric.incorrect_configuration           fabric/health/incorrect_configuration
fabric.partition_assigned                fabric/health/partition_assigned
"""

REASON_SECTIONS = ("clocks_event_reasons", "clocks_throttle_reasons")
"""Under these stand the reasons, each an element whose name begins with one of the prefixes."""
REASON_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")

MIG_ELEMENTS: dict[str, str] = {
    "index": "index",
    "gpu_instance_id": "gpu_instance_id",
    "compute_instance_id": "compute_instance_id",
    "device_attributes/shared/multiprocessor_count": "sm_count",
    "ecc_error_count/volatile_count/sram_uncorrectable": "ecc_uncorrected_sram",
    "fb_memory_usage/total": "memory_bytes",
    "fb_memory_usage/used": "used_bytes",
}
"""Below `mig_device`."""

ELEMENTS = by_label(_ROWS)
"""The field of each element path; `@` before what identifies a device instead."""

SECTIONS = below(ELEMENTS)
"""The fields below each section."""
