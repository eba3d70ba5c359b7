"""The report, schema `gpudoctor.report/1`: what every form of output is rendered from.

Keys are never removed or given another meaning within `/1`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.verdicts import MOST_NAMED, MOST_SAID, Evidence, Remedy, Status, Subject, Why, cut, cut_fields

SCHEMA = "gpudoctor.report/1"


class Overall(str, Enum):
    """The verdict on a whole node."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    PASS = "pass"


class Tool(Struct, frozen=True):
    """The program that wrote the report."""

    name: str
    version: str
    tables_date: str
    config_digest: str


class NodeGpu(Struct, frozen=True):
    """A GPU of the node as far as it is known; `index` is NVML's, `minor` the device node's."""

    address: str
    uuid: str | None = None
    name: str | None = None
    minor: int | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "uuid", "name")


class Node(Struct, frozen=True):
    """The node that was looked at."""

    hostname: str | None
    source: str
    kernel: str | None
    os: str | None
    driver_version: str | None
    cuda_version: str | None
    uid: int | None
    boot_id: str | None
    gpus: tuple[NodeGpu, ...]

    def __post_init__(self) -> None:
        cut_fields(self, MOST_NAMED, "hostname", "kernel", "os", "driver_version", "cuda_version", "boot_id")


class Waived(Struct, frozen=True):
    """Why a finding does not count, and until when."""

    reason: str
    until: str | None


class Finding(Struct, frozen=True):
    """One verdict about one subject. `caused_by` and `possible_causes` are ids of other findings."""

    id: str
    subject: Subject
    status: Status
    summary: str
    cause: str = ""
    why: Why | None = None
    would_need: str = ""
    breaks: str | None = None
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    caused_by: tuple[str, ...] = ()
    possible_causes: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    waived: Waived | None = None


class Result(Struct, frozen=True):
    """How one check ended. `why` is an unknown's reason, or a skip's (`not-applicable`, `disabled`)."""

    check: str
    link: Link
    title: str
    status: Status
    why: str | None
    detail: str
    blocked_by: tuple[str, ...]
    essential: bool
    findings: tuple[Finding, ...]


class RootCause(Struct, frozen=True):
    """Findings of one check with one cause that nothing below explains, and what they explain in turn."""

    findings: tuple[str, ...]
    check: str
    link: Link
    subjects: tuple[Subject, ...]
    status: Status
    summary: str
    consequence_ids: tuple[str, ...]


class How(str, Enum):
    """In which way a GPU is shared. `whole` is one that is not divided and that at most one workload has; `processes` one that several have
    without anything that divides it; `passthrough` one that the host gives to a virtual machine.
    """

    WHOLE = "whole"
    MIG = "mig"
    MPS = "mps"
    TIME_SLICING = "time-slicing"
    PROCESSES = "processes"
    VGPU = "vgpu"
    PASSTHROUGH = "passthrough"
    UNKNOWN = "unknown"


class SharedGpu(Struct, frozen=True):
    """Who shares a GPU, how, and what that keeps apart, in plain words; "" where there is nothing to say.

    `gpu` is its address. `by` names those who use it or were given it, some of them only where they are many; `workloads` counts all of
    them, None where that is not known. `detail` says more of how, of an unknown why. `access` is what decides who may open it, `note`
    what keeps nobody apart though it may look so, `room` what MIG instances could still be made.
    """

    gpu: str
    how: How
    detail: str = ""
    by: tuple[str, ...] = ()
    workloads: int | None = None
    memory: str = ""
    faults: str = ""
    compute: str = ""
    access: str = ""
    note: str = ""
    room: str = ""

    def __post_init__(self) -> None:
        cut_fields(self, MOST_SAID, "detail", "memory", "faults", "compute", "access", "note", "room")
        if any(len(name) > MOST_NAMED for name in self.by):
            msgspec.structs.force_setattr(self, "by", tuple(cut(name, MOST_NAMED) for name in self.by))


class NotSeen(Struct, frozen=True):
    """Something that could not be looked at, and what would show it."""

    what: str
    why: Why
    would_need: str


class Report(Struct, frozen=True):
    """One run over one node. `sharing` has a row for each GPU, none where only parts were asked for that leave sharing out."""

    schema: str
    tool: Tool
    node: Node
    started_at: str
    seconds: float
    verdict: Overall
    exit_code: int
    root_causes: tuple[RootCause, ...]
    results: tuple[Result, ...]
    not_seen: tuple[NotSeen, ...]
    sharing: tuple[SharedGpu, ...] = ()

    def finding(self, finding_id: str) -> Finding:
        """The finding of that id. Raises KeyError."""
        for result in self.results:
            for finding in result.findings:
                if finding.id == finding_id:
                    return finding
        raise KeyError(finding_id)

    def result(self, check_id: str) -> Result:
        """How that check ended. Raises KeyError."""
        for result in self.results:
            if result.check == check_id:
                return result
        raise KeyError(check_id)


def counts(finding: Finding, findings: Mapping[str, Finding], above: frozenset[str] = frozenset()) -> bool:
    """Whether one of a report's `findings`, by id, counts as in its verdict: not waived, nor explained by those alone that do not count."""
    if finding.waived is not None or finding.id in above:
        return False
    causes = [findings[cause] for cause in finding.caused_by if cause in findings]
    return not causes or any(counts(cause, findings, above | {finding.id}) for cause in causes)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report, generated from these records."""
    schema = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
