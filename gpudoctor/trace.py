"""The trace of a workload, schema `gpudoctor.trace/1`: the steps from asking for a GPU to using it, and the first that is broken.

Keys are never removed or given another meaning within `/1`.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.report import Node, NodeGpu, Overall, Tool
from gpudoctor.verdicts import MOST_SAID, Cited, Evidence, Remedy, Status, Subject, Unread, Why, cut_fields

SCHEMA = "gpudoctor.trace/1"


class StepId(str, Enum):
    """The steps, in the order of the chain. Only a target `pod:…` has an allocation."""

    FOUND = "found"
    ALLOCATION = "allocation"
    ASKED = "asked"
    HOST = "host"
    NODES = "nodes"
    RULES = "rules"
    LIBRARIES = "libraries"
    RUNTIME = "runtime"
    VISIBLE = "visible"
    CAPABILITIES = "capabilities"
    LIMITS = "limits"
    NUMA = "numa"


TITLES: dict[StepId, str] = {
    StepId.FOUND: "The target is there and lives",
    StepId.ALLOCATION: "The kubelet holds GPUs for it that live, and these are what it has",
    StepId.ASKED: "Somebody asked for GPUs that this node has",
    StepId.HOST: "The node itself is well for these GPUs",
    StepId.NODES: "Their device nodes are inside and can be opened",
    StepId.RULES: "The device rules let it read and write them",
    StepId.LIBRARIES: "The driver's libraries inside are the loaded driver's",
    StepId.RUNTIME: "The driver is new enough for its CUDA runtime",
    StepId.VISIBLE: "CUDA_VISIBLE_DEVICES hides none of them",
    StepId.CAPABILITIES: "NVIDIA_DRIVER_CAPABILITIES asks for what CUDA needs",
    StepId.LIMITS: "Its limits suffice for NCCL and MPS",
    StepId.NUMA: "It runs on CPUs near its GPUs",
}
"""The healthy state of each as a sentence."""

OUTSIDE_OF_PODS = tuple(step for step in StepId if step is not StepId.ALLOCATION)
"""The steps of a target that is no pod."""

ESSENTIAL = frozenset({StepId.FOUND, StepId.NODES, StepId.RULES})
"""Without an answer to these nothing can be said of a workload: one that is unknown makes the trace unknown."""


class Step(Struct, frozen=True):
    """How one step ended: pass, warn, fail, unknown or skip. `caused_by` are the steps that it follows from."""

    id: StepId
    title: str
    status: Status
    summary: str
    essential: bool = False
    why: Why | None = None
    would_need: str = ""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    caused_by: tuple[StepId, ...] = ()
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A pass needs a positive statement with what it was read from; what is wrong needs a next step as well."""
        if self.status in (Status.PASS, Status.WARN, Status.FAIL) and not self.evidence:
            raise ValueError(f"{self.id.value}: {self.status.value} needs evidence: {self.summary!r}")
        if self.status in (Status.WARN, Status.FAIL) and not self.remedies:
            raise ValueError(f"{self.id.value}: {self.status.value} needs a remedy: {self.summary!r}")
        if self.status is Status.UNKNOWN and self.why is None:
            raise ValueError(f"{self.id.value}: unknown needs a reason: {self.summary!r}")
        if len(self.summary) > MOST_SAID:
            cut_fields(self, MOST_SAID, "summary")


def passed(step: StepId, summary: str, evidence: Cited) -> Step:
    """It was looked at and is as it should be."""
    return _step(step, Status.PASS, summary, evidence=evidence)


def warned(step: StepId, summary: str, evidence: Cited, *remedies: Remedy, references: tuple[str, ...] = ()) -> Step:
    """It deserves attention, but keeps nobody from using the GPU."""
    return _step(step, Status.WARN, summary, evidence=evidence, remedies=remedies, references=references)


def failed(step: StepId, summary: str, evidence: Cited, *remedies: Remedy, references: tuple[str, ...] = ()) -> Step:
    """It is broken."""
    return _step(step, Status.FAIL, summary, evidence=evidence, remedies=remedies, references=references)


def unknown(step: StepId, unread: Unread, summary: str = "", evidence: Cited = ()) -> Step:
    """It could not be seen, and why."""
    return _step(
        step,
        Status.UNKNOWN,
        summary or f"{unread.where}: {unread.detail}",
        evidence=evidence,
        why=unread.why,
        would_need=unread.would_need,
    )


def skipped(step: StepId, reason: str, evidence: Cited = ()) -> Step:
    """The question makes no sense here."""
    return _step(step, Status.SKIP, reason, evidence=evidence)


def _step(step: StepId, status: Status, summary: str, **more: Any) -> Step:
    return Step(step, TITLES[step], status, summary, essential=step in ESSENTIAL, **more)


class Traced(Struct, frozen=True):
    """One container, job or process with its steps. `gpus` are the node's GPUs whose device nodes it has."""

    subject: Subject
    title: str
    engine: str
    container_id: str
    pid: int
    unit: str
    cgroup: str
    gpus: tuple[NodeGpu, ...]
    verdict: Overall
    first_broken: StepId | None
    summary: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        cut_fields(self, MOST_SAID, "title", "engine", "container_id", "unit", "cgroup", "summary")

    def step(self, step: StepId) -> Step:
        """How a step ended. Raises KeyError."""
        for one in self.steps:
            if one.id is step:
                return one
        raise KeyError(step.value)


class Trace(Struct, frozen=True):
    """One run of `gpudoctor trace` over one node."""

    schema: str
    tool: Tool
    node: Node
    started_at: str
    seconds: float
    target: str
    verdict: Overall
    exit_code: int
    traced: tuple[Traced, ...]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a trace, generated from these records."""
    schema = msgspec.json.schema(Trace)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
