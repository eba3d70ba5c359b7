# ruff: noqa: E501  # a row of the table is one line
"""NVIDIA's Xids by number. Written by tools/xid_tables.py; `make knowledge ARGS="--xids FILE"` renews it.

Numbers, names and bit patterns are NVIDIA's; meanings are in other words.
"""

AS_OF = "2026-07-14"
SOURCE = "NVIDIA's Xid catalogue as of 2026-07-14"

HEADERS = "nverror.h of NVIDIA/open-gpu-kernel-modules 515.43.04 to 595.45.04"
"""Where the first branch that names a code is from; the first of them means that one or an earlier one."""

XIDS = """
1|ROBUST_CHANNEL_FIFO_ERROR_FIFO_METHOD||CONTACT_SUPPORT|||||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted push buffer stream
2|ROBUST_CHANNEL_FIFO_ERROR_SW_METHOD||CONTACT_SUPPORT|||||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted push buffer stream
3|ROBUST_CHANNEL_FIFO_ERROR_UNK_METHOD||CONTACT_SUPPORT|||||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted push buffer stream
4|ROBUST_CHANNEL_FIFO_ERROR_CHANNEL_BUSY||CONTACT_SUPPORT|||||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted push buffer stream
5|ROBUST_CHANNEL_FIFO_ERROR_RUNOUT_OVERFLOW||CONTACT_SUPPORT|||||||Unused
6|ROBUST_CHANNEL_FIFO_ERROR_PARSE_ERR||CONTACT_SUPPORT|||||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted push buffer stream
7|ROBUST_CHANNEL_FIFO_ERROR_PTE_ERR||CONTACT_SUPPORT|||||driver bus framebuffer_corruption||Invalid or corrupted push buffer address
8|ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT|GPU stopped processing|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|||driver user_app bus thermal|||channel stopped making progress (idle timeout)
9|ROBUST_CHANNEL_GR_ERROR_INSTANCE||CONTACT_SUPPORT|||||driver||Driver error programming GPU
10|ROBUST_CHANNEL_GR_ERROR_SINGLE_STEP||CONTACT_SUPPORT|||||||Unused
11|ROBUST_CHANNEL_GR_ERROR_MISSING_HW|Invalid or corrupted push buffer stream|RESTART_APP|CHECK_APP/CUDA|A100 H100 B100 GB200|||driver system_memory_corruption bus framebuffer_corruption|||malformed push buffer sent to the GPU
12|ROBUST_CHANNEL_GR_ERROR_SW_METHOD||CONTACT_SUPPORT|||||driver||Driver error handling GPU exception
13|ROBUST_CHANNEL_GR_EXCEPTION, ROBUST_CHANNEL_GR_ERROR_SW_NOTIFY|Graphics Engine Exception|RESTART_APP|WORKFLOW_XID_13|A100 H100 B100 GB200|515||hardware driver user_app system_memory_corruption bus thermal framebuffer_corruption|||shader/compute engine exception: usually the kernel read or wrote out of bounds or executed an illegal instruction; ESR words and GPC/TPC/SM follow in the text
14|ROBUST_CHANNEL_FAKE_ERROR||IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|515||||Unused
15|ROBUST_CHANNEL_SCANLINE_TIMEOUT||CONTACT_SUPPORT|||||||Unused
16|ROBUST_CHANNEL_VBLANK_CALLBACK_TIMEOUT||CONTACT_SUPPORT|CONTACT_SUPPORT||525||driver||Display engine hung
17|ROBUST_CHANNEL_PARAMETER_ERROR||CONTACT_SUPPORT|||||||Unused
18|ROBUST_CHANNEL_BUS_MASTER_TIMEOUT_ERROR||CONTACT_SUPPORT|||||driver||Bus mastering disabled in PCI Config Space
19|ROBUST_CHANNEL_DISP_MISSED_NOTIFIER||CONTACT_SUPPORT|||515||driver||Display Engine error
20|ROBUST_CHANNEL_MPEG_ERROR_SW_METHOD||CONTACT_SUPPORT|||515||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted Mpeg push buffer
21|ROBUST_CHANNEL_ME_ERROR_SW_METHOD||CONTACT_SUPPORT|||515||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted Motion Estimation push buffer
22|ROBUST_CHANNEL_VP_ERROR_SW_METHOD||CONTACT_SUPPORT|||515||driver system_memory_corruption bus framebuffer_corruption||Invalid or corrupted Video Processor push buffer
23|ROBUST_CHANNEL_RC_LOGGING_ENABLED||CONTACT_SUPPORT|||515||||Unused
24|ROBUST_CHANNEL_GR_SEMAPHORE_TIMEOUT||CONTACT_SUPPORT|||||driver user_app system_memory_corruption bus thermal framebuffer_corruption||GPU semaphore timeout
25|ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY|Invalid or illegal push buffer stream|RESTART_APP|CHECK_APP/CUDA|A100 H100 B100 GB200|||driver user_app system_memory_corruption bus framebuffer_corruption|||illegal push buffer method
26|ROBUST_CHANNEL_FIFO_ERROR_FBISTATE_TIMEOUT||CONTACT_SUPPORT|||||driver||Framebuffer timeout
27|ROBUST_CHANNEL_VP_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
28|ROBUST_CHANNEL_VP2_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
29|ROBUST_CHANNEL_BSP_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
30|ROBUST_CHANNEL_BAD_ADDR_ACCESS||CONTACT_SUPPORT|||515|ROBUST_CHANNEL_UNUSED_ERROR_30|driver||GPU semaphore access error
31|ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT|GPU memory page fault|RESTART_APP|WORKFLOW_XID_31|A100 H100 B100 GB200|515||hardware driver user_app|||GPU MMU fault: a unit accessed an unmapped or forbidden address; text names engine, fault type and address
32|ROBUST_CHANNEL_PBDMA_ERROR|Invalid or corrupted push buffer stream|RESTART_APP|CHECK_APP/CUDA|A100 H100 B100 GB200|515||driver system_memory_corruption bus thermal framebuffer_corruption|||PBDMA error: the command stream arrived corrupted over PCIe; usually signal integrity rather than the application
33|ROBUST_CHANNEL_SEC_ERROR||CONTACT_SUPPORT|||515||driver||Internal micro-controller error
34|ROBUST_CHANNEL_MSVLD_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
35|ROBUST_CHANNEL_MSPDEC_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
36|ROBUST_CHANNEL_MSPPP_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
37|ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD|Driver firmware error|IGNORE|CHECK_APP/CUDA|A100 H100 B100 GB200|||driver system_memory_corruption bus|||firmware reported unimplemented method
38|ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT|Driver firmware error|IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|||driver|||FECS watchdog timeout in firmware
39|ROBUST_CHANNEL_CE0_ERROR|Copy Engine Exception|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515|||||copy engine 0 exception
40|ROBUST_CHANNEL_CE1_ERROR|Copy Engine Exception|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515|||||copy engine 1 exception
41|ROBUST_CHANNEL_CE2_ERROR|Copy Engine Exception|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515|||||copy engine 2 exception
42|ROBUST_CHANNEL_VIC_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
43|ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR|GPU stopped processing|IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|515||driver user_app|||channel reset because the application hit a software-induced fault; the GPU stays healthy
44|ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW|Graphics Engine fault during context switch|IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|515||driver|||fault while switching context
45|ROBUST_CHANNEL_PREEMPTIVE_REMOVAL|Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda applications and hitting a DBE|WORKFLOW_XID_45|Solo: RESTART_FM / Not Solo: IGNORE (follow other Xid)|A100 H100 B100 GB200|515||driver user_app|||channels torn down because the process died, was killed, or because of an earlier Xid; R575+ (and late R570) add "caused by previous Xid N"
46|ROBUST_CHANNEL_GPU_TIMEOUT_ERROR|GPU stopped processing|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|||driver|||GPU timeout, engine stopped
47|ROBUST_CHANNEL_NVENC0_ERROR||CONTACT_SUPPORT|||515||driver||Video processor exception
48|ROBUST_CHANNEL_GPU_ECC_DBE|Double Bit ECC Error|WORKFLOW_XID_48|WORKFLOW_XID_48|A100 H100 B100 GB200|515||hardware|565||uncorrectable (double-bit) ECC error
49|SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY||CONTACT_SUPPORT|||||||Unused
50|SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR||CONTACT_SUPPORT|||||||Unused
51|SILENT_RUNNING_STRESS_TEST_FAILURE||CONTACT_SUPPORT|||||||Unused
52|SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE||CONTACT_SUPPORT|||||||Unused
53|SILENT_RUNNING_TEMP_REDUCED_CLOCKING||CONTACT_SUPPORT|||||||Unused
54|SILENT_RUNNING_PWR_REDUCED_CLOCKING|Auxiliary power is not connected to the GPU board|CHECK_MECHANICALS|CONTACT_SUPPORT|A100 H100 B100||||||auxiliary power connector not attached
55|SILENT_RUNNING_TEMPERATURE_READ_ERROR||CONTACT_SUPPORT|||||||Unused
56|DISPLAY_CHANNEL_EXCEPTION||CONTACT_SUPPORT|||||hardware driver||Display Engine error
57|FB_LINK_TRAINING_FAILURE_ERROR||CONTACT_SUPPORT|||||hardware driver framebuffer_corruption||Error programming video memory interface
58|FB_MEMORY_ERROR||CONTACT_SUPPORT|||550||hardware driver||Unstable video memory interface detected
59|PMU_ERROR||CONTACT_SUPPORT|||515||driver||Internal micro-controller error (older drivers)
60|ROBUST_CHANNEL_SEC2_ERROR|Video processor exception|RESTART_APP|INVESTIGATE_SW|A100 H100 B100 GB200|515||driver|||SEC2/video processor exception
61|PMU_BREAKPOINT||CONTACT_SUPPORT|||515|||||PMU breakpoint (older drivers: internal micro-controller breakpoint/warning)
62|PMU_HALT_ERROR|Internal micro-controller halt (newer drivers)|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver thermal|565||PMU (internal micro-controller) halted
63|INFOROM_DRAM_RETIREMENT_EVENT|GPU memory remapping event|IGNORE|IGNORE|A100 H100 B100 GB200|515|INFOROM_PAGE_RETIREMENT_EVENT|hardware driver framebuffer_corruption|565||a row remap (Ampere+) or page retirement (older) was recorded; takes effect at next GPU reset
64|INFOROM_DRAM_RETIREMENT_FAILURE|GPU memory remapping failure|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|515|INFOROM_PAGE_RETIREMENT_FAILURE|hardware driver|565||row remap or page retirement could not be recorded
65|ROBUST_CHANNEL_NVENC1_ERROR||CONTACT_SUPPORT|||515||hardware driver||Video processor exception
66|ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION|Illegal access by driver|IGNORE|INVESTIGATE_SW|A100 H100 B100 GB200|||driver user_app|||illegal register access by driver/firmware
67|ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION|Illegal access by driver|IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|||driver user_app|||illegal access by driver
68|ROBUST_CHANNEL_NVDEC0_ERROR|NVDEC0 Exception|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver user_app|||NVDEC0 exception
69|ROBUST_CHANNEL_GR_CLASS_ERROR|Graphics Engine class error|RESTART_APP|CHECK_APP/CUDA|A100 H100 B100 GB200|515||hardware driver|||graphics/compute class error
70|ROBUST_CHANNEL_CE3_ERROR|CE3: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE3: Unknown Error
71|ROBUST_CHANNEL_CE4_ERROR|CE4: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE4: Unknown Error
72|ROBUST_CHANNEL_CE5_ERROR|CE5: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE5: Unknown Error
73|ROBUST_CHANNEL_NVENC2_ERROR||CONTACT_SUPPORT|||515||hardware driver||NVENC2 Error
74|NVLINK_ERROR|NVLINK Error|WORKFLOW_NVLINK_ERR|CONTACT_SUPPORT|A100 H100|515||hardware driver bus|565||NVLink error (NVLink 1-4, i.e. up to Hopper); text carries seven hex words
75|ROBUST_CHANNEL_CE6_ERROR|CE6: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE6: Unknown Error
76|ROBUST_CHANNEL_CE7_ERROR|CE7: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE7: Unknown Error
77|ROBUST_CHANNEL_CE8_ERROR|CE8: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE8: Unknown Error
78|VGPU_START_ERROR|vGPU Start Error|UPDATE_SWFW|UPDATE_SWFW|A100 H100 B100 GB200|515||driver|||vGPU could not start: guest driver incompatible with host driver, or vGPU type unsupported
79|ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS|GPU has fallen off the bus|RESTART_BM|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver system_memory_corruption bus thermal|565||the driver can no longer reach the GPU over PCIe
80|PBDMA_PUSHBUFFER_CRC_MISMATCH|Corrupted data sent to GPU|RESTART_APP|CHECK_APP/CUDA|A100 H100|515||hardware driver system_memory_corruption bus framebuffer_corruption|||push buffer CRC mismatch: data corrupted on its way to the GPU
81|ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR||CONTACT_SUPPORT|||515||hardware||VGA Subsystem Error
82|ROBUST_CHANNEL_NVJPG0_ERROR|NVJPG0 Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||NVJPG0 Error
83|ROBUST_CHANNEL_NVDEC1_ERROR|NVDEC1 Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||NVDEC1 Error
84|ROBUST_CHANNEL_NVDEC2_ERROR|NVDEC2 Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||NVDEC2 Error
85|ROBUST_CHANNEL_CE9_ERROR|CE9: Unknown Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||CE9: Unknown Error
86|ROBUST_CHANNEL_OFA0_ERROR|OFA Exception|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||OFA Exception
87|NVTELEMETRY_DRIVER_REPORT||CONTACT_SUPPORT|||515||||Reserved
88|ROBUST_CHANNEL_NVDEC3_ERROR|NVDEC3 Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||NVDEC3 Error
89|ROBUST_CHANNEL_NVDEC4_ERROR|NVDEC4 Error|RESTART_APP|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver||NVDEC4 Error
90|LTC_ERROR||CONTACT_SUPPORT|||515||||Reserved
91|RESERVED_XID||CONTACT_SUPPORT|||||||Reserved
92|EXCESSIVE_SBE_INTERRUPTS|High single-bit ECC error rate|IGNORE|CONTACT_SUPPORT|A100 H100 B100 GB200|515||hardware driver|||high rate of corrected single-bit ECC errors
93|INFOROM_ERASE_LIMIT_EXCEEDED|Non-fatal violation of provisioned InfoROM wear limit|IGNORE|CONTACT_SUPPORT|A100|515||driver user_app|||InfoROM write refused because a wear limit session is armed by nvflash
94|ROBUST_CHANNEL_CONTAINED_ERROR|Contained memory error|RESTART_APP|IGNORE (sympathetic)|A100 H100 B100 GB200|515||hardware driver framebuffer_corruption|565||contained uncorrectable memory error: only the application touching it dies
95|ROBUST_CHANNEL_UNCONTAINED_ERROR|Uncontained memory error|RESET_GPU|IGNORE (sympathetic)|A100 H100 B100 GB200|515||hardware driver framebuffer_corruption|565||uncontained uncorrectable memory error: several applications affected
96|ROBUST_CHANNEL_NVDEC5_ERROR|NVDEC5 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVDEC5 Error
97|ROBUST_CHANNEL_NVDEC6_ERROR|NVDEC6 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVDEC6 Error
98|ROBUST_CHANNEL_NVDEC7_ERROR|NVDEC7 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVDEC7 Error
99|ROBUST_CHANNEL_NVJPG1_ERROR|NVJPG1 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG1 Error
100|ROBUST_CHANNEL_NVJPG2_ERROR|NVJPG2 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG2 Error
101|ROBUST_CHANNEL_NVJPG3_ERROR|NVJPG3 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG3 Error
102|ROBUST_CHANNEL_NVJPG4_ERROR|NVJPG4 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG4 Error
103|ROBUST_CHANNEL_NVJPG5_ERROR|NVJPG5 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG5 Error
104|ROBUST_CHANNEL_NVJPG6_ERROR|NVJPG6 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG6 Error
105|ROBUST_CHANNEL_NVJPG7_ERROR|NVJPG7 Error|RESTART_APP|CONTACT_SUPPORT|H100 B100 GB200|525||hardware driver||NVJPG7 Error
106|SMBPBI_TEST_MESSAGE|SMBPBI Test Message|IGNORE|IGNORE|A100 H100 B100 GB200|||user_app|||SMBPBI (out-of-band) test message
107|SMBPBI_TEST_MESSAGE_SILENT|SMBPBI Test Message Silent|IGNORE|IGNORE|A100 H100 B100 GB200|||user_app|||SMBPBI test message, silent
108|NVLINK_REMOTE_TRANSLATION_ERROR||IGNORE|XID_137_FLOW|A100 H100 B100 GB200|550|DESTINATION_FLA_TRANSLATION_ERROR||||NVLink remote translation error
109|ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR|Context Switch Timeout Error|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|||hardware driver user_app system_memory_corruption bus thermal framebuffer_corruption|570||context switch timed out
110|SEC_FAULT_ERROR|Security Fault Error|RESET_GPU|INVESTIGATE_SW|H100 B100 GB200|520||hardware|565||security fault
111|BUNDLE_ERROR_EVENT||CONTACT_SUPPORT|||||hardware driver bus||Display Bundle Error Event
112|DISP_SUPERVISOR_ERROR||CONTACT_SUPPORT|||||hardware driver||Display Supervisor Error
113|DP_LT_FAILURE||CONTACT_SUPPORT|||||hardware driver||DP Link Training Erro
114|HEAD_RG_UNDERFLOW||CONTACT_SUPPORT|||||hardware driver framebuffer_corruption||Display Pipeline Underflow Error
115|CORE_CHANNEL_REGS||CONTACT_SUPPORT|||||hardware driver||Display Core Channel Error
116|WINDOW_CHANNEL_REGS||CONTACT_SUPPORT|||||hardware driver||Display Window Channel Error
117|CURSOR_CHANNEL_REGS||CONTACT_SUPPORT|||||hardware driver||Display Cursor Channel Error
118|HEAD_REGS||CONTACT_SUPPORT|||||hardware driver||Display Pixel Pipeline Error
119|GSP_RPC_TIMEOUT|GSP RPC Timeout|RESET_GPU|INVESTIGATE_SW|A100 H100 B100 GB200|515||hardware driver system_memory_corruption bus thermal framebuffer_corruption|||driver waited for an RPC answer from the GSP firmware and timed out
120|GSP_ERROR|GSP Error|RESET_GPU|INVESTIGATE_SW|A100 H100 B100 GB200|515||hardware driver system_memory_corruption bus thermal framebuffer_corruption|565||error inside GSP firmware
121|C2C_ERROR|C2C Error|IGNORE|CONTACT_SUPPORT|GB200|515||hardware bus|||corrected errors on the C2C link to a Grace CPU
122|SPI_PMU_RPC_READ_FAIL||CONTACT_SUPPORT|||520||hardware driver|||reading the SPI flash through the PMU failed
123|SPI_PMU_RPC_WRITE_FAIL||CONTACT_SUPPORT|||520||hardware driver|||writing the SPI flash through the PMU failed
124|SPI_PMU_RPC_ERASE_FAIL||CONTACT_SUPPORT|||520||hardware driver|||erasing SPI flash through the PMU failed
125|INFOROM_FS_ERROR||CONTACT_SUPPORT|||520||hardware driver|||InfoROM file system error
126|ROBUST_CHANNEL_CE10_ERROR|CE10: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
127|ROBUST_CHANNEL_CE11_ERROR|CE11: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
128|ROBUST_CHANNEL_CE12_ERROR|CE12: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
129|ROBUST_CHANNEL_CE13_ERROR|CE13: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
130|ROBUST_CHANNEL_CE14_ERROR|CE14: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
131|ROBUST_CHANNEL_CE15_ERROR|CE15: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
132|ROBUST_CHANNEL_CE16_ERROR|CE16: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
133|ROBUST_CHANNEL_CE17_ERROR|CE17: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560
134|ROBUST_CHANNEL_CE18_ERROR|CE18: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
135|ROBUST_CHANNEL_CE19_ERROR|CE19: Unknown Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
136|ALI_TRAINING_FAIL|Link Training Failed|RESET_GPU|INVESTIGATE_LINK_SI|H100|525|||565||NVLink training (ALI) failed
137|NVLINK_PRIV_ERR|NVLink Privilege Error|IGNORE|XID_137_FLOW|A100 H100 B100 GB200|530|NVLINK_FLA_PRIV_ERR|user_app|||remote MMU rejected an NVLink peer access (also FLA privilege)
138|ROBUST_CHANNEL_DLA_ERROR||CONTACT_SUPPORT|||535|||||DLA error (Tegra)
139|ROBUST_CHANNEL_OFA1_ERROR|OFA1 Error|RESTART_APP|CONTACT_SUPPORT|B100 GB200|560||||Reserved
140|UNRECOVERABLE_ECC_ERROR_ESCAPE|ECC Unrecovered Error|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|545||hardware driver framebuffer_corruption|||uncorrectable ECC error at a moment the driver could not mark the page/row
141|ROBUST_CHANNEL_FAST_PATH_ERROR|CUDA Fast Path Error|IGNORE|CONTACT_SUPPORT|H100 B100 GB200|550|||||CUDA fast path error
142|ROBUST_CHANNEL_NVENC3_ERROR|NVENC3 Error|CONTACT_SUPPORT||GB200|570||||Unrecovered ECC Error
143|GPU_INIT_ERROR|GPU Initialization Error|RESET_GPU|CONTACT_SUPPORT|H100 B100 GB200|550||hardware driver framebuffer_corruption|575||GPU initialization failed
144|NVLINK_SAW_ERROR|NVLINK: SAW Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: SAW unit
145|NVLINK_RLW_ERROR|NVLINK: RLW Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: RLW unit
146|NVLINK_TLW_ERROR|NVLINK: TLW Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: TLW unit
147|NVLINK_TREX_ERROR|NVLINK: TREX Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: TREX unit
148|NVLINK_NVLPW_CTRL_ERROR|NVLINK: NVLPW_CTRL Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: NVLPW_CTRL unit
149|NVLINK_NETIR_ERROR|NVLINK: NETIR Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: NETIR (link down, BER, firmware events)
150|NVLINK_MSE_ERROR|NVLINK: MSE Error|WORKFLOW_NVLINK5_ERR|WORKFLOW_NVLINK5_ERR|B100 GB200|560|||565||NVLink 5: MSE firmware watchdog
151|ROBUST_CHANNEL_KEY_ROTATION_ERROR|Key rotation Error|RESTART_VM|CONTACT_SUPPORT|H100 B100 GB200|555|||||confidential-computing key rotation error
152|ROBUST_CHANNEL_DLA_SMMU_ERROR|DLA SMMU Error|IGNORE|CONTACT_SUPPORT|||||||DLA SMMU error (Tegra)
153|ROBUST_CHANNEL_DLA_TIMEOUT|DLA timeout Error|IGNORE|CONTACT_SUPPORT|||||||DLA timeout (Tegra)
154|GPU_RECOVERY_ACTION_CHANGED|GPU Recovery Action Changed|XID_154|N/A Informational only regarding another Xid|A100 H100 B100 GB200|565|||||not a fault of its own: the driver announces that the recommended recovery action changed
155|NVLINK_SW_DEFINED_ERROR|NVLINK: SW Defined Error|RESET_GPU|INVESTIGATE_SW_USER|B100 GB200|570|||565||NVLink software-defined event, e.g. an intentional link down
156|RESOURCE_RETIREMENT_EVENT|Resource Retirement Event|RESET_GPU|IGNORE|H100 B100 GB200|575|||565||a resource (e.g. TPC/CE) was marked for retirement
157|RESOURCE_RETIREMENT_FAILURE|Resource Retirement Failure|IGNORE|CONTACT_SUPPORT|H100 B100 GB200|575|||||resource retirement impossible: no spare left
158|GPU_FATAL_TIMEOUT|GPU Fatal Timeout|RESET_GPU|CONTACT_SUPPORT|A100 H100 B100 GB200|575|||575||fatal GPU timeout
159|ROBUST_CHANNEL_CHI_NON_DATA_ERROR|CHI Non-Data Error|CHECK_UVM|SYMPATHETIC_REPORT_SOLO|B100 GB200|575|||575||CHI non-data error on a C2C-attached GPU
160|CHANNEL_RETIREMENT_EVENT|Channel Retirement Event|IGNORE|INVESTIGATE_SW|B100 GB200|575|||575||memory channel retired
161|CHANNEL_RETIREMENT_FAILURE|Channel Retirement Failure|IGNORE|INVESTIGATE_SW|B100 GB200|575|||575||memory channel retirement failed
162|PSHC_REENGAGED|Power Smoothing HW Circuitry capability reengaged|||B100 GB200|580|ISINK_REENGAGED||||power-smoothing hardware re-engaged
163|PSHC_DISENGAGED|Power Smoothing HW Circuitry capability disengaged|||B100 GB200|580|ISINK_DISENGAGED||||power-smoothing hardware disengaged (thermal or timeout)
164|PSHC_LOW_LIFETIME|Power Smoothing HW Circuitry low lifetime reached|||B100 GB200|580|ISINK_LOW_LIFETIME||||power-smoothing hardware near end of life
165|PSHC_ZERO_LIFETIME|Power Smoothing HW Circuitry lifetime exhausted|||B100 GB200|580|ISINK_ZERO_LIFETIME||||power-smoothing hardware worn out
166|NVLINK_SECURE_CRYPTO_ERR|CC traffic seen prior to link properly being configured for encrypted traffic|||B100 GB200|580|NVLINK_SECURE_INTERRUPT_ERROR NVLINK_SECURE_NVLE_ERROR||||NVLink traffic seen before encryption was set up (confidential computing)
167|PCIE_FATAL_TIMEOUT|PCIE_FATAL_TIMEOUT|||H100 B100 GB200|580|||||fatal PCIe timeout
168|REDUCED_GPU_MEMORY_CAPACITY|Errors found in WPR (write protected region)|||A100 H100 B100 GB200|580|||||errors in the write-protected region reduced usable memory; seen with ECC off
169|SEC2_HALT_ERROR|Internal micro-controller halt|||H100 B100 GB200|580|||||SEC2 micro-controller halted
170|NVLINK_SECURE_OTHER|Interrupt seen in CC mode|||B100 GB200|580|NVLINK_SECURE_ERROR ROBUST_CHANNEL_UNUSED_ERROR_170||||interrupt seen in confidential-computing NVLink mode
171|UNCORRECTABLE_DRAM_ERROR|Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM|||A100 H100 B100 GB200|580|||||companion of 48: the uncorrectable error was in DRAM
172|UNCORRECTABLE_SRAM_ERROR|Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM|||A100 H100 B100 GB200|580|||||companion of 48: the uncorrectable error was in SRAM
173|C2C_FATAL_LINK_FAILURE|||||590|||||fatal C2C link failure
174|ROBUST_CHANNEL_RESETCHANNEL_KILL_PROCESS_SILENT|||||590|||||silent process kill on channel reset
175|MEMORY_SUBSYSTEM_ERROR|||||595|||||memory subsystem error
176|PCIE_CORRECTABLE_ERROR_FAULT|||||595|||||correctable PCIe error fault
"""
"""A line each: number, mnemonic, title, immediate and investigatory action, GPUs it applies to, first branch, other names in the headers, possible causes, first branch that announces it by Xid 154, title of the older listing, condensed meaning."""
