"""Device programs of cgroups by bpf(2): looks them up and reads their instructions; loads, attaches and detaches nothing.

Layouts: union bpf_attr and struct bpf_prog_info of include/uapi/linux/bpf.h, as far as Linux 4.15 has them; later kernels take shorter
ones (bpf_check_uarg_tail_zero in kernel/bpf/syscall.c). The numbers of the system call: 321 in arch/x86/entry/syscalls/syscall_64.tbl,
280 in include/uapi/asm-generic/unistd.h, which arm64 uses, 361 in arch/powerpc/kernel/syscalls/syscall.tbl.
"""

import errno
import os
import platform
import struct
import time
from collections.abc import Iterable
from typing import Any

from gpudoctor.facts.device_programs import WITHHELD
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.probes.files import LiveFiles

SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361}

PROG_GET_FD_BY_ID = 13
OBJ_GET_INFO_BY_FD = 15
PROG_QUERY = 16
CGROUP_DEVICE = 6
"""The type of attachment."""
QUERY_EFFECTIVE = 1

QUERY = struct.Struct("<IIIIQII")
"""target_fd, attach_type, query_flags, attach_flags, prog_ids, prog_cnt, padding."""
PROGRAM_INFO = struct.Struct("<II8sIIQQQIIQ16s")
"""type, id, tag, jited_prog_len, xlated_prog_len, jited_prog_insns, xlated_prog_insns, load_time, created_by_uid, nr_map_ids, map_ids,
name."""
MOST_PROGRAMS = 64
"""BPF_CGROUP_MAX_PROGS, what can be attached to one cgroup; more may be effective, then the kernel says how many."""


class Bpf:
    """bpf(2) through the C library."""

    def __init__(self) -> None:
        """Raises OSError with ENOSYS on a machine whose number of the system call is not known."""
        import ctypes  # its import costs every run that does not ask

        if platform.machine() not in SYSCALL:
            raise OSError(errno.ENOSYS, "bpf(2) is not known for this machine")
        self._number = SYSCALL[platform.machine()]
        self._ctypes = ctypes
        self._library = ctypes.CDLL(None, use_errno=True)

    def call(self, command: int, attributes: Any) -> int:
        """One call with a buffer of attributes. Raises OSError."""
        ctypes = self._ctypes
        size = ctypes.c_uint(len(attributes))
        result = int(self._library.syscall(ctypes.c_long(self._number), ctypes.c_int(command), attributes, size))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def buffer(self, content: bytes) -> Any:
        """Memory that the kernel can write to."""
        return self._ctypes.create_string_buffer(content, len(content))

    def address(self, buffer: Any) -> int:
        """Where a buffer lies."""
        return int(self._ctypes.addressof(buffer))

    def attached(self, cgroup: int, flags: int) -> list[int]:
        """The ids of a cgroup's device programs, by a descriptor of its directory. Raises OSError."""
        room = MOST_PROGRAMS
        while True:
            ids = self.buffer(bytes(4 * room))
            query = self.buffer(QUERY.pack(cgroup, CGROUP_DEVICE, flags, 0, self.address(ids), room, 0))
            try:
                self.call(PROG_QUERY, query)
            except OSError as error:
                # The kernel has told how many there are.
                if error.errno != errno.ENOSPC or QUERY.unpack(query.raw)[5] <= room:
                    raise
                room = QUERY.unpack(query.raw)[5]
                continue
            return list(struct.unpack_from(f"<{QUERY.unpack(query.raw)[5]}I", ids.raw))

    def program(self, number: int) -> tuple[tuple[Any, ...], bytes]:
        """What the kernel tells of a program, and its translated instructions, none where it withholds them. Raises OSError."""
        descriptor = self.call(PROG_GET_FD_BY_ID, self.buffer(struct.pack("<III", number, 0, 0)))
        try:
            length = self._info(descriptor, None)[4]
            code = self.buffer(bytes(length)) if length else None
            info = self._info(descriptor, code)
        finally:
            os.close(descriptor)
        # Withheld, the length stays but the address comes back as nothing.
        return info, bytes(code.raw) if code is not None and info[6] else b""

    def _info(self, descriptor: int, code: Any | None) -> tuple[Any, ...]:
        length, place = (0, 0) if code is None else (len(code), self.address(code))
        asked = PROGRAM_INFO.pack(0, 0, b"", 0, length, 0, place, 0, 0, 0, 0, b"")
        info = self.buffer(asked)
        self.call(OBJ_GET_INFO_BY_FD, self.buffer(struct.pack("<IIQ", descriptor, len(asked), self.address(info))))
        return PROGRAM_INFO.unpack(info.raw)


def look_at_device_programs(question: Question, root: str = "/") -> Answer:
    """The programs that apply and those attached, of each cgroup named by its directory, and each program once."""
    try:
        bpf = Bpf()
    except OSError as error:
        return Answer(data={}, via="bpf(2)", error={"why": "unavailable", "detail": _name(error)})
    files = LiveFiles(root)
    cgroups = {path: _cgroup(bpf, files, path) for path in question.arguments["cgroups"]}
    numbers = dict.fromkeys(number for cgroup in cgroups.values() for number in cgroup["effective"])
    return Answer(data={"programs": _programs(bpf, numbers), "cgroups": cgroups}, via="bpf(2)")


def _cgroup(bpf: Bpf, files: LiveFiles, path: str) -> dict[str, Any]:
    try:
        descriptor = os.open(files.place(path, follow=True), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return {"effective": [], "attached": [], "error": _name(error)}
    try:
        effective = bpf.attached(descriptor, QUERY_EFFECTIVE)
        return {"effective": effective, "attached": bpf.attached(descriptor, 0), "error": None}
    except OSError as error:
        return {"effective": [], "attached": [], "error": _name(error)}
    finally:
        os.close(descriptor)


def _programs(bpf: Bpf, numbers: Iterable[int]) -> dict[str, dict[str, Any]]:
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return {str(number): _program(bpf, number, started) for number in numbers}


def _program(bpf: Bpf, number: int, started: float) -> dict[str, Any]:
    """One program; `started` is when the machine booted, as programs are dated from there."""
    try:
        info, code = bpf.program(number)
    except OSError as error:
        return {"error": _name(error)}
    return {
        "name": info[11].rstrip(b"\0").decode("ascii", "backslashreplace"),
        "tag": info[2].hex(),
        "insns": code.hex(),
        "uid": info[8],
        "loaded_at": round(started + info[7] / 1e9),
        "error": None if code else WITHHELD,
    }


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))
