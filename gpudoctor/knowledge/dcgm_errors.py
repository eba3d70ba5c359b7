"""DCGM's error codes: how bad DCGM holds each to be, and which check here looks at the same.

Codes, names, severities and categories of dcgmlib/dcgm_errors.h and dcgmlib/src/dcgm_errors.c of NVIDIA/DCGM v4.6.0 (6 July 2026), read
2026-11-30. Words and next steps are ours.
"""

from msgspec import Struct

from gpudoctor.knowledge.gpu_reset import reset
from gpudoctor.verdicts import Action, Remedy

SOURCE = "NVIDIA/DCGM v4.6.0, dcgmlib/dcgm_errors.h, read 2026-11-30"

MONITOR, ISOLATE, TRIAGE, CONFIG, RESET = "monitor", "isolate", "triage", "config", "reset"
SEVERITIES = {1: MONITOR, 2: ISOLATE, 3: "unknown", 4: TRIAGE, 5: CONFIG, 6: RESET}
"""dcgmErrorSeverity_t as `dcgmi diag -j` prints it since DCGM 3.3; releases before print none."""


class DcgmError(Struct, frozen=True):
    """A code, its name without DCGM_FR_; `check` is the check here that looks at the same, "" for what only a test under load shows."""

    code: int
    name: str
    severity: str
    category: str
    check: str = ""


_ROWS = """
0 OK unknown none
1 UNKNOWN unknown none
2 UNRECOGNIZED unknown none
3 PCI_REPLAY_RATE isolate hardware_pcie health.pcie-replays
4 VOLATILE_DBE_DETECTED isolate hardware_memory health.ecc-uncorrected
5 VOLATILE_SBE_DETECTED monitor hardware_memory health.ecc-corrected
6 PENDING_PAGE_RETIREMENTS reset hardware_memory health.retired-pages
7 RETIRED_PAGES_LIMIT isolate hardware_memory health.retired-pages
8 RETIRED_PAGES_DBE_LIMIT isolate hardware_memory health.retired-pages
9 CORRUPT_INFOROM triage hardware_other health.inforom
10 CLOCKS_EVENT_THERMAL monitor hardware_thermal health.throttling
11 POWER_UNREADABLE monitor hardware_power
12 CLOCKS_EVENT_POWER monitor hardware_power health.throttling
13 NVLINK_ERROR_THRESHOLD isolate hardware_nvlink fabric.nvlink-errors
14 NVLINK_DOWN triage hardware_nvlink fabric.nvlinks-up
15 NVSWITCH_FATAL_ERROR isolate hardware_nvswitch fabric.switch-sxids
16 NVSWITCH_NON_FATAL_ERROR monitor hardware_nvswitch fabric.switch-sxids
17 NVSWITCH_DOWN monitor hardware_nvswitch
18 NO_ACCESS_TO_FILE config software_other
19 NVML_API monitor software_library
20 DEVICE_COUNT_MISMATCH config software_other device-nodes.gpu-node
21 BAD_PARAMETER unknown internal_other
22 CANNOT_OPEN_LIB triage software_library driver-cuda.cuda-library
23 DENYLISTED_DRIVER config software_config kernel-module.gpu-bound
24 NVML_LIB_BAD isolate software_library
25 GRAPHICS_PROCESSES reset software_other
26 HOSTENGINE_CONN monitor internal_other
27 FIELD_QUERY monitor internal_other
28 BAD_CUDA_ENV config software_cuda
29 PERSISTENCE_MODE config software_other health.persistence-mode
30 LOW_BANDWIDTH triage hardware_pcie
31 HIGH_LATENCY triage hardware_pcie
32 CANNOT_GET_FIELD_TAG monitor internal_other
33 FIELD_VIOLATION isolate hardware_other
34 FIELD_THRESHOLD monitor perf_violation
35 FIELD_VIOLATION_DBL isolate perf_violation
36 FIELD_THRESHOLD_DBL isolate perf_violation
37 UNSUPPORTED_FIELD_TYPE triage internal_other
38 FIELD_THRESHOLD_TS isolate perf_threshold
39 FIELD_THRESHOLD_TS_DBL isolate perf_threshold
40 THERMAL_VIOLATIONS monitor hardware_thermal health.throttling
41 THERMAL_VIOLATIONS_TS monitor hardware_thermal health.throttling
42 TEMP_VIOLATION monitor hardware_thermal health.temperature
43 CLOCKS_EVENT_VIOLATION monitor hardware_other health.throttling
44 INTERNAL triage internal_other
45 PCIE_GENERATION triage hardware_pcie health.pcie-under-load
46 PCIE_WIDTH config hardware_pcie health.pcie-under-load
47 ABORTED config software_other
48 TEST_DISABLED config software_config
49 CANNOT_GET_STAT triage internal_other
50 STRESS_LEVEL triage perf_threshold
51 CUDA_API monitor software_cuda
52 FAULTY_MEMORY isolate hardware_memory
53 CANNOT_SET_WATCHES monitor internal_other
54 CUDA_UNBOUND triage software_cuda
55 ECC_DISABLED config hardware_memory health.ecc-mode
56 MEMORY_ALLOC triage software_other
57 CUDA_DBE isolate hardware_memory health.ecc-uncorrected
58 MEMORY_MISMATCH isolate hardware_memory
59 CUDA_DEVICE triage software_cuda
60 ECC_UNSUPPORTED config hardware_memory
61 ECC_PENDING monitor hardware_memory health.ecc-mode
62 MEMORY_BANDWIDTH triage perf_threshold
63 TARGET_POWER triage hardware_power
64 API_FAIL triage software_other
65 API_FAIL_GPU triage software_other
66 CUDA_CONTEXT triage software_cuda
67 DCGM_API triage internal_other
68 CONCURRENT_GPUS config software_config
69 TOO_MANY_ERRORS monitor software_other
70 NVLINK_CRC_ERROR_THRESHOLD isolate hardware_nvlink fabric.nvlink-errors
71 NVLINK_ERROR_CRITICAL isolate hardware_nvlink fabric.nvlink-errors
72 ENFORCED_POWER_LIMIT config hardware_power health.power-limit
73 MEMORY_ALLOC_HOST triage software_other
74 GPU_OP_MODE monitor software_config
75 NO_MEMORY_CLOCKS monitor hardware_memory
76 NO_GRAPHICS_CLOCKS monitor hardware_other
77 HAD_TO_RESTORE_STATE triage software_other
78 L1TAG_UNSUPPORTED config software_other
79 L1TAG_MISCOMPARE isolate hardware_memory
80 ROW_REMAP_FAILURE reset hardware_memory health.row-remap-failed
81 UNCONTAINED_ERROR isolate software_xid health.memory-xids
82 EMPTY_GPU_LIST config software_config
83 DBE_PENDING_PAGE_RETIREMENTS reset hardware_memory health.retired-pages
84 UNCORRECTABLE_ROW_REMAP reset hardware_memory health.row-remap-spares
85 PENDING_ROW_REMAP reset hardware_memory health.row-remap-pending
86 BROKEN_P2P_MEMORY_DEVICE isolate hardware_other
87 BROKEN_P2P_WRITER_DEVICE isolate hardware_other
88 NVSWITCH_NVLINK_DOWN isolate hardware_nvlink fabric.nvlinks-up
89 EUD_BINARY_PERMISSIONS triage software_eud
90 EUD_NON_ROOT_USER triage software_eud
91 EUD_SPAWN_FAILURE triage software_eud
92 EUD_TIMEOUT triage software_eud
93 EUD_ZOMBIE triage software_eud
94 EUD_NON_ZERO_EXIT_CODE triage software_eud
95 EUD_TEST_FAILED isolate software_eud
96 FILE_CREATE_PERMISSIONS config software_config
97 PAUSE_RESUME_FAILED triage internal_other
98 PCIE_H_REPLAY_VIOLATION isolate hardware_pcie health.pcie-replays
99 GPU_EXPECTED_NVLINKS_UP triage hardware_nvlink fabric.nvlinks-up
100 NVSWITCH_EXPECTED_NVLINKS_UP triage hardware_nvlink fabric.nvlinks-up
101 XID_ERROR triage software_xid driver-cuda.xids
102 SBE_VIOLATION isolate hardware_memory health.ecc-corrected
103 DBE_VIOLATION isolate hardware_memory health.ecc-uncorrected
104 PCIE_REPLAY_VIOLATION isolate hardware_pcie health.pcie-replays
105 SBE_THRESHOLD_VIOLATION isolate hardware_memory health.ecc-corrected
106 DBE_THRESHOLD_VIOLATION isolate hardware_memory health.ecc-uncorrected
107 PCIE_REPLAY_THRESHOLD_VIOLATION isolate hardware_pcie health.pcie-replays
108 CUDA_FM_NOT_INITIALIZED monitor software_cuda fabric.registered
109 SXID_ERROR isolate software_xid fabric.switch-sxids
110 GFLOPS_THRESHOLD_VIOLATION triage perf_violation
111 NAN_VALUE isolate hardware_memory
112 FABRIC_MANAGER_TRAINING_ERROR config software_cuda fabric.manager-running
113 BROKEN_P2P_PCIE_MEMORY_DEVICE isolate hardware_pcie
114 BROKEN_P2P_PCIE_WRITER_DEVICE isolate hardware_pcie
115 BROKEN_P2P_NVLINK_MEMORY_DEVICE isolate hardware_nvlink
116 BROKEN_P2P_NVLINK_WRITER_DEVICE isolate hardware_nvlink
117 TEST_SKIPPED config software_config
118 SRAM_THRESHOLD isolate hardware_memory health.sram-threshold
119 NVLINK_EFFECTIVE_BER_THRESHOLD isolate hardware_nvlink fabric.nvlink-errors
120 FALLEN_OFF_BUS isolate hardware_other pcie.gpu-responds
121 NVLINK_SYMBOL_BER_THRESHOLD isolate hardware_nvlink fabric.nvlink-errors
122 IMEX_UNHEALTHY isolate software_other fabric.imex
123 FABRIC_PROBE_STATE monitor hardware_nvlink fabric.registered
124 BINARY_PERMISSIONS triage software_other
125 GPU_RECOVERY_RESET reset hardware_other driver-cuda.recovery-action
126 GPU_RECOVERY_REBOOT isolate hardware_other driver-cuda.recovery-action
127 GPU_RECOVERY_DRAIN_P2P reset hardware_other driver-cuda.recovery-action
128 GPU_RECOVERY_DRAIN_RESET reset hardware_other driver-cuda.recovery-action
129 NCCL_ERROR reset hardware_other
130 RETEST_REQUESTED triage software_other
131 CONTAINED_ERROR monitor software_xid health.memory-xids
132 UNCORRECTABLE_ROW_REMAP_LIMIT triage hardware_memory health.row-remap-spares
"""


def all_errors() -> dict[int, DcgmError]:
    """Every error by code."""
    found = {}
    for row in _ROWS.strip().splitlines():
        code, name, severity, category, *check = row.split()
        found[int(code)] = DcgmError(int(code), name, severity, category, check[0] if check else "")
    return found


def dcgm_error(code: int) -> DcgmError | None:
    """What DCGM says of a code, None for one that its header does not have."""
    return all_errors().get(code)


MEANS = {
    MONITOR: "the GPU can go on working, and is to be watched",
    ISOLATE: "the GPU cannot do its work: take it out of use",
    TRIAGE: "find out what it is before the GPU is used again",
    CONFIG: "a setting is behind it",
    RESET: "drain the GPU and reset it",
    "unknown": "how bad it is is not told",
}
"""What DCGM means by a severity (dcgm_errors.h, dcgmErrorSeverity_t), in our words."""


_MORE = Remedy(
    Action.INSPECT_HARDWARE,
    "Repeat the test alone on an idle GPU, so that a chance result is told from a lasting one.",
    ("dcgmi diag -r 2 -j",),
    interrupts="workloads on the GPUs tested",
    confirm="dcgmi diag -r 2 passes twice",
    then=True,
)
_KEEP = Remedy(
    Action.CONTACT_VENDOR,
    "Keep the evidence and hand it to the vendor with the GPU's serial number; DCGM advises a field diagnosis for it.",
    ("nvidia-bug-report.sh",),
    confirm="the vendor's field diagnosis passes",
    then=True,
)
_DRAIN = Remedy(
    Action.CHANGE_WORKLOAD,
    "Take the node out of scheduling before anything is tested or reset.",
    interrupts="new work on this node",
    confirm="no process holds the GPU",
)

BY_SEVERITY: dict[str, tuple[Remedy, ...]] = {
    MONITOR: (
        Remedy(
            Action.NONE,
            "DCGM holds that the GPU can go on working: watch whether it comes again.",
            ("dcgmi health -g 0 -c",),
            confirm="dcgmi health -g 0 -c says Healthy",
        ),
    ),
    CONFIG: (
        Remedy(
            Action.CHANGE_CONFIG,
            "DCGM holds that a setting is behind it: mend what the message names, and test again.",
            ("dcgmi diag -r 1",),
            confirm="dcgmi diag -r 1 passes",
        ),
    ),
    RESET: (
        _DRAIN,
        reset("GPU", "dcgmi health -g 0 -c says Healthy", why="GPU is its number or address.", then=True),
    ),
    TRIAGE: (_DRAIN, _MORE, _KEEP),
    ISOLATE: (_DRAIN, _MORE, _KEEP),
}
"""What to do, by severity; where DCGM tells none, as for triage."""
