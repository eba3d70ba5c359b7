"""Counters of GPUs and ports as rates: what grew since it was last read, never across a boot or a driver that was loaded anew."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.infiniband import RdmaPorts
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.health.answer import Growth
from gpudoctor.knowledge.counters import HELD_DOWN, KEPT, SINCE_LOAD

MOST_COUNTERS = 5000
SHORTEST_SECONDS = 10.0
"""From a shorter time no rate is told."""


class Reading(Struct, frozen=True):
    """A counter as it is read now. `source` is who counts: what was read of the same source at the same time ages alike.

    `kept` is one of the board's own, which no boot resets.
    """

    subject: str
    counter: str
    value: float
    source: str
    unit: str = ""
    kept: bool = False


class Counter(Struct):
    """A counter as it is remembered. `total` is all growth that was seen since `since`, `peak` the highest rate an hour."""

    subject: str
    counter: str
    source: str
    unit: str
    value: float
    since: float
    total: float = 0.0
    peak: float = 0.0
    grown_at: float = 0.0
    elapsed: float = 0.0


class Span(Struct, frozen=True):
    """What lies between the last reading of a source and this one: seconds of the same boot and driver, None where it was another."""

    at: float
    elapsed: float
    seconds: Mapping[str, float | None]


def readings(desk: Desk) -> tuple[Reading, ...]:
    """What checks have read; nothing is read for it."""
    return tuple(_all(desk))[:MOST_COUNTERS]


def grown(
    values: Mapping[tuple[str, str], float],
    fetch: Callable[[str, str], Counter | None],
    read: Sequence[Reading],
    span: Span,
) -> tuple[tuple[Counter, ...], tuple[Growth, ...]]:
    """The counters that are not as they were remembered, as they are to be now, and those that grew within this boot.

    `values` are those remembered; most are as they were, and of these no more is fetched.
    """
    changed: list[Counter] = []
    growth: list[Growth] = []
    for one in read:
        before = values.get((one.subject, one.counter))
        seconds = span.seconds.get(one.source)
        anew = seconds is None and not one.kept
        if before == one.value and not (anew and one.value):
            continue
        counter = fetch(one.subject, one.counter) if before is not None else None
        if counter is None or before is None:
            fresh = Counter(one.subject, one.counter, one.source, one.unit, one.value, span.at, elapsed=span.elapsed)
            changed.append(fresh)
            continue
        if anew or one.value < before:
            # It counts anew, so that no more than what it shows has come since; a board's own never does.
            more, seconds = (0.0 if one.kept else one.value), None
        else:
            more = one.value - before
        rate = round(more * 3600 / seconds, 3) if seconds is not None and seconds >= SHORTEST_SECONDS else None
        counter.value = one.value
        if more > 0:
            counter.total += more
            counter.grown_at, counter.elapsed = span.at, span.elapsed
            counter.peak = max(counter.peak, rate or 0.0)
            if seconds is not None:
                growth.append(Growth(one.subject, one.counter, one.value, more, round(seconds, 1), rate, one.unit))
        changed.append(counter)
    return tuple(changed), tuple(growth)


def _all(desk: Desk) -> Iterator[Reading]:
    nvml = desk.known(Nvml)
    for device in nvml.devices if nvml is not None else ():
        if device.address is not None:
            yield from _of_device(device, f"gpu:{device.address}")
    states = desk.known(PciStates)
    for address, state in states.by_address.items() if states is not None else ():
        for name, value in (
            ("AER errors, fatal", state.fatal_errors),
            ("AER errors, not fatal", state.nonfatal_errors),
        ):
            if isinstance(value, int):
                yield Reading(f"gpu:{address}", name, value, "pci")
    ports = desk.known(RdmaPorts)
    for port in ports.physical if ports is not None else ():
        for name, count in port.counters.items():
            yield Reading(port.subject.id, name.replace("_", " "), count, "rdma")


def _of_device(device: NvmlDevice, subject: str) -> Iterator[Reading]:
    for name, what in KEPT.items():
        if (number := _number(device, name)) is not None:
            yield Reading(subject, what, number, "nvml", kept=True)
    for name, what in SINCE_LOAD.items():
        if (number := _number(device, name)) is not None:
            yield Reading(subject, what, number, "nvml")
    for name, (what, _) in HELD_DOWN.items():
        if (number := _number(device, name)) is not None:
            yield Reading(subject, what, number / 1e9, "nvml", unit="s")
    errors: dict[str, int] = {}
    for link in device.nvlinks:
        for kind, count in link.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    for kind, count in errors.items():
        yield Reading(subject, f"NVLink errors ({kind.replace('_', ' ')})", count, "nvml")


def _number(device: NvmlDevice, name: str) -> int | None:
    value = device.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
