"""Device programs: against what the rig's containers could really open, and rule lists in programs of many shapes."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudoctor.facts.cgroup_places import CgroupPlace
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.device_programs import DeviceProgram, DevicePrograms, allows
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from gpudoctor.facts.raw import Answer
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Unread, Why
from tests.bpf_assembler import Assembler, blinded
from tests.captures import Builder
from tests.conftest import SHARED
from tests.device_shapes import NVIDIA0, RUNTIMES, RW, SHAPES, TABLE_MINORS, means, random_questions, random_rules


def program(code: bytes, number: int = 41) -> DeviceProgram:
    """A program as the probe gives it."""
    return DeviceProgram(id=number, insns=code.hex())


# what the rig's containers could open -----------------------------------------------------------------------------------

RIG = ("containers/v1", "containers/v2", "vm-containers-v1", "vm-containers-v2", "vm-containers-v2-newrunc")
OPENED = re.compile(r"\S+ O_(RDWR|RDONLY) stat=(\w+) type=(.) dev=(\d+):(\d+) mode=\d+ open=(\w+)")
PAST_THE_RULES = ("OK", "ENXIO", "ENODEV", "EIO")
"""What open(2) gives once mode, mount and rules have let it through."""


class Opened(NamedTuple):
    """One attempt of a container to open a node."""

    asked: DeviceAccess
    outcome: str


def captured(folder: Path) -> tuple[CgroupRules, list[Opened]]:
    """The rules of a captured container, and what became of its attempts."""
    info = json.loads((folder / "info.json").read_text("utf-8"))
    builder = Builder()
    for directory, text in info.get("devices.list", {}).items():
        builder.text(f"{directory}/devices.list", text)
    node = RecordedNode(builder.tree)
    if "bpf" in info:
        programs = {key: {"name": seen["name"], "insns": seen["xlated_hex"]} for key, seen in info["raw"].items()}
        cgroups = {
            path: {"effective": seen["effective"]["ids"], "attached": seen["attached"]["ids"]}
            for path, seen in info["bpf"].items()
        }
        node.answers["cgroup_devices"] = Answer(data={"programs": programs, "cgroups": cgroups}, via="bpf(2)")
    place = CgroupPlace(**{"unified" if "bpf" in info else "devices": info["cgroup_dir"]})
    return DeviceRules.read(node, [place]).by_place[place], list(attempts(folder / "probe_in_cgroup.txt"))


def attempts(probe: Path) -> Iterator[Opened]:
    """The lines of a probe that found a node."""
    for line in probe.read_text("utf-8").splitlines():
        match = OPENED.fullmatch(line)
        if match is not None and match[2] == "OK":
            kind = DeviceKind.CHAR if match[3] == "c" else DeviceKind.BLOCK
            access = RW if match[1] == "RDWR" else Access.READ
            yield Opened(DeviceAccess(kind, int(match[4]), int(match[5]), access), match[6])


@pytest.fixture
def rig() -> Path:
    """The rig's captures, present where the shared material is."""
    if not (SHARED / "rig" / "README.md").is_file():
        pytest.skip("the shared captures of the rig are not here")
    return SHARED / "rig"


@pytest.mark.parametrize("part", RIG)
def test_every_container_of_the_rig_could_open_what_the_rules_allow(rig: Path, part: str) -> None:
    folders = sorted(place.parent for place in (rig / part).glob("*/info.json"))
    seen: Counter[str] = Counter()
    for folder in folders:
        rules, opened = captured(folder)
        for asked, outcome in opened:
            said = rules.allows(asked)
            # Mode and mount are asked before the rules: EACCES says nothing about those.
            if outcome == "EACCES":
                assert not isinstance(said, Unread), (folder, asked.words, said)
                seen["EACCES"] += 1
                continue
            assert outcome in ("EPERM", *PAST_THE_RULES), (folder, outcome)
            assert said is (outcome != "EPERM"), (folder, asked.words, outcome, rules.cite(asked))
            assert rules.cite(asked)
            seen["denied" if outcome == "EPERM" else "allowed"] += 1
    print(f"{part}: {len(folders)} folders, {dict(seen)}")
    assert len(folders) >= 12
    assert seen["allowed"] >= 100
    assert seen["denied"] >= 10


def test_who_denied_it_after_a_reload_is_named(rig: Path) -> None:
    rules, _ = captured(rig / "vm-containers-v2-newrunc/runc126.sd-legacy-hook.after-daemon-reload")
    assert [evidence.shows for evidence in rules.cite(NVIDIA0)] == ["program sd_devices #186 denies char 195:0 rw"]
    rules, _ = captured(rig / "vm-containers-v1/runc115.sd-legacy-hook.after-daemon-reload")
    assert "no rule allows char 195:0 rw; nearest: c *:* m" in rules.cite(NVIDIA0)[0].shows
    assert rules.granted(DeviceKind.CHAR, 195, 0) == Access.MKNOD


# the same rules in other shapes -----------------------------------------------------------------------------------------

MAJORS = (1, 5, 10, 120, 136, 195, 244, 508, 511, 4095)
MINORS = (0, 1, 2, 20, 254, 255, 4096, 1048575)
LISTS = 1000


def test_random_rule_lists_are_understood_in_every_shape() -> None:
    """Each list in three shapes, one of them once more with hidden constants, against what the list means."""
    chance = random.Random(195)  # noqa: S311 - the same lists each time, no secret
    compared: Counter[str] = Counter()
    allowed = 0
    for number in range(LISTS):
        rules = random_rules(chance, MAJORS, TABLE_MINORS if number % 2 else MINORS, denials=number % 3 == 0)
        usable = [shape for shape in SHAPES if shape != "table" or number % 2]
        shapes = [chance.choice(list(RUNTIMES)), *chance.sample([name for name in usable if name not in RUNTIMES], 2)]
        codes = {shape: SHAPES[shape](rules) for shape in shapes}
        codes["blinded"] = blinded(codes[chance.choice(shapes)], chance)
        judge = DevicePrograms({at: program(code, at) for at, code in enumerate(codes.values())})
        for asked in random_questions(chance, rules, MAJORS, TABLE_MINORS if number % 2 else MINORS, 8):
            expected = means(rules, asked)
            allowed += expected
            for at, shape in enumerate(codes):
                assert judge.allows(at, asked) is expected, (shape, asked.words, rules)
                compared[shape] += 1
    print(f"{LISTS} lists, {compared.total()} answers, {allowed} questions allowed: {dict(compared)}")
    assert set(compared) == {*SHAPES, "blinded"}
    assert min(compared.values()) > 500
    assert allowed > LISTS


# what cannot be run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program_seen", "why", "words"),
    [
        (DeviceProgram(id=5, insns="zz"), Why.UNREADABLE, "no eBPF program"),
        (DeviceProgram(id=5, insns="95"), Why.UNREADABLE, "no eBPF program"),
        (DeviceProgram(id=5), Why.NOT_RECORDED, "not recorded"),
        (DeviceProgram(id=5, name="x", tag="a", error="withheld"), Why.NO_PERMISSION, "hides the instructions"),
        (DeviceProgram(id=5, error="EPERM"), Why.NO_PERMISSION, "EPERM"),
        (DeviceProgram(id=5, error="ENOENT"), Why.UNREADABLE, "gone"),
    ],
)
def test_withheld_and_broken_instructions_are_unknown(program_seen: DeviceProgram, why: Why, words: str) -> None:
    said = allows(program_seen, NVIDIA0)
    assert isinstance(said, Unread)
    assert (said.why, words in said.detail) == (why, True), said
    assert ("CAP_SYS_ADMIN" in said.would_need) is (why is Why.NO_PERMISSION)


def test_numbers_that_no_device_has_are_unknown() -> None:
    said = allows(program(SHAPES["runc"]([])), DeviceAccess(DeviceKind.CHAR, -1, 0, RW))
    assert isinstance(said, Unread)
    assert "no device has such numbers" in said.detail


def test_equal_programs_are_judged_once() -> None:
    """A program without end takes long to give up on: not once for each container that has it."""
    endless = Assembler()
    endless.raw(0x05, offset=-1)
    judge = DevicePrograms({number: program(endless.code(), number) for number in range(500)})
    said = [judge.allows(number, NVIDIA0) for number in range(500)]
    assert {unread.where for unread in said if isinstance(unread, Unread)} == {
        f"device program #{number}" for number in range(500)
    }
