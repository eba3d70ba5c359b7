"""Device rules of a running kernel: what gpudoctor reads from them against what open(2) and mknod(2) really give."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.cgroup_paths import parse_groups
from gpudoctor.facts.cgroup_places import CgroupMounts, CgroupPlace
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.device_programs import DeviceProgram, DevicePrograms
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.probes.bpf import look_at_device_programs
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.sources.recorder import Recorder
from gpudoctor.verdicts import Unread, Why
from tests.bpf_assembler import Assembler
from tests.captures import Builder
from tests.cgroup_stage import (
    ALLOWED,
    Loader,
    Stage,
    StageNode,
    Trier,
    compiled_probe,
    needs_root,
    stage,
)
from tests.device_shapes import RW, SHAPES, means, random_rules

TRIED = (Access.READ, Access.WRITE, RW, Access.MKNOD)
MAJORS, MINORS = (1, 120, 121), (3, 7, 20, 31)
NODES = [
    *((DeviceKind.CHAR, major, minor) for major in (1, 120) for minor in MINORS),
    (DeviceKind.CHAR, 121, 3),
    (DeviceKind.CHAR, 122, 3),
    (DeviceKind.BLOCK, 120, 3),
    (DeviceKind.BLOCK, 121, 20),
]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program that tries nodes."""
    needs_root()
    return compiled_probe(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def on_stage(tmp_path_factory: pytest.TempPathFactory, probe: Path) -> Iterator[Stage]:
    """A stage that all tests here share."""
    with stage(tmp_path_factory.mktemp("stage"), probe) as made:
        yield made


@pytest.fixture(scope="module")
def loader(on_stage: Stage) -> Loader:
    """Loads programs, where the kernel lets root do so and cgroup v2 is there."""
    if not on_stage.v2:
        pytest.skip("needs cgroup v2: it could not be mounted")
    loading = Loader()
    try:
        os.close(loading.loaded(nothing_but(1)))
    except OSError as error:
        pytest.skip(f"needs bpf(2) to load programs: {error}")
    return loading


def nothing_but(verdict: int) -> bytes:
    """A program with one answer to everything."""
    code = Assembler()
    code.exit(verdict)
    return code.code()


def rules_at(on_stage: Stage, unified: str | None = None, devices: str | None = None) -> CgroupRules:
    """The rules of a place on the stage."""
    place = CgroupPlace(unified=unified, devices=devices, mount=on_stage.path("v2"))
    return DeviceRules.read(StageNode(), [place]).by_place[place]


def compare(on_stage: Stage, trier: Trier, rules: CgroupRules, seen: "Counter[str]", label: object) -> None:
    """All nodes in all ways: the rules must say what really happens."""
    for kind, major, minor in NODES:
        for access, outcome in on_stage.outcomes(trier, kind, major, minor).items():
            asked = DeviceAccess(kind, major, minor, access)
            assert outcome in ("EPERM", *ALLOWED), (label, asked.words, outcome)
            assert rules.allows(asked) is (outcome != "EPERM"), (label, asked.words, outcome, rules.cite(asked))
            seen["denied" if outcome == "EPERM" else "allowed"] += 1


# programs, attached -----------------------------------------------------------------------------------------------------


def test_programs_of_every_shape_do_what_is_said_of_them(on_stage: Stage, loader: Loader) -> None:
    """Loaded and attached; the instructions as they were written, as the kernel gives them back, and what really happens."""
    chance = random.Random(120)  # noqa: S311 - the same rules each time, no secret
    seen: Counter[str] = Counter()
    with on_stage.cgroup("v2/shapes") as cgroup, on_stage.trier(cgroup) as trier:
        for number in range(90):
            shape = list(SHAPES)[number % len(SHAPES)]
            rules = random_rules(chance, MAJORS, MINORS, denials=number % 2 == 0, most=8)
            code = SHAPES[shape](rules)
            with loader.attached(cgroup, code) as program:
                read = rules_at(on_stage, cgroup)
                written = DevicePrograms({program: DeviceProgram(id=program, insns=code.hex())})
                compare(on_stage, trier, read, seen, (shape, rules))
                for kind, major, minor in NODES:
                    for access in TRIED:
                        asked = DeviceAccess(kind, major, minor, access)
                        assert written.allows(program, asked) is read.allows(asked) is means(rules, asked)
        assert on_stage.outcomes(trier, DeviceKind.CHAR, 120, 3)[RW] in ALLOWED
    print(f"90 programs attached: {dict(seen)}")
    assert seen.total() == 90 * len(NODES) * len(TRIED)
    assert min(seen.values()) > 500


def test_programs_further_up_must_allow_too(on_stage: Stage, loader: Loader) -> None:
    only_null = SHAPES["systemd"](random_rules(random.Random(2), MAJORS, MINORS, denials=False))  # noqa: S311
    names = ("v2/slice", "v2/slice/scope", "v2/slice/scope/container")
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        slice_, scope, container = (stack.enter_context(on_stage.cgroup(name)) for name in names)
        trier = stack.enter_context(on_stage.trier(container))
        compare(on_stage, trier, rules_at(on_stage, container), seen, "none")
        lower = stack.enter_context(loader.attached(container, nothing_but(1)))
        upper = stack.enter_context(loader.attached(scope, only_null, name="sd_devices"))
        rules = rules_at(on_stage, container)
        assert isinstance(rules.applied, tuple)
        assert {applied.program.id: applied.attached_to for applied in rules.applied} == {
            lower: container,
            upper: scope,
        }
        assert {applied.program.name for applied in rules.applied} == {"", "sd_devices"}
        compare(on_stage, trier, rules, seen, "two")
        denied = next(
            DeviceAccess(kind, major, minor, RW)
            for kind, major, minor in NODES
            if rules.allows(DeviceAccess(kind, major, minor, RW)) is False
        )
        assert rules.cite(denied)[0].shows == f"program sd_devices #{upper}, attached to {scope}, denies {denied.words}"
        stack.enter_context(loader.attached(slice_, nothing_but(0)))
        compare(on_stage, trier, rules_at(on_stage, container), seen, "three")
    assert seen.total() == 3 * len(NODES) * len(TRIED)


def test_what_the_probe_tells_of_a_program(on_stage: Stage, loader: Loader) -> None:
    with (
        on_stage.cgroup("v2/told") as cgroup,
        loader.attached(cgroup, SHAPES["narrow"]([]), name="sd_devices") as number,
        loader.attached(cgroup, nothing_but(1)) as other,
    ):
        answer = look_at_device_programs(
            Question("cgroup_devices", {"cgroups": [on_stage.inside("v2/told")]}), on_stage.root
        )
    (seen,) = answer.data["cgroups"].values()
    assert seen == {"effective": [number, other], "attached": [number, other], "error": None}
    told = answer.data["programs"][str(number)]
    assert (told["name"], told["uid"], told["error"]) == ("sd_devices", 0, None)
    assert len(told["tag"]) == 16
    assert abs(told["loaded_at"] - on_stage.now()) < 60
    assert answer.data["programs"][str(other)]["insns"] == nothing_but(1).hex()


def test_more_programs_than_one_cgroup_can_have(on_stage: Stage, loader: Loader) -> None:
    """Those of the cgroups above count, too: more than the first question has room for."""
    with ExitStack() as stack:
        upper = stack.enter_context(on_stage.cgroup("v2/many"))
        lower = stack.enter_context(on_stage.cgroup("v2/many/lower"))
        for cgroup in (upper, lower):
            for _ in range(40):
                stack.enter_context(loader.attached(cgroup, nothing_but(1)))
        answer = look_at_device_programs(Question("cgroup_devices", {"cgroups": [lower]}))
    assert len(answer.data["cgroups"][lower]["effective"]) == 80
    assert len(answer.data["cgroups"][lower]["attached"]) == 40
    assert len(answer.data["programs"]) == 80


def test_what_is_no_cgroup_is_said_to_be_none(on_stage: Stage, loader: Loader) -> None:
    paths = [on_stage.path("v2/no-such"), on_stage.path("nodes"), *([on_stage.path("v1")] if on_stage.v1 else [])]
    answer = look_at_device_programs(Question("cgroup_devices", {"cgroups": paths}))
    errors = [answer.data["cgroups"][path]["error"] for path in paths]
    assert errors == ["ENOENT", "EBADF", "EBADF"][: len(paths)]


@pytest.mark.parametrize(
    ("dropped", "cgroup_error", "program_error"),
    [("sys_admin bpf perfmon net_admin", "EPERM", None), ("sys_admin bpf perfmon", None, "EPERM")],
)
def test_without_privilege_it_says_which_it_would_need(
    on_stage: Stage, loader: Loader, dropped: str, cgroup_error: str | None, program_error: str | None
) -> None:
    """In a child without capabilities: CAP_NET_ADMIN lists programs, but only CAP_SYS_ADMIN reads them."""
    script = (
        "import json, sys; from gpudoctor.facts.raw import Question; from gpudoctor.probes.bpf import *;"
        "print(json.dumps(look_at_device_programs(Question('cgroup_devices', {'cgroups': sys.argv[1:]})).data))"
    )
    drop = ",".join(f"-{name}" for name in dropped.split())
    inside = on_stage.inside("v2/poor")
    poor = [
        "nsenter",
        f"--mount=/proc/{on_stage.pid}/ns/mnt",
        "--",
        "setpriv",
        "--bounding-set",
        drop,
        "--inh-caps",
        drop,
    ]
    with on_stage.cgroup("v2/poor") as cgroup, loader.attached(cgroup, nothing_but(0)) as number:
        child = subprocess.run(
            [*poor, sys.executable, "-c", script, inside], capture_output=True, text=True, check=True
        )
    data = json.loads(child.stdout)
    assert data["cgroups"][inside]["error"] == cgroup_error
    assert data["programs"] == ({str(number): {"error": program_error}} if program_error else {})
    node = RecordedNode(Builder().tree)
    node.answers["cgroup_devices"] = Answer(data=data)
    place = CgroupPlace(unified=inside)
    said = DeviceRules.read(node, [place]).by_place[place].allows(DeviceAccess(DeviceKind.CHAR, 195, 0, RW))
    assert isinstance(said, Unread)
    assert (said.why, said.would_need) == (Why.NO_PERMISSION, "root (CAP_SYS_ADMIN)")


def mounted_cgroup() -> str | None:
    """The cgroup of this process in a cgroup v2 that is mounted on this machine."""
    mounts = CgroupMounts.parsed(Path("/proc/self/mountinfo").read_text("utf-8"))
    groups = parse_groups(Path("/proc/self/cgroup").read_text("utf-8"))
    place = mounts.place(groups.unified, groups.devices, "/proc/self/cgroup")
    return place.unified if isinstance(place.unified, str) else None


def test_a_recording_answers_as_the_live_node_did() -> None:
    needs_root()
    mounted = mounted_cgroup()
    if mounted is None:
        pytest.skip("needs a mounted cgroup v2")
    place = CgroupPlace(unified=mounted)
    recorder = Recorder(Live(Deadline(30)))
    asked = DeviceAccess(DeviceKind.CHAR, 195, 0, RW)
    live = DeviceRules.read(recorder, [place]).by_place[place]
    with tempfile.TemporaryDirectory() as directory:
        recorder.write(Path(directory, "snapshot"), Config())
        replayed = DeviceRules.read(open_source(str(Path(directory, "snapshot"))), [place]).by_place[place]
    assert replayed.allows(asked) == live.allows(asked)
    assert replayed.cite(asked) == live.cite(asked)


# lists of v1 ------------------------------------------------------------------------------------------------------------


def test_lists_of_v1_do_what_they_say(on_stage: Stage) -> None:
    if not on_stage.v1:
        pytest.skip("needs the cgroup v1 controller devices: it could not be mounted")
    chance = random.Random(5)  # noqa: S311 - the same rules each time, no secret
    seen: Counter[str] = Counter()
    with on_stage.cgroup("v1/lists") as cgroup, on_stage.trier(cgroup) as trier:
        compare(on_stage, trier, rules_at(on_stage, None, cgroup), seen, "all")
        for _ in range(40):
            Path(cgroup, "devices.deny").write_text("a", "ascii")
            for rule in random_rules(chance, MAJORS, MINORS, denials=False, most=6):
                kinds = "cb" if rule.kind is None else rule.kind.letter
                numbers = ":".join("*" if number is None else str(number) for number in (rule.major, rule.minor))
                for kind in kinds:
                    Path(cgroup, "devices.allow").write_text(f"{kind} {numbers} {rule.access.letters}", "ascii")
            compare(
                on_stage, trier, rules_at(on_stage, None, cgroup), seen, Path(cgroup, "devices.list").read_text("ascii")
            )
    print(f"41 lists of v1: {dict(seen)}")
    assert seen.total() == 41 * len(NODES) * len(TRIED)
    assert min(seen.values()) > 200


def test_the_list_of_the_cgroup_itself_is_all_that_counts_on_v1(on_stage: Stage) -> None:
    """What is taken from a cgroup disappears from the lists below it, and cannot be given back there."""
    if not on_stage.v1:
        pytest.skip("needs the cgroup v1 controller devices: it could not be mounted")
    seen: Counter[str] = Counter()
    with (
        on_stage.cgroup("v1/upper") as upper,
        on_stage.cgroup("v1/upper/lower") as lower,
        on_stage.trier(lower) as trier,
    ):
        Path(lower, "devices.deny").write_text("a", "ascii")
        for rule in ("c 120:* rwm", "c 1:3 rw", "c 1:* r"):
            Path(lower, "devices.allow").write_text(rule, "ascii")
        compare(on_stage, trier, rules_at(on_stage, None, lower), seen, "before")
        Path(upper, "devices.deny").write_text("c 120:3 w", "ascii")
        assert "c 120:* rwm" not in Path(lower, "devices.list").read_text("ascii")
        compare(on_stage, trier, rules_at(on_stage, None, lower), seen, "after")
        with pytest.raises(PermissionError):
            Path(lower, "devices.allow").write_text("c 120:3 rw", "ascii")
    assert min(seen.values()) > 10


def test_a_list_that_allows_all_does_not_show_what_was_denied(on_stage: Stage) -> None:
    """The one thing that cannot be read: whoever is told "allowed" is told this, too."""
    if not on_stage.v1:
        pytest.skip("needs the cgroup v1 controller devices: it could not be mounted")
    with on_stage.cgroup("v1/hidden") as cgroup, on_stage.trier(cgroup) as trier:
        Path(cgroup, "devices.deny").write_text("c 120:3 rw", "ascii")
        rules = rules_at(on_stage, None, cgroup)
        assert on_stage.outcomes(trier, DeviceKind.CHAR, 120, 3)[RW] == "EPERM"
    asked = DeviceAccess(DeviceKind.CHAR, 120, 3, RW)
    assert rules.allows(asked) is True
    assert rules.may_hide_denials
    assert rules.cite(asked)[0].shows == "a *:* rwm (whatever else was denied is not listed)"


def test_both_hierarchies_must_allow(on_stage: Stage, loader: Loader) -> None:
    if not on_stage.v1:
        pytest.skip("needs the cgroup v1 controller devices: it could not be mounted")
    seen: Counter[str] = Counter()
    with (
        on_stage.cgroup("v1/both") as listed,
        on_stage.cgroup("v2/both") as unified,
        on_stage.trier(listed, unified) as trier,
    ):
        Path(listed, "devices.deny").write_text("a", "ascii")
        Path(listed, "devices.allow").write_text("c 120:* rw", "ascii")
        compare(on_stage, trier, rules_at(on_stage, unified, listed), seen, "list only")
        rules = random_rules(random.Random(3), (120, 1), (3, 7), denials=False)  # noqa: S311 - no secret
        with loader.attached(unified, SHAPES["runc"](rules)):
            compare(on_stage, trier, rules_at(on_stage, unified, listed), seen, "both")
    assert min(seen.values()) > 5


# what is not the rules' doing -------------------------------------------------------------------------------------------


def test_mode_and_mount_are_asked_before_the_rules(on_stage: Stage, loader: Loader) -> None:
    """EACCES is neither an answer of the rules nor their absence; ENOENT neither."""
    closed = on_stage.node(DeviceKind.CHAR, 120, 7, name="closed/c120:7")
    with on_stage.cgroup("v2/third") as cgroup, on_stage.trier(cgroup) as trier:
        assert trier.open(closed, RW) == "EACCES"
        with loader.attached(cgroup, nothing_but(0)):
            assert rules_at(on_stage, cgroup).allows(DeviceAccess(DeviceKind.CHAR, 120, 7, RW)) is False
            assert trier.open(closed, RW) == "EACCES"
            assert trier.open(on_stage.path("nodes/no-such"), RW) == "ENOENT"
