"""The NVML worker: a program of its own that asks NVML and prints one JSON object a line.

Started by file path in an isolated interpreter. Before each call that may block it prints which one, so that whoever reads knows
where it stopped. Devices are asked for by PCI address, which tells beyond doubt which one an unanswered call was about.
Arguments: a JSON object with `import_paths`, `seconds`, `addresses`, `attach` and `libraries`.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any

NAME = b"gpudoctor-nvml"

PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAP_SYS_MODULE = 16
CAP_MKNOD = 27
CAPABILITY_VERSION_3 = 0x20080522
EPERM = 1
NVML_INIT_FLAG_NO_ATTACH = 2
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13

SYMBOL_VERSIONS = {
    "nvmlInit": "_v2",
    "nvmlDeviceGetCount": "_v2",
    "nvmlDeviceGetHandleByPciBusId": "_v2",
}
DEVICE_FIELDS = {
    "index": "nvmlDeviceGetIndex",
    "uuid": "nvmlDeviceGetUUID",
    "name": "nvmlDeviceGetName",
    "minor": "nvmlDeviceGetMinorNumber",
    "serial": "nvmlDeviceGetSerial",
}
SYSTEM_FIELDS = {
    "driver_version": "nvmlSystemGetDriverVersion",
    "nvml_version": "nvmlSystemGetNVMLVersion",
    "cuda_driver_version": "nvmlSystemGetCudaDriverVersion",
}


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def say(**line: Any) -> None:
    """Print one line and let it out at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


def give_up_privileges() -> str | None:
    """Neither this process nor a program it starts may load a module or make a device node.

    Dropping the bounding set alone leaves the process itself able to; so the other sets go too. Without privilege the bounding
    set cannot be changed (EPERM); then no_new_privs is enough, because no program can gain any. Returns what went wrong, or None.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, NAME, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return f"no_new_privs: errno {ctypes.get_errno()}"
    for capability in (CAP_SYS_MODULE, CAP_MKNOD):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 and ctypes.get_errno() != EPERM:
            return f"bounding set: errno {ctypes.get_errno()}"
    header = _Header(CAPABILITY_VERSION_3, 0)
    data = (_Data * 2)()
    if libc.capget(ctypes.byref(header), data) != 0:
        return f"capget: errno {ctypes.get_errno()}"
    keep = ~(1 << CAP_SYS_MODULE | 1 << CAP_MKNOD) & 0xFFFFFFFF
    for field in ("effective", "permitted", "inheritable"):
        setattr(data[0], field, getattr(data[0], field) & keep)
    if libc.capset(ctypes.byref(header), data) != 0:
        return f"capset: errno {ctypes.get_errno()}"
    return None


def text(value: Any) -> Any:
    """pynvml gives bytes or str, depending on its age; undecodable bytes become escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def older_worker() -> int | None:
    """The PID of a live worker of this user or root that started before this one: two that ask at once are one too many."""
    own = start_of(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            other = start_of(int(name))
            if other is not None and own is not None and (other, int(name)) < (own, os.getpid()):
                return int(name)
    return None


def start_of(pid: int) -> int | None:
    """When a worker started, in ticks since boot; None for any other process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    is_worker = b"(" + NAME + b")" in stat and fields[0] not in (b"Z", b"X") and owner in (0, os.getuid())
    return int(fields[19]) if is_worker else None


class Asker:
    """Calls NVML by name, saying so first."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml

    def call(self, function: str, *arguments: Any, shown: str = "") -> Any:
        """The value, or the NVMLError it raised."""
        say(calling=f"{self.symbol(function)}({shown})")
        try:
            return getattr(self.pynvml, function)(*arguments)
        except self.pynvml.NVMLError as error:
            return error
        except AttributeError:
            # A binding older than the call is like a library older than the call.
            return self.pynvml.NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)

    def symbol(self, function: str) -> str:
        """The C name: the newest version of a call that pynvml asks for first."""
        return function + SYMBOL_VERSIONS.get(function, "")

    def is_error(self, value: Any) -> bool:
        """Whether a call failed."""
        return isinstance(value, self.pynvml.NVMLError)

    def ask_system(self, attach: bool) -> int | None:
        """Initialise and ask for versions and count. The count, or None when NVML does not start."""
        started = (
            self.call("nvmlInit")
            if attach
            else self.call("nvmlInitWithFlags", NVML_INIT_FLAG_NO_ATTACH, shown="NO_ATTACH")
        )
        if self.is_error(started):
            say(set={"init": started.value})
            return None
        say(set={"init": 0})
        for key, function in SYSTEM_FIELDS.items():
            value = self.call(function)
            if not self.is_error(value):
                say(set={key: text(value)})
        count = self.call("nvmlDeviceGetCount")
        if self.is_error(count):
            say(set={"count_error": self.error(count, "nvmlDeviceGetCount_v2()")})
            return None
        say(set={"count": count})
        return int(count)

    def ask_device(self, address: str) -> None:
        """Everything about the device at a PCI address, field by field; a field it does not have is left out."""
        say(device={"pci_bus_id": address})
        handle = self.call("nvmlDeviceGetHandleByPciBusId", address.encode(), shown=address)
        if self.is_error(handle):
            say(
                device={
                    "pci_bus_id": address,
                    "error": self.error(handle, f"nvmlDeviceGetHandleByPciBusId_v2({address})"),
                }
            )
            return
        for key, function in DEVICE_FIELDS.items():
            value = self.call(function, handle, shown=address)
            if not self.is_error(value):
                say(device={"pci_bus_id": address, key: text(value)})
            elif key == "uuid":
                say(device={"pci_bus_id": address, "error": self.error(value, f"{function}({address})")})

    def error(self, error: Any, call: str) -> dict[str, Any]:
        """An NVMLError as data."""
        return {"code": error.value, "call": call}


def load_library(pynvml: Any, path: str) -> str | None:
    """Load the library for pynvml, which hides the loader's reason behind one error. Returns that reason, or None."""
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        return str(text(str(error)))
    return None


def main() -> None:
    """Ask everything, then say `done`."""
    arguments = json.loads(sys.argv[1])
    signal.alarm(int(arguments["seconds"]) + 2)
    trouble = give_up_privileges()
    if trouble is not None:
        say(error={"why": "withheld", "detail": f"the worker could not give up its privileges: {trouble}"})
        return
    if older := older_worker():
        say(busy=older)
        return
    sys.path[:0] = arguments["import_paths"]
    try:
        import pynvml
    except ImportError as error:
        say(
            error={
                "why": "unavailable",
                "detail": f"the Python module pynvml of nvidia-ml-py cannot be imported: {error}",
            }
        )
        return
    asker = Asker(pynvml)
    refused: str | None = "no library was named"
    for library in arguments["libraries"]:
        say(calling=f"dlopen({text(library)})")
        refused = load_library(pynvml, library)
        if refused is None:
            break
    if refused is not None:
        say(set={"init": NVML_ERROR_LIBRARY_NOT_FOUND, "said": refused})
        say(done=True)
        return
    if asker.ask_system(arguments["attach"]) is not None:
        for address in arguments["addresses"]:
            asker.ask_device(address)
    say(done=True)
    # Shutting down could hang as well, and the process ends anyway.
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    # The worker's own bug must not look like the library's crash.
    except Exception as error:
        say(error={"why": "unavailable", "detail": text(f"the worker failed: {type(error).__name__}: {error}")})
