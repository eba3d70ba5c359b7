"""The engine's rules, each by small checks made for it: gating, folding, waivers, crashes, order."""

import datetime
from collections.abc import Callable, Sequence

import pytest

from gpudoctor.chain import BELOW, STANDS_ON, Link
from gpudoctor.config import Config, Waiver
from gpudoctor.diagnosis import diagnose, report_on
from gpudoctor.engine import run_checks
from gpudoctor.facts.desk import Desk, Fact, Population, Reading
from gpudoctor.registry import Registry, RegistryError, check
from gpudoctor.report import Node, Overall, Report
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Action,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Status,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
SEEN = (Evidence("/somewhere", "something"),)
DO = (Remedy(Action.NONE, "look"),)
GPUS = tuple(Subject(SubjectKind.GPU, f"0000:0{number}:00.0") for number in range(1, 5))
BOX = Subject(SubjectKind.CONTAINER, "box", stands_on=(GPUS[0], GPUS[1]))


class Gpus(Population, frozen=True):
    """Four GPUs."""

    @property
    def members(self) -> Sequence[AboutSubject]:
        """The four."""
        return GPUS

    @classmethod
    def gather(cls, desk: Desk) -> "Gpus | Unread":
        """Always known."""
        return cls()


class Nothing(Population, frozen=True):
    """An empty population, completely listed."""

    @property
    def members(self) -> Sequence[AboutSubject]:
        """None."""
        return ()

    @classmethod
    def gather(cls, desk: Desk) -> "Nothing | Unread":
        """Always known."""
        return cls()


class HalfListed(Nothing, frozen=True):
    """An empty population, perhaps not completely listed."""

    @classmethod
    def gather(cls, desk: Desk) -> "HalfListed | Unread":
        """Partly known."""
        return cls(unlisted=Unread(Why.NOT_RECORDED, "/list", "perhaps more"))


class Boxes(Population, frozen=True):
    """One container on the first two GPUs."""

    @property
    def members(self) -> Sequence[AboutSubject]:
        """The container."""
        return (BOX,)

    @classmethod
    def gather(cls, desk: Desk) -> "Boxes | Unread":
        """Always known."""
        return cls()


class Hidden(Fact, frozen=True):
    """A fact that cannot be read."""

    @classmethod
    def gather(cls, desk: Desk) -> "Hidden | Unread":
        """Never known."""
        return Unread(Why.NO_PERMISSION, "/hidden", "permission denied", would_need="root")


class Broken(Fact, frozen=True):
    """A fact whose parser has a bug."""

    @classmethod
    def gather(cls, desk: Desk) -> "Broken | Unread":
        """Fails."""
        raise IndexError("off by one")


def ok(about: AboutSubject) -> Verdict:
    """A pass."""
    return Pass(about, "fine", SEEN)


def bad(about: AboutSubject, cause: str = "", breaks: Breaks = Breaks.SUBJECT, of: tuple[Subject, ...] = ()) -> Verdict:
    """A fail."""
    return Fail(about, "broken", SEEN, DO, breaks, cause=cause, of=of)


def diagnose_with(registry: Registry, config: Config | None = None, wanted: frozenset[str] | None = None) -> Report:
    """The report of the registry's checks over an empty recording."""
    config = config or Config()
    desk = Desk(RecordedNode(Tree()), config)
    outcomes = run_checks(registry, desk, frozenset(registry.ids), NOW.date())
    node = Node(None, "snapshot", None, None, None, None, None, None, ())
    ids = frozenset(registry.ids) if wanted is None else wanted
    return report_on(diagnose(outcomes, desk), wanted=ids, node=node, config=config, started_at=NOW, seconds=0.0)


class Bench:
    """A registry being filled with checks that give prepared verdicts."""

    def __init__(self) -> None:
        self.registry = Registry()

    def add(
        self,
        check_id: str,
        verdicts: Callable[[], Sequence[Verdict]],
        over: type[Population] | None = None,
        needs: frozenset[Link] = frozenset(),
        explained_by: tuple[str, ...] = (),
        essential: bool = False,
    ) -> None:
        """Declare a check."""

        def asked() -> Verdicts:
            """Prepared."""
            yield from verdicts()

        link = Link(check_id.split(".", maxsplit=1)[0])
        check(
            check_id,
            link=link,
            title=check_id,
            over=over,
            needs=needs,
            explained_by=explained_by,
            essential=essential,
            registry=self.registry,
        )(asked)


@pytest.fixture
def bench() -> Bench:
    """An empty bench."""
    return Bench()


def causes(report: Report) -> list[tuple[str, list[str]]]:
    """Each root cause's check and subjects."""
    return [(cause.check, [subject.key for subject in cause.subjects]) for cause in report.root_causes]


def test_the_chain_is_the_designs() -> None:
    assert BELOW[Link.WORKLOAD] >= {Link.PCIE, Link.FABRIC, Link.CGROUP, Link.DEVICE_PLUGIN}
    assert BELOW[Link.CGROUP] == {Link.CGROUP, Link.DEVICE_NODES, Link.KERNEL_MODULE, Link.PCIE}
    assert STANDS_ON[Link.STARTUP] == frozenset()
    order = list(Link)
    assert all(order.index(below) < order.index(link) for link, belows in STANDS_ON.items() for below in belows)


def test_a_check_whose_whole_population_is_down_is_blocked(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(gpu, "same") for gpu in GPUS], over=Gpus)
    bench.add("driver-cuda.b", lambda: [ok(gpu) for gpu in GPUS], over=Gpus, needs=frozenset({Link.DEVICE_NODES}))
    report = diagnose_with(bench.registry)
    assert report.result("driver-cuda.b").status is Status.BLOCKED
    assert report.result("driver-cuda.b").blocked_by == tuple(f"pcie.a@gpu:{gpu.key}" for gpu in GPUS)
    assert causes(report) == [("pcie.a", [gpu.key for gpu in GPUS])]


def test_a_check_of_part_of_a_population_runs_and_folds_the_part(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    bench.add(
        "driver-cuda.b",
        lambda: [bad(GPUS[0]), bad(GPUS[1]), *map(ok, GPUS[2:])],
        over=Gpus,
        needs=frozenset({Link.PCIE}),
    )
    report = diagnose_with(bench.registry)
    assert causes(report) == [("pcie.a", [GPUS[0].key]), ("driver-cuda.b", [GPUS[1].key])]
    assert report.root_causes[0].consequence_ids == (f"driver-cuda.b@gpu:{GPUS[0].key}",)


def test_breaks_node_takes_down_everything_above(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(NODE, breaks=Breaks.NODE)])
    bench.add("driver-cuda.b", lambda: [ok(gpu) for gpu in GPUS], over=Gpus, needs=frozenset({Link.PCIE}))
    bench.add("toolkit.c", lambda: [bad(NODE)])
    report = diagnose_with(bench.registry)
    assert report.result("driver-cuda.b").status is Status.BLOCKED
    assert causes(report) == [("pcie.a", ["node"]), ("toolkit.c", ["node"])]


def test_breaks_nothing_explains_nothing(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(gpu, breaks=Breaks.NOTHING) for gpu in GPUS], over=Gpus)
    bench.add("driver-cuda.b", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus, needs=frozenset({Link.PCIE}))
    assert len(diagnose_with(bench.registry).root_causes) == 5


def test_a_check_that_needs_nothing_is_never_folded(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    bench.add("health.b", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    assert len(diagnose_with(bench.registry).root_causes) == 2


def test_equal_causes_of_one_check_are_one_root_cause_and_different_ones_are_not(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[0], "x"), bad(GPUS[1], "x"), bad(GPUS[2], "y"), bad(GPUS[3])], over=Gpus)
    found = causes(diagnose_with(bench.registry))
    assert sorted(len(subjects) for _, subjects in found) == [1, 1, 2]


def test_a_container_stands_on_its_gpus(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[1]), ok(GPUS[0]), *map(ok, GPUS[2:])], over=Gpus)
    bench.add("workload.b", lambda: [bad(BOX)], over=Boxes, needs=frozenset({Link.PCIE}))
    report = diagnose_with(bench.registry)
    assert report.result("workload.b").status is Status.BLOCKED
    bench.add("workload.c", lambda: [bad(NODE, of=(BOX,))], needs=frozenset({Link.PCIE}))
    assert causes(diagnose_with(bench.registry)) == [("pcie.a", [GPUS[1].key])]


def test_a_node_verdict_about_members_is_explained_only_if_every_member_is(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    bench.add("driver-cuda.one", lambda: [bad(NODE, of=(GPUS[0],))], needs=frozenset({Link.PCIE}))
    bench.add("driver-cuda.two", lambda: [bad(NODE, of=(GPUS[0], GPUS[1]))], needs=frozenset({Link.PCIE}))
    assert [check_id for check_id, _ in causes(diagnose_with(bench.registry))] == ["pcie.a", "driver-cuda.two"]


def test_explained_by_folds_within_a_link_under_the_same_subject_rule(bench: Bench) -> None:
    bench.add("pcie.z", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    bench.add("pcie.a", lambda: [bad(GPUS[0]), bad(GPUS[1]), *map(ok, GPUS[2:])], over=Gpus, explained_by=("pcie.z",))
    assert causes(diagnose_with(bench.registry)) == [("pcie.a", [GPUS[1].key]), ("pcie.z", [GPUS[0].key])] or causes(
        diagnose_with(bench.registry)
    ) == [("pcie.z", [GPUS[0].key]), ("pcie.a", [GPUS[1].key])]


def test_an_unseen_lower_link_explains_nothing_but_is_named(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [Unknown(GPUS[0], Why.NO_PERMISSION, "hidden"), *map(ok, GPUS[1:])], over=Gpus)
    bench.add(
        "driver-cuda.b",
        lambda: [bad(GPUS[0]), bad(GPUS[1]), *map(ok, GPUS[2:])],
        over=Gpus,
        needs=frozenset({Link.PCIE}),
    )
    report = diagnose_with(bench.registry)
    assert len(report.root_causes) == 2
    assert report.finding(f"driver-cuda.b@gpu:{GPUS[0].key}").possible_causes == (f"pcie.a@gpu:{GPUS[0].key}",)
    assert report.finding(f"driver-cuda.b@gpu:{GPUS[1].key}").possible_causes == ()


def test_a_warn_that_nothing_explains_is_a_root_cause(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [Warn(NODE, "odd", SEEN, DO)])
    report = diagnose_with(bench.registry)
    assert (report.verdict, report.exit_code, causes(report)) == (Overall.WARN, 1, [("pcie.a", ["node"])])


def test_members_without_a_verdict_are_not_answered(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [ok(GPUS[0]), ok(GPUS[1])], over=Gpus)
    result = diagnose_with(bench.registry).result("pcie.a")
    unanswered = [finding.subject.key for finding in result.findings if finding.why is Why.NOT_ANSWERED]
    assert unanswered == [GPUS[2].key, GPUS[3].key]
    assert result.status is Status.UNKNOWN


def test_a_check_that_says_nothing_has_crashed(bench: Bench) -> None:
    bench.add("pcie.a", list, over=Gpus)
    bench.add("toolkit.b", list)
    report = diagnose_with(bench.registry)
    assert [report.result(check_id).why for check_id in ("pcie.a", "toolkit.b")] == ["crashed", "crashed"]


def test_a_crashing_check_costs_its_own_answer_only(bench: Bench) -> None:
    def crash() -> Sequence[Verdict]:
        raise ZeroDivisionError("oops")

    bench.add("pcie.a", crash, over=Gpus, essential=True)
    bench.add("health.b", lambda: [ok(NODE)])
    report = diagnose_with(bench.registry)
    crashed = report.result("pcie.a")
    assert (crashed.status, crashed.why) == (Status.UNKNOWN, "crashed")
    summary = next(finding.summary for finding in crashed.findings if finding.why is Why.CRASHED)
    assert "ZeroDivisionError: oops" in summary and "report" in summary
    assert report.result("health.b").status is Status.PASS
    assert report.exit_code == 3


def test_a_fact_that_cannot_be_read_makes_its_checks_unknown_with_the_reason() -> None:
    registry = Registry()

    @check("pcie.a", link=Link.PCIE, title="a", over=Gpus, registry=registry)
    def blind(gpus: Gpus, hidden: Hidden) -> Verdicts:
        """Needs what is hidden."""
        yield from (ok(gpu) for gpu in gpus.members)

    @check("pcie.b", link=Link.PCIE, title="b", registry=registry)
    def judges(hidden: Reading[Hidden]) -> Verdicts:
        """Judges the not-knowing itself."""
        yield bad(NODE) if isinstance(hidden, Unread) else ok(NODE)

    @check("pcie.c", link=Link.PCIE, title="c", registry=registry)
    def unlucky(broken: Broken) -> Verdicts:
        """Needs a fact whose parser fails."""
        yield ok(NODE)

    report = diagnose_with(registry)
    assert {finding.why for finding in report.result("pcie.a").findings} == {Why.NO_PERMISSION}
    assert "/hidden: permission denied" in report.result("pcie.a").findings[0].summary
    assert report.result("pcie.b").status is Status.FAIL
    assert report.result("pcie.c").why == "crashed"
    assert next((unseen.why, unseen.would_need) for unseen in report.not_seen) == (Why.NO_PERMISSION, "root")


def test_an_empty_population_is_not_applicable_blocked_or_unknown(bench: Bench) -> None:
    bench.add("driver-cuda.a", lambda: [ok(NODE)], over=Nothing, needs=frozenset({Link.PCIE}))
    bench.add("driver-cuda.b", lambda: [ok(NODE)], over=HalfListed)
    report = diagnose_with(bench.registry)
    assert (report.result("driver-cuda.a").status, report.result("driver-cuda.a").why) == (
        Status.SKIP,
        "not-applicable",
    )
    assert (report.result("driver-cuda.b").status, report.result("driver-cuda.b").why) == (
        Status.UNKNOWN,
        "not-recorded",
    )
    bench.add("pcie.z", lambda: [bad(NODE, breaks=Breaks.NODE)])
    assert diagnose_with(bench.registry).result("driver-cuda.a").status is Status.BLOCKED


def test_a_waived_fail_keeps_its_status_and_still_explains_but_does_not_count(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus)
    bench.add("driver-cuda.b", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus, needs=frozenset({Link.PCIE}))
    waiver = Waiver("pcie.a", "in a virtual machine", GPUS[0].key, datetime.date(2026, 11, 29))
    report = diagnose_with(bench.registry, Config(waive=(waiver,)))
    waived = report.finding(f"pcie.a@gpu:{GPUS[0].key}")
    assert waived.status is Status.FAIL and waived.waived is not None and waived.waived.reason == "in a virtual machine"
    assert report.finding(f"driver-cuda.b@gpu:{GPUS[0].key}").caused_by == (waived.id,)
    assert (report.exit_code, report.root_causes) == (0, ())


def test_an_expired_waiver_counts_no_more(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(NODE)])
    waiver = Waiver("pcie.a", "soon", until=datetime.date(2026, 11, 28))
    assert diagnose_with(bench.registry, Config(waive=(waiver,))).exit_code == 2


def test_an_essential_check_blocked_by_waived_fails_only_is_unknown(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(NODE, breaks=Breaks.NODE)])
    bench.add("driver-cuda.b", lambda: [ok(NODE)], needs=frozenset({Link.PCIE}), essential=True)
    report = diagnose_with(bench.registry, Config(waive=(Waiver("pcie.a", "known"),)))
    assert (report.verdict, report.exit_code) == (Overall.UNKNOWN, 3)


def test_a_disabled_check_is_skipped_and_blocks_nothing(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(NODE, breaks=Breaks.NODE)])
    bench.add("driver-cuda.b", lambda: [ok(NODE)], needs=frozenset({Link.PCIE}))
    report = diagnose_with(bench.registry, Config(disable=("pcie.a",)))
    assert (report.result("pcie.a").status, report.result("pcie.a").why) == (Status.SKIP, "disabled")
    assert report.exit_code == 0


def test_exit_codes_in_their_order(bench: Bench) -> None:
    bench.add("pcie.warn", lambda: [Warn(NODE, "odd", SEEN, DO)])
    assert diagnose_with(bench.registry).exit_code == 1
    bench.add("pcie.unknown", lambda: [Unknown(NODE, Why.UNREADABLE, "?")])
    assert diagnose_with(bench.registry).exit_code == 1
    bench.add("pcie.essential", lambda: [Unknown(NODE, Why.UNREADABLE, "?")], essential=True)
    assert diagnose_with(bench.registry).exit_code == 3
    bench.add("pcie.fail", lambda: [bad(NODE)])
    assert diagnose_with(bench.registry).exit_code == 2


def test_when_every_essential_question_is_inapplicable_nothing_is_passed(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [NotApplicable(NODE, "no such thing")], essential=True)
    bench.add("toolkit.b", lambda: [ok(NODE)])
    assert diagnose_with(bench.registry).verdict is Overall.UNKNOWN


def test_order_is_status_link_consequences_check_key(bench: Bench) -> None:
    bench.add("toolkit.b", lambda: [bad(NODE)])
    bench.add("pcie.a", lambda: [bad(GPUS[1], "light"), bad(GPUS[0], "heavy"), *map(ok, GPUS[2:])], over=Gpus)
    bench.add("device-nodes.c", lambda: [bad(GPUS[0]), *map(ok, GPUS[1:])], over=Gpus, needs=frozenset({Link.PCIE}))
    bench.add("pcie.w", lambda: [Warn(NODE, "odd", SEEN, DO)])
    report = diagnose_with(bench.registry)
    assert causes(report) == [
        ("pcie.a", [GPUS[0].key]),
        ("pcie.a", [GPUS[1].key]),
        ("toolkit.b", ["node"]),
        ("pcie.w", ["node"]),
    ]
    assert [result.check for result in report.results] == ["pcie.a", "device-nodes.c", "toolkit.b", "pcie.w"]


def test_two_verdicts_about_one_subject_get_numbered_ids(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [ok(NODE), bad(NODE, "x"), bad(NODE, "y")])
    ids = {finding.id for finding in diagnose_with(bench.registry).result("pcie.a").findings}
    assert ids == {"pcie.a@node:node", "pcie.a@node:node#2", "pcie.a@node:node#3"}


def test_a_narrowed_report_holds_what_blocks_it(bench: Bench) -> None:
    bench.add("pcie.a", lambda: [bad(NODE, breaks=Breaks.NODE)])
    bench.add("driver-cuda.b", lambda: [ok(NODE)], needs=frozenset({Link.PCIE}))
    bench.add("toolkit.c", lambda: [bad(NODE)])
    report = diagnose_with(bench.registry, wanted=frozenset({"driver-cuda.b"}))
    assert {result.check for result in report.results} == {"pcie.a", "driver-cuda.b"}
    assert report.exit_code == 2


@pytest.mark.parametrize(
    "make", [lambda: Pass(NODE, "x", ()), lambda: Warn(NODE, "x", (), DO), lambda: Warn(NODE, "x", SEEN, ())]
)
def test_no_claim_without_evidence_no_alarm_without_remedy(make: Callable[[], Verdict]) -> None:
    with pytest.raises(ValueError, match="needs"):
        make()
    with pytest.raises(ValueError, match="needs"):
        Fail(NODE, "x", (), DO, Breaks.NODE)
    with pytest.raises(ValueError, match="needs"):
        Fail(NODE, "x", SEEN, (), Breaks.NODE)


def test_wrong_declarations_are_load_errors(bench: Bench) -> None:
    bench.add("pcie.a", list, explained_by=("pcie.b",))
    bench.add("pcie.b", list, explained_by=("pcie.a",))
    with pytest.raises(RegistryError, match="cycle"):
        list(bench.registry)
    with pytest.raises(RegistryError, match="twice"):
        bench.add("pcie.a", list)
    with pytest.raises(RegistryError, match="needs its own link"):
        bench.add("pcie.c", list, needs=frozenset({Link.KERNEL_MODULE}))
    with pytest.raises(RegistryError, match="begin with its link"):
        check("nodes.x", link=Link.PCIE, title="x", registry=Registry())(lambda: iter(()))


def test_a_parameter_that_is_no_fact_is_refused() -> None:
    def asks_for_text(word: str) -> Verdicts:
        """No fact."""
        yield ok(NODE)

    with pytest.raises(RegistryError, match="must be annotated"):
        check("pcie.x", link=Link.PCIE, title="x", registry=Registry())(asks_for_text)


def test_a_warn_explains_a_warn_of_a_check_that_names_it_and_no_fail(bench: Bench) -> None:
    bench.add("health.first", lambda: [Warn(GPUS[0], "worn", SEEN, DO)])
    said_again = [Warn(GPUS[0], "worn, they say", SEEN, DO), Warn(GPUS[1], "worn as well", SEEN, DO)]
    bench.add("health.second", lambda: said_again, explained_by=("health.first",))
    bench.add("health.third", lambda: [bad(GPUS[0])], explained_by=("health.first",))
    found = causes(diagnose_with(bench.registry))
    assert sorted(found) == [
        ("health.first", [GPUS[0].key]),
        ("health.second", [GPUS[1].key]),
        ("health.third", [GPUS[0].key]),
    ]


class Answers(Fact, frozen=True):
    """A fact that cannot be read where its link is down."""

    OF = Link.DRIVER_CUDA

    @classmethod
    def gather(cls, desk: Desk) -> "Answers | Unread":
        """Never known."""
        return Unread(Why.WITHHELD, "answers", "were not asked for")


@pytest.mark.parametrize(
    ("below", "blocked"), [("driver-cuda.a", True), ("kernel-module.a", True), ("toolkit.a", False)]
)
def test_a_check_is_blocked_where_its_fact_was_not_read_because_the_facts_link_is_down(
    bench: Bench, below: str, blocked: bool
) -> None:
    bench.add(below, lambda: [Fail(NODE, "broken", SEEN, DO, Breaks.NODE)])

    @check("health.asks", link=Link.HEALTH, over=Gpus, title="asks", registry=bench.registry)
    def asks(gpus: Gpus, answers: Answers) -> Verdicts:
        """Needs the answers."""
        yield from (ok(gpu) for gpu in gpus.members)

    result = diagnose_with(bench.registry).result("health.asks")
    assert (result.status is Status.BLOCKED, result.status is Status.UNKNOWN) == (blocked, not blocked)


def test_a_check_whose_fact_was_read_speaks_though_the_facts_link_is_down(bench: Bench) -> None:
    class Read(Answers, frozen=True):
        """As Answers, and read."""

        @classmethod
        def gather(cls, desk: Desk) -> "Read | Unread":
            """Always known."""
            return cls()

    bench.add("driver-cuda.a", lambda: [Fail(NODE, "broken", SEEN, DO, Breaks.NODE)])

    @check("health.asks", link=Link.HEALTH, title="asks", registry=bench.registry)
    def asks(answers: Read) -> Verdicts:
        """Needs the answers."""
        yield Fail(NODE, "worn out", SEEN, DO, Breaks.SUBJECT)

    assert causes(diagnose_with(bench.registry)) == [("driver-cuda.a", ["node"]), ("health.asks", ["node"])]
