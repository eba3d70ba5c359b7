"""What all views read: the newest report, the run in progress as far as it has told, and what is compared with.

The records of a report are loaded with the first of them: the first screen does without.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from gpudoctor.details import Details, FullReport
    from gpudoctor.report import Report
    from gpudoctor.reports.tui.marks import Pass
    from gpudoctor.reports.tui.stream import Asked, Told

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
"""As a report tells moments."""


class Progress(Struct):
    """A run in progress. `reading` holds facts that are being read by when their reading began; `checks` is empty before the run says."""

    started: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    checks: "tuple[Asked, ...]" = ()
    told: "dict[str, Told]" = field(default_factory=dict)
    reading: dict[str, float] = field(default_factory=dict)

    def waits(self, now: float) -> tuple[str, float] | None:
        """What the run has waited for longest, and for how many seconds; None where it waits for nothing."""
        if not self.reading:
            return None
        fact, since = min(self.reading.items(), key=lambda item: item[1])
        return fact, now - since


class Chosen(Struct, frozen=True):
    """What the user has before them: a root cause or a check. `id` is its row's, `check` the check's id, `findings` those it is about."""

    id: str
    check: str
    findings: tuple[str, ...] = ()


class Shown(Struct):
    """What views show. `source` is how the user named what is looked at; `report` the newest finished, `before` the one of the pass before.

    While a run is on, `progress` is what it has told; a view that shows reports goes on showing `report` until the next is there.
    `problem` is why there is none. `began` is when the program was started. `words` is what the list is filtered by. `node` is the
    recording that is looked at, "" where it is none. `marks` says of check ids what changed since `before`, in a word.
    """

    source: str
    live: bool = False
    report: "FullReport | None" = None
    before: "FullReport | None" = None
    against: "Report | None" = None
    against_name: str = ""
    progress: Progress | None = None
    problem: str = ""
    log: list[str] = field(default_factory=list)
    watch: float | None = None
    words: str = ""
    ascii: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    passes: int = 0
    history: "list[Pass]" = field(default_factory=list)
    node: str = ""
    began: str = ""

    @property
    def details(self) -> "Details | None":
        """The details of the report that is shown."""
        return self.report.details if self.report is not None else None

    @property
    def untold(self) -> str:
        """Why there are no details, for a view that has nothing else to show; "" where there are."""
        if self.details is not None:
            return ""
        if self.report is not None:
            return "This report was written without details: `gpudoctor run --details --format json` keeps them."
        if self.problem:
            return self.problem
        return "The run is still on; this is told at its end." if self.progress is not None else "There is no report."

    def matches(self, *texts: str) -> bool:
        """Whether the filter's words all occur in these texts, whatever their case; always without a filter."""
        whole = "\n".join(texts).lower()
        return all(word in whole for word in self.words.lower().split())
