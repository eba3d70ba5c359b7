"""`gpudoctor slurm health-check`: drain the node when a GPU keeps failing, and take back what was drained so. Otherwise nothing."""

from collections.abc import Callable, Sequence

from gpudoctor.config import Slurm
from gpudoctor.knowledge.slurm_reason import read, written
from gpudoctor.report import Finding, Report
from gpudoctor.slurm_drain import Controller, NodeUnknownError, SlurmNode
from gpudoctor.slurm_judging import Marked, judge
from gpudoctor.slurm_memory import CannotRememberError, Memory, MemoryFile, seconds_since_boot
from gpudoctor.verdicts import SubjectKind

Say = Callable[[str], None]

FRESH_SECONDS = 60.0
"""What was seen longer ago changes nothing: Slurm would have ended the run by now, and it was stopped, or slept, in between."""


class HealthCheck:
    """One run. Whatever it does not know, it leaves alone."""

    def __init__(self, rules: Slurm, controller: Controller, say: Say, *, dry_run: bool) -> None:
        self._rules = rules
        self._controller = controller
        self._say = say
        self._dry_run = dry_run
        self._began = seconds_since_boot()

    def run(
        self, memory: MemoryFile, look: Callable[[], Report], marks: Sequence[str], essential: Sequence[str]
    ) -> None:
        """Look at the GPUs, remember it, and then act on it. Raises CannotRememberError before anything is done to the node."""
        before = self._recall(memory)
        found = judge(look(), marks, essential)
        after = before.after(found.fails, well=found.all_pass)
        if not self._dry_run:
            memory.write(after)
        seen = self._act(found, after)
        if seen is not None and not self._dry_run:
            try:
                memory.write(after.seen(seen))
            except CannotRememberError as error:
                self._say(str(error))

    def _recall(self, memory: MemoryFile) -> Memory:
        """What was remembered. Until this run has ended the file counts no fails: those before and after one that dies are not in a row."""
        try:
            before = memory.read()
        except CannotRememberError:
            if not self._dry_run:
                memory.write(memory.nothing())
            raise
        if not self._dry_run:
            memory.write(before.interrupted())
        return before

    def _act(self, found: Marked, memory: Memory) -> bool | None:
        """Drain or take back, where there is reason to; whether the node is drained by us afterwards, None when nobody looked."""
        if found.fails:
            return self._failed(found, memory)
        if found.open:
            for check, why in found.open.items():
                self._say(f"not known to be well, so nothing is done: {check}: {why}")
            return None
        if not (self._rules.drain and self._rules.undrain and found.all_pass) or memory.ours is False:
            return None
        # What is well only now and then would come and go with its jobs.
        if memory.well < self._rules.failures:
            return None
        node = self._look()
        return None if node is None else self._take_back(node, found)

    def _failed(self, found: Marked, memory: Memory) -> bool | None:
        ripe = [check for check in found.fails if memory.streaks.get(check, 0) >= self._rules.failures]
        for check, findings in found.fails.items():
            times = f"run {memory.streaks.get(check, 0)} of {self._rules.failures}"
            self._say(f"{times}: {check}: {_where(findings)}: {findings[0].summary}")
        if not ripe:
            return None
        reason = _reason(ripe, found)
        if not self._rules.drain:
            self._say(f"the configuration allows no draining (slurm.drain); the reason would be: {reason}")
            return None
        node = self._look()
        if node is None:
            return None
        if node.why_not_drain:
            reason = _widened(node, ripe, found)
            if not reason:
                self._say(f"left alone: the node {node.why_not_drain}")
                return node.ours
        return self._change("drained", reason, lambda: self._controller.drain(reason), became=True)

    def _take_back(self, node: SlurmNode, found: Marked) -> bool:
        """Back into service, when the very GPUs that it was drained for are there and pass."""
        if not node.ours:
            return False
        why = node.why_not_undrain or _why_not_cured(node.reason, found)
        if why:
            self._say(f"stays drained ({node.reason}): {why}")
            return True
        return self._change("taken back", node.reason, self._controller.undrain, became=False)

    def _look(self) -> SlurmNode | None:
        try:
            return self._controller.look()
        except NodeUnknownError as error:
            self._say(f"the node's state is not known, so nothing is done: {error}")
            return None

    def _change(self, done: str, reason: str, change: Callable[[], None], *, became: bool) -> bool:
        """Make a change to the node; whether it is drained by us afterwards."""
        if not 0 <= seconds_since_boot() - self._began <= FRESH_SECONDS:
            self._say(f"took longer than {FRESH_SECONDS:.0f} s, so it is not {done}: {reason}")
            return True
        if self._dry_run:
            self._say(f"dry run, else it would now be {done}: {reason}")
            return not became
        try:
            change()
        except NodeUnknownError as error:
            # It may have been done all the same: then the next run that looks sees it.
            self._say(f"could not be {done}: {error}")
            return True
        self._say(f"{done}: {reason}")
        return became


def _reason(ripe: Sequence[str], found: Marked) -> str:
    """The first check in chain order is named, and every GPU that failed any of those that are ripe."""
    return written(ripe[0], _all_gpus(ripe, found), found.fails[ripe[0]][0].summary)


def _all_gpus(ripe: Sequence[str], found: Marked) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for check in ripe for key in _gpus(found.fails[check])))


def _widened(node: SlurmNode, ripe: Sequence[str], found: Marked) -> str:
    """The reason of a node that we have drained, with GPUs that failed since: each must be well before it is taken back; else ""."""
    told = read(node.reason)
    if told is None or not told.sealed or not told.gpus or node.why_not_undrain:
        return ""
    new = [gpu for gpu in _all_gpus(ripe, found) if gpu not in told.gpus]
    return written(told.check, (*told.gpus, *new), told.words) if new else ""


def _gpus(findings: Sequence[Finding]) -> list[str]:
    return [finding.subject.key for finding in findings if finding.subject.kind is SubjectKind.GPU]


def _where(findings: Sequence[Finding]) -> str:
    return ", ".join(finding.subject.key for finding in findings)


def _why_not_cured(reason: str, found: Marked) -> str:
    """Why the fault that a reason tells of is not known to be gone: a GPU that is missing passes nothing."""
    told = read(reason)
    if told is None or not told.gpus:
        return "its reason is not written as ours are"
    if not told.sealed:
        return "its reason was changed since it was written, which makes it somebody's own"
    if told.check not in found.passes:
        return f"{told.check} was not seen to pass"
    missing = [gpu for gpu in told.gpus if gpu not in found.passes[told.check]]
    return f"{', '.join(missing)} was not seen to pass" if missing else ""
