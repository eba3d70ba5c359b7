"""`nvidia-smi -q`: the label behind each field of an NVML answer.

Read in captures of drivers 352 to 610 and in nvidia-smi(1) of driver 610 (2026-11-30). A row is a field and, after two blanks, its
labels from the outermost section inwards, joined by `/`, in small letters: releases differ in capitals. `{}` stands for
volatile and aggregate. A field may have several rows: labels of other releases, or of other generations of GPUs.
"""

SPANS = ("volatile", "aggregate")
"""The two periods for which ECC errors are counted: since the driver was loaded, and in the GPU's whole life."""

_ROWS = """
@name                                    product name
@serial                                  serial number
@uuid                                    gpu uuid
@minor                                   minor number
brand                                    product brand
architecture                             product architecture
display_active                           display active
persistence_mode                         persistence mode
addressing_mode                          addressing mode
mig.current                              mig mode/current
mig.pending                              mig mode/pending
accounting_mode                          accounting mode
vbios_version                            vbios version
multi_gpu_board                          multigpu board
board_id                                 board id
board_part_number                        board part number
module_id                                module id
platform.chassis_serial                  platform info/chassis serial number
platform.chassis_serial                  platform info/rack serial number
platform.slot                            platform info/slot number
platform.slot                            platform info/chassis physical slot number
platform.tray                            platform info/tray index
platform.tray                            platform info/compute slot index
platform.host_id                         platform info/host id
platform.host_id                         platform info/node index
platform.peer_type                       platform info/peer type
platform.module_id                       platform info/module id
inforom.image                            inforom version/image version
inforom.oem                              inforom version/oem object
inforom.ecc                              inforom version/ecc object
inforom.power                            inforom version/power management object
c2c.enabled                              gpu c2c mode
virtualization.mode                      gpu virtualization mode/virtualization mode
virtualization.host_vgpu_mode            gpu virtualization mode/host vgpu mode
vgpu.product                             vgpu software licensed product/product name
vgpu.licensed                            vgpu software licensed product/license status
vgpu.active                              active vgpus
recovery_action                          gpu recovery action
reset_required                           gpu reset status/reset required
drain_and_reset_recommended              gpu reset status/drain and reset recommended
gsp.firmware_version                     gsp firmware version
pci.device_id                            pci/device id
pci.subsystem_id                         pci/sub system id
pcie.max_generation                      pci/gpu link info/pcie generation/max
pcie.generation                          pci/gpu link info/pcie generation/current
pcie.device_max_generation               pci/gpu link info/pcie generation/device max
pcie.max_width                           pci/gpu link info/link width/max
pcie.width                               pci/gpu link info/link width/current
pcie.replays                             pci/replays since reset
pcie.replay_rollovers                    pci/replay number rollovers
fan_percent                              fan speed
performance_state                        performance state
clocks_event.sw_power_cap_nanoseconds         clocks event reasons counters/sw power capping
clocks_event.sync_boost_nanoseconds           clocks event reasons counters/sync boost
clocks_event.sw_thermal_slowdown_nanoseconds  clocks event reasons counters/sw thermal slowdown
clocks_event.hw_thermal_slowdown_nanoseconds  clocks event reasons counters/hw thermal slowdown
clocks_event.hw_power_brake_nanoseconds       clocks event reasons counters/hw power braking
memory.total_bytes                       fb memory usage/total
memory.reserved_bytes                    fb memory usage/reserved
memory.used_bytes                        fb memory usage/used
memory.free_bytes                        fb memory usage/free
bar1.total_bytes                         bar1 memory usage/total
bar1.used_bytes                          bar1 memory usage/used
bar1.free_bytes                          bar1 memory usage/free
protected_memory.total_bytes             conf compute protected memory usage/total
protected_memory.used_bytes              conf compute protected memory usage/used
protected_memory.free_bytes              conf compute protected memory usage/free
compute_mode                             compute mode
utilization.gpu_percent                  utilization/gpu
utilization.memory_percent               utilization/memory
utilization.encoder_percent              utilization/encoder
utilization.decoder_percent              utilization/decoder
ecc.current                              ecc mode/current
ecc.pending                              ecc mode/pending
ecc.{}.dram.corrected                    ecc errors/{}/dram correctable
ecc.{}.dram.uncorrected                  ecc errors/{}/dram uncorrectable
ecc.{}.sram.corrected                    ecc errors/{}/sram correctable
ecc.{}.sram.uncorrected                  ecc errors/{}/sram uncorrectable
ecc.{}.sram.uncorrected_parity           ecc errors/{}/sram uncorrectable parity
ecc.{}.sram.uncorrected_secded           ecc errors/{}/sram uncorrectable sec-ded
ecc.{}.dram.corrected                    ecc errors/{}/single bit/device memory
ecc.{}.dram.uncorrected                  ecc errors/{}/double bit/device memory
ecc.{}.register_file.corrected           ecc errors/{}/single bit/register file
ecc.{}.register_file.uncorrected         ecc errors/{}/double bit/register file
ecc.{}.l1_cache.corrected                ecc errors/{}/single bit/l1 cache
ecc.{}.l1_cache.uncorrected              ecc errors/{}/double bit/l1 cache
ecc.{}.l2_cache.corrected                ecc errors/{}/single bit/l2 cache
ecc.{}.l2_cache.uncorrected              ecc errors/{}/double bit/l2 cache
ecc.{}.texture_memory.corrected          ecc errors/{}/single bit/texture memory
ecc.{}.texture_memory.uncorrected        ecc errors/{}/double bit/texture memory
ecc.{}.cbu.uncorrected                   ecc errors/{}/double bit/cbu
ecc.{}.corrected                         ecc errors/{}/single bit/total
ecc.{}.uncorrected                       ecc errors/{}/double bit/total
ecc.sram_threshold_exceeded              ecc errors/aggregate/sram threshold exceeded
ecc.sram_sources.l2                      ecc errors/aggregate uncorrectable sram sources/sram l2
ecc.sram_sources.sm                      ecc errors/aggregate uncorrectable sram sources/sram sm
ecc.sram_sources.microcontroller         ecc errors/aggregate uncorrectable sram sources/sram microcontroller
ecc.sram_sources.pcie                    ecc errors/aggregate uncorrectable sram sources/sram pcie
ecc.sram_sources.other                   ecc errors/aggregate uncorrectable sram sources/sram other
ecc.channel_repair_pending               ecc errors/channel repair pending
ecc.tpc_repair_pending                   ecc errors/tpc repair pending
ecc.unrepairable_memory                  ecc errors/unrepairable memory
retired_pages.single_bit                 retired pages/single bit ecc
retired_pages.double_bit                 retired pages/double bit ecc
retired_pages.pending                    retired pages/pending
retired_pages.pending                    retired pages/pending page blacklist
row_remap.corrected                      remapped rows/correctable error
row_remap.uncorrected                    remapped rows/uncorrectable error
row_remap.pending                        remapped rows/pending
row_remap.failed                         remapped rows/remapping failure occurred
row_remap.histogram.max                  remapped rows/bank remap availability histogram/max
row_remap.histogram.high                 remapped rows/bank remap availability histogram/high
row_remap.histogram.partial              remapped rows/bank remap availability histogram/partial
row_remap.histogram.low                  remapped rows/bank remap availability histogram/low
row_remap.histogram.none                 remapped rows/bank remap availability histogram/none
temperature.gpu_celsius                  temperature/gpu current temp
temperature.tlimit_celsius               temperature/gpu t.limit temp
temperature.tlimit_celsius               temperature/gpu current t.limit temp
temperature.shutdown_celsius             temperature/gpu shutdown temp
temperature.slowdown_celsius             temperature/gpu slowdown temp
temperature.max_gpu_celsius              temperature/gpu max operating temp
temperature.shutdown_tlimit_celsius      temperature/gpu shutdown t.limit temp
temperature.slowdown_tlimit_celsius      temperature/gpu slowdown t.limit temp
temperature.max_gpu_tlimit_celsius       temperature/gpu max operating t.limit temp
temperature.memory_celsius               temperature/memory current temp
temperature.max_memory_celsius           temperature/memory max operating temp
temperature.max_memory_tlimit_celsius    temperature/memory max operating t.limit temp
power.draw_milliwatts                    power readings/power draw
power.limit_milliwatts                   power readings/power limit
power.enforced_limit_milliwatts          power readings/enforced power limit
power.default_limit_milliwatts           power readings/default power limit
power.min_limit_milliwatts               power readings/min power limit
power.max_limit_milliwatts               power readings/max power limit
power.draw_milliwatts                    gpu power readings/power draw
power.average_milliwatts                 gpu power readings/average power draw
power.instant_milliwatts                 gpu power readings/instantaneous power draw
power.limit_milliwatts                   gpu power readings/requested power limit
power.enforced_limit_milliwatts          gpu power readings/current power limit
power.default_limit_milliwatts           gpu power readings/default power limit
power.limit_milliwatts                   gpu power readings/gpu ceiling power limit/requested power limit
power.enforced_limit_milliwatts          gpu power readings/gpu ceiling power limit/current power limit
power.default_limit_milliwatts           gpu power readings/gpu ceiling power limit/default power limit
power.min_limit_milliwatts               gpu power readings/min power limit
power.max_limit_milliwatts               gpu power readings/max power limit
power.memory.average_milliwatts          gpu memory power readings/average power draw
power.memory.average_milliwatts          gpu memory power readings/power draw
power.module.average_milliwatts          module power readings/average power draw
power.module.average_milliwatts          module power readings/power draw
power.module.instant_milliwatts          module power readings/instantaneous power draw
power.module.limit_milliwatts            module power readings/requested power limit
power.module.enforced_limit_milliwatts   module power readings/current power limit
power.module.default_limit_milliwatts    module power readings/default power limit
power.module.min_limit_milliwatts        module power readings/min power limit
power.module.max_limit_milliwatts        module power readings/max power limit
clocks.graphics_mhz                      clocks/graphics
clocks.sm_mhz                            clocks/sm
clocks.memory_mhz                        clocks/memory
clocks.video_mhz                         clocks/video
clocks.applications.graphics_mhz         applications clocks/graphics
clocks.applications.memory_mhz           applications clocks/memory
clocks.default_applications.graphics_mhz default applications clocks/graphics
clocks.default_applications.memory_mhz   default applications clocks/memory
clocks.max.graphics_mhz                  max clocks/graphics
clocks.max.sm_mhz                        max clocks/sm
clocks.max.memory_mhz                    max clocks/memory
clocks.max.video_mhz                     max clocks/video
clocks.max_customer_boost.graphics_mhz   max customer boost clocks/graphics
fabric.state                             fabric/state
fabric.status                            fabric/status
fabric.clique_id                         fabric/cliqueid
fabric.cluster_uuid                      fabric/clusteruuid
fabric.health_summary                    fabric/health/summary
fabric.bandwidth                         fabric/health/bandwidth
fabric.route_recovery                    fabric/health/route recovery in progress
fabric.route_unhealthy                   fabric/health/route unhealthy
fabric.access_timeout_recovery           fabric/health/access timeout recovery
fabric.incorrect_configuration           fabric/health/incorrect configuration
fabric.partition_assigned                fabric/health/partition assigned
"""

REASON_SECTIONS = ("clocks event reasons", "clocks throttle reasons")
"""Under these stand the reasons, one on a line; a driver since 535 says `event`, older ones `throttle`."""

MIG_LABELS: dict[str, str] = {
    "index": "index",
    "gpu instance id": "gpu_instance_id",
    "compute instance id": "compute_instance_id",
    "device attributes/shared/multiprocessor count": "sm_count",
    "ecc errors/volatile/sram uncorrectable": "ecc_uncorrected_sram",
    "fb memory usage/total": "memory_bytes",
    "fb memory usage/used": "used_bytes",
    "shared fb memory usage/total": "memory_bytes",
    "shared fb memory usage/used": "used_bytes",
}
"""Below `mig device`; since 590 the memory is called shared, by the compute instances of one GPU instance."""


def by_label(rows: str) -> dict[str, str]:
    """The field of each label."""
    fields: dict[str, str] = {}
    for row in rows.strip().splitlines():
        field, label = row.split(maxsplit=1)
        for span in SPANS if "{}" in row else ("",):
            fields[label.format(span)] = field.format(span)
    return fields


def below(fields: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """The fields below each section, for a section that is refused as a whole: `Remapped Rows : N/A`."""
    sections: dict[str, dict[str, None]] = {}
    for label, field in fields.items():
        section = label
        while "/" in section:
            section = section.rpartition("/")[0]
            sections.setdefault(section, {})[field] = None
    return {section: tuple(names) for section, names in sections.items()}


QUERY = by_label(_ROWS)
"""The field of each label path; `@` before what identifies a device instead."""

SECTIONS = below(QUERY)
"""The fields below each section."""
