"""Versions of drivers and of CUDA as numbers that compare."""

from functools import lru_cache

from gpudoctor.patterns import pattern

_VERSION = pattern(r"\d{1,6}(?:\.\d{1,6}){0,3}")


@lru_cache(maxsize=1024)
def numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, none for what is no version."""
    return tuple(int(part) for part in version.split(".")) if _VERSION.fullmatch(version) else ()


def minor_of(version: str) -> tuple[int, int] | None:
    """`12.8.93` as (12, 8); None for what names no minor version."""
    parts = numbers(version)
    return (parts[0], parts[1]) if len(parts) > 1 else None
