"""A GPU for the NVML stand-in that answers every question, each with a value of its own, and what the answer must hold of it.

One row a field: its name, where the value stands in the stand-in's JSON, the value as NVML has it, and the field's value. `=` means
the same; `+` the same number, made another one for each GPU. Written from nvml.h and the names of the fields, not from the worker.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from tests.standin.build import Device

_ROWS = """
brand                                    brand                            14      "nvidia"
architecture                             architecture                     10      "blackwell"
compute_capability                       compute_capability               [10,3]  "10.3"
board_id                                 board_id                         1024    +
board_part_number                        board_part_number                "692-2G520-0200-000" =
multi_gpu_board                          multi_gpu_board                  1       true
module_id                                module_id                        4       +
vbios_version                            vbios_version                    "96.00.A5.00.01" =
gsp.firmware_version                     gsp_version                      "580.95.05" =
gsp.enabled                              gsp_mode                         [1,0]   true
inforom.image                            inforom_version                  "G520.0200.00.05" =
inforom.oem                              inforom_oem                      "2.1"   =
inforom.ecc                              inforom_ecc                      "7.16"  =
inforom.power                            inforom_power                    "1.0"   =
inforom.valid                            inforom_valid                    0       false
platform.chassis_serial                  platform/chassis_serial          "1820000000001" =
platform.slot                            platform/slot                    25      =
platform.tray                            platform/tray                    200     =
platform.host_id                         platform/host_id                 1       =
platform.peer_type                       platform/peer_type               1       "switch_connected"
platform.module_id                       platform/module_id               2       +
pci.device_id                            pci_device_id                    590352606 =
pci.subsystem_id                         pci_subsystem_id                 381751518 =
persistence_mode                         persistence_mode                 1       true
compute_mode                             compute_mode                     3       "exclusive_process"
display_active                           display_active                   1       true
addressing_mode                          addressing_mode                  2       "ats"
accounting_mode                          accounting_mode                  1       true
virtualization.mode                      virtualization_mode              3       "host_vgpu"
virtualization.host_vgpu_mode            host_vgpu_mode                   1       "sriov"
vgpu.active                              active_vgpus                     [11,12,13] 3
vgpu.product  licensable_features  [{"state":0,"enabled":0,"product":"Off"},{"state":1,"enabled":1,"product":"On"}] "On"
vgpu.licensed  licensable_features  [{"state":0,"enabled":0,"product":"Off"},{"state":1,"enabled":1,"product":"On"}] true
mig.current                              mig_mode                         [0,1]   false
mig.pending                              mig_mode                         [0,1]   true
ecc.current                              ecc_mode                         [1,0]   true
ecc.pending                              ecc_mode                         [1,0]   false
ecc.volatile.corrected                   total_ecc_errors/0.0             1100    +
ecc.aggregate.corrected                  total_ecc_errors/0.1             1200    +
ecc.volatile.uncorrected                 total_ecc_errors/1.0             1300    +
ecc.aggregate.uncorrected                total_ecc_errors/1.1             1400    +
ecc.volatile.dram.corrected              memory_errors/0.0.2              2100    +
ecc.aggregate.dram.corrected             memory_errors/0.1.2              2200    +
ecc.volatile.dram.uncorrected            memory_errors/1.0.2              2300    +
ecc.aggregate.dram.uncorrected           memory_errors/1.1.2              2400    +
ecc.volatile.sram.corrected              memory_errors/0.0.7              3100    +
ecc.aggregate.sram.corrected             memory_errors/0.1.7              3200    +
ecc.volatile.sram.uncorrected            memory_errors/1.0.7              3300    +
ecc.aggregate.sram.uncorrected           memory_errors/1.1.7              3400    +
ecc.volatile.register_file.corrected     memory_errors/0.0.3              4100    +
ecc.aggregate.register_file.corrected    memory_errors/0.1.3              4200    +
ecc.volatile.register_file.uncorrected   memory_errors/1.0.3              4300    +
ecc.aggregate.register_file.uncorrected  memory_errors/1.1.3              4400    +
ecc.volatile.l1_cache.corrected          memory_errors/0.0.0              5100    +
ecc.aggregate.l1_cache.corrected         memory_errors/0.1.0              5200    +
ecc.volatile.l1_cache.uncorrected        memory_errors/1.0.0              5300    +
ecc.aggregate.l1_cache.uncorrected       memory_errors/1.1.0              5400    +
ecc.volatile.l2_cache.corrected          memory_errors/0.0.1              6100    +
ecc.aggregate.l2_cache.corrected         memory_errors/0.1.1              6200    +
ecc.volatile.l2_cache.uncorrected        memory_errors/1.0.1              6300    +
ecc.aggregate.l2_cache.uncorrected       memory_errors/1.1.1              6400    +
ecc.volatile.texture_memory.corrected    memory_errors/0.0.4              7100    +
ecc.aggregate.texture_memory.corrected   memory_errors/0.1.4              7200    +
ecc.volatile.texture_memory.uncorrected  memory_errors/1.0.4              7300    +
ecc.aggregate.texture_memory.uncorrected memory_errors/1.1.4              7400    +
ecc.volatile.cbu.uncorrected             memory_errors/1.0.6              8300    +
ecc.aggregate.cbu.uncorrected            memory_errors/1.1.6              8400    +
ecc.volatile.sram.uncorrected_parity     sram_ecc/volatileUncParity       9100    +
ecc.volatile.sram.uncorrected_secded     sram_ecc/volatileUncSecDed       9200    +
ecc.aggregate.sram.uncorrected_parity    sram_ecc/aggregateUncParity      9300    +
ecc.aggregate.sram.uncorrected_secded    sram_ecc/aggregateUncSecDed      9400    +
ecc.sram_sources.l2                      sram_ecc/aggregateUncBucketL2    9500    +
ecc.sram_sources.sm                      sram_ecc/aggregateUncBucketSm    9600    +
ecc.sram_sources.microcontroller         sram_ecc/aggregateUncBucketMcu   9700    +
ecc.sram_sources.pcie                    sram_ecc/aggregateUncBucketPcie  9800    +
ecc.sram_sources.other                   sram_ecc/aggregateUncBucketOther 9900    +
ecc.sram_threshold_exceeded              sram_ecc/bThresholdExceeded      1       true
ecc.channel_repair_pending               repair_pending                   [0,1]   false
ecc.tpc_repair_pending                   repair_pending                   [0,1]   true
ecc.unrepairable_memory                  unrepairable_memory              1       true
retired_pages.single_bit                 retired_pages                    [[4096,8192],[12288]] 2
retired_pages.double_bit                 retired_pages                    [[4096,8192],[12288]] 1
retired_pages.pending                    retired_pages_pending            1       true
row_remap.corrected                      remapped_rows                    [7,9,1,0] 7
row_remap.uncorrected                    remapped_rows                    [7,9,1,0] 9
row_remap.pending                        remapped_rows                    [7,9,1,0] true
row_remap.failed                         remapped_rows                    [7,9,1,0] false
row_remap.corrected_inactive             field_values/301                 31      +
row_remap.uncorrected_inactive           field_values/302                 32      +
row_remap.histogram.max                  row_remapper_histogram           [2550,4,3,2,1] 2550
row_remap.histogram.high                 row_remapper_histogram           [2550,4,3,2,1] 4
row_remap.histogram.partial              row_remapper_histogram           [2550,4,3,2,1] 3
row_remap.histogram.low                  row_remapper_histogram           [2550,4,3,2,1] 2
row_remap.histogram.none                 row_remapper_histogram           [2550,4,3,2,1] 1
recovery_action                          field_values/230                 4       "drain_and_reset"
reset_required                           field_values/226                 1       true
drain_and_reset_recommended              field_values/227                 0       false
temperature.gpu_celsius                  temperatures                     [41]    41
temperature.memory_celsius               field_values/82                  52      +
temperature.tlimit_celsius               margin_temperature               -3      =
temperature.shutdown_celsius             temperature_thresholds           [92,89,105,87] 92
temperature.slowdown_celsius             temperature_thresholds           [92,89,105,87] 89
temperature.max_memory_celsius           temperature_thresholds           [92,89,105,87] 105
temperature.max_gpu_celsius              temperature_thresholds           [92,89,105,87] 87
temperature.shutdown_tlimit_celsius      field_values/193                 -8      =
temperature.slowdown_tlimit_celsius      field_values/194                 -2      =
temperature.max_memory_tlimit_celsius    field_values/195                 {"value":0,"type":5} 0
temperature.max_gpu_tlimit_celsius       field_values/196                 {"value":7,"type":5} 7
fan_percent                              fan_percent                      30      +
performance_state                        performance_state                8       =
power.draw_milliwatts                    power_milliwatts                 70930   +
power.average_milliwatts                 field_values/185                 70111   +
power.instant_milliwatts                 field_values/186                 70222   +
power.limit_milliwatts                   power_limit_milliwatts           650001  +
power.enforced_limit_milliwatts          enforced_power_limit_milliwatts  640002  +
power.default_limit_milliwatts           default_power_limit_milliwatts   700003  +
power.min_limit_milliwatts               power_limit_constraints          [200004,700005] 200004
power.max_limit_milliwatts               power_limit_constraints          [200004,700005] 700005
power.module.average_milliwatts          field_values/185@1               501000  +
power.module.instant_milliwatts          field_values/186@1               502000  +
power.module.enforced_limit_milliwatts   field_values/190@1               503000  +
power.module.limit_milliwatts            field_values/192@1               504000  +
power.module.default_limit_milliwatts    field_values/189@1               505000  +
power.module.min_limit_milliwatts        field_values/187@1               506000  +
power.module.max_limit_milliwatts        field_values/188@1               507000  +
power.memory.average_milliwatts          field_values/185@2               35700   +
clocks.graphics_mhz                      clocks                           [345,346,2619,765] 345
clocks.sm_mhz                            clocks                           [345,346,2619,765] 346
clocks.memory_mhz                        clocks                           [345,346,2619,765] 2619
clocks.video_mhz                         clocks                           [345,346,2619,765] 765
clocks.max.graphics_mhz                  max_clocks                       [1980,1981,2620,1545] 1980
clocks.max.sm_mhz                        max_clocks                       [1980,1981,2620,1545] 1981
clocks.max.memory_mhz                    max_clocks                       [1980,1981,2620,1545] 2620
clocks.max.video_mhz                     max_clocks                       [1980,1981,2620,1545] 1545
clocks.applications.graphics_mhz         applications_clocks              [1970,null,2621] 1970
clocks.applications.memory_mhz           applications_clocks              [1970,null,2621] 2621
clocks.default_applications.graphics_mhz default_applications_clocks      [1960,null,2622] 1960
clocks.default_applications.memory_mhz   default_applications_clocks      [1960,null,2622] 2622
clocks.max_customer_boost.graphics_mhz   max_customer_boost_clocks        [1950]  1950
clocks_event.active                      clocks_event_reasons             1099511627780 =
clocks_event.supported                   supported_clocks_event_reasons   511     +
clocks_event.sw_power_cap_nanoseconds    field_values/74                  6000000000 +
clocks_event.sync_boost_nanoseconds      field_values/76                  {"value":76,"type":3} 76
clocks_event.sw_thermal_slowdown_nanoseconds field_values/269             {"value":269,"type":2} 269
clocks_event.hw_thermal_slowdown_nanoseconds field_values/270             {"value":270,"type":4} 270
clocks_event.hw_power_brake_nanoseconds  field_values/271                 {"value":271,"type":0} 271
memory.total_bytes                       memory/total                     85520809984 +
memory.used_bytes                        memory/used                      1048576 +
memory.free_bytes                        memory/free                      85027979264 +
memory.reserved_bytes                    memory/reserved                  491782144 +
bar1.total_bytes                         bar1/total                       137438953472 +
bar1.used_bytes                          bar1/used                        2097152 +
bar1.free_bytes                          bar1/free                        137436856320 +
protected_memory.total_bytes             protected_memory/total           1073741824 +
protected_memory.used_bytes              protected_memory/used            4194304 +
protected_memory.free_bytes              protected_memory/free            1069547520 +
utilization.gpu_percent                  utilization                      [51,52] 51
utilization.memory_percent               utilization                      [51,52] 52
utilization.encoder_percent              encoder_utilization              [53,167000] 53
utilization.decoder_percent              decoder_utilization              [54,167000] 54
pcie.generation                          pcie_link_generation             4       =
pcie.width                               pcie_link_width                  8       =
pcie.max_generation                      max_pcie_link_generation         5       =
pcie.max_width                           max_pcie_link_width              16      =
pcie.device_max_generation               device_max_pcie_link_generation  6       =
pcie.replays                             pcie_replays                     61      +
pcie.replay_rollovers                    field_values/95                  62      +
pcie.l0_to_recovery                      field_values/169                 63      +
pcie.errors.correctable                  field_values/173                 173     +
pcie.errors.naks_received                field_values/174                 174     +
pcie.errors.receiver                     field_values/175                 175     +
pcie.errors.bad_tlp                      field_values/176                 176     +
pcie.errors.naks_sent                    field_values/177                 177     +
pcie.errors.bad_dllp                     field_values/178                 178     +
pcie.errors.non_fatal                    field_values/179                 179     +
pcie.errors.fatal                        field_values/180                 180     +
pcie.errors.unsupported_request          field_values/181                 181     +
pcie.errors.lcrc                         field_values/182                 182     +
pcie.errors.lane                         field_values/183                 {"value":183,"type":6} 183
c2c.enabled                              c2c_enabled                      1       true
c2c.links                                field_values/170                 10      +
fabric.state                             fabric/state                     3       "completed"
fabric.status                            fabric/status                    999     =
fabric.clique_id                         fabric/clique_id                 32766   =
fabric.cluster_uuid  fabric/cluster_uuid  {"hex":"3143b15bc2cd192b28cc9b5473fb5b93"} "3143b15b-c2cd-192b-28cc-9b5473fb5b93"
fabric.health_summary                    fabric/health_summary            3       "limited_capacity"
fabric.bandwidth                         fabric/health_mask               5529    "degraded"
fabric.route_recovery                    fabric/health_mask               5529    false
fabric.route_unhealthy                   fabric/health_mask               5529    true
fabric.access_timeout_recovery           fabric/health_mask               5529    false
fabric.incorrect_configuration           fabric/health_mask               5529    "insufficient_nvlinks"
fabric.partition_assigned                fabric/health_mask               5529    true
nvlink.active_links                      nvlinks                          [{"active":1},{"active":0},{"active":1}] 2
affinity.cpus                            cpus                             [[0,31],[64,95],[127,127]] "0-31,64-95,127"
affinity.numa_nodes                      numa_nodes                       [[1,1]] "1"
affinity.memory_numa_node                numa_node_id                     2       +
"""


def talkative_gpu(index: int, address: str) -> tuple[Device, dict[str, Any]]:
    """The stand-in's GPU at an address, and the fields that its answer must have."""
    domain, rest = address.split(":", 1)
    device: dict[str, Any] = {
        "uuid": f"GPU-{index:08x}-1111-4222-8333-{index:012x}",
        "name": f"NVIDIA GPU {index}",
        "serial": f"16500000{index:05}",
        "pci_bus_id": f"{int(domain, 16):08X}:{rest.upper()}",
        "minor": 100 - index,
    }
    fields: dict[str, Any] = {}
    for row in _ROWS.strip().splitlines():
        name, place, told_and_expected = row.split(maxsplit=2)
        told, expected = told_and_expected.rsplit(maxsplit=1)
        value = json.loads(told) + index if expected == "+" else json.loads(told)
        _put(device, place.split("/"), value)
        fields[name] = value if expected in "=+" else json.loads(expected)
    return cast(Device, device), fields


def _put(device: dict[str, Any], place: Sequence[str], value: Any) -> None:
    for key in place[:-1]:
        device = device.setdefault(key, {})
    device[place[-1]] = value
