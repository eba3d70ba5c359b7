"""The words that stand in an answer for NVML's enumerations: the enumerator's own part or nvidia-smi's words, in lower case with `_`.

Numbers and enumerators from nvml.h of CUDA 13.5 (PyPI nvidia-nvml-dev 13.5.37). Where it names none, nvidia-smi's words: brands and the
fabric's bandwidth from captures of `nvidia-smi -q` up to driver 610, the peer type from NVIDIA/k8s-test-infra @3b2b865d
(pkg/gpu/mocknvml/engine/platform.go), which found the numbers by what nvidia-smi makes of them. Read 2026-11-30. Plain data: the
NVML worker reads it too, and imports nothing else of the tables.
"""

WORDS: dict[str, dict[int, str]] = {
    "brand": {
        0: "unknown",
        1: "quadro",
        2: "tesla",
        3: "nvs",
        4: "grid",
        5: "geforce",
        6: "titan",
        7: "nvidia_virtual_applications",
        8: "nvidia_virtual_pc",
        9: "nvidia_virtual_compute_server",
        10: "nvidia_rtx_virtual_workstation",
        11: "nvidia_cloud_gaming",
        12: "quadro_rtx",
        13: "nvidia_rtx",
        14: "nvidia",
        15: "geforce_rtx",
        16: "titan_rtx",
        17: "nvidia_dla",
        18: "nvidia_rtx_virtual_game_dev",
        19: "nvidia_npu",
    },
    "architecture": {
        2: "kepler",
        3: "maxwell",
        4: "pascal",
        5: "volta",
        6: "turing",
        7: "ampere",
        8: "ada",
        9: "hopper",
        10: "blackwell",
        11: "dla",
        12: "dla2",
        13: "rubin",
        15: "npu3",
    },
    "compute_mode": {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"},
    "addressing_mode": {0: "none", 1: "hmm", 2: "ats"},
    "virtualization.mode": {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"},
    "virtualization.host_vgpu_mode": {0: "non_sriov", 1: "sriov"},
    "platform.peer_type": {0: "direct_connected", 1: "switch_connected"},
    "recovery_action": {
        0: "none",
        1: "gpu_reset",
        2: "node_reboot",
        3: "drain_p2p",
        4: "drain_and_reset",
        5: "recover_imex_domain",
        6: "bus_reset",
        7: "system_reboot",
    },
    "fabric.state": {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"},
    "fabric.health_summary": {1: "healthy", 2: "unhealthy", 3: "limited_capacity"},
    "fabric.bandwidth": {1: "degraded", 2: "full"},
    "fabric.incorrect_configuration": {
        1: "none",
        2: "incorrect_sysguid",
        3: "incorrect_chassis_sn",
        4: "no_partition",
        5: "insufficient_nvlinks",
        6: "incompatible_gpu_fw",
        7: "invalid_location",
        8: "gpu_state_invalid",
    },
    "conf_compute.environment": {0: "unavailable", 1: "sim", 2: "prod"},
    "conf_compute.multi_gpu_mode": {0: "none", 1: "protected_pcie", 2: "nvle"},
    "nvlinks.remote_type": {0: "gpu", 1: "ibmnpu", 2: "switch"},
}
"""Word by number, by the name of the field; a number that is not here is no answer, or newer than this table."""

TOPOLOGY_PATHS: dict[int, str] = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t as `nvidia-smi topo -m` prints it; INTERNAL, two GPUs of one board such as the Tesla K80, is its PSB."""

P2P_STATUS: dict[int, str] = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "ioh_topology_not_supported",
    4: "disabled_by_regkey",
    5: "not_supported",
    6: "unknown",
}
"""nvmlGpuP2PStatus_t."""

NVLINK_GENERATIONS: dict[str, int] = {
    "pascal": 1,
    "volta": 2,
    "turing": 2,
    "ampere": 3,
    "hopper": 4,
    "blackwell": 5,
    "rubin": 6,
}
"""The NVLink generation of an architecture (NVIDIA's data sheets of the P100, V100, A100, H100 and GB200)."""

NVLINK_VERSIONS: dict[int, tuple[int, ...]] = {
    1: (1,),
    2: (2,),
    3: (2,),
    4: (3, 2),
    5: (3,),
    6: (4, 3),
    7: (5, 4),
    8: (6, 5),
    9: (6,),
}
"""What nvmlDeviceGetNvLinkVersion's number can mean, as generations: nvmlNvlinkVersion_t of nvml.h counts 3.0 as 4 and 4.0 as 6, the
resource manager, whose numbers older libraries pass on, as 5 and 7 (ctrl2080nvlink.h of open-gpu-kernel-modules 595.45.04,
NV2080_CTRL_NVLINK_STATUS_NVLINK_VERSION_*; TensorRT-LLM's table cluster_info.py reads them so)."""
