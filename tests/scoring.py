"""How often gpudoctor names what is wrong: each piece of the corpus against tests/corpus_key.tsv, each recorded node against its author.

The key was written from the corpus' MANIFEST and from the captures, not from what gpudoctor says of them. Its expectations:

    healthy          no fail may come; a remark (a warning) may
    fault ID[,ID]    the first root cause must come from one of these checks
    piece            of a sick machine, but it does not show what is wrong: no fail may come
    later LINK       the fault belongs to a link that has no checks for it yet
    unread           no form that gpudoctor reads as a node or a piece of one
"""

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.chain import Link
from gpudoctor.report import Report, Result
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.verdicts import Status
from tests.captures import crashed, diagnose, manifest_lines
from tests.pieces import builder_of

KEY = Path(__file__).with_name("corpus_key.tsv")
GATE = Path(__file__).resolve().parent.parent / "bench" / "score_gate.json"

GPUS_PRESENT = "pcie.gpus-present"
JUDGED = (Status.PASS, Status.WARN, Status.FAIL)

COUNTED_ORIGINS = ("capture", "cut from capture", "pasted excerpt")
"""Rows of the MANIFEST that hold what a machine really printed: the corpus' README says to count no others."""


class Outcome(str, Enum):
    """How a case ended."""

    FIRST = "first"
    NOT_FIRST = "not first"
    MISSED = "missed"
    SILENT = "silent"
    FALSE_FAIL = "false fail"
    CRASHED = "crashed"
    LATER = "later"
    UNREAD = "unread"


class Expected(Struct, frozen=True):
    """What the key says of a piece. `words` are the ids of checks of a fault, the link of a later one."""

    path: str
    is_a: str
    words: tuple[str, ...] = ()
    note: str = ""

    @property
    def kind(self) -> str:
        """The folder of the corpus."""
        return self.path.partition("/")[0]


class Scored(Struct, frozen=True):
    """One case: which, how it ended, and what gpudoctor said: its root causes, or why it crashed.

    `wanted` are the right checks of a fault that can be found, `link` is the later link of one that cannot yet.
    `judged` is how many checks passed, warned or failed beside that GPUs are present, which tests/pieces.py sees to: where none
    did, silence is cheap. `instead` is how the wanted checks of a fault ended that was not named first.
    """

    name: str
    kind: str
    outcome: Outcome
    wanted: tuple[str, ...] = ()
    link: str = ""
    said: tuple[str, ...] = ()
    judged: int = 0
    instead: tuple[str, ...] = ()


class Recall(Struct, frozen=True):
    """Faults whose check came first, of all that could be found."""

    first: int
    faults: int

    def below(self, other: "Recall") -> bool:
        """Whether this is the lower share."""
        return self.first * other.faults < other.first * self.faults

    def __str__(self) -> str:
        return f"{self.first} of {self.faults}"


def key() -> tuple[Expected, ...]:
    """The key's rows. Raises ValueError for one that is not of its form."""
    return tuple(_row(line) for line in KEY.read_text("utf-8").splitlines()[1:])


def _row(line: str) -> Expected:
    path, expectation, note = line.split("\t")
    is_a, _, rest = expectation.partition(" ")
    words = tuple(rest.split(",")) if rest else ()
    if is_a not in ("healthy", "fault", "piece", "later", "unread") or bool(words) != (is_a in ("fault", "later")):
        raise ValueError(f"{path}: {expectation!r} is no expectation")
    if is_a == "later":
        assert [Link(word) for word in words]
    return Expected(path, is_a, words, note)


def counted_paths(corpus: Path) -> list[str]:
    """The pieces that must be in the key."""
    return [line.path for line in manifest_lines(corpus) if line.origin in COUNTED_ORIGINS]


def score_corpus(corpus: Path) -> tuple[Scored, ...]:
    """Every row of the key."""
    return tuple(_score_piece(corpus, row) for row in key())


def _score_piece(corpus: Path, row: Expected) -> Scored:
    """What cannot be read yet is not tried; a later link's piece must not crash gpudoctor, whatever it says."""
    wanted = row.words if row.is_a == "fault" else ()
    case = Scored(row.path, row.kind, Outcome.UNREAD, wanted, link=row.words[0] if row.is_a == "later" else "")
    build = None if row.is_a == "unread" else builder_of(row.path)
    if build is None and row.is_a in ("unread", "later"):
        return replace(case, outcome=Outcome(row.is_a))
    try:
        if build is None:
            raise ValueError("the key expects something of a form that tests/pieces.py does not build")
        report = diagnose(build(corpus / row.path))
    # Whatever gpudoctor raises over a capture is a crash to be counted, not the end of the count.
    except Exception as error:
        return replace(case, outcome=Outcome.CRASHED, said=(f"{type(error).__name__}: {error}",))
    return _scored(case, report)


def score_fixtures() -> tuple[Scored, ...]:
    """Every recorded node of this repository."""
    return tuple(_score_fixture(place) for place in sorted(fixtures().iterdir()) if place.is_dir())


def _score_fixture(place: Path) -> Scored:
    expected = json.loads((place / "expected.json").read_text("utf-8"))
    wanted = tuple(sorted({cause["check"] for cause in expected["root_causes"]}))
    return _scored(Scored(place.name, "recorded node", Outcome.MISSED, wanted), run_node(node(place.name)))


def _scored(case: Scored, report: Report) -> Scored:
    if broken := crashed(report):
        return replace(case, outcome=Outcome.CRASHED, said=tuple(broken))
    outcome = Outcome.LATER if case.link else _outcome(report, case.wanted)
    lacking = case.wanted if outcome in (Outcome.MISSED, Outcome.NOT_FIRST) else ()
    return replace(
        case,
        outcome=outcome,
        said=tuple(f"{cause.status.value} {cause.check}: {cause.summary}" for cause in report.root_causes),
        judged=sum(result.check != GPUS_PRESENT and result.status in JUDGED for result in report.results),
        instead=tuple(_ended(report.result(check)) for check in lacking),
    )


def _outcome(report: Report, wanted: tuple[str, ...]) -> Outcome:
    causes = [cause.check for cause in report.root_causes]
    if not wanted:
        failed = any(cause.status is Status.FAIL for cause in report.root_causes)
        return Outcome.FALSE_FAIL if failed else Outcome.SILENT
    if not set(causes) & set(wanted):
        return Outcome.MISSED
    return Outcome.FIRST if causes[0] in wanted else Outcome.NOT_FIRST


def _ended(result: Result) -> str:
    why = f" ({result.why})" if result.why else ""
    return f"{result.check} {result.status.value}{why}: {result.detail}"


def recall(cases: tuple[Scored, ...]) -> Recall:
    """Over all faults that could be found; a crash over one finds nothing."""
    first = sum(case.outcome is Outcome.FIRST for case in cases)
    return Recall(first, sum(bool(case.wanted) for case in cases))


def gate() -> Mapping[str, Recall]:
    """The recall that must at least be reached, of `corpus` and `fixtures`."""
    return {name: Recall(**figures) for name, figures in json.loads(GATE.read_text("utf-8")).items()}


def problems(name: str, cases: tuple[Scored, ...], least: Recall) -> Iterator[str]:
    """What may not be: a false fail, a crash, a recall below the gate."""
    for case in cases:
        if case.outcome in (Outcome.FALSE_FAIL, Outcome.CRASHED):
            yield f"{case.name}: {case.outcome.value}: {'; '.join(case.said)}"
    if recall(cases).below(least):
        yield f"{name}: the right root cause came first for {recall(cases)}, the gate says {least}"
