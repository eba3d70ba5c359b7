"""Xids and NVIDIA's actions in words a person on call can use.

Meanings are condensed from the trigger conditions of NVIDIA's Xid catalogue and from the GPU Debug Guidelines; actions from its sheet
"Resolution Buckets". A code without a meaning here has the one of its engine (`family`) or that of the generated table.
"""

from gpudoctor.patterns import pattern

BUCKETS: dict[str, str] = {
    "IGNORE": "nothing has to be done",
    "RESTART_APP": "restart the application; neither a reset nor a reboot is needed",
    "RESET_GPU": "reset the GPU; a reboot is not needed",
    "RESTART_BM": "reboot the machine",
    "RESTART_VM": "restart the virtual machine that has the GPU; neither a reset nor a reboot of the host is needed",
    "CONTACT_SUPPORT": "hand it to support",
    "CHECK_MECHANICALS": "see that the board and all its connections are seated well",
    "UPDATE_SWFW": "bring driver and firmware up to date; for virtual GPUs match the guest's driver to the host's",
    "WORKFLOW_XID_13": "look at the application; the same GPC and TPC again and again points at hardware: run diagnostics",
    "WORKFLOW_XID_31": "look at the application; the same GPU again and again with several programs points at hardware: run diagnostics",
    "WORKFLOW_XID_45": "follow the Xid it comes with; where it stands alone, restart the fabric manager",
    "WORKFLOW_XID_48": "reset the GPU, with Xid 63 or 64 drain it first; run field diagnostics where it stands alone or the SRAM "
    "threshold is exceeded",
    "WORKFLOW_NVLINK_ERR": "read the link's error registers in the line",
    "WORKFLOW_NVLINK5_ERR": "read intrInfo and errorStatus in the line: they decide",
    "WORKFLOW_XID_168": "turn ECC on, so that rows can be remapped, or reboot so that the protected region is laid elsewhere",
    "XID_154": "do what the line itself says",
    "XID_154_EVAL": "do what an Xid 154 beside it says; without one restart the application",
    "XID_137_FLOW": "look at the application: it reaches into a peer's memory where it must not",
    "CHECK_UVM": "reset the GPU where unified memory (nvidia-uvm) or virtual GPUs are in use, else nothing",
    "CHECK_APP/CUDA": "look at the application: it hands the GPU bad data or methods",
    "INVESTIGATE_SW": "look at the software, the user's or NVIDIA's",
    "INVESTIGATE_SW_USER": "find out which software or person did it, if it was not expected",
    "INVESTIGATE_LINK_SI": "investigate the link's signal quality",
    "INVESTIGATE_SW_USER_LINK_SI": "find out which software or person did it, if it was not expected, and the link's signal quality",
    "INVESTIGATE_LINK_SI_AND_CABLES": "investigate the link: cable, temperature, transceiver, seating",
    "INVESTIGATE_PEER_DEVICE": "look at the device at the other end of the link",
    "INVESTIGATE_HOST": "read the host's other logs: it is a sign of something else",
    "CHECK_NVLINK_FAILURE_FLOW": "ignore it where a link of the partition went down within the 30 seconds before, else report it",
    "SYMPATHETIC_REPORT_SOLO": "follow the errors it comes with; report it where it stands alone",
    "REPORT_ISSUE": "report it where it is seen more than once a day",
    "RECOVER_FEATURE_RESET_GPU": "cure the heat; after a timeout reload the driver or reset the GPU, if power smoothing is wanted",
    "PORT_RESET": "recover the link: stop the jobs that use it and reset the GPU at its end, or restart the virtual machine that has it",
    "RESET_FABRIC": "stop every job and reset all GPUs and NVSwitches together, or reboot the machine",
    "SWITCH_SUPPORT": "hand it to support, with the fabric manager's log",
}
"""NVIDIA's actions; the last four are named here, for power smoothing (Xid 163) and what the Fabric Manager User Guide says of SXids."""

MEANS: dict[int, str] = {
    8: "a channel of the GPU made no progress and was given up",
    11: "the stream of commands to the GPU was malformed",
    13: "an exception in the compute or graphics engine: mostly a kernel that read or wrote out of bounds or ran an illegal instruction",
    14: "an error that was injected from user space for a test",
    18: "PCI bus mastering was switched off, so the GPU could not reach memory",
    25: "an illegal method in the stream of commands to the GPU",
    31: "a page fault: a unit of the GPU reached for an address that is not mapped or not allowed, mostly the application's mistake",
    32: "the stream of commands was damaged on its way over PCIe; seldom the application's doing",
    37: "the GPU's firmware was asked for something it does not know",
    38: "a watchdog in the context-switching firmware ran out",
    43: "the driver stopped an application's channel after a fault of its own; the GPU stays healthy",
    44: "a fault while the GPU switched contexts",
    45: "channels were torn down because their process ended or was killed, or after an earlier error",
    46: "an engine of the GPU stopped and timed out",
    48: "an uncorrectable (double-bit) ECC error in the GPU's memory",
    54: "the board's auxiliary power connector is not attached",
    57: "the link to the video memory could not be trained",
    58: "an error of the video memory's interface",
    59: "an error of the internal micro-controller (older drivers)",
    60: "an exception in the security engine (SEC2)",
    61: "the power-management controller (PMU) stopped at a breakpoint",
    62: "the power-management controller (PMU) halted",
    63: "a faulty row of memory will be replaced (before Ampere: a page retired) at the next reset",
    64: "a faulty row of memory could not be replaced (before Ampere: a page not retired)",
    66: "the driver or firmware made an illegal register access",
    67: "the driver made an illegal access",
    69: "the application used a class of the engine wrongly",
    74: "an NVLink error (NVLink 1 to 4): the link itself, or the device at its other end",
    78: "a virtual GPU could not start: the guest's driver does not fit the host's, or its type is not supported",
    79: "the driver can no longer reach the GPU over PCIe: it fell off the bus",
    80: "commands were damaged on their way to the GPU: their checksum does not match",
    92: "a high rate of corrected single-bit ECC errors",
    93: "the InfoROM was not written because a wear limit is armed (nvflash)",
    94: "an uncorrectable memory error that was contained: only the application that touched it ends",
    95: "an uncorrectable memory error that was not contained: several applications are affected",
    106: "a test message of the out-of-band management (SMBPBI)",
    107: "a silent test message of the out-of-band management (SMBPBI)",
    108: "an address of a peer behind NVLink could not be translated",
    109: "a context switch timed out",
    110: "a security fault, uncommon without a hardware failure",
    113: "the link to a display (DisplayPort) could not be trained",
    119: "the GPU's system processor (GSP) did not answer the driver in time",
    120: "an error inside the firmware of the GPU's system processor (GSP)",
    121: "corrected errors on the C2C link to a Grace CPU, without effect on operation",
    122: "the flash memory (SPI) could not be read",
    123: "the flash memory (SPI) could not be written",
    124: "the flash memory (SPI) could not be erased",
    125: "an error of the InfoROM's file system",
    136: "an NVLink could not be trained",
    137: "a peer refused an access over NVLink, mostly an illegal peer-to-peer access of an application",
    140: "an uncorrectable ECC error that came when the driver could not mark the page or row",
    141: "an error on CUDA's fast path",
    143: "the GPU could not be initialised",
    144: "an NVLink 5 error in its unit SAW",
    145: "an NVLink 5 error in its unit RLW",
    146: "an NVLink 5 error in its unit TLW",
    147: "an NVLink 5 error in its unit TREX",
    148: "an NVLink 5 error in its control unit (NVLPW)",
    149: "an NVLink 5 event of the link itself: down, bit errors, or its firmware (NETIR)",
    150: "an NVLink 5 error in its firmware unit MSE",
    151: "keys of confidential computing could not be rotated",
    152: "a memory-translation error of the deep-learning accelerator (DLA)",
    153: "the deep-learning accelerator (DLA) timed out",
    154: "the driver now asks for another recovery action; the Xid before it is the cause",
    155: "an NVLink went down on purpose, or by software",
    156: "a unit of the GPU will be retired at the next reset",
    157: "a unit of the GPU cannot be retired: no spare is left",
    158: "a fatal timeout of the GPU",
    159: "a coherence error that carries no data on the C2C link",
    160: "a channel of the GPU's memory will be retired",
    161: "a channel of the GPU's memory could not be retired",
    162: "the power-smoothing hardware is engaged again",
    163: "the power-smoothing hardware was disengaged, by heat or a timeout",
    164: "the power-smoothing hardware nears the end of its life",
    165: "the power-smoothing hardware is worn out",
    166: "traffic over NVLink before its encryption was set up (confidential computing)",
    167: "a fatal PCIe timeout",
    168: "errors in the GPU's write-protected region reduced its memory; only seen with ECC off",
    169: "the security controller (SEC2) halted",
    170: "an interrupt of NVLink in confidential-computing mode",
    171: "an uncorrectable ECC error was in DRAM (it details Xid 48)",
    172: "an uncorrectable ECC error was in SRAM (it details Xid 48)",
    173: "the C2C link to the CPU failed for good",
    174: "a process was ended silently when its channel was reset",
    175: "an error of the memory subsystem",
    176: "a correctable PCIe error counted as a fault",
}

OURS: dict[int, tuple[str, str]] = {
    162: ("IGNORE", "the catalogue names no action; it tells that a function is back"),
    163: ("RECOVER_FEATURE_RESET_GPU", "from the catalogue's trigger conditions, which need no reset"),
    164: (
        "CONTACT_SUPPORT",
        "from the catalogue's trigger conditions: expect to replace the GPU if power smoothing is wanted",
    ),
    165: (
        "CONTACT_SUPPORT",
        "from the catalogue's trigger conditions: replace the GPU if power swings are not acceptable",
    ),
    166: ("CONTACT_SUPPORT", "the catalogue names no action"),
    167: ("RESTART_BM", "the catalogue names no action; as for Xid 79"),
    168: ("WORKFLOW_XID_168", "from the catalogue's trigger conditions"),
    169: ("RESET_GPU", "the catalogue names no action; as for Xid 62, the other controller's halt"),
    170: ("CONTACT_SUPPORT", "the catalogue names no action"),
    171: ("WORKFLOW_XID_48", "the catalogue names no action; it is a detail of Xid 48"),
    172: ("WORKFLOW_XID_48", "the catalogue names no action; it is a detail of Xid 48"),
    173: ("CONTACT_SUPPORT", "only its name is known, from the driver's headers"),
    174: ("IGNORE", "only its name is known, from the driver's headers: the aftermath of another fault"),
    175: ("CONTACT_SUPPORT", "only its name is known, from the driver's headers"),
    176: ("CONTACT_SUPPORT", "only its name is known, from the driver's headers"),
}
"""For codes whose row in the catalogue names no action: the one taken here, and why."""

_ENGINES = {
    "CE": "copy engine",
    "NVDEC": "video decoder",
    "NVENC": "video encoder",
    "NVJPG": "JPEG engine",
    "OFA": "optical-flow accelerator",
}
_ENGINE = pattern(rf"ROBUST_CHANNEL_({'|'.join(_ENGINES)})(\d+)_ERROR")
_UNUSED = "the catalogue, made for data-centre GPUs since A100, calls it unused"
_NO_TITLE = frozenset(("", "Unused", "Reserved"))


def family(mnemonic: str, title: str, *, unused: bool) -> str:
    """The meaning of a code by its engine, else by its title, which for one that the catalogue calls unused is the older listing's."""
    engine = _ENGINE.fullmatch(mnemonic)
    if engine is not None:
        return f"an exception in {_ENGINES[engine[1]]} {engine[2]}"
    if mnemonic.startswith("ROBUST_CHANNEL_DLA"):
        return "an error of the deep-learning accelerator (DLA)"
    if title in _NO_TITLE:
        return f"{mnemonic.lower().replace('_', ' ')} ({_UNUSED})"
    lower = f"{title[0].lower()}{title[1:]}" if title[1:2].islower() else title
    return f"{lower} ({_UNUSED})" if unused else lower
