"""The eBPF programs that guard devices on cgroup v2, and what each of them answers.

The kernel hands such a program the access, the kind and the numbers of the device (struct bpf_cgroup_dev_ctx in include/uapi/linux/bpf.h)
and allows what it returns 1 for; the verifier refuses programs that return anything but 0 and 1. Of the programs that apply to a cgroup,
its own and those of the cgroups above it, all must allow (__cgroup_bpf_check_dev_permission and bpf_prog_run_array_cg in
kernel/bpf/cgroup.c, since Linux 4.15); where none applies, all is allowed.
"""

import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.facts.device_access import DeviceAccess, Permission
from gpudoctor.verdicts import Unread, Why

if TYPE_CHECKING:
    from gpudoctor.facts.bpf_instructions import Instruction

CONTEXT = struct.Struct("<III")
"""access_type, which holds the access above the kind in 16 bits each, major and minor."""

WITHHELD = "withheld"
"""The kernel told of the program but not its instructions: it does so where it has hardened a program (bpf_jit_harden) and hides its
addresses (kptr_restrict); see bpf_prog_get_info_by_fd in kernel/bpf/syscall.c."""


class DeviceProgram(Struct, frozen=True):
    """One program as the kernel described it; `insns` are its translated instructions in hexadecimal, "" where `error` says why not.

    systemd calls its own `sd_devices` (src/core/bpf-devices.c), runc and crun give theirs no name. `loaded_at` is in epoch seconds.
    """

    id: int = 0
    name: str = ""
    tag: str = ""
    insns: str = ""
    uid: int | None = None
    loaded_at: int | None = None
    error: str | None = None

    @property
    def words(self) -> str:
        """How a citation calls it."""
        return f"program {self.name} #{self.id}" if self.name else f"program #{self.id}"


def allows(program: DeviceProgram, access: DeviceAccess) -> Permission:
    """What the program answers, by running it; `Unread` where it holds what the machine does not understand."""
    return DevicePrograms({program.id: program}).allows(program.id, access)


class DevicePrograms:
    """The programs of a node by id. The same instructions are decoded once, and asked the same question once."""

    def __init__(self, programs: dict[int, DeviceProgram]) -> None:
        self._programs = programs
        self._decoded: dict[str, tuple[Instruction, ...]] = {}
        self._answers: dict[tuple[str, DeviceAccess], bool | str] = {}

    def program(self, number: int) -> DeviceProgram:
        """The program with this id, one without instructions where the kernel told nothing of it."""
        return self._programs.get(number) or DeviceProgram(id=number, error="ENOENT")

    def allows(self, number: int, access: DeviceAccess) -> Permission:
        """As `allows`, of the program with this id."""
        program = self.program(number)
        where = f"device {program.words}"
        if program.error is not None:
            return program_trouble(where, program.error)
        if not program.insns:
            return Unread(Why.NOT_RECORDED, where, "its instructions were not recorded")
        key = (program.insns, access)
        if key not in self._answers:
            self._answers[key] = self._answer(program.insns, access)
        answer = self._answers[key]
        return answer if isinstance(answer, bool) else Unread(Why.UNREADABLE, where, answer)

    def _answer(self, insns: str, access: DeviceAccess) -> bool | str:
        """What these instructions answer, or why that cannot be told."""
        # Most nodes have no program to run.
        from gpudoctor.facts.bpf_instructions import decoded
        from gpudoctor.facts.bpf_machine import NotUnderstood, run

        try:
            if insns not in self._decoded:
                self._decoded[insns] = decoded(bytes.fromhex(insns))
            context = CONTEXT.pack(access.access << 16 | access.kind, access.major, access.minor)
            returned = run(self._decoded[insns], context, _may_load)
        except ValueError as error:
            return f"no eBPF program: {error}"
        except struct.error:
            return f"{access.words}: no device has such numbers"
        except NotUnderstood as error:
            return f"cannot be judged: {error}"
        return (
            returned == 1 if returned in (0, 1) else f"cannot be judged: it returns {returned}, which no kernel admits"
        )


def _may_load(offset: int, size: int) -> bool:
    """What cgroup_dev_is_valid_access in kernel/bpf/cgroup.c lets a program load: words, and of the first one aligned parts."""
    return (size in (1, 2, 4) and 0 <= offset <= 4 - size and offset % size == 0) or (offset in (4, 8) and size == 4)


PRIVILEGE = "root (CAP_SYS_ADMIN)"
"""What bpf(2) demands for programs by id; to list them CAP_NET_ADMIN would do (kernel/bpf/syscall.c)."""

_TROUBLES = {
    "EINVAL": "this kernel answers no question about device programs: older than Linux 4.15, or without CONFIG_CGROUP_BPF",
    "ENOSYS": "this kernel has no bpf(2)",
    "ENOENT": "it was gone when it was looked at",
    "EBADF": "is no cgroup of the unified hierarchy",
}


def program_trouble(where: str, error: str) -> Unread:
    """Why a cgroup's programs, or a program, could not be read: from the name of bpf(2)'s or open(2)'s error, or WITHHELD."""
    if error in ("EPERM", "EACCES"):
        return Unread(Why.NO_PERMISSION, where, f"bpf(2) answers {error}", would_need=PRIVILEGE)
    if error == WITHHELD:
        return Unread(
            Why.NO_PERMISSION,
            where,
            "the kernel hides the instructions of programs that it hardened",
            would_need=f"{PRIVILEGE} with CAP_SYSLOG, and kernel.kptr_restrict below 2",
        )
    return Unread(Why.UNREADABLE, where, _TROUBLES.get(error, f"bpf(2) answers {error}"))
