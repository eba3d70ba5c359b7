"""What differs between two looks, schema `gpudoctor.diff/1`: one node at two times, or two nodes.

Keys are never removed or given another meaning within `/1`.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.report import Node, Overall, Tool
from gpudoctor.verdicts import Evidence, Subject

SCHEMA = "gpudoctor.diff/1"


class Way(str, Enum):
    """What A and B are to each other."""

    TIMES = "times"
    NODES = "nodes"


class State(str, Enum):
    """What one side says of a subject: a finding's status, or why there is no finding.

    `waived` is a warn or fail that does not count, `gone` a subject that is not there though the check was answered, `unasked` a check
    that the report does not have.
    """

    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"
    PASS = "pass"
    SKIP = "skip"
    WAIVED = "waived"
    GONE = "gone"
    UNASKED = "unasked"


WRONG = (State.FAIL, State.WARN)
BLIND = (State.UNKNOWN, State.BLOCKED, State.UNASKED)


class Area(str, Enum):
    """What a change is about, in the order in which changes are told."""

    NODE = "node"
    VERSIONS = "versions"
    PARAMETERS = "parameters"
    FILES = "files"
    GPUS = "gpus"
    LINKS = "links"
    TOPOLOGY = "topology"
    MODES = "modes"
    SHARING = "sharing"
    COUNTERS = "counters"
    CHECKS = "checks"


class Side(Struct, frozen=True):
    """One of the two. `given` is what was named on the command line; without `facts` it is a saved report, which holds findings only.

    `at` is when it was looked at, null where the recording does not tell. `causes` are its root causes in words.
    """

    given: str
    kind: str
    facts: bool
    redacted: bool
    at: str | None
    node: Node
    tool: Tool
    verdict: Overall
    causes: tuple[str, ...]


class Turn(Struct, frozen=True):
    """Findings of one check that went from one state to another, for the same reason.

    `a_says` and `b_says` are each side's words, empty where there is no finding. `root` marks a root cause of the side where it is
    wrong; what is none names in `because` the checks that it follows from, or that block it. `since` is the time of the oldest log
    line that tells of it, as the log has it. `explains` counts the findings that follow from it. `same_words` is false where both sides
    are wrong in other words, numbers not counted.
    """

    check: str
    link: Link
    title: str
    subjects: tuple[Subject, ...]
    a: State
    b: State
    a_says: str = ""
    b_says: str = ""
    root: bool = False
    because: tuple[str, ...] = ()
    since: str | None = None
    explains: int = 0
    evidence: tuple[Evidence, ...] = ()
    same_words: bool = True


class Change(Struct, frozen=True):
    """Something else that differs; null is not there. `subjects` are those of which the same is said, none for the node.

    `diff` are lines of a unified diff, `omitted` counts those left out. One that does not count (`counts`) leaves the two the same.
    """

    area: Area
    what: str
    a: str | None
    b: str | None
    subjects: tuple[str, ...] = ()
    note: str = ""
    diff: tuple[str, ...] = ()
    omitted: int = 0
    counts: bool = True


class Counter(Struct, frozen=True):
    """A counter that differs. `growth` is null where it cannot be told, `note` says why; `per_hour` where the time between is known."""

    subject: str
    what: str
    a: float | None
    b: float | None
    unit: str = ""
    growth: float | None = None
    per_hour: float | None = None
    note: str = ""
    counts: bool = True


class Gap(Struct, frozen=True):
    """What was not compared, because a side (`A`, `B` or `both`) does not have it."""

    area: Area
    side: str
    what: tuple[str, ...]
    why: str


class Diff(Struct, frozen=True):
    """One run of `gpudoctor diff`.

    `broke` is new or worse, `healed` well or better, `found` wrong in B and not known in A, `unseen` known in A and not in B, `seen` the
    other way round, `still` wrong in both. `hours` lie between A and B; `identity` differs by identity only.
    """

    schema: str
    tool: Tool
    way: Way
    why: str
    a: Side
    b: Side
    hours: float | None
    same: bool
    exit_code: int
    headline: str
    notes: tuple[str, ...]
    broke: tuple[Turn, ...]
    healed: tuple[Turn, ...]
    found: tuple[Turn, ...]
    unseen: tuple[Turn, ...]
    seen: tuple[Turn, ...]
    still: tuple[Turn, ...]
    changes: tuple[Change, ...]
    counters: tuple[Counter, ...]
    identity: tuple[Change, ...]
    gaps: tuple[Gap, ...]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the result, generated from these records."""
    schema = msgspec.json.schema(Diff)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
