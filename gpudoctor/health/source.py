"""The raw interface over a source, with a memory of its kernel log, and with NVML left alone while nobody uses the GPUs."""

from collections.abc import Callable

from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.raw import Answer, Gate, Log, Question, Raw, SourceKind
from gpudoctor.facts.relayed import Relayed
from gpudoctor.health import log_memory
from gpudoctor.health.idle import why_idle
from gpudoctor.health.log_memory import Kept
from gpudoctor.verdicts import Unread, Why


class Remembering(Relayed):
    """Hands every question on. `idle` says why NVML was not asked, "" where it was, or where nobody wanted to."""

    def __init__(self, raw: Raw, *, ask_nvml: bool) -> None:
        super().__init__(raw)
        self._kept, self._previous = Kept(), Kept()
        self._first = True
        self._ask_nvml = ask_nvml or raw.kind not in (SourceKind.LIVE, SourceKind.ROOT)
        self._answers: dict[str, Answer | Unread] = {}
        self._logs: dict[str, Log | Unread] = {}
        self.read_log: log_memory.Read | None = None
        self.idle = ""
        self.asked = False

    def remember(self, kept: Kept, previous: Kept, *, first_of_boot: bool) -> None:
        """What was kept of the logs of this boot and the one before; to be told before a log is read."""
        self._kept, self._previous = kept, previous
        self._first = first_of_boot

    def log(self, name: str) -> Log | Unread:
        """A log: that of this boot with what it has lost meanwhile, that of the boot before from memory where nothing else has it."""
        if name not in (NAME, PREVIOUS):
            return self._raw.log(name)
        if name not in self._logs:
            self._logs[name] = self._this_boot() if name == NAME else self._boot_before()
        return self._logs[name]

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """What an API answered. Who holds the GPUs is asked once, for the decision on NVML too."""
        if name == "holders":
            return self._once(name, lambda: self._raw.answer(name, gate))
        if name != "nvml":
            return self._raw.answer(name, gate)
        self.asked = True
        return self._raw.answer(name, gate if self._ask_nvml else lambda: self._unless_idle(gate))

    def _once(self, name: str, ask: Callable[[], Answer | Unread]) -> Answer | Unread:
        if name not in self._answers:
            self._answers[name] = ask()
        return self._answers[name]

    def _unless_idle(self, gate: Gate) -> Question | Unread:
        """The gate comes first: what it withholds NVML for is a matter of its own."""
        question = gate()
        if isinstance(question, Unread):
            return question
        self.idle = why_idle(self)
        return Unread(Why.WITHHELD, "NVML", self.idle) if self.idle else question

    def _this_boot(self) -> Log | Unread:
        log = self._raw.log(NAME)
        if isinstance(log, Unread):
            return log
        self.read_log = log_memory.read(log, self._kept, first=self._first)
        return self.read_log.log

    def _boot_before(self) -> Log | Unread:
        log = self._raw.log(PREVIOUS)
        lines = () if isinstance(log, Log) else self._previous.lines
        if not lines:
            return log
        text = "".join(f"{line}\n" for line in lines)
        return Log(PREVIOUS, text, source="what was kept of it")
