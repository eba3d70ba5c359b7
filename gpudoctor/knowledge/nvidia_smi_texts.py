"""What nvidia-smi prints where it has no value, instead of a report, and as its exit status.

Texts of errors are nvmlErrorString's, seen in captures of drivers 352 to 610 (issue threads and bug reports, read 2026-11-29) and
listed in NVMLError of nvidia-ml-py 13.615.71. Exit statuses: nvidia-smi(1), RETURN VALUE, of driver 610, equal since 340.
"""

from gpudoctor.knowledge import nvml_errors

NOT_SUPPORTED = 3
DEPRECATED = 26

ERROR_TEXTS: dict[str, int] = {
    "n/a": NOT_SUPPORTED,
    "not supported": NOT_SUPPORTED,
    "uninitialized": 1,
    "invalid argument": 2,
    "insufficient permissions": nvml_errors.NO_PERMISSION,
    "already initialized": 5,
    "not found": nvml_errors.NOT_FOUND,
    "insufficient size": 7,
    "insufficient external power": 8,
    "driver not loaded": nvml_errors.DRIVER_NOT_LOADED,
    "timeout": 10,
    "interrupt request issue": 11,
    "nvml shared library not found": nvml_errors.LIBRARY_NOT_FOUND,
    "function not found": 13,
    "corrupted inforom": 14,
    "gpu is lost": nvml_errors.GPU_IS_LOST,
    "gpu requires reset": nvml_errors.RESET_REQUIRED,
    "gpu requires restart": nvml_errors.RESET_REQUIRED,
    "gpu access blocked by the operating system": 17,
    "driver/library version mismatch": nvml_errors.LIB_RM_VERSION_MISMATCH,
    "in use by another client": 19,
    "insufficient memory": 20,
    "no data": 21,
    "insufficient resources": 23,
    "requested functionality has been deprecated": DEPRECATED,
    "unknown error": nvml_errors.UNKNOWN,
    "err!": nvml_errors.UNKNOWN,
}
"""The `nvmlReturn_t` behind a text, which stands in small letters here; in csv it stands in brackets."""

INIT_FAILED: tuple[tuple[str, int], ...] = (
    ("couldn't communicate with the NVIDIA driver", nvml_errors.DRIVER_NOT_LOADED),
    ("couldn't communicate with NVIDIA driver", nvml_errors.DRIVER_NOT_LOADED),
    ("couldn't find libnvidia-ml.so", nvml_errors.LIBRARY_NOT_FOUND),
)
"""What it prints in place of a report, and the `nvmlReturn_t` of nvmlInit behind it."""

INIT_REFUSED = "Failed to initialize NVML: "
"""Before the text of the error that nvmlInit gave."""

NO_DEVICES = "No devices were found"
NO_HANDLE = "Unable to determine the device handle for "
"""Before `GPU0000:0F:00.0: Unknown Error`, `gpu 0000:02:00.0: GPU is lost. …`, `GPU0: 0000:01:00.0: Unknown Error`."""
INFOROM_CORRUPTED = "WARNING: infoROM is corrupted at gpu "

EXITS: dict[int, str] = {
    0: "success",
    2: "a supplied argument or flag is invalid",
    3: "the requested operation is not available on the target device",
    4: "the current user has no permission to access this device or perform this operation",
    6: "a query to find an object was unsuccessful",
    8: "a device's external power cables are not properly attached",
    9: "the NVIDIA driver is not loaded",
    10: "the kernel detected an interrupt issue with a GPU",
    12: "the NVML shared library could not be found or loaded",
    13: "the local version of NVML does not implement this function",
    14: "an infoROM is corrupted",
    15: "a GPU has fallen off the bus or has otherwise become inaccessible",
    255: "another error or an internal driver error occurred",
}
"""What an exit status says."""

INIT_EXITS: dict[int, int] = {
    4: nvml_errors.NO_PERMISSION,
    9: nvml_errors.DRIVER_NOT_LOADED,
    12: nvml_errors.LIBRARY_NOT_FOUND,
    18: nvml_errors.LIB_RM_VERSION_MISMATCH,
}
"""Exit statuses that say what nvmlInit gave; 18 is not in the manual, but is what a version mismatch ends with (NVML's own number)."""

DEVICE_EXITS: dict[int, int] = {8: 8, 10: 11, 15: nvml_errors.GPU_IS_LOST}
"""Exit statuses that say that one GPU failed, not which one. 10 is the interrupt issue here, which NVML numbers 11."""

NOTHING_FOUND = 6
CORRUPTED_INFOROM = 14

YES = frozenset(("yes", "enabled", "on", "active", "true", "valid", "licensed", "ready"))
NO = frozenset(("no", "disabled", "off", "not active", "false", "invalid", "unlicensed", "not ready"))

WORDS: dict[str, dict[str, str]] = {
    "architecture": {"ada lovelace": "ada"},
    "compute_mode": {"e. process": "exclusive_process", "e. thread": "exclusive_thread"},
    "virtualization.mode": {"pass-through": "passthrough"},
    "virtualization.host_vgpu_mode": {"non sr-iov": "non_sriov", "sr-iov": "sriov"},
    "recovery_action": {"reset": "gpu_reset", "reboot": "node_reboot"},
    "fabric.state": {"not supported": "not_supported"},
    "fabric.incorrect_configuration": {
        "incorrect systemguid": "incorrect_sysguid",
        "incorrect chassis serial number": "incorrect_chassis_sn",
        "insufficient nvlink resources": "insufficient_nvlinks",
        "incompatible gpu firmware": "incompatible_gpu_fw",
    },
}
"""Words that nvidia-smi spells otherwise than nvml.h names them: by field, text in small letters -> the enumerator's own part."""

REASONS: dict[str, int] = {
    "idle": 0x1,
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "display_clocks_setting": 0x100,
    "unknown": 1 << 63,
}
"""The bit of `clocks_event.active` for each reason that is printed on its own line (nvml.h, nvmlClocksEventReasons)."""

NEEDED_REASONS = frozenset(
    ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
)
"""Without one of these the mask of active reasons would say of something that it is not active that nobody asked about."""
