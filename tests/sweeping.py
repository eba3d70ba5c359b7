"""Recorded nodes as parameters of tests that take long: the ordinary suite goes over some of them, the sweep over the others."""

import zlib
from collections.abc import Container, Iterable
from typing import Any

import pytest

from gpudoctor.testing import fixtures

ONE_IN = 8
ALWAYS = ("h100x8", "nouveau-and-broken-daemon-json", "nvml-hung-at-gpu4", "nothing-recorded")
"""A healthy node, a sick, a hung and an empty one."""


def recorded_nodes() -> list[str]:
    """Every recorded node."""
    return sorted(place.name for place in fixtures().iterdir() if place.is_dir())


def thinned(nodes: Iterable[str]) -> list[Any]:
    """Every eighth node, always the same ones, for the ordinary suite; the others are marked `sweep`."""
    nodes = list(nodes)
    return ordinarily(nodes, [*ALWAYS, *(node for node in nodes if zlib.crc32(node.encode()) % ONE_IN == 0)])


def ordinarily(values: Iterable[Any], some: Container[Any]) -> list[Any]:
    """These parameters for the ordinary suite as far as they are among `some`; the others are marked `sweep`."""
    return [value if value in some else pytest.param(value, marks=pytest.mark.sweep) for value in values]
