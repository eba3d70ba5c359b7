"""What a process asks of a device, and how several rulers answer together."""

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import TypeAlias

from msgspec import Struct

from gpudoctor.verdicts import Unread


class Access(IntFlag):
    """The kinds of access, with the kernel's numbers (BPF_DEVCG_ACC_* in include/uapi/linux/bpf.h).

    open(2) asks for all that its flags need at once; MKNOD is what mknod(2) needs, nothing else does.
    """

    MKNOD = 1
    READ = 2
    WRITE = 4

    @property
    def letters(self) -> str:
        """As `devices.list` and OCI configurations write it: r, w, m in this order."""
        return "".join(letter for letter, access in LETTERS.items() if access in self)


LETTERS = {"r": Access.READ, "w": Access.WRITE, "m": Access.MKNOD}


class DeviceKind(IntEnum):
    """The kinds of device, with the kernel's numbers (BPF_DEVCG_DEV_* in include/uapi/linux/bpf.h)."""

    BLOCK = 1
    CHAR = 2

    @property
    def letter(self) -> str:
        """As `devices.list` writes it."""
        return "b" if self is DeviceKind.BLOCK else "c"


class DeviceAccess(Struct, frozen=True):
    """One question to the rules: may this kind of device, with these numbers, be accessed like this?"""

    kind: DeviceKind
    major: int
    minor: int
    access: Access

    @property
    def words(self) -> str:
        """As people and citations write it: `char 195:0 rw`."""
        return f"{self.kind.name.lower()} {self.major}:{self.minor} {self.access.letters}"


Permission: TypeAlias = bool | Unread
"""Allowed, denied, or why that is not known."""


def all_allow(permissions: Iterable[Permission]) -> Permission:
    """The answer where each of several rulers must allow: one that denies decides, whatever the others would say."""
    unread: Unread | None = None
    for permission in permissions:
        if isinstance(permission, Unread):
            unread = unread or permission
        elif not permission:
            return False
    return True if unread is None else unread
