"""What the engine keeps of a run: each check's outcome and its judgements."""

from msgspec import Struct

from gpudoctor.config import Waiver
from gpudoctor.registry import Check
from gpudoctor.verdicts import Fail, NotApplicable, Pass, Status, Unknown, Verdict, Warn

_WORST_FIRST = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)


class Judgement(Struct, frozen=True):
    """One verdict of one check, with the id it has in reports and the waiver that covers it."""

    id: str
    check: Check
    verdict: Verdict
    waiver: Waiver | None = None

    @property
    def status(self) -> Status:
        """The verdict's status."""
        match self.verdict:
            case Fail():
                return Status.FAIL
            case Warn():
                return Status.WARN
            case Pass():
                return Status.PASS
            case Unknown():
                return Status.UNKNOWN
            case NotApplicable():
                return Status.SKIP


class Outcome(Struct, frozen=True):
    """How one check ended: its judgements, or why it has none (`blocked_by`, or a skip's reason)."""

    check: Check
    judgements: tuple[Judgement, ...] = ()
    blocked_by: tuple[str, ...] = ()
    skipped: str | None = None
    detail: str = ""

    @property
    def status(self) -> Status:
        """The worst of its verdicts, or `blocked`, or `skip`."""
        if self.blocked_by:
            return Status.BLOCKED
        statuses = {judgement.status for judgement in self.judgements}
        return next((status for status in _WORST_FIRST if status in statuses), Status.SKIP)
