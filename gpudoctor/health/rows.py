"""Rows of the memory that most passes neither read nor write."""

from msgspec import Struct


class XidRow(Struct, frozen=True):
    """How often a GPU had an error in a boot."""

    boot: int
    gpu: str
    code: str
    area: str
    count: int
    first_stamp: str
    last_stamp: str
    first_at: float
    last_at: float
    says: str


class BootRow(Struct, frozen=True):
    """One boot, from its first pass to its last."""

    id: int
    boot_id: str
    first_at: float
    last_at: float
    elapsed: float
    passes: int
