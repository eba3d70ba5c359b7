"""What people want to see beside a verdict, the report's key `details`: GPUs, workloads, what happened when, and the topology.

Nothing here is judged anew; it is absent from a report unless it was asked for, as a page and the TUI do. Keys are never removed or given
another meaning within `gpudoctor.report/1`.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.report import SCHEMA, Report
from gpudoctor.topo import Topo
from gpudoctor.trace import Traced
from gpudoctor.verdicts import MOST_NAMED, MOST_SAID, Evidence, cut, cut_fields


class GpuProcess(Struct, frozen=True, omit_defaults=True):
    """A process that NVML lists for a GPU, or that holds its device node; `memory` in bytes, `workload` is a subject's id."""

    pid: int
    name: str = ""
    memory: int | None = None
    workload: str = ""

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "name", "workload")


class GpuDetail(Struct, frozen=True, omit_defaults=True):
    """One GPU; what was not asked or not answered is None, and `unread` says why. That `errors` or `processes` are empty because nobody
    told of any, `unread` says in words that begin with `errors: ` or `processes: `.

    Memory is in bytes, power in watts, temperatures in degrees Celsius, clocks in MHz, utilisation in percent. Links are told as
    `Gen5 x16`, NVLinks by how many are up of how many there are. `driver` is the kernel driver that holds it. `errors` has counters
    that are not zero and flags that are set, each with the words in which it is told: by NVML's names, and `nvlink.…` for sums over the
    links, `xid.…` and `aer.…` for what the kernel counts. `throttled` are the reasons for which clocks are held down now, idleness
    apart. `address` is "" where only nvidia-smi's text is known.
    """

    address: str
    index: int | None = None
    minor: int | None = None
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    driver: str | None = None
    numa: int | None = None
    link: str | None = None
    link_most: str | None = None
    nvlinks_up: int | None = None
    nvlinks: int | None = None
    memory_used: int | None = None
    memory: int | None = None
    temperature: int | None = None
    temperature_most: int | None = None
    power: float | None = None
    power_limit: float | None = None
    clock: int | None = None
    clock_most: int | None = None
    utilization: int | None = None
    throttled: tuple[str, ...] = ()
    errors: dict[str, str] = {}
    mig: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    processes: tuple[GpuProcess, ...] = ()
    unread: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "name", "uuid", "serial", "vbios", "driver", "mig", "compute_mode")
        if any(len(words) > MOST_SAID for words in self.unread):
            msgspec.structs.force_setattr(self, "unread", tuple(cut(words, MOST_SAID) for words in self.unread))
        if any(len(words) > MOST_NAMED for words in self.errors.values()):
            errors = {name: cut(words, MOST_NAMED) for name, words in self.errors.items()}
            msgspec.structs.force_setattr(self, "errors", errors)


class EventKind(str, Enum):
    """What an event is: the kernel's word on a GPU, or something that changed on the node."""

    XID = "xid"
    SXID = "sxid"
    DRIVER = "driver"
    PCIE = "pcie"
    KERNEL = "kernel"
    BOOT = "boot"
    MODULE = "module"
    PACKAGE = "package"
    CONFIGURATION = "configuration"
    SERVICE = "service"


class Event(Struct, frozen=True, omit_defaults=True):
    """Something that happened. `at` is UTC as `2026-11-29T12:00:00Z`, "" where only its place in the order is known; then `stamp` holds
    what the log wrote. `count` like events in a row are one, `until` is when the last of them was. `findings` are those that cite it.
    """

    at: str
    kind: EventKind
    says: str
    where: str
    stamp: str = ""
    gpu: str = ""
    count: int = 1
    until: str = ""
    previous_boot: bool = False
    findings: tuple[str, ...] = ()


class Since(Struct, frozen=True, omit_defaults=True):
    """When a root cause began as far as anything tells: `cause` is its place among `root_causes`, `at` a time in UTC or "", `how` in
    words how that is known, or why it is not. `around` are the places of events in the timeline that lie near it, nearest first.
    """

    cause: int
    at: str
    how: str
    around: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Details(Struct, frozen=True, omit_defaults=True):
    """All of it. Of many workloads and events the most telling are kept, and the rest counted.

    `untold` says what is lacking, and why: each begins with the key that lacks it, as in `topology: the node shows no PCI device`.
    """

    gpus: tuple[GpuDetail, ...] = ()
    workloads: tuple[Traced, ...] = ()
    more_workloads: int = 0
    timeline: tuple[Event, ...] = ()
    more_events: int = 0
    since: tuple[Since, ...] = ()
    topology: Topo | None = None
    untold: tuple[str, ...] = ()


class FullReport(Report, frozen=True, omit_defaults=False):
    """A report with its details, None where they were not asked for."""

    details: Details | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report with or without details, generated from these records."""
    schema = msgspec.json.schema(FullReport)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
