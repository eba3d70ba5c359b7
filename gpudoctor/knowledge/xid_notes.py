"""What else NVIDIA's catalogue tells of an Xid, condensed from its trigger conditions and its sheet "Customer User Guide" (2026-07-14).

The last word of 154 is from gpu.c of NVIDIA/open-gpu-kernel-modules 595.45.04.
"""

_DEBUGGER = (
    "Where it is not clear which line of the program did it, CUDA_DEVICE_WAITS_ON_EXCEPTION=1 holds it there for cuda-gdb. In rare cases "
    "it is hardware or system software."
)
_CONFIDENTIAL = "Only in confidential-computing mode."

NOTES: dict[int, str] = {
    13: f"The line names GPC, TPC and SM, which tell whether it is always the same place of the GPU. {_DEBUGGER}",
    31: _DEBUGGER,
    43: "Mostly the application's mistake and no sign of a driver bug.",
    45: 'A Ctrl-C, a kill or a reset of the GPU end in it. Since R575 the line may end in "caused by previous Xid N": follow that one.',
    48: "The string in the line tells the unit. DRAM (FB): follow Xid 63 or 64; anything else is SRAM: look at the SRAM threshold flag.",
    63: "It takes effect at the next reset of the GPU: plan one.",
    64: "Where the remapping failure is still told after the reset, the board is due to be exchanged.",
    74: "Where a GPU fails, those that NVLink joins to it log this, too: look for the one that has more to say.",
    79: "System event logs and the kernel's PCIe messages may tell why the link went down; failing hardware or the driver can do it, too.",
    93: "Mostly on purpose: nvflash --elsessionstart sets the limit, nvflash --elsessionclear takes it away.",
    94: "Others go on. Reset the GPU when convenient; until then applications can be run. Xid 45 comes with it.",
    95: "The GPU must be reset before applications start again. Xid 45 comes with it.",
    110: "Undo recent changes of the hardware and start the machine cold; if that does not help, ask the vendor.",
    119: "If a reset does not help, a power cycle may.",
    120: "If a reset does not help, a power cycle may.",
    121: "A reset in a service window lets the link train anew. VBIOS 97.00.90.00.00 may log fewer of them.",
    137: _DEBUGGER,
    140: "If it comes again after a reset, ask the vendor.",
    145: "Packets lost anywhere may show as RLW_SRC_TRACK with error status 4 or 8.",
    149: "A fatal link puts the GPU into drain-and-reset until its jobs have ended, then into reset-required.",
    154: "It says one of: None, Drain P2P, Drain and Reset, GPU Reset Required, Node Reboot Required, and since R595 Recover IMEX Domain.",
    155: "Links that are taken down on purpose, also for sleep, log it.",
    157: "Work can go on, and may meet the same Xid again.",
    159: "On GPUs that C2C joins to a CPU.",
    163: "No reset is needed. If power smoothing is wanted, cure the heat; after a timeout reload the driver or reset the GPU.",
    164: "Power smoothing will soon be disabled: see whether the power swings are acceptable without it.",
    165: "The driver disables power smoothing and power will swing: see whether the datacenter can take it.",
    166: _CONFIDENTIAL,
    168: "Only with ECC off: turn it on, or reboot.",
    170: _CONFIDENTIAL,
}
