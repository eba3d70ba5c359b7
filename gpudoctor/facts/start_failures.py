"""Containers that did not start for their GPU, as the journals of the engines and of the kubelet tell it.

A journal names a sentence of the toolkit's, the engine's or CDI's; knowledge/start_errors.py says what each of them means. A failure
behind which a container with a GPU was started by the same engine is over.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.daemons import TICKS_PER_SECOND, Daemons, Program
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.raw import JOURNALS, Log, Raw, SourceKind
from gpudoctor.knowledge.start_errors import ANCHOR, ERRORS, StartError
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

KUBELET = "kubelet"
MOST_LETTERS = 100
"""Of what a sentence names as much is repeated: the kernel's verifier of programs can go on for pages."""

UNITS = {
    Program.DOCKERD: "docker.service",
    Program.CONTAINERD: "containerd.service",
    Program.CRIO: "crio.service",
    Program.KUBELET: "kubelet.service",
}
"""The unit of each daemon as its packages name it; where it runs in another, that counts (snap.docker.dockerd.service, k3s.service)."""

ENGINES = {
    Program.DOCKERD: "docker",
    Program.CONTAINERD: "containerd",
    Program.CRIO: "cri-o",
    Program.KUBELET: KUBELET,
}
_ENGINE_OF = {"docker": ("docker",), "containerd": ("containerd", "nerdctl"), "cri-o": ("crio", "cri-o")}
"""What an engine is called by the control groups of its containers; the kubelet starts those of any."""

# journalctl -o short-iso: "2026-11-29T12:00:00+0000 n1 dockerd[935]: …"; +00:00 since systemd 255.
_LINE = re.compile(r"^(\S*\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ [^:\[]+(?:\[\d+\])?: (.*)$")
_CONTAINER = re.compile(r"\b([0-9a-f]{64})\b")


class StartFailure(Citable, frozen=True):
    """One kind of failure in one engine's journal: its last line, how many there are, and what the sentence names."""

    engine: str
    error: StartError
    detail: str
    count: int
    at: float | None

    @property
    def subject(self) -> Subject:
        """The engine."""
        return Subject(SubjectKind.SERVICE, self.engine)

    @property
    def meaning(self) -> str:
        """What the sentence means, with what it names."""
        return self.error.means.replace("{0}", self.detail or "something that it does not name")


class EngineJournal(Citable, frozen=True):
    """What one engine's journal tells. `failures` are those not followed by a start that succeeded, the latest first; `over` the others."""

    failures: tuple[StartFailure, ...]
    over: tuple[StartFailure, ...]


class StartFailures(Fact, frozen=True):
    """The journals by engine, or why one cannot be read. `unseen` is why it is not known what has been started since."""

    journals: Mapping[str, EngineJournal | Unread]
    unseen: Unread | None = None

    def of(self, engine: str, name: str) -> tuple[StartFailure, ...]:
        """The failures of one kind that one engine's journal tells and that are not over."""
        journal = self.journals.get(engine)
        failures = journal.failures if isinstance(journal, EngineJournal) and self.unseen is None else ()
        return tuple(one for one in failures if one.error.name == name)

    @classmethod
    def gather(cls, desk: Desk) -> "StartFailures | Unread":
        """The journals of the daemons that run; in a recording that shows no processes those that it holds."""
        daemons = desk.get(Daemons)
        units = dict(_units(daemons, desk.raw))
        if not units and isinstance(daemons, Unread):
            return daemons
        if not units:
            return cls(journals={})
        workloads = desk.get(GpuWorkloads)
        unseen = workloads if isinstance(workloads, Unread) and workloads.why is not Why.NOT_RECORDED else None
        started = {} if isinstance(workloads, Unread) else _starts(desk.raw, workloads)
        journals = {engine: _journal(desk.raw, engine, unit, started) for engine, unit in units.items()}
        return cls(journals=_without_echoes(journals), unseen=unseen)


def _without_echoes(journals: Mapping[str, EngineJournal | Unread]) -> dict[str, EngineJournal | Unread]:
    """The kubelet repeats what its engine said; that counts where the engine's own journal does not tell it."""
    told = {
        (one.error.name, one.detail)
        for engine, journal in journals.items()
        if engine != KUBELET and isinstance(journal, EngineJournal)
        for one in (*journal.failures, *journal.over)
    }
    kubelet = journals.get(KUBELET)
    if not isinstance(kubelet, EngineJournal):
        return dict(journals)
    own = tuple(one for one in kubelet.failures if (one.error.name, one.detail) not in told)
    return {**journals, KUBELET: replace(kubelet, failures=own)}


def _units(daemons: Daemons | Unread, raw: Raw) -> Iterator[tuple[str, str]]:
    """The unit of each engine; several daemons of one program, as inside of Docker's, have one that systemd starts."""
    running = () if isinstance(daemons, Unread) else daemons.of(*ENGINES)
    for daemon in running:
        # A containerd that dockerd or k3s started writes into the journal of theirs.
        if daemon.program is not Program.CONTAINERD or daemon.unit in ("", UNITS[Program.CONTAINERD]):
            yield ENGINES[daemon.program], daemon.unit or UNITS[daemon.program]
    if raw.kind in (SourceKind.SNAPSHOT, SourceKind.BUG_REPORT):
        for program, engine in ENGINES.items():
            unit = UNITS[program]
            if all(daemon.program is not program for daemon in running) and isinstance(raw.log(_name(unit)), Log):
                yield engine, unit


def _name(unit: str) -> str:
    return f"{JOURNALS}{unit}.log"


def _journal(raw: Raw, engine: str, unit: str, started: Mapping[str, float]) -> EngineJournal | Unread:
    log = raw.log(_name(unit))
    if isinstance(log, Unread):
        return log
    found = list(_failures(engine, log))
    later = max((moment for name, moment in started.items() if name in _ENGINE_OF.get(engine, (name,))), default=None)
    over = [one for one in found if later is not None and one.at is not None and one.at < later]
    return EngineJournal(
        failures=tuple(one for one in found if one not in over),
        over=tuple(over),
        read_from={"journal": Evidence(log.where, f"{len(log.text.splitlines())} lines were looked through")},
    )


def _failures(engine: str, log: Log) -> Iterable[StartFailure]:
    """By the error that each line matches first, the latest first."""
    found: dict[tuple[str, str], StartFailure] = {}
    for line in log.text.splitlines():
        said = _LINE.match(line)
        if said is None or not re.search(ANCHOR, said[2]):
            continue
        matched = next(((error, match) for error in ERRORS if (match := re.search(error.form, said[2]))), None)
        if matched is None:
            continue
        error, match = matched
        detail = next((group for group in match.groups() if group), "").rstrip('\\" .:,')[:MOST_LETTERS]
        before = found.pop((error.name, detail), None)
        found[error.name, detail] = StartFailure(
            engine=engine,
            error=error,
            detail=detail,
            count=1 if before is None else before.count + 1,
            at=_moment(said[1]),
            read_from={"line": Evidence(log.where, _abridged(said[2], match.start()), at=said[1])},
        )
    return reversed(found.values())


def _abridged(message: str, at: int) -> str:
    """The sentence with what surrounds it; engines put it at the end of long ones."""
    begin = max(0, at - 60)
    return f"{'…' if begin else ''}{_CONTAINER.sub(lambda found: found[1][:12], message[begin : at + 240])}"


def _moment(stamp: str) -> float | None:
    """Seconds since the epoch of `2026-11-29T12:00:00+0000`; None for a time that names no zone."""
    import datetime

    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"):
        try:
            return datetime.datetime.strptime(stamp, form).timestamp()
        except ValueError:
            continue
    return None


def _starts(raw: Raw, workloads: GpuWorkloads) -> dict[str, float]:
    """When each engine last started a container that has a GPU and still runs, in seconds since the epoch."""
    booted = booted_at(raw)
    if booted is None:
        return {}
    started: dict[str, float] = {}
    for one in workloads:
        leading = one.workload.leading
        if leading is not None and leading.started and one.has_gpu is True:
            moment = booted + leading.started / TICKS_PER_SECOND
            started[one.workload.engine] = max(started.get(one.workload.engine, 0.0), moment)
    return started
