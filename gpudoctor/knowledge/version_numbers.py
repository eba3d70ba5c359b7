"""Versions of drivers and of CUDA as numbers that compare."""

import re
from functools import lru_cache

# Compiled when first asked for, as in the other tables: they are imported by every run, and not always asked.
_VERSION = r"\d{1,6}(?:\.\d{1,6}){0,3}"


@lru_cache(maxsize=1024)
def numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, none for what is no version."""
    return tuple(int(part) for part in version.split(".")) if re.fullmatch(_VERSION, version) else ()


def minor_of(version: str) -> tuple[int, int] | None:
    """`12.8.93` as (12, 8); None for what names no minor version."""
    parts = numbers(version)
    return (parts[0], parts[1]) if len(parts) > 1 else None
