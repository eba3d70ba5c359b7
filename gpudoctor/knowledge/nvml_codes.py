"""NVML's return codes in words, for `gpudoctor explain`: what a person should know of each, and which checks look for its cause."""

WORDS: dict[int, str] = {
    0: "The call did what it was asked.",
    1: "NVML was not initialised, or was shut down before the call: a mistake of the program that asks.",
    2: "An argument is wrong, for example the index of a GPU that is not there: the program's mistake, or the GPU cannot be seen.",
    3: "This GPU, driver or view of it has no such value. That is no fault: nvidia-smi prints N/A.",
    4: "The device nodes may not be opened by this user, or the question is for root only. Root is refused by a container's device "
    "rules or by a security module.",
    5: "NVML was initialised already; of old releases only.",
    6: "There is no such object, for example no GPU with this UUID or address: it is gone, or belongs to another driver.",
    7: "The buffer is too small: the program's mistake.",
    8: "The board's external power is not connected, or gives too little.",
    9: "The kernel module is not loaded, or /dev/nvidiactl cannot be opened. With the module loaded, in a container, mostly its device "
    "rules; CUDA's stub of the library says it as well.",
    10: "The GPU or its firmware (GSP) did not answer in time.",
    11: "The kernel sees no interrupts of this GPU: firmware settings, passthrough, or the slot.",
    12: "libnvidia-ml.so.1 was not found: the driver's user space is not installed, or was not put into the container (the capability "
    "`utility`).",
    13: "The library is older than the call. That is no fault.",
    14: "The InfoROM, which holds the board's identity and error history, is corrupted.",
    15: "The GPU has fallen off the bus or is otherwise not accessible; the kernel log has Xid 79.",
    16: "The driver wants this GPU reset before it works again; the kernel log says which recovery (Xid 154) and after which Xid.",
    17: "The operating system refused: mostly an EPERM or EIO from a device node.",
    18: "The library and the loaded kernel module are of different versions: after an upgrade without reload or reboot, or a container "
    "with libraries from before.",
    19: "The GPU is in use: stop its users first.",
    20: "There is not enough memory.",
    21: "There is no data yet.",
    22: "A vGPU type forbids the ECC mode that is set.",
    23: "No resources are left, for example no free slices for another MIG instance.",
    24: "The GPU does not know this frequency.",
    25: "The structure is of a version that this library does not know. That is no fault.",
    26: "The call is no longer supported. That is no fault: nvidia-smi prints that the functionality has been deprecated.",
    27: "Not ready: the driver or the fabric still initialises.",
    28: "No GPU was found, though the driver answers.",
    29: "The GPU is in another state than the call needs, for example without MIG mode.",
    30: "The GPU does not know this kind of reset.",
    999: "An internal error of the driver. On the host read the kernel log; in a container that worked before, mostly its device rules "
    "were rewritten by systemd (daemon-reload).",
}
"""nvml.h's comments, and NVIDIA Container Toolkit's "Troubleshooting" for 999."""

_ANSWERS = ("driver-cuda.nvml-answers",)
LOOKED_INTO_BY: dict[int, tuple[str, ...]] = {
    4: (*_ANSWERS, "device-nodes.modes"),
    8: _ANSWERS,
    9: ("kernel-module.gpu-bound", "device-nodes.control-node", "driver-cuda.nvml-library"),
    10: (*_ANSWERS, "driver-cuda.no-stuck-task"),
    11: _ANSWERS,
    12: ("driver-cuda.nvml-library",),
    14: ("health.inforom", *_ANSWERS),
    15: ("pcie.gpu-responds", *_ANSWERS),
    16: (*_ANSWERS, "driver-cuda.queries-answered"),
    17: _ANSWERS,
    18: (*_ANSWERS, "driver-cuda.module-on-disk", "driver-cuda.nvml-library"),
    28: ("pcie.gpus-present", "kernel-module.gpu-bound"),
    999: (*_ANSWERS, "driver-cuda.queries-answered", "device-nodes.char-links"),
}
"""The checks that look for the cause of a code."""
