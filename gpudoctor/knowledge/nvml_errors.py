"""nvmlReturn_t: what NVML's return codes are called and mean."""

SOURCE = "nvml.h of CUDA 13.5 (PyPI nvidia-nvml-dev 13.5.37), compared with nvidia-ml-py 13.615.71; read 2026-11-29"

SUCCESS = 0
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_POWER = 8
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
IRQ_ISSUE = 11
LIBRARY_NOT_FOUND = 12
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28
UNKNOWN = 999

NAMES: dict[int, str] = {
    0: "NVML_SUCCESS",
    1: "NVML_ERROR_UNINITIALIZED",
    2: "NVML_ERROR_INVALID_ARGUMENT",
    3: "NVML_ERROR_NOT_SUPPORTED",
    4: "NVML_ERROR_NO_PERMISSION",
    5: "NVML_ERROR_ALREADY_INITIALIZED",
    6: "NVML_ERROR_NOT_FOUND",
    7: "NVML_ERROR_INSUFFICIENT_SIZE",
    8: "NVML_ERROR_INSUFFICIENT_POWER",
    9: "NVML_ERROR_DRIVER_NOT_LOADED",
    10: "NVML_ERROR_TIMEOUT",
    11: "NVML_ERROR_IRQ_ISSUE",
    12: "NVML_ERROR_LIBRARY_NOT_FOUND",
    13: "NVML_ERROR_FUNCTION_NOT_FOUND",
    14: "NVML_ERROR_CORRUPTED_INFOROM",
    15: "NVML_ERROR_GPU_IS_LOST",
    16: "NVML_ERROR_RESET_REQUIRED",
    17: "NVML_ERROR_OPERATING_SYSTEM",
    18: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    19: "NVML_ERROR_IN_USE",
    20: "NVML_ERROR_MEMORY",
    21: "NVML_ERROR_NO_DATA",
    22: "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED",
    23: "NVML_ERROR_INSUFFICIENT_RESOURCES",
    24: "NVML_ERROR_FREQ_NOT_SUPPORTED",
    25: "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    26: "NVML_ERROR_DEPRECATED",
    27: "NVML_ERROR_NOT_READY",
    28: "NVML_ERROR_GPU_NOT_FOUND",
    29: "NVML_ERROR_INVALID_STATE",
    30: "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED",
    999: "NVML_ERROR_UNKNOWN",
}

MEANINGS: dict[int, str] = {
    4: "no permission to open the device nodes",
    8: "the board lacks external power",
    9: "the kernel driver is not loaded, or /dev/nvidiactl cannot be opened",
    10: "the GPU or its GSP did not answer in time",
    11: "the GPU's interrupts do not arrive",
    12: "libnvidia-ml.so.1 was not found",
    14: "the board's InfoROM is corrupted",
    15: "the GPU has fallen off the bus or is otherwise inaccessible",
    16: "the GPU needs a reset",
    17: "the operating system refused access to the device",
    18: "the user-space library and the loaded kernel module differ in version",
    28: "no GPU was found",
    999: "an internal driver error",
}


def describe(code: int) -> str:
    """`NVML_ERROR_GPU_IS_LOST (15): the GPU has fallen off …`, as much of it as is known."""
    name = NAMES.get(code, "NVML error")
    meaning = MEANINGS.get(code)
    return f"{name} ({code}): {meaning}" if meaning else f"{name} ({code})"


def meaning(code: int) -> str:
    """What a code means, its name where nothing more is known of it."""
    return MEANINGS.get(code) or NAMES.get(code, f"NVML error {code}")
