"""What one pass of `gpudoctor health` says, schema `gpudoctor.health/1`: the state of the node now, and what changed since the pass before.

Keys are never removed or given another meaning within `/1`.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.report import Node, Overall, Tool
from gpudoctor.verdicts import Evidence, Remedy, Status, Subject

SCHEMA = "gpudoctor.health/1"
EXIT_CODES = {Overall.PASS: 0, Overall.WARN: 1, Overall.FAIL: 2, Overall.UNKNOWN: 3}


HARMLESS = ("application", "notice")
"""Areas of Xids that programs draw upon themselves (knowledge/xids.py): among changes they are no news."""


class State(str, Enum):
    """What is known of the past of something that is wrong. A `blip` was not yet seen in enough passes in a row, and counts for nothing.

    Of a `lasting` one that is certain. `flapping` comes and goes so often that it counts as wrong all the time. `unseen` was wrong when
    it was last looked at, and nobody could look now.
    """

    BLIP = "blip"
    LASTING = "lasting"
    FLAPPING = "flapping"
    UNSEEN = "unseen"


class Turn(str, Enum):
    """How something changed. `stays` is still wrong after a reboot or no longer flapping, `blip` healed before it counted."""

    NEW = "new"
    WORSE = "worse"
    BETTER = "better"
    STAYS = "stays"
    FLAPPING = "flapping"
    HEALED = "healed"


class Wrong(Struct, frozen=True):
    """One thing that is wrong, as a report has a root cause: findings of one check with one cause.

    `since` is when the first of them was first seen, UTC; `times` in how many passes, `boots` in how many boots in a row. `explains` is
    how many findings follow from it. `link` is "" for what is wrong with the doctor's own runs. `why` says why it cannot be looked at now.
    """

    check: str
    link: str
    status: Status
    state: State
    summary: str
    subjects: tuple[Subject, ...]
    findings: tuple[str, ...]
    since: str
    last: str
    times: int
    boots: int = 1
    turns: int = 0
    explains: int = 0
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class Change(Struct, frozen=True):
    """Something that is not as it was in the pass before. `before` is the status it had, "" where it had none; `how` says how it ended."""

    turn: Turn
    wrong: Wrong
    before: str = ""
    how: str = ""


class Growth(Struct, frozen=True):
    """A counter that grew since it was last read, in this boot and with the driver loaded all the time; `subject` is a subject's id.

    `per_hour` is None for a time too short to tell a rate from.
    """

    subject: str
    counter: str
    value: float
    growth: float
    seconds: float
    per_hour: float | None
    unit: str = ""


class Event(Struct, frozen=True):
    """Like lines that the kernel wrote since the pass before: Xids and SXids by number and GPU; `area` is what they concern.

    `first` and `stamp` are the times of the first and the last of them as the log has them; of the `previous_boot` is what was written
    after that boot's last pass.
    """

    gpu: str
    code: str
    count: int
    area: str
    first: str
    stamp: str
    says: str
    previous_boot: bool = False


class LinkState(Struct, frozen=True):
    """One link of the chain by itself: its verdict, None where there is nothing of it or nobody looked, and why in words."""

    link: str
    verdict: Overall | None
    summary: str


class Memory(Struct, frozen=True):
    """Whether this pass is remembered, where, and if not, why; `passes` counts those of this boot. `interrupted` tells of a run that did
    not end before this one.
    """

    kept: bool
    place: str
    passes: int = 0
    first: bool = False
    note: str = ""
    interrupted: str = ""


class Earlier(Struct, frozen=True):
    """A run that had not ended when this one began. `hangs` with words on why it is taken for hung, "" for one that is just at work."""

    pid: int
    since: str
    seconds: float
    hangs: str = ""
    state: str = ""
    stack: str = ""


class Stale(Struct, frozen=True):
    """What this answer is worth: how old it is, and why it is no longer one, "" while it is."""

    seconds: float
    why: str = ""


class Health(Struct, frozen=True):
    """One pass. `verdict` and `exit_code` count what lasts; `seen` is the verdict of the pass by itself, blips included.

    `nvml` says whether NVML was asked: `asked`, or why not. `checks` has the status of every check. `stale` only in a cached answer.
    """

    schema: str
    tool: Tool
    node: Node
    at: str
    seconds: float
    number: int
    verdict: Overall
    exit_code: int
    seen: Overall
    nvml: str
    memory: Memory
    changes: tuple[Change, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    blips: tuple[Wrong, ...] = ()
    links: tuple[LinkState, ...] = ()
    growth: tuple[Growth, ...] = ()
    events: tuple[Event, ...] = ()
    checks: dict[str, str] = {}
    earlier: Earlier | None = None
    stale: Stale | None = None

    @property
    def has_news(self) -> bool:
        """Whether anything is not as it was: a change, or an error of the hardware's, though it is not the first of its kind."""
        return bool(self.changes) or any(event.area not in HARMLESS for event in self.events)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an answer, generated from these records."""
    schema = msgspec.json.schema(Health)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
