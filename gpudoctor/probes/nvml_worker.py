"""The NVML worker: a program of its own that asks NVML and prints one JSON object a line.

Started by file path in an isolated interpreter. Before each call that may block it prints which one, so that whoever reads knows
where it stopped. Devices are asked for by PCI address, which tells beyond doubt which one an unanswered call was about. First all
are asked who they are, then each of them everything else, so that one that hangs in a detail never hides the others.
Arguments: a JSON object with `package_path` (where gpudoctor lies), `import_paths`, `seconds`, `addresses`, `attach`, `libraries` and
`root`.
"""

import ctypes
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.probes.nvml_session import Session

NAME = b"gpudoctor-nvml"
CONTROL = "/dev/nvidiactl"

PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAP_SYS_MODULE = 16
CAP_MKNOD = 27
CAPABILITY_VERSION_3 = 0x20080522
EPERM = 1
NVML_ERROR_LIBRARY_NOT_FOUND = 12


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


def load_library(pynvml: Any, path: str) -> str | None:
    """Load the library for pynvml, which hides the loader's reason behind one error. Returns that reason, or None."""
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        return str(error).encode("utf-8", "backslashreplace").decode()
    return None


def load_first(session: "Session", libraries: list[str]) -> bool:
    """Load the first of the libraries that can be; what the loader said of the last one is the answer when none can."""
    refused: str | None = "no library was named"
    for library in libraries:
        session.announce(f"dlopen({library.encode('utf-8', 'backslashreplace').decode()})")
        refused = load_library(session.pynvml, library)
        if refused is None:
            return True
    session.say(set={"init": NVML_ERROR_LIBRARY_NOT_FOUND, "said": refused})
    return False


def enter(root: str) -> str | None:
    """Make `root` the place where NVML finds /dev and /proc, which it opens by absolute paths. Returns what hinders, or None.

    The library is loaded before: what it depends on must be of this Python's C library, not of the root's. A container's device cgroup
    lets it open only what it was given, and NVML reports the refusal as a fault of the driver (UNKNOWN, 999). access(2) consults the
    cgroup as open(2) does (inode_permission in fs/namei.c of Linux) and opens nothing.
    """
    try:
        os.chroot(root)
        os.chdir("/")
    except OSError as error:
        return f"NVML has to be asked within {root}, by chroot: {str(error.strerror).lower()}"
    if os.path.lexists(CONTROL) and not os.access(CONTROL, os.R_OK | os.W_OK):
        return f"{CONTROL} of {root} may not be opened from here: not by this user, or not by this container's device cgroup"
    return None


def ask(session: "Session", arguments: dict[str, Any]) -> None:
    """Load the library, enter the root that NVML is asked about, and ask."""
    # Nothing can be imported any more once the root is another.
    from gpudoctor.probes.nvml_asking import ask_the_rest, ask_who

    if not load_first(session, arguments["libraries"]):
        return
    hindered = enter(arguments["root"]) if arguments["root"] != "/" else None
    if hindered is not None:
        session.say(error={"why": "no-permission", "detail": hindered})
        return
    ask_the_rest(session, ask_who(session, arguments["addresses"], arguments["attach"]))


def main() -> None:
    """Ask everything, then say `done`."""
    arguments = json.loads(sys.argv[1])
    until = time.monotonic() + arguments["seconds"]
    signal.alarm(int(arguments["seconds"]) + 2)
    trouble = give_up_privileges()
    if trouble is not None:
        say(error={"why": "withheld", "detail": f"the worker could not give up its privileges: {trouble}"})
        return
    if older := older_worker():
        say(busy=older)
        return
    sys.path[:0] = arguments["import_paths"]
    sys.path.append(arguments["package_path"])
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
    from gpudoctor.probes.nvml_session import Session

    session = Session(pynvml, lambda lines: os.write(1, lines), until)
    try:
        ask(session, arguments)
        session.say(done=True)
    finally:
        session.flush()
    # Shutting down could hang as well, and the process ends anyway.
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    # The worker's own bug must not look like the library's crash.
    except Exception as error:
        detail = f"the worker failed: {type(error).__name__}: {error}"
        say(error={"why": "unavailable", "detail": detail.encode("utf-8", "backslashreplace").decode()})
