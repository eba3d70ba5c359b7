"""Containers that did not start for their GPU, as the journals of the engines and of the kubelet tell it, and what dockerd keeps of them.

A journal names a sentence of the toolkit's, the engine's or CDI's; knowledge/start_errors.py says what each of them means, and what else
of the node may say more, or show another error behind it. A failure behind which a container got its GPU by the same engine and the
toolkit is over: one that is privileged, or was given nodes by hand, shows nothing of the toolkit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.daemons import Daemons, Program
from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.docker_kept import KeptContainer, KeptContainers
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.podman import PROGRAMS
from gpudoctor.facts.raw import JOURNALS, Entry, Log, Raw, SourceKind
from gpudoctor.facts.start_circumstances import Circumstance, Told, look
from gpudoctor.facts.start_containers import StartedContainer, known_as, named_in
from gpudoctor.facts.start_successes import Starts
from gpudoctor.knowledge.start_errors import ANCHOR, ERRORS, StartError, Whose
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

KUBELET, DOCKER, PODMAN = "kubelet", "docker", "podman"
PODMAN_UNIT = "podman.service"
"""It is started by its socket and ends behind a request (podman-system-service(1)): that it does not run tells nothing."""
OF_REQUESTS = "cdi-unresolvable"
"""What dockerd keeps of containers that asked for CDI devices in vain is read by facts/cdi_requests.py, with what they ask for."""
SAME = 2.0
"""Seconds by which a line without a name and the time of a file may differ that tell of one failure."""
MOST_CONTAINERS = 3
"""Of those that failed alike as many are named, the latest."""
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
    Program.DOCKERD: DOCKER,
    Program.CONTAINERD: "containerd",
    Program.CRIO: "cri-o",
    Program.KUBELET: KUBELET,
}

# journalctl -o short-iso: "2026-11-29T12:00:00+0000 n1 dockerd[935]: …"; +00:00 since systemd 255.
_LINE = pattern(r"^(\S*\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ [^:\[]+(?:\[\d+\])?: (.*)$")
_CONTAINER = pattern(r"\b([0-9a-f]{64})\b")


class StartFailure(Citable, frozen=True):
    """One kind of failure in one engine's journal: its last line, how many there are, and what the sentence names.

    `names` are the containers of those lines, the latest last; only of a failure that is not over it is known more than their names,
    and what bears on it.
    """

    engine: str
    error: StartError
    detail: str
    count: int
    last: Told
    names: tuple[str, ...] = ()
    containers: tuple[StartedContainer, ...] = ()
    circumstances: tuple[Circumstance, ...] = ()

    @property
    def at(self) -> float | None:
        """When the last line was written, in seconds since the epoch."""
        return self.last.at

    @property
    def subject(self) -> Subject:
        """The engine."""
        return Subject(SubjectKind.SERVICE, self.engine)

    @property
    def meaning(self) -> str:
        """What the sentence means, with what it names and what bears on it."""
        means = self.error.means.replace("{0}", self.detail or "something that it does not name")
        return "; ".join((means, *(one.words for one in self.circumstances if one.words)))

    @property
    def unsettled(self) -> Unread | None:
        """What could not be read and would tell whose fault it is."""
        return next((one.unread for one in self.circumstances if one.unread is not None), None)

    @property
    def who(self) -> str:
        """The containers, as far as the journal tells them apart."""
        titles = [one.title for one in self.containers[-MOST_CONTAINERS:]]
        more = len(self.names) - len(titles)
        return (", ".join(titles) + (f" and {more} more" if more > 0 else "")) or "a container"

    @property
    def evidence(self) -> Cited:
        """The line, what is known of its container, and what bears on it."""
        last = self.containers[-1].evidence if self.containers else ()
        return (*self.cite("line"), *last, *(piece for one in self.circumstances for piece in one.evidence))


class EngineJournal(Citable, frozen=True):
    """What one engine's journal tells. `failures` are those not followed by a start that succeeded, the latest first; `over` the others.

    `unread` is why the journal itself was not read, where what dockerd keeps of containers tells of failures. `cured` is what shows that
    the last of those that are over was cured by a restart.
    """

    failures: tuple[StartFailure, ...]
    over: tuple[StartFailure, ...]
    unread: Unread | None = None
    cured: Cited = ()


class _Line(Struct, frozen=True):
    """One line: of a journal, or the error of a container that dockerd keeps and that is called so. `name` is what it speaks of."""

    message: str
    at: float | None
    stamp: str | None
    where: str
    name: str
    called: str = ""


class _Matched(Struct, frozen=True):
    """A line with the error that it tells, what it names of that, and where its sentence begins."""

    line: _Line
    error: StartError
    detail: str
    begin: int


class StartFailures(Fact, frozen=True):
    """The journals by engine, or why one cannot be read. `unseen` is why it is not known what has been started since."""

    journals: Mapping[str, EngineJournal | Unread]
    unseen: Unread | None = None

    def of(self, engine: str, name: str) -> tuple[StartFailure, ...]:
        """The failures of one kind that one engine's journal tells and that are not over."""
        journal = self.journals.get(engine)
        failures = journal.failures if isinstance(journal, EngineJournal) and self.unseen is None else ()
        return tuple(one for one in failures if one.error.name == name and one.unsettled is None)

    @classmethod
    def gather(cls, desk: Desk) -> "StartFailures | Unread":
        """The journals of the daemons that run; in a recording that shows no processes those that it holds."""
        daemons = desk.get(Daemons)
        units = dict(_units(daemons, desk.raw))
        if not units:
            return daemons if isinstance(daemons, Unread) else cls(journals={})
        workloads = desk.get(GpuWorkloads)
        unseen = workloads if isinstance(workloads, Unread) and workloads.why is not Why.NOT_RECORDED else None
        starts = Starts.of(desk, workloads)
        read = {engine: _journal(desk, engine, unit, starts) for engine, unit in units.items()}
        journals = {engine: journal for engine, journal in read.items() if engine != PODMAN or _tells(journal)}
        if not journals and isinstance(daemons, Unread):
            return daemons
        told = _without_echoes(journals)
        return cls(
            journals={engine: _with_surroundings(desk, journal) for engine, journal in told.items()}, unseen=unseen
        )


def _tells(journal: EngineJournal | Unread) -> bool:
    return isinstance(journal, EngineJournal) and bool(journal.failures or journal.over)


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


def _with_surroundings(desk: Desk, journal: EngineJournal | Unread) -> EngineJournal | Unread:
    """With what else of the node bears on what is not over."""
    if isinstance(journal, Unread):
        return journal
    failures: list[StartFailure] = []
    over: list[StartFailure] = []
    cures: list[Cited] = []
    for failure in journal.failures:
        cure = _cured(desk, failure)
        if isinstance(cure, Unread) or not cure:
            failures.append(_with_circumstances(desk, failure, cure if isinstance(cure, Unread) else None))
        else:
            over.append(failure)
            cures.append(cure)
    return replace(
        journal, failures=tuple(failures), over=(*over, *journal.over), cured=next(iter(cures), journal.cured)
    )


def _cured(desk: Desk, failure: StartFailure) -> Cited | Unread:
    from gpudoctor.facts.start_cures import cured

    return cured(desk, failure.engine, failure.error.name, failure.detail, failure.at)


def _with_circumstances(desk: Desk, failure: StartFailure, uncertain: Unread | None) -> StartFailure:
    """`uncertain` is why it is not known whether a restart has cured it."""
    looked = [look(desk, beside, failure.last) for beside in failure.error.beside]
    looked += [*failure.circumstances, None if uncertain is None else Circumstance(unread=uncertain)]
    circumstances = tuple(one for one in looked if one is not None)
    instead = next((one.instead for one in circumstances if one.instead is not None), failure.error)
    containers = tuple(known_as(desk, name) for name in failure.names[-MOST_CONTAINERS:])
    return replace(failure, error=instead, containers=containers, circumstances=circumstances)


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
    if any(isinstance(raw.entry(program, follow=True), Entry) for program in PROGRAMS):
        yield PODMAN, PODMAN_UNIT


def _name(unit: str) -> str:
    return f"{JOURNALS}{unit}.log"


def _journal(desk: Desk, engine: str, unit: str, starts: Starts) -> EngineJournal | Unread:
    log = desk.raw.log(_name(unit))
    lines = [] if isinstance(log, Unread) else list(_lines(log))
    kept = list(_kept(desk)) if engine == DOCKER else []
    failures: tuple[StartFailure, ...] = ()
    over: list[StartFailure] = []
    for one in _failures(engine, lines, kept):
        # For a node that came late the node is enough.
        later = starts.after(engine, one.at, by_hand=one.error.whose is Whose.ORDER)
        if later is True:
            over.append(one)
        else:
            doubts = (Circumstance(unread=later),) if isinstance(later, Unread) else ()
            failures += (replace(one, circumstances=doubts),)
    if isinstance(log, Unread):
        return EngineJournal(failures=failures, over=tuple(over), unread=log) if failures else log
    looked = Evidence(log.where, f"{len(log.text.splitlines())} lines were looked through")
    return EngineJournal(failures=failures, over=tuple(over), read_from={"journal": looked})


def _lines(log: Log) -> Iterator[_Line]:
    """Those of which one of the errors may tell."""
    for line in log.text.splitlines():
        said = _LINE.match(line)
        if said is not None and re.search(ANCHOR, said[2]):
            yield _Line(said[2], _moment(said[1]), said[1], log.where, named_in(said[2]))


def _kept(desk: Desk) -> Iterator[_Line]:
    """What dockerd keeps of containers whose last start failed, in the form in which a journal would have it."""
    kept, booted = desk.get(KeptContainers), booted_at(desk.raw)
    for one in () if isinstance(kept, Unread) else kept.containers:
        if one.failed and re.search(ANCHOR, one.state.error) and one.since(booted, desk.raw):
            yield _as_line(one, one.written(desk.raw))


def _as_line(one: KeptContainer, at: float | None) -> _Line:
    import datetime

    moment = None if at is None else datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
    stamp = None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S%z}"
    return _Line(one.state.error.replace("\n", "\\n"), at, stamp, one.path, one.id, one.name or one.id)


def _failures(engine: str, lines: Sequence[_Line], kept: Sequence[_Line]) -> Iterable[StartFailure]:
    """By the error that each line matches first, the latest first."""
    logged = [matched for line in lines if (matched := _matched(line)) is not None]
    stay = [matched for line in kept if (matched := _matched(line)) is not None]
    news = [one for one in stay if one.error.name != OF_REQUESTS and not any(_same(one, told) for told in logged)]
    found: dict[tuple[str, str], StartFailure] = {}
    for one in sorted((*logged, *news), key=lambda one: float("inf") if one.line.at is None else one.line.at):
        line, error, detail = one.line, one.error, one.detail
        before = found.pop((error.name, detail), None)
        names = dict.fromkeys((*(before.names if before is not None else ()), line.name))
        found[error.name, detail] = StartFailure(
            engine=engine,
            error=error,
            detail=detail,
            count=1 if before is None else before.count + 1,
            last=Told(line.message, detail, line.at),
            names=tuple(name for name in names if name),
            read_from={"line": Evidence(line.where, _abridged(line.message, one.begin), at=line.stamp)},
        )
    return reversed(found.values())


def _matched(line: _Line) -> _Matched | None:
    found = next(((error, match) for error in ERRORS if (match := re.search(error.form, line.message))), None)
    if found is None:
        return None
    error, match = found
    detail = next((group for group in match.groups() if group), "").rstrip('\\" .:,')[:MOST_LETTERS]
    # A form that excludes words of the whole line begins where that does: its sentence is at the end.
    return _Matched(line, error, detail, match.start() or max(0, match.end() - MOST_LETTERS))


def _same(kept: _Matched, told: _Matched) -> bool:
    """Whether a journal tells what is kept: of the container by its id or name, or of none within a second or two."""
    own, line = kept.line, told.line
    if kept.error.name != told.error.name:
        return False
    if own.name in line.message or f"/containers/{own.called}/" in line.message:
        return True
    near = own.at is not None and line.at is not None and abs(own.at - line.at) <= SAME
    return not line.name and near and kept.detail == told.detail


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
