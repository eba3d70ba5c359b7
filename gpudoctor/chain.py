"""The chain of links from PCIe to a running workload, as a directed acyclic graph: what stands on what."""

from enum import Enum


class Link(str, Enum):
    """A step of the chain. The order of definition is the order of reports, and every link comes after what it stands on."""

    PCIE = "pcie"
    KERNEL_MODULE = "kernel-module"
    DEVICE_NODES = "device-nodes"
    DRIVER_CUDA = "driver-cuda"
    FABRIC = "fabric"
    SHARING = "sharing"
    TOOLKIT = "toolkit"
    CGROUP = "cgroup"
    DEVICE_PLUGIN = "device-plugin"
    CUDA_INIT = "cuda-init"
    WORKLOAD = "workload"
    TOPOLOGY = "topology"
    HEALTH = "health"
    STARTUP = "startup"


STANDS_ON: dict[Link, frozenset[Link]] = {
    Link.PCIE: frozenset(),
    Link.KERNEL_MODULE: frozenset({Link.PCIE}),
    Link.DEVICE_NODES: frozenset({Link.KERNEL_MODULE}),
    Link.DRIVER_CUDA: frozenset({Link.DEVICE_NODES}),
    Link.FABRIC: frozenset({Link.DRIVER_CUDA}),
    Link.SHARING: frozenset({Link.DRIVER_CUDA}),
    Link.TOOLKIT: frozenset({Link.DRIVER_CUDA}),
    Link.CGROUP: frozenset({Link.DEVICE_NODES}),
    Link.DEVICE_PLUGIN: frozenset({Link.TOOLKIT}),
    Link.CUDA_INIT: frozenset({Link.DRIVER_CUDA, Link.FABRIC, Link.SHARING}),
    Link.WORKLOAD: frozenset({Link.TOOLKIT, Link.CGROUP, Link.DEVICE_PLUGIN, Link.SHARING, Link.FABRIC}),
    Link.TOPOLOGY: frozenset({Link.PCIE}),
    Link.HEALTH: frozenset({Link.PCIE}),
    Link.STARTUP: frozenset(),
}

ORDER: dict[Link, int] = {link: position for position, link in enumerate(Link)}
"""Position of each link in reports."""


def _closures() -> dict[Link, frozenset[Link]]:
    reach: dict[Link, frozenset[Link]] = {}
    for link in Link:
        reach[link] = frozenset({link}).union(*(reach[below] for below in STANDS_ON[link]))
    return reach


BELOW: dict[Link, frozenset[Link]] = _closures()
"""For each link, itself and everything it stands on, transitively."""


def with_everything_below(links: frozenset[Link]) -> frozenset[Link]:
    """The links and all that they stand on: what a check's `needs=` really presupposes."""
    return frozenset().union(*(BELOW[link] for link in links))
