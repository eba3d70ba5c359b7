"""Runs a program under the restrictions of a systemd unit, as far as they can be made without systemd: `UNIT PROGRAM [WORD…]`.

Made by the system calls that systemd makes for them (systemd.exec(5), seccomp(2), prctl(2)): CapabilityBoundingSet=, NoNewPrivileges=,
SystemCallFilter= (its groups are told by `systemd-analyze syscall-filter`), RestrictAddressFamilies=, MemoryDenyWriteExecute= and
ProtectSystem=strict with ProtectKernelTunables=. Not made: the device policy, and what only concerns realtime, namespaces and keyrings.
"""

import ctypes
import errno
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
CAPABILITIES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN
    NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
    SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
    PERFMON BPF CHECKPOINT_RESTORE
""".split()
"""In the order of include/uapi/linux/capability.h."""

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_MDWE = 24, 38, 22, 65
SECCOMP_MODE_FILTER, ALLOW, FAIL = 2, 0x7FFF0000, 0x00050000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18
SOCKET = 41

libc = ctypes.CDLL(None, use_errno=True)


def settings(unit: str) -> dict[str, list[str]]:
    """The words of each setting."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"(?m)^(\w+)=(.*)$", unit):
        found.setdefault(name, []).extend(value.split())
    return found


def allowed_calls(words: list[str]) -> set[str]:
    """The system calls of a filter; what it allows without being named is in @default."""
    calls: set[str] = set()
    waiting = ["@default", *words]
    while waiting:
        word = waiting.pop()
        if not word.startswith("@"):
            calls.add(word)
            continue
        listed = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True)
        waiting += [line.strip() for line in listed.stdout.splitlines()[1:] if line.strip()[:1] not in ("", "#")]
    return calls


def call_numbers() -> dict[str, int]:
    """The numbers of all system calls of this machine."""
    header = next(path for path in HEADERS if path.is_file())
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def restrict_calls(calls: set[str], families: list[str]) -> None:
    """A filter of seccomp: all but these calls fail with EPERM, sockets of other families with EAFNOSUPPORT."""
    numbers = call_numbers()
    allowed = sorted({numbers[name] for name in calls if name in numbers} - {SOCKET})
    program = [(LOAD, 0, 0, 0), (EQUAL, 0, len(families) + 2, SOCKET), (LOAD, 0, 0, 16)]
    program += [(EQUAL, len(families) - at, 0, FAMILIES[name]) for at, name in enumerate(families)]
    program += [(RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    program[1] = (EQUAL, 0, len(program) - 2, SOCKET)
    for number in allowed:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, FAIL | errno.EPERM))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in program))
    filters = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code)))
    _check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(filters)), 0, 0), "seccomp")


def make_read_only(writable: list[str]) -> None:
    """Every mount but /dev, /proc and those below them; of /proc only /proc/sys."""
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private")
    for place in writable:
        _check(libc.mount(place.encode(), place.encode(), None, MS_BIND, None), place)
    _check(libc.mount(b"/proc/sys", b"/proc/sys", None, MS_BIND, None), "/proc/sys")
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in points:
        if point not in writable and (point == "/proc/sys" or not point.startswith(("/proc", "/dev"))):
            libc.mount(None, point.encode(), None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)


def main() -> None:
    """Restrict, then become the program."""
    unit = settings(Path(sys.argv[1]).read_text())
    calls = allowed_calls(unit["SystemCallFilter"])
    if unit["ProtectSystem"] == ["strict"]:
        make_read_only([os.environ["TMPDIR"]])
    kept = {word.removeprefix("CAP_") for word in unit["CapabilityBoundingSet"]}
    for number, name in enumerate(CAPABILITIES):
        if name not in kept:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if unit["MemoryDenyWriteExecute"] == ["yes"]:
        _check(libc.prctl(PR_SET_MDWE, 1, 0, 0, 0), "memory that is written and executed")
    restrict_calls(calls, unit["RestrictAddressFamilies"])
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - a shell would have to be let in


if __name__ == "__main__":
    main()
